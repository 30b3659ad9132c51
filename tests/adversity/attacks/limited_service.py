"""`lanner serve` in a process that may have only so many descriptors, to be attacked."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import lanner
from lanner.transfer.framing import CONNECTION_PARAMETERS_SIZE, ESTABLISH_CONNECTION_SIZE
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings

ROOT = Path(__file__).resolve().parents[3]
LANNER = Path(sys.executable).with_name("lanner")
PASSWORD = "Correct-horse-9"
PATIENCE = 30.0  # seconds
MIB = 1 << 20
_numbers = itertools.count(1)


def free_address() -> str:
    """Return an unused loopback address, on which all ports of MSMQ are free."""
    process, number = os.getpid(), next(_numbers)
    return f"127.{100 + process // 250 % 60}.{process % 250}.{number % 250}"


class LimitedService:
    """A queue manager with at most `descriptors` of them."""

    def __init__(self, folder: Path, *, settings: str = "", descriptors: int = 1024) -> None:
        self.address = free_address()
        self.data = folder / "data"
        self.log = folder / "log"
        config = folder / "lanner.toml"
        config.write_text(settings)
        arguments = ("serve", "--data", self.data, "--name", "VICTIM", "--bind", self.address, "--config", config)

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(descriptors, 256), descriptors))

        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [LANNER, *map(str, arguments), "--json"],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=limit,  # noqa: PLW1509 (the test has no threads at this time)
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.listeners: dict[str, Any] = json.loads(line)["listeners"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def port(self, listener: str) -> int:
        return int(re.findall(r":(\d+)", self.listeners[listener])[-1])

    def manager(self) -> lanner.QueueManager:
        return lanner.connect(data=self.data)

    def limit(self, name: str) -> dict[str, Any]:
        """Return a resource as `lanner status --json` shows it."""
        with self.manager() as manager:
            found: dict[str, Any] = next(one for one in manager.status()["limits"] if one["resource"] == name)
            return found

    @property
    def memory(self) -> int:
        """Bytes that are its own; the store's pages are the file's."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    @property
    def processor_time(self) -> float:
        """Seconds that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def check(self) -> None:
        """See that it runs, and that nothing of ours has failed."""
        text = self.log.read_text(errors="replace")
        assert self.process.poll() is None, text[-5000:]
        assert "Traceback" not in text, text[-5000:]


class Session1801:
    """A stranger with an open session."""

    def __init__(self, service: LimitedService, source: str, guid: uuid.UUID | None = None) -> None:
        self.guid = guid or uuid.uuid4()
        self.connection = socket.create_connection((service.address, 1801), PATIENCE, (source, 0))
        session = Session.initiate(own_guid=self.guid, settings=TransferSettings(), monotonic=time.monotonic)
        for size in (ESTABLISH_CONNECTION_SIZE, CONNECTION_PARAMETERS_SIZE):
            self.connection.sendall(b"".join(session.data_to_send()))
            session.receive(read(self.connection, size))
        assert session.state is SessionState.OPEN
        self.session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def add_user(service: LimitedService, name: str) -> None:
    """Add an account with PASSWORD."""
    command = [str(LANNER), "user", "add", name, "--password-stdin", "--data", str(service.data)]
    subprocess.run(command, input=PASSWORD, text=True, capture_output=True, check=True, timeout=60)


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        assert more, "the connection has ended"
        data += more
    return data


def connect_many(
    address: str | Path, port: int, count: int, source: str = "", kind: int = socket.SOCK_STREAM
) -> list[socket.socket]:
    """Open connections, as many as are accepted, without sending anything."""
    found = []
    for _ in range(count):
        one = socket.socket(socket.AF_INET if port else socket.AF_UNIX, kind)
        one.settimeout(PATIENCE)
        try:
            if source:
                one.bind((source, 0))
            one.connect((str(address), port) if port else str(address))
        except OSError:
            one.close()
            break
        found.append(one)
    return found


def close_all(connections: list[socket.socket]) -> None:
    for one in connections:
        one.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)
