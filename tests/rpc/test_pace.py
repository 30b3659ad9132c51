"""The pace at which a server reads.

Covered: many concurrent calls, answers that nobody reads, and requests that are never completed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from lanner.rpc import blocking_client
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.calls import ServerCall
from lanner.rpc.connection import ConnectionLimits
from lanner.rpc.faults import FaultStatus
from lanner.rpc.pdu import NDR20, PFC_CONC_MPX, PFC_FIRST_FRAG, PFC_WHOLE, PacketType, SyntaxId, pack_empty
from lanner.rpc.server import RpcServer, ServerLimits
from tests.rpc.harness import SECOND, alter, bind, element, request
from tests.rpc.loops import run
from tests.rpc.raw_interface import RawInterface
from tests.rpc.served import NOTES, RAW, Notes, hung_up, raw_connection, served, until

WAIT = 3
LARGE = 1 << 20


async def answer(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    """Type, call id and body of the next PDU."""
    head = await reader.readexactly(16)
    (size,) = struct.unpack_from("<H", head, 8)
    (call_id,) = struct.unpack_from("<I", head, 12)
    return head[2], call_id, await reader.readexactly(size - 16)


async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bind both interfaces, for several calls at once."""
    notes = SyntaxId(NOTES.uuid, *NOTES.version)
    writer.write(bind(element(0, RAW, NDR20), element(1, notes, NDR20), flags=PFC_WHOLE | PFC_CONC_MPX))
    assert (await answer(reader))[0] == PacketType.BIND_ACK


def wait(number: int) -> bytes:
    """A call that ends when the test says so."""
    return request(struct.pack("<I", number), call_id=number, context_id=1, opnum=WAIT)


def abandon(writer: asyncio.StreamWriter) -> None:
    """End a connection by a reset, as the kernel does for a killed process."""
    connected: socket.socket = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_calls_that_come_in_one_piece_are_all_answered_in_order() -> None:
    """However many: a connection may have 256 at once, and these are a thousand."""

    async def main() -> None:
        async with served(Notes()) as (_, port), raw_connection(port) as (reader, writer):
            await begin(reader, writer)
            writer.write(b"".join(request(b"%4d" % number, call_id=number) for number in range(1000)))
            for number in range(1000):
                kind, call_id, body = await answer(reader)
                assert (kind, call_id, body[-4:]) == (PacketType.RESPONSE, number, b"%4d" % number)

    run(main())


def test_calls_beyond_the_limit_begin_when_others_end() -> None:
    notes = Notes()
    limits = ServerLimits(connection=ConnectionLimits(max_calls=4), busy_timeout=20)

    async def main() -> None:
        async with served(notes, limits) as (server, port), raw_connection(port) as (reader, writer):
            await begin(reader, writer)
            writer.write(b"".join(map(wait, range(10))))
            await until(lambda: len(notes.waiting) == 4)
            (connection,) = server._connections
            assert connection._transport is not None
            assert not connection._transport.is_reading()
            for number in range(10):
                await until(partial(notes.waiting.__contains__, number))
                assert len(notes.waiting) <= number + 4
                notes.waiting[number].set_result(number)
                kind, call_id, body = await answer(reader)
                assert (kind, call_id, body[-4:]) == (PacketType.RESPONSE, number, struct.pack("<I", number))
            assert connection._transport.is_reading()
            writer.write(request(b"the same connection"))
            assert (await answer(reader))[2].endswith(b"the same connection")

    run(main())


def test_a_cancel_behind_calls_beyond_the_limit_gets_through() -> None:
    """Calls may wait forever.

    Calls beyond the limit are rejected, so that the server reads the cancel behind them.
    """
    notes = Notes()
    limits = ServerLimits(connection=ConnectionLimits(max_calls=2), busy_timeout=0.001)

    async def main() -> None:
        async with served(notes, limits) as (_, port), raw_connection(port) as (reader, writer):
            await begin(reader, writer)
            writer.write(wait(10) + wait(11) + wait(12) + pack_empty(PacketType.CO_CANCEL, 10))
            kind, call_id, body = await answer(reader)
            assert (kind, call_id) == (PacketType.FAULT, 12)
            assert struct.unpack_from("<I", body, 8)[0] == FaultStatus.NCA_SERVER_TOO_BUSY
            assert (await answer(reader))[:2] == (PacketType.FAULT, 10)
            assert notes.cancelled == [10]

    run(main())


