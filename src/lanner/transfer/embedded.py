"""Transfer for an embedded queue manager: MS-MQQB on an address, on its own event loop."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING, TypeVar

from lanner.host.loop_thread import LoopThread
from lanner.model.errors import InvalidParameter, ServiceNotAvailable, StatusError
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanner.engine import Engine
    from lanner.transfer.transfer import Transfer

T = TypeVar("T")


class EmbeddedTransfer:
    """A listener and the thread that it runs in. Close it before its runtime."""

    def __init__(self, engine: Engine, bind: str, settings: TransferSettings | None) -> None:
        self._closing = threading.Lock()
        self._is_closed = False
        self._listener = TransferListener(engine, bind, settings or TransferSettings())
        self._loop = LoopThread("lanner-transfer")
        try:
            self._loop.call(self._listener.start())
        except OSError as error:
            self._loop.stop()
            raise self._cannot_listen(error) from error
        except BaseException:
            self._loop.stop()
            raise

    @property
    def address(self) -> str:
        """The address and port on which it listens."""
        return self._listener.address

    @property
    def transfer(self) -> Transfer:
        """The transfer itself.

        It runs in the loop's thread: hold the store's lock while you access it.
        """
        return self._listener.transfer

    def run(self, work: Callable[[], T]) -> T:
        """Run a function in the loop's thread, which the transfer belongs to."""

        async def run() -> T:
            return work()

        return self._loop.call(run())

    def close(self) -> None:
        """End every session and release the address. Closing twice is harmless."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._loop.call(self._listener.stop())
            finally:
                self._loop.stop()

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
