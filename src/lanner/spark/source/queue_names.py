r"""The values of the option `queues`: names, and patterns over the queues of a queue manager.

A pattern contains `*`, `?` or `[...]`, as for file names, and ignores case. Its part before a `;`
is compared with the name of the queue without `...\private$\`, and with the whole format name. Its
part after the `;` is compared with the part of the name after the `;`. So `orders*` selects queues,
`orders*;journal` their journals, and `*;*` all journals and subqueues. Names with a `$` belong to
the queue manager: only a pattern with a `$` selects them, such as `system$;*` for dead-letter
queues. An outgoing queue must match with its whole name: `DIRECT=*`.
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lanner.model.errors import InvalidParameter, QueueNotFound, ServiceNotAvailable
from lanner.spark.columnar.event_names import EVENTS_KIND, EVENTS_NAME, is_events
from lanner.spark.source.connections import Access, Manager
from lanner.wire.spelling import without_prefix

_LOG: Final = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

# Not in the specification: the maximum number of queue managers that are queried at the same time.
_AT_ONCE: Final = 32
_WILD: Final = frozenset("*?[")
_FOREIGN: Final = ("outgoing", "connector")


@dataclass(frozen=True, slots=True)
class FoundQueue:
    """A queue as its queue manager names it. `number` is never reused; `name` may be."""

    number: int
    name: str

    @classmethod
    def of(cls, about: dict[str, Any]) -> FoundQueue:
        return cls(about["queue_id"], about["queue"])


@dataclass(frozen=True, slots=True)
class KnownManager:
    """A queue manager that has answered `info`."""

    manager: Manager
    identifier: str
    name: str
    epoch: int
    horizon: int

    @classmethod
    def ask(cls, manager: Manager, *, is_log: bool = False) -> KnownManager:
        """Request a queue manager's identity. `is_log`: the horizon is that of the event log."""
        about = manager.call(lambda queues: queues.info())
        horizon = about["horizon"]
        if is_log:
            horizon = manager.call(lambda queues: queues.bounds(EVENTS_NAME))["horizon"]
        return cls(manager, about["queue_manager_id"], about["queue_manager"], about["epoch"], horizon)


