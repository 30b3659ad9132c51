"""The interface from transfer to the outside: sockets, names and threads.

`shell` implements it; tests have another implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.transfer.addresses import HopHost, NextHop
    from lanner.transfer.link import Link
    from lanner.transfer.tls import Certification


class Connection(Protocol):
    """One TCP connection. Its data are passed to `Transfer.data_received` with its link."""

    link: Link | None
    # The contents of the peer's certificate; None in clear, and until the TLS handshake is done.
    certification: Certification | None

    def write(self, data: list[bytes]) -> None:
        """Send these bytes in order."""

    def close(self) -> None:
        """Close the connection. No data arrive afterwards."""

    def pause_reading(self) -> None:
        """Stop reading from the peer for now."""

    def resume_reading(self) -> None:
        """Resume reading."""


class Network(Protocol):
    """The network. Every `done` is called later, once, in transfer's thread, without the lock."""

    def resolve(
        self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None], whose: str | None = None
    ) -> None:
        """Resolve the addresses of hosts, anew each time.

        `whose` is the user who named them, if that may be anybody: a user has few lookups at once.
        """

    def ping(self, address: str, done: Callable[[bool], None]) -> None:
        """Ask whether the queue manager at an address would accept a session (MS-MQQB 3.1.7.6)."""

    def connect(self, address: str, done: Callable[[Connection | OSError], None], *, over_tls: bool = False) -> None:
        """Connect to port 1801 of an address, or to port 1802 including the TLS handshake."""

    def sync(self, batch: int) -> None:
        """Have the store's batch with that number written soon."""

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None], whose: str | None = None) -> None:
        """Call `work` in another thread, then `done` with its result.

        `whose` is the peer who causes it, if that may be anybody: a peer has little work at once.
        """

    def wake(self) -> None:
        """Have `Transfer.pump` called soon.

        May be called by any thread, with or without the lock.
        """
