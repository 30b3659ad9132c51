"""Options that many commands share, and the readers of their values."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Annotated

import typer

from lanner.cli.errors import UsageError
from lanner.model.enums import INFINITE

DEFAULT_DATA = Path("data")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)", re.IGNORECASE)

Data = Annotated[
    Path,
    # What cannot be read is told by whoever opens it, with what to do.
    typer.Option("--data", envvar="LANNER_DATA", help="The data directory.", show_default="./data", readable=False),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", help="A queue manager on another computer, or at another address of this one: HOST or HOST:PORT."
    ),
]
User = Annotated[str | None, typer.Option("--user", help="Who you are to HOST; without it, nobody.")]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="The password of USER, in the first line of a file.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
QueueName = Annotated[
    str, typer.Argument(metavar="QUEUE", help=r"'.\private$\orders', orders, or a format name.", show_default=False)
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="How many messages at most.")]
All = Annotated[bool, typer.Option("--all", help="All messages.")]
LookupId = Annotated[
    str | None, typer.Option("--lookup-id", help="The message with this lookup id (decimal, or hexadecimal with 0x).")
]
Filters = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        "-f",
        metavar="CONDITION",
        help="Messages that meet this condition (label~order, priority>=4, age>1h, class~nack); may be repeated.",
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", help="How long to wait for a message: 5, 2m, 1h, or `forever`.", show_default="0")
]
Raw = Annotated[bool, typer.Option("--raw", help="Only the bytes of the body.")]


def duration(text: str, option: str) -> float | None:
    """Seconds; None is for ever."""
    if text.lower() in ("forever", "infinite", "inf", "none"):
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{option} {text}: seconds, or a number with s, m, h or d (90, 5m, 1.5h), or `forever`")
    return float(match[1]) * _UNITS[match[2].lower()]


def lookup_id(text: str) -> int:
    try:
        number = int(text, 0)
    except ValueError:
        number = -1
    if not 0 <= number < 1 << 64:
        raise UsageError(f"--lookup-id {text}: a 64-bit number, decimal or hexadecimal with 0x; `peek` shows them")
    return number


def kilobytes(text: str | None, option: str) -> int:
    """A quota in kilobytes as the data model has it; `none` is no limit."""
    if text is None or text.lower() in ("none", "unlimited"):
        return INFINITE
    if not text.isdecimal() or int(text) >= INFINITE:
        raise UsageError(f"{option} {text}: kilobytes, 0 to {INFINITE - 1}, or `none` for no limit")
    return int(text)


def guid(text: str, option: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise UsageError(f"{option} {text}: a GUID, such as 6f9619ff-8b86-d011-b42d-00cf4fc964ff") from None