def test_a_call_that_begins_as_its_connection_is_lost_cleans_up() -> None:
    """It is treated like a call whose answer could not be sent.

    Otherwise a read would continue to wait, and take a message without a reader.
    """
    notes = Notes()
    limits = ServerLimits(connection=ConnectionLimits(max_calls=1), busy_timeout=20)

    async def main() -> None:
        async with served(notes, limits) as (server, port), raw_connection(port) as (reader, writer):
            await begin(reader, writer)
            writer.write(wait(1) + wait(2))
            (connection,) = server._connections
            await until(lambda: 1 in notes.waiting and connection._is_held)
            # The server reads nothing meanwhile, so that only the answer to the first call finds
            # out.
            abandon(writer)
            notes.waiting[1].set_result(1)
            await until(lambda: not server._connections and not server._tasks)
            assert notes.cancelled == [2]

    run(main())


def test_a_call_that_begins_as_the_server_stops_cleans_up() -> None:
    notes = Notes()

    async def main() -> None:
        async with served(notes) as (server, port), raw_connection(port) as (reader, writer):
            stopping: list[asyncio.Task[None]] = []

            def stop(_: ServerCall) -> bytes:
                stopping.append(asyncio.ensure_future(server.stop()))
                return b""

            server.register(RawInterface(SECOND, {0: stop}))
            await begin(reader, writer)
            writer.write(alter(element(2, SECOND, NDR20)))
            await answer(reader)
            writer.write(request(call_id=1, context_id=2) + wait(2))
            await until(lambda: bool(stopping))
            await stopping[0]
            assert notes.cancelled == [2]

    run(main())


def test_calls_wait_until_the_answers_before_them_are_taken() -> None:
    """Small requests that were read together may have large answers."""

    async def main() -> None:
        async with served(Notes()) as (server, port), raw_connection(port) as (reader, writer):
            server.register(RawInterface(SECOND, {0: lambda _: bytes(LARGE)}))
            await begin(reader, writer)
            writer.write(alter(element(2, SECOND, NDR20)))
            await answer(reader)
            writer.write(b"".join(request(call_id=number, context_id=2) for number in range(200)))
            (connection,) = server._connections
            await until(lambda: connection._is_choked)
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 20 * LARGE
            ended = 0
            while ended < 200:
                head = await reader.readexactly(16)
                await reader.readexactly(struct.unpack_from("<H", head, 8)[0] - 16)
                ended += bool(head[3] & 2)

    run(main())


def test_answers_for_a_stranger_are_made_only_as_it_takes_them() -> None:
    """For a caller that has not logged on, 64 KiB of unread answers are made, not a mebibyte."""

    async def main() -> None:
        async with served(Notes()) as (server, port), raw_connection(port) as (reader, writer):
            server.register(RawInterface(SECOND, {0: lambda _: bytes(4096)}))
            await begin(reader, writer)
            writer.write(alter(element(2, SECOND, NDR20)))
            await answer(reader)
            writer.write(b"".join(request(call_id=number, context_id=2) for number in range(4000)))
            (connection,) = server._connections
            await until(lambda: connection._is_choked)
            assert connection.unsent < 256 << 10

    run(main())


