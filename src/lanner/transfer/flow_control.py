"""Flow control: what a queue manager does while its disk has no room for messages (MS-MQDMPR 3.1.7.2.5, 3.1.7.2.6).

An arriving message that finds no room begins it. Then every enqueue on this queue manager is refused, and `incoming`
holds what arrives: it is not acknowledged, so peers stop when their window is full, and their sessions stay open. The
disk is asked again once a second, and flow control ends when it has room.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from lanner.transfer.deadlines import Deadline

if TYPE_CHECKING:
    from lanner.engine import Engine

_LOG = logging.getLogger(__name__)

# Not in the specification, seconds: how often the disk is asked for room.
_CHECK_INTERVAL = 1.0


class FlowControl:
    """Raises Begin Flow Control and End Flow Control. The caller holds the store's lock.

    `on_end` is called when there is room again.
    """

    def __init__(self, engine: Engine, on_end: Callable[[], None]) -> None:
        self._engine = engine
        self._on_end = on_end
        self.is_on = False
        self.deadline = Deadline()

    @property
    def is_needed(self) -> bool:
        """Whether a message was refused because this computer has no room, and not because of a quota."""
        return self.is_on or self._engine.store.refuses_sends

    def begin(self) -> None:
        """An arriving message found no room."""
        if not self.is_on:
            self.is_on = True
            self._engine.begin_flow_control()
            self.deadline.set(self._engine.monotonic() + _CHECK_INTERVAL)
            _LOG.warning("flow control is on: the disk is full, and messages of peers wait until there is room")

    def on_timer(self, now: float) -> None:
        """End it if there is room, else look again later."""
        if self._engine.store.refuses_sends:
            self.deadline.set(now + _CHECK_INTERVAL)
        else:
            self.end()
            self._on_end()

    def end(self) -> None:
        """There is room again, or the queue manager stops."""
        if self.is_on:
            self.is_on = False
            self.deadline.clear()
            self._engine.end_flow_control()
            _LOG.warning("flow control is off")
