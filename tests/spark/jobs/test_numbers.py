"""latency, throughput, poison, routes and audit: numbers against plain Python over the truth."""

from __future__ import annotations

import collections
import itertools
import re
import statistics
from collections.abc import Iterable
from typing import Any

import pytest

from lanner.model.enums import MessageClass
from lanner.spark.jobs import audit, latency, lifecycle, poison, routes, throughput
from lanner.wire.sid import Sid
from tests.spark.jobs.test_lifecycle import is_reported, status, told, unix
from tests.spark.jobs.worlds import Ingested

HOUR = 3600
ARRIVAL, RECEIVE = MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE
Pair = tuple[str, str, int]


@pytest.fixture(scope="module", autouse=True)
def _lifecycle(business: Ingested) -> None:
    if not business.context.lake.has("lifecycle"):
        lifecycle.run(business.context)


def table(business: Ingested, name: str) -> list[Any]:
    return list(business.context.lake.read(name).collect())


def period(row: Any, length: int) -> int:  # noqa: ANN401 (a row)
    return int(row["period"].timestamp()) // length


def known_arrival(message: dict[str, Any]) -> int | None:
    is_known = "waiting" in message["known"] or told(message, ARRIVAL) is not None or is_reported(message)
    arrived: int | None = message["arrived"] if is_known else None
    return arrived


def known_receive(message: dict[str, Any]) -> int | None:
    is_known = "received" in message["known"] or told(message, RECEIVE) is not None
    received: int | None = message["received"] if is_known else None
    return received


def is_seen(message: dict[str, Any]) -> bool:
    """Whether the message itself was seen, so that its properties are known."""
    return bool({"waiting", "received", "journaled", "dead"} & set(message["known"]))


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)


# Latency


def sampled(business: Ingested) -> list[tuple[str, str, int, int]]:
    """(from, to, sent, arrived) of everything that passed between two machines."""
    ids = {machine["name"]: machine["id"] for machine in business.truth["machines"]}
    found = []
    monitor = business.world.machines[0].name
    for message in business.truth["messages"]:
        arrived = known_arrival(message)
        if arrived is not None and is_seen(message):
            found.append((message["source"], message["destination"], message["sent"], arrived))
        found += [(ack["by"], message["source"], ack["sent"], ack["arrived"]) for ack in message["acks"]]
    for row in business.context.lake.read("messages").where("class = 1 and packet_error is null").collect():
        name = next(name for name, identifier in ids.items() if identifier == row["src_machine_id"])
        found.append((name, monitor, unix(row["sent_time"]), unix(row["arrived_time"])))  # type: ignore[arg-type]
    return [(ids[a], ids[b], sent, arrived) for a, b, sent, arrived in found if a != b]


