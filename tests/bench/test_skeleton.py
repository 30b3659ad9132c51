"""The bare skeleton of a transfer stores what it acknowledges.

It is the limit that Lanner is measured against.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import lmdb

from bench.peers.process import free_port
from bench.skeleton import Skeleton

COUNT = 200


def test_every_run_is_stored_also_in_a_directory_that_has_packets(tmp_path: Path) -> None:
    directory = tmp_path / "lmdb"
    with closing(Skeleton("127.0.0.1", free_port(), directory)) as skeleton:
        skeleton.rate(COUNT)
        skeleton.rate(COUNT)
    with lmdb.open(str(directory), readonly=True) as environment:
        assert environment.stat()["entries"] == 2 * COUNT
