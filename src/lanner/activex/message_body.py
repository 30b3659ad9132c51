"""Message bodies: conversion between a client's VARIANT and the octets of a packet.

MC-MQAC 3.17.4.1.21 and 3.17.4.1.22. BodyType is the type of the VARIANT. Numbers are stored
little-endian in their natural size, text as UTF-16 without a terminator, octets as they are.

A body of VT_UNKNOWN or VT_DISPATCH is an object of the client that saves itself into the message
(IPersistStream): its CLSID and its state. No class of MC-MQAC can do that. Clients' classes exist
only in the clients and cannot be instantiated here, so such a body reads as its octets; a client
that knows the class recreates the object.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from lanner.activex.arguments import dereferenced
from lanner.com.automation.values import Variant
from lanner.com.client.remote_interface import RemoteInterface
from lanner.com.client.streams import saved
from lanner.com.constants import E_INVALIDARG, E_NOINTERFACE
from lanner.com.objects import ComError
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.vartypes import VT, type_name

BYTES: Final = VT.ARRAY | VT.UI1
_NUMBERS: Final[dict[int, struct.Struct]] = {
    VT.I1: struct.Struct("<b"),
    VT.UI1: struct.Struct("<B"),
    VT.I2: struct.Struct("<h"),
    VT.UI2: struct.Struct("<H"),
    VT.I4: struct.Struct("<i"),
    VT.UI4: struct.Struct("<I"),
    VT.R4: struct.Struct("<f"),
    VT.R8: struct.Struct("<d"),
    VT.CY: struct.Struct("<q"),
    VT.DATE: struct.Struct("<d"),
}
_BOOL: Final = struct.Struct("<h")
# MS-OAUT 2.2.27.
_VARIANT_TRUE: Final = -1
_OBJECTS: Final = (VT.UNKNOWN, VT.DISPATCH)


def octets(variant: Variant, what: str) -> bytes:
    """Return the contents of an array of octets; an empty VARIANT is an empty array."""
    variant = dereferenced(variant)
    if variant.vt in (VT.EMPTY, VT.NULL):
        return b""
    if variant.vt != BYTES or not isinstance(variant.value, (bytes, type(None))):
        raise ComError(E_INVALIDARG, f"{what} of type {type_name(variant.vt)}, an array of octets is needed")
    return variant.value or b""


async def saved_body(variant: Variant) -> tuple[bytes, int]:
    """Return Body and BodyType of a client's value, which may be an object.

    Raise ComError if it cannot be a body.
    """
    variant = dereferenced(variant)
    if variant.vt in _OBJECTS and isinstance(variant.value, RemoteInterface):
        return await saved(variant.value, MAX_PACKET_SIZE), variant.vt
    return encode_body(variant)


def encode_body(variant: Variant) -> tuple[bytes, int]:
    """Return Body and BodyType of a value. Raise ComError if it cannot be a body."""
    variant = dereferenced(variant)
    vt, value = variant.vt, variant.value
    if vt == BYTES:
        return octets(variant, "Body"), vt
    if vt == VT.BSTR:
        return (value or "").encode("utf-16-le", "surrogatepass"), vt
    if vt == VT.BOOL:
        return _BOOL.pack(_VARIANT_TRUE if value else 0), vt
    if vt in _NUMBERS:
        try:
            return _NUMBERS[vt].pack(value), vt
        except (struct.error, OverflowError) as error:
            raise ComError(E_INVALIDARG, f"Body {value!r} is no {type_name(vt)}: {error}") from None
    if vt in _OBJECTS:
        raise ComError(E_NOINTERFACE, "Body: the object cannot save itself")
    raise ComError(E_INVALIDARG, f"Body of type {type_name(vt)}")


def decode_body(body: bytes, body_type: int) -> Variant:
    """Return the VARIANT of a stored body.

    It is an array of octets if the body type is missing, unknown, or does not fit the body.
    """
    value: Any = None
    if body_type == VT.BSTR and len(body) % 2 == 0:
        value = body.decode("utf-16-le", "surrogatepass")
    elif body_type == VT.BOOL and len(body) == _BOOL.size:
        value = bool(_BOOL.unpack(body)[0])
    elif body_type in _NUMBERS and len(body) == _NUMBERS[body_type].size:
        (value,) = _NUMBERS[body_type].unpack(body)
    return Variant(BYTES, body) if value is None else Variant(body_type, value)
