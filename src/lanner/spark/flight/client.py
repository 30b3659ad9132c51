"""A client of the Flight service for Python programs: the protocol of `server` as methods.

    with FlightQueues("grpc://127.0.0.1:1810", user="alice", password="...") as queues:
        table = queues.table("orders", columns="core")

It needs pyarrow, but no queue manager in the process. Errors of the service are raised as the
classes it names: QueueNotFound, AccessDenied, LeaseLost, EpochChanged and so on. Threads may share
a connection. A connection cannot be pickled: create it where it is used.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import secrets
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl

from lanner.model import errors as model_errors
from lanner.model.errors import InvalidParameter, LannerError, ServiceNotAvailable
from lanner.spark.columnar.event_names import is_events
from lanner.spark.columnar.expansion import Expansion, plain
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.flight import errors as pipeline_errors
from lanner.spark.flight.errors import EpochChanged, NotAuthenticated, TicketRefused, TooBusy
from lanner.spark.flight.requests import Request

if TYPE_CHECKING:
    from lanner.spark.columnar.packing import Destination, PacketEncoder
    from lanner.spark.flight.near_streams import NearReader

_LOG: Final = logging.getLogger(__name__)

DEFAULT_ADDRESS: Final = "grpc://127.0.0.1:1810"

# Not in the specification: octets of a ticket. A longer one is read through the port.
MAX_TICKET: Final = 1 << 15
# Not in the specification: octets of a record batch in a write; larger ones are split.
_MAX_PIECE: Final = 4 << 20

# Not in the specification: seconds within which a queue manager must answer. Otherwise it counts
# as down: its process hangs, or its computer has lost its power.
PATIENCE: Final = 60.0
# Actions that may take as long as they need, because there may be much to do.
_LONG: Final = frozenset({"position", "acknowledge", "publish", "drop"})
# Not in the specification: milliseconds. `time`: between gRPC's checks of a connection on which a
# call waits; a gRPC server allows no shorter interval. `timeout`: how long sent data may stay
# unacknowledged before the kernel ends the connection.
_CHANNEL: Final = (("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000))

# What the planner adds to a request to make a ticket of it, and a size that no partition exceeds.
_ADDED: Final = frozenset({"messages", "bytes", "grant"})
_WHOLE: Final = 1 << 62

Answer = dict[str, Any]


class FlightFailed(LannerError):
    """The service failed, or its answer is not valid."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The part of a queue that one stream reads: pass `ticket` to `read`, in any process."""

    ticket: bytes
    after: int
    upto: int
    messages: int  # planned
    bytes: int
    # Addresses of the reader processes that serve the stream too.
    locations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A range of a queue and its partitions. `about` is the metadata of the service."""

    schema: pa.Schema
    partitions: list[Partition]
    about: Answer


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts small enough for any setting of `flight.max_message_mb`."""
    if batch.nbytes <= _MAX_PIECE or len(batch) <= 1:
        yield batch
        return
    half = len(batch) // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


