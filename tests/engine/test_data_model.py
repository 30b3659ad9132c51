"""The elements of the data model (MS-MQDMPR 1.8, 3.1.1): what their attributes mean and may be."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanner.client import QueueManager as Client
from lanner.client.runtimes import runtime_of
from lanner.model.directory_objects import Queue, QueueManager, attributes_of
from lanner.model.enums import (
    INFINITE,
    EncryptionAlgorithm,
    EnqueueStatus,
    HashAlgorithm,
    MessageClass,
    MessageSeekAction,
    OperatingSystemType,
    PositionState,
    QueueAccessType,
    QueueScope,
)
from lanner.model.errors import (
    CUSTOMER_BIT,
    AccessDenied,
    IllegalFormatname,
    InvalidHandle,
    IOTimeout,
    MessageNotFound,
    NoDs,
    StatusError,
    StoreLocked,
)
from lanner.model.live import END, START, OpenQueueDescriptor
from lanner.security.identity import SYSTEM
from lanner.wire.format_name import MultipleElementFormatName, parse
from tests.engine.harness import Harness, Reader, at_once, body_of

ELSEWHERE = r"DIRECT=OS:BETA\private$\q"

# MS-MQMQ 2.4, facility and severity apart; and the codes other documents of the family answer with.
ERRORS = "01-09 0B 0D 10-11 13-14 18-28 2A-31 33 35-46 48-4C 4E 50-51 55-56 58 5A-96 99-9C 504"
INFORMATION = "01-06 09-0B"
ELSEWHERE_DEFINED = {
    0x400E03E9,  # MS-MQQP 2.2.1.1: MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT
    0xC000000D,  # MS-MQQP 3.1.4: STATUS_INVALID_PARAMETER
    0xC0000008,  # MS-MQRR 3.1.4.7: STATUS_INVALID_HANDLE
    0xC0000022,  # MS-MQRR 3.1.4.6: STATUS_ACCESS_DENIED
    0xC0000043,  # MS-MQMP 2.4: STATUS_SHARING_VIOLATION
    0xC0000225,  # MS-MQDMPR 3.1.7.1.17: STATUS_NOT_FOUND
}


def codes(high: int, ranges: str) -> set[int]:
    found: set[int] = set()
    for part in ranges.split():
        first, _, last = part.partition("-")
        found.update(high << 16 | low for low in range(int(first, 16), int(last or first, 16) + 1))
    return found


@pytest.mark.spec("DMPR-1.8-1")
@pytest.mark.spec("MQRR-1.8-1")
def test_a_status_of_our_own_has_the_customer_bit() -> None:
    """1.8: vendors choose their own HRESULTs, provided the C bit (0x20000000) is set."""
    documented = codes(0xC00E, ERRORS) | codes(0x400E, INFORMATION) | ELSEWHERE_DEFINED
    ours = set(StatusError.by_status) - documented
    assert ours, "the store has errors that no document knows"
    for status in ours:
        assert status & CUSTOMER_BIT, f"{status:#010x} is no document's and has no customer bit"
        assert StatusError.by_status[status].spec_name.startswith("LANNER_")
    assert not any(status & 0x20000000 for status in documented)
    # Every error that carries a status is one of the table, so no other code can be answered with.
    assert {cls.status for cls in StatusError.__subclasses__()} == set(StatusError.by_status)


# The queue manager
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1-4")
def test_every_front_end_sees_one_queue_manager(tmp_path: Path) -> None:
    """LocalQueueManager: one instance.

    It is accessible to all protocol implementations on the queue manager.
    """
    with Client(tmp_path / "data", name="ALPHA") as program:
        engine = runtime_of(program).engine
        with runtime_of(program).lock:
            made = engine.create_queue(engine.set_queue_defaults(r".\private$\by-event"))
        program.create_queue("by-program")
        assert program.open("by-event").attributes().identifier == made.identifier
        with runtime_of(program).lock:
            name = parse(r"DIRECT=OS:.\private$\by-program")
            engine.open_queue(name, QueueAccessType.SEND)
            queue = engine.require_queue(name)
            status = engine.enqueue_message_to_an_open_queue(
                engine.open_queue(name, QueueAccessType.SEND), Harness.properties(b"one")
            )
        assert status is EnqueueStatus.OK
        assert program.open("by-program").receive(timeout=0).body_bytes == b"one"
        assert queue.queue_manager is made.queue_manager is engine.queue_manager
        with pytest.raises(StoreLocked):
            Client(tmp_path / "data", name="ALPHA")
        # The rejected one has released the directory.
        descriptors = [os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()]
        assert descriptors.count(str(tmp_path / "data" / "lock")) == 1


@pytest.mark.spec("DMPR-3.1.1.1-1")
def test_this_host_is_foreign(h: Harness) -> None:
    """OperatingSystemType is one of six values; Foreign: "Not a Windows operating system"."""
    assert {member.name for member in OperatingSystemType} == {
        "FOREIGN",
        "WIN95",
        "WIN_CLIENT",
        "WIN_SERVER",
        "WIN_ENT",
        "OTHER",
    }
    with pytest.raises(ValueError, match="2457"):
        OperatingSystemType(0x999)
    assert h.engine.queue_manager.operating_system_type is OperatingSystemType.FOREIGN
    _, found = h.directory.read("QueueManager", None)
    assert isinstance(found, QueueManager)
    assert found.operating_system_type is OperatingSystemType.FOREIGN


@pytest.mark.spec("DMPR-3.1.1.1-3", "DMPR-6-1", "DMPR-6-3")
def test_a_new_queue_manager_is_nobodys_server(tmp_path: Path) -> None:
    """Defaults of 3.1.1.1.

    Note 2: QueueManagerVersion is empty; notes 4 to 8: no connected networks.
    """
    h = Harness(tmp_path / "data", site_identifiers=())
    qm = h.engine.queue_manager
    assert qm.foreign_system is qm.remote_access_server is qm.supporting_server is False
    assert qm.site_identifier_list == []
    assert qm.in_routing_server_identifier_list == qm.out_routing_server_identifier_list == []
    assert qm.directory_server_list == []
    assert qm.queue_manager_version == ""
    assert qm.connected_network_identifier_list == []
    assert qm.connected_network_collection == []
    h.close()


@pytest.mark.spec("DMPR-3.1.1.1-2", "DMPR-6-2")
def test_the_quota_of_the_queue_manager_is_in_kilobytes_and_eight_gibibytes(h: Harness) -> None:
    """DECISIONS: kilobytes, 0x00800000 unless configured; over all queues together."""
    qm = h.engine.queue_manager
    assert qm.queue_manager_quota == 0x0080_0000
    assert qm.queue_manager_quota * 1024 == 8 << 30
    h.settings["queue_manager_quota"] = 2
    h.restart()
    qm = h.engine.queue_manager
    assert qm.queue_manager_quota == 2
    h.create("a")
    h.create("b")
    size = len(h.message(b"x" * 700).packet)
    assert 2 * size <= 2048 < 3 * size
    verdicts = [h.engine.enqueue_message(h.queue(name), h.message(b"x" * 700)) for name in ("a", "b", "a")]
    assert verdicts == [EnqueueStatus.OK, EnqueueStatus.OK, EnqueueStatus.QUEUE_MANAGER_QUOTA_EXCEEDED]
    assert qm.total_bytes == 2 * size
    # To the byte: what is left fits, one byte more does not.
    left = 2048 - 2 * size
    smallest = len(h.message().packet)
    body = (left - smallest) // 4 * 4
    assert h.engine.enqueue_message(h.queue("b"), h.message(b"x" * (body + 4))) != EnqueueStatus.OK
    assert h.engine.enqueue_message(h.queue("b"), h.message(b"x" * body)) is EnqueueStatus.OK


@pytest.mark.spec("DMPR-3.1.1.1-6")
def test_a_workgroup_queue_manager_is_never_offline(h: Harness) -> None:
    """DirectoryOffline MUST be False if DirectoryIntegrated is False."""
    qm = h.engine.queue_manager
    assert qm.directory_integrated is False
    h.directory.connected = False
    h.engine.read_directory("Queue", None)
    h.engine.write_directory(qm)
    h.engine.create_directory_object(Queue(pathname=r"ALPHA\x"))
    h.engine.delete_directory_object(Queue(pathname=r"ALPHA\x"))
    with pytest.raises(NoDs):
        h.create(r".\public")
    assert qm.directory_offline is False
    assert h.engine.next_delay() is None
    h.before_start = lambda engine: setattr(engine.directory, "connected", False)
    h.restart()
    assert h.engine.queue_manager.directory_offline is False


# Queues
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.2-2")
def test_quotas_of_queues_are_in_kilobytes(h: Harness) -> None:
    """Quota and JournalQuota are in kilobytes, TotalBytes is in bytes.

    Both JournalQuotas are unlimited by default.
    """
    assert h.engine.queue_manager.journal_quota == 0xFFFFFFFF
    assert h.create("plain").journal_quota == h.queue("plain").quota == INFINITE
    queue = h.create(quota=1, journaling=True, journal_quota=1)
    smallest = len(h.message().packet)
    # A packet is a multiple of four bytes long.
    exact = h.message(b"x" * (1024 - smallest))
    too_big = h.message(b"x" * (1024 - smallest + 4))
    assert len(exact.packet) == 1024
    assert h.engine.enqueue_message(queue, too_big) is EnqueueStatus.QUEUE_QUOTA_EXCEEDED
    assert h.engine.enqueue_message(queue, exact) is EnqueueStatus.OK
    assert queue.total_bytes == 1024
    assert h.engine.enqueue_message(queue, h.message()) is EnqueueStatus.QUEUE_QUOTA_EXCEEDED
    h.receive()
    journal = queue.journal_queue
    assert journal is not None
    assert journal.total_bytes == 1024, "the journal's kilobyte is full"
    h.engine.enqueue_message(queue, h.message())
    h.receive()
    assert journal.total_bytes == 1024

    h.settings["journal_quota"] = 1
    h.restart()
    system = h.engine.queue_manager.system_journal_queue
    assert system is not None
    for _ in range(20):
        h.send("plain", b"x" * 100, positive_journaling_requested=True)
    size = len(h.messages("plain")[0].packet)
    assert system.message_count == 1024 // size < 20


@pytest.mark.spec("DMPR-3.1.1.2-4")
def test_the_scope_of_a_queue_is_the_enterprise_and_stays_here(h: Harness) -> None:
    """Scope SHOULD be Enterprise and SHOULD NOT be treated as a directory attribute."""
    h.create()
    h.create(r".\public")
    assert {queue.scope for queue in h.engine.queue_manager.queue_collection.values()} == {QueueScope.ENTERPRISE}
    assert "scope" not in attributes_of(Queue, "directory", "persistent")
    rows = [value for _, value in h.store.table("directory").items()]
    assert any(b"public" in row for row in rows)
    assert not any(b"scope" in row.lower() for row in rows)


@pytest.mark.spec("DMPR-3.1.1.2-5")
def test_a_queue_is_active_while_open_and_an_outgoing_one_while_it_has_messages(h: Harness) -> None:
    """Active: any open descriptor, or an outgoing queue with a message awaiting transfer."""
    queue = h.create()

    def is_active(name: str) -> bool:
        return h.queue(name).active

    assert not is_active("q")
    first, second = h.open(access=QueueAccessType.SEND), h.open()
    assert is_active("q")
    h.engine.close_queue(first)
    assert is_active("q")
    h.engine.close_queue(second)
    assert not is_active("q")
    h.send(body=b"waits")
    assert queue.message_count == 1
    assert not is_active("q"), "a local queue's messages await no transfer"

    h.send(ELSEWHERE, b"waits")
    assert is_active(ELSEWHERE)
    h.restart()
    assert is_active(ELSEWHERE)
    h.engine.purge_queue(h.queue(ELSEWHERE))
    assert not is_active(ELSEWHERE)
    h.engine.close_queue(h.open(ELSEWHERE, QueueAccessType.SEND))
    assert not is_active(ELSEWHERE)


@pytest.mark.spec("DMPR-3.1.1.2-6")
@pytest.mark.parametrize("recoverable", [True, False])
def test_total_bytes_is_the_sum_of_what_is_there(h: Harness, recoverable: bool) -> None:
    """Enqueue N, then receive N: TotalBytes is back where it was; a restart changes nothing."""
    queue = h.create()
    qm = h.engine.queue_manager
    start = qm.total_bytes
    assert queue.total_bytes == 0
    sizes = []
    for length in (0, 1, 100, 5000):
        before = queue.total_bytes
        h.send(body=b"x" * length, recoverable=recoverable)
        sizes.append(queue.total_bytes - before)
    found = []
    descriptor = h.open()
    for size in sizes:
        before = queue.total_bytes
        position = at_once(h.engine.dequeue_message(descriptor, timeout=0))
        assert before - queue.total_bytes == size == len(position.record.packet)
        found.append(body_of(position))
    assert [len(body) for body in found] == [0, 1, 100, 5000]
    assert queue.total_bytes == 0
    assert qm.total_bytes == start
    h.send(body=b"kept")
    kept = queue.total_bytes
    h.restart()
    assert h.queue().total_bytes == kept
    assert h.engine.queue_manager.total_bytes == start + kept


@pytest.mark.spec("DMPR-3.1.1.2-7")
def test_messages_stand_by_priority_and_then_by_arrival(h: Harness) -> None:
    """MessagePositionList: ascending order by arrival time within priority.

    The highest priority comes first.
    """
    h.create()
    for index, priority in enumerate((3, 0, 7, 3, 7, 0, 5, 3)):
        h.send(body=b"%d/%d" % (priority, index), priority=priority, recoverable=bool(index % 2))
    expected = [b"7/2", b"7/4", b"5/6", b"3/0", b"3/3", b"3/7", b"0/1", b"0/5"]
    assert h.bodies() == expected
    assert [message.body for message in h.messages()] == expected


@pytest.mark.spec("DMPR-3.1.1.2-8")
def test_start_and_end_are_no_messages(h: Harness) -> None:
    """Unused cursors point to Start, cursors past Tail to End.

    An empty list has Head equal to End.
    """
    h.create()
    descriptor = h.open()
    cursor = h.engine.open_cursor(descriptor)
    assert cursor is not None
    # Head equals End: a seek from Start finds nothing at all.
    assert h.engine.positions.seek_available_message_position(h.queue(), START, peek=True) is None
    assert h.engine.positions.seek_available_message_position(h.queue(), END, peek=True, backward=True) is None
    h.send(body=b"one")
    assert cursor.position == START
    assert body_of(h.engine.peek_message(descriptor, timeout=0, cursor=cursor)) == b"one"  # type: ignore[arg-type]
    assert START < cursor.position < END
    h.engine.dequeue_message(descriptor, timeout=0, cursor=cursor)
    reader = Reader()
    h.engine.dequeue_message(descriptor, timeout=1000, cursor=cursor, on_end=reader)
    h.tick(1)
    assert reader.status == IOTimeout.status
    assert cursor.position == END
    # No lookup identifier reaches them: they are outside its 64 bits, and its ends are no messages.
    assert START < 0
    assert END > 0xFFFF_FFFF_FFFF_FFFF
    for lookup_id in (0, 0xFFFF_FFFF_FFFF_FFFF):
        with pytest.raises(MessageNotFound):
            h.engine.read_message_by_lookup_identifier(
                descriptor, lookup_id, peek_operation=True, lookup_operation=MessageSeekAction.CURRENT
            )
    # From End it goes on with what comes after the tail.
    h.send(body=b"two")
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0, cursor=cursor))
    assert body_of(position) == b"two"


# Positions
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.11-1")
def test_a_position_is_available_locked_deleted_or_purge_pending(h: Harness) -> None:
    """Locked: an uncommitted receive, move or send, and a remote read that is not acknowledged."""
    assert {member.name for member in PositionState} == {"AVAILABLE", "LOCKED", "DELETED", "PURGE_PENDING"}
    h.create("ledger", transactional=True)
    archive = h.create(r".\private$\ledger;archive")
    first = h.begin()
    for body in (b"received", b"moved", b"read", b"free"):
        h.send("ledger", body, transaction=first)
    sent = [operation.message_position for operation in first.transactional_operations]
    assert {position.state for position in sent} == {PositionState.LOCKED}, "an uncommitted send"
    h.commit(first)
    assert {position.state for position in sent} == {PositionState.AVAILABLE}

    transaction, descriptor = h.begin(), h.open("ledger")
    received = at_once(h.engine.dequeue_message(descriptor, timeout=0, transaction=transaction))
    moved = h.engine.positions.seek_available_message_position(h.queue("ledger"), START, peek=False)
    assert moved is not None
    h.engine.move_message(moved, archive, transaction)
    held = [received, moved, at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))]
    assert [body_of(position) for position in held] == [b"received", b"moved", b"read"]
    assert {position.state for position in held} == {PositionState.LOCKED}
    assert h.bodies("ledger") == [b"free"], "nobody else gets what is Locked"

    h.engine.purge_queue(h.queue("ledger"))
    assert {position.state for position in held} == {PositionState.PURGE_PENDING}
    h.commit(transaction)
    assert {position.state for position in held[:2]} == {PositionState.DELETED}
    assert h.bodies("ledger;archive") == [b"moved"]
    h.engine.dequeue_message_end(descriptor, held[2], delete_message=False)
    assert held[2].state is PositionState.DELETED


# Messages
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.12-3")
def test_arrival_is_the_insertion_here_and_the_source_stays(h: Harness) -> None:
    """ArrivalTime: when the message was added to this queue.

    SourceMachineIdentifier: who first accepted the message.
    """
    h.create()
    h.create(r".\private$\q;later")
    source = uuid.uuid4()
    message = h.message(b"travelled", source=source)
    h.now += 100.7
    assert h.engine.insert_message(h.queue(), message, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    h.now += 100
    h.send(body=b"ours")
    ids = h.lookup_ids()
    arrivals = {}
    for body, lookup_id in ids.items():
        record = h.store.get(h.queue().number, lookup_id)
        assert record is not None
        arrivals[body] = record.arrived
    assert arrivals == {b"travelled": 1_700_000_100, b"ours": 1_700_000_200}
    # A move within the computer is no new arrival of another source.
    position = h.engine.positions.seek_available_message_position(h.queue(), START, peek=False)
    assert position is not None
    h.engine.move_message(position, h.queue("q;later"))
    (travelled,) = h.messages("q;later")
    (ours,) = h.messages()
    assert travelled.source_machine_identifier == source
    assert ours.source_machine_identifier == h.engine.queue_manager.identifier


@pytest.mark.spec("DMPR-3.1.1.12-13")
def test_each_copy_of_a_message_to_many_names_one_of_them(h: Harness) -> None:
    """DestinationQueueFormatName has one element, one of DestinationMultiQueueFormatName's."""
    for name in ("a", "b"):
        h.create(name)
    many = ",".join(rf"DIRECT=OS:ALPHA\private$\{name}" for name in ("a", "b"))
    h.send(many, b"one")
    for name in ("a", "b"):
        (message,) = h.messages(name)
        destination, all_of_them = message.destination_queue_format_name, message.destination_multi_queue_format_name
        assert destination == parse(rf"DIRECT=OS:ALPHA\private$\{name}")
        assert not isinstance(destination, MultipleElementFormatName)
        assert isinstance(all_of_them, MultipleElementFormatName)
        assert len(all_of_them.elements) == 2
        assert destination in all_of_them.elements
        assert not any(isinstance(element, MultipleElementFormatName) for element in all_of_them.elements)
    h.send("a", b"alone")
    (message,) = h.messages("a")
    assert message.destination_multi_queue_format_name is None
    with pytest.raises((IllegalFormatname, ValueError)):
        MultipleElementFormatName((parse(many), parse(r"DIRECT=OS:ALPHA\private$\c")))


