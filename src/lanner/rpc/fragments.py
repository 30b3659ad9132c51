"""Splitting of stubs into PDUs, for requests and responses (C706 12.6.2, MS-RPCE 2.2.2.11)."""

from __future__ import annotations

import struct
from typing import Final, Protocol

from lanner.rpc.pdu import (
    AUTH_PAD_ALIGNMENT,
    DREP_LITTLE,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    PFC_WHOLE,
    RPC_VERS,
    RPC_VERS_MINOR,
    SEC_TRAILER_SIZE,
)
from lanner.rpc.security import Context

# Header and alloc_hint.
_FRONT: Final = struct.Struct("<BBBBIHHII")
_FRONT_SIZE: Final = _FRONT.size
_SEC_TRAILER: Final = struct.Struct("<BBBBI")


class Signer(Protocol):
    """A complete security context with its identifiers."""

    @property
    def auth_type(self) -> int: ...

    @property
    def context_id(self) -> int: ...

    @property
    def context(self) -> Context: ...


def pack_fragments(
    packet_type: int, call_id: int, middle: bytes, stub: bytes, max_fragment: int, *, flags: int = 0
) -> list[bytes]:
    """Return PDUs without a sec_trailer. `middle` goes between alloc_hint and the stub."""
    size = len(stub)
    around = _FRONT_SIZE + len(middle)
    room = max_fragment - around
    if size <= room:
        front = _FRONT.pack(
            RPC_VERS, RPC_VERS_MINOR, packet_type, PFC_WHOLE | flags, DREP_LITTLE, around + size, 0, call_id, size
        )
        return [front + middle + stub]
    pdus: list[bytes] = []
    for start in range(0, size, room):
        part = stub[start : start + room]
        front = _FRONT.pack(
            RPC_VERS,
            RPC_VERS_MINOR,
            packet_type,
            flags | _flags(start, room, size),
            DREP_LITTLE,
            around + len(part),
            0,
            call_id,
            # MS-RPCE 2.2.2.6: the size of the rest, in every fragment.
            size - start,
        )
        pdus += (front, middle, part)
    return pdus


def pack_signed_fragments(
    packet_type: int,
    call_id: int,
    middle: bytes,
    stub: bytes,
    max_fragment: int,
    signer: Signer,
    *,
    header_signing: bool,
    flags: int = 0,
) -> list[bytes]:
    """Return PDUs with a sec_trailer each."""
    context = signer.context
    token_size = context.signature_size
    size = len(stub)
    around = _FRONT_SIZE + len(middle) + SEC_TRAILER_SIZE + token_size
    # Every fragment but the last is a multiple of 16, so that only the last needs padding.
    room = (max_fragment - around) & ~(AUTH_PAD_ALIGNMENT - 1)
    pdus: list[bytes] = []
    for start in range(0, size, room) if size > room else (0,):
        part = stub if size <= room else stub[start : start + room]
        pad = -len(part) & AUTH_PAD_ALIGNMENT - 1
        if pad:
            part += bytes(pad)
        front = _FRONT.pack(
            RPC_VERS,
            RPC_VERS_MINOR,
            packet_type,
            flags | (PFC_WHOLE if size <= room else _flags(start, room, size)),
            DREP_LITTLE,
            around + len(part),
            token_size,
            call_id,
            size - start,
        )
        header = front + middle
        trailer = _SEC_TRAILER.pack(signer.auth_type, context.level, pad, 0, signer.context_id)
        pdus.append(context.protect(header, part, trailer, header_signing=header_signing))
    return pdus


def _flags(start: int, room: int, size: int) -> int:
    return (PFC_FIRST_FRAG if start == 0 else 0) | (PFC_LAST_FRAG if start + room >= size else 0)
