"""TransactionHeader: a message's transaction and its place in a sequence (MS-MQMQ 2.2.20.5)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from lanner.wire import layout as at
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.reader import Reader, guid_to_bytes


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """20 bytes, and 16 more when Flags.CG announces ConnectorQMGuid."""

    flags: int
    tx_sequence_id: TxSequenceID
    tx_sequence_number: int  # from 1
    previous_tx_sequence_number: int  # 0 if there is no predecessor
    connector_qm_guid: UUID | None = None

    @property
    def identifier(self) -> int:
        """ID: the sender's 20-bit number of the transaction."""
        return self.flags >> at.ID_SHIFT & at.ID_MASK

    @property
    def is_final_ack_required(self) -> bool:
        return bool(self.flags & at.FA)

    @property
    def is_first(self) -> bool:
        return bool(self.flags & at.FM)

    @property
    def is_last(self) -> bool:
        return bool(self.flags & at.LM)

    def pack(self) -> bytes:
        guid = self.connector_qm_guid
        flags = self.flags & ~at.CG | (at.CG if guid is not None else 0)
        return b"".join(
            (
                flags.to_bytes(4, "little"),
                self.tx_sequence_id.pack(),
                self.tx_sequence_number.to_bytes(4, "little"),
                self.previous_tx_sequence_number.to_bytes(4, "little"),
                b"" if guid is None else guid_to_bytes(guid),
            )
        )

    @classmethod
    def unpack(cls, reader: Reader) -> TransactionHeader:
        flags = reader.u32("TransactionHeader.Flags")
        return cls(
            flags,
            TxSequenceID.unpack(reader),
            reader.u32("TransactionHeader.TxSequenceNumber"),
            reader.u32("TransactionHeader.PreviousTxSequenceNumber"),
            reader.guid("TransactionHeader.ConnectorQMGuid") if flags & at.CG else None,
        )
