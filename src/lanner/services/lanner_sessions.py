"""Session handles of Lanner's own interface: one context handle for all open objects of a client.

A handle serves only the user that it was issued to, and is run down with the last connection of its
association. The engine checks the caller's rights when a queue is opened.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final, cast

from lanner.model.errors import (
    MQ_OK,
    GenericError,
    InsufficientResources,
    InvalidParameter,
    RemoteProtocolError,
    StatusError,
)
from lanner.rpc import frames
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import NULL_HANDLE
from lanner.security.log_lines import log_of_peer
from lanner.services.interfaces.lanner import (
    LANNER_BEGIN_STREAM,
    LANNER_CALL,
    LANNER_CLOSE_SESSION,
    LANNER_OPEN_SESSION,
    LANNER_SESSION_HANDLE,
    Document,
    pack_frame,
    unpack_frame,
)
from lanner.services.lanner_session import LannerSession, Reply, SendRefused
from lanner.services.lanner_stream import LannerStream
from lanner.services.open_objects import OpenObjects
from lanner.services.sent_batches import ClientMemory

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler, Results

_LOG: Final = logging.getLogger(__name__)
_KIND: Final = LANNER_SESSION_HANDLE.kind
# Not in the specification: the maximum number of sessions per association. A client needs one.
MAX_SESSIONS: Final = 16


class LannerSessions:
    """The handlers of the session methods."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._committer = committer
        self._run = uuid.uuid4()
        self._memory = ClientMemory()
        self._of_users = OpenObjects()

    @property
    def handlers(self) -> dict[str, Handler]:
        """Handlers by method name."""
        return {
            LANNER_OPEN_SESSION.name: self.open_session,
            LANNER_CLOSE_SESSION.name: self.close_session,
            LANNER_CALL.name: self.call,
            LANNER_BEGIN_STREAM.name: self.begin_stream,
        }

    def open_session(self, call: ServerCall) -> Results:
        if sum(1 for _ in call.caller.group.handles.values(_KIND)) >= MAX_SESSIONS:
            return InsufficientResources.status
        session = LannerSession(self._engine, self._committer, call.identity, self._memory, self._of_users)
        try:
            self._of_users.require_room(call.identity, session)
            return {"session": call.caller.add(session, _KIND, session.close), RETURNS: MQ_OK}
        except InsufficientResources as error:
            session.close()
            return error.status
        except RpcFault:
            session.close()
            raise

    def close_session(self, call: ServerCall, session: bytes) -> Results:
        cast("LannerSession", call.caller.remove(session, _KIND)).close()
        return {"session": NULL_HANDLE, RETURNS: MQ_OK}

    def begin_stream(self, call: ServerCall, session: bytes, version: int) -> Results:
        """Begin the stream of a session on the connection that made the call."""
        opened = cast("LannerSession", call.caller.get(session, _KIND))
        connection = call.connection
        if version < frames.VERSION:
            return InvalidParameter.status
        # The keys are sent in the answer, which is sealed. On a Unix socket the kernel identifies
        # the peer, and no keys are needed.
        keys = b"" if call.security is None else secrets.token_bytes(2 * frames.KEY_SIZE)
        to_server, to_client = keys[: frames.KEY_SIZE], keys[frames.KEY_SIZE :]
        stream = LannerStream(opened, self._committer, connection)
        connection.begin_frames(frames.Frames(to_client, to_server), stream)
        return {
            "agreed": frames.VERSION,
            "run": self._run,
            "keys_size": len(keys),
            "keys": keys,
            RETURNS: MQ_OK,
        }

    def call(self, call: ServerCall, session: bytes, size: int, request: bytes) -> Results | Awaitable[Results]:
        del size
        opened = cast("LannerSession", call.caller.get(session, _KIND))
        try:
            reply = opened.handle(*unpack_frame(bytes(request)))
        except Exception as error:  # noqa: BLE001 (an answer, or logged and answered)
            return _failed(call, error)
        return _answer(reply) if isinstance(reply, tuple) else _later(call, reply)


async def _later(call: ServerCall, reply: Awaitable[Reply]) -> Results:
    try:
        return _answer(await reply)
    except Exception as error:  # noqa: BLE001 (an answer, or logged and answered)
        return _failed(call, error)


def _answer(reply: Reply, status: int = MQ_OK) -> Mapping[str, object]:
    frame = pack_frame(*reply)
    return {"answer_size": len(frame), "answer": frame, RETURNS: status}


def _failed(call: ServerCall, error: Exception) -> Mapping[str, object]:
    document: Document = {}
    match error:
        case SendRefused():
            document["ids"] = error.sent
            text, status = error.error.args[0], error.error.status
        case StatusError():
            text, status = error.args[0], error.status
        case RemoteProtocolError():
            raise error
        case _:
            log_of_peer(_LOG, logging.ERROR, "failed", call.peer, "%r failed", call, exc_info=error)
            text = f"{type(error).__name__}: {error}; this is a fault of Lanner, and its log shows where"
            status = GenericError.status
    document["error"] = text
    return _answer((document, b""), status)
