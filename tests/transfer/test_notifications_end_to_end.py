"""Change notifications from one queue manager to another.

They go over a session, over a router, and to a queue manager that is down.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.settings import NotificationSettings
from lanner.model.directory_objects import GUID_NULL, Queue
from lanner.model.enums import AuthenticationLevel, DirectoryOperationResult, QueueType
from lanner.security.profile import Profile
from lanner.wire import layout as at
from lanner.wire.change_notification import ChangeNotificationMessage, NotificationBody, NotificationEvent
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.user_message import UserMessage
from tests.transfer.enterprise import Enterprise, line
from tests.transfer.incoming_harness import OPEN_TO_ALL
from tests.transfer.test_notifications_sent import own_key
from tests.transfer.world import Node, World

SERVER = "localhost"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def enterprise(
    world: World,
    **settings: Any,  # noqa: ANN401 - any setting
) -> Enterprise:
    """ALPHA - ROUTER - OMEGA, in one directory: what ALPHA changes, OMEGA reads."""
    found = line(world, directory_integrated=True, signing_keys=lambda: [own_key()], **settings)
    alpha, omega = found["ALPHA"].directory, found["OMEGA"].directory
    omega.answers |= {"read_at": alpha.read_at, "queues_of": alpha.queues_of}
    return found


def orders(alpha: Node, **values: object) -> Queue:
    """A public queue that ALPHA creates for OMEGA."""
    queue = Queue(identifier=GUID_NULL, pathname=r"OMEGA\orders", queue_type=QueueType.PUBLIC, security=OPEN_TO_ALL)
    for attribute, value in values.items():
        setattr(queue, attribute, value)
    result, identifier = alpha.engine.create_directory_object(queue)
    assert result is DirectoryOperationResult.SUCCESS
    assert identifier is not None
    queue.identifier = identifier
    alpha.sync()
    return queue


def address(node: Node) -> str:
    return rf"PRIVATE={node.guid}\3"


def packets(world: World, sender: Node, receiver: Node) -> list[tuple[int, bytes]]:
    """The packets that went from one to the other, with the port of their connection."""
    found = []
    for connection in world.connections:
        if connection.node is not sender or connection.peer.node is not receiver:
            continue
        data = b"".join(connection.sent)
        while data:
            size = int.from_bytes(data[8:12], "little")
            extra = 16 if data[2] & at.BASE_SH and not data[2] & at.IN else 0
            found.append((data[2], data[:size]))
            data = data[size + extra :]
    return found


@pytest.mark.spec("MQCN-1.6-10", "MQCN-4.1-1", "MQCN-1.4-1", "MQCN-3.3.5.3-6", "MQCN-3.3.3-1")
def test_a_queue_that_is_created_for_another_computer_comes_to_be_there(world: World) -> None:
    """Over a routing server, which changes neither body nor signature."""
    net = enterprise(world)
    alpha, router, omega = net["ALPHA"], net["ROUTER"], net["OMEGA"]
    levels: list[int] = []
    omega.engine.position_deleted_subscribers.append(
        lambda _queue, position, _reason: levels.append(Message(position.record.packet).authentication_level)
    )
    queue = orders(alpha, label="told")
    (sent,) = alpha.engine.outgoing_queues()
    world.tick(3)
    omega.sync()
    first = [packet for flags, packet in packets(world, alpha, router) if not flags & at.IN]
    last = [packet for flags, packet in packets(world, router, omega) if not flags & at.IN]
    assert [len(first), len(last)] == [1, 1]
    one, two = Message(first[0]), Message(last[0])
    assert (
        one.body
        == two.body
        == ChangeNotificationMessage.of_body(
            NotificationBody(NotificationEvent.CREATE_QUEUE, queue.identifier, SERVER)
        ).message_body()
    )
    assert one.signature == two.signature
    assert levels == [AuthenticationLevel.SIG20]
    assert omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}")) is None
    world.tick(60)
    assert sent.message_count == 0
    made = omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}"))
    assert made is not None
    assert (made.label, made.pathname) == ("told", r"OMEGA\orders")
    alpha.send(r"DIRECT=OS:OMEGA\orders", b"1", recoverable=False)
    world.tick(3)
    assert omega.bodies(r"DIRECT=OS:.\orders") == [b"1"]
    assert [one.identifier for one in alpha.engine.read_all_of(Queue) or ()] == [queue.identifier]


@pytest.mark.spec("MQCN-3.3.5.3-12")
def test_it_goes_out_when_the_owner_is_back(world: World) -> None:
    net = enterprise(world)
    alpha, omega = net["ALPHA"], net["OMEGA"]
    net.down("OMEGA", "ROUTER")
    queue = orders(alpha)
    world.tick(200, step=1.0)
    assert alpha.outgoing(address(omega)).message_count == 1
    net.up("OMEGA", "ROUTER")
    world.tick(30)
    world.tick(60)
    assert omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}")) is not None


@pytest.mark.spec("MQCN-3.3.5.3-2")
def test_it_does_not_come_late(world: World) -> None:
    net = enterprise(world)
    alpha, omega = net["ALPHA"], net["OMEGA"]
    net.down("OMEGA", "ROUTER")
    queue = orders(alpha)
    world.tick(301, step=1.0)
    assert alpha.outgoing(address(omega)).message_count == 0
    net.up("OMEGA", "ROUTER")
    world.tick(100, step=1.0)
    assert omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}")) is None
    assert omega.engine.notifications.next_deadline() is None


def test_version_1_of_a_directory_server_is_believed(world: World) -> None:
    """Create, change and delete, with nothing read but who the sender is; profile SAFE."""
    net = enterprise(world, notifications=NotificationSettings(is_delayed=False, sends_version_1=True))
    alpha, omega = net["ALPHA"], net["OMEGA"]
    keys = alpha.directory.read("QueueManager", None)[0]
    assert keys is DirectoryOperationResult.SUCCESS
    alpha.engine.queue_manager.directory_server = True
    for node in (alpha, omega):
        publish(node, alpha)
    reads: list[str] = []
    read_at = omega.directory.answers["read_at"]

    def asked(*question: Any) -> object:  # noqa: ANN401 - any question
        reads.append(question[1])
        return read_at(*question)

    omega.directory.answers["read_at"] = asked
    queue = orders(alpha, quota=77)
    world.tick(5)
    made = omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}"))
    assert made is not None
    assert made.quota == 77
    queue.quota = 66
    alpha.engine.write_directory(queue, ["Quota"])
    world.tick(5)
    assert made.quota == 66
    alpha.engine.delete_directory_object(queue)
    world.tick(5)
    assert made.is_deleted
    assert set(reads) == {"QueueManager"}


def publish(node: Node, server: Node) -> None:
    """Let a directory know a queue manager as a directory server, with its keys."""
    from lanner.model.directory_objects import QueueManager
    from tests.security.samples import queue_manager_keys

    keys = queue_manager_keys().public_key_lists()[1]
    there = QueueManager(
        identifier=server.guid, computer_name="ALPHA", directory_server=True, public_signing_key_list=keys
    )
    assert node.directory.write(there, ["DirectoryServer", "PublicSigningKeyList"]) is DirectoryOperationResult.SUCCESS


def test_profile_document_deletes_at_a_word(world: World) -> None:
    """Profile DOCUMENT deletes on the same notification, with the object still there.

    Profile SAFE asks the directory first.
    """
    for number, profile in enumerate((Profile.DOCUMENT, Profile.SAFE)):
        own = World(world._path / profile.value)
        try:
            net = enterprise(own, notifications=NotificationSettings(is_delayed=False), profile=profile)
            alpha, omega = net["ALPHA"], net["OMEGA"]
            queue = orders(alpha)
            own.tick(5)
            forged = NotificationBody(NotificationEvent.DELETE_QUEUE, queue.identifier, SERVER)
            body = ChangeNotificationMessage.of_body(forged).message_body()
            alpha.send(address(omega), body, recoverable=False)
            own.tick(5)
            found = omega.engine.find_queue(parse(f"PUBLIC={queue.identifier}"))
            assert (found is not None) is bool(number)
        finally:
            own.close()


def test_nobody_is_told_twice(world: World) -> None:
    """A change caused by a notification raises no notification.

    So two queue managers do not notify each other forever.
    """
    net = enterprise(world, notifications=NotificationSettings(is_delayed=False))
    alpha, router, omega = net["ALPHA"], net["ROUTER"], net["OMEGA"]
    queue = orders(alpha)
    alpha.engine.write_directory(queue, ["Label"])
    alpha.engine.delete_directory_object(queue)
    world.tick(120)
    user = [UserMessage.unpack(packet) for flags, packet in packets(world, alpha, router) if not flags & at.IN]
    assert len(user) == 3
    assert [packet for flags, packet in packets(world, router, alpha) if not flags & at.IN] == []
    assert [packet for flags, packet in packets(world, omega, router) if not flags & at.IN] == []
