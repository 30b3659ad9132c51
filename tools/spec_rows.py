"""The requirement tables in conformance/: one CSV file per document, and lists of rows."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from pathlib import Path

TABLES = Path(__file__).resolve().parent.parent / "conformance"
DEFERRED = "deferred.toml"
NOT_DONE = "not_done.toml"
AT_INTERFACE = "at_interface.toml"

DOCUMENTS = {
    "dmpr": "MS-MQDMPR",
    "qqb": "MS-MQQB",
    "mqqp": "MS-MQQP",
    "mqrr": "MS-MQRR",
    "mqdssm": "MS-MQDSSM",
    "mqcn": "MS-MQCN",
    "mqmr": "MS-MQMR",
    "mqac": "MC-MQAC",
}


class TableError(Exception):
    """A table contradicts itself or names a row that does not exist."""


@dataclass(frozen=True, slots=True)
class Row:
    """One requirement."""

    id: str
    section: str
    level: str
    area: str
    requirement: str
    document: str


def load_rows(folder: Path = TABLES) -> dict[str, Row]:
    """Read every table in a folder, in the order of DOCUMENTS; ids must be unique."""
    rows: dict[str, Row] = {}
    order = list(DOCUMENTS)
    paths = sorted(folder.glob("*.csv"), key=lambda p: (order.index(p.stem) if p.stem in order else len(order), p.stem))
    if not paths:
        raise TableError(f"no table in {folder}")
    for path in paths:
        document = DOCUMENTS.get(path.stem, path.stem)
        with path.open(encoding="utf-8", newline="") as file:
            for record in csv.DictReader(file, strict=True):
                row = Row(document=document, **record)
                if row.id in rows:
                    raise TableError(f"{path.name}: row {row.id} stands there twice")
                rows[row.id] = row
    return rows


def load_deferred(rows: dict[str, Row], folder: Path = TABLES) -> dict[str, str]:
    """Read the rows deferred to a later stage, with the reasons."""
    return _load_reasons(DEFERRED, rows, folder)


def load_not_done(rows: dict[str, Row], folder: Path = TABLES) -> dict[str, str]:
    """Read the rows of level SHOULD or MAY that Lanner does not do, with the reasons."""
    reasons = _load_reasons(NOT_DONE, rows, folder)
    for row_id in reasons:
        if rows[row_id].level == "MUST":
            raise TableError(f"{NOT_DONE}: {row_id} is a MUST, which can only be deferred")
    return reasons


def load_at_interface(rows: dict[str, Row], folder: Path = TABLES) -> dict[str, str]:
    """Read the rows proven at an interface that is not shipped, with what would ship it."""
    return _load_reasons(AT_INTERFACE, rows, folder)


def _load_reasons(name: str, rows: dict[str, Row], folder: Path) -> dict[str, str]:
    path = folder / name
    if not path.exists():
        return {}
    reasons = tomllib.loads(path.read_text(encoding="utf-8"))
    for row_id, reason in reasons.items():
        if row_id not in rows:
            raise TableError(f"{name}: no row {row_id} in the tables")
        if not isinstance(reason, str) or not reason.strip():
            raise TableError(f"{name}: {row_id} has no reason")
    return reasons
