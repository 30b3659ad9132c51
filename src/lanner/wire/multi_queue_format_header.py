"""MultiQueueFormatHeader and its parts (MS-MQMQ 2.2.20.1 to 2.2.20.3, elements 2.2.18.1.4).

It lists all destinations, administration queues and response queues of a message that was sent to
several queues.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from lanner.model.errors import IllegalFormatname, RemoteProtocolError, UnsupportedFormatnameOperation
from lanner.wire.format_name import (
    MAX_ELEMENTS,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueFormatType,
)
from lanner.wire.layout import MQF_ADDRESS_HEADER_SIZE, MQF_ADMINISTRATION, MQF_DESTINATION, MQF_RESPONSE, MQF_SIGNATURE
from lanner.wire.reader import Reader, encode_terminated, guid_to_bytes, padding

_ADDRESS = struct.Struct("<IHHI")
_SIGNATURE = struct.Struct("<HHI")
# Not in the specification: the number of names from which a packed list is kept, and the number of
# lists that are kept.
_MANY = 16
_MAX_PACKED = 8
# By HeaderID and the identity of the names, which the value keeps alive.
_packed: dict[tuple[int, int], tuple[tuple[FormatName, ...], bytes]] = {}


def pack_element(name: FormatName, position: int) -> bytes:
    """Return one MQFFormatNameElement for an even `position`.

    GUIDs begin on the next 4-byte boundary.
    """
    kind = name.queue_format_type.to_bytes(2, "little")
    if isinstance(name, DirectFormatName):
        return kind + encode_terminated(name.text)
    gap = bytes(padding(position + 2))
    if isinstance(name, PublicFormatName) and not name.is_journal:
        return kind + gap + guid_to_bytes(name.identifier)
    if isinstance(name, PrivateFormatName) and not name.is_journal:
        return kind + gap + guid_to_bytes(name.queue_manager_identifier) + name.number.to_bytes(4, "little")
    if isinstance(name, DistributionListFormatName):
        # The domain is omitted: MQFDistributionQueueFormatName has room for the GUID only.
        return kind + gap + guid_to_bytes(name.identifier)
    raise UnsupportedFormatnameOperation(f"{name} has no form in a MultiQueueFormatHeader")


def unpack_element(reader: Reader, start: int) -> FormatName:
    """Read one MQFFormatNameElement; `start` is the position of the header that contains it."""
    what = "MQFFormatNameElement"
    kind = reader.u16(f"{what}.FormatType")
    if kind == QueueFormatType.DIRECT:
        reader.align(2, start, what)
        try:
            return DirectFormatName(reader.text_to_null(f"{what}.DirectFormatName"))
        except IllegalFormatname as error:
            raise RemoteProtocolError(f"{what}: {error}") from None
    reader.align(4, start, what)
    if kind == QueueFormatType.PUBLIC:
        return PublicFormatName(reader.guid(f"{what}.PublicQueueIdentifier"))
    if kind == QueueFormatType.PRIVATE:
        return PrivateFormatName(
            reader.guid(f"{what}.SourceQueueManager"), reader.u32(f"{what}.PrivateQueueIdentifier")
        )
    if kind == QueueFormatType.DL:
        return DistributionListFormatName(reader.guid(f"{what}.DistributionListIdentifier"))
    raise RemoteProtocolError(f"{what}.FormatType: {kind} is not 1, 2, 3 or 6")


@dataclass(frozen=True, slots=True)
class MQFAddressHeader:
    """MQFAddressHeader (MS-MQMQ 2.2.20.2). HeaderSize and ElementCount follow from the names."""

    header_id: int
    names: tuple[FormatName, ...] = ()

    def pack(self) -> bytes:
        if len(self.names) < _MANY:
            return self._pack()
        # A message to a thousand queues is a thousand packets with this list.
        key = self.header_id, id(self.names)
        kept = _packed.get(key)
        if kept is None or kept[0] is not self.names:
            if len(_packed) >= _MAX_PACKED:
                _packed.clear()
            kept = _packed[key] = self.names, self._pack()
        return kept[1]

    def _pack(self) -> bytes:
        parts = []
        position = MQF_ADDRESS_HEADER_SIZE
        for name in self.names:
            element = pack_element(name, position)
            parts.append(element)
            position += len(element)
        parts.append(bytes(padding(position)))
        position += padding(position)
        return b"".join((_ADDRESS.pack(position, self.header_id, 0, len(self.names)), *parts))

    @classmethod
    def unpack(cls, reader: Reader, expected_id: int) -> MQFAddressHeader:
        start = reader.position
        size = reader.u32("MQFAddressHeader.HeaderSize")
        if size < MQF_ADDRESS_HEADER_SIZE:
            raise RemoteProtocolError(f"MQFAddressHeader.HeaderSize: {size} is below {MQF_ADDRESS_HEADER_SIZE}")
        inner = reader.window(size - 4, "MQFAddressHeader")
        header_id = inner.u16("MQFAddressHeader.HeaderID")
        if header_id != expected_id:
            raise RemoteProtocolError(f"MQFAddressHeader.HeaderID: {header_id:#06x} is not {expected_id:#06x}")
        inner.u16("MQFAddressHeader.Reserved")
        count = inner.u32("MQFAddressHeader.ElementCount")
        if count > MAX_ELEMENTS:
            raise RemoteProtocolError(f"MQFAddressHeader.ElementCount: {count} is above {MAX_ELEMENTS}")
        names = tuple(unpack_element(inner, start) for _ in range(count))
        # FormatNameList is padded to 4 bytes. More than that would be an element that was not
        # counted.
        if inner.remaining > 3:
            raise RemoteProtocolError(
                f"MQFAddressHeader.FormatNameList: {inner.remaining} bytes after {count} elements"
            )
        reader.align(4, start, "MQFAddressHeader")
        return cls(header_id, names)

    @property
    def format_name(self) -> FormatName | None:
        """The list as one name: None if it is empty, or its only element."""
        if len(self.names) < 2:
            return self.names[0] if self.names else None
        return MultipleElementFormatName(self.names)


def _header(header_id: int, name: FormatName | None) -> MQFAddressHeader:
    names = () if name is None else name.elements
    if len(names) > MAX_ELEMENTS:
        raise UnsupportedFormatnameOperation(f"a list of {len(names)} queues, at most {MAX_ELEMENTS} fit one message")
    return MQFAddressHeader(header_id, names)


@dataclass(frozen=True, slots=True)
class MQFSignatureHeader:
    """MQFSignatureHeader (MS-MQMQ 2.2.20.3)."""

    signature: bytes = b""

    SIGNATURE_ID: ClassVar[int] = MQF_SIGNATURE

    def pack(self) -> bytes:
        return _SIGNATURE.pack(self.SIGNATURE_ID, 0, len(self.signature)) + self.signature

    @classmethod
    def unpack(cls, reader: Reader) -> MQFSignatureHeader:
        identifier = reader.u16("MQFSignatureHeader.ID")
        if identifier != cls.SIGNATURE_ID:
            raise RemoteProtocolError(f"MQFSignatureHeader.ID: {identifier:#06x} is not {cls.SIGNATURE_ID:#06x}")
        reader.u16("MQFSignatureHeader.Reserved")
        return cls(reader.take(reader.u32("MQFSignatureHeader.Size"), "MQFSignatureHeader.Signature"))


@dataclass(frozen=True, slots=True)
class MultiQueueFormatHeader:
    """MultiQueueFormatHeader (MS-MQMQ 2.2.20.1)."""

    destination: MQFAddressHeader = MQFAddressHeader(MQF_DESTINATION)
    administration: MQFAddressHeader = MQFAddressHeader(MQF_ADMINISTRATION)
    response: MQFAddressHeader = MQFAddressHeader(MQF_RESPONSE)
    signature: MQFSignatureHeader = MQFSignatureHeader()

    @classmethod
    def of(
        cls,
        destination: FormatName | None,
        administration: FormatName | None,
        response: FormatName | None,
        signature: bytes = b"",
    ) -> MultiQueueFormatHeader:
        return cls(
            _header(MQF_DESTINATION, destination),
            _header(MQF_ADMINISTRATION, administration),
            _header(MQF_RESPONSE, response),
            MQFSignatureHeader(signature),
        )

    def pack(self) -> bytes:
        data = b"".join(
            (self.destination.pack(), self.administration.pack(), self.response.pack(), self.signature.pack())
        )
        return data + bytes(padding(len(data)))

    @classmethod
    def unpack(cls, reader: Reader) -> MultiQueueFormatHeader:
        return cls(
            MQFAddressHeader.unpack(reader, MQF_DESTINATION),
            MQFAddressHeader.unpack(reader, MQF_ADMINISTRATION),
            MQFAddressHeader.unpack(reader, MQF_RESPONSE),
            MQFSignatureHeader.unpack(reader),
        )


def unpack_signature(reader: Reader) -> bytes:
    """Return the signature in a MultiQueueFormatHeader, without reading the names before it.

    There may be thousands, and every message that arrives is asked for its signature.
    """
    for _ in range(3):
        start = reader.position
        reader.window(max(reader.u32("MQFAddressHeader.HeaderSize") - 4, 0), "MQFAddressHeader")
        reader.align(4, start, "MQFAddressHeader")
    return MQFSignatureHeader.unpack(reader).signature
