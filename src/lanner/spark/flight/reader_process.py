"""A reader process: serves what a signed ticket names to the ticket's holder, and nothing else.

    python -P -m lanner.spark.flight.reader_process LISTENING CONTROL

It inherits two descriptors: the listening socket, which all reader processes of a queue manager
share, and one end of a socket pair. It reads its configuration from there, one line of JSON, and
reports its condition every second. When the other end closes, the process exits. It has no users,
opens no queue and writes no message. Before its first thread it gives up all rights it does not
need (`confinement`), so it imports nothing large before that.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from lanner.spark.flight.confinement import Files, confine, own_program

# The directory, within the data directory, of the sockets of gRPC, one per process.
DIRECTORY: Final = "readers"
# Seconds between two reports.
BEAT: Final = 1.0
# Not in the specification: messages that come and go are more urgent than bulk reads.
_NICENESS: Final = 5

_M_ARENA_MAX: Final = -8  # malloc.h


def main() -> None:
    listening, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    with control.makefile("r", encoding="utf-8") as lines:
        told = json.loads(lines.readline())
    logging.basicConfig(level=told["log_level"], format="%(levelname)s %(name)s: %(message)s")
    # As in the daemon: memory of a batch, freed by any thread of gRPC, is reused for the next one.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc has it
        libc.mallopt(_M_ARENA_MAX, 1)
    place = Path(told["data"])
    confine(_allowed(place, told))
    # Imported here: it imports gRPC, which starts threads.
    from lanner.spark.flight.reader_server import ReaderService

    # Applies to this thread and to threads started later, which serve. Startup is not slowed down.
    os.nice(_NICENESS)
    service = ReaderService(place, listening, told)
    while True:
        try:
            control.sendall(json.dumps(service.condition).encode() + b"\n")
            control.settimeout(BEAT)
            if not control.recv(1):
                break
        except TimeoutError:
            continue
        except OSError:
            break
        time.sleep(BEAT)
    # Running streams end with the process. Their clients can continue at the queue manager.
    os._exit(0)


def _allowed(place: Path, told: dict[str, Any]) -> list[tuple[Path, Files]]:
    """Return the paths that the process may open.

    They are its program, the database (read-only), LMDB's reader table, and a directory for its
    socket.
    """
    allowed = [(path, Files.READ | Files.LIST) for path in own_program()]
    allowed += [
        (place / "data.mdb", Files.READ),
        (place / "lock.mdb", Files.READ | Files.WRITE),
        (place / DIRECTORY, Files.MAKE_SOCKET | Files.REMOVE),
    ]
    allowed += [(Path(told[name]), Files.READ) for name in ("tls_certificate", "tls_key") if told[name] is not None]
    return allowed


if __name__ == "__main__":
    main()
