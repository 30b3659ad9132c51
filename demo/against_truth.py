"""Comparison of the demo's report with what the two queue managers really did."""

from __future__ import annotations

import collections
import json
import re
from pathlib import Path
from typing import Any, Final

from demo.business import AHEAD, POISON_ATTEMPTS, SHOP, WAREHOUSE, Business
from lanner.model.errors import LannerError
from lanner.spark.report import short

__all__ = ["CHECKED", "WrongNumbers", "check_report"]

# Tables to check in addition to the page.
CHECKED: Final = (
    "latency_by_queue",
    "clock_skew",
    "routes",
    "ack_summary",
    "throughput",
    "backlog",
    "poison",
    "audit",
    "census",
)

_SCRIPTS: Final = re.compile(r"<script.*?</script>", re.DOTALL)
_GUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
# The indexes of status, reason and identifier in the page's list of messages.
_STATUS, _REASON, _IDENTIFIER = 2, 6, 8
_DATA: Final = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
# Seconds. The warehouse receives orders as soon as they arrive, and the shop's clock is right.
_LONGEST_WAIT: Final = 1.0


class WrongNumbers(LannerError):
    """The report differs from what happened."""


def embedded(page: Path) -> dict[str, Any]:
    """Return the data in the report from which its filters compute the numbers."""
    found = _DATA.search(page.read_text(encoding="utf-8"))
    if found is None:
        raise WrongNumbers(f"{page} has no data")
    data: dict[str, Any] = json.loads(found[1])
    return data


def truth(business: Business) -> dict[tuple[str, str], int]:
    """Return the number of messages per queue and final status."""
    taken, sent = business.taken, business.sent_to
    warehouse, shop = business.warehouse, business.shop
    dead = collections.Counter(message.label.partition(" ")[0] for message in warehouse.dead_letter)
    found = {
        (f"orders on {WAREHOUSE}", "received"): taken["orders"],
        (f"orders on {WAREHOUSE}", "waiting"): warehouse.open("orders").count(),
        (f"invoices on {SHOP}", "received"): taken["invoices"],
        (f"invoices on {SHOP}", "waiting"): shop.open("invoices").count(),
        (f"payments on {WAREHOUSE}", "received"): taken["payments"],
        (f"payments on {WAREHOUSE}", "waiting"): warehouse.open("payments;poison").count(),
        (f"samples on {WAREHOUSE}", "received"): taken["samples"],
        (f"samples on {WAREHOUSE}", "waiting"): warehouse.open("samples").count(),
        (f"samples on {WAREHOUSE}", "dead_lettered"): dead["sample"],
        (f"quotations on {WAREHOUSE}", "dead_lettered"): dead["quotation"],
        (f"closed on {WAREHOUSE}", "refused"): sent["closed"],
    }
    for queue in sent:
        told = sum(count for (name, _), count in found.items() if name.startswith(f"{queue} on "))
        if told != sent[queue]:
            raise WrongNumbers(f"{sent[queue]} messages were sent to {queue}, and {told} have been found")
    return {key: count for key, count in found.items() if count}


