r"""`make demo`: two queue managers exchange some ten thousand messages of a made-up order business, and the pipeline looks at them.

    python -m lanner.spark.demo DIRECTORY [--messages 10000]

SHOP takes orders and sends them to WAREHOUSE, which ships, writes invoices back, and has a clock that is five seconds ahead. Most goes well.
Quotations that nobody reads in time expire, a queue of samples is full after a while, some payments are poison and are
put aside after three attempts, and a few orders are for a department that was closed. One order in twenty has its way reported. All of it
is real: two queue managers of this process, at two addresses of this machine, and the protocol between them. Then all jobs of the pipeline
run, and the path of the report is printed. It ends by itself.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.enums import Acknowledgements
from lanner.model.errors import IOTimeout, LannerError
from lanner.spark.connections import PASSWORD_VARIABLE
from lanner.spark.jobs import ALL, JOBS
from lanner.spark.jobs.config import load_config
from lanner.spark.jobs.progress import Progress
from lanner.spark.jobs.session import Context, run_job, start_spark
from lanner.transfer.settings import TRANSFER_PORT
from lanner.wire.body_types import VT_BSTR

SHOP, WAREHOUSE = "SHOP", "WAREHOUSE"
# Loopback addresses that nothing else is likely to use.
_NETWORK: Final = "127.0.77"
AHEAD: Final = 5  # seconds
USER: Final = "pipeline"
# That it has arrived, that it was received, and whatever prevents it.
EVERYTHING: Final = Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE
PATIENCE: Final = 60.0  # seconds until what is on its way must have arrived
ROUNDS: Final = 20
POISON_ATTEMPTS: Final = 3
TRACED: Final = 20  # one order of so many
_SETTINGS: Final = """
[lake]
path = "lake"

[spark]
master = "local[*]"

# Small tables: most of the time goes into compiling queries. Over Unix sockets Spark prints an error for each worker that it ends when it was idle.
[spark.settings]
"spark.python.unix.domain.socket.enabled" = false
"spark.sql.shuffle.partitions" = 2
"spark.sql.codegen.wholeStage" = false
"spark.sql.codegen.factoryMode" = "NO_CODEGEN"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

[source]
managers = [{managers}]
user = "{user}"

[ingest]
queues = ["*", "*;*", "system$;*"]
events = true

[throughput]
bucket_seconds = 1

