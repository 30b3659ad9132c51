"""Headers that may follow a UserMessage (MS-MQRR 2.2.5.2 to 2.2.5.5).

MS-MQMQ has no field for an application's own dead-letter queue. A stored packet carries it here,
counted in PacketSize, so that the packet remains the entire message. Receivers that do not support
extensions find it after everything they read.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import ClassVar

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader, encode_terminated, padding

_EXTENSION = struct.Struct("<IIB3x")
_SUBQUEUE = struct.Struct("<IIIII64s64s")
# Bits 1 to 16 of the word after HeaderSize (DECISIONS).
_CLASS_SHIFT = 1
_ADDRESS = struct.Struct("<IHHI16s")


class ExtensionFlags(enum.IntFlag):
    """ExtensionHeader.Flags (MS-MQRR 2.2.5.2)."""

    DL = 0x01
    SQ = 0x02
    DI = 0x08
    EA = 0x10


@dataclass(frozen=True, slots=True)
class ExtensionHeader:
    """MS-MQRR 2.2.5.2."""

    remaining_headers_size: int
    flags: int

    SIZE: ClassVar[int] = 12

    def pack(self) -> bytes:
        return _EXTENSION.pack(self.SIZE, self.remaining_headers_size, self.flags)

    @classmethod
    def unpack(cls, reader: Reader) -> ExtensionHeader:
        size, remaining, flags = _EXTENSION.unpack(reader.take(cls.SIZE, "ExtensionHeader"))
        if size < cls.SIZE:
            raise RemoteProtocolError(f"ExtensionHeader.HeaderSize: {size} is below {cls.SIZE}")
        reader.take(size - cls.SIZE, "ExtensionHeader.HeaderSize")
        return cls(remaining, flags)


def _fixed_text(data: bytes) -> str:
    """Return the string in a field of fixed size, up to a null or the end of the field."""
    return data.decode("utf-16-le", "surrogatepass").partition("\0")[0]


def _sized(reader: Reader, least: int, what: str) -> Reader:
    """Return a reader of the rest of a header that begins with its own HeaderSize."""
    size = reader.u32(f"{what}.HeaderSize")
    if size < least:
        raise RemoteProtocolError(f"{what}.HeaderSize: {size} is below {least}")
    return reader.window(size - 4, what)


@dataclass(frozen=True, slots=True)
class SubqueueHeader:
    """SubqueueHeader (MS-MQRR 2.2.5.3).

    One word holds a bit (TM, always 0), AcknowledgementClass in the 16 bits above it, and 15
    reserved bits (DECISIONS).
    """

    acknowledgement_class: int = 0
    abort_counter: int = 0
    move_counter: int = 0
    last_move_time: int = 0
    subqueue_name: str = ""
    target_subqueue_name: str = ""

    SIZE: ClassVar[int] = 148

    def pack(self) -> bytes:
        return _SUBQUEUE.pack(
            self.SIZE,
            self.acknowledgement_class << _CLASS_SHIFT,
            self.abort_counter,
            self.move_counter,
            self.last_move_time,
            self.subqueue_name.encode("utf-16-le", "surrogatepass"),
            self.target_subqueue_name.encode("utf-16-le", "surrogatepass"),
        )

    @classmethod
    def unpack(cls, reader: Reader) -> SubqueueHeader:
        inner = _sized(reader, cls.SIZE, "SubqueueHeader")
        return cls(
            inner.u32("SubqueueHeader.AcknowledgementClass") >> _CLASS_SHIFT & 0xFFFF,
            inner.u32("SubqueueHeader.AbortCounter"),
            inner.u32("SubqueueHeader.MoveCounter"),
            inner.u32("SubqueueHeader.LastMoveTime"),
            _fixed_text(inner.take(64, "SubqueueHeader names")),
            _fixed_text(inner.take(64, "SubqueueHeader names")),
        )


@dataclass(frozen=True, slots=True)
class DeadLetterHeader:
    """DeadLetterHeader (MS-MQRR 2.2.5.4). HeaderSize includes the padding."""

    dead_letter_path_name: str

    def pack(self) -> bytes:
        text = encode_terminated(self.dead_letter_path_name)
        text += bytes(padding(len(text)))
        return (4 + len(text)).to_bytes(4, "little") + text

    @classmethod
    def unpack(cls, reader: Reader) -> DeadLetterHeader:
        inner = _sized(reader, 6, "DeadLetterHeader")
        return cls(inner.text_to_null("DeadLetterHeader.DeadLetterPathName"))


@dataclass(frozen=True, slots=True)
class ExtendedAddressHeader:
    """ExtendedAddressHeader (MS-MQRR 2.2.5.5). AddressType 0 means that there is no address."""

    address_length: int = 0
    address_type: int = 0
    address_scope: int = 0
    address: bytes = bytes(16)

    SIZE: ClassVar[int] = 28

    def pack(self) -> bytes:
        return _ADDRESS.pack(self.SIZE, self.address_length, self.address_type, self.address_scope, self.address)

    @classmethod
    def unpack(cls, reader: Reader) -> ExtendedAddressHeader:
        inner = _sized(reader, cls.SIZE, "ExtendedAddressHeader")
        return cls(
            inner.u16("ExtendedAddressHeader.AddressLength"),
            inner.u16("ExtendedAddressHeader.AddressType"),
            inner.u32("ExtendedAddressHeader.AddressScope"),
            inner.take(16, "ExtendedAddressHeader.Address"),
        )


@dataclass(frozen=True, slots=True)
class Extensions:
    """The ExtensionHeader and the headers that it announces, in the order of MS-MQRR 2.2.5."""

    subqueue: SubqueueHeader | None = None
    dead_letter: DeadLetterHeader | None = None
    extended_address: ExtendedAddressHeader | None = None
    is_dead_letter_invalid: bool = False

    def pack(self) -> bytes:
        flags = 0
        parts = []
        for bit, header in (
            (ExtensionFlags.SQ, self.subqueue),
            (ExtensionFlags.DL, self.dead_letter),
            (ExtensionFlags.EA, self.extended_address),
        ):
            if header is not None:
                flags |= bit
                parts.append(header.pack())
        if self.is_dead_letter_invalid:
            flags |= ExtensionFlags.DI
        rest = b"".join(parts)
        return ExtensionHeader(len(rest), flags).pack() + rest

    @classmethod
    def unpack(cls, reader: Reader) -> Extensions:
        return cls._read(reader)[0]

    @classmethod
    def unpack_all(cls, reader: Reader) -> Extensions:
        """Read all headers. Raise RemoteProtocolError if bytes are left over."""
        extensions, inner = cls._read(reader)
        inner.expect_end("ExtensionHeader.RemainingHeadersSize")
        reader.expect_end("ExtensionHeader")
        return extensions

    @classmethod
    def _read(cls, reader: Reader) -> tuple[Extensions, Reader]:
        header = ExtensionHeader.unpack(reader)
        inner = reader.window(header.remaining_headers_size, "ExtensionHeader.RemainingHeadersSize")
        extensions = cls(
            SubqueueHeader.unpack(inner) if header.flags & ExtensionFlags.SQ else None,
            DeadLetterHeader.unpack(inner) if header.flags & ExtensionFlags.DL else None,
            ExtendedAddressHeader.unpack(inner) if header.flags & ExtensionFlags.EA else None,
            bool(header.flags & ExtensionFlags.DI),
        )
        return extensions, inner
