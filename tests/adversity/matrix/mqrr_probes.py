"""Calls of MS-MQRR as each caller makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import Method
from lanner.services.interfaces import mqrr
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqrr import REMOTE_READ
from tests.adversity.matrix.callers import Caller, Probe, Probes, outcome
from tests.adversity.matrix.rpc_probes import CLIENT, format_of, plainly, port
from tests.statuses import (
    MQ_ERROR_INVALID_HANDLE,
    MQ_ERROR_IO_TIMEOUT,
    MQ_ERROR_MESSAGE_NOT_FOUND,
    MQ_ERROR_TRANSACTION_IMPORT,
    STATUS_NOT_FOUND,
)

RECEIVE, PEEK, MOVE = 1, 0x20, 4
_NO_TRANSACTION: Final = bytes(16)
_TRANSACTION: Final = b"transaction 1234"


def _open(name: str, access: int) -> dict[str, Any]:
    queue_format = QueueFormat(8, 0, 0, rf"OS:.\private$\{name};sub") if access == MOVE else format_of(name)
    return {
        "p_queue_format": queue_format,
        "dw_access": access,
        "dw_share_mode": 0,
        "p_client_id": CLIENT,
        "f_non_routing_server": 1,
        "major": 6,
        "minor": 1,
        "build_number": 7601,
        "f_workgroup": 1,
    }


def opening(access: int) -> Probe:
    method = mqrr.R_OPEN_QUEUE_FOR_MOVE if access == MOVE else mqrr.R_OPEN_QUEUE

    async def probe(caller: Caller) -> str:
        return outcome(await caller.status(REMOTE_READ, method, **_open(await caller.world.queue(), access)))

    return probe


async def _opened(caller: Caller) -> bytes:
    """The handle of a queue: the caller's own if it may open one, else the owner's."""
    name = await caller.world.queue()
    for one in (caller, caller.owner):
        if one is caller and caller.takes_anothers:
            continue
        try:
            context: bytes = (await one.results(REMOTE_READ, mqrr.R_OPEN_QUEUE, **_open(name, RECEIVE)))["pph_context"]
        except RpcFault:
            continue
        return context
    raise AssertionError("not even the owner may open its queue")


def on_handle(act: Callable[[Caller, bytes], Awaitable[int]], *done: int) -> Probe:
    async def probe(caller: Caller) -> str:
        return outcome(await act(caller, await _opened(caller)), *done)

    return probe


def with_handle(method: Method, *done: int, **arguments: object) -> Probe:
    async def act(caller: Caller, context: bytes) -> int:
        return await caller.status(REMOTE_READ, method, ph_context=context, **arguments)

    return on_handle(act, *done)


async def _close(caller: Caller, context: bytes) -> int:
    return await caller.status(REMOTE_READ, mqrr.R_CLOSE_QUEUE, pph_context=context)


async def _close_cursor(caller: Caller, context: bytes) -> int:
    """A handle that the caller does not have is refused whatever the cursor."""
    try:
        cursor = (await caller.results(REMOTE_READ, mqrr.R_CREATE_CURSOR, ph_context=context)).get("ph_cursor", 1)
    except RpcFault:
        cursor = 1
    return await caller.status(REMOTE_READ, mqrr.R_CLOSE_CURSOR, ph_context=context, h_cursor=cursor)


def reading(method: Method, **more: object) -> Probe:
    return with_handle(
        method,
        MQ_ERROR_IO_TIMEOUT,
        lookup_id=0,
        h_cursor=0,
        ul_action=0x80000000,
        ul_timeout=0,
        dw_request_id=1,
        dw_max_body_size=0,
        dw_max_compound_message_size=0,
        **more,
    )


def ending(begins: Method, ends: Method, **more: object) -> Probe:
    """End a receive of one's own; those who have none name the owner's handle."""

    async def act(caller: Caller, context: bytes) -> int:
        arguments = {
            "lookup_id": 0,
            "h_cursor": 0,
            "ul_action": 0,
            "ul_timeout": 0,
            "dw_request_id": 1,
            "dw_max_body_size": 0,
            "dw_max_compound_message_size": 0,
        } | more
        await caller.status(REMOTE_READ, begins, ph_context=context, **arguments)
        return await caller.status(REMOTE_READ, ends, ph_context=context, dw_ack=1, dw_request_id=1)

    return on_handle(act)


async def _move(caller: Caller, context: bytes) -> int:
    """Move to a destination that does not exist; only a caller with the source learns that."""
    results = await caller.status(
        REMOTE_READ,
        mqrr.R_MOVE_MESSAGE,
        ph_context_from=context,
        ull_context_to=1,
        lookup_id=1,
        p_transaction_id=_NO_TRANSACTION,
    )
    return MQ_ERROR_IO_TIMEOUT if results == MQ_ERROR_INVALID_HANDLE else results


PROBES: Final[Probes] = {
    ("R_GetServerPort", ""): port(REMOTE_READ, mqrr.R_GET_SERVER_PORT),
    ("R_OpenQueue", "to receive"): opening(RECEIVE),
    ("R_OpenQueue", "to peek"): opening(PEEK),
    ("R_OpenQueueForMove", ""): opening(MOVE),
    ("R_CloseQueue", ""): on_handle(_close),
    ("R_CreateCursor", ""): with_handle(mqrr.R_CREATE_CURSOR),
    ("R_CloseCursor", ""): on_handle(_close_cursor),
    ("R_PurgeQueue", ""): with_handle(mqrr.R_PURGE_QUEUE),
    ("R_StartReceive", ""): reading(mqrr.R_START_RECEIVE),
    ("R_StartTransactionalReceive", ""): reading(mqrr.R_START_TRANSACTIONAL_RECEIVE, p_transaction_id=_NO_TRANSACTION),
    ("R_CancelReceive", ""): with_handle(mqrr.R_CANCEL_RECEIVE, STATUS_NOT_FOUND, dw_request_id=1),
    ("R_EndReceive", ""): ending(mqrr.R_START_RECEIVE, mqrr.R_END_RECEIVE),
    ("R_EndTransactionalReceive", ""): ending(
        mqrr.R_START_TRANSACTIONAL_RECEIVE, mqrr.R_END_TRANSACTIONAL_RECEIVE, p_transaction_id=_NO_TRANSACTION
    ),
    ("R_MoveMessage", ""): on_handle(_move, MQ_ERROR_IO_TIMEOUT),
    ("R_SetUserAcknowledgementClass", ""): with_handle(
        mqrr.R_SET_USER_ACKNOWLEDGEMENT_CLASS, MQ_ERROR_MESSAGE_NOT_FOUND, lookup_id=1, us_class=0
    ),
    ("R_QMEnlistRemoteTransaction", ""): plainly(
        REMOTE_READ,
        mqrr.R_QM_ENLIST_REMOTE_TRANSACTION,
        MQ_ERROR_TRANSACTION_IMPORT,
        p_transaction_id=_TRANSACTION,
        cb_propagation_token=4,
        pb_propagation_token=b"none",
        p_queue_format=QueueFormat(3, 0, 0, r"OS:.\private$\none"),
    ),
}
