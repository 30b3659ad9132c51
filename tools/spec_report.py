"""Which rows of the requirement tables are proven: printed, and written as a page of the documentation."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import spec_rows
from spec_rows import Row


@dataclass(frozen=True, slots=True)
class Report:
    """The tables, and what is known of each row."""

    rows: dict[str, Row]
    proven: dict[str, list[str]]
    deferred: dict[str, str]

    def documents(self) -> list[str]:
        return list(dict.fromkeys(row.document for row in self.rows.values()))

    def of(self, document: str) -> list[Row]:
        return [row for row in self.rows.values() if row.document == document]

    def open(self, document: str) -> list[Row]:
        """Give the rows that are neither proven nor deferred."""
        return [row for row in self.of(document) if row.id not in self.proven and row.id not in self.deferred]

    def clauses(self, row: Row) -> list[str]:
        """Give the clauses of a proven row that tests name; the keys of `proven` have them after a slash."""
        return [key.partition("/")[2] for key in self.proven if key.startswith(f"{row.id}/")]

    def table(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield document, area, MUST, all and deferred: per area, then one line for the whole document."""
        for document in self.documents():
            rows = self.of(document)
            for area in sorted({row.area for row in rows}):
                yield document, area, *self._figures(row for row in rows if row.area == area)
            yield document, "all areas", *self._figures(rows)

    def _figures(self, rows: Iterable[Row]) -> tuple[str, str, str]:
        rows = list(rows)
        must = [row for row in rows if row.level == "MUST"]
        deferred = sum(row.id in self.deferred for row in rows)
        return self._ratio(must), self._ratio(rows), str(deferred or "")

    def _ratio(self, rows: list[Row]) -> str:
        return f"{sum(row.id in self.proven for row in rows)}/{len(rows)}"


HEADER = ("Document", "Area", "MUST", "All", "Deferred")


def as_text(report: Report) -> str:
    """Render the report for a terminal."""
    lines = [_columns(HEADER)]
    for line in report.table():
        lines.append(_columns(line))
        if line[1] == "all areas":
            lines.append("")
    lines += _rows("Unproven", report, report.open, lambda row: f"  {row.id} ({row.level}): {row.requirement}")
    lines += _rows("Deferred", report, _deferred(report), lambda row: f"  {row.id}: {report.deferred[row.id]}")
    lines += _rows("By clause", report, _compound(report), lambda row: f"  {row.id}: {'; '.join(report.clauses(row))}")
    return "\n".join(lines).rstrip() + "\n"


def as_markdown(report: Report) -> str:
    """Render the report as a page; the same results always give the same bytes."""
    lines = [
        "# Conformance",
        "",
        "Each row of the tables in `conformance/` is one requirement of a document. A row counts as proven when a test",
        'marked with its id (`@pytest.mark.spec("...")`) passes. `make conformance` writes this page. `make mutants` checks',
        "that those tests notice when the code is wrong ([architecture.md](architecture.md#how-it-is-checked)).",
        "",
    ]
    for document in report.documents():
        lines += [f"## {document}", "", f"| {' | '.join(HEADER[1:])} |", "|---|---:|---:|---:|"]
        lines += [f"| {' | '.join(line[1:])} |" for line in report.table() if line[0] == document]
        lines.append("")
    bullet = "- `{}` ({}): {}".format
    lines += _rows(
        "## Unproven", report, report.open, lambda row: bullet(row.id, row.level, _escape(row.requirement)), gap=[""]
    )
    lines += _rows(
        "## Deferred",
        report,
        _deferred(report),
        lambda row: bullet(row.id, row.level, f"{_escape(row.requirement)} *{_escape(report.deferred[row.id])}*"),
        gap=[""],
    )
    lines += _rows(
        "## Proven clause by clause",
        report,
        _compound(report),
        lambda row: f"- `{row.id}`: {_escape('; '.join(report.clauses(row)))}",
        gap=[""],
    )
    return "\n".join(lines).rstrip() + "\n"


def _rows(
    title: str,
    report: Report,
    choose: Callable[[str], list[Row]],
    line: Callable[[Row], str],
    gap: list[str] | None = None,
) -> list[str]:
    lines: list[str] = []
    for document in report.documents():
        rows = choose(document)
        if rows:
            lines += [f"{title}: {document}, {len(rows)} rows", *(gap or []), *map(line, rows), ""]
    return lines


def _deferred(report: Report) -> Callable[[str], list[Row]]:
    return lambda document: [row for row in report.of(document) if row.id in report.deferred]


def _compound(report: Report) -> Callable[[str], list[Row]]:
    return lambda document: [row for row in report.of(document) if report.clauses(row)]


def _columns(cells: tuple[str, str, str, str, str]) -> str:
    document, area, must, every, deferred = cells
    return f"{document:<10} {area:<18} {must:>9} {every:>9} {deferred:>9}".rstrip()


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="what pytest --spec-results wrote")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the Markdown page to FILE")
    parser.add_argument("--tables", type=Path, default=spec_rows.TABLES, metavar="FOLDER")
    options = parser.parse_args(arguments)
    rows = spec_rows.load_rows(options.tables)
    report = Report(
        rows=rows,
        proven=json.loads(options.results.read_text(encoding="utf-8")),
        deferred=spec_rows.load_deferred(rows, options.tables),
    )
    print(as_text(report), end="")
    if options.write:
        options.write.write_text(as_markdown(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
