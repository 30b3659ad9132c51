"""MS-MQDSSM 3.1.6.2 Delete Directory Object, on a Samba domain controller."""

from __future__ import annotations

import pytest

from lanner.directory.ldap.messages import PAGED_RESULTS, SD_FLAGS, Delete, Scope, Search
from lanner.model.directory_objects import GUID_NULL, Queue, QueueManager, RoutingLink, Site
from lanner.model.enums import DirectoryOperationResult
from tests.active_directory.conftest import Wire, World, equals, made

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND


@pytest.mark.spec("DSSM-3.1.6.2-1")
def test_something_must_say_which_object(world: World, wire: Wire) -> None:
    link = world.link(world.site, world.site)
    for obj in (QueueManager(), Queue(), Site(), link):
        obj.identifier = GUID_NULL
        wire.clear()
        assert world.directory.delete_object(obj) is GENERIC_ERROR
        assert not wire.operations()


@pytest.mark.spec("DSSM-3.1.6.2-1", "DSSM-3.1.6.2-2", "DSSM-3.1.6.2.1.2-1", "DSSM-3.1.6.13-2")
@pytest.mark.parametrize("by", ["full_path", "identifier", "name"])
def test_each_name_is_enough(world: World, wire: Wire, by: str) -> None:
    manager = world.add_manager()
    queue = world.add_queue("orders")
    site = world.add_site(f"{world.site_name}b")
    link = made(world.directory.create_object(world.link(world.site, site)))
    cases = [
        (Queue, "Queue", queue, {"pathname": f"{world.computer}\\orders"}),
        (QueueManager, "QueueManager", manager, {"computer_name": world.computer}),
        (RoutingLink, "RoutingLink", link, None),
        (Site, "Site", site, {"name": f"{world.site_name}b"}),
    ]
    for cls, kind, guid, names in cases:
        found = world.read(kind, guid)
        if by == "name" and names is None:
            continue
        obj = cls(identifier=guid if by == "identifier" else GUID_NULL)
        if by == "full_path":
            obj.full_path = found.full_path
            for name in names or {}:
                setattr(obj, name, "misleading\\name")
        elif by == "name":
            for name, value in (names or {}).items():
                setattr(obj, name, value)
        wire.clear()
        assert world.directory.delete_object(obj) is SUCCESS
        (place,) = [index for index, one in enumerate(wire.operations()) if isinstance(one, Delete)]
        parent, itself = wire.operations()[place - 2 : place]
        assert isinstance(parent, Search)
        assert isinstance(itself, Search)
        assert (parent.base, parent.scope) == (found.full_path.partition(",")[2], Scope.BASE)
        assert (itself.base, itself.scope) == (found.full_path, Scope.BASE)
        assert world.directory.read(kind, [equals("Identifier", guid)])[0] is NOT_FOUND
        wire.clear()
        assert world.directory.delete_object(obj) is NOT_FOUND
        assert not wire.requests(Delete)


@pytest.mark.spec("DSSM-3.1.6.2.1.2-2", "DSSM-2.2.6-4")
def test_a_queue_manager_with_queues_stays(world: World, wire: Wire) -> None:
    manager = world.add_manager()
    queue = world.add_queue("orders")
    wire.clear()
    assert world.directory.delete_object(world.manager()) is GENERIC_ERROR
    (sent,) = wire.of(Delete)
    assert sent.controls == ()
    assert sent.answers[-1].code == 66
    assert world.read("QueueManager", manager, "ComputerName")
    assert world.read("Queue", queue, "Pathname")
    used = {control.oid for one in wire.exchanges for control in one.controls}
    assert used <= {SD_FLAGS, PAGED_RESULTS}


