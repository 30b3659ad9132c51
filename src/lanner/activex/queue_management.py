"""MSMQQueueManagement: a local queue, its journal, and its transactional senders (MC-MQAC 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from lanner.activex.collection import MSMQCollection
from lanner.activex.longs import to_long
from lanner.activex.managed_queue import ManagedQueue
from lanner.activex.tables import MSMQ_QUEUE_MANAGEMENT
from lanner.com.automation.values import SafeArray, Variant
from lanner.model.errors import GenericError
from lanner.wire.property_ids import ManagementQueueProperty
from lanner.wire.propvariant import PropVariant
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.wire.propvariant import Value

# 2.2.4.1, in the order of the vectors of PROPID_MGMT_QUEUE_EOD_SOURCE_INFO (MS-MQMQ 2.3.12.24).
_SOURCE_INFO: Final = (
    ("QueueFormatName", VT.BSTR),
    ("SenderID", VT.BSTR),
    ("SeqID", VT.UI8),
    ("SeqNo", VT.I4),
    ("LastAccessTime", VT.I4),
    ("RejectCount", VT.I4),
)


class QueueManagement(ManagedQueue):
    """IMSMQQueueManagement."""

    async def get_journal_message_count(self, call: ComCall) -> int:
        """Return JournalMessageCount (3.4.4.1.1)."""
        return await self.long(call, ManagementQueueProperty.JOURNAL_MESSAGE_COUNT)

    async def get_bytes_in_journal(self, call: ComCall) -> Variant:
        """Return BytesInJournal (3.4.4.1.2)."""
        return Variant(VT.UI8, await self.number(call, ManagementQueueProperty.BYTES_IN_JOURNAL))

    async def eod_get_receive_info(self, call: ComCall) -> Variant:
        """Return one collection for each sender (3.4.4.1.3 EodGetReceiveInfo)."""
        told = await self.value(call, ManagementQueueProperty.EOD_SOURCE_INFO)
        collections = [
            Variant(VT.DISPATCH, MSMQCollection(self._environment, values)) for values in _source_infos(told)
        ]
        return Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, collections))


class MSMQQueueManagement(QueueManagement):
    """3.4 MSMQQueueManagement, created directly instead of through MSMQManagement."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_QUEUE_MANAGEMENT.interfaces


def _source_infos(told: Value) -> Iterator[dict[str, Variant]]:
    if told is None:
        return
    vectors = [one.value for one in told if isinstance(one, PropVariant)] if isinstance(told, tuple) else []
    if len(vectors) != len(_SOURCE_INFO) or not all(isinstance(vector, tuple) for vector in vectors):
        raise GenericError("PROPID_MGMT_QUEUE_EOD_SOURCE_INFO is not six vectors")
    try:
        rows = list(zip(*vectors, strict=True))
    except ValueError:
        raise GenericError("PROPID_MGMT_QUEUE_EOD_SOURCE_INFO: the vectors differ in length") from None
    for row in rows:
        yield {key: Variant(vt, _value(vt, value)) for (key, vt), value in zip(_SOURCE_INFO, row, strict=True)}


def _value(vt: VT, value: str | int | UUID) -> str | int:
    if vt == VT.BSTR:
        return value if isinstance(value, str) else f"{{{value}}}".upper()
    number = int(value)
    # The queue manager has unsigned numbers, and the collection has signed ones.
    return to_long(number) if vt == VT.I4 else number
