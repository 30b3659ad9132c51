"""A class to activate, and a server that has it: what the tests of the object server share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar
from uuid import UUID

import uvloop

from lanner.com.activation_properties import ActivationReply, ActivationRequest
from lanner.com.constants import E_FAIL, S_OK
from lanner.com.interfaces import (
    IOBJECTEXPORTER,
    IREMOTESCMACTIVATOR,
    IREMUNKNOWN2,
    REM_QUERY_INTERFACE,
    REM_RELEASE,
    REMOTE_CREATE_INSTANCE,
    RemInterfaceRef,
    object_method,
)
from lanner.com.members import InterfaceTable, Member
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import INTERFACE_POINTER, ObjRefStandard, StdObjRef
from lanner.com.orpc import OrpcThat, OrpcThis
from lanner.com.server.activator import ClassTable
from lanner.com.server.exporter import Invocation
from lanner.com.server.listener import ComListener, ComSettings
from lanner.rpc.async_client import RpcClient, connect_tcp
from lanner.rpc.endpoint_mapper import EndpointMapper
from lanner.rpc.interface import RETURNS, In, Interface, Method, Out
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.ndr import Syntax, Value, i32
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials, ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer
from lanner.security.users import UserFile

USER: Final = "alice"
PASSWORD: Final = "Pass-word1"
DOMAIN: Final = "MQ"

CLSID_COUNTER: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d01")
IID_ICOUNTER: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d02")
IID_ICOUNTER2: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d03")
IID_IOTHER: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d04")

ADD: Final = object_method(3, "Add", In("n", i32), Out("total", i32))
CLONE: Final = object_method(4, "Clone", Out("counter", INTERFACE_POINTER))
TAKE: Final = object_method(5, "Take", In("counter", INTERFACE_POINTER), Out("total", i32))
WAIT: Final = object_method(6, "Wait", Out("total", i32))
ICOUNTER: Final = Interface(
    "ICounter", IID_ICOUNTER, (0, 0), [None, None, None, ADD, CLONE, TAKE, WAIT], (Syntax.NDR20,)
)
IOTHER: Final = Interface("IOther", IID_IOTHER, (0, 0), [None, None, None, ADD], (Syntax.NDR20,))


def _table(name: str, iid: UUID, last: int, *bases: InterfaceTable) -> InterfaceTable:
    members = tuple([Member(opnum, opnum, "method", f"m{opnum}", (), f"m{opnum}") for opnum in range(3, last + 1)])
    return InterfaceTable(
        name, iid, bases[0].name if bases else "IUnknown", is_dual=False, members=members, bases=bases
    )


ICOUNTER_TABLE: Final = _table("ICounter", IID_ICOUNTER, 6)
ICOUNTER2_TABLE: Final = _table("ICounter2", IID_ICOUNTER2, 7, ICOUNTER_TABLE)
IOTHER_TABLE: Final = _table("IOther", IID_IOTHER, 3)


class Counter(ComObject):
    """It adds up numbers."""

    interfaces = (IOTHER_TABLE, ICOUNTER2_TABLE)
    # All that were released, in their order.
    gone: Final[list[Counter]] = []

    def __init__(self) -> None:
        self.total = 0
        self.released_times = 0
        self.go_on: asyncio.Event | None = None

    def released(self) -> None:
        self.released_times += 1
        Counter.gone.append(self)


async def _serve(invocation: Invocation) -> bytes:
    counter, call = invocation.object, invocation.call
    method = ICOUNTER.method(call.opnum)
    assert isinstance(counter, Counter)
    assert method is not None
    arguments = method.decode_request(call.stub, byte_order="little" if call.is_little else "big")
    results: dict[str, Value] = {"orpc_that": OrpcThat(), RETURNS: S_OK}
    try:
        if method is ADD:
            counter.total += arguments["n"]
            results["total"] = counter.total
        elif method is CLONE:
            clone = Counter()
            clone.total = counter.total
            results["counter"] = invocation.exporter.marshal(clone, IID_ICOUNTER)
        elif method is TAKE:
            taken = await invocation.exporter.unmarshal(arguments["counter"])
            if not isinstance(taken, Counter):
                raise ComError(E_FAIL)
            counter.total += taken.total
            results["total"] = counter.total
        elif method is WAIT:
            counter.go_on = asyncio.Event()
            await counter.go_on.wait()
            results["total"] = counter.total
    except ComError as error:
        results[RETURNS] = error.hresult
    return method.encode_response(results, arguments)


CLASSES: Final[ClassTable] = {CLSID_COUNTER: Counter}

T = TypeVar("T")


class ToyServer:
    """A resolver on the well-known port, or another, and an exporter."""

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        port: int = 0,
        settings: ComSettings | None = None,
        classes: ClassTable = CLASSES,
    ) -> None:
        self.address = address
        self.port = port
        users = UserFile(folder / "users.json")
        if users.identity(USER) is None:
            users.add(USER, PASSWORD)
        security = ServerSecurity(users, TargetNames("QM1", DOMAIN, "qm1.mq.test", "mq.test"))
        self.server = RpcServer(users=users, providers=security)
        self.server.register(EndpointMapper(self.server))
        self.server.register(MgmtInterface(self.server))
        self.com = ComListener(lambda: classes, lambda: self.server, bind=address, names=("QM1",), settings=settings)
        self.loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        self.port = await self.server.listen_tcp(self.address, self.port, step=0)
        await self.com.start()
        for iid in (IID_ICOUNTER, IID_ICOUNTER2, IID_IOTHER):
            self.com.exporter.serve(iid, _serve)

    async def stop(self) -> None:
        await self.com.stop()
        await self.server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def run(self, made: Awaitable[T]) -> T:
        """Run something in the server's loop, from a test in another thread."""

        async def wait() -> T:
            return await made

        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(10)


