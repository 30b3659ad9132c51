"""SoapHeader: two application-defined strings (MS-MQMQ 2.2.20.7)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from lanner.model.errors import RemoteProtocolError
from lanner.wire.layout import SOAP_BODY_SECTION, SOAP_HEADER_SECTION
from lanner.wire.reader import Reader, encode_terminated, padding

_SECTION = struct.Struct("<HHI")


def _pack_section(section: int, text: str) -> bytes:
    data = encode_terminated(text)
    return _SECTION.pack(section, 0, len(data) // 2) + data


def _unpack_section(reader: Reader, section: int, name: str) -> str:
    what = f"SoapHeader.{name}"
    found, _, length = _SECTION.unpack(reader.take(_SECTION.size, f"{what}SectionID"))
    if found != section:
        raise RemoteProtocolError(f"{what}SectionID: {found:#06x} is not {section:#06x}")
    # The valid range includes 0: no string, not even a terminator.
    return reader.text(2 * length, what) if length else ""


@dataclass(frozen=True, slots=True)
class SoapHeader:
    """The sections are not padded. The next header begins on a 4-byte boundary."""

    header: str
    body: str

    def pack(self) -> bytes:
        data = _pack_section(SOAP_HEADER_SECTION, self.header) + _pack_section(SOAP_BODY_SECTION, self.body)
        return data + bytes(padding(len(data)))

    @classmethod
    def unpack(cls, reader: Reader) -> SoapHeader:
        start = reader.position
        header = cls(
            _unpack_section(reader, SOAP_HEADER_SECTION, "Header"), _unpack_section(reader, SOAP_BODY_SECTION, "Body")
        )
        reader.align_or_end(4, start)
        return header
