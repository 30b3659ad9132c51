"""A data directory opened for one command, and the queues in it by whatever name a person gives."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from lanner.cli.errors import CommandError, UsageError
from lanner.client import Queue, QueueManager, ReceivedMessage
from lanner.store import Store

if TYPE_CHECKING:
    from lanner.model.directory_objects import Queue as QueueObject


def check_directory(data: Path) -> None:
    """CommandError if there is something that cannot be a data directory of ours."""
    if data.exists() and not data.is_dir():
        raise CommandError(f"{data} is no directory: give another with --data or LANNER_DATA")
    if data.exists() and not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        raise CommandError(f"{data} cannot be read and written by uid {os.geteuid()}: run as its owner")


@contextmanager
def open_manager(data: Path, *, create: bool = False, name: str | None = None) -> Iterator[QueueManager]:
    """The queue manager of a data directory, until the command ends."""
    check_directory(data)
    is_there = Store.exists(data)
    if not create and not is_there:
        missing = "holds no queue manager" if data.is_dir() else "does not exist"
        raise CommandError(
            f"data directory {data} {missing}: give another with --data or LANNER_DATA, "
            f"or make one with `lanner queue create NAME --data {data}`"
        )
    try:
        # A name is for a new queue manager; one that is there would be renamed, and all its queues.
        manager = QueueManager(data, None if is_there else name)
    except lmdb.Error as error:
        raise CommandError(f"{data} cannot be opened: {error}; `lanner doctor --data {data}` says more") from error
    with manager:
        if name is not None and name.upper() != manager.name:
            raise UsageError(f"{data} holds the queue manager {manager.name}: --name {name} is for a new one")
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
