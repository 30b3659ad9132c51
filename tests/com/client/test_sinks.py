"""The server as a client of the owner of a sink.

The tests check what it asks a resolver, and when it sends pings, while it holds the sink.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lanner.com import Connection, Dispatch, connect, with_events
from lanner.com.automation.stubs import stub_of
from lanner.com.automation.types import ExcepInfo
from lanner.com.automation.values import Variant
from lanner.com.client.client import SERVER_SETTINGS
from lanner.com.constants import CONNECT_E_CANNOTCONNECT, IID_IDISPATCH, PING_PERIOD
from lanner.com.interfaces import COMPLEX_PING, IOBJECTEXPORTER, RESOLVE_OXID2, SERVER_ALIVE2, SIMPLE_PING
from lanner.com.members import IDISPATCH
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import DualStringArray, ObjRefStandard, StdObjRef, StringBinding
from lanner.com.orpc import ORPCTHAT, OrpcThat
from lanner.com.server.exporter import Invocation
from lanner.com.server.resolver import ObjectResolver
from lanner.rpc.calls import ServerCall
from lanner.rpc.ndr import Encoder, Syntax, representation
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.rpc.server import PendingAnswer
from lanner.security.identity import ANONYMOUS
from lanner.security.users import UserFile
from lanner.wire.vartypes import VT
from tests.com.albums import CLSID_ALBUM, IALBUM_EVENTS, AlbumServer, album_server
from tests.com.client.test_automation import Listener, until
from tests.com.toys import PASSWORD, USER

HOST = "127.0.0.1"


class Witness(ObjectResolver):
    """A client's resolver that records its requests and their levels."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]  # as it is
        self.asked: list[tuple[str, AuthLevel]] = []
        self.callers: set[str] = set()
        WITNESSES.append(self)

    def invoke(self, call: ServerCall) -> bytes | PendingAnswer | Awaitable[bytes]:
        method = IOBJECTEXPORTER.method(call.opnum)
        assert method is not None
        self.asked.append((method.name, call.auth_level))
        if call.auth_level > AuthLevel.NONE:
            self.callers.add(call.identity.name)
        return super().invoke(call)


WITNESSES: list[Witness] = []


class Empty(ComObject):
    """Nothing but IUnknown."""


@pytest.fixture
def ping_period() -> float:
    return PING_PERIOD


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ping_period: float) -> Iterator[AlbumServer]:
    settings = replace(SERVER_SETTINGS, connect_timeout=0.5, call_timeout=0.5, ping_period=ping_period)
    monkeypatch.setattr("lanner.com.server.listener.SERVER_SETTINGS", settings)
    monkeypatch.setattr("lanner.com.client.exporter.ObjectResolver", Witness)
    WITNESSES.clear()
    with album_server(tmp_path) as (made, _):
        yield made


@pytest.fixture
def computer(server: AlbumServer) -> Iterator[Connection]:
    with connect(HOST, USER, PASSWORD, port=server.port) as made:
        yield made


@pytest.mark.spec("MQAC-2.1-30")
def test_a_foreign_reference_is_resolved_before_it_is_called(computer: Connection) -> None:
    """MS-DCOM 3.2.4.1.2: ServerAlive2 without security, then ResolveOxid2.

    Both go to the resolver that saResAddr names.
    """
    album, listener = computer.dispatch(CLSID_ALBUM), Listener()
    with_events(album, listener, IALBUM_EVENTS)
    (witness,) = WITNESSES
    assert witness.asked == [
        (SERVER_ALIVE2.name, AuthLevel.NONE),
        (RESOLVE_OXID2.name, AuthLevel.PKT_INTEGRITY),
    ]
    album.Play(1)
    assert listener.heard.get(timeout=10)[:2] == ("one", 0)
    # The exporter is known now.
    with_events(album, listener, IALBUM_EVENTS)
    assert len(witness.asked) == 2


@pytest.mark.spec("MQAC-2.1-31")
@pytest.mark.parametrize("ping_period", [0.02])
def test_a_sink_is_pinged_while_it_is_held(server: AlbumServer, computer: Connection) -> None:
    """MS-DCOM 3.2.6.1: ComplexPing first, then SimplePing each period.

    Both use packet integrity or higher.
    """
    album = computer.dispatch(CLSID_ALBUM)
    events = with_events(album, Listener(), IALBUM_EVENTS)
    (witness,) = WITNESSES

    def pings() -> list[tuple[str, AuthLevel]]:
        return [each for each in witness.asked if each[0] in (COMPLEX_PING.name, SIMPLE_PING.name)]

    until(lambda: len(pings()) >= 4)
    assert pings()[0] == (COMPLEX_PING.name, AuthLevel.PKT_INTEGRITY)
    assert set(pings()[1:]) == {(SIMPLE_PING.name, AuthLevel.PKT_INTEGRITY)}
    # Its set keeps the sink at the client, and when it is given back nothing is pinged.
    own = computer._parts.own
    assert own is not None
    assert own._pings.members == 1
    events.close()
    until(lambda: not own.exporter.objects)
    until(lambda: not any(len(one.pings) for one in server.com.client._resolvers.values()))


