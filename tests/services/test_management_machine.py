"""R_QMMgmtGetInfo about the machine (MS-MQMR 3.1.4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.enums import QueueAccessType
from lanner.wire.format_name import parse
from lanner.wire.property_ids import ManagementMachineProperty as Machine
from lanner.wire.property_ids import ManagementQueueProperty as OfQueue
from lanner.wire.propvariant import NULL, PropVariant
from lanner.wire.vartypes import VT
from tests.engine.harness import Harness
from tests.services.managed import MACHINE, Managed, managed
from tests.statuses import MQ_ERROR_ILLEGAL_PROPID

REMOTE = r"DIRECT=OS:BETA\private$\far"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Managed]:
    with managed(tmp_path / "data") as manager:
        yield manager


@pytest.fixture
def h(manager: Managed) -> Harness:
    return manager.h


@pytest.mark.spec("MQMR-2.2.3-1", "MQMR-3.1.4.1-10")
def test_machine_and_queue_have_numbers_of_their_own(manager: Managed, h: Harness) -> None:
    h.create("q")
    assert manager.variant(MACHINE, 1).vt == 0x101F
    assert manager.value(r"DIRECT=OS:.\private$\q", 1) == r"ALPHA\private$\q"
    # 7 to 27 belong to queues only; the machine has no properties of queues.
    assert [int(one) for one in Machine] == [1, 2, 3, 4, 5, 6]
    assert [int(one) for one in OfQueue] == list(range(1, 28))
    assert manager.status(MACHINE, 7) == MQ_ERROR_ILLEGAL_PROPID
    assert manager.status(r"DIRECT=OS:.\private$\q", 7) == 0


@pytest.mark.spec(
    "MQMR-2.2.3.1-1",
    "MQMR-2.2.3.1-2",
    "MQMR-2.2.3.1-3",
    "MQMR-2.2.3.1-4",
    "MQMR-2.2.3.1-5",
    "MQMR-2.2.3.1-6",
)
def test_each_property_has_its_number_and_type(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.send("q", bytes(100))
    qm = h.engine.queue_manager
    qm.directory_integrated, qm.directory_server_list = True, ["DC1", "DC2"]
    descriptor = h.open("q")
    status, variants = manager.get_info(MACHINE, [1, 2, 3, 4, 5, 6])
    assert status == 0
    assert [variant.vt for variant in variants] == [0x101F, 0x101F, 31, 31, 31, 20]
    active, private, server, connected, kind, size = (variant.value for variant in variants)
    assert active == (r"DIRECT=OS:ALPHA\private$\q",)
    assert isinstance(private, tuple)
    assert r"ALPHA\private$\q" in private
    assert (server, connected, size) == ("\\\\DC1", "CONNECTED", qm.total_bytes)
    assert qm.total_bytes > 100
    # The system and its release, then the queue manager and its.
    assert isinstance(kind, str)
    assert kind.startswith("Linux ")
    assert ", Lanner " in kind
    h.engine.close_queue(descriptor)


@pytest.mark.spec("MQMR-3.1.4.1-13")
def test_active_queues_are_those_open_and_outgoing_ones_with_messages(manager: Managed, h: Harness) -> None:
    def active() -> set[object]:
        value = manager.value(MACHINE, Machine.ACTIVEQUEUES)
        assert isinstance(value, tuple)
        return set(value)

    h.create("q")
    h.create("other")
    h.send("q", b"a message alone makes no queue active")
    assert manager.variant(MACHINE, Machine.ACTIVEQUEUES) == PropVariant.vector(VT.LPWSTR, [])
    reading = h.open("q")
    assert active() == {r"DIRECT=OS:ALPHA\private$\q"}
    sending = h.open(REMOTE, QueueAccessType.SEND)
    assert active() == {r"DIRECT=OS:ALPHA\private$\q", REMOTE}
    h.engine.close_queue(reading)
    h.engine.close_queue(sending)
    assert active() == set()
    h.send(REMOTE, b"waits")
    assert active() == {REMOTE}


@pytest.mark.spec("MQMR-3.1.4.1-14")
def test_active_queues_are_format_names(manager: Managed, h: Harness) -> None:
    names = [
        r"DIRECT=OS:.\private$\q",
        r"DIRECT=OS:.\private$\q;journal",
        r"DIRECT=OS:.\private$\q;sub",
        r"DIRECT=OS:.\system$;DEADLETTER",
        f"MACHINE={h.engine.queue_manager.identifier};JOURNAL",
    ]
    h.create("q")
    opened = [h.open(name, QueueAccessType.PEEK) for name in names]
    opened.append(h.open("MULTICAST=239.1.2.3:8001", QueueAccessType.SEND))
    value = manager.value(MACHINE, Machine.ACTIVEQUEUES)
    assert isinstance(value, tuple)
    assert len(value) == len(opened)
    found = {h.engine.require_queue(parse(str(name))) for name in value}
    assert found == {descriptor.queue for descriptor in opened}, "each is the name of its queue"
    for descriptor in opened:
        h.engine.close_queue(descriptor)


@pytest.mark.spec("MQMR-3.1.4.1-15")
def test_private_queues_by_path_name(manager: Managed, h: Harness) -> None:
    h.create("q")
    h.create(r".\public")
    h.open(r"DIRECT=OS:.\private$\q;sub")
    h.send(REMOTE, b"")
    value = manager.value(MACHINE, Machine.PRIVATEQ)
    assert isinstance(value, tuple)
    assert set(value) == {r"ALPHA\private$\q", r"ALPHA\private$\admin_queue$"}


@pytest.mark.spec("MQMR-3.1.4.1-16", "MQMR-3.1.4.1-17")
def test_the_directory_server(manager: Managed, h: Harness) -> None:
    qm = h.engine.queue_manager
    # Alone: a server is known but the queue manager is not integrated, and the other way round.
    qm.directory_server_list = ["DC1.example.com", "DC2.example.com"]
    assert manager.get_info(MACHINE, [3, 4]) == (0, (NULL, PropVariant(VT.LPWSTR, "CONNECTED")))
    qm.directory_integrated = True
    assert manager.value(MACHINE, Machine.DSSERVER) == r"\\DC1.example.com"
    qm.directory_server_list = [r"\\DC3"]
    assert manager.value(MACHINE, Machine.DSSERVER) == r"\\DC3"
    qm.directory_server_list = []
    assert manager.variant(MACHINE, Machine.DSSERVER) == NULL


@pytest.mark.spec("MQMR-3.1.4.1-18")
def test_connected_or_not(manager: Managed) -> None:
    assert manager.value(MACHINE, Machine.CONNECTED) == "CONNECTED"
    assert manager.action(MACHINE, "DISCONNECT") == 0
    assert manager.value(MACHINE, Machine.CONNECTED) == "DISCONNECTED"


@pytest.mark.spec("MQMR-3.1.4.1-19")
def test_the_type_is_never_null(manager: Managed) -> None:
    variant = manager.variant(MACHINE, Machine.TYPE)
    assert variant.vt == VT.LPWSTR
    assert isinstance(variant.value, str), "a NULL pointer would be None"


@pytest.mark.spec("MQMR-3.1.4.1-20")
def test_bytes_in_all_queues(manager: Managed, h: Harness) -> None:
    queues = h.engine.queue_manager.queue_collection
    h.create("q", journaling=True)
    h.create("r")
    assert manager.value(MACHINE, Machine.BYTES_IN_ALL_QUEUES) == 0
    h.send("q", bytes(1000))
    size = h.queue("q").total_bytes
    assert size > 1000
    assert manager.value(MACHINE, Machine.BYTES_IN_ALL_QUEUES) == size
    h.send("r", bytes(3000))
    h.send(REMOTE, bytes(500))
    h.receive("q")  # into the journal
    expected = sum(queue.total_bytes for queue in queues.values())
    assert expected > 4500
    assert manager.value(MACHINE, Machine.BYTES_IN_ALL_QUEUES) == expected
    # Beyond 32 bits.
    h.queue("r").total_bytes += 1 << 40
    assert manager.value(MACHINE, Machine.BYTES_IN_ALL_QUEUES) == expected + (1 << 40)
    h.queue("r").total_bytes -= 1 << 40
