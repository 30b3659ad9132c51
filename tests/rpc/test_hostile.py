"""Whatever bytes arrive, a connection answers, closes, or waits for more.

It never raises, and its memory does not grow.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.client_connection import MAX_RESPONSE_SIZE, ClientConnection
from lanner.rpc.connection import ConnectionLimits
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.pdu import (
    MAX_FRAGMENT_SIZE,
    PFC_CONC_MPX,
    PFC_FIRST_FRAG,
    PFC_WHOLE,
    AuthLevel,
    AuthType,
    Header,
    PacketType,
    Response,
    assemble,
    bind_time_features_syntax,
    pack_empty,
)
from lanner.rpc.security import Credentials, SecurityError
from tests.rpc.harness import (
    FIRST,
    PASSWORD,
    SECOND,
    SECURITY,
    USER,
    Harness,
    alter,
    bind,
    element,
    fragments,
    request,
    split,
)

SESSION = [
    bind(element(), element(1, FIRST, bind_time_features_syntax(3)), flags=PFC_WHOLE | PFC_CONC_MPX),
    alter(element(2, SECOND)),
    request(b"one call", call_id=3),
    fragments(bytes(6000), call_id=4),
    pack_empty(PacketType.CO_CANCEL, 3),
    request(b"another", call_id=5, context_id=2, opnum=7),
    pack_empty(PacketType.ORPHANED, 5),
]
# The long stub of zeros says nothing new.
INTERESTING = [*range(400), *range(6300, 6600)]


def fed(pdus: list[bytes], harness: Harness | None = None) -> Harness:
    """Send PDUs, answer every call, and check that what comes back is made of PDUs."""
    harness = Harness(SECURITY) if harness is None else harness
    answered = 0
    for pdu in pdus:
        harness.send(pdu)
        for call in harness.calls[answered:]:
            harness.connection.respond(call, call.stub)
        answered = len(harness.calls)
        for out in split(harness.connection.data_to_send()):
            assert Header.unpack(out).frag_length == len(out)
        assert len(harness.connection._rest) < MAX_FRAGMENT_SIZE
    harness.connection.close()
    return harness


def test_the_session_itself_is_fine() -> None:
    harness = fed(SESSION)
    assert harness.closed is None
    assert [call.call_id for call in harness.calls] == [3, 4, 5]


@pytest.mark.parametrize("value", [0x00, 0x01, 0x7F, 0x80, 0xFF])
def test_every_byte_changed(value: int) -> None:
    whole = b"".join(SESSION)
    for position in INTERESTING:
        if position < len(whole):
            fed([whole[:position] + bytes([value]) + whole[position + 1 :]])


def test_every_truncation() -> None:
    whole = b"".join(SESSION)
    for size in INTERESTING:
        fed([whole[:size]])


def test_every_pdu_left_out_or_sent_twice() -> None:
    for place in range(len(SESSION)):
        fed(SESSION[:place] + SESSION[place + 1 :])
        fed(SESSION[: place + 1] + SESSION[place:])


@settings(deadline=None)
@given(st.lists(st.sampled_from(SESSION), max_size=12))
def test_any_order(pdus: list[bytes]) -> None:
    fed(pdus)


@settings(deadline=None)
@given(st.binary(max_size=400), st.integers(0, 19), st.booleans())
def test_any_body_of_any_type(body: bytes, kind: int, is_bound: bool) -> None:
    pdu = assemble(kind, PFC_WHOLE, 9, body)
    fed([*([SESSION[0]] if is_bound else []), pdu, *SESSION[1:3]])


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 0xFFFF), st.integers(0, 19))
def test_any_auth_length(body: bytes, auth_length: int, kind: int) -> None:
    pdu = bytearray(assemble(kind, PFC_WHOLE, 9, body))
    pdu[10:12] = auth_length.to_bytes(2, "little")
    fed([SESSION[0], bytes(pdu)])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_signed_session_with_one_byte_changed(position: int, value: int) -> None:
    client = ClientConnection(
        credentials=Credentials(USER, PASSWORD), auth_type=AuthType.GSS_NEGOTIATE, level=AuthLevel.PKT_PRIVACY
    )
    harness = Harness(SECURITY)
    client.bind(FIRST)
    sent = 0
    for _ in range(6):
        data = client.data_to_send()
        if sent <= position < sent + len(data):
            place = position - sent
            data = data[:place] + bytes([value]) + data[place + 1 :]
        sent += len(data)
        back = b"".join(harness.send(data))
        for call in harness.calls[-1:]:
            harness.connection.respond(call, call.stub)
        back += b"".join(harness.sent())
        try:
            client.receive(back)
        except (RemoteProtocolError, SecurityError):
            break
        if client._binding is None and harness.closed is None:
            client.request(0, 0, b"some stub")
    harness.connection.close()


def test_memory_of_a_connection_is_bounded() -> None:
    """One fragmented call, one partial PDU; everything else is refused."""
    harness = Harness(limits=ConnectionLimits(max_calls=4)).bound(multiplexed=True)
    for call_id in range(4):
        harness.send(request(call_id=call_id))
    for _ in range(1000):
        if harness.closed is None:
            harness.send(
                request(bytes(5000), call_id=9, flags=PFC_FIRST_FRAG if not harness.connection._fragmented else 0)
            )
    fragmented = harness.connection._fragmented
    assert fragmented is None or fragmented.size <= 0x400000
    assert harness.connection.outstanding_calls == 4


# The client's side
# -----------------------------------------------------------------------------------------------


def bound_client() -> ClientConnection:
    client = ClientConnection()
    client.bind(FIRST)
    client.receive(b"".join(Harness().send(client.data_to_send())))
    client.request(0, 0, b"question")
    return client


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_a_client_takes_any_bytes(data: bytes) -> None:
    try:
        bound_client().receive(data)
    except (RemoteProtocolError, SecurityError, RpcConnectionError):
        return


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, 19), st.integers(0, 255), st.integers(0, 200))
def test_a_client_takes_any_body_of_any_type(body: bytes, kind: int, flags: int, auth_length: int) -> None:
    pdu = bytearray(assemble(kind, flags, 2, body))
    pdu[10] = auth_length
    try:
        bound_client().receive(bytes(pdu))
    except (RemoteProtocolError, SecurityError, RpcConnectionError):
        return


def test_a_response_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.rpc.client_connection.MAX_RESPONSE_SIZE", 10_000)
    assert MAX_RESPONSE_SIZE > 10_000
    client = bound_client()
    part = Response(0, 0).pack_front() + bytes(4000)
    client.receive(assemble(PacketType.RESPONSE, PFC_FIRST_FRAG, 2, part))
    client.receive(assemble(PacketType.RESPONSE, 0, 2, part))
    with pytest.raises(RemoteProtocolError, match="10000"):
        client.receive(assemble(PacketType.RESPONSE, 0, 2, part))
