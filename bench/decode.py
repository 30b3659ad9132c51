"""Decoding packets to rows: whole batches against one message at a time.

    python -m bench.decode [--messages N] [--size BYTES]

The result is the best of several alternating rounds, in processor time, because other work on the
machine disturbs it much less than rates.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable

from bench.report import print_rows
from lanner.spark.columnar.decode import decode_packets
from lanner.spark.columnar.rows import read_row
from lanner.spark.columnar.schema import RowSchema
from lanner.wire.builder import MessageProperties, build
from lanner.wire.format_name import parse
from lanner.wire.sid import LOCAL_SYSTEM

BATCH = 4000  # messages; about 4 MiB, as the Flight service sends them
ROUNDS = 5


def packets(count: int, size: int) -> list[bytes]:
    source, destination = uuid.uuid4(), parse(r"DIRECT=OS:bench\private$\orders")
    body, sender = os.urandom(size), LOCAL_SYSTEM.pack()
    return [
        build(
            MessageProperties(body=body, label=f"order {number}", sender_identifier=sender),
            source=source,
            ordinal=number,
            sent_time=1_700_000_000,
            destination=destination,
        )
        for number in range(count)
    ]


def one_by_one(found: list[bytes]) -> None:
    for packet in found:
        read_row(packet, "destination")


def batches(schema: RowSchema) -> Callable[[list[bytes]], None]:
    def work(found: list[bytes]) -> None:
        for start in range(0, len(found), BATCH):
            decode_packets(found[start : start + BATCH], schema=schema)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description="Packets to rows.")
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--size", type=int, default=1024, help="of a body")
    arguments = parser.parse_args()
    found = packets(arguments.messages, arguments.size)
    ways = {
        "one by one, all columns": one_by_one,
        "batches, all columns": batches(RowSchema()),
        "batches, all but bodies": batches(RowSchema.select(include_body=False)),
        "batches, core columns": batches(RowSchema.select("core")),
    }
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, work in ways.items():
            start = time.process_time()
            work(found)
            cost = (time.process_time() - start) / len(found) * 1e6
            best[name] = min(cost, best.get(name, cost))
    slowest = best["one by one, all columns"]
    rows = [[name, f"{cost:.2f}", f"{slowest / cost:.1f}"] for name, cost in best.items()]
    print_rows([["", "us per message", "times faster"], *rows], sys.stdout)


if __name__ == "__main__":
    main()
