"""Calls of MS-MQMP, MS-MQQP, MS-MQMR, the endpoint mapper and RPC management by each caller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from lanner.model.errors import MQ_OK
from lanner.rpc.endpoint_mapper import EPMAPPER
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.mgmt import MGMT
from lanner.rpc.ndr import NULL_HANDLE, Pointed
from lanner.security.access_masks import QueueAccess
from lanner.services.interfaces import mqmp, mqmr, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2, CACCreateRemoteCursor, CACTransferBufferV1, ObjectFormat
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import QMMGMT, MgmtObject
from lanner.services.interfaces.mqqp import QM2QM, RemoteReadDesc, RemoteReadDesc2
from lanner.services.queue_client_buffers import receive_buffer, send_buffer
from lanner.services.remote_read import MQ_ACTION_RECEIVE, MQ_LOOKUP_RECEIVE_NEXT
from lanner.wire.builder import MessageProperties
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE
from lanner.wire.vartypes import VT
from tests.adversity.matrix.callers import Caller, Probe, Probes, outcome
from tests.adversity.matrix.table import Outcome
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_INVALID_PARAMETER, STATUS_INVALID_PARAMETER

RECEIVE, SEND, PEEK = 1, 2, 0x20
CLIENT: Final = uuid.UUID("0badc0de-0000-4000-8000-000000000001")
_DACL: Final = 4
_LABEL: Final = 108
# Everyone may send with the old list; a new list is for users who may write one.
_LIST: Final = SecurityDescriptor(dacl=Acl((allow(EVERYONE, QueueAccess.GENERIC_ALL),))).pack()


def format_of(name: str) -> QueueFormat:
    return QueueFormat(3, 0, 0, rf"OS:.\private$\{name}")


# Queues of MS-MQMP that are open
# ----------------------------------------------------------------------------------------


async def open_queue(caller: Caller, name: str, access: int) -> dict[str, Any]:
    return await caller.results(
        QMCOMM,
        mqmp.RPC_QM_OPEN_QUEUE_INTERNAL,
        p_queue_format=format_of(name),
        dw_desired_access=access,
        dw_share_mode=0,
        h_remote_queue=0,
        lplp_remote_queue_name=Pointed(None),
        dwp_queue=0,
        p_lic_guid=CLIENT,
        lp_client_name="client",
        dw_remote_protocol=0,
        dwp_remote_context=0,
    )


async def opened(caller: Caller, access: int = RECEIVE) -> tuple[bytes, int]:
    """Open a queue with the requested access, or else to send, or use the owner's handle."""
    name = await caller.world.queue()
    whose = caller.owner if caller.takes_anothers else caller
    results = await open_queue(whose, name, access)
    if results[RETURNS] == MQ_ERROR_ACCESS_DENIED:
        results = await open_queue(whose, name, SEND)
    assert results[RETURNS] == MQ_OK, hex(results[RETURNS])
    return results["ph_queue"], results["pdw_qm_context"]


def opening(access: int) -> Probe:
    async def probe(caller: Caller) -> str:
        try:
            return outcome((await open_queue(caller, await caller.world.queue(), access))[RETURNS])
        except RpcFault as fault:
            return outcome(fault.status)

    return probe


def on_handle(act: Callable[[Caller, bytes], Awaitable[int]], access: int = RECEIVE, *done: int) -> Probe:
    async def probe(caller: Caller) -> str:
        handle, _ = await opened(caller, access)
        return outcome(await act(caller, handle), *done)

    return probe


async def send(caller: Caller, handle: bytes) -> int:
    return await caller.status(
        QMCOMM2,
        mqmp.RPC_AC_SEND_MESSAGE_EX,
        h_queue=handle,
        ptb=send_buffer(MessageProperties(body=b"x")),
        p_message_id=MessageIdentifier(uuid.UUID(int=0), 0),
    )


async def receive(caller: Caller) -> str:
    _, context = await opened(caller)
    buffer = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=64)
    return outcome(await caller.status(QMCOMM2, mqmp.RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=context, ptb=buffer))


async def send_at_once(caller: Caller) -> str:
    return outcome(
        await caller.status(
            QMCOMM2,
            mqmp.QM_SEND_MESSAGE_INTERNAL_EX,
            p_queue_format=format_of(await caller.world.queue()),
            ptb=send_buffer(MessageProperties(body=b"x")),
            p_message_id=MessageIdentifier(uuid.UUID(int=0), 0),
        )
    )


