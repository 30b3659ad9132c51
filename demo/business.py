"""The traffic of the demo: orders, payments, samples and quotations between two queue managers.

SHOP sends orders to WAREHOUSE, whose clock is five seconds ahead. The warehouse receives them and
sends invoices back. Most messages are received. The exceptions are there for the report to show:

- Quotations expire because no program reads them in time.
- The queue of samples reaches its quota.
- Some payments are poison. The warehouse moves them to a subqueue after three attempts.
- Some orders name a queue that does not exist.
- One order in twenty requests reports of its way (tracing).
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from lanner.client import Message, QueueManager
from lanner.model.enums import Acknowledgements
from lanner.model.errors import IOTimeout, LannerError
from lanner.transfer.settings import TRANSFER_PORT
from lanner.wire.body_types import VT_BSTR

SHOP, WAREHOUSE = "SHOP", "WAREHOUSE"
# Loopback network that nothing else is likely to use.
_NETWORK: Final = "127.0.77"
AHEAD: Final = 5  # seconds
# Arrival, receipt, and every failure of either.
EVERYTHING: Final = Acknowledgements.FULL_REACH_QUEUE | Acknowledgements.FULL_RECEIVE
PATIENCE: Final = 60.0  # seconds within which messages in transit must arrive
ROUNDS: Final = 20
POISON_ATTEMPTS: Final = 3
TRACED: Final = 20  # one order in this many


def free_addresses() -> dict[str, str]:
    """Return for each machine an address whose transfer port is free."""
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
        # By queue: messages sent, and messages received.
        self.sent_to: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        for name in ("orders", "samples", "quotations"):
            warehouse.create_queue(name, journal=True, quota_kb=64 if name == "samples" else None)
        warehouse.create_queue("payments", journal=True, transactional=True)
        shop.create_queue("invoices", journal=True)
        for manager in (shop, warehouse):
            manager.create_queue("acks")
        # Reports go to a public queue, which the sender of a report must be able to look up.
        self.reports = shop.create_queue(r".\reports").attributes().identifier
        computer = {
            "identifier": str(shop.identifier),
            "address": addresses[SHOP],
            "queues": {"reports": str(self.reports)},
        }
        warehouse.enterprise.apply({"computers": {SHOP: computer}})

    def queue_name(self, machine: str, queue: str) -> str:
        """Return the name of a queue in a form that works on both machines."""
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
            # An order to a queue that does not exist is never acknowledged: this copy is all that
            # remains.
            message.use_journal_queue = queue == "closed" or self.chance.random() < 0.1
            prepared.append(message)
        sender.open(self.queue_name(machine, queue)).send_many(prepared)
        self.sent += len(prepared)
        self.sent_to[queue] += len(prepared)

    def _orders(self, count: int) -> Iterator[Message]:
        for _ in range(count):
            number, customer = self.chance.randrange(1_000_000), self.chance.randrange(60)
            xml = (
                f'<?xml version="1.0"?>\r\n<order id="{number}"><customer>{customer}</customer>'
                f"{' ' * self.chance.randrange(900)}</order>"
            )
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
        """Send payments in transactions.

        One transaction in ten is aborted, and some payments are poison.
        """
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
                self.sent_to["payments"] += size

    def _work(self, number: int) -> None:
        """Receive what has arrived.

        The warehouse leaves the orders of the last rounds as a backlog.
        """
        orders = self.warehouse.open("orders")
        invoices = []
        while number < ROUNDS - 2 and (taken := orders.receive_many(500)):
            self.taken["orders"] += len(taken)
            for order in taken:
                invoice = Message(body=order.body_bytes, label=order.label.replace("order of", "invoice for"))
                invoice.correlation_id = order.id
                invoices.append(invoice)
        if invoices:
            self._send(self.warehouse, SHOP, "invoices", iter(invoices), acknowledge="full_reach_queue", acks=WAREHOUSE)
        self._take_invoices()
        self._take_payments()
        if number % 8 == 7:
            self.taken["samples"] += len(self.warehouse.open("samples").receive_many(100))

    def _take_invoices(self) -> None:
        self.taken["invoices"] += len(self.shop.open("invoices").receive_many(10_000))

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
                self.taken["payments"] += 1
                continue
            # The abort count includes this attempt.
            unit.abort()
            if taken.abort_count >= POISON_ATTEMPTS:
                payments.move(taken.lookup_id, "poison")

    def _wait_until_idle(self, progress: Callable[[str], None]) -> None:
        """Wait until the outgoing queues are empty and the quotations have expired."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self._take_payments()
            self._take_invoices()
            waiting = sum(
                queue.count() for manager in (self.shop, self.warehouse) for queue in manager.outgoing_queues()
            )
            unread = self.warehouse.open("quotations").count()
            if not waiting and not unread and not self.warehouse.open("payments").count():
                return
            progress(f"{waiting} messages on their way, {unread} quotations not expired yet")
            time.sleep(0.2)
