"""Checks of an identity's rights on queues (MS-MQDMPR 3.1.7.1.5, MS-MQMQ 2.2.24-2.2.27)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueAccessType, QueueType
from lanner.model.errors import AccessDenied
from lanner.security.access import (
    DEADLETTER_RIGHTS,
    JOURNAL_RIGHTS,
    MACHINE_JOURNAL_RIGHTS,
    QUEUE_RIGHTS,
    is_granted,
)
from lanner.security.access_masks import QUEUE_MANAGER_MAPPING, ConnectedNetworkAccess, QueueAccess, QueueManagerAccess
from lanner.security.roles import Role, role_grants_on_machine, role_grants_on_queue, role_of
from lanner.security.scopes import covers_machine_rights, covers_queue_rights
from lanner.wire.security_descriptor import AccessMask

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue, QueueManager
    from lanner.security.identity import Identity

# One right for each part of a descriptor: access list and group, owner, audit list.
_SECURING: Final = (
    QueueAccess.CHANGE_QUEUE_PERMISSIONS,
    QueueAccess.TAKE_QUEUE_OWNERSHIP,
    AccessMask.ACCESS_SYSTEM_SECURITY,
)


class Access:
    """Checks against the descriptors of the queue manager and its queues.

    Each check raises AccessDenied.
    """

    def __init__(self, queue_manager: QueueManager) -> None:
        self._queue_manager = queue_manager

    def check_queue_access(self, queue: Queue, identity: Identity, rights: int) -> None:
        """Raise AccessDenied unless the queue's descriptor grants the rights."""
        if identity.is_system:
            return
        _check_scope(covers_queue_rights(identity, rights), identity, rights, queue.pathname)
        is_own = queue.is_system and not queue.parent and queue.security is None
        if isinstance(queue, OutgoingQueue) or is_own:
            # These queues have no descriptor. `check_open` decides who may read them; everything
            # else is administration.
            _require_administrator(queue, identity, rights)
        elif not (
            is_granted(self.guarding_queue(queue).security, identity, rights) or role_grants_on_queue(identity, rights)
        ):
            raise AccessDenied(f"{identity.name} has no right {_right_name(rights)} on queue {queue.pathname}")

    def check_securing(
        self, queue: Queue, identity: Identity, missing: QueueAccess = QueueAccess.CHANGE_QUEUE_PERMISSIONS
    ) -> None:
        """Raise AccessDenied for an identity that can change no part of a queue's descriptor.

        The error names `missing`. This check is cheap, so it comes before a new descriptor is
        parsed, which can be large.
        """
        for rights in _SECURING:
            with suppress(AccessDenied):
                self.check_queue_access(queue, identity, rights)
                return
        self.check_queue_access(queue, identity, missing)

    def may_create_queues(self, identity: Identity) -> bool:
        """Return whether the queue manager's descriptor lets an identity create queues."""
        try:
            self.check_machine_access(identity, QueueManagerAccess.CREATE_QUEUE)
        except AccessDenied:
            return False
        return True

    def check_machine_access(self, identity: Identity, rights: QueueManagerAccess) -> None:
        """Raise AccessDenied unless the queue manager's descriptor grants the rights."""
        if identity.is_system:
            return
        qm = self._queue_manager
        _check_scope(covers_machine_rights(identity, rights), identity, rights, qm.computer_name)
        if not (
            is_granted(qm.security, identity, rights, QUEUE_MANAGER_MAPPING) or role_grants_on_machine(identity, rights)
        ):
            raise AccessDenied(f"{identity.name} has no right {_right_name(rights)} on {qm.computer_name}")

    def guarding_queue(self, queue: Queue) -> Queue:
        """Return the queue whose descriptor guards this one: its parent, if it has one."""
        return self._queue_manager.queue_collection.get(queue.parent, queue) if queue.parent else queue

    def check_open(self, queue: Queue, access: QueueAccessType, identity: Identity) -> None:
        """Raise AccessDenied unless an identity may open a queue for an access."""
        qm = self._queue_manager
        if identity.scope is not None:
            rights_of_queue = QUEUE_RIGHTS[access]
            _check_scope(covers_queue_rights(identity, rights_of_queue), identity, rights_of_queue, queue.pathname)
        if queue in (qm.order_acknowledgment_queue, qm.change_notification_queue) and not identity.is_system:
            raise AccessDenied(f"queue {queue.pathname} is for the queue manager's own use")
        if queue in (qm.system_deadletter_queue, qm.system_transactional_deadletter_queue):
            self.check_machine_access(identity, DEADLETTER_RIGHTS[access])
        elif queue is qm.system_journal_queue:
            self.check_machine_access(identity, MACHINE_JOURNAL_RIGHTS[access])
        elif isinstance(queue, OutgoingQueue):
            if access is not QueueAccessType.SEND:
                _require_administrator(queue, identity, QUEUE_RIGHTS[access])
        elif queue.queue_type is QueueType.CONNECTOR:
            self.check_queue_access(queue, identity, ConnectedNetworkAccess.OPEN_CONNECTOR)
        else:
            rights = JOURNAL_RIGHTS if queue.is_system else QUEUE_RIGHTS
            self.check_queue_access(queue, identity, rights[access])


def _check_scope(is_covered: bool, identity: Identity, rights: int, what: str) -> None:
    if not is_covered:
        scope = ", ".join(sorted(identity.scope or ()))
        raise AccessDenied(f"the token of {identity.name} is for {scope}, and not for {_right_name(rights)} on {what}")


def _require_administrator(queue: Queue, identity: Identity, rights: int) -> None:
    if role_of(identity) is not Role.ADMINISTRATOR and not role_grants_on_queue(identity, rights):
        raise AccessDenied(f"{identity.name} is no administrator: queue {queue.pathname} belongs to the queue manager")


def _right_name(rights: int) -> str:
    return getattr(rights, "name", None) or f"{rights:#x}"
