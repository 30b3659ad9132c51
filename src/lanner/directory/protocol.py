"""What the queue manager asks of a directory, whichever is behind it (MS-MQDSSM 3.1.6), and of its storage."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from lanner.directory.filters import AttributeFilter, SortOrder
from lanner.model.directory_objects import DirectoryObject
from lanner.model.enums import DirectoryOperationResult


class Refused(Exception):
    """The operation ends with this result."""

    def __init__(self, result: DirectoryOperationResult, why: str = "") -> None:
        super().__init__(why or result.value)
        self.result = result


class Directory(Protocol):
    """The directory operations of MS-MQDSSM 3.1.6; the names of attributes are those of MS-MQDMPR 3.1.1.

    A method never raises for what a directory can answer: its first result is a
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
        """3.1.6.3 Read Directory: the first object that satisfies every filter."""
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
        """The name of the directory server that the last operation went to; empty before the first."""
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
        """3.1.6.3 as the directory is now, never a remembered answer; at a server by its name, or at any one if that is empty."""
        ...

    def queues_of(self, computer_name: str) -> tuple[DirectoryOperationResult, list[uuid.UUID] | None]:
        """Return the identifiers of all public queues of a computer."""
        ...

    def initialize(self) -> DirectoryOperationResult:
        """3.1.3, once more if the directory could not be reached the last time."""
        ...

    def resolve_distribution_list(
        self, guid: uuid.UUID, domain: str | None
    ) -> tuple[DirectoryOperationResult, list[str] | None]:
        """3.1.6.9: format names; DL= may be among them for a list inside, which the caller resolves."""
        ...

    def ensure_user(self, name: str, security_identifier: bytes) -> DirectoryOperationResult:
        """Make a user's object where the directory has none yet; one that others keep has all users already."""
        ...

    def format_name_at(self, path: str) -> str | None:
        """The format name of the queue, distribution list or queue alias at a path of the directory (MC-MQAC 3.12.6.1); None if there is none."""
        ...

    def acting_for(self, account: str) -> Directory | None:
        r"""Return the same directory with the rights of a user, by a name such as `MQ\alice`.

        None: the user's credentials cannot be had.
        """
        ...

    def servers(self) -> list[str]:
        """Return the names of the directory's servers, those to be tried first at the front (MS-MQDMPR 3.1.3)."""
        ...

    def account(self, name_or_sid: str | bytes) -> tuple[DirectoryOperationResult, tuple[str, bytes] | None]:
        r"""Return the name, as in `MQ\alice`, and the SID of a user or group, which either of them names."""
        ...

    def computer_sid(self, computer_name: str) -> bytes | None:
        """The objectSid of a computer (MS-MQDMPR 3.1.7.1.3.1), or None if the directory cannot tell."""
        ...


class Table(Protocol):
    """Sorted storage of bytes; the store's tables are such, and commit with everything else."""

    def get(self, key: bytes) -> bytes | None: ...

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...


class MemoryTable:
    """A table that is forgotten with the process: for tests and throw-away queue managers."""

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
