"""The coclasses' access to the queue manager."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from uuid import UUID

from lanner.host.fair_threads import FairThreads
from lanner.host.internal_signing_key import internal_signing_key
from lanner.model.errors import NoInternalUserCert, RemoteMachineNotAvailable
from lanner.rpc.async_client import connect_tcp
from lanner.services.ports import HANDSHAKE_PORT
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.activex.transaction import TransactionManager
    from lanner.com.objects import ComObject
    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.rpc.async_client import RpcClient
    from lanner.security.identity import Identity
    from lanner.security.internal_certificates import InternalCertificates
    from lanner.security.signing import SigningKey
    from lanner.security.users import UserFile
    from lanner.transfer.transfer import Transfer

T = TypeVar("T")

# Not in the specification: the time after which a computer that does not answer counts as
# unreachable.
CONNECT_TIMEOUT: Final = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class ActivexSettings:
    """Settings that an operator may change."""

    # The result of a read that times out (DECISIONS): S_OK without a message, as on Windows, or the
    # codes of the document.
    timeout: Literal["null", "error"] = "null"


class Environment:
    """One queue manager as its coclasses see it.

    This object and the coclasses run in the event loop's thread. Engine events are raised with
    `lock` held, never across an `await`. A change that must be durable is made by the `committer`
    and awaited.
    """

    def __init__(
        self,
        engine: Engine,
        committer: Committer,
        *,
        transfer: Transfer | None = None,
        users: UserFile | None = None,
        certificates: InternalCertificates | None = None,
        transaction_manager: TransactionManager | None = None,
        settings: ActivexSettings | None = None,
    ) -> None:
        self.engine = engine
        self.store = engine.store
        self.lock = engine.store.lock
        self.committer = committer
        self.transfer = transfer
        self.users = users
        # None if this queue manager issues no internal certificates.
        self.certificates = certificates
        # None if there are no external transactions.
        self.transaction_manager = transaction_manager
        self.settings = ActivexSettings() if settings is None else settings
        # The port for requests to other queue managers.
        self.remote_port = HANDSHAKE_PORT
        # Names that no server answers for leave threads for other work.
        self._lookups = FairThreads()
        # So do signatures, new keys and searches in the directory of a large domain, for which a
        # user may ask as often as it likes.
        self._work = FairThreads()

    async def connect(self, computer: str) -> RpcClient:
        """Connect to the RPC port of another computer's queue manager, anonymously.

        The callers of these objects have given us no password for it.
        """
        peers = {} if self.transfer is None else self.transfer.settings.peers
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                addresses = await self._lookups.run("names", partial(resolve, computer, peers))
                return await connect_tcp(addresses[0], self.remote_port)
        except OSError as error:
            raise RemoteMachineNotAvailable(f"{computer} cannot be reached: {error}") from error

    async def internal_signing_key(self, identity: Identity) -> SigningKey:
        """Return the key of the caller's internal certificate.

        If a new one must be generated, that takes place in another thread.
        """
        certificates = self.certificates
        if certificates is None:
            raise NoInternalUserCert(f"{identity.name}: this queue manager makes no internal certificates")
        return await self.in_thread(identity, partial(internal_signing_key, self.engine, certificates, identity))

    async def in_thread(self, identity: Identity, work: Callable[[], T]) -> T:
        """Do work in another thread, after the user's earlier work."""
        return await self._work.run(identity.sid, work)

    def create(self, clsid: UUID) -> ComObject | None:
        """Create an object of a coclass for a client. Return None for an unknown coclass."""
        from lanner.activex import COCLASSES

        coclass = COCLASSES.get(clsid)
        return None if coclass is None else coclass(self)
