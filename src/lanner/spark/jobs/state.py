"""The state of `lifecycle`: a run reads new batches only, and changes only messages with new facts.

The state is three tables beside `lifecycle`:

facts
    what is known about each message (`facts`). Its rows, and those of `lifecycle`, are in parts:
    `open` has the messages that are on their way or in a queue, and is replaced by each run. A
    message that has ended moves to the newest of the parts `ended-N`, each of some hundred thousand
    messages, and is read again only if something new is known about it, such as an acknowledgment.
names
    names of machines and queues found in messages. If one changes, all rows are made again.
consumed
    the last batch of each stream that is in `facts`

Facts can be merged any number of times, so it does no harm if a killed job leaves `facts` ahead of
`consumed`. `lifecycle` is written first: what was killed before `facts` was written is done again,
and replaces at least the same parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from lanner.spark.jobs.facts import MERGE, facts, merged, queue_names
from lanner.spark.jobs.formats import PART
from lanner.spark.jobs.lake import Lake
from lanner.spark.jobs.lifecycle import NAME, lifecycle
from lanner.spark.jobs.tables import EVENTS, MESSAGES, each_once, machine_names, observations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lanner.spark.jobs.session import Context

FACTS: Final = "facts"
NAMES: Final = "names"
CONSUMED: Final = "consumed"
OPEN: Final = "open"
_OPEN_STATUS: Final = ("waiting", "arrived", "in_transit", "sent")
# Not in the specification: the number of messages in a part, which is rewritten as a whole.
_PART_ROWS: Final = 250_000
_ENDED: Final = "ended-"
# Numbers of streams by table.
Streams = dict[str, dict[str, int]]
# Names of machines by identifier, and of queues by the name that messages have for them.
Names = dict[str, dict[str, str]]
_MACHINE, _QUEUE = "machine", "queue"


def consumed(lake: Lake) -> Streams | None:
    """Return the last batches whose facts are in the state; None if there is no state.

    A state with other columns, of another version, is none.
    """
    if not lake.has(CONSUMED) or not lake.has(FACTS):
        return None
    if set(lake.read(FACTS).columns) != {"msg_id", PART, *MERGE}:
        return None
    found: Streams = {MESSAGES: {}, EVENTS: {}}
    for row in lake.read(CONSUMED).collect():
        found[row["source"]][row["stream"]] = row["number"]
    return found


def advance(context: Context) -> None:
    """Bring `lifecycle` and the state up to date."""
    lake, seen = context.lake, consumed(context.lake)
    # Only what is complete now counts as read, also if more is there a moment later.
    upto = {table: lake.batches(table) for table in (MESSAGES, EVENTS)}
    if seen == upto and lake.has(NAME):
        return
    if seen is None:
        messages, events = lake.sightings(MESSAGES), lake.sightings(EVENTS)
    else:
        messages, events = (lake.since(table, seen[table], upto[table]) for table in (MESSAGES, EVENTS))
    new = facts(observations(messages), each_once(events)).persist()
    state = None if seen is None else lake.read(FACTS)
    old_names = {_MACHINE: {}, _QUEUE: {}} if seen is None else _stored_names(lake)
    names = _names(old_names, machine_names(messages, events), queue_names(new))
    try:
        _write(context, new, state, names, is_all=not lake.has(NAME) or _is_renamed(old_names, names))
    finally:
        new.unpersist()
    lake.write(_frame(lake, names), NAMES)
    rows = [(table, stream, number) for table, streams in upto.items() for stream, number in streams.items()]
    lake.write(lake.spark.createDataFrame(rows, "source string, stream string, number int"), CONSUMED)


def _write(context: Context, new: DataFrame, state: DataFrame | None, names: Names, *, is_all: bool) -> None:
    lake, replaced = context.lake, [OPEN]
    touched, others = new, None
    first = 0
    if state is not None:
        ended = state.where(F.col(PART) != OPEN)
        counts = {row[PART]: row["count"] for row in ended.groupBy(PART).count().collect()}
        last = max(counts, default=None)
        if last is not None:
            first = _number(last) + (counts[last] >= _PART_ROWS)
        ids = new.select("msg_id")
        again = ended if is_all else ended.join(ids, "msg_id", "left_semi")
        # The parts that lose rows, and the one that gets those that have ended now.
        replaced += [row[PART] for row in again.select(PART).distinct().collect()]
        touched = merged(new, state.where(F.col(PART) == OPEN).drop(PART), again.drop(PART))
        if not is_all:
            is_rewritten = F.col(PART).isin(sorted({*replaced, _ended(first)} - {OPEN}))
            others = ended.where(is_rewritten)
    touched = touched.persist()
    machines = lake.spark.createDataFrame(sorted(names[_MACHINE].items()), "machine_id string, machine string")
    queues = lake.spark.createDataFrame(sorted(names[_QUEUE].items()), "addressed string, known_queue string")
    rows = lifecycle(touched, machines, queues).persist()
    try:
        is_open = F.col("status").isin(*_OPEN_STATUS)
        count = rows.where(~is_open).count()
        number = max(math.ceil(count / _PART_ROWS), 1)
        new_parts = [_ended(first + place) for place in range(number)]
        place = F.format_string(f"{_ENDED}%06d", F.lit(first) + F.pmod(F.xxhash64("msg_id"), F.lit(number)).cast("int"))
        rows = rows.withColumn(PART, F.when(is_open, OPEN).otherwise(place))
        made = touched.join(rows.select("msg_id", PART), "msg_id")
        table = rows
        if others is not None:
            made = made.unionByName(others.join(touched.select("msg_id"), "msg_id", "left_anti"))
            before = lake.read(NAME).where(is_rewritten)
            table = table.unionByName(before.join(touched.select("msg_id"), "msg_id", "left_anti"))
        parts = {*replaced, *new_parts}
        for name, frame in ((NAME, table), (FACTS, made)):
            # Without a state, what is left of another one goes.
            left = lake.parts(name) if state is None else ()
            lake.write_parts(frame, name, sorted({*parts, *left}))
    finally:
        touched.unpersist()
        rows.unpersist()


def _ended(number: int) -> str:
    return f"{_ENDED}{number:06d}"


def _number(part: str) -> int:
    return int(part.removeprefix(_ENDED))


def _names(old: Names, machines: DataFrame, queues: DataFrame) -> Names:
    """Return the names that were known with those that are new."""
    found = {kind: dict(known) for kind, known in old.items()}
    for row in machines.where("machine is not null").collect():
        found[_MACHINE][row["machine_id"]] = max(row["machine"], found[_MACHINE].get(row["machine_id"], ""))
    for row in queues.collect():
        known = found[_QUEUE].get(row["addressed"])
        found[_QUEUE][row["addressed"]] = row["known_queue"] if known is None else min(known, row["known_queue"])
    return found


def _is_renamed(old: Names, new: Names) -> bool:
    """Return whether rows of messages without new facts may have other names now."""
    if old[_MACHINE] != new[_MACHINE]:
        return True
    hosts: dict[str, str] = {}
    for name, queue in old[_QUEUE].items():
        host, known = name.partition("\\")[0], queue.partition("\\")[0]
        hosts[host] = min(known, hosts.get(host, known))
    for name, queue in new[_QUEUE].items():
        host, mark, rest = name.partition("\\")
        if queue != old[_QUEUE].get(name, f"{hosts.get(host, host)}{mark}{rest}"):
            return True
    return False


def _stored_names(lake: Lake) -> Names:
    found: Names = {_MACHINE: {}, _QUEUE: {}}
    for row in lake.read(NAMES).collect():
        found[row["kind"]][row["key"]] = row["name"]
    return found


def _frame(lake: Lake, names: Names) -> DataFrame:
    rows = [(kind, key, name) for kind, known in names.items() for key, name in sorted(known.items())]
    return lake.spark.createDataFrame(rows, "kind string, key string, name string")


def stored_machine_names(lake: Lake) -> DataFrame:
    """Return what `tables.machine_names` returns, of everything that `lifecycle` has read."""
    return lake.read(NAMES).where(F.col("kind") == _MACHINE).selectExpr("key as machine_id", "name as machine")
