"""A route: how one outgoing queue reaches its next hop, and what an operator sees of it.

Implements MS-MQQB 3.1.1.3.1 NextHopCollection and NextHopIndexer, and 3.1.2.3 Session Retry Connect
Timer; MS-MQDMPR 3.1.1.3 State, NextHops and ConnectionHistory.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from lanner.model.directory_objects import ConnectionHistoryEntry
from lanner.model.enums import ConnectionStatus, OutgoingState
from lanner.transfer.addresses import format_address
from lanner.transfer.deadlines import NEVER, Deadline
from lanner.transfer.route_stages import TRANSITIONS, Stage, Step
from lanner.transfer.tls_errors import TlsError

if TYPE_CHECKING:
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.transfer.addresses import NextHop
    from lanner.transfer.link import Link
    from lanner.transfer.outgoing_message_table import OutgoingMessageTable

# Not in the specification: newest entries of ConnectionHistory that are kept.
MAX_CONNECTION_HISTORY = 64

# Changes of a connection do not overwrite an operator's pause and hardened security.
FIXED_STATES = frozenset({OutgoingState.ON_HOLD, OutgoingState.LOCKED})

_HRESULT_FROM_WIN32 = 0x8007_0000
E_FAIL = 0x8000_4005
# Winsock's numbers for POSIX errors: tools that read ConnectionHistory expect these.
_WINSOCK = {
    errno.EACCES: 10013,
    errno.EMFILE: 10024,
    errno.EADDRINUSE: 10048,
    errno.EADDRNOTAVAIL: 10049,
    errno.ENETDOWN: 10050,
    errno.ENETUNREACH: 10051,
    errno.ECONNABORTED: 10053,
    errno.ECONNRESET: 10054,
    errno.ETIMEDOUT: 10060,
    errno.ECONNREFUSED: 10061,
    errno.EHOSTDOWN: 10064,
    errno.EHOSTUNREACH: 10065,
}
_HOST_NOT_FOUND = 11001
# The step of connecting at which an error of the operating system occurs; any other error is of the
# connect itself.
_STATUSES = {
    errno.EMFILE: ConnectionStatus.SOCKET_CREATE_FAILURE,
    errno.ENFILE: ConnectionStatus.SOCKET_CREATE_FAILURE,
    errno.EADDRNOTAVAIL: ConnectionStatus.SOCKET_BIND_FAILURE,
    errno.EADDRINUSE: ConnectionStatus.SOCKET_BIND_FAILURE,
    errno.ENOMEM: ConnectionStatus.LOW_RESOURCE,
    errno.ENOBUFS: ConnectionStatus.LOW_RESOURCE,
}


class Route:
    """The route of one outgoing queue to other computers. `route_stages` has its stages."""

    def __init__(self, queue: OutgoingQueue, table: OutgoingMessageTable) -> None:
        self.queue = queue
        self.table = table
        self.stage = Stage.IDLE
        self.link: Link | None = None
        # NextHopCollection and NextHopIndexer.
        self.next_hops: list[NextHop] = []
        self.next_hop_index = 0
        # The last attempt to connect to its next hop failed.
        self.cannot_connect = False
        # Consecutive lookups in which the directory did not know the destination.
        self.unknown_count = 0
        # When the Session Retry Connect Timer expires; None if it does not run.
        self.retry_due: float | None = None
        # For that timer and the table's timers. `Routes.watch` sets it.
        self.deadline = Deadline()
        # The text of the last error, for an operator who asks why nothing is sent.
        self.problem = ""
        # The text that explains why sent transactional messages are not acknowledged.
        self.sequence_problem = ""
        # The session whose peer is recorded as a recipient of transactional messages.
        self.noted_link: Link | None = None
        # Number of the current attempt. Results of earlier attempts are ignored.
        self.attempt = 0

    @property
    def is_sending(self) -> bool:
        """Whether messages of this queue may be sent now."""
        return self.queue.state is OutgoingState.CONNECTED

    @property
    def next_hop(self) -> NextHop:
        return self.next_hops[self.next_hop_index]

    @property
    def has_another_hop(self) -> bool:
        return self.next_hop_index + 1 < len(self.next_hops)

    @property
    def shown_problem(self) -> str:
        """The problem that an operator is shown."""
        return self.problem or self.sequence_problem

    def sequence_timed_out(self) -> None:
        """Set the problem that an operator is shown, unless more is known already.

        Called when the Transactional Ack Wait Timer has expired.
        """
        sequence = self.table.tx_outgoing_sequence
        count = len(sequence.unacked)
        if not self.sequence_problem and count and self.link is not None:
            self.sequence_problem = (
                f"{count} transactional message{'s' if count != 1 else ''} sent and not acknowledged in "
                f"{sequence.waited:.0f} s: the receiver at {self.link.remote_address} does not take them, or its "
                f"acknowledgments do not arrive; look at the log there"
            )

    def enter(self, step: Step, retry_due: float | None = None) -> None:
        """Move to the stage to which a step leads.

        `retry_due` is for WAIT: only in its stage does the retry timer run.
        """
        stage = TRANSITIONS.get((self.stage, step))
        if stage is None:
            raise RuntimeError(f"{self.queue.pathname}: no step {step.name} in stage {self.stage.name}")
        self.stage = stage
        self.retry_due = retry_due

    def next_deadline(self) -> float:
        """Return when the first of the route's timers expires; NEVER if none runs.

        They are the Session Retry Connect Timer and the Transactional Ack Wait Timer.
        """
        resend = self.table.next_deadline()
        return min(NEVER if resend is None else resend, NEVER if self.retry_due is None else self.retry_due)

    def set_state(self, state: OutgoingState) -> None:
        if self.queue.state not in FIXED_STATES:
            self.queue.state = state

    def set_next_hops(self, next_hops: list[NextHop]) -> None:
        """Set the next hops (QQB-3.1.5.4.2-2).

        They are candidates while connecting, and only the connected one afterwards.
        """
        self.next_hops = next_hops
        self.next_hop_index = 0
        self.show_next_hops(next_hops)

    def show_next_hops(self, next_hops: list[NextHop]) -> None:
        self.queue.next_hops = [format_address(hop.address) for hop in next_hops]

    def record(self, status: ConnectionStatus, now: float, error: int = 0, problem: str = "") -> None:
        """Append to ConnectionHistory."""
        address = [format_address(self.next_hop.address)] if self.next_hops else []
        history = self.queue.connection_history
        history.append(ConnectionHistoryEntry(status, int(now), error, address))
        del history[:-MAX_CONNECTION_HISTORY]
        # During another attempt the last problem remains the one to show.
        if problem or status is ConnectionStatus.ESTABLISHED:
            self.problem = problem

    def record_error(self, error: OSError, now: float, *, what: str) -> None:
        """Record an error of the operating system."""
        if isinstance(error, socket.gaierror):
            status, code = ConnectionStatus.DNS_FAILURE, _HOST_NOT_FOUND
        elif isinstance(error, TlsError):
            status, code = ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, 0
        else:
            number = error.errno or 0
            status = _STATUSES.get(number, ConnectionStatus.SOCKET_CONNECT_FAILURE)
            code = _WINSOCK.get(number, 0)
        text = error.strerror or str(error) or type(error).__name__
        self.record(status, now, _HRESULT_FROM_WIN32 | code if code else E_FAIL, f"{what}: {text}")
