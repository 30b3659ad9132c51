"""Queue aliases and distribution lists on a Samba domain controller.

MS-MQDSSM 3.1.6.8 and 3.1.6.9.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.activex.destination import MSMQDestination
from lanner.directory.ldap.messages import Scope, Search
from lanner.model.enums import DirectoryOperationResult
from lanner.model.errors import QueueNotFound
from tests.active_directory.conftest import Wire, World
from tests.active_directory.domain import ROOT
from tests.activex.world import World as ComWorld

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_FOUND = DirectoryOperationResult.OBJECT_NOT_FOUND


def group_of(world: World, name: str, *members: str) -> tuple[uuid.UUID, str]:
    dn = f"CN={name} {world.computer},CN=Users,{ROOT}"
    attributes = {"member": members} if members else {}
    guid = world.domain.add(dn, objectClass="group", sAMAccountName=f"{name}{world.computer}", **attributes)
    return guid, dn


def add_alias(world: World, name: str, target: str | None) -> str:
    dn = f"CN={name} {world.computer},CN=Users,{ROOT}"
    attributes = {} if target is None else {"msMQ__Recipient__FormatName": target}
    world.domain.add(dn, objectClass="msMQ-Custom-Recipient", **attributes)
    return dn


def resolve(
    world: World, guid: uuid.UUID, domain: str | None = None
) -> tuple[DirectoryOperationResult, list[str] | None]:
    return world.directory.resolve_distribution_list(guid, domain)


@pytest.fixture
def com(world: World, tmp_path: Path) -> Iterator[ComWorld]:
    """COM objects of a queue manager with the domain's directory."""
    made = ComWorld(tmp_path, computer_name=world.computer, wrap_directory=lambda _: world.directory)
    yield made
    made.close()


@pytest.mark.spec("DSSM-3.1.6.8-1", "DSSM-2.2.2-1/alias", "MQAC-3.12.6.1-1")
def test_programs_address_an_alias_by_its_directory_path(world: World, wire: Wire, com: ComWorld) -> None:
    destination = MSMQDestination(com.environment)
    com.objects.append(destination)
    for place, target in enumerate(
        (r"DIRECT=OS:host\private$\q", f"PUBLIC={uuid.uuid4()}", f"PRIVATE={uuid.uuid4()}\\0000000f")
    ):
        dn = add_alias(world, f"alias{place}", target)
        wire.clear()
        com.call(destination, "put_ads_path", f"LDAP://{dn}")
        assert com.call(destination, "get_format_name") == target
        requests = wire.requests(Search)
        assert {(request.base, request.scope) for request in requests} == {(dn, Scope.BASE)}
        assert "msMQ-Recipient-FormatName" in requests[-1].attributes
    queue = world.add_queue("addressed")
    group, group_dn = group_of(world, "addressed")
    for dn, name in ((f"CN=addressed,{world.dn}", f"PUBLIC={queue}"), (group_dn, f"DL={group}")):
        com.call(destination, "put_ads_path", f"LDAP://{dn}")
        assert com.call(destination, "get_format_name") == name


@pytest.mark.spec("DSSM-3.1.6.8-2", "MQAC-3.12.6.1-2")
def test_an_alias_of_nothing(world: World, com: ComWorld) -> None:
    destination = MSMQDestination(com.environment)
    com.objects.append(destination)
    missing = f"CN=no such alias {world.computer},CN=Users,{ROOT}"
    for dn, result in (
        (add_alias(world, "none", None), DirectoryOperationResult.ATTRIBUTE_NOT_FOUND.value),
        (missing, NOT_FOUND.value),
    ):
        with pytest.raises(QueueNotFound, match=f"no queue, alias or distribution list there: {result}"):
            com.call(destination, "put_ads_path", f"LDAP://{dn}")
        assert com.call(destination, "get_format_name") is None


