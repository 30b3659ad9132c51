r"""The Arrow Flight service of a queue manager: queues as streams of Arrow batches, both ways.

This docstring is the reference of the protocol; `client` implements it for Python programs.
Requests, tickets and answers are JSON objects in UTF-8. A request with an unknown key is refused. A
queue can be named in any spelling (`orders`, `.\private$\orders`, `DIRECT=OS:...`, `...;journal`,
`system$;DEADLETTER`, `orders;retry`).

**Positions.** Each message gets a number, `seq`, in the commit that makes it visible. The numbers
come from one sequence for the whole queue manager. A range is (after, upto]: the numbers above
`after`, up to and including `upto`. No new message gets a number up to the `horizon`. The numbers
are valid within an `epoch`, which changes when a store is restored from a backup. Every answer has
`epoch`. Every request may have it; tickets and `acknowledge` must. A wrong epoch is refused
(EpochChanged). `queue_id` is the number of a queue: a request that has it is refused if the queue
was deleted and created again since.

**Authentication.** Basic authentication with a user of the account file, in the header
`authorization` or by the handshake (`authenticate_basic_token`). The answer has a token (`Bearer`),
which is valid for 12 hours after its last use. A call without either is refused, unless
`flight.allow_anonymous` allows anonymous callers. The queue's access list grants the rights: peek
to scan, receive for a reader, send to stage. ListFlights shows the queues that the caller may peek.

**Errors** are Flight errors whose `extra_info` is {"error": class, "status": HRESULT or null,
"message": text}. FlightUnauthenticatedError: the caller is not authenticated;
FlightUnauthorizedError: AccessDenied; FlightUnavailableError: try again later; FlightServerError:
everything else.

**Events.** If a queue manager records what happens to messages, its event log is listed as
`system$;EVENTS` with the kind `events`. It is read like a queue, with these differences: positions
are the numbers of events, rows have columns of their own (`schema.EVENT_COLUMNS`), a reader can
only peek, and a user who may peek `system$;JOURNAL` may read it. `lost` is the count of numbers
after `after` that were dropped because of their age.

Reading
-------
ListFlights, criteria = nothing, or a pattern for the name such as `*orders*`
    One FlightInfo per queue, with journals, dead-letter and outgoing queues. Its descriptor is a
    path of one element, the name. `app_metadata`: {queue, queue_id, queue_kind, subqueue,
    is_transactional, after, upto, horizon, messages, bytes}.
GetFlightInfo, GetSchema; descriptor = a path of one element, the name; or a command:
    {queue, [queue_id], [epoch], [after], [upto], [columns], [include_body], [where], [body_format],
    [body_schema], [compact = false], [partition_bytes = 33554432], [min_partitions = 1]}

    `columns`: "all" (default), "core", or names, as a list or separated by commas (see `schema`).
    `after`, `upto`: the default is everything visible now.
    `compact`: columns whose values mostly repeat are run-end encoded, for clients that support
    it; this sends a third less.
    `where`: conditions on rows (`columnar.filters`). Conditions on `seq`, and a lower bound of
    `arrived_time`, limit the range that is read.
    `body_format`, `body_schema`: a last column, `value`, has the decoded bodies
    (`columnar.values`).

    The answer has one endpoint per partition, cut by bytes. Each ticket has the planned `messages`
    and `bytes`. `app_metadata` is as above, with `after` and `upto` of the whole range.

    If the queue manager has reader processes, endpoints have two locations: a reader process and
    this service. A reader process accepts the ticket without `authorization`, for 15 minutes, and
    its `after` may be raised. To read an older ticket's range there, plan it again. Each of its
    batches has metadata: the number that the stream has reached, from which another stream can
    continue. Messages outside the database, mainly express messages, are served by this service
    only.
DoGet, ticket = {queue, queue_id, epoch, columns, include_body, where, compact, after, upto,
messages, bytes, [body_format], [body_schema], [grant]}; only queue and epoch are required
    Batches of about 16 MiB, ordered by seq. Messages that were received, purged or expired since
    planning are missing, and so is a message that another client is receiving. A message that
    cannot be decoded is a row with `packet` and `packet_error`.

Actions
-------
info        {} -> {queue_manager, queue_manager_id, user, horizon, near, takes_packets}
            `takes_packets`: DoPut accepts packets, too. `near`: a Unix socket at which programs of
            the same user on the same machine get, through shared memory, the packets that DoGet
            makes batches of (`near_streams`). Null for other callers.
computers   {} -> {computers: [{name, address}, ...]}
            those in the directory of the queue manager; not for anonymous callers
bounds      {queue, [queue_id]} -> as app_metadata of ListFlights
position    {queue, time_ms} -> {after}
            the number before the first message that arrived at `time_ms` or later, in milliseconds
            since 1970
measure     {queue, [after = 0], [upto], [max_messages], [max_bytes]} -> as bounds, with the range
            {after, upto, messages, bytes} that keeps to the limits: at least one message, if there
            is one. {behind_messages, behind_bytes} count what comes after the range, at most a
            million messages.
poll        {queues: [{queue, after, [max_messages], [max_bytes]}, ...],
            [timeout_ms = 0, at most 60000]}
            -> {queues: [{queue, queue_id, after, upto, messages, bytes, backlog_messages,
            backlog_bytes, behind_messages, behind_bytes, lost}, ...]}
            answers as soon as one of the queues has messages after its number. Without new
            messages upto = after.
acquire     {queue, reader, [mode = "receive" | "peek"], [start = "earliest" | "latest" | number],
            [lease_ms = 30000], [take_over = false]}
            -> {queue_id, fence, start, acknowledged, lease_ms}
            `start` counts the first time only; later calls get the start that is stored under the
            reader's name. A receiving reader has the queue to itself: LeaseHeld if another client
            has the lease of this name, SharingViolation if other clients have the queue open to
            receive. `take_over` ends another lease of this name. A peeking reader has no lease; it
            only keeps `start`.
renew       {queue, reader, fence} -> as acquire
            LeaseLost: another fence is valid now, or another client receives.
hold        {queue, reader, fence, upto, epoch} -> {expiries}
            While the reader has its lease, no unacknowledged message up to `upto` expires; after a
            restart of the queue manager this holds for one lease term. A purge fails while a reader
            has the queue to itself. So the planned messages exist until they are acknowledged.
            `poll` and `measure` have `expiries`, too: if it differs here, messages expired in
            between, and the count must be repeated. Renews the lease.
acknowledge {queue, reader, fence, upto, epoch} -> {removed, acknowledged}
            receives everything in (start, upto]; journaling and acknowledgments happen as for any
            receive. It works in slices, each one commit with the reader's mark, and is idempotent.
            Renews the lease.
release     {queue, reader, fence} -> {}
            The position of the reader is kept.
forget      {queue, reader} -> {forgotten}
destination {queue} -> {format_name, sender, is_transactional, queue_manager_id}
            what packets for a queue must state: the SID of their sender in hexadecimal (empty for
            none), and whether they have a TransactionHeader
publish     {writer, batch, tokens, [keep_seconds]} -> {is_new, messages, bytes, digest}
            One commit; all other tokens of the batch are dropped. The batch numbers of a writer
            increase: a batch that is not above the last is already published (is_new = false). The
            last batch with other messages than before is refused (PublicationDiffers). The record
            is kept for ever, or for `keep_seconds`. Writer names belong to the user: two users can
            have the same name.
drop        {tokens} or {writer, batch} -> {dropped}
published   {writer} -> {batch or null, messages, bytes, digest}

Writing
-------
DoPut, descriptor = a command {token, writer, batch, [queue], [epoch]}
    `token`: 1 to 64 random bytes in hexadecimal, new for each attempt. `writer`: a streaming query
    or a job. `batch`: its number. Columns: `body` and those that `schema` calls settable; `queue`
    (or `dest_format_name`) per row, or the key `queue` for all rows. The messages become
    recoverable, and transactional if the queue is; they are in no queue before `publish`. At the
    end the writer sends the metadata {messages}, the number of rows. Without it the stream broke
    off, and nothing of it is kept. The service answers with metadata {token, messages, bytes,
    digest} once everything is on disk. Messages that are not published are dropped after a day.

    Instead of rows, the writer can send packets that it has built: a column `packet`, and `queue`
    if they go to several queues. A packet is addressed to the `format_name` of its queue, is
    recoverable, not signed, encrypted or traced, and names the `sender`. In a transactional queue
    it is a transaction of its own. The service overwrites source, identifier, sent time and the
    number of the transaction. It refuses any other packet that a program could not send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.flight as fl

from lanner.host.accepting import listen_tcp
from lanner.host.budget import Budget, Door, Resource, Usage
from lanner.host.runtime import Runtime
from lanner.model.errors import InvalidParameter, ServiceNotAvailable
from lanner.rpc.unix_path import short_path
from lanner.security.identity import Identity
from lanner.security.logons import Logons
from lanner.spark.columnar.packet_source import PacketBatch, PacketSource, Place
from lanner.spark.columnar.vectors import Room
from lanner.spark.flight.auth import MAX_LOGONS, NEAR, Callers, NoHandshake, Tokens, admitted
from lanner.spark.flight.courtesy import cpu_of
from lanner.spark.flight.errors import TooBusy
from lanner.spark.flight.front import Front, tls_context
from lanner.spark.flight.near_server import NearServer
from lanner.spark.flight.near_streams import SLOTS
from lanner.spark.flight.reader_pool import ReaderPool
from lanner.spark.flight.refusals import told
from lanner.spark.flight.requests import Request
from lanner.spark.flight.service import Client, Plan, Service
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.streams import Streams

_LOG = logging.getLogger(__name__)

# Not in the specification: a stream beside a busy event loop rests this many times the CPU time
# that making a batch took. Consuming a batch costs far more than making it, and the consumer mostly
# runs on the same machine. A consumer of packets also decodes them, so near streams rest longer.
NEAR_RESTS = 160.0
FAR_RESTS = 80.0
# The location of Flight that means this service itself.
SAME = "arrow-flight-reuse-connection://?"
# The name, in the data directory, of the socket at which gRPC listens. Only this process uses it.
SOCKET = "flight.sock"
# Not in the specification: the shares of all descriptors that are reserved for the port and for
# `streams.sock`. DESCRIPTORS and NEAR_DESCRIPTORS are those of one connection: three sockets for
# the port; a socket and its memory for `streams.sock`.
SHARE, NEAR_SHARE = 0.06, 0.04
DESCRIPTORS, NEAR_DESCRIPTORS = 3, 1 + SLOTS
# Not in the specification: seconds that `stop` waits for running calls.
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Counted:
    """A packet source that counts as one of the streams while it is read."""

    source: PacketSource
    streams: Streams
    user: str

    @property
    def place(self) -> Place:
        return self.source.place

    def packet_batches(self, room: Room) -> Generator[PacketBatch, None, None]:
        # The client is a program of the service's own user, or of root: its connection is never
        # closed.
        return self.streams.run(self.user, self.source.packet_batches(room), NEAR_RESTS, lambda: None)


class FlightServer(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """The service at one address, from its construction to `shutdown`.

    The threads of gRPC call its methods.
    """

    def __init__(
        self,
        address: str,
        service: Service,
        tokens: Tokens,
        streams: Streams,
        calls: Resource,
        *,
        allow_anonymous: bool = False,
    ) -> None:
        """Listen at `address`, a Unix socket behind `Front`. `calls` limits running calls."""
        self._service = service
        self._allow_anonymous = allow_anonymous
        self._stopping = threading.Event()
        self._streams = streams
        self._calls = calls
        self.front: Front | None = None
        # Returns the address of the reader processes at a host, if there are any.
        self.reader_address: Callable[[str], str] | None = None
        super().__init__(address, auth_handler=NoHandshake(), middleware={"caller": Callers(tokens)})

    @contextlib.contextmanager
    def _call(self, context: fl.ServerCallContext) -> Iterator[Identity]:
        """Run a call of a user. Raises TooBusy if too many run, in total or for this user.

        Until its user has logged on, a call counts for the address, where other users may be too.
        """
        peer = self._peer(context)
        with told(peer):
            with self._counted(peer):
                caller = self._caller(context, peer)
            with self._counted(peer if caller.is_anonymous else f"user {caller.name}"):
                yield caller

    @contextlib.contextmanager
    def _counted(self, whose: str) -> Iterator[None]:
        if not self._calls.take(whose):
            raise TooBusy("too many calls at a time: try again when others have ended")
        try:
            yield
        finally:
            self._calls.give_back(whose)

    def _caller(self, context: fl.ServerCallContext, peer: str) -> Identity:
        identity: Identity = context.get_middleware("caller").identity(peer)
        if self.front is not None and not identity.is_anonymous:
            self.front.logged_on(context.peer(), identity.name)
        return admitted(identity, allow_anonymous=self._allow_anonymous).at(f"Arrow Flight {peer}")

    def _peer(self, context: fl.ServerCallContext) -> str:
        return "" if self.front is None else self.front.peer(context.peer())

    def _hang_up(self, context: fl.ServerCallContext) -> Callable[[], None]:
        """Return a function that closes the connection of a call."""
        front = self.front
        return (lambda: None) if front is None else partial(front.hang_up, context.peer())

    def _user(self, grpc_peer: str) -> int | None:
        return None if self.front is None else self.front.user(grpc_peer)

    def _until_stopped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if self._stopping.is_set():
                raise ServiceNotAvailable("the queue manager is stopping")
            yield batch

    def stop(self, timeout: float) -> bool:
        """Stop, and wait up to `timeout` seconds for running calls.

        Returns False if a caller still holds a stream that it does not read. That stream ends when
        the caller reads on, or with the process.
        """
        self._stopping.set()
        # `shutdown` has no time limit: it returns when all calls have ended.
        waiting = threading.Thread(target=self.shutdown, name="lanner-flight-stop", daemon=True)
        waiting.start()
        waiting.join(timeout)
        return not waiting.is_alive()

    # Reading

    def list_flights(self, context: fl.ServerCallContext, criteria: bytes) -> Iterator[fl.FlightInfo]:
        with self._call(context) as caller:
            pattern = bytes(criteria).decode("utf-8", "replace")
            found = list(self._service.queues(caller, pattern))
        return iter([self._info(fl.FlightDescriptor.for_path(name), plan) for name, plan in found])

    def get_flight_info(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.FlightInfo:
        with self._call(context) as caller:
            plan = self._service.plan(caller, _command(descriptor))
            return self._info(descriptor, plan, self._readers(context))

    def get_schema(self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor) -> fl.SchemaResult:
        with self._call(context) as caller:
            return fl.SchemaResult(self._service.plan(caller, _command(descriptor)).schema.arrow)

    def _readers(self, context: fl.ServerCallContext) -> str | None:
        """Return the address of the reader processes, at the host that the client uses."""
        host = None if self.front is None else self.front.host(context.peer())
        return None if host is None or self.reader_address is None else self.reader_address(host)

    def _info(self, descriptor: fl.FlightDescriptor, plan: Plan, readers: str | None = None) -> fl.FlightInfo:
        shared = [] if readers is None else [readers, SAME]
        endpoints = [
            fl.FlightEndpoint(json.dumps(ticket, sort_keys=True).encode(), shared if is_shared else [])
            for ticket, is_shared in zip_longest(plan.tickets, plan.are_shared, fillvalue=False)
        ]
        return fl.FlightInfo(
            plan.schema.arrow,
            descriptor,
            endpoints,
            plan.messages,
            plan.bytes,
            ordered=True,
            app_metadata=self._service.answer(plan.about),
        )

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        with self._call(context) as caller:
            scan = self._service.scan(caller, ticket.ticket)
            hang_up = self._hang_up(context)

        def batches() -> Iterator[pa.RecordBatch]:
            with told():
                yield from self._until_stopped(self._streams.run(caller.name, scan.batches(), FAR_RESTS, hang_up))

        return fl.GeneratorStream(scan.schema.arrow, batches())

    # Writing

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        with self._call(context) as caller:
            if descriptor.descriptor_type != fl.DescriptorType.CMD:
                raise InvalidParameter("messages are put under a command: {token, writer, batch, queue}")
            with self._streams.one(caller.name, self._hang_up(context)) as running:
                batches = self._until_stopped(running.watched(_to_the_end(reader)))
                answer = self._service.stage(caller, descriptor.command, reader.schema, batches)
                writer.write(pa.py_buffer(answer))

    # Actions

    def list_actions(self, context: fl.ServerCallContext) -> list[fl.ActionType]:
        with self._call(context):
            pass
        return [fl.ActionType(name, text) for name, (_, text) in self._service.actions.items()]

    def do_action(self, context: fl.ServerCallContext, action: fl.Action) -> list[fl.Result]:
        with self._call(context) as caller:
            body = action.body.to_pybytes()
            client = Client(context.is_cancelled, partial(self._user, context.peer()))
            answer = self._service.act(caller, action.type, body, client)
        return [fl.Result(answer)]


@contextlib.contextmanager
def _private_files() -> Iterator[None]:
    """Create files that only this user can access.

    Otherwise other users could connect to the socket of gRPC before its mode is changed.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _to_the_end(reader: fl.MetadataRecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream that states at its end how many rows it has.

    A stream whose sender failed ends like any other: only this count shows that it is complete.
    """
    rows = 0
    end: int | None = None
    for chunk in reader:
        if chunk.app_metadata is not None:
            request = Request.parse(chunk.app_metadata.to_pybytes(), "metadata at the end of the stream")
            end = request.number("messages")
            request.done()
        if chunk.data is not None:
            _check_batch(chunk.data)
            rows += len(chunk.data)
            yield chunk.data
    if end != rows:
        told = "does not say that it is whole" if end is None else f"should have {end}"
        raise InvalidParameter(f"the stream has {rows} rows and {told}: it broke off, and nothing of it is kept")


def _check_batch(batch: pa.RecordBatch) -> None:
    """Refuse a batch whose offsets or lengths point outside its own data.

    Arrow does not check them when it reads a stream: values could expose memory of this process.
    """
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise InvalidParameter(f"a record batch is damaged: {error}") from None


def _command(descriptor: fl.FlightDescriptor) -> bytes:
    if descriptor.descriptor_type == fl.DescriptorType.CMD:
        return bytes(descriptor.command)
    if len(descriptor.path) != 1:
        raise InvalidParameter("a descriptor is a command, or a path of one element: the name of a queue")
    return json.dumps({"queue": descriptor.path[0].decode("utf-8", "replace")}).encode()


class FlightListener:
    """The Flight service as a listener of the daemon; also a context manager for programs."""

    name = "flight"

    def __init__(
        self,
        runtime: Runtime,
        settings: FlightSettings | None = None,
        logons: Logons | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._runtime = runtime
        self._logons = logons
        self._settings = settings or FlightSettings()
        self._budget = budget or Budget()
        self._front: Front | None = None
        self._service: Service | None = None
        self._server: FlightServer | None = None
        self._near: NearServer | None = None
        self._pool: ReaderPool | None = None
        self._tokens: Tokens | None = None
        self._loop_cpu: Callable[[], float] | None = None
        # Whether a stream outlived `close`, with its thread of gRPC.
        self.has_stuck_stream = False
        self.address = self._settings.address(self._settings.port)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start to listen. Raises OSError if that is not possible."""
        settings, budget = self._settings, self._budget
        tls = tls_context(settings)
        listening = listen_tcp(settings.bind, settings.port)
        backend = self._runtime.path.resolve() / SOCKET
        try:
            pool = ReaderPool(self._runtime.path, self._runtime.store, settings) if settings.processes else None
            service = Service(self._runtime, settings, pool)
        except BaseException:
            listening.close()
            raise
        if pool is not None:
            budget.show("flight reader streams", lambda: pool.usage("streams", settings.max_streams))
            budget.show("flight reader connections", lambda: pool.usage("connections", settings.max_connections))
        under_way = budget.add(Resource("flight logons at a time", MAX_LOGONS))
        tokens = Tokens(self._runtime.users, self._logons, self._runtime.engine.audit, under_way)
        streams = Streams(settings.max_streams, self._loop_cpu)
        budget.show("flight streams", lambda: Usage("flight streams", streams.count, settings.max_streams))
        calls = budget.add(Resource("flight calls", settings.max_calls, max(settings.max_calls // 2, 1)))
        try:
            backend.unlink(missing_ok=True)
            with short_path(backend) as short, _private_files():
                server = FlightServer(
                    f"grpc+unix://{short}", service, tokens, streams, calls, allow_anonymous=settings.allow_anonymous
                )
        except BaseException as error:
            listening.close()
            service.close()
            if pool is not None:
                pool.stop()
            if isinstance(error, pa.ArrowException):
                raise OSError(None, str(error)) from None
            raise
        door = Door(
            budget,
            "flight",
            limit=settings.max_connections,
            per_peer=settings.max_connections_per_peer,
            share=SHARE,
            cost=DESCRIPTORS,
        )
        self._front = server.front = Front(
            listening, backend, door, tls, budget=budget, max_message=settings.max_message_mb << 20
        )
        if pool is not None:
            server.reader_address = lambda host: settings.address(pool.port, host)
        self._service, self._server, self._tokens, self._pool = service, server, tokens, pool
        self.address = settings.address(self._front.port)
        try:

            def messages(authorization: str | None, ticket: bytes) -> PacketSource:
                caller = admitted(tokens.bearer(authorization, NEAR), allow_anonymous=settings.allow_anonymous)
                return _Counted(service.scan(caller, ticket).packets(), streams, caller.name)

            identifier = str(self._runtime.engine.queue_manager.identifier)
            door = Door(budget, "streams", limit=settings.max_streams, share=NEAR_SHARE, cost=NEAR_DESCRIPTORS)
            self._near = NearServer(self._runtime.path, identifier, messages, door)
        except OSError as error:
            # For example, the file system does not support sockets. The port still works.
            _LOG.warning("no streams through memory: %s", error)
        else:
            service.near_socket = str(self._near.path)

    def close(self) -> None:
        """End waiting calls, wait for running ones, and release the leases of all readers."""
        server, self._server = self._server, None
        near, self._near = self._near, None
        service, self._service = self._service, None
        pool, self._pool = self._pool, None
        front, self._front = self._front, None
        if server is not None and service is not None:
            service.stop_waiting()
            if pool is not None:
                pool.stop()
            if self._tokens is not None:
                self._tokens.stop_waiting()
            ended = near is None or near.stop(STOP_SECONDS)
            if not (server.stop(STOP_SECONDS) and ended):
                _LOG.warning("a Flight stream is still open: its reader does not read; continuing without it")
                self.has_stuck_stream = True
            if front is not None:
                front.stop()
            (self._runtime.path / SOCKET).unlink(missing_ok=True)
            service.close()

    async def start(self) -> None:
        """Start to listen beside an event loop, whose work takes precedence."""
        self._loop_cpu = cpu_of(threading.get_ident())
        await asyncio.to_thread(self.open)

    async def stop(self) -> None:
        await asyncio.to_thread(self.close)
