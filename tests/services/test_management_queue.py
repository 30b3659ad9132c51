"""R_QMMgmtGetInfo about queues (MS-MQMR 3.1.4.1).

Covered: which queue is meant, and its values without transfer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from lanner.model.directory_objects import Site
from lanner.model.enums import OutgoingState, QueueAccessType, QueueShareMode
from lanner.services.interfaces.mqmq import DlId, MulticastId, QueueFormat, QueueFormatArm
from lanner.services.interfaces.mqmr import MgmtObject
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier
from lanner.wire.property_ids import ManagementMachineProperty as Machine
from lanner.wire.property_ids import ManagementQueueProperty as Property
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.engine.harness import Harness, at_once
from tests.services.managed import MACHINE, SESSION, Managed, managed
from tests.statuses import (
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_PROPID,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SERVICE_NOT_AVAILABLE,
)

Q = r"DIRECT=OS:.\private$\q"
REMOTE = r"DIRECT=OS:BETA\private$\far"
MULTICAST = "MULTICAST=239.1.2.3:8001"
GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Managed]:
    with managed(tmp_path / "data") as manager:
        yield manager


@pytest.fixture
def h(manager: Managed) -> Harness:
    return manager.h


def path_of(manager: Managed, queue_format: QueueFormat) -> object:
    return manager.value(MgmtObject(2, queue_format), Property.PATHNAME)


# Which queue
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-2.2.1.4-1")
def test_a_private_queue_by_its_manager_and_number(manager: Managed, h: Harness) -> None:
    number = h.create("q").private_queue_number
    qm = h.engine.queue_manager.identifier
    assert path_of(manager, QueueFormat(2, 0, 0, MessageIdentifier(qm, number))) == r"ALPHA\private$\q"
    # As octets: referent, QUEUE_FORMAT with its tag and gap, then twenty octets at a multiple of
    # four.
    stub = struct.pack("<HHI", 2, 2, 0x20000) + struct.pack("<BBHB3x16sI", 2, 0, 0, 2, qm.bytes_le, number)
    stub += struct.pack("<III", 1, 1, Property.MESSAGE_COUNT) + struct.pack("<I", 1)
    stub += bytes(-len(stub) % 8) + struct.pack("<HBBIH", 1, 0, 0, 0, 1)
    answer = manager.call(0, stub)
    assert answer[8:24] == struct.pack("<HBBIHxxI", 19, 0, 0, 0, 19, 0)
    assert answer[-4:] == bytes(4)
    other = QueueFormat(2, 0, 0, MessageIdentifier(uuid4(), number))
    assert manager.status(MgmtObject(2, other)) == MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQMR-2.2.1.5-2")
def test_each_form_of_name_finds_its_queue(manager: Managed, h: Harness) -> None:
    public = h.create(r".\public")
    h.create("q")
    h.engine.close_queue(h.open(r"DIRECT=OS:.\private$\q;sub"))
    qm = h.engine.queue_manager.identifier
    assert path_of(manager, QueueFormat(1, 0, 0, public.identifier)) == r"ALPHA\public"
    assert path_of(manager, QueueFormat(3, 0, 0, r"OS:alpha\private$\q")) == r"ALPHA\private$\q"
    assert path_of(manager, QueueFormat(4, 0x82, 0, qm)) == r"ALPHA\system$;DEADLETTER"
    assert path_of(manager, QueueFormat(8, 5, 0, r"OS:.\private$\q;sub")) == r"ALPHA\private$\q;sub"
    foreign = Site(name="abroad", foreign_site=True)
    assert h.directory.create_object(foreign)[1] is not None
    h.engine.close_queue(h.open(f"CONNECTOR={foreign.identifier}"))
    connector = QueueFormat(5, 0, 0, foreign.identifier)
    assert manager.value(MgmtObject(2, connector), Property.TYPE) == "CONNECTOR"
    assert manager.value(MgmtObject(2, connector), Property.FORMATNAME) == f"CONNECTOR={foreign.identifier}"
    assert manager.variant(MgmtObject(2, connector), Property.PATHNAME) == NULL


@pytest.mark.spec("MQMR-2.2.1.3-1")
def test_a_multicast_name_finds_its_outgoing_queue(manager: Managed, h: Harness) -> None:
    h.engine.close_queue(h.open(MULTICAST, QueueAccessType.SEND))
    # The address as its octets stand in memory.
    queue_format = QueueFormat(7, 0, 0, MulticastId(int.from_bytes(bytes((239, 1, 2, 3)), "little"), 8001))
    subject = MgmtObject(2, queue_format)
    assert manager.value(subject, Property.TYPE) == "MULTICAST"
    assert manager.value(subject, Property.FORMATNAME) == MULTICAST
    other = MgmtObject(2, QueueFormat(7, 0, 0, MulticastId(int.from_bytes(bytes((239, 1, 2, 3)), "little"), 8002)))
    assert manager.status(other) == MQ_ERROR_QUEUE_NOT_FOUND


@pytest.mark.spec("MQMR-2.2.1.5-3")
@pytest.mark.parametrize("reserved", [0, 1, 0xFFFF])
def test_m_reserved_is_not_used(manager: Managed, h: Harness, reserved: int) -> None:
    h.create("q")
    assert path_of(manager, QueueFormat(3, 0, reserved, r"OS:.\private$\q")) == r"ALPHA\private$\q"


@pytest.mark.spec("MQMR-2.2.1.5-4")
def test_the_journal_of_a_queue(manager: Managed, h: Harness) -> None:
    queue = h.create("q", journaling=True)
    public = h.create(r".\public")
    h.send("q", b"1")
    h.receive("q")
    private = MessageIdentifier(h.engine.queue_manager.identifier, queue.private_queue_number)
    for queue_format in (
        QueueFormat(2, 0x81, 0, private),
        QueueFormat(3, 0x81, 0, r"OS:.\private$\q"),
        QueueFormat(3, 0x81, 0, r"OS:.\private$\q;JOURNAL"),
    ):
        assert path_of(manager, queue_format) == r"ALPHA\private$\q;journal"
        assert manager.value(MgmtObject(2, queue_format), Property.MESSAGE_COUNT) == 1
    assert path_of(manager, QueueFormat(1, 0x81, 0, public.identifier)) == r"ALPHA\public;journal"


@pytest.mark.spec("MQMR-2.2.1.5-5")
def test_the_queues_of_the_machine(manager: Managed, h: Harness) -> None:
    qm = h.engine.queue_manager.identifier
    for suffix, name in ((0x81, "JOURNAL"), (0x82, "DEADLETTER"), (0x83, "DEADXACT")):
        assert path_of(manager, QueueFormat(4, suffix, 0, qm)) == rf"ALPHA\system$;{name}"
        assert path_of(manager, QueueFormat(3, suffix, 0, rf"OS:.\system$;{name}")) == rf"ALPHA\system$;{name}"
    assert manager.value(MgmtObject(2, QueueFormat(4, 0x83, 0, qm)), Property.XACT) == "YES"


FORBIDDEN = [
    (2, 0x82),
    (2, 0x83),
    (2, 0x01),  # without its flag
    (2, 0x80),  # a flag without a suffix
    (1, 0x82),
    (1, 0x04),
    (3, 0x05),
    (3, 0x06),
    (3, 0x0F),
    (3, 0x91),
    (4, 0x00),
    (4, 0x02),
    (4, 0x84),
    (5, 0x81),
    (6, 0x81),
    (7, 0x82),
    (8, 0x82),
    (8, 0x85),
]


@pytest.mark.spec("MQMR-2.2.1.5-6")
@pytest.mark.parametrize(("kind", "suffix"), FORBIDDEN)
def test_a_suffix_that_the_form_of_name_forbids(manager: Managed, h: Harness, kind: int, suffix: int) -> None:
    queue = h.create("q")
    qm = h.engine.queue_manager.identifier
    arms: dict[int, QueueFormatArm] = {
        1: h.create(r".\public").identifier,
        2: MessageIdentifier(qm, queue.private_queue_number),
        3: r"OS:.\private$\q",
        4: qm,
        5: GUID,
        6: DlId(GUID, None),
        7: MulticastId(int.from_bytes(bytes((239, 1, 2, 3)), "little"), 8001),
        8: r"OS:.\private$\q;sub",
    }
    subject = MgmtObject(2, QueueFormat(kind, suffix, 0, arms[kind]))
    assert manager.status(subject) == MQ_ERROR_ILLEGAL_FORMATNAME
    assert manager.action(subject, "PAUSE") == MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.parametrize(
    ("suffix", "text"), [(0x82, r"OS:.\private$\q"), (0x81, r"OS:.\private$\q;sub"), (0x81, r"OS:.\system$;DEADLETTER")]
)
def test_a_suffix_that_the_direct_name_has_no_place_for(manager: Managed, h: Harness, suffix: int, text: str) -> None:
    h.create("q")
    assert manager.status(MgmtObject(2, QueueFormat(3, suffix, 0, text))) == MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.spec("MQMR-2.2.1.5-7")
def test_an_unknown_form_of_name_ends_with_its_tag(manager: Managed) -> None:
    subject = struct.pack("<HHI", 2, 2, 0x20000) + struct.pack("<BBHB", 0, 0, 0, 0)
    stub = subject + bytes(-len(subject) % 4) + struct.pack("<III", 1, 1, 1) + struct.pack("<I", 1)
    stub += bytes(-len(stub) % 8) + struct.pack("<HBBIH", 1, 0, 0, 0, 1)
    assert manager.call(0, stub)[-4:] == struct.pack("<I", MQ_ERROR_ILLEGAL_FORMATNAME)
    action = subject + bytes(-len(subject) % 4) + struct.pack("<III", 6, 0, 6) + "PAUSE\0".encode("utf-16-le")
    assert manager.call(1, action) == struct.pack("<I", MQ_ERROR_ILLEGAL_FORMATNAME)


@pytest.mark.parametrize(
    "queue_format",
    [
        QueueFormat(3, 0, 0, None),
        QueueFormat(8, 5, 0, None),
        QueueFormat(3, 0, 0, ""),
        QueueFormat(3, 0, 0, "private$"),
        QueueFormat(6, 0, 0, DlId(GUID, "a domain")),
        QueueFormat(7, 0, 0, MulticastId(0x01020304, 1)),
        QueueFormat(7, 0, 0, MulticastId(0x030201EF, 65536)),
    ],
)
def test_what_is_no_name_at_all(manager: Managed, queue_format: QueueFormat) -> None:
    assert manager.status(MgmtObject(2, queue_format)) == MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.spec("MQMR-2.2.1.2-4")
def test_a_queue_object_that_points_nowhere(manager: Managed) -> None:
    assert manager.status(MgmtObject(2, None)) == MQ_ERROR_INVALID_PARAMETER
    assert manager.action(MgmtObject(2, None), "PAUSE") == MQ_ERROR_INVALID_PARAMETER


@pytest.mark.spec("MQMR-2.2.1.2-5", "MQMR-2.2.1.2-6")
@pytest.mark.parametrize("reserved", [0, 1, 0xFFFFFFFF])
def test_what_is_reserved_makes_no_difference(manager: Managed, reserved: int) -> None:
    assert manager.value(MgmtObject(1, reserved), Machine.CONNECTED) == "CONNECTED"
    assert manager.action(MgmtObject(1, reserved), "TIDY") == 0
    assert manager.status(MgmtObject(3, reserved)) == MQ_ERROR_INVALID_PARAMETER
    assert manager.action(MgmtObject(3, reserved), "TIDY") == MQ_ERROR_INVALID_PARAMETER


@pytest.mark.spec("MQMR-3.1.4.1-21")
def test_what_would_keep_the_queue_from_being_opened_is_reported(manager: Managed, h: Harness) -> None:
    assert manager.status(r"DIRECT=OS:.\private$\none") == MQ_ERROR_QUEUE_NOT_FOUND
    # A distribution list is no one queue.
    assert manager.status(MgmtObject(2, QueueFormat(6, 0, 0, DlId(GUID, None)))) == MQ_ERROR_QUEUE_NOT_FOUND
    h.create("q")
    assert manager.status(Q) == 0
    h.engine.queue_manager_stopped()
    assert manager.status(Q) == MQ_ERROR_SERVICE_NOT_AVAILABLE
    assert manager.status(MACHINE) == MQ_ERROR_SERVICE_NOT_AVAILABLE


@pytest.mark.spec("MQMR-3.1.4.1-21", "MQMR-3.1.4.1-22", "MQMR-3.1.4.1-23")
def test_a_query_leaves_no_trace(manager: Managed, h: Harness) -> None:
    h.create("q")
    queues = set(h.engine.queue_manager.queue_collection)
    for name in (REMOTE, r"DIRECT=OS:.\private$\none", r"DIRECT=OS:.\private$\q;sub", f"PUBLIC={GUID}", MULTICAST):
        assert manager.status(name) == MQ_ERROR_QUEUE_NOT_FOUND
    assert set(h.engine.queue_manager.queue_collection) == queues
    assert manager.status(Q) == 0
    assert not h.queue("q").active
    assert manager.value(MACHINE, Machine.ACTIVEQUEUES) == ()
    descriptor = h.open("q", share=QueueShareMode.DENY_RECEIVE)
    h.engine.close_queue(descriptor)


@pytest.mark.spec("MQMR-3.1.4.1-24")
def test_a_queue_that_another_user_has_open_exclusively_is_reported(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.send("q", b"1")
    descriptor = h.open("q", share=QueueShareMode.DENY_RECEIVE)
    assert manager.value(Q, Property.MESSAGE_COUNT) == 1
    assert list(h.queue("q").open_queue_descriptors.values()) == [descriptor]


@pytest.mark.spec("MQMR-3.1.4.1-25")
def test_an_outgoing_queue_is_found_by_its_destination(manager: Managed, h: Harness) -> None:
    h.send(REMOTE, b"1")
    for name in (REMOTE, REMOTE.replace("BETA", "beta")):
        assert manager.value(name, Property.LOCATION) == "REMOTE"
        assert manager.value(name, Property.MESSAGE_COUNT) == 1
    assert manager.status(r"DIRECT=TCP:127.0.0.9\private$\far") == MQ_ERROR_QUEUE_NOT_FOUND


def test_without_a_directory_private_and_outgoing_queues_are_reported(manager: Managed, h: Harness) -> None:
    """MS-MQMR 2.3: what is in the directory comes from there, and nothing else does."""
    h.create("q")
    unknown = rf"PRIVATE={GUID}\00000011"
    for name in (REMOTE, unknown):
        h.send(name)
    h.directory.connected = False
    for name in (Q, REMOTE, unknown):
        status, variants = manager.get_info(name, list(Property))
        assert status == 0
        assert variants[Property.TYPE - 1].value == "PRIVATE"
    assert manager.value(Q, Property.PATHNAME) == r"ALPHA\private$\q"
    assert manager.value(REMOTE, Property.PATHNAME) == r"BETA\private$\far"
    assert manager.variant(unknown, Property.PATHNAME) == NULL
    assert manager.status(MACHINE) == 0


# Values
# --------------------------------------------------------------------------------------------------


# Property, its type, and a value of the queue of the test below.
LOCAL_VALUES: list[tuple[Property, int, object]] = [
    (Property.PATHNAME, 31, r"ALPHA\private$\q"),
    (Property.FORMATNAME, 31, r"DIRECT=OS:ALPHA\private$\q"),
    (Property.TYPE, 31, "PRIVATE"),
    (Property.LOCATION, 31, "LOCAL"),
    (Property.XACT, 31, "NO"),
    (Property.FOREIGN, 31, "NO"),
    (Property.MESSAGE_COUNT, 19, 2),
    (Property.BYTES_IN_QUEUE, 19, ...),
    (Property.JOURNAL_MESSAGE_COUNT, 19, 1),
    (Property.BYTES_IN_JOURNAL, 19, ...),
    (Property.STATE, 31, "LOCAL CONNECTION"),
    (Property.SUBQUEUE_COUNT, 19, 1),
    (Property.SUBQUEUE_NAMES, 0x101F, ("Sub",)),
]


@pytest.mark.spec(
    "MQMR-2.2.3.2-1",
    "MQMR-2.2.3.2-2",
    "MQMR-2.2.3.2-3",
    "MQMR-2.2.3.2-4",
    "MQMR-2.2.3.2-5",
    "MQMR-2.2.3.2-6",
    "MQMR-2.2.3.2-7",
    "MQMR-2.2.3.2-8",
    "MQMR-2.2.3.2-9",
    "MQMR-2.2.3.2-10",
    "MQMR-2.2.3.2-11",
    "MQMR-2.2.3.2-26",
    "MQMR-2.2.3.2-27",
)
def test_the_properties_of_a_queue_here(manager: Managed, h: Harness) -> None:
    queue = h.create("q", journaling=True)
    h.engine.close_queue(h.open(r"DIRECT=OS:.\private$\q;Sub"))
    for _ in range(3):
        h.send("q", bytes(100))
    h.receive("q")
    assert queue.journal_queue is not None
    sizes = {
        Property.BYTES_IN_QUEUE: queue.total_bytes,
        Property.BYTES_IN_JOURNAL: queue.journal_queue.total_bytes,
    }
    assert sizes[Property.BYTES_IN_QUEUE] > 200
    assert sizes[Property.BYTES_IN_JOURNAL] > 100
    status, variants = manager.get_info(Q, [identifier for identifier, _, _ in LOCAL_VALUES])
    assert status == 0
    found = list(zip([identifier for identifier, _, _ in LOCAL_VALUES], variants, strict=True))
    assert found == [
        (identifier, PropVariant(vt, sizes.get(identifier, value)))  # type: ignore[arg-type] # of the table
        for identifier, vt, value in LOCAL_VALUES
    ]


@pytest.mark.spec("MQMR-3.1.4.1-26")
def test_path_names(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create(r".\public")
    assert manager.value(Q, Property.PATHNAME) == r"ALPHA\private$\q"
    assert manager.value(r"DIRECT=OS:.\public", Property.PATHNAME) == r"ALPHA\public"
    # MS-MQMR 1.1: the path name of an outgoing queue is that of its destination; where that has
    # none, there is none.
    h.send(REMOTE)
    assert manager.value(REMOTE, Property.PATHNAME) == r"BETA\private$\far"
    unknown = rf"PRIVATE={GUID}\00000011"
    h.send(unknown)
    h.engine.close_queue(h.open(MULTICAST, QueueAccessType.SEND))
    assert manager.variant(unknown, Property.PATHNAME) == manager.variant(MULTICAST, Property.PATHNAME) == NULL


@pytest.mark.spec("MQMR-3.1.4.1-27")
def test_a_format_name_opens_the_queue(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create(r".\public")
    h.engine.close_queue(h.open(r"DIRECT=OS:.\private$\q;sub"))
    h.send(REMOTE)
    names = [
        Q,
        r"DIRECT=OS:.\public",
        r"DIRECT=OS:.\private$\q;sub",
        r"DIRECT=OS:.\private$\q;journal",
        f"MACHINE={h.engine.queue_manager.identifier};DEADXACT",
    ]
    for name in names:
        told = manager.value(name, Property.FORMATNAME)
        descriptor = h.open(str(told))
        assert descriptor.queue is h.engine.require_queue(parse(name))
        h.engine.close_queue(descriptor)
    assert manager.value(REMOTE, Property.FORMATNAME) == REMOTE


@pytest.mark.spec("MQMR-3.1.4.1-28", "MQMR-3.1.4.1-29")
def test_types(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create(r".\public")
    for name in (REMOTE, r"DIRECT=OS:BETA\public", rf"PRIVATE={GUID}\00000011"):
        h.send(name)
    h.engine.close_queue(h.open(MULTICAST, QueueAccessType.SEND))
    machine = h.engine.queue_manager.identifier
    expected = {
        Q: "PRIVATE",
        r"DIRECT=OS:.\public": "PUBLIC",
        r"DIRECT=OS:.\private$\q;journal": "MACHINE",
        f"MACHINE={machine};DEADLETTER": "MACHINE",
        f"MACHINE={machine};JOURNAL": "MACHINE",
        REMOTE: "PRIVATE",
        r"DIRECT=OS:BETA\public": "PUBLIC",
        rf"PRIVATE={GUID}\00000011": "PRIVATE",
        MULTICAST: "MULTICAST",
    }
    assert {name: manager.value(name, Property.TYPE) for name in expected} == expected


@pytest.mark.spec("MQMR-3.1.4.1-30")
def test_locations(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.send(REMOTE)
    names = {Q: "LOCAL", r"DIRECT=OS:.\private$\q;journal": "LOCAL", REMOTE: "REMOTE"}
    assert {name: manager.value(name, Property.LOCATION) for name in names} == names


@pytest.mark.spec("MQMR-3.1.4.1-31")
def test_transactional_or_not(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create("tx", transactional=True)
    assert manager.value(Q, Property.XACT) == "NO"
    assert manager.value(r"DIRECT=OS:.\private$\tx", Property.XACT) == "YES"


@pytest.mark.spec("MQMR-2.2.3.2-6", "MQMR-3.1.4.1-32", "MQMR-3.1.4.1-33")
def test_foreign_or_not(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create(r".\public")
    qm = h.engine.queue_manager
    names = [Q, r"DIRECT=OS:.\public", f"MACHINE={qm.identifier};DEADLETTER"]

    def told() -> list[object]:
        return [manager.value(name, Property.FOREIGN) for name in names]

    assert told() == ["NO", "NO", "NO"]
    qm.foreign_system = True
    assert told() == ["YES", "YES", "YES"]
    qm.directory_offline = True
    assert told() == ["NO", "UNKNOWN", "UNKNOWN"]


@pytest.mark.spec("MQMR-3.1.4.1-34")
def test_messages_are_counted_until_they_are_gone(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create("tx", transactional=True)
    assert manager.value(Q, Property.MESSAGE_COUNT) == 0
    for _ in range(3):
        h.send("q")
    descriptor = h.open("q")
    position = at_once(h.engine.dequeue_message(descriptor, timeout=0, two_phase_read=True))
    assert manager.value(Q, Property.MESSAGE_COUNT) == 3, "received, not acknowledged"
    h.engine.dequeue_message_end(descriptor, position, delete_message=True)
    assert manager.value(Q, Property.MESSAGE_COUNT) == 2
    transaction = h.begin()
    h.send("tx", transaction=transaction)
    assert manager.value(r"DIRECT=OS:.\private$\tx", Property.MESSAGE_COUNT) == 1, "locked, not committed"
    h.abort(transaction)
    assert manager.value(r"DIRECT=OS:.\private$\tx", Property.MESSAGE_COUNT) == 0


@pytest.mark.spec("MQMR-3.1.4.1-35")
def test_bytes_in_a_queue(manager: Managed, h: Harness) -> None:
    queue = h.create("q")
    assert manager.value(Q, Property.BYTES_IN_QUEUE) == 0
    h.send("q", bytes(1000))
    assert manager.value(Q, Property.BYTES_IN_QUEUE) == queue.total_bytes > 1000
    # There are 32 bits for it.
    queue.total_bytes += 1 << 32
    assert manager.value(Q, Property.BYTES_IN_QUEUE) == 0xFFFFFFFF
    queue.total_bytes -= 1 << 32


@pytest.mark.spec("MQMR-3.1.4.1-36", "MQMR-3.1.4.1-37")
def test_the_journal(manager: Managed, h: Harness) -> None:
    queue = h.create("q", journaling=True)
    h.send("q", bytes(100))
    h.receive("q")
    assert queue.journal_queue is not None
    size = queue.journal_queue.total_bytes
    assert manager.get_info(Q, [9, 10]) == (0, (PropVariant(VT.UI4, 1), PropVariant(VT.UI4, size)))
    h.engine.set_queue_properties(queue, {"journaling": False})
    assert manager.get_info(Q, [9, 10]) == (0, (PropVariant(VT.UI4, 1), PropVariant(VT.UI4, 0)))
    # A journal has none itself, nor has an outgoing queue.
    h.send(REMOTE)
    for name in (r"DIRECT=OS:.\private$\q;journal", REMOTE):
        assert manager.get_info(name, [9, 10]) == (0, (PropVariant(VT.UI4, 0), PropVariant(VT.UI4, 0)))


@pytest.mark.spec("MQMR-3.1.4.1-38", "MQMR-3.1.4.1-39")
def test_states(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.send(REMOTE)
    assert manager.value(Q, Property.STATE) == "LOCAL CONNECTION"
    queue = next(h.engine.outgoing_queues())
    told = {}
    for state in OutgoingState:
        queue.state = state
        told[state.name] = manager.value(REMOTE, Property.STATE)
    assert told == {
        "CONNECTED": "CONNECTED",
        "DISCONNECTED": "DISCONNECTED",
        "DISCONNECTING": "DISCONNECTING",
        "INACTIVE": "INACTIVE",
        "LOCKED": "LOCKED",
        "NEED_VALIDATION": "NEED VALIDATION",
        "WAITING": "WAITING",
        "ON_HOLD": "ONHOLD",
    }


@pytest.mark.spec("MQMR-3.1.4.1-51", "MQMR-3.1.4.1-42", "MQMR-3.1.4.1-54")
def test_what_a_queue_here_has_no_value_for_is_null(manager: Managed, h: Harness) -> None:
    h.create("tx", transactional=True)
    asked = [Property.NEXTHOPS, *range(13, 24), Property.CONNECTION_HISTORY]
    assert manager.get_info(r"DIRECT=OS:.\private$\tx", asked) == (0, (NULL,) * len(asked))
    # Outgoing, but with nothing transactional; its history is there, as empty as it is.
    h.send(REMOTE)
    status, variants = manager.get_info(REMOTE, asked)
    assert (status, variants[:-1]) == (0, (NULL,) * 12)
    assert variants[-1] == PropVariant.vector(
        VT.VARIANT, [PropVariant.vector(vt, []) for vt in (VT.UI4, VT.I4, VT.I4, VT.VARIANT)]
    )


@pytest.mark.spec("MQMR-3.1.4.1-57", "MQMR-3.1.4.1-58")
def test_subqueues(manager: Managed, h: Harness) -> None:
    h.create("q")
    asked = [Property.SUBQUEUE_COUNT, Property.SUBQUEUE_NAMES]
    assert manager.get_info(Q, asked) == (0, (PropVariant(VT.UI4, 0), PropVariant(0x101F, ())))
    for name in ("one", "Two"):
        h.engine.close_queue(h.open(rf"DIRECT=OS:.\private$\q;{name}"))
    assert manager.get_info(Q, asked) == (0, (PropVariant(VT.UI4, 2), PropVariant(0x101F, ("one", "Two"))))


@pytest.mark.spec("MQMR-3.1.1.1-1")
def test_answers_are_of_the_queue_manager_that_everybody_uses(manager: Managed, h: Harness) -> None:
    h.create("q")
    assert manager.value(Q, Property.MESSAGE_COUNT) == 0
    h.send("q")
    assert manager.value(Q, Property.MESSAGE_COUNT) == 1
    h.receive("q")
    assert manager.value(Q, Property.MESSAGE_COUNT) == 0


@pytest.mark.spec("MQMR-3.1.2-1")
def test_an_answer_waits_for_nothing(manager: Managed, h: Harness) -> None:
    """A reader waits in an empty queue.

    A query of that queue is answered all the same, and sets no timer.
    """
    h.create("q")
    h.engine.dequeue_message(h.open("q"), timeout=0xFFFFFFFF, on_end=lambda _: None)
    before = h.engine.next_delay()
    assert manager.value(Q, Property.MESSAGE_COUNT) == 0
    assert h.queue("q").waiting_reads
    assert h.engine.next_delay() == before


# What is asked for, and what comes back
# ---------------------------------------------------------------------------


@pytest.mark.spec("MQMR-3.1.4.1-1", "MQMR-3.1.4.1-11")
def test_one_property_to_128_of_them(manager: Managed, h: Harness) -> None:
    h.create("q")
    assert manager.get_info(Q, [7]) == (0, (PropVariant(VT.UI4, 0),))
    assert manager.get_info(Q, [7, 4] * 64) == (0, (PropVariant(VT.UI4, 0), PropVariant(VT.LPWSTR, "LOCAL")) * 64)


@pytest.mark.spec("MQMR-3.1.4.1-2")
def test_answers_are_in_the_order_asked(manager: Managed, h: Harness) -> None:
    h.create("q")
    asked = list(Property)
    status, forward = manager.get_info(Q, asked)
    assert status == 0
    assert manager.get_info(Q, asked[::-1]) == (0, forward[::-1])
    assert len(set(map(str, forward))) >= 10


@pytest.mark.spec("MQMR-3.1.4.1-3", "MQMR-3.1.4.1-4")
def test_what_is_in_ap_var_is_overwritten(manager: Managed, h: Harness) -> None:
    h.create("q")
    expected = (0, (PropVariant(VT.UI4, 0), PropVariant(VT.LPWSTR, "LOCAL")))
    assert manager.get_info(Q, [7, 4], [NULL, NULL]) == expected
    other = [PropVariant(VT.BLOB, b"abc"), PropVariant.vector(VT.VARIANT, [NULL, PropVariant(VT.LPWSTR, "x")])]
    assert manager.get_info(Q, [7, 4], other) == expected


@pytest.mark.spec("MQMR-3.1.4.1-6")
@pytest.mark.parametrize(
    ("subject", "asked"), [(Q, [7, 28]), (MACHINE, [4, 7]), (SESSION, [1, 2]), (r"DIRECT=OS:.\private$\none", [7, 4])]
)
def test_after_a_failure_ap_var_is_as_it_was_sent(
    manager: Managed, h: Harness, subject: MgmtObject | str, asked: list[int]
) -> None:
    h.create("q")
    sent = (PropVariant(VT.UI4, 77), PropVariant(VT.LPWSTR, "as it was"))
    status, came = manager.get_info(subject, asked, sent)
    assert status >= 0xC0000000
    assert came == sent


@pytest.mark.spec("MQMR-3.1.4.1-7")
def test_nothing_is_told_of_sessions(manager: Managed) -> None:
    for identifier in (1, 4, 7, 99):
        assert manager.status(SESSION, identifier) == MQ_ERROR_INVALID_PARAMETER


@pytest.mark.spec("MQMR-3.1.4.1-8", "MQMR-3.1.4.1-9")
@pytest.mark.parametrize("identifier", [0, 28, 101, 0xFFFFFFFF])
def test_a_property_that_there_is_not(manager: Managed, h: Harness, identifier: int) -> None:
    h.create("q")
    assert manager.get_info(MACHINE, [4, identifier])[0] == MQ_ERROR_ILLEGAL_PROPID
    assert manager.get_info(Q, [identifier, 7])[0] == MQ_ERROR_ILLEGAL_PROPID
    assert manager.status(MACHINE, 7) == MQ_ERROR_ILLEGAL_PROPID
    assert manager.status(MACHINE, 6) == manager.status(Q, 27) == 0
