"""Enqueue Message To An Open Queue, to one destination and to several (MS-MQDMPR 3.1.7.1.27)."""

from __future__ import annotations

import pytest

from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import DirectoryOperationResult, EnqueueStatus, QueueAccessType, QueueShareMode
from lanner.model.errors import (
    QueueNotAvailable,
    QueueNotFound,
    StatusError,
    TransactionUsage,
    UnsupportedAccessMode,
    UnsupportedFormatnameOperation,
)
from lanner.model.live import OpenQueueDescriptor
from lanner.wire.message import Message
from tests.engine.harness import START_TIME, Harness
from tests.statuses import MQ_ERROR_QUEUE_NOT_AVAILABLE

A, B, C = (rf"DIRECT=OS:.\private$\{name}" for name in "abc")
FAR = r"DIRECT=OS:BETA\private$\q"


def open_all(h: Harness, *names: str) -> OpenQueueDescriptor:
    return h.open(",".join(names), QueueAccessType.SEND)


def in_outgoing(h: Harness, name: str) -> list[Message]:
    descriptor = h.open(name, QueueAccessType.RECEIVE_ADMIN)
    found = []
    while (position := h.engine.try_dequeue_message(descriptor)) is not None:
        found.append(Message(position.record.packet))
    h.engine.close_queue(descriptor)
    return found


# One destination
# --------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.27-1")
def test_a_send_gives_the_status_of_the_enqueue(h: Harness) -> None:
    """3.1.7.1.27: 0; 1 for the queue's quota, 2 for the queue manager's."""
    h.create("a", quota=1)
    sender = h.open("a", QueueAccessType.SEND)

    def send(size: int) -> EnqueueStatus:
        return h.engine.enqueue_message_to_an_open_queue(sender, h.properties(bytes(size)))

    assert send(10) == 0
    assert send(2000) == 1
    h.engine.queue_manager.queue_manager_quota = 1
    assert send(2000) == 2
    assert h.bodies("a") == [bytes(10)]


@pytest.mark.spec("DMPR-3.1.7.1.27-1")
def test_a_message_too_late_for_its_queue_is_status_3(h: Harness) -> None:
    """3.1.7.1.27: timed out in transit.

    A send takes no time, unless the clock is set between its two looks at it.
    """
    h.create("a")
    sender = h.open("a", QueueAccessType.SEND)
    times = [START_TIME, START_TIME + 11]
    h.engine.clocks.wall = lambda: times.pop(0) if len(times) > 1 else times[0]
    status = h.engine.enqueue_message_to_an_open_queue(sender, h.properties(time_to_reach_queue=10))
    assert int(status) == 3
    assert h.bodies("a") == []


@pytest.mark.spec("DMPR-3.1.7.1.27-1")
def test_a_message_to_one_queue_lists_no_destinations(h: Harness) -> None:
    """3.1.7.1.27: only a multiple descriptor sets DestinationMultiQueueFormatName."""
    h.create("a")
    h.send("a", b"x")
    (message,) = h.messages("a")
    assert message.destination_multi_queue_format_name is None
    assert (message.body, str(message.destination_queue_format_name)) == (b"x", r"DIRECT=OS:ALPHA\private$\a")


@pytest.mark.spec("DMPR-3.1.7.1.27-4")
@pytest.mark.parametrize("names", [(A,), (A, B)], ids=["one", "several"])
def test_a_handle_outlives_its_queue_but_sends_no_more(h: Harness, names: tuple[str, ...]) -> None:
    """3.1.7.1.27 with QueueReference NULL: MQ_ERROR_QUEUE_NOT_AVAILABLE, nothing stored."""
    queue, _ = h.create("a"), h.create("b")
    sender = open_all(h, *names)
    h.engine.delete_queue(queue)
    before = h.engine.queue_manager.total_bytes
    with pytest.raises(QueueNotAvailable) as raised:
        h.engine.enqueue_message_to_an_open_queue(sender, h.properties(b"x"))
    assert raised.value.status == MQ_ERROR_QUEUE_NOT_AVAILABLE
    assert h.engine.queue_manager.total_bytes == before
    assert h.bodies("b") == []
    # A new queue of the same name is another queue.
    h.create("a")
    with pytest.raises(QueueNotAvailable):
        h.engine.enqueue_message_to_an_open_queue(sender, h.properties(b"x"))
    assert h.bodies("a") == []


# Several destinations
# ---------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.7.1.27-2", "MQMQ-2.2.20.1-2")
def test_each_destination_gets_a_message_of_its_own_that_lists_all(h: Harness) -> None:
    """3.1.7.1.27: a copy per element with its own destination.

    MS-MQMQ 2.2.20.1: each copy lists every destination.
    """
    h.create("a")
    h.create("b")
    sender = open_all(h, B, FAR, A)
    assert h.engine.enqueue_message_to_an_open_queue(sender, h.properties(b"x", label="to all")) == 0
    copies = [*h.messages("a"), *h.messages("b"), *in_outgoing(h, FAR)]
    here = r"DIRECT=OS:ALPHA\private$"
    assert [str(copy.destination_queue_format_name) for copy in copies] == [rf"{here}\a", rf"{here}\b", FAR]
    everyone = {rf"{here}\a", rf"{here}\b", FAR}
    for copy in copies:
        listed = copy.destination_multi_queue_format_name
        assert listed is not None
        assert {str(name) for name in listed.elements} == everyone
        assert (copy.body, copy.label) == (b"x", "to all")
    assert len({copy.identifier for copy in copies}) == len(copies)


