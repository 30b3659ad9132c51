"""A process that takes messages from a queue, writes them to PostgreSQL and forwards them.

Each message is one distributed transaction. At its start, the process resolves what earlier
processes left in doubt and prints where each message is. Then it waits for a line with a step and a
victim, and works until that step. If the victim is "self", it is killed there; otherwise it prints
a line and continues when its parent has killed the victim. It ends at the first error.

Arguments: the data directory, whether to run its queue manager here, the directory of the other
queue manager's socket, the connection string of PostgreSQL.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager

import psycopg

import lanner

SOURCE, TARGET = r".\private$\in", r".\private$\out"


class Killer(logging.Handler):
    """Sees each step before it is done."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.victim, self.left = "", "", 0

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno != logging.DEBUG or record.getMessage().partition(": ")[2] != self.step:
            return
        self.left -= 1
        if self.left:
            return
        if self.victim == "self":
            os.kill(os.getpid(), signal.SIGKILL)
        say("step")
        sys.stdin.readline()


def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def bodies(messages: Iterable[lanner.ReceivedMessage]) -> list[int]:
    return [int(message.body_bytes) for message in messages]


def main() -> None:
    data, where, other, dsn = sys.argv[1:]
    killer = Killer()
    log = logging.getLogger("lanner.client._sync.distributed")
    log.setLevel(logging.DEBUG)
    log.addHandler(killer)
    log.propagate = False
    opened: AbstractContextManager[lanner.QueueManager] = (
        lanner.QueueManager(data, name="ALPHA") if where == "embedded" else lanner.connect(data=data)
    )
    with opened as manager, lanner.connect(data=other) as beta, psycopg.connect(dsn) as connection:
        resources = {"beta": beta, "ledger": connection}
        source, target = manager.open(SOURCE), beta.open(TARGET)
        with lanner.distributed(manager, resources):
            pass
        rows = connection.execute("SELECT id FROM ledger").fetchall()
        connection.rollback()
        in_doubt = manager.transactions() + beta.transactions()
        say({"source": bodies(source), "target": bodies(target), "rows": rows, "in_doubt": in_doubt})
        killer.step, killer.victim, left = json.loads(sys.stdin.readline())
        killer.left = left
        while True:
            with lanner.distributed(manager, resources) as transaction:
                message = source.receive(timeout=0, transaction=transaction)
                connection.execute("INSERT INTO ledger VALUES (%s)", (int(message.body_bytes),))
                target.send(lanner.Message(body=message.body_bytes), transaction=transaction)


if __name__ == "__main__":
    main()
