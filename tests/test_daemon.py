"""The daemon's life in one process."""

from __future__ import annotations

import gc
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner import daemon
from lanner.client import QueueManager
from lanner.transfer.shell import TransferListener
from tests.cli.conftest import free_address


@pytest.fixture
def _interpreter() -> Iterator[None]:
    """Leave the interpreter as it was."""
    interval = sys.getswitchinterval()
    yield
    sys.setswitchinterval(interval)
    gc.unfreeze()


@pytest.mark.usefixtures("_interpreter")
def test_it_listens_and_is_tuned_when_it_says_so_and_lets_go_of_everything(tmp_path: Path) -> None:
    address = free_address()
    settings = daemon.load_settings(None, {"data": tmp_path / "data", "name": "alpha", "bind": address})
    seen: list[object] = []

    def on_ready(running: daemon.Daemon) -> None:
        seen.extend([sys.getswitchinterval() <= 0.0005, gc.get_freeze_count() > 0])
        seen.append([listener.name for listener in running.listeners])
        transfer = running.listeners[0]
        assert isinstance(transfer, TransferListener)
        seen.append((transfer.address, transfer.settings == settings.transfer_settings))
        running._stop.set()

    daemon.serve(lambda: settings, on_ready)
    assert seen == [True, True, ["transfer", "control"], (f"{address}:1801", True)]
    assert not (tmp_path / "data" / "control.sock").exists()
    with QueueManager(tmp_path / "data") as manager:
        assert manager.name == "ALPHA"
    shutil.rmtree(tmp_path)
