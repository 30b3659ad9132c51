"""The local accounts: users, groups and password hashes in one file of the data directory.

This file replaces a domain where there is none. It is used to verify passwords, provides the hash
that NTLM needs, and says which groups a SID belongs to. The file is JSON with mode 0600. It is
replaced as a whole under a lock, so that the command line and a running queue manager can use it at
the same time.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pwd
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from lanner.model.errors import LannerError
from lanner.security.audit import AuditLog
from lanner.security.identity import SYSTEM, Identity
from lanner.security.md4 import nt_hash
from lanner.security.private_files import locked, read_private, write_private
from lanner.security.roles import GROUPS, Role, role_of
from lanner.wire.sid import (
    BUILTIN_ADMINISTRATORS,
    DOMAIN_USER_RID_GUEST,
    FIRST_USER_RID,
    NT_AUTHORITY,
    SECURITY_NT_NON_UNIQUE,
    Sid,
)

T = TypeVar("T")

# Name of the file in a data directory.
USER_FILE: Final = "users.json"
FILE_VERSION: Final = 1
ADMINISTRATORS: Final = GROUPS[Role.ADMINISTRATOR][0]
# The characters that Windows refuses in account names, and the length of a user principal name
# there.
_FORBIDDEN: Final = re.compile(r'["/\\\[\]:;|=,+*?<>@\x00-\x1f]')
MAX_NAME_LENGTH: Final = 104
# RFC 7914 2: 16 MiB and some tens of milliseconds per attempt.
_SCRYPT: Final = {"n": 1 << 14, "r": 8, "p": 1}
_SALT_SIZE: Final = 16
_HASH_SIZE: Final = 32
# The SIDs that Samba gives to Unix users without an account: S-1-22-1-uid.
UNIX_USERS: Final = Sid(22, (1,))


class UserError(LannerError):
    """A change or a query that the account file refuses; the message is for the user."""


@dataclass(frozen=True, slots=True)
class PasswordPolicy:
    """Requirements on new passwords, and which hashes are kept of them.

    The queue manager writes its own policy into the file, for the command line.
    """

    min_length: int = 8
    # False: no NT hash is kept of new passwords, and existing ones are not used.
    ntlm: bool = True


@dataclass(frozen=True, slots=True)
class Account:
    """A user. Its hashes are never shown."""

    name: str
    rid: int
    is_guest: bool = False
    nt_hash: str | None = field(default=None, repr=False)
    salt: str = field(default="", repr=False)
    password_hash: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Group:
    """A group. Members are users of this file by name, or SIDs of users from elsewhere."""

    name: str
    sid: str
    members: tuple[str, ...] = ()


_ROLE_GROUPS: Final = tuple(Group(name, str(sid)) for name, sid in GROUPS.values())


@dataclass(frozen=True, slots=True)
class _Accounts:
    machine_sid: str
    next_rid: int = FIRST_USER_RID
    users: tuple[Account, ...] = ()
    groups: tuple[Group, ...] = _ROLE_GROUPS
    policy: PasswordPolicy = PasswordPolicy()

    def user(self, name: str) -> Account | None:
        return next((one for one in self.users if one.name.casefold() == name.casefold()), None)

    def group(self, name: str) -> Group | None:
        return next((one for one in self.groups if one.name.casefold() == name.casefold()), None)

    def sid_of(self, account: Account) -> Sid:
        return Sid.parse(self.machine_sid).child(account.rid)


class UserFile:
    """The account file. Every method sees the newest content, whichever process wrote it."""

    def __init__(self, path: Path | str, audit: AuditLog | None = None, origin: str = "") -> None:
        """Use the file at `path`.

        `audit` gets a record of each change, with `origin` as the place that it comes from.
        """
        self.path = Path(path)
        self._audit = audit
        self._changer = SYSTEM.at(origin)
        self._cached: tuple[tuple[int, ...], _Accounts] | None = None

    def changed_by(self, identity: Identity) -> UserFile:
        """Return the same file, with its changes recorded as those of a user."""
        other = UserFile(self.path, self._audit)
        other._changer = identity
        return other

    # Users
    # ----------------------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        password: str | None = None,
        *,
        administrator: bool = False,
        role: Role = Role.USER,
        guest: bool = False,
        groups: Iterable[str] = (),
        keep_nt_hash: bool = True,
    ) -> Account:
        """Add a user.

        Without the NT hash, an account cannot log on with NTLM. A guest needs no password.

        `administrator` stands for that role.
        """
        _check_name(name, "user")
        role = Role.ADMINISTRATOR if administrator else role
        if role is not Role.USER and guest:
            raise UserError(f"user {name}: a guest cannot be {_article(role)}")
        wanted = [*groups]

        def change(accounts: _Accounts) -> tuple[_Accounts, Account]:
            _check_free(accounts, name)
            if guest and any(one.is_guest for one in accounts.users):
                raise UserError(f"user {name}: there is a guest account already")
            rid = DOMAIN_USER_RID_GUEST if guest else accounts.next_rid
            keeps = keep_nt_hash and accounts.policy.ntlm
            account = _with_password(Account(name, rid, guest), password, keep_nt_hash=keeps)
            accounts = replace(
                accounts, users=(*accounts.users, account), next_rid=accounts.next_rid + (0 if guest else 1)
            )
            for group in [*wanted, *([] if role is Role.USER else [_group_of(accounts, role)])]:
                accounts = _with_member(accounts, group, name)
            return accounts, account

        added = self._change(change)
        self._record("add user", user=name, guest=guest, role=role.value, groups=wanted)
        return added

    def remove(self, name: str) -> None:
        """Remove a user, from its groups too.

        Its SID is never given to another user, except for the fixed one of the guest.
        """

        def change(accounts: _Accounts) -> tuple[_Accounts, None]:
            account = _need_user(accounts, name)
            users = tuple(one for one in accounts.users if one is not account)
            groups = tuple(_without(group, account.name) for group in accounts.groups)
            return replace(accounts, users=users, groups=groups), None

        self._change(change)
        self._record("remove user", user=name)

    def set_password(self, name: str, password: str | None, *, keep_nt_hash: bool = True) -> None:
        def change(accounts: _Accounts) -> tuple[_Accounts, None]:
            account = _need_user(accounts, name)
            changed = _with_password(account, password, keep_nt_hash=keep_nt_hash and accounts.policy.ntlm)
            users = tuple(changed if one is account else one for one in accounts.users)
            return replace(accounts, users=users), None

        self._change(change)
        self._record("set password", user=name)

    @property
    def policy(self) -> PasswordPolicy:
        return self._read().policy

    def set_policy(self, policy: PasswordPolicy) -> None:
        """Store a policy for every process that uses the file."""
        if self.policy != policy:
            self._change(lambda accounts: (replace(accounts, policy=policy), None))

    def check_password(self, name: str, password: str) -> None:
        """Raise UserError for a new password that is too easy to guess."""
        least = self.policy.min_length
        if len(password) < least:
            raise UserError(f"the password of {name} is too short: it needs at least {least} characters")
        if password.casefold() == name.casefold():
            raise UserError(f"the password of {name} is the name itself: choose another")

    def set_role(self, name: str, role: Role) -> None:
        """Give a role to a user, or to the SID of a user or group from elsewhere.

        It replaces the present role.
        """

        def change(accounts: _Accounts) -> tuple[_Accounts, None]:
            member = _member_key(accounts, name)
            account = accounts.user(member)
            if account is not None and account.is_guest and role is not Role.USER:
                raise UserError(f"user {account.name}: a guest cannot be {_article(role)}")
            sids = {one.sid for one in _ROLE_GROUPS}
            left = tuple(_without(group, member) if group.sid in sids else group for group in accounts.groups)
            accounts = replace(accounts, groups=left)
            return accounts if role is Role.USER else _with_member(accounts, _group_of(accounts, role), member), None

        self._change(change)
        self._record("set role", user=name, role=role.value)

    def users(self) -> list[Account]:
        return sorted(self._read().users, key=lambda account: account.name.casefold())

    def password_hashes(self) -> dict[str, str | None]:
        """Return the hashes by user name, to find out which passwords have changed."""
        return {account.name: account.password_hash for account in self._read().users}

    def has_lost_groups(self, identity: Identity) -> bool:
        """Return whether a user is no longer in a group of this file that it was in.

        Roles are groups. The user may be of another system, which a group of this file names.
        """
        roles = {sid for _, sid in GROUPS.values()}
        given = frozenset(group for group in identity.groups if group in roles or self.is_local(group))
        if not given:
            return False
        current = self.resolve(identity.sid) if self.is_local(identity.sid) else None
        here = self.groups_naming((identity.sid, *(identity.groups - given))) if current is None else current.groups
        return not given <= here

    def is_administrator(self, name: str) -> bool:
        return self.role(name) is Role.ADMINISTRATOR

    def role(self, name: str) -> Role:
        """Return the role of a user."""
        identity = self.identity(name)
        return Role.USER if identity is None else role_of(identity)

    def roles_from_elsewhere(self) -> dict[str, Role]:
        """Return the roles of SIDs from elsewhere; the greater one if a SID has several."""
        accounts = self._read()
        roles = {}
        for role in (Role.MONITOR, Role.OPERATOR, Role.ADMINISTRATOR):
            group = accounts.group(_group_of(accounts, role))
            roles.update({member: role for member in (group.members if group else ()) if is_sid(member)})
        return dict(sorted(roles.items()))

    # Groups
    # ---------------------------------------------------------------------------------------------

    def add_group(self, name: str, members: Iterable[str] = ()) -> Group:
        _check_name(name, "group")

        def change(accounts: _Accounts) -> tuple[_Accounts, Group]:
            _check_free(accounts, name)
            sid = Sid.parse(accounts.machine_sid).child(accounts.next_rid)
            group = Group(name, str(sid))
            accounts = replace(accounts, groups=(*accounts.groups, group), next_rid=accounts.next_rid + 1)
            for member in wanted:
                accounts = _with_member(accounts, name, member)
            return accounts, accounts.group(name) or group

        wanted = list(members)
        added = self._change(change)
        self._record("add group", group=name, members=wanted)
        return added

    def remove_group(self, name: str) -> None:
        def change(accounts: _Accounts) -> tuple[_Accounts, None]:
            group = _need_group(accounts, name)
            if any(group.sid == one.sid for one in _ROLE_GROUPS):
                raise UserError(f"group {group.name} cannot be removed")
            return replace(accounts, groups=tuple(one for one in accounts.groups if one is not group)), None

        self._change(change)
        self._record("remove group", group=name)

    def groups(self) -> list[Group]:
        return sorted(self._read().groups, key=lambda group: group.name.casefold())

    # Queries
    # ------------------------------------------------------------------------------------------

    @property
    def machine_sid(self) -> Sid:
        """The SID that all accounts here begin with.

        It is made at the first use of the file.
        """
        return Sid.parse(self._kept().machine_sid)

    def verify(self, name: str, password: str) -> Identity | None:
        """Return the user if the password is right.

        An unknown name takes as long as a wrong password.
        """
        account = self._read().user(name)
        if account is None:
            _scrypt(password, bytes(_SALT_SIZE))
            return None
        if account.password_hash is None:
            return self.identity(account.name) if account.is_guest and not password else None
        given = _scrypt(password, bytes.fromhex(account.salt))
        return self.identity(account.name) if hmac.compare_digest(given.hex(), account.password_hash) else None

    def nt_hash(self, name: str) -> bytes | None:
        """Return the hash with which NTLM verifies a user; None if the file does not keep it."""
        accounts = self._read()
        account = accounts.user(name) if accounts.policy.ntlm else None
        return bytes.fromhex(account.nt_hash) if account is not None and account.nt_hash is not None else None

    def sid(self, name: str) -> Sid:
        """Return the SID of a user or group."""
        accounts = self._read()
        account = accounts.user(name)
        if account is not None:
            return accounts.sid_of(account)
        group = accounts.group(name)
        if group is None:
            raise UserError(f"there is no user or group {name}")
        return Sid.parse(group.sid)

    def name_of(self, sid: Sid) -> str | None:
        """Return the user or group that has the SID."""
        accounts = self._read()
        users = (one.name for one in accounts.users if accounts.sid_of(one) == sid)
        groups = (one.name for one in accounts.groups if one.sid == str(sid))
        return next(users, None) or next(groups, None)

    def identity(self, name: str) -> Identity | None:
        """Return a user of the file in the form that access checks need.

        The accounts of this file are the domain users of MS-MQDMPR 3.1.7.1.3.1: a queue that one of
        them creates belongs to it, and not to everyone.
        """
        accounts = self._read()
        account = accounts.user(name)
        if account is None:
            return None
        groups = _groups_of(accounts, account.name)
        return Identity(
            account.name,
            accounts.sid_of(account),
            groups,
            is_domain_user=True,
            is_administrator=BUILTIN_ADMINISTRATORS in groups,
            is_guest=account.is_guest,
        )

    def domain_identity(self, name: str, sid: Sid, groups: Iterable[Sid]) -> Identity | None:
        """Return a user confirmed by a domain; None if it claims an account of this file.

        Groups of this file may contain the user or one of its groups. Only they give a role: SIDs
        of this computer are not accepted from a domain (MS-PAC 4.1.2.2, trust boundary "Member").
        """
        if self.is_local(sid):
            return None
        roles = {role_sid for _, role_sid in GROUPS.values()}
        confirmed = frozenset(group for group in groups if not self.is_local(group) and group not in roles)
        here = self.groups_naming((sid, *confirmed))
        return Identity(
            name,
            sid,
            confirmed | here,
            is_domain_user=True,
            is_administrator=BUILTIN_ADMINISTRATORS in here,
            is_guest=sid.is_guest,
        )

    def groups_naming(self, sids: Iterable[Sid]) -> frozenset[Sid]:
        """Return the groups of this file that contain one of several SIDs from elsewhere."""
        accounts = self._read()
        return frozenset[Sid]().union(*(_groups_of(accounts, str(sid)) for sid in sids))

    def resolve(self, sid: Sid) -> Identity | None:
        """Return the identity of a SID; None if it is not known here.

        It is a user of the file with its groups, or a SID from elsewhere that one of its groups
        contains.
        """
        accounts = self._read()
        account = next((one for one in accounts.users if accounts.sid_of(one) == sid), None)
        if account is not None:
            return self.identity(account.name)
        groups = _groups_of(accounts, str(sid))
        if not groups:
            return None
        return Identity(str(sid), sid, groups, is_administrator=BUILTIN_ADMINISTRATORS in groups)

    def is_domain_user(self, sid: Sid) -> bool:
        """Return whether an owner is a domain user in the sense of MS-MQDMPR 3.1.7.1.3.1."""
        identity = self.resolve(sid)
        return identity is not None and identity.is_domain_user

    def is_local(self, sid: Sid) -> bool:
        """Return whether this file issues SIDs of that domain, which no other computer knows."""
        return str(sid.domain) == self._read().machine_sid

    def unix_identity(self, uid: int) -> Identity:
        """Return the identity of a local program by the uid that the kernel reports for it.

        Root and the uid of this process can do everything in the directory anyway.
        """
        if uid in (0, os.geteuid()):
            return SYSTEM
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = f"uid {uid}"
        known = self.identity(name)
        if known is not None:
            return known
        sid = UNIX_USERS.child(uid)
        groups = _groups_of(self._read(), str(sid))
        return Identity(name, sid, groups, is_administrator=BUILTIN_ADMINISTRATORS in groups)

    # The file
    # -------------------------------------------------------------------------------------------

    @property
    def stamp(self) -> tuple[int, ...] | None:
        """A value that changes when the file changes; None if there is no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> _Accounts:
        stamp = self.stamp
        if stamp is None:
            return _new_accounts()
        if self._cached is None or self._cached[0] != stamp:
            data = read_private(self.path)
            if data is None:
                return _new_accounts()
            self._cached = (stamp, _load(self.path, data))
        return self._cached[1]

    def _kept(self) -> _Accounts:
        return self._read() if self.path.exists() else self._change(lambda accounts: (accounts, accounts))

    def _record(self, event: str, **details: object) -> None:
        if self._audit is not None:
            self._audit.done(event, self._changer, **details)

    def _change(self, change: Callable[[_Accounts], tuple[_Accounts, T]]) -> T:
        with locked(self.path):
            data = read_private(self.path)
            accounts = _new_accounts() if data is None else _load(self.path, data)
            accounts, result = change(accounts)
            write_private(self.path, _dump(accounts))
        self._cached = None
        return result


