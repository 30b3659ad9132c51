"""One interface of a remote object, as a Python object."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from lanner.com.automation.stubs import stub_of
from lanner.com.client.dispatch import DISPATCH_METHOD, invoke
from lanner.com.constants import succeeded, win32
from lanner.com.objects import ComError, ComObject
from lanner.com.orpc import ORPCTHAT, ORPCTHIS, OrpcThis
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.faults import FaultStatus
from lanner.rpc.ndr import Decoder, Encoder, Syntax, Value, representation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lanner.com.automation.values import Variant
    from lanner.com.client.client import ComClient
    from lanner.com.client.tables import HeldInterface
    from lanner.com.members import Member
    from lanner.com.objref import ObjRefStandard
    from lanner.rpc.interface import Method


class RemoteInterface:
    """An interface of a remote object.

    It is released by `release`, or when Python drops the last reference to it.
    """

    def __init__(self, client: ComClient, held: HeldInterface) -> None:
        self.client = client
        self.held = held
        held.handles += 1
        self._finalizer = weakref.finalize(self, client.abandon, held)
        # At interpreter exit the loop no longer exists. Closing the client releases the interface
        # earlier.
        self._finalizer.atexit = False

    @property
    def iid(self) -> UUID:
        return self.held.iid

    @property
    def ipid(self) -> UUID:
        return self.held.ipid

    @property
    def oid(self) -> int:
        return self.held.oid

    @property
    def is_released(self) -> bool:
        return not self._finalizer.alive

    def __repr__(self) -> str:
        return f"<interface {self.iid} of object {self.oid:#x} at {self.held.exporter}>"

    def is_same_object(self, other: RemoteInterface) -> bool:
        """Return whether both are interfaces of the same object (MS-DCOM 1.3.2)."""
        return self.oid == other.oid and self.held.exporter is other.held.exporter

    async def call_method(self, method: Method, **arguments: Value) -> dict[str, Value]:
        """Call a method declared as RPC. Return its out parameters.

        "returns" has the HRESULT, which is a success code.
        """
        return await self.client.calls.call_method(self.held.exporter, self.iid, self.ipid, method, arguments)

    async def call(self, member: Member, *arguments: Value) -> list[Value]:
        """Call a member through the vtable. Return all its out parameters, in IDL order.

        The arguments are its in parameters, in IDL order. Local objects among them are exported,
        and references in the result can be called. Raise ComError on failure.
        """
        results, hresult = await self.call_with_result(member, *arguments)
        if not succeeded(hresult):
            raise ComError(hresult, f"{self.held.exporter}: {member.name}")
        return results

    async def call_with_result(
        self,
        member: Member,
        *arguments: Value,
        timeout: float | None = None,  # noqa: ASYNC109 (as for every call here)
    ) -> tuple[list[Value], int]:
        """Call a member like `call`, and also return the result code, even of a failure."""
        stub, client, exporter = stub_of(member), self.client, self.held.exporter
        given: Sequence[Value] = arguments
        objects = stub.references(list(arguments))
        reached = ""
        if any(isinstance(each, ComObject) for each in objects):
            reached = await client.calls.local_address(exporter)
        if objects:
            given = stub.with_objects(list(arguments), [await _passed_on(each) for each in objects])
        encoder = Encoder(representation(Syntax.NDR20))
        ORPCTHIS.encode(encoder, OrpcThis.of(uuid4(), exporter.version))
        stub.encode_request(encoder, given, lambda value, iid: client.marshal(value, iid, reached))
        answer = await client.calls.request(exporter, self.iid, self.ipid, member.opnum, encoder.getvalue(), timeout)
        decoder = Decoder(answer.stub, representation(Syntax.NDR20, "little" if answer.is_little else "big"))
        try:
            ORPCTHAT.decode(decoder)
            results, hresult = stub.decode_response(decoder, given)
        except RemoteProtocolError as error:
            raise ComError(win32(FaultStatus.BAD_STUB_DATA), f"{exporter}: {error}") from error
        references = stub.response_references(results)
        if references:
            found = [await client.unmarshal_any(objref, peer=exporter.resolver.peer) for objref in references]
            results = stub.response_with_objects(results, found)
        return results, hresult

    async def invoke_dispatch(
        self,
        dispid: int,
        arguments: Sequence[Value] = (),
        *,
        flags: int = DISPATCH_METHOD,
        named: Sequence[int] = (),
        timeout: float | None = None,  # noqa: ASYNC109 (as for every call here)
    ) -> Variant:
        """Call a member by DISPID, as event sinks are called.

        Arguments are Variants, or values that can be converted to them.
        """
        result, _ = await invoke(self, dispid, arguments, flags=flags, named=named, timeout=timeout)
        return result

    async def query_interface(self, iid: UUID) -> RemoteInterface:
        """Return another interface of the same object.

        Raise ComError E_NOINTERFACE if it is missing.
        """
        (found,) = await self.client.query_interfaces(self.held, (iid,))
        if isinstance(found, ComError):
            raise found
        return found

    async def reference(self) -> ObjRefStandard:
        """Return a reference to be passed on."""
        return await self.client.reference(self.held)

    def release(self) -> None:
        """Release the interface. Calling this twice is harmless.

        The server is notified shortly afterwards, in a batch.
        """
        self._finalizer()


async def _passed_on(value: Value) -> Value:
    return await value.reference() if isinstance(value, RemoteInterface) else value