@pytest.mark.spec(
    "DSSM-3.1.6.9-1", "DSSM-3.1.6.9-2", "DSSM-3.1.6.9-3", "DSSM-3.1.6.9-5", "DSSM-3.1.6.9-8", "DSSM-3.1.6.9-9"
)
def test_members_of_a_list(world: World) -> None:
    world.add_manager()
    first, second = world.add_queue("first"), world.add_queue("second")
    alias = add_alias(world, "alias", r"DIRECT=OS:host\private$\q")
    inner, inner_dn = group_of(world, "inner", f"CN=second,{world.dn}")
    outer, outer_dn = group_of(world, "outer", f"CN=first,{world.dn}", alias, inner_dn)
    expected = {f"PUBLIC={first}", f"PUBLIC={second}", r"DIRECT=OS:host\private$\q"}
    for domain in (None, "mq.test", "other.test"):
        result, names = resolve(world, outer, domain)
        assert result is SUCCESS
        assert names is not None
        assert set(names) == expected
        assert len(names) == 3
    # Lists that contain each other, and themselves.
    world.domain.modify(inner_dn, member=(f"CN=second,{world.dn}", outer_dn))
    result, names = resolve(world, inner)
    assert result is SUCCESS
    assert set(names or ()) == expected
    result, names = resolve(world, outer)
    assert set(names or ()) == expected


@pytest.mark.spec("DSSM-3.1.6.9-4", "DSSM-3.1.6.9-6", "DSSM-3.1.6.9-7", "DSSM-3.1.6.9-11")
def test_lists_that_cannot_be_resolved(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_manager()
    world.add_queue("first")
    good = f"CN=first,{world.dn}"
    assert resolve(world, uuid.uuid4()) == (NOT_FOUND, None)
    empty_alias = add_alias(world, "empty", None)
    assert resolve(world, group_of(world, "a", good, empty_alias)[0]) == (GENERIC_ERROR, None)
    world.domain.add_user(f"user{world.computer}")
    user = f"CN=user{world.computer},CN=Users,{ROOT}"
    assert resolve(world, group_of(world, "b", good, user)[0]) == (GENERIC_ERROR, None)
    inner, inner_dn = group_of(world, "inner", good)
    outer, _ = group_of(world, "outer", good, inner_dn)
    from lanner.directory.ldap import operations
    from lanner.directory.protocol import Refused

    plain = operations.LdapOperations.find

    def find(self: operations.LdapOperations, guid: uuid.UUID) -> str:
        if guid == inner:
            raise Refused(DirectoryOperationResult.ATTRIBUTE_NOT_FOUND)
        return plain(self, guid)

    monkeypatch.setattr(operations.LdapOperations, "find", find)
    assert resolve(world, outer) == (DirectoryOperationResult.ATTRIBUTE_NOT_FOUND, None)
    monkeypatch.undo()
    plain_get = operations.LdapOperations.get

    def get(self: operations.LdapOperations, path: str, attributes: object, guid: uuid.UUID | None = None) -> object:
        if path == good:
            raise Refused(NOT_FOUND)
        return plain_get(self, path, attributes, guid)  # type: ignore[arg-type]

    monkeypatch.setattr(operations.LdapOperations, "get", get)
    assert resolve(world, outer) == (NOT_FOUND, None)


@pytest.mark.spec("DSSM-3.1.6.9-10")
def test_a_list_with_more_members_than_one_answer_holds(world: World) -> None:
    world.add_manager()
    names = [f"q{number}" for number in range(1700)]
    with world.domain.connected() as connection:
        from lanner.directory.ldap.messages import Add

        for name in names:
            connection.perform(Add(f"CN={name},{world.dn}", (("objectClass", ("mSMQQueue",)),)))
    guid, _ = group_of(world, "many", *(f"CN={name},{world.dn}" for name in names))
    result, found = resolve(world, guid)
    assert result is SUCCESS
    assert len(set(found or ())) == len(names)
