"""Conversion between queue properties and attributes of the data model.

MS-MQMP 3.1.1.12 has the attributes of private queues; MS-MQMR 3.1.4.1 has the contents of queues of
any kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lanner.engine.queue_properties import CHANGEABLE_ATTRIBUTES, check_changes
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import QueueType
from lanner.model.errors import PropertyNotallowed
from lanner.services.outgoing_documents import Told, state_of
from lanner.services.queue_client_properties import Applicable, given_attributes, told_property
from lanner.wire.property_ids import ManagementQueueProperty, QueueProperty
from lanner.wire.propvariant import PropVariant

_Q = ManagementQueueProperty

_PROPERTIES: Final = {
    "label": QueueProperty.LABEL,
    "type": QueueProperty.TYPE,
    "journaling": QueueProperty.JOURNAL,
    "quota": QueueProperty.QUOTA,
    "journal_quota": QueueProperty.JOURNAL_QUOTA,
    "authentication": QueueProperty.AUTHENTICATE,
    "privacy_level": QueueProperty.PRIV_LEVEL,
    "multicast_address": QueueProperty.MULTICAST_ADDRESS,
    "base_priority": QueueProperty.BASEPRIORITY,
    "transactional": QueueProperty.TRANSACTION,
}
# The properties to request with R_QMGetObjectProperties.
ATTRIBUTES: Final = (
    QueueProperty.INSTANCE,
    QueueProperty.PATHNAME,
    QueueProperty.CREATE_TIME,
    QueueProperty.MODIFY_TIME,
    *_PROPERTIES.values(),
)
# The properties to request with R_QMMgmtGetInfo.
CONTENTS: Final = (
    _Q.PATHNAME,
    _Q.FORMATNAME,
    _Q.TYPE,
    _Q.LOCATION,
    _Q.XACT,
    _Q.MESSAGE_COUNT,
    _Q.BYTES_IN_QUEUE,
    _Q.JOURNAL_MESSAGE_COUNT,
    _Q.BYTES_IN_JOURNAL,
    _Q.STATE,
    _Q.SUBQUEUE_NAMES,
)
# MS-MQMQ 2.3.12.3; a queue of any other type belongs to another computer.
_TYPES: Final = {
    "PUBLIC": QueueType.PUBLIC,
    "PRIVATE": QueueType.PRIVATE,
    "MACHINE": QueueType.SYSTEM,
    "CONNECTOR": QueueType.CONNECTOR,
}


def to_properties(changes: Mapping[str, object]) -> tuple[tuple[int, ...], tuple[PropVariant, ...]]:
    """Return attributes as aProp and apVar; raise an error for one that cannot be set."""
    fixed = {name: value for name, value in changes.items() if name == "transactional"}
    checked = {**check_changes({name: value for name, value in changes.items() if name not in fixed}), **fixed}
    queue = Queue()
    identifiers: list[int] = []
    variants: list[PropVariant] = []
    for name, value in checked.items():
        if name not in _PROPERTIES:
            known = ", ".join(one for one in CHANGEABLE_ATTRIBUTES if one in _PROPERTIES)
            raise PropertyNotallowed(f"{name} of a queue elsewhere cannot be given; these can: {known}")
        setattr(queue, name, value)
        identifiers.append(int(_PROPERTIES[name]))
        variants.append(told_property(queue, _PROPERTIES[name]))
    return tuple(identifiers), tuple(variants)


def set_attributes(queue: Queue, variants: Sequence[PropVariant]) -> None:
    """Set the attributes from the answer to ATTRIBUTES; a missing one is left unchanged."""
    told = [(one, variant) for one, variant in zip(ATTRIBUTES, variants, strict=True) if variant.value is not None]
    identifiers, values = [int(one) for one, _ in told], [variant for _, variant in told]
    for attribute, value in given_attributes(identifiers, values, Applicable.GET):
        setattr(queue, attribute, value)


def queue_of(told: Told) -> Queue:
    """Return the queue described by the answer to CONTENTS."""
    if told[_Q.LOCATION] == "REMOTE":
        name = told[_Q.FORMATNAME]
        queue: Queue = OutgoingQueue(pathname=name, destination_format_name=name, state=state_of(told))
    else:
        queue = Queue(pathname=told[_Q.PATHNAME] or told[_Q.FORMATNAME])
    queue.queue_type = _TYPES.get(told[_Q.TYPE], QueueType.PRIVATE)
    queue.transactional = told[_Q.XACT] == "YES"
    queue.message_count = told[_Q.MESSAGE_COUNT] or 0
    queue.total_bytes = told[_Q.BYTES_IN_QUEUE] or 0
    if queue.queue_type in (QueueType.PUBLIC, QueueType.PRIVATE) and ";" not in queue.pathname:
        journal = Queue(pathname=f"{queue.pathname};journal", queue_type=QueueType.SYSTEM)
        journal.message_count = told[_Q.JOURNAL_MESSAGE_COUNT] or 0
        journal.total_bytes = told[_Q.BYTES_IN_JOURNAL] or 0
        queue.journal_queue = journal
    return queue
