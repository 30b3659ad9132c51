"""The object exporter (MS-DCOM 3.1.1): objects that clients hold, references to them, calls.

It runs on the event loop. An OID identifies an object, an IPID one of its interfaces. An object is
released when the last reference to its last interface is gone, when no client pings it any more, or
when the exporter closes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID, uuid4

from lanner.com.automation import stubs
from lanner.com.constants import (
    E_NOINTERFACE,
    E_NOTIMPL,
    IID_IDISPATCH,
    RPC_E_ACCESS_DENIED,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_HEADER,
    RPC_E_INVALID_IPID,
    RPC_E_VERSION_MISMATCH,
)
from lanner.com.objects import ComCall, ComError, ComObject
from lanner.com.objref import (
    DualStringArray,
    ObjRef,
    ObjRefCustom,
    ObjRefStandard,
    SecurityBinding,
    StdObjRef,
    StringBinding,
)
from lanner.com.orpc import ORPCTHAT, ORPCTHIS, OrpcThat, OrpcThis
from lanner.com.server.holdings import HoldingLimits, Holdings
from lanner.com.server.ping_sets import PingSets, new_identifier
from lanner.rpc.calls import MAX_REQUEST_SIZE
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.ndr import Decoder, Encoder, Syntax, representation
from lanner.rpc.ndr.stream import MAX_REQUEST_ELEMENTS
from lanner.rpc.pdu import NDR20, AuthLevel, AuthType, SyntaxId
from lanner.rpc.server import RpcServer, ServedInterface

if TYPE_CHECKING:
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import Remote
    from lanner.rpc.calls import ServerCall
    from lanner.wire.sid import Sid

_LOG = logging.getLogger(__name__)

# MS-DCOM 3.1.1.5.1: "SHOULD be 5".
PUBLIC_REFS: Final = 5
# Opnums 0 to 2 belong to IUnknown; no client sends them (MS-DCOM 3.1.1.5.8).
FIRST_OPNUM: Final = 3
# Room for the largest message body and the fields around it.
MAX_OBJECT_REQUEST_SIZE: Final = MAX_REQUEST_SIZE + 0x1_0000
# Not in the specification: the size up to which requests are accepted even from callers above their
# limit.
SMALL_REQUEST: Final = 0x1000


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses at which clients reach us: bindings of the resolver and of the exporter."""

    # The address in references for clients that did not connect by TCP.
    address: str
    port: int  # the exporter's port
    # The names of this computer, for clients that compare names.
    names: tuple[str, ...] = ()

    # MS-DCOM 2.2.19.4: in order of preference.
    security: tuple[SecurityBinding, ...] = (
        SecurityBinding(AuthType.WINNT),
        SecurityBinding(AuthType.GSS_NEGOTIATE),
    )

    def _hosts(self, reached: str) -> list[str]:
        # The address that the client has used comes first, because it is known to work.
        return list(dict.fromkeys([reached or self.address, *self.names]))

    def resolver(self, reached: str) -> DualStringArray:
        """Return bindings without endpoints: the port is well known (MS-DCOM 2.2.19.3)."""
        return DualStringArray(tuple([StringBinding.tcp(host) for host in self._hosts(reached)]), self.security)

    def exporter(self, reached: str) -> DualStringArray:
        return DualStringArray(
            tuple([StringBinding.tcp(host, self.port) for host in self._hosts(reached)]), self.security
        )


@dataclass(slots=True, eq=False)
class ExportedInterface:
    """An entry of the IPID table (MS-DCOM 3.1.1.1)."""

    ipid: UUID
    table: InterfaceTable
    exported: ExportedObject
    # References per user. Those under None belong to no particular user: any holder may release
    # them.
    public_refs_of: dict[Sid | None, int] = field(default_factory=dict)
    # References per client.
    private_refs: dict[Sid, int] = field(default_factory=dict)

    @property
    def public_refs(self) -> int:
        return sum(self.public_refs_of.values())


