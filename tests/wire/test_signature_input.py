from __future__ import annotations

from typing import Any

import pytest

from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessageClass
from lanner.wire.format_name import FormatName, PublicFormatName, parse
from lanner.wire.message import Message
from lanner.wire.signature_input import hash_input_10, hash_input_20, hash_input_30, queue_name_bytes
from tests.wire.samples import OTHER, QUEUE, SOURCE, make

CORRELATION = bytes(range(20))


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le")


def message(**more: Any) -> Message:  # noqa: ANN401 - any property
    return Message(
        make(
            parse(r"DIRECT=OS:a\q"),
            correlation_identifier=CORRELATION,
            application_tag=0x01020304,
            body=b"body",
            label="label",
            extension=b"extension",
            administration_queue_format_name=parse(r"DIRECT=OS:a\admin"),
            response_queue_format_name=PublicFormatName(QUEUE),
            acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
            positive_journaling_requested=True,
            delivery_guarantee=DeliveryGuarantee.RECOVERABLE,
            priority=5,
            message_class=MessageClass.REPORT,
            body_type=0x11,
            connector_type_identifier=OTHER,
            **more,
        )
    )


PART_10 = (
    CORRELATION
    + bytes.fromhex("04030201")
    + b"body"
    + utf16("label\0")
    + utf16(f"PUBLIC={QUEUE}\0")
    + utf16("DIRECT=OS:a\\admin\0")
)
# DM, PR, JP << 1 | JN, ack flags, class, body type
PART_20 = SOURCE.bytes_le + bytes.fromhex("01 05 02 0e 0100 11000000") + OTHER.bytes_le


@pytest.mark.spec("MQMQ-2.5.1-1")
def test_msmq_10_covers_correlation_tag_body_label_and_names() -> None:
    assert hash_input_10(message()) == PART_10


@pytest.mark.spec("MQMQ-2.5.2-1")
def test_msmq_20_adds_source_flags_class_and_destination() -> None:
    assert hash_input_20(message()) == PART_10 + PART_20 + utf16("DIRECT=OS:a\\q\0")
    negative = message(negative_journaling_requested=True)
    assert hash_input_20(negative)[len(PART_10) + 18] == 3


@pytest.mark.spec("MQMQ-2.5.3-1")
def test_msmq_30_adds_the_extension_and_the_list_and_no_destination() -> None:
    assert hash_input_30(message()) == PART_10 + b"extension" + PART_20
    several: FormatName = parse(rf"DIRECT=OS:a\q,PUBLIC={QUEUE}")
    found = hash_input_30(message(destination_multi_queue_format_name=several))
    assert found == PART_10 + b"extension" + utf16(f"DIRECT=OS:a\\q,PUBLIC={QUEUE}\0") + PART_20


def test_what_is_absent_adds_nothing() -> None:
    bare = Message(make(parse(r"DIRECT=OS:a\q")))
    assert hash_input_10(bare) == bytes(24)
    assert hash_input_20(bare) == bytes(24) + SOURCE.bytes_le + bytes.fromhex("00 03 00 00 0000 00000000") + utf16(
        "DIRECT=OS:a\\q\0"
    )
    assert hash_input_30(bare) == bytes(24) + SOURCE.bytes_le + bytes.fromhex("00 03 00 00 0000 00000000")
    assert queue_name_bytes(None) == b""
