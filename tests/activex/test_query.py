"""MSMQQuery and MSMQQueueInfos (MC-MQAC 3.13, 3.14)."""

from __future__ import annotations

import uuid

import pytest

from lanner.activex.query import MSMQQuery
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.activex.queue_infos import MSMQQueueInfos
from lanner.activex.tables import MSMQ_QUERY, MSMQ_QUEUE_INFOS
from lanner.com.automation.values import MISSING, Variant
from lanner.com.constants import E_INVALIDARG, E_NOTIMPL
from lanner.com.objects import ComObject
from lanner.model.directory_objects import Queue
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import Identity
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import Sid
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.engine.harness import OPEN_TO_ALL, START_TIME
from tests.statuses import (
    MQ_ERROR_ILLEGAL_PROPERTY_VALUE,
    MQ_ERROR_ILLEGAL_RELATION,
    MQ_ERROR_NO_DS,
    MQ_ERROR_UNINITIALIZED_OBJECT,
)

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
NOP, EQ, NEQ, LT, GT, LE, GE = range(7)
KINDS = sorted(uuid.uuid4() for _ in range(3))
HOUR = 3600
NOT_GIVEN = (MISSING,) * 11


def i4(value: int) -> Variant:
    return Variant(VT.I4, value)


def text(value: str) -> Variant:
    return Variant(VT.BSTR, value)


def date(seconds: float) -> Variant:
    return Variant(VT.DATE, 25569.0 + seconds / 86400)


@pytest.fixture
def queues(world: World) -> list[Queue]:
    """Three public queues, created an hour apart, each changed half an hour later.

    The world also has private queues, which no query finds.
    """
    made = []
    with world.held() as h:
        h.create("private")
    for place, name in enumerate(("a", "b", "c")):
        with world.held() as h:
            address = "" if name == "b" else f"224.0.0.{place + 1}:99"
            queue = h.create(
                rf".\{name}", label=name, type=KINDS[place], multicast_address=address or None, security=OPEN_TO_ALL
            )
        world.tick(HOUR / 2)
        with world.held() as h:
            h.engine.set_queue_properties(queue, {"quota": 5})
        world.tick(HOUR / 2)
        made.append(queue)
    return made


def ask(world: World, *arguments: Variant, member: str = "lookup_queue") -> list[str]:
    """The labels of the queues that a query finds."""
    infos = world.call(MSMQQuery(world.environment), member, *arguments)
    found = []
    while (info := world.call(infos, "next")) is not None:
        found.append(world.call(info, "get_label"))
    return sorted(found)


def criterion(place: int, value: Variant, relation_place: int, relation: int | None) -> tuple[Variant, ...]:
    arguments = list(NOT_GIVEN)
    arguments[place] = value
    if relation is not None:
        arguments[relation_place] = i4(relation)
    return tuple(arguments)


# Operator, and which of three ordered queues it finds for the middle one.
RELATIONS = [
    (None, "b"),
    (NOP, "abc"),
    (EQ, "b"),
    (NEQ, "ac"),
    (LT, "a"),
    (GT, "c"),
    (LE, "ab"),
    (GE, "bc"),
]


@pytest.mark.spec("MQAC-3.13.4-1", "MQAC-3.14.4-1")
def test_revisions() -> None:
    names = [[(member.opnum, member.name) for member in table.members] for table in MSMQ_QUERY.interfaces]
    assert names[0] == [(7, "LookupQueue")]
    assert names[1] == [(7, "LookupQueue"), (8, "Properties")]
    assert names[2] == names[3] == [(7, "LookupQueue_v2"), (8, "Properties"), (9, "LookupQueue")]
    for number, table in enumerate(MSMQ_QUERY.interfaces, 1):
        suffix = "" if number == 1 else str(number)
        returned = {member.parameters[-1].type for member in table.members if member.name.startswith("Lookup")}
        assert returned == {f"IMSMQQueueInfos{suffix}**"}
    slots = [[member.opnum for member in table.members] for table in MSMQ_QUEUE_INFOS.interfaces]
    assert slots == [[7, 8], [7, 8, 9], [7, 8, 9], [7, 8, 9]]
    infos = [table.by_opnum[8].parameters[-1].type for table in MSMQ_QUEUE_INFOS.interfaces]
    assert infos == ["IMSMQQueueInfo**", "IMSMQQueueInfo2**", "IMSMQQueueInfo3**", "IMSMQQueueInfo4**"]


