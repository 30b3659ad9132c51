"""Objects of clients as bodies, over sockets (MC-MQAC 3.17.4.1.22)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import pytest

import lanner.com.client.streams
from lanner.activex.message import MSMQMessage
from lanner.activex.tables import IMSMQ_MESSAGE4, MSMQ_MESSAGE
from lanner.com.automation.values import Variant
from lanner.com.client.client import RemoteInterface
from lanner.com.client.streams import (
    GET_CLASS_ID,
    IID_IPERSISTSTREAM,
    IID_IPERSISTSTREAMINIT,
    ISTREAM,
    SAVE,
    STG_E_INVALIDFUNCTION,
    STG_E_MEDIUMFULL,
    MemoryStream,
)
from lanner.com.constants import E_FAIL, E_NOINTERFACE
from lanner.com.members import IDISPATCH, InterfaceTable
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.wire.vartypes import VT
from tests.activex.messages import create, octets, packet, receive, send
from tests.activex.wire import Wire
from tests.activex.world import World, status_of

CLSID = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d77")
STATE = b"the state of an object"


_PERSISTENCE = (GET_CLASS_ID, SAVE)
IPERSIST_STREAM = InterfaceTable("IPersistStream", IID_IPERSISTSTREAM, "IUnknown", is_dual=False, members=_PERSISTENCE)
IPERSIST_STREAM_INIT = InterfaceTable(
    "IPersistStreamInit", IID_IPERSISTSTREAMINIT, "IUnknown", is_dual=False, members=_PERSISTENCE
)


class Document(ComObject):
    """An object in a client that saves itself."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (IDISPATCH, IPERSIST_STREAM)

    def get_class_id(self, call: ComCall) -> UUID:
        del call
        return CLSID

    async def save(self, call: ComCall, stream: RemoteInterface, clear_dirty: int) -> None:
        del call
        assert clear_dirty == 0
        await self.write_to(Stream(stream))

    async def write_to(self, stream: Stream) -> None:
        assert await stream.call("write", STATE, len(STATE)) == [len(STATE)]


class NewerDocument(Document):
    """It has the other interface, and goes to and fro."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (IPERSIST_STREAM_INIT,)

    async def write_to(self, stream: Stream) -> None:
        await stream.call("write", STATE[10:], len(STATE) - 10)
        assert await stream.call("seek", 0, 0) == [0]
        await stream.call("write", STATE, len(STATE))
        assert await stream.call("seek", -3, 2) == [len(STATE) - 3]
        assert await stream.call("read", 100) == [STATE[-3:], 3]
        assert await stream.call("seek", 5, 1) == [len(STATE) + 5]
        await stream.call("write", b"!", 1)
        await stream.call("set_size", len(STATE))
        await stream.call("commit", 0)
        await stream.call("revert")


class Failing(Document):
    async def write_to(self, stream: Stream) -> None:
        raise ComError(E_FAIL, "on purpose")


class Endless(Document):
    async def write_to(self, stream: Stream) -> None:
        while True:
            await stream.call("write", bytes(1 << 20), 1 << 20)


class Asleep(Document):
    async def write_to(self, stream: Stream) -> None:
        await asyncio.Event().wait()


class Plain(ComObject):
    """It cannot save itself."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (IDISPATCH,)


class Stream:
    def __init__(self, remote: RemoteInterface) -> None:
        self._remote = remote

    async def call(self, name: str, *arguments: object) -> list[object]:
        member = next(member for member in ISTREAM.members if member.python == name)
        return await self._remote.call(member, *arguments)


@pytest.fixture
def wire(world: World, tmp_path: Path) -> Iterator[Wire]:
    made = Wire(world, tmp_path)
    yield made
    made.close()


def put(wire: Wire, vt: int, value: ComObject | None) -> tuple[MSMQMessage, RemoteInterface]:
    """Put an object as the body; the message here, and what the client holds of it."""
    remote = wire.create(MSMQ_MESSAGE.clsid, IMSMQ_MESSAGE4)
    (message,) = [one for one in wire.objects if isinstance(one, MSMQMessage)]
    wire.call(remote, IMSMQ_MESSAGE4, "put_body", Variant(vt, value))
    return message, remote


@pytest.mark.spec("MQAC-3.17.4.1.22-1", "MQAC-3.17.4.1.22-6", "MQAC-3.17.4.1.21-2")
@pytest.mark.parametrize(
    ("vt", "kind"),
    [(VT.DISPATCH, Document), (VT.UNKNOWN, Document), (VT.UNKNOWN, NewerDocument)],
)
def test_an_object_saves_itself_into_the_message(world: World, wire: Wire, vt: int, kind: type[Document]) -> None:
    message, remote = put(wire, vt, kind())
    saved = CLSID.bytes_le + STATE
    assert world.call(message, "get_body_length") == len(saved)
    name = create(world)
    send(world, message, name)
    kept = packet(world, name)
    assert (kept.body, kept.body_type) == (saved, vt)
    # Its class is the client's: what can be told here is what it wrote.
    assert world.call(receive(world, name), "get_body") == octets(saved)
    assert not remote.is_released


@pytest.mark.spec("MQAC-3.17.4.1.22-6")
@pytest.mark.parametrize(
    ("kind", "status"),
    [(Plain, E_NOINTERFACE), (Failing, E_FAIL), (Endless, STG_E_MEDIUMFULL), (Asleep, E_NOINTERFACE)],
)
def test_an_object_that_cannot_be_saved_is_no_body(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, kind: type[ComObject], status: int
) -> None:
    monkeypatch.setattr(lanner.com.client.streams, "SAVE_TIMEOUT", 0.5 if kind is Asleep else 30)
    with pytest.raises(ComError) as refused:
        put(wire, VT.DISPATCH if kind is not Endless else VT.UNKNOWN, kind())
    assert status_of(refused.value) == status


def test_a_stream_has_an_end(world: World) -> None:
    stream = MemoryStream(10)
    assert world.call(stream, "write", b"0123456789", 10) == 10
    assert world.status(stream, "write", b"x", 1) == STG_E_MEDIUMFULL
    assert world.status(stream, "set_size", 11) == STG_E_MEDIUMFULL
    assert stream.getvalue() == b"0123456789"
    world.call(stream, "set_size", 4)
    assert world.call(stream, "seek", 1, 0) == 1
    assert world.call(stream, "read", 10) == (b"123", 3)
    for move, origin in ((-1, 0), (0, 3), (-5, 1)):
        assert world.status(stream, "seek", move, origin) == STG_E_INVALIDFUNCTION
    world.call(stream, "seek", 6, 0)
    world.call(stream, "write", b"z", 1)
    assert stream.getvalue() == b"0123\0\0z"
