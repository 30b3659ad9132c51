"""qmmgmt as MS-MQMR declares it: the octets of each structure, and what strict checks refuse."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest

from lanner.rpc.ndr import BadStub, Syntax
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from lanner.services.interfaces.mqmr import (
    MGMT_OBJECT,
    QMMGMT,
    R_QM_MGMT_ACTION,
    R_QM_MGMT_GET_INFO,
    MgmtObject,
    MgmtObjectType,
)
from lanner.wire.format_name import QueueFormatType
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.rpc.context_handles import context_handles
from tests.statuses import MQ_ERROR, MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
GUID_OCTETS = bytes.fromhex("33221100554477668899aabbccddeeff")
MACHINE = bytes.fromhex("01000100 00000000")


def wide(text: str) -> bytes:
    """A conformant varying string: max count, offset, actual count, characters."""
    size = len(text) + 1
    return struct.pack("<III", size, 0, size) + (text + "\0").encode("utf-16-le")


ACTION = wide("TIDY")


def action(mgmt_object: bytes) -> dict[str, Any]:
    """Read an R_QMMgmtAction request whose object is these octets, a multiple of four."""
    return R_QM_MGMT_ACTION.decode_request(mgmt_object + ACTION)


def queue(octets: str | bytes) -> bytes:
    """A queue object: type, tag, referent identifier, then QUEUE_FORMAT."""
    octets = octets if isinstance(octets, bytes) else bytes.fromhex(octets)
    return bytes.fromhex("02000200 00000200") + octets + bytes(-len(octets) % 4)


def get_info(cp: int, properties: list[int], variants: bytes, *, count: int | None = None) -> bytes:
    """Return an R_QMMgmtGetInfo request for the machine with the octets of its variants.

    The variants begin at a multiple of eight.
    """
    size = len(properties)
    head = MACHINE + struct.pack(f"<II{size}II", cp, size, *properties, size if count is None else count)
    return head + bytes(-len(head) % 8) + variants


# vt, wReserved1 to 3, tag; the next element begins at a multiple of eight.
VT_NULL = bytes.fromhex("0100 00 00 00000000 0100")


def test_the_methods_and_their_opnums() -> None:
    """Opnum 2 and above have no method: nca_op_rng_error is all there is to answer."""
    assert [method and method.name for method in QMMGMT.methods] == ["R_QMMgmtGetInfo", "R_QMMgmtAction"]
    assert QMMGMT.method(0) is R_QM_MGMT_GET_INFO
    assert QMMGMT.method(1) is R_QM_MGMT_ACTION
    assert QMMGMT.method(2) is None
    assert QMMGMT.method(0xFFFF) is None


def test_the_interface() -> None:
    assert (QMMGMT.uuid, QMMGMT.version) == (UUID("41208ee0-e970-11d1-9b9e-00e02c064c39"), (1, 0))
    assert QMMGMT.syntaxes == (Syntax.NDR20,)


@pytest.mark.spec("MQMR-3.1.4-3")
def test_no_method_takes_a_context_handle() -> None:
    assert all(method is not None and not context_handles(method) for method in QMMGMT.methods)


@pytest.mark.spec("MQMR-2.2.1.2-1", "MQMR-2.1-4")
def test_an_object_is_eight_octets_and_begins_the_stub() -> None:
    """The handle hBind has no octets; pObjectFormat, a ref pointer, no referent identifier."""
    expected = {"p_object_format": MgmtObject(1, 0x12345678), "lpwsz_action": "TIDY"}
    octets = bytes.fromhex("0100 0100 78563412") + ACTION
    assert R_QM_MGMT_ACTION.decode_request(octets) == expected
    assert R_QM_MGMT_ACTION.encode_request(expected) == octets


@pytest.mark.spec("MQMR-2.2.2.1-1")
@pytest.mark.parametrize(("number", "kind"), [(1, "MACHINE"), (2, "QUEUE"), (3, "SESSION")])
def test_the_type_of_an_object_has_two_octets(number: int, kind: str) -> None:
    assert MgmtObjectType(number).name == f"MGMT_{kind}"
    octets = struct.pack("<HHI", number, number, 0)
    assert action(octets)["p_object_format"] == MgmtObject(number, None if kind == "QUEUE" else 0)


@pytest.mark.spec("MQMR-2.2.1.2-2")
@pytest.mark.parametrize("octets", ["0100 0200 00000000", "0200 0100 00000000", "0100 0000 00000000"])
def test_a_tag_unlike_the_type_is_refused(octets: str) -> None:
    with pytest.raises(BadStub, match="union tag") as refused:
        action(bytes.fromhex(octets))
    assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-2.2.1.2-3")
@pytest.mark.parametrize("number", [0, 4, 0x7FFF, 0xFFFF])
def test_a_type_without_an_arm_is_refused(number: int) -> None:
    with pytest.raises(BadStub, match="no arm") as refused:
        action(struct.pack("<HHI", number, number, 0))
    assert refused.value.status == 0x6F7


def test_a_queue_object_may_point_nowhere() -> None:
    """MS-MQMR 2.2.1.2: the pointer is unique, so a NULL reaches the method."""
    assert action(bytes.fromhex("0200 0200 00000000"))["p_object_format"] == MgmtObject(2, None)


QUEUE_FORMATS = [
    (QueueFormat(0, 0, 0, None), "00 00 0000 00"),
    (QueueFormat(1, 0x81, 0, GUID), "01 81 0000 01 000000" + GUID_OCTETS.hex()),
    (QueueFormat(2, 0, 7, MessageIdentifier(GUID, 12)), "02 00 0700 02 000000" + GUID_OCTETS.hex() + "0c000000"),
    (QueueFormat(3, 0, 0, "OS:a"), "03 00 0000 03 000000 04000200" + wide("OS:a").hex()),
    (QueueFormat(3, 0, 0, None), "03 00 0000 03 000000 00000000"),
    (QueueFormat(4, 0x82, 0, GUID), "04 82 0000 04 000000" + GUID_OCTETS.hex()),
    (QueueFormat(5, 0, 0, GUID), "05 00 0000 05 000000" + GUID_OCTETS.hex()),
    (
        QueueFormat(6, 0, 0, DlId(GUID, "d.e")),
        "06 00 0000 06 000000" + GUID_OCTETS.hex() + "04000200" + wide("d.e").hex(),
    ),
    (QueueFormat(6, 0, 0, DlId(GUID, None)), "06 00 0000 06 000000" + GUID_OCTETS.hex() + "00000000"),
    (QueueFormat(7, 0, 0, MulticastId(0xEF010203, 8001)), "07 00 0000 07 000000 030201ef 411f0000"),
    (QueueFormat(8, 5, 0, "OS:a;s"), "08 05 0000 08 000000 04000200" + wide("OS:a;s").hex()),
]


@pytest.mark.spec("MQMR-2.2.1.5-1", "MQMR-2.2.1.1-1")
@pytest.mark.parametrize(("queue_format", "octets"), QUEUE_FORMATS, ids=lambda each: str(each)[:30])
def test_the_octets_of_each_queue_format(queue_format: QueueFormat, octets: str) -> None:
    """The tag is one octet, three follow as a gap, then the arm; an empty arm ends with the tag."""
    expected = {"p_object_format": MgmtObject(2, queue_format), "lpwsz_action": "TIDY"}
    assert R_QM_MGMT_ACTION.decode_request(queue(octets) + ACTION) == expected
    assert R_QM_MGMT_ACTION.encode_request(expected) == queue(octets) + ACTION


@pytest.mark.spec("MQMR-2.2.1.5-1")
def test_a_gap_may_hold_anything() -> None:
    """MS-RPCE 3.1.1.5.3.2.2.6."""
    octets = "07 00 0000 07 c0ffee 030201ef 411f0000"
    assert action(queue(octets))["p_object_format"].u == QueueFormat(7, 0, 0, MulticastId(0xEF010203, 8001))


@pytest.mark.spec("MQMR-2.2.1.5-1")
def test_a_tag_unlike_m_qft_is_refused() -> None:
    with pytest.raises(BadStub, match="union tag 4, its correlated value 1") as refused:
        action(queue(bytes.fromhex("01 00 0000 04 000000") + GUID_OCTETS))
    assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-2.2.2.2-1")
def test_the_tags_of_a_queue_format() -> None:
    assert [int(kind) for kind in QueueFormatType] == list(range(9))
    # Each of them is among the formats that were read and written above.
    assert {queue_format.m_qft for queue_format, _ in QUEUE_FORMATS} == set(range(9))
    for number in (9, 10, 0x80, 0xFF):
        with pytest.raises(BadStub, match="no arm") as refused:
            action(queue(struct.pack("<BBHB", number, 0, 0, number)))
        assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-3.1.4.1-1")
def test_a_request_asks_for_1_to_128_properties() -> None:
    for cp in (1, 128):
        stub = get_info(cp, [1] * cp, b"".join([VT_NULL + bytes(6)] * cp))
        assert R_QM_MGMT_GET_INFO.decode_request(stub)["cp"] == cp
    for cp in (0, 129):
        with pytest.raises(BadStub, match=r"cp: (0|129) is outside 1\.\.128") as refused:
            R_QM_MGMT_GET_INFO.decode_request(get_info(cp, [1] * cp, b"".join([VT_NULL + bytes(6)] * cp)))
        assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-3.1.4-1")
def test_counts_unlike_cp_are_refused() -> None:
    two = VT_NULL + bytes(6) + VT_NULL
    assert R_QM_MGMT_GET_INFO.decode_request(get_info(2, [1, 2], two))["ap_var"] == (NULL, NULL)
    with pytest.raises(BadStub, match="a_prop: max count is 1, its correlated value 2"):
        R_QM_MGMT_GET_INFO.decode_request(get_info(2, [1], two, count=2))
    for count in (0, 1, 3):
        with pytest.raises(BadStub, match="ap_var: max count"):
            R_QM_MGMT_GET_INFO.decode_request(get_info(2, [1, 2], two + bytes(6) + VT_NULL, count=count))


@pytest.mark.spec("MQMR-3.1.4-1")
def test_a_truncated_stub_is_refused() -> None:
    whole = get_info(2, [1, 2], VT_NULL + bytes(6) + VT_NULL)
    for size in range(len(whole)):
        with pytest.raises(BadStub) as refused:
            R_QM_MGMT_GET_INFO.decode_request(whole[:size])
        assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-3.1.4-2")
def test_a_count_without_an_array_is_refused() -> None:
    """MS-RPCE 3.1.1.5.3.3.1.2, in a BLOB and in a counted array, alone or nested."""
    blob = bytes.fromhex("4100 00 00 00000000 4100 0000")
    empty = get_info(1, [1], blob + struct.pack("<II", 0, 0))
    assert R_QM_MGMT_GET_INFO.decode_request(empty)["ap_var"] == (PropVariant(VT.BLOB, b""),)
    strings = bytes.fromhex("1f10 00 00 00000000 1f10 0000")
    nested = bytes.fromhex("0c10 00 00 00000000 0c10 0000") + struct.pack("<III", 1, 0x20000, 1)
    for variant in (blob, strings, nested + blob):
        with pytest.raises(BadStub, match="NULL where 4 elements") as refused:
            R_QM_MGMT_GET_INFO.decode_request(get_info(1, [1], variant + struct.pack("<II", 4, 0)))
        assert refused.value.status == 0x6F7


@pytest.mark.spec("MQMR-3.2.4-2")
def test_a_reply_is_checked_as_strictly() -> None:
    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (1,), "ap_var": (NULL,)}
    good = R_QM_MGMT_GET_INFO.encode_response({"ap_var": (PropVariant(VT.BLOB, b"abcd"),), "returns": 0}, arguments)
    assert R_QM_MGMT_GET_INFO.decode_response(good, arguments)["ap_var"] == (PropVariant(VT.BLOB, b"abcd"),)
    without_array = good[:24] + bytes(4) + good[36:]
    more = good + bytes(16)
    for bad in (without_array, good[:-1], more, struct.pack("<I", 2) + good[4:], good[:28] + b"\x05" + good[29:]):
        with pytest.raises(BadStub):
            R_QM_MGMT_GET_INFO.decode_response(bad, arguments)


@pytest.mark.spec("MQMR-3.1.4.1-12")
def test_the_variants_of_a_reply() -> None:
    """The layout of the variants of a reply.

    First the max count, then the elements at multiples of eight, each with its type again as a tag.
    Then come all referents, and then the HRESULT.
    """
    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 4, "a_prop": (3, 6, 1, 2), "ap_var": (NULL,) * 4}
    answer = (
        PropVariant(VT.LPWSTR, "ab"),
        NULL,
        PropVariant(VT.I8, 5),
        PropVariant.vector(VT.LPWSTR, ["c", "d"]),
    )
    octets = R_QM_MGMT_GET_INFO.encode_response(
        {"ap_var": answer, "returns": MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL}, arguments
    )
    expected = [
        "04000000 00000000",
        "1f00 0000 00000000 1f00 0000 00000200",
        "0100 0000 00000000 0100 000000000000",
        "1400 0000 00000000 1400 000000000000 0500000000000000",
        "1f10 0000 00000000 1f10 0000 02000000 04000200",
        # What the first element points to.
        wide("ab").hex() + "0000",
        # The array of the fourth, then what its elements point to.
        "02000000 08000200 0c000200" + wide("c").hex() + wide("d").hex(),
        "09000e40",
    ]
    assert octets == b"".join(map(bytes.fromhex, expected))
    assert R_QM_MGMT_GET_INFO.decode_response(octets, arguments) == {
        "ap_var": answer,
        "returns": MQ_INFORMATION_FORMATNAME_BUFFER_TOO_SMALL,
    }


def test_what_a_failed_call_leaves_out_comes_back_as_it_was_sent() -> None:
    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (1,), "ap_var": (PropVariant(VT.UI4, 9),)}
    octets = R_QM_MGMT_GET_INFO.encode_response({"returns": MQ_ERROR}, arguments)
    assert R_QM_MGMT_GET_INFO.decode_response(octets, arguments) == {
        "ap_var": arguments["ap_var"],
        "returns": MQ_ERROR,
    }


def test_a_last_variant_two_octets_longer_than_needed_is_accepted() -> None:
    octets = get_info(1, [1], VT_NULL + bytes(2))
    assert R_QM_MGMT_GET_INFO.decode_request(octets)["ap_var"] == (NULL,)


def test_variants_nested_too_deep_are_refused() -> None:
    variant = NULL
    for _ in range(30):
        variant = PropVariant.vector(VT.VARIANT, [variant])
    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (1,), "ap_var": (variant,)}
    assert R_QM_MGMT_GET_INFO.decode_request(R_QM_MGMT_GET_INFO.encode_request(arguments)) == arguments
    for _ in range(3):
        variant = PropVariant.vector(VT.VARIANT, [variant])
    with pytest.raises(BadStub, match="nested deeper"):
        R_QM_MGMT_GET_INFO.decode_request(R_QM_MGMT_GET_INFO.encode_request(arguments | {"ap_var": (variant,)}))


def test_nothing_that_breaks_the_declaration_is_sent() -> None:
    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (1,), "ap_var": (NULL,)}
    wrong: list[dict[str, Any]] = [
        {"cp": 2},
        {"cp": 0, "a_prop": (), "ap_var": ()},
        {"a_prop": (1 << 32,)},
        {"p_object_format": MgmtObject(4, 0)},
        {"p_object_format": MgmtObject(2, QueueFormat(3, 0, 0, "a\0b"))},
        {"p_object_format": MgmtObject(2, QueueFormat(0, 0, 0, GUID))},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match="R_QMMgmtGetInfo request"):
            R_QM_MGMT_GET_INFO.encode_request(arguments | change)
    for names in ({}, arguments | {"more": 1}):
        with pytest.raises(TypeError):
            R_QM_MGMT_GET_INFO.encode_request(names)
    assert repr(MGMT_OBJECT) == "MgmtObject"


@pytest.mark.parametrize("vt", [VT.UI2, VT.LPWSTR, VT.VARIANT])
def test_a_request_holds_only_so_many_elements(vt: VT) -> None:
    """A reply may hold as many as there are queues."""
    value = {VT.UI2: 1, VT.LPWSTR: None, VT.VARIANT: NULL}[vt]

    def variant(count: int) -> PropVariant:
        return PropVariant(VT.VECTOR | vt, (value,) * count)

    arguments = {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (1,), "ap_var": (NULL,)}
    # aProp and apVar have an element each.
    most = arguments | {"ap_var": (variant(MAX_REQUEST_ELEMENTS - 2),)}
    assert R_QM_MGMT_GET_INFO.decode_request(R_QM_MGMT_GET_INFO.encode_request(most)) == most
    more = arguments | {"ap_var": (variant(MAX_REQUEST_ELEMENTS - 1),)}
    with pytest.raises(BadStub, match="1 elements too many"):
        R_QM_MGMT_GET_INFO.decode_request(R_QM_MGMT_GET_INFO.encode_request(more))
    results = {"ap_var": (variant(MAX_REQUEST_ELEMENTS + 1),), "returns": 0}
    stub = R_QM_MGMT_GET_INFO.encode_response(results, arguments)
    assert R_QM_MGMT_GET_INFO.decode_response(stub, arguments) == results
