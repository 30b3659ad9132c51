"""Those who call, a queue manager to be called, and what their calls end with."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.constants import (
    CO_E_OBJNOTREG,
    E_ACCESSDENIED,
    E_NOTIMPL,
    RPC_E_ACCESS_DENIED,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_IPID,
    RPC_E_INVALID_OBJECT,
)
from lanner.com.interfaces import IACTIVATION, IOBJECTEXPORTER, IREMOTESCMACTIVATOR
from lanner.com.objects import ComError
from lanner.model.errors import MQ_OK, DtcConnect, IllegalOperation
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp, connect_unix
from lanner.rpc.endpoint_mapper import EPMAPPER
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.mgmt import MGMT
from lanner.rpc.security import Credentials
from lanner.services.interfaces.lanner import LANNER, LANNER_CALL, LANNER_OPEN_SESSION, pack_frame, unpack_frame
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqmr import QMMGMT
from lanner.services.interfaces.mqqp import QM2QM
from lanner.services.interfaces.mqrr import REMOTE_READ
from tests.adversity.matrix.table import COLUMNS, Outcome
from tests.adversity.served import ADMINISTRATOR, PASSWORD, Served
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_INVALID_HANDLE

INTERFACES: Final = (
    QMCOMM,
    QMCOMM2,
    QM2QM,
    REMOTE_READ,
    QMMGMT,
    LANNER,
    EPMAPPER,
    MGMT,
    IOBJECTEXPORTER,
    IACTIVATION,
    IREMOTESCMACTIVATOR,
)
ACCOUNTS: Final = {"user": "ulla", "other user": "otto", "owner": "olga", "administrator": ADMINISTRATOR}
OFFLINE: Final = r"DIRECT=TCP:127.255.255.2\private$\far"
_DENIED: Final = {MQ_ERROR_ACCESS_DENIED, E_ACCESSDENIED, RPC_E_ACCESS_DENIED, int(FaultStatus.ACCESS_DENIED)}
_UNKNOWN: Final = {
    CO_E_OBJNOTREG,
    MQ_ERROR_INVALID_HANDLE,
    int(FaultStatus.NCA_FAULT_CONTEXT_MISMATCH),
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_IPID,
    RPC_E_INVALID_OBJECT,
}
# Transactions of others' coordinators, and supporting servers.
_UNSUPPORTED: Final = {IllegalOperation.status, DtcConnect.status, E_NOTIMPL}


def outcome(status: int, *done: int) -> str:
    """Say what a status means.

    `done` are those with which a method does what it was asked for, beside success.
    """
    if status in _DENIED:
        return Outcome.NO
    if status in _UNKNOWN:
        return Outcome.NONE
    if status in _UNSUPPORTED:
        return Outcome.UNSUPPORTED
    return Outcome.YES if status in (MQ_OK, *done) or status >> 30 == 1 else f"{status:#010x}"


class Caller:
    """A caller with an RPC connection, and a COM connection once it is needed."""

    def __init__(self, world: World, column: str, client: RpcClient, bound: dict[Interface, BoundInterface]) -> None:
        self.world = world
        self.column = column
        self.client = client
        self._bound = bound
        self._session: bytes | None = None

    @property
    def owner(self) -> Caller:
        return self.world.callers["owner"]

    @property
    def takes_anothers(self) -> bool:
        """Whether the caller presents what the owner has opened.

        It has nothing of its own (anonymous), or wants another user's object.
        """
        return self.column in ("anonymous", "other user")

    @property
    def credentials(self) -> Credentials | None:
        account = ACCOUNTS.get(self.column)
        return None if account is None else Credentials(account, PASSWORD)

    async def results(self, interface: Interface, method: Method, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 (as the method has them)
        """Call a method; RpcFault if it fails."""
        return await self._bound[interface].call(method, **arguments)

    async def status(self, interface: Interface, method: Method, **arguments: Any) -> int:  # noqa: ANN401 (as above)
        """Call a method and return its status, or that of the fault."""
        try:
            results = await self.results(interface, method, **arguments)
        except RpcFault as fault:
            return fault.status
        # Those that return nothing are done when they answer.
        status: int = results.get(RETURNS, MQ_OK)
        return status

    async def session(self) -> bytes:
        """Return the session of Lanner's own interface.

        Anonymous callers and other users use the owner's session.
        """
        if self._session is None:
            whose = self.owner if self.takes_anothers else self
            if whose is not self:
                return await whose.session()
            self._session = (await self.results(LANNER, LANNER_OPEN_SESSION))["session"]
        return self._session

    async def own_session(self) -> bytes | None:
        """Open a session of its own; None if that is refused."""
        if self._session is None:
            results = await self.results(LANNER, LANNER_OPEN_SESSION)
            if results[RETURNS] != MQ_OK:
                return None
            self._session = results["session"]
        return self._session

    async def request(
        self, session: bytes, document: dict[str, Any], octets: bytes = b""
    ) -> tuple[int, dict[str, Any]]:
        """Make a request on a session; its status and the document of the answer."""
        frame = pack_frame(document, octets)
        try:
            results = await self.results(LANNER, LANNER_CALL, session=session, size=len(frame), request=frame)
        except RpcFault as fault:
            return fault.status, {}
        answer = {} if results["answer"] is None else unpack_frame(bytes(results["answer"]))[0]
        return results[RETURNS], answer


class World:
    """A queue manager with default settings and one caller of each kind.

    Queues are made by the owner, with the default list.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self.callers: dict[str, Caller] = {}
        self.com: dict[str, ComClient] = {}
        self._names = (f"payroll{number}" for number in itertools.count())
        self._numbers = itertools.count(1)
        # SDDL, of the first queue.
        self._access: str | None = None
        # COM objects that are called repeatedly, by their owner and kind.
        self.objects: dict[tuple[str, UUID, UUID], RemoteInterface] = {}

    def number(self) -> int:
        """Return a number that was not used yet."""
        return next(self._numbers)

    def new_name(self) -> str:
        return next(self._names)

    async def outgoing(self) -> str:
        """See that there are messages for a computer that is off; the name of where they go."""
        number = self.number()
        await self._order({"request": "open", "name": OFFLINE, "queue": number, "access": "send"})
        await self._order({"request": "send", "queue": number, "messages": [{"size": 2}]}, b"hi")
        await self._order({"request": "close", "queue": number})
        return OFFLINE

    async def _order(self, document: dict[str, Any], octets: bytes = b"") -> dict[str, Any]:
        """Have something done that must succeed."""
        root = self.callers["root"]
        status, answer = await root.request(await root.session(), document, octets)
        assert status == MQ_OK, (document, hex(status), answer)
        return answer

    async def queue(self, *, has_messages: bool = True) -> str:
        """Make a queue, with three messages, that belongs to the owner; its name."""
        name, number = self.new_name(), self.number()
        path = rf".\private$\{name}"
        queue = f"DIRECT=OS:{path}"
        create: dict[str, Any] = {"request": "create queue", "path": path, "attributes": {}}
        if self._access is None:
            await self._order(create)
            # The default list gives everything to who makes a queue; that takes an administrator.
            change, who = {"request": "change access", "name": queue}, ACCOUNTS["owner"]
            await self._order(change | {"change": {"verb": "grant", "who": who, "rights": ["full"]}})
            await self._order(change | {"change": {"verb": "owner", "who": who}})
            self._access = (await self._order({"request": "access", "name": queue}))["sddl"]
        else:
            await self._order(create | {"access": self._access})
        if has_messages:
            await self._order({"request": "open", "queue": number, "name": queue, "access": "send"})
            await self._order({"request": "send", "queue": number, "messages": [{"size": 2}] * 3}, b"sosoho")
            await self._order({"request": "close", "queue": number})
        return name


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Start a queue manager with default settings, and let everybody connect."""
    users = tuple(name for name in ACCOUNTS.values() if name != ADMINISTRATOR)
    async with AsyncExitStack() as stack:
        served = stack.enter_context(Served(folder, "MATRIX", users=users, flight=True))
        made = World(served)
        for column in COLUMNS:
            account = ACCOUNTS.get(column)
            credentials = None if account is None else Credentials(account, PASSWORD)
            client = await stack.enter_async_context(
                await connect_tcp(served.address, served.port("endpoint mapper"), credentials=credentials)
            )
            bound = {interface: await client.bind(interface) for interface in INTERFACES}
            made.callers[column] = Caller(made, column, client, bound)
            settings = ClientSettings(resolver_port=served.port("endpoint mapper"))
            com = ComClient(settings, credentials=credentials, local_address=served.address)
            made.com[column] = await stack.enter_async_context(com)
        # Who makes the queues; it is in no table.
        client = await stack.enter_async_context(await connect_unix(Path(served.listeners["local"])))
        made.callers["root"] = Caller(made, "root", client, {LANNER: await client.bind(LANNER)})
        yield made


# What a caller gets when it tries.
Probe = Callable[[Caller], Awaitable[str]]
# Of a section, by method and way.
Probes = dict[tuple[str, str], Probe]


async def com_outcome(work: Awaitable[object], *done: int) -> str:
    """Say how a call of COM ends."""
    try:
        await work
    except ComError as error:
        return outcome(error.hresult, *done)
    return Outcome.YES
