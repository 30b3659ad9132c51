"""Durability: the embedded store on LMDB, with a write-ahead log, group commit and recovery.

`Store` is the public class. The module docstring of `commit.py` explains snapshots, layers, group
commit and failures.
"""

from __future__ import annotations

from lanner.store.counters import Counter
from lanner.store.record import Record
from lanner.store.store import Store
from lanner.store.table import Table

__all__ = ["Counter", "Record", "Store", "Table"]
