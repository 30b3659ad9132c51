"""Queues come and go (MS-MQDMPR 3.1.7.1.3, 3.1.7.1.4, 3.1.7.1.33)."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lanner.model.directory_objects import Queue
from lanner.model.enums import (
    Acknowledgements,
    DirectoryOperationResult,
    MessageClass,
    QueueAccessType,
    QueuePrivacyLevel,
    QueueScope,
    QueueType,
)
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.security.queue_security import READ_QUEUE, create_default_queue_security_descriptor
from lanner.wire.path_name import PathName
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import ANONYMOUS_LOGON, EVERYONE, Sid
from tests.engine.harness import START_TIME, Harness, Reader, status_of
from tests.statuses import (
    MQ_ERROR_DS_ERROR,
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
    MQ_ERROR_NO_DS,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_QUEUE_NOT_AVAILABLE,
)

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)


def watch_directory(h: Harness) -> list[str]:
    """Return a list that grows with the name of each directory operation."""
    calls: list[str] = []

    def watched(name: str) -> Callable[..., object]:
        operation: Callable[..., object] = getattr(h.directory, name)

        def call(*arguments: object, **keywords: object) -> object:
            calls.append(name)
            return operation(*arguments, **keywords)

        return call

    for name in ("create_object", "delete_object", "read", "read_begin", "write", "resolve_distribution_list"):
        h.directory.answers[name] = watched(name)
    return calls


def published(h: Harness) -> dict[uuid.UUID, Queue]:
    """Every public queue of the directory."""
    _, handle = h.directory.read_begin("Queue", None)
    assert handle is not None
    found = {}
    while (queue := h.directory.read_next(handle)[1]) is not None:
        assert isinstance(queue, Queue)
        found[queue.identifier] = queue
    h.directory.read_end(handle)
    return found


# Set Queue Defaults (3.1.7.1.33)
# --------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.33-1")
def test_queue_defaults(h: Harness) -> None:
    """The table of 3.1.7.1.33.

    Security depends on who creates the queue, so it is made when that is known.
    """
    queue = h.engine.set_queue_defaults(r".\private$\q")
    assert (queue.label, queue.type) == ("", uuid.UUID(int=0))
    assert (queue.journaling, queue.authentication, queue.transactional) == (False, False, False)
    assert (queue.quota, queue.journal_quota) == (0xFFFF_FFFF, 0xFFFF_FFFF)
    assert queue.privacy_level is QueuePrivacyLevel.OPTIONAL
    assert queue.multicast_address is None
    assert queue.base_priority == 0
    created = h.engine.create_queue(queue)
    assert created.security == create_default_queue_security_descriptor(None, SYSTEM)


# Create Queue (3.1.7.1.3)
# ---------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.3-1")
@pytest.mark.parametrize(
    "pathname",
    [
        "",
        "q",
        r"\private$\q",
        ".\\",
        ".\\private$\\",
        r".\two\levels",
        r".\private$\two\levels",
        r".\private$\with,comma",
        r".\private$\with+plus",
        r".\private$\with" + '"quote',
        r".\private$\with space",
        ".\\private$\\with\nnewline",
        r".\private$\q;",
        r".\private$\q;one;two",
        r".\private$" + "\\" + "n" * 125,
        r".\private$\q;" + "n" * 33,
        "." * 257 + r"\q",
    ],
)
def test_an_invalid_path_name_creates_nothing(h: Harness, pathname: str) -> None:
    """MS-MQMQ 2.1.1 decides what a path name is; anything else is an error and leaves no trace."""
    h.create("q")
    queues, calls = dict(h.engine.queue_manager.queue_collection), watch_directory(h)
    request = h.engine.set_queue_defaults(pathname)
    assert status_of(lambda: h.engine.create_queue(request)) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert (h.engine.queue_manager.queue_collection, calls) == (queues, [])


@pytest.mark.spec("DMPR-3.1.7.1.3-1")
def test_the_longest_names_are_valid(h: Harness) -> None:
    """124 characters of queue name, 32 of subqueue name (MS-MQMQ 2.1.1)."""
    name = "n" * 124
    h.create(name)
    h.create(f"{name};{'s' * 32}")
    h.send(name, b"a")
    assert h.bodies(name) == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.3-2")
@pytest.mark.parametrize("pathname", [r".\private$\q", r".\q"])
def test_a_queue_is_made_with_its_journal(h: Harness, pathname: str) -> None:
    """JournalQueueReference is a separate queue, found by name, that receives journal copies."""
    queue = h.create(pathname, journaling=True)
    journal = queue.journal_queue
    assert journal is not None
    assert journal is not queue
    assert h.engine.queue_manager.queue_collection[journal.number] is journal
    name = f"DIRECT=OS:{pathname}"
    h.send(name, b"a")
    assert h.receive(name) == b"a"
    assert h.bodies(f"{name};journal") == [b"a"]
    h.restart()
    again = h.queue(name)
    assert again.journal_queue is h.queue(f"{name};journal")


@pytest.mark.spec("DMPR-3.1.7.1.3-2")
def test_a_subqueue_has_no_journal(h: Harness) -> None:
    parent = h.create("q")
    subqueue = h.create("q;sub")
    assert subqueue.journal_queue is None
    assert parent.subqueues == {"sub": subqueue}
    assert parent.journal_queue is not None


COPIED: dict[str, Any] = {
    "label": "orders",
    "type": uuid.UUID("11111111-2222-3333-4444-555555555555"),
    "journaling": True,
    "quota": 17,
    "journal_quota": 18,
    "authentication": True,
    "privacy_level": QueuePrivacyLevel.BODY,
    "transactional": True,
    "multicast_address": "234.1.1.1:8001",
    "base_priority": -5,
}


@pytest.mark.spec("DMPR-3.1.7.1.3-3")
def test_create_copies_the_listed_attributes(h: Harness) -> None:
    """Each of the twelve; Pathname gets the computer's name, Security its owner (3.1.7.1.3.1)."""
    acl = Acl((allow(EVERYONE, QueueAccess.PEEK_MESSAGE), allow(ALICE.sid, QueueAccess.GENERIC_ALL)))
    security = SecurityDescriptor(owner=ALICE.sid, dacl=acl, sacl=Acl())
    queue = h.create("q", **COPIED, security=security.pack())
    assert {name: getattr(queue, name) for name in COPIED} == COPIED
    assert queue.pathname == r"ALPHA\private$\q"
    assert queue.security is not None
    kept = SecurityDescriptor.unpack(queue.security)
    assert (kept.dacl, kept.sacl) == (security.dacl, security.sacl)
    h.restart()
    assert {name: getattr(h.queue(), name) for name in COPIED} == COPIED


