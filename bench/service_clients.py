"""One client of a service, in a process of its own.

    python -m bench.service_clients KIND WHERE COUNT QUEUE PER

`WHERE` is a port; for Lanner it is a data directory or an address. The client connects, reports
that it is ready, starts when a line arrives, and prints its measurements as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pika
import redis
import uvloop

import lanner
import lanner.aio
from bench.workload import BODY, percentiles
from lanner import Message

USER, PASSWORD = "bench", "Bench-marks-1"
# Messages delivered to a consumer that it has not acknowledged.
PREFETCH = 200

Client: TypeAlias = Callable[[str, int, str, int], object]


class Watch:
    """A measurement that starts with a line of input."""

    def __init__(self) -> None:
        print("ready", flush=True)
        sys.stdin.readline()
        self._cpu = time.process_time()
        self._start = time.monotonic()
        self.latencies: list[float] = []

    def stop(self) -> None:
        end = time.monotonic()
        cpu = time.process_time() - self._cpu
        seconds = percentiles(self.latencies) if len(self.latencies) > 1 else {}
        print(json.dumps({"start": self._start, "end": end, "cpu": cpu, **seconds}), flush=True)

    def repeat(self, count: int, work: Callable[[], object]) -> None:
        """Call a function repeatedly, record the latencies, and stop."""
        note, clock = self.latencies.append, time.perf_counter
        for _ in range(count):
            before = clock()
            work()
            note(clock() - before)
        self.stop()


def target(where: str) -> dict[str, Any]:
    return {"data": where} if where.startswith("/") else {"host": where, "user": USER, "password": PASSWORD}


def new() -> Message:
    return Message(body=BODY, recoverable=True)


# Lanner
# --------------------------------------------------------------------------------------------------


def lanner_send(where: str, count: int, name: str, per: int) -> None:
    with lanner.connect(**target(where)) as qm:
        queue = qm.open(name)
        queue.send(new())
        if per == 1:
            Watch().repeat(count, lambda: queue.send(new()))
        else:
            Watch().repeat(count // per, lambda: queue.send_many([new() for _ in range(per)]))


def lanner_fill(where: str, count: int, name: str, per: int) -> None:
    """Create a queue with `count` messages, usable by the benchmark's user; print its name."""
    with lanner.connect(**target(where)) as qm:
        try:
            queue = qm.create_queue(name, access={USER: "full"})
        except lanner.errors.PropertyNotallowed:
            # A version without access lists: there, every user may use a queue.
            queue = qm.create_queue(name)
        for start in range(0, count, per):
            queue.send_many([new()] * min(per, count - start))
        print(queue.name, flush=True)


async def lanner_send_tasks(where: str, count: int, name: str, tasks: int) -> None:
    async with await lanner.aio.connect(**target(where)) as qm:
        queue = qm.open(name)
        await queue.send(new())
        await in_tasks(count, tasks, lambda: queue.send(new()))