@pytest.mark.spec("DSSM-3.1.6.2.1.3-1", "DSSM-3.1.6.2.1.3-3")
@pytest.mark.parametrize("by", ["full_path", "identifier", "computer_name"])
def test_settings_of_a_server_go_with_it(world: World, wire: Wire, by: str) -> None:
    server = world.add_server()
    guid = world.add_manager(routing_server=True)
    manager = world.read("QueueManager", guid)
    if by != "identifier":
        manager.identifier = GUID_NULL
    for name in {"full_path", "computer_name"} - {by}:
        setattr(manager, name, "")
    assert world.directory.delete_object(manager) is SUCCESS
    with pytest.raises(Exception, match="32"):
        world.domain.attributes(f"CN=MSMQ Settings,{server}")
    plain = world.add_manager()
    wire.clear()
    assert world.directory.delete_object(world.read("QueueManager", plain)) is SUCCESS
    assert len(wire.requests(Delete)) == 1


@pytest.mark.spec("DSSM-3.1.6.2.1.3-2")
def test_settings_that_cannot_be_deleted(world: World) -> None:
    server = world.add_server()
    guid = world.add_manager(routing_server=True)
    manager = world.read("QueueManager", guid)
    world.domain.delete(f"CN=MSMQ Settings,{server}")
    assert world.directory.delete_object(manager) is NOT_FOUND
    assert world.directory.read("QueueManager", [equals("Identifier", guid)])[0] is NOT_FOUND


@pytest.mark.spec("DSSM-3.1.6.1.1.3-9")
@pytest.mark.parametrize("operation", ["create", "write", "delete"])
def test_a_site_that_cannot_be_read_ends_everything(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    sites = [world.site, world.add_site(f"{world.site_name}b")]
    world.add_server(f"{world.site_name}b")
    server = world.add_server()
    manager = world.manager(site_identifier_list=sites)
    if operation != "create":
        manager = world.read("QueueManager", made(world.directory.create_object(manager)))
        manager.site_identifier_list = sites
    manager.routing_server = True
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    plain = operations.LdapOperations.get
    asked = []

    def get(self: operations.LdapOperations, path: str, attributes: object, guid: object = None) -> object:
        if guid in sites:
            asked.append(guid)
            raise Refused(DirectoryOperationResult.DIRECTORY_NOT_CONNECTED)
        return plain(self, path, attributes, guid)  # type: ignore[arg-type]

    monkeypatch.setattr(operations.LdapOperations, "get", get)
    match operation:
        case "create":
            assert world.directory.create_object(manager) == (GENERIC_ERROR, None)
        case "write":
            assert world.directory.write(manager, ["RoutingServer"]) is GENERIC_ERROR
        case _:
            assert world.directory.delete_object(manager) is GENERIC_ERROR
    assert asked == [world.site]
    with pytest.raises(Exception, match="32"):
        world.domain.attributes(f"CN=MSMQ Settings,{server}")


@pytest.mark.spec("DSSM-3.1.6.13-1")
def test_an_identifier_counts_more_than_a_path(world: World) -> None:
    world.add_manager()
    first, second = world.add_queue("first", label="1"), world.add_queue("second", label="2")
    stale = world.read("Queue", second)
    stale.identifier = first
    stale.label = "new"
    assert world.directory.write(stale, ["Label"]) is SUCCESS
    assert (world.read("Queue", first).label, world.read("Queue", second).label) == ("new", "2")
    assert world.directory.delete_object(stale) is SUCCESS
    assert world.directory.read("Queue", [equals("Identifier", first)])[0] is NOT_FOUND
    assert world.read("Queue", second).label == "2"


@pytest.mark.spec("DSSM-3.1.6.13-3")
def test_parent_of_a_name_with_a_comma(world: World, wire: Wire) -> None:
    name = f"A, B {world.computer}"
    guid = world.add_site(name)
    wire.clear()
    assert world.directory.delete_object(world.read("Site", guid, "FullPath")) is SUCCESS
    place = next(index for index, one in enumerate(wire.operations()) if isinstance(one, Delete))
    parent = wire.operations()[place - 2]
    assert isinstance(parent, Search)
    assert parent.base.startswith("CN=Sites,CN=Configuration,")
