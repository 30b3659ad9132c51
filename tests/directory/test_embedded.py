"""MS-MQDSSM 3.1.6 on the embedded directory.

Also MS-MQDMPR 3.1.7.1.18-24, as far as the directory decides.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanner.directory import AttributeFilter, Directory, EmbeddedDirectory, MemoryTable, Operator, SortOrder
from lanner.directory.schema import CLASSES
from lanner.model.directory_objects import (
    GUID_NULL,
    ConnectedNetwork,
    DirectoryObject,
    Enterprise,
    Queue,
    QueueManager,
    RoutingLink,
    Site,
    User,
)
from lanner.model.enums import (
    INFINITE,
    DirectoryOperationResult,
    DirectoryServerType,
    OperatingSystemType,
    QueuePrivacyLevel,
    QueueType,
)
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import Sid

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
EXISTS = DirectoryOperationResult.OBJECT_ALREADY_EXISTS
END_OF_DATA = DirectoryOperationResult.END_OF_DATA
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED

ROOT = "DC=example,DC=org"


class World:
    """A directory with one site and one queue manager, and a clock that stands still."""

    def __init__(self) -> None:
        self.table = MemoryTable()
        self.now = [1_000_000.0]
        self.directory = self.open()
        self.site = self.directory.provision("north")
        self.manager = self.add_manager("alpha")

    def open(self) -> EmbeddedDirectory:
        return EmbeddedDirectory(self.table, root=ROOT, clock=lambda: self.now[0])

    def add_manager(self, name: str, **values: object) -> QueueManager:
        manager = QueueManager(computer_name=name, site_identifier_list=[self.site])
        for field, value in values.items():
            setattr(manager, field, value)
        assert self.directory.create_object(manager)[0] is SUCCESS
        return manager

    def add_queue(self, name: str, **values: object) -> Queue:
        queue = Queue(pathname=f"alpha\\{name}")
        for field, value in values.items():
            setattr(queue, field, value)
        assert self.directory.create_object(queue)[0] is SUCCESS
        return queue

    def entries(self, ldap_class: str) -> list[dict[str, list[object]]]:
        rows = [json.loads(row) for row in self.table.rows.values()]
        return [row for row in rows if row["objectClass"] == [ldap_class]]

    def all(
        self,
        object_type: str,
        filters: list[AttributeFilter] | None = None,
        attributes: list[str] | None = None,
        order: list[SortOrder] | None = None,
    ) -> list[DirectoryObject]:
        result, handle = self.directory.read_begin(object_type, filters, attributes, order)
        assert result is SUCCESS
        assert handle is not None
        found: list[DirectoryObject] = []
        while True:
            result, obj = self.directory.read_next(handle)
            if obj is None:
                assert result is END_OF_DATA
                assert self.directory.read_end(handle) is SUCCESS
                return found
            assert result is SUCCESS
            found.append(obj)

    def labels(self, *filters: AttributeFilter) -> list[str]:
        return [obj.label for obj in self.all("Queue", list(filters)) if isinstance(obj, Queue)]


@pytest.fixture
def world() -> World:
    return World()


def equals(name: str, value: object) -> AttributeFilter:
    return AttributeFilter(name, Operator.EQUALS, value)


def read_queue(world: World, identifier: uuid.UUID) -> Queue:
    result, found = world.directory.read("Queue", [equals("Identifier", identifier)])
    assert result is SUCCESS
    assert isinstance(found, Queue)
    return found


def read_manager(world: World, identifier: uuid.UUID) -> QueueManager:
    result, found = world.directory.read("QueueManager", [equals("Identifier", identifier)])
    assert result is SUCCESS
    assert isinstance(found, QueueManager)
    return found


def test_it_is_a_directory(world: World) -> None:
    directory: Directory = world.directory
    assert directory is world.directory


# The schema
# ------------------------------------------------------------------------------------------

# MS-MQDSSM 2.4, with the attributes that stand for the object itself in every class.
SCHEMA = {
    "mSMQQueue": "mSMQAuthenticate mSMQBasePriority mSMQJournal mSMQLabelEx MSMQ-MulticastAddress mSMQPrivacyLevel "
    "mSMQQueueJournalQuota mSMQQueueNameExt mSMQQueueQuota mSMQQueueType mSMQTransactional nTSecurityDescriptor",
    "mSMQConfiguration": "mSMQComputerTypeEx mSMQDependentClientServices mSMQDsServices mSMQEncryptKey mSMQForeign "
    "mSMQInRoutingServers mSMQJournalQuota mSMQOSType mSMQOutRoutingServers mSMQQuota mSMQRoutingServices "
    "mSMQServiceType mSMQSites nTSecurityDescriptor",
    "computer": "dNSHostName mSMQSignCertificates objectSid servicePrincipalName operatingSystemVersion",
    "site": "cn mSMQInterval1 mSMQInterval2 mSMQNt4Stub mSMQSiteForeign nTSecurityDescriptor",
    "mSMQEnterpriseSettings": "mSMQCSPName mSMQLongLived mSMQNameStyle mSMQVersion nTSecurityDescriptor",
    "user": "mSMQDigests mSMQSignCertificates objectSid",
    "mSMQSiteLink": "description mSMQCost mSMQSite1 mSMQSite2 mSMQSiteGates",
    "mSMQSettings": "mSMQDependentClientService mSMQDsService mSMQQMID mSMQRoutingService mSMQServices",
}
COMMON = {"objectClass", "objectGUID", "distinguishedName", "whenCreated", "whenChanged"}

FULL_QUEUE = {
    "label": "Orders",
    "type": uuid.UUID(int=7),
    "journaling": True,
    "quota": 1024,
    "journal_quota": 0x8000_0000,
    "authentication": True,
    "privacy_level": QueuePrivacyLevel.BODY,
    "transactional": True,
    "multicast_address": "234.1.1.1:8001",
    "security": parse_sddl("O:BAD:(A;;0xf003f;;;WD)").pack(),
    "base_priority": 3,
}


@pytest.mark.spec("DMPR-2.3-1")
def test_objects_are_kept_under_the_classes_and_attributes_of_the_schema(world: World) -> None:
    """MS-MQDSSM 2.4: every attribute an object can have is written, and nothing beside them."""
    gate = world.add_manager(
        "gate",
        routing_server=True,
        directory_server=True,
        qualified_computer_name="gate.example.org",
        operating_system_version="12",
        queue_manager_version="Lanner",
        clustered=True,
        public_encryption_key_list=b"keys",
        public_signing_key_list=b"keys",
        out_routing_server_identifier_list=[world.manager.identifier],
        in_routing_server_identifier_list=[world.manager.identifier],
        security=parse_sddl("D:(A;;0xf00f7;;;WD)").pack(),
    )
    world.add_queue("q" * 100, **FULL_QUEUE)
    other = Site(name="south", foreign_site=True)
    assert world.directory.create_object(other)[0] is SUCCESS
    link = RoutingLink(
        site1_identifier=world.site,
        site2_identifier=other.identifier,
        description="cable",
        site_gate_identifier_list=[gate.identifier],
    )
    assert world.directory.create_object(link)[0] is SUCCESS
    sid = Sid.parse("S-1-5-21-1-2-3-1000").pack()
    assert world.directory.add_user("ann", sid)[0] is SUCCESS
    user = User(security_identifier=sid, certificate_digest_list=[b"d" * 16], certificates=b"certificates")
    assert world.directory.write(user) is SUCCESS
    for ldap_class, names in SCHEMA.items():
        written: set[str] = set()
        for entry in world.entries(ldap_class):
            written |= entry.keys()
        assert written - COMMON == set(names.split()), ldap_class
    assert {one["objectClass"][0] for one in map(json.loads, world.table.rows.values())} <= SCHEMA.keys() | {
        "domainDNS"
    }


@pytest.mark.spec("DMPR-2.3-1")
def test_values_have_the_syntax_of_the_schema(world: World) -> None:
    world.add_queue("orders", **FULL_QUEUE)
    (entry,) = world.entries("mSMQQueue")
    assert entry["mSMQJournal"] == ["TRUE"]
    assert entry["mSMQQueueQuota"] == ["1024"]
    # A 32-bit integer with a sign.
    assert entry["mSMQQueueJournalQuota"] == ["-2147483648"]
    assert entry["mSMQPrivacyLevel"] == ["2"]
    assert entry["whenCreated"] == ["19700112134640.0Z"]
    assert entry["distinguishedName"] == [f"CN=orders,CN=msmq,CN=alpha,CN=Computers,{ROOT}"]


def test_every_attribute_of_a_queue_comes_back(world: World) -> None:
    queue = world.add_queue("Orders", **FULL_QUEUE)
    found = read_queue(world, queue.identifier)
    for name, value in FULL_QUEUE.items():
        assert getattr(found, name) == value, name
    assert (found.create_time, found.modify_time) == (1_000_000, 1_000_000)
    # 3.1.6.11.2.1: lower case.
    assert found.pathname == "alpha\\orders"
    assert found.queue_type is QueueType.PUBLIC


def test_a_queue_says_where_it_lives(world: World) -> None:
    world.manager.qualified_computer_name = "alpha.example.org"
    assert world.directory.write(world.manager) is SUCCESS
    found = read_queue(world, world.add_queue("orders").identifier)
    assert found.queue_manager is not None
    assert found.queue_manager.computer_name == "alpha"
    assert found.queue_manager.identifier == world.manager.identifier
    assert found.qualified_pathname == "alpha.example.org\\orders"


def test_every_attribute_of_a_queue_manager_comes_back(world: World) -> None:
    values: dict[str, object] = {
        "queue_manager_version": "6.3",
        "operating_system_version": "6.1",
        "operating_system_type": OperatingSystemType.WIN_SERVER,
        "qualified_computer_name": "beta.example.org",
        "queue_manager_quota": INFINITE,
        "journal_quota": 5,
        "foreign_system": True,
        "out_routing_server_identifier_list": [world.manager.identifier],
        "in_routing_server_identifier_list": [world.manager.identifier],
        "directory_server": True,
        "remote_access_server": True,
        "routing_server": True,
        "supporting_server": True,
        "directory_server_type": DirectoryServerType.PRIMARY_SITE_CONTROLLER,
        "public_encryption_key_list": b"encryption",
        "public_signing_key_list": b"signing",
        "clustered": True,
    }
    manager = world.add_manager("beta", **values)
    found = read_manager(world, manager.identifier)
    for name, value in values.items():
        assert getattr(found, name) == value, name
    assert found.computer_name == "beta"
    assert found.full_path == manager.full_path == f"CN=msmq,CN=beta,CN=Computers,{ROOT}"
    assert found.site_identifier_list == [world.site]


@pytest.mark.parametrize(
    ("is_server", "kind", "bits", "back"),
    [
        (False, DirectoryServerType.PRIMARY_SITE_CONTROLLER, "0", None),
        (True, DirectoryServerType.STANDALONE, "0", DirectoryServerType.STANDALONE),
        (True, None, "0", DirectoryServerType.STANDALONE),
        (True, DirectoryServerType.BACKUP_SITE_CONTROLLER, "2", DirectoryServerType.BACKUP_SITE_CONTROLLER),
        (
            True,
            DirectoryServerType.PRIMARY_ENTERPRISE_CONTROLLER,
            "8",
            DirectoryServerType.PRIMARY_ENTERPRISE_CONTROLLER,
        ),
    ],
)
def test_service_type_bits(
    world: World, is_server: bool, kind: DirectoryServerType | None, bits: str, back: DirectoryServerType | None
) -> None:
    """MS-MQDSSM 3.1.6.1.1.5, 3.1.6.11.1.5."""
    manager = world.add_manager("beta", directory_server=is_server, directory_server_type=kind)
    entry = next(one for one in world.entries("mSMQConfiguration") if "CN=beta" in str(one["distinguishedName"]))
    assert entry["mSMQServiceType"] == [bits]
    assert read_manager(world, manager.identifier).directory_server_type is back


# Create
# ----------------------------------------------------------------------------------------------


def test_creation_sets_the_paths(world: World) -> None:
    queue = world.add_queue("orders")
    assert queue.full_path == f"CN=orders,CN=msmq,CN=alpha,CN=Computers,{ROOT}"
    assert queue.directory_path == f"LDAP://{queue.full_path}"
    assert (queue.create_time, queue.modify_time) == (1_000_000, 1_000_000)


def test_a_guid_is_assigned_to_an_object_without_one(world: World) -> None:
    result, guid = world.directory.create_object(Queue(pathname="alpha\\q", identifier=GUID_NULL))
    assert result is SUCCESS
    assert guid is not None
    assert guid != GUID_NULL
    assert read_queue(world, guid).pathname == "alpha\\q"


def test_two_public_queues_cannot_have_one_pathname(world: World) -> None:
    world.add_queue("orders")
    assert world.directory.create_object(Queue(pathname="ALPHA\\Orders")) == (EXISTS, None)


def test_two_objects_cannot_have_one_identifier(world: World) -> None:
    queue = world.add_queue("orders")
    for other in (
        Queue(pathname="alpha\\other", identifier=queue.identifier),
        Site(name="south", identifier=queue.identifier),
        QueueManager(computer_name="beta", site_identifier_list=[world.site], identifier=queue.identifier),
    ):
        assert world.directory.create_object(other) == (EXISTS, None)
    assert world.directory.computer_sid("beta") is None


def test_long_queue_names_stay_apart(world: World) -> None:
    first, second = (world.add_queue("q" * 120 + tail) for tail in "12")
    assert read_queue(world, first.identifier).pathname == "alpha\\" + "q" * 120 + "1"
    result, found = world.directory.read("Queue", [equals("Pathname", second.pathname)])
    assert result is SUCCESS
    assert found is not None
    assert found.identifier == second.identifier


def test_a_computer_that_is_set_up_again_keeps_its_object(world: World) -> None:
    """MS-MQDSSM 3.1.6.1.1.2: after ObjectAlreadyExists, the existing GUID is read."""
    again = QueueManager(computer_name="ALPHA", site_identifier_list=[world.site])
    assert world.directory.create_object(again) == (SUCCESS, world.manager.identifier)
    assert len(world.entries("mSMQConfiguration")) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda _: (Queue(pathname="alpha\\q", queue_type=QueueType.PRIVATE), None),
        lambda _: (Queue(pathname=""), None),
        lambda _: (Queue(pathname="alpha\\private$\\q"), None),
        lambda _: (Queue(pathname="alpha\\q"), ["Label"]),
        lambda _: (Queue(pathname="alpha\\q"), ["Pathname", "Scope"]),
        lambda _: (Queue(pathname="alpha\\q"), ["Pathname", "NoSuchAttribute"]),
        lambda _: (QueueManager(computer_name="beta"), None),
        lambda site: (QueueManager(site_identifier_list=[site]), None),
        lambda site: (QueueManager(computer_name="beta", site_identifier_list=[site]), ["ComputerName"]),
        lambda site: (
            QueueManager(computer_name="beta", site_identifier_list=[site]),
            ["SiteIdentifierList", "ConnectedNetworkIdentifierList"],
        ),
        lambda _: (Site(), None),
        lambda _: (Site(name="south"), ["Name", "PrimarySiteController"]),
        lambda _: (Site(name="south"), ["MigratedFromMsmq10"]),
        lambda site: (RoutingLink(site1_identifier=site), None),
        lambda site: (RoutingLink(site1_identifier=site, site2_identifier=uuid.UUID(int=9)), None),
        lambda site: (RoutingLink(site1_identifier=site, site2_identifier=site), ["ActualCost"]),
        lambda _: (Enterprise(), None),
        lambda _: (User(), None),
        lambda _: (ConnectedNetwork(), None),
    ],
)
def test_fail_create_preconditions(
    world: World, make: Callable[[uuid.UUID], tuple[DirectoryObject, list[str] | None]]
) -> None:
    """MS-MQDSSM 3.1.6.1 and the Preconditions of its sections."""
    before = dict(world.table.rows)
    obj, attributes = make(world.site)
    assert world.directory.create_object(obj, attributes) == (GENERIC_ERROR, None)
    assert world.table.rows == before


def test_fail_queue_on_a_computer_that_is_not_there(world: World) -> None:
    assert world.directory.create_object(Queue(pathname="omega\\q")) == (NOT_FOUND, None)


def test_only_listed_attributes_are_published(world: World) -> None:
    queue = Queue(pathname="alpha\\q", label="secret", quota=5)
    assert world.directory.create_object(queue, ["Pathname", "quota"])[0] is SUCCESS
    found = read_queue(world, queue.identifier)
    assert (found.label, found.quota) == ("", 5)


@pytest.mark.spec("DMPR-3.1.1.7-1")
def test_site_names_are_unique_and_intervals_are_seconds(world: World) -> None:
    first = Site(name="south", intra_site_replication_interval=2, inter_site_replication_interval=10)
    assert world.directory.create_object(first)[0] is SUCCESS
    assert world.directory.create_object(Site(name="south")) == (EXISTS, None)
    assert world.directory.create_object(Site(name="SOUTH")) == (EXISTS, None)
    assert world.directory.create_object(Site(name="southern"))[0] is SUCCESS
    # A name cannot be changed into one that is taken either: Write Directory does not rename.
    first.name = "north"
    assert world.directory.write(first, ["Name"]) is SUCCESS
    names = [site.name for site in world.all("Site") if isinstance(site, Site)]
    assert names == ["north", "south", "southern"]
    _, found = world.directory.read("Site", [equals("Identifier", first.identifier)])
    assert isinstance(found, Site)
    # Kept and returned as the seconds that were given.
    assert (found.intra_site_replication_interval, found.inter_site_replication_interval) == (2, 10)


@pytest.mark.spec("DMPR-3.1.1.8-1")
def test_link_cost_is_1_to_999999(world: World) -> None:
    other = Site(name="south")
    world.directory.create_object(other)

    def link_of(cost: int) -> RoutingLink:
        return RoutingLink(actual_cost=cost, site1_identifier=world.site, site2_identifier=other.identifier)

    for cost in (0, 1_000_000):
        with pytest.raises(ValueError, match=f"cost {cost}"):
            link_of(cost)
        link = link_of(1)
        link.actual_cost = cost
        assert world.directory.create_object(link) == (GENERIC_ERROR, None)
    for cost in (1, 999_999):
        link = link_of(cost)
        assert world.directory.create_object(link)[0] is SUCCESS
        _, found = world.directory.read("RoutingLink", None)
        assert isinstance(found, RoutingLink)
        assert found.actual_cost == cost
        for wrong in (0, 1_000_000):
            found.actual_cost = wrong
            assert world.directory.write(found) is GENERIC_ERROR
        assert world.directory.delete_object(link) is SUCCESS


def test_a_link_names_its_sites_and_gates(world: World) -> None:
    other = Site(name="south")
    world.directory.create_object(other)
    gates = [world.manager.identifier, uuid.UUID(int=99)]
    link = RoutingLink(
        site1_identifier=world.site, site2_identifier=other.identifier, actual_cost=5, site_gate_identifier_list=gates
    )
    assert world.directory.create_object(link)[0] is SUCCESS
    _, found = world.directory.read("RoutingLink", [AttributeFilter("ActualCost", Operator.LESS_THAN, 6)])
    assert isinstance(found, RoutingLink)
    assert (found.site1_identifier, found.site2_identifier) == (world.site, other.identifier)
    # 3.1.6.1.4.6: a gate the directory does not know is skipped.
    assert found.site_gate_identifier_list == [world.manager.identifier]
    assert world.directory.delete_object(other) is SUCCESS
    # 3.1.6.11.5.2: a link to a deleted site cannot be read.
    assert world.directory.read("RoutingLink", None) == (GENERIC_ERROR, None)


def test_default_security_of_managers_and_sites(world: World) -> None:
    found = read_manager(world, world.manager.identifier)
    assert found.security is not None
    machine = world.directory.computer_sid("alpha")
    assert machine is not None
    sid = str(Sid.unpack(machine))
    assert format_sddl(SecurityDescriptor.unpack(found.security)) == (
        f"O:BAD:(A;;0x20020;;;WD)(A;;0xf00f7;;;{sid})(A;;0x20034;;;{sid})(A;;0xf00f7;;;BA)"
    )
    _, site = world.directory.read("Site", None)
    assert isinstance(site, Site)
    assert site.security is not None
    assert format_sddl(SecurityDescriptor.unpack(site.security)) == "O:BAD:(A;;0x20020;;;WD)(A;;0xf0037;;;BA)"
    kept = parse_sddl("O:BAD:(A;;0x4;;;WD)").pack()
    assert read_manager(world, world.add_manager("beta", security=kept).identifier).security == kept


# Read
# ------------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
@pytest.mark.parametrize(
    ("operator", "labels"),
    [
        (Operator.EQUALS, ["b"]),
        (Operator.NOT_EQUALS, ["a", "c"]),
        (Operator.LESS_THAN, ["a"]),
        (Operator.GREATER_THAN, ["c"]),
        (Operator.LESS_THAN_OR_EQUAL, ["a", "b"]),
        (Operator.GREATER_THAN_OR_EQUAL, ["b", "c"]),
    ],
)
@pytest.mark.parametrize("name", ["BasePriority", "base_priority", "Label", "Identifier"])
def test_the_six_operators(world: World, operator: Operator, labels: list[str], name: str) -> None:
    values = {"BasePriority": 2, "base_priority": 2, "Label": "B", "Identifier": uuid.UUID(int=2)}
    for number, label in enumerate("abc", start=1):
        world.add_queue(label, label=label, base_priority=number, identifier=uuid.UUID(int=number))
    assert world.labels(AttributeFilter(name, operator, values[name])) == labels
    result, found = world.directory.read("Queue", [AttributeFilter(name, operator, values[name])])
    assert result is SUCCESS
    assert isinstance(found, Queue)
    assert found.label == labels[0]


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
def test_every_expression_counts_and_no_filter_gives_the_first(world: World) -> None:
    for number, label in enumerate("abc"):
        world.add_queue(label, label=label, base_priority=number, journaling=label != "a")
    both = [equals("Journaling", True), AttributeFilter("BasePriority", Operator.LESS_THAN, 2)]
    assert world.labels(*both) == ["b"]
    assert world.directory.read("Queue", [*both, equals("Label", "c")]) == (NOT_FOUND, None)
    result, found = world.directory.read("Queue", None)
    assert result is SUCCESS
    assert isinstance(found, Queue)
    assert found.label == "a"
    assert world.directory.read("Queue", [equals("Identifier", uuid.UUID(int=9))]) == (NOT_FOUND, None)
    assert world.directory.read("RoutingLink", None) == (NOT_FOUND, None)


@pytest.mark.spec("DMPR-3.1.7.1.20-1")
def test_listed_attributes_are_set_and_the_others_are_not(world: World) -> None:
    world.add_queue("orders", label="Orders", quota=7)
    result, found = world.directory.read("Queue", [equals("Pathname", "alpha\\orders")], ["Quota"])
    assert result is SUCCESS
    assert isinstance(found, Queue)
    assert (found.quota, found.label) == (7, "")
    result, found = world.directory.read("Queue", [equals("Pathname", "alpha\\orders")])
    assert isinstance(found, Queue)
    assert (found.quota, found.label) == (7, "Orders")


def test_a_listed_attribute_without_a_value_is_not_found(world: World) -> None:
    world.add_queue("orders")
    by_path = [equals("Pathname", "alpha\\orders")]
    not_found = DirectoryOperationResult.ATTRIBUTE_NOT_FOUND
    assert world.directory.read("Queue", by_path, ["Security"]) == (not_found, None)
    # 3.1.6.11.2: these have a default.
    assert world.directory.read("Queue", by_path, ["Label", "MulticastAddress", "Quota"])[0] is SUCCESS


@pytest.mark.parametrize(
    ("object_type", "name", "value"),
    [
        ("QueueManager", "ComputerName", "ALPHA"),
        ("QueueManager", "FullPath", f"CN=MSMQ, CN=Alpha, CN=Computers, {ROOT}"),
        ("QueueManager", "SiteIdentifierList", None),
        ("Site", "Name", "North"),
    ],
)
def test_other_ways_to_name_an_object(world: World, object_type: str, name: str, value: object) -> None:
    result, found = world.directory.read(object_type, [equals(name, world.site if value is None else value)])
    assert result is SUCCESS
    assert found is not None
    assert found.identifier == (world.site if object_type == "Site" else world.manager.identifier)


@pytest.mark.parametrize(
    ("object_type", "filters", "attributes"),
    [
        ("ConnectedNetwork", None, None),
        ("NoSuchType", None, None),
        ("Queue", [equals("NoSuchAttribute", 1)], None),
        ("Queue", None, ["NoSuchAttribute"]),
        ("QueueManager", None, ["ConnectedNetworkIdentifierList"]),
        ("Site", None, ["PublicSigningKeyList"]),
    ],
)
def test_fail_read(
    world: World, object_type: str, filters: list[AttributeFilter] | None, attributes: list[str] | None
) -> None:
    world.add_queue("q")
    assert world.directory.read(object_type, filters, attributes) == (GENERIC_ERROR, None)
    assert world.directory.read_begin(object_type, filters, attributes) == (GENERIC_ERROR, None)


def test_enterprise_is_there_once(world: World) -> None:
    world.directory.provision("north")
    (enterprise,) = world.all("Enterprise")
    assert isinstance(enterprise, Enterprise)
    assert enterprise.name == ROOT
    assert enterprise.default_time_to_live == 345_600


# Iteration
# -------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.21-1", "DMPR-3.1.7.1.22-1")
def test_sorted_by_priority_of_the_attributes(world: World) -> None:
    rows = [("a", 1, "x"), ("b", 2, "x"), ("c", 1, "y"), ("d", 2, "y")]
    for name, base, label in rows:
        world.add_queue(name, base_priority=base, label=label)
    names = ["Pathname", "BasePriority", "Label"]

    def order(*orders: SortOrder) -> list[str]:
        found = world.all("Queue", None, names, list(orders))
        return [obj.pathname[-1] for obj in found if isinstance(obj, Queue)]

    unused = SortOrder(0, ascending=False)
    assert order(unused, SortOrder(1), SortOrder(2)) == ["a", "b", "c", "d"]
    assert order(unused, SortOrder(2), SortOrder(1)) == ["a", "c", "b", "d"]
    assert order(unused, SortOrder(2, ascending=False), SortOrder(1)) == ["b", "d", "a", "c"]
    assert order(unused, SortOrder(2, ascending=False), SortOrder(1, ascending=False)) == ["d", "b", "c", "a"]
    assert order(SortOrder(1, ascending=False), unused, unused) == ["d", "c", "b", "a"]
    assert order(unused, unused, unused) == ["a", "b", "c", "d"]
    assert world.directory.read_begin("Queue", None, names, [SortOrder(1)]) == (GENERIC_ERROR, None)


@pytest.mark.spec("DMPR-3.1.7.1.21-1")
def test_begin_covers_exactly_the_objects_that_match_every_filter(world: World) -> None:
    for number in range(6):
        world.add_queue(f"q{number}", base_priority=number, journaling=number % 2 == 0)
    found = world.all("Queue", [equals("Journaling", True), AttributeFilter("BasePriority", Operator.GREATER_THAN, 0)])
    assert [obj.pathname for obj in found if isinstance(obj, Queue)] == ["alpha\\q2", "alpha\\q4"]
    assert len(world.all("Queue")) == 6
    assert world.all("Queue", [equals("Label", "none")]) == []


@pytest.mark.spec("DMPR-3.1.7.1.22-1")
def test_next_gives_one_by_one_and_then_end_of_data(world: World) -> None:
    for name in "abc":
        world.add_queue(name)
    _, handle = world.directory.read_begin("Queue", None, ["Pathname"])
    _, other = world.directory.read_begin("Queue", None, ["Pathname"])
    assert handle is not None
    assert other is not None
    world.add_queue("later")
    found = [world.directory.read_next(handle)[1] for _ in range(3)]
    assert [queue.pathname for queue in found if isinstance(queue, Queue)] == ["alpha\\a", "alpha\\b", "alpha\\c"]
    assert world.directory.read_next(handle) == (END_OF_DATA, None)
    assert world.directory.read_next(handle) == (END_OF_DATA, None)
    # Two queries do not disturb each other.
    assert world.directory.read_next(other)[0] is SUCCESS


@pytest.mark.spec("DMPR-3.1.7.1.23-1")
def test_end_releases_the_handle(world: World) -> None:
    world.add_queue("a")
    _, handle = world.directory.read_begin("Queue", None)
    assert handle is not None
    assert world.directory.read_end(handle) is SUCCESS
    assert world.directory.read_next(handle) == (GENERIC_ERROR, None)
    assert world.directory.read_end(handle) is GENERIC_ERROR
    assert world.directory._queries == {}


# Write
# -----------------------------------------------------------------------------------------------


def test_write_changes_the_listed_attributes_and_the_time(world: World) -> None:
    queue = world.add_queue("orders", label="old", quota=1)
    world.now[0] += 60
    queue.label, queue.quota = "new", 2
    assert world.directory.write(queue, ["Label"]) is SUCCESS
    found = read_queue(world, queue.identifier)
    assert (found.label, found.quota) == ("new", 1)
    assert (found.create_time, found.modify_time) == (1_000_000, 1_000_060)
    assert world.directory.write(queue) is SUCCESS
    assert read_queue(world, queue.identifier).quota == 2


def test_write_cannot_change_what_is_fixed_at_creation(world: World) -> None:
    queue = world.add_queue("orders", transactional=True)
    queue.transactional = False
    assert world.directory.write(queue) is SUCCESS
    assert read_queue(world, queue.identifier).transactional


def test_an_empty_value_clears_an_attribute(world: World) -> None:
    queue = world.add_queue("orders", label="old")
    queue.label = ""
    assert world.directory.write(queue) is SUCCESS
    assert read_queue(world, queue.identifier).label == ""


@pytest.mark.parametrize(
    "make",
    [
        lambda queue: Queue(pathname="alpha\\orders", label="x"),
        lambda queue: Queue(full_path=queue.full_path, label="x"),
        lambda queue: Queue(directory_path=queue.directory_path, label="x"),
        lambda queue: Queue(identifier=queue.identifier, label="x"),
    ],
)
def test_a_queue_is_found_by_any_of_its_names(world: World, make: Callable[[Queue], Queue]) -> None:
    """MS-MQDSSM 3.1.6.7.2.1 and 3.1.6.2.2.1."""
    queue = world.add_queue("orders")
    assert world.directory.write(make(queue), ["Label"]) is SUCCESS
    assert read_queue(world, queue.identifier).label == "x"
    assert world.directory.delete_object(make(queue)) is SUCCESS
    assert world.all("Queue") == []


def test_fail_write_and_delete_what_is_not_there(world: World) -> None:
    assert world.directory.write(Queue(pathname="alpha\\none")) is NOT_FOUND
    assert world.directory.delete_object(Queue(pathname="alpha\\none")) is NOT_FOUND
    assert world.directory.write(User(security_identifier=b"none")) is NOT_FOUND
    assert world.directory.write(ConnectedNetwork()) is GENERIC_ERROR
    assert world.directory.delete_object(Enterprise()) is GENERIC_ERROR
    # An identifier of another kind of object does not name a queue.
    assert world.directory.delete_object(Queue(identifier=world.site)) is NOT_FOUND


def test_enterprise_is_written(world: World) -> None:
    assert world.directory.write(Enterprise(default_time_to_live=60), ["DefaultTimeToLive"]) is SUCCESS
    _, found = world.directory.read("Enterprise", None)
    assert isinstance(found, Enterprise)
    assert found.default_time_to_live == 60


def test_users_are_found_by_sid_and_keep_their_certificates(world: World) -> None:
    sid = Sid.parse("S-1-5-21-1-2-3-1000").pack()
    result, guid = world.directory.add_user("ann", sid)
    assert result is SUCCESS
    user = User(security_identifier=sid, certificate_digest_list=[b"1" * 16, b"2" * 16], certificates=b"block")
    assert world.directory.write(user) is SUCCESS
    _, found = world.directory.read("User", [equals("SecurityIdentifier", sid)])
    assert isinstance(found, User)
    assert (found.identifier, found.certificate_digest_list, found.certificates) == (
        guid,
        [b"1" * 16, b"2" * 16],
        b"block",
    )
    _, found = world.directory.read("User", [equals("CertificateDigestList", b"2" * 16)])
    assert found is not None
    assert world.directory.add_user("ann", sid) == (EXISTS, None)


@pytest.mark.spec("DMPR-3.1.1-3")
def test_no_write_and_no_restart_changes_an_identifier(world: World) -> None:
    """MS-MQDMPR 3.1.1: Identifier is fixed for the life of the object.

    Writing another value along with other attributes does not change it.
    """
    queue = world.add_queue("orders")
    south = Site(name="south")
    assert world.directory.create_object(south)[0] is SUCCESS
    link = RoutingLink(site1_identifier=world.site, site2_identifier=south.identifier)
    assert world.directory.create_object(link)[0] is SUCCESS
    sid = Sid.parse("S-1-5-21-1-2-3-1000").pack()
    assert world.directory.add_user("ann", sid)[0] is SUCCESS
    kinds = ("QueueManager", "Queue", "Site", "RoutingLink", "User", "Enterprise")
    before = {kind: [one.identifier for one in world.all(kind)] for kind in kinds}
    assert [len(identifiers) for identifiers in before.values()] == [1, 1, 2, 1, 1, 1]
    assert before["RoutingLink"] == [link.identifier]
    for changed in (
        QueueManager(computer_name="alpha", site_identifier_list=[world.site, south.identifier], journal_quota=1),
        Queue(pathname=queue.pathname, label="changed"),
        Site(name="renamed", identifier=south.identifier, inter_site_replication_interval=9),
        RoutingLink(
            site1_identifier=south.identifier, site2_identifier=world.site, identifier=link.identifier, actual_cost=7
        ),
        User(security_identifier=sid, certificates=b"block"),
        Enterprise(default_time_to_live=9),
    ):
        assert world.directory.write(changed) is SUCCESS
        for _ in range(2):
            assert {kind: [one.identifier for one in world.all(kind)] for kind in kinds} == before
            world.directory = world.open()


# Delete and settings
# ---------------------------------------------------------------------------------


def test_a_queue_manager_with_queues_cannot_be_deleted(world: World) -> None:
    queue = world.add_queue("orders")
    assert world.directory.delete_object(world.manager) is GENERIC_ERROR
    assert world.directory.delete_object(queue) is SUCCESS
    assert world.directory.delete_object(world.manager) is SUCCESS
    assert world.all("QueueManager") == []


def test_servers_have_a_settings_object_in_each_of_their_sites(world: World) -> None:
    """MS-MQDSSM 3.1.6.1.1.3, 3.1.6.7.1.9, 3.1.6.2.1.3."""
    south = Site(name="south")
    world.directory.create_object(south)

    def sites() -> list[str]:
        return sorted(str(one["distinguishedName"][0]).split(",")[3] for one in world.entries("mSMQSettings"))

    manager = world.add_manager("beta", site_identifier_list=[world.site, south.identifier, uuid.UUID(int=5)])
    assert sites() == []
    manager.routing_server = True
    assert world.directory.write(manager) is SUCCESS
    assert sites() == ["CN=north", "CN=south"]
    assert all(one["mSMQRoutingService"] == ["TRUE"] for one in world.entries("mSMQSettings"))
    manager.site_identifier_list = [south.identifier]
    manager.supporting_server = True
    assert world.directory.write(manager) is SUCCESS
    assert sites() == ["CN=south"]
    assert world.entries("mSMQSettings")[0]["mSMQDependentClientService"] == ["TRUE"]
    manager.routing_server = manager.supporting_server = False
    assert world.directory.write(manager) is SUCCESS
    assert sites() == []
    manager.routing_server = True
    world.directory.write(manager)
    assert world.directory.delete_object(manager) is SUCCESS
    assert sites() == []


# Distribution lists
# ----------------------------------------------------------------------------------


def test_distribution_lists_give_format_names(world: World) -> None:
    queue = world.add_queue("orders")
    _, inner = world.directory.add_distribution_list("inner", ["DIRECT=OS:beta\\private$\\x"])
    members = [f"PUBLIC={queue.identifier}", f"DL={inner}", "DIRECT=OS:gamma\\y", f"PUBLIC={uuid.UUID(int=3)}"]
    result, outer = world.directory.add_distribution_list("outer", members)
    assert result is SUCCESS
    assert outer is not None
    assert world.directory.resolve_distribution_list(outer, None)[1] == members
    assert world.directory.resolve_distribution_list(outer, "Example.ORG")[1] == members
    assert world.directory.resolve_distribution_list(outer, "other.org")[1] is None
    assert world.directory.resolve_distribution_list(queue.identifier, None)[1] is None
    assert world.directory.resolve_distribution_list(uuid.UUID(int=1), None)[1] is None
    # A member that has gone is left out.
    world.directory.delete_object(queue)
    assert world.directory.resolve_distribution_list(outer, None)[1] == members[1:]


def test_lists_may_contain_each_other(world: World) -> None:
    one, two = uuid.UUID(int=11), uuid.UUID(int=12)
    world.directory.add_distribution_list("one", [f"DL={two}"], one)
    world.directory.add_distribution_list("two", [f"DL={one}"], two)
    assert world.directory.resolve_distribution_list(one, None)[1] == [f"DL={two}"]
    assert world.directory.resolve_distribution_list(two, None)[1] == [f"DL={one}"]


def test_removing_a_list_leaves_nothing_behind(world: World) -> None:
    before = dict(world.table.rows)
    world.directory.add_distribution_list("list", ["DIRECT=OS:a\\b", "DIRECT=OS:c\\d"])
    assert world.directory.add_distribution_list("list", ["DIRECT=OS:e\\f"]) == (EXISTS, None)
    assert world.directory.add_distribution_list("bad", ["DIRECT=OS:a\\b", "nonsense"]) == (GENERIC_ERROR, None)
    assert world.directory.remove_named("list") is SUCCESS
    assert world.table.rows == before
    assert world.directory.remove_named("list") is NOT_FOUND


def test_queue_aliases(world: World) -> None:
    assert world.directory.add_queue_alias("mine", "DIRECT=OS:alpha\\private$\\q")[0] is SUCCESS
    target = "DIRECT=OS:alpha\\private$\\q"
    assert world.directory.format_name_at(f"LDAP://CN=mine,CN=Users,{ROOT}") == (SUCCESS, target)
    assert world.directory.format_name_at(f"LDAP://CN=none,CN=Users,{ROOT}") == (NOT_FOUND, None)
    assert world.directory.add_queue_alias("", "DIRECT=OS:a\\b") == (GENERIC_ERROR, None)


# Life
# ------------------------------------------------------------------------------------------------


def test_everything_is_there_after_a_restart(world: World) -> None:
    queue = world.add_queue("orders", **FULL_QUEUE)
    sid = world.directory.computer_sid("alpha")
    world.directory = world.open()
    assert read_queue(world, queue.identifier).label == "Orders"
    assert world.directory.computer_sid("ALPHA") == sid
    assert world.directory.create_object(Queue(pathname="alpha\\orders")) == (EXISTS, None)
    assert world.directory.delete_object(world.manager) is GENERIC_ERROR


def test_computers_have_sids_of_one_domain(world: World) -> None:
    world.add_manager("beta")
    sids = []
    for name in ("alpha", "beta"):
        data = world.directory.computer_sid(name)
        assert data is not None
        sids.append(Sid.unpack(data))
    assert sids[0] != sids[1]
    assert sids[0].domain == sids[1].domain is not None
    assert world.directory.computer_sid("omega") is None


def test_a_directory_that_is_not_connected_says_so_to_everything(world: World) -> None:
    queue = world.add_queue("orders")
    _, handle = world.directory.read_begin("Queue", None)
    _, group = world.directory.add_distribution_list("list", [])
    assert handle is not None
    assert group is not None
    before = dict(world.table.rows)
    world.directory.connected = False
    assert world.directory.create_object(Queue(pathname="alpha\\q")) == (NOT_CONNECTED, None)
    assert world.directory.delete_object(queue) is NOT_CONNECTED
    assert world.directory.read("Queue", None) == (NOT_CONNECTED, None)
    assert world.directory.read_begin("Queue", None) == (NOT_CONNECTED, None)
    assert world.directory.read_next(handle) == (NOT_CONNECTED, None)
    assert world.directory.read_end(handle) is NOT_CONNECTED
    assert world.directory.write(queue) is NOT_CONNECTED
    assert world.directory.resolve_distribution_list(group, None)[1] is None
    assert world.directory.computer_sid("alpha") is None
    assert world.table.rows == before
    world.directory.connected = True
    assert world.directory.read_next(handle)[0] is SUCCESS


values = st.none() | st.integers(-1, 1 << 33) | st.text(max_size=5) | st.binary(max_size=5) | st.uuids()
any_filters = st.lists(
    st.builds(
        AttributeFilter,
        st.sampled_from(
            ["Identifier", "Pathname", "Name", "FullPath", "Security", "SiteIdentifierList", "Nonsense", ""]
        ),
        st.sampled_from(Operator),
        values,
    ),
    max_size=3,
)
names = st.none() | st.lists(st.sampled_from(["Identifier", "Security", "Label", "Nonsense", "Scope"]), max_size=3)


@pytest.mark.spec("DMPR-3.1.1.17-1")
@settings(max_examples=200)
@given(
    st.sampled_from([*CLASSES, "ConnectedNetwork", "Nonsense"]),
    any_filters,
    names,
    st.text(max_size=70),
    st.sampled_from([Queue, QueueManager, Site, RoutingLink, User, Enterprise, ConnectedNetwork]),
    st.booleans(),
)
def test_whatever_is_asked_the_answer_is_one_of_the_enumeration(
    object_type: str,
    filters: list[AttributeFilter],
    attributes: list[str] | None,
    text: str,
    element: type[DirectoryObject],
    connected: bool,
) -> None:
    world = World()
    world.add_queue("orders")
    directory = world.directory
    directory.connected = connected
    obj = element()
    for field in ("pathname", "computer_name", "name", "full_path", "description"):
        if hasattr(obj, field):
            setattr(obj, field, text)
    results = [
        directory.create_object(obj, attributes)[0],
        directory.write(obj, attributes),
        directory.read(object_type, filters, attributes)[0],
        directory.read_next(17)[0],
        directory.read_end(17),
        directory.delete_object(obj),
    ]
    result, handle = directory.read_begin(object_type, filters, attributes)
    results.append(result)
    if handle is not None:
        results += [directory.read_next(handle)[0] for _ in range(3)]
    assert all(isinstance(one, DirectoryOperationResult) for one in results)


@pytest.mark.spec("DMPR-3.1.1.17-1")
def test_the_enumeration_has_the_results_of_the_document_and_each_is_given() -> None:
    """MS-MQDMPR 3.1.1.17 DirectoryOperationResult has seven results.

    For each there is an operation that returns it.
    """
    assert {one.value for one in DirectoryOperationResult} == {
        "Success",
        "GenericError",
        "DirectoryNotConnected",
        "ObjectNotFound",
        "AttributeNotFound",
        "EndOfData",
        "ObjectAlreadyExists",
    }
    world = World()
    world.add_queue("orders")
    directory = world.directory
    given_results = [
        directory.read("Queue", None)[0],
        directory.read("Nonsense", None)[0],
        directory.read("RoutingLink", None)[0],
        directory.read("Queue", None, ["Security"])[0],
        directory.create_object(Queue(pathname="alpha\\orders"))[0],
    ]
    # A value of a kind that has no order beside the attribute's: no object satisfies it.
    unordered = [AttributeFilter("Pathname", Operator.LESS_THAN, 1)]
    assert directory.read("Queue", unordered)[0] is DirectoryOperationResult.OBJECT_NOT_FOUND
    _, handle = directory.read_begin("RoutingLink", None)
    assert handle is not None
    given_results.append(directory.read_next(handle)[0])
    directory.connected = False
    given_results.append(directory.read("Queue", None)[0])
    assert [one.value for one in given_results] == [
        "Success",
        "GenericError",
        "ObjectNotFound",
        "AttributeNotFound",
        "ObjectAlreadyExists",
        "EndOfData",
        "DirectoryNotConnected",
    ]
