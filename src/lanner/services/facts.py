"""The interface `lanner`: what the protocols of Microsoft's documents do not tell or do, for the command line and other clients of ours.

Everybody may ask who is here; the rest is for administrators: sessions and listeners, all queues by name, what is known about another
computer, the enterprise that it stands in, public queues, traced messages, moving messages between a queue and its subqueues, and registering the certificate of a user.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import os
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.directory import AttributeFilter, Operator
from lanner.directory.enterprise import read_enterprise, write_enterprise
from lanner.directory.topology import TopologyError, survey
from lanner.model.directory_objects import QueueManager
from lanner.model.enums import EnqueueStatus, QueueAccessType
from lanner.model.errors import (
    MQ_OK,
    GenericError,
    IllegalUser,
    InvalidParameter,
    LannerError,
    StatusError,
    TransactionSequence,
)
from lanner.model.live import MAX_LOOKUP_ID
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import ServerInterface
from lanner.services.callers import refuse_in_hardened_mode, require_administrator
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK, LANNER_WHO
from lanner.services.public_queues import PublicQueues
from lanner.services.sending import check_sender, name_here, refusal
from lanner.transfer.addresses import format_address, get_destination_info
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import FormatName
from lanner.wire.message import Message
from lanner.wire.sid import Sid

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Results
    from lanner.security.identity import Identity
    from lanner.store.committer import Committer
    from lanner.transfer.link import Link
    from lanner.transfer.route import Route
    from lanner.transfer.transfer import Transfer

_LOG: Final = logging.getLogger(__name__)
_LOOKUP_ID_DIGITS: Final = len(str(MAX_LOOKUP_ID))

Document = dict[str, object]
Request = Mapping[object, object]
# The document and the ticket of the batch that keeps what was done.
_Handler = Callable[["Identity", Request], tuple[object, int]]


class FactsService(ServerInterface):
    """The interface for one queue manager. `about` is what only the daemon knows: its version, settings and listeners."""

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        transfer: Transfer | None = None,
        about: Callable[[], Document] = dict,
    ) -> None:
        self._engine = engine
        self._lock = engine.store.lock
        self._committer = committer
        self._transfer = transfer
        self._about = about
        self._public_queues = PublicQueues(engine)
        self._requests: dict[str, _Handler] = {
            "status": self._status,
            "queues": self._queues,
            "peer": self._peer,
            "directory": self._directory,
            "provision": self._provision,
            "remove from directory": self._remove_from_directory,
            "public queue": self._public_queue,
            "create public queue": self._create_public_queue,
            "change public queue": self._change_public_queue,
            "delete public queue": self._delete_public_queue,
            "send": self._send,
            "move": self._move,
            "register certificate": self._register_certificate,
        }
        super().__init__(
            LANNER,
            {LANNER_WHO.name: self.who, LANNER_ASK.name: self.ask},
            authorize=refuse_in_hardened_mode(engine),
        )

    def who(self, call: ServerCall) -> Results:
        """Nothing here is a secret: NTLM tells the name, and MS-MQQB the identifier, to whoever connects."""
        del call
        qm = self._engine.queue_manager
        version = self._about().get("version", "")
        return {
            "name": qm.computer_name,
            "identifier": qm.identifier,
            "version": str(version),
            RETURNS: MQ_OK,
        }

    def ask(self, call: ServerCall, request: str) -> Results | Awaitable[Results]:
        try:
            require_administrator(self._engine, call.identity)
            document, ticket = self._told(call.identity, request)
        except StatusError as error:
            _LOG.info("%r: %s", call, error)
            return {"answer": str(error.args[0]), RETURNS: error.status}
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever asked)
            _LOG.exception("%r failed", call)
            text = f"{type(error).__name__}: {error}; this is a fault of lanner, the log shows where"
            return {"answer": text, RETURNS: GenericError.status}
        results: Results = {"answer": json.dumps(document), RETURNS: MQ_OK}
        return self._when_durable(ticket, results) if ticket else results

    def _told(self, identity: Identity, text: str) -> tuple[object, int]:
        try:
            request = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"the request is not JSON: {error}") from None
        if not isinstance(request, Mapping):
            raise InvalidParameter("a request is an object with a member `request`")
        name = _text(request, "request")
        if name not in self._requests:
            raise InvalidParameter(f"unknown request {name!r}: one of {', '.join(self._requests)}")
        with self._lock:
            return self._requests[name](identity, request)

    async def _when_durable(self, ticket: int, results: Results) -> Results:
        try:
            await self._committer.durable(ticket)
        except StatusError as error:
            return {"answer": str(error.args[0]), RETURNS: error.status}
        return results

    # What there is ------------------------------------------------------------------------------------------------

    def _status(self, identity: Identity, request: Request) -> tuple[object, int]:
        del identity, request
        qm = self._engine.queue_manager
        outgoing = list(self._engine.outgoing_queues())
        document = {
            "name": qm.computer_name,
            "identifier": str(qm.identifier),
            "process": os.getpid(),
            **self._about(),
            "transfer": self._transfer is not None,
            "sessions": [_session(link) for link in self._links()],
            "outgoing_queues": len(outgoing),
            "outgoing_messages": sum(queue.message_count for queue in outgoing),
        }
        return document, 0

    def _queues(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Every queue: management tells of private queues and of those that somebody has open, but of no others."""
        del identity, request
        return {
            "local": [queue.pathname for queue in self._engine.local_queues()],
            "outgoing": [self._attempts(queue) for queue in self._engine.outgoing_queues()],
        }, 0

    def _attempts(self, queue: OutgoingQueue) -> Document:
        """How the way to a destination fares, beside what management tells of it."""
        route = None if self._transfer is None else self._transfer.routes.get(queue.number)
        return {
            "name": queue.destination_format_name,
            "problem": None if route is None or not route.problem else route.problem,
            "retry_in": self._retry_in(route),
            # Management has them only while there is a connection, or one is tried.
            "next_hops": list(queue.next_hops or ()),
        }

    def _retry_in(self, route: Route | None) -> float | None:
        """Seconds until the next attempt."""
        if route is None or route.retry_due is None:
            return None
        return max(0.0, round(route.retry_due - self._engine.monotonic(), 1))

    def _links(self) -> list[Link]:
        return [] if self._transfer is None else list(self._transfer.links.values())

    # Another computer ---------------------------------------------------------------------------------------------

    def _peer(self, identity: Identity, request: Request) -> tuple[object, int]:
        """What is known here about another computer, whose addresses the asker has found."""
        del identity
        name, addresses = _text(request, "name"), _texts(request, "addresses")
        known = self._in_directory(name)
        hops = {format_address(address) for address in addresses}
        document = {
            "identifier": None if known is None else str(known.identifier),
            "address": None if known is None else known.qualified_computer_name,
            "sessions": [_session(link) for link in self._links() if link.remote_address in addresses],
            "queues": [
                {**self._attempts(queue), "state": queue.state.value, "messages": queue.message_count}
                for queue in self._engine.outgoing_queues()
                if hops & set(queue.next_hops or ()) or self._leads_to(queue, name, known)
            ],
        }
        return document, 0

    def _in_directory(self, name: str) -> QueueManager | None:
        for attribute, value in (("ComputerName", name.upper()), ("QualifiedComputerName", name)):
            _, found = self._engine.read_directory("QueueManager", [AttributeFilter(attribute, Operator.EQUALS, value)])
            if isinstance(found, QueueManager):
                return found
        return None

    def _leads_to(self, queue: OutgoingQueue, name: str, known: QueueManager | None) -> bool:
        try:
            info = get_destination_info(self._engine, FormatName.parse(queue.destination_format_name))
        except StatusError:
            return False
        if info is None:
            return False
        return info.host_name.lower() == name.lower() or (
            known is not None and info.queue_manager_guid == known.identifier
        )

    # The enterprise -----------------------------------------------------------------------------------------------

    def _directory(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Sites, links, computers and lists, as `directory.enterprise` writes them."""
        del identity, request
        return write_enterprise(survey(self._engine.directory)), 0

    def _provision(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Bring such a document into the directory; what was done."""
        del identity
        document = request.get("enterprise")
        if not isinstance(document, Mapping):
            raise InvalidParameter("a request needs the object `enterprise`")
        with _told():
            done = self._engine.provision_directory(read_enterprise(document))
        return done, self._engine.store.ticket()

    def _remove_from_directory(self, identity: Identity, request: Request) -> tuple[object, int]:
        del identity
        kind, names = _text(request, "kind"), _texts(request, "names")
        with _told():
            self._engine.remove_from_directory(kind, *names)
        return None, self._engine.store.ticket()

    # Public queues ------------------------------------------------------------------------------------------------

    def _public_queue(self, identity: Identity, request: Request) -> tuple[object, int]:
        return self._public_queues.attributes(identity, _text(request, "queue")), 0

    def _create_public_queue(self, identity: Identity, request: Request) -> tuple[object, int]:
        self._public_queues.create(identity, _text(request, "path"), _attributes(request))
        return None, self._engine.store.ticket()

    def _change_public_queue(self, identity: Identity, request: Request) -> tuple[object, int]:
        self._public_queues.change(identity, _text(request, "queue"), _attributes(request))
        return None, self._engine.store.ticket()

    def _delete_public_queue(self, identity: Identity, request: Request) -> tuple[object, int]:
        self._public_queues.delete(identity, _text(request, "queue"))
        return None, self._engine.store.ticket()

    # What is done -------------------------------------------------------------------------------------------------

    def _send(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Send what MS-MQMP has no place for, a message with a tracing queue: `packet` is one that has its properties. Its identifier."""
        engine = self._engine
        properties = _properties(_text(request, "packet"))
        transaction = None
        if "transaction" in request:
            text = _text(request, "transaction")
            known = engine.queue_manager.transaction_collection
            transaction = next((one for key, one in known.items() if str(key) == text), None)
            if transaction is None:
                raise TransactionSequence(f"there is no transaction {text}")
        name = FormatName.parse(_text(request, "queue"))
        opened = engine.open_queue(name, QueueAccessType.SEND, identity=identity)
        try:
            check_sender(properties, opened, identity)
            name_here(engine, properties)
            status = engine.enqueue_message_to_an_open_queue(opened, properties, transaction)
        finally:
            engine.close_queue(opened)
        if status is not EnqueueStatus.OK:
            raise refusal(status, opened)
        return engine.last_message_identifier, engine.store.ticket()

    def _move(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Move messages by their lookup ids, all of them or none (MS-MQDMPR 3.1.7.1.16)."""
        engine = self._engine
        names = [FormatName.parse(_text(request, key)) for key in ("queue", "target")]
        lookup_ids = [_number(text) for text in _texts(request, "lookup_ids")]
        with ExitStack() as stack:
            opened = []
            for name in names:
                opened.append(engine.open_queue(name, QueueAccessType.MOVE, identity=identity))
                stack.callback(engine.close_queue, opened[-1])
            transaction = engine.create_transaction(uuid.uuid4())
            try:
                for lookup_id in lookup_ids:
                    engine.move_message_by_lookup_identifier(opened[0], lookup_id, opened[1], transaction)
            except BaseException:
                engine.transaction_abort(transaction.identifier)
                raise
            engine.transaction_commit(transaction.identifier)
        return len(lookup_ids), engine.store.ticket()

    def _register_certificate(self, identity: Identity, request: Request) -> tuple[object, int]:
        """Make the certificate of a user known to receivers, or that of who asks if no `sid` says otherwise."""
        engine = self._engine
        resolve = engine.settings.resolve_identity
        try:
            certificate = x509.load_pem_x509_certificate(_text(request, "certificate").encode())
            sid = _text(request, "sid") if "sid" in request else None
            owner = identity if sid is None else resolve and resolve(Sid.parse(sid))
        except ValueError as error:
            raise InvalidParameter(str(error)) from None
        if owner is None:
            raise IllegalUser(f"nobody here has the SID {sid}")
        if not engine.register_certificate(owner, certificate.public_bytes(Encoding.DER)):
            raise GenericError(f"the directory refused the certificate of {owner.name}")
        return None, engine.store.ticket()


@contextmanager
def _told() -> Iterator[None]:
    """What is wrong with a topology is wrong with the request."""
    try:
        yield
    except TopologyError as error:
        raise InvalidParameter(str(error)) from None


def _properties(packet: str) -> MessageProperties:
    try:
        message = Message(base64.b64decode(packet, validate=True))
        values = {one.name: getattr(message, one.name) for one in dataclasses.fields(MessageProperties)}
    except (LannerError, ValueError) as error:
        raise InvalidParameter(f"the packet of a message: {error}") from None
    if not message.sender_identifier:
        # It is known here.
        del values["sender_identifier_type"]
    return MessageProperties(**{name: value for name, value in values.items() if value is not None})


def _text(request: Request, key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise InvalidParameter(f"a request needs the text `{key}`")
    return value


def _attributes(request: Request) -> Mapping[str, object]:
    value = request.get("attributes")
    if not isinstance(value, Mapping):
        raise InvalidParameter("a request needs the object `attributes`")
    return value


def _texts(request: Request, key: str) -> list[str]:
    value = request.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise InvalidParameter(f"a request needs the list of texts `{key}`")
    return value


def _number(text: str) -> int:
    """A lookup id has 64 bits and is text: many writers of JSON have only 53."""
    if not text.isdecimal() or len(text) > _LOOKUP_ID_DIGITS:
        raise InvalidParameter(f"lookup id {text!r}")
    return int(text)


def _session(link: Link) -> Document:
    session = link.session
    return {
        "address": link.remote_address,
        "queue_manager": str(link.remote_qm_guid),
        "state": session.state.value,
        "initiator": link.is_initiator,
        "window": session.received_window_size,
        "unacknowledged": session.unacked_message_count,
        "queues": [route.queue.destination_format_name for route in link.routes],
    }
