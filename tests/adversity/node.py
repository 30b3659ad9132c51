"""One queue manager of a network, in a process of its own: `python -m tests.adversity.node CONFIG`.

CONFIG is JSON: data, name, bind, port, peers and settings. Commands come as lines of JSON on stdin:
`do` and its arguments; each is answered with one line. Streams of messages are sent in the
background, and told of as they go: a line with `stream` and `upto` is written only after everything
up to that number is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TextIO

import uvloop

from lanner.client import Message, QueueManager
from lanner.client.runtimes import operations_of, runtime_of
from lanner.directory.topology import Computer, Link, Topology, provision
from lanner.model.directory_objects import Queue
from lanner.model.errors import QueueExists
from lanner.model.live import Record
from lanner.security.log_lines import LINES
from lanner.transfer.peers import PeerPolicy
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener

Answer = dict[str, Any]


# Tests find out from the log what has become of each session.
LINES.per_peer = LINES.per_kind = LINES.in_total = sys.maxsize


class Node:
    def __init__(self, config: dict[str, Any], out: TextIO) -> None:
        self._out = out
        self._write_lock = threading.Lock()
        self.manager = QueueManager(config["data"], config["name"], local_addresses=frozenset({config["bind"]}))
        self.runtime = runtime_of(self.manager)
        self.engine = self.runtime.engine
        self._arrivals: Counter[str] = Counter()
        self.engine.position_available_subscribers.append(self._arrived)
        given = config["settings"]
        policy = PeerPolicy(given.pop("peer_policy", "pinned"))
        settings = TransferSettings(port=config["port"], peers=config["peers"], peer_policy=policy, **given)
        self.listener = TransferListener(self.engine, config["bind"], settings)
        self._loop = uvloop.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._in_loop(self.listener.start())

    def _in_loop(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def tell(self, answer: Answer) -> None:
        with self._write_lock:
            print(json.dumps(answer), file=self._out, flush=True)

    def run(self, commands: Iterable[str]) -> None:
        self.tell({"guid": str(self.engine.queue_manager.identifier)})
        for line in commands:
            arguments = json.loads(line)
            command: Callable[..., Answer] = getattr(self, f"do_{arguments.pop('do')}")
            self.tell({"answer": command(**arguments)})
        self._in_loop(self.listener.stop())
        self.manager.close()

    # Commands
    # ----------------------------------------------------------------------------------------------

    def do_topology(self, sites: list[str], computers: list[Answer], links: list[Answer]) -> Answer:
        """Bring the directory up to date."""
        made = tuple(
            Computer(
                one["name"],
                uuid.UUID(one["guid"]),
                sites=tuple(one["sites"]),
                routing_server=one["is_router"],
                public_queues={name: uuid.UUID(guid) for name, guid in one["queues"].items()},
            )
            for one in computers
        )
        joined = tuple(Link(one["site1"], one["site2"], site_gates=tuple(one["gates"])) for one in links)
        with self.runtime.lock:
            provision(self.engine.directory, Topology(tuple(sites), made, joined))
            self.engine.read_routing_data()
            batch = self.runtime.store.pending_batch()
        self.runtime.store.sync(batch)
        return {}

    def do_create(self, queue: str, *, transactional: bool, public: bool = False) -> Answer:
        """Make a queue, if it is not there; its format name."""
        path = rf".\{queue}" if public else rf".\private$\{queue}"
        with contextlib.suppress(QueueExists):
            self.manager.create_queue(path, transactional=transactional)
        with self.runtime.lock:
            made = operations_of(self.manager).find(path)
            if public:
                return {"name": f"PUBLIC={made.identifier}"}
            return {"name": f"PRIVATE={self.engine.queue_manager.identifier}\\{made.private_queue_number:08x}"}

    def do_stream(self, **arguments: Any) -> Answer:  # noqa: ANN401 (of `_send`)
        threading.Thread(target=self._send, kwargs=arguments, daemon=True).start()
        return {}

    def _send(
        self,
        stream: str,
        to: str,
        kind: str,
        start: int,
        count: int,
        batch: int,
        pause: float,
        trace: str | None = None,
        size: int = 0,
    ) -> None:
        """Send messages whose bodies are the stream and a number.

        Each batch is on disk before it is reported.
        """
        queue = self.manager.open(to)
        for first in range(start, start + count, batch):
            numbers = range(first, min(first + batch, start + count))
            messages = [
                Message(
                    body=f"{stream} {number} ".encode().ljust(size, b"."),
                    recoverable=kind != "express",
                    tracing_queue=trace,
                )
                for number in numbers
            ]
            if kind == "transactional":
                with self.manager.transaction() as transaction:
                    queue.send_many(messages, transaction=transaction)
            else:
                queue.send_many(messages)
            self.tell({"stream": stream, "upto": numbers[-1]})
            time.sleep(pause)

    def do_bodies(self, queue: str) -> Answer:
        """The bodies of all messages of a queue, up to the padding."""
        return {"bodies": [message.body_bytes.rstrip(b".").decode().rstrip() for message in self.manager.open(queue)]}

    def do_reports(self, queue: str) -> Answer:
        return {"reports": [(message.label, message.body_bytes.hex()) for message in self.manager.open(queue)]}

    def do_count(self, queue: str) -> Answer:
        return {"count": self.manager.open(queue).count()}

    def do_is_counted(self, queue: str) -> Answer:
        """How many messages from the first on have the numbers 0, 1, 2 ..."""
        expected = 0
        for message in self.manager.open(queue):
            if int(message.body_bytes.split()[1]) != expected:
                break
            expected += 1
        return {"count": expected}

    def do_arrivals(self) -> Answer:
        """Return how many messages from others have entered each queue since the start.

        This counts messages in transit and messages at their destination.
        """
        with self.runtime.lock:
            return {"arrivals": dict(self._arrivals)}

    def _arrived(self, queue: Queue, _first: int, records: Sequence[Record]) -> None:
        if records[0].packet[16:32] != self.engine.queue_manager.identifier.bytes_le:
            self._arrivals[queue.pathname.rpartition("\\")[2]] += len(records)

    def do_status(self) -> Answer:
        """Return the waiting messages and the sessions."""
        with self.runtime.lock:
            transfer = self.listener.transfer
            waiting = {
                queue.destination_format_name: queue.message_count
                for queue in self.engine.outgoing_queues()
                if queue.message_count
            }
            links = [
                {
                    "peer": link.remote_address,
                    "is_open": link.is_open,
                    "received": link.session.total_received,
                    "sent": link.session.message_sent_count,
                    "window": link.session.received_window_size,
                }
                for link in transfer.links.values()
            ]
        return {"waiting": waiting, "links": links, "duplicates": transfer.incoming.duplicates}


def main() -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    Node(json.loads(sys.argv[1]), sys.stdout).run(sys.stdin)


if __name__ == "__main__":
    main()
