from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from lanner.model.errors import IllegalUser, InvalidParameter
from lanner.security.access import access_check
from lanner.security.access_lists import AccessChange, AccessList, changed, new_descriptor
from lanner.security.access_masks import QueueAccess
from lanner.security.accounts import Accounts
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.queue_rights import RIGHTS, mask_of, words_of
from lanner.security.users import USER_FILE, UserFile
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import Ace, AceType, Acl, Control, SecurityDescriptor
from lanner.wire.sid import ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, EVERYONE, LOCAL_SYSTEM, Sid

WHO = "S-1-5-21-1-2-3-1001"
USER = Identity("user", Sid.parse(WHO))


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / USER_FILE)


def after(sddl: str, *changes: tuple[str, ...]) -> str:
    """Apply changes (verb, account, rights...) and return the list as SDDL."""
    descriptor = parse_sddl(sddl)
    for verb, who, *rights in changes:
        descriptor, _ = changed(descriptor, AccessChange(verb, who, tuple(rights)), Accounts())
    return format_sddl(descriptor)


# Words
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", RIGHTS)
def test_a_word_describes_its_own_mask(word: str) -> None:
    assert words_of(mask_of([word])) == (word,)


def test_every_right_of_a_queue_has_a_word() -> None:
    every = 0
    for bit in QueueAccess:
        assert mask_of(words_of(bit)) == bit
        every |= bit
    assert every == QueueAccess.GENERIC_ALL


def test_masks_are_described_by_the_largest_words() -> None:
    assert words_of(QueueAccess.GENERIC_READ) == ("receive", "receive-journal", "get-properties", "get-permissions")
    assert words_of(0x0010_0004) == ("send", "0x100000")
    assert words_of(0) == ()


def test_words_are_separated_by_commas_or_spaces_and_case_makes_no_difference() -> None:
    assert mask_of(["Send, peek", "ADMIN"]) == mask_of(["send"]) | mask_of(["peek"]) | mask_of(["admin"])
    with pytest.raises(InvalidParameter, match="'dance' is no right"):
        mask_of(["send,dance"])


# Changes
# --------------------------------------------------------------------------------------------------


def test_denying_entries_stand_before_allowing_ones_and_inherited_ones_last() -> None:
    start = "D:(A;ID;0x4;;;BA)(A;;0x4;;;WD)(D;ID;0x1;;;AN)(D;;0x2;;;AN)"
    assert after(start, ("deny", WHO, "send")) == (
        f"D:(D;;0x2;;;AN)(D;;0x4;;;{WHO})(A;;0x4;;;WD)(D;ID;0x1;;;AN)(A;ID;0x4;;;BA)"
    )


def test_the_last_word_about_a_right_counts() -> None:
    assert after("D:", ("grant", WHO, "send", "peek"), ("deny", WHO, "send")) == f"D:(D;;0x4;;;{WHO})(A;;0x2;;;{WHO})"
    assert after("D:", ("deny", WHO, "full"), ("grant", WHO, "full")) == f"D:(A;;0xf003f;;;{WHO})"
    assert after("D:", ("grant", WHO, "send"), ("grant", WHO, "send", "peek")) == f"D:(A;;0x6;;;{WHO})"


def test_revoking_leaves_other_accounts_and_rights() -> None:
    start = f"D:(D;;0x4;;;{WHO})(A;;0x3;;;{WHO})(A;;0x4;;;WD)"
    assert after(start, ("revoke", WHO)) == "D:(A;;0x4;;;WD)"
    assert after(start, ("revoke", WHO, "send")) == f"D:(A;;0x3;;;{WHO})(A;;0x4;;;WD)"
    assert after(start, ("revoke", "Anonymous")) == start


def test_a_change_of_a_missing_list_keeps_what_it_allowed() -> None:
    """Without a list everyone has all rights, including the anonymous user.

    The change removes only the rights that it names.
    """
    for text in ("O:BA", "O:BAD:NO_ACCESS_CONTROL"):
        descriptor, _ = changed(parse_sddl(text), AccessChange("deny", "Anonymous", ("receive",)), Accounts())
        assert access_check(descriptor, USER, QueueAccess.GENERIC_ALL)
        assert not access_check(descriptor, ANONYMOUS, QueueAccess.RECEIVE_MESSAGE)
        assert access_check(descriptor, ANONYMOUS, QueueAccess.WRITE_MESSAGE)


