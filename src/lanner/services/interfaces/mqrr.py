"""RemoteRead, the remote-read interface of Windows Vista and later (MS-MQRR 2.2, 3.1.4, 6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import Conformant, ContextHandle, Related, Struct, Unique, enum16, guid, i32, u8, u16, u32, u64
from lanner.services.interfaces.mqmq import HRESULT, QUEUE_FORMAT, XACTUOW
from lanner.services.interfaces.mqqp import RemoteReadAck

# MS-MQRR 2.2.4: the SERIALIZE and NOSERIALIZE handles are the same type on the wire, and not type
# strict.
QUEUE_CONTEXT_HANDLE: Final = ContextHandle("QUEUE_CONTEXT_HANDLE")
# MS-MQRR 3.1.4.12: [range(0, 131072)] DWORD cbPropagationToken.
MAX_PROPAGATION_TOKEN: Final = 131_072
# MS-MQRR 3.1.4.2 dwAccess, dwShareMode; 3.1.4.11 dwAccess.
RECEIVE_ACCESS: Final = 0x01
PEEK_ACCESS: Final = 0x20
MQ_MOVE_ACCESS: Final = 0x04


class SectionType(enum.IntEnum):
    """SectionType (MS-MQRR 2.2.7)."""

    FULL_PACKET = 0
    BINARY_FIRST_SECTION = 1
    BINARY_SECOND_SECTION = 2
    SRMP_FIRST_SECTION = 3
    SRMP_SECOND_SECTION = 4


@dataclass(frozen=True, slots=True)
class SectionBuffer:
    """SectionBuffer (MS-MQRR 2.2.6)."""

    section_buffer_type: Annotated[int, enum16]
    section_size_alloc: Annotated[int, u32]
    section_size: Annotated[int, u32]
    p_section_buffer: Annotated[bytes | None, Unique(Conformant(u8)), Related(size_is="section_size")]


SECTION_BUFFER: Final = Struct(SectionBuffer)

# Parameters of the methods that open a queue (3.1.4.2, 3.1.4.11).
_OPEN: Final = (
    In("p_queue_format", QUEUE_FORMAT),
    In("dw_access", u32),
    In("dw_share_mode", u32),
    In("p_client_id", guid),
    In("f_non_routing_server", i32),
    In("major", u8),
    In("minor", u8),
    In("build_number", u16),
    In("f_workgroup", i32),
)
# Parameters and results of a read (3.1.4.7, 3.1.4.13).
_READ: Final = (
    In("ph_context", QUEUE_CONTEXT_HANDLE),
    In("lookup_id", u64),
    In("h_cursor", u32),
    In("ul_action", u32),
    In("ul_timeout", u32),
    In("dw_request_id", u32),
    In("dw_max_body_size", u32),
    In("dw_max_compound_message_size", u32),
)
_MESSAGE: Final = (
    Out("pdw_arrive_time", u32),
    Out("p_sequence_id", u64),
    Out("pdw_number_of_sections", u32),
    Out("pp_packet_sections", Unique(Conformant(SECTION_BUFFER)), size_is="pdw_number_of_sections"),
)
_END: Final = (
    In("ph_context", QUEUE_CONTEXT_HANDLE),
    In("dw_ack", u32.within(RemoteReadAck.RR_NACK, RemoteReadAck.RR_ACK)),
    In("dw_request_id", u32),
)

R_GET_SERVER_PORT: Final = Method(0, "R_GetServerPort", returns=u32)
R_OPEN_QUEUE: Final = Method(2, "R_OpenQueue", *_OPEN, Out("pph_context", QUEUE_CONTEXT_HANDLE))
R_CLOSE_QUEUE: Final = Method(3, "R_CloseQueue", InOut("pph_context", QUEUE_CONTEXT_HANDLE), returns=HRESULT)
R_CREATE_CURSOR: Final = Method(
    4, "R_CreateCursor", In("ph_context", QUEUE_CONTEXT_HANDLE), Out("ph_cursor", u32), returns=HRESULT
)
R_CLOSE_CURSOR: Final = Method(
    5, "R_CloseCursor", In("ph_context", QUEUE_CONTEXT_HANDLE), In("h_cursor", u32), returns=HRESULT
)
R_PURGE_QUEUE: Final = Method(6, "R_PurgeQueue", In("ph_context", QUEUE_CONTEXT_HANDLE), returns=HRESULT)
R_START_RECEIVE: Final = Method(7, "R_StartReceive", *_READ, *_MESSAGE, returns=HRESULT)
R_CANCEL_RECEIVE: Final = Method(
    8, "R_CancelReceive", In("ph_context", QUEUE_CONTEXT_HANDLE), In("dw_request_id", u32), returns=HRESULT
)
R_END_RECEIVE: Final = Method(9, "R_EndReceive", *_END, returns=HRESULT)
R_MOVE_MESSAGE: Final = Method(
    10,
    "R_MoveMessage",
    In("ph_context_from", QUEUE_CONTEXT_HANDLE),
    In("ull_context_to", u64),
    In("lookup_id", u64),
    In("p_transaction_id", XACTUOW),
    returns=HRESULT,
)
R_OPEN_QUEUE_FOR_MOVE: Final = Method(
    11, "R_OpenQueueForMove", *_OPEN, Out("p_move_context", u64), Out("pph_context", QUEUE_CONTEXT_HANDLE)
)
R_QM_ENLIST_REMOTE_TRANSACTION: Final = Method(
    12,
    "R_QMEnlistRemoteTransaction",
    In("p_transaction_id", XACTUOW),
    In("cb_propagation_token", u32.within(0, MAX_PROPAGATION_TOKEN)),
    In("pb_propagation_token", Conformant(u8), size_is="cb_propagation_token"),
    In("p_queue_format", QUEUE_FORMAT),
    returns=HRESULT,
)
R_START_TRANSACTIONAL_RECEIVE: Final = Method(
    13, "R_StartTransactionalReceive", *_READ, In("p_transaction_id", XACTUOW), *_MESSAGE, returns=HRESULT
)
R_SET_USER_ACKNOWLEDGEMENT_CLASS: Final = Method(
    14,
    "R_SetUserAcknowledgementClass",
    In("ph_context", QUEUE_CONTEXT_HANDLE),
    In("lookup_id", u64),
    In("us_class", u16),
    returns=HRESULT,
)
R_END_TRANSACTIONAL_RECEIVE: Final = Method(15, "R_EndTransactionalReceive", *_END, returns=HRESULT)

# MS-MQRR 2.2: both transfer syntaxes.
REMOTE_READ: Final = Interface(
    "RemoteRead",
    UUID("1a9134dd-7b39-45ba-ad88-44d01ca47f28"),
    (1, 0),
    [
        R_GET_SERVER_PORT,
        # Opnum1NotUsedOnWire.
        None,
        R_OPEN_QUEUE,
        R_CLOSE_QUEUE,
        R_CREATE_CURSOR,
        R_CLOSE_CURSOR,
        R_PURGE_QUEUE,
        R_START_RECEIVE,
        R_CANCEL_RECEIVE,
        R_END_RECEIVE,
        R_MOVE_MESSAGE,
        R_OPEN_QUEUE_FOR_MOVE,
        R_QM_ENLIST_REMOTE_TRANSACTION,
        R_START_TRANSACTIONAL_RECEIVE,
        R_SET_USER_ACKNOWLEDGEMENT_CLASS,
        R_END_TRANSACTIONAL_RECEIVE,
    ],
)
