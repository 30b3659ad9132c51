"""A server with handlers of every kind, and raw connections to it that send and receive octets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from lanner.rpc.calls import ServerCall
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import NULL_HANDLE, ContextHandle, u32, wide_string
from lanner.rpc.pdu import SyntaxId
from lanner.rpc.server import Handler, RpcServer, ServerInterface, ServerLimits
from lanner.security.users import UserFile
from tests.rpc.harness import SECURITY
from tests.rpc.raw_interface import RawInterface

HANDLE = ContextHandle("note")
NOTES = Interface(
    "notes",
    UUID("33333333-3333-3333-3333-333333333333"),
    (1, 0),
    [
        Method(0, "Open", In("text", wide_string), Out("note", HANDLE), returns=u32),
        Method(1, "Read", In("note", HANDLE), Out("text", wide_string), returns=u32),
        Method(2, "Close", InOut("note", HANDLE), returns=u32),
        Method(3, "Wait", In("number", u32), returns=u32),
        None,
        Method(5, "Fail", In("status", u32), returns=u32),
        Method(6, "WhoAmI", Out("name", wide_string), returns=u32),
    ],
)
RAW = SyntaxId(UUID("44444444-4444-4444-4444-444444444444"), 1)


class Notes:
    """Handlers of every kind."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.waiting: dict[int, asyncio.Future[int]] = {}
        self.cancelled: list[int] = []

    @property
    def handlers(self) -> dict[str, Handler]:
        return {
            "Open": self.open,
            "Read": self.read,
            "Close": self.close,
            "Wait": self.wait,
            "Fail": self.fail,
            "WhoAmI": self.who_am_i,
        }

    def open(self, call: ServerCall, text: str) -> dict[str, object]:
        handle = call.group.handles.add(text, "note", lambda: self.gone.append(text))
        return {"note": handle, "returns": 0}

    def read(self, call: ServerCall, note: bytes) -> dict[str, object]:
        return {"text": call.group.handles.get(note, "note"), "returns": 0}

    def close(self, call: ServerCall, note: bytes) -> dict[str, object]:
        call.group.handles.remove(note, "note")
        return {"note": NULL_HANDLE, "returns": 0}

    async def wait(self, call: ServerCall, number: int) -> int:
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting[number] = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise

    def fail(self, call: ServerCall, status: int) -> int:
        if status:
            raise RpcFault(status)
        raise ZeroDivisionError

    def who_am_i(self, call: ServerCall) -> dict[str, object]:
        return {"name": f"{call.identity.name} at {call.auth_level.name}", "returns": 0}


@asynccontextmanager
async def stopping(server: RpcServer) -> AsyncIterator[RpcServer]:
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def served(
    notes: Notes, limits: ServerLimits | None = None, users: UserFile | None = None
) -> AsyncIterator[tuple[RpcServer, int]]:
    server = RpcServer(
        [ServerInterface(NOTES, notes.handlers), RawInterface(RAW, {0: lambda call: call.stub})],
        users=users,
        providers=SECURITY,
        limits=limits,
    )
    port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.stop()
        assert server.connections == 0
        assert len(server.groups) == 0


async def until(is_true: Callable[[], bool]) -> None:
    """Let what was sent arrive."""
    while not is_true():  # noqa: ASYNC110 (what is waited for is the other side's)
        await asyncio.sleep(0.001)


@asynccontextmanager
async def raw_connection(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def hung_up(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
