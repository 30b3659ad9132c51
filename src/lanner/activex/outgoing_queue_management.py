"""MSMQOutgoingQueueManagement: a queue whose messages wait for another computer (MC-MQAC 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from lanner.activex.collection import MSMQCollection
from lanner.activex.longs import to_long
from lanner.activex.managed_queue import ManagedQueue
from lanner.activex.tables import MSMQ_OUTGOING_QUEUE_MANAGEMENT
from lanner.com.automation.values import SafeArray, Variant
from lanner.wire.identifiers import SequenceInfo
from lanner.wire.property_ids import ManagementQueueProperty
from lanner.wire.reader import Reader
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.wire.propvariant import Value

# 2.2.2.19 QUEUE_STATE.
_STATES: Final = {
    "LOCAL CONNECTION": 0,
    "DISCONNECTED": 1,
    "WAITING": 2,
    "NEED VALIDATION": 3,
    "ONHOLD": 4,
    "INACTIVE": 5,
    "CONNECTED": 6,
    "DISCONNECTING": 7,
    "LOCKED": 8,
}
# 2.2.4.2, in the order of 3.5.4.1.3. VT_DISPATCH is a SequenceInfoCollection (2.2.4.3).
_SEND_INFO: Final = (
    ("EodLastAck", ManagementQueueProperty.EOD_LAST_ACK, VT.DISPATCH),
    ("EodLastAckTime", ManagementQueueProperty.EOD_LAST_ACK_TIME, VT.I4),
    ("EodLastAckCount", ManagementQueueProperty.EOD_LAST_ACK_COUNT, VT.UI4),
    ("EodFirstNonAck", ManagementQueueProperty.EOD_FIRST_NON_ACK, VT.DISPATCH),
    ("EodLastNonAck", ManagementQueueProperty.EOD_LAST_NON_ACK, VT.DISPATCH),
    ("EodNextSeq", ManagementQueueProperty.EOD_NEXT_SEQ, VT.DISPATCH),
    ("EodNoReadCount", ManagementQueueProperty.EOD_NO_READ_COUNT, VT.UI4),
    ("EodNoAckCount", ManagementQueueProperty.EOD_NO_ACK_COUNT, VT.UI4),
    ("EodResendTime", ManagementQueueProperty.EOD_RESEND_TIME, VT.I4),
    ("EodResendInterval", ManagementQueueProperty.EOD_RESEND_INTERVAL, VT.UI4),
    ("EodResendCount", ManagementQueueProperty.EOD_RESEND_COUNT, VT.UI4),
)
_NO_SEQUENCE: Final = SequenceInfo(0, 0, 0)
_UI8: Final = (1 << 64) - 1


class OutgoingQueueManagement(ManagedQueue):
    """IMSMQOutgoingQueueManagement."""

    async def get_state(self, call: ComCall) -> int:
        """Return State (3.5.4.1.1)."""
        return await self.choice(call, ManagementQueueProperty.STATE, _STATES)

    async def get_next_hops(self, call: ComCall) -> Variant:
        """Return NextHops, which is empty without a connection (3.5.4.1.2)."""
        hops = await self.value(call, ManagementQueueProperty.NEXTHOPS) or ()
        return Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, hops if isinstance(hops, tuple) else ()))

    async def eod_get_send_info(self, call: ComCall) -> MSMQCollection:
        """Return the transactional state (3.5.4.1.3 EodGetSendInfo).

        All values are zero for a queue that has carried no transactional message yet.
        """
        values = {key: self._variant(vt, await self.value(call, identifier)) for key, identifier, vt in _SEND_INFO}
        return MSMQCollection(self._environment, values)

    def _variant(self, vt: VT, value: Value) -> Variant:
        if vt != VT.DISPATCH:
            return Variant(vt, value or 0)
        info = SequenceInfo.unpack(Reader(value)) if isinstance(value, bytes) else _NO_SEQUENCE
        return Variant(
            vt,
            MSMQCollection(
                self._environment,
                {
                    "SeqID": Variant(VT.UI8, info.seq_id & _UI8),
                    "SeqNo": Variant(VT.I4, to_long(info.seq_no)),
                    "PrevNo": Variant(VT.I4, to_long(info.prev_no)),
                },
            ),
        )

    async def resume(self, call: ComCall) -> None:
        """Resume delivery (3.5.4.1.4 Resume)."""
        await self.act(call, "RESUME")

    async def pause(self, call: ComCall) -> None:
        """Pause delivery (3.5.4.1.5 Pause)."""
        await self.act(call, "PAUSE")

    async def eod_resend(self, call: ComCall) -> None:
        """Resend unacknowledged messages (3.5.4.1.6 EodResend).

        The document's action is Pause (DECISIONS: EodResend resends).
        """
        await self.act(call, "EOD_RESEND")


class MSMQOutgoingQueueManagement(OutgoingQueueManagement):
    """3.5 MSMQOutgoingQueueManagement, created directly instead of through MSMQManagement."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_OUTGOING_QUEUE_MANAGEMENT.interfaces
