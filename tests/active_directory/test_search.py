"""MS-MQDSSM 3.1.6.4-3.1.6.6, 3.1.6.15: searches and iteration, on a Samba domain controller."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from lanner.directory import AttributeFilter, Operator, SortOrder
from lanner.directory.ldap.elements import class_named
from lanner.directory.ldap.filters import ldap_filter
from lanner.directory.ldap.lookup import LdapLookup
from lanner.directory.ldap.messages import PAGED_RESULTS, FoundEntry, Scope, Search
from lanner.directory.schema import Entry
from lanner.model.directory_objects import Queue, QueueManager, RoutingLink, User
from lanner.model.enums import DirectoryOperationResult
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from tests.active_directory.conftest import Wire, World, equals, made
from tests.active_directory.domain import CONFIGURATION, ROOT

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
END_OF_DATA = DirectoryOperationResult.END_OF_DATA


def text_of(world: World, kind: str, *filters: AttributeFilter) -> str:
    found, rest = ldap_filter(class_named(kind), filters, LdapLookup(world.directory.operations))
    assert not rest
    return str(found)


def names(found: list) -> set[str]:  # type: ignore[type-arg]
    return {one.pathname.partition("\\")[2] for one in found if isinstance(one, Queue)}


def mine(world: World, *filters: AttributeFilter) -> set[str]:
    """The queues of this test that a filter finds, by the directory and by us."""
    found = world.all("Queue", list(filters), ["Pathname"])
    return {
        one.pathname.partition("\\")[2]
        for one in found
        if isinstance(one, Queue) and one.pathname.startswith(f"{world.computer}\\")
    }


@pytest.mark.spec("DSSM-3.1.6.15-1", "DSSM-3.1.6.15-2", "DSSM-3.1.6.15-3", "DSSM-3.1.6.15-4", "DSSM-3.1.6.15-8/control")
@pytest.mark.parametrize(
    ("kind", "base"),
    [
        ("Site", f"CN=Sites,{CONFIGURATION}"),
        ("Enterprise", f"CN=Services,{CONFIGURATION}"),
        ("RoutingLink", f"CN=MsmqServices,CN=Services,{CONFIGURATION}"),
        ("QueueManager", ROOT),
        ("Queue", ROOT),
        ("User", ROOT),
    ],
)
def test_where_is_searched(world: World, wire: Wire, kind: str, base: str) -> None:
    wire.clear()
    result, handle = world.directory.read_begin(kind, None)
    assert result is SUCCESS
    assert handle is not None
    first, second, *_ = wire.of(Search)
    assert isinstance(first.request, Search)
    assert isinstance(second.request, Search)
    assert (first.request.base, first.request.scope, first.request.attributes) == (base, Scope.BASE, ("objectClass",))
    request = second.request
    assert (request.base, request.scope, request.time_limit, request.size_limit) == (base, Scope.SUBTREE, 120, 0)
    # What is the same for all of them: aliases are never followed (0), and values come with their
    # types (FALSE).
    encoded = request.encode()
    assert b"\x0a\x01\x02\x0a\x01\x00\x02\x01\x00\x02\x01\x78\x01\x01\x00" in encoded
    assert PAGED_RESULTS in [control.oid for control in second.controls]
    assert str(request.filter) == f"(objectClass={class_named(kind).ldap_class})"
    world.directory.read_end(handle)


@pytest.mark.spec("DSSM-3.1.6.15-3")
def test_no_search_without_its_base(world: World, wire: Wire) -> None:
    world.directory.operations.domain = "DC=none"
    wire.clear()
    assert world.directory.read_begin("Queue", None)[0] is not SUCCESS
    assert [one.scope for one in wire.requests(Search)] == [Scope.BASE]


@pytest.mark.spec("DSSM-3.1.6.15-5")
def test_objects_of_other_classes_are_never_returned(world: World) -> None:
    world.add_manager()
    world.add_queue("orders", label=world.computer)
    dn = f"CN=alias{world.computer},CN=Users,{ROOT}"
    world.domain.add(dn, objectClass="msMQ-Custom-Recipient", msMQ__Recipient__FormatName="DIRECT=OS:x\\private$\\y")
    assert mine(world, equals("Label", world.computer)) == {"orders"}
    users = {one.identifier for one in world.all("User", None, ["SecurityIdentifier"])}
    assert world.domain.guid(world.computer_dn) in users
    assert world.domain.guid(dn) not in users


@pytest.mark.spec("DSSM-3.1.6.15-6", "DSSM-3.1.6.15-11", "DSSM-3.1.6.15-10", "DSSM-3.1.6.20.1-1/filters")
def test_text_of_filters(world: World) -> None:
    def one(name: str, operator: Operator, value: object) -> str:
        text = text_of(world, "Queue", AttributeFilter(name, operator, value))
        assert text.startswith("(&(objectClass=mSMQQueue)")
        return text.removeprefix("(&(objectClass=mSMQQueue)").removesuffix(")")

    equal, other, less, more = Operator.EQUALS, Operator.NOT_EQUALS, Operator.LESS_THAN, Operator.GREATER_THAN
    assert one("BasePriority", less, -5) == "(&(mSMQBasePriority<=-5)(!(mSMQBasePriority=-5)))"
    assert one("BasePriority", more, 5) == "(&(mSMQBasePriority>=5)(!(mSMQBasePriority=5)))"
    assert one("Journaling", equal, False) == "(!(mSMQJournal=TRUE))"
    assert one("Journaling", equal, True) == "(mSMQJournal=TRUE)"
    assert one("Label", other, "x") == "(!(mSMQLabelEx=x))"
    assert one("BasePriority", other, 0) == "(&(!(mSMQBasePriority=0))(mSMQBasePriority=*))"
    assert one("BasePriority", equal, 0) == "(|(mSMQBasePriority=0)(!(mSMQBasePriority=*)))"
    assert "(|(mSMQQueueQuota>=50)(mSMQQueueQuota<=-1))" in one("Quota", more, 50)
    assert one("Quota", less, 50) == "(&(&(mSMQQueueQuota<=50)(mSMQQueueQuota>=0))(!(mSMQQueueQuota=50)))"


@pytest.mark.spec("DSSM-3.1.6.15-6", "DSSM-3.1.6.15-10", "DSSM-3.1.6.15-11", "DSSM-3.1.6.4.2.2-1", "DSSM-3.1.6.20.1-1")
def test_what_filters_find(world: World) -> None:
    world.add_manager()
    kind = uuid.uuid4()
    world.add_queue("small", quota=10, journal_quota=3, base_priority=-5, label="s", type=kind)
    world.add_queue("large", quota=0xFFFFFFFF, base_priority=5, journaling=True, multicast_address="234.1.1.1:8001")
    world.add_queue("middle", quota=50, label="m", authentication=True)
    world.domain.add(f"CN=unset,{world.dn}", objectClass="mSMQQueue")
    everything = {"small", "large", "middle", "unset"}
    priority, quota = "BasePriority", "Quota"
    expected: list[tuple[str, Operator, object, set[str]]] = [
        (priority, Operator.LESS_THAN, 5, {"small", "middle", "unset"}),
        (priority, Operator.LESS_THAN_OR_EQUAL, 5, everything),
        (priority, Operator.GREATER_THAN, -5, everything - {"small"}),
        (priority, Operator.NOT_EQUALS, 0, {"small", "large"}),
        (priority, Operator.EQUALS, 0, {"middle", "unset"}),
        (quota, Operator.GREATER_THAN, 50, {"large", "unset"}),
        (quota, Operator.GREATER_THAN_OR_EQUAL, 50, {"large", "unset", "middle"}),
        (quota, Operator.LESS_THAN, 50, {"small"}),
        (quota, Operator.LESS_THAN_OR_EQUAL, 0xFFFFFFFF, everything),
        (quota, Operator.LESS_THAN, 0xFFFFFFFF, {"small", "middle"}),
        (quota, Operator.GREATER_THAN_OR_EQUAL, 0xFFFFFFFF, {"large", "unset"}),
        (quota, Operator.EQUALS, 0xFFFFFFFF, {"large", "unset"}),
        (quota, Operator.NOT_EQUALS, 0xFFFFFFFF, {"small", "middle"}),
        ("JournalQuota", Operator.EQUALS, 3, {"small"}),
        ("Journaling", Operator.EQUALS, False, {"small", "middle", "unset"}),
        ("Journaling", Operator.NOT_EQUALS, False, {"large"}),
        ("Authentication", Operator.EQUALS, True, {"middle"}),
        ("PrivacyLevel", Operator.EQUALS, 1, everything),
        ("Label", Operator.NOT_EQUALS, "s", everything - {"small"}),
        ("Label", Operator.EQUALS, "", {"large", "unset"}),
        ("Label", Operator.NOT_EQUALS, "", {"small", "middle"}),
        ("Type", Operator.EQUALS, kind, {"small"}),
        ("MulticastAddress", Operator.EQUALS, "234.1.1.1:8001", {"large"}),
        ("Label", Operator.GREATER_THAN, "m", {"small"}),
    ]
    wrong = []
    for name, operator, value, wanted in expected:
        found = mine(world, AttributeFilter(name, operator, value))
        if found != wanted:
            wrong.append((name, operator, value, found))
    assert not wrong


@pytest.mark.spec("DSSM-3.1.6.15-7", "DSSM-3.1.6.4.2.2-3")
def test_a_value_is_no_syntax(world: World) -> None:
    world.add_manager()
    world.add_queue("stars", label="a*(b)\\")
    world.add_queue("plain", label="aXXb")
    assert mine(world, equals("Label", "a*(b)\\")) == {"stars"}
    assert mine(world, equals("Label", "a*b")) == set()
    assert text_of(world, "Queue", equals("Label", "a*(b)\\\0")).endswith(r"(mSMQLabelEx=a\2a\28b\29\5c\00))")
    assert mine(world, equals("Label", "AXXB")) == {"plain"}
    # Our own check, for what no server evaluates, compares alike.
    by_path = equals("Pathname", f"{world.computer}\\plain")
    assert mine(world, by_path, equals("Label", "axxB")) == {"plain"}
    assert mine(world, by_path, equals("Label", "a*b")) == set()


@pytest.mark.spec("DSSM-3.1.6.4.1.2-3")
def test_times_in_a_filter(world: World) -> None:
    assert text_of(world, "Queue", equals("CreateTime", 0)).endswith("(whenCreated=19700101000000.0Z))")
    assert "(whenChanged>=20240101000000.0Z)" in text_of(
        world, "Queue", AttributeFilter("ModifyTime", Operator.GREATER_THAN_OR_EQUAL, 1704067200)
    )
    world.add_manager()
    guid = world.add_queue("orders")
    time = world.read("Queue", guid).create_time
    assert mine(world, AttributeFilter("CreateTime", Operator.GREATER_THAN_OR_EQUAL, time)) == {"orders"}
    assert mine(world, AttributeFilter("CreateTime", Operator.GREATER_THAN, time)) == set()
    assert mine(world, AttributeFilter("CreateTime", Operator.LESS_THAN, 1)) == set()


@pytest.mark.spec("DSSM-3.1.6.4.1.2-4")
def test_what_no_server_evaluates_is_checked_by_us(world: World, wire: Wire) -> None:
    # All queue managers of the domain are read, and earlier tests have left some that cannot be.
    with world.domain.connected() as connection:
        entries = connection.search(Search(ROOT, Scope.SUBTREE, attributes=("objectClass",)))
    for one in entries:
        if b"mSMQConfiguration" in one.values.get("objectClass", []):
            world.domain.delete(one.dn)
    guid = world.add_manager()
    security = world.read("QueueManager", guid).security
    path = AttributeFilter("FullPath", Operator.GREATER_THAN_OR_EQUAL, "CN=msmq")
    for wanted, filters in (
        ({guid}, [equals("Security", security), equals("QualifiedComputerName", f"{world.computer}.mq.test")]),
        ({guid}, [path, equals("QualifiedComputerName", f"{world.computer}.MQ.test")]),
        (set(), [equals("QualifiedComputerName", "none")]),
        (set(), [AttributeFilter("FullPath", Operator.LESS_THAN, "A"), equals("Security", security)]),
    ):
        wire.clear()
        found = world.all("QueueManager", filters, ["ComputerName"])
        assert {one.identifier for one in found} == wanted
        sought = [str(one.filter) for one in wire.requests(Search) if one.scope is Scope.SUBTREE]
        assert sought == ["(objectClass=mSMQConfiguration)"]


@pytest.mark.spec("DSSM-3.1.6.4.1.2-5")
def test_a_queue_manager_by_the_name_of_its_computer(world: World, wire: Wire) -> None:
    guid = world.add_manager()
    wire.clear()
    found = world.directory.read("QueueManager", [equals("ComputerName", world.computer.upper())], ["ComputerName"])[1]
    assert isinstance(found, QueueManager)
    assert found.identifier == guid
    assert not [one for one in wire.requests(Search) if one.scope is Scope.SUBTREE]
    missing = world.directory.read("QueueManager", [equals("ComputerName", "no-such-computer")])
    assert missing == (DirectoryOperationResult.OBJECT_NOT_FOUND, None)


@pytest.mark.spec("DSSM-3.1.6.4.5.4-1", "DSSM-3.1.6.4.5.4-2")
def test_links_by_their_sites(world: World, wire: Wire) -> None:
    other = world.add_site(f"{world.site_name}b")
    guid = made(world.directory.create_object(world.link(world.site, other)))
    for name, site in (("Site1Identifier", world.site), ("Site2Identifier", other)):
        found = world.all("RoutingLink", [equals(name, site)])
        assert [one.identifier for one in found] == [guid]
        assert isinstance(found[0], RoutingLink)
    assert f"(mSMQSite1={world.site_dn()})" in text_of(world, "RoutingLink", equals("Site1Identifier", world.site))
    assert world.all("RoutingLink", [equals("Site1Identifier", other)]) == []
    wire.clear()
    for name in ("Site1Identifier", "Site2Identifier"):
        assert world.directory.read_begin("RoutingLink", [equals(name, uuid.uuid4())]) == (GENERIC_ERROR, None)
    assert not [one for one in wire.requests(Search) if one.scope is Scope.SUBTREE]
    assert world.directory._queries == {}


@pytest.mark.spec("DSSM-3.1.6.4.6.2-1", "DSSM-3.1.6.4.6.2-2", "DSSM-3.1.6.4.6.2-3")
def test_users_by_sid_and_by_digest(world: World) -> None:
    name = f"user{world.computer}"
    world.domain.add_user(name)
    dn = f"CN={name},CN=Users,{ROOT}"
    keys = UserSignCerts((UserSignCert(uuid.uuid4(), world.computer.encode()), UserSignCert(uuid.uuid4(), b"2")))
    world.domain.modify(dn, mSMQSignCertificates=keys.pack(), mSMQDigests=tuple(keys.digests))
    sid = world.domain.attributes(dn)["objectSid"][0]
    escaped = "".join(f"\\{octet:02x}" for octet in sid)
    assert f"(objectSid={escaped})" in text_of(world, "User", equals("SecurityIdentifier", sid))
    for one in (equals("SecurityIdentifier", sid), equals("CertificateDigestList", keys.digests[0])):
        (user,) = world.all("User", [one])
        assert isinstance(user, User)
        assert (user.security_identifier, user.certificates) == (sid, keys.pack())
        assert user.certificate_digest_list == keys.digests
    assert world.all("User", [equals("CertificateDigestList", bytes(16))]) == []


@pytest.mark.spec("DSSM-3.1.6.4-2", "DSSM-3.1.6.5-1", "DSSM-3.1.6.5-2", "DSSM-3.1.6.6-1", "DSSM-3.1.6.4.1.2-1")
def test_iterators(world: World) -> None:
    world.add_manager()
    guids = {world.add_queue(name, label=world.computer) for name in ("a", "b", "c")}
    directory = world.directory
    label = [equals("Label", world.computer)]
    (first_result, first), (second_result, second) = (directory.read_begin("Queue", label) for _ in range(2))
    assert first_result is second_result is SUCCESS
    assert first is not None
    assert second is not None
    assert first != second
    found = [directory.read_next(first)[1] for _ in range(3)]
    assert {one.identifier for one in found if one is not None} == guids
    assert directory.read_next(first) == (END_OF_DATA, None)
    assert directory.read_next(first) == (END_OF_DATA, None)
    assert directory.read_next(second)[0] is SUCCESS
    assert directory.read_end(second) is directory.read_end(first) is SUCCESS
    assert directory._queries == {}
    for handle in (first, second, 4711):
        assert directory.read_next(handle) == (GENERIC_ERROR, None)
        assert directory.read_end(handle) is GENERIC_ERROR
    result, empty = directory.read_begin("Queue", [equals("Label", f"none {world.computer}")])
    assert result is SUCCESS
    assert empty is not None
    assert directory.read_next(empty) == (END_OF_DATA, None)
    directory.read_end(empty)


@pytest.mark.spec("DSSM-3.1.6.5-3")
def test_a_sequence_is_what_was_there_at_its_beginning(world: World) -> None:
    world.add_manager()
    guids = [world.add_queue(name, label=world.computer) for name in ("a", "b", "c")]
    result, handle = world.directory.read_begin("Queue", [equals("Label", world.computer)], ["Label"])
    assert result is SUCCESS
    assert handle is not None
    world.add_queue("d", label=world.computer)
    world.directory.delete_object(Queue(identifier=guids[1]))
    found = []
    while (one := world.directory.read_next(handle)[1]) is not None:
        found.append(one.identifier)
    assert sorted(found, key=str) == sorted(guids, key=str)


@pytest.mark.spec("DSSM-3.1.6.5-4", "DSSM-3.1.6.4-4")
def test_an_object_that_makes_no_sense_is_one_error(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_manager()
    good = world.add_queue("good", label=world.computer)
    world.add_queue("bad", label=world.computer)
    from lanner.directory.ldap import operations

    plain = operations._entry

    def entry(found: FoundEntry, wanted: Sequence[str]) -> Entry:
        values = plain(found, wanted)
        if found.dn.startswith("CN=bad,"):
            values.pop("whenCreated", None)
        return values

    # The schema rejects nonsense; a value that the caller may not read makes no sense either.
    monkeypatch.setattr(operations, "_entry", entry)
    order = [SortOrder(0), SortOrder(1)]  # "bad" comes first
    result, handle = world.directory.read_begin(
        "Queue", [equals("Label", world.computer)], ["CreateTime", "Pathname"], order
    )
    assert result is SUCCESS
    assert handle is not None
    assert world.directory.read_next(handle) == (GENERIC_ERROR, None)
    found = world.directory.read_next(handle)[1]
    assert found is not None
    assert found.identifier == good
    assert world.directory.read_next(handle) == (END_OF_DATA, None)
    world.directory.read_end(handle)
    assert world.directory.read_begin("Queue", None, ["Scope"]) == (GENERIC_ERROR, None)
    assert world.directory.read_begin("Queue", None, ["Label"], [SortOrder(1), SortOrder(2)]) == (GENERIC_ERROR, None)
    assert world.directory._queries == {}


@pytest.mark.spec("DSSM-3.1.6.4-3", "DSSM-3.1.6.4.1.2-2")
def test_order_of_results(world: World) -> None:
    world.add_manager()
    for name, priority in (("b", 1), ("A", 1), ("c", 2)):
        world.add_queue(name, label=world.computer, base_priority=priority)
    label = equals("Label", world.computer)
    attributes = ["Label", "BasePriority", "Pathname"]

    def sequence(*orders: SortOrder) -> str:
        found = world.all("Queue", [label], attributes, list(orders))
        return "".join(one.pathname[-1] for one in found if isinstance(one, Queue))

    assert sequence(SortOrder(0), SortOrder(2), SortOrder(1)) == "abc"
    assert sequence(SortOrder(9), SortOrder(2, ascending=False), SortOrder(1)) == "cab"
    assert sequence(SortOrder(0), SortOrder(1), SortOrder(2, ascending=False)) == "cba"
    managers = []
    for letter in "xyz":
        computer = f"{world.computer}{letter}"
        world.domain.add_computer(computer)
        manager = world.manager(computer_name=computer, queue_manager_version=world.computer)
        managers.append(made(world.directory.create_object(manager)))
    found = world.all(
        "QueueManager",
        [equals("QueueManagerVersion", world.computer)],
        ["QualifiedComputerName", "Clustered", "ComputerName"],
        [SortOrder(3), SortOrder(2), SortOrder(1, ascending=False)],
    )
    assert [one.identifier for one in found] == managers[::-1]


@pytest.mark.spec("DSSM-3.1.6.15-8", "DSSM-3.1.6.15-9")
def test_an_answer_of_many_pages(world: World, wire: Wire) -> None:
    world.add_manager()
    with world.domain.connected() as connection:
        from lanner.directory.ldap.messages import SEARCH_REFERENCE, Add

        for number in range(1500):
            connection.perform(
                Add(
                    f"CN=q{number},{world.dn}",
                    (("objectClass", ("mSMQQueue",)), ("mSMQLabelEx", (f"many {world.computer}",))),
                )
            )
    wire.clear()
    found = world.all("Queue", [equals("Label", f"many {world.computer}")], ["Pathname"])
    assert len(names(found)) == 1500
    pages = [one for one in wire.of(Search) if isinstance(one.request, Search) and one.request.scope is Scope.SUBTREE]
    assert len(pages) >= 3
    # The domain's root has other naming contexts below it, of which the controller tells on the
    # way.
    assert any(answer.tag == SEARCH_REFERENCE for one in pages for answer in one.answers)