class FlightQueues:
    """A connection to one queue manager."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        user: str | None = None,
        password: str | None = None,
        tls_roots: bytes | Path | None = None,
    ) -> None:
        """Connect to `address`, anonymously unless `user` is given.

        `tls_roots`: the certificate authorities for a grpc+tls address, in PEM.
        """
        self.address = address
        self._is_near = _is_near(address)
        roots = tls_roots.read_bytes() if isinstance(tls_roots, Path) else tls_roots
        self._tls = {} if roots is None else {"tls_root_certs": roots}
        self._client = fl.FlightClient(address, generic_options=_CHANNEL, **self._tls)
        self._readers: dict[str, fl.FlightClient] = {}
        self._authorization: str | None = None
        self._near: tuple[Path, str] | None = None  # the socket and its queue manager
        self._about: Answer | None = None  # the answer to `info`, requested once by a writer
        self._idle: list[NearReader] = []
        self._credentials = None if user is None else (user, password or "")
        self._headers: list[tuple[bytes, bytes]] = []
        self._options = fl.FlightCallOptions()
        try:
            self._log_on()
        except BaseException:
            self._client.close()
            raise

    def _log_on(self) -> None:
        if self._credentials is None:
            return
        try:
            header = self._client.authenticate_basic_token(*self._credentials, self._soon())
        except pa.ArrowException as error:
            named = _named(self.address, error)
            if isinstance(named, FlightFailed):
                # This is how a handshake ends if no server answers.
                named = ServiceNotAvailable(
                    f"no queue manager answers at {self.address}: is it running, is flight.enabled set, does it "
                    "require grpc+tls?"
                )
            raise named from None
        # A refused handshake returns an empty header, and raises no error.
        if not header[1]:
            raise NotAuthenticated(f"user or password is not right: user {self._credentials[0]} at {self.address}")
        self._headers = [header]
        self._options = fl.FlightCallOptions(headers=self._headers)
        self._authorization = header[1].decode()

    def _soon(self, wait: float = 0) -> fl.FlightCallOptions:
        """Return the options of a call that is answered soon, or after it has waited for a time."""
        return fl.FlightCallOptions(timeout=PATIENCE + wait, headers=self._headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()
        for client in self._readers.values():
            client.close()
        while self._idle:
            self._idle.pop().close()

    # Reading
    # ----------------------------------------------------------------------------------------------

    def queues(self, pattern: str = "") -> list[Answer]:
        """Return the metadata of all queues that the caller may read."""
        with _raised(self.address):
            infos = list(self._client.list_flights(pattern.encode(), self._soon()))
        return [json.loads(info.app_metadata) for info in infos]

    def plan(self, queue: str, **options: object) -> Plan:
        """Cut a queue, or a range of it, into partitions.

        Options: after, upto, columns, include_body, partition_bytes, min_partitions.
        """
        descriptor = fl.FlightDescriptor.for_command(_dump({"queue": queue, "compact": True, **options}))
        with _raised(self.address):
            info = self._client.get_flight_info(descriptor, self._options)
        partitions = []
        for endpoint in info.endpoints:
            ticket = json.loads(endpoint.ticket.ticket)
            after, upto, messages, size = (ticket[name] for name in ("after", "upto", "messages", "bytes"))
            found = Partition(endpoint.ticket.ticket, after, upto, messages, size, self._locations(endpoint))
            partitions.append(found)
        return Plan(plain(info.schema), partitions, json.loads(info.app_metadata))

    def _locations(self, endpoint: fl.FlightEndpoint) -> tuple[str, ...]:
        """Return the addresses of the reader processes.

        They have the host of this connection, because that is reachable and its name is verified.
        """
        own = urlsplit(self.address)
        host = f"[{own.hostname}]" if ":" in (own.hostname or "") else own.hostname
        ports = (urlsplit(location.uri.decode()).port for location in endpoint.locations)
        return tuple(f"{own.scheme}://{host}:{port}" for port in ports if port is not None)

    def read(self, partition: Partition | bytes) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition, or of a ticket alone.

        If the caller stops reading, the service stops sending. A reader process is tried first. If
        it fails, the service itself continues where the process stopped.
        """
        ticket = partition if isinstance(partition, bytes) else partition.ticket
        if not isinstance(partition, bytes) and partition.locations:
            position: int | None = None
            try:
                for batch, reached in self._read_shared(partition):
                    position = reached
                    yield batch
            except (FlightFailed, ServiceNotAvailable, TicketRefused, TooBusy, EpochChanged) as error:
                _LOG.info("%s; continuing at %s", error, self.address)
            else:
                return
            if position is not None:
                ticket = _dump(json.loads(ticket) | {"after": position})
        yield from self._read_here(ticket)

    def _read_shared(self, partition: Partition) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield what `_read_at` does. If the ticket has expired, request a new one.

        The tickets of a plan expire together, however long its other partitions take.
        """
        try:
            yield from self._read_at(partition.locations[0], partition.ticket)
        except TicketRefused:
            # A reader process refuses a ticket before it sends anything.
            for renewed in self._renewed(partition.ticket):
                if not renewed.locations:
                    raise
                yield from self._read_at(renewed.locations[0], renewed.ticket)

    def _renewed(self, ticket: bytes) -> list[Partition]:
        """Plan the range of a ticket again. The queue manager checks the rights again."""
        request = {name: value for name, value in json.loads(ticket).items() if name not in _ADDED}
        return self.plan(**request, partition_bytes=_WHOLE).partitions

    def _read_at(self, location: str, ticket: bytes) -> Generator[tuple[pa.RecordBatch, int], None, None]:
        """Yield the batches of a reader process, each with the number the stream has reached."""
        client = self._readers.get(location)
        if client is None:
            made = fl.FlightClient(location, generic_options=_CHANNEL, **self._tls)
            client = self._readers.setdefault(location, made)
        expansion = Expansion()
        with _raised(location):
            reader = client.do_get(fl.Ticket(ticket))
            try:
                for chunk in reader:
                    yield expansion.of(chunk.data), int(chunk.app_metadata.to_pybytes())
            except GeneratorExit:
                reader.cancel()
                raise

    def _read_here(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        schema = _schema_of(ticket)
        near = None if schema is None else self._near_reader()
        if schema is None or near is None:
            yield from self._read_far(ticket)
        else:
            yield from self._read_near(near, ticket, schema)

    def _read_far(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        expansion = Expansion()
        with _raised(self.address):
            reader = self._client.do_get(fl.Ticket(ticket), self._options)
            try:
                for chunk in reader:
                    yield expansion.of(chunk.data)
            except GeneratorExit:
                reader.cancel()
                raise

    def _read_near(self, near: NearReader, ticket: bytes, schema: RowSchema) -> Iterator[pa.RecordBatch]:
        from lanner.spark.columnar.decode import batches

        try:
            stream = near.stream(ticket, self._authorization, lambda told: _error_of(self.address, told))
            yield from batches(stream, schema)
        except BaseException as error:
            near.close()
            if isinstance(error, OSError):
                raise ServiceNotAvailable(f"no queue manager answers at {self.address}: {error}") from None
            raise
        self._idle.append(near)

    def _near_reader(self) -> NearReader | None:
        """Return a connection through shared memory to a queue manager on this machine, or None.

        It costs less than half of what the port does.
        """
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        if self._is_near and self._near is None:
            about = self.info()
            self._is_near = about["near"] is not None
            self._near = (Path(about["near"] or ""), about["queue_manager_id"])
        if self._is_near and self._near is not None:
            # Imported here: it takes 0.1 s, and planning does not need it.
            from lanner.spark.flight.near_streams import NearReader

            try:
                return NearReader(*self._near)
            except OSError:
                # The socket belongs to another user, has too many clients, or is in another
                # container.
                self._is_near = False
        return None

    def batches(self, queue: str, **options: object) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a whole plan, one partition after the other."""
        for partition in self.plan(queue, **options).partitions:
            yield from self.read(partition)

    def table(self, queue: str, **options: object) -> pa.Table:
        """Return the rows of a whole plan as a table in memory."""
        plan = self.plan(queue, **options)
        found = (batch for partition in plan.partitions for batch in self.read(partition))
        return pa.Table.from_batches(found, plan.schema)

    # Actions
    # ----------------------------------------------------------------------------------------------

    def act(self, action: str, **request: object) -> Answer:
        """Run one action. Arguments that are None are left out."""
        body = _dump({name: value for name, value in request.items() if value is not None})
        wait = request.get("timeout_ms")
        options = self._options if action in _LONG else self._soon(wait / 1000 if isinstance(wait, int) else 0)
        with _raised(self.address):
            [result] = self._client.do_action(fl.Action(action, body), options)
        answer: Answer = json.loads(result.body.to_pybytes())
        return answer

    def info(self) -> Answer:
        return self.act("info")

    def bounds(self, queue: str) -> Answer:
        return self.act("bounds", queue=queue)

    def measure(self, queue: str, after: int = 0, **limits: int | None) -> Answer:
        """Measure a range. Limits: upto, max_messages, max_bytes."""
        return self.act("measure", queue=queue, after=after, **limits)

    def poll(self, queues: Sequence[Answer], timeout_ms: int = 0, epoch: int | None = None) -> list[Answer]:
        """Wait for messages in queues, each given as {queue, after, max_messages, max_bytes}."""
        found: list[Answer] = self.act("poll", queues=list(queues), timeout_ms=timeout_ms, epoch=epoch)["queues"]
        return found

    def acquire(self, queue: str, reader: str, **options: object) -> Answer:
        """Acquire a reader. Options: mode, start, lease_ms, take_over, epoch."""
        return self.act("acquire", queue=queue, reader=reader, **options)

    def renew(self, queue: str, reader: str, fence: int) -> Answer:
        return self.act("renew", queue=queue, reader=reader, fence=fence)

    def hold(self, queue: str, reader: str, fence: int, upto: int, epoch: int) -> Answer:
        return self.act("hold", queue=queue, reader=reader, fence=fence, upto=upto, epoch=epoch)

    def acknowledge(self, queue: str, reader: str, fence: int, upto: int, epoch: int) -> Answer:
        return self.act("acknowledge", queue=queue, reader=reader, fence=fence, upto=upto, epoch=epoch)

    def release(self, queue: str, reader: str, fence: int) -> None:
        self.act("release", queue=queue, reader=reader, fence=fence)

    def forget(self, queue: str, reader: str) -> bool:
        return bool(self.act("forget", queue=queue, reader=reader)["forgotten"])

    # Writing
    # ----------------------------------------------------------------------------------------------

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        *,
        writer: str,
        batch: int = 0,
        queue: str | None = None,
        token: str | None = None,
        epoch: int | None = None,
    ) -> Answer:
        """Write batches under a new token; return the token with the figures of what was written.

        If the columns allow it, the packets of the messages are built here (`columnar.packing`).
        """
        staging = self.staging(schema, writer=writer, batch=batch, queue=queue, token=token, epoch=epoch)
        try:
            for one in batches:
                staging.put(one)
            return staging.finish()
        except BaseException:
            staging.abandon()
            raise

    def staging(
        self,
        schema: pa.Schema,
        *,
        writer: str,
        batch: int = 0,
        queue: str | None = None,
        token: str | None = None,
        epoch: int | None = None,
    ) -> Staging:
        """Begin what `stage` does, for callers whose batches come one by one."""
        command = {"token": token or secrets.token_hex(16), "writer": writer, "batch": batch}
        command |= {name: value for name, value in (("queue", queue), ("epoch", epoch)) if value is not None}
        encoder = self._packet_encoder(schema, queue)
        sent = schema if encoder is None else encoder.schema
        with _raised(self.address):
            put, answers = self._client.do_put(fl.FlightDescriptor.for_command(_dump(command)), sent, self._options)
        return Staging(self.address, put, answers, encoder)

    def _packet_encoder(self, schema: pa.Schema, queue: str | None) -> PacketEncoder | None:
        """Return an encoder that makes packets of rows, or None to send the rows as they are."""
        # Imported here: it takes 0.1 s, and reading does not need it.
        from lanner.host.names import QueueNames
        from lanner.spark.columnar.encode import check_columns
        from lanner.spark.columnar.packing import PacketEncoder, can_pack

        check_columns(schema, queue)
        if not can_pack(schema):
            return None
        if self._about is None:
            self._about = self.info()
        if not self._about.get("takes_packets"):
            return None
        return PacketEncoder(schema, QueueNames(self._about["queue_manager"]), queue, self._destination)

    def _destination(self, queue: str) -> Destination:
        from lanner.spark.columnar.packing import Destination

        return Destination.parse(self.act("destination", queue=queue))

    def publish(self, writer: str, batch: int, tokens: Sequence[str], keep_seconds: int | None = None) -> Answer:
        return self.act("publish", writer=writer, batch=batch, tokens=list(tokens), keep_seconds=keep_seconds)

    def drop(self, tokens: Sequence[str]) -> int:
        return int(self.act("drop", tokens=list(tokens))["dropped"])

    def drop_batch(self, writer: str, batch: int) -> int:
        return int(self.act("drop", writer=writer, batch=batch)["dropped"])

    def last_published(self, writer: str) -> int | None:
        """Return the number of the last batch that a writer has published, or None."""
        batch: int | None = self.act("published", writer=writer)["batch"]
        return batch


