"""qmcomm and qmcomm2, the interfaces of the queue client (MS-MQMP 2.2, 3.1.4, 6)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias
from uuid import UUID

from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import (
    Conformant,
    ConformantVarying,
    ContextHandle,
    Full,
    Pointed,
    Related,
    Struct,
    Syntax,
    Union,
    Unique,
    guid,
    i32,
    pointed,
    u8,
    u16,
    u32,
    wchar,
    wide_string,
)
from lanner.services.interfaces.mqmq import HRESULT, OBJECTID, PROPVARIANT, QUEUE_FORMAT, XACTUOW, QueueFormat
from lanner.wire.identifiers import MessageIdentifier

# The [range] attributes of MS-MQMP 6.
MAX_SECURITY_DESCRIPTOR_SIZE: Final = 524288
MAX_PROPERTIES: Final = 128
MAX_WHEREABOUTS_SIZE: Final = 131072
MAX_FORMAT_NAME_LENGTH: Final = 1024  # WCHARs, in a receive
MAX_FORMAT_NAME_BUFFER_LENGTH: Final = 524288  # WCHARs, in rpc_ACHandleToFormatName

PCTX_OPENREMOTE_HANDLE_TYPE: Final = ContextHandle("PCTX_OPENREMOTE_HANDLE_TYPE")  # MS-MQMP 2.2.1.1.3
RPC_QUEUE_HANDLE: Final = ContextHandle("RPC_QUEUE_HANDLE")  # MS-MQMP 2.2.1.1.2
RPC_INT_XACT_HANDLE: Final = ContextHandle("RPC_INT_XACT_HANDLE")  # MS-MQMP 2.2.1.1.1

# A pointer to a pointer: an application's variable that a receive fills in.
Octets: TypeAlias = Pointed[bytes | None] | None
Characters: TypeAlias = Pointed[str | None] | None
_octets: Final = Unique(pointed(Unique(Conformant(u8))))
_octets_in_use: Final = Unique(pointed(Unique(ConformantVarying(u8))))
_characters: Final = Unique(pointed(Unique(Conformant(wchar))))
_characters_in_use: Final = Unique(pointed(Unique(ConformantVarying(wchar))))
_identifier: Final = Unique(pointed(Unique(OBJECTID)))
_guid: Final = Unique(pointed(Unique(guid)))


class TransferType(enum.IntEnum):
    """TRANSFER_TYPE (MS-MQMP 2.2.2.1)."""

    CACTB_SEND = 0
    CACTB_RECEIVE = 1
    CACTB_CREATECURSOR = 2


@dataclass(frozen=True, slots=True)
class CACCreateRemoteCursor:
    """CACCreateRemoteCursor (MS-MQMP 2.2.3.4)."""

    h_cursor: Annotated[int, u32] = 0
    srv_h_ac_queue: Annotated[int, u32] = 0
    cli_p_qm_queue: Annotated[int, u32] = 0


CAC_CREATE_REMOTE_CURSOR: Final = Struct(CACCreateRemoteCursor)


@dataclass(frozen=True, slots=True)
class CACTransferSend:
    """The member Send of CACTransferBufferV1."""

    p_admin_queue_format: Annotated[QueueFormat | None, Unique(QUEUE_FORMAT)] = None
    p_response_queue_format: Annotated[QueueFormat | None, Unique(QUEUE_FORMAT)] = None


_format_name_length: Final = u32.within(0, MAX_FORMAT_NAME_LENGTH)


@dataclass(frozen=True, slots=True)
class CACTransferReceive:
    """The member Receive of CACTransferBufferV1."""

    request_timeout: Annotated[int, u32] = 0  # milliseconds
    action: Annotated[int, u32] = 0
    asynchronous: Annotated[int, u32] = 0
    cursor: Annotated[int, u32] = 0
    ul_response_format_name_len: Annotated[int, _format_name_length] = 0
    pp_response_format_name: Annotated[Characters, _characters, Related(size_is="ul_response_format_name_len")] = None
    pul_response_format_name_len_prop: Annotated[int | None, Unique(u32)] = None
    ul_admin_format_name_len: Annotated[int, _format_name_length] = 0
    pp_admin_format_name: Annotated[Characters, _characters, Related(size_is="ul_admin_format_name_len")] = None
    pul_admin_format_name_len_prop: Annotated[int | None, Unique(u32)] = None
    ul_dest_format_name_len: Annotated[int, _format_name_length] = 0
    pp_dest_format_name: Annotated[Characters, _characters, Related(size_is="ul_dest_format_name_len")] = None
    pul_dest_format_name_len_prop: Annotated[int | None, Unique(u32)] = None
    ul_ordering_format_name_len: Annotated[int, _format_name_length] = 0
    pp_ordering_format_name: Annotated[Characters, _characters, Related(size_is="ul_ordering_format_name_len")] = None
    pul_ordering_format_name_len_prop: Annotated[int | None, Unique(u32)] = None


_TRANSFER_ARMS: Final = Union(
    u32,
    {
        TransferType.CACTB_SEND: Struct(CACTransferSend),
        TransferType.CACTB_RECEIVE: Struct(CACTransferReceive),
        TransferType.CACTB_CREATECURSOR: CAC_CREATE_REMOTE_CURSOR,
    },
)
TransferArm: TypeAlias = CACTransferSend | CACTransferReceive | CACCreateRemoteCursor


@dataclass(frozen=True, slots=True)
class CACTransferBufferV1:
    """CACTransferBufferV1 (MS-MQMP 2.2.3.2): a message to send, or buffers for a received one."""

    u_transfer_type: Annotated[int, u32.within(TransferType.CACTB_SEND, TransferType.CACTB_CREATECURSOR)]
    u: Annotated[TransferArm, _TRANSFER_ARMS, Related(switch_is="u_transfer_type")]
    p_class: Annotated[int | None, Unique(u16)] = None
    pp_message_id: Annotated[Pointed[MessageIdentifier | None] | None, _identifier] = None
    pp_correlation_id: Annotated[Octets, _octets_in_use, Related(size_is=20, length_is=20)] = None
    p_sent_time: Annotated[int | None, Unique(u32)] = None
    p_arrived_time: Annotated[int | None, Unique(u32)] = None
    p_priority: Annotated[int | None, Unique(u8)] = None
    p_delivery: Annotated[int | None, Unique(u8)] = None
    p_acknowledge: Annotated[int | None, Unique(u8)] = None
    p_auditing: Annotated[int | None, Unique(u8)] = None
    p_application_tag: Annotated[int | None, Unique(u32)] = None
    pp_body: Annotated[
        Octets,
        _octets_in_use,
        Related(size_is="ul_alloc_body_buffer_in_bytes", length_is="ul_body_buffer_size_in_bytes"),
    ] = None
    ul_body_buffer_size_in_bytes: Annotated[int, u32] = 0
    ul_alloc_body_buffer_in_bytes: Annotated[int, u32] = 0
    p_body_size: Annotated[int | None, Unique(u32)] = None
    pp_title: Annotated[
        Characters,
        _characters_in_use,
        Related(size_is="ul_title_buffer_size_in_wchars", length_is="ul_title_buffer_size_in_wchars"),
    ] = None
    ul_title_buffer_size_in_wchars: Annotated[int, u32] = 0
    pul_title_buffer_size_in_wchars: Annotated[int | None, Unique(u32)] = None
    ul_absolute_time_to_queue: Annotated[int, u32] = 0
    pul_relative_time_to_queue: Annotated[int | None, Unique(u32)] = None
    ul_relative_time_to_live: Annotated[int, u32] = 0
    pul_relative_time_to_live: Annotated[int | None, Unique(u32)] = None
    p_trace: Annotated[int | None, Unique(u8)] = None
    pul_sender_id_type: Annotated[int | None, Unique(u32)] = None
    pp_sender_id: Annotated[Octets, _octets, Related(size_is="u_sender_id_len")] = None
    pul_sender_id_len_prop: Annotated[int | None, Unique(u32)] = None
    pul_priv_level: Annotated[int | None, Unique(u32)] = None
    ul_auth_level: Annotated[int, u32] = 0
    p_authenticated: Annotated[int | None, Unique(u8)] = None
    pul_hash_alg: Annotated[int | None, Unique(u32)] = None
    pul_encrypt_alg: Annotated[int | None, Unique(u32)] = None
    pp_sender_cert: Annotated[Octets, _octets, Related(size_is="ul_sender_cert_len")] = None
    ul_sender_cert_len: Annotated[int, u32] = 0
    pul_sender_cert_len_prop: Annotated[int | None, Unique(u32)] = None
    ppwcs_prov_name: Annotated[Characters, _characters, Related(size_is="ul_prov_name_len")] = None
    ul_prov_name_len: Annotated[int, u32] = 0
    pul_auth_prov_name_len_prop: Annotated[int | None, Unique(u32)] = None
    pul_prov_type: Annotated[int | None, Unique(u32)] = None
    f_default_provider: Annotated[int, i32] = 0
    pp_symm_keys: Annotated[Octets, _octets, Related(size_is="ul_symm_keys_size")] = None
    ul_symm_keys_size: Annotated[int, u32] = 0
    pul_symm_keys_size_prop: Annotated[int | None, Unique(u32)] = None
    b_encrypted: Annotated[int, u8] = 0
    b_authenticated: Annotated[int, u8] = 0
    u_sender_id_len: Annotated[int, u16] = 0
    pp_signature: Annotated[Octets, _octets, Related(size_is="ul_signature_size")] = None
    ul_signature_size: Annotated[int, u32] = 0
    pul_signature_size_prop: Annotated[int | None, Unique(u32)] = None
    pp_src_qm_id: Annotated[Pointed[UUID | None] | None, _guid] = None
    p_uow: Annotated[bytes | None, Unique(XACTUOW)] = None
    pp_msg_extension: Annotated[
        Octets,
        _octets_in_use,
        Related(size_is="ul_msg_extension_buffer_in_bytes", length_is="ul_msg_extension_buffer_in_bytes"),
    ] = None
    ul_msg_extension_buffer_in_bytes: Annotated[int, u32] = 0
    p_msg_extension_size: Annotated[int | None, Unique(u32)] = None
    pp_connector_type: Annotated[Pointed[UUID | None] | None, _guid] = None
    pul_body_type: Annotated[int | None, Unique(u32)] = None
    pul_version: Annotated[int | None, Unique(u32)] = None


CAC_TRANSFER_BUFFER_V1: Final = Struct(CACTransferBufferV1)


@dataclass(frozen=True, slots=True)
class CACTransferBufferV2:
    """CACTransferBufferV2 (MS-MQMP 2.2.3.3)."""

    old: Annotated[CACTransferBufferV1, CAC_TRANSFER_BUFFER_V1]
    pb_first_in_xact: Annotated[int | None, Unique(u8)] = None
    pb_last_in_xact: Annotated[int | None, Unique(u8)] = None
    pp_xact_id: Annotated[Pointed[MessageIdentifier | None] | None, _identifier] = None


CAC_TRANSFER_BUFFER_V2: Final = Struct(CACTransferBufferV2)

# The range allows 2, which has no arm; unpacking rejects it by its tag.
_OBJECT_ARMS: Final = Union(u32, {1: Unique(QUEUE_FORMAT)})


@dataclass(frozen=True, slots=True)
class ObjectFormat:
    """OBJECT_FORMAT (MS-MQMP 2.2.3.5)."""

    obj_type: Annotated[int, u32.within(1, 2)]
    u: Annotated[QueueFormat | None, _OBJECT_ARMS, Related(switch_is="obj_type")]


OBJECT_FORMAT: Final = Struct(ObjectFormat)

# [ptr, string] WCHAR**: the attribute applies to the outer pointer; the inner one has the
# interface's default, unique.
_remote_queue_name: Final = Full(pointed(Unique(wide_string)))
_security_descriptor_size: Final = u32.within(0, MAX_SECURITY_DESCRIPTOR_SIZE)
_cp: Final = u32.within(1, MAX_PROPERTIES)

R_QM_GET_REMOTE_QUEUE_NAME: Final = Method(
    1,
    "R_QMGetRemoteQueueName",
    In("p_queue", u32),
    InOut("lplp_remote_queue_name", _remote_queue_name),
    returns=HRESULT,
)
R_QM_OPEN_REMOTE_QUEUE: Final = Method(
    2,
    "R_QMOpenRemoteQueue",
    Out("pph_context", PCTX_OPENREMOTE_HANDLE_TYPE),
    Out("pdw_context", u32),
    In("p_queue_format", Unique(QUEUE_FORMAT)),
    In("dw_calling_process_id", u32),
    In("dw_desired_access", u32),
    In("dw_share_mode", u32),
    In("p_lic_guid", guid),
    In("dw_mqs", u32),
    Out("dwp_queue", u32),
    Out("ph_queue", u32),
    returns=HRESULT,
)
R_QM_CLOSE_REMOTE_QUEUE_CONTEXT: Final = Method(
    3, "R_QMCloseRemoteQueueContext", InOut("pph_context", PCTX_OPENREMOTE_HANDLE_TYPE)
)
R_QM_CREATE_REMOTE_CURSOR: Final = Method(
    4,
    "R_QMCreateRemoteCursor",
    In("ptb1", CAC_TRANSFER_BUFFER_V1),
    In("h_queue", u32),
    Out("ph_cursor", u32),
    returns=HRESULT,
)
R_QM_CREATE_OBJECT_INTERNAL: Final = Method(
    6,
    "R_QMCreateObjectInternal",
    In("dw_object_type", u32),
    In("lpwcs_path_name", wide_string),
    In("sd_size", _security_descriptor_size),
    In("p_security_descriptor", Unique(Conformant(u8)), size_is="sd_size"),
    In("cp", _cp),
    In("a_prop", Conformant(u32), size_is="cp"),
    In("ap_var", Conformant(PROPVARIANT), size_is="cp"),
    returns=HRESULT,
)
R_QM_SET_OBJECT_SECURITY_INTERNAL: Final = Method(
    7,
    "R_QMSetObjectSecurityInternal",
    In("p_object_format", OBJECT_FORMAT),
    In("security_information", u32),
    In("sd_size", _security_descriptor_size),
    In("p_security_descriptor", Unique(Conformant(u8)), size_is="sd_size"),
    returns=HRESULT,
)
R_QM_GET_OBJECT_SECURITY_INTERNAL: Final = Method(
    8,
    "R_QMGetObjectSecurityInternal",
    In("p_object_format", OBJECT_FORMAT),
    In("requested_information", u32),
    Out("p_security_descriptor", Conformant(u8), size_is="n_length"),
    In("n_length", _security_descriptor_size),
    Out("lpn_length_needed", u32),
    returns=HRESULT,
)
R_QM_DELETE_OBJECT: Final = Method(9, "R_QMDeleteObject", In("p_object_format", OBJECT_FORMAT), returns=HRESULT)
R_QM_GET_OBJECT_PROPERTIES: Final = Method(
    10,
    "R_QMGetObjectProperties",
    In("p_object_format", OBJECT_FORMAT),
    In("cp", _cp),
    In("a_prop", Conformant(u32), size_is="cp"),
    InOut("ap_var", Conformant(PROPVARIANT), size_is="cp"),
    returns=HRESULT,
)
R_QM_SET_OBJECT_PROPERTIES: Final = Method(
    11,
    "R_QMSetObjectProperties",
    In("p_object_format", OBJECT_FORMAT),
    In("cp", _cp),
    In("a_prop", Unique(Conformant(u32)), size_is="cp"),
    In("ap_var", Unique(Conformant(PROPVARIANT)), size_is="cp"),
    returns=HRESULT,
)
R_QM_OBJECT_PATH_TO_OBJECT_FORMAT: Final = Method(
    12,
    "R_QMObjectPathToObjectFormat",
    In("lpwcs_path_name", wide_string),
    InOut("p_object_format", OBJECT_FORMAT),
    returns=HRESULT,
)
R_QM_GET_TM_WHEREABOUTS: Final = Method(
    14,
    "R_QMGetTmWhereabouts",
    In("cb_buf_size", u32.within(0, MAX_WHEREABOUTS_SIZE)),
    Out("pb_whereabouts", Conformant(u8), size_is="cb_buf_size"),
    Out("pcb_whereabouts", u32),
    returns=HRESULT,
)
R_QM_ENLIST_TRANSACTION: Final = Method(
    15,
    "R_QMEnlistTransaction",
    In("p_uow", XACTUOW),
    In("cb_cookie", u32.within(0, MAX_WHEREABOUTS_SIZE)),
    In("pb_cookie", Conformant(u8), size_is="cb_cookie"),
    returns=HRESULT,
)
R_QM_ENLIST_INTERNAL_TRANSACTION: Final = Method(
    16,
    "R_QMEnlistInternalTransaction",
    In("p_uow", XACTUOW),
    Out("ph_int_xact", RPC_INT_XACT_HANDLE),
    returns=HRESULT,
)
R_QM_COMMIT_TRANSACTION: Final = Method(
    17, "R_QMCommitTransaction", InOut("ph_int_xact", RPC_INT_XACT_HANDLE), returns=HRESULT
)
R_QM_ABORT_TRANSACTION: Final = Method(
    18, "R_QMAbortTransaction", InOut("ph_int_xact", RPC_INT_XACT_HANDLE), returns=HRESULT
)
RPC_QM_OPEN_QUEUE_INTERNAL: Final = Method(
    19,
    "rpc_QMOpenQueueInternal",
    In("p_queue_format", QUEUE_FORMAT),
    In("dw_desired_access", u32),
    In("dw_share_mode", u32),
    In("h_remote_queue", u32),
    InOut("lplp_remote_queue_name", _remote_queue_name),
    In("dwp_queue", u32),
    In("p_lic_guid", guid),
    In("lp_client_name", wide_string),
    Out("pdw_qm_context", u32),
    Out("ph_queue", RPC_QUEUE_HANDLE),
    In("dw_remote_protocol", u32),
    In("dwp_remote_context", u32),
    returns=HRESULT,
)
RPC_AC_CLOSE_HANDLE: Final = Method(20, "rpc_ACCloseHandle", InOut("ph_queue", RPC_QUEUE_HANDLE), returns=HRESULT)
RPC_AC_CLOSE_CURSOR: Final = Method(
    22, "rpc_ACCloseCursor", In("h_queue", RPC_QUEUE_HANDLE), In("h_cursor", u32), returns=HRESULT
)
RPC_AC_SET_CURSOR_PROPERTIES: Final = Method(
    23,
    "rpc_ACSetCursorProperties",
    In("h_proxy", RPC_QUEUE_HANDLE),
    In("h_cursor", u32),
    In("h_remote_cursor", u32),
    returns=HRESULT,
)
RPC_AC_HANDLE_TO_FORMAT_NAME: Final = Method(
    26,
    "rpc_ACHandleToFormatName",
    In("h_queue", RPC_QUEUE_HANDLE),
    In("dw_format_name_rpc_buffer_len", u32.within(0, MAX_FORMAT_NAME_BUFFER_LENGTH)),
    InOut(
        "lpwcs_format_name",
        Unique(ConformantVarying(wchar)),
        size_is="dw_format_name_rpc_buffer_len",
        length_is="dw_format_name_rpc_buffer_len",
    ),
    InOut("pdw_length", u32),
    returns=HRESULT,
)
RPC_AC_PURGE_QUEUE: Final = Method(27, "rpc_ACPurgeQueue", In("h_queue", RPC_QUEUE_HANDLE), returns=HRESULT)
R_QM_QUERY_QM_REGISTRY_INTERNAL: Final = Method(
    28,
    "R_QMQueryQMRegistryInternal",
    In("dw_query_type", u32),
    Out("lplp_mqis_server", Unique(wide_string)),
    returns=HRESULT,
)
R_QM_GET_RTQM_SERVER_PORT: Final = Method(31, "R_QMGetRTQMServerPort", In("f_ip", u32), returns=u32)

# The document specifies only the NDR transfer syntax of C706. None stands for an opnum "reserved
# for local use" (MS-MQMP 3.1.4).
QMCOMM: Final = Interface(
    "qmcomm",
    UUID("fdb3a030-065f-11d1-bb9b-00a024ea5525"),
    (1, 0),
    [
        None,
        R_QM_GET_REMOTE_QUEUE_NAME,
        R_QM_OPEN_REMOTE_QUEUE,
        R_QM_CLOSE_REMOTE_QUEUE_CONTEXT,
        R_QM_CREATE_REMOTE_CURSOR,
        None,
        R_QM_CREATE_OBJECT_INTERNAL,
        R_QM_SET_OBJECT_SECURITY_INTERNAL,
        R_QM_GET_OBJECT_SECURITY_INTERNAL,
        R_QM_DELETE_OBJECT,
        R_QM_GET_OBJECT_PROPERTIES,
        R_QM_SET_OBJECT_PROPERTIES,
        R_QM_OBJECT_PATH_TO_OBJECT_FORMAT,
        None,
        R_QM_GET_TM_WHEREABOUTS,
        R_QM_ENLIST_TRANSACTION,
        R_QM_ENLIST_INTERNAL_TRANSACTION,
        R_QM_COMMIT_TRANSACTION,
        R_QM_ABORT_TRANSACTION,
        RPC_QM_OPEN_QUEUE_INTERNAL,
        RPC_AC_CLOSE_HANDLE,
        None,
        RPC_AC_CLOSE_CURSOR,
        RPC_AC_SET_CURSOR_PROPERTIES,
        None,
        None,
        RPC_AC_HANDLE_TO_FORMAT_NAME,
        RPC_AC_PURGE_QUEUE,
        R_QM_QUERY_QM_REGISTRY_INTERNAL,
        None,
        None,
        R_QM_GET_RTQM_SERVER_PORT,
        None,
        None,
        None,
    ],
    syntaxes=[Syntax.NDR20],
)

QM_SEND_MESSAGE_INTERNAL_EX: Final = Method(
    0,
    "QMSendMessageInternalEx",
    In("p_queue_format", QUEUE_FORMAT),
    In("ptb", CAC_TRANSFER_BUFFER_V2),
    InOut("p_message_id", Unique(OBJECTID)),
    returns=HRESULT,
)
RPC_AC_SEND_MESSAGE_EX: Final = Method(
    1,
    "rpc_ACSendMessageEx",
    In("h_queue", RPC_QUEUE_HANDLE),
    In("ptb", CAC_TRANSFER_BUFFER_V2),
    InOut("p_message_id", Unique(OBJECTID)),
    returns=HRESULT,
)
RPC_AC_RECEIVE_MESSAGE_EX: Final = Method(
    2,
    "rpc_ACReceiveMessageEx",
    In("h_qm_context", u32),
    InOut("ptb", CAC_TRANSFER_BUFFER_V2),
    returns=HRESULT,
)
RPC_AC_CREATE_CURSOR_EX: Final = Method(
    3,
    "rpc_ACCreateCursorEx",
    In("h_queue", RPC_QUEUE_HANDLE),
    InOut("pcc", CAC_CREATE_REMOTE_CURSOR),
    returns=HRESULT,
)

QMCOMM2: Final = Interface(
    "qmcomm2",
    UUID("76d12b80-3467-11d3-91ff-0090272f9ea3"),
    (1, 0),
    [
        QM_SEND_MESSAGE_INTERNAL_EX,
        RPC_AC_SEND_MESSAGE_EX,
        RPC_AC_RECEIVE_MESSAGE_EX,
        RPC_AC_CREATE_CURSOR_EX,
    ],
    syntaxes=[Syntax.NDR20],
)
