"""Directory events, the offline mode and its timer.

MS-MQDMPR 3.1.6.1, 3.1.6.2 and 3.1.7.1.18-3.1.7.1.25.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lanner.directory import AttributeFilter, Operator, SortOrder
from lanner.engine import Engine
from lanner.engine.directory_events import ChangeNotification, identifier_is
from lanner.model.directory_objects import DirectoryObject, Queue, QueueManager, RoutingLink, Site
from lanner.model.enums import INFINITE, DirectoryOperationResult, QueuePrivacyLevel, QueueType
from tests.engine.harness import Harness, SteeredDirectory

SUCCESS = DirectoryOperationResult.SUCCESS
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
ONLINE_TIMER = 60  # seconds (3.1.2.5)


@pytest.fixture
def integrated(tmp_path: Path) -> Iterator[Harness]:
    """A queue manager with DirectoryIntegrated True."""
    harness = Harness(tmp_path / "data", directory_integrated=True)
    yield harness
    harness.close()


@dataclass
class Journal:
    """A record of change notifications and of requests to the directory, in order."""

    entries: list[object] = field(default_factory=list)

    @classmethod
    def of(cls, h: Harness) -> Journal:
        journal = cls()
        h.engine.change_notification_subscribers.append(
            lambda operation, about, _: journal.entries.append((operation, about))
        )
        for name in ("create_object", "delete_object", "read", "write"):
            journal._watch(h.directory, name)
        return journal

    def _watch(self, directory: SteeredDirectory, name: str) -> None:
        original: Callable[..., object] = getattr(directory, name)

        def watched(*args: object, **kwargs: object) -> object:
            self.entries.append(name)
            return original(*args, **kwargs)

        directory.answers[name] = watched


def remote_queue(h: Harness, name: str = "orders", **attributes: object) -> Queue:
    """An element for a public queue of this computer that is in the directory only, or not yet."""
    queue = Queue(pathname=rf"ALPHA\{name}", queue_type=QueueType.PUBLIC, identifier=uuid.uuid4())
    for attribute, value in attributes.items():
        setattr(queue, attribute, value)
    return queue


def new_site(h: Harness, name: str, **attributes: object) -> Site:
    site = Site(name=name, **attributes)  # type: ignore[arg-type] # the test's own choice
    assert h.directory.create_object(site) == (SUCCESS, site.identifier)
    return site


def is_(name: str, value: object, operator: Operator = Operator.EQUALS) -> list[AttributeFilter]:
    return [AttributeFilter(name, operator, value)]


# Create, delete, write
# --------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.18-1")
def test_creating_a_public_queue_is_reported_before_the_directory_hears_of_it(h: Harness) -> None:
    """3.1.7.1.18: QueueCreation first, then MS-MQDSSM 3.1.6.1.

    The status and GUID of the latter are the answer.
    """
    queue = remote_queue(h)
    journal = Journal.of(h)
    assert h.engine.create_directory_object(queue) == (SUCCESS, queue.identifier)
    assert journal.entries == [(ChangeNotification.QUEUE_CREATION, queue), "create_object"]
    taken = remote_queue(h)
    assert h.engine.create_directory_object(taken) == (DirectoryOperationResult.OBJECT_ALREADY_EXISTS, None)


@pytest.mark.spec("DMPR-3.1.7.1.18-1")
@pytest.mark.parametrize(
    "directory_object",
    [Site(name="Paris"), QueueManager(computer_name="BETA", site_identifier_list=[uuid.uuid4()])],
    ids=["Site", "QueueManager"],
)
def test_creating_anything_else_is_reported_to_nobody(h: Harness, directory_object: DirectoryObject) -> None:
    """3.1.7.1.18: only a public queue raises Send Change Notification."""
    journal = Journal.of(h)
    assert h.engine.create_directory_object(directory_object) == (SUCCESS, directory_object.identifier)
    assert journal.entries == ["create_object"]


@pytest.mark.spec("DMPR-3.1.7.1.18-1")
def test_a_private_queue_has_no_object_and_no_notification(h: Harness) -> None:
    """3.1.7.1.18: the notification is for QueueType Public."""
    journal = Journal.of(h)
    h.create("q")
    h.engine.create_directory_object(h.queue("q"))
    assert not [entry for entry in journal.entries if isinstance(entry, tuple)]


@pytest.mark.spec("DMPR-3.1.7.1.18-1")
def test_a_created_object_has_the_listed_attributes_or_all(h: Harness) -> None:
    """3.1.7.1.18 iAttributeList: a subset to publish; without it every directory attribute."""
    some = remote_queue(h, "some", label="told", quota=7)
    every = remote_queue(h, "every", label="told", quota=7)
    h.engine.create_directory_object(some, ["Pathname", "Label"])
    h.engine.create_directory_object(every)
    found = []
    for identifier in (some.identifier, every.identifier):
        _, read = h.engine.read_directory("Queue", identifier_is(identifier))
        assert isinstance(read, Queue)
        found.append((read.label, read.quota))
    assert found == [("told", INFINITE), ("told", 7)]


@pytest.mark.spec("DMPR-3.1.7.1.19-1")
def test_deleting_a_public_queue_is_reported_before_the_directory_hears_of_it(h: Harness) -> None:
    """3.1.7.1.19: QueueDeletion, then MS-MQDSSM 3.1.6.2, whose status is the answer."""
    queue = remote_queue(h)
    h.engine.create_directory_object(queue)
    journal = Journal.of(h)
    assert h.engine.delete_directory_object(queue) is SUCCESS
    assert journal.entries == [(ChangeNotification.QUEUE_DELETION, queue), "delete_object"]
    assert h.directory.read("Queue", identifier_is(queue.identifier))[0] is NOT_FOUND
    assert h.engine.delete_directory_object(queue) is NOT_FOUND


@pytest.mark.spec("DMPR-3.1.7.1.19-1")
def test_deleting_a_site_is_reported_to_nobody(h: Harness) -> None:
    """3.1.7.1.19: only a public queue raises Send Change Notification."""
    site = new_site(h, "Paris")
    journal = Journal.of(h)
    assert h.engine.delete_directory_object(site) is SUCCESS
    assert journal.entries == ["delete_object"]


@pytest.mark.spec("DMPR-3.1.7.1.19-1")
def test_a_deleted_routing_link_is_not_used_from_memory(h: Harness) -> None:
    """3.1.7.1.19 and the delegation: deletions invalidate the cache.

    What was read within the last minute is discarded.
    """
    sites = [new_site(h, name) for name in ("Paris", "Lyon")]
    link = RoutingLink(site1_identifier=sites[0].identifier, site2_identifier=sites[1].identifier)
    h.engine.create_directory_object(link)
    assert len(h.engine.routing_links()) == 1
    assert h.engine.delete_directory_object(link) is SUCCESS
    assert h.engine.routing_links() == []


@pytest.mark.spec("DMPR-3.1.7.1.24-1")
def test_a_write_updates_the_listed_attributes_or_all(h: Harness) -> None:
    """3.1.7.1.24 iAttributeList; the status is that of MS-MQDSSM 3.1.6.7."""
    queue = remote_queue(h)
    h.engine.create_directory_object(queue)

    def read() -> tuple[str, int, QueuePrivacyLevel]:
        _, found = h.engine.read_directory("Queue", identifier_is(queue.identifier))
        assert isinstance(found, Queue)
        return found.label, found.quota, found.privacy_level

    queue.label, queue.quota, queue.privacy_level = "new", 9, QueuePrivacyLevel.BODY
    assert h.engine.write_directory(queue, ["Quota"]) is SUCCESS
    assert read() == ("", 9, QueuePrivacyLevel.OPTIONAL)
    assert h.engine.write_directory(queue) is SUCCESS
    assert read() == ("new", 9, QueuePrivacyLevel.BODY)
    assert h.engine.write_directory(remote_queue(h, "unknown")) is NOT_FOUND


@pytest.mark.spec("DMPR-3.1.7.1.24-2")
def test_a_write_is_reported_after_it_succeeded(h: Harness) -> None:
    """3.1.7.1.24: the events of a successful write.

    QueueUpdate for a public queue, QueueManagerUpdate for a queue manager, nothing for a site.
    """
    queue = remote_queue(h)
    h.engine.create_directory_object(queue)
    site = new_site(h, "Paris")
    journal = Journal.of(h)
    manager = h.engine.queue_manager
    for directory_object in (queue, manager, site):
        assert h.engine.write_directory(directory_object) is SUCCESS
    assert journal.entries == [
        "write",
        (ChangeNotification.QUEUE_UPDATE, queue),
        "write",
        (ChangeNotification.QUEUE_MANAGER_UPDATE, manager),
        "write",
    ]


@pytest.mark.spec("DMPR-6-9")
@pytest.mark.parametrize("version", ["4.0", "5.0", "10.0"])
def test_no_version_of_the_host_diverts_what_is_done_to_a_public_queue(h: Harness, version: str) -> None:
    """DECISIONS: note 17 and notes 21 to 31 are about MS-MQDS, which other systems used."""
    h.engine.queue_manager.operating_system_version = version
    queue = remote_queue(h)
    journal = Journal.of(h)
    assert h.engine.create_directory_object(queue) == (SUCCESS, queue.identifier)
    assert h.engine.write_directory(queue) is SUCCESS
    assert h.engine.delete_directory_object(queue) is SUCCESS
    assert journal.entries == [
        (ChangeNotification.QUEUE_CREATION, queue),
        "create_object",
        "write",
        (ChangeNotification.QUEUE_UPDATE, queue),
        (ChangeNotification.QUEUE_DELETION, queue),
        "delete_object",
    ]


@pytest.mark.spec("DMPR-3.1.7.1.24-2")
def test_a_failed_write_is_reported_to_nobody(h: Harness) -> None:
    """3.1.7.1.24: the notifications follow Success only."""
    journal = Journal.of(h)
    assert h.engine.write_directory(remote_queue(h, "unknown")) is NOT_FOUND
    h.directory.connected = False
    assert h.engine.write_directory(h.engine.queue_manager) is NOT_CONNECTED
    assert journal.entries == ["write", "write"]


# Read
# -------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
@pytest.mark.parametrize(
    ("operator", "found"),
    [
        (Operator.EQUALS, {5}),
        (Operator.NOT_EQUALS, {1, 9}),
        (Operator.LESS_THAN, {1}),
        (Operator.GREATER_THAN, {9}),
        (Operator.LESS_THAN_OR_EQUAL, {1, 5}),
        (Operator.GREATER_THAN_OR_EQUAL, {5, 9}),
    ],
    ids=lambda value: value.value if isinstance(value, Operator) else "",
)
def test_a_read_compares_with_each_operator(h: Harness, operator: Operator, found: set[int]) -> None:
    """3.1.7.1.20: the attribute is the left side, the value the right side of the comparison."""
    ends = [new_site(h, f"site{cost}") for cost in (0, 1, 5, 9)]
    for cost, site in zip((1, 5, 9), ends[1:], strict=True):
        link = RoutingLink(site1_identifier=ends[0].identifier, site2_identifier=site.identifier, actual_cost=cost)
        assert h.directory.create_object(link)[0] is SUCCESS
    filters = is_("ActualCost", 5, operator)
    result, first = h.engine.read_directory("RoutingLink", filters)
    assert result is SUCCESS
    assert isinstance(first, RoutingLink)
    costs = [link.actual_cost for link in read_all(h, "RoutingLink", filters) if isinstance(link, RoutingLink)]
    assert set(costs) == found
    assert first.actual_cost == costs[0]


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
def test_a_read_gives_the_first_object_that_satisfies_every_expression(h: Harness) -> None:
    """3.1.7.1.20: all expressions must hold.

    If nothing matches, the result is ObjectNotFound; without a filter it is the first object.
    """
    for name, label in (("a", "x"), ("b", "y"), ("c", "y")):
        h.engine.create_directory_object(remote_queue(h, name, label=label, quota=5 if name == "c" else 4))
    result, found = h.engine.read_directory("Queue", [*is_("Label", "y"), *is_("Quota", 4, Operator.GREATER_THAN)])
    assert (result, named(found)) == (SUCCESS, "c")
    assert h.engine.read_directory("Queue", [*is_("Label", "x"), *is_("Quota", 5)]) == (NOT_FOUND, None)
    result, found = h.engine.read_directory("Queue", None)
    assert (result, named(found)) == (SUCCESS, named(read_all(h, "Queue", None)[0]))


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
def test_a_read_fills_the_listed_attributes_or_all(h: Harness) -> None:
    """3.1.7.1.20 iAttributeList."""
    queue = remote_queue(h, label="told", quota=7)
    h.engine.create_directory_object(queue)
    _, some = h.engine.read_directory("Queue", identifier_is(queue.identifier), ["Label"])
    _, every = h.engine.read_directory("Queue", identifier_is(queue.identifier))
    assert isinstance(some, Queue)
    assert isinstance(every, Queue)
    assert (some.label, some.quota) == ("told", INFINITE)
    assert (every.label, every.quota) == ("told", 7)


def named(found: DirectoryObject | None) -> str:
    assert isinstance(found, Queue)
    return found.pathname.rpartition("\\")[2]


def read_all(
    h: Harness,
    object_type: str,
    filters: list[AttributeFilter] | None,
    attributes: list[str] | None = None,
    order: list[SortOrder] | None = None,
) -> list[DirectoryObject]:
    result, handle = h.engine.read_directory_begin(object_type, filters, attributes, order)
    assert result is SUCCESS
    assert handle is not None
    found = []
    while True:
        result, element = h.engine.read_directory_next(handle)
        if element is None:
            break
        found.append(element)
    assert result is DirectoryOperationResult.END_OF_DATA
    assert h.engine.read_directory_end(handle) is SUCCESS
    return found


@pytest.mark.spec("DMPR-3.1.7.1.21-1", "DMPR-3.1.7.1.22-1")
def test_a_query_gives_what_matches_in_the_order_asked_for(h: Harness) -> None:
    """3.1.7.1.21: the higher SortPriority decides first, 0 does not sort.

    3.1.7.1.22: after the last object comes EndOfData.
    """
    rows = [("a", "y", 2), ("b", "x", 1), ("c", "y", 3), ("d", "x", 2)]
    for name, label, quota in rows:
        h.engine.create_directory_object(remote_queue(h, name, label=label, quota=quota))
    columns = ["Pathname", "Label", "Quota"]

    def names(*order: SortOrder, filters: list[AttributeFilter] | None = None) -> str:
        return "".join(named(found) for found in read_all(h, "Queue", filters, columns, list(order)))

    unused, up, down = SortOrder(0), SortOrder(1, ascending=True), SortOrder(1, ascending=False)
    assert names(unused, SortOrder(5, ascending=True), SortOrder(3, ascending=False)) == "dbca"
    assert names(unused, SortOrder(3, ascending=True), SortOrder(5, ascending=False)) == "cdab"
    assert names(up, unused, unused) == "abcd"
    assert names(down, unused, unused) == "dcba"
    assert names(down, SortOrder(0, ascending=True), unused) == "dcba"
    assert names(up, unused, unused, filters=[*is_("Quota", 2), *is_("Label", "x")]) == "d"
    assert {named(found) for found in read_all(h, "Queue", None)} == set("abcd")


@pytest.mark.spec("DMPR-3.1.7.1.22-1")
def test_end_of_data_is_said_again_and_queries_do_not_disturb_each_other(h: Harness) -> None:
    """3.1.7.1.22: each handle has its own place.

    After the last object every call returns EndOfData.
    """
    for name in "ab":
        h.engine.create_directory_object(remote_queue(h, name))
    _, one = h.engine.read_directory_begin("Queue", None)
    _, other = h.engine.read_directory_begin("Queue", None)
    assert one is not None
    assert other is not None
    assert [named(h.engine.read_directory_next(handle)[1]) for handle in (one, one, other)] == ["a", "b", "a"]
    for _ in range(2):
        assert h.engine.read_directory_next(one) == (DirectoryOperationResult.END_OF_DATA, None)
    assert named(h.engine.read_directory_next(other)[1]) == "b"


@pytest.mark.spec("DMPR-3.1.7.1.23-1")
def test_an_ended_query_has_no_handle_any_more(h: Harness) -> None:
    """3.1.7.1.23: Success once; then Next and End on the handle are a GenericError."""
    _, handle = h.engine.read_directory_begin("Site", None)
    assert handle is not None
    assert h.engine.read_directory_end(handle) is SUCCESS
    assert h.engine.read_directory_next(handle) == (DirectoryOperationResult.GENERIC_ERROR, None)
    assert h.engine.read_directory_end(handle) is DirectoryOperationResult.GENERIC_ERROR


# The offline mode
# -------------------------------------------------------------------------------------

Operation = Callable[[Engine, Queue], DirectoryOperationResult]
OPERATIONS = {
    "create": lambda engine, queue: engine.create_directory_object(queue)[0],
    "delete": lambda engine, queue: engine.delete_directory_object(queue),
    "read": lambda engine, queue: engine.read_directory("Queue", identifier_is(queue.identifier))[0],
    "write": lambda engine, queue: engine.write_directory(queue),
}
ROWS = {
    "create": "DMPR-3.1.7.1.18-2",
    "delete": "DMPR-3.1.7.1.19-2",
    "read": "DMPR-3.1.7.1.20-4",
    "write": "DMPR-3.1.7.1.24-3",
}


@pytest.mark.parametrize(
    "operation",
    [pytest.param(operation, id=name, marks=pytest.mark.spec(ROWS[name])) for name, operation in OPERATIONS.items()],
)
def test_a_directory_that_is_away_begins_the_offline_mode_and_its_timer(
    integrated: Harness, operation: Operation
) -> None:
    """3.1.7.1.18, .19, .20, .24: DirectoryNotConnected sets DirectoryOffline.

    It also starts the one-minute timer.
    """
    h = integrated
    queue = remote_queue(h)
    h.directory.connected = False
    assert operation(h.engine, queue) is NOT_CONNECTED
    assert h.engine.queue_manager.directory_offline
    assert h.engine.next_delay() == ONLINE_TIMER
    journal = Journal.of(h)
    h.tick(ONLINE_TIMER - 1)
    assert "read" not in journal.entries
    h.tick(1)
    assert "read" in journal.entries


@pytest.mark.parametrize(
    "operation",
    [pytest.param(operation, id=name, marks=pytest.mark.spec(ROWS[name])) for name, operation in OPERATIONS.items()],
)
def test_a_running_timer_is_not_started_again(integrated: Harness, operation: Operation) -> None:
    """The Directory Online Timer is started "if it is not active already"."""
    h = integrated
    queue = remote_queue(h)
    h.directory.connected = False
    h.engine.write_directory(h.engine.queue_manager)
    h.tick(40)
    h.engine.queue_manager.directory_offline = False  # else a read is answered here
    assert operation(h.engine, queue) is NOT_CONNECTED
    assert h.engine.queue_manager.directory_offline
    assert h.engine.next_delay() == ONLINE_TIMER - 40


@pytest.mark.spec("DMPR-3.1.7.1.20-6")
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_workgroup_has_no_offline_mode(h: Harness, operation: Operation) -> None:
    """3.1.1.1: DirectoryOffline is False where DirectoryIntegrated is."""
    h.directory.connected = False
    assert operation(h.engine, remote_queue(h)) is NOT_CONNECTED
    assert not h.engine.queue_manager.directory_offline
    assert h.engine.next_delay() is None


@pytest.mark.spec("DMPR-3.1.7.1.20-2")
def test_while_offline_queues_are_read_from_the_queue_manager(integrated: Harness) -> None:
    """3.1.7.1.20: QueueCollection answers: a match is Success, none is ObjectNotFound."""
    h = integrated
    queue = h.create(r".\orders", label="mine")
    elsewhere = remote_queue(h, "elsewhere", label="theirs")
    h.engine.create_directory_object(elsewhere)
    h.engine.queue_manager.directory_offline = True
    journal = Journal.of(h)
    assert h.engine.read_directory("Queue", is_("Label", "mine")) == (SUCCESS, queue)
    assert h.engine.read_directory("Queue", identifier_is(queue.identifier)) == (SUCCESS, queue)
    assert h.engine.read_directory("Queue", [*is_("Label", "mine"), *is_("Quota", 1)]) == (NOT_FOUND, None)
    assert h.engine.read_directory("Queue", is_("Label", "theirs")) == (NOT_FOUND, None)
    assert journal.entries == []


@pytest.mark.spec("DMPR-3.1.7.1.20-3")
def test_while_offline_only_the_own_computer_is_known(integrated: Harness) -> None:
    """3.1.7.1.20: the local queue manager answers for itself.

    Every other read is DirectoryNotConnected, without asking the directory.
    """
    h = integrated
    manager = h.engine.queue_manager
    h.directory.create_object(QueueManager(computer_name="BETA", site_identifier_list=manager.site_identifier_list))
    manager.directory_offline = True
    journal = Journal.of(h)
    assert h.engine.read_directory("QueueManager", is_("ComputerName", "alpha")) == (SUCCESS, manager)
    assert h.engine.read_directory("QueueManager", None) == (SUCCESS, manager)
    assert h.engine.read_directory("QueueManager", is_("ComputerName", "BETA")) == (NOT_CONNECTED, None)
    for other in ("Site", "RoutingLink", "Enterprise", "User"):
        assert h.engine.read_directory(other, None) == (NOT_CONNECTED, None)
    assert journal.entries == []


@pytest.mark.spec("DMPR-3.1.7.1.20-2/earlier answers", "DMPR-3.1.7.1.20-3/earlier answers")
def test_while_offline_earlier_answers_of_the_directory_count(integrated: Harness) -> None:
    """An unknown name begins the offline mode, and must not hide what was read before."""
    h = integrated
    own = h.create(r".\orders", label="mine")
    theirs, beta = Queue(pathname=r"BETA\bills"), QueueManager(computer_name="BETA")
    known = {"Queue": theirs, "QueueManager": beta, "Site": Site(name="west")}
    h.directory.answers["recall"] = lambda kind, filters, attributes=None: known[kind] if filters else None
    h.engine.queue_manager.directory_offline = True
    assert h.engine.read_directory("Queue", is_("Pathname", r"BETA\bills")) == (SUCCESS, theirs)
    assert h.engine.read_directory("QueueManager", is_("ComputerName", "BETA")) == (SUCCESS, beta)
    assert h.engine.read_directory("Site", is_("Name", "west")) == (SUCCESS, known["Site"])
    assert h.engine.read_directory("Site", None) == (NOT_CONNECTED, None)
    # What this computer has takes precedence.
    assert h.engine.read_directory("Queue", is_("Label", "mine")) == (SUCCESS, own)
    manager = h.engine.queue_manager
    assert h.engine.read_directory("QueueManager", is_("ComputerName", "ALPHA")) == (SUCCESS, manager)


@pytest.mark.spec("DMPR-3.1.7.1.20-5")
def test_a_forced_read_asks_the_directory_and_changes_nothing(integrated: Harness) -> None:
    """3.1.7.1.20 iForceDirectoryRead: the read ignores the offline mode.

    A failure starts neither that mode nor its timer.
    """
    h = integrated
    manager = h.engine.queue_manager
    journal = Journal.of(h)
    manager.directory_offline = True
    result, found = h.engine.read_directory("Site", None, force_directory_read=True)
    assert (result, type(found)) == (SUCCESS, Site)
    assert manager.directory_offline
    manager.directory_offline = False
    h.directory.connected = False
    delay = h.engine.next_delay()
    assert h.engine.read_directory("Site", None, force_directory_read=True) == (NOT_CONNECTED, None)
    assert journal.entries == ["read", "read"]
    assert not manager.directory_offline
    assert h.engine.next_delay() == delay


def go_offline(h: Harness) -> None:
    h.directory.connected = False
    h.engine.read_directory("Site", None)
    assert h.engine.queue_manager.directory_offline


@pytest.mark.spec("DMPR-3.1.7.1.25-1")
def test_when_the_directory_is_back_its_values_are_taken_over(integrated: Harness) -> None:
    """3.1.7.1.25: the own object first, DirectoryOffline False, then every public queue."""
    h = integrated
    manager = h.engine.queue_manager
    public, other, private = h.create(r".\orders"), h.create(r".\bills", quota=8), h.create("q", label="mine")
    go_offline(h)
    # Meanwhile all of them are changed in the directory.
    h.directory.connected = True
    for queue, label, quota in ((public, "theirs", 5), (other, "paid", 6)):
        changed = Queue(identifier=queue.identifier, queue_type=QueueType.PUBLIC, label=label, quota=quota)
        assert h.directory.write(changed, ["Label", "Quota"]) is SUCCESS
    assert h.directory.write(QueueManager(identifier=manager.identifier, journal_quota=77), ["JournalQuota"]) is SUCCESS
    assert (public.label, manager.journal_quota) == ("", INFINITE)
    h.tick(ONLINE_TIMER)
    assert not manager.directory_offline
    assert manager.journal_quota == 77
    assert [(queue.label, queue.quota) for queue in (public, other)] == [("theirs", 5), ("paid", 6)]
    assert private.label == "mine"
    assert h.engine.read_directory("Site", None)[0] is SUCCESS


def test_many_queues_are_read_again_in_slices(integrated: Harness) -> None:
    """Each read of a directory elsewhere takes time, and messages wait for no more than a few."""
    h = integrated
    queues = [h.create(rf".\{number}") for number in range(10)]
    go_offline(h)
    h.directory.connected = True
    for queue in queues:
        h.directory.write(Queue(identifier=queue.identifier, queue_type=QueueType.PUBLIC, label="new"), ["Label"])
    plain = h.directory.read

    def slow(*arguments: object) -> object:
        h.now += 0.02
        return plain(*arguments)  # type: ignore[arg-type] # as it was called

    h.directory.answers["read"] = slow
    h.tick(ONLINE_TIMER)
    assert not h.engine.queue_manager.directory_offline
    counts = [sum(queue.label == "new" for queue in queues)]
    h.engine.delete_queue(queues[4])
    while h.engine.next_delay() == 0:
        h.tick(0)
        counts.append(sum(queue.label == "new" for queue in queues))
    assert counts == [3, 6, 9]


@pytest.mark.spec("DMPR-3.1.7.1.25-1")
def test_what_was_taken_over_outlives_a_restart(integrated: Harness) -> None:
    """3.1.1.2: directory attributes persist.

    In a workgroup of one computer, a restart must not restore old values.
    """
    h = integrated
    public = h.create(r".\orders")
    go_offline(h)
    h.directory.connected = True
    h.directory.write(Queue(identifier=public.identifier, queue_type=QueueType.PUBLIC, label="theirs"), ["Label"])
    h.tick(ONLINE_TIMER)
    h.restart()
    assert h.queue(r"DIRECT=OS:.\orders").label == "theirs"


@pytest.mark.spec("DMPR-3.1.7.1.25-2")
def test_a_directory_that_stays_away_is_asked_every_minute(integrated: Harness) -> None:
    """3.1.7.1.25: not Success leaves DirectoryOffline and starts the timer again."""
    h = integrated
    go_offline(h)
    journal = Journal.of(h)
    for minute in range(1, 4):
        h.tick(ONLINE_TIMER)
        assert journal.entries == ["read"] * minute
        assert h.engine.queue_manager.directory_offline
        assert h.engine.next_delay() == ONLINE_TIMER
    h.directory.connected = True
    h.tick(ONLINE_TIMER)
    assert not h.engine.queue_manager.directory_offline


@pytest.mark.spec("DMPR-3.1.1.1-9")
def test_sites_and_routing_servers_follow_their_lists(integrated: Harness) -> None:
    """3.1.1.1: the Identifier of every member is in the matching list.

    This holds also when the list changed meanwhile.
    """
    h = integrated
    manager = h.engine.queue_manager
    (old,) = manager.site_collection
    paris = new_site(h, "Paris")
    servers = [QueueManager(computer_name=name, site_identifier_list=[paris.identifier]) for name in ("R1", "R2")]
    for server in servers:
        assert h.directory.create_object(server)[0] is SUCCESS
    changed = QueueManager(
        identifier=manager.identifier,
        site_identifier_list=[paris.identifier],
        out_routing_server_identifier_list=[servers[0].identifier],
        in_routing_server_identifier_list=[servers[1].identifier],
    )
    names = ["SiteIdentifierList", "OutRoutingServerIdentifierList", "InRoutingServerIdentifierList"]
    assert h.directory.write(changed, names) is SUCCESS
    h.directory.connected = False
    assert h.engine.read_directory("Site", None)[0] is NOT_CONNECTED
    assert manager.site_collection == [old]
    h.directory.connected = True
    h.tick(ONLINE_TIMER)
    assert [site.name for site in manager.site_collection] == ["Paris"]
    assert [server.computer_name for server in manager.out_routing_server_collection] == ["R1"]
    assert [server.computer_name for server in manager.in_routing_server_collection] == ["R2"]
    h.restart()
    manager = h.engine.queue_manager
    assert [site.name for site in manager.site_collection] == ["Paris"]
    assert [server.computer_name for server in manager.out_routing_server_collection] == ["R1"]


# Sites and site gates
# ---------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.6.1-1")
def test_sites_are_read_again_and_one_that_cannot_be_is_kept(integrated: Harness) -> None:
    """3.1.6.1: by Identifier; Success updates the site, anything else leaves it as it is."""
    h = integrated
    (site,) = h.engine.queue_manager.site_collection
    gone = Site(name="gone", inter_site_replication_interval=3)
    h.engine.queue_manager.site_collection.insert(0, gone)
    there = Site(identifier=site.identifier, inter_site_replication_interval=44)
    assert h.directory.write(there, ["InterSiteReplicationInterval"]) is SUCCESS
    h.engine.directory_sites_update()
    assert h.engine.queue_manager.site_collection == [gone, site]
    assert (gone.name, gone.inter_site_replication_interval) == ("gone", 3)
    assert site.inter_site_replication_interval == 44
    h.directory.connected = False
    h.engine.directory_sites_update()
    assert site.inter_site_replication_interval == 44


@pytest.mark.spec("DMPR-3.1.6.2-1")
def test_site_gates_are_read_again_and_one_that_cannot_be_is_kept(integrated: Harness) -> None:
    """3.1.6.2: every gate of every site by Identifier, updated on Success only."""
    h = integrated
    manager = h.engine.queue_manager
    sites = [*manager.site_collection, new_site(h, "Paris")]
    gates = [
        QueueManager(computer_name=name, site_identifier_list=manager.site_identifier_list) for name in ("G1", "G2")
    ]
    for site, gate in zip(sites, gates, strict=True):
        assert h.directory.create_object(gate)[0] is SUCCESS
        site.site_gate_collection = [QueueManager(identifier=gate.identifier, journal_quota=1)]
    gone = QueueManager(computer_name="GONE", journal_quota=3)
    sites[1].site_gate_collection.append(gone)
    manager.site_collection[:] = sites
    h.engine.directory_site_gates_update()
    assert [(gate.computer_name, gate.journal_quota) for site in sites for gate in site.site_gate_collection] == [
        ("G1", INFINITE),
        ("G2", INFINITE),
        ("GONE", 3),
    ]
    # One that a routing link has named since is added, and none a second time.
    new = QueueManager(computer_name="NEW", site_identifier_list=manager.site_identifier_list)
    assert h.directory.create_object(new)[0] is SUCCESS
    link = RoutingLink(
        site1_identifier=sites[0].identifier,
        site2_identifier=sites[1].identifier,
        site_gate_identifier_list=[gates[0].identifier, new.identifier],
    )
    assert h.directory.create_object(link)[0] is SUCCESS
    for _ in range(2):
        h.engine.directory_site_gates_update()
        assert [gate.computer_name for gate in sites[0].site_gate_collection] == ["G1", "NEW"]


@pytest.mark.spec("DMPR-3.1.6.1-1", "DMPR-3.1.6.2-1")
def test_sites_and_gates_are_refreshed_by_their_timers(tmp_path: Path) -> None:
    """3.1.2.1, 3.1.2.2: every twelve hours and every hour, unless set otherwise."""
    h = Harness(
        tmp_path / "data",
        directory_integrated=True,
        directory_sites_update_interval=100.0,
        directory_site_gates_update_interval=70.0,
    )
    manager = h.engine.queue_manager
    (site,) = manager.site_collection
    gate = QueueManager(computer_name="G1", site_identifier_list=manager.site_identifier_list, journal_quota=5)
    h.directory.create_object(gate)
    site.site_gate_collection = [QueueManager(identifier=gate.identifier)]
    h.directory.write(Site(identifier=site.identifier, inter_site_replication_interval=44))
    before = site.inter_site_replication_interval
    h.tick(69)
    assert site.site_gate_collection[0].journal_quota == INFINITE
    h.tick(1)
    assert (site.site_gate_collection[0].journal_quota, site.inter_site_replication_interval) == (5, before)
    h.tick(30)
    assert site.inter_site_replication_interval == 44
    h.close()
