"""Limits on what peers may cost, in total and each: connections, descriptors, memory.

Every listener counts here the resources that a peer makes it hold, so that no peer can block the
others, and no listener another one. A peer is an address (`peer_of`), or a local user. `lanner
status`, `lanner doctor` and the metrics show the use and the limits.

- `Resource` counts one resource, in total and per peer.
- `Descriptors` divides the descriptors of the process among the listeners. Each has a part that no
  other listener can take.
- `Door` combines both for the connections of one listener. It issues a `Pass` for each connection,
  which is returned when the connection ends.
- `Rate` counts how often something happens in a second.
- `Newcomers` are connections that have not identified themselves. If there are too many, the oldest
  one of the peer with the most is closed.
- `Unfinished` counts the bytes of incomplete packets. If there are too many, the connection that
  has been silent for longest is closed.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, Generic, TypeVar

from lanner.host.memory import return_memory

# Descriptors for everything other than connections: the store, logs, listening sockets, threads,
# files being read.
KEPT_BACK: Final = 96
# More than this is of no use, and a container may report a thousand million as unlimited.
_MOST_DESCRIPTORS: Final = 1 << 20
# Not in the specification: the share of an address's connections to one listener that one user may
# have. The rest is for other users there.
_OF_A_USER: Final = 0.75
# After unfinished packets have held this many bytes, their memory is returned to the system.
_WORTH_RETURNING: Final = 8 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one resource, for users and programs."""

    resource: str
    used: int
    limit: int
    # The limit per peer; None: as much as there is.
    per_peer: int | None = None
    # The peer that uses most of it, and how much; None if there is no use.
    greatest_peer: str | None = None
    greatest: int = 0
    # Refusals for lack of this resource since the start.
    refused: int = 0

    def document(self) -> dict[str, object]:
        return asdict(self)


class Resource:
    """A limited resource, in total and per peer. Thread-safe."""

    def __init__(self, name: str, limit: int, per_peer: int | None = None) -> None:
        self.name = name
        self.limit = limit
        self.per_peer = per_peer
        self.used = 0
        self.refused = 0
        self._by_peer: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, peer: str) -> int:
        """Return how much a peer has."""
        return self._by_peer.get(peer, 0)

    def has_room(self, peer: str, amount: int = 1) -> bool:
        """Return whether a peer may have more."""
        if self.used + amount > self.limit:
            return False
        return self.per_peer is None or self._by_peer.get(peer, 0) + amount <= self.per_peer

    def take(self, peer: str, amount: int = 1) -> bool:
        """Take an amount for a peer; return False, and take nothing, if that exceeds a limit."""
        with self._lock:
            if not self.has_room(peer, amount):
                self.refused += 1
                return False
            self.used += amount
            self._by_peer[peer] = self._by_peer.get(peer, 0) + amount
            return True

    def hold(self, peer: str, amount: int) -> None:
        """Add an amount, which may be negative, to a peer's use, whether there is room or not."""
        with self._lock:
            self.used += amount
            left = self._by_peer.get(peer, 0) + amount
            if left:
                self._by_peer[peer] = left
            else:
                self._by_peer.pop(peer, None)

    def give_back(self, peer: str, amount: int = 1) -> None:
        self.hold(peer, -amount)

    @property
    def greatest(self) -> tuple[str, int] | None:
        """The peer that has most, and how much."""
        with self._lock:
            return max(self._by_peer.items(), key=lambda item: item[1], default=None)

    def usage(self) -> Usage:
        peer, most = self.greatest or (None, 0)
        return Usage(self.name, self.used, self.limit, self.per_peer, peer, most, self.refused)


class Rate:
    """How often something may happen in a second, in total and per peer. For one thread."""

    def __init__(self, name: str, limit: int, per_peer: int, monotonic: Callable[[], float]) -> None:
        self.name = name
        self._limit = limit
        self._per_peer = per_peer
        self._monotonic = monotonic
        self._began = monotonic()
        self._used = 0
        self._by_peer: dict[str, int] = {}
        self._refused = 0

    def allows(self, peer: str) -> bool:
        """Return whether it may happen once more in this second, and if so count it."""
        self._begin_second()
        of_peer = self._by_peer.get(peer, 0)
        if self._used >= self._limit or of_peer >= self._per_peer:
            self._refused += 1
            return False
        self._used += 1
        self._by_peer[peer] = of_peer + 1
        return True

    def _begin_second(self) -> None:
        now = self._monotonic()
        if now - self._began >= 1.0:
            self._began, self._used = now, 0
            self._by_peer.clear()

    def usage(self) -> Usage:
        self._begin_second()
        peer, most = max(self._by_peer.items(), key=lambda item: item[1], default=(None, 0))
        return Usage(self.name, self._used, self._limit, self._per_peer, peer, most, self._refused)


