"""Calls of the Flight service, as each caller makes them."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from lanner.model.errors import AccessDenied, LannerError
from lanner.spark.flight.client import FlightQueues
from lanner.spark.flight.errors import NotAuthenticated
from lanner.spark.flight.server import FlightServer
from tests.adversity.matrix.callers import ACCOUNTS, Caller, Probe, Probes, World
from tests.adversity.matrix.table import Outcome
from tests.adversity.served import PASSWORD

_SCHEMA: Final = pa.schema([("body", pa.binary())])
# What gRPC calls; the actions are listed by their names.
_INHERITED: Final = set(vars(fl.FlightServerBase)) - {"do_action"}


def methods(world: World) -> list[str]:
    """Return what can be called: the methods that the server has, and the actions that it lists."""
    own = [name for name in vars(FlightServer) if name in _INHERITED and not name.startswith("_")]
    return own + [f"do_action {action.type}" for action in actions(world.callers["administrator"])]


def actions(caller: Caller) -> list[fl.ActionType]:
    client = client_of(caller)
    return list(client._client.list_actions(client._options))


_CLIENTS: Final[dict[tuple[int, str], FlightQueues]] = {}


def client_of(caller: Caller) -> FlightQueues:
    """Return the connection of a caller; anonymous ones do not log on."""
    key = caller.world.served.process.pid, caller.column
    if key not in _CLIENTS:
        address = caller.world.served.listeners["flight"]
        account = ACCOUNTS.get(caller.column)
        _CLIENTS[key] = FlightQueues(address, user=account, password=None if account is None else PASSWORD)
    return _CLIENTS[key]


def close_clients() -> None:
    while _CLIENTS:
        _CLIENTS.popitem()[1].close()


class _NothingThereError(Exception):
    """The subject of a call does not exist under this name for this caller."""


def _outcome(work: Callable[[], object]) -> str:
    try:
        work()
    except _NothingThereError:
        return Outcome.NONE
    except (AccessDenied, NotAuthenticated, fl.FlightUnauthenticatedError, fl.FlightUnauthorizedError):
        return Outcome.NO
    except pa.ArrowException as error:
        # GetSchema has no error of its own for it.
        text = str(error)
        return Outcome.NO if "MQ_ERROR_ACCESS_DENIED" in text or "log on" in text else text[:200]
    except LannerError as error:
        return f"{type(error).__name__}: {error}"[:200]
    return Outcome.YES


def on_queue(act: Callable[[Caller, str], object]) -> Probe:
    """A call that names a queue of the owner's."""

    async def probe(caller: Caller) -> str:
        queue = await caller.world.queue()
        return await asyncio.to_thread(_outcome, functools.partial(act, caller, queue))

    return probe


def plainly(act: Callable[[Caller], object]) -> Probe:
    async def probe(caller: Caller) -> str:
        return await asyncio.to_thread(_outcome, functools.partial(act, caller))

    return probe


def _listed(caller: Caller, queue: str) -> None:
    """Find a queue in the list; users who may not peek at it do not see it."""
    if not any(queue in one["queue"] for one in client_of(caller).queues()):
        raise AccessDenied(queue)


def _schema(caller: Caller, queue: str) -> None:
    client = client_of(caller)
    descriptor = fl.FlightDescriptor.for_command(json.dumps({"queue": queue}).encode())
    client._client.get_schema(descriptor, client._options)


def _get(caller: Caller, queue: str) -> None:
    """Read with a ticket of the owner's."""
    ticket = client_of(caller.owner).plan(queue).partitions[0].ticket
    list(client_of(caller)._read_far(ticket))


def reading(action: str) -> Probe:
    """An action of a reader: the caller's own if it can have one, else the owner's."""

    def act(caller: Caller, queue: str) -> object:
        client = client_of(caller)
        whose = client if caller.column in ("owner", "administrator") else client_of(caller.owner)
        lease = whose.acquire(queue, "reader")
        about = whose.bounds(queue)
        arguments: dict[str, Any] = {"queue": queue, "reader": "reader"}
        if action != "forget":
            arguments["fence"] = lease["fence"]
        if action in ("hold", "acknowledge"):
            arguments |= {"upto": about["upto"], "epoch": about["epoch"]}
        try:
            return client.act(action, **arguments)
        finally:
            if action not in ("release", "forget"):
                whose.release(queue, "reader", lease["fence"])

    return on_queue(act)


def _batches() -> list[pa.RecordBatch]:
    return [pa.record_batch([[b"body"]], schema=_SCHEMA)]


def _put(caller: Caller, queue: str) -> None:
    client_of(caller).stage(_batches(), _SCHEMA, writer=f"{caller.column} {queue}", batch=1, queue=queue)


def writing(action: str) -> Probe:
    """Perform an action of the caller's own writer.

    The anonymous and another user present the owner's name and token.
    """

    def act(caller: Caller, queue: str) -> object:
        client = client_of(caller)
        whose = client_of(caller.owner) if caller.takes_anothers else client
        writer = f"writer of {queue}"
        # The name is the writer's from the first publication on.
        for batch in (1, 2):
            staged = whose.stage(_batches(), _SCHEMA, writer=writer, batch=batch, queue=queue)
            if batch == 1:
                whose.publish(writer, 1, [staged["token"]])
        if action == "publish":
            return client.publish(writer, 2, [staged["token"]])
        if action == "drop":
            return client.drop([staged["token"]])
        if client.last_published(writer) is None:
            raise _NothingThereError
        return None

    return on_queue(act)


FLIGHT_PROBES: Final[Probes] = {
    ("list_actions", ""): plainly(actions),
    ("list_flights", ""): on_queue(_listed),
    ("get_flight_info", ""): on_queue(lambda caller, queue: client_of(caller).plan(queue)),
    ("get_schema", ""): on_queue(_schema),
    ("do_get", ""): on_queue(_get),
    ("do_put", ""): on_queue(_put),
    ("do_action info", ""): plainly(lambda caller: client_of(caller).info()),
    ("do_action computers", ""): plainly(lambda caller: client_of(caller).act("computers")),
    ("do_action bounds", ""): on_queue(lambda caller, queue: client_of(caller).bounds(queue)),
    ("do_action measure", ""): on_queue(lambda caller, queue: client_of(caller).measure(queue)),
    ("do_action position", ""): on_queue(
        lambda caller, queue: client_of(caller).act("position", queue=queue, time_ms=0)
    ),
    ("do_action poll", ""): on_queue(lambda caller, queue: client_of(caller).poll([{"queue": queue, "after": 0}])),
    ("do_action destination", ""): on_queue(lambda caller, queue: client_of(caller).act("destination", queue=queue)),
    ("do_action acquire", "to receive"): on_queue(lambda caller, queue: client_of(caller).acquire(queue, "reader")),
    ("do_action acquire", "to peek"): on_queue(
        lambda caller, queue: client_of(caller).acquire(queue, "reader", mode="peek")
    ),
    ("do_action renew", ""): reading("renew"),
    ("do_action hold", ""): reading("hold"),
    ("do_action acknowledge", ""): reading("acknowledge"),
    ("do_action release", ""): reading("release"),
    ("do_action forget", ""): reading("forget"),
    ("do_action publish", ""): writing("publish"),
    ("do_action drop", ""): writing("drop"),
    ("do_action published", ""): writing("published"),
}
