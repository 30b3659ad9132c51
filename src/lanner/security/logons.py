"""Delays after wrong passwords: the more of them, the longer the wait for the next attempt.

Wrong passwords are counted in three ways: for an account at an address, for an address, and for an
account. A right password resets the first and the third count, and makes the account known at that
address. The wait before a password is checked follows from the counts:

- for an account at an address, always: it grows up to MAX_DELAY, and attempts wait for each other;
- for the address, if the account is not known there: in the same way. Wrong passwords of another
  account do not slow down a known one;
- for the account, if it is not known at the address: up to MAX_ACCOUNT_DELAY, and attempts do not
  wait for each other. So no attacker can lock a user out from elsewhere, unless the operator
  enables account lockout.

The wait comes before the check, because a wait after it would reveal at once which password was
right. An attempt that would have to wait longer than MAX_DELAY is refused, and its password is not
checked. The log gets only a few lines a minute about it. All tables are bounded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from lanner.model.errors import LannerError
from lanner.security.log_lines import log_of_peer
from lanner.security.peer_address import peer_of

_LOG = logging.getLogger(__name__)

# Not in the specification: wrong passwords without a delay, and the wait after the next one, which
# doubles with each.
FREE_FAILURES: Final = 3
FIRST_DELAY: Final = 1.0  # seconds
MAX_DELAY: Final = 30.0
MAX_ACCOUNT_DELAY: Final = 5.0
# Not in the specification: seconds without a wrong password after which earlier ones are forgotten,
# and seconds for which an account stays known at an address.
FORGET_AFTER: Final = 900.0
KNOWN_FOR: Final = 7 * 86400.0
# Not in the specification: entries of each table. The least recently used entry is dropped first.
MAX_ENTRIES: Final = 10_000

Key: TypeAlias = tuple[str, ...]


class LogonRefused(LannerError):
    """The password was not checked, because there were too many wrong ones before."""


@dataclass(frozen=True, slots=True)
class LockoutPolicy:
    """When an account is locked for every address.

    Off unless `failures` is set, because with it any client can lock out any user.
    """

    failures: int = 0  # 0: never
    seconds: float = 900.0


@dataclass(slots=True)
class _Count:
    failures: int = 0
    last: float = 0.0
    # When the next attempt may be made.
    next: float = 0.0


class _Table:
    """Counts by key, of which the least recently used is dropped first."""

    def __init__(self, life: float = FORGET_AFTER) -> None:
        self._life = life
        self._counts: dict[Key, _Count] = {}

    def get(self, key: Key, now: float) -> _Count | None:
        count = self._counts.get(key)
        if count is not None and now - count.last >= self._life:
            del self._counts[key]
            return None
        return count

    def touch(self, key: Key, now: float) -> _Count:
        count = self.get(key, now) or _Count()
        self._counts.pop(key, None)
        self._counts[key] = count
        count.last = now
        if len(self._counts) > MAX_ENTRIES:
            del self._counts[next(iter(self._counts))]
        return count

    def forget(self, key: Key) -> None:
        self._counts.pop(key, None)

    def __len__(self) -> int:
        return len(self._counts)


class Logons:
    """The attempts of all users at all listeners of this process. Thread-safe."""

    def __init__(self, lockout: LockoutPolicy | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._lockout = LockoutPolicy() if lockout is None else lockout
        self._clock = clock
        self._lock = threading.Lock()
        self._pairs = _Table()
        self._addresses = _Table()
        self._accounts = _Table(max(FORGET_AFTER, self._lockout.seconds))
        self._known = _Table(KNOWN_FOR)
        # Wrong passwords, and attempts refused without a check, since the start.
        self.failures = 0
        self.refusals = 0

    def begin(self, account: str, address: str, protocol: str) -> Attempt:
        """Begin an attempt. Its password may be checked after `wait` seconds.

        Raises LogonRefused if it may not be checked at all.
        """
        attempt = Attempt(self, account, address, protocol)
        with self._lock:
            now = self._clock()
            if self._is_locked(attempt, now):
                self._refuse(attempt, "the account is locked")
            attempt.wait = self._reserve(attempt, now)
            if attempt.wait > MAX_DELAY:
                self._refuse(attempt, "too many wrong passwords")
        return attempt

    def _is_locked(self, attempt: Attempt, now: float) -> bool:
        most = self._lockout.failures
        count = self._accounts.get(attempt.account_key, now) if most else None
        return count is not None and count.failures >= most and now - count.last < self._lockout.seconds

    def _refuse(self, attempt: Attempt, why: str) -> NoReturn:
        self.refusals += 1
        log_of_peer(
            _LOG,
            logging.WARNING,
            "refused logon",
            attempt.address_key[0],
            "%s: %s: %r is refused without checking the password: %s",
            attempt.address,
            attempt.protocol,
            attempt.account,
            why,
        )
        raise LogonRefused(f"{why}: try again later")

    def _reserve(self, attempt: Attempt, now: float) -> float:
        """Return how long an attempt has to wait, and reserve its turn."""
        lines = [self._pairs.get(attempt.pair_key, now)]
        is_known = self._known.get(attempt.pair_key, now) is not None
        wait = 0.0
        if not is_known:
            lines.append(self._addresses.get(attempt.address_key, now))
            account = self._accounts.get(attempt.account_key, now)
            wait = 0.0 if account is None else min(_delay(account.failures), MAX_ACCOUNT_DELAY)
        slowed = [line for line in lines if line is not None and _delay(line.failures)]
        when = max((line.next for line in slowed), default=now)
        wait = max(wait, when - now)
        if wait <= MAX_DELAY:
            for line in slowed:
                # Attempts that are waiting will probably fail, too: the line grows as if they had.
                line.next = max(now + wait, line.next) + max(wait, _delay(line.failures))
        return wait

    # After an attempt
    # ------------------------------------------------------------------------------------------

    def failed(self, attempt: Attempt) -> None:
        """Count a failed logon. All protocols report their failed logons here."""
        with self._lock:
            self.failures += 1
            now = self._clock()
            for table, key in (
                (self._pairs, attempt.pair_key),
                (self._addresses, attempt.address_key),
                (self._accounts, attempt.account_key),
            ):
                count = table.touch(key, now)
                count.failures += 1
                count.next = max(count.next, now + _delay(count.failures))
        log_of_peer(
            _LOG,
            logging.WARNING,
            "wrong password",
            attempt.address_key[0],
            "%s: %s: user name or password of %r is wrong",
            attempt.address,
            attempt.protocol,
            attempt.account,
        )

    def succeeded(self, attempt: Attempt) -> None:
        """Record that the password was right.

        The count of the address stays. Otherwise an attacker with one account could reset it before
        every third guess at other accounts.
        """
        with self._lock:
            self._pairs.forget(attempt.pair_key)
            self._accounts.forget(attempt.account_key)
            self._known.touch(attempt.pair_key, self._clock())

    @property
    def entries(self) -> int:
        """The number of stored entries."""
        with self._lock:
            return len(self._pairs) + len(self._addresses) + len(self._accounts) + len(self._known)


class Attempt:
    """One attempt of a user at an address."""

    __slots__ = ("_logons", "account", "account_key", "address", "address_key", "pair_key", "protocol", "wait")

    def __init__(self, logons: Logons, account: str, address: str, protocol: str) -> None:
        self._logons = logons
        # Names come from strangers, so one that is longer than any account name is cut.
        self.account = account[:_MAX_SHOWN]
        self.address = address
        self.protocol = protocol
        self.account_key: Key = (self.account.casefold(),)
        self.address_key: Key = (peer_of(address),)
        self.pair_key: Key = self.account_key + self.address_key
        # Seconds until the password may be checked.
        self.wait = 0.0

    def failed(self) -> None:
        self._logons.failed(self)

    def succeeded(self) -> None:
        self._logons.succeeded(self)


_MAX_SHOWN: Final = 104


def _delay(failures: int) -> float:
    beyond = failures - FREE_FAILURES
    return 0.0 if beyond <= 0 else min(FIRST_DELAY * 2.0 ** min(beyond - 1, 16), MAX_DELAY)
