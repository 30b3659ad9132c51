"""The choice of backend: Lanner's own interface if it is served, or Microsoft's protocols."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lanner.client._async.connections import Connections, connect_to
from lanner.client._async.lanner_backend import LannerBackend
from lanner.client._async.lanner_connection import LannerConnection
from lanner.client.target import check, first_contact
from lanner.model.errors import status_error
from lanner.rpc.faults import InterfaceRefused
from lanner.rpc.frames import VERSION
from lanner.rpc.interface import RETURNS
from lanner.services.interfaces.lanner import (
    LANNER,
    LANNER_BEGIN_STREAM,
    LANNER_LOG_ON,
    LANNER_OPEN_SESSION,
    LANNER_WHO,
)

if TYPE_CHECKING:
    from lanner.client._async.backend import Backend
    from lanner.client.target import Target


class _NoLanner(Exception):
    """The other side does not serve Lanner's interface."""


async def _make(target: Target) -> LannerConnection:
    client = await connect_to(target)
    try:
        with first_contact(target):
            try:
                bound = await client.bind(LANNER)
            except InterfaceRefused:
                raise _NoLanner from None
            if target.log_on is not None:
                told: dict[str, Any] = await bound.call(LANNER_LOG_ON, request=json.dumps(dict(target.log_on())))
                if told[RETURNS]:
                    raise status_error(told[RETURNS], told["answer"])
            opened: dict[str, Any] = await bound.call(LANNER_OPEN_SESSION)
            check(opened)
            stream: dict[str, Any] = await bound.call(LANNER_BEGIN_STREAM, session=opened["session"], version=VERSION)
            check(stream)
            client.begin_frames(bytes(stream["keys"] or b""))
            who: dict[str, Any] = await bound.call(LANNER_WHO)
            return LannerConnection(client, bound, opened["session"], who["name"], who["identifier"])
    except BaseException:
        await client.close()
        raise


async def open_lanner(target: Target) -> LannerBackend | None:
    """Connect through Lanner's own interface; return None if it is not served."""
    connections = Connections(target, _make, has_texts=True)
    try:
        connection = await connections.now()
    except _NoLanner:
        return None
    except BaseException:
        await connections.close()
        raise
    return LannerBackend(connections, connection.name, connection.identifier)


async def open_backend(target: Target) -> Backend:
    """Connect, and return the backend that fits the other side."""
    found = await open_lanner(target)
    if found is not None:
        return found
    # Imported here: the other side is nearly always a Lanner.
    from lanner.client._async.msmq_backend import MsmqBackend

    return await MsmqBackend.connect(target)
