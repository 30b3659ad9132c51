"""A connection by Microsoft's protocols: MS-MQMP, MS-MQMR, and MS-MQRR or MS-MQQP for reads."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from lanner.client._async.mqrr_reader import MqrrReader
from lanner.client._async.remote_reader import RemoteReader
from lanner.client.target import check, first_contact
from lanner.rpc.faults import InterfaceRefused
from lanner.services.interfaces.mqmp import QMCOMM

if TYPE_CHECKING:
    from uuid import UUID

    from lanner.client._async.msmq_handles import Handle
    from lanner.client.target import Target
    from lanner.rpc.async_client import BoundInterface
    from lanner.rpc.interface import Interface, Method
    from lanner.rpc.ndr import Value

# MS-MQQP 3.2.4.1: "the QueueManager.Identifier of the queue manager". A program has none, so it
# uses a random one (DECISIONS).
CLIENT_ID: Final = uuid4()


class MsmqConnection:
    """One connection, or two if remote reads have a port of their own.

    Context handles end with their connection.
    """

    def __init__(self, reader: MqrrReader | RemoteReader) -> None:
        self.reader = reader
        self._client = reader.handshake_client
        self._bound: dict[UUID, BoundInterface] = {QMCOMM.uuid: reader.handshake}
        # Handles that no program can reach any more, to be closed at the next opportunity.
        self.abandoned: deque[Handle] = deque()

    @classmethod
    async def make(cls, target: Target) -> MsmqConnection:
        """Connect to the interfaces that are always needed; bind others on first use.

        Queues are read by MS-MQRR if it is served, else by MS-MQQP (MS-MQRR 3.2.4.1).
        """
        with first_contact(target):
            reader: MqrrReader | RemoteReader
            try:
                reader = await MqrrReader.connect(target, client_id=CLIENT_ID)
            except InterfaceRefused:
                reader = await RemoteReader.connect(target, client_id=CLIENT_ID)
            try:
                # A wrong password is refused only at the first call.
                await reader.check()
            except BaseException:
                await reader.close()
                raise
        return cls(reader)

    @property
    def is_open(self) -> bool:
        return self._client.is_open and self.reader.reading_client.is_open

    async def close(self) -> None:
        await self.reader.close()

    async def bound(self, interface: Interface) -> BoundInterface:
        """Return an interface on this connection; InterfaceRefused if it is not served."""
        found = self._bound.get(interface.uuid)
        if found is None:
            found = self._bound[interface.uuid] = await self._client.bind(interface)
        return found

    async def call(self, interface: Interface, method: Method, **arguments: Value) -> dict[str, Any]:
        """Return the results of a call; raise the exception of its status on failure."""
        results = await (await self.bound(interface)).call(method, **arguments)
        check(results)
        return results