def check_report(page: Path, business: Business, tables: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Compare the report with the truth; return the checked numbers in words.

    Raises WrongNumbers, which names every difference.
    """
    data = embedded(page)
    counted: collections.Counter[tuple[str, str]] = collections.Counter()
    for queue, _, status, count in data["cube"]:
        counted[data["queues"][queue], status] += count
    expected = truth(business)
    wrong = [
        f"{queue}, {status}: the report says {counted[queue, status]}, {expected.get((queue, status), 0)} is right"
        for queue, status in sorted({*counted, *expected})
        if counted[queue, status] != expected.get((queue, status), 0)
    ]
    if data["total"] != business.sent:
        wrong.append(f"the report knows {data['total']} messages; {business.sent} is right")
    said = [f"{queue}: {count} {status}" for (queue, status), count in sorted(expected.items())]
    [orders] = [row for row in tables["latency_by_queue"] if row["queue"].endswith(rf"{WAREHOUSE}\private$\orders")]
    if orders["exact"] != orders["messages"] or not 0 < orders["wait_p50"] < _LONGEST_WAIT:
        wrong.append(f"orders wait {orders['wait_p50']} s in their queue; less than {_LONGEST_WAIT} s is right")
    said.append(f"half of the orders waited {1000 * orders['wait_p50']:.0f} ms in their queue at most")
    for row in tables["clock_skew"]:
        skew = row["skew_seconds"] if row["name_b"] == WAREHOUSE else -row["skew_seconds"]
        if abs(skew - AHEAD) > row["uncertainty_seconds"] + 0.002:
            wrong.append(
                f"the clock of {WAREHOUSE} is {skew} s ahead, give or take {row['uncertainty_seconds']} s; "
                f"{AHEAD} s is right"
            )
        said.append(f"the clock of {WAREHOUSE} is {skew:.3f} s ahead, give or take {row['uncertainty_seconds']:.3f} s")
    steps = {(row["source"], row["destination"]): row["messages"] for row in tables["routes"] if row["kind"] == "step"}
    right = {
        (SHOP, WAREHOUSE): sum(count for queue, count in business.sent_to.items() if queue != "invoices"),
        (WAREHOUSE, SHOP): business.sent_to["invoices"],
    }
    if steps != right:
        wrong.append(f"the map shows {steps}; {right} is right")
    for what, found, told in (*_of_page(page, data, expected), *_of_tables(business, tables, expected)):
        if found != told:
            wrong.append(f"{what}: the report says {found}; {told} is right")
        said.append(f"{what}: {told}")
    if wrong:
        raise WrongNumbers("\n".join(wrong))
    return said


Counts = dict[tuple[str, str], int]
# What is compared, what the report says of it, and what is right.
Compared = list[tuple[str, object, object]]


def _of_page(page: Path, data: dict[str, Any], expected: Counts) -> Compared:
    """Return the reasons of failures, and identifiers where a name belongs."""
    visible = _SCRIPTS.sub("", page.read_text(encoding="utf-8"))
    listed = [[text for place, text in enumerate(row) if place != _IDENTIFIER] for row in data["messages"]]
    bare = _GUID.findall(visible) + _GUID.findall(json.dumps([data["queues"], listed]))
    reasons = collections.Counter(row[_REASON] for row in data["messages"] if row[_STATUS] in data["failed"])
    right = {
        "bad dest queue": expected[f"closed on {WAREHOUSE}", "refused"],
        "receive timeout": expected[f"quotations on {WAREHOUSE}", "dead_lettered"],
        "queue exceed quota": expected.get((f"samples on {WAREHOUSE}", "dead_lettered"), 0),
    }
    return [
        ("reasons of failures", dict(reasons), {reason: count for reason, count in right.items() if count}),
        ("identifiers where a name is known", bare, []),
    ]


def _of_tables(business: Business, tables: dict[str, list[dict[str, Any]]], expected: Counts) -> Compared:
    """Return acknowledgments, traffic, backlog, poison messages, senders and bodies."""
    sent, taken = business.sent_to, business.taken
    left, poison = dict.fromkeys(sent, 0), business.warehouse.open("payments;poison").count()
    for (name, status), count in expected.items():
        if status == "waiting":
            left[name.partition(" ")[0]] += count
    full = expected.get((f"samples on {WAREHOUSE}", "dead_lettered"), 0)
    acks = {
        ("orders", "positive"): taken["orders"],
        ("orders", "pending"): left["orders"],
        ("invoices", "positive"): sent["invoices"],
        ("payments", "positive"): taken["payments"],
        ("payments", "pending"): poison,
        ("samples", "positive"): sent["samples"] - full,
        ("samples", "negative"): full,
        ("quotations", "negative"): sent["quotations"],
        ("closed", "negative"): sent["closed"],
    }
    traffic: dict[str, tuple[int, ...]] = {
        queue: (sent[queue], taken[queue], 0) for queue in ("orders", "invoices", "payments")
    }
    traffic["samples"] = (sent["samples"] - full, taken["samples"], 0)
    traffic["quotations"] = (sent["quotations"], 0, sent["quotations"])
    found_acks: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in tables["ack_summary"]:
        found_acks[_queue(row), row["outcome"]] += row["messages"]
    found_traffic: dict[str, tuple[int, ...]] = {}
    for row in tables["throughput"]:
        if (queue := _queue(row)) in traffic:
            before = found_traffic.get(queue, (0, 0, 0))
            now = (row["arrived"], row["received"], row["failed"])
            found_traffic[queue] = tuple(map(sum, zip(before, now, strict=True)))
    backlog = {_queue(row): row["depth"] for row in tables["backlog"] if _queue(row) in traffic}
    groups = [(_queue(row), row["messages"], row["aborts"], row["different_bodies"]) for row in tables["poison"]]
    bodies = collections.Counter({row["formatter"]: 0 for row in tables["census"]})
    for row in tables["census"]:
        bodies[row["formatter"]] += row["messages"]
    texts = sent["samples"] + sent["quotations"] + sent["closed"]
    return [
        ("acknowledgments", dict(found_acks), {key: count for key, count in acks.items() if count}),
        ("arrived, received, failed", found_traffic, traffic),
        ("backlog", backlog, {queue: left[queue] for queue in traffic}),
        ("poison", groups, [("payments", poison, POISON_ATTEMPTS * poison, 1)] if poison else []),
        ("messages of all senders", sum(row["messages"] for row in tables["audit"]), business.sent),
        ("signed messages", sum(row["signed"] for row in tables["audit"]), 0),
        ("bodies", dict(bodies), {"text (VT_BSTR)": texts, "XML": business.sent - texts}),
    ]


def _queue(row: dict[str, Any]) -> str:
    return short(row["queue"]).partition(" on ")[0]
