"""Run tests of Samba's raw_protocol suite and print their outcomes as JSON.

It runs in the system's Python, which has Samba.

Arguments: names of tests; with a leading "-", all tests but those that follow.
"""

from __future__ import annotations

import importlib
import json
import sys
import unittest
from typing import Any


class Outcomes(unittest.TestResult):
    def __init__(self) -> None:
        super().__init__()
        self.failed: dict[str, str] = {}
        self.passed: list[str] = []

    @staticmethod
    def _name(test: unittest.TestCase) -> str:
        return test.id().rpartition(".")[2]

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        self.passed.append(self._name(test))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: ANN401, N802 (unittest's)
        self.failed[self._name(test)] = str(err[1])

    addError = addFailure  # noqa: N815 (unittest's names)


def main() -> None:
    suite: Any = importlib.import_module("samba.tests.dcerpc.raw_protocol").TestDCERPC_BIND
    every = unittest.TestLoader().getTestCaseNames(suite)
    given = sys.argv[1:]
    chosen = [name for name in every if name not in given] if given[:1] == ["-"] else given
    outcomes = Outcomes()
    for name in chosen:
        suite(name).run(outcomes)
    json.dump({"passed": outcomes.passed, "failed": outcomes.failed}, sys.stdout)


main()
