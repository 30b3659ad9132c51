"""The control socket: who may ask, how much, and what bad requests get."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lanner.client import QueueManager, control_socket
from lanner.client.administration import Administration
from lanner.client.control_socket import CONTROL_SOCKET, MAX_CONTROL_LINE, ControlListener, control_path


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    # Longer than a socket address can be.
    path = tmp_path / ("long" * 30)
    yield path
    shutil.rmtree(tmp_path)


def while_serving(data: Path, work: Callable[[Path], Awaitable[None]]) -> None:
    async def run(manager: QueueManager) -> None:
        listener = ControlListener(data, lambda _loop: Administration(manager.runtime))
        await listener.start()
        try:
            await work(data)
        finally:
            await listener.stop()

    with QueueManager(data, "alpha") as manager:
        asyncio.run(run(manager))


async def connect(data: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with control_path(data) as path:
        return await asyncio.open_unix_connection(path)


async def say(data: Path, *lines: bytes) -> list[Any]:
    """Send lines on one connection; what comes back until it is closed, or as many answers as lines."""
    reader, writer = await connect(data)
    answers = []
    with contextlib.suppress(ConnectionError):
        for line in lines:
            writer.write(line)
            answer = await reader.readline()
            if not answer:
                break
            answers.append(json.loads(answer))
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answers


def test_only_the_owner_can_open_it_and_it_goes_with_its_process(data: Path) -> None:
    async def work(data: Path) -> None:
        assert stat.S_IMODE((data / CONTROL_SOCKET).stat().st_mode) == 0o600
        assert stat.S_ISSOCK((data / CONTROL_SOCKET).stat().st_mode)

    while_serving(data, work)
    assert not (data / CONTROL_SOCKET).exists()


def test_one_connection_may_ask_often(data: Path) -> None:
    async def work(data: Path) -> None:
        first, second = await say(data, b'{"request": "status"}\n', b'{"request": "outgoing list"}\n')
        assert (first["answer"]["name"], second) == ("ALPHA", {"answer": []})

    while_serving(data, work)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"hello\n", "the request is not JSON"),
        (b"\xff\n", "the request is not JSON"),
        (b"[" * 10_000 + b"\n", "the request is not JSON"),
        (b"[]\n", "a request is an object"),
        (b"{}\n", "a request needs the text `request`"),
        (b'{"request": "destroy"}\n', "unknown request 'destroy': one of status, outgoing list"),
        (b'{"request": "outgoing show"}\n', "a request needs the text `name`"),
        (b'{"request": "outgoing show", "name": 7}\n', "a request needs the text `name`"),
        (b'{"request": "peer", "name": "x", "addresses": [1]}\n', "a request needs the list of texts `addresses`"),
        (b'{"request": "outgoing show", "name": "x"}\n', "no outgoing queue has 'x' in its name"),
        (b'{"request": "reports", "queue": "none"}\n', "none"),
    ],
)
def test_a_bad_request_is_answered_and_the_next_one_too(data: Path, line: bytes, complaint: str) -> None:
    async def work(data: Path) -> None:
        refused, answered = await say(data, line, b'{"request": "outgoing list"}\n')
        assert complaint in refused["error"]
        assert answered == {"answer": []}

    while_serving(data, work)


def test_a_fault_of_ours_is_told_and_logged(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Administration, "status", broken)

    async def work(data: Path) -> None:
        (answer,) = await say(data, b'{"request": "status"}\n')
        assert "ZeroDivisionError: oops; this is a fault of lanner" in answer["error"]

    while_serving(data, work)
    assert "oops" in caplog.text


def test_a_request_has_a_length(data: Path) -> None:
    """At the limit it is read; beyond it nobody waits for its end."""
    start = b'{"request": "outgoing list", "x": "'

    async def work(data: Path) -> None:
        most = start + b"x" * (MAX_CONTROL_LINE - len(start) - 2) + b'"}'
        assert len(most) == MAX_CONTROL_LINE
        assert await say(data, most + b"\n") == [{"answer": []}]
        (answer, *rest) = await say(data, most + b" \n", b"{}\n")
        assert answer == {"error": f"a request has at most {MAX_CONTROL_LINE} bytes"}
        assert rest == []

    while_serving(data, work)


def test_somebody_else_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stranger:
        size = 12

        @staticmethod
        def unpack(_: bytes) -> tuple[int, int, int]:
            return 1, 4242, 4242

    monkeypatch.setattr(control_socket, "_UCRED", Stranger)

    async def work(data: Path) -> None:
        (answer, *rest) = await say(data, b'{"request": "status"}\n', b'{"request": "status"}\n')
        assert "not uid 4242" in answer["error"]
        assert rest == []

    while_serving(data, work)
    assert "uid 4242 was refused" in caplog.text


def test_too_many_at_once_are_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "MAX_CONNECTIONS", 1)

    async def work(data: Path) -> None:
        reader, writer = await connect(data)
        writer.write(b'{"request": "outgoing list"}\n')
        await reader.readline()
        (answer,) = await say(data, b'{"request": "outgoing list"}\n')
        assert "others are asking already" in answer["error"]
        writer.close()
        await writer.wait_closed()

    while_serving(data, work)


def test_who_is_connected_is_let_go_when_it_stops(data: Path) -> None:
    async def run(manager: QueueManager) -> None:
        listener = ControlListener(data, lambda _loop: Administration(manager.runtime))
        await listener.start()
        reader, writer = await connect(data)
        writer.write(b'{"request": "outgoing list"}\n')
        assert await reader.readline() == b'{"answer": []}\n'
        await listener.stop()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    with QueueManager(data, "alpha") as manager:
        asyncio.run(run(manager))


def test_the_socket_of_a_process_that_was_killed_is_replaced(data: Path) -> None:
    with QueueManager(data):
        pass
    (data / CONTROL_SOCKET).touch()

    async def work(data: Path) -> None:
        assert await say(data, b'{"request": "outgoing list"}\n') == [{"answer": []}]

    while_serving(data, work)
