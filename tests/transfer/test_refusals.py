"""Rejected messages: the table and its log.

Also the counts that two queue managers keep of each other's messages.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.model.enums import Acknowledgements, MessageClass
from lanner.transfer import refusals as module
from lanner.transfer.deadlines import NEVER
from lanner.transfer.packets import FinalAckBody, acknowledgment_properties
from lanner.transfer.refusals import OTHER, UNVERIFIED_SOURCE, Refusals, class_name, is_refusal, printable
from lanner.wire.builder import build
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier, TxSequenceID
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from tests.transfer.incoming_harness import OPEN_TO_ALL
from tests.transfer.world import Node, World, strange_session

SOURCE = UUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
_ordinals = itertools.count(1)


class Table:
    """A table on a clock that stands still."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rows = Refusals(lambda: 1_700_000_000.0 + self.now, lambda: self.now)

    def here(
        self, queue: str, message_class: str = "nack_bad_dest_queue", *, known: bool = False, detail: str = ""
    ) -> None:
        message = MessageIdentifier(SOURCE, next(_ordinals))
        self.rows.refused_here(queue, message_class, peer="192.0.2.7", message=message, detail=detail, is_known=known)

    def peer(self, queue: str, message_class: int, ordinal: int) -> None:
        message = MessageIdentifier(SOURCE, ordinal)
        self.rows.refused_by_peer(queue, message_class, peer="192.0.2.7", message=message, is_known=True)


@pytest.fixture
def table() -> Table:
    return Table()


def counts(rows: Refusals) -> dict[tuple[str, str, str], int]:
    return {(row.side.value, row.queue, row.message_class): row.count for row in rows}


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == module.__name__]


# The table
# --------------------------------------------------------------------------------------------------


def test_refusals_are_counted_by_side_queue_and_class(table: Table) -> None:
    table.here("a")
    table.here("A")
    table.here("a", "nack_access_denied")
    table.here("b")
    table.peer("a", MessageClass.NACK_BAD_DEST_QUEUE, 1)
    assert counts(table.rows) == {
        ("here", "a", "nack_access_denied"): 1,
        ("here", "a", "nack_bad_dest_queue"): 2,
        ("here", "b", "nack_bad_dest_queue"): 1,
        ("peer", "a", "nack_bad_dest_queue"): 1,
    }
    assert table.rows.total == 5


def test_a_row_shows_the_last_message(table: Table) -> None:
    table.here("a", "nack_queue_exceed_quota", detail="first")
    table.now += 100
    table.here("a", "nack_queue_exceed_quota", detail="quota 1 KiB")
    (row,) = table.rows
    document = row.document()
    assert str(document.pop("last_message")).startswith(f"{SOURCE}\\")
    assert document == {
        "side": "here",
        "queue": "a",
        "class": "nack_queue_exceed_quota",
        "messages": 2,
        "last_time": "2023-11-14T22:31:40+00:00",
        "last_peer": "192.0.2.7",
        "detail": "quota 1 KiB",
        "advice": "receive or purge messages of the queue, or raise its quota",
    }


