"""The object exporter and its Remote Unknown (MS-DCOM 3.1.1), mostly over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanner.com.constants import (
    CO_E_OBJNOTREG,
    E_ACCESSDENIED,
    E_INVALIDARG,
    E_NOINTERFACE,
    E_NOTIMPL,
    E_OUTOFMEMORY,
    IID_IDISPATCH,
    IID_IREMUNKNOWN,
    IID_IREMUNKNOWN2,
    IID_IUNKNOWN,
    PING_PERIOD,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_HEADER,
    RPC_E_INVALID_IPID,
    RPC_E_INVALID_OBJECT,
    RPC_E_VERSION_MISMATCH,
    S_OK,
)
from lanner.com.interfaces import (
    IREMUNKNOWN,
    IREMUNKNOWN2,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_QUERY_INTERFACE2,
    REM_RELEASE,
    RemInterfaceRef,
)
from lanner.com.objects import ComError
from lanner.com.objref import (
    SORF_NOPING,
    ObjRefCustom,
    ObjRefStandard,
    StdObjRef,
)
from lanner.com.orpc import ORPCTHAT, ComVersion, OrpcExtent, OrpcExtentArray, OrpcThat
from lanner.com.server.exporter import Addresses, ObjectExporter
from lanner.com.server.holdings import HoldingLimits
from lanner.com.server.listener import ComSettings
from lanner.com.server.ping_sets import PING_TIMEOUT, PingSets
from lanner.com.server.rem_unknown import MAX_QUERIED_INTERFACES
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Interface
from lanner.rpc.ndr import Decoder, Syntax, representation
from lanner.rpc.pdu import NDR20, NDR64, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials
from lanner.rpc.server import RpcServer
from lanner.wire.sid import EVERYONE, LOCAL_SYSTEM
from tests.com.toys import (
    ADD,
    CLONE,
    CREDENTIALS,
    ICOUNTER,
    IID_ICOUNTER,
    IID_ICOUNTER2,
    IID_IOTHER,
    IOTHER,
    TAKE,
    THIS,
    WAIT,
    Counter,
    ToyClient,
    ToyServer,
    toy_client,
)
from tests.rpc.loops import run


class Bench:
    """An exporter without sockets, and a clock."""

    def __init__(self, limits: HoldingLimits | None = None) -> None:
        self.now = 0.0
        self.server = RpcServer()
        self.pings = PingSets()
        self.exporter = ObjectExporter(
            self.server,
            self.pings,
            Addresses("192.0.2.1", 4000, ("QM1",)),
            lambda: self.now,
            limits=limits,
        )

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.exporter.reclaim(self.pings.expire(self.now), self.now)


async def fault(awaitable: object) -> int:
    with pytest.raises(RpcFault) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value.status


async def refusal(awaitable: object) -> int:
    """Return the status of a fault that says that the call was not begun."""
    with pytest.raises(RpcFault) as caught:
        await awaitable  # type: ignore[misc]
    assert caught.value.did_not_execute
    return caught.value.status


# Marshaling
# --------------------------------------------------------------------------------------------------


class TestMarshaling:
    @pytest.mark.spec("MQAC-2.1-16", "MQAC-2.1-15")
    def test_a_reference_is_standard_and_has_five_public_references(self) -> None:
        bench = Bench()
        objref = bench.exporter.marshal(Counter(), IID_ICOUNTER, reached="192.0.2.7")
        assert objref.pack()[:8] == struct.pack("<II", 0x574F454D, 1)
        assert objref.iid == IID_ICOUNTER
        assert (objref.std.flags, objref.std.public_refs) == (0, 5)
        assert objref.std.oxid == bench.exporter.oxid
        # The resolver's address has no endpoint: the well-known port is meant.
        assert [one.network_addr for one in objref.res_addr.string_bindings] == ["192.0.2.7", "QM1"]

    @pytest.mark.spec("MQAC-2.1-16")
    def test_the_same_interface_again_has_the_same_ipid_and_five_more(self) -> None:
        exporter, counter = Bench().exporter, Counter()
        first, second = exporter.marshal(counter, IID_ICOUNTER), exporter.marshal(counter, IID_ICOUNTER)
        assert first == second
        interface = exporter.find(first.std.ipid)
        assert interface is not None
        assert interface.public_refs == 10

    def test_another_interface_has_another_ipid_and_the_same_oid(self) -> None:
        exporter, counter = Bench().exporter, Counter()
        first, second = exporter.marshal(counter, IID_ICOUNTER), exporter.marshal(counter, IID_IUNKNOWN)
        assert first.std.oid == second.std.oid
        assert first.std.ipid != second.std.ipid

    def test_an_interface_that_the_object_lacks_is_refused(self) -> None:
        bench = Bench()
        with pytest.raises(ComError) as caught:
            bench.exporter.marshal(Counter(), IID_IDISPATCH)
        assert caught.value.hresult == E_NOINTERFACE
        assert bench.exporter.objects == []
        assert bench.pings.oids == 0

    def test_objects_are_bounded(self) -> None:
        bench = Bench(HoldingLimits(max_objects=3))
        kept = [bench.exporter.marshal(Counter(), IID_ICOUNTER) for _ in range(3)]
        with pytest.raises(ComError) as caught:
            bench.exporter.marshal(Counter(), IID_ICOUNTER)
        assert caught.value.hresult == E_OUTOFMEMORY
        assert bench.pings.oids == 3
        bench.exporter.release(kept[0].std.ipid, 5, 0, EVERYONE)
        bench.exporter.marshal(Counter(), IID_ICOUNTER)

    def test_objects_of_one_user_are_bounded(self) -> None:
        exporter = Bench(HoldingLimits(max_objects=10, max_objects_per_user=2)).exporter
        one, _ = [exporter.marshal(Counter(), IID_ICOUNTER, owner=EVERYONE) for _ in range(2)]
        with pytest.raises(ComError) as caught:
            exporter.marshal(Counter(), IID_ICOUNTER, owner=EVERYONE)
        assert caught.value.hresult == E_OUTOFMEMORY
        # Others have theirs, and more references to what is there cost nothing.
        exporter.marshal(Counter(), IID_ICOUNTER, owner=LOCAL_SYSTEM)
        exporter.marshal(Counter(), IID_ICOUNTER)
        exporter.release(one.std.ipid, 5, 0, EVERYONE)
        exporter.marshal(Counter(), IID_ICOUNTER, owner=EVERYONE)
        exporter.release_all()
        assert (exporter.holdings.objects, exporter.holdings.octets) == (0, 0)


class TestUnmarshaling:
    @pytest.mark.spec("MQAC-2.1-29")
    def test_our_own_reference_is_our_own_object_and_its_references_are_taken(self) -> None:
        async def main() -> None:
            exporter, counter = Bench().exporter, Counter()
            first = exporter.marshal(counter, IID_ICOUNTER)
            second = exporter.marshal(counter, IID_ICOUNTER, 2)
            assert await exporter.unmarshal(second) is counter
            interface = exporter.find(first.std.ipid)
            assert interface is not None
            assert interface.public_refs == 5
            assert counter.released_times == 0
            assert await exporter.unmarshal(first) is counter
            assert exporter.find(first.std.ipid) is None
            assert counter.released_times == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-29")
    def test_an_unknown_ipid_or_one_of_another_object_is_no_interface(self) -> None:
        async def main() -> None:
            exporter = Bench().exporter
            objref = exporter.marshal(Counter(), IID_ICOUNTER)
            for std in (replace(objref.std, ipid=uuid4()), replace(objref.std, oid=objref.std.oid ^ 1)):
                with pytest.raises(ComError) as caught:
                    await exporter.unmarshal(replace(objref, std=std))
                assert caught.value.hresult == E_NOINTERFACE
            assert len(exporter.objects) == 1

        run(main())

    def test_a_custom_reference_is_refused(self) -> None:
        async def main() -> None:
            with pytest.raises(ComError) as caught:
                await Bench().exporter.unmarshal(ObjRefCustom(IID_ICOUNTER, uuid4(), b""))
            assert caught.value.hresult == E_NOTIMPL

        run(main())

    @pytest.mark.spec("MQAC-2.1-29")
    def test_in_a_call(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (one,), (two,) = await client.activate(), await client.activate()
                await client.add(one, 40)
                await client.add(two, 2)
                exporter = server.com.exporter
                counter = exporter.objects[0]
                assert isinstance(counter, Counter)
                objref = exporter.marshal(counter, IID_ICOUNTER)
                answer = await client.call(ICOUNTER, two.ipid, TAKE, counter=objref)
                assert (answer[RETURNS], answer["total"]) == (S_OK, 42)
                assert exporter.find(one.ipid).public_refs == 5  # type: ignore[union-attr]
                # The last reference comes in with the call: the object is there until its end.
                answer = await client.call(ICOUNTER, two.ipid, TAKE, counter=objref)
                assert (answer[RETURNS], answer["total"]) == (S_OK, 82)
                assert exporter.find(one.ipid) is None
                assert counter.released_times == 1
                answer = await client.call(ICOUNTER, two.ipid, TAKE, counter=objref)
                assert answer[RETURNS] == E_NOINTERFACE

        run(main())


# Calls
# --------------------------------------------------------------------------------------------------


class TestCalls:
    def test_a_call_reaches_the_object(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                assert await client.add(std, 5) == 5
                assert await client.add(std, 37) == 42

        run(main())

    @pytest.mark.spec("MQAC-2.1-2")
    def test_object_interfaces_have_version_zero_and_ndr(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate(IID_ICOUNTER)
                await client.query(std, IID_ICOUNTER2, IID_IOTHER, IID_IUNKNOWN)
                for iid in (IID_ICOUNTER, IID_ICOUNTER2, IID_IOTHER, IID_IUNKNOWN, IID_IREMUNKNOWN, IID_IREMUNKNOWN2):
                    await client.objects.bind_raw(SyntaxId(iid), (NDR20,))
                    with pytest.raises(RpcConnectionError):
                        await client.objects.bind_raw(SyntaxId(iid), (NDR64,))
                    with pytest.raises(RpcConnectionError):
                        await client.objects.bind_raw(SyntaxId(iid, 1), (NDR20,))
                    # Both offered: NDR.
                    await client.objects.bind_raw(SyntaxId(iid), (NDR64, NDR20))

        run(main())

    @pytest.mark.spec("MQAC-2.1-8")
    @pytest.mark.parametrize("version", [(4, 7), (6, 0), (5, 8), (0, 0), (0xFFFF, 0xFFFF)])
    def test_another_version_is_refused(self, tmp_path: Path, version: tuple[int, int]) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                this = replace(THIS, version=ComVersion(*version))
                call = client.call(ICOUNTER, std.ipid, ADD, this=this, n=1)
                assert await refusal(call) == RPC_E_VERSION_MISMATCH
                rem = client.call(
                    IREMUNKNOWN,
                    server.com.exporter.ipid_rem_unknown,
                    REM_RELEASE,
                    this=this,
                    c_interface_refs=0,
                    interface_refs=(),
                )
                assert await refusal(rem) == RPC_E_VERSION_MISMATCH
                assert await client.add(std) == 1

        run(main())

    @pytest.mark.parametrize("minor", range(8))
    def test_an_older_minor_version_is_served(self, tmp_path: Path, minor: int) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                this = replace(THIS, version=ComVersion(5, minor))
                answer = await client.call(ICOUNTER, std.ipid, ADD, this=this, n=1)
                assert answer["total"] == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-12")
    @pytest.mark.parametrize("flags", [1, 0x8000_0000])
    def test_flags_are_refused(self, tmp_path: Path, flags: int) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                call = client.call(ICOUNTER, std.ipid, ADD, this=replace(THIS, flags=flags), n=1)
                assert await refusal(call) == RPC_E_INVALID_HEADER
                assert await client.add(std) == 1
                # Those of an activation are not looked at.
                assert (await client.create(this=replace(THIS, flags=flags)))[RETURNS] == S_OK

        run(main())

    @pytest.mark.spec("MQAC-2.1-11")
    def test_a_foreign_ipid_is_disconnected(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                for ipid in (uuid4(), None, UUID(int=0), UUID(int=(1 << 128) - 1)):
                    assert await refusal(client.call(ICOUNTER, ipid, ADD, n=1)) == RPC_E_DISCONNECTED
                    call = client.call(IREMUNKNOWN, ipid, REM_RELEASE, c_interface_refs=0, interface_refs=())
                    assert await refusal(call) == RPC_E_DISCONNECTED
                assert await client.add(std) == 1

        run(main())

    def test_the_ipid_of_another_interface_is_no_way_around_its_slots(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                counter, other = await client.activate(IID_ICOUNTER, IID_IOTHER)
                assert await fault(client.call(IOTHER, counter.ipid, ADD, n=1)) == RPC_E_INVALID_IPID
                assert await fault(client.call(ICOUNTER, other.ipid, ADD, n=1)) == RPC_E_INVALID_IPID
                rem = client.call(IREMUNKNOWN, counter.ipid, REM_RELEASE, c_interface_refs=0, interface_refs=())
                assert await fault(rem) == RPC_E_INVALID_IPID
                unknown = server.com.exporter.ipid_rem_unknown
                assert await fault(client.call(ICOUNTER, unknown, ADD, n=1)) == RPC_E_DISCONNECTED

        run(main())

    def test_an_interface_is_called_through_one_that_it_derives_from(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                _, derived = await client.activate(IID_ICOUNTER, IID_ICOUNTER2)
                assert await client.add(derived) == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-14")
    @pytest.mark.parametrize("opnum", [0, 1, 2, 7, 8, 0xFFFF])
    def test_an_opnum_out_of_range_is_a_fault_and_the_connection_continues(self, tmp_path: Path, opnum: int) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                bound = await client.objects.bind(ICOUNTER)
                stub = ADD.encode_request({"orpc_this": THIS, "n": 1})
                call = bound.call_raw(opnum, stub, std.ipid)
                assert await refusal(call) == FaultStatus.NCA_OP_RNG_ERROR
                rem = await client.objects.bind(IREMUNKNOWN)
                beyond = opnum if opnum < 3 else opnum - 1
                call = rem.call_raw(beyond, stub, server.com.exporter.ipid_rem_unknown)
                assert await refusal(call) == FaultStatus.NCA_OP_RNG_ERROR
                assert await client.add(std) == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-13")
    def test_unknown_extents_are_skipped_and_orpcthat_comes_first(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                for count in range(4):
                    extents = [OrpcExtent.of(uuid4(), os.urandom(size)) for size in range(count)]
                    this = replace(THIS, extensions=OrpcExtentArray.of(*extents))
                    stub = ADD.encode_request({"orpc_this": this, "n": 1})
                    bound = await client.objects.bind(ICOUNTER)
                    answer = await bound.call_raw(ADD.opnum, stub, std.ipid)
                    decoder = Decoder(answer, representation(Syntax.NDR20))
                    assert ORPCTHAT.decode(decoder) == OrpcThat()
                    assert struct.unpack_from("<II", answer, decoder.position) == (count + 1, S_OK)

        run(main())

    def test_what_is_no_orpcthis_is_a_fault(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                good = ADD.encode_request({"orpc_this": THIS, "n": 1})
                bound = await client.objects.bind(ICOUNTER)
                rem = await client.objects.bind(IREMUNKNOWN)
                for size in range(0, len(good), 3):
                    assert await fault(bound.call_raw(3, good[:size], std.ipid)) == FaultStatus.BAD_STUB_DATA
                    call = rem.call_raw(3, good[:size], server.com.exporter.ipid_rem_unknown)
                    assert await fault(call) == FaultStatus.BAD_STUB_DATA
                assert await client.add(std) == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-15")
    def test_an_object_that_comes_back_is_a_standard_reference(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                await client.add(std, 7)
                answer = await client.call(ICOUNTER, std.ipid, CLONE)
                clone = answer["counter"]
                assert isinstance(clone, ObjRefStandard)
                assert (clone.iid, clone.std.oxid) == (IID_ICOUNTER, std.oxid)
                assert clone.std.oid != std.oid
                assert [one.network_addr for one in clone.res_addr.string_bindings] == ["127.0.0.1", "QM1"]
                assert await client.add(clone.std) == 8
                assert await client.add(std, 0) == 7

        run(main())

    @pytest.mark.spec("MQAC-2.1-28")
    def test_one_connection_carries_many_interfaces(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                counter, other = await client.activate(IID_ICOUNTER, IID_IOTHER)
                bound = [await client.objects.bind(one) for one in (ICOUNTER, IOTHER, IREMUNKNOWN, IREMUNKNOWN2)]
                assert (await bound[0].call(ADD, counter.ipid, orpc_this=THIS, n=1))["total"] == 1
                assert (await bound[1].call(ADD, other.ipid, orpc_this=THIS, n=1))["total"] == 2
                for rem in bound[2:]:
                    answer = await rem.call(
                        REM_RELEASE,
                        server.com.exporter.ipid_rem_unknown,
                        orpc_this=THIS,
                        c_interface_refs=0,
                        interface_refs=(),
                    )
                    assert answer[RETURNS] == S_OK

        run(main())


# Security
# --------------------------------------------------------------------------------------------------


class TestLevels:
    @pytest.mark.spec("MQAC-2.1-26")
    @pytest.mark.parametrize("auth_type", [AuthType.WINNT, AuthType.GSS_NEGOTIATE])
    @pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
    def test_integrity_and_privacy_are_accepted(self, tmp_path: Path, auth_type: AuthType, level: AuthLevel) -> None:
        async def main() -> None:
            async with (
                ToyServer(tmp_path) as server,
                toy_client(server, level=level, auth_type=auth_type) as client,
            ):
                (std,) = await client.activate()
                assert await client.add(std) == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-27", "MQAC-2.1-26")
    @pytest.mark.parametrize(
        ("level", "minimum"),
        [
            (AuthLevel.NONE, AuthLevel.PKT_INTEGRITY),
            (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY),
            (AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY),
        ],
    )
    def test_below_the_level_of_the_exporter_nothing_is_done(
        self, tmp_path: Path, level: AuthLevel, minimum: AuthLevel
    ) -> None:
        async def main() -> None:
            async with (
                ToyServer(tmp_path, settings=ComSettings(minimum_level=minimum)) as server,
                toy_client(server, level=AuthLevel.PKT_PRIVACY) as privileged,
                toy_client(server, level=level, credentials=None if level == AuthLevel.NONE else CREDENTIALS) as client,
            ):
                (std,) = await privileged.activate()
                assert await refusal(client.call(ICOUNTER, std.ipid, ADD, n=1)) == FaultStatus.ACCESS_DENIED
                assert await privileged.add(std, 0) == 0
                for interface in (IREMUNKNOWN, IREMUNKNOWN2):
                    references = (RemInterfaceRef(std.ipid, 5, 0),)
                    call = client.call(
                        interface,
                        server.com.exporter.ipid_rem_unknown,
                        REM_RELEASE,
                        c_interface_refs=1,
                        interface_refs=references,
                    )
                    assert await fault(call) == E_ACCESSDENIED
                assert len(server.com.exporter.objects) == 1
                assert (await client.create())[RETURNS] == E_ACCESSDENIED
                assert server.com.exporter.minimum_level == minimum

        run(main())

    def test_the_anonymous_have_no_objects_whatever_their_level(self, tmp_path: Path) -> None:
        """The keys of a null session are public, so its signatures prove nothing."""

        async def main() -> None:
            async with (
                ToyServer(tmp_path) as server,
                toy_client(server) as somebody,
                toy_client(server, credentials=Credentials()) as nobody,
            ):
                (std,) = await somebody.activate()
                assert (await nobody.create())[RETURNS] == E_ACCESSDENIED
                assert await fault(nobody.call(ICOUNTER, std.ipid, ADD, n=1)) == FaultStatus.ACCESS_DENIED
                assert await somebody.add(std) == 1
            open_to_all = ComSettings(minimum_level=AuthLevel.NONE)
            async with (
                ToyServer(tmp_path, settings=open_to_all) as server,
                toy_client(server, credentials=None, level=AuthLevel.NONE) as nobody,
            ):
                (std,) = await nobody.activate()
                assert await nobody.add(std) == 1

        run(main())


# The Remote Unknown
# --------------------------------------------------------------------------------------------------


async def references(client: ToyClient, std: StdObjRef) -> int:
    interface = client.server.com.exporter.find(std.ipid)
    return 0 if interface is None else interface.public_refs


class TestQueryInterface:
    @pytest.mark.spec("MQAC-2.1-17", "MQAC-1.7-2")
    def test_each_interface_has_its_own_result(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                iids = (IID_ICOUNTER2, IID_IDISPATCH, IID_ICOUNTER, IID_IUNKNOWN, uuid4())
                answer = await client.query(std, *iids, refs=3)
                assert answer[RETURNS] == S_OK
                results = answer["pp_qi_results"]
                assert [one.hresult for one in results] == [S_OK, E_NOINTERFACE, S_OK, S_OK, E_NOINTERFACE]
                found = [one.std for one in results if one.hresult == S_OK]
                assert {one.oid for one in found} == {std.oid}
                assert [(one.flags, one.public_refs) for one in found] == [(0, 3)] * 3
                assert found[1].ipid == std.ipid
                assert [await references(client, one) for one in found] == [3, 8, 3]
                assert len(server.com.exporter.objects) == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-17")
    def test_an_unknown_object_is_invalid(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                answer = await client.query(replace(std, ipid=uuid4()), IID_ICOUNTER)
                assert (answer[RETURNS], answer["pp_qi_results"]) == (RPC_E_INVALID_OBJECT, None)
                answer = await client.rem(REM_QUERY_INTERFACE2, ripid=uuid4(), c_iids=1, iids=(IID_ICOUNTER,))
                assert (answer[RETURNS], answer["pp_mif"]) == (RPC_E_INVALID_OBJECT, (None,))

        run(main())

    @pytest.mark.spec("MQAC-2.1-20")
    def test_the_second_form_gives_whole_references(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                iids = (IID_IOTHER, IID_IDISPATCH, IID_ICOUNTER)
                answer = await client.rem(REM_QUERY_INTERFACE2, ripid=std.ipid, c_iids=3, iids=iids)
                assert answer[RETURNS] == S_OK
                assert answer["phr"] == (S_OK, E_NOINTERFACE, S_OK)
                other, nothing, counter = answer["pp_mif"]
                assert nothing is None
                assert isinstance(other, ObjRefStandard)
                assert (other.iid, other.std.oid, other.std.public_refs) == (IID_IOTHER, std.oid, 5)
                assert counter.std.ipid == std.ipid
                assert await references(client, std) == 10
                assert [one.network_addr for one in other.res_addr.string_bindings] == ["127.0.0.1", "QM1"]

        run(main())

    def test_the_remote_unknown_knows_its_own_interfaces(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                ipid = server.com.exporter.ipid_rem_unknown
                iids = (IID_IREMUNKNOWN2, IID_ICOUNTER, IID_IREMUNKNOWN)
                answer = await client.rem(REM_QUERY_INTERFACE, ripid=ipid, c_refs=1, c_iids=3, iids=iids)
                results = answer["pp_qi_results"]
                assert [one.hresult for one in results] == [S_OK, E_NOINTERFACE, S_OK]
                assert (results[0].std.ipid, results[0].std.flags) == (ipid, SORF_NOPING)

        run(main())

    def test_too_many_interfaces_at_once_are_refused(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                answer = await client.query(std, *[IID_ICOUNTER] * MAX_QUERIED_INTERFACES)
                assert answer[RETURNS] == S_OK
                answer = await client.query(std, *[IID_ICOUNTER] * (MAX_QUERIED_INTERFACES + 1))
                assert answer[RETURNS] == E_INVALIDARG

        run(main())


class TestReferences:
    @pytest.mark.spec("MQAC-2.1-18")
    def test_an_unknown_ipid_does_not_stop_the_others(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                one, two = await client.activate(IID_ICOUNTER, IID_IOTHER)
                refs = (
                    RemInterfaceRef(one.ipid, 2, 0),
                    RemInterfaceRef(uuid4(), 1, 1),
                    RemInterfaceRef(two.ipid, 3, 4),
                )
                answer = await client.rem(REM_ADD_REF, c_interface_refs=3, interface_refs=refs)
                assert answer["p_results"] == (S_OK, CO_E_OBJNOTREG, S_OK)
                assert [await references(client, std) for std in (one, two)] == [7, 8]
                interface = server.com.exporter.find(two.ipid)
                assert interface is not None
                assert list(interface.private_refs.values()) == [4]

        run(main())

    @pytest.mark.spec("MQAC-2.1-19")
    def test_the_last_reference_of_the_last_interface_ends_the_object(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                one, two = await client.activate(IID_ICOUNTER, IID_IOTHER)
                (counter,) = server.com.exporter.objects
                assert isinstance(counter, Counter)
                await client.release(one, 4)
                assert await client.add(one) == 1
                await client.release(one, 1)
                assert await fault(client.call(ICOUNTER, one.ipid, ADD, n=1)) == RPC_E_DISCONNECTED
                assert counter.released_times == 0
                assert (await client.call(IOTHER, two.ipid, ADD, n=1))["total"] == 2
                # More than there are: none are left, and none are owed.
                await client.release(two, 0xFFFF_FFFF, 0xFFFF_FFFF)
                assert counter.released_times == 1
                assert server.com.exporter.objects == []
                assert server.com.pings.oids == 0
                await client.release(two, 5)
                assert counter.released_times == 1

        run(main())

    @pytest.mark.spec("MQAC-2.1-19")
    def test_private_references_hold_an_object_too_and_are_their_owners(self) -> None:
        exporter, counter = Bench().exporter, Counter()
        std = exporter.marshal(counter, IID_ICOUNTER).std
        assert exporter.add_ref(std.ipid, 0, 3, EVERYONE)
        exporter.release(std.ipid, 5, 0, EVERYONE)
        # Somebody else's private references are none of theirs.
        exporter.release(std.ipid, 5, 3, LOCAL_SYSTEM)
        exporter.release(std.ipid, 0, 2, EVERYONE)
        assert counter.released_times == 0
        exporter.release(std.ipid, 0, 7, EVERYONE)
        assert counter.released_times == 1

    def test_an_interface_asked_for_with_no_references_does_not_hold_the_object(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                answer = await client.query(std, IID_IOTHER, refs=0)
                (other,) = answer["pp_qi_results"]
                assert (await client.call(IOTHER, other.std.ipid, ADD, n=1))["total"] == 1
                await client.release(std)
                assert server.com.exporter.objects == []
                assert server.com.exporter.find(other.std.ipid) is None

        run(main())

    def test_an_object_that_fails_at_its_end_harms_nobody(self) -> None:
        class Bad(Counter):
            def released(self) -> None:
                raise RuntimeError("no")

        exporter = Bench().exporter
        std = exporter.marshal(Bad(), IID_ICOUNTER).std
        exporter.release(std.ipid, 5, 0, EVERYONE)
        assert exporter.objects == []


# Reclaiming
# --------------------------------------------------------------------------------------------------


class TestReclaiming:
    @pytest.mark.spec("MQAC-2.1-25")
    def test_an_object_ends_with_its_ping_set(self) -> None:
        bench, counter = Bench(), Counter()
        std = bench.exporter.marshal(counter, IID_ICOUNTER).std
        _, set_id = bench.pings.complex_ping(0, 1, (std.oid,), (), "peer", 0.0)
        for _ in range(10):
            bench.wait(PING_PERIOD)
            bench.pings.simple_ping(set_id, bench.now)
        bench.wait(PING_TIMEOUT - 1)
        assert counter.released_times == 0
        bench.wait(1)
        assert counter.released_times == 1
        assert bench.exporter.find(std.ipid) is None
        assert (bench.pings.oids, bench.pings.sets) == (0, 0)

    def test_an_object_that_is_never_pinged_ends(self) -> None:
        bench, counter = Bench(), Counter()
        bench.exporter.marshal(counter, IID_ICOUNTER)
        bench.wait(PING_TIMEOUT - 1)
        assert counter.released_times == 0
        bench.wait(1)
        assert counter.released_times == 1

    def test_an_object_that_was_just_called_is_spared(self) -> None:
        """MS-DCOM 3.1.1.6.2: "if an ORPC request has arrived in the last ping period"."""
        bench, counter = Bench(), Counter()
        std = bench.exporter.marshal(counter, IID_ICOUNTER).std
        bench.wait(PING_TIMEOUT - PING_PERIOD + 1)
        interface = bench.exporter.find(std.ipid)
        assert interface is not None
        interface.exported.last_call = bench.now
        bench.wait(PING_PERIOD - 1)
        assert counter.released_times == 0
        bench.wait(PING_TIMEOUT - 1)
        assert counter.released_times == 0
        bench.wait(1)
        assert counter.released_times == 1

    def test_an_object_is_there_until_its_calls_have_ended(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                (std,) = await client.activate()
                (counter,) = server.com.exporter.objects
                assert isinstance(counter, Counter)
                waiting = asyncio.create_task(client.call(ICOUNTER, std.ipid, WAIT))
                while counter.go_on is None:  # noqa: ASYNC110 (the call is on its way)
                    await asyncio.sleep(0.001)
                exporter, interface = server.com.exporter, server.com.exporter.find(std.ipid)
                assert interface is not None
                interface.exported.last_call = -1e9
                exporter.reclaim([std.oid], asyncio.get_running_loop().time())
                assert exporter.objects == [counter]
                counter.go_on.set()
                assert (await waiting)[RETURNS] == S_OK
                interface.exported.last_call = -1e9
                exporter.reclaim([std.oid], asyncio.get_running_loop().time())
                assert exporter.objects == []

        run(main())

    def test_the_end_of_the_exporter_is_the_end_of_every_object(self, tmp_path: Path) -> None:
        async def main() -> None:
            async with ToyServer(tmp_path) as server, toy_client(server) as client:
                await client.activate()
                await client.activate()
                counters = server.com.exporter.objects
            assert [one.released_times for one in counters if isinstance(one, Counter)] == [1, 1]
            assert server.com.exporter.objects == []

        run(main())


def test_a_flood_of_references_holds_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            (std,) = await client.activate()
            refs = tuple([RemInterfaceRef(uuid4(), 1, 1) for _ in range(5000)])
            answer = await client.rem(REM_ADD_REF, c_interface_refs=len(refs), interface_refs=refs)
            assert set(answer["p_results"]) == {CO_E_OBJNOTREG}
            answer = await client.rem(REM_RELEASE, c_interface_refs=len(refs), interface_refs=refs)
            assert answer[RETURNS] == S_OK
            exporter = server.com.exporter
            assert len(exporter.objects) == 1
            assert await client.add(std) == 1

    run(main())


@pytest.mark.parametrize("interface", [IREMUNKNOWN, IREMUNKNOWN2])
def test_random_octets_to_the_remote_unknown_are_faults_or_results(tmp_path: Path, interface: Interface) -> None:
    async def main() -> None:
        async with ToyServer(tmp_path) as server, toy_client(server) as client:
            (std,) = await client.activate()
            bound = await client.objects.bind(interface)
            start = ADD.encode_request({"orpc_this": THIS, "n": 0})[:-4]
            for number in range(200):
                stub = start + os.urandom(number % 90)
                with contextlib.suppress(RpcFault):
                    await bound.call_raw(3 + number % 4, stub, server.com.exporter.ipid_rem_unknown)
            assert await client.add(std) == 1

    run(main())
