"""Lanner's own RPC interface: who answers, documents for administrators, and sessions for everybody."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from lanner.model.errors import MQ_OK, AccessDenied, GenericError, InvalidParameter, StatusError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.server import ServerInterface
from lanner.security.log_lines import log_of_peer
from lanner.services.callers import refuse_in_hardened_mode, require_administrator
from lanner.services.documents import Document, Documents
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK, LANNER_WHO, MAX_REQUEST_SIZE
from lanner.services.lanner_sessions import LannerSessions

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.change import Change
    from lanner.host.committer import Committer
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results
    from lanner.rpc.server_socket import ServerSocket
    from lanner.transfer.transfer import Transfer

_LOG: Final = logging.getLogger(__name__)


class LannerInterface(ServerInterface):
    """The interface of one queue manager. `about` is what only the daemon knows."""

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        transfer: Transfer | None = None,
        about: Callable[[], Document] = dict,
        clients: Callable[[], list[ServerSocket]] = list,
    ) -> None:
        sessions = LannerSessions(engine, committer)
        self._engine = engine
        self._about = about
        self._documents = Documents(engine, committer, transfer, about, clients)
        super().__init__(
            LANNER,
            {LANNER_WHO.name: self.who, LANNER_ASK.name: self.ask, **sessions.handlers},
            authorize=refuse_in_hardened_mode(engine),
            # It administers, and every client of it is ours.
            least_level=AuthLevel.PKT_PRIVACY,
            denied=AccessDenied.status,
            max_request_size=MAX_REQUEST_SIZE,
        )

    def who(self, call: ServerCall) -> Results:
        """Answer everybody whom the server admits."""
        del call
        qm = self._engine.queue_manager
        return {
            "name": qm.computer_name,
            "identifier": qm.identifier,
            "version": str(self._about().get("version", "")),
            RETURNS: MQ_OK,
        }

    def ask(self, call: ServerCall, request: str) -> Results | Awaitable[Results]:
        """Answer an administrator's request with a document, or with the text of an error."""
        try:
            require_administrator(self._engine, call.identity)
            asked = _read(request)
            work = self._documents.slow(asked)
            if work is not None:
                return _in_thread(call, work)
            document, change = self._documents.answer(call.identity, asked)
        except StatusError as error:
            log_of_peer(_LOG, logging.INFO, "refused", call.peer, "%r: %s", call, error)
            return {"answer": str(error.args[0]), RETURNS: error.status}
        except Exception as error:  # noqa: BLE001 (logged, and answered)
            return _failed(call, error)
        results: Results = {"answer": json.dumps(document), RETURNS: MQ_OK}
        return _when_durable(change, results) if change.is_pending else results


def _read(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter(f"the request is not JSON: {error}") from None


def _failed(call: ServerCall, error: Exception) -> Results:
    log_of_peer(_LOG, logging.ERROR, "failed", call.peer, "%r failed", call, exc_info=error)
    text = f"{type(error).__name__}: {error}; this is a fault of Lanner, and its log shows where"
    return {"answer": text, RETURNS: GenericError.status}


async def _in_thread(call: ServerCall, work: Callable[[], object]) -> Results:
    try:
        return {"answer": json.dumps(await asyncio.to_thread(work)), RETURNS: MQ_OK}
    except StatusError as error:
        return {"answer": str(error.args[0]), RETURNS: error.status}
    except Exception as error:  # noqa: BLE001 (logged, and answered)
        return _failed(call, error)


async def _when_durable(change: Change, results: Results) -> Results:
    try:
        await change
    except StatusError as error:
        return {"answer": str(error.args[0]), RETURNS: error.status}
    return results
