"""The members of `QueueManager` for administrators."""

from __future__ import annotations

import datetime as dt
import os
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

import lanner
import lanner.aio
from lanner import errors
from lanner.directory.topology import TopologyError
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState
from lanner.security.access_masks import QueueAccess
from lanner.security.certificates import generate_certificate
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import BUILTIN_ADMINISTRATORS
from tests.contract.covering import covers
from tests.contract.forms import Place, bodies, new_name, refused
from tests.contract.service import BOB

# A queue that administrators may use.
CLOSED = SecurityDescriptor(
    owner=BUILTIN_ADMINISTRATORS, dacl=Acl((allow(BUILTIN_ADMINISTRATORS, QueueAccess.GENERIC_ALL),))
).pack()


@covers("QueueManager.examine")
async def test_the_store_is_examined(qm: lanner.aio.QueueManager) -> None:
    found = {one["check"]: one for one in await qm.examine("--data here")}
    assert {"store", "records", "transactions", "quotas", "dead letters", "outgoing", "certificates"} <= set(found)
    assert found["records"]["verdict"] == "OK"


@covers("QueueManager.take_offline", "QueueManager.bring_online")
async def test_a_queue_manager_goes_offline_and_online(qm: lanner.aio.QueueManager) -> None:
    await qm.take_offline()
    assert (await qm.status())["online"] is False
    await qm.bring_online()
    assert (await qm.status())["online"] is True


@covers("QueueManager.sessions", "QueueManager.close_session", "QueueManager.close_session: InvalidParameter")
async def test_sessions_are_listed_and_ended(qm: lanner.aio.QueueManager, place: Place) -> None:
    text = "there is no session client 0; `lanner sessions` lists them"
    await refused(errors.InvalidParameter, text, qm.close_session("client", 0))
    if place.service is None:
        assert await qm.sessions() == []
        return
    before = {one["number"] for one in await qm.sessions()}
    async with await place.connect() as other:
        queue = await other.create_queue(new_name(), transactional=True)
        unit = other.transaction()
        await queue.send("x", transaction=unit)
        (new,) = [one for one in await qm.sessions() if one["number"] not in before]
        assert (new["kind"], bool(new["user"]), bool(new["address"])) == ("client", True, True)
        assert dt.datetime.fromisoformat(new["since"]) <= dt.datetime.now(dt.UTC)
        await qm.close_session("client", new["number"])
        # What was open is undone; the next call makes a new connection.
        with pytest.raises(errors.LannerError):
            await unit.commit()
        assert await queue.count() == 0
        assert new["number"] not in [one["number"] for one in await qm.sessions()]


@covers("QueueManager.checkpoint")
async def test_a_checkpoint_brings_messages_into_the_database(qm: lanner.aio.QueueManager) -> None:
    queue = await qm.create_queue(new_name())
    await queue.send(lanner.Message(body="kept", recoverable=True))
    await qm.checkpoint()
    assert await bodies(queue) == ["kept"]


@covers(
    "QueueManager.outgoing", "QueueManager.outgoing_queues", "QueueManager.pause", "QueueManager.resume",
    "QueueManager.resend",
)  # fmt: skip
async def test_outgoing_queues_are_shown_steered_and_read(qm: lanner.aio.QueueManager) -> None:
    far = rf"DIRECT=OS:far-{new_name()}\private$\orders"
    queue = qm.open(far)
    assert queue.path_name == queue.format_name == far
    assert await queue.is_transactional() is None
    await queue.send(lanner.Message(body="x", recoverable=True))
    (document,) = [one for one in await qm.outgoing() if one["name"] == far]
    assert document["messages"] == 1
    await qm.pause(far)
    (document,) = [one for one in await qm.outgoing() if one["name"] == far]
    assert document["state"] == OutgoingState.ON_HOLD.value
    assert far in [one.name for one in await qm.outgoing_queues()]
    attributes = await queue.attributes()
    assert isinstance(attributes, OutgoingQueue)
    assert (attributes.state, attributes.message_count) == (OutgoingState.ON_HOLD, 1)
    assert await bodies(queue) == ["x"]
    await qm.resume(far)
    (document,) = [one for one in await qm.outgoing() if one["name"] == far]
    assert document["state"] != OutgoingState.ON_HOLD.value
    await qm.pause(far)
    assert (await queue.receive(10)).body == "x"
    missing = r"DIRECT=OS:nowhere\private$\none"
    for steer in (qm.pause, qm.resume, qm.resend):
        await refused(errors.QueueNotFound, f"no queue {missing} on ALPHA", steer(missing))


