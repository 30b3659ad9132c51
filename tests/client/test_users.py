"""The same queue manager seen by users whose rights are checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lanner.client import Queue, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.model.errors import AccessDenied
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, Identity
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import Sid
from tests.statuses import MQ_ERROR_ACCESS_DENIED

OWNER = Identity("owner", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
READER = Identity("reader", Sid.parse("S-1-5-21-1-2-3-1002"), is_domain_user=True)
ADMINISTRATOR = Identity("boss", Sid.parse("S-1-5-21-1-2-3-500"), is_domain_user=True, is_administrator=True)


def granting(*entries: tuple[Identity, int]) -> bytes:
    dacl = Acl(tuple(allow(identity.sid, rights) for identity, rights in entries))
    return SecurityDescriptor(owner=OWNER.sid, dacl=dacl).pack()


def make(qm: QueueManager, *entries: tuple[Identity, int]) -> Queue:
    queue = qm.create_queue("q")
    queue.set(security=granting(*entries))
    queue.send("x")
    return queue


@pytest.mark.parametrize("identity", [READER, ANONYMOUS], ids=lambda identity: identity.name)
def test_without_rights_nothing_is_allowed(qm: QueueManager, identity: Identity) -> None:
    mine = make(qm)
    lookup_id = mine.peek(0).lookup_id
    user = qm.as_user(identity)
    queue = user.open("q")
    uses: list[Callable[[], object]] = [
        lambda: user.create_queue("mine"),
        lambda: user.delete_queue("q"),
        lambda: queue.send("x"),
        lambda: queue.send_many(["x"]),
        lambda: queue.receive(0),
        lambda: queue.receive_many(1),
        lambda: queue.receive_by_lookup_id(lookup_id),
        lambda: queue.peek(0),
        lambda: queue.peek_by_lookup_id(lookup_id),
        lambda: list(queue),
        queue.count,
        queue.attributes,
        lambda: queue.set(label="x"),
        lambda: queue.set(security=granting()),
        queue.purge,
        lambda: queue.cursor().peek(0),
        lambda: queue.cursor(peek_only=True).peek(0),
        lambda: queue.move(lookup_id, "retry"),
        lambda: queue.journal.peek(0),
        user.open("q", exclusive=True).__enter__,
        lambda: user.open("q", exclusive=True).receive(0),
        lambda: list(user.dead_letter),
        user.queues,
        user.outgoing_queues,
        user.outgoing,
        user.status,
        user.enterprise.document,
    ]
    for number, use in enumerate(uses):
        with pytest.raises(AccessDenied) as raised:
            pytest.fail(f"use {number} worked: {use()!r}")
        assert raised.value.status == MQ_ERROR_ACCESS_DENIED
    assert queue.exists()
    assert mine.subqueues() == []
    assert [message.body for message in mine] == ["x"]


def test_who_may_peek_peeks(qm: QueueManager) -> None:
    make(qm, (READER, QueueAccess.PEEK_MESSAGE | QueueAccess.GET_QUEUE_PROPERTIES))
    queue = qm.as_user(READER).open("q")
    assert ([message.body for message in queue], queue.peek(0).body, queue.count()) == (["x"], "x", 1)
    with queue.cursor(peek_only=True) as cursor:
        assert cursor.peek(0).body == "x"
        with pytest.raises(AccessDenied):
            cursor.receive(0)
    with pytest.raises(AccessDenied):
        queue.cursor().peek(0)


def test_who_may_send_sends_in_the_own_name(qm: QueueManager) -> None:
    mine = make(qm, (READER, QueueAccess.WRITE_MESSAGE))
    mine.purge()
    qm.as_user(READER).open("q").send("x")
    assert mine.receive(0).sender_id == READER.sid.pack()


def test_the_descriptor_is_seen_by_who_may(qm: QueueManager) -> None:
    make(qm, (READER, QueueAccess.GET_QUEUE_PROPERTIES), (ADMINISTRATOR, QueueAccess.GENERIC_ALL))
    assert qm.as_user(READER).open("q").attributes().security is None
    assert qm.as_user(ADMINISTRATOR).open("q").attributes().security is not None


def test_an_administrator_creates_queues_and_reads_the_systems(qm: QueueManager) -> None:
    users = runtime_of(qm).users
    users.add("boss", "secret", administrator=True)
    identity = users.identity("boss")
    assert identity is not None
    boss = qm.as_user(identity)
    queue = boss.create_queue("mine")
    queue.send("x")
    assert queue.receive(0).body == "x"
    assert list(boss.dead_letter) == []
    assert r"ALPHA\private$\mine" in [found.name for found in boss.queues()]
    boss.open(r"BETA\private$\far").send("x")
    (outgoing,) = boss.outgoing_queues()
    assert outgoing.peek(0).body == "x"
    with pytest.raises(AccessDenied):
        qm.as_user(READER).open(outgoing.name).peek(0)
    boss.delete_queue("mine")


def test_users_do_not_share_a_signing_key(qm: QueueManager) -> None:
    user = qm.as_user(READER)
    assert operations_of(user) is not operations_of(qm)
    assert user.name == qm.name
    assert user.signing_key is None
