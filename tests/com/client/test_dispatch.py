"""Calls on automation objects from the client, through the vtable and by name.

Objects are passed in both directions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from lanner.com.automation.dispatch import DISPATCH_ZERO_VAR_RESULT
from lanner.com.automation.values import EMPTY, SafeArray, Variant
from lanner.com.client.client import ClientSettings, ComClient
from lanner.com.client.dispatch import (
    DISPATCH_METHOD,
    DISPATCH_PROPERTYGET,
    DISPATCH_PROPERTYPUT,
    DISPID_PROPERTYPUT,
    DispatchError,
    get_ids_of_names,
    invoke,
)
from lanner.com.client.remote_interface import RemoteInterface
from lanner.com.constants import (
    DISP_E_BADPARAMCOUNT,
    DISP_E_MEMBERNOTFOUND,
    DISP_E_TYPEMISMATCH,
    DISP_E_UNKNOWNNAME,
    E_FAIL,
    E_OUTOFMEMORY,
    IID_IDISPATCH,
    S_FALSE,
)
from lanner.com.objects import ComError
from lanner.com.server.exporter import ObjectExporter
from lanner.rpc.security import Credentials
from lanner.wire.vartypes import VT
from tests.com.albums import (
    ADD,
    CLSID_ALBUM,
    ECHO,
    FAIL,
    GET_TITLE,
    IID_IALBUM,
    NEXT,
    PUT_TITLE,
    TITLE_OF,
    Album,
    AlbumServer,
)
from tests.com.toys import DOMAIN, PASSWORD, USER
from tests.rpc.loops import run


@asynccontextmanager
async def album(folder: Path, iid: UUID) -> AsyncIterator[RemoteInterface]:
    async with AlbumServer(folder) as server:
        settings = ClientSettings(resolver_port=server.port)
        async with ComClient(settings, credentials=Credentials(USER, PASSWORD, DOMAIN)) as client:
            yield await client.activate("127.0.0.1", CLSID_ALBUM, iid)


def test_members_through_the_vtable(tmp_path: Path) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IALBUM) as one:
            assert await one.call(GET_TITLE) == ["one"]
            await one.call(PUT_TITLE, "two")
            assert await one.call(GET_TITLE) == ["two"]
            assert await one.call(ADD, 2, Variant(VT.I4, 3)) == [5]
            assert await one.call_with_result(ADD, 2, EMPTY) == ([2], S_FALSE)
            (following,) = await one.call(NEXT)
            assert isinstance(following, RemoteInterface)
            assert following.iid == IID_IALBUM
            assert await following.call(GET_TITLE) == ["two+"]
            assert await one.call(TITLE_OF, following) == ["two+"]
            with pytest.raises(ComError) as failed:
                await one.call(FAIL)
            assert failed.value.hresult == E_FAIL

    run(main())


@pytest.mark.parametrize("iid", [IID_IALBUM, IID_IDISPATCH])
def test_members_by_name(tmp_path: Path, iid: UUID) -> None:
    async def main() -> None:
        async with album(tmp_path, iid) as one:
            (title,) = await get_ids_of_names(one, ["title"])
            add, a, b = await get_ids_of_names(one, ["Add", "A", "B"])
            found, _ = await invoke(one, title, flags=DISPATCH_PROPERTYGET)
            assert found == Variant(VT.BSTR, "one")
            await invoke(one, title, ["two"], flags=DISPATCH_PROPERTYPUT, named=[DISPID_PROPERTYPUT])
            assert await one.invoke_dispatch(title, flags=DISPATCH_PROPERTYGET) == Variant(VT.BSTR, "two")
            assert await one.invoke_dispatch(add, [2, 3]) == Variant(VT.I4, 5)
            assert await one.invoke_dispatch(add, [3, 2], named=[b, a]) == Variant(VT.I4, 5)
            assert await one.invoke_dispatch(add, [2, 3], named=[b]) == Variant(VT.I4, 5)
            (following,) = await get_ids_of_names(one, ["Next"])
            other = (await one.invoke_dispatch(following)).value
            assert isinstance(other, RemoteInterface)
            (title_of,) = await get_ids_of_names(one, ["TitleOf"])
            assert await one.invoke_dispatch(title_of, [other]) == Variant(VT.BSTR, "two+")

    run(main())


@pytest.mark.parametrize(
    "value",
    [
        Variant(VT.I4, -5),
        Variant(VT.UI8, (1 << 64) - 1),
        Variant(VT.BSTR, "é\U0001f600"),
        Variant(VT.BSTR, None),
        Variant(VT.DECIMAL, Decimal("-1.25")),
        Variant(VT.ARRAY | VT.UI1, bytes(range(256))),
        Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, ["a", None])),
        Variant(VT.ARRAY | VT.VARIANT, SafeArray.of(VT.VARIANT, [Variant(VT.BOOL, True), EMPTY])),
        Variant(VT.DISPATCH, None),
    ],
    ids=repr,
)
def test_values_there_and_back(tmp_path: Path, value: Variant) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IDISPATCH) as one:
            assert await one.invoke_dispatch(ECHO.dispid, [value]) == value

    run(main())


def test_arguments_by_reference_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IDISPATCH) as one:
            result, changed = await invoke(one, ADD.dispid, [2, Variant(VT.BYREF | VT.I4, 3)])
            assert result == Variant(VT.I4, 5)
            assert changed == (Variant(VT.BYREF | VT.I4, 3),)

    run(main())


def test_what_goes_wrong_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IDISPATCH) as one:
            with pytest.raises(ComError) as refused:
                await get_ids_of_names(one, ["NoSuchThing"])
            assert refused.value.hresult == DISP_E_UNKNOWNNAME
            with pytest.raises(DispatchError) as failed:
                await one.invoke_dispatch(FAIL.dispid)
            assert (failed.value.hresult, failed.value.text, failed.value.source) == (E_FAIL, "on purpose", "Album")
            with pytest.raises(DispatchError) as mistyped:
                await one.invoke_dispatch(ADD.dispid, ["no number", 1])
            assert (mistyped.value.hresult, mistyped.value.argument) == (DISP_E_TYPEMISMATCH, 0)
            for dispid, arguments, hresult in [
                (99, [], DISP_E_MEMBERNOTFOUND),
                (ADD.dispid, [1, 2, 3], DISP_E_BADPARAMCOUNT),
            ]:
                with pytest.raises(DispatchError) as wrong:
                    await one.invoke_dispatch(dispid, arguments)
                assert wrong.value.hresult == hresult

    run(main())


def test_an_object_that_nobody_wants_is_taken_back(tmp_path: Path) -> None:
    """A statement such as `album.Next` in VB: what the call has made holds nothing."""

    async def main() -> None:
        async with album(tmp_path, IID_IDISPATCH) as one:
            Album.gone.clear()
            flags = DISPATCH_METHOD | DISPATCH_ZERO_VAR_RESULT
            assert await one.invoke_dispatch(NEXT.dispid, flags=flags) == EMPTY
            assert [each.title for each in Album.gone] == ["one+"]

    run(main())


@pytest.mark.parametrize("is_by_name", [False, True])
def test_an_object_that_cannot_be_exported_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_by_name: bool
) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IALBUM) as one:
            Album.gone.clear()
            monkeypatch.setattr(ObjectExporter, "_export", refuse)
            with pytest.raises(ComError) as refused:
                await (one.invoke_dispatch(NEXT.dispid) if is_by_name else one.call(NEXT))
            assert refused.value.hresult == E_OUTOFMEMORY
            assert [each.title for each in Album.gone] == ["one+"]

    def refuse(*_: object) -> None:
        raise ComError(E_OUTOFMEMORY, "too many objects")

    run(main())


def test_an_object_of_ours_without_an_exporter(tmp_path: Path) -> None:
    async def main() -> None:
        async with album(tmp_path, IID_IALBUM) as one:
            with pytest.raises(ComError, match="cannot pass"):
                await one.call(TITLE_OF, Album())

    run(main())
