"""Management queries and actions on a queue manager, independent of the protocol.

Covers MS-MQMR 3.1.4.1 and 3.1.4.2, and MC-MQAC 3.3.6.2 and 3.3.6.3. Errors in the request itself
are reported to every caller. Everything else, including whether a queue exists, is for
administrators only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueManagerState
from lanner.model.errors import InvalidParameter, QueueNotActive, ServiceNotAvailable
from lanner.security.scopes import ADMIN, OPERATE
from lanner.services import outgoing_queues
from lanner.services.callers import require_administrator
from lanner.services.management_properties import (
    MACHINE_PROPERTIES,
    QUEUE_PROPERTIES,
    QueriedQueue,
    get_properties,
    known_identifiers,
)
from lanner.wire.property_ids import ManagementMachineProperty, ManagementQueueProperty

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.host.change import Change, Changes
    from lanner.security.identity import Identity
    from lanner.transfer.transfer import Transfer
    from lanner.wire.format_name import FormatName
    from lanner.wire.propvariant import PropVariant

_EOD_RESEND: Final = "EOD_RESEND"


class ManagementEvents:
    """The management queries and actions of one queue manager.

    Call them in the thread of `transfer` if there is one, without the store's lock.
    """

    def __init__(self, engine: Engine, changes: Changes, transfer: Transfer | None = None) -> None:
        self._engine = engine
        self._changes = changes
        self._transfer = transfer
        # MS-MQMR 3.1.4.2.
        self._machine_actions: dict[str, Callable[[], None]] = {
            "CONNECT": engine.bring_online,
            "DISCONNECT": engine.take_offline,
            "TIDY": self._tidy,
        }
        self._queue_actions: dict[str, Callable[[OutgoingQueue], None]] = {
            "PAUSE": lambda queue: outgoing_queues.pause(engine, queue),
            "RESUME": lambda queue: outgoing_queues.resume(engine, queue),
            _EOD_RESEND: self._can_resend,
        }

    # Queries
    # ----------------------------------------------------------------------------------------------

    def machine_properties(self, identity: Identity, numbers: tuple[int, ...]) -> tuple[PropVariant, ...]:
        """Return properties of the queue manager, in the order requested."""
        identifiers = known_identifiers(ManagementMachineProperty, numbers)
        with self._engine.store.lock:
            self._admit(identity)
            return get_properties(MACHINE_PROPERTIES, identifiers, self._engine)

    def queue_properties(
        self, identity: Identity, name: FormatName, numbers: tuple[int, ...], *, only_active: bool = False
    ) -> tuple[PropVariant, ...]:
        """Return properties of a queue, in the order requested.

        Raises QueueNotActive if `only_active` is set and the queue is not active (MS-MQDMPR
        3.1.1.2).
        """
        identifiers = known_identifiers(ManagementQueueProperty, numbers)
        with self._engine.store.lock:
            self._admit(identity)
            queried = self._query(name)
            if only_active and not queried.queue.active:
                raise QueueNotActive(f"{name}: nobody has it open")
            return get_properties(QUEUE_PROPERTIES, identifiers, queried)

    def _query(self, name: FormatName) -> QueriedQueue:
        """Return the named queue and its transfer state.

        MS-MQMR opens the queue with ReceiveAccess; this only looks it up (DECISIONS). An open queue
        would count as active, opening would create a subqueue or a connector queue, it would fail
        while a program has the queue open exclusively, and outgoing queues cannot be opened this
        way at all.
        """
        queue = self._engine.require_queue(name)
        info = outgoing_queues.transfer_info(queue, self._transfer) if isinstance(queue, OutgoingQueue) else None
        return QueriedQueue(self._engine, queue, info)

    # Actions
    # ----------------------------------------------------------------------------------------------

    def machine_action(self, identity: Identity, action: str) -> Change:
        """Perform an action; the caller waits until it is durable."""
        act = self._machine_actions.get(_word(action))
        if act is None:
            raise InvalidParameter(f"no action {action!r} for a queue manager")
        with self._changes.change() as change:
            self._admit(identity)
            act()
        return change

    def queue_action(self, identity: Identity, name: FormatName, action: str, *, only_active: bool = False) -> Change:
        """Perform an action on an outgoing queue; the caller waits until it is durable."""
        engine, word = self._engine, _word(action)
        act = self._queue_actions.get(word)
        if act is None:
            raise InvalidParameter(f"no action {action!r} for a queue")
        with self._changes.change() as change:
            self._admit(identity, OPERATE)
            queue = engine.require_queue(name)
            if not isinstance(queue, OutgoingQueue):
                raise InvalidParameter(f"{word} is for outgoing queues, {name} is here")
            if only_active and not queue.active:
                raise QueueNotActive(f"{name}: nothing waits in it and nobody has it open")
            act(queue)
        if word == _EOD_RESEND and self._transfer is not None:
            # Resending writes without the lock.
            self._transfer.resend(queue)
        return change

    def _tidy(self) -> None:
        """Free space that no message needs: stages that will never be published.

        MS-MQMR 3.1.4.2 purges every queue here, which would lose messages (DECISIONS: never).
        """
        self._engine.drop_abandoned_stages()

    def _can_resend(self, queue: OutgoingQueue) -> None:
        if self._transfer is None:
            raise ServiceNotAvailable(f"{queue.destination_format_name}: transfer is not enabled, nothing is sent")

    # Access
    # --------------------------------------------------------------------------------------

    def _admit(self, identity: Identity, scope: str = ADMIN) -> None:
        require_administrator(self._engine, identity, scope)
        state = self._engine.queue_manager.queue_manager_state
        if state is not QueueManagerState.READY:
            raise ServiceNotAvailable(f"queue manager {self._engine.queue_manager.computer_name} is {state.value}")


def _word(action: str) -> str:
    # Only ASCII letters are case-insensitive here: Python would map the Turkish dotless i to I.
    return action.upper() if action.isascii() else action
