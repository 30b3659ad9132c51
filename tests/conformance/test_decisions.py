"""docs/decisions.md names every row that is worded as a decision, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import spec_rows

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "decisions.md"
SAFE_DEFAULTS = "## Safe defaults"
# [decision], (decision: 0xC00E0006), [interpretation: ...]
MARK = re.compile(r"[\[(](?:decision|interpretation)\b")
ROW = re.compile(r"\b(?:DMPR|DSSM|QQB|MQMQ|MQQP|MQRR|MQMR|MQAC|MQCN)-[\d.]+-\d+\b")


def marked(rows: dict[str, spec_rows.Row]) -> set[str]:
    return {row.id for row in rows.values() if MARK.search(row.requirement)}


def named(page: str) -> list[str]:
    """Return the rows that the tables before the safe defaults name.

    Those are proven as the document has them.
    """
    tables = [line for line in page.partition(SAFE_DEFAULTS)[0].splitlines() if line.startswith("|")]
    return [found[0] for line in tables if (found := ROW.match(line.strip("| ")))]


def test_each_row_that_is_marked_as_a_decision_stands_on_the_page_and_no_other() -> None:
    rows = spec_rows.load_rows()
    page = PAGE.read_text(encoding="utf-8")
    found = named(page)
    assert marked(rows) - set(found) == set(), "name them in docs/decisions.md"
    assert set(found) - marked(rows) == set(), "mark them in conformance/, or take them from docs/decisions.md"
    assert len(found) == len(set(found)), "named twice"


def test_every_row_on_the_page_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert SAFE_DEFAULTS in page
    assert set(ROW.findall(page)) - spec_rows.load_rows().keys() == set()


def test_marks_are_told_from_other_words() -> None:
    texts = ["A. [decision]", "(decision: 0x1) B.", "C [interpretation: text], D.", "E (decision)."]
    assert all(MARK.search(text) for text in texts)
    assert not any(MARK.search(text) for text in ("The decision to accept", "[optional]", "(undecided)"))
    page = f"| Row | Decided |\n|---|---|\n| DMPR-1.8-1 | as QQB-2.2-1 |\n{SAFE_DEFAULTS}\n| QQB-1.1-1 | x |\n"
    assert named(page) == ["DMPR-1.8-1"]
