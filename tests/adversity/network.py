"""A network of processes on loopback addresses with faulty links, and its invariants."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

from tests.adversity.proxy import CuttingProxy

ROOT = Path(__file__).parents[2]
# Not 1801: a queue manager of this machine may have that, on all addresses.
PORT = 21802
# The document's times are for a world with slower networks and fewer cuts.
QUICK: dict[str, object] = {
    "try_connect_interval": 0.2,
    "session_initialization_timeout": 3.0,
    "order_ack_timeout": 0.1,
    "maximum_order_ack_delay": 0.5,
    "resend_timeouts_short": 1.0,
    "resend_timeouts_medium": 2.0,
    "resend_timeouts_long": 4.0,
    "resend_timeouts_final": 4.0,
}


def loopback_network() -> str:
    """Return the prefix of 254 unused addresses."""
    process = os.getpid()
    return f"127.{100 + process // 250 % 60}.{process % 250}"


class Process:
    """A node, over its lives."""

    def __init__(self, path: Path, name: str, address: str, peers: Mapping[str, str], **settings: object) -> None:
        self.name = name
        self.address = address
        self.log = path / f"{name}.log"
        self.heard: Callable[[str, int], None] = lambda _stream, _upto: None
        self._config = json.dumps(
            {
                "data": str(path / name),
                "name": name,
                "bind": address,
                "port": PORT,
                "peers": dict(peers),
                "settings": QUICK | settings,
            }
        )
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.adversity.node", self._config],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answers: SimpleQueue[dict[str, Any] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self.process, self._answers))
        self._reader.start()
        self.guid = str(self._answer()["guid"])

    def _read(self, process: subprocess.Popen[str], answers: SimpleQueue[dict[str, Any] | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # killed in the middle of a word
            told = json.loads(line)
            if "stream" in told:
                self.heard(told["stream"], told["upto"])
            else:
                answers.put(told)
        answers.put(None)

    def _answer(self) -> dict[str, Any]:
        answer = self._answers.get(timeout=60)
        if answer is None:
            raise AssertionError(f"{self.name} has ended: {self.log.read_text()[-3000:]}")
        return answer

    def do(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (whatever the command answers)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": command} | arguments) + "\n")
        self.process.stdin.flush()
        return self._answer()["answer"]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> int:
        """End it as it should; its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._end()

    def _end(self) -> None:
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@dataclass
class Stream:
    """Messages from one node to queues at others, numbered."""

    name: str
    source: str
    to: str
    # Where they arrive: node and queue.
    arrivals: tuple[tuple[str, str], ...]
    kind: str
    count: int
    batch: int
    pause: float
    # The number of the last message that is on disk at its sender; the number at which a new
    # process continues; and the batches between two processes whose outcome is unknown.
    promised: int = -1
    next: int = 0
    doubtful: list[range] = field(default_factory=list)

    @property
    def is_sent(self) -> bool:
        return self.promised >= self.count - 1


