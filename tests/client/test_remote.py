"""`lanner.connect`: the embedded API on a queue manager of another process.

The tests use its Unix socket and TCP.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import gc
import shutil
import signal
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lanner
from lanner import errors
from lanner.client import Queue, QueueManager
from lanner.client._sync.lanner_backend import LannerBackend
from lanner.client._sync.lanner_connection import LannerConnection
from lanner.client.target import Target
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import OutgoingState
from lanner.rpc.pdu import AuthLevel
from lanner.security.certificates import generate_certificate
from lanner.security.signing import SigningKey
from lanner.services.listener import RpcSettings
from lanner.services.ports import LOCAL_SOCKET
from tests.cli.conftest import free_address
from tests.client.served import ServedManager

FAR = r"DIRECT=OS:beta\private$\far"


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedManager]:
    # Longer than a socket address can be.
    data = tmp_path_factory.mktemp("remote") / ("long" * 30)
    served = ServedManager(data, free_address())
    served.runtime.users.add("alice", "secret", administrator=True)
    served.runtime.users.add("bob", "word")
    yield served
    served.close()
    shutil.rmtree(data)


@pytest.fixture
def qm(alpha: ServedManager) -> Iterator[QueueManager]:
    with lanner.connect(data=alpha.data) as manager:
        yield manager


_numbers = iter(range(1000))


@pytest.fixture
def q(qm: QueueManager) -> Queue:
    return qm.create_queue(f"q{next(_numbers)}", journal=True)


@pytest.fixture
def tq(qm: QueueManager) -> Queue:
    return qm.create_queue(f"t{next(_numbers)}", transactional=True)


# Messages
# --------------------------------------------------------------------------------------------------


def test_every_property_of_a_message_comes_through(qm: QueueManager, q: Queue) -> None:
    message = lanner.Message(
        body="h\u00e4llo", label="l\u00e4bel", priority=6, recoverable=True, time_to_reach_queue=77,
        time_to_be_received=88, use_dead_letter_queue=True, use_journal_queue=True, use_tracing=True,
        acknowledge="full-receive", administration_queue="admin",
        response_queue=r"DIRECT=OS:beta\private$\answers", app_specific=7, extension=b"\x00\xff",
        correlation_id=r"5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\9", connector_type="6f9619ff-8b86-d011-b42d-00cf4fc964ff",
    )  # fmt: skip
    identifier = q.send(message)
    assert identifier == message.id
    got = q.receive(timeout=0)
    assert got.id == identifier
    assert (got.body, got.label, got.priority, got.recoverable) == ("h\u00e4llo", "l\u00e4bel", 6, True)
    assert (got.time_to_reach_queue, got.time_to_be_received) == (77, 88)
    assert got.use_dead_letter_queue
    assert got.use_journal_queue
    assert got.use_tracing
    assert got.acknowledge == lanner.Acknowledgements.FULL_RECEIVE
    # "." and bare names mean the computer that we are connected to.
    assert got.administration_queue == r"DIRECT=OS:ALPHA\private$\admin"
    assert got.destination_queue == rf"DIRECT=OS:{q.path_name}"
    assert got.response_queue == r"DIRECT=OS:beta\private$\answers"
    assert (got.app_specific, got.extension) == (7, b"\x00\xff")
    assert got.correlation_id == r"5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\9"
    assert str(got.connector_type) == "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    assert got.source_machine == qm.identifier
    assert got.arrived_time >= got.sent_time
    # The queue keeps a copy.
    assert [copy.id for copy in q.journal] == [identifier]


def test_reads_find_what_the_embedded_api_finds(q: Queue) -> None:
    q.send_many([lanner.Message(body=name, priority=priority) for name, priority in (("a", 1), ("b", 7), ("c", 1))])
    assert [message.body for message in q] == ["b", "a", "c"]
    assert q.count() == 3
    first, second, third = (message.lookup_id for message in q)
    assert q.peek(0).lookup_id == first
    assert q.peek_by_lookup_id(second).body == "a"
    assert q.peek_by_lookup_id(second, "next").body == "c"
    assert q.peek_by_lookup_id(second, "previous").body == "b"
    assert q.peek_by_lookup_id(0, "last").body == "c"
    assert q.peek_by_lookup_id(0, "first").body == "b"
    assert q.receive_by_lookup_id(second).body == "a"
    with pytest.raises(errors.MessageNotFound):
        q.receive_by_lookup_id(second)
    assert [message.body for message in q.receive_many(5)] == ["b", "c"]
    with pytest.raises(errors.IOTimeout):
        q.receive(0)
    with pytest.raises(errors.IOTimeout):
        q.peek(0.001)
    with pytest.raises(errors.InvalidParameter, match="one of"):
        q.peek_by_lookup_id(third, "beyond")
    with pytest.raises(errors.InvalidParameter, match="lookup id"):
        q.peek_by_lookup_id(-1)


def test_a_cursor_steps_and_receives(qm: QueueManager, q: Queue) -> None:
    q.send_many(["a", "b", "c"])
    with q.cursor() as cursor:
        assert cursor.peek(0).body == "a"
        assert cursor.peek_next(0).body == "b"
        assert cursor.receive(0).body == "b"
        assert cursor.peek(0).body == "c"
        tx = qm.transaction()
        assert cursor.receive(0, transaction=tx).body == "c"
        tx.abort()
    assert [message.body for message in q] == ["a", "c"]
    assert q.purge() == 2
    assert q.count() == 0
    assert bool(q)


def test_a_receive_waits_while_others_use_the_connection(q: Queue) -> None:
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(q.receive(30).body))
    waiting.start()
    with pytest.raises(errors.IOTimeout):
        q.peek(0)
    q.send("here")
    waiting.join(30)
    assert got == ["here"]


@pytest.mark.parametrize("access", ["receive", "peek", "cursor", "receiving", "transaction"])
def test_ctrl_c_ends_a_wait_and_nothing_else(alpha: ServedManager, qm: QueueManager, q: Queue, access: str) -> None:
    """The connection stays, and what comes later is for the next reader."""
    found = next(one for one in alpha.engine.local_queues() if one.pathname == q.path_name)
    tx = qm.transaction()
    waits: dict[str, Callable[[], object]] = {
        "receive": q.receive,
        "peek": q.peek,
        "cursor": q.cursor().receive,
        "receiving": lambda: q.receiving().__enter__(),
        "transaction": lambda: q.receive(transaction=tx),
    }

    def interrupt() -> None:
        # In the middle of a request the connection would be lost too.
        while not found.waiting_reads or connection._client._leader is None:
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.get_ident()
    connection = connection_of(qm)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        waits[access]()
    interrupter.join()
    while found.waiting_reads:
        time.sleep(0.001)
    q.send("for the next")
    assert q.receive(0).body == "for the next"
    assert connection_of(qm) is connection


def connection_of(manager: QueueManager) -> LannerConnection:
    backend = manager._backend
    assert isinstance(backend, LannerBackend)
    return backend.connections.now()


def test_what_is_held_is_nobody_elses_and_comes_back_after_an_error(alpha: ServedManager, q: Queue) -> None:
    q.send_many(["a", "b", "c"])
    with contextlib.suppress(ZeroDivisionError), q.receiving(2, timeout=0) as held:
        assert [message.body for message in held] == ["a", "b"]
        with lanner.connect(data=alpha.data) as other:
            assert other.open(q.name).receive(0).body == "c"
        raise ZeroDivisionError
    with q.receiving(5, timeout=0) as held:
        assert [message.body for message in held] == ["a", "b"]
    assert q.count() == 0
    with q.receiving(5, timeout=0) as held:
        assert held == []
    with pytest.raises(errors.IOTimeout), q.receiving(5, timeout=0.001):
        pass
    q.send("d")
    with q.receiving_by_lookup_id(0, "first") as message:
        assert message.body == "d"
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


# Transactions
# --------------------------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(qm: QueueManager, tq: Queue) -> None:
    with qm.transaction() as tx:
        tq.send_many(["a", "b"], transaction=tx)
        assert tq.count() == 0
        with pytest.raises(errors.IOTimeout):
            tq.peek(0)
    assert tq.count() == 2
    with contextlib.suppress(ZeroDivisionError), qm.transaction() as tx:
        assert tq.receive(0, transaction=tx).body == "a"
        raise ZeroDivisionError
    with qm.transaction() as tx:
        first, second = tq.receive_many(5, transaction=tx)
    assert (first.body, second.body) == ("a", "b")
    assert first.is_transactional
    assert first.is_first_in_transaction
    assert second.is_last_in_transaction
    with pytest.raises(errors.IOTimeout):
        tq.receive(0)
    with pytest.raises(errors.TransactionUsage):
        tq.send("outside")


def test_a_large_message_comes_in_a_transaction_too(qm: QueueManager, tq: Queue) -> None:
    body = bytes(range(256)) * 1024
    message = lanner.Message(
        body=body, label="big", extension=bytes(1000), response_queue="DIRECT=OS:x\\private$\\" + "y" * 100
    )
    with qm.transaction() as tx:
        identifier = tq.send(message, transaction=tx)
    with qm.transaction() as tx:
        got = tq.receive(1, transaction=tx)
    assert (got.id, got.body, got.label, got.extension) == (identifier, body, "big", bytes(1000))
    assert got.response_queue == message.response_queue
    assert got.destination_queue == rf"DIRECT=OS:{tq.path_name}"


def test_an_ended_transaction_and_that_of_another_are_refused(
    alpha: ServedManager, qm: QueueManager, tq: Queue
) -> None:
    tx = qm.transaction()
    tx.commit()
    for use in (tx.commit, tx.abort, lambda: tq.send("x", transaction=tx)):
        with pytest.raises(errors.TransactionSequence):
            use()
    with lanner.connect(data=alpha.data) as other, pytest.raises(errors.TransactionUsage):
        tq.send("x", transaction=other.transaction())


def test_everything_can_be_done_in_a_transaction(qm: QueueManager, tq: Queue) -> None:
    with qm.transaction() as tx:
        tq.send_many(["a", "b", "c"], transaction=tx)
    first, second, third = (message.lookup_id for message in tq)

    def take(tx: lanner.Transaction) -> None:
        assert tq.receive_by_lookup_id(second, transaction=tx).body == "b"
        with tq.cursor() as cursor:
            assert cursor.peek(0).body == "a"
            assert cursor.peek_next(0).body == "c"
            assert cursor.receive(0, transaction=tx).body == "c"
        tq.move(first, "later", transaction=tx)
        with pytest.raises(errors.IOTimeout):
            tq.peek(0)

    with contextlib.suppress(ZeroDivisionError), qm.transaction() as tx:
        take(tx)
        raise ZeroDivisionError
    assert [message.lookup_id for message in tq] == [first, second, third]
    with qm.transaction() as tx:
        take(tx)
    assert list(tq) == []
    assert [message.body for message in tq.subqueue("later")] == ["a"]


# Queues
# --------------------------------------------------------------------------------------------------


def test_queues_are_made_changed_listed_and_deleted(qm: QueueManager) -> None:
    queue = qm.create_queue("made", label="Made", quota_kb=77, authentication=True)
    attributes = queue.attributes()
    assert (attributes.label, attributes.quota, attributes.authentication) == ("Made", 77, True)
    assert (attributes.pathname, attributes.transactional) == (r"ALPHA\private$\made", False)
    with pytest.raises(errors.QueueExists, match="made"):
        qm.create_queue("made")
    queue.set(label="Other", multicast_address="224.1.1.1:8000")
    assert (queue.attributes().label, queue.attributes().multicast_address) == ("Other", "224.1.1.1:8000")
    queue.set(multicast_address=None)
    assert queue.attributes().multicast_address is None
    with pytest.raises(errors.PropertyNotallowed):
        queue.set(nonsense=1)
    assert r"ALPHA\private$\made" in [one.name for one in qm.queues()]
    assert queue.exists()
    qm.delete_queue("made")
    assert not queue.exists()
    with pytest.raises(errors.QueueNotFound, match="made"):
        queue.send("x")
    # By the same name there is a queue again, and the same object finds it.
    queue = qm.create_queue("made")
    queue.send("x")
    qm.delete_queue("made")
    qm.create_queue("made")
    queue.send("y")
    assert queue.receive(0).body == "y"
    qm.delete_queue("made")


def test_subqueues_and_system_queues(qm: QueueManager, q: Queue) -> None:
    q.send_many(["a", "b", "c"])
    first, second, third = (message.lookup_id for message in q)
    q.move(second, "later")
    q.move_many([first, third], q.subqueue("later"))
    assert [queue.format_name.rpartition(";")[2] for queue in q.subqueues()] == ["later"]
    assert q.attributes().subqueues["later"].message_count == 3
    back = q.subqueue("later")
    back.move(second, q)
    assert [message.body for message in q] == ["b"]
    with pytest.raises(errors.MessageNotFound):
        q.move(first, "later")
    tx = qm.transaction()
    q.move(second, "later", transaction=tx)
    assert list(q) == []
    tx.abort()
    assert [message.body for message in q] == ["b"]
    assert qm.dead_letter.attributes().pathname == r"ALPHA\system$;DEADLETTER"
    assert qm.system_journal.path_name == r"ALPHA\system$;JOURNAL"
    assert qm.transactional_dead_letter.count() == 0


# Management
# --------------------------------------------------------------------------------------------------


def test_outgoing_queues_are_shown_steered_and_read(qm: QueueManager) -> None:
    far = qm.open(FAR)
    far.send(lanner.Message(body="x", recoverable=True))
    (document,) = qm.outgoing()
    assert (document["name"], document["state"], document["messages"]) == (FAR, "Inactive", 1)
    qm.pause(FAR)
    (queue,) = qm.outgoing_queues()
    attributes = queue.attributes()
    assert isinstance(attributes, OutgoingQueue)
    assert (attributes.state, attributes.message_count, attributes.pathname) == (OutgoingState.ON_HOLD, 1, FAR)
    assert [message.body for message in queue] == ["x"]
    assert queue.peek_by_lookup_id(0, "first").body == "x"
    with contextlib.suppress(ZeroDivisionError), queue.receiving() as held:
        assert [message.body for message in held] == ["x"]
        raise ZeroDivisionError
    qm.resume(FAR)
    assert qm.outgoing()[0]["state"] == "Inactive"
    with pytest.raises(errors.ServiceNotAvailable):
        qm.resend(FAR)
    assert queue.receive(0).body == "x"
    with pytest.raises(errors.QueueNotFound):
        qm.pause(r"DIRECT=OS:gamma\private$\none")


def test_who_is_there_is_told(alpha: ServedManager, qm: QueueManager) -> None:
    assert (qm.name, qm.identifier) == ("ALPHA", alpha.engine.queue_manager.identifier)
    assert qm.status()["bind"] == alpha.bind
    assert repr(qm) == f"<QueueManager ALPHA at {alpha.data}>"


# Who may what
# --------------------------------------------------------------------------------------------------


def test_ntlm_says_who_one_is(alpha: ServedManager) -> None:
    with lanner.connect(alpha.bind, "alice", "secret", port=alpha.port) as alice:
        assert alice.name == "ALPHA"
        queue = alice.create_queue("hers")
        queue.send("from alice")
        assert queue.count() == 1
        assert queue.receive(0).sender_id == alpha.runtime.users.sid("alice").pack()
    with lanner.connect(alpha.bind, "bob", "word", port=alpha.port) as bob:
        queue = bob.open("hers")
        queue.send("from bob")
        for refused in (
            lambda: queue.receive(0),
            lambda: queue.peek(0),
            lambda: queue.set(label="x"),
            queue.purge,
            queue.count,
            bob.queues,
            bob.status,
            bob.outgoing,
        ):
            with pytest.raises(errors.AccessDenied):
                refused()
        assert queue.is_transactional() is False
    for user, password in (("alice", "wrong"), ("nobody", "secret")):
        with pytest.raises(errors.AccessDenied):
            lanner.connect(alpha.bind, user, password, port=alpha.port)


def test_who_does_not_say_who_it_is_is_nobody(tmp_path: Path) -> None:
    """Everyone does not include the anonymous user.

    That user may still send to a queue with the default list.
    """
    open_to_all = RpcSettings(endpoint_mapper_port=0, authentication_level=AuthLevel.NONE)
    with contextlib.closing(ServedManager(tmp_path / "data", free_address(), open_to_all)) as beta:
        with lanner.connect(data=beta.data) as qm:
            queue = qm.create_queue("q")
            queue.grant("Everyone", "receive")
            path = queue.path_name
        with lanner.connect(beta.bind, port=beta.port) as nobody:
            nobody.open(path).send("x")
            with pytest.raises(errors.AccessDenied):
                nobody.open(path).receive(0)
            with pytest.raises(errors.AccessDenied):
                nobody.open(path).peek(0)


def test_no_secret_is_shown(alpha: ServedManager) -> None:
    target = Target.of("x", "alice", "secret", None, domain="", port=1, authentication="ntlm", timeout=1)
    assert "secret" not in repr(target)
    with lanner.connect(alpha.bind, "alice", "secret", port=alpha.port) as qm:
        assert "secret" not in repr(qm) + repr(vars(qm)) + repr(qm.open("x"))


def test_only_the_owner_can_open_the_socket(alpha: ServedManager) -> None:
    assert stat.S_IMODE((alpha.data / LOCAL_SOCKET).stat().st_mode) == 0o600


def test_messages_are_signed(alpha: ServedManager, qm: QueueManager) -> None:
    """With an internal certificate on this machine, and with a key of one's own from anywhere."""
    queue = qm.create_queue("signed", authentication=True)
    with pytest.raises(errors.MessageNotAuthenticated):
        queue.send("x")
    queue.send(lanner.Message(body="internal", authenticate=True))
    assert queue.receive(0).authenticated
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    with lanner.connect(alpha.bind, "alice", "secret", port=alpha.port) as alice:
        theirs = alice.open("signed")
        with pytest.raises(errors.IllegalPropertyValue, match="signing_key"):
            theirs.send(lanner.Message(authenticate=True))
        alice.signing_key = SigningKey.load(made.certificate, made.private_key)
        theirs.send(lanner.Message(body="hers", authenticate=True, hash_algorithm="sha-256"))
    received = queue.receive(0)
    assert (received.body, received.authenticated) == ("hers", True)
    assert received.sender_id == alpha.runtime.users.sid("alice").pack()


