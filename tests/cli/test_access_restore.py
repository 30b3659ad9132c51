"""A store of an older version.

`lanner serve` migrates its queue owners; `lanner queue access restore` restores them.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import lanner
from lanner.security.profile import Profile
from tests.cli.conftest import Run, Served

OLD = "O:AND:(A;;0xf003f;;;WD)"
NEW = "O:BAD:(A;;0xf003f;;;BA)(A;;0x4;;;WD)(A;;0x4;;;AN)"


@pytest.fixture
def old(data: Path) -> Path:
    """Make a store as older versions made it."""
    with lanner.QueueManager(data, "ALPHA", profile=Profile.DOCUMENT) as manager:
        manager.create_queue("orders").send("kept")
        manager.create_queue("gone")
    return data


def access(run: Run) -> str:
    return str(run("queue", "access", "show", "orders", "--sddl").out.strip())


def saved(data: Path) -> Path:
    (file,) = data.glob("access-lists-*.json")
    return file


def test_the_service_migrates_and_says_so(old: Path, run: Run, serve: Callable[..., Served]) -> None:
    # A command does not know the profile of the service.
    assert access(run) == OLD
    assert not list(old.glob("access-lists-*"))
    service = serve("--json")
    assert "INFO" in service.line_with("queue ALPHA\\private$\\orders belonged to ANONYMOUS LOGON")
    assert str(saved(old)) in service.line_with("WARNING lanner.host.access_migration")
    service.ready()
    assert access(run) == NEW
    assert run("queue", "access", "show", "orders", "--json").json["owner"] == "Administrators"
    service.end(signal.SIGTERM)
    records = [json.loads(line) for line in (old / "audit.log").read_text().splitlines()]
    (record,) = (one for one in records if one.get("queue") == r"ALPHA\private$\orders" and "before" in one)
    assert (record["event"], record["before"], record["after"]) == ("change access", OLD, NEW)
    assert record["from"] == "start of the queue manager"


def test_the_document_profile_serves_the_store_as_it_is(
    old: Path, run: Run, serve: Callable[..., Served], tmp_path: Path
) -> None:
    config = tmp_path / "document.toml"
    config.write_text('[security]\nprofile = "document"\n')
    service = serve("--json", "--config", config)
    service.ready()
    assert access(run) == OLD
    service.end(signal.SIGTERM)
    assert not list(old.glob("access-lists-*"))


@pytest.mark.parametrize("is_running", [False, True], ids=["offline", "running"])
def test_old_lists_are_restored(old: Path, run: Run, serve: Callable[..., Served], is_running: bool) -> None:
    service = serve("--json")
    service.ready()
    if not is_running:
        service.end(signal.SIGTERM)
    file = saved(old)
    run("queue", "delete", "gone", "--yes")
    planned = {one["queue"]: one["result"] for one in run_json(run, file, "--dry-run")}
    assert planned[r"ALPHA\private$\orders"] == "would be restored"
    assert planned[r"ALPHA\private$\gone"] == "there is no such queue any more"
    assert access(run) == NEW
    said = run("queue", "access", "restore", file).out
    # The anonymous user owns nothing, whichever user restores the list.
    assert r"ALPHA\private$\orders: list restored; the Administrators stay the owner" in said
    assert access(run) == "O:BAD:(A;;0xf003f;;;WD)"
    again = {one["queue"]: one["result"] for one in run_json(run, file)}
    assert again[r"ALPHA\private$\orders"] == "unchanged"
    if is_running:
        service.end(signal.SIGTERM)
    # What an operator restored is the operator's own decision: the next start keeps it.
    service = serve("--json")
    service.ready()
    assert access(run) == "O:BAD:(A;;0xf003f;;;WD)"
    service.end(signal.SIGTERM)


def run_json(run: Run, file: Path, *options: str) -> list[dict[str, str]]:
    queues: list[dict[str, str]] = run("queue", "access", "restore", file, *options, "--json").json["queues"]
    return queues


def test_the_document_profile_gets_the_old_owner_back(
    old: Path, run: Run, serve: Callable[..., Served], tmp_path: Path
) -> None:
    service = serve("--json")
    service.ready()
    service.end(signal.SIGTERM)
    config = tmp_path / "document.toml"
    config.write_text('[security]\nprofile = "document"\n')
    service = serve("--json", "--config", config)
    service.ready()
    assert access(run) == NEW
    assert r"ALPHA\private$\orders: restored" in run("queue", "access", "restore", saved(old)).out
    assert access(run) == OLD
    service.end(signal.SIGTERM)


def test_fail_a_file_that_is_none(old: Path, run: Run, tmp_path: Path) -> None:
    assert "does not exist" in run("queue", "access", "restore", tmp_path / "none.json", code=1).err
