"""Helpers for tests of messages: open queues, send and receive through members of the coclasses."""

from __future__ import annotations

import shutil
from typing import Any

from lanner.activex.message import MSMQMessage
from lanner.activex.queue import MSMQQueue
from lanner.activex.queue_info import MSMQQueueInfo
from lanner.com.automation.values import MISSING, Variant
from lanner.com.objects import ComObject
from lanner.model.directory_objects import Queue
from lanner.security.identity import SYSTEM, Identity
from lanner.wire.message import Message
from lanner.wire.vartypes import VT
from tests.activex.world import World
from tests.engine.harness import Harness

RECEIVE, SEND, PEEK = 1, 2, 0x20
BYTES = VT.ARRAY | VT.UI1
TRUE = Variant(VT.BOOL, True)
FALSE = Variant(VT.BOOL, False)
NOW = Variant(VT.I4, 0)
# A queue of another computer, which transfer does not run for here.
ELSEWHERE = r"DIRECT=OS:beta\private$\far"


def octets(data: bytes) -> Variant:
    return Variant(BYTES, data)


def text(value: str) -> Variant:
    return Variant(VT.BSTR, value)


def number(value: int) -> Variant:
    return Variant(VT.I4, value)


def create(world: World, name: str = "q", **attributes: object) -> str:
    """A private queue; its format name."""
    with world.held() as h:
        h.create(name, **attributes)  # type: ignore[arg-type]  # the test's own choice
    return rf"DIRECT=OS:.\private$\{name}"


def queue_info(world: World, format_name: str) -> MSMQQueueInfo:
    info = MSMQQueueInfo(world.environment)
    world.objects.append(info)
    world.call(info, "put_format_name", format_name)
    return info


def open_queue(world: World, format_name: str, access: int = SEND, by: Identity = SYSTEM) -> MSMQQueue:
    queue: MSMQQueue = world.call(queue_info(world, format_name), "open", access, 0, by=by)
    world.objects.append(queue)
    return queue


def new_message(world: World, body: Variant | None = None, **properties: object) -> MSMQMessage:
    """A message as a client makes it, with properties put."""
    message = MSMQMessage(world.environment)
    world.objects.append(message)
    if body is not None:
        world.call(message, "put_body", body)
    for name, value in properties.items():
        world.call(message, f"put_{name}", value)
    return message


def send(
    world: World,
    message: MSMQMessage,
    to: ComObject | str,
    transaction: Variant = MISSING,
    *,
    by: Identity = SYSTEM,
) -> None:
    target = open_queue(world, to, by=by) if isinstance(to, str) else to
    world.call(message, "send", target, transaction, by=by)


def receive(
    world: World,
    format_name: str,
    transaction: Variant | None = None,
    *,
    want_destination: bool = False,
    want_body: bool = True,
    want_connector_type: bool = False,
) -> Any:  # noqa: ANN401 (an MSMQMessage, or None for an empty queue)
    queue = open_queue(world, format_name, RECEIVE)
    try:
        found = world.call(
            queue,
            "receive",
            number(0) if transaction is None else transaction,
            TRUE if want_destination else FALSE,
            TRUE if want_body else FALSE,
            NOW,
            TRUE if want_connector_type else FALSE,
        )
    finally:
        world.call(queue, "close")
    return found


def packets(world: World, format_name: str) -> list[Message]:
    """The messages of a queue as they are stored, local or outgoing, without touching them."""
    with world.held() as h:
        queue: Queue = h.engine.require_queue(h.name(format_name))
        return [Message(position.record.packet) for position in h.engine.positions.all_positions(queue)]


def packet(world: World, format_name: str) -> Message:
    (found,) = packets(world, format_name)
    return found


def bodies_after_a_kill(world: World, name: str = "q") -> list[bytes]:
    """Return the bodies that a queue manager finds when it starts on the current disk state."""
    with world.held() as h:
        copy = h.path.with_name(f"{h.path.name}-copy")
        shutil.copytree(h.path, copy)
    again = Harness(copy)
    try:
        return again.bodies(name)
    finally:
        again.close()