def lanner_receive(where: str, count: int, name: str, per: int) -> None:
    with lanner.connect(**target(where)) as qm:
        queue = qm.open(name)
        queue.peek(10)
        if per == 1:
            Watch().repeat(count, lambda: queue.receive(10))
        else:
            Watch().repeat(count // per, lambda: queue.receive_many(per, 10))


async def lanner_receive_tasks(where: str, count: int, name: str, tasks: int) -> None:
    async with await lanner.aio.connect(**target(where)) as qm:
        queue = qm.open(name)
        await queue.peek(10)
        await in_tasks(count, tasks, lambda: queue.receive(10))


def lanner_consume(where: str, count: int, name: str, per: int) -> None:
    del per
    with lanner.connect(**target(where)) as qm:
        queue = qm.open(name)
        queue.peek(10)
        watch = Watch()
        queue.consume(lambda _: None, count=count, prefetch=PREFETCH)
        watch.stop()


async def in_tasks(count: int, tasks: int, work: Callable[[], Awaitable[object]]) -> None:
    watch = Watch()

    async def repeat() -> None:
        for _ in range(count // tasks):
            before = time.perf_counter()
            await work()
            watch.latencies.append(time.perf_counter() - before)

    await asyncio.gather(*(repeat() for _ in range(tasks)))
    watch.stop()


# RabbitMQ
# --------------------------------------------------------------------------------------------------


def parameters(where: str) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", int(where))


DURABLE = pika.BasicProperties(delivery_mode=2)


def pika_send(where: str, count: int, name: str, per: int) -> None:
    del per
    connection = pika.BlockingConnection(parameters(where))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", name, BODY, DURABLE)
    Watch().repeat(count, lambda: channel.basic_publish("", name, BODY, DURABLE))
    connection.close()


def pika_send_window(where: str, count: int, name: str, window: int) -> None:
    """Send over Pika's asynchronous connection with up to `window` unconfirmed messages."""
    sent = confirmed = 0
    watch: Watch | None = None

    def fill(channel: Any) -> None:  # noqa: ANN401 (untyped)
        nonlocal sent
        while sent < count and sent - confirmed < window:
            sent += 1
            channel.basic_publish("", name, BODY, DURABLE)

    def on_confirmed(channel: Any, frame: Any) -> None:  # noqa: ANN401 (untyped)
        nonlocal confirmed
        confirmed = max(confirmed, frame.method.delivery_tag)
        if confirmed < count:
            fill(channel)
        elif watch is not None:
            watch.stop()
            connection.ioloop.stop()

    def on_channel(channel: Any) -> None:  # noqa: ANN401 (untyped)
        def begin(_: object) -> None:
            nonlocal watch
            watch = Watch()
            fill(channel)

        channel.confirm_delivery(lambda frame: on_confirmed(channel, frame), callback=begin)

    connection = pika.SelectConnection(
        parameters(where), on_open_callback=lambda opened: opened.channel(on_open_callback=on_channel)
    )
    connection.ioloop.start()


def pika_receive(where: str, count: int, name: str, per: int) -> None:
    connection = pika.BlockingConnection(parameters(where))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    watch = Watch()
    for received, (method, _, _) in enumerate(channel.consume(name), 1):
        if received % per == 0:
            channel.basic_ack(method.delivery_tag, multiple=per > 1)
        if received == count:
            break
    # When the channel answers this, it has handled the acknowledgments.
    channel.basic_qos(prefetch_count=PREFETCH)
    watch.stop()
    connection.close()


def pika_consume(where: str, count: int, name: str, per: int) -> None:
    connection = pika.BlockingConnection(parameters(where))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    received = 0

    def on_message(_: object, method: Any, properties: object, body: bytes) -> None:  # noqa: ANN401 (untyped)
        nonlocal received
        del properties, body
        received += 1
        if received % per == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if received == count:
            channel.stop_consuming()

    watch = Watch()
    channel.basic_consume(name, on_message)
    channel.start_consuming()
    watch.stop()
    connection.close()


# Redis
# --------------------------------------------------------------------------------------------------


def redis_send(where: str, count: int, name: str, per: int) -> None:
    client = redis.Redis("127.0.0.1", int(where))
    client.ping()

    def send_many() -> None:
        with client.pipeline(transaction=False) as pipeline:
            for _ in range(per):
                pipeline.xadd(name, {"body": BODY})
            pipeline.execute()

    if per == 1:
        Watch().repeat(count, lambda: client.xadd(name, {"body": BODY}))
    else:
        Watch().repeat(count // per, send_many)


def redis_receive(where: str, count: int, name: str, per: int) -> None:
    client: Any = redis.Redis("127.0.0.1", int(where))
    me = str(time.monotonic_ns())

    def receive_many() -> None:
        found = client.xreadgroup("bench", me, {name: ">"}, count=per)
        identifiers = [identifier for identifier, _ in found[0][1]]
        with client.pipeline(transaction=False) as pipeline:
            pipeline.xack(name, "bench", *identifiers)
            pipeline.xdel(name, *identifiers)
            pipeline.execute()

    Watch().repeat(count // per, receive_many)


CLIENTS: dict[str, Client] = {
    one.__name__: one
    for one in (
        lanner_send,
        lanner_receive,
        lanner_fill,
        lanner_consume,
        pika_send,
        pika_send_window,
        pika_receive,
        pika_consume,
        redis_send,
        redis_receive,
    )
}
TASKS: dict[str, Callable[[str, int, str, int], Any]] = {
    "lanner_send_tasks": lanner_send_tasks,
    "lanner_receive_tasks": lanner_receive_tasks,
}


def main() -> None:
    kind, where, count, name, per = sys.argv[1:]
    if kind in TASKS:
        uvloop.run(TASKS[kind](where, int(count), name, int(per)))
    else:
        CLIENTS[kind](where, int(count), name, int(per))


if __name__ == "__main__":
    main()
