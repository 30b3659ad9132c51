"""MS-DTYP 2.5.3.2: the access check, and the rights each way of opening a queue needs."""

from __future__ import annotations

import enum
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import QueueAccessType
from lanner.model.errors import RemoteProtocolError
from lanner.security.access import (
    DEADLETTER_RIGHTS,
    JOURNAL_RIGHTS,
    MACHINE_JOURNAL_RIGHTS,
    QUEUE_RIGHTS,
    access_check,
    is_granted,
    map_generic_rights,
)
from lanner.security.access_masks import (
    QUEUE_MAPPING,
    ConnectedNetworkAccess,
    EnterpriseAccess,
    QueueAccess,
    QueueManagerAccess,
    SiteAccess,
)
from lanner.security.identity import ANONYMOUS, ANONYMOUS_IN_EVERYONE, SYSTEM, Identity
from lanner.wire.sddl import parse_sddl
from lanner.wire.security_descriptor import AccessMask, Ace, AceType, Acl, Control, SecurityDescriptor
from lanner.wire.sid import EVERYONE, Sid

MACHINE = Sid.parse("S-1-5-21-1-2-3")
STAFF = MACHINE.child(1100)
ALICE = Identity("alice", MACHINE.child(1000), frozenset({STAFF}), is_domain_user=True)
BOB = Identity("bob", MACHINE.child(1001), is_domain_user=True)
ROOT = Identity("root", MACHINE.child(500), is_domain_user=True, is_administrator=True)
GUEST = Identity("guest", MACHINE.child(501), is_domain_user=True, is_guest=True)

RECEIVE = QueueAccess.RECEIVE_MESSAGE
WRITE = QueueAccess.WRITE_MESSAGE


def may(text: str, identity: Identity, desired: int) -> bool:
    return access_check(parse_sddl(text, MACHINE), identity, desired)


def test_every_right_must_be_granted() -> None:
    assert may(f"D:(A;;0x1;;;{ALICE.sid})(A;;0x2;;;{STAFF})", ALICE, RECEIVE)
    assert not may(f"D:(A;;0x1;;;{ALICE.sid})", ALICE, RECEIVE)
    assert not may(f"D:(A;;0x3;;;{ALICE.sid})", BOB, RECEIVE)


def test_entries_are_asked_in_stored_order() -> None:
    assert not may(f"D:(D;;0x2;;;{STAFF})(A;;0x3;;;WD)", ALICE, RECEIVE)
    assert may(f"D:(A;;0x3;;;WD)(D;;0x2;;;{STAFF})", ALICE, RECEIVE)
    assert may(f"D:(D;;0x4;;;{STAFF})(A;;0x3;;;WD)", ALICE, RECEIVE)


def test_an_empty_list_grants_nothing_and_no_list_grants_all() -> None:
    assert not may("D:", ALICE, RECEIVE)
    assert access_check(SecurityDescriptor(), ALICE, RECEIVE)
    assert access_check(SecurityDescriptor(control=Control.DACL_PRESENT), ANONYMOUS, RECEIVE)
    assert access_check(None, ANONYMOUS, RECEIVE)


def test_the_owner_may_always_read_and_change_permissions() -> None:
    implicit = QueueAccess.GET_QUEUE_PERMISSIONS | QueueAccess.CHANGE_QUEUE_PERMISSIONS
    assert may(f"O:{ALICE.sid}D:", ALICE, implicit)
    assert may(f"O:{STAFF}D:", ALICE, implicit)
    assert may(f"O:{ALICE.sid}D:(D;;0x60000;;;WD)", ALICE, implicit)
    assert not may(f"O:{ALICE.sid}D:", ALICE, implicit | RECEIVE)
    assert not may(f"O:{ALICE.sid}D:", BOB, implicit)


def test_owner_rights_replaces_what_the_owner_gets_implicitly() -> None:
    text = f"O:{ALICE.sid}D:(A;;0x20000;;;OW)"
    assert may(text, ALICE, QueueAccess.GET_QUEUE_PERMISSIONS)
    assert not may(text, ALICE, QueueAccess.CHANGE_QUEUE_PERMISSIONS)
    assert not may(text, BOB, QueueAccess.GET_QUEUE_PERMISSIONS)


def test_anonymous_is_in_everyone_only_when_told_so() -> None:
    """MS-MQDMPR 3.1.7.1.3.1 grants the same right separately to Everyone and to S-1-5-7.

    So the two do not overlap.
    """
    assert not may("D:(A;;0x4;;;WD)", ANONYMOUS, WRITE)
    assert may("D:(A;;0x4;;;AN)", ANONYMOUS, WRITE)
    assert may("D:(A;;0x4;;;WD)", ANONYMOUS_IN_EVERYONE, WRITE)
    assert not may("D:(A;;0x4;;;AU)", ANONYMOUS_IN_EVERYONE, WRITE)


def test_guests_are_everyone_but_not_authenticated_users() -> None:
    assert may("D:(A;;0x4;;;WD)", GUEST, WRITE)
    assert not may("D:(A;;0x4;;;AU)", GUEST, WRITE)
    assert may("D:(A;;0x4;;;AU)", ALICE, WRITE)


def test_administrators_may_take_ownership_and_nothing_more() -> None:
    assert may("D:", ROOT, QueueAccess.TAKE_QUEUE_OWNERSHIP)
    assert may("D:", ROOT, AccessMask.ACCESS_SYSTEM_SECURITY)
    assert not may("D:", ROOT, RECEIVE)
    assert may("D:(A;;0x3;;;BA)", ROOT, RECEIVE)
    assert not may("D:", ALICE, QueueAccess.TAKE_QUEUE_OWNERSHIP)
    assert not access_check(None, ALICE, AccessMask.ACCESS_SYSTEM_SECURITY)