@pytest.mark.spec("DMPR-3.1.1.12-22", "DMPR-6-7")
def test_algorithms_have_their_numbers_and_defaults(h: Harness) -> None:
    """HashAlgorithm defaults to SHA1 (SHA is the same), EncryptionAlgorithm to RC4.

    Both are carried unchanged.
    """
    h.create()
    h.send()
    (message,) = h.messages()
    assert message.hash_algorithm == HashAlgorithm.SHA1
    assert message.encryption_algorithm == EncryptionAlgorithm.RC4
    hashes = {"MD2": 0x8001, "MD4": 0x8002, "MD5": 0x8003, "SHA": 0x8004, "SHA_256": 0x800C, "SHA_512": 0x800E}
    for name, number in hashes.items():
        assert HashAlgorithm[name] == number
        h.send(hash_algorithm=HashAlgorithm[name])
    assert [message.hash_algorithm for message in h.messages()] == list(hashes.values())
    ciphers = {"RC2": 0x6602, "RC4": 0x6801, "AES128": 0x660E, "AES192": 0x660F, "AES256": 0x6610}
    for name, number in ciphers.items():
        assert EncryptionAlgorithm[name] == number
        h.send(encryption_algorithm=EncryptionAlgorithm[name])
    assert [message.encryption_algorithm for message in h.messages()] == list(ciphers.values())


