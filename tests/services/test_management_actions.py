"""R_QMMgmtAction (MS-MQMR 3.1.4.2): words, objects, and what is refused."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner.host.timers
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import Queue
from lanner.model.directory_objects import QueueManager as DirectoryQueueManager
from lanner.model.enums import OutgoingState, QueueType
from lanner.model.errors import InsufficientResources
from lanner.services import outgoing_queues
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import R_QM_MGMT_ACTION, MgmtObject
from lanner.wire.property_ids import ManagementQueueProperty as Property
from tests.engine.harness import Harness, status_of
from tests.overlay import overlay
from tests.services.managed import MACHINE, SESSION, Managed, managed
from tests.statuses import (
    MQ_ERROR,
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SERVICE_NOT_AVAILABLE,
)

Q = r"DIRECT=OS:.\private$\q"
REMOTE = r"DIRECT=OS:BETA\private$\far"
MACHINE_ACTIONS = ("CONNECT", "DISCONNECT", "TIDY")
QUEUE_ACTIONS = ("PAUSE", "RESUME", "EOD_RESEND")


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Managed]:
    with managed(tmp_path / "data") as manager:
        yield manager


@pytest.fixture
def h(manager: Managed) -> Harness:
    return manager.h


def state(manager: Managed) -> object:
    return manager.value(REMOTE, Property.STATE)


@pytest.mark.spec("MQMR-3.1.4.2-1")
def test_an_action_is_a_string_with_its_terminator(manager: Managed, h: Harness) -> None:
    machine = struct.pack("<HHI", 1, 1, 0)
    word = struct.pack("<III", 11, 0, 11) + "DISCONNECT\0".encode("utf-16-le")
    assert R_QM_MGMT_ACTION.encode_request({"p_object_format": MACHINE, "lpwsz_action": "DISCONNECT"}) == machine + word
    assert manager.call(1, machine + word) == bytes(4)
    assert not h.engine.queue_manager.connection_active
    # A buffer longer than what is in it: max_count and actual_count differ.
    longer = struct.pack("<III", 64, 0, 8) + "CONNECT\0".encode("utf-16-le")
    assert manager.call(1, machine + longer) == bytes(4)
    assert h.engine.queue_manager.connection_active


@pytest.mark.spec("MQMR-3.1.4.2-2")
def test_the_case_of_a_word_makes_no_difference(manager: Managed, h: Harness) -> None:
    h.send(REMOTE)
    for pause, resume in (("pause", "resume"), ("Pause", "Resume"), ("pAUSE", "RESUMe")):
        assert manager.action(REMOTE, pause) == 0
        assert state(manager) == "ONHOLD"
        assert manager.action(REMOTE, resume) == 0
        assert state(manager) == "INACTIVE"
    assert manager.action(MACHINE, "disconnect") == 0
    assert not h.engine.queue_manager.connection_active


@pytest.mark.spec("MQMR-3.1.4.2-3")
@pytest.mark.parametrize(
    "word",
    ["", " PAUSE", "PAUSE ", "PAUSED", "PAU", "STOP", "PAU\u017fE", "D\u0131SCONNECT", "TIDY\tTIDY", 200 * "PAUSE"],
)
def test_an_unknown_word_changes_nothing(manager: Managed, h: Harness, word: str) -> None:
    h.send(REMOTE)
    assert manager.action(REMOTE, word) == MQ_ERROR_INVALID_PARAMETER
    assert manager.action(MACHINE, word) == MQ_ERROR_INVALID_PARAMETER
    assert state(manager) == "INACTIVE"
    assert h.engine.queue_manager.connection_active


@pytest.mark.spec("MQMR-3.1.4.2-4")
@pytest.mark.parametrize("word", [*MACHINE_ACTIONS, *QUEUE_ACTIONS, "", "other"])
def test_a_session_has_no_actions(manager: Managed, h: Harness, word: str) -> None:
    assert manager.action(SESSION, word) == MQ_ERROR_INVALID_PARAMETER
    assert h.engine.queue_manager.connection_active


@pytest.mark.spec("MQMR-3.1.4.2-5", "MQMR-3.1.4.1-5", "MQMR-3-3")
def test_success_is_zero_and_a_failure_says_so_in_its_severity(manager: Managed, h: Harness) -> None:
    h.send(REMOTE)
    assert manager.action(REMOTE, "PAUSE") == manager.status(REMOTE) == 0
    failures = [
        manager.action(r"DIRECT=OS:GAMMA\private$\q", "PAUSE"),
        manager.action(MACHINE, "PAUSE"),
        manager.status(REMOTE, 99),
        manager.status(r"DIRECT=OS:GAMMA\private$\q"),
    ]
    assert all(status & 0xC0000000 == 0xC0000000 for status in failures)

    def broken(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    with contextlib.closing(Managed(h, engine=overlay(h.engine, require_queue=broken))) as failing:
        assert failing.action(REMOTE, "PAUSE") == failing.status(REMOTE) == MQ_ERROR


@pytest.mark.spec("MQMR-3.1.4.2-9")
def test_tidy_frees_what_no_message_needs_and_loses_none(manager: Managed, h: Harness) -> None:
    h.create("q", journaling=True)
    for number in range(5):
        h.send("q", b"%d" % number, recoverable=number % 2 == 0)
    h.receive("q")
    h.send(REMOTE, b"waits")
    queues = h.engine.queue_manager.queue_collection.values()
    counts = {queue.pathname: queue.message_count for queue in queues}
    assert sum(counts.values()) == 6
    h.engine.store.stage(b"abandoned", h.queue("q").number, [(3, [bytes(1000)])], int(h.now))
    h.engine.store.stage(b"in use", h.queue("q").number, [(3, [bytes(1000)])], int(h.now) + 100_000)
    h.now += 90_000
    assert manager.action(MACHINE, "TIDY") == 0
    assert {queue.pathname: queue.message_count for queue in queues} == counts
    assert h.bodies("q") == [b"1", b"2", b"3", b"4"]
    assert h.engine.store.drop_stage(b"abandoned") is False, "its room is free"
    assert h.engine.store.drop_stage(b"in use") is True


@pytest.mark.spec("MQMR-3.1.4.2-10")
def test_storage_is_tidied_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lanner.host.timers._SWEEP_INTERVAL <= 6 * 3600
    monkeypatch.setattr(lanner.host.timers, "_SWEEP_INTERVAL", 0.001)
    runtime = Runtime(tmp_path / "data", local_settings("ALPHA"))
    try:
        with runtime.lock:
            runtime.store.stage(b"abandoned", 1, [(3, [b"packet"])], int(time.time()) - 100_000)
        for _ in range(10_000):
            with runtime.lock:
                if not runtime.store.staged([b"abandoned"]):
                    break
            time.sleep(0.001)
        with runtime.lock:
            assert not runtime.store.staged([b"abandoned"])
            assert runtime.store.drop_stage(b"abandoned") is False
    finally:
        runtime.close()


@pytest.mark.spec("MQMR-3.1.4.2-14")
@pytest.mark.parametrize("word", QUEUE_ACTIONS)
def test_a_queue_here_is_not_steered(manager: Managed, h: Harness, word: str) -> None:
    queue = h.create("q")
    h.send("q", b"1")
    for name in (Q, r"DIRECT=OS:.\private$\q;journal", rf"MACHINE={h.engine.queue_manager.identifier};DEADLETTER"):
        assert manager.action(name, word) == MQ_ERROR_INVALID_PARAMETER
    assert manager.value(Q, Property.STATE) == "LOCAL CONNECTION"
    assert queue.message_count == 1


@pytest.mark.spec("MQMR-3.1.4.2-15")
def test_resume_of_a_queue_that_is_not_on_hold(manager: Managed, h: Harness) -> None:
    h.send(REMOTE)
    queue = next(h.engine.outgoing_queues())
    for before in (OutgoingState.CONNECTED, OutgoingState.WAITING, OutgoingState.DISCONNECTED):
        queue.state = before
        assert manager.action(REMOTE, "RESUME") == 0
        assert queue.state is before


@pytest.mark.spec("MQMR-3.1.4.2-18")
def test_each_action_has_its_kind_of_object(manager: Managed, h: Harness) -> None:
    h.send(REMOTE)
    for word in QUEUE_ACTIONS:
        assert manager.action(MACHINE, word) == MQ_ERROR_INVALID_PARAMETER
    for word in MACHINE_ACTIONS:
        assert manager.action(REMOTE, word) == MQ_ERROR_INVALID_PARAMETER
    assert state(manager) == "INACTIVE"
    assert h.engine.queue_manager.connection_active


@pytest.mark.spec("MQMR-3.1.4.2-19")
@pytest.mark.parametrize("word", QUEUE_ACTIONS)
def test_an_action_makes_no_queue(manager: Managed, h: Harness, word: str) -> None:
    queues = set(h.engine.queue_manager.queue_collection)
    assert manager.action(REMOTE, word) == MQ_ERROR_QUEUE_NOT_FOUND
    assert manager.action("MULTICAST=239.1.2.3:8001", word) == MQ_ERROR_QUEUE_NOT_FOUND
    assert set(h.engine.queue_manager.queue_collection) == queues


@pytest.mark.spec("MQMR-3.1.4.2-21")
def test_a_public_queue_by_its_guid_and_a_direct_one_by_its_name(manager: Managed, h: Harness) -> None:
    """The two examples of MS-MQMR 4."""
    site = h.directory.provision()
    h.directory.create_object(DirectoryQueueManager(computer_name="BETA", site_identifier_list=[site]))
    queue = Queue(pathname=r"BETA\orders", queue_type=QueueType.PUBLIC)
    _, identifier = h.directory.create_object(queue)
    assert identifier is not None
    names = [f"PUBLIC={identifier}", REMOTE]
    subjects = [
        MgmtObject(2, QueueFormat(1, 0, 0, identifier)),
        MgmtObject(2, QueueFormat(3, 0, 0, r"OS:BETA\private$\far")),
    ]
    for name, subject in zip(names, subjects, strict=True):
        h.send(name)
        assert manager.action(subject, "PAUSE") == 0
        assert manager.value(subject, Property.STATE) == "ONHOLD"
        assert manager.value(subject, Property.FORMATNAME) == name
    assert manager.value(subjects[0], Property.TYPE) == "PUBLIC"
    assert str(manager.value(subjects[0], Property.PATHNAME)).upper() == r"BETA\ORDERS"
    assert [queue.state for queue in h.engine.outgoing_queues()] == [OutgoingState.ON_HOLD] * 2


@pytest.mark.spec("MQMR-3.1.4.2-20")
def test_a_pause_is_kept_over_a_restart(tmp_path: Path) -> None:
    with managed(tmp_path / "data") as manager:
        manager.h.send(REMOTE)
        assert manager.action(REMOTE, "PAUSE") == 0
        manager.h.stop()
        manager.h.start()
        queue = next(manager.h.engine.outgoing_queues())
        assert queue.state is OutgoingState.ON_HOLD


def test_without_transfer_nothing_can_be_sent_again(manager: Managed, h: Harness) -> None:
    h.send(REMOTE)
    assert manager.action(REMOTE, "EOD_RESEND") == MQ_ERROR_SERVICE_NOT_AVAILABLE


def test_a_pause_that_cannot_be_stored_is_refused_and_undone(
    manager: Managed, h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DESIGN 2.4: an answer means that it is on disk."""
    h.send(REMOTE)
    h.sync()

    def full(*_: object) -> None:
        raise InsufficientResources("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("lanner.store.write_ahead_log.WriteAheadLog.append", full)
        assert manager.action(REMOTE, "PAUSE") == InsufficientResources.status
    assert state(manager) == "INACTIVE"
    assert manager.action(REMOTE, "PAUSE") == 0


def test_a_locked_queue_is_not_unlocked_by_a_pause_and_its_end(h: Harness) -> None:
    h.send(REMOTE)
    queue = next(h.engine.outgoing_queues())
    queue.state = OutgoingState.LOCKED
    for action in (outgoing_queues.pause, outgoing_queues.resume):
        assert status_of(lambda action=action: action(h.engine, queue)) == MQ_ERROR_ACCESS_DENIED  # type: ignore[misc] # bound now
    assert queue.state is OutgoingState.LOCKED


def test_a_queue_format_without_a_name(manager: Managed) -> None:
    assert manager.action(MgmtObject(2, QueueFormat(3, 0, 0, None)), "PAUSE") == MQ_ERROR_ILLEGAL_FORMATNAME
