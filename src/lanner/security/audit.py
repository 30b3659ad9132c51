"""The audit log: changes and failed logons, with their user and origin; one JSON line each.

A record goes to the logger `lanner.audit` and to a file of its own, which is rotated by size. The
file is opened for each record, so the service and a command can write it at the same time, and no
process has to be notified when it is moved away. A record is one `write` in append mode.

Failed logons and refused changes can come in floods, which must not push older records out of the
rotated files. Identical ones, and too many from one place, are counted instead of written, and a
later record states the count. While a place continues, the interval between its records grows. All
places together have a limit, too, and so have the changes that one user makes who is no
administrator. No record contains a password or a message body.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanner.model.errors import AccessDenied, IllegalSecurityDescriptor, InvalidOwner
from lanner.security.peer_address import peer_of

if TYPE_CHECKING:
    from lanner.security.identity import Identity

AUDIT_FILE: Final = "audit.log"
MODE: Final = 0o600
# Not in the specification: the size at which the file is renamed to audit.log.1, and how many old
# ones are kept.
MAX_OCTETS: Final = 10 << 20
OLD_FILES: Final = 5
# Not in the specification: characters of a text that a peer chose.
MAX_TEXT: Final = 512
# Not in the specification: refusals from one place that are written in a period; further ones are
# counted. After a period in which some were only counted, the next one is twice as long.
MAX_REFUSALS: Final = 20
PERIOD: Final = 60.0  # seconds
MAX_PERIOD: Final = 3600.0  # seconds
# Not in the specification: records about refusals of one event that are written in an hour, from
# all places. The limit is per event, so failed logons of strangers do not suppress other refusals.
MAX_IN_TOTAL: Final = 600
# Not in the specification: records about changes of one event that are written in an hour, of one
# user who is no administrator. Otherwise a user with one queue could push out all others.
MAX_CHANGES: Final = 200
_HOUR: Final = 3600.0  # seconds
# Not in the specification: places whose refusals are counted at a time.
_MAX_PLACES: Final = 1024
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# The errors of a change that is refused for lack of rights.
_REFUSALS: Final = (AccessDenied, InvalidOwner, IllegalSecurityDescriptor)

_LOG: Final = logging.getLogger("lanner.audit")
_TROUBLE: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Place:
    """The refusals from one place in the current period."""

    since: float
    period: float
    seen: set[str] = field(default_factory=set)
    suppressed: int = 0


class AuditLog:
    """Writes records. Without a path they go to the logger only. Thread-safe."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_octets: int = MAX_OCTETS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self._max_octets = max_octets
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}
        self._next_end = math.inf  # of a period
        self._hour = monotonic()  # its beginning
        self._in_hour: Counter[str] = Counter()  # records about refusals, by event
        # Changes in this hour, by event, name and SID of the user.
        self._changes: Counter[tuple[str, str, str]] = Counter()
        self._suppressed = 0  # refusals not written because of the limit for all places
        self._complained = -PERIOD
        # Logons that failed since the start, by mechanism.
        self.failed_logons: Counter[str] = Counter()

    # Records
    # ----------------------------------------------------------------------------------------------

    def done(self, event: str, identity: Identity, **details: object) -> None:
        """Record a change that a user has made."""
        with self._lock:
            self._end_hour()
            if not identity.is_administrator:
                key = event, identity.name, str(identity.sid)
                self._changes[key] += 1
                if self._changes[key] > MAX_CHANGES:
                    return
            self._write({"event": event, "outcome": "done", **_caller(identity), **details})

    def refused(self, event: str, identity: Identity, reason: str, **details: object) -> None:
        """Record that a change by a user was refused."""
        self._refuse({"event": event, "outcome": "refused", **_caller(identity), **details, "reason": reason})

    def logon_failed(self, account: str, address: str, mechanism: str, reason: str) -> None:
        """Record a failed logon. `reason` must not contain the password."""
        with self._lock:
            self.failed_logons[mechanism] += 1
        record: dict[str, object] = {"event": "log on", "outcome": "refused", "who": account, "from": address}
        self._refuse({**record, "mechanism": mechanism, "reason": reason})

    @contextmanager
    def change(self, event: str, identity: Identity, details: dict[str, object]) -> Iterator[None]:
        """Record the change made in the block, as done or as refused.

        `details` may be filled in the block.
        """
        try:
            yield
        except _REFUSALS as error:
            self.refused(event, identity, str(error.args[0]), **details)
            raise
        self.done(event, identity, **details)

    # Floods
    # ----------------------------------------------------------------------------------------------

    def _refuse(self, record: dict[str, object]) -> None:
        place_name = peer_of(str(record["from"]))
        text = _line(record)
        with self._lock:
            self._end_hour()
            self._end_periods()
            place = self._places.get(place_name)
            if place is None:
                place = self._add_place(place_name, PERIOD)
            if text in place.seen or len(place.seen) >= MAX_REFUSALS:
                place.suppressed += 1
                return
            place.seen.add(text)
            self._write_refusal(record, 1)

    def _write_refusal(self, record: dict[str, object], count: int) -> None:
        """Write a record about refusals, unless there were too many of them in this hour."""
        event = str(record["event"])
        if self._in_hour[event] >= MAX_IN_TOTAL:
            self._suppressed += count
            return
        self._in_hour[event] += 1
        self._write(record)

    def _end_hour(self) -> None:
        now = self._monotonic()
        if now - self._hour >= _HOUR:
            self._hour = now
            self._in_hour.clear()
            self._summarise_all()

    def _summarise_all(self) -> None:
        count, self._suppressed = self._suppressed, 0
        if count:
            self._write({"event": "refusals not written", "from": "all places", "count": count})
        changes, self._changes = self._changes, Counter()
        for (event, who, sid), count in changes.items():
            if count > MAX_CHANGES:
                left_out = count - MAX_CHANGES
                self._write(
                    {"event": "changes not written", "change": event, "who": who, "sid": sid, "count": left_out}
                )

    def _end_periods(self) -> None:
        """End the periods that are over, and those of the oldest places if there are too many."""
        now = self._monotonic()
        if now >= self._next_end:
            over = [name for name, place in self._places.items() if now - place.since >= place.period]
            for name in over:
                place = self._places.pop(name)
                self._summarise(name, place)
                if place.suppressed:
                    self._add_place(name, min(2 * place.period, MAX_PERIOD))
            self._next_end = min((place.since + place.period for place in self._places.values()), default=math.inf)
        while len(self._places) > _MAX_PLACES:
            name = next(iter(self._places))
            self._summarise(name, self._places.pop(name))

    def _add_place(self, name: str, period: float) -> _Place:
        place = self._places[name] = _Place(self._monotonic(), period)
        self._next_end = min(self._next_end, place.since + period)
        return place

    def _summarise(self, name: str, place: _Place) -> None:
        if place.suppressed:
            record: dict[str, object] = {"event": "refusals not written", "from": name, "count": place.suppressed}
            self._write_refusal(record, place.suppressed)

    def close(self) -> None:
        """Write how much was only counted so far. Records may still follow."""
        with self._lock:
            for name, place in self._places.items():
                self._summarise(name, place)
            self._places.clear()
            self._summarise_all()

    # The file
    # ---------------------------------------------------------------------------------------------

    def _write(self, record: dict[str, object]) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        line = _line({"time": now, **record})
        _LOG.info("%s", line)
        if self.path is None:
            return
        try:
            self._append(self.path, f"{line}\n".encode("ascii"))
        except OSError as error:
            # The change itself has happened. The other log has it, with the reason why the record
            # is missing.
            if self._monotonic() - self._complained >= PERIOD:
                self._complained = self._monotonic()
                _TROUBLE.error("the audit log %s cannot be written: %s; lost: %s", self.path, error.strerror, line)

    def _append(self, path: Path, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, MODE)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                _make_private(path, descriptor, status)
                if status.st_size and status.st_size + len(line) > self._max_octets:
                    _rotate(path, descriptor, status)
                    with suppress(OSError):
                        os.close(descriptor)
                    descriptor = os.open(path, flags, MODE)
                    _make_private(path, descriptor, os.fstat(descriptor))
            os.write(descriptor, line)
        finally:
            os.close(descriptor)


def _make_private(path: Path, descriptor: int, status: os.stat_result) -> None:
    """Make the owner of the directory the owner of the file, which no other user may read."""
    if status.st_mode & _OTHERS:
        os.fchmod(descriptor, MODE)
    if os.geteuid() == 0 and not status.st_size:
        owner = path.parent.stat()
        # A command that root runs must not make a file that the service cannot write.
        if status.st_uid != owner.st_uid:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _rotate(path: Path, descriptor: int, status: os.stat_result) -> None:
    """Move the file away, unless another process is doing so or has done so."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    if path.stat().st_ino != status.st_ino:
        return
    for number in range(OLD_FILES - 1, 0, -1):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}.{number}").replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def _caller(identity: Identity) -> dict[str, object]:
    return {"who": identity.name, "sid": str(identity.sid), "from": identity.origin or "this process"}


def _line(record: dict[str, object]) -> str:
    """Return one line of ASCII: control and bidirectional characters of peers are escaped."""
    short = {key: value[:MAX_TEXT] if isinstance(value, str) else value for key, value in record.items()}
    return json.dumps(short, ensure_ascii=True, default=str).replace("\x7f", "\\u007f")
