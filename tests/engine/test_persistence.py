"""What survives a stop and a crash, and what does not.

MS-MQDMPR 3.1.1, 3.1.1.1, 3.1.1.3 and 3.1.1.11-3.1.1.14.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from lanner.engine import Engine
from lanner.engine.dtc import Outcome
from lanner.model.directory_objects import DirectoryObject, OutgoingQueue, Queue, QueueManager, attributes_of
from lanner.model.enums import (
    Acknowledgements,
    DeliveryGuarantee,
    DirectoryOperationResult,
    MessageClass,
    OperatingSystemType,
    OperationType,
    PositionState,
    QueueAccessType,
    QueuePrivacyLevel,
    QueueType,
)
from lanner.model.live import MessagePosition, Transaction
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from tests.engine.harness import Harness, Reader, at_once, body_of

ELSEWHERE = r"DIRECT=OS:BETA\private$\q"
BOTH = pytest.mark.parametrize("how", ["restart", "crash"])

# Everything an application may set on a queue, each different from its default.
QUEUE_ATTRIBUTES: dict[str, Any] = {
    "label": "Orders",
    "type": uuid.UUID(int=0x1234),
    "journaling": True,
    "quota": 4000,
    "journal_quota": 3000,
    "authentication": True,
    "privacy_level": QueuePrivacyLevel.BODY,
    "transactional": True,
    "multicast_address": "224.1.2.3:4567",
    "security": parse_sddl("O:SYG:SYD:(A;;0xF003F;;;SY)").pack(),
    "base_priority": 5,
}


def again(h: Harness, how: str) -> None:
    h.sync()
    getattr(h, how)()


def lasting(element: DirectoryObject) -> dict[str, object]:
    return {name: getattr(element, name) for name in attributes_of(type(element), "persistent", "directory")}


class Undecided:
    """A coordinator that looks at what recovery brought back, and lets it commit or abort."""

    def __init__(self, h: Harness, outcome: Outcome) -> None:
        self.h = h
        self.outcome = outcome
        self.seen: list[tuple[uuid.UUID, bool, list[tuple[OperationType, bytes, Any, Any]], set[PositionState]]] = []

    def reenlist(self, transaction: Transaction) -> Outcome:
        operations = [
            (
                operation.operation_type,
                Message(operation.message_position.record.packet).body,
                operation.target_queue and operation.target_queue.pathname,
                operation.dequeue_reason,
            )
            for operation in transaction.transactional_operations
        ]
        states = {operation.message_position.state for operation in transaction.transactional_operations}
        self.seen.append((transaction.identifier, transaction.single_phase, operations, states))
        return self.outcome

    def prepare_request_done(self, identifier: uuid.UUID) -> None: ...
    def commit_request_done(self, identifier: uuid.UUID) -> None: ...
    def abort_request_done(self, identifier: uuid.UUID) -> None: ...


# Attributes
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1-1", "DMPR-3.1.1.1-5", "DMPR-3.1.1-3")
@BOTH
def test_every_lasting_attribute_of_the_queue_manager_survives(h: Harness, how: str) -> None:
    """3.1.1: a persistent or directory attribute MUST survive shut down and restart.

    Identifier never changes.
    """
    qm = h.engine.queue_manager
    assert qm.last_domain == "", "empty at provisioning"
    values: dict[str, Any] = {
        "queue_manager_version": "1.2",
        "operating_system_version": "6.1",
        "operating_system_type": OperatingSystemType.OTHER,
        "create_time": 11,
        "modify_time": 22,
        "queue_manager_quota": 33,
        "journal_quota": 44,
        "foreign_system": True,
        "full_path": "CN=x",
        "site_identifier_list": [uuid.uuid4()],
        "connected_network_identifier_list": [uuid.uuid4()],
        "out_routing_server_identifier_list": [uuid.uuid4(), uuid.uuid4()],
        "in_routing_server_identifier_list": [uuid.uuid4()],
        "directory_server": True,
        "remote_access_server": True,
        "routing_server": True,
        "supporting_server": True,
        "public_encryption_key_list": b"\1\2",
        "public_signing_key_list": b"\3\4",
        "security": QUEUE_ATTRIBUTES["security"],
        "clustered": True,
        "last_domain": "example.com",
        "directory_server_list": ["DC1", "DC2"],
        "srmp_http_support": True,
        "srmp_pgm_support": True,
        "initialization_retry_timer_duration": 55,
        "former_identifiers": [uuid.uuid4()],
    }
    # The names and the hardened mode come from the host and its settings at each start; the rest is
    # here.
    elsewhere = {
        "identifier",
        "computer_name",
        "qualified_computer_name",
        "directory_integrated",
        "hardened_security",
        "directory_server_type",
    }
    assert set(values) | elsewhere == set(attributes_of(QueueManager, "persistent", "directory"))
    for name, value in values.items():
        assert getattr(qm, name) != value
        setattr(qm, name, value)
    h.engine.save_queue_manager()
    before = lasting(qm)
    again(h, how)
    assert h.engine.queue_manager is not qm
    assert lasting(h.engine.queue_manager) == before


@pytest.mark.spec("DMPR-3.1.1.1-5")
def test_local_settings_of_the_queue_manager_are_never_published(tmp_path: Path) -> None:
    """These attributes are not in the directory.

    LastDomain, DirectoryServerList, DirectoryIntegrated, Srmp*Support and HardenedSecurity.
    """
    local = (
        "last_domain",
        "directory_server_list",
        "directory_integrated",
        "srmp_http_support",
        "srmp_pgm_support",
        "hardened_security",
    )
    assert set(local) <= set(attributes_of(QueueManager, "persistent"))
    assert not set(local) & set(attributes_of(QueueManager, "directory"))
    h = Harness(tmp_path / "data", directory_integrated=True, hardened_security=True)
    qm = h.engine.queue_manager
    qm.last_domain, qm.directory_server_list = "example.com", ["DC1"]
    qm.srmp_http_support = qm.srmp_pgm_support = True
    assert h.engine.write_directory(qm) is DirectoryOperationResult.SUCCESS
    _, found = h.directory.read("QueueManager", None)
    assert isinstance(found, QueueManager)
    assert found.computer_name == "ALPHA"
    default = QueueManager()
    for name in local:
        assert getattr(qm, name) != getattr(default, name)
        assert getattr(found, name) == getattr(default, name)
    # And they stay what they are here when the directory's object is adopted.
    h.engine.save_queue_manager()
    h.restart()
    assert h.engine.queue_manager.directory_server_list == ["DC1"]
    assert h.engine.queue_manager.directory_integrated
    h.close()


@pytest.mark.spec("DMPR-3.1.1-1", "DMPR-3.1.1-3", "DMPR-3.1.1.2-1")
@BOTH
def test_every_lasting_attribute_of_a_queue_survives(h: Harness, how: str) -> None:
    """Every attribute of a public, private, system and outgoing queue survives.

    This includes its Identifier and its QueueType.
    """
    for name in (r".\public", "private"):
        queue = h.create(name, **QUEUE_ATTRIBUTES)
        for attribute, value in QUEUE_ATTRIBUTES.items():
            assert value != getattr(Queue(), attribute)
            if attribute != "security":
                assert getattr(queue, attribute) == value
    transaction = h.begin()
    h.send(ELSEWHERE, transaction=transaction)
    h.commit(transaction)
    queues = h.engine.queue_manager.queue_collection
    before = {number: (type(queue), lasting(queue)) for number, queue in queues.items()}
    assert {queue.queue_type for queue in queues.values()} == {QueueType.PUBLIC, QueueType.PRIVATE, QueueType.SYSTEM}
    again(h, how)
    after = h.engine.queue_manager.queue_collection
    assert {number: (type(queue), lasting(queue)) for number, queue in after.items()} == before


@pytest.mark.spec("DMPR-3.1.1.2-1")
def test_the_attributes_of_a_public_queue_are_in_the_directory_and_only_they(h: Harness) -> None:
    """For a public queue they are directory attributes.

    For any other queue they are local persistent ones.
    """
    public = h.create(r".\public", **QUEUE_ATTRIBUTES)
    h.create("private", **QUEUE_ATTRIBUTES)
    result, handle = h.engine.read_directory_begin("Queue", None)
    assert result is DirectoryOperationResult.SUCCESS
    assert handle is not None
    _, found = h.engine.read_directory_next(handle)
    assert h.engine.read_directory_next(handle) == (DirectoryOperationResult.END_OF_DATA, None)
    assert isinstance(found, Queue)
    assert found.identifier == public.identifier
    assert found.pathname.upper() == public.pathname.upper() == r"ALPHA\PUBLIC"
    for attribute, value in QUEUE_ATTRIBUTES.items():
        if attribute != "security":
            assert getattr(found, attribute) == value
    # A change reaches the directory too.
    h.engine.set_queue_properties(public, {"label": "Invoices", "quota": 7})
    _, found = h.directory.read("Queue", None)
    assert isinstance(found, Queue)
    assert (found.label, found.quota) == ("Invoices", 7)
    assert "queue_type" in attributes_of(Queue, "persistent")


@pytest.mark.spec("QQB-3.1.3.2-9")
def test_a_queue_manager_has_one_identifier_from_its_first_start_on(h: Harness, tmp_path: Path) -> None:
    """Made once, for this queue manager alone."""
    identifier = h.engine.queue_manager.identifier
    assert identifier.int
    with contextlib.closing(Harness(tmp_path / "other")) as other:
        assert other.engine.queue_manager.identifier not in (uuid.UUID(int=0), identifier)
    h.crash()
    assert h.engine.queue_manager.identifier == identifier
    h.restart()
    assert h.engine.queue_manager.identifier == identifier


@pytest.mark.spec("DMPR-3.1.1-3")
def test_identifiers_stay_when_the_computer_is_renamed(h: Harness) -> None:
    """Identifier MUST NOT change over the lifetime of the object."""
    queue = h.create()
    qm, identifier = h.engine.queue_manager.identifier, queue.identifier
    h.engine.set_queue_properties(queue, {"label": "renamed"})
    h.settings["computer_name"] = "OMEGA"
    h.restart()
    assert h.engine.queue_manager.computer_name == "OMEGA"
    assert h.engine.queue_manager.identifier == qm
    assert h.queue().pathname == r"OMEGA\private$\q"
    assert h.queue().identifier == identifier


@pytest.mark.spec("DMPR-3.1.1-2")
@BOTH
def test_nothing_else_is_carried_over(h: Harness, how: str) -> None:
    """Attributes with neither mark are volatile.

    Examples are Throttled, ConnectionActive, cursors, descriptors and waiting reads.
    """
    h.create()
    reader = Reader()
    descriptor = h.open()
    cursor = h.engine.open_cursor(descriptor)
    h.engine.dequeue_message(descriptor, on_end=reader)
    handle = descriptor.handle
    h.engine.begin_flow_control()
    h.engine.take_offline()
    again(h, how)
    qm = h.engine.queue_manager
    assert cursor is not None
    assert qm.throttled is False
    assert qm.connection_active is True
    assert qm.directory_offline is False
    assert h.engine.opening.descriptors == {}
    queue = h.queue()
    assert not queue.open_queue_descriptors
    assert queue.waiting_reads == {}
    assert not queue.active
    assert h.engine.next_delay() is None
    # The old handle names nothing, the old reader gets nothing.
    h.send(body=b"new")
    assert handle not in h.engine.opening.descriptors
    assert reader.body is None
    assert h.receive() == b"new"


# Counters
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.1-11", "DMPR-3.1.1.12-1")
def test_no_number_is_issued_twice_whatever_happens(h: Harness) -> None:
    """SequentialID and the ordinals of message identifiers go up over stops and crashes."""
    h.create()
    sequential: list[int] = []
    identifiers: list[bytes] = []
    for how in ("", "restart", "crash", "crash", "restart"):
        if how:
            # A crash without a sync: the counters must have been ahead of it.
            getattr(h, how)()
        for recoverable in (False, True):
            before = h.engine.numbers.sequential_id.last
            h.send(recoverable=recoverable)
            assert h.engine.numbers.sequential_id.last == before + 1, "raised by each enqueue"
            (lookup_id,) = h.lookup_ids().values()
            (message,) = h.messages()
            sequential.append(lookup_id & (1 << 56) - 1)
            identifiers.append(message.identifier_bytes)
    assert sequential == sorted(set(sequential))
    assert len(set(identifiers)) == len(identifiers)
    assert {len(identifier) for identifier in identifiers} == {20}
    assert {identifier[:16] for identifier in identifiers} == {h.engine.queue_manager.identifier.bytes_le}


@pytest.mark.spec("DMPR-3.1.1.1-11")
def test_the_sequential_identifier_is_wider_than_32_bits(h: Harness) -> None:
    """SequentialID: a 64-bit unsigned integer."""
    h.create()
    h.engine.numbers.sequential_id.next(1 << 40)
    h.send(body=b"one")
    h.sync()
    h.crash()
    h.send(body=b"two")
    first, second = h.lookup_ids().values()
    assert 1 << 40 < first & (1 << 56) - 1 < second & (1 << 56) - 1


# Messages
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.12-9", "DMPR-3.1.1.11-2")
def test_a_recoverable_message_survives_a_crash_unchanged(h: Harness) -> None:
    """DeliveryGuarantee is Express by default.

    A Recoverable message is there again with every attribute.
    """
    assert MessageProperties().delivery_guarantee is DeliveryGuarantee.EXPRESS
    h.create()
    everything: dict[str, Any] = {
        "label": "label",
        "priority": 6,
        "body_type": 8,
        "application_tag": 77,
        "message_class": 0x1234,
        "correlation_identifier": bytes(range(20)),
        "extension": b"extension",
        "acknowledgements_requested": Acknowledgements.FULL_RECEIVE,
        "administration_queue_format_name": parse(r"DIRECT=OS:BETA\private$\admin"),
        "response_queue_format_name": parse(r"DIRECT=OS:BETA\private$\response"),
        "positive_journaling_requested": True,
        "negative_journaling_requested": True,
        "time_to_reach_queue": 1000,
        "time_to_be_received": 2000,
        "tracing_requested": True,
        "tracing_queue_identifier": uuid.uuid4(),
        "connector_type_identifier": uuid.uuid4(),
    }
    h.send(body=b"recoverable", **everything)
    h.send(body=b"express", recoverable=False)
    h.now += 5
    h.send(body=b"later", priority=7)
    ids = h.lookup_ids()
    records = {body: h.store.get(h.queue().number, lookup_id) for body, lookup_id in ids.items()}
    h.sync()
    h.crash()
    assert h.bodies() == [b"later", b"recoverable"], "an express message may be lost, and is"
    assert {body: i for body, i in ids.items() if body != b"express"} == h.lookup_ids()
    for body in (b"later", b"recoverable"):
        now, before = h.store.get(h.queue().number, ids[body]), records[body]
        assert now is not None
        assert before is not None
        assert now.packet == before.packet
        assert (now.state, now.arrived) == (PositionState.AVAILABLE, before.arrived)
    _, message = h.messages()
    for name, value in everything.items():
        assert getattr(message, name) == value


@pytest.mark.spec("DMPR-3.1.1.3-1")
@BOTH
def test_an_outgoing_queue_keeps_its_destination(h: Harness, how: str) -> None:
    """DestinationFormatName and Multicast are persistent."""
    multicast = "MULTICAST=224.1.2.3:4567"
    h.send(ELSEWHERE, b"one")
    h.open(multicast, QueueAccessType.SEND)
    again(h, how)
    for name, is_multicast, bodies in ((ELSEWHERE, False, [b"one"]), (multicast, True, [])):
        queue = h.queue(name)
        assert isinstance(queue, OutgoingQueue)
        assert queue.destination_format_name == name
        assert queue.multicast is is_multicast
        assert list(h.lookup_ids(name)) == bodies


@pytest.mark.spec("DMPR-3.1.1.11-3")
@BOTH
def test_a_message_of_an_abandoned_remote_read_is_available_again(h: Harness, how: str) -> None:
    """A recovered Locked position does not stay locked forever.

    It is released if no TransactionalOperation references it.
    """
    h.create()
    h.send(body=b"one")
    assert h.engine.dequeue_message_begin(h.open(), timeout=0) is not None
    assert h.receive() is None
    again(h, how)
    assert h.receive() == b"one"


@pytest.mark.spec("DMPR-3.1.1.11-5")
def test_a_message_purged_during_an_abandoned_read_never_comes_back(h: Harness) -> None:
    """A recovered PurgePending position is deleted at start-up with reason NackQueuePurged."""
    h.create()
    h.send(body=b"read and purged")
    h.send(body=b"purged")
    position = at_once(h.engine.dequeue_message_begin(h.open(), timeout=0))
    h.engine.purge_queue(h.queue())
    assert position.state is PositionState.PURGE_PENDING
    h.sync()
    seen: list[tuple[int, MessageClass]] = []
    h.before_start = lambda engine: engine.position_deleted_subscribers.append(
        lambda _, removed, reason: seen.append((removed.lookup_id, reason))
    )
    h.crash()
    assert seen == [(position.lookup_id, MessageClass.NACK_QUEUE_PURGED)]
    assert h.bodies() == []
    assert h.queue().total_bytes == 0
    h.crash()
    assert len(seen) == 1


# Transactions
# -----------------------------------------------------------------------------------------------


def prepared(h: Harness) -> Transaction:
    """Return a prepared, durable DTC transaction with one send, one receive and one move."""
    h.create("ledger", transactional=True)
    h.create(r".\private$\ledger;archive")
    first = h.begin()
    for body in (b"received", b"moved"):
        h.send("ledger", body, transaction=first)
    h.commit(first)
    transaction = h.begin()
    h.send("ledger", b"sent", transaction=transaction)
    assert h.receive("ledger", transaction) == b"received"
    position = h.engine.positions.seek_available_message_position(h.queue("ledger"), -1, peek=False)
    assert position is not None
    h.engine.move_message(position, h.queue("ledger;archive"), transaction)
    h.engine.dtc_transaction_prepare(transaction.identifier, single_phase=False)
    h.sync()
    return transaction


@pytest.mark.spec("DMPR-3.1.1.1-10", "DMPR-3.1.1.13-1", "DMPR-3.1.1.14-1", "DMPR-3.1.1.11-2")
@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.ABORTED])
def test_a_prepared_transaction_is_there_again_before_recovery_decides(h: Harness, outcome: Outcome) -> None:
    """TransactionCollection persists.

    So do its operations in their order, and the Locked state of their positions.
    """
    transaction = prepared(h)
    coordinator = Undecided(h, outcome)
    h.coordinator = coordinator
    told: list[tuple[str, bytes]] = []

    def listen(engine: Engine) -> None:
        engine.position_available_subscribers.append(
            lambda queue, first, records: told.extend(
                ("available", body_of(MessagePosition(queue, first, record))) for record in records
            )
        )
        engine.position_deleted_subscribers.append(lambda _, position, __: told.append(("deleted", body_of(position))))

    h.before_start = listen
    h.crash()
    ((identifier, single_phase, operations, states),) = coordinator.seen
    assert identifier == transaction.identifier
    assert single_phase is False
    assert states == {PositionState.LOCKED}
    assert operations == [
        (OperationType.ENQUEUE, b"sent", None, None),
        (OperationType.DEQUEUE, b"received", None, MessageClass.ACK_RECEIVE),
        (OperationType.MOVE, b"moved", r"ALPHA\private$\ledger;archive", None),
    ]
    assert h.engine.queue_manager.transaction_collection == {}
    # Applied first in, first out.
    if outcome is Outcome.COMMITTED:
        assert told == [("available", b"sent"), ("deleted", b"received"), ("available", b"moved")]
        assert h.bodies("ledger") == [b"sent"]
        assert h.bodies("ledger;archive") == [b"moved"]
    else:
        assert told == [("available", b"received"), ("available", b"moved")]
        assert h.bodies("ledger") == [b"received", b"moved"]
        assert h.bodies("ledger;archive") == []


@pytest.mark.spec("DMPR-3.1.1.11-2", "DMPR-3.1.1.1-10")
def test_messages_of_an_undecided_transaction_stay_locked_over_restarts(h: Harness) -> None:
    """Without an answer nothing is given back and nothing is delivered; the transaction waits."""
    transaction = prepared(h)
    for how in ("crash", "restart", "crash"):
        getattr(h, how)()
        assert h.bodies("ledger") == h.bodies("ledger;archive") == []
        assert list(h.engine.queue_manager.transaction_collection) == [transaction.identifier]
    h.engine.dtc_reenlistment_commit(transaction.identifier)
    assert h.bodies("ledger") == [b"sent"]


@pytest.mark.spec("DMPR-3.1.1.14-2")
def test_only_a_coordinator_makes_a_transaction_survive_a_crash(h: Harness) -> None:
    """SinglePhase True: non-DTC, False: DTC.

    A new, unprepared one counts as True, so a crash aborts it.
    """
    h.create("ledger", transactional=True)
    unprepared, internal, external = h.begin(), h.begin(), h.begin()
    for transaction in (unprepared, internal, external):
        assert transaction.single_phase is True
        h.send("ledger", b"sent", transaction=transaction)
    h.engine.transaction_prepare(internal.identifier)
    assert internal.single_phase is True
    h.engine.dtc_transaction_prepare(external.identifier, single_phase=False)
    assert dataclasses.asdict(Transaction(external.identifier))["single_phase"] is True
    assert h.engine.queue_manager.transaction_collection[external.identifier].single_phase is False
    h.sync()
    h.crash()
    assert list(h.engine.queue_manager.transaction_collection) == [external.identifier]
    h.engine.dtc_reenlistment_abort(external.identifier)
    assert h.bodies("ledger") == []


# A real kill
# ------------------------------------------------------------------------------------------------

CHILD = r"""
import sys
from pathlib import Path
from tests.engine.harness import Harness

