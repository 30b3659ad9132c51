"""`make mutants`: how much a requirement and a line of code speak of the same things."""

from __future__ import annotations

import pytest

from row_words import Collection, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DirectoryOffline", {"directoryoffline", "directory", "offline"}),
        ("self._directory_offline", {"self", "directoryoffline", "directory", "offline"}),
        ("dwMQS is 0xC00E_0001, 1_000 or 0", {"dwmqs", "dw", "mqs", "is", "or", "3222142977", "1000", "0"}),
        ("The queues of a class", {"the", "queues", "queue", "of", "a", "class"}),
        ("the 3rd", {"the"}),
    ],
)
def test_words(text: str, expected: set[str]) -> None:
    assert words(text) == expected


def test_rare_words_count_most_and_unknown_ones_not_at_all() -> None:
    rows = {"1": "the queue label", "2": "the queue quota", "3": "the queue journal"}
    collection = Collection({row: words(text) for row, text in rows.items()})
    assert collection.likeness("1", words("label")) == pytest.approx(1)
    assert collection.likeness("1", words("label = found")) == pytest.approx(1)
    assert collection.likeness("1", words("queue")) == 0
    assert 0 < collection.likeness("1", words("label quota")) < 1
    assert collection.likeness("1", words("")) == 0
