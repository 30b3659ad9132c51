"""A link: a connection with its session, its peer, and the outgoing queues that it carries."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

from lanner.host.budget import Resource
from lanner.model.directory_objects import GUID_NULL
from lanner.security.peer_address import peer_of
from lanner.transfer.framing import CONNECTION_PARAMETERS_SIZE, ESTABLISH_CONNECTION_SIZE
from lanner.transfer.identities import UNKNOWN, Standing
from lanner.transfer.packet_log import PacketLog
from lanner.transfer.packets import OrderAckBody
from lanner.transfer.session_states import SessionState

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from lanner.transfer.network import Connection
    from lanner.transfer.peers import Peer
    from lanner.transfer.route import Route
    from lanner.transfer.session import Session
    from lanner.transfer.settings import TransferSettings
    from lanner.wire.identifiers import TxSequenceID

# Not in the specification: sequences whose OrderAck waits for room in the window.
_MAX_WAITING_EXPRESS = 4096

# An acceptor's states until it is open, and the bytes that the peer has sent when it enters each of
# them.
_HANDSHAKE = frozenset((SessionState.WAITING_EC_MSG, SessionState.WAITING_CP_MSG))
_SAID = {
    SessionState.WAITING_CP_MSG: ESTABLISH_CONNECTION_SIZE,
    SessionState.OPEN: ESTABLISH_CONNECTION_SIZE + CONNECTION_PARAMETERS_SIZE,
}

_numbers = itertools.count(1)


class Waiting:
    """Bytes of all sessions that wait to be processed and to become durable.

    Sessions that send more than their room are not read from meanwhile.
    """

    def __init__(self, held: Resource) -> None:
        self.held = held
        self.stopped: dict[Link, None] = {}

    @property
    def is_full(self) -> bool:
        return self.held.used > self.held.limit

    def freed(self) -> None:
        """Resume reading from the stopped sessions, once half of the room is free."""
        if self.held.used <= self.held.limit // 2:
            stopped, self.stopped = self.stopped, {}
            for link in stopped:
                link.read_again()


class Link:
    """One end of a session, from the first byte to the last."""

    def __init__(
        self,
        session: Session,
        connection: Connection,
        remote_address: str,
        settings: TransferSettings,
        waiting: Waiting,
        *,
        is_initiator: bool,
        on_processed: Callable[[Link, int], None],
        on_close: Callable[[Link, str], None],
        on_dirty: Callable[[Link], None],
    ) -> None:
        self.number = next(_numbers)
        self.session = session
        session.packet_log = PacketLog(remote_address, str(self.number))
        self.connection = connection
        self.remote_address = remote_address
        self.budget_peer = peer_of(remote_address)
        self.is_initiator = is_initiator
        # The queue manager that the directory has at the address to which the connection was
        # opened.
        self.meant_guid = GUID_NULL
        # The rights of the peer. `Transfer` sets them when the session is open.
        self.standing: Standing = UNKNOWN
        # The peer to which the certificate belongs; None in clear. Until the session is open it is
        # the peer that was connected to.
        self.certified_peer: Peer | None = None
        self.routes: list[Route] = []
        self.was_open = False
        # A message of the peer was stored, or the peer has acknowledged one.
        self.has_exchanged = False
        # The text for an operator while the peer acknowledges nothing.
        self.problem = ""
        # Whether the transport accepts more. A peer that does not read must not fill our memory.
        self.is_writable = True
        self._settings = settings
        self._all_waiting = waiting
        self._on_processed = on_processed
        self._on_close = on_close
        self._on_dirty = on_dirty
        self.waiting_express: dict[TxSequenceID, bytes] = {}  # OrderAcks that wait for room
        # What waits to be processed and to become durable: (messages received so far, bytes since
        # the entry before).
        self._unprocessed: deque[tuple[int, int]] = deque()
        self._unprocessed_bytes = 0
        self._released = 0  # received messages that are durable or refused
        self._is_reading = True
        self._said = 0  # bytes from the peer, until the session is open

    def __repr__(self) -> str:
        return f"<Link {self.number} {self.peer} {self.session.state.name}>"

    @property
    def peer(self) -> str:
        """The name of the peer in the log."""
        return f"{self.remote_address} ({self.session.remote_qm_guid})"

    @property
    def remote_qm_guid(self) -> uuid.UUID:
        return self.session.remote_qm_guid

    @property
    def is_open(self) -> bool:
        return self.session.is_open

    @property
    def is_closed(self) -> bool:
        return self.session.is_closed

    # Receiving
    # ---------------------------------------------------------------------------------------------

    def has_not_waited(self, before: SessionState, size: int) -> bool:
        """Return whether an initiating peer has sent more than it can before our answer arrives.

        `size` bytes arrived in state `before`.
        """
        if before not in _HANDSHAKE:
            return False
        self._said += size
        now = self.session.state
        if now is before or now not in _SAID:
            return False
        return self._said > _SAID[now] or (before is SessionState.WAITING_EC_MSG and now is SessionState.OPEN)

    def received(self, size: int) -> None:
        """Count bytes from the peer, and stop reading when too many of them wait.

        Nothing is counted while no message waits, because acknowledgments never wait. Otherwise a
        peer that only acknowledges would be stopped forever at some point.
        """
        total = self.session.total_received
        if total <= self._released or self.session.is_closed:
            return
        self._unprocessed.append((total, size))
        self._unprocessed_bytes += size
        everything = self._all_waiting
        everything.held.hold(self.budget_peer, size)
        if self._is_reading and (self._unprocessed_bytes > self._settings.max_waiting_bytes or everything.is_full):
            self._is_reading = False
            self.connection.pause_reading()
            if everything.is_full:
                everything.stopped[self] = None

    def processed(self, number: int) -> None:
        """Note that all messages up to a number are in the engine, or refused.

        They are acknowledged once they are durable.
        """
        self._on_processed(self, number)

    def release(self, number: int) -> None:
        """Note that all messages up to a number are durable or refused.

        Their bytes no longer wait, and they may be acknowledged.
        """
        self.session.allow_acknowledgment(number)
        self._released = max(self._released, number)
        waiting = self._unprocessed
        before = self._unprocessed_bytes
        while waiting and waiting[0][0] <= number:
            self._unprocessed_bytes -= waiting.popleft()[1]
        everything = self._all_waiting
        if self._unprocessed_bytes != before:
            everything.held.hold(self.budget_peer, self._unprocessed_bytes - before)
        if not self._is_reading and self not in everything.stopped:
            self.read_again()
        if everything.stopped:
            everything.freed()

    def read_again(self) -> None:
        """Resume reading if the waiting bytes of this session leave room."""
        if not self._is_reading and self._unprocessed_bytes <= self._settings.max_waiting_bytes // 2:
            self._is_reading = True
            self.connection.resume_reading()

    def forget_waiting(self) -> None:
        """Discard the counts of what waits, because the session has ended."""
        everything = self._all_waiting
        everything.held.hold(self.budget_peer, -self._unprocessed_bytes)
        self._unprocessed.clear()
        self._unprocessed_bytes = 0
        everything.stopped.pop(self, None)
        if everything.stopped:
            everything.freed()

    def close(self, reason: str) -> None:
        """End the session. Unacknowledged messages will be sent again."""
        self._on_close(self, reason)

    # Sending
    # ----------------------------------------------------------------------------------------------

    def send_express(self, packet: bytes) -> None:
        """Send a message that belongs to no queue: an OrderAck.

        A newer OrderAck replaces an older one of its sequence. A sender that misses one sends its
        messages again.
        """
        self.waiting_express[OrderAckBody.from_packet(packet).tx_sequence_id] = packet
        if len(self.waiting_express) > _MAX_WAITING_EXPRESS:
            del self.waiting_express[next(iter(self.waiting_express))]
        self._on_dirty(self)

    def send_waiting_express(self) -> None:
        """Send as many waiting OrderAcks as the window has room for."""
        session = self.session
        while self.waiting_express and session.room > 0:
            session.send(self.waiting_express.pop(next(iter(self.waiting_express))), None)

    def flush(self) -> None:
        """Pass the session's output to the transport, which closes after the last packet."""
        data = self.session.data_to_send()
        if data:
            self.connection.write(data)
        if self.session.is_closed:
            self.connection.close()
