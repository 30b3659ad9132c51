"""Refused messages: counts by queue and reason, and their log.

MS-MQQB has a receiver discard what it refuses (3.1.5.8.2, 3.1.5.8.3, 3.1.5.8.8). The sender is
informed only if the message is transactional (a FinalAck) or asked for an acknowledgment, and a
safe receiver does not disclose some reasons (3.1.7.15). So both sides count the refusals that they
know of. They log one line per queue, class and minute, with the number of messages since the last
line.

Counts are kept in memory and begin at zero with the process. Names of queues come from peers:
stored and logged names are truncated, and characters that could control a terminal are escaped.
Message bodies are never logged.
"""

from __future__ import annotations

import datetime as dt
import enum
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanner.model.enums import MessageClass
from lanner.security.printable import one_line
from lanner.transfer.deadlines import NEVER, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lanner.wire.identifiers import MessageIdentifier

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: distinct names of one side that are counted separately; further ones are
# counted together as OTHER. Names that only a peer has used have a limit of their own, so that
# invented names cannot displace those of real queues.
MAX_KNOWN_QUEUES: Final = 1000
MAX_UNKNOWN_QUEUES: Final = 100
# Not in the specification: characters kept of a name or of a reason's text.
MAX_TEXT_LENGTH: Final = 256
# Not in the specification: seconds between two lines about the same queue and class.
LOG_INTERVAL: Final = 60.0
# Not in the specification: own messages whose refusal is remembered, because a peer may report it
# twice (FinalAck and administration acknowledgment, or a packet that is sent again).
MAX_REPORTED: Final = 4096

OTHER: Final = "other"
# A class of Lanner's own: SourceQueueManager is this queue manager, or is not the one at the other
# end of the session.
UNVERIFIED_SOURCE: Final = "unverified_source"

# MS-MQMQ 2.2.18.1.6: negative arrival acknowledgments are 0x8000 to 0xBFFF. Those above concern
# messages that had reached their queue.
_NEGATIVE_ARRIVAL = 0x8000
_SEVERITY = 0xC000

_NAMES: Final = {int(one): one.name.lower() for one in MessageClass}
_ADVICE: Final = {
    "nack_bad_dest_queue": "create the queue, or correct the name that the sender uses",
    "nack_purged": "it was removed on its way: send it again if it is still wanted",
    "nack_reach_queue_timeout": "give messages more time to reach the queue, and compare the clocks of both computers",
    "nack_queue_exceed_quota": "receive or purge messages of the queue, or raise its quota",
    "nack_access_denied": "allow the sender to send to the queue, or send as an account that may",
    "nack_hop_count_exceeded": "look for a loop in the routing links (`lanner directory show`)",
    "nack_bad_signature": "register the sender's certificate at the receiver, or look at --authenticate of the queue",
    "nack_bad_encryption": "look at --privacy of the queue and at the keys in the directory (`lanner directory show`)",
    "nack_not_transactional_queue": "send without a transaction, or to a transactional queue",
    "nack_not_transactional_message": "send in a transaction, or to a queue that is not transactional",
    "nack_unsupported_crypto_provider": "use algorithms that both computers support",
    UNVERIFIED_SOURCE: "look for a forger, or for two queue managers that were made from one data directory",
}


class Side(enum.StrEnum):
    """The queue manager that refused the messages."""

    HERE = "here"  # this one, messages of a peer
    PEER = "peer"  # a peer, messages of this one, as far as the peer reported them


@dataclass(slots=True, eq=False)
class Refused:
    """The refused messages of one side, queue and class."""

    side: Side
    queue: str
    message_class: str
    count: int = 0
    # For the last message: seconds since 1970, the address of the peer, the identifier, and details
    # of the reason.
    last_time: float = 0.0
    last_peer: str = ""
    last_message: str = ""
    last_detail: str = ""
    unlogged: int = 0
    log_due: float = 0.0  # monotonic; no line before this time

    def document(self) -> dict[str, object]:
        """Return the row as `lanner status --json` shows it."""
        return {
            "side": self.side.value,
            "queue": self.queue,
            "class": self.message_class,
            "messages": self.count,
            "last_time": dt.datetime.fromtimestamp(self.last_time, dt.UTC).isoformat(timespec="seconds"),
            "last_peer": self.last_peer,
            "last_message": self.last_message,
            "detail": self.last_detail,
            "advice": _ADVICE.get(self.message_class, ""),
        }

    def line(self) -> str:
        """Return the log line: the number since the last line, where, why, and what to do."""
        number = f"{self.unlogged} message{'s' if self.unlogged != 1 else ''}"
        if self.side is Side.HERE:
            what = f"{number} from {self.last_peer} for {self.queue} refused"
        else:
            what = f"{self.last_peer} refused {number} for {self.queue}"
        detail = f" ({self.last_detail})" if self.last_detail else ""
        advice = _ADVICE.get(self.message_class)
        return (
            f"{what}: {self.message_class}{detail}; the last is {self.last_message}, {self.count} so far"
            f"{f'; {advice}' if advice else ''}"
        )


