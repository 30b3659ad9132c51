"""Keep Ctrl-C out of a step that must not be left half done.

Python runs signal handlers in the main thread, between any two instructions. If the handler of
Ctrl-C raised while the main thread writes a batch, the batch would be dropped, together with the
changes that other threads have made in it.
"""

from __future__ import annotations

# Not `signal`: its functions convert numbers and handlers to members of enumerations and back,
# which takes 15 us for one block with Python 3.11. Every durable send and receive is such a block.
import _signal  # type: ignore[import-not-found]  # not in the stubs
import threading
from collections.abc import Callable
from signal import SIGINT
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_SIGINT: Final = int(SIGINT)


class Uninterrupted:
    """A block that Ctrl-C does not interrupt before its end; a second Ctrl-C ends it at once.

    An error of the block takes precedence over the interruption. It has no effect in threads other
    than the main one, and in programs that ignore Ctrl-C.
    """

    __slots__ = ("_handler", "is_interrupted")

    def __init__(self) -> None:
        # Whether Ctrl-C was pressed.
        self.is_interrupted = False
        self._handler: Callable[[int, FrameType | None], object] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):
                self._handler = handler
                _signal.signal(_SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.is_interrupted and self._handler is not None:
            self._handler(number, frame)
        self.is_interrupted = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handler is None:
            return
        try:
            _signal.signal(_SIGINT, self._handler)
        except BaseException:
            # Before it replaces a handler, Python runs it for signals that have arrived.
            _signal.signal(_SIGINT, self._handler)
            raise
        if self.is_interrupted and kind is None:
            self._handler(SIGINT, None)
