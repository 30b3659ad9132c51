"""Scripts written for Windows COM, against a whole queue manager.

They do what an application does with queues and use the events of MSMQEvent.
"""

from __future__ import annotations

import datetime as dt
import queue
from collections.abc import Iterator
from decimal import Decimal

import pytest

from lanner.com import VT, AutomationError, Connection, Dispatch, Variant, connect, with_events
from lanner.model.errors import QueueNotFound, SharingViolation
from tests.cli.conftest import free_address
from tests.interop.com_daemon import PASSWORD, USER, ComDaemon, com_daemon
from tests.statuses import MQ_ERROR_IO_TIMEOUT

RECEIVE, SEND, PEEK = 1, 2, 32
DENY_NONE, DENY_RECEIVE_SHARE = 0, 1


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComDaemon]:
    with com_daemon(tmp_path_factory.mktemp("com"), free_address()) as made:
        yield made


@pytest.fixture
def computer(daemon: ComDaemon) -> Iterator[Connection]:
    with connect(daemon.address, USER, PASSWORD) as made:
        yield made


@pytest.fixture
def info(computer: Connection, request: pytest.FixtureRequest) -> Dispatch:
    """A queue of the test's own."""
    made = computer.dispatch("MSMQ.MSMQQueueInfo")
    made.PathName = r".\private$" + "\\" + "".join(each if each.isalnum() else "_" for each in request.node.name)
    made.Label = "of a test"
    made.Create(IsTransactional="transactional" in request.node.name)
    return made


def send(computer: Connection, info: Dispatch, *labels: str, transaction: object = 0) -> None:
    target = info.Open(SEND, DENY_NONE)
    for label in labels:
        message = computer.dispatch("MSMQ.MSMQMessage")
        message.Label = label
        message.Body = f"body of {label}"
        message.Send(target, transaction)
    target.Close()


def test_a_script_of_an_administrator(computer: Connection, info: Dispatch) -> None:
    assert info.Label == "of a test"
    assert info.FormatName.startswith("PRIVATE=")
    assert isinstance(info.CreateTime, dt.datetime)
    assert info.IsTransactional2 is False
    info.Label = "changed"
    info.Update()
    other = computer.dispatch("MSMQ.MSMQQueueInfo")
    other.FormatName = info.FormatName
    other.Refresh()
    assert other.Label == "changed"
    info.Delete()
    with pytest.raises(AutomationError) as gone:
        other.Open(RECEIVE, DENY_NONE)
    assert (gone.value.hresult, gone.value.name) == (QueueNotFound.status, "MQ_ERROR_QUEUE_NOT_FOUND")


def test_a_script_that_sends_and_receives(computer: Connection, info: Dispatch) -> None:
    send(computer, info, "one", "two")
    source = info.Open(RECEIVE, DENY_NONE)
    first = source.Peek(ReceiveTimeout=1000)
    assert (first.Label, first.Body, first.BodyLength) == ("one", "body of one", 2 * len("body of one"))
    assert source.Receive(ReceiveTimeout=1000).Label == "one"
    assert source.Receive(0, False, True, 1000).Label == "two"
    assert source.Receive(ReceiveTimeout=1) is None
    source.Close()
    assert source.IsOpen2 is False


@pytest.mark.parametrize(
    "body",
    [
        "text é",
        b"\x00\x01\xff" * 1000,
        12345,
        -2.5,
        True,
        dt.datetime(2026, 11, 15, 12, 30),  # noqa: DTZ001 (a DATE knows no time zone)
        Decimal("1.25"),
        Variant(VT.I2, 7),
        Variant(VT.UI1, 200),
    ],
    ids=["text", "octets", "integer", "real", "truth", "date", "currency", "short", "octet"],
)
def test_bodies_keep_their_types(computer: Connection, info: Dispatch, body: object) -> None:
    message = computer.dispatch("MSMQ.MSMQMessage")
    sent = Variant(VT.CY, 12500) if isinstance(body, Decimal) else body
    message.Body = sent
    message.Send(info.Open(SEND, DENY_NONE))
    received = info.Open(RECEIVE, DENY_NONE).Receive(ReceiveTimeout=1000)
    assert received.Body == (body.value if isinstance(body, Variant) else body)


def test_a_cursor_and_lookup_ids(computer: Connection, info: Dispatch) -> None:
    send(computer, info, "one", "two", "three")
    source = info.Open(RECEIVE, DENY_NONE)
    labels = []
    message = source.PeekCurrent(ReceiveTimeout=0)
    while message is not None:
        labels.append((message.Label, message.LookupId))
        message = source.PeekNext(ReceiveTimeout=0)
    assert [label for label, _ in labels] == ["one", "two", "three"]
    assert source.ReceiveByLookupId(labels[1][1]).Label == "two"
    assert source.PeekNextByLookupId(labels[0][1]).Label == "three"


