"""lifecycle and acks: every row is what the truth says."""

from __future__ import annotations

import collections
import datetime as dt
from typing import Any

import pytest
from pyspark.sql import Row

from lanner.model.enums import MessageClass
from lanner.spark.jobs import acks, lifecycle
from tests.spark.jobs.worlds import Ingested


def unix(time: dt.datetime | None) -> int | None:
    return None if time is None else int(time.timestamp())


@pytest.fixture(scope="module")
def rows(business: Ingested) -> dict[str, Row]:
    assert lifecycle.run(business.context) == {"messages": len(business.truth["messages"])}
    found = business.context.lake.read("lifecycle").collect()
    return {row["msg_id"]: row for row in found}


def told(message: dict[str, Any], number: MessageClass) -> int | None:
    return next((ack["sent"] for ack in message["acks"] if ack["class"] == number), None)


def status(message: dict[str, Any]) -> str:
    """Return the known status in plain words."""
    known = message["known"]
    if "dead" in known:
        return "dead_lettered"
    for ack in message["acks"]:
        if ack["class"] in (MessageClass.NACK_REACH_QUEUE_TIMEOUT, MessageClass.NACK_RECEIVE_TIMEOUT):
            return "expired"
        if ack["class"] in (MessageClass.NACK_PURGED, MessageClass.NACK_QUEUE_DELETED, MessageClass.NACK_QUEUE_PURGED):
            return "purged"
        if ack["class"] >= 0x8000:
            return "refused"
    if "received" in known or told(message, MessageClass.ACK_RECEIVE) is not None:
        return "received"
    if "waiting" in known:
        return "waiting"
    if told(message, MessageClass.ACK_REACH_QUEUE) is not None or is_reported(message):
        return "arrived"
    return "sent"


def is_reported(message: dict[str, Any]) -> bool:
    return bool(message["reports"]) and message["reports"][-1]["by"] == message["destination"] != message["source"]


def test_every_message_has_its_row(business: Ingested, rows: dict[str, Row]) -> None:
    assert set(rows) == set(business.messages)
    for identifier, message in business.messages.items():
        row = rows[identifier]
        assert row["status"] == status(message), message
        assert row["source"] == message["source"]
        assert row["queue"] == message["queue"]
        if row["destination"] is not None:
            assert row["destination"] == message["destination"]
        if row["label"] is not None:
            assert (row["label"], row["priority"], row["body_size"], row["is_transactional"]) == (
                message["label"],
                message["priority"],
                message["body_size"],
                message["is_transactional"],
            )
            assert unix(row["sent_time"]) == message["sent"]
            assert row["body_sha256"] == message["body_sha256"]
            assert bytes(row["sender_id"] or b"").hex() == message["sender"]


def test_times_are_those_of_the_truth(business: Ingested, rows: dict[str, Row]) -> None:
    by: collections.Counter[str | None] = collections.Counter()
    for identifier, message in business.messages.items():
        row, known = rows[identifier], message["known"]
        is_arrived = (
            "waiting" in known or told(message, MessageClass.ACK_REACH_QUEUE) is not None or is_reported(message)
        )
        assert unix(row["arrived_time"]) == (message["arrived"] if is_arrived else None)
        is_received = "received" in known or told(message, MessageClass.ACK_RECEIVE) is not None
        assert unix(row["received_time"]) == (message["received"] if is_received else None)
        assert unix(row["journaled_time"]) == known.get("journaled")
        assert unix(row["dead_time"]) == (message["dead"] or {}).get("time")
        assert row["dead_at"] == (message["dead"] or {}).get("machine")
        assert row["dead_class"] == (message["dead"] or {}).get("class")
        nacks = [ack for ack in message["acks"] if ack["class"] >= 0x8000]
        assert (row["nack_class"], unix(row["nack_time"])) == (
            (nacks[0]["class"], nacks[0]["sent"]) if nacks else (None, None)
        )
        by[row["arrived_by"]] += 1
        by[row["received_by"]] += 1
    assert set(by) == {"queue", "acknowledgment", "report", "journal", None}


def test_the_way_of_a_message_is_in_order_although_clocks_are_not(business: Ingested, rows: dict[str, Row]) -> None:
    names = {machine["id"]: machine["name"] for machine in business.truth["machines"]}
    longest = 0
    for identifier, message in business.messages.items():
        found = [
            (names[hop["by"]], hop["hop_count"], unix(hop["time"]), hop["next_hop"])
            for hop in rows[identifier]["hops"] or []
        ]
        assert found == [(r["by"], r["hops"], r["time"], r["next_hop"]) for r in message["reports"]]
        longest = max(longest, len(found))
    assert longest >= 6


def outcome(message: dict[str, Any]) -> str:
    asked = message["acknowledge"]
    if message["dead"] or any(ack["class"] >= 0x8000 for ack in message["acks"]):
        return "negative"
    if not asked & 3:
        return "quiet"
    wanted = MessageClass.ACK_RECEIVE if asked & 2 else MessageClass.ACK_REACH_QUEUE
    if told(message, wanted) is not None:
        return "positive"
    pending = ("waiting", "arrived", "in_transit") if asked & 2 else ("in_transit",)
    return "pending" if status(message) in pending else "missing"


def test_acknowledgments_positive_negative_and_missing(business: Ingested, rows: dict[str, Row]) -> None:
    acks.run(business.context)
    found = {row["msg_id"]: row for row in business.context.lake.read("acks").collect()}
    # What a message asked for is known only where the message itself was seen.
    asked = {i: m for i, m in business.messages.items() if m["acknowledge"] and rows[i]["acknowledge"]}
    assert set(found) == set(asked)
    for identifier, message in asked.items():
        row = found[identifier]
        assert row["outcome"] == outcome(message), message
        if row["outcome"] == "negative":
            assert row["class"] == message["nack"]
            assert row["reason"] == MessageClass(message["nack"]).name
    assert {row["outcome"] for row in found.values()} == {"positive", "negative", "missing", "pending", "quiet"}
    counted = collections.Counter((m["queue"], outcome(m)) for m in asked.values())
    summary: collections.Counter[tuple[str, str]] = collections.Counter()
    for row in business.context.lake.read("ack_summary").collect():
        summary[row["queue"], row["outcome"]] += row["messages"]
    assert summary == counted
