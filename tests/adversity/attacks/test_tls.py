"""Attacks on TLS between queue managers.

The attacks are a session without the right certificate, and reading another's message.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from lanner.transfer.peers import Peer
from lanner.transfer.session import Session
from lanner.transfer.settings import TransferSettings
from tests.cli.conftest import free_address
from tests.transfer.tls_files import Issued, authority, issue
from tests.transfer.tls_world import (
    PORT,
    TLS_PORT,
    Client,
    Manager,
    Network,
    client_context,
    is_admitted,
    plain_client,
    tls_client,
    until,
)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pinned(network: Network) -> Iterator[tuple[Manager, Issued]]:
    """Alpha, which pins beta's certificate, and that certificate."""
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with alpha.listening(beta.peer(b.certificate_file, guid=beta.guid), **a.settings):
        yield alpha, b


class TestClients:
    """Clients that connect to port 1802."""

    def test_only_the_pinned_certificate_with_its_guid_gets_a_session(
        self, network: Network, pinned: tuple[Manager, Issued]
    ) -> None:
        alpha, b = pinned
        beta = network.beta
        assert is_admitted(alpha, b, beta.guid)
        assert not is_admitted(alpha, b, uuid.uuid4()), "the certificate of beta under another GUID"
        assert not is_admitted(alpha, None, beta.guid), "no certificate"
        elsewhere = network.folder / "elsewhere"
        forged = issue(elsewhere, "BETA", guid=beta.guid)
        assert not is_admitted(alpha, forged, beta.guid), "the same names, another key"
        again = issue(elsewhere, "BETA2", guid=beta.guid, key=b.key)
        assert not is_admitted(alpha, again, beta.guid), "the same key, another certificate"
        child = issue(elsewhere, "child", guid=beta.guid, by=b)
        assert not is_admitted(alpha, child, beta.guid), "issued by the pinned one"

    def test_a_pin_that_may_issue_certificates_stands_for_itself_only(self, network: Network) -> None:
        """`openssl req -x509` makes such certificates."""
        alpha, beta, gamma = network.alpha, network.beta, network.gamma
        a, b = network.issue(alpha), network.issue(beta, may_issue=True)
        with alpha.listening(beta.peer(b.certificate_file), gamma.peer(guid=gamma.guid), **a.settings):
            assert is_admitted(alpha, b, beta.guid)
            for names in (["BETA"], ["GAMMA"]):
                child = issue(network.folder, "child", names=names, guid=gamma.guid, by=b)
                assert not is_admitted(alpha, child, gamma.guid)

    def test_an_expired_certificate_gets_no_session(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, expired = network.issue(alpha), network.issue(beta, days=-1, age=10)
        with alpha.listening(beta.peer(expired.certificate_file), **a.settings):
            client = tls_client(alpha, expired, beta.guid)
            assert not client.open()
            assert "expired" in client.end
        issuer = authority(network.folder, "Authority")
        expired = network.issue(beta, by=issuer, days=-1, age=10)
        with alpha.listening(beta.peer(tls=True), **a.settings, tls_authorities=issuer.certificate_file):
            assert not is_admitted(alpha, expired, beta.guid)

    def test_a_certificate_of_the_authority_is_good_for_its_own_computer_only(self, network: Network) -> None:
        alpha, beta, gamma = network.alpha, network.beta, network.gamma
        issuer, stranger = authority(network.folder, "Authority"), authority(network.folder, "Stranger")
        a = network.issue(alpha, by=issuer)
        with alpha.listening(
            beta.peer(tls=True, guid=beta.guid),
            gamma.peer(tls=True),
            **a.settings,
            tls_authorities=issuer.certificate_file,
        ):
            by_guid = network.issue(beta, by=issuer, names=())
            assert is_admitted(alpha, by_guid, beta.guid)
            assert not is_admitted(alpha, by_guid, gamma.guid), "urn:uuid: says another queue manager"
            by_name = network.issue(beta, by=issuer, guid=None)
            assert is_admitted(alpha, by_name, beta.guid)
            assert not is_admitted(alpha, by_name, gamma.guid), "beta's name, another GUID than [peers] has"
            other = network.issue(gamma, by=issuer, guid=None)
            assert not is_admitted(alpha, other, beta.guid), "gamma's name, beta's GUID"
            assert is_admitted(alpha, other, gamma.guid)
            nobody = issue(network.folder, "nobody", by=issuer)
            assert not is_admitted(alpha, nobody, uuid.uuid4()), "a name that neither [peers] nor the directory has"
            nameless = issue(network.folder, "nameless", names=(), by=issuer)
            assert not is_admitted(alpha, nameless, beta.guid), "the subject is no name"
            forged = network.issue(beta, by=stranger)
            assert not is_admitted(alpha, forged, beta.guid), "another authority"

    def test_a_pin_cannot_be_replaced_by_a_certificate_of_the_authority(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        issuer = authority(network.folder, "Authority")
        a, pin = network.issue(alpha, by=issuer), network.issue(beta)
        entry = beta.peer(pin.certificate_file, guid=beta.guid)
        with alpha.listening(entry, **a.settings, tls_authorities=issuer.certificate_file):
            assert is_admitted(alpha, pin, beta.guid)
            issued = issue(network.folder, "other", names=["BETA"], guid=beta.guid, by=issuer)
            assert not is_admitted(alpha, issued, beta.guid)

    def test_a_peer_without_guid_cannot_take_that_of_another(self, network: Network) -> None:
        alpha, beta, gamma = network.alpha, network.beta, network.gamma
        a, b, c = network.issue(alpha), network.issue(beta, guid=None), network.issue(gamma, guid=None)
        free = uuid.uuid4()
        with alpha.listening(
            beta.peer(b.certificate_file), gamma.peer(c.certificate_file), Peer("D", ("192.0.2.1",), free), **a.settings
        ):
            assert not is_admitted(alpha, b, free), "the GUID of a peer without TLS"
            assert is_admitted(alpha, c, gamma.guid)
            assert not is_admitted(alpha, b, gamma.guid), "a GUID that gamma has shown its certificate with"
            assert is_admitted(alpha, b, beta.guid)

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2])
    def test_older_versions_are_refused(
        self, network: Network, pinned: tuple[Manager, Issued], version: ssl.TLSVersion
    ) -> None:
        alpha, b = pinned
        context = client_context(b)
        context.maximum_version = version
        with (
            socket.create_connection((alpha.address, TLS_PORT), 30) as plain,
            pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"),
        ):
            context.wrap_socket(plain)
        assert is_admitted(alpha, b, network.beta.guid)

    def test_no_session_of_tls_is_resumed(self, network: Network, pinned: tuple[Manager, Issued]) -> None:
        """It would begin without a certificate, perhaps with one that is trusted no more."""
        alpha, b = pinned
        context = client_context(b)
        first = context.wrap_socket(socket.create_connection((alpha.address, TLS_PORT), 30))
        assert Client(first, network.beta.guid).open()
        assert first.session is None or not first.session.has_ticket
        with context.wrap_socket(
            socket.create_connection((alpha.address, TLS_PORT), 30), session=first.session
        ) as second:
            assert not second.session_reused

    def test_clear_text_to_the_tls_port_gets_nothing(
        self, network: Network, pinned: tuple[Manager, Issued], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "lanner.transfer")
        alpha, _ = pinned
        client = plain_client(alpha, network.beta.guid, port=TLS_PORT)
        assert not client.open()
        until(lambda: not alpha.links)
        assert any("the peer does not speak TLS" in record.getMessage() for record in caplog.records)

    def test_tls_to_the_clear_port_gets_nothing(self, network: Network, pinned: tuple[Manager, Issued]) -> None:
        alpha, b = pinned
        with pytest.raises(OSError, match=r".*"):
            tls_client(alpha, b, network.beta.guid, port=PORT)
        until(lambda: not alpha.links)

    def test_a_bad_handshake_ends_one_connection(self, network: Network, pinned: tuple[Manager, Issued]) -> None:
        alpha, b = pinned
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        hello = ssl.MemoryBIO()
        with contextlib.suppress(ssl.SSLWantReadError):
            client_context(b).wrap_bio(ssl.MemoryBIO(), hello).do_handshake()
        good = hello.read()
        for _ in range(100):
            bad = bytearray(good[: chance.randrange(1, len(good) + 1)])
            for _ in range(chance.randrange(4)):
                bad[chance.randrange(len(bad))] = chance.randrange(256)
            with socket.create_connection((alpha.address, TLS_PORT), 30) as connection:
                connection.sendall(bad + chance.randbytes(chance.randrange(100)))
                connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    while connection.recv(1 << 16):
                        pass
        until(lambda: not alpha.links)
        assert is_admitted(alpha, b, network.beta.guid), f"seed {seed}"


