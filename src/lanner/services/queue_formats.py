"""From QUEUE_FORMAT, as RPC carries the name of a queue, to a format name and back (MS-MQMQ 2.2.7)."""

from __future__ import annotations

import ipaddress
from uuid import UUID

from lanner.model.errors import IllegalFormatname
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MachineFormatName,
    MulticastFormatName,
    PrivateFormatName,
    PublicFormatName,
    QueueFormatType,
    QueueSuffixType,
)
from lanner.wire.identifiers import MessageIdentifier

# m_SuffixAndFlags: the suffix in the low four bits, QUEUE_FORMAT_FLAG_SYSTEM above.
_SUFFIX_MASK = 0x0F
_FLAG_SYSTEM = 0x80
_SYSTEM_SUFFIXES = frozenset((QueueSuffixType.JOURNAL, QueueSuffixType.DEADLETTER, QueueSuffixType.DEADXACT))
# Which suffixes go with which type; those of direct names are part of the text, and are not looked at.
_NONE, _JOURNAL = QueueSuffixType.NONE, QueueSuffixType.JOURNAL
_SUFFIXES: dict[int, frozenset[int]] = {
    QueueFormatType.PUBLIC: frozenset((_NONE, _JOURNAL)),
    QueueFormatType.PRIVATE: frozenset((_NONE, _JOURNAL)),
    QueueFormatType.MACHINE: _SYSTEM_SUFFIXES,
    QueueFormatType.CONNECTOR: frozenset((_NONE, QueueSuffixType.XACTONLY)),
    QueueFormatType.DL: frozenset((_NONE,)),
    QueueFormatType.MULTICAST: frozenset((_NONE,)),
}


def format_name_of(queue_format: QueueFormat) -> FormatName:
    """The format name that a QUEUE_FORMAT means; IllegalFormatname says why it means none."""
    kind, value = queue_format.m_qft, queue_format.u
    suffix = queue_format.m_suffix_and_flags & _SUFFIX_MASK
    if suffix not in _SUFFIXES.get(kind, (suffix,)):
        raise IllegalFormatname(f"QUEUE_FORMAT of type {kind} with suffix {suffix}")
    if kind == QueueFormatType.MULTICAST and isinstance(value, MulticastId):
        # The address is a number in network order, as its octets stand in memory.
        address = ipaddress.IPv4Address(value.m_address.to_bytes(4, "little"))
        return FormatName.parse(f"MULTICAST={address}:{value.m_port}")
    if isinstance(value, UUID):
        if kind == QueueFormatType.PUBLIC:
            return PublicFormatName(value, suffix == _JOURNAL)
        if kind == QueueFormatType.MACHINE:
            return MachineFormatName(value, QueueSuffixType(suffix))
        return ConnectorFormatName(value, suffix == QueueSuffixType.XACTONLY)
    if isinstance(value, MessageIdentifier):
        return PrivateFormatName(value.queue_manager_guid, value.ordinal, suffix == _JOURNAL)
    if isinstance(value, DlId):
        domain = "" if value.m_pwz_domain is None else f"@{value.m_pwz_domain}"
        return FormatName.parse(f"DL={value.m_dl_guid}{domain}")
    if isinstance(value, str):
        return DirectFormatName(value)
    raise IllegalFormatname(f"QUEUE_FORMAT of type {kind} names no queue")


def queue_format_of(name: FormatName) -> QueueFormat:
    """How RPC carries a format name of one element."""
    suffix = int(name.suffix)
    if name.suffix in _SYSTEM_SUFFIXES:
        suffix |= _FLAG_SYSTEM
    kind = name.queue_format_type
    match name:
        case PublicFormatName() | MachineFormatName() | ConnectorFormatName():
            return QueueFormat(kind, suffix, 0, name.identifier)
        case PrivateFormatName():
            return QueueFormat(kind, suffix, 0, MessageIdentifier(name.queue_manager_identifier, name.number))
        case DirectFormatName():
            is_subqueue = name.suffix is QueueSuffixType.SUBQUEUE
            return QueueFormat(QueueFormatType.SUBQUEUE if is_subqueue else kind, suffix, 0, name.text)
        case DistributionListFormatName():
            return QueueFormat(kind, suffix, 0, DlId(name.identifier, name.domain))
        case MulticastFormatName():
            address = int.from_bytes(ipaddress.IPv4Address(name.address).packed, "little")
            return QueueFormat(kind, suffix, 0, MulticastId(address, name.port))
    raise IllegalFormatname(f"{name} is not the name of one queue")
