"""`make mutants`: which mutants a row has, and what becomes of them, on a small project."""

from __future__ import annotations

from pathlib import Path

import pytest

import mutants
import spec_rows

MODULE = '''\
"""A small module (MS-MQQB 3.1)."""


def grade(points):
    if points > 10:
        return 1
    return 2


def double(number):
    return number * 2


def unmarked(number):
    return number + 3
'''

TESTS = """\
import subprocess
import sys
from pathlib import Path

import pytest

from pack.mod import double, grade, unmarked


@pytest.mark.spec("X-1/high", "X-1/low")
def test_grade():
    assert grade(11) == 1
    assert grade(9) == 2


@pytest.mark.spec("X-2")
def test_double_is_called():
    double(2)


@pytest.mark.spec("X-3")
def test_double_in_another_process():
    double(2)
    program = "from pack.mod import double; raise SystemExit(double(2) != 4)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unmarked():
    assert unmarked(1) == 4
"""

TABLE = """\
id,section,level,area,requirement
X-1,3.1.1,MUST,a,Grades.
X-2,3.1.2,MUST,a,Doubles.
X-3,3.1.3,MUST,a,Doubles elsewhere.
"""

CONFIGURATION = """\
[pytest]
pythonpath = src {tools}
addopts = -p spec_plugin
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> mutants.Project:
    project = mutants.Project(tmp_path)
    for path, text in {
        project.source / "pack" / "__init__.py": "",
        project.source / "pack" / "mod.py": MODULE,
        project.tests / "unit" / "test_mod.py": TESTS,
        project.tables / "x.csv": TABLE,
        # PYTHONPATH goes first, as it does before an installed package.
        project.root / "pytest.ini": CONFIGURATION.format(tools=Path(mutants.__file__).parent).replace("src ", ""),
    }.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(project.source))
    # Four tests: a line that one in four runs is not common here.
    monkeypatch.setattr(mutants, "COMMON_SHARE", 0.6)
    return project


def run(project: mutants.Project, *options: str) -> int:
    return mutants.main(["--root", str(project.root), "--jobs", "1", *options])


def files(project: mutants.Project) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in project.root.rglob("*") if path.suffix in {".py", ".csv", ".ini"}}


def test_mutants_of_a_row_die_by_its_own_tests_also_in_another_process(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(project)
    assert run(project, "--row", "X-1", "--row", "X-3") == 0
    assert "killed 4 of 4" in capsys.readouterr().out
    assert files(project) == before


def test_a_survivor_is_listed_with_place_row_and_tests(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--row", "X-2") == 1
    assert capsys.readouterr().out.endswith(
        "src/pack/mod.py:11: double: changed constant: 2 -> 3\n"
        "  row X-2: Doubles.\n"
        "  tests:\n"
        "    tests/unit/test_mod.py::test_double_is_called\n"
        "killed 0 of 1 (0 of them did not end), seed 1\n"
    )


def test_the_tests_of_other_rows_are_asked_about_survivors(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--row", "X-2", "--others") == 1
    printed = capsys.readouterr().out
    assert "the tests of other rows kill 1 of the 1 survivors; not these:\nkilled 0 of 1" in printed
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(TESTS.replace(", check=True", ""), encoding="utf-8")
    assert run(project, "--row", "X-2", "--others") == 1
    assert "kill 0 of the 1 survivors; not these:\n  X-2  src/pack/mod.py:11: double:" in capsys.readouterr().out


def test_a_run_continues_with_what_was_tried_before(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    run(project, "--row", "X-2")
    capsys.readouterr()
    assert run(project, "--row", "X-1", "--row", "X-2") == 1
    printed = capsys.readouterr().out
    assert "1 were tried before" in printed
    assert "3/3 killed" in printed
    assert "killed 3 of 4" in printed
    # The tests of the rows have changed: nothing that was kept is valid.
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(TESTS.replace("    double(2)\n\n", "    assert double(2) == 4\n\n"), encoding="utf-8")
    assert run(project, "--row", "X-2") == 0
    assert "tried before" not in capsys.readouterr().out
    run(project, "--row", "X-2", "--again")
    assert "tried before" not in capsys.readouterr().out


def chosen_functions(project: mutants.Project, capsys: pytest.CaptureFixture[str], row: str) -> set[str]:
    run(project, "--list", "--row", row)
    return {line.split()[2].rstrip(":") for line in capsys.readouterr().out.splitlines() if line.startswith(row)}


def test_a_row_gets_the_lines_that_speak_of_it(project: mutants.Project, capsys: pytest.CaptureFixture[str]) -> None:
    """The search chooses among the lines that the row's tests run.

    It compares them with the words of the requirement and with those of the tests.
    """
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(TESTS.replace("    double(2)\n\n", "    double(2)\n    grade(1)\n\n"), encoding="utf-8")
    assert chosen_functions(project, capsys, "X-2") == {"double"}
    table = project.tables / "x.csv"
    table.write_text(TABLE.replace("a,Doubles.", "a,A grade is given for points."), encoding="utf-8")
    assert chosen_functions(project, capsys, "X-2") == {"grade"}
    table.write_text(TABLE.replace("a,Doubles.", "a,Nothing that the code has a word for."), encoding="utf-8")
    test_file.write_text(TESTS.replace("    double(2)\n\n", "    points = 1\n    double(2)\n    grade(points)\n\n"))
    assert chosen_functions(project, capsys, "X-2") == {"grade"}


def test_a_line_that_the_tests_of_other_rows_run_too_comes_later(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both functions speak as much of the row: the one that its tests run alone is chosen."""
    module = project.source / "pack" / "mod.py"
    module.write_text(MODULE + "\n\ndef duple(number):\n    return number * 2\n", encoding="utf-8")
    test_file = project.tests / "unit" / "test_mod.py"
    tests = TESTS.replace("import double", "import duple, double")
    test_file.write_text(tests.replace("    double(2)\n\n", "    double(2)\n    duple(2)\n\n"), encoding="utf-8")
    (project.tables / "x.csv").write_text(TABLE.replace("a,Doubles.", "a,Number."), encoding="utf-8")
    assert chosen_functions(project, capsys, "X-2") == {"duple"}


