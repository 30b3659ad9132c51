"""MSMQQueueInfos: the public queues that a query found (MC-MQAC 3.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.tables import MSMQ_QUEUE_INFOS
from lanner.com.objects import ComObject
from lanner.model.errors import AccessDenied, QueueNotFound, UninitializedObject
from lanner.wire.format_name import PublicFormatName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from lanner.activex.environment import Environment
    from lanner.com.members import InterfaceTable
    from lanner.com.objects import ComCall


class MSMQQueueInfos(ComObject):
    """3.14 MSMQQueueInfos. An instance that a client creates directly is unusable (3.14.3)."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = MSMQ_QUEUE_INFOS.interfaces

    def __init__(self, environment: Environment, identifiers: Sequence[UUID] | None = None) -> None:
        self._environment = environment
        # ResultQueueCollection, or None if not initialized.
        self._identifiers = identifiers
        # CollectionCursor.
        self._next = 0

    def reset(self, call: ComCall) -> None:
        """Start again at the first queue (3.14.4.1.1)."""
        del call
        self._results()
        self._next = 0

    async def next(self, call: ComCall) -> MSMQQueueInfo | None:
        """Return the next queue, or None at the end (3.14.4.1.2).

        Queues that were deleted meanwhile, or that the caller may not see, are skipped.
        """
        results = self._results()
        while self._next < len(results):
            identifier = results[self._next]
            self._next += 1
            found = MSMQQueueInfo(self._environment)
            found.put_format_name(call, str(PublicFormatName(identifier)))
            try:
                await found.refresh(call)
            except (QueueNotFound, AccessDenied):
                continue
            return found
        return None

    def _results(self) -> Sequence[UUID]:
        if self._identifiers is None:
            raise UninitializedObject("the object was not made by MSMQQuery")
        return self._identifiers
