"""User accounts of a queue manager as documents, for administrators.

No document contains a password or a password hash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import IllegalUser, InvalidParameter
from lanner.security.roles import Role
from lanner.security.users import UserError, is_sid, role_from_elsewhere
from lanner.services.request_fields import Request, text_of

if TYPE_CHECKING:
    from lanner.security.identity import Identity
    from lanner.security.users import Account, UserFile

Document = dict[str, Any]

# Requests that change an account.
ORDERS: Final = frozenset({"add user", "set user", "remove user"})


class AccountDocuments:
    """The accounts of one user file."""

    def __init__(self, users: UserFile) -> None:
        self._users = users
        # These handlers do disk I/O.
        self.handlers: dict[str, Callable[[Identity, Request], object]] = {
            "users": self._list,
            "add user": self._add,
            "set user": self._set,
            "remove user": self._remove,
        }

    def _list(self, identity: Identity, request: Request) -> list[Document]:
        del identity, request
        return [*map(self._document, self._users.users()), *self._from_elsewhere()]

    def _document(self, account: Account) -> Document:
        users = self._users
        return {
            "name": account.name,
            "sid": str(users.sid(account.name)),
            "role": users.role(account.name).value,
            "administrator": users.is_administrator(account.name),
            "guest": account.is_guest,
            "ntlm": account.nt_hash is not None,
            "groups": [group.name for group in users.groups() if account.name in group.members],
        }

    def _from_elsewhere(self) -> list[Document]:
        """Return the domain users and groups that have a role here."""
        return [role_from_elsewhere(sid, role) for sid, role in self._users.roles_from_elsewhere().items()]

    def _find(self, name: str) -> Document:
        for account in self._users.users():
            if account.name.casefold() == name.casefold():
                return self._document(account)
        raise IllegalUser(f"there is no user {name}")

    def _add(self, identity: Identity, request: Request) -> Document:
        name, password = text_of(request, "name"), text_of(request, "password")
        try:
            self._users.check_password(name, password)
            self._users.changed_by(identity).add(name, password, role=_role(request) or Role.USER)
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        return self._find(name)

    def _set(self, identity: Identity, request: Request) -> Document:
        name, role = text_of(request, "name"), _role(request)
        if is_sid(name):
            return self._set_from_elsewhere(identity, name, role, request)
        self._find(name)
        try:
            if request.get("password") is not None:
                self._users.check_password(name, text_of(request, "password"))
                self._users.changed_by(identity).set_password(name, text_of(request, "password"))
            if role is not None and role is not self._users.role(name):
                self._users.changed_by(identity).set_role(name, role)
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        return self._find(name)

    def _set_from_elsewhere(self, identity: Identity, sid: str, role: Role | None, request: Request) -> Document:
        """Assign a role to a domain user or group.

        A role is the only thing that can be stored for an account of another computer.
        """
        if role is None or request.get("password") is not None:
            raise InvalidParameter(f"{sid} is no user of this computer: it can have a role, and nothing else")
        try:
            self._users.changed_by(identity).set_role(sid, role)
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        return role_from_elsewhere(sid, role)

    def _remove(self, identity: Identity, request: Request) -> None:
        name = text_of(request, "name")
        self._find(name)
        self._users.changed_by(identity).remove(name)


def _role(request: Request) -> Role | None:
    value = request.get("role")
    try:
        return None if value is None else Role(value)
    except ValueError:
        raise InvalidParameter(f"role {value!r}: one of {', '.join(Role)}") from None
