"""Public queues, sites and routing links: MS-MQDSSM 3.1.6 with a directory in the store."""

from lanner.directory.embedded import EmbeddedDirectory
from lanner.directory.filters import AttributeFilter, Operator, SortOrder, matches
from lanner.directory.protocol import Directory, MemoryTable, Table, read_all

__all__ = [
    "AttributeFilter",
    "Directory",
    "EmbeddedDirectory",
    "MemoryTable",
    "Operator",
    "SortOrder",
    "Table",
    "matches",
    "read_all",
]
