"""The ports of DCOM.

Covered: another client on the well-known port, all addresses, time limits, and shutdown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.com.constants import IID_ICLASSFACTORY, IID_IUNKNOWN, PING_PERIOD
from lanner.com.interfaces import RESOLVE_OXID2, SERVER_ALIVE2
from lanner.com.server.activator import ClassFactory
from lanner.com.server.exporter import ObjectExporter
from lanner.com.server.listener import ComListener, ComSettings
from lanner.com.server.ping_sets import PING_TIMEOUT
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.server import RpcServer
from tests.com.toys import (
    CLSID_COUNTER,
    DOMAIN,
    IID_ICOUNTER,
    IID_ICOUNTER2,
    IID_IOTHER,
    PASSWORD,
    USER,
    Counter,
    ToyServer,
    toy_client,
    toy_server_in_thread,
)
from tests.interop.peers import needs_endpoint_mapper_port
from tests.rpc.loops import run

# No other test uses the well-known port of this address.
ADDRESS = "127.0.0.61"


class Impacket:
    """impacket's DCOM client, and the calls of the toy interface in its terms."""

    def __init__(self) -> None:
        self.dcomrt: Any = pytest.importorskip("impacket.dcerpc.v5.dcomrt", reason="impacket is not installed")
        dtypes: Any = pytest.importorskip("impacket.dcerpc.v5.dtypes")
        self.transport: Any = pytest.importorskip("impacket.dcerpc.v5.transport")
        self.uuid: Any = pytest.importorskip("impacket.uuid")

        class Add(self.dcomrt.DCOMCALL):  # type: ignore[name-defined, misc]  # untyped
            opnum = 3
            structure = (("n", dtypes.LONG),)

        class AddResponse(self.dcomrt.DCOMANSWER):  # type: ignore[name-defined, misc]
            structure = (("total", dtypes.LONG), ("ErrorCode", dtypes.ULONG))

        self.add_call = Add
        self.add_response = AddResponse

    @contextmanager
    def portmap(self) -> Iterator[Any]:
        """Return the well-known port for one call of one interface.

        impacket connects, or at least binds, for each call.
        """
        factory = self.transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{ADDRESS}[135]")
        factory.set_credentials(USER, PASSWORD, DOMAIN)
        connection = factory.get_dce_rpc()
        connection.set_auth_level(AuthLevel.PKT_INTEGRITY)
        try:
            yield connection
        finally:
            connection.disconnect()

    def iid(self, iid: UUID) -> bytes:
        made: bytes = self.uuid.uuidtup_to_bin((str(iid), "0.0"))
        return made

    def clsid(self, clsid: UUID) -> bytes:
        made: bytes = self.uuid.string_to_bin(str(clsid))
        return made

    def add(self, interface: Any, iid: UUID, n: int) -> int:  # noqa: ANN401 (untyped)
        request = self.add_call()
        request["n"] = n
        # The class of the answer is looked for in the module of the request.
        request.__class__.__module__ = __name__
        globals()["AddResponse"] = self.add_response
        answer = interface.request(request, self.iid(iid), interface.get_iPid())
        assert answer["ErrorCode"] == 0
        total: int = answer["total"]
        return total


@pytest.fixture
def impacket() -> Iterator[Impacket]:
    needs_endpoint_mapper_port(ADDRESS)
    made = Impacket()
    yield made
    # What it keeps between connections is kept in its classes.
    made.dcomrt.INTERFACE.CONNECTIONS.clear()
    made.dcomrt.DCOMConnection.PORTMAPS.clear()


@pytest.mark.spec("MQAC-2.1-1", "MQAC-2.1-5", "MQAC-2.1-28")
@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_impacket_activates_calls_and_releases(tmp_path: Path, impacket: Impacket, level: AuthLevel) -> None:
    with toy_server_in_thread(tmp_path, ADDRESS, 135, ComSettings(minimum_level=level)) as server:
        dcom = impacket.dcomrt.DCOMConnection(ADDRESS, USER, PASSWORD, DOMAIN, authLevel=level, oxidResolver=True)
        try:
            counter = dcom.CoCreateInstanceEx(impacket.clsid(CLSID_COUNTER), impacket.iid(IID_ICOUNTER))
            assert impacket.add(counter, IID_ICOUNTER, 40) == 40
            # impacket finds an interface, and alters the context of its connection for it.
            other = counter.RemQueryInterface(1, (impacket.iid(IID_IOTHER),))
            assert impacket.add(other, IID_IOTHER, 2) == 42
            assert impacket.add(counter, IID_ICOUNTER, 0) == 42
            (served,) = server.com.exporter.objects
            assert isinstance(served, Counter)
            assert served.total == 42
            other.RemRelease()
            for _ in range(5):
                counter.RemRelease()
            assert server.com.exporter.objects == []
            assert served.released_times == 1
            counter.disconnect()
        finally:
            dcom.disconnect()


