"""The backend for another Lanner, over its own RPC interface (services/lanner_session.py).

An operation runs there as it would in the queue manager's own process, and its error has the same
text. The queue manager holds a message received outside a transaction until this side acknowledges
it. If the connection is lost before that, the message returns to its queue; if it is lost while the
acknowledgment is under way, the receive ends with ReceiveInDoubt.
"""

# A read's time-out is the protocol's, kept by the queue manager.

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lanner.client._async.asked import Asked
from lanner.client._async.connections import Connections
from lanner.client._async.io import in_thread
from lanner.client._async.lanner_connection import LannerConnection
from lanner.client._async.lanner_queue import LannerQueue
from lanner.client._async.lanner_units import LannerTransaction
from lanner.client.send_numbers import SendNumbers
from lanner.host.names import QueueNames
from lanner.host.queue_documents import from_document, write_attributes
from lanner.model.errors import (
    AccessDenied,
    UnsupportedOperation,
)
from lanner.security.access_lists import AccessList
from lanner.services.interfaces.lanner import (
    Document,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.client._async.backend import Backend, BackendQueue, BackendTransaction
    from lanner.model.branches import Branch
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.security.access_lists import AccessChange
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.wire.format_name import FormatName

T = TypeVar("T")


class LannerBackend(Asked):
    """The access of the connection's user to a Lanner that runs elsewhere."""

    def __init__(self, connections: Connections[LannerConnection], name: str, identifier: uuid.UUID) -> None:
        self.connections = connections
        self.name = name
        self.identifier: uuid.UUID | None = identifier
        self.names = QueueNames(name)
        self.sends = SendNumbers()
        self.signing_key: SigningKey | None = None
        self._registered_key: SigningKey | None = None
        self._internal_key: SigningKey | None = None

    async def open(self) -> None:
        """Do nothing: the backend is connected when it is made."""

    async def close(self) -> None:
        await self.connections.close()

    def as_user(self, identity: Identity) -> Backend:
        raise UnsupportedOperation(f"{self.place} runs elsewhere: connect to it as {identity.name} instead")

    @property
    def place(self) -> str:
        return self.connections.target.place

    async def do(self, what: str, work: Callable[[LannerConnection], Awaitable[T]]) -> T:
        """Run `work` with the connection, after closing the objects abandoned on it."""

        async def tidied(connection: LannerConnection) -> T:
            if connection.abandoned:
                await connection.tidy()
            return await work(connection)

        return await self.connections.do(what, tidied)

    async def _request(self, what: str, request: str, **arguments: object) -> Document:
        document, _ = await self.do(what, lambda connection: connection.call({"request": request, **arguments}))
        return document

    # Queues
    # ----------------------------------------------------------------------------------------------

    async def create_queue(
        self, path: str, attributes: Mapping[str, object], access: Mapping[str, list[str]] | str | None = None
    ) -> str:
        given = write_attributes(attributes)
        document = await self._request(path, "create queue", path=path, attributes=given, access=access)
        pathname: str = document["pathname"]
        return pathname

    async def delete_queue(self, name: FormatName) -> None:
        await self._request(str(name), "delete queue", name=str(name))

    async def attributes(self, name: FormatName) -> QueueObject:
        return from_document(await self._request(str(name), "attributes", name=str(name)))

    async def set_attributes(self, name: FormatName, changes: Mapping[str, object]) -> None:
        await self._request(str(name), "set attributes", name=str(name), attributes=write_attributes(changes))

    async def access(self, name: FormatName) -> AccessList:
        return AccessList.from_document(await self._request(str(name), "access", name=str(name)))

    async def change_access(self, name: FormatName, change: AccessChange, *, force: bool) -> None:
        await self._request(str(name), "change access", name=str(name), change=asdict(change), force=force)

    async def exists(self, name: FormatName) -> bool:
        found: bool = (await self._request(str(name), "exists", name=str(name)))["exists"]
        return found

    async def is_transactional(self, name: FormatName) -> bool | None:
        found: bool | None = (await self._request(str(name), "is transactional", name=str(name)))["transactional"]
        return found

    async def count(self, name: FormatName) -> int:
        count: int = (await self._request(str(name), "count", name=str(name)))["count"]
        return count

    async def subqueue_names(self, name: FormatName) -> list[str]:
        names: list[str] = (await self._request(str(name), "subqueues", name=str(name)))["names"]
        return names

    def queue(self, name: FormatName, text: str, *, exclusive: bool) -> BackendQueue:
        return LannerQueue(self, name, text, exclusive=exclusive)

    def transaction(self) -> BackendTransaction:
        return LannerTransaction(self)

    def branch(self, branch: Branch) -> BackendTransaction:
        """Return a session transaction, which becomes the branch when it is prepared."""
        del branch
        return LannerTransaction(self)

    async def distributed(self, request: str, **arguments: object) -> Document:
        return await self._request("", request, **arguments)

    async def prepare(self, unit: BackendTransaction, **arguments: object) -> None:
        await cast("LannerTransaction", unit).prepare({"request": "prepare", **arguments})

    async def key_to_sign_with(self) -> SigningKey | None:
        """Return the program's own key, else that of the user's internal certificate.

        The certificate is registered for receivers, if the user may do that.
        """
        # Imported here: most programs sign nothing.
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        from lanner.client.internal_key import internal_key

        data = self.connections.target.data
        key = self.signing_key or self._internal_key
        if key is None and data is not None:
            key = self._internal_key = await in_thread(lambda: internal_key(data))
        if key is not None and key is not self._registered_key:
            certificate = x509.load_der_x509_certificate(key.certificate).public_bytes(Encoding.PEM).decode()
            with contextlib.suppress(AccessDenied, UnsupportedOperation):
                await self.ask("register certificate", certificate=certificate)
            self._registered_key = key
        return key

    # For administrators
    # -------------------------------------------------------------------------------------------

    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        text = json.dumps({"request": request, **arguments})
        return await self.do("", lambda connection: connection.ask(text))
