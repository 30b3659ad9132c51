"""DirectoryObject and its subclasses (MS-MQDMPR 3.1.1, 3.1.1.1 to 3.1.1.9, 3.1.1.15).

Field metadata states how long a value lives: `directory` and `persistent` values survive a restart;
a field without either mark is volatile. Other layers read the marks with `attributes_of(cls,
mark)`, so that each is written only once, at its field. An attribute of a queue that programs may
set or read is also listed in `engine/queue_properties.py` (its values) and
`host/queue_documents.py` (other processes).
"""

# `directory` and `persistent` make fields, typed as dataclasses.field is.
# ruff: noqa: RUF009, ANN401

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Imported as a module, because each of the two has fields with classes of the other.
from lanner.model import live
from lanner.model.enums import (
    INFINITE,
    ConnectionStatus,
    DirectoryServerType,
    OperatingSystemType,
    OutgoingState,
    QueueManagerState,
    QueuePrivacyLevel,
    QueueScope,
    QueueType,
)
from lanner.model.guid_table import GuidTable

GUID_NULL = uuid.UUID(int=0)
# A separate name, because it is read for each message and enumeration members are slow to look up.
_SYSTEM = QueueType.SYSTEM

# In bytes. Every quota is in this unit (MS-MQDMPR 3.1.1.1, 3.1.1.2).
KILOBYTE = 1024
# DECISIONS (data model): kilobytes; 8 GiB unless configured.
DEFAULT_QUEUE_MANAGER_QUOTA = 0x0080_0000
# MS-MQDMPR 3.1.1.1: seconds, set at provisioning.
INITIALIZATION_RETRY_TIMER_DURATION = 120
# MS-MQDMPR 3.1.1.8.
ROUTING_LINK_COST = range(1, 1_000_000)


