"""qmmgmt as an RPC interface: binding, faults, and who may call (MS-MQMR 1.3, 1.9, 2, 3, 5.1)."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.model.errors import StatusError
from lanner.security.identity import ANONYMOUS, Identity
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.services.interfaces.mqmr import MgmtObject
from lanner.wire.property_ids import ManagementQueueProperty as Property
from tests.engine.harness import Harness
from tests.overlay import overlay
from tests.rpc.context_handles import context_handles
from tests.services.managed import (
    ADMINISTRATOR,
    MACHINE,
    NDR,
    NDR64,
    SESSION,
    Caller,
    Fault,
    Managed,
    managed,
)
from tests.statuses import (
    MQ_ERROR,
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_PROPID,
    MQ_ERROR_INVALID_PARAMETER,
    NCA_OP_RNG_ERROR,
)

Q = r"DIRECT=OS:.\private$\q"
REMOTE = r"DIRECT=OS:BETA\private$\far"
BAD_STUB = 0x6F7
# vt, wReserved1 to 3, tag.
VT_NULL = bytes.fromhex("0100 00 00 00000000 0100")
# Result and reason of a presentation context (C706 12.6.3.1).
ACCEPTED = (0, 0)
NO_ABSTRACT_SYNTAX = (2, 1)
NO_TRANSFER_SYNTAX = (2, 2)


@pytest.fixture
def caller() -> Caller:
    return Caller()


@pytest.fixture
def manager(tmp_path: Path, caller: Caller) -> Iterator[Managed]:
    with managed(tmp_path / "data", caller) as manager:
        yield manager


@pytest.fixture
def h(manager: Managed) -> Harness:
    return manager.h


def fault_of(manager: Managed, opnum: int, stub: bytes) -> int:
    with pytest.raises(Fault) as fault:
        manager.call(opnum, stub)
    return fault.value.status


def get_info(subject: bytes, cp: int, properties: list[int], variants: int | None = None) -> bytes:
    count = len(properties) if variants is None else variants
    head = subject + struct.pack(f"<II{len(properties)}II", cp, len(properties), *properties, count)
    head += bytes(-len(head) % 8)
    return head + b"".join([VT_NULL + bytes(6)] * count)[: max(0, 16 * count - 6)]


MACHINE_OCTETS = struct.pack("<HHI", 1, 1, 0)


# Binding
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-1.9-1")
def test_the_interface_and_its_version(manager: Managed) -> None:
    with manager.unlocked():
        assert manager.connect().bind(version=1) == [ACCEPTED]
        assert manager.connect().bind(version=2) == [NO_ABSTRACT_SYNTAX]
        assert manager.connect().bind(version=1 | 1 << 16) == [NO_ABSTRACT_SYNTAX], "no version 1.1"


@pytest.mark.spec("MQMR-2.2-1", "MQMR-2.2-2")
def test_only_ndr_is_spoken(manager: Managed) -> None:
    with manager.unlocked():
        assert manager.connect().bind(syntaxes=[NDR64]) == [NO_TRANSFER_SYNTAX]
        both = manager.connect()
        assert both.bind(syntaxes=[NDR64, NDR]) == [NO_TRANSFER_SYNTAX, ACCEPTED]
        assert both.call(1, MACHINE_OCTETS + struct.pack("<III", 5, 0, 5) + "TIDY\0".encode("utf-16-le"), 1) == bytes(4)


@pytest.mark.spec("MQMR-1.3-1", "MQMR-3.1.4-3")
def test_calls_know_nothing_of_each_other(manager: Managed, h: Harness) -> None:
    """Calls are independent, on one connection and on a new one.

    No context handle is created, and a call has no parameter for one.
    """
    h.create("q")
    first = manager.get_info(Q, list(Property))
    assert manager.get_info(Q, list(Property)) == first
    manager.action(MACHINE, "TIDY")
    fresh = manager.connect()
    with manager.unlocked():
        fresh.bind()
    assert manager.get_info(Q, list(Property), connection=fresh) == first
    groups = list(manager.server.groups._groups.values())
    assert len(groups) == 2
    assert all(len(group.handles) == 0 for group in groups)
    assert all(method is None or not context_handles(method) for method in manager.service.interface.methods)


# Faults
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-3.1.4-4")
def test_opnums(manager: Managed) -> None:
    assert manager.call(0, get_info(MACHINE_OCTETS, 1, [4]))[-4:] == bytes(4)
    tidy = MACHINE_OCTETS + struct.pack("<III", 5, 0, 5) + "TIDY\0".encode("utf-16-le")
    assert manager.call(1, tidy) == bytes(4)
    for opnum in (2, 3, 100, 0xFFFF):
        assert fault_of(manager, opnum, tidy) == NCA_OP_RNG_ERROR


@pytest.mark.spec("MQMR-2.2.1.2-2", "MQMR-2.2.1.2-3", "MQMR-2.2.1.5-1", "MQMR-2.2.2.2-1")
@pytest.mark.parametrize(
    "subject",
    [
        "0100 0200 00000000",
        "0200 0100 00000000",
        "0000 0000 00000000",
        "0400 0400 00000000",
        # A tag unlike m_qft, and an m_qft without an arm.
        "0200 0200 00000200 01 00 0000 04 000000" + 16 * "00",
        "0200 0200 00000200 09 00 0000 09 000000" + 16 * "00",
    ],
)
def test_an_object_that_cannot_be_is_a_fault(manager: Managed, subject: str) -> None:
    assert fault_of(manager, 0, get_info(bytes.fromhex(subject), 1, [1])) == BAD_STUB
    action = struct.pack("<III", 5, 0, 5) + "TIDY\0".encode("utf-16-le")
    assert fault_of(manager, 1, bytes.fromhex(subject) + action) == BAD_STUB


@pytest.mark.spec("MQMR-3.1.4.1-1")
def test_no_property_or_too_many_is_a_fault(manager: Managed) -> None:
    assert manager.call(0, get_info(MACHINE_OCTETS, 128, [4] * 128))[-4:] == bytes(4)
    assert fault_of(manager, 0, get_info(MACHINE_OCTETS, 0, [])) == BAD_STUB
    assert fault_of(manager, 0, get_info(MACHINE_OCTETS, 129, [4] * 129)) == BAD_STUB


@pytest.mark.spec("MQMR-3.1.4-1", "MQMR-3.1.4-2", "MQMR-3.1.4-5")
def test_strict_checks_are_faults_and_nothing_else_is(manager: Managed) -> None:
    good = get_info(MACHINE_OCTETS, 2, [4, 5])
    assert manager.call(0, good)[-4:] == bytes(4)
    for size in range(0, len(good), 3):
        assert fault_of(manager, 0, good[:size]) == BAD_STUB
    assert fault_of(manager, 0, get_info(MACHINE_OCTETS, 2, [4])) == BAD_STUB
    assert fault_of(manager, 0, get_info(MACHINE_OCTETS, 2, [4, 5], variants=3)) == BAD_STUB
    # A BLOB of four octets at NULL.
    one = get_info(MACHINE_OCTETS, 1, [4])[: -len(VT_NULL)]
    blob = bytes.fromhex("4100 00 00 00000000 4100 0000") + struct.pack("<II", 4, 0)
    assert fault_of(manager, 0, one + blob) == BAD_STUB
    assert manager.call(0, one + blob[:-8] + bytes(8))[-4:] == bytes(4)
    # What the methods themselves refuse is an answer, not a fault.
    assert manager.status(SESSION) == MQ_ERROR_INVALID_PARAMETER
    assert manager.action(MACHINE, "?") == MQ_ERROR_INVALID_PARAMETER
    assert manager.status(MACHINE, 99) == MQ_ERROR_ILLEGAL_PROPID


@pytest.mark.spec("MQMR-3.1.4-5")
def test_a_fault_of_ours_is_an_answer_too(h: Harness) -> None:
    def broken() -> None:
        raise RuntimeError("a fault of ours")

    with contextlib.closing(
        Managed(h, engine=overlay(h.engine, local_queues=broken, drop_abandoned_stages=broken))
    ) as manager:
        assert manager.status(MACHINE, 2) == manager.action(MACHINE, "TIDY") == MQ_ERROR
        assert manager.status(MACHINE, 4) == 0


@pytest.mark.spec("MQMR-1.8-1")
def test_codes_of_our_own_carry_the_customer_bit() -> None:
    ours = {status for status, error in StatusError.by_status.items() if error.spec_name.startswith("LANNER_")}
    assert ours
    assert {status for status in StatusError.by_status if status & 0x2000_0000} == ours


# Who may call
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQMR-3-1")
@pytest.mark.parametrize("identity", [None, ANONYMOUS, Identity("user", ANONYMOUS.sid, is_domain_user=True)])
def test_only_administrators_are_answered(
    manager: Managed, h: Harness, caller: Caller, identity: Identity | None
) -> None:
    h.create("q")
    h.send(REMOTE)
    caller.identity = identity
    assert manager.status(MACHINE) == manager.status(Q) == manager.status(REMOTE) == MQ_ERROR_ACCESS_DENIED
    for word in ("CONNECT", "DISCONNECT", "TIDY"):
        assert manager.action(MACHINE, word) == MQ_ERROR_ACCESS_DENIED
    for word in ("PAUSE", "RESUME", "EOD_RESEND"):
        assert manager.action(REMOTE, word) == MQ_ERROR_ACCESS_DENIED
    caller.identity = ADMINISTRATOR
    assert manager.value(REMOTE, Property.STATE) == "INACTIVE"
    assert manager.value(MACHINE, 4) == "CONNECTED"


@pytest.mark.spec("MQMR-3-4")
def test_parameters_are_looked_at_before_the_caller_and_the_caller_before_queues(
    manager: Managed, h: Harness, caller: Caller
) -> None:
    h.create("q")
    caller.identity = None
    assert manager.status(SESSION) == manager.action(SESSION, "TIDY") == MQ_ERROR_INVALID_PARAMETER
    assert manager.action(MACHINE, "NO SUCH WORD") == manager.action(MACHINE, "PAUSE") == MQ_ERROR_INVALID_PARAMETER
    assert manager.status(MACHINE, 7) == manager.status(Q, 28) == MQ_ERROR_ILLEGAL_PROPID
    assert manager.status(MgmtObject(2, None)) == MQ_ERROR_INVALID_PARAMETER
    assert (
        manager.status(MgmtObject(2, QueueFormat(4, 0, 0, h.engine.queue_manager.identifier)))
        == MQ_ERROR_ILLEGAL_FORMATNAME
    )
    # There or not, here or outgoing: to a stranger it is all the same.
    for name in (Q, r"DIRECT=OS:.\private$\none", REMOTE):
        assert manager.status(name) == manager.action(name, "PAUSE") == MQ_ERROR_ACCESS_DENIED


@pytest.mark.spec("MQMR-5.1-1")
def test_each_call_asks_for_the_right_again(manager: Managed, h: Harness, caller: Caller) -> None:
    h.send(REMOTE)
    assert manager.status(MACHINE) == 0
    caller.identity = ANONYMOUS
    assert manager.status(MACHINE) == manager.action(REMOTE, "PAUSE") == MQ_ERROR_ACCESS_DENIED
    caller.identity = ADMINISTRATOR
    assert manager.status(MACHINE) == manager.action(REMOTE, "PAUSE") == 0


def test_in_hardened_mode_no_call_is_answered(tmp_path: Path) -> None:
    """MS-MQDMPR 3.1.1.1 HardenedSecurity."""
    with managed(tmp_path / "data", hardened_security=True) as manager:
        h = manager.h
        h.send(REMOTE)
        for opnum in (0, 1):
            with pytest.raises(Fault) as fault:
                manager.call(opnum, get_info(MACHINE_OCTETS, 1, [4]))
            assert fault.value.status == 5
        h.engine.queue_manager.hardened_security = False
        assert manager.value(REMOTE, Property.STATE) == "LOCKED"
        assert manager.action(REMOTE, "PAUSE") == manager.action(REMOTE, "RESUME") == MQ_ERROR_ACCESS_DENIED
        assert manager.value(REMOTE, Property.STATE) == "LOCKED"


def test_without_accounts_to_ask_the_caller_is_who_the_connection_says(tmp_path: Path) -> None:
    h = Harness(tmp_path / "data")
    try:
        manager = Managed(h)
        try:
            assert manager.status(MACHINE) == MQ_ERROR_ACCESS_DENIED, "anonymous"
        finally:
            manager.close()
    finally:
        h.close()
