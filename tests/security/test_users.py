"""The local accounts: what the command line changes and the protocols ask."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.security.identity import SYSTEM
from lanner.security.md4 import nt_hash
from lanner.security.private_files import PrivateFileError
from lanner.security.roles import Role
from lanner.security.users import MAX_NAME_LENGTH, UserError, UserFile
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, Sid

FOREIGN = Sid.parse("S-1-5-21-9-9-9-1000")


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "users.json")


def test_a_user_is_added_and_verified(users: UserFile) -> None:
    users.add("Alice", "secret")
    identity = users.verify("alice", "secret")
    assert identity is not None
    assert identity.name == "Alice"
    assert identity.sid == users.machine_sid.child(1000)
    assert identity.is_domain_user
    assert not identity.is_administrator
    assert users.verify("alice", "Secret") is None
    assert users.verify("alice", "") is None
    assert users.verify("nobody", "secret") is None


def test_the_file_is_private_and_keeps_no_password(users: UserFile) -> None:
    users.add("alice", "correct horse")
    assert stat.S_IMODE(users.path.stat().st_mode) == 0o600
    content = users.path.read_text()
    assert "correct horse" not in content
    assert b"correct horse".hex() not in content
    account = users.users()[0]
    assert account.password_hash is not None
    assert account.password_hash not in repr(account)


def test_equal_passwords_have_different_salted_hashes(users: UserFile) -> None:
    first, second = users.add("a", "same"), users.add("b", "same")
    assert first.password_hash != second.password_hash


def test_ntlm_gets_the_hash_unless_it_is_not_kept(users: UserFile) -> None:
    users.add("alice", "secret")
    users.add("bob", "secret", keep_nt_hash=False)
    assert users.nt_hash("ALICE") == nt_hash("secret")
    assert users.nt_hash("bob") is None
    assert users.nt_hash("nobody") is None
    assert users.verify("bob", "secret") is not None


def test_set_password(users: UserFile) -> None:
    users.add("alice", "old")
    users.set_password("alice", "new")
    assert users.verify("alice", "old") is None
    assert users.verify("alice", "new") is not None
    assert users.nt_hash("alice") == nt_hash("new")


def test_administrators(users: UserFile) -> None:
    users.add("root", "x", administrator=True)
    users.add("alice", "x")
    identity = users.identity("root")
    assert identity is not None
    assert identity.is_administrator
    assert BUILTIN_ADMINISTRATORS in identity.sids
    users.set_role("alice", Role.ADMINISTRATOR)
    users.set_role("root", Role.USER)
    assert users.is_administrator("ALICE")
    assert not users.is_administrator("root")


def test_the_guest_has_its_fixed_sid_and_needs_no_password(users: UserFile) -> None:
    users.add("Guest", guest=True)
    identity = users.verify("guest", "")
    assert identity is not None
    assert identity.is_guest
    assert identity.sid.is_guest
    assert users.verify("guest", "x") is None
    assert users.nt_hash("guest") == nt_hash("")
    with pytest.raises(UserError, match="guest account already"):
        users.add("other", guest=True)
    with pytest.raises(UserError, match="cannot be an administrator"):
        users.add("other", guest=True, administrator=True)


def test_groups_of_users_and_of_sids_from_elsewhere(users: UserFile) -> None:
    users.add("alice", "x")
    assert users.resolve(FOREIGN) is None
    group = users.add_group("staff", ["alice", str(FOREIGN), str(FOREIGN)])
    identity = users.resolve(users.sid("alice"))
    assert identity is not None
    assert identity.groups == {Sid.parse(group.sid)}
    foreign = users.resolve(FOREIGN)
    assert foreign is not None
    assert foreign.groups == {users.sid("staff")}
    assert not foreign.is_domain_user
    users.set_role(str(FOREIGN), Role.ADMINISTRATOR)
    foreign = users.resolve(FOREIGN)
    assert foreign is not None
    assert foreign.is_administrator
    assert users.is_domain_user(users.sid("alice"))
    assert not users.is_domain_user(FOREIGN)


def test_a_sid_from_elsewhere_that_no_group_names_is_unknown(users: UserFile) -> None:
    assert users.resolve(FOREIGN) is None


def test_users_can_be_added_into_groups(users: UserFile) -> None:
    users.add_group("staff")
    users.add("alice", "x", groups=["staff"])
    members = {group.name: group.members for group in users.groups()}
    assert members == {"Administrators": (), "Monitors": (), "Operators": (), "staff": ("alice",)}
    with pytest.raises(UserError, match="no group other"):
        users.add("bob", "x", groups=["other"])
    # What was refused has left no trace.
    assert [account.name for account in users.users()] == ["alice"]


def test_removal(users: UserFile) -> None:
    users.add("alice", "x", administrator=True)
    sid = users.sid("alice")
    users.remove("Alice")
    assert users.users() == []
    assert users.resolve(sid) is None
    users.add("alice", "x")
    # The new alice is another user: she has none of the old one's rights.
    assert users.sid("alice") != sid
    assert not users.is_administrator("alice")
    users.add_group("staff", ["alice"])
    users.remove_group("staff")
    identity = users.identity("alice")
    assert identity is not None
    assert identity.groups == frozenset()


def test_names_and_sids(users: UserFile) -> None:
    users.add("alice", "x")
    assert users.name_of(users.sid("alice")) == "alice"
    assert users.name_of(BUILTIN_ADMINISTRATORS) == "Administrators"
    assert users.name_of(FOREIGN) is None
    assert users.identity("nobody") is None


def test_the_machine_sid_is_made_once(users: UserFile) -> None:
    first = users.machine_sid
    assert UserFile(users.path).machine_sid == first
    users.add("alice", "x")
    assert users.machine_sid == first
    assert users.sid("alice").domain == first


def test_two_users_of_the_file_see_each_others_changes(users: UserFile) -> None:
    other = UserFile(users.path)
    users.add("alice", "x")
    assert other.identity("alice") is not None
    other.add("bob", "x")
    assert users.identity("bob") is not None


def test_changes_at_once_are_not_lost(users: UserFile) -> None:
    threads = [threading.Thread(target=UserFile(users.path).add_group, args=(f"g{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    groups = users.groups()
    assert len(groups) == 3 + 8
    assert len({group.sid for group in groups}) == 3 + 8


def test_local_programs_are_known_by_their_uid(users: UserFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root and the queue manager's own user have the same identity as an embedding program.

    That is a program that has opened the data directory itself.
    """
    assert users.unix_identity(os.geteuid()) is SYSTEM
    monkeypatch.setattr(os, "geteuid", lambda: 4000)
    assert users.unix_identity(0) is users.unix_identity(4000) is SYSTEM
    other = users.unix_identity(4001)
    assert not other.is_administrator
    assert not other.is_domain_user
    assert str(other.sid) == "S-1-22-1-4001"
    users.add(other.name, "x")
    assert users.unix_identity(4001).is_domain_user