@pytest.mark.spec("DMPR-3.1.7.1.3-3", "DMPR-3.1.7.1.3-6")
def test_create_copies_nothing_else(h: Harness) -> None:
    """Other attributes in a caller's request are ignored."""
    request = Queue(
        pathname=r".\private$\q",
        identifier=uuid.uuid4(),
        create_time=1,
        modify_time=2,
        qualified_pathname="nonsense",
        private_queue_number=0x7777,
        full_path="CN=nonsense",
        directory_path="LDAP://nonsense",
        queue_type=QueueType.SYSTEM,
        number=0x7777,
        parent=0x7777,
        scope=QueueScope.SITE,
        total_bytes=1000,
        message_count=5,
        journal_queue=Queue(),
        subqueues={"x": Queue()},
    )
    queue = h.engine.create_queue(request)
    assert queue is not request
    assert queue.identifier != request.identifier
    assert (queue.create_time, queue.modify_time) == (START_TIME, START_TIME)
    assert queue.qualified_pathname == r"ALPHA.example.com\private$\q"
    assert (queue.full_path, queue.directory_path) == ("", "")
    assert queue.queue_type is QueueType.PRIVATE
    assert 0x7777 not in (queue.private_queue_number, queue.number, queue.parent)
    assert (queue.total_bytes, queue.message_count, queue.scope) == (0, 0, QueueScope.ENTERPRISE)
    assert queue.journal_queue is not request.journal_queue
    assert queue.subqueues == {}


