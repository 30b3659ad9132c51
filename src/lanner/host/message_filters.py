"""Conditions on messages: `label~order`, `priority>=4`, `sent<2026-11-18T10:00`.

A condition consists of a field, an operator and a value. `FIELDS` lists the fields and how each is
compared. A filter is several conditions that must all hold. The queue manager evaluates filters, so
a client that looks for one message in a deep queue does not have to read the queue over the
network.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lanner.model.enums import MessageClass
from lanner.model.errors import IllegalUser, InvalidParameter
from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.message import Message as Packet
from lanner.wire.reader import Reader

if TYPE_CHECKING:
    from lanner.model.live import Record
    from lanner.security.accounts import Accounts

# Not in the specification: conditions of one filter, and characters of one condition.
MAX_CONDITIONS: Final = 32
MAX_CONDITION: Final = 4096
# Not in the specification: conditions of one filter on the body. Each goes through a body of up to
# 4 MiB, and nothing else is done meanwhile.
MAX_BODY_CONDITIONS: Final = 4

_CONDITION: Final = re.compile(r"\s*([a-z_]+)\s*(>=|<=|!=|=|<|>|~)(.*)", re.DOTALL)
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_YES: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}

_CLASSES: Final = {one.value: one.name.lower() for one in MessageClass}

Read: TypeAlias = Callable[["Record", Packet], Any]
Test: TypeAlias = Callable[["Record", Packet], bool]
# An operator and the text to compare with, without regard to case.
_Comparison: TypeAlias = tuple[str, str]


def _class_name(packet: Packet) -> str:
    return _CLASSES.get(packet.message_class, str(packet.message_class))


def _class(text: str) -> str:
    """Return the name of a class as `_class_name` does. Raises ValueError."""
    if text.lower() in _CLASSES.values():
        return text.lower()
    number = _number(text)
    return _CLASSES.get(number, str(number))


def _correlation(packet: Packet) -> str:
    raw = packet.correlation_identifier
    return str(MessageIdentifier.unpack(Reader(raw))).lower() if any(raw) else ""


def _body_texts(packet: Packet) -> tuple[str, ...]:
    """Return the body as text: by its type, otherwise in both encodings that programs write.

    Octets that are not valid text are not repaired, because that takes seconds for the largest
    body. Decoding them as Latin-1 still finds ASCII text among other octets.
    """
    body, encoding = packet.body, TEXT_BODIES.get(packet.body_type)
    first, *others = ("utf-8", "utf-16-le") if encoding is None else (encoding,)
    texts = [_decoded(body, first) or body.decode("latin-1"), *(_decoded(body, one) for one in others)]
    return tuple(text for text in texts if text is not None)


def _decoded(body: bytes, encoding: str) -> str | None:
    try:
        return body.decode(encoding)
    except UnicodeDecodeError:
        return None


def _number(text: str) -> int:
    return int(text, 0)


def _time(text: str) -> int:
    moment = dt.datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError
    return float(match[1]) * _UNITS[match[2].lower()]


@dataclass(frozen=True, slots=True)
class _Field:
    """How a field is compared: the message's value, and the parser for the condition's text."""

    read: Read
    parse: Callable[[str], Any]
    operators: str
    expected: str


def _text(read: Read) -> _Field:
    return _Field(read, str, "= != ~", "a text")


def _numeric(read: Read) -> _Field:
    return _Field(read, _number, "= != < <= > >=", "a number")


def _moment(read: Read) -> _Field:
    return _Field(read, _time, "= != < <= > >=", "a time such as 2026-11-18T10:00 (UTC unless it says otherwise)")


def _flag(read: Read) -> _Field:
    return _Field(read, lambda text: _YES[text.lower()], "= !=", "yes or no")


FIELDS: Final[dict[str, _Field]] = {
    "label": _text(lambda _, packet: packet.label),
    "body": _text(lambda _, packet: _body_texts(packet)),
    "class": _Field(
        lambda _, packet: _class_name(packet), _class, "= != ~", f"a number, or one of {', '.join(_CLASSES.values())}"
    ),
    "id": _text(lambda _, packet: str(packet.identifier).lower()),
    "correlation_id": _text(lambda _, packet: _correlation(packet)),
    "sender": _Field(lambda _, packet: packet.sender_identifier, str, "= !=", "an account or a SID"),
    "source": _text(lambda _, packet: str(packet.source_machine_identifier)),
    "response_queue": _text(lambda _, packet: str(packet.response_queue_format_name or "")),
    "administration_queue": _text(lambda _, packet: str(packet.administration_queue_format_name or "")),
    "destination": _text(lambda _, packet: str(packet.destination_queue_format_name or "")),
    "sent": _moment(lambda _, packet: packet.sent_time),
    "arrived": _moment(lambda record, _: record.arrived),
    "age": _Field(lambda record, _: record.arrived, _seconds, "< <= > >=", "a duration: 90, 5m, 1.5h, 2d"),
    "priority": _numeric(lambda _, packet: packet.priority),
    "app_specific": _numeric(lambda _, packet: packet.application_tag),
    "body_type": _numeric(lambda _, packet: packet.body_type),
    "size": _numeric(lambda _, packet: packet.body_size),
    "aborts": _numeric(lambda record, _: record.abort_count),
    "moves": _numeric(lambda record, _: record.move_count),
    "recoverable": _flag(lambda _, packet: packet.is_recoverable),
    "transactional": _flag(lambda _, packet: packet.is_transactional),
    "authenticated": _flag(lambda _, packet: bool(packet.authentication_level)),
}


class MessageFilter:
    """Conditions that a message must all meet. Without conditions, every message matches."""

    def __init__(self, conditions: Iterable[str], accounts: Accounts, now: float) -> None:
        """Parse conditions. Raises InvalidParameter.

        `accounts` resolves the names of senders. `now` is the time at which ages are measured.
        """
        given = list(conditions)
        if len(given) > MAX_CONDITIONS:
            raise InvalidParameter(f"{len(given)} conditions, at most {MAX_CONDITIONS}")
        self._tests: list[Test] = []
        # Grouped by field: the text of a body is made once, however many conditions use it.
        texts: dict[Read, list[_Comparison]] = {}
        for text in given:
            test = _test(text, accounts, now)
            if isinstance(test, _TextCondition):
                texts.setdefault(test.read, []).append(test.comparison)
            else:
                self._tests.append(test)
        if len(texts.get(FIELDS["body"].read, ())) > MAX_BODY_CONDITIONS:
            raise InvalidParameter(f"more than {MAX_BODY_CONDITIONS} conditions on the body")
        self._tests += [_textual(read, comparisons) for read, comparisons in texts.items()]

    def matches(self, record: Record) -> bool:
        """Return whether all conditions hold."""
        if not self._tests:
            return True
        packet = Packet(record.packet)
        return all(test(record, packet) for test in self._tests)


@dataclass(frozen=True, slots=True)
class _TextCondition:
    read: Read
    comparison: _Comparison


def _test(text: object, accounts: Accounts, now: float) -> Test | _TextCondition:
    match = _CONDITION.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_CONDITION else None
    if match is None or not isinstance(text, str):
        raise InvalidParameter(f"condition {str(text)[:80]!r}: FIELD, an operator and a value, such as label~order")
    name, sign, value = match[1], match[2], match[3].strip()
    field = FIELDS.get(name)
    if field is None:
        raise InvalidParameter(f"condition {text[:80]!r}: there is no field {name!r}; use one of {', '.join(FIELDS)}")
    if sign not in field.operators.split():
        raise InvalidParameter(f"condition {text[:80]!r}: {name} has no {sign!r}; use {field.operators}")
    if name == "sender":
        return _compared(field.read, sign, _sender(value, accounts))
    try:
        # A part of a text need not be a whole value.
        wanted = value if sign == "~" else field.parse(value)
    except (ValueError, KeyError, OverflowError):
        raise InvalidParameter(f"condition {text[:80]!r}: {name} is compared with {field.expected}") from None
    if name == "age":
        # An older message has a smaller time of arrival.
        return _compared(lambda record, packet: now - field.read(record, packet), sign, wanted)
    if isinstance(wanted, str):
        return _TextCondition(field.read, (sign, wanted.casefold()))
    return _compared(field.read, sign, wanted)


def _sender(value: str, accounts: Accounts) -> bytes:
    """Return the sender identifier in a message; an empty value stands for no sender."""
    if not value:
        return b""
    try:
        return accounts.sid_of(value).pack()
    except IllegalUser as error:
        raise InvalidParameter(f"sender: {error.args[0]}") from None


def _compared(read: Read, sign: str, wanted: object) -> Test:
    compare = _COMPARISONS[sign]
    return lambda record, packet: compare(read(record, packet), wanted)


def _textual(read: Read, comparisons: list[_Comparison]) -> Test:
    """Compare texts without regard to case; `~` searches for a substring."""

    def holds(record: Record, packet: Packet) -> bool:
        found = read(record, packet)
        texts = [one.casefold() for one in (found if isinstance(found, tuple) else (found,))]
        return all(
            any(folded in one for one in texts) if sign == "~" else (folded in texts) == (sign == "=")
            for sign, folded in comparisons
        )

    return holds
