"""A sender without a queue manager, in both colours: what it sends arrives as from any computer."""

from __future__ import annotations

import datetime as dt
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from lanner.client import Message, Queue, QueueManager, Sender
from lanner.model.enums import MessageClass
from lanner.model.errors import (
    IllegalFormatname,
    IllegalPropertyValue,
    InvalidHandle,
    InvalidParameter,
    IOTimeout,
    LannerError,
    RemoteMachineNotAvailable,
    ResolveAddress,
    TransactionUsage,
)
from lanner.security.certificates import generate_certificate
from lanner.security.identity import Identity
from lanner.security.signing import SigningKey
from lanner.transfer.events import Event, SessionAckReceived, UserMessagesReceived
from lanner.transfer.session import Session
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.client.peers import PEER_GUID, PORT, SETTINGS, Script, Server, Wire, arrived, free_address, never_answer
from tests.client.senders import AnySender, AwaitedSender, Connect

ORDERS = r"private$\orders"
ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"))


@pytest.fixture
def address() -> str:
    return free_address()


@pytest.fixture(params=["blocking", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Give what makes a sender of either colour."""
    if request.param == "blocking":
        yield Sender
        return
    with ExitStack() as loops:

        def connect_async(host: str, **settings: object) -> AwaitedSender:
            sender = AwaitedSender(host, **settings)
            loops.callback(sender.stop)
            return sender

        yield connect_async


@pytest.fixture
def serve(start: Callable[..., QueueManager], address: str) -> Callable[[], QueueManager]:
    """Return what starts BETA, again and again, on the same data."""

    def serve_one() -> QueueManager:
        return start("BETA", bind=address, transfer=SETTINGS, send_insecure_nacks=True).__enter__()

    return serve_one


@pytest.fixture
def beta(serve: Callable[[], QueueManager]) -> QueueManager:
    return serve()


@pytest.fixture
def orders(beta: QueueManager) -> Queue:
    return beta.create_queue("orders")


@pytest.fixture
def sender(connect: Connect, orders: Queue, address: str) -> Iterator[AnySender]:
    with connect(address, port=PORT) as sender:
        yield sender


def in_threads(work: Callable[[int], None], count: int) -> None:
    """Run something in several threads at once, and raise what any of them raises."""
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(work, range(count)))


def test_every_property_arrives(sender: AnySender, orders: Queue, beta: QueueManager) -> None:
    message = Message(
        body="text",
        label="a label",
        priority=6,
        recoverable=True,
        time_to_be_received=600,
        use_dead_letter_queue=True,
        response_queue=r"DIRECT=OS:alpha\private$\answers",
        correlation_id=bytes(range(20)),
        app_specific=42,
        extension=b"more",
    )
    identifier = sender.send(ORDERS, message)
    assert identifier == message.id == f"{sender.guid}\\1"
    received = orders.receive(0)
    assert (received.id, received.body, received.label, received.priority) == (identifier, "text", "a label", 6)
    assert received.recoverable
    assert received.use_dead_letter_queue
    assert received.time_to_be_received == 600
    assert received.response_queue == r"DIRECT=OS:alpha\private$\answers"
    assert received.correlation_id_bytes == bytes(range(20))
    assert (received.app_specific, received.extension) == (42, b"more")
    assert received.source_machine == sender.guid
    assert sender.remote_guid == beta.identifier


def test_text_bytes_and_received_messages_can_be_sent(sender: AnySender, orders: Queue) -> None:
    sender.send(ORDERS, "text")
    sender.send(ORDERS, b"bytes", wait=True)
    first = orders.receive(5)
    sender.send(ORDERS, first, wait=True)
    assert [message.body for message in orders] == [b"bytes", "text"]
    assert not first.recoverable


@pytest.mark.parametrize(
    "name",
    [
        r"private$\orders",
        r"PRIVATE$\Orders",
        r".\private$\orders",
        r"{address}\private$\orders",
        r"DIRECT=TCP:{address}\private$\orders",
        r"direct=os:.\private$\orders",
    ],
)
def test_a_queue_has_many_names(sender: AnySender, orders: Queue, address: str, name: str) -> None:
    sender.send(name.format(address=address), "x", wait=True)
    received = orders.receive(0)
    assert (received.destination_queue or "").lower() == rf"direct=tcp:{address}\private$\orders"


def test_a_name_without_private_is_a_public_queue(sender: AnySender, beta: QueueManager) -> None:
    public = beta.create_queue(r".\public")
    sender.send("public", "x", wait=True)
    assert public.receive(0).body == "x"


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        (r"gamma\private$\orders", "open another for gamma"),
        (r"DIRECT=OS:gamma\private$\orders", "open another for gamma"),
        (r"PUBLIC=4f0e7a0e-31a5-4d0f-9a54-2a1f5a3a8a11", "direct format names"),
        (r"DIRECT=HTTP://gamma/msmq/private$/orders", "direct format names"),
    ],
)
def test_a_queue_elsewhere_is_refused(sender: AnySender, name: str, complaint: str) -> None:
    with pytest.raises(IllegalFormatname, match=complaint):
        sender.send(name, "x")


def test_a_host_may_be_named_and_its_address_given(connect: Connect, orders: Queue, address: str) -> None:
    with connect("beta", port=PORT, peers={"BETA": address}) as sender:
        sender.send(ORDERS, "by name", wait=True)
        sender.send(rf"DIRECT=TCP:{address}\private$\orders", "by address", wait=True)
    assert [message.destination_queue for message in orders] == [
        r"DIRECT=OS:beta\private$\orders",
        rf"DIRECT=TCP:{address}\private$\orders",
    ]


def test_thousands_arrive_in_their_order_and_once(sender: AnySender, orders: Queue) -> None:
    messages = [Message(body=b"%d" % number, recoverable=bool(number % 3)) for number in range(3000)]
    identifiers = sender.send_many(ORDERS, iter(messages))
    sender.flush()
    assert sender.unacknowledged == 0
    assert [message.body for message in orders] == [b"%d" % number for number in range(3000)]
    assert [message.id for message in orders] == identifiers == [message.id for message in messages]
    assert sender.next_ordinal == 3001


def test_messages_of_megabytes_arrive(sender: AnySender, orders: Queue) -> None:
    sender.send_many(ORDERS, [bytes([number]) * (3 << 20) for number in range(4)], wait=True)
    assert [message.body_bytes[:1] for message in orders] == [b"\0", b"\1", b"\2", b"\3"]


def test_what_nobody_waited_for_is_there_after_flush(sender: AnySender, orders: Queue) -> None:
    for number in range(200):
        sender.send(ORDERS, Message(body=b"%d" % number, recoverable=True), wait=False)
    sender.flush()
    assert sender.unacknowledged == 0
    assert orders.count() == 200


def test_close_waits_for_what_is_recoverable(connect: Connect, orders: Queue, address: str) -> None:
    with connect(address, port=PORT) as sender:
        for number in range(100):
            sender.send(ORDERS, Message(body=b"%d" % number, recoverable=True), wait=False)
    assert orders.count() == 100
    sender.close()
    for _ in range(2):
        with pytest.raises(InvalidHandle, match="closed"):
            sender.send(ORDERS, "x")


@pytest.fixture
def busy() -> Iterator[None]:
    """Have threads interrupt one another as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy")
def test_threads_share_a_sender(sender: AnySender, orders: Queue) -> None:
    def work(name: int) -> None:
        for number in range(25):
            sender.send(ORDERS, Message(body=f"{name} {number}", recoverable=bool(number & 1)))

    in_threads(work, 6)
    sender.flush()
    bodies = [str(message.body) for message in orders]
    assert len(bodies) == len(set(bodies)) == 150
    for name in range(6):
        assert [body for body in bodies if body.startswith(f"{name} ")] == [f"{name} {number}" for number in range(25)]


@pytest.mark.usefixtures("busy")
def test_threads_send_many_at_once(sender: AnySender, orders: Queue) -> None:
    """One thread reads the socket for all; the others continue when their answers have arrived."""

    def work(name: int) -> None:
        messages = [Message(body=f"{name} {number}", recoverable=True) for number in range(100)]
        identifiers.extend(sender.send_many(ORDERS, messages))

    identifiers: list[str] = []
    in_threads(work, 4)
    assert sender.unacknowledged == 0
    assert sender.next_ordinal == 401
    assert sorted(identifiers) == sorted(str(message.id) for message in orders)
    assert len(set(identifiers)) == orders.count() == 400


def test_over_ipv6(connect: Connect, start: Callable[..., QueueManager]) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as probe:
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no ::1")
    manager = start("BETA", bind="::1", transfer=type(SETTINGS)(port=port)).__enter__()
    queue = manager.create_queue("orders")
    with connect("[::1]", port=port) as sender:
        assert f"[::1]:{port}" in repr(sender)
        sender.send(ORDERS, Message(body="six", recoverable=True))
    assert queue.receive(0).destination_queue == r"DIRECT=TCP:::1\private$\orders"


# What may be asked for
# -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message(use_journal_queue=True), "use_journal_queue.*lanner.QueueManager"),
        (Message(encrypt=True), "encrypt.*lanner.QueueManager"),
        (Message(authenticate=True), "signing_key"),
        (Message(acknowledge="full_receive", administration_queue="acks"), "a sender has no queues"),
        (Message(response_queue=r".\private$\acks"), "a sender has no queues"),
        (Message(priority=9), "priority 9"),
        (7, "not int"),
    ],
)
def test_what_a_sender_cannot_do_it_says(sender: AnySender, orders: Queue, message: Message, complaint: str) -> None:
    with pytest.raises((IllegalPropertyValue, IllegalFormatname), match=complaint):
        sender.send(ORDERS, message)
    assert sender.unacknowledged == 0
    sender.send(ORDERS, "y", wait=True)
    assert orders.count() == 1


