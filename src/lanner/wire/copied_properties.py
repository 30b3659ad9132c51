"""The content of a packet as the properties of a new message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.wire.builder import MessageProperties

if TYPE_CHECKING:
    from lanner.wire.message import Message


def copied_properties(packet: Message) -> MessageProperties:
    """Return the properties with which a sender would send the same content again.

    Properties of the old message itself are left out: its identifier, class, sender, signature and
    place in a transaction.
    """
    return MessageProperties(
        body=packet.body,
        label=packet.label,
        priority=packet.priority,
        delivery_guarantee=packet.delivery_guarantee,
        time_to_reach_queue=packet.time_to_reach_queue,
        time_to_be_received=packet.time_to_be_received,
        body_type=packet.body_type,
        application_tag=packet.application_tag,
        correlation_identifier=packet.correlation_identifier,
        extension=packet.extension,
        acknowledgements_requested=packet.acknowledgements_requested,
        administration_queue_format_name=packet.administration_queue_format_name,
        response_queue_format_name=packet.response_queue_format_name,
        positive_journaling_requested=packet.positive_journaling_requested,
        negative_journaling_requested=packet.negative_journaling_requested,
        tracing_requested=packet.tracing_requested,
        tracing_queue_identifier=packet.tracing_queue_identifier,
        connector_type_identifier=packet.connector_type_identifier,
    )
