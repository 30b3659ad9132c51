"""`QueueManager`, a queue manager in this process, and `connect`, for one elsewhere."""

# A connection's time-out is its own.
# ruff: noqa: ASYNC109

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Self

from lanner.client._async.closeable import Closeable
from lanner.client._async.enterprise import Enterprise
from lanner.client._async.queue import Queue
from lanner.client._async.transaction import Transaction
from lanner.model.enums import INFINITE
from lanner.wire.format_name import parse

# Not in the specification: the seconds to wait for a computer that does not answer.
CONNECT_TIMEOUT: Final = 20.0
Authentication = Literal["ntlm", "negotiate", "kerberos"]

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from lanner.client._async.backend import Backend, Document
    from lanner.host.names import QueueNames
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.transfer.settings import TransferSettings


class QueueManager(Closeable):
    r"""A queue manager: in this process on a data directory of its own, or elsewhere (`connect`).

    >>> async with QueueManager("data", name="ALPHA") as qm:
    ...     q = await qm.create_queue(r".\private$\orders")
    ...     await q.send(Message(body=b"hi", recoverable=True))
    """

    _backend: Backend

    def __init__(
        self,
        data: str | Path,
        name: str | None = None,
        *,
        bind: str | None = None,
        transfer: TransferSettings | None = None,
        **settings: object,
    ) -> None:
        """Prepare a queue manager in this process.

        `bind` is the address on which to exchange messages with other computers; without it,
        messages for them wait. Other settings are those of the engine (`EngineSettings`).
        """
        # Imported here: a client of a remote queue manager needs no engine.
        from lanner.client._async.embedded import EmbeddedBackend
        from lanner.client.bound_settings import bound_settings
        from lanner.host.addresses import local_settings

        values = bound_settings(bind, transfer, settings)
        self._backend = EmbeddedBackend(data, local_settings(name, **values), bind=bind, transfer=transfer)

    @classmethod
    def over(cls, backend: Backend) -> Self:
        """Return the object for a backend."""
        made = cls.__new__(cls)
        made._backend = backend  # noqa: SLF001 (an object of this class)
        return made

    def __repr__(self) -> str:
        return f"<QueueManager {self.name} at {self._backend.place}>"

    async def __aenter__(self) -> Self:
        await self._backend.open()
        return self

    async def close(self) -> None:
        """Stop an embedded queue manager, or close the connection to one elsewhere.

        Open transactions are aborted. Closing twice is harmless.
        """
        await self._backend.close()

    @property
    def name(self) -> str:
        """The computer name of the queue manager."""
        return self._backend.name

    @property
    def identifier(self) -> uuid.UUID | None:
        """The identifier of the queue manager; None if it is not a Lanner and has not sent it."""
        return self._backend.identifier

    @property
    def names(self) -> QueueNames:
        """The parser for queue names of this queue manager."""
        return self._backend.names

    @property
    def signing_key(self) -> SigningKey | None:
        """The key that signs messages sent with `authenticate`.

        None: the internal certificate of the user signs them.
        """
        return self._backend.signing_key

    @signing_key.setter
    def signing_key(self, key: SigningKey | None) -> None:
        self._backend.signing_key = key

    def as_user(self, identity: Identity) -> Self:
        """Return the same queue manager as seen by another user.

        Raises UnsupportedOperation if the queue manager runs elsewhere.
        """
        return self.over(self._backend.as_user(identity))

    # Queues
    # ----------------------------------------------------------------------------------------------

    async def create_queue(
        self,
        name: str,
        *,
        transactional: bool = False,
        journal: bool = False,
        label: str = "",
        quota_kb: int | None = None,
        journal_quota_kb: int | None = None,
        access: Mapping[str, str | Iterable[str]] | str | None = None,
        **attributes: object,
    ) -> Queue:
        """Create a queue and return it.

        Raises QueueExists if a queue of that name exists. Attributes have the data model's names.

        `access` is either rights by account, as `Queue.grant` takes them, or SDDL. With rights by
        account, you and the Administrators also get all rights. Without `access`, the queue has the
        default access list.
        """
        given = {
            "transactional": transactional,
            "journaling": journal,
            "label": label,
            "quota": INFINITE if quota_kb is None else quota_kb,
            "journal_quota": INFINITE if journal_quota_kb is None else journal_quota_kb,
        }
        path = str(self.names.path_name(name))
        if isinstance(access, str) or access is None:
            wanted: Mapping[str, list[str]] | str | None = access
        else:
            wanted = {who: [rights] if isinstance(rights, str) else list(rights) for who, rights in access.items()}
        return self.open(await self._backend.create_queue(path, {**given, **attributes}, wanted))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages, journal and subqueues."""
        await self._backend.delete_queue(self.names.format_name(name))

    def open(self, name: str, *, exclusive: bool = False) -> Queue:
        """Return a queue by any spelling of its name; it is opened on first use.

        You can send to a queue of another computer: its messages wait in an outgoing queue. If a
        queue is opened `exclusive`, only this object can receive from it, beginning with its first
        receive or with its `with` block.
        """
        return Queue(self._backend, name, exclusive=exclusive)

    async def queues(self) -> list[Queue]:
        """Return the public and private queues, without journals, subqueues and outgoing queues.

        Raises AccessDenied unless the user is an administrator, as do all methods below that are
        for administrators.
        """
        return [self.open(name) for name in await self._backend.queue_names()]

    async def outgoing_queues(self) -> list[Queue]:
        """Return the queues whose messages wait for another computer."""
        names = [document["name"] for document in await self._backend.outgoing()]
        return [Queue(self._backend, name, parse(name)) for name in names]

    @property
    def dead_letter(self) -> Queue:
        """The dead-letter queue."""
        return self.open("system$;DEADLETTER")

    @property
    def transactional_dead_letter(self) -> Queue:
        """The dead-letter queue of transactional messages."""
        return self.open("system$;DEADXACT")

    @property
    def system_journal(self) -> Queue:
        """The queue with copies of messages sent with `use_journal_queue`."""
        return self.open("system$;JOURNAL")

    def transaction(self) -> Transaction:
        """Return a transaction, which its `with` block commits, or aborts on an exception."""
        return Transaction(self._backend)

    async def who_am_i(self) -> Document:
        """Return the user as the queue manager identifies it.

        The document has the name, the SID, whether the user is an administrator, and the scope of a
        token.
        """
        document: Document = await self._backend.ask("who am i")
        return document

    async def overview(self) -> Document:
        """Return totals over the queues that the user may see, up to a second old."""
        document: Document = await self._backend.ask("overview")
        return document

    async def queue_page(
        self,
        *,
        page: int = 1,
        page_size: int = 100,
        name: str = "",
        sort: str = "name",
        columns: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
    ) -> Document:
        """Return one page of the queues that the user may see.

        The document has `total` and `items`; each item has the given columns, or all. `name` is a
        part of the name, or a pattern with * and ? of the whole name or of what follows a
        backslash. `sort` is a column; prefix it with - for descending order. With `names`, only the
        queues with these path names are considered. The column `oldest`, when the oldest message
        arrived, is given on request only, for at most 100 queues.
        """
        wanted = None if columns is None else list(columns)
        document: Document = await self._backend.ask(
            "queue page",
            page=page,
            page_size=page_size,
            name=name,
            sort=sort,
            columns=wanted,
            names=None if names is None else list(names),
        )
        return document

    async def history(self, queue: str | None = None, *, seconds: int = 900) -> Document:
        """Return the depth and rates of a queue over time, or of all queues together.

        `points` are time, messages, and messages per second in and out. `seconds` is 900, 3600 or
        86400. Raises UnsupportedOperation if no service runs.
        """
        document: Document = await self._backend.ask("history", queue=queue, seconds=seconds)
        return document

    async def oldest_message(self) -> Document | None:
        """Return the queue whose oldest message has waited longest; None if all are empty.

        The document has `queue`, and in `arrived` the time when that message arrived. For
        administrators.
        """
        document: Document | None = await self._backend.ask("oldest message")
        return document

    # Tokens
    # ----------------------------------------------------------------------------------------------

    async def create_token(
        self,
        scope: Iterable[str],
        *,
        lifetime: float | None = None,
        description: str = "",
        user: str | None = None,
    ) -> Document:
        """Create a token, with which programs log on to the HTTP API.

        `token` in the result is its text, which is shown only now. `scope` is one or more of read,
        send, receive, manage and admin. The token expires after `lifetime` seconds, or never. An
        administrator may create a token for another `user`.
        """
        document: Document = await self._backend.ask(
            "create token", scope=list(scope), lifetime=lifetime, description=description, user=user
        )
        return document

    async def tokens(self) -> list[Document]:
        """Return the tokens of the user; for an administrator, of all users."""
        documents: list[Document] = await self._backend.ask("tokens")
        return documents

    async def revoke_token(self, identifier: str) -> None:
        """Revoke a token, and end the sessions it opened.

        Raises InvalidParameter if there is no such token.
        """
        await self._backend.ask("revoke token", id=identifier)

    async def log_on_ticket(self) -> str:
        """Return a secret that logs the user on to the HTTP API once, within a minute.

        Raises UnsupportedOperation if no service runs.
        """
        ticket: str = (await self._backend.ask("ticket"))["ticket"]
        return ticket

    # For administrators
    # -------------------------------------------------------------------------------------------

    @property
    def enterprise(self) -> Enterprise:
        """Sites, routing links, other computers and distribution lists."""
        return Enterprise(self._backend)

    async def outgoing(self) -> list[Document]:
        """Return the outgoing queues with their state, messages, next hops, problem and history."""
        return await self._backend.outgoing()

    async def pause(self, name: str) -> None:
        """Hold back the messages of an outgoing queue until `resume`, also after a restart."""
        await self._backend.pause(self.names.format_name(name))

    async def resume(self, name: str) -> None:
        """Send the messages of a paused queue."""
        await self._backend.resume(self.names.format_name(name))

    async def resend(self, name: str) -> None:
        """Resend unacknowledged messages now, without waiting for their timer."""
        await self._backend.resend(self.names.format_name(name))

    async def status(self) -> Document:
        """Return connections, listening addresses, and counts of waiting messages."""
        return await self._backend.status()

    async def examine(self, where: str = "", *, files: bool = False) -> list[Document]:
        """Return what `lanner doctor` finds in the store and, with `files`, in the data directory.

        For administrators. Advice that names a command includes `where`: the options that reach
        this queue manager.
        """
        documents: list[Document] = await self._backend.ask("examine", where=where, files=files)
        return documents

    async def checkpoint(self) -> None:
        """Write everything acknowledged before the call to the database file, for copying it.

        For administrators.
        """
        await self._backend.ask("checkpoint")

    async def sessions(self) -> list[Document]:
        """Return the connections: kind (client or queue manager), number, address, user, since.

        For administrators.
        """
        documents: list[Document] = await self._backend.ask("sessions")
        return documents

    async def close_session(self, kind: str, number: int) -> None:
        """End a connection listed by `sessions`; messages held by a client return to their queues.

        For administrators. Raises InvalidParameter if there is no such connection.
        """
        await self._backend.ask("close session", kind=kind, number=number)

    async def take_offline(self) -> None:
        """End the sessions with other computers, and begin none until `bring_online` or a restart.

        For administrators.
        """
        await self._backend.ask("take offline")

    async def bring_online(self) -> None:
        """Resume exchanging messages with other computers. For administrators."""
        await self._backend.ask("bring online")

    async def events(self, after: int | None = None, *, limit: int = 100, message: str | None = None) -> Document:
        """Return the log of events after an event's number.

        The document has `events`, and in `after` the number to continue from. Without `after`,
        `events` is empty and `after` is the newest event. With `message`, a message id, only the
        events of that message are returned, from the oldest on. Raises UnsupportedOperation if the
        queue manager keeps no log of events.
        """
        document: Document = await self._backend.ask("events", after=after, limit=limit, message=message)
        return document

    async def metrics(self, accept: str = "", names: Sequence[str] = ()) -> Document:
        """Return the metrics for Prometheus: `text` and its `content_type`.

        Raises UnsupportedOperation if no service runs.
        """
        document: Document = await self._backend.ask("metrics", accept=accept, names=list(names))
        return document

    async def settings(self) -> Document:
        """Return the settings of the service, without passwords.

        Raises UnsupportedOperation if no service runs.
        """
        document: Document = await self._backend.ask("settings")
        return document

    async def reports(self) -> list[Document]:
        """Return the data pipeline's reports that the service shows: name, bytes, made.

        For administrators. Raises UnsupportedOperation if the setting `http.reports` names no
        directory.
        """
        documents: list[Document] = await self._backend.ask("reports")
        return documents

    async def report(self, name: str) -> bytes:
        """Return a report, as an HTML page. For administrators."""
        parts: list[bytes] = []
        offset: int | None = 0
        while offset is not None:
            told: Document = await self._backend.ask("report", name=name, offset=offset)
            parts.append(str(told["octets"]).encode("latin-1"))
            offset = told["next"]
        return b"".join(parts)

    async def users(self) -> list[Document]:
        """Return the accounts of the queue manager."""
        documents: list[Document] = await self._backend.ask("users")
        return documents

    async def add_user(self, name: str, password: str, *, role: str = "user") -> Document:
        """Add an account with the role user, monitor, operator or administrator.

        Raises InvalidParameter if the name is taken or the password is too weak.
        """
        document: Document = await self._backend.ask("add user", name=name, password=password, role=role)
        return document

    async def set_user(self, name: str, *, password: str | None = None, role: str | None = None) -> Document:
        """Change an account. Raises IllegalUser if there is none of that name."""
        document: Document = await self._backend.ask("set user", name=name, password=password, role=role)
        return document

    async def remove_user(self, name: str) -> None:
        """Remove an account. Raises IllegalUser if there is none of that name."""
        await self._backend.ask("remove user", name=name)

    async def peer(self, name: str, addresses: Sequence[str] = ()) -> Document:
        """Return the queue manager's document about another computer, by its name and addresses."""
        document: Document = await self._backend.ask("peer", name=name, addresses=list(addresses))
        return document

    async def peers(self) -> list[Document]:
        """Return the queue managers that are bound to addresses.

        Each has its identifier, its addresses, when it was seen, and conflicts.
        """
        documents: list[Document] = await self._backend.ask("peers")
        return documents

    async def trust_peer(self, guid: uuid.UUID | str, addresses: Sequence[str] = ()) -> Document:
        """Accept a queue manager identifier from these addresses, not from learnt ones.

        Addresses that were trusted before stay trusted. Without `addresses`, the learnt ones become
        trusted. Raises InvalidParameter if there are none.
        """
        document: Document = await self._backend.ask("trust peer", guid=str(guid), addresses=list(addresses))
        return document

    async def forget_peer(self, guid: uuid.UUID | str) -> None:
        """Remove the binding of a queue manager identifier to addresses, and end its sessions.

        Raises InvalidParameter if it is bound to none.
        """
        await self._backend.ask("forget peer", guid=str(guid))

    async def transactions(self) -> list[Document]:
        """Return the distributed transactions that are in doubt here or about to be ended."""
        documents: list[Document] = await self._backend.ask("transactions")
        return documents

    async def commit_transaction(self, transaction: uuid.UUID | str) -> list[Document]:
        """Commit the local in-doubt branches of a distributed transaction, and return them.

        Raises InvalidParameter if there are none, and TransactionSequence if a program is about to
        end the transaction or this queue manager's coordinator has logged another outcome.
        """
        documents: list[Document] = await self._backend.ask("commit transaction", transaction=str(transaction))
        return documents

    async def abort_transaction(self, transaction: uuid.UUID | str) -> list[Document]:
        """Abort the local in-doubt branches of a distributed transaction, and return them.

        Raises InvalidParameter if there are none, and TransactionSequence if a program is about to
        end the transaction or this queue manager's coordinator has logged another outcome.
        """
        documents: list[Document] = await self._backend.ask("abort transaction", transaction=str(transaction))
        return documents

    async def certificates(self) -> list[Document]:
        """Return the users' certificates for verifying signatures.

        Each has user, subject, validity and fingerprint. For administrators.
        """
        documents: list[Document] = await self._backend.ask("certificates")
        return documents

    async def remove_certificate(self, sha256: str) -> Document:
        """Remove a user's certificate by its fingerprint or a prefix of it, and return it.

        For administrators.
        """
        document: Document = await self._backend.ask("remove certificate", sha256=sha256)
        return document

    async def register_certificate(self, certificate: str, sid: str | None = None) -> None:
        """Register a user's certificate (PEM), so that receivers can verify signatures.

        Without a SID, it belongs to the user of this object.
        """
        arguments = {} if sid is None else {"sid": sid}
        await self._backend.ask("register certificate", certificate=certificate, **arguments)


async def connect(
    host: str | None = None,
    user: str | None = None,
    password: str | None = None,
    data: str | Path | None = None,
    *,
    domain: str = "",
    port: int | None = None,
    authentication: Authentication = "ntlm",
    timeout: float = CONNECT_TIMEOUT,
) -> QueueManager:
    r"""Connect to a queue manager, Lanner or Windows.

    >>> async with await connect("beta", "alice", "secret") as qm:
    ...     print((await qm.open(r".\private$\orders").receive(timeout=1.0)).body)

    Without a `host`, connect to the Lanner on this machine that runs on the directory `data` (else
    $LANNER_DATA, else ./data); the kernel identifies you. Without a `user` you are anonymous. If
    `port` is None, the endpoint mapper names it; without an answer it is 2103. `timeout` is the
    number of seconds that connecting may take.

    Tasks and threads may share the object. The next call after a lost connection reconnects, but
    open transactions and cursors are lost.
    """
    # Imported here: a program with a queue manager of its own does not need RPC, which takes time
    # to import.
    from lanner.client._async.connecting import open_backend
    from lanner.client.target import Target

    target = Target.of(
        host, user, password, data, domain=domain, port=port, authentication=authentication, timeout=timeout
    )
    return QueueManager.over(await open_backend(target))
