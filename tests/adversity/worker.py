r"""The process that is killed: four writers on one queue manager.

Each logs what was acknowledged. A line is written only after its call has returned, so everything
in the log was acknowledged. Run as `python -m tests.adversity.worker DATA LOG SEED`.

    S n           recoverable message n is sent to `inbox`
    T t k         transaction t with k sends to `ledger` is committed
    M t           a message of transaction t was moved from `ledger` to `archive`, committed
    G n lookup    message n was taken from `inbox` and sent on to `done` in one transaction
    P n           message n of `plain` was received, outside transactions
    X lookup      the lookup id of an express message that was seen
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.errors import IOTimeout

PRIORITIES = 8


class Worker:
    def __init__(self, data: str, log: str, seed: int) -> None:
        self.log_file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.seed = seed
        self.manager = QueueManager(data, name="ALPHA")
        with runtime_of(self.manager).lock:
            known = {queue.name.rpartition("\\")[2] for queue in self.manager.queues()}
        for name, transactional in (("inbox", False), ("plain", False), ("express", False)):
            if name not in known:
                self.manager.create_queue(name, transactional=transactional)
        for name in ("ledger", "archive", "done"):
            if name not in known:
                self.manager.create_queue(name, transactional=True)

    def log(self, line: str) -> None:
        os.write(self.log_file, f"{line}\n".encode())

    def run(self) -> None:
        writers = (self.send, self.transact, self.move, self.take)
        threads = [threading.Thread(target=self.forever, args=(writer,), daemon=True) for writer in writers]
        for thread in threads:
            thread.start()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for thread in threads:
            thread.join()

    def forever(self, writer: Callable[[random.Random, int], None]) -> None:
        chance = random.Random(f"{self.seed}{writer.__name__}")
        number = self.seed * 1_000_000
        while True:
            number += 1
            writer(chance, number)

    def send(self, chance: random.Random, number: int) -> None:
        queue = self.manager.open("inbox")
        message = Message(body=b"%d" % number, priority=number % PRIORITIES, recoverable=True)
        queue.send(message)
        self.log(f"S {number}")
        self.manager.open("plain").send(Message(body=b"%d" % number, recoverable=True))
        if chance.random() < 0.1:
            express = self.manager.open("express")
            express.send(b"x")
            self.log(f"X {express.receive(timeout=0).lookup_id}")

    def transact(self, chance: random.Random, number: int) -> None:
        count = chance.randrange(1, 6)
        ledger = self.manager.open("ledger")
        with self.manager.transaction() as transaction:
            for part in range(count):
                ledger.send(b"%d/%d" % (number, part), transaction=transaction)
            if chance.random() < 0.2:
                transaction.abort()
                return
        self.log(f"T {number} {count}")

    def move(self, chance: random.Random, _: int) -> None:
        try:
            with self.manager.transaction() as transaction:
                message = self.manager.open("ledger").receive(timeout=0.05, transaction=transaction)
                self.manager.open("archive").send(message.body_bytes, transaction=transaction)
                if chance.random() < 0.2:
                    transaction.abort()
                    return
        except IOTimeout:
            return
        self.log(f"M {message.body_bytes.decode()}")

    def take(self, chance: random.Random, _: int) -> None:
        try:
            if chance.random() < 0.5:
                message = self.manager.open("plain").receive(timeout=0.05)
                self.log(f"P {message.body_bytes.decode()}")
                return
            with self.manager.transaction() as transaction:
                message = self.manager.open("inbox").receive(timeout=0.05, transaction=transaction)
                self.manager.open("done").send(
                    Message(body=message.body_bytes, label=str(message.priority)), transaction=transaction
                )
        except IOTimeout:
            return
        self.log(f"G {message.body_bytes.decode()} {message.lookup_id}")


if __name__ == "__main__":
    Worker(sys.argv[1], sys.argv[2], int(sys.argv[3])).run()
