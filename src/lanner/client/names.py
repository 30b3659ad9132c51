"""The spellings in which people name queues."""

from __future__ import annotations

import re
from functools import lru_cache

from lanner.wire.format_name import DirectFormatName, FormatName, parse
from lanner.wire.path_name import PathName

_FORMAT_NAME = re.compile(r"(direct|public|private|dl|machine|connector|multicast)=", re.IGNORECASE)


class QueueNames:
    r"""Turns any spelling into a format name.

    A format name stays as it is. `computer\queue` and `.\private$\queue` are path names. `private$\queue`
    is on this computer, and a bare word is a private queue here.
    """

    def __init__(self, computer_name: str) -> None:
        self.computer_name = computer_name

    def format_name(self, text: str) -> FormatName:
        """The format name of a queue."""
        return _format_name(text, self.computer_name)

    def path_name(self, text: str) -> PathName:
        """The path name of a queue to be created."""
        return _path_name(text, self.computer_name)


@lru_cache(maxsize=1024)
def _format_name(text: str, computer_name: str) -> FormatName:
    if _FORMAT_NAME.match(text):
        return parse(text)
    return DirectFormatName.to_path(_path_name(text, computer_name))


def _path_name(text: str, computer_name: str) -> PathName:
    lowered = text.lower()
    if lowered.startswith(("private$\\", "system$;")):
        text = f".\\{text}"
    elif "\\" not in text:
        text = f".\\private$\\{text}"
    path = PathName.parse(text)
    return path.with_computer(computer_name) if path.is_on_this_computer else path
