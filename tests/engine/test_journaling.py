"""Copies: target journals, the system journal, dead-letter queues (MS-MQDMPR 3.1.1.2, 3.1.1.12)."""

from __future__ import annotations

import pytest

from lanner.model.enums import (
    Acknowledgements,
    MessageClass,
    QueueAccessType,
    QueuePrivacyLevel,
    SenderIdentifierType,
)
from lanner.model.errors import AccessDenied
from lanner.security.identity import SYSTEM, Identity
from lanner.security.profile import Profile
from lanner.wire.builder import MessageProperties
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.engine.harness import OPEN_TO_ALL, Harness, at_once

ELSEWHERE = r"DIRECT=OS:BETA\private$\q"
KILOBYTE = 1024


def machine(h: Harness, suffix: str) -> str:
    return f"MACHINE={h.engine.queue_manager.identifier};{suffix}"


def journal(h: Harness) -> list[bytes]:
    return h.bodies(machine(h, "JOURNAL"))


def dead_letters(h: Harness) -> list[bytes]:
    return h.bodies(machine(h, "DEADLETTER"))


def transactional_dead_letters(h: Harness) -> list[bytes]:
    return h.bodies(machine(h, "DEADXACT"))


# Target journaling
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.2-9")
def test_a_journaling_queue_keeps_a_copy_of_what_is_received(h: Harness) -> None:
    """Journaling True: each destructive read leaves a copy in the queue of JournalQueueReference.

    False: none.
    """
    kept, plain = h.create("kept", journaling=True), h.create("plain")
    for name in ("kept", "plain"):
        h.send(name, b"one", label="first")
        h.send(name, b"two")
        descriptor = h.open(name, QueueAccessType.PEEK)
        h.engine.peek_message(descriptor, timeout=0)
        assert h.bodies(rf"DIRECT=OS:.\private$\{name};journal") == []
        assert h.receive(name) == b"one"
        h.engine.purge_queue(h.queue(name))
    assert kept.journal_queue is not None
    assert plain.journal_queue is not None
    assert kept.journal_queue.pathname == r"ALPHA\private$\kept;journal"
    assert h.bodies(r"DIRECT=OS:.\private$\plain;journal") == []
    (copy,) = h.messages(r"DIRECT=OS:.\private$\kept;journal")
    assert (copy.body, copy.label) == (b"one", "first")


@pytest.mark.spec("DMPR-3.1.1.2-9")
def test_a_receive_is_journaled_when_it_becomes_final(h: Harness) -> None:
    """A transactional receive is journaled at commit, a two-phase read at its end.

    A system queue has no journal.
    """
    h.create("ledger", transactional=True, journaling=True)
    sends = h.begin()
    for body in (b"taken", b"given back"):
        h.send("ledger", body, transaction=sends)
    h.commit(sends)
    keeps, drops = h.begin(), h.begin()
    assert h.receive("ledger", keeps) == b"taken"
    assert h.receive("ledger", drops) == b"given back"
    assert h.bodies(r"DIRECT=OS:.\private$\ledger;journal") == []
    h.commit(keeps)
    h.abort(drops)
    assert h.bodies(r"DIRECT=OS:.\private$\ledger;journal") == [b"taken"]

    h.create("remote", journaling=True)
    h.send("remote", b"read")
    descriptor = h.open("remote")
    position = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))
    assert h.bodies(r"DIRECT=OS:.\private$\remote;journal") == []
    h.engine.dequeue_message_end(descriptor, position, delete_message=True)
    assert h.bodies(r"DIRECT=OS:.\private$\remote;journal") == [b"read"]

    system = h.engine.queue_manager.system_journal_queue
    assert system is not None
    system.journaling = True
    h.create("source")
    h.send("source", b"copied", positive_journaling_requested=True)
    assert h.receive(machine(h, "JOURNAL")) == b"copied"
    assert journal(h) == []


