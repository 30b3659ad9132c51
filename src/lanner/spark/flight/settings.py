"""The settings of the Flight service, and its listener if pyarrow and numpy are installed.

This module imports neither.
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
# Not in the specification: more reader processes than any machine can use.
MAX_PROCESSES: Final = 256
# Not in the specification: limits of one publication; stored writers of one user.
MAX_PUBLICATION_MESSAGES: Final = 10_000_000
MAX_PUBLICATION_MB: Final = 65_536
MAX_WRITERS: Final = 100_000
# Not in the specification: staged and unpublished writes of one user.
MAX_STAGES: Final = 10_000
MAX_STAGED_MB: Final = 65_536
# Not in the specification: MiB of one gRPC message, and so of a record batch.
MAX_MESSAGE_MB: Final = 32


class PipelineUnavailable(LannerError):
    """The packages of the data pipeline are not installed."""


@dataclass(frozen=True, slots=True)
class FlightSettings:
    """Addresses and limits. Raises ValueError for values that do not fit together."""

    bind: str = "127.0.0.1"
    port: int = PORT  # 0: any free port
    # PEM files; both or neither.
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_streams: int = MAX_STREAMS
    # Whether callers without a logon may read what a queue allows to ANONYMOUS LOGON. They can
    # never publish.
    allow_anonymous: bool = False
    max_publication_messages: int = MAX_PUBLICATION_MESSAGES
    max_publication_mb: int = MAX_PUBLICATION_MB  # MiB of bodies
    max_writers: int = MAX_WRITERS  # of one user
    max_stages: int = MAX_STAGES  # tokens of one user
    max_staged_mb: int = MAX_STAGED_MB  # MiB of one user
    max_message_mb: int = MAX_MESSAGE_MB  # MiB of one record batch in a write
    max_connections: int = 512
    max_connections_per_peer: int = 64
    # Concurrent calls. Each has a thread.
    max_calls: int = 256
    # Processes that serve queues to clients with a ticket, and their port. 0 processes: this
    # process serves them. Port 0: any free port.
    processes: int = 0
    reader_port: int = 0

    def __post_init__(self) -> None:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together: give both, or none")
        if not ipaddress.ip_address(self.bind).is_loopback and self.tls_certificate is None:
            raise ValueError(
                f"passwords would travel to {self.bind} in the clear: give tls_certificate and tls_key, or bind to "
                "127.0.0.1"
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
        """Return the address of a port, at the host that clients use or else at `bind`."""
        host = host or self.bind
        host = f"[{host}]" if ":" in host else host
        return f"{self.scheme}://{host}:{port}"


def is_available() -> bool:
    """Return whether the packages that the Flight service needs are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("numpy", "pyarrow"))


def flight_listener_if_available(
    runtime: Runtime, settings: FlightSettings | None = None, logons: Logons | None = None, budget: Budget | None = None
) -> FlightListener | None:
    """Return the Flight service, or None if its packages are not installed.

    For a queue manager whose settings do not mention the service. The reason is logged.
    """
    try:
        return flight_listener(runtime, settings, logons, budget)
    except PipelineUnavailable as error:
        _LOG.info("%s", error)
        return None


def flight_listener(
    runtime: Runtime, settings: FlightSettings | None = None, logons: Logons | None = None, budget: Budget | None = None
) -> FlightListener:
    """Return the Flight service, not yet started. `logons` counts wrong passwords.

    Raises PipelineUnavailable, which names the packages to install.
    """
    if not is_available():
        raise PipelineUnavailable(
            "the Flight service of the data pipeline needs pyarrow and numpy: install them with `pip install "
            "'lanner[spark]'`, or set flight.enabled = false"
        )
    from lanner.spark.flight.server import FlightListener

    return FlightListener(runtime, settings, logons, budget)