def test_transactions_need_a_queue_manager(sender: AnySender, beta: QueueManager) -> None:
    with beta.transaction() as transaction, pytest.raises(TransactionUsage, match=r"lanner\.QueueManager"):
        sender.send(ORDERS, "x", transaction=transaction)


def test_a_signed_message_is_authenticated(connect: Connect, beta: QueueManager, address: str) -> None:
    queue = beta.create_queue("signed", authentication=True)
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    key = SigningKey.load(made.certificate, made.private_key)
    alice = beta.as_user(ALICE)
    alice.signing_key = key
    # Registers the certificate.
    alice.open("signed").send(Message(body="local", authenticate=True))
    with connect(address, port=PORT, sender_id=str(ALICE.sid), signing_key=key) as sender:
        sender.send(r"private$\signed", Message(body="unsigned"), wait=True)
        sender.send(r"private$\signed", Message(body="signed", authenticate=True), wait=True)
    assert [(message.body, message.authenticated) for message in queue] == [("local", True), ("signed", True)]
    with pytest.raises(InvalidParameter, match="alice"):
        connect(address, sender_id="alice")


def test_a_user_can_be_named_whose_denials_count(connect: Connect, beta: QueueManager, address: str) -> None:
    """3.1.5.8.3: ST 2 is Everyone.

    ST 1 names a user: without a signature it gets no right by that, but loses some.
    """
    theirs = beta.create_queue(
        "theirs", security=parse_sddl(f"O:SYD:(D;;0x4;;;{ALICE.sid})(A;;0x4;;;WD)(A;;0x4;;;AN)").pack()
    )
    hers = beta.create_queue("hers", security=parse_sddl(f"O:SYD:(A;;0x4;;;{ALICE.sid})").pack())
    for sender_id in (None, str(ALICE.sid)):
        with connect(address, port=PORT, sender_id=sender_id) as sender:
            for name in ("theirs", "hers"):
                sender.send(rf"private$\{name}", f"from {sender_id}", wait=True)
    assert [message.body for message in theirs] == ["from None"]
    assert list(hers) == []


