"""A queue manager with every RPC service, in its own process.

Run as `python -m tests.adversity.rpc_victim DIRECTORY ADDRESS`. It prints its ports in one line of
JSON and ends when its standard input does. The test reads its log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Self

import uvloop

from lanner.host.addresses import local_settings
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.rpc.pdu import AuthLevel
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.listener import RpcListener, RpcSettings
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE

ROOT = Path(__file__).resolve().parents[2]
ADMINISTRATOR, PASSWORD = "operator", "Pass-word1"
# Of connections, in either process.
MAX_FILES = 8192


class Victim:
    """The test's end."""

    def __init__(self, directory: Path, address: str) -> None:
        directory.mkdir(exist_ok=True)
        allow_many_files()
        self.address = address
        self.log = directory / "victim.log"
        command = [sys.executable, "-m", "tests.adversity.rpc_victim", str(directory / "data"), address]
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        said = json.loads(line)
        self.port: int = said["port"]
        self.socket = Path(said["socket"])

    @property
    def memory(self) -> int:
        """Octets that are its own; the store's pages are the file's."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def check(self) -> None:
        """It is alive, and nothing of ours has failed."""
        assert self.process.poll() is None, self.log.read_text()[-5000:]
        text = self.log.read_text()
        found = re.search(r"^(ERROR|CRITICAL|Traceback)", text, re.MULTILINE)
        assert found is None, text[found.start() : found.start() + 5000]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            assert self.process.wait(30) == 0, self.log.read_text()[-5000:]
        finally:
            self.process.kill()
            self.process.stdout.close()


def allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(MAX_FILES, most), most))


async def serve(directory: Path, address: str) -> None:
    runtime = Runtime(directory, local_settings("VICTIM", local_addresses=frozenset({address})))
    runtime.users.add(ADMINISTRATOR, PASSWORD, administrator=True)
    operations = Operations(runtime.engine, runtime)
    rights = (allow(ANONYMOUS.sid, QueueAccess.GENERIC_ALL), allow(EVERYONE, QueueAccess.GENERIC_ALL))
    security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl(rights)).pack()
    with runtime.change() as change:
        for name in ("q", "friend", "tx"):
            attributes = {"security": security, "transactional": name == "tx"}
            operations.create_queue(rf".\private$\{name}", attributes)
    change.wait()
    settings = RpcSettings(port=0, read_port=0, endpoint_mapper_port=0, authentication_level=AuthLevel.NONE)
    listener = RpcListener(runtime.engine, runtime.users, directory=directory, bind=address, settings=settings)
    await listener.start()
    print(json.dumps({"port": listener.ports[0], "socket": str(listener.socket)}), flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.read)
    await listener.stop()
    await asyncio.to_thread(runtime.close)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    allow_many_files()
    uvloop.run(serve(Path(sys.argv[1]), sys.argv[2]))
