"""The report: figures per document and area, unproven rows, deferred rows."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import spec_report
import spec_rows
from spec_rows import Row


@pytest.fixture
def report() -> spec_report.Report:
    rows = [
        Row("D-1", "1", "MUST", "open", "The first.", "MS-MQDMPR"),
        Row("D-2", "1", "MUST", "open", "The second, private$\\a_b.", "MS-MQDMPR"),
        Row("D-3", "2", "SHOULD", "close", "The third.", "MS-MQDMPR"),
        Row("Q-1", "1", "MUST", "packet", "The fourth.", "MS-MQQB"),
        Row("Q-2", "1", "MUST", "packet", "The fifth.", "MS-MQQB"),
    ]
    return spec_report.Report(
        rows={row.id: row for row in rows},
        proven={"D-1": ["tests/test_a.py::test_a"], "Q-2": ["tests/test_a.py::test_b"]},
        deferred={"Q-1": "waits for transfer"},
        at_interface={"Q-2": "wire/a.py: unused"},
        reasons={"Q-2": "a later protocol"},
    )


def test_figures_per_area_and_document(report: spec_report.Report) -> None:
    assert list(report.table()) == [
        ("MS-MQDMPR", "close", "0/0", "0/1", "", ""),
        ("MS-MQDMPR", "open", "1/2", "1/2", "", ""),
        ("MS-MQDMPR", "all areas", "1/2", "1/3", "", ""),
        ("MS-MQQB", "packet", "0/2", "0/2", "1", "1"),
        ("MS-MQQB", "all areas", "0/2", "0/2", "1", "1"),
    ]


def test_text_lists_unproven_and_deferred_rows_apart(report: spec_report.Report) -> None:
    unproven, _, deferred = re.split("At an interface|Deferred", spec_report.as_text(report).split("Unproven")[1])
    assert unproven.splitlines() == [
        ": MS-MQDMPR, 2 rows",
        "  D-2 (MUST): The second, private$\\a_b.",
        "  D-3 (SHOULD): The third.",
        "",
    ]
    assert deferred.splitlines() == [": MS-MQQB, 1 rows", "  Q-1: waits for transfer"]


def test_rows_at_an_interface_are_listed_apart(report: spec_report.Report) -> None:
    line = "At an interface: MS-MQQB, 1 rows\n  Q-2: a later protocol (wire/a.py: unused)\n"
    assert line in spec_report.as_text(report)
    page = spec_report.as_markdown(report)
    assert (
        "## At an interface: MS-MQQB, 1 rows\n\n- `Q-2` (MUST): The fifth. *a later protocol (wire/a.py: unused)*"
        in page
    )
    assert report.mistakes() == []


def test_a_row_at_an_interface_is_listed_and_no_other(report: spec_report.Report) -> None:
    (missing,) = dataclasses.replace(report, reasons={}).mistakes()
    assert missing.startswith("Q-2 is proven at an interface that is not shipped, its tests call wire/a.py: unused")
    (needless,) = dataclasses.replace(report, reasons={"D-1": "x", **report.reasons}).mistakes()
    assert needless.startswith("D-1 stands in conformance/at_interface.toml")


def test_page_names_each_unproven_row_with_its_text(report: spec_report.Report) -> None:
    page = spec_report.as_markdown(report)
    assert "| open | 1/2 | 1/2 |  |" in page
    assert r"- `D-2` (MUST): The second, private\$\\a\_b." in page
    assert "- `Q-1` (MUST): The fourth. *waits for transfer*" in page
    assert "`D-1`" not in page


def test_clauses_are_listed_with_their_row(report: spec_report.Report) -> None:
    report.proven.update({"D-1/in time": ["tests/test_a.py::test_b"], "D-1/or *late*": ["tests/test_a.py::test_c"]})
    assert spec_report.as_text(report).endswith("\nBy clause: MS-MQDMPR, 1 rows\n  D-1: in time; or *late*\n")
    assert spec_report.as_markdown(report).endswith(
        "\n## Proven clause by clause: MS-MQDMPR, 1 rows\n\n- `D-1`: in time; or \\*late\\*\n"
    )


def test_rows_that_are_not_done_are_listed_apart(report: spec_report.Report) -> None:
    report = dataclasses.replace(report, not_done={"D-3": "nobody needs it"})
    assert "Unproven: MS-MQDMPR, 1 rows\n  D-2" in spec_report.as_text(report)
    assert "Not done: MS-MQDMPR, 1 rows\n  D-3: nobody needs it\n" in spec_report.as_text(report)
    assert "- `D-3` (SHOULD): The third. *nobody needs it*" in spec_report.as_markdown(report)


def test_command_prints_the_report_and_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("id,section,level,area,requirement\nX-1,1,MUST,a,One.\n", encoding="utf-8")
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"X-1": ["tests/test_x.py::test_x[1]"]}), encoding="utf-8")
    page = tmp_path / "page.md"
    package, tests = tmp_path / "src" / "lanner", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (package / "a.py").write_text("def shipped(): ...\ndef unused(): ...\nshipped()\n", encoding="utf-8")
    (tests / "vulture_whitelist.py").write_text("CALLED_FROM_OUTSIDE = []\n", encoding="utf-8")
    (tests / "test_x.py").write_text("def test_x(): shipped()\n", encoding="utf-8")
    arguments = [str(results), "--tables", str(tmp_path), "--root", str(tmp_path), "--write", str(page)]
    assert spec_report.main(arguments) == 0
    assert "1/1" in capsys.readouterr().out
    assert page.read_text(encoding="utf-8").startswith("# Conformance\n")
    # A row that only a test of an unused function proves fails the run, unless it is listed.
    (tests / "test_x.py").write_text("def test_x(): unused()\n", encoding="utf-8")
    assert spec_report.main(arguments) == 1
    assert "ERROR X-1 is proven at an interface that is not shipped" in capsys.readouterr().out
    (tmp_path / "at_interface.toml").write_text('"X-1" = "a later stage"\n', encoding="utf-8")
    assert spec_report.main(arguments) == 0
    assert "X-1: a later stage (a.py: unused)" in capsys.readouterr().out


def test_the_tables_of_this_project_are_readable() -> None:
    rows = spec_rows.load_rows()
    assert {row.document for row in rows.values()} == set(spec_rows.DOCUMENTS.values())
    assert {row.level for row in rows.values()} == {"MUST", "SHOULD", "MAY"}
    assert spec_rows.load_deferred(rows).keys() <= rows.keys()
    assert spec_rows.load_at_interface(rows).keys() <= rows.keys()


def test_every_row_has_a_test_or_a_reason() -> None:
    """Which tests ran does not matter here: some need programs that not every machine has."""
    rows = spec_rows.load_rows()
    texts = (path.read_text(encoding="utf-8") for path in (spec_report.ROOT / "tests").rglob("test_*.py"))
    named = {name for text in texts for name in re.findall(r'"([A-Z]+-[\w.]+-\d+)(?:/[^"]*)?"', text)}
    listed = named | spec_rows.load_deferred(rows).keys() | spec_rows.load_not_done(rows).keys()
    assert [row_id for row_id in rows if row_id not in listed] == []
