"""The Arrow Flight service of a queue manager, and its client.

A ticket here is a ticket of Arrow Flight: the bytes that name one stream of a plan. The public
names are imported on first use, so that `settings` can be imported without pyarrow.

    server        the Flight server; its docstring is the reference of the protocol
    client        the same protocol for Python programs
    front         the port: counts connections, ends TLS, and passes bytes on to the server
    grpc_messages  what a client sends to gRPC, followed on its way: lengths, and what is compressed
    arrow_headers  the headers of record batches in it
    service       what the server does, without Flight: requests in, answers out
    requests      strict parsing of the JSON that callers send
    auth          who calls: passwords and tokens
    local_user    who calls from this machine: the user that the kernel names
    refusals      errors as Flight errors
    streams       how many streams run, and whose
    tickets       signed tickets: what a reader process may show
    reader_process  a process that shows what such tickets name: its start and its limits
    reader_server   its Flight service
    reader_pool     the processes, as the queue manager starts and watches them
    confinement   takes from a process the rights that it does not need
    arrival_marks when numbers of the visibility sequence were issued
    errors        the errors of the service, beside those of the queue manager
    readers       named readers of a queue and their leases
    writing       staged and published writes
    staged_parts  what a writer sends, cut into parts: rows or packets
    staged_room   how much each user may have staged
    arrivals      waits until a queue has new messages
    courtesy      limits the CPU and memory that streams take from the queue manager
    near_streams  streams to programs on the same machine, through shared memory
    near_server   the queue manager's side of these streams
    settings      the settings of the service; imports neither pyarrow nor numpy
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
