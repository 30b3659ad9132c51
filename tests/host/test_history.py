"""The history of queues: what is kept of each, and how long."""

from __future__ import annotations

from lanner.host.history import INTERVAL, MAX_QUEUES, POINTS, SPANS, History
from lanner.model.directory_objects import Queue


def queue(number: int, messages: int = 0, removed: int = 0) -> Queue:
    made = Queue()
    made.number, made.message_count, made.removed_count = number, messages, removed
    return made


def test_rates_follow_from_what_came_and_what_is_left() -> None:
    history, one = History(), queue(1)
    for tick, (messages, removed) in enumerate([(10, 0), (30, 0), (20, 30)]):
        one.message_count, one.removed_count = messages, removed
        history.sample(1000.0 + tick * INTERVAL, [one])
    assert history.points(900, 1) == [(1005, 30, 4.0, 0.0), (1010, 20, 4.0, 6.0)]
    assert history.points(900) == history.points(900, 1)
    assert history.points(900, 2) == []


def test_each_span_keeps_as_many_points_and_reaches_as_far_as_it_says() -> None:
    history, one = History(), queue(1, 1)
    ticks = round(1.1 * max(SPANS) / INTERVAL)
    for tick in range(ticks):
        history.sample(tick * INTERVAL, [one])
    for span, every in SPANS.items():
        points = history.points(span, 1)
        assert len(points) == POINTS - 1
        assert points[1][0] - points[0][0] == every * INTERVAL
        assert 0.95 * span <= points[-1][0] - points[0][0] <= span


def test_queues_that_nothing_came_to_are_not_kept_and_gone_ones_are_forgotten() -> None:
    history = History()
    many = [queue(number, 1) for number in range(1, MAX_QUEUES + 3)]
    for tick in range(3):
        history.sample(tick * INTERVAL, [queue(0), *many])
    assert history.points(900, 0) == []
    assert history.points(900, MAX_QUEUES)
    assert history.points(900, MAX_QUEUES + 1) == []
    # A deleted queue takes its count along, and is no negative rate of all queues.
    for tick in range(3, 6):
        history.sample(tick * INTERVAL, many[1:])
    assert history.points(900, 1) == []
    assert all(rate >= 0 for point in history.points(900) for rate in point[2:])
    # Its place is free.
    assert history.points(900, MAX_QUEUES + 1)


def test_a_clock_that_was_set_back_does_no_harm() -> None:
    history, one = History(), queue(1, 1)
    for now in (1000.0, 500.0, 500.0):
        history.sample(now, [one])
    assert len(history.points(900, 1)) == 2
