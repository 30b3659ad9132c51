"""Queue managers of two sites in a Samba domain.

Covered: public queues of other computers, routing by sites, and a domain controller that goes down
and comes back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanner.directory.ldap.cached import CachedDirectory
from lanner.directory.ldap.messages import Search
from lanner.model.enums import DirectoryOperationResult, MessageClass, SenderIdentifierType
from lanner.model.errors import IllegalFormatname
from lanner.security.signing import sign
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.user_certificates import UserSignCert, UserSignCerts
from tests.active_directory.conftest import Wire, equals, made
from tests.active_directory.conftest import World as DirectoryWorld
from tests.active_directory.domain import DNS_DOMAIN, ROOT, Domain
from tests.client.other_manager import until
from tests.security.samples import signing_key
from tests.transfer.enterprise import QUICK
from tests.transfer.world import Node, World
from tests.wire.samples import make

SUCCESS = DirectoryOperationResult.SUCCESS


@pytest.fixture
def network(tmp_path: Path) -> Iterator[World]:
    network = World(tmp_path)
    yield network
    network.close()


class Members:
    """ALPHA in the west, OMEGA in the east and a router in both sites.

    Each has the rights of its own computer account.
    """

    def __init__(self, domain: Domain, network: World) -> None:
        self.world = DirectoryWorld(domain)
        west, east = self.world.site, self.world.add_site(f"{self.world.site_name}e")
        self.caches: list[CachedDirectory] = []
        self.alpha = self._member(network, "a", [west], 2)
        self.router = self._member(network, "r", [west, east], 3, is_router=True)
        self.omega = self._member(network, "o", [east], 4)
        for node in (self.alpha, self.router, self.omega):
            node.engine.read_routing_data()
            node.sync()

    def _member(
        self, network: World, letter: str, sites: list[uuid.UUID], number: int, *, is_router: bool = False
    ) -> Node:
        name = f"{self.world.computer}{letter}"
        log_on = self.world.domain.add_computer(name)
        if is_router:
            # The server objects of a site are for an administrator to make, and what lies below
            # them.
            self.world.add_server(computer=name)
            self.world.add_server(f"{self.world.site_name}e", computer=name)
            manager = self.world.manager(computer_name=name, site_identifier_list=sites, routing_server=True)
            made(self.world.directory.create_object(manager))
        # A busy machine takes its time.
        cache = CachedDirectory(self.world.as_account(log_on), patience=60)
        self.caches.append(cache)
        network.peers[f"{name}.{DNS_DOMAIN}"] = f"127.0.0.{number}"
        return network.node(
            name,
            f"127.0.0.{number}",
            **QUICK,
            wrap_directory=lambda _: cache,
            dns_domain=DNS_DOMAIN,
            directory_integrated=True,
            site_identifiers=tuple(map(str, sites)),
        )


@pytest.fixture
def members(domain: Domain, network: World) -> Iterator[Members]:
    found = Members(domain, network)
    yield found
    for cache in found.caches:
        cache.close()


def until_connected(cache: CachedDirectory) -> None:
    until(lambda: cache.initialize() is SUCCESS)


def is_offline(node: Node) -> bool:
    return node.engine.queue_manager.directory_offline


@pytest.mark.spec("QQB-2.3-1/queues and queue managers")
def test_public_queues_across_sites(members: Members, network: World, domain: Domain) -> None:
    alpha, router, omega = members.alpha, members.router, members.omega
    for node in (alpha, router, omega):
        # The directory chose the identifier, and the queue manager has taken it.
        name = node.engine.queue_manager.computer_name
        assert domain.guid(f"CN=msmq,CN={name},CN=Computers,DC=mq,DC=test") == node.guid
    queue = omega.create(".\\orders")
    omega.sync()
    name = omega.engine.queue_manager.computer_name
    assert domain.guid(f"CN=orders,CN=msmq,CN={name},CN=Computers,DC=mq,DC=test") == queue.identifier
    for node in (alpha, router):
        result, found = node.engine.read_directory("Queue", [equals("Pathname", f"{name}\\orders")])
        assert result is SUCCESS
        assert found is not None
        assert found.identifier == queue.identifier
    target = f"PUBLIC={queue.identifier}"
    for number in range(5):
        alpha.send(target, b"%d" % number)
    alpha.sync()
    network.tick(10)
    arrived = omega.messages(target)
    assert [message.body for message in arrived] == [b"0", b"1", b"2", b"3", b"4"]
    # ALPHA and OMEGA have no site in common: the router passed them on.
    assert {message.route_count for message in arrived} == {1}
    domain.stop()
    try:
        alpha.send(target, b"while it was away")
        alpha.sync()
        network.tick(10)
        assert omega.messages(target)[-1].body == b"while it was away"
        result, _ = alpha.engine.read_directory("Queue", [equals("Pathname", f"{name}\\none")])
        assert result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
        assert is_offline(alpha)
        with pytest.raises(IllegalFormatname, match="no such public queue among the answers that the directory gave"):
            alpha.engine.get_queue_path(parse(f"PUBLIC={uuid.uuid4()}"))
        # An unknown name hides nothing that was found before, even when that has expired.
        members.caches[0]._changed()
        alpha.send(target, b"and now it is offline")
        alpha.sync()
        network.tick(10)
        assert omega.messages(target)[-1].body == b"and now it is offline"
        # Earlier answers do not end the offline mode.
        network.tick(70, step=5)
        assert is_offline(alpha)
    finally:
        domain.start()
    until_connected(members.caches[0])
    network.tick(70, step=5)
    assert not is_offline(alpha)
    second = omega.create(".\\second")
    omega.sync()
    alpha.send(f"PUBLIC={second.identifier}", b"again")
    alpha.sync()
    network.tick(10)
    assert [message.body for message in omega.messages(f"PUBLIC={second.identifier}")] == [b"again"]


@pytest.mark.spec("QQB-2.3-1/users")
def test_the_sender_of_a_signed_message_is_looked_up(members: Members, domain: Domain, wire: Wire) -> None:
    """MS-MQQB 3.1.5.8.3: the certificate is that of the user whom the message names."""
    engine = members.omega.engine
    name = f"user{members.world.computer}"
    domain.add_user(name)
    dn = f"CN={name},CN=Users,{ROOT}"
    sid = domain.attributes(dn)["objectSid"][0]
    packet = make(body=b"signed", sender_identifier_type=SenderIdentifierType.SID, sender_identifier=sid)
    message = Message(sign(packet, signing_key()))
    assert engine.sender_checked(engine.examine_message(message)).refusal is MessageClass.NACK_BAD_SIGNATURE
    keys = UserSignCerts((UserSignCert(uuid.uuid4(), signing_key().certificate),))
    domain.modify(dn, mSMQSignCertificates=keys.pack(), mSMQDigests=tuple(keys.digests))
    members.caches[-1]._changed()
    wire.clear()
    assert engine.sender_checked(engine.examine_message(message)).is_sender_known
    escaped = "".join(f"\\{octet:02x}" for octet in sid)
    assert any(f"(objectSid={escaped})" in str(one.filter) for one in wire.requests(Search))


def test_what_was_read_is_kept(members: Members, domain: Domain, wire: Wire) -> None:
    cache = members.caches[0]
    identifier = [equals("Identifier", members.omega.guid)]
    result, first = cache.read("QueueManager", identifier)
    assert result is SUCCESS
    assert first is not None
    wire.clear()
    result, second = cache.read("QueueManager", identifier)
    assert result is SUCCESS
    assert second is not first
    assert not len(wire)
    assert cache.write(members.omega.engine.queue_manager, []) is SUCCESS
    wire.clear()
    assert cache.read("QueueManager", identifier)[0] is SUCCESS
    assert wire.requests(Search)
    domain.stop()
    try:
        cache._changed()
        # What was known is still an answer; what was not known is none.
        assert cache.read("QueueManager", identifier)[0] is SUCCESS
        result, _ = cache.read("QueueManager", [equals("Identifier", uuid.uuid4())])
        assert result is DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
    finally:
        domain.start()
    until_connected(cache)
    result, _ = cache.read("QueueManager", [equals("Identifier", uuid.uuid4())])
    assert result is DirectoryOperationResult.OBJECT_NOT_FOUND
