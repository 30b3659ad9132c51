"""A queue manager elsewhere, or another process of this machine, with the words of `lanner.aio.QueueManager`.

Reads go by MS-MQQP, whose messages are whole packets with their lookup ids, and leave their queue only when they are here. Sending,
transactions and the queues themselves go by MS-MQMP, management by MS-MQMR. What needs an answer is awaited, also where a queue
manager of this process knows it at once: `await queue.attributes()`.
"""

# A read's time-out is the protocol's, kept by the queue manager.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.client.names import QueueNames
from lanner.client.operations import milliseconds
from lanner.client.remote_handles import Handles, PlainQueue, ReadQueue, seek
from lanner.client.remote_messages import Signing, from_remote_read, to_message, to_packet
from lanner.client.remote_messages import to_properties as message_properties
from lanner.client.remote_properties import (
    ATTRIBUTES,
    CONTENTS,
    PROGRESS,
    Document,
    Told,
    outgoing_document,
    queue_of,
    set_attributes,
    to_properties,
    values_of,
)
from lanner.client.remote_session import Session, Sessions, Target
from lanner.client.remote_units import Cursor, Held, Transaction
from lanner.model.directory_objects import GUID_NULL
from lanner.model.directory_objects import Queue as QueueObject
from lanner.model.enums import INFINITE, QueueAccessType, QueueType
from lanner.model.errors import (
    AccessDenied,
    InvalidHandle,
    IOTimeout,
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
    UnsupportedFormatnameOperation,
    UnsupportedOperation,
    status_error,
)
from lanner.rpc.interface import RETURNS
from lanner.security.identity import SYSTEM
from lanner.security.internal_certificates import CERTIFICATE_FILE, InternalCertificates
from lanner.security.signing import SigningKey
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK
from lanner.services.interfaces.mqmp import (
    QMCOMM,
    QMCOMM2,
    R_QM_CREATE_OBJECT_INTERNAL,
    R_QM_DELETE_OBJECT,
    R_QM_GET_OBJECT_PROPERTIES,
    R_QM_SET_OBJECT_PROPERTIES,
    RPC_AC_SEND_MESSAGE_EX,
    ObjectFormat,
)
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO
from lanner.services.interfaces.mqqp import RemoteReadAck
from lanner.services.management_client import action_arguments, get_info_arguments
from lanner.services.public_queues import from_document, to_document
from lanner.services.queue_client_buffers import send_buffer
from lanner.services.queue_formats import queue_format_of
from lanner.wire.format_name import DirectFormatName, FormatName, parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.property_ids import (
    ManagementMachineProperty,
    ManagementQueueProperty,
    PropertyIdentifier,
    QueueProperty,
)
from lanner.wire.propvariant import NULL, PropVariant

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from lanner.client.message import Message, ReceivedMessage
    from lanner.wire.builder import MessageProperties

T = TypeVar("T")
# MS-MQMP 3.1.4.5 dwObjectType, 2.2.3.5 ObjType.
_MQDS_QUEUE: Final = 1
# Ours: calls of one operation that are on their way at once.
WINDOW: Final = 32
_NO_IDENTIFIER: Final = MessageIdentifier(GUID_NULL, 0)


