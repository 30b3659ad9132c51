"""10,000 queues of one computer in the directory: `make soak`."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lanner.directory.ldap import CachedDirectory
from lanner.directory.ldap.messages import Add
from lanner.directory.protocol import read_all
from lanner.model.directory_objects import Queue
from lanner.model.enums import DirectoryOperationResult
from tests.active_directory.conftest import World, equals
from tests.active_directory.domain import start

QUEUES = 10_000


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_ten_thousand_queues(tmp_path: Path) -> None:
    domain = start(tmp_path / "domain")
    try:
        world = World(domain)
        world.add_manager()
        world.add_queue("0", label="queue 0")
        with domain.connected() as connection:
            for number in range(1, QUEUES):
                attributes = {"objectClass": "mSMQQueue", "mSMQLabelEx": f"queue {number}"}
                listed = tuple((name, (value,)) for name, value in attributes.items())
                connection.perform(Add(f"CN={number},{world.dn}", listed))
        found = world.all("Queue", None)
        assert {one.label for one in found if isinstance(one, Queue)} == {f"queue {n}" for n in range(QUEUES)}
        last = world.all("Queue", [equals("Label", f"queue {QUEUES - 1}")])
        assert [one.pathname for one in last if isinstance(one, Queue)] == [f"{world.computer}\\{QUEUES - 1}"]
        # As MSMQQuery reads them, while the engine goes on reading single objects.
        cached = CachedDirectory(world.directory)
        searching = threading.Thread(target=lambda: every.extend(read_all(cached.apart(), Queue)[1]))
        every: list[Queue] = []
        searching.start()
        answers: list[DirectoryOperationResult] = []
        while searching.is_alive():
            name = f"{world.computer}\\{len(answers) % QUEUES}"
            answers.append(cached.read("Queue", [equals("Pathname", name)])[0])
        assert len(every) == QUEUES
        assert set(answers) == {DirectoryOperationResult.SUCCESS}
        cached.close()
    finally:
        domain.stop()