def test_an_administration_queue_is_reported(sender: AnySender, beta: QueueManager) -> None:
    acknowledgments = beta.create_queue("acks")
    asking = {"acknowledge": "full_reach_queue", "administration_queue": acknowledgments.format_name}
    good = sender.send(ORDERS, Message(**asking), wait=True)  # type: ignore[arg-type] # a field each
    told = acknowledgments.receive(5)
    assert (told.message_class, told.correlation_id) == (MessageClass.ACK_REACH_QUEUE, good)
    # A missing queue does not stop the session from acknowledging: only the administration queue
    # gets a report.
    bad = sender.send(r"private$\missing", Message(**asking), wait=True)  # type: ignore[arg-type]
    told = acknowledgments.receive(5)
    assert (told.message_class, told.correlation_id) == (MessageClass.NACK_BAD_DEST_QUEUE, bad)


def test_a_guid_that_is_used_again_continues_with_its_ordinals(connect: Connect, orders: Queue, address: str) -> None:
    guid = uuid.uuid4()
    with connect(address, port=PORT, guid=guid, first_ordinal=7) as sender:
        assert sender.send(ORDERS, "first", wait=True) == f"{guid}\\7"
        following = sender.next_ordinal
    with connect(address, port=PORT, guid=guid, first_ordinal=following) as sender:
        sender.send(ORDERS, "second", wait=True)
    with connect(address, port=PORT, guid=guid, first_ordinal=7) as sender:
        sender.send(ORDERS, "dropped as a duplicate", wait=True)
    assert [message.body for message in orders] == ["first", "second"]
    with pytest.raises(InvalidParameter, match="belong together"):
        connect(address, guid=guid)


