"""Answers of the queue client's methods (MS-MQMP 2.2).

A StatusError is returned as an HRESULT. An answer that depends on a change waits until the change
is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.model.errors import StatusError
from lanner.rpc.ndr import Value
from lanner.rpc.server import WhenDurable
from lanner.security.log_lines import log_of_peer

if TYPE_CHECKING:
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler

_LOG: Final = logging.getLogger(__name__)

Results: TypeAlias = Mapping[str, Value]
Answer: TypeAlias = Results | int
Answers: TypeAlias = Answer | WhenDurable | Awaitable[Answer]


def answering(handler: Handler) -> Handler:
    """Wrap a handler so that its StatusErrors are answers.

    After an error, the output parameters are NULL or unchanged.
    """

    def answer(call: ServerCall, **arguments: Value) -> Answers:
        try:
            result = handler(call, **arguments)
        except StatusError as error:
            return _refused(call, error)
        return result if isinstance(result, (int, Mapping, WhenDurable)) else _later(call, result)

    return answer


async def _later(call: ServerCall, result: Awaitable[Answer]) -> Answer:
    try:
        return await result
    except StatusError as error:
        return _refused(call, error)


def _refused(call: ServerCall, error: StatusError) -> int:
    log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
    return error.status
