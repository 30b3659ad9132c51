"""The LDAP version 3 messages between a queue manager and a directory server (RFC 4511 4)."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from lanner.directory.ldap import ber
from lanner.directory.ldap.ber import BerReader

# MS-ADTS 3.1.1.3.4.1.
SD_FLAGS: Final = "1.2.840.113556.1.4.801"
PAGED_RESULTS: Final = "1.2.840.113556.1.4.319"

GSS_SPNEGO: Final = "GSS-SPNEGO"

_BIND, _UNBIND, _SEARCH, _MODIFY, _ADD, _DELETE = 0x60, 0x42, 0x63, 0x66, 0x68, 0x4A
_RENAME: Final = 0x6C
_BIND_RESPONSE, SEARCH_ENTRY, SEARCH_DONE, SEARCH_REFERENCE = 0x61, 0x64, 0x65, 0x73
_CONTROLS: Final = 0xA0


class Scope(enum.IntEnum):
    """RFC 4511 4.5.1.2."""

    BASE = 0
    SUBTREE = 2


class Alteration(enum.IntEnum):
    """RFC 4511 4.6."""

    ADD = 0
    DELETE = 1
    REPLACE = 2


class ResultCode(enum.IntEnum):
    """RFC 4511 4.1.9: the codes that are distinguished; all others are treated like OTHER."""

    SUCCESS = 0
    SASL_BIND_IN_PROGRESS = 14
    NO_SUCH_ATTRIBUTE = 16
    NO_SUCH_OBJECT = 32
    INVALID_CREDENTIALS = 49
    INSUFFICIENT_ACCESS_RIGHTS = 50
    ENTRY_ALREADY_EXISTS = 68


# Filters (RFC 4511 4.5.1.7)
# ------------------------------------------------------------------------------


class Filter(Protocol):
    """A filter; `str` returns its text (RFC 4515)."""

    def encode(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Group:
    """AND or OR."""

    sign: str
    members: tuple[Filter, ...]

    def encode(self) -> bytes:
        return ber.sequence((member.encode() for member in self.members), 0xA0 if self.sign == "&" else 0xA1)

    def __str__(self) -> str:
        return f"({self.sign}{''.join(map(str, self.members))})"


@dataclass(frozen=True, slots=True)
class Not:
    member: Filter

    def encode(self) -> bytes:
        return ber.element(0xA2, self.member.encode())

    def __str__(self) -> str:
        return f"(!{self.member})"


@dataclass(frozen=True, slots=True)
class Present:
    name: str

    def encode(self) -> bytes:
        return ber.text(self.name, 0x87)

    def __str__(self) -> str:
        return f"({self.name}=*)"


_COMPARISONS: Final = {"=": 0xA3, ">=": 0xA5, "<=": 0xA6}


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: EQUALS, greater or equal, less or equal.

    The value is sent as it is, so nothing in it can act as syntax.
    """

    name: str
    sign: str
    value: str | bytes

    def encode(self) -> bytes:
        return ber.sequence((ber.text(self.name), ber.text(self.value)), _COMPARISONS[self.sign])

    def __str__(self) -> str:
        octets = self.value.encode() if isinstance(self.value, str) else self.value
        if isinstance(self.value, str):
            shown = "".join(f"\\{ord(one):02x}" if one in "*()\\\0" else one for one in self.value)
        else:
            shown = "".join(f"\\{octet:02x}" for octet in octets)
        return f"({self.name}{self.sign}{shown})"


def both(*members: Filter) -> Filter:
    return members[0] if len(members) == 1 else Group("&", members)


def either(*members: Filter) -> Filter:
    return members[0] if len(members) == 1 else Group("|", members)


ANYTHING: Final = Present("objectClass")


# Requests
# ------------------------------------------------------------------------------------------------


