"""scapy and scapy-rpc against a whole queue manager, in a process of its own: what it saw, as JSON.

`python scapy_foreign.py HOST USER PASSWORD LEVEL mqmr|mqmp|mqqp QUEUE`. It finds every port through
the endpoint mapper. The classes are generated from the published IDL by people who know nothing of
Lanner.
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
mqmp: Peer = importlib.import_module("msrpcs.ms_mqmp")
mqqp: Peer = importlib.import_module("msrpcs.ms_mqqp")
management: Peer = importlib.import_module("scapy_management")


class Client:
    def __init__(self, interface: str) -> None:
        host, user, password, level = sys.argv[1:5]
        self.rpc = rpcclient.DCERPC_Client(
            dcerpc.DCERPC_Transport.NCACN_IP_TCP,
            ndr64=False,
            verb=False,
            ssp=ntlm.NTLMSSP(UPN=f"{user}@MQ", PASSWORD=password),
            auth_level=dcerpc.RPC_C_AUTHN_LEVEL[level],
        )
        self.rpc.connect_and_bind(host, dcerpc.find_dcerpc_interface(interface))


def queue_format(name: str) -> Peer:
    return mqmp.QUEUE_FORMAT(m_qft=3, value=dcerpc.NDRUnion(tag=3, value=f"OS:.\\private$\\{name}"))


def opened(client: Client, name: str) -> Peer:
    return client.rpc.sr1_req(
        mqmp.R_QMOpenRemoteQueue_Request(
            pQueueFormat=queue_format(name), dwDesiredAccess=1, pLicGuid=mqmp.GUID(Data1=1, Data4=bytes(8))
        )
    )


def main() -> None:
    what, name = sys.argv[5:]
    seen: dict[str, object] = {}
    if what == "mqmr":
        client = Client("qmmgmt").rpc
        seen["action"] = management.answer(client, "action", None, "TIDY")[0]
        seen["get info"] = management.answer(client, "get", None, 4)
    else:
        opener = Client("qmcomm")
        first = opened(opener, name)
        seen["open remote"] = first.status
        if what == "mqmp":
            lifetime = opener.rpc.sr1_req(mqmp.R_QMQueryQMRegistryInternal_Request(dwQueryType=1))
            seen["registry"] = lifetime.status
        else:
            reader = Client("qm2qm").rpc
            second = reader.sr1_req(
                mqqp.RemoteQMOpenQueue_Request(
                    pLicGuid=mqqp.GUID(Data1=1, Data4=bytes(8)),
                    hQueue=first.phQueue,
                    pQueue=first.dwpQueue,
                    dwpContext=first.pdwContext,
                )
            )
            seen["open"] = second.status
            desc = mqqp.REMOTEREADDESC(hRemoteQueue=first.phQueue, dwQueue=first.dwpQueue, dwRequestID=1, lpBuffer=None)
            read = reader.sr1_req(mqqp.RemoteQMStartReceive_Request(lpRemoteReadDesc=desc))
            seen["receive"] = read.status
            seen["size"] = read.lpRemoteReadDesc.dwSize
            seen["end"] = reader.sr1_req(mqqp.RemoteQMEndReceive_Request(pphContext=read.pphContext, dwAck=2)).status
            seen["close"] = reader.sr1_req(mqqp.RemoteQMCloseQueue_Request(pphContext=second.phContext)).status
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
