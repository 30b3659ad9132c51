"""Private queues for remote programs: create, delete, properties, security, names.

MS-MQMP 3.1.4.5 to 3.1.4.11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.engine.registry import path_key
from lanner.model.enums import QueueType
from lanner.model.errors import (
    MQ_OK,
    AccessDenied,
    IllegalQueuePathname,
    IllegalSecurityDescriptor,
    InvalidParameter,
    NoDs,
    PrivilegeNotHeld,
    QueueExists,
    QueueNotFound,
    RemoteProtocolError,
    SecurityDescriptorTooSmall,
    UnsupportedFormatnameOperation,
)
from lanner.rpc.interface import RETURNS
from lanner.rpc.server import WhenDurable
from lanner.security.access_masks import QueueAccess
from lanner.services.interfaces.mqmp import ObjectFormat
from lanner.services.queue_client_properties import Applicable, given_attributes, told_property, wanted_properties
from lanner.services.queue_formats import format_name_of, queue_format_of
from lanner.services.remote_read import VERSION
from lanner.wire.format_name import QueueFormatType
from lanner.wire.path_name import PathName
from lanner.wire.security_descriptor import AccessMask, SecurityDescriptor, SecurityInformation

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.host.committer import Committer
    from lanner.model.directory_objects import Queue
    from lanner.rpc.calls import ServerCall
    from lanner.rpc.server import Handler
    from lanner.services.queue_client_answers import Answer, Answers
    from lanner.wire.propvariant import PropVariant

# 3.1.4.5 dwObjectType, 2.2.3.5 ObjType.
MQDS_QUEUE: Final = 1
_ALL_PARTS: Final = int(
    SecurityInformation.OWNER | SecurityInformation.GROUP | SecurityInformation.DACL | SecurityInformation.SACL
)


class QueueObjects:
    """The handlers of qmcomm for queue objects, as opposed to messages."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._lock = engine.store.lock
        self._committer = committer

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers of qmcomm, by method name."""
        return {
            "R_QMCreateObjectInternal": self.create_object,
            "R_QMSetObjectSecurityInternal": self.set_object_security,
            "R_QMGetObjectSecurityInternal": self.get_object_security,
            "R_QMDeleteObject": self.delete_object,
            "R_QMGetObjectProperties": self.get_object_properties,
            "R_QMSetObjectProperties": self.set_object_properties,
            "R_QMObjectPathToObjectFormat": self.object_path_to_object_format,
            "R_QMQueryQMRegistryInternal": self.query_registry,
        }

    # Create and delete
    # --------------------------------------------------------------------------------------------

    def create_object(
        self,
        call: ServerCall,
        dw_object_type: int,
        lpwcs_path_name: str,
        sd_size: int,
        p_security_descriptor: bytes | None,
        cp: int,
        a_prop: tuple[int, ...],
        ap_var: tuple[PropVariant, ...],
    ) -> Answers:
        """3.1.4.5 R_QMCreateObjectInternal."""
        del sd_size, cp  # the counts of the following parameters
        if dw_object_type != MQDS_QUEUE:
            raise InvalidParameter(f"dwObjectType {dw_object_type:#x}")
        path = self._private_path(lpwcs_path_name)
        attributes = dict(given_attributes(a_prop, ap_var, Applicable.CREATE))
        # The path name may be given as a property too, but must be the same.
        named = attributes.pop("pathname", None)
        if named is not None and path_key(self._private_path(str(named)).queue_part) != path_key(path.queue_part):
            raise InvalidParameter(f"lpwcsPathName {lpwcs_path_name} and PROPID_Q_PATHNAME {named}")
        with self._committer.change() as change:
            if self._engine.find_by_path(path) is not None:
                raise QueueExists(f"queue {path} exists already")
            request = self._engine.set_queue_defaults(str(path))
            request.security = p_security_descriptor
            for attribute, value in attributes.items():
                setattr(request, attribute, value)
            self._engine.create_queue(request, identity=call.identity)
        return WhenDurable(change, {})

    def _private_path(self, text: str) -> PathName:
        path = PathName.parse(text)
        if not self._engine.is_local_host(path.computer) or not path.is_private or path.is_system:
            raise IllegalQueuePathname(f"{text} is not the path name of a private queue here")
        if path.is_journal or path.subqueue is not None:
            raise IllegalQueuePathname(f"{text} is the name of a part of a queue")
        return path

    def delete_object(self, call: ServerCall, p_object_format: ObjectFormat) -> Answers:
        """3.1.4.8 R_QMDeleteObject."""
        with self._committer.change() as change:
            self._engine.delete_queue(self._queue(p_object_format), identity=call.identity)
        return WhenDurable(change, {})

    def _queue(self, object_format: ObjectFormat) -> Queue:
        """Return the local private queue of an OBJECT_FORMAT."""
        if object_format.u is None:
            raise InvalidParameter("pQueueFormat is NULL")
        name = format_name_of(object_format.u)
        queue = self._engine.find_queue(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name} on {self._engine.queue_manager.computer_name}")
        if queue.queue_type is not QueueType.PRIVATE or queue.parent:
            raise UnsupportedFormatnameOperation(f"{name} is not a private queue")
        return queue

    # Properties
    # ----------------------------------------------------------------------------------------------

    def get_object_properties(
        self,
        call: ServerCall,
        p_object_format: ObjectFormat,
        cp: int,
        a_prop: tuple[int, ...],
        ap_var: tuple[PropVariant, ...],
    ) -> Answer:
        """3.1.4.9 R_QMGetObjectProperties."""
        del cp
        wanted = wanted_properties(a_prop, ap_var)
        with self._lock:
            queue = self._engine.get_queue_properties(self._queue(p_object_format), identity=call.identity)
        return {"ap_var": tuple(told_property(queue, found) for found in wanted), RETURNS: MQ_OK}

    def set_object_properties(
        self,
        call: ServerCall,
        p_object_format: ObjectFormat,
        cp: int,
        a_prop: tuple[int, ...] | None,
        ap_var: tuple[PropVariant, ...] | None,
    ) -> Answers:
        """3.1.4.10 R_QMSetObjectProperties: sets all of the properties or none."""
        del cp
        # Not NULL, since cp is not zero.
        changes = dict(given_attributes(a_prop or (), ap_var or (), Applicable.SET))
        with self._committer.change() as change:
            self._engine.set_queue_properties(self._queue(p_object_format), changes, identity=call.identity)
        return WhenDurable(change, {})

    # Security
    # ----------------------------------------------------------------------------------------------

    def set_object_security(
        self,
        call: ServerCall,
        p_object_format: ObjectFormat,
        security_information: int,
        sd_size: int,
        p_security_descriptor: bytes | None,
    ) -> Answers:
        """3.1.4.6 R_QMSetObjectSecurityInternal."""
        del sd_size
        parts = _parts(security_information)
        try:
            given = SecurityDescriptor.unpack(p_security_descriptor or b"")
        except RemoteProtocolError as error:
            raise IllegalSecurityDescriptor(str(error)) from None
        with self._committer.change() as change:
            queue = self._queue(p_object_format)
            kept = SecurityDescriptor() if queue.security is None else SecurityDescriptor.unpack(queue.security)
            changes: dict[str, object] = {"security": kept.update(given, parts).pack()}
            try:
                self._engine.set_queue_properties(queue, changes, identity=call.identity)
            except AccessDenied as error:
                raise _denied(parts, error) from None
        return WhenDurable(change, {})

    def get_object_security(
        self, call: ServerCall, p_object_format: ObjectFormat, requested_information: int, n_length: int
    ) -> Answer:
        """3.1.4.7 R_QMGetObjectSecurityInternal.

        The document chains the parts with "Else If"; they are bits, and can be requested together.
        """
        parts = _parts(requested_information)
        rights: int = QueueAccess.GET_QUEUE_PERMISSIONS
        if SecurityInformation.SACL in parts:
            rights |= AccessMask.ACCESS_SYSTEM_SECURITY
        with self._lock:
            queue = self._queue(p_object_format)
            try:
                self._engine.check_queue_access(queue, call.identity, rights)
            except AccessDenied as error:
                raise _denied(parts, error) from None
            kept = queue.security
        whole = SecurityDescriptor() if kept is None else SecurityDescriptor.unpack(kept)
        found = whole.select(parts).pack()
        if len(found) > n_length:
            return {"lpn_length_needed": len(found), RETURNS: SecurityDescriptorTooSmall.status}
        return {
            "p_security_descriptor": found.ljust(n_length, b"\0"),
            "lpn_length_needed": len(found),
            RETURNS: MQ_OK,
        }

    # Names and numbers
    # --------------------------------------------------------------------------------------------

    def object_path_to_object_format(
        self, call: ServerCall, lpwcs_path_name: str, p_object_format: ObjectFormat
    ) -> Answer:
        """3.1.4.11 R_QMObjectPathToObjectFormat: returns a private format name."""
        del call
        given = p_object_format.u
        if given is None or given.m_qft != QueueFormatType.UNKNOWN:
            raise InvalidParameter("pObjectFormat is not of an unknown type")
        path = PathName.parse(lpwcs_path_name)
        with self._lock:
            name = self._engine.private_format_name(path)
        return {"p_object_format": ObjectFormat(MQDS_QUEUE, queue_format_of(name)), RETURNS: MQ_OK}

    def query_registry(self, call: ServerCall, dw_query_type: int) -> Answer:
        """3.1.4.23 R_QMQueryQMRegistryInternal."""
        del call
        with self._lock:
            return {"lplp_mqis_server": self._registry_value(dw_query_type), RETURNS: MQ_OK}

    def _registry_value(self, query: int) -> str:
        manager = self._engine.queue_manager
        match query:
            case 0:
                if not manager.directory_server_list:
                    raise NoDs("no MQIS servers are known")
                return ",".join(manager.directory_server_list)
            case 1:
                return str(self._engine.settings.long_live_time)
            case 2:
                if manager.enterprise_reference is None:
                    raise NoDs("this queue manager belongs to no forest")
                return str(manager.enterprise_reference.identifier)
            case 3:
                return "{}.{}.{}".format(*VERSION)
            case 4:
                return str(manager.identifier)
        raise InvalidParameter(f"dwQueryType {query:#x}")


def _parts(information: int) -> SecurityInformation:
    if information & ~_ALL_PARTS:
        raise InvalidParameter(f"SECURITY_INFORMATION {information:#x}")
    return SecurityInformation(information)


def _denied(parts: SecurityInformation, error: AccessDenied) -> AccessDenied | PrivilegeNotHeld:
    """Return the error for missing rights.

    Access to a system list needs a privilege, and its absence has a status of its own (notes 32,
    33).
    """
    return PrivilegeNotHeld(str(error)) if SecurityInformation.SACL in parts else error
