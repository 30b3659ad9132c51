"""Names of queues as a queue manager on this computer reads them.

`.` and `localhost` mean this computer. The spellings themselves are in `lanner.wire.spelling`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lanner.wire import spelling
from lanner.wire.format_name import DirectFormatName, FormatName, MultipleElementFormatName, is_relative
from lanner.wire.path_name import PathName
from lanner.wire.spelling import is_format_name

__all__ = ["QueueNames", "is_format_name", "is_relative", "named"]


class QueueNames:
    r"""Turns any spelling of a queue's name into a format name.

    `.` and `localhost` become the name of this computer, because other computers will read the
    name. `computer\queue` and `.\private$\queue` are path names. `private$\queue` is on this
    computer, and a bare word is a private queue here.
    """

    def __init__(self, computer_name: str) -> None:
        self.computer_name = computer_name

    def format_name(self, text: str) -> FormatName:
        """Return the format name of a queue. Raises IllegalFormatname or IllegalQueuePathname."""
        return _format_name(text, self.computer_name)

    def path_name(self, text: str) -> PathName:
        """Return the path name of a queue to be created. Raises the errors of `format_name`."""
        path = spelling.path_name(text, self.computer_name)
        return path.with_computer(self.computer_name) if path.is_on_this_computer else path


def _format_name(text: str, computer_name: str) -> FormatName:
    read = _read_format_name if len(text) > spelling.LONGEST_KEPT else _kept_format_name
    return read(text, computer_name)


def _read_format_name(text: str, computer_name: str) -> FormatName:
    name = spelling.format_name(text, computer_name)
    if isinstance(name, MultipleElementFormatName):
        return MultipleElementFormatName(tuple(named(element, computer_name) for element in name.elements))
    return named(name, computer_name)


_kept_format_name: Final = lru_cache(maxsize=1024)(_read_format_name)


def named(name: FormatName, computer_name: str) -> FormatName:
    """Return a name of one queue with the name of this computer instead of `.` and `localhost`."""
    if isinstance(name, DirectFormatName) and is_relative(name) and name.path_name is not None:
        # The name of a computer is valid only with OS:, whichever protocol preceded the dot.
        return DirectFormatName.to_path(name.path_name.with_computer(computer_name))
    return name
