"""Packets and requests that are announced and never finished, and datagrams without end."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import uuid
from pathlib import Path

import pytest

import lanner
from lanner.model.errors import InsufficientResources
from lanner.rpc.pdu import PFC_FIRST_FRAG, SyntaxId
from lanner.wire import layout as at
from lanner.wire.ping_packet import PingPacket
from tests.adversity.attacks.limited_service import (
    MIB,
    PASSWORD,
    LimitedService,
    Session1801,
    add_user,
    close_all,
    until,
)
from tests.rpc.harness import bind, element, request

# Interfaces that everybody may bind to.
MGMT = SyntaxId(uuid.UUID("afa8bd80-7d8a-11c9-bef4-08002b102989"), 1, 0)
REM_UNKNOWN = SyntaxId(uuid.UUID("00000131-0000-0000-c000-000000000046"), 0, 0)
SIZE = at.MAX_PACKET_SIZE
CUT = struct.pack("<BBHIII", at.VERSION_NUMBER, 0, 0, at.SIGNATURE, SIZE, 0xFFFF_FFFF).ljust(SIZE - 1, b"\0")


def say(connection: socket.socket, data: bytes) -> None:
    """Send as much as the other side accepts; it may close the connection."""
    connection.settimeout(5)
    with contextlib.suppress(OSError):
        connection.sendall(data)


@pytest.mark.parametrize("addresses", [1, 16])
def test_cut_packets_cost_little_and_are_given_back(tmp_path: Path, addresses: int) -> None:
    """64 packets of 4 MiB without their last byte, of one address and of many."""
    with LimitedService(tmp_path) as service:
        before = service.memory
        strangers = []
        try:
            for number in range(64):
                strangers.append(Session1801(service, f"127.9.8.{number % addresses + 1}"))
                say(strangers[-1].connection, CUT)
            held = service.limit("transfer bytes of unfinished packets")
            assert 0 < held["used"] <= held["limit"] < 64 * SIZE
            assert held["greatest"] <= held["per_peer"]
            assert service.memory - before < 192 * MIB
        finally:
            close_all([one.connection for one in strangers])
        until(lambda: service.limit("transfer bytes of unfinished packets")["used"] == 0)
        until(lambda: service.memory - before < 48 * MIB)
        service.check()


@pytest.mark.parametrize("listener", ["rpc", "remote read", "endpoint mapper", "com"])
def test_unfinished_requests_cost_little_and_are_given_back(tmp_path: Path, listener: str) -> None:
    """An anonymous caller sends 64 requests of nearly 4 MiB without their last fragment."""
    beginning = request(bytes(5000), flags=PFC_FIRST_FRAG, call_id=1)
    fragments = beginning + request(bytes(5000), flags=0, call_id=1) * (SIZE // 5000 - 2)
    hello = bind(element(0, REM_UNKNOWN if listener == "com" else MGMT))
    with LimitedService(tmp_path) as service:
        if listener not in service.listeners:
            pytest.skip(f"{listener} does not listen here")
        before = service.memory
        connections = []
        try:
            for number in range(64):
                source = f"127.9.7.{number % 16 + 1}"
                connection = socket.create_connection((service.address, service.port(listener)), 30, (source, 0))
                connections.append(connection)
                say(connection, hello)
                connection.recv(4096)
                say(connection, fragments)
            name = "com" if listener == "com" else "rpc"
            held = service.limit(f"{name} bytes of unfinished requests of strangers")
            assert held["used"] <= held["limit"] < 64 * SIZE
            assert service.memory - before < 160 * MIB
        finally:
            close_all(connections)
        until(lambda: service.memory - before < 64 * MIB)
        service.check()


@pytest.mark.parametrize(("octets", "count"), [(0, 5_000_000), (2, 1_000_000)])
def test_fragments_with_nothing_in_them_cost_nothing(tmp_path: Path, octets: int, count: int) -> None:
    """An anonymous caller sends a request in ever more fragments, each empty or nearly empty."""
    many = request(bytes(octets), flags=0, call_id=1) * 10_000
    with LimitedService(tmp_path) as service:
        before = service.memory
        with socket.create_connection((service.address, service.port("rpc")), 30) as connection:
            connection.sendall(bind(element(0, MGMT)))
            connection.recv(4096)
            connection.sendall(request(bytes(8), flags=PFC_FIRST_FRAG, call_id=1))
            for _ in range(count // 10_000):
                connection.sendall(many)
            # Nearly everything has been read: the buffers of the sockets hold much less.
            assert service.memory - before < 20 * MIB
        service.check()


@pytest.mark.soak
def test_open_transactions_of_one_user_do_not_fill_the_memory(tmp_path: Path) -> None:
    """A user who may only send never commits the sends; another user's transactions continue."""
    with LimitedService(tmp_path) as service:
        for name in ("bob", "carl"):
            add_user(service, name)
        with service.manager() as manager:
            manager.create_queue("ledger", transactional=True)
        before = service.memory
        port = service.port("rpc")
        with (
            lanner.connect(service.address, "bob", PASSWORD, port=port) as bob,
            lanner.connect(service.address, "carl", PASSWORD, port=port) as carl,
        ):
            ledger = bob.open("ledger")
            with pytest.raises(InsufficientResources, match="1024 MiB"), bob.transaction() as transaction:  # noqa: PT012
                for _ in range(280):
                    ledger.send(bytes(4_000_000), transaction=transaction)
            assert service.memory - before < 1536 * MIB
            with carl.transaction() as transaction:
                carl.open("ledger").send(b"fine", transaction=transaction)
        service.check()


def test_a_flood_of_pings_is_answered_in_part(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings="[transfer]\nanswers_pings = true\n") as service:
        datagram = PingPacket(0, 1, uuid.uuid4()).pack()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as flood:
            flood.connect((service.address, 3527))
            flood.setblocking(False)
            answers, began = 0, time.monotonic()
            for _ in range(5000):
                with contextlib.suppress(BlockingIOError):
                    flood.send(datagram)
                with contextlib.suppress(BlockingIOError):
                    flood.recv(100)
                    answers += 1
            flood.settimeout(1)
            with contextlib.suppress(TimeoutError):
                while flood.recv(100):
                    answers += 1
            seconds = time.monotonic() - began
        assert 0 < answers <= 20 * (seconds + 1)
        assert service.limit("pings a second")["refused"] > 0
        service.check()
