"""Search for messages in a queue, in slices, so that a deep queue blocks no other caller."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lanner.engine import Engine
from lanner.engine.checks import PEEK_ACCESS, readable
from lanner.host.message_filters import MessageFilter
from lanner.model.errors import InvalidParameter
from lanner.model.live import MAX_LOOKUP_ID, START, MessagePosition, OpenQueueDescriptor

# Not in the specification: messages that one search examines and returns at most.
MAX_SCAN: Final = 100_000
MAX_FOUND: Final = 1000
# Not in the specification: octets of messages in one answer; a single message may be larger.
MAX_FOUND_SIZE: Final = 0x0040_0000
# Not in the specification: seconds for which messages are examined while the store's lock is held.
_SLICE: Final = 0.003


@dataclass(slots=True)
class Search:
    """One search through an open queue: `slices` performs it, the other fields are its result."""

    engine: Engine
    descriptor: OpenQueueDescriptor
    conditions: Iterable[str]
    after: int | None
    limit: int
    scan: int
    found: list[MessagePosition] = field(default_factory=list)
    scanned: int = 0

    def slices(self) -> Iterator[None]:
        """Search; yield between slices, without the store's lock. Raises InvalidParameter.

        Afterwards `after` is where the next search continues; None if the queue was searched to its
        end.
        """
        for name, value, most in (("limit", self.limit, MAX_FOUND), ("scan", self.scan, MAX_SCAN)):
            if type(value) is not int or not 0 < value <= most:
                raise InvalidParameter(f"{name} {value!r} of a search: a number from 1 to {most}")
        if self.after is not None and not (type(self.after) is int and 0 <= self.after <= MAX_LOOKUP_ID):
            raise InvalidParameter(f"after {self.after!r} of a search: a lookup id, or None for the first message")
        wanted = MessageFilter(self.conditions, self.engine.settings.accounts, self.engine.clocks.wall())
        size = 0
        while True:
            with self.engine.store.lock:
                queue = readable(self.engine.queue_manager, self.descriptor, PEEK_ACCESS)
                end = time.perf_counter() + _SLICE
                while True:
                    position = self.engine.positions.peek_after(queue, START if self.after is None else self.after)
                    if position is None:
                        self.after = None
                        return
                    self.after = position.lookup_id
                    self.scanned += 1
                    if wanted.matches(position.record):
                        self.found.append(position)
                        size += len(position.record.packet)
                    if len(self.found) == self.limit or self.scanned == self.scan or size >= MAX_FOUND_SIZE:
                        return
                    if time.perf_counter() > end:
                        break
            yield
