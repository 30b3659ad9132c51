"""The part of `Sender` that does no I/O.

An outbox builds packets from messages, passes them to a session of MS-MQQB as its window allows,
and keeps each until the peer has acknowledged it. After a lost connection it sends the
unacknowledged ones again under the same identifiers, and the peer drops duplicates (MS-MQQB
3.1.5.8.1).
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import os
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING

from lanner.client.preparing import signed, to_message
from lanner.host.names import QueueNames, is_format_name
from lanner.model.directory_objects import GUID_NULL
from lanner.model.enums import DeliveryGuarantee, SenderIdentifierType
from lanner.model.errors import (
    IllegalFormatname,
    IllegalPropertyValue,
    InvalidHandle,
    InvalidParameter,
    IOTimeout,
    RemoteMachineNotAvailable,
    ResolveAddress,
    StatusError,
    TransactionUsage,
)
from lanner.transfer.addresses import parse_literal
from lanner.transfer.events import SessionAckReceived, SessionClosed, UserMessagesReceived
from lanner.transfer.packet_log import PacketLog
from lanner.transfer.session import Session
from lanner.transfer.session_states import SessionState
from lanner.transfer.settings import TransferSettings
from lanner.wire.builder import build
from lanner.wire.format_name import DirectFormatName, FormatName, parse
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lanner.client.message import Message
    from lanner.client.preparing import Sendable
    from lanner.security.signing import SigningKey
    from lanner.transfer.events import Event
    from lanner.wire.builder import MessageProperties

_LOG = logging.getLogger(__name__)

# A peer with the timers of the specification acknowledges an express message within 10 seconds.
DEFAULT_TIMEOUT = 30.0  # seconds
# `send_many` waits for the session when this many posted messages have not been passed to it.
BATCH = 32
# Not in the specification: roughly how many bytes are passed to the session at once.
TURN_BYTES = 1 << 20
CONNECT_TIMEOUT = 20.0  # seconds, for one address
# How long a closing sender waits for the peer to read the last bytes.
LINGER = 2.0  # seconds
# Well below the number of identifiers that a peer remembers (MS-MQQB 3.1.1.3: 10000), so that it
# recognises every duplicate sent after a lost connection.
MAX_UNACKNOWLEDGED = 4096
_FIRST_RETRY = 0.05  # seconds
_ORDINAL_MASK = 0xFFFF_FFFF


def no_address(error: OSError) -> str:
    """Return the problem of a host name that could not be resolved."""
    return f"the name has no address ({error.strerror or error})"


def reason(error: Exception) -> str:
    """Return the operating system's text for a connection error, the same in both forms."""
    number = getattr(error, "errno", None)
    # asyncio puts the address into `strerror`; negative numbers come from the resolver.
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _sid(text: str) -> bytes:
    try:
        return Sid.parse(text).pack()
    except ValueError as error:
        raise InvalidParameter(f"sender_id {text!r} is no SID, such as S-1-5-21-1-2-3-1001: {error}") from None


class SendStage(enum.IntEnum):
    """The stages of sending a message."""

    WAITING = 0  # Waiting for room in the peer's window.
    SENT = 1  # Passed to the session.
    ACKNOWLEDGED = 2  # An express message has arrived; a recoverable one is on the peer's disk.


# Module-level names, because enumerations look up members slowly.
_RECOVERABLE = DeliveryGuarantee.RECOVERABLE
_WAITING, _SENT, _ACKNOWLEDGED = SendStage.WAITING, SendStage.SENT, SendStage.ACKNOWLEDGED


