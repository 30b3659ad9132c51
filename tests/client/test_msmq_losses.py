"""Lost connections, cancelled tasks and Ctrl-C.

No message of a queue manager elsewhere is lost silently.
"""

# The objects are of two trees of classes (tests/client/both_colours.py).
# ruff: noqa: ANN401

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType
from typing import Any

import pytest

import lanner
import lanner.aio
from lanner import errors
from lanner.services.interfaces.mqmp import R_QM_COMMIT_TRANSACTION, RPC_AC_SEND_MESSAGE_EX
from lanner.services.interfaces.mqqp import REMOTE_QM_CANCEL_RECEIVE, REMOTE_QM_END_RECEIVE
from tests.client import both_colours
from tests.client.other_manager import PORT, OtherManager, until
from tests.client.rpc_wire import RpcWire

_numbers = iter(range(1000))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherManager]:
    directory = tmp_path_factory.mktemp("other")
    manager = OtherManager(directory / "data")
    manager.serve_everything()
    yield manager
    manager.close()
    shutil.rmtree(directory)


@pytest.fixture
def wire(other: OtherManager) -> Iterator[RpcWire]:
    with RpcWire((other.address, PORT)) as made:
        yield made


@pytest.fixture
def near(other: OtherManager) -> Iterator[lanner.QueueManager]:
    """A connection without the wire."""
    with lanner.connect(other.address, "alice", "secret", port=PORT) as qm:
        yield qm


@pytest.fixture
def q(near: lanner.QueueManager) -> lanner.Queue:
    """A queue with a name that means the same on both connections."""
    return near.open(near.create_queue(rf"alpha\private$\q{next(_numbers)}").name)


@pytest.fixture(params=["sync", "async"])
def far(request: pytest.FixtureRequest, wire: RpcWire) -> Iterator[Any]:
    """A connection over the wire."""
    with both_colours.connect(request.param, wire.address, "alice", "secret", port=wire.port) as qm:
        yield qm


def bodies(messages: Any) -> list[bytes | str]:
    return [message.body for message in messages]


# Lost connections
# --------------------------------------------------------------------------------------------------


def receive(queue: Any) -> Any:
    return queue.receive(5)


def receive_at_cursor(queue: Any) -> Any:
    return queue.cursor().receive(5)


def receive_by_lookup_id(queue: Any) -> Any:
    return queue.receive_by_lookup_id(0, "first")


def receive_many(queue: Any) -> Any:
    return queue.receive_many(2)


def hold(queue: Any) -> None:
    with queue.receiving():
        pass


def hold_by_lookup_id(queue: Any) -> None:
    with queue.receiving_by_lookup_id(0, "first"):
        pass


RECEIVES = [receive, receive_at_cursor, receive_by_lookup_id, receive_many, hold, hold_by_lookup_id]


@pytest.mark.parametrize("is_carried", [True, False])
@pytest.mark.parametrize("work", RECEIVES)
def test_a_receive_whose_acknowledgment_has_no_answer_is_in_doubt(
    wire: RpcWire, far: Any, q: lanner.Queue, work: Callable[[Any], Any], *, is_carried: bool
) -> None:
    """The error contains the message, which is deleted or in its queue again."""
    queue = far.open(q.name)
    sent = [q.send(lanner.Message(body="one", recoverable=True))]
    assert queue.peek(0).body == "one"
    wire.cut_at(REMOTE_QM_END_RECEIVE, is_carried=is_carried)
    with pytest.raises(errors.ReceiveInDoubt, match="whether they are gone") as raised:
        work(queue)
    assert [message.id for message in raised.value.messages] == sent
    if not is_carried:
        # When the server detects the lost connection.
        assert q.receive(30).body == "one"
    with pytest.raises(errors.IOTimeout):
        q.receive(0)
    # The next call connects again.
    q.send("two")
    assert queue.receive(5).body == "two"