def _cursor(method: Method, **arguments: object) -> Callable[[Caller, bytes], Awaitable[int]]:
    async def act(caller: Caller, handle: bytes) -> int:
        number = 1
        if not caller.takes_anothers:
            made = await caller.results(
                QMCOMM2, mqmp.RPC_AC_CREATE_CURSOR_EX, h_queue=handle, pcc=CACCreateRemoteCursor()
            )
            number = made["pcc"].h_cursor
        return await caller.status(QMCOMM, method, h_queue=handle, h_cursor=number, **arguments)

    return act


async def create_cursor(caller: Caller, handle: bytes) -> int:
    return await caller.status(QMCOMM2, mqmp.RPC_AC_CREATE_CURSOR_EX, h_queue=handle, pcc=CACCreateRemoteCursor())


async def set_cursor_properties(caller: Caller, handle: bytes) -> int:
    return await caller.status(QMCOMM, mqmp.RPC_AC_SET_CURSOR_PROPERTIES, h_proxy=handle, h_cursor=1, h_remote_cursor=2)


async def format_name(caller: Caller, handle: bytes) -> int:
    return await caller.status(
        QMCOMM,
        mqmp.RPC_AC_HANDLE_TO_FORMAT_NAME,
        h_queue=handle,
        dw_format_name_rpc_buffer_len=200,
        lpwcs_format_name="\0" * 200,
        pdw_length=200,
    )


async def close(caller: Caller, handle: bytes) -> int:
    return await caller.status(QMCOMM, mqmp.RPC_AC_CLOSE_HANDLE, ph_queue=handle)


async def purge(caller: Caller, handle: bytes) -> int:
    return await caller.status(QMCOMM, mqmp.RPC_AC_PURGE_QUEUE, h_queue=handle)


# Queues as objects
# --------------------------------------------------------------------------------------------------


def on_object(method: Method, *done: int, **arguments: object) -> Probe:
    async def probe(caller: Caller) -> str:
        subject = ObjectFormat(1, format_of(await caller.world.queue()))
        return outcome(await caller.status(QMCOMM, method, p_object_format=subject, **arguments), *done)

    return probe


async def create(caller: Caller) -> str:
    return outcome(
        await caller.status(
            QMCOMM,
            mqmp.R_QM_CREATE_OBJECT_INTERNAL,
            dw_object_type=1,
            lpwcs_path_name=rf".\private$\{caller.world.new_name()}",
            sd_size=0,
            p_security_descriptor=None,
            cp=1,
            a_prop=(_LABEL,),
            ap_var=(PropVariant(VT.LPWSTR, "label"),),
        )
    )


async def path_to_format(caller: Caller) -> str:
    return outcome(
        await caller.status(
            QMCOMM,
            mqmp.R_QM_OBJECT_PATH_TO_OBJECT_FORMAT,
            lpwcs_path_name=rf".\private$\{await caller.world.queue()}",
            p_object_format=ObjectFormat(1, QueueFormat(0, 0, 0, None)),
        )
    )


# Transactions
# --------------------------------------------------------------------------------------------------


async def enlist(caller: Caller) -> str:
    return outcome(await caller.status(QMCOMM, mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=uuid.uuid4().bytes_le))


def ending(method: Method) -> Probe:
    async def probe(caller: Caller) -> str:
        whose = caller.owner if caller.takes_anothers else caller
        begun = await whose.results(QMCOMM, mqmp.R_QM_ENLIST_INTERNAL_TRANSACTION, p_uow=uuid.uuid4().bytes_le)
        return outcome(await caller.status(QMCOMM, method, ph_int_xact=begun["ph_int_xact"]))

    return probe


def plainly(interface: Interface, method: Method, *done: int, **arguments: object) -> Probe:
    async def probe(caller: Caller) -> str:
        return outcome(await caller.status(interface, method, **arguments), *done)

    return probe


def port(interface: Interface, method: Method, **arguments: object) -> Probe:
    """A port is no status."""

    async def probe(caller: Caller) -> str:
        number = await caller.status(interface, method, **arguments)
        return Outcome.YES if 0 < number < 1 << 16 and number != 5 else outcome(number)

    return probe


# Remote read: MS-MQQP and its half of MS-MQMP
# ---------------------------------------------------------------------------------


async def open_remote(caller: Caller, name: str, access: int) -> dict[str, Any]:
    return await caller.results(
        QMCOMM,
        mqmp.R_QM_OPEN_REMOTE_QUEUE,
        p_queue_format=format_of(name),
        dw_calling_process_id=0,
        dw_desired_access=access,
        dw_share_mode=0,
        p_lic_guid=CLIENT,
        dw_mqs=0,
    )


