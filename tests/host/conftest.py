"""A store, and a queue manager that runs in this process with one queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.host.addresses import local_settings
from lanner.host.change import Changes
from lanner.host.reads import Read
from lanner.host.runtime import Runtime
from lanner.model.enums import INFINITE, DeliveryGuarantee, QueueAccessType
from lanner.model.errors import IOTimeout
from lanner.model.live import Cursor, OpenQueueDescriptor, Transaction
from lanner.store import Store
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from tests.engine.harness import at_once
from tests.store.conftest import open_store

QUEUE = r"DIRECT=OS:.\private$\q"
# Seconds after which a test that waits for another thread has failed.
PATIENCE = 30.0


class World:
    """A running queue manager with a queue `q`."""

    def __init__(self, path: Path) -> None:
        self.runtime = Runtime(path, local_settings("ALPHA"))
        self.engine = self.runtime.engine
        with self.runtime.change() as change:
            self.engine.create_queue(self.engine.set_queue_defaults(r".\private$\q"))
        change.wait()

    def open(self, access: QueueAccessType = QueueAccessType.RECEIVE) -> OpenQueueDescriptor:
        with self.runtime.lock:
            return self.engine.open_queue(parse(QUEUE), access)

    def send(self, *bodies: bytes, is_express: bool = False) -> None:
        """Send, without waiting for the disk."""
        mode = DeliveryGuarantee.EXPRESS if is_express else DeliveryGuarantee.RECOVERABLE
        with self.runtime.lock:
            descriptor = self.engine.open_queue(parse(QUEUE), QueueAccessType.SEND)
            for body in bodies:
                properties = MessageProperties(body=body, delivery_guarantee=mode)
                self.engine.enqueue_message_to_an_open_queue(descriptor, properties)
            self.engine.close_queue(descriptor)

    def bodies(self) -> list[bytes]:
        """Return the bodies of the messages that another reader finds, in order."""
        found = []
        with self.runtime.lock:
            descriptor = self.engine.open_queue(parse(QUEUE), QueueAccessType.PEEK)
            cursor = self.engine.open_cursor(descriptor)
            assert cursor is not None
            try:
                position = at_once(self.engine.peek_message(descriptor, timeout=0, cursor=cursor))
                while True:
                    found.append(Message(position.record.packet).body)
                    position = at_once(self.engine.peek_next_message(descriptor, cursor, timeout=0))
            except IOTimeout:
                return found
            finally:
                self.engine.close_queue(descriptor)

    def receive(
        self,
        descriptor: OpenQueueDescriptor,
        timeout: int = INFINITE,
        *,
        changes: Changes | None = None,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
    ) -> Read:
        """Begin to receive; the time-out is in milliseconds."""
        read = Read(
            self.engine,
            changes or self.runtime,
            descriptor,
            is_receive=True,
            cursor=cursor,
            transaction=transaction,
        )
        read.begin(
            lambda on_end: self.engine.dequeue_message_begin(
                descriptor, timeout=timeout, cursor=cursor, transaction=transaction, on_end=on_end
            )
        )
        return read


class Signal:
    """A callback that another thread waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        self._event.set()

    def wait(self) -> None:
        assert self._event.wait(PATIENCE), "it was never called"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "data")
    yield opened
    opened.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    yield world
    world.runtime.close()
