"""Services with clients in other processes: what a program outside the queue manager gets.

Lanner is `lanner serve`, reached over TCP with a user name and password at the default
authentication level, and through `lanner.sock`. Its peers are reached over TCP without a password,
which is their default on this machine.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import redis

import lanner
from bench.peers.process import PeerError, Server
from bench.peers.rabbit import Rabbit
from bench.peers.redis import Redis
from bench.report import Figures
from bench.service_clients import DURABLE, PASSWORD, USER
from bench.workload import BODY
from lanner.security.users import UserFile

# An address for this process alone: the ports of a queue manager are fixed, and another run may be
# in progress.
ADDRESS = f"127.66.{os.getpid() >> 8 & 0xFF}.{os.getpid() & 0xFF | 1}"
START_SECONDS = 30.0
SERVER_COST, CLIENT_COST = "server, us each", "client, us each"


class Service:
    """A queue manager run by `lanner serve`."""

    def __init__(self, directory: Path, *, address: str = ADDRESS, source: Path | None = None) -> None:
        """Start the service; `source` is the source tree of another version."""
        self.data = directory / "service" / "data"
        self.data.mkdir(parents=True, mode=0o700)
        settings = directory / "service" / "lanner.toml"
        settings.write_text(f'data = "{self.data}"\nbind = "{address}"\n', encoding="utf-8")
        command = [sys.executable, "-c", "from lanner.cli import main; main()", "serve", "--config", str(settings)]
        self._environment = {} if source is None else {"PYTHONPATH": str(source)}
        self.server = Server(command, directory / "service", self._environment)
        self._names = 0
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        UserFile(self.data / "users.json").add(USER, PASSWORD)

    def _wait(self) -> None:
        for _ in range(int(START_SECONDS / 0.1)):
            self.server.check()
            try:
                with lanner.connect(data=self.data):
                    return
            except lanner.errors.LannerError:
                subprocess.run(["sleep", "0.1"], check=True)
        raise PeerError(f"lanner serve did not start: {self.data.parent}/output")

    def queue(self, count: int) -> str:
        """Create a queue with `count` messages, usable by the benchmark's user; return its name."""
        self._names += 1
        # Uses a process with the client of that version: another client may not be able to speak to
        # the service.
        words = [sys.executable, "-m", "bench.service_clients", "lanner_fill", str(self.data), str(count)]
        words += [f"bench{self._names}", "1000"]
        filled = subprocess.run(
            words, env={**os.environ, **self._environment}, stdout=subprocess.PIPE, text=True, check=True
        )
        return filled.stdout.strip()

    def close(self) -> None:
        self.server.stop()


def cpu_of(pid: int) -> float:
    """Return the processor time in seconds of all current threads of a process.

    `/proc/PID/stat` is not used: it counts in ticks of 10 ms, a tenth of the cost of a thousand
    messages.
    """
    spent = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        # The thread may have ended.
        with suppress(OSError):
            spent += int(task.read_text(encoding="ascii").split()[0])
    return spent / 1e9


def measured(kind: str, where: str, count: int, name: str, per: int, *, clients: int, server: int) -> dict[str, float]:
    """Run clients that start together; return their rate, latencies and costs."""
    each = count // clients
    words = [sys.executable, "-m", "bench.service_clients", kind, where, str(each), name, str(per)]
    processes = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(clients)
    ]
    try:
        answers = _run(kind, processes, server)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    cost = answers.pop()
    seconds = max(one["end"] for one in answers) - min(one["start"] for one in answers)
    total = each * clients
    figures = {
        "rate": total / seconds,
        SERVER_COST: cost["server"] / total * 1e6,
        CLIENT_COST: sum(one["cpu"] for one in answers) / total * 1e6,
    }
    if all("p50" in one for one in answers):
        figures["p50"] = statistics.median(one["p50"] for one in answers)
        figures["p99"] = max(one["p99"] for one in answers)
    return figures


def _run(kind: str, processes: list[subprocess.Popen[str]], server: int) -> list[dict[str, float]]:
    def line(process: subprocess.Popen[str]) -> str:
        found = process.stdout.readline() if process.stdout is not None else ""
        if not found:
            raise PeerError(f"a client of the kind {kind} failed with {process.wait()}")
        return found

    for process in processes:
        line(process)
    before = cpu_of(server)
    for process in processes:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()
    answers: list[dict[str, float]] = [json.loads(line(process)) for process in processes]
    return [*answers, {"server": cpu_of(server) - before}]


def by_clients(measure: Callable[[int], dict[str, float]]) -> Figures:
    """Return the rates with one client and with three, and the costs with one client."""
    one, three = measure(1), measure(3)
    return {
        "1 client": one["rate"],
        "3 clients": three["rate"],
        **{name: one[name] for name in (SERVER_COST, CLIENT_COST)},
    }


class Clients:
    """Measurements of clients of Lanner and of its peers."""

    def __init__(self, service: Service, rabbit: Rabbit | None, redis_server: Redis | None) -> None:
        self._service = service
        self._rabbit = rabbit
        self._redis = redis_server

    def lanner(self, kind: str, count: int, per: int, *, tcp: bool, filled: bool, clients: int) -> dict[str, float]:
        name = self._service.queue(count if filled else 0)
        where = ADDRESS if tcp else str(self._service.data)
        pid = self._service.server.process.pid
        return measured(kind, where, count, name, per, clients=clients, server=pid)

    def pika(self, kind: str, count: int, per: int, *, filled: bool, clients: int) -> dict[str, float]:
        rabbit = _there(self._rabbit)
        name = f"service-{secrets.token_hex(8)}"
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", rabbit.port))
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
        for _ in range(count if filled else 0):
            channel.basic_publish("", name, BODY, DURABLE)
        while filled and channel.queue_declare(name, passive=True).method.message_count < count:
            connection.sleep(0.1)
        connection.close()
        return measured(kind, str(rabbit.port), count, name, per, clients=clients, server=rabbit.pid)

    def redis(self, kind: str, count: int, per: int, *, filled: bool, clients: int) -> dict[str, float]:
        server = _there(self._redis)
        name = f"service-{secrets.token_hex(8)}"
        if filled:
            client: Any = redis.Redis("127.0.0.1", server.port)
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(count):
                    pipeline.xadd(name, {"body": BODY})
                pipeline.execute()
            client.xgroup_create(name, "bench", id="0")
        return measured(kind, str(server.port), count, name, per, clients=clients, server=server.pid)

    def in_c(self, peer: Rabbit | Redis, run: Callable[[], dict[str, float]], count: int) -> dict[str, float]:
        """Run a C client, whose threads take the place of processes."""
        server, client = cpu_of(peer.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = run()["seconds"]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime
        return {
            "rate": count / seconds,
            SERVER_COST: (cpu_of(peer.pid) - server) / count * 1e6,
            CLIENT_COST: spent / count * 1e6,
        }


def _there(peer: Any) -> Any:  # noqa: ANN401 (either kind)
    if peer is None:
        raise PeerError("it is not here")
    return peer
