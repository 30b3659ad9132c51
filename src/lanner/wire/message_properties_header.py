"""MessagePropertiesHeader: the part of a message that applications set (MS-MQMQ 2.2.19.3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.reader import Reader, encode_terminated, padding

_LAYOUT = struct.Struct("<BBH20sIIIIIIII")


@dataclass(frozen=True, slots=True)
class MessagePropertiesHeader:
    """LabelLength, MessageSize and ExtensionSize follow from the data."""

    flags: int = 0  # acknowledgements
    message_class: int = 0
    correlation_id: bytes = bytes(20)
    body_type: int = 0
    application_tag: int = 0
    allocation_body_size: int = 0
    privacy_level: int = 0
    hash_algorithm: int = 0
    encryption_algorithm: int = 0
    label: str = ""
    extension_data: bytes = b""
    message_body: bytes = b""

    def __repr__(self) -> str:
        return f"<MessagePropertiesHeader class {self.message_class:#06x}, body of {len(self.message_body)} bytes>"

    def pack(self) -> bytes:
        label = encode_terminated(self.label) if self.label else b""
        rest = b"".join((label, self.extension_data, self.message_body))
        return b"".join(
            (
                _LAYOUT.pack(
                    self.flags,
                    len(label) // 2,
                    self.message_class,
                    self.correlation_id,
                    self.body_type,
                    self.application_tag,
                    len(self.message_body),
                    self.allocation_body_size,
                    self.privacy_level,
                    self.hash_algorithm,
                    self.encryption_algorithm,
                    len(self.extension_data),
                ),
                rest,
                bytes(padding(len(rest))),
            )
        )

    @classmethod
    def unpack(cls, reader: Reader) -> MessagePropertiesHeader:
        what = "MessagePropertiesHeader"
        start = reader.position
        (
            flags,
            label_length,
            message_class,
            correlation_id,
            body_type,
            application_tag,
            message_size,
            allocation_body_size,
            privacy_level,
            hash_algorithm,
            encryption_algorithm,
            extension_size,
        ) = _LAYOUT.unpack(reader.take(_LAYOUT.size, what))
        if label_length > at.MAX_LABEL_LENGTH:
            raise RemoteProtocolError(f"{what}.LabelLength: {label_length} is above {at.MAX_LABEL_LENGTH}")
        header = cls(
            flags,
            message_class,
            correlation_id,
            body_type,
            application_tag,
            allocation_body_size,
            privacy_level,
            hash_algorithm,
            encryption_algorithm,
            reader.text(2 * label_length, f"{what}.Label") if label_length else "",
            reader.take(extension_size, f"{what}.ExtensionData"),
            reader.take(message_size, f"{what}.MessageBody"),
        )
        reader.align(4, start, what)
        return header