def test_a_sink_that_is_not_pinged_any_more_is_dropped_by_the_client(server: AlbumServer, computer: Connection) -> None:
    album = computer.dispatch(CLSID_ALBUM)
    with_events(album, Listener(), IALBUM_EVENTS)
    own = computer._parts.own
    assert own is not None
    assert len(own.exporter.objects) == 1

    async def later() -> None:
        # More than six minutes, during which no peer has pinged.
        now = asyncio.get_running_loop().time() + 1000
        own.exporter.reclaim(own._pings.expire(now), now)

    computer._thread.call(later())
    assert not own.exporter.objects
    assert server.albums


def test_a_sink_that_never_answers_costs_its_time_and_no_more(server: AlbumServer, computer: Connection) -> None:
    """A hostile client accepts events and never answers; other clients are served meanwhile."""
    album, other, listener = computer.dispatch(CLSID_ALBUM), computer.dispatch(CLSID_ALBUM), Listener()
    with_events(album, Listener(), IALBUM_EVENTS)
    with_events(other, listener, IALBUM_EVENTS)
    own = computer._parts.own
    assert own is not None
    silent = queue.Queue[int]()

    async def never(invocation: object) -> bytes:
        del invocation
        silent.put(1)
        await asyncio.Event().wait()
        return b""

    own.exporter.serve(IALBUM_EVENTS.iid, never)
    (served,) = [each for each in server.albums if each.connections and each is server.albums[0]]
    album.Play(1)
    assert silent.get(timeout=10)
    assert not served.connections
    assert len(served.event_errors) == 1
    assert other.Title == "one"


@pytest.mark.parametrize("named", ["127.0.0.2", "127.0.0.1[1]"])
def test_a_sink_elsewhere_is_refused(computer: Connection, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """A stranger names a resolver.

    If it is on another computer, no connection is made. If its port has no listener, the caller
    gets an error in time.
    """
    album = computer.dispatch(CLSID_ALBUM)
    monkeypatch.setattr(
        "lanner.com.client.exporter._ClientAddresses.resolver",
        lambda self, _: DualStringArray((StringBinding(7, named),), self.security),
    )
    with pytest.raises(ComError) as refused:
        with_events(album, Listener(), IALBUM_EVENTS)
    assert refused.value.hresult & 0xFFFF_0000 == 0x8007_0000
    assert not WITNESSES[0].asked
    assert album.Title == "one"


def test_a_sink_without_the_interface(computer: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    album = computer.dispatch(CLSID_ALBUM)
    monkeypatch.setattr("lanner.com.client.automation.make_sink", lambda *_: Empty())
    with pytest.raises(ComError) as refused:
        with_events(album, Listener(), IALBUM_EVENTS)
    assert refused.value.hresult == CONNECT_E_CANNOTCONNECT


def test_dispatch_is_what_events_bring(computer: Connection) -> None:
    album = computer.dispatch(CLSID_ALBUM)
    came: queue.Queue[object] = queue.Queue()

    class Keeper:
        def Played(self, album: Dispatch, number: int) -> None:  # noqa: N802
            del number
            came.put(album)

    with with_events(album, Keeper, IALBUM_EVENTS):
        album.Play(1)
        # The very object, not a copy under another name.
        assert came.get(timeout=10) == album


def test_what_a_sink_answers_leads_to_nobody_else(server: AlbumServer, computer: Connection) -> None:
    """A stranger may put references into answers as well.

    The server does not connect to them, just as it does not for references in requests.
    """
    album = computer.dispatch(CLSID_ALBUM)
    with_events(album, Listener(), IALBUM_EVENTS)
    own = computer._parts.own
    assert own is not None
    elsewhere = ObjRefStandard(
        IID_IDISPATCH, StdObjRef(0, 5, 1, 2, uuid4()), DualStringArray((StringBinding(7, "127.0.0.2[1]"),))
    )

    def answer(invocation: Invocation) -> bytes:
        stub = stub_of(IDISPATCH.by_opnum[invocation.call.opnum])
        encoder = Encoder(representation(Syntax.NDR20))
        ORPCTHAT.encode(encoder, OrpcThat())
        results = [Variant(VT.DISPATCH, elsewhere), ExcepInfo(), 0, ()]
        stub.encode_response(encoder, results, 0, stub.decode_request(invocation.decoder))
        return encoder.getvalue()

    own.exporter.serve(IALBUM_EVENTS.iid, answer)
    (served,) = server.albums
    album.Play(1)
    (error,) = served.event_errors
    assert "without an address that can be used" in str(error)


@pytest.mark.parametrize("has_accounts", [False, True])
def test_sinks_are_called_as_the_account_for_it_where_accounts_are_known(
    server: AlbumServer, computer: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_accounts: bool
) -> None:
    """A client in Python has no accounts, as its references state, and still receives events."""
    (tmp_path / "client").mkdir()
    accounts = UserFile(tmp_path / "client" / "users.json")
    accounts.add("caller", "Pass-word2")
    server.com.client.calls.connections._credentials = Credentials("caller", "Pass-word2")
    if has_accounts:
        monkeypatch.setattr("lanner.com.client.exporter._NoAccounts", lambda: accounts)
        monkeypatch.setattr(
            "lanner.com.client.exporter._ClientAddresses.resolver",
            lambda self, reached: DualStringArray((StringBinding.tcp(reached, self.port),), self.security),
        )
    album = computer.dispatch(CLSID_ALBUM)
    listener = Listener()
    with_events(album, listener, IALBUM_EVENTS)
    album.Play(1)
    listener.heard.get(timeout=10)
    (witness,) = WITNESSES
    assert witness.callers == {"caller" if has_accounts else ANONYMOUS.name}
