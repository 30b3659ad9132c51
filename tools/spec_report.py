"""Report on the proven rows of the requirement tables, printed and as a documentation page."""

from __future__ import annotations

import argparse
import json
import re
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import spec_interfaces
import spec_rows
from spec_rows import Row

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Report:
    """The tables, and the status of each row."""

    rows: dict[str, Row]
    proven: dict[str, list[str]]
    deferred: dict[str, str]
    not_done: dict[str, str] = field(default_factory=dict)
    # Proven rows whose tests call a function that the product does not use, with the functions; and
    # what would make each of them part of the product.
    at_interface: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def mistakes(self) -> list[str]:
        """Report rows at an interface that are not listed, and listed rows that are not at one."""
        return [
            f"{row_id} is proven at an interface that is not shipped, its tests call {functions}: "
            f"test what the product does, or list it in conformance/{spec_rows.AT_INTERFACE}"
            for row_id, functions in self.at_interface.items()
            if row_id not in self.reasons
        ] + [
            f"{row_id} stands in conformance/{spec_rows.AT_INTERFACE} "
            "and its tests call no function that is not shipped: "
            f"remove it there"
            for row_id in self.reasons
            if row_id in self.proven and row_id not in self.at_interface
        ]

    def documents(self) -> list[str]:
        return list(dict.fromkeys(row.document for row in self.rows.values()))

    def of(self, document: str) -> list[Row]:
        return [row for row in self.rows.values() if row.document == document]

    def open(self, document: str) -> list[Row]:
        """Return the rows that are not proven and stand in no list."""
        known = self.proven.keys() | self.deferred.keys() | self.not_done.keys()
        return [row for row in self.of(document) if row.id not in known]

    def clauses(self, row: Row) -> list[str]:
        """Return the clauses of a proven row that tests name, which follow a slash in `proven`."""
        return [key.partition("/")[2] for key in self.proven if key.startswith(f"{row.id}/")]

    def table(self) -> Iterator[tuple[str, ...]]:
        """Yield document, area, MUST, all, at an interface and deferred.

        Each document has a line per area, then one for all areas.
        """
        for document in self.documents():
            rows = self.of(document)
            for area in sorted({row.area for row in rows}):
                yield document, area, *self._figures(row for row in rows if row.area == area)
            yield document, "all areas", *self._figures(rows)

    def _figures(self, rows: Iterable[Row]) -> tuple[str, str, str, str]:
        rows = list(rows)
        must = [row for row in rows if row.level == "MUST"]
        at_interface = sum(row.id in self.at_interface for row in rows)
        deferred = sum(row.id in self.deferred for row in rows)
        return self._ratio(must), self._ratio(rows), str(at_interface or ""), str(deferred or "")

    def _ratio(self, rows: list[Row]) -> str:
        return f"{sum(row.id in self.proven and row.id not in self.at_interface for row in rows)}/{len(rows)}"


HEADER = ("Document", "Area", "MUST", "All", "Interface", "Deferred")


def as_text(report: Report) -> str:
    """Render the report for a terminal."""
    lines = [_columns(HEADER)]
    for line in report.table():
        lines.append(_columns(line))
        if line[1] == "all areas":
            lines.append("")
    lines += _rows("Unproven", report, report.open, lambda row: f"  {row.id} ({row.level}): {row.requirement}")
    lines += _rows(
        "At an interface",
        report,
        _listed(report, report.at_interface),
        lambda row: f"  {row.id}: {_interface(report, row)}",
    )
    lines += _rows(
        "Deferred", report, _listed(report, report.deferred), lambda row: f"  {row.id}: {report.deferred[row.id]}"
    )
    lines += _rows(
        "Not done", report, _listed(report, report.not_done), lambda row: f"  {row.id}: {report.not_done[row.id]}"
    )
    lines += _rows("By clause", report, _compound(report), lambda row: f"  {row.id}: {'; '.join(report.clauses(row))}")
    return "\n".join(lines).rstrip() + "\n"


