"""The spec marker: what proves a row, and what stops a run."""

from __future__ import annotations

import json

import pytest

TABLE = """\
id,section,level,area,requirement
X-1,1,MUST,open,The first.
X-2,1,MUST,open,The second.
X-3,2,SHOULD,close,"The third, with a comma."
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    return Run(pytester)


class Run:
    """A small project with one table, one test file and perhaps deferred rows."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.folder = pytester.mkdir("conformance")
        (self.folder / "x.csv").write_text(TABLE, encoding="utf-8")
        self.results = pytester.path / "results.json"

    def __call__(self, source: str, *options: str) -> pytest.RunResult:
        self._pytester.makepyfile(test_it=f"import pytest\n\n{source}")
        plugins = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "spec_plugin")
        return self._pytester.runpytest_inprocess(*plugins, "--spec-results", str(self.results), *options)

    def defer(self, text: str) -> None:
        (self.folder / "deferred.toml").write_text(text, encoding="utf-8")

    def proven(self) -> list[str]:
        return list(json.loads(self.results.read_text(encoding="utf-8")))


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_a_passing_test_proves_every_row_it_names(run: Run, options: tuple[str, ...]) -> None:
    result = run("@pytest.mark.spec('X-3', 'X-1')\ndef test_a(): pass", *options)
    assert result.ret == 0
    assert run.proven() == ["X-1", "X-3"]


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [((), pytest.ExitCode.INTERRUPTED), (("-n", "2"), pytest.ExitCode.TESTS_FAILED)],
    ids=["one process", "xdist"],
)
def test_an_unknown_row_stops_the_run_at_collection(run: Run, options: tuple[str, ...], exit_code: int) -> None:
    result = run("@pytest.mark.spec('X-9')\ndef test_a(): pass", *options)
    assert result.ret == exit_code
    result.stdout.fnmatch_lines(["*test_a: no row 'X-9' in the requirement tables"])
    result.stdout.no_fnmatch_line("*1 passed*")


def test_an_unknown_row_on_a_deselected_test_stops_the_run(run: Run) -> None:
    result = run("@pytest.mark.spec('X-9')\ndef test_a(): pass\n\ndef test_b(): pass", "-k", "test_b")
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_marker_without_a_row_stops_the_run(run: Run) -> None:
    result = run("@pytest.mark.spec()\ndef test_a(): pass")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*test_a: spec() takes one or more row ids"])


def test_clauses_of_a_row_are_listed_with_it(run: Run) -> None:
    result = run(
        "@pytest.mark.spec('X-2/in time', 'X-1')\ndef test_a(): pass\n\n"
        "@pytest.mark.spec('X-2/and late')\ndef test_b(): pass"
    )
    assert result.ret == 0
    assert json.loads(run.results.read_text(encoding="utf-8")) == {
        "X-1": ["test_it.py::test_a"],
        "X-2": ["test_it.py::test_a", "test_it.py::test_b"],
        "X-2/and late": ["test_it.py::test_b"],
        "X-2/in time": ["test_it.py::test_a"],
    }


def test_a_row_with_a_failing_clause_is_not_proven(run: Run) -> None:
    run(
        "@pytest.mark.spec('X-2/in time')\ndef test_a(): pass\n\n"
        "@pytest.mark.spec('X-2/and late')\ndef test_b(): assert False"
    )
    assert run.proven() == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("X-1/ ", "'X-1/ ' names no clause after the slash"), ("X-9/a", "no row 'X-9' in the requirement tables")],
)
def test_a_wrong_clause_stops_the_run(run: Run, name: str, complaint: str) -> None:
    result = run(f"@pytest.mark.spec({name!r})\ndef test_a(): pass")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([f"*test_a: {complaint}"])


def test_a_failing_test_proves_nothing(run: Run) -> None:
    result = run("@pytest.mark.spec('X-1')\ndef test_a(): assert False")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert run.proven() == []


def test_a_row_with_a_passing_and_a_failing_test_is_not_proven(run: Run) -> None:
    run("@pytest.mark.spec('X-1')\n@pytest.mark.parametrize('ok', [True, False])\ndef test_a(ok): assert ok")
    assert run.proven() == []


def test_a_test_whose_teardown_fails_proves_nothing(run: Run) -> None:
    run(
        "@pytest.fixture\ndef broken():\n    yield\n    assert False\n\n"
        "@pytest.mark.spec('X-1')\ndef test_a(broken): pass"
    )
    assert run.proven() == []


@pytest.mark.parametrize(
    "body",
    [
        "@pytest.mark.skip\n@pytest.mark.spec('X-1')\ndef test_a(): pass",
        "@pytest.mark.spec('X-1')\ndef test_a(): pytest.skip('not here')",
        "@pytest.mark.xfail\n@pytest.mark.spec('X-1')\ndef test_a(): assert False",
        "@pytest.mark.xfail\n@pytest.mark.spec('X-1')\ndef test_a(): pass",
    ],
    ids=["skip mark", "skip call", "expected failure", "unexpected pass"],
)
def test_a_skipped_or_expected_failure_proves_nothing(run: Run, body: str) -> None:
    result = run(body)
    assert result.ret == 0
    assert run.proven() == []


def test_a_row_both_deferred_and_proven_fails_the_run(run: Run) -> None:
    run.defer('"X-1" = "waits for transfer"\n')
    result = run("@pytest.mark.spec('X-1')\ndef test_a(): pass")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["ERROR deferred.toml: X-1 stands there, and test_it.py::test_a proves it", "*1 passed*"]
    )


def test_a_row_both_not_done_and_proven_fails_the_run(run: Run) -> None:
    (run.folder / "not_done.toml").write_text('"X-3" = "nobody needs it"\n', encoding="utf-8")
    result = run("@pytest.mark.spec('X-3')\ndef test_a(): pass")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["ERROR not_done.toml: X-3 stands there, and test_it.py::test_a proves it"])


def test_a_must_is_done_or_deferred(run: Run) -> None:
    (run.folder / "not_done.toml").write_text('"X-1" = "nobody needs it"\n', encoding="utf-8")
    result = run("def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*not_done.toml: X-1 is a MUST, which can only be deferred*"])


def test_a_deferred_row_that_is_not_proven_is_no_mistake(run: Run) -> None:
    run.defer('"X-1" = "waits for transfer"\n')
    assert run("@pytest.mark.spec('X-2')\ndef test_a(): pass").ret == 0
    assert run.proven() == ["X-2"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('"X-9" = "waits"\n', "deferred.toml: no row X-9 in the tables"),
        ('"X-1" = " "\n', "deferred.toml: X-1 has no reason"),
    ],
)
def test_a_wrong_deferral_stops_the_run(run: Run, text: str, complaint: str) -> None:
    run.defer(text)
    result = run("def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{complaint}"])


def test_a_row_in_two_tables_stops_the_run(run: Run) -> None:
    (run.folder / "y.csv").write_text(TABLE, encoding="utf-8")
    result = run("def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*y.csv: row X-1 stands there twice"])
