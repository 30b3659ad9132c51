"""A remote read by scapy and scapy-rpc, in a process of its own.

Run as `python scapy_remote_read.py PORT HANDLE SYNTAX [USER PASSWORD]`. It gets the number of a
queue that another client has opened, calls all eleven methods, and prints what it saw as JSON. The
classes are generated from the published IDL by people unrelated to Lanner.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, TypeAlias

# Scapy has no types.
Peer: TypeAlias = Any
dcerpc: Peer = importlib.import_module("scapy.layers.dcerpc")
mqqp: Peer = importlib.import_module("msrpcs.ms_mqqp")
rpcclient: Peer = importlib.import_module("scapy.layers.msrpce.rpcclient")

RECEIVE, PEEK, LOOKUP_LAST = 0, 0x80000000, 0x40000022
HOST = "127.0.0.1"


class Ndr64Client(rpcclient.DCERPC_Client):  # type: ignore[misc]  # of Any
    """It would offer NDR before NDR64, and then that is chosen."""

    def _get_bind_context(self, interface: Peer) -> Peer:
        if interface not in self.contexts:
            self.contexts[interface] = super()._get_bind_context(interface)[1:]
        return self.contexts[interface]


class Client:
    def __init__(self, port: int, handle: int, *, is_ndr64: bool, user: str, password: str) -> None:
        options: dict[str, Peer] = {}
        if user:
            ntlm: Peer = importlib.import_module("scapy.layers.ntlm")
            options["ssp"] = ntlm.NTLMSSP(UPN=user, PASSWORD=password)
            options["auth_level"] = dcerpc.RPC_C_AUTHN_LEVEL.PKT_PRIVACY
        client = Ndr64Client if is_ndr64 else rpcclient.DCERPC_Client
        self._rpc = client(dcerpc.DCERPC_Transport.NCACN_IP_TCP, ndr64=is_ndr64, verb=False, **options)
        self._rpc.connect(HOST, port=port)
        if not self._rpc.bind(dcerpc.find_dcerpc_interface("qm2qm")):
            raise RuntimeError("the bind was refused")
        self._handle = handle
        self._request_id = 0

    @property
    def is_ndr64(self) -> bool:
        found: bool = self._rpc.ndr64
        return found

    def call(self, name: str, **members: Peer) -> Peer:
        request = getattr(mqqp, f"{name}_Request")(ndr64=self._rpc.ndr64, **members)
        answer = self._rpc.sr1_req(request)
        if name == "RemoteQmGetVersion":
            # The generator gave a void method a status, for which there is no room in four octets.
            return bytes(answer)
        if not isinstance(answer, getattr(mqqp, f"{name}_Response")):
            raise TypeError(f"{name}: {answer!r}")
        return answer

    def desc(self, action: int, timeout: int) -> Peer:
        self._request_id += 1
        return mqqp.REMOTEREADDESC(
            ndr64=self._rpc.ndr64,
            hRemoteQueue=self._handle,
            dwQueue=self._handle,
            ulAction=action,
            ulTimeout=timeout,
            dwSize=0,
            dwRequestID=self._request_id,
            lpBuffer=None,
        )

    def desc2(self, action: int) -> Peer:
        return mqqp.REMOTEREADDESC2(
            ndr64=self._rpc.ndr64,
            pRemoteReadDesc=dcerpc.NDRPointer(ndr64=self._rpc.ndr64, referent_id=0x20000, value=self.desc(action, 0)),
        )

    def close(self) -> None:
        self._rpc.close()


def told(answer: Peer) -> list[Peer]:
    """Status, whether there is a handle, and the buffer."""
    desc = answer.lpRemoteReadDesc if hasattr(answer, "lpRemoteReadDesc") else None
    if desc is None:
        desc = answer.lpRemoteReadDesc2.pRemoteReadDesc.value
    # A pointer to a conformant array that is a varying one.
    buffer = desc.lpBuffer
    while buffer is not None and not isinstance(buffer, bytes):
        buffer = buffer.value
        if isinstance(buffer, list):
            buffer = buffer[0]
    octets = "" if buffer is None else buffer.hex()
    return [answer.status, bytes(answer.pphContext.uuid) != bytes(16), desc.dwSize, octets]


def main() -> None:
    port, handle, syntax, user, password = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *sys.argv[4:6]
    client = Client(port, handle, is_ndr64=syntax == "NDR64", user=user, password=password)
    seen: dict[str, Peer] = {"is_ndr64": client.is_ndr64}
    seen["version"] = client.call("RemoteQmGetVersion").hex()
    seen["port"] = client.call("RemoteQMGetQMQMServerPort", dwPortType=1).status
    opened = client.call(
        "RemoteQMOpenQueue",
        pLicGuid=mqqp.GUID(ndr64=client.is_ndr64, Data1=1, Data4=bytes(8)),
        hQueue=handle,
        pQueue=handle,
        dwpContext=handle,
    )
    seen["open"] = opened.status
    seen["peek"] = told(client.call("RemoteQMStartReceive", lpRemoteReadDesc=client.desc(PEEK, 0)))
    first = client.call("RemoteQMStartReceive", lpRemoteReadDesc=client.desc(RECEIVE, 0))
    seen["receive"] = told(first)
    seen["end"] = client.call("RemoteQMEndReceive", pphContext=first.pphContext, dwAck=2).status
    second = client.call("RemoteQMStartReceive2", lpRemoteReadDesc2=client.desc2(RECEIVE))
    seen["receive2"] = [*told(second), second.lpRemoteReadDesc2.SequentialId]
    seen["refuse"] = client.call("RemoteQMEndReceive", pphContext=second.pphContext, dwAck=1).status
    third = client.call(
        "RemoteQMStartReceiveByLookupId", LookupId=(1 << 64) - 1, lpRemoteReadDesc2=client.desc2(LOOKUP_LAST)
    )
    seen["lookup"] = [*told(third), third.lpRemoteReadDesc2.SequentialId]
    seen["end_lookup"] = client.call("RemoteQMEndReceive", pphContext=third.pphContext, dwAck=2).status
    seen["cursor"] = client.call("RemoteQMCloseCursor", hQueue=handle, hCursor=1).status
    seen["cancel"] = client.call("RemoteQMCancelReceive", hQueue=handle, pQueue=handle, dwRequestID=1).status
    seen["purge"] = client.call("RemoteQMPurgeQueue", hQueue=handle).status
    seen["empty"] = told(client.call("RemoteQMStartReceive", lpRemoteReadDesc=client.desc(RECEIVE, 5)))
    seen["close"] = client.call("RemoteQMCloseQueue", pphContext=opened.phContext).status
    client.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
