"""Private queues of another computer: create, delete, properties, security and names.

MS-MQMP 3.1.4.5 to 3.1.4.11 and 3.1.4.23.
"""

# What a method takes is told by its declaration.
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from lanner.model.enums import INFINITE, QueuePrivacyLevel
from lanner.rpc.faults import RpcFault
from lanner.rpc.interface import RETURNS, Method
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.interfaces import mqmp
from lanner.services.interfaces.mqmp import ObjectFormat
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.queue_formats import queue_format_of
from lanner.wire.format_name import parse
from lanner.wire.property_ids import QueueProperty
from lanner.wire.propvariant import EMPTY, NULL, PropVariant
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, SecurityInformation, allow
from lanner.wire.vartypes import VT
from tests.services.queue_client_peer import Peer, Site, queue_object, served, serving
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
    MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_NO_DS,
    MQ_ERROR_PRIVILEGE_NOT_HELD,
    MQ_ERROR_PROPERTY,
    MQ_ERROR_PROPERTY_NOTALLOWED,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
    MQ_ERROR_WKS_CANT_SERVE_CLIENT,
)

OK = 0
NEW = r".\private$\new"
NEW_NAME = r"DIRECT=OS:.\private$\new"
TYPE = uuid.uuid4()
UNKNOWN = QueueFormat(0, 0, 0, None)

Given = dict[int, PropVariant]
LABEL: Given = {QueueProperty.LABEL: PropVariant(VT.LPWSTR, "a label")}


async def administrator(site: Site) -> Peer:
    site.add_user("root", is_administrator=True)
    return await site.peer("root")


async def create(
    peer: Peer, path: str = NEW, given: Given | None = None, security: bytes | None = None, **changes: Any
) -> int:
    given = LABEL if given is None else given
    arguments = {
        "dw_object_type": 1,
        "lpwcs_path_name": path,
        "sd_size": len(security or b""),
        "p_security_descriptor": security,
        "cp": len(given),
        "a_prop": tuple(given),
        "ap_var": tuple(given.values()),
    } | changes
    return await peer.status(mqmp.R_QM_CREATE_OBJECT_INTERNAL, **arguments)


async def get(peer: Peer, *identifiers: int, name: str = NEW_NAME, before: PropVariant = NULL) -> dict[str, Any]:
    return await peer.call(
        mqmp.R_QM_GET_OBJECT_PROPERTIES,
        p_object_format=queue_object(name),
        cp=len(identifiers),
        a_prop=identifiers,
        ap_var=(before,) * len(identifiers),
    )


async def change(peer: Peer, given: Given, name: str = NEW_NAME) -> int:
    return await peer.status(
        mqmp.R_QM_SET_OBJECT_PROPERTIES,
        p_object_format=queue_object(name),
        cp=len(given),
        a_prop=tuple(given),
        ap_var=tuple(given.values()),
    )


async def get_security(peer: Peer, parts: int, length: int = 1000, name: str = NEW_NAME) -> dict[str, Any]:
    return await peer.call(
        mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL,
        p_object_format=queue_object(name),
        requested_information=parts,
        n_length=length,
    )


async def set_security(peer: Peer, parts: int, security: bytes | None, name: str = NEW_NAME) -> int:
    return await peer.status(
        mqmp.R_QM_SET_OBJECT_SECURITY_INTERNAL,
        p_object_format=queue_object(name),
        security_information=parts,
        sd_size=len(security or b""),
        p_security_descriptor=security,
    )


async def path_to_format(peer: Peer, path: str, given: QueueFormat | None = UNKNOWN) -> dict[str, Any]:
    return await peer.call(
        mqmp.R_QM_OBJECT_PATH_TO_OBJECT_FORMAT, lpwcs_path_name=path, p_object_format=ObjectFormat(1, given)
    )


# Create
# --------------------------------------------------------------------------------------------------