@pytest.mark.parametrize("name", ["", " ", "a\\b", "a@b", "a/b", "a:b", "S-1-5-7", "x" * (MAX_NAME_LENGTH + 1), "a\nb"])
def test_fail_names(users: UserFile, name: str) -> None:
    with pytest.raises(UserError, match="name"):
        users.add(name, "x")
    with pytest.raises(UserError, match="name"):
        users.add_group(name)


def test_the_longest_name_is_allowed(users: UserFile) -> None:
    assert users.add("x" * MAX_NAME_LENGTH, "x").name == "x" * MAX_NAME_LENGTH


def test_fail_messages_name_the_thing(users: UserFile) -> None:
    users.add("alice", "x")
    users.add_group("staff")
    cases: list[tuple[str, Callable[[], object]]] = [
        ("user ALICE exists already", lambda: users.add("ALICE", "x")),
        ("group Staff exists already", lambda: users.add("Staff", "x")),
        ("user alice exists already", lambda: users.add_group("alice")),
        ("there is no user bob", lambda: users.remove("bob")),
        ("there is no user bob", lambda: users.set_password("bob", "x")),
        ("there is no user bob", lambda: users.set_role("bob", Role.ADMINISTRATOR)),
        ("is not a SID", lambda: users.set_role("S-1-x", Role.MONITOR)),
        ("a password is needed", lambda: users.add("carol")),
        ("a password is needed", lambda: users.set_password("alice", "")),
        ("cannot be removed", lambda: users.remove_group("administrators")),
        ("there is no user or group bob", lambda: users.sid("bob")),
    ]
    for wanted, call in cases:
        with pytest.raises(UserError, match=wanted):
            call()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "damaged"),
        ("[]", "damaged"),
        ('{"version": 2}', "version 2"),
        ('{"version": 1, "users": [{"hash": "c0ffee"}], "groups": [], "machine_sid": "S-1-5-21-1-2-3"}', "damaged"),
        ('{"version": 1, "users": [], "groups": [], "machine_sid": "x", "next_rid": 1}', "damaged"),
    ],
)
def test_fail_damaged_file_is_reported_and_kept(users: UserFile, content: str, problem: str) -> None:
    users.path.write_text(content)
    users.path.chmod(0o600)
    with pytest.raises(UserError, match=problem) as caught:
        users.users()
    with pytest.raises(UserError, match=problem):
        users.add("alice", "x")
    assert "c0ffee" not in str(caught.value)
    assert users.path.read_text() == content


def test_fail_file_that_others_can_read(users: UserFile) -> None:
    users.add("alice", "x")
    users.path.chmod(0o640)
    with pytest.raises(PrivateFileError, match="0640"):
        UserFile(users.path).verify("alice", "x")


def test_fail_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(PrivateFileError, match="No such file"):
        UserFile(tmp_path / "none" / "users.json").add("alice", "x")


def test_nothing_but_the_file_and_its_lock_is_left(users: UserFile) -> None:
    users.add("alice", "x")
    assert sorted(path.name for path in users.path.parent.iterdir()) == ["users.json", "users.json.lock"]
    assert json.loads(users.path.read_text())["version"] == 1