@pytest.mark.spec("MQAC-3.2.4.2.7-1", "MQAC-3.14.4-1")
@pytest.mark.parametrize("coclass", [MSMQQuery, MSMQQueueInfos])
def test_properties_are_not_implemented(world: World, coclass: type[ComObject]) -> None:
    assert world.status(coclass(world.environment), "get_properties") == E_NOTIMPL  # type: ignore[call-arg]


class TestQuery:
    @pytest.mark.spec("MQAC-3.13.4.1.1-1")
    @pytest.mark.parametrize("member", ["lookup_queue", "lookup_queue_v2"])
    def test_without_criteria_all_public_queues(self, world: World, queues: list[Queue], member: str) -> None:
        assert ask(world, member=member) == ["a", "b", "c"]
        assert world.call(MSMQQuery(world.environment), "lookup_queue", revision=1)

    @pytest.mark.spec("MQAC-3.13.4.1.1-1")
    def test_criteria_are_joined(self, world: World, queues: list[Queue]) -> None:
        label_over_a = criterion(2, text("a"), 6, GT)
        assert ask(world, *label_over_a) == ["b", "c"]
        both = list(label_over_a)
        both[3], both[7] = date(START_TIME + 1.5 * HOUR), i4(LT)
        assert ask(world, *both) == ["b"]
        assert ask(world, *both[:9], member="lookup_queue_v2") == ["b"]

    @pytest.mark.spec("MQAC-3.13.4.1.1-1", "MQAC-3.13.4.1.1-2")
    def test_by_identifier(self, world: World, queues: list[Queue]) -> None:
        """In braces, and always for equality."""
        for queue in queues:
            assert ask(world, text(f"{{{queue.identifier}}}")) == [queue.label]
            assert ask(world, text(f"{{{queue.identifier}}}"), member="lookup_queue_v2") == [queue.label]
            assert ask(world, Variant(VT.BYREF | VT.BSTR, f"{{{str(queue.identifier).upper()}}}")) == [queue.label]
        assert ask(world, text(f"{{{uuid.uuid4()}}}")) == []
        query = MSMQQuery(world.environment)
        told = world.call(world.call(world.call(query, "lookup_queue"), "next"), "get_queue_guid")
        assert len(ask(world, text(told))) == 1

    @pytest.mark.spec("MQAC-3.13.4.1.1-2")
    @pytest.mark.parametrize("place", [0, 1])
    def test_guids_are_in_braces(self, world: World, queues: list[Queue], place: int) -> None:
        query = MSMQQuery(world.environment)
        for wrong in (str(KINDS[0]), f"{{{KINDS[0]}", "{}", "", f"{{{KINDS[0].hex}}}"):
            arguments = [*NOT_GIVEN[:place], text(wrong)]
            assert world.status(query, "lookup_queue", *arguments) == MQ_ERROR_ILLEGAL_PROPERTY_VALUE
        assert world.status(query, "lookup_queue", *NOT_GIVEN[:place], i4(1)) == E_INVALIDARG

    @pytest.mark.spec("MQAC-3.13.4.1.1-1", "MQAC-3.13.4.1.1-3", "MQAC-2.2.2.20-1")
    @pytest.mark.parametrize("member", ["lookup_queue", "lookup_queue_v2"])
    @pytest.mark.parametrize(("relation", "found"), RELATIONS)
    def test_every_relation(
        self, world: World, queues: list[Queue], relation: int | None, found: str, member: str
    ) -> None:
        """2.2.2.20, for types, labels and times; REL_EQ where none is given."""
        middle = START_TIME + HOUR
        for place, value, relation_place in (
            (1, text(f"{{{KINDS[1]}}}"), 5),
            (2, text("B"), 6),
            (3, date(middle), 7),
            (4, date(middle + HOUR / 2), 8),
        ):
            arguments = criterion(place, value, relation_place, relation)[:9]
            assert "".join(ask(world, *arguments, member=member)) == found, place

    @pytest.mark.spec("MQAC-3.13.4.1.3-1")
    @pytest.mark.parametrize(
        ("address", "relation", "found"),
        [
            ("224.0.0.1:99", None, "a"),
            ("224.0.0.1:99", EQ, "a"),
            ("224.0.0.1:99", NEQ, "bc"),
            ("224.0.0.1:99", GT, "c"),
            ("224.0.0.1:99", NOP, "abc"),
            ("", None, "b"),
            ("", NEQ, "ac"),
        ],
    )
    def test_by_multicast_address(
        self, world: World, queues: list[Queue], address: str, relation: int | None, found: str
    ) -> None:
        """An empty one is that of queues that have none."""
        assert "".join(ask(world, *criterion(9, text(address), 10, relation))) == found

    @pytest.mark.spec("MQAC-3.13.4.1.3-2")
    def test_an_address_that_is_left_out_restricts_nothing(self, world: World, queues: list[Queue]) -> None:
        assert ask(world, *NOT_GIVEN) == ["a", "b", "c"]
        assert ask(world, *NOT_GIVEN[:10], i4(EQ)) == ["a", "b", "c"]

    @pytest.mark.spec("MQAC-3.13.4.1.3-3")
    @pytest.mark.parametrize("member", ["lookup_queue", "lookup_queue_v2"])
    def test_without_a_directory(self, world: World, queues: list[Queue], member: str) -> None:
        query = MSMQQuery(world.environment)
        with world.held() as h:
            h.directory.connected = False
        assert world.status(query, member) == MQ_ERROR_NO_DS
        with world.held() as h:
            h.directory.connected = True
            h.engine.queue_manager.directory_offline = True
        assert world.status(query, member) == MQ_ERROR_NO_DS

    def test_relations_and_values_that_are_none(self, world: World) -> None:
        query = MSMQQuery(world.environment)
        for relation in (7, -1):
            assert (
                world.status(query, "lookup_queue", *criterion(2, text("a"), 6, relation)) == MQ_ERROR_ILLEGAL_RELATION
            )
        for place in (3, 4):
            for wrong in (text("today"), Variant(VT.DATE, float("nan"))):
                assert world.status(query, "lookup_queue", *criterion(place, wrong, 7, EQ)) == E_INVALIDARG