def test_invented_names_are_counted_together_beyond_a_limit_and_displace_no_queue(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_UNKNOWN_QUEUES", 3)
    monkeypatch.setattr(module, "MAX_KNOWN_QUEUES", 2)
    for name in ("x1", "x2", "x3", "x4", "x5", "x1"):
        table.here(name)
    assert {row.queue: row.count for row in table.rows} == {"x1": 2, "x2": 1, "x3": 1, OTHER: 2}
    for name in ("known1", "known2", "known3", "known1"):
        table.here(name, known=True)
    assert {row.queue: row.count for row in table.rows} == {
        "x1": 2, "x2": 1, "x3": 1, OTHER: 3, "known1": 2, "known2": 1,
    }  # fmt: skip
    table.peer("known3", MessageClass.NACK_BAD_DEST_QUEUE, 1)
    assert ("peer", "known3", "nack_bad_dest_queue") in counts(table.rows)


def test_what_a_peer_reports_twice_is_counted_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REPORTED", 2)
    for ordinal in (1, 1, 2, 1):
        table.peer("a", MessageClass.NACK_ACCESS_DENIED, ordinal)
    assert table.rows.total == 2
    # Of a third one, the oldest report makes room.
    table.peer("a", MessageClass.NACK_ACCESS_DENIED, 3)
    table.peer("a", MessageClass.NACK_ACCESS_DENIED, 1)
    assert table.rows.total == 4


def test_classes_that_say_a_message_was_refused() -> None:
    """MS-MQMQ 2.2.18.1.6: negative arrival acknowledgments.

    An unknown class has no row of its own.
    """
    refused = {one for one in MessageClass if is_refusal(one)}
    assert min(refused) == MessageClass.NACK_BAD_DEST_QUEUE
    assert max(refused) == MessageClass.NACK_UNSUPPORTED_CRYPTO_PROVIDER
    assert not is_refusal(MessageClass.NACK_RECEIVE_TIMEOUT)
    assert class_name(0x8000) == "nack_bad_dest_queue"
    assert {class_name(number) for number in range(0x800C, 0x8100)} == {OTHER}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"BETA\private$\orders", r"BETA\private$\orders"),
        ("a\x1b[31m\n\x9b\u202e\ud800z", r"a\x1b[31m\n\x9b\u202e\ud800z"),
        ("x" * 256, "x" * 256),
        ("x" * 257, "x" * 256 + "..."),
        ("\n" * 100_000, r"\n" * 128 + "..."),
    ],
)
def test_text_of_peers_is_bounded_and_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_and_details_of_peers_are_escaped_in_the_log(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.here("evil\x1b]0;title\x07", detail="two\nlines")
    (line,) = lines(caplog)
    assert line.isprintable()
    assert r"for evil\x1b]0;title\x07 refused: nack_bad_dest_queue (two\nlines)" in line


# The log
# --------------------------------------------------------------------------------------------------


def test_one_line_per_queue_class_and_minute(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.here("a")
    assert table.rows.deadline.due == NEVER
    for _ in range(3):
        table.now += 19
        table.here("a")
    assert len(lines(caplog)) == 1
    # The rest of the minute has its line when the minute is over, also if nothing more is refused.
    assert table.rows.deadline.due == 1060
    table.now = 1059.9
    table.rows.on_timer()
    assert len(lines(caplog)) == 1
    table.now = 1060.0
    table.rows.on_timer()
    first, second = lines(caplog)
    assert first.startswith("1 message from 192.0.2.7 for a refused: nack_bad_dest_queue; the last is ")
    assert first.endswith(", 1 so far; create the queue, or correct the name that the sender uses")
    assert second.startswith("3 messages from 192.0.2.7 for a refused: ")
    assert ", 4 so far; " in second
    assert table.rows.deadline.due == NEVER
    assert {one.levelno for one in caplog.records} == {logging.WARNING}


def test_queues_and_classes_have_lines_of_their_own(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    for queue, message_class in itertools.product("ab", ("nack_bad_dest_queue", UNVERIFIED_SOURCE)):
        table.here(queue, message_class)
    table.peer("a", MessageClass.NACK_BAD_DEST_QUEUE, 1)
    assert len(lines(caplog)) == 5
    assert lines(caplog)[-1].startswith("192.0.2.7 refused 1 message for a: nack_bad_dest_queue; ")


def test_the_timer_is_set_for_the_earliest_line(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    table.here("a")
    table.now += 10
    table.here("b")
    table.here("b")
    assert table.rows.deadline.due == 1070
    table.here("a")
    assert table.rows.deadline.due == 1060
    table.now = 1060
    table.rows.on_timer()
    assert (len(lines(caplog)), table.rows.deadline.due) == (3, 1070)
    # A refusal after the minute has its line at once, with those before it.
    table.now = 1071
    table.here("b")
    assert lines(caplog)[-1].startswith("2 messages ")
    table.rows.on_timer()
    assert (len(lines(caplog)), table.rows.deadline.due) == (4, NEVER)


def test_what_is_not_logged_yet_is_logged_at_the_end(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        table.here("a")
    table.rows.flush()
    assert [line.split()[0] for line in lines(caplog)] == ["1", "2"]
    table.rows.flush()
    assert len(lines(caplog)) == 2


# Two queue managers
# ------------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def alpha(world: World) -> Node:
    alpha = world.node("ALPHA", "127.0.0.2")
    alpha.create("admin", security=OPEN_TO_ALL)
    return alpha


@pytest.fixture
def beta(world: World) -> Node:
    beta = world.node("BETA", "127.0.0.3")
    beta.create("plain", security=OPEN_TO_ALL)
    beta.create("tx", transactional=True, security=OPEN_TO_ALL)
    beta.create("full", quota=0, security=OPEN_TO_ALL)
    beta.create("fulltx", quota=0, transactional=True, security=OPEN_TO_ALL)
    beta.create("closed", security=parse_sddl("O:SYG:SYD:(A;;0x4;;;SY)").pack())
    beta.create("signed", authentication=True, security=OPEN_TO_ALL)
    return beta


def told(node: Node) -> dict[tuple[str, str, str], int]:
    return counts(node.transfer.incoming.refusals)


def dead_letters(node: Node) -> list[bytes]:
    return node.bodies(rf"DIRECT=OS:{node.engine.queue_manager.computer_name}\SYSTEM$;DEADLETTER")


def transactional_dead_letters(node: Node) -> list[tuple[bytes, int]]:
    name = rf"DIRECT=OS:{node.engine.queue_manager.computer_name}\SYSTEM$;DEADXACT"
    return [(message.body, message.message_class) for message in node.messages(name)]


@pytest.mark.parametrize("recoverable", [False, True], ids=["express", "recoverable"])
@pytest.mark.parametrize(
    ("queue", "message_class", "is_kept"),
    [
        ("none", "nack_bad_dest_queue", False),
        ("tx", "nack_not_transactional_message", False),
        ("full", "nack_queue_exceed_quota", True),
        ("closed", "nack_access_denied", False),
        ("signed", "nack_bad_signature", False),
    ],
)
def test_plain_messages_are_counted_where_they_are_refused(
    world: World, alpha: Node, beta: Node, queue: str, message_class: str, recoverable: bool, is_kept: bool
) -> None:
    """The receiver discards rejected messages (MS-MQQB 3.1.5.8.2, 3.1.5.8.3).

    3.1.5.8.8: it keeps the dead letter of a full queue.
    """
    for body, asks in ((b"1", False), (b"2", False), (b"3", True), (b"4", True)):
        alpha.send(beta.direct(queue), body, recoverable=recoverable, negative_journaling_requested=asks)
    alpha.sync()
    world.tick(40)
    assert alpha.outgoing(beta.direct(queue)).message_count == 0
    assert told(beta) == {("here", rf"BETA\private$\{queue}", message_class): 4}
    assert dead_letters(beta) == ([b"3", b"4"] if is_kept else [])
    # The receiver was not asked to report it.
    assert told(alpha) == {}
    assert dead_letters(alpha) == []


@pytest.mark.parametrize("asks", [False, True], ids=["no dead letter", "dead letter"])
@pytest.mark.parametrize(
    ("queue", "message_class"),
    [
        ("none", MessageClass.NACK_BAD_DEST_QUEUE),
        ("plain", MessageClass.NACK_NOT_TRANSACTIONAL_QUEUE),
        ("fulltx", MessageClass.NACK_QUEUE_EXCEED_QUOTA),
    ],
)
def test_transactional_messages_are_counted_on_both_sides(
    world: World, alpha: Node, beta: Node, queue: str, message_class: MessageClass, asks: bool
) -> None:
    """3.1.5.8.2, 3.1.5.7: a FinalAck reports each; the dead letter is the sender's."""
    there = beta.direct(queue)
    for body in (b"1", b"2"):
        alpha.commit_one(there, body, negative_journaling_requested=asks)
    alpha.sync()
    world.tick(10)
    name = message_class.name.lower()
    assert told(beta) == {("here", rf"BETA\private$\{queue}", name): 2}
    assert told(alpha) == {("peer", there, name): 2}
    assert transactional_dead_letters(alpha) == ([(b"1", message_class), (b"2", message_class)] if asks else [])
    assert transactional_dead_letters(beta) == []
    assert dead_letters(beta) == []


def test_negative_acknowledgments_are_counted_by_the_sender(world: World, alpha: Node, beta: Node) -> None:
    """3.1.5.11, 3.1.7.15: insecure ones are not sent by default.

    Positive and receive acknowledgments are no refusals.
    """
    asking: dict[str, Any] = {
        "acknowledgements_requested": Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE,
        "administration_queue_format_name": parse(alpha.direct("admin")),
    }
    for queue in ("plain", "tx", "full", "none"):
        alpha.send(beta.direct(queue), b"x", **asking)
    alpha.sync()
    world.tick(3)
    beta.engine.purge_queue(beta.queue("plain"))
    beta.sync()
    world.tick(3)
    assert told(alpha) == {
        ("peer", beta.direct("tx"), "nack_not_transactional_message"): 1,
        ("peer", beta.direct("full"), "nack_queue_exceed_quota"): 1,
    }
    assert sorted(message.message_class for message in alpha.messages("admin")) == [0x0002, 0x8003, 0x800A, 0xC001]


def test_a_refusal_that_is_reported_by_both_acknowledgments_is_one_refusal(
    world: World, alpha: Node, beta: Node
) -> None:
    alpha.commit_one(
        beta.direct("plain"),
        b"x",
        acknowledgements_requested=Acknowledgements.FULL_REACH_QUEUE,
        administration_queue_format_name=parse(alpha.direct("admin")),
    )
    alpha.sync()
    world.tick(10)
    assert [message.message_class for message in alpha.messages("admin")] == [0x8009]
    assert told(alpha) == {("peer", beta.direct("plain"), "nack_not_transactional_queue"): 1}


def test_an_acknowledgment_of_anothers_message_is_not_counted(world: World, alpha: Node, beta: Node) -> None:
    for correlation in (beta.guid.bytes_le + bytes(4), bytes(20)):
        beta.send(
            alpha.direct("admin"),
            b"",
            message_class=MessageClass.NACK_QUEUE_EXCEED_QUOTA,
            correlation_identifier=correlation,
            response_queue_format_name=parse(beta.direct("full")),
        )
    beta.sync()
    world.tick(3)
    assert len(alpha.messages("admin")) == 2
    assert told(alpha) == {}


@pytest.mark.parametrize("claims", [False, True], ids=["of nothing", "of a real sequence"])
def test_a_final_ack_that_a_stranger_invents_is_not_counted(
    world: World, alpha: Node, beta: Node, claims: bool
) -> None:
    """Identifiers of messages and sequences can be guessed."""
    alpha.commit_one(beta.direct("tx"), b"x")
    alpha.sync()
    world.tick(3)
    sequence = alpha.engine.outgoing_sequence(alpha.outgoing(beta.direct("tx")))
    assert sequence is not None
    tx_sequence_id = TxSequenceID(1, sequence.time_stamp) if claims else TxSequenceID(1, 5)
    _, link = strange_session(alpha, "127.0.0.66")
    final_ack = build(
        acknowledgment_properties(MessageClass.NACK_ACCESS_DENIED, FinalAckBody(tx_sequence_id, 1, 0, alpha.guid, 0)),
        source=link.remote_qm_guid,
        ordinal=1,
        sent_time=int(world.now),
        destination=parse(rf"DIRECT=TCP:{alpha.address}\PRIVATE$\order_queue$"),
    )
    assert Message.unpack(final_ack).message_class == MessageClass.NACK_ACCESS_DENIED
    alpha.transfer.data_received(link, final_ack)
    world.run()
    assert link.is_open
    assert told(alpha) == {}


def test_one_queue_has_one_row_whichever_name_its_senders_use(world: World, alpha: Node, beta: Node) -> None:
    for name in (beta.direct("none"), beta.direct("NONE"), r"DIRECT=OS:beta\private$\none"):
        alpha.send(name, b"x")
    alpha.send(beta.direct("FULL"), b"x")
    alpha.sync()
    world.tick(3)
    assert told(beta) == {
        ("here", r"BETA\private$\full", "nack_queue_exceed_quota"): 1,
        ("here", r"BETA\private$\none", "nack_bad_dest_queue"): 3,
    }


@pytest.mark.parametrize("is_stopped", [False, True], ids=["a minute later", "at the end"])
def test_the_log_has_every_refusal(
    world: World, alpha: Node, beta: Node, caplog: pytest.LogCaptureFixture, is_stopped: bool
) -> None:
    """The sender has requested nothing, or must not be told.

    Without the log nobody would know where the messages are.
    """
    for _ in range(4):
        alpha.send(beta.direct("full"), b"x" * 10)
    alpha.sync()
    world.tick(2)
    (first,) = lines(caplog)
    assert first.startswith(
        r"1 message from 127.0.0.2 for BETA\private$\full refused: nack_queue_exceed_quota (quota 0 KiB, "
    )
    assert str(alpha.guid) in first
    assert first.endswith("receive or purge messages of the queue, or raise its quota")
    end: Callable[[], object] = beta.stop if is_stopped else lambda: world.tick(60)
    end()
    assert lines(caplog)[1].startswith(r"3 messages from 127.0.0.2 for BETA\private$\full refused: ")
    assert len(lines(caplog)) == 2