# Less than the time after which a sender sends what a slow source has given.
PATIENCE = 0.004  # seconds


def test_a_message_of_a_failed_source_is_not_sent(sender: AnySender, orders: Queue) -> None:
    def messages() -> Iterator[Message]:
        yield Message(body="not sent", recoverable=True)
        raise KeyError("the source has failed")

    for _ in range(100):
        orders.purge()
        began = time.monotonic()
        sender.send(ORDERS, "before", wait=True)
        with pytest.raises(KeyError):
            sender.send_many(ORDERS, messages())
        is_prompt = time.monotonic() - began < PATIENCE
        assert sender.unacknowledged == 0
        if is_prompt:
            break
    # A slow source, as on a busy machine, has its messages sent before it fails.
    assert is_prompt
    sender.send(ORDERS, "after", wait=True)
    assert [message.body for message in orders] == ["before", "after"]


# Lost connections
# ----------------------------------------------------------------------------------------------


def test_what_was_not_acknowledged_is_sent_again_and_its_duplicates_dropped(
    connect: Connect, orders: Queue, address: str
) -> None:
    with Wire(address) as wire, connect(wire.address, port=PORT, settings=SETTINGS) as sender:
        wire.is_deaf = True
        for number in range(20):
            sender.send(ORDERS, Message(body=b"%d" % number, recoverable=bool(number & 1)), wait=False)
        arrived(orders, 20)
        assert sender.unacknowledged == 20
        wire.is_deaf = False
        wire.cut()
        sender.send(ORDERS, Message(body=b"20", recoverable=True))
        sender.flush()
        assert wire.connections == 2
    assert [message.body for message in orders] == [b"%d" % number for number in range(21)]


def test_a_sender_outlives_a_restart_of_the_queue_manager(
    serve: Callable[[], QueueManager], beta: QueueManager, sender: AnySender, address: str
) -> None:
    sender.send(ORDERS, Message(body="before", recoverable=True))
    beta.close()
    with pytest.raises(RemoteMachineNotAvailable, match=f"no session with {address}:{PORT}: Connection refused"):
        sender.send(ORDERS, Message(body="given up", recoverable=True), timeout=0.1)
    assert sender.unacknowledged == 0
    again = serve()
    sender.send(ORDERS, Message(body="after", recoverable=True))
    assert [message.body for message in again.open("orders")] == ["before", "after"]


def test_a_restart_while_messages_wait(
    serve: Callable[[], QueueManager], beta: QueueManager, sender: AnySender
) -> None:
    def numbers() -> Iterator[Message]:
        for number in range(1000):
            if number == 500:
                beta.close()
                found.append(serve())
            yield Message(body=b"%d" % number, recoverable=True)

    found: list[QueueManager] = []
    sender.send_many(ORDERS, numbers())
    assert [message.body for message in found[0].open("orders")] == [b"%d" % number for number in range(1000)]