@pytest.mark.spec("DMPR-3.1.7.1.3-4")
@pytest.mark.parametrize("pathname", [r".\private$\q", r".\q", r".\private$\parent;sub"])
def test_a_created_queue_is_empty_and_registered(h: Harness, pathname: str) -> None:
    parent = h.create("parent")
    h.now += 77
    queue = h.create(pathname)
    assert parent.subqueues == ({"sub": queue} if queue.parent else {})
    assert h.engine.queue_manager.queue_collection[queue.number] is queue
    assert queue.queue_manager is h.engine.queue_manager
    assert (queue.active, queue.total_bytes, queue.message_count) == (False, 0, 0)
    assert (queue.subqueues, queue.incoming_transactional_transfer_info) == ({}, {})
    assert (queue.open_queue_descriptors, queue.held_positions) == ({}, {})
    assert h.store.stats(queue.number) == (0, 0)
    assert queue.create_time == queue.modify_time
    if queue.queue_type is QueueType.PRIVATE:  # a directory stamps its objects with its own clock
        assert queue.create_time == START_TIME + 77


@pytest.mark.spec("DMPR-3.1.7.1.3-5")
@pytest.mark.parametrize(
    ("pathname", "queue_type"),
    [
        (r"ALPHA\private$\q", QueueType.PRIVATE),
        (r"alpha\PRIVATE$\q", QueueType.PRIVATE),
        (r"ALPHA\q", QueueType.PUBLIC),
        (r"ALPHA\private", QueueType.PUBLIC),
        (r"ALPHA\system$;other", QueueType.SYSTEM),
        (r"ALPHA\SYSTEM$;other", QueueType.SYSTEM),
    ],
)
def test_the_path_decides_the_type(h: Harness, pathname: str, queue_type: QueueType) -> None:
    """A system queue is the queue manager's own to make: an application is refused, see below."""
    request = h.engine.set_queue_defaults(pathname)
    queue = h.engine.queues.make(request, PathName.parse(pathname), skip_directory=False)
    assert queue.queue_type is queue_type
    assert h.engine.find_by_path(PathName.parse(pathname)) is queue


def test_applications_create_no_system_queues_and_journals(h: Harness) -> None:
    h.create("q")
    for pathname in (r".\system$;other", r".\private$\q;journal", r"elsewhere\private$\q"):
        assert status_of(partial(h.create, pathname)) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
    assert status_of(partial(h.create, r"ALPHA.example.com\PRIVATE$\Q")) == MQ_ERROR_QUEUE_EXISTS


@pytest.mark.spec("DMPR-3.1.7.1.3-6")
def test_a_private_queue_gets_a_number_of_its_own(h: Harness) -> None:
    """No private queue here uses the number, also after deletions and a crash.

    The number names the queue.
    """
    numbers = {q.private_queue_number for q in h.engine.local_queues() if q.queue_type is QueueType.PRIVATE}
    assert 0 not in numbers
    for index in range(6):
        queue = h.create(f"q{index}")
        assert queue.private_queue_number not in numbers | {0}
        numbers.add(queue.private_queue_number)
        name = f"PRIVATE={h.engine.queue_manager.identifier}\\{queue.private_queue_number:x}"
        assert h.queue(name) is queue
        if index == 2:
            h.engine.delete_queue(h.queue("q0"))
        if index == 3:
            h.sync()
            h.crash()


@pytest.mark.spec("DMPR-3.1.7.1.3-6")
@pytest.mark.parametrize(
    ("pathname", "qualified"),
    [
        (r".\private$\q", r"ALPHA.example.com\private$\q"),
        (r"alpha\q", r"ALPHA.example.com\q"),
        (r"ALPHA.EXAMPLE.COM\private$\parent;sub", r"ALPHA.example.com\private$\parent;sub"),
    ],
)
def test_the_qualified_path_name_has_the_full_computer_name(h: Harness, pathname: str, qualified: str) -> None:
    h.create("parent")
    assert h.create(pathname).qualified_pathname == qualified


