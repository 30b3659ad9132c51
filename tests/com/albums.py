"""Albums: an automation class for tests of the client, and a server of them in a thread.

The class has every kind of member that a client can meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final
from uuid import UUID

from lanner.com.automation.connection_points import Connectable
from lanner.com.automation.enumerators import EnumVariant
from lanner.com.automation.values import Variant
from lanner.com.client.remote_interface import RemoteInterface
from lanner.com.constants import E_FAIL, E_INVALIDARG, IID_IDISPATCH, IID_IUNKNOWN, S_FALSE
from lanner.com.members import InterfaceTable, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject, Success
from lanner.com.server.listener import ComSettings
from lanner.host.loop_thread import LoopThread
from lanner.wire.vartypes import VT
from tests.com.toys import ToyServer

CLSID_ALBUM: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d11")
IID_IALBUM: Final = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d12")

GET_TITLE = Member(7, 1, "propget", "Title", (Parameter("pbstr", "out", "BSTR*", retval=True),), "get_title")
PUT_TITLE = Member(8, 1, "propput", "Title", (Parameter("bstr", "in", "BSTR"),), "put_title")
ADD = Member(
    9,
    2,
    "method",
    "Add",
    (
        Parameter("a", "in", "long"),
        Parameter("b", "in", "VARIANT*", optional=True),
        Parameter("sum", "out", "long*", retval=True),
    ),
    "add",
)
ECHO = Member(
    10,
    3,
    "method",
    "Echo",
    (Parameter("value", "in", "VARIANT"), Parameter("same", "out", "VARIANT*", retval=True)),
    "echo",
)
NEXT = Member(11, 4, "method", "Next", (Parameter("album", "out", "IAlbum**", retval=True, iid=IID_IALBUM),), "next_")
TITLE_OF = Member(
    12,
    5,
    "method",
    "TitleOf",
    (Parameter("album", "in", "IAlbum*", iid=IID_IALBUM), Parameter("title", "out", "BSTR*", retval=True)),
    "title_of",
)
FAIL = Member(13, 6, "method", "Fail", (), "fail")
COUNT = Member(14, 7, "propget", "Count", (Parameter("n", "out", "long*", retval=True),), "get_count")
ITEM = Member(
    15,
    0,
    "propget",
    "Item",
    (Parameter("Index", "in", "VARIANT"), Parameter("value", "out", "VARIANT*", retval=True)),
    "get_item",
)
NEW_ENUM = Member(
    16,
    -4,
    "propget",
    "_NewEnum",
    (Parameter("ppunk", "out", "IUnknown**", retval=True, iid=IID_IUNKNOWN),),
    "get_new_enum",
)
GET_SEQUEL = Member(
    17, 8, "propget", "Sequel", (Parameter("album", "out", "IAlbum**", retval=True, iid=IID_IALBUM),), "get_sequel"
)
PUT_SEQUEL = Member(
    18, 8, "propputref", "Sequel", (Parameter("album", "in", "IAlbum*", iid=IID_IALBUM),), "putref_sequel"
)
PLAY = Member(19, 9, "method", "Play", (Parameter("times", "in", "long"),), "play")
BROKEN = Member(21, 11, "propget", "Broken", (Parameter("n", "out", "long*", retval=True),), "get_broken")
WAIT = Member(20, 10, "method", "Wait", (), "wait")
IALBUM: Final = InterfaceTable(
    "IAlbum",
    IID_IALBUM,
    "IDispatch",
    is_dual=True,
    members=(
        GET_TITLE,
        PUT_TITLE,
        ADD,
        ECHO,
        NEXT,
        TITLE_OF,
        FAIL,
        COUNT,
        ITEM,
        NEW_ENUM,
        GET_SEQUEL,
        PUT_SEQUEL,
        PLAY,
        WAIT,
        BROKEN,
    ),
)
PLAYED: Final = Member(
    7,
    0,
    "method",
    "Played",
    (Parameter("Album", "in", "IDispatch*", iid=IID_IDISPATCH), Parameter("n", "in", "long")),
    "played",
)
IALBUM_EVENTS: Final = InterfaceTable(
    "_AlbumEvents",
    UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d13"),
    "IDispatch",
    is_dual=False,
    members=(PLAYED,),
)


class Album(Connectable):
    """A title, tracks, a sequel, and an event each time it is played."""

    interfaces = (IALBUM,)
    outgoing = IALBUM_EVENTS
    # Those that were released.
    gone: ClassVar[list[Album]] = []

    def __init__(self, title: str = "") -> None:
        super().__init__()
        self.title = title
        self.tracks = [f"track {n}" for n in range(100)]
        self.sequel: Album | None = None
        self.event_errors: list[ComError] = []
        self.is_waiting = asyncio.Event()
        self.was_cancelled = False

    def released(self) -> None:
        super().released()
        Album.gone.append(self)

    def get_count(self, call: ComCall) -> int:
        del call
        return len(self.tracks)

    def get_item(self, call: ComCall, index: Variant) -> Variant:
        del call
        return Variant(VT.BSTR, self.tracks[index.value])

    def get_new_enum(self, call: ComCall) -> ComObject:
        del call
        return EnumVariant(Variant(VT.BSTR, track) for track in self.tracks)

    def get_broken(self, call: ComCall) -> int:
        del call
        raise ComError(E_INVALIDARG, "broken")

    def get_sequel(self, call: ComCall) -> Album | None:
        del call
        return self.sequel

    def putref_sequel(self, call: ComCall, sequel: Album | None) -> None:
        del call
        self.sequel = sequel

    async def play(self, call: ComCall, times: int) -> None:
        """Call every sink; those that cannot be reached are dropped."""
        del call
        for number in range(times):
            for cookie, sink in list(self.connections.items()):
                assert isinstance(sink, RemoteInterface)
                try:
                    await sink.invoke_dispatch(0, (Variant(VT.DISPATCH, self), Variant(VT.I4, number)))
                except ComError as error:
                    self.event_errors.append(error)
                    self.disconnect(cookie)

    async def wait(self, call: ComCall) -> None:
        del call
        self.is_waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    def get_title(self, call: ComCall) -> str:
        del call
        return self.title

    def put_title(self, call: ComCall, title: str) -> None:
        del call
        self.title = title

    def add(self, call: ComCall, a: int, b: Variant) -> object:
        del call
        return a + b.value if b.vt == VT.I4 else Success(S_FALSE, a)

    async def echo(self, call: ComCall, value: Variant) -> Variant:
        del call
        return value

    def next_(self, call: ComCall) -> Album:
        del call
        return Album(f"{self.title}+")

    def title_of(self, call: ComCall, album: Album) -> str:
        del call
        return album.title

    def fail(self, call: ComCall) -> None:
        del call
        raise ComError(E_FAIL, "on purpose")


CLASSES: Final = {CLSID_ALBUM: lambda: Album("one")}


class AlbumServer(ToyServer):
    """It makes albums."""

    def __init__(self, folder: Path, settings: ComSettings | None = None) -> None:
        super().__init__(folder, settings=settings, classes=CLASSES)

    @property
    def albums(self) -> list[Album]:
        return [each for each in self.com.exporter.objects if isinstance(each, Album)]


@contextmanager
def album_server(folder: Path, settings: ComSettings | None = None) -> Iterator[tuple[AlbumServer, LoopThread]]:
    """For clients that block."""
    thread = LoopThread("lanner-com")
    try:
        server = AlbumServer(folder, settings)
        thread.call(server.start())
        try:
            yield server, thread
        finally:
            thread.call(server.stop())
    finally:
        thread.stop()
