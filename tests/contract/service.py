"""`lanner serve` in a process of its own, with an administrator alice and a user bob."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from lanner.security.identity import Identity
from lanner.security.users import USER_FILE, UserFile
from lanner.wire.sid import Sid
from tests.client.peers import free_address

LANNER: Final = Path(sys.executable).with_name("lanner")
USERS: Final = {"alice": "secret", "bob": "word"}
# Bob, to a queue manager in this process.
BOB: Final = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1002"), is_domain_user=True)

# What is not about the client takes time to start.
_SETTINGS: Final = """
[com]
enabled = false
[flight]
enabled = false
"""


class Service:
    """A queue manager ALPHA on a data directory, which can be killed and started again."""

    def __init__(self, data: Path, settings: str = "") -> None:
        self.data = data
        self.address = free_address()
        self.port = 0
        data.mkdir(mode=0o700, parents=True)
        users = UserFile(data / USER_FILE)
        for name, password in USERS.items():
            users.add(name, password, administrator=name == "alice")
        self._config = data.with_suffix(".toml")
        self._config.write_text(_SETTINGS + settings)
        self._log = data.with_suffix(".log").open("w")
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        arguments: list[str | Path] = [
            "--data",
            self.data,
            "--name",
            "ALPHA",
            "--bind",
            self.address,
            "--config",
            self._config,
            "--json",
        ]
        self.process = subprocess.Popen(
            [LANNER, "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready, self.log
        self.port = int(json.loads(ready)["listeners"]["rpc"].rpartition(":")[2])

    @property
    def log(self) -> str:
        return self.data.with_suffix(".log").read_text()

    def kill(self) -> None:
        """End it without a warning."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it, to start it again."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """Stop it; nothing may have failed in it."""
        self._end(signal.SIGTERM)
        self._log.close()
        assert "Traceback" not in self.log

    def _end(self, number: int) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=30)
