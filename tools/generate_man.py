"""Write the manual pages of the `lanner` command: one for itself, and one per subcommand.

Usage: python tools/generate_man.py DIRECTORY
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import lanner
from lanner.cli.app import app


def pages() -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each page."""
    yield from _pages(typer.main.get_command(app), "lanner")


def _pages(command: Any, name: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 (the framework's)
    context = typer.Context(command, info_name=name)
    children = [
        (one, command.get_command(context, one)) for one in getattr(command, "list_commands", lambda _: ())(context)
    ]
    page = name.replace(" ", "-")
    summary, _, rest = " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")
    lines = [
        f'.TH {_escaped(page.upper())} 1 "" "lanner {lanner.__version__}" "Lanner"',
        ".SH NAME",
        f"{_escaped(page)} \\- {_escaped(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escaped(name)}",
        _escaped(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        _escaped(re.sub(r"\s+", " ", command.help or "")),
    ]
    del rest
    options = [record for one in command.get_params(context) if (record := one.get_help_record(context)) is not None]
    if options:
        lines.append(".SH OPTIONS")
        for option, text in options:
            lines += [".TP", f".B {_escaped(option)}", _escaped(" ".join(text.split()))]
    if children:
        lines.append(".SH COMMANDS")
        for one, child in children:
            text = " ".join((child.help or "").split("\n\n")[0].split())
            lines += [".TP", f".B {_escaped(f'{page}-{one}')}(1)", _escaped(text)]
    if " " in name or page != "lanner":
        parent = page.rpartition("-")[0] or "lanner"
        lines += [".SH SEE ALSO", f".BR {_escaped(parent)} (1)"]
    yield f"{page}.1", "\n".join(lines) + "\n"
    for one, child in children:
        yield from _pages(child, f"{name} {one}")


def _escaped(text: str) -> str:
    """Escape text for roff.

    Backslashes and hyphens become literal, and no line can begin with a roff request.
    """
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(directory: str) -> None:
    """Write the pages into a directory."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
