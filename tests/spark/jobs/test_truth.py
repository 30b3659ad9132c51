"""The tables compared with what two queue managers really did.

The tests use real transfer, mostly queues without journals, and one wrong clock. 603 messages go
from SHOP to WAREHOUSE. The test keeps a diary of what it did and when, and of when the queues of
WAREHOUSE showed each message. A diary entry has the time before and the time after. The times in
the tables must lie between them, however busy the machine is.
"""

from __future__ import annotations

import collections
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from demo.business import free_addresses
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.enums import MessageClass
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.jobs import JOBS, audit, checks, ingest, lifecycle
from lanner.spark.jobs.session import Context
from lanner.spark.jobs.tables import EVENTS, each_once
from lanner.wire.fields import message_id, source_queue_manager
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.reader import Reader
from tests.client.conftest import no_keys
from tests.spark.jobs.worlds import context

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from lanner.model.live import Record

AHEAD = 3.0  # seconds that the clock of WAREHOUSE is wrong
ORDERS, BILLS, PAYMENTS, POISON, ABORTS, OFFERS, CLOSED, REST = 400, 100, 42, 12, 4, 50, 7, 4
UNSENT = 3
ALL = ORDERS + BILLS + PAYMENTS + OFFERS + CLOSED + REST
WAIT = 0.2  # seconds that orders lie in their queue
PATIENCE = 60.0
MILLISECOND = 0.001  # tables cut what is smaller off
JOBS_RUN = ("lifecycle", "acks", "latency", "throughput", "poison", "routes", "audit", "report", "checks")

Span = tuple[float, float]


@dataclass
class Diary:
    """A record of actions, by the clocks of those who acted."""

    kind: dict[str, str] = field(default_factory=dict)
    sent: dict[str, Span] = field(default_factory=dict)
    shown: dict[str, float] = field(default_factory=dict)
    received: dict[str, Span] = field(default_factory=dict)
    expired_after: float = 0.0

    def ids(self, kind: str) -> set[str]:
        return {identifier for identifier, each in self.kind.items() if each == kind}


