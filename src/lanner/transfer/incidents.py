"""Incidents: acts of peers that a queue manager must reject, counted and logged.

Each kind is counted, with the last peer. The log has at most one line per kind, peer and minute,
with the count since the last line; the last lines of a minute are written when it is over. A peer
is an address, which the kernel reports. Texts from peers are escaped. Counts are kept in memory and
begin at zero with the process.
"""

from __future__ import annotations

import datetime as dt
import enum
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.refusals import LOG_INTERVAL, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: pairs of kind and peer with log lines of their own. Further peers share
# one line per kind.
MAX_PEERS: Final = 1000
OTHERS: Final = "other peers"


class Incident(enum.StrEnum):
    """Kinds of incidents; the values are labels of metrics."""

    REFUSED_PEER = "refused_peer"
    REFUSED_PACKET = "refused_packet"
    UNVERIFIED_SOURCE = "unverified_source"
    FOREIGN_ACKNOWLEDGMENT = "foreign_acknowledgment"
    UNMATCHED_ACKNOWLEDGMENT = "unmatched_acknowledgment"
    SEQUENCE_AHEAD = "sequence_ahead"
    NOT_FORWARDED = "not_forwarded"
    TOO_MANY_QUEUES = "too_many_queues"
    TOO_MANY_SEQUENCES = "too_many_sequences"
    DUPLICATE = "duplicate"


_TEXTS: Final = {
    Incident.REFUSED_PEER: "sessions refused",
    Incident.REFUSED_PACKET: "packets that break the rules of the protocol; the session was closed",
    Incident.UNVERIFIED_SOURCE: "messages dropped that name another queue manager as their source",
    Incident.FOREIGN_ACKNOWLEDGMENT: "acknowledgments ignored of messages that were not sent to that queue manager",
    Incident.UNMATCHED_ACKNOWLEDGMENT: "acknowledgments ignored that match no message that was sent and waits",
    Incident.SEQUENCE_AHEAD: "transactional messages dropped because the time of their sequence is too far ahead",
    Incident.NOT_FORWARDED: "messages for other computers not passed on",
    Incident.TOO_MANY_QUEUES: "outgoing queues not made: this peer has caused too many",
    Incident.TOO_MANY_SEQUENCES: "transactional sequences forgotten: this peer has begun too many",
    Incident.DUPLICATE: "messages dropped because they had come before",
}
# These also happen between honest peers, after a broken connection.
_USUAL: Final = frozenset({Incident.DUPLICATE, Incident.UNMATCHED_ACKNOWLEDGMENT})


@dataclass(slots=True, eq=False)
class _Line:
    kind: Incident
    peer: str
    detail: str = ""
    unlogged: int = 0
    due: float = 0.0  # monotonic; no line before this time


@dataclass(slots=True)
class Count:
    """The number of incidents of one kind, and the last one."""

    kind: Incident
    count: int = 0
    last_time: float = 0.0  # seconds since 1970
    last_peer: str = ""
    last_detail: str = ""

    def document(self) -> dict[str, object]:
        """Return the row as `lanner status --json` shows it."""
        return {
            "kind": self.kind.value,
            "text": _TEXTS[self.kind],
            "count": self.count,
            "last_time": dt.datetime.fromtimestamp(self.last_time, dt.UTC).isoformat(timespec="seconds"),
            "last_peer": self.last_peer,
            "detail": self.last_detail,
            "is_usual": self.kind in _USUAL,
        }


class Incidents:
    """The counts and the log. The caller holds the store's lock."""

    def __init__(self, clock: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._counts: dict[Incident, Count] = {}
        self._lines: dict[tuple[Incident, str], _Line] = {}
        self.deadline = Deadline()

    def __iter__(self) -> Iterator[Count]:
        """Iterate over the kinds that have occurred, in the order of `Incident`."""
        return iter([self._counts[kind] for kind in Incident if kind in self._counts])

    def count(self, kind: Incident) -> int:
        """Return how many incidents of a kind occurred."""
        found = self._counts.get(kind)
        return 0 if found is None else found.count

    def add(self, kind: Incident, peer: str, detail: str = "") -> None:
        """Count an incident of a peer.

        `peer` is an address, because a peer can use any number of identifiers.
        """
        found = self._counts.get(kind)
        if found is None:
            found = self._counts[kind] = Count(kind)
        found.count += 1
        found.last_time = self._clock()
        found.last_peer = peer
        found.last_detail = printable(detail)
        line = self._line(kind, peer)
        line.unlogged += 1
        line.detail = found.last_detail
        now = self._monotonic()
        if now >= line.due:
            self._log(line, now)
        self.deadline.set_earlier(line.due)

    def _line(self, kind: Incident, peer: str) -> _Line:
        line = self._lines.get((kind, peer))
        if line is None:
            if len(self._lines) >= MAX_PEERS:
                peer = OTHERS
            line = self._lines.setdefault((kind, peer), _Line(kind, peer, due=self._monotonic()))
        return line

    def _log(self, line: _Line, now: float) -> None:
        level = logging.INFO if line.kind in _USUAL else logging.WARNING
        detail = f" ({line.detail})" if line.detail else ""
        _LOG.log(level, "%s: %d %s%s", line.peer, line.unlogged, _TEXTS[line.kind], detail)
        line.unlogged = 0
        line.due = now + LOG_INTERVAL

    def on_timer(self) -> None:
        """Write the lines of the minutes that are over; forget peers idle for a minute."""
        now = self._monotonic()
        if self.deadline.due > now:
            return
        self._write(now, [line for line in self._lines.values() if line.due <= now])

    def flush(self) -> None:
        """Write all pending lines, because the queue manager stops."""
        self._write(self._monotonic(), list(self._lines.values()))

    def _write(self, now: float, lines: list[_Line]) -> None:
        for line in lines:
            if line.unlogged:
                self._log(line, now)
            else:
                del self._lines[line.kind, line.peer]
        self.deadline.set(min((line.due for line in self._lines.values()), default=NEVER))
