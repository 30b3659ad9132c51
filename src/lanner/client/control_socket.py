"""Where a running queue manager answers commands on this machine: a socket in its data directory (see `administration`).

The directory belongs to one process while it is open, so that other commands cannot look into it themselves. The asking side is
in cli/control.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lanner.model.errors import LannerError

if TYPE_CHECKING:
    from lanner.client.administration import Administration

_LOG = logging.getLogger(__name__)

CONTROL_SOCKET = "control.sock"
# Ours: bytes of a request. A name in it has a few hundred.
MAX_CONTROL_LINE = 64 << 10
# Ours: connections at once; a command needs one for a moment.
MAX_CONNECTIONS = 64
# What SO_PEERCRED tells: process, user, group.
_UCRED = struct.Struct("3i")


@contextmanager
def control_path(directory: Path) -> Iterator[str]:
    """The control socket by a path that fits into a socket address, however long the directory's own is."""
    opened = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{CONTROL_SOCKET}"
    finally:
        os.close(opened)


class ControlListener:
    """The control socket of the data directory: one JSON document a line asks, one answers (see Administration).

    For commands on this machine, of root and of the user that runs the queue manager, until these speak RPC.
    """

    name = "control"

    def __init__(self, directory: Path, administration: Callable[[asyncio.AbstractEventLoop], Administration]) -> None:
        self._directory = directory
        self._make_administration = administration
        self._connections: set[asyncio.Task[None]] = set()
        self.address = str(self._directory / CONTROL_SOCKET)

    async def start(self) -> None:
        self._administration = self._make_administration(asyncio.get_running_loop())
        listening = self._bind()
        try:
            self._server = await asyncio.start_unix_server(self._serve, sock=listening, limit=MAX_CONTROL_LINE)
        except BaseException:
            listening.close()
            raise

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with control_path(self._directory) as path:
                # The directory is ours alone, so what lies there was left by a process that was killed.
                Path(path).unlink(missing_ok=True)
                listening.bind(path)
                # Nobody can connect before the socket listens.
                Path(path).chmod(0o600)
        except BaseException:
            listening.close()
            raise
        return listening

    async def stop(self) -> None:
        (self._directory / CONTROL_SOCKET).unlink(missing_ok=True)
        self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (asyncio runs this as one)
        self._connections.add(task)
        try:
            connection = writer.get_extra_info("socket")
            _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            if len(self._connections) > MAX_CONNECTIONS:
                await _write(writer, {"error": f"{MAX_CONNECTIONS} others are asking already"})
                return
            if uid not in (0, os.geteuid()):
                _LOG.warning("uid %d was refused at the control socket", uid)
                await _write(writer, {"error": f"only root and uid {os.geteuid()} may ask, not uid {uid}"})
                return
            while line := await self._line(reader, writer):
                await _write(writer, await asyncio.to_thread(self._answer, line))
        except (ConnectionError, asyncio.CancelledError):
            _LOG.debug("a connection to the control socket has ended")
        finally:
            self._connections.discard(task)
            writer.close()

    @staticmethod
    async def _line(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The next line; empty at the end."""
        try:
            return await reader.readline()
        except ValueError:
            await _write(writer, {"error": f"a request has at most {MAX_CONTROL_LINE} bytes"})
            return b""

    def _answer(self, line: bytes) -> dict[str, object]:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            return {"error": f"the request is not JSON: {error}"}
        try:
            return {"answer": self._administration.answer(request)}
        except LannerError as error:
            return {"error": str(error)}
        except Exception as error:  # noqa: BLE001 (logged, and told to whoever asked)
            _LOG.exception("a request at the control socket failed")
            return {"error": f"{type(error).__name__}: {error}; this is a fault of lanner, the log shows where"}


async def _write(writer: asyncio.StreamWriter, document: dict[str, object]) -> None:
    writer.write(json.dumps(document).encode() + b"\n")
    await writer.drain()
