"""Whatever a client puts into a message, Send accepts it or returns an error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lanner.activex.queue import MSMQQueue
from lanner.com.automation.values import Variant
from lanner.com.objects import ComError
from lanner.model.errors import StatusError
from lanner.wire.message import Message
from lanner.wire.vartypes import VT
from tests.activex.messages import BYTES, ELSEWHERE, create, new_message, open_queue, packets
from tests.activex.world import World, invoke

longs = st.integers(-0x8000_0000, 0x7FFF_FFFF) | st.integers(-2, 20) | st.sampled_from([0x8001, 0x8003, 0x6602])
strings = st.none() | st.text(max_size=300)
byte_arrays = st.binary(max_size=300).map(lambda data: Variant(BYTES, data))
variants = byte_arrays | st.text().map(lambda value: Variant(VT.BSTR, value)) | st.just(Variant())
PUTS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(
        (
            "priv_level",
            "auth_level",
            "delivery",
            "trace",
            "priority",
            "journal",
            "app_specific",
            "ack",
            "max_time_to_reach_queue",
            "max_time_to_receive",
            "hash_algorithm",
            "encrypt_algorithm",
            "sender_id_type",
            "authentication_provider_type",
            "msg_class",
        ),
        longs,
    ),
    **dict.fromkeys(("label", "authentication_provider_name", "soap_header", "soap_body"), strings),
    "connector_type_guid": strings | st.uuids().map(lambda guid: f"{{{guid}}}"),
    **dict.fromkeys(
        ("sender_certificate", "sender_id", "extension", "destination_symmetric_key", "signature", "correlation_id"),
        variants,
    ),
    "body": variants,
}
puts = st.lists(
    st.sampled_from(sorted(PUTS)).flatmap(lambda name: st.tuples(st.just(name), PUTS[name])), min_size=1, max_size=12
)


@pytest.fixture
def targets(world: World) -> list[MSMQQueue]:
    return [open_queue(world, create(world)), open_queue(world, ELSEWHERE)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(puts=puts, transaction=st.sampled_from([Variant(VT.I4, 0), Variant(VT.I4, 3)]))
def test_whatever_is_put(
    world: World, targets: list[MSMQQueue], puts: list[tuple[str, Any]], transaction: Variant
) -> None:
    message = new_message(world)

    async def run() -> None:
        for name, value in puts:
            try:
                await invoke(message, f"put_{name}", value)
            except (StatusError, ComError):
                continue
        for target in targets:
            try:
                await invoke(message, "send", target, transaction)
            except (StatusError, ComError):
                continue
        for member in ("get_body", "get_label", "get_id", "get_sent_time", "get_class", "get_journal"):
            await invoke(message, member)

    world.run(asyncio.wait_for(run(), 30))
    # What was taken can be read.
    for name in (r"DIRECT=OS:.\private$\q", ELSEWHERE):
        for kept in packets(world, name):
            Message.unpack(kept.packet)
    with world.held() as h:
        for queue in (h.queue("q"), h.queue(ELSEWHERE)):
            h.engine.purge_queue(queue)
        assert h.engine.queue_manager.transaction_collection == {}
