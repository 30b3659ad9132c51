"""The links of a queue manager: every session, from its first byte to its last.

MS-MQQB 3.1.1.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lanner.engine.directory_events import identifier_is
from lanner.host.budget import Budget, Newcomers, Resource, Unfinished
from lanner.model.enums import DirectoryOperationResult
from lanner.security.peer_address import peer_of
from lanner.transfer.link import Link, Waiting
from lanner.transfer.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from lanner.engine import Engine
    from lanner.transfer.deadlines import Deadlines
    from lanner.transfer.network import Connection
    from lanner.transfer.settings import TransferSettings
    from lanner.transfer.turns import Turns
    from lanner.wire.internal_header import EstablishConnectionHeader


class Links:
    """The collection of links. The caller holds the store's lock.

    The callbacks get a link: `on_processed` when its messages up to a number are in the engine,
    `on_close` when its session is to be ended for a reason, and `on_due` when one of its timers
    expires.
    """

    def __init__(
        self,
        engine: Engine,
        settings: TransferSettings,
        turns: Turns,
        deadlines: Deadlines,
        budget: Budget | None = None,
        *,
        on_processed: Callable[[Link, int], None],
        on_close: Callable[[Link, str], None],
        on_due: Callable[[Link, float], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._turns = turns
        self._deadlines = deadlines
        self._on_processed = on_processed
        self._on_close = on_close
        self._on_due = on_due
        self.by_number: dict[int, Link] = {}
        self._at: dict[str, dict[Link, None]] = {}  # by address
        budget = budget or Budget()
        self._sessions = budget.add(
            Resource("transfer sessions", settings.max_connections * 2, settings.max_sessions_per_peer)
        )
        # Excludes links opened from here, which are limited by the number of peers.
        self._half_open: Newcomers[Link] = Newcomers(settings.max_half_open)
        self.unfinished: Unfinished[Link] = Unfinished(
            budget.add(
                Resource(
                    "transfer bytes of unfinished packets",
                    settings.max_unfinished_bytes,
                    settings.max_unfinished_bytes_per_peer,
                )
            ),
            on_close,
        )
        self._waiting = Waiting(
            budget.add(Resource("transfer bytes waiting to be stored", settings.max_waiting_bytes_in_total))
        )

    def accept(self, connection: Connection, address: str, admit: Callable[[EstablishConnectionHeader], bool]) -> Link:
        """Create the link of a connection that a peer has opened (3.1.5.10)."""
        session = Session.accept(
            own_guid=self._engine.queue_manager.identifier,
            settings=self._settings,
            monotonic=self._engine.monotonic,
            admit=admit,
            is_routing_server=self._engine.queue_manager.routing_server,
        )
        link = self._add(session, connection, address, is_initiator=False)
        self._half_open.add(link, link.budget_peer)
        return link

    def initiate(self, connection: Connection, address: str, remote_guid: UUID, *, was_pinged: bool) -> Link:
        """Create the link of a connection that was opened from here (3.1.5.2.3)."""
        session = Session.initiate(
            own_guid=self._engine.queue_manager.identifier,
            remote_guid=remote_guid,
            settings=self._settings,
            monotonic=self._engine.monotonic,
            was_pinged=was_pinged,
            is_routing_server=self._engine.queue_manager.routing_server,
        )
        link = self._add(session, connection, address, is_initiator=True)
        link.meant_guid = remote_guid
        return link

    def _add(self, session: Session, connection: Connection, address: str, *, is_initiator: bool) -> Link:
        link = Link(
            session,
            connection,
            address,
            self._settings,
            self._waiting,
            is_initiator=is_initiator,
            on_processed=self._on_processed,
            on_close=self._on_close,
            on_dirty=self._turns.mark_dirty,
        )
        connection.link = link
        self.by_number[link.number] = link
        self._sessions.hold(link.budget_peer, 1)
        self._at.setdefault(address, {})[link] = None
        self._deadlines.add(session.deadline, partial(self._on_due, link))
        return link

    def remove(self, link: Link) -> bool:
        """Remove a link whose session has ended; return False if it was removed before."""
        if self.by_number.pop(link.number, None) is None:
            return False
        links = self._at[link.remote_address]
        del links[link]
        if not links:
            del self._at[link.remote_address]
        self._sessions.give_back(link.budget_peer)
        self._half_open.remove(link)
        self.unfinished.set(link, link.budget_peer, 0)
        link.forget_waiting()
        self._deadlines.remove(link.session.deadline)
        return True

    # Lookup
    # ---------------------------------------------------------------------------------------------

    def at(self, address: str) -> Iterable[Link]:
        """Return the links to an address."""
        return self._at.get(address, ())

    def accepts(self, address: str) -> bool:
        """Return whether an address may have another connection."""
        return self._sessions.has_room(peer_of(address))

    def sessions_of(self, address: str) -> int:
        """Return how many connections an address has."""
        return self._sessions.of(peer_of(address))

    @property
    def has_room(self) -> bool:
        """Whether there are fewer incoming sessions than an administrator allows (QQB-2.2.1-4)."""
        inbound = sum(not link.is_initiator and link.is_open for link in self.by_number.values())
        return inbound < self._settings.max_in_sessions

    def excess_half_open(self) -> Link | None:
        """Return a half-open link that must end because there are too many.

        It is the oldest one from the address that has the most.
        """
        return self._half_open.excess()

    def oldest_half_open(self, peer: str | None = None) -> Link | None:
        """Return the oldest link whose handshake is not done.

        If `peer` is given, only its links are considered; otherwise those of the peer that has the
        most.
        """
        return self._half_open.oldest(peer)

    def dispensable(self, newcomer: str) -> Link | None:
        """Return an incoming session of an unknown peer that can make room, or None.

        It belongs to the peer with the most sessions, provided that peer has more than the
        newcomer. Prefer that peer's first session that has carried no message; if all have, take
        its first session. Known peers never make room, because strangers can open any number of
        sessions.
        """
        if not self._sessions.has_room(newcomer):
            # It would be refused anyway, and the search takes time.
            return None
        strangers: dict[str, list[Link]] = {}
        for link in self.by_number.values():
            if not link.is_initiator and not link.standing.is_known:
                strangers.setdefault(link.budget_peer, []).append(link)
        most = max(strangers.values(), key=len, default=[])
        if len(most) <= len(strangers.get(newcomer, ())):
            return None
        return next((link for link in most if not link.has_exchanged), most[0])

    def handshake_done(self, link: Link) -> None:
        """Note that the handshake of a session is done."""
        self._half_open.remove(link)

    def open_link_with(self, guid: UUID) -> Link | None:
        """Return an open session with a queue manager, or None."""
        return next((link for link in self.by_number.values() if link.is_open and link.remote_qm_guid == guid), None)

    def is_known_peer(self, guid: UUID) -> bool:
        """Return whether a queue manager has an open session or may be in the directory."""
        if self.open_link_with(guid) is not None:
            return True
        result, _ = self._engine.read_directory("QueueManager", identifier_is(guid))
        return result is not DirectoryOperationResult.OBJECT_NOT_FOUND
