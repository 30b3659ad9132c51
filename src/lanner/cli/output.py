"""The output of commands: tables and notes for people, JSON for programs.

Control characters of message bodies are never written.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from lanner.security.printable import counted, json_text, one_line, printable, size

__all__ = [
    "bytes_progress",
    "confirm",
    "console",
    "counted",
    "note",
    "progress",
    "say",
    "show_fields",
    "show_table",
    "size",
    "write_json",
]

# The width that is used if the output is not a terminal. It has room for a format name beside the
# numbers.
_WIDTH_OF_A_FILE = 240
# Not in the specification: the minimum width of a text column on a narrow terminal.
_LEAST = 8
# Not in the specification: the width that is worth more than a column which can be spared, of the
# first column of text, which is mostly a name, and of another.
_WORTH_OF_NAMES, _WORTH_OF_TEXT = 40, 16
# Columns of text that are useless when they are cut.
_WHOLE = ("LOOKUP ID", "SENT", "REASON", "STATE", "KIND", "SINCE", "TRANS", "GUID")
_GAP = "  "
# Not in the specification: the number of messages from which a bar is shown. With fewer, it would
# only flicker.
_WORTH_A_BAR = 200


def console() -> Console:
    """Return a console for the current standard output, which tests and pipes replace."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(file=sys.stdout, width=_WIDTH_OF_A_FILE, highlight=False, color_system=None)


def note(text: str) -> None:
    """Print a remark for people, to standard error."""
    print(f"lanner: {printable(text)}", file=sys.stderr)


def say(text: str) -> None:
    print(printable(text))


def write_json(document: object) -> None:
    """Print a document on one line."""
    print(json_text(document))


def show_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]], spare: Sequence[str] = ()) -> None:
    """Print a table; a column is its title and whether it holds numbers.

    On a terminal each row is one line. If it is too narrow, the columns of `spare` are left out one
    after the other, and then columns of text are cut, from the last to the first. Numbers are never
    cut.
    """
    titles = [title for title, _ in columns]
    # Each cell is one line, even if a label contains line breaks.
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(titles, *cells, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        are_whole = [is_number or title in _WHOLE for title, is_number in columns]
        kept = _kept(titles, widths, are_whole, room, spare)
        widths = _narrowed([widths[at] for at in kept], [are_whole[at] for at in kept], room)
        columns, titles = [columns[at] for at in kept], [titles[at] for at in kept]
        cells = [[row[at] for at in kept] for row in cells]
    out = console()
    for row in (titles, *cells):
        aligned = [
            " " * (width - cell_len(cell)) + cell if is_number else _fitted(cell, width, keeps_end="\\" in cell)
            for cell, width, (_, is_number) in zip(row, widths, columns, strict=True)
        ]
        line = Text(_GAP.join(aligned).rstrip(), style="bold" if row is titles else "")
        out.print(line, soft_wrap=not sys.stdout.isatty(), no_wrap=True, overflow="ellipsis")


def _kept(titles: list[str], widths: list[int], are_whole: list[bool], room: int, spare: Sequence[str]) -> list[int]:
    """Return the columns that a terminal has room for, those of `spare` as far as they fit."""
    texts = [at for at, is_whole in enumerate(are_whole) if not is_whole]
    worth = [
        width if is_whole else min(width, _WORTH_OF_NAMES if at == texts[0] else _WORTH_OF_TEXT)
        for at, (width, is_whole) in enumerate(zip(widths, are_whole, strict=True))
    ]
    kept = list(range(len(titles)))
    for title in spare:
        if sum(worth[at] for at in kept) + len(_GAP) * (len(kept) - 1) > room:
            kept.remove(titles.index(title))
    return kept


def _narrowed(widths: list[int], are_whole: list[bool], room: int) -> list[int]:
    """Return column widths that fit, as far as columns of text can be cut."""
    widths = list(widths)
    for index in reversed(range(len(widths))):
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
        if excess > 0 and not are_whole[index]:
            widths[index] = min(widths[index], max(_LEAST, widths[index] - excess))
    return widths


def _fitted(text: str, width: int, *, keeps_end: bool = False) -> str:
    """Return the text, cut or filled to a width.

    With `keeps_end`, what follows the last backslash is kept, because it distinguishes the names of
    queues; a longer name is cut in its middle.
    """
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if not keeps_end:
        return f"{set_cell_size(text, width - 1)}\u2026"
    name = text.rpartition("\\")[2]
    begin = width // 2 if cell_len(name) >= width else 0
    end = width - begin - 1
    return f"{set_cell_size(name, begin)}\u2026{set_cell_size(text[-end:], end)}"


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one pair per line."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        say(f"{name:<{width}}  {value}")


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal. A script is not asked."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(question, abort=True, err=True)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal for long work; yield the function that advances it."""
    if not sys.stderr.isatty() or (total is not None and total < _WORTH_A_BAR):
        yield lambda _count: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def bytes_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal for bytes; yield the function that advances it.

    It takes the bytes done and their total.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    columns = (TextColumn(what), BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, total=total, advance=done)

        yield advance
