"""The activation properties BLOB (MS-DCOM 2.2.22, MS-RPCE 2.2.6)."""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.com.activation_properties import (
    ActivationReply,
    ActivationRequest,
    InterfaceResult,
    LocationInfoData,
    pack_blob,
    unpack_blob,
)
from lanner.com.constants import (
    CLSID_ACTIVATIONPROPERTIESIN,
    CLSID_ACTIVATIONPROPERTIESOUT,
    CLSID_INSTANTIATIONINFO,
    CLSID_PROPSOUTINFO,
    CLSID_SCMREPLYINFO,
    CLSID_SCMREQUESTINFO,
    CLSID_SERVERLOCATIONINFO,
    CLSID_SPECIALSYSTEMPROPERTIES,
    E_NOINTERFACE,
    IID_IACTIVATIONPROPERTIESIN,
    IID_IACTIVATIONPROPERTIESOUT,
    IID_IDISPATCH,
)
from lanner.com.objref import ObjRefCustom, unpack_objref
from lanner.com.orpc import ComVersion
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.ndr import Struct, Unique, u32
from lanner.rpc.ndr.serialization import deserialize, serialize
from tests.com.test_objref import BINDINGS, STANDARD

CLSID = UUID("d7d6e073-dccd-11d0-aa4b-0060970debae")
REQUEST = ActivationRequest(CLSID, (IID_IDISPATCH, UUID(int=5)), (7, 8), ComVersion(5, 7))
REPLY = ActivationReply(
    (InterfaceResult(STANDARD.iid, 0, STANDARD), InterfaceResult(UUID(int=5), E_NOINTERFACE)),
    oxid=77,
    bindings=BINDINGS,
    ipid_rem_unknown=UUID(int=9),
    authn_hint=5,
)


@dataclass(frozen=True, slots=True)
class Pair:
    first: Annotated[int, u32]
    second: Annotated[int | None, Unique(u32)]


PAIR = Struct(Pair)
PAIR_OCTETS = bytes.fromhex(
    "01100800cccccccc"  # version 1, little-endian, 8 octets
    "1000000000000000"  # 16 octets follow
    "0700000000000200"
    "0900000000000000"  # filled up to a multiple of eight
)


def test_type_serialization_both_ways() -> None:
    """MS-RPCE 2.2.6.1, 2.2.6.2."""
    assert serialize(PAIR, Pair(7, 9)) == PAIR_OCTETS
    assert deserialize(PAIR, PAIR_OCTETS) == Pair(7, 9)


def test_type_serialization_in_the_other_byte_order() -> None:
    octets = bytes.fromhex("01000800cccccccc 0000000c00000000 00000007 00020000 00000009".replace(" ", ""))
    assert deserialize(PAIR, octets) == Pair(7, 9)


@pytest.mark.parametrize("header", ["02100800cccccccc", "01101000cccccccc", "00000000cccccccc"])
def test_another_serialization_is_refused(header: str) -> None:
    with pytest.raises(RemoteProtocolError):
        deserialize(PAIR, bytes.fromhex(header) + PAIR_OCTETS[8:])


def test_a_request_both_ways() -> None:
    objref = REQUEST.pack()
    assert (objref.iid, objref.clsid) == (IID_IACTIVATIONPROPERTIESIN, CLSID_ACTIVATIONPROPERTIESIN)
    assert ActivationRequest.unpack(unpack_objref(objref.pack())) == REQUEST


def test_a_reply_both_ways() -> None:
    objref = REPLY.pack()
    assert (objref.iid, objref.clsid) == (IID_IACTIVATIONPROPERTIESOUT, CLSID_ACTIVATIONPROPERTIESOUT)
    assert ActivationReply.unpack(unpack_objref(objref.pack())) == REPLY


