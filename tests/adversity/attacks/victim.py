"""`lanner serve` in its own process with default settings, and accounts to attack.

A test may override settings.
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
from typing import Final

from lanner.rpc.security import Credentials
from lanner.security.users import USER_FILE, UserFile
from tests.client.peers import free_address

LANNER: Final = Path(sys.executable).with_name("lanner")
ADMINISTRATOR: Final = Credentials("alice", "correct horse")
USER: Final = Credentials("bob", "battery staple")


@dataclass(frozen=True, slots=True)
class Victim:
    address: str
    data: Path
    log_file: Path
    # Address and port by what is served there.
    listeners: dict[str, str]

    @property
    def log(self) -> list[str]:
        return self.log_file.read_text().splitlines()

    def port(self, name: str = "rpc") -> int:
        return int(self.listeners[name].rpartition(":")[2])


@contextmanager
def victim(folder: Path, settings: str = "", *, com: bool = False, flight: bool = False) -> Iterator[Victim]:
    """Run a queue manager, and see it end in good order, whatever was done to it."""
    data, address = folder / "data", free_address()
    data.mkdir(mode=0o700, parents=True)
    users = UserFile(data / USER_FILE)
    for one in (ADMINISTRATOR, USER):
        users.add(one.user, one.password, administrator=one is ADMINISTRATOR)
    config, log = folder / "lanner.toml", folder / "lanner.log"
    tables = f"[com]\nenabled = {str(com).lower()}\n[flight]\nenabled = {str(flight).lower()}\n"
    config.write_text(f'name = "VICTIM"\nbind = "{address}"\n{tables}{settings}\n')
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [LANNER, "serve", "--config", config, "--data", data, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Victim(address, data, log, json.loads(line)["listeners"])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()
            process.stdout.close()
