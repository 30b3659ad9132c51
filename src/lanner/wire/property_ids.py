"""Property identifiers (MS-MQMQ 2.3): the numbers per kind of object, and the value types."""

from __future__ import annotations

import enum

from lanner.wire.vartypes import VT


class PropertyIdentifier(enum.IntEnum):
    """A PROPID. `vt` is the type of its value, `spec_name` its name in the document."""

    vt: int

    def __new__(cls, value: int, vt: int = VT.EMPTY) -> PropertyIdentifier:  # noqa: PYI034 - the enumeration makes its members
        member = int.__new__(cls, value)
        member._value_ = value
        member.vt = vt
        return member

    @property
    def spec_name(self) -> str:
        return f"{PREFIXES[type(self)]}{self.name}"


class QueueProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.1: PROPID_Q_*."""

    INSTANCE = 101, VT.CLSID
    TYPE = 102, VT.CLSID
    PATHNAME = 103, VT.LPWSTR
    JOURNAL = 104, VT.UI1
    QUOTA = 105, VT.UI4
    BASEPRIORITY = 106, VT.I2
    JOURNAL_QUOTA = 107, VT.UI4
    LABEL = 108, VT.LPWSTR
    CREATE_TIME = 109, VT.I4
    MODIFY_TIME = 110, VT.I4
    AUTHENTICATE = 111, VT.UI1
    PRIV_LEVEL = 112, VT.UI4
    TRANSACTION = 113, VT.UI1
    SCOPE = 114, VT.UI1
    QMID = 115, VT.CLSID
    PARTITIONID = 116, VT.CLSID
    SEQNUM = 117, VT.BLOB
    HASHKEY = 118, VT.UI4
    LABEL_HASHKEY = 119, VT.UI4
    FULL_PATH = 121, VT.LPWSTR
    NAME_SUFFIX = 123, VT.LPWSTR
    PATHNAME_DNS = 124, VT.LPWSTR
    MULTICAST_ADDRESS = 125, VT.LPWSTR
    ADS_PATH = 126, VT.LPWSTR
    SECURITY = 1101, VT.BLOB
    OBJ_SECURITY = 1102, VT.BLOB
    SECURITY_INFORMATION = 1103, VT.UI4


class MachineProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.2: PROPID_QM_*."""

    SITE_ID = 201, VT.CLSID
    MACHINE_ID = 202, VT.CLSID
    PATHNAME = 203, VT.LPWSTR
    ENCRYPTION_PK = 205, VT.VECTOR | VT.UI1
    ADDRESS = 206, VT.BLOB
    CNS = 207, VT.VECTOR | VT.CLSID
    OUTFRS = 208, VT.VECTOR | VT.CLSID
    INFRS = 209, VT.VECTOR | VT.CLSID
    SERVICE = 210, VT.UI4
    PARTITIONID = 211, VT.CLSID
    HASHKEY = 212, VT.UI4
    SEQNUM = 213, VT.BLOB
    QUOTA = 214, VT.UI4
    JOURNAL_QUOTA = 215, VT.UI4
    MACHINE_TYPE = 216, VT.LPWSTR
    CREATE_TIME = 217, VT.I4
    MODIFY_TIME = 218, VT.I4
    FOREIGN = 219, VT.UI1
    OS = 220, VT.UI4
    FULL_PATH = 221, VT.LPWSTR
    SITE_IDS = 222, VT.VECTOR | VT.CLSID
    OUTFRS_DN = 223, VT.VECTOR | VT.LPWSTR
    INFRS_DN = 224, VT.VECTOR | VT.LPWSTR
    SERVICE_ROUTING = 227, VT.UI1
    SERVICE_DSSERVER = 228, VT.UI1
    SERVICE_DEPCLIENTS = 229, VT.UI1
    ENCRYPTION_PK_BASE = 231, VT.VECTOR | VT.UI1
    ENCRYPTION_PK_ENHANCED = 232, VT.VECTOR | VT.UI1
    PATHNAME_DNS = 233, VT.LPWSTR
    OBJ_SECURITY = 234, VT.BLOB
    SECURITY_INFORMATION = 237, VT.UI4
    ENCRYPT_PKS = 238, VT.BLOB
    SIGN_PKS = 239, VT.BLOB
    OWNER_SID = 241, VT.BLOB
    GROUP_IN_CLUSTER = 242, VT.UI1
    SECURITY = 1201, VT.BLOB
    SIGN_PK = 1202, VT.BLOB
    ENCRYPT_PK = 1203, VT.BLOB
    UPGRADE_DACL = 1205, VT.BLOB


class SiteProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.3: PROPID_S_*."""

    PATHNAME = 301, VT.LPWSTR
    SITEID = 302, VT.CLSID
    GATES = 303, VT.VECTOR | VT.CLSID
    PSC = 304, VT.LPWSTR
    INTERVAL1 = 305, VT.UI2
    INTERVAL2 = 306, VT.UI2
    PARTITIONID = 307, VT.CLSID
    SEQNUM = 308, VT.BLOB
    FULL_NAME = 309, VT.LPWSTR
    NT4_STUB = 310, VT.UI2
    FOREIGN = 311, VT.UI1
    DONOTHING = 312, VT.UI1
    SECURITY = 1301, VT.BLOB
    PSC_SIGNPK = 1302, VT.BLOB
    SECURITY_INFORMATION = 1303, VT.UI4


class ConnectedNetworkProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.4: PROPID_CN_*."""

    PROTOCOLID = 501, VT.UI1
    NAME = 502, VT.LPWSTR
    GUID = 503, VT.CLSID
    PARTITIONID = 504, VT.CLSID
    SEQNUM = 505, VT.BLOB
    SECURITY = 1501, VT.BLOB


class EnterpriseProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.5: PROPID_E_*."""

    NAME = 601, VT.LPWSTR
    NAMESTYLE = 602, VT.UI1
    CSP_NAME = 603, VT.LPWSTR
    PECNAME = 604, VT.LPWSTR
    S_INTERVAL1 = 605, VT.UI2
    S_INTERVAL2 = 606, VT.UI2
    PARTITIONID = 607, VT.CLSID
    SEQNUM = 608, VT.BLOB
    ID = 609, VT.CLSID
    CRL = 610, VT.BLOB
    CSP_TYPE = 611, VT.UI4
    ENCRYPT_ALG = 612, VT.UI4
    SIGN_ALG = 613, VT.UI4
    HASH_ALG = 614, VT.UI4
    CIPHER_MODE = 615, VT.UI4
    LONG_LIVE = 616, VT.UI4
    VERSION = 617, VT.UI2
    SECURITY = 1601, VT.BLOB


class UserProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.6: PROPID_U_*."""

    SID = 701, VT.BLOB
    SIGN_CERT = 702, VT.BLOB
    PARTITIONID = 703, VT.CLSID
    SEQNUM = 704, VT.BLOB
    DIGEST = 705, VT.VECTOR | VT.CLSID
    ID = 706, VT.CLSID


class RoutingLinkProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.7: PROPID_L_*."""

    NEIGHBOR1 = 801, VT.CLSID
    NEIGHBOR2 = 802, VT.CLSID
    COST = 803, VT.UI4
    PARTITIONID = 804, VT.CLSID
    SEQNUM = 805, VT.BLOB
    ID = 806, VT.CLSID
    GATES_DN = 807, VT.VECTOR | VT.LPWSTR
    NEIGHBOR1_DN = 808, VT.LPWSTR
    NEIGHBOR2_DN = 809, VT.LPWSTR
    DESCRIPTION = 810, VT.LPWSTR
    FULL_PATH = 811, VT.LPWSTR
    ACTUAL_COST = 812, VT.UI4
    GATES = 813, VT.VECTOR | VT.CLSID


class SettingsProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.8: PROPID_SET_*."""

    NAME = 5101, VT.LPWSTR
    SERVICE = 5102, VT.UI4
    QM_ID = 5103, VT.CLSID
    FULL_PATH = 5105, VT.LPWSTR
    NT4 = 5106, VT.UI1
    PARTITIONID = 5107, VT.CLSID
    SITENAME = 5108, VT.LPWSTR
    SERVICE_ROUTING = 5109, VT.UI1
    SERVICE_DSSERVER = 5110, VT.UI1
    SERVICE_DEPCLIENTS = 5111, VT.UI1
    OLDSERVICE = 5112, VT.UI4


class MQUserProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.9: PROPID_MQU_*."""

    SID = 5401, VT.BLOB
    SIGN_CERT = 5402, VT.BLOB
    DIGEST = 5405, VT.VECTOR | VT.CLSID
    ID = 5406, VT.CLSID
    SECURITY = 5407, VT.BLOB


class ComputerProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.10: PROPID_COM_*."""

    FULL_PATH = 5201, VT.LPWSTR
    SAM_ACCOUNT = 5202, VT.LPWSTR
    ACCOUNT_CONTROL = 5204, VT.UI4
    DNS_HOSTNAME = 5205, VT.LPWSTR
    SID = 5206, VT.BLOB
    SIGN_CERT = 5207, VT.BLOB
    DIGEST = 5208, VT.VECTOR | VT.CLSID
    ID = 5209, VT.CLSID


class ManagementMachineProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.11: PROPID_MGMT_MSMQ_*."""

    ACTIVEQUEUES = 1, VT.VECTOR | VT.LPWSTR
    PRIVATEQ = 2, VT.VECTOR | VT.LPWSTR
    DSSERVER = 3, VT.LPWSTR
    CONNECTED = 4, VT.LPWSTR
    TYPE = 5, VT.LPWSTR
    BYTES_IN_ALL_QUEUES = 6, VT.I8


class ManagementQueueProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.12: PROPID_MGMT_QUEUE_*."""

    PATHNAME = 1, VT.LPWSTR
    FORMATNAME = 2, VT.LPWSTR
    TYPE = 3, VT.LPWSTR
    LOCATION = 4, VT.LPWSTR
    XACT = 5, VT.LPWSTR
    FOREIGN = 6, VT.LPWSTR
    MESSAGE_COUNT = 7, VT.UI4
    BYTES_IN_QUEUE = 8, VT.UI4
    JOURNAL_MESSAGE_COUNT = 9, VT.UI4
    BYTES_IN_JOURNAL = 10, VT.UI4
    STATE = 11, VT.LPWSTR
    NEXTHOPS = 12, VT.VECTOR | VT.LPWSTR
    EOD_LAST_ACK = 13, VT.BLOB
    EOD_LAST_ACK_TIME = 14, VT.I4
    EOD_LAST_ACK_COUNT = 15, VT.UI4
    EOD_FIRST_NON_ACK = 16, VT.BLOB
    EOD_LAST_NON_ACK = 17, VT.BLOB
    EOD_NEXT_SEQ = 18, VT.BLOB
    EOD_NO_READ_COUNT = 19, VT.UI4
    EOD_NO_ACK_COUNT = 20, VT.UI4
    EOD_RESEND_TIME = 21, VT.I4
    EOD_RESEND_INTERVAL = 22, VT.UI4
    EOD_RESEND_COUNT = 23, VT.UI4
    EOD_SOURCE_INFO = 24, VT.VECTOR | VT.VARIANT
    CONNECTION_HISTORY = 25, VT.VECTOR | VT.VARIANT
    SUBQUEUE_COUNT = 26, VT.UI4
    SUBQUEUE_NAMES = 27, VT.VECTOR | VT.LPWSTR


class DeletionProperty(PropertyIdentifier):
    """MS-MQMQ 2.3.13: PROPID_D_*."""

    SEQNUM = 1401, VT.BLOB
    PARTITIONID = 1402, VT.CLSID
    SCOPE = 1403, VT.UI1
    OBJTYPE = 1404, VT.UI1
    IDENTIFIER = 1405, VT.CLSID


PREFIXES: dict[type[PropertyIdentifier], str] = {
    QueueProperty: "PROPID_Q_",
    MachineProperty: "PROPID_QM_",
    SiteProperty: "PROPID_S_",
    ConnectedNetworkProperty: "PROPID_CN_",
    EnterpriseProperty: "PROPID_E_",
    UserProperty: "PROPID_U_",
    RoutingLinkProperty: "PROPID_L_",
    SettingsProperty: "PROPID_SET_",
    MQUserProperty: "PROPID_MQU_",
    ComputerProperty: "PROPID_COM_",
    ManagementMachineProperty: "PROPID_MGMT_MSMQ_",
    ManagementQueueProperty: "PROPID_MGMT_QUEUE_",
    DeletionProperty: "PROPID_D_",
}

# All identifiers by their names in the document, with the number and the type of the value.
PROPERTIES: dict[str, tuple[int, int]] = {
    member.spec_name: (int(member), member.vt) for kind in PREFIXES for member in kind
}
