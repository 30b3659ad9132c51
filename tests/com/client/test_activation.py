"""The client's activation requests, read by an independent parser."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from lanner.com.activation_properties import ActivationRequest, unpack_blob
from lanner.com.constants import (
    CLSID_ACTIVATIONCONTEXTINFO,
    CLSID_CONTEXTMARSHALER,
    CLSID_INSTANTIATIONINFO,
    CLSID_SCMREQUESTINFO,
    CLSID_SERVERLOCATIONINFO,
    IID_ICONTEXT,
)
from tests.com.toys import CLSID_COUNTER, IID_ICOUNTER, IID_IOTHER

dcomrt = pytest.importorskip("impacket.dcerpc.v5.dcomrt", reason="impacket is not installed")


def read(kind: Any, data: bytes) -> Any:  # noqa: ANN401 (impacket has no types)
    found = kind()
    size = found.fromString(data)
    found.fromStringReferents(data[size:])
    return found


def test_a_request_has_what_every_server_wants() -> None:
    """MS-DCOM 3.2.4.1.1.2: the contents of an activation request.

    It has the class, the interfaces, the protocol sequences and a client context, here an empty
    one.
    """
    properties = unpack_blob(ActivationRequest(CLSID_COUNTER, (IID_ICOUNTER, IID_IOTHER)).pack().object_data)
    assert list(properties) == [
        CLSID_INSTANTIATIONINFO,
        CLSID_ACTIVATIONCONTEXTINFO,
        CLSID_SERVERLOCATIONINFO,
        CLSID_SCMREQUESTINFO,
    ]
    info = read(dcomrt.InstantiationInfoData, properties[CLSID_INSTANTIATIONINFO])
    assert UUID(bytes_le=info["classId"]) == CLSID_COUNTER
    assert [UUID(bytes_le=each["Data"]) for each in info["pIID"]] == [IID_ICOUNTER, IID_IOTHER]
    assert info["thisSize"] == len(properties[CLSID_INSTANTIATIONINFO])
    request = read(dcomrt.ScmRequestInfoData, properties[CLSID_SCMREQUESTINFO])
    assert list(request["remoteRequest"]["pRequestedProtseqs"]) == [7]
    context = read(dcomrt.ActivationContextInfoData, properties[CLSID_ACTIVATIONCONTEXTINFO])
    objref = dcomrt.OBJREF_CUSTOM(b"".join(context["pIFDClientCtx"]["abData"]))
    assert UUID(bytes_le=objref["iid"]) == IID_ICONTEXT
    assert UUID(bytes_le=objref["clsid"]) == CLSID_CONTEXTMARSHALER
    # MS-DCOM 2.2.20: version 1.1, by value, no extents, no properties, frozen; the identifier is
    # anything.
    data = bytes(objref["pObjectData"])
    assert data[:4].hex() == "01000100"
    assert data[20:].hex() == "02000000" + "00000000" * 5 + "01000000"
    assert context.fields["pIFDPrototypeCtx"]["ReferentID"] == 0
