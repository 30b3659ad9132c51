"""Event sinks made from Python functions: each member passes its arguments on."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lanner.com.constants import RPC_E_CALL_REJECTED
from lanner.com.members import InterfaceTable, Member
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.rpc.ndr import Value

# A function that takes the name of an event and its arguments, and returns whether there was room
# for it.
Deliver = Callable[[str, tuple[Value, ...]], bool]


def make_sink(table: InterfaceTable, deliver: Deliver) -> ComObject:
    """Return an object that implements the event interface of a remote object."""

    def serving(member: Member) -> Callable[..., None]:
        def serve(self: ComObject, call: ComCall, *arguments: Value) -> None:
            del self, call
            if not deliver(member.name, arguments):
                raise ComError(RPC_E_CALL_REJECTED, "too many events wait to be handled")

        return serve

    members = {member.python: serving(member) for member in table.members}
    made = type(f"SinkOf{table.name}", (ComObject,), {"interfaces": (table,), **members})
    return cast("ComObject", made())
