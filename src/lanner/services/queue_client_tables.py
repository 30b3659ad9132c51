"""The tables of context handles of the queue client interface (MS-MQMP 3.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from lanner.engine import Engine
    from lanner.host.committer import Committer

K = TypeVar("K")
V = TypeVar("V")


class HandleTable(Generic[K, V]):
    """Objects that clients hold, by number or identifier."""

    def __init__(self, engine: Engine, committer: Committer) -> None:
        self._engine = engine
        self._lock = engine.store.lock
        self._committer = committer
        self._held: MutableMapping[K, V] = {}

    def __len__(self) -> int:
        return len(self._held)