EVERYTHING: Given = {
    QueueProperty.TYPE: PropVariant(VT.CLSID, TYPE),
    QueueProperty.PATHNAME: PropVariant(VT.LPWSTR, r"ALPHA\PRIVATE$\New"),
    QueueProperty.JOURNAL: PropVariant(VT.UI1, 1),
    QueueProperty.QUOTA: PropVariant(VT.UI4, 77),
    QueueProperty.BASEPRIORITY: PropVariant(VT.I2, -5),
    QueueProperty.JOURNAL_QUOTA: PropVariant(VT.UI4, 78),
    QueueProperty.LABEL: PropVariant(VT.LPWSTR, "etikett ä"),
    QueueProperty.AUTHENTICATE: PropVariant(VT.UI1, 1),
    QueueProperty.PRIV_LEVEL: PropVariant(VT.UI4, 2),
    QueueProperty.TRANSACTION: PropVariant(VT.UI1, 1),
    QueueProperty.MULTICAST_ADDRESS: PropVariant(VT.LPWSTR, "239.1.2.3:8001"),
}


@pytest.mark.parametrize("path", [NEW, r"alpha\private$\new", r"ALPHA\PRIVATE$\NEW"])
@served
async def test_a_queue_is_created_with_every_property_that_can_be_given(site: Site, path: str) -> None:
    """3.1.4.5, and all "Create" rows of 3.1.1.12."""
    peer = await administrator(site)
    assert await create(peer, path, EVERYTHING) == OK
    queue = site.operations.find(NEW)
    assert (queue.type, queue.journaling, queue.quota, queue.base_priority) == (TYPE, True, 77, -5)
    assert (queue.journal_quota, queue.label, queue.authentication) == (78, "etikett ä", True)
    assert (queue.privacy_level, queue.transactional) == (QueuePrivacyLevel.BODY, True)
    assert queue.multicast_address == "239.1.2.3:8001"
    assert queue.pathname.lower() == r"alpha\private$\new"


@served
async def test_what_is_not_given_has_its_default(site: Site) -> None:
    """3.1.4.5: Set Queue Defaults; a security descriptor that is NULL is made."""
    peer = await administrator(site)
    assert await create(peer) == OK
    queue = site.operations.find(NEW)
    assert (queue.label, queue.journaling, queue.quota) == ("a label", False, INFINITE)
    assert not queue.transactional
    assert queue.security is not None
    assert SecurityDescriptor.unpack(queue.security).owner == site.runtime.users.sid("root")


@served
async def test_an_existing_queue_is_left_alone(site: Site) -> None:
    """3.1.4.5: "the server MUST NOT alter the existing queue"; the check of rights comes later."""
    peer = await site.peer()
    assert await create(peer, r".\private$\q", LABEL) == MQ_ERROR_QUEUE_EXISTS
    assert site.operations.find(r".\private$\q").label == ""


@served
async def test_a_security_descriptor_can_be_given(site: Site) -> None:
    """3.1.4.5 pSecurityDescriptor."""
    peer = await administrator(site)
    owner = site.runtime.users.sid("root")
    security = SecurityDescriptor(owner=owner, dacl=Acl((allow(ANONYMOUS.sid, QueueAccess.WRITE_MESSAGE),))).pack()
    assert await create(peer, security=security) == OK
    stranger = await site.peer()
    assert (await stranger.open_queue(NEW_NAME, 2))[RETURNS] == OK
    assert (await stranger.open_queue(NEW_NAME, 1))[RETURNS] == MQ_ERROR_ACCESS_DENIED