def skews(business: Ingested) -> dict[Pair, tuple[float, bool, bool]]:
    forth: dict[Pair, list[int]] = collections.defaultdict(list)
    back: dict[Pair, list[int]] = collections.defaultdict(list)
    for one, other, sent, arrived in sampled(business):
        if one < other:
            forth[one, other, arrived // HOUR].append(arrived - sent)
        else:
            back[other, one, sent // HOUR].append(arrived - sent)
    found = {}
    for key in forth.keys() | back.keys():
        there, here = forth.get(key), back.get(key)
        if there and here:
            value = (min(there) - min(here)) / 2
            spread = max(max(there) - min(there), max(here) - min(here), max(there) + min(here), max(here) + min(there))
        elif there:
            value, spread = min(there), max(there) - min(there)
        else:
            assert here
            value, spread = -min(here), max(here) - min(here)
        found[key] = value, bool(there and here), spread > 1800
    return found


def test_skew_of_clocks_is_what_the_truth_gives_and_near_what_it_really_was(business: Ingested) -> None:
    latency.run(business.context)
    expected = skews(business)
    real = {machine["id"]: machine["skews"] for machine in business.truth["machines"]}
    near = collections.Counter[bool]()
    rows = table(business, "clock_skew")
    assert len(rows) == len(expected)
    for row in rows:
        value, is_two_way, is_step = expected[row["machine_a"], row["machine_b"], period(row, HOUR)]
        assert (row["skew_seconds"], row["method"] == "two-way", row["is_step"]) == (value, is_two_way, is_step)
        if not is_step and is_two_way:
            hours = zip(real[row["machine_b"]], real[row["machine_a"]], strict=True)
            near[any(abs(value - (b - a)) <= 4 for b, a in hours)] += 1
    assert near[True] > 100
    assert near[False] <= near[True] / 50


def test_percentiles_by_route_and_queue(business: Ingested) -> None:
    ids = {machine["name"]: machine["id"] for machine in business.truth["machines"]}
    known = skews(business)
    raw: dict[tuple[str, str, str, int], list[int]] = collections.defaultdict(list)
    corrected: dict[tuple[str, str, str, int], list[float]] = collections.defaultdict(list)
    waits: dict[tuple[str, str, str, int], list[int]] = collections.defaultdict(list)
    for message in business.truth["messages"]:
        arrived, received = known_arrival(message), known_receive(message)
        if arrived is None or not is_seen(message):
            continue
        key = (message["source"], message["destination"], message["queue"], arrived // HOUR)
        delta = arrived - message["sent"]
        a, b = ids[message["source"]], ids[message["destination"]]
        skew = 0.0
        if a < b:
            skew = known[a, b, arrived // HOUR][0]
        elif a > b:
            skew = -known[b, a, message["sent"] // HOUR][0]
        raw[key].append(delta)
        corrected[key].append(max(delta - skew, 0))
        if received is not None:
            waits[key].append(received - arrived)
    rows = {(r["source"], r["destination"], r["queue"], period(r, HOUR)): r for r in table(business, "latency")}
    assert set(rows) == set(raw)
    for key, row in rows.items():
        assert row["messages"] == len(raw[key])
        assert row["negative"] == sum(delta < 0 for delta in raw[key])
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
            assert row[f"raw_{name}"] == pytest.approx(percentile(raw[key], share))
            assert row[f"delivery_{name}"] == pytest.approx(percentile(corrected[key], share))
            if waits[key]:
                assert row[f"wait_{name}"] == pytest.approx(percentile(waits[key], share))
        assert row["delivery_max"] == max(corrected[key])
    assert statistics.median(percentile(values, 0.5) for values in corrected.values()) < 10


# Throughput


def test_what_came_and_went_by_queue_and_minute(business: Ingested) -> None:
    throughput.run(business.context)
    arrived: collections.Counter[tuple[str, int]] = collections.Counter()
    size: collections.Counter[tuple[str, int]] = collections.Counter()
    received: collections.Counter[tuple[str, int]] = collections.Counter()
    failed: collections.Counter[tuple[str, int]] = collections.Counter()
    for message in business.truth["messages"]:
        came, went = known_arrival(message), known_receive(message)
        first = came if came is not None else went
        if first is not None:
            arrived[message["queue"], first // 60] += 1
            size[message["queue"], first // 60] += message["body_size"] if is_seen(message) else 0
        if went is not None:
            received[message["queue"], went // 60] += 1
        nack = next((ack for ack in message["acks"] if ack["class"] >= 0xC000), None)
        if came is not None and (nack or (message["dead"] and message["dead"]["class"] >= 0xC000)):
            time = nack["sent"] if nack else message["dead"]["time"]
            failed[message["queue"], time // 60] += 1
    rows = {(row["queue"], period(row, 60)): row for row in table(business, "throughput")}
    assert set(rows) == set(arrived) | set(received) | set(failed)
    depth: collections.Counter[str] = collections.Counter()
    for key in sorted(rows):
        row = rows[key]
        assert (row["arrived"], row["received"], row["failed"], row["bytes"]) == (
            arrived[key],
            received[key],
            failed[key],
            size[key],
        )
        depth[key[0]] += arrived[key] - received[key] - failed[key]
        assert row["depth"] == depth[key[0]]
    assert {row["queue"]: row["depth"] for row in table(business, "backlog")} == dict(depth)


def test_a_queue_that_empties_says_when(business: Ingested) -> None:
    spark = business.context.spark
    minutes = [(i, 10 if i == 0 else 1, 2) for i in range(5)]
    rows = [("q", f"2026-03-02 10:0{i}:00", a, r, 0) for i, a, r in minutes] + [("r", "2026-03-02 10:00:00", 3, 0, 0)]
    frame = spark.createDataFrame(rows, "queue string, period string, arrived long, received long, failed long")
    frame = frame.selectExpr("queue", "cast(period as timestamp) as period", "arrived", "received", "failed")
    frame = frame.selectExpr("*", "sum(arrived - received - failed) over (partition by queue order by period) as depth")
    found = {row["queue"]: row for row in throughput.backlog(frame).collect()}
    assert (found["q"]["depth"], found["q"]["minutes_to_empty"]) == (4, None), "more came than went"
    assert found["r"]["minutes_to_empty"] is None
    quick = frame.where("queue = 'q' and period > timestamp '2026-03-02 10:00:30'").withColumn(
        "received", 2 * frame.received
    )
    [drained] = throughput.backlog(quick).collect()
    assert drained["minutes_to_empty"] == pytest.approx(4 / ((16 - 4) / 60))


# Poison


def test_poison_messages_by_what_they_have_in_common(business: Ingested) -> None:
    poison.run(business.context)
    expected: dict[tuple[str, str, int, str, str], list[int]] = collections.defaultdict(list)
    for message in business.truth["messages"]:
        if message["fate"] == "poison":
            label = re.sub(r"\d+", "#", message["label"])
            key = (message["queue"], label, message["body_type"], message["sender"].upper(), message["source"])
            expected[key].append(message["aborts"])
    rows = table(business, "poison")
    found = {(r["queue"], r["label"], r["body_type"], r["sender"] or "", r["source"]): r for r in rows}
    assert set(found) == set(expected)
    assert expected
    for key, row in found.items():
        assert (row["messages"], row["most_aborts"], row["aborts"], row["different_bodies"]) == (
            len(expected[key]),
            max(expected[key]),
            sum(expected[key]),
            1,
        )
    assert [row["aborts"] for row in rows] == sorted((row["aborts"] for row in rows), reverse=True)


# Routes


def test_edges_between_machines(business: Ingested) -> None:
    routes.run(business.context)
    hops: collections.Counter[tuple[str, str]] = collections.Counter()
    whole: collections.Counter[tuple[str, str]] = collections.Counter()
    for message in business.truth["messages"]:
        stops = [
            r["by"] for i, r in enumerate(message["reports"]) if i == 0 or r["by"] != message["reports"][i - 1]["by"]
        ]
        # Where it went is known of what was seen there, or told by those who had it.
        by = {ack["by"] for ack in message["acks"] if ack["class"] in (ARRIVAL, RECEIVE)}
        if {"waiting", "received"} & set(message["known"]) or by or is_reported(message):
            whole[message["source"], message["destination"]] += 1
            if len(stops) < 2 and message["source"] != message["destination"]:
                stops = [message["source"], message["destination"]]
        hops.update(itertools.pairwise(stops if len(stops) > 1 else []))
    rows = table(business, "routes")
    assert {(r["source"], r["destination"]): r["messages"] for r in rows if r["kind"] == "step"} == dict(hops)
    assert {(r["source"], r["destination"]): r["messages"] for r in rows if r["kind"] == "route"} == dict(whole)
    seconds = [row["median_seconds"] for row in rows if row["kind"] == "step"]
    assert statistics.median(seconds) < 30
    assert all(row["loops"] == 0 for row in rows)


def test_a_loop_is_found(business: Ingested) -> None:
    stops = ", ".join(
        f"named_struct('by', '{by}', 'time', timestamp '2026-03-02 10:00:0{i}', 'address', 'x')"
        for i, by in enumerate("ABAC")
    )
    frame = business.context.spark.sql(
        f"select 'm' as msg_id, 'A' as source_id, 'C' as destination_id, 3 as hop_count, array({stops}) as stops, "
        "array(1, 2, 3, 4) as hops"
    )
    rows = {(r["source_id"], r["destination_id"]): r for r in routes.routes(frame).where("kind = 'step'").collect()}
    assert set(rows) == {("A", "B"), ("B", "A"), ("A", "C")}
    assert all(row["loops"] == row["told"] == 1 for row in rows.values())
    assert rows["A", "B"]["median_seconds"] == 1


# Audit


def test_who_sends_to_what_and_what_is_signed(business: Ingested) -> None:
    audit.run(business.context)
    expected: dict[tuple[str, str, str], list[bool]] = collections.defaultdict(list)
    for message in filter(is_seen, business.truth["messages"]):
        sender = str(Sid.unpack(bytes.fromhex(message["sender"]))) if message["sender"] else "nobody"
        expected[sender, message["source"], message["queue"]].append(message["is_authenticated"])
    rows = {(row["sender"], row["source"], row["queue"]): row for row in table(business, "audit")}
    assert set(rows) == set(expected)
    for key, row in rows.items():
        assert (row["messages"], row["signed"], row["verified"]) == (
            len(expected[key]),
            sum(expected[key]),
            sum(expected[key]),
        )
    assert any(row["sender"] == "nobody" and not row["signed"] for row in rows.values())


def test_what_the_bodies_are(business: Ingested) -> None:
    words = {
        "bstr": "text (VT_BSTR)",
        "lpwstr": "text (VT_LPWSTR)",
        "lpstr": "text (VT_LPSTR)",
        "i4": "VARIANT 3",
        "xml": "XML",
        "headers": "XML with headers",
        "binary": ".NET binary",
        "empty": "empty",
    }
    expected: collections.Counter[tuple[str, str]] = collections.Counter()
    size: collections.Counter[tuple[str, str]] = collections.Counter()
    for message in filter(is_seen, business.truth["messages"]):
        expected[message["queue"], words[message["formatter"]]] += 1
        size[message["queue"], words[message["formatter"]]] += message["body_size"]
    rows = table(business, "census")
    unseen = [row for row in rows if row["formatter"] == audit.NOT_SEEN]
    assert sum(row["messages"] for row in unseen) == sum(not is_seen(m) for m in business.truth["messages"])
    rows = [row for row in rows if row["formatter"] != audit.NOT_SEEN]
    assert {(row["queue"], row["formatter"]): row["messages"] for row in rows} == dict(expected)
    assert {(row["queue"], row["formatter"]): row["bytes"] for row in rows} == dict(size)
    broken = table(business, "broken")
    assert sum(row["messages"] for row in broken) == business.truth["broken_packets"]


def test_the_truth_of_these_tests_has_everything(business: Ingested) -> None:
    assert {status(message) for message in business.truth["messages"]} >= {
        "dead_lettered",
        "refused",
        "received",
        "waiting",
        "arrived",
        "sent",
    }
