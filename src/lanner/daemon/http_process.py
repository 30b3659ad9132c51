"""The HTTP process: started by the daemon at the first connection, and again if it fails.

The daemon holds its listening socket. The process runs `lanner.http` with three descriptors: the
listening socket, its settings, and one end of a socket pair. Through that pair it passes sockets to
the daemon, each one end of a pair of its own. The daemon serves Lanner's own interface on them,
where a user has to log on before anything else. So the process has only the rights of users who
have logged on, and it ends when the pair is closed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lanner.host.accepting import listen_tcp

if TYPE_CHECKING:
    from lanner.daemon.settings import HttpTable
    from lanner.services.listener import RpcListener

_LOG = logging.getLogger(__name__)

# Seconds: before a failed process is started again, at first and at most; and until a process that
# does not end is killed.
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_END: Final = 5.0


class HttpListener:
    """The listening socket of the HTTP process, and the process while it is needed."""

    name = "http"

    def __init__(self, rpc: RpcListener, settings: HttpTable, bind: str, hosts: Sequence[str]) -> None:
        self._rpc = rpc
        self._settings = settings
        self._bind = bind
        self._hosts = list(hosts)
        self._port = settings.port
        self._listening: socket.socket | None = None
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._pause = _FIRST_PAUSE
        self._timer: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The URL for browsers; empty if it does not listen."""
        if self._listening is None:
            return ""
        host = f"[{self._bind}]" if ":" in self._bind else self._bind
        return f"{'http' if self._settings.tls_certificate is None else 'https'}://{host}:{self._port}"

    async def start(self) -> None:
        """Listen.

        Message traffic does not need it, so a port in use does not prevent the service from
        starting.
        """
        try:
            listening = listen_tcp(self._bind, self._settings.port)
        except OSError as error:
            _LOG.warning(
                "the HTTP API and the console cannot listen on %s port %d: %s; set http.port or http.bind",
                self._bind,
                self._settings.port,
                error.strerror or error,
            )
            return
        self._port = listening.getsockname()[1]
        self._listening = listening
        self._take = self._rpc.door_for_log_ons("http")
        self._wait_for_connection()

    def _wait_for_connection(self) -> None:
        self._timer = None
        if self._listening is not None:
            asyncio.get_running_loop().add_reader(self._listening, self._begin)

    def _begin(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._task = asyncio.get_running_loop().create_task(self._supervise(self._listening))

    async def _supervise(self, listening: socket.socket) -> None:
        code = await self._run(listening)
        if code == 0:
            self._pause = _FIRST_PAUSE
            self._wait_for_connection()
            return
        _LOG.error(
            "the HTTP process has failed (%s): it is started again in %g s, at the next connection", code, self._pause
        )
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._wait_for_connection)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    async def _run(self, listening: socket.socket) -> int | str:
        """Run the process until it ends; return its exit code, or why it could not be started."""
        loop = asyncio.get_running_loop()
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        settings, written = os.pipe()
        try:
            with its:
                os.write(written, json.dumps(self._told).encode())
                os.close(written)
                ours.setblocking(False)
                loop.add_reader(ours, self._adopt, ours)
                inherited = [str(one) for one in (listening.fileno(), its.fileno(), settings)]
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        sys.executable,
                        # Otherwise Python would look for modules in the current directory first,
                        # and other users may be able to write to that.
                        "-P",
                        "-m",
                        "lanner.http",
                        *inherited,
                        stdin=asyncio.subprocess.DEVNULL,
                        # The daemon's output when it is ready is meant for programs.
                        stdout=asyncio.subprocess.DEVNULL,
                        pass_fds=[int(one) for one in inherited],
                        # Ctrl-C in a terminal is for the daemon, which ends the process.
                        start_new_session=True,
                    )
                finally:
                    os.close(settings)
            code = await self._process.wait()
            self._process = None
            return code
        except OSError as error:
            return error.strerror or str(error)
        finally:
            loop.remove_reader(ours)
            ours.close()

    @property
    def _told(self) -> dict[str, object]:
        """The settings for the process, as JSON. They fit into a pipe."""
        table = self._settings
        is_open = ipaddress.ip_address(self._bind).is_unspecified
        return {
            "hosts": [*self._hosts, "localhost", *([] if is_open else [self._bind])],
            "tls_certificate": None if table.tls_certificate is None else str(table.tls_certificate.absolute()),
            "tls_key": None if table.tls_key is None else str(table.tls_key.absolute()),
            "log_level": logging.getLevelName(logging.getLogger("lanner").level),
            **table.model_dump(
                include={"idle_timeout", "session_timeout", "max_connections", "max_connections_per_peer"}
            ),
        }

    def _adopt(self, ours: socket.socket) -> None:
        """Serve a socket that the process has passed."""
        try:
            data, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            # The process has ended, or is about to.
            asyncio.get_running_loop().remove_reader(ours)
        for descriptor in descriptors:
            self._take(socket.socket(fileno=descriptor))

    async def stop(self) -> None:
        """End the process, and stop listening."""
        if self._listening is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening)
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _END)
            except TimeoutError:
                self._process.kill()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_END)
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        loop.remove_reader(self._listening)
        self._listening.close()
        self._listening = None
