"""`lanner serve` in its own process, to be attacked.

The test observes its log, its memory and its number of open files.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import lanner
from lanner.security.users import USER_FILE, UserFile

ROOT = Path(__file__).resolve().parents[2]
LANNER = Path(sys.executable).with_name("lanner")
ADMINISTRATOR, PASSWORD = "operator", "Correct-horse-9"
MIB = 1 << 20
_numbers = itertools.count(1)


def free_address() -> str:
    """Return an unused loopback address, on which all ports of MSMQ are free."""
    process, number = os.getpid(), next(_numbers)
    return f"127.{20 + process // 250 % 60}.{process % 250}.{number % 250}"


class Served:
    """A queue manager with accounts: `users` are no administrators, ADMINISTRATOR is one.

    All have PASSWORD.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        address: str = "",
        users: tuple[str, ...] = (),
        settings: str = "",
        flight: bool = False,
    ) -> None:
        self.name = name
        self.address = address or free_address()
        self.folder = folder / name
        self.data = self.folder / "data"
        self.data.mkdir(parents=True, mode=0o700)
        accounts = UserFile(self.data / USER_FILE)
        accounts.add(ADMINISTRATOR, PASSWORD, administrator=True)
        for user in users:
            accounts.add(user, PASSWORD)
        self.log = self.folder / "log"
        config = self.folder / "lanner.toml"
        config.write_text(f"{settings}\n[flight]\nenabled = {str(flight).lower()}\n")
        arguments: tuple[object, ...] = ("--data", self.data, "--name", name, "--bind", self.address)
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [LANNER, "serve", *map(str, arguments), "--config", str(config), "--json"],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.listeners: Mapping[str, Any] = json.loads(line)["listeners"]

    def port(self, listener: str) -> int:
        """Return the TCP port of a listener, by its name in the answer to `serve --json`."""
        return int(self.listeners[listener].rpartition(":")[2])

    def manager(self) -> lanner.QueueManager:
        """Connect through the Unix socket, where root and the service's user are administrators."""
        return lanner.connect(data=self.data)

    def manager_as(self, user: str) -> lanner.QueueManager:
        """Connect over TCP as an account."""
        return lanner.connect(self.address, user, PASSWORD, port=self.port("rpc"))

    @property
    def memory(self) -> int:
        """Return the octets that are its own; the store's pages are the file's."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def check(self) -> None:
        """See that it runs, and that nothing of ours has failed."""
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text[-5000:]
        found = re.search(r"^.*( ERROR | CRITICAL |^Traceback|unforeseen)", text, re.MULTILINE)
        assert found is None, text[found.start() : found.start() + 6000]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
        assert code == 0, self.log.read_text(errors="replace")[-5000:]
        # A store takes 32 MiB.
        shutil.rmtree(self.data)
