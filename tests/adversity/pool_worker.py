"""One process of a pool: takes `orders` and sends a result for each to `results`.

It fails for orders that are bad. Run as `python -m tests.adversity.pool_worker LOG RETRIES DATA` or
`... LOG RETRIES HOST USER PASSWORD`. A line of the log is written before the handler ends:

    H id          a good message is handled; whether that is committed is not known yet
    F id          a bad message has failed
    R {...}       the result of `consume`, when SIGTERM has ended it
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict

import lanner
from lanner.client.consuming import Consumed

BAD = "bad"


def main() -> None:
    log_name, retries, *target = sys.argv[1:]
    log = os.open(log_name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    manager = lanner.connect(data=target[0]) if len(target) == 1 else lanner.connect(*target)
    with manager as qm:
        results = qm.open("results")

        def handle(message: lanner.ReceivedMessage, transaction: lanner.Transaction) -> None:
            if message.label == BAD:
                os.write(log, f"F {message.id}\n".encode())
                raise ValueError("bad order")
            time.sleep(random.uniform(0, 0.01))  # so that kills find work that is under way
            results.send(lanner.Message(body=message.body, label=message.id), transaction=transaction)
            os.write(log, f"H {message.id}\n".encode())

        try:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            # Begins with the others.
            sys.stdin.readline()
            result = qm.open("orders").consume(handle, retries=int(retries), concurrency=2, backoff=(0.005, 0.1))
        except KeyboardInterrupt:
            # The others have emptied the queue before this process could begin.
            result = Consumed()
    os.write(log, f"R {json.dumps(asdict(result))}\n".encode())


if __name__ == "__main__":
    main()