REFUSED: list[tuple[dict[str, Any], int]] = [
    ({"dw_object_type": 2}, MQ_ERROR_INVALID_PARAMETER),
    ({"dw_object_type": 0}, MQ_ERROR_INVALID_PARAMETER),
    ({"path": r".\public"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": r"elsewhere\private$\new"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": "nonsense"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": ""}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": r".\private$\new;journal"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": r".\private$\new;sub"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": r".\system$;deadletter"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"path": "." + r"\private$" + "\\" + 125 * "x"}, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ({"given": {99: NULL}}, MQ_ERROR_PROPERTY),
    ({"given": {203: PropVariant(VT.LPWSTR, "x")}}, MQ_ERROR_PROPERTY),
    ({"given": {QueueProperty.INSTANCE: PropVariant(VT.CLSID, TYPE)}}, MQ_ERROR_PROPERTY_NOTALLOWED),
    ({"given": {QueueProperty.CREATE_TIME: PropVariant(VT.I4, 1)}}, MQ_ERROR_PROPERTY_NOTALLOWED),
    ({"given": {QueueProperty.QMID: PropVariant(VT.CLSID, TYPE)}}, MQ_ERROR_PROPERTY_NOTALLOWED),
    ({"given": {QueueProperty.LABEL: NULL}}, MQ_ERROR_PROPERTY),
    ({"given": {QueueProperty.LABEL: PropVariant(VT.UI4, 1)}}, MQ_ERROR_PROPERTY),
    ({"given": {QueueProperty.LABEL: PropVariant(VT.LPWSTR, None)}}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"given": {QueueProperty.LABEL: PropVariant(VT.LPWSTR, 125 * "x")}}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"given": {QueueProperty.JOURNAL: PropVariant(VT.UI1, 2)}}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"given": {QueueProperty.PRIV_LEVEL: PropVariant(VT.UI4, 3)}}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ({"given": {QueueProperty.TRANSACTION: PropVariant(VT.UI1, 255)}}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    (
        {"given": {QueueProperty.MULTICAST_ADDRESS: PropVariant(VT.LPWSTR, "1.2.3.4:1")}},
        MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    ),
    ({"given": {QueueProperty.PATHNAME: PropVariant(VT.LPWSTR, r".\private$\other")}}, MQ_ERROR_INVALID_PARAMETER),
    ({"cp": 2, "a_prop": (108, 108), "ap_var": (PropVariant(VT.LPWSTR, "a"),) * 2}, MQ_ERROR_PROPERTY),
    ({"security": b"no descriptor"}, MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR),
]


@served
async def test_what_breaks_a_rule_is_not_created(site: Site) -> None:
    """3.1.4.5 and the codes of its note 30."""
    peer = await administrator(site)
    before = [queue.pathname for queue in site.runtime.engine.local_queues()]
    for changes, status in REFUSED:
        assert hex(await create(peer, **changes)) == hex(status), changes
    assert [queue.pathname for queue in site.runtime.engine.local_queues()] == before


@pytest.mark.parametrize("count", [0, 129])
@served
async def test_the_number_of_properties_is_within_the_range(site: Site, count: int) -> None:
    """3.1.4.5 cp: range(1, 128)."""
    peer = await administrator(site)
    arguments = {
        "dw_object_type": 1,
        "lpwcs_path_name": NEW,
        "sd_size": 0,
        "p_security_descriptor": None,
        "cp": 1,
        "a_prop": (108,),
        "ap_var": (PropVariant(VT.UI4, 1),),
    }
    method = mqmp.R_QM_CREATE_OBJECT_INTERNAL
    stub = bytearray(method.encode_request(arguments))
    # cp stands behind sdSize and the NULL.
    place = stub.rindex(b"\x01\0\0\0\x01\0\0\0\x6c\0\0\0")
    stub[place : place + 4] = count.to_bytes(4, "little")
    with pytest.raises(RpcFault, match="BAD_STUB"):
        await peer.qmcomm.call_raw(method.opnum, bytes(stub))


@served
async def test_not_everybody_may_create(site: Site) -> None:
    """Note 30: MQ_ERROR_ACCESS_DENIED."""
    assert await create(await site.peer()) == MQ_ERROR_ACCESS_DENIED


