"""MS-DTYP 2.4.4-2.4.6 and 2.5.1: entries, lists and descriptors, as bytes and as text."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import (
    ACL_REVISION_DS,
    MAX_ACL_SIZE,
    Ace,
    AceFlags,
    AceType,
    Acl,
    Control,
    SecurityDescriptor,
    SecurityInformation,
    allow,
    deny,
)
from lanner.wire.sid import ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, EVERYONE, LOCAL_SYSTEM, Sid

# MS-DTYP 2.5.1.4.
TEXT = "O:BAG:BAD:P(A;CIOI;GRGX;;;BU)(A;CIOI;GA;;;BA)(A;CIOI;GA;;;SY)(A;CIOI;GA;;;CO)S:P(AU;FA;GR;;;WD)"
BYTES = bytes.fromhex(
    "010014b090000000a000000014000000"
    "3000000002001c000100000002801400"
    "00000080010100000000000100000000"
    "020060000400000000031800000000a0"
    "01020000000000052000000021020000"
    "00031800000000100102000000000005"
    "20000000200200000003140000000010"
    "01010000000000051200000000031400"
    "00000010010100000000000300000000"
    "01020000000000052000000020020000"
    "01020000000000052000000020020000"
)

sids = st.sampled_from([EVERYONE, ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, Sid.parse("S-1-5-21-1-2-3-1000")])
masks = st.integers(0, 0xFFFF_FFFF)
flags = st.integers(0, 0xFF).map(lambda bits: AceFlags(bits & 0xDF))
aces = st.builds(Ace, st.sampled_from([AceType.ACCESS_ALLOWED, AceType.ACCESS_DENIED]), masks, sids, flags)
audits = st.builds(Ace, st.just(AceType.SYSTEM_AUDIT), masks, sids, flags)
descriptors = st.builds(
    SecurityDescriptor,
    st.none() | sids,
    st.none() | sids,
    st.none() | st.lists(aces, max_size=4).map(lambda entries: Acl(tuple(entries))),
    st.none() | st.lists(audits, max_size=4).map(lambda entries: Acl(tuple(entries))),
    st.sampled_from([Control(0), Control.DACL_PRESENT, Control.DACL_PROTECTED, Control.SACL_AUTO_INHERITED]),
)


def test_the_documents_example_in_both_directions() -> None:
    descriptor = parse_sddl(TEXT)
    assert descriptor.pack() == BYTES
    assert SecurityDescriptor.unpack(BYTES) == descriptor
    assert format_sddl(descriptor) == TEXT.replace("CIOI", "OICI")


@given(descriptors)
def test_bytes_come_back(descriptor: SecurityDescriptor) -> None:
    assert SecurityDescriptor.unpack(descriptor.pack()) == descriptor


@given(descriptors)
def test_text_comes_back(descriptor: SecurityDescriptor) -> None:
    again = parse_sddl(format_sddl(descriptor))
    assert (again.owner, again.group, again.dacl, again.sacl) == (
        descriptor.owner,
        descriptor.group,
        descriptor.dacl,
        descriptor.sacl,
    )
    assert again.has_dacl == descriptor.has_dacl


@given(st.binary(max_size=80))
def test_any_bytes_give_a_descriptor_or_a_protocol_error(tail: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        SecurityDescriptor.unpack(BYTES[:20] + tail)


@pytest.mark.parametrize("cut", range(len(BYTES)))
def test_fail_truncated_anywhere(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        SecurityDescriptor.unpack(BYTES[:cut])


def changed(offset: int, *values: int) -> bytes:
    return BYTES[:offset] + bytes(values) + BYTES[offset + len(values) :]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (changed(0, 2), "revision 2"),
        (changed(3, 0x30), "absolute form"),
        (changed(4, 19), "offset of the owner: 19"),
        (changed(4, 0xB0), "offset of the owner: 176"),
        (changed(7, 0xFF), "offset of the owner"),
        (changed(16, 0xAC), "ACL"),
        (changed(0x30, 3), "AclRevision 3"),
        (changed(0x32, 7, 0), "AclSize 7"),
        (changed(0x32, 0xFF, 0xFF), "ACL: 65527 bytes wanted"),
        (changed(0x34, 5), "ACE header"),
        (changed(0x38, 0x20), "AceType 0x20"),
        (changed(0x3A, 0x1A), "AceSize 26"),
        (changed(0x3A, 0x00), "AceSize 0"),
        (changed(0x3A, 0x08), "SID header"),
        (changed(0x3A, 0x14), "SID sub-authorities"),
        (changed(0x41, 0x03), "SID sub-authorities"),
    ],
)
def test_fail_one_field_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(RemoteProtocolError, match=problem):
        SecurityDescriptor.unpack(data)


def test_room_after_the_entries_of_a_list_is_allowed() -> None:
    """Windows allocates a list larger than its entries."""
    acl = Acl((allow(EVERYONE, 4),)).pack()
    roomy = acl[:2] + (len(acl) + 8).to_bytes(2, "little") + acl[4:] + bytes(8)
    data = SecurityDescriptor(dacl=Acl()).pack()[:20] + roomy
    assert SecurityDescriptor.unpack(data).dacl == Acl((allow(EVERYONE, 4),))


def test_a_null_list_an_empty_list_and_no_list_are_three_things() -> None:
    none = SecurityDescriptor.unpack(SecurityDescriptor().pack())
    null = SecurityDescriptor.unpack(SecurityDescriptor(control=Control.DACL_PRESENT).pack())
    empty = SecurityDescriptor.unpack(SecurityDescriptor(dacl=Acl()).pack())
    assert (none.has_dacl, none.dacl) == (False, None)
    assert (null.has_dacl, null.dacl) == (True, None)
    assert (empty.has_dacl, empty.dacl) == (True, Acl())
    assert [format_sddl(one) for one in (none, null, empty)] == ["", "D:NO_ACCESS_CONTROL", "D:"]


def test_object_and_callback_entries_of_a_directory_come_back_unchanged() -> None:
    guid = uuid.UUID("f30e3bc2-9ff0-11d1-b603-0000f80367c1")
    entries = (
        Ace(AceType.ACCESS_ALLOWED_OBJECT, 0x30, EVERYONE, object_type=guid),
        Ace(AceType.ACCESS_DENIED_OBJECT, 0x30, EVERYONE, object_type=guid, inherited_object_type=guid),
        Ace(AceType.ACCESS_ALLOWED_CALLBACK, 1, EVERYONE, data=b"artx\0\0\0\0"),
    )
    descriptor = SecurityDescriptor(dacl=Acl(entries, ACL_REVISION_DS))
    assert SecurityDescriptor.unpack(descriptor.pack()) == descriptor
    text = f"D:(OA;;0x30;{guid};;WD)(OD;;0x30;{guid};{guid};WD)"
    assert format_sddl(replace(descriptor, dacl=Acl(entries[:2], ACL_REVISION_DS))) == text
    assert parse_sddl(text).dacl == Acl(entries[:2], ACL_REVISION_DS)
    with pytest.raises(ValueError, match="no SDDL form"):
        format_sddl(descriptor)


def test_a_list_too_long_for_its_size_field_is_refused() -> None:
    entry = allow(EVERYONE, 1)
    fits = (MAX_ACL_SIZE - 8) // len(entry.pack())
    assert len(Acl((entry,) * fits).pack()) <= MAX_ACL_SIZE
    with pytest.raises(ValueError, match="at most 65535"):
        Acl((entry,) * (fits + 1)).pack()


@pytest.mark.parametrize(
    ("rights", "mask"),
    [("0x2003f", 0x2003F), ("017", 0o17), ("63", 63), ("GRWD", 0x8004_0000), ("CCDCLC", 7), ("", 0), ("0", 0)],
)
def test_rights_are_read_as_numbers_and_letters(rights: str, mask: int) -> None:
    assert parse_sddl(f"D:(A;;{rights};;;WD)").dacl == Acl((allow(EVERYONE, mask),))


@pytest.mark.parametrize(
    "text",
    [
        "X:BA",
        "O:BAO:BA",
        "O:",
        "O:ZZ",
        "O:LA",
        "O:BA(A;;GA;;;WD)",
        "D:Q(A;;GA;;;WD)",
        "D:(A;;GA;;WD)",
        "D:(Z;;GA;;;WD)",
        "D:(AU;;GA;;;WD)",
        "S:(A;;GA;;;WD)",
        "D:(A;ZZ;GA;;;WD)",
        "D:(A;;ZZ;;;WD)",
        "D:(A;;0x100000000;;;WD)",
        "D:(A;;GA;f30e3bc2-9ff0-11d1-b603-0000f80367c1;;WD)",
        "D:(A;;GA;;;WD",
    ],
)
def test_fail_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_sddl(text)


def test_account_aliases_need_their_domain() -> None:
    domain = Sid.parse("S-1-5-21-1-2-3")
    assert parse_sddl("O:LA", domain).owner == domain.child(500)


def test_select_and_update_touch_only_the_named_parts() -> None:
    full = parse_sddl("O:BAG:SYD:P(A;;0x3f;;;WD)S:(AU;FA;GR;;;WD)")
    only = full.select(SecurityInformation.DACL)
    assert format_sddl(only) == "D:P(A;;0x3f;;;WD)"
    other = SecurityDescriptor(owner=LOCAL_SYSTEM, dacl=Acl((deny(ANONYMOUS_LOGON, 4),)))
    assert format_sddl(full.update(other, SecurityInformation.DACL)) == "O:BAG:SYD:(D;;0x4;;;AN)S:(AU;FA;GR;;;WD)"
    assert full.update(other, SecurityInformation.OWNER).owner == LOCAL_SYSTEM
    assert not full.update(SecurityDescriptor(), SecurityInformation.DACL).has_dacl


def test_long_words_of_sddl_are_read_in_one_pass() -> None:
    """As long as text may be: with a copy of the rest for each word, this would take minutes."""
    read = parse_sddl(f"D:{'AI' * 50_000}(A;{'OI' * 50_000};{'CCDC' * 25_000};;;WD)")
    assert read == parse_sddl("D:AI(A;OI;CCDC;;;WD)")
    with pytest.raises(ValueError, match="does not start with a known right") as caught:
        parse_sddl(f"D:(A;;CC{'?' * 100_000};;;WD)")
    assert len(str(caught.value)) < 500
