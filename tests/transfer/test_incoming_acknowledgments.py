"""Acknowledgments that an administration queue gets for remote messages.

MS-MQQB 3.1.7.15, 3.1.7.2.1 and 3.1.5.8.10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.engine.settings import EngineSettings
from lanner.model.enums import INFINITE, Acknowledgements, DeliveryGuarantee, MessageClass
from lanner.security.identity import Identity
from lanner.wire.format_name import FormatName, parse
from lanner.wire.message import Message
from lanner.wire.sddl import parse_sddl
from lanner.wire.sid import Sid
from tests.transfer.incoming_harness import LEDGER, OTHER, PEER, IncomingHarness, asking, sent_by, told

NOWHERE = r"DIRECT=OS:ALPHA\private$\none"
ALICE = Sid.parse("S-1-5-21-1-2-3-1001")


@pytest.fixture
def h(tmp_path: Path) -> Iterator[IncomingHarness]:
    harness = IncomingHarness(tmp_path / "data", send_insecure_nacks=True)
    harness.create("q")
    harness.create("admin")
    yield harness
    harness.close()


@pytest.mark.spec("QQB-3.1.5.8.10-1")
def test_arrival_is_told_to_who_asked(h: IncomingHarness) -> None:
    """0x0002 once the message is in the queue, and not for one that is refused."""
    seen: list[int] = []
    h.engine.arrivals.arrived_subscribers.append(lambda queue, _: seen.append(queue.message_count))
    h.arrive(
        h.packet(**asking(Acknowledgements.POS_ARRIVAL)),
        h.packet(**asking(Acknowledgements.NEG_ARRIVAL)),
        h.packet(to=NOWHERE, **asking(Acknowledgements.POS_ARRIVAL)),
        h.packet(number=1, **asking(Acknowledgements.POS_ARRIVAL)),
    )
    assert told(h) == [0x0002]
    assert seen[0] == 1


@pytest.mark.spec("QQB-3.1.5.8.10-2")
@pytest.mark.parametrize("queue", ["admin_queue$", "notify_queue$", "order_queue$", "ADMIN_QUEUE$"])
def test_messages_to_internal_queues_are_answered_by_nobody(h: IncomingHarness, queue: str) -> None:
    """Otherwise two administration queues could keep each other busy.

    Messages sent to them are not journaled at their source either.
    """
    everybody = parse_sddl("O:SYG:SYD:(A;;0x4;;;WD)(A;;0x4;;;AN)").pack()
    h.engine.set_queue_properties(h.queue("admin_queue$"), {"security": everybody})
    to = rf"DIRECT=OS:ALPHA\private$\{queue}"
    h.arrive(h.packet(to=to, **asking(Acknowledgements(0xF))))
    h.engine.purge_queue(h.queue("admin_queue$"))
    assert told(h) == []
    number = h.queue("admin_queue$").private_queue_number
    me = h.engine.queue_manager.identifier
    h.arrive(h.packet(to=rf"PRIVATE={me}\{number:x}", **asking(Acknowledgements(0xF))))
    h.arrive(h.packet(to=rf"PRIVATE={me}\4", **asking(Acknowledgements(0xF))))
    h.send(rf"PRIVATE={me}\{number:x}", positive_journaling_requested=True, **asking(Acknowledgements(0xF)))
    h.messages("admin_queue$")
    assert told(h) == []
    assert h.messages(f"MACHINE={me};JOURNAL") == []
    h.send("q", b"journaled", positive_journaling_requested=True)
    assert len(h.messages(f"MACHINE={me};JOURNAL")) == 1


# Removal
# --------------------------------------------------------------------------------------------------


def receive(h: IncomingHarness) -> None:
    assert h.receive() is not None


def purge(h: IncomingHarness) -> None:
    h.engine.purge_queue(h.queue())


def delete(h: IncomingHarness) -> None:
    h.engine.delete_queue(h.queue())


def expire(h: IncomingHarness) -> None:
    h.tick(101)


def reject(h: IncomingHarness) -> None:
    queue = h.queue()
    position = h.engine.positions.seek_available_message_position(queue, -1, peek=True)
    assert position is not None
    h.engine.message_position_deleted(queue, position, MessageClass.NACK_RECEIVE_REJECTED)


@pytest.mark.spec("QQB-3.1.7.2.1-1")
@pytest.mark.parametrize("requested", list(range(16)))
def test_a_receive_is_told_to_who_asked_for_receives(h: IncomingHarness, requested: int) -> None:
    """0x4000 for AckPosReceive and AckFullReceive."""
    h.arrive(h.packet(**asking(Acknowledgements(requested))))
    told(h)
    receive(h)
    assert told(h) == ([0x4000] if requested & Acknowledgements.POS_RECEIVE else [])


@pytest.mark.spec("QQB-3.1.7.2.1-2")
@pytest.mark.parametrize("requested", [Acknowledgements.NEG_RECEIVE, Acknowledgements.POS_RECEIVE])
@pytest.mark.parametrize(
    ("end", "message_class"), [(delete, 0xC000), (purge, 0xC001), (expire, 0xC002), (reject, 0xC004)]
)
def test_any_other_end_is_told_to_who_asked_for_failures(
    h: IncomingHarness,
    end: Callable[[IncomingHarness], None],
    message_class: int,
    requested: Acknowledgements,
) -> None:
    h.arrive(h.packet(time_to_be_received=100, **asking(requested)))
    end(h)
    assert told(h) == ([message_class] if requested is Acknowledgements.NEG_RECEIVE else [])


@pytest.mark.spec("QQB-3.1.7.2.1-3")
@pytest.mark.parametrize("recoverable", [True, False])
def test_an_acknowledgment_is_as_lasting_as_its_message(h: IncomingHarness, recoverable: bool) -> None:
    h.arrive(
        h.packet(recoverable=recoverable, **asking(Acknowledgements(0xF))),
        h.packet(to=NOWHERE, recoverable=recoverable, **asking()),
    )
    receive(h)
    guarantee = DeliveryGuarantee.RECOVERABLE if recoverable else DeliveryGuarantee.EXPRESS
    acknowledgments = h.messages("admin")
    assert [message.message_class for message in acknowledgments] == [0x0002, 0x8000, 0x4000]
    assert {message.delivery_guarantee for message in acknowledgments} == {guarantee}


# Send Administration Acknowledgment
# -------------------------------------------------------------------------------


@pytest.mark.spec("QQB-3.1.7.15-1")
def test_without_an_administration_queue_nobody_is_told(h: IncomingHarness) -> None:
    """Flags without a queue (AQ 0) are accepted (DECISIONS) and lead nowhere."""
    packet = h.packet(acknowledgements_requested=Acknowledgements(0xF))
    assert Message(packet).acknowledgements_requested == 0xF
    assert packet[61] >> 5 == 0
    refused = h.packet(to=NOWHERE, acknowledgements_requested=Acknowledgements(0xF))
    h.arrive(packet, refused)
    assert h.receive() == b""
    assert told(h) == []
    assert h.all_outgoing() == {}


def refusals(h: IncomingHarness) -> dict[int, bytes]:
    """Return a message for each class of rejection on arrival; each requests acknowledgments."""
    h.create("ledger", transactional=True)
    h.create("full", quota=0)
    h.create("closed", security=parse_sddl("O:SYG:SYD:P").pack())
    local = r"DIRECT=OS:ALPHA\private$\{}".format
    provider: dict[str, Any] = {"authentication_provider_type": 24, "authentication_provider_name": "Unheard Of"}
    certificate = {"signature": b"s" * 64, "sender_certificate": b"c" * 32, **sent_by(ALICE)}
    return {
        0x8000: h.packet(to=NOWHERE, **asking()),
        0x8002: h.packet(age=11, time_to_reach_queue=10, **asking()),
        0x8003: h.packet(to=local("full"), **asking()),
        0x8004: h.packet(to=local("closed"), **asking()),
        0x8006: h.packet(**certificate, **asking()),
        0x8007: h.packet(privacy_level=2, symmetric_key=b"k" * 140, **sent_by(ALICE), **asking()),
        0x8009: h.packet(number=1, **asking()),
        0x800A: h.packet(to=LEDGER, **asking()),
        0x800B: h.packet(**certificate, **provider, **asking()),
    }


@pytest.mark.spec("QQB-3.1.7.15-2", "QQB-3.1.1.3-5", "DMPR-3.1.1.12-7")
@pytest.mark.parametrize("is_configured", [None, False, True])
def test_strangers_hear_what_is_here_only_if_that_is_configured(tmp_path: Path, is_configured: bool | None) -> None:
    """SendInsecureNacks, FALSE by default, controls five classes.

    They are 0x8000, 0x8004, 0x8006, 0x8007 and 0x800B. The setting survives a restart.
    """
    assert not EngineSettings("ALPHA").send_insecure_nacks
    settings: dict[str, Any] = {} if is_configured is None else {"send_insecure_nacks": is_configured}
    h = IncomingHarness(tmp_path / "data", **settings)
    h.create("q")
    h.create("admin")
    packets = refusals(h)
    h.restart()
    for message_class, packet in packets.items():
        h.arrive(packet)
        is_insecure = message_class in (0x8000, 0x8004, 0x8006, 0x8007, 0x800B)
        assert told(h) == ([] if is_insecure and not is_configured else [message_class])
    assert h.bodies() == h.bodies("ledger") == []
    h.close()


@pytest.mark.spec("QQB-3.1.7.15-3")
def test_each_form_of_administration_queue_is_found(h: IncomingHarness) -> None:
    """AQ says where the administration queue is.

    Value 2 is private on the source, 3 private on the destination, 5 public, 6 private on another,
    7 direct.
    """
    me = h.engine.queue_manager.identifier
    admin = h.queue("admin")
    public = h.create(r".\acks")
    here = rf"PRIVATE={me}\{h.queue().private_queue_number:x}"
    forms: dict[int, tuple[FormatName, Callable[[], list[Message]]]] = {
        2: (parse(rf"PRIVATE={PEER}\00000031"), lambda: h.outgoing(rf"PRIVATE={PEER}\00000031")),
        3: (parse(rf"PRIVATE={me}\{admin.private_queue_number:x}"), lambda: h.messages("admin")),
        5: (parse(f"PUBLIC={public.identifier}"), lambda: h.messages(f"PUBLIC={public.identifier}")),
        6: (parse(rf"PRIVATE={OTHER}\00000032"), lambda: h.outgoing(rf"PRIVATE={OTHER}\00000032")),
        7: (parse(r"DIRECT=OS:GAMMA\private$\acks"), lambda: h.outgoing(r"DIRECT=OS:GAMMA\private$\acks")),
    }
    for code, (name, found) in forms.items():
        packet = h.packet(
            to=here,
            acknowledgements_requested=Acknowledgements.POS_ARRIVAL,
            administration_queue_format_name=name,
        )
        assert packet[61] >> 5 == code
        h.arrive(packet)
        (acknowledgment,) = found()
        assert acknowledgment.message_class == 0x0002


@pytest.mark.spec("QQB-3.1.7.15-4")
def test_an_acknowledgment_names_its_message_and_where_that_went(h: IncomingHarness) -> None:
    """CorrelationID: SourceQueueManager and MessageID.

    Response queue: the destination, from DQ 3, 5 or 7.
    """
    me = h.engine.queue_manager.identifier
    public = h.create(r".\news")
    names = {
        3: rf"PRIVATE={me}\{h.queue().private_queue_number:08x}",
        5: f"PUBLIC={public.identifier}",
        7: r"DIRECT=OS:ALPHA\private$\q",
    }
    for code, name in names.items():
        packet = h.packet(to=name, ordinal=0x01020304 + code, destination_queue_manager_identifier=me, **asking())
        assert packet[61] >> 2 & 7 == code
        h.arrive(packet)
        (acknowledgment,) = h.messages("admin")
        assert acknowledgment.correlation_identifier == PEER.bytes_le + (0x01020304 + code).to_bytes(4, "little")
        assert str(acknowledgment.response_queue_format_name) == name


@pytest.mark.spec("QQB-3.1.7.15-5")
def test_an_acknowledgment_lasts_forever_and_asks_for_nothing(h: IncomingHarness) -> None:
    h.arrive(
        h.packet(
            positive_journaling_requested=True,
            negative_journaling_requested=True,
            time_to_reach_queue=50,
            time_to_be_received=50,
            **sent_by(ALICE),
            **asking(),
        )
    )
    (acknowledgment,) = h.messages("admin")
    assert (acknowledgment.time_to_reach_queue, acknowledgment.time_to_be_received) == (INFINITE, INFINITE)
    assert not acknowledgment.positive_journaling_requested
    assert not acknowledgment.negative_journaling_requested
    assert acknowledgment.acknowledgements_requested == Acknowledgements.NONE
    assert acknowledgment.administration_queue_format_name is None
    assert acknowledgment.privacy_level == 0
    assert not acknowledgment.is_body_encrypted
    assert (acknowledgment.signature, acknowledgment.sender_certificate) == (b"", b"")


@pytest.mark.spec("QQB-3.1.7.15-6")
def test_a_negative_acknowledgment_gives_the_body_back(h: IncomingHarness) -> None:
    """Unless it was encrypted; a positive one has none."""
    h.arrive(
        h.packet(b"arrives", body_type=8, **asking(Acknowledgements(0xF))),
        h.packet(b"refused", to=NOWHERE, body_type=8, **asking()),
        h.packet(b"encrypted", to=NOWHERE, privacy_level=1, symmetric_key=b"k" * 140, **sent_by(ALICE), **asking()),
    )
    # EB alone, with no PrivacyLevel beside it, is encrypted too.
    packet = bytearray(h.packet(b"claims none", to=NOWHERE, privacy_level=1, symmetric_key=b"k" * 140, **asking()))
    offset = Message(bytes(packet))._layout().properties + 40
    packet[offset : offset + 4] = bytes(4)
    h.arrive(bytes(packet))
    receive(h)
    found = [(message.message_class, message.body, message.body_type) for message in h.messages("admin")]
    assert found == [
        (0x0002, b"", 0),
        (0x8000, b"refused", 8),
        (0x8000, b"", 0),
        (0x8000, b"", 0),
        (0x4000, b"", 0),
    ]


def test_an_acknowledgment_goes_only_where_a_stranger_may_send(h: IncomingHarness) -> None:
    """A remote message must not carry its body into a queue that is not open to everyone."""
    alice = Identity("alice", ALICE, is_administrator=True)
    h.settings["resolve_identity"] = {ALICE: alice}.get
    h.restart()
    h.create("victim", security=parse_sddl("O:SYG:SYD:P(A;;0xF003F;;;BA)").pack())
    h.arrive(
        h.packet(
            b"planted",
            to=NOWHERE,
            **sent_by(ALICE),
            **asking(to=r"DIRECT=OS:ALPHA\private$\victim"),
        )
    )
    assert h.bodies("victim") == []
