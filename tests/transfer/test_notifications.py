"""The notification queue (MS-MQCN 3.2).

Covered: what it accepts, when a message is processed, and what version 0x02 does.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.directory_events import identifier_is
from lanner.engine.settings import NotificationSettings
from lanner.model.directory_objects import OutgoingQueue, Queue, QueueManager
from lanner.model.enums import (
    Acknowledgements,
    DirectoryOperationResult,
    QueueAccessType,
    QueuePrivacyLevel,
    QueueShareMode,
    QueueType,
)
from lanner.model.errors import AccessDenied
from lanner.security.identity import SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.wire.change_notification import ChangeNotificationMessage, NotificationBody, NotificationEvent
from lanner.wire.format_name import parse
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.security.samples import signing_key
from tests.transfer.incoming_harness import ADMIN, OPEN_TO_ALL, asking, sent_by, told
from tests.transfer.notified import QUEUE_TYPE, SECURITY, SERVER, STRANGE_SERVER, Notified, creation_of, peer_key

CREATE, CHANGE = NotificationEvent.CREATE_QUEUE, NotificationEvent.CHANGE_QUEUE
DELETE, MACHINE = NotificationEvent.DELETE_QUEUE, NotificationEvent.CHANGE_MACHINE
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
DAY = 86_400


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Notified]:
    harness = Notified(tmp_path / "data")
    yield harness
    harness.close()


@pytest.fixture
def document(tmp_path: Path) -> Iterator[Notified]:
    """Profile DOCUMENT."""
    harness = Notified(tmp_path / "data", profile=Profile.DOCUMENT)
    yield harness
    harness.close()


def body_of(event: int, identifier: uuid.UUID, server: str = SERVER) -> bytes:
    text = (
        f"<Notification><Event>{event}</Event><ObjectGuid>{str(identifier).upper()}</ObjectGuid>"
        f"<DomainController>{server}</DomainController></Notification>"
    )
    return b"\x02\x01" + text.encode("utf-16-le")


# The queue (1.9, 3.2.1.2.1, 3.2.3)
# ------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-1.9-1", "MQCN-3.2.1.2.1-1", "MQCN-3.2.1.2.1-2")
def test_the_names_of_the_notification_queue(h: Notified) -> None:
    own = h.engine.queue_manager.identifier
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    assert (queue.pathname, queue.queue_type) == (r"ALPHA\private$\notify_queue$", QueueType.SYSTEM)
    wanted = h.published("orders")
    names = (
        rf"PRIVATE={own}\3",
        rf"PRIVATE={own}\00000003",
        r"DIRECT=OS:ALPHA\private$\notify_queue$",
        r"DIRECT=OS:alpha\PRIVATE$\NOTIFY_QUEUE$",
        r"DIRECT=TCP:127.0.0.1\private$\notify_queue$",
    )
    for number, name in enumerate(names):
        assert h.engine.find_queue(parse(name.replace("127.0.0.1", "localhost"))) is queue or "TCP" in name
        h.told(body_of(CREATE, wanted.identifier), to=name)
        h.process(DAY)
        found = h.here("orders")
        assert found is not None, name
        h.engine.delete_queue(found, skip_directory=True)
        assert number < len(names)


@pytest.mark.spec("MQCN-1.9-2")
def test_its_number_is_given_to_no_application_queue(h: Notified) -> None:
    numbers = {h.create(f"q{number}").private_queue_number for number in range(30)}
    assert min(numbers) > 15
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    assert queue.private_queue_number == 3


def test_a_store_of_an_earlier_version_gets_the_number(h: Notified) -> None:
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    h.engine.names.registry.unindex(queue)
    queue.private_queue_number, queue.security = 0, None
    h.engine.names.registry.register(queue)
    h.restart()
    wanted = h.published("orders")
    h.tell(CREATE, wanted.identifier)
    h.process()
    assert h.here("orders") is not None


@pytest.mark.spec("MQCN-3.2.1.2.1-3")
def test_everyone_and_the_anonymous_may_send_to_it(h: Notified) -> None:
    """A message without a sender, of a queue manager (ST 2), and of an unknown SID."""
    stranger = Sid.parse("S-1-5-21-9-9-9-1001")
    senders: tuple[dict[str, Any], ...] = (
        {},
        {"sender_identifier": uuid.uuid4().bytes_le, "sender_identifier_type": 2},
        sent_by(stranger),
    )
    for number, sender in enumerate(senders):
        wanted = h.published(f"orders{number}")
        h.told(body_of(CREATE, wanted.identifier), **sender)
        h.process(DAY)
        assert h.here(f"orders{number}") is not None, sender


def test_programs_cannot_open_it(h: Notified) -> None:
    """DMPR-3.1.3-11 stays true, for administrators too."""
    administrator = Identity("root", Sid.parse("S-1-5-32-544"), is_administrator=True)
    for access in (QueueAccessType.RECEIVE, QueueAccessType.PEEK, QueueAccessType.SEND):
        with pytest.raises(AccessDenied, match="own use"):
            h.engine.open_queue(parse(h.address), access, QueueShareMode.DENY_NONE, administrator)


@pytest.mark.spec("MQCN-3.2.3-1", "MQCN-3.2.3-2")
def test_it_is_opened_at_the_start_for_receiving_and_shared(h: Notified) -> None:
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    (opened,) = queue.open_queue_descriptors.values()
    assert (opened.access_type, opened.share_mode) == (QueueAccessType.RECEIVE, QueueShareMode.DENY_NONE)
    assert opened.format_name.upper() == h.address.upper().replace(r"\3", r"\00000003")
    second = h.engine.open_queue(parse(h.address), QueueAccessType.RECEIVE, QueueShareMode.DENY_NONE, SYSTEM)
    h.engine.close_queue(second)
    h.tell(CHANGE, uuid.uuid4())
    assert queue.message_count == 0


@pytest.mark.spec("MQCN-3.2.3-4")
def test_in_workgroup_mode_nothing_is_taken(tmp_path: Path) -> None:
    h = Notified(tmp_path / "data", directory_integrated=False)
    try:
        h.create("admin")
        queue = h.engine.queue_manager.change_notification_queue
        assert queue is not None
        assert not queue.open_queue_descriptors
        wanted = h.published("orders")
        for to in (h.address, r"DIRECT=OS:ALPHA\private$\notify_queue$"):
            everything = asking(Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE)
            h.told(body_of(CREATE, wanted.identifier), to=to, **everything)
            h.process(DAY)
        assert queue.message_count == 0
        assert h.publics == []
        assert told(h) == []
        assert h.outgoing(ADMIN) == []
    finally:
        h.close()


@pytest.mark.spec("MQCN-3.2.3-6")
def test_without_its_queue_the_rest_runs(h: Notified, caplog: pytest.LogCaptureFixture) -> None:
    """Another part of the process has it open alone."""
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    h.engine.close_queue(next(iter(queue.open_queue_descriptors.values())))
    h.engine.open_queue(parse(h.address), QueueAccessType.RECEIVE, QueueShareMode.DENY_RECEIVE, SYSTEM)
    h.engine.notifications.start()
    assert "change notifications are not processed" in caplog.text
    wanted = h.published("orders")
    h.tell(CREATE, wanted.identifier)
    h.process(DAY)
    assert h.publics == []
    h.create("q")
    h.arrive(h.packet(b"1"))
    assert h.bodies() == [b"1"]


@pytest.mark.spec("MQCN-3.2.3-7", "MQCN-5.1-2")
def test_the_queue_is_read_as_long_as_the_queue_manager_runs(h: Notified) -> None:
    """It reads messages that wait at the start, later ones, and those after a long pause."""
    queues = [h.published(f"q{number}") for number in range(4)]
    h.stop()
    h.start()
    waiting = h.engine.open_queue(parse(h.address), QueueAccessType.SEND, QueueShareMode.DENY_NONE, SYSTEM)
    notification_queue = h.engine.queue_manager.change_notification_queue
    assert notification_queue is not None
    h.engine.close_queue(next(iter(notification_queue.open_queue_descriptors.values())))
    # There is no reader now: two messages wait, and outlive the queue manager.
    for queue in queues[:2]:
        h.engine.enqueue_message_to_an_open_queue(waiting, h.properties(body_of(CREATE, queue.identifier)))
    assert h.engine.queue_manager.change_notification_queue.message_count == 2  # type: ignore[union-attr]
    h.sync()
    h.restart()
    assert h.engine.queue_manager.change_notification_queue.message_count == 0  # type: ignore[union-attr]
    h.process()
    assert h.publics == [r"ALPHA\q0", r"ALPHA\q1"]
    h.tell(CREATE, queues[2].identifier)
    h.process(900)
    assert not h.delay
    before = len(h.reads)
    h.process(30 * DAY)
    assert len(h.reads) == before
    h.tell(CREATE, queues[3].identifier)
    assert h.delay == 60
    h.process()
    assert h.publics == [rf"ALPHA\q{number}" for number in range(4)]


# The timer (notes 3 and 14)
# -------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-1.6-2", "MQCN-3.2.2-1")
def test_the_first_one_waits_a_minute(h: Notified) -> None:
    wanted = h.published("orders")
    h.tell(CREATE, wanted.identifier)
    assert h.delay == 60
    h.process(59)
    assert h.publics == []
    assert h.reads == []
    h.process(1)
    assert h.publics == [r"ALPHA\orders"]


@pytest.mark.spec("MQCN-1.6-3", "MQCN-1.6-2")
@pytest.mark.parametrize(("since", "delay"), [(600, 300), (1, 899), (840, 60), (841, 60), (5000, 60)])
def test_the_next_one_waits_for_the_rest_of_fifteen_minutes(h: Notified, since: float, delay: float) -> None:
    h.tell(CREATE, uuid.uuid4())
    h.process()
    h.process(since)
    h.tell(CREATE, uuid.uuid4())
    assert h.delay == delay


@pytest.mark.spec("MQCN-1.6-6")
def test_others_do_not_move_the_timer(h: Notified) -> None:
    h.tell(CREATE, uuid.uuid4())
    h.process(40)
    h.tell(CREATE, uuid.uuid4())
    assert h.delay == 20


@pytest.mark.spec("MQCN-1.6-4", "MQCN-1.6-5")
def test_all_are_processed_in_their_order(h: Notified) -> None:
    queues = [h.published(f"q{number:02}") for number in range(98)]
    for queue in queues:
        h.tell(CREATE, queue.identifier)
    h.removed(queues[0])
    h.tell(DELETE, queues[0].identifier)
    h.process()
    assert len(h.publics) == 97


@pytest.mark.spec("MQCN-1.6-5")
def test_a_queue_that_is_created_and_deleted_is_not_there(document: Notified) -> None:
    wanted = document.published("orders")
    document.tell(CREATE, wanted.identifier)
    document.tell(DELETE, wanted.identifier)
    document.process()
    assert document.publics == []
    assert [kind for _, kind, _ in document.reads] == ["Queue"]


@pytest.mark.spec("MQCN-1.6-7", "MQCN-1.6-8", "MQCN-1.6-9")
@pytest.mark.parametrize("count", [99, 100, 1000])
def test_a_flood_is_answered_by_one_round_of_reads(h: Notified, count: int) -> None:
    known = [h.public(f"known{number}") for number in range(3)]
    for queue in known:
        h.changed(queue, label="new")
    lost = h.public("lost")
    h.removed(lost)
    missing = h.published("missing")
    own = h.engine.queue_manager
    asked = [uuid.uuid4() for _ in range(count)]
    for identifier in asked:
        h.tell(CREATE, identifier)
    manager = QueueManager(identifier=own.identifier, journal_quota=4321)
    assert h.directory.write(manager, ["JournalQuota"]) is DirectoryOperationResult.SUCCESS
    h.process()
    read = [identifier for _, _, identifier in h.reads]
    if count < 100:
        assert read == asked
        return
    assert not set(read) & set(asked)
    assert sorted(read, key=str) == sorted(
        [own.identifier, *(queue.identifier for queue in known), lost.identifier, missing.identifier], key=str
    )
    assert [queue.label for queue in known] == ["new"] * 3
    assert h.here("lost") is lost
    assert h.here("missing") is not None
    assert own.journal_quota == 4321
    h.tell(CREATE, uuid.uuid4())
    h.process(900)
    assert len(h.reads) == len(read) + 1


def test_large_messages_count_as_a_flood(h: Notified) -> None:
    """Only a message signed by a directory server is kept whatever its length.

    Of such messages, 5 MiB are too much.
    """
    wanted = h.public("orders")
    update = creation_of("new", uuid.uuid4(), LABEL="x" * 1_300_000)
    for _ in range(2):
        h.update(update)
    h.process()
    assert (h.publics, len(h.reads)) == ([r"ALPHA\orders"], 2)
    assert h.reads[1][2] == wanted.identifier


@pytest.mark.spec("MQCN-3.2.2-1")
def test_without_the_delay_they_are_processed_when_they_come(tmp_path: Path) -> None:
    h = Notified(tmp_path / "data", notifications=NotificationSettings(is_delayed=False))
    try:
        for name in ("one", "two"):
            wanted = h.published(name)
            h.tell(CREATE, wanted.identifier)
            assert h.delay == 0
            h.process(0)
            assert h.here(name) is not None
    finally:
        h.close()


def test_work_is_done_in_pieces(h: Notified) -> None:
    """Between two reads of the directory others have the store's lock."""
    for number in range(3):
        h.tell(CREATE, h.published(f"q{number}").identifier)
    h.now += 60
    for count in (1, 2, 3):
        assert h.engine.next_delay() == 0
        h.engine.on_timer()
        assert len(h.publics) == count


