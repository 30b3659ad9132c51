"""Transfer for a queue manager that lives in a program: MS-MQQB on an address, on an event loop of its own."""

from __future__ import annotations

import asyncio
import errno
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from lanner.model.errors import InvalidParameter, ServiceNotAvailable, StatusError
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lanner.engine import Engine
    from lanner.transfer.transfer import Transfer

T = TypeVar("T")


class EmbeddedTransfer:
    """A listener and the thread it runs in. Closed before its runtime."""

    def __init__(self, engine: Engine, bind: str, settings: TransferSettings | None) -> None:
        self._closing = threading.Lock()
        self._is_closed = False
        self._listener = TransferListener(engine, bind, settings or TransferSettings())
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lanner-transfer", daemon=True)
        self._thread.start()
        try:
            self._do(self._listener.start())
        except OSError as error:
            self._stop_loop()
            raise self._cannot_listen(error) from error
        except BaseException:
            self._stop_loop()
            raise

    @property
    def address(self) -> str:
        """Where it listens: address and port, as people write them."""
        return self._listener.address

    @property
    def transfer(self) -> Transfer:
        """Lives in the loop's thread; to be looked at with the store's lock held."""
        return self._listener.transfer

    def close(self) -> None:
        """End every session and let go of the address. Closing twice is harmless."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._do(self._listener.stop())
            finally:
                self._stop_loop()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _cannot_listen(self, error: OSError) -> StatusError:
        where = self._listener.address
        if error.errno == errno.EADDRINUSE:
            return ServiceNotAvailable(
                f"{where} is in use, perhaps by another queue manager: give this one another address with bind"
            )
        if error.errno == errno.EADDRNOTAVAIL:
            return InvalidParameter(
                f"bind {self._listener.bind} is no address of this machine: `ip address` lists them"
            )
        return ServiceNotAvailable(f"transfer cannot listen on {where}: {error.strerror or error}")