@served
async def test_a_new_queue_is_on_disk_when_its_maker_hears_of_it(site: Site) -> None:
    peer = await administrator(site)
    assert await create(peer) == OK
    before = site.runtime.store.synced
    assert await change(peer, {QueueProperty.QUOTA: PropVariant(VT.UI4, 5)}) == OK
    assert site.runtime.store.synced > before


# Delete
# --------------------------------------------------------------------------------------------------


@served
async def test_a_queue_is_deleted(site: Site) -> None:
    """3.1.4.8 R_QMDeleteObject."""
    peer = await administrator(site)
    assert await create(peer) == OK
    assert await peer.status(mqmp.R_QM_DELETE_OBJECT, p_object_format=queue_object(NEW_NAME)) == OK
    assert not site.operations.exists(site.operations.names.format_name(NEW))
    assert (
        await peer.status(mqmp.R_QM_DELETE_OBJECT, p_object_format=queue_object(NEW_NAME)) == MQ_ERROR_QUEUE_NOT_FOUND
    )


@served
async def test_not_everybody_may_delete(site: Site) -> None:
    site.create("kept", QueueAccess.GENERIC_ALL & ~QueueAccess.DELETE_QUEUE)
    peer = await site.peer()
    kept = queue_object(r"DIRECT=OS:.\private$\kept")
    assert await peer.status(mqmp.R_QM_DELETE_OBJECT, p_object_format=kept) == MQ_ERROR_ACCESS_DENIED
    assert site.operations.exists(site.name_of("kept"))


