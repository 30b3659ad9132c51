"""The headers of a message that came over HTTP, as remote readers get them (MS-MQRR 2.2.5.1.2).

No number of HeaderId is published, so none is checked; Lanner writes 0. DataLength counts 16-bit
characters (DECISIONS). Neither header is padded; the next header begins on a 4-byte boundary.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lanner.wire.layout import check_compound
from lanner.wire.reader import Reader, encode_terminated, padding

_ENVELOPE = struct.Struct("<4xI")
_COMPOUND = struct.Struct("<4xIII")


@dataclass(frozen=True, slots=True)
class SrmpEnvelopeHeader:
    """SRMPEnvelopeHeader (2.2.5.1.2.1): the SOAP envelope."""

    data: str

    def pack(self) -> bytes:
        data = encode_terminated(self.data)
        return _ENVELOPE.pack(len(data) // 2) + data + bytes(padding(len(data)))

    @classmethod
    def unpack(cls, reader: Reader) -> SrmpEnvelopeHeader:
        start = reader.position
        (length,) = _ENVELOPE.unpack(reader.take(_ENVELOPE.size, "SRMPEnvelopeHeader"))
        header = cls(reader.text(2 * length, "SRMPEnvelopeHeader.Data") if length else "")
        reader.align_or_end(4, start)
        return header


@dataclass(frozen=True, slots=True)
class CompoundMessageHeader:
    """CompoundMessageHeader (2.2.5.1.2.2): the HTTP request, which contains the message body."""

    msg_body_size: int
    msg_body_offset: int
    data: bytes

    def pack(self) -> bytes:
        sizes = _COMPOUND.pack(len(self.data), self.msg_body_size, self.msg_body_offset)
        return sizes + self.data + bytes(padding(len(self.data)))

    @classmethod
    def unpack(cls, reader: Reader) -> CompoundMessageHeader:
        start = reader.position
        sizes = _COMPOUND.unpack(reader.take(_COMPOUND.size, "CompoundMessageHeader"))
        check_compound(*sizes)
        size, body_size, body_offset = sizes
        header = cls(body_size, body_offset, reader.take(size, "CompoundMessageHeader.Data"))
        reader.align_or_end(4, start)
        return header