def _new_accounts() -> _Accounts:
    return _Accounts(str(Sid(NT_AUTHORITY, (SECURITY_NT_NON_UNIQUE, *(secrets.randbits(32) for _ in range(3))))))


def _dump(accounts: _Accounts) -> bytes:
    return json.dumps({"version": FILE_VERSION, **asdict(accounts)}, indent=1).encode()


def _load(path: Path, data: bytes) -> _Accounts:
    try:
        content = json.loads(data)
        version = content["version"]
        if version != FILE_VERSION:
            raise UserError(f"{path} is of version {version}, and this program knows version {FILE_VERSION}")
        users = tuple(Account(**one) for one in content["users"])
        groups = tuple(Group(one["name"], one["sid"], tuple(one["members"])) for one in content["groups"])
        Sid.parse(content["machine_sid"])
        # A file of an earlier version lacks some of them.
        missing = [one for one in _ROLE_GROUPS if all(one.sid != other.sid for other in groups)]
        names = {user.name.casefold() for user in users} | {group.name.casefold() for group in groups}
        groups += tuple(replace(one, name=one.sid) if one.name.casefold() in names else one for one in missing)
        policy = PasswordPolicy(**content.get("policy", {}))
        return _Accounts(content["machine_sid"], int(content["next_rid"]), users, groups, policy)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # The error itself may quote a hash.
        raise UserError(f"{path} is damaged ({type(error).__name__}): restore it from a copy") from None


