"""Idle connections to one listener.

They must neither stop another listener nor keep its own clients out.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import urllib.request
from pathlib import Path

import pytest

import lanner
from lanner.rpc.pdu import NDR20, PacketType, SyntaxId
from lanner.services.interfaces.mqmp import QMCOMM
from tests.adversity.attacks.limited_service import (
    LANNER,
    PASSWORD,
    LimitedService,
    add_user,
    close_all,
    connect_many,
    until,
)
from tests.rpc.harness import bind, element
from tests.transfer.tls_files import issue

ANONYMOUS_BIND = bind(element(0, SyntaxId(QMCOMM.uuid, *QMCOMM.version), NDR20))
# RFC 9113 3.4: and empty settings.
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
METRICS = '[metrics]\nbind = "127.0.0.1:0"\n'


def takes_messages(service: LimitedService, folder: Path) -> None:
    """Assert that another queue manager can send over 1801 and that local programs are served."""
    with service.manager() as manager:
        with contextlib.suppress(lanner.errors.QueueExists):
            manager.create_queue("orders")
        queue = manager.open("orders")
        with lanner.QueueManager(folder / "sender", bind=free_sender(service)) as sender:
            sender.open(rf"DIRECT=TCP:{service.address}\private$\orders").send(
                lanner.Message(body=b"one", recoverable=True)
            )
            assert queue.receive(timeout=30).body_bytes == b"one"


def free_sender(service: LimitedService) -> str:
    first, _, last = service.address.rpartition(".")
    return f"{first}.{int(last) % 250 + 3}"


@pytest.mark.parametrize(
    "listener",
    [
        "flight",
        "endpoint mapper",
        "rpc",
        "remote read",
        "com",
        "metrics",
        "local",
        "streams",
        "transfer",
        "transfer over TLS",
    ],
)
def test_idle_connections_to_a_listener_stop_nobody(tmp_path: Path, listener: str) -> None:
    """990 of them, and 1024 descriptors: those that are kept back for others are not given away."""
    issued = issue(tmp_path, "VICTIM")
    tls = f'[transfer]\ntls_certificate = "{issued.certificate_file}"\ntls_key = "{issued.key_file}"\n'
    with LimitedService(tmp_path, settings=METRICS + tls) as service:
        is_there = "flight" in service.listeners if listener == "streams" else listener in service.listeners
        if not is_there:
            pytest.skip(f"{listener} does not listen here")
        if listener == "local":
            idle = connect_many(service.data / "lanner.sock", 0, 990)
        elif listener == "streams":
            idle = connect_many(service.data / "streams.sock", 0, 990, kind=socket.SOCK_SEQPACKET)
        else:
            host = "127.0.0.1" if listener == "metrics" else service.address
            idle = connect_many(host, service.port(listener), 990)
        try:
            # A Unix socket takes no more than its backlog at a time; the limit of these is 64.
            assert len(idle) > (64 if listener == "streams" else 500)
            takes_messages(service, tmp_path)
            with urllib.request.urlopen(service.listeners["metrics"], timeout=30) as answer:
                assert b"lanner_budget_used" in answer.read()
            assert service.limit("descriptors")["used"] < 1024 - 96
        finally:
            close_all(idle)
        service.check()


def test_a_silent_connection_to_1801_makes_room_for_a_peer(tmp_path: Path) -> None:
    """From many addresses, so that no limit of one address applies."""
    with LimitedService(tmp_path, settings="[transfer]\nmax_connections = 64\n") as service:
        idle = []
        for number in range(1, 9):
            idle += connect_many(service.address, 1801, 20, f"127.9.9.{number}")
        try:
            takes_messages(service, tmp_path)
            assert service.limit("transfer connections")["used"] <= 64
        finally:
            close_all(idle)
        service.check()


def test_idle_connections_to_the_metrics_cost_no_thread(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings=METRICS) as service:
        before = service.threads
        idle = connect_many("127.0.0.1", service.port("metrics"), 16)
        try:
            until(lambda: service.limit("metrics connections")["used"] == 16)
            assert service.threads <= before + 2  # of the call that asked
        finally:
            close_all(idle)


def test_a_client_that_does_not_speak_http2_reaches_no_flight_service(tmp_path: Path) -> None:
    with LimitedService(tmp_path) as service:
        if "flight" not in service.listeners:
            pytest.skip("the packages of the data pipeline are not installed")
        with socket.create_connection((service.address, service.port("flight")), 30) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""


def test_bound_strangers_at_2103_keep_no_account_out(tmp_path: Path) -> None:
    """From several addresses, none of which has as many as one may have."""
    with LimitedService(tmp_path, settings="[rpc]\nmax_connections = 64\nmax_connections_per_peer = 20\n") as service:
        with service.manager() as manager:
            manager.create_queue("orders")
        add_user(service, "alice")
        held = []
        for number in range(1, 5):
            for one in connect_many(service.address, service.port("rpc"), 16, f"127.9.9.{number}"):
                held.append(one)
                one.sendall(ANONYMOUS_BIND)
                assert one.recv(100)[2] == PacketType.BIND_ACK
        try:
            assert service.limit("rpc connections")["used"] == 64
            with lanner.connect(service.address, "alice", PASSWORD) as manager:
                manager.open("orders").send("hello")
        finally:
            close_all(held)
        service.check()


def test_prefaces_at_1810_keep_no_account_out(tmp_path: Path) -> None:
    client = pytest.importorskip("lanner.spark.flight.client")
    with LimitedService(tmp_path, settings="[flight]\nmax_connections = 32\n") as service:
        add_user(service, "alice")
        with client.FlightQueues(service.listeners["flight"], user="alice", password=PASSWORD) as before:
            assert before.info()["user"] == "alice"
            held = []
            for number in range(1, 5):
                for one in connect_many(service.address, service.port("flight"), 10, f"127.9.9.{number}"):
                    held.append(one)
                    one.sendall(PREFACE)
                    with contextlib.suppress(ConnectionError):
                        one.recv(100)
            try:
                assert service.limit("flight connections")["used"] == 32
                with client.FlightQueues(service.listeners["flight"], user="alice", password=PASSWORD) as again:
                    assert again.info()["user"] == "alice"
                assert before.info()["user"] == "alice"
            finally:
                close_all(held)
        service.check()


def test_unfinished_handshakes_of_tls_at_1810_keep_nobody_out(tmp_path: Path) -> None:
    pytest.importorskip("lanner.spark.flight.client")
    issued = issue(tmp_path, "VICTIM")
    files = f'tls_certificate = "{issued.certificate_file}"\ntls_key = "{issued.key_file}"\n'
    context = ssl.create_default_context(cafile=issued.certificate_file)
    context.set_alpn_protocols(["h2"])
    with LimitedService(tmp_path, settings=f"[flight]\nmax_connections = 32\n{files}") as service:
        held = []
        for number in range(1, 5):
            for one in connect_many(service.address, service.port("flight"), 8, f"127.9.9.{number}"):
                held.append(one)
                # The first bytes of a ClientHello that never ends.
                one.sendall(bytes((22, 3, 1, 2, 0, 1)))
        try:
            until(lambda: service.limit("flight connections")["used"] == 32)
            with (
                socket.create_connection((service.address, service.port("flight")), 30) as plain,
                context.wrap_socket(plain, server_hostname="VICTIM") as connection,
            ):
                connection.sendall(PREFACE)
                assert connection.recv(9)[3] == 4, "gRPC answers with its own SETTINGS"
            assert service.limit("flight connections")["used"] <= 32
        finally:
            close_all(held)
        service.check()


def test_descriptors_are_raised_to_what_the_system_allows(tmp_path: Path) -> None:
    with LimitedService(tmp_path, descriptors=2048) as service:
        limits = Path(f"/proc/{service.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3] == "2048"
        assert service.limit("descriptors")["limit"] == 2048 - 96


def test_refused_connections_do_not_fill_the_log(tmp_path: Path) -> None:
    with LimitedService(tmp_path, settings="[rpc]\nmax_connections_per_peer = 4\n") as service:
        for _ in range(20):
            close_all(connect_many(service.address, service.port("rpc"), 40))
        until(lambda: service.limit("rpc connections")["used"] <= 4)
        text = service.log.read_text()
        assert 1 <= text.count("was refused") <= 5
        assert service.limit("log lines a minute")["refused"] > 0


def test_status_and_doctor_show_who_has_most(tmp_path: Path) -> None:
    def say(*arguments: str) -> str:
        command = [str(LANNER), *arguments, "--data", str(service.data)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    with LimitedService(tmp_path, settings="[rpc]\nmax_connections_per_peer = 4\n") as service:
        assert "no resource is used to 80%" in say("doctor")
        idle = connect_many(service.address, service.port("rpc"), 4)
        try:
            until(lambda: service.limit("rpc connections")["used"] == 4)
            assert re.search(r"rpc connections +4 +4096 +4 +0 +127\.0\.0\.1 \(4\)", say("status"))
            assert "rpc connections: 4 of 4 used by 127.0.0.1" in say("doctor")
        finally:
            close_all(idle)
