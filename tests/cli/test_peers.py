"""`lanner doctor PEER` with every kind of peer."""

from __future__ import annotations

import errno
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lanner.cli.peers import Caller, examine_peer
from lanner.services.examination import Finding
from lanner.transfer.session import Session
from lanner.transfer.settings import TransferSettings
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    InternalHeader,
    PacketType,
    pack_internal,
)
from tests.cli.conftest import Run, free_address
from tests.client.other_manager import OtherManager

Behaviour = Callable[[socket.socket], None]
GUID = uuid.UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")


@contextmanager
def peer(behaviour: Behaviour, address: str | None = None) -> Iterator[str]:
    """Run a peer that accepts one connection; yield its address."""
    address = address or free_address()
    with socket.create_server((address, 1801)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                behaviour(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield address
        thread.join()


def speaks(*, admits: bool) -> Behaviour:
    """A queue manager, or one that wants no session."""

    def behave(connection: socket.socket) -> None:
        session = Session.accept(
            own_guid=GUID,
            settings=TransferSettings(window_size=17),
            monotonic=time.monotonic,
            admit=lambda _: admits,
        )
        while data := connection.recv(4096):
            session.receive(data)
            for packet in session.data_to_send():
                connection.sendall(packet)

    return behave


def says(answer: bytes) -> Behaviour:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass

    return behave


def examined(run: Run, address: str, *options: object, code: int = 1) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in run("doctor", address, *options, "--json", code=code).json}


def test_a_queue_manager_is_reached(run: Run) -> None:
    with peer(speaks(admits=True)) as address:
        found = examined(run, address, code=0)
    assert [(check, one["verdict"]) for check, one in found.items()] == [
        ("local", "SKIP"), ("name", "OK"), ("ping", "SKIP"), ("tcp", "OK"), ("handshake", "OK"),
        ("reading", "SKIP"),
    ]  # fmt: skip
    assert f"queue manager {GUID}, window 17, round trip " in found["handshake"]["text"]


def test_a_person_reads_a_line_for_each_step(run: Run) -> None:
    with peer(speaks(admits=True)) as address:
        lines = run("doctor", address).out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["SKIP", "local"], ["OK", "name"], ["SKIP", "ping"], ["OK", "tcp"], ["OK", "handshake"],
        ["SKIP", "reading"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("serves", "text"),
    [
        (["mqrr", "remote_read"], "are read by MS-MQRR, on TCP 2103"),
        (["remote_read"], "are read by MS-MQQP, on TCP 2103"),
        (["management"], "serves neither MS-MQRR nor MS-MQQP"),
    ],
)
def test_how_it_is_read(tmp_path: Path, serves: list[str], text: str) -> None:
    other = OtherManager(tmp_path / "data")
    try:
        other.serve([getattr(other, name) for name in serves])
        with peer(speaks(admits=True), other.address) as address:
            (found,) = findings(caller(address), "reading")
    finally:
        other.close()
    assert text in found.text


def test_a_port_nobody_listens_on(run: Run) -> None:
    found = examined(run, free_address())
    assert found["tcp"]["verdict"] == "FAIL"
    assert "refused the connection: no program listens there" in found["tcp"]["text"]
    assert "start the queue manager" in found["tcp"]["advice"]
    assert found["handshake"]["verdict"] == "SKIP"


def test_a_peer_that_refuses(run: Run) -> None:
    """MS-MQQB 2.2.1: CS=1."""
    with peer(speaks(admits=False)) as address:
        found = examined(run, address)["handshake"]
    assert found["verdict"] == "FAIL"
    assert f"refuses the session: InternalHeader.Flags.CS: set, queue manager {GUID}" in found["text"]
    assert "MaxInSessions" in found["advice"]


def test_a_peer_that_accepts_and_says_nothing(run: Run) -> None:
    address = free_address()
    with socket.create_server((address, 1801)):
        found = examined(run, address, "--timeout", "0.02")
    assert found["tcp"]["verdict"] == "OK"
    assert "sent nothing in 0.02 s, in state WAITING_ECR_MSG" in found["handshake"]["text"]
    assert found["handshake"]["verdict"] == "FAIL"


def test_a_peer_that_stops_in_the_middle(run: Run) -> None:
    def behave(connection: socket.socket) -> None:
        connection.sendall(b"\x10\xc0\x0b\x00LIOR")
        while connection.recv(4096):
            pass

    with peer(behave) as address:
        found = examined(run, address, "--timeout", "0.1")["handshake"]
    assert "sent only 8 bytes in 0.1 s" in found["text"]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "BaseHeader"),
        (b"\x10\xc0\x0b\x00BAAD" + bytes(24), "BaseHeader.Signature"),
        (b"\x10\xc0\x0b\x00LIOR\xff\xff\xff\x7f" + bytes(20), "BaseHeader.PacketSize"),
        (
            pack_internal(
                InternalHeader.of(PacketType.CONNECTION_PARAMETERS), ConnectionParametersHeader(0x1F4, 0x4E20)
            ),
            "ConnectionParameters: not expected in state WAITING_ECR_MSG",
        ),
        (b"\x10", "the connection was closed"),
    ],
    ids=["http", "signature", "size", "order", "cut"],
)
def test_a_peer_that_answers_garbage(run: Run, answer: bytes, complaint: str) -> None:
    with peer(says(answer)) as address:
        found = examined(run, address)["handshake"]
    assert found["verdict"] == "FAIL"
    assert "does not speak the protocol of a queue manager" in found["text"]
    assert complaint in found["text"]


