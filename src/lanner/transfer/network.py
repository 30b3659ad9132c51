"""What transfer asks of the world outside: sockets, names, threads.

`shell` gives it; tests give another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.transfer.addresses import HopHost, NextHop
    from lanner.transfer.link import Link
    from lanner.transfer.tls import Certification


class Connection(Protocol):
    """One TCP connection. What comes from it is given to `Transfer.data_received` with its link."""

    link: Link | None
    # What the peer's certificate says; None in clear, and while the handshake of TLS is not done.
    certification: Certification | None

    def write(self, data: list[bytes]) -> None:
        """Send these bytes in order."""

    def close(self) -> None:
        """End it; nothing comes from it afterwards."""

    def pause_reading(self) -> None:
        """Take no more from the peer for now."""

    def resume_reading(self) -> None:
        """Go on."""


class Network(Protocol):
    """All `done` are called later, in the thread that runs transfer, once, without the lock."""

    def resolve(self, hosts: list[HopHost], done: Callable[[list[NextHop] | OSError], None]) -> None:
        """The addresses of hosts, asked anew each time."""

    def ping(self, address: str, done: Callable[[bool], None]) -> None:
        """Whether the queue manager there would take a session (MS-MQQB 3.1.7.6)."""

    def connect(self, address: str, done: Callable[[Connection | OSError], None], *, over_tls: bool = False) -> None:
        """A connection to port 1801 of an address, or to port 1802 after the handshake of TLS."""

    def sync(self, batch: int) -> None:
        """Have the store's batch of that number written soon."""

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Call `work` in another thread, then `done` with what it returned."""

    def wake(self) -> None:
        """Have `Transfer.pump` called soon; from any thread, with or without the lock."""