def opening_remote(access: int) -> Probe:
    async def probe(caller: Caller) -> str:
        return outcome((await open_remote(caller, await caller.world.queue(), access))[RETURNS])

    return probe


def reader(caller: Caller) -> Caller:
    """Return who opens a queue for a caller: itself if it may, else the owner."""
    return caller if caller.column in ("owner", "administrator") else caller.owner


async def remote(caller: Caller, *, has_messages: bool = True) -> tuple[int, bytes]:
    """Do the first half of an open.

    A user has no number and guesses one; another user has the owner's.
    """
    name = await caller.world.queue(has_messages=has_messages)
    results = await open_remote(reader(caller), name, RECEIVE)
    assert results[RETURNS] == MQ_OK, hex(results[RETURNS])
    number = results["ph_queue"]
    return number ^ 0x5A5A_5A5A if caller.column == "user" else number, results["pph_context"]


async def both(caller: Caller, *, has_messages: bool = True) -> tuple[int, bytes]:
    """Do both halves."""
    number, _ = await remote(caller, has_messages=has_messages)
    known = number ^ 0x5A5A_5A5A if caller.column == "user" else number
    results = await reader(caller).results(QM2QM, mqqp.REMOTE_QM_OPEN_QUEUE, **_second(known))
    assert results[RETURNS] == MQ_OK, hex(results[RETURNS])
    return number, results["ph_context"]


def by_number(status: int) -> str:
    """Return the outcome for a method whose handles are numbers; unknown ones are invalid."""
    return Outcome.NONE if status in _NO_NUMBER else outcome(status)


async def close_remote(caller: Caller) -> str:
    _, context = await remote(caller)
    return outcome(await caller.status(QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, pph_context=context))


async def remote_cursor(caller: Caller) -> str:
    number, _ = await remote(caller)
    buffer = CACTransferBufferV1(2, CACCreateRemoteCursor())
    return by_number(await caller.status(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, ptb1=buffer, h_queue=number))


def _second(number: int) -> dict[str, Any]:
    return {"p_lic_guid": CLIENT, "dw_mqs": 0, "h_queue": number, "p_queue": number, "dwp_context": number}


async def second_open(caller: Caller) -> str:
    number, _ = await remote(caller)
    return by_number(await caller.status(QM2QM, mqqp.REMOTE_QM_OPEN_QUEUE, **_second(number)))


async def close_second(caller: Caller) -> str:
    _, context = await both(caller)
    return outcome(await caller.status(QM2QM, mqqp.REMOTE_QM_CLOSE_QUEUE, pph_context=context))


def _desc(number: int, timeout: int = 0) -> RemoteReadDesc:
    return RemoteReadDesc(number, 0, MQ_ACTION_RECEIVE, timeout, 0, number, 1, 0, 0, 0, None)


async def start(caller: Caller) -> str:
    number, _ = await both(caller)
    return by_number(await caller.status(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=_desc(number)))


async def start2(caller: Caller) -> str:
    number, _ = await both(caller)
    desc = RemoteReadDesc2(_desc(number), 0)
    return by_number(await caller.status(QM2QM, mqqp.REMOTE_QM_START_RECEIVE2, lp_remote_read_desc2=desc))


async def start_by_lookup_id(caller: Caller) -> str:
    number, _ = await both(caller)
    desc = RemoteReadDesc2(replace(_desc(number), ul_action=MQ_LOOKUP_RECEIVE_NEXT), 0)
    method = mqqp.REMOTE_QM_START_RECEIVE_BY_LOOKUP_ID
    return by_number(await caller.status(QM2QM, method, lookup_id=0, lp_remote_read_desc2=desc))


async def end_receive(caller: Caller) -> str:
    number, _ = await both(caller)
    known = number ^ 0x5A5A_5A5A if caller.column == "user" else number
    begun = await reader(caller).results(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=_desc(known))
    assert begun[RETURNS] == MQ_OK, hex(begun[RETURNS])
    context = begun["pph_context"]
    return outcome(await caller.status(QM2QM, mqqp.REMOTE_QM_END_RECEIVE, pph_context=context, dw_ack=2))


