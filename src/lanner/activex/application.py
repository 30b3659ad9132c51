"""MSMQApplication: the queue manager of this or another computer (MC-MQAC 3.2)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lanner.activex import arguments
from lanner.activex.management_binding import ManagementBinding
from lanner.activex.tables import MSMQ_APPLICATION
from lanner.com.automation.values import SafeArray, Variant
from lanner.com.constants import E_NOTIMPL
from lanner.com.objects import ComError, ComObject, Success
from lanner.directory import AttributeFilter, Operator
from lanner.model.directory_objects import QueueManager
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import (
    DsError,
    IllegalUser,
    InvalidParameter,
    MachineNotFound,
    NoDs,
    NoInternalUserCert,
    StatusError,
)
from lanner.wire.property_ids import ManagementMachineProperty
from lanner.wire.vartypes import VT

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall
    from lanner.security.identity import Identity

# 3.2.4.2.1 MQCERT_REGISTER.
_ALWAYS: Final = 1
_IF_NOT_EXIST: Final = 2
# MS-MQMQ 2.4.
MQ_INFORMATION_INTERNAL_USER_CERT_EXIST: Final = 0x400E_000A
# Notes 13 to 15: the version of MSMQ 4.0, the latest in the document.
_VERSION: Final = (4, 1, 6000)
_NOTHING: Final = frozenset((VT.EMPTY, VT.NULL))


class MSMQApplication(ComObject):
    """3.2 MSMQApplication."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_APPLICATION.interfaces

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        # None means this computer.
        self._computer_name: str | None = None

    @property
    def octets(self) -> int:
        return len(self._computer_name or "")

    # The directory
    # ----------------------------------------------------------------------------------------------

    def machine_id_of_machine_name(self, call: ComCall, machine_name: str | None) -> str:
        """Return the identifier of a computer by name (3.2.4.1.1)."""
        del call
        name = machine_name or self._environment.engine.queue_manager.computer_name
        attributes = ("ComputerName", "QualifiedComputerName") if "." in name else ("ComputerName",)
        return str(
            self._read_queue_manager(
                name, *(AttributeFilter(one, Operator.EQUALS, name) for one in attributes)
            ).identifier
        )

    def machine_name_of_machine_id(self, call: ComCall, bstr_guid: str | None) -> str:
        """Return the name of a computer by identifier (3.2.4.2.2)."""
        del call
        identifier = arguments.from_guid(bstr_guid or "", "bstrGuid")
        by_identifier = AttributeFilter("Identifier", Operator.EQUALS, identifier)
        return self._read_queue_manager(str(identifier), by_identifier).computer_name

    def _read_queue_manager(self, what: str, *filters: AttributeFilter) -> QueueManager:
        """Return the queue manager that the first successful filter finds."""
        result = DirectoryOperationResult.OBJECT_NOT_FOUND
        with self._environment.lock:
            for one in filters:
                result, found = self._environment.engine.read_directory("QueueManager", [one])
                if result is DirectoryOperationResult.SUCCESS and isinstance(found, QueueManager):
                    return found
                if result is not DirectoryOperationResult.OBJECT_NOT_FOUND:
                    break
        raise _directory_error(result, what)

    def get_is_ds_enabled(self, call: ComCall) -> bool:
        """Return IsDsEnabled (3.2.4.2.6)."""
        del call
        self._require_local()
        return self._environment.engine.queue_manager.directory_integrated

    # Certificates
    # ----------------------------------------------------------------------------------------------

    async def register_certificate(
        self, call: ComCall, flags: Variant, external_certificate: Variant
    ) -> Success | None:
        """Register a certificate for the caller (3.2.4.2.1)."""
        if self._computer_name is not None:
            raise ComError(E_NOTIMPL, "certificates are registered for users of this computer")
        number = arguments.number(flags, _ALWAYS, "Flags")
        if number not in (_ALWAYS, _IF_NOT_EXIST):
            raise InvalidParameter(f"Flags {number:#x}")
        external = _octets(external_certificate)
        if external is None:
            return await self._register_internal(call.identity, is_always=number == _ALWAYS)
        if number == _IF_NOT_EXIST:
            raise InvalidParameter("MQCERT_REGISTER_IF_NOT_EXIST is for internal certificates")
        await self._register(call.identity, external)
        return None

    async def _register(self, identity: Identity, certificate: bytes) -> None:
        if identity.is_anonymous:
            raise IllegalUser(f"{identity.name} has no account, so the directory cannot keep its certificates")
        environment = self._environment
        with environment.committer.change() as change:
            is_written = environment.engine.register_certificate(identity, certificate)
        if not is_written:
            raise DsError(f"the directory refused a certificate of {identity.name}")
        await change

    async def _register_internal(self, identity: Identity, *, is_always: bool) -> Success | None:
        environment = self._environment
        certificates = environment.certificates
        if certificates is None:
            raise NoInternalUserCert("this queue manager makes no internal certificates")
        old = await environment.in_thread(identity, partial(certificates.find, str(identity.sid)))
        if old is not None:
            if not is_always:
                return Success(MQ_INFORMATION_INTERNAL_USER_CERT_EXIST)
            # Check whether the directory accepts the certificate, before anything is lost.
            await self._register(identity, old.certificate)
            with environment.lock:
                is_written = environment.engine.unregister_certificate(identity, old.certificate)
            if not is_written:
                raise DsError(f"the directory did not remove a certificate of {identity.name}")
            await environment.in_thread(identity, partial(certificates.remove, str(identity.sid)))
        elif identity.is_anonymous:
            raise IllegalUser(f"{identity.name} has no account, so there is no internal certificate for it")
        made = await environment.internal_signing_key(identity)
        # internal_signing_key ignores a rejection by the directory; this call raises it.
        await self._register(identity, made.certificate)
        return None

    # The version
    # ----------------------------------------------------------------------------------------------

    def get_msmq_version_major(self, call: ComCall) -> int:
        """Return MSMQVersionMajor (3.2.4.2.3)."""
        del call
        return self._version(0)

    def get_msmq_version_minor(self, call: ComCall) -> int:
        """Return MSMQVersionMinor (3.2.4.2.4)."""
        del call
        return self._version(1)

    def get_msmq_version_build(self, call: ComCall) -> int:
        """Return MSMQVersionBuild (3.2.4.2.5)."""
        del call
        return self._version(2)

    def _version(self, place: int) -> int:
        self._require_local()
        return _VERSION[place]

    def _require_local(self) -> None:
        if self._computer_name is not None:
            raise InvalidParameter(f"this cannot be read from {self._computer_name}")

    # The queue manager
    # --------------------------------------------------------------------------------------------

    async def active_queues(self, call: ComCall) -> Variant:
        """Return ActiveQueues (3.2.4.3.1)."""
        return _strings(await self._property(call, ManagementMachineProperty.ACTIVEQUEUES))

    async def get_private_queues(self, call: ComCall) -> Variant:
        """Return PrivateQueues (3.2.4.3.2)."""
        return _strings(await self._property(call, ManagementMachineProperty.PRIVATEQ))

    async def get_directory_service_server(self, call: ComCall) -> str:
        """Return DirectoryServiceServer (3.2.4.3.3)."""
        name = await self._property(call, ManagementMachineProperty.DSSERVER)
        if name is None:
            raise NoDs(f"{self._machine} has no directory server")
        return str(name)

    async def get_is_connected(self, call: ComCall) -> bool:
        """Return IsConnected (3.2.4.3.4)."""
        return bool(await self._property(call, ManagementMachineProperty.CONNECTED) == "CONNECTED")

    async def get_bytes_in_all_queues(self, call: ComCall) -> Variant:
        """Return BytesInAllQueues (3.2.4.3.5)."""
        return Variant(VT.I8, await self._property(call, ManagementMachineProperty.BYTES_IN_ALL_QUEUES))

    async def _property(self, call: ComCall, identifier: ManagementMachineProperty) -> Any:  # noqa: ANN401 (as the property is)
        (variant,) = await self._binding.get_info(call.identity, None, identifier)
        return variant.value

    @property
    def _binding(self) -> ManagementBinding:
        return ManagementBinding(self._environment, self._computer_name)

    def put_machine(self, call: ComCall, value: str | None) -> None:
        """Set Machine (3.2.4.3.6)."""
        del call
        self._computer_name = value or None

    def get_machine(self, call: ComCall) -> str:
        """Return Machine (3.2.4.3.7)."""
        del call
        return self._machine

    @property
    def _machine(self) -> str:
        return self._computer_name or self._environment.engine.queue_manager.computer_name

    async def connect(self, call: ComCall) -> None:
        """Connect the queue manager to the network (3.2.4.3.8)."""
        await self._binding.action(call.identity, None, "CONNECT")

    async def disconnect(self, call: ComCall) -> None:
        """Disconnect the queue manager from the network (3.2.4.3.9)."""
        await self._binding.action(call.identity, None, "DISCONNECT")

    async def tidy(self, call: ComCall) -> None:
        """Request Tidy (3.2.4.3.10)."""
        await self._binding.action(call.identity, None, "TIDY")


def _directory_error(result: DirectoryOperationResult, what: str) -> StatusError:
    text = f"{what}: {result.value}"
    if result is DirectoryOperationResult.OBJECT_NOT_FOUND:
        return MachineNotFound(text)
    return NoDs(text) if result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED else DsError(text)


def _strings(values: tuple[str, ...] | None) -> Variant:
    return Variant(VT.ARRAY | VT.BSTR, SafeArray.of(VT.BSTR, values or ()))


def _octets(variant: Variant) -> bytes | None:
    """Return a byte array, or None for any form of NULL."""
    found = arguments.given(variant)
    if found is None or found.vt in _NOTHING:
        return None
    if found.vt != VT.ARRAY | VT.UI1:
        raise arguments.wrong_type(found, "ExternalCertificate")
    return found.value or None
