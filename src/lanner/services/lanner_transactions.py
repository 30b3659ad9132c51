"""Requests about distributed transactions in a session (host/distributed.py).

Undecided transactions that a session has begun at the coordinator are aborted when it ends. A
prepared branch no longer belongs to the session, and outlives it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from lanner.host.distributed import Answer, Document
from lanner.model.errors import StatusError
from lanner.services.request_fields import Request, find_open

if TYPE_CHECKING:
    from lanner.host.change import Change
    from lanner.model.live import Transaction
    from lanner.services.lanner_session import LannerSession

Reply: TypeAlias = tuple[Document, bytes]

Handler: TypeAlias = Callable[["LannerSession", Request, memoryview], Awaitable[Reply]]


def _handle(session: LannerSession, request: Request, octets: memoryview) -> Awaitable[Reply]:
    del octets
    with session.committer.change() as change:
        answer = session.distributed.answer(request)
    return _later(change, answer)


def _begin(session: LannerSession, request: Request, octets: memoryview) -> Awaitable[Reply]:
    reply = _handle(session, request, octets)
    session.coordinated[UUID(request["identifier"])] = None
    return reply


def _end(session: LannerSession, request: Request, octets: memoryview) -> Awaitable[Reply]:
    reply = _handle(session, request, octets)
    for value in request["transactions"]:
        session.coordinated.pop(UUID(value), None)
    return reply


def _prepare(session: LannerSession, request: Request, octets: memoryview) -> Awaitable[Reply]:
    number = request.get("transaction")
    if number is None:
        # A branch enlisted by a propagation token belongs to no session.
        return _handle(session, request, octets)
    del octets
    transaction = find_open(session.transactions, number, "transaction")
    with session.committer.change() as change:
        answer = session.distributed.answer(request, transaction)
    session.forget_transaction(request["transaction"], transaction)
    return _prepared(session, request["transaction"], transaction, _later(change, answer))


async def _prepared(
    session: LannerSession, number: int, transaction: Transaction, reply: Coroutine[Any, Any, Reply]
) -> Reply:
    try:
        return await reply
    except StatusError:
        if not transaction.is_over and not transaction.is_prepared:
            # The prepared state could not be written, so the transaction still ends with the
            # session.
            session.transactions[number] = transaction
        raise


async def _later(change: Change, answer: Answer) -> Reply:
    await change
    return answer(), b""


def close(session: LannerSession) -> None:
    """End the transactions that the session has begun. The caller holds the store's lock."""
    session.distributed.abandon(session.coordinated)
    session.coordinated.clear()


REQUESTS: Final[dict[str, Handler]] = {
    "coordinator": _handle,
    "outcomes": _handle,
    "begin distributed": _begin,
    "decide": _handle,
    "end distributed": _end,
    "prepare": _prepare,
    "branches": _handle,
    "end branch": _handle,
}
