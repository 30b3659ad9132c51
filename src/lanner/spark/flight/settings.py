"""The settings of the Flight service, and the service itself where its packages are installed.

Imports neither pyarrow nor numpy.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.host.budget import Budget
    from lanner.host.runtime import Runtime
    from lanner.security.logons import Logons
    from lanner.spark.flight.server import FlightListener

_LOG = logging.getLogger(__name__)

PORT: Final = 1810
# Not in the specification: each stream has two batches in memory, some 40 MiB.
MAX_STREAMS: Final = 64
# Ours: more reader processes than any machine has use for.
MAX_PROCESSES: Final = 256
# Not in the specification: what one publication may hold, and the writers of one user that are
# remembered.
MAX_PUBLICATION_MESSAGES: Final = 10_000_000
MAX_PUBLICATION_MB: Final = 65_536
MAX_WRITERS: Final = 100_000
# Not in the specification: what one user may have staged, and not published yet.
MAX_STAGES: Final = 10_000
MAX_STAGED_MB: Final = 65_536
# Not in the specification: MiB of one message of gRPC, which is what it has of a record batch.
MAX_MESSAGE_MB: Final = 32


class PipelineUnavailable(LannerError):
    """The packages of the data pipeline are not installed."""


@dataclass(frozen=True, slots=True)
class FlightSettings:
    """Where to listen. ValueError says what does not fit together."""

    bind: str = "127.0.0.1"
    port: int = PORT  # 0: any that is free
    # PEM files; both or none.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_streams: int = MAX_STREAMS
    # Whether callers that did not log on may read what a queue allows ANONYMOUS LOGON to read. They
    # never publish.
    allow_anonymous: bool = False
    max_publication_messages: int = MAX_PUBLICATION_MESSAGES
    max_publication_mb: int = MAX_PUBLICATION_MB  # MiB of bodies
    max_writers: int = MAX_WRITERS  # of one user
    max_stages: int = MAX_STAGES  # tokens of one user
    max_staged_mb: int = MAX_STAGED_MB  # MiB of one user
    max_message_mb: int = MAX_MESSAGE_MB  # MiB of one record batch that is written
    max_connections: int = 512
    max_connections_per_peer: int = 64
    # Calls that run at a time, each of which has a thread.
    max_calls: int = 256
    # Processes that show queues to who has a ticket of this one, and their port; 0 processes: this
    # one does it, 0: any port that is free.
    processes: int = 0
    reader_port: int = 0

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both, or none")
        if not ipaddress.ip_address(self.bind).is_loopback and self.tls_certificate is None:
            raise ValueError(
                f"passwords would travel to {self.bind} in the clear: give tls_certificate and tls_key, or bind to 127.0.0.1"
            )
        for name, most in (("port", 0xFFFF), ("reader_port", 0xFFFF), ("processes", MAX_PROCESSES)):
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"{name} {getattr(self, name)}: 0 to {most}")
        counts = ("max_streams", "max_connections", "max_connections_per_peer", "max_calls")
        for name in (
            *counts,
            "max_publication_messages",
            "max_publication_mb",
            "max_writers",
            "max_stages",
            "max_staged_mb",
            "max_message_mb",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: 1 or more")

    @property
    def scheme(self) -> str:
        return "grpc" if self.tls_certificate is None else "grpc+tls"

    def address(self, port: int, host: str | None = None) -> str:
        """The address of a port, where clients have found this service or where it listens."""
        host = host or self.bind
        host = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{host}:{port}"


def is_available() -> bool:
    """Whether the packages that the Flight service needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow"))


def flight_listener_if_available(
    runtime: Runtime, settings: FlightSettings | None = None, logons: Logons | None = None, budget: Budget | None = None
) -> FlightListener | None:
    """The same for a queue manager that was not told whether it wants one: None, and a line in the log, without the packages."""
    try:
        return flight_listener(runtime, settings, logons, budget)
    except PipelineUnavailable as error:
        _LOG.info("%s", error)
        return None


def flight_listener(
    runtime: Runtime, settings: FlightSettings | None = None, logons: Logons | None = None, budget: Budget | None = None
) -> FlightListener:
    """The Flight service, to be started.

    PipelineUnavailable says what to install. `logons` counts wrong passwords.
    """
    if not is_available():
        raise PipelineUnavailable(
            "the Flight service of the data pipeline needs pyarrow and numpy: install them with `pip install 'lanner[spark]'`, "
            "or set flight.enabled = false"
        )
    from lanner.spark.flight.server import FlightListener

    return FlightListener(runtime, settings, logons, budget)
