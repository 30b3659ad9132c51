"""The identity of a caller in access checks (the token of MS-DTYP 2.5.2)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from lanner.wire.sid import (
    ANONYMOUS_LOGON,
    AUTHENTICATED_USERS,
    BUILTIN_ADMINISTRATORS,
    EVERYONE,
    LOCAL_SYSTEM,
    Sid,
)


@dataclass(frozen=True)
class Identity:
    """A user with its groups and further attributes that the queue manager needs.

    `is_domain_user` is the condition of MS-MQDMPR 3.1.7.1.3.1: an account of the domain (without a
    domain, of the embedded account file), as opposed to an anonymous or foreign one.
    """

    name: str
    sid: Sid
    groups: frozenset[Sid] = field(default_factory=frozenset)
    is_domain_user: bool = False
    is_administrator: bool = False
    is_guest: bool = False
    # The limits of the token that the user logged on with (`security.scopes`); None: no limits.
    scope: frozenset[str] | None = None
    # For the audit log: an address, or a kind of local access with the Unix user.
    origin: str = field(default="", compare=False)

    def at(self, origin: str) -> Identity:
        """Return the same user with a place of origin."""
        return self if origin == self.origin else replace(self, origin=origin)

    def limited_to(self, scope: frozenset[str]) -> Identity:
        """Return the same user, limited to a scope."""
        return replace(self, scope=scope)

    @cached_property
    def is_anonymous(self) -> bool:
        return self.sid == ANONYMOUS_LOGON

    @property
    def is_system(self) -> bool:
        """Whether the identity is exempt from checks.

        A token never is, even one that the local system has created.
        """
        return self.sid == LOCAL_SYSTEM and self.scope is None

    @cached_property
    def sids(self) -> frozenset[Sid]:
        """Every SID of the token: the user, its groups, and the groups that the system adds.

        MS-DTYP 2.4.2.4 keeps Guest and Anonymous out of Authenticated Users. Everyone has no
        anonymous members either, unless `groups` contains it: MS-MQDMPR 3.1.7.1.3.1 gives the same
        right to Everyone and, in an entry of its own, to S-1-5-7, which would be redundant if one
        contained the other.
        """
        implied = set()
        if not self.is_anonymous:
            implied.add(EVERYONE)
            if not self.is_guest:
                implied.add(AUTHENTICATED_USERS)
        if self.is_administrator:
            implied.add(BUILTIN_ADMINISTRATORS)
        return self.groups | implied | {self.sid}


ANONYMOUS: Final = Identity("ANONYMOUS LOGON", ANONYMOUS_LOGON)

# S-1-1-0 and nothing more: neither an authenticated user nor the anonymous one. MS-MQQB 3.1.5.8.3
# gives these rights to a queue manager as sender (ST 2): "userSID MUST be set to the well-known SID
# ... S-1-1-0".
EVERYONE_ALONE: Final = Identity("Everyone", EVERYONE, is_guest=True)

# For an operator who sets "Everyone includes anonymous", as a policy of Windows can.
ANONYMOUS_IN_EVERYONE: Final = Identity("ANONYMOUS LOGON", ANONYMOUS_LOGON, groups=frozenset({EVERYONE}))

# The queue manager itself, and a program that opened the data directory: a process that can write
# its files has every right already.
SYSTEM: Final = Identity("SYSTEM", LOCAL_SYSTEM, is_administrator=True)