def test_the_blob_says_its_sizes() -> None:
    """MS-DCOM 2.2.22, 2.2.22.1: the sizes in the blob.

    dwSize and totalSize count from the CustomHeader on; headerSize and the sizes of the properties
    are there too.
    """
    blob = REPLY.pack().object_data
    total, reserved = struct.unpack_from("<II", blob)
    assert (total, reserved) == (len(blob) - 8, 0)
    assert struct.unpack_from("<II", blob, 24)[0] == total
    header_size = struct.unpack_from("<I", blob, 28)[0]
    properties = unpack_blob(blob)
    assert list(properties) == [CLSID_PROPSOUTINFO, CLSID_SCMREPLYINFO]
    assert header_size + sum(map(len, properties.values())) == total
    assert all(len(one) % 8 == 0 for one in properties.values())


@pytest.mark.spec("MQAC-2.1-4")
def test_properties_that_nobody_knows_are_ignored() -> None:
    """MS-DCOM 3.1.2.5.2.3.3: "Servers SHOULD ignore properties that they do not recognize"."""
    properties = {UUID(int=1): b"??", CLSID_SPECIALSYSTEMPROPERTIES: b"\xff" * 13}
    blob = pack_blob({**properties, **unpack_blob(REQUEST.pack().object_data), UUID(int=2): b""})
    objref = ObjRefCustom(UUID(int=0), CLSID_ACTIVATIONPROPERTIESIN, blob)
    assert ActivationRequest.unpack(objref) == REQUEST


@pytest.mark.spec("MQAC-2.1-4")
@pytest.mark.parametrize("clsid", [CLSID_INSTANTIATIONINFO, CLSID_SCMREQUESTINFO, CLSID_SERVERLOCATIONINFO])
def test_a_request_needs_its_three_properties(clsid: UUID) -> None:
    properties = unpack_blob(REQUEST.pack().object_data)
    del properties[clsid]
    with pytest.raises(RemoteProtocolError, match="missing"):
        ActivationRequest.unpack(ObjRefCustom(UUID(int=0), CLSID_ACTIVATIONPROPERTIESIN, pack_blob(properties)))


@pytest.mark.spec("MQAC-2.1-4")
def test_another_unmarshaler_is_no_request() -> None:
    with pytest.raises(RemoteProtocolError):
        ActivationRequest.unpack(ObjRefCustom(UUID(int=0), UUID(int=0x337), REQUEST.pack().object_data))
    with pytest.raises(RemoteProtocolError):
        ActivationRequest.unpack(STANDARD)


def test_what_a_location_says_is_ignored() -> None:
    """MS-DCOM 2.2.22.2.6: "The server MUST ignore this structure"."""
    properties = unpack_blob(REQUEST.pack().object_data)
    properties[CLSID_SERVERLOCATIONINFO] = b"nonsense"
    objref = ObjRefCustom(UUID(int=0), CLSID_ACTIVATIONPROPERTIESIN, pack_blob(properties))
    assert ActivationRequest.unpack(objref) == REQUEST
    assert deserialize(Struct(LocationInfoData), serialize(Struct(LocationInfoData), LocationInfoData("x", 1, 2, 3)))


@pytest.mark.parametrize("packed", [REQUEST.pack(), REPLY.pack()], ids=["request", "reply"])
def test_every_truncation_is_refused(packed: ObjRefCustom) -> None:
    kind = ActivationRequest if packed.clsid == CLSID_ACTIVATIONPROPERTIESIN else ActivationReply
    for size in range(len(packed.object_data)):
        with pytest.raises(RemoteProtocolError):
            kind.unpack(ObjRefCustom(packed.iid, packed.clsid, packed.object_data[:size]))


@given(st.data())
def test_a_changed_blob_is_read_or_refused(data: st.DataObject) -> None:
    packed = data.draw(st.sampled_from([REQUEST.pack(), REPLY.pack()]))
    kind = ActivationRequest if packed.clsid == CLSID_ACTIVATIONPROPERTIESIN else ActivationReply
    octets = bytearray(packed.object_data)
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        kind.unpack(ObjRefCustom(packed.iid, packed.clsid, bytes(octets)))
