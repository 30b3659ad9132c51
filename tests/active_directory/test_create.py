from __future__ import annotations

from tests.active_directory.conftest import World, Wire


def test_all(world: World, wire: Wire) -> None:
    guid = world.add_manager()
    q = world.add_queue("orders", label="étiquette")
    qm = world.read("QueueManager", guid)
    print(qm)
    print(world.read("Queue", q))
    for name in ("Site", "Enterprise", "User", "RoutingLink", "Queue", "QueueManager"):
        print(name, [x.identifier for x in world.all(name, None)])
    print(world.domain.attributes(world.dn))