def _check_name(name: str, what: str) -> None:
    if not name.strip() or len(name) > MAX_NAME_LENGTH:
        raise UserError(f"{what} name {name!r}: 1 to {MAX_NAME_LENGTH} characters expected")
    wrong = _FORBIDDEN.search(name)
    if wrong is not None:
        raise UserError(f"{what} name {name!r}: {wrong[0]!r} is not allowed")
    if name.upper().startswith("S-1-"):
        raise UserError(f"{what} name {name!r}: it looks like a SID")


def _article(role: Role) -> str:
    return f"a {role}" if role is Role.MONITOR else f"an {role}"


def _check_free(accounts: _Accounts, name: str) -> None:
    if accounts.user(name) is not None:
        raise UserError(f"user {name} exists already")
    if accounts.group(name) is not None:
        raise UserError(f"group {name} exists already")


def _need_user(accounts: _Accounts, name: str) -> Account:
    account = accounts.user(name)
    if account is None:
        raise UserError(f"there is no user {name}")
    return account


def _need_group(accounts: _Accounts, name: str) -> Group:
    group = accounts.group(name)
    if group is None:
        raise UserError(f"there is no group {name}")
    return group


def _group_of(accounts: _Accounts, role: Role) -> str:
    """Return the name of a role's group.

    An account of an earlier version may have the usual name.
    """
    sid = str(GROUPS[role][1])
    return next(group.name for group in accounts.groups if group.sid == sid)


