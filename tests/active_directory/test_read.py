"""Read Directory and Create ADM Element From LDAP Values (MS-MQDSSM 3.1.6.3, 3.1.6.11).

The directory is a Samba domain controller.
"""

from __future__ import annotations

import calendar
import uuid

import pytest

from lanner.directory import AttributeFilter, Operator
from lanner.directory.ldap.messages import Scope, Search
from lanner.directory.ldap.operations import result_of
from lanner.model.directory_objects import GUID_NULL, Enterprise, QueueManager
from lanner.model.enums import (
    INFINITE,
    DirectoryOperationResult,
    DirectoryServerType,
    OperatingSystemType,
    QueuePrivacyLevel,
)
from tests.active_directory.conftest import Wire, World, equals, made
from tests.active_directory.domain import CONFIGURATION, ROOT

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND


@pytest.mark.spec("DSSM-2.2.6-1", "DSSM-2.2.6-2", "DSSM-2.2.6-3", "DSSM-2.2.6-4")
@pytest.mark.parametrize(
    ("code", "result"),
    [
        (0, GENERIC_ERROR),
        (32, NOT_FOUND),
        (16, DirectoryOperationResult.ATTRIBUTE_NOT_FOUND),
        (68, DirectoryOperationResult.OBJECT_ALREADY_EXISTS),
        *((code, GENERIC_ERROR) for code in (50, 19, 53, 66, 51, 10, 1, 49, 8, 64, 4711)),
    ],
)
def test_result_codes(code: int, result: DirectoryOperationResult) -> None:
    assert result_of(code) is result


@pytest.mark.spec("DSSM-3.1.6.3-1", "DSSM-3.1.6.3-4", "DSSM-3.1.6.14-4", "DSSM-3.1.6.14-2")
def test_a_full_path_is_read_in_place(world: World, wire: Wire) -> None:
    world.add_manager()
    wire.clear()
    found = world.directory.read("QueueManager", [equals("FullPath", world.dn)], ["ComputerName", "JournalQuota"])
    assert found[0] is SUCCESS
    requests = wire.operations()
    assert all(isinstance(one, Search) and one.scope is Scope.BASE for one in requests)
    (first,) = [one for one in wire.requests(Search) if one.base == world.dn]
    assert {"objectGUID", "distinguishedName", "mSMQJournalQuota"} <= set(first.attributes)


@pytest.mark.spec("DSSM-3.1.6.3-2", "DSSM-3.1.6.19-1", "DSSM-3.1.6.19-2", "DSSM-3.1.6.13-1/read")
def test_an_identifier_is_found_in_every_naming_context(world: World, wire: Wire) -> None:
    guid = world.add_manager()
    for kind, identifier, dn in (("QueueManager", guid, world.dn), ("Site", world.site, world.site_dn())):
        wire.clear()
        found = world.read(kind, identifier, "FullPath")
        assert found.full_path == dn
        first, second = wire.requests(Search)[:2]
        assert (first.base, first.scope) == (f"<GUID={identifier}>", Scope.BASE)
        assert first.attributes == ("distinguishedName",)
        assert (second.base, second.scope) == (dn, Scope.BASE)
        assert not [one for one in wire.requests(Search) if one.scope is Scope.SUBTREE]


@pytest.mark.spec("DSSM-3.1.6.19-3", "DSSM-3.1.6.3.1-1")
def test_what_is_not_there_is_not_found(world: World, wire: Wire) -> None:
    wire.clear()
    for kind in ("Queue", "QueueManager", "Site", "User", "RoutingLink"):
        assert world.directory.read(kind, [equals("Identifier", uuid.uuid4())]) == (NOT_FOUND, None)
    label = equals("Label", f"no such label {world.computer}")
    assert world.directory.read("Queue", [label]) == (NOT_FOUND, None)
    # Also where the identifier is that of another kind of object.
    assert world.directory.read("Queue", [equals("Identifier", world.site)]) == (NOT_FOUND, None)


