"""What Spark pickles for its workers says so where a worker's Python has no Lanner."""

from __future__ import annotations

import pickle
import subprocess
import sys
import sysconfig

import pytest
from pyspark.sql.types import StructType

from lanner.spark.source.data_source import MsmqDataSource
from tests.spark.small import ROOT, pickled

LOAD = "import pickle, sys; print(type(pickle.load(sys.stdin.buffer)).__name__)"


def sources() -> dict[str, object]:
    source = MsmqDataSource({"managers": "alpha", "queue": "answers"})
    schema = StructType().add("body", "binary")
    return {
        "MsmqDataSource": source,
        "MsmqBatchWriter": source.writer(schema, overwrite=False),
        "MsmqStreamWriter": source.streamWriter(schema, overwrite=False),
    }


@pytest.mark.parametrize("name", sources())
def test_a_worker_without_lanner_says_so(name: str) -> None:
    content = pickled(sources()[name])
    # Without the module site, what is installed in place, as Lanner is here, cannot be imported.
    packages = sysconfig.get_path("purelib")
    for path, has_lanner in ((packages, False), (f"{packages}:{ROOT / 'src'}", True)):
        command, settings = [sys.executable, "-S", "-c", LOAD], {"PYTHONPATH": path}
        ran = subprocess.run(command, input=content, env=settings, capture_output=True, check=False)
        if has_lanner:
            assert ran.stdout.decode() == f"{name}\n", ran.stderr.decode()
        else:
            told = ran.stderr.decode().splitlines()[-1]
            assert told == (
                f"ImportError: a worker of Spark runs {sys.executable}, which has no Lanner (No module named 'lanner')"
                ": install lanner[spark] there, or set PYSPARK_PYTHON to a Python that has it on every worker"
            )


def test_a_class_of_a_program_that_is_no_module_is_pickled_too() -> None:
    """For example of a notebook."""

    class Own(MsmqDataSource):
        pass

    copied = pickle.loads(pickled(Own({"managers": "alpha"})))
    assert (type(copied).__name__, copied.options["managers"]) == ("Own", "alpha")
