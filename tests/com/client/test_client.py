"""The DCOM client against Lanner's own server.

Covered: activation, references, pings and failures.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from lanner.com.client import activation
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.connections import Address
from lanner.com.client.tables import RemoteExporter, usable_addresses
from lanner.com.constants import (
    E_ACCESSDENIED,
    E_NOINTERFACE,
    IID_ICLASSFACTORY,
    IID_IUNKNOWN,
    REGDB_E_CLASSNOTREG,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_OBJREF,
    RPC_E_TIMEOUT,
    RPC_E_VERSION_MISMATCH,
    RPC_S_SERVER_TOO_BUSY,
    RPC_S_SERVER_UNAVAILABLE,
)
from lanner.com.interfaces import CREATE_INSTANCE, SERVER_ALIVE2
from lanner.com.objects import ComError
from lanner.com.objref import NULL_STDOBJREF, DualStringArray, ObjRefCustom, ObjRefStandard, StringBinding
from lanner.com.orpc import OUR_VERSION, ComVersion
from lanner.rpc.interface import Method
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from tests.com.toys import (
    ADD,
    CLONE,
    CLSID_COUNTER,
    DOMAIN,
    IID_ICOUNTER,
    IID_ICOUNTER2,
    IID_IOTHER,
    PASSWORD,
    TAKE,
    USER,
    WAIT,
    Counter,
    ToyServer,
)
from tests.overlay import overlay
from tests.rpc.loops import run

HOST = "127.0.0.1"
CREDENTIALS = Credentials(USER, PASSWORD, DOMAIN)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0.001)


class Pair:
    """A server, a client of it, and how the client is made."""

    def __init__(self, server: ToyServer, settings: ClientSettings, credentials: Credentials | None) -> None:
        self.server = server
        self.settings = replace(settings, resolver_port=server.port)
        self.client = ComClient(self.settings, credentials=credentials)

    async def counter(self, iid: UUID = IID_ICOUNTER) -> RemoteInterface:
        return await self.client.activate(HOST, CLSID_COUNTER, iid)

    @property
    def objects(self) -> int:
        return len(self.server.com.exporter.objects)

    async def until_objects(self, count: int) -> None:
        """Wait for releases, which are sent by themselves."""
        await until(lambda: self.objects == count)


@asynccontextmanager
async def pair(
    folder: Path, settings: ClientSettings | None = None, credentials: Credentials | None = CREDENTIALS
) -> AsyncIterator[Pair]:
    async with ToyServer(folder) as server:
        made = Pair(server, ClientSettings() if settings is None else settings, credentials)
        async with made.client:
            yield made


async def add(counter: RemoteInterface, number: int) -> int:
    total: int = (await counter.call_method(ADD, n=number))["total"]
    return total


# Activation
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_an_object_is_made_called_and_given_back(tmp_path: Path, level: AuthLevel) -> None:
    async def main() -> None:
        async with pair(tmp_path, ClientSettings(level=level)) as pair_:
            counter = await pair_.counter()
            assert await add(counter, 2) == 2
            assert await add(counter, 3) == 5
            counter.release()
            await pair_.until_objects(0)
            assert counter.is_released

    run(main())


def test_several_interfaces_at_once_and_one_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            iids = (IID_ICOUNTER, UUID(int=5), IID_IUNKNOWN)
            counter, none, unknown = await pair_.client.activate_all(HOST, CLSID_COUNTER, iids)
            assert isinstance(counter, RemoteInterface)
            assert isinstance(unknown, RemoteInterface)
            assert isinstance(none, ComError)
            assert none.hresult == E_NOINTERFACE
            assert counter.is_same_object(unknown)
            assert pair_.objects == 1

    run(main())


def test_no_interface_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            with pytest.raises(ComError) as refused:
                await pair_.counter(UUID(int=5))
            assert refused.value.hresult == E_NOINTERFACE

    run(main())


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            with pytest.raises(ComError) as refused:
                await pair_.client.activate(HOST, UUID(int=9), IID_IUNKNOWN)
            assert refused.value.hresult == REGDB_E_CLASSNOTREG

    run(main())


def test_a_class_factory(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            (factory,) = await pair_.client.activate_all(
                HOST, CLSID_COUNTER, (IID_ICLASSFACTORY,), is_class_object=True
            )
            assert isinstance(factory, RemoteInterface)
            made = await factory.call_method(CREATE_INSTANCE, riid=IID_ICOUNTER)
            counter = await pair_.client.unmarshal(made["ppv_object"])
            assert await add(counter, 1) == 1

    run(main())


@pytest.mark.parametrize("is_class_object", [False, True])
def test_an_old_server_is_asked_through_iactivation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_class_object: bool
) -> None:
    """MS-DCOM 3.2.4.1.1.2: below version 5.6, the client uses IActivation.

    From then on it uses the version that both sides support.
    """

    async def old(calls: object, address: object) -> ComVersion:
        del calls, address
        return ComVersion(5, 4)

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            iid = IID_ICLASSFACTORY if is_class_object else IID_ICOUNTER
            (made,) = await pair_.client.activate_all(HOST, CLSID_COUNTER, (iid,), is_class_object=is_class_object)
            assert isinstance(made, RemoteInterface)
            if not is_class_object:
                assert await add(made, 4) == 4

    async def refuse(*_: object, **__: object) -> None:
        raise AssertionError("IRemoteSCMActivator is not for old servers")

    monkeypatch.setattr("lanner.com.client.client.server_alive", old)
    monkeypatch.setattr(activation, "_remote_create", refuse)
    run(main())


def test_a_server_without_the_new_activator_is_asked_through_iactivation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ComError(E_NOINTERFACE, "abstract_syntax_not_supported")

    monkeypatch.setattr(activation, "_remote_create", refuse)

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            assert await add(await pair_.counter(), 4) == 4

    run(main())


@pytest.mark.parametrize(("version", "is_taken"), [(ComVersion(5, 9), True), (ComVersion(6, 0), False)])
def test_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: ComVersion, is_taken: bool) -> None:
    """MS-DCOM 1.7: the lower of the minor versions; another major version is not called."""
    monkeypatch.setattr("lanner.com.server.resolver.OUR_VERSION", version)

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            if is_taken:
                assert (await pair_.counter()).held.exporter.version == OUR_VERSION
                return
            with pytest.raises(ComError) as refused:
                await pair_.counter()
            assert refused.value.hresult == RPC_E_VERSION_MISMATCH

    run(main())


@pytest.mark.parametrize("credentials", [None, Credentials(USER, "wrong", DOMAIN)])
def test_strangers_are_refused(tmp_path: Path, credentials: Credentials | None) -> None:
    async def main() -> None:
        async with pair(tmp_path, credentials=credentials) as pair_:
            with pytest.raises(ComError) as refused:
                await pair_.counter()
            assert refused.value.hresult == E_ACCESSDENIED

    run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with ComClient(ClientSettings(resolver_port=1)) as client:
            with pytest.raises(ComError) as refused:
                await client.activate(HOST, CLSID_COUNTER, IID_ICOUNTER)
            assert refused.value.hresult == RPC_S_SERVER_UNAVAILABLE

    run(main())


# References
# --------------------------------------------------------------------------------------------------


def test_other_interfaces_of_an_object(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            other = await counter.query_interface(IID_IOTHER)
            newer = await counter.query_interface(IID_ICOUNTER2)
            assert await add(counter, 1) == 1
            assert await add(newer, 1) == 2
            assert other.is_same_object(counter)
            assert other.ipid != counter.ipid
            with pytest.raises(ComError) as refused:
                await counter.query_interface(UUID(int=5))
            assert refused.value.hresult == E_NOINTERFACE
            counter.release()
            newer.release()
            await asyncio.sleep(0)
            assert await add(other, 1) == 3
            other.release()
            await pair_.until_objects(0)

    run(main())


def test_objects_that_calls_bring_and_take(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            await add(counter, 7)
            clone = await pair_.client.unmarshal((await counter.call_method(CLONE))["counter"])
            assert not clone.is_same_object(counter)
            # Every reference that is given away is one less; when they run out, more are asked for.
            for number in range(12):
                taken = await counter.call_method(TAKE, counter=await clone.reference())
                assert taken["total"] == 7 * (number + 2)
            assert await add(clone, 0) == 7
            clone.release()
            counter.release()
            await pair_.until_objects(0)

    run(main())


def test_a_reference_for_another_interface_than_it_names(tmp_path: Path) -> None:
    """MS-DCOM 3.2.4.1.2: the wanted interface is requested, and the other one released."""

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            objref = (await counter.call_method(CLONE))["counter"]
            other = await pair_.client.unmarshal(objref, IID_IOTHER)
            assert other.iid == IID_IOTHER
            assert await add(other, 1) == 1
            await asyncio.sleep(0)
            assert pair_.client.interfaces == 2

    run(main())


def test_a_reference_without_counts_asks_for_some(tmp_path: Path) -> None:
    """MS-DCOM 3.2.4.1.2.3.2: public reference count 0, so RemAddRef."""

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            objref = await counter.reference()
            other = await pair_.client.unmarshal(replace(objref, std=replace(objref.std, public_refs=0)))
            held = other.held.public_refs
            assert held > 5
            exported = pair_.server.com.exporter.find(other.ipid)
            assert exported is not None
            # The one that was given away went nowhere.
            assert exported.public_refs == held + 1

    run(main())


def test_what_nobody_uses_any_more_is_given_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            for _ in range(3):
                await add(await pair_.counter(), 1)
            gc.collect()
            await pair_.until_objects(0)

    run(main())


def test_closing_gives_everything_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server:
            made = Pair(server, ClientSettings(), CREDENTIALS)
            kept = [await made.counter() for _ in range(3)]
            assert made.objects == 3
            await made.client.close()
            await made.client.close()
            assert made.objects == 0
            with pytest.raises(ComError) as refused:
                await made.counter()
            assert refused.value.hresult == RPC_E_DISCONNECTED
            # After the end it is too late to give anything back, and no harm.
            kept[0].release()

    run(main())


def test_releases_go_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lanner.com.client.client._RELEASES_AT_ONCE", 4)

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counters = [await pair_.counter() for _ in range(10)]
            calls, sizes = pair_.client.calls, []

            async def count(exporter: RemoteExporter, method: Method, arguments: Mapping[str, Value]) -> Value:
                sizes.append(arguments["c_interface_refs"])
                return await calls.call_rem_unknown(exporter, method, arguments)

            pair_.client.calls = overlay(calls, call_rem_unknown=count)
            for counter in counters:
                counter.release()
            await pair_.until_objects(0)
            assert sizes == [4, 4, 2]

    run(main())


def test_an_exporter_that_does_not_answer_holds_up_no_other(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()

    async def main() -> None:
        async with pair(tmp_path) as pair_, ToyServer(tmp_path / "other") as other:
            calls, silence = pair_.client.calls, asyncio.Event()
            counter = await pair_.counter()
            dead = await pair_.client.activate(HOST, CLSID_COUNTER, IID_ICOUNTER, port=other.port)
            silent = dead.held.exporter

            async def hang(exporter: RemoteExporter, method: Method, arguments: Mapping[str, Value]) -> Value:
                if exporter is silent:
                    await silence.wait()
                return await calls.call_rem_unknown(exporter, method, arguments)

            pair_.client.calls = overlay(calls, call_rem_unknown=hang)
            dead.release()
            await asyncio.sleep(0)
            counter.release()
            await pair_.until_objects(0)
            assert len(other.com.exporter.objects) == 1
            silence.set()
            await until(lambda: not other.com.exporter.objects)

    run(main())


# Calls
# --------------------------------------------------------------------------------------------------


def test_a_call_that_waits_does_not_hold_up_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            waiting = asyncio.ensure_future(counter.call_method(WAIT))
            (served,) = pair_.server.com.exporter.objects
            assert isinstance(served, Counter)
            await until(lambda: served.go_on is not None)
            assert await add(counter, 1) == 1
            assert served.go_on is not None
            served.go_on.set()
            assert (await waiting)["total"] == 1

    run(main())


def test_a_call_has_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path, ClientSettings(call_timeout=0.05)) as pair_:
            counter = await pair_.counter()
            with pytest.raises(ComError) as given_up:
                await counter.call_method(WAIT)
            assert given_up.value.hresult == RPC_E_TIMEOUT

    run(main())


def test_calls_under_way_have_a_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path, ClientSettings(max_calls_per_exporter=2)) as pair_:
            counter = await pair_.counter()
            waiting = [asyncio.ensure_future(counter.call_method(WAIT)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(ComError, match="2 calls are under way"):
                await add(counter, 1)
            for one in waiting:
                one.cancel()
            await asyncio.wait(waiting)
            assert await add(counter, 1) == 1

    run(main())


def test_an_object_that_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            pair_.server.com.exporter.release_all()
            with pytest.raises(ComError) as refused:
                await add(counter, 1)
            assert refused.value.hresult == RPC_E_DISCONNECTED

    run(main())


def test_a_server_that_goes_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            waiting = asyncio.ensure_future(counter.call_method(WAIT))
            await asyncio.sleep(0.01)
            await pair_.server.stop()
            for call in (waiting, add(counter, 1)):
                with pytest.raises(ComError) as refused:
                    await call
                assert refused.value.hresult == RPC_S_SERVER_UNAVAILABLE

    run(main())


def test_a_connection_that_was_cut_is_made_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            await add(counter, 1)
            await pair_.client.calls.connections.close()
            assert await add(counter, 1) == 2

    run(main())


# Limits
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [ClientSettings(max_interfaces=2), ClientSettings(max_interfaces_per_host=2)], ids=["all", "of one"]
)
def test_interfaces_have_a_limit(tmp_path: Path, settings: ClientSettings) -> None:
    async def main() -> None:
        async with pair(tmp_path, settings) as pair_:
            kept = [await pair_.counter(), await pair_.counter()]
            with pytest.raises(ComError) as refused:
                await pair_.counter()
            assert refused.value.hresult == RPC_S_SERVER_TOO_BUSY
            kept.pop().release()
            await pair_.until_objects(2)
            await pair_.counter()

    run(main())


@pytest.mark.parametrize(
    "settings", [ClientSettings(max_connections=2), ClientSettings(max_connections_per_host=2)], ids=["all", "to one"]
)
def test_connections_have_a_limit(tmp_path: Path, settings: ClientSettings) -> None:
    async def main() -> None:
        # One without security and one with it for the resolver: there is none left for the object.
        async with pair(tmp_path, settings) as pair_:
            counter = await pair_.counter()
            with pytest.raises(ComError) as refused:
                await add(counter, 1)
            assert refused.value.hresult == RPC_S_SERVER_TOO_BUSY

    run(main())


def test_an_exporter_that_is_not_needed_is_hung_up_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair(tmp_path, ClientSettings(idle_timeout=0.01)) as pair_:
            counter = await pair_.counter()
            await add(counter, 1)
            assert len(pair_.client.calls.connections) == 3
            counter.release()
            await until(lambda: not len(pair_.client.calls.connections))
            # And is found again.
            assert await add(await pair_.counter(), 1) == 1

    run(main())


# Strangers
# --------------------------------------------------------------------------------------------------


def bindings(*addresses: str) -> tuple[StringBinding, ...]:
    return tuple([StringBinding(7, address) for address in addresses])


@pytest.mark.parametrize(
    ("named", "peer", "expected"),
    [
        # Without a peer: as they are, and no more than four.
        (("a", "10.0.0.1[99]", "b"), None, [("a", 135), ("10.0.0.1", 99), ("b", 135)]),
        (tuple("abcdefg"), None, [("a", 135), ("b", 135), ("c", 135), ("d", 135)]),
        # Of a stranger: its own address, whatever names it goes by, and never another.
        (("WORKSTATION", "10.0.0.7"), "10.0.0.7", [("10.0.0.7", 135)]),
        (("WORKSTATION[99]", "10.0.0.7"), "10.0.0.7", [("10.0.0.7", 99), ("10.0.0.7", 135)]),
        (("127.0.0.1[25]", "10.0.0.8"), "10.0.0.7", []),
        (("2001:db8::1",), "2001:DB8:0::1", [("2001:DB8:0::1", 135)]),
        # What is no address.
        (("", "[5]", "x[0]", "x[70000]"), None, []),
    ],
)
def test_which_addresses_are_dialled(named: tuple[str, ...], peer: str | None, expected: list[tuple[str, int]]) -> None:
    assert [one[:2] for one in usable_addresses(bindings(*named), 135, peer=peer)] == expected


def test_the_host_that_was_called_is_called_first() -> None:
    found = usable_addresses(bindings("QM1[5000]", "10.0.0.7[5000]"), None, first="10.0.0.7")
    assert found == (Address("10.0.0.7", 5000), Address("QM1", 5000))
    assert usable_addresses(bindings("QM1"), None) == ()
    # Even if it goes by another name there.
    found = usable_addresses(bindings("QM1[5000]", "QM1.mq.test[5000]"), None, first="10.0.0.7")
    assert found == (Address("10.0.0.7", 5000), Address("QM1", 5000), Address("QM1.mq.test", 5000))
    assert usable_addresses((), None, first="10.0.0.7") == ()


@pytest.mark.parametrize("peer", ["10.0.0.7", None])
def test_a_reference_that_leads_nowhere(peer: str | None) -> None:
    async def main() -> None:
        objref = ObjRefStandard(IID_IUNKNOWN, NULL_STDOBJREF, DualStringArray(bindings("127.0.0.1[1]")))
        async with ComClient() as client:
            with pytest.raises(ComError):
                await client.unmarshal(objref, peer=peer)
            with pytest.raises(ComError) as refused:
                await client.unmarshal(ObjRefCustom(IID_IUNKNOWN, UUID(int=4), b""))
            assert refused.value.hresult == RPC_E_INVALID_OBJREF
            assert client.interfaces == 0
            assert not client._resolvers

    run(main())


@pytest.mark.parametrize(
    "settings",
    [
        ClientSettings(connect_timeout=0.05, max_resolving=2),
        ClientSettings(connect_timeout=0.05, max_resolving_per_host=2),
    ],
    ids=["all", "of one"],
)
def test_a_resolver_that_takes_calls_and_never_answers(settings: ClientSettings) -> None:
    """A peer that means harm: the time is bounded, and so are those who wait."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(silent, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        async with server, ComClient(settings) as client:
            objref = ObjRefStandard(IID_IUNKNOWN, NULL_STDOBJREF, DualStringArray(bindings(f"127.0.0.1[{port}]")))
            tried = await asyncio.gather(
                *[client.unmarshal(objref, peer=HOST) for _ in range(3)], return_exceptions=True
            )
            assert all(isinstance(one, ComError) for one in tried)
            assert any(isinstance(one, ComError) and one.hresult == RPC_S_SERVER_TOO_BUSY for one in tried)
            assert not client._resolvers
            await until(lambda: not len(client.calls.connections))

    run(main())


def test_a_fault_says_what_com_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SERVER_ALIVE2, "opnum", 77)

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            # MS-DCOM 1.7: a server that does not have it speaks 5.1, and is asked through
            # IActivation.
            assert (await pair_.counter()).held.exporter.version == OUR_VERSION

    run(main())


def test_calls_of_com_are_in_the_log_of_rpc(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lanner.rpc.call_log")

    async def main() -> None:
        async with pair(tmp_path) as pair_:
            counter = await pair_.counter()
            await add(counter, 2)
            counter.release()
            await pair_.until_objects(0)

    run(main())
    called = re.findall(r"received request from .* call \d+: (\w+ \w+), \d+ bytes", caplog.text)
    # The toy's interface is declared twice; the table of its members is the later one.
    assert {"IRemoteSCMActivator RemoteCreateInstance", "ICounter m3", "IRemUnknown RemRelease"} <= set(called)
