"""Limits on the objects and octets of clients, for one user and for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from lanner.com.constants import E_OUTOFMEMORY
from lanner.com.objects import ComError
from lanner.com.orpc import OrpcExtent, OrpcExtentArray
from lanner.com.server.exporter import SMALL_REQUEST
from lanner.com.server.holdings import HoldingLimits, Holdings
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS
from lanner.wire.sid import EVERYONE, LOCAL_SYSTEM, Sid
from tests.com.toys import ADD, CLSID_COUNTER, ICOUNTER, THIS, Counter, ToyServer, toy_client
from tests.rpc.loops import run

LARGE = replace(THIS, extensions=OrpcExtentArray.of(OrpcExtent.of(UUID(int=1), bytes(SMALL_REQUEST))))
FEW = HoldingLimits(max_objects=3, max_objects_per_user=2, max_octets=100, max_octets_per_user=60)


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ComError as error:
        return error.hresult == E_OUTOFMEMORY
    return False


def test_objects_of_one_user_and_of_all() -> None:
    holdings = Holdings(FEW)
    holdings.add(EVERYONE)
    holdings.add(EVERYONE)
    assert is_refused(lambda: holdings.add(EVERYONE))
    holdings.add(LOCAL_SYSTEM)
    assert is_refused(lambda: holdings.add(LOCAL_SYSTEM))
    assert is_refused(lambda: holdings.add(None))
    holdings.remove(EVERYONE, 0)
    holdings.add(None)


@pytest.mark.parametrize(("owner", "limit"), [(EVERYONE, 60), (None, 100)])
def test_octets_of_one_user_and_of_all(owner: Sid | None, limit: int) -> None:
    holdings = Holdings(FEW)
    holdings.add(owner)
    holdings.grow(owner, limit - 1)
    holdings.require_room(owner)
    holdings.grow(owner, 1)
    assert is_refused(lambda: holdings.require_octets(owner))
    assert is_refused(lambda: holdings.require_room(owner))
    assert is_refused(lambda: holdings.add(owner))
    assert is_refused(lambda: holdings.require_octets(LOCAL_SYSTEM)) is (limit == 100)
    holdings.grow(owner, -1)
    holdings.require_room(owner)


def test_what_goes_is_forgotten() -> None:
    holdings = Holdings(FEW)
    holdings.add(EVERYONE)
    holdings.grow(EVERYONE, 7)
    holdings.remove(EVERYONE, 7)
    assert (holdings.objects, holdings.octets) == (0, 0)
    assert not holdings._objects_of
    assert not holdings._octets_of


class Heavy(Counter):
    """It holds as many octets as it has counted."""

    @property
    def octets(self) -> int:
        return self.total


def test_objects_are_weighed_after_each_call(tmp_path: Path) -> None:
    """A client above its limit gets no new object and may send nothing large.

    It may continue and release objects.
    """

    async def main() -> None:
        async with ToyServer(tmp_path, classes={CLSID_COUNTER: Heavy}) as server:
            holdings = server.com.exporter.holdings
            holdings.limits = HoldingLimits(max_octets_per_user=1000)
            async with toy_client(server) as client:
                (one,) = await client.activate()
                (other,) = await client.activate()
                assert await client.add(one, 999) == 999
                assert holdings.octets == 999
                await client.call(ICOUNTER, other.ipid, ADD, this=LARGE, n=1)
                assert holdings.octets == 1000
                answer = await client.create()
                assert answer[RETURNS] == E_OUTOFMEMORY
                with pytest.raises(RpcFault) as refused:
                    await client.call(ICOUNTER, other.ipid, ADD, this=LARGE, n=1)
                assert refused.value.status == E_OUTOFMEMORY
                assert await client.add(other, 5) == 6
                await client.release(one)
                assert holdings.octets == 6
                await client.call(ICOUNTER, other.ipid, ADD, this=LARGE, n=1)
                await client.activate()

    run(main())