@pytest.mark.spec("DMPR-3.1.7.1.27-2", "MQMQ-2.2.20.1-2")
def test_a_distribution_list_is_sent_to_its_members(h: Harness) -> None:
    """3.1.7.1.27: the name in the message is the expanded one."""
    public = h.create(r".\orders")
    h.create("a")
    members = [f"PUBLIC={public.identifier}", r"DIRECT=OS:ALPHA\private$\a"]
    result, guid = h.directory.add_distribution_list("all", members)
    assert result is DirectoryOperationResult.SUCCESS
    h.send(f"DL={guid}", b"x")
    (to_public,), (to_private,) = h.messages(r"DIRECT=OS:.\orders"), h.messages("a")
    assert [str(to_public.destination_queue_format_name), str(to_private.destination_queue_format_name)] == members
    for copy in (to_public, to_private):
        assert {str(name) for name in copy.destination_multi_queue_format_name.elements} == set(members)  # type: ignore[union-attr] # else it fails


@pytest.mark.spec("DMPR-3.1.7.1.27-2")
def test_a_list_of_one_is_no_multiple_destination(h: Harness) -> None:
    """3.1.7.3.8 makes one survivor a single name."""
    h.create("a")
    assert not open_all(h, A, A.lower()).multiple
    h.send(f"{A},{A.upper()}", b"x")
    (message,) = h.messages("a")
    assert message.destination_multi_queue_format_name is None


@pytest.mark.spec("DMPR-3.1.7.1.27-3")
def test_the_first_refusal_ends_the_send(h: Harness) -> None:
    """3.1.7.1.27: the status of the first rejection is returned at once.

    Copies before it stay; elements after it get none.
    """
    h.create("a")
    h.create("b", quota=0)
    h.create("c")
    status = h.engine.enqueue_message_to_an_open_queue(open_all(h, A, B, C), h.properties(b"x"))
    assert status is EnqueueStatus.QUEUE_QUOTA_EXCEEDED
    assert (h.bodies("a"), h.bodies("b"), h.bodies("c")) == ([b"x"], [], [])


@pytest.mark.spec("DMPR-3.1.7.1.27-3")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_all_copies_join_the_transaction(h: Harness, *, commit: bool) -> None:
    """3.1.7.1.27 iTransaction: copies are invisible until it commits and vanish if it aborts.

    This includes the outgoing copy.
    """
    h.create("a", transactional=True)
    h.create("b", transactional=True)
    sender = open_all(h, A, B, FAR)
    transaction = h.begin()
    assert h.engine.enqueue_message_to_an_open_queue(sender, h.properties(b"x"), transaction) == 0
    assert len(transaction.transactional_operations) == 3
    assert (h.bodies("a"), h.bodies("b"), in_outgoing(h, FAR)) == ([], [], [])
    if commit:
        h.commit(transaction)
    else:
        h.abort(transaction)
    wanted = [b"x"] if commit else []
    assert (h.bodies("a"), h.bodies("b")) == (wanted, wanted)
    assert [message.body for message in in_outgoing(h, FAR)] == wanted


def test_a_queue_that_wants_a_transaction_refuses_its_copy(h: Harness) -> None:
    h.create("a")
    h.create("b", transactional=True)
    with pytest.raises(TransactionUsage):
        h.engine.enqueue_message_to_an_open_queue(open_all(h, A, B), h.properties(b"x"))
    assert h.bodies("b") == []


@pytest.mark.parametrize(
    ("access", "share", "error"),
    [
        (QueueAccessType.RECEIVE, QueueShareMode.DENY_NONE, UnsupportedFormatnameOperation),
        (QueueAccessType.PEEK, QueueShareMode.DENY_NONE, UnsupportedFormatnameOperation),
        (QueueAccessType.SEND, QueueShareMode.DENY_RECEIVE, UnsupportedAccessMode),
    ],
)
def test_several_queues_are_opened_together_to_send_and_shared(
    h: Harness, access: QueueAccessType, share: QueueShareMode, error: type[StatusError]
) -> None:
    h.create("a")
    h.create("b")
    with pytest.raises(error):
        h.open(f"{A},{B}", access, share)


def test_one_element_that_cannot_be_opened_closes_the_others(h: Harness) -> None:
    """3.1.7.1.5: the status is that element's; nothing stays open."""
    queue = h.create("a")
    with pytest.raises(QueueNotFound):
        open_all(h, A, B)
    assert not queue.open_queue_descriptors
    assert not queue.active


def test_closing_the_handle_closes_its_children(h: Harness) -> None:
    """DECISIONS: closing a multiple-destination handle closes its children.

    An idle outgoing queue is not active then.
    """
    queue = h.create("a")
    sender = open_all(h, A, FAR)
    (outgoing,) = h.engine.outgoing_queues()
    assert isinstance(outgoing, OutgoingQueue)
    assert (queue.active, outgoing.active) == (True, True)
    h.engine.close_queue(sender)
    assert (queue.active, outgoing.active) == (False, False)
    assert [child.is_closed for child in sender.children] == [True, True]