@pytest.mark.parametrize("limit", ["max_unsent", "max_unsent_of_strangers", "max_unsent_per_stranger"])
def test_answers_that_nobody_takes_do_not_fill_the_memory(caplog: pytest.LogCaptureFixture, limit: str) -> None:
    """Calls that waited for the same event end together; the client idle for longest is dropped."""
    waiting: list[asyncio.Future[bytes]] = []

    def wait_for_it(call: ServerCall) -> asyncio.Future[bytes]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    async def main() -> None:
        limits = replace(ServerLimits(), **{limit: 40 * LARGE})  # type: ignore[arg-type] # a number
        async with served(Notes(), limits) as (server, port), raw_connection(port) as one, raw_connection(port) as two:
            server.register(RawInterface(SECOND, {0: wait_for_it}))
            for reader, writer in (one, two):
                await begin(reader, writer)
                writer.write(alter(element(2, SECOND, NDR20)))
                await answer(reader)
                writer.write(b"".join(request(call_id=number, context_id=2) for number in range(30)))
                await until(lambda: len(waiting) in (30, 60))
                await asyncio.sleep(0)
            first, second = server._connections
            for future in waiting[:30]:
                future.set_result(bytes(LARGE))
            await until(lambda: first.unsent > 20 * LARGE)
            for future in waiting[30:]:
                future.set_result(bytes(LARGE))
            await until(lambda: server.connections == 1)
            assert list(server._connections) == [second]
            assert second.unsent <= 40 * LARGE
            ended = 0
            while ended < 30:
                head = await two[0].readexactly(16)
                await two[0].readexactly(struct.unpack_from("<H", head, 8)[0] - 16)
                ended += bool(head[3] & 2)
            await until(lambda: not server.choked)

    with caplog.at_level(logging.CRITICAL):
        run(main())


def test_a_peer_that_vanishes_is_noticed() -> None:
    """The kernel detects a vanished peer on both sides.

    Otherwise a server would keep the locks of a client that lost its power.
    """

    def options(connected: socket.socket) -> list[int]:
        asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT]
        alive = connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        return [alive, *(connected.getsockopt(socket.IPPROTO_TCP, option) for option in asked)]

    async def main() -> None:
        async with served(Notes()) as (server, port), await connect_tcp("127.0.0.1", port) as client:
            await client.bind(NOTES)
            (connection,) = server._connections
            blocking = await asyncio.to_thread(blocking_client.connect_tcp, "127.0.0.1", port, timeout=10)
            for transport in (connection._transport, client._transport):
                assert transport is not None
                assert options(transport.get_extra_info("socket")) == [1, 60, 15, 4, 120_000]
            assert options(blocking._socket) == [1, 60, 15, 4, 120_000]
            blocking.close()

    run(main())


def unfinished(server: RpcServer) -> int:
    """Bytes of strangers' requests that are not whole."""
    return next(one.used for one in server.budget.usage() if one.resource.endswith("of strangers"))


def test_a_fragment_is_acknowledged_at_once() -> None:
    """A client with Nagle's algorithm would otherwise wait 40 ms with each further fragment."""

    async def main() -> None:
        told: list[tuple[int, ...]] = []
        async with served(Notes()) as (server, port), raw_connection(port) as (reader, writer):
            await begin(reader, writer)
            (connection,) = server.clients()
            connection._tcp = SimpleNamespace(setsockopt=lambda *option: told.append(option))  # type: ignore[assignment]
            writer.write(request(bytes(4000), flags=PFC_FIRST_FRAG))
            await until(lambda: unfinished(server) == 4000)
            assert told == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)]
            writer.write(request(b"the end", flags=2))
            assert (await answer(reader))[2].endswith(b"the end")
            # The answer carries this acknowledgment.
            assert len(told) == 1

    run(main())


def test_requests_that_never_become_whole_do_not_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    """The limit is for all connections together; the client silent for longest is dropped."""

    async def main() -> None:
        limits = ServerLimits(max_unfinished_of_strangers=10_000)
        begun = request(bytes(4000), flags=PFC_FIRST_FRAG)
        async with served(Notes(), limits) as (server, port), raw_connection(port) as one, raw_connection(port) as two:
            for reader, writer in (one, two):
                await begin(reader, writer)
                writer.write(begun)
            await until(lambda: unfinished(server) == 8000)
            one[1].write(request(bytes(1000), flags=0))
            await until(lambda: unfinished(server) == 9000)
            async with raw_connection(port) as (reader, writer):
                await begin(reader, writer)
                writer.write(begun)
                assert await hung_up(two[0])
                assert unfinished(server) == 9000
                for reader_, writer_ in ((reader, writer), one):
                    writer_.write(request(b"the end", flags=2))
                    received = b""
                    while not received.endswith(b"the end"):
                        received += (await answer(reader_))[2]
                assert unfinished(server) == 0
                writer.write(begun)
                await until(lambda: unfinished(server) == 4000)
            await until(lambda: unfinished(server) == 0)

    with caplog.at_level(logging.CRITICAL):
        run(main())
