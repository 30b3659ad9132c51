"""Marshal calls with scapy and scapy-rpc, in a process of its own: JSON in, hexadecimal octets out.

Each line of the input is one stub: the module and class of scapy-rpc, the syntax, and the values of
its fields in their order. The classes are generated from the published IDL by people who know
nothing of Lanner.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, TypeAlias

# Scapy has no types.
Value: TypeAlias = Any
dcerpc: Value = importlib.import_module("scapy.layers.dcerpc")


def _value(module: Value, given: Value) -> Value:
    """Build what scapy wants from what JSON can say."""
    if isinstance(given, list):
        return [_value(module, each) for each in given]
    if not isinstance(given, dict):
        return given
    if "octets" in given:
        return bytes.fromhex(given["octets"])
    if "pointer" in given:
        return dcerpc.NDRPointer(referent_id=0x20000, value=_value(module, given["pointer"]))
    if "union" in given:
        tag, value = given["union"]
        return dcerpc.NDRUnion(tag=tag, value=_value(module, value))
    kind = getattr(module, given["class"], None) or getattr(dcerpc, given["class"])
    names = [field.name for field in kind.fields_desc]
    return kind(**dict(zip(names, _value(module, given["fields"]), strict=True)))


def _packet_class(*fields: Value) -> type:
    return type("Packet", (dcerpc.NDRPacket,), {"fields_desc": list(fields)})


def _stub(line: str) -> bytes:
    given = json.loads(line)
    module: Value = importlib.import_module(f"msrpcs.{given['module']}")
    if given["class"] == "R_QMMgmtAction_Request":
        # The generator took `const wchar_t *lpwszAction` for one character.
        module.R_QMMgmtAction_Request = _packet_class(
            dcerpc.NDRPacketField("pObjectFormat", module.MGMT_OBJECT(), module.MGMT_OBJECT),
            dcerpc.NDRConfVarStrNullFieldUtf16("lpwszAction", ""),
        )
    if given["class"] == "PROPVARIANT":
        # One alone.
        module.PROPVARIANT = _packet_class(dcerpc.NDRPacketField("value", None, module.tag_inner_PROPVARIANT))
    packet = _value(module, given)
    packet.ndr64 = given["ndr64"]
    packet.ndrendian = given["order"]
    return bytes(packet)


def main() -> None:
    for line in sys.stdin:
        try:
            answer = _stub(line).hex()
        except Exception as problem:  # noqa: BLE001  the other side reports it
            answer = f"! {type(problem).__name__}: {problem}".replace("\n", " ")
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
