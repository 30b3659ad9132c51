"""CI allows the skips that .ci/allowed-skips names, and no other."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
    import pytest

    def test_passes(): pass

    def test_is_skipped(): pytest.skip("no\\n such thing")

    @pytest.mark.xfail(strict=True)
    def test_fails_as_expected(): assert False
"""


def sources() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))


def test_ci_installs_every_program_that_a_test_looks_for() -> None:
    """Without it the test would be skipped, for a reason that is not allowed."""
    installed = "".join((ROOT / ".ci" / name).read_text() for name in ("missing", "missing-peers"))
    looked_for = set(re.findall(r'which\("([\w-]+)"', sources())) - {"apt-get", "lanner"}
    assert looked_for >= {"chromium", "curl", "man"}
    assert {name for name in looked_for if not re.search(rf"\b(?:has|command -v) {name}\b", installed)} == set()


def test_an_ordinary_user_may_skip_what_takes_root() -> None:
    lines = (ROOT / ".ci" / "allowed-skips").read_text().splitlines()
    allowed = [line for line in lines if line and not line.startswith("#")]
    reasons = re.findall(r'geteuid\(\) != 0, reason="([^"]+)"', sources())
    assert len(reasons) > 5
    assert [reason for reason in reasons if not any(fnmatchcase(reason, one) for one in allowed)] == []


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tools"))
    pytester.makeconftest('pytest_plugins = ["skip_plugin"]')
    pytester.makepyfile(TESTS)
    return pytester


def allow(run: pytest.Pytester, text: str) -> str:
    return str(run.makefile("", allowed=text))


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["one process", "xdist"])
def test_another_reason_fails_the_run_and_the_closing_line_is_last(run: pytest.Pytester, options: list[str]) -> None:
    result = run.runpytest_subprocess("--allowed-skips", allow(run, "# no such thing\nnot this one"), *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*does not allow*", "*::test_is_skipped: no such thing"])
    assert re.search(r"1 passed, 1 skipped, 1 xfailed", result.outlines[-1])


@pytest.mark.parametrize("reason", ["no such thing", "no *"])
def test_a_reason_that_is_named_is_allowed(run: pytest.Pytester, reason: str) -> None:
    result = run.runpytest_subprocess("--allowed-skips", allow(run, f"# why\n{reason}\n"))
    assert result.ret == pytest.ExitCode.OK


def test_a_module_that_is_skipped_counts(run: pytest.Pytester) -> None:
    run.makepyfile(test_module='import pytest\npytest.importorskip("no_such_module", reason="it is not installed")\n')
    result = run.runpytest_subprocess("--allowed-skips", allow(run, "no such thing"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_module.py: it is not installed"])


def test_without_the_option_skips_are_nobodys_business(run: pytest.Pytester) -> None:
    assert run.runpytest_subprocess().ret == pytest.ExitCode.OK


def test_a_file_that_is_not_there_stops_the_run(run: pytest.Pytester) -> None:
    result = run.runpytest_subprocess("--allowed-skips", "missing")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_each_allowed_reason_is_one_that_a_test_gives() -> None:
    """A reason that no test uses any longer must leave the list."""
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)
    )
    lines = (ROOT / ".ci" / "allowed-skips").read_text(encoding="utf-8").splitlines()
    for reason in (line for line in lines if line and not line.startswith("#")):
        parts = [re.escape(part) for part in reason.split("*") if part]
        assert re.search("[^\n]*".join(parts), sources), reason


def test_ci_runs_with_the_list() -> None:
    assert "--allowed-skips .ci/allowed-skips" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
