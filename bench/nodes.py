"""A queue manager in a process of its own, controlled by lines of JSON.

    python -m bench.nodes DIRECTORY ADDRESS PORT [transfer|rpc]

PORT is the port of its listener: MS-MQQB, or the RPC interfaces. Input lines have the form {"do":
NAME, ...}, and each is answered by one line. Both processes of a pair run on one machine, so they
share a monotonic clock.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from bench.workload import BODY
from lanner.host.addresses import local_settings
from lanner.host.reads import Read
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import OutgoingQueue
from lanner.model.enums import DeliveryGuarantee, QueueAccessType, QueueShareMode
from lanner.model.live import OpenQueueDescriptor
from lanner.rpc.pdu import AuthLevel
from lanner.security.access_masks import QueueAccess
from lanner.security.identity import ANONYMOUS, SYSTEM
from lanner.services.listener import RpcListener, RpcSettings
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.message import Message
from lanner.wire.security_descriptor import Acl, SecurityDescriptor, allow
from lanner.wire.sid import EVERYONE

Answer = dict[str, Any]
_BATCH = 100
_PATIENCE = 60_000  # milliseconds


class Node:
    """The benchmark's side: start the node, send it requests, stop it."""

    def __init__(self, directory: Path, address: str, port: int, listener: str = "transfer") -> None:
        command = [sys.executable, "-m", "bench.nodes", str(directory), address, str(port), listener]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = address
        self._lock = threading.Lock()
        self.ask("ready")

    def ask(self, do: str, **arguments: object) -> Answer:
        """Send a request and wait for the answer."""
        with self._lock:
            if self._process.stdin is None or self._process.stdout is None:
                raise RuntimeError("the node has no pipes")
            print(json.dumps({"do": do} | arguments), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the node on {self.address} ended with {self._process.wait()}")
        answer: Answer = json.loads(line)
        return answer

    def close(self) -> None:
        """Stop the node."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(30)
        if self._process.stdout is not None:
            self._process.stdout.close()


class _Served:
    """The node's side."""

    def __init__(self, directory: Path, address: str, port: int, listener: str) -> None:
        self.runtime = Runtime(directory, local_settings("NODE", local_addresses=frozenset({address})))
        self.engine = self.runtime.engine
        self.listener: TransferListener | RpcListener
        if listener == "rpc":
            settings = RpcSettings(
                port=port, read_port=port + 2, endpoint_mapper_port=0, authentication_level=AuthLevel.NONE
            )
            self.listener = RpcListener(
                self.engine, self.runtime.users, directory=directory, bind=address, settings=settings
            )
        else:
            self.listener = TransferListener(self.engine, address, TransferSettings(port=port))
        self._handles: dict[str, OpenQueueDescriptor] = {}
        self._answers: dict[str, Callable[..., Answer]] = {
            "ready": dict,
            "create": self.create,
            "user": self.add_user,
            "fill": self.fill,
            "pause": self.pause,
            "resume": self.resume,
            "await": self.await_messages,
            "drain": self.drain,
            "cpu": lambda: {"cpu": time.process_time()},
            "send": self.send,
            "receive": self.receive,
        }

    def answer(self, line: str) -> str:
        request = json.loads(line)
        return json.dumps(self._answers[request.pop("do")](**request))

    def create(self, name: str, *, transactional: bool = False, for_everybody: bool = False) -> Answer:
        """Create a private queue; with `for_everybody`, anonymous callers may read it too."""
        with self.runtime.lock:
            request = self.engine.set_queue_defaults(rf".\private$\{name}")
            request.transactional = transactional
            if for_everybody:
                rights = (allow(ANONYMOUS.sid, QueueAccess.GENERIC_ALL), allow(EVERYONE, QueueAccess.GENERIC_ALL))
                request.security = SecurityDescriptor(owner=SYSTEM.sid, dacl=Acl(rights)).pack()
            self.engine.create_queue(request)
        return {}

    def add_user(self, name: str, password: str) -> Answer:
        """Create an administrator."""
        self.runtime.users.add(name, password, administrator=True)
        return {}

    def _handle(self, name: str, access: QueueAccessType) -> OpenQueueDescriptor:
        key = f"{name} {access.name}"
        if key not in self._handles:
            self._handles[key] = self.engine.open_queue(parse(name), access, QueueShareMode.DENY_NONE)
        return self._handles[key]

    def fill(self, name: str, count: int, kind: str) -> Answer:
        """Put messages into an outgoing queue."""
        guarantee = DeliveryGuarantee.EXPRESS if kind == "express" else DeliveryGuarantee.RECOVERABLE
        for _ in range(count // _BATCH):
            with self.runtime.lock:
                handle = self._handle(name, QueueAccessType.SEND)
                transaction = self.engine.create_transaction(uuid.uuid4()) if kind == "transactional" else None
                for _ in range(_BATCH):
                    self.engine.enqueue_message_to_an_open_queue(
                        handle, MessageProperties(body=BODY, delivery_guarantee=guarantee), transaction
                    )
                if transaction is not None:
                    self.engine.transaction_commit(transaction.identifier)
        self._sync()
        return {}

    def _sync(self) -> None:
        with self.runtime.lock:
            pending = self.runtime.store.pending_batch()
        self.runtime.store.sync(pending)

    def _outgoing(self, name: str) -> OutgoingQueue:
        with self.runtime.lock:
            queue = self._handle(name, QueueAccessType.SEND).queue
        if not isinstance(queue, OutgoingQueue):
            raise TypeError(f"{name} is not another computer's")
        return queue

    def pause(self, name: str) -> Answer:
        """Pause an outgoing queue."""
        queue = self._outgoing(name)
        with self.runtime.lock:
            self.engine.pause_queue(queue)
        return {}

    def resume(self, name: str) -> Answer:
        """Resume an outgoing queue; return when that happened."""
        queue = self._outgoing(name)
        start = time.monotonic()
        with self.runtime.lock:
            self.engine.resume_queue(queue)
        return {"time": start}

    def await_messages(self, name: str, count: int) -> Answer:
        """Wait until a queue has `count` durable messages; return when that happened."""
        queue = self.engine.require_queue(parse(name))
        while queue.message_count < count:
            time.sleep(0.001)
        self._sync()
        return {"time": time.monotonic()}

    def drain(self, name: str) -> Answer:
        """Empty a queue."""
        with self.runtime.lock:
            self.engine.purge_queue(self.engine.require_queue(parse(name)))
        self._sync()
        return {}

    def send(self, name: str, count: int, interval: float) -> Answer:
        """Send messages one after the other, each with its send time in the body."""
        for _ in range(count):
            body = json.dumps({"time": time.monotonic()}).encode().ljust(len(BODY))
            with self.runtime.lock:
                handle = self._handle(name, QueueAccessType.SEND)
                self.engine.enqueue_message_to_an_open_queue(
                    handle, MessageProperties(body=body, delivery_guarantee=DeliveryGuarantee.RECOVERABLE)
                )
            self._sync()
            time.sleep(interval)
        return {}

    def receive(self, name: str, count: int) -> Answer:
        """Receive what `send` sends; return the seconds that each message took."""
        with self.runtime.lock:
            handle = self._handle(name, QueueAccessType.RECEIVE)
        seconds = []
        for _ in range(count):
            read = Read(self.engine, self.runtime, handle, is_receive=True)
            read.begin(lambda over: self.engine.dequeue_message(handle, timeout=_PATIENCE, on_end=over))
            position = read.block(_PATIENCE / 1000)
            seconds.append(time.monotonic() - json.loads(Message(position.record.packet).body)["time"])
        return {"seconds": seconds}

    async def run(self) -> None:
        await self.listener.start()
        gc.collect()
        gc.freeze()
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(await asyncio.to_thread(self.answer, line), flush=True)
        await self.listener.stop()
        await asyncio.to_thread(self.runtime.close)


def main() -> None:
    sys.setswitchinterval(0.0005)
    directory, address, port, listener = (*sys.argv[1:], "transfer")[:4]
    uvloop.run(_Served(Path(directory), address, int(port), listener).run())


if __name__ == "__main__":
    main()
