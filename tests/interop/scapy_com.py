"""A COM client made of scapy and scapy-rpc, in a process of its own.

Run as `python scapy_com.py HOST USER PASSWORD LEVEL CLSID`; it prints what it saw as JSON. The
interfaces are what scapy-rpc generated from the published IDL. Those of message queuing are not
among them, so it calls by name.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
from typing import Any, TypeAlias
from uuid import UUID

Peer: TypeAlias = Any  # scapy has no types
dcerpc: Peer = importlib.import_module("scapy.layers.dcerpc")
ntlm: Peer = importlib.import_module("scapy.layers.ntlm")
msdcom: Peer = importlib.import_module("scapy.layers.msrpce.msdcom")
oaut: Peer = importlib.import_module("msrpcs.ms_oaut")


def dispid(client: Peer, ipid: UUID, name: str) -> list[object]:
    # Of several names it puts each behind its pointer, not all behind all pointers: so one at a
    # time.
    request = oaut.GetIDsOfNames_Request(riid=oaut.GUID(bytes(16)), rgszNames=[name], lcid=0x409)
    # The answer is as long as a number of the request says, where it does not look.
    _, found, status = struct.unpack_from("<IiI", bytes(client.sr1_orpc_req(request, ipid=ipid)))
    return [status, found]


def main() -> None:
    host, user, password, level, clsid = sys.argv[1:]
    seen: dict[str, object] = {}
    bindings, security = msdcom.ServerAlive2(host)
    seen["resolver"] = [each.aNetworkAddr for each in bindings]
    seen["providers"] = [each.wAuthnSvc for each in security]
    client = msdcom.DCOM_Client(
        ssp=ntlm.NTLMSSP(UPN=user, PASSWORD=password), auth_level=dcerpc.RPC_C_AUTHN_LEVEL[level], verb=False
    )
    client.connect(host)
    dispatch = msdcom.find_com_interface("IDispatch")
    made = client.RemoteCreateInstance(UUID(clsid), iids=[dispatch])
    (ipid,) = client.OID_table[made.oid].ipids
    entry = client.IPID_table[ipid]
    exporter = client.OXID_table[entry.oxid]
    seen["references"] = entry.cPublicRefs
    seen["hint"] = int(exporter.authnHint)
    seen["version"] = [exporter.version.MajorVersion, exporter.version.MinorVersion]
    seen["type infos"] = client.sr1_orpc_req(oaut.GetTypeInfoCount_Request(), ipid=ipid).pctinfo
    for name in ("Open", "open", "Create", "Colour"):
        seen[name] = dispid(client, ipid, name)
    # OXID resolution finds the same exporter.
    resolved = client.ResolveOxid2(entry.oxid, client.host, client.port)
    seen["resolved"] = resolved.ipid_IRemUnknown == exporter.ipid_IRemUnknown
    client.RemRelease(ipid)
    seen["left"] = len(client.OID_table)
    # Once more, although it is given back.
    client.IPID_table[ipid] = entry
    try:
        seen["after release"] = str(client.sr1_orpc_req(oaut.GetTypeInfoCount_Request(), ipid=ipid).pctinfo)
    except Exception as problem:  # noqa: BLE001 (the other side looks at it)
        seen["after release"] = type(problem).__name__
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
