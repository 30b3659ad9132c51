"""Sessions of the interface `lanner`.

The tests check the answers to bad requests, and that callers cannot affect each other.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

import lanner
from lanner import errors
from lanner.client import QueueManager
from lanner.client._sync.lanner_backend import LannerBackend
from lanner.client._sync.lanner_connection import LannerConnection
from lanner.host.committer import Committer
from lanner.model.errors import MQ_OK
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import FaultStatus, RpcFault
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import AuthLevel
from lanner.rpc.security import Credentials
from lanner.security import access_lists
from lanner.security.identity import SYSTEM, Identity
from lanner.services import lanner_session, open_objects
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_CALL,
    LANNER_CLOSE_SESSION,
    LANNER_OPEN_SESSION,
    pack_frame,
)
from lanner.services.lanner_session import LannerSession, Replies, Reply
from lanner.services.lanner_sessions import MAX_SESSIONS
from lanner.services.open_objects import OpenObjects
from lanner.services.sent_batches import ClientMemory
from lanner.wire.sid import Sid
from tests.cli.conftest import free_address
from tests.client.served import ServedManager

KEPT = r"DIRECT=OS:ALPHA\private$\kept"
NOTHING = memoryview(b"")


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    data = tmp_path_factory.mktemp("session") / "data"
    served = ServedManager(data, free_address())
    for name in ("alice", "bob"):
        served.runtime.users.add(name, "secret")
    with lanner.connect(data=data) as manager:
        manager.create_queue("kept")
    yield served
    served.close()
    shutil.rmtree(data)


@pytest.fixture
def qm(alpha: ServedManager) -> Iterator[QueueManager]:
    with lanner.connect(data=alpha.data) as manager:
        yield manager
        manager.open("kept").purge()


def connection_of(manager: QueueManager) -> LannerConnection:
    backend = manager._backend
    assert isinstance(backend, LannerBackend)
    return backend.connections.now()


def ask(manager: QueueManager, request: object, octets: bytes = b"", /, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """Make a request of the session, and return the document of its answer."""
    document, _ = connection_of(manager).call({"request": request, **arguments}, octets)
    return document


def opened(manager: QueueManager, access: str, name: str = KEPT) -> int:
    number = connection_of(manager).new_number()
    ask(manager, "open", queue=number, name=name, access=access)
    return number


def with_session(alpha: ServedManager, scenario: Callable[[LannerSession], Coroutine[Any, Any, None]]) -> None:
    """Run something with a session of the queue manager's owner, in an event loop of its own."""

    async def run() -> None:
        committer = Committer(alpha.runtime.store, asyncio.get_running_loop())
        session = LannerSession(alpha.engine, committer, SYSTEM, ClientMemory(), OpenObjects())
        try:
            await scenario(session)
        finally:
            session.close()
            await asyncio.to_thread(committer.close)

    asyncio.run(run())


async def later(session: LannerSession, request: dict[str, Any]) -> Reply:
    """Return the answer to a request that waits."""
    reply = session.handle(request, NOTHING)
    assert not isinstance(reply, tuple)
    return await reply


