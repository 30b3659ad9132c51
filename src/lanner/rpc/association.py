"""Association groups and their context handles.

C706 9.3.3, 5.1.6; MS-RPCE 3.3.1.1.1, 3.3.1.4.1, 3.3.1.5.7. A group is the set of connections of one
client process. A context handle is valid in its group only, and is run down when the last
connection of the group has ended. A handle of an authenticated user serves no other user, not even
on the same connection: an attacker can easily insert unsigned requests into one, and handles are
not secret below the level privacy.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.security.peer_address import peer_of
from lanner.wire.sid import ANONYMOUS_LOGON, Sid

_LOG = logging.getLogger(__name__)

# The attributes of a handle; none is defined (C706 appendix N, ndr_context_handle).
_ATTRIBUTES: Final = bytes(4)
# Not in the specification: the maximum number of handles of one client. Windows' queue managers
# issue one for each open queue and cursor.
MAX_HANDLES: Final = 10_000
# Not in the specification: the maximum number of handles of all clients of one address. Without it,
# they could fill the memory.
MAX_HANDLES_OF_PEER: Final = 100_000

Rundown = Callable[[], object]


@dataclass(slots=True)
class _Held:
    value: object
    kind: str
    rundown: Rundown | None
    owner: Sid


@dataclass(slots=True)
class _Tally:
    """The counts of an address, or of a network of IPv6 (`peer_of`)."""

    groups: int = 0
    handles: int = 0


class ContextHandles:
    """The context handles of one group."""

    def __init__(self, tally: _Tally | None = None) -> None:
        self._held: dict[bytes, _Held] = {}
        self._is_over = False
        self._tally = _Tally() if tally is None else tally

    def __len__(self) -> int:
        return len(self._held)

    def add(self, value: object, kind: str, rundown: Rundown | None = None, owner: Sid = ANONYMOUS_LOGON) -> bytes:
        """Return a new handle, 20 octets.

        The handle is random, so that no client can guess that of another one. `rundown` is called
        if the client disconnects without closing the handle.
        """
        if self._is_over:
            # The client disconnected while its call was running.
            if rundown is not None:
                rundown()
            raise RpcFault(FaultStatus.NCA_FAULT_CONTEXT_MISMATCH, "the association has ended")
        if len(self._held) >= MAX_HANDLES:
            raise RpcFault(FaultStatus.NCA_FAULT_REMOTE_NO_MEMORY, f"{MAX_HANDLES} context handles")
        if self._tally.handles >= MAX_HANDLES_OF_PEER:
            raise RpcFault(FaultStatus.NCA_FAULT_REMOTE_NO_MEMORY, f"{MAX_HANDLES_OF_PEER} context handles")
        self._tally.handles += 1
        handle = _ATTRIBUTES + os.urandom(16)
        self._held[handle] = _Held(value, kind, rundown, owner)
        return handle

    def get(self, handle: bytes, kind: str, caller: Sid = ANONYMOUS_LOGON) -> object:
        """Return the value of a handle.

        Raises RpcFault if it is closed, or of another kind, group or user.
        """
        held = self._held.get(handle)
        if held is None or held.kind != kind or held.owner not in (caller, ANONYMOUS_LOGON):
            raise RpcFault(FaultStatus.NCA_FAULT_CONTEXT_MISMATCH, f"context handle {handle.hex()} of kind {kind}")
        return held.value

    def remove(self, handle: bytes, kind: str, caller: Sid = ANONYMOUS_LOGON) -> object:
        """Close a handle without its rundown, and return its value."""
        value = self.get(handle, kind, caller)
        del self._held[handle]
        self._tally.handles -= 1
        return value

    def values(self, kind: str) -> Iterator[tuple[bytes, object]]:
        return ((handle, held.value) for handle, held in list(self._held.items()) if held.kind == kind)

    def run_down(self) -> None:
        """Run down all handles, newest first, because later ones depend on earlier ones."""
        self._is_over = True
        while self._held:
            handle, held = self._held.popitem()
            self._tally.handles -= 1
            if held.rundown is not None:
                try:
                    held.rundown()
                except Exception:  # noqa: BLE001 (logged; the others must go too)
                    _LOG.exception("the rundown of context handle %s (%s) failed", handle.hex(), held.kind)


class AssociationGroup:
    """One client process, as far as a server can tell."""

    def __init__(self, group_id: int, peer: str, tally: _Tally) -> None:
        self.id = group_id
        # The address of the client, without a port.
        self.peer = peer
        self.handles = ContextHandles(tally)
        self.connections = 0

    def __repr__(self) -> str:
        return (
            f"<association {self.id:#010x} of {self.peer}: {self.connections} connections, {len(self.handles)} handles>"
        )


class AssociationGroups:
    """The groups of one server (MS-RPCE 3.3.1.1.5)."""

    def __init__(self) -> None:
        self._groups: dict[int, AssociationGroup] = {}
        self._tallies: dict[str, _Tally] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def find(self, group_id: int, peer: str) -> AssociationGroup | None:
        """Return the group of an id; None if the address is not its own (MS-RPCE 3.3.1.5.7)."""
        found = self._groups.get(group_id)
        return found if found is not None and found.peer == peer else None

    def join(self, group: AssociationGroup | None, peer: str) -> AssociationGroup:
        """Count a connection in a group, or in a new one."""
        if group is None:
            tally = self._tallies.setdefault(peer_of(peer), _Tally())
            tally.groups += 1
            group = AssociationGroup(self._new_id(), peer, tally)
            self._groups[group.id] = group
        group.connections += 1
        return group

    def leave(self, group: AssociationGroup) -> None:
        """Remove a connection from the group. With the last one, run down the handles."""
        group.connections -= 1
        if group.connections == 0:
            del self._groups[group.id]
            network = peer_of(group.peer)
            tally = self._tallies[network]
            tally.groups -= 1
            if not tally.groups:
                del self._tallies[network]
            group.handles.run_down()

    def _new_id(self) -> int:
        while True:
            # Ids cannot be guessed. All ones is excluded, because it looks like an error to some
            # clients.
            group_id = 1 + secrets.randbelow(0xFFFF_FFFE)
            if group_id not in self._groups:
                return group_id
