"""pipeline.toml and `lanner pipeline`: errors that say what was expected, before Spark starts."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from lanner.cli.app import app
from lanner.daemon.settings import EventsTable
from lanner.spark.jobs import ALL, JOBS
from lanner.spark.jobs.config import ConfigError, PipelineConfig, load_config
from lanner.spark.jobs.session import JobFailed, run_job
from tests.spark.jobs.worlds import context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = CliRunner()


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pipeline.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_whole_configuration(tmp_path: Path) -> None:
    path = config(
        tmp_path,
        """
        [lake]
        path = "lake"
        [spark]
        master = "local[2]"
        settings = { "spark.ui.enabled" = false }
        [source]
        managers = ["127.0.0.1:1810", "grpc+tls://beta:1810"]
        user = "alice"
        password_file = "secret"
        [ingest]
        queues = ["*;journal", "system$;*"]
        mode = "receive"
        trigger = "30 seconds"
        [replay]
        classes = ["NACK_RECEIVE_TIMEOUT"]
        since = 2026-03-02T00:00:00Z
        [migrate]
        queues = ["orders"]
        to = "jdbc"
        url = "jdbc:derby:memory:x"
        table = "orders"
        """,
    )
    found = load_config(path)
    assert found.resolve(found.lake.path) == str(tmp_path / "lake")
    assert found.resolve("s3a://bucket/lake") == "s3a://bucket/lake"
    assert found.source.options("beta") == {
        "managers": "beta",
        "user": "alice",
        "passwordFile": str(tmp_path / "secret"),
    }
    assert found.replay.send is False, "a dry run unless told otherwise"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "lake is missing, such as"),
        ("[lake]\npath = 3", "lake.path: Input should be a valid string, not 3"),
        ('[lake]\npath = "x"\n[ingst]\nx = 1', "there is no setting ingst; the nearest is ingest"),
        (
            '[lake]\npath = "x"\n[ingest]\nqueue = ["a"]',
            "there is no setting ingest.queue; the nearest is ingest.queues",
        ),
        (
            '[lake]\npath = "x"\n[source]\npassword = "a"',
            "there is no setting source.password; the nearest is source.password",
        ),
        (
            '[lake]\npath = "x"\n[ingest]\nmode = "steal"',
            "ingest.mode: Input should be 'peek' or 'receive', not 'steal'",
        ),
        (
            '[lake]\npath = "x"\n[poison]\naborts = 0',
            "poison.aborts: Input should be greater than or equal to 1, not 0",
        ),
        ('[lake]\npath = "x"\n[migrate]\nqueues = ["a"]\nto = "jdbc"', 'to = "jdbc" needs url and table'),
        (
            '[lake]\npath = "x"\n[ingest]\ntrigger = "30 secnds"',
            'ingest: trigger = "30 secnds": available-now expected, or',
        ),
        ('[lake]\npath = "x"\n[ingest]\nqueues = "orders"', "ingest.queues: a list expected, such as"),
        (
            '[lake]\npath = "x"\n[source]\nmanagers = ["http://x"]',
            "source: managers: 'http://x': a host, host:port, grpc",
        ),
        (
            '[lake]\npath = "x"\n[replay]\nclasses = ["TIMEOUT"]',
            "there is no class TIMEOUT; there are NACK_BAD_DEST_QUEUE",
        ),
        ('lake = "x"', "lake: a section expected, as in [lake]"),
        ('[lake]\npath = "lake[1]"', "Spark interprets [ ] as a pattern"),
        ("[lake\n", "pipeline.toml: Expected ']'"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(config(tmp_path, text))
    assert expected in str(caught.value)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="do not belong into an address") as caught:
        PipelineConfig.of({"lake": {"path": "x"}, "source": {"managers": ["grpc://alice:wonder@shop:1810"]}})
    assert "wonder" not in str(caught.value)


def test_the_settings_in_the_guide_are_settings() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    found = [tomllib.loads(text) for text in re.findall(r"^```toml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)]
    ours = [settings for settings in found if "events" not in settings]
    assert len(ours) == len(found) - 1 >= 2
    for settings in ours:
        PipelineConfig.of({"lake": {"path": "lake"}} | settings)
    [daemon] = [settings for settings in found if "events" in settings]
    assert EventsTable.model_validate(daemon["events"]).enabled


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        PipelineConfig.of({"lake": {"path": "x"}, "latency": {"bucket_minutes": 0}, "compact": {"files": "many"}})
    assert len(str(caught.value).splitlines()) == 2


def test_the_jobs_there_are() -> None:
    told = RUN.invoke(app, ["pipeline", "list", "--json"])
    assert told.exit_code == 0
    found = [json.loads(line) for line in told.stdout.splitlines()]
    assert [job["job"] for job in found] == list(JOBS)
    assert set(ALL) < set(JOBS)
    for job in found:
        program = Path(job["program"])
        assert 'if __name__ == "__main__":\n    main()' in program.read_text(encoding="utf-8"), "for spark-submit"
    assert "ingest" in RUN.invoke(app, ["pipeline", "list"]).stdout


def test_wrong_use_starts_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("lanner.spark.jobs.session.start_spark", never)
    path = str(config(tmp_path, '[lake]\npath = "x"'))
    unknown = RUN.invoke(app, ["pipeline", "run", "inges", "--config", path])
    assert (unknown.exit_code, "there is no job inges; there are ingest" in unknown.stderr) == (2, True)
    missing = RUN.invoke(app, ["pipeline", "run", "ingest", "--config", str(tmp_path / "none.toml")])
    assert (missing.exit_code, "there is no" in missing.stderr) == (1, True)
    sent = RUN.invoke(app, ["pipeline", "run", "ingest", "--send", "--config", path])
    assert (sent.exit_code, "--send is for the job replay" in sent.stderr) == (2, True)


def test_jobs_run_from_the_command_line(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from demo.generator import generate

    generate(seed=2, orders=10).write_files(tmp_path / "packets")
    path = str(config(tmp_path, '[lake]\npath = "lake"\n[ingest]\npacket_files = "packets"'))
    # The session is that of all tests.
    monkeypatch.setattr("lanner.spark.jobs.session.start_spark", lambda *_: context(spark, tmp_path).spark)
    monkeypatch.setattr("pyspark.sql.SparkSession.stop", lambda _: None)
    told = RUN.invoke(app, ["pipeline", "run", "ingest", "lifecycle", "--json", "--config", path])
    assert told.exit_code == 0, told.stderr
    result = json.loads(told.stdout)
    assert result["lifecycle"]["messages"] > 5
    assert "lifecycle: done in" in told.stderr
    page = RUN.invoke(app, ["pipeline", "report", "-o", str(tmp_path / "page.html"), "--config", path])
    assert page.stdout.strip() == str(tmp_path / "page.html")
    (tmp_path / "other").mkdir()
    empty = str(config(tmp_path / "other", '[lake]\npath = "lake"'))
    failed = RUN.invoke(app, ["pipeline", "run", "acks", "--config", empty])
    assert (failed.exit_code, "run the job lifecycle first" in failed.stderr) == (1, True)


def test_what_spark_wraps_is_reported_in_its_own_words(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    def fail(_: object) -> dict[str, object]:
        raise PySparkException("Java\n\tat x\nlanner.model.errors.AccessDenied: alice may not peek at orders\n\tat y")

    with pytest.raises(JobFailed, match=r"^ingest: alice may not peek at orders$"):
        run_job("ingest", fail, context(spark, tmp_path))
