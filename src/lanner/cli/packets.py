"""`lanner export` and `lanner import`: write messages to a file, and send them from there."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lanner.cli.errors import CommandError, UsageError, nothing
from lanner.cli.import_progress import ImportProgress
from lanner.cli.options import DryRun, Json, QueueName
from lanner.cli.output import counted, progress, say, size, write_json
from lanner.cli.session import Place, open_manager, reaching, walk
from lanner.client import QueueManager
from lanner.client.runtimes import is_embedded
from lanner.model.errors import RemoteMachineNotAvailable, StatusError
from lanner.spark.flight.settings import is_available

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.spark.columnar.packet_files import Totals

# Not in the specification: the number of messages that are sent together to a running queue
# manager.
BATCH = 500

File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of packets.", show_default=False)]


def _check_packages() -> None:
    if not is_available():
        raise CommandError("files of packets need pyarrow and numpy: install them with `pip install 'lanner[spark]'`")


@reaching
def export(
    queue: QueueName,
    file: File,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    at: Place,
    json: Json = False,
) -> None:
    """Write the messages of a queue, journal, dead-letter queue or subqueue to a file, as they are.

    The messages stay in the queue.
    """
    _check_packages()
    if file.exists() and not force:
        raise UsageError(f"{file} exists: give another name, or --force to replace it")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file}: there is no directory {file.parent}")
    with open_manager(at) as manager:
        origin = manager.open(queue)
        name = origin.path_name
        count = origin.count()
        if not count:
            raise nothing(f"{name} is empty")
        with progress("exporting", count) as advance:
            totals = _export(manager, queue, file, _steps(advance))
    if json:
        write_json({"queue": name, "file": str(file), "messages": totals.messages, "bytes": totals.bytes})
    else:
        say(f"{counted(totals.messages)} of {name} are in {file}, {size(file.stat().st_size)}")


def _steps(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Return a callback for totals that passes on only the increase."""
    done = 0

    def told(total: int) -> None:
        nonlocal done
        advance(total - done)
        done = total

    return told


def _export(manager: QueueManager, queue: str, file: Path, told: Callable[[int], None]) -> Totals:
    from lanner.spark.columnar.packet_files import Origin, export_messages, export_packets
    from lanner.spark.columnar.packet_source import Place as Seen
    from lanner.spark.source.queue_names import kind_of_name

    if is_embedded(manager):
        return export_packets(manager, queue, file, progress=told)
    opened = manager.open(queue)
    identifier = manager.identifier
    subqueue, kind = kind_of_name(str(manager.names.format_name(queue)))
    seen = Seen(None if identifier is None else str(identifier), manager.name, opened.format_name, kind, subqueue)
    return export_messages(walk(opened), Origin(seen, 0, int(time.time())), file, progress=told)


@dataclass(frozen=True, slots=True)
class _Work:
    """The parameters of an import."""

    messages: int
    transactional: bool
    resume_at: int | None


@reaching
def import_(
    file: File,
    queue: QueueName,
    *,
    transaction: Annotated[
        bool, typer.Option("--transaction", help="Send to a transactional queue of another computer.")
    ] = False,
    resume_at: Annotated[
        int | None,
        typer.Option("--resume-at", min=0, help="Continue after this many messages of FILE, if an import requests it."),
    ] = None,
    dry_run: DryRun = False,
    at: Place,
    json: Json = False,
) -> None:
    """Send the messages of a file to a queue. Repeating the command sends none twice.

    Each message keeps its content and gets a new id.

    In a data directory on which no queue manager runs, and to a transactional queue, all are sent
    in one step. Elsewhere they are sent in batches, and the same command continues where an earlier
    one has ended: FILE.imported records the place.
    """
    _check_packages()
    from lanner.spark.columnar.packet_files import check_packets

    with open_manager(at) as manager:
        target = manager.open(queue)
        name = target.format_name
        transactional = transaction or bool(manager.open(queue).is_transactional())
        found = check_packets(file)
        totals: Totals | None = found
        if not dry_run and found.messages:
            with progress("importing", found.messages) as advance:
                work = _Work(found.messages, transactional=transactional, resume_at=resume_at)
                totals = _import(manager, file, queue, _steps(advance), work)
    messages = 0 if totals is None else totals.messages
    if json:
        write_json(
            {"file": str(file), "queue": name, "messages": messages, "dry_run": dry_run, "is_new": totals is not None}
        )
    elif totals is None:
        say(f"{file} was imported to {name} before: nothing was done")
    elif messages:
        say(f"{'would import' if dry_run else 'imported'} {counted(messages)} from {file} to {name}")
    if not found.messages:
        raise nothing(f"{file} has no messages")


def _import(manager: QueueManager, file: Path, queue: str, told: Callable[[int], None], work: _Work) -> Totals | None:
    from lanner.spark.columnar.packet_files import PacketReader, Totals, copies, import_packets

    if is_embedded(manager):
        return import_packets(manager, file, queue, progress=told)
    target = manager.open(queue)
    state = ImportProgress(file, f"{manager.identifier} {target.format_name}")
    if work.resume_at is not None:
        state.resume_at(work.resume_at)
    state.check(queue)
    if state.done >= work.messages:
        return None
    before = state.done
    with PacketReader(file) as reader:
        messages = itertools.islice(copies(reader), before, None)
        if work.transactional:
            # All or none are sent, so only one step can be in doubt.
            with manager.transaction() as unit:
                done = before
                while batch := list(itertools.islice(messages, BATCH)):
                    target.send_many(batch, transaction=unit)
                    done += len(batch)
                    told(done)
                state.write(before, done)
            state.write(work.messages)
        else:
            while batch := list(itertools.islice(messages, BATCH)):
                state.write(state.done, state.done + len(batch))
                try:
                    target.send_many(batch)
                except StatusError as error:
                    if not isinstance(error, RemoteMachineNotAvailable):
                        # One message was refused. Those before it have arrived, and have
                        # identifiers.
                        state.write(state.done + sum(one.id is not None for one in batch))
                    raise CommandError(
                        f"{state.done} messages of {file} are in {queue}, then: {error}; the same command "
                        "continues there"
                    ) from error
                state.write(state.done + len(batch))
                told(state.done)
    return Totals(work.messages - before, 0)