# Any message (3.2.5)
# ----------------------------------------------------------------------------------------


@pytest.mark.spec("MQCN-3.2.5-3", "MQCN-3.2.5-4", "MQCN-3.2.5-5", "MQCN-2.2.5-16", "MQCN-3.3.5.1-2")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\2",
        b"\0\1" + body_of(1, uuid.UUID(int=1))[2:],
        b"\3\1" + body_of(1, uuid.UUID(int=1))[2:],
        body_of(0, uuid.UUID(int=1)),
        body_of(5, uuid.UUID(int=1)),
        body_of(1, uuid.UUID(int=1))[:-4],
        b"\2\1" + bytes(3_000_000),
    ],
)
def test_what_means_nothing_is_removed_and_the_next_one_counts(h: Notified, body: bytes) -> None:
    wanted = h.published("orders")
    h.told(body)
    queue = h.engine.queue_manager.change_notification_queue
    assert queue is not None
    assert queue.message_count == 0
    assert h.delay is None
    h.tell(CREATE, wanted.identifier)
    h.process()
    assert h.publics == [r"ALPHA\orders"]
    assert len(h.reads) == 1


@pytest.mark.spec("MQCN-3.2.5-2", "MQCN-3.3.5.3-8", "MQCN-3.3.5.3-9", "MQCN-2.2.5-15", "MQCN-2.2.5-4", "MQCN-2.2.5-8")
@pytest.mark.parametrize("count", [0, 1, 2, 255])
@pytest.mark.parametrize("spare", [b"", b"\0", b"\x3c", b"\xff", b"\0\0", b"\0\0\xff"])
def test_what_makes_no_difference_in_version_2(h: Notified, count: int, spare: bytes) -> None:
    wanted = h.published("orders")
    text = body_of(CREATE, wanted.identifier)[2:].decode("utf-16-le").replace("</ObjectGuid>", "</ObjectGuid >")
    guid = str(wanted.identifier)
    text = text.replace(guid.upper(), guid.lower())
    h.told(bytes((2, count)) + text.encode("utf-16-le") + spare)
    h.process()
    assert h.publics == [r"ALPHA\orders"]