def test_a_function_with_nothing_to_mutate_gives_way_to_the_next(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row is left out only if its tests run no line that can be mutated."""
    module = project.source / "pack" / "mod.py"
    module.write_text(MODULE.replace("number * 2", "number + number"), encoding="utf-8")
    run(project, "--list", "--row", "X-2")
    assert "0 mutants; 0 equivalent ones are known; 2 rows have no line to mutate" in capsys.readouterr().out
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(TESTS.replace("    double(2)\n\n", "    double(2)\n    grade(1)\n\n"), encoding="utf-8")
    assert chosen_functions(project, capsys, "X-2") == {"grade"}


def test_a_function_that_cites_the_row_comes_first(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.tables / "x.csv").write_text(TABLE.replace("X-2", "QQB-3.1.2-2"), encoding="utf-8")
    (project.tables / "x.csv").rename(project.tables / "qqb.csv")
    test_file = project.tests / "unit" / "test_mod.py"
    tests = TESTS.replace("X-2", "QQB-3.1.2-2").replace("    double(2)\n\n", "    double(2)\n    grade(1)\n\n")
    test_file.write_text(tests, encoding="utf-8")
    assert chosen_functions(project, capsys, "QQB-3.1.2-2") == {"double"}
    module = project.source / "pack" / "mod.py"
    module.write_text(
        MODULE.replace("def grade(points):\n", 'def grade(points):\n    """QQB-3.1.2-2."""\n'), encoding="utf-8"
    )
    assert chosen_functions(project, capsys, "QQB-3.1.2-2") == {"grade"}


def test_an_equivalent_mutant_is_not_tried(project: mutants.Project, capsys: pytest.CaptureFixture[str]) -> None:
    (project.tables / mutants.EQUIVALENTS).write_text(
        '[[mutant]]\nmodule = "pack/mod.py"\nmutation = "double: changed constant: 2 -> 3"\nreason = "as an example"\n',
        encoding="utf-8",
    )
    assert run(project) == 0
    assert "1 mutants; 1 equivalent ones are known" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ('mutation = "double: changed constant: 9 -> 3"\nreason = "gone"', "names mutants that do not exist"),
        ('mutation = "double: changed constant: 2 -> 3"', "has no reason"),
    ],
)
def test_a_wrong_list_of_equivalent_mutants_is_refused(project: mutants.Project, entry: str, complaint: str) -> None:
    (project.tables / mutants.EQUIVALENTS).write_text(
        f'[[mutant]]\nmodule = "pack/mod.py"\n{entry}\n', encoding="utf-8"
    )
    with pytest.raises((SystemExit, spec_rows.TableError), match=complaint):
        run(project)


def test_a_test_that_fails_without_mutation_stops_the_run(project: mutants.Project) -> None:
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(
        TESTS.replace("    double(2)\n", "    assert Path('flag').exists()\n    double(2)\n"), encoding="utf-8"
    )
    (project.root / "flag").touch()
    assert run(project, "--list") == 0
    (project.root / "flag").unlink()
    with pytest.raises(SystemExit, match="fail without any mutation"):
        run(project, "--row", "X-2")


def test_a_failing_test_is_measured_again_and_has_no_mutants(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    test_file = project.tests / "unit" / "test_mod.py"
    test_file.write_text(TESTS.replace("    double(2)\n", "    double(2)\n    assert False\n"), encoding="utf-8")
    for _ in range(2):
        run(project, "--list")
        printed = capsys.readouterr().out
        assert "some tests of tests/unit fail (they are left out)" in printed
        assert {line.split()[0] for line in printed.splitlines()[3:]} == {"X-1"}


def test_code_of_no_file_is_not_measured(project: mutants.Project) -> None:
    """Compiled code may name a source that is not there, as Cython's does."""
    gone = project.source / "pack" / "gone.pyx"
    with (project.tests / "unit" / "test_mod.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef test_compiled():\n    exec(compile('number = 1', {str(gone)!r}, 'exec'))\n")
    assert run(project, "--row", "X-1") == 0


def test_a_stopped_measurement_keeps_the_folders_that_were_measured(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = project.tests / "world"
    folder.mkdir()
    (folder / "test_mod.py").write_text("def test_nothing():\n    pass\n", encoding="utf-8")
    (folder / "conftest.py").write_text("raise RuntimeError\n", encoding="utf-8")
    for left in (2, 1):
        with pytest.raises(SystemExit, match="tests of tests/world could not be measured"):
            run(project, "--list")
        assert capsys.readouterr().out == f"measuring the lines of {left} test files\n"


def test_a_file_that_cannot_be_read_is_measured_again(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    (project.tests / "unit" / "test_broken.py").write_text("import missing\n", encoding="utf-8")
    for left in (2, 1):
        assert run(project, "--list") == 0
        assert f"measuring the lines of {left} test files\n" in capsys.readouterr().out


def test_what_was_measured_is_measured_again_when_it_has_changed(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(project, "--list") == 0
    assert "measuring the lines of 1 test files" in capsys.readouterr().out
    assert run(project, "--list") == 0
    assert "measuring" not in capsys.readouterr().out
    (project.source / "pack" / "mod.py").write_text(MODULE.replace("+ 3", "+ 1 + 2"), encoding="utf-8")
    assert run(project, "--list") == 0
    assert "measuring" in capsys.readouterr().out


def test_a_seed_gives_the_same_sample_and_another_seed_another(
    project: mutants.Project, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = []
    for seed in (1, 1, 2, 3, 4, 5):
        run(project, "--list", "--seed", str(seed), "--sample", "1")
        samples.append(capsys.readouterr().out.splitlines()[-1])
    assert samples[0] == samples[1]
    assert len(set(samples)) > 1


def test_a_line_that_most_tests_run_belongs_to_no_row(
    project: mutants.Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "COMMON_SHARE", 0.3)
    run(project, "--list")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]] == ["X-1"]
    module = project.source / "pack" / "mod.py"
    module.write_text(
        MODULE.replace("def double(number):\n", 'def double(number):\n    """3.1.2."""\n'), encoding="utf-8"
    )
    (project.tables / "x.csv").rename(project.tables / "qqb.csv")
    run(project, "--list")
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()[2:]} == {"X-1", "X-2"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.1.5.8 of the document", {("MS-MQQB", "3.1.5.8", None)}),
        ("MS-MQDMPR 3.1.7", {("MS-MQDMPR", "3.1.7", None)}),
        ("as row DMPR-3.1.7.1-4 says", {("MS-MQDMPR", "3.1.7.1", "4")}),
        ("RFC 8017 8.2.2, C706 4.2.22, MS-RPCE 2.2.1", {("MS-MQQB", "8.2.2", None)}),
    ],
)
def test_citations(text: str, expected: set[mutants.Citation]) -> None:
    assert mutants.cited(text, "MS-MQQB") == expected