def test_entries_that_grants_do_not_make_are_kept() -> None:
    odd = Ace(AceType.ACCESS_ALLOWED_CALLBACK, 0x4, EVERYONE, data=b"artx")
    start = SecurityDescriptor(owner=BUILTIN_ADMINISTRATORS, dacl=Acl((odd,)), control=Control.DACL_PROTECTED)
    descriptor, _ = changed(start, AccessChange("grant", "Everyone", ("peek",)), Accounts())
    assert descriptor.dacl is not None
    assert descriptor.dacl.aces[0] == odd
    assert Control.DACL_PROTECTED in descriptor.control
    shown = AccessList.of(descriptor, Accounts())
    assert shown.sddl is None
    assert shown.entries is not None
    assert [entry.access for entry in shown.entries] == ["ACCESS_ALLOWED_CALLBACK", "allow"]


def test_the_system_list_is_not_shown() -> None:
    shown = AccessList.of(parse_sddl("O:BAD:(A;;0x4;;;WD)S:(AU;SA;0x4;;;WD)"), Accounts())
    assert shown.sddl == "O:BAD:(A;;0x4;;;WD)"
    assert AccessList.from_document(shown.document()) == shown


def test_a_new_list_has_its_creator_and_the_administrators() -> None:
    words = {"Everyone": "send"}
    assert format_sddl(new_descriptor(words, Accounts(), USER.sid)) == (
        f"D:(A;;0xf003f;;;{WHO})(A;;0xf003f;;;BA)(A;;0x4;;;WD)"
    )
    for creator in (LOCAL_SYSTEM, ANONYMOUS_LOGON):
        assert format_sddl(new_descriptor(words, Accounts(), creator)) == "D:(A;;0xf003f;;;BA)(A;;0x4;;;WD)"


# Accounts
# --------------------------------------------------------------------------------------------------


def test_names_and_sids_of_accounts(users: UserFile) -> None:
    users.add("alice", "secret")
    group = users.add_group("clerks")
    accounts = Accounts(users)
    daemon = pwd.getpwnam("daemon")
    for name, sid in (
        ("Everyone", "S-1-1-0"),
        ("Anonymous", "S-1-5-7"),
        ("Administrators", "S-1-5-32-544"),
        ("alice", str(users.sid("alice"))),
        ("clerks", group.sid),
        ("daemon", f"S-1-22-1-{daemon.pw_uid}"),
    ):
        assert str(accounts.sid_of(name)) == sid
        assert accounts.name_of(Sid.parse(sid)) == name
        assert str(accounts.sid_of(sid.lower())) == sid
    assert accounts.sid_of("ALICE") == users.sid("alice")
    assert accounts.sid_of("anonymous logon") == ANONYMOUS_LOGON
    for unknown in ("S-1-22-1-4294967295", "S-1-22-1", "S-1-5-21-9-9-9-9"):
        assert accounts.name_of(Sid.parse(unknown)) == unknown


def test_an_account_comes_before_the_unix_user_of_its_name(users: UserFile) -> None:
    users.add("daemon", "secret")
    assert Accounts(users).sid_of("daemon") == users.sid("daemon")


def test_a_name_with_two_meanings_is_refused(users: UserFile) -> None:
    """Otherwise the operator might grant rights to every anonymous caller by mistake."""
    users.add("anonymous", "secret")
    with pytest.raises(IllegalUser, match="well-known name and an account here: give the SID"):
        Accounts(users).sid_of("Anonymous")


def test_unknown_accounts_are_refused(users: UserFile) -> None:
    with pytest.raises(IllegalUser, match="`lanner user list`"):
        Accounts(users).sid_of("zoe")
    with pytest.raises(IllegalUser, match="root needs no entry"):
        Accounts(users).sid_of("root")
    with pytest.raises(IllegalUser, match="of another maker: give its SID"):
        Accounts().sid_of("zoe")
    with pytest.raises(IllegalUser):
        Accounts(users).sid_of("zoe\0")


def test_an_account_of_a_domain_that_is_not_found_has_a_reason(users: UserFile) -> None:
    asked: list[str | bytes] = []

    def lookup(account: str | bytes) -> tuple[str, bytes] | str:
        asked.append(account)
        return ("MQ\\alice", USER.sid.pack()) if account == "MQ\\alice" else "no domain controller answers"

    accounts = Accounts(users, lookup)
    with pytest.raises(IllegalUser, match=r"MQ\\bob is not known here: no domain controller answers; give its SID"):
        accounts.sid_of("MQ\\bob")
    assert accounts.name_of(USER.sid) == WHO
    assert accounts.sid_of("MQ\\alice") == USER.sid
    assert accounts.name_of(USER.sid) == "MQ\\alice"
    assert len(asked) == 3
    with pytest.raises(IllegalUser, match="it has not logged on"):
        Accounts(users).sid_of("MQ\\bob")