@pytest.mark.spec("MQCN-1.7-1")
def test_both_versions_come_in_any_mix(h: Notified) -> None:
    one, two, three = h.published("one"), uuid.uuid4(), h.published("three")
    h.tell(CREATE, one.identifier)
    h.update(creation_of("two", two))
    h.tell(CREATE, three.identifier)
    h.process()
    assert h.publics == [r"ALPHA\one", r"ALPHA\three", r"ALPHA\two"]


@pytest.mark.spec("MQCN-3.2.5.2-1")
def test_version_2_needs_no_sender(document: Notified) -> None:
    """Events 1, 2 and 4: unsigned, signed by an unknown sender, and of a queue manager."""
    h = document
    own = h.engine.queue_manager
    senders: tuple[dict[str, Any], ...] = (
        {},
        {"sender_identifier": uuid.uuid4().bytes_le, "sender_identifier_type": 2},
    )
    for number, more in enumerate(senders):
        wanted = h.published(f"orders{number}")
        for event, identifier in ((CREATE, wanted.identifier), (CHANGE, wanted.identifier), (MACHINE, own.identifier)):
            h.told(body_of(event, identifier), **more)
        h.process(DAY)
        assert h.here(f"orders{number}") is not None
    assert [kind for _, kind, _ in h.reads] == ["Queue", "Queue", "QueueManager"] * 2


