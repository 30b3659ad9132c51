"""The same calls, marshalled by scapy: the octets are the same.

scapy uses the classes that scapy-rpc generated from the published IDL. Scapy is one voice, not an
oracle. Its errors are named in `fault_of_scapy` and left to impacket.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import ContextHandle, Encoder, Octets, Pointed, Struct, Syntax, Type, Union, Value, representation
from lanner.rpc.ndr.arrays import Conformant, ConformantVarying, String
from lanner.rpc.ndr.pointers import Pointer
from lanner.rpc.ndr.stream import UNRELATED, Correlation
from lanner.rpc.ndr.types import Adapted
from lanner.services.interfaces import mqmp, mqmq, mqmr, mqqp, mqrr
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propvariant import PropVariant
from lanner.wire.vartypes import VT, type_name
from tests.services.calls import CALLS, MQRR_CALLS, PLAIN, VARIANTS, Call

pytestmark = pytest.mark.skipif(importlib.util.find_spec("msrpcs") is None, reason="scapy-rpc is not installed")

MODULES = {
    mqmr.QMMGMT: "ms_mqmr",
    mqqp.QM2QM: "ms_mqqp",
    mqrr.REMOTE_READ: "ms_mqrr",
    mqmp.QMCOMM: "ms_mqmp",
    mqmp.QMCOMM2: "ms_mqmp",
}
CLASSES: dict[type, str] = {
    MessageIdentifier: "OBJECTID",
    mqmq.DlId: "DL_ID",
    mqmq.MulticastId: "MULTICAST_ID",
    mqmq.QueueFormat: "QUEUE_FORMAT",
    mqmq._Variant: "tag_inner_PROPVARIANT",
    mqmr.MgmtObject: "MGMT_OBJECT",
    mqqp.RemoteReadDesc: "REMOTEREADDESC",
    mqqp.RemoteReadDesc2: "REMOTEREADDESC2",
    mqmp.ObjectFormat: "OBJECT_FORMAT",
}
COUNTED = {
    VT.BLOB: "BLOB",
    VT.VECTOR | VT.UI1: "CAUB",
    VT.VECTOR | VT.UI2: "CAUI",
    VT.VECTOR | VT.I4: "CAL",
    VT.VECTOR | VT.UI4: "CAUL",
    VT.VECTOR | VT.UI8: "CAUH",
    VT.VECTOR | VT.CLSID: "CACLSID",
    VT.VECTOR | VT.LPWSTR: "CALPWSTR",
    VT.VECTOR | VT.VARIANT: "CAPROPVARIANT",
}


def described(kind: Type, value: Value, related: Correlation = UNRELATED, name: str = "") -> Value:
    """Say a value in the words of the peer."""
    match kind:
        case _ if value is None and not isinstance(kind, Union):
            return None
        case Pointer():
            return described(kind.target, value, related, name)
        case Adapted() if value == Pointed(None):
            return {"pointer": None}
        case Adapted():
            return described(kind._inner, kind._to_inner(value), related, name)
        case Struct():
            fields = [getattr(value, field.name) for field in kind.fields]
            names = {field.name: each for field, each in zip(kind.fields, fields, strict=True)}
            return {
                "class": name or CLASSES.get(kind.cls, kind.cls.__name__),
                "fields": [
                    described(field.type, each, field.related.resolve(names) if field.related else UNRELATED)
                    for field, each in zip(kind.fields, fields, strict=True)
                ],
            }
        case Union():
            assert related.switch is not None
            arm = kind.arms[related.switch]
            inside = {"octets": ""} if arm is None else described(arm, value, name=COUNTED.get(related.switch, ""))
            if kind is mqmq._VARIANT_UNION:
                inside = variant_arm(related.switch, inside)
            return {"union": [related.switch, inside]}
        case String():
            return value
        case Conformant() if isinstance(value, str):
            return [int.from_bytes(each.encode("utf-16-le"), "little") for each in value]
        case Conformant() | ConformantVarying() if isinstance(value, bytes):
            return described_octets(value)
        case Conformant():
            return [described(kind.element, each) for each in value]
        case ContextHandle():
            return {
                "class": "NDRContextHandle",
                "fields": [int.from_bytes(value[:4], "little"), described_octets(value[4:])],
            }
        case Octets():
            return {"class": "XACTUOW", "fields": [described_octets(value)]}
        case _ if isinstance(value, UUID):
            return {"class": "GUID", "fields": [*value.fields[:3], described_octets(value.bytes[8:])]}
        case _:
            return value


def variant_arm(vt: int, inside: Value) -> Value:
    """The peer has a structure around 64-bit integers, and VARIANT_BOOL is a signed integer."""
    match vt:
        case VT.I8:
            return {"class": "LARGE_INTEGER", "fields": [inside]}
        case VT.UI8:
            return {"class": "ULARGE_INTEGER", "fields": [inside]}
        case VT.BOOL:
            return -1 if inside else 0
        case _ if vt == VT.VECTOR | VT.UI8:
            count, numbers = inside["fields"]
            return {**inside, "fields": [count, [{"class": "ULARGE_INTEGER", "fields": [each]} for each in numbers]]}
    return inside


def described_octets(value: bytes) -> dict[str, str]:
    return {"octets": value.hex()}


def stub(call: Call, which: str, syntax: Syntax) -> dict[str, Any]:
    values = {**call.arguments, **call.results}
    members = [member for member in call.method.parameters if (member.is_in if which == "Request" else member.is_out)]
    known = {**values, **(call.arguments if which == "Request" else {})}
    fields = [
        described(member.type, known[member.name], member.related.resolve(known) if member.related else UNRELATED)
        for member in members
    ]
    if which == "Response":
        fields.append(values.get(RETURNS, 0))
    return {
        "module": MODULES[call.interface],
        "class": f"{call.method.name}_{which}",
        "fields": fields,
        "ndr64": syntax is Syntax.NDR64,
        "order": "little",
    }


class Peer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def marshal(self, description: dict[str, Any]) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(description) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert not answer.startswith("!"), answer
        return bytes.fromhex(answer)


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    script = Path(__file__).with_name("scapy_peer.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield Peer(process)
        assert process.stdin is not None
        process.stdin.close()


def fault_of_scapy(call: Call, which: str, syntax: Syntax) -> str | None:
    """Say what scapy or scapy-rpc is known to get wrong in a stub."""
    values = call.arguments if which == "Request" else call.results
    if call.method is mqmp.R_QM_SET_OBJECT_PROPERTIES and which == "Request":
        return "forgets [unique] on array parameters"
    if "ap_var" in values:
        return "writes each structure of an array as if the stub began with it"
    name = values.get("p_queue_format")
    if syntax is Syntax.NDR64 and which == "Request" and name is not None and not isinstance(name.u, str):
        return "aligns the arm of a union by itself, not by the largest (MS-RPCE 2.2.5.3.4.4)"
    if "pp_packet_sections" in values:
        return "takes size_is(,n) for an array of pointers"
    transfer = values.get("ptb1") or values.get("ptb")
    if transfer is not None and getattr(transfer, "old", transfer) is not PLAIN:
        return "takes size_is(,n) for an array of pointers"
    return None


STUBS = [
    (call, which, syntax)
    for call, which, syntax in itertools.product([*CALLS, *MQRR_CALLS], ("Request", "Response"), Syntax)
    if syntax in call.interface.syntaxes and fault_of_scapy(call, which, syntax) is None
]


def test_nearly_every_method_is_compared() -> None:
    compared = {call.method for call, which, _ in STUBS if which == "Request"}
    assert {call.method.name for call in [*CALLS, *MQRR_CALLS]} - {method.name for method in compared} == {
        "R_QMMgmtGetInfo",
        "R_QMCreateObjectInternal",
        "R_QMGetObjectProperties",
        "R_QMSetObjectProperties",
        "QMSendMessageInternalEx",
        "rpc_ACReceiveMessageEx",
    }


@pytest.fixture
def _same_identifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pointers of the peer have the same identifier."""
    monkeypatch.setattr(Encoder, "referent", lambda _: 0x20000)


