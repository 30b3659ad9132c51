"""Lines of the log that peers cause."""

from __future__ import annotations

import logging

import pytest

from lanner.security.log_lines import IN_TOTAL, PER_KIND, PER_PEER, LogLines

LOG = logging.getLogger("lanner.test")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def lines(clock: list[float], caplog: pytest.LogCaptureFixture) -> LogLines:
    caplog.set_level(logging.INFO, "lanner.test")
    return LogLines(lambda: clock[0])


def test_a_peer_has_a_few_lines_of_a_kind_in_a_minute(
    lines: LogLines, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(PER_PEER + 3):
        lines.log(LOG, logging.INFO, "refused", "a", "%s was refused", "a")
    lines.log(LOG, logging.INFO, "refused", "b", "%s was refused", "b")
    lines.log(LOG, logging.INFO, "closed", "a", "%s was closed", "a")
    assert caplog.messages == ["a was refused"] * PER_PEER + ["b was refused", "a was closed"]
    assert lines.left_out == 3
    clock[0] = 60.0
    lines.log(LOG, logging.INFO, "refused", "a", "%s was refused", "a")
    assert caplog.messages[-1] == "a was refused (3 more lines of this kind from this peer were left out)"
    assert lines.written == 1


def test_many_peers_have_not_many_times_as_many(lines: LogLines, caplog: pytest.LogCaptureFixture) -> None:
    for peer in range(10_000):
        lines.log(LOG, logging.INFO, "refused", str(peer), "refused")
    assert len(caplog.messages) == PER_KIND
    for kind in range(100):
        for peer in range(PER_KIND):
            lines.log(LOG, logging.INFO, str(kind), str(peer), "other")
    assert len(caplog.messages) == lines.written == IN_TOTAL


def test_a_line_below_the_level_counts_for_nothing(lines: LogLines, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        lines.log(LOG, logging.DEBUG, "refused", "a", "refused")
    assert not lines.written
    assert not caplog.messages
