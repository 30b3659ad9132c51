"""Server side of Lanner's own RPC interface.

It identifies the queue manager to everyone, serves administration documents, and opens sessions for
all users.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lanner.host.fair_threads import FairThreads
from lanner.model.errors import MQ_OK, AccessDenied, GenericError, InvalidParameter, StatusError
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.server import ServerInterface
from lanner.security.log_lines import log_of_peer
from lanner.services.callers import refusal, refuse_in_hardened_mode
from lanner.services.documents import Document, Documents
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_ASK,
    LANNER_LOG_ON,
    LANNER_WHO,
    MAX_COMMAS,
    MAX_REQUEST_SIZE,
)
from lanner.services.lanner_sessions import LannerSessions

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.change import Change
    from lanner.host.committer import Committer
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler, Results
    from lanner.rpc.server_socket import ServerSocket
    from lanner.security.identity import Identity
    from lanner.services.log_on import LogOn
    from lanner.services.user_documents import UserDocuments
    from lanner.transfer.transfer import Transfer

_LOG: Final = logging.getLogger(__name__)


class LannerInterface(ServerInterface):
    """The interface of one queue manager; `about` returns the data that only the daemon has."""

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        transfer: Transfer | None = None,
        about: Callable[[], Document] = dict,
        log_on: LogOn | None = None,
        of_users: UserDocuments | None = None,
        others: Mapping[str, Callable[[Identity, Mapping[str, Any]], object]] | None = None,
        clients: Callable[[], list[ServerSocket]] = list,
    ) -> None:
        sessions = LannerSessions(engine, committer)
        self._engine = engine
        self._about = about
        self._documents = Documents(engine, committer, transfer, about, of_users, others, clients)
        self._slow = FairThreads()
        self._refuse_hardened = refuse_in_hardened_mode(engine)
        handlers: dict[str, Handler] = {LANNER_WHO.name: self.who, LANNER_ASK.name: self.ask, **sessions.handlers}
        if log_on is not None:
            handlers[LANNER_LOG_ON.name] = log_on.log_on
        super().__init__(
            LANNER,
            handlers,
            authorize=self._check,
            # The interface serves administration, and all of its clients are Lanner's own.
            least_level=AuthLevel.PKT_PRIVACY,
            # LannerLogOn does its own access check.
            open_to_all=[LANNER_LOG_ON.name],
            denied=AccessDenied.status,
            max_request_size=MAX_REQUEST_SIZE,
        )

    def _check(self, call: ServerCall) -> None:
        self._refuse_hardened(call)
        if call.connection.needs_log_on and call.opnum != LANNER_LOG_ON.opnum:
            raise RpcFault(FaultStatus.ACCESS_DENIED, f"{call!r}: nobody has logged on", did_not_execute=True)

    def who(self, call: ServerCall) -> Results:
        """Identify the queue manager to any client that the server admits."""
        del call
        qm = self._engine.queue_manager
        return {
            "name": qm.computer_name,
            "identifier": qm.identifier,
            "version": str(self._about().get("version", "")),
            RETURNS: MQ_OK,
        }

    def ask(self, call: ServerCall, request: str) -> Results | Awaitable[Results]:
        """Answer a request with a document, or with the text of an error."""
        try:
            asked = _read(request)
            self._documents.check(call.identity, asked)
            work = self._documents.slow(call.identity, asked)
            if work is not None:
                return _in_thread(call, self._slow.run(call.identity.sid, work))
            document, change = self._documents.answer(call.identity, asked)
        except StatusError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            return refusal(error)
        except Exception as error:  # noqa: BLE001 (logged, and answered)
            return _failed(call, error)
        results: Results = {"answer": json.dumps(document), RETURNS: MQ_OK}
        return _when_durable(change, results) if change.is_pending else results


def _read(text: str) -> object:
    # The size is checked first, because the document is parsed before any rights are checked.
    if text.count(",") > MAX_COMMAS:
        raise InvalidParameter(f"the request has more than {MAX_COMMAS} commas")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(f"the request is not JSON: {error}") from None


def _failed(call: ServerCall, error: Exception) -> Results:
    log_of_peer(_LOG, logging.ERROR, "failed", call.peer, "%r failed", call, exc_info=error)
    return refusal(GenericError(f"{type(error).__name__}: {error}; this is a fault of Lanner, and its log shows where"))


async def _in_thread(call: ServerCall, work: Awaitable[object]) -> Results:
    try:
        return {"answer": json.dumps(await work), RETURNS: MQ_OK}
    except StatusError as error:
        return refusal(error)
    except Exception as error:  # noqa: BLE001 (logged, and answered)
        return _failed(call, error)


async def _when_durable(change: Change, results: Results) -> Results:
    try:
        await change
    except StatusError as error:
        return refusal(error)
    return results