def test_a_signature_that_is_wrong_is_refused_as_everywhere(h: Notified) -> None:
    wanted = h.published("orders")
    h.arrive(h.signed(body_of(CREATE, wanted.identifier), key=signing_key()))
    assert h.delay is None
    h.arrive(h.signed(body_of(CREATE, wanted.identifier), key=peer_key()))
    assert h.delay == 60


# Version 0x02 (3.2.5.2)
# ---------------------------------------------------------------------------------------

VALUES: dict[str, object] = {
    "type": QUEUE_TYPE,
    "base_priority": -7,
    "journaling": True,
    "quota": 1234,
    "journal_quota": 567,
    "security": SECURITY,
    "label": "a label",
    "authentication": True,
    "privacy_level": QueuePrivacyLevel.BODY,
    "multicast_address": "234.1.2.3:8001",
}


@pytest.mark.spec(
    "MQCN-3.2.5.2-4", "MQCN-3.2.5.2-5", "MQCN-3.2.5.2-6", "MQCN-3.2.5.2-7", "MQCN-3.2.5.2-2", "MQCN-2.3-1"
)
def test_a_created_queue_is_made_as_the_directory_has_it(h: Notified) -> None:
    wanted = h.published("orders", transactional=True, **VALUES)
    read = h.directory.read("Queue", identifier_is(wanted.identifier))[1]
    assert isinstance(read, Queue)
    h.now += 1000
    h.tell(CREATE, wanted.identifier)
    h.process()
    made = h.here("orders")
    assert made is not None
    assert h.reads == [(SERVER, "Queue", wanted.identifier)]
    assert made.pathname.lower() == read.pathname.lower()
    for name in (*VALUES, "transactional", "identifier", "create_time", "modify_time", "directory_path"):
        assert getattr(made, name) == getattr(read, name), name
    assert made.create_time < h.now - 1000
    assert made.directory_path.startswith("LDAP://")
    assert made.journal_queue is not None
    assert (h.writes, h.raised) == ([], [])
    assert h.engine.find_queue(parse(f"PUBLIC={wanted.identifier}")) is made
    h.restart()
    kept = h.here("orders")
    assert kept is not None
    assert (kept.identifier, kept.directory_path) == (made.identifier, made.directory_path)


