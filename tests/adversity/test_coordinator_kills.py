"""Distributed transactions over two queue managers and PostgreSQL, with SIGKILL at every step.

After each kill the victim is restarted and the next process resolves what is in doubt. Then every
message is either in the first queue, or in the table and in the second queue, and nothing is in
doubt.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lanner
from tests.adversity.coordinator_worker import SOURCE, TARGET
from tests.adversity.served import free_address
from tests.postgresql import PostgreSql, postgresql

ROOT: Final = Path(__file__).parents[2]
LANNER: Final = Path(sys.executable).with_name("lanner")
# Every step of a commit, in the words of its log; the last is that nothing is left to do.
STEPS: Final = (
    "beginning",
    "preparing .",
    "preparing beta",
    "preparing ledger",
    "deciding",
    "committing .",
    "committing beta",
    "committing ledger",
    "forgetting",
    "committed",
)
# The process that works is also the coordinator's, where its queue manager is embedded.
VICTIMS: Final = {"embedded": ("self", "beta", "postgresql"), "service": ("self", "alpha", "beta", "postgresql")}
_SETTINGS: Final = (
    "[com]\nenabled = false\n[flight]\nenabled = false\n[rpc]\nenabled = false\n[transfer]\nenabled = false\n"
)


class Service:
    """`lanner serve` with nothing but its Unix socket, which can be killed and started again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.data = folder / name
        self._name = name
        self._config = folder / f"{name}.toml"
        self._config.write_text(_SETTINGS)
        self._address = free_address()
        self.start()

    def start(self) -> None:
        arguments: list[str | Path] = [
            "--data",
            self.data,
            "--name",
            self._name,
            "--bind",
            self._address,
            "--config",
            self._config,
        ]
        with self._config.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen([LANNER, "serve", *arguments, "--json"], stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), self._config.with_suffix(".log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


class Kills:
    """Two queue managers and a database over many lives of all of them."""

    def __init__(self, folder: Path, where: str, server: PostgreSql, messages: int) -> None:
        self._where = where
        self._data = folder / "alpha"
        self._server = server
        self._all = list(range(messages))
        self.beta = Service(folder, "BETA")
        self._services = {"beta": self.beta}
        self._worker: subprocess.Popen[str] | None = None
        server.execute("DROP TABLE IF EXISTS ledger")
        server.execute("CREATE TABLE ledger (id int PRIMARY KEY)")
        with lanner.connect(data=self.beta.data) as manager:
            manager.create_queue(TARGET, transactional=True)
        if where == "service":
            self._services["alpha"] = alpha = Service(folder, "ALPHA")
            self._data = alpha.data
            with lanner.connect(data=alpha.data) as manager:
                self._fill(manager)
        else:
            with lanner.QueueManager(self._data, name="ALPHA") as manager:
                self._fill(manager)
        self.kills = 0

    def _fill(self, manager: lanner.QueueManager) -> None:
        queue = manager.create_queue(SOURCE, transactional=True)
        with manager.transaction() as transaction:
            queue.send_many([lanner.Message(body=b"%d" % number) for number in self._all], transaction=transaction)

    def start(self) -> None:
        """Start a worker, and check that all is well when it has resolved what was in doubt."""
        arguments = [self._data, self._where, self.beta.data, self._server.dsn]
        self._worker = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.coordinator_worker", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._check(self._hear())

    def _check(self, told: Any) -> None:  # noqa: ANN401 (JSON)
        assert told, self._errors()
        source, target = told["source"], sorted(told["target"])
        rows = sorted(number for (number,) in told["rows"])
        where = f"after {self.kills} kills: "
        assert told["in_doubt"] == [], where + str(told["in_doubt"])
        assert self._server.prepared() == []
        assert rows == target, where + "table and queue differ"
        assert len(set(target)) == len(target), where + "a message came twice"
        assert sorted(source + target) == self._all, where + "a message is lost or doubled"

    def _hear(self) -> Any:  # noqa: ANN401 (JSON)
        assert self._worker is not None
        assert self._worker.stdout is not None
        line = self._worker.stdout.readline()
        return json.loads(line) if line else None

    def _say(self, what: object) -> None:
        assert self._worker is not None
        assert self._worker.stdin is not None
        self._worker.stdin.write(json.dumps(what) + "\n")
        self._worker.stdin.flush()

    def _errors(self) -> str:
        assert self._worker is not None
        assert self._worker.stderr is not None
        return self._worker.stderr.read()

    def kill_at(self, step: str, victim: str, *, after: int) -> None:
        """Kill a victim when the worker has come to a step for the last of so many times."""
        self._say([step, victim, after])
        if victim != "self":
            assert self._hear() == "step", self._errors()
            self._kill(victim)
            self._say("killed")
        self._bury(victim)

    def kill_some_time(self, victim: str, seconds: float) -> None:
        """Kill a victim wherever the worker is."""
        self._say(["", "nobody", 1])
        time.sleep(seconds)
        self._kill(victim)
        self._bury(victim)

    def _kill(self, victim: str) -> None:
        assert self._worker is not None
        if victim == "self":
            self._worker.kill()
        elif victim == "postgresql":
            self._server.kill()
        else:
            self._services[victim].kill()

    def _bury(self, victim: str) -> None:
        """Wait for the end of the worker, which ends with its victim, and restart the victim."""
        assert self._worker is not None
        self.kills += 1
        try:
            # One that was about to end a transaction may do many others before it meets the victim
            # again.
            self._worker.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.communicate()
            raise
        if victim == "postgresql":
            self._server.start()
        elif victim != "self":
            self._services[victim].start()

    def close(self) -> None:
        """End everything; the last state is looked at once more."""
        if self._worker is not None and self._worker.poll() is None:
            self._worker.kill()
            self._worker.communicate()
        for service in self._services.values():
            service.stop()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSql]:
    with postgresql() as started:
        yield started


