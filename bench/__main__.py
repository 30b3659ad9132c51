"""Run the benchmarks and print a report in Markdown.

    python -m bench [NAME ...]        Lanner beside other brokers (`bench/cases.py`)
    python -m bench --against REV     the working tree beside another commit (`bench/against.py`)

Each has its own `--help`.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from bench import against
from bench.cases import CASES, Bench
from bench.machine import facts
from bench.peers.process import BUILD
from bench.report import Writer
from bench.workload import DEFAULT, QUICK

PREAMBLE = """\
Bodies of 1 KiB. Medians of {rounds} alternating rounds; ± is half the range between the slowest and the fastest \
round. A ratio above 1
means that Lanner is better. Under "Service", server and clients are processes of their own. Elsewhere Lanner runs in \
the benchmark's own
Python process, its peers in theirs, reached over loopback by a C client on the same machine.
"""


class Tee:
    """A writer that copies its output to several files."""

    def __init__(self, *files: Writer) -> None:
        self._files = files

    def write(self, text: str, /) -> None:
        for file in self._files:
            file.write(text)

    def flush(self) -> None:
        for file in self._files:
            file.flush()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Lanner and its peers, measured in one run.",
        epilog="python -m bench --against REV compares the working tree with another commit; "
        "python -m bench --against REV --help describes its options.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; all by default")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="small counts: under a minute, and only roughly right")
    length.add_argument("--full", action="store_true", help="the deep queue of the peers too: many minutes more")
    parser.add_argument("--no-peers", action="store_true", help="Lanner alone")
    parser.add_argument("--rounds", type=int, help=f"{DEFAULT.rounds} by default")
    parser.add_argument("--directory", type=Path, help="on the disk to measure; build/ by default")
    parser.add_argument("--output", type=Path, help="write the report to this file too")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in CASES]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(CASES)}")
    return arguments


def run(arguments: argparse.Namespace, out: Writer) -> None:
    scale = QUICK if arguments.quick else DEFAULT
    if arguments.rounds:
        scale = dataclasses.replace(scale, rounds=arguments.rounds)
    start = time.monotonic()
    BUILD.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.directory or BUILD))
    try:
        print("# Benchmarks\n", file=out)
        for name, fact in facts(directory).items():
            print(f"- {name}: {fact}", file=out)
        print(f"\n{PREAMBLE.format(rounds=scale.rounds)}", file=out)
        with Bench(directory, scale, peers=not arguments.no_peers, full=arguments.full, out=out) as bench:
            for name in arguments.names or CASES:
                CASES[name](bench)
        print(f"The run took {time.monotonic() - start:.0f} s.", file=out)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    # SIGTERM ends a run like Ctrl-C, so that processes and temporary files are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if any(word.partition("=")[0] == "--against" for word in sys.argv[1:]):
        against.main(sys.argv[1:])
        return
    arguments = parse()
    if arguments.output is None:
        run(arguments, sys.stdout)
        return
    with arguments.output.open("w", encoding="utf-8") as copy:
        run(arguments, Tee(sys.stdout, copy))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