async def test_only_a_queue_manager_with_an_address_sends_again(qm: lanner.aio.QueueManager, place: Place) -> None:
    far = rf"DIRECT=OS:far-{new_name()}\private$\orders"
    await qm.open(far).send("x")
    if place.service is None:
        with pytest.raises(errors.ServiceNotAvailable):
            await qm.resend(far)
    else:
        await qm.resend(far)


@covers("QueueManager.status", "QueueManager.peer")
async def test_the_queue_manager_says_how_it_is(qm: lanner.aio.QueueManager, place: Place) -> None:
    status = await qm.status()
    process = os.getpid() if place.service is None else place.service.process.pid
    assert (status["name"], status["identifier"], status["process"]) == ("ALPHA", str(qm.identifier), process)
    assert status["transfer"] is place.form.is_remote
    peer = await qm.peer("nobody", ["127.0.0.9"])
    assert (peer["identifier"], peer["sessions"], peer["queues"]) == (None, [], [])
    assert (await qm.peer("ALPHA"))["identifier"] == str(qm.identifier)


@covers(
    "QueueManager.peers", "QueueManager.trust_peer", "QueueManager.trust_peer: InvalidParameter",
    "QueueManager.forget_peer", "QueueManager.forget_peer: InvalidParameter",
)  # fmt: skip
async def test_queue_managers_are_bound_to_addresses(qm: lanner.aio.QueueManager) -> None:
    guid = uuid.uuid4()
    text = f"{guid} was never seen here: give its address"
    await refused(errors.InvalidParameter, text, qm.trust_peer(guid))
    await refused(errors.InvalidParameter, "nowhere is no address, such as 192.0.2.7", qm.trust_peer(guid, ["nowhere"]))
    await refused(errors.InvalidParameter, "x is no identifier of a queue manager", qm.trust_peer("x", ["192.0.2.7"]))
    made = await qm.trust_peer(guid, ["192.0.2.7", "2001:DB8::7"])
    assert made["addresses"] == {"192.0.2.7": "trusted", "2001:db8::7": "trusted"}
    assert made in await qm.peers()
    await qm.forget_peer(str(guid))
    assert str(guid) not in [one["guid"] for one in await qm.peers()]
    gone = f"{guid} is bound to no address: `lanner peer list` shows those that are"
    await refused(errors.InvalidParameter, gone, qm.forget_peer(guid))


@covers("QueueManager.enterprise", "Enterprise.document", "Enterprise.apply", "Enterprise.remove")
async def test_the_enterprise_is_described(qm: lanner.aio.QueueManager, tmp_path: Path) -> None:
    site, computer = f"SITE-{new_name()}", new_name().upper()
    document = {"sites": [site], "computers": {computer: {"identifier": str(uuid.uuid4()), "sites": [site]}}}
    done = await qm.enterprise.apply(document)
    assert any(site in line for line in done)
    assert await qm.enterprise.apply(document) == []
    file = tmp_path / "enterprise.toml"
    file.write_text(f'sites = ["{site}", "{site}2"]\n')
    assert any(f"{site}2" in line for line in await qm.enterprise.apply(file))
    found = await qm.enterprise.document()
    assert {site, f"{site}2"} <= set(found["sites"])
    assert computer in found["computers"]
    await qm.enterprise.remove("computer", computer)
    await qm.enterprise.remove("site", f"{site}2")
    found = await qm.enterprise.document()
    assert computer not in found["computers"]
    assert f"{site}2" not in found["sites"]
    await refused(
        errors.InvalidParameter, "site nowhere: there is no site nowhere", qm.enterprise.remove("site", "nowhere")
    )
    with pytest.raises(TopologyError):
        await qm.enterprise.apply({"towns": []})


