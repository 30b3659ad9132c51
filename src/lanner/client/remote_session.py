"""The connection to a queue manager elsewhere, or on this machine by its Unix socket: where, as whom, and what is bound on it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from uuid import UUID, uuid4

from lanner.model.directory_objects import GUID_NULL
from lanner.model.errors import (
    AccessDenied,
    GenericError,
    InvalidHandle,
    RemoteMachineNotAvailable,
    RemoteProtocolError,
    ServiceNotAvailable,
    SharingViolation,
    StatusError,
    StatusSharingViolation,
    UnsupportedOperation,
    status_error,
)
from lanner.rpc.client import BoundInterface, RpcClient, connect_tcp, connect_unix
from lanner.rpc.endpoint_mapper import EPMAPPER, EPMAPPER_PORT, Tower, Twr
from lanner.rpc.faults import FaultStatus, InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import NULL_HANDLE, Value
from lanner.rpc.pdu import NDR20, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials, SecurityError
from lanner.rpc.unix_path import short_path
from lanner.services.interfaces.lanner import LANNER, LANNER_WHO
from lanner.services.interfaces.mqmp import QMCOMM, R_QM_GET_RTQM_SERVER_PORT
from lanner.services.interfaces.mqqp import QM2QM, PortType
from lanner.services.listener import LOCAL_SOCKET
from lanner.services.ports import HANDSHAKE_PORT, READ_PORT
from lanner.services.remote_read_client import OPEN_TIMEOUT, RemoteReader

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Authentication = Literal["ntlm", "negotiate", "kerberos"]

_AUTHENTICATION: Final[dict[str, AuthType]] = {
    "ntlm": AuthType.WINNT,
    "negotiate": AuthType.GSS_NEGOTIATE,
    "kerberos": AuthType.GSS_KERBEROS,
}
# Ours: seconds until a computer that does not answer is given up.
CONNECT_TIMEOUT: Final = 20.0
# Ours: the endpoint mapper of a computer that keeps silent is not worth waiting for, the port is known.
_MAPPER_TIMEOUT: Final = 3.0
_FAILURE: Final = 0x8000_0000


@dataclass(frozen=True, slots=True)
class Target:
    """Where a queue manager is, and who we are to it."""

    # None: on this machine, behind the Unix socket of `data`.
    host: str | None
    data: Path | None = None
    port: int | None = None
    credentials: Credentials | None = None
    auth_type: AuthType = AuthType.WINNT
    timeout: float = CONNECT_TIMEOUT

    @classmethod
    def of(
        cls,
        host: str | None,
        user: str | None,
        password: str | None,
        data: str | Path | None,
        *,
        domain: str,
        port: int | None,
        authentication: Authentication,
        timeout: float,
    ) -> Target:
        if authentication not in _AUTHENTICATION:
            raise ValueError(f"authentication {authentication!r}: one of {', '.join(_AUTHENTICATION)}")
        if host is None:
            if user is not None or password is not None:
                raise ValueError("a user without a host: on this machine the kernel says who you are")
            return cls(None, Path(os.environ.get("LANNER_DATA", "data") if data is None else data), timeout=timeout)
        if data is not None:
            raise ValueError("give a host, or the data directory of a queue manager on this machine")
        auth_type = _AUTHENTICATION[authentication]
        credentials = None
        if user is not None or auth_type is AuthType.GSS_KERBEROS:
            credentials = Credentials(user or "", password or "", domain)
        return cls(host, None, port, credentials, auth_type, timeout)

    @property
    def place(self) -> str:
        return str(self.data) if self.host is None else self.host

    async def connect(self) -> RpcClient:
        """A connection; a StatusError says why there is none."""
        with translated(self.place):
            return await (self._local() if self.host is None else self._elsewhere(self.host))

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """RemoteMachineNotAvailable if the block takes longer than a connection may."""
        try:
            async with asyncio.timeout(self.timeout):
                yield
        except TimeoutError:
            raise RemoteMachineNotAvailable(f"{self.place} did not answer in {self.timeout:g} s") from None

    async def _local(self) -> RpcClient:
        directory = Path() if self.data is None else self.data
        try:
            with short_path(directory / LOCAL_SOCKET) as short:
                return await connect_unix(short)
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            raise ServiceNotAvailable(
                f"no queue manager runs on {directory}: `lanner serve --data {directory}` starts one"
            ) from None
        except PermissionError:
            raise AccessDenied(
                f"the queue manager of {directory} belongs to another user: run as that user, or as root"
            ) from None

    async def _elsewhere(self, host: str) -> RpcClient:
        port = self.port if self.port is not None else await _mapped_port(host)
        try:
            return await connect_tcp(
                host, port, credentials=self.credentials, auth_type=self.auth_type, level=AuthLevel.PKT_PRIVACY
            )
        except OSError as error:
            raise RemoteMachineNotAvailable(
                f"{host} port {port} cannot be reached: {error.strerror or error}; is a queue manager running there?"
            ) from error


async def _mapped_port(host: str) -> int:
    """Where the endpoint mapper says that qmcomm is; the fixed port if there is no mapper."""
    wanted = Tower(SyntaxId(QMCOMM.uuid, *QMCOMM.version), NDR20, 0)
    try:
        async with asyncio.timeout(_MAPPER_TIMEOUT), await connect_tcp(host, EPMAPPER_PORT) as client:
            bound = await client.bind(EPMAPPER)
            told = await bound.call(
                EPMAPPER.by_name["ept_map"],
                obj=GUID_NULL,
                map_tower=Twr.of(wanted),
                entry_handle=NULL_HANDLE,
                max_towers=8,
            )
        towers: Any = told["i_towers"]
        for twr in towers:
            return Tower.unpack(twr.tower_octet_string).port
    except (OSError, RpcConnectionError, RpcFault, RemoteProtocolError):
        pass
    return HANDSHAKE_PORT


@contextmanager
def translated(what: str) -> Iterator[None]:
    """What goes wrong on the way to a queue manager, as the errors that a queue manager has."""
    try:
        yield
    except StatusSharingViolation as error:
        # What R_QMOpenRemoteQueue calls it.
        raise SharingViolation(f"{what} is open elsewhere, exclusively or in another way that excludes this") from error
    except StatusError as error:
        doc = type(error).__doc__ or ""
        if error.args[0] == doc:
            # All that a status can tell; it should say of what.
            raise status_error(error.status, f"{what}: {doc}") from error
        raise
    except RpcFault as fault:
        if fault.status in StatusError.by_status:
            raise status_error(fault.status, f"{what}: {fault}") from fault
        if fault.status == FaultStatus.ACCESS_DENIED:
            raise AccessDenied(f"{what}: {fault}; did you give a user, and the right password?") from fault
        if fault.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH:
            raise InvalidHandle(f"{what}: {fault}") from fault
        raise GenericError(f"{what}: {fault}") from fault
    except SecurityError as error:
        raise AccessDenied(f"{what}: {error}") from error
    except (RpcConnectionError, RemoteProtocolError, OSError) as error:
        raise RemoteMachineNotAvailable(f"{what}: {error}") from error


def check(results: Mapping[str, Any]) -> None:
    """Raise the exception of a failure."""
    status: int = results[RETURNS]
    if status & _FAILURE:
        raise status_error(status)


@dataclass(eq=False, slots=True)
class Session:
    """One connection, as long as it lasts: context handles end with it."""

    client: RpcClient
    reader: RemoteReader
    _bound: dict[UUID, BoundInterface] = field(default_factory=dict)

    @classmethod
    async def open(cls, target: Target) -> Session:
        async with target.in_time():
            return await cls._open(target)

    @classmethod
    async def _open(cls, target: Target) -> Session:
        client = reading_client = await target.connect()
        try:
            with translated(target.place):
                handshake = await client.bind(QMCOMM)
                try:
                    reading = await client.bind(QM2QM)
                except InterfaceRefused:
                    # A process serves its interfaces on all its ports, but need not. qmcomm knows where qm2qm is.
                    port = (await handshake.call(R_QM_GET_RTQM_SERVER_PORT, f_ip=PortType.IP_READ))[RETURNS]
                    reading_client = await replace(target, port=port or READ_PORT).connect()
                    reading = await reading_client.bind(QM2QM)
        except BaseException:
            await client.close()
            await reading_client.close()
            raise
        reader = RemoteReader(uuid4(), 0, OPEN_TIMEOUT, client, handshake, reading_client, reading)
        return cls(client, reader, {QMCOMM.uuid: handshake, QM2QM.uuid: reading})

    async def bound(self, interface: Interface) -> BoundInterface:
        found = self._bound.get(interface.uuid)
        if found is None:
            found = self._bound[interface.uuid] = await self.client.bind(interface)
        return found

    async def call(self, interface: Interface, method: Method, **arguments: Value) -> dict[str, Any]:
        """The results of a call; a failure is the exception of its status."""
        results = await (await self.bound(interface)).call(method, **arguments)
        check(results)
        return results

    async def who(self) -> tuple[str, UUID] | None:
        """Name and identifier of a queue manager of ours; None: it is somebody else's."""
        try:
            told = await self.call(LANNER, LANNER_WHO)
        except InterfaceRefused:
            return None
        return told["name"], told["identifier"]


class Sessions:
    """The session there is now; one that was lost is made again."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._session: Session | None = None
        self._lock = asyncio.Lock()
        self._is_closed = False

    async def now(self) -> Session:
        async with self._lock:
            if self._is_closed:
                raise InvalidHandle(f"the connection to {self.target.place} is closed")
            if self._session is None:
                self._session = await Session.open(self.target)
            return self._session

    def is_current(self, session: Session) -> bool:
        return session is self._session

    async def do(self, what: str, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something with the session; when that is lost, so are all handles, and the next call makes another."""
        session = await self.now()
        with translated(f"{self.target.place}: {what}" if what else self.target.place):
            try:
                return await work(session)
            except InterfaceRefused as error:
                # The connection is as good as before.
                raise UnsupportedOperation(f"{self.target.place} does not serve this: {error}") from error
            except (RpcConnectionError, SecurityError, RemoteProtocolError):
                if self._session is session:
                    self._session = None
                    await session.reader.close()
                raise

    async def close(self) -> None:
        async with self._lock:
            self._is_closed = True
            session, self._session = self._session, None
        if session is not None:
            await session.reader.close()
