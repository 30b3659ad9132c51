"""A whole queue manager as a process, for COM clients.

It has an address of its own, since these clients know only one port.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lanner.security.users import USER_FILE, UserFile
from tests.interop.peers import ROOT, needs_endpoint_mapper_port

USER = "alice"
PASSWORD = "Pass-word1"
COMMAND = [str(Path(sys.executable).with_name("lanner")), "serve"]


@dataclass(frozen=True, slots=True)
class ComDaemon:
    """The address and the name of the daemon."""

    address: str
    name: str
    data: Path


@contextmanager
def com_daemon(folder: Path, address: str, name: str = "COMQM", configuration: str = "") -> Iterator[ComDaemon]:
    """Run a queue manager with an administrator alice, and see it end in good order."""
    needs_endpoint_mapper_port(address)
    data = folder / "data"
    data.mkdir()
    UserFile(data / USER_FILE).add(USER, PASSWORD, administrator=True)
    config = folder / "lanner.toml"
    config.write_text(f'name = "{name}"\nbind = "{address}"\n{configuration}\n[flight]\nenabled = false\n')
    log = folder / "daemon.log"
    with log.open("wb") as errors:
        daemon = subprocess.Popen(
            [*COMMAND, "--config", str(config), "--data", str(data), "--json"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert daemon.stdout is not None
        try:
            line = daemon.stdout.readline()
            assert line, log.read_text()
            assert "endpoint mapper" in json.loads(line)["listeners"], log.read_text()
            yield ComDaemon(address, name, data)
        finally:
            daemon.send_signal(signal.SIGTERM)
            try:
                assert daemon.wait(30) == 0, log.read_text()
            finally:
                daemon.kill()
                daemon.stdout.close()
    # Whatever a peer sends, nothing of ours may fail on it.
    assert "Traceback" not in log.read_text(), log.read_text()