class Descriptors:
    """The descriptors that connections may use. Thread-safe.

    A listener has a part reserved for itself and may use more of the rest. Each listener counts
    with its use or its part, whichever is larger; the sum never exceeds the limit.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(limit, 0)
        self.refused = 0
        self._parts: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()

    def reserve(self, listener: str, share: float) -> None:
        """Reserve a share of the descriptors for a listener."""
        with self._lock:
            self._parts[listener] = int(self.limit * share)
            self._used.setdefault(listener, 0)

    def take(self, listener: str, amount: int = 1) -> bool:
        """Take descriptors for a listener; return False, and take nothing, if there are too few."""
        with self._lock:
            used, part = self._used.get(listener, 0), self._parts.get(listener, 0)
            others = sum(max(count, self._parts.get(name, 0)) for name, count in self._used.items() if name != listener)
            if max(used + amount, part) + others > self.limit:
                self.refused += 1
                return False
            self._used[listener] = used + amount
            return True

    def give_back(self, listener: str, amount: int = 1) -> None:
        with self._lock:
            self._used[listener] -= amount

    def usage(self) -> Usage:
        with self._lock:
            listener, most = max(self._used.items(), key=lambda item: item[1], default=(None, 0))
            return Usage(
                "descriptors",
                sum(self._used.values()),
                self.limit,
                None,
                listener if most else None,
                most,
                self.refused,
            )


class Pass:
    """The right of one connection to exist. Thread-safe."""

    __slots__ = ("_door", "_lock", "_user", "peer")

    def __init__(self, door: Door, peer: str) -> None:
        self._door: Door | None = door
        self._lock = threading.Lock()
        self._user: str | None = None
        self.peer = peer

    @property
    def is_returned(self) -> bool:
        return self._door is None

    def count_for(self, user: str) -> bool:
        """Count the connection for the first user who logs on through it.

        Returns False if this user has as many at this address as one user may have.
        """
        whose = f"{self.peer} {user}"
        with self._lock:
            if self._door is None or self._user is not None:
                return True
            if not self._door.of_users.take(whose):
                return False
            self._user = whose
            return True

    def give_back(self) -> None:
        """Return the pass, because the connection has ended. A second call is harmless."""
        with self._lock:
            door, self._door = self._door, None
        if door is not None:
            if self._user is not None:
                door.of_users.give_back(self._user)
            door.left(self.peer)


class Door:
    """The connections of one listener. `cost`: the descriptors that each of them uses."""

    def __init__(
        self,
        budget: Budget,
        name: str,
        *,
        limit: int,
        per_peer: int | None = None,
        share: float,
        cost: int = 1,
    ) -> None:
        self.name = name
        self._descriptors = budget.descriptors
        self._cost = cost
        self.connections = budget.add(Resource(f"{name} connections", limit, per_peer))
        per_user = None if per_peer is None else max(int(per_peer * _OF_A_USER), 1)
        self.of_users = Resource(f"{name} connections of users", limit, per_user)
        self._descriptors.reserve(name, share)

    def admit(self, peer: str) -> Pass | None:
        """Admit one more connection of a peer; return None if it must be closed."""
        if not self.connections.take(peer):
            return None
        if not self._descriptors.take(self.name, self._cost):
            self.connections.give_back(peer)
            self.connections.refused += 1
            return None
        return Pass(self, peer)

    def is_greedy(self, peer: str) -> bool:
        """Return whether a peer has as many connections as one peer may have."""
        per_peer = self.connections.per_peer
        return per_peer is not None and self.connections.of(peer) >= per_peer

    def situation(self, peer: str) -> str:
        """Return a description of why a peer is not admitted."""
        counted = self.connections
        if self.is_greedy(peer):
            return f"it has {counted.of(peer)}, and one peer may have {counted.per_peer}"
        if counted.used >= counted.limit:
            return f"there are {counted.used}, which is the limit"
        return f"{self._descriptors.usage().used} descriptors of {self._descriptors.limit} are in use"

    def left(self, peer: str) -> None:
        self.connections.give_back(peer)
        self._descriptors.give_back(self.name, self._cost)


class Newcomers(Generic[T]):
    """Unidentified connections of one listener, in order of their arrival.

    For one thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_peer: dict[str, dict[T, None]] = {}
        self._peers: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, one: T, peer: str) -> None:
        self._peers[one] = peer
        self._by_peer.setdefault(peer, {})[one] = None

    def of(self, peer: str) -> int:
        """Return the number of a peer's connections."""
        return len(self._by_peer.get(peer, ()))

    @property
    def greatest(self) -> str | None:
        """The peer that has most of them."""
        return max(self._by_peer, key=lambda peer: len(self._by_peer[peer]), default=None)

    def excess(self) -> T | None:
        """Return the connection to close if there are too many."""
        return self.oldest() if len(self._peers) > self._limit else None

    def oldest(self, peer: str | None = None) -> T | None:
        """Return the oldest connection of a peer; without a peer, of the one that has most.

        So a peer that opens connections and stays silent keeps no other peer out.
        """
        ones = max(self._by_peer.values(), key=len, default=None) if peer is None else self._by_peer.get(peer)
        return None if ones is None else next(iter(ones))

    def remove(self, one: T) -> None:
        """Remove a connection that has identified itself or ended. A second call is harmless."""
        peer = self._peers.pop(one, None)
        if peer is not None:
            ones = self._by_peer[peer]
            del ones[one]
            if not ones:
                del self._by_peer[peer]