class QueueManager:
    """A connection to a queue manager. Tasks may share it; a lost connection is made again, but takes open transactions with it."""

    def __init__(self, sessions: Sessions, name: str, identifier: uuid.UUID | None, *, is_lanner: bool) -> None:
        """Made by `connect`."""
        self.sessions = sessions
        self.name = name
        # None: a queue manager of another maker has not told it.
        self.identifier = identifier
        self.is_lanner = is_lanner
        self.names = QueueNames(name)
        # Signs messages sent with `authenticate`; without it, on this machine, an internal certificate does.
        self.signing_key: SigningKey | None = None
        self._registered_key: SigningKey | None = None
        self._internal_key: SigningKey | None = None
        # Handles whose owner has gone, to be closed when there is an occasion.
        self.abandoned: deque[ReadQueue] = deque()

    @classmethod
    async def connect(cls, target: Target) -> Self:
        sessions = Sessions(target)
        try:
            async with target.in_time():
                who = await sessions.do("", Session.who)
        except BaseException:
            await sessions.close()
            raise
        if who is not None:
            return cls(sessions, *who, is_lanner=True)
        return cls(sessions, target.host or ".", None, is_lanner=False)

    def __repr__(self) -> str:
        return f"<QueueManager {self.name} at {self.sessions.target.place}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Hang up: what is open is closed, transactions are aborted."""
        await self.sessions.close()

    # Queues -------------------------------------------------------------------------------------------------------

    async def create_queue(
        self,
        name: str,
        *,
        transactional: bool = False,
        journal: bool = False,
        label: str = "",
        quota_kb: int | None = None,
        journal_quota_kb: int | None = None,
        **attributes: object,
    ) -> Queue:
        """Create a private queue, or on a queue manager of ours a public one; QueueExists if there is one of that name."""
        path_name = self.names.path_name(name)
        path = str(path_name)
        given = {
            "transactional": transactional,
            "journaling": journal,
            "label": label,
            "quota": INFINITE if quota_kb is None else quota_kb,
            "journal_quota": INFINITE if journal_quota_kb is None else journal_quota_kb,
        }
        if self.is_lanner and path_name.queue_type is QueueType.PUBLIC:
            await self.ask("create public queue", path=path, attributes=to_document({**given, **attributes}))
            return self.open(path)
        a_prop, ap_var = to_properties({**given, **attributes})

        async def create(session: Session) -> None:
            await session.call(
                QMCOMM,
                R_QM_CREATE_OBJECT_INTERNAL,
                dw_object_type=_MQDS_QUEUE,
                lpwcs_path_name=path,
                sd_size=0,
                p_security_descriptor=None,
                cp=len(a_prop),
                a_prop=a_prop,
                ap_var=ap_var,
            )

        await self.sessions.do(path, create)
        return self.open(path)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, journal and subqueues; a public one on a queue manager of ours only."""
        format_name = self.names.format_name(name)
        subject = _object_format(format_name)

        async def delete(session: Session) -> None:
            await session.call(QMCOMM, R_QM_DELETE_OBJECT, p_object_format=subject)

        try:
            await self.sessions.do(name, delete)
        except UnsupportedFormatnameOperation:
            if not self.is_lanner:
                raise
            await self.ask("delete public queue", queue=str(format_name))

    def open(self, name: str, *, exclusive: bool = False) -> Queue:
        """A queue by any spelling of its name; it is looked for when first used."""
        return Queue(self, name, exclusive=exclusive)

    async def queues(self) -> list[Queue]:
        """The public and private queues there; of another maker's, the private ones and those that somebody uses."""
        if self.is_lanner:
            return [self.open(name) for name in (await self.ask("queues"))["local"]]
        private, active = await self._machine(
            ManagementMachineProperty.PRIVATEQ, ManagementMachineProperty.ACTIVEQUEUES
        )
        names = list(private or ())
        for name in active or ():
            told = await self.info(parse(name), CONTENTS)
            path = told[ManagementQueueProperty.PATHNAME]
            if told[ManagementQueueProperty.LOCATION] == "LOCAL" and path is not None and ";" not in path:
                names.append(path)
        return [self.open(name) for name in dict.fromkeys(names)]

    async def outgoing_queues(self) -> list[Queue]:
        """Queues whose messages wait for another computer."""
        return [self.open(document["name"]) for document in await self.outgoing()]

    @property
    def dead_letter(self) -> Queue:
        return self.open("system$;DEADLETTER")

    @property
    def transactional_dead_letter(self) -> Queue:
        return self.open("system$;DEADXACT")

    @property
    def system_journal(self) -> Queue:
        return self.open("system$;JOURNAL")

    def transaction(self) -> Transaction:
        """A unit of work: `async with qm.transaction() as tx:`."""
        return Transaction(self)

    async def key_to_sign_with(self) -> SigningKey | None:
        """The application's own key, else that of the user's internal certificate; known to receivers from then on, if we may say so."""
        data = self.sessions.target.data
        key = self.signing_key or self._internal_key
        if key is None and data is not None:
            key = self._internal_key = await asyncio.to_thread(_internal_key, data)
        if key is not None and key is not self._registered_key:
            certificate = x509.load_der_x509_certificate(key.certificate).public_bytes(Encoding.PEM).decode()
            with contextlib.suppress(AccessDenied, UnsupportedOperation):
                await self.ask("register certificate", certificate=certificate)
            self._registered_key = key
        return key

    # Management, for administrators -------------------------------------------------------------------------------

    async def outgoing(self) -> list[Document]:
        """How the outgoing queues get on."""
        attempts: dict[str, Document] = {}
        if self.is_lanner:
            attempts = {one["name"]: one for one in (await self.ask("queues"))["outgoing"]}
            names = list(attempts)
        else:
            (active,) = await self._machine(ManagementMachineProperty.ACTIVEQUEUES)
            names = list(active or ())
        documents = []
        for name in sorted(names, key=str.lower):
            told = await self.info(parse(name), (*PROGRESS, ManagementQueueProperty.LOCATION))
            if told[ManagementQueueProperty.LOCATION] == "REMOTE":
                documents.append(outgoing_document(told, attempts.get(name)))
        return documents

    async def pause(self, name: str) -> None:
        """Keep the messages of an outgoing queue until it is resumed, over restarts too."""
        await self._act(name, "PAUSE")

    async def resume(self, name: str) -> None:
        """Let the messages of a paused queue go."""
        await self._act(name, "RESUME")

    async def resend(self, name: str) -> None:
        """Send what is not acknowledged now, not when its timer says so."""
        await self._act(name, "EOD_RESEND")

    async def _act(self, name: str, action: str) -> None:
        arguments = action_arguments(self.names.format_name(name), action)
        await self.sessions.do(name, lambda session: session.call(QMMGMT, R_QM_MGMT_ACTION, **arguments))

    async def _machine(self, *identifiers: PropertyIdentifier) -> list[Any]:
        return list((await self.info(None, identifiers)).values())

    async def info(self, name: FormatName | None, identifiers: tuple[PropertyIdentifier, ...]) -> Told:
        """Properties of a queue, or of the machine (MS-MQMR)."""
        arguments = get_info_arguments(name, identifiers)
        what = "" if name is None else str(name)
        results = await self.sessions.do(what, lambda session: session.call(QMMGMT, R_QM_MGMT_GET_INFO, **arguments))
        return values_of(identifiers, results["ap_var"])

    async def status(self) -> Document:
        """Who is connected, and where the queue manager listens: of a queue manager of ours only."""
        document: Document = await self.ask("status")
        return document

    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """What only queue managers of ours tell (see services/facts.py)."""
        if not self.is_lanner:
            raise UnsupportedOperation(f"{self.name} is no Lanner: it does not tell its {request}")
        text = json.dumps({"request": request, **arguments})

        async def work(session: Session) -> Any:  # noqa: ANN401 (JSON)
            results: dict[str, Any] = await (await session.bound(LANNER)).call(LANNER_ASK, request=text)
            if results[RETURNS]:
                raise status_error(results[RETURNS], results["answer"])
            return json.loads(results["answer"])

        return await self.sessions.do("", work)


