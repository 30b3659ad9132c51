r"""Generated traffic of an order business, with the truth to compare the pipeline's numbers to.

    world = generate(seed=7, orders=2000)
    # A file of packets for each queue, in the format of `lanner export`.
    world.write_files(Path("packets"))
    # What really happened.
    world.write_truth(Path("truth.json"))

The same seed gives the same bytes. The machines in three sites have clocks that are wrong and
drift. One clock is set back by an hour, and one machine is restored from a backup, so that its
visibility numbers repeat. Messages are real packets, made by `lanner.wire`: text as COM programs
write it, XML and binary as .NET does, empty bodies, long labels, and transactions, some of them
aborted. Some messages expire, are refused, purged or poison. Some acknowledgments are lost, and
some messages leave reports along their route.

The truth of a message is what really happened to it, in seconds of the clock of the machine that
saw it. Its `known` part is what can still be found in the queues, which is all that a pipeline
could learn.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    AuthenticationLevel,
    DeliveryGuarantee,
    MessageClass,
    SenderIdentifierType,
)
from lanner.model.lookup_ids import lookup_id_of
from lanner.spark.columnar.packet_files import Origin, PacketWriter
from lanner.spark.columnar.packet_source import Place, StoredPacket
from lanner.transfer.tracing import format_body, format_label
from lanner.wire.body_types import VT_BSTR, VT_LPSTR, VT_LPWSTR
from lanner.wire.builder import (
    DEFAULT_PRIORITY,
    MessageProperties,
    build,
    set_authentication,
    set_message_class,
    set_route_count,
    set_sequence,
)
from lanner.wire.format_name import FormatName, PublicFormatName, parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from lanner.wire.reader import guid_to_bytes
from lanner.wire.sid import Sid

HOUR: Final = 3600
# Monday, 2 March 2026, 06:00 UTC.
START: Final = 1_772_431_200
CITIES: Final = ("LYON", "GENT", "KRAKOW")
MACHINES_PER_CITY: Final = 4
WORK: Final = ("orders", "invoices", "shipments", "payments", "stock", "returns", "quotes")
ACKS, REPORTS = "acks", "reports"
POISON: Final = "poison"
# Body types of .NET's formatters: XmlMessageFormatter, BinaryMessageFormatter.
DOTNET_XML, DOTNET_BINARY = 0, 768
VT_I4: Final = 3
_BINARY_FORMATTER: Final = bytes.fromhex("0001000000ffffffff01000000000000000c02000000")
_WORST_CLOCKS: Final = (-90, 45)  # seconds

# Fates of messages, in thousandths; the remaining messages are received.
_FATES: Final = (
    ("waiting", 40),
    (MessageClass.NACK_RECEIVE_TIMEOUT, 20),
    (MessageClass.NACK_REACH_QUEUE_TIMEOUT, 10),
    (MessageClass.NACK_QUEUE_EXCEED_QUOTA, 8),
    (MessageClass.NACK_ACCESS_DENIED, 5),
    (MessageClass.NACK_BAD_DEST_QUEUE, 4),
    (MessageClass.NACK_QUEUE_PURGED, 6),
    ("poison", 5),
)
# Seconds in transit between two machines: mostly less than one.
_TRANSITS: Final = (0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 6)


@dataclass(frozen=True)
class Machine:
    """A queue manager; `skews` has the seconds that its clock is ahead, for each hour."""

    name: str
    identifier: uuid.UUID
    site: str
    skews: tuple[int, ...]
    start: int

    def clock(self, now: int) -> int:
        """Return the time that its clock shows."""
        hour = min(max((now - self.start) // HOUR, 0), len(self.skews) - 1)
        return now + self.skews[hour]


@dataclass(frozen=True)
class BusyQueue:
    """A queue of the business."""

    machine: Machine
    name: str
    is_transactional: bool
    has_journal: bool

    @property
    def format_name(self) -> str:
        return rf"DIRECT=OS:{self.machine.name}\private$\{self.name}"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A message as it is found in a queue; `time` is the real time."""

    machine: Machine
    queue: str
    kind: str
    subqueue: str | None
    time: int
    packet: bytes
    abort_count: int = 0
    move_count: int = 0


