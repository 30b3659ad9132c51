"""The reader processes, as the queue manager manages them.

They are started with the first ticket, and restarted after a failure. All share one listening
socket, which the queue manager owns: while one process restarts, another accepts a new connection,
or the connection waits.

A process is killed if it is silent, or keeps an old snapshot of the database. LMDB does not reuse
pages that a snapshot needs, so the file would grow. LMDB's reader table keeps a killed process
until another process checks the table, which is done here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lanner.host.accepting import listen_tcp
from lanner.host.budget import Usage
from lanner.spark.flight.reader_process import DIRECTORY
from lanner.spark.flight.settings import FlightSettings
from lanner.spark.flight.tickets import Tickets
from lanner.store import Store

__all__ = ["ReaderPool", "Snapshots"]

_LOG: Final = logging.getLogger(__name__)

# Not in the specification: times, in seconds.
_LOOK, _LOOK_FIRST = 1.0, 0.1  # between two checks; the latter while the processes start
MAX_SILENCE: Final = 60.0  # after which a process is killed
MAX_SNAPSHOT: Final = 30.0  # for which a process may keep one snapshot before it is killed
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 60.0  # before a failed process is restarted: at first, at most
_END: Final = 2.0  # that a process has to exit
# Not in the specification: seconds that a process may take to start on a busy machine; seconds that
# the first caller waits for one.
MAX_START: Final = 300.0
PATIENCE: Final = 10.0


class Snapshots:
    """The age of old snapshots, per process."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, int], float] = {}

    def too_old(self, last: int, snapshots: Iterable[tuple[int, int]], now: float) -> set[int]:
        """Return the processes that have kept an outdated snapshot for too long."""
        old = {one for one in snapshots if one[1] < last}
        self._since = {one: self._since.get(one, now) for one in old}
        return {process for (process, _), since in self._since.items() if now - since > MAX_SNAPSHOT}


