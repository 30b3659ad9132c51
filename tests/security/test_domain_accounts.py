"""Users of a domain beside the accounts of this computer."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from lanner.model.errors import IllegalUser
from lanner.security.accounts import Accounts
from lanner.security.domain_accounts import DomainAccounts
from lanner.security.roles import Role
from lanner.security.users import UserFile
from lanner.wire.sid import BUILTIN_ADMINISTRATORS, Sid

MQ: Final = Sid.parse("S-1-5-21-1-2-3")
ALICE: Final = MQ.child(1103)
ACCOUNTING: Final = MQ.child(1104)
ADMINS: Final = MQ.child(512)


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "users.json")


def test_a_user_of_the_domain_has_its_groups_and_no_local_account(users: UserFile) -> None:
    users.add("alice", "a long secret", administrator=True)
    found = users.domain_identity("MQ\\alice", ALICE, [ACCOUNTING])
    assert found is not None
    assert (found.sid, found.is_domain_user, found.is_administrator) == (ALICE, True, False)
    assert ACCOUNTING in found.sids
    assert users.sid("alice") not in found.sids


@pytest.mark.parametrize("member", [ALICE, ADMINS])
def test_a_local_group_may_name_a_user_or_a_group_of_the_domain(users: UserFile, member: Sid) -> None:
    users.set_role(str(member), Role.ADMINISTRATOR)
    assert users.roles_from_elsewhere() == {str(member): Role.ADMINISTRATOR}
    found = users.domain_identity("MQ\\alice", ALICE, [ADMINS])
    assert found is not None
    assert found.is_administrator
    assert BUILTIN_ADMINISTRATORS in found.sids


def test_a_domain_cannot_claim_accounts_of_this_computer(users: UserFile) -> None:
    """MS-PAC 4.1.2.2: a domain cannot claim local accounts.

    The member boundary filters "anything that has the prefix of the member server".
    """
    users.add("root-like", "a long secret", administrator=True)
    local = users.sid("root-like")
    assert users.domain_identity("MQ\\alice", local, []) is None
    found = users.domain_identity("MQ\\alice", ALICE, [local])
    assert found is not None
    assert local not in found.sids
    assert not found.is_administrator


def test_names_in_both_directions(users: UserFile) -> None:
    accounts = Accounts(users)
    with pytest.raises(IllegalUser, match="has not logged on; give its SID"):
        accounts.sid_of("MQ\\alice")
    assert accounts.name_of(ALICE) == str(ALICE)
    accounts.domain.learn(ALICE, "MQ\\Alice")
    assert accounts.sid_of("mq\\alice") == ALICE
    assert accounts.name_of(ALICE) == "MQ\\Alice"


def test_a_renamed_account_and_a_reused_name() -> None:
    names = DomainAccounts()
    names.learn(ALICE, "MQ\\alice")
    names.learn(ALICE, "MQ\\alicia")
    assert names.sid_of("MQ\\alice") is None
    names.learn(ACCOUNTING, "MQ\\alicia")
    assert (names.sid_of("MQ\\alicia"), names.name_of(ALICE)) == (ACCOUNTING, None)


def test_names_are_bounded() -> None:
    names = DomainAccounts(limit=2)
    for rid in (1, 2):
        names.learn(MQ.child(rid), f"MQ\\{rid}")
    assert names.name_of(MQ.child(1)) == "MQ\\1"
    names.learn(MQ.child(3), "MQ\\3")
    assert [names.name_of(MQ.child(rid)) for rid in (1, 2, 3)] == ["MQ\\1", None, "MQ\\3"]
