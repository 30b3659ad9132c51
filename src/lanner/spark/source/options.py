"""The options of format("msmq"), their values, and errors that name what was expected.

Spark passes options as text, with names in any case. They appear in plans and logs, so no secret is
an option, only the place of one.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lanner.model.errors import InvalidParameter
from lanner.spark.columnar.event_names import EVENTS_NAME
from lanner.spark.columnar.filters import Filters
from lanner.spark.columnar.values import FORMATS, BodyFormat
from lanner.spark.source.connections import FLIGHT, RPC, Access, discovered, parse_address, parse_host
from lanner.spark.source.offsets import Offset
from lanner.spark.source.queue_names import is_pattern

MEBIBYTE: Final = 1 << 20
# Not in the specification: the default limit of one micro-batch. It keeps the first batch from
# reading the whole of a large backlog.
MAX_BYTES_PER_TRIGGER: Final = 64 * MEBIBYTE * (os.cpu_count() or 1)
MAX_MESSAGES_PER_TRIGGER: Final = 1_000_000
# The offset names each message.
RPC_MESSAGES_PER_TRIGGER: Final = 2_000
PARTITION_BYTES: Final = 32 * MEBIBYTE
# Not in the specification: the seconds for which a queue manager may be down. A stream survives its
# restart. A batch fails soon, because a user waits for it.
BATCH_RETRY, STREAM_RETRY = 5, 60
PEEK, RECEIVE, EVENTS = "peek", "receive", "events"
EARLIEST, LATEST = "earliest", "latest"
FAIL, SKIP, WAIT = "fail", "skip", "wait"
# Not in the specification: the seconds after which a stream continues with fewer messages than
# minMessagesPerTrigger, as with Kafka.
TRIGGER_DELAY: Final = 15 * 60
# Not in the specification: the seconds that onManagerDown=wait waits, which are long enough to mean
# for ever.
FOR_EVER: Final = 10 * 365 * 86_400
# Options that Spark adds when it writes or reads a table.
OF_SPARK: Final = frozenset(
    {"serialization.format", "table_type", "is_managed_location", "provider", "owner", "location"}
)

_ACCESS: Final = ("managers", "transport", "user", "passwordFile", "passwordEnv", "tlsRoots", "retrySeconds")
_READ: Final = (
    "queues",
    "path",
    "mode",
    "columns",
    "includeBody",
    "startingOffsets",
    "minPartitions",
    "failOnDataLoss",
    "startingTimestamp",
    "onManagerDown",
    "bodyFormat",
    "bodySchema",
)
_BATCH: Final = ("endingOffsets", "endingTimestamp", "where", "pushFilters", "limit")
_STREAM: Final = (
    "reader",
    "leaseSeconds",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
)
_WRITE: Final = ("queue", "path", "writeId")
# Spark passes the location of its checkpoints to stream writers as an option.
_WRITE_STREAM: Final = ("queue", "path", "failOnChangedReplay", "checkpointLocation", "queryName")
_ROLES: Final = {
    "a batch read": (*_ACCESS, *_READ, *_BATCH),
    "a stream read": (*_ACCESS, *_READ, *_STREAM),
    "a batch write": (*_ACCESS, *_WRITE),
    "a stream write": (*_ACCESS, *_WRITE_STREAM),
}
_SECRETS: Final = ("password", "token", "secret")


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of batch and stream reads."""

    access: Access
    queues: tuple[str, ...]
    columns: str
    include_body: bool
    starting: str | Offset
    min_partitions: int | None  # None: not set
    fail_on_data_loss: bool
    # Whether the event log is read, instead of queues.
    is_events: bool
    starting_ms: int | None
    on_down: str
    body: BodyFormat | None


@dataclass(frozen=True, slots=True)
class BatchOptions(ReadOptions):
    ending: Offset | None  # None: latest
    ending_ms: int | None
    where: Filters
    push_filters: bool
    limit: int | None


@dataclass(frozen=True, slots=True)
class StreamOptions(ReadOptions):
    is_receiver: bool
    reader: str | None
    lease_ms: int
    max_messages: int
    max_bytes: int
    min_messages: int
    max_delay: int  # seconds