async def cancel_receive(caller: Caller) -> str:
    number, _ = await both(caller, has_messages=False)
    known = number ^ 0x5A5A_5A5A if caller.column == "user" else number
    desc = _desc(known, 60_000)
    waiting = asyncio.ensure_future(
        reader(caller).results(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=desc)
    )
    try:
        # The server takes the calls of a connection in their order; others need not come later.
        await reader(caller).results(QM2QM, mqqp.REMOTE_QM_GET_VERSION)
        arguments = {"h_queue": number, "p_queue": number, "dw_request_id": desc.dw_request_id}
        return outcome(await caller.status(QM2QM, mqqp.REMOTE_QM_CANCEL_RECEIVE, **arguments))
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def close_remote_cursor(caller: Caller) -> str:
    number, _ = await both(caller)
    known = number ^ 0x5A5A_5A5A if caller.column == "user" else number
    buffer = CACTransferBufferV1(2, CACCreateRemoteCursor())
    made = await reader(caller).results(QMCOMM, mqmp.R_QM_CREATE_REMOTE_CURSOR, ptb1=buffer, h_queue=known)
    arguments = {"h_queue": number, "h_cursor": made["ph_cursor"]}
    return by_number(await caller.status(QM2QM, mqqp.REMOTE_QM_CLOSE_CURSOR, **arguments))


async def purge_remote(caller: Caller) -> str:
    number, _ = await both(caller)
    return by_number(await caller.status(QM2QM, mqqp.REMOTE_QM_PURGE_QUEUE, h_queue=number))


# Management
# --------------------------------------------------------------------------------------------------


async def queue_info(caller: Caller) -> str:
    subject = MgmtObject(2, format_of(await caller.world.queue()))
    return outcome(
        await caller.status(QMMGMT, mqmr.R_QM_MGMT_GET_INFO, p_object_format=subject, cp=1, a_prop=(1,), ap_var=(NULL,))
    )


_NO_NUMBER: Final = {MQ_ERROR_INVALID_PARAMETER, STATUS_INVALID_PARAMETER}
EPT: Final = {method.name: method for method in EPMAPPER.methods if method is not None}
RPC_MGMT: Final = {method.name: method for method in MGMT.methods if method is not None}

