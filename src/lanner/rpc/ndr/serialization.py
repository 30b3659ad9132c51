"""Type serialization version 1 (MS-RPCE 2.2.6): a structure outside any call, after two headers."""

from __future__ import annotations

import struct
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS, Decoder, Encoder, Syntax, Value, representation
from lanner.rpc.ndr.types import Type
from lanner.wire.reader import Reader

_VERSION: Final = 1
_LITTLE_ENDIAN: Final = 0x10
_COMMON_HEADER: Final = struct.Struct("<BBHI")
_PRIVATE_HEADER: Final = struct.Struct("<II")
_FILLER: Final = 0xCCCC_CCCC


def serialize(kind: Type, value: Value) -> bytes:
    """Return a structure with its two headers, padded to a multiple of eight."""
    encoder = Encoder(representation(Syntax.NDR20))
    kind.encode(encoder, value)
    encoder.align(8)
    body = encoder.getvalue()
    common = _COMMON_HEADER.pack(_VERSION, _LITTLE_ENDIAN, _COMMON_HEADER.size, _FILLER)
    return common + _PRIVATE_HEADER.pack(len(body), 0) + body


def deserialize(kind: Type, data: bytes) -> Value:
    """Read a serialized structure. Raises RemoteProtocolError.

    ObjectBufferLength is not trusted, and padding at the end is ignored.
    """
    reader = Reader(data)
    version, endianness = reader.u8("type serialization version"), reader.u8("endianness")
    length = reader.u16("CommonHeaderLength")
    if version != _VERSION or length != _COMMON_HEADER.size:
        raise RemoteProtocolError(f"type serialization version {version} with a header of {length} bytes")
    reader.take(12, "serialization headers")
    rep = representation(Syntax.NDR20, "little" if endianness & _LITTLE_ENDIAN else "big")
    body = reader.take(reader.remaining, "serialized structure")
    return kind.decode(Decoder(body, rep, elements=MAX_REQUEST_ELEMENTS))