@pytest.fixture(params=VICTIMS)
def where(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def rounds(where: str, tmp_path: Path, server: PostgreSql, plan: list[tuple[str, str]], seed: int) -> None:
    """Kill as planned, and look after each kill; an empty step is a random moment."""
    chance = random.Random(seed)
    tmp_path.mkdir(exist_ok=True)
    kills = Kills(tmp_path, where, server, messages=40 * len(plan))
    try:
        for step, victim in plan:
            kills.start()
            if step:
                kills.kill_at(step, victim, after=chance.randint(1, 2))
            else:
                kills.kill_some_time(victim, chance.uniform(0.0, 0.15))
        kills.start()
        assert kills.kills == len(plan)
    finally:
        kills.close()


@pytest.mark.timeout(600)
def test_a_kill_at_each_step_leaves_all_or_nothing(where: str, tmp_path: Path, server: PostgreSql) -> None:
    """Each step is met once, by one victim after the other."""
    victims = VICTIMS[where]
    plan = [(step, victims[number % len(victims)]) for number, step in enumerate(STEPS)]
    rounds(where, tmp_path, server, [*plan, *[("", victim) for victim in victims]], seed=1)


@pytest.mark.soak
def test_500_kills_leave_all_or_nothing(tmp_path: Path, server: PostgreSql) -> None:
    """Every victim at every step, and at random moments.

    LANNER_KILLS says how many, LANNER_SEED where to begin.
    """
    total, seed = int(os.environ.get("LANNER_KILLS", "500")), int(os.environ.get("LANNER_SEED", "7"))
    pairs = [(where, step, victim) for where, victims in VICTIMS.items() for step in STEPS for victim in victims]
    pairs += [(where, "", victim) for where, victims in VICTIMS.items() for victim in victims for _ in range(3)]
    random.Random(seed).shuffle(pairs)
    wanted = [pairs[number % len(pairs)] for number in range(total)]
    for where in VICTIMS:
        plan = [(step, victim) for place, step, victim in wanted if place == where]
        rounds(where, tmp_path / where, server, plan, seed)
