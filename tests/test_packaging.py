"""What the wheel contains: the packages of src, and nothing that only a checkout needs."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parent.parent


def wheel_files() -> set[str]:
    """List the files that a build would put into the wheel, by their paths in it."""
    builder = WheelBuilder(str(ROOT))
    return {file.distribution_path for file in builder.recurse_included_files()}


def test_the_wheel_holds_the_product_and_the_plugin_of_spark() -> None:
    files = wheel_files()
    assert {path.partition("/")[0] for path in files} == {"lanner", "pyspark_msmq"}
    assert {"lanner/spark/source/data_source.py", "pyspark_msmq/__init__.py"} <= files


def test_the_wheel_holds_neither_the_demo_nor_its_generator() -> None:
    names = {Path(path).stem for path in wheel_files()}
    demo = {path.stem for path in (ROOT / "demo").glob("*.py")} - {"__init__", "__main__"}
    assert {"business", "generator", "generated_queues"} <= demo
    assert not names & (demo | {"demo"})
