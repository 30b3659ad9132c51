"""The connection that a client has: how it is replaced, and how long it may take to make."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from lanner.client._sync.connections import Connections
from lanner.client.target import Target
from lanner.model.errors import RemoteMachineNotAvailable
from lanner.rpc import endpoint_mapper
from lanner.rpc.faults import RpcConnectionError
from lanner.services.ports import HANDSHAKE_PORT
from tests.client import both_colours
from tests.client.peers import free_address

MAPPER_PORT = 10_135


class Line:
    """A connection without anything at its other end."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


class NotingLock:
    """A lock that notes when a thread has to wait for it."""

    def __init__(self, is_contended: threading.Event) -> None:
        self._lock = threading.Lock()
        self._is_contended = is_contended

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._is_contended.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_a_thread_that_reports_a_lost_connection_leaves_alone_what_another_has_made() -> None:
    """The reporting thread pauses after it has recognized the lost connection.

    It continues when the other thread is there.
    """
    has_looked, other_is_there = threading.Event(), threading.Event()
    made: list[Line] = []

    def make(target: Target) -> Line:
        del target
        made.append(Line())
        return made[-1]

    class Scheduled(Connections[Line]):
        is_reporting = False
        kept: Line | None = None

        @property
        def _connection(self) -> Line | None:
            found = self.kept
            if self.is_reporting and threading.current_thread() is late and not has_looked.is_set():
                has_looked.set()
                assert other_is_there.wait(30)
            return found

        @_connection.setter
        def _connection(self, value: Line | None) -> None:
            self.kept = value

    connections = Scheduled(Target("127.0.0.1"), make)
    connections._lock = NotingLock(other_is_there)  # type: ignore[assignment] # as much of a lock as is used

    def fail(line: Line) -> None:
        line.is_open = False
        connections.is_reporting = True
        raise RpcConnectionError("cut")

    def report() -> None:
        with contextlib.suppress(RemoteMachineNotAvailable):
            connections.do("", fail)

    def connect_again() -> None:
        connections.now()
        other_is_there.set()

    late, other = threading.Thread(target=report), threading.Thread(target=connect_again)
    late.start()
    assert has_looked.wait(30)
    other.start()
    for thread in (late, other):
        thread.join()
    assert [line.is_open for line in made] == [False, True]
    assert connections.now() is made[1]
    assert len(made) == 2


@contextlib.contextmanager
def silent(address: str, port: int) -> Iterator[None]:
    """Accept connections, and say nothing."""
    with socket.create_server((address, port)):
        yield


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_attempt_to_connect_ends_where_the_endpoint_mapper_and_the_port_keep_silent(
    colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = free_address()
    # That of endpoint mappers is for administrators only.
    monkeypatch.setattr(endpoint_mapper, "EPMAPPER_PORT", MAPPER_PORT)
    with (
        silent(address, MAPPER_PORT),
        silent(address, HANDSHAKE_PORT),
        pytest.raises(RemoteMachineNotAvailable, match=rf"{address} did not answer in 0\.5 s"),
        both_colours.connect(colour, address, timeout=0.5),
    ):
        pytest.fail("nobody has answered")
