"""The backend for a queue manager without Lanner's own interface: a Windows computer.

MS-MQMP sends, runs transactions, and creates and changes queues; MS-MQQP reads; MS-MQMR manages.
Requests that are for administrators there raise AccessDenied for other users. Operations that these
protocols lack raise UnsupportedOperation.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, cast

from lanner.client._async.connections import Connections
from lanner.client._async.msmq_connection import MsmqConnection
from lanner.client._async.msmq_queues import MsmqQueue
from lanner.client._async.msmq_transaction import MsmqTransaction, RemoteBranch
from lanner.client.msmq_queue_properties import ATTRIBUTES, CONTENTS, queue_of, set_attributes, to_properties
from lanner.host.names import QueueNames
from lanner.model.errors import (
    AccessDenied,
    QueueNotFound,
    SecurityDescriptorTooSmall,
    StatusError,
    UnsupportedFormatnameOperation,
    UnsupportedOperation,
)
from lanner.security.access_lists import SHOWN, AccessList, changed, new_descriptor
from lanner.security.accounts import Accounts
from lanner.services.interfaces.mqmp import (
    MAX_SECURITY_DESCRIPTOR_SIZE,
    QMCOMM,
    R_QM_CREATE_OBJECT_INTERNAL,
    R_QM_DELETE_OBJECT,
    R_QM_GET_OBJECT_PROPERTIES,
    R_QM_GET_OBJECT_SECURITY_INTERNAL,
    R_QM_SET_OBJECT_PROPERTIES,
    R_QM_SET_OBJECT_SECURITY_INTERNAL,
    ObjectFormat,
)
from lanner.services.interfaces.mqmr import QMMGMT, R_QM_MGMT_ACTION, R_QM_MGMT_GET_INFO
from lanner.services.management_client import action_arguments, get_info_arguments
from lanner.services.outgoing_documents import PROGRESS, Told, outgoing_document, values_of
from lanner.services.queue_formats import queue_format_of
from lanner.wire.format_name import parse
from lanner.wire.property_ids import (
    ManagementMachineProperty,
    ManagementQueueProperty,
    PropertyIdentifier,
    QueueProperty,
)
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import OWNER_RIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from lanner.client._async.backend import Backend, BackendQueue, BackendTransaction, Document
    from lanner.client.target import Target
    from lanner.model.branches import Branch
    from lanner.model.directory_objects import Queue as QueueObject
    from lanner.rpc.interface import Interface, Method
    from lanner.rpc.ndr import Value
    from lanner.security.access_lists import AccessChange
    from lanner.security.identity import Identity
    from lanner.security.signing import SigningKey
    from lanner.wire.format_name import FormatName

# Not in the specification: the size of the first buffer. A few entries need some hundred octets.
_USUAL_SECURITY_SIZE: Final = 4096
# The names of that computer's accounts cannot be looked up from here.
_ACCOUNTS: Final = Accounts()
# MS-MQMP 3.1.4.5 dwObjectType, 2.2.3.5 ObjType.
_MQDS_QUEUE: Final = 1


class MsmqBackend:
    """The access of the connection's user to a queue manager, by Microsoft's protocols."""

    def __init__(self, connections: Connections[MsmqConnection]) -> None:
        self.connections = connections
        # No protocol reports the queue manager's own name or its identifier.
        self.name = connections.target.host or "."
        self.identifier: UUID | None = None
        self.names = QueueNames(self.name)
        self.signing_key: SigningKey | None = None

    @classmethod
    async def connect(cls, target: Target) -> MsmqBackend:
        """Connect to a queue manager."""
        connections = Connections(target, MsmqConnection.make)
        try:
            await connections.now()
        except BaseException:
            await connections.close()
            raise
        return cls(connections)

    async def open(self) -> None:
        """Do nothing: the backend is connected when it is made."""

    async def close(self) -> None:
        await self.connections.close()

    def as_user(self, identity: Identity) -> Backend:
        raise UnsupportedOperation(f"{self.place} runs elsewhere: connect to it as {identity.name} instead")

    @property
    def place(self) -> str:
        return self.connections.target.place

    async def _call(self, what: str, interface: Interface, method: Method, **arguments: Value) -> dict[str, Any]:
        return await self.connections.do(what, lambda connection: connection.call(interface, method, **arguments))

    # Queues
    # ----------------------------------------------------------------------------------------------

    async def create_queue(
        self, path: str, attributes: Mapping[str, object], access: Mapping[str, list[str]] | str | None = None
    ) -> str:
        a_prop, ap_var = to_properties(attributes)
        # The user's SID is not known here; OWNER_RIGHTS stands for the owner and has the same
        # effect.
        security = None if access is None else new_descriptor(access, _ACCOUNTS, OWNER_RIGHTS).pack()
        await self._call(
            path,
            QMCOMM,
            R_QM_CREATE_OBJECT_INTERNAL,
            dw_object_type=_MQDS_QUEUE,
            lpwcs_path_name=path,
            sd_size=0 if security is None else len(security),
            p_security_descriptor=security,
            cp=len(a_prop),
            a_prop=a_prop,
            ap_var=ap_var,
        )
        return path

    async def delete_queue(self, name: FormatName) -> None:
        await self._call(str(name), QMCOMM, R_QM_DELETE_OBJECT, p_object_format=_object_format(name))

    async def queue_names(self) -> list[str]:
        """Return the path names of the private queues, and of the public ones in use."""
        told = await self._info(None, (ManagementMachineProperty.PRIVATEQ, ManagementMachineProperty.ACTIVEQUEUES))
        names: list[str] = list(told[ManagementMachineProperty.PRIVATEQ] or ())
        for name in told[ManagementMachineProperty.ACTIVEQUEUES] or ():
            contents = await self._info(parse(name), CONTENTS)
            path: str | None = contents[ManagementQueueProperty.PATHNAME]
            if contents[ManagementQueueProperty.LOCATION] == "LOCAL" and path is not None and ";" not in path:
                names.append(path)
        return list(dict.fromkeys(names))

    async def attributes(self, name: FormatName) -> QueueObject:
        told = await self._info(name, CONTENTS)
        queue = queue_of(told)
        # For queues that are not private, the management interface has all available attributes.
        with contextlib.suppress(UnsupportedFormatnameOperation, QueueNotFound):
            set_attributes(queue, await self._properties(name, ATTRIBUTES))
        for short in told[ManagementQueueProperty.SUBQUEUE_NAMES] or ():
            queue.subqueues[short] = queue_of(await self._info(parse(f"{name};{short}"), CONTENTS))
        return queue

    async def set_attributes(self, name: FormatName, changes: Mapping[str, object]) -> None:
        a_prop, ap_var = to_properties(changes)
        await self._call(
            str(name),
            QMCOMM,
            R_QM_SET_OBJECT_PROPERTIES,
            p_object_format=_object_format(name),
            cp=len(a_prop),
            a_prop=a_prop,
            ap_var=ap_var,
        )

    async def access(self, name: FormatName) -> AccessList:
        """Return the access list, in which all but well-known accounts are shown by their SIDs."""
        return AccessList.of(await self._security(name), _ACCOUNTS)

    async def _security(self, name: FormatName) -> SecurityDescriptor:
        try:
            return await self._security_up_to(_USUAL_SECURITY_SIZE, name)
        except SecurityDescriptorTooSmall:
            return await self._security_up_to(MAX_SECURITY_DESCRIPTOR_SIZE, name)

    async def _security_up_to(self, size: int, name: FormatName) -> SecurityDescriptor:
        results = await self._call(
            str(name),
            QMCOMM,
            R_QM_GET_OBJECT_SECURITY_INTERNAL,
            p_object_format=_object_format(name),
            requested_information=int(SHOWN),
            n_length=size,
        )
        # The returned buffer is as long as the one requested, so cut it.
        return SecurityDescriptor.unpack(bytes(results["p_security_descriptor"][: results["lpn_length_needed"]]))

    async def change_access(self, name: FormatName, change: AccessChange, *, force: bool) -> None:
        """Change the access list.

        The SIDs of the caller on that computer are unknown here, so a lock-out is not detected.
        """
        del force
        after, parts = changed(await self._security(name), change, _ACCOUNTS)
        data = after.select(parts).pack()
        await self._call(
            str(name),
            QMCOMM,
            R_QM_SET_OBJECT_SECURITY_INTERNAL,
            p_object_format=_object_format(name),
            security_information=int(parts),
            sd_size=len(data),
            p_security_descriptor=data,
        )

    async def _properties(self, name: FormatName, identifiers: Sequence[QueueProperty]) -> tuple[PropVariant, ...]:
        results = await self._call(
            str(name),
            QMCOMM,
            R_QM_GET_OBJECT_PROPERTIES,
            p_object_format=_object_format(name),
            cp=len(identifiers),
            a_prop=tuple(int(one) for one in identifiers),
            ap_var=(NULL,) * len(identifiers),
        )
        found: tuple[PropVariant, ...] = results["ap_var"]
        return found

    async def exists(self, name: FormatName) -> bool:
        try:
            await self._info(name, (ManagementQueueProperty.LOCATION,))
        except QueueNotFound:
            return False
        return True

    async def is_transactional(self, name: FormatName) -> bool | None:
        try:
            (transactional,) = await self._properties(name, (QueueProperty.TRANSACTION,))
        except (QueueNotFound, AccessDenied):
            return None
        except UnsupportedFormatnameOperation:
            return await self._is_public_transactional(name)
        return bool(transactional.value)

    async def _is_public_transactional(self, name: FormatName) -> bool | None:
        try:
            told = await self._info(name, (ManagementQueueProperty.XACT,))
        except StatusError:
            return None
        found: str | None = told[ManagementQueueProperty.XACT]
        return None if found is None else found == "YES"

    async def count(self, name: FormatName) -> int:
        told = await self._info(name, (ManagementQueueProperty.MESSAGE_COUNT,))
        found: int = told[ManagementQueueProperty.MESSAGE_COUNT] or 0
        return found

    async def subqueue_names(self, name: FormatName) -> list[str]:
        told = await self._info(name, (ManagementQueueProperty.SUBQUEUE_NAMES,))
        return [f"{name};{short}" for short in told[ManagementQueueProperty.SUBQUEUE_NAMES] or ()]

    def queue(self, name: FormatName, text: str, *, exclusive: bool) -> BackendQueue:
        return MsmqQueue(self, name, text, exclusive=exclusive)

    def transaction(self) -> BackendTransaction:
        return MsmqTransaction(self.connections)

    def branch(self, branch: Branch) -> BackendTransaction:
        return RemoteBranch(self, branch)

    async def distributed(self, request: str, **arguments: object) -> Document:
        """Pass the request to the computer's own Lanner interface, if it has one.

        MS-MQRR enlists branches only at a Lanner, and only its own interface delivers the outcome.
        """
        if request not in ("branches", "prepare", "end branch"):
            raise self._without_coordinator
        # Imported here, because it imports this module.
        from lanner.client._async.connecting import open_lanner

        lanner = await open_lanner(self.connections.target)
        if lanner is None:
            if request == "branches":
                # A computer that is not a Lanner accepts none of its tokens, so no branch can wait
                # there.
                return {"transactions": []}
            raise self._without_coordinator
        try:
            return await lanner.distributed(request, **arguments)
        finally:
            await lanner.close()

    async def prepare(self, unit: BackendTransaction, **arguments: object) -> None:
        branch = cast("RemoteBranch", unit)
        branch.is_over = True
        if branch.is_enlisted:
            await self.distributed("prepare", **arguments)

    @property
    def _without_coordinator(self) -> UnsupportedOperation:
        return UnsupportedOperation(
            f"{self.place} is no Lanner: it takes no part in distributed transactions of Lanner"
        )

    # For administrators
    # -------------------------------------------------------------------------------------------

    async def outgoing(self) -> list[Document]:
        told = await self._info(None, (ManagementMachineProperty.ACTIVEQUEUES,))
        names: list[str] = sorted(told[ManagementMachineProperty.ACTIVEQUEUES] or (), key=str.lower)
        documents = []
        for name in names:
            progress = await self._info(parse(name), (*PROGRESS, ManagementQueueProperty.LOCATION))
            if progress[ManagementQueueProperty.LOCATION] == "REMOTE":
                documents.append(outgoing_document(progress))
        return documents

    async def pause(self, name: FormatName) -> None:
        await self._act(name, "PAUSE")

    async def resume(self, name: FormatName) -> None:
        await self._act(name, "RESUME")

    async def resend(self, name: FormatName) -> None:
        await self._act(name, "EOD_RESEND")

    async def _act(self, name: FormatName, action: str) -> None:
        await self._call(str(name), QMMGMT, R_QM_MGMT_ACTION, **action_arguments(name, action))

    async def _info(self, name: FormatName | None, identifiers: Sequence[PropertyIdentifier]) -> Told:
        """Return properties of a queue, or of the computer (MS-MQMR 3.1.4.1)."""
        arguments = get_info_arguments(name, identifiers)
        results = await self._call("" if name is None else str(name), QMMGMT, R_QM_MGMT_GET_INFO, **arguments)
        return values_of(identifiers, results["ap_var"])

    async def status(self) -> Document:
        raise self._unknown("status")

    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        del arguments
        raise self._unknown(request)

    def _unknown(self, request: str) -> UnsupportedOperation:
        return UnsupportedOperation(f"{self.place} is no Lanner: it does not report its {request}")


def _object_format(name: FormatName) -> ObjectFormat:
    return ObjectFormat(_MQDS_QUEUE, queue_format_of(name))
