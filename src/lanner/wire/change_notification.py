"""Change Notification Messages, the bodies of MS-MQCN (MS-MQCN 2.2.4 to 2.2.6).

Version 0x01 is binary and has the new values of properties. Version 0x02 names an object in XML and
has no values. On the wire, the body has one meaningless octet after the message (3.3.5.3).
"""

from __future__ import annotations

import enum
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import RemoteProtocolError
from lanner.wire.notification_values import PropertyValue, pack_values, property_type, read_value
from lanner.wire.reader import Reader, encode_terminated

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION_1: Final = 0x01
VERSION_2: Final = 0x02
# The private queue number of the notification queue (MS-MQCN 1.9, MS-MQMQ 2.1.4).
NOTIFY_QUEUE_NUMBER: Final = 3

# MS-MQMQ 2.3.13.3, 2.3.13.4: values of PROPID_D_SCOPE and PROPID_D_OBJTYPE.
MQDS_ENTERPRISESCOPE: Final = 1
MQDS_QUEUE: Final = 1
MQDS_MACHINE: Final = 2

MAX_UPDATES: Final = 0xFF
MAX_PROPERTIES: Final = 0xFF
_RESERVED: Final = bytes(24)
_SPARE: Final = b"\0"
_HEADER_SIZE: Final = 2
# Longer bodies of version 0x02 do not match the ABNF: its names and the longest values are shorter.
MAX_BODY_2: Final = 2048

_HEXADECIMAL: Final = "[0-9A-Fa-f]"
# The ABNF of 2.2.5. DECISIONS: the space in its second end tag is accepted but not written.
_BODY: Final = re.compile(
    r"<Notification>"
    r"<Event>([1-4])</Event>"
    rf"<ObjectGuid>({_HEXADECIMAL}{{8}}(?:-{_HEXADECIMAL}{{4}}){{3}}-{_HEXADECIMAL}{{12}})</ObjectGuid ?>"
    r"<DomainController>([\x21-\x7E]{1,256}?)</DomainController>"
    r"</Notification>"
)
_SERVER_NAME: Final = re.compile(r"[\x21-\x7E]{1,256}")


class NotificationEvent(enum.IntEnum):
    """MS-MQCN 2.2.5 Event."""

    CREATE_QUEUE = 1
    CHANGE_QUEUE = 2
    DELETE_QUEUE = 3
    CHANGE_MACHINE = 4


class NotificationCommand(enum.IntEnum):
    """MS-MQCN 2.2.6 Command."""

    CREATE = 0x00
    CHANGE = 0x01
    DELETE = 0x02


@dataclass(frozen=True, slots=True)
class NotificationBody:
    """The changed object and its directory server (MS-MQCN 2.2.5)."""

    event: NotificationEvent
    object_guid: uuid.UUID
    domain_controller: str

    def __post_init__(self) -> None:
        if not _SERVER_NAME.fullmatch(self.domain_controller) or "<" in self.domain_controller:
            raise ValueError(f"DomainController {self.domain_controller!r}: 1 to 256 characters 0x21-0x7E expected")

    def pack(self) -> bytes:
        text = (
            f"<Notification><Event>{int(self.event)}</Event>"
            f"<ObjectGuid>{str(self.object_guid).upper()}</ObjectGuid>"
            f"<DomainController>{self.domain_controller}</DomainController></Notification>"
        )
        return text.encode("utf-16-le")

    @classmethod
    def unpack(cls, data: bytes) -> NotificationBody:
        """Parse the text, an optional null after it, and one more octet.

        Only the form of the ABNF is accepted: an XML parser would add nothing but declarations,
        entities and comments, which no sender writes.
        """
        if len(data) > MAX_BODY_2:
            raise RemoteProtocolError(
                f"Notification Body of {len(data)} bytes: at most {MAX_BODY_2} can follow the ABNF"
            )
        try:
            text = data[: len(data) & ~1].decode("utf-16-le")
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"Notification Body: {error.reason}") from None
        found = _BODY.fullmatch(text.removesuffix("\0"))
        if found is None:
            raise RemoteProtocolError("Notification Body: it does not follow the ABNF of MS-MQCN 2.2.5")
        event, object_guid, domain_controller = found.groups()
        if "<" in domain_controller:
            raise RemoteProtocolError("Notification Body: DomainController has an element in it")
        return cls(NotificationEvent(int(event)), uuid.UUID(object_guid), domain_controller)