def test_a_caller_waits_until_the_queue_manager_is_back(
    serve: Callable[[], QueueManager], beta: QueueManager, orders: Queue, connect: Connect, address: str
) -> None:
    with connect(address, port=PORT, settings=SETTINGS) as sender, ThreadPoolExecutor(1) as pool:
        beta.close()
        waiting = pool.submit(sender.send, ORDERS, Message(body="late", recoverable=True))
        with pytest.raises(RemoteMachineNotAvailable, match="Connection refused"):
            sender.send(ORDERS, Message(body="given up", recoverable=True), timeout=0.2)
        again = serve()
        waiting.result()
    assert [message.body for message in again.open(orders.path_name)] == ["late"]


def test_a_connection_that_takes_long_delays_no_other_thread() -> None:
    """A listener with a full backlog answers nothing.

    The lock is not held while one waits for it.
    """
    with ExitStack() as stack:
        server = stack.enter_context(Server(Script(lambda _session, _event: None)))
        sender = Sender(server.address, port=PORT)
        server.close()
        listening = stack.enter_context(socket.create_server((server.address, PORT), backlog=0))
        for _ in range(4):
            filling = stack.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex((server.address, PORT))
        pool = stack.enter_context(ThreadPoolExecutor(1))
        waiting = pool.submit(sender.send, ORDERS, Message(body="x", recoverable=True), timeout=8.0)
        while not sender._line.is_connecting:
            time.sleep(0.001)
        with pytest.raises(RemoteMachineNotAvailable):
            sender.send(ORDERS, "y", timeout=0.1)
        assert not waiting.done()
        sender.__exit__(KeyError, None, None)
        listening.close()
        with pytest.raises(InvalidHandle):
            waiting.result()


# Strange peers
# -------------------------------------------------------------------------------------------------


def test_nobody_listens(connect: Connect, address: str) -> None:
    with pytest.raises(RemoteMachineNotAvailable, match=f"{address}:{PORT}: Connection refused; is a queue manager"):
        connect(address, port=PORT)


def test_a_host_without_address(connect: Connect) -> None:
    with pytest.raises(ResolveAddress, match=r"has no address.*give its address in peers"):
        connect("x" * 70)


def test_another_queue_manager_than_was_meant(connect: Connect, beta: QueueManager, address: str) -> None:
    stranger = uuid.uuid4()
    with pytest.raises(RemoteMachineNotAvailable, match=f"queue manager {beta.identifier}"):
        connect(address, port=PORT, queue_manager=stranger)


def test_a_peer_that_never_answers(connect: Connect) -> None:
    with (
        Server(never_answer) as server,
        pytest.raises(RemoteMachineNotAvailable, match=f"{server.address}:{PORT}: no answer within 0.5 s"),
    ):
        connect(server.address, port=PORT, timeout=0.5)


def test_a_peer_that_speaks_something_else(connect: Connect) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        never_answer(connection)

    with Server(answer) as server, pytest.raises(RemoteMachineNotAvailable, match="BaseHeader"):
        connect(server.address, port=PORT)


def test_a_peer_that_acknowledges_nothing(connect: Connect) -> None:
    """A caller does not wait for an express message, and gets an error for a recoverable one."""
    script = Script(lambda _session, _event: None)
    with Server(script) as server:
        sender = connect(server.address, port=PORT, timeout=0.5)
        sender.send(ORDERS, "express")
        with pytest.raises(IOTimeout, match=r"acknowledged nothing for 0.5 s; .* 2 messages are unacknowledged"):
            sender.send(ORDERS, Message(body="recoverable", recoverable=True))
        with pytest.raises(IOTimeout, match="flush"):
            sender.flush(timeout=0.01)
        assert sender.unacknowledged == 2
        with pytest.raises(IOTimeout):
            sender.close()
        sender.close()
        assert len(script.packets) == 2


def test_a_block_that_fails_waits_for_nothing(connect: Connect) -> None:
    def fail(address: str) -> None:
        with connect(address, port=PORT, timeout=3600) as sender:
            sender.send(ORDERS, Message(body="recoverable", recoverable=True), wait=False)
            raise KeyError

    with Server(Script(lambda _session, _event: None)) as server, pytest.raises(KeyError):
        fail(server.address)