@pytest.mark.spec("MQCN-3.2.5.1-17")
def test_a_queue_that_is_here_is_not_made_twice(h: Notified) -> None:
    made = h.public("orders", security=None)
    h.arrive(h.packet(b"1", to=rf"PUBLIC={made.identifier}"))
    h.tell(CREATE, made.identifier)
    h.update(creation_of("orders", uuid.uuid4()), creation_of("other", made.identifier))
    h.process()
    assert h.publics == [r"ALPHA\orders"]
    assert h.here("orders") is made
    assert h.bodies(r"DIRECT=OS:.\orders") == [b"1"]


@pytest.mark.spec("MQCN-3.2.5.1-18")
def test_a_queue_of_another_computer_is_not_made(h: Notified) -> None:
    sites = list(h.engine.queue_manager.site_identifier_list)
    assert h.directory.create_object(QueueManager(computer_name="BETA", site_identifier_list=sites))[1] is not None
    _, identifier = h.directory.create_object(Queue(pathname=r"BETA\orders"))
    assert identifier is not None
    h.tell(CREATE, identifier)
    h.update(creation_of(r"BETA\orders", uuid.uuid4()))
    h.process()
    assert h.publics == []


@pytest.mark.spec("MQCN-3.2.5.2-10", "MQCN-3.2.5.2-11", "MQCN-3.2.5.2-2")
def test_a_changed_queue_gets_what_the_directory_has(h: Notified) -> None:
    other = h.public("other")
    made = h.public("orders", security=OPEN_TO_ALL)
    reader = h.open(r"DIRECT=OS:.\orders")
    h.arrive(h.packet(b"1", to=rf"PUBLIC={made.identifier}"))
    h.now += 1000
    h.changed(made, **VALUES)
    read = h.directory.read("Queue", identifier_is(made.identifier))[1]
    assert isinstance(read, Queue)
    h.tell(CHANGE, made.identifier)
    h.process()
    assert made.pathname.lower() == read.pathname.lower()
    for name in (*VALUES, "transactional", "identifier", "create_time", "modify_time", "directory_path"):
        assert getattr(made, name) == getattr(read, name), name
    assert other.label == ""
    assert reader.queue is made
    assert h.bodies(r"DIRECT=OS:.\orders") == [b"1"]
    assert (h.writes, h.raised) == ([], [])
    h.restart()
    kept = h.here("orders")
    assert kept is not None
    assert kept.label == "a label"


