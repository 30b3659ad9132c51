"""The stream of one session: message requests in frames (docs/protocol.md).

Requests that arrive together are one change of the store. Those of them that must be durable are
answered together, after one commit and in one frame. No request has a task of its own: a receive
that waits is a callback. The session (`lanner_session`) owns the open objects; its `reads` are the
held messages and the receives in progress.

All code here runs in the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from lanner.model.enums import INFINITE
from lanner.model.errors import GenericError, InvalidParameter, RemoteProtocolError, StatusError
from lanner.rpc.frames import Entry, pack_entry, unpack_entries
from lanner.security.log_lines import log_of_peer
from lanner.services import stream_entries as entries
from lanner.services.request_fields import find_open
from lanner.services.session_reads import MAX_ANSWER
from lanner.wire import client_packet

if TYPE_CHECKING:
    from lanner.host.committer import Committer
    from lanner.host.reads import Read
    from lanner.model.live import Transaction
    from lanner.rpc.connection import ServerConnection
    from lanner.services.lanner_session import LannerSession
    from lanner.services.sent_batches import Outcome, SentBatch, SentBatches

_LOG: Final = logging.getLogger(__name__)
# The number, the kind and the body of a request.
_Answer: TypeAlias = tuple[int, int, bytes]
_Remembered: TypeAlias = tuple["SentBatches", int, "SentBatch", "Outcome"]
# Not in the specification: the maximum number of failed sends and transactions that are remembered,
# because more of their parts may still arrive.
_MAX_BROKEN: Final = 1024
# Not in the specification: the maximum work of one turn, after which other connections are served.
# It consists of entries, the reads that they name, the messages that they request, and the octets
# of answers.
_TURN: Final = 10_000
_TURN_OCTETS: Final = MAX_ANSWER


class _Refused(Exception):
    """One message of a send was refused; the messages before it are sent."""

    def __init__(self, error: StatusError, ordinals: list[int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.ordinals = ordinals


class LannerStream:
    """The requests of one client, received in frames."""

    def __init__(self, session: LannerSession, committer: Committer, connection: ServerConnection) -> None:
        self._session = session
        self._committer = committer
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        # The first entries of the sends of which a part has failed.
        self._broken: dict[int, None] = {}
        # The transactions that could not be begun, each with the error for requests that use it.
        self._not_begun: dict[int, StatusError] = {}
        # The answers of this turn that wait until the commit is durable.
        self._unsynced: list[_Answer] = []
        # The sends of this turn that are remembered: the memory, the number in it, the batch, and
        # the answer.
        self._remembered: list[_Remembered] = []
        # The entries that are deferred to the next turn, by frame, and the cost of this turn so
        # far.
        self._waiting: deque[Iterator[Entry]] = deque()
        self._cost = 0
        self._octets = 0

    @property
    def is_behind(self) -> bool:
        """Whether entries are deferred to the next turn."""
        return bool(self._waiting)

    def close(self) -> None:
        """Stop the stream. The association's rundown returns what the session holds."""
        self._is_closed = True
        self._waiting.clear()

    def frames_received(self, contents: list[bytes]) -> None:
        """Handle deferred entries and new frames, up to the cost limit of one turn."""
        malformed: RemoteProtocolError | None = None
        self._unsynced = []
        self._remembered = []
        self._cost = self._octets = 0
        self._waiting.extend(map(unpack_entries, contents))
        with self._committer.change() as change:
            try:
                self._handle_waiting()
            except RemoteProtocolError as error:
                # The entries before it took effect, and must become durable although no answer is
                # sent.
                malformed = error
        unsynced, self._unsynced = self._unsynced, []
        remembered, self._remembered = self._remembered, []
        if malformed is not None:
            if remembered:
                change.then(partial(self._durable, [], remembered))
            else:
                change.soon()
            raise malformed
        if unsynced or remembered:
            change.then(partial(self._durable, unsynced, remembered))
        else:
            change.soon()

    def _handle_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            for entry in waiting[0]:
                self._handle(entry)
                self._cost += 1
                if self._cost > _TURN or self._octets > _TURN_OCTETS:
                    return
            waiting.popleft()

    def _reads(self, entry: Entry) -> list[int]:
        numbers = entries.unpack_reads(entry.body)
        self._cost += len(numbers)
        return numbers

    def _durable(self, answers: list[_Answer], remembered: list[_Remembered], error: BaseException | None) -> None:
        if error is None:
            self._answer_all(answers)
            for sent, number, batch, outcome in remembered:
                sent.finish(number, batch, outcome)
        else:
            body = entries.pack_error(_as_status(error))
            self._answer_all([(number, entries.FAILED, body) for number, _, _ in answers])
            for sent, number, batch, _ in remembered:
                sent.fail(number, batch, (entries.FAILED, body))

    def _answer_all(self, answers: list[_Answer]) -> None:
        for number, kind, body in answers:
            self._answer(number, kind, body)

    def _answer(self, number: int, kind: int, body: bytes) -> None:
        if not self._is_closed:
            self._octets += len(body)
            self._connection.send_entry(pack_entry(number, kind, (body,)))
            self._connection.flush_soon()

    def _handle(self, entry: Entry) -> None:
        handler = _HANDLERS.get(entry.kind)
        if handler is None:
            raise RemoteProtocolError(f"an entry of kind {entry.kind}")
        try:
            handler(self, entry)
        except _Refused as refused:
            self._fail(entry.number, refused.error, refused.ordinals)
        except StatusError as error:
            self._fail(entry.number, error)
        except RemoteProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 (logged and answered)
            peer = self._connection.peer
            log_of_peer(_LOG, logging.ERROR, "failed", peer, "%s: entry of kind %d", peer, entry.kind, exc_info=error)
            text = f"{type(error).__name__}: {error}; this is a fault of Lanner, and its log shows where"
            self._fail(entry.number, GenericError(text))

    def _fail(self, number: int, error: StatusError, ordinals: list[int] | None = None) -> None:
        # Messages before the refused one are sent, and are durable when the client reads this.
        self._unsynced.append((number, entries.FAILED, entries.pack_error(error, ordinals or ())))

    def _transaction(self, number: int) -> Transaction | None:
        if number in self._not_begun:
            raise self._not_begun[number]
        return find_open(self._session.transactions, number, "transaction") if number else None

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _send(self, entry: Entry) -> None:
        number, transaction_number, first = entries.unpack_send(entry.body)
        if first in self._broken:
            self._answer(entry.number, entries.SKIPPED, b"")
            return
        ordinals, is_express_only = self._store(entry, number, transaction_number, first, entries.SEND_SIZE)
        body = entries.pack_ordinals(ordinals)
        if transaction_number or is_express_only:
            self._answer(entry.number, entries.DONE, body)
        else:
            self._unsynced.append((entry.number, entries.DONE, body))

    def _store(
        self, entry: Entry, number: int, transaction_number: int, first: int, start: int
    ) -> tuple[list[int], bool]:
        """Send packets; return the ordinals, and whether no message outlives a restart."""
        session = self._session
        ordinals: list[int] = []
        octets = entry.body[start:]
        try:
            descriptor = find_open(session.queues, number, "queue")
            transaction = self._transaction(transaction_number)
            is_express_only = session.operations.send_packets(
                descriptor, octets, entries.MAX_MESSAGES, ordinals, transaction
            )
        except StatusError as error:
            # A malformed packet ends the connection, whatever the other error.
            client_packet.check_octets(octets, entries.MAX_MESSAGES)
            self._break(first or entry.number)
            raise _Refused(error, ordinals) from None
        return ordinals, is_express_only

    def _send_once(self, entry: Entry) -> None:
        """Send, unless a send with this number has come before: then repeat its answer."""
        number, batch_number, below, first = entries.unpack_send_once(entry.body)
        sent = self._session.sent
        if sent is None:
            raise InvalidParameter("a send with a number: open the queue with the name of the client first")
        sent.confirm(below)
        batch = sent.get(batch_number)
        if batch is not None:
            if batch.is_refused:
                self._break(first or entry.number)
            batch.then(lambda outcome: self._answer(entry.number, *outcome))
            return
        if sent.is_forgotten(batch_number):
            raise InvalidParameter(f"send {batch_number} is forgotten: whether it has come before is not known")
        if first in self._broken:
            self._answer(entry.number, entries.SKIPPED, b"")
            return
        batch = sent.begin(batch_number)
        is_express_only = False
        try:
            ordinals, is_express_only = self._store(entry, number, 0, first, entries.SEND_ONCE_SIZE)
            outcome = entries.DONE, entries.pack_ordinals(ordinals)
        except _Refused as refused:
            batch.is_refused = True
            outcome = entries.FAILED, entries.pack_error(refused.error, refused.ordinals)
        except BaseException as error:
            sent.fail(batch_number, batch, (entries.FAILED, entries.pack_error(_as_status(error))))
            raise
        if is_express_only:
            self._answer(entry.number, *outcome)
            sent.finish(batch_number, batch, outcome)
        else:
            self._unsynced.append((entry.number, *outcome))
            self._remembered.append((sent, batch_number, batch, outcome))

    def _break(self, first: int) -> None:
        """Mark a send as failed, so that its later parts are skipped."""
        self._broken[first] = None
        if len(self._broken) > _MAX_BROKEN:
            del self._broken[next(iter(self._broken))]

    def _receive(self, entry: Entry) -> None:
        request = entries.unpack_receive(entry.body)
        is_numbered = bool(request.most & entries.NUMBERED)
        request = request._replace(most=request.most & ~entries.NUMBERED)
        entries.check_count(request.most)
        self._cost += request.most
        session = self._session
        session.new_reads(request.read, request.most if is_numbered else 1)
        if is_numbered:
            self._receive_numbered(entry, request)
            return
        read = session.operations.receive(
            find_open(session.queues, request.queue, "queue"),
            min(request.timeout, INFINITE),
            transaction=self._transaction(request.transaction),
        )
        if not read.is_waiting:
            self._received(entry.number, request, read)
            return
        session.reads.waiting[request.read] = read
        read.when_over(partial(self._loop.call_soon_threadsafe, self._over, entry.number, request, read))

    def _receive_numbered(self, entry: Entry, request: entries.ReceiveRequest) -> None:
        """Receive available messages, each under its own number."""
        session = self._session
        descriptor = find_open(session.queues, request.queue, "queue")
        transaction = self._transaction(request.transaction)
        positions = session.reads.receive_ready(request.read, request.most, descriptor, transaction)
        self._answer(entry.number, entries.DONE, entries.pack_messages(positions))

    def _received(self, number: int, request: entries.ReceiveRequest, read: Read) -> None:
        positions = self._session.reads.hold(request.read, read, request.most)
        self._answer(number, entries.DONE, entries.pack_messages(positions))

    def _over(self, number: int, request: entries.ReceiveRequest, read: Read) -> None:
        """Deliver the message of a receive whose wait has ended, or return it."""
        self._session.reads.waiting.pop(request.read, None)
        if self._is_closed:
            read.give_back()
            return
        try:
            with self._committer.change():
                self._received(number, request, read)
        except StatusError as error:
            self._answer(number, entries.FAILED, entries.pack_error(error))

    def _remove(self, entry: Entry) -> None:
        refused = self._session.reads.remove(self._reads(entry))
        self._unsynced.append((entry.number, entries.DONE, entries.pack_refused(refused)))

    def _give_back(self, entry: Entry) -> None:
        self._session.reads.give_back(self._reads(entry))
        self._unsynced.append((entry.number, entries.DONE, b""))

    def _confirm(self, entry: Entry) -> None:
        for number in self._reads(entry):
            self._session.reads.confirm(number)

    def _begin(self, entry: Entry) -> None:
        number, identifier = entries.unpack_begin(entry.body)
        try:
            self._session.begin_as(number, identifier)
        except StatusError as error:
            self._not_begun[number] = error
            if len(self._not_begun) > _MAX_BROKEN:
                del self._not_begun[next(iter(self._not_begun))]

    def _commit(self, entry: Entry) -> None:
        number = entries.unpack_transaction(entry.body)
        self._end_transaction(entry, number, self._session.operations.commit)

    def _commit_behind(self, entry: Entry) -> None:
        """Commit, unless one of the sends in the transaction was refused.

        The transaction then stays open for the client to abort.
        """
        number, first = entries.unpack_commit_behind(entry.body)
        if first in self._broken:
            self._answer(entry.number, entries.SKIPPED, b"")
        else:
            self._end_transaction(entry, number, self._session.operations.commit)

    def _abort(self, entry: Entry) -> None:
        number = entries.unpack_transaction(entry.body)
        self._end_transaction(entry, number, self._session.operations.abort)

    def _end_transaction(self, entry: Entry, number: int, event: Callable[[Transaction], None]) -> None:
        self._transaction(number)
        self._session.end_transaction(number, event)
        self._unsynced.append((entry.number, entries.DONE, b""))

    def _ping(self, entry: Entry) -> None:
        self._answer(entry.number, entries.DONE, b"")


_HANDLERS: Final[dict[int, Callable[[LannerStream, Entry], None]]] = {
    entries.SEND: LannerStream._send,  # noqa: SLF001 (its own table)
    entries.SEND_ONCE: LannerStream._send_once,  # noqa: SLF001
    entries.RECEIVE: LannerStream._receive,  # noqa: SLF001
    entries.REMOVE: LannerStream._remove,  # noqa: SLF001
    entries.GIVE_BACK: LannerStream._give_back,  # noqa: SLF001
    entries.CONFIRM: LannerStream._confirm,  # noqa: SLF001
    entries.BEGIN: LannerStream._begin,  # noqa: SLF001
    entries.COMMIT: LannerStream._commit,  # noqa: SLF001
    entries.COMMIT_BEHIND: LannerStream._commit_behind,  # noqa: SLF001
    entries.ABORT: LannerStream._abort,  # noqa: SLF001
    entries.PING: LannerStream._ping,  # noqa: SLF001
}


def _as_status(error: BaseException) -> StatusError:
    return error if isinstance(error, StatusError) else GenericError(f"{type(error).__name__}: {error}")
