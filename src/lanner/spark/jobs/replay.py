"""replay: sends dead letters again, to their original queues, each one once.

`[replay]` selects them by class, destination, label and time. Without `send` (or `--send`) the job
only reports what it would send. With it, the letters of each destination first become a plan, a
table that has everything to send. Then the plan is sent with its name as `writeId`, which a queue
manager publishes once, and is marked as sent. After a job was killed, the next run finds the plan
and sends it under the same name. A letter in one plan is never in another, so nothing is sent
twice.

Each message sent is a copy with a new identifier. The dead letters stay in their queue until
`lanner deadletter purge` removes them.
"""

from __future__ import annotations

import fnmatch
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from lanner.model.enums import MessageClass
from lanner.spark.columnar.schema import SETTABLE
from lanner.spark.jobs.acks import reason
from lanner.spark.jobs.config import ConfigError, ReplayConfig
from lanner.spark.jobs.session import Context, JobFailed, Result, submit, told

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME: Final = "replay"
TABLE: Final = "replays"
LETTERS: Final = ("system$;DEADLETTER", "system$;DEADXACT")
# The columns that a copy takes from its letter. dest_format_name names the queue, and
# correlation_id the correlation.
COPIED: Final = tuple(name for name in SETTABLE if name not in ("queue", "correlation_text"))
_SENT: Final = "_SENT"
_WHOLE: Final = "rows/_SUCCESS"
# Not in the specification: destinations that one run sends to.
MAX_DESTINATIONS: Final = 1000


@dataclass(frozen=True)
class Plan:
    """Letters that are sent together: the name of the plan, and its path."""

    name: str
    path: str

    @property
    def rows(self) -> str:
        return f"{self.path}/rows"


def chosen(letters: DataFrame, config: ReplayConfig) -> DataFrame:
    """Return the dead letters that the configuration selects."""
    conditions: list[Column] = [F.col("dest_format_name").isNotNull(), F.col("packet_error").isNull()]
    if config.classes:
        conditions.append(F.col("class").isin([int(MessageClass[name.upper()]) for name in config.classes]))
    for column, patterns in (("dest_format_name", config.destinations), ("label", config.labels)):
        if patterns:
            any_of = "|".join(f"({fnmatch.translate(pattern.lower())})" for pattern in patterns)
            # Java does not use \Z for the very end of the text. Its (?s:...) is the same.
            conditions.append(F.lower(column).rlike(any_of.replace(r"\Z", r"\z")))
    if config.since is not None:
        conditions.append(F.col("arrived_time") >= F.lit(config.since))
    if config.until is not None:
        conditions.append(F.col("arrived_time") < F.lit(config.until))
    for condition in conditions:
        letters = letters.where(condition)
    if config.time_to_be_received is not None:
        letters = letters.withColumn("time_to_be_received", F.lit(config.time_to_be_received).cast("bigint"))
    return letters


class _Replayer:
    """The replay of one queue manager."""

    def __init__(self, context: Context, manager: str) -> None:
        self.context, self.manager, self.lake = context, manager, context.lake
        self.options = context.config.source.options(manager)

    def run(self) -> tuple[int, int]:
        """Return the number of messages (that would be) sent, and of earlier plans sent now."""
        config = self.context.config.replay
        resumed = self._resume() if config.send else 0
        letters = self.context.spark.read.format("msmq").options(**self.options).load(",".join(LETTERS))
        found = chosen(letters, config)
        planned = self._planned()
        if planned is not None:
            found = found.join(planned, "msg_id_text", "left_anti")
        groups = (
            found.groupBy("dest_format_name", "class")
            .agg(F.count(F.lit(1)).alias("messages"))
            .withColumn("reason", F.coalesce(reason("class"), F.hex("class")))
            .orderBy("dest_format_name", "class")
            .collect()
        )
        verb = "sending" if config.send else "would send"
        for group in groups:
            self.context.progress.say(f"{verb} {group['messages']} to {group['dest_format_name']} ({group['reason']})")
        destinations = list(dict.fromkeys(group["dest_format_name"] for group in groups))
        if len(destinations) > MAX_DESTINATIONS:
            raise ConfigError(f"replay: {len(destinations)} destinations, at most {MAX_DESTINATIONS} in one run")
        total = sum(group["messages"] for group in groups)
        if config.send:
            failures = []
            for destination in destinations:
                plan = self._plan(found.where(F.col("dest_format_name") == destination))
                try:
                    self._send(plan)
                except PySparkException as error:
                    failures.append(
                        f"{destination}: {told(error)}; its plan {plan.path} is tried again by the next run"
                    )
            if failures:
                raise JobFailed("\n".join(failures))
        return total, resumed

    def _plan(self, letters: DataFrame) -> Plan:
        """Store what to send. From here on these letters belong to this plan."""
        name = uuid.uuid4().hex
        plan = Plan(name, self.lake.path(f"{TABLE}/{name}"))
        letters = letters.withColumn("manager", F.lit(self.manager))
        letters.select(*COPIED, "msg_id_text", "qm_id", "manager").write.parquet(plan.rows)
        return plan

    def _plans(self) -> list[Plan]:
        found = [path.removesuffix(f"/{_WHOLE}") for path in self.lake.files(TABLE, f"*/{_WHOLE}")]
        return [Plan(path.rpartition("/")[2], path) for path in found]

    def _planned(self) -> DataFrame | None:
        paths = [plan.rows for plan in self._plans()]
        if not paths:
            return None
        return self.context.spark.read.parquet(*paths).select("msg_id_text").distinct()

    def _resume(self) -> int:
        sent = {path.rpartition("/")[0] for path in self.lake.files(TABLE, f"*/{_SENT}")}
        waiting = [plan for plan in self._plans() if plan.path not in sent]
        mine = [plan for plan in waiting if self._is_mine(plan)]
        for plan in mine:
            self.context.progress.say(f"the plan of an earlier run, {plan.name}, is sent now")
            self._send(plan)
        return len(mine)

    def _is_mine(self, plan: Plan) -> bool:
        rows = self.context.spark.read.parquet(plan.rows).select("manager").limit(1).collect()
        return not rows or rows[0]["manager"] == self.manager

    def _send(self, plan: Plan) -> None:
        rows = self.context.spark.read.parquet(plan.rows).select(*COPIED)
        options = self.options | {"writeId": f"replay {plan.name}"}
        rows.write.format("msmq").options(**options).mode("append").save()
        self.lake.touch(f"{plan.path}/{_SENT}")


def run(context: Context) -> Result:
    managers = context.config.source.managers
    if not managers:
        raise ConfigError('replay: no queue manager is named; give source.managers, such as ["127.0.0.1:1810"]')
    done = [_Replayer(context, manager).run() for manager in managers]
    word = "sent" if context.config.replay.send else "would send"
    return {word: sum(total for total, _ in done), "plans resumed": sum(resumed for _, resumed in done)}


def main() -> None:
    submit(NAME, run)


if __name__ == "__main__":
    main()