def at_once(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Run `work` for each item, many at the same time, because calls wait for the network."""
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), _AT_ONCE), "lanner-ask") as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The queue managers of the options that have answered, and the addresses of those skipped."""

    managers: list[KnownManager]
    skipped: dict[str, str]  # address: reason


def ask_all(access: Access, *, is_log: bool = False, skip: bool = False) -> Fleet:
    """Query all queue managers of the options.

    Two addresses of the same queue manager are refused, because its messages would appear twice.
    `skip`: omit queue managers that do not answer, unless none does.
    """

    def ask(address: str) -> KnownManager | ServiceNotAvailable:
        try:
            return KnownManager.ask(Manager(access, address), is_log=is_log)
        except ServiceNotAvailable as error:
            if not skip:
                raise
            return error

    found: dict[str, KnownManager] = {}
    skipped: dict[str, str] = {}
    for address, known in zip(access.managers, at_once(ask, access.managers), strict=True):
        if isinstance(known, ServiceNotAvailable):
            skipped[address] = str(known)
            _LOG.warning("queue manager %s is left out (onManagerDown=skip): %s", address, known)
        elif known.identifier in found:
            other = found[known.identifier].manager.address
            raise InvalidParameter(f"option managers: {other} and {address} are the same queue manager, {known.name}")
        else:
            found[known.identifier] = known
    if not found:
        raise ServiceNotAvailable(f"none of the queue managers answers: {'; '.join(skipped.values())}")
    return Fleet(list(found.values()), skipped)


def kind_of_name(name: str) -> tuple[str | None, str]:
    """Return subqueue and kind of a queue, as far as its format name shows them."""
    kinds = {"journal": "journal", "deadletter": "deadletter", "deadxact": "xact_deadletter"}
    suffix = name.partition(";")[2]
    if not suffix:
        return None, "destination"
    kind = kinds.get(suffix.lower())
    return (suffix, "subqueue") if kind is None else (None, kind)


def is_pattern(name: str) -> bool:
    return not _WILD.isdisjoint(name)


def matches(pattern: str, name: str, kind: str) -> bool:
    """Return whether a pattern selects a queue that is listed under a name."""
    base, _, part = name.lower().partition(";")
    pattern_base, semicolon, pattern_part = without_prefix(pattern).lower().partition(";")
    if (part != "") != (semicolon != "") or not fnmatch.fnmatchcase(part, pattern_part):
        return False
    if fnmatch.fnmatchcase(base, pattern_base):
        # `*` alone must not select everything.
        return "\\" in pattern_base or "=" in pattern_base or _is_short(base, pattern_base, kind)
    return fnmatch.fnmatchcase(_short(base), pattern_base) and _is_short(base, pattern_base, kind)


def _is_short(base: str, pattern: str, kind: str) -> bool:
    return kind not in _FOREIGN and ("$" not in _short(base) or "$" in pattern)


def _short(base: str) -> str:
    return base.rpartition("\\")[2]


def find_queues(
    managers: Sequence[KnownManager],
    wanted: Sequence[str],
    *,
    patterns_only: bool = False,
    is_log: bool = False,
    skipped: dict[str, str] | None = None,
) -> dict[str, list[FoundQueue]]:
    """Return the queues of each queue manager, by its identifier.

    Raises QueueNotFound if a name exists on none of them; a pattern may find nothing. `is_log`: the
    event log is read. `skipped`: the queue managers that were left out (`Fleet.skipped`). Those
    that do not answer now are added; they may have the names that the others do not have.
    """
    names = [] if patterns_only else [name for name in wanted if not is_pattern(name)]
    if not is_log and any(is_events(name) for name in names):
        raise InvalidParameter(
            f"option queues: {EVENTS_NAME} has no messages; read it with mode events, and without queues"
        )
    patterns = [name for name in wanted if is_pattern(name)]
    refusals: dict[str, QueueNotFound] = {}
    missing = set(names)

    def look(known: KnownManager) -> list[FoundQueue]:
        try:
            return found_on(known)
        except ServiceNotAvailable as error:
            if skipped is None:
                raise
            skipped[known.manager.address] = str(error)
            _LOG.warning("queue manager %s is left out (onManagerDown=skip): %s", known.name, error)
            return []

    def found_on(known: KnownManager) -> list[FoundQueue]:
        queues: dict[int, FoundQueue] = {}
        for name in names:
            try:
                about = known.manager.call(lambda flight, name=name: flight.bounds(name))  # type: ignore[misc]
            except QueueNotFound as error:
                refusals[name] = error
                continue
            missing.discard(name)
            queues[about["queue_id"]] = FoundQueue.of(about)
        if patterns:
            for about in known.manager.call(lambda flight: flight.queues()):
                if about["queue_kind"] == EVENTS_KIND:
                    continue
                if any(matches(pattern, about["queue"], about["queue_kind"]) for pattern in patterns):
                    queues[about["queue_id"]] = FoundQueue.of(about)
        return list(queues.values())

    looked = at_once(look, managers)
    found = {known.identifier: queues for known, queues in zip(managers, looked, strict=True)}
    for name in names:
        if name in missing:
            where = ", ".join(known.name for known in managers)
            if skipped:
                _LOG.warning("there is no queue %s on %s; others were left out (onManagerDown=skip)", name, where)
                continue
            raise QueueNotFound(f"option queues: there is no queue {name} on {where}: {refusals[name].args[0]}")
    return found


def patterns_without_queues(known: KnownManager, wanted: Sequence[str]) -> list[str]:
    """Return the patterns that select no queue.

    A queue manager lists only queues that the user may read, so such queues may still exist.
    """
    patterns = [name for name in wanted if is_pattern(name)]
    listed = known.manager.call(lambda flight: flight.queues()) if patterns else []
    return [
        pattern
        for pattern in patterns
        if not any(matches(pattern, about["queue"], about["queue_kind"]) for about in listed)
    ]