@pytest.mark.spec("DMPR-3.1.7.1.3-7")
def test_a_public_queue_is_published(h: Harness) -> None:
    """The directory's GUID becomes the Identifier; FullPath and DirectoryPath are read back."""
    create = h.directory.create_object
    given = uuid.uuid4()

    def with_its_own_guid(queue: Queue, _: object) -> tuple[DirectoryOperationResult, uuid.UUID | None]:
        entry = copy.copy(queue)
        entry.identifier = given
        return create(entry)

    h.directory.answers["create_object"] = with_its_own_guid
    queue = h.create(r".\orders", label="Orders")
    assert queue.identifier == given
    assert list(published(h)) == [given]
    entry = published(h)[given]
    assert (entry.pathname.upper(), entry.label) == (r"ALPHA\ORDERS", "Orders")
    assert entry.full_path
    assert (queue.full_path, queue.directory_path) == (entry.full_path, entry.directory_path)
    assert h.queue(f"PUBLIC={given}") is queue
    h.restart()
    assert h.queue(f"PUBLIC={given}").full_path == entry.full_path


@pytest.mark.spec("DMPR-3.1.7.1.3-8", "DSSM-5.1.2-1/the local queue list")
@pytest.mark.parametrize(
    ("result", "status"),
    [
        (DirectoryOperationResult.GENERIC_ERROR, MQ_ERROR_DS_ERROR),
        (DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, MQ_ERROR_NO_DS),
        (DirectoryOperationResult.OBJECT_ALREADY_EXISTS, MQ_ERROR_QUEUE_EXISTS),
    ],
)
def test_a_public_queue_that_the_directory_refuses_is_not_created(
    h: Harness, result: DirectoryOperationResult, status: int
) -> None:
    queues = dict(h.engine.queue_manager.queue_collection)
    h.directory.answers["create_object"] = lambda *_: (result, None)
    assert status_of(lambda: h.create(r".\orders")) == status
    assert h.engine.queue_manager.queue_collection == queues
    assert h.engine.find_queue(h.name(r"DIRECT=OS:.\orders")) is None
    h.restart()
    assert h.engine.find_queue(h.name(r"DIRECT=OS:.\orders")) is None


@pytest.mark.spec("DMPR-3.1.7.1.3-8")
def test_other_creations_do_not_ask_the_directory(h: Harness) -> None:
    """With iSkipDirectory True, and for private and system queues."""
    calls = watch_directory(h)
    h.engine.create_queue(h.engine.set_queue_defaults(r".\skipped"), skip_directory=True)
    h.create("private")
    h.create("private;sub")
    system = r".\system$;other"
    h.engine.queues.make(h.engine.set_queue_defaults(system), PathName.parse(system), skip_directory=False)
    assert calls == []
    h.create(r".\published")
    assert "create_object" in calls


@pytest.mark.spec("DMPR-3.1.7.1.3-9")
def test_a_published_queue_whose_paths_cannot_be_read_back_exists_without_them(h: Harness) -> None:
    failure = (DirectoryOperationResult.GENERIC_ERROR, None)
    h.directory.answers["read"] = lambda *_: failure
    queue = h.create(r".\orders")
    assert (queue.full_path, queue.directory_path) == ("", "")
    assert h.queue(r"DIRECT=OS:.\orders") is queue
    assert list(published(h)) == [queue.identifier]


# Create Default Queue Security Descriptor (3.1.7.1.3.1)
# ---------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.3.1-1", "DMPR-3.1.7.1.3.1-5", "DMPR-3.1.7.1.3.1-7")
def test_in_a_domain_a_queue_lets_everyone_look_its_computer_too_and_its_owner_do_all(tmp_path: Path) -> None:
    """The engine passes three parties to the default descriptor.

    They are Everyone, the machine (its objectSid) and the owner, in this order.
    """
    h = Harness(tmp_path / "data", directory_integrated=True, profile=Profile.DOCUMENT)
    machine = h.directory.computer_sid("ALPHA")
    assert machine is not None
    request = h.engine.set_queue_defaults(r".\private$\q")
    queue = h.engine.queues.make(request, PathName.parse(request.pathname), identity=ALICE)
    assert queue.security is not None
    descriptor = SecurityDescriptor.unpack(queue.security)
    assert descriptor.owner == ALICE.sid
    assert descriptor.dacl is not None
    assert [(ace.sid, ace.mask) for ace in descriptor.dacl.aces] == [
        (EVERYONE, READ_QUEUE),
        (Sid.unpack(machine), READ_QUEUE),
        (ALICE.sid, QueueAccess.GENERIC_ALL),
    ]
    h.directory.connected = False
    request = h.engine.set_queue_defaults(r".\private$\without")
    queue = h.engine.queues.make(request, PathName.parse(request.pathname), identity=ALICE)
    assert queue.security is not None
    descriptor = SecurityDescriptor.unpack(queue.security)
    assert descriptor.dacl is not None
    assert [ace.sid for ace in descriptor.dacl.aces] == [EVERYONE, ALICE.sid]
    h.close()


