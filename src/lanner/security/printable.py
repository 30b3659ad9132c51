"""Text from peers, made safe for terminals, logs and programs that read them.

Labels, names and error texts of peers may contain characters that control a terminal (C0 and C1
controls), change the order in which a line is read (bidirectional controls), or begin a new line
that looks like a log record. They are written as escape sequences. The criterion is
`str.isprintable`: letters, marks, digits, punctuation, symbols and the space stay.
"""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import Final, TypeAlias

__all__ = ["PrintableFormatter", "json_text", "one_line", "printable"]

_KEPT: Final = "\n\t"
_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Return the text with all unprintable characters escaped, except line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in _KEPT else _escaped(one) for one in text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return the same as one line: line ends and tabs are escaped too."""
    return text if text.isprintable() else "".join(one if one.isprintable() else _escaped(one) for one in text)


def json_text(document: object) -> str:
    """Return a document as JSON on one line, with all unprintable characters escaped."""
    text = json.dumps(document, ensure_ascii=False)
    if text.isprintable():
        return text
    # Outside of strings JSON is printable, and inside of them ASCII has an escape for all other
    # characters.
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)


class PrintableFormatter(logging.Formatter):
    """A formatter of log records that no peer can forge.

    A record is one line, and the lines of a traceback are indented.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (of the base class)
        return one_line(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 (of the base class)
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 (of the base class)
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    return "\n".join(f"  {one_line(line)}" for line in text.split("\n"))


def size(count: int) -> str:
    """Return a number of bytes in the form that people use."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def counted(count: int, noun: str = "message") -> str:
    """Return a count with its noun, in words."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"
