"""The authorization tables of docs/security.md.

A heading `###` names a section in backticks. Below it a table has a row for a method, or for
several methods with the same rules: their names are in backticks, and `*` stands for the rest of a
name. Words behind the names distinguish ways of calling.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).resolve().parents[3] / "docs" / "security.md"
HEADING: Final = "## Who may do what"
COLUMNS: Final = ("anonymous", "user", "other user", "owner", "administrator")


class Outcome(enum.StrEnum):
    """How a call ends."""

    # It is done.
    YES = "yes"
    # It is refused, because of who asks.
    NO = "no"
    # What it is about cannot be had by who asks, and another's is unknown to the server.
    NONE = "none"
    # It is not supported, and every caller is told so.
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: names of methods, or patterns of them, and what each caller gets."""

    section: str
    names: tuple[str, ...]
    way: str
    outcomes: tuple[str, ...]

    def matches(self, method: str) -> bool:
        return any(fnmatchcase(method, name) for name in self.names)

    def __str__(self) -> str:
        return f"{self.section}: {', '.join(self.names)} {self.way}".rstrip()


def read_rows(text: str) -> list[Row]:
    """Read every row of the chapter; AssertionError for one that cannot be read."""
    chapter = text.partition(f"\n{HEADING}\n")[2].partition("\n## ")[0]
    section, rows = "", []
    for line in chapter.splitlines():
        if line.startswith("### "):
            found = re.search(r"`([^`]+)`", line)
            assert found is not None, f"{line}: a section has its name in backticks"
            section = found[1]
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if section and len(cells) == 1 + len(COLUMNS) and "`" in cells[0]:
                names = tuple(re.findall(r"`([^`]+)`", cells[0]))
                way = re.sub(r"`[^`]+`,?", "", cells[0]).strip()
                unknown = set(cells[1:]) - {str(outcome) for outcome in Outcome}
                assert not unknown, f"{line}: {unknown} is no outcome"
                rows.append(Row(section, names, way, tuple(cells[1:])))
    return rows
