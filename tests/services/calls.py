"""At least one call of every method of every interface.

The arguments and results use each kind of value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from lanner.rpc.interface import Interface, Method
from lanner.rpc.ndr import NULL_HANDLE, Pointed, Value
from lanner.services.interfaces import mqmp, mqmr, mqqp, mqrr
from lanner.services.interfaces.mqmp import (
    CACCreateRemoteCursor,
    CACTransferBufferV1,
    CACTransferBufferV2,
    CACTransferReceive,
    CACTransferSend,
    ObjectFormat,
)
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat
from lanner.services.interfaces.mqmr import MgmtObject
from lanner.services.interfaces.mqqp import RemoteReadDesc, RemoteReadDesc2
from lanner.services.interfaces.mqrr import SectionBuffer
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propvariant import EMPTY, NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.statuses import (
    MQ_ERROR,
    MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL,
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_TRANSACTION_USAGE,
)

INTERFACES = (mqmr.QMMGMT, mqqp.QM2QM, mqmp.QMCOMM, mqmp.QMCOMM2)

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")
HANDLE = bytes(4) + bytes(range(1, 17))
IDENTIFIER = MessageIdentifier(GUID, 0x01020304)
UOW = bytes(range(0xA0, 0xB0))

PUBLIC = QueueFormat(1, 0, 0, GUID)
PRIVATE = QueueFormat(2, 0x81, 0, IDENTIFIER)
DIRECT = QueueFormat(3, 0, 0, "OS:lanner\\private$\\orders")
LIST = QueueFormat(6, 0, 0, DlId(GUID, "example.com"))
MULTICAST = QueueFormat(7, 0, 0, MulticastId(0xEF010203, 8001))
SUBQUEUE = QueueFormat(8, 5, 0, "OS:lanner\\private$\\orders;sub")

VARIANTS = (
    EMPTY,
    NULL,
    PropVariant(VT.I1, -2),
    PropVariant(VT.UI1, 0xFE),
    PropVariant(VT.I2, -2),
    PropVariant(VT.UI2, 0xFFFE),
    PropVariant(VT.I4, -2),
    PropVariant(VT.UI4, 0xFFFF_FFFE),
    PropVariant(VT.I8, -2),
    PropVariant(VT.UI8, 0xFFFF_FFFF_FFFF_FFFE),
    PropVariant(VT.BOOL, True),
    PropVariant(VT.BOOL, False),
    PropVariant(VT.CLSID, GUID),
    PropVariant(VT.BLOB, b"\x01\x02\x03"),
    PropVariant(VT.LPWSTR, "odd"),
    PropVariant(VT.VECTOR | VT.UI1, b"\x04\x05"),
    PropVariant.vector(VT.UI2, [6, 7, 8]),
    PropVariant.vector(VT.I4, [-9, 10]),
    PropVariant.vector(VT.UI4, [11]),
    PropVariant.vector(VT.UI8, [12, 13]),
    PropVariant.vector(VT.CLSID, [GUID, UUID(int=1)]),
    PropVariant.vector(VT.LPWSTR, ["a", "", "three"]),
    PropVariant.vector(VT.VARIANT, [PropVariant(VT.LPWSTR, "in"), NULL, PropVariant.vector(VT.UI4, [14, 15])]),
)

REQUEST = RemoteReadDesc(7, 0, 0x80000000, 60_000, 0, 7, 1, 0, 0, 0, None)
REPLY = replace(REQUEST, dw_size=5, reserved=1, dw_arrive_time=0x6000_0000, e_ack_nack=2, lp_buffer=b"hello")

SEND = CACTransferBufferV1(
    0,
    CACTransferSend(PUBLIC, DIRECT),
    p_class=0,
    pp_message_id=Pointed(IDENTIFIER),
    pp_correlation_id=Pointed(bytes(range(20))),
    p_priority=3,
    p_delivery=1,
    p_acknowledge=0,
    p_auditing=2,
    p_application_tag=77,
    pp_body=Pointed(b"body!"),
    ul_body_buffer_size_in_bytes=5,
    ul_alloc_body_buffer_in_bytes=8,
    p_body_size=5,
    pp_title=Pointed("title\0"),
    ul_title_buffer_size_in_wchars=6,
    pul_title_buffer_size_in_wchars=6,
    ul_absolute_time_to_queue=0xFFFF_FFFF,
    ul_relative_time_to_live=0xFFFF_FFFF,
    p_trace=1,
    pul_sender_id_type=1,
    pp_sender_id=Pointed(b"\x01\x02\x03"),
    u_sender_id_len=3,
    pul_priv_level=0,
    pul_hash_alg=0x8004,
    pul_encrypt_alg=0x6801,
    pp_sender_cert=Pointed(b""),
    ppwcs_prov_name=Pointed("prov"),
    ul_prov_name_len=4,
    pul_prov_type=1,
    f_default_provider=-1,
    pp_symm_keys=Pointed(None),
    b_encrypted=1,
    pp_signature=Pointed(b"sig"),
    ul_signature_size=3,
    pp_src_qm_id=Pointed(GUID),
    p_uow=UOW,
    pp_msg_extension=Pointed(b"ext"),
    ul_msg_extension_buffer_in_bytes=3,
    p_msg_extension_size=3,
    pp_connector_type=Pointed(UUID(int=2)),
    pul_body_type=8,
    pul_version=0x10,
)
RECEIVE = CACTransferBufferV1(
    1,
    CACTransferReceive(
        request_timeout=1000,
        ul_response_format_name_len=4,
        pp_response_format_name=Pointed("\0\0\0\0"),
        pul_response_format_name_len_prop=4,
        ul_ordering_format_name_len=3,
        pp_ordering_format_name=Pointed("abc"),
        pul_dest_format_name_len_prop=0,
    ),
    p_class=0,
    pp_body=Pointed(b""),
    ul_alloc_body_buffer_in_bytes=1024,
    p_arrived_time=0,
)
# Without pointers to pointers.
PLAIN = CACTransferBufferV1(
    2,
    CACCreateRemoteCursor(1, 2, 3),
    p_class=1,
    p_sent_time=2,
    p_arrived_time=3,
    p_priority=4,
    pul_relative_time_to_queue=5,
    p_authenticated=6,
    b_authenticated=1,
    p_uow=UOW,
    pul_version=0x10,
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its answer."""

    interface: Interface
    method: Method
    arguments: dict[str, Value]
    results: dict[str, Value]

    def __str__(self) -> str:
        return self.method.name


