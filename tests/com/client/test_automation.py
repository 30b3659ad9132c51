"""The client for scripts: attributes, calls, iteration, events and errors.

The tests also check when objects are released.
"""

from __future__ import annotations

import gc
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

import lanner
import make_activex_tables
from lanner.com import (
    MISSING,
    NOTHING,
    VT,
    AutomationError,
    Connection,
    Dispatch,
    Variant,
    connect,
    release,
    with_events,
)
from lanner.com.client.event_thread import EventThread
from lanner.com.constants import (
    DISP_E_TYPEMISMATCH,
    E_ACCESSDENIED,
    E_FAIL,
    E_INVALIDARG,
    REGDB_E_CLASSNOTREG,
    RPC_E_DISCONNECTED,
    RPC_S_SERVER_UNAVAILABLE,
)
from lanner.com.hresults import hresult_name
from lanner.com.known_classes import CLASSES, MSMQ_EVENTS, class_id
from lanner.host.loop_thread import LoopThread
from lanner.model.errors import QueueNotFound
from tests.com.albums import CLSID_ALBUM, IALBUM_EVENTS, Album, AlbumServer, album_server
from tests.com.toys import PASSWORD, USER

HOST = "127.0.0.1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AlbumServer]:
    with album_server(tmp_path) as (made, _):
        yield made


@pytest.fixture
def computer(server: AlbumServer) -> Iterator[Connection]:
    with connect(HOST, USER, PASSWORD, port=server.port) as made:
        yield made


@pytest.fixture
def album(computer: Connection) -> Dispatch:
    return computer.dispatch(CLSID_ALBUM)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# Members
# --------------------------------------------------------------------------------------------------


def test_properties(album: Dispatch) -> None:
    assert album.Title == "one"
    album.Title = "two"
    assert album.title == "two"


def test_methods(album: Dispatch) -> None:
    assert album.Add(2, 3) == 5
    assert album.Add(2, b=3) == 5
    assert album.Add(b=3, a=2) == 5
    assert album.Add(2) == 2
    assert album.Add(2, MISSING) == 2


def test_objects_come_and_go(album: Dispatch) -> None:
    following = album.Next()
    assert isinstance(following, Dispatch)
    assert following.Title == "one+"
    assert album.TitleOf(following) == "one+"
    assert following == following  # noqa: PLR0124
    assert following != album
    assert len({following, album}) == 2


def test_an_object_property(album: Dispatch) -> None:
    assert album.Sequel is None
    album.Sequel = album.Next()
    assert album.Sequel.Title == "one+"
    assert album.Sequel == album.Sequel
    album.Sequel = None
    assert album.Sequel is None
    album.Sequel = album.Next()
    album.Sequel = NOTHING
    assert album.Sequel is None


def test_a_collection(album: Dispatch) -> None:
    assert len(album) == 100
    assert album.Item(3) == album[3] == album(3) == "track 3"
    # More than one call of the enumerator fetches.
    assert list(album) == [f"track {n}" for n in range(100)]


def test_an_object_is_true_even_if_it_is_empty(server: AlbumServer, album: Dispatch) -> None:
    server.albums[0].tracks.clear()
    assert album
    assert len(album) == 0
    assert list(album) == []


@pytest.mark.parametrize("value", ["text", 5, 1 << 40, 2.5, True, None, b"\0\xff", (1, ("two", b"3"))])
def test_values(album: Dispatch, value: object) -> None:
    assert album.Echo(value) == value


def test_a_variant_goes_as_it_is(album: Dispatch) -> None:
    assert album.Echo(Variant(VT.UI2, 7)) == 7
    with pytest.raises(TypeError, match="set has no place"):
        album.Echo({1})


def test_names_are_asked_for_once(server: AlbumServer, album: Dispatch) -> None:
    assert album.Add(1, 2) == 3
    assert album.Title
    exporter = server.com.exporter
    before = exporter._server.statistics.calls_in
    for _ in range(3):
        album.ADD(1, 2)
        assert album.TITLE
    assert exporter._server.statistics.calls_in - before == 6


