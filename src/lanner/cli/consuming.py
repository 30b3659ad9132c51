"""`lanner consume`: run a command for each message of a queue."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import asdict
from typing import Annotated, Self

import typer

from lanner.cli.errors import CommandError, UsageError
from lanner.cli.options import Json, QueueName, duration
from lanner.cli.output import note, write_json
from lanner.cli.session import Place, open_manager, reaching
from lanner.client import ReceivedMessage

# The exit code that a shell reports for a program ended by SIGINT.
EXIT_INTERRUPTED = 130


class CommandFailed(CommandError):
    """The command for a message did not end with exit code 0."""


class Commands:
    """Runs the command for each message, in several threads."""

    def __init__(self, command: str, queue: str) -> None:
        self._command = command
        self._queue = queue
        # No lock protects this, because a signal handler reads it.
        self._running: set[subprocess.Popen[bytes]] = set()
        # The signal that ends commands, including those that are about to start.
        self._ending: signal.Signals | None = None

    def __call__(self, message: ReceivedMessage) -> None:
        """Run the command for a message; CommandFailed if its exit code is not 0."""
        body = message.body
        process = subprocess.Popen(  # noqa: S602 (the command is the user's own)
            self._command,
            shell=True,
            stdin=subprocess.PIPE,
            env=os.environb | _environment(message, self._queue),
            # Only lanner gets Ctrl-C, and it waits for the command.
            process_group=0,
        )
        self._running.add(process)
        try:
            if self._ending is not None:
                self.end(self._ending)
            process.communicate(body.encode() if isinstance(body, str) else body)
        finally:
            self._running.discard(process)
        if process.returncode < 0:
            raise CommandFailed(f"the command was ended by signal {-process.returncode}")
        if process.returncode:
            raise CommandFailed(f"the command ended with exit code {process.returncode}")

    def end(self, number: signal.Signals) -> None:
        """Send a signal to the running commands."""
        self._ending = number
        for process in tuple(self._running):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)


def _environment(message: ReceivedMessage, queue: str) -> dict[bytes, bytes]:
    values = {
        "QUEUE": queue,
        "ID": message.id,
        "LOOKUP_ID": message.lookup_id,
        "LABEL": message.label,
        "PRIORITY": message.priority,
        "CORRELATION_ID": message.correlation_id,
        "RESPONSE_QUEUE": message.response_queue,
        "BODY_TYPE": message.body_type,
        "APP_SPECIFIC": message.app_specific,
        "ABORT_COUNT": message.abort_count,
        "SENT_TIME": message.sent_time.isoformat(),
    }
    # A label may have characters that an environment variable cannot hold.
    return {
        f"LANNER_{name}".encode(): b"" if value is None else str(value).replace("\0", "").encode("utf-8", "replace")
        for name, value in values.items()
    }


class Signals:
    """SIGINT and SIGTERM while commands run: the first one waits, later ones end them."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        self.count = 0

    def __enter__(self) -> Self:
        for number, before in self._before.items():
            # A shell starts background jobs with Ctrl-C ignored.
            if before is not signal.SIG_IGN:
                signal.signal(number, self._arrived)
        return self

    def __exit__(self, *error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _arrived(self, number: int, frame: object) -> None:
        del number, frame
        self.count += 1
        # `print` could interrupt itself.
        if self.count == 1:
            os.write(2, b"lanner: finishing the commands that run; once more ends them\n")
        elif self.count == 2:
            self._commands.end(signal.SIGTERM)
            os.write(2, b"lanner: asking the commands that run to end; once more kills them\n")
        else:
            self._commands.end(signal.SIGKILL)


@reaching
def consume(
    queue: QueueName,
    *,
    command: Annotated[
        str,
        typer.Option(
            "--exec", metavar="COMMAND", help="The command, run by the shell. Exit code 0 removes the message."
        ),
    ],
    retries: Annotated[int, typer.Option("--retries", min=1, help="Failures after which a message is poison.")] = 3,
    poison: Annotated[
        str | None,
        typer.Option(
            "--poison",
            help="Where poison messages go: a queue, `;NAME` (a subqueue), or `discard`.",
            show_default=";poison",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="How many commands run at once.")] = 1,
    idle: Annotated[
        str | None,
        typer.Option("--idle", help="End after this time without a message: 5, 2m, 1h; 0: when the queue is empty."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many messages.")] = None,
    at: Place,
    json: Json = False,
) -> None:
    """Run a command for each message, until SIGTERM or Ctrl-C.

    Both signals wait for the running commands.

    The body is the standard input of the command, text as UTF-8; properties are in its environment:
    LANNER_ID, LANNER_LABEL, LANNER_CORRELATION_ID, LANNER_RESPONSE_QUEUE, LANNER_ABORT_COUNT and
    others.
    """
    seconds = None if idle is None else duration(idle, "--idle")
    with open_manager(at) as manager:
        opened = manager.open(queue)
        name = opened.path_name
        commands = Commands(command, name)
        with Signals(commands) as signals:
            try:
                result = opened.consume(
                    commands,
                    retries=retries,
                    poison=poison,
                    concurrency=concurrency,
                    stop=lambda: signals.count > 0,
                    idle=seconds,
                    count=count,
                )
            except ValueError as error:
                raise UsageError(str(error)) from None
    if json:
        write_json({"queue": name, **asdict(result)})
    else:
        note(
            f"{name}: {result.handled} handled, {result.retried} failed attempts, {result.poisoned} poison"
            + (f", {result.in_doubt} in doubt" if result.in_doubt else "")
        )
    if signals.count > 1:
        raise typer.Exit(EXIT_INTERRUPTED)