class Network:
    """Nodes that know each other only through the proxy."""

    def __init__(self, path: Path, names: Iterable[str], seed: int, **settings: object) -> None:
        self.chance = random.Random(seed)
        base = loopback_network()
        inner = {name: f"{base}.{number}" for number, name in enumerate(names, 1)}
        self.outer = {name: f"{base}.{number + 100}" for number, name in enumerate(inner, 1)}
        self.proxy = CuttingProxy({self.outer[name]: inner[name] for name in inner}, PORT, seed)
        self.streams: dict[str, Stream] = {}
        self.nodes: dict[str, Process] = {}
        self.kills = 0
        self._lock = threading.Lock()
        try:
            for name, address in inner.items():
                self.nodes[name] = Process(path, name, address, self.outer, **settings)
                self.nodes[name].heard = self._heard
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()
        self.proxy.close()

    # Setting up
    # ----------------------------------------------------------------------------------------------

    def set_topology(
        self,
        sites: Mapping[str, tuple[str, ...]],
        routers: Iterable[str],
        links: Iterable[tuple[str, str, tuple[str, ...]]] = (),
        queues: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Enter sites, routing servers and public queues into every directory."""
        computers = [
            {
                "name": name,
                "guid": node.guid,
                "sites": sites[name],
                "is_router": name in routers,
                "queues": (queues or {}).get(name, {}),
            }
            for name, node in self.nodes.items()
        ]
        all_sites = list(dict.fromkeys(site for of in sites.values() for site in of))
        joined = [{"site1": one, "site2": other, "gates": gates} for one, other, gates in links]
        for node in self.nodes.values():
            node.do("topology", sites=all_sites, computers=computers, links=joined)

    def create(self, node: str, queue: str, *, transactional: bool = False, public: bool = False) -> str:
        return str(self.nodes[node].do("create", queue=queue, transactional=transactional, public=public)["name"])

    def direct(self, node: str, queue: str) -> str:
        return rf"DIRECT=TCP:{self.outer[node]}\private$\{queue}"

    # Streams
    # ----------------------------------------------------------------------------------------------

    def send(self, stream: Stream, **arguments: object) -> None:
        """Begin a stream, or continue it after its sender has died."""
        self.streams[stream.name] = stream
        if not stream.is_sent:
            self.nodes[stream.source].do(
                "stream",
                stream=stream.name,
                to=stream.to,
                kind=stream.kind,
                start=stream.next,
                count=stream.count - stream.next,
                batch=stream.batch,
                pause=stream.pause,
                **arguments,
            )

    def _heard(self, stream: str, upto: int) -> None:
        with self._lock:
            self.streams[stream].promised = upto

    # Trouble
    # ----------------------------------------------------------------------------------------------

    def kill_one(self) -> None:
        """Kill a random node with SIGKILL; it restarts, and its streams continue."""
        node = self.chance.choice(list(self.nodes.values()))
        node.kill()
        self.kills += 1
        time.sleep(self.chance.uniform(0, 0.3))
        node.start()
        for stream in self.streams.values():
            if stream.source == node.name:
                self._resume(stream)

    def _resume(self, stream: Stream) -> None:
        """The outcome of the unreported batch is unknown; the next batch has other numbers."""
        if not stream.is_sent:
            first = stream.promised + 1
            stream.doubtful.append(range(first, min(first + stream.batch, stream.count)))
            stream.next = stream.doubtful[-1].stop
            stream.promised = stream.next - 1
            self.send(stream)

    # The end
    # ----------------------------------------------------------------------------------------------

    def wait_until_delivered(self, seconds: float) -> None:
        """Until everything is sent and nothing waits anywhere."""
        end = time.monotonic() + seconds
        while True:
            waiting = {name: self._waiting(node) for name, node in self.nodes.items()}
            if all(stream.is_sent for stream in self.streams.values()) and not any(waiting.values()):
                return
            if time.monotonic() > end:
                raise AssertionError(f"not delivered: {waiting}, {[s for s in self.streams.values() if not s.is_sent]}")
            time.sleep(0.1)

    @staticmethod
    def _waiting(node: Process) -> dict[str, int]:
        """An express OrderAck waits half of AckWaitTimeout for its own acknowledgment.

        The tests do not wait for that.
        """
        waiting = node.do("status")["waiting"].items()
        return {name: count for name, count in waiting if not name.endswith("\\00000004")}

    def check(self) -> None:
        for stream in self.streams.values():
            for node, queue in stream.arrivals:
                self._check_arrival(stream, node, queue)
        for name, process in self.nodes.items():
            log = process.log.read_text()
            assert "Traceback" not in log, f"{name}: {log[log.index('Traceback') :][:3000]}"
            errors = [line for line in log.splitlines() if line.startswith(("ERROR", "CRITICAL"))]
            assert not errors, f"{name}: {errors[:5]}"

    def _check_arrival(self, stream: Stream, node: str, queue: str) -> None:
        what = f"{stream.name} at {node}"
        bodies = (body.split() for body in self.nodes[node].do("bodies", queue=queue)["bodies"])
        numbers = [int(number) for name, number in bodies if name == stream.name]
        assert len(set(numbers)) == len(numbers), f"{what}: a message came twice"
        doubtful = {number for batch in stream.doubtful for number in batch}
        missing = set(range(stream.count)) - set(numbers) - doubtful
        assert not missing, f"{what}: {len(missing)} messages are lost, {sorted(missing)[:5]} and others"
        assert set(numbers) <= set(range(stream.count)), what
        if stream.kind == "transactional":
            assert numbers == sorted(numbers), f"{what}: the order has changed"
            for batch in stream.doubtful:
                assert len(set(batch) & set(numbers)) in (0, len(batch)), f"{what}: half a transaction"
