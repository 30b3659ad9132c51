"""The configuration of the jobs, pipeline.toml. Everything is checked before Spark starts.

Each job has an optional section; `[lake]` is the place of the tables. Paths, also that of the
password, are relative to the file. The file has no secrets: `password_file` or `password_env` point
to the password.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from lanner.model.enums import MessageClass
from lanner.model.errors import InvalidParameter, LannerError
from lanner.spark.source.connections import parse_address

__all__ = ["ConfigError", "PipelineConfig", "load_config"]

AVAILABLE_NOW: Final = "available-now"
_EXAMPLE: Final = 'such as [lake] with path = "lake"'
_INTERVAL: Final = re.compile(r"[1-9][0-9]* (?:millisecond|second|minute|hour|day)s?")
# Spark treats these as patterns in paths.
_PATTERN: Final = frozenset("*?[]{}\\")
# Texts for errors in which pydantic uses names of Python types.
_KINDS: Final = {
    "tuple_type": 'a list expected, such as ["a", "b"]',
    "model_type": "a section expected, as in " + _EXAMPLE.removeprefix("such as "),
    "dict_type": "a section expected",
}


class ConfigError(LannerError):
    """The configuration is wrong. Each line names a setting and what was expected."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LakeConfig(_Section):
    """The lake. `path` is the directory, or the URI, of the tables.

    `options`: storage of Delta Lake, or properties of the catalog of Iceberg.
    """

    path: str
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    options: dict[str, str] = Field(default_factory=dict)


class SparkConfig(_Section):
    """The session of jobs that `lanner pipeline run` starts; spark-submit has its own.

    `settings` are Spark's own.
    """

    master: str = "local[*]"
    settings: dict[str, str | int | bool] = Field(default_factory=dict)


class SourceConfig(_Section):
    """The queue managers."""

    managers: tuple[str, ...] = ()
    user: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    tls_roots: str | None = None
    retry_seconds: Annotated[int, Field(ge=0)] | None = None

    def options(self, manager: str | None = None) -> dict[str, str]:
        """Return the options of format("msmq"), for one queue manager or for all."""
        found = {
            "managers": manager if manager is not None else ",".join(self.managers),
            "user": self.user,
            "passwordFile": self.password_file,
            "passwordEnv": self.password_env,
            "tlsRoots": self.tls_roots,
            "retrySeconds": self.retry_seconds,
        }
        return {name: str(value) for name, value in found.items() if value is not None}

    @model_validator(mode="after")
    def _addresses(self) -> SourceConfig:
        try:
            for manager in self.managers:
                parse_address(manager)
        except InvalidParameter as error:
            raise ValueError(error.args[0]) from None
        return self


class IngestConfig(_Section):
    """The sources of the table `messages`."""

    queues: tuple[str, ...] = ("*", "*;*", "system$;*")
    packet_files: str | None = None  # a directory with output of `lanner export`
    mode: Literal["peek", "receive"] = "peek"
    reader: str = "lanner-pipeline"
    include_body: bool = True
    trigger: str = AVAILABLE_NOW  # or an interval, such as "30 seconds"
    max_messages_per_trigger: Annotated[int, Field(ge=1)] | None = None
    events: bool = True  # for queue managers that have an event log

    @model_validator(mode="after")
    def _trigger(self) -> IngestConfig:
        if self.trigger != AVAILABLE_NOW and _INTERVAL.fullmatch(self.trigger) is None:
            raise ValueError(f'trigger = "{self.trigger}": {AVAILABLE_NOW} expected, or an interval such as 30 seconds')
        return self


class LatencyConfig(_Section):
    bucket_minutes: Annotated[int, Field(ge=1)] = 60


class ThroughputConfig(_Section):
    bucket_seconds: Annotated[int, Field(ge=1)] = 60


class PoisonConfig(_Section):
    """When a message counts as poison: aborted receives, and repetitions of the same body."""

    aborts: Annotated[int, Field(ge=1)] = 3
    subqueues: tuple[str, ...] = ("poison", "retry")


class ReplayConfig(_Section):
    """The dead letters that are sent again. All conditions must hold.

    `send = false` only reports what would be sent.
    """

    classes: tuple[str, ...] = ()  # such as NACK_RECEIVE_TIMEOUT
    destinations: tuple[str, ...] = ()  # patterns, such as *orders
    labels: tuple[str, ...] = ()
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    time_to_be_received: Annotated[int, Field(ge=1)] | None = None
    send: bool = False

    @model_validator(mode="after")
    def _known(self) -> ReplayConfig:
        known = [member.name for member in MessageClass if member >= MessageClass.NACK_BAD_DEST_QUEUE]
        for name in self.classes:
            if name.upper() not in known:
                raise ValueError(f"classes: there is no class {name}; there are {', '.join(known)}")
        return self


