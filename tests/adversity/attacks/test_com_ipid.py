"""An IPID of another user.

The attacker reads it from the wire, where level integrity does not encrypt references.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lanner.com.client.client import ComClient, RemoteInterface
from lanner.com.client.tables import HeldInterface
from lanner.com.constants import (
    CO_E_OBJNOTREG,
    IID_ICLASSFACTORY,
    IID_IDISPATCH,
    IID_IUNKNOWN,
    RPC_E_ACCESS_DENIED,
    S_OK,
)
from lanner.com.interfaces import REM_ADD_REF, REM_QUERY_INTERFACE, REM_RELEASE, RemInterfaceRef
from lanner.com.known_classes import CLASSES
from lanner.com.objects import ComError
from lanner.com.objref import StdObjRef
from lanner.com.orpc import ORPCTHIS, OrpcThis
from lanner.rpc.ndr import Encoder, Syntax, representation
from tests.adversity.attacks.victim import ADMINISTRATOR, USER, Victim, victim
from tests.adversity.com_world import Script
from tests.com.toys import CID
from tests.interop.peers import needs_endpoint_mapper_port

HERS = r".\private$\hers"
GET_TYPE_INFO_COUNT = 3


async def create(client: ComClient, target: Victim, name: str) -> RemoteInterface:
    return await client.activate(target.address, CLASSES[f"MSMQ.{name}"], IID_IDISPATCH)


async def attack(target: Victim) -> None:
    encoder = Encoder(representation(Syntax.NDR20))
    ORPCTHIS.encode(encoder, OrpcThis.of(CID))
    async with ComClient(credentials=ADMINISTRATOR) as alice, ComClient(credentials=USER) as bob:
        hers, his = await create(alice, target, "MSMQQueueInfo"), await create(bob, target, "MSMQQueueInfo")
        exporter, ipid = his.held.exporter, hers.ipid
        # A call on it.
        with pytest.raises(ComError) as refused:
            await bob.calls.request(exporter, IID_IDISPATCH, ipid, GET_TYPE_INFO_COUNT, encoder.getvalue())
        assert refused.value.hresult == RPC_E_ACCESS_DENIED
        # Another interface of it.
        query = {"ripid": ipid, "c_refs": 1, "c_iids": 1, "iids": (IID_IUNKNOWN,)}
        with pytest.raises(ComError) as refused:
            await bob.calls.call_rem_unknown(exporter, REM_QUERY_INTERFACE, query)
        assert refused.value.hresult == RPC_E_ACCESS_DENIED
        # References to it, more and fewer.
        some = {"c_interface_refs": 1, "interface_refs": (RemInterfaceRef(ipid, 1, 0),)}
        answer = await bob.calls.call_rem_unknown(exporter, REM_ADD_REF, some)
        assert answer["p_results"] == (CO_E_OBJNOTREG,)
        all_there_are = {"c_interface_refs": 1, "interface_refs": (RemInterfaceRef(ipid, 1000, 1000),)}
        await bob.calls.call_rem_unknown(exporter, REM_RELEASE, all_there_are)
        # It as an argument, for an object of his own.
        stolen = HeldInterface(
            exporter, IID_IDISPATCH, StdObjRef(0, 5, exporter.oxid, hers.oid, ipid), his.held.res_addr
        )
        message = await create(bob, target, "MSMQMessage")
        with pytest.raises(ComError):
            await Script(bob).put(message, "ResponseQueueInfo", RemoteInterface(bob, stolen))
        # She still has it.
        await Script(alice).put(hers, "PathName", HERS)


async def factory_of(client: ComClient, target: Victim) -> RemoteInterface:
    clsid = CLASSES["MSMQ.MSMQQuery"]
    (found,) = await client.activate_all(target.address, clsid, (IID_ICLASSFACTORY,), is_class_object=True)
    assert isinstance(found, RemoteInterface)
    return found


async def release_a_factory(target: Victim) -> None:
    """A class factory is one object for all users."""
    async with ComClient(credentials=ADMINISTRATOR) as alice, ComClient(credentials=USER) as bob:
        hers, his = await factory_of(alice, target), await factory_of(bob, target)
        assert hers.ipid == his.ipid
        all_there_are = {"c_interface_refs": 1, "interface_refs": (RemInterfaceRef(hers.ipid, 1_000_000, 1_000_000),)}
        await bob.calls.call_rem_unknown(his.held.exporter, REM_RELEASE, all_there_are)
        query = {"ripid": hers.ipid, "c_refs": 1, "c_iids": 1, "iids": (IID_IUNKNOWN,)}
        answer = await alice.calls.call_rem_unknown(hers.held.exporter, REM_QUERY_INTERFACE, query)
        assert [one.hresult for one in answer["pp_qi_results"]] == [S_OK]


def test_another_users_references_to_a_factory_cannot_be_released(tmp_path: Path) -> None:
    needs_endpoint_mapper_port("127.0.0.1")
    with victim(tmp_path, com=True) as target:
        asyncio.run(asyncio.wait_for(release_a_factory(target), 60))


def test_another_users_object_cannot_be_used(tmp_path: Path) -> None:
    needs_endpoint_mapper_port("127.0.0.1")
    with victim(tmp_path, com=True) as target:
        asyncio.run(asyncio.wait_for(attack(target), 60))
