"""Connections from the processes of a Spark job to queue managers, with retries.

Each process reads the password itself, from a file or an environment variable. `Access`, which is
sent to workers, contains only where to find it. Connections are kept for the life of the process,
because a logon costs some tens of milliseconds and a Spark worker runs many short tasks.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from lanner.model.errors import InvalidParameter, ServiceNotAvailable
from lanner.spark.flight.errors import NotAuthenticated, TooBusy

if TYPE_CHECKING:
    import pyarrow as pa

    from lanner.spark.flight.client import FlightQueues, Partition

T = TypeVar("T")

FLIGHT, RPC = "flight", "rpc"

PORT: Final = 1810
PASSWORD_VARIABLE: Final = "LANNER_PASSWORD"  # noqa: S105 (its name)
_SCHEMES: Final = ("grpc", "grpc+tcp", "grpc+tls")
# Not in the specification: the seconds between two attempts. They double each time, up to the
# second number.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


@dataclass(frozen=True, slots=True)
class Access:
    """The addresses of queue managers and the user to log on as. It contains no secret."""

    managers: tuple[str, ...]
    user: str | None = None
    password_file: str | None = None
    password_variable: str | None = None
    tls_roots: str | None = None
    retry: int = 0  # seconds
    transport: str = FLIGHT

    def password(self) -> str | None:
        """Read the password. Raises InvalidParameter if it is not where it should be."""
        if self.user is None:
            return None
        if self.password_file is not None:
            from lanner.security.private_files import read_private

            content = read_private(Path(self.password_file))
            if content is None:
                raise InvalidParameter(
                    f"passwordFile: there is no {self.password_file} here; it is needed on the driver and on every "
                    "worker"
                )
            return content.decode().splitlines()[0] if content else ""
        variable = self.password_variable or PASSWORD_VARIABLE
        password = os.environ.get(variable)
        if password is None:
            raise InvalidParameter(
                f"the password of {self.user} is expected in the environment variable {variable}, on the driver and "
                f"on every worker (spark.executorEnv.{variable}), or in a file named by the option passwordFile"
            )
        return password


def parse_address(text: str) -> str:
    """Return the Flight address for a host: ALPHA, 10.0.0.1:1810, grpc+tls://alpha.example.com."""
    full = text if "://" in text else f"grpc://{text}"
    expected = f"managers: {text!r}: a host, host:port, grpc://host:port or grpc+tls://host:port expected"
    try:
        parts = urlsplit(full)
        port = PORT if parts.port is None else parts.port
    except ValueError:
        raise InvalidParameter(expected) from None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.path or parts.query or parts.fragment:
        raise InvalidParameter(expected)
    if "@" in parts.netloc:
        raise InvalidParameter(f"managers: {parts.hostname}: user and password do not belong into an address")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def discovered(text: str, access: Access) -> list[str]:
    """Return the addresses of an item of `managers`.

    file:PATH: the addresses in a file.
    dns:NAME, dns:NAME:PORT: the addresses of a name in DNS.
    directory:ADDRESS: all computers in the directory of a queue manager, read with `access`.
    Any other item is itself an address.
    """
    kind, colon, rest = text.partition(":")
    if colon and kind == "file":
        try:
            lines = Path(rest).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParameter(f"managers: {rest} cannot be read, one address a line: {error}") from None
        found = [line.partition("#")[0].strip() for line in lines]
    elif colon and kind == "dns":
        name, _, port = rest.partition(":")
        try:
            infos = socket.getaddrinfo(name, port or PORT, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise InvalidParameter(f"managers: DNS has no address of {name!r}: {error}") from None
        hosts = [str(where[0]) for *_, where in infos]
        found = [f"[{host}]:{port or PORT}" if ":" in host else f"{host}:{port or PORT}" for host in hosts]
    elif colon and kind == "directory":
        told = Manager(access, parse_address(rest)).call(lambda queues: queues.act("computers"))
        found = [computer["address"] or computer["name"] for computer in told["computers"]]
    else:
        return [text]
    found = list(dict.fromkeys(filter(None, found)))
    if not found:
        raise InvalidParameter(f"managers: {text} names no queue manager")
    return found


def parse_host(text: str) -> str:
    """Parse an address of remote read: a host, or host:port."""
    expected = f"managers: {text!r}: with transport rpc a host or host:port expected"
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise InvalidParameter(expected) from None
    if "://" in text or not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise InvalidParameter(expected)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if port is None else f"{host}:{port}"


_KEPT: Final[dict[tuple[int, Access, str], FlightQueues]] = {}
_LOCK: Final = threading.Lock()


class Manager:
    """One queue manager. It cannot be pickled."""

    def __init__(self, access: Access, address: str) -> None:
        self.address = address
        self._access = access
        # The process id is kept because a connection does not survive a fork.
        self._key = (os.getpid(), access, address)

    def _connected(self) -> tuple[FlightQueues, bool]:
        """Return a connection, and whether it is new."""
        with _LOCK:
            found = _KEPT.get(self._key)
        if found is not None:
            return found, False
        from lanner.spark.flight.client import FlightQueues

        access = self._access
        roots = None if access.tls_roots is None else Path(access.tls_roots)
        made = FlightQueues(self.address, user=access.user, password=access.password(), tls_roots=roots)
        with _LOCK:
            kept = _KEPT.setdefault(self._key, made)
        return kept, True

    def disconnect(self) -> None:
        """Use a new connection for the next call. Running calls of other threads continue."""
        with _LOCK:
            _KEPT.pop(self._key, None)

    def call(self, work: Callable[[FlightQueues], T]) -> T:
        """Run a call, which must be repeatable.

        It is retried while the service does not answer, for the time in the options.
        """
        for result in self._tried(lambda queues: iter((work(queues),))):
            return result
        raise AssertionError

    def once(self, work: Callable[[FlightQueues], T]) -> T:
        """Run a call that cannot be repeated."""
        queues, _ = self._connected()
        return work(queues)

    def read(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition. Only the first batch is retried."""
        return self._tried(lambda queues: queues.read(partition))

    def _tried(self, work: Callable[[FlightQueues], Iterator[T]]) -> Iterator[T]:
        deadline = time.monotonic() + self._access.retry
        pause = _FIRST_PAUSE
        while True:
            is_new, has_begun = True, False
            try:
                queues, is_new = self._connected()
                for result in work(queues):
                    has_begun = True
                    yield result
            except (ServiceNotAvailable, TooBusy, NotAuthenticated) as error:
                # A kept connection and its token may be from before a restart, so the logon is
                # tried again. A wrong password stays wrong.
                is_old = not is_new and not isinstance(error, TooBusy)
                is_over = isinstance(error, NotAuthenticated) or time.monotonic() + pause > deadline
                if has_begun or (is_over and not is_old):
                    raise
                if not isinstance(error, TooBusy):
                    self.disconnect()
            else:
                return
            if not is_old:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
