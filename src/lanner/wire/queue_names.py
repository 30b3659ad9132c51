"""Queue names in the form that packets carry (MS-MQMQ 2.2.18.1.5, 2.2.18.1.7, 2.2.19.2).

A direct name is sent as text. Other names are sent as identifiers, with a type code for the
location of a private queue.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import QueueNameType
from lanner.model.errors import IllegalFormatname, RemoteProtocolError, UnsupportedFormatnameOperation
from lanner.wire.format_name import DirectFormatName, FormatName, PrivateFormatName, PublicFormatName
from lanner.wire.reader import decode_terminated, encode_terminated, guid_from_bytes, guid_to_bytes, padding

NONE = int(QueueNameType.NONE)
SAME_AS_ADMINISTRATION_QUEUE = int(QueueNameType.SAME_AS_ADMINISTRATION_QUEUE)
PRIVATE_QUEUE_ON_SOURCE = int(QueueNameType.PRIVATE_QUEUE_ON_SOURCE)
PRIVATE_QUEUE_ON_DESTINATION = int(QueueNameType.PRIVATE_QUEUE_ON_DESTINATION)
PRIVATE_QUEUE_ON_ADMIN = int(QueueNameType.PRIVATE_QUEUE_ON_ADMIN)
PUBLIC_QUEUE = int(QueueNameType.PUBLIC_QUEUE)
PRIVATE_QUEUE_ON_OTHER = int(QueueNameType.PRIVATE_QUEUE_ON_OTHER)
DIRECT_QUEUE = int(QueueNameType.DIRECT_QUEUE)

# MS-MQMQ 2.2.19.2: the allowed types of each field.
DESTINATION_TYPES = frozenset((NONE, PRIVATE_QUEUE_ON_DESTINATION, PUBLIC_QUEUE, DIRECT_QUEUE))
ADMINISTRATION_TYPES = DESTINATION_TYPES | {PRIVATE_QUEUE_ON_SOURCE, PRIVATE_QUEUE_ON_OTHER}

# The size of a name in bytes, by type code; a direct name contains its size.
NAME_SIZES = (0, 0, 4, 4, 4, 16, 20, -1)

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
MAX_DIRECT_SIZE = 0xFFFF


@lru_cache(maxsize=1024)
def decode_direct(data: bytes) -> DirectFormatName:
    """Return the name in a DirectFormatName field: null-terminated UTF-16 without "DIRECT="."""
    try:
        return DirectFormatName(decode_terminated(data, "DirectFormatName"))
    except IllegalFormatname as error:
        raise RemoteProtocolError(f"DirectFormatName: {error}") from None


def decode_private(data: bytes) -> PrivateFormatName:
    """Return the name in a field for a private queue on any computer: queue manager and number."""
    return PrivateFormatName(guid_from_bytes(data[:16]), _U32.unpack_from(data, 16)[0])


@lru_cache(maxsize=4096)
def encode_direct(name: DirectFormatName) -> bytes:
    """Return count, text and padding.

    Headers begin on 4-byte boundaries, so the padding depends only on the size.
    """
    text = encode_terminated(name.text)
    if len(text) > MAX_DIRECT_SIZE:
        raise IllegalFormatname(f"direct format name of {len(text)} bytes, at most {MAX_DIRECT_SIZE}")
    return b"".join((_U16.pack(len(text)), text, bytes(padding(2 + len(text)))))


@lru_cache(maxsize=4096)
def encode_destination(name: FormatName) -> tuple[int, bytes | None, bytes]:
    """Return the type code, the destination queue manager's GUID, and the DestinationQueue bytes.

    The GUID is None if the name does not contain it.
    """
    if isinstance(name, DirectFormatName):
        return DIRECT_QUEUE, bytes(16), encode_direct(name)
    if isinstance(name, PrivateFormatName) and not name.is_journal:
        return (
            PRIVATE_QUEUE_ON_DESTINATION,
            guid_to_bytes(name.queue_manager_identifier),
            _U32.pack(name.number),
        )
    if isinstance(name, PublicFormatName) and not name.is_journal:
        return PUBLIC_QUEUE, None, guid_to_bytes(name.identifier)
    reason = name.why_unsent or "it cannot be the destination of one packet"
    raise UnsupportedFormatnameOperation(f"{name}: {reason}")


def encode_administration(name: FormatName | None, source: UUID, destination: UUID) -> tuple[int, bytes]:
    """Return the type code and the AdminQueue bytes.

    `source` and `destination` are the GUIDs of the queue managers.
    """
    if name is None:
        return NONE, b""
    if isinstance(name, DirectFormatName):
        return DIRECT_QUEUE, encode_direct(name)
    if isinstance(name, PublicFormatName) and not name.is_journal:
        return PUBLIC_QUEUE, guid_to_bytes(name.identifier)
    if isinstance(name, PrivateFormatName) and not name.is_journal:
        number = _U32.pack(name.number)
        host = name.queue_manager_identifier
        if host == source:
            return PRIVATE_QUEUE_ON_SOURCE, number
        if host == destination and host != GUID_NULL:
            return PRIVATE_QUEUE_ON_DESTINATION, number
        return PRIVATE_QUEUE_ON_OTHER, guid_to_bytes(host) + number
    raise UnsupportedFormatnameOperation(f"{name} cannot be an administration or response queue")


def encode_response(
    name: FormatName | None, administration: FormatName | None, source: UUID, destination: UUID
) -> tuple[int, bytes]:
    """Return the type code and the ResponseQueue bytes, in the shortest equivalent form."""
    if name is None:
        return NONE, b""
    if name == administration:
        return SAME_AS_ADMINISTRATION_QUEUE, b""
    code, data = encode_administration(name, source, destination)
    if (
        code == PRIVATE_QUEUE_ON_OTHER
        and isinstance(administration, PrivateFormatName)
        and data[:16] == guid_to_bytes(administration.queue_manager_identifier)
    ):
        return PRIVATE_QUEUE_ON_ADMIN, data[16:]
    return code, data
