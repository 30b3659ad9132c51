"""The spellings in which people name queues."""

from __future__ import annotations

import re
from functools import lru_cache

from lanner.model.errors import IllegalQueuePathname
from lanner.wire.format_name import DirectFormatName, FormatName, MultipleElementFormatName, parse
from lanner.wire.path_name import PathName

_FORMAT_NAME = re.compile(r"(direct|public|private|dl|machine|connector|multicast)=", re.IGNORECASE)


def is_format_name(text: str) -> bool:
    """Whether a text is meant as a format name, not as a path name."""
    return _FORMAT_NAME.match(text) is not None


class QueueNames:
    r"""Turns any spelling into a format name.

    A format name stays as it is, but a `.` in it is this computer by name, since other computers will read it.
    `computer\queue` and `.\private$\queue` are path names. `private$\queue` is on this computer, and a bare
    word is a private queue here.
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
    if not is_format_name(text):
        return DirectFormatName.to_path(_path_name(text, computer_name))
    name = parse(text)
    if isinstance(name, MultipleElementFormatName):
        return MultipleElementFormatName(tuple(_named(element, computer_name) for element in name.elements))
    return _named(name, computer_name)


def _named(name: FormatName, computer_name: str) -> FormatName:
    if isinstance(name, DirectFormatName) and name.is_on_this_computer and name.path_name is not None:
        return DirectFormatName.to_path(name.path_name.with_computer(computer_name), name.protocol)
    return name


def _path_name(text: str, computer_name: str) -> PathName:
    if is_format_name(text):
        name = _format_name(text, computer_name)
        if not isinstance(name, DirectFormatName) or name.path_name is None:
            raise IllegalQueuePathname(f"{text}: a path name or a direct format name says where to create a queue")
        return name.path_name
    lowered = text.lower()
    if lowered.startswith(("private$\\", "system$;")):
        text = f".\\{text}"
    elif "\\" not in text:
        text = f".\\private$\\{text}"
    path = PathName.parse(text)
    return path.with_computer(computer_name) if path.is_on_this_computer else path