def directory(default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Define a field that survives restarts and can be published in the directory."""
    return _marked("directory", default, factory)


def persistent(default: Any = dataclasses.MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Define a field that survives restarts and is never published."""
    return _marked("persistent", default, factory)


def _marked(mark: str, default: Any, factory: Callable[[], Any] | None) -> Any:
    if factory is not None:
        return field(default_factory=factory, metadata={"mark": mark})
    return field(default=default, metadata={"mark": mark})


def attributes_of(cls: type, *marks: str) -> list[str]:
    """Return the names of the fields with one of the marks, in the order of the document."""
    return [f.name for f in dataclasses.fields(cls) if f.metadata.get("mark") in marks]


@dataclass(slots=True, eq=False)
class DirectoryObject:
    """MS-MQDMPR 3.1.1. The identifier never changes during the object's life."""

    identifier: uuid.UUID = directory(factory=uuid.uuid4)


@dataclass(slots=True, eq=False)
class Queue(DirectoryObject):
    """MS-MQDMPR 3.1.1.2.

    The directory marks apply to a public queue; for other queues they mean persistent.
    """

    label: str = directory("")
    create_time: int = directory(0)  # seconds since 1970 UTC
    modify_time: int = directory(0)  # seconds since 1970 UTC
    type: uuid.UUID = directory(GUID_NULL)
    pathname: str = directory("")
    qualified_pathname: str = directory("")
    private_queue_number: int = directory(0)
    journaling: bool = directory(default=False)
    quota: int = directory(INFINITE)  # kilobytes
    journal_quota: int = directory(INFINITE)  # kilobytes
    authentication: bool = directory(default=False)
    privacy_level: QueuePrivacyLevel = directory(QueuePrivacyLevel.OPTIONAL)
    transactional: bool = directory(default=False)
    multicast_address: str | None = directory(None)
    security: bytes | None = directory(None)  # SECURITY_DESCRIPTOR, self-relative
    base_priority: int = directory(0)
    full_path: str = directory("")
    directory_path: str = directory("")
    queue_type: QueueType = persistent(QueueType.PUBLIC)
    # Not in the specification: the u32 under which the store keeps this queue's messages.
    number: int = persistent(0)
    # Not in the specification: the number of the queue to which this journal or subqueue belongs,
    # or 0.
    parent: int = persistent(0)
    # Not in the specification: the identifiers that a public queue had before its computer joined
    # or left a domain. Names that contain them still denote the queue.
    former_identifiers: list[uuid.UUID] = persistent(factory=list)
    # Not in the specification: the subqueue was created by an open through MS-MQRR. It is deleted
    # when it is empty and no handle is open (DECISIONS).
    ends_when_unused: bool = persistent(default=False)

    scope: QueueScope = QueueScope.ENTERPRISE
    total_bytes: int = 0
    message_count: int = 0
    # Not in the specification: messages that left the queue since the start, for any reason.
    removed_count: int = 0
    # Not in the specification: a lower bound of the lookup ids of Available messages, where a
    # search from the head begins.
    head_hint: int = -1
    # Not in the specification: the queue was deleted, and descriptors that still refer to it have
    # lost their QueueReference.
    is_deleted: bool = False
    queue_manager: QueueManager | None = None
    journal_queue: Queue | None = None
    subqueues: dict[str, Queue] = field(default_factory=dict)
    # Keyed by sender and the format name that it uses. A pair has one sequence at a time.
    incoming_transactional_transfer_info: dict[tuple[uuid.UUID, str], live.IncomingTransactionalTransferInfo] = field(
        default_factory=dict
    )
    # MessagePositionList: the messages are in the store, in key order. Only positions in use
    # (locked, purge pending, under a cursor) are objects. Keyed by lookup id.
    held_positions: dict[int, live.MessagePosition] = field(default_factory=dict)
    # Keyed by handle, in the order in which they were opened.
    open_queue_descriptors: dict[int, live.OpenQueueDescriptor] = field(default_factory=dict)
    # Not in the specification: held positions that a peek may still see (AllowPeekWhenLocked),
    # keyed by lookup id.
    peekable_locks: dict[int, live.MessagePosition] = field(default_factory=dict)
    # Not in the specification: the WaitingMessageReadOperationCollections of all descriptors in
    # one, in order of arrival.
    waiting_reads: dict[live.WaitingMessageReadOperation, None] = field(default_factory=dict)
    # Not in the specification: positions that became Available while a peeker delayed the readers
    # (3.1.7.2.2), each with the number of the last read that could be waiting for it.
    unserved_positions: list[tuple[live.MessagePosition, int]] = field(default_factory=list)
    waiting_for_release: bool = False

    @property
    def is_system(self) -> bool:
        """Whether it is a journal, dead-letter or internal queue (3.1.2.4).

        Messages there have no receive expiry and no journaling.
        """
        return self.queue_type is _SYSTEM

    @property
    def active(self) -> bool:
        """MS-MQDMPR 3.1.1.2 Active, which is computed and never stored."""
        return bool(self.open_queue_descriptors)


@dataclass(slots=True, eq=False)
class ConnectionHistoryEntry:
    """MS-MQDMPR 3.1.1.3 ConnectionHistory."""

    status: ConnectionStatus
    connection_history_time: int  # seconds since 1970 UTC
    error: int = 0  # HRESULT or 0
    address_list: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class OutgoingQueue(Queue):
    """MS-MQDMPR 3.1.1.3."""

    destination_format_name: str = persistent("")
    multicast: bool = persistent(default=False)
    # The document does not mark it as persistent, but an operator's pause must survive a restart.
    state: OutgoingState = persistent(OutgoingState.INACTIVE)
    # Not in the specification: it was created for another computer's message or acknowledgment.
    is_for_others: bool = persistent(default=False)
    # Not in the specification: the SID of the user for whose message it was created; empty for an
    # administrator or another computer.
    maker: str = persistent("")

    next_hops: list[str] | None = None
    outgoing_transfer_info: live.OutgoingTransferInfo | None = None
    connection_history: list[ConnectionHistoryEntry] = field(default_factory=list)

    @property
    def active(self) -> bool:
        """MS-MQDMPR 3.1.1.2 Active, also while a message awaits transfer."""
        return bool(self.open_queue_descriptors) or self.message_count > 0


@dataclass(slots=True, eq=False)
class QueueManager(DirectoryObject):
    """MS-MQDMPR 3.1.1.1."""

    computer_name: str = directory("")
    queue_manager_version: str = directory("")
    operating_system_version: str = directory("")
    operating_system_type: OperatingSystemType = directory(OperatingSystemType.FOREIGN)
    qualified_computer_name: str = directory("")
    create_time: int = directory(0)  # seconds since 1970 UTC
    modify_time: int = directory(0)  # seconds since 1970 UTC
    queue_manager_quota: int = directory(DEFAULT_QUEUE_MANAGER_QUOTA)  # kilobytes
    journal_quota: int = directory(INFINITE)  # kilobytes
    foreign_system: bool = directory(default=False)
    full_path: str = directory("")
    site_identifier_list: list[uuid.UUID] = directory(factory=list)
    connected_network_identifier_list: list[uuid.UUID] = directory(factory=list)
    out_routing_server_identifier_list: list[uuid.UUID] = directory(factory=list)
    in_routing_server_identifier_list: list[uuid.UUID] = directory(factory=list)
    directory_server: bool = directory(default=False)
    remote_access_server: bool = directory(default=False)
    routing_server: bool = directory(default=False)
    supporting_server: bool = directory(default=False)
    directory_server_type: DirectoryServerType | None = directory(None)
    public_encryption_key_list: bytes = directory(b"")  # MQDSPUBLICKEYS
    public_signing_key_list: bytes = directory(b"")  # MQDSPUBLICKEYS
    security: bytes | None = directory(None)
    clustered: bool = directory(default=False)

    machine_domain_id: uuid.UUID = GUID_NULL
    last_domain: str = persistent("")
    directory_server_list: list[str] = persistent(factory=list)
    directory_integrated: bool = persistent(default=False)
    srmp_http_support: bool = persistent(default=False)
    srmp_pgm_support: bool = persistent(default=False)
    hardened_security: bool = persistent(default=False)
    initialization_retry_timer_duration: int = persistent(INITIALIZATION_RETRY_TIMER_DURATION)
    # Not in the specification: the identifiers that it had before it joined a domain. Names that
    # contain them still denote its queues.
    former_identifiers: list[uuid.UUID] = persistent(factory=list)

    directory_offline: bool = False
    throttled: bool = False
    connection_active: bool = False
    queue_manager_state: QueueManagerState = QueueManagerState.STOPPED
    system_deadletter_queue: Queue | None = None
    system_transactional_deadletter_queue: Queue | None = None
    system_journal_queue: Queue | None = None
    order_acknowledgment_queue: Queue | None = None
    change_notification_queue: Queue | None = None
    # Not in the specification: the AwaitingFinalACKTable of MS-MQQB 3.1.1.3.1.
    awaiting_final_ack_queue: Queue | None = None
    # Keyed by store number, and including outgoing queues, journals and subqueues.
    queue_collection: dict[int, Queue] = field(default_factory=dict)
    site_collection: list[Site] = field(default_factory=list)
    connected_network_collection: list[ConnectedNetwork] = field(default_factory=list)
    transaction_collection: GuidTable[live.Transaction] = field(default_factory=GuidTable)
    out_routing_server_collection: list[QueueManager] = field(default_factory=list)
    in_routing_server_collection: list[QueueManager] = field(default_factory=list)
    enterprise_reference: Enterprise | None = None
    dispatch_collection: list[live.DispatchEntry] = field(default_factory=list)
    # Keyed by the user's SID in text form: at most one certificate per user.
    internal_certificate_collection: dict[str, InternalCertificate] = field(default_factory=dict)
    total_bytes: int = 0


@dataclass(slots=True, eq=False)
class Enterprise(DirectoryObject):
    """MS-MQDMPR 3.1.1.6."""

    name: str = directory("")
    weakened_security: bool = directory(default=False)
    non_ldap_capable_queue_manager_notification: bool = directory(default=False)
    default_time_to_live: int = directory(345_600)  # seconds
    old_directory: bool = directory(default=False)
    security: bytes | None = directory(None)


@dataclass(slots=True, eq=False)
class Site(DirectoryObject):
    """MS-MQDMPR 3.1.1.7."""

    name: str = directory("")
    primary_site_controller: str = directory("")
    intra_site_replication_interval: int = directory(0)  # seconds
    inter_site_replication_interval: int = directory(0)  # seconds
    full_path: str = directory("")
    foreign_site: bool = directory(default=False)
    public_signing_key_list: bytes = directory(b"")
    migrated_from_msmq10: bool = directory(default=False)
    security: bytes | None = directory(None)

    site_gate_collection: list[QueueManager] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class RoutingLink(DirectoryObject):
    """MS-MQDMPR 3.1.1.8."""

    description: str = directory("")
    full_path: str = directory("")
    actual_cost: int = directory(1)
    site1_identifier: uuid.UUID = directory(GUID_NULL)
    site2_identifier: uuid.UUID = directory(GUID_NULL)
    site_gate_identifier_list: list[uuid.UUID] = directory(factory=list)

    site1_reference: Site | None = None
    site2_reference: Site | None = None
    site_gate_collection: list[QueueManager] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.actual_cost not in ROUTING_LINK_COST:
            raise ValueError(f"routing link cost {self.actual_cost}: 1 to 999999 expected")


@dataclass(slots=True, eq=False)
class ConnectedNetwork(DirectoryObject):
    """MS-MQDMPR 3.1.1.9."""

    name: str = directory("")
    security: bytes | None = directory(None)


@dataclass(slots=True, eq=False)
class User(DirectoryObject):
    """MS-MQDMPR 3.1.1.15."""

    security_identifier: bytes = directory(b"")  # SID
    certificate_digest_list: list[bytes] = directory(factory=list)  # MD5, 16 bytes each
    certificates: bytes = directory(b"")  # MQUSERSIGNCERTS


@dataclass(slots=True, eq=False)
class InternalCertificate:
    """MS-MQDMPR 3.1.1.19."""

    certificate: bytes  # X.509, DER
    user: User
