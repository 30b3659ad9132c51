"""Redis as a peer: streams, with every write synced before it is answered.

For express messages it writes nothing to disk.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

from bench.peers.process import Missing, PeerError, Server, compile_client, free_port, require, run_client

START_SECONDS = 30.0


class Redis:
    name = "Redis"

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        require(self.name, ["redis-server"], ["hiredis/hiredis.h"], "redis-server libhiredis-dev")
        self._client = compile_client("redis", "hiredis")
        self.directory = directory
        directory.mkdir()
        self.port = free_port()
        self._durable = durable
        self.setting = "appendonly yes, appendfsync always" if durable else "appendonly no"
        self._keys = 0
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> str:
        found = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=False).stdout
        match = re.search(r"v=(\S+)", found)
        return match[1] if match else "?"

    def launch(self) -> None:
        """Start the server without waiting for it."""
        durability = ["--appendonly", "yes", "--appendfsync", "always"] if self._durable else ["--appendonly", "no"]
        options = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.directory), "--save", ""]
        self.server = Server(["redis-server", *options, *durability], self.directory)

    def start(self) -> None:
        """Start the server and wait until it accepts messages."""
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while True:
            time.sleep(0.05)
            self.server.check()
            try:
                self.run("send", 1)
            except PeerError:
                if time.monotonic() > deadline:
                    raise Missing(f"{self.name} is not measured, it did not start: {self.directory}/output") from None
            else:
                return

    def run(self, op: str, count: int, **more: object) -> dict[str, float]:
        """Run the C client on a new key."""
        self._keys += 1
        more.setdefault("key", f"bench-{self._keys}")
        return run_client(self._client, 900, port=self.port, op=op, count=count, **more)

    def rate(self, op: str, count: int, **more: object) -> float:
        """Return the messages per second."""
        return count / self.run(op, count, **more)["seconds"]

    def wait_for_first(self, key: str) -> None:
        run_client(self._client, 300, port=self.port, op="first", key=key)

    @property
    def pid(self) -> int:
        return self.server.process.pid

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.server.stop(number, patience=120)

    def close(self) -> None:
        self.server.stop()
