"""Names, packets and strategies that several tests of this folder use."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from lanner.model.enums import (
    Acknowledgements,
    DeliveryGuarantee,
    EncryptionAlgorithm,
    HashAlgorithm,
    MessageClass,
    MessagePrivacyLevel,
    SenderIdentifierType,
)
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import (
    DirectFormatName,
    DistributionListFormatName,
    FormatName,
    MultipleElementFormatName,
    PrivateFormatName,
    PublicFormatName,
    parse,
)
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message

SOURCE = UUID("11111111-2222-3333-4444-555555555555")
OTHER = UUID("aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee")
QUEUE = UUID("01020304-0506-0708-090a-0b0c0d0e0f10")
DIRECT = DirectFormatName(r"OS:server\private$\orders")
SID = bytes.fromhex("010500000000000515000000ad4a9ebd36d9fa3d63a656dae8030000")
SENT_TIME = 1_700_000_000


def make(
    destination: FormatName = DIRECT,
    transaction: int | None = None,
    ordinal: int = 7,
    **properties: Any,  # noqa: ANN401 - any property
) -> bytes:
    """The packet of a message with these properties."""
    return build(
        MessageProperties(**properties),
        source=SOURCE,
        ordinal=ordinal,
        sent_time=SENT_TIME,
        destination=destination,
        transaction=transaction,
    )


def full_packet() -> bytes:
    """Return a packet with every header, name form and optional field, of no round size."""
    return make(
        transaction=0xABCDE,
        body=b"body!",
        label="label",
        extension=b"ext",
        acknowledgements_requested=Acknowledgements.FULL_RECEIVE,
        administration_queue_format_name=PrivateFormatName(OTHER, 0x12),
        response_queue_format_name=parse(r"DIRECT=TCP:10.0.0.1\answers"),
        connector_type_identifier=QUEUE,
        connector_queue_manager_identifier=OTHER,
        tracing_requested=True,
        tracing_queue_identifier=QUEUE,
        sender_identifier=SID,
        symmetric_key=b"key",
        signature=b"signature",
        sender_certificate=b"certificate",
        authentication_provider_type=24,
        authentication_provider_name="provider",
        privacy_level=MessagePrivacyLevel.ENHANCED,
        soap_header="head",
        soap_body="soap body",
        destination_multi_queue_format_name=parse(
            rf"DIRECT=OS:server\private$\orders,PUBLIC={QUEUE},PRIVATE={OTHER}\9,DL={QUEUE}"
        ),
        administration_multi_queue_format_name=parse(r"DIRECT=OS:a\q,DIRECT=OS:bb\q"),
        response_multi_queue_format_name=parse(f"PUBLIC={OTHER}"),
        multiple_destination_signature=b"signed",
        application_deadletter_queue=r".\private$\dead",
    )  # fmt: skip


PROPERTIES = tuple(name for name, value in vars(Message).items() if isinstance(value, property))


def read_everything(message: Message) -> dict[str, object]:
    return {name: getattr(message, name) for name in PROPERTIES}


uint32 = st.integers(0, 0xFFFF_FFFF)
guids = st.uuids()
# Any UTF-16 string without a null, lone surrogates too: Windows checks neither labels nor names for
# them.
texts = st.text(st.characters(exclude_characters="\0"))
labels = texts.filter(lambda text: len(text.encode("utf-16-le", "surrogatepass")) <= 2 * 249)
names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_-$. ", min_size=1, max_size=40).filter(
    lambda name: name.lower() not in ("private$", "system$")
)
public_names = st.builds(PublicFormatName, guids)
private_names = st.builds(PrivateFormatName, st.sampled_from((SOURCE, OTHER, QUEUE)) | guids, uint32)
direct_names = st.builds(
    lambda protocol, host, prefix, queue: DirectFormatName(f"{protocol}:{host}\\{prefix}{queue}"),
    st.sampled_from(("OS", "TCP", "tcp", "IPX")),
    names,
    st.sampled_from(("", "private$\\", "PRIVATE$\\")),
    names,
)
single_names = public_names | private_names | direct_names
element_names = single_names | st.builds(DistributionListFormatName, guids)
lists = (
    st.none()
    | element_names
    | st.lists(element_names, min_size=2, max_size=4).map(lambda found: MultipleElementFormatName(tuple(found)))
)

sendable: dict[str, st.SearchStrategy[Any]] = {
    "body": st.binary(max_size=200),
    "label": labels,
    "priority": st.integers(0, 7),
    "delivery_guarantee": st.sampled_from(DeliveryGuarantee),
    "time_to_reach_queue": uint32,
    "time_to_be_received": uint32,
    "message_class": st.sampled_from(MessageClass) | st.integers(0, 0xFFFF),
    "body_type": uint32,
    "application_tag": uint32,
    "correlation_identifier": st.binary(min_size=20, max_size=20),
    "extension": st.binary(max_size=50),
    "acknowledgements_requested": st.integers(0, 15).map(Acknowledgements),
    "administration_queue_format_name": st.none() | single_names,
    "response_queue_format_name": st.none() | single_names,
    "positive_journaling_requested": st.booleans(),
    "negative_journaling_requested": st.booleans(),
    "application_deadletter_queue": texts,
    "tracing_requested": st.booleans(),
    "tracing_queue_identifier": guids,
    "connector_type_identifier": guids,
    "privacy_level": st.sampled_from(MessagePrivacyLevel),
    "hash_algorithm": st.sampled_from(HashAlgorithm),
    "encryption_algorithm": st.sampled_from(EncryptionAlgorithm),
    "allocation_body_size": uint32,
    "sender_identifier_type": st.just(SenderIdentifierType.SID),
    "sender_identifier": st.binary(min_size=8, max_size=40),
    "sender_certificate": st.binary(max_size=60),
    "symmetric_key": st.binary(max_size=30),
    "signature": st.binary(max_size=30),
    "authentication_provider_type": uint32,
    "authentication_provider_name": texts.filter(bool),
    "final_ack_required": st.booleans(),
    "first_in_transaction": st.booleans(),
    "last_in_transaction": st.booleans(),
    "transactional_message_sequence_identifier": st.builds(TxSequenceID, uint32, uint32),
    "transaction_sequence_number": st.integers(1, 0xFFFF_FFFF),
    "transaction_previous_sequence_number": uint32,
    "connector_queue_manager_identifier": guids,
    "destination_multi_queue_format_name": lists,
    "administration_multi_queue_format_name": lists,
    "response_multi_queue_format_name": lists,
    "multiple_destination_signature": st.binary(max_size=20),
    "soap_header": texts,
    "soap_body": texts,
}
TRANSACTIONAL = {
    "final_ack_required",
    "first_in_transaction",
    "last_in_transaction",
    "transactional_message_sequence_identifier",
    "transaction_sequence_number",
    "transaction_previous_sequence_number",
    "connector_queue_manager_identifier",
}
MULTI = {
    "administration_multi_queue_format_name",
    "response_multi_queue_format_name",
    "multiple_destination_signature",
}


@st.composite
def sent(draw: st.DrawFn) -> tuple[dict[str, Any], FormatName, int | None]:
    """Some properties, a destination and perhaps a transaction."""
    chosen = draw(st.sets(st.sampled_from(sorted(sendable))))
    properties = {name: draw(sendable[name]) for name in sorted(chosen)}
    return properties, draw(single_names), draw(st.none() | st.integers(0, 0xF_FFFF))
