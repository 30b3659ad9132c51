"""What transfer can be told (MS-MQQB 3.1.1.3, 3.1.2, 3.1.3; the registry values of its product notes). Times are seconds."""

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
    """Defaults are the document's; the name in parentheses is the one administrators know from the registry."""

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
    # 2.1.2 (EnablePingService, MsmqIpPingPort), and whether to ask before connecting, as Windows
    # did until 2003.
    answers_pings: bool = False
    ping_port: int = PING_PORT
    pings_before_connecting: bool = False
    # By host name, looked at before the hosts file and DNS; an address alone is the short form of a
    # Peer.
    peers: Mapping[str, Peer | str] = field(default_factory=dict)
    # Ours: from which addresses the identifier of a queue manager is believed (`identities`).
    peer_policy: PeerPolicy = PeerPolicy.PINNED
    # Ours: how far the time of a sequence, which is of the sender's clock, may be ahead; inf: any.
    max_clock_skew: float = 86_400.0
    # Not in the specification: the same sessions over mutual TLS, with PEM files. Without a
    # certificate and its key it is off. Certificates of peers are accepted that these authorities
    # have issued, and those of the peers table.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_authorities: Path | None = None
    tls_port: int = TLS_PORT
    # Ours, against peers who would hold what others need: connections, sessions of one address,
    # connections whose handshake is not done; bytes of packets that have come in part, in total and
    # of one address; bytes of a session that wait to be processed or to be taken by the peer, and
    # of all sessions; pings that are answered in a second, of all and of one address.
    max_connections: int = 4096
    max_sessions_per_peer: int = 64
    max_half_open: int = 1024
    max_unfinished_bytes: int = 128 << 20
    max_unfinished_bytes_per_peer: int = 16 << 20
    max_waiting_bytes: int = 8 << 20
    max_waiting_bytes_in_total: int = 256 << 20
    max_pings: int = 1000
    max_pings_per_peer: int = 20
    # Ours, against the same: outgoing queues that come into being for what others send, which name
    # any destination.
    max_queues_for_others: int = 1000
    max_queues_per_peer: int = 100
    # Ours: outgoing queues that a user who is no administrator may have here.
    max_queues_per_user: int = 1000
    # Ours: transactional messages that wait for their OrderAck, per queue; and how many a receiver
    # takes before it sends one early.
    max_unacked_sequence: int = 16_384
    early_order_ack: int = 1024

    def __post_init__(self) -> None:
        """A setting that no session could work with is refused here, by name."""
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
        """3.1.3.1 ResendTimerTable: seconds to wait for an OrderAck, the longer the more often it did not come."""
        return (
            *(self.resend_timeouts_short,) * 3,
            *(self.resend_timeouts_medium,) * 3,
            *(self.resend_timeouts_long,) * 3,
            self.resend_timeouts_final,
        )
