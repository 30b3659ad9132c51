"""Which parameters of a method are context handles."""

from __future__ import annotations

from lanner.rpc.interface import Method
from lanner.rpc.ndr import ContextHandle


def context_handles(method: Method) -> dict[str, ContextHandle]:
    """Return the parameters that are context handles, by name."""
    return {member.name: member.type for member in method.parameters if isinstance(member.type, ContextHandle)}
