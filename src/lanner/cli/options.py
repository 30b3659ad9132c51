"""Options that many commands share, and the parsers of their values."""

from __future__ import annotations

import codecs
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
    # The code that opens the directory reports one that cannot be read, with advice.
    typer.Option("--data", envvar="LANNER_DATA", help="The data directory.", show_default="./data", readable=False),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", help="A queue manager on another computer, or at another address of this one: HOST or HOST:PORT."
    ),
]
User = Annotated[str | None, typer.Option("--user", help="Your account on HOST; without it, you are anonymous.")]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", help="The password of USER, in the first line of a file.")
]
Kerberos = Annotated[
    bool, typer.Option("--kerberos", help="Log on to HOST with your Kerberos ticket (kinit), without --user.")
]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the queues whose names begin so, for shell completion; none on error."""
    # Imported here: the help does not need the client.
    from lanner.cli.session import names_of_queues, place_of

    given = ctx.params
    try:
        at = place_of(
            Path(given.get("data") or DEFAULT_DATA),
            given.get("host"),
            given.get("user"),
            given.get("password_file"),
            kerberos=bool(given.get("kerberos")),
        )
        names = names_of_queues(at)
    except Exception:  # noqa: BLE001 (a completion has nowhere to say what is wrong)
        return []
    # Commands accept a private queue of this queue manager by its short name. Internal queues have
    # names that end in a dollar sign.
    short = [
        name.rpartition("\\")[2] if "\\private$\\" in name.lower() else name for name in names if not name.endswith("$")
    ]
    return sorted(name for name in short if name.lower().startswith(incomplete.lower()))


QueueName = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE",
        help=r"'.\private$\orders', orders, or a format name.",
        show_default=False,
        autocompletion=complete_queue,
    ),
]
Count = Annotated[int, typer.Option("--count", "-n", min=1, help="Maximum number of messages.")]
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
Raw = Annotated[bool, typer.Option("--raw", help="Only the body; text as UTF-8.")]
AS_IS = "as-is"
Encoding = Annotated[
    str,
    typer.Option(
        "--encoding", help=f"With --raw: how text is written, such as utf-16-le; `{AS_IS}`: as the message has it."
    ),
]


def raw_encoding(*, raw: bool, encoding: str) -> str | None:
    """Return the encoding of --raw; None without it."""
    try:
        codecs.lookup("utf-8" if encoding == AS_IS else encoding)
    except LookupError:
        raise UsageError(
            f"--encoding {encoding}: no encoding of Python; utf-8, utf-16-le, latin-1 or {AS_IS}"
        ) from None
    return encoding if raw else None


def duration(text: str, option: str) -> float | None:
    """Return seconds; None means for ever."""
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
    """Return a quota in kilobytes for the data model; `none` means no limit."""
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