def test_what_is_written_arrives_though_the_peer_acknowledges_meanwhile(connect: Connect) -> None:
    """A socket closed too early answers the acknowledgment with a reset and loses unsent bytes."""
    is_ending = threading.Event()

    def acknowledge_late(session: Session, event: Event) -> None:
        if isinstance(event, UserMessagesReceived):
            is_ending.wait()
            time.sleep(0.2)  # the sender closes meanwhile; it waits for two seconds
            session.allow_acknowledgment(session.total_received)

    script = Script(acknowledge_late)
    with Server(script) as server, connect(server.address, port=PORT) as sender:
        # More than the peer's receive buffer holds, less than this side's send buffer.
        sender.send_many(ORDERS, [b"x", b"y" * 300_000, b"z" * 300_000])
        assert sender.unacknowledged == 3
        is_ending.set()
        sender.close()
    assert len(script.packets) == 3


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_caller_that_waits_is_told_of_the_end(connect: Connect, is_connected: bool) -> None:
    """In both cases no new connection is made for a closed sender."""
    arrived = threading.Event()

    def take(_session: Session, event: Event) -> bool:
        if isinstance(event, UserMessagesReceived):
            arrived.set()
            return is_connected
        return True

    with Server(Script(take)) as server, ThreadPoolExecutor(1) as pool:
        sender = connect(server.address, port=PORT, timeout=3600)
        waiting = pool.submit(sender.send, ORDERS, Message(body="x", recoverable=True))
        arrived.wait()
        sender.__exit__(KeyError, None, None)
        with pytest.raises(InvalidHandle):
            waiting.result()
        count = server.connections
        with pytest.raises(InvalidHandle):
            sender.flush()
        assert server.connections == count


def test_a_caller_that_waits_asks_for_an_early_acknowledgment(connect: Connect) -> None:
    """3.1.7.13: a window of one, which a peer answers without waiting for more."""
    windows = []

    def settle(session: Session, event: Event) -> None:
        if isinstance(event, SessionAckReceived):
            windows.append(session.received_window_size)
            session.allow_acknowledgment(session.total_received)

    with Server(Script(settle)) as server, connect(server.address, port=PORT) as sender:
        sender.send(ORDERS, "express")
        sender.send(ORDERS, Message(body="x", recoverable=True))
        assert sender.unacknowledged == 0
    assert windows == [1]


def test_a_peer_that_drops_every_connection_is_not_asked_for_ever(connect: Connect) -> None:
    def drop(_session: Session, event: Event) -> bool:
        return not isinstance(event, UserMessagesReceived)

    script = Script(drop)
    with Server(script) as server:
        sender = connect(server.address, port=PORT, settings=SETTINGS)
        with pytest.raises(LannerError, match=f"{server.address}:{PORT}"):
            sender.send(ORDERS, Message(body="x", recoverable=True), timeout=0.2)
        assert server.connections > 2
        assert len(set(script.packets)) == 1
        with pytest.raises(LannerError):
            sender.close(timeout=0.01)


def test_what_is_sent_to_a_sender_stays_with_the_peer(connect: Connect) -> None:
    """A peer may take the session for one with a queue manager at this address."""

    def send_back(session: Session, event: Event) -> None:
        if isinstance(event, UserMessagesReceived) and event.number == 1:
            packet = build(
                MessageProperties(body=b"for another"),
                source=PEER_GUID,
                ordinal=1,
                sent_time=0,
                destination=FormatName.parse(r"DIRECT=OS:alpha\private$\acks"),
            )
            session.send(packet, None)
        if session.total_received:
            session.allow_acknowledgment(session.total_received)

    script = Script(send_back)
    with Server(script) as server, connect(server.address, port=PORT) as sender:
        for number in range(3):
            sender.send(ORDERS, Message(body=b"%d" % number, recoverable=True))
    # Each time the sender had nothing more to wait for it went, and the peer could look elsewhere.
    assert [session.unacked_message_count for session in script.sessions] == [1, 1, 1]
