r"""A generated machine as a real queue manager: its queues, journals, dead-letter, administration and report queues, as they would be found.

    world = generate()
    with QueueManager("data", name=world.machines[0].name) as manager:
        fill(world, manager)

Messages are put where the generator saw them, with the times and counts it gave them. They do not
arrive: nothing is acknowledged, journaled or expires because of it. What cannot be read is left
out, since no queue would have taken it.
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
    """Put into a queue manager what the machine of its name has; how many messages that is.

    Its queues are made.
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
    """Put one message into its queue; None if it cannot be read."""
    try:
        Message.unpack(sighting.packet)
    except RemoteProtocolError:
        return None
    runtime, operations = runtime_of(manager), operations_of(manager)
    if sighting.subqueue is not None:
        # A subqueue comes into being when somebody opens it.
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