@pytest.mark.spec("DSSM-3.1.6.3-3", "DSSM-3.1.6.3-4", "DSSM-3.1.6.3-5", "DSSM-3.1.6.3.1-2")
def test_every_other_filter_is_a_search(world: World, wire: Wire) -> None:
    world.add_manager()
    first = world.add_queue("one", label=world.computer)
    second = world.add_queue("two", label=world.computer)
    wire.clear()
    label = equals("Label", world.computer)
    found = world.directory.read("Queue", [label])[1]
    assert found is not None
    assert found.identifier in (first, second)
    both = world.directory.read("Queue", [label, equals("Identifier", second)])[1]
    assert both is not None
    assert both.identifier == second
    assert len([one for one in wire.requests(Search) if one.scope is Scope.SUBTREE]) == 2
    assert all(isinstance(one, Search) for one in wire.operations())
    neither: tuple[list[AttributeFilter] | None, ...] = ([], None)
    for filters in neither:
        assert world.directory.read("Enterprise", filters)[0] is SUCCESS
        assert world.directory.read("Queue", filters)[0] is SUCCESS
    assert world.directory.read("Queue", [equals("Label", f"none {world.computer}")])[0] is NOT_FOUND
    assert world.directory._queries == {}


@pytest.mark.spec("DSSM-3.1.6.3.2.2-1", "DSSM-3.1.6.11.1-2")
@pytest.mark.parametrize(
    "name", ["QualifiedComputerName", "PublicSigningKeyList", "OperatingSystemVersion", "Clustered"]
)
def test_what_the_computers_object_has(world: World, wire: Wire, name: str) -> None:
    guid = world.add_manager(public_signing_key_list=b"\0\0\0\0")
    world.domain.modify(world.computer_dn, operatingSystemVersion="10.0")
    wire.clear()
    found = world.read("QueueManager", guid, name)
    expected = {
        "QualifiedComputerName": ("qualified_computer_name", f"{world.computer}.mq.test"),
        "PublicSigningKeyList": ("public_signing_key_list", b"\0\0\0\0"),
        "OperatingSystemVersion": ("operating_system_version", "10.0"),
        "Clustered": ("clustered", False),
    }
    field, value = expected[name]
    assert getattr(found, field) == value
    assert [one.scope for one in wire.requests(Search) if one.base == world.computer_dn] == [Scope.BASE]


@pytest.mark.spec("DSSM-3.1.6.10.1-1", "DSSM-3.1.6.10.2-1")
@pytest.mark.parametrize(
    ("kind", "name", "attributes"),
    [
        ("QueueManager", "ComputerName", {"distinguishedName"}),
        ("QueueManager", "FullPath", {"distinguishedName"}),
        ("QueueManager", "RemoteAccessServer", {"mSMQServiceType"}),
        ("QueueManager", "DirectoryServerType", {"mSMQDsServices", "mSMQServiceType"}),
        ("Queue", "Pathname", {"distinguishedName", "mSMQQueueNameExt"}),
        ("Queue", "QualifiedPathname", {"distinguishedName", "mSMQQueueNameExt"}),
        ("Queue", "DirectoryPath", {"distinguishedName"}),
    ],
)
def test_attributes_that_are_asked_for(world: World, wire: Wire, kind: str, name: str, attributes: set[str]) -> None:
    guid = world.add_manager()
    if kind == "Queue":
        guid = world.add_queue("orders")
    wire.clear()
    world.read(kind, guid, name)
    request = wire.requests(Search)[1]
    assert set(request.attributes) == attributes | {"objectGUID", "distinguishedName", "objectClass"}