def role_from_elsewhere(sid: str, role: Role) -> dict[str, object]:
    """Return a SID of a domain that has a role here, as a document like those of users."""
    return {
        "name": sid,
        "sid": sid,
        "role": role.value,
        "administrator": role is Role.ADMINISTRATOR,
        "guest": False,
        "ntlm": False,
        "groups": [GROUPS[role][0]],
    }


def is_sid(name: str) -> bool:
    """Return whether a member of a group is meant to be a SID. No user may have such a name."""
    return name.upper().startswith("S-1-")


def _member_key(accounts: _Accounts, member: str) -> str:
    """Return the key of a member in groups: a user's name, or the SID of an account elsewhere."""
    if not is_sid(member):
        return _need_user(accounts, member).name
    try:
        return str(Sid.parse(member))
    except ValueError as error:
        raise UserError(str(error)) from error


def _with_member(accounts: _Accounts, group: str, member: str) -> _Accounts:
    found = _need_group(accounts, group)
    key = _member_key(accounts, member)
    if key.casefold() in _keys(found):
        return accounts
    changed = replace(found, members=(*found.members, key))
    return replace(accounts, groups=tuple(changed if one is found else one for one in accounts.groups))


def _without(group: Group, member: str) -> Group:
    return replace(group, members=tuple(one for one in group.members if one.casefold() != member.casefold()))


def _keys(group: Group) -> set[str]:
    return {member.casefold() for member in group.members}


def _groups_of(accounts: _Accounts, member: str) -> frozenset[Sid]:
    """Return the groups that contain a member. Groups are not members of groups."""
    return frozenset(Sid.parse(group.sid) for group in accounts.groups if member.casefold() in _keys(group))


def _with_password(account: Account, password: str | None, *, keep_nt_hash: bool) -> Account:
    if not password:
        if not account.is_guest:
            raise UserError(f"user {account.name}: a password is needed")
        # The guest logs on without a password, and NTLM proves that with the hash of the empty one.
        return replace(account, nt_hash=nt_hash("").hex() if keep_nt_hash else None, salt="", password_hash=None)
    salt = secrets.token_bytes(_SALT_SIZE)
    return replace(
        account,
        nt_hash=nt_hash(password).hex() if keep_nt_hash else None,
        salt=salt.hex(),
        password_hash=_scrypt(password, salt).hex(),
    )


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode("utf-8", "surrogatepass"), salt=salt, dklen=_HASH_SIZE, **_SCRYPT)
