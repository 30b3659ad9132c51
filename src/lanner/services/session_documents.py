"""Connections as documents: RPC clients and other queue managers, and closing them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lanner.model.errors import InvalidParameter

if TYPE_CHECKING:
    from lanner.rpc.server_socket import ServerSocket
    from lanner.transfer.link import Link

Document = dict[str, Any]

CLIENT = "client"
QUEUE_MANAGER = "queue manager"


class SessionDocuments:
    """The connections of a queue manager.

    Call it in the thread of their event loop.
    """

    def __init__(self, links: Callable[[], list[Link]], clients: Callable[[], list[ServerSocket]]) -> None:
        self._links = links
        self._clients = clients

    def describe(self) -> list[Document]:
        """Return the connections: kind, number, address, user, and time of connection."""
        clients = [
            {
                "kind": CLIENT,
                "number": one.number,
                "address": one.address,
                "user": one.user,
                "since": _moment(one.since),
            }
            for one in self._clients()
        ]
        others = [
            {
                "kind": QUEUE_MANAGER,
                "number": link.number,
                "address": link.remote_address,
                "user": str(link.remote_qm_guid),
                "since": None,
            }
            for link in self._links()
        ]
        return [*clients, *others]

    def close(self, kind: object, number: object) -> None:
        """Close a connection.

        Messages that a client holds return to their queues; a queue manager connects again. Raises
        InvalidParameter if there is no such connection.
        """
        for client in self._clients() if kind == CLIENT else ():
            if client.number == number:
                client.abort()
                return
        for link in self._links() if kind == QUEUE_MANAGER else ():
            if link.number == number:
                link.close("ended by an administrator")
                return
        raise InvalidParameter(f"there is no session {kind} {number}; `lanner sessions` lists them")


def _moment(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat()
