"""Stream offsets: for each queue of each queue manager a range of the visibility sequence.

    {"managers": {"<queue manager>": {"epoch": 3, "queues": {"<number>":
        {"from": 120, "messages": 700, "name": "...", "to": 845}}}}, "v": 1}

`from` is where the stream began and `to` what it has reached: it has read (from, to], which had
`messages` messages. Nothing outside of this range is ever acknowledged. Spark compares offsets as
text, so the keys always have the same order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lanner.model.errors import InvalidParameter

VERSION: Final = 1
_MOST: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class QueueOffset:
    """The range (start, end] of one queue."""

    name: str
    start: int
    end: int
    messages: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {"from": self.start, "messages": self.messages, "name": self.name, "to": self.end}


@dataclass(frozen=True, slots=True)
class ManagerOffset:
    """The queues of one queue manager, by their numbers."""

    epoch: int
    queues: Mapping[int, QueueOffset] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        found = {str(number): queue.to_dict() for number, queue in self.queues.items()}
        return {"epoch": self.epoch, "queues": dict(sorted(found.items()))}


@dataclass(frozen=True, slots=True)
class Offset:
    """All queue managers of a stream, by their identifiers."""

    managers: Mapping[str, ManagerOffset] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the sorted form that Spark gets."""
        found = {identifier: manager.to_dict() for identifier, manager in sorted(self.managers.items())}
        return {"managers": found, "v": VERSION}

    def queue(self, manager: str, number: int) -> QueueOffset | None:
        found = self.managers.get(manager)
        return None if found is None else found.queues.get(number)

    @classmethod
    def parse(cls, text: str, what: str) -> Offset:
        """Parse the JSON form. Raises InvalidParameter if it is invalid."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"{what}: not JSON: {error}") from None
        return cls.from_dict(values, what)

    @classmethod
    def from_dict(cls, values: object, what: str = "offset") -> Offset:
        """Parse the result of `to_dict`. Raises InvalidParameter if it is invalid."""
        top = _Object(values, what)
        if top.number("v") != VERSION:
            raise InvalidParameter(f"{what}: v is {top.number('v')}, and this version of Lanner reads {VERSION}")
        managers = {}
        for identifier, manager in top.objects("managers"):
            queues = {}
            for number, queue in manager.objects("queues"):
                if not number.isascii() or not number.isdigit():
                    raise InvalidParameter(f"{what}: {number!r} is not the number of a queue")
                found = QueueOffset(
                    queue.text("name"), queue.number("from"), queue.number("to"), queue.number("messages")
                )
                if found.end < found.start:
                    raise InvalidParameter(f"{what}: queue {found.name}: to {found.end} is before from {found.start}")
                queue.done()
                queues[int(number)] = found
            managers[identifier] = ManagerOffset(manager.number("epoch"), queues)
            manager.done()
        top.done()
        return cls(managers)


class _Object:
    """One JSON object, read strictly."""

    def __init__(self, values: object, what: str) -> None:
        if not isinstance(values, dict):
            raise InvalidParameter(f"{what}: a JSON object expected, not {str(values)[:50]!r}")
        self._values = values
        self._what = what
        self._known: set[str] = set()

    def _get(self, key: str) -> object:
        self._known.add(key)
        if key not in self._values:
            raise InvalidParameter(f"{self._what}: {key} is missing; it has {', '.join(self._values) or 'nothing'}")
        return self._values[key]

    def number(self, key: str) -> int:
        value = self._get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise InvalidParameter(f"{self._what}: {key} is {value!r}: a number from 0 on expected")
        return value

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise InvalidParameter(f"{self._what}: {key} is {value!r}: text expected")
        return value

    def objects(self, key: str) -> list[tuple[str, _Object]]:
        value = self._get(key)
        if not isinstance(value, dict):
            raise InvalidParameter(f"{self._what}: {key}: a JSON object expected")
        return [(name, _Object(item, f"{self._what}, {key} {name}")) for name, item in value.items()]

    def done(self) -> None:
        unknown = set(self._values) - self._known
        if unknown:
            raise InvalidParameter(f"{self._what}: {', '.join(sorted(unknown))}: unknown")
