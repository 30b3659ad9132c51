"""Bodies as clients write and read them (MC-MQAC 3.17.4.1.20 to 3.17.4.1.22).

The tests go down to the octets of the packet.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.activex.collection import MSMQCollection
from lanner.activex.message_body import decode_body, encode_body
from lanner.com.automation.values import EMPTY, MISSING, NULL, SafeArray, Variant
from lanner.com.constants import E_INVALIDARG, E_NOINTERFACE
from lanner.com.objects import ComError
from lanner.wire.vartypes import VT
from tests.activex.messages import BYTES, create, new_message, octets, packet, receive, send, text
from tests.activex.world import World

# A value of each type and its octets.
BODIES: list[tuple[int, Any, bytes]] = [
    (VT.I1, -2, b"\xfe"),
    (VT.UI1, 254, b"\xfe"),
    (VT.I2, -2, b"\xfe\xff"),
    (VT.UI2, 0xFFFE, b"\xfe\xff"),
    (VT.I4, -2, b"\xfe\xff\xff\xff"),
    (VT.UI4, 0x01020304, b"\x04\x03\x02\x01"),
    (VT.R4, 1.5, b"\x00\x00\xc0\x3f"),
    (VT.R8, -1.5, b"\x00\x00\x00\x00\x00\x00\xf8\xbf"),
    (VT.CY, 12_3456, b"\x40\xe2\x01\x00\x00\x00\x00\x00"),
    (VT.DATE, 25569.5, b"\x00\x00\x00\x00\x60\xf8\xd8\x40"),
    (VT.BOOL, True, b"\xff\xff"),
    (VT.BOOL, False, b"\x00\x00"),
    (VT.BSTR, "a\u20ac", b"a\x00\xac\x20"),
    (VT.BSTR, "", b""),
    (BYTES, b"\x00\x01\xff", b"\x00\x01\xff"),
    (BYTES, b"", b""),
]


@pytest.mark.spec("MQAC-3.17.4.1.20-1")
@pytest.mark.spec("MQAC-3.17.4.1.21-1")
@pytest.mark.spec("MQAC-3.17.4.1.22-1")
@pytest.mark.spec("MQAC-3.17.4.1.22-3")
@pytest.mark.spec("MQAC-3.17.4.1.22-4")
@pytest.mark.spec("MQAC-3.17.4.1.22-5")
@pytest.mark.parametrize(("vt", "value", "stored"), BODIES)
def test_each_type_goes_through_a_queue_and_comes_back(world: World, vt: int, value: object, stored: bytes) -> None:
    name = create(world)
    message = new_message(world, Variant(vt, value))
    assert world.call(message, "get_body_length") == len(stored)
    send(world, message, name)
    kept = packet(world, name)
    assert (kept.body, kept.body_type) == (stored, vt)
    found = receive(world, name)
    assert world.call(found, "get_body") == Variant(vt, value)
    assert world.call(found, "get_body_length") == len(stored)


@pytest.mark.spec("MQAC-3.17.4.1.22-2")
@pytest.mark.parametrize(
    "refused",
    [
        EMPTY,
        NULL,
        MISSING,
        Variant(VT.DECIMAL, 1),
        Variant(VT.I8, 1),
        Variant(VT.UI8, 1),
        Variant(VT.ARRAY | VT.I4, SafeArray.of(VT.I4, [1])),
        Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, ["a"])),
        Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [EMPTY])),
        Variant(BYTES, SafeArray(VT.UI1, b"ab", ((1, 0), (2, 0)))),
        Variant(VT.I4, 1 << 40),
    ],
)
def test_another_type_is_refused_and_the_old_body_stays(world: World, refused: Variant) -> None:
    message = new_message(world, text("old"))
    assert world.status(message, "put_body", refused) == E_INVALIDARG
    assert world.call(message, "get_body") == text("old")
    assert world.call(message, "get_body_length") == 6


@pytest.mark.parametrize("vt", [VT.UNKNOWN, VT.DISPATCH])
def test_an_object_that_cannot_save_itself_is_no_body(world: World, vt: VT) -> None:
    message = new_message(world, text("old"))
    for value in (MSMQCollection(world.environment), None):
        assert world.status(message, "put_body", Variant(vt, value)) == E_NOINTERFACE
    assert world.call(message, "get_body") == text("old")


@pytest.mark.spec("MQAC-3.17.4.1.21-2")
@pytest.mark.parametrize("body_type", [0, VT.DISPATCH, VT.UNKNOWN, VT.DECIMAL, 30, 31, 0xFFFF_FFFF])
def test_a_type_that_is_none_of_ours_reads_as_octets(world: World, body_type: int) -> None:
    name = create(world)
    with world.held() as h:
        h.send("q", b"\x01\x02\x03", body_type=body_type)
    assert world.call(receive(world, name), "get_body") == octets(b"\x01\x02\x03")


@pytest.mark.parametrize(
    ("body_type", "body"), [(VT.I4, b"\x01\x02\x03"), (VT.BSTR, b"abc"), (VT.BOOL, b""), (VT.R8, bytes(9))]
)
def test_octets_that_do_not_fit_their_type_are_octets(body_type: int, body: bytes) -> None:
    assert decode_body(body, body_type) == octets(body)


@pytest.mark.parametrize("vt", [VT.BSTR | VT.BYREF, VT.VARIANT | VT.BYREF])
def test_a_variable_of_a_script_is_its_value(vt: int) -> None:
    value = text("seen") if vt & ~VT.BYREF == VT.VARIANT else "seen"
    assert encode_body(Variant(vt, value)) == ("seen".encode("utf-16-le"), VT.BSTR)


def test_no_text_and_no_octets_are_empty_bodies() -> None:
    assert encode_body(Variant(VT.BSTR, None)) == (b"", VT.BSTR)
    assert encode_body(Variant(BYTES, None)) == (b"", BYTES)


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_comes_back(value: str) -> None:
    body, body_type = encode_body(Variant(VT.BSTR, value))
    assert decode_body(body, body_type) == Variant(VT.BSTR, body.decode("utf-16-le", "surrogatepass"))


@given(st.binary(), st.integers(0, 0xFFFF_FFFF) | st.sampled_from([*VT, BYTES]))
def test_whatever_is_stored_can_be_read(body: bytes, body_type: int) -> None:
    found = decode_body(body, body_type)
    assert found.vt in (body_type, BYTES)
    if found.vt == BYTES:
        assert found.value == body


@given(st.sampled_from(list(VT)), st.none() | st.integers() | st.floats() | st.text() | st.binary())
def test_whatever_is_put_is_taken_or_refused(vt: VT, value: object) -> None:
    """A value whose type is not that of its variant cannot arrive over the wire.

    Such values are the marshaler's business.
    """
    if vt == VT.BSTR and not isinstance(value, (str, type(None))):
        return
    try:
        body, body_type = encode_body(Variant(vt, value))
    except ComError as error:
        refused = error.hresult
    else:
        refused = 0
        assert body_type == vt
        assert isinstance(body, bytes)
    assert refused in (0, E_INVALIDARG, E_NOINTERFACE)
