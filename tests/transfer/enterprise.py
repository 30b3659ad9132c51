"""Queue managers of several sites, each with a directory of its own that knows all of them."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from lanner.directory.topology import Computer, Link, Topology, provision
from lanner.transfer.settings import TransferSettings
from tests.transfer.world import Node, World

# Quick enough for a test to wait for each of them.
QUICK: dict[str, object] = {"try_connect_interval": 1.0, "resend_timeouts_short": 3.0, "resend_timeouts_medium": 5.0}
assert set(QUICK) <= {field.name for field in dataclasses.fields(TransferSettings)}


class Enterprise:
    """Computers by name, in the order given: 127.0.0.2, 127.0.0.3 and so on."""

    def __init__(
        self,
        world: World,
        computers: Iterable[Computer],
        links: Iterable[Link] = (),
        *,
        window_size: int = 64,
        **settings: object,
    ) -> None:
        """`settings` are those of each engine."""
        self.world = world
        self._computers = {computer.name: computer for computer in computers}
        self._links = tuple(links)
        self._public_queues: dict[str, dict[str, UUID]] = {}
        self.nodes = {
            name: world.node(name, f"127.0.0.{number}", **QUICK, window_size=window_size, **settings)
            for number, name in enumerate(self._computers, 2)
        }
        self.tell_everybody()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def tell_everybody(self) -> None:
        """Bring every directory up to date."""
        sites = {site: None for computer in self._computers.values() for site in computer.sites}
        computers = tuple(
            dataclasses.replace(
                computer,
                identifier=self.nodes[name].guid,
                qualified_computer_name=f"{name}.example.com",
                public_queues=self._public_queues.get(name, {}),
            )
            for name, computer in self._computers.items()
        )
        for node in self.nodes.values():
            provision(node.directory, Topology(tuple(sites), computers, self._links))
            node.engine.read_routing_data()
            node.sync()

    def private(self, name: str, queue: str, *, transactional: bool = False) -> str:
        """Make a private queue; its name by which it is reached over routers."""
        node = self.nodes[name]
        made = node.create(queue, transactional=transactional)
        node.sync()
        return f"PRIVATE={node.guid}\\{made.private_queue_number:08x}"

    def public(self, name: str, queue: str, *, transactional: bool = False) -> str:
        """Create a public queue that is in every directory."""
        node = self.nodes[name]
        made = node.create(f".\\{queue}", transactional=transactional)
        node.sync()
        self._public_queues.setdefault(name, {})[queue] = made.identifier
        self.tell_everybody()
        return f"PUBLIC={made.identifier}"

    def down(self, *names: str) -> None:
        """Refuse connections to these nodes and break their existing ones."""
        for name in names:
            node = self.nodes[name]
            self.world.unreachable[node.address] = errno.EHOSTUNREACH
            for connection in [one for one in self.world.connections if one.node is node]:
                connection.cut()

    def up(self, *names: str) -> None:
        for name in names:
            self.world.unreachable.pop(self.nodes[name].address, None)


def line(
    world: World,
    *,
    window_size: int = 64,
    **settings: Any,  # noqa: ANN401 - any setting
) -> Enterprise:
    """ALPHA - ROUTER - OMEGA: the router stands in both sites."""
    return Enterprise(
        world,
        (
            Computer("ALPHA", sites=("west",)),
            Computer("ROUTER", sites=("west", "east"), routing_server=True),
            Computer("OMEGA", sites=("east",)),
        ),
        window_size=window_size,
        **settings,
    )


def three_sites(world: World, *, window_size: int = 64) -> Enterprise:
    """ALPHA - R1 | M1 or M2 | R2 - OMEGA: a gate in each outer site, two in the middle."""
    return Enterprise(
        world,
        (
            Computer("ALPHA", sites=("west",)),
            Computer("R1", sites=("west",), routing_server=True),
            Computer("M1", sites=("middle",), routing_server=True),
            Computer("M2", sites=("middle",), routing_server=True),
            Computer("R2", sites=("east",), routing_server=True),
            Computer("OMEGA", sites=("east",)),
        ),
        (
            Link("west", "middle", site_gates=("R1", "M1", "M2")),
            Link("middle", "east", site_gates=("M1", "M2", "R2")),
        ),
        window_size=window_size,
    )