@dataclass
class World:
    """The generated machines, queues and messages."""

    seed: int
    start: int
    hours: int
    machines: list[Machine]
    queues: list[BusyQueue]
    restored: Machine
    backup_at: int
    crash_at: int
    sightings: list[Sighting] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    aborted: int = 0
    broken: int = 0

    def truth(self) -> dict[str, Any]:
        """Return the truth as a JSON object."""
        return {
            "seed": self.seed,
            "start": self.start,
            "hours": self.hours,
            "machines": [
                {"name": m.name, "id": str(m.identifier), "site": m.site, "skews": list(m.skews)} for m in self.machines
            ],
            "queues": [
                {"queue": q.format_name, "transactional": q.is_transactional, "journal": q.has_journal}
                for q in self.queues
            ],
            "restored": {"machine": self.restored.name, "backup": self.backup_at, "crash": self.crash_at},
            "aborted_sends": self.aborted,
            "broken_packets": self.broken,
            "sightings": len(self.sightings),
            "messages": self.messages,
        }

    def write_truth(self, path: Path) -> None:
        path.write_text(json.dumps(self.truth(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def write_files(self, directory: Path) -> list[Path]:
        """Write a file of packets for each queue, and return the paths.

        The restored machine has two files per queue, from before and after.
        """
        directory.mkdir(parents=True, exist_ok=True)
        places: dict[tuple[int, Place], list[StoredPacket]] = {}
        for machine in self.machines:
            for epoch, place, stored in self._numbered(machine):
                places.setdefault((epoch, place), []).append(stored)
        paths = []
        for (epoch, place), rows in places.items():
            digest = hashlib.sha256(f"{place.queue};{place.subqueue}".encode()).hexdigest()[:12]
            path = directory / f"{place.qm_name}-{digest}-{epoch}.packets"
            with PacketWriter(path, Origin(place, epoch, self.start + self.hours * HOUR)) as writer:
                for stored in rows:
                    writer.write(stored)
            paths.append(path)
        return paths

    def _numbered(self, machine: Machine) -> Iterator[tuple[int, Place, StoredPacket]]:
        """Yield a machine's messages, with visibility numbers in order of arrival."""
        found = sorted((s for s in self.sightings if s.machine is machine), key=lambda sighting: sighting.time)
        epochs = [(1, found)]
        if machine is self.restored:
            kept = [s for s in found if s.time <= self.backup_at]
            epochs = [
                (1, [s for s in found if s.time <= self.crash_at]),
                (2, kept + [s for s in found if s.time > self.crash_at]),
            ]
        for epoch, rows in epochs:
            for seq, sighting in enumerate(rows, 1):
                place = Place(str(machine.identifier), machine.name, sighting.queue, sighting.kind, sighting.subqueue)
                yield (
                    epoch,
                    place,
                    StoredPacket(
                        seq,
                        lookup_id_of(DEFAULT_PRIORITY, seq),
                        machine.clock(sighting.time),
                        sighting.abort_count,
                        sighting.move_count,
                        sighting.packet,
                    ),
                )


def generate(seed: int = 1, orders: int = 1000, hours: int = 6, start: int = START) -> World:
    """Generate a world with `orders` business messages, plus acknowledgments and reports."""
    if orders < 1 or hours < 2:
        raise ValueError(f"at least 1 order and 2 hours are needed, not {orders} and {hours}")
    return _Maker(seed, orders, hours, start).made()


class _Maker:
    """The generator of a world; all choices come from one random source, in one order."""

    def __init__(self, seed: int, orders: int, hours: int, start: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 (repeatable is what is wanted)
        self.orders = orders
        machines = self._machines(hours, start)
        self.monitor = machines[0]
        self.report_queue = self._guid()
        queues = [
            BusyQueue(machine, name, self.chance.random() < 0.3, self.chance.random() < 0.9)
            for machine in machines
            for name in self.chance.sample(WORK, 3)
        ]
        end = start + hours * HOUR
        self.world = World(seed, start, hours, machines, queues, machines[5], end - HOUR, end - HOUR // 2)
        self.ordinals = {machine.name: 1000 + self.chance.randrange(1000) for machine in machines}
        self.transactions = dict.fromkeys(self.ordinals, 0)
        self.sequences: dict[tuple[str, str], int] = {}
        self.users = {machine.name: [self._sid(), self._sid()] for machine in machines}
        self.poison_body = b"<order><quantity>NaN</quantity></order>"
        # Some hours of the day are busier than others.
        self.weights = [1 + 4 * (hour % 5 in (2, 3)) for hour in range(hours)]

    def _guid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.chance.randbytes(16), version=4)

    def _sid(self) -> bytes:
        return Sid(
            5, (21, *(self.chance.randrange(1 << 32) for _ in range(3)), self.chance.randrange(1000, 2000))
        ).pack()

    def _machines(self, hours: int, start: int) -> list[Machine]:
        machines = []
        for city in CITIES:
            for number in range(1, MACHINES_PER_CITY + 1):
                base, drift = self.chance.randint(*_WORST_CLOCKS), self.chance.choice((-1, 0, 0, 1))
                skews = [base + drift * hour for hour in range(hours)]
                if (city, number) == (CITIES[1], 3):
                    # The clock is set back by an hour.
                    skews = [skew - (HOUR if hour >= hours // 2 else 0) for hour, skew in enumerate(skews)]
                machines.append(Machine(f"{city}-{number}", self._guid(), city, tuple(skews), start))
        return machines

    def made(self) -> World:
        made = 0
        while made < self.orders:
            source = self.chance.choice(self.world.machines)
            queue = self.chance.choice(self.world.queues)
            now = self._time()
            if not queue.is_transactional:
                self._send(source, queue, now, None)
                made += 1
                continue
            count = min(self.chance.choice((1, 1, 1, 2, 3, 5, 8, 20)), self.orders - made)
            number = self.transactions[source.name] = self.transactions[source.name] + 1
            if self.chance.random() < 0.05:
                # Aborted: the identifiers are used up, but no message was ever sent.
                self.ordinals[source.name] += count
                self.world.aborted += count
                continue
            for index in range(count):
                self._send(source, queue, now, (number, index == 0, index == count - 1))
            made += count
        self._break_some()
        return self.world

    def _time(self) -> int:
        [hour] = self.chance.choices(range(self.world.hours), self.weights)
        return self.world.start + hour * HOUR + self.chance.randrange(HOUR)

    def _ordinal(self, machine: Machine) -> int:
        self.ordinals[machine.name] += 1
        return self.ordinals[machine.name]

    # A message
    # ----------------------------------------------------------------------------------------------

    def _send(self, source: Machine, queue: BusyQueue, now: int, unit: tuple[int, bool, bool] | None) -> None:
        chance = self.chance
        fate = self._fate()
        formatter, body_type, body, extension = self._body(fate)
        label = self._label(queue)
        acknowledge = chance.choice((0, 0, 0, 4, 5, 5, 12, 14, 15, 3))
        is_traced = chance.random() < 0.15
        properties = MessageProperties(
            body=body,
            body_type=body_type,
            extension=extension,
            label=label,
            priority=chance.choice((3, 3, 3, 3, 3, 3, 3, 3, 0, 7)),
            delivery_guarantee=DeliveryGuarantee(int(chance.random() < 0.7)),
            application_tag=chance.randrange(1 << 32),
            acknowledgements_requested=Acknowledgements(acknowledge),
            administration_queue_format_name=parse(rf"DIRECT=OS:{source.name}\private$\{ACKS}"),
            positive_journaling_requested=chance.random() < 0.3,
            negative_journaling_requested=chance.random() < 0.9,
            tracing_requested=is_traced,
            tracing_queue_identifier=self.report_queue if is_traced else uuid.UUID(int=0),
            time_to_be_received=chance.choice((60, 600)) if fate == MessageClass.NACK_RECEIVE_TIMEOUT else INFINITE,
            time_to_reach_queue=30 if fate == MessageClass.NACK_REACH_QUEUE_TIMEOUT else 345_600,
            transactional_message_sequence_identifier=TxSequenceID(0, 0),
        )
        is_signed = chance.random() < 0.2
        if chance.random() < 0.8:
            properties.sender_identifier = chance.choice(self.users[source.name])
            properties.sender_identifier_type = SenderIdentifierType.SID
            properties.signature = chance.randbytes(64) if is_signed else b""
            properties.sender_certificate = chance.randbytes(48) if is_signed else b""
        packet = self._packet(properties, source, queue, now, unit)
        if properties.signature:
            packet = set_authentication(packet, AuthenticationLevel.SIG10)
        truth: dict[str, Any] = {
            "msg_id": str(Message(packet).identifier),
            "label": label,
            "source": source.name,
            "destination": queue.machine.name,
            "queue": queue.format_name,
            "is_transactional": unit is not None,
            "priority": 0 if unit else properties.priority,
            "formatter": formatter,
            "body_type": body_type,
            "body_size": len(body),
            "body_sha256": hashlib.sha256(body).hexdigest(),
            "acknowledge": acknowledge,
            "is_authenticated": bool(properties.signature),
            "sender": properties.sender_identifier.hex(),
            "fate": fate if isinstance(fate, str) else fate.name,
            "sent": source.clock(now),
            "sent_really": now,
            "arrived": None,
            "received": None,
            "nack": None,
            "dead": None,
            "acks": [],
            "reports": [],
            "aborts": 0,
            "hops": 0,
            "known": {},
        }
        self._live(_Life(source, queue, packet, properties, now, fate, truth))
        if truth["known"]:
            self.world.messages.append(truth)

    def _fate(self) -> str | MessageClass:
        roll = self.chance.randrange(1000)
        for fate, share in _FATES:
            if roll < share:
                return fate
            roll -= share
        return "received"

    def _body(self, fate: str | MessageClass) -> tuple[str, int, bytes, bytes]:
        chance = self.chance
        number = chance.randrange(100_000)
        size = min(int(chance.lognormvariate(4.5, 1.2)), 60_000)
        filling = "ä" * (size // 2)
        if fate == "poison":
            return "xml", DOTNET_XML, self.poison_body, b""
        kind = chance.choice(
            ("bstr", "bstr", "lpwstr", "lpstr", "i4", "xml", "xml", "xml", "binary", "headers", "empty")
        )
        if kind == "bstr":
            return kind, VT_BSTR, f"order {number} {filling}".encode("utf-16-le"), b""
        if kind == "lpwstr":
            return kind, VT_LPWSTR, f"order {number}".encode("utf-16-le"), b""
        if kind == "lpstr":
            return kind, VT_LPSTR, f"order {number} caf\xe9".encode("latin-1"), b""
        if kind == "i4":
            return kind, VT_I4, number.to_bytes(4, "little"), b""
        if kind == "xml":
            text = f'<?xml version="1.0"?>\r\n<order id="{number}">{filling}</order>'
            return kind, DOTNET_XML, text.encode(), b""
        if kind == "binary":
            return kind, DOTNET_BINARY, _BINARY_FORMATTER + chance.randbytes(size), b""
        if kind == "headers":
            headers = "<ArrayOfHeaderInfo><HeaderInfo><Key>NServiceBus.MessageId</Key></HeaderInfo></ArrayOfHeaderInfo>"
            return kind, DOTNET_XML, f"<order id='{number}'/>".encode(), headers.encode()
        return kind, 0, b"", b""

    def _label(self, queue: BusyQueue) -> str:
        roll = self.chance.random()
        if roll < 0.01:
            return "\U0001f426" * 124 + "x"  # 249 UTF-16 units
        if roll < 0.03:
            return ""
        return f"{queue.name} of customer {self.chance.randrange(40)}"

    def _packet(
        self,
        properties: MessageProperties,
        source: Machine,
        queue: BusyQueue,
        now: int,
        unit: tuple[int, bool, bool] | None,
    ) -> bytes:
        number = None
        if unit is not None:
            number, properties.first_in_transaction, properties.last_in_transaction = unit
        packet = build(
            properties,
            source=source.identifier,
            ordinal=self._ordinal(source),
            sent_time=source.clock(now),
            destination=parse(queue.format_name),
            transaction=number,
        )
        if unit is None:
            return packet
        key = source.name, queue.format_name
        place = self.sequences[key] = self.sequences.get(key, 0) + 1
        return set_sequence(packet, TxSequenceID(0, 1 + len(self.sequences)), place, place - 1)

    # Its life
    # ----------------------------------------------------------------------------------------------

    def _live(self, life: _Life) -> None:
        fate, truth, queue = life.fate, life.truth, life.queue
        if life.properties.positive_journaling_requested:
            self._see(life.source, r"system$;JOURNAL", "journal", life.now, life.packet)
            truth["known"]["journaled"] = life.source.clock(life.now)
        if fate == MessageClass.NACK_REACH_QUEUE_TIMEOUT:
            self._fail(life, life.source, life.now + 31, fate)
            return
        arrived = self._travel(life)
        here = queue.machine
        if isinstance(fate, MessageClass) and fate not in (
            MessageClass.NACK_RECEIVE_TIMEOUT,
            MessageClass.NACK_QUEUE_PURGED,
        ):
            self._fail(life, here, arrived, fate)
            return
        truth["arrived"] = here.clock(arrived)
        if life.source is not here:
            self._report(life, life.packet, here, arrived, None)
        if life.wants(Acknowledgements.POS_ARRIVAL):
            self._acknowledge(life, here, arrived, MessageClass.ACK_REACH_QUEUE)
        if isinstance(fate, MessageClass):
            wait = life.properties.time_to_be_received
            self._fail(life, here, arrived + (20 if wait == INFINITE else wait), fate)
            return
        if fate in ("waiting", "poison"):
            aborts = self.chance.randint(3, 9) if fate == "poison" else int(self.chance.random() < 0.2)
            subqueue = POISON if fate == "poison" else None
            truth["aborts"] = aborts
            where = queue.format_name if subqueue is None else f"{queue.format_name};{subqueue}"
            kind = "destination" if subqueue is None else "subqueue"
            moves = int(subqueue is not None)
            self._see(here, where, kind, arrived, life.packet, subqueue=subqueue, abort_count=aborts, move_count=moves)
            truth["known"]["waiting"] = truth["arrived"]
            return
        received = arrived + min(int(self.chance.expovariate(1 / 40)), 900)
        truth["received"] = here.clock(received)
        if life.wants(Acknowledgements.POS_RECEIVE):
            self._acknowledge(life, here, received, MessageClass.ACK_RECEIVE)
        if queue.has_journal:
            self._see(here, f"{queue.format_name};journal", "journal", received, life.packet)
            truth["known"]["received"] = truth["received"]

    def _travel(self, life: _Life) -> int:
        """Route a message over both sites, with reports if traced; return its arrival time."""
        here = life.queue.machine
        path = [life.source]
        if life.source.site != here.site:
            path += [self._gateway(life.source.site), self._gateway(here.site)]
        path = [*dict.fromkeys(machine for machine in path if machine is not here), here]
        now = life.now
        for hops, (at, after) in enumerate(itertools.pairwise(path)):
            packet = set_route_count(life.packet, hops)
            if hops:
                self._report(life, packet, at, now, None)
            self._report(life, packet, at, now, f"10.0.0.{self.world.machines.index(after) + 1}")
            now += self.chance.choice(_TRANSITS)
        life.packet = set_route_count(life.packet, max(len(path) - 2, 0))
        life.truth["hops"] = max(len(path) - 2, 0)
        life.truth["path"] = [machine.name for machine in path]
        return now

    def _gateway(self, site: str) -> Machine:
        return next(machine for machine in self.world.machines if machine.site == site)

    def _fail(self, life: _Life, where: Machine, now: int, reason: MessageClass) -> None:
        truth = life.truth
        is_late = reason in (MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_QUEUE_PURGED)
        truth["nack"] = int(reason)
        if life.wants(Acknowledgements.NEG_RECEIVE if is_late else Acknowledgements.NEG_ARRIVAL):
            self._acknowledge(life, where, now, reason)
        is_kept = life.properties.negative_journaling_requested and (
            truth["is_transactional"] or reason != MessageClass.NACK_QUEUE_PURGED
        )
        if not is_kept:
            return
        at_source = truth["is_transactional"] or reason not in (
            MessageClass.NACK_RECEIVE_TIMEOUT,
            MessageClass.NACK_QUEUE_EXCEED_QUOTA,
        )
        keeper = life.source if at_source else where
        kind, name = ("xact_deadletter", "DEADXACT") if truth["is_transactional"] else ("deadletter", "DEADLETTER")
        self._see(keeper, rf"system$;{name}", kind, now, set_message_class(life.packet, reason))
        truth["dead"] = {"class": int(reason), "time": keeper.clock(now), "machine": keeper.name}
        truth["known"]["dead"] = keeper.clock(now)

    def _acknowledge(self, life: _Life, by: Machine, now: int, message_class: MessageClass) -> None:
        if self.chance.random() < 0.04:
            return  # lost without a trace
        properties = MessageProperties(
            message_class=message_class,
            correlation_identifier=Message(life.packet).identifier_bytes,
            response_queue_format_name=parse(life.queue.format_name),
            time_to_reach_queue=INFINITE,
            sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
            sender_identifier=guid_to_bytes(by.identifier),
        )
        admin = rf"DIRECT=OS:{life.source.name}\private$\{ACKS}"
        packet = self._own(by, properties, now, parse(admin))
        come = now if by is life.source else now + self.chance.choice(_TRANSITS)
        self._see(life.source, admin, "destination", come, packet)
        ack = {
            "class": int(message_class),
            "by": by.name,
            "sent": by.clock(now),
            "arrived": life.source.clock(come),
        }
        life.truth["acks"].append(ack)
        life.truth["known"].setdefault("acks", []).append(int(message_class))

    def _report(self, life: _Life, packet: bytes, by: Machine, now: int, next_hop: str | None) -> None:
        if not life.properties.tracing_requested:
            return
        message = Message(packet)
        properties = MessageProperties(
            message_class=MessageClass.REPORT,
            label=format_label(message, by.clock(now)),
            body=format_body(message, next_hop),
            sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
            sender_identifier=guid_to_bytes(by.identifier),
        )
        report = self._own(by, properties, now, PublicFormatName(self.report_queue))
        come = now if by is self.monitor else now + self.chance.choice(_TRANSITS)
        self._see(self.monitor, rf"DIRECT=OS:{self.monitor.name}\{REPORTS}", "report", come, report)
        told = {"by": by.name, "hops": message.route_count, "time": by.clock(now), "next_hop": next_hop}
        life.truth["reports"].append(told)
        life.truth["known"]["reports"] = len(life.truth["reports"])

    def _own(self, by: Machine, properties: MessageProperties, now: int, destination: FormatName) -> bytes:
        """Return a message that a queue manager sends itself."""
        return build(
            properties,
            source=by.identifier,
            ordinal=self._ordinal(by),
            sent_time=by.clock(now),
            destination=destination,
        )

    def _see(
        self,
        machine: Machine,
        queue: str,
        kind: str,
        time: int,
        packet: bytes,
        *,
        subqueue: str | None = None,
        abort_count: int = 0,
        move_count: int = 0,
    ) -> None:
        name = queue if "=" in queue else rf"DIRECT=OS:{machine.name}\{queue}"
        self.world.sightings.append(Sighting(machine, name, kind, subqueue, time, packet, abort_count, move_count))

    def _break_some(self) -> None:
        """Add unreadable packets, such as a failing disk leaves behind."""
        journals = [sighting for sighting in self.world.sightings if sighting.kind == "journal"]
        for sighting in self.chance.sample(journals, min(3, len(journals))):
            cut = sighting.packet[: self.chance.randrange(8, 60)]
            self._see(sighting.machine, sighting.queue, "journal", sighting.time, cut)
            self.world.broken += 1


@dataclass
class _Life:
    """A message during its simulated life."""

    source: Machine
    queue: BusyQueue
    packet: bytes
    properties: MessageProperties
    now: int
    fate: str | MessageClass
    truth: dict[str, Any]

    def wants(self, acknowledgment: Acknowledgements) -> bool:
        return bool(self.properties.acknowledgements_requested & acknowledgment)


def read_truth(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
