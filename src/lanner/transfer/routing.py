"""Routing: the binary reliable message routing algorithm (MS-MQBR; MS-MQQB 3.1.7.5).

It finds the queue managers through which a message goes. Every function is called with the store's
lock held. The document keeps its RoutingTable for an hour. Here it is computed when a session is to
be established, from the directory's answers of the last minute.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from lanner.engine.directory_events import identifier_is
from lanner.model.directory_objects import QueueManager, RoutingLink

if TYPE_CHECKING:
    from lanner.engine import Engine

_LOG = logging.getLogger(__name__)


def get_next_hops(engine: Engine, queue_manager_guid: UUID) -> list[QueueManager]:
    """Return the queue managers to try, in order (MS-MQQB 3.1.7.5 Get Next Hops).

    They are objects of the directory. An empty list is failure.
    """
    found = [get_queue_manager(engine, guid) for guid in next_hop_guids(engine, queue_manager_guid)]
    return [hop for hop in found if hop is not None]


def next_hop_guids(engine: Engine, destination_id: UUID) -> list[UUID]:
    """Return the next hops from this queue manager (MS-MQBR 3.1.5.1 GetNextHops).

    Where the document selects one of several routing servers or site gates, all are returned: if
    the first does not answer, the next one is tried.
    """
    source = get_queue_manager(engine, engine.queue_manager.identifier)
    destination = get_queue_manager(engine, destination_id)
    if source is None or destination is None:
        return []
    if source.routing_server:
        hops = _next_hops_for_router(engine, source, destination)
    elif source.out_routing_server_identifier_list:
        hops = source.out_routing_server_identifier_list
    elif _share_a_site(source, destination):
        hops = _next_hops_within_site(source, destination)
    else:
        hops = _routing_servers(engine, source)
    # A queue manager misconfigured as its own routing server would send to itself forever.
    others = [hop for hop in hops if hop != source.identifier]
    if not others:
        _LOG.info("no route to queue manager %s (%s)", destination.computer_name, destination_id)
    return others


def _next_hops_for_router(engine: Engine, source: QueueManager, destination: QueueManager) -> list[UUID]:
    """Return the next hops of a routing server.

    Implements 3.1.5.2 GetNextHopsForRouter and 3.1.5.3 GetNextHopsForSiteGate, which differ only
    beyond the site.
    """
    if source.identifier in destination.in_routing_server_identifier_list:
        return [destination.identifier]
    if _share_a_site(source, destination):
        return _next_hops_within_site(source, destination)
    links = engine.routing_links()
    own_gates = [gate.identifier for site in source.site_identifier_list for gate in engine.site_gates(site, links)]
    if source.identifier not in own_gates:
        # 3.1.5.6 GetSiteGate
        return list(dict.fromkeys(own_gates))
    # 3.1.5.7 GetSiteGateForSite
    table = routing_table(source.site_identifier_list, links)
    reachable = [site for site in table if site in destination.site_identifier_list]
    return [gate.identifier for gate in engine.site_gates(table[reachable[0]], links)] if reachable else []


def _next_hops_within_site(source: QueueManager, destination: QueueManager) -> list[UUID]:
    servers = destination.in_routing_server_identifier_list
    return servers if servers and source.identifier not in servers else [destination.identifier]


def _share_a_site(one: QueueManager, other: QueueManager) -> bool:
    return not set(one.site_identifier_list).isdisjoint(other.site_identifier_list)


def _routing_servers(engine: Engine, source: QueueManager) -> list[UUID]:
    """Return the routing servers of the queue manager's own sites (3.1.5.5 GetRoutingServer)."""
    return [server.identifier for server in engine.routing_servers() if _share_a_site(server, source)]


def get_queue_manager(engine: Engine, machine_id: UUID) -> QueueManager | None:
    """Return a queue manager of the directory, or None (3.1.5.4 GetQueueManager)."""
    _, found = engine.read_directory("QueueManager", identifier_is(machine_id))
    return found if isinstance(found, QueueManager) else None


def routing_table(own_sites: Iterable[UUID], links: Iterable[RoutingLink]) -> Mapping[UUID, UUID]:
    """Return the RoutingTable (3.1.1.2): NextHopSiteID by DestinationSiteID, the nearest first.

    Uses Dijkstra's algorithm (3.1.3.1). A queue manager of several sites starts from all of them.
    Sites without a path are not in the table.
    """
    edges: defaultdict[UUID, list[tuple[int, UUID]]] = defaultdict(list)
    for link in links:
        edges[link.site1_identifier].append((link.actual_cost, link.site2_identifier))
        edges[link.site2_identifier].append((link.actual_cost, link.site1_identifier))
    reached = set(own_sites)
    next_hops: dict[UUID, UUID] = {}
    # (cost, destination site, next-hop site). Among equal costs the GUID decides, so the result is
    # reproducible.
    paths = [(cost, site, site) for own in reached for cost, site in edges[own]]
    heapq.heapify(paths)
    while paths:
        cost, site, next_hop = heapq.heappop(paths)
        if site in reached:
            continue
        reached.add(site)
        next_hops[site] = next_hop
        for further, neighbour in edges[site]:
            heapq.heappush(paths, (cost + further, neighbour, next_hop))
    return next_hops
