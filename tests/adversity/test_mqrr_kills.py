"""Readers by MS-MQRR: 500 that wait, and kill -9 of client and server while messages are taken."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import lanner
from tests.adversity.served import LANNER, PASSWORD, ROOT, Served
from tests.client.other_manager import until
from tests.services.mqrr_peer import FOREVER, RECEIVE, Site, served

USER = "alice"
MESSAGES, CLIENT_KILLS, SERVER_KILLS = 3000, 8, 3


@served
async def test_500_readers_wait_and_each_message_goes_to_one(site: Site) -> None:
    peers = [await site.peer() for _ in range(25)]
    opened = [await site.opened(peer=peer) for peer in peers for _ in range(4)]
    waiting = [queue.begin(RECEIVE, FOREVER) for queue in opened for _ in range(5)]
    await asyncio.gather(*(queue.cursor() for queue in opened))
    assert len(waiting) == 500
    with site.runtime.lock:
        assert len(site.operations.find(".\\private$\\q").waiting_reads) == 500
    bodies = [str(number).encode() for number in range(500)]
    site.send(*bodies)
    got = await asyncio.gather(*waiting)
    assert sorted(one.body for one in got) == sorted(bodies)
    owners = [queue for queue in opened for _ in range(5)]
    ended = await asyncio.gather(*(queue.end(one) for queue, one in zip(owners, got, strict=True)))
    assert set(ended) == {0}
    assert site.count() == 0


def restarted(site: Served) -> None:
    """Kill the queue manager, and start it again on the same directory and address."""
    site.process.send_signal(signal.SIGKILL)
    site.process.wait()
    assert site.process.stdout is not None
    site.process.stdout.close()
    config = site.folder / "lanner.toml"
    arguments = ["--data", str(site.data), "--name", site.name, "--bind", site.address, "--config", str(config)]
    with site.log.open("ab") as errors:
        site.process = subprocess.Popen(
            [LANNER, "serve", *arguments, "--json"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert site.process.stdout is not None
    assert site.process.stdout.readline(), site.log.read_text()


def reader(site: Served, log: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.adversity.mqrr_reader", site.address, USER, PASSWORD, str(log)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def written(log: Path) -> int:
    """Return how many lines the readers have written."""
    return log.read_bytes().count(b"\n")


def has_written(log: Path, lines: int) -> bool:
    return written(log) >= lines


def killed(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_kills_of_client_and_server_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(18)
    log = tmp_path / "log"
    log.touch()
    with Served(tmp_path, "KILLED", users=(USER,)) as site:
        with site.manager() as manager:
            queue = manager.create_queue(r".\private$\work")
            queue.grant(USER, "full")
            queue.send_many([lanner.Message(body=str(n).encode(), recoverable=True) for n in range(MESSAGES)])
        kills = ["client"] * CLIENT_KILLS + ["server"] * SERVER_KILLS
        chance.shuffle(kills)
        for victim in kills:
            wanted = written(log) + chance.randrange(1, 60)
            process = reader(site, log)
            until(partial(has_written, log, wanted))
            if victim == "server":
                restarted(site)
            killed(process)
        with site.manager() as manager:
            queue = manager.open(r".\private$\work")
            # What a killed reader held is given back with its connection.
            left = [one.body_bytes.decode() for one in queue.receive_many(MESSAGES, timeout=5)]
            assert queue.count() == 0
    lines = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 1]
    done = Counter(body for what, body in lines if what == "done")
    got = {body for what, body in lines if what == "got"}
    assert done
    assert max(done.values()) == 1, "a message was taken twice"
    assert Counter(left).most_common(1)[0][1] == 1 if left else True
    assert not done.keys() & set(left), "a message that was taken is back"
    assert got | set(left) == {str(number) for number in range(MESSAGES)}, "a message is lost"
    # A message that came and was not known to be acknowledged was in flight at a kill.
    assert len(got - done.keys() - set(left)) <= 4 * len(kills)