@pytest.mark.usefixtures("_same_identifiers")
@pytest.mark.parametrize(("call", "which", "syntax"), STUBS, ids=str)
def test_scapy_writes_the_same_octets(peer: Peer, call: Call, which: str, syntax: Syntax) -> None:
    if which == "Request":
        ours = call.method.encode_request(call.arguments, syntax)
    else:
        ours = call.method.encode_response(call.results, call.arguments, syntax)
    theirs = peer.marshal(stub(call, which, syntax))
    if which == "Response" and call.method.returns is None:
        # The generator gives void methods a status too.
        theirs = theirs[:-4]
    assert ours.hex(" ", 4) == theirs.hex(" ", 4)


@pytest.mark.usefixtures("_same_identifiers")
@pytest.mark.parametrize(
    "variant", [each for each in VARIANTS if each.vt != VT.VECTOR | VT.VARIANT], ids=lambda each: type_name(each.vt)
)
def test_scapy_writes_the_same_variant(peer: Peer, variant: PropVariant) -> None:
    """MS-MQMQ 2.2.13 alone: the tag of two octets, then the arm.

    The arm has its own alignment, not that of the largest.
    """
    encoder = Encoder(representation(Syntax.NDR20))
    mqmq.PROPVARIANT.encode(encoder, variant)
    theirs = peer.marshal(
        {
            "module": "ms_mqmr",
            "class": "PROPVARIANT",
            "fields": [described(mqmq.PROPVARIANT, variant)],
            "ndr64": False,
            "order": "little",
        }
    )
    assert encoder.getvalue().hex(" ", 4) == theirs.hex(" ", 4)
