"""The directory as the engine uses it: answers are kept, and no call waits for long."""

from __future__ import annotations

import os
import signal
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from lanner.directory import AttributeFilter
from lanner.directory.ldap import cached as module
from lanner.directory.ldap.cached import LIFETIME, RENEWAL_AGE, CachedDirectory
from lanner.directory.ldap.directory import LdapDirectory
from lanner.directory.protocol import read_all
from lanner.model.directory_objects import DirectoryObject, Queue
from lanner.model.enums import DirectoryOperationResult
from tests.active_directory.conftest import World, equals
from tests.active_directory.domain import ADMINISTRATOR, SERVER, Domain
from tests.client.other_manager import until

SUCCESS = DirectoryOperationResult.SUCCESS
NOT_CONNECTED = DirectoryOperationResult.DIRECTORY_NOT_CONNECTED
HOURS = 3600.0


class SlowDirectory(LdapDirectory):
    """A directory whose answers can be held up on their way."""

    def __init__(self) -> None:
        super().__init__(lambda: [SERVER], ADMINISTRATOR)
        self.has_read, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self.initialize()

    def read(
        self,
        object_type: str,
        filters: Sequence[AttributeFilter] | None,
        attributes: Sequence[str] | None = None,
    ) -> tuple[DirectoryOperationResult, DirectoryObject | None]:
        found = super().read(object_type, filters, attributes)
        self.has_read.set()
        self.go_on.wait()
        return found


class Kept:
    """A queue with a label in the directory, and a cache with a clock of its own."""

    def __init__(self, world: World, directory: LdapDirectory | None = None) -> None:
        self.world = world
        world.add_manager()
        self.wanted = [equals("Identifier", world.add_queue("orders", label="old"))]
        self.now = 1000.0
        self.directory = CachedDirectory(directory or world.directory, patience=60, clock=lambda: self.now)

    def label(self) -> str:
        result, found = self.directory.read("Queue", self.wanted)
        assert result is SUCCESS
        assert isinstance(found, Queue)
        return found.label

    def change(self, label: str) -> None:
        """Have another computer change the queue."""
        self.world.domain.modify(f"CN=orders,{self.world.dn}", mSMQLabelEx=label)


@pytest.fixture
def kept(world: World) -> Iterator[Kept]:
    found = Kept(world)
    yield found
    found.directory.close()


@contextmanager
def hanging(domain: Domain) -> Iterator[None]:
    """A domain controller that accepts connections, and does not answer."""
    process = domain._process
    assert process is not None
    os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)


def unknown(directory: CachedDirectory) -> DirectoryOperationResult:
    return directory.read("Queue", [equals("Identifier", uuid.uuid4())])[0]


def test_an_answer_that_is_used_is_renewed_before_it_expires(kept: Kept) -> None:
    assert kept.label() == "old"
    kept.change("new")
    kept.now += RENEWAL_AGE - 1
    assert kept.label() == "old"
    kept.now += 1
    assert kept.label() == "old", "the one who asks does not wait"
    until(lambda: kept.label() == "new")


def test_an_answer_that_has_expired_is_read_again(kept: Kept) -> None:
    assert kept.label() == "old"
    kept.change("new")
    kept.now += LIFETIME
    assert kept.label() == "new"


def test_a_renewal_from_before_a_change_is_not_kept(world: World) -> None:
    slow = SlowDirectory()
    kept = Kept(world, slow)
    assert kept.label() == "old"
    slow.go_on.clear()
    slow.has_read.clear()
    kept.now += RENEWAL_AGE
    assert kept.label() == "old"
    slow.has_read.wait()
    kept.directory._changed()
    kept.change("new")
    slow.go_on.set()
    until(lambda: not kept.directory._renewals)
    assert kept.label() == "new"
    kept.directory.close()


def test_a_directory_that_hangs_is_waited_for_once(
    world: World, domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_INTERVAL", 0.05)
    kept = Kept(world)
    directory = kept.directory
    try:
        assert kept.label() == "old"
        with hanging(domain):
            directory._caller._patience = 0.2
            assert unknown(directory) is NOT_CONNECTED
            # Whatever waited now would wait until the test fails.
            directory._caller._patience = HOURS
            for _ in range(3):
                kept.now += HOURS
                assert unknown(directory) is NOT_CONNECTED
                assert directory.initialize() is NOT_CONNECTED
                assert directory.create_object(world.queue("none")) == (NOT_CONNECTED, None)
                assert kept.label() == "old"
                assert isinstance(directory.recall("Queue", kept.wanted), Queue)
        until(lambda: unknown(directory) is DirectoryOperationResult.OBJECT_NOT_FOUND)
        assert kept.label() == "old"
    finally:
        directory.close()


def test_long_reads_do_not_delay_the_others(kept: Kept, domain: Domain) -> None:
    """They have a connection of their own, and no limit for the engine's sake."""
    go_on = threading.Event()
    kept.directory._caller.submit(go_on.wait)
    result, found = read_all(kept.directory.apart(), Queue, [equals("Label", "old")])
    assert (result, [one.identifier for one in found]) == (SUCCESS, [kept.wanted[0].value])
    go_on.set()
    assert kept.label() == "old"
