"""Requirements of MS-MQMQ 2.2.19 and 2.2.20 for a queue manager.

Covered: priorities, times, recovery and transactions in packets.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.model.enums import (
    INFINITE,
    Acknowledgements,
    DeliveryGuarantee,
    EnqueueStatus,
    MessageClass,
)
from lanner.security.identity import SYSTEM
from lanner.wire.message import Message
from tests.engine.harness import Harness


def insert(h: Harness, message: Message, queue: str = "q") -> MessageClass:
    """Let a message come from another queue manager."""
    return h.engine.insert_message(h.queue(queue), message, SYSTEM)


@pytest.mark.spec("MQMQ-2.2.19.1-3")
class TestPriority:
    def test_a_higher_priority_is_nearer_the_front(self, h: Harness) -> None:
        """0 to 7, by default 3; equal priorities are in order of arrival."""
        h.create()
        order = [3, 0, 7, None, 1, 6, 2, 5, 4, 7]
        for number, priority in enumerate(order):
            given_priority: dict[str, Any] = {} if priority is None else {"priority": priority}
            h.send(body=bytes([number]), **given_priority)
        expected = sorted(range(len(order)), key=lambda n: -(3 if order[n] is None else order[n]))  # type: ignore[operator]
        assert h.bodies() == [bytes([number]) for number in expected]
        assert [message.priority for message in h.messages()] == [7, 7, 6, 5, 4, 3, 3, 2, 1, 0]

    def test_also_of_messages_that_come_from_elsewhere(self, h: Harness) -> None:
        h.create()
        for priority in range(8):
            assert insert(h, h.message(bytes([priority]), priority=priority)) is MessageClass.ACK_REACH_QUEUE
        assert h.bodies() == [bytes([priority]) for priority in reversed(range(8))]

    def test_a_transactional_message_carries_0(self, h: Harness) -> None:
        """Whatever the application asked for, and so they stay in the order they were sent in."""
        h.create(transactional=True)
        transaction = h.begin()
        for priority in (1, 7, 4):
            h.send(body=bytes([priority]), priority=priority, transaction=transaction)
        h.commit(transaction)
        found = h.messages()
        assert [message.body[0] for message in found] == [1, 7, 4]
        assert all(message.packet[2] & 7 == 0 for message in found)


@pytest.mark.spec("MQMQ-2.2.19.1-7")
@pytest.mark.parametrize(
    ("time_to_reach_queue", "age", "is_taken"),
    [(50, 0, True), (50, 50, True), (50, 51, False), (0, 0, True), (0, 1, False), (INFINITE, 10_000_000, True)],
)
def test_a_message_that_was_too_long_on_its_way_is_ignored(
    h: Harness, time_to_reach_queue: int, age: int, is_taken: bool
) -> None:
    """MS-MQMQ 2.2.19.1: expired when now - SentTime is greater than TimeToReachQueue."""
    h.create()
    h.create("admin")
    message = h.message(
        b"late",
        time_to_reach_queue=time_to_reach_queue,
        acknowledgements_requested=Acknowledgements.FULL_REACH_QUEUE,
        administration_queue_format_name=h.name("admin"),
    )
    h.now += age
    expected = MessageClass.ACK_REACH_QUEUE if is_taken else MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert insert(h, message) is expected
    assert h.bodies() == ([b"late"] if is_taken else [])
    assert [answer.message_class for answer in h.messages("admin")] == [expected]
    status = EnqueueStatus.OK if is_taken else EnqueueStatus.TIMED_OUT_IN_TRANSIT
    assert h.engine.enqueue_message(h.queue(), message) is status


@pytest.mark.spec("MQMQ-2.2.19.2-4")
def test_recoverable_messages_reappear_after_a_restart(h: Harness) -> None:
    """DM 0 is express, 1 recoverable; express ones need not reappear, and do not."""
    h.create()
    h.create("transactional", transactional=True)
    h.send(body=b"express", recoverable=False)
    h.send(body=b"recoverable")
    assert insert(h, h.message(b"from elsewhere")) is MessageClass.ACK_REACH_QUEUE
    assert insert(h, h.message(b"express too", recoverable=False)) is MessageClass.ACK_REACH_QUEUE
    transaction = h.begin()
    # A transactional message is recoverable, whatever was asked for.
    h.send("transactional", b"in a transaction", recoverable=False, transaction=transaction)
    h.commit(transaction)
    modes = {message.body: message.packet[60] >> 5 & 3 for message in _peeked(h)}
    assert modes == {b"express": 0, b"recoverable": 1, b"from elsewhere": 1, b"express too": 0}
    h.restart()
    assert h.bodies() == [b"recoverable", b"from elsewhere"]
    h.sync()
    h.crash()
    assert h.bodies() == [b"recoverable", b"from elsewhere"]
    (message,) = h.messages("transactional")
    assert message.body == b"in a transaction"
    assert message.delivery_guarantee is DeliveryGuarantee.RECOVERABLE


def _peeked(h: Harness) -> list[Message]:
    queue = h.queue()
    found = []
    for lookup_id in h.lookup_ids().values():
        position = h.store.get(queue.number, lookup_id)
        assert position is not None
        found.append(Message(position.packet))
    return found


@pytest.mark.spec("MQMQ-2.2.19.2-12")
class TestTimeToBeReceived:
    def test_it_runs_from_sending_and_ends_in_the_destination_queue(self, h: Harness) -> None:
        h.create()
        sent = int(h.now)
        h.send(body=b"short", time_to_be_received=10)
        h.send(body=b"for ever", time_to_be_received=INFINITE)
        elsewhere = h.message(b"from elsewhere", time_to_be_received=10)
        h.now += 5
        assert insert(h, elsewhere) is MessageClass.ACK_REACH_QUEUE
        assert {message.body: message.sent_time for message in _peeked(h)} == {
            b"short": sent,
            b"for ever": sent,
            b"from elsewhere": sent,
        }
        h.tick(4)
        assert h.bodies() == [b"short", b"for ever", b"from elsewhere"]
        # Six seconds after it came, but eleven after it was sent.
        h.tick(2)
        assert h.bodies() == [b"for ever"]
        h.tick(1_000_000_000)
        assert h.bodies() == [b"for ever"]

    def test_sent_time_is_unix_seconds(self, h: Harness) -> None:
        h.create()
        h.now = 1_750_000_000.75
        h.send()
        assert _peeked(h)[0].packet[52:56] == (1_750_000_000).to_bytes(4, "little")


@pytest.mark.spec("MQMQ-2.2.19.3-6")
class TestOpaqueFields:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
    @given(st.binary(min_size=20, max_size=20), st.integers(0, 0xFFFF_FFFF))
    def test_correlation_and_tag_pass_through(self, h: Harness, correlation: bytes, tag: int) -> None:
        if "q" not in {queue.pathname.rpartition("\\")[2] for queue in h.engine.local_queues()}:
            h.create()
        h.send(correlation_identifier=correlation, application_tag=tag)
        insert(h, h.message(correlation_identifier=correlation, application_tag=tag))
        for message in h.messages():
            assert (message.correlation_identifier, message.application_tag) == (correlation, tag)

    def test_an_acknowledgment_has_the_identifier_of_what_it_acknowledges(self, h: Harness) -> None:
        """MessageID and SourceQueueManager of the original, as a MessageIdentifier."""
        h.create()
        h.create("admin")
        asking: dict[str, Any] = {
            "acknowledgements_requested": Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE,
            "administration_queue_format_name": h.name("admin"),
            "correlation_identifier": bytes(range(20)),
        }
        arrived = h.message(b"arrives", **asking)
        refused = h.message(b"refused", time_to_reach_queue=0, **asking)
        assert insert(h, arrived) is MessageClass.ACK_REACH_QUEUE
        h.receive()
        h.now += 1
        assert insert(h, refused) is MessageClass.NACK_REACH_QUEUE_TIMEOUT
        answers = h.messages("admin")
        assert [answer.message_class for answer in answers] == [
            MessageClass.ACK_REACH_QUEUE,
            MessageClass.ACK_RECEIVE,
            MessageClass.NACK_REACH_QUEUE_TIMEOUT,
        ]
        originals = (arrived, arrived, refused)
        for answer, original in zip(answers, originals, strict=True):
            expected = original.packet[16:32] + original.packet[56:60]
            assert answer.correlation_identifier == expected == original.identifier.pack()


@pytest.mark.spec("MQMQ-2.2.20.5-3")
class TestTransactionFlags:
    def test_first_and_last_are_marked_and_all_share_one_number(self, h: Harness) -> None:
        h.create(transactional=True)
        h.create("other", transactional=True)
        first, second = h.begin(), h.begin()
        for number in range(3):
            h.send("other" if number == 1 else "q", bytes([number]), transaction=first)
        h.send(body=b"single", transaction=second)
        h.commit(first)
        h.commit(second)
        found = {message.body: message for message in [*h.messages(), *h.messages("other")]}
        flags = {body: (message.first_in_transaction, message.last_in_transaction) for body, message in found.items()}
        assert flags == {
            b"\0": (True, False),
            b"\1": (False, False),
            b"\2": (False, True),
            b"single": (True, True),
        }
        numbers = {body: message.transaction_identifier for body, message in found.items()}
        assert numbers[b"\0"] == numbers[b"\1"] == numbers[b"\2"] != numbers[b"single"]
        assert all(number is not None and number < 1 << 20 for number in numbers.values())

    def test_a_number_is_not_given_twice_also_after_a_restart(self, h: Harness) -> None:
        h.create(transactional=True)
        for _ in range(3):
            for _ in range(5):
                transaction = h.begin()
                h.send(transaction=transaction)
                h.commit(transaction)
            h.restart()
        numbers = [message.transaction_identifier for message in h.messages()]
        assert len(numbers) == len(set(numbers)) == 15