# Open queue descriptors
# -------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.16-1")
def test_a_handle_names_one_open_descriptor_and_none_when_it_is_closed(h: Harness) -> None:
    """Handle and ContextValue are unique across all descriptors of the local queue manager."""
    h.create("a")
    h.create("b")
    many = r"DIRECT=OS:ALPHA\private$\a,DIRECT=OS:ALPHA\private$\b"
    opened = [h.open(name, access) for name in ("a", "b") for access in QueueAccessType if "ADMIN" not in access.name]
    opened.append(h.open(many, QueueAccessType.SEND))
    opened += opened[-1].children
    assert len(opened) == 11
    assert len({descriptor.handle for descriptor in opened}) == 11
    assert len({descriptor.context_value for descriptor in opened}) == 11
    for descriptor in opened:
        assert h.engine.descriptor(descriptor.handle) is descriptor
    closed = opened[0]
    h.engine.close_queue(closed)
    with pytest.raises(InvalidHandle):
        h.engine.descriptor(closed.handle)
    again = h.open("a")
    assert again.handle not in {descriptor.handle for descriptor in opened}
    h.engine.close_queue(opened[8])
    for child in opened[9:]:
        with pytest.raises(InvalidHandle):
            h.engine.descriptor(child.handle)


@pytest.mark.spec("DMPR-3.1.1.16-2")
def test_waiting_reads_are_served_in_the_order_they_came(h: Harness) -> None:
    """WaitingMessageReadOperationCollection is first-in first-out."""
    h.create()
    descriptor = h.open()
    readers = [Reader() for _ in range(5)]
    for reader in readers:
        h.engine.dequeue_message(descriptor, on_end=reader)
    for index in range(5):
        h.send(body=b"%d" % index)
        assert [reader.body for reader in readers] == [
            b"%d" % number if number <= index else None for number in range(5)
        ]