@pytest.mark.spec("DMPR-3.1.7.1.3.1-3", "DMPR-3.1.7.1.3.1-4", "DMPR-3.1.7.1.3.1-6", "DMPR-3.1.7.1.3.1-7")
def test_in_a_workgroup_a_strangers_queue_is_open_to_all(tmp_path: Path) -> None:
    """The owner is S-1-5-7, Everyone may do all; reachable over SRMP, anonymous may write."""
    h = Harness(tmp_path / "data", profile=Profile.DOCUMENT)
    stranger = Identity("mallory", Sid.parse("S-1-5-21-9-9-9-1234"))
    h.engine.queue_manager.srmp_http_support = True
    request = h.engine.set_queue_defaults(r".\private$\q")
    queue = h.engine.queues.make(request, PathName.parse(request.pathname), identity=stranger)
    assert queue.security is not None
    descriptor = SecurityDescriptor.unpack(queue.security)
    assert descriptor.owner == ANONYMOUS_LOGON
    assert descriptor.dacl is not None
    assert [(ace.sid, ace.mask) for ace in descriptor.dacl.aces] == [
        (EVERYONE, QueueAccess.GENERIC_ALL),
        (ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE),
    ]
    h.close()


# Delete Queue (3.1.7.1.4)
# ---------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.4-1")
def test_delete_removes_every_message_and_says_so(h: Harness) -> None:
    """NackQueueDeleted for Available, received-in-transaction and subqueue messages.

    Senders that asked for it get class 0xC000.
    """
    h.create("admin")
    queue = h.create()
    asking: dict[str, Any] = {
        "administration_queue_format_name": h.name("admin"),
        "acknowledgements_requested": Acknowledgements.NACK_RECEIVE,
    }
    before = h.engine.queue_manager.total_bytes
    for body in (b"locked", b"moved", b"asked"):
        h.send(body=body, **asking)
    h.send(body=b"not asked")
    transaction = h.begin()
    assert h.receive(transaction=transaction) == b"locked"
    source, target = h.open("q", QueueAccessType.MOVE), h.open("q;sub", QueueAccessType.MOVE)
    h.engine.move_message_by_lookup_identifier(source, h.lookup_ids()[b"moved"], target)
    removals = h.removals()
    h.engine.delete_queue(queue)
    assert set(removals) == {
        (body, MessageClass.NACK_QUEUE_DELETED) for body in (b"locked", b"moved", b"asked", b"not asked")
    }
    assert len(removals) == 4
    acknowledgments = h.messages("admin")
    assert [m.message_class for m in acknowledgments] == [0xC000] * 3
    assert {m.body for m in acknowledgments} == {b"locked", b"moved", b"asked"}
    assert (queue.total_bytes, queue.message_count, h.engine.queue_manager.total_bytes) == (0, 0, before)
    assert h.store.stats(queue.number) == (0, 0)


def test_a_queue_that_is_deleted_takes_no_acknowledgments_of_its_own_messages(h: Harness) -> None:
    """It is no longer there for them, and no bytes are left counted."""
    queue = h.create()
    before = h.engine.queue_manager.total_bytes
    for priority in (0, 3, 7):
        h.send(
            priority=priority,
            administration_queue_format_name=h.name("q"),
            acknowledgements_requested=Acknowledgements.NACK_RECEIVE,
        )
    h.engine.delete_queue(queue)
    assert h.engine.queue_manager.total_bytes == before


