"""The classes of message queuing on a whole queue manager.

Each is activated on the well-known port and asked for its interfaces.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import pytest

from lanner.com import AutomationError, Connection, connect, release
from lanner.com.activation_properties import ActivationReply, ActivationRequest
from lanner.com.constants import (
    E_NOINTERFACE,
    IID_ICLASSFACTORY,
    IID_ICONNECTIONPOINTCONTAINER,
    IID_IDISPATCH,
    IID_IENUMVARIANT,
    IID_IUNKNOWN,
    REGDB_E_CLASSNOTREG,
    RPC_E_DISCONNECTED,
    S_OK,
)
from lanner.com.interfaces import (
    CREATE_INSTANCE,
    ICLASSFACTORY,
    IREMOTESCMACTIVATOR,
    IREMUNKNOWN,
    REM_QUERY_INTERFACE,
    REMOTE_CREATE_INSTANCE,
    REMOTE_GET_CLASS_OBJECT,
)
from lanner.com.objref import ObjRefStandard, StdObjRef
from lanner.com.server.listener import ComListener
from lanner.com.server.ping_sets import PING_TIMEOUT
from lanner.daemon import service
from lanner.daemon.settings import load_settings
from lanner.rpc.async_client import RpcClient, connect_tcp
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, SyntaxId
from lanner.wire.format_name import parse
from tests.cli.conftest import free_address
from tests.com.toys import CREDENTIALS, PASSWORD, THIS, USER
from tests.interop.peers import ROOT, needs_endpoint_mapper_port

# From the IDL of MC-MQAC section 6.
DATA: Final = json.loads((ROOT / "tools" / "data" / "mqac_interfaces.json").read_text())
IIDS: Final = {one["name"]: UUID(one["iid"]) for one in DATA["interfaces"]}
BASES: Final = {one["name"]: [IIDS[base] for base in one["base_chain"] if base in IIDS] for one in DATA["interfaces"]}
CLSIDS: Final = {one["name"]: UUID(one["clsid"]) for one in DATA["coclasses"]}
# What the coclass lists, and what that derives from. IMSMQPrivateEvent may be left out.
LISTED: Final = {
    one["name"]: {
        iid
        for name in one["interfaces"]
        if name != "IMSMQPrivateEvent"
        for iid in (IIDS[name], *BASES[name], IID_IUNKNOWN, IID_IDISPATCH)
    }
    for one in DATA["coclasses"]
}


class Client:
    """A client of one queue manager."""

    def __init__(self, running: service.Daemon, address: str, resolver: RpcClient) -> None:
        self.daemon = running
        self._address = address
        self._resolver = resolver
        self._objects: RpcClient | None = None
        self._reply: ActivationReply | None = None

    async def activate(self, clsid: UUID, *iids: UUID, is_class_object: bool = False) -> int | list[StdObjRef | int]:
        """References, or why there are none: of each interface, or of all."""
        bound = await self._resolver.bind(IREMOTESCMACTIVATOR)
        properties = ActivationRequest(clsid, iids).pack().pack()
        if is_class_object:
            answer = await bound.call(REMOTE_GET_CLASS_OBJECT, orpc_this=THIS, p_act_properties=properties)
        else:
            answer = await bound.call(
                REMOTE_CREATE_INSTANCE, orpc_this=THIS, p_unk_outer=None, p_act_properties=properties
            )
        if answer[RETURNS] != S_OK:
            status: int = answer[RETURNS]
            return status
        self._reply = reply = ActivationReply.unpack(answer["pp_act_properties"])
        return [one.objref.std if isinstance(one.objref, ObjRefStandard) else one.hresult for one in reply.results]

    async def made(self, clsid: UUID, *iids: UUID, is_class_object: bool = False) -> list[StdObjRef]:
        found = await self.activate(clsid, *iids, is_class_object=is_class_object)
        assert isinstance(found, list), hex(found)
        references = [one for one in found if isinstance(one, StdObjRef)]
        assert len(references) == len(iids), found
        return references

    async def objects(self) -> RpcClient:
        if self._objects is None:
            assert self._reply is not None
            port = self._reply.bindings.string_bindings[0].port
            assert port is not None
            self._objects = await connect_tcp(
                self._address, port, credentials=CREDENTIALS, level=AuthLevel.PKT_INTEGRITY
            )
        return self._objects

    async def query(self, std: StdObjRef, *iids: UUID) -> dict[UUID, StdObjRef | int]:
        assert self._reply is not None
        bound = await (await self.objects()).bind(IREMUNKNOWN)
        answer = await bound.call(
            REM_QUERY_INTERFACE,
            self._reply.ipid_rem_unknown,
            orpc_this=THIS,
            ripid=std.ipid,
            c_refs=1,
            c_iids=len(iids),
            iids=iids,
        )
        assert answer[RETURNS] == S_OK
        results = answer["pp_qi_results"]
        return {iid: one.hresult or one.std for iid, one in zip(iids, results, strict=True)}

    async def script(self, script: Callable[[Connection], None]) -> None:
        """Run a script that blocks, beside the daemon."""

        def run() -> None:
            with connect(self._address, USER, PASSWORD) as computer:
                script(computer)

        await asyncio.to_thread(run)

    @property
    def com(self) -> ComListener:
        return next(one for one in self.daemon.listeners if isinstance(one, ComListener))

    def handles(self, path: str) -> int:
        """How many have a queue open."""
        runtime = self.daemon.runtime
        with runtime.lock:
            queue = runtime.engine.find_queue(parse(f"DIRECT=OS:{path}"))
            return 0 if queue is None else len(queue.open_queue_descriptors)

    async def close(self) -> None:
        if self._objects is not None:
            await self._objects.close()


@pytest.fixture
def on_queue_manager(tmp_path: Path) -> Iterator[Callable[[Callable[[Client], Awaitable[None]]], None]]:
    """Run a client beside a daemon."""
    interval = sys.getswitchinterval()
    address = free_address()
    needs_endpoint_mapper_port(address)
    given = {"data": tmp_path / "data", "name": "alpha", "bind": address, "flight": {"enabled": False}}
    settings = load_settings(None, given)

    def run(test: Callable[[Client], Awaitable[None]]) -> None:
        done: list[asyncio.Task[None]] = []

        async def main(running: service.Daemon) -> None:
            try:
                running.runtime.users.add(USER, PASSWORD, administrator=True)
                async with await connect_tcp(
                    address, 135, credentials=CREDENTIALS, level=AuthLevel.PKT_INTEGRITY
                ) as resolver:
                    client = Client(running, address, resolver)
                    try:
                        async with asyncio.timeout(20):
                            await test(client)
                    finally:
                        await client.close()
            finally:
                running._stop.set()

        def on_ready(running: service.Daemon) -> None:
            done.append(asyncio.get_running_loop().create_task(main(running)))

        service.serve(lambda: settings, on_ready)
        done[0].result()

    yield run
    sys.setswitchinterval(interval)
    gc.unfreeze()
    shutil.rmtree(tmp_path)


OnQueueManager = Callable[[Callable[[Client], Awaitable[None]]], None]


@pytest.mark.spec("MQAC-1.9-1", "MQAC-1.7-2", "MQAC-2.1-2", "MQAC-2.1-7", "MQAC-2.1-10")
def test_fifteen_classes_are_activated_and_have_their_interfaces(on_queue_manager: OnQueueManager) -> None:
    everything = {iid for listed in LISTED.values() for iid in listed} | set(IIDS.values())

    async def test(client: Client) -> None:
        assert len(CLSIDS) == 15
        for name, clsid in CLSIDS.items():
            listed = LISTED[name]
            references = await client.made(clsid, *sorted(listed))
            assert len({one.oid for one in references}) == 1, name
            found = await client.query(references[0], *sorted(everything), uuid4())
            refused = {iid for iid, result in found.items() if result == E_NOINTERFACE}
            granted = {iid: result for iid, result in found.items() if isinstance(result, StdObjRef)}
            assert refused | granted.keys() == found.keys(), name
            assert {one.oid for one in granted.values()} == {references[0].oid}, name
            # An event has connection points, and is one; it may have the interface that may be left
            # out.
            more = granted.keys() - listed
            if name == "MSMQEvent":
                assert IID_ICONNECTIONPOINTCONTAINER in more
                more -= {IID_ICONNECTIONPOINTCONTAINER, IIDS["IConnectionPoint"], IIDS["IMSMQPrivateEvent"]}
            assert not more, (name, [one for one, iid in IIDS.items() if iid in more])
            assert listed <= granted.keys(), name
            objects = await client.objects()
            for iid in granted:
                await objects.bind_raw(SyntaxId(iid), (NDR20,))
                with pytest.raises(RpcConnectionError):
                    await objects.bind_raw(SyntaxId(iid), (NDR64,))
            (factory,) = await client.made(clsid, IID_ICLASSFACTORY, is_class_object=True)
            bound = await (await client.objects()).bind(ICLASSFACTORY)
            answer = await bound.call(CREATE_INSTANCE, factory.ipid, orpc_this=THIS, riid=IID_IDISPATCH)
            assert answer[RETURNS] == S_OK, name
            assert answer["ppv_object"].std.oid != references[0].oid
        assert await client.activate(uuid4(), IID_IUNKNOWN) == REGDB_E_CLASSNOTREG
        assert await client.activate(IIDS["IMSMQQueue"], IID_IUNKNOWN) == REGDB_E_CLASSNOTREG

    on_queue_manager(test)


@pytest.mark.spec("MQAC-1.9-2")
def test_the_two_misprints_are_resolved_by_the_idl(on_queue_manager: OnQueueManager) -> None:
    async def test(client: Client) -> None:
        destination, query = UUID("eba96b18-2168-11d3-898c-00e02c074f6b"), UUID("eba96b16-2168-11d3-898c-00e02c074f6b")
        assert len(await client.made(destination, query)) == 1
        # The CLSID with a digit dropped is nothing, wherever it stood.
        assert await client.activate(UUID("0eba96b1-8216-811d-3898-c00e02c074f6"), query) == REGDB_E_CLASSNOTREG
        queue_info, newest = UUID("d7d6e07c-dccd-11d0-aa4b-0060970debae"), UUID("eba96b21-2168-11d3-898c-00e02c074f6b")
        found = await client.activate(queue_info, newest, queue_info)
        assert isinstance(found, list)
        assert isinstance(found[0], StdObjRef)
        # The CLSID of the class is no interface of it.
        assert found[1] == E_NOINTERFACE

    on_queue_manager(test)


@pytest.mark.spec("MQAC-1.7-2")
def test_an_enumerator_is_no_class(on_queue_manager: OnQueueManager) -> None:
    async def test(client: Client) -> None:
        found = await client.activate(CLSIDS["MSMQCollection"], IID_IUNKNOWN, IID_IENUMVARIANT)
        assert isinstance(found, list)
        assert found[1] == E_NOINTERFACE

    on_queue_manager(test)


PATH: Final = r"alpha\private$\orders"


@pytest.mark.spec("MQAC-2.1-19")
def test_the_last_release_closes_the_queue(on_queue_manager: OnQueueManager) -> None:
    async def test(client: Client) -> None:
        def script(computer: Connection) -> None:
            info = computer.dispatch("MSMQ.MSMQQueueInfo")
            info.PathName = PATH
            info.Create()
            queue = info.Open(1, 0)
            assert queue.IsOpen2
            assert client.handles(PATH) == 1
            release(queue)
            # Given back in the background, and done when the next call is answered after it.
            for _ in range(1000):
                assert info.Label == ""
                if not client.handles(PATH):
                    break
            assert client.handles(PATH) == 0

        await client.script(script)

    on_queue_manager(test)


@pytest.mark.spec("MQAC-2.1-25")
def test_a_silent_client_loses_its_open_queue(on_queue_manager: OnQueueManager) -> None:
    async def test(client: Client) -> None:
        com, loop = client.com, asyncio.get_running_loop()
        silence = asyncio.Event()
        done = threading.Event()

        def script(computer: Connection) -> None:
            info = computer.dispatch("MSMQ.MSMQQueueInfo")
            info.PathName = PATH
            info.Create()
            queue = info.Open(1, 0)
            assert client.handles(PATH) == 1
            loop.call_soon_threadsafe(silence.set)
            assert done.wait(10)
            with pytest.raises(AutomationError) as gone:
                queue.Peek(ReceiveTimeout=0)
            assert gone.value.hresult == RPC_E_DISCONNECTED

        script_run = asyncio.create_task(client.script(script))
        await asyncio.wait([script_run, asyncio.create_task(silence.wait())], return_when=asyncio.FIRST_COMPLETED)
        try:
            for elapsed in (PING_TIMEOUT - 10, PING_TIMEOUT + 10):
                com.tick(loop.time() + elapsed)
                assert client.handles(PATH) == (1 if elapsed < PING_TIMEOUT else 0)
            assert com.exporter.objects == []
        finally:
            done.set()
            await script_run

    on_queue_manager(test)