@contextmanager
def toy_server_in_thread(
    folder: Path, address: str, port: int = 0, settings: ComSettings | None = None
) -> Iterator[ToyServer]:
    """For clients that block."""
    made = ToyServer(folder, address, port, settings)
    ready = threading.Event()
    failed: list[BaseException] = []

    async def serve() -> None:
        made.loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        made.stop_event = stop  # type: ignore[attr-defined]  # for this function alone
        try:
            await made.start()
        except BaseException as error:
            failed.append(error)
            ready.set()
            raise
        ready.set()
        await stop.wait()
        await made.stop()

    thread = threading.Thread(target=lambda: uvloop.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        assert not failed, failed
        yield made
    finally:
        if made.loop is not None and not failed:
            made.loop.call_soon_threadsafe(made.stop_event.set)  # type: ignore[attr-defined]
        thread.join(10)


# A client, made of what the RPC runtime has
# -------------------------------------------------------------------------

CREDENTIALS: Final = Credentials(USER, PASSWORD, DOMAIN)
CID: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8dff")
THIS: Final = OrpcThis.of(CID)


class ToyClient:
    """One connection to the resolver and one to the exporter."""

    def __init__(self, server: ToyServer, resolver: RpcClient, objects: RpcClient) -> None:
        self.server = server
        self.resolver = resolver
        self.objects = objects

    async def alive(self, method: Method, **arguments: Value) -> dict[str, Value]:
        """A call of IObjectExporter."""
        return await (await self.resolver.bind(IOBJECTEXPORTER)).call(method, **arguments)

    async def create(self, *iids: UUID, clsid: UUID = CLSID_COUNTER, this: OrpcThis = THIS) -> dict[str, Value]:
        """RemoteCreateInstance, as it is answered."""
        bound = await self.resolver.bind(IREMOTESCMACTIVATOR)
        properties = ActivationRequest(clsid, iids or (IID_ICOUNTER,)).pack().pack()
        return await bound.call(REMOTE_CREATE_INSTANCE, orpc_this=this, p_unk_outer=None, p_act_properties=properties)

    async def activate(self, *iids: UUID) -> list[StdObjRef]:
        """New references to the interfaces of a new object."""
        answer = await self.create(*iids)
        assert answer[RETURNS] == S_OK
        reply = ActivationReply.unpack(answer["pp_act_properties"])
        return [one.objref.std for one in reply.results if isinstance(one.objref, ObjRefStandard)]

    async def call(
        self, interface: Interface, ipid: UUID | None, method: Method, *, this: OrpcThis = THIS, **arguments: Value
    ) -> dict[str, Value]:
        """A call on an object."""
        bound = await self.objects.bind(interface)
        return await bound.call(method, ipid, orpc_this=this, **arguments)

    async def add(self, std: StdObjRef, n: int = 1) -> int:
        answer = await self.call(ICOUNTER, std.ipid, ADD, n=n)
        assert answer[RETURNS] == S_OK
        total: int = answer["total"]
        return total

    async def rem(self, method: Method, **arguments: Value) -> dict[str, Value]:
        """A call on the Remote Unknown."""
        return await self.call(IREMUNKNOWN2, self.server.com.exporter.ipid_rem_unknown, method, **arguments)

    async def query(self, std: StdObjRef, *iids: UUID, refs: int = 1) -> dict[str, Value]:
        return await self.rem(REM_QUERY_INTERFACE, ripid=std.ipid, c_refs=refs, c_iids=len(iids), iids=iids)

    async def release(self, std: StdObjRef, public: int = 5, private: int = 0) -> None:
        references = (RemInterfaceRef(std.ipid, public, private),)
        answer = await self.rem(REM_RELEASE, c_interface_refs=1, interface_refs=references)
        assert answer[RETURNS] == S_OK


@asynccontextmanager
async def toy_client(
    server: ToyServer,
    *,
    level: AuthLevel = AuthLevel.PKT_INTEGRITY,
    credentials: Credentials | None = CREDENTIALS,
    auth_type: AuthType = AuthType.WINNT,
) -> AsyncIterator[ToyClient]:
    async with (
        await connect_tcp(
            server.address, server.port, credentials=credentials, level=level, auth_type=auth_type
        ) as resolver,
        await connect_tcp(
            server.address,
            server.com.exporter.addresses.port,
            credentials=credentials,
            level=level,
            auth_type=auth_type,
        ) as objects,
    ):
        yield ToyClient(server, resolver, objects)
