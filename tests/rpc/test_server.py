"""The server with its sockets: listeners, identities, handlers that wait, limits, the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.host.change import Change
from lanner.model.errors import InsufficientResources
from lanner.rpc.async_client import RpcClient, connect_tcp, connect_unix
from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.ndr import NULL_HANDLE, Syntax
from lanner.rpc.pdu import NDR20, PFC_WHOLE, AuthLevel, PacketType, SyntaxId, pack_empty
from lanner.rpc.security import Credentials
from lanner.rpc.server import RpcServer, ServerInterface, ServerLimits, WhenDurable
from lanner.security.users import UserFile
from tests.rpc.harness import PASSWORD, SECURITY, USER, bind, element, request
from tests.rpc.loops import run
from tests.rpc.raw_interface import RawInterface
from tests.rpc.served import NOTES, RAW, Notes, hung_up, raw_connection, served, stopping, until


@pytest.mark.parametrize("syntax", Syntax)
def test_declared_methods(syntax: Syntax) -> None:
    async def main() -> None:
        notes = Notes()
        async with served(notes) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES, (syntax,))
            opened = await bound.call(NOTES.by_name["Open"], text="milk")
            assert (await bound.call(NOTES.by_name["Read"], note=opened["note"]))["text"] == "milk"
            closed = await bound.call(NOTES.by_name["Close"], note=opened["note"])
            assert closed == {"note": NULL_HANDLE, "returns": 0}
            for method in ("Read", "Close"):
                with pytest.raises(RpcFault) as caught:
                    await bound.call(NOTES.by_name[method], note=opened["note"])
                assert caught.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
            assert notes.gone == []

    run(main())


def test_handlers_that_wait_do_not_hold_up_others() -> None:
    async def main() -> None:
        notes = Notes()
        async with served(notes) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            waiting = [asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=number)) for number in range(5)]
            await until(lambda: len(notes.waiting) == 5)
            assert (await bound.call(NOTES.by_name["Open"], text="meanwhile"))["returns"] == 0
            for number in (3, 0, 4, 1, 2):
                notes.waiting[number].set_result(number * 10)
            assert [(await one)["returns"] for one in waiting] == [0, 10, 20, 30, 40]

    run(main())


class HeldChange(Change):
    """A change that is durable, or fails, when a test says so."""

    __slots__ = ("callback",)

    def __init__(self) -> None:
        self.batch = 1
        self.callback: Callable[[BaseException | None], None] | None = None

    def then(self, callback: Callable[[BaseException | None], None]) -> None:
        self.callback = callback

    def end(self, error: BaseException | None = None) -> None:
        assert self.callback is not None
        self.callback(error)


def test_calls_that_wait_for_a_change_alone() -> None:
    async def main() -> None:
        changes = [HeldChange() for _ in range(4)]
        interface = ServerInterface(NOTES, {"Wait": lambda _, number: WhenDurable(changes[number], {})})
        async with stopping(RpcServer([interface])) as server:
            port = await server.listen_tcp("127.0.0.1", 0)
            async with await connect_tcp("127.0.0.1", port) as client:
                bound = await client.bind(NOTES)
                calls = [asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=each)) for each in range(4)]
                await until(lambda: all(change.callback is not None for change in changes))
                # What was done is done: a client that cancels gets the result.
                client._core.cancel(max(client._calls))
                client._flush()
                changes[3].end()
                assert (await calls[3])["returns"] == 0
                changes[1].end(InsufficientResources("the disk is full"))
                assert (await calls[1])["returns"] == InsufficientResources.status
                changes[2].end(OSError("a fault of ours"))
                with pytest.raises(RpcFault) as caught:
                    await calls[2]
                assert caught.value.status == FaultStatus.NCA_FAULT_UNSPEC
                assert not calls[0].done()
            # The client that could be told has gone.
            changes[0].end()
            with pytest.raises(RpcConnectionError):
                await calls[0]

    run(main())


def test_a_cancelled_call_ends_its_handler() -> None:
    async def main() -> None:
        notes = Notes()
        async with served(notes) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            # The waiting client gives up: the server learns that the wait is over.
            waiting = asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=1))
            await until(lambda: 1 in notes.waiting)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(lambda: notes.cancelled == [1])
            # Or asks the server to end early, and gets the answer.
            asked = asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=2))
            await until(lambda: 2 in notes.waiting)
            client._core.cancel(max(client._calls))
            client._flush()
            with pytest.raises(RpcFault, match="FAULT_CANCEL"):
                await asked
            assert notes.cancelled == [1, 2]
            assert (await bound.call(NOTES.by_name["Open"], text="still there"))["returns"] == 0

    run(main())


def test_a_lost_connection_ends_its_calls_and_runs_down_its_handles() -> None:
    async def main() -> None:
        notes = Notes()
        async with served(notes) as (server, port):
            client = await connect_tcp("127.0.0.1", port)
            bound = await client.bind(NOTES)
            await bound.call(NOTES.by_name["Open"], text="milk")
            waiting = asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=1))
            await until(lambda: 1 in notes.waiting)
            await client.close()
            with pytest.raises(RpcConnectionError):
                await waiting
            await until(lambda: server.connections == 0)
            assert notes.gone == ["milk"]
            await until(lambda: notes.cancelled == [1])

    run(main())


def test_handles_live_as_long_as_one_connection_of_their_association() -> None:
    """MS-RPCE 3.3.3.7.1."""

    async def main() -> None:
        notes = Notes()
        async with served(notes) as (server, port):
            first = await connect_tcp("127.0.0.1", port)
            handle = (await (await first.bind(NOTES)).call(NOTES.by_name["Open"], text="milk"))["note"]
            second = await connect_tcp("127.0.0.1", port, assoc_group_id=first.assoc_group_id)
            shared = await second.bind(NOTES)
            async with await connect_tcp("127.0.0.1", port) as stranger:
                with pytest.raises(RpcFault) as caught:
                    await (await stranger.bind(NOTES)).call(NOTES.by_name["Read"], note=handle)
                assert caught.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
            await first.close()
            await until(lambda: server.connections == 1)
            assert (await shared.call(NOTES.by_name["Read"], note=handle))["text"] == "milk"
            assert notes.gone == []
            await second.close()
            await until(lambda: notes.gone == ["milk"])

    run(main())


@pytest.mark.parametrize(
    ("opnum", "stub", "status", "executed"),
    [
        (3, b"", FaultStatus.BAD_STUB_DATA, False),
        (4, b"", FaultStatus.NCA_OP_RNG_ERROR, False),
        (7, b"", FaultStatus.NCA_OP_RNG_ERROR, False),
        (0xFFFF, b"", FaultStatus.NCA_OP_RNG_ERROR, False),
        (5, b"\x07\x00\x0e\xc0", 0xC00E0007, True),
        (5, bytes(4), FaultStatus.NCA_FAULT_UNSPEC, True),
    ],
)
def test_faults(opnum: int, stub: bytes, status: int, executed: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(Notes()) as (_, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind(NOTES)
            with pytest.raises(RpcFault) as caught:
                await bound.call_raw(opnum, stub)
            assert (caught.value.status, caught.value.did_not_execute) == (status, not executed)
            # And the connection goes on.
            assert (await bound.call(NOTES.by_name["Open"], text="x"))["returns"] == 0

    with caplog.at_level(logging.CRITICAL):
        run(main())


def test_an_interface_that_is_not_for_everybody() -> None:
    def authorize(call: ServerCall) -> None:
        if call.identity.is_anonymous:
            raise RpcFault(FaultStatus.ACCESS_DENIED, did_not_execute=True)

    async def main() -> None:
        interface = ServerInterface(NOTES, Notes().handlers, authorize=authorize)
        async with stopping(RpcServer([interface], providers=SECURITY)) as server:
            port = await server.listen_tcp("127.0.0.1", 0)
            async with await connect_tcp("127.0.0.1", port) as nobody:
                with pytest.raises(RpcFault, match="ACCESS_DENIED"):
                    await (await nobody.bind(NOTES)).call(NOTES.by_name["WhoAmI"])
            async with await connect_tcp("127.0.0.1", port, credentials=Credentials(USER, PASSWORD)) as alice:
                found = await (await alice.bind(NOTES)).call(NOTES.by_name["WhoAmI"])
                assert found["name"] == "alice at PKT_PRIVACY"

    run(main())


def test_handlers_of_methods_that_are_not_there() -> None:
    with pytest.raises(TypeError, match="no method Erase"):
        ServerInterface(NOTES, {"Erase": lambda _: 0})


def test_an_interface_is_registered_once_and_by_version() -> None:
    server = RpcServer([RawInterface(RAW, {})])
    with pytest.raises(ValueError, match="already"):
        server.register(RawInterface(RAW, {}))
    server.register(RawInterface(SyntaxId(RAW.uuid, 2, 5), {}))
    found = server.find_interface(SyntaxId(RAW.uuid, 2, 5))
    assert found is not None
    assert found.syntax.minor == 5
    assert server.find_interface(SyntaxId(RAW.uuid, 2, 4)) is found
    assert server.find_interface(SyntaxId(RAW.uuid, 2, 6)) is None
    assert server.find_interface(SyntaxId(RAW.uuid, 3)) is None


def free_row() -> int:
    """A port whose successors in steps of eleven are free as well."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        try:
            for step in (11, 22):
                with socket.socket() as next_one:
                    next_one.bind(("127.0.0.1", port + step))
        except (OSError, OverflowError):
            continue
        return port


