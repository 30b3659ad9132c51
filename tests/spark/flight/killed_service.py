"""The process that is killed: a queue manager with its Flight service.

Run as `python -m tests.spark.flight.killed_service DATA [PORT]`.
"""

from __future__ import annotations

import signal
import sys

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.spark.flight.server import FlightListener
from lanner.spark.flight.settings import FlightSettings
from tests.client.conftest import no_keys


def main() -> None:
    manager = QueueManager(sys.argv[1], name="ALPHA", public_keys=no_keys, events=True)
    known = {queue.name.rpartition("\\")[2] for queue in manager.queues()}
    for name in ("source", "target"):
        if name not in known:
            manager.create_queue(name, transactional=name == "target")
    listener = FlightListener(runtime_of(manager), FlightSettings(port=int(sys.argv[2]) if len(sys.argv) > 2 else 0))
    listener.open()
    sys.stdout.write(f"{listener.address}\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
