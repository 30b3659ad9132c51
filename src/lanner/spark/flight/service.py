"""The operations of the Flight service, independent of Flight: requests in, answers out.

The docstring of `server` is the reference of the protocol. `Service` checks each request, the epoch
it names and the rights of the caller, and leaves leases to `readers`, staged messages to `writing`
and rows to `lanner.spark.columnar`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import lanner.model.errors as model_errors
from lanner.directory.topology import survey
from lanner.host.long_reads import read_apart
from lanner.host.name_patterns import name_pattern
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.host.stream_lags import Lag
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import QueueAccessType
from lanner.model.errors import AccessDenied, IllegalFormatname, InvalidParameter, QueueNotFound
from lanner.security.identity import Identity
from lanner.spark.columnar.event_names import EVENTS_NAME, EVENTS_NUMBER, is_events
from lanner.spark.columnar.events import EventSource
from lanner.spark.columnar.filters import Filters
from lanner.spark.columnar.packet_source import PacketSource
from lanner.spark.columnar.ranges import Range
from lanner.spark.columnar.reading import PARTITION_BYTES, QueueSource
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.shaping import Shape
from lanner.spark.columnar.values import BodyFormat
from lanner.spark.flight.arrival_marks import ArrivalMarks
from lanner.spark.flight.arrivals import Arrivals
from lanner.spark.flight.errors import EpochChanged
from lanner.spark.flight.gates import Gates
from lanner.spark.flight.reader_pool import ReaderPool
from lanner.spark.flight.readers import DEFAULT_LEASE, Lease, Readers
from lanner.spark.flight.requests import MAX_EPOCH, Request
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.staged_parts import Contents
from lanner.spark.flight.tickets import Grant
from lanner.spark.flight.writing import StagedWrites

Answer = dict[str, Any]
Source = QueueSource | EventSource

# Not in the specification: milliseconds that one call may wait for messages.
MAX_WAIT: Final = 60_000
MAX_POLLED_QUEUES: Final = 1000
MAX_PARTITIONS: Final = 100_000
# Not in the specification: octets of all tickets of one plan. Each ticket repeats the request.
MAX_TICKETS_SIZE: Final = 32 << 20
MICROSECONDS: Final = 1_000_000
# Actions that look at many messages, and change nothing. One that waits takes its turns itself.
_COMPUTING: Final = frozenset({"bounds", "measure", "position"})
# Not in the specification: messages that are counted unless the caller sets a limit. Counting them
# takes about a second.
MAX_MEASURED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class GrantedScan:
    """The range of a queue that a Flight ticket allows a stream to read."""

    source: Source
    after: int
    upto: int
    schema: RowSchema
    ticket: Answer
    # The columns of the batches, and how the batches are shaped.
    selected: RowSchema
    shape: Shape

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.shape.is_plain:
            return self.source.batches(self.after, self.upto, self.schema)
        made = self.source.batches(self.after, self.upto, self.shape.read_with(self.selected))
        return self.shape.applied(made, self.selected)

    def packets(self) -> PacketSource:
        """Return the packets behind the batches.

        Raises InvalidParameter for the event log, and for rows that are filtered or decoded here.
        """
        if isinstance(self.source, EventSource) or not self.shape.is_plain:
            raise InvalidParameter(
                "events, and rows that are chosen or decoded here, cannot be sent as packets: read them through Flight"
            )
        return self.source.range(self.after, self.upto)


@dataclass(frozen=True, slots=True)
class Plan:
    """A queue, or a range of one, cut into partitions that can be read in parallel."""

    schema: RowSchema
    tickets: list[Answer]
    messages: int
    bytes: int
    about: Answer
    # For each ticket, whether a reader process can serve it too.
    are_shared: Sequence[bool] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """The connection of a caller, as far as an action needs it."""

    # Returns whether the client has disconnected.
    is_gone: Callable[[], bool]
    # Returns the local user who opened the connection, or None if that is unknown.
    user: Callable[[], int | None]


class Service:
    """The queue manager as seen by the data pipeline. Many threads call it at the same time."""

    def __init__(
        self, runtime: Runtime, settings: FlightSettings | None = None, pool: ReaderPool | None = None
    ) -> None:
        """Serve `runtime`. `pool`: the processes that serve messages which are in the database."""
        self._runtime = runtime
        self._pool = pool
        self._store = runtime.store
        self._arrivals = Arrivals(runtime)
        self._readers = Readers(runtime)
        self._writes = StagedWrites(runtime, settings)
        self._marks = ArrivalMarks(runtime)
        self._gates = Gates()
        self._life = secrets.token_hex(4)
        self.near_socket: str | None = None  # the socket for programs on this machine
        self.actions: dict[str, tuple[Callable[[Operations, Request, Client], Answer], str]] = {
            "info": (self._info, "the queue manager, its epoch and the newest number of its visibility sequence"),
            "computers": (self._computers, "the computers in the directory of this queue manager"),
            "bounds": (self._bounds, "which numbers the messages of a queue have"),
            "position": (self._position, "the number before the first message that arrived at a time or later"),
            "measure": (self._measure, "how far a range reaches within limits of messages and bytes"),
            "poll": (self._poll, "wait until one of several queues has messages after a number"),
            "acquire": (self._acquire, "begin or continue as a named reader"),
            "renew": (self._renew, "keep a queue for another term"),
            "release": (self._release, "let others receive from a queue"),
            "forget": (self._forget, "forget a named reader and its start"),
            "hold": (self._hold, "prevent expiry up to a number while messages are processed"),
            "acknowledge": (self._acknowledge, "receive everything up to a number, which has been processed"),
            "destination": (self._destination, "what a writer needs to build packets for a queue"),
            "publish": (self._publish, "make staged messages visible in one commit, once"),
            "drop": (self._drop, "drop staged messages"),
            "published": (self._published, "the last batch that a writer has published"),
        }

    def stop_waiting(self) -> None:
        """End the calls that wait for messages; nothing else."""
        self._arrivals.close()

    def close(self) -> None:
        """Release everything. No call may be running."""
        self._arrivals.close()
        self._marks.close()
        self._readers.close()

    def operations(self, identity: Identity) -> Operations:
        return Operations(self._runtime.engine, self._runtime, identity)

    def answer(self, values: Answer) -> bytes:
        """Return an answer in its encoded form. Every answer has the epoch."""
        return json.dumps({"epoch": self._store.epoch, **values}, sort_keys=True).encode()

    def act(self, identity: Identity, action: str, body: bytes, client: Client) -> bytes:
        """Run an action."""
        if action not in self.actions:
            raise InvalidParameter(f"there is no action {action!r}; there are {', '.join(self.actions)}")
        request = Request.parse(body, f"action {action}")
        self._check_epoch(request)
        run = partial(self.actions[action][0], self.operations(identity), request, client)
        if action not in _COMPUTING:
            return self.answer(run())
        with self._gates.of(identity):
            return self.answer(run())

    def _check_epoch(self, request: Request, *, is_needed: bool = False) -> None:
        epoch = request.number_or_none("epoch", MAX_EPOCH)
        if epoch is None and is_needed:
            raise request.wrong("epoch", "the epoch of the numbers")
        if epoch is not None and epoch != self._store.epoch:
            raise EpochChanged(
                f"this queue manager is in epoch {self._store.epoch}, not {epoch}: its store was restored or made "
                "anew, and numbers from before mean nothing now; begin without them"
            )

    # Queues and scans
    # ----------------------------------------------------------------------------------------------

    def queues(self, identity: Identity, pattern: str) -> Iterator[tuple[str, Plan]]:
        """Yield every queue that the caller may read, with journals and dead-letter queues.

        `pattern` matches names as in file name patterns.
        """
        operations = self.operations(identity)
        fits = name_pattern(pattern.lower())
        with self._runtime.lock:
            names = [self._name(queue) for queue in self._runtime.engine.queue_manager.queue_collection.values()]
            if self._store.has_events:
                names.append(EVENTS_NAME)
        for name in names:
            if pattern and not fits(name.lower()):
                continue
            with self._gates.of(identity):
                try:
                    source = self._open(operations, name)
                except (AccessDenied, QueueNotFound, IllegalFormatname):
                    # Names of outgoing queues come from messages. They may have characters that no
                    # client can write.
                    continue
                about = self._about(source)
            ticket = {"queue": name, "queue_id": source.identifier, "epoch": self._store.epoch}
            schema = RowSchema.select_events() if is_events(name) else RowSchema()
            yield name, Plan(schema, [ticket], source.message_count, source.total_bytes, about)

    def _name(self, queue: Queue) -> str:
        if isinstance(queue, OutgoingQueue):
            return queue.destination_format_name
        return str(self._runtime.engine.format_name_of(queue))

    @staticmethod
    def _open(operations: Operations, name: str) -> Source:
        return EventSource(operations) if is_events(name) else QueueSource(operations, name)

    def _about(self, source: Source) -> Answer:
        after, upto, horizon = source.bounds()
        return {
            "queue": source.place.queue,
            "queue_id": source.identifier,
            "queue_kind": source.place.queue_kind,
            "subqueue": source.place.subqueue,
            "is_transactional": source.is_transactional,
            "after": after,
            "upto": upto,
            "horizon": horizon,
            "messages": source.message_count,
            "bytes": source.total_bytes,
        }

    def plan(self, identity: Identity, command: bytes) -> Plan:
        """Cut the requested range into partitions of about equal size in bytes."""
        with self._gates.of(identity):
            return self._plan(identity, command)

    def _plan(self, identity: Identity, command: bytes) -> Plan:
        request = Request.parse(command, "descriptor")
        self._check_epoch(request)
        target, least = request.number("partition_bytes", PARTITION_BYTES), request.number("min_partitions", 1)
        scan = self._scan(identity, request)
        parts = scan.source.split(scan.after, scan.upto, max(target, 1))
        if least > len(parts):
            size = sum(part.bytes for part in parts)
            parts = scan.source.split(scan.after, scan.upto, max(-(-size // min(least, MAX_PARTITIONS)), 1))
        if len(parts) > MAX_PARTITIONS:
            raise InvalidParameter(f"{len(parts)} partitions, at most {MAX_PARTITIONS}: ask for bigger ones")
        size = len(json.dumps(scan.ticket)) * len(parts)
        if size > MAX_TICKETS_SIZE:
            raise InvalidParameter(
                f"{len(parts)} partitions have tickets of {size} octets together, at most {MAX_TICKETS_SIZE}: ask for "
                "bigger partitions, or with shorter conditions"
            )
        tickets = [scan.ticket | dataclasses.asdict(part) for part in parts]
        are_shared = self._share(identity, scan, tickets)
        about = self._about(scan.source) | {
            "after": scan.after,
            "upto": scan.upto,
            "lost": scan.source.lost(scan.after),
        }
        return Plan(
            scan.schema,
            tickets,
            sum(part.messages for part in parts),
            sum(part.bytes for part in parts),
            about,
            are_shared,
        )

    def _share(self, identity: Identity, scan: GrantedScan, tickets: list[Answer]) -> list[bool]:
        """Add grants for the reader processes to tickets; return which tickets got one."""
        source = scan.source
        if self._pool is None or isinstance(source, EventSource) or not self._pool.begin():
            return [False] * len(tickets)
        found = []
        room = MAX_TICKETS_SIZE
        for ticket in tickets:
            # Beyond this limit no grants are added: the queue manager itself serves those tickets.
            snapshot = source.snapshot(ticket["after"], ticket["upto"]) if room > 0 else None
            found.append(snapshot is not None)
            if snapshot is not None:
                grant = Grant(
                    identity.name,
                    self._store.epoch,
                    **dataclasses.asdict(snapshot),
                    after=ticket["after"],
                    upto=ticket["upto"],
                    place=dataclasses.asdict(source.place),
                    columns=ticket["columns"],
                    include_body=ticket["include_body"],
                    compact=ticket["compact"],
                    where=ticket["where"],
                    body_format=ticket.get("body_format"),
                    body_schema=ticket.get("body_schema"),
                )
                ticket["grant"] = self._pool.tickets.sealed(grant)
                room -= len(ticket["grant"])
        return found

    def scan(self, identity: Identity, ticket: bytes) -> GrantedScan:
        """Return the scan that a ticket allows."""
        request = Request.parse(ticket, "ticket")
        self._check_epoch(request, is_needed=True)
        # Figures of the planner. Clients compare them with what they read.
        request.number_or_none("messages")
        request.number_or_none("bytes")
        # For reader processes only. Here the rights are checked again.
        request.text_or("grant", None)
        return self._scan(identity, request)

    def _scan(self, identity: Identity, request: Request) -> GrantedScan:
        columns, include_body = request.columns("columns"), request.flag("include_body", default=True)
        is_compact = request.flag("compact", default=False)
        if is_events(request.text("queue")):
            schema = RowSchema.select_events(columns)
        else:
            schema = RowSchema.select(columns, include_body=include_body)
        schema = dataclasses.replace(schema, is_compact=is_compact)
        source = self._source(self.operations(identity), request)
        after, upto, horizon = source.bounds()
        after, upto = request.number("after", after), request.number("upto", upto)
        where = Filters.of(request.anything("where"))
        body = BodyFormat.of(request.text_or("body_format", None), request.text_or("body_schema", None))
        request.done()
        if upto > horizon:
            raise InvalidParameter(f"upto {upto}: the highest number so far is {horizon}")
        if where.all:
            after, upto = self._narrowed(where, source, after, upto)
        ticket = {
            "queue": source.place.queue,
            "queue_id": source.identifier,
            "epoch": self._store.epoch,
            "columns": columns,
            "include_body": include_body,
            "compact": is_compact,
            "where": where.to_json(),
        }
        if body is not None:
            if isinstance(source, EventSource):
                raise InvalidParameter(f"body_format: {EVENTS_NAME} has no bodies")
            ticket |= {"body_format": body.name} | ({} if body.schema is None else {"body_schema": body.schema})
        shape = Shape(where, body)
        return GrantedScan(source, after, max(after, upto), shape.schema(schema), ticket, schema, shape)

    def _narrowed(self, where: Filters, source: Source, after: int, upto: int) -> tuple[int, int]:
        """Return the part of a range that can have rows which meet the conditions."""
        if isinstance(source, EventSource):
            raise InvalidParameter(f"where: {EVENTS_NAME} supports no conditions: read whole ranges")
        if not where.allow(source.place):
            return after, after
        after, upto = where.narrowed(after, upto)
        arrived = where.arrived_from()
        if arrived is not None:
            after = min(max(after, self._marks.before(arrived // MICROSECONDS)), upto)
        return after, upto

    def _source(self, operations: Operations, request: Request) -> Source:
        """Return the queue of a request.

        Raises QueueNotAvailable if the request has the `queue_id` of an earlier queue of the same
        name.
        """
        source = self._open(operations, request.text("queue"))
        identifier = request.number_or_none("queue_id")
        if identifier is not None and identifier != source.identifier:
            raise model_errors.QueueNotAvailable(
                f"queue {source.place.queue} was deleted and created again: it is now number "
                f"{source.identifier}, not {identifier}"
            )
        return source

    # Actions
    # ----------------------------------------------------------------------------------------------

    def _info(self, operations: Operations, request: Request, client: Client) -> Answer:
        request.done()
        # Only these users can open the socket. Others do not learn the path of the data directory.
        may_read_near = self.near_socket is not None and client.user() in (0, os.geteuid())
        qm = self._runtime.engine.queue_manager
        self._store.checkpoint()
        with self._runtime.lock:
            horizon = self._store.scan_horizon
        return {
            "queue_manager": qm.computer_name,
            "queue_manager_id": str(qm.identifier),
            "user": operations.identity.name,
            "horizon": horizon,
            "near": self.near_socket if may_read_near else None,
            "takes_packets": True,
        }

    def _computers(self, operations: Operations, request: Request, _: Client) -> Answer:
        request.done()
        if operations.identity.is_anonymous:
            raise AccessDenied("the computers in the directory are shown to those who have logged on")
        with read_apart(self._runtime.engine) as directory:
            found = survey(directory).computers
        return {"computers": [{"name": one.name, "address": one.qualified_computer_name} for one in found]}

    def _bounds(self, operations: Operations, request: Request, _: Client) -> Answer:
        source = self._source(operations, request)
        request.done()
        return self._about(source)

    def _position(self, operations: Operations, request: Request, _: Client) -> Answer:
        source = self._source(operations, request)
        time_ms = request.number("time_ms")
        request.done()
        if isinstance(source, EventSource):
            raise InvalidParameter(f"position: {EVENTS_NAME} has no times to search by: use the numbers of events")
        after, upto, horizon = source.bounds()
        after = min(max(after, self._marks.before(time_ms // 1000)), horizon)
        for batch in source.batches(after, upto, RowSchema.select(("seq", "arrived_time"))):
            found = pc.index(
                pc.greater_equal(batch.column(1).view(pa.int64()), time_ms * 1000), pa.scalar(True)
            ).as_py()
            if found >= 0:
                return {"after": batch.column(0)[found].as_py() - 1}
        return {"after": horizon}

    def _measure(self, operations: Operations, request: Request, _: Client) -> Answer:
        source, after, found = self._measured(operations, request)
        upto = request.number_or_none("upto")
        request.done()
        part = found(upto)
        behind = self._behind(source, part)
        if request.has("max_bytes"):
            # Only a batch of a stream has a limit in bytes; a batch read has none and is not
            # recorded.
            self._note_lag(operations, source, behind)
        more = {"lost": source.lost(after), "expiries": self._expiries(), **behind}
        return self._about(source) | dataclasses.asdict(part) | more

    def _measured(self, operations: Operations, request: Request) -> tuple[Source, int, Callable[[int | None], Range]]:
        source = self._source(operations, request)
        after = request.number("after", 0)
        most, size = request.number("max_messages", MAX_MEASURED), request.number_or_none("max_bytes")

        def measure(upto: int | None) -> Range:
            horizon = source.horizon
            upto = horizon if upto is None else min(upto, horizon)
            return source.measure(after, upto, max_messages=most, max_bytes=size)

        return source, after, measure

    def _poll(self, operations: Operations, request: Request, client: Client) -> Answer:
        wait = request.number("timeout_ms", 0)
        if wait > MAX_WAIT:
            raise request.wrong("timeout_ms", f"0 to {MAX_WAIT}")
        wanted = request.objects("queues")
        if len(wanted) > MAX_POLLED_QUEUES:
            raise InvalidParameter(f"{len(wanted)} queues, at most {MAX_POLLED_QUEUES} in one call")
        gate = self._gates.of(operations.identity)
        queues = []
        with gate:
            for one in wanted:
                queues.append(self._measured(operations, one))
                one.done()
        request.done()

        expiries = self._expiries()

        def look() -> list[Range] | None:
            nonlocal expiries
            with gate:
                expiries = self._expiries()
                found = [measure(None) for _, _, measure in queues]
            return found if any(part.messages for part in found) else None

        # Without messages a reader stays where it is. Its offset does not change, so Spark runs no
        # batch.
        nothing = [Range(after, after, 0, 0) for _, after, _ in queues]
        ranges = self._arrivals.wait(look, wait / 1000, client.is_gone) or nothing
        answers = []
        for (source, _, _), part, none in zip(queues, ranges, nothing, strict=True):
            found = part if part.messages else none
            behind = self._behind(source, found)
            self._note_lag(operations, source, behind)
            answers.append(
                {
                    "queue": source.place.queue,
                    "queue_id": source.identifier,
                    "backlog_messages": source.message_count,
                    "backlog_bytes": source.total_bytes,
                    "lost": source.lost(part.after),
                    "expiries": expiries,
                    **dataclasses.asdict(found),
                    **behind,
                }
            )
        return {"queues": answers}

    def _note_lag(self, operations: Operations, source: Source, behind: Answer) -> None:
        """Record for the metrics how far a stream is behind."""
        queue = source.place.queue or ""
        lag = Lag(operations.identity.name, queue, behind["behind_messages"], behind["behind_bytes"])
        self._runtime.stream_lags.note(lag)

    @staticmethod
    def _behind(source: Source, part: Range) -> Answer:
        """Return what the queue has after a range, up to now: the lag of a reader of that range."""
        rest = source.measure(part.upto, max(source.horizon, part.upto), max_messages=MAX_MEASURED)
        return {"behind_messages": rest.messages, "behind_bytes": rest.bytes}

    def _acquire(self, operations: Operations, request: Request, _: Client) -> Answer:
        mode = request.text_or("mode", "receive")
        if mode not in ("receive", "peek"):
            raise request.wrong("mode", "receive or peek")
        arguments: dict[str, Any] = {
            "start": request.text_or_number("start", "earliest"),
            "is_receiver": mode == "receive",
            "lease_ms": request.number("lease_ms", DEFAULT_LEASE),
            "take_over": request.flag("take_over", default=False),
        }
        queue, reader = request.text("queue"), request.text("reader")
        source = self._source(operations, request)
        request.done()
        if is_events(queue):
            if arguments["is_receiver"]:
                raise request.wrong("mode", f"peek: messages cannot be received from {EVENTS_NAME}")
            horizon = source.bounds()[2]
            return _lease(self._readers.remember(operations, EVENTS_NUMBER, reader, arguments["start"], horizon))
        return _lease(self._readers.acquire(operations, queue, reader, **arguments))

    def _reader(self, operations: Operations, request: Request) -> tuple[Operations, str, str, int]:
        queue, reader, fence = request.text("queue"), request.text("reader"), request.number("fence")
        request.number_or_none("queue_id")
        request.done()
        return operations, queue, reader, fence

    def _renew(self, operations: Operations, request: Request, _: Client) -> Answer:
        return _lease(self._readers.renew(*self._reader(operations, request)))

    def _release(self, operations: Operations, request: Request, _: Client) -> Answer:
        self._readers.release(*self._reader(operations, request))
        return {}

    def _forget(self, operations: Operations, request: Request, _: Client) -> Answer:
        queue, reader = request.text("queue"), request.text("reader")
        request.done()
        if is_events(queue):
            return {"forgotten": self._readers.forget_place(operations, EVENTS_NUMBER, reader)}
        return {"forgotten": self._readers.forget(operations, queue, reader)}

    def _hold(self, operations: Operations, request: Request, _: Client) -> Answer:
        self._check_epoch(request, is_needed=True)
        upto = request.number("upto")
        self._readers.hold(*self._reader(operations, request), upto)
        return {"expiries": self._expiries()}

    def _expiries(self) -> str:
        """Return a token that changes on every expiry.

        If it is unchanged after a count, no message expired meanwhile.
        """
        return f"{self._life}-{self._runtime.engine.expiries}"

    def _acknowledge(self, operations: Operations, request: Request, _: Client) -> Answer:
        # A number of another epoch would remove other messages.
        self._check_epoch(request, is_needed=True)
        upto = request.number("upto")
        return dataclasses.asdict(self._readers.acknowledge(*self._reader(operations, request), upto))

    # Writing
    # ----------------------------------------------------------------------------------------------

    def stage(self, identity: Identity, command: bytes, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
        """Write the batches of a stream under a token."""
        request = Request.parse(command, "descriptor")
        self._check_epoch(request)
        token, writer, batch = request.octets("token"), request.text("writer"), request.number("batch", 0)
        queue = request.text_or("queue", None)
        request.done()
        contents = self._writes.stage(self.operations(identity), token, writer, batch, queue, schema, batches)
        return self.answer({"token": token.hex(), **_contents(contents)})

    def _destination(self, operations: Operations, request: Request, _: Client) -> Answer:
        name = request.text("queue")
        request.done()
        engine = self._runtime.engine
        with self._runtime.change() as change:
            handle = operations.open(operations.names.format_name(name), QueueAccessType.SEND)
            try:
                sender, is_transactional = engine.stage_terms(handle)
            finally:
                engine.close_queue(handle)
        change.soon()
        return {
            "format_name": handle.format_name,
            "sender": sender.hex(),
            "is_transactional": is_transactional,
            "queue_manager_id": str(engine.queue_manager.identifier),
        }

    def _publish(self, operations: Operations, request: Request, _: Client) -> Answer:
        writer, batch, tokens = request.text("writer"), request.number("batch", 0), request.octets_list("tokens")
        keep = request.number_or_none("keep_seconds")
        request.done()
        done = self._writes.publish(operations, writer, batch, tokens, keep=keep)
        return {"is_new": done.is_new, **_contents(done.contents)}

    def _drop(self, operations: Operations, request: Request, _: Client) -> Answer:
        if request.has("tokens"):
            tokens = request.octets_list("tokens")
            request.done()
            return {"dropped": self._writes.drop(operations, tokens)}
        writer, batch = request.text("writer"), request.number("batch", 0)
        request.done()
        return {"dropped": self._writes.drop_batch(operations, writer, batch)}

    def _published(self, operations: Operations, request: Request, _: Client) -> Answer:
        writer = request.text("writer")
        request.done()
        found = self._writes.last_published(operations, writer)
        return {"batch": None} if found is None else {"batch": found[0], **_contents(found[1])}


def _lease(lease: Lease) -> Answer:
    return dataclasses.asdict(lease)


def _contents(contents: Contents) -> Answer:
    return {"messages": contents.messages, "bytes": contents.bytes, "digest": f"{contents.digest:016x}"}
