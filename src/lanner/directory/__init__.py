"""Public queues, sites and routing links: the directory of MS-MQDSSM 3.1.6, embedded in the queue manager's store."""

from lanner.directory.embedded import EmbeddedDirectory
from lanner.directory.filters import AttributeFilter, Operator, SortOrder, matches
from lanner.directory.protocol import Directory, MemoryTable, Table

__all__ = [
    "AttributeFilter",
    "Directory",
    "EmbeddedDirectory",
    "MemoryTable",
    "Operator",
    "SortOrder",
    "Table",
    "matches",
]
