"""qm2qm, the remote-read interface (MS-MQQP 2.2, 3.1.4, 6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import (
    ConformantVarying,
    ContextHandle,
    Related,
    Struct,
    Unique,
    enum16,
    guid,
    u8,
    u16,
    u32,
    u64,
)
from lanner.services.interfaces.mqmq import HRESULT

# MS-MQQP 2.2.2.1: [range(0, 4325376)] DWORD dwSize.
MAX_BUFFER_SIZE: Final = 0x0042_0000

PCTX_RRSESSION_HANDLE_TYPE: Final = ContextHandle("PCTX_RRSESSION_HANDLE_TYPE")  # MS-MQQP 2.2.1.1
PCTX_REMOTEREAD_HANDLE_TYPE: Final = ContextHandle("PCTX_REMOTEREAD_HANDLE_TYPE")  # MS-MQQP 2.2.1.2


class RemoteReadAck(enum.IntEnum):
    """REMOTEREADACK (MS-MQQP 2.2.1.3)."""

    RR_UNKNOWN = 0
    RR_NACK = 1
    RR_ACK = 2


class PortType(enum.IntEnum):
    """The kinds of port that RemoteQMGetQMQMServerPort returns (MS-MQQP 3.1.4.8)."""

    IP_HANDSHAKE = 0
    IP_READ = 1
    IPX_HANDSHAKE = 2
    IPX_READ = 3


@dataclass(frozen=True, slots=True)
class RemoteReadDesc:
    """REMOTEREADDESC (MS-MQQP 2.2.2.1). A request has dw_size 0 and no buffer."""

    h_remote_queue: Annotated[int, u32]
    h_cursor: Annotated[int, u32]
    ul_action: Annotated[int, u32]
    ul_timeout: Annotated[int, u32]  # milliseconds
    dw_size: Annotated[int, u32.within(0, MAX_BUFFER_SIZE)]
    dw_queue: Annotated[int, u32]
    dw_request_id: Annotated[int, u32]
    reserved: Annotated[int, u32]
    dw_arrive_time: Annotated[int, u32]  # seconds since 1970 UTC
    e_ack_nack: Annotated[int, enum16]
    lp_buffer: Annotated[bytes | None, Unique(ConformantVarying(u8)), Related(size_is="dw_size", length_is="dw_size")]


REMOTEREADDESC: Final = Struct(RemoteReadDesc)


@dataclass(frozen=True, slots=True)
class RemoteReadDesc2:
    """REMOTEREADDESC2 (MS-MQQP 2.2.2.2)."""

    p_remote_read_desc: Annotated[RemoteReadDesc | None, Unique(REMOTEREADDESC)]
    sequential_id: Annotated[int, u64]


REMOTEREADDESC2: Final = Struct(RemoteReadDesc2)

REMOTE_QM_START_RECEIVE: Final = Method(
    0,
    "RemoteQMStartReceive",
    Out("pph_context", PCTX_REMOTEREAD_HANDLE_TYPE),
    InOut("lp_remote_read_desc", REMOTEREADDESC),
    returns=HRESULT,
)
REMOTE_QM_END_RECEIVE: Final = Method(
    1,
    "RemoteQMEndReceive",
    InOut("pph_context", PCTX_REMOTEREAD_HANDLE_TYPE),
    In("dw_ack", u32.within(RemoteReadAck.RR_NACK, RemoteReadAck.RR_ACK)),
    returns=HRESULT,
)
REMOTE_QM_OPEN_QUEUE: Final = Method(
    2,
    "RemoteQMOpenQueue",
    Out("ph_context", PCTX_RRSESSION_HANDLE_TYPE),
    In("p_lic_guid", guid),
    In("dw_mqs", u32.within(0, 16)),
    In("h_queue", u32),
    In("p_queue", u32),
    In("dwp_context", u32),
    returns=HRESULT,
)
REMOTE_QM_CLOSE_QUEUE: Final = Method(
    3, "RemoteQMCloseQueue", InOut("pph_context", PCTX_RRSESSION_HANDLE_TYPE), returns=HRESULT
)
REMOTE_QM_CLOSE_CURSOR: Final = Method(
    4, "RemoteQMCloseCursor", In("h_queue", u32), In("h_cursor", u32), returns=HRESULT
)
REMOTE_QM_CANCEL_RECEIVE: Final = Method(
    5,
    "RemoteQMCancelReceive",
    In("h_queue", u32),
    In("p_queue", u32),
    In("dw_request_id", u32),
    returns=HRESULT,
)
REMOTE_QM_PURGE_QUEUE: Final = Method(6, "RemoteQMPurgeQueue", In("h_queue", u32), returns=HRESULT)
REMOTE_QM_GET_QMQM_SERVER_PORT: Final = Method(
    7,
    "RemoteQMGetQMQMServerPort",
    In("dw_port_type", u32.within(PortType.IP_HANDSHAKE, PortType.IPX_READ)),
    returns=u32,
)
REMOTE_QM_GET_VERSION: Final = Method(
    8, "RemoteQmGetVersion", Out("p_major", u8), Out("p_minor", u8), Out("p_build_number", u16)
)
REMOTE_QM_START_RECEIVE2: Final = Method(
    9,
    "RemoteQMStartReceive2",
    Out("pph_context", PCTX_REMOTEREAD_HANDLE_TYPE),
    InOut("lp_remote_read_desc2", REMOTEREADDESC2),
    returns=HRESULT,
)
REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID: Final = Method(
    10,
    "RemoteQMStartReceiveByLookupId",
    In("lookup_id", u64),
    Out("pph_context", PCTX_REMOTEREAD_HANDLE_TYPE),
    InOut("lp_remote_read_desc2", REMOTEREADDESC2),
    returns=HRESULT,
)

# MS-MQQP 2.2: both transfer syntaxes.
QM2QM: Final = Interface(
    "qm2qm",
    UUID("1088a980-eae5-11d0-8d9b-00a02453c337"),
    (1, 0),
    [
        REMOTE_QM_START_RECEIVE,
        REMOTE_QM_END_RECEIVE,
        REMOTE_QM_OPEN_QUEUE,
        REMOTE_QM_CLOSE_QUEUE,
        REMOTE_QM_CLOSE_CURSOR,
        REMOTE_QM_CANCEL_RECEIVE,
        REMOTE_QM_PURGE_QUEUE,
        REMOTE_QM_GET_QMQM_SERVER_PORT,
        REMOTE_QM_GET_VERSION,
        REMOTE_QM_START_RECEIVE2,
        REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID,
    ],
)
