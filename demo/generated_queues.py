r"""A generated machine as a real queue manager.

It gets the queues, journals, dead-letter, administration and report queues of the machine, with the
messages that would be found in them.

    world = generate()
    with QueueManager("data", name=world.machines[0].name) as manager:
        fill(world, manager)

Messages are put where the generator saw them, with its times and counts. They do not arrive in the
usual way, so nothing is acknowledged, journaled or expired because of them. Unreadable packets are
left out, because no queue would have accepted them.
"""

from __future__ import annotations

from demo.generator import ACKS, REPORTS, Sighting, World
from lanner.client import QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.host.change import Change
from lanner.model.enums import QueueAccessType
from lanner.model.errors import RemoteProtocolError
from lanner.wire.message import Message

__all__ = ["fill"]


def fill(world: World, manager: QueueManager) -> int:
    """Create a machine's queues in the queue manager of the same name and fill them.

    Returns the number of messages.
    """
    machine = next(machine for machine in world.machines if machine.name == manager.name)
    for queue in world.queues:
        if queue.machine is machine:
            manager.create_queue(queue.name, transactional=queue.is_transactional, journal=queue.has_journal)
    manager.create_queue(ACKS)
    manager.create_queue(f".\\{REPORTS}")
    found = sorted((s for s in world.sightings if s.machine is machine), key=lambda sighting: sighting.time)
    changes = [change for sighting in found if (change := _put(manager, sighting)) is not None]
    for change in changes:
        change.wait()
    return len(changes)


def _put(manager: QueueManager, sighting: Sighting) -> Change | None:
    """Put one message into its queue; return None if it cannot be read."""
    try:
        Message.unpack(sighting.packet)
    except RemoteProtocolError:
        return None
    runtime, operations = runtime_of(manager), operations_of(manager)
    if sighting.subqueue is not None:
        # A subqueue is created when it is first opened.
        with runtime.lock:
            operations.close(operations.open(operations.names.format_name(sighting.queue), QueueAccessType.MOVE))
    with runtime.change() as change:
        runtime.engine.restore_message(
            operations.find(sighting.queue),
            sighting.packet,
            arrived=sighting.machine.clock(sighting.time),
            abort_count=sighting.abort_count,
            move_count=sighting.move_count,
        )
    return change
