"""Branches of distributed transactions, and their names in queue managers and databases.

A branch is the part of a distributed transaction that one resource does. Its name contains the
coordinator, so that a coordinator recognizes its own branches among others. It also contains the
resource, so that a resource that is reachable by two names is not counted twice.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Final, Self

from lanner.model.errors import InvalidParameter

# The resource name of the coordinator's own queue manager, like `.` in a path name.
OWN_RESOURCE: Final = "."
# Not in the specification: the format identifier of an XA transaction identifier, "LNR1".
XID_FORMAT: Final = 0x4C4E5231
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_GLOBAL: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Branch:
    """One resource's part of a distributed transaction."""

    coordinator: uuid.UUID
    transaction: uuid.UUID
    resource: str

    @property
    def xid(self) -> tuple[int, str, str]:
        """The branch as an `xid` of PEP 249: format, global transaction, branch qualifier."""
        return XID_FORMAT, self.coordinator.hex + self.transaction.hex, self.resource

    @classmethod
    def from_xid(cls, format_id: object, global_id: object, qualifier: object) -> Self | None:
        """Return the branch of an XA identifier, or None if Lanner did not create it."""
        if format_id != XID_FORMAT or not isinstance(global_id, str) or not isinstance(qualifier, str):
            return None
        if not _GLOBAL.fullmatch(global_id):
            return None
        return cls(uuid.UUID(global_id[:32]), uuid.UUID(global_id[32:]), qualifier)

    def __str__(self) -> str:
        return f"{self.transaction} of coordinator {self.coordinator}, resource {self.resource}"


def check_resource_name(name: object) -> str:
    """Return the name of a resource. Raise InvalidParameter if it is invalid."""
    if name == OWN_RESOURCE:
        return OWN_RESOURCE
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidParameter(
            f"resource {name!r}: 1 to 64 letters, digits, dots, - and _, and a letter or a digit first"
        )
    return name