@pytest.mark.parametrize("name", ["MSMQTransactionDispenser", "MSMQCoordinatedTransactionDispenser"])
def test_transactional_work(computer: Connection, info: Dispatch, name: str) -> None:
    dispenser = computer.dispatch(f"MSMQ.{name}")
    for verb, count in (("Abort", 0), ("Commit", 2)):
        transaction = dispenser.BeginTransaction()
        send(computer, info, "one", "two", transaction=transaction)
        getattr(transaction, verb)()
        source = info.Open(RECEIVE, DENY_NONE)
        found = 0
        message = source.PeekCurrent(ReceiveTimeout=0)
        while message is not None:
            found += 1
            message = source.PeekNext(ReceiveTimeout=0)
        assert found == count
    # Given back when its connection ends, as when the script does.
    transaction = dispenser.BeginTransaction()
    assert source.Receive(transaction, ReceiveTimeout=1000).Label == "one"


def test_an_exclusive_reader_ends_with_its_connection(daemon: ComDaemon, info: Dispatch) -> None:
    with connect(daemon.address, USER, PASSWORD, level="integrity") as other:
        theirs = other.dispatch("MSMQ.MSMQQueueInfo")
        theirs.FormatName = info.FormatName
        reader = theirs.Open(RECEIVE, DENY_RECEIVE_SHARE)
        assert reader.ShareMode == DENY_RECEIVE_SHARE
        with pytest.raises(AutomationError) as refused:
            info.Open(RECEIVE, DENY_RECEIVE_SHARE)
        assert refused.value.hresult == SharingViolation.status
    assert info.Open(RECEIVE, DENY_RECEIVE_SHARE).IsOpen2 is True


def test_management_and_collections(computer: Connection, info: Dispatch) -> None:
    send(computer, info, "one")
    reader = info.Open(PEEK, DENY_NONE)
    managed = computer.dispatch("MSMQ.MSMQQueueManagement")
    managed.Init(FormatName=info.FormatName)
    assert (managed.MessageCount, managed.IsLocal) == (1, True)
    assert reader.Peek(ReceiveTimeout=0).Label == "one"
    application = computer.dispatch("MSMQ.MSMQApplication")
    assert any(name.lower().endswith(info.PathName.lower().rpartition("\\")[2]) for name in application.PrivateQueues)


def test_a_query_of_public_queues(computer: Connection) -> None:
    public = computer.dispatch("MSMQ.MSMQQueueInfo")
    public.PathName = r".\orders"
    public.Label = "public orders"
    public.Create()
    query = computer.dispatch("MSMQ.MSMQQuery")
    infos = query.LookupQueue(Label="public orders")
    infos.Reset()
    found = infos.Next()
    assert found.Label == "public orders"
    assert found.FormatName.startswith("PUBLIC=")
    assert infos.Next() is None


# Events
# --------------------------------------------------------------------------------------------------


class Handlers:
    """As a VB program would have them."""

    def __init__(self) -> None:
        self.came: queue.Queue[tuple[object, ...]] = queue.Queue()

    def Arrived(self, source: Dispatch, cursor: int) -> None:  # noqa: N802 (the event's name)
        self.came.put(("arrived", source.Receive(ReceiveTimeout=0).Label, cursor))

    def ArrivedError(self, source: Dispatch, error_code: int, cursor: int) -> None:  # noqa: N802
        del source
        self.came.put(("error", error_code & 0xFFFF_FFFF, cursor))


def test_messages_arrive_at_a_sink(computer: Connection, info: Dispatch) -> None:
    handlers = Handlers()
    event = computer.dispatch("MSMQ.MSMQEvent")
    source = info.Open(RECEIVE, DENY_NONE)
    with with_events(event, handlers):
        source.EnableNotification(event)
        send(computer, info, "one")
        assert handlers.came.get(timeout=10) == ("arrived", "one", 0)
        # One event for each time that it was asked for.
        source.EnableNotification(Event=event, Cursor=0, ReceiveTimeout=5000)
        send(computer, info, "two")
        assert handlers.came.get(timeout=10)[:2] == ("arrived", "two")
        source.EnableNotification(Event=event, ReceiveTimeout=1)
        kind, code, _ = handlers.came.get(timeout=10)
        assert (kind, code) == ("error", MQ_ERROR_IO_TIMEOUT)
    source.EnableNotification(event)
    send(computer, info, "three")
    assert source.Receive(ReceiveTimeout=1000).Label == "three"
    assert handlers.came.empty()


def test_a_sink_that_vanishes_holds_up_nobody(daemon: ComDaemon, computer: Connection, info: Dispatch) -> None:
    with connect(daemon.address, USER, PASSWORD) as other:
        theirs = other.dispatch("MSMQ.MSMQQueueInfo")
        theirs.FormatName = info.FormatName
        event, source = other.dispatch("MSMQ.MSMQEvent"), theirs.Open(RECEIVE, DENY_NONE)
        with_events(event, Handlers())
        own = other._parts.own
        assert own is not None
        other._thread.call(own.stop())
        source.EnableNotification(event)
        send(computer, info, "one")
        assert info.Open(RECEIVE, DENY_NONE).Receive(ReceiveTimeout=5000).Label == "one"
        assert source.IsOpen2 is True