@pytest.mark.spec("DMPR-3.1.7.1.4-2")
def test_open_handles_of_a_deleted_queue_lead_nowhere(h: Harness) -> None:
    """QueueReference is NULL, and later receives and peeks give MQ_ERROR_QUEUE_NOT_AVAILABLE."""
    queue = h.create()
    h.send(body=b"a")
    receive, peek, send = h.open(), h.open(access=QueueAccessType.PEEK), h.open(access=QueueAccessType.SEND)
    cursor = h.engine.open_cursor(peek)
    assert cursor is not None
    h.engine.peek_message(peek, cursor=cursor)
    h.engine.delete_queue(queue)
    assert [descriptor.queue for descriptor in (receive, peek, send)] == [None, None, None]
    engine = h.engine
    for read in (
        lambda: engine.dequeue_message(receive, timeout=0),
        lambda: engine.dequeue_message(receive),
        lambda: engine.dequeue_message_begin(receive, timeout=0),
        lambda: engine.peek_message(peek, timeout=0),
        lambda: engine.peek_message(peek),
        lambda: engine.peek_next_message(peek, cursor, timeout=0),
    ):
        assert status_of(read) == MQ_ERROR_QUEUE_NOT_AVAILABLE


def test_a_queue_of_the_same_name_is_another_queue(h: Harness) -> None:
    """A handle to the deleted queue does not come to life again."""
    old = h.create()
    descriptor = h.open()
    h.engine.delete_queue(old)
    new = h.create()
    h.send(body=b"a")
    assert status_of(lambda: h.engine.dequeue_message(descriptor, timeout=0)) == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert new.number != old.number
    assert new.private_queue_number != old.private_queue_number
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.4-3")
def test_deleting_a_queue_ends_the_reads_that_wait_on_it(h: Harness) -> None:
    """Receives and peeks, with and without a tag, end with MQ_ERROR_QUEUE_NOT_AVAILABLE.

    Reads of other queues continue.
    """
    queue = h.create()
    h.create("other")
    readers = [Reader() for _ in range(4)]
    other = Reader()
    descriptor = h.open()
    cursor = h.engine.open_cursor(descriptor)
    h.engine.dequeue_message(descriptor, on_end=readers[0])
    h.engine.dequeue_message(h.open(), tag="tagged", timeout=1000, on_end=readers[1])
    h.engine.peek_message(h.open(access=QueueAccessType.PEEK), on_end=readers[2])
    h.engine.dequeue_message(descriptor, cursor=cursor, on_end=readers[3])
    h.engine.dequeue_message(h.open("other"), on_end=other)
    h.engine.delete_queue(queue)
    assert [reader.status for reader in readers] == [MQ_ERROR_QUEUE_NOT_AVAILABLE] * 4
    assert other.ends == []
    h.tick(10)
    assert [len(reader.ends) for reader in readers] == [1] * 4


@pytest.mark.spec("DMPR-3.1.7.1.4-4")
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("prepared", [True, False])
def test_a_transaction_outlives_a_queue_that_it_touched(h: Harness, end: str, *, prepared: bool) -> None:
    """Its commit or abort succeeds, nothing comes back, no bytes are subtracted twice."""
    gone = h.create("gone", transactional=True)
    h.create("kept", transactional=True)
    first = h.begin()
    for name in ("gone", "kept"):
        h.send(name, b"received", transaction=first)
    h.commit(first)
    transaction = h.begin()
    for name in ("gone", "kept"):
        h.receive(name, transaction)
        h.send(name, b"sent", transaction=transaction)
    h.engine.delete_queue(gone)
    kept = h.queue("kept")
    assert (gone.total_bytes, h.engine.queue_manager.total_bytes) == (0, kept.total_bytes)
    if prepared:
        h.engine.transaction_prepare(transaction.identifier, single_phase=False)
    told: list[tuple[Queue, MessageClass]] = []
    h.engine.position_deleted_subscribers.append(lambda queue, _, reason: told.append((queue, reason)))
    (h.commit if end == "commit" else h.abort)(transaction)
    # Only a commit makes a message, of whose end its sender hears.
    assert ((gone, MessageClass.NACK_QUEUE_DELETED) in told) is (end == "commit")
    assert h.bodies("kept") == ([b"sent"] if end == "commit" else [b"received"])
    assert (gone.total_bytes, h.engine.queue_manager.total_bytes) == (0, kept.total_bytes)
    assert h.store.stats(gone.number) == (0, 0)
    h.restart()
    assert h.engine.find_queue(h.name("gone")) is None
    assert h.store.stats(gone.number) == (0, 0)
    assert h.engine.queue_manager.total_bytes == h.queue("kept").total_bytes