QMCOMM_PROBES: Final[Probes] = {
    ("rpc_QMOpenQueueInternal", "to send"): opening(SEND),
    ("rpc_QMOpenQueueInternal", "to receive"): opening(RECEIVE),
    ("rpc_QMOpenQueueInternal", "to peek"): opening(PEEK),
    ("rpc_ACCloseHandle", ""): on_handle(close),
    ("rpc_ACPurgeQueue", ""): on_handle(purge),
    ("rpc_ACCloseCursor", ""): on_handle(_cursor(mqmp.RPC_AC_CLOSE_CURSOR)),
    ("rpc_ACSetCursorProperties", ""): on_handle(set_cursor_properties),
    ("rpc_ACHandleToFormatName", ""): on_handle(format_name),
    ("R_QMCreateObjectInternal", ""): create,
    ("R_QMDeleteObject", ""): on_object(mqmp.R_QM_DELETE_OBJECT),
    ("R_QMSetObjectSecurityInternal", ""): on_object(
        mqmp.R_QM_SET_OBJECT_SECURITY_INTERNAL,
        security_information=_DACL,
        sd_size=len(_LIST),
        p_security_descriptor=_LIST,
    ),
    ("R_QMGetObjectSecurityInternal", ""): on_object(
        mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL, requested_information=_DACL, n_length=2000
    ),
    ("R_QMGetObjectProperties", ""): on_object(mqmp.R_QM_GET_OBJECT_PROPERTIES, cp=1, a_prop=(_LABEL,), ap_var=(NULL,)),
    ("R_QMSetObjectProperties", ""): on_object(
        mqmp.R_QM_SET_OBJECT_PROPERTIES, cp=1, a_prop=(_LABEL,), ap_var=(PropVariant(VT.LPWSTR, "new"),)
    ),
    ("R_QMObjectPathToObjectFormat", ""): path_to_format,
    ("R_QMEnlistInternalTransaction", ""): enlist,
    ("R_QMEnlistTransaction", ""): plainly(
        QMCOMM, mqmp.R_QM_ENLIST_TRANSACTION, p_uow=bytes(16), cb_cookie=3, pb_cookie=b"abc"
    ),
    ("R_QMCommitTransaction", ""): ending(mqmp.R_QM_COMMIT_TRANSACTION),
    ("R_QMAbortTransaction", ""): ending(mqmp.R_QM_ABORT_TRANSACTION),
    ("R_QMGetTmWhereabouts", ""): plainly(QMCOMM, mqmp.R_QM_GET_TM_WHEREABOUTS, cb_buf_size=200),
    ("R_QMQueryQMRegistryInternal", ""): plainly(QMCOMM, mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=1),
    ("R_QMGetRemoteQueueName", ""): plainly(
        QMCOMM, mqmp.R_QM_GET_REMOTE_QUEUE_NAME, p_queue=7, lplp_remote_queue_name=Pointed(None)
    ),
    ("R_QMGetRTQMServerPort", ""): port(QMCOMM, mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0),
    ("R_QMOpenRemoteQueue", "to receive"): opening_remote(RECEIVE),
    ("R_QMOpenRemoteQueue", "to peek"): opening_remote(PEEK),
    ("R_QMCloseRemoteQueueContext", ""): close_remote,
    ("R_QMCreateRemoteCursor", ""): remote_cursor,
}
QMCOMM2_PROBES: Final[Probes] = {
    ("QMSendMessageInternalEx", ""): send_at_once,
    ("rpc_ACSendMessageEx", ""): on_handle(send, SEND),
    ("rpc_ACReceiveMessageEx", ""): receive,
    ("rpc_ACCreateCursorEx", ""): on_handle(create_cursor),
}
QM2QM_PROBES: Final[Probes] = {
    ("RemoteQMOpenQueue", ""): second_open,
    ("RemoteQMCloseQueue", ""): close_second,
    ("RemoteQMStartReceive", ""): start,
    ("RemoteQMStartReceive2", ""): start2,
    ("RemoteQMStartReceiveByLookupId", ""): start_by_lookup_id,
    ("RemoteQMEndReceive", ""): end_receive,
    ("RemoteQMCancelReceive", ""): cancel_receive,
    ("RemoteQMCloseCursor", ""): close_remote_cursor,
    ("RemoteQMPurgeQueue", ""): purge_remote,
    ("RemoteQMGetQMQMServerPort", ""): port(QM2QM, mqqp.REMOTE_QM_GET_QMQM_SERVER_PORT, dw_port_type=0),
    ("RemoteQmGetVersion", ""): plainly(QM2QM, mqqp.REMOTE_QM_GET_VERSION),
}
QMMGMT_PROBES: Final[Probes] = {
    ("R_QMMgmtGetInfo", "of the computer"): plainly(
        QMMGMT,
        mqmr.R_QM_MGMT_GET_INFO,
        p_object_format=MgmtObject(1, 0),
        cp=1,
        a_prop=(1,),
        ap_var=(NULL,),
    ),
    ("R_QMMgmtGetInfo", "of a queue"): queue_info,
    ("R_QMMgmtAction", ""): plainly(
        QMMGMT, mqmr.R_QM_MGMT_ACTION, p_object_format=MgmtObject(1, 0), lpwsz_action="TIDY"
    ),
}
EPMAPPER_PROBES: Final[Probes] = {
    ("ept_lookup", ""): plainly(
        EPMAPPER,
        EPT["ept_lookup"],
        inquiry_type=0,
        object=None,
        ifid=None,
        vers_option=1,
        entry_handle=NULL_HANDLE,
        max_ents=3,
    ),
    ("ept_map", ""): plainly(
        EPMAPPER, EPT["ept_map"], obj=None, map_tower=None, entry_handle=NULL_HANDLE, max_towers=4
    ),
    ("ept_lookup_handle_free", ""): plainly(EPMAPPER, EPT["ept_lookup_handle_free"], entry_handle=NULL_HANDLE),
}


def _mgmt(name: str, **arguments: object) -> Probe:
    async def probe(caller: Caller) -> str:
        try:
            results = await caller.results(MGMT, RPC_MGMT[name], **arguments)
        except RpcFault as fault:
            return outcome(fault.status)
        return outcome(results["status"])

    return probe


MGMT_PROBES: Final[Probes] = {
    ("rpc__mgmt_inq_if_ids", ""): _mgmt("rpc__mgmt_inq_if_ids"),
    ("rpc__mgmt_inq_stats", ""): _mgmt("rpc__mgmt_inq_stats", count=4),
    ("rpc__mgmt_is_server_listening", ""): _mgmt("rpc__mgmt_is_server_listening"),
    ("rpc__mgmt_stop_server_listening", ""): _mgmt("rpc__mgmt_stop_server_listening"),
    ("rpc__mgmt_inq_princ_name", ""): _mgmt("rpc__mgmt_inq_princ_name", authn_proto=10, princ_name_size=512),
}
