"""Error messages of commands, and the exit codes.

Exit codes: 0 success, 1 error, 2 wrong usage, 3 nothing found, 130 Ctrl-C.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from lanner.model.errors import (
    DsError,
    IllegalFormatname,
    IllegalQueuePathname,
    IOTimeout,
    LannerError,
    MessageNotAuthenticated,
    MessageNotFound,
    NoDs,
    QueueExists,
    QueueNotFound,
    StatusError,
    StoreCorrupt,
    StoreVersion,
    UnsupportedFormatnameOperation,
)
from lanner.security.printable import printable

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3
# The exit code that shells report for a program ended by SIGINT.
EXIT_INTERRUPTED = 130

_NAMES = (
    r"""a queue is named '.\private$\orders', orders (a private queue here) or 'DIRECT=OS:computer\private$\orders'"""
)

# The advice for errors whose text contains none.
HINTS: dict[type[Exception], str] = {
    QueueNotFound: "`lanner queue list` shows the queues there are, `lanner queue create` makes one",
    QueueExists: "`lanner queue show` shows it, `lanner queue set` changes it",
    IllegalQueuePathname: _NAMES,
    IllegalFormatname: _NAMES,
    UnsupportedFormatnameOperation: "a queue that is named by its identifier must be in the directory (`lanner "
    "directory show`); "
    "see the log of the queue manager",
    MessageNotAuthenticated: "the queue takes signed messages only: `lanner send --authenticate`",
    DsError: r"a public queue needs a directory that knows this computer; a private one ('.\private$\orders') does not",
    NoDs: r"a public queue needs a directory; a private one ('.\private$\orders') does not",
    StoreVersion: "use the version of Lanner that wrote the directory, or a newer one",
    StoreCorrupt: "`lanner doctor` shows what was put aside",
}

# The extra that installs a package outside the core installation.
EXTRAS = {
    "gssapi": "kerberos",
    "krb5": "kerberos",
    "numpy": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
}


class CommandError(LannerError):
    """An error of the command itself; the message says what to do."""


class UsageError(CommandError):
    """Options that conflict or are not valid."""


def nothing(text: str) -> typer.Exit:
    """Print a "nothing found" message, and return the `typer.Exit` that the caller raises."""
    print(f"lanner: {printable(text)}", file=sys.stderr)
    return typer.Exit(EXIT_NOTHING)


def exit_code(error: Exception) -> int:
    if isinstance(error, UsageError):
        return EXIT_USAGE
    return EXIT_NOTHING if isinstance(error, (IOTimeout, MessageNotFound)) else EXIT_ERROR


def describe(error: Exception) -> tuple[str, str | None]:
    """Return the text of an error, and advice if the text has none."""
    hint = next((HINTS[kind] for kind in type(error).__mro__ if kind in HINTS), None)
    if isinstance(error, IOTimeout):
        return "no message came in time", None
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        install = f"'lanner[{EXTRAS[package]}]'" if package in EXTRAS else "--force-reinstall lanner"
        return f"this needs the package {package}, which is not installed", f"install it with `pip install {install}`"
    if isinstance(error, (FileExistsError, NotADirectoryError)) and Path(error.filename or ".").is_file():
        return f"{error.filename} is no directory", "give another with --data"
    if isinstance(error, OSError):
        what = error.strerror or str(error)
        text = f"{error.filename}: {what}" if error.filename else what
        return text, "check that the path exists and that you may read and write it" if error.filename else None
    return str(error), hint


def report(error: Exception, *, as_json: bool) -> int:
    """Write the error to stderr, and return its exit code."""
    text, hint = describe(error)
    if as_json:
        document = {"error": text, "kind": type(error).__name__, "hint": hint}
        if isinstance(error, StatusError):
            document["status"] = f"{error.status:#010x}"
        print(json.dumps(document), file=sys.stderr)
    else:
        print(f"lanner: {printable(text)}", file=sys.stderr)
        if hint:
            print(f"  {hint}", file=sys.stderr)
    return exit_code(error)


# The framework's contexts and parameters have no public type.


def _without_values(params: list[Any]) -> list[Any]:
    """Return the parameters; a flag takes no value, so its help shows none."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        return _without_values(super().get_params(ctx))


class Group(TyperGroup):
    """Commands under a common name."""

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401
        return _without_values(super().get_params(ctx))


class Root(Group):
    """The root command. `--debug` may appear anywhere; without it, tracebacks are never shown."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        end = args.index("--") if "--" in args else len(args)
        own = args[:end]
        ctx.meta["lanner.json"] = "--json" in own
        ctx.meta["lanner.debug"] = "--debug" in own
        kept = [arg for arg in own if arg != "--debug"]
        return super().parse_args(ctx, [*kept, *args[end:]])

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except KeyboardInterrupt as error:
            if ctx.meta["lanner.debug"]:
                traceback.print_exc()
            raise typer.Exit(EXIT_INTERRUPTED) from error
        except (LannerError, OSError, ModuleNotFoundError) as error:
            if ctx.meta["lanner.debug"]:
                traceback.print_exc()
            raise typer.Exit(report(error, as_json=ctx.meta["lanner.json"])) from error
        except Exception as error:
            # The framework prints its own errors (usage, exit, abort).
            if ctx.meta["lanner.debug"] or type(error).__module__.startswith("typer"):
                raise
            text = f"{type(error).__name__}: {error}; this is a fault of lanner, `--debug` shows where"
            raise typer.Exit(report(CommandError(text), as_json=ctx.meta["lanner.json"])) from error