class TestResources:
    """The cost of a client that sends nothing, or not enough."""

    def test_silent_clients_are_dropped_and_keep_nobody_out(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        limits = {"max_sessions_per_peer": 10, "max_half_open": 15, "session_initialization_timeout": 1.0}
        with alpha.listening(beta.peer(b.certificate_file), **a.settings, **limits), contextlib.ExitStack() as stack:
            silent = []
            for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
                for number in range(15):
                    connection = stack.enter_context(
                        socket.create_connection((alpha.address, TLS_PORT), 30, source_address=(source, 0))
                    )
                    if number % 2:
                        # The first bytes of a handshake.
                        with contextlib.suppress(ConnectionError):
                            connection.sendall(b"\x16\x03\x01")
                    silent.append(connection)
            until(lambda: len(alpha.links) <= 15)
            assert is_admitted(alpha, b, beta.guid, source=free_address())
            for connection in silent:
                with contextlib.suppress(ConnectionError):
                    assert connection.recv(1) == b""
            until(lambda: not alpha.links)

    def test_a_handshake_of_tls_does_not_buy_more_time(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        with (
            alpha.listening(beta.peer(b.certificate_file), **a.settings, session_initialization_timeout=1.0),
            tls_client(alpha, b, beta.guid).connection as connection,
        ):
            assert connection.recv(1) == b""
            until(lambda: not alpha.links)


class TestDowngrade:
    """Port 1801 is no way around the certificate."""

    @pytest.mark.parametrize("has_guid", [True, False])
    def test_nobody_takes_the_guid_of_a_peer_with_tls_in_clear(
        self, network: Network, has_guid: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The GUID is known from [peers], or from the certificate."""
        caplog.set_level(logging.INFO, "lanner.transfer")
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        with alpha.listening(beta.peer(b.certificate_file, guid=beta.guid if has_guid else None), **a.settings):
            assert not plain_client(alpha, beta.guid).open()
            assert plain_client(alpha, network.gamma.guid).open(), "others may come in clear"
        assert any(
            "which has TLS in [peers], and this session is in clear" in record.getMessage() for record in caplog.records
        )

    def test_nobody_takes_a_guid_that_was_shown_with_the_certificate(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta, guid=None)
        with alpha.listening(beta.peer(b.certificate_file), **a.settings):
            assert is_admitted(alpha, b, beta.guid)
            assert not plain_client(alpha, beta.guid).open()

    def test_nobody_comes_in_clear_from_the_address_of_a_peer_whose_guid_is_unknown(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta, guid=None)
        with alpha.listening(beta.peer(b.certificate_file), **a.settings):
            assert not plain_client(alpha, uuid.uuid4(), source=beta.address).open()
            assert plain_client(alpha, uuid.uuid4(), source="127.0.0.1").open()

    def test_an_answer_in_clear_with_the_guid_of_a_peer_with_tls_gets_no_message(self, network: Network) -> None:
        """A host that DNS was made to lead to answers as beta does."""
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        with (
            alpha.listening(beta.peer(b.certificate_file, guid=beta.guid), **a.settings),
            Impostor(free_address(), PORT, beta.guid) as impostor,
        ):
            alpha.send(impostor.address, "secret", by="TCP")
            until(lambda: "which has TLS in [peers], and this session is in clear" in alpha.problem)
        assert b"s\0e\0c\0r\0e\0t" not in impostor.heard
        assert alpha.waiting == 1

    def test_an_impostor_at_the_address_of_the_peer_gets_no_message(self, network: Network) -> None:
        """The impostor has its own certificate on 1802 and accepts everything in clear on 1801."""
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        forged = issue(network.folder / "elsewhere", "BETA", guid=beta.guid)
        with (
            alpha.listening(beta.peer(b.certificate_file, guid=beta.guid), **a.settings),
            Impostor(beta.address, TLS_PORT, beta.guid, forged) as over_tls,
            Impostor(beta.address, PORT, beta.guid) as in_clear,
        ):
            alpha.send("BETA", "secret")
            alpha.send(beta.address, "secret", by="TCP")
            until(lambda: alpha.problem.count("it is self-signed and not in [peers]") == 2)
            until(lambda: over_tls.connections > 3)
        assert in_clear.connections == 0
        assert over_tls.heard == b""
        assert alpha.waiting == 2

    def test_a_middleman_who_passes_everything_on_reads_nothing(self, network: Network) -> None:
        alpha, beta = network.alpha, network.beta
        a, b = network.issue(alpha), network.issue(beta)
        with (
            Relay(free_address(), beta.address) as relay,
            alpha.listening(beta.peer(b.certificate_file, addresses=(relay.address,)), **a.settings),
            beta.listening(alpha.peer(a.certificate_file), **b.settings),
        ):
            alpha.send("BETA", "secret" * 100)
            until(lambda: beta.queue.count() == 1)
        assert len(relay.heard) > 1000
        assert "secret".encode("utf-16-le") not in relay.heard
        assert beta.guid.bytes_le not in relay.heard


class _Server:
    """Something that listens in a thread, until it is left."""

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.heard = b""
        self.connections = 0
        self._server = socket.create_server((address, port))
        self._threads = [threading.Thread(target=self._serve)]
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        # Wakes the thread that accepts.
        self._server.shutdown(socket.SHUT_RDWR)
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self.connections += 1
                self._open.append(connection)
                with contextlib.suppress(OSError), connection:
                    self.talk(connection)

    def talk(self, connection: socket.socket) -> None:
        raise NotImplementedError


class Impostor(_Server):
    """A peer that answers the handshake with a given GUID and records what it receives."""

    def __init__(self, address: str, port: int, guid: uuid.UUID, certificate: Issued | None = None) -> None:
        super().__init__(address, port)
        self._guid = guid
        self._context: ssl.SSLContext | None = None
        if certificate is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate.certificate_file, certificate.key_file)

    def talk(self, connection: socket.socket) -> None:
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        session = Session.accept(
            own_guid=self._guid, settings=TransferSettings(), monotonic=lambda: 0.0, admit=lambda _: True
        )
        with connection:
            while data := connection.recv(1 << 16):
                self.heard += data
                session.receive(data)
                connection.sendall(b"".join(session.data_to_send()))


class Relay(_Server):
    """Passes bytes on to a queue manager, and takes them down."""

    def __init__(self, address: str, target: str) -> None:
        super().__init__(address, TLS_PORT)
        self._target = target

    def talk(self, connection: socket.socket) -> None:
        with socket.create_connection((self._target, TLS_PORT), 30, source_address=(self.address, 0)) as other:
            self._open.append(other)
            back = threading.Thread(target=self._copy, args=(other, connection))
            back.start()
            self._copy(connection, other)
            back.join()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.heard += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
