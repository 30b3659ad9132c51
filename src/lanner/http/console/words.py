"""Numbers, times and names as the console shows them.

Every function here is a template filter. Each returns text, which the templates escape.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from lanner.model.enums import INFINITE, MessageClass

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400

# The reasons for dead letters, each with advice.
REASONS: Final[dict[int, tuple[str, str]]] = {
    MessageClass.NACK_BAD_DEST_QUEUE: (
        "Queue does not exist",
        "Create the queue, or return the message to another one.",
    ),
    MessageClass.NACK_PURGED: ("Removed before it was delivered", "An outgoing queue was purged or deleted."),
    MessageClass.NACK_REACH_QUEUE_TIMEOUT: (
        "Did not arrive in time",
        "Its time to reach the queue ran out on the way.",
    ),
    MessageClass.NACK_QUEUE_EXCEED_QUOTA: ("Queue is full", "Receive or purge messages there, or raise the quota."),
    MessageClass.NACK_ACCESS_DENIED: ("Access denied", "The sender may not send to this queue."),
    MessageClass.NACK_HOP_COUNT_EXCEEDED: (
        "Went in a circle",
        "It passed too many computers. Check the routing links.",
    ),
    MessageClass.NACK_BAD_SIGNATURE: ("Signature is not valid", "Check the sender's certificate."),
    MessageClass.NACK_BAD_ENCRYPTION: ("Could not be decrypted", "The destination has no matching key."),
    MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE: ("Queue is not transactional", "Send it outside a transaction."),
    MessageClass.NACK_NOT_TRANSACTIONAL_MESSAGE: ("Queue is transactional", "Send it inside a transaction."),
    MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
        "Encrypted in an unknown way",
        "Use a provider that the destination has.",
    ),
    MessageClass.NACK_QUEUE_DELETED: (
        "Queue was deleted",
        "Create the queue again, or return the message to another one.",
    ),
    MessageClass.NACK_QUEUE_PURGED: ("Queue was purged", "The messages of the queue were removed."),
    MessageClass.NACK_RECEIVE_TIMEOUT: ("Not received in time", "Its time to be received ran out in the queue."),
    MessageClass.NACK_RECEIVE_TIMEOUT_AT_SENDER: ("Not received in time", "Its time ran out at the sender."),
    MessageClass.NACK_RECEIVE_REJECTED: ("A program rejected it", "The receiving program refused the message."),
}


def reason(message_class: int) -> str:
    """Return why a message became a dead letter, in words."""
    found = REASONS.get(message_class)
    return "Could not be delivered" if found is None else found[0]


def advice(message_class: int) -> str:
    """Return what to do about a dead letter."""
    found = REASONS.get(message_class)
    return "Its class gives no reason." if found is None else found[1]


# Why a computer cannot be reached: a part of the problem's text, a short form, and advice.
_WAYS: Final = (
    (
        "connection refused",
        "refuses connections",
        (
            "The computer answers, but its Message Queuing service does not run, or does not listen on that port. "
            "Start it there."
        ),
    ),
    (
        "timed out",
        "does not answer",
        "The computer is off, its address has changed, or a firewall drops packets to port 1801.",
    ),
    (
        "no route to host",
        "cannot be reached",
        "No network leads to its address. Check the address and the network between.",
    ),
    (
        "unreachable",
        "cannot be reached",
        "No network leads to its address. Check the address and the network between.",
    ),
    (
        "name or service not known",
        "has no address",
        "Its name is not in DNS. Correct the name, or give it an address under [peers] in the settings.",
    ),
    ("certificate", "is not trusted", "Its certificate is not the one that the settings expect."),
    ("offline", "waits", "This queue manager is offline. Bring it online under Settings."),
)


def way_words(problem: str | None) -> tuple[str, str]:
    """Return a short form of why a computer cannot be reached, and advice."""
    text = (problem or "").lower()
    found = next(((word, advice) for sign, word, advice in _WAYS if sign in text), None)
    return found or ("does not take its messages", "`lanner doctor` with its name checks each step of the way.")


def code_spans(text: str | None) -> list[tuple[bool, str]]:
    """Return the parts of a text with commands in backticks.

    Each part is a pair: whether it is a command, and its text.
    """
    parts = (text or "").split("`")
    # A command may end in a space, where options for a remote queue manager would follow.
    return [(place % 2 == 1, part.strip() if place % 2 else part) for place, part in enumerate(parts) if part]


def class_name(message_class: int) -> str:
    """Return MSMQ's name of a message class, for searching."""
    try:
        return MessageClass(message_class).name
    except ValueError:
        return f"{message_class:#06x}"


def number(value: float | None) -> str:
    """Return a number with grouped thousands; below 100 with one decimal if it has a fraction."""
    if value is None:
        return "unknown"
    if value % 1 and abs(value) < 100:
        return f"{value:,.1f}"
    return f"{value:,.0f}"


def size(count: int | None) -> str:
    """Return a number of bytes in binary units."""
    value = float(count or 0)
    place = 0
    while value >= 1024 and place < len(_UNITS) - 1:
        value, place = value / 1024, place + 1
    unit = _UNITS[place]
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def quota(kilobytes: int) -> str:
    """Return a quota, which the data model has in kilobytes."""
    return "no limit" if kilobytes == INFINITE else size(kilobytes * 1024)


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units."""
    if seconds is None:
        return "none"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} min {rest} s" if minutes < 10 and rest else f"{minutes} min"
    if whole < 2 * _DAY:
        hours, rest = divmod(whole, _HOUR)
        return f"{hours} h {rest // _MINUTE} min" if rest // _MINUTE else f"{hours} h"
    return f"{whole // _DAY} days"


def ago(moment: dt.datetime) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    seconds = (dt.datetime.now(dt.UTC) - moment).total_seconds()
    if seconds < -2:
        return f"in {duration(-seconds)}"
    return "now" if seconds < 2 else f"{duration(seconds)} ago"


def age(moment: dt.datetime) -> str:
    """Return the age at a moment."""
    return duration(max(0.0, (dt.datetime.now(dt.UTC) - moment).total_seconds()))


def moment(value: dt.datetime | str | float | None) -> dt.datetime | None:
    """Return a moment from its forms in documents: ISO 8601, or seconds since 1970."""
    if value is None or isinstance(value, dt.datetime):
        return value
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    return dt.datetime.fromtimestamp(value, dt.UTC)


def absolute(value: dt.datetime) -> str:
    """Return a moment with its time zone, for the title of a `<time>` element."""
    return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 message", "1,204 messages"."""
    ending = "" if count == 1 else "s"
    if count != 1 and noun.endswith("y"):
        noun, ending = noun[:-1], "ies"
    return f"{count:,} {noun}{ending}"


def percent(part: float, whole: float) -> int:
    """Return a share in percent, 0 to 100; any use at all is at least 1."""
    if whole <= 0 or part <= 0:
        return 0
    return min(100, max(1, round(100 * part / whole)))


FILTERS: Final = {
    "number": number,
    "size": size,
    "quota": quota,
    "duration": duration,
    "ago": ago,
    "age": age,
    "moment": moment,
    "absolute": absolute,
    "plural": plural,
    "percent": percent,
    "reason": reason,
    "advice": advice,
    "class_name": class_name,
    "code_spans": code_spans,
    "way_words": way_words,
}