class Staging:
    """One stream of rows under a token. A caller that does not finish it must abandon it."""

    def __init__(
        self,
        address: str,
        put: fl.FlightStreamWriter,
        answers: fl.FlightMetadataReader,
        encoder: PacketEncoder | None,
    ) -> None:
        self._address = address
        self._put = put
        self._answers = answers
        self._encoder = encoder
        self._rows = 0

    def put(self, batch: pa.RecordBatch) -> None:
        """Send the rows of a batch."""
        for one in (batch,) if self._encoder is None else self._encoder.packets(batch):
            with self._told():
                for piece in _pieces(one):
                    self._put.write_batch(piece)
            self._rows += len(one)

    def finish(self) -> Answer:
        """End the stream. Return what was written, once it is on disk."""
        with self._told():
            # A stream that an exception ends never sends this, so the service keeps nothing of it.
            self._put.write_metadata(_dump({"messages": self._rows}))
            self._put.done_writing()
            answer = self._answers.read()
            self._put.close()
        if answer is None:
            raise FlightFailed(f"{self._address} did not report whether the messages were stored")
        staged: Answer = json.loads(answer.to_pybytes())
        return staged

    def abandon(self) -> None:
        """Discard what was sent. After an error this has no effect."""
        with contextlib.suppress(pa.ArrowException):
            self._put.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise the error with which the service refused the stream: closing it reveals that."""
        with _raised(self._address):
            try:
                yield
            except pa.ArrowException:
                self._put.close()
                raise


def _schema_of(ticket: bytes) -> RowSchema | None:
    """Return the columns of a ticket, or None if its stream cannot be read as packets.

    A wrong ticket also gives None: the service then reports what is wrong.
    """
    try:
        request = Request.parse(ticket, "ticket")
        is_shaped = request.anything("where") or request.has("body_format")
        if len(ticket) > MAX_TICKET or is_shaped or is_events(request.text("queue")):
            return None
        return RowSchema.select(request.columns("columns"), include_body=request.flag("include_body", default=True))
    except InvalidParameter:
        return None


def _is_near(address: str) -> bool:
    """Return whether an address is a loopback address without encryption."""
    parts = urlsplit(address)
    if parts.scheme not in ("grpc", "grpc+tcp"):
        return False
    try:
        return ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


def _dump(values: Answer) -> bytes:
    return json.dumps(values, sort_keys=True).encode()


@contextlib.contextmanager
def _raised(address: str) -> Iterator[None]:
    """Raise errors of the service as their own classes."""
    try:
        yield
    except fl.FlightError as error:
        raise _named(address, error) from None
    except pa.ArrowException as error:
        raise FlightFailed(f"{address}: {error}") from None


def _named(address: str, error: pa.ArrowException) -> LannerError:
    try:
        told = json.loads(error.extra_info)
        name, message = str(told["error"]), str(told["message"])
    except (AttributeError, ValueError, KeyError, TypeError):
        if isinstance(error, (fl.FlightUnavailableError, fl.FlightTimedOutError)):
            return ServiceNotAvailable(f"no queue manager answers at {address}: {error}")
        return FlightFailed(f"{address}: {error}")
    return _error_of(address, {"error": name, "message": message})


def _error_of(address: str, told: Answer) -> LannerError:
    """Return the exception for an error that the service reports."""
    for module in (pipeline_errors, model_errors):
        kind = getattr(module, told["error"], None)
        if isinstance(kind, type) and issubclass(kind, LannerError):
            made: LannerError = kind(told["message"])
            return made
    return FlightFailed(f"{address}: {told['message']}")