@dataclass(frozen=True, slots=True)
class NotificationUpdate:
    """A change of an object, with values of its properties (MS-MQCN 2.2.6)."""

    command: NotificationCommand
    path_name: str | None  # None if `guid_identifier` names the object (UseGuid 0x01)
    guid_identifier: uuid.UUID | None
    guid_master_id: uuid.UUID = GUID_NULL
    property_ids: tuple[int, ...] = ()
    property_values: tuple[PropertyValue, ...] = field(default=(), repr=False)

    @property
    def values(self) -> dict[int, PropertyValue]:
        """The values by identifier; the first one of an identifier that occurs twice."""
        found: dict[int, PropertyValue] = {}
        for identifier, value in zip(self.property_ids, self.property_values, strict=True):
            found.setdefault(identifier, value)
        return found

    @property
    def object_type(self) -> int | None:
        """MQDS_QUEUE, MQDS_MACHINE or another kind of object (3.2.5.1).

        None if the update does not contain the kind.
        """
        if self.command is NotificationCommand.DELETE:
            value = self.property_values[1] if len(self.property_values) > 1 else None
            return value if isinstance(value, int) else None
        if not self.property_ids:
            return None
        first = self.property_ids[0]
        return (first - 1000) // 100 if first > 1000 else first // 100

    def pack(self) -> bytes:
        if len(self.property_ids) > MAX_PROPERTIES:
            raise ValueError(f"{len(self.property_ids)} properties: at most {MAX_PROPERTIES} in a Notification Update")
        parts = [bytes((self.command, self.path_name is None))]
        if self.path_name is not None:
            parts.append(encode_terminated(self.path_name))
        else:
            parts.append((self.guid_identifier or GUID_NULL).bytes_le)
        parts += [self.guid_master_id.bytes_le, _RESERVED, bytes((len(self.property_ids),))]
        parts += [identifier.to_bytes(4, "little") for identifier in self.property_ids]
        parts.append(pack_values(self.property_ids, self.property_values))
        return b"".join(parts)

    @classmethod
    def read(cls, reader: Reader) -> NotificationUpdate:
        command = reader.u8("Command")
        if command > NotificationCommand.DELETE:
            raise RemoteProtocolError(f"Command {command:#04x}: 0x00 to 0x02 expected")
        use_guid = reader.u8("UseGuid")
        if use_guid > 1:
            raise RemoteProtocolError(f"UseGuid {use_guid:#04x}: 0x00 or 0x01 expected")
        path_name = None if use_guid else reader.text_to_null("PathName")
        guid = reader.guid("GuidIdentifier") if use_guid else None
        master = reader.guid("GuidMasterId")
        reader.take(len(_RESERVED), "Reserved")
        count = reader.u8("NumberOfProperties")
        identifiers = tuple(reader.u32(f"PropertyId[{at}]") for at in range(count))
        values = tuple(
            read_value(reader, property_type(identifier), f"PropertyValue of {identifier}")
            for identifier in identifiers
        )
        return cls(NotificationCommand(command), path_name, guid, master, identifiers, values)


@dataclass(frozen=True, slots=True)
class ChangeNotificationMessage:
    """A Change Notification Message (MS-MQCN 2.2.4)."""

    version: int
    number_of_update_notifications: int
    data: bytes = field(repr=False)

    @classmethod
    def of_body(cls, body: NotificationBody) -> ChangeNotificationMessage:
        """Make a message of version 0x02."""
        return cls(VERSION_2, 1, body.pack())

    @classmethod
    def of_updates(cls, *updates: NotificationUpdate) -> ChangeNotificationMessage:
        """Make a message of version 0x01."""
        if len(updates) > MAX_UPDATES:
            raise ValueError(f"{len(updates)} Notification Updates: at most {MAX_UPDATES} in a message")
        return cls(VERSION_1, len(updates), b"".join(update.pack() for update in updates))

    def pack(self) -> bytes:
        return bytes((self.version, self.number_of_update_notifications)) + self.data

    def message_body(self) -> bytes:
        """Return the body of the message that carries this one, with the extra octet (3.3.5.3)."""
        return self.pack() + _SPARE

    @classmethod
    def unpack(cls, body: bytes) -> ChangeNotificationMessage:
        if len(body) < _HEADER_SIZE:
            raise RemoteProtocolError(f"Change Notification Message of {len(body)} bytes: at least 2 expected")
        return cls(body[0], body[1], body[_HEADER_SIZE:])

    @property
    def notification_body(self) -> NotificationBody:
        """Return the data of version 0x02. Raise RemoteProtocolError."""
        return NotificationBody.unpack(self.data)

    def updates(self) -> Iterator[NotificationUpdate]:
        """Yield the updates of version 0x01. Octets after the last one are ignored.

        Raise RemoteProtocolError at the first malformed update.
        """
        reader = Reader(self.data)
        for _ in range(self.number_of_update_notifications):
            yield NotificationUpdate.read(reader)
