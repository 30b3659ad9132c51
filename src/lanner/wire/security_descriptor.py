"""Access control entries, lists and security descriptors (MS-DTYP 2.4.3 to 2.4.6).

Only the self-relative form is supported. The text form (SDDL, MS-DTYP 2.5.1) is in
`lanner.wire.sddl`.
"""

from __future__ import annotations

import enum
import struct
import uuid
from dataclasses import dataclass, field, replace
from typing import Final

from lanner.model.errors import RemoteProtocolError
from lanner.wire.reader import Reader
from lanner.wire.sid import Sid

_HEADER: Final = struct.Struct("<BBHIIII")
_ACL_HEADER: Final = struct.Struct("<BBHHH")
_ACE_HEADER: Final = struct.Struct("<BBH")

# MS-DTYP 2.4.6.
DESCRIPTOR_REVISION: Final = 1
# MS-DTYP 2.4.5: the two revisions that may be sent.
ACL_REVISION: Final = 2
ACL_REVISION_DS: Final = 4
# MS-DTYP 2.4.5: AclSize is 16 bits wide.
MAX_ACL_SIZE: Final = 0xFFFF
# Not in the specification: the header and four parts of maximum size, so that stored descriptors
# are bounded.
MAX_DESCRIPTOR_SIZE: Final = _HEADER.size + 2 * MAX_ACL_SIZE + 2 * 68


class AccessMask(enum.IntFlag):
    """MS-DTYP 2.4.3: the rights common to all kinds of objects."""

    DELETE = 0x0001_0000
    READ_CONTROL = 0x0002_0000
    WRITE_DAC = 0x0004_0000
    WRITE_OWNER = 0x0008_0000
    SYNCHRONIZE = 0x0010_0000
    ACCESS_SYSTEM_SECURITY = 0x0100_0000
    MAXIMUM_ALLOWED = 0x0200_0000
    GENERIC_ALL = 0x1000_0000
    GENERIC_EXECUTE = 0x2000_0000
    GENERIC_WRITE = 0x4000_0000
    GENERIC_READ = 0x8000_0000


class AceType(enum.IntEnum):
    """MS-DTYP 2.4.4.1. Unknown numbers are kept unchanged."""

    ACCESS_ALLOWED = 0x00
    ACCESS_DENIED = 0x01
    SYSTEM_AUDIT = 0x02
    ACCESS_ALLOWED_OBJECT = 0x05
    ACCESS_DENIED_OBJECT = 0x06
    SYSTEM_AUDIT_OBJECT = 0x07
    ACCESS_ALLOWED_CALLBACK = 0x09
    ACCESS_DENIED_CALLBACK = 0x0A
    ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0B
    ACCESS_DENIED_CALLBACK_OBJECT = 0x0C
    SYSTEM_AUDIT_CALLBACK = 0x0D
    SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0F
    SYSTEM_MANDATORY_LABEL = 0x11
    SYSTEM_RESOURCE_ATTRIBUTE = 0x12
    SYSTEM_SCOPED_POLICY_ID = 0x13


# MS-DTYP 2.4.4.3: Mask and Sid are separated by a Flags field and up to two GUIDs.
OBJECT_ACE_TYPES: Final = frozenset(
    {
        AceType.ACCESS_ALLOWED_OBJECT,
        AceType.ACCESS_DENIED_OBJECT,
        AceType.SYSTEM_AUDIT_OBJECT,
        AceType.ACCESS_ALLOWED_CALLBACK_OBJECT,
        AceType.ACCESS_DENIED_CALLBACK_OBJECT,
        AceType.SYSTEM_AUDIT_CALLBACK_OBJECT,
    }
)
_ACE_TYPES: Final = frozenset(AceType)

# MS-DTYP 2.4.4.3 Flags.
_OBJECT_TYPE_PRESENT: Final = 0x1
_INHERITED_OBJECT_TYPE_PRESENT: Final = 0x2


class AceFlags(enum.IntFlag):
    """MS-DTYP 2.4.4.1."""

    OBJECT_INHERIT = 0x01
    CONTAINER_INHERIT = 0x02
    NO_PROPAGATE_INHERIT = 0x04
    INHERIT_ONLY = 0x08
    INHERITED = 0x10
    SUCCESSFUL_ACCESS = 0x40
    FAILED_ACCESS = 0x80


class Control(enum.IntFlag):
    """MS-DTYP 2.4.6 Control. The table there numbers bits from the most significant one."""

    OWNER_DEFAULTED = 0x0001
    GROUP_DEFAULTED = 0x0002
    DACL_PRESENT = 0x0004
    DACL_DEFAULTED = 0x0008
    SACL_PRESENT = 0x0010
    SACL_DEFAULTED = 0x0020
    DACL_TRUSTED = 0x0040
    SERVER_SECURITY = 0x0080
    DACL_AUTO_INHERIT_REQUIRED = 0x0100
    SACL_AUTO_INHERIT_REQUIRED = 0x0200
    DACL_AUTO_INHERITED = 0x0400
    SACL_AUTO_INHERITED = 0x0800
    DACL_PROTECTED = 0x1000
    SACL_PROTECTED = 0x2000
    RM_CONTROL_VALID = 0x4000
    SELF_RELATIVE = 0x8000


