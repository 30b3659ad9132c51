"""Flow control: how a queue manager behaves while it has no room for messages.

Implements MS-MQDMPR 3.1.7.2.5 and 3.1.7.2.6. It begins when an arriving message finds no room. Then
`incoming` holds arriving messages. They are not acknowledged, so peers stop when their window is
full, and their sessions stay open. Once a second this module checks for room, and ends flow control
when there is some.

- If the disk is full, every enqueue on this queue manager is refused (Throttled), and every session
  is held.
- If the memory for express messages is full (`engine.express_memory`), only express messages are
  refused, and only sessions that carry one are held. Thus express messages cannot block recoverable
  ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lanner.transfer.deadlines import Deadline

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.errors import InsufficientResources

_LOG = logging.getLogger(__name__)

# Not in the specification: seconds between two checks for room.
_CHECK_INTERVAL = 1.0


class FlowControl:
    """The part that raises Begin Flow Control and End Flow Control.

    The caller holds the store's lock. `on_end` is called when there is room again.
    """

    def __init__(self, engine: Engine, on_end: Callable[[], None]) -> None:
        self._engine = engine
        self._memory = engine.express_memory
        self._on_end = on_end
        self.is_on = False  # for all messages: the disk is full
        self.deadline = Deadline()

    def begin(self, error: InsufficientResources) -> bool:
        """Begin flow control, because an arriving message was refused with an error.

        Return False if the cause is a quota and not the room of this computer.
        """
        was_short = self._memory.is_short
        if self._memory.begin_shortage(error):
            if not was_short:
                _LOG.warning("flow control is on for express messages: %s", error.args[0])
        elif not self.is_on:
            if not self._engine.store.refuses_sends:
                return False
            self.is_on = True
            self._engine.begin_flow_control()
            _LOG.warning("flow control is on: the disk is full, and messages of peers wait until there is room")
        self.deadline.set_earlier(self._engine.monotonic() + _CHECK_INTERVAL)
        return True

    def on_timer(self, now: float) -> None:
        """End flow control if there is room, else check again later."""
        has_room = self._memory.end_shortage()
        if has_room and not self._memory.is_short:
            _LOG.warning("flow control is off for express messages")
        if self.is_on and not self._engine.store.refuses_sends:
            self._end_for_all()
            has_room = True
        if self.is_on or self._memory.is_short:
            self.deadline.set(now + _CHECK_INTERVAL)
        else:
            self.deadline.clear()
        if has_room:
            self._on_end()

    def end(self) -> None:
        """End flow control, because the queue manager stops."""
        self._memory.forget_shortage()
        self.deadline.clear()
        self._end_for_all()

    def _end_for_all(self) -> None:
        if self.is_on:
            self.is_on = False
            self._engine.end_flow_control()
            _LOG.warning("flow control is off")