def test_a_full_journal_drops_the_copy_and_not_the_message(h: Harness) -> None:
    """MS-MQDMPR 3.1.1.2 JournalQuota, in kilobytes."""
    queue = h.create(journaling=True, journal_quota=1)
    for body in (b"a" * 700, b"b" * 700):
        h.send(body=body)
        assert h.receive() == body
    assert h.bodies(r"DIRECT=OS:.\private$\q;journal") == [b"a" * 700]
    assert queue.journal_queue is not None
    assert queue.journal_queue.total_bytes < KILOBYTE


# Source journaling
# ------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.12-11")
def test_the_source_keeps_a_copy_of_a_delivered_message_if_asked(h: Harness) -> None:
    """PositiveJournalingRequested: a copy in the system journal on delivery.

    False, the default, leaves none.
    """
    h.create()
    h.create("ledger", transactional=True)
    h.send(body=b"plain")
    assert journal(h) == []
    h.send(body=b"kept", positive_journaling_requested=True, negative_journaling_requested=True)
    assert journal(h) == [b"kept"]
    assert dead_letters(h) == []

    transaction = h.begin()
    h.send("ledger", b"committed", transaction=transaction, positive_journaling_requested=True)
    assert journal(h) == [b"kept"], "not delivered before the commit"
    h.commit(transaction)
    assert journal(h) == [b"kept", b"committed"]

    # Not delivered yet, and from another sender: no copy here.
    h.send(ELSEWHERE, b"waits", positive_journaling_requested=True)
    foreign = h.message(b"theirs", positive_journaling_requested=True)
    assert h.engine.insert_message(h.queue(), foreign, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    assert journal(h) == [b"kept", b"committed"]


@pytest.mark.spec("DMPR-3.1.1.12-11")
def test_a_full_system_journal_drops_the_copy(h: Harness) -> None:
    """If the quota of the system queue journal is exceeded, the copy is discarded.

    Delivery is unaffected.
    """
    h.settings["journal_quota"] = 1
    h.restart()
    h.create()
    for body in (b"a" * 700, b"b" * 700):
        h.send(body=body, positive_journaling_requested=True)
    assert journal(h) == [b"a" * 700]
    assert h.bodies() == [b"a" * 700, b"b" * 700]


# Dead letters
# -----------------------------------------------------------------------------------------------


@pytest.mark.spec("DMPR-3.1.1.12-12")
def test_the_source_keeps_an_undelivered_message_if_asked(h: Harness) -> None:
    """NegativeJournalingRequested: a copy in the dead-letter queue.

    For a transactional message it is the transactional dead-letter queue.
    """
    h.create("admin")
    for body, asked in ((b"kept", True), (b"dropped", False)):
        h.send(
            ELSEWHERE,
            body,
            negative_journaling_requested=asked,
            time_to_reach_queue=10,
            acknowledgements_requested=Acknowledgements.NEG_ARRIVAL,
            administration_queue_format_name=h.name("admin"),
        )
    transaction = h.begin()
    h.send(ELSEWHERE, b"ledger", transaction=transaction, negative_journaling_requested=True, time_to_reach_queue=10)
    h.commit(transaction)
    assert dead_letters(h) == transactional_dead_letters(h) == []
    h.tick(10)
    assert h.queue(ELSEWHERE).message_count == 0
    assert dead_letters(h) == [b"kept"]
    assert transactional_dead_letters(h) == [b"ledger"]
    assert journal(h) == []
    assert MessageProperties().negative_journaling_requested is False


def test_the_class_of_a_dead_letter_says_why_it_is_one(h: Harness) -> None:
    """As on Windows, the class of the copy is the reason.

    Everything else is as it was sent.
    """
    h.create()
    h.send(body=b"late", label="kept", time_to_be_received=5, negative_journaling_requested=True)
    h.tick(6)
    (letter,) = h.messages(r"DIRECT=OS:.\system$;DEADLETTER")
    assert letter.message_class == MessageClass.NACK_RECEIVE_TIMEOUT
    assert (letter.body, letter.label) == (b"late", "kept")


@pytest.mark.spec("DMPR-3.1.1.12-12")
def test_a_full_dead_letter_queue_drops_the_copy(h: Harness) -> None:
    """If the quota for the dead-letter queue is exceeded, the message is discarded."""
    queue = h.engine.queue_manager.system_deadletter_queue
    assert queue is not None
    queue.quota = 1
    for body in (b"a" * 700, b"b" * 700):
        h.send(ELSEWHERE, body, negative_journaling_requested=True)
    h.engine.purge_queue(h.queue(ELSEWHERE))
    assert dead_letters(h) == [b"a" * 700]


def test_an_unread_message_is_a_dead_letter_where_it_expired(h: Harness) -> None:
    """MC-MQAC 3.1.6.1.1: where an unread message becomes a dead letter.

    A non-transactional one does so here, a transactional one only on the queue manager that sent
    it.
    """
    h.create()
    h.create("ledger", transactional=True)
    ours = h.engine.queue_manager.identifier
    for body, source, transaction in (
        (b"ours", ours, None),
        (b"theirs", None, None),
        (b"our ledger", ours, 1),
        (b"their ledger", None, 1),
    ):
        message = h.message(
            body, source=source, transaction=transaction, time_to_be_received=10, negative_journaling_requested=True
        )
        queue = h.queue("q" if transaction is None else "ledger")
        assert h.engine.insert_message(queue, message, SYSTEM) is MessageClass.ACK_REACH_QUEUE
    h.tick(10)
    assert h.bodies() == h.bodies("ledger") == []
    assert dead_letters(h) == [b"ours", b"theirs"]
    assert transactional_dead_letters(h) == [b"our ledger"]


def test_a_foreign_message_that_finds_no_room_is_kept_here(h: Harness) -> None:
    """MS-MQQB 3.1.5.8.8: its sender believes it delivered.

    3.1.5.8.2: a message to no queue is disregarded.
    """
    h.create(quota=0)
    refused = h.message(b"no room", negative_journaling_requested=True)
    assert h.engine.insert_message(h.queue(), refused, SYSTEM) is MessageClass.NACK_QUEUE_EXCEED_QUOTA
    assert dead_letters(h) == [b"no room"]
    lost = h.message(b"no queue", negative_journaling_requested=True)
    assert h.engine.insert_message(None, lost, SYSTEM) is MessageClass.NACK_BAD_DEST_QUEUE
    assert dead_letters(h) == [b"no room"]


def test_a_foreign_message_that_arrives_too_late_is_kept_here(h: Harness) -> None:
    """Its sender believes that it was delivered.

    A transactional message stays with its sender until a FinalAck reports its end.
    """
    h.create()
    h.create("ledger", transactional=True)
    for body, transaction, asked in ((b"late", None, True), (b"unasked", None, False), (b"in order", 1, True)):
        message = h.message(body, transaction=transaction, time_to_reach_queue=10, negative_journaling_requested=asked)
        h.now += 11
        queue = h.queue("q" if transaction is None else "ledger")
        assert h.engine.insert_message(queue, message, SYSTEM) is MessageClass.NACK_REACH_QUEUE_TIMEOUT
    assert dead_letters(h) == [b"late"]
    assert transactional_dead_letters(h) == []


@pytest.mark.spec("DMPR-3.1.1.12-2", "DMPR-6-5")
def test_an_application_may_name_its_own_dead_letter_queue(h: Harness) -> None:
    """ApplicationDeadletterQueue, a valid path name: there instead of the system one.

    The default is empty.
    """
    h.create("morgue")
    assert MessageProperties().application_deadletter_queue == ""
    for body, asked, pathname in (
        (b"named", True, r".\private$\morgue"),
        (b"not asked", False, r".\private$\morgue"),
        (b"no such queue", True, r".\private$\nowhere"),
        (b"no path name", True, "//"),
        (b"unnamed", True, ""),
    ):
        h.send(ELSEWHERE, body, negative_journaling_requested=asked, application_deadletter_queue=pathname)
    h.engine.purge_queue(h.queue(ELSEWHERE))
    assert h.bodies("morgue") == [b"named"]
    assert dead_letters(h) == [b"no such queue", b"no path name", b"unnamed"]


@pytest.mark.parametrize("kind", [SenderIdentifierType.SID, SenderIdentifierType.NONE])
def test_a_sender_needs_the_right_to_send_to_the_dead_letter_queue_that_it_names(
    h: Harness, kind: SenderIdentifierType
) -> None:
    """Otherwise each user could put messages into every queue.

    The check is at the send, because the SID may not be in the packet.
    """
    bob = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
    h.create("victim", security=parse_sddl("O:SYD:P").pack())
    h.create("mine", security=OPEN_TO_ALL)
    descriptor = h.open(ELSEWHERE, QueueAccessType.SEND, identity=bob)

    def send(pathname: str) -> None:
        properties = h.properties(
            b"planted",
            negative_journaling_requested=True,
            application_deadletter_queue=pathname,
            sender_identifier_type=kind,
        )
        h.engine.enqueue_message_to_an_open_queue(descriptor, properties)

    with pytest.raises(AccessDenied, match="which the message names as its dead-letter queue"):
        send(r".\private$\victim")
    send(r"ALPHA\private$\mine")
    h.engine.purge_queue(h.queue(ELSEWHERE))
    assert h.bodies("mine") == [b"planted"]
    assert h.bodies("victim") == dead_letters(h) == []


@pytest.mark.parametrize("profile", list(Profile))
def test_a_dead_letter_goes_to_the_system_queue_if_the_right_was_taken_meanwhile(h: Harness, profile: Profile) -> None:
    bob = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1001"), is_domain_user=True)
    h.settings["profile"] = profile
    h.restart()
    h.create("mine", security=OPEN_TO_ALL)
    h.create("open", security=OPEN_TO_ALL)
    properties = h.properties(
        b"late",
        time_to_be_received=5,
        negative_journaling_requested=True,
        application_deadletter_queue=r".\private$\mine",
    )
    h.engine.enqueue_message_to_an_open_queue(h.open("open", QueueAccessType.SEND, identity=bob), properties)
    h.engine.replace_security(h.queue("mine"), parse_sddl("O:SYD:P").pack())
    h.tick(6)
    assert h.bodies("mine") == []
    assert dead_letters(h) == [b"late"]


@pytest.mark.parametrize(
    "demand", [{"transactional": True}, {"authentication": True}, {"privacy_level": QueuePrivacyLevel.BODY}]
)
def test_a_dead_letter_goes_to_the_system_queue_if_its_own_would_refuse_it(
    h: Harness, demand: dict[str, object]
) -> None:
    h.create("mine", security=OPEN_TO_ALL, **demand)  # type: ignore[arg-type] # attributes only
    own = r".\private$\mine"
    h.send(ELSEWHERE, b"late", negative_journaling_requested=True, application_deadletter_queue=own)
    h.engine.purge_queue(h.queue(ELSEWHERE))
    assert h.bodies("mine") == []
    assert dead_letters(h) == [b"late"]


def test_a_dead_letter_neither_expires_nor_asks_again(h: Harness) -> None:
    """An application's dead-letter queue is an ordinary queue.

    The requests of the message were fulfilled when it became a dead letter.
    """
    h.create("morgue")
    h.create("admin")
    h.create()
    h.send(
        body=b"late",
        time_to_be_received=10,
        negative_journaling_requested=True,
        application_deadletter_queue=r".\private$\morgue",
        acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
        administration_queue_format_name=h.name("admin"),
    )
    h.tick(10)
    assert h.bodies("morgue") == [b"late"]
    assert [message.message_class for message in h.messages("admin")] == [MessageClass.NACK_RECEIVE_TIMEOUT]
    h.tick(100)
    h.restart()
    h.tick(100)
    assert h.bodies("morgue") == [b"late"]
    descriptor = h.open("morgue")
    held = at_once(h.engine.dequeue_message_begin(descriptor, timeout=0))
    h.engine.dequeue_message_end(descriptor, held, delete_message=False)
    (copy,) = h.messages("morgue")
    assert isinstance(copy, Message)
    assert copy.time_to_be_received == 10
    assert dead_letters(h) == []
    assert h.bodies("admin") == []
