"""A message that came over HTTP, as a Windows computer gives it to remote readers.

The octets are laid out from MS-MQRR 2.2.5 and MS-MQMQ 2.2.19 and 2.2.20 alone, so nothing of Lanner
is imported. The HTTP request is shaped like the example in MC-MQSRM 4.1.
"""

from __future__ import annotations

import struct
from typing import Final

LABEL: Final = "over HTTP"
BODY: Final = b"the body of the message"
ENVELOPE: Final = (
    '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
    "<se:Header/><se:Body></se:Body></se:Envelope>"
)
_BOUNDARY: Final = "MSMQ - SOAP boundary, 26500"
_FRONT: Final = (
    "POST /msmq/private$/simpleq HTTP/1.1\r\nHost: machine2\r\n"
    f'Content-Type: multipart/related; boundary="{_BOUNDARY}"; type=text/xml\r\nSOAPAction: "MSMQMessage"\r\n\r\n'
    f"--{_BOUNDARY}\r\nContent-Type: text/xml; charset=UTF-8\r\n\r\n{ENVELOPE}--{_BOUNDARY}\r\n"
    f"Content-Type: application/octet-stream\r\nContent-Length: {len(BODY)}\r\n\r\n"
).encode()
COMPOUND_MESSAGE: Final = _FRONT + BODY + f"--{_BOUNDARY}--".encode()
BODY_OFFSET: Final = len(_FRONT)
SOAP: Final = ("header", "body")
SOURCE: Final = bytes(range(16))
ABORTS: Final = 5

_DIRECT_NAME: Final = "HTTP://machine2/msmq/private$/simpleq\0"
# UserHeader.Flags: DM 1, DQ 7 (direct), MP, AH and HH.
_FLAGS: Final = 1 << 5 | 7 << 10 | 1 << 21 | 1 << 25 | 1 << 28
_SENT_TIME: Final = 1_700_000_000


def _padded(octets: bytes) -> bytes:
    return octets + bytes(-len(octets) % 4)


def _wide(text: str) -> bytes:
    return text.encode("utf-16-le")


def envelope_header(text: str = ENVELOPE, *, identifier: int = 0x1234, reserved: int = 0xBEEF) -> bytes:
    """HeaderId, Reserved, DataLength in characters, Data."""
    data = _wide(f"{text}\0")
    return _padded(struct.pack("<HHI", identifier, reserved, len(data) // 2) + data)


def compound_header(
    data: bytes = COMPOUND_MESSAGE,
    size: int | None = None,
    body: tuple[int, int] = (len(BODY), BODY_OFFSET),
    *,
    identifier: int = 0x4321,
    reserved: int = 0xBEEF,
) -> bytes:
    """HeaderId, Reserved, HTTPBodySize, MsgBodySize, MsgBodyOffset, Data; without padding."""
    return struct.pack("<HHIII", identifier, reserved, len(data) if size is None else size, *body) + data


def parts(
    envelope: bytes | None = None, compound: bytes | None = None, *, has_soap_header: bool = True
) -> tuple[bytes, bytes, bytes]:
    """The octets before CompoundMessageHeader, that header with its padding, and what follows."""
    name = _wide(_DIRECT_NAME)
    user = SOURCE + bytes(16) + struct.pack("<III", 0xFFFF_FFFF, _SENT_TIME, 77)
    user += struct.pack("<I", _FLAGS if has_soap_header else _FLAGS & ~(1 << 28))
    user += _padded(struct.pack("<H", len(name)) + name)
    label = _wide(f"{LABEL}\0")
    # Flags, LabelLength, MessageClass, CorrelationID, BodyType, ApplicationTag, MessageSize,
    # AllocationBodySize, PrivacyLevel, HashAlgorithm, EncryptionAlgorithm, ExtensionSize.
    properties = struct.pack("<BBH20s8I", 0, len(label) // 2, 0, bytes(20), 0, 9, 0, 0, 0, 0x8004, 0x6602, 0)
    front = user + _padded(properties + label) + (envelope_header() if envelope is None else envelope)
    middle = _padded(compound_header() if compound is None else compound)
    end = b""
    if has_soap_header:
        for number, text in zip((0x0320, 0x0384), SOAP, strict=True):
            end += struct.pack("<HHI", number, 0, len(text) + 1) + _wide(f"{text}\0")
        end = _padded(end)
    # ExtensionHeader (SQ and EA), SubqueueHeader, ExtendedAddressHeader.
    end += struct.pack("<IIB3x", 12, 148 + 28, 0x02 | 0x10)
    end += struct.pack("<IIIII64s64s", 148, 0, ABORTS, 0, 0, b"", b"")
    end += struct.pack("<IHHI16s", 28, 4, 1, 0, bytes((192, 0, 2, 1)))
    size = 16 + len(front) + len(middle) + len(end)
    base = struct.pack("<BBHIII", 0x10, 0, 3, 0x524F_494C, size, 0xFFFF_FFFF)
    return base + front, middle, end


def packet() -> bytes:
    return b"".join(parts())
