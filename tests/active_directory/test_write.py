"""MS-MQDSSM 3.1.6.7 Write Directory, on a Samba domain controller."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest

from lanner.directory.ldap.messages import Add, Alteration, Delete, Modify, Scope, Search
from lanner.model.directory_objects import GUID_NULL, Enterprise, Queue, QueueManager, RoutingLink, Site, User
from lanner.model.enums import DirectoryOperationResult, DirectoryServerType
from lanner.security.certificates import add_certificate, generate_certificate, remove_certificate
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from tests.active_directory.conftest import Wire, World, equals, made
from tests.active_directory.domain import CONFIGURATION, ROOT

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
ENTERPRISE = f"CN=MsmqServices,CN=Services,{CONFIGURATION}"


@pytest.mark.spec("DSSM-3.1.6.7-1")
def test_something_must_say_which_object(world: World, wire: Wire) -> None:
    for obj in (QueueManager(), Queue(), Site(), world.link(world.site, world.site), User()):
        obj.identifier = GUID_NULL
        wire.clear()
        assert world.directory.write(obj) is GENERIC_ERROR
        assert not wire.operations()


@pytest.mark.spec("DSSM-3.1.6.7-1", "DSSM-3.1.6.7.2.2-2", "DSSM-3.1.6.2.1.2-1/write")
def test_each_name_of_a_queue_is_enough(world: World) -> None:
    world.add_manager()
    guid = world.add_queue("orders")
    dn = f"CN=orders,{world.dn}"
    names: dict[str, object] = {
        "identifier": guid,
        "full_path": dn,
        "directory_path": f"LDAP://{dn}",
        "pathname": f"{world.computer}\\orders",
    }
    for name, value in names.items():
        queue = Queue(identifier=GUID_NULL, label=name)
        setattr(queue, name, value)
        assert world.directory.write(queue, ["Label"]) is SUCCESS
        assert world.read("Queue", guid).label == name
    misleading = Queue(identifier=GUID_NULL, label="path", full_path=dn, pathname=f"{world.computer}\\none")
    assert world.directory.write(misleading, ["Label"]) is SUCCESS
    assert world.read("Queue", guid).label == "path"


@pytest.mark.spec("DSSM-3.1.6.7-2", "DSSM-3.1.6.16-1", "DSSM-3.1.6.1.2.2-5")
def test_only_what_is_listed_is_written(world: World, wire: Wire) -> None:
    world.add_manager()
    guid = world.add_queue("orders", label="old", multicast_address="234.1.1.1:8001", quota=5)
    queue = world.read("Queue", guid)
    queue.label, queue.quota, queue.multicast_address = "", 77, None
    wire.clear()
    assert world.directory.write(queue, ["Label", "MulticastAddress"]) is SUCCESS
    (modify,) = wire.requests(Modify)
    assert modify.changes == ((Alteration.REPLACE, "mSMQLabelEx", ()),)
    place = wire.operations().index(modify)
    before = wire.operations()[place - 1]
    assert isinstance(before, Search)
    assert (before.base, before.scope, str(before.filter)) == (queue.full_path, Scope.BASE, "(objectClass=*)")
    assert before.attributes == ("objectClass",)
    found = world.read("Queue", guid)
    assert (found.label, found.quota, found.multicast_address) == ("", 5, "234.1.1.1:8001")


@pytest.mark.spec("DSSM-3.1.6.16-2")
def test_a_list_is_replaced(world: World) -> None:
    other = world.add_site(f"{world.site_name}b")
    guid = world.add_manager(site_identifier_list=[world.site, other])
    manager = world.read("QueueManager", guid)
    manager.site_identifier_list = [other]
    assert world.directory.write(manager, ["SiteIdentifierList"]) is SUCCESS
    assert world.domain.attributes(world.dn)["mSMQSites"] == [other.bytes_le]


@pytest.mark.spec("DSSM-3.1.6.16-3", "DSSM-3.1.6.7.1.3-1")
def test_security_goes_out_by_itself(world: World, wire: Wire) -> None:
    world.add_manager()
    guid = world.add_queue("orders")
    queue = world.read("Queue", guid)
    wire.clear()
    assert world.directory.write(queue, ["Security"]) is SUCCESS
    (modify,) = wire.requests(Modify)
    assert [name for _, name, _ in modify.changes] == ["nTSecurityDescriptor"]
    wire.clear()
    queue.label = "l"
    assert world.directory.write(queue, ["Security", "Label"]) is SUCCESS
    first, second = wire.requests(Modify)
    assert [name for _, name, _ in first.changes] == ["mSMQLabelEx"]
    assert [name for _, name, _ in second.changes] == ["nTSecurityDescriptor"]
    queue.security = None
    wire.clear()
    assert world.directory.write(queue, ["Security"]) is SUCCESS
    assert not wire.requests(Modify)


@pytest.mark.spec("DSSM-3.1.6.7.1.2-1")
def test_nothing_follows_a_modify_that_failed(world: World, wire: Wire) -> None:
    world.add_server()
    guid = world.add_manager()
    manager = world.read("QueueManager", guid)
    # More than the syntax has bits for.
    manager.queue_manager_quota = 1 << 40
    manager.routing_server = True
    manager.public_signing_key_list = UserSignCerts((UserSignCert(uuid.uuid4(), b"x"),)).pack()
    wire.clear()
    assert world.directory.write(manager) is GENERIC_ERROR
    assert len(wire.requests(Modify)) == 1
    assert not wire.requests(Add)
    assert "mSMQSignCertificates" not in world.domain.attributes(world.computer_dn)


@pytest.mark.spec("DSSM-3.1.6.7.1.3-2", "DSSM-3.1.6.7.1.3-3")
@pytest.mark.parametrize("by", ["computer_name", "full_path", "identifier"])
def test_signing_keys_go_to_the_computer(world: World, wire: Wire, by: str) -> None:
    guid = world.add_manager()
    keys = UserSignCerts((UserSignCert(uuid.uuid4(), b"mine"),))
    manager = QueueManager(identifier=guid if by == "identifier" else GUID_NULL)
    manager.public_signing_key_list = keys.pack()
    if by == "full_path":
        manager.full_path = world.dn
    elif by == "computer_name":
        manager.computer_name = world.computer
    wire.clear()
    assert world.directory.write(manager, ["PublicSigningKeyList"]) is SUCCESS
    (modify,) = wire.requests(Modify)
    assert modify.dn == world.computer_dn
    assert [name for _, name, _ in modify.changes] == ["mSMQSignCertificates", "mSMQDigests"]
    assert world.domain.attributes(world.computer_dn)["mSMQDigests"] == keys.digests


@pytest.mark.spec(
    "DSSM-3.1.6.7.1.9-1", "DSSM-3.1.6.7.1.9-2", "DSSM-3.1.6.7.1.9-3", "DSSM-3.1.6.7.1.9-5", "DSSM-3.1.6.1.1.5-2/write"
)
@pytest.mark.parametrize("by", ["whole", "identifier"])
def test_settings_follow_what_a_queue_manager_is(world: World, wire: Wire, by: str) -> None:
    second = f"{world.site_name}b"
    sites = [world.site, world.add_site(second)]
    settings = [f"CN=MSMQ Settings,{world.add_server()}", f"CN=MSMQ Settings,{world.add_server(second)}"]
    guid = world.add_manager(site_identifier_list=sites)

    def write(**values: object) -> DirectoryOperationResult:
        manager = world.read("QueueManager", guid) if by == "whole" else QueueManager(identifier=guid)
        for name, value in values.items():
            setattr(manager, name, value)
        wire.clear()
        return world.directory.write(manager, ["".join(part.title() for part in name.split("_")) for name in values])

    assert write(routing_server=True) is SUCCESS
    for dn in settings:
        found = world.domain.attributes(dn)
        assert (found["mSMQServices"], found["mSMQRoutingService"], found["mSMQQMID"]) == (
            [b"1"],
            [b"TRUE"],
            [guid.bytes_le],
        )
    assert write(remote_access_server=True) is SUCCESS
    assert [world.domain.attributes(dn)["mSMQServices"] for dn in settings] == [[b"17"]] * 2
    assert write(supporting_server=True) is SUCCESS
    assert write(directory_server=True) is SUCCESS
    assert write(directory_server_type=DirectoryServerType.PRIMARY_SITE_CONTROLLER) is SUCCESS
    for dn in settings:
        found = world.domain.attributes(dn)
        assert (found["mSMQServices"], found["mSMQDependentClientService"]) == ([b"21"], [b"TRUE"])
        assert found["mSMQDsService"] == [b"TRUE"]
    assert write(directory_server=False, supporting_server=False) is SUCCESS
    assert [world.domain.attributes(dn)["mSMQServices"] for dn in settings] == [[b"17"]] * 2
    assert not wire.of(Add, Delete)
    assert write(routing_server=False) is SUCCESS
    assert len(wire.requests(Delete)) == 2
    for dn in settings:
        with pytest.raises(Exception, match="32"):
            world.domain.attributes(dn)
    assert world.domain.attributes(world.dn)["mSMQServiceType"] == [b"16"]


@pytest.mark.spec("DSSM-3.1.6.7.1.9-4")
def test_settings_that_are_there_are_not_replaced_by_a_write(world: World) -> None:
    server = world.add_server()
    guid = world.add_manager()
    settings = world.domain.add(f"CN=MSMQ Settings,{server}", objectClass="mSMQSettings")
    manager = world.read("QueueManager", guid)
    manager.routing_server = True
    assert world.directory.write(manager, ["RoutingServer"]) is DirectoryOperationResult.OBJECT_ALREADY_EXISTS
    assert world.domain.guid(f"CN=MSMQ Settings,{server}") == settings


@pytest.mark.spec("DSSM-3.1.6.7.2.2-1", "DSSM-3.1.6.7.2.2-3")
def test_what_a_queue_stays(world: World, wire: Wire) -> None:
    world.add_manager()
    guid = world.add_queue("orders", transactional=True)
    queue = world.read("Queue", guid)
    queue.transactional = False
    queue.create_time = queue.modify_time = 1
    queue.pathname, queue.qualified_pathname = "other\\name", "other.mq.test\\name"
    names = ["Transactional", "Identifier", "CreateTime", "ModifyTime", "Pathname", "QualifiedPathname"]
    wire.clear()
    assert world.directory.write(queue, [*names, "FullPath", "DirectoryPath"]) is SUCCESS
    assert not wire.requests(Modify)
    assert world.directory.write(queue) is SUCCESS
    sent = {name for one in wire.requests(Modify) for _, name, _ in one.changes}
    assert not sent & {"objectGUID", "whenCreated", "whenChanged", "distinguishedName", "mSMQTransactional"}
    assert world.read("Queue", guid).transactional


@pytest.mark.spec("DSSM-3.1.6.7.3.2-1", "DSSM-3.1.6.7.3.2-2", "DSSM-3.1.6.7.3.4-1")
def test_the_enterprise_is_written_in_its_place(world: World, wire: Wire) -> None:
    before = world.domain.attributes(ENTERPRISE)
    names = ["OldDirectory", "NonLDAPCapableQueueManagerNotification", "WeakenedSecurity", "DefaultTimeToLive"]
    try:
        for value, version, letter, style in ((True, b"3", b"Y", b"TRUE"), (False, b"200", b"N", b"FALSE")):
            enterprise = Enterprise(identifier=uuid.uuid4(), old_directory=value, weakened_security=value)
            enterprise.non_ldap_capable_queue_manager_notification = value
            enterprise.default_time_to_live = 60
            wire.clear()
            assert world.directory.write(enterprise, names) is SUCCESS
            assert [one.dn for one in wire.requests(Modify)] == [ENTERPRISE]
            found = world.domain.attributes(ENTERPRISE)
            assert (found["mSMQVersion"], found["mSMQCSPName"]) == ([version], [letter])
            assert (found["mSMQNameStyle"], found["mSMQLongLived"]) == ([style], [b"60"])
            read = world.directory.read("Enterprise", None, names)[1]
            assert isinstance(read, Enterprise)
            assert read.old_directory is read.weakened_security is value
            assert read.non_ldap_capable_queue_manager_notification is value
    finally:
        stored = ("mSMQVersion", "mSMQCSPName", "mSMQNameStyle", "mSMQLongLived")
        world.domain.modify(ENTERPRISE, **{name: before.get(name, ()) for name in stored})


@pytest.mark.spec("DSSM-3.1.6.7-1/site and link")
def test_a_site_and_a_link(world: World) -> None:
    for site in (
        Site(identifier=world.site),
        Site(identifier=GUID_NULL, name=world.site_name),
        Site(identifier=GUID_NULL, full_path=world.site_dn()),
    ):
        before = world.read("Site", world.site).inter_site_replication_interval
        site.inter_site_replication_interval = before + 1
        assert world.directory.write(site, ["InterSiteReplicationInterval"]) is SUCCESS
        assert world.read("Site", world.site).inter_site_replication_interval == before + 1
    other = world.add_site(f"{world.site_name}b")
    guid = made(world.directory.create_object(world.link(world.site, other)))
    path = world.read("RoutingLink", guid).full_path
    for cost, names in ((5, {"identifier": guid}), (6, {"identifier": GUID_NULL, "full_path": path})):
        assert world.directory.write(RoutingLink(actual_cost=cost, **names), ["ActualCost"]) is SUCCESS
        assert world.read("RoutingLink", guid).actual_cost == cost


@pytest.mark.spec(
    "DSSM-3.1.6.7.6.2-1", "DSSM-3.1.6.7.6.2-2", "DSSM-3.1.6.7.6.2-3", "DSSM-3.1.6.7.6.4-1", "DSSM-3.1.6.7.1.10-1"
)
def test_certificates_of_a_user(world: World, wire: Wire) -> None:
    name = f"user{world.computer}"
    world.domain.add_user(name)
    dn = f"CN={name},CN=Users,{ROOT}"
    sid = world.domain.attributes(dn)["objectSid"][0]
    user = world.directory.read("User", [equals("SecurityIdentifier", sid)])[1]
    assert isinstance(user, User)
    assert user.identifier == world.domain.guid(dn)
    user.identifier = GUID_NULL
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    first, second = (add_certificate(user, generate_certificate(one, now).certificate) for one in ("one", "two"))
    wire.clear()
    assert world.directory.write(user) is SUCCESS
    (modify,) = wire.requests(Modify)
    assert modify.dn == dn
    assert [one for _, one, _ in modify.changes] == ["mSMQDigests", "mSMQSignCertificates"]
    user = world.read("User", world.domain.guid(dn))
    assert UserSignCerts.unpack(user.certificates).certificates == (first, second)
    remove_certificate(user, first.digest)
    wire.clear()
    assert world.directory.write(user, ["Certificates"]) is SUCCESS
    assert len(wire.requests(Modify)) == 1
    found = world.domain.attributes(dn)
    assert UserSignCerts.unpack(found["mSMQSignCertificates"][0]).certificates == (second,)
    assert found["mSMQDigests"] == [second.digest]
    stranger = User(identifier=GUID_NULL, security_identifier=sid[:-4] + b"\xff\xff\xff\x7f")
    assert world.directory.write(stranger, ["Certificates"]) is GENERIC_ERROR
