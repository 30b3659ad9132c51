"""The registry alone: under which names a queue is found."""

from __future__ import annotations

import uuid

import pytest

from lanner.engine.registry import QueueRegistry, private_queue_local_identifier
from lanner.engine.tables import QUEUES
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.enums import QueueType
from lanner.wire.format_name import parse
from lanner.wire.path_name import PathName
from tests.engine.parts.fakes import SOURCE, World

PUBLIC = uuid.UUID("99999999-8888-7777-6666-555555555555")


@pytest.fixture
def registry(world: World) -> QueueRegistry:
    return QueueRegistry(world.core)


def private(world: World, name: str = "q", number: int = 16) -> Queue:
    return world.queue(name, private_queue_number=number)


@pytest.mark.parametrize(
    "name",
    [
        r"DIRECT=OS:.\private$\Q",
        r"DIRECT=OS:alpha.example.com\private$\q",
        r"DIRECT=TCP:192.0.2.1\private$\q",
        rf"PRIVATE={SOURCE}\00000010",
        rf"PRIVATE={SOURCE}\{private_queue_local_identifier('q'):08x}",
    ],
)
def test_names_of_a_private_queue(world: World, registry: QueueRegistry, name: str) -> None:
    queue = private(world)
    registry.register(queue)
    assert registry.find_queue(parse(name)) is queue
    registry.unindex(queue)
    assert registry.find_queue(parse(name)) is None


def test_a_public_queue_is_found_by_its_identifier(world: World, registry: QueueRegistry) -> None:
    queue = world.queue()
    queue.pathname, queue.queue_type, queue.identifier = r"ALPHA\orders", QueueType.PUBLIC, PUBLIC
    registry.index(queue)
    assert registry.find_queue(parse(f"PUBLIC={PUBLIC}")) is queue
    assert registry.find_by_path(PathName.parse(r".\orders")) is queue


def test_journals_and_subqueues_belong_to_their_queue(world: World, registry: QueueRegistry) -> None:
    queue = private(world)
    registry.index(queue)
    journal = world.queue(parent=queue.number)
    journal.pathname, journal.queue_type = r"ALPHA\private$\q;journal", QueueType.SYSTEM
    registry.index(journal)
    subqueue = world.queue(parent=queue.number)
    subqueue.pathname = r"ALPHA\private$\q;retry"
    registry.index(subqueue)
    assert queue.journal_queue is journal
    assert queue.subqueues == {"retry": subqueue}
    assert registry.find_queue(parse(rf"PRIVATE={SOURCE}\00000010;JOURNAL")) is journal
    assert list(registry.local_queues()) == [queue]
    registry.unindex(subqueue)
    assert queue.subqueues == {}


def test_an_outgoing_queue_is_found_by_its_destination_only(world: World, registry: QueueRegistry) -> None:
    queue = world.outgoing()
    queue.is_for_others = True
    registry.index(queue)
    name = parse(r"DIRECT=OS:beta\private$\q")
    assert registry.find_outgoing_queue(name) is queue
    assert registry.find_queue(name) is None
    assert list(registry.outgoing_queues()) == [queue]
    assert registry.count_for_others == 1
    registry.unindex(queue)
    assert registry.count_for_others == 0


def test_a_registered_queue_is_stored(world: World, registry: QueueRegistry) -> None:
    registry.register(private(world))
    assert len(world.fake.table(QUEUES).rows) == 1
    ((number, class_name, attributes),) = world.attributes.queues()
    assert (number, class_name, attributes["pathname"]) == (1, "Queue", r"ALPHA\private$\q")


@pytest.mark.parametrize(
    ("host", "is_local"), [(".", True), ("ALPHA", True), ("localhost", True), ("192.0.2.1", True), ("beta", False)]
)
def test_which_hosts_are_this_computer(registry: QueueRegistry, host: str, is_local: bool) -> None:
    assert registry.is_local_host(host) is is_local


def test_an_outgoing_queue_is_no_local_queue(world: World, registry: QueueRegistry) -> None:
    registry.index(world.outgoing())
    assert list(registry.local_queues()) == []
    assert all(isinstance(queue, OutgoingQueue) for queue in registry.outgoing_queues())
