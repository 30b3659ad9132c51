"""Open handles to queues: open, close (MS-MQDMPR 3.1.7.1.5, 3.1.7.1.6)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from lanner.engine.checks import require_ready
from lanner.engine.queue_kinds import format_name_of
from lanner.model.enums import PositionState, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    InsufficientResources,
    InvalidHandle,
    OperationCancelled,
    SharingViolation,
    StatusError,
    UnsupportedAccessMode,
    UnsupportedFormatnameOperation,
)
from lanner.model.live import OpenQueueDescriptor
from lanner.security.identity import SYSTEM
from lanner.wire.format_name import (
    ConnectorFormatName,
    DirectFormatName,
    FormatName,
    MachineFormatName,
    MulticastFormatName,
    MultipleElementFormatName,
)

if TYPE_CHECKING:
    from lanner.engine.core import Core
    from lanner.engine.names import Names
    from lanner.engine.outgoing_queues import OutgoingQueues
    from lanner.engine.queues import Queues
    from lanner.engine.reading import Reading
    from lanner.model.directory_objects import Queue
    from lanner.security.identity import Identity

ADMIN_ACCESS: Final = frozenset({QueueAccessType.RECEIVE_ADMIN, QueueAccessType.PEEK_ADMIN})
# Not in the specification: open queues of one user who is no administrator, on all connections and
# by all protocols. A handle may be for a list of a thousand queues.
MAX_DESCRIPTORS_OF_USER: Final = 100_000


class OpenQueues:
    """OpenQueueDescriptors by handle."""

    def __init__(self, core: Core, names: Names, queues: Queues, outgoing: OutgoingQueues, reading: Reading) -> None:
        self._queue_manager = core.queue_manager
        self._numbers = core.numbers
        self._access = core.access
        self.names = names
        self._registry = names.registry
        self._queues = queues
        self._outgoing = outgoing
        self._reading = reading
        self._cursors = reading.cursors
        self._waiting = reading.waiting
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        # The number of descriptors of each user, by SID.
        self._count_of: Counter[bytes] = Counter()

    def open_queue(
        self,
        name: FormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode = QueueShareMode.DENY_NONE,
        identity: Identity = SYSTEM,
        *,
        ends_when_unused: bool = False,
    ) -> OpenQueueDescriptor:
        """3.1.7.1.5 Open Queue.

        With `ends_when_unused`, a subqueue that this call creates is deleted when it is empty and
        no handle is open. A later call without it keeps the subqueue.
        """
        require_ready(self._queue_manager)
        return self.open(name, access, share_mode, identity, ends_when_unused=ends_when_unused)

    def open(
        self,
        name: FormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        identity: Identity,
        *,
        for_others: bool = False,
        ends_when_unused: bool = False,
    ) -> OpenQueueDescriptor:
        """Open a queue in any state of the queue manager.

        With `for_others`, a message of another computer causes it, so the limit on outgoing queues
        applies.
        """
        name = self.names.expand_format_name(name)
        if isinstance(name, MultipleElementFormatName):
            return self._open_multiple(name, access, share_mode, identity, for_others=for_others)
        _check_operation(name, access)
        queue = self._find_to_open(name, access, identity, ends_when_unused=ends_when_unused)
        if queue is None:
            if access is not QueueAccessType.SEND:
                raise self._registry.no_queue(name)
            queue = self._outgoing.make(name, identity, for_others=for_others)
        self._access.check_open(queue, access, identity)
        check_sharing(queue, access, share_mode)
        if isinstance(name, DirectFormatName) and name.is_on_this_computer:
            # A packet must not contain ".": every computer would take it for itself.
            name = format_name_of(queue)
        descriptor = self._new_descriptor(name, access, share_mode, identity)
        descriptor.queue = queue
        queue.open_queue_descriptors[descriptor.handle] = descriptor
        if queue.ends_when_unused and not ends_when_unused:
            self._queues.keep(queue)
        return descriptor

    def _open_multiple(
        self,
        name: MultipleElementFormatName,
        access: QueueAccessType,
        share_mode: QueueShareMode,
        identity: Identity,
        *,
        for_others: bool,
    ) -> OpenQueueDescriptor:
        if access is not QueueAccessType.SEND:
            raise UnsupportedFormatnameOperation(f"{name}: several queues can be opened together for sending only")
        if share_mode is not QueueShareMode.DENY_NONE:
            raise UnsupportedAccessMode(f"{name}: several queues cannot be opened exclusively")
        descriptor = self._new_descriptor(name, access, share_mode, identity)
        descriptor.multiple = True
        for element in name.elements:
            try:
                child = self.open(element, access, share_mode, identity, for_others=for_others)
                descriptor.children.append(child)
            except StatusError:
                self.close_queue(descriptor)
                raise
        # The names of the children instead, because a packet must not contain ".".
        descriptor.format_name = ",".join(child.format_name for child in descriptor.children)
        return descriptor

    def _find_to_open(
        self, name: FormatName, access: QueueAccessType, identity: Identity, *, ends_when_unused: bool
    ) -> Queue | None:
        if access in ADMIN_ACCESS:
            return self._registry.find_outgoing_queue(name)
        queue = self._registry.find_queue(name)
        if queue is not None:
            return queue
        if isinstance(name, DirectFormatName) and name.path_name is not None:
            path = name.path_name
            parent = None if path.subqueue is None else self._registry.find_by_path(path.without_suffix())
            if parent is not None:
                # A subqueue is created when an identity that may open its parent first opens it.
                self._access.check_open(parent, access, identity)
                request = self._queues.set_queue_defaults(str(path))
                return self._queues.make(request, path, ends_when_unused=ends_when_unused)
        if isinstance(name, ConnectorFormatName):
            return self._outgoing.make_connector_queue(name, identity)
        return self._registry.find_outgoing_queue(name) if access is QueueAccessType.SEND else None

    def _new_descriptor(
        self, name: FormatName, access: QueueAccessType, share_mode: QueueShareMode, identity: Identity
    ) -> OpenQueueDescriptor:
        sid = identity.sid.pack()
        if self._count_of[sid] >= MAX_DESCRIPTORS_OF_USER and not (identity.is_system or identity.is_administrator):
            raise InsufficientResources(
                f"{identity.name} has {self._count_of[sid]} queues open, each queue of a list counted: close some"
            )
        self._count_of[sid] += 1
        handle = self._numbers.next_handle()
        descriptor = OpenQueueDescriptor(handle, handle, access, share_mode, str(name), sender_identifier=sid)
        self.descriptors[handle] = descriptor
        return descriptor

    def _forget_descriptor(self, descriptor: OpenQueueDescriptor) -> None:
        if self.descriptors.pop(descriptor.handle, None) is None:
            return
        sid = descriptor.sender_identifier
        self._count_of[sid] -= 1
        if not self._count_of[sid]:
            del self._count_of[sid]

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        """Return the open descriptor of a handle. Raises InvalidHandle."""
        try:
            return self.descriptors[handle]
        except KeyError:
            raise InvalidHandle(f"queue handle {handle} is not open") from None

    def close_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """3.1.7.1.6 Close Queue.

        Waiting reads of the descriptor end, and unfinished reads are undone (DECISIONS).
        """
        self._forget_descriptor(descriptor)
        descriptor.is_closed = True
        for child in descriptor.children:
            self.close_queue(child)
        queue = descriptor.queue
        if queue is None:
            return
        self._waiting.stop_all(descriptor.waiting_reads, OperationCancelled("the queue was closed"))
        for position in list(descriptor.unfinished_reads.values()):
            if position.state in (PositionState.LOCKED, PositionState.PURGE_PENDING):
                self._reading.dequeue_message_end(descriptor, position, delete_message=False)
        for cursor in list(descriptor.cursors):
            self._cursors.close_cursor(cursor)
        queue.open_queue_descriptors.pop(descriptor.handle, None)
        descriptor.queue = None
        self._queues.end_if_unused(queue)

    def close_all(self) -> None:
        """Close every handle."""
        for descriptor in list(self.descriptors.values()):
            self.close_queue(descriptor)


def _check_operation(name: FormatName, access: QueueAccessType) -> None:
    is_send = access is QueueAccessType.SEND
    is_http = isinstance(name, DirectFormatName) and name.is_http
    if (is_http or isinstance(name, MulticastFormatName)) and not is_send:
        raise UnsupportedFormatnameOperation(f"{name} can be opened for sending only")
    is_subqueue = isinstance(name, DirectFormatName) and (
        name.queue_part is not None and name.queue_part.subqueue is not None
    )
    # Queue managers fill journals and dead-letter queues, moves fill subqueues, and messages to the
    # queues behind a connector queue fill the connector queue. No packet can name a connector queue
    # (MS-MQMQ 2.2.19.2).
    is_filled_by_others = isinstance(name, (MachineFormatName, ConnectorFormatName)) or name.is_read_only
    if is_send and (is_filled_by_others or is_subqueue):
        raise UnsupportedFormatnameOperation(f"{name} cannot be opened for sending")


def check_sharing(queue: Queue, access: QueueAccessType, share_mode: QueueShareMode) -> None:
    """Apply the three sharing rules of Open Queue, in order. Raises SharingViolation."""
    exclusive = share_mode is QueueShareMode.DENY_RECEIVE
    is_receive = access is QueueAccessType.RECEIVE
    if not exclusive and not is_receive:
        # No rule excludes it, so the open handles, which may be many, need not be looked at.
        return
    opened = {(d.access_type, d.share_mode) for d in queue.open_queue_descriptors.values()}
    deny, share = QueueShareMode.DENY_RECEIVE, QueueShareMode.DENY_NONE
    if (QueueAccessType.RECEIVE, deny) in opened:
        conflict = exclusive or is_receive
    elif (QueueAccessType.PEEK, deny) in opened or (QueueAccessType.PEEK_ADMIN, deny) in opened:
        conflict = is_receive
    elif (QueueAccessType.RECEIVE, share) in opened:
        conflict = exclusive
    else:
        conflict = False
    if conflict:
        raise SharingViolation(f"queue {queue.pathname} is open elsewhere in a way that excludes this")
