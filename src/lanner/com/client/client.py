"""The COM client (MS-DCOM 3.2): activation, OXID resolution, references to remote objects, pings.

async with ComClient(credentials=Credentials("alice", "secret")) as client:
    info = await client.activate("beta", CLSID, IID)

The queue manager also uses it to call the event sinks of its clients. It does not trust such a
peer: when `peer` is given, the client connects to no other address, and SERVER_SETTINGS limits
time, connections, references and concurrent calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

from lanner.com.client.activation import OLDEST_VERSION, request_activation, server_alive
from lanner.com.client.calls import Calls, ClientSettings, check_hresult
from lanner.com.client.connections import Address, Connections
from lanner.com.client.pings import ComplexPing, SimplePing
from lanner.com.client.remote_interface import RemoteInterface
from lanner.com.client.tables import (
    HeldInterface,
    RemoteExporter,
    Resolver,
    level_for,
    negotiated,
    reference_parts,
    usable_addresses,
)
from lanner.com.constants import (
    E_INVALIDARG,
    E_NOINTERFACE,
    NCACN_IP_TCP,
    OR_INVALID_OXID,
    RPC_E_DISCONNECTED,
    RPC_E_INVALID_OBJREF,
    RPC_S_PROCNUM_OUT_OF_RANGE,
    RPC_S_SERVER_TOO_BUSY,
    succeeded,
    win32,
)
from lanner.com.interfaces import (
    COMPLEX_PING,
    IOBJECTEXPORTER,
    REM_ADD_REF,
    REM_QUERY_INTERFACE,
    REM_RELEASE,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SIMPLE_PING,
    RemInterfaceRef,
    RemQiResult,
)
from lanner.com.objects import ComError, ComObject
from lanner.com.objref import SORF_NOPING, DualStringArray, ObjRef, ObjRefStandard, StdObjRef
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lanner.com.activation_properties import ActivationReply
    from lanner.com.orpc import ComVersion
    from lanner.com.server.exporter import ObjectExporter
    from lanner.rpc.ndr import Value
    from lanner.rpc.security import Credentials

__all__ = ["SERVER_SETTINGS", "ClientSettings", "ComClient", "RemoteInterface"]

_LOG = logging.getLogger(__name__)

# The number of references to request at once, which is what Windows requests. A client that holds
# several can pass one on without a call.
_PUBLIC_REFS: Final = 5
# Not in the specification: the maximum number of references in one RemRelease.
_RELEASES_AT_ONCE: Final = 500

# Settings for a server that accepts references from its clients. Not in the specification.
SERVER_SETTINGS: Final = ClientSettings(
    connect_timeout=5.0,
    call_timeout=15.0,
    idle_timeout=5.0,
    max_connections=512,
    # A program with sinks takes two connections: one to its exporter and one to its resolver. On
    # Windows, the programs of a computer share the resolver.
    max_connections_per_host=128,
    max_interfaces=4096,
    max_interfaces_per_host=512,
    max_resolving=256,
    max_resolving_per_host=32,
    # All sinks may be called at the same time, and one program may hold all sinks of its computer.
    max_calls_per_exporter=1024,
)

_Addresses = tuple[Address, ...]


def _check_limit(count: int, limit: int | None, what: str) -> None:
    if limit is not None and count >= limit:
        raise ComError(RPC_S_SERVER_TOO_BUSY, f"{count} {what}, and the limit is {limit}")


class ComClient:
    """A client for remote objects, bound to one event loop."""

    def __init__(
        self,
        settings: ClientSettings | None = None,
        *,
        credentials: Credentials | None = None,
        auth_type: AuthType = AuthType.WINNT,
        exporter: ObjectExporter | None = None,
        local_address: str | None = None,
    ) -> None:
        """Create a client that calls with these credentials.

        `exporter` creates references to local objects. `local_address` is the source address of
        calls. A server that is bound to one address must call from it, because references to its
        objects name the source address of the call.
        """
        self.settings = ClientSettings() if settings is None else settings
        self.exporter = exporter
        connections = Connections(
            credentials,
            auth_type,
            connect_timeout=self.settings.connect_timeout,
            max_connections=self.settings.max_connections,
            max_connections_per_host=self.settings.max_connections_per_host,
            local_address=local_address,
        )
        self.calls = Calls(self.settings, connections)
        self._loop = asyncio.get_running_loop()
        # Resolvers, keyed by the addresses that references give for them. An OXID is unique only
        # within its resolver.
        self._resolvers: dict[_Addresses, Resolver] = {}
        self._exporters: dict[tuple[_Addresses, int], RemoteExporter] = {}
        # Keyed by host.
        self._resolving: Counter[str] = Counter()
        self._abandoned: deque[HeldInterface] = deque()
        self._to_release: dict[RemoteExporter, list[RemInterfaceRef]] = {}
        self._releasing: dict[RemoteExporter, asyncio.Task[None]] = {}
        self._pinging: asyncio.Task[None] | None = None
        self._hanging_up: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def interfaces(self) -> int:
        """The number of interfaces held."""
        return sum(len(exporter.interfaces) for exporter in self._exporters.values())

    # Activation (3.2.4.1.1)
    # --------------------------------------------------------------------------------------

    async def activate(self, host: str, clsid: UUID, iid: UUID, *, port: int | None = None) -> RemoteInterface:
        """Create an object of a class. Raise ComError on failure."""
        (found,) = await self.activate_all(host, clsid, (iid,), port=port)
        if isinstance(found, ComError):
            raise found
        return found

    async def activate_all(
        self,
        host: str,
        clsid: UUID,
        iids: Sequence[UUID],
        *,
        port: int | None = None,
        is_class_object: bool = False,
    ) -> list[RemoteInterface | ComError]:
        """Create an object and return several of its interfaces.

        With `is_class_object`, return interfaces of the class factory instead. An interface that is
        not available is represented by its ComError.
        """
        self._check()
        address = Address(host, self.settings.resolver_port if port is None else port)
        version = await server_alive(self.calls, address)
        reply = await request_activation(
            self.calls, address, version, clsid, tuple(iids), is_class_object=is_class_object
        )
        if len(reply.results) != len(iids):
            text = f"{len(iids)} interfaces were requested, and the server returned {len(reply.results)}"
            raise ComError(RPC_E_INVALID_OBJREF, text)
        found: list[RemoteInterface | ComError] = []
        for result in reply.results:
            if result.objref is None:
                hresult = E_NOINTERFACE if succeeded(result.hresult) else result.hresult
                found.append(ComError(hresult, f"{host}: class {clsid}, interface {result.iid}"))
            else:
                self._activated(address, reply, result.objref)
                found.append(await self.unmarshal(result.objref, result.iid))
        return found

    def _activated(self, address: Address, reply: ActivationReply, objref: ObjRef) -> None:
        """Record the exporter of a new object and the resolver of that exporter.

        MS-DCOM 3.2.4.1.1.3 and 3.2.4.1.2.3.
        """
        _, res_addr = reference_parts(objref)
        key = usable_addresses(res_addr.tcp(), self.settings.resolver_port)
        if (key, reply.oxid) in self._exporters:
            return
        resolver = self._resolvers.get(key)
        if resolver is None:
            resolver = self._resolvers[key] = Resolver(key)
            resolver.address = address
        self._exporters[key, reply.oxid] = self._exporter(
            resolver,
            reply.oxid,
            usable_addresses(reply.bindings.tcp(), None, first=address.host),
            reply.ipid_rem_unknown,
            reply.authn_hint,
            negotiated(reply.server_version, str(address)),
            reply.bindings,
        )

    def _exporter(
        self,
        resolver: Resolver,
        oxid: int,
        addresses: _Addresses,
        ipid_rem_unknown: UUID,
        authn_hint: int,
        version: ComVersion,
        bindings: DualStringArray,
    ) -> RemoteExporter:
        if not addresses:
            raise ComError(win32(OR_INVALID_OXID), f"exporter {oxid:#x} has no address that can be used")
        level = level_for(bindings, authn_hint, self.settings.level)
        return RemoteExporter(oxid, resolver, addresses, ipid_rem_unknown, level, version)

    # Unmarshaling (3.2.4.1.2)
    # ------------------------------------------------------------------------------------

    async def unmarshal(self, objref: ObjRef, iid: UUID | None = None, *, peer: str | None = None) -> RemoteInterface:
        """Unmarshal a reference to a remote object.

        `iid` is the wanted interface; the default is that of the reference. `peer` is the address
        of the sender: the client then calls no other address. Without `peer`, all addresses in the
        reference are trusted.
        """
        self._check()
        std, res_addr = reference_parts(objref)
        # An untrusted peer whose resolver lists no security bindings has no accounts. Lanner's own
        # Python clients are such peers.
        is_anonymous = peer is not None and not res_addr.security_bindings
        key = usable_addresses(res_addr.tcp(), self.settings.resolver_port, peer=peer, is_anonymous=is_anonymous)
        if not key:
            raise ComError(win32(OR_INVALID_OXID), "a reference without an address that can be used")
        exporter = self._exporters.get((key, std.oxid)) or await self._resolve(key, std.oxid, peer)
        remote = RemoteInterface(self, self._hold(exporter, objref.iid, std, res_addr))
        if not std.public_refs:
            await self._add_refs(remote.held)
        if iid in (None, objref.iid):
            return remote
        try:
            return await remote.query_interface(iid)
        finally:
            remote.release()

    async def unmarshal_any(
        self, objref: ObjRef | None, *, peer: str | None = None
    ) -> ComObject | RemoteInterface | None:
        """Unmarshal a reference from a call. It may be NULL or refer to a local object."""
        if objref is None:
            return None
        if self.exporter is not None:
            std, _ = reference_parts(objref)
            if std.oxid == self.exporter.oxid:
                local = await self.exporter.unmarshal(objref)
                if isinstance(local, ComObject):
                    return local
        return await self.unmarshal(objref, peer=peer)

    def _hold(self, exporter: RemoteExporter, iid: UUID, std: StdObjRef, res_addr: DualStringArray) -> HeldInterface:
        """Enter a reference in the tables (3.2.4.1.2.3.2)."""
        held = exporter.interfaces.get(std.ipid)
        if held is not None:
            held.public_refs += std.public_refs
            return held
        limits, resolver = self.settings, exporter.resolver
        of_host = sum(one.interfaces for one in self._resolvers.values() if one.host == resolver.host)
        _check_limit(self.interfaces, limits.max_interfaces, "interfaces of other computers are held")
        _check_limit(of_host, limits.max_interfaces_per_host, f"interfaces of {resolver.host} are held")
        held = HeldInterface(exporter, iid, std, res_addr)
        exporter.interfaces[std.ipid] = held
        resolver.interfaces += 1
        if exporter.idle is not None:
            exporter.idle.cancel()
            exporter.idle = None
        if held.is_pinged:
            resolver.pings.hold(held.oid)
            self._mind_pings()
        return held

    async def _resolve(self, key: _Addresses, oxid: int, peer: str | None) -> RemoteExporter:
        limits, host = self.settings, key[0].host
        _check_limit(self._resolving.total(), limits.max_resolving, "exporters are being resolved")
        _check_limit(self._resolving[host], limits.max_resolving_per_host, f"exporters of {host} are being resolved")
        resolver = self._resolvers.setdefault(key, Resolver(key, peer))
        self._resolving[host] += 1
        try:
            async with resolver.lock:
                found = self._exporters.get((key, oxid))
                if found is None:
                    found = self._exporters[key, oxid] = await self._resolved(resolver, oxid, peer)
                    self._let_rest(found)
                return found
        finally:
            self._resolving -= Counter({host: 1})
            self._hang_up(self._forget_resolver(resolver))

    async def _resolved(self, resolver: Resolver, oxid: int, peer: str | None) -> RemoteExporter:
        """Find the address at which the resolver answers and resolve the OXID there.

        MS-DCOM 3.2.4.1.2.1 and 3.2.4.1.2.2.
        """
        address = resolver.address
        if address is None:
            address = resolver.address = await self._first_alive(resolver.addresses, oxid)
        level = self.settings.resolver_level
        question = {"p_oxid": oxid, "c_requested_protseqs": 1, "ar_requested_protseqs": (NCACN_IP_TCP,)}
        try:
            answer = await self.calls.ask(address, level, IOBJECTEXPORTER, RESOLVE_OXID2, question)
            version = answer["p_com_version"]
        except ComError as error:
            if error.hresult != RPC_S_PROCNUM_OUT_OF_RANGE:
                raise
            answer = await self.calls.ask(address, level, IOBJECTEXPORTER, RESOLVE_OXID, question)
            version = OLDEST_VERSION
        check_hresult(win32(answer[RETURNS]), f"{address}: exporter {oxid:#x}")
        bindings: DualStringArray = answer["ppdsa_oxid_bindings"] or DualStringArray()
        return self._exporter(
            resolver,
            oxid,
            usable_addresses(bindings.tcp(), None, peer=peer, first=address.host, is_anonymous=address.is_anonymous),
            answer["pipid_rem_unknown"],
            answer["p_authn_hint"],
            negotiated(version, str(address)),
            bindings,
        )

    async def _first_alive(self, addresses: Iterable[Address], oxid: int) -> Address:
        problem = ""
        for address in addresses:
            try:
                await server_alive(self.calls, address)
            except ComError as error:
                problem = str(error)
                _LOG.debug("%s", error)
            else:
                return address
        raise ComError(win32(OR_INVALID_OXID), f"exporter {oxid:#x} cannot be resolved: {problem}")

    # References (3.2.4.3, 3.2.4.4)
    # -------------------------------------------------------------------------------

    async def query_interfaces(self, held: HeldInterface, iids: Sequence[UUID]) -> list[RemoteInterface | ComError]:
        """Return other interfaces of an object, or the error for each that it lacks (3.2.4.4.3)."""
        exporter = held.exporter
        question: dict[str, Value] = {
            "ripid": held.ipid,
            "c_refs": _PUBLIC_REFS,
            "c_iids": len(iids),
            "iids": tuple(iids),
        }
        answer = await self.calls.call_rem_unknown(exporter, REM_QUERY_INTERFACE, question)
        results: tuple[RemQiResult, ...] = answer["pp_qi_results"] or ()
        if len(results) != len(iids) or any(
            succeeded(one.hresult) and one.std.oxid != exporter.oxid for one in results
        ):
            raise ComError(RPC_E_INVALID_OBJREF, f"{exporter}: {len(results)} results for {len(iids)} interfaces")
        return [
            RemoteInterface(self, self._hold(exporter, iid, result.std, held.res_addr))
            if succeeded(result.hresult)
            else ComError(result.hresult, f"{exporter}: no interface {iid}")
            for iid, result in zip(iids, results, strict=True)
        ]

    async def _add_refs(self, held: HeldInterface) -> None:
        """Acquire more references (3.2.4.4.1)."""
        more = RemInterfaceRef(held.ipid, _PUBLIC_REFS, 0)
        answer = await self.calls.call_rem_unknown(
            held.exporter, REM_ADD_REF, {"c_interface_refs": 1, "interface_refs": (more,)}
        )
        check_hresult(answer["p_results"][0], f"{held.exporter}: RemAddRef")
        held.public_refs += _PUBLIC_REFS

    def marshal(self, value: Value, iid: UUID, reached: str = "") -> ObjRef:
        """Return a reference to a local object, for a peer that reaches us at `reached`."""
        if not isinstance(value, ComObject) or self.exporter is None:
            raise ComError(E_INVALIDARG, f"this client cannot pass a {type(value).__name__} to another computer")
        return self.exporter.marshal(value, iid, reached=reached)

    def knows(self, objref: ObjRef) -> bool:
        """Return whether a reference belongs to an exporter that is already in use."""
        std, res_addr = reference_parts(objref)
        return (usable_addresses(res_addr.tcp(), self.settings.resolver_port), std.oxid) in self._exporters

    async def reference(self, held: HeldInterface) -> ObjRefStandard:
        """Return one of our references, to be passed on (3.2.4.3)."""
        if held.public_refs <= 1:
            await self._add_refs(held)
        held.public_refs -= 1
        # 3.2.4.3 states the opposite, in conflict with 3.2.4.1.2.3.2: if we ping the object, the
        # next holder must ping it too.
        flags = 0 if held.is_pinged else SORF_NOPING
        std = StdObjRef(flags, 1, held.exporter.oxid, held.oid, held.ipid)
        return ObjRefStandard(held.iid, std, held.res_addr)

    def abandon(self, held: HeldInterface) -> None:
        """Record that a RemoteInterface is no longer used.

        Finalizers call this too, in any thread, so it only records the fact.
        """
        self._abandoned.append(held)
        try:
            self._loop.call_soon_threadsafe(self._let_go)
        except RuntimeError:
            _LOG.debug("the event loop has ended: %s releases its references when it misses our pings", held.exporter)

    def _let_go(self) -> None:
        """Queue the release of interfaces that no RemoteInterface holds (3.2.4.4.2)."""
        while self._abandoned:
            held = self._abandoned.popleft()
            held.handles -= 1
            exporter = held.exporter
            if held.handles or exporter.interfaces.get(held.ipid) is not held:
                continue
            del exporter.interfaces[held.ipid]
            exporter.resolver.interfaces -= 1
            if held.is_pinged:
                exporter.resolver.pings.let_go(held.oid)
            self._to_release.setdefault(exporter, []).append(RemInterfaceRef(held.ipid, held.public_refs, 0))
            self._let_rest(exporter)
        if not self._is_closed:
            self._release_all()

    def _release_all(self) -> None:
        """Release references per exporter, so that an unresponsive one delays no other."""
        for exporter in self._to_release.keys() - self._releasing.keys():
            task = self._releasing[exporter] = self._loop.create_task(self._release(exporter))
            task.add_done_callback(partial(self._released, exporter))

    def _released(self, exporter: RemoteExporter, task: asyncio.Task[None]) -> None:
        del task
        del self._releasing[exporter]
        # References may have been added since the last batch.
        if exporter in self._to_release:
            self._release_all()

    async def _release(self, exporter: RemoteExporter) -> None:
        while references := self._to_release.get(exporter):
            batch = tuple(references[:_RELEASES_AT_ONCE])
            del references[:_RELEASES_AT_ONCE]
            if not references:
                del self._to_release[exporter]
            try:
                async with asyncio.timeout(self.settings.connect_timeout):
                    await self.calls.call_rem_unknown(
                        exporter, REM_RELEASE, {"c_interface_refs": len(batch), "interface_refs": batch}
                    )
            except (ComError, TimeoutError) as error:
                # The pings have stopped, so the server releases the object later.
                _LOG.debug("%s: %d references were not released: %s", exporter, len(batch), error)
                self._to_release.pop(exporter, None)

    def _let_rest(self, exporter: RemoteExporter) -> None:
        """Schedule an exporter without held interfaces to be forgotten."""
        if exporter.idle is None and not exporter.interfaces and not self._is_closed:
            exporter.idle = self._loop.call_later(self.settings.idle_timeout, self._is_idle, exporter)

    def _is_idle(self, exporter: RemoteExporter) -> None:
        exporter.idle = None
        if exporter.interfaces:
            return
        if exporter.calls or exporter in self._releasing:
            self._let_rest(exporter)
            return
        self._exporters = {key: one for key, one in self._exporters.items() if one is not exporter}
        self._hang_up([*exporter.addresses, *self._forget_resolver(exporter.resolver)])

    def _forget_resolver(self, resolver: Resolver) -> _Addresses:
        """Forget a resolver that no known exporter uses.

        Return the addresses where it was reached.
        """
        if resolver.lock.locked() or any(one.resolver is resolver for one in self._exporters.values()):
            return ()
        # Objects that are no longer held leave the ping set by themselves.
        self._resolvers = {key: one for key, one in self._resolvers.items() if one is not resolver}
        return resolver.addresses if resolver.address is None else (resolver.address,)

    def _hang_up(self, addresses: Iterable[Address]) -> None:
        known: list[RemoteExporter | Resolver] = [*self._exporters.values(), *self._resolvers.values()]
        needed = {address for one in known for address in one.addresses} | {one.address for one in known}
        for address in set(addresses) - needed:
            task = self._loop.create_task(self.calls.connections.close_to(address))
            self._hanging_up.add(task)
            task.add_done_callback(self._hanging_up.discard)

    # Pings (3.2.6.1)
    # ---------------------------------------------------------------------------------------------

    def _mind_pings(self) -> None:
        if self._pinging is None or self._pinging.done():
            self._pinging = self._loop.create_task(self._keep_pinging())

    async def _keep_pinging(self) -> None:
        while any(not resolver.pings.is_over for resolver in self._resolvers.values()):
            await asyncio.sleep(self.settings.ping_period)
            await self.ping()

    async def ping(self) -> None:
        """Ping all resolvers concurrently.

        In sequence, a slow resolver could cost the others their objects.
        """
        await asyncio.gather(*[self._ping(resolver) for resolver in list(self._resolvers.values())])

    async def _ping(self, resolver: Resolver) -> None:
        ping = resolver.pings.next_ping()
        if ping is None or resolver.address is None:
            return
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                await self._send_ping(resolver, resolver.address, ping)
                # Send what did not fit into one ping. A set that the resolver lost is rebuilt at
                # once.
                while (more := resolver.pings.change()) is not None:
                    await self._send_ping(resolver, resolver.address, more)
        except (ComError, TimeoutError) as error:
            _LOG.info("%s does not answer pings: %s", resolver.address, str(error) or "no answer")

    async def _send_ping(self, resolver: Resolver, address: Address, ping: SimplePing | ComplexPing) -> None:
        level = self.settings.resolver_level
        if isinstance(ping, SimplePing):
            answer = await self.calls.ask(address, level, IOBJECTEXPORTER, SIMPLE_PING, {"p_set_id": ping.set_id})
            resolver.pings.answered(ping, answer[RETURNS])
            return
        arguments: dict[str, Value] = {
            "p_set_id": ping.set_id,
            "sequence_num": ping.sequence,
            "c_add_to_set": len(ping.added),
            "c_del_from_set": len(ping.removed),
            "add_to_set": ping.added or None,
            "del_from_set": ping.removed or None,
        }
        answer = await self.calls.ask(address, level, IOBJECTEXPORTER, COMPLEX_PING, arguments)
        resolver.pings.answered(ping, answer[RETURNS], answer["p_set_id"])
        # Raise on failure; otherwise the loop would resend the ping immediately, again and again.
        check_hresult(win32(answer[RETURNS]), f"{address}: ComplexPing")

    # The end
    # ----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closed:
            raise ComError(RPC_E_DISCONNECTED, "the client is closed")

    async def close(self) -> None:
        """Release everything and disconnect. Closing twice is harmless."""
        if self._is_closed:
            return
        self._is_closed = True
        tasks = [task for task in (self._pinging, *self._hanging_up) if task is not None]
        if self._pinging is not None:
            self._pinging.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for exporter in self._exporters.values():
            if exporter.idle is not None:
                exporter.idle.cancel()
            given_back = [RemInterfaceRef(one.ipid, one.public_refs, 0) for one in exporter.interfaces.values()]
            if given_back:
                self._to_release.setdefault(exporter, []).extend(given_back)
                exporter.interfaces.clear()
        while self._to_release or self._releasing:
            self._release_all()
            await asyncio.wait(self._releasing.values())
        self._exporters.clear()
        self._resolvers.clear()
        await self.calls.connections.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        await self.close()