class World:
    """Two queue managers and what they do."""

    def __init__(self, base: Path, stack: ExitStack) -> None:
        self.addresses = free_addresses()
        settings: dict[str, Any] = {"dns_domain": "example.com", "public_keys": no_keys, "events": True}
        self.shop, self.warehouse = (
            stack.enter_context(QueueManager(base / name, name, bind=address, **settings))
            for name, address in self.addresses.items()
        )
        runtime = runtime_of(self.warehouse)
        runtime.engine.clocks.wall = lambda: time.time() + AHEAD
        self.diary = Diary()
        runtime.engine.position_available_subscribers.append(self._shown)
        for name in ("orders", "bills", "offers", "rest"):
            self.warehouse.create_queue(name, journal=name == "bills")
        self.warehouse.create_queue("payments", transactional=True)
        self.shop.create_queue("acks")

    def _shown(self, _queue: object, _first: int, records: Sequence[Record]) -> None:
        now = time.time() + AHEAD
        for record in records:
            raw = source_queue_manager(record.packet) + message_id(record.packet)
            self.diary.shown.setdefault(str(MessageIdentifier.unpack(Reader(raw))), now)

    def name(self, machine: str, queue: str) -> str:
        return rf"DIRECT=TCP:{self.addresses[machine]}\private$\{queue}"

    def send(self, queue: str, count: int, **properties: object) -> None:
        if "acknowledge" in properties:
            properties["administration_queue"] = self.name("SHOP", "acks")
        before = time.time()
        target = self.shop.open(self.name("WAREHOUSE", queue))
        found: list[str] = []
        if queue == "payments":
            for first in range(0, count, 6):
                with self.shop.transaction() as unit:
                    for number in range(first, min(first + 6, count)):
                        body = "poison" if number < POISON else "payment"
                        message = Message(body=body, label=f"payment {number}", **properties)  # type: ignore[arg-type]
                        found.append(target.send(message, transaction=unit))
        else:
            messages = [
                Message(body=f"{queue} {n}", label=f"{queue} {n}", recoverable=True, **properties)  # type: ignore[arg-type]
                for n in range(count)
            ]
            found += target.send_many(messages)
        after = time.time()
        for identifier in map(str, found):
            self.diary.kind[identifier], self.diary.sent[identifier] = queue, (before, after)

    def until(self, what: str, condition: Any) -> None:  # noqa: ANN401 (a function)
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.01)

    def receive(self, queue: str, count: int) -> None:
        source = self.warehouse.open(queue)
        self.until(f"{count} messages in {queue}", lambda: source.count() == count)
        time.sleep(WAIT)
        left = count
        while left:
            before = time.time() + AHEAD
            taken = source.receive_many(10)
            after = time.time() + AHEAD
            left -= len(taken)
            for message in taken:
                self.diary.received[str(message.id)] = before, after
        source.close()

    def take_payments(self) -> None:
        payments = self.warehouse.open("payments")
        self.until("payments", lambda: payments.count() == PAYMENTS)
        while payments.count():
            unit = self.warehouse.transaction()
            before = time.time() + AHEAD
            taken = payments.receive(0, transaction=unit)
            if taken.body != "poison":
                unit.commit()
                self.diary.received[str(taken.id)] = before, time.time() + AHEAD
                continue
            unit.abort()
            if taken.abort_count == ABORTS:
                payments.move(taken.lookup_id, "poison")
                self.diary.kind[str(taken.id)] = "poison"

    def abort_payments(self) -> None:
        """Send payments in a transaction that is aborted: nobody ever sees them."""
        target, unit = self.shop.open(self.name("WAREHOUSE", "payments")), self.shop.transaction()
        for number in range(UNSENT):
            target.send(Message(body="never", label=f"payment {number}"), transaction=unit)
        unit.abort()

    def run(self, halfway: Callable[[], object]) -> None:
        """Do it all, and call a function when some messages have ended and others have not."""
        self.send("orders", ORDERS)
        self.send("bills", BILLS, acknowledge="full_receive")
        self.send("payments", PAYMENTS, acknowledge="full_receive")
        self.abort_payments()
        life = int(AHEAD) + 3
        self.send(
            "offers", OFFERS // 2, time_to_be_received=life, acknowledge="nack_receive", use_dead_letter_queue=True
        )
        self.send("offers", OFFERS // 2, time_to_be_received=life)
        self.send("closed", CLOSED, acknowledge="full_reach_queue")
        self.send("rest", REST, acknowledge="full_reach_queue")
        self.receive("orders", ORDERS)
        halfway()
        self.receive("bills", BILLS)
        self.take_payments()
        offers, acks = self.warehouse.open("offers"), self.shop.open("acks")
        self.until("offers expire", lambda: len(self.diary.shown) >= ALL - CLOSED and not offers.count())
        self.diary.expired_after = time.time() + AHEAD
        told = BILLS + PAYMENTS - POISON + OFFERS // 2 + REST
        self.until("acknowledgments", lambda: acks.count() >= told)
        outgoing = [queue for manager in (self.shop, self.warehouse) for queue in manager.outgoing_queues()]
        self.until("outgoing queues", lambda: not sum(queue.count() for queue in outgoing))
        for queue in (offers, acks):
            queue.close()


@dataclass
class Tables:
    world: World
    diary: Diary
    context: Context
    ingested: dict[str, int]

    def rows(self, name: str) -> list[Row]:
        return list(self.context.lake.read(name).collect())


@pytest.fixture(scope="module")
def truth(spark: SparkSession, accounts: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    """All jobs, after all that has happened."""
    base = tmp_path_factory.mktemp("truth")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LANNER_PASSWORD", "secret")
        world = World(base, stack)
        addresses = []
        for manager in (world.shop, world.warehouse):
            shutil.copy(accounts, runtime_of(manager).users.path)
            service = FlightListener(runtime_of(manager), FlightSettings(port=0))
            addresses.append(stack.enter_context(service).address)
        made = context(spark, base, source={"managers": addresses, "user": "root"}, throughput={"bucket_seconds": 1})

        def halfway() -> None:
            # The tables that the tests read are made in two runs.
            ingest.run(made)
            lifecycle.run(made)

        world.run(halfway)
        ingested = ingest.run(made)
        for job in JOBS_RUN:
            JOBS[job].run(made)
        yield Tables(world, world.diary, made, ingested)


@pytest.fixture(scope="module")
def lives(truth: Tables) -> dict[str, Row]:
    return {row["msg_id"]: row for row in truth.rows("lifecycle")}


def own(queue: str, machine: str = "WAREHOUSE") -> str:
    return rf"DIRECT=OS:{machine}\private$\{queue}"


STATUS = {
    "orders": "received",
    "bills": "received",
    "payments": "received",
    "poison": "waiting",
    "closed": "refused",
    "rest": "waiting",
}


def test_every_message_its_way_and_its_end(truth: Tables, lives: dict[str, Row]) -> None:
    diary = truth.diary
    assert set(lives) == set(diary.kind)
    assert len(lives) == ALL == 603
    for identifier, kind in diary.kind.items():
        row = lives[identifier]
        assert (row["source"], row["destination"]) == ("SHOP", "WAREHOUSE"), kind
        assert row["queue"] == own("payments" if kind == "poison" else kind)
        assert row["known_by"] in ("events", "both")
        if kind != "offers":
            assert row["status"] == STATUS[kind], (kind, row)
        assert row["abort_count"] == (ABORTS if kind == "poison" else 0)
    assert {row["subqueue"] for row in lives.values() if row["status"] == "waiting"} == {"poison", None}
    offers = collections.Counter(lives[identifier]["status"] for identifier in diary.ids("offers"))
    assert offers == {"dead_lettered": OFFERS // 2, "expired": OFFERS // 2}
    for kind, reason in (("offers", MessageClass.NACK_RECEIVE_TIMEOUT), ("closed", MessageClass.NACK_BAD_DEST_QUEUE)):
        found = {(lives[i]["failed_class"], lives[i]["failed_at"], lives[i]["failed_by"]) for i in diary.ids(kind)}
        assert found == {(reason, "WAREHOUSE", "event")}


def test_every_time_is_between_before_and_after(truth: Tables, lives: dict[str, Row]) -> None:
    diary = truth.diary

    def check(moment: Any, before: float, after: float) -> None:  # noqa: ANN401 (a datetime or None)
        assert before - MILLISECOND <= moment.timestamp() <= after

    for identifier, row in lives.items():
        assert row["sent_by"] == "event"
        check(row["sent_at"], *diary.sent[identifier])
        if identifier in diary.shown:
            assert row["arrived_by"] == "event"
            check(row["arrived_time"], diary.sent[identifier][0] + AHEAD, diary.shown[identifier])
        else:
            assert (diary.kind[identifier], row["arrived_time"]) == ("closed", None)
        if identifier in diary.received:
            assert row["received_by"] == "event"
            check(row["received_time"], *diary.received[identifier])
        else:
            assert row["received_time"] is None
        if diary.kind[identifier] == "offers":
            check(row["failed_time"], diary.shown[identifier], diary.expired_after)
    # All this says little if before and after are far apart.
    apart = sorted(after - before for before, after in diary.received.values())
    assert apart[len(apart) // 2] < WAIT / 2


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


def test_waits_and_ways_are_reported_in_milliseconds(truth: Tables, lives: dict[str, Row]) -> None:
    diary = truth.diary
    rows = {row["queue"]: row for row in truth.rows("latency_by_queue")}
    assert set(rows) == {own(name) for name in ("orders", "bills", "payments", "offers", "rest")}
    for queue, count in (("orders", ORDERS), ("bills", BILLS), ("payments", PAYMENTS - POISON)):
        row = rows[own(queue)]
        taken = [i for i in diary.received if diary.kind[i] == queue]
        assert (row["received"], row["exact"], row["negative"]) == (count, row["messages"], 0)
        for share in (50, 95, 99):
            # The truth lies between the waits that are possible at least and at most.
            least = percentile([diary.received[i][0] - diary.shown[i] for i in taken], share / 100)
            most = percentile([diary.received[i][1] - diary.sent[i][0] - AHEAD for i in taken], share / 100)
            assert least - 2 * MILLISECOND <= row[f"wait_p{share}"] <= most + MILLISECOND
            waits = [(lives[i]["received_time"] - lives[i]["arrived_time"]).total_seconds() for i in taken]
            assert row[f"wait_p{share}"] == pytest.approx(percentile(waits, share / 100), abs=1e-6)
    assert rows[own("orders")]["wait_p50"] >= WAIT - 2 * MILLISECOND
    assert any(row["delivery_p50"] % 1 for row in rows.values()), "ways are not in whole seconds"


def test_the_wrong_clock_is_found(truth: Tables) -> None:
    for row in truth.rows("clock_skew"):
        assert {row["name_a"], row["name_b"]} == {"SHOP", "WAREHOUSE"}
        assert (row["method"], row["is_exact"], row["is_step"]) == ("two-way", True, False)
        skew = row["skew_seconds"] if row["name_b"] == "WAREHOUSE" else -row["skew_seconds"]
        assert abs(skew - AHEAD) <= row["uncertainty_seconds"] + 2 * MILLISECOND


def test_acknowledgments(truth: Tables) -> None:
    found = {(row["queue"], row["outcome"], row["reason"]): row["messages"] for row in truth.rows("ack_summary")}
    assert found == {
        (own("bills"), "positive", "ACK_RECEIVE"): BILLS,
        (own("payments"), "positive", "ACK_RECEIVE"): PAYMENTS - POISON,
        (own("payments"), "pending", None): POISON,
        (own("offers"), "negative", "NACK_RECEIVE_TIMEOUT"): OFFERS // 2,
        (own("closed"), "negative", "NACK_BAD_DEST_QUEUE"): CLOSED,
        (own("rest"), "positive", "ACK_REACH_QUEUE"): REST,
    }


def test_what_came_and_went(truth: Tables) -> None:
    found: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for row in truth.rows("throughput"):
        for place, name in enumerate(("arrived", "received", "failed")):
            found[row["queue"]][place] += row[name]
    acks = truth.world.shop.open("acks").count()
    assert dict(found) == {
        own("orders"): [ORDERS, ORDERS, 0],
        own("bills"): [BILLS, BILLS, 0],
        own("payments"): [PAYMENTS, PAYMENTS - POISON, 0],
        own("offers"): [OFFERS, 0, OFFERS],
        own("rest"): [REST, 0, 0],
        own("acks", "SHOP"): [acks, 0, 0],
    }
    depth = {row["queue"]: row["depth"] for row in truth.rows("backlog")}
    assert depth == {queue: arrived - received - failed for queue, (arrived, received, failed) in found.items()}


def test_poison(truth: Tables) -> None:
    [row] = truth.rows("poison")
    assert (row["queue"], row["label"], row["source"]) == (own("payments"), "payment #", "SHOP")
    assert (row["messages"], row["most_aborts"], row["aborts"]) == (POISON, ABORTS, POISON * ABORTS)


def test_routes_are_those_of_all_messages(truth: Tables) -> None:
    rows = {row["kind"]: row for row in truth.rows("routes")}
    assert {(row["source"], row["destination"], row["messages"]) for row in rows.values()} == {
        ("SHOP", "WAREHOUSE", ALL)
    }
    assert set(rows) == {"step", "route"}
    assert 0 <= rows["step"]["median_seconds"] < PATIENCE


def test_the_tables_agree_and_what_does_not_is_found(truth: Tables) -> None:
    lake = truth.context.lake
    assert {row["check"]: row["wrong"] for row in truth.rows("checks")} == dict.fromkeys(
        ("messages", "arrivals", "receives", "senders", "lost", "clocks"), 0
    )
    messages, events = lake.read("lifecycle"), each_once(lake.read(EVENTS))
    received = events.where("event != 'received' or queue not like '%orders'")
    torn = lake.read("clock_skew").withColumn("uncertainty_seconds", F.lit(-1.0))
    found = checks.checks(messages.where("status != 'refused'"), received, lake.read("throughput"), torn)
    wrong = {row["check"]: row["wrong"] for row in found.collect()}
    assert wrong["messages"] == CLOSED
    # A queue without events of a kind has no figures of that kind.
    assert wrong["receives"] == 0
    assert wrong["clocks"] == torn.count()
    few = checks.checks(messages, events, lake.read("throughput").where("received = 0"), torn)
    assert {row["check"]: row["wrong"] for row in few.collect()}["receives"] == ORDERS + BILLS + PAYMENTS - POISON


def test_senders_and_bodies(truth: Tables) -> None:
    rows = truth.rows("audit")
    counts = {own(name): count for name, count in (("orders", ORDERS), ("bills", BILLS), ("payments", PAYMENTS),
                                                   ("offers", OFFERS), ("closed", CLOSED), ("rest", REST))}  # fmt: skip
    assert {row["queue"]: row["messages"] for row in rows} == counts
    assert {row["source"] for row in rows} == {"SHOP"}
    assert len({row["sender"] for row in rows}) == 1
    assert {row["signed"] for row in rows} == {0}
    bodies = collections.Counter[tuple[str, bool]]()
    for row in truth.rows("census"):
        bodies[row["queue"], row["formatter"] == audit.NOT_SEEN] += row["messages"]
    # Seen is what was in a queue or a journal when the pipeline looked, halfway or at the end.
    for queue, seen in (("orders", 0), ("bills", BILLS), ("closed", 0), ("rest", REST)):
        assert (bodies[own(queue), False], bodies[own(queue), True]) == (seen, counts[own(queue)] - seen), queue
    for queue, least in (("payments", POISON), ("offers", OFFERS // 2)):
        assert bodies[own(queue), False] >= least
        assert bodies[own(queue), False] + bodies[own(queue), True] == counts[own(queue)]
    assert sum(bodies.values()) == ALL
    assert truth.rows("broken") == []
