"""An administration tool made of scapy and scapy-rpc, in a process of its own.

Calls and answers are lines of JSON.

`python scapy_management.py PORT [USER PASSWORD LEVEL]`. The interface is what scapy-rpc generated
from the published IDL. A call is ["action", direct name or null, word] or ["get", direct name or
null, property]; an answer is the status, and the value.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, TypeAlias

Peer: TypeAlias = Any  # scapy has no types
dcerpc: Peer = importlib.import_module("scapy.layers.dcerpc")
ntlm: Peer = importlib.import_module("scapy.layers.ntlm")
rpcclient: Peer = importlib.import_module("scapy.layers.msrpce.rpcclient")
mqmr: Peer = importlib.import_module("msrpcs.ms_mqmr")

# The generator took `const wchar_t *lpwszAction` for one character.
ACTION: Peer = type(
    "R_QMMgmtAction_Request",
    (dcerpc.NDRPacket,),
    {
        "fields_desc": [
            dcerpc.NDRPacketField("pObjectFormat", mqmr.MGMT_OBJECT(), mqmr.MGMT_OBJECT),
            dcerpc.NDRConfVarStrNullFieldUtf16("lpwszAction", ""),
        ]
    },
)


def subject(direct_name: str | None) -> Peer:
    if direct_name is None:
        return mqmr.MGMT_OBJECT(type=1, value=dcerpc.NDRUnion(tag=1, value=0))
    queue_format = mqmr.QUEUE_FORMAT(m_qft=3, value=dcerpc.NDRUnion(tag=3, value=direct_name))
    return mqmr.MGMT_OBJECT(type=2, value=dcerpc.NDRUnion(tag=2, value=queue_format))


def connect(port: int, user: str = "", password: str = "", level: str = "NONE") -> Peer:
    security = {}
    if user:
        security = {
            "ssp": ntlm.NTLMSSP(UPN=user, PASSWORD=password),
            "auth_level": dcerpc.RPC_C_AUTHN_LEVEL[level],
        }
    client = rpcclient.DCERPC_Client(dcerpc.DCERPC_Transport.NCACN_IP_TCP, ndr64=False, verb=False, **security)
    client.connect("127.0.0.1", port=port)
    if not client.bind(dcerpc.find_dcerpc_interface("qmmgmt")):
        raise ConnectionError("the bind failed")
    return client


def answer(client: Peer, kind: str, direct_name: str | None, what: Peer) -> list[object]:
    if kind == "action":
        response = client.sr1_req(ACTION(pObjectFormat=subject(direct_name), lpwszAction=what), opnum=1)
        return [response.status, None]
    variant = mqmr.tag_inner_PROPVARIANT(vt=1, _varUnion=dcerpc.NDRUnion(tag=1, value=b""))
    request = mqmr.R_QMMgmtGetInfo_Request(pObjectFormat=subject(direct_name), cp=1)
    request.aProp = [what]
    request.apVar = [variant]
    response = client.sr1_req(request)
    return [response.status, value_of(response.apVar.value[0])]


def value_of(variant: Peer) -> object:
    """The text or the number in a PROPVARIANT, out of all that scapy has around it."""
    found = variant._varUnion.value
    while hasattr(found, "value") or isinstance(found, list):
        found = found[0] if isinstance(found, list) else found.value
    return found.decode() if isinstance(found, bytes) else found


def main() -> None:
    client = connect(int(sys.argv[1]), *sys.argv[2:])
    for line in sys.stdin:
        try:
            told: object = answer(client, *json.loads(line))
        except Exception as problem:  # noqa: BLE001 (the other side reports it)
            told = f"{type(problem).__name__}: {problem}"
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    client.close()


if __name__ == "__main__":
    main()
