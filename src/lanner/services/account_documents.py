"""The accounts of a queue manager as documents, for administrators. No document has a password or a hash of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import IllegalUser, InvalidParameter
from lanner.security.users import UserError

if TYPE_CHECKING:
    from lanner.security.identity import Identity
    from lanner.security.users import Account, UserFile

Document = dict[str, Any]
Request = Mapping[str, Any]

# What changes something.
ORDERS: Final = frozenset({"add user", "set user", "remove user"})


class AccountDocuments:
    """The accounts of one file."""

    def __init__(self, users: UserFile) -> None:
        self._users = users
        # They wait for the disk.
        self.handlers: dict[str, Callable[[Identity, Request], object]] = {
            "users": self._list,
            "add user": self._add,
            "set user": self._set,
            "remove user": self._remove,
        }

    def _list(self, identity: Identity, request: Request) -> list[Document]:
        del identity, request
        return [self._document(account) for account in self._users.users()]

    def _document(self, account: Account) -> Document:
        users = self._users
        return {
            "name": account.name,
            "sid": str(users.sid(account.name)),
            "administrator": users.is_administrator(account.name),
            "guest": account.is_guest,
            "ntlm": account.nt_hash is not None,
            "groups": [group.name for group in users.groups() if account.name in group.members],
        }

    def _find(self, name: str) -> Document:
        for account in self._users.users():
            if account.name.casefold() == name.casefold():
                return self._document(account)
        raise IllegalUser(f"there is no user {name}")

    def _add(self, identity: Identity, request: Request) -> Document:
        name, password = _text(request, "name"), _text(request, "password")
        try:
            self._users.check_password(name, password)
            self._users.changed_by(identity).add(name, password, administrator=request.get("administrator") is True)
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        return self._find(name)

    def _set(self, identity: Identity, request: Request) -> Document:
        name, administrator = _text(request, "name"), request.get("administrator")
        self._find(name)
        try:
            if request.get("password") is not None:
                self._users.check_password(name, _text(request, "password"))
                self._users.changed_by(identity).set_password(name, _text(request, "password"))
            if isinstance(administrator, bool) and administrator != self._users.is_administrator(name):
                self._users.changed_by(identity).set_administrator(name, administrator=administrator)
        except UserError as error:
            raise InvalidParameter(str(error)) from None
        return self._find(name)

    def _remove(self, identity: Identity, request: Request) -> None:
        name = _text(request, "name")
        self._find(name)
        self._users.changed_by(identity).remove(name)


def _text(request: Request, key: str) -> str:
    value = request.get(key)
    if not isinstance(value, str):
        raise InvalidParameter(f"a request needs the text `{key}`")
    return value
