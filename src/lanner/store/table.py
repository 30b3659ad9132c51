"""Small metadata tables: sorted maps of bytes, committed in the same batches as the messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lanner.store.environment import Environment
from lanner.store.format import table_key
from lanner.store.overlay import Layer, Overlay

__all__ = ["Table"]

# LMDB limits keys to 511 bytes. The table's name and its length byte are part of the key.
MAX_KEY = 511


class Table(Overlay[bytes, bytes, None]):
    """A metadata table. All methods need the store's lock and return the newest state."""

    __slots__ = ("_begin", "_environment", "_prefix", "name")

    def __init__(
        self, name: str, environment: Environment, begin: Callable[[Table], Layer[bytes, bytes, None]]
    ) -> None:
        super().__init__()
        self.name = name
        self._prefix = table_key(name, b"")
        self._environment = environment
        self._begin = begin

    def _read_stored(self, key: bytes) -> bytes | None:
        environment = self._environment
        return environment.txn.get(self._prefix + key, db=environment.tables)

    def put(self, key: bytes, value: bytes) -> None:
        if len(self._prefix) + len(key) > MAX_KEY:
            raise ValueError(f"table {self.name}: a key of {len(key)} bytes, at most {MAX_KEY - len(self._prefix)}")
        layer = self.current or self._begin(self)
        if key not in layer.rows:
            layer.keys.add(key)
        layer.rows[key] = value

    def delete(self, key: bytes) -> None:
        layer = self.current or self._begin(self)
        if key in layer.rows:
            del layer.rows[key]
            layer.keys.discard(key)
        layer.hidden[key] = None
        self._hide_below(key)

    def first(self, prefix: bytes = b"") -> tuple[bytes, bytes] | None:
        """Return the row with the lowest key that begins with `prefix`."""
        return self._row(self.ceiling(prefix), prefix)

    def items(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows whose keys begin with `prefix`, in key order.

        The table may change meanwhile.
        """
        row = self.first(prefix)
        while row is not None:
            yield row
            row = self._row(self.ceiling(row[0] + b"\0"), prefix)

    def _row(self, key: bytes | None, prefix: bytes) -> tuple[bytes, bytes] | None:
        if key is None or not key.startswith(prefix):
            return None
        value = self.get(key)
        return None if value is None else (key, value)

    def _stored_ceiling(self, key: bytes) -> bytes | None:
        cursor = self._environment.table_cursor
        if not cursor.set_range(self._prefix + key):
            return None
        found = cursor.key()
        return found[len(self._prefix) :] if found.startswith(self._prefix) else None

    def _stored_below(self, key: bytes) -> bytes | None:
        cursor = self._environment.table_cursor
        if not (cursor.prev() if cursor.set_range(self._prefix + key) else cursor.last()):
            return None
        found = cursor.key()
        return found[len(self._prefix) :] if found.startswith(self._prefix) else None

    def _successor(self, key: bytes) -> bytes:
        return key + b"\0"
