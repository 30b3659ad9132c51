"""A reader process: it shows to whoever has a signed ticket what that ticket names, and nothing else.

    python -P -m lanner.spark.flight.reader_process LISTENING CONTROL

Two descriptors are given to it: the listening socket, which all reader processes of a queue manager
share, and one end of a socket pair. There it is told what it has to know, as one line of JSON; it
says each second how it is, and ends when the other end closes. It knows no users, opens no queue
and writes no message. Before its first thread it gives away all that it does not need
(`confinement`), so nothing heavy is imported before.
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

# Below the data directory, for each process: where gRPC listens.
DIRECTORY: Final = "readers"
# Seconds between two lines that tell how this process is.
BEAT: Final = 1.0
# Ours: messages that come and go are more urgent than who looks at many of them.
_NICENESS: Final = 5

_M_ARENA_MAX: Final = -8  # malloc.h


def main() -> None:
    listening, control = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    with control.makefile("r", encoding="utf-8") as lines:
        told = json.loads(lines.readline())
    logging.basicConfig(level=told["log_level"], format="%(levelname)s %(name)s: %(message)s")
    # As in the daemon: the memory of a batch that any thread of gRPC has freed is kept for the next
    # one.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc has it
        libc.mallopt(_M_ARENA_MAX, 1)
    place = Path(told["data"])
    confine(_allowed(place, told))
    # It imports gRPC, which starts threads.
    from lanner.spark.flight.reader_server import ReaderService

    # Of this thread and of those that are started later: those that serve. Starting is not slowed
    # down.
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
    # Streams that run end with it: their clients read on at the queue manager, or not at all.
    os._exit(0)


def _allowed(place: Path, told: dict[str, Any]) -> list[tuple[Path, Files]]:
    """What it may open: its program, the database to read, the table of LMDB's readers, and a place for its socket."""
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