class Posted:
    """A posted message."""

    __slots__ = ("_watchers", "identifier", "is_recoverable", "ordinal", "packet", "stage")

    def __init__(self, packet: bytes, ordinal: int, identifier: str, is_recoverable: bool) -> None:
        self.packet = packet
        self.ordinal = ordinal
        self.identifier = identifier
        self.is_recoverable = is_recoverable
        self.stage = _WAITING
        self._watchers: list[Callable[[], None]] = []

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` once, when the message reaches its next stage or `wake` is called."""
        self._watchers.append(watcher)

    def wake(self) -> None:
        """Call the watchers and forget them."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()

    def reach(self, stage: SendStage) -> None:
        """Set the stage and call the watchers."""
        self.stage = stage
        if self._watchers:
            self.wake()


class _OtherNames(QueueNames):
    """The parser for administration and response queues: a sender has no local queues to name."""

    def format_name(self, text: str) -> FormatName:
        name = super().format_name(text)
        for element in name.elements:
            if isinstance(element, DirectFormatName) and element.is_on_this_computer:
                raise IllegalFormatname(
                    f"{text}: a sender has no queues; name one of a queue manager, as in "
                    "DIRECT=OS:computer\\private$\\queue"
                )
        return name


def sender_settings(
    settings: TransferSettings | None, port: int | None, peers: Mapping[str, str] | None
) -> TransferSettings:
    """Return a sender's settings; a given port and given peers replace those of `settings`."""
    settings = settings or TransferSettings()
    return dataclasses.replace(
        settings, port=settings.port if port is None else port, peers=settings.peers if peers is None else peers
    )


class Outbox:
    """The messages of one sender, and its session if there is one. Not thread-safe."""

    def __init__(
        self,
        host: str,
        settings: TransferSettings,
        *,
        timeout: float,
        guid: uuid.UUID | None,
        first_ordinal: int | None,
        queue_manager: uuid.UUID | None,
        sender_id: str | None,
        signing_key: SigningKey | None,
    ) -> None:
        if (guid is None) != (first_ordinal is None):
            raise InvalidParameter(
                "guid and first_ordinal belong together: a peer drops a message whose GUID and ordinal it has seen, "
                "so a GUID that was used before goes on where it ended (`next_ordinal`)"
            )
        self.settings = settings
        literal = parse_literal(host)
        self.host = literal or host
        self.guid = uuid.uuid4() if guid is None else guid
        self.next_ordinal = 1 if first_ordinal is None else first_ordinal
        self.remote_guid = GUID_NULL if queue_manager is None else queue_manager
        self.signing_key = signing_key
        self.timeout = timeout
        # The address of the current session, or of the last one.
        self.address = literal or ""
        # The time of the last acknowledgment, on the monotonic clock.
        self.progressed = 0.0
        # The number of callers that wait for an acknowledgment.
        self.awaiting = 0
        self.problem = ""
        self._asked_for = self.remote_guid
        self._protocol = "OS" if literal is None else "TCP"
        self._names = QueueNames(self.host)
        self._other_names = _OtherNames(".")
        self._destinations: dict[str, FormatName] = {}
        self._text = str(self.guid)
        # A message without a sender identifier has the rights of Anonymous, to whom access lists
        # that name Everyone do not apply. A message that identifies a queue manager has the rights
        # of Everyone (MS-MQQB 3.1.5.8.3).
        self._sender = (
            (SenderIdentifierType.QUEUE_MANAGER_IDENTIFIER, self.guid.bytes_le)
            if sender_id is None
            else (SenderIdentifierType.SID, _sid(sender_id))
        )
        self.is_closed = False
        self._session: Session | None = None
        self._unacknowledged: dict[int, Posted] = {}  # By ordinal, in the order of posting.
        self._unsent: deque[Posted] = deque()
        self._sent = 0
        self._hurried = 0
        self._failures = 0
        self._foreign = 0

    @property
    def place(self) -> str:
        """The peer's name, port and address, for errors."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        where = "" if self.address in ("", self.host) else f" ({self.address})"
        return f"{host}:{self.settings.port}{where}"

    # Messages
    # ----------------------------------------------------------------------------------------------

    def post(self, queue: str, message: Sendable, transaction: object = None) -> Posted:
        """Build the packet of a message, and append it to the messages to send."""
        self.require_use()
        if transaction is not None:
            raise TransactionUsage(
                "a sender has no disk to keep the numbers of transactional messages on: send them through a "
                "queue manager, "
                "lanner.QueueManager(path, bind=...)"
            )
        message = to_message(message)
        destination = self._destinations.get(queue) or self._destination(queue)
        properties = self._properties(message, destination)
        ordinal = self.next_ordinal & _ORDINAL_MASK
        packet = build(
            properties, source=self.guid, ordinal=ordinal, sent_time=int(time.time()), destination=destination
        )
        self.next_ordinal += 1
        message.id = f"{self._text}\\{ordinal}"
        is_recoverable = properties.delivery_guarantee is _RECOVERABLE
        posted = Posted(packet, ordinal, message.id, is_recoverable)
        self._unacknowledged[ordinal] = posted
        self._unsent.append(posted)
        return posted

    def _properties(self, message: Message, destination: FormatName) -> MessageProperties:
        if message.use_journal_queue:
            raise IllegalPropertyValue(
                "use_journal_queue: copies are kept by the sender's queue manager, and a sender has none; "
                "send through lanner.QueueManager(path, bind=...)"
            )
        if message.encrypt:
            raise IllegalPropertyValue(
                "encrypt: the receiver's public key is in the directory, which a sender does not ask; "
                "send through lanner.QueueManager(path, bind=...)"
            )
        properties = message.properties(self._other_names)
        properties.sender_identifier_type, properties.sender_identifier = self._sender
        if message.authenticate:
            if self.signing_key is None or self._sender[0] is not SenderIdentifierType.SID:
                raise IllegalPropertyValue(
                    "authenticate: give the sender a signing_key, and as sender_id the SID of the user who has "
                    "its certificate"
                )
            properties = signed(
                message,
                properties,
                self.signing_key,
                source=self.guid,
                destination=destination,
                is_transactional=False,
            )
        return properties

    def _destination(self, text: str) -> FormatName:
        """Return the format name of one of the peer's queues.

        The computer in `text` must be a name or an address of the peer.
        """
        if is_format_name(text):
            name = parse(text)
            if not isinstance(name, DirectFormatName) or name.is_http or name.path_name is None:
                raise IllegalFormatname(
                    f"{text}: a sender takes direct format names, as DIRECT=OS:computer\\private$\\queue"
                )
            path, protocol = name.path_name, name.protocol
        else:
            path, protocol = self._names.path_name(text if "\\" in text else f".\\{text}"), self._protocol
        if path.is_on_this_computer:
            path, protocol = path.with_computer(self.host), self._protocol
        elif path.computer.lower() != self.host.lower() and parse_literal(path.computer) != self.address:
            raise IllegalFormatname(f"{text}: this sender speaks to {self.place}; open another for {path.computer}")
        found = self._destinations[text] = DirectFormatName.to_path(path, protocol)
        return found

    @property
    def unacknowledged(self) -> list[Posted]:
        """The messages that are not acknowledged, in the order of sending."""
        return list(self._unacknowledged.values())

    @property
    def count(self) -> int:
        return len(self._unacknowledged)

    @property
    def unsent_count(self) -> int:
        return len(self._unsent)

    def withdraw(self, posted: Posted) -> None:
        """Remove a message that is not sent; a sent one stays until it is acknowledged."""
        if posted.stage is _WAITING and self._unacknowledged.pop(posted.ordinal, None) is not None:
            self._unsent.remove(posted)

    def require_use(self) -> None:
        """Raise InvalidHandle if the sender is closed."""
        if self.is_closed:
            raise InvalidHandle(f"the sender to {self.place} is closed")

    def close(self) -> None:
        """Accept no more messages, and drop the session."""
        self.is_closed = True
        self._session = None

    # The session
    # ----------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._session is not None and self._session.state is SessionState.OPEN

    @property
    def is_connected(self) -> bool:
        """Whether there is a session, open or being opened."""
        return self._session is not None

    @property
    def is_in_the_way(self) -> bool:
        """Whether the session should end because the peer delivers its own messages on it.

        They are for a queue manager at this address. Without this session, the peer connects to
        that queue manager.
        """
        return self._foreign > 0 and not self._unacknowledged

    def connected(self, address: str) -> None:
        """Begin a session on a new connection, and resend unacknowledged messages in order."""
        self.address = address
        self._foreign = 0
        self._unsent = deque(self._unacknowledged.values())
        self._session = Session.initiate(
            own_guid=self.guid, remote_guid=self._asked_for, settings=self.settings, monotonic=time.monotonic
        )
        self._session.packet_log = PacketLog(address, f"of sender {self.guid}")

    def disconnected(self, problem: str = "") -> None:
        """Record that the connection is lost or could not be made, for the reason `problem`."""
        session = self._session
        if session is not None:
            self._handle(session.end_of_stream())
        if problem:
            self.problem = problem
        # A connection that ends while no message is unacknowledged has not failed: peers close idle
        # ones.
        self._failures = self._failures + 1 if self._unacknowledged else 0

    def retry_delay(self) -> float:
        """Return how many seconds to wait before reconnecting.

        The delay doubles with each failure since the last acknowledgment.
        """
        if self._failures <= 1:
            return 0.0
        return min(_FIRST_RETRY * 2.0 ** min(self._failures - 2, 16), self.settings.try_connect_interval)

    def receive(self, data: bytes | memoryview) -> None:
        """Process bytes from the peer. `is_connected` is False if they have ended the session."""
        if self._session is not None:
            self._handle(self._session.receive(data))

    def data_to_send(self) -> list[bytes]:
        """Return the bytes to write now, as far as the peer's window allows."""
        session = self._session
        if session is None:
            return []
        unsent = self._unsent
        if unsent:
            room = min(session.room, MAX_UNACKNOWLEDGED - len(self._unacknowledged) + len(unsent), len(unsent))
            limit = TURN_BYTES
            while room > 0 and limit > 0:
                posted = unsent.popleft()
                session.send(posted.packet, posted)
                room -= 1
                limit -= len(posted.packet)
                self._sent += 1
                if posted.stage is _WAITING:
                    posted.reach(_SENT)
        if self.awaiting and not unsent and self._sent > self._hurried and session.unacked_message_count:
            # A peer may delay the acknowledgment of less than half a window by half a second, and
            # of express messages by ten. With a window of one it does not delay (3.1.7.13).
            # Announcing such a window costs nothing, because a sender receives no messages.
            self._hurried = self._sent
            session.pause()
        return session.data_to_send()

    def next_deadline(self) -> float | None:
        """Return when to call `on_timer`, on the monotonic clock."""
        return None if self._session is None else self._session.deadline.due

    def on_timer(self) -> None:
        """Handle the session's due timers. Pass data that has arrived to `receive` first."""
        session = self._session
        if session is not None and session.deadline.due <= time.monotonic():
            self._handle(session.on_timer())

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, SessionAckReceived):
                self._acknowledged(event)
            elif isinstance(event, SessionClosed):
                self.problem = event.reason
                self._session = None
            elif isinstance(event, UserMessagesReceived):
                self._refuse()
            elif self._session is not None:
                self.problem = ""
                self.remote_guid = self._session.remote_qm_guid

    def _acknowledged(self, event: SessionAckReceived) -> None:
        found = False
        for entries, is_persisted in ((event.acked, False), (event.persisted, True)):
            for posted in entries:
                if isinstance(posted, Posted) and posted.is_recoverable is is_persisted:
                    found = True
                    del self._unacknowledged[posted.ordinal]
                    posted.packet = b""
                    posted.reach(_ACKNOWLEDGED)
        if found:
            self.progressed = time.monotonic()
            self._failures = 0

    def _refuse(self) -> None:
        """Record a message from the peer.

        It is not acknowledged, so the peer keeps it and delivers it after this session.
        """
        self._foreign += 1
        if self._foreign == 1:
            _LOG.warning(
                "%s sends messages to this sender, which has no queues; it keeps them until the sender has gone",
                self.place,
            )

    # Errors
    # ----------------------------------------------------------------------------------------------

    def unreachable(self) -> RemoteMachineNotAvailable:
        """Return the error for a session that could not be opened."""
        waiting = f"; {self.count} messages wait, flush() tries again" if self.count else ""
        return RemoteMachineNotAvailable(
            f"no session with {self.place}: {self.problem or 'no answer'}; "
            f"is a queue manager running there, and the port open?{waiting}"
        )

    def unresolved(self) -> ResolveAddress:
        """Return the error for a host name without an address."""
        return ResolveAddress(f"{self.host}: {self.problem}; check the name, or give its address in peers")

    def late(self, timeout: float) -> StatusError:
        """Return the error for a peer that has acknowledged nothing for `timeout` seconds."""
        if not self.is_open:
            self.problem = self.problem or f"no answer within {timeout:g} s"
            return self.unreachable()
        return IOTimeout(
            f"{self.place} has acknowledged nothing for {timeout:g} s; of what was sent, "
            f"{self.count - self.unsent_count} messages are unacknowledged and kept: flush() waits for them"
        )