def test_a_peer_that_closes_without_a_word(run: Run) -> None:
    with peer(says(b"")) as address:
        found = examined(run, address)["handshake"]
    assert "closed it without an answer" in found["text"]
    assert found["verdict"] == "FAIL"


def test_a_connection_that_breaks(run: Run) -> None:
    def behave(connection: socket.socket) -> None:
        connection.recv(4096)
        # Close with a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with peer(behave) as address:
        found = examined(run, address)["handshake"]
    assert found["verdict"] == "FAIL"


def test_a_name_without_an_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("lanner.cli.peers.resolve", resolve)
    found = examined(run, "nobody")
    assert found["name"]["text"] == "nobody has no address: Name or service not known"
    assert '[peers] nobody = "ADDRESS"' in found["name"]["advice"]
    assert {found[check]["verdict"] for check in ("ping", "tcp", "handshake")} == {"SKIP"}


def test_the_settings_say_where_a_peer_is(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    with peer(speaks(admits=True)) as address:
        config.write_text(f'[peers]\nbeta = "{address}"\n')
        found = examined(run, "BETA", "--config", config, code=0)
    assert found["settings"]["verdict"] == "OK"
    assert found["name"]["text"] == f"BETA is {address} (from the peers table of the settings)"


@pytest.mark.parametrize(
    ("error", "text", "advice"),
    [
        (TimeoutError("timed out"), "timed out after 5 s", "a firewall drops TCP 1801"),
        (OSError(errno.ETIMEDOUT, "x"), "timed out after 5 s", "a firewall drops TCP 1801"),
        (OSError(errno.ENETUNREACH, "x"), "Network is unreachable", "ip route get 192.0.2.7"),
        (OSError(errno.EHOSTUNREACH, "x"), "No route to host", "ip route get 192.0.2.7"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "cannot be reached from 0.0.0.0", "the setting bind"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files", "the network of this computer"),
    ],
)
def test_what_the_system_says_comes_with_what_to_do(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError, text: str, advice: str
) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text('bind = "0.0.0.0"\n')

    def connect(*_: object) -> socket.socket:
        raise error

    async def silent(*_: object) -> bool:
        return False

    monkeypatch.setattr("lanner.cli.peers.ping", silent)
    monkeypatch.setattr(socket, "create_connection", connect)
    found = examined(run, "192.0.2.7", "--config", config)["tcp"]
    assert found["verdict"] == "FAIL"
    assert text in found["text"]
    assert advice in found["advice"]


def test_a_queue_manager_for_this_computer_only_reaches_no_other(run: Run) -> None:
    found = examined(run, "192.0.2.7", "--timeout", "0.02")
    assert "cannot be reached from 127.0.0.1, which is for this computer only" in found["tcp"]["text"]
    assert "0.0.0.0" in found["tcp"]["advice"]


def test_a_ping_that_is_answered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answered(*_: object) -> bool:
        return True

    monkeypatch.setattr("lanner.cli.peers.ping", answered)
    found = examined(run, free_address())["ping"]
    assert found["verdict"] == "OK"
    assert "answers on UDP 3527" in found["text"]


def findings(caller: Caller, check: str) -> list[Finding]:
    return [finding for finding in examine_peer(caller) if finding.check == check]


def caller(peer_address: str, **known: object) -> Caller:
    document: dict[str, Any] = {"identifier": None, "sessions": [], "queues": []} | known
    return Caller(
        "beta", TransferSettings(peers={"Beta": peer_address}), "127.0.0.1", 5.0, uuid.uuid4(), lambda _: document
    )


def test_the_key_of_another_computer(run: Run) -> None:
    """The operator is told of a weak key; an unknown key is outside the scope of doctor."""
    address = free_address()
    for bits, verdict, text in ((2048, "OK", "2048 bits"), (1024, "WARN", "1024 bits: weak")):
        (finding,) = findings(caller(address, key_bits=bits), "key")
        assert (finding.verdict, text in finding.text) == (verdict, True)
    assert findings(caller(address, key_bits=0), "key") == findings(caller(address), "key") == []


def test_another_queue_manager_than_the_directory_has(run: Run) -> None:
    with peer(speaks(admits=True)) as address:
        (finding,) = findings(caller(address, identifier=str(uuid.UUID(int=7))), "directory")
    assert finding.verdict == "FAIL"
    with peer(speaks(admits=True)) as address:
        assert findings(caller(address, identifier=str(GUID)), "directory") == []


def test_an_address_that_fails_is_no_failure_while_there_is_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(speaks(admits=True)) as address:
        monkeypatch.setattr("lanner.cli.peers.resolve", lambda *_: [free_address(), address])
        found = list(examine_peer(caller(address)))
    assert [finding.verdict.value for finding in found if finding.check in ("tcp", "handshake")] == ["WARN", "OK", "OK"]


def test_queues_that_are_held_are_reported(run: Run) -> None:
    one = {"name": "one", "messages": 1, "state": "OnHold", "problem": None}
    queues = [
        one,
        one | {"name": "two", "state": "Locked"},
        one | {"name": "three", "state": "Waiting", "problem": "why"},
    ]
    with peer(speaks(admits=True)) as address:
        found = findings(caller(address, queues=queues), "outgoing")
    assert [finding.verdict.value for finding in found] == ["OK", "WARN", "WARN", "WARN"]
    assert found[0].text == "3 messages for beta in 3 outgoing queues"
    assert found[1].advice == "lanner outgoing resume 'one'"
    assert "security.hardened" in found[2].advice
    assert found[3].text == "three: why"


def test_a_computer_that_the_directory_has_an_address_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Public and private format names go there."""

    def nowhere(name: str, peers: object) -> list[str]:
        if name == "beta":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [name]

    monkeypatch.setattr("lanner.cli.peers.resolve", nowhere)
    with peer(speaks(admits=True)) as address:
        found = list(examine_peer(caller("127.0.0.1", address=address)))
    assert [finding.verdict.value for finding in found if finding.check in ("name", "tcp", "handshake")] == ["OK"] * 3
    assert f"beta is {address} ({address} in the directory; DIRECT=OS: names" in found[0].text
    # Its own name is no address.
    (name,) = findings(caller("127.0.0.1", address="BETA"), "name")
    assert name.verdict == "FAIL"
