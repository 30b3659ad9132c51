"""The size and digest of packets' contents, to compare two writes of the same messages.

The loop runs once per message. `lanner.native` selects this implementation or its equivalent in C.
"""

from __future__ import annotations

import struct
from typing import Final
from zlib import crc32

from lanner.native import chosen
from lanner.wire import layout as at

__all__ = ["packet_contents"]

_sizes: Final = struct.Struct("<xB30xI16xI").unpack_from  # LabelLength, MessageSize, ExtensionSize


def _packet_contents(packets: list[bytes], properties: int) -> tuple[int, int]:
    """Return the size of all bodies, and a digest of labels and bodies.

    The digest does not depend on the order. The MessagePropertiesHeader of each packet is at
    `properties`.
    """
    bodies = digest = 0
    for packet in packets:
        label_length, body, extension = _sizes(packet, properties)
        start = properties + at.PROPERTIES_HEADER_SIZE
        end = start + 2 * label_length
        if properties < 0 or end + extension + body > len(packet):
            raise ValueError("a packet is shorter than its label, extension and body")
        digest += crc32(packet[end + extension : end + extension + body], crc32(packet[start:end])) + 1
        bodies += body
    return bodies, digest


packet_contents = chosen(_packet_contents)
