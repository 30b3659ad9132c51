"""A queue manager that serves the protocols of the documents, as Windows does.

It does not serve Lanner's own interface.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from lanner.host.addresses import addresses_of, local_settings
from lanner.host.committer import Committer
from lanner.host.operations import Operations
from lanner.host.runtime import Runtime
from lanner.model.enums import QueueAccessType
from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.rpc.server import RpcServer, ServedInterface
from lanner.services.management import ManagementService
from lanner.services.mqrr import RemoteReadService
from lanner.services.ports import LOCAL_SOCKET, ServerPorts
from lanner.services.queue_client import QueueClient
from lanner.services.remote_queues import RemoteQueues
from lanner.services.remote_read import RemoteRead
from lanner.wire.format_name import parse
from tests.cli.conftest import free_address
from tests.client.conftest import no_keys

PORT = 2103


def until(condition: Callable[[], object]) -> None:
    """Wait for another thread; fail instead of waiting forever."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class OtherManager:
    """A queue manager, each of whose interfaces is on the ports that a test wants."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.address = free_address()
        settings = local_settings("alpha", local_addresses=addresses_of(self.address), public_keys=no_keys)
        self.runtime = Runtime(data, settings)
        self.runtime.users.add("alice", "secret", administrator=True)
        self.runtime.users.add("bob", "word")
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.engine = self.runtime.engine
        self.ports = ServerPorts()
        self._committer = Committer(self.engine.store, self.loop)
        queues = RemoteQueues(self.engine, self._committer)
        self.queue_client = QueueClient(queues, self.ports).interfaces
        self.remote_read = RemoteRead(queues, self.ports).interface
        self.mqrr = RemoteReadService(self.engine, self._committer, self.ports).interface
        self.management = ManagementService(self.engine, self._committer, None)
        self._servers: list[RpcServer] = []
        self.reads_by = ""

    def _run(self, work: Coroutine[object, object, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def serve(self, interfaces: Sequence[ServedInterface], port: int = PORT) -> RpcServer:
        users = self.runtime.users
        server = RpcServer(interfaces, users=users, providers=ServerSecurity(users, TargetNames("ALPHA", "ALPHA")))
        self._servers.append(server)
        self._run(server.listen_tcp(self.address, port, step=0))
        return server

    def serve_everything(self, *, reads_by: str = "mqqp") -> RpcServer:
        """`reads_by` mqrr: as Windows Vista and later; else as computers before them."""
        self.reads_by = reads_by
        newer = [self.mqrr] if reads_by == "mqrr" else []
        return self.serve([*self.queue_client, self.remote_read, self.management, *newer])

    def serve_local(self, server: RpcServer) -> None:
        """Serve on the Unix socket of the data directory, whose users are administrators."""
        self._run(server.listen_unix(self.data / LOCAL_SOCKET))

    def stop(self) -> None:
        """Stop serving: every connection is cut."""
        while self._servers:
            self._run(self._servers.pop().stop())

    def move(self, name: str, lookup_id: int, subqueue: str) -> None:
        """Move a message to a subqueue, which programs elsewhere cannot do."""
        path = rf"DIRECT=OS:alpha\private$\{name}"
        operations = Operations(self.engine, self.runtime)
        with self.runtime.change() as change:
            source, target = (operations.open(parse(one), QueueAccessType.MOVE) for one in (path, f"{path};{subqueue}"))
            transaction = operations.begin(uuid.uuid4())
            operations.move(source, lookup_id, target, transaction)
            operations.commit(transaction)
            operations.close(source)
            operations.close(target)
        change.wait()

    def waiting(self, name: str) -> int:
        """Return how many reads wait for messages of a queue."""
        with self.runtime.lock:
            return len(self.engine.require_queue(parse(rf"DIRECT=OS:alpha\private$\{name}")).waiting_reads)

    def close(self) -> None:
        self.stop()
        self._committer.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.runtime.close()
