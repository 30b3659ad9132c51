"""Enumerators: how they count, and their octets (MS-OAUT 3.3)."""

from __future__ import annotations

import importlib
import struct
from typing import Any, ClassVar

import pytest

from lanner.activex import tables
from lanner.com.automation.dispatch import DISPATCH_METHOD, DISPATCH_PROPERTYGET, DISPID_NEWENUM
from lanner.com.automation.enumerators import IENUM_VARIANT, EnumVariant
from lanner.com.automation.values import Variant
from lanner.com.constants import IID_IENUMVARIANT, IID_IUNKNOWN, S_FALSE, S_OK
from lanner.com.objects import ComCall, ComObject
from lanner.wire.vartypes import VT
from tests.com.fakes import Caller

ELEMENTS = tuple(Variant(VT.I4, number) for number in range(5))


class Collection(ComObject):
    interfaces: ClassVar = tables.MSMQ_COLLECTION.interfaces

    def get_new_enum(self, call: ComCall) -> EnumVariant:
        return EnumVariant(ELEMENTS)


def fetched(caller: Caller, count: int) -> tuple[list[int], int]:
    (elements, number), hresult = caller.call("Next", count)
    assert len(elements) == number
    return [each.value for each in elements], hresult


@pytest.mark.spec("MQAC-3.15.4.1.3-3")
def test_next_gives_what_is_left_and_says_so() -> None:
    """Next returns S_FALSE when fewer than celt elements remain."""
    caller = Caller(EnumVariant(ELEMENTS), IENUM_VARIANT)
    assert fetched(caller, 2) == ([0, 1], S_OK)
    assert fetched(caller, 3) == ([2, 3, 4], S_OK)
    assert fetched(caller, 1) == ([], S_FALSE)
    assert fetched(Caller(EnumVariant(ELEMENTS), IENUM_VARIANT), 6) == ([0, 1, 2, 3, 4], S_FALSE)


@pytest.mark.spec("MQAC-3.15.4.1.3-3")
def test_skip_goes_as_far_as_there_is() -> None:
    caller = Caller(EnumVariant(ELEMENTS), IENUM_VARIANT)
    assert caller.call("Skip", 4) == ([], S_OK)
    assert fetched(caller, 1) == ([4], S_OK)
    assert caller.call("Reset") == ([], S_OK)
    assert caller.call("Skip", 6) == ([], S_FALSE)
    assert fetched(caller, 1) == ([], S_FALSE)


@pytest.mark.spec("MQAC-3.15.4.1.3-3")
def test_reset_rewinds_and_clone_copies_the_position() -> None:
    caller = Caller(EnumVariant(ELEMENTS), IENUM_VARIANT)
    fetched(caller, 3)
    (objref,), hresult = caller.call("Clone")
    assert (objref.iid, hresult) == (IID_IENUMVARIANT, S_OK)
    clone = Caller(caller.object_of(objref), IENUM_VARIANT)
    assert fetched(caller, 1) == ([3], S_OK)
    assert fetched(clone, 1) == ([3], S_OK)
    caller.call("Reset")
    assert fetched(caller, 1) == ([0], S_OK)
    assert fetched(clone, 1) == ([4], S_OK)


def test_a_huge_count_costs_nothing() -> None:
    assert fetched(Caller(EnumVariant(ELEMENTS), IENUM_VARIANT), 0x7FFF_FFFF) == ([0, 1, 2, 3, 4], S_FALSE)


def test_next_as_octets() -> None:
    """The octets of Next: size_is(celt), length_is(*pCeltFetched).

    First comes the requested size, then offset zero, then the number of elements, then the
    elements.
    """
    caller = Caller(EnumVariant(ELEMENTS[4:]), IENUM_VARIANT)
    data = caller.raw(caller.find("Next"), struct.pack("<I", 7))
    assert data == bytes.fromhex(
        "07000000 00000000 01000000 0000020003000000 00000000 0300 0000 0000 0000 03000000 0400000001000000 01000000"
    )


def test_impacket_reads_what_next_gives() -> None:
    pytest.importorskip("impacket", reason="impacket is not installed")
    ndr: Any = importlib.import_module("impacket.dcerpc.v5.ndr")
    dtypes: Any = importlib.import_module("impacket.dcerpc.v5.dtypes")
    oaut: Any = importlib.import_module("impacket.dcerpc.v5.dcom.oaut")
    variants = type("Variants", (ndr.NDRUniConformantVaryingArray,), {"item": oaut.VARIANT})
    fields = (("rgVar", variants), ("pCeltFetched", dtypes.ULONG), ("hr", dtypes.ULONG))
    caller = Caller(EnumVariant(ELEMENTS), IENUM_VARIANT)
    data = caller.raw(caller.find("Next"), struct.pack("<I", 3))
    answer = type("Answer", (ndr.NDRCALL,), {"opnum": 0, "structure": fields})(data)
    assert [each["_varUnion"]["lVal"] for each in answer["rgVar"]] == [0, 1, 2]
    assert (answer["pCeltFetched"], answer["hr"]) == (3, S_OK)


@pytest.mark.spec("MQAC-3.15.4.1.3-1")
def test_new_enum_gives_an_unknown_that_enumerates() -> None:
    """_NewEnum returns an IUnknown whose IEnumVARIANT yields the collection's elements."""
    caller = Caller(Collection(), tables.IMSMQ_COLLECTION)
    (objref,), hresult = caller.call("_NewEnum")
    assert (objref.iid, hresult) == (IID_IUNKNOWN, S_OK)
    enumerator = caller.object_of(objref)
    assert enumerator.query_interface(IID_IENUMVARIANT) is IENUM_VARIANT
    assert fetched(Caller(enumerator, IENUM_VARIANT), 5) == ([0, 1, 2, 3, 4], S_OK)


@pytest.mark.parametrize("flags", [DISPATCH_METHOD, DISPATCH_PROPERTYGET, DISPATCH_METHOD | DISPATCH_PROPERTYGET])
@pytest.mark.spec("MQAC-3.15.4.1.3-2")
def test_new_enum_by_its_dispid(flags: int) -> None:
    """_NewEnum is reachable through Invoke under DISPID_NEWENUM -4."""
    caller = Caller(Collection())
    assert caller.ids("_newenum") == ((DISPID_NEWENUM,), S_OK)
    result, *_, hresult = caller.invoke(-4, flags)
    assert (result.vt, result.value.iid, hresult) == (VT.UNKNOWN, IID_IUNKNOWN, S_OK)
    assert isinstance(caller.object_of(result.value), EnumVariant)
