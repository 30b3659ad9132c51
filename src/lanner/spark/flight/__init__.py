"""The Arrow Flight service of a queue manager, and its client.

A ticket here is a ticket of Arrow Flight: the bytes that name one stream of a plan. The public
names are imported on first use, so that `settings` can be imported without pyarrow.

    server          the Flight server; its docstring is the reference of the protocol
    client          the same protocol for Python programs
    front           the port: limits connections, ends TLS, relays bytes to the server
    grpc_messages   checks of the messages to gRPC on their way: length, compression
    arrow_headers   detection of compressed record batches in these messages
    service         the operations of the server, independent of Flight
    requests        strict parsing of the JSON in requests
    auth            authentication: passwords and tokens
    local_user      the local user of a connection, according to the kernel
    refusals        turns errors into Flight errors
    gates           limits the calls of one user that compute at a time
    streams         the running streams, with limits
    tickets         signed tickets for reader processes
    reader_process  a process that serves signed tickets: its start and its limits
    reader_server   the Flight service of a reader process
    reader_pool     starts and watches the reader processes
    confinement     takes from a process the rights that it does not need
    arrival_marks   the times at which numbers of the visibility sequence were issued
    errors          the errors of the service, in addition to those of the queue manager
    readers         named readers of a queue and their leases
    writing         staged and published writes
    staged_parts    the rows or packets of a writer, cut into parts
    staged_room     limits on staged writes per user
    arrivals        waits for new messages
    courtesy        limits the CPU and memory that streams take from the queue manager
    near_streams    streams to programs on the same machine, through shared memory
    near_server     the server side of these streams
    settings        the settings of the service; imports neither pyarrow nor numpy
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lanner.spark.flight.client import FlightQueues
    from lanner.spark.flight.server import FlightListener
    from lanner.spark.flight.settings import FlightSettings

__all__ = ["FlightListener", "FlightQueues", "FlightSettings"]

_MODULES: Final = {"FlightListener": "server", "FlightQueues": "client", "FlightSettings": "settings"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
