"""MSMQQueueInfo (MC-MQAC 3.10)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable

import pytest

from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.tables import (
    IMSMQ_QUEUE_INFO,
    IMSMQ_QUEUE_INFO2,
    IMSMQ_QUEUE_INFO3,
    IMSMQ_QUEUE_INFO4,
    MSMQ_QUEUE_INFO,
)
from lanner.com.automation.values import EMPTY, MISSING, Variant
from lanner.com.constants import E_NOTIMPL
from lanner.model.directory_objects import Enterprise, OutgoingQueue, Queue, QueueManager
from lanner.model.enums import DirectoryOperationResult, MessagePrivacyLevel, QueuePrivacyLevel
from lanner.model.errors import RemoteMachineNotAvailable, StatusError
from lanner.rpc.server import RpcServer
from lanner.security.access_masks import QueueAccess, QueueManagerAccess
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.profile import Profile
from lanner.services.ports import ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.remote_queues import RemoteQueues
from lanner.wire.security_descriptor import AceType, Acl, SecurityDescriptor, allow
from lanner.wire.sid import ANONYMOUS_LOGON, BUILTIN_ADMINISTRATORS, EVERYONE, Sid
from lanner.wire.vartypes import VT
from tests.activex.world import World, called_by
from tests.engine.harness import START_TIME
from tests.security.samples import signing_key
from tests.statuses import (
    MQ_ERROR_ACCESS_DENIED,
    MQ_ERROR_CANNOT_IMPERSONATE_CLIENT,
    MQ_ERROR_DS_ERROR,
    MQ_ERROR_ILLEGAL_FORMATNAME,
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
    MQ_ERROR_INVALID_PARAMETER,
    MQ_ERROR_QUEUE_EXISTS,
    MQ_ERROR_QUEUE_NOT_FOUND,
    MQ_ERROR_SHARING_VIOLATION,
    MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
    MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
)

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
GUEST = Identity("guest", Sid.parse("S-1-5-21-1-2-3-501"), is_domain_user=True, is_guest=True)
STRANGER = Identity("stranger", Sid.parse("S-1-5-21-9-9-9-1001"))
TRUE = Variant(VT.BOOL, value=True)
FALSE = Variant(VT.BOOL, value=False)
MULTIPLE = r"DIRECT=OS:.\private$\q,DIRECT=OS:.\private$\p"
HTTP = "DIRECT=http://elsewhere/msmq/q"
MULTICAST = "MULTICAST=224.1.2.3:4567"
NOT_ONE = [MULTIPLE, HTTP, MULTICAST]
EPOCH = 25569.0


def info(world: World, path: str | None = None, *, name: str | None = None) -> MSMQQueueInfo:
    made = MSMQQueueInfo(world.environment)
    if path is not None:
        world.call(made, "put_path_name", path)
    if name is not None:
        world.call(made, "put_format_name", name)
    return made


def private(name: str = "q") -> str:
    return rf".\private$\{name}"


@pytest.fixture
def document(new_world: Callable[..., World]) -> World:
    """Make a queue manager with the defaults of the documents."""
    return new_world(profile=Profile.DOCUMENT)


@pytest.fixture
def q(world: World) -> Queue:
    with world.held() as h:
        return h.create("q")


@pytest.fixture
def pub(world: World) -> Queue:
    with world.held() as h:
        return h.create(r".\pub")


def find(world: World, path: str = r"DIRECT=OS:.\private$\q") -> Queue:
    with world.held() as h:
        return h.queue(path)


class TestRevisions:
    @pytest.mark.spec("MQAC-3.10.4-1")
    def test_each_revision_has_its_own_slots(self) -> None:
        """3.10.4, behind the four of IDispatch; Open returns the MSMQQueue of the same revision."""
        slots = [[member.opnum for member in table.members] for table in MSMQ_QUEUE_INFO.interfaces]
        assert slots == [list(range(7, last + 1)) for last in (36, 40, 45, 45)]
        for table, own in zip(MSMQ_QUEUE_INFO.interfaces, slots, strict=True):
            assert sorted(table.by_opnum) == [3, 4, 5, 6, *own]
        opens = [table.by_opnum[34].parameters[-1].type for table in MSMQ_QUEUE_INFO.interfaces]
        assert opens == ["IMSMQQueue**", "IMSMQQueue2**", "IMSMQQueue3**", "IMSMQQueue4**"]
        assert MSMQQueueInfo.interfaces == (IMSMQ_QUEUE_INFO, IMSMQ_QUEUE_INFO2, IMSMQ_QUEUE_INFO3, IMSMQ_QUEUE_INFO4)

    @pytest.mark.spec("MQAC-3.10.4.1.33-1", "MQAC-3.2.4.2.7-1")
    def test_security_and_properties_are_not_implemented(self, world: World, q: Queue) -> None:
        made = info(world, private())
        assert world.status(made, "get_security") == E_NOTIMPL
        assert world.status(made, "put_security", EMPTY) == E_NOTIMPL
        assert world.status(made, "get_properties") == E_NOTIMPL


class TestProperties:
    @pytest.mark.spec("MQAC-3.10.3-1")
    def test_a_new_object_has_the_defaults_of_a_queue(self, world: World) -> None:
        made = info(world)
        assert world.call(made, "get_format_name") is None
        assert (made.is_refreshed, made.is_application_queue, made.is_queue_created) == (False, False, False)
        queue = made.queue
        assert (queue.label, queue.type.int, queue.journaling, queue.authentication) == ("", 0, False, False)
        assert (queue.quota, queue.journal_quota, queue.base_priority) == (0xFFFFFFFF, 0xFFFFFFFF, 0)
        assert queue.privacy_level == 1

    GETTERS = (
        "get_queue_guid",
        "get_service_type_guid",
        "get_label",
        "get_path_name",
        "get_is_transactional",
        "get_is_transactional2",
        "get_priv_level",
        "get_journal",
        "get_quota",
        "get_base_priority",
        "get_create_time",
        "get_modify_time",
        "get_authenticate",
        "get_journal_quota",
        "get_path_name_dns",
        "get_multicast_address",
        "get_ads_path",
    )

    @pytest.mark.spec("MQAC-3.10.4.1.1-1", "MQAC-3.10.4.1.1-2")
    @pytest.mark.parametrize("getter", GETTERS)
    def test_getters_refresh_first(self, world: World, pub: Queue, getter: str) -> None:
        """A getter returns the error of Refresh if that fails."""
        made = info(world, r".\pub")
        assert world.status(made, getter) == 0
        assert made.is_refreshed
        assert world.status(info(world, r".\none"), getter) == MQ_ERROR_QUEUE_NOT_FOUND
        assert world.status(info(world, "nonsense"), getter) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
        assert world.status(info(world), getter) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    @pytest.mark.spec("MQAC-3.10.4.1.1-1")
    def test_getters_do_not_refresh_again(self, world: World, q: Queue) -> None:
        made = info(world, private())
        assert world.call(made, "get_label") == ""
        with world.held() as h:
            h.engine.set_queue_properties(q, {"label": "later"})
        assert world.call(made, "get_label") == ""
        world.call(made, "refresh")
        assert world.call(made, "get_label") == "later"

    @pytest.mark.spec("MQAC-3.10.4.1.1-3")
    def test_queue_guid(self, world: World, pub: Queue) -> None:
        assert uuid.UUID(world.call(info(world, r".\pub"), "get_queue_guid")) == pub.identifier
        system = info(world, name=r"DIRECT=OS:.\system$;DEADLETTER")
        assert world.call(system, "get_queue_guid") is None

    @pytest.mark.spec("MQAC-3.10.4.1.3-1", "MQAC-3.10.4.1.4-1", "MQAC-3.10.4.1.30-2", "MQAC-3.10.4.1.29-2")
    def test_puts_change_the_object_until_update(self, world: World, q: Queue) -> None:
        made = info(world, private())
        world.call(made, "refresh")
        kind = uuid.uuid4()
        puts: list[tuple[str, object, str, object, object]] = [
            ("service_type_guid", f"{{{kind}}}", "type", kind, f"{{{str(kind).upper()}}}"),
            ("label", "orders", "label", "orders", "orders"),
            ("priv_level", 2, "privacy_level", QueuePrivacyLevel.BODY, 2),
            ("journal", 1, "journaling", True, 1),
            ("quota", 1000, "quota", 1000, 1000),
            ("authenticate", 1, "authentication", True, 1),
            ("journal_quota", 500, "journal_quota", 500, 500),
            ("multicast_address", "224.1.2.3:99", "multicast_address", "224.1.2.3:99", "224.1.2.3:99"),
        ]
        before = {attribute: getattr(q, attribute) for _, _, attribute, _, _ in puts}
        for name, value, _, _, told in puts:
            assert world.call(made, f"put_{name}", value) is None
            assert world.call(made, f"get_{name}") == told
        assert {attribute: getattr(q, attribute) for attribute in before} == before
        assert world.call(made, "update") is None
        assert [getattr(q, attribute) for _, _, attribute, _, _ in puts] == [stored for _, _, _, stored, _ in puts]
        fresh = info(world, private())
        assert [world.call(fresh, f"get_{name}") for name, *_ in puts] == [told for *_, told in puts]

    @pytest.mark.spec("MQAC-3.10.4.1.29-2")
    def test_refresh_discards_what_was_not_saved(self, world: World, q: Queue) -> None:
        made = info(world, private())
        world.call(made, "put_label", "unsaved")
        world.call(made, "put_quota", 7)
        world.call(made, "refresh")
        assert made.is_refreshed
        assert world.call(made, "get_label") == ""
        assert world.call(made, "get_quota") == -1
        world.call(made, "update")
        assert (q.label, q.quota) == ("", 0xFFFFFFFF)

    @pytest.mark.spec("MQAC-3.10.4.1.7-1", "MQAC-3.10.4.1.9-1")
    def test_naming_another_queue(self, world: World, q: Queue) -> None:
        """Putting a name renames nothing; the other name is forgotten, and what was read."""
        made = info(world, private())
        world.call(made, "refresh")
        assert made.is_application_queue
        world.call(made, "put_path_name", private("other"))
        assert world.call(made, "get_format_name") is None
        assert (made.is_refreshed, made.is_application_queue, made.is_queue_created) == (False, False, False)
        assert q.pathname == r"ALPHA\private$\q"
        world.call(made, "put_path_name", private())
        world.call(made, "refresh")
        world.call(made, "put_format_name", r"DIRECT=OS:.\private$\other")
        assert made.path_name is None
        assert world.call(made, "get_format_name") == r"DIRECT=OS:.\private$\other"
        assert (made.is_refreshed, made.is_application_queue, made.is_queue_created) == (False, False, False)

    @pytest.mark.spec("MQAC-3.10.4.1.8-1")
    def test_format_name_is_derived_when_it_is_needed(self, world: World, pub: Queue, q: Queue) -> None:
        made = info(world, r".\pub")
        assert world.call(made, "get_format_name") is None
        assert not made.is_refreshed
        world.call(made, "refresh")
        assert world.call(made, "get_format_name") == f"PUBLIC={pub.identifier}"
        opened = info(world, private())
        world.objects.append(world.call(opened, "open", 2, 0))
        assert (
            world.call(opened, "get_format_name")
            == rf"PRIVATE={world.engine.queue_manager.identifier}\{q.private_queue_number:08x}"
        )
        updated = info(world, private())
        world.call(updated, "update")
        assert world.call(updated, "get_format_name") == world.call(opened, "get_format_name")
        world.call(updated, "delete")
        assert world.call(updated, "get_format_name") is None
        world.call(updated, "put_path_name", private("new"))
        world.call(updated, "create")
        assert str(world.call(updated, "get_format_name")).startswith("PRIVATE=")

    @pytest.mark.spec("MQAC-3.10.4.1.10-1")
    @pytest.mark.parametrize("transactional", [False, True])
    def test_is_transactional(self, world: World, transactional: bool) -> None:
        with world.held() as h:
            h.create("q", transactional=transactional)
        made = info(world, private())
        assert world.call(made, "get_is_transactional") == int(transactional)
        assert world.call(made, "get_is_transactional2") is transactional

    @pytest.mark.spec("MQAC-3.10.4.1.11-1")
    @pytest.mark.parametrize(("level", "number"), [("NONE", 0), ("OPTIONAL", 1), ("BODY", 2)])
    def test_priv_level(self, world: World, level: str, number: int) -> None:
        with world.held() as h:
            h.create("q", privacy_level=QueuePrivacyLevel[level])
        assert world.call(info(world, private()), "get_priv_level") == number
        system = info(world, name=r"DIRECT=OS:.\system$;JOURNAL")
        assert world.call(system, "get_priv_level") == 1
        # What is put into the object after it was read changes nothing: a journal has no level.
        world.call(system, "put_priv_level", 2)
        assert world.call(system, "get_priv_level") == 1

    @pytest.mark.spec("MQAC-3.10.4.1.13-1", "MQAC-3.10.4.1.21-1")
    def test_everything_but_zero_turns_on(self, world: World, q: Queue) -> None:
        made = info(world, private())
        world.call(made, "refresh")
        for name, attribute in (("journal", "journaling"), ("authenticate", "authentication")):
            for value, expected in ((5, True), (0, False), (-1, True)):
                world.call(made, f"put_{name}", value)
                assert world.call(made, f"get_{name}") == int(expected)
                world.call(made, "update")
                assert getattr(q, attribute) is expected

    @pytest.mark.spec(
        "MQAC-3.10.4.1.29-3",
        "MQAC-3.10.4.1.13-1",
        "MQAC-3.10.4.1.15-1",
        "MQAC-3.10.4.1.19-1",
        "MQAC-3.10.4.1.21-1",
        "MQAC-3.10.4.1.23-1",
    )
    @pytest.mark.parametrize("name", [r"DIRECT=OS:.\system$;DEADXACT", "MACHINE={};DEADLETTER"])
    def test_a_system_queue_has_fixed_properties(self, world: World, name: str) -> None:
        made = info(world, name=name.format(world.engine.queue_manager.identifier))
        for put, value in (("journal", 1), ("authenticate", 1), ("quota", 5), ("journal_quota", 5)):
            world.call(made, f"put_{put}", value)
        world.call(made, "refresh")
        assert made.is_refreshed
        assert not made.is_application_queue
        assert world.call(made, "get_journal") == 0
        assert world.call(made, "get_authenticate") == 0
        assert world.call(made, "get_quota") == -1
        assert world.call(made, "get_journal_quota") == -1
        assert world.call(made, "get_modify_time") == Variant(VT.DATE, EPOCH)

    @pytest.mark.spec("MQAC-3.10.4.1.15-1", "MQAC-3.10.4.1.23-1")
    @pytest.mark.parametrize("value", [0, 1, 0x7FFFFFFF, -1, -2])
    def test_quotas_are_kilobytes_unscaled(self, world: World, q: Queue, value: int) -> None:
        """A long carries 32 bits with a sign."""
        made = info(world, private())
        world.call(made, "refresh")
        world.call(made, "put_quota", value)
        world.call(made, "put_journal_quota", value)
        world.call(made, "update")
        assert (q.quota, q.journal_quota) == (value & 0xFFFFFFFF, value & 0xFFFFFFFF)
        fresh = info(world, private())
        assert (world.call(fresh, "get_quota"), world.call(fresh, "get_journal_quota")) == (value, value)

    @pytest.mark.spec("MQAC-3.10.4.1.17-1", "MQAC-3.10.4.1.18-1")
    def test_base_priority_is_for_public_names(self, world: World, pub: Queue, q: Queue) -> None:
        made = info(world, name=f"PUBLIC={pub.identifier}")
        world.call(made, "refresh")
        for value in (-32768, 32767, 12):
            assert world.status(made, "put_base_priority", value) == 0
            assert world.call(made, "get_base_priority") == value
        world.call(made, "update")
        assert pub.base_priority == 12
        for value in (-32769, 32768):
            assert world.status(made, "put_base_priority", value) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert world.call(made, "get_base_priority") == 12
        direct = info(world, name=r"DIRECT=OS:.\pub")
        assert world.call(direct, "get_base_priority") == 0
        assert world.status(direct, "put_base_priority", 1) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert world.status(info(world, private()), "put_base_priority", 1) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE

    @pytest.mark.spec("MQAC-3.10.4.1.19-1", "MQAC-2.2.1-3")
    def test_times_are_dates_in_utc(self, world: World, q: Queue) -> None:
        created = EPOCH + START_TIME / 86400
        world.tick(3600)
        with world.held() as h:
            h.engine.set_queue_properties(q, {"label": "later"})
        made = info(world, private())
        assert world.call(made, "get_create_time") == Variant(VT.DATE, created)
        assert world.call(made, "get_modify_time") == Variant(VT.DATE, created + 1 / 24)

    @pytest.mark.spec("MQAC-3.10.4.1.37-1")
    def test_multicast_address(self, world: World, q: Queue) -> None:
        made = info(world, private())
        assert world.call(made, "get_multicast_address") == ""
        world.call(made, "put_multicast_address", "224.1.2.3:4567")
        assert find(world).multicast_address is None
        world.call(made, "update")
        assert find(world).multicast_address == "224.1.2.3:4567"
        world.call(made, "put_multicast_address", "")
        world.call(made, "update")
        assert find(world).multicast_address is None

    @pytest.mark.spec("MQAC-3.10.4.1.31-1")
    def test_paths_of_public_queues(self, world: World, pub: Queue, q: Queue) -> None:
        made = info(world, r".\pub")
        assert world.call(made, "get_path_name_dns").lower() == r"alpha.example.com\pub"
        assert world.call(made, "get_ads_path") == pub.directory_path
        assert pub.directory_path.startswith("LDAP://CN=pub,")
        refused = [info(world, private()), info(world, r".\none"), *(info(world, name=name) for name in NOT_ONE)]
        for other in refused:
            assert world.status(other, "get_path_name_dns") & 0x80000000
            assert world.status(other, "get_ads_path") & 0x80000000

    @pytest.mark.parametrize(("name", "value"), [("service_type_guid", "x"), ("priv_level", 3)])
    def test_values_that_are_none(self, world: World, name: str, value: object) -> None:
        assert world.status(info(world), f"put_{name}", value) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE


def dacl(queue: Queue) -> list[tuple[Sid, int]]:
    assert queue.security is not None
    descriptor = SecurityDescriptor.unpack(queue.security)
    assert descriptor.dacl is not None
    assert {ace.ace_type for ace in descriptor.dacl.aces} <= {AceType.ACCESS_ALLOWED}
    return [(ace.sid, ace.mask) for ace in descriptor.dacl.aces]


READ = QueueAccess.GET_QUEUE_PROPERTIES | QueueAccess.GET_QUEUE_PERMISSIONS
ALL = QueueAccess.GENERIC_ALL


def create(world: World, by: Identity, *arguments: Variant) -> Queue:
    """The caller may create queues."""
    with world.held() as h:
        entries = Acl((allow(EVERYONE, QueueManagerAccess.CREATE_QUEUE),))
        h.engine.queue_manager.security = SecurityDescriptor(owner=ALICE.sid, dacl=entries).pack()
    world.call(info(world, private()), "create", *arguments, by=by)
    return find(world)


class TestCreate:
    @pytest.mark.spec("MQAC-3.10.4.1.26-1")
    @pytest.mark.parametrize("path", [None, "", "q", r"\private$\q", ".\\", r".\private$", "nothing\\"])
    def test_without_a_whole_path_nothing_is_created(self, world: World, path: str | None) -> None:
        with world.held() as h:
            before = set(h.engine.queue_manager.queue_collection)
        assert world.status(info(world, path), "create") == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
        with world.held() as h:
            assert set(h.engine.queue_manager.queue_collection) == before

    @pytest.mark.spec("MQAC-3.10.4.1.26-2")
    @pytest.mark.parametrize("path", [r"BETA\private$\q", r"BETA\q"])
    def test_on_another_computer(self, world: World, path: str) -> None:
        assert world.status(info(world, path), "create") == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
        assert world.status(info(world, path.replace("BETA", "ALPHA")), "create") == 0

    @pytest.mark.spec("MQAC-3.10.4.1.26-3")
    def test_one_that_is_there(self, world: World, q: Queue, pub: Queue) -> None:
        assert world.status(info(world, private("Q")), "create") == MQ_ERROR_QUEUE_EXISTS
        assert world.status(info(world, r"ALPHA\pub"), "create") == MQ_ERROR_QUEUE_EXISTS
        # It exists also for users who could not create it.
        assert world.status(info(world, private()), "create", by=ANONYMOUS) == MQ_ERROR_QUEUE_EXISTS

    @pytest.mark.spec("MQAC-3.10.4.1.26-4", "MQAC-3.1.4.1-1")
    def test_needs_the_right_to_create(self, world: World) -> None:
        with world.held() as h:
            h.engine.queue_manager.security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl(())).pack()
        made = info(world, private())
        assert world.status(made, "create", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert not made.is_queue_created
        with world.held() as h:
            assert h.engine.find_queue(h.name("q")) is None

    @pytest.mark.spec("MQAC-3.10.4.1.26-5", "MQAC-3.10.4.1.26-6", "MQAC-3.10.4.1.26-8")
    def test_all_that_was_put_is_created(self, world: World) -> None:
        made = info(world, private())
        kind = uuid.uuid4()
        world.call(made, "put_label", "orders")
        world.call(made, "put_service_type_guid", str(kind))
        world.call(made, "put_journal", 1)
        world.call(made, "put_quota", 10)
        world.call(made, "put_journal_quota", 20)
        world.call(made, "put_authenticate", 1)
        world.call(made, "put_priv_level", 2)
        world.call(made, "put_multicast_address", "239.0.0.1:1")
        assert world.call(made, "create", TRUE) is None
        assert made.is_queue_created
        assert made.is_application_queue
        queue = find(world)
        assert queue.transactional
        assert (queue.label, queue.type, queue.journaling, queue.quota) == ("orders", kind, True, 10)
        assert (queue.journal_quota, queue.authentication, queue.privacy_level) == (20, True, 2)
        assert queue.multicast_address == "239.0.0.1:1"
        assert uuid.UUID(world.call(made, "get_queue_guid")) == queue.identifier
        with world.held() as h:
            assert h.store.pending_batch() <= h.store.synced

    @pytest.mark.spec("MQAC-3.10.4.1.26-5")
    @pytest.mark.parametrize("argument", [MISSING, FALSE, Variant(VT.I2, 0), Variant(VT.BYREF | VT.BOOL, value=False)])
    def test_transactional_only_when_asked(self, world: World, argument: Variant) -> None:
        world.call(info(world, private()), "create", argument)
        assert not find(world).transactional

    @pytest.mark.spec("MQAC-3.10.4.1.26-6")
    def test_a_failing_event_is_reported_as_it_is(self, world: World) -> None:
        made = info(world, private())
        world.call(made, "put_label", "x" * 125)
        assert world.status(made, "create") == MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert not made.is_queue_created
        world.call(made, "put_label", "x" * 124)
        assert world.status(made, "create") == 0

    @pytest.mark.spec("MQAC-3.10.4.1.26-6")
    def test_a_public_queue_is_in_the_directory(self, world: World) -> None:
        made = info(world, r"ALPHA\pub")
        world.call(made, "create")
        assert world.call(made, "get_format_name") == f"PUBLIC={find(world, rf'DIRECT=OS:.{chr(92)}pub').identifier}"
        assert world.call(made, "get_ads_path").startswith("LDAP://")


class TestSecurityDescriptor:
    def create(self, world: World, by: Identity, *arguments: Variant) -> Queue:
        return create(world, by, *arguments)

    @pytest.mark.spec("MQAC-3.10.4.1.26.1-1", "MQAC-3.10.4.1.26.1-5", "MQAC-3.10.4.1.26-7")
    def test_of_a_domain_user(self, document: World) -> None:
        queue = self.create(document, ALICE)
        assert dacl(queue) == [(EVERYONE, READ), (ALICE.sid, ALL)]
        assert queue.security is not None
        assert SecurityDescriptor.unpack(queue.security).owner == ALICE.sid
        # Self-relative: MS-DTYP 2.4.6 Control.
        assert int.from_bytes(queue.security[2:4], "little") & 0x8000

    @pytest.mark.spec("MQAC-3.10.4.1.26.1-2", "MQAC-3.10.4.1.26.1-5")
    @pytest.mark.parametrize(("by", "owner"), [(STRANGER, ANONYMOUS_LOGON), (GUEST, GUEST.sid)])
    def test_of_nobody_of_the_domain(self, document: World, by: Identity, owner: Sid) -> None:
        queue = self.create(document, by)
        assert dacl(queue) == [(EVERYONE, ALL)]
        assert queue.security is not None
        assert SecurityDescriptor.unpack(queue.security).owner == owner

    @pytest.mark.spec("MQAC-3.10.4.1.26.1-3", "MQAC-3.10.4.1.26.1-4", "MQAC-3.10.4.1.26.1-5")
    @pytest.mark.parametrize("srmp", [False, True])
    def test_the_machine_and_anonymous_senders(self, new_world: Callable[..., World], srmp: bool) -> None:
        world = new_world(directory_integrated=True, profile=Profile.DOCUMENT)
        with world.held() as h:
            machine = h.directory.computer_sid("ALPHA")
            h.engine.queue_manager.srmp_http_support = srmp
        assert machine is not None
        write = QueueAccess.WRITE_MESSAGE if srmp else 0
        anonymous = [(ANONYMOUS_LOGON, write)] if srmp else []
        expected = [(EVERYONE, READ | write), *anonymous, (Sid.unpack(machine), READ), (ALICE.sid, ALL)]
        assert dacl(self.create(world, ALICE)) == expected

    @pytest.mark.spec("MQAC-3.10.4.1.26-7")
    def test_world_readable(self, document: World) -> None:
        """Everyone may receive and peek as well, and no more than that."""
        queue = self.create(document, ALICE, MISSING, TRUE)
        assert dacl(queue) == [(EVERYONE, READ | QueueAccess.RECEIVE_MESSAGE), (ALICE.sid, ALL)]
        opened = document.call(info(document, private()), "open", 1, 0, by=STRANGER)
        document.objects.append(opened)
        assert document.status(info(document, private()), "open", 2, 0, by=STRANGER) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.parametrize("by", [ALICE, STRANGER], ids=lambda by: by.name)
    def test_in_the_safe_profile_the_creator_owns_and_everybody_sends(self, world: World, by: Identity) -> None:
        queue = self.create(world, by)
        senders = [(EVERYONE, QueueAccess.WRITE_MESSAGE), (ANONYMOUS_LOGON, QueueAccess.WRITE_MESSAGE)]
        assert dacl(queue) == [(by.sid, ALL), (BUILTIN_ADMINISTRATORS, ALL), *senders]
        assert queue.security is not None
        assert SecurityDescriptor.unpack(queue.security).owner == by.sid

    def test_in_the_safe_profile_a_guest_owns_nothing(self, world: World) -> None:
        queue = self.create(world, GUEST)
        assert queue.security is not None
        assert SecurityDescriptor.unpack(queue.security).owner == BUILTIN_ADMINISTRATORS
        assert GUEST.sid not in {sid for sid, _ in dacl(queue)}

    def test_in_the_safe_profile_world_readable_adds_to_the_default(self, world: World) -> None:
        queue = self.create(world, ALICE, MISSING, TRUE)
        assert (EVERYONE, QueueAccess.RECEIVE_MESSAGE | QueueAccess.WRITE_MESSAGE) in dacl(queue)
        opened = world.call(info(world, private()), "open", 1, 0, by=STRANGER)
        world.objects.append(opened)
        assert world.status(info(world, private()), "open", 1, 0, by=ANONYMOUS) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-3.10.4.1.26-7")
    @pytest.mark.parametrize("argument", [MISSING, FALSE])
    def test_not_world_readable(self, world: World, argument: Variant) -> None:
        self.create(world, ALICE, MISSING, argument)
        assert world.status(info(world, private()), "open", 1, 0, by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert world.status(info(world, private()), "open", 0x20, 0, by=STRANGER) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-3.10.4.1.25-1")
    def test_is_world_readable_looks_for_other_owners(self, world: World) -> None:
        queue = self.create(world, ALICE)
        made = info(world, private())
        assert world.call(made, "get_is_world_readable") == 0
        assert world.call(made, "get_is_world_readable2") is False
        entries = (allow(EVERYONE, READ), allow(STRANGER.sid, QueueAccess.TAKE_QUEUE_OWNERSHIP), allow(ALICE.sid, ALL))
        with world.held() as h:
            security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl(entries)).pack()
            h.engine.set_queue_properties(queue, {"security": security})
        world.call(made, "refresh")
        assert world.call(made, "get_is_world_readable") == 1
        assert world.call(made, "get_is_world_readable2") is True

    @pytest.mark.spec("MQAC-3.10.4.1.25-1")
    def test_a_queue_of_everyone_is_world_readable(self, document: World) -> None:
        self.create(document, STRANGER)
        assert document.call(info(document, private()), "get_is_world_readable2") is True

    def test_who_may_not_see_the_descriptor_is_not_told(self, world: World) -> None:
        queue = self.create(world, ALICE)
        entries = (allow(EVERYONE, QueueAccess.GET_QUEUE_PROPERTIES), allow(ALICE.sid, ALL))
        with world.held() as h:
            security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl(entries)).pack()
            h.engine.set_queue_properties(queue, {"security": security})
        assert world.status(info(world, private()), "get_is_world_readable", by=STRANGER) == MQ_ERROR_ACCESS_DENIED


class TestDelete:
    @pytest.mark.spec("MQAC-3.10.4.1.27-1")
    @pytest.mark.parametrize(
        "name", [*NOT_ONE, r"DIRECT=OS:.\private$\none", r"DIRECT=OS:BETA\private$\q", f"PUBLIC={uuid.UUID(int=77)}"]
    )
    def test_what_cannot_be_deleted(self, world: World, q: Queue, name: str) -> None:
        assert world.status(info(world, name=name), "delete") & 0x80000000
        assert not q.is_deleted

    @pytest.mark.spec("MQAC-3.10.4.1.27-1")
    def test_without_a_name(self, world: World) -> None:
        assert world.status(info(world), "delete") == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    @pytest.mark.spec("MQAC-3.10.4.1.27-2", "MQAC-3.1.4.1-1")
    def test_needs_the_right_to_delete(self, world: World) -> None:
        create(world, ALICE)
        assert world.status(info(world, private()), "delete", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert not find(world).is_deleted
        assert world.status(info(world, private()), "delete", by=ALICE) == 0

    @pytest.mark.spec("MQAC-3.10.4.1.27-3")
    def test_the_queue_is_gone_and_the_object_new(self, world: World, pub: Queue) -> None:
        made = info(world, r".\pub")
        world.call(made, "put_label", "x")
        world.call(made, "refresh")
        world.call(made, "put_quota", 5)
        assert world.call(made, "delete") is None
        assert pub.is_deleted
        with world.held() as h:
            assert h.engine.read_all_of(Queue) == []
        assert (made.format_name, made.path_name) == (None, None)
        assert (made.is_refreshed, made.is_application_queue, made.is_queue_created) == (False, False, False)
        assert (made.queue.quota, made.queue.label) == (0xFFFFFFFF, "")

    def test_queues_of_the_queue_manager_stay(self, world: World) -> None:
        assert world.status(info(world, name=r"DIRECT=OS:.\system$;DEADLETTER"), "delete") == MQ_ERROR_ACCESS_DENIED


class TestOpen:
    @pytest.mark.spec("MQAC-3.10.4.1.28-1")
    @pytest.mark.parametrize("path", [None, "q", r".\none", r".\private$\none"])
    def test_without_a_name_that_can_be_resolved(self, world: World, path: str | None) -> None:
        assert world.status(info(world, path), "open", 1, 0) in (
            MQ_ERROR_ILLEGAL_QUEUE_PATHNAME,
            MQ_ERROR_QUEUE_NOT_FOUND,
        )

    @pytest.mark.spec("MQAC-3.10.4.1.28-2", "MQAC-3.10.4.1.28-4")
    def test_sending_is_not_exclusive(self, world: World, q: Queue) -> None:
        assert world.status(info(world, private()), "open", 2, 1) == MQ_ERROR_UNSUPPORTED_ACCESS_MODE

    @pytest.mark.spec("MQAC-3.10.4.1.28-3", "MQAC-3.10.4.1.28-4")
    @pytest.mark.parametrize("access", [1, 0x20, 0x81, 0xA0])
    @pytest.mark.parametrize("name", NOT_ONE)
    def test_several_queues_are_for_sending(self, world: World, q: Queue, name: str, access: int) -> None:
        assert world.status(info(world, name=name), "open", access, 0) == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION

    @pytest.mark.spec("MQAC-3.10.4.1.28-3")
    def test_several_queues_open_for_sending(self, world: World, q: Queue) -> None:
        with world.held() as h:
            h.create("p")
        opened = world.call(info(world, name=MULTIPLE), "open", 2, 0)
        world.objects.append(opened)
        assert opened.descriptor.multiple

    @pytest.mark.spec("MQAC-3.10.4.1.28-4")
    def test_what_the_event_says(self, world: World, q: Queue) -> None:
        assert world.status(info(world, name=r"DIRECT=OS:.\private$\none"), "open", 1, 0) == MQ_ERROR_QUEUE_NOT_FOUND
        first = world.call(info(world, private()), "open", 1, 1)
        world.objects.append(first)
        assert world.status(info(world, private()), "open", 1, 0) == MQ_ERROR_SHARING_VIOLATION
        assert (
            world.status(info(world, name=r"DIRECT=OS:.\private$\q;journal"), "open", 2, 0)
            == MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
        )
        assert world.status(info(world, private()), "open", 0x40, 0) == MQ_ERROR_UNSUPPORTED_ACCESS_MODE

    @pytest.mark.spec("MQAC-2.2.2.3-2", "MQAC-3.10.4.1.28-4")
    @pytest.mark.parametrize("access", [0, 3, 0x21, 0x22, 0x80, 0x82, -1])
    def test_accesses_that_are_none(self, world: World, q: Queue, access: int) -> None:
        """2.2.2.3: administration goes with receiving and peeking alone."""
        assert world.status(info(world, private()), "open", access, 0) == MQ_ERROR_UNSUPPORTED_ACCESS_MODE

    def test_share_modes_that_are_none(self, world: World, q: Queue) -> None:
        assert world.status(info(world, private()), "open", 1, 2) == MQ_ERROR_INVALID_PARAMETER

    @pytest.mark.spec("MQAC-3.10.4.1.28-5")
    def test_the_queue_is_active_and_knows_who_opened_it(self, world: World, q: Queue) -> None:
        made = info(world, private())
        assert not find(world).active
        opened = world.call(made, "open", 1, 0)
        assert isinstance(opened, MSMQQueue)
        assert opened.descriptor in q.open_queue_descriptors.values()
        assert find(world).active
        assert world.call(opened, "get_queue_info") is made
        opened.released()
        assert not find(world).active

    @pytest.mark.spec("MQAC-3.10.4.1.28-6", "MQAC-3.1.1.2-1")
    def test_a_remote_queue_opens_for_sending(self, world: World) -> None:
        opened = world.call(info(world, name=r"DIRECT=OS:BETA\private$\q"), "open", 2, 0)
        world.objects.append(opened)
        queue = opened.descriptor.queue
        assert isinstance(queue, OutgoingQueue)
        assert queue.destination_format_name == r"DIRECT=OS:BETA\private$\q"
        with world.held() as h:
            h.engine.enqueue_message_to_an_open_queue(opened.descriptor, h.properties(b"x"))
            assert queue.message_count == 1

    @pytest.mark.spec("MQAC-2.2.2.3-2")
    @pytest.mark.parametrize("access", [0x81, 0xA0])
    def test_administrators_open_what_waits_for_another_computer(self, world: World, access: int) -> None:
        name = r"DIRECT=OS:BETA\private$\q"
        with world.held() as h:
            h.send(name, b"waiting")
        opened = world.call(info(world, name=name), "open", access, 0)
        world.objects.append(opened)
        assert isinstance(opened.descriptor.queue, OutgoingQueue)
        assert world.call(opened, "get_access") == access
        assert world.status(info(world, name=name), "open", access, 0, by=ALICE) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-3.1.4.1-1")
    def test_access_is_the_callers(self, world: World) -> None:
        create(world, ALICE)
        made = info(world, private())
        for access in (1, 0x20):
            assert world.status(made, "open", access, 0, by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        closed = SecurityDescriptor(owner=ALICE.sid, dacl=Acl((allow(ALICE.sid, ALL),))).pack()
        with world.held() as h:
            h.engine.set_queue_properties(find(world), {"security": closed})
        assert world.status(made, "open", 2, 0, by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        opened = world.call(made, "open", 1, 0, by=ALICE)
        world.objects.append(opened)
        assert list(find(world).open_queue_descriptors.values()) == [opened.descriptor]


class TestRefreshAndUpdate:
    BAD = (*NOT_ONE, r"DIRECT=OS:BETA\private$\q", r"DIRECT=OS:.\private$\none", f"PUBLIC={uuid.UUID(int=77)}")

    @pytest.mark.spec("MQAC-3.10.4.1.29-1", "MQAC-3.10.4.1.30-1")
    @pytest.mark.parametrize("name", BAD)
    @pytest.mark.parametrize("member", ["refresh", "update"])
    def test_queues_that_cannot_be_read_or_written(self, world: World, member: str, name: str) -> None:
        made = info(world, name=name)
        assert world.status(made, member) & 0x80000000
        assert not made.is_refreshed

    @pytest.mark.spec("MQAC-3.10.4.1.29-1", "MQAC-3.10.4.1.30-1")
    @pytest.mark.parametrize("member", ["refresh", "update"])
    def test_without_a_name(self, world: World, member: str) -> None:
        assert world.status(info(world), member) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    @pytest.mark.spec("MQAC-3.10.4.1.29-2")
    def test_public_queues_are_read_from_the_directory(self, world: World, pub: Queue) -> None:
        with world.held() as h:
            published = h.engine.read_all_of(Queue)
            assert published is not None
            published[0].label = "of the directory"
            h.directory.write(published[0], ["Label"])
        made = info(world, r".\pub")
        assert world.call(made, "get_label") == "of the directory"

    @pytest.mark.spec("MQAC-3.10.4.1.30-2")
    def test_public_queues_are_written_to_the_directory(self, world: World, pub: Queue) -> None:
        made = info(world, r".\pub")
        world.call(made, "put_label", "new")
        assert world.status(made, "update") == 0
        with world.held() as h:
            published = h.engine.read_all_of(Queue)
            assert published is not None
            assert [queue.label for queue in published] == ["new"]
            h.directory.connected = False
        world.call(made, "put_label", "newer")
        assert world.status(made, "update") & 0x80000000

    def test_what_was_never_put_is_not_written(self, world: World) -> None:
        with world.held() as h:
            queue = h.create("q", quota=10, journaling=True)
        made = info(world, private())
        world.call(made, "put_label", "x")
        world.call(made, "update")
        assert (queue.label, queue.quota, queue.journaling) == ("x", 10, True)

    @pytest.mark.spec("MQAC-3.1.4.1-1")
    def test_rights(self, world: World) -> None:
        entries = (allow(EVERYONE, QueueAccess.GET_QUEUE_PROPERTIES), allow(ALICE.sid, ALL))
        queue = create(world, ALICE)
        with world.held() as h:
            security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl(entries)).pack()
            h.engine.set_queue_properties(queue, {"security": security})
        made = info(world, private())
        world.call(made, "put_label", "x")
        assert world.status(made, "update", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert find(world).label == ""
        assert world.status(made, "refresh", by=STRANGER) == 0
        assert world.status(made, "refresh", by=ANONYMOUS) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-2.2.2.6-1")
    @pytest.mark.parametrize(("value", "is_taken"), [(0, True), (1, False)])
    def test_authenticate_refuses_what_is_not_signed(self, world: World, q: Queue, value: int, is_taken: bool) -> None:
        made = info(world, private())
        world.call(made, "put_authenticate", value)
        world.call(made, "update")
        assert takes(world, MessagePrivacyLevel.NONE) is is_taken

    @pytest.mark.spec("MQAC-2.2.2.7-1")
    @pytest.mark.parametrize(("value", "plain", "encrypted"), [(0, True, False), (1, True, True), (2, False, True)])
    def test_priv_level_refuses_by_encryption(
        self, world: World, q: Queue, value: int, plain: bool, encrypted: bool
    ) -> None:
        made = info(world, private())
        world.call(made, "put_priv_level", value)
        world.call(made, "update")
        assert takes(world, MessagePrivacyLevel.NONE) is plain
        assert takes(world, MessagePrivacyLevel.ENHANCED) is encrypted


def takes(world: World, level: MessagePrivacyLevel) -> bool:
    """Whether the queue takes a message of that privacy."""
    with world.held() as h:
        queue = h.queue()
        before = queue.message_count
        with contextlib.suppress(StatusError):
            h.send(body=b"x", privacy_level=level)
        return queue.message_count > before


class TestNames:
    """3.10.6.1."""

    @pytest.mark.spec("MQAC-3.10.6.1-1")
    def test_a_format_name_is_kept(self, world: World, q: Queue) -> None:
        made = info(world, name=r"DIRECT=OS:.\private$\q")
        made.path_name = r".\private$\other"
        world.call(made, "refresh")
        assert world.call(made, "get_format_name") == r"DIRECT=OS:.\private$\q"
        assert world.status(info(world), "refresh") == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    def test_the_prefix_of_dot_net_may_stand_before_a_format_name(self, world: World, pub: Queue, q: Queue) -> None:
        made = info(world, name=r"FormatName:DIRECT=OS:.\private$\q")
        world.call(made, "refresh")
        assert world.call(made, "get_format_name") == r"DIRECT=OS:.\private$\q"
        by_path = info(world, r"formatname:direct=os:.\private$\q")
        world.objects.append(world.call(by_path, "open", 2, 0))
        assert world.call(by_path, "get_format_name").startswith("PRIVATE=")
        public = info(world, name=f"FORMATNAME:PUBLIC={pub.identifier}")
        world.call(public, "put_base_priority", 5)
        world.call(public, "update")
        assert pub.base_priority == 5
        for name in (r"FormatName:.\private$\q", r"DIRECT=OS:beta:1801\private$\q", "Label:q"):
            assert world.status(info(world, name=name), "refresh") == MQ_ERROR_ILLEGAL_FORMATNAME

    @pytest.mark.spec("MQAC-3.10.6.1-2")
    def test_a_dot_is_this_computer(self, world: World, q: Queue) -> None:
        made = info(world, r".\private$\q;sub")
        world.objects.append(world.call(made, "open", 1, 0))
        assert world.call(made, "get_format_name") == r"DIRECT=OS:ALPHA\private$\q;sub"
        for path in (r"\private$\q", "q", r".\private$\a\b", ""):
            assert world.status(info(world, path), "refresh") == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME

    @pytest.mark.spec("MQAC-3.10.6.1-3")
    def test_the_length_of_public_names(self, world: World) -> None:
        for name, is_short in (("x" * 63, True), ("x" * 64, False), ("x" * 61 + "/", True), ("x" * 62 + "/", False)):
            status = world.status(info(world, rf".\{name}"), "refresh")
            assert status == (MQ_ERROR_QUEUE_NOT_FOUND if is_short else MQ_ERROR_ILLEGAL_QUEUE_PATHNAME), name

    @pytest.mark.spec("MQAC-3.10.6.1-5")
    def test_a_subqueue_is_named_directly(self, world: World, q: Queue) -> None:
        for path in (r".\private$\q;sub", r"ALPHA\private$\q;sub"):
            made = info(world, path)
            world.objects.append(world.call(made, "open", 1, 0))
            assert world.call(made, "get_format_name") == r"DIRECT=OS:ALPHA\private$\q;sub"

    def test_a_journal_is_named_by_its_queue(self, world: World, q: Queue, pub: Queue) -> None:
        made = info(world, private("q;journal"))
        world.objects.append(world.call(made, "open", 1, 0))
        assert made.format_name is not None
        assert made.format_name.endswith(rf"\{q.private_queue_number:08x};JOURNAL")
        of_public = info(world, r".\pub;journal")
        world.objects.append(world.call(of_public, "open", 1, 0))
        assert of_public.format_name == f"PUBLIC={pub.identifier};JOURNAL"


@pytest.fixture
def remote(world: World) -> Queue:
    """A public queue of another computer, which only the directory knows here."""
    entries = (allow(EVERYONE, QueueAccess.GET_QUEUE_PROPERTIES), allow(ALICE.sid, ALL))
    with world.held() as h:
        sites = h.engine.queue_manager.site_identifier_list
        h.directory.create_object(QueueManager(computer_name="BETA", site_identifier_list=list(sites)))
        queue = Queue(pathname=r"BETA\pub", label="remote")
        queue.security = SecurityDescriptor(owner=ALICE.sid, dacl=Acl(entries)).pack()
        _, identifier = h.directory.create_object(queue)
    assert identifier is not None
    queue.identifier = identifier
    return queue


class TestPublicElsewhere:
    NAMES = ("PUBLIC={}", r"DIRECT=OS:BETA\pub")

    @pytest.mark.spec("MQAC-3.10.4.1.29-2", "MQAC-3.10.4.1.31-1")
    @pytest.mark.parametrize("name", NAMES)
    def test_refresh(self, world: World, remote: Queue, name: str) -> None:
        made = info(world, name=name.format(remote.identifier))
        assert world.call(made, "get_label", by=STRANGER) == "remote"
        assert world.call(made, "get_path_name", by=STRANGER).lower() == r"beta\pub"
        assert world.call(made, "get_ads_path", by=STRANGER).startswith("LDAP://CN=pub,")
        fresh = info(world, name=name.format(remote.identifier))
        assert world.status(fresh, "refresh", by=ANONYMOUS) == MQ_ERROR_ACCESS_DENIED
        by_path = info(world, r"BETA\pub")
        world.call(by_path, "refresh")
        assert world.call(by_path, "get_format_name") == f"PUBLIC={remote.identifier}"

    @pytest.mark.spec("MQAC-3.10.4.1.26-5", "MQAC-3.10.4.1.26-6", "MQCN-3.3.4.1-1")
    def test_create(self, new_world: Callable[..., World]) -> None:
        """The queue is created in the directory only, and the other computer is notified.

        The caller needs the right to create queues on that computer.
        """
        world = new_world(directory_integrated=True, signing_keys=lambda: [signing_key()])
        security = SecurityDescriptor(
            owner=ALICE.sid, dacl=Acl((allow(ALICE.sid, QueueManagerAccess.CREATE_QUEUE),))
        ).pack()
        with world.held() as h:
            h.directory.answers["server"] = "dc1.mq.test"
            sites = list(h.engine.queue_manager.site_identifier_list)
            beta = QueueManager(computer_name="BETA", site_identifier_list=sites, security=security)
            _, host = h.directory.create_object(beta)
        made = info(world, r"BETA\orders")
        world.call(made, "put_label", "told")
        assert world.status(made, "create", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert world.status(info(world, r"GAMMA\orders"), "create", by=ALICE) & 0x80000000
        assert world.status(made, "create", MISSING, TRUE, by=ALICE) == MQ_ERROR_CANNOT_IMPERSONATE_CLIENT
        with world.held() as h:
            h.engine.queue_manager.enterprise_reference = Enterprise(weakened_security=True)
        assert world.status(made, "create", MISSING, TRUE, by=ALICE) == 0
        found = self.published(world)
        assert (found.label, found.pathname.lower()) == ("told", r"beta\orders")
        assert made.format_name == f"PUBLIC={found.identifier}"
        assert (EVERYONE, QueueAccess.RECEIVE_MESSAGE) in [
            (sid, mask & QueueAccess.RECEIVE_MESSAGE) for sid, mask in dacl(found)
        ]
        assert world.status(info(world, r"BETA\orders"), "create", by=ALICE) == MQ_ERROR_QUEUE_EXISTS
        with world.held() as h:
            assert [queue.pathname for queue in h.engine.local_queues() if "orders" in queue.pathname] == []
            (outgoing,) = h.engine.outgoing_queues()
            assert outgoing.destination_format_name.lower() == rf"private={host}\00000003"
            assert outgoing.message_count == 2

    def test_create_in_a_workgroup(self, world: World, remote: Queue) -> None:
        """The directory of this computer alone would have it."""
        assert world.status(info(world, r"BETA\orders"), "create", by=ALICE) == MQ_ERROR_ILLEGAL_QUEUE_PATHNAME
        assert self.published(world).identifier == remote.identifier

    @pytest.mark.spec("MQAC-3.10.4.1.30-2")
    @pytest.mark.parametrize("name", NAMES)
    def test_update(self, world: World, remote: Queue, name: str) -> None:
        made = info(world, name=name.format(remote.identifier))
        world.call(made, "put_label", "new")
        assert world.status(made, "update", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert self.published(world).label == "remote"
        assert world.status(made, "update", by=ALICE) == 0
        assert self.published(world).label == "new"
        with world.held() as h:
            h.directory.connected = False
        world.call(made, "put_label", "newer")
        assert world.status(made, "update", by=ALICE) & 0x80000000

    @pytest.mark.spec("MQAC-3.10.4.1.27-3")
    def test_delete(self, world: World, remote: Queue) -> None:
        made = info(world, name=f"PUBLIC={remote.identifier}")
        assert world.status(made, "delete", by=STRANGER) == MQ_ERROR_ACCESS_DENIED
        assert self.published(world).label == "remote"
        assert world.status(made, "delete", by=ALICE) == 0
        assert made.format_name is None
        with world.held() as h:
            assert h.engine.read_all_of(Queue) == []

    @staticmethod
    def published(world: World) -> Queue:
        with world.held() as h:
            found = h.engine.read_all_of(Queue)
        assert found is not None
        (queue,) = found
        return queue

    def test_a_directory_that_fails(self, world: World, remote: Queue) -> None:
        made = info(world, name=f"PUBLIC={remote.identifier}")
        failure = (DirectoryOperationResult.GENERIC_ERROR, None)
        with world.held() as h:
            h.directory.answers["read"] = lambda *_: failure
        assert world.status(made, "refresh") == MQ_ERROR_DS_ERROR


class TestElsewhere:
    def test_nobody_in_particular_has_others_asked(self, world: World) -> None:
        made = info(world, r"127.0.0.1\private$\q")
        assert world.status(made, "open", 2, 0, by=ANONYMOUS) == MQ_ERROR_ACCESS_DENIED

    @pytest.mark.spec("MQAC-3.10.6.1-4")
    def test_a_computer_that_cannot_be_reached(self, world: World) -> None:
        world.environment.remote_port = 1
        made = info(world, r"127.0.0.1\private$\q")
        assert world.status(made, "open", 2, 0) == RemoteMachineNotAvailable.status
        assert made.format_name is None

    @pytest.mark.spec("MQAC-3.10.6.1-4")
    def test_the_computer_of_a_private_queue_tells_its_name(self, new_world: Callable[..., World]) -> None:
        here, there = new_world(), new_world(computer_name="BETA", local_addresses=frozenset({"127.0.0.1"}))
        with there.held() as h:
            queue = h.create("q")
            identifier = h.engine.queue_manager.identifier

        async def ask() -> str:
            queues = RemoteQueues(there.engine, there.environment.committer)
            server = RpcServer([*QueueClient(queues, ServerPorts()).interfaces])
            here.environment.remote_port = await server.listen_tcp("127.0.0.1", 0)
            made = MSMQQueueInfo(here.environment)
            made.path_name = r"127.0.0.1\private$\q"
            try:
                return str(await made.update_format_name(called_by(made, "refresh", ALICE)))
            finally:
                await server.stop()

        assert here.run(asyncio.wait_for(ask(), 20)) == rf"PRIVATE={identifier}\{queue.private_queue_number:08x}"
