"""Databases of `[coordinator.resources]`, whose in-doubt branches the daemon resolves.

A program that uses a resource's name resolves its branches itself. If no such program runs again,
the daemon does it: it opens each database from time to time, in a thread of its own, because
drivers block.
"""

from __future__ import annotations

import importlib
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from lanner.client._sync.participants import DatabaseParticipant, resolve
from lanner.client.databases import Database, without_password
from lanner.host.distributed import DistributedRequests, Document
from lanner.model.errors import LannerError
from lanner.security.identity import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lanner.daemon.settings import CoordinatorTable, ResourceTable
    from lanner.host.runtime import Runtime

_LOG: Final = logging.getLogger(__name__)
# How long the daemon waits for a driver when it stops.
_PATIENCE: Final = 5.0  # seconds


class ResourceError(LannerError):
    """A database of the settings cannot be used; the message says which, and why."""


def open_resource(name: str, table: ResourceTable) -> tuple[Any, Database]:
    """Connect to a database of the settings. Raises ResourceError if that is impossible."""
    where = f"coordinator.resources.{name}"
    try:
        module: Any = importlib.import_module(table.module)
    except ImportError as error:
        raise ResourceError(f"{where}: {error}; install the driver where `lanner` is installed") from error
    connection = table.connection.get_secret_value()
    try:
        opened = module.connect(connection)
    except Exception as error:
        text = " ".join(str(error).split())
        raise ResourceError(f"{where}: {without_password(connection)} cannot be opened: {text}") from error
    try:
        return opened, Database(name, opened)
    except LannerError:
        opened.close()
        raise


class Resolver:
    """Resolves the branches of all databases periodically, until it is stopped."""

    def __init__(self, runtime: Runtime, settings: CoordinatorTable) -> None:
        self._runtime = runtime
        self._resources: Mapping[str, ResourceTable] = settings.resources
        self._interval = settings.interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)
        # The last problem logged for each database, so that a database that stays unreachable
        # causes one line.
        self._problems: dict[str, str] = {}

    def start(self) -> None:
        if self._resources:
            self._thread.start()

    def stop(self) -> None:
        """Stop, and wait a few seconds at most for a driver. Blocks."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def _run(self) -> None:
        while not self._stopping.is_set():
            for name, table in self._resources.items():
                self._resolve(name, table)
            self._stopping.wait(self._interval)

    def _resolve(self, name: str, table: ResourceTable) -> None:
        try:
            connection, database = open_resource(name, table)
            try:
                database.check()
                resolve(self._ask, DatabaseParticipant(database))
            finally:
                connection.close()
        except Exception as error:  # noqa: BLE001 (of any driver)
            problem = str(error)
            if not self._stopping.is_set() and self._problems.get(name) != problem:
                _LOG.warning("what is in doubt in resource %s cannot be resolved: %s", name, problem)
            self._problems[name] = problem
        else:
            self._problems.pop(name, None)

    def _ask(self, request: str, **arguments: object) -> Document:
        with self._runtime.change() as change:
            answer = DistributedRequests(self._runtime.engine, SYSTEM).answer({"request": request, **arguments})
        change.wait()
        return answer()