class TestResults:
    @pytest.mark.spec("MQAC-3.14.3-1")
    def test_one_that_a_client_made(self, world: World) -> None:
        infos = MSMQQueueInfos(world.environment)
        assert world.status(infos, "reset") == MQ_ERROR_UNINITIALIZED_OBJECT
        assert world.status(infos, "next") == MQ_ERROR_UNINITIALIZED_OBJECT

    @pytest.mark.spec("MQAC-3.14.4.1.2-1")
    def test_next_and_reset(self, world: World, queues: list[Queue]) -> None:
        infos = world.call(MSMQQuery(world.environment), "lookup_queue")
        for _ in range(2):
            found = [world.call(infos, "next") for _ in queues]
            assert all(isinstance(info, MSMQQueueInfo) and info.is_refreshed for info in found)
            names = {world.call(info, "get_format_name") for info in found}
            assert names == {f"PUBLIC={queue.identifier}" for queue in queues}
            assert world.call(infos, "next") is None
            assert world.call(infos, "next") is None
            assert world.call(infos, "reset") is None

    def test_queues_that_have_gone_are_passed_over(self, world: World, queues: list[Queue]) -> None:
        infos = world.call(MSMQQuery(world.environment), "lookup_queue")
        with world.held() as h:
            h.engine.delete_queue(queues[0])
        found = [world.call(infos, "next") for _ in queues]
        assert [world.call(info, "get_label") for info in found if info is not None] == ["b", "c"]
        assert found[-1] is None

    def test_queues_of_which_the_caller_may_know_nothing_are_passed_over(
        self, world: World, queues: list[Queue]
    ) -> None:
        with world.held() as h:
            entries = Acl((allow(Sid.parse("S-1-5-18"), QueueAccess.GENERIC_ALL),))
            security = SecurityDescriptor(owner=Sid.parse("S-1-5-18"), dacl=entries).pack()
            h.engine.set_queue_properties(queues[1], {"security": security})
        infos = world.call(MSMQQuery(world.environment), "lookup_queue", by=ALICE)
        found = [world.call(infos, "next", by=ALICE) for _ in queues]
        labels = [world.call(info, "get_label", by=ALICE) for info in found if info is not None]
        assert sorted(labels) == ["a", "c"]
