"""Activation and class factories (MS-DCOM 3.1.2.5.2), over sockets."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanner.com.activation_properties import ActivationReply, ActivationRequest, pack_blob, unpack_blob
from lanner.com.constants import (
    CLSID_ACTIVATIONCONTEXTINFO,
    CLSID_ACTIVATIONPROPERTIESIN,
    CLSID_ACTIVATIONPROPERTIESOUT,
    E_INVALIDARG,
    E_NOINTERFACE,
    E_UNEXPECTED,
    IID_IACTIVATIONPROPERTIESOUT,
    IID_ICLASSFACTORY,
    IID_IDISPATCH,
    IID_IUNKNOWN,
    REGDB_E_CLASSNOTREG,
    RPC_E_INVALID_OBJREF,
    RPC_E_VERSION_MISMATCH,
    S_OK,
)
from lanner.com.interfaces import (
    CREATE_INSTANCE,
    IACTIVATION,
    ICLASSFACTORY,
    IREMOTESCMACTIVATOR,
    LOCK_SERVER,
    MODE_GET_CLASS_OBJECT,
    REMOTE_ACTIVATION,
    REMOTE_CREATE_INSTANCE,
    REMOTE_GET_CLASS_OBJECT,
)
from lanner.com.objects import ComObject
from lanner.com.objref import ObjRefCustom, ObjRefStandard
from lanner.com.orpc import ComVersion, OrpcThis
from lanner.com.server.rem_unknown import MAX_QUERIED_INTERFACES
from lanner.model.errors import QueueNotFound
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import NDR20, AuthLevel, SyntaxId
from tests.com.toys import (
    CLASSES,
    CLSID_COUNTER,
    IID_ICOUNTER,
    IID_ICOUNTER2,
    IID_IOTHER,
    THIS,
    Counter,
    ToyClient,
    ToyServer,
    toy_client,
)
from tests.rpc.loops import run

CLSID_FAILING = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d11")
CLSID_REFUSING = UUID("0f8a4d36-6b1e-4b4f-9a51-3f0b7e2c8d12")


async def remote_activation(
    client: ToyClient,
    *iids: UUID,
    clsid: UUID = CLSID_COUNTER,
    mode: int = 0,
    this: OrpcThis = THIS,
    name: str | None = None,
) -> dict[str, Value]:
    bound = await client.resolver.bind(IACTIVATION)
    return await bound.call(
        REMOTE_ACTIVATION,
        orpc_this=this,
        clsid=clsid,
        pwsz_object_name=name,
        p_object_storage=None,
        client_imp_level=2,
        mode=mode,
        interfaces=len(iids),
        p_iids=iids,
        c_requested_protseqs=1,
        a_requested_protseqs=(7,),
    )


async def class_object(client: ToyClient, *iids: UUID, clsid: UUID = CLSID_COUNTER) -> dict[str, Value]:
    bound = await client.resolver.bind(IREMOTESCMACTIVATOR)
    properties = ActivationRequest(clsid, iids).pack().pack()
    return await bound.call(REMOTE_GET_CLASS_OBJECT, orpc_this=THIS, p_act_properties=properties)


@pytest.mark.spec("MQAC-2.1-4", "MQAC-2.1-5", "MQAC-2.1-26", "MQAC-1.7-1")
def test_an_activation_says_where_the_object_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await client.create(IID_ICOUNTER)
            assert answer[RETURNS] == S_OK
            assert (answer["orpc_that"].flags, answer["orpc_that"].extensions) == (0, None)
            objref = answer["pp_act_properties"]
            assert isinstance(objref, ObjRefCustom)
            assert (objref.clsid, objref.iid) == (CLSID_ACTIVATIONPROPERTIESOUT, IID_IACTIVATIONPROPERTIESOUT)
            reply = ActivationReply.unpack(objref)
            exporter = server.com.exporter
            assert reply.oxid == exporter.oxid
            assert reply.ipid_rem_unknown == exporter.ipid_rem_unknown
            assert reply.authn_hint == AuthLevel.PKT_INTEGRITY
            assert reply.server_version == ComVersion(5, 7)
            port = exporter.addresses.port
            assert [(one.tower_id, one.network_addr) for one in reply.bindings.string_bindings] == [
                (7, f"127.0.0.1[{port}]"),
                (7, f"QM1[{port}]"),
            ]
            assert {one.authn_svc for one in reply.bindings.security_bindings} == {9, 10}
            (result,) = reply.results
            assert isinstance(result.objref, ObjRefStandard)
            assert (result.iid, result.hresult, result.objref.iid) == (IID_ICOUNTER, S_OK, IID_ICOUNTER)
            assert await client.add(result.objref.std) == 1

    run(main())


def test_each_activation_makes_an_object(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            (one,), (two,) = await client.activate(), await client.activate()
            assert one.oid != two.oid
            assert await client.add(one) == 1
            assert await client.add(two) == 1
            assert len(server.com.exporter.objects) == 2

    run(main())


@pytest.mark.spec("MQAC-2.1-6")
def test_an_interface_that_is_not_there_does_not_stop_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await client.create(IID_ICOUNTER, IID_IDISPATCH, IID_IUNKNOWN)
            assert answer[RETURNS] == S_OK
            results = ActivationReply.unpack(answer["pp_act_properties"]).results
            assert [one.hresult for one in results] == [S_OK, E_NOINTERFACE, S_OK]
            assert [one.objref is None for one in results] == [False, True, False]
            assert [one.iid for one in results] == [IID_ICOUNTER, IID_IDISPATCH, IID_IUNKNOWN]

    run(main())


def test_an_object_without_any_of_the_interfaces_is_not_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await client.create(IID_IDISPATCH, uuid4())
            assert (answer[RETURNS], answer["pp_act_properties"]) == (E_NOINTERFACE, None)
            assert server.com.exporter.objects == []

    run(main())


@pytest.mark.spec("MQAC-2.1-7")
def test_a_class_that_nobody_has_is_not_registered(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            unknown = uuid4()
            assert (await client.create(clsid=unknown))[RETURNS] == REGDB_E_CLASSNOTREG
            assert (await class_object(client, IID_ICLASSFACTORY, clsid=unknown))[RETURNS] == REGDB_E_CLASSNOTREG
            answer = await remote_activation(client, IID_ICOUNTER, IID_IOTHER, clsid=unknown)
            assert answer["phr"] == REGDB_E_CLASSNOTREG
            assert answer["p_results"] == (S_OK, S_OK)
            assert answer["pp_interface_data"] == (None, None)

    run(main())


@pytest.mark.spec("MQAC-2.1-8")
@pytest.mark.parametrize("version", [(4, 7), (6, 0), (5, 8)])
def test_another_version_is_refused(tmp_path: Path, version: tuple[int, int]) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            this = replace(THIS, version=ComVersion(*version))
            assert (await client.create(this=this))[RETURNS] == RPC_E_VERSION_MISMATCH
            answer = await remote_activation(client, IID_ICOUNTER, this=this)
            assert (answer[RETURNS], answer["phr"]) == (RPC_E_VERSION_MISMATCH, RPC_E_VERSION_MISMATCH)
            assert server.com.exporter.objects == []

    run(main())


@pytest.mark.spec("MQAC-2.1-9", "MQAC-1.7-1")
def test_the_older_activation_makes_an_object(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await remote_activation(client, IID_ICOUNTER, IID_IDISPATCH, IID_IOTHER)
            exporter = server.com.exporter
            assert (answer[RETURNS], answer["phr"]) == (S_OK, S_OK)
            assert answer["p_results"] == (S_OK, E_NOINTERFACE, S_OK)
            assert (answer["p_oxid"], answer["pipid_rem_unknown"]) == (exporter.oxid, exporter.ipid_rem_unknown)
            assert answer["p_authn_hint"] == AuthLevel.PKT_INTEGRITY
            assert answer["p_server_version"] == ComVersion(5, 7)
            bindings = answer["ppdsa_oxid_bindings"].string_bindings
            assert [one.tower_id for one in bindings] == [7, 7]
            assert bindings[0].network_addr == f"127.0.0.1[{exporter.addresses.port}]"
            counter, nothing, _ = answer["pp_interface_data"]
            assert nothing is None
            assert await client.add(counter.std) == 1

    run(main())


def test_an_object_that_begins_with_a_file_there_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await remote_activation(client, IID_ICOUNTER, name=r"C:\counter.doc")
            assert answer["phr"] == E_INVALIDARG
            assert server.com.exporter.objects == []

    run(main())


@pytest.mark.spec("MQAC-2.1-10")
def test_a_class_factory_makes_objects(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            answer = await class_object(client, IID_ICLASSFACTORY, IID_ICOUNTER)
            reply = ActivationReply.unpack(answer["pp_act_properties"])
            assert [one.hresult for one in reply.results] == [S_OK, E_NOINTERFACE]
            factory = reply.results[0].objref
            assert isinstance(factory, ObjRefStandard)
            older = await remote_activation(client, IID_ICLASSFACTORY, mode=MODE_GET_CLASS_OBJECT)
            # The same object, whoever asks how.
            assert older["pp_interface_data"][0].std == factory.std
            ipid = factory.std.ipid
            made = [await client.call(ICLASSFACTORY, ipid, CREATE_INSTANCE, riid=IID_ICOUNTER) for _ in range(2)]
            assert [one[RETURNS] for one in made] == [S_OK, S_OK]
            assert made[0]["ppv_object"].std.oid != made[1]["ppv_object"].std.oid
            assert made[0]["ppv_object"].iid == IID_ICOUNTER
            assert await client.add(made[0]["ppv_object"].std) == 1
            objects = len(server.com.exporter.objects)
            nothing = await client.call(ICLASSFACTORY, ipid, CREATE_INSTANCE, riid=IID_IDISPATCH)
            assert (nothing[RETURNS], nothing["ppv_object"]) == (E_NOINTERFACE, None)
            assert len(server.com.exporter.objects) == objects
            for lock in (1, 0):
                assert (await client.call(ICLASSFACTORY, ipid, LOCK_SERVER, f_lock=lock))[RETURNS] == S_OK

    run(main())


@pytest.mark.spec("MQAC-2.1-1")
def test_the_well_known_port_has_the_three_interfaces(tmp_path: Path) -> None:
    """Their version is 0.0, and they use NDR only.

    The listener is responsible for the port itself.
    """

    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            for iid in (
                "99fcfec4-5260-101b-bbcb-00aa0021347a",
                "000001a0-0000-0000-c000-000000000046",
                "4d9f4ab8-7d1c-11cf-861e-0020af6e7c57",
            ):
                await client.resolver.bind_raw(SyntaxId(UUID(iid), 0, 0), (NDR20,))

    run(main())


def test_a_class_that_fails_answers_with_its_status(tmp_path: Path) -> None:
    def refuse() -> ComObject:
        raise QueueNotFound

    def fail() -> ComObject:
        raise RuntimeError("no")

    async def main() -> None:
        classes = {**CLASSES, CLSID_FAILING: fail, CLSID_REFUSING: refuse}
        async with ToyServer(tmp_path, classes=classes) as server, toy_client(server) as client:
            assert (await client.create(clsid=CLSID_REFUSING))[RETURNS] == QueueNotFound.status
            assert (await client.create(clsid=CLSID_FAILING))[RETURNS] == E_UNEXPECTED
            assert (await client.create())[RETURNS] == S_OK

    run(main())


def test_too_many_interfaces_at_once_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            assert (await client.create(*[IID_ICOUNTER2] * MAX_QUERIED_INTERFACES))[RETURNS] == S_OK
            answer = await client.create(*[IID_ICOUNTER2] * (MAX_QUERIED_INTERFACES + 1))
            assert answer[RETURNS] == E_INVALIDARG
            answer = await remote_activation(client, *[IID_ICOUNTER2] * (MAX_QUERIED_INTERFACES + 1))
            assert answer["phr"] == E_INVALIDARG
            assert len(server.com.exporter.objects) == 1

    run(main())


# Hostile input
# --------------------------------------------------------------------------------------------------


async def create_with(client: ToyClient, octets: bytes | None) -> int:
    bound = await client.resolver.bind(IREMOTESCMACTIVATOR)
    answer = await bound.call(REMOTE_CREATE_INSTANCE, orpc_this=THIS, p_unk_outer=None, p_act_properties=octets)
    status: int = answer[RETURNS]
    return status


GOOD = ActivationRequest(CLSID_COUNTER, (IID_ICOUNTER,)).pack()


@pytest.mark.spec("MQAC-2.1-4")
def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            assert await create_with(client, None) == E_INVALIDARG
            standard = server.com.exporter.marshal(Counter(), IID_ICOUNTER)
            for octets in (b"", b"MEOW", standard.pack(), replace(GOOD, clsid=uuid4()).pack()):
                assert await create_with(client, octets) == RPC_E_INVALID_OBJREF
            properties = unpack_blob(GOOD.object_data)
            for clsid in properties:
                rest = {one: data for one, data in properties.items() if one != clsid}
                objref = ObjRefCustom(GOOD.iid, CLSID_ACTIVATIONPROPERTIESIN, pack_blob(rest))
                # The context of the client may be missing: nobody here asks for it.
                expected = S_OK if clsid == CLSID_ACTIVATIONCONTEXTINFO else RPC_E_INVALID_OBJREF
                assert await create_with(client, objref.pack()) == expected
            strange = {uuid4(): b"?", **properties, uuid4(): b""}
            objref = ObjRefCustom(GOOD.iid, CLSID_ACTIVATIONPROPERTIESIN, pack_blob(strange))
            assert await create_with(client, objref.pack()) == S_OK

    run(main())


def test_truncated_requests_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            packed = GOOD.pack()
            for size in range(0, len(packed), 7):
                assert await create_with(client, packed[:size]) == RPC_E_INVALID_OBJREF
            assert server.com.exporter.objects == []

    run(main())


def test_corrupted_requests_are_answered_and_nothing_fails(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            chance = random.Random(1)
            bound = await client.resolver.bind(IREMOTESCMACTIVATOR)
            arguments = {"orpc_this": THIS, "p_unk_outer": None, "p_act_properties": GOOD.pack()}
            stub = REMOTE_CREATE_INSTANCE.encode_request(arguments)
            for _ in range(400):
                octets = bytearray(stub)
                for _ in range(chance.randint(1, 4)):
                    octets[chance.randrange(len(octets))] = chance.randrange(256)
                with contextlib.suppress(RpcFault):
                    await bound.call_raw(chance.choice((3, 4)), bytes(octets))
            assert (await client.create())[RETURNS] == S_OK

    run(main())
    # An exception would be logged with its traceback.
    assert not [record for record in caplog.records if record.exc_info]
