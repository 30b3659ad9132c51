"""A data directory opened for one command, and the queues in it by whatever name a person gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from lanner.cli.errors import CommandError
from lanner.client import Queue, QueueManager, ReceivedMessage

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue as QueueObject


@contextmanager
def open_manager(data: Path, *, create: bool = False, name: str | None = None) -> Iterator[QueueManager]:
    """The queue manager of a data directory, until the command ends."""
    if not create and not (data / "data.mdb").is_file():
        missing = "holds no queue manager" if data.is_dir() else "does not exist"
        raise CommandError(
            f"data directory {data} {missing}: give another with --data or LANNER_DATA, "
            f"or make one with `lanner queue create NAME --data {data}`"
        )
    try:
        manager = QueueManager(data, name)
    except lmdb.Error as error:
        raise CommandError(f"{data} cannot be opened: {error}; `lanner doctor --data {data}` says more") from error
    with manager:
        yield manager


def attributes(manager: QueueManager, name: str) -> QueueObject:
    """The attributes of a queue; QueueNotFound if it is not here."""
    return manager.open(name).attributes


def source(manager: QueueManager, name: str) -> Queue:
    """A queue to read from, outgoing ones too; QueueNotFound if it is not here."""
    attributes(manager, name)
    return manager.open(name)


def walk(queue: Queue, limit: int | None = None) -> Iterator[ReceivedMessage]:
    """The messages from the first on, each looked at and left there."""
    return itertools.islice(queue, limit)