def test_the_local_system_is_not_checked() -> None:
    assert may("D:(D;;0xf003f;;;WD)(D;;0xf003f;;;SY)", SYSTEM, QueueAccess.GENERIC_ALL)


def test_inherit_only_and_typed_object_entries_do_not_count() -> None:
    guid = "f30e3bc2-9ff0-11d1-b603-0000f80367c1"
    assert not may("D:(A;IO;0x4;;;WD)", ALICE, WRITE)
    assert may("D:(D;IO;0x4;;;WD)(A;;0x4;;;WD)", ALICE, WRITE)
    assert not may(f"D:(OA;;0x4;{guid};;WD)", ALICE, WRITE)
    assert may("D:(OA;;0x4;;;WD)", ALICE, WRITE)
    assert may(f"D:(OD;;0x4;{guid};;WD)(A;;0x4;;;WD)", ALICE, WRITE)


def test_a_condition_that_cannot_be_evaluated_denies_and_never_allows() -> None:
    allowing = Ace(AceType.ACCESS_ALLOWED_CALLBACK, WRITE, EVERYONE, data=b"artx")
    denying = Ace(AceType.ACCESS_DENIED_CALLBACK, WRITE, EVERYONE, data=b"artx")
    plain = Ace(AceType.ACCESS_ALLOWED, WRITE, EVERYONE)
    assert not access_check(SecurityDescriptor(dacl=Acl((allowing,))), ALICE, WRITE)
    assert not access_check(SecurityDescriptor(dacl=Acl((denying, plain))), ALICE, WRITE)


def test_generic_rights_are_mapped_in_a_request_and_when_a_descriptor_is_set() -> None:
    every = parse_sddl("D:(A;;GA;;;WD)")
    assert not access_check(every, ALICE, RECEIVE)
    assert access_check(map_generic_rights(every, QUEUE_MAPPING), ALICE, QueueAccess.GENERIC_ALL)
    assert may("D:(A;;0xf003f;;;WD)", ALICE, AccessMask.GENERIC_READ)
    assert not may("D:(A;;0x3;;;WD)", ALICE, AccessMask.GENERIC_READ)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 0x3F), st.booleans()), max_size=5), st.integers(0, 0x3F))
def test_several_rights_are_granted_if_each_of_them_is(rows: list[tuple[bool, int, bool]], rights: int) -> None:
    aces = tuple(
        Ace(AceType.ACCESS_ALLOWED if is_allow else AceType.ACCESS_DENIED, mask, ALICE.sid if is_alice else EVERYONE)
        for is_allow, mask, is_alice in rows
    )
    descriptor = SecurityDescriptor(dacl=Acl(aces))
    bits = (1 << place for place in range(6) if rights >> place & 1)
    granted = sum(bit for bit in bits if access_check(descriptor, ALICE, bit))
    assert access_check(descriptor, ALICE, granted)
    assert access_check(descriptor, ALICE, rights) == (granted == rights)


def test_what_each_way_to_open_a_queue_needs() -> None:
    """MS-MQMQ 2.2.24: receive deletes and peeks; a move takes the message out as a receive does."""
    assert QUEUE_RIGHTS[QueueAccessType.RECEIVE] == 0x3
    assert QUEUE_RIGHTS[QueueAccessType.MOVE] == 0x3
    assert QUEUE_RIGHTS[QueueAccessType.PEEK] == 0x2
    assert QUEUE_RIGHTS[QueueAccessType.SEND] == 0x4
    assert JOURNAL_RIGHTS[QueueAccessType.RECEIVE] == 0xA
    assert JOURNAL_RIGHTS[QueueAccessType.PEEK] == 0x2
    assert DEADLETTER_RIGHTS[QueueAccessType.RECEIVE] == 0x3
    assert MACHINE_JOURNAL_RIGHTS[QueueAccessType.RECEIVE] == 0xC0
    assert set(QUEUE_RIGHTS) == set(JOURNAL_RIGHTS) == set(QueueAccessType)
    assert QueueAccessType.SEND not in DEADLETTER_RIGHTS.keys() | MACHINE_JOURNAL_RIGHTS.keys()


@pytest.mark.parametrize(
    "rights", [QueueManagerAccess, QueueAccess, SiteAccess, EnterpriseAccess, ConnectedNetworkAccess]
)
def test_generic_all_is_every_right_of_its_enumeration(rights: type[enum.IntFlag]) -> None:
    every = 0
    for member in rights:
        every |= member
    assert every == rights["GENERIC_ALL"]


def test_an_administrator_is_a_member_of_the_built_in_group_once() -> None:
    assert not may("D:(A;;0x3;;;BA)", replace(ROOT, is_administrator=False), RECEIVE)


def test_a_remembered_answer_is_the_answer() -> None:
    for text in ("D:", "D:(A;;0x4;;;WD)", "D:(D;;0x4;;;WD)(A;;0x4;;;WD)", "D:(A;;0x4;;;AN)"):
        security = parse_sddl(text).pack()
        for identity in (ALICE, ROOT, ANONYMOUS, ANONYMOUS_IN_EVERYONE, SYSTEM):
            for _ in range(2):
                assert is_granted(security, identity, WRITE) == may(text, identity, WRITE)
    assert is_granted(None, ANONYMOUS, WRITE)
    with pytest.raises(RemoteProtocolError):
        is_granted(b"none", ALICE, WRITE)