@dataclass(frozen=True, slots=True)
class WriteOptions:
    access: Access
    queue: str | None
    write_id: str | None
    fail_on_changed_replay: bool


class _Options:
    """The options of one role, by name."""

    def __init__(self, options: Mapping[str, str], role: str) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        check_names(options, role)

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None or not value.strip() else value.strip()

    def wrong(self, name: str, expected: str) -> InvalidParameter:
        return InvalidParameter(f"option {name} = {(self.text(name) or '')[:100]!r}: {expected} expected")

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.text(name)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise self.wrong(name, f"a number from {least} on")
        return int(text)

    def time(self, name: str) -> int | None:
        """Return a time in milliseconds since 1970. ISO 8601 with a zone is accepted too."""
        text = self.text(name)
        if text is None:
            return None
        if text.isascii() and text.isdigit() and len(text) < 16:
            return int(text)
        try:
            found = dt.datetime.fromisoformat(text)
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            raise self.wrong(name, "milliseconds since 1970, or a time with its zone such as 2026-03-01T08:00:00Z,")
        return int(found.timestamp() * 1000)

    def filters(self, name: str) -> Filters:
        """Return conditions that are given as JSON."""
        text = self.text(name)
        try:
            return Filters.of(None if text is None else json.loads(text))
        except ValueError:
            raise self.wrong(name, 'JSON such as [["label", "=", "order"], ["seq", ">", 100]]') from None

    def flag(self, name: str, *, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return text == "true"

    def seconds(self, name: str, default: int) -> int:
        """Return seconds, given as a number or in Spark's notation: 90, 90s, 15m, 1h."""
        text = (self.text(name) or str(default)).lower()
        units = {"s": 1, "m": 60, "h": 3600}
        digits, unit = (text[:-1], units[text[-1]]) if text[-1] in units else (text, 1)
        if not digits.isascii() or not digits.isdigit():
            raise self.wrong(name, "seconds, or a number with s, m or h,")
        return int(digits) * unit

    def one_of(self, name: str, *words: str) -> str:
        """Return one of some words. The first is the default."""
        text = (self.text(name) or words[0]).lower()
        if text not in words:
            raise self.wrong(name, " or ".join(words))
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list: separated by commas, or in JSON if a name contains a comma."""
        text = self.text(name)
        if text is None:
            return ()
        if text.startswith("["):
            try:
                found = json.loads(text)
            except ValueError:
                found = None
            # A pattern may begin with a bracket, too.
            if isinstance(found, list) and all(isinstance(item, str) and item.strip() for item in found):
                return tuple(dict.fromkeys(item.strip() for item in found))
        items = [item.strip() for item in text.split(",")]
        if not all(items):
            raise self.wrong(name, "a list with commas and nothing empty in it")
        return tuple(dict.fromkeys(items))

    def offset(self, name: str) -> Offset:
        text = self.text(name) or ""
        if not text.startswith("{"):
            raise self.wrong(name, "earliest, latest, or the JSON of an offset such as a stream's progress shows")
        return Offset.parse(text, f"option {name}")

    def either(self, name: str, path: str = "path") -> str | None:
        """Return an option that can also be the argument of load(), save() or start()."""
        given = [value for value in (self.text(name), self.text(path)) if value is not None]
        if len(set(given)) > 1:
            raise InvalidParameter(f"option {name} is {given[0]!r}, and {given[1]!r} is given as a path: leave one out")
        return given[0] if given else None

    def access(self, retry: int) -> Access:
        """Return the addresses and the user of a connection. `retry`: default of retrySeconds."""
        transport = self.one_of("transport", FLIGHT, RPC)
        parse = parse_address if transport == FLIGHT else parse_host
        given = self.texts("managers") or ("127.0.0.1",)
        user = self.text("user")
        file, variable = self.text("passwordFile"), self.text("passwordEnv")
        if file is not None and variable is not None:
            raise InvalidParameter("options passwordFile and passwordEnv: only one of them can be the password")
        if user is None and (file is not None or variable is not None):
            raise InvalidParameter("a password needs the option user")
        seconds = self.number("retrySeconds", retry, least=0)
        if transport == RPC and self.text("tlsRoots") is not None:
            raise InvalidParameter("option tlsRoots: transport rpc has no TLS; it encrypts with the password")
        access = Access((), user, file, variable, self.text("tlsRoots"), seconds, transport)
        managers = dict.fromkeys(parse(text) for item in given for text in discovered(item, access))
        return dataclasses.replace(access, managers=tuple(managers))

    def read(
        self, retry: int, mode: str, *, fail_on_data_loss: bool
    ) -> tuple[
        Access, tuple[str, ...], str, bool, str | Offset, int | None, bool, bool, int | None, str, BodyFormat | None
    ]:
        self._values["queues"] = self.either("queues") or ""
        queues = self.texts("queues")
        if mode == EVENTS:
            if queues:
                raise InvalidParameter(
                    f"option queues = {', '.join(queues)!r}: mode events reads what happened in all queues; leave it "
                    "out and filter by `queue`"
                )
            queues = (EVENTS_NAME,)
        if not queues:
            raise InvalidParameter(
                "option queues is missing: names with commas, or patterns such as orders*, *;journal or system$;*"
            )
        if self.one_of("transport", FLIGHT, RPC) == RPC:
            self._check_rpc(mode, queues)
        starting: str | Offset = (self.text("startingOffsets") or EARLIEST).lower()
        if starting not in (EARLIEST, LATEST):
            starting = self.offset("startingOffsets")
        since, on_down = self.time("startingTimestamp"), self.one_of("onManagerDown", FAIL, SKIP, WAIT)
        if since is not None and (self.text("startingOffsets") is not None or mode == EVENTS):
            raise self.wrong("startingTimestamp", "startingOffsets or a timestamp, of messages,")
        body = BodyFormat.of(self.one_of("bodyFormat", *FORMATS), self.text("bodySchema"))
        if body is not None and (mode == EVENTS or self.one_of("transport", FLIGHT, RPC) == RPC):
            raise self.wrong("bodyFormat", "none with mode events or transport rpc")
        return (
            self.access(FOR_EVER if on_down == WAIT else 0 if on_down == SKIP else retry),
            queues,
            self.text("columns") or "all",
            self.flag("includeBody", default=True),
            starting,
            self.number("minPartitions", 1) if self.text("minPartitions") else None,
            self.flag("failOnDataLoss", default=fail_on_data_loss),
            mode == EVENTS,
            since,
            on_down,
            body,
        )

    def _check_rpc(self, mode: str, queues: tuple[str, ...]) -> None:
        """Refuse options that remote read of any MSMQ computer does not support."""
        if mode == EVENTS:
            raise InvalidParameter("option mode events: only Lanner has events, and they are read by transport flight")
        starting = (self.text("startingOffsets") or EARLIEST).lower()
        if starting != EARLIEST or self.text("endingOffsets") is not None:
            raise InvalidParameter(
                "options startingOffsets and endingOffsets: transport rpc reads what is in the queues; it has no "
                "positions"
            )
        for name in queues:
            if is_pattern(name):
                raise InvalidParameter(f"option queues: {name!r} is a pattern, and transport rpc takes names only")


def check_table(options: Mapping[str, str]) -> None:
    """Refuse options of a table that could not be read. A table can be created only once."""
    own = {name: value for name, value in options.items() if name.lower() not in OF_SPARK}
    batch_options({name: value for name, value in own.items() if name.lower() in _names_of("a batch read")})


def _names_of(role: str) -> set[str]:
    return {name.lower() for name in _ROLES[role]}


def check_names(options: Mapping[str, str], role: str | None = None) -> None:
    """Refuse options that are unknown, or that this role does not have.

    If the options name both queues to read and a queue to write, as for a table and a view, options
    of all roles are allowed.
    """
    if {"queue", "queues"} <= {name.lower() for name in options}:
        role = None
    allowed = _ROLES[role] if role is not None else tuple(name for names in _ROLES.values() for name in names)
    everywhere = {name.lower(): name for names in _ROLES.values() for name in names}
    lowered = {name.lower() for name in allowed}
    for name in options:
        low = name.lower()
        if low in lowered or low in OF_SPARK:
            continue
        if low in _SECRETS:
            raise InvalidParameter(
                f"option {name}: options stand in plans and logs, so a secret cannot be one. Give its file as "
                "passwordFile, or the name of an environment variable as passwordEnv"
            )
        if low in everywhere:
            others = [other for other, names in _ROLES.items() if everywhere[low] in names]
            raise InvalidParameter(f"option {everywhere[low]} is for {' and '.join(others)}, not for {role}")
        near = difflib.get_close_matches(low, lowered, 1, 0)[0]
        raise InvalidParameter(f"there is no option {name!r}; the nearest is {everywhere[near]!r}")


def batch_options(options: Mapping[str, str]) -> BatchOptions:
    """Parse the options of spark.read. Raises InvalidParameter if they are wrong."""
    given = _Options(options, "a batch read")
    if (given.text("mode") or "").lower() == RECEIVE:
        raise InvalidParameter(
            "option mode receive is for a stream read, not for a batch read, which Spark may do twice"
        )
    mode = given.one_of("mode", PEEK, EVENTS)
    read = given.read(BATCH_RETRY, mode, fail_on_data_loss=False)
    if isinstance(read[4], str) and read[4] == LATEST:
        raise given.wrong("startingOffsets", "earliest or the JSON of an offset; latest has nothing to read in a batch")
    ending = given.text("endingOffsets") or LATEST
    until, where = given.time("endingTimestamp"), given.filters("where")
    if until is not None and (given.text("endingOffsets") is not None or mode == EVENTS):
        raise given.wrong("endingTimestamp", "endingOffsets or a timestamp, of messages,")
    if mode == EVENTS and (where.all or given.flag("pushFilters", default=False)):
        raise given.wrong("where", "no conditions, which only messages know,")
    pushes = given.flag("pushFilters", default=False)
    if given.text("limit") and (where.all or pushes):
        raise given.wrong(
            "limit", "no conditions beside it (where, pushFilters): it is not defined which messages come first"
        )
    return BatchOptions(
        *read,
        None if ending.lower() == LATEST else given.offset("endingOffsets"),
        until,
        where,
        pushes,
        given.number("limit", 0, least=0) if given.text("limit") else None,
    )


def stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Parse the options of spark.readStream. Raises InvalidParameter if they are wrong."""
    given = _Options(options, "a stream read")
    mode = given.one_of("mode", PEEK, RECEIVE, EVENTS)
    is_receiver = mode == RECEIVE
    is_rpc = given.one_of("transport", FLIGHT, RPC) == RPC
    if is_rpc and mode == PEEK:
        raise InvalidParameter(
            "mode peek of a stream needs transport flight: a remote read does not show which messages are new. With "
            "transport rpc a stream has mode receive"
        )
    read = given.read(STREAM_RETRY, mode, fail_on_data_loss=mode != PEEK)
    reader = given.text("reader")
    if reader is None and is_receiver and not is_rpc:
        raise InvalidParameter(
            "mode receive needs the option reader: a name of this query's own, by which the queue managers know what "
            "it has received"
        )
    if reader is None and read[4] == LATEST:
        raise InvalidParameter(
            "startingOffsets latest needs the option reader: a name of this query's own, by which the queue managers "
            "remember where it began"
        )
    return StreamOptions(
        *read,
        is_receiver,
        reader,
        1000 * given.number("leaseSeconds", 30),
        given.number("maxMessagesPerTrigger", RPC_MESSAGES_PER_TRIGGER if is_rpc else MAX_MESSAGES_PER_TRIGGER),
        given.number("maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER),
        given.number("minMessagesPerTrigger", 1),
        given.seconds("maxTriggerDelay", TRIGGER_DELAY),
    )


def write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Parse the options of df.write or df.writeStream."""
    given = _Options(options, "a stream write" if is_stream else "a batch write")
    access = given.access(STREAM_RETRY if is_stream else BATCH_RETRY)
    if access.transport == RPC:
        raise InvalidParameter(
            "option transport rpc: it only reads. Write to a queue manager of Lanner, which sends on to others, "
            "exactly once"
        )
    replay = given.flag("failOnChangedReplay", default=True)
    return WriteOptions(access, given.either("queue"), given.text("writeId"), replay)
