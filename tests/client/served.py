"""A queue manager that others connect to.

It is an engine with its RPC listener on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from lanner.engine import Engine
from lanner.host.addresses import addresses_of, local_settings
from lanner.host.runtime import Runtime
from lanner.services.listener import RpcListener, RpcSettings
from tests.client.conftest import no_keys

T = TypeVar("T")


class ServedManager:
    def __init__(
        self,
        data: Path,
        bind: str,
        settings: RpcSettings | None = None,
        *,
        wrap_engine: Callable[[Engine], Engine] | None = None,
        **overrides: object,
    ) -> None:
        """`wrap_engine` makes the engine that the listener gets of the real one."""
        self.data = data
        self.bind = bind
        values: dict[str, object] = {"local_addresses": addresses_of(bind), "public_keys": no_keys}
        self.runtime = Runtime(data, local_settings("alpha", **(values | overrides)))
        self.engine = self.runtime.engine
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.listener = RpcListener(
            self.engine if wrap_engine is None else wrap_engine(self.engine),
            self.runtime.users,
            directory=data,
            bind=bind,
            settings=settings or RpcSettings(endpoint_mapper_port=0),
            about=lambda: {"version": "1", "bind": bind},
        )
        self.start()

    def start(self) -> None:
        self.run(self.listener.start())

    def stop(self) -> None:
        """Hang up on everybody."""
        self.run(self.listener.stop())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @property
    def port(self) -> int:
        return self.listener.ports[0]

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self.runtime.close()
