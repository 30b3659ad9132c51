"""Users of the same machine at the data directory, and peers at the log of the service."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import lanner
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from tests.adversity.network import PORT
from tests.adversity.stranger import GUID, Stranger
from tests.client.peers import free_address
from tests.contract.service import LANNER, Service
from tests.http.service import HttpService

# Clears the screen, and reverses what follows; the C1 form of ESC [; a line that looks like a
# record of the log.
_EVIL = "\x1b[2J\u202e\x9b31m"
_FORGED = f"{_EVIL}\n2026-01-01 00:00:00,000 INFO lanner.audit: root logged on"


def refused(*command: object) -> str:
    ran = subprocess.run([str(LANNER), *map(str, command)], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 1
    return ran.stderr


def test_nobody_plants_files_in_a_directory_that_others_can_write_to(tmp_path: Path) -> None:
    """Neither the service nor a command uses a directory that other users can write to.

    They could have replaced the store or the accounts.
    """
    data = tmp_path / "data"
    with lanner.QueueManager(data) as qm:
        qm.create_queue("q")
    data.chmod(0o777)
    advice = f"run chmod go-w {data}"
    assert advice in refused("serve", "--data", data, "--bind", free_address())
    assert advice in refused("queue", "list", "--data", data)
    assert advice in refused("user", "add", "bob", "--password-stdin", "--data", data)


def test_no_link_in_the_directory_is_followed(tmp_path: Path) -> None:
    data, precious = tmp_path / "data", tmp_path / "precious"
    with lanner.QueueManager(data) as qm:
        qm.create_queue("q")
    precious.write_bytes(b"precious")
    for name in ("users.json.lock", "journal.0", "lock"):
        (data / name).unlink(missing_ok=True)
        (data / name).symlink_to(precious)
        for command in (["serve", "--bind", free_address()], ["queue", "list"], ["user", "list"]):
            assert f"{data / name} is a symbolic link" in refused(*command, "--data", data)
        (data / name).unlink()
    assert precious.read_bytes() == b"precious"


def test_nothing_is_run_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that was started in /tmp runs no module that another user has left there."""
    ran, planted = tmp_path / "ran", tmp_path / "common" / "lanner" / "http"
    planted.mkdir(parents=True)
    for name in (planted / "__main__.py", planted / "__init__.py", planted.parent / "__init__.py"):
        name.write_text(f"open({str(ran)!r}, 'w')\n")
    monkeypatch.chdir(tmp_path / "common")
    service = HttpService(tmp_path / "data")
    try:
        assert httpx.get(f"{service.url}/api/v1/health/live", trust_env=False, timeout=30).is_success
    finally:
        service.close()
    assert not ran.exists()


def test_peers_write_no_control_characters_into_logs_and_output(tmp_path: Path) -> None:
    """Labels and names of queues, from a real session to the log, the terminal and --json."""
    service = Service(tmp_path / "data", f"[transfer]\nport = {PORT}\n")
    try:
        with lanner.connect(data=service.data) as qm, Stranger.connect(free_address(), service.address) as stranger:
            queue = qm.create_queue("q", access={"Anonymous": "send"})
            stranger.open()
            for ordinal, name in ((1, "none\u202e"), (2, "q")):
                packet = build(
                    MessageProperties(label=_FORGED),
                    source=GUID,
                    ordinal=ordinal,
                    sent_time=int(time.time()),
                    destination=parse(rf"DIRECT=TCP:{service.address}\private$\{name}"),
                )
                stranger.session.send(packet, None)
            stranger.flush()
            assert queue.peek(timeout=20).label == _FORGED
        command: list[Any] = [LANNER, "peek", "q", "--data", service.data]
        for more in ([], ["--json"], ["--all"], ["--all", "--json"]):
            shown = subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
            assert all(line.isprintable() for line in shown.split("\n"))
            if "--json" in more:
                assert json.loads(shown)["label"] == _FORGED
    finally:
        service.close()
    lines = service.log.split("\n")
    assert any("refused" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any(line.endswith("root logged on") and line.startswith("2026-01-01") for line in lines)
