"""One connection to another Lanner: session requests and answers (services/lanner_session.py)."""

# A read's time-out is the protocol's, kept by the queue manager.

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from lanner.client.message import ReceivedMessage
from lanner.model.errors import (
    LannerError,
    RemoteProtocolError,
    StatusError,
    status_error,
)
from lanner.model.live import Record
from lanner.rpc.interface import RETURNS
from lanner.services import stream_entries as entries
from lanner.services.interfaces.lanner import (
    LANNER_ASK,
    LANNER_CALL,
    Document,
    pack_frame,
    unpack_frame,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lanner.rpc.async_client import BoundInterface, Posted, RpcClient


class SendError(Exception):
    """A refusal, with the identifiers of the messages that were sent before it."""

    def __init__(self, error: StatusError, sent: list[str]) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent


class LannerConnection:
    """One connection with its session, to which everything open there belongs."""

    def __init__(
        self, client: RpcClient, bound: BoundInterface, session: bytes, name: str, identifier: uuid.UUID
    ) -> None:
        self.name = name
        self.identifier = identifier
        self._client = client
        self._bound = bound
        self._session = session
        self._identifier_text = str(identifier)
        # The identifier of the queue manager's record of our numbered sends; None until the queue
        # manager has sent it.
        self.memory: str | None = None
        self._numbers = itertools.count(1)
        # Blocks of numbers, far above those that are taken one by one.
        self._blocks = itertools.count(1 << 40, entries.MAX_MESSAGES)
        # Reads whose answers have arrived: the queue manager need not keep their messages any
        # longer.
        self.done: deque[int] = deque()
        # Requests that close objects no program can reach any more; they are sent before the next
        # request.
        self.abandoned: deque[Document] = deque()

    @property
    def is_open(self) -> bool:
        return self._client.is_open

    async def close(self) -> None:
        await self._client.close()

    async def messages(self, request: Document) -> list[ReceivedMessage]:
        """Return the messages in the answer to a request."""
        return self.unpacked(*await self.call(request))

    def unpacked(self, document: Document, octets: memoryview) -> list[ReceivedMessage]:
        """Return the messages of an answer."""
        messages = []
        for one in document["messages"]:
            packet, octets = bytes(octets[: one["size"]]), octets[one["size"] :]
            record = Record(packet, one["arrived"], abort_count=one["abort_count"], move_count=one["move_count"])
            messages.append(ReceivedMessage(one["lookup_id"], record, self.identifier))
        return messages

    async def call(self, request: Document, octets: bytes = b"") -> tuple[Document, memoryview]:
        """Return the answer to a request; raise a failure with the text of the queue manager."""
        if self.done:
            request = {**request, "done": [self.done.popleft() for _ in range(len(self.done))]}
        frame = pack_frame(request, octets)
        results: dict[str, Any] = await self._bound.call(
            LANNER_CALL, session=self._session, size=len(frame), request=frame
        )
        document, rest = unpack_frame(bytes(results["answer"]))
        if results[RETURNS]:
            error = status_error(results[RETURNS], document.get("error"))
            raise SendError(error, document["ids"]) if document.get("ids") else error
        return document, rest

    # The stream
    # ----------------------------------------------------------------------------------------------

    def post(self, kind: int, *parts: bytes) -> Posted:
        """Send a request on the stream, in one frame with other pending requests."""
        if self.done:
            numbers = sorted(self.done.popleft() for _ in range(len(self.done)))
            self._client.tell(entries.CONFIRM, entries.pack_reads(numbers))
        return self._client.post(kind, *parts)

    def put(self, kind: int, *parts: bytes) -> Posted:
        """Queue a request, to be sent in the frame of the next one."""
        return self._client.put(kind, *parts)

    def tell(self, kind: int, *parts: bytes) -> None:
        """Queue a request without an answer, for the frame of the next one with an answer."""
        self._client.tell(kind, *parts)

    async def exchange(self, kind: int, *parts: bytes) -> memoryview:
        """Send a request on the stream and return its answer."""
        return await self.answer(self.post(kind, *parts))

    async def answer(self, posted: Posted) -> memoryview:
        """Return the answer to a request on the stream; failures are as in `call`."""
        number, kind, body = await self._client.answer(posted)
        if kind == entries.DONE:
            return body
        if kind != entries.FAILED:
            raise RemoteProtocolError(f"an answer of kind {kind} to request {number}")
        status, text, ordinals = entries.unpack_error(body)
        error = status_error(status, text)
        raise SendError(error, self.identifiers(ordinals)) if ordinals else error

    def forget(self, posted: Posted) -> None:
        """Discard the answer to a request when it arrives."""
        self._client.forget(posted)

    def identifiers(self, ordinals: Iterable[int]) -> list[str]:
        """Return the identifiers of messages that were sent."""
        return [f"{self._identifier_text}\\{ordinal}" for ordinal in ordinals]

    def received(self, body: memoryview) -> list[ReceivedMessage]:
        """Return the messages in the answer to a receive."""
        keeper = self.identifier
        return [ReceivedMessage(lookup_id, record, keeper) for lookup_id, record in entries.unpack_messages(body)]

    async def ask(self, text: str) -> Any:  # noqa: ANN401 (JSON)
        """Return the answer to an administrator's request."""
        results: dict[str, Any] = await self._bound.call(LANNER_ASK, request=text)
        if results[RETURNS]:
            raise status_error(results[RETURNS], results["answer"])
        return json.loads(results["answer"])

    def new_number(self) -> int:
        """Return a number for a read, a queue or a cursor.

        With it, the object can be closed even if the answer to its request is missing.
        """
        return next(self._numbers)

    def new_numbers(self) -> int:
        """Return the first of a block of numbers, one for each message of a receive."""
        return next(self._blocks)

    async def give_back(self, numbers: list[int]) -> None:
        """Give back the messages of receives.

        If the connection is lost, the queue manager has given them back already.
        """
        with contextlib.suppress(LannerError):
            await self.exchange(entries.GIVE_BACK, entries.pack_reads(sorted(numbers)))

    async def tidy(self) -> None:
        """Close the queues and abort the transactions that were abandoned."""
        # Another thread may take the last one.
        with contextlib.suppress(IndexError):
            while self.abandoned:
                with contextlib.suppress(StatusError):
                    await self.call(self.abandoned.popleft())
