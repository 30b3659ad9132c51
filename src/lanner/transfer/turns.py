"""Turns: the work that parts of transfer leave to the end of a turn.

Every event from outside is one turn: bytes of a peer, a timer, a message in an outgoing queue. The
parts mark the work that a turn makes possible, and `Transfer` does it at the end: it fills
sessions, writes to connections, and removes delivered messages. Work that is marked outside a turn
requests one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.transfer.link import Link
    from lanner.transfer.network import Network
    from lanner.transfer.route import Route


class Turns:
    """The marked work. The caller holds the store's lock, or runs in transfer's thread."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.is_running = False
        # Links that may have something to send or to write.
        self.dirty: dict[Link, None] = {}
        # Changed outgoing queues, by number, and whether an operator paused or resumed them.
        self.awake: dict[int, bool] = {}
        # Routes whose queues still have delivered messages.
        self.ending: dict[Route, None] = {}
        # The newest batch of the store that should be written soon; 0 for none.
        self.wanted_batch = 0

    def mark_dirty(self, link: Link) -> None:
        """Have a link looked at when the turn ends."""
        self.dirty[link] = None
        if not self.is_running:
            self._network.wake()

    def awaken(self, number: int) -> None:
        """Have an outgoing queue looked at in a turn that comes soon."""
        self.awake.setdefault(number, False)
        self._network.wake()

    def want_sync(self, batch: int) -> None:
        """Have a batch of the store written when the turn ends."""
        if batch:
            self.wanted_batch = batch
            if not self.is_running:
                self._network.wake()