@pytest.mark.spec("MQAC-2.1-9", "MQAC-2.1-10", "MQAC-2.1-21", "MQAC-2.1-22", "MQAC-2.1-24")
def test_impacket_asks_the_other_interfaces_of_the_well_known_port(tmp_path: Path, impacket: Impacket) -> None:
    with toy_server_in_thread(tmp_path, ADDRESS, 135) as server:
        clsid, exporter = impacket.clsid(CLSID_COUNTER), server.com.exporter
        with impacket.portmap() as portmap:
            portmap.connect()
            activator = impacket.dcomrt.IRemoteSCMActivator(portmap)
            factory = activator.RemoteGetClassObject(clsid, impacket.iid(IID_ICLASSFACTORY))
            assert factory.get_oxid() == exporter.oxid
            assert [type(one) for one in exporter.objects] == [ClassFactory]
        with impacket.portmap() as portmap:
            portmap.connect()
            older = impacket.dcomrt.IActivation(portmap)
            oid = older.RemoteActivation(clsid, impacket.iid(IID_ICOUNTER2)).get_oid()
            assert len(exporter.objects) == 2
        with impacket.portmap() as portmap:
            bindings = impacket.dcomrt.IObjectExporter(portmap).ServerAlive2()
            assert [one["aNetworkAddr"] for one in bindings] == [f"{ADDRESS}\0", "QM1\0"]
        with impacket.portmap() as portmap:
            bindings = impacket.dcomrt.IObjectExporter(portmap).ResolveOxid2(exporter.oxid, (7,))
            assert bindings[0]["aNetworkAddr"] == f"{ADDRESS}[{exporter.addresses.port}]\0"
        with impacket.portmap() as portmap:
            set_id = impacket.dcomrt.IObjectExporter(portmap).ComplexPing(0, 1, [oid])["pSetId"]
            assert server.com.pings.members == 1
        with impacket.portmap() as portmap:
            assert impacket.dcomrt.IObjectExporter(portmap).SimplePing(set_id)["ErrorCode"] == 0


@pytest.mark.parametrize("address", ["127.0.0.62", "127.0.0.63"])
def test_references_name_the_address_that_the_client_has_reached(tmp_path: Path, address: str) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path, "0.0.0.0") as server:
            server.address = address
            async with toy_client(server) as client:
                answer = await client.alive(SERVER_ALIVE2)
                assert answer["ppdsa_or_bindings"].string_bindings[0].network_addr == address
                arguments = {"c_requested_protseqs": 1, "ar_requested_protseqs": (7,)}
                answer = await client.alive(RESOLVE_OXID2, p_oxid=server.com.exporter.oxid, **arguments)
                binding = answer["ppdsa_oxid_bindings"].string_bindings[0]
                assert (binding.host, binding.port) == (address, server.com.exporter.addresses.port)
            # Somebody who has not come to us is told our name.
            objref = server.com.exporter.marshal(Counter(), IID_IUNKNOWN)
            assert objref.res_addr.string_bindings[0].network_addr == "QM1"

    run(main())


@pytest.mark.spec("MQAC-2.1-25")
def test_objects_are_reclaimed_in_time(tmp_path: Path) -> None:
    """The test does not wait for the clock of the loop.

    It asks the timer when it would run, and runs it then.
    """

    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            listener, loop = server.com, asyncio.get_running_loop()
            now = loop.time()
            await client.activate()
            (counter,) = listener.exporter.objects
            assert isinstance(counter, Counter)
            assert listener._timer is not None
            assert listener._timer.when() <= now + PING_PERIOD + 1
            deadline = listener.pings.next_deadline()
            assert deadline is not None
            assert now < deadline <= loop.time() + PING_TIMEOUT

            def tick_at(time: float) -> None:
                listener._timer.cancel()  # type: ignore[union-attr]
                listener.tick(time)

            tick_at(deadline - 1)
            assert counter.released_times == 0
            # The next look is at the deadline itself.
            assert listener._timer.when() == pytest.approx(deadline)
            tick_at(deadline)
            assert counter.released_times == 1

    run(main())


def test_the_end_closes_the_port_and_every_object(tmp_path: Path) -> None:
    async def main() -> None:
        server = ToyServer(tmp_path)
        await server.start()
        port = server.com.exporter.addresses.port
        assert server.com.address == f"127.0.0.1:{port}"
        async with toy_client(server) as client:
            await client.activate()
            (counter,) = server.com.exporter.objects
            await server.com.stop()
            assert isinstance(counter, Counter)
            assert counter.released_times == 1
        with pytest.raises(OSError, match="refused"):
            await connect_tcp("127.0.0.1", port)
        await server.stop()

    run(main())


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing() -> None:
    async def main() -> None:
        server = RpcServer()
        port = await server.listen_tcp("127.0.0.1", 0)
        listener = ComListener(dict, lambda: server, bind="127.0.0.1", settings=ComSettings(port=port))
        before = len(server.interfaces)
        with pytest.raises(OSError, match="in use"):
            await listener.start()
        assert len(server.interfaces) == before
        with pytest.raises(RuntimeError):
            _: ObjectExporter = listener.exporter
        await server.stop()

    run(main())


def test_the_exporter_has_the_port_that_it_is_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as probe:
            port = probe.com.exporter.addresses.port
        async with ToyServer(tmp_path, settings=ComSettings(port=port)) as server, toy_client(server) as client:
            assert server.com.exporter.addresses.port == port
            answer = await client.create()
            assert answer[RETURNS] == 0

    run(main())
