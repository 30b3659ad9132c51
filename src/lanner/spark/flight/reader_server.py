"""The Flight service of a reader process: DoGet for signed tickets. All other calls are refused."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Never

import pyarrow as pa
import pyarrow.flight as fl

from lanner.host.budget import Budget, Door, raise_descriptor_limit
from lanner.model.errors import InvalidParameter
from lanner.rpc.unix_path import short_path
from lanner.spark.columnar.decode import batches
from lanner.spark.columnar.filters import Filters
from lanner.spark.columnar.packet_source import Place
from lanner.spark.columnar.scans import Begun, ScannedRange
from lanner.spark.columnar.schema import RowSchema
from lanner.spark.columnar.shaping import Shape
from lanner.spark.columnar.values import BodyFormat
from lanner.spark.flight.auth import NoHandshake
from lanner.spark.flight.errors import EpochChanged
from lanner.spark.flight.front import Front, tls_context
from lanner.spark.flight.reader_process import DIRECTORY
from lanner.spark.flight.refusals import told as refusals
from lanner.spark.flight.requests import MAX_SIZE, Request
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.streams import Streams
from lanner.spark.flight.tickets import Grant, Tickets
from lanner.store.read_only import ReadOnlyStore

# Not in the specification: the share of connections, which use most of this process's descriptors.
_SHARE: Final = 0.8
_DESCRIPTORS: Final = 3


class ReaderServer(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """The Flight server of the process. The threads of gRPC call its methods."""

    def __init__(self, address: str, store: ReadOnlyStore, tickets: Tickets, streams: Streams) -> None:
        self._store = store
        self._tickets = tickets
        self._streams = streams
        self.front: Front | None = None
        super().__init__(address, auth_handler=NoHandshake())

    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.FlightDataStream:
        front, caller = self.front, context.peer()
        with refusals("" if front is None else front.peer(caller)):
            grant, after = self._granted(ticket.ticket)
            if front is not None:
                front.logged_on(caller, grant.user)
            schema = RowSchema.select(grant.columns, include_body=grant.include_body)
            schema = dataclasses.replace(schema, is_compact=grant.compact)
            source, shape = (
                self._range(grant, after),
                Shape(Filters.of(grant.where), BodyFormat.of(grant.body_format, grant.body_schema)),
            )

        def hang_up() -> None:
            if front is not None:
                front.hang_up(caller)

        def rows() -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
            with refusals():
                yield from self._streams.run(grant.user, positioned(source, schema, shape), 0.0, hang_up)

        return fl.GeneratorStream(shape.schema(schema).arrow, rows())

    def _refused(self, *_: object) -> Never:
        raise fl.FlightUnauthorizedError(
            "a reader process only takes tickets (DoGet): ask the queue manager, which issues them"
        )

    list_flights = get_flight_info = get_schema = do_put = do_exchange = list_actions = do_action = _refused

    def _granted(self, ticket: bytes) -> tuple[Grant, int]:
        """Return the grant of a ticket, and the number after which to read.

        A client that has read a part already can continue there.
        """
        request = Request.parse(ticket, "ticket")
        grant = self._tickets.opened(request.text("grant"))
        after = request.number("after", grant.after)
        if grant.epoch != self._store.epoch:
            raise EpochChanged(f"the ticket is of epoch {grant.epoch}, and the store of {self._store.epoch}")
        if not grant.after <= after:
            raise InvalidParameter(f"ticket: after = {after}: its grant begins at {grant.after}")
        return grant, after

    def _range(self, grant: Grant, after: int) -> ScannedRange:
        def begin(after: int) -> Begun:
            return self._store.scan(grant.queue, grant.generation, after, grant.upto), grant.held

        return ScannedRange(Place(**grant.place), after, grant.upto, begin)


def positioned(source: ScannedRange, schema: RowSchema, shape: Shape) -> Iterator[tuple[pa.RecordBatch, pa.Buffer]]:
    """Yield the batches of a range, each with the number that the stream has reached.

    If the stream breaks off, another one can continue there.
    """
    followed = _Followed(source)
    made = batches(followed, schema if shape.is_plain else shape.read_with(schema))
    for batch in made if shape.is_plain else shape.applied(made, schema):
        yield batch, pa.py_buffer(str(followed.reached).encode())


class _Followed:
    """A packet source that records how far it was read."""

    def __init__(self, source: ScannedRange) -> None:
        self._source = source
        self.place = source.place
        self.reached = source.after

    def packet_batches(self, room: Any) -> Any:  # noqa: ANN401 (as of PacketSource)
        with contextlib.closing(self._source.packet_batches(room)) as found:
            for batch in found:
                self.reached = int(batch.facts.seq[-1])
                yield batch


class ReaderService:
    """The service of one process: database, Flight server, and the port that all of them share."""

    def __init__(self, place: Path, listening: socket.socket, told: dict[str, Any]) -> None:
        budget = Budget(raise_descriptor_limit())
        self._streams = Streams(told["max_streams"])
        paths = {name: None if told[name] is None else Path(told[name]) for name in ("tls_certificate", "tls_key")}
        tls = tls_context(FlightSettings(tls_certificate=paths["tls_certificate"], tls_key=paths["tls_key"]))
        store = ReadOnlyStore(place)
        backend = place / DIRECTORY / f"{os.getpid()}.sock"
        with short_path(backend) as short:
            server = ReaderServer(f"grpc+unix://{short}", store, Tickets(bytes.fromhex(told["key"])), self._streams)
        self._door = Door(
            budget,
            "readers",
            limit=told["max_connections"],
            per_peer=told["max_connections_per_peer"],
            share=_SHARE,
            cost=_DESCRIPTORS,
        )
        # Clients send only tickets here.
        server.front = Front(listening, backend, self._door, tls, budget=budget, max_message=2 * MAX_SIZE)
        self._server = server
        self.stop = partial(server.shutdown)

    @property
    def condition(self) -> dict[str, int]:
        """The figures that the queue manager shows for this process."""
        counted = self._door.connections
        return {"streams": self._streams.count, "connections": counted.used, "refused": counted.refused}
