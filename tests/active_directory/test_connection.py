"""MS-MQDSSM 3.1.3, 3.1.6.12, 3.1.6.18-3.1.6.21: the connection to a Samba domain controller."""

from __future__ import annotations

import socket
import threading

import pytest

from lanner.directory.ldap import LdapDirectory, LogOn, Server, domain_controllers
from lanner.directory.ldap.connection import LDAP_PORT, LdapConnection
from lanner.directory.ldap.messages import Scope, Search, Unbind
from lanner.directory.ldap.service_location import LocationError
from lanner.directory.protocol import Refused
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult
from tests.active_directory.conftest import Wire, World, equals
from tests.active_directory.domain import ADDRESS, ADMINISTRATOR, CONFIGURATION, HOST, PASSWORD, SERVER, Domain

SUCCESS = DirectoryOperationResult.SUCCESS
GENERIC_ERROR = DirectoryOperationResult.GENERIC_ERROR
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
NOBODY = Server("nobody.mq.test", "127.0.0.11")


@pytest.mark.spec("DSSM-3.1.3-1", "DSSM-3.1.3-2")
def test_initialization(domain: Domain, wire: Wire) -> None:
    directory = LdapDirectory(lambda: [SERVER], ADMINISTRATOR)
    assert directory.initialize() is SUCCESS
    (one,) = wire.of(Search)
    assert one.request == Search("", Scope.BASE, attributes=(), time_limit=0, size_limit=0)
    assert isinstance(one.request, Search)
    assert str(one.request.filter) == "(objectClass=*)"
    assert one.controls == ()
    # An enumerated 0 (base), one more (never), no limits, FALSE.
    assert b"\x0a\x01\x00\x0a\x01\x00\x02\x01\x00\x02\x01\x00\x01\x01\x00" in one.request.encode()
    assert directory.operations.configuration_context == CONFIGURATION
    wire.clear()
    for _ in range(3):
        assert directory.read("Site", None, ["Name"])[0] is SUCCESS
    assert not [one for one in wire.requests(Search) if one.base == ""]
    assert any(one.base == f"CN=Sites,{CONFIGURATION}" for one in wire.requests(Search))


