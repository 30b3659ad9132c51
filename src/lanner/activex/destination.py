"""MSMQDestination: one or more queues to send to (MC-MQAC 3.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from lanner.activex import arguments
from lanner.activex.names import format_name_from_ads_path, format_name_from_path, read_format_name
from lanner.activex.tables import MSMQ_DESTINATION
from lanner.com.automation.values import Variant
from lanner.com.constants import S_FALSE
from lanner.com.objects import ComObject, Success
from lanner.model.enums import QueueAccessType
from lanner.model.errors import IllegalFormatname, InvalidHandle
from lanner.wire.spelling import without_prefix
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.model.live import OpenQueueDescriptor
    from lanner.security.identity import Identity

# The handle of no descriptor.
_NO_HANDLE: Final = 0


class MSMQDestination(ComObject):
    """3.12 MSMQDestination."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_DESTINATION.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._descriptor: OpenQueueDescriptor | None = None
        # Whether this object opened it. An attached one is closed by the object that opened it.
        self._is_own = False
        self.format_name: str | None = None
        self._directory_path: str | None = None
        self._path_name: str | None = None

    @property
    def descriptor(self) -> OpenQueueDescriptor | None:
        """The open queue or queues, or None if never opened or closed."""
        descriptor = self._descriptor
        return None if descriptor is None or descriptor.is_closed else descriptor

    @property
    def octets(self) -> int:
        return sum([len(text) for text in (self.format_name, self._directory_path, self._path_name) if text])

    def released(self) -> None:
        self._close()

    # Open and close
    # ----------------------------------------------------------------------------------------------

    async def open(self, call: ComCall) -> Success | None:
        """Open the queues (3.12.4.1.1)."""
        if self.descriptor is not None:
            return Success(S_FALSE)
        await self._open(call.identity)
        return None

    async def _open(self, identity: Identity) -> None:
        if self.format_name is None:
            raise IllegalFormatname("no queue is named")
        name = read_format_name(self._environment, self.format_name)
        environment = self._environment
        with environment.committer.change() as change:
            descriptor = environment.engine.open_queue(name, QueueAccessType.SEND, identity=identity)
        self._descriptor, self._is_own = descriptor, True
        try:
            # Opening may have created an outgoing queue.
            await change
        except BaseException:
            self._close()
            raise

    def close(self, call: ComCall) -> Success | None:
        """Close the queues (3.12.4.1.2)."""
        del call
        if self.descriptor is None:
            return Success(S_FALSE)
        self._close()
        return None

    def _close(self) -> None:
        descriptor, self._descriptor = self.descriptor, None
        if descriptor is None or not self._is_own:
            return
        environment = self._environment
        with environment.committer.change() as change:
            environment.engine.close_queue(descriptor)
        change.soon()

    def get_is_open(self, call: ComCall) -> bool:
        """Return IsOpen (3.12.4.1.3)."""
        del call
        return self.descriptor is not None

    # Names
    # ----------------------------------------------------------------------------------------------

    def get_ads_path(self, call: ComCall) -> str | None:
        """Return ADsPath (3.12.4.1.6)."""
        del call
        return self._directory_path

    async def put_ads_path(self, call: ComCall, value: str | None) -> None:
        """Set ADsPath (3.12.4.1.7). If the queue cannot be found, nothing changes."""
        self.format_name = format_name_from_ads_path(self._environment, value or "")
        self._directory_path, self._path_name = value, None
        await self._reopen(call)

    def get_path_name(self, call: ComCall) -> str:
        """Return PathName (3.12.4.1.8)."""
        del call
        return self._path_name or ""

    async def put_path_name(self, call: ComCall, value: str | None) -> None:
        """Set PathName (3.12.4.1.9). If the queue cannot be found, nothing changes."""
        self.format_name = format_name_from_path(self._environment, value or "")
        self._directory_path, self._path_name = None, value
        await self._reopen(call)

    def get_format_name(self, call: ComCall) -> str | None:
        """Return FormatName (3.12.4.1.10)."""
        del call
        return self.format_name

    async def put_format_name(self, call: ComCall, value: str | None) -> None:
        """Set FormatName (3.12.4.1.11), of one or several queues. Open checks it."""
        self.format_name = None if value is None else without_prefix(value)
        self._directory_path = self._path_name = None
        await self._reopen(call)

    async def _reopen(self, call: ComCall) -> None:
        if self.descriptor is not None:
            self._close()
            await self._open(call.identity)

    # IMSMQPrivateDestination
    # --------------------------------------------------------------------------------------

    def get_handle(self, call: ComCall) -> Variant:
        """Return Handle (3.12.4.2.1)."""
        del call
        descriptor = self.descriptor
        return Variant(VT.I8, _NO_HANDLE if descriptor is None else descriptor.handle)

    def put_handle(self, call: ComCall, value: Variant) -> None:
        """Attach an open handle (3.12.4.2.2).

        The handle keeps the identity of the user that opened it: messages are sent in that user's
        name.
        """
        handle = arguments.dereferenced(value)
        number = int(handle.value) if handle.vt in arguments.INTEGERS else _NO_HANDLE
        self._close()
        self._path_name = self._directory_path = None
        with self._environment.lock:
            try:
                descriptor = self._environment.engine.descriptor(number)
            except InvalidHandle:
                return
        if call.identity.is_administrator or descriptor.sender_identifier == call.identity.sid.pack():
            self._descriptor, self._is_own = descriptor, False