@pytest.mark.parametrize(
    ("request_", "arguments", "complaint"),
    [
        ("nonsense", {}, "unknown request 'nonsense': one of create queue, "),
        (None, {}, "unknown request None"),
        (["send"], {}, "unknown request"),
        ("open", {}, "needs the number `queue`"),
        ("open", {"queue": 7000}, "needs the text `access`"),
        ("open", {"queue": 7000, "name": 1, "access": "send"}, "needs the text `name`"),
        ("open", {"queue": 7000, "name": KEPT, "access": "all"}, "access 'all': one of send, receive, peek, move"),
        ("create queue", {"path": r"alpha\x"}, "attributes: an object expected, not None"),
        ("create queue", {"attributes": {}}, "needs the text `path`"),
        ("count", {}, "needs the text `name`"),
        ("receive", {"queue": 1, "timeout": 0, "count": 1}, "needs the number `read`"),
        ("receive", {"read": -1}, "needs the number `read`"),
        ("receive", {"read": True}, "needs the number `read`"),
        ("open cursor", {"queue": 7000}, "needs the number `cursor`"),
        ("end", {"reads": 1}, "needs the list `reads`"),
        ("end", {"reads": ["1"]}, "read '1': a number expected"),
        ("begin", {"identifier": "x"}, "identifier 'x': a GUID expected"),
    ],
)
def test_bad_requests_are_reported(
    qm: QueueManager, request_: object, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(errors.InvalidParameter, match=complaint):
        ask(qm, request_, **arguments)


@pytest.mark.parametrize(
    ("request_", "arguments", "complaint"),
    [
        ("send", {}, "needs the list `messages`"),
        ("send", {"messages": [5]}, "a body of None octets, 3 are left"),
        ("send", {"messages": [{"size": 4}]}, "a body of 4 octets, 3 are left"),
        ("send", {"messages": [{"size": 2}, {"size": 2}]}, "a body of 2 octets, 1 are left"),
        ("send", {"messages": [{"size": -1}]}, "a body of -1 octets"),
        ("send", {"messages": [{"size": 3, "message_identifier": 1}]}, "'message_identifier' is no property"),
        ("send", {"messages": [{"size": 3, "label": 1}]}, "label of a message: 1"),
        ("send", {"messages": [{"size": 3, "priority": 1 << 32}]}, "priority of a message"),
        ("send", {"messages": [{"size": 3, "extension": "no base64!"}]}, "extension of a message"),
        ("move", {"lookup_ids": 5}, "needs the list `lookup_ids`"),
        ("move", {"lookup_ids": ["1"]}, "lookup id '1': a number expected"),
        ("move", {"lookup_ids": [-1]}, "lookup id"),
        ("move", {"lookup_ids": [1 << 64]}, "lookup id"),
        ("receive", {"read": 1, "timeout": None, "count": 1}, "needs the number `timeout`"),
        ("receive", {"read": 1, "timeout": 0}, "needs the number `count`"),
        ("look up", {"read": 1, "lookup_id": 0, "where": "beyond"}, "'beyond': one of"),
        ("look up", {"read": 1, "lookup_id": "0", "where": "first"}, "lookup id '0': a number expected"),
    ],
)
def test_bad_requests_on_an_open_queue_are_reported(
    qm: QueueManager, request_: str, arguments: dict[str, Any], complaint: str
) -> None:
    kept = qm.open("kept")
    kept.send("x")
    number = opened(qm, "receive" if request_ == "look up" else request_)
    with pytest.raises(errors.InvalidParameter, match=complaint):
        ask(qm, request_, b"abc", queue=number, target=number, **arguments)
    assert [message.body for message in kept.receive_many(5)] == ["x"]


@pytest.mark.parametrize(
    ("path", "attributes", "error"),
    [
        (r"beta\x", {}, errors.IllegalQueuePathname),
        (r"alpha\x", {"pathname": "x"}, errors.PropertyNotallowed),
        (r"alpha\private$\x", {"security": ""}, errors.IllegalSecurityDescriptor),
        (r"alpha\private$\x", {"security": "no base64!"}, errors.IllegalSecurityDescriptor),
        (r"alpha\private$\x", {"label": 1}, errors.IllegalPropertyValue),
        (r"alpha\private$\x", {"privacy_level": 9}, errors.IllegalPropertyValue),
        (r"alpha\private$\x", {"type": 5}, errors.IllegalPropertyValue),
        (r"alpha\private$\x", {"transactional": "yes"}, errors.IllegalPropertyValue),
    ],
)
def test_names_of_which_no_queue_can_be_created_are_reported(
    qm: QueueManager, path: str, attributes: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        ask(qm, "create queue", path=path, attributes=attributes)
    assert not qm.open(r".\private$\x").exists()


@pytest.mark.parametrize(
    ("request_", "arguments", "what"),
    [
        ("close", {"queue": 99}, "queue 99"),
        ("close", {"queue": True}, "queue True"),
        ("send", {"queue": None, "messages": []}, "queue None"),
        ("purge", {}, "queue None"),
        ("commit", {"transaction": 99}, "transaction 99"),
        ("abort", {"transaction": "1"}, "transaction '1'"),
        ("close cursor", {"cursor": 99}, "cursor 99"),
        ("end", {"reads": [99], "remove": True}, "read 99"),
    ],
)
def test_numbers_of_nothing_are_reported(qm: QueueManager, request_: str, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(errors.InvalidHandle, match=what):
        ask(qm, request_, **arguments)


def test_a_number_is_one_connections(alpha: ServedManager, qm: QueueManager) -> None:
    number = opened(qm, "receive")
    with lanner.connect(data=alpha.data) as other, pytest.raises(errors.InvalidHandle, match=f"queue {number}"):
        ask(other, "purge", queue=number)


def test_a_read_number_is_used_once_at_a_time(qm: QueueManager) -> None:
    kept = qm.open("kept")
    kept.send_many(["a", "b"])
    receive: dict[str, Any] = {"queue": opened(qm, "receive"), "timeout": 0, "count": 1, "read": 7000}
    ask(qm, "receive", **receive)
    with pytest.raises(errors.InvalidParameter, match="read 7000 is in use"):
        ask(qm, "receive", **receive)
    ask(qm, "end", reads=[7000], remove=True)
    assert [message.body for message in kept] == ["b"]
    ask(qm, "receive", **receive)
    ask(qm, "end", reads=[7000], remove=False)
    assert [message.body for message in kept] == ["b"]


def test_what_a_session_may_have_open_has_a_limit(qm: QueueManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanner_session, "MAX_OPEN", 4)
    qm.open("kept").send_many(["a", "b"])
    queue = opened(qm, "receive")  # beside the queue object's own
    ask(qm, "open cursor", queue=queue, cursor=7000)
    ask(qm, "begin", identifier="5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11")
    receive: dict[str, Any] = {"queue": queue, "timeout": 0, "count": 1}
    for request, arguments in (
        ("receive", {**receive, "read": 7001}),
        ("look up", {**receive, "read": 7001, "lookup_id": 0, "where": "first"}),
        ("open", {"queue": 7001, "name": KEPT, "access": "peek"}),
        ("open cursor", {"queue": queue, "cursor": 7001}),
        ("begin", {"identifier": "5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e12"}),
    ):
        with pytest.raises(errors.InsufficientResources, match="4 queues, cursors, reads and transactions are open"):
            ask(qm, request, **arguments)
    ask(qm, "close", queue=queue)
    assert [message.body for message in qm.open("kept").receive_many(5)] == ["a", "b"]


def test_receives_that_wait_count_as_open(alpha: ServedManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanner_session, "MAX_OPEN", 3)

    async def scenario(session: LannerSession) -> None:
        session.handle({"request": "open", "queue": 1, "name": KEPT, "access": "receive"}, NOTHING)
        receive = {"request": "receive", "queue": 1, "timeout": 30_000, "count": 1}
        waiting = [asyncio.ensure_future(later(session, {**receive, "read": number})) for number in (2, 3)]
        await asyncio.sleep(0)
        with pytest.raises(errors.InsufficientResources, match="3 queues, cursors, reads and transactions are open"):
            session.handle({**receive, "read": 4}, NOTHING)
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert not session.reads.waiting

    with_session(alpha, scenario)


def test_a_read_that_was_woken_can_be_given_back_before_it_is_answered(alpha: ServedManager, qm: QueueManager) -> None:
    async def scenario(session: LannerSession) -> None:
        session.handle({"request": "open", "queue": 1, "name": KEPT, "access": "receive"}, NOTHING)
        receive = {"request": "receive", "queue": 1, "timeout": 30_000, "count": 1, "read": 2}
        waiting = asyncio.ensure_future(later(session, receive))
        await asyncio.sleep(0)
        # The loop does not run between these: the message has come, and its reader has not been
        # woken yet.
        read = session.reads.waiting[2]
        qm.open("kept").send("x")
        assert not read.is_waiting
        session.handle({"request": "end", "reads": [2], "remove": False}, NOTHING)
        with pytest.raises(errors.OperationCancelled):
            await waiting
        assert not session.reads.held
        assert not session.reads.waiting
        assert [message.body for message in qm.open("kept").receive_many(5)] == ["x"]

    with_session(alpha, scenario)


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_removal_can_be_taken_back_until_its_answer_is_confirmed(qm: QueueManager, *, confirmed: bool) -> None:
    kept = qm.open("kept")
    kept.send("x")
    ask(qm, "receive", queue=opened(qm, "receive"), timeout=0, count=1, read=7000)
    ask(qm, "end", reads=[7000], remove=True)
    ask(qm, "exists", name=KEPT, done=[7000, 7001] if confirmed else [])
    ask(qm, "end", reads=[7000], remove=False)
    assert [message.body for message in kept] == ([] if confirmed else ["x"])


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_receive_of_a_transaction_can_be_taken_back_until_its_answer_is_confirmed(
    qm: QueueManager, *, confirmed: bool
) -> None:
    queue = qm.create_queue(f"confirmed-{confirmed}", transactional=True)
    with qm.transaction() as tx:
        queue.send("x", transaction=tx)
    transaction = ask(qm, "begin", identifier=str(uuid4()))["transaction"]
    number = opened(qm, "receive", str(queue.format_name))
    ask(qm, "receive", queue=number, timeout=0, count=1, read=7000, transaction=transaction)
    ask(qm, "exists", name=KEPT, done=[7000] if confirmed else [7001])
    ask(qm, "end", reads=[7000], remove=False)
    ask(qm, "commit", transaction=transaction)
    assert [message.body for message in queue] == ([] if confirmed else ["x"])


@pytest.mark.parametrize("done", [None, 7, "7", ["7"], [None], [True], [-1], [1 << 80], {"7": 7}])
def test_nonsense_is_no_confirmation(qm: QueueManager, done: object) -> None:
    assert ask(qm, "exists", name=KEPT, done=done) == {"exists": True}


@pytest.mark.parametrize("transactional", [True, False])
def test_no_messages_are_kept_for_a_client_that_has_its_answers(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch, *, transactional: bool
) -> None:
    """Lanner's own client confirms each receive with its next request."""
    queue = qm.create_queue(f"confirming-{transactional}", transactional=transactional)
    with qm.transaction() as sending:
        queue.send_many(["a", "b"], transaction=sending if transactional else None)
    transaction = qm.transaction() if transactional else None
    assert len(queue.receive_many(1, transaction=transaction)) == 1
    assert queue.receive(0, transaction=transaction).body == "b"
    asked: list[LannerSession] = []
    handle = LannerSession.handle

    def noted(self: LannerSession, request: Mapping[str, Any], octets: memoryview) -> Replies:
        asked.append(self)
        return handle(self, request, octets)

    monkeypatch.setattr(LannerSession, "handle", noted)
    queue.exists()
    (session,) = asked
    assert not session.reads.ended
    assert not session.reads.unconfirmed


def test_one_request_has_so_many_messages(qm: QueueManager) -> None:
    number = opened(qm, "send")
    with pytest.raises(errors.InvalidParameter, match="1001 `messages` in one request, at most 1000"):
        ask(qm, "send", queue=number, messages=[{"size": 0}] * 1001)
    assert qm.open("kept").count() == 0
    assert len(ask(qm, "send", queue=number, messages=[{"size": 0}] * 1000)["ids"]) == 1000


def test_one_request_moves_so_many_messages(qm: QueueManager) -> None:
    number = opened(qm, "move")
    with pytest.raises(errors.InvalidParameter, match="10001 `lookup_ids` in one request, at most 10000"):
        ask(qm, "move", queue=number, target=number, lookup_ids=[1] * 10_001)


def test_one_name_stands_for_so_many_queues(qm: QueueManager) -> None:
    for request, arguments in (("open", {"queue": 7000, "access": "send"}), ("exists", {})):
        with pytest.raises(errors.IllegalFormatname, match="a name of 1025 queues, at most 1024"):
            ask(qm, request, name=",".join([KEPT] * 1025), **arguments)


def sddl(entries: int) -> str:
    return "D:" + "".join(f"(A;;0x4;;;S-1-5-21-1-2-3-{number})" for number in range(entries))


def test_the_access_list_of_a_caller_without_rights_is_not_read(alpha: ServedManager) -> None:
    """It could be large, and everybody else would wait for it."""
    # One that is read is refused with another error.
    changes: list[dict[str, Any]] = [
        {"verb": "set", "sddl": "D:nonsense"},
        {"verb": "set", "sddl": sddl(90_000)},
        {"verb": "grant", "who": "nobody at all", "rights": ["nonsense"]},
    ]
    with lanner.connect(alpha.bind, "bob", "secret", port=alpha.port) as bob:
        for change in changes:
            with pytest.raises(errors.AccessDenied):
                ask(bob, "change access", name=KEPT, change=change)
        with pytest.raises(errors.AccessDenied):
            ask(bob, "set attributes", name=KEPT, attributes={"security": b"nonsense".hex()})
        for access in ("D:nonsense", sddl(90_000), {"nobody at all": ["nonsense"]}):
            with pytest.raises(errors.AccessDenied):
                ask(bob, "create queue", path=r".\private$\new", attributes={}, access=access)


@pytest.mark.parametrize("entries", [2_000, 4_000, 90_000])
def test_an_access_list_has_so_many_entries(qm: QueueManager, entries: int) -> None:
    """Its size is a number of 16 bits (MS-DTYP 2.4.5)."""
    before = qm.open("kept").access()
    with pytest.raises(errors.IllegalSecurityDescriptor, match="at most"):
        qm.open("kept").set_access(sddl(entries))
    sids = {f"S-1-5-21-1-2-3-{number}": ["send"] for number in range(entries)}
    for access in (sddl(entries), sids):
        with pytest.raises(errors.IllegalSecurityDescriptor, match="at most"):
            ask(qm, "create queue", path=r".\private$\new", attributes={}, access=access)
    assert qm.open("kept").access() == before


def test_an_access_list_can_be_as_large_as_a_descriptor_has_room_for(qm: QueueManager) -> None:
    queue = qm.create_queue("listed", access=sddl(1_800))
    found = queue.access().entries
    assert found is not None
    assert len(found) == 1_800
    qm.delete_queue("listed")


def test_an_access_list_is_read_without_the_lock(
    alpha: ServedManager, qm: QueueManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody else would wait for a long one."""
    held: list[bool] = []

    def watched(read: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:  # noqa: ANN401 (any function)
            held.append(alpha.runtime.lock.is_mine)
            return read(*arguments)

        return wrapped

    for name in ("parse_sddl", "mask_of"):
        monkeypatch.setattr(access_lists, name, watched(getattr(access_lists, name)))
    qm.open("kept").set_access(qm.open("kept").access().sddl or "")
    for access in (sddl(3), {"bob": ["send"]}):
        qm.create_queue("listed", access=access)
        qm.delete_queue("listed")
    assert held == [False] * 3


def test_the_rights_of_one_account_are_so_many_words(qm: QueueManager) -> None:
    for rights in (["send"] * 101, ["send," * 1000]):
        with pytest.raises(errors.IllegalSecurityDescriptor, match="too many words"):
            ask(qm, "change access", name=KEPT, change={"verb": "grant", "who": "bob", "rights": rights})


def test_an_association_has_so_many_sessions(alpha: ServedManager) -> None:
    async def scenario() -> None:
        async with await connect_tcp(
            alpha.bind, alpha.port, credentials=Credentials("alice", "secret"), level=AuthLevel.PKT_PRIVACY
        ) as client:
            bound = await client.bind(LANNER)
            for _ in range(MAX_SESSIONS):
                opened = await bound.call(LANNER_OPEN_SESSION)
                assert opened[RETURNS] == MQ_OK
            refused = await bound.call(LANNER_OPEN_SESSION)
            assert refused[RETURNS] == errors.InsufficientResources.status
            # One that is closed makes room.
            await bound.call(LANNER_CLOSE_SESSION, session=opened["session"])
            assert (await bound.call(LANNER_OPEN_SESSION))[RETURNS] == MQ_OK

    assert MAX_SESSIONS == 16
    asyncio.run(scenario())


def test_a_transaction_begun_again_by_its_client_is_the_same(qm: QueueManager) -> None:
    identifier = str(uuid4())
    first = ask(qm, "begin", identifier=identifier)
    assert ask(qm, "begin", identifier=identifier) == first
    ask(qm, "abort", **first)


def test_a_transaction_has_one_identifier(alpha: ServedManager, qm: QueueManager) -> None:
    identifier = "5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11"
    number = ask(qm, "begin", identifier=identifier)["transaction"]
    with lanner.connect(data=alpha.data) as other, pytest.raises(errors.InvalidParameter, match="already"):
        ask(other, "begin", identifier=identifier)
    ask(qm, "abort", transaction=number)


def test_all_of_a_move_or_nothing(qm: QueueManager) -> None:
    queue = qm.create_queue("moved")
    queue.send_many(["a", "b"])
    first, second = (message.lookup_id for message in queue)
    with pytest.raises(errors.MessageNotFound):
        queue.move_many([first, second, second + 1000], "later")
    assert [message.body for message in queue] == ["a", "b"]
    with pytest.raises(errors.StatusError):
        queue.move_many([first, second], qm.create_queue("full", transactional=True, quota_kb=0))
    assert [message.body for message in queue] == ["a", "b"]


def test_a_session_is_its_users(alpha: ServedManager) -> None:
    """The handle of a session is no right: the caller who opened it may use it, and no other."""

    async def scenario() -> None:
        async def connected(user: str, group: int = 0) -> Any:  # noqa: ANN401 (client and interface)
            client = await connect_tcp(
                alpha.bind,
                alpha.port,
                credentials=Credentials(user, "secret"),
                level=AuthLevel.PKT_PRIVACY,
                assoc_group_id=group,
            )
            return client, await client.bind(LANNER)

        alice, mine = await connected("alice")
        bob, theirs = await connected("bob", alice.assoc_group_id)
        session = (await mine.call(LANNER_OPEN_SESSION))["session"]
        frame = pack_frame({"request": "exists", "name": KEPT})
        await mine.call(LANNER_CALL, session=session, size=len(frame), request=frame)
        with pytest.raises(RpcFault) as caught:
            await theirs.call(LANNER_CALL, session=session, size=len(frame), request=frame)
        assert caught.value.status == FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
        await bob.close()
        await alice.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0\0\0", b"\xff\xff\xff\xff{}", b"\x02\0\0\0[]", b"\x02\0\0\0{x", b"\x00\x00\x01\x00" + b"[" * 65536],
)
def test_a_malformed_frame_is_refused_and_the_others_continue(
    alpha: ServedManager, qm: QueueManager, frame: bytes
) -> None:
    with lanner.connect(data=alpha.data) as broken:
        connection = connection_of(broken)
        with pytest.raises((RpcFault, errors.LannerError)):
            connection._bound.call(LANNER_CALL, session=connection._session, size=len(frame), request=frame)
    assert qm.open("kept").exists()


def test_the_sessions_of_one_user_share_a_limit(alpha: ServedManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_objects, "MAX_OPEN_OF_USER", 4)
    user, objects = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001")), OpenObjects()

    async def run() -> None:
        committer = Committer(alpha.runtime.store, asyncio.get_running_loop())
        first, second, third = (LannerSession(alpha.engine, committer, user, ClientMemory(), objects) for _ in range(3))
        # A session counts as one, and each transaction.
        first.begin_as(1, uuid4())
        first.begin_as(2, uuid4())
        second.begin_as(1, uuid4())
        with pytest.raises(errors.InsufficientResources, match="on all connections together"):
            third.begin_as(1, uuid4())
        first.close()
        third.begin_as(1, uuid4())
        for session in (second, third):
            session.close()
        await asyncio.to_thread(committer.close)

    asyncio.run(run())
