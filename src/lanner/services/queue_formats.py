"""Conversion between QUEUE_FORMAT, the queue name in RPC, and format names (MS-MQMQ 2.2.7)."""

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

# m_SuffixAndFlags: the suffix in the low four bits, QUEUE_FORMAT_FLAG_SYSTEM in the top bit.
_SUFFIX_MASK = 0x0F
_FLAG_SYSTEM = 0x80
_SYSTEM_SUFFIXES = frozenset((QueueSuffixType.JOURNAL, QueueSuffixType.DEADLETTER, QueueSuffixType.DEADXACT))
# Values of m_SuffixAndFlags allowed for each type. A direct name may have its suffix only in the
# text.
_NONE, _JOURNAL, _DEADLETTER, _DEADXACT = 0x00, 0x81, 0x82, 0x83
_XACTONLY = frozenset((0x04, 0x84))  # the document does not give its flag
_SUBQUEUE = 0x05
_SUFFIXES: dict[int, frozenset[int]] = {
    QueueFormatType.PUBLIC: frozenset((_NONE, _JOURNAL)),
    QueueFormatType.PRIVATE: frozenset((_NONE, _JOURNAL)),
    QueueFormatType.DIRECT: frozenset((_NONE, _JOURNAL, _DEADLETTER, _DEADXACT)),
    QueueFormatType.MACHINE: frozenset((_JOURNAL, _DEADLETTER, _DEADXACT)),
    QueueFormatType.CONNECTOR: _XACTONLY | {_NONE},
    QueueFormatType.DL: frozenset((_NONE,)),
    QueueFormatType.MULTICAST: frozenset((_NONE,)),
    QueueFormatType.SUBQUEUE: frozenset((_NONE, _SUBQUEUE)),
}


def format_name_of(queue_format: QueueFormat) -> FormatName:
    """Return the format name of a QUEUE_FORMAT; raise IllegalFormatname if it has none."""
    kind, value = queue_format.m_qft, queue_format.u
    suffix_and_flags = queue_format.m_suffix_and_flags
    if suffix_and_flags not in _SUFFIXES.get(kind, ()):
        raise IllegalFormatname(f"QUEUE_FORMAT of type {kind} with suffix {suffix_and_flags:#04x}")
    suffix = QueueSuffixType(suffix_and_flags & _SUFFIX_MASK)
    if kind == QueueFormatType.MULTICAST and isinstance(value, MulticastId):
        # The address is a number in network byte order, as its octets are in memory.
        address = ipaddress.IPv4Address(value.m_address.to_bytes(4, "little"))
        return FormatName.parse(f"MULTICAST={address}:{value.m_port}")
    if isinstance(value, UUID):
        if kind == QueueFormatType.PUBLIC:
            return PublicFormatName(value, suffix is QueueSuffixType.JOURNAL)
        if kind == QueueFormatType.MACHINE:
            return MachineFormatName(value, suffix)
        return ConnectorFormatName(value, suffix is QueueSuffixType.XACTONLY)
    if isinstance(value, MessageIdentifier):
        return PrivateFormatName(value.queue_manager_guid, value.ordinal, suffix is QueueSuffixType.JOURNAL)
    if isinstance(value, DlId):
        domain = "" if value.m_pwz_domain is None else f"@{value.m_pwz_domain}"
        return FormatName.parse(f"DL={value.m_dl_guid}{domain}")
    if isinstance(value, str):
        return _direct_name(value, suffix)
    raise IllegalFormatname(f"QUEUE_FORMAT of type {kind} names no queue")


def _direct_name(text: str, suffix: QueueSuffixType) -> DirectFormatName:
    """Return a direct name, with the suffix of its QUEUE_FORMAT unless the text ends with it."""
    if suffix not in _SYSTEM_SUFFIXES:
        return DirectFormatName(text)
    ending = f";{suffix.name}"
    name = DirectFormatName(text if text.upper().endswith(ending) else text + ending)
    if name.suffix is not suffix:
        raise IllegalFormatname(f"{name} is not the name of a {suffix.name.lower()} queue")
    return name


def queue_format_of(name: FormatName) -> QueueFormat:
    """Return the QUEUE_FORMAT of a format name with one element."""
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
