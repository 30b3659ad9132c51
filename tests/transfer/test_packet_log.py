"""One line for each packet, at DEBUG and nowhere else."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from lanner.model.enums import OperatingSystemType
from lanner.transfer import packet_log
from lanner.transfer.ping import PingInitiator, ping, start_ping_service
from lanner.transfer.settings import TransferSettings
from tests.transfer.pairs import FRAMES, message
from tests.transfer.world import FakeConnection, World

GUID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def exchange(world: World) -> None:
    """Run a session with a transactional message that is received.

    Its sender wants to be told of its end.
    """
    alpha, beta = world.node("ALPHA", "127.0.0.2"), world.node("BETA", "127.0.0.3")
    beta.create("tx", transactional=True)
    alpha.commit_one(beta.direct("tx"), b"a secret", positive_journaling_requested=True)
    alpha.sync()
    world.tick(2)
    beta.receive("tx")
    beta.sync()
    world.tick(2)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == packet_log.__name__]


def verb_and_kind(line: str) -> list[str]:
    return line.split(",", maxsplit=1)[0].split(" ", 1)


def size_of(line: str) -> int:
    return int(line.split(", ")[1].split(maxsplit=1)[0])


def test_every_packet_of_a_session_has_a_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, packet_log.__name__):
        exchange(world)
    (alpha_link,) = world.nodes["127.0.0.2"].transfer.links.values()
    (beta_link,) = world.nodes["127.0.0.3"].transfer.links.values()
    written = lines(caplog)
    assert written[:4] == [
        f"sent EstablishConnection, 572 bytes, to 127.0.0.3, session {alpha_link.number}",
        f"received EstablishConnection, 572 bytes, from 127.0.0.2, session {beta_link.number}",
        f"sent EstablishConnection, 572 bytes, to 127.0.0.2, session {beta_link.number}",
        f"received EstablishConnection, 572 bytes, from 127.0.0.3, session {alpha_link.number}",
    ]
    kinds = {
        verb: Counter(kind for each, kind in map(verb_and_kind, written) if each == verb)
        for verb in ("sent", "received")
    }
    assert kinds["sent"] == kinds["received"]
    assert set(kinds["sent"]) == {
        "EstablishConnection",
        "ConnectionParameters",
        "UserMessage",
        "SessionAck",
        "OrderAck",
        "FinalAck",
    }
    assert {record.levelno for record in caplog.records if record.name == packet_log.__name__} == {logging.DEBUG}
    to_beta = [line for line in written if line.endswith(f"to 127.0.0.3, session {alpha_link.number}")]
    assert isinstance(alpha_link.connection, FakeConnection)
    assert sum(map(size_of, to_beta)) == len(b"".join(alpha_link.connection.sent))
    assert "secret" not in caplog.text


def test_no_packet_is_looked_at_while_the_log_is_off(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[bytes] = []
    monkeypatch.setattr(packet_log, "type_name", named.append)
    with caplog.at_level(logging.INFO, packet_log.__name__):
        exchange(world)
    assert named == []
    assert lines(caplog) == []


@pytest.mark.parametrize(
    ("packet", "name"),
    [
        (message(), "UserMessage"),
        (message()[:-4] + b"\0" * 3, "malformed UserMessage"),
        (FRAMES[7], "UserMessage"),
        (b"\x10\xc0\x0b\x00LIOR\x20\0\0\0\xff\xff\xff\xff\0\0\x09\0" + bytes(12), "malformed internal packet"),
    ],
)
def test_a_malformed_packet_has_a_name_too(packet: bytes, name: str) -> None:
    assert packet_log.type_name(packet) == name


def test_pings_have_lines(caplog: pytest.LogCaptureFixture) -> None:
    async def talk() -> None:
        loop = asyncio.get_running_loop()
        settings = TransferSettings(answers_pings=True, ping_port=0)
        service = await start_ping_service(settings, "127.0.0.3", GUID, lambda *_: False, loop.time)
        assert service is not None
        try:
            initiator = PingInitiator(GUID, OperatingSystemType.WIN_SERVER, loop.time)
            settings = TransferSettings(ping_port=service.address[1])
            assert await ping(initiator, "127.0.0.3", settings, "127.0.0.2")
        finally:
            service.close()

    with caplog.at_level(logging.DEBUG, packet_log.__name__):
        asyncio.run(talk())
    assert lines(caplog) == [
        "sent Ping Request, 24 bytes, to 127.0.0.3, no session",
        "received Ping Request, 24 bytes, from 127.0.0.2, no session",
        "sent Ping Response, 24 bytes, to 127.0.0.2, no session",
        "received Ping Response, 24 bytes, from 127.0.0.3, no session",
    ]
