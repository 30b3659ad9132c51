"""A template makes the packets that `build` makes."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import Acknowledgements, DeliveryGuarantee, MessagePrivacyLevel
from lanner.model.errors import InsufficientResources
from lanner.wire.builder import MessageProperties, build, encode_label
from lanner.wire.envelope import read_envelope
from lanner.wire.format_name import parse
from lanner.wire.layout import MAX_PACKET_SIZE
from lanner.wire.packet_template import MessageRun, PacketTemplate, Templates, bare

SOURCE, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)
NAMES = (
    r"DIRECT=OS:alpha\private$\q",
    f"PRIVATE={OTHER}\\0000000a",
    f"PUBLIC={OTHER}",
)
queues = st.none() | st.sampled_from([parse(name) for name in NAMES])
shapes = st.builds(
    MessageProperties,
    priority=st.integers(0, 7),
    delivery_guarantee=st.sampled_from(DeliveryGuarantee),
    time_to_be_received=st.sampled_from([5, 0xFFFF_FFFF]),
    body_type=st.integers(0, 0xFFFF_FFFF),
    application_tag=st.integers(0, 0xFFFF_FFFF),
    correlation_identifier=st.binary(min_size=20, max_size=20),
    extension=st.binary(max_size=9),
    acknowledgements_requested=st.sampled_from([Acknowledgements.NONE, Acknowledgements.POS_ARRIVAL]),
    administration_queue_format_name=queues,
    response_queue_format_name=queues,
    positive_journaling_requested=st.booleans(),
    negative_journaling_requested=st.booleans(),
    application_deadletter_queue=st.sampled_from(["", r".\private$\dead"]),
    tracing_requested=st.booleans(),
    connector_type_identifier=st.sampled_from([uuid.UUID(int=0), OTHER]),
    privacy_level=st.sampled_from([MessagePrivacyLevel.NONE, MessagePrivacyLevel.ENHANCED]),
    allocation_body_size=st.none() | st.just(4000),
    sender_identifier=st.sampled_from([b"", bytes(28)]),
    first_in_transaction=st.booleans(),
    connector_queue_manager_identifier=st.sampled_from([uuid.UUID(int=0), OTHER]),
    soap_header=st.sampled_from(["", "head"]),
)
labels = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(
    shapes,
    st.sampled_from(NAMES),
    st.lists(st.tuples(labels, st.binary(max_size=50)), min_size=1, max_size=3),
    st.none() | st.integers(0, 0xF_FFFF),
    st.integers(0, 0xFFFF_FFFF),
)
def test_it_makes_what_build_makes(
    properties: MessageProperties,
    destination: str,
    contents: list[tuple[str, bytes]],
    transaction: int | None,
    ordinal: int,
) -> None:
    name = parse(destination)
    template = PacketTemplate(
        properties, source=SOURCE, sent_time=9, destination=name, is_transactional=transaction is not None
    )
    for label, body in contents:
        properties.label, properties.body = label, body
        wanted = build(
            properties, source=SOURCE, ordinal=ordinal, sent_time=9, destination=name, transaction=transaction
        )
        encoded = encode_label(label) if label else b""
        assert template.pack([ordinal], [encoded], [body], [transaction or 0]) == [wanted]


@given(st.lists(st.tuples(shapes, st.sampled_from(NAMES), st.integers(8, 9), st.booleans()), min_size=2, max_size=4))
def test_templates_that_are_kept_make_the_same(wanted: list[tuple[MessageProperties, str, int, bool]]) -> None:
    templates = Templates()
    for properties, destination, sent_time, is_transactional in wanted + wanted[-1:]:
        made = PacketTemplate(
            properties,
            source=SOURCE,
            sent_time=sent_time,
            destination=parse(destination),
            is_transactional=is_transactional,
        )
        kept = templates.get(
            properties,
            source=SOURCE,
            sent_time=sent_time,
            destination=parse(destination),
            is_transactional=is_transactional,
        )
        assert kept.pack([1], [b""], [b"x"], [2]) == made.pack([1], [b""], [b"x"], [2])


def test_properties_that_change_get_another_template() -> None:
    templates, properties = Templates(), MessageProperties()

    def get(wanted: MessageProperties) -> PacketTemplate:
        return templates.get(wanted, source=SOURCE, sent_time=9, destination=parse(NAMES[0]), is_transactional=False)

    def priority(template: PacketTemplate) -> int:
        return read_envelope(template.pack([1], [b""], [b"x"])[0]).priority

    first = get(properties)
    assert get(MessageProperties(body=b"another", label="of its own")) is first
    properties.priority = 7
    assert priority(get(properties)) == 7
    assert priority(get(MessageProperties())) == MessageProperties().priority


def test_a_bare_copy_has_everything_but_body_and_label() -> None:
    properties = MessageProperties(body=b"body", label="label", priority=7, soap_body="last")
    assert bare(properties) == MessageProperties(priority=7, soap_body="last")
    assert properties.label == "label"


def test_a_body_that_no_packet_has_room_for_is_refused() -> None:
    template = PacketTemplate(
        MessageProperties(), source=SOURCE, sent_time=9, destination=parse(NAMES[0]), is_transactional=False
    )
    with pytest.raises(InsufficientResources, match=f"body of {MAX_PACKET_SIZE} bytes"):
        template.pack([1, 2], [b"", b""], [b"small", bytes(MAX_PACKET_SIZE)])


def test_a_run_of_one_has_label_and_body_of_its_message() -> None:
    run = MessageRun.of(MessageProperties(label="l", body=bytearray(b"b")))
    assert run.labels == [b"l\0\0\0"]
    assert run.bodies == [b"b"]
    assert len(run) == 1