NO_QUEUE: list[tuple[QueueFormat | None, int]] = [
    (None, MQ_ERROR_INVALID_PARAMETER),
    (QueueFormat(0, 0, 0, None), MQ_ERROR_ILLEGAL_FORMATNAME),
    (QueueFormat(3, 0, 0, "nonsense"), MQ_ERROR_ILLEGAL_FORMATNAME),
    (QueueFormat(3, 0, 0, r"OS:.\private$\none"), MQ_ERROR_QUEUE_NOT_FOUND),
    (QueueFormat(3, 0, 0, r"OS:elsewhere\private$\q"), MQ_ERROR_QUEUE_NOT_FOUND),
    (QueueFormat(1, 0, 0, TYPE), MQ_ERROR_QUEUE_NOT_FOUND),
    (QueueFormat(3, 0, 0, r"OS:.\private$\q;journal"), MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    (QueueFormat(3, 0, 0, r"OS:.\system$;deadletter"), MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    (QueueFormat(3, 0, 0, r"OS:.\private$\order_queue$"), MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
]


@served
async def test_only_a_private_queue_here_can_be_meant(site: Site) -> None:
    """3.1.4.6 to 3.1.4.10 pObjectFormat: "identifies an existing local private queue"."""
    peer = await administrator(site)
    value: dict[str, Any] = {"cp": 1, "a_prop": (105,), "ap_var": (PropVariant(VT.UI4, 9),)}
    security = SecurityDescriptor(owner=SYSTEM.sid).pack()
    calls: dict[Method, dict[str, Any]] = {
        mqmp.R_QM_DELETE_OBJECT: {},
        mqmp.R_QM_GET_OBJECT_PROPERTIES: value,
        mqmp.R_QM_SET_OBJECT_PROPERTIES: value,
        mqmp.R_QM_GET_OBJECT_SECURITY_INTERNAL: {"requested_information": 1, "n_length": 100},
        mqmp.R_QM_SET_OBJECT_SECURITY_INTERNAL: {
            "security_information": 4,
            "sd_size": len(security),
            "p_security_descriptor": security,
        },
    }
    for given, status in NO_QUEUE:
        for method, more in calls.items():
            found = await peer.status(method, p_object_format=ObjectFormat(1, given), **more)
            assert hex(found) == hex(status), (method, given)


@served
async def test_the_object_type_for_local_use_is_a_bad_stub(site: Site) -> None:
    """2.2.3.5 ObjType: "MUST NOT appear on the wire"."""
    peer = await site.peer()
    method = mqmp.R_QM_DELETE_OBJECT
    stub = bytearray(method.encode_request({"p_object_format": ObjectFormat(1, None)}))
    stub[:8] = b"\x02\0\0\0\x02\0\0\0"
    with pytest.raises(RpcFault, match="BAD_STUB"):
        await peer.qmcomm.call_raw(method.opnum, bytes(stub))


# Properties
# --------------------------------------------------------------------------------------------------


@served
async def test_every_property_is_reported(site: Site) -> None:
    """3.1.4.9, and all "Get" rows of 3.1.1.12."""
    peer = await administrator(site)
    assert await create(peer, NEW, EVERYTHING) == OK
    identifiers = (*range(101, 114), 124, 125, 126)
    results = await get(peer, *identifiers)
    assert results[RETURNS] == OK
    told = dict(zip(identifiers, results["ap_var"], strict=True))
    queue = site.operations.find(NEW)
    for identifier, variant in EVERYTHING.items():
        if identifier != QueueProperty.PATHNAME:
            assert told[identifier] == variant
    assert told[101] == PropVariant(VT.CLSID, queue.identifier)
    assert told[103] == PropVariant(VT.LPWSTR, queue.pathname)
    assert told[109] == PropVariant(VT.I4, queue.create_time)
    assert told[110] == PropVariant(VT.I4, queue.modify_time)
    assert told[124] == PropVariant(VT.LPWSTR, queue.qualified_pathname)
    assert told[126] == PropVariant(VT.LPWSTR, "")


@served
async def test_a_place_must_have_the_property_s_type_or_none(site: Site) -> None:
    """3.1.4.9 apVar: a wrong type is an error.

    "Otherwise, the server SHOULD return the failure HRESULT MQ_ERROR_PROPERTY".
    """
    peer = await administrator(site)
    assert await create(peer) == OK
    assert (await get(peer, 105, before=PropVariant(VT.UI4, 0)))[RETURNS] == OK
    assert (await get(peer, 105, before=PropVariant(VT.UI1, 0)))[RETURNS] == MQ_ERROR_PROPERTY
    assert (await get(peer, 105, before=EMPTY))[RETURNS] == MQ_ERROR_PROPERTY
    assert (await get(peer, 99))[RETURNS] == MQ_ERROR_PROPERTY
    assert (await get(peer, QueueProperty.SECURITY))[RETURNS] == MQ_ERROR_PROPERTY_NOTALLOWED
    assert (await get(peer, 105, 105))[RETURNS] == OK
    results = await get(peer, QueueProperty.MULTICAST_ADDRESS)
    assert results["ap_var"] == (EMPTY,)


@served
async def test_properties_are_changed(site: Site) -> None:
    """3.1.4.10, and all "Set" rows of 3.1.1.12."""
    peer = await administrator(site)
    assert await create(peer) == OK
    given = {
        key: value
        for key, value in EVERYTHING.items()
        if key not in (QueueProperty.PATHNAME, QueueProperty.TRANSACTION)
    }
    assert await change(peer, given) == OK
    results = await get(peer, *given)
    assert results["ap_var"] == tuple(given.values())
    assert await change(peer, {QueueProperty.MULTICAST_ADDRESS: EMPTY}) == OK
    assert site.operations.find(NEW).multicast_address is None


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({QueueProperty.PATHNAME: PropVariant(VT.LPWSTR, r".\private$\x")}, MQ_ERROR_PROPERTY_NOTALLOWED),
        ({QueueProperty.TRANSACTION: PropVariant(VT.UI1, 1)}, MQ_ERROR_PROPERTY_NOTALLOWED),
        ({QueueProperty.MODIFY_TIME: PropVariant(VT.I4, 1)}, MQ_ERROR_PROPERTY_NOTALLOWED),
        ({QueueProperty.QUOTA: PropVariant(VT.UI1, 1)}, MQ_ERROR_PROPERTY),
        ({QueueProperty.QUOTA: NULL}, MQ_ERROR_PROPERTY),
        ({1: NULL}, MQ_ERROR_PROPERTY),
        ({QueueProperty.JOURNAL: PropVariant(VT.UI1, 9)}, MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
    ],
    ids=str,
)
@served
async def test_what_cannot_be_changed_changes_nothing(site: Site, given: Given, status: int) -> None:
    """3.1.4.10 apVar and note 40: all of them or none."""
    peer = await administrator(site)
    assert await create(peer) == OK
    assert await change(peer, {QueueProperty.LABEL: PropVariant(VT.LPWSTR, "other"), **given}) == status
    assert site.operations.find(NEW).label == "a label"


@served
async def test_not_everybody_may_look_or_change(site: Site) -> None:
    """Notes 37 and 40: MQ_ERROR_ACCESS_DENIED."""
    site.create("closed", QueueAccess.WRITE_MESSAGE)
    peer = await site.peer()
    name = r"DIRECT=OS:.\private$\closed"
    assert (await get(peer, 105, name=name))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert await change(peer, {QueueProperty.QUOTA: PropVariant(VT.UI4, 1)}, name) == MQ_ERROR_ACCESS_DENIED


# Security
# --------------------------------------------------------------------------------------------------


@served
async def test_the_parts_that_were_asked_for(site: Site) -> None:
    """3.1.4.7 RequestedInformation: bits, each for a part."""
    peer = await administrator(site)
    owner = site.runtime.users.sid("root")
    whole = SecurityDescriptor(owner=owner, group=owner, dacl=Acl((allow(owner, QueueAccess.GENERIC_ALL),)))
    assert await create(peer, security=whole.pack()) == OK
    for parts in range(8):
        results = await get_security(peer, parts)
        assert results[RETURNS] == OK
        length = results["lpn_length_needed"]
        assert results["p_security_descriptor"][length:] == bytes(1000 - length)
        found = SecurityDescriptor.unpack(results["p_security_descriptor"][:length])
        assert found == whole.select(SecurityInformation(parts))


@served
async def test_a_descriptor_that_does_not_fit_tells_its_length(site: Site) -> None:
    """3.1.4.7: MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL, and lpnLengthNeeded all the same."""
    peer = await administrator(site)
    assert await create(peer) == OK
    needed = (await get_security(peer, 7))["lpn_length_needed"]
    for length in (0, needed - 1):
        results = await get_security(peer, 7, length)
        assert (results[RETURNS], results["lpn_length_needed"]) == (MQ_ERROR_SECURITY_DESCRIPTOR_TOO_SMALL, needed)
        assert results["p_security_descriptor"] == bytes(length)
    assert (await get_security(peer, 7, needed))[RETURNS] == OK


@served
async def test_parts_of_a_descriptor_are_replaced(site: Site) -> None:
    """3.1.4.6 SecurityInformation: "the portions ... to be applied"."""
    peer = await administrator(site)
    assert await create(peer) == OK
    before = SecurityDescriptor.unpack(site.operations.find(NEW).security or b"")
    owner = site.runtime.users.sid("root")
    dacl = Acl((allow(owner, QueueAccess.GENERIC_ALL), allow(ANONYMOUS.sid, QueueAccess.PEEK_MESSAGE)))
    given = SecurityDescriptor(owner=SYSTEM.sid, group=SYSTEM.sid, dacl=dacl).pack()
    assert await set_security(peer, 4, given) == OK
    after = SecurityDescriptor.unpack(site.operations.find(NEW).security or b"")
    assert (after.owner, after.group) == (before.owner, before.group)
    assert after.dacl == dacl
    assert (await (await site.peer()).open_queue(NEW_NAME, 0x20))[RETURNS] == OK


@served
async def test_what_is_no_descriptor_is_not_set(site: Site) -> None:
    peer = await administrator(site)
    assert await create(peer) == OK
    before = site.operations.find(NEW).security
    assert await set_security(peer, 4, b"no descriptor") == MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    assert await set_security(peer, 4, None) == MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    strange = SecurityDescriptor(dacl=Acl((allow(ANONYMOUS.sid, 0x0080_0000),))).pack()
    assert await set_security(peer, 4, strange) == MQ_ERROR_ILLEGAL_SECURITY_DESCRIPTOR
    assert await set_security(peer, 0x10, SecurityDescriptor().pack()) == MQ_ERROR_INVALID_PARAMETER
    assert (await get_security(peer, 0x8000_0000))[RETURNS] == MQ_ERROR_INVALID_PARAMETER
    assert site.operations.find(NEW).security == before


@served
async def test_not_everybody_may_see_or_change_who_may_what(site: Site) -> None:
    """Notes 32 and 33: MQ_ERROR_ACCESS_DENIED.

    For a system list it is MQ_ERROR_PRIVILEGE_NOT_HELD.
    """
    site.create("closed", QueueAccess.GET_QUEUE_PROPERTIES, owner=site.add_user("bob"))
    peer = await site.peer()
    name = r"DIRECT=OS:.\private$\closed"
    security = SecurityDescriptor(owner=ANONYMOUS.sid, dacl=Acl(()), sacl=Acl(())).pack()
    assert (await get_security(peer, 1, name=name))[RETURNS] == MQ_ERROR_ACCESS_DENIED
    assert await set_security(peer, 4, security, name) == MQ_ERROR_ACCESS_DENIED
    assert await set_security(peer, 1, security, name) == MQ_ERROR_ACCESS_DENIED
    assert (await get_security(peer, 9))[RETURNS] == MQ_ERROR_QUEUE_NOT_FOUND
    assert (await get_security(peer, 9, name=r"DIRECT=OS:.\private$\q"))[RETURNS] == MQ_ERROR_PRIVILEGE_NOT_HELD
    assert await set_security(peer, 8, security, r"DIRECT=OS:.\private$\q") == MQ_ERROR_PRIVILEGE_NOT_HELD


# Names and numbers
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [r".\private$\q", r"ALPHA\Private$\Q", r".\private$\q;journal"])
@served
async def test_a_path_becomes_a_private_format_name(site: Site, path: str) -> None:
    """3.1.4.11 R_QMObjectPathToObjectFormat."""
    peer = await site.peer()
    results = await path_to_format(peer, path)
    assert results[RETURNS] == OK
    queue = site.operations.find(r".\private$\q")
    qm = site.runtime.engine.queue_manager.identifier
    suffix = ";JOURNAL" if path.endswith("journal") else ""
    expected = parse(f"PRIVATE={qm}\\{queue.private_queue_number:x}{suffix}")
    assert results["p_object_format"] == ObjectFormat(1, queue_format_of(expected))
    # And it opens.
    assert (await peer.open_queue(results["p_object_format"].u, 0x20))[RETURNS] == OK


@served
async def test_a_path_that_leads_nowhere(site: Site) -> None:
    """3.1.4.11 and note 41."""
    peer = await site.peer()
    for path in (r".\private$\none", r"elsewhere\private$\q", r".\system$;journal", r".\private$\q;sub"):
        assert (await path_to_format(peer, path))[RETURNS] == MQ_ERROR_QUEUE_NOT_FOUND, path
    assert (await path_to_format(peer, "nonsense"))[RETURNS] == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    for given in (None, QueueFormat(3, 0, 0, "OS:."), QueueFormat(1, 0, 0, TYPE)):
        assert (await path_to_format(peer, r".\private$\q", given))[RETURNS] == MQ_ERROR_INVALID_PARAMETER


@served
async def test_what_the_registry_tells(site: Site) -> None:
    """3.1.4.23 R_QMQueryQMRegistryInternal dwQueryType."""
    peer = await site.peer()

    async def query(kind: int) -> tuple[int, str | None]:
        results = await peer.call(mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=kind)
        return results[RETURNS], results["lplp_mqis_server"]

    engine = site.runtime.engine
    assert await query(0) == (MQ_ERROR_NO_DS, None)
    engine.queue_manager.directory_server_list = ["ONE", "TWO"]
    assert await query(0) == (OK, "ONE,TWO")
    assert await query(1) == (OK, "345600")
    from lanner.model.directory_objects import Enterprise

    engine.queue_manager.enterprise_reference = None
    assert await query(2) == (MQ_ERROR_NO_DS, None)
    engine.queue_manager.enterprise_reference = Enterprise(identifier=TYPE)
    assert await query(2) == (OK, str(TYPE))
    assert await query(3) == (OK, "6.1.7601")
    assert await query(4) == (OK, str(engine.queue_manager.identifier))
    assert await query(5) == (MQ_ERROR_INVALID_PARAMETER, None)


@served
async def test_the_ports_are_told_to_everybody(site: Site) -> None:
    """3.1.4.24 R_QMGetRTQMServerPort; IPX is not served."""
    peer = await site.peer()
    site.ports.ip_handshake, site.ports.ip_read = 2103, 2105
    told = [await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=kind) for kind in range(5)]
    assert told == [2103, 2105, 0, 0, 0]


