"""Count the function calls for one message between two queue managers.

    python tools/trace_message.py [--functions]

Two queue managers run in processes of their own and have a session. One recoverable message of 1
KiB is sent while they are idle. `sys.setprofile` counts the calls of functions of `lanner` in both
processes, from `send()` until the message is removed from the sender's outgoing queue. The median
of several messages is printed; `--functions` also lists the functions. Calls into C are not
counted.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

import lanner

PACKAGE = str(Path(lanner.__file__).parent)
SENDER, RECEIVER = "127.77.0.1", "127.77.0.2"
QUEUE = rf"DIRECT=TCP:{RECEIVER}\private$\traced"
MESSAGES = 7
# Seconds within which session timers started by an earlier message end.
IDLE = 1.5
PATIENCE = 30
POLL = 0.001


class Calls:
    """The calls of one process, counted between `start` and `stop`."""

    def __init__(self) -> None:
        self._is_on = False
        self._counts: Counter[str] = Counter()

    def install(self) -> None:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def start(self) -> None:
        self._counts = Counter()
        self._is_on = True

    def stop(self) -> Counter[str]:
        self._is_on = False
        return self._counts

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self._is_on and event == "call" and code.co_filename.startswith(PACKAGE):
            module = code.co_filename[len(PACKAGE) + 1 : -3].replace("/", ".")
            self._counts[f"{module}: {code.co_qualname}"] += 1


def receive(directory: str) -> None:
    """Run the receiver: each line of input starts or stops the count."""
    calls = Calls()
    calls.install()
    with lanner.QueueManager(Path(directory), "RECEIVER", bind=RECEIVER) as qm:
        qm.create_queue("traced")
        print("ready", flush=True)
        for line in sys.stdin:
            if line == "start\n":
                calls.start()
                print("started", flush=True)
            else:
                print(json.dumps(calls.stop()), flush=True)


def send(directory: str, ask: Callable[[str], str]) -> list[Counter[str]]:
    """Send messages one at a time; return the calls for each, in both processes."""
    calls, found = Calls(), []
    calls.install()
    with lanner.QueueManager(Path(directory), "SENDER", bind=SENDER) as qm:
        q = qm.open(QUEUE)
        for _ in range(MESSAGES):
            time.sleep(IDLE)
            ask("start")
            calls.start()
            calls.install()
            q.send(lanner.Message(body=bytes(1024), recoverable=True))
            # From here on, this thread only polls until the message has gone.
            sys.setprofile(None)
            deadline = time.monotonic() + PATIENCE
            while q.count():
                if time.monotonic() > deadline:
                    sys.exit(f"the message has not left the outgoing queue after {PATIENCE} s")
                time.sleep(POLL)
            counts = calls.stop()
            there: dict[str, Any] = json.loads(ask("stop"))
            counts = Counter({f"sender   {name}": count for name, count in counts.items()})
            counts.update({f"receiver {name}": count for name, count in there.items()})
            found.append(counts)
    # The first one opened the session.
    return found[1:]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["receive"]:
        receive(arguments[1])
        return
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, __file__, "receive", f"{directory}/receiver"]
        receiver = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with receiver, cast("TextIO", receiver.stdin) as questions, cast("TextIO", receiver.stdout) as answers:

            def ask(line: str) -> str:
                print(line, file=questions, flush=True)
                return answers.readline()

            answers.readline()
            found = send(f"{directory}/sender", ask)
    found.sort(key=Counter.total)
    median = found[len(found) // 2]
    if "--functions" in arguments:
        for name, count in sorted(median.items(), key=lambda item: (-item[1], item[0])):
            print(f"{count:5} {name}")
    for process in ("sender", "receiver"):
        totals = [sum(count for name, count in one.items() if name.startswith(process)) for one in found]
        print(f"{process:8} {statistics.median(totals):5.0f} calls ({min(totals)} to {max(totals)})")
    print(f"together {statistics.median(map(Counter.total, found)):5.0f} calls")


if __name__ == "__main__":
    main(sys.argv[1:])
