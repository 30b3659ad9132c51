"""One session between two queue managers, without its socket (MS-MQQB 3.1).

A session does no I/O. Bytes of the connection go in (`receive`) and events come out. The owner
fetches the bytes to write (`data_to_send`) and the time of the next timer (`next_deadline`). There
are no queues and no disk here: the owner processes received messages, makes recoverable ones
durable, and then allows their acknowledgment (`allow_acknowledgment`).

Handshake. Two round trips open a session:

    initiator                                               acceptor
    WAITING_ECR_MSG    ---  EstablishConnection     -->     WAITING_EC_MSG
                       <--  EstablishConnection     ---
    WAITING_CPR_MSG    ---  ConnectionParameters    -->     WAITING_CP_MSG
                       <--  ConnectionParameters    ---
    OPEN                                                    OPEN

The first tells each side the other's GUID. In the second the initiator proposes the timeouts, and
each side states its window. Both sides are this class. They differ only in their table of states
(`session_states`) and in which side speaks first (`handshake`).

Acknowledgments. Both sides count the user messages of each direction. A SessionHeader carries these
counts, alone in a SessionAck or attached to a UserMessage. At most a window of messages may be
unacknowledged. A SessionHeader goes out when half a window or 32 recoverable messages may be
acknowledged, or when the Session Ack Send Timer expires. A UserMessage that is sent late in that
timer's interval carries one along. The counts are in `acknowledging`.

Timers. Session Initialization ends a handshake that takes too long. Session Ack Wait ends a session
on which messages are unacknowledged and nothing arrives. Session Cleanup ends an idle session. A
window that the peer has reduced recovers step by step. A packet that breaks the rules ends the
session too; `framing` cuts the stream into packets and `packets` validates them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from uuid import UUID

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import RemoteProtocolError
from lanner.transfer import handshake
from lanner.transfer.acknowledging import NUMBER_MASK, ReceivedMessages, SentMessages, usable_window
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.events import (
    Event,
    NothingAcknowledged,
    SessionAckReceived,
    SessionClosed,
    SessionOpened,
    UserMessagesReceived,
)
from lanner.transfer.framing import PacketStream
from lanner.transfer.packet_log import PacketLog, is_enabled
from lanner.transfer.packets import examine, is_acknowledgment
from lanner.transfer.session_states import ACCEPTOR, INITIATOR, PacketKind, SessionState, Transitions
from lanner.transfer.settings import TransferSettings
from lanner.transfer.timers import Timer
from lanner.wire import fields
from lanner.wire import layout as at
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    pack_session_ack,
    read_session_ack,
)
from lanner.wire.packet_runs import shape_of
from lanner.wire.session_header import (
    MAX_RECOVERABLE_ACKS,
    SMALLEST_WINDOW_SIZE,
    WINDOW_RECOVERY_INTERVAL,
    SessionHeader,
    attach_session_header,
    detach_session_header,
    recovered_window,
)

# 3.1.2.2, product note 44, seconds.
_CLEANUP_INTERVAL = 300.0
_ROUTING_SERVER_CLEANUP_INTERVAL = 120.0
# 3.1.3.2 RecoverableAckSendTimeout before its negotiation, milliseconds.
_NOT_NEGOTIATED = 0xFFFF_FFFF
# 3.1.7.11: a UserMessage carries the acknowledgment if this part of the Session Ack Send Timer's
# interval is over.
_PIGGYBACK_PART = 0.75
_DIRECT = fields.DQ_IN_USER_FLAGS_1  # all bits of DQ


class Session:
    """One connection's state and timers (MS-MQQB 3.1.1.3.1, 3.1.2).

    Create sessions with `initiate` or `accept`.
    """

    def __init__(
        self,
        state: SessionState,
        transitions: Transitions,
        own_guid: UUID,
        settings: TransferSettings,
        monotonic: Callable[[], float],
        *,
        is_routing_server: bool,
    ) -> None:
        """Set every count to 0 and start Session Cleanup and Session Initialization (3.1.3.2).

        Session Initialization runs until the handshake is done. All other timers are stopped.
        """
        self._transitions = transitions
        self._own_guid = own_guid
        self._own_guid_bytes = own_guid.bytes_le
        self._settings = settings
        self._monotonic = monotonic
        self._admit: Callable[[EstablishConnectionHeader], bool] | None = None
        self._stream = PacketStream()
        # Set by the owner, which knows the peer's address.
        self.packet_log: PacketLog | None = None
        # Packets to be written; `data_to_send` takes them.
        self.out: list[bytes] = []
        self._sent = SentMessages()
        self._received = ReceivedMessages()

        self.remote_qm_guid = GUID_NULL
        # A UserMessage to a direct name has arrived, so acknowledgments of its sequence go to a
        # direct name too (3.1.5.8.2).
        self.direct_format_session = False
        self.session_active = False
        self.received_ack = False
        self.window_size = settings.window_size
        self.received_window_size = SMALLEST_WINDOW_SIZE
        self.ack_wait_timeout = handshake.clamp(  # milliseconds
            round(1000 * (settings.ack_wait_timeout + settings.round_trip_delay)), handshake.ACK_TIMEOUT_RANGE
        )
        self.recoverable_ack_send_timeout = _NOT_NEGOTIATED  # milliseconds
        self._established_for_direct_name = False
        self._negotiated_window = SMALLEST_WINDOW_SIZE
        self._advertised_window = settings.window_size
        self._early_ack = 1
        self._usable_window = SMALLEST_WINDOW_SIZE
        # A recoverable message arrived since the last SessionAck and has shortened the Session Ack
        # Send Timer.
        self._is_ack_hastened = False

        # Never later than any of the timers below; `on_timer` makes it exact.
        self.deadline = Deadline()
        self._initialization = Timer(self.deadline)
        self._cleanup = Timer(self.deadline)
        self._ack_wait = Timer(self.deadline)
        self._ack_send = Timer(self.deadline)
        self._window_recovery = Timer(self.deadline)
        # Not in the specification: runs while messages are in transit, from the last time that one
        # of them was acknowledged.
        self._progress = Timer(self.deadline)
        self._last_progress = 0.0
        self._timers = (
            self._initialization,
            self._cleanup,
            self._ack_wait,
            self._ack_send,
            self._window_recovery,
            self._progress,
        )
        self._cleanup_interval = settings.cleanup_interval or (
            _ROUTING_SERVER_CLEANUP_INTERVAL if is_routing_server else _CLEANUP_INTERVAL
        )
        now = monotonic()
        self._cleanup.start(now, self._cleanup_interval)
        self._initialization.start(now, settings.session_initialization_timeout + 2 * settings.round_trip_delay)
        self.state = state
        # The state as flags, because other parts ask several times per message.
        self.is_open = self.is_closed = False
        self._enter(state)

    @classmethod
    def initiate(
        cls,
        *,
        own_guid: UUID,
        remote_guid: UUID = GUID_NULL,
        settings: TransferSettings,
        monotonic: Callable[[], float],
        is_server_class: bool = True,
        was_pinged: bool = False,
        is_routing_server: bool = False,
    ) -> Session:
        """Return the session of the side that connected (3.1.5.2.3).

        GUID_NULL is for a direct format name: any queue manager at that address.
        """
        session = cls(
            SessionState.WAITING_ECR_MSG,
            INITIATOR,
            own_guid,
            settings,
            monotonic,
            is_routing_server=is_routing_server,
        )
        session.remote_qm_guid = remote_guid
        session._established_for_direct_name = remote_guid == GUID_NULL
        session.out.append(
            handshake.request_connection(
                own_guid, remote_guid, session._milliseconds(), is_server_class=is_server_class, was_pinged=was_pinged
            )
        )
        return session

    @classmethod
    def accept(
        cls,
        *,
        own_guid: UUID,
        settings: TransferSettings,
        monotonic: Callable[[], float],
        admit: Callable[[EstablishConnectionHeader], bool],
        is_routing_server: bool = False,
    ) -> Session:
        """Return the session of the side that was connected to (3.1.5.10).

        If `admit` returns False, the peer is refused in the answer.
        """
        session = cls(
            SessionState.WAITING_EC_MSG, ACCEPTOR, own_guid, settings, monotonic, is_routing_server=is_routing_server
        )
        session._admit = admit
        return session

    # The counts, as they are in packets

    @property
    def message_sent_count(self) -> int:
        return self._sent.count & NUMBER_MASK

    @property
    def recoverable_message_sent_count(self) -> int:
        return self._sent.recoverable_count & NUMBER_MASK

    @property
    def unacked_message_count(self) -> int:
        """UnAckedMessageCount: messages sent and not acknowledged."""
        return self._sent.unacked_count

    @property
    def total_received(self) -> int:
        """The number of user messages received, which is the number of the last one."""
        return self._received.count

    @property
    def message_received_count(self) -> int:
        return self._received.count & NUMBER_MASK

    @property
    def recoverable_message_received_count(self) -> int:
        return self._received.recoverable_count & NUMBER_MASK

    @property
    def unacked_received_msg_count(self) -> int:
        return self._received.unacked_count & NUMBER_MASK

    @property
    def last_acked_recoverable_msg_seq_number(self) -> int:
        return self._received.recoverable_acked & NUMBER_MASK

    @property
    def recoverable_msg_ack_flags(self) -> int:
        return self._received.recoverable_msg_ack_flags

    # Receiving

    @property
    def unfinished(self) -> int:
        """Bytes of an incomplete packet."""
        return self._stream.unfinished

    def receive(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Process bytes of the stream, cut anywhere. No reference to `data` is kept."""
        events: list[Event] = []
        if self.state is SessionState.CLOSED:
            return events
        log = self.packet_log if self.packet_log is not None and is_enabled() else None
        try:
            for packets, is_equal in self._stream.runs(data):
                if log is not None:
                    log.received(packets)
                # 3.1.5.1: a packet of any type.
                self.received_ack = True
                if is_equal:
                    self._take_user_messages(UserMessagesReceived, packets, events, is_equal=True)
                    continue
                packet = packets[0]
                kind = fields.base_flags_low(packet) & (at.IN | at.BASE_SH)
                if not kind:
                    self._take_user_message(packet, events)
                elif kind == at.BASE_SH:
                    # 3.1.5.8.4: a SessionHeader belongs to the session and is removed from the
                    # message. The sender has already counted the message that carries its counts.
                    # Therefore it is counted here before the counts are compared.
                    message, header = detach_session_header(packet)
                    self._take_user_message(message, events)
                    self._take_session_header(header, events)
                else:
                    self._take_internal(packet, events)
        except RemoteProtocolError as error:
            is_refused = isinstance(error, handshake.ConnectionRefused)
            self._close(str(error), events, is_error=True, is_refused=is_refused, is_malformed=self.is_open)
        return events

    def _take_user_message(self, packet: bytes, events: list[Event]) -> None:
        """Validate a message. Following messages of the same shape are not validated again."""
        event = examine(packet, self._own_guid_bytes)
        self._stream.shape = shape_of(packet)
        self._take_user_messages(event, [packet], events, is_equal=False)

    def _take_user_messages(
        self, event: type[UserMessagesReceived], packets: list[bytes], events: list[Event], *, is_equal: bool
    ) -> None:
        """Count messages of equal shape (3.1.5.8.2) and add them to the events.

        `is_equal`: they have the shape of the last UserMessage. The owner does the rest of 3.1.5.8.
        """
        packet = packets[0]
        is_recoverable = bool(fields.user_flags_0(packet) & fields.DM_IN_USER_FLAGS_0)
        number = self._received.received(len(packets), is_recoverable=is_recoverable)
        last = events[-1] if events else None
        if is_equal and type(last) is UserMessagesReceived:
            # They have the same shape as those of the last event.
            last.packets += packets
        else:
            events.append(event(number, packets))
        if fields.user_flags_1(packet) & _DIRECT == _DIRECT:
            self.direct_format_session = True
        self.session_active = True
        if is_recoverable:
            if not self._is_ack_hastened:
                self._hasten_ack()
        elif self._ack_send.deadline == NEVER:
            self._start_ack_send()

    def _hasten_ack(self) -> None:
        """Shorten the Session Ack Send Timer for a recoverable message (3.1.5.8.7).

        It is the first one since the last SessionAck.
        """
        self._is_ack_hastened = True
        self._ack_send.start(self._monotonic(), self.recoverable_ack_send_timeout / 1000)

    def _start_ack_send(self) -> None:
        """Start the Session Ack Send Timer (3.1.5.8.2)."""
        self._ack_send.start(self._monotonic(), self.ack_wait_timeout / 2000)

    def _take_session_header(self, header: SessionHeader, events: list[Event]) -> None:
        """Process a SessionHeader (3.1.5.5): mark and return acknowledged entries, check counts."""
        acked = self._sent.acked(header.ack_sequence_number)
        persisted = self._sent.persisted(header.recoverable_msg_ack_seq_number, header.recoverable_msg_ack_flags)
        events.append(SessionAckReceived(acked, persisted))
        if acked or persisted:
            self._progressed()
        self._received.check_counts(header)
        if header.window_size != self.received_window_size:
            self._set_received_window(header.window_size)
        if self._sent.is_unacked:
            self._start_ack_wait()

    def _set_received_window(self, window_size: int) -> None:
        """Set the peer's window.

        A window smaller than the negotiated one recovers over time (MS-MQMQ note 15).
        """
        if window_size >= self._negotiated_window:
            self._window_recovery.stop()
        else:
            self._window_recovery.start(self._monotonic(), WINDOW_RECOVERY_INTERVAL)
        self.received_window_size = window_size
        self._windows_changed()

    def _windows_changed(self) -> None:
        """Update the values that depend on the windows.

        Half a window of received messages is acknowledged without waiting for the timer.
        """
        self._early_ack = max(1, usable_window(self._advertised_window, self.received_window_size) // 2)
        self._usable_window = usable_window(self.window_size, self.received_window_size)

    # The handshake

    def _take_internal(self, packet: bytes, events: list[Event]) -> None:
        if self.is_open:
            acknowledgment = read_session_ack(packet)
            if acknowledgment is not None:
                self._take_session_header(acknowledgment, events)
                return
        kind, internal = handshake.identify_internal(packet)
        state = self._transitions.get((self.state, kind))
        if state is None:
            raise RemoteProtocolError(f"{kind.value}: not expected in state {self.state.value}")
        if kind is PacketKind.ESTABLISH_CONNECTION:
            header = EstablishConnectionHeader.unpack(handshake.body_of(packet))
            if self._admit is not None:
                self._answer_connection(internal, header, self._admit)
            else:
                self._propose_parameters(internal, header)
            self._enter(state)
        else:
            self._take_parameters(handshake.read_parameters(internal, packet))
            self._enter(state)
            events.append(SessionOpened())

    def _answer_connection(
        self,
        internal: InternalHeader,
        request: EstablishConnectionHeader,
        admit: Callable[[EstablishConnectionHeader], bool],
    ) -> None:
        """Answer an EstablishConnection (3.1.5.3.1).

        A refused peer gets an answer too; the error then closes the session after the answer.
        """
        if internal.is_refused:
            raise RemoteProtocolError("InternalHeader.Flags.CS: set in a request")
        self.remote_qm_guid = request.client_guid
        self._established_for_direct_name = request.server_guid == GUID_NULL
        refusal = ""
        if not handshake.is_for(request, self._own_guid):
            refusal = f"EstablishConnectionHeader.ServerGuid: {request.server_guid} is not {self._own_guid}"
        elif not admit(request):
            refusal = f"no further session with queue manager {request.client_guid} is admitted"
        self.out.append(handshake.answer_connection(request, self._own_guid, refused=bool(refusal)))
        if refusal:
            raise RemoteProtocolError(refusal)

    def _propose_parameters(self, internal: InternalHeader, answer: EstablishConnectionHeader) -> None:
        """Check the answer to an EstablishConnection and propose parameters (3.1.5.3.2)."""
        handshake.check_answer(internal, answer, self._own_guid, self.remote_qm_guid)
        self.remote_qm_guid = answer.server_guid
        self.recoverable_ack_send_timeout = handshake.recoverable_ack_send_timeout(
            self._milliseconds(), answer.time_stamp
        )
        self.out.append(
            handshake.connection_parameters(
                ConnectionParametersHeader(self.recoverable_ack_send_timeout, self.ack_wait_timeout, self.window_size)
            )
        )

    def _take_parameters(self, parameters: ConnectionParametersHeader) -> None:
        """Take the peer's parameters (3.1.5.4).

        The acceptor takes the initiator's timeouts and answers with its own window.
        """
        self._negotiated_window = max(parameters.window_size, SMALLEST_WINDOW_SIZE)
        self.received_window_size = self._negotiated_window
        self._windows_changed()
        if self._admit is not None:
            self.ack_wait_timeout = parameters.ack_timeout
            self.recoverable_ack_send_timeout = parameters.recoverable_ack_timeout
            self.out.append(
                handshake.connection_parameters(
                    ConnectionParametersHeader(
                        parameters.recoverable_ack_timeout, parameters.ack_timeout, self.window_size
                    )
                )
            )
        self._initialization.stop()

    def _enter(self, state: SessionState) -> None:
        self.state = state
        self.is_open = state is SessionState.OPEN
        self.is_closed = state is SessionState.CLOSED
        self._stream.user_messages_allowed = (state, PacketKind.USER_MESSAGE) in self._transitions

    def _milliseconds(self) -> int:
        return int(self._monotonic() * 1000)

    # Sending

    def data_to_send(self) -> list[bytes]:
        """Return the packets to write. They are returned once, even after the session is closed."""
        data = self.out
        self.out = []
        if data and self.packet_log is not None and is_enabled():
            self.packet_log.sent(data)
        return data

    @property
    def room(self) -> int:
        """The number of user messages that may be sent now (3.1.7.1)."""
        return self._sent.room(self._usable_window) if self.is_open else 0

    def send(self, packet: bytes, entry: object) -> None:
        """Send a UserMessage, for which there must be room (3.1.7.1.3).

        `entry` is returned in SessionAckReceived.
        """
        self.send_all([packet], [entry])

    def send_all(self, packets: list[bytes], entries: Sequence[object]) -> None:
        """Send UserMessages. There must be room for all of them."""
        if self.room < len(packets):
            raise RuntimeError(
                f"no room for {len(packets)} messages: {self.state.value}, {self._sent.unacked_count} unacknowledged"
            )
        received = self._received
        if received.allowed > received.acked and self._ack_send.has_elapsed(self._monotonic(), _PIGGYBACK_PART):
            self.out.append(self._attach(packets[0], entries[0]))
            packets, entries = packets[1:], entries[1:]
        self._count_sent(packets, entries)
        self.out += packets
        self.session_active = True
        if self._ack_wait.deadline == NEVER:
            self._start_ack_wait()
        if self._progress.deadline == NEVER:
            self._progressed()

    def _count_sent(self, packets: Sequence[bytes], entries: Sequence[object]) -> None:
        is_recoverable = [fields.user_flags_0(packet) & fields.DM_IN_USER_FLAGS_0 for packet in packets]
        self._sent.sent(entries, entries if all(is_recoverable) else list(compress(entries, is_recoverable)))

    def _attach(self, packet: bytes, entry: object) -> bytes:
        """Return a packet with a SessionHeader attached, whose counts include it (3.1.7.11)."""
        if is_acknowledgment(packet):
            self._acknowledge()
            self._count_sent([packet], [entry])
            return packet
        while self._received.recoverable_allowed - self._received.recoverable_acked > MAX_RECOVERABLE_ACKS:
            self._append_session_ack()
        self._count_sent([packet], [entry])
        header = self._received.session_header(self._sent, self.window_size)
        self._acknowledged(self.window_size)
        return attach_session_header(packet, header)

    def _start_ack_wait(self) -> None:
        self._ack_wait.start(self._monotonic(), self._ack_wait_interval)

    @property
    def _ack_wait_interval(self) -> float:
        """Seconds of the Session Ack Wait Timer (3.1.2.4)."""
        multiple = self._settings.direct_ack_wait_multiplier if self._established_for_direct_name else 1
        return multiple * self.ack_wait_timeout / 1000

    def _progressed(self) -> None:
        """Restart the progress timer: a message was acknowledged, or the first one was sent."""
        if self._sent.is_waiting:
            self._last_progress = self._monotonic()
            self._progress.start(self._last_progress, self._ack_wait_interval)
        else:
            self._progress.stop()

    # Acknowledging

    def allow_acknowledgment(self, upto: int) -> None:
        """Allow the acknowledgment of messages up to a number.

        They are processed and, if recoverable, durable. They are acknowledged at once when half a
        window or all bits of a SessionHeader wait for it (3.1.1.6.1, 3.1.5.8.7), so that a sender
        with a full window need not wait for a timer.
        """
        received = self._received
        if not self.is_open:
            return
        received.allow(upto)
        if (
            received.allowed - received.acked >= self._early_ack
            or received.recoverable_allowed - received.recoverable_acked >= MAX_RECOVERABLE_ACKS
        ):
            self._acknowledge()

    def pause(self) -> None:
        """Tell the peer to send one message at a time, and acknowledge what is allowed (3.1.7.13).

        Stopping the timer loses nothing: with a window of one, each message is acknowledged as soon
        as it may be.
        """
        if self.state is not SessionState.OPEN:
            return
        self._acknowledge(SMALLEST_WINDOW_SIZE)
        self._ack_send.stop()
        self._is_ack_hastened = False
        self.session_active = False

    def _acknowledge(self, window_size: int = 0) -> None:
        """Send as many SessionAcks as necessary (3.1.6.4), at least one."""
        window_size = window_size or self.window_size
        self._append_session_ack(window_size)
        while self._received.has_more:
            self._append_session_ack(window_size)
        self._acknowledged(window_size)

    def _append_session_ack(self, window_size: int = 0) -> None:
        header = self._received.session_header(self._sent, window_size or self.window_size)
        self.out.append(pack_session_ack(header))

    def _acknowledged(self, window_size: int) -> None:
        """Restart the Session Ack Send Timer, because a SessionHeader was sent.

        It runs for messages that were received and may not be acknowledged yet.
        """
        if window_size != self._advertised_window:
            self._advertised_window = window_size
            self._windows_changed()
        self._is_ack_hastened = self._received.recoverable_count > self._received.recoverable_acked
        if self._is_ack_hastened:
            self._hasten_ack()
        else:
            self._start_ack_send()

    # Time

    def next_deadline(self) -> float:
        """Return when the first timer expires, on the monotonic clock; NEVER if none runs."""
        return min(
            self._initialization.deadline,
            self._cleanup.deadline,
            self._ack_wait.deadline,
            self._ack_send.deadline,
            self._window_recovery.deadline,
            self._progress.deadline,
        )

    def on_timer(self) -> list[Event]:
        """Handle the timers that have expired (3.1.6). Calling it early does no harm."""
        events = self._run_timers(self._monotonic())
        self.deadline.set(self.next_deadline())
        return events

    def _run_timers(self, now: float) -> list[Event]:
        events: list[Event] = []
        if now >= self._initialization.deadline:
            self._close(f"the handshake was not done in time, state {self.state.value}", events, is_error=True)
        elif now >= self._ack_wait.deadline and not self._is_peer_alive():
            reason = f"{self._sent.unacked_count} messages were not acknowledged in {self._ack_wait.duration:g} s"
            self._close(reason, events, is_error=True)
        elif now >= self._cleanup.deadline and not self.session_active:
            self._close(f"idle for {self._cleanup.duration:g} s", events, is_error=False)
        if self.state is SessionState.CLOSED:
            return events
        if now >= self._cleanup.deadline:
            self.session_active = False
            self._cleanup.start(now, self._cleanup_interval)
        if now >= self._progress.deadline:
            events.append(NothingAcknowledged(now - self._last_progress))
            self._progress.start(now, self._ack_wait_interval)
        if now >= self._ack_send.deadline:
            self._ack_send.stop()
            self._is_ack_hastened = False
            if self._received.count > self._received.acked:
                self._acknowledge()
        if now >= self._window_recovery.deadline:
            self.received_window_size = recovered_window(self.received_window_size, self._negotiated_window)
            self._windows_changed()
            self._window_recovery.stop()
            if self.received_window_size < self._negotiated_window:
                self._window_recovery.start(now, WINDOW_RECOVERY_INTERVAL)
        return events

    def _is_peer_alive(self) -> bool:
        """Return whether the peer is alive (3.1.6.3).

        Nothing awaits acknowledgment, or something arrived since the last time.
        """
        if not self._sent.unacked_count:
            self.received_ack = False
            self._ack_wait.stop()
            return True
        if not self.received_ack:
            return False
        self.received_ack = False
        self._start_ack_wait()
        return True

    # The end

    def end_of_stream(self) -> list[Event]:
        """Handle the end of the connection (3.1.7.3).

        Peers close a session in this way. It is an error only if the peer still owed something.
        """
        events: list[Event] = []
        if self.state is not SessionState.CLOSED:
            owed = [
                text
                for text, is_owed in (
                    (f"state {self.state.value}", self.state is not SessionState.OPEN),
                    ("inside a packet", self._stream.is_cut),
                    (f"{self._sent.unacked_count} messages unacknowledged", self._sent.unacked_count > 0),
                )
                if is_owed
            ]
            self._close(", ".join(["the connection was closed", *owed]), events, is_error=bool(owed))
        return events

    def close(self, reason: str, *, is_error: bool = False) -> list[Event]:
        """End the session from our side (3.1.5.9).

        No packet is sent for this; the transport is just closed.
        """
        events: list[Event] = []
        if self.state is not SessionState.CLOSED:
            self._close(reason, events, is_error=is_error)
        return events

    def _close(
        self,
        reason: str,
        events: list[Event],
        *,
        is_error: bool,
        is_refused: bool = False,
        is_malformed: bool = False,
    ) -> None:
        self._enter(SessionState.CLOSED)
        self._stream.end()
        for timer in self._timers:
            timer.stop()
        self.deadline.clear()
        events.append(SessionClosed(reason, is_error, is_refused, is_malformed))

    def __repr__(self) -> str:
        return f"<Session {self.state.value} with {self.remote_qm_guid}>"
