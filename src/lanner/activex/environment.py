"""What the coclasses reach the queue manager through."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from lanner.host.internal_signing_key import internal_signing_key
from lanner.model.errors import NoInternalUserCert, RemoteMachineNotAvailable
from lanner.rpc.async_client import connect_tcp
from lanner.services.ports import HANDSHAKE_PORT
from lanner.transfer.addresses import resolve

if TYPE_CHECKING:
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

# Ours: a computer that does not answer for so long is not there.
CONNECT_TIMEOUT: Final = 30.0  # seconds


@dataclass(frozen=True, slots=True)
class ActivexSettings:
    """What an operator may change."""

    # What a read that times out returns (DECISIONS): S_OK and no message, as on Windows, or the
    # codes of the document.
    timeout: Literal["null", "error"] = "null"


class Environment:
    """One queue manager as its coclasses see it.

    Everything here and in them runs in the loop's thread.

    Events of the engine are raised with `lock` held, never across an `await`; what must be on disk
    is a change of the `committer`, which is awaited.
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
        # None: nobody gets an internal certificate here.
        self.certificates = certificates
        # None: there are no external transactions.
        self.transaction_manager = transaction_manager
        self.settings = ActivexSettings() if settings is None else settings
        # Where queue managers are asked for what only they know.
        self.remote_port = HANDSHAKE_PORT

    async def connect(self, computer: str) -> RpcClient:
        """The RPC port of another computer's queue manager, as nobody in particular: callers here have given us no password for it."""
        peers = {} if self.transfer is None else self.transfer.settings.peers
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                addresses = await asyncio.to_thread(resolve, computer, peers)
                return await connect_tcp(addresses[0], self.remote_port)
        except OSError as error:
            raise RemoteMachineNotAvailable(f"{computer} cannot be reached: {error}") from error

    async def internal_signing_key(self, identity: Identity) -> SigningKey:
        """The key of the caller's internal certificate.

        Making one takes a moment, in another thread.
        """
        certificates = self.certificates
        if certificates is None:
            raise NoInternalUserCert(f"{identity.name}: this queue manager makes no internal certificates")
        return await asyncio.to_thread(internal_signing_key, self.engine, certificates, identity)

    def create(self, clsid: UUID) -> ComObject | None:
        """A new object of a coclass, as its client creates it; None if there is no such coclass."""
        from lanner.activex import COCLASSES

        coclass = COCLASSES.get(clsid)
        return None if coclass is None else coclass(self)
