"""The verification trailer of a request (MS-RPCE 2.2.2.13).

In it a client repeats the fields that no signature covers.
"""

from __future__ import annotations

import struct
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.pdu import PacketType, SyntaxId

SIGNATURE: Final = bytes.fromhex("8ae3137102f43671")
COMMAND_BITMASK_1: Final = 0x0001
COMMAND_PCONTEXT: Final = 0x0002
COMMAND_HEADER2: Final = 0x0003
COMMAND_END: Final = 0x4000
MUST_PROCESS_COMMAND: Final = 0x8000
_COMMAND_MASK: Final = 0x3FFF
CLIENT_SUPPORT_HEADER_SIGNING: Final = 0x0000_0001
# Not in the specification: the maximum distance from the end of a stub at which a trailer may
# begin. All known commands together take 80 bytes.
MAX_SIZE: Final = 0x400


def find_trailer(stub: bytes) -> tuple[int, list[tuple[int, bytes]]] | None:
    """Return the position of the trailer of a stub, and its commands; None if there is none.

    The document has a server search for the signature after the stub data (MS-RPCE 2.2.2.13). Here
    the search runs from the end. A signature counts only if commands follow it, up to one that is
    marked as the last, and to the last byte. So data that contains the signature stays data. The
    document has clients begin at a multiple of four. scapy does not, so it is not required here.
    """
    start = stub.rfind(SIGNATURE, max(0, len(stub) - MAX_SIZE))
    while start >= 0:
        commands = _commands(stub, start + len(SIGNATURE))
        if commands is not None:
            return start, commands
        start = stub.rfind(SIGNATURE, max(0, len(stub) - MAX_SIZE), start + len(SIGNATURE) - 1)
    return None


def _commands(stub: bytes, position: int) -> list[tuple[int, bytes]] | None:
    commands = []
    while len(stub) - position >= 4:
        command, length = struct.unpack_from("<HH", stub, position)
        position += 4
        if length % 4 or length > len(stub) - position:
            return None
        commands.append((command, stub[position : position + length]))
        position += length
        if command & COMMAND_END:
            # Clients pad a stub before they sign it.
            return commands if not any(stub[position:]) and len(stub) - position < 16 else None
    return None


def check_trailer(
    commands: list[tuple[int, bytes]],
    *,
    interface: SyntaxId,
    transfer_syntax: SyntaxId,
    call_id: int,
    context_id: int,
    opnum: int,
    drep: int,
    header_signing: bool,
) -> None:
    """Raise RemoteProtocolError if a trailer contradicts its PDU."""
    for command, value in commands:
        kind = command & _COMMAND_MASK
        if kind == COMMAND_BITMASK_1 and len(value) == 4:
            # MS-RPCE 2.2.2.13.2: a client that can sign headers must have stated so in its bind. If
            # the bind does not, an attacker removed it.
            if value[0] & CLIENT_SUPPORT_HEADER_SIGNING and not header_signing:
                raise RemoteProtocolError("the client signs headers, and its bind did not say so")
        elif kind == COMMAND_PCONTEXT and len(value) == 40:
            if value != interface.pack() + transfer_syntax.pack():
                raise RemoteProtocolError("the verification trailer names another presentation context")
        elif kind == COMMAND_HEADER2 and len(value) == 16:
            said = (value[0], value[4], *struct.unpack_from("<IHH", value, 8))
            if said != (PacketType.REQUEST, drep, call_id, context_id, opnum):
                raise RemoteProtocolError("the verification trailer repeats another header")
        elif command & MUST_PROCESS_COMMAND:
            raise RemoteProtocolError(f"verification trailer command {command:#06x}")
