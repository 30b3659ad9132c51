"""Rejected actions of peers: counted, and logged once per kind, peer and minute."""

from __future__ import annotations

import logging

import pytest

from lanner.transfer import incidents as module
from lanner.transfer.deadlines import NEVER
from lanner.transfer.incidents import Incident, Incidents


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def incidents(clock: list[float], caplog: pytest.LogCaptureFixture) -> Incidents:
    caplog.set_level(logging.INFO)
    return Incidents(lambda: clock[0], lambda: clock[0])


def test_one_line_per_kind_peer_and_minute(
    incidents: Incidents, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        incidents.add(Incident.NOT_FORWARDED, "192.0.2.7", "to\nnowhere")
    incidents.add(Incident.NOT_FORWARDED, "192.0.2.8")
    incidents.add(Incident.DUPLICATE, "192.0.2.7")
    assert [record.getMessage() for record in caplog.records] == [
        r"192.0.2.7: 1 messages for other computers not passed on (to\nnowhere)",
        "192.0.2.8: 1 messages for other computers not passed on",
        "192.0.2.7: 1 messages dropped because they had come before",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "INFO"]
    assert incidents.count(Incident.NOT_FORWARDED) == 6
    assert [row.document()["count"] for row in incidents] == [6, 1]
    caplog.clear()
    clock[0] += 60
    incidents.on_timer()
    assert [record.getMessage() for record in caplog.records] == [
        r"192.0.2.7: 4 messages for other computers not passed on (to\nnowhere)"
    ]
    clock[0] += 60
    incidents.on_timer()
    assert len(caplog.records) == 1
    assert incidents.deadline.due == NEVER, "nothing is left of peers that do nothing"


def test_very_many_peers_share_a_line(
    incidents: Incidents, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PEERS", 3)
    for number in range(10):
        incidents.add(Incident.REFUSED_PEER, f"192.0.2.{number}")
    assert len(caplog.records) == 4
    incidents.flush()
    assert caplog.records[-1].getMessage() == "other peers: 6 sessions refused"
