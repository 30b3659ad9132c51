"""Runs of UserMessages of equal shape.

What follows a template gets the same verdict as it would alone.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import DeliveryGuarantee, MessageClass
from lanner.model.errors import RemoteProtocolError
from lanner.wire import fields, packet_runs
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import FormatName
from lanner.wire.packet_runs import equal_packets, shape_of
from lanner.wire.plain_sender import plain_sender
from lanner.wire.quick_check import check
from lanner.wire.sid import EVERYONE

SOURCE = uuid.UUID("11111111-2222-3333-4444-555555555555")
DESTINATION = FormatName.parse(r"DIRECT=OS:beta\private$\orders")
FORMS = [packet_runs._equal_packets, equal_packets]


def packet(ordinal: int = 1, *, transaction: int | None = None, to: FormatName = DESTINATION, **given: object) -> bytes:
    properties: dict[str, Any] = {"body": b"body", "delivery_guarantee": DeliveryGuarantee.RECOVERABLE} | given
    return build(
        MessageProperties(**properties),
        source=SOURCE,
        ordinal=ordinal,
        sent_time=1_700_000_000 + ordinal,
        destination=to,
        transaction=transaction,
    )


def verdict(data: bytes) -> tuple[int, bytes | None]:
    return check(data), plain_sender(data, fields.user_flags(data)[0])


@pytest.fixture(params=FORMS, ids=["reference", "chosen"])
def equal(request: pytest.FixtureRequest) -> Callable[..., tuple[list[bytes], int]]:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("transaction", [None, 7])
@pytest.mark.parametrize("sender", [b"", EVERYONE.pack()])
def test_messages_that_differ_where_messages_differ_are_one_run(
    equal: Callable[..., tuple[list[bytes], int]], transaction: int | None, sender: bytes
) -> None:
    given: dict[str, Any] = {"sender_identifier": sender}
    shape = shape_of(packet(transaction=transaction, **given))
    assert shape is not None
    followers = [
        packet(number, transaction=transaction, label=label, body=body, **given)
        for number, (label, body) in enumerate([("", b""), ("a", b"1"), ("label", b"x" * 999), ("\u0100", b"12")], 2)
    ]
    data = b"".join(followers)
    assert equal(b"xyz" + data, 3, *shape) == (followers, 3 + len(data))
    assert equal(memoryview(data), 0, *shape)[0] == followers
    # A packet whose end is missing is not given.
    assert equal(data[:-1], 0, *shape) == (followers[:-1], len(data) - len(followers[-1]))


@pytest.mark.parametrize(
    "other",
    [
        packet(2, priority=5),
        packet(2, to=FormatName.parse(r"DIRECT=OS:beta\private$\other")),
        packet(2, delivery_guarantee=DeliveryGuarantee.EXPRESS),
        packet(2, transaction=3),
        packet(2, sender_identifier=EVERYONE.pack()),
        packet(2, time_to_be_received=60),
        packet(2, time_to_reach_queue=60),
        packet(2, message_class=MessageClass.ACK_RECEIVE),
        packet(2, response_queue_format_name=FormatName.parse(r"DIRECT=OS:alpha\private$\answers")),
    ],
)
def test_another_message_ends_the_run(equal: Callable[..., tuple[list[bytes], int]], other: bytes) -> None:
    shape = shape_of(packet())
    assert shape is not None
    follower = packet(3)
    assert equal(follower + other + follower, 0, *shape) == ([follower], len(follower))


def test_what_must_be_judged_by_itself_has_no_shape() -> None:
    assert shape_of(packet()) is not None
    assert shape_of(packet(message_class=MessageClass.ACK_RECEIVE)) is None
    assert shape_of(packet(time_to_be_received=60)) is None
    assert shape_of(packet(response_queue_format_name=FormatName.parse(r"DIRECT=OS:alpha\private$\answers"))) is None
    assert shape_of(packet(to=FormatName.parse("PUBLIC=11111111-2222-3333-4444-555555555555"))) is None


TEMPLATES = [packet(), packet(transaction=5, label="label"), packet(sender_identifier=EVERYONE.pack(), label="\u0100x")]


@given(
    st.sampled_from(TEMPLATES),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=3),
    st.integers(-8, 8),
)
def test_a_packet_in_a_run_has_the_verdict_of_its_template(
    template: bytes, changes: list[tuple[int, int]], growth: int
) -> None:
    """Any part of a packet may be changed.

    If it is still taken for an equal one, `check` and `plain_sender` have the same result for it.
    """
    shape = shape_of(template)
    assert shape is not None
    changed = bytearray(template + bytes(max(growth, 0)) if growth >= 0 else template[:growth])
    if growth:
        changed[8:12] = len(changed).to_bytes(4, "little")
    for place, value in changes:
        changed[place % len(changed)] = value
    data = bytes(changed)
    found = packet_runs._equal_packets(data, 0, *shape)
    assert equal_packets(data, 0, *shape) == found
    if found[0] == [data]:
        assert verdict(data) == verdict(template)
        assert data[:8] == template[:8]
    elif found[0]:
        # PacketSize was made smaller: what it counts is a packet of its own.
        assert verdict(found[0][0]) == verdict(template)


def test_most_changes_are_noticed() -> None:
    """Each byte of the headers that is not one of the fields that may differ."""
    for template in TEMPLATES:
        shape = shape_of(template)
        assert shape is not None
        for place in range(shape.properties):
            changed = bytearray(template)
            changed[place] ^= 0x55
            is_taken = equal_packets(bytes(changed), 0, *shape)[0] == [bytes(changed)]
            may_differ = 52 <= place < 60 or (0 <= shape.transaction <= place < shape.transaction + 20)
            assert is_taken <= may_differ
            with contextlib.suppress(RemoteProtocolError):
                if is_taken:
                    assert verdict(bytes(changed)) == verdict(template)
