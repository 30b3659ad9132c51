"""How far streams are behind: the last answer counts, and a stream that has ended is forgotten."""

from __future__ import annotations

from lanner.host import stream_lags
from lanner.host.stream_lags import Lag, StreamLags


def test_the_last_answer_counts_until_the_stream_has_ended() -> None:
    now = [0.0]
    lags = StreamLags(lambda: now[0])
    lags.note(Lag("alice", "q", 7, 700))
    lags.note(Lag("bob", "q", 1, 1))
    now[0] = 300.0
    lags.note(Lag("alice", "q", 0, 0))
    assert lags.all() == [Lag("alice", "q", 0, 0), Lag("bob", "q", 1, 1)]
    now[0] = 1.0 + stream_lags.FORGET_AFTER
    assert lags.all() == [Lag("alice", "q", 0, 0)]
    now[0] = 301.0 + stream_lags.FORGET_AFTER
    assert lags.all() == []


def test_there_are_only_so_many() -> None:
    lags = StreamLags()
    for number in range(stream_lags.MAX_STREAMS + 5):
        lags.note(Lag("alice", f"q{number:04}", number, 0))
    found = [lag.messages for lag in lags.all()]
    assert found == [*range(5, stream_lags.MAX_STREAMS + 5)], "those that asked last"
