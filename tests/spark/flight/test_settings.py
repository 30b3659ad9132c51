"""Features that work without the packages of the pipeline."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lanner.client import QueueManager
from lanner.client.runtimes import runtime_of
from lanner.spark.flight import settings
from lanner.spark.flight.settings import (
    FlightSettings,
    PipelineUnavailable,
    flight_listener,
    flight_listener_if_available,
)


@pytest.mark.parametrize(
    "module", ["lanner", "lanner.daemon.service", "lanner.cli.app", "lanner.spark.flight.settings"]
)
def test_a_queue_manager_runs_without_the_packages_of_the_pipeline(module: str) -> None:
    """Importing it loads none of them: they are heavy, and may not be there."""
    program = f"import sys, {module}; print([n for n in ('pyarrow', 'numpy', 'pandas', 'pyspark') if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_what_is_missing_is_reported_with_what_to_install(
    qm: QueueManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings, "is_available", lambda: False)
    with pytest.raises(PipelineUnavailable, match=r"pip install 'lanner\[spark\]'.*or set flight.enabled = false"):
        flight_listener(runtime_of(qm))
    caplog.set_level("INFO", "lanner")
    assert flight_listener_if_available(runtime_of(qm)) is None
    assert "needs pyarrow and numpy" in caplog.text


def test_a_listener_is_made_where_the_packages_are(qm: QueueManager) -> None:
    assert flight_listener(runtime_of(qm), FlightSettings(port=0)).name == "flight"


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"port": -1}, "port -1: 0 to 65535"),
        ({"port": 65536}, "port 65536"),
        ({"max_streams": 0}, "max_streams 0: 1 or more"),
        ({"bind": "192.0.2.1"}, "in the clear"),
    ],
)
def test_settings_that_cannot_be_are_reported(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        FlightSettings(**values)  # type: ignore[arg-type]  # checked by the class