def test_a_queue_that_has_another_name_in_the_directory_gets_it(h: Notified) -> None:
    made = h.public("orders", journaling=True)
    h.arrive(h.packet(b"1", to=rf"PUBLIC={made.identifier}"))
    renamed = Queue(identifier=made.identifier, pathname=r"ALPHA\bills", queue_type=QueueType.PUBLIC)
    h.directory.answers["read_at"] = lambda *_: (DirectoryOperationResult.SUCCESS, renamed)
    h.tell(CHANGE, made.identifier)
    h.process()
    assert h.publics == [r"ALPHA\bills"]
    del h.directory.answers["read_at"]
    assert h.receive(r"DIRECT=OS:.\bills") == b"1"
    h.restart()
    assert h.publics == [r"ALPHA\bills"]
    found = h.here("bills")
    assert found is not None
    assert found.journal_queue is not None
    assert found.journal_queue.pathname == r"ALPHA\bills;journal"


@pytest.mark.spec("MQCN-3.2.5.1-24")
def test_what_is_not_here_is_neither_changed_nor_deleted(h: Notified) -> None:
    wanted = h.published("orders", label="there")
    h.public("other")
    h.tell(CHANGE, wanted.identifier)
    h.tell(DELETE, wanted.identifier)
    h.process()
    assert (h.publics, h.reads, h.writes) == ([r"ALPHA\other"], [], [])


