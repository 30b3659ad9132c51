"""`QueueManager` and `Queue` as far as they are about queues, not messages."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.engine.queue_properties import CHANGEABLE_ATTRIBUTES
from lanner.model.enums import INFINITE, QueuePrivacyLevel
from tests.contract.covering import covers
from tests.contract.forms import Place, blocking, bodies, new_name, new_queue, refused
from tests.contract.waiting import until_it_waits

GUID = uuid.UUID("5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11")


@covers("QueueManager.name", "QueueManager.identifier", "QueueManager.names", "QueueManager.over")
async def test_a_queue_manager_says_who_it_is(qm: lanner.aio.QueueManager, place: Place) -> None:
    assert qm.name == "ALPHA"
    assert qm.identifier == uuid.UUID((await qm.status())["identifier"])
    assert str(qm.names.format_name("q")) == r"DIRECT=OS:ALPHA\private$\q"
    where = place.service.address if place.service and place.form.where == "tcp" else place.data_of(qm)
    assert repr(qm) == f"<QueueManager ALPHA at {where}>"
    inner = blocking(qm)
    assert type(inner).over(inner._backend).name == "ALPHA"


@covers(
    "QueueManager.create_queue", "QueueManager.delete_queue", "QueueManager.create_queue: QueueExists",
    "QueueManager.queues", "Queue.exists", "Queue.attributes", "Queue.is_transactional", "Queue.count", "Queue.name",
    "Queue.path_name", "Queue.format_name",
)  # fmt: skip
async def test_a_queue_is_created_with_attributes_and_deleted(qm: lanner.aio.QueueManager) -> None:
    name = new_name()
    q = await qm.create_queue(
        name, transactional=True, journal=True, label="Orders", quota_kb=77, journal_quota_kb=5, base_priority=-3,
        privacy_level=QueuePrivacyLevel.BODY, authentication=True, multicast_address="224.1.1.1:8000",
        type=uuid.UUID(int=7),
    )  # fmt: skip
    path = rf"ALPHA\private$\{name}"
    assert (q.name, q.path_name, q.format_name) == (path, path, f"DIRECT=OS:{path}")
    assert repr(q).startswith(f"<Queue {path} of ")
    found = await q.attributes()
    assert (found.pathname, found.label, found.transactional, found.journaling) == (path, "Orders", True, True)
    assert (found.quota, found.journal_quota, found.base_priority) == (77, 5, -3)
    assert (found.privacy_level, found.authentication) == (QueuePrivacyLevel.BODY, True)
    assert (found.multicast_address, found.type) == ("224.1.1.1:8000", uuid.UUID(int=7))
    assert (await q.exists(), await q.is_transactional(), await q.count()) == (True, True, 0)
    assert path in [one.name for one in await qm.queues()]
    await refused(errors.QueueExists, f"queue {path} exists already", qm.create_queue(name))
    await qm.delete_queue(name)
    assert (await q.exists(), await q.is_transactional()) == (False, None)
    assert path not in [one.name for one in await qm.queues()]
    for use in (qm.delete_queue(name), q.attributes(), q.count(), q.set(label="x"), q.subqueues()):
        await refused(errors.QueueNotFound, f"no queue {q.format_name} on ALPHA", use)


async def test_a_new_queue_has_no_quota_and_takes_plain_messages(qm: lanner.aio.QueueManager) -> None:
    found = await (await new_queue(qm)).attributes()
    assert (found.quota, found.journal_quota, found.transactional, found.journaling) == (
        INFINITE,
        INFINITE,
        False,
        False,
    )


@covers("Queue.set")
async def test_attributes_are_changed(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.set(label="Other", quota=9, journaling=True, multicast_address="224.1.1.1:8000")
    found = await q.attributes()
    assert (found.label, found.quota, found.journaling, found.multicast_address) == ("Other", 9, True, "224.1.1.1:8000")
    await q.set(multicast_address=None)
    assert (await q.attributes()).multicast_address is None
    # What was returned is a copy.
    found.label = "mine"
    assert (await q.attributes()).label == "Other"


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        (
            {"nonsense": 1},
            errors.PropertyNotallowed,
            f"nonsense of a queue cannot be VERB; these can: {', '.join(CHANGEABLE_ATTRIBUTES)}",
        ),
        (
            {"identifier": uuid.UUID(int=1)},
            errors.PropertyNotallowed,
            f"identifier of a queue cannot be VERB; these can: {', '.join(CHANGEABLE_ATTRIBUTES)}",
        ),
        (
            {"pathname": "x"},
            errors.PropertyNotallowed,
            f"pathname of a queue cannot be VERB; these can: {', '.join(CHANGEABLE_ATTRIBUTES)}",
        ),
        ({"quota": -1}, errors.IllegalPropertyValue, f"quota of a queue: -1 is not 0 to {INFINITE}"),
        ({"quota": "much"}, errors.IllegalPropertyValue, "quota of a queue: int expected, not 'much'"),
        # Values that a service could take for others.
        ({"label": b"x"}, errors.IllegalPropertyValue, "label of a queue: str expected, not b'x'"),
        ({"label": ("x",)}, errors.IllegalPropertyValue, "label of a queue: str expected, not ('x',)"),
        ({"label": None}, errors.IllegalPropertyValue, "label of a queue: str expected, not None"),
        ({"type": str(GUID)}, errors.IllegalPropertyValue, f"type of a queue: UUID expected, not '{GUID}'"),
        ({"security": "AQ=="}, errors.IllegalSecurityDescriptor, "security of a queue: bytes expected, not 'AQ=='"),
        (
            {"privacy_level": 1},
            errors.IllegalPropertyValue,
            "privacy_level of a queue: QueuePrivacyLevel expected, not 1",
        ),
        (
            {"nonsense": {1, 2}},
            errors.PropertyNotallowed,
            f"nonsense of a queue cannot be VERB; these can: {', '.join(CHANGEABLE_ATTRIBUTES)}",
        ),
        ({"quota": True}, errors.IllegalPropertyValue, "quota of a queue: int expected, not True"),
        ({"label": 7}, errors.IllegalPropertyValue, "label of a queue: str expected, not 7"),
        ({"label": "x" * 125}, errors.IllegalPropertyValue, "label of a queue: 125 characters, at most 124"),
        ({"type": "x"}, errors.IllegalPropertyValue, "type of a queue: UUID expected, not 'x'"),
        (
            {"privacy_level": "x"},
            errors.IllegalPropertyValue,
            "privacy_level of a queue: QueuePrivacyLevel expected, not 'x'",
        ),
        ({"security": "x"}, errors.IllegalSecurityDescriptor, "security of a queue: bytes expected, not 'x'"),
        (
            {"multicast_address": "x"},
            errors.IllegalPropertyValue,
            "multicast_address of a queue: 'x' is not an address 224.0.0.0 to 239.255.255.255 with a port",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
async def test_an_attribute_that_cannot_be_is_refused(
    qm: lanner.aio.QueueManager, changes: dict[str, Any], kind: type[errors.StatusError], text: str
) -> None:
    q = await new_queue(qm)
    before = await q.attributes()
    await refused(kind, text.replace("VERB", "changed"), q.set(**changes))
    after = await q.attributes()
    assert (after.label, after.quota, after.type) == (before.label, before.quota, before.type)
    # A queue is created with `label` and the like by their own arguments.
    await refused(kind, text.replace("VERB", "given"), qm.create_queue(new_name(), **changes))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "name '': the name is empty"),
        (r"a\b\c\d", r"path name 'a\b\c\d': a backslash inside the queue name"),
        (";x", "path name ';x': no queue name"),
        ("x" * 300, f"path name '{'x' * 300}': queue name of 300 characters, at most 124"),
        ("private$\\", "path name 'private$\\': no queue name"),
        (
            ".private$orders",
            (
                "name '.private$orders': a queue name that begins with a dot; "
                "a shell removes backslashes outside quotes, "
                r"so write the name in single quotes; did you mean '.\private$\orders'?"
            ),
        ),
        (
            r"beta:1801\private$\q",
            (
                r"name 'beta:1801\private$\q': the computer name 'beta:1801' ends in a port; names have none, "
                r"the port is a setting; did you mean 'beta\private$\q'?"
            ),
        ),
        (
            "Label:orders",
            (
                "name 'Label:orders': a label does not name a queue, because several queues may have the same: "
                r"`lanner queue list` shows the labels; give the path name of the queue, as in '.\private$\orders'"
            ),
        ),
        (
            r"DIRECT=OS:a=b\q",
            (
                r"format name 'DIRECT=OS:a=b\q': '=' is not allowed in a computer name, here 'a=b'; "
                r"did you mean 'DIRECT=OS:a-b\q'?"
            ),
        ),
    ],
    ids=lambda value: value[:16],
)
async def test_a_name_that_cannot_be_is_refused(qm: lanner.aio.QueueManager, name: str, text: str) -> None:
    """Everywhere a name is taken, with the reason and the nearest name that can be."""
    kind = errors.IllegalFormatname if text.startswith("format name") else errors.IllegalQueuePathname
    with pytest.raises(kind) as raised:
        qm.open(name)
    assert (type(raised.value), raised.value.args[0]) == (kind, text)
    await refused(kind, text, qm.create_queue(name))
    await refused(kind, text, qm.delete_queue(name))


async def test_a_queue_of_another_computer_cannot_be_created(qm: lanner.aio.QueueManager) -> None:
    text = r"BETA\private$\far: queues can be created on this computer only"
    await refused(errors.IllegalQueuePathname, text, qm.create_queue(r"BETA\private$\far"))


@covers("QueueManager.open")
@pytest.mark.parametrize(
    "spelling",
    [
        "{0}",
        r"private$\{0}",
        r".\private$\{0}",
        r"ALPHA\PRIVATE$\{0}",
        r"DIRECT=OS:.\private$\{0}",
        # As .NET programs write it.
        r"FormatName:DIRECT=OS:.\private$\{0}",
        r"formatname:direct=os:localhost\PRIVATE$\{0}",
    ],
)
async def test_a_queue_is_opened_by_any_spelling(qm: lanner.aio.QueueManager, spelling: str) -> None:
    name = new_name()
    await (await qm.create_queue(name)).send("x")
    q = qm.open(spelling.format(name))
    assert q.name == spelling.format(name)
    assert await q.exists()
    assert (await q.receive(timeout=0)).body == "x"
    await q.send(lanner.Message(response_queue=rf"FormatName:DIRECT=OS:.\private$\{name}"))
    assert (await q.receive(timeout=0)).response_queue == rf"DIRECT=OS:ALPHA\private$\{name}"
    await qm.delete_queue(q.name)
    assert not await q.exists()


async def test_a_queue_that_is_not_there_is_opened_and_found_missing(qm: lanner.aio.QueueManager) -> None:
    name = new_name()
    q = qm.open(name)
    assert not await q.exists()
    text = rf"no queue DIRECT=OS:ALPHA\private$\{name} on ALPHA"
    for read in (q.receive, q.peek, q.receive_many, q.receive_by_lookup_id, q.cursor().peek):
        await refused(errors.QueueNotFound, text, read(1))
    for use in (q.send("x"), q.send_many(["x"]), q.purge()):
        await refused(errors.QueueNotFound, text, use)
    # Created later, the same object finds it.
    await qm.create_queue(name)
    await q.send("here")
    assert await bodies(q) == ["here"]


async def test_an_object_finds_a_queue_that_was_deleted_and_created_again(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    await q.send("old")
    assert (await q.peek(0)).body == "old"
    await qm.delete_queue(q.name)
    with pytest.raises(errors.QueueNotFound):
        await q.send("x")
    await qm.create_queue(q.name)
    await q.send("new")
    assert (await q.receive(0)).body == "new"


@covers("Queue.close")
async def test_a_closed_queue_ends_the_reads_that_wait_on_it_and_can_be_used_again(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm)
    async with until_it_waits(q.receive(30)) as waiting:
        await q.close()
        with pytest.raises(errors.OperationCancelled):
            await waiting
    await q.close()
    await q.send("x")
    assert (await q.receive(0)).body == "x"


@covers("QueueManager.dead_letter", "QueueManager.transactional_dead_letter", "QueueManager.system_journal")
async def test_the_system_queues_are_there(qm: lanner.aio.QueueManager) -> None:
    paths = [
        (await queue.attributes()).pathname
        for queue in (qm.dead_letter, qm.transactional_dead_letter, qm.system_journal)
    ]
    assert paths == [rf"ALPHA\system$;{name}" for name in ("DEADLETTER", "DEADXACT", "JOURNAL")]
    q = await new_queue(qm, quota_kb=0)
    await qm.dead_letter.purge()
    await q.set(quota=INFINITE)
    await q.send(lanner.Message(body="late", time_to_be_received=0, use_dead_letter_queue=True))
    assert (await qm.dead_letter.receive(10)).body == "late"


@covers("Queue.journal", "Queue.subqueue", "Queue.subqueues")
async def test_a_queue_has_a_journal_and_subqueues(qm: lanner.aio.QueueManager) -> None:
    q = await new_queue(qm, journal=True)
    await q.send_many(["a", "b"])
    assert await q.subqueues() == []
    assert await q.subqueue("later").count() == 0
    received = await q.receive(0)
    assert [message.id async for message in q.journal] == [received.id]
    await q.move((await q.peek(0)).lookup_id, "later")
    (later,) = await q.subqueues()
    assert later.name == f"{q.path_name};later"
    assert await bodies(later) == await bodies(q.subqueue("later")) == ["b"]
    assert (await q.attributes()).subqueues["later"].message_count == 1


@covers("QueueManager.close")
async def test_a_closed_queue_manager_says_so(qm: lanner.aio.QueueManager, place: Place) -> None:
    q = await new_queue(qm)
    await qm.close()
    await qm.close()
    if place.form.is_remote:
        kind: type[errors.StatusError] = errors.InvalidHandle
        service = place.service
        assert service is not None
        text = f"the connection to {service.data if place.form.where == 'unix' else service.address} is closed"
    else:
        kind, text = errors.ServiceNotAvailable, "queue manager ALPHA is Stopped"
    for use in (q.send("x"), q.receive(0), q.peek(0), qm.create_queue(new_name()), q.count()):
        await refused(kind, text, use)


async def test_open_transactions_are_aborted_when_the_queue_manager_is_closed(place: Place) -> None:
    async with place.manager() as qm:
        q = await new_queue(qm, transactional=True)
        async with qm.transaction() as tx:
            await q.send("a", transaction=tx)
        tx = qm.transaction()
        await q.receive(0, transaction=tx)
        await q.send("b", transaction=tx)
    async with place.manager() as qm:
        assert await bodies(qm.open(q.name)) == ["a"]
