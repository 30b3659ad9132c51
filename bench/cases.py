"""The benchmarks: what is measured, and Lanner's goals against each peer.

Lanner runs inside the benchmark's process, and its peers are reached over loopback, because that is
how a program on the same machine uses each of them. Traces of RabbitMQ's system calls show that it
syncs every message when messages are sent one at a time, with both kinds of queue (classic ones of
version 1, its default). For the other rows its documentation is trusted. RabbitMQ never confirms
the acknowledgments of its consumers, so its receive rows end when the channel has handled them,
whereas those of Lanner and Redis end when they are synced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Self, TypeVar

from bench.depth import deep_lanner, deep_rabbit, deep_redis
from bench.floor import BareStore, RawLmdb, fdatasync
from bench.growth import rows as growth_rows
from bench.ours import Ours
from bench.peers.process import Missing
from bench.peers.rabbit import Rabbit
from bench.peers.redis import Redis
from bench.report import Contender, Figures, Goal, Table, Writer, alternate, print_table
from bench.rpc import CREDENTIALS, MQMP, MQQP, SHAPES, Remote
from bench.service import CLIENT_COST, SERVER_COST, Clients, Service, by_clients
from bench.transfer import Pair
from bench.workload import BODY, Scale

P = TypeVar("P", Rabbit, Redis)

RATE = "messages/s"
WINDOW = 2000  # unconfirmed messages per sender; a larger window does not make the peers faster
LANNER = "Lanner"
QUORUM = "RabbitMQ quorum"
CLASSIC = "RabbitMQ classic"
REDIS = "Redis stream, fsync always"
KINDS = (QUORUM, "quorum"), (CLASSIC, "classic")


class Bench:
    """One run: its directory, its scale, and the servers, each started when first used."""

    def __init__(
        self, directory: Path, scale: Scale, *, peers: bool = True, full: bool = False, out: Writer = sys.stdout
    ) -> None:
        self.directory = directory
        self.scale = scale
        self.full = full
        self._peers = peers
        self._stack = ExitStack()
        self.out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def ours(self) -> Ours:
        ours = Ours(self.directory)
        self._stack.callback(ours.close)
        return ours

    @cached_property
    def lmdb(self) -> RawLmdb:
        raw = RawLmdb(self.directory)
        self._stack.callback(raw.close)
        return raw

    @cached_property
    def store(self) -> BareStore:
        store = BareStore(self.directory)
        self._stack.callback(store.close)
        return store

    @cached_property
    def pair(self) -> Pair:
        pair = Pair(self.directory)
        self._stack.callback(pair.close)
        return pair

    @cached_property
    def remote(self) -> Remote:
        remote = Remote(self.directory)
        self._stack.callback(remote.close)
        return remote

    @cached_property
    def service(self) -> Service:
        service = Service(self.directory)
        self._stack.callback(service.close)
        return service

    @cached_property
    def rabbit(self) -> Rabbit | None:
        return self._start(lambda: Rabbit(self.directory / "rabbit"))

    @cached_property
    def redis(self) -> Redis | None:
        return self._start(lambda: Redis(self.directory / "redis"))

    @cached_property
    def redis_in_memory(self) -> Redis | None:
        return self._start(lambda: Redis(self.directory / "redis-express", durable=False))

    def _start(self, start: Callable[[], P]) -> P | None:
        if not self._peers:
            return None
        try:
            peer = start()
        except Missing as missing:
            print(f"{missing}\n", file=self.out, flush=True)
            return None
        self._stack.callback(peer.close)
        print(f"{peer.name} {peer.version}, {peer.setting}.\n", file=self.out, flush=True)
        return peer

    def report(self, title: str, contenders: list[Contender], *goals: Goal, is_lower_better: bool = False) -> Table:
        table = alternate(title, contenders, self.scale.rounds, is_lower_better=is_lower_better)
        print_table(table, goals, self.out)
        return table

    def report_costs(self, title: str, contenders: list[Contender], *goals: Goal) -> None:
        """Report rates, and in a separate table the cost of each message."""
        whole = alternate(title, contenders, self.scale.rounds)
        costs = SERVER_COST, CLIENT_COST
        for name, columns, is_cost in (
            (f"{title}: messages/s", [one for one in whole.columns if one not in costs], False),
            (f"{title}: microseconds of processor time", list(costs), True),
        ):
            rows = {row: {one: found[one] for one in columns if one in found} for row, found in whole.rows.items()}
            print_table(Table(name, rows, is_lower_better=is_cost), () if is_cost else goals, self.out)


def at_rate(name: str, measure: Callable[[], float]) -> Contender:
    return Contender(name, lambda: {RATE: measure()})


def by_size(measure: Callable[[int, int], float], counts: dict[int, int], what: str) -> Callable[[], Figures]:
    """Return a function that calls `measure(count, size)` once for each size."""
    return lambda: {f"{what} {size}": measure(count, size) for size, count in counts.items()}


def send(bench: Bench) -> None:
    ours, raw, count = bench.ours, bench.lmdb, bench.scale.count(48_000, multiple=480)
    contenders = [
        at_rate("raw LMDB, 100 per commit", lambda: raw.put(count, 100)),
        at_rate("raw LMDB, 1000 per commit", lambda: raw.put(count, 1000)),
        at_rate(f"{LANNER} send_many(100)", lambda: ours.send_many(count, 100)),
        at_rate(f"{LANNER} send_many(1000)", lambda: ours.send_many(count, 1000)),
        at_rate(f"{LANNER} send_many(100), 4 threads", lambda: ours.send_many(count, 100, threads=4)),
        at_rate(f"{LANNER} send, 32 threads", lambda: ours.send_threads(count // 4, 32)),
        at_rate(f"{LANNER} await send, 480 tasks", lambda: ours.send_tasks(count, 480)),
        at_rate(f"{LANNER} await send_many(100), 4 tasks", lambda: ours.send_many_tasks(count, 100, 4)),
    ]
    if rabbit := bench.rabbit:
        contenders += [
            at_rate(
                f"{kind}, {n} sender{'s' * (n > 1)}",
                partial(rabbit.rate, "send", word, count, window=WINDOW, senders=n),
            )
            for kind, word in KINDS
            for n in (1, 3)
        ]
    if redis := bench.redis:
        contenders += [
            at_rate(f"{REDIS}, {n} sender{'s' * (n > 1)}", partial(redis.rate, "send", count, window=WINDOW, senders=n))
            for n in (1, 3)
        ]
    goals = Goal(QUORUM, must=2), Goal(CLASSIC), Goal(REDIS, aim=1), Goal("raw LMDB")
    bench.report("Durable send, many under way, confirmed after the sync", contenders, *goals)


def latency(bench: Bench) -> None:
    count = bench.scale.count(2000, multiple=2)
    contenders = [
        Contender("append 1 KiB + fdatasync", lambda: fdatasync(bench.directory, count)),
        Contender("raw LMDB, 1 per commit", lambda: bench.lmdb.put_one(count)),
        Contender(f"{LANNER} send", lambda: bench.ours.send_one(count)),
    ]
    if rabbit := bench.rabbit:
        contenders.append(Contender(QUORUM, lambda: rabbit.run("one", "quorum", count)))
        contenders.append(Contender(CLASSIC, lambda: rabbit.run("one", "classic", count)))
    if redis := bench.redis:
        contenders.append(Contender(REDIS, lambda: redis.run("one", count)))
    goals = Goal(QUORUM, must=1), Goal(CLASSIC), Goal(REDIS, aim=1), Goal("append"), Goal("raw LMDB")
    bench.report("Durable send, one at a time: microseconds", contenders, *goals, is_lower_better=True)


def receive_in_tasks(ours: Ours, tasks: int, messages: int, per: int) -> float:
    """Receive one message at a time in many tasks, or batches in four tasks."""
    return ours.receive_tasks(messages, tasks if per == 1 else 4, per)


def receive(bench: Bench) -> None:
    """Measure receives with an acknowledgment per message, or one for each 100.

    The acknowledgment of a message is not awaited before the next message.
    """
    ours, count = bench.ours, bench.scale.count(20_000, multiple=WINDOW)
    counts = {1: count, 100: count}
    # The fewest tasks that keep the disk busy, and as many as the window of the peers.
    contenders = []
    for tasks in (200, WINDOW):
        lanner = partial(receive_in_tasks, ours, tasks)
        contenders.append(
            Contender(f"{LANNER} ({tasks:,} tasks; 4 tasks)", by_size(lanner, counts, "acknowledged per"))
        )
    strict = by_size(lambda messages, _: ours.receive(messages), {1: max(1, count // 10)}, "acknowledged per")
    contenders.append(Contender("one receive() after the other, each synced before the next", strict))
    if rabbit := bench.rabbit:
        for kind, word in KINDS:
            measure = partial(rabbit_by_size, rabbit, "receive", word)
            contenders.append(Contender(kind, by_size(measure, counts, "acknowledged per")))
    if redis := bench.redis:
        contenders.append(
            Contender(REDIS, by_size(partial(redis_by_size, redis, "receive"), counts, "acknowledged per"))
        )
    goals = Goal(QUORUM, must=(1.1, 1.5), aim=(1.5, 2.0)), Goal(CLASSIC), Goal(REDIS)
    bench.report("Durable receive: messages/s", contenders, *goals)


def rabbit_by_size(rabbit: Rabbit, op: str, kind: str, count: int, per: int) -> float:
    return rabbit.rate(op, kind, count, per=per, window=WINDOW)


def redis_by_size(redis: Redis, op: str, count: int, per: int) -> float:
    return redis.rate(op, count, per=per, window=WINDOW)


def in_transactions(bench: Bench, title: str, op: str, ours: Callable[[int, int], float], goal: Goal) -> None:
    counts = {1: bench.scale.count(800), 10: bench.scale.count(4000, 10), 100: bench.scale.count(10_000, 100)}
    contenders = [Contender(LANNER, by_size(ours, counts, "transactions of"))]
    if rabbit := bench.rabbit:
        for kind, word in KINDS:
            measure = partial(rabbit_by_size, rabbit, op, word)
            contenders.append(Contender(kind, by_size(measure, counts, "transactions of")))
    if redis := bench.redis:
        contenders.append(Contender(REDIS, by_size(partial(redis_by_size, redis, op), counts, "transactions of")))
    bench.report(title, contenders, goal, Goal(REDIS))


def transactions(bench: Bench) -> None:
    goal = Goal("RabbitMQ", must=(2.0, 2.5, 3.0), aim=(3.0, 4.0, 4.0))
    in_transactions(bench, "Sends in transactions: messages/s", "tx", bench.ours.transactions, goal)


def move(bench: Bench) -> None:
    title = "Receive one and send one, in transactions: messages/s"
    in_transactions(bench, title, "move", bench.ours.move, Goal("RabbitMQ", must=1, aim=4))


def express(bench: Bench) -> None:
    ours, count = bench.ours, bench.scale.count(40_000, multiple=100)
    contenders = [
        at_rate(f"{LANNER} send, receive in turn", lambda: ours.express_in_turn(count)),
        at_rate(
            f"{LANNER} send_many(100), receive_many(100), 2 threads", lambda: ours.express_between_threads(count, 100)
        ),
        *(
            at_rate(
                f"{LANNER} await {name}, receive_many(100), 2 tasks",
                partial(ours.express_tasks, count, 100, is_many=is_many),
            )
            for name, is_many in (("send", False), ("send_many(100)", True))
        ),
    ]
    confirmed, unconfirmed = "RabbitMQ confirmed", "RabbitMQ unconfirmed"
    if rabbit := bench.rabbit:
        measure = partial(rabbit.rate, "express", "classic", count, window=WINDOW)
        contenders.append(at_rate(confirmed, partial(measure, confirm=1)))
        contenders.append(at_rate(unconfirmed, partial(measure, confirm=0)))
    if redis := bench.redis_in_memory:
        contenders.append(at_rate("Redis list", lambda: redis.rate("express", count, window=WINDOW)))
    goals = Goal(confirmed, must=1), Goal(unconfirmed, must=1.5, aim=2), Goal("Redis list")
    bench.report("Express: nothing durable, from send to receive", contenders, *goals)


def depth(bench: Bench) -> None:
    """Measure a deep queue in one round: it takes long, and its effects are larger than noise."""
    count = bench.scale.depth
    contenders = [Contender(LANNER, lambda: deep_lanner(bench.directory, count))]
    if bench.full and (rabbit := bench.rabbit):
        contenders += [Contender(kind, partial(deep_rabbit, rabbit, word, count)) for kind, word in KINDS]
    if bench.full and (redis := bench.redis):
        contenders.append(Contender(REDIS, lambda: deep_redis(redis, count)))
    table = alternate(f"{count:,} recoverable messages in one queue", contenders, 1)
    print_table(table.turned(), (), bench.out)


def share(bench: Bench) -> None:
    """Measure the cost of engine, packets and API over the store, and of the store over LMDB."""
    full = {1: 800, 10: 4000, 100: 20_000, 1000: 40_000}
    counts = {size: bench.scale.count(count, size) for size, count in full.items()}
    contenders = [
        Contender("raw LMDB put", by_size(bench.lmdb.put, counts, "per commit")),
        Contender("Store put", by_size(bench.store.put, counts, "per commit")),
        Contender(f"{LANNER} send_many", by_size(bench.ours.send_many, counts, "per commit")),
    ]
    goals = Goal("Store put"), Goal("raw LMDB"), Goal("raw LMDB", ours="Store put")
    bench.report("From the store to the API: messages/s", contenders, *goals)


def transfer(bench: Bench) -> None:
    """Measure transfers with a window of 64.

    The skeleton has no queues, checks, timers or acknowledgments of its own: it is the floor, not a
    peer.
    """
    pair = bench.pair
    counts = {"recoverable": 20_000, "transactional": 20_000, "express": 40_000}
    floors = {"express": pair.express_skeleton}
    for kind, full in counts.items():
        count = bench.scale.count(full, 100)
        contenders = [
            Contender(LANNER, partial(pair.rate, kind, count)),
            at_rate("bare skeleton", partial(floors.get(kind, pair.durable_skeleton).rate, count)),
        ]
        bench.report(f"From queue manager to queue manager, {kind}", contenders, Goal("bare skeleton"))
    alone = [Contender(LANNER, lambda: pair.latency(bench.scale.count(1000, 10)))]
    bench.report("One recoverable message from send to receive: microseconds", alone, is_lower_better=True)


def rpc(bench: Bench) -> None:
    """Measure RPC with one receive after the other, except in the column for several at once.

    The echo is the floor, not a peer: it has no queues.
    """
    remote, echo = bench.remote, "bare echo"
    count = bench.scale.count(3200, max(connections * at_once for connections, at_once in SHAPES.values()))
    levels = {"no authentication": None, "NTLM privacy": CREDENTIALS}
    for kind in ("recoverable", "express"):
        contenders = [
            Contender(f"{LANNER} {protocol}, {level}", partial(remote.rates, kind, protocol, count, credentials))
            for protocol in (MQQP, MQMP)
            for level, credentials in levels.items()
        ]
        contenders.append(Contender(echo, partial(remote.echo.rates, count)))
        bench.report(f"Remote receives of {kind} messages: messages/s", contenders, Goal(echo))
    count = bench.scale.count(2000, 10)
    questions = [
        Contender(f"{LANNER} Unix socket", partial(remote.questions, count, None)),
        Contender(f"{LANNER} NTLM privacy", partial(remote.questions, count, CREDENTIALS)),
        Contender(echo, partial(remote.echo.latency, count)),
    ]
    bench.report(
        "R_QMMgmtGetInfo, four properties of a queue: microseconds", questions, Goal(echo), is_lower_better=True
    )


def service(bench: Bench) -> None:
    """Measure services, with server and clients in separate processes.

    Sends are confirmed after the sync, for Lanner and for the peers.
    """
    rabbit, redis, clients = bench.rabbit, bench.redis, Clients(bench.service, bench.rabbit, bench.redis)
    quorum_c, pika, redis_py = f"{QUORUM}, C client", f"{QUORUM}, pika", f"{REDIS}, redis-py"
    ways = {f"{LANNER} by TCP": True, f"{LANNER} by lanner.sock": False}
    count = bench.scale.count(40_000, multiple=3000)

    def ours(kind: str, messages: int, per: int, way: str, *, filled: bool = False) -> Callable[[int], Figures]:
        return lambda n: clients.lanner(kind, messages, per, tcp=ways[way], filled=filled, clients=n)

    contenders = [
        Contender(f"{way}, {what}", partial(by_clients, ours(kind, count, per, way)))
        for way in ways
        for what, kind, per in (
            ("send_many(100)", "lanner_send", 100),
            ("send_many(1000)", "lanner_send", 1000),
            ("await send, 200 tasks", "lanner_send_tasks", 200),
        )
    ]
    if rabbit is not None:
        run_c = partial(rabbit.run, "send", "quorum", count, window=WINDOW)
        contenders += [
            Contender(quorum_c, lambda: by_clients(lambda n: clients.in_c(rabbit, partial(run_c, senders=n), count))),
            Contender(
                f"{pika}, window 480",
                lambda: by_clients(lambda n: clients.pika("pika_send_window", count, 480, filled=False, clients=n)),
            ),
        ]
    if redis is not None:
        send_c = partial(redis.run, "send", count, window=WINDOW)
        contenders += [
            Contender(
                f"{REDIS}, C client",
                lambda: by_clients(lambda n: clients.in_c(redis, partial(send_c, senders=n), count)),
            ),
            Contender(
                f"{redis_py}, pipeline(100)",
                lambda: by_clients(lambda n: clients.redis("redis_send", count, 100, filled=False, clients=n)),
            ),
        ]
    tcp = f"{LANNER} by TCP"
    goals: list[Goal] = [Goal(quorum_c, must=1, aim=1.5, ours=tcp), Goal(pika, ours=tcp), Goal(REDIS, ours=tcp)]
    bench.report_costs("Service: durable send, many under way", contenders, *goals)

    few = bench.scale.count(2000, multiple=2)
    alone = [Contender(f"{way}, send", partial(_latency, ours("lanner_send", few, 1, way))) for way in ways]
    if rabbit is not None:
        alone.append(
            Contender(pika, partial(_latency, lambda n: clients.pika("pika_send", few, 1, filled=False, clients=n)))
        )
    if redis is not None:
        alone.append(
            Contender(
                redis_py, partial(_latency, lambda n: clients.redis("redis_send", few, 1, filled=False, clients=n))
            )
        )
    goals = [Goal(pika, must=1, ours=tcp), Goal(redis_py, aim=1, ours=tcp)]
    bench.report("Service: durable send, one at a time: microseconds", alone, *goals, is_lower_better=True)

    count = bench.scale.count(15_000, multiple=3000)
    for title, mine, theirs, per, must in (
        ("acknowledged each", ("await receive, 100 tasks", "lanner_receive_tasks", 100), "pika_receive", 1, 1.0),
        ("acknowledged per 100", ("receive_many(100)", "lanner_receive", 100), "pika_receive", 100, 1.0),
        ("consume, prefetch 200", ("consume", "lanner_consume", 1), "pika_consume", 100, 1.2),
    ):
        what, kind, size = mine
        receivers = [
            Contender(f"{way}, {what}", partial(by_clients, ours(kind, count, size, way, filled=True))) for way in ways
        ]
        if rabbit is not None:
            measure = partial(clients.pika, theirs, count, per, filled=True)
            receivers.append(Contender(f"{pika}, {title}", partial(_by_clients, measure)))
        if redis is not None and kind == "lanner_receive":
            measure = partial(clients.redis, "redis_receive", count, 100, filled=True)
            receivers.append(Contender(f"{redis_py}, {title}", partial(_by_clients, measure)))
        goals = [Goal(pika, must=must, ours=tcp), Goal(redis_py, ours=tcp)]
        bench.report_costs(f"Service: durable receive, {title}", receivers, *goals)


def growth(bench: Bench) -> None:
    """Measure, for Lanner alone, whether messages cost more as other things grow."""
    for title, measured in growth_rows(bench.service, bench.scale.count, bench.scale.depth).items():
        contenders = [Contender(f"{LANNER}, {what}", measure) for what, measure in measured.items()]
        bench.report(f"Growth: {title}: microseconds of processor time each", contenders, is_lower_better=True)


def _by_clients(measure: Callable[..., Figures]) -> Figures:
    return by_clients(lambda n: measure(clients=n))


def _latency(measure: Callable[[int], Figures]) -> Figures:
    found = measure(1)
    return {name: found[name] for name in ("p50", "p99")}


def spark(bench: Bench) -> None:
    """Measure Spark; this needs Java and the packages of the extra `spark`."""
    from bench.spark import spark as measure

    measure(bench.directory, bench.scale.count(400_000), len(BODY), bench.scale.rounds, bench.out)


CASES: dict[str, Callable[[Bench], None]] = {
    "send": send,
    "latency": latency,
    "receive": receive,
    "transactions": transactions,
    "move": move,
    "express": express,
    "depth": depth,
    "share": share,
    "transfer": transfer,
    "rpc": rpc,
    "service": service,
    "growth": growth,
    "spark": spark,
}
