"""Where a command writes: tables and notes for people, JSON for programs, and never a body's control characters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

# Wide enough for a format name beside the numbers, where no terminal says how wide it is.
_WIDTH_OF_A_FILE = 240
# Ours: below this many messages a bar would only flicker.
_WORTH_A_BAR = 200
_KEPT_CONTROLS = "\n\t"


def console() -> Console:
    """Standard output as rich sees it now; tests and pipes replace the stream."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(file=sys.stdout, width=_WIDTH_OF_A_FILE, highlight=False, color_system=None)


def printable(text: str) -> str:
    """The text with what could steer a terminal made visible."""
    return "".join(
        character if character.isprintable() or character in _KEPT_CONTROLS else repr(character)[1:-1]
        for character in text.replace("\r\n", "\n")
    )


def note(text: str) -> None:
    """A remark for people, beside the output."""
    print(f"lanner: {text}", file=sys.stderr)


def say(text: str) -> None:
    print(printable(text))


def write_json(document: object) -> None:
    """One document on one line."""
    print(json.dumps(document, ensure_ascii=False))


def show_table(columns: Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """A table; a column is its title and whether it holds numbers. A narrow terminal cuts the last column first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title, is_number in columns[:-1]:
        table.add_column(title, justify="right" if is_number else "left", no_wrap=True)
    table.add_column(columns[-1][0], overflow="ellipsis", no_wrap=True, ratio=1)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    # A file needs no spaces at the ends of its lines.
    with (out := console()).capture() as captured:
        out.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Names and values below each other."""
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        say(f"{name:<{width}}  {value}")


def size(count: int) -> str:
    """Bytes as people say them."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def counted(count: int, noun: str = "message") -> str:
    """How many of something, in words."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person; a script that got here meant it."""
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(question, abort=True, err=True)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal for long work; gives the function that moves it on."""
    if not sys.stderr.isatty() or (total is not None and total < _WORTH_A_BAR):
        yield lambda _count: None
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
