"""Administration requests as JSON documents.

They cover what Microsoft's protocols lack, and serve both Lanner's own interface and the embedded
client: sessions and listeners, all queues by name, outgoing queues and the reasons why they wait,
information about other computers, the enterprise, and user certificates.

Everything here is for administrators, except the documents of `user_documents`, which are for every
user.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from lanner.directory import AttributeFilter, Operator
from lanner.directory.topology import TopologyError, survey
from lanner.host.long_reads import read_apart
from lanner.model.directory_objects import QueueManager
from lanner.model.errors import InvalidParameter, StatusError
from lanner.security.keys import best_key_bits
from lanner.security.scopes import ADMIN, OPERATE, READ
from lanner.services.account_documents import ORDERS
from lanner.services.callers import require_administrator
from lanner.services.certificate_documents import CertificateDocuments
from lanner.services.event_documents import EventDocuments
from lanner.services.management_events import ManagementEvents
from lanner.services.management_properties import QUEUE_PROPERTIES, QueriedQueue, get_properties
from lanner.services.oldest import oldest_message
from lanner.services.outgoing_documents import PROGRESS, outgoing_document, values_of
from lanner.services.outgoing_queues import transfer_info
from lanner.services.peer_documents import PeerDocuments
from lanner.services.request_fields import Request, text_of, texts_of
from lanner.services.session_documents import SessionDocuments
from lanner.services.transaction_documents import TransactionDocuments
from lanner.services.user_documents import UserDocuments
from lanner.transfer.addresses import format_address, get_destination_info
from lanner.wire.format_name import FormatName, parse

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.change import Change, Changes
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.rpc.server_socket import ServerSocket
    from lanner.security.identity import Identity
    from lanner.transfer.link import Link
    from lanner.transfer.route import Route
    from lanner.transfer.transfer import Transfer

# `lanner.directory.enterprise` is imported where it is used: it loads pydantic, which is slow, and
# few queue managers have an enterprise to describe.

Document = dict[str, Any]
_Handler = Callable[["Identity", Request], object]


# Requests that operators may make, in addition to the actions on outgoing queues.
OPERATIONS: Final = frozenset(
    {"close session", "take offline", "bring online", "commit transaction", "abort transaction"}
)


# These documents contain message contents. A role that may read everything else (monitor) does not
# include them; they require an administrator.
WITH_MESSAGES: Final = frozenset({"reports", "report"})


class Documents:
    """The documents of one queue manager.

    `about` returns the data that only the daemon has: version, settings, listeners.
    """

    def __init__(
        self,
        engine: Engine,
        changes: Changes,
        transfer: Transfer | None = None,
        about: Callable[[], Document] = dict,
        of_users: UserDocuments | None = None,
        others: Mapping[str, _Handler] | None = None,
        clients: Callable[[], list[ServerSocket]] = list,
    ) -> None:
        """Create the handlers; `others` are requests that the daemon answers, in a thread."""
        users = UserDocuments(engine) if of_users is None else of_users
        self._of_users: dict[str, _Handler] = users.handlers
        self._everybody = users.handlers.keys() | users.slow.keys()
        self._sessions = SessionDocuments(self._links, clients)
        self._engine = engine
        self._changes = changes
        self._transfer = transfer
        self._about = about
        self._peer_documents = PeerDocuments(engine, transfer)
        self._management = ManagementEvents(engine, changes, transfer)
        certificates = CertificateDocuments(engine)
        self._questions: dict[str, _Handler] = {
            "status": self._status,
            "queues": self._queues,
            "outgoing": self._outgoing,
            "peer": self._peer,
            "peers": self._peers,
            "transactions": self._transactions,
            "sessions": lambda _identity, _request: self._sessions.describe(),
        }
        self._orders: dict[str, _Handler] = {
            **certificates.orders,
            "provision": self._provision,
            "remove from directory": self._remove_from_directory,
            "trust peer": self._trust_peer,
            "forget peer": self._forget_peer,
            "close session": self._close_session,
            "take offline": lambda _identity, _request: engine.take_offline(),
            "bring online": lambda _identity, _request: engine.bring_online(),
            "commit transaction": partial(self._end_transaction, is_commit=True),
            "abort transaction": partial(self._end_transaction, is_commit=False),
        }
        # These handlers do disk I/O or read all of the directory, without the store's lock.
        self._slow: dict[str, _Handler] = {
            "checkpoint": lambda _identity, _request: engine.store.checkpoint_everything(),
            "examine": self._examine,
            "events": lambda _identity, request: EventDocuments(engine).read(request),
            "oldest message": lambda _identity, _request: oldest_message(engine),
            "directory": self._directory,
            **certificates.slow_questions,
            **users.slow,
            **(others or {}),
        }
        self._slow_questions = frozenset(
            {"examine", "events", "oldest message", "directory", *certificates.slow_questions, *(others or {})} - ORDERS
        )
        # The actions of MS-MQMR 3.1.4.2.
        self._actions = {"pause": "PAUSE", "resume": "RESUME", "resend": "EOD_RESEND"}
        self._of_operators = OPERATIONS | self._actions.keys()

    def check(self, identity: Identity, request: object) -> None:
        """Raise AccessDenied unless the caller may make a request.

        Handlers of requests that are open to all users check the user's rights themselves.
        """
        name = request.get("request") if isinstance(request, Mapping) else None
        if name not in self._everybody:
            is_operation = isinstance(name, str) and name in self._of_operators
            scope = READ if self._only_reads(name) else OPERATE if is_operation else ADMIN
            require_administrator(self._engine, identity, scope)
            if name in WITH_MESSAGES:
                # A read token of an administrator suffices; the monitor role does not.
                require_administrator(self._engine, dataclasses.replace(identity, scope=None))

    def _only_reads(self, name: object) -> bool:
        return name in self._questions or name in self._slow_questions

    def slow(self, identity: Identity, request: object) -> Callable[[], object] | None:
        """Return the work of a request that must run in a thread; None if `answer` handles it."""
        name = request.get("request") if isinstance(request, Mapping) else None
        if not isinstance(name, str) or name not in self._slow:
            return None
        return partial(self._slow[name], identity, cast("Request", request))

    def answer(self, identity: Identity, request: object) -> tuple[object, Change]:
        """Return the document that answers a request, and the change that must be durable first."""
        if not isinstance(request, Mapping):
            raise InvalidParameter("a request is an object with a member `request`")
        name = text_of(request, "request")
        if name in self._actions:
            queue = parse(text_of(request, "queue"))
            return None, self._management.queue_action(identity, queue, self._actions[name])
        handler = self._of_users.get(name) or self._questions.get(name) or self._orders.get(name)
        if handler is None:
            known = ", ".join((*self._of_users, *self._questions, *self._orders, *self._slow, *self._actions))
            raise InvalidParameter(f"unknown request {name!r}: one of {known}")
        with self._changes.change() as change:
            document = handler(identity, request)
        if name in self._questions:
            change.forget()
        return document, change

    # State
    # ----------------------------------------------------------------------------------------------

    def _status(self, identity: Identity, request: Request) -> Document:
        del identity, request
        qm = self._engine.queue_manager
        outgoing = list(self._engine.outgoing_queues())
        return {
            "name": qm.computer_name,
            "qualified_name": qm.qualified_computer_name,
            "identifier": str(qm.identifier),
            "process": os.getpid(),
            **self._about(),
            "transfer": self._transfer is not None,
            "online": qm.connection_active,
            "sessions": [_session(link) for link in self._links()],
            "outgoing_queues": len(outgoing),
            "outgoing_messages": sum(queue.message_count for queue in outgoing),
            "refused": [] if self._transfer is None else [row.document() for row in self._transfer.incoming.refusals],
            "incidents": [] if self._transfer is None else [row.document() for row in self._transfer.incidents],
            "peer_conflicts": self._peer_documents.conflicts(),
        }

    def _examine(self, identity: Identity, request: Request) -> object:
        """Return the findings of `lanner doctor`; with `files`, also on the data directory."""
        # Imported here: only `lanner doctor` needs it.
        from lanner.services.examination import examine_files, examine_store
        from lanner.services.service_examination import examine_service

        where, data = text_of(request, "where"), self._about().get("data")
        findings = list(examine_files(Path(data))) if request.get("files") is True and data is not None else []
        engine = self._engine
        with engine.store.lock:
            in_doubt = TransactionDocuments(engine).describe()
            attempts = map(self._attempts, engine.outgoing_queues())
            problems = {one["name"]: one["problem"] for one in attempts if one["problem"] is not None}
            findings += examine_store(engine.store, where, dt.datetime.now(dt.UTC), in_doubt, problems)
            peers = self._peer_documents.describe() if self._peer_documents.conflicts() else []
            findings += examine_service(self._status(identity, request), peers)
        return [finding.document() for finding in findings]

    def _queues(self, identity: Identity, request: Request) -> object:
        """Return every local queue.

        MS-MQMR lists only private queues and queues that are open.
        """
        del identity, request
        return {"local": [queue.pathname for queue in self._engine.local_queues()]}

    def _outgoing(self, identity: Identity, request: Request) -> object:
        """Return the state of the outgoing queues, sorted by name."""
        del identity, request
        queues = sorted(self._engine.outgoing_queues(), key=lambda queue: queue.destination_format_name.lower())
        return [self._progress(queue) for queue in queues]

    def _progress(self, queue: OutgoingQueue) -> Document:
        queried = QueriedQueue(self._engine, queue, transfer_info(queue, self._transfer))
        told = values_of(PROGRESS, get_properties(QUEUE_PROPERTIES, PROGRESS, queried))
        return outgoing_document(told, self._attempts(queue))

    def _attempts(self, queue: OutgoingQueue) -> Document:
        """Return the route information of an outgoing queue that MS-MQMR lacks."""
        route = None if self._transfer is None else self._transfer.routes.get(queue.number)
        return {
            "name": queue.destination_format_name,
            "problem": None if route is None or not route.shown_problem else route.shown_problem,
            "retry_in": self._retry_in(route),
            # MS-MQMR reports next hops only while connected or connecting.
            "next_hops": list(queue.next_hops or ()),
        }

    def _retry_in(self, route: Route | None) -> float | None:
        """Return the seconds until the next connection attempt; None if none is scheduled."""
        if route is None or route.retry_due is None:
            return None
        return max(0.0, round(route.retry_due - self._engine.monotonic(), 1))

    def _close_session(self, identity: Identity, request: Request) -> object:
        kind, number = request.get("kind"), request.get("number")
        self._sessions.close(kind, number)
        self._engine.audit.done("close session", identity, kind=kind, number=number)
        return None

    def _links(self) -> list[Link]:
        return [] if self._transfer is None else list(self._transfer.links.values())

    # Another computer
    # ---------------------------------------------------------------------------------------------

    def _peer(self, identity: Identity, request: Request) -> object:
        """Describe another computer, whose addresses the client has resolved."""
        del identity
        name, addresses = text_of(request, "name"), texts_of(request, "addresses")
        known = self._in_directory(name)
        hops = {format_address(address) for address in addresses}
        return {
            "identifier": None if known is None else str(known.identifier),
            "address": None if known is None else known.qualified_computer_name,
            # The value is 0 if no key is known.
            "key_bits": 0 if known is None else best_key_bits(known.public_encryption_key_list),
            "sessions": [_session(link) for link in self._links() if link.remote_address in addresses],
            "queues": [
                {**self._attempts(queue), "state": queue.state.value, "messages": queue.message_count}
                for queue in self._engine.outgoing_queues()
                if hops & set(queue.next_hops or ()) or self._leads_to(queue, name, known)
            ],
        }

    def _peers(self, identity: Identity, request: Request) -> object:
        """Return the queue managers bound to addresses, and others that claim to be one of them."""
        del identity, request
        return self._peer_documents.describe()

    def _trust_peer(self, identity: Identity, request: Request) -> object:
        del identity
        return self._peer_documents.trust(_guid(request), texts_of(request, "addresses"))

    def _forget_peer(self, identity: Identity, request: Request) -> object:
        del identity
        self._peer_documents.forget(_guid(request))
        return None

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

    # Distributed transactions
    # -------------------------------------------------------------------------------------

    def _transactions(self, identity: Identity, request: Request) -> object:
        """Return the transactions that are in doubt here, and those that are being ended."""
        del identity, request
        return TransactionDocuments(self._engine).describe()

    def _end_transaction(self, identity: Identity, request: Request, *, is_commit: bool) -> object:
        text = text_of(request, "transaction")
        try:
            transaction = UUID(text)
        except ValueError:
            raise InvalidParameter(f"{text} is no identifier of a transaction") from None
        # The other resources may end differently, so the audit log records the user who decided.
        event = "commit transaction" if is_commit else "abort transaction"
        with self._engine.audit.change(event, identity, {"transaction": str(transaction)}):
            return TransactionDocuments(self._engine).end(transaction, is_commit=is_commit)

    # The enterprise
    # ----------------------------------------------------------------------------------------------

    def _directory(self, identity: Identity, request: Request) -> object:
        """Return sites, links, computers and lists in the format of `directory.enterprise`."""
        del identity, request
        from lanner.directory.enterprise import write_enterprise

        with read_apart(self._engine) as directory:
            return write_enterprise(survey(directory))

    def _provision(self, identity: Identity, request: Request) -> object:
        """Apply an enterprise document to the directory; return the changes made."""
        from lanner.directory.enterprise import read_enterprise

        del identity
        document = request.get("enterprise")
        if not isinstance(document, Mapping):
            raise InvalidParameter("a request needs the object `enterprise`")
        with _told():
            return self._engine.provision_directory(read_enterprise(document))

    def _remove_from_directory(self, identity: Identity, request: Request) -> object:
        del identity
        kind, names = text_of(request, "kind"), texts_of(request, "names")
        with _told():
            self._engine.remove_from_directory(kind, *names)
        return None


@contextmanager
def _told() -> Iterator[None]:
    """Report a TopologyError as an InvalidParameter of the request."""
    try:
        yield
    except TopologyError as error:
        raise InvalidParameter(str(error)) from None


def _guid(request: Request) -> UUID:
    text = text_of(request, "guid")
    try:
        return UUID(text)
    except ValueError:
        raise InvalidParameter(f"{text} is no identifier of a queue manager") from None


def _session(link: Link) -> Document:
    session = link.session
    certification = link.connection.certification
    peer = link.certified_peer
    return {
        "address": link.remote_address,
        "queue_manager": str(link.remote_qm_guid),
        "state": session.state.value,
        "initiator": link.is_initiator,
        # The value is None on an unencrypted connection.
        "certificate": None if certification is None else certification.subject,
        "certified_peer": None if peer is None else peer.name,
        "window": session.received_window_size,
        "unacknowledged": session.unacked_message_count,
        "queues": [route.queue.destination_format_name for route in link.routes],
    }
