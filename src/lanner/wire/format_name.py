"""Format names (MS-MQMQ 2.1.2 to 2.1.7): the strings that name queues in every protocol.

`parse` reads any of them. Each kind is an immutable value whose `str()` is the format name. Compare
names by `key`, because they are case-insensitive. The numbers of private queues are hexadecimal,
never decimal.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar
from uuid import UUID

from lanner.model.enums import QueueType
from lanner.model.errors import IllegalFormatname
from lanner.wire.path_name import (
    MAX_COMPUTER_LENGTH,
    THIS_COMPUTER,
    PathName,
    QueuePart,
    split_queue_part,
)


class QueueFormatType(enum.IntEnum):
    """QUEUE_FORMAT_TYPE (MS-MQMQ 2.2.6); MQFFormatNameElement.FormatType uses the same numbers."""

    UNKNOWN = 0
    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    MACHINE = 4
    CONNECTOR = 5
    DL = 6
    MULTICAST = 7
    SUBQUEUE = 8


class QueueSuffixType(enum.IntEnum):
    """QUEUE_SUFFIX_TYPE (MS-MQMQ 2.2.11)."""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


_READ_ONLY = frozenset((QueueSuffixType.JOURNAL, QueueSuffixType.DEADLETTER, QueueSuffixType.DEADXACT))
_SYSTEM_QUEUES = {suffix.name: suffix for suffix in _READ_ONLY}

_GUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_QUEUE_NUMBER = re.compile(r"[0-9A-Fa-f]{1,8}")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_MULTICAST = re.compile(rf"(2(?:2[4-9]|3[0-9])(?:\.{_OCTET}){{3}}):([0-9]{{1,5}})")
_DOMAIN = re.compile(r"[\x21-\x7E]{1,255}")
_HTTP = frozenset(("HTTP", "HTTPS"))
_HTTP_ADDRESS = re.compile(r"//(?P<host>\[[^\]\\/]+\]|[^:\\/]+)(?::(?P<port>[0-9]*))?(?P<path>[\\/].*)?", re.DOTALL)
# The prefix, in lower case, with which System.Messaging distinguishes format names from path names.
PREFIX = "formatname:"
# Not in the specification: it does not limit HTTP addresses, and peers' names are kept in memory.
MAX_HTTP_LENGTH = 2048
# Not in the specification: names in one list. A packet of 4 MB has room for a quarter of a million,
# each of which takes some microseconds to parse.
MAX_ELEMENTS = 1024
# A peer may have queues that our own rules would reject (spaces, other alphabets). A name is
# rejected only if it could not be distinguished from the surrounding syntax.
_UNPRINTABLE = re.compile(r"[\x00-\x1F,]")


class FormatName:
    """The base class of all kinds. `FormatName.parse` reads text."""

    __slots__ = ()
    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.UNKNOWN

    @staticmethod
    def parse(text: str) -> FormatName:
        """Parse a format name. Raise IllegalFormatname with the problem and its position."""
        return parse(text)

    @property
    def key(self) -> str:
        """The comparison key: two format names are the same if their keys are equal."""
        return str(self).lower()

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.NONE

    @property
    def is_read_only(self) -> bool:
        """Whether it names a journal or a dead-letter queue.

        Messages cannot be sent to it, and no multiple-element name contains it.
        """
        return self.suffix in _READ_ONLY

    @property
    def elements(self) -> tuple[FormatName, ...]:
        return (self,)

    @property
    def why_unsent(self) -> str:
        """The reason why messages for this name cannot leave this computer; empty if they can."""
        return ""


def _suffix_text(suffix: QueueSuffixType) -> str:
    return f";{suffix.name}" if suffix else ""


@dataclass(frozen=True, slots=True)
class PublicFormatName(FormatName):
    """PUBLIC=guid[;JOURNAL] (MS-MQMQ 2.1.3; the suffix is that of QUEUE_FORMAT, 2.2.7)."""

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.PUBLIC
    identifier: UUID
    is_journal: bool = False

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.JOURNAL if self.is_journal else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"PUBLIC={self.identifier}{_suffix_text(self.suffix)}"


@dataclass(frozen=True, slots=True)
class PrivateFormatName(FormatName):
    r"""PRIVATE=guid\number[;JOURNAL] (MS-MQMQ 2.1.4)."""

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.PRIVATE
    queue_manager_identifier: UUID
    number: int
    is_journal: bool = False

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.JOURNAL if self.is_journal else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"PRIVATE={self.queue_manager_identifier}\\{self.number:08x}{_suffix_text(self.suffix)}"


@dataclass(frozen=True, slots=True)
class DirectFormatName(FormatName):
    r"""DIRECT=protocol:address\queue (MS-MQMQ 2.1.2).

    `text` is the part that a packet carries, without "DIRECT=".
    """

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.DIRECT
    text: str
    protocol: str = field(init=False, compare=False, repr=False)  # in upper case
    address: str = field(init=False, compare=False, repr=False)
    # None for an HTTP address outside /msmq, which only its own host can map to a queue.
    queue_part: QueuePart | None = field(init=False, compare=False, repr=False)
    _key: str = field(init=False, compare=False, repr=False)

    PROTOCOLS: ClassVar[frozenset[str]] = frozenset(
        # SPX is not in MS-MQMQ's list, but MS-MQQB 2.2.4 addresses order queues with it.
        ("TCP", "OS", "HTTP", "HTTPS", "IPX", "SPX")
    )

    def __post_init__(self) -> None:
        text = self.text
        bad = _UNPRINTABLE.search(text)
        if bad:
            raise _illegal(self, f"{bad[0]!r} at character {bad.start()} is not allowed")
        protocol, colon, rest = text.partition(":")
        protocol = protocol.upper()
        if not colon or protocol not in self.PROTOCOLS:
            raise _illegal(
                self, f"{text[:16]!r} does not begin with one of {', '.join(sorted(self.PROTOCOLS))} and a colon"
            )
        address, part = _split_http(self, rest) if protocol in _HTTP else _split_native(self, rest)
        put = object.__setattr__
        put(self, "protocol", protocol)
        put(self, "address", address)
        put(self, "queue_part", part)
        put(self, "_key", f"direct={text}".lower())

    @classmethod
    def to_path(cls, path: PathName, protocol: str = "OS") -> DirectFormatName:
        """Return the direct name of a path name, with its computer as the address."""
        return cls(f"{protocol}:{path}")

    @property
    def host(self) -> str:
        """The computer: the address, or for HTTP the host without port and directory."""
        if not self.is_http:
            return self.address
        match = _HTTP_ADDRESS.match(self.address)
        return match["host"].strip("[]") if match else ""

    @property
    def path_name(self) -> PathName | None:
        part = self.queue_part
        if part is None:
            return None
        return PathName(self.host, part.queue_type, part.name, part.subqueue, part.is_journal)

    @property
    def is_http(self) -> bool:
        """Whether messages travel by SRMP (MC-MQSRM) instead of MS-MQQB."""
        return self.protocol in _HTTP

    @property
    def why_unsent(self) -> str:
        return "this version does not send over HTTP (MC-MQSRM)" if self.is_http else ""

    @property
    def is_on_this_computer(self) -> bool:
        return self.address == THIS_COMPUTER

    @property
    def suffix(self) -> QueueSuffixType:
        part = self.queue_part
        if part is None:
            return QueueSuffixType.NONE
        if part.queue_type is QueueType.SYSTEM:
            return _SYSTEM_QUEUES[part.name.upper()]
        if part.is_journal:
            return QueueSuffixType.JOURNAL
        return QueueSuffixType.SUBQUEUE if part.subqueue is not None else QueueSuffixType.NONE

    @property
    def key(self) -> str:
        return self._key

    def __str__(self) -> str:
        return f"DIRECT={self.text}"


@dataclass(frozen=True, slots=True)
class DistributionListFormatName(FormatName):
    """DL=guid[@domain] (MS-MQMQ 2.1.5)."""

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.DL
    identifier: UUID
    domain: str | None = None

    def __str__(self) -> str:
        return f"DL={self.identifier}" + ("" if self.domain is None else f"@{self.domain}")


@dataclass(frozen=True, slots=True)
class MachineFormatName(FormatName):
    """MACHINE=guid;JOURNAL and its dead-letter variants (MS-MQMQ 2.1.6).

    Without a suffix it names the computer.
    """

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.MACHINE
    identifier: UUID
    system_queue: QueueSuffixType = QueueSuffixType.NONE

    @property
    def suffix(self) -> QueueSuffixType:
        return self.system_queue

    def __str__(self) -> str:
        return f"MACHINE={self.identifier}{_suffix_text(self.system_queue)}"


@dataclass(frozen=True, slots=True)
class ConnectorFormatName(FormatName):
    """CONNECTOR=guid[;XACTONLY] (MS-MQMQ 2.1.6)."""

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.CONNECTOR
    identifier: UUID
    is_transactional: bool = False

    @property
    def suffix(self) -> QueueSuffixType:
        return QueueSuffixType.XACTONLY if self.is_transactional else QueueSuffixType.NONE

    def __str__(self) -> str:
        return f"CONNECTOR={self.identifier}{_suffix_text(self.suffix)}"


@dataclass(frozen=True, slots=True)
class MulticastFormatName(FormatName):
    """MULTICAST=address:port (MS-MQMQ 2.1.6)."""

    queue_format_type: ClassVar[QueueFormatType] = QueueFormatType.MULTICAST
    address: str
    port: int

    @property
    def why_unsent(self) -> str:
        return "this version does not send to multicast groups"

    def __str__(self) -> str:
        return f"MULTICAST={self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class MultipleElementFormatName(FormatName):
    """Two or more names, separated by commas (MS-MQMQ 2.1.7)."""

    names: tuple[FormatName, ...]

    def __post_init__(self) -> None:
        if not self.names:
            raise IllegalFormatname("a multiple-element format name needs an element")
        for name in self.names:
            if isinstance(name, (MultipleElementFormatName, MachineFormatName)) or name.is_read_only:
                raise IllegalFormatname(f"{name} cannot be an element of a multiple-element format name")

    @property
    def elements(self) -> tuple[FormatName, ...]:
        return self.names

    def __str__(self) -> str:
        return ",".join(map(str, self.names))


def _illegal(name: DirectFormatName, problem: str) -> IllegalFormatname:
    return IllegalFormatname(f"format name 'DIRECT={name.text[:80]}': {problem}")


def _queue_part(name: DirectFormatName, text: str) -> QueuePart:
    try:
        part = split_queue_part(text)
    except ValueError as error:
        raise _illegal(name, str(error)) from None
    if part.queue_type is QueueType.SYSTEM and part.name.upper() not in _SYSTEM_QUEUES:
        raise _illegal(name, f"no system queue is called {part.name!r}, only {', '.join(sorted(_SYSTEM_QUEUES))}")
    return part


def _split_native(name: DirectFormatName, rest: str) -> tuple[str, QueuePart]:
    address, separator, queue = rest.partition("\\")
    if not separator or not address:
        raise _illegal(name, "an address, a backslash and a queue must follow the protocol")
    if len(address) > MAX_COMPUTER_LENGTH:
        raise _illegal(name, f"address of {len(address)} characters, at most {MAX_COMPUTER_LENGTH}")
    return address, _queue_part(name, queue)


def _split_http(name: DirectFormatName, rest: str) -> tuple[str, QueuePart | None]:
    if len(rest) > MAX_HTTP_LENGTH:
        raise _illegal(name, f"address of {len(rest)} characters, at most {MAX_HTTP_LENGTH}")
    match = _HTTP_ADDRESS.fullmatch(rest)
    if match is None:
        raise _illegal(name, "//host, an optional :port and /msmq must follow the protocol")
    path = match["path"] or ""
    # MS-MQMQ 2.1.2 writes a backslash after /MSMQ; URLs have only slashes.
    if path[1:6].lower() not in ("msmq/", "msmq\\"):
        return rest, None
    return rest[: match.start("path") + 5], _queue_part(name, path[6:].replace("/", "\\"))


def _parse_guid(text: str, kind: str) -> UUID:
    if not _GUID.fullmatch(text):
        raise IllegalFormatname(f"format name {kind}={text}: {text!r} is not a GUID of the form 8-4-4-4-12")
    return UUID(text)


def _split_suffix(text: str, kind: str, *allowed: QueueSuffixType) -> tuple[str, QueueSuffixType]:
    rest, separator, suffix = text.partition(";")
    if not separator:
        return rest, QueueSuffixType.NONE
    for candidate in allowed:
        if suffix.upper() == candidate.name:
            return rest, candidate
    names = ", ".join(f";{candidate.name}" for candidate in allowed)
    raise IllegalFormatname(f"format name {kind}={text}: the suffix {suffix!r} is not one of {names}")


def _parse_public(text: str) -> FormatName:
    rest, suffix = _split_suffix(text, "PUBLIC", QueueSuffixType.JOURNAL)
    return PublicFormatName(_parse_guid(rest, "PUBLIC"), bool(suffix))


def _parse_private(text: str) -> FormatName:
    rest, suffix = _split_suffix(text, "PRIVATE", QueueSuffixType.JOURNAL)
    guid, separator, number = rest.partition("\\")
    if not separator or not _QUEUE_NUMBER.fullmatch(number):
        raise IllegalFormatname(
            f"format name PRIVATE={text}: a backslash and 1 to 8 hexadecimal digits must follow the GUID"
        )
    return PrivateFormatName(_parse_guid(guid, "PRIVATE"), int(number, 16), bool(suffix))


def _parse_distribution_list(text: str) -> FormatName:
    guid, separator, domain = text.partition("@")
    if separator and not _DOMAIN.fullmatch(domain):
        raise IllegalFormatname(f"format name DL={text}: {domain!r} is not a domain name")
    return DistributionListFormatName(_parse_guid(guid, "DL"), domain if separator else None)


def _parse_machine(text: str) -> FormatName:
    rest, suffix = _split_suffix(text, "MACHINE", *sorted(_READ_ONLY))
    return MachineFormatName(_parse_guid(rest, "MACHINE"), suffix)


def _parse_connector(text: str) -> FormatName:
    rest, suffix = _split_suffix(text, "CONNECTOR", QueueSuffixType.XACTONLY)
    return ConnectorFormatName(_parse_guid(rest, "CONNECTOR"), bool(suffix))


def _parse_multicast(text: str) -> FormatName:
    match = _MULTICAST.fullmatch(text)
    if match is None or int(match[2]) > 0xFFFF:
        raise IllegalFormatname(
            f"format name MULTICAST={text}: not an address 224.0.0.0 to 239.255.255.255, a colon and a port"
        )
    return MulticastFormatName(match[1], int(match[2]))


_KINDS: dict[str, Callable[[str], FormatName]] = {
    "DIRECT": DirectFormatName,
    "PUBLIC": _parse_public,
    "PRIVATE": _parse_private,
    "DL": _parse_distribution_list,
    "MACHINE": _parse_machine,
    "CONNECTOR": _parse_connector,
    "MULTICAST": _parse_multicast,
}


@lru_cache(maxsize=4096)
def _parse_element(text: str) -> FormatName:
    bare = text[len(PREFIX) :] if text[: len(PREFIX)].lower() == PREFIX else text
    kind, separator, rest = bare.partition("=")
    parser = _KINDS.get(kind.upper())
    if not separator or parser is None:
        kinds = ", ".join(f"{kind}=" for kind in _KINDS)
        raise IllegalFormatname(f"format name '{text[:80]}' does not begin with one of {kinds}")
    return parser(rest)


def parse(text: str) -> FormatName:
    """Parse a format name or a comma-separated list; the prefix `FormatName:` is optional.

    Raise IllegalFormatname with the problem and its position. This function is for names from peers
    and the store. Names from people and programs go through `lanner.wire.spelling`, which rejects
    more.
    """
    if "," not in text:
        return _parse_element(text)
    count = text.count(",") + 1
    if count > MAX_ELEMENTS:
        raise IllegalFormatname(f"a name of {count} queues, at most {MAX_ELEMENTS}")
    return MultipleElementFormatName(tuple(map(_parse_element, text.split(","))))


def is_relative(name: FormatName) -> bool:
    """Return whether a name is relative to the computer that reads it: `.` or `localhost`."""
    return isinstance(name, DirectFormatName) and (name.is_on_this_computer or name.address.lower() == "localhost")