@pytest.mark.spec("DMPR-3.1.7.1.4-4")
def test_a_move_to_a_deleted_subqueue_leaves_the_message_where_it_was(h: Harness) -> None:
    h.create()
    h.send(body=b"a")
    source, target = h.open("q", QueueAccessType.MOVE), h.open("q;sub", QueueAccessType.MOVE)
    transaction = h.begin()
    h.engine.move_message_by_lookup_identifier(source, h.lookup_ids()[b"a"], target, transaction)
    h.engine.delete_queue(h.queue("q;sub"))
    h.commit(transaction)
    assert h.bodies() == [b"a"]


@pytest.mark.spec("DMPR-3.1.7.1.4-1")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_send_to_a_queue_deleted_before_the_commit_is_answered_at_the_commit(h: Harness, end: str) -> None:
    """Before there is no message to speak of, and after an abort there never was one."""
    h.create("admin")
    queue = h.create("t", transactional=True)
    transaction = h.begin()
    h.send(
        "t",
        b"sent",
        transaction=transaction,
        administration_queue_format_name=h.name("admin"),
        acknowledgements_requested=Acknowledgements.NACK_RECEIVE,
        negative_journaling_requested=True,
    )
    h.engine.delete_queue(queue)
    assert h.bodies("admin") == []
    (h.commit if end == "commit" else h.abort)(transaction)
    answers = [(m.message_class, m.body) for m in h.messages("admin")]
    dead_letters = [m.body for m in h.messages(r"DIRECT=OS:.\system$;DEADXACT")]
    assert (answers, dead_letters) == (([(0xC000, b"sent")], [b"sent"]) if end == "commit" else ([], []))


@pytest.mark.spec("DMPR-3.1.7.1.4-5")
def test_deleting_a_public_queue_deletes_its_directory_object(h: Harness) -> None:
    queue, other = h.create(r".\orders"), h.create(r".\others")
    h.engine.delete_queue(queue)
    assert list(published(h)) == [other.identifier]


@pytest.mark.spec("DMPR-3.1.7.1.4-5")
def test_a_directory_that_refuses_the_deletion_is_reported_and_the_queue_is_gone(h: Harness) -> None:
    queue = h.create(r".\orders")
    for result, status in (
        (DirectoryOperationResult.GENERIC_ERROR, MQ_ERROR_DS_ERROR),
        (DirectoryOperationResult.DIRECTORY_NOT_CONNECTED, MQ_ERROR_NO_DS),
    ):
        h.directory.answers["delete_object"] = lambda _, answer=result: answer
        assert status_of(lambda: h.engine.delete_queue(queue)) == status  # noqa: B023
        h.directory.answers.clear()
        assert h.engine.find_queue(h.name(r"DIRECT=OS:.\orders")) is None
        assert queue.number not in h.engine.queue_manager.queue_collection
        assert h.directory.delete_object(queue) is DirectoryOperationResult.SUCCESS
        queue = h.create(r".\orders")


@pytest.mark.spec("DMPR-3.1.7.1.4-5")
def test_other_deletions_do_not_ask_the_directory(h: Harness) -> None:
    """With iSkipDirectory True, and for every queue that is not public."""
    skipped, private = h.create(r".\skipped"), h.create("private")
    public = h.create(r".\public")
    subqueue, subqueue_of_public = h.create("private;sub"), h.create(r".\public;sub")
    calls = watch_directory(h)
    h.engine.delete_queue(skipped, skip_directory=True)
    h.engine.delete_queue(subqueue)
    h.engine.delete_queue(subqueue_of_public)
    h.engine.delete_queue(private)
    assert calls == []
    assert set(published(h)) == {skipped.identifier, public.identifier}
