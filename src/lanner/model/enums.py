"""Enumerations of the data model (MS-MQDMPR 3.1.1), with their numbers on the wire (MS-MQMQ).

Members have the names of the documents, in capitals. An enumeration whose values occur in packets
or properties uses the numbers there. The numbers of others are only for storage.
"""

from __future__ import annotations

import enum
from typing import Final

# MS-MQMQ: "no limit" in every 32-bit time and quota.
INFINITE = 0xFFFF_FFFF


class OperatingSystemType(enum.IntEnum):
    """MS-MQDMPR 3.1.1.1; numbers of MS-MQMQ 2.3.2.19."""

    OTHER = 0x000
    FOREIGN = 0x100
    WIN95 = 0x200
    WIN_CLIENT = 0x300
    WIN_SERVER = 0x400
    WIN_ENT = 0x500


class QueueManagerState(enum.Enum):
    """MS-MQDMPR 3.1.1.1: the state of the queue manager as a whole."""

    STOPPED = "Stopped"
    INITIALIZING = "Initializing"
    READY = "Ready"
    STOPPING = "Stopping"


class DirectoryServerType(enum.Enum):
    """MS-MQDMPR 3.1.1.1; meaningful only if DirectoryServer is True."""

    STANDALONE = "Standalone"
    BACKUP_SITE_CONTROLLER = "BackupSiteController"
    PRIMARY_SITE_CONTROLLER = "PrimarySiteController"
    PRIMARY_ENTERPRISE_CONTROLLER = "PrimaryEnterpriseController"


class QueueType(enum.Enum):
    """MS-MQDMPR 3.1.1.2. An outgoing queue is identified by its class, not by this value."""

    PRIVATE = "Private"
    PUBLIC = "Public"
    SYSTEM = "System"
    CONNECTOR = "Connector"


class QueuePrivacyLevel(enum.IntEnum):
    """MS-MQDMPR 3.1.1.2 PrivacyLevel of a queue; numbers of MS-MQMQ 2.3.1.12."""

    NONE = 0
    OPTIONAL = 1
    BODY = 2


class QueueScope(enum.Enum):
    """MS-MQDMPR 3.1.1.2 Scope."""

    SITE = "Site"
    ENTERPRISE = "Enterprise"


class OutgoingState(enum.Enum):
    """MS-MQDMPR 3.1.1.3 State of an outgoing queue."""

    CONNECTED = "Connected"
    DISCONNECTED = "Disconnected"
    DISCONNECTING = "Disconnecting"
    INACTIVE = "Inactive"
    LOCKED = "Locked"
    NEED_VALIDATION = "NeedValidation"
    WAITING = "Waiting"
    ON_HOLD = "OnHold"


class ConnectionStatus(enum.IntEnum):
    """MS-MQDMPR 3.1.1.3 ConnectionHistory.Status; numbers of MS-MQMQ 2.3.12.25."""

    IN_PROCESS = 0x0000_0000
    ESTABLISH_PACKET_RECEIVED = 0x0000_0001
    ESTABLISHED = 0x0000_0002
    UNKNOWN_FAILURE = 0x8000_0000
    PING_FAILURE = 0x8000_0001
    SOCKET_CREATE_FAILURE = 0x8000_0002
    SOCKET_BIND_FAILURE = 0x8000_0003
    SOCKET_CONNECT_FAILURE = 0x8000_0004
    TCP_NOT_ENABLED = 0x8000_0005
    SOCKET_SEND_FAILURE = 0x8000_0006
    CONNECTION_NOT_READY = 0x8000_0007
    DNS_FAILURE = 0x8000_0008
    CERTIFICATE_VALIDATION_FAILURE = 0x8000_0009
    CONNECTION_LIMIT_REACHED = 0x8000_000A
    CONNECTION_REFUSED = 0x8000_000B
    ROUTING_DATA_NOT_AVAILABLE = 0x8000_000C
    LOW_RESOURCE = 0x8000_000D


class PositionState(enum.IntEnum):
    """MS-MQDMPR 3.1.1.11 State of a MessagePosition."""

    AVAILABLE = 0
    LOCKED = 1
    DELETED = 2
    PURGE_PENDING = 3


class MessageClass(enum.IntEnum):
    """MS-MQMQ 2.2.18.1.6 and MS-MQDMPR 3.1.1.12 Class. Applications may use other numbers."""

    NORMAL = 0x0000
    REPORT = 0x0001
    ACK_REACH_QUEUE = 0x0002
    ORDER_ACK = 0x00FF
    ACK_RECEIVE = 0x4000
    NACK_BAD_DEST_QUEUE = 0x8000
    NACK_PURGED = 0x8001
    NACK_REACH_QUEUE_TIMEOUT = 0x8002
    NACK_QUEUE_EXCEED_QUOTA = 0x8003
    NACK_ACCESS_DENIED = 0x8004
    NACK_HOP_COUNT_EXCEEDED = 0x8005
    NACK_BAD_SIGNATURE = 0x8006
    NACK_BAD_ENCRYPTION = 0x8007
    NACK_NOT_TRANSACTIONAL_QUEUE = 0x8009
    NACK_NOT_TRANSACTIONAL_MESSAGE = 0x800A
    NACK_UNSUPPORTED_CRYPTO_PROVIDER = 0x800B
    NACK_QUEUE_DELETED = 0xC000
    NACK_QUEUE_PURGED = 0xC001
    NACK_RECEIVE_TIMEOUT = 0xC002
    # Only in MC-MQAC, never in a packet (MS-MQMQ does not list it).
    NACK_RECEIVE_TIMEOUT_AT_SENDER = 0xC003
    NACK_RECEIVE_REJECTED = 0xC004