def test_messages_before_the_one_in_doubt_are_in_the_error_too(
    wire: RpcWire, far: Any, q: lanner.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tree in ("_sync", "_async"):
        monkeypatch.setattr(f"lanner.client.{tree}.msmq_queues._MAX_HELD", 1)
    q.send_many(["a", "b", "c"])
    wire.cut_at(REMOTE_QM_END_RECEIVE, is_carried=False, skip=1)
    with pytest.raises(errors.ReceiveInDoubt) as raised:
        far.open(q.name).receive_many(3)
    assert bodies(raised.value.messages) == ["a", "b"]
    # One comes back when the server detects the lost connection.
    assert {q.receive(30).body, q.receive(30).body} == {"b", "c"}


def test_a_message_that_was_not_acknowledged_before_the_loss_is_not_in_doubt(wire: RpcWire, q: lanner.Queue) -> None:
    with lanner.connect(wire.address, "alice", "secret", port=wire.port) as qm:
        q.send_many(["a", "b", "c"])
        wire.cut_at(REMOTE_QM_END_RECEIVE, is_carried=True, skip=1)
        with pytest.raises(errors.ReceiveInDoubt) as raised:
            qm.open(q.name).receive_many(3)
        assert bodies(raised.value.messages) == ["a", "b"]
        assert q.receive(30).body == "c"


@pytest.mark.parametrize("is_carried", [True, False])
def test_a_commit_without_an_answer_is_in_doubt(
    wire: RpcWire, near: lanner.QueueManager, far: Any, *, is_carried: bool
) -> None:
    tq = near.create_queue(rf"alpha\private$\t{next(_numbers)}", transactional=True)
    queue, tx = far.open(tq.name), far.transaction()
    queue.send("one", transaction=tx)
    wire.cut_at(R_QM_COMMIT_TRANSACTION, is_carried=is_carried)
    with pytest.raises(errors.CommitInDoubt, match=tx.identifier):
        tx.commit()
    until(lambda: tq.count() == is_carried)
    with pytest.raises(errors.TransactionSequence):
        tx.abort()


def test_a_send_without_an_answer_says_how_many_are_known_to_be_sent(wire: RpcWire, far: Any, q: lanner.Queue) -> None:
    queue = far.open(q.name)
    messages = [lanner.Message(body=name) for name in "abc"]
    queue.send("first")
    wire.cut_at(RPC_AC_SEND_MESSAGE_EX, is_carried=False, skip=1)
    with pytest.raises(errors.RemoteMachineNotAvailable, match=r"may have been sent: [12] of 3"):
        queue.send_many(messages)
    assert messages[0].id is not None
    assert messages[2].id is None


# Cancelled tasks
# --------------------------------------------------------------------------------------------------


def in_loop(wire: RpcWire, work: Callable[[lanner.aio.QueueManager], Awaitable[None]]) -> None:
    async def main() -> None:
        async with (
            await lanner.aio.connect(wire.address, "alice", "secret", port=wire.port) as qm,
            asyncio.timeout(60),
        ):
            await work(qm)

    asyncio.run(main())


async def waited(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (another thread's)
        await asyncio.sleep(0.001)


def short(queue: lanner.Queue) -> str:
    return queue.name.rpartition("\\")[2]


def test_a_cancelled_wait_takes_nothing(other: OtherManager, wire: RpcWire, q: lanner.Queue) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        queue = qm.open(q.name)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.receive()
        await waited(lambda: other.waiting(short(q)) == 0)
        waiting = [asyncio.create_task(queue.receive(30)) for _ in range(20)]
        await waited(lambda: other.waiting(short(q)) == 20)
        for task in waiting[::2]:
            task.cancel()
        await queue.send_many([str(number) for number in range(10)])
        got = await asyncio.gather(*waiting, return_exceptions=True)
        found = [one.body for one in got if isinstance(one, lanner.ReceivedMessage)]
        # Cancelled reads have given back what they had got.
        while len(found) < 10:
            found.append((await queue.receive(30)).body)
        assert sorted(found, key=str) == [str(number) for number in range(10)]

    in_loop(wire, work)


def test_a_cancelled_task_gives_back_the_message_that_was_on_its_way(
    other: OtherManager, wire: RpcWire, q: lanner.Queue
) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        queue = qm.open(q.name)
        waiting = asyncio.create_task(queue.receive(30))
        await waited(lambda: other.waiting(short(q)))
        wire.hold_answers(until=REMOTE_QM_CANCEL_RECEIVE)
        q.send("one")
        await waited(lambda: not other.waiting(short(q)))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await queue.receive(30)).body == "one"

    in_loop(wire, work)


def test_a_cancelled_block_gives_its_messages_back(wire: RpcWire, q: lanner.Queue) -> None:
    async def work(qm: lanner.aio.QueueManager) -> None:
        queue = qm.open(q.name)
        q.send_many(["a", "b", "c"])
        entered = asyncio.Event()

        async def hold() -> None:
            async with queue.receiving(3, 0):
                entered.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(hold())
        await entered.wait()
        with pytest.raises(errors.IOTimeout):
            await queue.receive(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bodies(await queue.receive_many(5)) == ["a", "b", "c"]

    in_loop(wire, work)


def test_several_receives_that_are_cancelled_give_everything_back(wire: RpcWire, q: lanner.Queue) -> None:
    """The first message is here, and the others are on their way."""

    async def work(qm: lanner.aio.QueueManager) -> None:
        queue = qm.open(q.name)
        with pytest.raises(errors.IOTimeout):
            await queue.receive(0)
        q.send_many(["a", "b", "c"])
        wire.hold_answers(since=2, until=REMOTE_QM_CANCEL_RECEIVE)
        receiving = asyncio.create_task(queue.receive_many(3))
        await waited(lambda: len(wire.seen) == 3)
        receiving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receiving
        found = [(await queue.receive(30)).body for _ in range(3)]
        assert sorted(found, key=str) == ["a", "b", "c"]

    in_loop(wire, work)


def test_a_task_that_is_cancelled_while_it_acknowledges_is_in_doubt(wire: RpcWire, q: lanner.Queue) -> None:
    """MS-MQQP cannot undo an acknowledgment, so without the error a message would be lost."""

    async def work(qm: lanner.aio.QueueManager) -> None:
        queue = qm.open(q.name)
        with pytest.raises(errors.IOTimeout):
            await queue.receive(0)
        q.send("one")
        wire.hold_answers(since=2)
        receiving = asyncio.create_task(queue.receive(0))
        await waited(lambda: REMOTE_QM_END_RECEIVE.opnum in wire.seen)
        receiving.cancel()
        with pytest.raises(errors.ReceiveInDoubt, match="cancelled") as raised:
            await receiving
        assert raised.value.message.body == "one"

    in_loop(wire, work)
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


def test_a_transaction_whose_receive_was_cancelled_must_be_aborted(
    other: OtherManager, wire: RpcWire, near: lanner.QueueManager
) -> None:
    """It may have taken a message that the program has not seen."""
    tq = near.create_queue(rf"alpha\private$\t{next(_numbers)}", transactional=True)

    async def work(qm: lanner.aio.QueueManager) -> None:
        queue, tx = qm.open(tq.name), qm.transaction()
        waiting = asyncio.create_task(queue.receive(30, transaction=tx))
        await waited(lambda: other.waiting(short(tq)))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(errors.TransactionSequence, match="must be aborted"):
            await queue.send("x", transaction=tx)
        with pytest.raises(errors.TransactionSequence, match="was aborted"):
            await tx.commit()
        async with qm.transaction() as tx:
            await queue.send("one", transaction=tx)
        async with qm.transaction() as tx:
            assert (await queue.receive(30, transaction=tx)).body == "one"

    in_loop(wire, work)


# Ctrl-C
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def interrupted_when(is_time: Callable[[], object]) -> Iterator[None]:
    """Interrupt the main thread as Ctrl-C does."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def interrupt() -> None:
        until(is_time)
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=interrupt)
    sender.start()
    try:
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def qm(wire: RpcWire) -> Iterator[lanner.QueueManager]:
    with lanner.connect(wire.address, "alice", "secret", port=wire.port) as manager:
        yield manager


def test_an_interrupted_wait_takes_nothing(other: OtherManager, qm: lanner.QueueManager, q: lanner.Queue) -> None:
    queue = qm.open(q.name)
    for wait in (queue.receive, queue.peek, queue.cursor().receive):
        with interrupted_when(lambda: other.waiting(short(q))), pytest.raises(KeyboardInterrupt):
            wait(30)
        until(lambda: not other.waiting(short(q)))
    q.send("one")
    assert queue.receive(5).body == "one"


def answer_is_on_its_way(other: OtherManager, wire: RpcWire, q: lanner.Queue, readers: int) -> Callable[[], bool]:
    """Let the first of several reads take a message.

    Its answer is held until the read is cancelled.
    """

    def happen() -> bool:
        until(lambda: other.waiting(short(q)) == readers)
        wire.hold_answers(until=REMOTE_QM_CANCEL_RECEIVE)
        q.send("one")
        until(lambda: other.waiting(short(q)) == readers - 1)
        return True

    return happen


def test_an_interrupted_receive_gives_back_the_message_that_was_on_its_way(
    other: OtherManager, wire: RpcWire, qm: lanner.QueueManager, q: lanner.Queue
) -> None:
    queue = qm.open(q.name)
    with interrupted_when(answer_is_on_its_way(other, wire, q, 1)), pytest.raises(KeyboardInterrupt):
        queue.receive(30)
    assert q.receive(0).body == "one"
    # The connection and the queue object are as good as before.
    q.send("two")
    assert queue.receive(5).body == "two"


def test_reads_of_other_threads_continue_after_an_interrupted_one(
    other: OtherManager, wire: RpcWire, qm: lanner.QueueManager, q: lanner.Queue
) -> None:
    """The handle that all of them have is closed, because that gives the message back."""
    queue = qm.open(q.name)
    got: list[bytes | str] = []

    def follow() -> None:
        until(lambda: other.waiting(short(q)))
        got.append(queue.receive(30).body)

    thread = threading.Thread(target=follow)
    thread.start()
    with interrupted_when(answer_is_on_its_way(other, wire, q, 2)), pytest.raises(KeyboardInterrupt):
        queue.receive(30)
    thread.join()
    assert got == ["one"]


def test_an_interrupt_while_a_message_is_acknowledged_leaves_it_in_doubt(
    wire: RpcWire, qm: lanner.QueueManager, q: lanner.Queue
) -> None:
    queue = qm.open(q.name)
    with pytest.raises(errors.IOTimeout):
        queue.receive(0)
    q.send("one")
    wire.hold_answers(since=2)
    with (
        interrupted_when(lambda: REMOTE_QM_END_RECEIVE.opnum in wire.seen),
        pytest.raises(errors.ReceiveInDoubt) as raised,
    ):
        queue.receive(0)
    assert raised.value.message.body == "one"
    with pytest.raises(errors.IOTimeout):
        q.receive(0)


def test_an_interrupted_block_gives_its_messages_back(qm: lanner.QueueManager, q: lanner.Queue) -> None:
    q.send_many(["a", "b"])
    with pytest.raises(KeyboardInterrupt), qm.open(q.name).receiving(2, 0):
        raise KeyboardInterrupt
    assert bodies(q.receive_many(5)) == ["a", "b"]


def test_a_transaction_whose_receive_was_interrupted_must_be_aborted(
    other: OtherManager, near: lanner.QueueManager, qm: lanner.QueueManager
) -> None:
    tq = near.create_queue(rf"alpha\private$\t{next(_numbers)}", transactional=True)
    queue, tx = qm.open(tq.name), qm.transaction()
    with interrupted_when(lambda: other.waiting(short(tq))), pytest.raises(KeyboardInterrupt):
        queue.receive(30, transaction=tx)
    with pytest.raises(errors.TransactionSequence, match="was aborted"):
        tx.commit()
    with near.transaction() as other_tx:
        tq.send("one", transaction=other_tx)
    assert queue.receive(5).body == "one"
