"""Access rights on a Samba domain controller.

MS-MQDSSM 3.1.6.1.1.8, 3.1.6.1.3.4, 3.1.6.17 and 5.1.
"""

from __future__ import annotations

import uuid

import pytest

from lanner.directory.ldap import LogOn
from lanner.directory.ldap.messages import SD_FLAGS, Add, Modify, SaslBind, Search, sd_flags
from lanner.model.directory_objects import QueueManager, Site
from lanner.model.enums import DirectoryOperationResult
from lanner.security.access_masks import QueueAccess, QueueManagerAccess, SiteAccess
from lanner.security.profile import Profile
from lanner.wire.security_descriptor import Ace, AceFlags, AceType, Acl, Control, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE, Sid
from tests.active_directory.conftest import Wire, World, equals, made
from tests.active_directory.domain import CONFIGURATION, ROOT, Domain

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND
STRANGER = Sid.parse("S-1-5-21-1-2-3-1001")


@pytest.fixture
def document(domain: Domain) -> World:
    return World(domain, Profile.DOCUMENT)


def stored(world: World, dn: str) -> SecurityDescriptor:
    with world.domain.connected() as connection:
        (found,) = connection.search(Search(dn, attributes=("nTSecurityDescriptor",)), sd_flags(7))
    return SecurityDescriptor.unpack(found.values["nTSecurityDescriptor"][0])


def own(descriptor: SecurityDescriptor) -> list[Ace]:
    """The entries that are not inherited."""
    return [ace for ace in (descriptor.dacl.aces if descriptor.dacl else ()) if AceFlags.INHERITED not in ace.flags]


def sid_of(world: World, dn: str) -> Sid:
    return Sid.unpack(world.domain.attributes(dn, "objectSid")["objectSid"][0])


def domain_admins(world: World) -> Sid:
    found = administrator(world).domain
    assert found is not None
    return found.child(512)


def administrator(world: World) -> Sid:
    return sid_of(world, f"CN=Administrator,CN=Users,{ROOT}")


@pytest.mark.spec(
    "DSSM-3.1.6.1.1.8-1",
    "DSSM-3.1.6.1.1.8-3",
    "DSSM-3.1.6.1.1.8-4",
    "DSSM-3.1.6.1.1.8-5",
    "DSSM-3.1.6.1.1.8-6",
    "DSSM-5.1-2",
)
def test_a_new_queue_managers_list_as_printed(document: World, wire: Wire) -> None:
    world = document
    machine = sid_of(world, world.computer_dn)
    world.add_manager()
    assert [(one.sid, one.mask) for one in own(stored(world, world.dn))] == [
        (EVERYONE, 0x0002_0020),
        (machine, 0x000F_00F7),
        (administrator(world), 0x000F_00F7),
    ]
    sent = SecurityDescriptor.unpack(dict(wire.requests(Add)[-1].attributes)["nTSecurityDescriptor"][0])
    assert (sent.owner, sent.group, sent.sacl) == (None, None, None)
    assert Control.SELF_RELATIVE in sent.control
    assert sent.dacl is not None
    world.domain.delete(world.dn)
    supplied = SecurityDescriptor(owner=STRANGER).pack()
    world.add_manager(security=supplied)
    assert own(stored(world, world.dn))[-1] == allow(STRANGER, 0x000F_00F7)
    world.domain.delete(world.dn)
    # The computer makes its own object: it has one entry, not two.
    mine = world.domain.directory(world.computer_log_on, Profile.DOCUMENT)
    made(mine.create_object(world.manager()))
    assert [one.sid for one in own(stored(world, world.dn))] == [EVERYONE, machine]


@pytest.mark.spec("DSSM-3.1.6.1.1.8-2")
@pytest.mark.parametrize(("profile", "mask"), [(Profile.DOCUMENT, 0x0002_0024), (Profile.SAFE, 0x0002_0095)])
def test_a_foreign_queue_manager(domain: Domain, profile: Profile, mask: int) -> None:
    world = World(domain, profile)
    world.add_manager(foreign_system=True)
    assert own(stored(world, world.dn))[0] == allow(EVERYONE, mask)


