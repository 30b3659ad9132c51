r"""Names of accounts and their SIDs, in both directions.

A name is a well-known one (Everyone), a user or group of the account file, a Unix user without an
account, or an account of a domain (`MQ\alice`). Well-known names come first. The order of the next
two is that of `UserFile.unix_identity`: a Unix user with an account of the same name is that
account.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Final

from lanner.model.errors import IllegalUser
from lanner.security.domain_accounts import DomainAccounts, is_domain_name
from lanner.security.users import UNIX_USERS, UserError
from lanner.wire.sid import (
    ANONYMOUS_LOGON,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL_SYSTEM,
    OWNER_RIGHTS,
    Sid,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.security.users import UserFile

# The first name of a SID is the one that is shown.
_WELL_KNOWN: Final[dict[str, Sid]] = {
    "Everyone": EVERYONE,
    "Anonymous": ANONYMOUS_LOGON,
    "ANONYMOUS LOGON": ANONYMOUS_LOGON,
    "Administrators": BUILTIN_ADMINISTRATORS,
    "Authenticated Users": AUTHENTICATED_USERS,
    "Owner": OWNER_RIGHTS,
    "SYSTEM": LOCAL_SYSTEM,
}
_SIDS: Final = {name.casefold(): sid for name, sid in _WELL_KNOWN.items()}
_NAMES: Final = {sid: name for name, sid in reversed(_WELL_KNOWN.items())}
_HOW: Final = "give a user or group of `lanner user list`, a Unix user, Everyone, Anonymous, Administrators, or a SID"


class Accounts:
    """The accounts known to the queue manager; without a file, well-known names and SIDs only."""

    def __init__(
        self, users: UserFile | None = None, lookup: Callable[[str | bytes], tuple[str, bytes] | str] | None = None
    ) -> None:
        """Use the account file `users`.

        `lookup` asks the directory for the name and the SID of an account, by either of them. It
        returns the reason if it does not find the account.
        """
        self._users = users
        self._lookup = lookup
        # The accounts of a domain whose names are known.
        self.domain = DomainAccounts()

    def sid_of(self, name: str) -> Sid:
        """Return the SID of a name, or of the text form of a SID. Raises IllegalUser."""
        if name.upper().startswith("S-1-"):
            try:
                return Sid.parse(name)
            except ValueError as error:
                raise IllegalUser(str(error)) from None
        known = _SIDS.get(name.casefold())
        if self._users is None:
            if known is None:
                raise IllegalUser(f"the account {name!r} of a queue manager of another maker: give its SID")
            return known
        found = self._domain_sid(name) if is_domain_name(name) else _local_sid(self._users, name)
        if known is not None and found not in (None, known):
            raise IllegalUser(f"{name!r} is a well-known name and an account here: give the SID, {known} or {found}")
        sid = known or found
        if sid is None:
            raise IllegalUser(f"there is no account {name!r}: {_HOW}")
        return sid

    def name_of(self, sid: Sid) -> str:
        """Return the name of a SID; its text form if no account has it."""
        name = _NAMES.get(sid)
        if name is None and self._users is not None:
            name = self._users.name_of(sid) or _unix_name(sid) or self._domain_name(sid)
        return str(sid) if name is None else name

    def _domain_sid(self, name: str) -> Sid:
        found = self.domain.sid_of(name) or self._ask(name)
        if isinstance(found, Sid):
            return found
        raise IllegalUser(f"the account {name} is not known here: {found}; give its SID")

    def _domain_name(self, sid: Sid) -> str | None:
        known = self.domain.name_of(sid)
        if known is None and sid.is_account:
            self._ask(sid.pack())
            known = self.domain.name_of(sid)
        return known

    def _ask(self, name_or_sid: str | bytes) -> Sid | str:
        """Ask the directory, and remember the answer. Returns the reason if there is none."""
        found = "it has not logged on" if self._lookup is None else self._lookup(name_or_sid)
        if isinstance(found, str):
            return found
        name, octets = found
        sid = Sid.unpack(octets)
        self.domain.learn(sid, name)
        return sid


def _local_sid(users: UserFile, name: str) -> Sid | None:
    """Return the SID of a user or group of the account file, or of a Unix user."""
    try:
        return users.sid(name)
    except UserError:
        pass
    try:
        uid = pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return None
    if uid in (0, os.geteuid()):
        raise IllegalUser(f"{name} needs no entry: root and the user of the queue manager may do everything")
    return UNIX_USERS.child(uid)


def _unix_name(sid: Sid) -> str | None:
    if (
        sid.sub_authorities[:-1] != UNIX_USERS.sub_authorities
        or sid.identifier_authority != UNIX_USERS.identifier_authority
    ):
        return None
    try:
        return pwd.getpwuid(sid.sub_authorities[-1]).pw_name
    except (KeyError, OverflowError):
        return None