@dataclass(slots=True, eq=False)
class ExportedObject:
    """An entry of the OID table (MS-DCOM 3.1.1.1)."""

    oid: int
    object: ComObject
    # The user that got the first reference, or None if no client requested the object.
    owner: Sid | None
    last_call: float
    # Users that were given a reference, or None if any user may hold one. Another user that knows
    # an IPID got it from one of them or by eavesdropping.
    holders: set[Sid] | None
    interfaces: dict[UUID, ExportedInterface] = field(default_factory=dict)
    # Calls in progress.
    calls: int = 0
    # The size of the object when it was last measured.
    octets: int = 0

    def serves(self, user: Sid) -> bool:
        return self.holders is None or user in self.holders


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call that has passed all checks.

    Its handler reads and writes the stubs, including ORPCTHIS and ORPCTHAT.
    """

    call: ServerCall
    object: ComObject
    # The table of the marshaled interface. The client may have bound one of its base interfaces.
    table: InterfaceTable
    exporter: CallExporter
    orpc_this: OrpcThis
    # The position is after ORPCTHIS.
    decoder: Decoder


# A function that takes a call and returns the response stub, or an awaitable of it.
InterfaceHandler: TypeAlias = Callable[[Invocation], bytes | Awaitable[bytes]]


# A function that makes a reference to a remote object usable. The second argument is the sender's
# address, or None if the reference is trusted.
ForeignResolver: TypeAlias = Callable[[ObjRef, str | None], Awaitable["Remote"]]


class CallExporter:
    """The exporter as seen by the caller on one connection.

    References name the address to which that caller connected.
    """

    __slots__ = ("_consumed", "_exporter", "_owner", "_peer", "_reached")

    def __init__(self, exporter: ObjectExporter, call: ServerCall) -> None:
        self._exporter = exporter
        self._owner = call.identity.sid
        self._peer = call.peer
        self._reached = call.connection.local_address
        # Objects whose references the call has consumed. Each lives at least until the call ends.
        self._consumed: list[ExportedObject] = []

    def marshal(self, obj: ComObject, iid: UUID, public_refs: int = PUBLIC_REFS) -> ObjRefStandard:
        return self._exporter.marshal(obj, iid, public_refs, reached=self._reached, owner=self._owner, user=self._owner)

    async def unmarshal(self, objref: ObjRef) -> ComObject | Remote | None:
        local = self._exporter.unmarshal_local(objref, self._owner)
        if local is None:
            return await self._exporter.unmarshal(objref, peer=self._peer)
        self._consumed.append(local)
        return local.object

    def discard(self, obj: ComObject) -> None:
        self._exporter.discard(obj)

    def require_room(self) -> None:
        self._exporter.holdings.require_room(self._owner)

    def close(self) -> None:
        """Release the consumed objects that have no other references."""
        for exported in self._consumed:
            self._exporter.release_if_unreferenced(exported)


class ObjectExporter:
    """The exporter of all objects of this process (MS-DCOM 3.1.1)."""

    def __init__(
        self,
        server: RpcServer,
        pings: PingSets,
        addresses: Addresses,
        clock: Callable[[], float],
        *,
        minimum_level: AuthLevel = AuthLevel.PKT_INTEGRITY,
        limits: HoldingLimits | None = None,
        resolve_foreign: ForeignResolver | None = None,
    ) -> None:
        self._server = server
        self._pings = pings
        self.addresses = addresses
        self._clock = clock
        self.minimum_level = minimum_level
        self.holdings = Holdings(limits)
        self._resolve_foreign = resolve_foreign
        self.oxid = new_identifier(())
        self.ipid_rem_unknown = uuid4()
        self.oid_rem_unknown = new_identifier(())
        self._handlers: dict[UUID, InterfaceHandler] = {}
        self._objects: dict[int, ExportedObject] = {}
        # Keyed by the identity of the Python object.
        self._by_object: dict[int, ExportedObject] = {}
        self._interfaces: dict[UUID, ExportedInterface] = {}

    @property
    def objects(self) -> list[ComObject]:
        """The objects that clients hold."""
        return [exported.object for exported in self._objects.values()]

    def find(self, ipid: UUID) -> ExportedInterface | None:
        return self._interfaces.get(ipid)

    # Marshaling (MS-DCOM 3.1.1.5.1, 3.1.1.5.3)
    # ------------------------------------------------------------------

    def marshal(
        self,
        obj: ComObject,
        iid: UUID,
        public_refs: int = PUBLIC_REFS,
        *,
        reached: str = "",
        owner: Sid | None = None,
        user: Sid | None = None,
    ) -> ObjRefStandard:
        """Return a new reference to an interface of an object.

        `reached` is our address as the holder knows it. `owner` is the user against whose quota a
        new object counts. `user` gets the references, and only that user can release them. Raise
        ComError E_NOINTERFACE if the object lacks the interface.
        """
        std = self.add_references(obj, iid, public_refs, owner, user=user)
        return ObjRefStandard(iid, std, self.addresses.resolver(reached))

    def add_references(
        self, obj: ComObject, iid: UUID, public_refs: int, owner: Sid | None = None, *, user: Sid | None = None
    ) -> StdObjRef:
        """Export an interface, unless it is exported already, and add references of `user` to it.

        A new object counts for `owner`.
        """
        exported = self._by_object.get(id(obj))
        interface = None if exported is None else exported.interfaces.get(iid)
        if interface is None:
            table = obj.query_interface(iid)
            if table is None:
                raise ComError(E_NOINTERFACE, f"{type(obj).__name__} has no interface {iid}")
            if exported is None:
                exported = self._export(obj, owner)
            interface = ExportedInterface(uuid4(), table, exported)
            exported.interfaces[iid] = self._interfaces[interface.ipid] = interface
            self._listen_for(table)
        holders = interface.exported.holders
        if owner is not None and holders is not None:
            holders.add(owner)
        _add_public(interface, public_refs, user)
        interface.exported.last_call = self._clock()
        return StdObjRef(0, public_refs, self.oxid, interface.exported.oid, interface.ipid)

    def _export(self, obj: ComObject, owner: Sid | None) -> ExportedObject:
        self.holdings.add(owner)
        now = self._clock()
        holders = None if owner is None else {owner}
        exported = ExportedObject(self._pings.allocate_oid(now), obj, owner, now, holders)
        self._objects[exported.oid] = self._by_object[id(obj)] = exported
        self._weigh(exported)
        return exported

    def _weigh(self, exported: ExportedObject) -> None:
        """Update the recorded size of an object after a call, unless it was released meanwhile."""
        octets = exported.object.octets
        if octets != exported.octets and exported.oid in self._objects:
            self.holdings.grow(exported.owner, octets - exported.octets)
            exported.octets = octets

    def unmarshal_local(self, objref: ObjRef, user: Sid | None = None) -> ExportedObject | None:
        """Return the local object of a user's reference and consume the references in it.

        Return None for a remote object.
        """
        if isinstance(objref, ObjRefCustom):
            raise ComError(E_NOTIMPL, f"no unmarshaler {objref.clsid}")
        std = objref.std
        if std.oxid != self.oxid:
            return None
        interface = self._interfaces.get(std.ipid)
        if interface is None or interface.exported.oid != std.oid:
            raise ComError(E_NOINTERFACE, f"no interface {std.ipid}")
        if user is not None and not interface.exported.serves(user):
            raise ComError(RPC_E_ACCESS_DENIED, f"the object of {std.ipid} was not given to {user}")
        self._subtract(interface, std.public_refs, user)
        return interface.exported

    async def unmarshal(self, objref: ObjRef, *, peer: str | None = None) -> ComObject | Remote | None:
        """Return the object of a reference, local or remote."""
        local = self.unmarshal_local(objref)
        if local is not None:
            self.release_if_unreferenced(local)
            return local.object
        if self._resolve_foreign is None:
            raise ComError(E_NOTIMPL, "objects of others cannot be called")
        return await self._resolve_foreign(objref, peer)

    # Reference counts (MS-DCOM 3.1.1.5.6.1)
    # ---------------------------------------------------------------------

    def add_ref(self, ipid: UUID, public_refs: int, private_refs: int, owner: Sid) -> bool:
        """Add references of a user. Return False if the interface is unknown or not that user's."""
        interface = self._interfaces.get(ipid)
        if interface is None or not interface.exported.serves(owner):
            return False
        _add_public(interface, public_refs, owner)
        if private_refs:
            interface.private_refs[owner] = interface.private_refs.get(owner, 0) + private_refs
        return True

    def release(self, ipid: UUID, public_refs: int, private_refs: int, owner: Sid) -> None:
        """Subtract references of a user, down to none.

        An interface that is unknown, or not that user's, is ignored.
        """
        interface = self._interfaces.get(ipid)
        if interface is None or not interface.exported.serves(owner):
            return
        private = interface.private_refs.get(owner, 0)
        if private > private_refs:
            interface.private_refs[owner] = private - private_refs
        else:
            interface.private_refs.pop(owner, None)
        self._subtract(interface, public_refs, owner)
        self.release_if_unreferenced(interface.exported)

    def _subtract(self, interface: ExportedInterface, public_refs: int, user: Sid | None) -> None:
        """Subtract references of a user first, then those that belong to no particular user."""
        counts = interface.public_refs_of
        for one in dict.fromkeys((user, None)):
            taken = min(counts.get(one, 0), public_refs)
            public_refs -= taken
            if taken and taken == counts[one]:
                del counts[one]
            elif taken:
                counts[one] -= taken
        if not interface.public_refs and not interface.private_refs:
            del self._interfaces[interface.ipid]
            del interface.exported.interfaces[interface.table.iid]

    def release_if_unreferenced(self, exported: ExportedObject) -> None:
        """Release an object without references.

        A client may have requested an interface with zero references.
        """
        if exported.oid not in self._objects:
            return
        if not any(one.public_refs or one.private_refs for one in exported.interfaces.values()):
            self._release(exported)

    def _release(self, exported: ExportedObject) -> None:
        del self._objects[exported.oid]
        del self._by_object[id(exported.object)]
        for interface in exported.interfaces.values():
            del self._interfaces[interface.ipid]
        exported.interfaces.clear()
        self.holdings.remove(exported.owner, exported.octets)
        self._pings.forget_oid(exported.oid)
        _release_object(exported.object)

    def discard(self, obj: ComObject) -> None:
        """Release an object whose reference never reached its client.

        That client cannot release it.
        """
        if id(obj) not in self._by_object:
            _release_object(obj)

    def release_all(self) -> None:
        """Release all objects: the exporter is closing."""
        for exported in list(self._objects.values()):
            self._release(exported)

    def reclaim(self, oids: Iterable[int], now: float) -> None:
        """Release objects that are no longer pinged (MS-DCOM 3.1.1.6.2).

        Objects with a call in progress are kept.
        """
        for oid in oids:
            exported = self._objects.get(oid)
            if exported is None:
                self._pings.forget_oid(oid)
            elif exported.calls or now - exported.last_call < self._pings.period:
                self._pings.spare(oid, now)
            else:
                _LOG.info("%s is reclaimed: no client pings it", type(exported.object).__name__)
                self._release(exported)

    # Calls (MS-DCOM 3.1.1.5.4)
    # ----------------------------------------------------------------------------------

    def serve(self, iid: UUID, handler: InterfaceHandler) -> None:
        """Dispatch calls on an interface to `handler` instead of the one for automation."""
        self._handlers[iid] = handler

    def _listen_for(self, table: InterfaceTable) -> None:
        syntax = SyntaxId(table.iid)
        if self._server.find_interface(syntax) is None:
            self._server.register(ObjectInterface(self, table))

    def may_call(self, call: ServerCall) -> bool:
        """Return whether a caller is admitted.

        It needs at least our authentication level, and must not be anonymous, because the session
        keys of anonymous users are public.
        """
        if self.minimum_level <= AuthLevel.NONE:
            return True
        return call.auth_level >= self.minimum_level and not call.identity.is_anonymous

    def admit(self, call: ServerCall, *, denied: int) -> tuple[OrpcThis, Decoder]:
        """Check a call on an object. Return its ORPCTHIS and the decoder of the stub after it."""
        rep = representation(Syntax.NDR20, "little" if call.is_little else "big")
        decoder = Decoder(call.stub, rep, elements=MAX_REQUEST_ELEMENTS)
        orpc_this: OrpcThis = ORPCTHIS.decode(decoder)
        if not orpc_this.version.is_served:
            raise RpcFault(RPC_E_VERSION_MISMATCH, f"{call!r}: {orpc_this.version}", did_not_execute=True)
        if not self.may_call(call):
            raise RpcFault(denied, f"{call!r} of {call.identity.name}", did_not_execute=True)
        if orpc_this.flags:
            raise RpcFault(RPC_E_INVALID_HEADER, f"{call!r}: flags {orpc_this.flags:#x}", did_not_execute=True)
        return orpc_this, decoder

    def invoke(self, bound: InterfaceTable, call: ServerCall) -> bytes | Awaitable[bytes]:
        """Run a call on the interface that its object UUID names.

        The connection is bound to `bound`.
        """
        if not FIRST_OPNUM <= call.opnum <= bound.last_opnum:
            raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR, f"{bound.name} opnum {call.opnum}", did_not_execute=True)
        orpc_this, decoder = self.admit(call, denied=FaultStatus.ACCESS_DENIED)
        interface = None if call.object_uuid is None else self._interfaces.get(call.object_uuid)
        if interface is None:
            raise RpcFault(RPC_E_DISCONNECTED, f"{call!r}: no IPID {call.object_uuid}", did_not_execute=True)
        if not interface.exported.serves(call.identity.sid):
            raise RpcFault(RPC_E_ACCESS_DENIED, f"{call!r}: another user's IPID", did_not_execute=True)
        table = interface.table
        if not _is_a(table, bound):
            raise RpcFault(RPC_E_INVALID_IPID, f"{call!r}: {table.name} at this IPID", did_not_execute=True)
        handler = self._handlers.get(table.iid, _serve_automation)
        exported = interface.exported
        if len(call.stub) > SMALL_REQUEST:
            self._require_octets(exported, call)
        view = CallExporter(self, call)
        invocation = Invocation(call, exported.object, table, view, orpc_this, decoder)
        exported.last_call = self._clock()
        answer = handler(invocation)
        if isinstance(answer, bytes):
            self._weigh(exported)
            view.close()
            return answer
        return self._finish(exported, view, answer)

    def _require_octets(self, exported: ExportedObject, call: ServerCall) -> None:
        try:
            self.holdings.require_octets(exported.owner)
        except ComError as error:
            raise RpcFault(error.hresult, f"{call!r}: {error}", did_not_execute=True) from None

    async def _finish(self, exported: ExportedObject, view: CallExporter, answer: Awaitable[bytes]) -> bytes:
        exported.calls += 1
        try:
            return await answer
        finally:
            exported.calls -= 1
            exported.last_call = self._clock()
            self._weigh(exported)
            view.close()


