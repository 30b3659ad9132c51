"""Automation values as octets, checked with impacket, an independent implementation.

It reads what Lanner writes and the reverse. Its SAFEARRAYs are left out: it has a pointer too few
around them, and none to their elements (MS-OAUT 2.2.6, 2.2.30).
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import pytest

from lanner.com.automation.types import DISPPARAMS, EXCEPINFO, VARIANT, DispParams, ExcepInfo
from lanner.com.automation.values import Variant
from lanner.wire.vartypes import VT
from tests.com.automation.test_types import REFERENCE, packed, unpacked
from tests.statuses import MQ_ERROR_INVALID_HANDLE

pytest.importorskip("impacket", reason="impacket is not installed")

# It comes without types.
Peer: TypeAlias = Any
ndr: Peer = importlib.import_module("impacket.dcerpc.v5.ndr")
oaut: Peer = importlib.import_module("impacket.dcerpc.v5.dcom.oaut")


class OneVariant(ndr.NDRCALL):  # type: ignore[misc]
    opnum = 0
    structure = (("v", oaut.VARIANT),)


SCALARS = [
    (VT.I2, "iVal", -5),
    (VT.I4, "lVal", -5),
    (VT.I8, "llVal", -5),
    (VT.UI2, "uiVal", 0xFFFF),
    (VT.UI4, "ulVal", 0xFFFF_FFFF),
    (VT.UI8, "ullVal", 1 << 63),
    (VT.INT, "intVal", -1),
    (VT.UINT, "uintVal", 7),
    (VT.R4, "fltVal", 1.5),
    (VT.R8, "dblVal", 1e300),
    (VT.DATE, "date", 25569.0),
]
BY_REFERENCE = [
    (VT.I2, "piVal", -5),
    (VT.I4, "plVal", -5),
    (VT.I8, "pllVal", -5),
    (VT.UI2, "puiVal", 0xFFFF),
    (VT.UI4, "pulVal", 0xFFFF_FFFF),
    (VT.R8, "pdblVal", 1e300),
    (VT.DATE, "pdate", 25569.0),
]
ARMS = [*SCALARS, *((vt | VT.BYREF, arm, value) for vt, arm, value in BY_REFERENCE)]


def theirs(vt: int, arm: str = "", value: Any = None, *, field: str = "") -> bytes:  # noqa: ANN401
    """Let impacket write a VARIANT."""
    call = OneVariant()
    call["v"]["clSize"] = 5
    call["v"]["vt"] = vt
    call["v"]["_varUnion"]["tag"] = vt
    if field:
        call["v"]["_varUnion"][arm][field] = value
    elif arm:
        call["v"]["_varUnion"][arm] = value
    data: bytes = call.getData()
    return data


def read_by_them(variant: Variant) -> Any:  # noqa: ANN401
    """Let impacket read a VARIANT of ours; give its structure."""
    data = packed(VARIANT, variant)
    call = OneVariant(data)
    # It must have read all of it.
    assert len(call.getData()) == len(data)
    return call["v"]


@pytest.mark.parametrize(("vt", "arm", "value"), ARMS, ids=str)
def test_impacket_and_we_read_each_others_scalars(vt: int, arm: str, value: Any) -> None:  # noqa: ANN401
    assert unpacked(VARIANT, theirs(vt, arm, value)) == Variant(vt, value)
    read = read_by_them(Variant(vt, value))
    assert (read["vt"], read["_varUnion"]["tag"], read["_varUnion"][arm]) == (vt, vt, value)


@pytest.mark.parametrize("vt", [VT.EMPTY, VT.NULL])
def test_impacket_and_we_read_each_others_nothing(vt: int) -> None:
    assert unpacked(VARIANT, theirs(vt)) == Variant(vt)
    assert read_by_them(Variant(vt))["vt"] == vt


def test_impacket_and_we_read_each_others_strings_and_currency() -> None:
    assert unpacked(VARIANT, theirs(VT.BSTR, "bstrVal", "dir\0x", field="asData")) == Variant(VT.BSTR, "dir\0x")
    assert read_by_them(Variant(VT.BSTR, "dir"))["_varUnion"]["bstrVal"]["asData"] == "dir"
    byref = VT.BSTR | VT.BYREF
    assert unpacked(VARIANT, theirs(byref, "pbstrVal", "dir", field="asData")) == Variant(byref, "dir")
    assert read_by_them(Variant(byref, "dir"))["_varUnion"]["pbstrVal"]["asData"] == "dir"
    assert unpacked(VARIANT, theirs(VT.CY, "cyVal", 52500, field="int64")) == Variant(VT.CY, 52500)
    assert read_by_them(Variant(VT.CY, -52500))["_varUnion"]["cyVal"]["int64"] == -52500


def test_impacket_and_we_read_each_others_objects() -> None:
    call = OneVariant(theirs(VT.DISPATCH, "pdispVal", list(REFERENCE.pack()), field="abData"))
    call["v"]["_varUnion"]["pdispVal"]["ulCntData"] = len(REFERENCE.pack())
    assert unpacked(VARIANT, call.getData()) == Variant(VT.DISPATCH, REFERENCE)
    read = read_by_them(Variant(VT.UNKNOWN, REFERENCE))
    assert b"".join(read["_varUnion"]["punkVal"]["abData"]) == REFERENCE.pack()


class OneDispParams(ndr.NDRCALL):  # type: ignore[misc]
    opnum = 0
    structure = (("p", oaut.DISPPARAMS),)


class OneExcepInfo(ndr.NDRCALL):  # type: ignore[misc]
    opnum = 0
    structure = (("e", oaut.EXCEPINFO),)


def test_impacket_and_we_read_each_others_disp_params() -> None:
    call = OneDispParams()
    for value in (1, 2):
        variant = oaut.VARIANT(None, False)
        variant["clSize"] = 5
        variant["vt"] = variant["_varUnion"]["tag"] = VT.I4
        variant["_varUnion"]["lVal"] = value
        call["p"]["rgvarg"].append(variant)
    call["p"]["rgdispidNamedArgs"].append(0xFFFF_FFFD)
    call["p"]["cArgs"], call["p"]["cNamedArgs"] = 2, 1
    params = DispParams.of((Variant(VT.I4, 1), Variant(VT.I4, 2)), (-3,))
    assert unpacked(DISPPARAMS, call.getData()) == params
    read = OneDispParams(packed(DISPPARAMS, params))["p"]
    assert [each["_varUnion"]["lVal"] for each in read["rgvarg"]] == [1, 2]
    assert (read["cArgs"], read["cNamedArgs"], list(read["rgdispidNamedArgs"])) == (2, 1, [0xFFFF_FFFD])


def test_impacket_reads_our_excep_info() -> None:
    info = ExcepInfo(bstr_source="MSMQQueue", bstr_description="closed", scode=MQ_ERROR_INVALID_HANDLE)
    read = OneExcepInfo(packed(EXCEPINFO, info))["e"]
    assert (read["wCode"], read["scode"] & 0xFFFF_FFFF) == (0, MQ_ERROR_INVALID_HANDLE)
    assert (read["bstrSource"]["asData"], read["bstrDescription"]["asData"]) == ("MSMQQueue", "closed")
    assert read["bstrHelpFile"]["cBytes"] == 0xFFFF_FFFF
    assert unpacked(EXCEPINFO, packed(EXCEPINFO, info)) == info
