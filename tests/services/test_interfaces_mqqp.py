"""qm2qm as MS-MQQP declares it.

Covered: the octets of its structures in both syntaxes, its opnums, and the strict checks.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from lanner.rpc.ndr import NULL_HANDLE, BadStub, Encoder, Syntax, representation
from lanner.services.interfaces import mqqp
from lanner.services.interfaces.mqqp import QM2QM, RemoteReadAck, RemoteReadDesc, RemoteReadDesc2
from tests.rpc.context_handles import context_handles
from tests.services.calls import REPLY, REQUEST
from tests.statuses import MQ_ERROR_IO_TIMEOUT

NUMBERS = struct.pack("<9I", 11, 12, 13, 14, 3, 15, 16, 1, 17)
DESC = RemoteReadDesc(11, 12, 13, 14, 3, 15, 16, 1, 17, RemoteReadAck.RR_ACK, b"abc")
NDR20_FLAT = NUMBERS + bytes.fromhex("0200 0000 00000200")
NDR20_BUFFER = struct.pack("<3I", 3, 0, 3) + b"abc"
NDR64_FLAT = NUMBERS + bytes.fromhex("02000000 0000020000000000")
NDR64_BUFFER = struct.pack("<3Q", 3, 0, 3) + b"abc"


def start_receive(stub: bytes, syntax: Syntax = Syntax.NDR20) -> RemoteReadDesc:
    desc = mqqp.REMOTE_QM_START_RECEIVE.decode_request(stub, syntax)["lp_remote_read_desc"]
    assert isinstance(desc, RemoteReadDesc)
    return desc


def test_the_interface() -> None:
    assert (QM2QM.uuid, QM2QM.version) == (UUID("1088a980-eae5-11d0-8d9b-00a02453c337"), (1, 0))
    assert QM2QM.syntaxes == (Syntax.NDR20, Syntax.NDR64)


@pytest.mark.spec("MQQP-3.1.4-2")
def test_the_methods_and_their_opnums() -> None:
    assert [method and method.name for method in QM2QM.methods] == [
        "RemoteQMStartReceive",
        "RemoteQMEndReceive",
        "RemoteQMOpenQueue",
        "RemoteQMCloseQueue",
        "RemoteQMCloseCursor",
        "RemoteQMCancelReceive",
        "RemoteQMPurgeQueue",
        "RemoteQMGetQMQMServerPort",
        "RemoteQmGetVersion",
        "RemoteQMStartReceive2",
        "RemoteQMStartReceiveByLookupId",
    ]
    assert QM2QM.method(11) is None


@pytest.mark.spec("MQQP-2.2.2.1-1")
def test_a_descriptor_in_ndr() -> None:
    assert len(NDR20_FLAT) == 44
    assert start_receive(NDR20_FLAT + NDR20_BUFFER) == DESC
    assert mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": DESC}) == NDR20_FLAT + NDR20_BUFFER
    # The gap behind eAckNack means nothing.
    assert start_receive(NDR20_FLAT[:38] + b"\xff\xff" + NDR20_FLAT[40:] + NDR20_BUFFER) == DESC


@pytest.mark.spec("MQQP-2.2.2.1-2")
def test_a_descriptor_in_ndr64() -> None:
    assert len(NDR64_FLAT) == 48
    assert start_receive(NDR64_FLAT + NDR64_BUFFER, Syntax.NDR64) == DESC
    stub = mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": DESC}, Syntax.NDR64)
    assert stub == NDR64_FLAT + NDR64_BUFFER


@pytest.mark.spec("MQQP-2.2.1.3-1")
@pytest.mark.parametrize(("number", "name"), [(0, "RR_UNKNOWN"), (1, "RR_NACK"), (2, "RR_ACK")])
def test_an_acknowledgment_has_two_octets_in_ndr_and_four_in_ndr64(number: int, name: str) -> None:
    assert RemoteReadAck(number).name == name
    desc = replace(REQUEST, e_ack_nack=number)
    stub = mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": desc})
    assert stub[36:] == struct.pack("<HxxI", number, 0)
    # In NDR the two octets after it are a gap.
    assert start_receive(stub[:38] + b"\xff\xff" + stub[40:]) == desc
    stub = mqqp.REMOTE_QM_START_RECEIVE.encode_request({"lp_remote_read_desc": desc}, Syntax.NDR64)
    assert stub[36:] == struct.pack("<IQ", number, 0)
    assert start_receive(stub[:38] + b"\xff\xff" + stub[40:], Syntax.NDR64) != desc


@pytest.mark.spec("MQQP-2.2.2.1-3")
def test_a_size_above_the_limit_is_refused() -> None:
    def stub(size: int) -> bytes:
        return struct.pack("<9IHxxI", 1, 0, 0, 0, size, 1, 1, 0, 0, 0, 0x20000) + struct.pack("<3I", size, 0, size)

    largest = 4325376
    assert len(start_receive(stub(largest) + bytes(largest)).lp_buffer or b"") == largest
    with pytest.raises(BadStub, match=r"dw_size: 4325377 is outside 0\.\.4325376") as refused:
        start_receive(stub(largest + 1) + bytes(largest + 1))
    assert refused.value.status == 0x6F7


@pytest.mark.spec("MQQP-2.2.2.1-4")
@pytest.mark.parametrize(("syntax", "word"), [(Syntax.NDR20, "I"), (Syntax.NDR64, "Q")])
def test_counts_unlike_the_size_are_refused(syntax: Syntax, word: str) -> None:
    flat = NDR20_FLAT if syntax is Syntax.NDR20 else NDR64_FLAT
    octets = b"abcdefgh"
    assert start_receive(flat + struct.pack(f"<3{word}", 3, 0, 3) + octets, syntax) == DESC
    for counts in [(2, 0, 2), (4, 0, 3), (3, 0, 2), (3, 0, 4), (3, 1, 2), (3, 1, 3), (0, 0, 0), (0xFFFF_FFFF, 0, 3)]:
        with pytest.raises(BadStub) as refused:
            start_receive(flat + struct.pack(f"<3{word}", *counts) + octets, syntax)
        assert refused.value.status == 0x6F7
    with pytest.raises(BadStub, match="lp_buffer: NULL where 3 elements"):
        start_receive(flat[: -8 if syntax is Syntax.NDR64 else -4] + bytes(8), syntax)


@pytest.mark.spec("MQQP-2.2.2.2-1")
def test_the_second_descriptor() -> None:
    """The second descriptor is aligned to 8.

    After the 20 octets of a context handle come four of padding, and in NDR four more after the
    identifier.
    """
    value = RemoteReadDesc2(DESC, 0x1122334455667788)
    number = value.sequential_id.to_bytes(8, "little")
    arguments = {"lp_remote_read_desc2": RemoteReadDesc2(REQUEST, 0)}
    results = {"pph_context": NULL_HANDLE, "lp_remote_read_desc2": value, "returns": 0}
    response = mqqp.REMOTE_QM_START_RECEIVE2.encode_response(results, arguments)
    second = NDR20_FLAT[:40] + bytes.fromhex("04000200")
    assert response == bytes(24) + bytes.fromhex("00000200 00000000") + number + second + NDR20_BUFFER + bytes(5)
    assert mqqp.REMOTE_QM_START_RECEIVE2.decode_response(response, arguments) == results
    response = mqqp.REMOTE_QM_START_RECEIVE2.encode_response(results, arguments, Syntax.NDR64)
    second = NDR64_FLAT[:40] + bytes.fromhex("0400020000000000")
    assert response == bytes(24) + bytes.fromhex("0000020000000000") + number + second + NDR64_BUFFER + bytes(5)
    assert mqqp.REMOTE_QM_START_RECEIVE2.decode_response(response, arguments, Syntax.NDR64) == results
    for syntax in Syntax:
        encoder = Encoder(representation(syntax))
        mqqp.REMOTEREADDESC2.encode(encoder, replace(value, p_remote_read_desc=None))
        assert encoder.position == 16


@pytest.mark.spec("MQQP-2.2.2.2-2")
@pytest.mark.parametrize("syntax", Syntax)
def test_a_second_descriptor_may_point_nowhere(syntax: Syntax) -> None:
    arguments = mqqp.REMOTE_QM_START_RECEIVE2.decode_request(bytes(8) + b"\x05" + bytes(7), syntax)
    assert arguments == {"lp_remote_read_desc2": RemoteReadDesc2(None, 5)}


@pytest.mark.spec("MQQP-3.1.4-1")
def test_a_truncated_request_is_refused_and_gaps_are_ignored() -> None:
    arguments = {"lp_remote_read_desc2": RemoteReadDesc2(REQUEST, 0)}
    whole = mqqp.REMOTE_QM_START_RECEIVE2.encode_request(arguments)
    for size in range(len(whole)):
        with pytest.raises(BadStub) as refused:
            mqqp.REMOTE_QM_START_RECEIVE2.decode_request(whole[:size])
        assert refused.value.status == 0x6F7
    assert whole[4:8] == bytes(4)
    assert mqqp.REMOTE_QM_START_RECEIVE2.decode_request(whole[:4] + b"\xff\xff\xff\xff" + whole[8:]) == arguments


@pytest.mark.spec("MQQP-3.1.4.3-1")
def test_the_range_of_dw_mqs() -> None:
    def stub(dw_mqs: int) -> bytes:
        return bytes(16) + struct.pack("<4I", dw_mqs, 7, 7, 7)

    assert mqqp.REMOTE_QM_OPEN_QUEUE.decode_request(stub(16))["dw_mqs"] == 16
    for number in (17, 0xFFFF_FFFF):
        with pytest.raises(BadStub, match="dw_mqs") as refused:
            mqqp.REMOTE_QM_OPEN_QUEUE.decode_request(stub(number))
        assert refused.value.status == 0x6F7


def test_the_range_of_dw_ack() -> None:
    """MS-MQQP 3.1.4.2: [range(1,2)]."""
    for number in (1, 2):
        assert mqqp.REMOTE_QM_END_RECEIVE.decode_request(bytes(20) + struct.pack("<I", number))["dw_ack"] == number
    for number in (0, 3):
        with pytest.raises(BadStub, match="dw_ack"):
            mqqp.REMOTE_QM_END_RECEIVE.decode_request(bytes(20) + struct.pack("<I", number))


@pytest.mark.spec("MQQP-3.1.4.8-4")
def test_the_range_of_dw_port_type() -> None:
    for number in range(4):
        stub = struct.pack("<I", number)
        assert mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT.decode_request(stub) == {"dw_port_type": number}
    for number in (4, 0xFFFF_FFFF):
        with pytest.raises(BadStub, match="dw_port_type") as refused:
            mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT.decode_request(struct.pack("<I", number))
        assert refused.value.status == 0x6F7


def test_a_version_is_four_octets() -> None:
    """MS-MQQP 3.1.4.9: void, so nothing follows the build number."""
    for syntax in Syntax:
        results: dict[str, Any] = {"p_major": 6, "p_minor": 1, "p_build_number": 7601}
        assert mqqp.REMOTE_QM_GET_VERSION.encode_response(results, {}, syntax) == bytes.fromhex("06 01 b11d")


def test_each_kind_of_handle_has_its_name() -> None:
    """MS-MQQP 2.2.1.1, 2.2.1.2: a session handle is no read handle."""
    kinds = {
        method.name: handle.kind for method in QM2QM.methods if method for handle in context_handles(method).values()
    }
    assert kinds == {
        "RemoteQMStartReceive": "PCTX_REMOTEREAD_HANDLE_TYPE",
        "RemoteQMEndReceive": "PCTX_REMOTEREAD_HANDLE_TYPE",
        "RemoteQMOpenQueue": "PCTX_RRSESSION_HANDLE_TYPE",
        "RemoteQMCloseQueue": "PCTX_RRSESSION_HANDLE_TYPE",
        "RemoteQMStartReceive2": "PCTX_REMOTEREAD_HANDLE_TYPE",
        "RemoteQMStartReceiveByLookupId": "PCTX_REMOTEREAD_HANDLE_TYPE",
    }


def test_what_a_failed_receive_leaves_out() -> None:
    """The handle is NULL, and the descriptor goes back as it came."""
    arguments = {"lp_remote_read_desc": REQUEST}
    response = mqqp.REMOTE_QM_START_RECEIVE.encode_response({"returns": MQ_ERROR_IO_TIMEOUT}, arguments)
    assert mqqp.REMOTE_QM_START_RECEIVE.decode_response(response, arguments) == {
        "pph_context": NULL_HANDLE,
        "lp_remote_read_desc": REQUEST,
        "returns": MQ_ERROR_IO_TIMEOUT,
    }


def test_a_buffer_unlike_its_size_is_not_sent() -> None:
    for wrong in (replace(REPLY, dw_size=4), replace(REPLY, lp_buffer=None), replace(REPLY, dw_size=0x42_0001)):
        with pytest.raises(ValueError, match=r"RemoteQMStartReceive response: .*(lp_buffer|dw_size)"):
            mqqp.REMOTE_QM_START_RECEIVE.encode_response(
                {"lp_remote_read_desc": wrong, "returns": 0}, {"lp_remote_read_desc": REQUEST}
            )