def _add_public(interface: ExportedInterface, public_refs: int, user: Sid | None) -> None:
    if public_refs:
        interface.public_refs_of[user] = interface.public_refs_of.get(user, 0) + public_refs


def _release_object(obj: ComObject) -> None:
    try:
        obj.released()
    except Exception:  # noqa: BLE001 (logged; the caller has done with it)
        _LOG.exception("releasing %s failed", type(obj).__name__)


def _is_a(table: InterfaceTable, bound: InterfaceTable) -> bool:
    """Return whether the first slots of one interface are those of another."""
    if bound.iid == IID_IDISPATCH:
        return table.is_dispatch
    return table.iid == bound.iid or bound.iid in [base.iid for base in table.bases]


class ObjectInterface(ServedInterface):
    """An object interface as connections see it."""

    def __init__(self, exporter: ObjectExporter, table: InterfaceTable) -> None:
        # MS-DCOM 2.1 and 2.2: version 0.0, and NDR only.
        super().__init__(table.name, SyntaxId(table.iid), (NDR20,), MAX_OBJECT_REQUEST_SIZE)
        self._exporter = exporter
        self._table = table

    def invoke(self, call: ServerCall) -> bytes | Awaitable[bytes]:
        return self._exporter.invoke(self._table, call)


def _serve_automation(invocation: Invocation) -> bytes | Awaitable[bytes]:
    """Run a member that a table declares."""
    call, table = invocation.call, invocation.table
    member = table.by_opnum.get(call.opnum)
    if member is None or not table.is_remote:
        raise RpcFault(FaultStatus.NCA_OP_RNG_ERROR, f"{table.name} opnum {call.opnum}", did_not_execute=True)
    com_call = ComCall(call.identity, call.auth_level, call.peer, invocation.exporter, table, member)
    answer = stubs.serve(invocation.object, com_call, invocation.decoder)
    return _encoded(answer) if isinstance(answer, stubs.Answer) else _encoded_later(answer)


def _encoded(answer: stubs.Answer) -> bytes:
    encoder = Encoder(representation(Syntax.NDR20))
    ORPCTHAT.encode(encoder, _NO_EXTENSIONS)
    answer.encode(encoder)
    return encoder.getvalue()


async def _encoded_later(answer: Awaitable[stubs.Answer]) -> bytes:
    return _encoded(await answer)


_NO_EXTENSIONS: Final = OrpcThat()
