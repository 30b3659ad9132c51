"""The traffic of `make demo`.

It uses real queue managers and produces everything that the report shows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from demo.business import AHEAD, POISON_ATTEMPTS, SHOP, TRACED, WAREHOUSE, Business, free_addresses
from lanner.cli.tracing import reports
from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of

Start = Callable[..., QueueManager]


def test_two_queue_managers_do_business(start: Start) -> None:
    addresses = free_addresses()
    shop, warehouse = (start(name, name, bind=address, events=True) for name, address in addresses.items())
    runtime_of(warehouse).engine.clocks.wall = lambda: time.time() + AHEAD
    business = Business(shop, warehouse, addresses, messages=1000)
    business.run(lambda _: None)
    # Invoices are sent only for orders that have arrived by then, so their number depends on the
    # machine.
    assert 547 < business.sent < 1200
    assert not any(queue.count() for manager in (shop, warehouse) for queue in manager.outgoing_queues())
    # Orders of the last rounds are left; what was taken was answered.
    orders, invoices = warehouse.open("orders"), shop.open("invoices")
    assert orders.count() + orders.journal.count() == 80 * business.per_round
    assert orders.count() >= 8 * business.per_round
    assert invoices.count() + invoices.journal.count() == orders.journal.count() > 0
    assert (warehouse.open("quotations").count(), warehouse.open("payments").count()) == (0, 0)
    dead = Counter(message.label.partition(" ")[0] for message in warehouse.dead_letter)
    assert dead["quotation"] == 20 * (business.per_round // 4)
    assert shop.open("acks").count() >= orders.count() + 2 * orders.journal.count()
    # Who sent it and who received it.
    traced = {message.id for message in (*orders, *orders.journal) if message.app_specific % TRACED == 0}
    told = Counter((report["message"], report["event"]) for report in reports(shop.open(r".\reports")))
    assert traced
    assert told == Counter({(message, event): 1 for message in traced for event in ("sent", "received")})


def test_poison_is_put_aside_after_so_many_attempts(start: Start) -> None:
    shop, warehouse = start(SHOP, SHOP), start(WAREHOUSE, WAREHOUSE)
    business = Business(shop, warehouse, {SHOP: "127.0.0.1", WAREHOUSE: "127.0.0.1"}, messages=1000)
    payments = warehouse.open("payments")
    with warehouse.transaction() as unit:
        for body in (b"<payment/>", b"<payment><amount>NaN</amount></payment>"):
            payments.send(Message(body=body), transaction=unit)
    business._take_payments()
    assert (payments.count(), payments.journal.count()) == (0, 1)
    [poison] = warehouse.open("payments;poison")
    assert poison.abort_count == POISON_ATTEMPTS == 3
