"""Automation values as octets, checked with Wireshark's dissectors.

The dissectors were made from captures of Windows. The conversation is written to a capture file: a
bind, and calls of IDispatch::Invoke whose argument is also their result.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

from lanner.com.automation.stubs import stub_of
from lanner.com.automation.types import DispParams, ExcepInfo
from lanner.com.automation.values import SafeArray, Variant
from lanner.com.constants import IID_IDISPATCH, S_OK
from lanner.com.members import IDISPATCH
from lanner.com.orpc import ORPCTHAT, ORPCTHIS, OrpcThat, OrpcThis
from lanner.rpc.ndr import Encoder
from lanner.rpc.pdu import (
    NDR20,
    PFC_OBJECT_UUID,
    PFC_WHOLE,
    Bind,
    BindAck,
    ContextAnswer,
    ContextElement,
    ContextResult,
    PacketType,
    Request,
    Response,
    SyntaxId,
    assemble,
)
from lanner.wire.vartypes import VT
from tests.com.fakes import IID_NULL, NDR
from tests.interop.wireshark import capture_is_missing, shown

PORT = 50000
INVOKE = stub_of(IDISPATCH.by_opnum[6])
IPID = UUID(int=1)
FIELDS = (
    *("dcom.variant_type", "dcom.variant_type32", "dcom.variant_size", "dcom.hresult"),
    *("dcom.sa.dims16", "dcom.sa.features", "dcom.sa.element_size", "dcom.sa.vartype", "dcom.sa.elements"),
    *("dcom.sa.bound_elements", "dcom.sa.low_bound"),
    *("dcom.vt.bstr", "dcom.vt.i1", "dcom.vt.i2", "dcom.vt.i4", "dcom.vt.bool", "_ws.malformed"),
)

# Each with what Wireshark shows of it: of a SAFEARRAY also its form, which is the second of its
# types.
READ = [
    (Variant(VT.I4, -5), "0x0003 0x00000003 3 0x00000000 - - - - - - - - - - -5 - -"),
    (Variant(VT.I2, 7), "0x0002 0x00000002 3 0x00000000 - - - - - - - - - 7 - - -"),
    (Variant(VT.BOOL, value=True), "0x000b 0x0000000b 3 0x00000000 - - - - - - - - - - - 0xffff -"),
    (Variant(VT.BSTR, "hello"), "0x0008 0x00000008 6 0x00000000 - - - - - - - ,hello - - - - -"),
    (Variant(VT.ERROR, 5), "0x000a 0x0000000a 3 0x00000005,0x00000000 - - - - - - - - - - - - -"),
    (Variant(VT.DATE, 25569.0), "0x0007 0x00000007 4 0x00000000 - - - - - - - - - - - - -"),
    (Variant(VT.CY, 52500), "0x0006 0x00000006 4 0x00000000 - - - - - - - - - - - - -"),
    (
        Variant(VT.ARRAY | VT.UI1, b"abc"),
        "0x2011 0x00002000 9 0x00000000 1 0x0080 1 17,16 3 3 0 - 97,98,99 - - - -",
    ),
    (
        Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, ["alpha", "beta"])),
        "0x2008 0x00002000 15 0x00000000 1 0x0180 4 8,8 2 2 0 ,alpha,,beta - - - - -",
    ),
    (
        Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, [])),
        "0x2008 0x00002000 9 0x00000000 1 0x0180 4 8,8 0 0 0 - - - - - -",
    ),
    (
        # Its bounds, in reverse order.
        Variant(VT.ARRAY | VT.I4, SafeArray(VT.I4, (1, 2, 3, 4, 5, 6), ((2, 0), (3, 1)))),
        "0x2003 0x00002000 13 0x00000000 2 0x0080 4 3,3 6 3,2 1,0 - - - 1,2,3,4,5,6 - -",
    ),
]


def request(call_id: int, variant: Variant) -> bytes:
    encoder = Encoder(NDR)
    ORPCTHIS.encode(encoder, OrpcThis.of(IPID))
    INVOKE.encode_request(encoder, [0, IID_NULL, 0, 1, DispParams.of((variant,)), 0, (), ()])
    front = Request(encoder.position, 0, 6, IPID).pack_front()
    return assemble(PacketType.REQUEST, PFC_WHOLE | PFC_OBJECT_UUID, call_id, front + encoder.getvalue())


def response(call_id: int, variant: Variant) -> bytes:
    encoder = Encoder(NDR)
    ORPCTHAT.encode(encoder, OrpcThat())
    INVOKE.encode_response(encoder, [variant, ExcepInfo(), 0, ()], S_OK, [0] * 8)
    front = Response(encoder.position, 0).pack_front()
    return assemble(PacketType.RESPONSE, PFC_WHOLE, call_id, front + encoder.getvalue())


def capture(pdus: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A capture file of raw IP (link type 101) with what client and server send in turns."""
    parts = [struct.pack("<IHHiIII", 0xA1B2_C3D4, 2, 4, 0, 0, 0xFFFF, 101)]
    sent = [0, 0]
    for pair in pdus:
        for side, data in enumerate(pair):
            ports = (PORT + 1, PORT) if side == 0 else (PORT, PORT + 1)
            tcp = struct.pack(">HHIIBBHHH", *ports, sent[side], sent[1 - side], 0x50, 0x18, 0xFFFF, 0, 0)
            hosts = bytes([127, 0, 0, 1 + side, 127, 0, 0, 2 - side])
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(data), 0, 0, 64, 6, 0) + hosts
            parts += [struct.pack("<IIII", 0, 0, 40 + len(data), 40 + len(data)), ip, tcp, data]
            sent[side] += len(data)
    return b"".join(parts)


def test_wireshark_reads_our_variants_and_safearrays(tmp_path: Path) -> None:
    missing = capture_is_missing()
    if missing is not None:
        pytest.skip(missing)
    bind = Bind(5840, 5840, 0, (ContextElement(0, SyntaxId(IID_IDISPATCH), (NDR20,)),))
    bind_ack = BindAck(5840, 5840, 1, str(PORT), (ContextAnswer(ContextResult.ACCEPTANCE, 0, NDR20),))
    pdus = [(bind.pack(PacketType.BIND, PFC_WHOLE, 1), bind_ack.pack(PacketType.BIND_ACK, PFC_WHOLE, 1))]
    pdus += [(request(number, variant), response(number, variant)) for number, (variant, _) in enumerate(READ, 2)]
    path = tmp_path / "invoke.pcap"
    path.write_bytes(capture(pdus))
    responses = shown(path, "dcerpc.opnum == 6 && dcerpc.pkt_type == 2", *FIELDS, port=PORT)
    assert [[each or "-" for each in line.split("\t")] for line in responses] == [wanted.split() for _, wanted in READ]
    requests = shown(path, "dcerpc.opnum == 6 && dcerpc.pkt_type == 0", "dcom.variant_type", "_ws.malformed", port=PORT)
    assert requests == [f"{variant.vt:#06x}\t" for variant, _ in READ]
