"""How it survives: the embedded store on LMDB, group commit, recovery.

`Store` is the one door. The theory (snapshot and overlay, group commit, what fails and how) is told at the
top of `commit.py`.
"""

from __future__ import annotations

from lanner.store.counters import Counter
from lanner.store.record import Record
from lanner.store.store import Store
from lanner.store.table import Table

__all__ = ["Counter", "Record", "Store", "Table"]