h = Harness(Path(sys.argv[1]))
h.create(label="Orders", quota=4711)
h.create("ledger", transactional=True)
h.send(body=b"recoverable", priority=5)
h.send(body=b"express", recoverable=False)
committed = h.begin()
h.send("ledger", b"committed", transaction=committed)
h.commit(committed)
h.engine.queue_manager.last_domain = "example.com"
h.engine.save_queue_manager()
h.sync()
open_ = h.begin()
assert h.receive("ledger", open_) == b"committed"
h.send("ledger", b"open", transaction=open_)
print(h.engine.queue_manager.identifier, h.queue().identifier, flush=True)
sys.stdin.read()
"""


@pytest.mark.spec("DMPR-3.1.1-1", "DMPR-3.1.1.12-9", "DMPR-3.1.3-14")
def test_what_was_synced_is_there_after_kill_9(tmp_path: Path) -> None:
    """A killed process leaves its queues, their attributes and every recoverable message."""
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        identifiers = child.stdout.readline().decode().split()
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    h = Harness(tmp_path / "data")
    qm = h.engine.queue_manager
    assert [str(qm.identifier), str(h.queue().identifier)] == identifiers
    assert qm.last_domain == "example.com"
    assert (h.queue().label, h.queue().quota) == ("Orders", 4711)
    (message,) = h.messages()
    assert (message.body, message.priority) == (b"recoverable", 5)
    assert h.bodies("ledger") == [b"committed"]
    h.close()