@pytest.mark.spec("MQCN-3.2.5.2-13", "MQCN-3.2.5.2-7")
def test_a_deleted_queue_is_deleted(document: Notified) -> None:
    """As Delete Queue does it: its messages are gone, and handles have no queue."""
    h = document
    other, made = h.public("other"), h.public("orders")
    h.create("admin")
    h.arrive(h.packet(b"1", to=rf"PUBLIC={made.identifier}", **asking(Acknowledgements.FULL_RECEIVE)))
    reader = h.open(r"DIRECT=OS:.\orders")
    h.tell(DELETE, made.identifier)
    h.process()
    assert h.publics == [other.pathname]
    assert reader.queue is None
    assert told(h) == [0xC000]
    assert (h.writes, h.raised, h.reads) == ([], [], [])


@pytest.mark.spec("MQCN-3.2.5.2-16")
def test_a_queue_stays_that_the_directory_has(h: Notified) -> None:
    """Profile SAFE: the queue is found, the directory is offline, or unreachable.

    The notification is believed only if the directory no longer has the queue.
    """
    made = h.public("orders")
    h.tell(DELETE, made.identifier)
    h.process(DAY)
    assert h.publics == [made.pathname]
    h.removed(made)
    h.engine.queue_manager.directory_offline = True
    h.tell(DELETE, made.identifier)
    h.process(DAY)
    assert h.publics == [made.pathname]
    h.engine.queue_manager.directory_offline = False
    for result in (NOT_CONNECTED, DirectoryOperationResult.GENERIC_ERROR):
        h.directory.answers["read_at"] = lambda *_, result=result: (result, None)
        h.tell(DELETE, made.identifier)
        h.process(DAY)
        assert h.publics == [made.pathname]
        h.engine.queue_manager.directory_offline = False
    del h.directory.answers["read_at"]
    h.tell(DELETE, made.identifier)
    h.process(DAY)
    assert h.publics == []
    assert (h.writes, h.raised) == ([], [])


@pytest.mark.parametrize(("age", "stays"), [(DAY - 120, True), (DAY, False)])
def test_a_server_that_has_not_heard_of_a_new_queue_proves_nothing(h: Notified, age: int, stays: bool) -> None:
    """A forged notification may name a controller that has no replica of a recent queue."""
    made = h.public("orders")
    read = h.directory.answers["read_at"]

    def lagging(server: str, *question: object) -> object:
        not_found = DirectoryOperationResult.OBJECT_NOT_FOUND, None
        return not_found if server == "dc2" else read(server, *question)

    h.directory.answers |= {"read_at": lagging, "knows_server": lambda name: name in (SERVER, "dc2")}
    h.now += age
    h.tell(DELETE, made.identifier, "dc2")
    h.process()
    assert bool(h.publics) is stays


@pytest.mark.spec("MQCN-3.2.5.2-18")
def test_a_changed_machine_has_its_quotas_and_its_descriptor(h: Notified) -> None:
    own = h.engine.queue_manager
    security = parse_sddl("O:BAG:BAD:(A;;0x1;;;AU)").pack()
    before = {name: getattr(own, name) for name in ("computer_name", "site_identifier_list", "routing_server")}
    there = QueueManager(
        identifier=own.identifier,
        queue_manager_quota=9999,
        journal_quota=8888,
        security=security,
        routing_server=True,
        queue_manager_version="other",
    )
    h.directory.answers["read_at"] = lambda *_: (DirectoryOperationResult.SUCCESS, there)
    h.tell(MACHINE, own.identifier)
    h.process()
    assert (own.queue_manager_quota, own.journal_quota, own.security) == (9999, 8888, security)
    assert {name: getattr(own, name) for name in before} == before
    assert own.queue_manager_version != "other"
    assert h.writes == []