@pytest.mark.spec("DSSM-3.1.6.11.1-1")
def test_a_value_that_is_missing_counts_where_it_was_asked_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guid = world.add_manager()
    missing = {"whenCreated": "CreateTime", "whenChanged": "ModifyTime", "nTSecurityDescriptor": "Security"}
    _hide(monkeypatch, *missing)
    by_guid = [equals("Identifier", guid)]
    for name in missing.values():
        assert world.directory.read("QueueManager", by_guid, [name]) == (GENERIC_ERROR, None)
    assert world.directory.read("QueueManager", by_guid) == (GENERIC_ERROR, None)
    assert world.directory.read("QueueManager", by_guid, ["ComputerName"])[0] is SUCCESS
    _hide(monkeypatch, "cn")
    by_site = [equals("Identifier", world.site)]
    assert world.directory.read("Site", by_site, ["Name"]) == (GENERIC_ERROR, None)
    assert world.directory.read("Site", by_site, ["ForeignSite"])[0] is SUCCESS
    _hide(monkeypatch, "objectGUID")
    assert world.directory.read("QueueManager", by_guid, ["Identifier"]) == (GENERIC_ERROR, None)


def _hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Remove attributes from answers, as a server does for a user who may not read them."""
    from lanner.directory.ldap import operations

    plain = operations._entry

    def entry(found: object, wanted: object) -> object:
        return {key: value for key, value in plain(found, wanted).items() if key not in names}  # type: ignore[arg-type]

    monkeypatch.setattr(operations, "_entry", entry)


@pytest.mark.spec("DSSM-3.1.6.11.1-7", "DSSM-3.1.6.11.1-3", "DSSM-3.1.6.11.2-3", "DSSM-3.1.6.11.1-6")
def test_a_computer_without_values(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    guid = world.add_manager()
    queue = world.add_queue("orders")
    world.domain.modify(world.computer_dn, operatingSystemVersion=(), mSMQSignCertificates=())
    found = world.read("QueueManager", guid, "OperatingSystemVersion", "PublicSigningKeyList")
    assert (found.operating_system_version, found.public_signing_key_list) == ("", b"")
    # Samba does not let an administrator take all principals away.
    hidden = pytest.MonkeyPatch()
    _hide(hidden, "servicePrincipalName")
    by_guid = [equals("Identifier", guid)]
    assert world.directory.read("QueueManager", by_guid, ["Clustered"]) == (GENERIC_ERROR, None)
    assert world.directory.read("QueueManager", by_guid, ["QualifiedComputerName"])[0] is SUCCESS
    hidden.undo()
    assert world.directory.read("QueueManager", by_guid, ["Clustered"])[0] is SUCCESS
    _hide(hidden, "dNSHostName")
    assert world.directory.read("QueueManager", by_guid, ["QualifiedComputerName"]) == (GENERIC_ERROR, None)
    assert world.directory.read("QueueManager", by_guid) == (GENERIC_ERROR, None)
    assert world.read("Queue", queue).qualified_pathname == ""
    hidden.undo()
    # Whatever the read of the computer's object says is what the whole read says.
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    plain = operations.LdapOperations.get

    def get(self: operations.LdapOperations, path: str, attributes: object, guid: uuid.UUID | None = None) -> object:
        if path == world.computer_dn:
            raise Refused(NOT_FOUND)
        return plain(self, path, attributes, guid)  # type: ignore[arg-type]

    monkeypatch.setattr(operations.LdapOperations, "get", get)
    assert world.directory.read("QueueManager", by_guid, ["OperatingSystemVersion"]) == (NOT_FOUND, None)
    assert world.directory.read("Queue", [equals("Identifier", queue)], ["QualifiedPathname"]) == (NOT_FOUND, None)
    assert world.directory.read("QueueManager", by_guid, ["ComputerName"])[0] is SUCCESS


@pytest.mark.spec("DSSM-3.1.6.11.1-4", "DSSM-3.1.6.11.1-5", "DSSM-3.1.6.14-1", "DSSM-3.1.6.1.1.4-1/unset")
def test_defaults_of_a_queue_manager(world: World) -> None:
    dn = world.dn
    guid = world.domain.add(dn, objectClass="mSMQConfiguration")
    names = ["QueueManagerVersion", "OperatingSystemType", "QueueManagerQuota", "JournalQuota", "ForeignSystem"]
    names += ["SiteIdentifierList", "OutRoutingServerIdentifierList", "InRoutingServerIdentifierList"]
    names += ["DirectoryServer", "RemoteAccessServer", "RoutingServer", "SupportingServer", "PublicEncryptionKeyList"]
    found = world.read("QueueManager", guid, *names)
    assert isinstance(found, QueueManager)
    assert found.queue_manager_version == ""
    assert found.operating_system_type is OperatingSystemType.OTHER
    assert (found.queue_manager_quota, found.journal_quota) == (0x0080_0000, INFINITE)
    flags = (found.foreign_system, found.directory_server, found.remote_access_server)
    assert (*flags, found.routing_server, found.supporting_server) == (False,) * 5
    assert found.site_identifier_list == found.out_routing_server_identifier_list == []
    assert found.in_routing_server_identifier_list == []
    assert found.public_encryption_key_list == b""
    assert found.directory_server_type is None


@pytest.mark.spec("DSSM-3.1.6.11.1.1-1")
def test_name_of_a_computer_keeps_its_case(world: World) -> None:
    name = f"MiXed={world.computer}"
    world.domain.add(f"CN=MiXed\\={world.computer},CN=Computers,{ROOT}", objectClass="computer")
    guid = made(world.directory.create_object(world.manager(computer_name=name.lower())))
    assert world.read("QueueManager", guid, "ComputerName").computer_name == name


@pytest.mark.spec("DSSM-3.1.6.11.1.3-1")
def test_routing_servers_that_have_gone_are_passed_over(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.add_manager()
    name = f"{world.computer}b"
    world.domain.add_computer(name)
    lists = {"out_routing_server_identifier_list": [first], "in_routing_server_identifier_list": [first]}
    second = made(world.directory.create_object(world.manager(computer_name=name, **lists)))
    names = ["OutRoutingServerIdentifierList", "InRoutingServerIdentifierList"]
    found = world.read("QueueManager", second, *names)
    assert found.out_routing_server_identifier_list == found.in_routing_server_identifier_list == [first]
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    plain = operations.LdapOperations.get
    answers = [NOT_FOUND]

    def get(self: operations.LdapOperations, path: str, attributes: object, guid: uuid.UUID | None = None) -> object:
        if path == world.dn:
            raise Refused(answers[0])
        return plain(self, path, attributes, guid)  # type: ignore[arg-type]

    # A controller drops such names when the object goes; one that has not heard of it yet still has
    # them.
    monkeypatch.setattr(operations.LdapOperations, "get", get)
    found = world.read("QueueManager", second, *names)
    assert found.out_routing_server_identifier_list == found.in_routing_server_identifier_list == []
    for answer in (GENERIC_ERROR, DirectoryOperationResult.DIRECTORY_NOT_CONNECTED):
        answers[:] = [answer]
        for one in names:
            assert world.directory.read("QueueManager", [equals("Identifier", second)], [one])[0] is GENERIC_ERROR


@pytest.mark.spec("DSSM-3.1.6.11.1.5-1")
@pytest.mark.parametrize(
    ("services", "bits", "kind"),
    [
        ("FALSE", "2", None),
        ("TRUE", "2", DirectoryServerType.BACKUP_SITE_CONTROLLER),
        ("TRUE", "4", DirectoryServerType.PRIMARY_SITE_CONTROLLER),
        ("TRUE", "8", DirectoryServerType.PRIMARY_ENTERPRISE_CONTROLLER),
        ("TRUE", "17", DirectoryServerType.STANDALONE),
    ],
)
def test_type_of_a_directory_server(world: World, services: str, bits: str, kind: DirectoryServerType | None) -> None:
    guid = world.domain.add(world.dn, objectClass="mSMQConfiguration", mSMQDsServices=services, mSMQServiceType=bits)
    assert world.read("QueueManager", guid, "DirectoryServerType").directory_server_type is kind


@pytest.mark.spec("DSSM-3.1.6.11.1.6-1")
def test_a_cluster_is_told_by_its_principal(world: World) -> None:
    guid = world.add_manager()
    assert not world.read("QueueManager", guid, "Clustered").clustered
    world.domain.modify(
        world.computer_dn,
        servicePrincipalName=(f"HOST/{world.computer}", f"MSClusterVirtualServer/{world.computer}"),
    )
    assert world.read("QueueManager", guid, "Clustered").clustered


@pytest.mark.spec(
    "DSSM-3.1.6.11.2-1", "DSSM-3.1.6.11.2-2", "DSSM-3.1.6.11.2.1-2", "DSSM-3.1.6.11.2.2-1", "DSSM-3.1.6.20.1-4"
)
def test_defaults_of_a_queue(world: World) -> None:
    world.add_manager()
    dn = f"CN=OrDers,{world.dn}"
    guid = world.domain.add(dn, objectClass="mSMQQueue")
    found = world.read("Queue", guid)
    assert (found.label, found.multicast_address or "", found.type) == ("", "", GUID_NULL)
    assert (found.quota, found.journal_quota, found.base_priority) == (INFINITE, INFINITE, 0)
    assert (found.journaling, found.authentication, found.transactional) == (False,) * 3
    assert found.privacy_level is QueuePrivacyLevel.OPTIONAL
    assert found.directory_path == f"LDAP://{dn}"
    assert found.pathname == f"{world.computer}\\orders"
    assert found.qualified_pathname == f"{world.computer}.mq.test\\orders"
    held = world.domain.attributes(dn, "whenCreated", "whenChanged")
    for field, name in (("create_time", "whenCreated"), ("modify_time", "whenChanged")):
        text = held[name][0].decode()
        parts = [int(text[:4]), *(int(text[at : at + 2]) for at in range(4, 14, 2))]
        assert getattr(found, field) == calendar.timegm((*parts, 0, 0, 0))
    from lanner.directory.schema import TIME

    assert TIME.decode(["20240101000000.0Z"]) == 1704067200


@pytest.mark.spec("DSSM-3.1.6.11.3-1", "DSSM-3.1.6.11.3.1-1", "DSSM-3.1.6.11.3.2-1")
def test_the_enterprise(world: World) -> None:
    dn = f"CN=MsmqServices,CN=Services,{CONFIGURATION}"
    before = world.domain.attributes(dn)
    world.domain.modify(dn, mSMQCSPName=(), mSMQLongLived=(), mSMQVersion=(), mSMQNameStyle=())
    try:
        found = world.directory.read("Enterprise", None)[1]
        assert isinstance(found, Enterprise)
        assert found.name == ROOT
        assert found.non_ldap_capable_queue_manager_notification
        assert found.default_time_to_live == 345_600
        assert found.old_directory
        assert not found.weakened_security
        for stored, value in (("TRUE", True), ("FALSE", False)):
            world.domain.modify(dn, mSMQNameStyle=stored)
            found = world.directory.read("Enterprise", None, ["WeakenedSecurity"])[1]
            assert isinstance(found, Enterprise)
            assert found.weakened_security is value
    finally:
        names = ("mSMQCSPName", "mSMQLongLived", "mSMQVersion", "mSMQNameStyle")
        world.domain.modify(dn, **{name: before.get(name, ()) for name in names})
    world.directory.operations.root = ""
    assert world.directory.read("Enterprise", None, ["Name"])[0] is GENERIC_ERROR


@pytest.mark.spec("DSSM-3.1.6.11.4-1", "DSSM-3.1.6.11.4-2")
def test_defaults_of_a_site(world: World) -> None:
    name = f"{world.site_name}b"
    guid = world.domain.add(f"CN={name},CN=Sites,{CONFIGURATION}", objectClass="site")
    found = world.read("Site", guid)
    assert (found.intra_site_replication_interval, found.inter_site_replication_interval) == (2, 10)
    assert (found.foreign_site, found.migrated_from_msmq10) == (False, False)


@pytest.mark.spec("DSSM-3.1.6.11.5-1", "DSSM-3.1.6.11.5.1-1", "DSSM-3.1.6.11.5.3-1")
def test_a_routing_link(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    other = world.add_site(f"{world.site_name}b")
    manager = world.add_manager()
    full = world.link(world.site, other, actual_cost=9)
    guid = made(world.directory.create_object(full))
    link = world.read("RoutingLink", guid)
    assert (link.description, link.site_gate_identifier_list, link.actual_cost) == ("", [], 9)
    assert (link.site1_identifier, link.site2_identifier) == (world.site, other)
    by_guid = [equals("Identifier", guid)]
    for name in ("mSMQCost", "mSMQSite1", "mSMQSite2"):
        # The schema has them set always, but not everybody may read them.
        hidden_attribute = pytest.MonkeyPatch()
        _hide(hidden_attribute, name)
        assert world.directory.read("RoutingLink", by_guid) == (GENERIC_ERROR, None)
        hidden_attribute.undo()
    world.domain.modify(link.full_path, mSMQSiteGates=world.dn)
    assert world.read("RoutingLink", guid).site_gate_identifier_list == [manager]
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    plain = operations.LdapOperations.get
    hidden = [world.dn]

    def get(self: operations.LdapOperations, path: str, attributes: object, guid: uuid.UUID | None = None) -> object:
        if path in hidden:
            raise Refused(NOT_FOUND)
        return plain(self, path, attributes, guid)  # type: ignore[arg-type]

    monkeypatch.setattr(operations.LdapOperations, "get", get)
    assert world.directory.read("RoutingLink", by_guid) == (GENERIC_ERROR, None)
    for site in (world.site_dn(), world.site_dn(f"{world.site_name}b")):
        hidden[:] = [site]
        assert world.directory.read("RoutingLink", by_guid) == (GENERIC_ERROR, None)


@pytest.mark.spec("DSSM-3.1.6.11.6-1")
def test_a_user_without_certificates(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"user{world.computer}"
    world.domain.add_user(name)
    guid = world.domain.guid(f"CN={name},CN=Users,{ROOT}")
    found = world.read("User", guid)
    assert (found.certificates, found.certificate_digest_list) == (b"", [])
    assert found.security_identifier
    _hide(monkeypatch, "objectSid")
    assert world.directory.read("User", [equals("Identifier", guid)]) == (GENERIC_ERROR, None)


@pytest.mark.spec("DSSM-3.1.6.4-1", "DSSM-3.1.6.20.1-6", "DSSM-3.1.6.20.4-1")
def test_what_active_directory_does_not_keep(world: World, wire: Wire) -> None:
    from lanner.model.directory_objects import ConnectedNetwork, Site

    guid = world.add_manager()
    manager = world.read("QueueManager", guid)
    wire.clear()
    directory = world.directory
    network = ConnectedNetwork(name="net")
    assert directory.create_object(network) == (GENERIC_ERROR, None)
    assert directory.delete_object(network) is GENERIC_ERROR
    assert directory.write(network) is GENERIC_ERROR
    assert directory.read("ConnectedNetwork", None) == (GENERIC_ERROR, None)
    assert directory.read_begin("ConnectedNetwork", None) == (GENERIC_ERROR, None)
    site = Site(name="x")
    for kind, obj, names in (
        ("QueueManager", manager, ["ConnectedNetworkIdentifierList"]),
        ("Site", site, ["PrimarySiteController", "PublicSigningKeyList", "PublicSigningKey"]),
    ):
        for name in names:
            listed = [name, "SiteIdentifierList", "ComputerName"] if kind == "QueueManager" else [name, "Name"]
            assert directory.create_object(obj, listed) == (GENERIC_ERROR, None)
            assert directory.write(obj, listed) is GENERIC_ERROR
            assert directory.read(kind, None, listed) == (GENERIC_ERROR, None)
            assert directory.read_begin(kind, None, listed) == (GENERIC_ERROR, None)
    assert len(wire) == 0
    assert directory.write(manager) is SUCCESS
    assert directory.read("Site", [equals("Identifier", world.site)])[0] is SUCCESS


def test_a_filter_has_an_operator(world: World) -> None:
    world.add_manager(queue_manager_version="6")
    one = AttributeFilter("QueueManagerVersion", Operator.NOT_EQUALS, "6")
    found = world.all("QueueManager", [one, equals("ComputerName", world.computer)], ["ComputerName"])
    assert found == []
