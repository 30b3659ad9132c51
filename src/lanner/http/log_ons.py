"""How users log on to the queue manager: through the daemon, or to another host."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from lanner.aio import QueueManager
from lanner.client._async.connecting import open_backend
from lanner.client._async.connections import connect_to
from lanner.client._async.lanner_backend import LannerBackend
from lanner.client.target import Target
from lanner.model.errors import AccessDenied, InvalidHandle, LannerError, UnsupportedOperation
from lanner.rpc.async_client import connect_socket
from lanner.rpc.security import Credentials
from lanner.services.interfaces.lanner import LANNER

# A queue manager that is ready answers within this many seconds.
_READY: Final = 5.0


@dataclass(frozen=True, slots=True)
class LoggedOn:
    """The queue manager as a user sees it, and whether it still answers."""

    manager: QueueManager
    is_open: Callable[[], bool]


class LogOns(Protocol):
    """Logs users on."""

    async def log_on(self, secret: Mapping[str, str], address: str) -> LoggedOn:
        """Return the queue manager as a user sees it.

        `secret` has a user and a password, a token, or a ticket. `address` is the user's address.
        Raises AccessDenied if the secret is wrong.
        """

    async def is_ready(self) -> bool:
        """Return whether the queue manager answers."""


class Once:
    """A value that can be taken once.

    A lost connection is therefore not made again, and no password is kept for it.
    """

    def __init__(self, value: object) -> None:
        self._value = [value]

    def take(self) -> object:
        if not self._value:
            raise InvalidHandle("the connection to the queue manager was lost: log on again")
        return self._value.pop()


@dataclass(frozen=True, slots=True)
class ThroughDaemon:
    """Passes sockets to the daemon, which serves them."""

    daemon: socket.socket

    def _connected(self) -> socket.socket:
        ours, its = socket.socketpair()
        with its:
            socket.send_fds(self.daemon, [b"\0"], [its.fileno()])
        return ours

    async def is_ready(self) -> bool:
        try:
            async with asyncio.timeout(_READY), await connect_socket(self._connected(), "the queue manager") as client:
                await client.bind(LANNER)
        except (OSError, LannerError):
            return False
        return True

    async def log_on(self, secret: Mapping[str, str], address: str) -> LoggedOn:
        def connected() -> socket.socket:
            known.take()
            return self._connected()

        def document() -> Mapping[str, str]:
            return {**given.pop(), "address": address}

        known, given = Once(value=True), [dict(secret)]
        return await _open(Target(None, connected=connected, log_on=document))


@dataclass(slots=True)
class ToHost:
    """Connects to another computer: by NTLM with a password, with a token over `user`'s connection.

    The `ticket` is valid for one logon as that user.
    """

    host: str
    port: int | None = None
    user: str = ""
    password: str = field(default="", repr=False)
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    async def is_ready(self) -> bool:
        try:
            async with asyncio.timeout(_READY), await connect_to(Target(self.host, None, self.port)):
                return True
        except (OSError, LannerError):
            return False

    async def log_on(self, secret: Mapping[str, str], address: str) -> LoggedOn:
        del address
        if "ticket" in secret:
            expected, self.ticket = self.ticket, ""
            if not expected or not hmac.compare_digest(secret["ticket"].encode(), expected.encode()):
                raise AccessDenied("the link was used already: `lanner console` makes another")
            secret = {"user": self.user, "password": self.password}
        if "password" in secret:
            return await _open(Target(self.host, None, self.port, Credentials(secret["user"], secret["password"])))
        if not self.user:
            raise AccessDenied(
                f"{self.host} takes a token on a sealed connection only: log on with a user and a password"
            )
        credentials = Credentials(self.user, self.password)
        return await _open(Target(self.host, None, self.port, credentials, log_on=lambda: dict(secret)))


async def _open(target: Target) -> LoggedOn:
    backend = await open_backend(target)
    if not isinstance(backend, LannerBackend):
        await backend.close()
        raise UnsupportedOperation(f"{target.place} is no Lanner, and has no console")
    return LoggedOn(QueueManager.over(backend), lambda: backend.connections.is_open)
