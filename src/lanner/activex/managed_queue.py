"""IMSMQManagement: the common part of the three management coclasses (MC-MQAC 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.activex import arguments
from lanner.activex.management_binding import ManagementBinding
from lanner.activex.names import format_name_from_path, read_format_name
from lanner.com.automation.values import Variant
from lanner.com.objects import ComObject
from lanner.model.errors import GenericError, InvalidParameter, UninitializedObject
from lanner.wire.format_name import FormatName
from lanner.wire.property_ids import ManagementQueueProperty
from lanner.wire.vartypes import MAX_I4, VT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.activex.environment import Environment
    from lanner.com.objects import ComCall
    from lanner.wire.propvariant import Value

_REMOTE: Final = "REMOTE"
_LOCATIONS: Final = {"LOCAL": True, _REMOTE: False}
# 3.3.4.1.5 FOREIGN_STATUS, 3.3.4.1.8 XACT_STATUS.
_YES, _NO, _UNKNOWN = 0, 1, 2
_YES_OR_NO: Final = {"YES": _YES, "NO": _NO, "UNKNOWN": _UNKNOWN}
# 3.3.4.1.6 QUEUE_TYPE.
_PUBLIC: Final = 0
_TYPES: Final = {"PUBLIC": _PUBLIC, "PRIVATE": 1, "MACHINE": 2, "CONNECTOR": 3, "MULTICAST": 4}


class ManagedQueue(ComObject):
    """A queue from an administrator's point of view."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._computer_name: str | None = None
        self._queue_format_name = ""
        self._binding: ManagementBinding | None = None
        self._queue: FormatName | None = None
        self.queue_is_outgoing = False

    @property
    def object_is_initialized(self) -> bool:
        return self._queue is not None

    @property
    def octets(self) -> int:
        return len(self._computer_name or "") + len(self._queue_format_name)

    def released(self) -> None:
        self._binding = self._queue = None

    async def init(self, call: ComCall, machine: Variant, pathname: Variant, format_name: Variant) -> None:
        """Bind the object to a queue (3.3.4.1.1 Init)."""
        self._queue = None
        self.queue_is_outgoing = False
        computer = arguments.text(machine, "Machine") or None
        path = arguments.text(pathname, "Pathname") or None
        name = arguments.text(format_name, "FormatName") or None
        if name is None and path is not None:
            name = format_name_from_path(self._environment, path)
        elif name is None or path is not None:
            raise InvalidParameter("either Pathname or FormatName is needed, not both")
        queue = read_format_name(self._environment, name)
        binding = ManagementBinding(self._environment, computer)
        location = ManagementQueueProperty.LOCATION
        (told,) = await binding.get_info(call.identity, queue, location, only_active=True)
        self.queue_is_outgoing = not _chosen(location, told.value, _LOCATIONS)
        self._computer_name, self._queue_format_name = computer, name
        self._binding, self._queue = binding, queue

    # IMSMQManagement
    # ----------------------------------------------------------------------------------------------

    def get_format_name(self, call: ComCall) -> str:
        """Return FormatName as it was given (3.3.4.1.2)."""
        del call
        self._represented()
        return self._queue_format_name

    def get_machine(self, call: ComCall) -> str:
        """Return Machine (3.3.4.1.3)."""
        del call
        self._represented()
        return self._computer_name or self._environment.engine.queue_manager.computer_name

    async def get_message_count(self, call: ComCall) -> int:
        """Return MessageCount (3.3.4.1.4)."""
        return await self.long(call, ManagementQueueProperty.MESSAGE_COUNT)

    async def get_foreign_status(self, call: ComCall) -> int:
        """Return ForeignStatus (3.3.4.1.5)."""
        return await self.choice(call, ManagementQueueProperty.FOREIGN, _YES_OR_NO)

    async def get_queue_type(self, call: ComCall) -> int:
        """Return QueueType (3.3.4.1.6)."""
        return await self.choice(call, ManagementQueueProperty.TYPE, _TYPES)

    async def get_is_local(self, call: ComCall) -> bool:
        """Return IsLocal (3.3.4.1.7)."""
        return bool(await self.choice(call, ManagementQueueProperty.LOCATION, _LOCATIONS))

    async def get_transactional_status(self, call: ComCall) -> int:
        """Return TransactionalStatus (3.3.4.1.8).

        For a public queue, only a directory is authoritative. R_QMMgmtGetInfo answers without one,
        too, so this method returns "unknown" instead.
        """
        status = await self.choice(call, ManagementQueueProperty.XACT, _YES_OR_NO)
        is_here = self._represented()[0].is_here
        if is_here and not self._environment.engine.queue_manager.directory_integrated:
            return _UNKNOWN if await self.get_queue_type(call) == _PUBLIC else status
        return status

    async def get_bytes_in_queue(self, call: ComCall) -> Variant:
        """Return BytesInQueue (3.3.4.1.9)."""
        return Variant(VT.UI8, await self.number(call, ManagementQueueProperty.BYTES_IN_QUEUE))

    # For derived interfaces
    # -----------------------------------------------------------------------

    def _represented(self) -> tuple[ManagementBinding, FormatName]:
        if self._binding is None or self._queue is None:
            raise UninitializedObject("Init comes first")
        return self._binding, self._queue

    async def value(self, call: ComCall, identifier: ManagementQueueProperty) -> Value:
        """Return a property, or None for VT_NULL (3.3.6.2 QMMgmt Get Info)."""
        binding, queue = self._represented()
        (told,) = await binding.get_info(call.identity, queue, identifier)
        return told.value

    async def number(self, call: ComCall, identifier: ManagementQueueProperty) -> int:
        """Return a count; it is zero for a property that does not exist."""
        value = await self.value(call, identifier)
        if value is not None and not isinstance(value, int):
            raise GenericError(f"{identifier.spec_name} has the unexpected value {value!r}")
        return value or 0

    async def long(self, call: ComCall, identifier: ManagementQueueProperty) -> int:
        """Return a count as a long, limited to the range of that type."""
        return min(await self.number(call, identifier), MAX_I4)

    async def choice(self, call: ComCall, identifier: ManagementQueueProperty, numbers: Mapping[str, int]) -> int:
        """Return the number that a property's word stands for, without regard to case."""
        return _chosen(identifier, await self.value(call, identifier), numbers)

    async def act(self, call: ComCall, action: str) -> None:
        """Perform an action (3.3.6.3 QMMgmt Action)."""
        binding, queue = self._represented()
        await binding.action(call.identity, queue, action)


def _chosen(identifier: ManagementQueueProperty, value: Value, numbers: Mapping[str, int]) -> int:
    found = numbers.get(value.upper()) if isinstance(value, str) else None
    if found is None:
        raise GenericError(f"{identifier.spec_name} has the unexpected value {value!r}")
    return found
