"""kill -9 at random moments while four writers work (see worker.py): what was promised is kept."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager

ROOT = Path(__file__).parents[2]
SEQUENTIAL_ID = (1 << 56) - 1


class Kills:
    """One data directory over many lives of the worker."""

    def __init__(self, path: Path) -> None:
        self.data = path / "data"
        self.log = path / "log"
        self.log.touch()
        self.highest_id = 0
        self.kills = 0

    def live_and_die(self, chance: random.Random) -> None:
        self.kills += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.worker", self.data, self.log, str(self.kills)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(chance.uniform(0.02, 0.4))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()

    def check(self) -> None:
        lines = [line.split() for line in self.log.read_text().splitlines()]
        with QueueManager(self.data) as manager:
            found = {
                name: [(m.body_bytes.decode(), m.label, m.lookup_id) for m in manager.open(name)]
                for name in ("inbox", "done", "ledger", "archive", "plain")
            }
            self.check_nothing_lost_or_doubled(lines, found)
            self.check_plain(lines, found)
            self.check_transactions_are_whole(lines, found)
            self.check_order(found)
            self.check_sequential_id(lines, found, manager)

    @staticmethod
    def check_nothing_lost_or_doubled(lines: list[list[str]], found: dict[str, list[tuple[str, str, int]]]) -> None:
        here = Counter(body for name in ("inbox", "done") for body, _, _ in found[name])
        assert all(count == 1 for count in here.values()), "a message is in two places"
        sent = {line[1] for line in lines if line[0] == "S"}
        assert sent <= here.keys(), "an acknowledged recoverable message is gone"
        done = {body for body, _, _ in found["done"]}
        assert {line[1] for line in lines if line[0] == "G"} <= done, "a committed move was undone"

    @staticmethod
    def check_plain(lines: list[list[str]], found: dict[str, list[tuple[str, str, int]]]) -> None:
        received = Counter(line[1] for line in lines if line[0] == "P")
        assert all(count == 1 for count in received.values()), "a received message came again"
        assert not received.keys() & {body for body, _, _ in found["plain"]}, "a received message is back"

    @staticmethod
    def check_transactions_are_whole(lines: list[list[str]], found: dict[str, list[tuple[str, str, int]]]) -> None:
        parts = Counter(body for name in ("ledger", "archive") for body, _, _ in found[name])
        assert all(count == 1 for count in parts.values()), "a message was delivered twice"
        sizes = Counter(body.partition("/")[0] for body in parts)
        for line in lines:
            if line[0] == "T":
                assert sizes.pop(line[1]) == int(line[2]), "a committed transaction is not whole"
        # Committed but not logged: the kill came between; each must still be whole, from part 0 on.
        for number, size in sizes.items():
            assert {f"{number}/{part}" for part in range(size)} <= parts.keys()
        archived = {body for body, _, _ in found["archive"]}
        assert {line[1] for line in lines if line[0] == "M"} <= archived

    @staticmethod
    def check_order(found: dict[str, list[tuple[str, str, int]]]) -> None:
        lanes: dict[tuple[str, int], list[int]] = defaultdict(list)
        for body, _, _ in found["inbox"]:
            lanes["inbox", int(body) % 8].append(int(body))
        for body, priority, _ in found["done"]:
            lanes["done", int(priority)].append(int(body))
        for numbers in lanes.values():
            assert numbers == sorted(numbers), "messages of one priority changed places"
        ids = [lookup_id for _, _, lookup_id in found["inbox"]]
        assert ids == sorted(ids)

    def check_sequential_id(
        self, lines: list[list[str]], found: dict[str, list[tuple[str, str, int]]], manager: QueueManager
    ) -> None:
        logged = [int(line[-1]) for line in lines if line[0] in ("G", "X")]
        stored = [lookup_id for messages in found.values() for _, _, lookup_id in messages]
        assert len(stored) == len(set(stored))
        self.highest_id = max([self.highest_id, *(i & SEQUENTIAL_ID for i in logged + stored)])
        express = manager.open("express")
        express.send(Message(body=b"probe"))
        assert express.receive(timeout=0).lookup_id & SEQUENTIAL_ID > self.highest_id, "SequentialID was used twice"


def run(path: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    kills = Kills(path)
    for _ in range(rounds):
        kills.live_and_die(chance)
        kills.check()
    assert len(kills.log.read_text().splitlines()) > rounds, "the writers did nothing"


@pytest.mark.timeout(300)
@pytest.mark.spec("DMPR-3.1.1.1-11", "DMPR-3.1.1.12-9")
def test_kill_at_random_moments(tmp_path: Path) -> None:
    run(tmp_path, rounds=30, seed=1)


@pytest.mark.soak
def test_kill_a_thousand_times(tmp_path: Path) -> None:
    # Fresh directories now and then, so that the check does not grow with the history.
    for part in range(50):
        path = tmp_path / str(part)
        path.mkdir()
        run(path, rounds=20, seed=100 + part)