# Errors
# --------------------------------------------------------------------------------------------------


def test_a_member_that_fails(album: Dispatch) -> None:
    with pytest.raises(AutomationError) as failed:
        album.Fail()
    error = failed.value
    assert (error.hresult, error.name, error.source) == (E_FAIL, "E_FAIL", "Album")
    assert str(error) == "on purpose [E_FAIL 0x80004005]"


def test_a_property_that_fails_is_no_method(album: Dispatch) -> None:
    """pywin32 cannot distinguish such a property from a method, and returns a method.

    The code is one of those that a method returns when its value is requested.
    """
    with pytest.raises(AutomationError) as failed:
        album.Broken  # noqa: B018
    assert failed.value.hresult == E_INVALIDARG


def test_a_member_that_is_not_there(album: Dispatch) -> None:
    assert not hasattr(album, "Nothing")
    assert not hasattr(album, "_NewEnum")
    with pytest.raises(AttributeError, match="the object has no Colour"):
        album.Colour = "red"
    with pytest.raises(AttributeError, match="the object has no Add, c"):
        album.Add(1, c=2)
    with pytest.raises(TypeError, match="by name"):
        album(index=1)


def test_an_argument_that_does_not_fit(album: Dispatch) -> None:
    with pytest.raises(AutomationError) as failed:
        album.Add("many", 1)
    assert (failed.value.hresult, failed.value.argument) == (DISP_E_TYPEMISMATCH, 0)


def test_a_class_that_nobody_knows(computer: Connection) -> None:
    with pytest.raises(LookupError, match=r"MSMQ\.MSMQQueueInfo"):
        computer.dispatch("Excel.Application")
    with pytest.raises(AutomationError) as refused:
        computer.dispatch("{00000000-0000-0000-0000-000000000009}")
    assert refused.value.hresult == REGDB_E_CLASSNOTREG


def test_nobody_there() -> None:
    before = threading.active_count()
    with pytest.raises(AutomationError) as refused:
        connect(HOST, port=1)
    assert refused.value.hresult == RPC_S_SERVER_UNAVAILABLE
    assert threading.active_count() == before


def test_a_wrong_password(server: AlbumServer) -> None:
    with connect(HOST, USER, "wrong", port=server.port) as computer:
        with pytest.raises(AutomationError) as refused:
            computer.dispatch(CLSID_ALBUM)
        assert refused.value.hresult == E_ACCESSDENIED


@pytest.mark.parametrize("level", ["integrity", "privacy"])
def test_levels_and_nobody(server: AlbumServer, level: str) -> None:
    with connect(HOST, USER, PASSWORD, port=server.port, level=level) as computer:  # type: ignore[arg-type]  # of the parameters
        assert computer.dispatch(CLSID_ALBUM).Title == "one"
    # The anonymous user signs with keys that everyone knows.
    with connect(HOST, port=server.port, level=level) as computer:  # type: ignore[arg-type]
        with pytest.raises(AutomationError) as refused:
            computer.dispatch(CLSID_ALBUM)
        assert refused.value.hresult == E_ACCESSDENIED
    with pytest.raises(ValueError, match="level"):
        connect(HOST, level="none")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ValueError, match="authentication"):
        connect(HOST, authentication="magic")  # type: ignore[arg-type]  # on purpose


def test_names_of_codes() -> None:
    assert hresult_name(QueueNotFound.status) == "MQ_ERROR_QUEUE_NOT_FOUND"
    assert hresult_name(RPC_S_SERVER_UNAVAILABLE) == "RPC_S_SERVER_UNAVAILABLE"
    assert hresult_name(0x8765_4321) == ""
    assert str(AutomationError(0x8765_4321, "what")) == "what [0x87654321]"


# The end
# --------------------------------------------------------------------------------------------------


def test_what_is_not_used_any_more_is_given_back(server: AlbumServer, album: Dispatch) -> None:
    following = album.Next()
    assert len(server.albums) == 2
    del following
    gc.collect()
    until(lambda: len(server.albums) == 1)
    release(album)
    until(lambda: not server.albums)


