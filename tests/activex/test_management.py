"""MSMQManagement (MC-MQAC 3.3): which queue, where, and what the management properties become."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from lanner.activex.managed_queue import ManagedQueue
from lanner.activex.management import MSMQManagement
from lanner.activex.outgoing_queue_management import MSMQOutgoingQueueManagement
from lanner.activex.queue_management import MSMQQueueManagement
from lanner.activex.tables import (
    IMSMQ_MANAGEMENT,
    IMSMQ_OUTGOING_QUEUE_MANAGEMENT,
    IMSMQ_QUEUE_MANAGEMENT,
)
from lanner.com.automation.values import MISSING, Variant
from lanner.com.members import InterfaceTable
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    AccessDenied,
    IllegalFormatname,
    IllegalQueuePathname,
    InvalidParameter,
    QueueNotActive,
    QueueNotFound,
    RemoteMachineNotAvailable,
    ServiceNotAvailable,
    UninitializedObject,
)
from lanner.security.identity import ANONYMOUS
from lanner.services.interfaces.mqmq import QueueFormat
from lanner.wire.format_name import QueueFormatType
from lanner.wire.vartypes import VT
from tests.activex.managed import FAR, FarManager
from tests.activex.world import World
from tests.statuses import MQ_ERROR

Q = r"DIRECT=OS:.\private$\q"
OUTGOING = r"DIRECT=OS:BETA\private$\far"
GUID = "00112233-4455-6677-8899-aabbccddeeff"
GETTERS = (
    "get_message_count",
    "get_foreign_status",
    "get_queue_type",
    "get_is_local",
    "get_transactional_status",
    "get_bytes_in_queue",
)


def text(value: str | None) -> Variant:
    return Variant(VT.BSTR, value)


def opened(world: World, name: str = "q", **attributes: object) -> None:
    """Return a queue that is open."""
    with world.held() as h:
        h.create(name, **attributes)  # type: ignore[arg-type]  # the test's own choice
        h.open(name)


def outgoing(world: World) -> OutgoingQueue:
    """A queue to another computer, with a message in it."""
    with world.held() as h:
        h.send(OUTGOING, b"waits")
        queue = h.queue(OUTGOING)
    assert isinstance(queue, OutgoingQueue)
    return queue


def managed(world: World, format_name: str = Q, machine: Variant = MISSING, **attributes: object) -> MSMQManagement:
    if format_name == Q and machine is MISSING:
        opened(world, "q", **attributes)
    found = MSMQManagement(world.environment)
    world.call(found, "init", machine, MISSING, text(format_name))
    return found


# Init
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.3.4.1.1-1")
@pytest.mark.parametrize("nothing", [MISSING, text(None), text("")])
def test_init_takes_a_path_name_or_a_format_name(world: World, nothing: Variant) -> None:
    opened(world)
    found = MSMQManagement(world.environment)
    assert world.status(found, "init", MISSING, nothing, nothing) == InvalidParameter.status
    assert world.status(found, "init", MISSING, text(r".\private$\q"), text(Q)) == InvalidParameter.status
    assert world.status(found, "get_message_count") == UninitializedObject.status
    assert world.status(found, "init", nothing, text(r".\private$\q"), nothing) == 0
    assert world.status(found, "init", nothing, nothing, text(Q)) == 0


@pytest.mark.spec("MQAC-3.3.4.1.1-2")
def test_a_path_name_becomes_a_format_name_and_a_format_name_stays_as_it_is(world: World) -> None:
    opened(world)
    found = MSMQManagement(world.environment)
    world.call(found, "init", MISSING, text(r"alpha\private$\q"), MISSING)
    assert world.call(found, "get_format_name") == r"DIRECT=OS:alpha\private$\q"
    assert world.call(found, "get_message_count") == 0
    odd = r"Direct=Os:.\PRIVATE$\Q"
    world.call(found, "init", MISSING, MISSING, text(odd))
    assert world.call(found, "get_format_name") == odd


@pytest.mark.spec("MQAC-3.3.4.1.1-2", "MQAC-3.3.4.1.1-3", "MQAC-3.3.6.1-1")
@pytest.mark.parametrize(
    ("path", "name", "status"),
    [
        (r"nothing", None, IllegalQueuePathname.status),
        (r".\private$\none", None, QueueNotFound.status),
        (r".\public", None, QueueNotFound.status),
        (None, r"DIRECT=OS:.\private$\none", QueueNotFound.status),
        (None, "no format name", IllegalFormatname.status),
        (None, f"PUBLIC={GUID}x", IllegalFormatname.status),
    ],
)
def test_an_init_that_fails_leaves_the_object_without_a_queue(
    world: World, path: str | None, name: str | None, status: int
) -> None:
    found = managed(world)
    given = [MISSING if value is None else text(value) for value in (path, name)]
    assert world.status(found, "init", MISSING, *given) == status
    assert world.status(found, "get_format_name") == UninitializedObject.status
    assert not found.extra_interfaces()


@pytest.mark.spec("MQAC-3.3.4.1.1-3")
def test_a_queue_that_nobody_uses_is_not_represented(world: World) -> None:
    """MS-MQDMPR 3.1.1.2: a local queue is active while it is open.

    An outgoing queue is active also while a message waits in it.
    """
    with world.held() as h:
        h.create("q")
        h.engine.close_queue(h.open(OUTGOING, QueueAccessType.SEND))
    found = MSMQManagement(world.environment)
    for name in (Q, OUTGOING):
        assert world.status(found, "init", MISSING, MISSING, text(name)) == QueueNotActive.status
        assert world.status(found, "get_machine") == UninitializedObject.status
    with world.held() as h:
        h.open("q")
        h.send(OUTGOING, b"waits")
    for name in (Q, OUTGOING):
        assert world.status(found, "init", MISSING, MISSING, text(name)) == 0


@pytest.mark.spec("MQAC-3.3.4.1.1-3")
def test_a_machine_that_does_not_answer_leaves_the_object_without_a_queue(world: World) -> None:
    opened(world)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        world.environment.remote_port = taken.getsockname()[1]
        found = MSMQManagement(world.environment)
        status = world.status(found, "init", text("127.0.0.1"), MISSING, text(Q))
    assert status == RemoteMachineNotAvailable.status
    assert world.status(found, "get_machine") == UninitializedObject.status


def test_only_an_administrator_has_other_machines_asked(world: World) -> None:
    far = FarManager(world)
    found = MSMQManagement(world.environment)
    assert world.status(found, "init", text(FAR), MISSING, text(Q), by=ANONYMOUS) == AccessDenied.status
    assert not far.objects
    assert world.status(found, "init", text(FAR), MISSING, text(Q)) == 0
    assert far.open_connections == 0


@pytest.mark.spec("MQAC-3.3.4.1.1-4")
@pytest.mark.parametrize("word", ["REMOTE", "Remote", "remote"])
def test_a_remote_location_is_an_outgoing_queue(world: World, word: str) -> None:
    FarManager(world, LOCATION=word)
    assert managed(world, machine=text(FAR)).queue_is_outgoing
    outgoing(world)
    assert managed(world, OUTGOING).queue_is_outgoing
    assert not managed(world).queue_is_outgoing


# Interfaces
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.3.1-1", "MQAC-3.4.3-2")
def test_an_object_offers_the_interface_of_its_kind_of_queue_after_init(world: World) -> None:
    fresh = MSMQManagement(world.environment)
    assert fresh.query_interface(IMSMQ_QUEUE_MANAGEMENT.iid) is None
    assert fresh.query_interface(IMSMQ_OUTGOING_QUEUE_MANAGEMENT.iid) is None
    assert fresh.default_dispatch() is IMSMQ_MANAGEMENT
    outgoing(world)
    for name, own, other in (
        (Q, IMSMQ_QUEUE_MANAGEMENT, IMSMQ_OUTGOING_QUEUE_MANAGEMENT),
        (OUTGOING, IMSMQ_OUTGOING_QUEUE_MANAGEMENT, IMSMQ_QUEUE_MANAGEMENT),
    ):
        found = managed(world, name)
        assert found.query_interface(own.iid) is own
        assert found.query_interface(other.iid) is None
        assert found.query_interface(IMSMQ_MANAGEMENT.iid) is IMSMQ_MANAGEMENT
        # Scripts find the members without asking for an interface.
        assert found.default_dispatch() is own


@pytest.mark.spec("MQAC-3.3.3-1", "MQAC-3.4.3-1")
@pytest.mark.parametrize(
    ("coclass", "table"),
    [
        (MSMQManagement, IMSMQ_MANAGEMENT),
        (MSMQQueueManagement, IMSMQ_QUEUE_MANAGEMENT),
        (MSMQOutgoingQueueManagement, IMSMQ_OUTGOING_QUEUE_MANAGEMENT),
    ],
)
def test_before_init_every_member_says_so(
    world: World, coclass: Callable[..., ManagedQueue], table: InterfaceTable
) -> None:
    found = coclass(world.environment)
    assert found.query_interface(table.iid) is table
    others = [member.python for member in table.members if member.python != "init"]
    assert len(others) == table.last_opnum - 7
    for name in others:
        assert world.status(found, name) == UninitializedObject.status, name
    opened(world)
    world.call(found, "init", MISSING, MISSING, text(Q))
    for name in ("get_format_name", "get_message_count"):
        assert world.status(found, name) == 0


@pytest.mark.spec("MQAC-3.4.4.1-1")
def test_the_derived_interfaces_repeat_the_members_and_add_their_own() -> None:
    inherited = {member.opnum: member for member in IMSMQ_MANAGEMENT.members}
    assert sorted(inherited) == list(range(7, 16))
    for table, last, coclass in (
        (IMSMQ_QUEUE_MANAGEMENT, 18, MSMQQueueManagement),
        (IMSMQ_OUTGOING_QUEUE_MANAGEMENT, 21, MSMQOutgoingQueueManagement),
    ):
        members = {member.opnum: member for member in table.members}
        assert sorted(members) == list(range(7, last + 1))
        for opnum, member in inherited.items():
            again = members[opnum]
            assert (again.name, again.kind, again.dispid, again.python) == (
                member.name,
                member.kind,
                member.dispid,
                member.python,
            )
            assert [each.type for each in again.parameters] == [each.type for each in member.parameters]
        assert all(hasattr(coclass, member.python) for member in table.members)


# Members
# --------------------------------------------------------------------------------------------------


@pytest.mark.spec("MQAC-3.3.4.1.2-1")
def test_the_machine_is_the_one_that_was_given_or_this_one(world: World) -> None:
    assert world.call(managed(world), "get_machine") == "ALPHA"
    FarManager(world)
    assert world.call(managed(world, machine=text(FAR)), "get_machine") == FAR
    found = managed(world, machine=text("localhost"))
    assert world.call(found, "get_machine") == "localhost"
    assert world.call(found, "get_format_name") == Q
    for member in ("get_format_name", "get_machine"):
        assert world.status(MSMQManagement(world.environment), member) == UninitializedObject.status


@pytest.mark.spec("MQAC-3.3.4.1.4-1", "MQAC-3.3.4.1.9-1")
def test_messages_and_bytes_are_those_of_now(world: World) -> None:
    found = managed(world)
    assert world.call(found, "get_message_count") == 0
    assert world.call(found, "get_bytes_in_queue") == Variant(VT.UI8, 0)
    with world.held() as h:
        h.send("q", b"one")
        h.send("q", b"two")
        total = h.queue("q").total_bytes
    assert world.call(found, "get_message_count") == 2
    assert total
    assert world.call(found, "get_bytes_in_queue") == Variant(VT.UI8, total)


@pytest.mark.spec("MQAC-3.3.4.1.9-1")
def test_as_many_bytes_as_the_property_can_tell(world: World) -> None:
    FarManager(world, BYTES_IN_QUEUE=0xFFFF_FFFF)
    assert world.call(managed(world, machine=text(FAR)), "get_bytes_in_queue") == Variant(VT.UI8, 0xFFFF_FFFF)


@pytest.mark.spec("MQAC-3.3.4.1.4-2")
@pytest.mark.parametrize("getter", GETTERS)
def test_a_getter_fails_as_the_question_does(world: World, getter: str) -> None:
    found = managed(world)
    assert world.status(found, getter, by=ANONYMOUS) == AccessDenied.status
    with world.held() as h:
        h.engine.delete_queue(h.queue("q"))
    assert world.status(found, getter) == QueueNotFound.status
    far = FarManager(world)
    elsewhere = managed(world, machine=text(FAR))
    far.status = 0xC00E_1234
    assert world.status(elsewhere, getter) == 0xC00E_1234
    with world.held() as h:
        h.engine.queue_manager_stopped()
    assert world.status(found, getter) == ServiceNotAvailable.status


@pytest.mark.spec("MQAC-3.3.4.1.5-1")
@pytest.mark.parametrize(
    ("word", "number"), [("YES", 0), ("Yes", 0), ("NO", 1), ("No", 1), ("UNKNOWN", 2), ("Unknown", 2)]
)
def test_foreign_status(world: World, word: str, number: int) -> None:
    FarManager(world, FOREIGN=word)
    assert world.call(managed(world, machine=text(FAR)), "get_foreign_status") == number


def test_foreign_status_of_this_queue_manager(world: World) -> None:
    found = managed(world)
    assert world.call(found, "get_foreign_status") == 1
    with world.held() as h:
        h.engine.queue_manager.foreign_system = True
    assert world.call(found, "get_foreign_status") == 0


@pytest.mark.spec("MQAC-3.3.4.1.6-1")
@pytest.mark.parametrize(
    ("word", "number"), [("PUBLIC", 0), ("PRIVATE", 1), ("MACHINE", 2), ("CONNECTOR", 3), ("MULTICAST", 4)]
)
def test_queue_type(world: World, word: str, number: int) -> None:
    FarManager(world, TYPE=word)
    assert world.call(managed(world, machine=text(FAR)), "get_queue_type") == number


def test_queue_type_of_queues_here(world: World) -> None:
    assert world.call(managed(world), "get_queue_type") == 1
    with world.held() as h:
        name = r"DIRECT=OS:.\SYSTEM$;DEADLETTER"
        h.open(name)
    assert world.call(managed(world, name), "get_queue_type") == 2


@pytest.mark.spec("MQAC-3.3.4.1.7-1")
def test_is_local(world: World) -> None:
    outgoing(world)
    assert world.call(managed(world), "get_is_local") is True
    assert world.call(managed(world, OUTGOING), "get_is_local") is False


@pytest.mark.spec("MQAC-3.3.4.1.8-1")
@pytest.mark.parametrize(("word", "number"), [("YES", 0), ("NO", 1), ("UNKNOWN", 2)])
def test_transactional_status(world: World, word: str, number: int) -> None:
    FarManager(world, XACT=word, TYPE="PRIVATE")
    assert world.call(managed(world, machine=text(FAR)), "get_transactional_status") == number


@pytest.mark.spec("MQAC-3.3.4.1.8-1")
def test_transactional_status_of_queues_here(new_world: Callable[..., World]) -> None:
    """For a public queue it is unknown unless the queue manager is part of a directory."""
    for is_integrated, of_public in ((False, 2), (True, 0)):
        world = new_world(directory_integrated=is_integrated)
        assert world.call(managed(world, transactional=True), "get_transactional_status") == 0
        opened(world, "plain")
        plain = managed(world, r"DIRECT=OS:.\private$\plain")
        assert world.call(plain, "get_transactional_status") == 1
        with world.held() as h:
            queue = h.create(r".\public", transactional=True)
            name = f"PUBLIC={queue.identifier}"
            h.open(name)
        assert world.call(managed(world, name), "get_transactional_status") == of_public


@pytest.mark.parametrize("getter", ["get_foreign_status", "get_queue_type", "get_is_local", "get_transactional_status"])
@pytest.mark.parametrize("value", ["NONSENSE", None])
def test_a_word_that_nobody_knows_is_an_error(world: World, getter: str, value: str | None) -> None:
    far = FarManager(world)
    found = managed(world, machine=text(FAR))
    far.answers = dict.fromkeys(("FOREIGN", "TYPE", "LOCATION", "XACT"), value)
    assert world.status(found, getter) == MQ_ERROR


@pytest.mark.spec("MQAC-3.3.6.1-1")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"PUBLIC={GUID}", QueueFormatType.PUBLIC),
        (f"PRIVATE={GUID}\\0000000a", QueueFormatType.PRIVATE),
        (Q, QueueFormatType.DIRECT),
        (rf"{Q};sub", QueueFormatType.SUBQUEUE),
        (f"MACHINE={GUID};DEADLETTER", QueueFormatType.MACHINE),
        (f"CONNECTOR={GUID}", QueueFormatType.CONNECTOR),
        (f"DL={GUID}", QueueFormatType.DL),
        ("MULTICAST=234.1.1.1:8001", QueueFormatType.MULTICAST),
    ],
)
def test_each_kind_of_name_is_asked_about_as_its_kind(world: World, name: str, kind: QueueFormatType) -> None:
    far = FarManager(world, MESSAGE_COUNT=7)
    found = managed(world, name, text(FAR))
    assert world.call(found, "get_message_count") == 7
    for asked in far.objects:
        assert isinstance(asked.u, QueueFormat)
        assert asked.u.m_qft == kind


def test_more_messages_than_a_long_has_room_for(world: World) -> None:
    FarManager(world, MESSAGE_COUNT=0xFFFF_FFFF)
    assert world.call(managed(world, machine=text(FAR)), "get_message_count") == 0x7FFF_FFFF


def test_a_released_object_has_no_queue(world: World) -> None:
    found = managed(world)
    found.released()
    assert world.status(found, "get_message_count") == UninitializedObject.status
