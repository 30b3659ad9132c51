"""The interface of a directory (MS-MQDSSM 3.1.6), for every implementation, and of its storage."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from lanner.directory.filters import AttributeFilter, SortOrder
from lanner.model.directory_objects import DirectoryObject
from lanner.model.enums import DirectoryOperationResult


class Refused(Exception):
    """Ends an operation with this result."""

    def __init__(self, result: DirectoryOperationResult, why: str = "") -> None:
        super().__init__(why or result.value)
        self.result = result


class Directory(Protocol):
    """The directory operations of MS-MQDSSM 3.1.6, with attribute names of MS-MQDMPR 3.1.1.

    A method does not raise for an answer of the directory: its first result is a
    DirectoryOperationResult, and the second one is None unless that is SUCCESS.
    """

    def create_object(
        self, obj: DirectoryObject, attributes: Sequence[str] | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """3.1.6.1 Create Directory Object."""
        ...

    def delete_object(self, obj: DirectoryObject) -> DirectoryOperationResult:
        """3.1.6.2 Delete Directory Object."""
        ...

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.6.3 Read Directory. Returns the first object that satisfies every filter."""
        ...

    def recall(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> DirectoryObject | None:
        """Return the object that the same Read Directory found earlier, without a new read.

        Returns None if there is none, or if this directory keeps no answers.
        """
        ...

    def read_begin(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
        sort_order: Sequence[SortOrder] | None = None,
    ) -> tuple[DirectoryOperationResult, int | None]:
        """3.1.6.4 Read Directory Begin."""
        ...

    def read_next(self, handle: int) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """3.1.6.5 Read Directory Next."""
        ...

    def read_end(self, handle: int) -> DirectoryOperationResult:
        """3.1.6.6 Read Directory End."""
        ...

    def write(self, obj: DirectoryObject, attributes: Sequence[str] | None = None) -> DirectoryOperationResult:
        """3.1.6.7 Write Directory."""
        ...

    @property
    def server(self) -> str:
        """The name of the directory server of the last operation; empty before the first."""
        ...

    def knows_server(self, name: str) -> bool:
        """Return whether a name is that of a directory server which this directory uses."""
        ...

    def read_at(
        self,
        server: str,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        """Do Read Directory (3.1.6.3) without cached answers.

        `server` is the name of the server to read from; empty: any.
        """
        ...

    def queues_of(self, computer_name: str) -> tuple[DirectoryOperationResult, list[uuid.UUID] | None]:
        """Return the identifiers of all public queues of a computer."""
        ...

    def initialize(self) -> DirectoryOperationResult:
        """Initialize (3.1.3), if the directory was unreachable the last time.

        The result is that of the last attempt if the next one is not due.
        """
        ...

    def resolve_distribution_list(
        self, guid: uuid.UUID, domain: str | None
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        """Return the format names of a list's members (3.1.6.9).

        Lists among the members stay DL=; the caller resolves them.
        """
        ...

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:
        """Create a user's object if the directory has none yet.

        A domain has an object for every user already.
        """
        ...

    def format_name_at(self, path: str) -> tuple[DirectoryOperationResult, str | None]:
        """Return the format name of an object at a path of the directory (MC-MQAC 3.12.6.1).

        The object is a queue, a distribution list, or a queue alias (MS-MQDSSM 3.1.6.8).
        """
        ...

    def acting_for(self, account: str) -> Directory | None:
        r"""Return the same directory with the rights of a user, by a name such as `MQ\alice`.

        Returns None if the user's credentials are not available.
        """
        ...

    def servers(self) -> list[str]:
        """Return the names of the directory's servers, the first to try first (MS-MQDMPR 3.1.3)."""
        ...

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        r"""Return the name, as in `MQ\alice`, and the SID of a user or group.

        The account is given by either of them.
        """
        ...

    def computer_sid(self, computer_name: str) -> bytes | None:
        """Return the objectSid of a computer (MS-MQDMPR 3.1.7.1.3.1); None if it cannot be read."""
        ...

    def apart(self) -> Directory | None:
        """Return this directory for reads that take long, in a thread of the caller.

        They need no lock of the store. None: they do, because the directory is in the store.
        """
        ...

    @property
    def keeper(self) -> Keeper | None:
        """The lists and users, if this queue manager's administrators keep them.

        None: the administrators of a domain do.
        """
        ...


class Keeper(Protocol):
    """What administrators of a queue manager change in its own directory, besides its objects."""

    def rehearsal(self) -> Directory:
        """Return a copy in memory, on which a change can be tried."""
        ...

    def add_distribution_list(
        self, name: str, members: Iterable[str], identifier: uuid.UUID | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create a group whose members are format names."""
        ...

    def distribution_lists(self) -> list[tuple[str, uuid.UUID, tuple[str, ...]]]:
        """Return the name, identifier and members' format names of every list."""
        ...

    def add_user(
        self, name: str, security_identifier: bytes, identifier: uuid.UUID | None = None
    ) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        """Create a user's object."""
        ...

    def user_names(self) -> dict[uuid.UUID, str]:
        """Return the names of all users, by the identifiers of their objects."""
        ...

    def remove_named(self, name: str) -> DirectoryOperationResult:
        """Remove a user, a queue alias, or a distribution list."""
        ...


_Object = TypeVar("_Object", bound=DirectoryObject)


def read_all(
    directory: Directory, kind: type[_Object], filters: Sequence[AttributeFilter] | None = None
) -> tuple[DirectoryOperationResult, list[_Object]]:
    """Return every object of a kind that satisfies the filters.

    The result is that of the first operation that failed, else SUCCESS.
    """
    result, handle = directory.read_begin(kind.__name__, filters)
    found: list[_Object] = []
    if handle is None:
        return result, found
    while True:
        result, member = directory.read_next(handle)
        if not isinstance(member, kind):
            break
        found.append(member)
    directory.read_end(handle)
    is_whole = result is DirectoryOperationResult.END_OF_DATA
    return DirectoryOperationResult.SUCCESS if is_whole else result, found


class Table(Protocol):
    """Sorted storage of bytes, such as a table of the store, which commits with everything else."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...


class MemoryTable:
    """A table in memory, for tests and temporary queue managers."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        self.rows.pop(key, None)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter([(key, self.rows[key]) for key in sorted(self.rows) if key.startswith(prefix)])