def test_closing_gives_everything_back(server: AlbumServer) -> None:
    with connect(HOST, USER, PASSWORD, port=server.port) as computer:
        album = computer.dispatch(CLSID_ALBUM)
        others = [album.Next() for _ in range(3)]
        assert len(server.albums) == 4
    assert not server.albums
    computer.close()
    for use in (lambda: album.Title, lambda: others[0].Add(1), lambda: computer.dispatch(CLSID_ALBUM)):
        with pytest.raises(AutomationError) as refused:
            use()
        assert refused.value.hresult == RPC_E_DISCONNECTED
    assert "closed" in repr(album)


def test_a_connection_that_is_forgotten_closes_itself(server: AlbumServer) -> None:
    computer = connect(HOST, USER, PASSWORD, port=server.port)
    album = computer.dispatch(CLSID_ALBUM)
    threads = threading.active_count()
    del computer
    # Its objects need it.
    assert album.Title == "one"
    del album
    gc.collect()
    until(lambda: not server.albums)
    until(lambda: threading.active_count() == threads - 1)


SCRIPT = """
import sys
from lanner.com import connect
album = connect("127.0.0.1", sys.argv[1], sys.argv[2], port=int(sys.argv[3])).dispatch(sys.argv[4])
print(album.Title)
"""