@pytest.mark.spec("MQCN-3.2.5.1-27")
def test_another_machine_is_not_taken_for_this_one(h: Notified) -> None:
    own = h.engine.queue_manager
    quota = own.queue_manager_quota
    other = uuid.uuid4()
    there = QueueManager(identifier=other, queue_manager_quota=1)
    h.directory.answers["read_at"] = lambda *_: (DirectoryOperationResult.SUCCESS, there)
    h.tell(MACHINE, other)
    h.process()
    assert own.queue_manager_quota == quota


@pytest.mark.spec("MQCN-3.2.5.2-2")
def test_the_named_server_is_asked(document: Notified) -> None:
    """Profile DOCUMENT asks any server, even an unknown one."""
    h = document
    made = h.public("orders")
    h.tell(CREATE, uuid.UUID(int=1), STRANGE_SERVER)
    h.tell(CHANGE, made.identifier, STRANGE_SERVER)
    h.tell(MACHINE, h.engine.queue_manager.identifier, STRANGE_SERVER)
    h.process()
    assert [(server, kind) for server, kind, _ in h.reads] == [
        (STRANGE_SERVER, "Queue"),
        (STRANGE_SERVER, "Queue"),
        (STRANGE_SERVER, "QueueManager"),
    ]


@pytest.mark.spec("MQCN-3.2.5.2-3")
def test_a_server_that_is_not_known_is_not_asked(h: Notified) -> None:
    """Profile SAFE: the directory that is always asked answers instead."""
    wanted = h.published("orders")
    h.tell(CREATE, wanted.identifier, STRANGE_SERVER)
    h.process()
    assert h.reads == [("", "Queue", wanted.identifier)]
    assert h.publics == [r"ALPHA\orders"]


@pytest.mark.spec("MQCN-3.2.5.2-20")
@pytest.mark.parametrize("event", [CREATE, CHANGE, MACHINE])
@pytest.mark.parametrize("result", [NOT_CONNECTED, DirectoryOperationResult.OBJECT_NOT_FOUND, None])
def test_a_read_that_fails_changes_nothing(
    h: Notified, event: NotificationEvent, result: DirectoryOperationResult | None
) -> None:
    made, own = h.public("orders"), h.engine.queue_manager
    wanted = h.published("new")
    identifier = {CREATE: wanted.identifier, CHANGE: made.identifier, MACHINE: own.identifier}[event]
    h.changed(made, label="new")
    quota = own.queue_manager_quota
    if result is None:
        own.directory_offline = True
    else:
        h.directory.answers["read_at"] = lambda *_: (result, None)
    h.tell(event, identifier)
    h.process()
    assert (h.publics, made.label, own.queue_manager_quota) == ([r"ALPHA\orders"], "", quota)


def test_what_the_directory_has_and_cannot_be_is_passed_over(h: Notified, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    made, wanted = h.public("orders"), h.published("new")
    h.changed(made, label="x" * 200)
    h.tell(CHANGE, made.identifier)
    h.tell(CREATE, wanted.identifier)
    h.process()
    assert "200 characters" in caplog.text
    assert h.publics == [r"ALPHA\new", r"ALPHA\orders"]
    assert made.label == ""
    for _ in range(100):
        h.tell(CREATE, uuid.uuid4())
    h.process(900)
    assert h.delay is None


def test_private_queues_and_outgoing_queues_are_no_subjects(h: Notified) -> None:
    """Identifiers are those of public queues.

    A private queue has one too, which the directory does not know.
    """
    private = h.create("secret")
    h.tell(DELETE, private.identifier)
    h.tell(CHANGE, private.identifier)
    h.process()
    assert h.queue("secret") is private
    assert not any(isinstance(queue, OutgoingQueue) for queue in h.engine.queue_manager.queue_collection.values())
    assert isinstance(
        ChangeNotificationMessage.of_body(NotificationBody(CREATE, uuid.uuid4(), SERVER)), ChangeNotificationMessage
    )
