"""MS-DTYP 2.4.2: security identifiers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.errors import RemoteProtocolError
from lanner.wire.sid import (
    ANONYMOUS_LOGON,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    MAX_SUB_AUTHORITIES,
    Sid,
    sid_text,
)

# MS-DTYP 2.5.1.4: BUILTIN\Administrators as it stands in the example there.
ADMINISTRATORS = bytes.fromhex("01020000000000052000000020020000")

sids = st.builds(
    Sid,
    st.integers(0, (1 << 48) - 1),
    st.lists(st.integers(0, (1 << 32) - 1), max_size=MAX_SUB_AUTHORITIES).map(tuple),
)


def test_pack_gives_the_printed_bytes() -> None:
    assert BUILTIN_ADMINISTRATORS.pack() == ADMINISTRATORS


def test_unpack_reads_the_printed_bytes() -> None:
    assert Sid.unpack(ADMINISTRATORS) == BUILTIN_ADMINISTRATORS
    assert sid_text(ADMINISTRATORS) == "S-1-5-32-544"


@given(sids)
def test_binary_and_text_forms_come_back(sid: Sid) -> None:
    assert Sid.unpack(sid.pack()) == sid
    assert Sid.parse(str(sid)) == sid
    assert len(sid.pack()) == sid.size


def test_a_large_authority_is_written_in_twelve_hexadecimal_digits() -> None:
    assert str(Sid(1 << 32, (1,))) == "S-1-0x000100000000-1"
    assert str(Sid((1 << 32) - 1, (1,))) == "S-1-4294967295-1"


@pytest.mark.parametrize("cut", range(len(ADMINISTRATORS)))
def test_fail_truncated(cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Sid.unpack(ADMINISTRATORS[:cut])


def test_fail_trailing_byte() -> None:
    with pytest.raises(RemoteProtocolError, match="left over"):
        Sid.unpack(ADMINISTRATORS + b"\0")


def test_fail_wrong_revision() -> None:
    with pytest.raises(RemoteProtocolError, match="revision 2"):
        Sid.unpack(b"\x02" + ADMINISTRATORS[1:])


def test_fifteen_sub_authorities_pass_and_sixteen_fail() -> None:
    most = b"\x01\x0f" + bytes(6 + 4 * 15)
    assert Sid.unpack(most).sub_authorities == (0,) * 15
    with pytest.raises(RemoteProtocolError, match="16 sub-authorities"):
        Sid.unpack(b"\x01\x10" + bytes(6 + 4 * 16))
    with pytest.raises(ValueError, match="16 sub-authorities"):
        Sid(5, (0,) * 16)


@pytest.mark.parametrize(
    "text", ["", "S-1", "S-2-5-7", "S-1-5-", "S-1-05-7", "S-1-5-07", "S-1-5-4294967296", "S-1-5-x", " S-1-5-7"]
)
def test_fail_text(text: str) -> None:
    with pytest.raises(ValueError, match="SID"):
        Sid.parse(text)


def test_well_known() -> None:
    assert str(EVERYONE) == "S-1-1-0"
    assert str(ANONYMOUS_LOGON) == "S-1-5-7"


def test_accounts_know_their_domain_and_the_guest() -> None:
    machine = Sid.parse("S-1-5-21-1-2-3")
    guest = machine.child(501)
    assert guest.is_guest
    assert guest.domain == machine
    assert not machine.child(1000).is_guest
    # RID 501 alone does not make a guest: it must be an account of a machine or domain.
    assert not Sid.parse("S-1-5-32-501").is_guest
    assert EVERYONE.domain is None