[report]
path = "report.html"
title = "Orders between SHOP and WAREHOUSE"
"""


def free_addresses() -> dict[str, str]:
    """An address for each machine, where nobody listens."""
    found: list[str] = []
    for last in range(1, 255):
        address = f"{_NETWORK}.{last}"
        with socket.socket() as probe:
            try:
                probe.bind((address, TRANSFER_PORT))
            except OSError:
                continue
        found.append(address)
        if len(found) == 2:
            return dict(zip((SHOP, WAREHOUSE), found, strict=True))
    raise LannerError(f"port {TRANSFER_PORT} is in use at all addresses of {_NETWORK}: two queue managers need it")


class Business:
    """Orders, payments, samples and quotations from the shop; invoices from the warehouse."""

    def __init__(
        self, shop: QueueManager, warehouse: QueueManager, addresses: dict[str, str], messages: int, seed: int = 1
    ) -> None:
        self.addresses = addresses
        self.shop, self.warehouse = shop, warehouse
        self.chance = random.Random(seed)  # noqa: S311 (repeatable is what is wanted)
        # An order has an invoice, and half of the rest is payments, samples and quotations.
        self.per_round = max(messages // ROUNDS // 10, 1)
        self.sent = 0
        for name in ("orders", "samples", "quotations"):
            warehouse.create_queue(name, journal=True, quota_kb=64 if name == "samples" else None)
        warehouse.create_queue("payments", journal=True, transactional=True)
        shop.create_queue("invoices", journal=True)
        for manager in (shop, warehouse):
            manager.create_queue("acks")
        # Whoever has a message in hands reports to a public queue, and must know where that is.
        self.reports = shop.create_queue(r".\reports").attributes().identifier
        computer = {
            "identifier": str(shop.identifier),
            "address": addresses[SHOP],
            "queues": {"reports": str(self.reports)},
        }
        warehouse.enterprise.apply({"computers": {SHOP: computer}})

    def queue_name(self, machine: str, queue: str) -> str:
        """The name of a queue that both machines understand."""
        return rf"DIRECT=TCP:{self.addresses[machine]}\private$\{queue}"

    def run(self, progress: Callable[[str], None]) -> None:
        for number in range(ROUNDS):
            self._round(number)
            progress(f"round {number + 1} of {ROUNDS}: {self.sent} messages sent")
        self._wait_until_idle(progress)

    def _round(self, number: int) -> None:
        many = self.per_round
        self._send(self.shop, WAREHOUSE, "orders", self._orders(4 * many), acknowledge=EVERYTHING, acks=SHOP)
        self._send(
            self.shop, WAREHOUSE, "samples", self._texts("sample", many // 2), acknowledge="full_reach_queue", acks=SHOP
        )
        quotes = self._texts("quotation", many // 4)
        self._send(
            self.shop,
            WAREHOUSE,
            "quotations",
            quotes,
            acknowledge="nack_receive",
            acks=SHOP,
            time_to_be_received=AHEAD + 3,
        )
        self._send(
            self.shop, WAREHOUSE, "closed", self._texts("order", many // 10), acknowledge="full_reach_queue", acks=SHOP
        )
        self._pay(many)
        self._work(number)

    def _send(
        self, sender: QueueManager, machine: str, queue: str, messages: Iterator[Message], *, acks: str, **more: object
    ) -> None:
        prepared = []
        for message in messages:
            for name, value in more.items():
                setattr(message, name, value)
            message.administration_queue = self.queue_name(acks, "acks")
            message.recoverable = True
            message.use_dead_letter_queue = True
            # Nobody tells what became of an order for a department that is closed: the copy here is all that is left of it.
            message.use_journal_queue = queue == "closed" or self.chance.random() < 0.1
            prepared.append(message)
        sender.open(self.queue_name(machine, queue)).send_many(prepared)
        self.sent += len(prepared)

    def _orders(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            number, customer = self.chance.randrange(1_000_000), self.chance.randrange(60)
            xml = f'<?xml version="1.0"?>\r\n<order id="{number}"><customer>{customer}</customer>{" " * self.chance.randrange(900)}</order>'
            priority = self.chance.choice((3, 3, 3, 3, 5, 7))
            yield Message(
                body=xml.encode(),
                label=f"order of customer {customer}",
                priority=priority,
                app_specific=number,
                tracing_queue=self.reports if number % TRACED == 0 else None,
            )

    def _texts(self, word: str, count: int) -> Iterator[Message]:
        for _ in range(count):
            number = self.chance.randrange(1_000_000)
            yield Message(
                body=f"{word} {number}" * self.chance.randrange(1, 9), body_type=VT_BSTR, label=f"{word} {number}"
            )

    def _pay(self, count: int) -> None:
        """In transactions; one in ten is given up, and some payments are poison."""
        target = self.shop.open(self.queue_name(WAREHOUSE, "payments"))
        left = count
        while left > 0:
            size = min(self.chance.randrange(1, 6), left)
            left -= size
            unit = self.shop.transaction()
            for _ in range(size):
                is_poison = self.chance.random() < 0.02
                body = (
                    b"<payment><amount>NaN</amount></payment>"
                    if is_poison
                    else f"<payment id='{self.chance.random()}'/>".encode()
                )
                message = Message(
                    body=body,
                    label="payment that cannot be read" if is_poison else "payment",
                    use_dead_letter_queue=True,
                    acknowledge="full_receive",
                    administration_queue=self.queue_name(SHOP, "acks"),
                )
                target.send(message, transaction=unit)
            if self.chance.random() < 0.1:
                unit.abort()
            else:
                unit.commit()
                self.sent += size

    def _work(self, number: int) -> None:
        """The warehouse takes what has come, but for the last rounds' backlog; the shop takes invoices."""
        orders = self.warehouse.open("orders")
        invoices = []
        while number < ROUNDS - 2 and (taken := orders.receive_many(500)):
            for order in taken:
                invoice = Message(body=order.body_bytes, label=order.label.replace("order of", "invoice for"))
                invoice.correlation_id = order.id
                invoices.append(invoice)
        if invoices:
            self._send(self.warehouse, SHOP, "invoices", iter(invoices), acknowledge="full_reach_queue", acks=WAREHOUSE)
        self.shop.open("invoices").receive_many(10_000)
        self._take_payments()
        if number % 8 == 7:
            self.warehouse.open("samples").receive_many(100)

    def _take_payments(self) -> None:
        payments = self.warehouse.open("payments")
        while True:
            unit = self.warehouse.transaction()
            try:
                taken = payments.receive(0, transaction=unit)
            except IOTimeout:
                unit.abort()
                return
            if b"NaN" not in taken.body_bytes:
                unit.commit()
                continue
            # Its count is that of now: this attempt is in it.
            unit.abort()
            if taken.abort_count >= POISON_ATTEMPTS:
                payments.move(taken.lookup_id, "poison")

    def _wait_until_idle(self, progress: Callable[[str], None]) -> None:
        """Wait until nothing is on its way any more, and what expires has expired."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._take_payments()
            self.shop.open("invoices").receive_many(10_000)
            waiting = sum(
                queue.count() for manager in (self.shop, self.warehouse) for queue in manager.outgoing_queues()
            )
            unread = self.warehouse.open("quotations").count()
            if not waiting and not unread and not self.warehouse.open("payments").count():
                return
            progress(f"{waiting} messages on their way, {unread} quotations not expired yet")
            time.sleep(0.2)


def main(
    directory: Annotated[
        Path, typer.Argument(help="A new directory for the queue managers, the tables and the report.")
    ],
    messages: Annotated[int, typer.Option(min=100, help="About how many messages.")] = 10_000,
) -> None:
    progress = Progress("demo")
    directory.mkdir(parents=True)
    addresses = free_addresses()
    os.environ[PASSWORD_VARIABLE] = secrets.token_urlsafe()
    with ExitStack() as stack:
        managers = []
        for name, address in addresses.items():
            manager = stack.enter_context(QueueManager(directory / name.lower(), name, bind=address, events=True))
            managers.append(manager)
        shop, warehouse = managers
        runtime_of(warehouse).engine.clocks.wall = lambda: time.time() + AHEAD
        progress.say(f"{SHOP} at {addresses[SHOP]} and {WAREHOUSE} at {addresses[WAREHOUSE]} exchange messages")
        business = Business(shop, warehouse, addresses, messages)
        business.run(progress.show)
        progress.say(f"{business.sent} messages were sent, and their acknowledgments came back")
        services = [stack.enter_context(_Flight(manager)) for manager in managers]
        report = _look(directory, services)
    sys.stdout.write(f"{report}\n")


class _Flight:
    """The Flight service of a queue manager, with a user of its own."""

    def __init__(self, manager: QueueManager) -> None:
        from lanner.spark.flight import FlightListener
        from lanner.spark.settings import FlightSettings

        runtime_of(manager).users.add(USER, os.environ[PASSWORD_VARIABLE], administrator=True)
        self._listener = FlightListener(runtime_of(manager), FlightSettings(port=0))

    def __enter__(self) -> str:
        self._listener.open()
        return self._listener.address

    def __exit__(self, *_: object) -> None:
        self._listener.close()


def _look(directory: Path, services: list[str]) -> str:
    """Run all jobs; the path of the report."""
    path = directory / "pipeline.toml"
    managers = ", ".join(f'"{address}"' for address in services)
    path.write_text(_SETTINGS.format(managers=managers, user=USER).lstrip(), encoding="utf-8")
    config = load_config(path)
    spark = start_spark(config, "demo")
    try:
        for name in ALL:
            told = Progress(name)
            told.finish(run_job(name, JOBS[name].run, Context(spark, config, told)))
    finally:
        spark.stop()
    return config.resolve(config.report.path)


if __name__ == "__main__":
    typer.run(main)