def test_a_traced_message_goes_to_several_queues(qm: QueueManager, q: Queue) -> None:
    other = qm.create_queue("other")
    guid = uuid.UUID("5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11")
    both = qm.open(f"{q.format_name},{other.format_name}")
    both.send(lanner.Message(body="x", tracing_queue=guid))
    for queue in (q, other):
        message = queue.receive(0)
        assert (message.body, message.tracing_queue) == ("x", guid)
    # A signature covers the names of all of them, in the order that the queue manager gives them.
    for one, other_one in ((q, other), (other, q)):
        both = qm.open(f"{one.format_name},{other_one.format_name}")
        both.send(lanner.Message(body="x", tracing_queue=guid, authenticate=True))
        assert [queue.receive(0).authenticated for queue in (q, other)] == [True, True]
    q.send(lanner.Message(body="x", tracing_queue=guid, authenticate=True, hash_algorithm="sha-512"))
    assert q.receive(0).authenticated


def test_what_cannot_be_sent_is_reported(q: Queue) -> None:
    with pytest.raises(errors.IllegalPropertyValue, match="int"):
        q.send(5)  # type: ignore[arg-type]


# Connections
# --------------------------------------------------------------------------------------------------


def test_where_nobody_listens_is_reported(tmp_path: Path) -> None:
    with pytest.raises(errors.ServiceNotAvailable, match="no queue manager runs on"):
        lanner.connect(data=tmp_path)
    with pytest.raises(errors.ServiceNotAvailable):
        lanner.connect(data=tmp_path / "none")
    with pytest.raises(errors.RemoteMachineNotAvailable, match="cannot be reached"):
        lanner.connect(free_address())
    with pytest.raises(errors.RemoteMachineNotAvailable):
        lanner.connect("no-such-host.invalid")