class DeliveryGuarantee(enum.IntEnum):
    """MS-MQMQ 2.2.19.2 DM."""

    EXPRESS = 0
    RECOVERABLE = 1


class AuthenticationLevel(enum.IntEnum):
    """MS-MQDMPR 3.1.1.12; the numbers are those of SecurityHeader.AS (DMPR-3.1.7.1.31-3)."""

    NONE = 0x0
    SIG10 = 0x1
    SIG20 = 0x3
    SIG30 = 0x5
    XML_SIG = 0x9


class MessagePrivacyLevel(enum.IntEnum):
    """MS-MQMQ 2.2.19.3 PrivacyLevel of a message."""

    NONE = 0
    BASE = 1
    ENHANCED = 3
    ADVANCED = 5


class HashAlgorithm(enum.IntEnum):
    """MS-MQMQ 2.2.19.3 HashAlgorithm."""

    MD2 = 0x8001
    MD4 = 0x8002
    MD5 = 0x8003
    SHA1 = 0x8004
    SHA = 0x8004
    SHA_256 = 0x800C
    SHA_512 = 0x800E


class EncryptionAlgorithm(enum.IntEnum):
    """MS-MQMQ 2.2.19.3 EncryptionAlgorithm."""

    RC2 = 0x6602
    RC4 = 0x6801
    AES128 = 0x660E
    AES192 = 0x660F
    AES256 = 0x6610


class Acknowledgements(enum.IntFlag):
    """MS-MQMQ 2.2.19.3 Flags.

    The combinations are those of MS-MQDMPR 3.1.1.12 AcknowledgementsRequested.
    """

    NONE = 0x00
    POS_ARRIVAL = 0x01
    POS_RECEIVE = 0x02
    NEG_ARRIVAL = 0x04
    NEG_RECEIVE = 0x08
    NACK_REACH_QUEUE = 0x04
    FULL_REACH_QUEUE = 0x05
    NACK_RECEIVE = 0x0C
    FULL_RECEIVE = 0x0E


class SenderIdentifierType(enum.IntEnum):
    """MS-MQMQ 2.2.20.6 ST."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER_IDENTIFIER = 2


class QueueNameType(enum.IntEnum):
    """MS-MQMQ 2.2.19.2 DQ, AQ and RQ: the form of a queue name in the UserHeader."""

    NONE = 0
    SAME_AS_ADMINISTRATION_QUEUE = 1
    PRIVATE_QUEUE_ON_SOURCE = 2
    PRIVATE_QUEUE_ON_DESTINATION = 3
    PRIVATE_QUEUE_ON_ADMIN = 4
    PUBLIC_QUEUE = 5
    PRIVATE_QUEUE_ON_OTHER = 6
    DIRECT_QUEUE = 7


class QueueAccessType(enum.Enum):
    """MS-MQDMPR 3.1.1.17, with the numbers of MC-MQAC MQACCESS where they exist."""

    # For speed: every message does a lookup keyed by access type, and Enum.__hash__ is Python code
    # that hashes the member name.
    __hash__ = object.__hash__

    RECEIVE = 0x01
    SEND = 0x02
    MOVE = 0x04
    PEEK = 0x20
    RECEIVE_ADMIN = 0x81
    PEEK_ADMIN = 0xA0


# MS-MQDMPR 3.1.1.17: the access with which an administrator reads messages of an outgoing queue.
TO_ADMIN_ACCESS: Final = {
    QueueAccessType.RECEIVE: QueueAccessType.RECEIVE_ADMIN,
    QueueAccessType.PEEK: QueueAccessType.PEEK_ADMIN,
}


class QueueShareMode(enum.IntEnum):
    """MS-MQDMPR 3.1.1.17."""

    DENY_NONE = 0
    DENY_RECEIVE = 1


class RemoteReadState(enum.Enum):
    """MS-MQDMPR 3.1.1.16."""

    NONE = "None"
    OPENED = "Opened"
    READY_FOR_READ = "ReadyForRead"


class MessageSeekAction(enum.Enum):
    """MS-MQDMPR 3.1.1.17."""

    FIRST = "first"
    PREVIOUS = "previous"
    CURRENT = "current"
    NEXT = "next"
    LAST = "last"


class DirectoryOperationResult(enum.Enum):
    """MS-MQDMPR 3.1.1.17."""

    SUCCESS = "Success"
    GENERIC_ERROR = "GenericError"
    DIRECTORY_NOT_CONNECTED = "DirectoryNotConnected"
    OBJECT_NOT_FOUND = "ObjectNotFound"
    ATTRIBUTE_NOT_FOUND = "AttributeNotFound"
    END_OF_DATA = "EndOfData"
    OBJECT_ALREADY_EXISTS = "ObjectAlreadyExists"


class OperationType(enum.IntEnum):
    """MS-MQDMPR 3.1.1.13."""

    ENQUEUE = 0
    DEQUEUE = 1
    MOVE = 2


class CursorState(enum.Enum):
    """MS-MQDMPR 3.2.1.2."""

    UNREAD = "Unread"
    WAIT_RECEIVE = "WaitReceive"
    WAIT_PEEK = "WaitPeek"
    READ = "Read"


class EnqueueStatus(enum.IntEnum):
    """MS-MQDMPR 3.1.7.1.9 rStatus."""

    OK = 0
    QUEUE_QUOTA_EXCEEDED = 1
    QUEUE_MANAGER_QUOTA_EXCEEDED = 2
    TIMED_OUT_IN_TRANSIT = 3