# Who is served at all
# -----------------------------------------------------------------------------------------------

ALL_THE_SAME = (
    "R_QMOpenRemoteQueue",
    "R_QMCloseRemoteQueueContext",
    "R_QMCreateRemoteCursor",
    "R_QMGetRTQMServerPort",
)


def test_who_is_no_supporting_server_refuses_all_but_remote_read(tmp_path: Path) -> None:
    """3.1.4 and 3.1.5: only a supporting server answers all methods.

    "If LocalQueueManager.SupportingServer is False, the server MUST return an error".
    """
    from tests.services.calls import CALLS

    refused = MQ_ERROR_WKS_CANT_SERVE_CLIENT

    async def run() -> None:
        async with serving(tmp_path, is_supporting_server=False) as site:
            peer = await site.peer()
            seen = set()
            for one in CALLS:
                if one.interface not in (mqmp.QMCOMM, mqmp.QMCOMM2) or one.method.name in ALL_THE_SAME:
                    continue
                seen.add(one.method.name)
                bound = peer.qmcomm if one.interface is mqmp.QMCOMM else peer.qmcomm2
                try:
                    status = (await bound.call(one.method, **one.arguments))[RETURNS]
                except RpcFault as fault:
                    status = fault.status
                assert status == refused, one.method.name
            assert len(seen) == 24
            assert await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == site.ports.ip_handshake

    asyncio.run(run())


@served
async def test_opnums_for_local_use_are_out_of_range(site: Site) -> None:
    """3.1.4: "Reserved for local use" means that a client must not send them."""
    peer = await site.peer()
    for opnum in (0, 5, 13, 21, 24, 25, 29, 30, 32, 33, 34, 35, 36, 255):
        with pytest.raises(RpcFault, match="NCA_OP_RNG_ERROR"):
            await peer.qmcomm.call_raw(opnum, bytes(100))
        with pytest.raises(RpcFault, match="NCA_OP_RNG_ERROR"):
            await peer.qmcomm2.call_raw(4 + opnum, bytes(100))
    assert await peer.status(mqmp.R_QM_GET_RTQM_SERVER_PORT, f_ip=0) == site.port


@served
async def test_nobody_is_served_in_hardened_mode(site: Site) -> None:
    """MS-MQDMPR 3.1.1.1 HardenedSecurity."""
    peer = await site.peer()
    site.runtime.engine.queue_manager.hardened_security = True
    assert await peer.fault(mqmp.R_QM_QUERY_QM_REGISTRY_INTERNAL, dw_query_type=4) == 5
