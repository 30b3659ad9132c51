"""`lanner machine offline|online`, and the manual pages."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lanner
from tests.cli.conftest import Run, Served, free_address

TOOL = Path(__file__).resolve().parents[2] / "tools" / "generate_man.py"


def test_an_offline_queue_manager_sends_nothing(run: Run, serve: Callable[..., Served], data: Path) -> None:
    with lanner.QueueManager(data, "alpha") as manager:
        manager.create_queue("orders")
    assert "no queue manager runs" in run("machine", "offline", code=1).err
    served = serve("--json")
    served.ready()
    with socket.create_server((free_address(), 1801)) as peer, lanner.connect(data=data) as qm:
        assert run("machine", "offline", "--json").json == {"name": "ALPHA", "online": False}
        assert qm.status()["online"] is False
        qm.open(rf"DIRECT=TCP:{peer.getsockname()[0]}\private$\far").send("x")
        peer.settimeout(2)
        with pytest.raises(TimeoutError):
            peer.accept()
        assert run("machine", "online").out == "ALPHA is online\n"
        assert qm.status()["online"] is True
        peer.settimeout(30)
        peer.accept()[0].close()
    assert served.end(signal.SIGTERM)[0] == 0


def pages(directory: Path) -> dict[str, str]:
    """Make the manual pages."""
    subprocess.run([sys.executable, TOOL, directory], timeout=120, check=True)
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    found = pages(tmp_path)
    assert {"lanner.1", "lanner-move.1", "lanner-queue-create.1", "lanner-queue-access-grant.1"} <= found.keys()
    move = found["lanner-move.1"]
    assert ".SH SYNOPSIS\n.B lanner move\n" in move
    assert "\\-\\-filter" in move
    assert all(text.startswith(".TH ") for text in found.values())


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed (Debian package man-db)")
def test_man_finds_nothing_wrong(tmp_path: Path) -> None:
    for name in sorted(pages(tmp_path))[:5]:
        ran = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", tmp_path / name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
