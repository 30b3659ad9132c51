"""Wrong answers of a hostile server or sink.

Whatever arrives, a call ends with a result or a ComError.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lanner.com.automation.enumerators import IENUM_VARIANT
from lanner.com.automation.values import SafeArray, Variant
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.dispatch import DISPATCH_PROPERTYGET, get_ids_of_names
from lanner.com.constants import IID_IDISPATCH, IID_IUNKNOWN
from lanner.com.objects import ComError
from lanner.rpc.async_client import RpcClient
from lanner.rpc.client_connection import Answered
from lanner.rpc.security import Credentials
from lanner.wire.vartypes import VT
from tests.adversity.rpc_mutator import Mutator
from tests.com.albums import (
    ADD,
    CLSID_ALBUM,
    ECHO,
    FAIL,
    GET_TITLE,
    IID_IALBUM,
    ITEM,
    NEW_ENUM,
    NEXT,
    AlbumServer,
)
from tests.com.toys import DOMAIN, PASSWORD, USER
from tests.rpc.loops import run

HOST = "127.0.0.1"
ORPCTHAT_SIZE = 8


class Liar:
    """Between a client and its connections: from time to time an answer is another one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.mutator = Mutator(seed)
        self.share = 0.0

    def of(self, answer: Answered) -> Answered:
        if self.chance.random() >= self.share:
            return answer
        start = 0 if self.chance.random() < 0.2 else min(ORPCTHAT_SIZE, len(answer.stub))
        return dataclasses.replace(answer, stub=answer.stub[:start] + self.mutator.octets(answer.stub[start:]))


@asynccontextmanager
async def client_of(folder: Path, liar: Liar, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ComClient]:
    request = RpcClient.request

    async def lie(self: RpcClient, *given: object) -> Answered:
        return liar.of(await request(self, *given))  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(RpcClient, "request", lie)
    async with AlbumServer(folder) as server:
        settings = ClientSettings(resolver_port=server.port, connect_timeout=0.2, call_timeout=0.5)
        async with ComClient(settings, credentials=Credentials(USER, PASSWORD, DOMAIN)) as client:
            yield client
            liar.share = 0.0


async def work(client: ComClient, kept: list[RemoteInterface]) -> None:
    """Make calls of every kind; `kept` are objects obtained while no peer sent wrong answers."""
    (album,) = kept
    values = Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [Variant(VT.BSTR, "x"), Variant(VT.I4, 1)]))
    for call in (
        lambda: album.call(GET_TITLE),
        lambda: album.call(ADD, 1, Variant(VT.I4, 2)),
        lambda: album.call(ECHO, values),
        lambda: album.call(NEXT),
        lambda: album.call(FAIL),
        lambda: get_ids_of_names(album, ["Add", "a", "b"]),
        lambda: album.invoke_dispatch(NEXT.dispid),
        lambda: album.invoke_dispatch(ITEM.dispid, [3], flags=DISPATCH_PROPERTYGET),
        lambda: album.invoke_dispatch(FAIL.dispid),
        lambda: album.query_interface(IID_IUNKNOWN),
        lambda: client.activate(HOST, CLSID_ALBUM, IID_IDISPATCH),
        client.ping,
    ):
        with contextlib.suppress(ComError):
            await call()


@pytest.mark.parametrize("seed", [1, 2, *[pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60)]])
def test_answers_that_are_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    liar = Liar(seed)
    # No name is resolved outside this test: an address in a reference may be any.
    monkeypatch.setattr("lanner.com.client.connections.connect_tcp", _only_here)

    async def main() -> None:
        async with client_of(tmp_path, liar, monkeypatch) as client:
            album = await client.activate(HOST, CLSID_ALBUM, IID_IALBUM)
            (enumerator,) = await album.call(NEW_ENUM)
            elements = await enumerator.query_interface(IENUM_VARIANT.iid)
            liar.share = 0.7
            for _ in range(15):
                await work(client, [album])
                with contextlib.suppress(ComError):
                    await elements.call(IENUM_VARIANT.by_opnum[3], 5)
            liar.share = 0.0
            # It still works: there, and here.
            assert await album.call(GET_TITLE) == ["one"]
            await asyncio.sleep(0)

    run(main())


async def _only_here(host: str, port: int, **given: object) -> RpcClient:
    from lanner.rpc.async_client import connect_tcp

    if host != HOST:
        raise OSError(f"{host} is somewhere else")
    return await connect_tcp(host, port, **given)  # type: ignore[arg-type]  # as they came