class Unfinished(Generic[T]):
    """Bytes of incomplete packets or requests, of all connections of a listener.

    For one thread.

    If there are too many bytes, `evict` is called with a connection to close. If the peer of the
    packet has too many, it is one of that peer; otherwise one of the peer with the most. Among the
    connections of a peer, the one that has been silent for longest is closed.
    """

    def __init__(self, held: Resource, evict: Callable[[T, str], None]) -> None:
        self.held = held
        self._evict = evict
        self._by_peer: dict[str, dict[T, int]] = {}
        self._highest = 0  # since memory was returned

    def set(self, one: T, peer: str, size: int) -> None:
        """Set the incomplete bytes of a connection that has just received data."""
        ones = self._by_peer.get(peer)
        if ones is None:
            if not size:
                return
            ones = self._by_peer[peer] = {}
        held = self.held
        held.hold(peer, size - ones.pop(one, 0))
        if size:
            ones[one] = size
            if held.used > held.limit or (held.per_peer is not None and held.of(peer) > held.per_peer):
                self._make_room(peer)
            elif held.used > self._highest:
                self._highest = held.used
            return
        if not ones:
            self._by_peer.pop(peer, None)
        if self._highest >= _WORTH_RETURNING and held.used < self._highest // 2:
            self._highest = held.used
            return_memory()

    def _make_room(self, peer: str) -> None:
        held = self.held
        while True:
            if held.per_peer is not None and held.of(peer) > held.per_peer:
                greediest = peer
            elif held.used > held.limit and held.greatest is not None:
                greediest = held.greatest[0]
            else:
                return
            victim = next(iter(self._by_peer[greediest]))
            held.refused += 1
            self.set(victim, greediest, 0)
            self._evict(victim, f"{held.name}: more than {held.limit} in total, or {held.per_peer} of one peer")


class Budget:
    """The resources of a process, and the list of those that are shown."""

    def __init__(self, descriptors: int | None = None) -> None:
        """Divide `descriptors`; None: as many as the process may have open."""
        if descriptors is None:
            descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.descriptors = Descriptors(descriptors - KEPT_BACK)
        self._shown: dict[str, Callable[[], Usage]] = {"descriptors": self.descriptors.usage}

    def add(self, counted: Resource) -> Resource:
        """Show a resource. It replaces an earlier one of the same name, which has ended."""
        self._shown[counted.name] = counted.usage
        return counted

    def show(self, name: str, usage: Callable[[], Usage]) -> None:
        """Show a resource that is counted elsewhere."""
        self._shown[name] = usage

    def usage(self) -> list[Usage]:
        return [usage() for usage in list(self._shown.values())]


def raise_descriptor_limit() -> int:
    """Raise RLIMIT_NOFILE of this process as far as allowed; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