class _Reader:
    """One process. Only the watching thread uses it."""

    def __init__(self, listening: socket.socket, told: dict[str, object]) -> None:
        self._control, its = socket.socketpair()
        with its:
            inherited = [listening.fileno(), its.fileno()]
            # -P: import nothing from the current directory.
            command = [sys.executable, "-P", "-m", "lanner.spark.flight.reader_process", *map(str, inherited)]
            self.process = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                stdin=subprocess.DEVNULL,
                # The daemon's output is for programs that wait until it is ready.
                stdout=subprocess.DEVNULL,
                pass_fds=inherited,
                # Ctrl-C in a terminal is for the queue manager, which then ends the process.
                start_new_session=True,
            )
        try:
            self._control.sendall(json.dumps(told).encode() + b"\n")
        except OSError:
            # The process has ended already. It would stay a zombie, and the socket open.
            self.end()
            raise
        self._control.setblocking(False)
        self.heard = time.monotonic()
        self.condition: dict[str, int] = {}

    def listen(self) -> None:
        """Read the reports that it has sent."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            while said := self._control.recv(1 << 16):
                self.heard = time.monotonic()
                self.condition = json.loads(said.splitlines()[-1])

    def end(self) -> None:
        self._control.close()
        try:
            self.process.wait(_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class ReaderPool:
    """The processes of the settings, from the first ticket until `stop`."""

    def __init__(self, directory: Path, store: Store, settings: FlightSettings) -> None:
        """Start to listen. Raises OSError if that is not possible."""
        self.tickets = Tickets()
        self._directory = directory.resolve()
        self._store = store
        self._settings = settings
        self._sockets = self._directory / DIRECTORY
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets.mkdir(mode=0o700)
        self._listening = listen_tcp(settings.bind, settings.reader_port)
        self.port: int = self._listening.getsockname()[1]
        self._readers: list[_Reader | None] = [None] * settings.processes
        self._pauses = [_FIRST_PAUSE] * settings.processes
        self._due = [0.0] * settings.processes
        self._snapshots = Snapshots()
        self._starting = threading.Lock()
        self._is_over = threading.Event()
        self._is_ready = threading.Event()
        self._is_first = True
        self._thread: threading.Thread | None = None

    def begin(self) -> bool:
        """Start the processes. Returns False if none is ready: then send no client to them."""
        with self._starting:
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._watch, name="lanner-readers", daemon=True)
                self._thread.start()
        if self._is_first:
            self._is_ready.wait(PATIENCE)
            self._is_first = False
        return self._is_ready.is_set()

    def stop(self) -> None:
        self._is_over.set()
        with self._starting:
            thread = self._thread
        if thread is not None:
            thread.join()
        self._listening.close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    @property
    def processes(self) -> list[int]:
        """The ids of the running processes."""
        return [one.process.pid for one in self._readers if one is not None]

    def usage(self, what: str, limit: int) -> Usage:
        """Return the usage that the processes report, for `streams` or `connections`."""
        told = [one.condition for one in self._readers if one is not None]
        refused = sum(one.get("refused", 0) for one in told) if what == "connections" else 0
        used = sum(one.get(what, 0) for one in told)
        return Usage(f"flight reader {what}", used, limit * self._settings.processes, refused=refused)

    def _watch(self) -> None:
        try:
            while True:
                for place, reader in enumerate(self._readers):
                    self._look_at(place, reader)
                self._end_those_with_old_snapshots()
                if any(one is not None and one.condition for one in self._readers):
                    self._is_ready.set()
                else:
                    self._is_ready.clear()
                if self._is_over.wait(_LOOK if self._is_ready.is_set() else _LOOK_FIRST):
                    return
        finally:
            for reader in filter(None, self._readers):
                reader.end()
            self._readers = [None] * len(self._readers)
            self._store.forget_dead_snapshots()

    def _look_at(self, place: int, reader: _Reader | None) -> None:
        now = time.monotonic()
        if reader is None:
            if now >= self._due[place]:
                self._start(place)
            return
        reader.listen()
        if reader.condition:
            self._pauses[place] = _FIRST_PAUSE
        if reader.process.poll() is None:
            if now - reader.heard > (MAX_SILENCE if reader.condition else MAX_START):
                _LOG.error("reader process %d does not answer: it is ended", reader.process.pid)
                reader.process.kill()
            return
        _LOG.error(
            "reader process %d has ended (%d): another is started in %g s",
            reader.process.pid,
            reader.process.returncode,
            self._pauses[place],
        )
        reader.end()
        self._failed(place, now)
        self._readers[place] = None
        self._store.forget_dead_snapshots()

    def _failed(self, place: int, now: float) -> None:
        self._due[place] = now + self._pauses[place]
        self._pauses[place] = min(2 * self._pauses[place], _LONGEST_PAUSE)

    def _start(self, place: int) -> None:
        try:
            self._readers[place] = _Reader(self._listening, self._told)
        except OSError as error:
            _LOG.error("a reader process cannot be started: %s", error)
            self._failed(place, time.monotonic())

    def _end_those_with_old_snapshots(self) -> None:
        last, snapshots = self._store.snapshots()
        own = {reader.process.pid: reader for reader in self._readers if reader is not None}
        theirs = [one for one in snapshots if one[0] in own]
        for process in self._snapshots.too_old(last, theirs, time.monotonic()):
            _LOG.error("reader process %d keeps a snapshot for more than %g s: it is ended", process, MAX_SNAPSHOT)
            own[process].process.kill()

    @property
    def _told(self) -> dict[str, object]:
        settings = self._settings
        return {
            "data": str(self._directory),
            "key": self.tickets.key.hex(),
            "tls_certificate": None if settings.tls_certificate is None else str(settings.tls_certificate.absolute()),
            "tls_key": None if settings.tls_key is None else str(settings.tls_key.absolute()),
            "log_level": logging.getLevelName(logging.getLogger("lanner").getEffectiveLevel()),
            "max_streams": settings.max_streams,
            "max_connections": settings.max_connections,
            "max_connections_per_peer": settings.max_connections_per_peer,
        }