class Request(Protocol):
    """An operation; `response` is the tag of the message that ends it."""

    @property
    def response(self) -> int: ...

    def encode(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Control:
    oid: str
    value: bytes
    critical: bool = True

    def encode(self) -> bytes:
        return ber.sequence((ber.text(self.oid), ber.boolean(self.critical), ber.text(self.value)))


def sd_flags(flags: int) -> Control:
    return Control(SD_FLAGS, ber.sequence((ber.integer(flags),)))


def paged(size: int, cookie: bytes) -> Control:
    return Control(PAGED_RESULTS, ber.sequence((ber.integer(size), ber.text(cookie))))


@dataclass(frozen=True, slots=True)
class SaslBind:
    """The bind of MS-MQDSSM 5.1. It never sends a password, encrypted or not."""

    token: bytes = field(repr=False)
    mechanism: str = GSS_SPNEGO
    response: int = _BIND_RESPONSE

    def encode(self) -> bytes:
        sasl = ber.sequence((ber.text(self.mechanism), ber.text(self.token)), 0xA3)
        return ber.sequence((ber.integer(3), ber.text(""), sasl), _BIND)


@dataclass(frozen=True, slots=True)
class SimpleBind:
    """A bind by name and password (MS-ADTS 5.1.1.1.1), for TLS connections only."""

    name: str
    password: str = field(repr=False)
    response: int = _BIND_RESPONSE

    def encode(self) -> bytes:
        return ber.sequence((ber.integer(3), ber.text(self.name), ber.text(self.password, 0x80)), _BIND)


@dataclass(frozen=True, slots=True)
class Unbind:
    response: int = 0

    def encode(self) -> bytes:
        return ber.element(_UNBIND, b"")


@dataclass(frozen=True, slots=True)
class Search:
    """A search. Aliases are never followed, and values are always requested with their types."""

    base: str
    scope: Scope = Scope.BASE
    filter: Filter = ANYTHING
    attributes: tuple[str, ...] = ()
    time_limit: int = 0
    size_limit: int = 0
    response: int = SEARCH_DONE

    def encode(self) -> bytes:
        return ber.sequence(
            (
                ber.text(self.base),
                ber.integer(self.scope, ber.ENUMERATED),
                ber.integer(0, ber.ENUMERATED),
                ber.integer(self.size_limit),
                ber.integer(self.time_limit),
                ber.boolean(False),
                self.filter.encode(),
                ber.sequence(ber.text(name) for name in self.attributes),
            ),
            _SEARCH,
        )


Values = Sequence[str | bytes]


def _attribute(name: str, values: Values) -> bytes:
    return ber.sequence((ber.text(name), ber.sequence((ber.text(value) for value in values), ber.SET)))


@dataclass(frozen=True, slots=True)
class Add:
    dn: str
    attributes: tuple[tuple[str, Values], ...]
    response: int = 0x69

    def encode(self) -> bytes:
        listed = ber.sequence(_attribute(name, values) for name, values in self.attributes)
        return ber.sequence((ber.text(self.dn), listed), _ADD)


@dataclass(frozen=True, slots=True)
class Modify:
    dn: str
    changes: tuple[tuple[Alteration, str, Values], ...]
    response: int = 0x67

    def encode(self) -> bytes:
        listed = ber.sequence(
            ber.sequence((ber.integer(change, ber.ENUMERATED), _attribute(name, values)))
            for change, name, values in self.changes
        )
        return ber.sequence((ber.text(self.dn), listed), _MODIFY)


@dataclass(frozen=True, slots=True)
class Delete:
    dn: str
    response: int = 0x6B

    def encode(self) -> bytes:
        return ber.text(self.dn, _DELETE)


@dataclass(frozen=True, slots=True)
class Rename:
    """ModifyDN (RFC 4511 4.9): the object stays in its place and loses its old name."""

    dn: str
    new_name: str
    response: int = 0x6D

    def encode(self) -> bytes:
        return ber.sequence((ber.text(self.dn), ber.text(self.new_name), ber.boolean(value=True)), _RENAME)


def pack(message_id: int, request: Request, controls: Sequence[Control] = ()) -> bytes:
    parts = [ber.integer(message_id), request.encode()]
    if controls:
        parts.append(ber.sequence((control.encode() for control in controls), _CONTROLS))
    return ber.sequence(parts)


# Responses
# -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """One object that a search found: octet values, keyed by the server's attribute names."""

    dn: str
    values: dict[str, list[bytes]]


@dataclass(frozen=True, slots=True)
class Response:
    """A message of the server: an entry, or the result of the operation."""

    message_id: int
    tag: int
    code: int = 0
    diagnostic: str = ""
    token: bytes = b""
    entry: FoundEntry | None = None
    cookie: bytes = b""


def unpack(data: bytes) -> Response:
    outer = BerReader(data).inner()
    message_id = outer.integer()
    tag, content = outer.any()
    body = BerReader(content)
    if tag == SEARCH_REFERENCE:
        return Response(message_id, tag)
    if tag == SEARCH_ENTRY:
        dn = body.text()
        values: dict[str, list[bytes]] = {}
        listed = body.inner()
        while listed:
            one = listed.inner()
            name = one.text()
            held = one.inner(ber.SET)
            values[name] = []
            while held:
                values[name].append(held.octets())
        return Response(message_id, tag, entry=FoundEntry(dn, values))
    code = body.integer(ber.ENUMERATED)
    body.octets()
    diagnostic = body.text()
    token = b""
    while body:
        inner_tag, inner = body.any()
        if inner_tag == 0x87:
            token = inner
    return Response(message_id, tag, code, diagnostic.rstrip("\0"), token, cookie=_cookie(outer))


def _cookie(outer: BerReader) -> bytes:
    if outer.tag != _CONTROLS:
        return b""
    controls = outer.inner(_CONTROLS)
    while controls:
        control = controls.inner()
        oid = control.text()
        if control.tag == ber.BOOLEAN:
            control.any()
        if oid == PAGED_RESULTS and control:
            page = BerReader(control.octets()).inner()
            page.integer()
            return page.octets()
    return b""
