"""Spark finds the format by importing every package named pyspark_*.

This one never fails there, and reports later what is missing.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

import pyspark_msmq
from lanner.spark.source.data_source import MsmqDataSource

ROOT = Path(__file__).parents[3]


def test_the_package_has_the_source_and_is_in_the_wheel() -> None:
    assert pyspark_msmq.DefaultSource is MsmqDataSource
    assert MsmqDataSource.name() == "msmq"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "src/pyspark_msmq" in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


def test_a_spark_without_what_is_needed_is_reported_when_the_format_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lanner.spark.source.data_source", None)
    try:
        broken = importlib.reload(pyspark_msmq)
        assert issubclass(broken.DefaultSource, DataSource)
        assert broken.DefaultSource.name() == "msmq"
        with pytest.raises(ImportError, match=r"needs pyspark 4\.2 or newer .* lanner.spark.source.data_source"):
            broken.DefaultSource({})
    finally:
        monkeypatch.undo()
        importlib.reload(pyspark_msmq)


def test_without_spark_and_arrow_nothing_fails_and_little_is_loaded() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; import pyspark_msmq; print(hasattr(pyspark_msmq, 'DefaultSource'))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
    code = "import sys, pyspark_msmq; print([name for name in ('pyarrow.flight', 'lmdb') if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
