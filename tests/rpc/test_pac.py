"""The logon information of a Kerberos ticket.

The samples are Windows' (the example of MS-PAC 3.1), Samba's, and forged ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.pac import LogonInformation, read_logon_information
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, LOCAL_SYSTEM, Sid

DATA: Final = Path(__file__).resolve().parents[1] / "data"
WINDOWS: Final = bytes.fromhex((DATA / "pac_logon_info_windows.hex").read_text())
SAMBA: Final = bytes.fromhex((DATA / "pac_logon_info_samba.hex").read_text())

NTDEV: Final = Sid.parse("S-1-5-21-397955417-626881126-188441444")
MQ: Final = Sid.parse("S-1-5-21-2101753664-1405119135-3595624839")
# Offsets in the Samba example: the relative identifiers of the user and of the second of its three
# groups.
USER_ID: Final = 0x78
SECOND_GROUP: Final = 0x14C


def changed(data: bytes, offset: int, octets: bytes) -> bytes:
    return data[:offset] + octets + data[offset + len(octets) :]


def test_what_windows_says() -> None:
    """MS-PAC 3.1: 26 groups of the domain, and 13 SIDs of other kinds.

    The user is "S-1-5-21-397955417-626881126-188441444-3392609".
    """
    found = read_logon_information(WINDOWS)
    assert (found.account, found.sid) == ("NTDEV\\lzhu", NTDEV.child(2914711))
    assert len(found.groups) == 39
    assert {
        NTDEV.child(513),
        NTDEV.child(3392609),
        Sid.parse("S-1-5-21-773533881-1816936887-355810188-513"),
    } <= found.groups


def test_what_samba_says() -> None:
    expected = LogonInformation(
        "MQ", "alice", MQ.child(1103), frozenset({MQ.child(513), MQ.child(1104), MQ.child(1105)})
    )
    assert read_logon_information(SAMBA) == expected


def test_a_group_that_is_not_enabled_does_not_count() -> None:
    """MS-PAC 2.2.1: SE_GROUP_ENABLED."""
    found = read_logon_information(changed(SAMBA, SECOND_GROUP + 4, b"\x03"))
    assert found.groups == {MQ.child(513), MQ.child(1105)}


def test_the_first_further_sid_is_the_user_where_it_has_no_number() -> None:
    """MS-PAC 2.5: a user without a number.

    "If the UserId member equals 0x00000000, the first group SID in this member is the SID for this
    account".
    """
    found = read_logon_information(changed(WINDOWS, WINDOWS.index((2914711).to_bytes(4, "little")), bytes(4)))
    assert found.sid == Sid.parse("S-1-5-21-773533881-1816936887-355810188-513")


def test_nobody_without_a_number_and_further_sids() -> None:
    # The only further SID of the Samba example, S-1-18-1, is no account.
    with pytest.raises(RemoteProtocolError, match="no account of a domain"):
        read_logon_information(changed(SAMBA, USER_ID, bytes(4)))


@pytest.mark.parametrize("sid", [BUILTIN_ADMINISTRATORS, LOCAL_SYSTEM])
def test_well_known_sids_are_not_taken(sid: Sid) -> None:
    """MS-PAC 4.1.2.2: always filtered.

    S-1-18-1 of the Samba example makes room for one with a number.
    """
    extra = bytes.fromhex("01000000010100000000001201000000")
    assert extra in SAMBA
    octets = sid.pack()[:12]
    forged = SAMBA.replace(extra, b"\x01\x00\x00\x00" + changed(octets, 1, b"\x01"))
    assert not any(group.sub_authorities[0] in (18, 32) for group in read_logon_information(forged).groups)


@pytest.mark.parametrize("example", [WINDOWS, SAMBA])
def test_cut_anywhere(example: bytes) -> None:
    for size in range(len(example) - 8):
        with pytest.raises(RemoteProtocolError):
            read_logon_information(example[:size])


def test_any_octet_may_be_wrong() -> None:
    for offset in range(len(SAMBA)):
        for value in (0x00, 0x7F, 0xFF):
            try:
                found = read_logon_information(changed(SAMBA, offset, bytes([value])))
            except RemoteProtocolError:
                continue
            assert found.sid.is_account
            assert all(group.is_account for group in found.groups)
