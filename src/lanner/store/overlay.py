"""Layers of changes that the snapshot lacks, and the merged view of layers and snapshot.

A view (a queue's messages, a metadata table) is read through up to four layers: the current batch,
the batch in flight, the logged batches, and the batches that a checkpoint is writing. A layer holds
the rows that it adds and the keys that it hides in the layers below and in the snapshot.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from lanner.store.sorted_keys import K, SortedKeys

__all__ = ["Layer", "Overlay", "Run"]

V = TypeVar("V")
H = TypeVar("H")

# Maximum number of runs that a view remembers, one for each reader that consumes the queue.
_MAX_RUNS = 4


class Layer(Generic[K, V, H]):
    """The changes of one batch, or of all logged batches together, to one view.

    `keys` lacks the keys that a layer above hides: they are removed here when they are hidden.
    `rows` and `hidden` do not change while a commit or a checkpoint writes them. `hidden` maps each
    hidden key to the facts that the commit needs about it.
    """

    __slots__ = ("hidden", "keys", "rows")

    def __init__(self) -> None:
        self.keys: SortedKeys[K] = SortedKeys()
        self.rows: dict[K, V] = {}
        self.hidden: dict[K, H] = {}

    def absorb(self, above: Layer[K, V, H]) -> None:
        """Merge the changes of the layer above into this one."""
        rows, keys = self.rows, self.keys
        for key, facts in above.hidden.items():
            rows.pop(key, None)
            self.hidden[key] = facts
        for key in above.keys:
            if key not in rows:
                keys.add(key)
        rows.update(above.rows)

    def restore_keys(self, hidden: set[K]) -> None:
        """Restore `keys` after layers above were dropped; other layers still hide `hidden`."""
        self.keys = SortedKeys()
        for key in sorted(self.rows.keys() - hidden):
            self.keys.add(key)


class Run(Generic[K]):
    """A range of the snapshot in which every key is hidden.

    It covers the keys from `low` to `high`. `following` is the next key of the snapshot, if known.
    """

    __slots__ = ("following", "high", "low")

    def __init__(self, low: K, high: K, following: K | None) -> None:
        self.low: K = low
        self.high: K = high
        self.following: K | None = following


class Overlay(Generic[K, V, H]):
    """A sorted map: the snapshot, with the layers of newer changes laid over it."""

    __slots__ = ("_runs", "below", "current")

    def __init__(self) -> None:
        self.current: Layer[K, V, H] | None = None
        self.below: tuple[Layer[K, V, H], ...] = ()  # the other layers, the newest first
        self._runs: list[Run[K]] = []

    # Access to the snapshot and the order of keys, which differ between views.

    def _read_stored(self, key: K) -> V | None:
        raise NotImplementedError

    def _stored_ceiling(self, key: K) -> K | None:
        raise NotImplementedError

    def _stored_below(self, key: K) -> K | None:
        raise NotImplementedError

    def _successor(self, key: K) -> K:
        raise NotImplementedError

    def forget_runs(self) -> None:
        """Forget which stored keys are hidden: the snapshot changed, or layers were dropped."""
        if self._runs:
            self._runs.clear()

    def layers(self) -> tuple[Layer[K, V, H], ...]:
        """Return all layers, the newest first."""
        return self.below if self.current is None else (self.current, *self.below)  # type: ignore[arg-type]  # mypy mixes int and bytes

    def get(self, key: K) -> V | None:
        """Return the newest value; None if the key does not exist."""
        # Without `layers`, which builds a tuple: this runs several times for each message.
        current = self.current
        if current is not None:
            value = current.rows.get(key)
            if value is not None:
                return value
            if key in current.hidden:
                return None
        for layer in self.below:
            value = layer.rows.get(key)
            if value is not None:
                return value
            if key in layer.hidden:
                return None
        return self._read_stored(key)

    def go_back(self) -> None:
        """Drop the current layer and restore those below; the batch in flight was dropped too."""
        self.current = None
        self.forget_runs()
        hidden: set[K] = set()
        for layer in self.below:
            layer.restore_keys(hidden)
            hidden.update(layer.hidden)

    def ceiling(self, key: K) -> K | None:
        """Return the lowest existing key that is not below `key`."""
        found = self._unhidden_ceiling(key)
        other = self._added_ceiling(key)
        return other if found is None or (other is not None and other < found) else found

    def _unhidden_ceiling(self, key: K) -> K | None:
        """Return the lowest key in the snapshot that is not below `key` and not hidden."""
        run = self._run_with(key) if self._runs else None
        found = self._stored_ceiling(key if run is None else self._successor(run.high))
        if found is not None and self._is_hidden(found):
            return self._skip_up(key, found)
        if run is not None:
            run.following = found
        return found

    def _added_ceiling(self, key: K) -> K | None:
        """Return the lowest key in the layers that is not below `key`."""
        found: K | None = None
        current = self.current
        # Check the rows first: the layers of a reader that consumes stored messages have none.
        if current is not None and current.rows:
            found = current.keys.ceiling(key)
        for layer in self.below:
            if layer.rows:
                other = layer.keys.ceiling(key)
                if other is not None and (found is None or other < found):
                    found = other
        return found

    def preceding(self, key: K) -> K | None:
        """Return the highest existing key below `key`."""
        found = self._stored_below(key)
        if found is not None and self._is_hidden(found):
            found = self._skip_down(found)
        for layer in self.layers():
            other = layer.keys.below(key)
            if other is not None and (found is None or other > found):
                found = other
        return found

    def _is_hidden(self, key: K) -> bool:
        current = self.current
        if current is not None and key in current.hidden:
            return True
        for layer in self.below:  # noqa: SIM110 (any() costs three times as much)
            if key in layer.hidden:
                return True
        return False

    # A reader that takes 10,000 messages from the head before the first sync would step over all of
    # them on each read. Therefore runs of hidden stored keys are remembered. They only grow until
    # the snapshot changes.

    def _hide_below(self, key: K) -> None:
        """Note that a key is now hidden in everything below the current layer."""
        for layer in self.below:
            if key in layer.rows:
                layer.keys.discard(key)
        if self._runs:
            self._grow_runs(key)

    def _grow_runs(self, key: K) -> None:
        for run in self._runs:
            if run.following == key:
                run.high = key

    def _skip_up(self, key: K, found: K) -> K | None:
        above: K | None = found
        while above is not None and self._is_hidden(above):
            run = self._run_with(above)
            high = above if run is None else run.high
            above = self._stored_ceiling(self._successor(high))
        self._remember(Run(key, high, above))
        return above

    def _skip_down(self, found: K) -> K | None:
        below: K | None = found
        while below is not None and self._is_hidden(below):
            run = self._run_with(below)
            low = below if run is None else run.low
            below = self._stored_below(low)
        self._remember(Run(low, found, None))
        return below

    def _run_with(self, key: K) -> Run[K] | None:
        for run in self._runs:
            if run.low <= key <= run.high:
                return run
        return None

    def _remember(self, new: Run[K]) -> None:
        for run in self._runs:
            if run.low <= new.high and new.low <= run.high:
                if new.high >= run.high:
                    run.high, run.following = new.high, new.following
                run.low = min(run.low, new.low)
                return
        if len(self._runs) == _MAX_RUNS:
            del self._runs[0]
        self._runs.append(new)
