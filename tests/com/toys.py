"""A class to activate, and a server that has it: what the tests of the object server share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self, TypeVar
from uuid import UUID

import uvloop

from lanner.com.activator import ClassTable
from lanner.com.constants import E_FAIL, S_OK
from lanner.com.exporter import Invocation
from lanner.com.interfaces import object_method
from lanner.com.listener import ComListener, ComSettings
from lanner.com.members import InterfaceTable, Member
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import INTERFACE_POINTER
from lanner.com.orpc import OrpcThat
from lanner.rpc.endpoint_mapper import EndpointMapper
from lanner.rpc.interface import RETURNS, In, Interface, Out
from lanner.rpc.mgmt import MgmtInterface
from lanner.rpc.ndr import Syntax, Value, i32
from lanner.rpc.security import ServerSecurity, TargetNames
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
        self, folder: Path, address: str = "127.0.0.1", port: int = 0, settings: ComSettings | None = None
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
        self.com = ComListener(lambda: CLASSES, lambda: self.server, bind=address, names=("QM1",), settings=settings)
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