class SecurityInformation(enum.IntFlag):
    """MS-MQMQ 2.2.3: the parts of a descriptor that an operation concerns."""

    OWNER = 0x1
    GROUP = 0x2
    DACL = 0x4
    SACL = 0x8


NO_FLAGS: Final = AceFlags(0)


@dataclass(frozen=True, slots=True)
class Ace:
    """An access control entry (MS-DTYP 2.4.4).

    `data` is the part after the SID, such as a condition. It is not interpreted.
    """

    ace_type: int
    mask: int
    sid: Sid
    flags: AceFlags = NO_FLAGS
    object_type: uuid.UUID | None = None
    inherited_object_type: uuid.UUID | None = None
    data: bytes = b""

    def pack(self) -> bytes:
        body = struct.pack("<I", self.mask)
        if self.ace_type in OBJECT_ACE_TYPES:
            guids = (self.object_type, self.inherited_object_type)
            present = (_OBJECT_TYPE_PRESENT, _INHERITED_OBJECT_TYPE_PRESENT)
            body += struct.pack("<I", sum(bit for bit, guid in zip(present, guids, strict=True) if guid is not None))
            body += b"".join(guid.bytes_le for guid in guids if guid is not None)
        body += self.sid.pack() + self.data
        body += bytes(-len(body) % 4)
        return _ACE_HEADER.pack(self.ace_type, self.flags, _ACE_HEADER.size + len(body)) + body

    @classmethod
    def read(cls, reader: Reader) -> Ace:
        """Read one entry, which AceSize delimits."""
        ace_type, flags, size = _ACE_HEADER.unpack(reader.take(_ACE_HEADER.size, "ACE header"))
        if size < _ACE_HEADER.size or size % 4:
            raise RemoteProtocolError(f"AceSize {size}: a multiple of 4 that covers its header expected")
        if ace_type not in _ACE_TYPES:
            raise RemoteProtocolError(f"AceType {ace_type:#04x}: no such entry")
        inner = reader.window(size - _ACE_HEADER.size, "ACE")
        mask = inner.u32("ACE mask")
        object_type = inherited_object_type = None
        if ace_type in OBJECT_ACE_TYPES:
            present = inner.u32("ACE object flags")
            if present & _OBJECT_TYPE_PRESENT:
                object_type = inner.guid("ACE object type")
            if present & _INHERITED_OBJECT_TYPE_PRESENT:
                inherited_object_type = inner.guid("ACE inherited object type")
        sid = Sid.read(inner)
        data = inner.take(inner.remaining, "ACE data")
        return cls(ace_type, mask, sid, AceFlags(flags), object_type, inherited_object_type, data)


@dataclass(frozen=True, slots=True)
class Acl:
    """An access control list (MS-DTYP 2.4.5). Its entries are evaluated in order."""

    aces: tuple[Ace, ...] = ()
    revision: int = ACL_REVISION

    def pack(self) -> bytes:
        entries = b"".join(ace.pack() for ace in self.aces)
        size = _ACL_HEADER.size + len(entries)
        if size > MAX_ACL_SIZE:
            raise ValueError(f"access control list of {len(self.aces)} entries: {size} bytes, at most {MAX_ACL_SIZE}")
        return _ACL_HEADER.pack(self.revision, 0, size, len(self.aces), 0) + entries

    @classmethod
    def read(cls, reader: Reader) -> Acl:
        revision, _, size, count, _ = _ACL_HEADER.unpack(reader.take(_ACL_HEADER.size, "ACL header"))
        if revision not in (ACL_REVISION, ACL_REVISION_DS):
            raise RemoteProtocolError(f"AclRevision {revision}: {ACL_REVISION} or {ACL_REVISION_DS} expected")
        if size < _ACL_HEADER.size:
            raise RemoteProtocolError(f"AclSize {size}: at least {_ACL_HEADER.size} expected")
        # AclSize may exceed the entries: Windows reserves space for more.
        inner = reader.window(size - _ACL_HEADER.size, "ACL")
        return cls(tuple(Ace.read(inner) for _ in range(count)), revision)


