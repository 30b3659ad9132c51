"""`lanner.connect` and `lanner.aio.connect` to a queue manager without Lanner's own interface."""

# The objects are of two trees of classes (tests/client/both_colours.py).
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import socket
import threading
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner import errors
from lanner.model.directory_objects import GUID_NULL, OutgoingQueue
from lanner.model.enums import OutgoingState
from lanner.rpc.calls import ServerCall
from lanner.rpc.interface import Method
from lanner.rpc.pdu import SyntaxId
from lanner.rpc.server import ServerInterface
from lanner.security.identity import SYSTEM
from lanner.services.interfaces.lanner import LANNER, LANNER_OPEN_SESSION
from lanner.services.interfaces.mqmp import QMCOMM
from lanner.services.interfaces.mqqp import QM2QM, REMOTE_QM_GET_QMQM_SERVER_PORT
from tests.cli.conftest import free_address
from tests.client import both_colours
from tests.client.other_manager import PORT, OtherManager, until
from tests.rpc.raw_interface import RawInterface

FAR = r"DIRECT=OS:beta\private$\far"
COLOURS = ["sync", "async"]

_numbers = iter(range(1000))


@pytest.fixture(scope="module", params=["mqqp", "mqrr"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherManager]:
    """One that serves everything, on TCP and on a Unix socket."""
    directory = tmp_path_factory.mktemp("other")
    manager = OtherManager(directory / "data")
    manager.serve_local(manager.serve_everything(reads_by=request.param))
    yield manager
    manager.close()
    shutil.rmtree(directory)


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[OtherManager]:
    """One that serves nothing yet."""
    manager = OtherManager(tmp_path / "data")
    yield manager
    manager.close()
    shutil.rmtree(tmp_path)


@pytest.fixture(params=COLOURS)
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def connected(colour: str, manager: OtherManager, user: str = "alice", password: str = "secret") -> Any:
    return both_colours.connect(colour, manager.address, user, password, port=PORT)


@pytest.fixture
def qm(colour: str, other: OtherManager) -> Iterator[Any]:
    with connected(colour, other) as manager:
        yield manager


@pytest.fixture
def q(qm: Any) -> Any:
    return qm.create_queue(f"q{next(_numbers)}", journal=True)


@pytest.fixture
def tq(qm: Any) -> Any:
    return qm.create_queue(f"t{next(_numbers)}", transactional=True)


def bodies(messages: Any) -> list[bytes | str]:
    return [message.body for message in messages]


# Messages
# --------------------------------------------------------------------------------------------------


def test_the_properties_of_a_message_arrive(other: OtherManager, qm: Any, q: Any) -> None:
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
    # Bare names mean the computer of the connection.
    assert got.administration_queue == rf"DIRECT=OS:{other.address}\private$\admin"
    assert got.response_queue == r"DIRECT=OS:beta\private$\answers"
    assert (got.app_specific, got.extension) == (7, b"\x00\xff")
    assert got.correlation_id == r"5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11\9"
    assert str(got.connector_type) == "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    assert got.source_machine == other.engine.queue_manager.identifier
    assert got.sender_id == other.runtime.users.sid("alice").pack()
    # This protocol reports the sender only of signed messages.
    assert (got.authenticated, got.sender_verified) == (False, None)
    assert got.arrived_time >= got.sent_time
    assert (got.abort_count, got.move_count) == (0, 0)
    assert [copy.id for copy in q.journal] == [identifier]


def test_reads_find_messages_by_order_and_lookup_id(q: Any) -> None:
    q.send_many([lanner.Message(body=name, priority=priority) for name, priority in (("a", 1), ("b", 7), ("c", 1))])
    assert bodies(q) == ["b", "a", "c"]
    assert q.count() == 3
    first, second, third = [message.lookup_id for message in q]
    assert q.peek(0).lookup_id == first
    assert q.peek_by_lookup_id(second).body == "a"
    assert q.peek_by_lookup_id(second, "next").body == "c"
    assert q.peek_by_lookup_id(second, "previous").body == "b"
    assert q.peek_by_lookup_id(0, "last").body == "c"
    assert q.peek_by_lookup_id(0, "first").body == "b"
    assert q.receive_by_lookup_id(second).body == "a"
    with pytest.raises(errors.MessageNotFound):
        q.receive_by_lookup_id(second)
    assert bodies(q.receive_many(5)) == ["b", "c"]
    assert q.receive_many(5) == []
    assert q.receive_many(5, 0.001) == []
    with pytest.raises(errors.IOTimeout):
        q.receive(0)
    with pytest.raises(errors.IOTimeout):
        q.peek(0.001)
    with pytest.raises(errors.InvalidParameter, match="one of"):
        q.peek_by_lookup_id(third, "beyond")
    with pytest.raises(errors.InvalidParameter, match="lookup id"):
        q.peek_by_lookup_id(-1)
    with pytest.raises(errors.InvalidParameter, match="time-out"):
        q.receive(-1)


def test_many_messages_keep_their_order(qm: Any, q: Any, tq: Any) -> None:
    messages = [lanner.Message(body=str(number), recoverable=bool(number % 2)) for number in range(100)]
    assert q.send_many(messages) == [message.id for message in messages]
    with qm.transaction() as tx:
        tq.send_many(messages, transaction=tx)
    expected = [str(number) for number in range(100)]
    for queue in (q, tq):
        assert bodies(queue.receive_many(40)) == expected[:40]
        assert bodies(queue.receive_many(500)) == expected[40:]
    assert q.send_many([]) == []


def test_messages_that_are_not_refused_stay_sent(q: Any) -> None:
    q.set(quota=1)
    messages = [lanner.Message(body=bytes(300)) for _ in range(10)]
    with pytest.raises(errors.InsufficientResources):
        q.send_many(messages)
    sent = [message.id for message in messages if message.id is not None]
    assert [message.id for message in q.receive_many(500)] == sent
    assert 0 < len(sent) < 10


def test_messages_that_cannot_be_sent_are_refused_with_a_reason(qm: Any, q: Any) -> None:
    for body, error, text in (
        (5, errors.IllegalPropertyValue, "int"),
        (lanner.Message(authenticate=True), errors.UnsupportedOperation, "identifier of the queue manager"),
        (lanner.Message(tracing_queue=uuid.uuid4()), errors.IllegalOperation, "tracing queue"),
        (bytes(5_000_000), errors.StatusError, "5000"),
    ):
        with pytest.raises(error, match=text):
            q.send(body)
        with pytest.raises(error, match=text):
            q.send_many(["never", body])
    assert q.count() == 0


def test_a_cursor_steps_and_receives(qm: Any, q: Any) -> None:
    q.send_many(["a", "b", "c"])
    with q.cursor() as cursor:
        assert cursor.peek(0).body == "a"
        assert cursor.peek_next(0).body == "b"
        assert cursor.receive(0).body == "b"
        assert cursor.peek(0).body == "c"
        with pytest.raises(errors.UnsupportedOperation, match="outside transactions"), qm.transaction() as tx:
            cursor.receive(0, transaction=tx)
    cursor.close()
    assert bodies(q) == ["a", "c"]
    assert q.purge() == 2
    assert q.count() == 0


def test_a_receive_waits_while_others_use_the_connection(other: OtherManager, q: Any) -> None:
    got: list[bytes | str] = []
    waiting = threading.Thread(target=lambda: got.append(q.receive(30).body))
    waiting.start()
    until(lambda: other.waiting(q.name.rpartition("\\")[2]))
    with pytest.raises(errors.IOTimeout):
        q.peek(0)
    q.send("here")
    waiting.join(30)
    assert got == ["here"]


def test_held_messages_are_kept_from_others_and_come_back_after_an_error(
    colour: str, other: OtherManager, q: Any
) -> None:
    q.send_many(["a", "b", "c"])
    with contextlib.suppress(ZeroDivisionError), q.receiving(2, timeout=0) as held:
        assert bodies(held) == ["a", "b"]
        with connected(colour, other) as another:
            assert another.open(q.name).receive(0).body == "c"
        raise ZeroDivisionError
    with q.receiving(5, timeout=0) as held:
        assert bodies(held) == ["a", "b"]
    assert q.count() == 0
    with q.receiving(5, timeout=0) as held:
        assert held == []
    with pytest.raises(errors.IOTimeout), q.receiving(5, timeout=0.001):
        pass
    q.send("d")
    with contextlib.suppress(ZeroDivisionError), q.receiving_by_lookup_id(0, "first") as message:
        assert message.body == "d"
        raise ZeroDivisionError
    with q.receiving_by_lookup_id(0, "first") as message:
        assert message.body == "d"
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


def test_messages_whose_handle_was_closed_meanwhile_are_back_in_their_queue(q: Any) -> None:
    q.send_many(["a", "b"])
    with pytest.raises(errors.InvalidHandle), q.receiving(2, timeout=0):
        q.close()
    assert bodies(q.receive_many(5)) == ["a", "b"]


# Transactions
# --------------------------------------------------------------------------------------------------


def test_a_transaction_is_all_or_nothing(qm: Any, tq: Any) -> None:
    with qm.transaction() as tx:
        tq.send_many(["a", "b"], transaction=tx)
        with pytest.raises(errors.IOTimeout):
            tq.peek(0)
    with contextlib.suppress(ZeroDivisionError), qm.transaction() as tx:
        assert tq.receive(0, transaction=tx).body == "a"
        raise ZeroDivisionError
    with qm.transaction() as tx:
        first, second = tq.receive_many(5, transaction=tx)
    assert (first.body, second.body) == ("a", "b")
    assert (first.lookup_id, first.abort_count) == (0, 0)
    assert first.is_transactional
    assert first.is_first_in_transaction
    assert second.is_last_in_transaction
    with pytest.raises(errors.IOTimeout):
        tq.receive(0)
    with pytest.raises(errors.TransactionUsage):
        tq.send("outside")


def test_a_large_message_arrives_in_a_transaction_too(qm: Any, tq: Any) -> None:
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


def test_transactions_that_have_ended_or_belong_to_others_are_refused(
    colour: str, other: OtherManager, qm: Any, q: Any, tq: Any
) -> None:
    tx = qm.transaction()
    tx.commit()
    for use in (tx.commit, tx.abort, lambda: tq.send("x", transaction=tx)):
        with pytest.raises(errors.TransactionSequence):
            use()
    with connected(colour, other) as another, pytest.raises(errors.TransactionUsage):
        tq.send("x", transaction=another.transaction())
    with pytest.raises(errors.UnsupportedOperation, match="receiving_by_lookup_id"):
        tq.receive_by_lookup_id(1, transaction=qm.transaction())
    with pytest.raises(errors.TransactionUsage), qm.transaction() as tx:
        q.send("not transactional", transaction=tx)


# Queues
# --------------------------------------------------------------------------------------------------


def test_queues_are_created_changed_listed_and_deleted(other: OtherManager, qm: Any) -> None:
    name = f"made{next(_numbers)}"
    queue = qm.create_queue(name, label="Made", quota_kb=77, authentication=True)
    attributes = queue.attributes()
    assert (attributes.label, attributes.quota, attributes.authentication) == ("Made", 77, True)
    assert (attributes.pathname, attributes.transactional) == (rf"ALPHA\private$\{name}", False)
    assert queue.path_name == rf"{other.address}\private$\{name}"
    assert queue.is_transactional() is False
    with pytest.raises(errors.QueueExists, match=name):
        qm.create_queue(name)
    queue.set(label="Other", multicast_address="224.1.1.1:8000")
    attributes = queue.attributes()
    assert (attributes.label, attributes.multicast_address) == ("Other", "224.1.1.1:8000")
    queue.set(multicast_address=None)
    assert queue.attributes().multicast_address is None
    with pytest.raises(errors.PropertyNotallowed):
        queue.set(nonsense=1)
    assert rf"ALPHA\private$\{name}" in [one.name for one in qm.queues()]
    assert queue.exists()
    qm.delete_queue(name)
    assert not queue.exists()
    assert queue.is_transactional() is None
    assert rf"ALPHA\private$\{name}" not in [one.name for one in qm.queues()]
    with pytest.raises(errors.QueueNotFound, match=name):
        queue.send("x")
    # The same object finds another queue of that name.
    qm.create_queue(name)
    queue.send("x")
    assert queue.peek(0).body == "x"
    qm.delete_queue(name)
    qm.create_queue(name)
    queue.send("y")
    assert queue.receive(0).body == "y"
    with pytest.raises(errors.IllegalQueuePathname):
        qm.create_queue(r".\public")


def test_subqueues_and_system_queues(other: OtherManager, qm: Any, q: Any) -> None:
    q.send_many(["a", "b"])
    assert q.subqueues() == []
    if other.reads_by == "mqrr":
        q.move(q.peek(0).lookup_id, "later")
        assert q.subqueue("later").peek(0).move_count == 1
    else:
        with pytest.raises(errors.UnsupportedOperation, match="moves messages"):
            q.move(q.peek(0).lookup_id, "later")
        other.move(q.name.rpartition("\\")[2], q.peek(0).lookup_id, "later")
    assert [queue.format_name.rpartition(";")[2] for queue in q.subqueues()] == ["later"]
    assert q.attributes().subqueues["later"].message_count == 1
    assert q.subqueue("later").receive(0).body == "a"
    assert qm.dead_letter.attributes().pathname == r"ALPHA\system$;DEADLETTER"
    assert qm.system_journal.attributes().pathname == r"ALPHA\system$;JOURNAL"
    assert qm.transactional_dead_letter.count() == 0


@pytest.mark.parametrize("is_closed", [True, False])
def test_an_exclusive_reader_keeps_others_out_until_it_is_closed_or_forgotten(
    qm: Any, q: Any, *, is_closed: bool
) -> None:
    mine = qm.open(q.name, exclusive=True)
    with pytest.raises(errors.MessageNotFound):
        mine.receive_by_lookup_id(0, "first")
    with pytest.raises(errors.SharingViolation, match="open elsewhere"):
        q.receive(0)
    if is_closed:
        mine.close()
    else:
        del mine
        gc.collect()
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


def test_an_exclusive_queue_is_open_from_the_beginning_of_its_block(qm: Any, q: Any) -> None:
    with qm.open(q.name, exclusive=True), pytest.raises(errors.SharingViolation):
        q.receive(0)
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


def test_an_exclusive_reader_receives_in_transactions_and_outside(qm: Any, tq: Any) -> None:
    with qm.transaction() as tx:
        tq.send_many(["a", "b", "c", "d"], transaction=tx)
    with qm.open(tq.name, exclusive=True) as mine:
        for expected in ("a", "c"):
            with qm.transaction() as tx:
                assert mine.receive(0, transaction=tx).body == expected
            with pytest.raises(errors.SharingViolation):
                tq.receive(0)
            assert mine.receive(0).body == chr(ord(expected) + 1)


# Management
# --------------------------------------------------------------------------------------------------


def test_outgoing_queues_are_shown_paused_and_read(qm: Any) -> None:
    far = qm.open(FAR)
    far.send_many([lanner.Message(body=name, recoverable=True) for name in "xyz"])
    (document,) = qm.outgoing()
    assert (document["name"], document["state"], document["messages"]) == (FAR, "Inactive", 3)
    qm.pause(FAR)
    (queue,) = qm.outgoing_queues()
    attributes = queue.attributes()
    assert isinstance(attributes, OutgoingQueue)
    assert (attributes.state, attributes.message_count, attributes.pathname) == (OutgoingState.ON_HOLD, 3, FAR)
    assert queue.is_transactional() is None
    assert bodies(queue) == ["x", "y", "z"]
    assert queue.peek(0).body == "x"
    for unsupported in (
        partial(queue.peek_by_lookup_id, 0, "first"),
        partial(queue.receive_by_lookup_id, 0, "first"),
        queue.receiving().__enter__,
        queue.receiving_by_lookup_id(1).__enter__,
    ):
        with pytest.raises(errors.UnsupportedOperation, match="waits for another computer"):
            unsupported()
    qm.resume(FAR)
    assert qm.outgoing()[0]["state"] == "Inactive"
    with pytest.raises(errors.ServiceNotAvailable):
        qm.resend(FAR)
    assert queue.receive(0).body == "x"
    assert bodies(queue.receive_many(5)) == ["y", "z"]
    with pytest.raises(errors.QueueNotFound):
        qm.pause(r"DIRECT=OS:gamma\private$\none")


def test_documents_of_lanner_are_unsupported(other: OtherManager, qm: Any) -> None:
    assert (qm.name, qm.identifier) == (other.address, None)
    assert repr(qm) == f"<QueueManager {other.address} at {other.address}>"
    for ask in (qm.status, qm.enterprise.document, partial(qm.peer, "beta")):
        with pytest.raises(errors.UnsupportedOperation, match="is no Lanner"):
            ask()
    with pytest.raises(errors.UnsupportedOperation, match="connect to it as"):
        qm.as_user(SYSTEM)


def test_the_protocols_work_over_the_socket_of_a_directory(colour: str, other: OtherManager) -> None:
    with both_colours.connect(colour, data=other.data) as qm:
        assert (qm.name, qm.identifier) == (".", None)
        queue = qm.create_queue(f"here{next(_numbers)}")
        queue.send("hello")
        assert queue.receive(0).body == "hello"


def test_rights_are_those_of_the_user(colour: str, other: OtherManager, q: Any, qm: Any) -> None:
    """A list gives a user rights on a queue, but management is for administrators."""
    q.grant("Everyone", "get-properties")
    with connected(colour, other, "bob", "word") as bob:
        queue = bob.open(q.name)
        for refused in (queue.count, queue.attributes, bob.queues, bob.outgoing, partial(bob.create_queue, "his")):
            with pytest.raises(errors.AccessDenied):
                refused()
        assert queue.is_transactional() is False
    with pytest.raises(errors.AccessDenied), connected(colour, other, "alice", "wrong"):
        pass


def test_a_purge_needs_no_administrator_who_alone_learns_the_count(bare: OtherManager, colour: str) -> None:
    bare.serve_local(bare.serve_everything())
    with both_colours.connect(colour, data=bare.data) as qm:
        qm.create_queue("open", access={"Everyone": ["send", "receive"]})
    with connected(colour, bare, "bob", "word") as bob:
        queue = bob.open("open")
        queue.send_many(["a", "b"])
        assert queue.purge() == 0
        with pytest.raises(errors.IOTimeout):
            queue.receive(0)


# Connections
# --------------------------------------------------------------------------------------------------


def send_and_receive(qm: Any) -> None:
    queue = qm.create_queue("orders")
    queue.send(lanner.Message(body="hello", recoverable=True))
    assert queue.peek(timeout=0).body == "hello"
    assert queue.receive(timeout=0).body == "hello"


@pytest.mark.parametrize("read_port", [2105, 2116])
def test_the_port_of_remote_reads_is_asked_for(colour: str, bare: OtherManager, read_port: int) -> None:
    """Without qm2qm on the same port, qmcomm returns the port of remote reads.

    It need not be 2105 (MS-MQMP 3.1.4.24).
    """
    bare.serve(bare.queue_client)
    bare.serve([bare.remote_read], read_port)
    bare.ports.ip_read = read_port
    with connected(colour, bare) as qm:
        send_and_receive(qm)


def test_queues_are_read_at_the_port_that_qm2qm_names(colour: str, bare: OtherManager) -> None:
    """It is asked first, also where it is served beside qmcomm (MS-MQQP 3.2.4.1)."""
    asked = bare.serve([*bare.queue_client, bare.remote_read])
    named = bare.serve([bare.remote_read], 2116)
    bare.ports.ip_read = 2116
    with connected(colour, bare) as qm:
        send_and_receive(qm)
        assert (asked.connections, named.connections) == (1, 1)


def test_a_server_that_does_not_know_its_ports_reads_on_2105(colour: str, bare: OtherManager) -> None:
    bare.serve(bare.queue_client)
    bare.serve([bare.remote_read], 2105)
    with connected(colour, bare) as qm:
        send_and_receive(qm)


def test_without_remote_reads_there_is_no_connection(colour: str, bare: OtherManager) -> None:
    bare.serve(bare.queue_client)
    with pytest.raises(errors.RemoteMachineNotAvailable, match="2105"), connected(colour, bare):
        pass


def test_an_interface_that_is_not_served_costs_nothing_else(colour: str, bare: OtherManager) -> None:
    bare.serve([*bare.queue_client, bare.remote_read])
    with connected(colour, bare) as qm:
        queue = qm.create_queue("orders", transactional=True)
        with qm.transaction() as tx:
            queue.send("hello", transaction=tx)
            with pytest.raises(errors.UnsupportedOperation, match="does not serve"):
                qm.pause(FAR)
        assert queue.receive(timeout=0).body == "hello"
        assert queue.purge() == 0


def test_a_server_that_never_answers_is_given_up(colour: str) -> None:
    with socket.create_server((free_address(), 0)) as silent:
        address, port = silent.getsockname()
        with (
            pytest.raises(errors.RemoteMachineNotAvailable, match=r"did not answer in 0\.05 s"),
            both_colours.connect(colour, address, port=port, timeout=0.05),
        ):
            pass


def watched(interface: ServerInterface, place: str, calls: list[tuple[str, str, dict[str, Any]]]) -> ServerInterface:
    """Return the same interface for another port.

    Each call is recorded with the place, its name and its arguments.
    """

    def watching(method: Method, handler: Any) -> Any:
        def handle(call: ServerCall, **arguments: Any) -> Any:
            calls.append((place, method.name, arguments))
            return handler(call, **arguments)

        return handle

    handlers = {found[0].name: watching(*found) for found in interface._methods if found is not None}
    return ServerInterface(interface.interface, handlers)


@pytest.mark.spec("MQQP-3.2.4.1-1", "MQQP-3.2.4.1-2")
def test_a_program_asks_where_to_read_and_says_who_it_is(colour: str, bare: OtherManager) -> None:
    calls: list[tuple[str, str, dict[str, Any]]] = []
    qmcomm = next(one for one in bare.queue_client if one.syntax.uuid == QMCOMM.uuid)
    others = [one for one in bare.queue_client if one is not qmcomm]
    bare.ports.ip_read = 2105
    bare.serve([*others, watched(qmcomm, "asked", calls), watched(bare.remote_read, "asked", calls)])
    reading = bare.serve([watched(bare.remote_read, "told", calls)], port=2105)
    with connected(colour, bare) as one, connected(colour, bare) as two:
        queue = one.create_queue("q")
        queue.send("1")
        queue.send("2")
        assert queue.receive(timeout=0).body == "1"
        assert two.open("q").receive(timeout=0).body == "2"
        # One of each connection, and none that is left of the first binding.
        assert reading.connections == 2
    asked = [(place, arguments) for place, name, arguments in calls if name == "RemoteQMGetQMQMServerPort"]
    assert asked == [("asked", {"dw_port_type": 1})] * 2
    assert {place for place, name, _ in calls if name.startswith("RemoteQMStartReceive")} == {"told"}
    opened = [(place, arguments) for place, name, arguments in calls if name == "RemoteQMOpenQueue"]
    assert [place for place, _ in opened] == ["told", "told"]
    # A new program has another GUID; this one has it in every call.
    guids = {arguments["p_lic_guid"] for _, _, arguments in calls if "p_lic_guid" in arguments}
    assert guids == {opened[0][1]["p_lic_guid"]}
    assert GUID_NULL not in guids
    for _, arguments in opened:
        number = arguments["h_queue"]
        assert number
        assert (arguments["p_queue"], arguments["dwp_context"], arguments["dw_mqs"]) == (number, number, 0)


@pytest.mark.spec("MQQP-3.2.4.1-1")
def test_a_first_binding_with_a_connection_of_its_own_is_dropped(colour: str, bare: OtherManager) -> None:
    """The server names one port on qmcomm, and another on qm2qm there."""
    bare.ports.ip_read = 2107
    bare.serve(bare.queue_client)
    told = {method.name: handler for method, handler in filter(None, bare.remote_read._methods)}
    told[REMOTE_QM_GET_QMQM_SERVER_PORT.name] = lambda _call, **_arguments: 2105
    first = bare.serve([ServerInterface(bare.remote_read.interface, told)], port=2107)
    reading = bare.serve([bare.remote_read], port=2105)
    with connected(colour, bare) as manager:
        queue = manager.create_queue("q")
        queue.send("1")
        assert queue.receive(timeout=0).body == "1"
        assert reading.connections == 1
        until(lambda: first.connections == 0)


@pytest.mark.parametrize("method", [LANNER_OPEN_SESSION, REMOTE_QM_GET_QMQM_SERVER_PORT])
def test_a_server_that_stops_answering_is_given_up(colour: str, bare: OtherManager, method: Method) -> None:
    """A server accepts the binds and then does not answer a call.

    The call belongs to Lanner's interface, or the server has no such interface.
    """
    never: asyncio.Future[bytes] = asyncio.Future(loop=bare.loop)
    asked = []

    def say_nothing(call: ServerCall) -> asyncio.Future[bytes]:
        asked.append(call)
        return never

    interface = LANNER if method is LANNER_OPEN_SESSION else QM2QM
    bare.serve(
        [*bare.queue_client, RawInterface(SyntaxId(interface.uuid, *interface.version), {method.opnum: say_nothing})]
    )
    with (
        pytest.raises(errors.RemoteMachineNotAvailable, match=r"did not answer in 0\.5 s"),
        both_colours.connect(colour, bare.address, port=PORT, timeout=0.5),
    ):
        pass
    assert len(asked) == 1


def test_a_closed_connection_is_refused(colour: str, other: OtherManager) -> None:
    with connected(colour, other) as qm:
        queue = qm.open("x")
        qm.close()
        with pytest.raises(errors.InvalidHandle, match="closed"):
            queue.send("x")


def test_a_lost_connection_is_made_again_but_takes_everything_open_with_it(colour: str, bare: OtherManager) -> None:
    bare.serve_everything()
    with connected(colour, bare) as qm:
        q, tq = qm.create_queue("q"), qm.create_queue("tq", transactional=True)
        q.send_many([lanner.Message(body=name, recoverable=True) for name in "abc"])
        cursor = q.cursor()
        assert cursor.peek(0).body == "a"
        tx = qm.transaction()
        tq.send("never", transaction=tx)
        held, one = q.receiving(2, 0), q.receiving_by_lookup_id(0, "first")
        held.__enter__()
        one.__enter__()
        bare.stop()
        with pytest.raises(errors.RemoteMachineNotAvailable):
            q.peek(0)
        with pytest.raises(errors.RemoteMachineNotAvailable):
            q.send("nowhere")
        bare.serve_everything()
        assert q.peek(0).body == "a"
        for block in (held, one):
            with pytest.raises(errors.InvalidHandle, match="in their queue again"):
                block.__exit__(None, None, None)
        with pytest.raises(errors.TransactionSequence, match="connection was lost"):
            tx.commit()
        with pytest.raises(errors.InvalidHandle, match="cursor"):
            cursor.peek(0)
        cursor.close()
        assert bodies(q) == ["a", "b", "c"]
        assert tq.count() == 0


def test_a_read_that_waits_ends_with_its_connection(colour: str, bare: OtherManager) -> None:
    bare.serve_everything()
    with connected(colour, bare) as qm:
        queue = qm.create_queue("q")

        def stop() -> None:
            until(lambda: bare.waiting("q"))
            bare.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.raises(errors.RemoteMachineNotAvailable):
            queue.receive()
        stopping.join()


# Who may do what
# --------------------------------------------------------------------------------------------------


def test_access_lists_are_changed_by_sids_and_well_known_names(other: OtherManager, qm: Any) -> None:
    """R_QMGetObjectSecurityInternal and R_QMSetObjectSecurityInternal carry them."""
    bob = str(other.runtime.users.sid("bob"))
    queue = qm.create_queue(f"q{next(_numbers)}", access={"Everyone": "send", bob: ["peek"]})
    queue.set_owner("Administrators")
    found = queue.access()
    assert found.owner == "Administrators"
    assert [(one.account, one.rights) for one in found.entries] == [
        ("Owner", ("full",)),
        ("Administrators", ("full",)),
        ("Everyone", ("send",)),
        (bob, ("peek",)),
    ]
    queue.deny(bob, "send")
    queue.revoke("Owner")
    queue.grant("Anonymous", "send")
    assert queue.access().sddl == f"O:BAD:(D;;0x4;;;{bob})(A;;0xf003f;;;BA)(A;;0x4;;;WD)(A;;0x2;;;{bob})(A;;0x4;;;AN)"
    queue.set_access("D:(A;;GA;;;BA)")
    assert queue.access().sddl == "O:BAD:(A;;0xf003f;;;BA)"
    with pytest.raises(errors.IllegalUser, match="'bob' of a queue manager of another maker: give its SID"):
        queue.grant("bob", "send")
    with connected("sync", other, "bob", "word") as theirs:
        with pytest.raises(errors.AccessDenied):
            theirs.open(queue.name).access()
        with pytest.raises(errors.AccessDenied):
            theirs.open(queue.name).set_access("D:")
    with pytest.raises(errors.UnsupportedFormatnameOperation):
        qm.dead_letter.access()


def test_a_long_access_list_is_read_whole(qm: Any) -> None:
    queue = qm.create_queue(f"q{next(_numbers)}", access="D:(A;;GA;;;BA)")
    entries = "".join(f"(A;;0x4;;;S-1-5-21-1-2-3-{number})" for number in range(500))
    queue.set_access(f"D:(A;;GA;;;BA){entries}")
    assert len(queue.access().entries) == 501