@pytest.mark.spec("DSSM-3.1.6.1.1.8-8")
def test_a_computer_whose_sid_cannot_be_read(document: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    world = document
    plain = operations.LdapOperations.get

    def get(self: operations.LdapOperations, path: str, attributes: tuple[str, ...], guid: object = None) -> object:
        if "objectSid" in attributes:
            raise Refused(GENERIC_ERROR)
        return plain(self, path, attributes, guid)  # type: ignore[arg-type]

    monkeypatch.setattr(operations.LdapOperations, "get", get)
    world.add_manager()
    assert [one.sid for one in own(stored(world, world.dn))] == [EVERYONE, administrator(world)]


@pytest.mark.spec("DSSM-3.1.6.1.1.8-7", "DSSM-3.1.6.1.1.8-9", "DSSM-3.1.6.11.1-8")
def test_a_new_queue_managers_list_that_is_safe(world: World) -> None:
    machine = sid_of(world, world.computer_dn)
    guid = world.add_manager()
    found = own(stored(world, world.dn))
    assert found[0] == allow(EVERYONE, 0x0002_0094)
    of_machine = [one for one in found if one.sid == machine]
    assert of_machine[0] == allow(machine, 0x000F_0000 | 0x94 | 0x20 | 0x1)
    rights = [str(one.object_type) for one in of_machine[1:]]
    assert rights == [f"4b6e08c{number}-df3c-11d1-9c86-006008764d0e" for number in range(4)]
    assert all((one.mask, one.ace_type) == (0x100, AceType.ACCESS_ALLOWED_OBJECT) for one in of_machine[1:])
    assert all(not one.mask & 0x100 for one in found if one.object_type is None)
    read = SecurityDescriptor.unpack(world.read("QueueManager", guid).security)
    assert [(one.sid, one.mask) for one in own(read)] == [
        (EVERYONE, QueueManagerAccess.WORLD_RIGHTS),
        (machine, QueueManagerAccess.GENERIC_ALL),
        (administrator(world), QueueManagerAccess.GENERIC_ALL),
    ]
    # A plain user reads it and may not write it.
    plain = world.as_account(world.domain.add_user(f"user{world.computer}"))
    result, manager = plain.read("QueueManager", [equals("Identifier", guid)])
    assert result is SUCCESS
    assert isinstance(manager, QueueManager)
    manager.journal_quota = 1
    assert plain.write(manager, ["JournalQuota"]) is GENERIC_ERROR
    assert world.read("QueueManager", guid).journal_quota != 1


def queue_list() -> SecurityDescriptor:
    every = QueueAccess.GENERIC_ALL
    return SecurityDescriptor(
        dacl=Acl(
            (
                allow(STRANGER, QueueAccess.WRITE_MESSAGE | QueueAccess.GET_QUEUE_PROPERTIES),
                allow(EVERYONE, QueueAccess.GENERIC_READ),
                allow(Sid.parse("S-1-5-32-544"), every),
            )
        )
    )


@pytest.mark.spec("DSSM-3.1.6.1.2.2-4", "DSSM-3.1.6.1.2.2-6")
def test_a_new_queues_list_as_printed(document: World, wire: Wire) -> None:
    world = document
    world.add_manager()
    given = queue_list()
    assert given.dacl is not None
    world.add_queue("orders", security=given.pack())
    assert own(stored(world, f"CN=orders,{world.dn}")) == list(given.dacl.aces)
    wire.clear()
    world.add_queue("default")
    world.add_queue("unlisted", ["Pathname"], security=given.pack())
    for add in wire.requests(Add):
        assert "nTSecurityDescriptor" not in dict(add.attributes)
    # The default of the class names the Domain Admins.
    admins = domain_admins(world)
    assert admins in [one.sid for one in own(stored(world, f"CN=unlisted,{world.dn}"))]


@pytest.mark.spec("DSSM-3.1.6.1.2.2-7", "DSSM-3.1.6.11.1-8")
def test_a_new_queues_list_that_is_safe(world: World) -> None:
    world.add_manager()
    given = queue_list()
    assert given.dacl is not None
    guid = world.add_queue("orders", security=given.pack())
    found = own(stored(world, f"CN=orders,{world.dn}"))
    of_stranger = [one for one in found if one.sid == STRANGER]
    assert [(one.mask, str(one.object_type)) for one in of_stranger] == [
        (0x94, "None"),
        (0x100, "06bd3202-df3e-11d1-9c86-006008764d0e"),
    ]
    digits = [str(one.object_type)[6:8] for one in found if one.sid == EVERYONE and one.object_type is not None]
    assert digits == ["00", "01", "03"]
    read = SecurityDescriptor.unpack(world.read("Queue", guid).security)
    assert own(read) == list(given.dacl.aces)


@pytest.mark.spec("DSSM-3.1.6.1.3.4-1")
def test_a_supplied_list_of_a_site(document: World) -> None:
    world = document
    aces = (allow(STRANGER, SiteAccess.GENERIC_READ), allow(EVERYONE, SiteAccess.GENERIC_WRITE))
    audit = Acl((Ace(AceType.SYSTEM_AUDIT, 0x10, STRANGER, AceFlags.SUCCESSFUL_ACCESS),))
    name = f"{world.site_name}b"
    given = SecurityDescriptor(dacl=Acl(aces), sacl=audit)
    made(world.directory.create_object(Site(name=name, security=given.pack())))
    with world.domain.connected() as connection:
        request = Search(world.site_dn(name), attributes=("nTSecurityDescriptor",))
        (found,) = connection.search(request, sd_flags(15))
    descriptor = SecurityDescriptor.unpack(found.values["nTSecurityDescriptor"][0])
    assert own(descriptor) == list(aces)
    assert descriptor.sacl is not None
    assert audit.aces[0] in descriptor.sacl.aces


@pytest.mark.spec("DSSM-3.1.6.1.3.4-2", "DSSM-3.1.6.1.3.4-3")
@pytest.mark.parametrize("profile", Profile)
def test_the_list_of_a_site_without_one(domain: Domain, profile: Profile) -> None:
    world = World(domain, profile)
    caller = administrator(world)
    read, every = (0x0002_0020, 0x000F_0037) if profile is Profile.DOCUMENT else (0x0002_0094, 0x000F_00B5)
    name = f"{world.site_name}x"
    made(world.directory.create_object(Site(name=name), ["Name"]))
    for one in (world.site_name, name):
        assert own(stored(world, world.site_dn(one))) == [allow(EVERYONE, read), allow(caller, every)]
    guest = sid_of(world, f"CN=Guest,CN=Users,{ROOT}")
    admins = domain_admins(world)
    for place, owner in enumerate((guest, STRANGER)):
        name = f"{world.site_name}y{place}"
        made(world.directory.create_object(Site(name=name, security=SecurityDescriptor(owner=owner).pack())))
        found = own(stored(world, world.site_dn(name)))
        if profile is Profile.DOCUMENT:
            assert found == [allow(EVERYONE, every)]
        else:
            assert found == [allow(EVERYONE, read), allow(admins, every)]


@pytest.mark.spec("DSSM-3.1.6.14-3", "DSSM-3.1.6.17-1", "DSSM-3.1.6.17-2")
def test_only_the_parts_of_a_descriptor_that_are_there(world: World, wire: Wire) -> None:
    world.add_manager()
    guid = world.add_queue("orders")
    wire.clear()
    queue = world.read("Queue", guid, "Security", "FullPath")
    for one in wire.of(Search):
        asked = isinstance(one.request, Search) and "nTSecurityDescriptor" in one.request.attributes
        assert [control for control in one.controls if control.oid == SD_FLAGS] == ([sd_flags(7)] if asked else [])
    before = stored(world, queue.full_path)
    queue.security = queue_list().pack()
    wire.clear()
    assert world.directory.write(queue, ["Security"]) is SUCCESS
    (modify,) = wire.of(Modify)
    assert modify.controls == (sd_flags(4),)
    place = wire.operations().index(modify.request)
    first, second = wire.operations()[place - 2 : place]
    assert isinstance(first, Search)
    assert isinstance(second, Search)
    assert (str(first.filter), str(second.filter)) == ("(objectClass=*)", "(nTSecurityDescriptor=*)")
    after = stored(world, queue.full_path)
    assert (after.owner, after.group) == (before.owner, before.group)
    # A computer account, which may not set an owner, sets the list.
    mine = world.as_account(world.computer_log_on)
    own_queue = made(mine.create_object(world.queue("own")))
    result, mine_read = mine.read("Queue", [equals("Identifier", own_queue)])
    assert result is SUCCESS
    assert mine_read is not None
    owner = administrator(world)
    whole = SecurityDescriptor(owner=owner, dacl=queue_list().dacl)
    queue.security = whole.pack()
    wire.clear()
    assert world.directory.write(queue, ["Security"]) is SUCCESS
    assert wire.of(Modify)[0].controls == (sd_flags(5),)
    queue.identifier = uuid.uuid4()
    wire.clear()
    assert world.directory.write(queue, ["Security"]) is NOT_FOUND
    assert not wire.of(Modify)


@pytest.mark.spec("DSSM-3.1.6.1.1.2-5", "DSSM-5.1.1-1")
@pytest.mark.parametrize("listed", [True, False])
def test_a_computer_makes_its_queue_manager_and_its_queues(world: World, wire: Wire, listed: bool) -> None:
    mine = world.as_account(world.computer_log_on)
    wire.clear()
    names = None if listed else ["ComputerName", "SiteIdentifierList"]
    guid = made(mine.create_object(world.manager(), names))
    assert "nTSecurityDescriptor" in dict(wire.requests(Add)[0].attributes)
    queue = made(mine.create_object(world.queue("orders")))
    assert world.domain.guid(f"CN=orders,{world.dn}") == queue
    result, manager = mine.read("QueueManager", [equals("Identifier", guid)])
    assert result is SUCCESS
    assert isinstance(manager, QueueManager)
    manager.queue_manager_version = "6.0"
    assert mine.write(manager, ["QueueManagerVersion"]) is SUCCESS
    result, found = mine.read("Queue", [equals("Identifier", queue)])
    assert found is not None


@pytest.mark.spec("DSSM-5.1.2-1/the directory")
def test_who_may_not_create_or_write(world: World) -> None:
    world.add_manager()
    guid = world.add_queue("orders", label="old")
    plain = world.as_account(world.domain.add_user(f"user{world.computer}"))
    assert plain.create_object(world.queue("mine")) == (GENERIC_ERROR, None)
    queue = world.read("Queue", guid)
    queue.label = "new"
    assert plain.write(queue, ["Label"]) is GENERIC_ERROR
    assert plain.delete_object(queue) is GENERIC_ERROR
    assert world.read("Queue", guid).label == "old"
    assert world.directory.read("Queue", [equals("Pathname", f"{world.computer}\\mine")])[0] is NOT_FOUND


@pytest.mark.spec("DSSM-5.1.2-2")
def test_what_may_not_be_read(world: World) -> None:
    world.add_manager()
    guid = world.add_queue("orders")
    dn = f"CN=orders,{world.dn}"
    admins = domain_admins(world)
    closed = SecurityDescriptor(dacl=Acl((allow(admins, 0x000F_01FF),)), control=Control.DACL_PROTECTED)
    world.directory.operations.set_security(dn, closed.pack())
    plain = world.as_account(world.domain.add_user(f"user{world.computer}"))
    for one in (equals("Identifier", guid), equals("FullPath", dn), equals("Pathname", f"{world.computer}\\orders")):
        result, found = plain.read("Queue", [one])
        assert result in (NOT_FOUND, GENERIC_ERROR)
        assert found is None


@pytest.mark.spec("DSSM-5.1-1", "DSSM-5.1-3")
def test_how_a_connection_is_bound(world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    from lanner.directory.ldap.connection import LdapConnection

    plain = LdapConnection._send

    def send(connection: LdapConnection, data: bytes) -> None:
        if connection._context is not None:
            sealed = connection._context.wrap
            assert sealed
        else:
            sent.append(data)
        plain(connection, data)

    monkeypatch.setattr(LdapConnection, "_send", send)
    wire.clear()
    world.directory.read("Enterprise", None)
    binds = wire.requests(SaslBind)
    assert binds
    assert all(b"\x02\x01\x03\x04\x00\xa3" in one.encode() and b"GSS-SPNEGO" in one.encode() for one in binds)
    # Nothing but the log-on went out in clear.
    assert all(b"GSS-SPNEGO" in data for data in sent)
    assert CONFIGURATION
    import spnego

    from lanner.directory.ldap.connection import ConnectionFailed

    class Unsealed:
        complete = True
        context_attr = spnego.ContextReq.integrity

        def step(self, _: bytes | None = None) -> bytes:
            return b""

    log_on = LogOn("MQ\\Administrator", "wrong")
    context = Unsealed()
    monkeypatch.setattr(spnego, "client", lambda *_, **__: context)
    from lanner.directory.ldap.messages import Response

    monkeypatch.setattr(LdapConnection, "_exchange", lambda *_, **__: [Response(1, 0x61)])
    with pytest.raises(ConnectionFailed, match="does not sign and seal"):
        LdapConnection("dc1.mq.test", "127.0.0.10", 389, log_on)