def test_a_script_that_ends_gives_everything_back(server: AlbumServer) -> None:
    arguments = [USER, PASSWORD, str(server.port), str(CLSID_ALBUM)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("one\n", "")
    until(lambda: not server.albums)


def test_several_threads_share_a_connection(server: AlbumServer, album: Dispatch) -> None:
    assert album.Add(0, 0) == 0
    results: list[int] = []

    def work(number: int) -> None:
        results.extend(album.Add(number, n) for n in range(20))

    threads = [threading.Thread(target=work, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted(100 * number + n for number in range(4) for n in range(20))
    assert server.albums


def test_an_interrupt_cancels_the_call(server: AlbumServer, album: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does: the exception comes while the thread waits for the answer."""
    (served,) = server.albums

    class Interrupted:
        def __init__(self, real: object) -> None:
            self.real = real

        def result(self, timeout: float | None) -> None:
            del timeout
            until(served.is_waiting.is_set)
            raise KeyboardInterrupt

        def cancel(self) -> None:
            self.real.cancel()  # type: ignore[attr-defined]  # a future

    assert hasattr(album, "Wait")
    submit = __import__("asyncio").run_coroutine_threadsafe
    with monkeypatch.context() as patch:
        patch.setattr("asyncio.run_coroutine_threadsafe", lambda *given: Interrupted(submit(*given)))
        with pytest.raises(KeyboardInterrupt):
            album.Wait()
    until(lambda: served.was_cancelled)
    assert album.Title == "one"


# Events
# --------------------------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.heard: queue.Queue[tuple[str, int, str]] = queue.Queue()

    def Played(self, album: Dispatch, number: int) -> None:  # noqa: N802 (the event's name)
        # A handler may use objects, also the one that the event is of.
        self.heard.put((album.Title, number, threading.current_thread().name))


def test_events_arrive(server: AlbumServer, album: Dispatch) -> None:
    listener = Listener()
    with with_events(album, listener, IALBUM_EVENTS):
        album.Play(3)
        assert [listener.heard.get(timeout=10) for _ in range(3)] == [("one", n, "lanner-com-events") for n in range(3)]
    assert not server.albums[0].connections
    album.Play(1)
    assert listener.heard.empty()
    assert not server.albums[0].event_errors


def test_a_class_of_handlers_in_the_manner_of_pywin32(album: Dispatch) -> None:
    heard: queue.Queue[int] = queue.Queue()

    class Handlers:
        def OnPlayed(self, album: Dispatch, number: int) -> None:  # noqa: N802
            del album
            heard.put(number)

    class Deaf:
        pass

    events = with_events(album, Handlers, IALBUM_EVENTS)
    with_events(album, Deaf, IALBUM_EVENTS)
    album.Play(2)
    assert [heard.get(timeout=10), heard.get(timeout=10)] == [0, 1]
    events.close()
    events.close()


def test_a_handler_that_fails_hears_the_next_event(album: Dispatch, caplog: pytest.LogCaptureFixture) -> None:
    heard: queue.Queue[int] = queue.Queue()

    class Clumsy:
        def Played(self, album: Dispatch, number: int) -> None:  # noqa: N802
            del album
            heard.put(number)
            raise RuntimeError("clumsy")

    with with_events(album, Clumsy(), IALBUM_EVENTS):
        album.Play(2)
        assert [heard.get(timeout=10), heard.get(timeout=10)] == [0, 1]
    until(lambda: caplog.text.count("clumsy") >= 2)


def test_a_listener_that_has_gone_is_dropped(server: AlbumServer, album: Dispatch) -> None:
    with connect(HOST, USER, PASSWORD, port=server.port) as other:
        other_album = other.dispatch(CLSID_ALBUM)
        album.Sequel = album.Next()
        with_events(other_album, Listener(), IALBUM_EVENTS)
        (served,) = [each for each in server.albums if each.connections]
        kept = other_album.Next()
        assert kept
        # It vanishes: no word to anybody.
        own = other._parts.own
        assert own is not None
        other._thread.call(own.stop())
        other_album.Play(1)
        assert not served.connections
        assert len(served.event_errors) == 1


def test_events_that_are_not_known(album: Dispatch) -> None:
    with pytest.raises(AutomationError) as refused:
        with_events(album, Listener())
    assert refused.value.hresult == E_INVALIDARG
    assert str(IALBUM_EVENTS.iid) in str(refused.value)


def test_an_event_thread_has_its_limit() -> None:
    thread = EventThread(limit=2)
    gate = threading.Event()
    done: list[int] = []
    try:
        assert thread.put(lambda: done.append(int(gate.wait(10))))
        until(thread._waiting.empty)
        assert thread.put(lambda: done.append(2))
        assert thread.put(lambda: done.append(3))
        assert not thread.put(lambda: done.append(4))
    finally:
        gate.set()
        thread.stop()
    assert done == [1, 2, 3]


def test_a_call_that_blocks_in_the_loop_is_an_error() -> None:
    thread = LoopThread("lanner-com")

    async def nothing() -> None: ...

    async def inside() -> None:
        thread.call(nothing())

    try:
        with pytest.raises(RuntimeError, match="would answer it"):
            thread.call(inside())
    finally:
        thread.stop()


# Names
# --------------------------------------------------------------------------------------------------


def test_classes_of_message_queuing() -> None:
    """CLSIDs and the event interface are those of the document's IDL (MC-MQAC section 6)."""
    document = json.loads(make_activex_tables.DATA.read_text())
    assert {f"MSMQ.{each['name']}": UUID(each["clsid"]) for each in document["coclasses"]} == CLASSES
    (events,) = (each for each in document["interfaces"] if each["name"] == MSMQ_EVENTS.name)
    assert (UUID(events["iid"]), events["base"], events["dual"]) == (MSMQ_EVENTS.iid, "IDispatch", False)
    written = [make_activex_tables.member(each, each["dispid"]) for each in events["methods"]]
    assert written == [
        " ".join(
            [
                *(f"{value}" for value in (each.opnum, each.dispid, each.kind, each.name, each.python)),
                *(f"{parameter.direction}:{parameter.type}:{parameter.name}" for parameter in each.parameters),
            ]
        )
        for each in MSMQ_EVENTS.members
    ]


@pytest.mark.parametrize("name", ["MSMQ.MSMQQueue", "msmq.msmqqueue", "MSMQ.MSMQQueue.1"])
def test_prog_ids(name: str) -> None:
    assert class_id(name) == UUID("d7d6e079-dccd-11d0-aa4b-0060970debae")


def test_the_package_offers_it() -> None:
    assert lanner.com.connect is connect
    assert "connect" in dir(lanner.com)
    with pytest.raises(AttributeError):
        lanner.com.nothing  # type: ignore[attr-defined]  # noqa: B018
    assert Album.gone is not None