class MigrateConfig(_Section):
    """The target for the contents of queues."""

    queues: tuple[str, ...] = ()
    to: Literal["parquet", "jdbc", "kafka"] = "parquet"
    mode: Literal["peek", "receive"] = "peek"
    reader: str = "lanner-migrate"
    name: str = "migration"  # of its checkpoint: another name starts from the beginning
    path: str | None = None  # parquet
    url: str | None = None  # jdbc
    table: str | None = None
    driver: str | None = None
    user: str | None = None
    password_env: str | None = None
    servers: str | None = None  # kafka
    topic: str | None = None
    columns: str = "all"

    @model_validator(mode="after")
    def _complete(self) -> MigrateConfig:
        needed = {"parquet": ("path",), "jdbc": ("url", "table"), "kafka": ("servers", "topic")}[self.to]
        missing = [name for name in needed if getattr(self, name) is None]
        if self.queues and missing:
            raise ValueError(f'to = "{self.to}" needs {" and ".join(missing)}')
        return self


class CompactConfig(_Section):
    """When to rewrite and delete days.

    A day of a queue manager is rewritten when it has more than `files` files. Days older than
    `keep_days` are deleted, also of `events`.
    """

    files: Annotated[int, Field(ge=1)] = 4
    keep_days: Annotated[int, Field(ge=1)] | None = None


class ReportConfig(_Section):
    path: str = "report.html"
    title: str = "Message queues"


class PipelineConfig(_Section):
    """The whole file."""

    lake: LakeConfig
    spark: SparkConfig = SparkConfig()
    source: SourceConfig = SourceConfig()
    ingest: IngestConfig = IngestConfig()
    latency: LatencyConfig = LatencyConfig()
    throughput: ThroughputConfig = ThroughputConfig()
    poison: PoisonConfig = PoisonConfig()
    replay: ReplayConfig = ReplayConfig()
    migrate: MigrateConfig = MigrateConfig()
    compact: CompactConfig = CompactConfig()
    report: ReportConfig = ReportConfig()

    _base: Path = PrivateAttr(default=Path())

    def resolve(self, path: str) -> str:
        """Return a path of the file as Spark needs it: absolute, or an unchanged URI."""
        if "://" in path or urlsplit(path).scheme == "file":
            return path
        return str((self._base / path).absolute())

    @classmethod
    def of(cls, values: dict[str, Any], base: Path | None = None, where: str = "configuration") -> PipelineConfig:
        """Check values in the form of TOML. Raises ConfigError with a line for each wrong one."""
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError("\n".join(f"{where}: {_told(each)}" for each in error.errors())) from None
        config._base = base or Path()  # noqa: SLF001 (pydantic's way to make it)
        given = {"password_file": config.source.password_file, "tls_roots": config.source.tls_roots}
        paths = {name: config.resolve(path) for name, path in given.items() if path is not None}
        config = config.model_copy(update={"source": config.source.model_copy(update=paths)})
        lake = config.resolve(config.lake.path)
        if _PATTERN & set(lake):
            raise ConfigError(
                f"{where}: lake.path {lake}: Spark interprets {' '.join(sorted(_PATTERN & set(lake)))} as a pattern"
            )
        return config


def load_config(path: Path) -> PipelineConfig:
    """Read a file. Raises ConfigError if it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no {path}; make one, {_EXAMPLE}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: TOML is text in UTF-8, and this is not") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    return PipelineConfig.of(values, path.absolute().parent, str(path))


def _told(error: Any) -> str:  # noqa: ANN401 (pydantic's own kind of dictionary)
    location = [str(part) for part in error["loc"]]
    name = ".".join(location)
    if error["type"] == "extra_forbidden":
        known = _names(location[:-1])
        near = difflib.get_close_matches(location[-1], known, 1, 0)
        return f"there is no setting {name}; the nearest is {'.'.join([*location[:-1], *near])}"
    if error["type"] == "missing":
        return f"{name} is missing, {_EXAMPLE}"
    if error["type"] in _KINDS:
        return f"{name}: {_KINDS[error['type']]}, not {error['input']!r}"
    return f"{name}: {error['msg'].removeprefix('Value error, ')}" + (
        "" if isinstance(error["input"], dict) else f", not {error['input']!r}"
    )


def _names(section: list[str]) -> list[str]:
    model: Any = PipelineConfig
    for part in section:
        field = model.model_fields.get(part)
        model = None if field is None else field.annotation
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return [""]
    return list(model.model_fields)