# What an access type permits: every other operation is refused.
PERMITTED = {
    QueueAccessType.RECEIVE: {"peek", "receive", "purge"},
    QueueAccessType.PEEK: {"peek"},
    QueueAccessType.SEND: {"send"},
    QueueAccessType.MOVE: {"move"},
    QueueAccessType.RECEIVE_ADMIN: {"peek", "receive", "purge"},
    QueueAccessType.PEEK_ADMIN: {"peek"},
}


@pytest.mark.spec("DMPR-3.1.1.17-2")
@pytest.mark.parametrize(("access", "permitted"), PERMITTED.items())
def test_an_access_type_permits_its_operations_and_no_others(
    h: Harness, access: QueueAccessType, permitted: set[str]
) -> None:
    """QueueAccessType; the Admin variants give the same for outgoing queues, and for no others."""
    is_admin = access in (QueueAccessType.RECEIVE_ADMIN, QueueAccessType.PEEK_ADMIN)
    h.create()
    h.create(r".\private$\q;part")
    name = ELSEWHERE if is_admin else "q"
    operations: dict[str, Callable[[OpenQueueDescriptor], Any]] = {
        "peek": lambda descriptor: h.engine.peek_message(descriptor, timeout=0),
        "receive": lambda descriptor: h.engine.dequeue_message(descriptor, timeout=0),
        "purge": h.engine.purge_open_queue,
        "send": lambda descriptor: h.engine.enqueue_message_to_an_open_queue(descriptor, h.properties(b"sent")),
        "move": lambda descriptor: h.engine.move_message_by_lookup_identifier(
            descriptor, max(h.lookup_ids(name).values()), h.open("q;part", QueueAccessType.MOVE)
        ),
    }
    for operation, call in operations.items():
        for body in (b"one", b"two"):
            h.send(name, body)
        descriptor = h.open(name, access)
        before = h.queue(name).message_count
        if operation in permitted:
            call(descriptor)
        else:
            with pytest.raises(AccessDenied):
                call(descriptor)
            assert h.queue(name).message_count == before
        h.engine.close_queue(descriptor)
        h.engine.purge_queue(h.queue(name))
    if is_admin:
        with pytest.raises(StatusError):
            h.open("q", access)