def _calls() -> list[Call]:
    numbers: list[tuple[Method, dict[str, Any], dict[str, Any]]] = [
        (
            mqmr.R_QM_MGMT_GET_INFO,
            {
                "p_object_format": MgmtObject(2, queue_format),
                "cp": 2,
                "a_prop": (1, 27),
                "ap_var": (NULL, NULL),
            },
            {"ap_var": (NULL, PropVariant(VT.LPWSTR, "PRIVATE")), "returns": 0},
        )
        for queue_format in (PUBLIC, PRIVATE, DIRECT, LIST, MULTICAST, SUBQUEUE, QueueFormat(0, 0, 0, None), None)
    ]
    numbers += [
        (
            mqmr.R_QM_MGMT_GET_INFO,
            {"p_object_format": MgmtObject(1, 0), "cp": 1, "a_prop": (6,), "ap_var": (NULL,)},
            {"ap_var": (variant,), "returns": MQ_ERROR},
        )
        for variant in VARIANTS
    ]
    numbers += [
        (
            mqmr.R_QM_MGMT_GET_INFO,
            {
                "p_object_format": MgmtObject(3, 9),
                "cp": len(VARIANTS),
                "a_prop": tuple(range(len(VARIANTS))),
                "ap_var": VARIANTS,
            },
            {"ap_var": VARIANTS[::-1], "returns": 0},
        ),
        (mqmr.R_QM_MGMT_ACTION, {"p_object_format": MgmtObject(1, 0), "lpwsz_action": "CONNECT"}, {"returns": 0}),
        (mqmr.R_QM_MGMT_ACTION, {"p_object_format": MgmtObject(2, DIRECT), "lpwsz_action": ""}, {"returns": 0}),
        (
            mqqp.REMOTE_QM_START_RECEIVE,
            {"lp_remote_read_desc": REQUEST},
            {"pph_context": HANDLE, "lp_remote_read_desc": REPLY, "returns": 0},
        ),
        (
            mqqp.REMOTE_QM_START_RECEIVE,
            {"lp_remote_read_desc": REQUEST},
            {"pph_context": NULL_HANDLE, "lp_remote_read_desc": REQUEST, "returns": MQ_ERROR_IO_TIMEOUT},
        ),
        (
            mqqp.REMOTE_QM_END_RECEIVE,
            {"pph_context": HANDLE, "dw_ack": 2},
            {"pph_context": NULL_HANDLE, "returns": 0},
        ),
        (
            mqqp.REMOTE_QM_OPEN_QUEUE,
            {"p_lic_guid": GUID, "dw_mqs": 16, "h_queue": 7, "p_queue": 7, "dwp_context": 7},
            {"ph_context": HANDLE, "returns": 0},
        ),
        (mqqp.REMOTE_QM_CLOSE_QUEUE, {"pph_context": HANDLE}, {"pph_context": NULL_HANDLE, "returns": 0}),
        (mqqp.REMOTE_QM_CLOSE_CURSOR, {"h_queue": 7, "h_cursor": 8}, {"returns": 0}),
        (mqqp.REMOTE_QM_CANCEL_RECEIVE, {"h_queue": 7, "p_queue": 7, "dw_request_id": 9}, {"returns": 0}),
        (mqqp.REMOTE_QM_PURGE_QUEUE, {"h_queue": 7}, {"returns": MQ_ERROR_INVALID_HANDLE}),
        (mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, {"dw_port_type": 1}, {"returns": 2105}),
        (mqqp.REMOTE_QM_GET_VERSION, {}, {"p_major": 6, "p_minor": 1, "p_build_number": 7601}),
        (
            mqqp.REMOTE_QM_START_RECEIVE2,
            {"lp_remote_read_desc2": RemoteReadDesc2(REQUEST, 0)},
            {
                "pph_context": HANDLE,
                "lp_remote_read_desc2": RemoteReadDesc2(REPLY, 0x00FF_0000_0000_0001),
                "returns": 0,
            },
        ),
        (
            mqqp.REMOTE_QM_START_RECEIVE2,
            {"lp_remote_read_desc2": RemoteReadDesc2(None, 1)},
            {
                "pph_context": NULL_HANDLE,
                "lp_remote_read_desc2": RemoteReadDesc2(None, 0),
                "returns": MQ_ERROR_INVALID_HANDLE,
            },
        ),
        (
            mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID,
            {"lookup_id": (1 << 64) - 1, "lp_remote_read_desc2": RemoteReadDesc2(REQUEST, 0)},
            {"pph_context": HANDLE, "lp_remote_read_desc2": RemoteReadDesc2(REPLY, 2), "returns": 0},
        ),
        (
            mqmp.R_QM_GET_REMOTE_QUEUE_NAME,
            {"p_queue": 7, "lplp_remote_queue_name": Pointed(None)},
            {"lplp_remote_queue_name": Pointed("DIRECT=OS:a\\b"), "returns": 0},
        ),
        (
            mqmp.R_QM_GET_REMOTE_QUEUE_NAME,
            {"p_queue": 7, "lplp_remote_queue_name": None},
            {"lplp_remote_queue_name": None, "returns": MQ_ERROR_INVALID_PARAMETER},
        ),
        (
            mqmp.R_QM_OPEN_REMOTE_QUEUE,
            {
                "p_queue_format": DIRECT,
                "dw_calling_process_id": 1234,
                "dw_desired_access": 0x20,
                "dw_share_mode": 0,
                "p_lic_guid": GUID,
                "dw_mqs": 0,
            },
            {"pph_context": HANDLE, "pdw_context": 7, "dwp_queue": 7, "ph_queue": 7, "returns": 0},
        ),
        (mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, {"pph_context": HANDLE}, {"pph_context": NULL_HANDLE}),
        (mqmp.R_QM_CREATE_REMOTE_CURSOR, {"ptb1": PLAIN, "h_queue": 7}, {"ph_cursor": 8, "returns": 0}),
        (mqmp.R_QM_CREATE_REMOTE_CURSOR, {"ptb1": RECEIVE, "h_queue": 7}, {"ph_cursor": 8, "returns": 0}),
        (
            mqmp.R_QM_CREATE_OBJECT_INTERNAL,
            {
                "dw_object_type": 1,
                "lpwcs_path_name": "lanner\\private$\\orders",
                "sd_size": 3,
                "p_security_descriptor": b"\x01\x00\x04",
                "cp": 2,
                "a_prop": (103, 111),
                "ap_var": (PropVariant(VT.LPWSTR, "label"), PropVariant(VT.UI1, 1)),
            },
            {"returns": 0},
        ),
        (
            mqmp.R_QM_CREATE_OBJECT_INTERNAL,
            {
                "dw_object_type": 1,
                "lpwcs_path_name": ".\\private$\\a",
                "sd_size": 0,
                "p_security_descriptor": None,
                "cp": 1,
                "a_prop": (103,),
                "ap_var": (NULL,),
            },
            {"returns": MQ_ERROR_QUEUE_EXISTS},
        ),
        (
            mqmp.R_QM_SET_OBJECT_SECURITY_INTERNAL,
            {
                "p_object_format": ObjectFormat(1, PRIVATE),
                "security_information": 4,
                "sd_size": 2,
                "p_security_descriptor": b"\x01\x00",
            },
            {"returns": 0},
        ),
        (
            mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL,
            {"p_object_format": ObjectFormat(1, DIRECT), "requested_information": 7, "n_length": 5},
            {"p_security_descriptor": b"\x01\x00\x04\x80\x00", "lpn_length_needed": 5, "returns": 0},
        ),
        (mqmp.R_QM_DELETE_OBJECT, {"p_object_format": ObjectFormat(1, PRIVATE)}, {"returns": 0}),
        (mqmp.R_QM_DELETE_OBJECT, {"p_object_format": ObjectFormat(1, None)}, {"returns": MQ_ERROR_INVALID_PARAMETER}),
        (
            mqmp.R_QM_GET_OBJECT_PROPERTIES,
            {"p_object_format": ObjectFormat(1, PRIVATE), "cp": 2, "a_prop": (101, 103), "ap_var": (NULL, NULL)},
            {"ap_var": (PropVariant(VT.CLSID, GUID), PropVariant(VT.UI1, 1)), "returns": 0},
        ),
        (
            mqmp.R_QM_SET_OBJECT_PROPERTIES,
            {
                "p_object_format": ObjectFormat(1, PRIVATE),
                "cp": 1,
                "a_prop": (108,),
                "ap_var": (PropVariant(VT.LPWSTR, "new"),),
            },
            {"returns": 0},
        ),
        (
            mqmp.R_QM_OBJECT_PATH_TO_OBJECT_FORMAT,
            {
                "lpwcs_path_name": "lanner\\private$\\orders",
                "p_object_format": ObjectFormat(1, QueueFormat(0, 0, 0, None)),
            },
            {"p_object_format": ObjectFormat(1, PRIVATE), "returns": 0},
        ),
        (
            mqmp.R_QM_GET_TM_WHEREABOUTS,
            {"cb_buf_size": 4},
            {"pb_whereabouts": b"here", "pcb_whereabouts": 4, "returns": 0},
        ),
        (
            mqmp.R_QM_ENLIST_TRANSACTION,
            {"p_uow": UOW, "cb_cookie": 3, "pb_cookie": b"abc"},
            {"returns": MQ_ERROR_TRANSACTION_USAGE},
        ),
        (mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, {"p_uow": UOW}, {"ph_int_xact": HANDLE, "returns": 0}),
        (mqmp.R_QM_COMMIT_TRANSACTION, {"ph_int_xact": HANDLE}, {"ph_int_xact": NULL_HANDLE, "returns": 0}),
        (mqmp.R_QM_ABORT_TRANSACTION, {"ph_int_xact": HANDLE}, {"ph_int_xact": NULL_HANDLE, "returns": 0}),
        (
            mqmp.RPC_QM_OPEN_QUEUE_INTERNAL,
            {
                "p_queue_format": DIRECT,
                "dw_desired_access": 2,
                "dw_share_mode": 0,
                "h_remote_queue": 0,
                "lplp_remote_queue_name": Pointed("x"),
                "dwp_queue": 0,
                "p_lic_guid": GUID,
                "lp_client_name": "client",
                "dw_remote_protocol": 0,
                "dwp_remote_context": 0,
            },
            {"lplp_remote_queue_name": Pointed(None), "pdw_qm_context": 1, "ph_queue": HANDLE, "returns": 0},
        ),
        (mqmp.RPC_AC_CLOSE_HANDLE, {"ph_queue": HANDLE}, {"ph_queue": NULL_HANDLE, "returns": 0}),
        (mqmp.RPC_AC_CLOSE_CURSOR, {"h_queue": HANDLE, "h_cursor": 1}, {"returns": 0}),
        (
            mqmp.RPC_AC_SET_CURSOR_PROPERTIES,
            {"h_proxy": HANDLE, "h_cursor": 1, "h_remote_cursor": 2},
            {"returns": 0},
        ),
        (
            mqmp.RPC_AC_HANDLE_TO_FORMAT_NAME,
            {
                "h_queue": HANDLE,
                "dw_format_name_rpc_buffer_len": 5,
                "lpwcs_format_name": "\0\0\0\0\0",
                "pdw_length": 5,
            },
            {"lpwcs_format_name": "OS:a\0", "pdw_length": 5, "returns": 0},
        ),
        (
            mqmp.RPC_AC_HANDLE_TO_FORMAT_NAME,
            {"h_queue": HANDLE, "dw_format_name_rpc_buffer_len": 0, "lpwcs_format_name": None, "pdw_length": 0},
            {"lpwcs_format_name": None, "pdw_length": 5, "returns": MQ_ERROR_FORMATNAME_BUFFER_TOO_SMALL},
        ),
        (mqmp.RPC_AC_PURGE_QUEUE, {"h_queue": HANDLE}, {"returns": 0}),
        (
            mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL,
            {"dw_query_type": 1},
            {"lplp_mqis_server": "\\\\server", "returns": 0},
        ),
        (mqmp.R_QM_GET_RTQM_SERVER_PORT, {"f_ip": 1}, {"returns": 2103}),
        (
            mqmp.QM_SEND_MESSAGE_INTERNAL_EX,
            {
                "p_queue_format": LIST,
                "ptb": CACTransferBufferV2(SEND, 1, 0, Pointed(IDENTIFIER)),
                "p_message_id": IDENTIFIER,
            },
            {"p_message_id": IDENTIFIER, "returns": 0},
        ),
        (
            mqmp.RPC_AC_SEND_MESSAGE_EX,
            {"h_queue": HANDLE, "ptb": CACTransferBufferV2(PLAIN, 1, 0, None), "p_message_id": None},
            {"p_message_id": None, "returns": 0},
        ),
        (
            mqmp.RPC_AC_RECEIVE_MESSAGE_EX,
            {"h_qm_context": 1, "ptb": CACTransferBufferV2(RECEIVE)},
            {"ptb": CACTransferBufferV2(SEND), "returns": 0},
        ),
        (
            mqmp.RPC_AC_CREATE_CURSOR_EX,
            {"h_queue": HANDLE, "pcc": CACCreateRemoteCursor(0, 1, 2)},
            {"pcc": CACCreateRemoteCursor(9, 1, 2), "returns": 0},
        ),
    ]
    owners = {method: interface for interface in INTERFACES for method in interface.methods if method is not None}
    return [Call(owners[method], method, arguments, results) for method, arguments, results in numbers]