def _internal_key(data: Path) -> SigningKey:
    """Who can open the socket of a data directory can read its certificates, and is the system to its queue manager."""
    certificates = InternalCertificates(data / CERTIFICATE_FILE)
    made = certificates.find_or_create(str(SYSTEM.sid), SYSTEM.name, dt.datetime.now(dt.UTC))
    return SigningKey.load(made.certificate, made.private_key)


def _object_format(name: FormatName) -> ObjectFormat:
    return ObjectFormat(_MQDS_QUEUE, queue_format_of(name))


class Queue:
    """A queue by name. Handles are opened when first needed, and closed with it."""

    def __init__(self, manager: QueueManager, name: str, *, exclusive: bool = False) -> None:
        self._manager = manager
        self._sessions = manager.sessions
        self.name = name
        self._format_name = manager.names.format_name(name)
        self._handles = Handles(manager.sessions, self._format_name, self, manager.abandoned, exclusive=exclusive)

    def __repr__(self) -> str:
        return f"<Queue {self.name} at {self._sessions.target.place}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the handles; reads that wait on them end. The queue can be used again."""
        await self._handles.close()

    @property
    def format_name(self) -> str:
        return str(self._format_name)

    @property
    def full_name(self) -> str:
        """The path name of a queue there, as far as its name tells; else its format name. `path_name` asks, as an administrator."""
        name = self._format_name
        path = name.path_name if isinstance(name, DirectFormatName) else None
        is_there = path is not None and path.computer.lower() == self._manager.name.lower()
        return str(path if is_there else name)

    # What it is ---------------------------------------------------------------------------------------------------

    async def attributes(self) -> QueueObject:
        """The queue's attributes (MS-MQDMPR 3.1.1.2) and what is in it now, for administrators."""
        told = await self._manager.info(self._format_name, CONTENTS)
        queue = queue_of(told)
        # Of other kinds of queues management tells all that can be known.
        with contextlib.suppress(UnsupportedFormatnameOperation, QueueNotFound):
            if self._manager.is_lanner and queue.queue_type is QueueType.PUBLIC:
                document = await self._manager.ask("public queue", queue=str(self._format_name))
                for name, value in from_document(document).items():
                    setattr(queue, name, value)
            else:
                set_attributes(queue, await self._properties(ATTRIBUTES))
        for name in told[ManagementQueueProperty.SUBQUEUE_NAMES] or ():
            subqueue = self.subqueue(name)
            queue.subqueues[name] = queue_of(await self._manager.info(subqueue._format_name, CONTENTS))  # noqa: SLF001
        return queue

    async def is_transactional(self) -> bool | None:
        """Whether the queue takes transactional messages; None: it is not here, or does not tell."""
        try:
            (transactional,) = await self._properties((QueueProperty.TRANSACTION,))
        except (QueueNotFound, AccessDenied):
            return None
        except UnsupportedFormatnameOperation:
            return await self._is_public_transactional()
        return bool(transactional.value)

    async def _is_public_transactional(self) -> bool | None:
        try:
            told = await self._manager.info(self._format_name, (ManagementQueueProperty.XACT,))
        except StatusError:
            return None
        return None if told[ManagementQueueProperty.XACT] is None else told[ManagementQueueProperty.XACT] == "YES"

    async def _properties(self, identifiers: tuple[QueueProperty, ...]) -> tuple[PropVariant, ...]:
        subject = _object_format(self._format_name)
        results = await self._sessions.do(
            self.name,
            lambda session: session.call(
                QMCOMM,
                R_QM_GET_OBJECT_PROPERTIES,
                p_object_format=subject,
                cp=len(identifiers),
                a_prop=tuple(int(one) for one in identifiers),
                ap_var=(NULL,) * len(identifiers),
            ),
        )
        found: tuple[PropVariant, ...] = results["ap_var"]
        return found

    async def set(self, **changes: object) -> None:
        """Change attributes by the data model's names: label, quota, journaling, authentication ..."""
        subject = _object_format(self._format_name)
        a_prop, ap_var = to_properties(changes)

        async def change(session: Session) -> None:
            await session.call(
                QMCOMM,
                R_QM_SET_OBJECT_PROPERTIES,
                p_object_format=subject,
                cp=len(a_prop),
                a_prop=a_prop,
                ap_var=ap_var,
            )

        try:
            await self._sessions.do(self.name, change)
        except UnsupportedFormatnameOperation:
            if not self._manager.is_lanner:
                raise
            await self._manager.ask(
                "change public queue", queue=str(self._format_name), attributes=to_document(changes)
            )

    async def path_name(self) -> str:
        return queue_of(await self._manager.info(self._format_name, CONTENTS)).pathname

    async def exists(self) -> bool:
        """Whether the queue is there."""
        try:
            await self._manager.info(self._format_name, (ManagementQueueProperty.LOCATION,))
        except QueueNotFound:
            return False
        return True

    async def count(self) -> int:
        """How many messages are in the queue."""
        told = await self._manager.info(self._format_name, (ManagementQueueProperty.MESSAGE_COUNT,))
        found: int = told[ManagementQueueProperty.MESSAGE_COUNT] or 0
        return found

    # Sending ------------------------------------------------------------------------------------------------------

    async def send(
        self, message: Message | ReceivedMessage | bytes | str, *, transaction: Transaction | None = None
    ) -> str:
        """Send; when this returns, a recoverable message is on disk. Gives the message's id."""
        prepared = to_message(message)
        manager = self._manager
        key = await manager.key_to_sign_with() if prepared.authenticate else None
        signing = Signing(key, manager.identifier, self._format_name)
        identifier = None if transaction is None else transaction.check(manager)
        properties = message_properties(prepared, manager.names, signing, identifier)
        is_traced = properties.tracing_queue_identifier != GUID_NULL
        # A signature for several queues covers their list, which the queue manager alone knows.
        if manager.is_lanner and is_traced and not properties.multiple_destination_signature:
            prepared.id = await self._send_whole(properties, transaction)
            return prepared.id
        buffer = send_buffer(properties, identifier)

        async def send(session: Session) -> str:
            if transaction is not None:
                await transaction.enlist(session)
            opened = await self._handles.local(session, QueueAccessType.SEND)
            results = await session.call(
                QMCOMM2, RPC_AC_SEND_MESSAGE_EX, h_queue=opened.handle, ptb=buffer, p_message_id=_NO_IDENTIFIER
            )
            return str(results["p_message_id"])

        prepared.id = await self._use(send)
        return prepared.id

    async def _send_whole(self, properties: MessageProperties, transaction: Transaction | None) -> str:
        asked: dict[str, object] = {"queue": str(self._format_name), "packet": to_packet(properties)}
        if transaction is not None:
            await self._sessions.do(self.name, transaction.enlist)
            asked["transaction"] = str(transaction.identifier)
        return str(await self._manager.ask("send", **asked))

    async def send_many(
        self,
        messages: Iterable[Message | ReceivedMessage | bytes | str],
        *,
        transaction: Transaction | None = None,
    ) -> list[str]:
        """Send several messages in their order, some at a time. What is not refused stays sent: its `id` is set."""
        prepared = [to_message(message) for message in messages]
        if prepared:
            # The first one alone opens what the others need: from then on nothing is in the way of their order.
            await self.send(prepared[0], transaction=transaction)
        for first in range(1, len(prepared), WINDOW):
            sends = [self.send(message, transaction=transaction) for message in prepared[first : first + WINDOW]]
            # They are answered when their common batch is on disk.
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        return [str(message.id) for message in prepared]

    # Reading ------------------------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> ReceivedMessage:
        """Take the first message; IOTimeout if none comes within `timeout` seconds. It leaves the queue when it is here.

        In a transaction, it comes with its properties, but without lookup id and packet: MS-MQMP has no place for them.
        """
        limit = milliseconds(timeout)
        if transaction is not None:
            return await transaction.receive(self._manager, self, limit)

        async def receive(session: Session) -> ReceivedMessage:
            return await (await self._handles.reading(session, QueueAccessType.RECEIVE)).receive(limit)

        return await self._use(receive)

    async def receive_many(
        self, count: int, timeout: float | None = 0, *, transaction: Transaction | None = None
    ) -> list[ReceivedMessage]:
        """Take up to `count` messages; waits for the first one only."""
        if transaction is None:
            try:
                async with self.receiving(count, timeout) as messages:
                    return messages
            except IOTimeout:
                return []
            except UnsupportedOperation:
                # What waits for another computer is taken one by one.
                pass
        found: list[ReceivedMessage] = []
        with contextlib.suppress(IOTimeout):
            while len(found) < count:
                found.append(await self.receive(0 if found else timeout, transaction=transaction))
        return found

    @asynccontextmanager
    async def receiving(self, count: int = 1, timeout: float | None = None) -> AsyncIterator[list[ReceivedMessage]]:
        """Up to `count` messages, which leave the queue when the block has ended; an exception in it gives them back.

        Nobody else gets them meanwhile. Waits for the first one only; IOTimeout if none comes.
        """
        limit = milliseconds(timeout)
        held: list[Held] = []

        async def begin(limit: int, session: Session) -> None:
            opened = await self._plain(session, QueueAccessType.RECEIVE)
            held.append(Held(opened, *await opened.queue.begin_receive(limit)))

        try:
            if count > 0:
                with contextlib.suppress(*([] if limit else [IOTimeout])):
                    await self._use(partial(begin, limit))
            while held and len(held) < count:
                wanted = min(count - len(held), WINDOW)
                ends = await asyncio.gather(
                    *(self._use(partial(begin, 0)) for _ in range(wanted)), return_exceptions=True
                )
                errors = [end for end in ends if isinstance(end, BaseException)]
                for error in errors:
                    if not isinstance(error, IOTimeout):
                        raise error
                if errors:
                    break
            yield [from_remote_read(one.message) for one in held]
        except BaseException:
            await self._end(held, RemoteReadAck.RR_NACK)
            raise
        await self._end(held, RemoteReadAck.RR_ACK)

    @asynccontextmanager
    async def receiving_by_lookup_id(self, lookup_id: int, where: str = "current") -> AsyncIterator[ReceivedMessage]:
        """The message with a lookup id, or next to it, which leaves the queue when the block has ended."""
        place = seek(lookup_id, where, is_peek=False)

        async def begin(session: Session) -> Held:
            opened = await self._plain(session, QueueAccessType.RECEIVE)
            return Held(opened, *await opened.queue.begin_look_up(*place))

        held = [await self._use(begin)]
        try:
            yield from_remote_read(held[0].message)
        except BaseException:
            await self._end(held, RemoteReadAck.RR_NACK)
            raise
        await self._end(held, RemoteReadAck.RR_ACK)

    async def _plain(self, session: Session, access: QueueAccessType) -> PlainQueue:
        opened = await self._handles.reading(session, access)
        if not isinstance(opened, PlainQueue):
            raise UnsupportedOperation(f"{self.name} waits for another computer: use receive")
        return opened

    async def _end(self, held: list[Held], ack: RemoteReadAck) -> None:
        """A message whose session is lost was given back with it, which only an acknowledgment must know."""
        is_lost = any(not self._sessions.is_current(one.opened.session) for one in held)
        if is_lost and ack is RemoteReadAck.RR_ACK:
            raise InvalidHandle(f"{self.name}: the connection was lost, the messages are in their queue again")
        for first in range(0, 0 if is_lost else len(held), WINDOW):
            ends = [self._sessions.do(self.name, one.ender(ack)) for one in held[first : first + WINDOW]]
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, BaseException) and ack is RemoteReadAck.RR_ACK:
                    raise outcome

    async def peek(self, timeout: float | None = None) -> ReceivedMessage:
        """Look at the first message and leave it there."""
        limit = milliseconds(timeout)

        async def peek(session: Session) -> ReceivedMessage:
            return await (await self._handles.reading(session, QueueAccessType.PEEK)).peek(limit)

        return await self._use(peek)

    async def receive_by_lookup_id(
        self, lookup_id: int, where: str = "current", *, transaction: Transaction | None = None
    ) -> ReceivedMessage:
        """Take the message with a lookup id, or next to it: current, next, previous, first, last."""
        if transaction is not None:
            raise UnsupportedOperation("no protocol of MSMQ here has lookup ids in transactions")
        return await self._look_up(QueueAccessType.RECEIVE, lookup_id, where)

    async def peek_by_lookup_id(self, lookup_id: int, where: str = "current") -> ReceivedMessage:
        """Look at the message with a lookup id, or next to it."""
        return await self._look_up(QueueAccessType.PEEK, lookup_id, where)

    async def _look_up(self, access: QueueAccessType, lookup_id: int, where: str) -> ReceivedMessage:
        async def look_up(session: Session) -> ReceivedMessage:
            opened = await self._handles.reading(session, access)
            return await opened.look_up(lookup_id, where, is_peek=access is QueueAccessType.PEEK)

        return await self._use(look_up)

    async def purge(self) -> int:
        """Remove every message; how many there were, which only administrators are told: 0 for others."""
        count = 0
        with contextlib.suppress(AccessDenied):
            count = await self.count()

        async def purge(session: Session) -> None:
            await (await self._handles.reading(session, QueueAccessType.RECEIVE)).purge()

        await self._use(purge)
        return count

    def cursor(self, *, peek_only: bool = False) -> Cursor:
        """A place in the queue that moves over the messages; who may only peek asks for `peek_only`."""
        return Cursor(self, QueueAccessType.PEEK if peek_only else QueueAccessType.RECEIVE)

    async def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """Peek at every message, from the first to the last."""
        async with self.cursor(peek_only=True) as cursor:
            try:
                yield await cursor.peek(timeout=0)
                while True:
                    yield await cursor.peek_next(timeout=0)
            except IOTimeout:
                return

    # Its parts ----------------------------------------------------------------------------------------------------

    def subqueue(self, name: str) -> Queue:
        """A subqueue; it comes into being when first used."""
        return self._part(name)

    async def subqueues(self) -> list[Queue]:
        """The subqueues there are."""
        told = await self._manager.info(self._format_name, (ManagementQueueProperty.SUBQUEUE_NAMES,))
        return [self._part(name) for name in told[ManagementQueueProperty.SUBQUEUE_NAMES] or ()]

    @property
    def journal(self) -> Queue:
        return self._part("journal")

    def _part(self, suffix: str) -> Queue:
        return Queue(self._manager, f"{self._format_name};{suffix}")

    async def move(self, lookup_id: int, target: str | Queue, *, transaction: Transaction | None = None) -> None:
        """Move a message to a subqueue of this queue (by its short name), or from one back to its queue."""
        if transaction is not None:
            raise UnsupportedOperation(
                "messages elsewhere are moved outside transactions; move_many moves several at once"
            )
        await self.move_many([lookup_id], target)

    async def move_many(self, lookup_ids: Iterable[int], target: str | Queue) -> None:
        """Move messages, all of them or none; for administrators of a queue manager of ours."""
        queue = target if isinstance(target, Queue) else self.subqueue(target)
        await self._manager.ask(
            "move",
            queue=self.format_name,
            target=queue.format_name,
            lookup_ids=[str(lookup_id) for lookup_id in lookup_ids],
        )

    async def _use(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something with an open handle. One whose queue was deleted is of no more use; there may be another by that name."""

        async def attempt(session: Session) -> T:
            try:
                return await work(session)
            except QueueNotAvailable:
                self._handles.forget()
                return await work(session)

        return await self._sessions.do(self.name, attempt)

    # For cursors and transactions ---------------------------------------------------------------------------------

    @property
    def handles(self) -> Handles:
        return self._handles

    @property
    def sessions(self) -> Sessions:
        return self._sessions
