"""A queue manager made of scapy and scapy-rpc that has a message which came over HTTP.

`python -m tests.interop.scapy_srmp_server ndr|ndr64` prints its port on 127.0.0.1. It serves what a
reader by MS-MQRR needs, without authentication, in a process of its own. The last part of the name
of the opened queue says in which sections it gives the message. It prints the reads,
acknowledgments and closes that it gets, one JSON list a line. It ends when its standard input does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

from tests.wire import srmp_packet

# Scapy has no types.
Peer: TypeAlias = Any
Method = TypeVar("Method", bound=Callable[..., Peer])
dcerpc: Peer = importlib.import_module("scapy.layers.dcerpc")
rpcserver: Peer = importlib.import_module("scapy.layers.msrpce.rpcserver")
packet: Peer = importlib.import_module("scapy.packet")
mqrr: Peer = importlib.import_module("msrpcs.ms_mqrr")
# Its import makes qmcomm known, to which readers bind first.
importlib.import_module("msrpcs.ms_mqmp")

REFERENT: Final = 0x20000
# The decorator of the methods.
answers: Callable[[Peer], Callable[[Method], Method]] = rpcserver.DCERPC_Server.answer
HANDLE: Final = bytes(range(1, 17))
FIXED: Final = 16  # octets of CompoundMessageHeader before Data
# How many octets of CompoundMessageHeader a first section has.
CUT: Final = FIXED + srmp_packet.BODY_OFFSET + 8


def say(*call: Peer) -> None:
    print(json.dumps(call), file=sys.__stdout__, flush=True)


def sections(queue: str) -> list[tuple[int, int, bytes]]:
    """Return type, SectionSizeAlloc and octets of each section."""
    front, middle, end = srmp_packet.parts()
    whole = front + middle + end
    unpadded = len(front) + FIXED + len(srmp_packet.COMPOUND_MESSAGE)
    first = front + middle[:CUT]
    return {
        "whole": [(0, len(whole), whole)],
        "cut": [(3, len(front + middle), first), (4, len(end), end)],
        # The padding after CompoundMessageHeader in the second section.
        "padded": [(3, unpadded, first), (4, len(whole) - unpadded, whole[unpadded:])],
        # A first section that is too long by SoapHeader, or not of this type.
        "long": [(3, len(whole) - 4, whole[:-4]), (4, 4, whole[-4:])],
        "short": [(3, len(front), front), (4, len(middle + end), middle + end)],
        "mixed": [(3, len(front + middle), first), (2, len(end), end)],
        "binary": [(1, len(front + middle), front + middle), (4, len(end), end)],
    }[queue]


def started(found: list[tuple[int, int, bytes]], *, is_ndr64: bool) -> bytes:
    """Return the answer to R_StartReceive.

    The generator took ppPacketSections, a pointer to an array, for an array of pointers.
    """
    wide, element = ("Q", "<III4xQ") if is_ndr64 else ("I", "<H2xIII")
    answer = struct.pack("<I4xQI", 1_700_000_001, 42, len(found))
    answer += bytes(-len(answer) % struct.calcsize(wide)) + struct.pack(f"<2{wide}", REFERENT, len(found))
    for kind, size, octets in found:
        answer += struct.pack(element, kind, size, len(octets), REFERENT)
    for _, _, octets in found:
        answer += bytes(-len(answer) % struct.calcsize(wide)) + struct.pack(f"<{wide}", len(octets)) + octets
    return answer + bytes(-len(answer) % 4) + bytes(4)


class Server(rpcserver.DCERPC_Server):  # type: ignore[misc]  # of Any
    name = ""

    def recv(self, data: Peer) -> None:
        # It would serve every interface of a connection in the transfer syntax of the first, and
        # qmcomm has NDR only.
        self.ndr64 = sys.argv[1] == "ndr64"
        super().recv(data)

    @answers(mqrr.R_GetServerPort_Request)
    def port_of(self, request: Peer) -> Peer:
        return mqrr.R_GetServerPort_Response(status=self.port, ndr64=self.ndr64)

    @answers(mqrr.R_OpenQueue_Request)
    def open(self, request: Peer) -> Peer:
        name = request[mqrr.R_OpenQueue_Request].pQueueFormat.value
        while not isinstance(name, bytes):
            name = name[0] if isinstance(name, list) else name.value
        self.name = name.decode().rpartition("\\")[2]
        # The generator gave a void method a status, for which there is no room.
        return dcerpc.NDRContextHandle(uuid=HANDLE, ndr64=self.ndr64)

    @answers(mqrr.R_StartReceive_Request)
    def start(self, request: Peer) -> Peer:
        asked = request[mqrr.R_StartReceive_Request]
        say("read", asked.ulAction, asked.dwMaxCompoundMessageSize)
        return packet.Raw(started(sections(self.name), is_ndr64=self.ndr64))

    @answers(mqrr.R_EndReceive_Request)
    def end(self, request: Peer) -> Peer:
        say("end", request[mqrr.R_EndReceive_Request].dwAck)
        return mqrr.R_EndReceive_Response(ndr64=self.ndr64)

    @answers(mqrr.R_CloseQueue_Request)
    def close(self, request: Peer) -> Peer:
        say("close")
        return mqrr.R_CloseQueue_Response(pphContext=dcerpc.NDRContextHandle(ndr64=self.ndr64), ndr64=self.ndr64)


def main() -> None:
    with contextlib.redirect_stdout(sys.stderr):
        listening = Server.spawn(
            dcerpc.DCERPC_Transport.NCACN_IP_TCP, iface="lo", port=0, bg=True, ndr64=sys.argv[1] == "ndr64", verb=False
        )
        say(listening.getsockname()[1])
        sys.stdin.read()
    # Scapy's threads wait for clients forever.
    os._exit(0)


if __name__ == "__main__":
    main()
