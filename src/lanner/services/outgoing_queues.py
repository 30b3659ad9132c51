"""Administration of outgoing queues, independent of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.model.enums import OutgoingState
from lanner.model.errors import AccessDenied

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import OutgoingQueue
    from lanner.model.live import OutgoingTransferInfo
    from lanner.transfer.transfer import Transfer


def pause(engine: Engine, queue: OutgoingQueue) -> None:
    """Pause a queue: no message leaves it until it is resumed, even after a restart.

    MS-MQDMPR 3.1.7.2.3.
    """
    _refuse_locked(queue)
    if queue.state is not OutgoingState.ON_HOLD:
        engine.pause_queue(queue)


def resume(engine: Engine, queue: OutgoingQueue) -> None:
    """Resume a queue; one that is not on hold keeps its connection (MS-MQDMPR 3.1.7.2.4)."""
    _refuse_locked(queue)
    if queue.state is OutgoingState.ON_HOLD:
        engine.resume_queue(queue)


def _refuse_locked(queue: OutgoingQueue) -> None:
    """Raise AccessDenied for a locked queue.

    If it could be paused and resumed, it would send messages, which it must not (MS-MQDMPR 3.1.1.1
    HardenedSecurity).
    """
    if queue.state is OutgoingState.LOCKED:
        raise AccessDenied(f"{queue.destination_format_name} is locked: the setting security.hardened allows HTTP only")


def transfer_info(queue: OutgoingQueue, transfer: Transfer | None) -> OutgoingTransferInfo | None:
    """Return the current OutgoingTransferInfo (MS-MQDMPR 3.1.1.4).

    None before the first transactional message.
    """
    route = None if transfer is None else transfer.routes.get(queue.number)
    if route is not None:
        route.table.refresh_transfer_info()
    return queue.outgoing_transfer_info
