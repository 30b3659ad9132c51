"""A reader by MS-MQRR made of scapy and scapy-rpc, in a process of its own.

`python scapy_mqrr.py HOST USER PASSWORD ndr|ndr64 QUEUE XACTUOW TOKEN`

It finds the port through the endpoint mapper, calls all fifteen methods at privacy, and prints what
it saw as JSON; the last two arguments are hexadecimal. The classes are generated from the published
IDL by people who know nothing of Lanner.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any, TypeAlias

# Scapy has no types.
Peer: TypeAlias = Any
dcerpc: Peer = importlib.import_module("scapy.layers.dcerpc")
ntlm: Peer = importlib.import_module("scapy.layers.ntlm")
rpcclient: Peer = importlib.import_module("scapy.layers.msrpce.rpcclient")
mqrr: Peer = importlib.import_module("msrpcs.ms_mqrr")

PEEK, UNLIMITED, LANE = 0x80000000, 0xFFFFFFFF, 7 << 56


class Ndr64Client(rpcclient.DCERPC_Client):  # type: ignore[misc]  # of Any
    """It would offer NDR before NDR64, and then that is chosen."""

    def _get_bind_context(self, interface: Peer) -> Peer:
        if interface not in self.contexts:
            self.contexts[interface] = super()._get_bind_context(interface)[1:]
        return self.contexts[interface]


class Client:
    def __init__(self, host: str, user: str, password: str, *, is_ndr64: bool) -> None:
        kind = Ndr64Client if is_ndr64 else rpcclient.DCERPC_Client
        self._rpc = kind(
            dcerpc.DCERPC_Transport.NCACN_IP_TCP,
            ndr64=is_ndr64,
            verb=False,
            ssp=ntlm.NTLMSSP(UPN=f"{user}@MQ", PASSWORD=password),
            auth_level=dcerpc.RPC_C_AUTHN_LEVEL.PKT_PRIVACY,
        )
        self._rpc.connect_and_bind(host, dcerpc.find_dcerpc_interface("RemoteRead"))
        self.is_ndr64: bool = self._rpc.ndr64

    def call(self, name: str, **members: Peer) -> Peer:
        request = getattr(mqrr, f"{name}_Request")(ndr64=self.is_ndr64, **members)
        answer = self._rpc.sr1_req(request)
        if name.startswith("R_OpenQueue"):
            # The generator gave a void method a status, for which there is no room.
            return bytes(answer)
        if not isinstance(answer, getattr(mqrr, f"{name}_Response")):
            raise TypeError(f"{name}: {answer!r}")
        return answer

    def queue_format(self, name: str) -> Peer:
        kind = 8 if ";" in name else 3
        return mqrr.QUEUE_FORMAT(ndr64=self.is_ndr64, m_qft=kind, value=dcerpc.NDRUnion(tag=kind, value=name))

    def opening(self, name: str, access: int) -> dict[str, Peer]:
        return {
            "pQueueFormat": self.queue_format(name),
            "dwAccess": access,
            "pClientId": mqrr.GUID(ndr64=self.is_ndr64, Data1=1, Data4=bytes(8)),
            "fNonRoutingServer": 1,
            "Major": 6,
            "Minor": 1,
            "BuildNumber": 7601,
            "fWorkgroup": 1,
        }

    def handle(self, octets: bytes) -> Peer:
        """The context handle of 20 octets."""
        attributes = int.from_bytes(octets[:4], "little")
        return dcerpc.NDRContextHandle(ndr64=self.is_ndr64, attributes=attributes, uuid=octets[4:20])

    def close(self) -> None:
        self._rpc.close()


def octets(value: Peer) -> bytes:
    """Return the octets behind the wrappers of a pointer to an array."""
    while not isinstance(value, bytes):
        value = value[0] if isinstance(value, list) else value.value
    return value


def sections(value: Peer) -> list[Peer]:
    """Return the sections behind the wrappers of a pointer to an array of them."""
    if value is None:
        return []
    if isinstance(value, list):
        return [section for one in value for section in sections(one)]
    return [value] if isinstance(value, mqrr.SectionBuffer) else sections(value.value)


def packet(answer: Peer) -> str:
    return b"".join(octets(one.pSectionBuffer) for one in sections(answer.ppPacketSections)).hex()


def main() -> None:
    host, user, password, syntax, queue = sys.argv[1:6]
    uow, token = map(bytes.fromhex, sys.argv[6:8])
    name = f"OS:.\\private$\\{queue}"
    client = Client(host, user, password, is_ndr64=syntax == "ndr64")
    seen: dict[str, Peer] = {"is_ndr64": client.is_ndr64}
    seen["port"] = client.call("R_GetServerPort").status
    opened = client.handle(client.call("R_OpenQueue", **client.opening(name, 1)))

    def start(what: str, method: str = "R_StartReceive", **members: Peer) -> Peer:
        got = client.call(
            method, phContext=opened, dwMaxBodySize=UNLIMITED, dwMaxCompoundMessageSize=UNLIMITED, **members
        )
        seen[what], seen[f"{what} packet"] = got.status, packet(got)
        return got

    cursor = client.call("R_CreateCursor", phContext=opened).phCursor
    start("peek", ulAction=PEEK, hCursor=cursor, dwRequestId=1)
    seen["close cursor"] = client.call("R_CloseCursor", phContext=opened, hCursor=cursor).status
    start("receive", dwRequestId=2)
    seen["end"] = client.call("R_EndReceive", phContext=opened, dwAck=2, dwRequestId=2).status
    there = client.call("R_OpenQueueForMove", **client.opening(f"{name};moved", 4))
    following = start("next", ulAction=PEEK, dwRequestId=3)
    seen["move"] = client.call(
        "R_MoveMessage",
        phContextFrom=opened,
        ullContextTo=int.from_bytes(there[:8], "little"),
        LookupId=LANE | following.pSequenceId,
        pTransactionId=mqrr.XACTUOW(ndr64=client.is_ndr64, rgb=bytes(16)),
    ).status
    transaction = mqrr.XACTUOW(ndr64=client.is_ndr64, rgb=uow)
    seen["enlist"] = client.call(
        "R_QMEnlistRemoteTransaction",
        pTransactionId=transaction,
        pbPropagationToken=token,
        pQueueFormat=client.queue_format(name),
    ).status
    for request, what in ((10, "accepted"), (11, "rejected")):
        got = start(what, "R_StartTransactionalReceive", dwRequestId=request, pTransactionId=transaction)
        seen[f"end {what}"] = client.call(
            "R_EndTransactionalReceive", phContext=opened, dwAck=2, dwRequestId=request
        ).status
        if what == "rejected":
            seen["reject"] = client.call(
                "R_SetUserAcknowledgementClass", phContext=opened, LookupId=LANE | got.pSequenceId, usClass=0xC004
            ).status
    seen["cancel"] = client.call("R_CancelReceive", phContext=opened, dwRequestId=99).status
    seen["purge"] = client.call("R_PurgeQueue", phContext=opened).status
    start("empty", dwRequestId=4)
    for handle in (opened, client.handle(there[8:])):
        seen["close"] = client.call("R_CloseQueue", pphContext=handle).status
    client.close()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
