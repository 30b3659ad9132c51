"""Clients: asyncio and blocking, what they do when things go wrong."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from lanner.rpc.client import connect_tcp, open_tcp, open_unix
from lanner.rpc.client_connection import Answered, Bound, ClientConnection, Failed
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.mgmt import MGMT, MgmtInterface
from lanner.rpc.ndr import Syntax
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, AuthType, Fault, Header, PacketType, SyntaxId, pack_empty
from lanner.rpc.security import Credentials
from lanner.rpc.server import RawInterface, RpcServer
from tests.rpc.harness import FIRST, PASSWORD, SECURITY, USER, Harness, split
from tests.rpc.loops import run

ECHO = SyntaxId(UUID("55555555-5555-5555-5555-555555555555"), 1)
DATA = bytes(range(256)) * 80


@contextmanager
def serving(path: Path | None = None) -> Iterator[int]:
    """A server on a loop of its own thread, for clients that block."""
    ready: list[int] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        server = RpcServer([RawInterface(ECHO, {0: lambda call: call.stub, 1: lambda _: wait()})], providers=SECURITY)
        server.register(MgmtInterface(server))
        ready.append(await server.listen_tcp("127.0.0.1", 0))
        if path is not None:
            await server.listen_unix(path)
        is_ready.set()
        await stop.wait()
        await server.stop()

    async def wait() -> bytes:
        await stop.wait()
        return b""

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert is_ready.wait(10)
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


@pytest.mark.parametrize("auth_type", [AuthType.WINNT, AuthType.GSS_NEGOTIATE])
@pytest.mark.parametrize("level", [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_blocking_calls(auth_type: AuthType, level: AuthLevel) -> None:
    credentials = Credentials(USER, PASSWORD)
    with (
        serving() as port,
        open_tcp("127.0.0.1", port, credentials=credentials, auth_type=auth_type, level=level, timeout=10) as client,
    ):
        assert client.bind_raw(ECHO).call_raw(0, DATA) == DATA
        listening = client.bind(MGMT).call(MGMT.by_name["rpc__mgmt_is_server_listening"])
        assert listening == {"status": 0, "returns": 1}


def test_blocking_on_a_local_socket(tmp_path: Path) -> None:
    path = tmp_path / "rpc.sock"
    with serving(path), open_unix(path, timeout=10) as client:
        assert client.bind_raw(ECHO).call_raw(0, DATA * 10) == DATA * 10


def test_a_fault_leaves_a_blocking_client_usable() -> None:
    with serving() as port, open_tcp("127.0.0.1", port, timeout=10) as client:
        bound = client.bind_raw(ECHO)
        with pytest.raises(RpcFault) as caught:
            bound.call_raw(9, b"")
        assert caught.value.status == FaultStatus.NCA_OP_RNG_ERROR
        assert bound.call_raw(0, b"x") == b"x"


def test_a_blocking_client_does_not_wait_for_ever() -> None:
    with serving() as port, open_tcp("127.0.0.1", port, timeout=0.02) as client:
        bound = client.bind_raw(ECHO)
        with pytest.raises(RpcConnectionError, match="timed out"):
            bound.call_raw(1, b"")
        # Its answer would be taken for another's: the connection is over.
        with pytest.raises(RpcConnectionError):
            bound.call_raw(0, b"")


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(RpcConnectionError, match="cannot be reached"):
        open_tcp("127.0.0.1", port)
    with pytest.raises(RpcConnectionError, match="cannot be reached"):
        open_unix(tmp_path / "none.sock")


def test_an_interface_the_server_does_not_have() -> None:
    with serving() as port, open_tcp("127.0.0.1", port, timeout=10) as client:
        with pytest.raises(RpcConnectionError, match="abstract_syntax_not_supported"):
            client.bind_raw(SyntaxId(UUID(int=1), 1))
        assert client.bind_raw(ECHO).call_raw(0, b"x") == b"x"


def test_binds_at_once_wait_for_each_other() -> None:
    async def main() -> None:
        with serving() as port:
            async with await connect_tcp("127.0.0.1", port) as client:
                first, second, third = await asyncio.gather(
                    client.bind_raw(ECHO), client.bind(MGMT), client.bind(MGMT, (Syntax.NDR64,))
                )
                assert await first.call_raw(0, b"x") == b"x"
                for bound in (second, third):
                    assert (await bound.call(MGMT.by_name["rpc__mgmt_is_server_listening"]))["returns"] == 1

    run(main())


def test_ndr64_is_asked_for_and_ndr_taken() -> None:
    """A server that prefers NDR: the client goes by what was accepted."""
    client = ClientConnection()
    client.bind(FIRST, (NDR64, NDR20))
    (event,) = client.receive(b"".join(Harness().send(client.data_to_send())))
    assert event == Bound(1, NDR20)


def test_an_answer_in_pieces() -> None:
    client = ClientConnection()
    client.bind(FIRST)
    answer = b"".join(Harness().send(client.data_to_send()))
    for byte in range(len(answer) - 1):
        assert client.receive(answer[byte : byte + 1]) == []
    assert client.receive(answer[-1:]) == [Bound(0, NDR20)]


def test_a_forbidden_status_is_a_protocol_error() -> None:
    """MS-RPCE 3.3.2.5.1."""
    client = ClientConnection()
    client.bind(FIRST)
    client.receive(b"".join(Harness().send(client.data_to_send())))
    call_id = client.request(0, 0, b"")
    (event,) = client.receive(Fault(0xC0000005).pack(3, call_id))
    assert isinstance(event, Failed)
    assert isinstance(event.error, RpcFault)
    assert event.error.status == FaultStatus.PROTOCOL_ERROR


def test_the_answer_of_an_abandoned_call_is_dropped() -> None:
    client = ClientConnection()
    client.bind(FIRST)
    server = Harness()
    client.receive(b"".join(server.send(client.data_to_send())))
    first, second = client.request(0, 0, b"1"), client.request(0, 0, b"2")
    server.send(client.data_to_send())
    client.abandon(first)
    kinds = [Header.unpack(pdu).packet_type for pdu in split(client.data_to_send())]
    assert kinds == [PacketType.ORPHANED]
    for call in server.calls:
        server.connection.respond(call, call.stub)
    assert client.receive(b"".join(server.sent())) == [Answered(second, b"2", True)]


def test_a_server_that_shuts_down() -> None:
    with pytest.raises(RpcConnectionError, match="shuts down"):
        ClientConnection().receive(pack_empty(PacketType.SHUTDOWN, 0))


def test_fragments_are_as_small_as_the_server_wants() -> None:
    client = ClientConnection(max_fragment=0xFFF8)
    client.bind(FIRST)
    client.receive(b"".join(Harness().send(client.data_to_send())))
    client.request(0, 0, bytes(20_000))
    assert max(len(pdu) for pdu in split(client.data_to_send())) == 5840


def test_an_association_is_shared() -> None:
    first = Harness().bound()
    client = ClientConnection(assoc_group_id=first.connection.group.id)
    client.bind(FIRST)
    second = Harness(groups=first.groups)
    client.receive(b"".join(second.send(client.data_to_send())))
    assert second.connection.group is first.connection.group
    assert client.assoc_group_id == first.connection.group.id