@pytest.mark.spec("DSSM-3.1.3-3", "DSSM-3.1.3-4", "DSSM-3.1.6.12-1")
def test_nothing_works_before_initialization(domain: Domain, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [NOBODY]
    connects: list[int] = []

    def locate() -> list[Server]:
        connects.append(1)
        return servers

    directory = LdapDirectory(locate, ADMINISTRATOR)
    assert directory.initialize() is NOT_CONNECTED
    assert directory.operations.configuration_context == ""
    servers[:] = [SERVER]
    operations, dn = directory.operations, "CN=x,DC=mq,DC=test"
    connects.clear()
    for attempt in (
        lambda: operations.create(dn, "y", "mSMQQueue", {}),
        lambda: operations.delete(dn),
        lambda: operations.get(dn, ()),
        lambda: operations.search("mSMQQueue", Search("").filter, ()),
        lambda: operations.set_properties(dn, {"cn": ["x"]}),
        lambda: operations.set_security(dn, b""),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.result is NOT_CONNECTED
    assert not wire.exchanges
    assert not connects
    # The server has come back: the next forced read asks again.
    assert directory.initialize() is SUCCESS
    assert directory.read("Enterprise", None)[0] is SUCCESS
    # An answer that is none leaves nothing of what was known.
    from lanner.directory.ldap.connection import LdapRefused

    def refuse(*_: object, **__: object) -> None:
        raise LdapRefused(53, "", "search")

    monkeypatch.setattr(LdapConnection, "search", refuse)
    assert directory.initialize() is GENERIC_ERROR
    assert directory.operations.configuration_context == ""


@pytest.mark.spec("DSSM-3.1.6.12-2", "DSSM-3.1.6.18-2")
def test_no_connection(domain: Domain) -> None:
    found = [SERVER]
    directory = LdapDirectory(lambda: found, ADMINISTRATOR)
    directory.initialize()
    operations, dn = directory.operations, "CN=x,DC=mq,DC=test"
    for servers, log_on in (
        ([NOBODY], ADMINISTRATOR),
        ([], ADMINISTRATOR),
        ([SERVER], LogOn("MQ\\Administrator", "wrong")),
    ):
        found[:] = servers
        # As after a start: no server is known.
        operations.servers().clear()
        operations.log_on = log_on
        with pytest.raises(Refused) as refused:
            operations.prepare()
        assert refused.value.result is GENERIC_ERROR
        assert operations.connection is None
        for attempt in (
            lambda: operations.create(dn, "y", "mSMQQueue", {}),
            lambda: operations.delete(dn),
            lambda: operations.get(dn, ()),
            lambda: operations.search("mSMQQueue", Search("").filter, ()),
            lambda: operations.set_properties(dn, {"cn": ["x"]}),
            lambda: operations.set_security(dn, b""),
        ):
            with pytest.raises(Refused) as refused:
                attempt()
            assert refused.value.result is NOT_CONNECTED
    operations.log_on = ADMINISTRATOR
    found[:] = [SERVER]
    assert directory.read("Enterprise", None)[0] is SUCCESS


@pytest.mark.spec("DSSM-3.1.6.18-1")
def test_domain_controllers_are_found_by_dns(domain: Domain) -> None:
    found = domain_controllers("mq.test", [ADDRESS])
    assert found == [Server(HOST, ADDRESS, LDAP_PORT)]
    directory = LdapDirectory(lambda: domain_controllers("mq.test", [ADDRESS]), ADMINISTRATOR)
    assert directory.initialize() is SUCCESS
    assert directory.read("Enterprise", None)[0] is SUCCESS
    with pytest.raises(LocationError, match=r"no record _ldap\._tcp\.dc\._msdcs\.none\.test"):
        domain_controllers("none.test", [ADDRESS])
    with pytest.raises(LocationError, match="no domain controller found"):
        domain_controllers("mq.test", ["127.0.0.12"])


@pytest.mark.spec("DSSM-3.1.6.18-3", "DSSM-3.1.6.21-1")
def test_overlapping_operations_share_a_connection(world: World, wire: Wire) -> None:
    operations = world.directory.operations
    wire.clear()
    first = operations.prepare()
    binds = len(wire)
    assert operations.prepare() is first
    assert len(wire) == binds
    assert world.directory.read("Enterprise", None)[0] is SUCCESS
    threads = [threading.Thread(target=world.directory.read, args=("Site", None)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert operations.connection is first
    operations.shut_down()
    assert operations.uses == 1
    assert not wire.requests(Unbind)
    operations.shut_down()
    assert len(wire.requests(Unbind)) == 1
    assert operations.connection is None


@pytest.mark.spec("DSSM-3.1.6.18-4", "DSSM-2.2.6-5")
def test_a_connection_that_was_lost(world: World) -> None:
    operations = world.directory.operations
    with operations.held():
        first = operations.connection
        assert first is not None
        # The connection was lost while idle: the next operation uses a new one.
        first._socket.shutdown(socket.SHUT_RDWR)
        assert world.directory.read("Enterprise", None)[0] is SUCCESS
        second = operations.connection
        assert second is not None
        assert second is not first
        # It goes between a request and its answer.
        second._socket.shutdown(socket.SHUT_RDWR)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LdapConnection, "is_closed", False)
            assert world.directory.read("Enterprise", None)[0] is NOT_CONNECTED
        assert operations.connection is None
    assert world.directory.read("Enterprise", None)[0] is SUCCESS


@pytest.mark.spec("DSSM-3.1.6.21-2")
def test_every_use_is_given_back(world: World) -> None:
    directory = world.directory
    path = equals("FullPath", "CN=none,DC=mq,DC=test")
    for _ in range(100):
        assert directory.read("Queue", [path])[0] is DirectoryOperationResult.OBJECT_NOT_FOUND
    assert directory.create_object(world.queue("orders"))[0] is not SUCCESS
    assert directory.delete_object(Queue(full_path="CN=none,DC=mq,DC=test")) is not SUCCESS
    assert directory.operations.uses == 0
    assert directory.operations.connection is None


@pytest.mark.spec("DSSM-3.1.1.6-1")
def test_a_connection_belongs_to_one_account(world: World) -> None:
    world.add_manager()
    user = world.domain.add_user(f"user{world.computer}")
    mine, other = world.directory, world.as_account(user)
    with mine.operations.held(), other.operations.held():
        assert mine.operations.connection is not other.operations.connection
        assert mine.operations.caller() != other.operations.caller()
        assert (
            other.operations.caller()
            == world.domain.attributes(f"CN=user{world.computer},CN=Users,DC=mq,DC=test", "objectSid")["objectSid"][0]
        )
        assert other.create_object(world.queue("theirs"))[0] is GENERIC_ERROR
        assert mine.create_object(world.queue("ours"))[0] is SUCCESS
        assert other.create_object(world.queue("theirs"))[0] is GENERIC_ERROR


def test_the_next_controller_is_tried(domain: Domain) -> None:
    located: list[int] = []

    def locate() -> list[Server]:
        located.append(1)
        return [NOBODY, SERVER]

    directory = LdapDirectory(locate, ADMINISTRATOR)
    assert directory.initialize() is SUCCESS
    # From now on the one that failed is tried last, and DNS is not asked again.
    assert directory.operations.servers() == [SERVER, NOBODY]
    assert directory.read("Enterprise", None)[0] is SUCCESS
    assert directory.server == HOST
    assert len(located) == 1


def test_a_controller_that_does_not_answer_is_left(domain: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts connections, as a machine that hangs does."""
    monkeypatch.setattr("lanner.directory.ldap.connection.ANSWER_TIMEOUT", 2.0)
    with socket.create_server((NOBODY.address, 0)) as hanging:
        mute = Server("mute.mq.test", NOBODY.address, hanging.getsockname()[1])
        directory = LdapDirectory(lambda: [mute, SERVER], ADMINISTRATOR)
        assert directory.initialize() is SUCCESS
        assert directory.operations.servers() == [SERVER, mute]


def test_controllers_are_located_again_when_no_known_one_answers(domain: Domain) -> None:
    servers = [SERVER]
    directory = LdapDirectory(lambda: servers, ADMINISTRATOR)
    assert directory.initialize() is SUCCESS
    directory.operations.servers()[:] = [NOBODY]
    assert directory.read("Enterprise", None)[0] is SUCCESS
    assert directory.operations.servers() == [SERVER]


def test_the_controller_goes_and_comes_back(domain: Domain) -> None:
    directory = domain.directory()
    domain.stop()
    try:
        assert directory.read("Enterprise", None)[0] is NOT_CONNECTED
    finally:
        domain.start()
    assert directory.read("Enterprise", None)[0] is SUCCESS


def test_kerberos(domain: Domain) -> None:
    """With the extra: a ticket for the controller's own principal."""
    pytest.importorskip("gssapi")
    directory = domain.directory(LogOn("Administrator@MQ.TEST", PASSWORD, protocol="kerberos"))
    assert directory.read("Enterprise", None)[0] is SUCCESS