def as_markdown(report: Report) -> str:
    """Render the report as a page; equal results always give equal bytes."""
    lines = [
        "# Conformance",
        "",
        "Each row of the tables in `conformance/` is one requirement of a document. A row counts as proven when a test",
        (
            'marked with its id (`@pytest.mark.spec("...")`) passes. A row whose tests all call a '
            "function that the product"
        ),
        "itself does not use is proven at an interface only, and counted apart. `make conformance` writes this page.",
        "`make mutants` checks that those tests notice when the code is wrong",
        "([architecture.md](architecture.md#how-it-is-checked)).",
        "",
    ]
    for document in report.documents():
        lines += [f"## {document}", "", f"| {' | '.join(HEADER[1:])} |", "|---|---:|---:|---:|---:|"]
        lines += [f"| {' | '.join(line[1:])} |" for line in report.table() if line[0] == document]
        lines.append("")
    bullet = "- `{}` ({}): {}".format
    lines += _rows(
        "## Unproven", report, report.open, lambda row: bullet(row.id, row.level, _escape(row.requirement)), gap=[""]
    )
    lines += _rows(
        "## At an interface",
        report,
        _listed(report, report.at_interface),
        lambda row: bullet(row.id, row.level, f"{_escape(row.requirement)} *{_escape(_interface(report, row))}*"),
        gap=[""],
    )
    lines += _rows(
        "## Deferred",
        report,
        _listed(report, report.deferred),
        lambda row: bullet(row.id, row.level, f"{_escape(row.requirement)} *{_escape(report.deferred[row.id])}*"),
        gap=[""],
    )
    lines += _rows(
        "## Not done",
        report,
        _listed(report, report.not_done),
        lambda row: bullet(row.id, row.level, f"{_escape(row.requirement)} *{_escape(report.not_done[row.id])}*"),
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


def _listed(report: Report, ids: Mapping[str, str]) -> Callable[[str], list[Row]]:
    return lambda document: [row for row in report.of(document) if row.id in ids]


def _compound(report: Report) -> Callable[[str], list[Row]]:
    return lambda document: [row for row in report.of(document) if report.clauses(row)]


def _interface(report: Report, row: Row) -> str:
    reason = report.reasons.get(row.id, "not listed")
    return f"{reason} ({report.at_interface[row.id]})"


def _columns(cells: tuple[str, ...]) -> str:
    document, area, *figures = cells
    return f"{document:<10} {area:<18} {' '.join(f'{figure:>9}' for figure in figures)}".rstrip()


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="what pytest --spec-results wrote")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the Markdown page to FILE")
    parser.add_argument("--tables", type=Path, default=spec_rows.TABLES, metavar="FOLDER")
    parser.add_argument("--root", type=Path, default=ROOT, metavar="FOLDER", help="where src and tests are")
    options = parser.parse_args(arguments)
    rows = spec_rows.load_rows(options.tables)
    proven = json.loads(options.results.read_text(encoding="utf-8"))
    report = Report(
        rows=rows,
        proven=proven,
        deferred=spec_rows.load_deferred(rows, options.tables),
        not_done=spec_rows.load_not_done(rows, options.tables),
        at_interface=_at_interface({row: proven[row] for row in proven if "/" not in row}, options.root),
        reasons=spec_rows.load_at_interface(rows, options.tables),
    )
    print(as_text(report), end="")
    if options.write:
        options.write.write_text(as_markdown(report), encoding="utf-8")
    for mistake in report.mistakes():
        print(f"ERROR {mistake}")
    return 1 if report.mistakes() else 0


def _at_interface(proven: dict[str, list[str]], root: Path) -> dict[str, str]:
    whitelist = runpy.run_path(str(root / "tests" / "vulture_whitelist.py"))
    functions = spec_interfaces.unshipped(root / "src" / "lanner", whitelist["CALLED_FROM_OUTSIDE"])
    return spec_interfaces.at_interface(proven, spec_interfaces.Suite(root), root, functions)


if __name__ == "__main__":
    raise SystemExit(main())