@dataclass(frozen=True, slots=True)
class SecurityDescriptor:
    """A security descriptor (MS-DTYP 2.4.6).

    With DACL_PRESENT, a `dacl` of None is a NULL list, which grants all access. Without the flag
    there is no list.
    """

    owner: Sid | None = None
    group: Sid | None = None
    dacl: Acl | None = None
    sacl: Acl | None = None
    control: Control = field(default=Control.SELF_RELATIVE)
    sbz1: int = 0

    def __post_init__(self) -> None:
        implied = Control.SELF_RELATIVE
        if self.dacl is not None:
            implied |= Control.DACL_PRESENT
        if self.sacl is not None:
            implied |= Control.SACL_PRESENT
        object.__setattr__(self, "control", self.control | implied)

    @property
    def has_dacl(self) -> bool:
        """Whether a DACL was supplied, including a NULL one."""
        return Control.DACL_PRESENT in self.control

    @property
    def has_sacl(self) -> bool:
        return Control.SACL_PRESENT in self.control

    def pack(self) -> bytes:
        """Return the self-relative form, with the parts in Windows' order (MS-DTYP 2.5.1.4)."""
        body = b""
        offsets = {}
        for name in ("sacl", "dacl", "owner", "group"):
            part: Sid | Acl | None = getattr(self, name)
            offsets[name] = 0 if part is None else _HEADER.size + len(body)
            if part is not None:
                body += part.pack()
        header = _HEADER.pack(
            DESCRIPTOR_REVISION,
            self.sbz1,
            self.control,
            offsets["owner"],
            offsets["group"],
            offsets["sacl"],
            offsets["dacl"],
        )
        return header + body

    @classmethod
    def unpack(cls, data: bytes) -> SecurityDescriptor:
        if len(data) > MAX_DESCRIPTOR_SIZE:
            raise RemoteProtocolError(f"security descriptor of {len(data)} bytes: at most {MAX_DESCRIPTOR_SIZE}")
        fields = _HEADER.unpack(Reader(data).take(_HEADER.size, "security descriptor header"))
        revision, sbz1, control, owner, group, sacl, dacl = fields
        if revision != DESCRIPTOR_REVISION:
            raise RemoteProtocolError(f"security descriptor revision {revision}: {DESCRIPTOR_REVISION} expected")
        if not control & Control.SELF_RELATIVE:
            raise RemoteProtocolError("security descriptor in absolute form: self-relative expected")
        # MS-DTYP 2.4.6: an offset is valid only if its Present flag is set.
        has_sacl = control & Control.SACL_PRESENT and sacl
        has_dacl = control & Control.DACL_PRESENT and dacl
        return cls(
            owner=Sid.read(_at(data, owner, "owner")) if owner else None,
            group=Sid.read(_at(data, group, "group")) if group else None,
            dacl=Acl.read(_at(data, dacl, "DACL")) if has_dacl else None,
            sacl=Acl.read(_at(data, sacl, "SACL")) if has_sacl else None,
            control=Control(control),
            sbz1=sbz1,
        )

    def select(self, information: SecurityInformation) -> SecurityDescriptor:
        """Return only the requested parts (MS-MQMQ 2.2.3)."""
        control = self.control
        if SecurityInformation.DACL not in information:
            control &= ~Control.DACL_PRESENT
        if SecurityInformation.SACL not in information:
            control &= ~Control.SACL_PRESENT
        return SecurityDescriptor(
            owner=self.owner if SecurityInformation.OWNER in information else None,
            group=self.group if SecurityInformation.GROUP in information else None,
            dacl=self.dacl if SecurityInformation.DACL in information else None,
            sacl=self.sacl if SecurityInformation.SACL in information else None,
            control=control,
            sbz1=self.sbz1,
        )

    def update(self, other: SecurityDescriptor, information: SecurityInformation) -> SecurityDescriptor:
        """Return this descriptor with the given parts taken from `other`."""
        changed = self
        for bit, name, flags in _PARTS:
            if bit in information:
                control = (changed.control & ~flags) | (other.control & flags)
                values = {name: getattr(other, name), "control": control}
                changed = replace(changed, **values)
        return changed


# The control flags of each part.
_PARTS: Final = (
    (SecurityInformation.OWNER, "owner", Control.OWNER_DEFAULTED),
    (SecurityInformation.GROUP, "group", Control.GROUP_DEFAULTED),
    (
        SecurityInformation.DACL,
        "dacl",
        Control.DACL_PRESENT
        | Control.DACL_DEFAULTED
        | Control.DACL_TRUSTED
        | Control.DACL_AUTO_INHERIT_REQUIRED
        | Control.DACL_AUTO_INHERITED
        | Control.DACL_PROTECTED,
    ),
    (
        SecurityInformation.SACL,
        "sacl",
        Control.SACL_PRESENT
        | Control.SACL_DEFAULTED
        | Control.SACL_AUTO_INHERIT_REQUIRED
        | Control.SACL_AUTO_INHERITED
        | Control.SACL_PROTECTED,
    ),
)


def _at(data: bytes, offset: int, what: str) -> Reader:
    if not _HEADER.size <= offset < len(data):
        raise RemoteProtocolError(f"offset of the {what}: {offset}, outside {_HEADER.size}..{len(data) - 1}")
    return Reader(data, offset)


def allow(sid: Sid, mask: int) -> Ace:
    """Return an ACCESS_ALLOWED_ACE (MS-DTYP 2.4.4.2)."""
    return Ace(AceType.ACCESS_ALLOWED, int(mask), sid)


def deny(sid: Sid, mask: int) -> Ace:
    """Return an ACCESS_DENIED_ACE (MS-DTYP 2.4.4.4)."""
    return Ace(AceType.ACCESS_DENIED, int(mask), sid)