@covers("QueueManager.register_certificate", "QueueManager.certificates", "QueueManager.remove_certificate")
async def test_a_certificate_is_registered(qm: lanner.aio.QueueManager) -> None:
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    pem = x509.load_der_x509_certificate(made.certificate).public_bytes(Encoding.PEM).decode()
    await qm.register_certificate(pem)
    await refused(
        errors.IllegalUser,
        "no account here has the SID S-1-5-21-9-9-9-9",
        qm.register_certificate(pem, "S-1-5-21-9-9-9-9"),
    )
    with pytest.raises(errors.InvalidParameter):
        await qm.register_certificate("nonsense")
    sha256 = x509.load_der_x509_certificate(made.certificate).fingerprint(SHA256()).hex()
    (registered,) = [one for one in await qm.certificates() if one["sha256"] == sha256]
    assert await qm.remove_certificate(sha256) == registered
    assert sha256 not in [one["sha256"] for one in await qm.certificates()]


@covers("QueueManager.as_user", "QueueManager.as_user: UnsupportedOperation")
async def test_another_user_is_an_object_of_its_own_or_connects(qm: lanner.aio.QueueManager, place: Place) -> None:
    if place.service is None:
        assert qm.as_user(BOB).name == "ALPHA"
        return
    where = place.service.data if place.form.where == "unix" else place.service.address
    with pytest.raises(errors.UnsupportedOperation) as raised:
        qm.as_user(BOB)
    assert raised.value.args[0] == f"{where} runs elsewhere: connect to it as bob instead"


@covers("QueueManager.queues: AccessDenied")
async def test_a_user_without_rights_is_denied(qm: lanner.aio.QueueManager, place: Place) -> None:
    """The texts name the user, the right and the queue."""
    q = await qm.create_queue(new_name(), security=CLOSED)
    await q.send("x")
    lookup_id = (await q.peek(0)).lookup_id
    async with place.as_bob(qm) as bob:
        theirs = bob.open(q.name)
        denied: dict[str, Coroutine[Any, Any, object]] = {
            "WRITE_MESSAGE": theirs.send("x"),
            "RECEIVE_MESSAGE": theirs.receive(0),
            "PEEK_MESSAGE": theirs.peek(0),
            "GET_QUEUE_PROPERTIES": theirs.count(),
            "SET_QUEUE_PROPERTIES": theirs.set(label="x"),
            "DELETE_QUEUE": bob.delete_queue(q.name),
        }
        for right, use in denied.items():
            await refused(errors.AccessDenied, f"bob has no right {right} on queue {q.path_name}", use)
        others: list[Coroutine[Any, Any, object]] = [
            theirs.send_many(["x"]),
            theirs.receive_many(1),
            theirs.receive_by_lookup_id(lookup_id),
            theirs.peek_by_lookup_id(lookup_id),
            theirs.purge(),
            theirs.move(lookup_id, "later"),
            theirs.attributes(),
            theirs.subqueues(),
            theirs.cursor().peek(0),
            theirs.journal.peek(0),
            bob.create_queue(new_name()),
        ]
        for use in others:
            with pytest.raises(errors.AccessDenied, match="bob has no right"):
                await use
        text = "bob is no monitor, operator or administrator of ALPHA"
        for ask in (bob.queues, bob.outgoing_queues, bob.outgoing, bob.status, bob.enterprise.document):
            await refused(errors.AccessDenied, text, ask())
        await refused(errors.AccessDenied, text, bob.peer("x"))
        text = "bob is no operator or administrator of ALPHA"
        for use in (bob.pause(q.name), bob.resume(q.name), bob.resend(q.name)):
            await refused(errors.AccessDenied, text, use)
        text = "bob is no administrator of ALPHA"
        await refused(errors.AccessDenied, text, bob.add_user("eve", "a long enough word"))
        # Whether a queue is there, and which messages it takes, may be asked by everyone.
        assert (await theirs.exists(), await theirs.is_transactional()) == (True, None)
    assert await bodies(q) == ["x"]
