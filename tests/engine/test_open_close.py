"""Handles to queues, here and elsewhere (MS-MQDMPR 3.1.7.1.5, 3.1.7.1.6)."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lanner.model.directory_objects import OutgoingQueue, Queue, QueueManager
from lanner.model.enums import (
    DirectoryOperationResult,
    OutgoingState,
    QueueAccessType,
    QueueShareMode,
    QueueType,
    RemoteReadState,
)
from lanner.model.errors import SharingViolation
from lanner.wire.format_name import parse
from tests.engine.harness import Harness, Reader, status_of
from tests.statuses import (
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_OPERATION_CANCELLED,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
)

SEND, RECEIVE, PEEK, MOVE = (
    QueueAccessType.SEND,
    QueueAccessType.RECEIVE,
    QueueAccessType.PEEK,
    QueueAccessType.MOVE,
)
RECEIVE_ADMIN, PEEK_ADMIN = QueueAccessType.RECEIVE_ADMIN, QueueAccessType.PEEK_ADMIN
DENY_NONE, DENY_RECEIVE = QueueShareMode.DENY_NONE, QueueShareMode.DENY_RECEIVE
NOT_SEND = [access for access in QueueAccessType if access is not SEND]

REMOTE = r"DIRECT=OS:beta\private$\q"


@pytest.fixture
def two(h: Harness) -> Harness:
    """With queues "a" and "b"."""
    h.create("a")
    h.create("b")
    return h


def several(*names: str) -> str:
    return ",".join(name if "=" in name else rf"DIRECT=OS:ALPHA\private$\{name}" for name in names)


def publish_elsewhere(h: Harness, computer: str, **attributes: object) -> uuid.UUID:
    """A public queue that the directory knows and this queue manager has not."""
    site = h.directory.provision()
    h.directory.create_object(QueueManager(computer_name=computer, site_identifier_list=[site]))
    queue = Queue(pathname=rf"{computer}\orders", queue_type=QueueType.PUBLIC)
    for name, value in attributes.items():
        setattr(queue, name, value)
    result, identifier = h.directory.create_object(queue)
    assert identifier is not None, result
    return identifier


def outgoing(h: Harness) -> list[OutgoingQueue]:
    return list(h.engine.outgoing_queues())


# Several queues at once
# -----------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.5-1")
def test_a_distribution_list_is_expanded_before_anything_is_opened(two: Harness) -> None:
    """The members, also of a list inside the list, become the children."""
    inner, outer = uuid.uuid4(), uuid.uuid4()
    two.directory.add_distribution_list("inner", [r"DIRECT=OS:ALPHA\private$\b"], inner)
    two.directory.add_distribution_list("outer", [r"DIRECT=OS:ALPHA\private$\a", f"DL={inner}"], outer)
    descriptor = two.open(f"DL={outer}", SEND)
    assert descriptor.multiple
    assert [child.queue for child in descriptor.children] == [two.queue("a"), two.queue("b")]
    two.engine.enqueue_message_to_an_open_queue(descriptor, two.properties(b"to all"))
    assert (two.bodies("a"), two.bodies("b")) == ([b"to all"], [b"to all"])


@pytest.mark.spec("DMPR-3.1.7.1.5-1")
@pytest.mark.parametrize("connected", [True, False])
def test_a_name_that_cannot_be_expanded_opens_nothing(two: Harness, *, connected: bool) -> None:
    """An unknown list, or no directory to ask: an error, also where other elements exist."""
    known = uuid.uuid4()
    two.directory.add_distribution_list("known", [r"DIRECT=OS:ALPHA\private$\b"], known)
    two.directory.connected = connected
    name = f"DL={uuid.uuid4() if connected else known}"
    for text in (name, several("a", name)):
        assert status_of(partial(two.open, text, SEND)) == MQ_ERROR_ILLEGAL_FORMATNAME
    assert (two.queue("a").active, two.queue("b").active, outgoing(two)) == (False, False, [])


@pytest.mark.spec("DMPR-3.1.7.1.5-2")
@pytest.mark.parametrize("access", NOT_SEND)
def test_several_queues_are_opened_for_sending_only(two: Harness, access: QueueAccessType) -> None:
    assert status_of(lambda: two.open(several("a", "b"), access)) == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert not two.queue("a").active


@pytest.mark.spec("DMPR-3.1.7.1.5-3")
def test_several_queues_are_not_opened_exclusively(two: Harness) -> None:
    assert status_of(lambda: two.open(several("a", "b"), SEND, DENY_RECEIVE)) == MQ_ERROR_UNSUPPORTED_ACCESS_MODE
    assert not two.queue("a").active


@pytest.mark.spec("DMPR-3.1.7.1.5-4")
def test_several_queues_have_one_descriptor_with_children(two: Harness) -> None:
    descriptor = two.open(several("a", "b", REMOTE), SEND)
    assert descriptor.multiple is True
    assert (descriptor.access_type, descriptor.share_mode) == (SEND, DENY_NONE)
    assert descriptor.queue is None
    assert descriptor.remote_read_state is RemoteReadState.NONE
    assert parse(descriptor.format_name).elements == parse(several("a", "b", REMOTE)).elements
    assert [child.queue for child in descriptor.children] == [two.queue("a"), two.queue("b"), *outgoing(two)]
    for child in descriptor.children:
        assert (child.multiple, child.access_type, child.share_mode) == (False, SEND, DENY_NONE)
        assert child.queue is not None
        assert list(child.queue.open_queue_descriptors.values()) == [child]
    handles = [d.handle for d in (descriptor, *descriptor.children)]
    assert len(set(handles)) == 4
    assert two.engine.descriptor(descriptor.handle) is descriptor


@pytest.mark.spec("DMPR-3.1.7.1.5-5")
@pytest.mark.parametrize(
    ("name", "status"),
    [
        (r"DIRECT=OS:ALPHA\private$\missing", MQ_ERROR_QUEUE_NOT_FOUND),
        (f"PUBLIC={uuid.UUID(int=1)}", MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION),
    ],
)
def test_an_element_that_cannot_be_opened_closes_the_others(two: Harness, name: str, status: int) -> None:
    """The whole open fails with its status; children that were already open are closed."""
    before = two.open("a", SEND)
    two.engine.close_queue(before)
    handles = dict(two.engine.opening.descriptors)
    assert status_of(lambda: two.open(several("a", "b", name), SEND)) == status
    assert (two.queue("a").active, two.queue("b").active) == (False, False)
    assert two.engine.opening.descriptors == handles
    # Handles are counted up: there was one for the whole, one for "a" and one for "b".
    assert two.open("a", SEND).handle == before.handle + 4


# Which names for what
# -------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.5-6")
@pytest.mark.parametrize("access", NOT_SEND)
@pytest.mark.parametrize(
    "name",
    [
        "DIRECT=HTTP://beta/msmq/private$/q",
        "DIRECT=HTTPS://beta/msmq/private$/q",
        "DIRECT=http://ALPHA/msmq/private$/q",
        "MULTICAST=234.1.1.1:8001",
    ],
)
def test_web_and_multicast_names_are_opened_for_sending_only(h: Harness, name: str, access: QueueAccessType) -> None:
    """MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, whether such a queue exists or not."""
    h.create()
    h.open(name, SEND)
    assert status_of(lambda: h.open(name, access)) == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION


@pytest.mark.spec("DMPR-3.1.7.1.5-6")
@pytest.mark.parametrize("suffix", ["JOURNAL", "DEADLETTER", "DEADXACT"])
def test_the_computers_own_queues_are_not_opened_for_sending(h: Harness, suffix: str) -> None:
    for identifier in (h.engine.queue_manager.identifier, uuid.uuid4()):
        name = f"MACHINE={identifier};{suffix}"
        assert status_of(partial(h.open, name, SEND)) == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert h.open(f"MACHINE={h.engine.queue_manager.identifier};{suffix}", PEEK).queue is not None


# Queues that are not there
# --------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.5-7")
@pytest.mark.parametrize("access", [RECEIVE, PEEK, MOVE])
@pytest.mark.parametrize(
    "name",
    [
        r"DIRECT=OS:.\private$\missing",
        r"DIRECT=OS:.\missing",
        r"DIRECT=OS:.\private$\missing;sub",
        REMOTE,
        f"PUBLIC={uuid.UUID(int=1)}",
        f"PRIVATE={uuid.UUID(int=1)}\\1",
        f"MACHINE={uuid.UUID(int=1)};JOURNAL",
    ],
)
def test_an_unknown_queue_is_not_found(h: Harness, name: str, access: QueueAccessType) -> None:
    assert status_of(lambda: h.open(name, access)) == MQ_ERROR_QUEUE_NOT_FOUND
    assert outgoing(h) == []


LOCAL_HOSTS = [
    *("ALPHA", "alpha", "ALPHA.example.com", "alpha.EXAMPLE.com", "10.1.2.3", "fe80::1", "localhost", "."),
    # IPv6 addresses have several spellings.
    *("FE80:0:0::1", "[fe80::1]"),
]


@pytest.fixture
def addressed(tmp_path: Path) -> Iterator[Harness]:
    """A computer with two addresses, and queue "q"."""
    harness = Harness(tmp_path / "data", local_addresses=frozenset({"10.1.2.3", "fe80::1"}))
    harness.create()
    yield harness
    harness.close()


@pytest.mark.spec("DMPR-3.1.7.1.5-9")
@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_every_name_of_this_computer_leads_to_its_queues(addressed: Harness, host: str) -> None:
    h = addressed
    for protocol in ("OS", "TCP"):
        descriptor = h.open(rf"DIRECT={protocol}:{host}\private$\q", SEND)
        assert descriptor.queue is h.queue()
    if ":" not in host:
        assert h.open(f"DIRECT=HTTP://{host}/msmq/private$/q", SEND).queue is h.queue()
    assert outgoing(h) == []


@pytest.mark.parametrize("host", ["beta:1801", "a=b", "FormatName:DIRECT=OS:.", "a b", ".beta"])
def test_nothing_waits_for_a_computer_that_cannot_be(h: Harness, host: str) -> None:
    """This holds also for names in packets: their outgoing queue would never be emptied."""
    assert status_of(partial(h.open, rf"DIRECT=OS:{host}\private$\q", SEND)) == MQ_ERROR_ILLEGAL_FORMATNAME
    assert outgoing(h) == []


@pytest.mark.spec("DMPR-3.1.7.1.5-8", "DMPR-3.1.7.1.5-9")
@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_a_queue_that_this_computer_has_not_is_not_sent_elsewhere(addressed: Harness, host: str) -> None:
    """Opened for sending: not found, and no outgoing queue comes into being."""
    h = addressed
    names = [rf"DIRECT=OS:{host}\private$\missing", rf"DIRECT=TCP:{host}\missing"]
    if ":" not in host:
        names.append(f"DIRECT=HTTP://{host}/msmq/private$/missing")
    for name in names:
        assert status_of(partial(h.open, name, SEND)) == MQ_ERROR_QUEUE_NOT_FOUND
    assert outgoing(h) == []


@pytest.mark.spec("DMPR-3.1.7.1.5-9")
@pytest.mark.parametrize("host", ["ALPHA2", "ALPHA.example.org", "10.1.2.4", "lph"])
def test_other_computers_are_not_this_one(addressed: Harness, host: str) -> None:
    descriptor = addressed.open(rf"DIRECT=OS:{host}\private$\q", SEND)
    assert outgoing(addressed) == [descriptor.queue]


@pytest.mark.spec("DMPR-3.1.7.1.5-10")
@pytest.mark.parametrize("connected", [True, False])
def test_a_public_queue_that_the_directory_does_not_show_is_unsupported(h: Harness, *, connected: bool) -> None:
    """Any result of the read other than Success yields the same error.

    It is MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION.
    """
    identifier = uuid.uuid4() if connected else publish_elsewhere(h, "BETA")
    h.directory.connected = connected
    assert status_of(lambda: h.open(f"PUBLIC={identifier}", SEND)) == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    assert outgoing(h) == []


@pytest.mark.spec("DMPR-3.1.7.1.5-11")
def test_a_queue_that_should_be_here_and_is_not_is_not_found(h: Harness) -> None:
    """A PUBLIC= name that the directory places here, a PRIVATE= name with our GUID."""
    identifier = publish_elsewhere(h, "alpha")
    assert status_of(lambda: h.open(f"PUBLIC={identifier}", SEND)) == MQ_ERROR_QUEUE_NOT_FOUND
    name = f"PRIVATE={h.engine.queue_manager.identifier}\\7777"
    assert status_of(lambda: h.open(name, SEND)) == MQ_ERROR_QUEUE_NOT_FOUND
    assert outgoing(h) == []


# Outgoing queues
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.5-12")
@pytest.mark.parametrize(
    "name",
    [
        REMOTE,
        r"DIRECT=TCP:10.9.9.9\q",
        "DIRECT=HTTP://beta/msmq/private$/q",
        f"PRIVATE={uuid.UUID(int=7)}\\0000002a",
        "MULTICAST=234.1.1.1:8001",
    ],
)
def test_a_queue_elsewhere_is_opened_through_an_outgoing_queue(h: Harness, name: str) -> None:
    identifiers = {queue.identifier for queue in h.engine.queue_manager.queue_collection.values()}
    descriptor = h.open(name, SEND)
    queue = descriptor.queue
    assert isinstance(queue, OutgoingQueue)
    assert queue.identifier not in identifiers | {uuid.UUID(int=0)}
    assert queue.label == name
    assert queue.destination_format_name == name
    assert queue.next_hops is None
    assert queue.state is OutgoingState.INACTIVE
    assert descriptor.format_name == name


@pytest.mark.spec("DMPR-3.1.7.1.5-13")
def test_the_same_destination_has_one_outgoing_queue(h: Harness) -> None:
    """The outgoing queue is in QueueCollection and is found again without case.

    This holds also after its handles are closed and after a restart.
    """
    first = h.open(REMOTE, SEND)
    queue = first.queue
    assert isinstance(queue, OutgoingQueue)
    assert h.engine.queue_manager.queue_collection[queue.number] is queue
    assert h.open(REMOTE, SEND).queue is queue
    assert h.open(REMOTE.swapcase(), SEND).queue is queue
    h.engine.close_queue(first)
    h.send(REMOTE, b"waiting")
    assert h.open(REMOTE, SEND).queue is queue
    assert h.open(r"DIRECT=OS:beta\private$\other", SEND).queue is not queue
    assert len(outgoing(h)) == 2
    identifier = queue.identifier
    h.restart()
    again = h.open(REMOTE, SEND).queue
    assert again is not None
    assert (again.identifier, again.message_count) == (identifier, 1)


@pytest.mark.spec("DMPR-3.1.7.1.5-14")
def test_an_outgoing_queue_for_a_public_queue_takes_its_base_priority(h: Harness) -> None:
    identifier = publish_elsewhere(h, "BETA", base_priority=42)
    queue = h.open(f"PUBLIC={identifier}", SEND).queue
    assert isinstance(queue, OutgoingQueue)
    assert queue.base_priority == 42
    other = h.open(REMOTE, SEND).queue
    assert other is not None
    assert other.base_priority == 0


@pytest.mark.spec("DMPR-3.1.7.1.5-14")
def test_a_directory_that_fails_when_the_base_priority_is_read_makes_the_queue_not_found(h: Harness) -> None:
    """The read that finds the queue succeeds, the one for the new outgoing queue does not."""
    identifier = publish_elsewhere(h, "BETA")
    found = h.directory.read("Queue", None)
    answers = iter([found, (DirectoryOperationResult.GENERIC_ERROR, None)])
    h.directory.answers["read"] = lambda *_: next(answers)
    assert status_of(lambda: h.open(f"PUBLIC={identifier}", SEND)) == MQ_ERROR_QUEUE_NOT_FOUND
    assert outgoing(h) == []


@pytest.mark.spec("DMPR-3.1.7.1.5-15")
@pytest.mark.parametrize(
    ("name", "hardened_state", "multicast"),
    [
        (REMOTE, OutgoingState.LOCKED, False),
        (f"PRIVATE={uuid.UUID(int=7)}\\0000002a", OutgoingState.LOCKED, False),
        ("MULTICAST=234.1.1.1:8001", OutgoingState.LOCKED, True),
        ("DIRECT=HTTP://beta/msmq/private$/q", OutgoingState.INACTIVE, False),
        ("DIRECT=https://beta/msmq/private$/q", OutgoingState.INACTIVE, False),
    ],
)
def test_hardened_security_locks_what_does_not_go_over_http(
    tmp_path: Path, name: str, hardened_state: OutgoingState, *, multicast: bool
) -> None:
    for hardened in (True, False):
        h = Harness(tmp_path / str(hardened), hardened_security=hardened)
        queue = h.open(name, SEND).queue
        assert isinstance(queue, OutgoingQueue)
        assert queue.state is (hardened_state if hardened else OutgoingState.INACTIVE)
        assert queue.multicast is multicast
        h.close()


# Sharing
# --------------------------------------------------------------------------------------------------


def can_open(h: Harness, access: QueueAccessType, share: QueueShareMode) -> bool:
    """False: refused with MQ_ERROR_SHARING_VIOLATION, and no descriptor is left."""
    before = list(h.queue().open_queue_descriptors.values())
    try:
        h.engine.close_queue(h.open("q", access, share))
    except SharingViolation:
        assert list(h.queue().open_queue_descriptors.values()) == before
        return False
    return True


def test_the_status_of_a_sharing_violation(h: Harness) -> None:
    h.create()
    h.open("q", RECEIVE, DENY_RECEIVE)
    assert status_of(lambda: h.open("q", RECEIVE)) == MQ_ERROR_SHARING_VIOLATION


OPEN_ACCESS = [RECEIVE, SEND, PEEK, MOVE]


@pytest.mark.spec("DMPR-3.1.7.1.5-16", "DMPR-3.1.7.1.5-17")
def test_an_exclusive_receiver_shuts_out_receivers_and_exclusive_opens(h: Harness) -> None:
    """Rule of the queue being open ReceiveAccess with DenyReceive."""
    h.create()
    h.open("q", RECEIVE, DENY_RECEIVE)
    assert [can_open(h, access, DENY_RECEIVE) for access in OPEN_ACCESS] == [False] * 4
    assert {access: can_open(h, access, DENY_NONE) for access in OPEN_ACCESS} == {
        RECEIVE: False,
        SEND: True,
        PEEK: True,
        MOVE: True,
    }


@pytest.mark.spec("DMPR-3.1.7.1.5-18")
@pytest.mark.parametrize("access", [PEEK, PEEK_ADMIN])
def test_an_exclusive_peeker_shuts_out_receivers(h: Harness, access: QueueAccessType) -> None:
    """In either share mode; every other access is free."""
    h.create()
    # PeekAdminAccess finds only outgoing queues, which cannot be opened to receive: build the case
    # by hand.
    h.open("q", PEEK, DENY_RECEIVE).access_type = access
    for share in QueueShareMode:
        assert {access: can_open(h, access, share) for access in OPEN_ACCESS} == {
            RECEIVE: False,
            SEND: True,
            PEEK: True,
            MOVE: True,
        }


@pytest.mark.spec("DMPR-3.1.7.1.5-19")
def test_a_receiver_that_shares_shuts_out_exclusive_opens_only(h: Harness) -> None:
    h.create()
    h.open("q", RECEIVE, DENY_NONE)
    assert [can_open(h, access, DENY_RECEIVE) for access in OPEN_ACCESS] == [False] * 4
    assert [can_open(h, access, DENY_NONE) for access in OPEN_ACCESS] == [True] * 4


@pytest.mark.parametrize("access", [SEND, PEEK, MOVE])
def test_others_that_share_shut_nobody_out(h: Harness, access: QueueAccessType) -> None:
    h.create()
    h.open("q", access, DENY_NONE)
    assert all(can_open(h, new, share) for new in OPEN_ACCESS for share in QueueShareMode)


@pytest.mark.spec("DMPR-3.1.7.1.5-20")
@pytest.mark.parametrize(("access", "share"), list(itertools.product(OPEN_ACCESS, QueueShareMode)))
def test_an_open_queue_has_a_descriptor(h: Harness, access: QueueAccessType, share: QueueShareMode) -> None:
    queue = h.create()
    name = r"DIRECT=OS:ALPHA\private$\q"
    first, second = h.open(name, access, share), h.open(name, SEND)
    assert (first.access_type, first.share_mode, first.format_name) == (access, share, name)
    assert first.multiple is False
    assert first.queue is queue
    assert list(queue.open_queue_descriptors.values()) == [first, second]
    assert first.handle != second.handle
    assert first.context_value != second.context_value
    assert h.engine.descriptor(first.handle) is first
    assert queue.active


def is_active(queue: Queue) -> bool:
    return queue.active


# Close Queue (3.1.7.1.6)
# ----------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.6-1")
def test_closing_a_handle_of_a_deleted_queue_does_nothing(h: Harness) -> None:
    queue = h.create()
    descriptor = h.open()
    h.engine.delete_queue(queue)
    new = h.create()
    other = h.open()
    h.engine.close_queue(descriptor)
    assert list(new.open_queue_descriptors.values()) == [other]


@pytest.mark.spec("DMPR-3.1.7.1.6-2")
def test_closing_a_handle_to_several_queues_closes_all_of_them(two: Harness) -> None:
    """Although its own QueueReference is NULL."""
    descriptor = two.open(several("a", "b", REMOTE), SEND)
    stays = two.open("b", SEND)
    handles = [child.handle for child in descriptor.children]
    two.engine.close_queue(descriptor)
    assert (two.queue("a").active, outgoing(two)[0].active) == (False, False)
    assert list(two.queue("b").open_queue_descriptors.values()) == [stays]
    assert not set(handles) & set(two.engine.opening.descriptors)


@pytest.mark.spec("DMPR-3.1.7.1.6-3")
def test_closing_ends_the_tagged_reads_of_this_handle_only(h: Harness) -> None:
    h.create()
    mine, other = h.open(), h.open()
    ended, also_ended, waiting = Reader(), Reader(), Reader()
    h.engine.dequeue_message(mine, tag=1, on_end=ended)
    h.engine.dequeue_message(mine, tag=2, timeout=60_000, on_end=also_ended)
    h.engine.dequeue_message(other, tag=3, on_end=waiting)
    h.engine.close_queue(mine)
    assert (ended.status, also_ended.status) == (MQ_ERROR_OPERATION_CANCELLED, MQ_ERROR_OPERATION_CANCELLED)
    assert waiting.ends == []
    h.send(body=b"a")
    assert waiting.body == b"a"
    h.tick(61)
    assert (len(ended.ends), len(also_ended.ends)) == (1, 1)


@pytest.mark.spec("DMPR-3.1.7.1.6-4")
def test_closing_ends_reads_without_a_tag_too(h: Harness) -> None:
    """A waiting peek has no tag; it must not hang. On a descriptor, and on a cursor."""
    h.create()
    mine, other = h.open(), h.open()
    peeked, received, by_cursor, waiting = Reader(), Reader(), Reader(), Reader()
    cursor = h.engine.open_cursor(mine)
    h.engine.peek_message(mine, on_end=peeked)
    h.engine.dequeue_message(mine, on_end=received)
    h.engine.peek_message(mine, cursor=cursor, on_end=by_cursor)
    h.engine.peek_message(other, on_end=waiting)
    h.engine.close_queue(mine)
    assert [reader.status for reader in (peeked, received, by_cursor)] == [MQ_ERROR_OPERATION_CANCELLED] * 3
    assert waiting.ends == []
    cursor = h.engine.open_cursor(other)
    assert cursor is not None
    on_cursor = Reader()
    h.engine.peek_message(other, cursor=cursor, on_end=on_cursor)
    h.engine.close_cursor(cursor)
    assert (on_cursor.status, waiting.ends) == (MQ_ERROR_OPERATION_CANCELLED, [])


@pytest.mark.spec("DMPR-3.1.7.1.6-5")
def test_closing_takes_cursors_and_the_handle_away(h: Harness) -> None:
    """Active and the sharing rules no longer count it."""
    queue = h.create()
    descriptor = h.open("q", RECEIVE, DENY_RECEIVE)
    one, two = h.engine.open_cursor(descriptor), h.engine.open_cursor(descriptor)
    assert descriptor.cursors == [one, two]
    assert is_active(queue)
    assert not can_open(h, RECEIVE, DENY_NONE)
    h.engine.close_queue(descriptor)
    assert descriptor.cursors == []
    assert not queue.open_queue_descriptors
    assert not is_active(queue)
    assert can_open(h, RECEIVE, DENY_RECEIVE)
    h.engine.close_queue(descriptor)