def test_a_port_that_is_taken_is_passed_over_by_eleven() -> None:
    async def main() -> None:
        port = free_row()
        async with stopping(RpcServer([RawInterface(RAW, {0: lambda call: call.stub})])) as server:
            found = [await server.listen_tcp("127.0.0.1", port) for _ in range(3)]
            assert found == [port, port + 11, port + 22]
            assert [endpoint.port for endpoint in server.endpoints] == found
            for one in found:
                async with await connect_tcp("127.0.0.1", one) as client:
                    assert await (await client.bind_raw(RAW)).call_raw(0, b"here") == b"here"
            with pytest.raises(OSError, match="in use"):
                await server.listen_tcp("127.0.0.1", port, step=0)

    run(main())


def test_a_local_program_is_known_by_its_uid(tmp_path: Path) -> None:
    async def main() -> None:
        # Deeper than a socket address is long.
        folder = tmp_path / ("d" * 100)
        folder.mkdir()
        path = folder / "rpc.sock"
        users = UserFile(tmp_path / "users.json")
        async with served(Notes(), users=users) as (server, _):
            path.write_bytes(b"left by a process that was killed")
            await server.listen_unix(path)
            opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
            async with await connect_unix(Path(f"/proc/self/fd/{opened}/rpc.sock")) as client:
                bound = await client.bind(NOTES)
                found = await bound.call(NOTES.by_name["WhoAmI"])
                assert found["name"] == f"{users.unix_identity(os.geteuid()).name} at PKT_PRIVACY"
                raw = await client.bind_raw(RAW)
                data = bytes(300_000)
                assert await raw.call_raw(0, data) == data
            os.close(opened)

    run(main())


