r"""Accounts of a domain: names and SIDs that the domain itself has confirmed.

A logon with Kerberos confirms the account of its user. The names are for people: access checks
compare SIDs, and those of a user come with each logon. A name is written as in Windows, `MQ\alice`.
`alice@mq.test` is accepted too if the directory answers.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from lanner.wire.sid import Sid

# Not in the specification: names that are kept; the least recently used one is dropped first.
MAX_NAMES: Final = 10_000


class DomainAccounts:
    """The names learnt so far, in both directions. Thread-safe."""

    def __init__(self, limit: int = MAX_NAMES) -> None:
        self._limit = limit
        self._lock = Lock()
        self._names: OrderedDict[Sid, str] = OrderedDict()
        self._sids: dict[str, Sid] = {}

    def learn(self, sid: Sid, name: str) -> None:
        """Store the name of an account; it replaces an older one."""
        with self._lock:
            self._forget(sid)
            former = self._sids.get(name.casefold())
            if former is not None:
                self._forget(former)
            self._names[sid] = name
            self._sids[name.casefold()] = sid
            if len(self._names) > self._limit:
                self._forget(next(iter(self._names)))

    def name_of(self, sid: Sid) -> str | None:
        """Return the name of an account; None if it was not learnt."""
        with self._lock:
            name = self._names.get(sid)
            if name is not None:
                self._names.move_to_end(sid)
            return name

    def sid_of(self, name: str) -> Sid | None:
        """Return the SID of a name, in any case; None if it was not learnt."""
        with self._lock:
            return self._sids.get(name.casefold())

    def _forget(self, sid: Sid) -> None:
        name = self._names.pop(sid, None)
        if name is not None:
            del self._sids[name.casefold()]


def is_domain_name(name: str) -> bool:
    r"""Return whether a name is one of a domain: `MQ\alice` or `alice@mq.test`.

    No local account may have such a name.
    """
    return "\\" in name or "@" in name