CALLS = _calls()


def _mqrr_calls() -> list[Call]:
    """Return the calls of MS-MQRR, which impacket does not have."""
    opens = {
        "dw_access": 1,
        "dw_share_mode": 1,
        "p_client_id": GUID,
        "f_non_routing_server": 1,
        "major": 6,
        "minor": 1,
        "build_number": 7601,
        "f_workgroup": -1,
    }
    reads = {
        "ph_context": HANDLE,
        "lookup_id": 0x0304_0506_0708_090A,
        "h_cursor": 1,
        "ul_action": 0x4000_0010,
        "ul_timeout": 2,
        "dw_request_id": 3,
        "dw_max_body_size": 4,
        "dw_max_compound_message_size": 5,
    }
    none = {"pdw_arrive_time": 0, "p_sequence_id": 0, "pdw_number_of_sections": 0, "pp_packet_sections": None}
    sections = (SectionBuffer(1, 9, 5, b"first"), SectionBuffer(2, 6, 6, b"second"))
    message = {
        "pdw_arrive_time": 0x6000_0000,
        "p_sequence_id": 0x04_0506_0708_090A,
        "pdw_number_of_sections": 2,
        "pp_packet_sections": sections,
    }
    ends = {"ph_context": HANDLE, "dw_ack": 2, "dw_request_id": 3}
    numbers: list[tuple[Method, dict[str, Any], dict[str, Any]]] = [
        (mqrr.R_GET_SERVER_PORT, {}, {"returns": 2103}),
        *(
            (mqrr.R_OPEN_QUEUE, {"p_queue_format": name, **opens}, {"pph_context": HANDLE})
            for name in (PUBLIC, PRIVATE, DIRECT, SUBQUEUE)
        ),
        (mqrr.R_CLOSE_QUEUE, {"pph_context": HANDLE}, {"pph_context": NULL_HANDLE, "returns": 0}),
        (mqrr.R_CREATE_CURSOR, {"ph_context": HANDLE}, {"ph_cursor": 7, "returns": 0}),
        (mqrr.R_CLOSE_CURSOR, {"ph_context": HANDLE, "h_cursor": 7}, {"returns": MQ_ERROR_INVALID_HANDLE}),
        (mqrr.R_PURGE_QUEUE, {"ph_context": HANDLE}, {"returns": 0}),
        (mqrr.R_START_RECEIVE, reads, {**none, "returns": MQ_ERROR_IO_TIMEOUT}),
        (mqrr.R_START_RECEIVE, reads, {**message, "returns": 0}),
        (mqrr.R_CANCEL_RECEIVE, {"ph_context": HANDLE, "dw_request_id": 3}, {"returns": 0}),
        (mqrr.R_END_RECEIVE, ends, {"returns": 0}),
        (
            mqrr.R_MOVE_MESSAGE,
            {"ph_context_from": HANDLE, "ull_context_to": 1 << 60, "lookup_id": 1 << 58, "p_transaction_id": UOW},
            {"returns": 0},
        ),
        (
            mqrr.R_OPEN_QUEUE_FOR_MOVE,
            {"p_queue_format": SUBQUEUE, **opens, "dw_access": 4},
            {"p_move_context": 1 << 60, "pph_context": HANDLE},
        ),
        (
            mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
            {
                "p_transaction_id": UOW,
                "cb_propagation_token": 5,
                "pb_propagation_token": b"token",
                "p_queue_format": PUBLIC,
            },
            {"returns": MQ_ERROR},
        ),
        (
            mqrr.R_START_TRANSACTIONAL_RECEIVE,
            {**reads, "p_transaction_id": UOW},
            {**none, "returns": MQ_ERROR_TRANSACTION_USAGE},
        ),
        (
            mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS,
            {"ph_context": HANDLE, "lookup_id": 1 << 58, "us_class": 0xC004},
            {"returns": 0},
        ),
        (mqrr.R_END_TRANSACTIONAL_RECEIVE, ends, {"returns": 0}),
    ]
    return [Call(mqrr.REMOTE_READ, method, arguments, results) for method, arguments, results in numbers]


MQRR_CALLS = _mqrr_calls()