def test_connections_without_a_bind_do_not_pile_up(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        limits = ServerLimits(max_unbound=3)
        async with served(Notes(), limits) as (server, port), await connect_tcp("127.0.0.1", port) as client:
            bound = await client.bind_raw(RAW)
            async with contextlib.AsyncExitStack() as stack:
                idle = [await stack.enter_async_context(raw_connection(port)) for _ in range(4)]
                # The oldest had to go; bound connections stay.
                assert await hung_up(idle[0][0])
                await until(lambda: server.connections == 4)
                assert await bound.call_raw(0, b"x") == b"x"

    with caplog.at_level(logging.CRITICAL):
        run(main())


def test_a_connection_that_does_not_bind_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(Notes(), ServerLimits(bind_timeout=0.01)) as (_, port):
            async with raw_connection(port) as (reader, _):
                assert await hung_up(reader)
            async with await connect_tcp("127.0.0.1", port) as client:
                bound = await client.bind_raw(RAW)
                await asyncio.sleep(0.02)
                assert await bound.call_raw(0, b"x") == b"x"

    run(main())


@pytest.mark.parametrize(
    "limits", [ServerLimits(max_connections=2), ServerLimits(max_connections_per_peer=2)], ids=["all", "peer"]
)
def test_connections_have_a_limit(limits: ServerLimits, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with served(Notes(), limits) as (_, port):
            clients = [await connect_tcp("127.0.0.1", port) for _ in range(2)]
            for client in clients:
                await client.bind_raw(RAW)
            third = await connect_tcp("127.0.0.1", port)
            with pytest.raises(RpcConnectionError):
                await third.bind_raw(RAW)
            await third.close()
            await clients[0].close()
            async with await connect_tcp("127.0.0.1", port) as again:
                await again.bind_raw(RAW)
            await clients[1].close()

    with caplog.at_level(logging.CRITICAL):
        run(main())


def test_bound_strangers_make_room_for_other_peers(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that are logged on or have a handle stay."""

    async def stranger(stack: contextlib.AsyncExitStack, port: int, address: str) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        stack.callback(writer.close)
        writer.write(bind(element(0, RAW, NDR20)))
        assert (await reader.read(1000))[2] == PacketType.BIND_ACK
        return reader

    async def main() -> None:
        limits = ServerLimits(max_connections=8)
        async with (
            served(Notes(), limits) as (server, port),
            await connect_tcp("127.0.0.1", port) as holder,
            await connect_tcp("127.0.0.1", port, credentials=Credentials(USER, PASSWORD)) as alice,
            contextlib.AsyncExitStack() as stack,
        ):
            notes = await holder.bind(NOTES)
            opened = await notes.call(NOTES.by_name["Open"], text="milk")
            hers = await alice.bind(NOTES)
            few = [await stranger(stack, port, "127.0.9.1") for _ in range(2)]
            many = [await stranger(stack, port, "127.0.9.2") for _ in range(4)]
            assert server.connections == 8
            # The oldest ones of the peer with most; a peer with as many gets none.
            third = await stranger(stack, port, "127.0.9.3")
            assert await hung_up(many[0])
            async with await connect_tcp("127.0.0.1", port, credentials=Credentials(USER, PASSWORD)) as again:
                await again.bind(NOTES)
                assert await hung_up(many[1])
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.9.2", 0))
                stack.callback(writer.close)
                assert await hung_up(reader)
                for one in (*few, *many[2:], third):
                    assert not one.at_eof()
                assert (await notes.call(NOTES.by_name["Read"], note=opened["note"]))["text"] == "milk"
                assert (await hers.call(NOTES.by_name["WhoAmI"]))["name"].startswith("alice")

    with caplog.at_level(logging.CRITICAL):
        run(main())


def test_a_peer_that_reads_nothing_is_not_read_from() -> None:
    """The unsent data is bounded, whatever a peer requests."""

    async def main() -> None:
        async with served(Notes()) as (server, port), raw_connection(port) as (reader, writer):
            writer.write(bind(element(0, RAW, NDR20), flags=PFC_WHOLE | 0x10))
            await reader.read(1000)
            # As much as the kernel takes and then some, in calls that answer with what they got.
            for number in range(2000):
                writer.write(request(bytes(5000), call_id=number))
            (connection,) = server._connections
            transport = connection._transport
            assert transport is not None
            await until(lambda: not transport.is_reading())
            assert transport.get_write_buffer_size() < 4 << 20
            received = 0
            while received < 2000 * 5024:
                received += len(await reader.read(1 << 20))

    run(main())


def test_the_server_hangs_up_behind_a_fault() -> None:
    async def main() -> None:
        async with served(Notes()) as (_, port), raw_connection(port) as (reader, writer):
            writer.write(bind(element(0, RAW, NDR20)) + pack_empty(PacketType.RESPONSE, 1))
            data = await reader.read()
            assert data[2] == PacketType.BIND_ACK
            assert data[-32 + 2] == PacketType.FAULT

    run(main())


def test_stopping_ends_everything() -> None:
    async def main() -> None:
        notes = Notes()
        clients: list[RpcClient] = []
        async with served(notes) as (_, port):
            clients.append(await connect_tcp("127.0.0.1", port))
            bound = await clients[0].bind(NOTES)
            await bound.call(NOTES.by_name["Open"], text="milk")
            waiting = asyncio.ensure_future(bound.call(NOTES.by_name["Wait"], number=1))
            await until(lambda: 1 in notes.waiting)
        assert notes.gone == ["milk"]
        assert notes.cancelled == [1]
        with pytest.raises(RpcConnectionError):
            await waiting
        await clients[0].close()

    run(main())


def test_levels_as_handlers_see_them() -> None:
    async def main() -> None:
        async with served(Notes()) as (_, port):
            for level in (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY):
                async with await connect_tcp(
                    "127.0.0.1", port, credentials=Credentials(USER, PASSWORD), level=level
                ) as client:
                    found = await (await client.bind(NOTES)).call(NOTES.by_name["WhoAmI"])
                    assert found["name"] == f"alice at {level.name}"
            async with await connect_tcp("127.0.0.1", port) as client:
                found = await (await client.bind(NOTES)).call(NOTES.by_name["WhoAmI"])
                assert found["name"] == "ANONYMOUS LOGON at NONE"

    run(main())
