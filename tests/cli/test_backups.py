"""`lanner backup`."""

from __future__ import annotations

from pathlib import Path

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from tests.cli.conftest import Run


def test_a_backup_holds_messages_accounts_and_keys(run: Run, orders: str, data: Path, tmp_path: Path) -> None:
    run("send", orders, "kept")
    run("user", "add", "alice", "--password-stdin", stdin="a long word\n")
    with QueueManager(data) as manager:
        name, epoch = manager.name, runtime_of(manager).store.epoch
        identifier = runtime_of(manager).engine.queue_manager.identifier
    copy = tmp_path / "copy"
    made = run("backup", copy, "--json").json
    assert (made["queue_manager"], made["backup"]) == ("ALPHA", str(copy))
    secrets = {path.name: path.read_bytes() for path in data.glob("*.json")}
    assert "users.json" in secrets
    assert {path.name: path.read_bytes() for path in copy.glob("*.json")} == secrets
    assert all(path.stat().st_mode & 0o077 == 0 for path in copy.iterdir())
    run("receive", orders)
    assert run("receive", orders, "--data", copy, "--json").json["body"] == "kept"
    with QueueManager(copy) as manager:
        assert (manager.name, runtime_of(manager).engine.queue_manager.identifier) == (name, identifier)
        assert runtime_of(manager).store.epoch != epoch


def test_a_backup_goes_into_a_new_directory_only(run: Run, orders: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "exists: a backup goes into a new directory" in run("backup", tmp_path / "there", code=1).err
    assert "does not exist" in run("backup", tmp_path / "copy", "--data", tmp_path / "none", code=1).err