def test_what_does_not_go_together_is_reported() -> None:
    with pytest.raises(ValueError, match="the kernel identifies you"):
        lanner.connect(user="alice")
    with pytest.raises(ValueError, match="data directory"):
        lanner.connect("beta", data="x")
    with pytest.raises(ValueError, match="one of ntlm"):
        lanner.connect("beta", authentication="guess")  # type: ignore[arg-type]


def test_a_closed_connection_is_reported(alpha: ServedManager) -> None:
    qm = lanner.connect(data=alpha.data)
    queue = qm.open("x")
    qm.close()
    qm.close()
    with pytest.raises(errors.InvalidHandle, match="closed"):
        queue.send("x")


def test_a_lost_connection_is_made_again_but_takes_transactions_and_cursors_with_it(tmp_path: Path) -> None:
    served = ServedManager(tmp_path / "data", free_address())
    try:
        with lanner.connect(data=served.data) as qm:
            q, tq = qm.create_queue("q"), qm.create_queue("tq", transactional=True)
            q.send_many([lanner.Message(body=name, recoverable=True) for name in "ab"])
            cursor = q.cursor()
            assert cursor.peek(0).body == "a"
            tx = qm.transaction()
            tq.send("never", transaction=tx)
            held = q.receiving(2, 0)
            held.__enter__()
            served.stop()
            with pytest.raises(errors.StatusError):
                q.peek(0)
            with pytest.raises(errors.ServiceNotAvailable):
                q.peek(0)
            served.start()
            assert q.peek(0).body == "a"
            with pytest.raises(errors.InvalidHandle, match="in their queue again"):
                held.__exit__(None, None, None)
            with pytest.raises(errors.TransactionSequence, match="connection was lost"):
                tx.commit()
            with pytest.raises(errors.InvalidHandle, match="cursor"):
                cursor.peek(0)
            cursor.close()
            assert [message.body for message in q] == ["a", "b"]
            assert tq.count() == 0
    finally:
        served.close()
    shutil.rmtree(tmp_path)


def test_an_exclusive_reader_keeps_others_out_until_it_is_closed_or_forgotten(qm: QueueManager) -> None:
    qm.create_queue("mine")
    for leave in (Queue.close, id):
        gc.collect()
        queue = qm.open("mine", exclusive=True)
        with contextlib.suppress(errors.IOTimeout):
            queue.receive(0)
        with contextlib.suppress(errors.SharingViolation):
            qm.open("mine").receive(0)
            pytest.fail("it was open exclusively")
        leave(queue)
        del queue
        gc.collect()
        with pytest.raises(errors.IOTimeout):
            qm.open("mine").receive(0)