def is_refusal(message_class: int) -> bool:
    """Return whether a class means that a message did not reach its queue."""
    return message_class & _SEVERITY == _NEGATIVE_ARRIVAL


def class_name(message_class: int) -> str:
    """Return the name of a class, as commands and metrics show it.

    A peer may use any number; unknown ones are OTHER.
    """
    return _NAMES.get(message_class, OTHER)


def printable(text: str) -> str:
    """Return a peer's text, truncated, with control and formatting characters escaped."""
    shown = one_line(text[: MAX_TEXT_LENGTH + 1])
    return shown if len(shown) <= MAX_TEXT_LENGTH else f"{shown[:MAX_TEXT_LENGTH]}..."


class Refusals:
    """The table and its log. The caller holds the store's lock."""

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._rows: dict[tuple[Side, str, str], Refused] = {}
        # Names counted separately, by side and by whether a queue of that name was known.
        self._names: dict[tuple[Side, bool], set[str]] = {
            (side, known): set() for side in Side for known in (False, True)
        }
        self._reported: OrderedDict[MessageIdentifier, None] = OrderedDict()
        # Rows with messages that were not logged yet. `deadline` is when the first of them may be
        # logged.
        self._unlogged: dict[Refused, None] = {}
        self.deadline = Deadline()

    def __iter__(self) -> Iterator[Refused]:
        """Iterate over the rows, by side, queue and class."""
        return iter([self._rows[key] for key in sorted(self._rows)])

    @property
    def total(self) -> int:
        """Return the number of refused messages of both sides."""
        return sum(row.count for row in self._rows.values())

    def refused_here(
        self, queue: str, message_class: str, *, peer: str, message: MessageIdentifier, detail: str, is_known: bool
    ) -> None:
        """Count a message of a peer that was refused. `is_known`: the queue exists."""
        row = self._row(Side.HERE, queue, message_class, is_known=is_known)
        self._add(row, peer, message, detail)

    def refused_by_peer(
        self, queue: str, message_class: int, *, peer: str, message: MessageIdentifier, is_known: bool
    ) -> None:
        """Count a message of this queue manager that a peer reports as refused.

        A second report of the same message is ignored.
        """
        if message in self._reported:
            return
        self._reported[message] = None
        if len(self._reported) > MAX_REPORTED:
            self._reported.popitem(last=False)
        row = self._row(Side.PEER, queue, class_name(message_class), is_known=is_known)
        self._add(row, peer, message, "")

    def _row(self, side: Side, queue: str, message_class: str, *, is_known: bool) -> Refused:
        queue = printable(queue)
        # Names that differ only in case denote one queue.
        name = queue.lower()
        known, unknown = self._names[side, True], self._names[side, False]
        if name not in known and name not in unknown:
            names, limit = (known, MAX_KNOWN_QUEUES) if is_known else (unknown, MAX_UNKNOWN_QUEUES)
            if len(names) < limit:
                names.add(name)
            else:
                queue = name = OTHER
        key = (side, name, message_class)
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = Refused(side, queue, message_class, log_due=self._monotonic())
        return row

    def _add(self, row: Refused, peer: str, message: MessageIdentifier, detail: str) -> None:
        row.count += 1
        row.unlogged += 1
        row.last_time = self._clock()
        row.last_peer = printable(peer)
        row.last_message = str(message)
        row.last_detail = printable(detail)
        now = self._monotonic()
        if now >= row.log_due:
            self._log(row, now)
        elif row not in self._unlogged:
            self._unlogged[row] = None
            self.deadline.set_earlier(row.log_due)

    def _log(self, row: Refused, now: float) -> None:
        _LOG.warning("%s", row.line())
        row.unlogged = 0
        row.log_due = now + LOG_INTERVAL
        self._unlogged.pop(row, None)

    def on_timer(self) -> None:
        """Log the rows whose last line is a minute old and that have counted more since then."""
        now = self._monotonic()
        if self.deadline.due <= now:
            self._flush(now, [row for row in self._unlogged if row.log_due <= now])

    def flush(self) -> None:
        """Log what was not logged yet, because the queue manager stops."""
        self._flush(self._monotonic(), list(self._unlogged))

    def _flush(self, now: float, rows: list[Refused]) -> None:
        for row in rows:
            self._log(row, now)
        self.deadline.set(min((row.log_due for row in self._unlogged), default=NEVER))
