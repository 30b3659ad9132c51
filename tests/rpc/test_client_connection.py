"""The core of the clients: what it makes of the PDUs of a server."""

from __future__ import annotations

import pytest

from lanner.rpc.client_connection import Answered, Bound, ClientConnection, Failed
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.pdu import NDR20, NDR64, Fault, Header, PacketType, pack_empty
from tests.rpc.harness import FIRST, Harness, split


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
