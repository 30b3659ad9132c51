"""Security Descriptor Definition Language (MS-DTYP 2.5.1), as far as queues need it.

It covers owner, group, DACL and SACL with allow, deny and audit entries, plain and object ones.
Conditional, mandatory-label, resource-attribute and central-policy entries have no meaning for a
queue: reading or writing one raises ValueError.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from typing import Final, TypeVar

from lanner.wire.security_descriptor import (
    ACL_REVISION,
    ACL_REVISION_DS,
    OBJECT_ACE_TYPES,
    Ace,
    AceFlags,
    AceType,
    Acl,
    Control,
    SecurityDescriptor,
)
from lanner.wire.sid import SDDL_ALIASES, SDDL_DOMAIN_ALIASES, Sid

T = TypeVar("T")

# Characters of an invalid text that an error message shows.
_MAX_SHOWN: Final = 80

_ACE_TYPES: Final = {
    "A": AceType.ACCESS_ALLOWED,
    "D": AceType.ACCESS_DENIED,
    "AU": AceType.SYSTEM_AUDIT,
    "OA": AceType.ACCESS_ALLOWED_OBJECT,
    "OD": AceType.ACCESS_DENIED_OBJECT,
    "OU": AceType.SYSTEM_AUDIT_OBJECT,
}
_SACL_TYPES: Final = ("AU", "OU")
_ACE_FLAGS: Final = {
    "OI": AceFlags.OBJECT_INHERIT,
    "CI": AceFlags.CONTAINER_INHERIT,
    "NP": AceFlags.NO_PROPAGATE_INHERIT,
    "IO": AceFlags.INHERIT_ONLY,
    "ID": AceFlags.INHERITED,
    "SA": AceFlags.SUCCESSFUL_ACCESS,
    "FA": AceFlags.FAILED_ACCESS,
}
# The letters with one meaning for every kind of object. Only these are written; all are read.
_COMMON_RIGHTS: Final = {
    "GR": 0x8000_0000,
    "GW": 0x4000_0000,
    "GX": 0x2000_0000,
    "GA": 0x1000_0000,
    "WO": 0x0008_0000,
    "WD": 0x0004_0000,
    "RC": 0x0002_0000,
    "SD": 0x0001_0000,
}
_RIGHTS: Final = _COMMON_RIGHTS | {
    "CC": 0x001,
    "DC": 0x002,
    "LC": 0x004,
    "SW": 0x008,
    "RP": 0x010,
    "WP": 0x020,
    "DT": 0x040,
    "LO": 0x080,
    "CR": 0x100,
    "FA": 0x001F_01FF,
    "FX": 0x0012_00A0,
    "FW": 0x0012_0116,
    "FR": 0x0012_0089,
    "KA": 0x000F_003F,
    "KR": 0x0002_0019,
    "KX": 0x0002_0019,
    "KW": 0x0002_0006,
}
_ACL_FLAGS: Final = {
    "D": {
        "P": Control.DACL_PROTECTED,
        "AR": Control.DACL_AUTO_INHERIT_REQUIRED,
        "AI": Control.DACL_AUTO_INHERITED,
    },
    "S": {
        "P": Control.SACL_PROTECTED,
        "AR": Control.SACL_AUTO_INHERIT_REQUIRED,
        "AI": Control.SACL_AUTO_INHERITED,
    },
}
# Not in MS-DTYP's grammar, but written by Windows for a list that is present and NULL.
_NULL_ACL: Final = "NO_ACCESS_CONTROL"
_PART: Final = re.compile(r"([OGDS]):((?:(?![OGDS]:)[^(])*)((?:\([^()]*\))*)")
_ENTRY: Final = re.compile(r"\(([^()]*)\)")
_LETTERS: Final = {sid: alias for alias, sid in SDDL_ALIASES.items()}


def parse_sddl(text: str, domain: Sid | None = None) -> SecurityDescriptor:
    """Parse SDDL.

    `domain` resolves the aliases of accounts of a machine or domain (LA, DU ...).
    """
    sids: dict[str, Sid] = {}
    acls: dict[str, Acl | None] = {}
    control = Control(0)
    position = 0
    for match in _PART.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        part, head, entries = match.groups()
        if part in sids or part in acls:
            raise ValueError(f"SDDL: {part}: is there twice")
        if part in ("O", "G"):
            if entries:
                raise ValueError(f"SDDL: {part}: takes a SID, not {entries!r}")
            sids[part] = _parse_sid(head, domain)
            continue
        present = Control.DACL_PRESENT if part == "D" else Control.SACL_PRESENT
        if head == _NULL_ACL:
            acls[part] = None
            control |= present
            continue
        for flag in _letters(head, _ACL_FLAGS[part], "list flag"):
            control |= flag
        aces = tuple(_parse_ace(entry, part, domain) for entry in _ENTRY.findall(entries))
        is_ds = any(ace.ace_type in OBJECT_ACE_TYPES for ace in aces)
        acls[part] = Acl(aces, ACL_REVISION_DS if is_ds else ACL_REVISION)
    if position != len(text):
        raise ValueError(f"SDDL: cannot read {text[position:]!r}")
    return SecurityDescriptor(sids.get("O"), sids.get("G"), acls.get("D"), acls.get("S"), control)


def format_sddl(descriptor: SecurityDescriptor) -> str:
    """Return SDDL. Rights specific to queues are written as one hexadecimal number."""
    text = ""
    if descriptor.owner is not None:
        text += f"O:{_format_sid(descriptor.owner)}"
    if descriptor.group is not None:
        text += f"G:{_format_sid(descriptor.group)}"
    for part, present, acl in (
        ("D", descriptor.has_dacl, descriptor.dacl),
        ("S", descriptor.has_sacl, descriptor.sacl),
    ):
        if not present:
            continue
        text += f"{part}:"
        if acl is None:
            text += _NULL_ACL
            continue
        text += "".join(letters for letters, flag in _ACL_FLAGS[part].items() if flag in descriptor.control)
        text += "".join(_format_ace(ace) for ace in acl.aces)
    return text


def _parse_ace(entry: str, part: str, domain: Sid | None) -> Ace:
    fields = entry.split(";")
    if len(fields) != 6:
        raise ValueError(f"SDDL entry ({entry}): six fields expected, {len(fields)} found")
    kind, flags, rights, object_type, inherited, sid = fields
    if kind not in _ACE_TYPES:
        raise ValueError(f"SDDL entry ({entry}): type {kind!r} is not one of {', '.join(_ACE_TYPES)}")
    if (kind in _SACL_TYPES) != (part == "S"):
        raise ValueError(f"SDDL entry ({entry}): type {kind} does not belong into {part}:")
    ace_type = _ACE_TYPES[kind]
    if (object_type or inherited) and ace_type not in OBJECT_ACE_TYPES:
        raise ValueError(f"SDDL entry ({entry}): only object entries name an object type")
    ace_flags = AceFlags(0)
    for flag in _letters(flags, _ACE_FLAGS, "entry flag"):
        ace_flags |= flag
    return Ace(
        ace_type,
        _parse_rights(rights),
        _parse_sid(sid, domain),
        ace_flags,
        uuid.UUID(object_type) if object_type else None,
        uuid.UUID(inherited) if inherited else None,
    )


def _format_ace(ace: Ace) -> str:
    kinds = [letters for letters, ace_type in _ACE_TYPES.items() if ace_type == ace.ace_type]
    if not kinds or ace.data:
        raise ValueError(f"entry of type {ace.ace_type:#04x} for {ace.sid} has no SDDL form here")
    flags = "".join(letters for letters, flag in _ACE_FLAGS.items() if flag in ace.flags)
    object_type = "" if ace.object_type is None else str(ace.object_type)
    inherited = "" if ace.inherited_object_type is None else str(ace.inherited_object_type)
    fields = (kinds[0], flags, _format_rights(ace.mask), object_type, inherited, _format_sid(ace.sid))
    return f"({';'.join(fields)})"


def _parse_rights(text: str) -> int:
    if text[:1].isdigit():
        # MS-DTYP 2.5.1.1: hexadecimal, octal with a leading 0, or decimal.
        base = 16 if text[:2].lower() == "0x" else 8 if text[0] == "0" else 10
        mask = int(text, base)
        if mask >= 1 << 32:
            raise ValueError(f"SDDL rights {text}: 32 bits expected")
        return mask
    mask = 0
    for right in _letters(text, _RIGHTS, "right"):
        mask |= right
    return mask


def _format_rights(mask: int) -> str:
    letters = ""
    rest = mask
    for name, bit in _COMMON_RIGHTS.items():
        if rest & bit:
            letters += name
            rest &= ~bit
    return letters if mask and not rest else f"{mask:#x}"


def _letters(text: str, table: Mapping[str, T], what: str) -> list[T]:
    """Split a text into the names of a table, longest match first.

    It takes linear time, because a client may send a long text.
    """
    lengths = sorted(set(map(len, table)), reverse=True)
    found = []
    position = 0
    while position < len(text):
        name = next((name for length in lengths if (name := text[position : position + length]) in table), None)
        if name is None:
            rest = text[position : position + _MAX_SHOWN]
            raise ValueError(f"SDDL: {rest!r} does not start with a known {what} ({', '.join(table)})")
        found.append(table[name])
        position += len(name)
    return found


def _parse_sid(text: str, domain: Sid | None) -> Sid:
    if text in SDDL_ALIASES:
        return SDDL_ALIASES[text]
    if text in SDDL_DOMAIN_ALIASES:
        if domain is None:
            raise ValueError(f"SDDL: {text} is an account of a domain, and no domain was given")
        return domain.child(SDDL_DOMAIN_ALIASES[text])
    return Sid.parse(text)


def _format_sid(sid: Sid) -> str:
    return _LETTERS.get(sid, str(sid))
