"""Settings of transfer. Times are in seconds.

MS-MQQB 3.1.1.3, 3.1.2 and 3.1.3, and the registry values of its product notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lanner.transfer.peers import Peer, PeerPolicy
from lanner.wire.session_header import DEFAULT_WINDOW_SIZE

TRANSFER_PORT = 1801
TLS_PORT = 1802
PING_PORT = 3527


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """The settings. Defaults are the document's.

    The name in parentheses is the registry value that administrators know.
    """

    port: int = TRANSFER_PORT
    # 3.1.3.2 WindowSize (MaxUnackedPacket).
    window_size: int = DEFAULT_WINDOW_SIZE
    # 3.1.2.1, 3.1.2.3, 3.1.3.2: added for a slow network (RoundTripDelay).
    round_trip_delay: float = 0.0
    # 3.1.3.2 AckWaitTimeout, without the delay.
    ack_wait_timeout: float = 20.0
    # 3.1.2.4: the Session Ack Wait Timer's multiple of it for direct format names
    # (QosCleanupIntervalMultiplier).
    direct_ack_wait_multiplier: int = 2
    # 3.1.2.1 Session Initialization Timer, without twice the delay.
    session_initialization_timeout: float = 60.0
    # 3.1.2.2 Session Cleanup Timer (CleanupInterval); None: 300, or 120 on a routing server.
    cleanup_interval: float | None = None
    # 3.1.2.3 Session Retry Connect Timer, without the delay (TryConnectInterval).
    try_connect_interval: float = 5.0
    # 3.1.3.2 OrderAckTimeout and MaximumOrderAckDelay (SeqMaxAckDelay).
    order_ack_timeout: float = 0.5
    maximum_order_ack_delay: float = 10.0
    # 3.1.1.3 ResendTimeouts (SeqResend13Time, SeqResend46Time, SeqResend79Time, SeqResend10Time).
    resend_timeouts_short: float = 30.0
    resend_timeouts_medium: float = 300.0
    resend_timeouts_long: float = 1800.0
    resend_timeouts_final: float = 21_600.0
    # 3.1.1.3 MessageIDHistoryTable (RemoveDuplicateSize, RemoveDuplicateCleanup).
    message_id_history_size: int = 10_000
    message_id_history_cleanup: float = 1800.0
    # 2.2.1 (MaxInSessions).
    max_in_sessions: int = 0xFFFF_FFFF
    # 2.1.2 (EnablePingService, MsmqIpPingPort), and whether to ping before connecting, as Windows
    # did until 2003.
    answers_pings: bool = False
    ping_port: int = PING_PORT
    pings_before_connecting: bool = False
    # By host name, consulted before the hosts file and DNS. An address alone is the short form of a
    # Peer.
    peers: Mapping[str, Peer | str] = field(default_factory=dict)
    # Not in the specification: the addresses from which a queue manager identifier is believed
    # (`identities`).
    peer_policy: PeerPolicy = PeerPolicy.PINNED
    # Not in the specification: how far the time in a sequence, which is the sender's clock, may be
    # ahead; inf: any.
    max_clock_skew: float = 86_400.0
    # Not in the specification: the same sessions over mutual TLS, with PEM files. TLS is off
    # without a certificate and its key. A peer's certificate is accepted if one of these
    # authorities has issued it, or if it is in the peers table.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_authorities: Path | None = None
    tls_port: int = TLS_PORT
    # Not in the specification: limits on the resources that peers can take. Waiting bytes are those
    # to be processed here or to be read by the peer, of one session or of all sessions. Pings are
    # those answered in a second.
    max_connections: int = 4096
    max_sessions_per_peer: int = 64
    max_half_open: int = 1024
    max_unfinished_bytes: int = 128 << 20
    max_unfinished_bytes_per_peer: int = 16 << 20
    max_waiting_bytes: int = 8 << 20
    max_waiting_bytes_in_total: int = 256 << 20
    max_pings: int = 1000
    max_pings_per_peer: int = 20
    # Not in the specification: outgoing queues created to forward messages of others. Those may
    # name any destination.
    max_queues_for_others: int = 1000
    max_queues_per_peer: int = 100
    # Not in the specification: outgoing queues that a user who is not an administrator may cause
    # here.
    max_queues_per_user: int = 1000
    # Not in the specification: transactional messages of a queue that may wait for their OrderAck,
    # and the number that a receiver accepts before it sends one early.
    max_unacked_sequence: int = 16_384
    early_order_ack: int = 1024

    def __post_init__(self) -> None:
        """Raise an error that names a setting with which no session could work."""
        ranges = (
            ("window_size", 1, 0xFFFF),
            ("ack_wait_timeout", 20.0, 120.0),
            ("max_in_sessions", 0, 0xFFFF_FFFF),
            ("message_id_history_size", 0, 1 << 32),
            ("port", 0, 0xFFFF),
            ("ping_port", 0, 0xFFFF),
            ("tls_port", 0, 0xFFFF),
        )
        for name, lowest, highest in ranges:
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise ValueError(f"{name} = {value}: {lowest} to {highest}")

    @property
    def resend_timer_table(self) -> tuple[float, ...]:
        """ResendTimerTable (3.1.3.1): seconds to wait for an OrderAck.

        Each timeout moves on to the next entry.
        """
        return (
            *(self.resend_timeouts_short,) * 3,
            *(self.resend_timeouts_medium,) * 3,
            *(self.resend_timeouts_long,) * 3,
            self.resend_timeouts_final,
        )
