"""Databases in distributed transactions: PEP 249 connections with two-phase commit.

All functions here block; the async client calls them in a thread. A driver's own errors become
TransactionAborted, with the driver's text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from lanner.model.branches import Branch
from lanner.model.errors import InvalidParameter, TransactionAborted, UnsupportedOperation

if TYPE_CHECKING:
    import uuid

_METHODS: Final = ("xid", "tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback", "tpc_recover")
# Drivers of PostgreSQL, which has no prepared transactions unless they are configured.
_POSTGRESQL: Final = frozenset(("psycopg", "psycopg2"))
_IDLE: Final = 0  # libpq's PQTRANS_IDLE
# Matches the password in a connection string.
_SECRET: Final = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|\S+)|(://[^:/@\s]*:)[^@\s]*(?=@)", re.IGNORECASE)


class Database:
    """One PEP 249 connection as a resource with a stable name."""

    def __init__(self, name: str, connection: Any) -> None:  # noqa: ANN401 (of any driver)
        self.name = name
        self._connection = connection
        missing = [method for method in _METHODS if not callable(getattr(connection, method, None))]
        if missing:
            raise InvalidParameter(
                f"resource {name}: {type(connection).__name__} is no connection of PEP 249 with two-phase commit: "
                f"it has no {', '.join(missing)}"
            )
        if inspect.iscoroutinefunction(connection.tpc_begin):
            raise InvalidParameter(
                f"resource {name}: {type(connection).__name__} is an async connection: give a blocking one, "
                "whose calls are made in a thread"
            )

    def check(self) -> None:
        """Raise if the database cannot take part.

        Raises UnsupportedOperation if it keeps no prepared transactions.
        """
        connection = self._connection
        if type(connection).__module__.partition(".")[0] not in _POSTGRESQL:
            return
        with self._told("asking what it can do"):
            if connection.info.transaction_status != _IDLE:
                raise TransactionAborted(
                    f"resource {self.name}: its connection has a transaction open: commit it or roll it back first"
                )
            with connection.cursor() as cursor:
                cursor.execute("SHOW max_prepared_transactions")
                (value,) = cursor.fetchone()
            if not connection.autocommit:
                connection.rollback()
        if int(value) == 0:
            raise UnsupportedOperation(
                f"resource {self.name}: PostgreSQL keeps no prepared transactions: set max_prepared_transactions in "
                "postgresql.conf, to at least as many as may be open at once, and restart it"
            )

    def begin(self, branch: Branch) -> None:
        with self._told("beginning a two-phase transaction"):
            self._connection.tpc_begin(self._connection.xid(*branch.xid))

    def prepare(self) -> None:
        with self._told("preparing"):
            self._connection.tpc_prepare()

    def commit(self) -> None:
        with self._told("committing"):
            self._connection.tpc_commit()

    def abort(self) -> None:
        try:
            self._connection.tpc_rollback()
        except Exception as error:  # each driver has its own
            # A failed prepare has already rolled back, and some drivers cannot leave the
            # transaction then.
            self._connection.close()
            raise TransactionAborted(
                f"resource {self.name}: rolling back: {_text(error)}; its connection is closed: open another one"
            ) from error

    def recover(self, coordinator: uuid.UUID) -> list[Branch]:
        with self._told("asking for prepared transactions"):
            found = [Branch.from_xid(*tuple(xid)[:3]) for xid in self._connection.tpc_recover()]
        return [one for one in found if one and one.coordinator == coordinator and one.resource == self.name]

    def end(self, branch: Branch, *, is_commit: bool) -> None:
        xid = self._connection.xid(*branch.xid)
        with self._told(f"{'committing' if is_commit else 'rolling back'} prepared transaction {branch.transaction}"):
            if is_commit:
                self._connection.tpc_commit(xid)
            else:
                self._connection.tpc_rollback(xid)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Translate the errors of the driver."""
        try:
            yield
        except (TransactionAborted, UnsupportedOperation):
            raise
        except Exception as error:
            raise TransactionAborted(f"resource {self.name}: {what}: {_text(error)}") from error


def _text(error: Exception) -> str:
    """Return the text of a driver's error in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def without_password(connection: str) -> str:
    """Return a connection string without its password, for display."""
    return _SECRET.sub(lambda found: f"{found[1] or found[3]}...", connection)
