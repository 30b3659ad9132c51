"""Trace reports: a traced message leaves a trail of reports in its report queue.

Implements MS-MQQB 3.1.5.8.9 and 3.1.7.1.7. `send_report` writes reports, `parse_report` reads those
of any queue manager.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import DeliveryGuarantee, MessageClass, SenderIdentifierType
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import PublicFormatName

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.wire.message import Message

# Not strftime's names, which follow the locale.
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_LABEL: Final = re.compile(
    r"(?P<source>[0-9A-F]{4}):(?P<ordinal>[0-9A-F]{8}):(?P<hops>[0-9A-F]{2}) received by "
    r"(?P<computer>[0-9A-F]{8}(?:-[0-9A-F]{4}){3}-[0-9A-F]{12}) at "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2}))? (?P<half>AM|PM) "
    rf"(?:{'|'.join(_DAYS)}),(?P<month>{'|'.join(_MONTHS)}) (?P<day>[0-9]{{2}}) (?P<year>[0-9]{{2}})",
    re.IGNORECASE | re.ASCII,
)
_BODY: Final = re.compile(
    r"<MESSAGE ID>(?P<ordinal>[0-9A-F]{8})</MESSAGE ID>\r\n"
    r"<TARGET QUEUE>(?P<target>[^\r\n]*)</TARGET QUEUE>\r\n"
    r"(?:<NEXT HOP>(?P<next_hop>[^<\r\n]*)</NEXT HOP>\r\n<HOP COUNT>(?P<hops>[0-9A-F]{2}) ?</HOP COUNT>\r\n)?\0?",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Report:
    """A report about a message: where it was, and when."""

    source_queue_manager: UUID
    message_ordinal: int  # UserHeader.MessageID; together with the source it identifies the message
    hops: int
    time: dt.datetime  # UTC
    target_queue: str
    # The address to which the message was sent on; None: it was received.
    next_hop: str | None = None


def send_report(engine: Engine, message: Message, *, next_hop: str | None = None) -> None:
    """Report that a message was received or, with `next_hop`, sent on to that address.

    Does nothing unless the message asks for it. A report that cannot be delivered is dropped; the
    message itself is not affected (QQB-3.1.5.8.9-4). Called with the store's lock held.
    """
    if not message.tracing_requested or message.tracing_queue_identifier == GUID_NULL:
        return
    report = MessageProperties(
        message_class=MessageClass.REPORT,
        label=format_label(message, engine.clock()),
        body=format_body(message, next_hop),
        delivery_guarantee=DeliveryGuarantee.EXPRESS,
        sender_identifier_type=SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER,
    )
    engine.send_own_message(PublicFormatName(message.tracing_queue_identifier), report, engine.sender_of(message))


def format_label(message: Message, now: float) -> str:
    """Return the label of both kinds of report, without its terminator.

    "received by" is indeed followed by the sender's GUID.
    """
    source = str(message.source_machine_identifier).upper()
    ordinal = message.identifier.ordinal
    return f"{source[:4]}:{ordinal:08X}:{message.route_count:02X} received by {source} at {format_time(now)}"


def format_time(now: float) -> str:
    """Return time-date of the grammar: "10:13:20 PM Tue,Nov 14 23".

    In UTC, because the grammar has no time zone, and a trail consists of reports from several
    computers. In a 12-hour clock, because AM and PM make sense only there.
    """
    at = dt.datetime.fromtimestamp(now, dt.UTC)
    clock = f"{(at.hour - 1) % 12 + 1:02d}:{at.minute:02d}:{at.second:02d} {'AM' if at.hour < 12 else 'PM'}"
    return f"{clock} {_DAYS[at.weekday()]},{_MONTHS[at.month - 1]} {at.day:02d} {at.year % 100:02d}"


def format_body(message: Message, next_hop: str | None) -> bytes:
    """Return the body, in UTF-16 without terminator."""
    lines = [
        f"<MESSAGE ID>{message.identifier.ordinal:08X}</MESSAGE ID>",
        f"<TARGET QUEUE>{message.destination_queue_format_name or ''}</TARGET QUEUE>",
    ]
    if next_hop is not None:
        # RFC 3986 has no place for the zone of an IPv6 address.
        lines.append(f"<NEXT HOP>{next_hop.partition('%')[0]}</NEXT HOP>")
        lines.append(f"<HOP COUNT>{message.route_count:02X} </HOP COUNT>")
    return "".join(f"{line}\r\n" for line in lines).encode("utf-16-le")


def parse_report(label: str, body: bytes) -> Report | None:
    """Parse a report's label and body; return None if they are not a report's.

    A message may be marked as a report without being one.
    """
    named = _LABEL.fullmatch(label)
    try:
        told = _BODY.fullmatch(body.decode("utf-16-le"))
        time = None if named is None else _time(named)
    except ValueError:
        return None
    if named is None or told is None or time is None or named["ordinal"].upper() != told["ordinal"].upper():
        return None
    return Report(
        UUID(named["computer"]),
        int(named["ordinal"], 16),
        int(named["hops"], 16),
        time,
        told["target"],
        told["next_hop"],
    )


def _time(named: re.Match[str]) -> dt.datetime:
    hour = int(named["hour"])
    # The grammar also allows a 24-hour clock, in which hours above 12 need no PM.
    if hour <= 12:
        hour = hour % 12 + (12 if named["half"].upper() == "PM" else 0)
    month = _MONTHS.index(named["month"].capitalize()) + 1
    second = int(named["second"] or 0)
    return dt.datetime(
        2000 + int(named["year"]), month, int(named["day"]), hour, int(named["minute"]), second, tzinfo=dt.UTC
    )
