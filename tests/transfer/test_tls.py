"""Queue managers that exchange messages over TLS, and why they do not."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from lanner.directory.topology import Computer, Topology, provision
from lanner.model.enums import ConnectionStatus
from lanner.transfer.peers import Peer
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.transfer.tls import TlsSettingsError, load_identity
from lanner.transfer.tls_channel import TlsChannel
from lanner.transfer.tls_errors import TlsError
from tests.transfer.tls_files import authority, issue
from tests.transfer.tls_world import PORT, TLS_PORT, Manager, Network, is_admitted, until


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    made = Network(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_messages_of_every_kind_pass_both_ways(network: Network, run: Callable[..., None]) -> None:
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    settings = (
        alpha.settings(beta.peer(b.certificate_file, guid=beta.guid), **a.settings),
        beta.settings(alpha.peer(a.certificate_file, guid=alpha.guid), **b.settings),
    )

    async def main() -> None:
        listeners = [
            TransferListener(one.engine, one.address, each) for one, each in zip((alpha, beta), settings, strict=True)
        ]
        for listener in listeners:
            await listener.start()
        try:
            alpha.send("BETA", "express", "large" * 100_000)
            alpha.send("BETA", "recoverable", recoverable=True)
            alpha.send("BETA", *map(str, range(100)), queue="t")
            beta.send("ALPHA", "back")
            async with asyncio.timeout(30):
                while not (beta.queue.count() == 3 and beta.ordered.count() == 100 and alpha.queue.count() == 1):  # noqa: ASYNC110 (the condition is in other threads)
                    await asyncio.sleep(0.01)
            links = [list(listener.transfer.links.values()) for listener in listeners]
            assert {link.certified_peer and link.certified_peer.name for link in links[0]} == {"BETA"}
            assert {link.certified_peer and link.certified_peer.name for link in links[1]} == {"ALPHA"}
        finally:
            for listener in listeners:
                await listener.stop()

    run(main())
    assert [message.body for message in beta.ordered] == [str(number) for number in range(100)]
    assert beta.queue.receive().body == "express"
    assert beta.queue.receive().body == "large" * 100_000


def test_three_computers_with_certificates_of_one_authority(network: Network) -> None:
    managers = (network.alpha, network.beta, network.gamma)
    issuer = authority(network.folder, "Authority")
    certificates = {one.name: network.issue(one, by=issuer) for one in managers}

    def start(one: Manager) -> Any:  # noqa: ANN401 (a context manager)
        others = [other.peer(tls=True) for other in managers if other is not one]
        return one.listening(*others, **certificates[one.name].settings, tls_authorities=issuer.certificate_file)

    with start(network.alpha), start(network.beta), start(network.gamma):
        for one in managers:
            for other in managers:
                if other is not one:
                    one.send(other.name, f"from {one.name}", recoverable=True)
                    one.send(other.name, *map(str, range(5)), queue="t")
        for one in managers:
            until(lambda one=one: one.queue.count() == 2 and one.ordered.count() == 10)  # type: ignore[misc]
            assert all(link.certified_peer is not None for link in one.links)


def test_an_address_a_guid_and_a_name_all_lead_to_the_peer_with_tls(network: Network) -> None:
    """Whatever a message calls the computer, it is not spoken to in clear."""
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with (
        alpha.listening(beta.peer(b.certificate_file), **a.settings),
        beta.listening(alpha.peer(a.certificate_file), **b.settings),
    ):
        alpha.send(beta.address, "by address", by="TCP")
        alpha.send("beta", "by name")
        until(lambda: beta.queue.count() == 2)
        assert [link.certified_peer and link.certified_peer.name for link in alpha.links] == ["BETA"]
        # Another name of the same computer, which only DNS or the hosts file knows.
        alpha.manager.open(r"DIRECT=TCP:" + beta.address + r"\private$\q").send("again")
        until(lambda: beta.queue.count() == 3)
        assert len(alpha.links) == 1


def test_a_killed_peer_comes_back_and_the_messages_continue(network: Network) -> None:
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with alpha.listening(beta.peer(b.certificate_file), **a.settings):
        for number in range(3):
            alpha.send("BETA", *(f"{number} {index}" for index in range(20)), queue="t")
            with beta.listening(alpha.peer(a.certificate_file), **b.settings):
                until(lambda number=number: beta.ordered.count() == 20 * (number + 1))  # type: ignore[misc]
            until(lambda: not any(link.is_open for link in alpha.links))
    assert [message.body for message in beta.ordered] == [
        f"{number} {index}" for number in range(3) for index in range(20)
    ]


def test_nothing_falls_back_to_clear(network: Network) -> None:
    """The peer answers on 1801, but not on 1802.

    Messages continue to wait, and `lanner outgoing` says why.
    """
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with (
        alpha.listening(beta.peer(b.certificate_file), **a.settings),
        socket.create_server((beta.address, PORT)) as clear,
    ):
        alpha.send("BETA", "secret")
        until(lambda: "has no TLS" in alpha.problem)
        with alpha.engine.store.lock:
            (queue,) = alpha.engine.outgoing_queues()
            attempts = len(queue.connection_history)
        until(lambda: len(queue.connection_history) > attempts)
        clear.setblocking(False)
        with pytest.raises(BlockingIOError):
            clear.accept()
        assert re.match(
            rf"TLS with BETA at {beta.address}, port {TLS_PORT}: Connection refused: the queue manager there",
            alpha.problem,
        )
    assert alpha.waiting == 1


def test_failures_are_reported_in_words(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lanner.transfer")
    alpha, beta = network.alpha, network.beta
    ours, theirs = authority(network.folder, "Ours"), authority(network.folder, "Theirs")
    a = network.issue(alpha, by=ours)
    known = {**a.settings, "tls_authorities": ours.certificate_file}

    def problem(text: str, beta_certificate: Any, **beta_settings: object) -> None:  # noqa: ANN401
        beta_settings.setdefault("tls_authorities", ours.certificate_file)
        with (
            alpha.listening(beta.peer(tls=True), **known),
            beta.listening(alpha.peer(tls=True), **beta_certificate.settings, **beta_settings),
        ):
            alpha.send("BETA", "where are you")
            until(lambda: text in alpha.problem)
        assert beta.queue.count() == 0

    problem("its authority is unknown here", network.issue(beta, by=theirs))
    problem("which names mallory, not", network.issue(beta, by=ours, names=["mallory"], guid=None))
    problem(
        "the peer does not know our certificate", network.issue(beta, by=ours), tls_authorities=theirs.certificate_file
    )
    with alpha.engine.store.lock:
        (queue,) = alpha.engine.outgoing_queues()
        statuses = {entry.status for entry in queue.connection_history}
    assert ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE in statuses
    lines = [record.getMessage() for record in caplog.records]
    assert any("the certificate of the peer is not accepted: its authority is unknown here" in line for line in lines)


def test_a_guid_that_is_not_the_certificates_ends_the_session_with_a_line_in_the_log(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lanner.transfer")
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha, guid=None), network.issue(beta, guid=None)
    other = uuid.uuid4()
    with (
        alpha.listening(beta.peer(b.certificate_file, guid=other), **a.settings),
        beta.listening(alpha.peer(a.certificate_file), **b.settings),
    ):
        alpha.send("BETA", "x")
        until(lambda: "and the peer says it is queue manager" in alpha.problem)
        assert f"the certificate CN=BETA is of BETA ({other}) in [peers]" in alpha.problem
    assert beta.queue.count() == 0
    assert any(
        record.levelno == logging.WARNING and "and the peer says it is queue manager" in record.getMessage()
        for record in caplog.records
    )


def test_certificates_are_replaced_while_it_runs(network: Network) -> None:
    """SIGHUP: new sessions use the new certificates.

    A session with a certificate that is no longer trusted ends.
    """
    alpha, beta = network.alpha, network.beta
    a, old = network.issue(alpha), network.issue(beta)
    with (
        alpha.listening(beta.peer(old.certificate_file), **a.settings),
        beta.listening(alpha.peer(a.certificate_file), **old.settings),
    ):
        alpha.send("BETA", "one")
        until(lambda: beta.queue.count() == 1)
        (link,) = alpha.links
        new = issue(network.folder, "BETA-new", guid=beta.guid)
        beta.reload(alpha.peer(a.certificate_file), **new.settings)
        # The open session goes on: the certificate it began with is still known here.
        alpha.send("BETA", "two")
        until(lambda: beta.queue.count() == 2)
        assert alpha.links == [link]
        alpha.reload(beta.peer(new.certificate_file), **a.settings)
        until(lambda: link.is_closed)
        alpha.send("BETA", "three")
        until(lambda: beta.queue.count() == 3)
        (link,) = alpha.links
        assert link.connection.certification is not None
        assert link.connection.certification.subject == "CN=BETA-new"
        with pytest.raises(TlsSettingsError, match="switched on and off by a restart only"):
            alpha.reload()


def test_a_session_in_clear_ends_when_its_peer_gets_a_certificate(network: Network) -> None:
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with alpha.listening(beta.peer(), **a.settings), beta.listening(alpha.peer(), **b.settings):
        alpha.send("BETA", "in clear")
        until(lambda: beta.queue.count() == 1)
        (link,) = alpha.links
        assert link.certified_peer is None
        alpha.reload(beta.peer(b.certificate_file), **a.settings)
        beta.reload(alpha.peer(a.certificate_file), **b.settings)
        until(lambda: link.is_closed)
        alpha.send("BETA", "over TLS")
        until(lambda: beta.queue.count() == 2)
        assert all(link.certified_peer is not None for link in alpha.links)


def test_the_directory_says_whom_a_name_of_a_certificate_is(network: Network) -> None:
    alpha, beta, gamma = network.alpha, network.beta, network.gamma
    issuer = authority(network.folder, "Authority")
    a = network.issue(alpha, by=issuer)
    named = network.issue(beta, by=issuer, guid=None)
    computers = tuple(Computer(one.name, one.guid) for one in (alpha, beta, gamma))
    with alpha.engine.store.lock:
        provision(alpha.engine.directory, Topology(computers=computers))
    with alpha.listening(**a.settings, tls_authorities=issuer.certificate_file):
        assert is_admitted(alpha, named, beta.guid)
        assert not is_admitted(alpha, named, gamma.guid)
        assert not is_admitted(alpha, named, uuid.uuid4())


def test_a_computer_that_the_directory_has_is_reached_over_tls(network: Network) -> None:
    """The format name of the message has the identifier of the computer.

    The directory has a host name for it that is not in the peers table.
    """
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta, guid=None)
    host = f"localhost.{beta.name}.invalid"
    with alpha.engine.store.lock:
        provision(alpha.engine.directory, Topology(computers=(Computer("BETA", beta.guid, host),)))
    with beta.engine.store.lock:
        (number,) = [one.private_queue_number for one in beta.engine.local_queues() if one.pathname.endswith(r"\q")]
    target = f"PRIVATE={beta.guid}\\{number:08x}"
    with (
        alpha.listening(beta.peer(b.certificate_file), **a.settings),
        beta.listening(alpha.peer(a.certificate_file), **b.settings),
    ):
        alpha.manager.open(target).send("by identifier")
        until(lambda: beta.queue.count() == 1)
        assert [link.certified_peer and link.certified_peer.name for link in alpha.links] == ["BETA"]


def test_openssl_is_served_with_tls_13_and_asked_for_a_certificate(network: Network) -> None:
    alpha, beta = network.alpha, network.beta
    a, b = network.issue(alpha), network.issue(beta)
    with alpha.listening(beta.peer(b.certificate_file), **a.settings):

        def s_client(*options: object) -> str:
            command = ["openssl", "s_client", "-connect", f"{alpha.address}:{TLS_PORT}", "-CAfile", a.certificate_file]
            result = subprocess.run(
                [*map(str, command), *map(str, options)], input=b"", capture_output=True, timeout=30, check=False
            )
            return (result.stdout + result.stderr).decode()

        known = s_client("-cert", b.certificate_file, "-key", b.key_file)
        assert "TLSv1.3" in known
        assert "Verify return code: 0 (ok)" in known
        assert "Verification: OK" in known
        assert "alert" not in known
        assert "protocol version" in s_client("-tls1_2", "-cert", b.certificate_file, "-key", b.key_file)


def settings_of(**given: object) -> TransferSettings:
    return TransferSettings(**given)  # type: ignore[arg-type]


class TestFiles:
    """The errors of `lanner serve` for files that it cannot use."""

    @pytest.fixture
    def refused(self, tmp_path: Path) -> Callable[..., str]:
        good = issue(tmp_path, "good")

        def refuse(**given: object) -> str:
            settings = {**good.settings, **given}
            with pytest.raises(TlsSettingsError) as caught:
                load_identity(settings_of(**settings))
            return str(caught.value)

        assert load_identity(settings_of(**good.settings)) is not None
        return refuse

    def test_both_or_none(self, refused: Callable[..., str]) -> None:
        assert load_identity(settings_of()) is None
        assert "needs both tls_certificate and tls_key" in refused(tls_key=None)
        assert "needs both tls_certificate and tls_key" in refused(tls_certificate=None)

    def test_that_cannot_be_read(self, refused: Callable[..., str], tmp_path: Path) -> None:
        missing = tmp_path / "missing"
        text = tmp_path / "text"
        text.write_text("nothing of the kind")
        text.chmod(0o600)
        assert f"tls_certificate: {missing}: No such file" in refused(tls_certificate=missing)
        assert f"tls_key: {missing}: No such file" in refused(tls_key=missing)
        assert f"tls_authorities: {missing}: No such file" in refused(tls_authorities=missing)
        assert "holds no certificate in PEM" in refused(tls_certificate=text)
        assert "is no private key in PEM" in refused(tls_key=text)
        peer = Peer("BETA", ("192.0.2.1",), certificate=missing)
        assert f"peers.BETA.certificate: {missing}: No such file" in refused(peers={"BETA": peer})

    def test_keys(self, refused: Callable[..., str], tmp_path: Path) -> None:
        other = issue(tmp_path, "other")
        assert "is not the key of the certificate" in refused(tls_key=other.key_file)
        for mode in (0o644, 0o604, 0o620):
            other.key_file.chmod(mode)
            assert f"has mode {mode:04o}" in refused(tls_key=other.key_file)
        encrypted = other.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
        other.key_file.chmod(0o640)
        other.key_file.write_bytes(encrypted)
        assert "is encrypted" in refused(tls_key=other.key_file)

    def test_dates_and_purposes(self, refused: Callable[..., str], tmp_path: Path) -> None:
        expired = issue(tmp_path, "expired", days=-1, age=30)
        early = issue(tmp_path, "early", age=-1)
        server = issue(tmp_path, "server", purposes=[ExtendedKeyUsageOID.SERVER_AUTH])
        assert f"expired on {expired.certificate.not_valid_after_utc:%Y-%m-%d}" in refused(**expired.settings)
        assert "is not valid before" in refused(**early.settings)
        assert "must be for servers and for clients" in refused(**server.settings)

    def test_peers(self, refused: Callable[..., str], tmp_path: Path) -> None:
        pin = issue(tmp_path, "pin", guid=uuid.uuid4())
        peer = Peer("BETA", ("192.0.2.1",), certificate=pin.certificate_file)
        with pytest.raises(
            TlsSettingsError, match=r"peers\.BETA has TLS, which needs a certificate of this queue manager"
        ):
            load_identity(settings_of(peers={"BETA": peer}))
        other = Peer("BETA", ("192.0.2.1",), uuid.uuid4(), pin.certificate_file)
        assert "and peers.BETA.guid is" in refused(peers={"BETA": other})
        marked = Peer("BETA", ("192.0.2.1",), tls=True)
        assert "peers.BETA.tls needs transfer.tls_authorities" in refused(peers={"BETA": marked})

    def test_a_pin_that_may_issue_certificates_is_no_authority(
        self, refused: Callable[..., str], tmp_path: Path
    ) -> None:
        issuer = authority(tmp_path, "issuer")
        pin = authority(tmp_path, "pin")
        peers = {"BETA": Peer("BETA", ("192.0.2.1",), certificate=pin.certificate_file)}
        assert "would be an authority too" in refused(peers=peers, tls_authorities=issuer.certificate_file)


class TestChannel:
    """TLS over two buffers."""

    @pytest.fixture
    def ends(self, tmp_path: Path) -> tuple[TlsChannel, TlsChannel]:
        a, b = issue(tmp_path, "a"), issue(tmp_path, "b")
        settings = [
            settings_of(**own.settings, peers={"X": Peer("X", ("192.0.2.1",), certificate=other.certificate_file)})
            for own, other in ((a, b), (b, a))
        ]
        client, server = map(load_identity, settings)
        assert client is not None
        assert server is not None
        return TlsChannel(client.client, is_server=False), TlsChannel(server.server, is_server=True)

    @staticmethod
    def exchange(client: TlsChannel, server: TlsChannel) -> None:
        done = [False, False]
        while not all(done):
            for index, (one, other) in enumerate(((client, server), (server, client))):
                done[index] = done[index] or one.handshake()
                other.feed(one.output())

    @pytest.mark.parametrize("piece", [1, 7, 1 << 20])
    def test_however_the_stream_is_cut(self, ends: tuple[TlsChannel, TlsChannel], piece: int) -> None:
        client, server = ends
        self.exchange(client, server)
        said = bytes(range(256)) * 200
        client.write([said[:100], said[100:]])
        data = client.output()
        buffer = memoryview(bytearray(1 << 15))
        heard = b""
        for start in range(0, len(data), piece):
            server.feed(data[start : start + piece])
            while count := server.read_into(buffer):
                heard += buffer[:count]
        assert heard == said
        client.close()
        server.feed(client.output())
        assert server.read_into(buffer) == 0
        assert server.is_ended

    def test_what_was_changed_on_the_way_is_not_given_out(self, ends: tuple[TlsChannel, TlsChannel]) -> None:
        client, server = ends
        self.exchange(client, server)
        client.write([b"genuine"])
        server.feed(client.output())
        client.write([b"forged"])
        data = bytearray(client.output())
        data[-1] ^= 1
        server.feed(bytes(data))
        buffer = memoryview(bytearray(100))
        assert bytes(buffer[: server.read_into(buffer)]) == b"genuine"
        for _ in range(2):
            with pytest.raises(TlsError, match="changed on the way"):
                server.read_into(buffer)
