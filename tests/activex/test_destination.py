"""MSMQDestination (MC-MQAC 3.12) and the names it is given (3.1.6.2, 3.12.6.1)."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from lanner.activex.destination import MSMQDestination
from lanner.activex.names import format_name_from_path
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.tables import IMSMQ_DESTINATION, IMSMQ_PRIVATE_DESTINATION
from lanner.com.automation.values import EMPTY, Variant
from lanner.com.constants import E_NOTIMPL, S_FALSE
from lanner.model.directory_objects import OutgoingQueue, Queue
from lanner.model.errors import StatusError
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import Identity
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import Sid
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
)

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
BOB = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1002"), is_domain_user=True)


@pytest.fixture
def q(world: World) -> Queue:
    with world.held() as h:
        return h.create("q")


@pytest.fixture
def pub(world: World) -> Queue:
    with world.held() as h:
        return h.create(r".\pub")


@pytest.fixture
def destination(world: World) -> MSMQDestination:
    made = MSMQDestination(world.environment)
    world.objects.append(made)
    return made


@pytest.mark.spec("MQAC-3.12.3-1")
def test_a_new_one_is_closed_and_has_no_name(world: World, destination: MSMQDestination) -> None:
    assert world.call(destination, "get_is_open") is False
    assert world.call(destination, "get_format_name") is None
    assert world.call(destination, "get_ads_path") is None
    assert world.call(destination, "get_path_name") == ""
    assert world.status(destination, "open") == MQ_ERROR_ILLEGAL_FORMATNAME


@pytest.mark.spec("MQAC-3.12.4.1.4-1", "MQAC-3.2.4.2.7-1")
def test_what_is_not_implemented(world: World, destination: MSMQDestination) -> None:
    for member in ("get_iads", "get_destinations", "get_properties"):
        assert world.status(destination, member) == E_NOTIMPL
    for member in ("putref_iads", "putref_destinations"):
        assert world.status(destination, member, None) == E_NOTIMPL
    assert IMSMQ_DESTINATION.by_opnum[11].kind == IMSMQ_DESTINATION.by_opnum[19].kind == "propputref"


class TestOpen:
    @pytest.mark.spec("MQAC-3.12.4.1.1-1", "MQAC-3.12.4.1.2-1", "MQAC-3.12.4.1.3-1")
    def test_open_and_close(self, world: World, q: Queue, destination: MSMQDestination) -> None:
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        assert world.status(destination, "close") == S_FALSE
        assert world.call(destination, "open") is None
        descriptor = destination.descriptor
        assert descriptor is not None
        assert (descriptor.access_type.name, descriptor.share_mode.name) == ("SEND", "DENY_NONE")
        assert world.call(destination, "get_is_open") is True
        assert world.status(destination, "open") == S_FALSE
        assert destination.descriptor is descriptor
        assert list(q.open_queue_descriptors.values()) == [descriptor]
        assert world.call(destination, "close") is None
        assert world.call(destination, "get_is_open") is False
        assert descriptor.is_closed
        assert not q.open_queue_descriptors
        assert world.status(destination, "close") == S_FALSE

    @pytest.mark.spec("MQAC-3.12.4.1.1-1")
    @pytest.mark.parametrize(
        ("name", "status"),
        [(r"DIRECT=OS:.\private$\none", MQ_ERROR_QUEUE_NOT_FOUND), ("nonsense", MQ_ERROR_ILLEGAL_FORMATNAME)],
    )
    def test_a_failure_leaves_it_closed(
        self, world: World, destination: MSMQDestination, name: str, status: int
    ) -> None:
        world.call(destination, "put_format_name", name)
        assert world.status(destination, "open") == status
        assert world.call(destination, "get_is_open") is False

    def test_release_closes(self, world: World, q: Queue, destination: MSMQDestination) -> None:
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        world.call(destination, "open")
        destination.released()
        assert not q.open_queue_descriptors

    def test_rights_are_the_callers(self, world: World, q: Queue, destination: MSMQDestination) -> None:
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        with world.held() as h:
            security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl((allow(ALICE.sid, QueueAccess.GENERIC_ALL),)))
            h.engine.set_queue_properties(q, {"security": security.pack()})
        assert world.status(destination, "open", by=BOB) == MQ_ERROR_ACCESS_DENIED
        assert world.status(destination, "open", by=ALICE) == 0


class TestNames:
    @pytest.mark.spec("MQAC-3.12.4.1.11-1")
    def test_any_format_name_will_do(self, world: World, q: Queue, destination: MSMQDestination) -> None:
        with world.held() as h:
            h.create("p")
            _, group = h.directory.add_distribution_list("all", [r"DIRECT=OS:.\private$\q", r"DIRECT=OS:.\private$\p"])
        multiple = r"DIRECT=OS:.\private$\q,DIRECT=OS:.\private$\p"
        for name in (multiple, f"DL={group}", "MULTICAST=224.1.2.3:99", "DIRECT=http://elsewhere/msmq/q"):
            world.call(destination, "put_path_name", r".\private$\q")
            world.call(destination, "put_format_name", name)
            assert world.call(destination, "get_format_name") == name
            assert world.call(destination, "get_path_name") == ""
            assert world.call(destination, "get_ads_path") is None
            assert world.status(destination, "open") == 0
            world.call(destination, "close")

    @pytest.mark.spec("MQAC-3.12.4.1.9-1", "MQAC-3.12.4.1.8-1")
    def test_a_path_name(self, world: World, pub: Queue, destination: MSMQDestination) -> None:
        world.call(destination, "put_ads_path", pub.directory_path)
        world.call(destination, "put_path_name", r"ALPHA\pub")
        assert world.call(destination, "get_path_name") == r"ALPHA\pub"
        assert world.call(destination, "get_format_name") == f"PUBLIC={pub.identifier}"
        assert world.call(destination, "get_ads_path") is None
        for wrong, status in (
            (r".\none", MQ_ERROR_QUEUE_NOT_FOUND),
            ("x", MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
            (None, MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
        ):
            assert world.status(destination, "put_path_name", wrong) == status

    @pytest.mark.spec("MQAC-3.12.4.1.7-1", "MQAC-3.12.4.1.8-1", "MQAC-3.12.6.1-1")
    def test_a_place_in_the_directory(self, world: World, pub: Queue, destination: MSMQDestination) -> None:
        with world.held() as h:
            _, group = h.directory.add_distribution_list("all", [r"DIRECT=OS:.\private$\q"])
            h.directory.add_queue_alias("alias", r"DIRECT=OS:BETA\private$\q")
            users = h.directory._naming.user
            places = {
                pub.directory_path: f"PUBLIC={pub.identifier}",
                pub.directory_path.removeprefix("LDAP://"): f"PUBLIC={pub.identifier}",
                f"LDAP://dc.example.com/{pub.full_path}": f"PUBLIC={pub.identifier}",
                f"LDAP://{users('all')}": f"DL={group}",
                f"LDAP://{users('alias')}": r"DIRECT=OS:BETA\private$\q",
            }
        for place, name in places.items():
            world.call(destination, "put_path_name", r".\pub")
            assert world.call(destination, "put_ads_path", place) is None
            assert world.call(destination, "get_ads_path") == place
            assert world.call(destination, "get_format_name") == name
            assert world.call(destination, "get_path_name") == ""

    @pytest.mark.spec("MQAC-3.12.6.1-2", "MQAC-3.12.4.1.7-1")
    def test_no_such_place(self, world: World, pub: Queue, destination: MSMQDestination) -> None:
        """Another kind of object and an unreachable directory give the same error."""
        with world.held() as h:
            h.directory.add_user("alice", ALICE.sid.pack())
            user = f"LDAP://{h.directory._naming.user('alice')}"
        for place in ("LDAP://CN=none", user, "", None):
            assert world.status(destination, "put_ads_path", place) == MQ_ERROR_QUEUE_NOT_FOUND
        with world.held() as h:
            h.directory.connected = False
        assert world.status(destination, "put_ads_path", pub.directory_path) == MQ_ERROR_QUEUE_NOT_FOUND
        with world.held() as h:
            h.directory.connected = True
            h.engine.queue_manager.directory_offline = True
        assert world.status(destination, "put_ads_path", pub.directory_path) == MQ_ERROR_QUEUE_NOT_FOUND

    @pytest.mark.spec("MQAC-3.12.4.1.11-2")
    @pytest.mark.parametrize(
        "member",
        [
            "put_format_name",
            pytest.param("put_path_name", marks=pytest.mark.spec("MQAC-3.12.4.1.9-1/an open one")),
            pytest.param("put_ads_path", marks=pytest.mark.spec("MQAC-3.12.4.1.7-1/an open one")),
        ],
    )
    def test_an_open_one_opens_the_new_target(
        self, world: World, q: Queue, pub: Queue, destination: MSMQDestination, member: str
    ) -> None:
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        world.call(destination, "open")
        name = {"put_format_name": r"DIRECT=OS:.\pub", "put_path_name": r".\pub"}.get(member, pub.directory_path)
        world.call(destination, member, name)
        assert not q.open_queue_descriptors
        assert destination.descriptor is not None
        assert destination.descriptor.queue is pub
        # What cannot be opened stays closed.
        assert world.status(destination, "put_format_name", r"DIRECT=OS:.\private$\none") == MQ_ERROR_QUEUE_NOT_FOUND
        assert world.call(destination, "get_is_open") is False


class TestHandle:
    """IMSMQPrivateDestination."""

    @pytest.mark.spec("MQAC-3.12.4.2.1-1")
    def test_get(self, world: World, q: Queue, destination: MSMQDestination) -> None:
        assert world.call(destination, "get_handle") == Variant(VT.I8, 0)
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        world.call(destination, "open")
        assert destination.descriptor is not None
        assert world.call(destination, "get_handle") == Variant(VT.I8, destination.descriptor.handle)
        assert [member.opnum for member in IMSMQ_PRIVATE_DESTINATION.members] == [7, 8]

    def handle(self, world: World, by: Identity) -> int:
        made = MSMQQueueInfo(world.environment)
        made.format_name = r"DIRECT=OS:BETA\private$\q"
        queue = world.call(made, "open", 2, 0, by=by)
        world.objects.append(queue)
        return int(world.call(queue, "get_handle"))

    @pytest.mark.spec("MQAC-3.12.4.2.2-1")
    def test_put(self, world: World, destination: MSMQDestination) -> None:
        """Messages go to the queue of the handle; its opener closes it."""
        handle = self.handle(world, ALICE)
        world.call(destination, "put_path_name", r".\private$\x")
        assert world.call(destination, "put_handle", Variant(VT.I8, handle), by=ALICE) is None
        assert world.call(destination, "get_path_name") == ""
        assert world.call(destination, "get_handle") == Variant(VT.I8, handle)
        assert world.call(destination, "get_is_open") is True
        world.call(destination, "close")
        with world.held() as h:
            assert not h.engine.descriptor(handle).is_closed

    @pytest.mark.spec("MQAC-3.12.4.2.2-1")
    @pytest.mark.parametrize(
        "value",
        [Variant(VT.I8, 0), Variant(VT.I8, -1), Variant(VT.I4, -1), EMPTY, Variant(VT.NULL), Variant(VT.I8, 999_999)],
    )
    def test_no_handle(self, world: World, q: Queue, destination: MSMQDestination, value: Variant) -> None:
        world.call(destination, "put_format_name", r"DIRECT=OS:.\private$\q")
        world.call(destination, "open")
        assert world.status(destination, "put_handle", value) == 0
        assert world.call(destination, "get_is_open") is False
        assert not q.open_queue_descriptors
        assert world.call(destination, "get_handle") == Variant(VT.I8, 0)

    @pytest.mark.spec("MQAC-3.12.4.2.2-1")
    @pytest.mark.parametrize("value", [Variant(VT.I8, 0), Variant(VT.I8, 999_999)])
    def test_no_handle_clears_the_names(
        self, world: World, pub: Queue, destination: MSMQDestination, value: Variant
    ) -> None:
        for member, name in (("path_name", r".\pub"), ("ads_path", pub.directory_path)):
            world.call(destination, f"put_{member}", name)
            assert world.call(destination, f"get_{member}") == name
            assert world.status(destination, "put_handle", value) == 0
            assert world.call(destination, "get_path_name") == ""
            assert world.call(destination, "get_ads_path") is None

    def test_nobody_sends_through_what_another_has_opened(self, world: World, destination: MSMQDestination) -> None:
        handle = self.handle(world, ALICE)
        assert world.status(destination, "put_handle", Variant(VT.I8, handle), by=BOB) == 0
        assert world.call(destination, "get_is_open") is False


def hash_of(name: str) -> int:
    value = 0
    for character in name.encode("ascii"):
        value = (33 * value + character) % 2**32
    return value


class TestFormatNameFromPath:
    """3.1.6.2."""

    def status(self, world: World, path: str) -> int:
        with pytest.raises(StatusError) as caught:
            format_name_from_path(world.environment, path)
        return caught.value.status

    @pytest.mark.spec("MQAC-3.1.6.2-1", "MQAC-3.1.6.2-2")
    def test_public(self, world: World, pub: Queue) -> None:
        assert format_name_from_path(world.environment, r".\pub") == f"PUBLIC={pub.identifier}"
        assert format_name_from_path(world.environment, r"alpha\PUB") == f"PUBLIC={pub.identifier}"
        assert self.status(world, r".\none") == MQ_ERROR_QUEUE_NOT_FOUND
        with world.held() as h:
            h.directory.connected = False
        assert self.status(world, r".\pub") == MQ_ERROR_QUEUE_NOT_FOUND
        with world.held() as h:
            h.directory.connected = True
            h.engine.queue_manager.directory_offline = True
        assert self.status(world, r".\pub") == MQ_ERROR_QUEUE_NOT_FOUND

    @pytest.mark.spec("MQAC-3.1.6.2-3")
    @pytest.mark.parametrize("path", [r".\private$\q", r"ALPHA\private$\q", r"BETA\private$\q"])
    def test_private_in_a_workgroup(self, world: World, path: str) -> None:
        assert format_name_from_path(world.environment, path) == f"DIRECT=OS:{path}"

    @pytest.mark.spec("MQAC-3.1.6.2-4")
    @pytest.mark.parametrize("name", ["q", "orders", "a" * 100])
    def test_private_in_a_domain(self, new_world: Callable[..., World], name: str) -> None:
        """That name means the queue for every client."""
        world = new_world(directory_integrated=True)
        manager = world.engine.queue_manager.identifier
        expected = rf"PRIVATE={manager}\{hash_of(name):08x}"
        assert format_name_from_path(world.environment, rf".\private$\{name}") == expected
        with world.held() as h:
            h.create("other")
            queue = h.create(name)
            assert h.engine.find_queue(h.name(expected)) is queue
        destination = MSMQDestination(world.environment)
        world.call(destination, "put_path_name", rf".\private$\{name.upper()}")
        assert world.call(destination, "get_format_name") == expected
        world.call(destination, "open")
        world.objects.append(destination)
        assert destination.descriptor is not None
        assert destination.descriptor.queue is queue
        with world.held() as h:
            h.engine.delete_queue(queue)
            assert h.engine.find_queue(h.name(expected)) is None

    def test_private_of_another_computer(self, new_world: Callable[..., World]) -> None:
        world = new_world(directory_integrated=True)
        assert format_name_from_path(world.environment, r"BETA\private$\q") == r"DIRECT=OS:BETA\private$\q"

    @pytest.mark.spec("MQAC-3.1.6.2-5")
    @pytest.mark.parametrize("path", [r".\system$;DEADLETTER", "q", "", r".\private$\a\b"])
    def test_neither(self, world: World, path: str) -> None:
        assert self.status(world, path) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    @pytest.mark.spec("MQAC-3.1.6.2-6")
    def test_subqueues(self, world: World, pub: Queue) -> None:
        assert format_name_from_path(world.environment, r".\private$\q;sub") == r"DIRECT=OS:.\private$\q;sub"
        assert format_name_from_path(world.environment, r".\pub;sub") == f"PUBLIC={pub.identifier};sub"


@pytest.mark.spec("MQAC-3.1.1.2-1")
def test_messages_go_straight_or_wait(world: World, q: Queue, destination: MSMQDestination) -> None:
    """3.1.1.2: into a local queue at once; for another computer they wait in an outgoing queue."""
    for name in (r"DIRECT=OS:.\private$\q", r"DIRECT=OS:BETA\private$\q"):
        world.call(destination, "put_format_name", name)
        world.call(destination, "open")
        assert destination.descriptor is not None
        with world.held() as h:
            h.engine.enqueue_message_to_an_open_queue(destination.descriptor, h.properties(b"x"))
            queue = destination.descriptor.queue
        assert queue is not None
        assert queue.message_count == 1
        assert isinstance(queue, OutgoingQueue) is ("BETA" in name)
        world.call(destination, "close")


def test_unused_identifiers_are_not_public(world: World, destination: MSMQDestination) -> None:
    world.call(destination, "put_format_name", f"PUBLIC={uuid.uuid4()}")
    assert world.status(destination, "open") == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
