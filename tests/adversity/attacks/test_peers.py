"""Peers that impersonate others, forge acknowledgments or abuse a queue manager.

Each attack is made over sockets on a `lanner serve` with default settings (docs/security.md,
"Peers").
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lanner
from lanner.model.enums import Acknowledgements
from lanner.transfer.packets import FinalAckBody, OrderAckBody, build_order_ack
from lanner.transfer.settings import TransferSettings
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.message import Message
from tests.adversity.network import PORT, loopback_network
from tests.adversity.stranger import Stranger, message
from tests.transfer.final_acks import build_final_ack

_LANNER = Path(sys.executable).with_name("lanner")
_numbers = itertools.count(1)
SETTINGS = """
[transfer]
port = {port}
try_connect_interval = 0.05
resend_timeouts_short = 0.3
resend_timeouts_medium = 0.3
order_ack_timeout = 0.05
{transfer}
[rpc]
enabled = false
[com]
enabled = false
[flight]
enabled = false
{more}
"""


def new_address() -> str:
    return f"{loopback_network()}.{next(_numbers)}"


def wait_for(is_so: Callable[[], object], complaint: str) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, complaint
        time.sleep(0.02)


class Served:
    """A queue manager in a process of its own, as an operator runs and sees it."""

    def __init__(self, path: Path, name: str, transfer: str = "", more: str = "") -> None:
        self.data = path / name
        self.name = name
        self.address = new_address()
        self._config = path / f"{name}.toml"
        self.configure(transfer, more)
        self._log = path / f"{name}.log"
        # What was there when the test began.
        self._before: dict[str, int] = {}
        self._seen = 0
        self.start()

    def mark(self) -> None:
        """Another test begins: it sees only what happens from now on."""
        self._before = {one["kind"]: one["count"] for one in self.manager.status()["incidents"]}
        self._seen = len(self.log)

    def configure(self, transfer: str = "", more: str = "") -> None:
        self._config.write_text(SETTINGS.format(port=PORT, transfer=transfer, more=more))

    def start(self) -> None:
        arguments: list[str | Path] = ["--data", self.data, "--config", self._config, "--name", self.name]
        arguments += ["--bind", self.address, "--json"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [_LANNER, "serve", *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "NO_COLOR": "1"},
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log
        self.manager = lanner.connect(data=self.data)
        guid = self.manager.identifier
        assert guid is not None
        self.guid = guid

    def reload(self) -> None:
        self._process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        self.manager.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=30)
        self._before = {}

    @property
    def log(self) -> str:
        return self._log.read_text()

    def create(self, name: str, *, transactional: bool = False) -> str:
        """A queue that anybody may send to; its direct name."""
        self.manager.create_queue(name, transactional=transactional, access={"Everyone": "send", "Anonymous": "send"})
        return rf"DIRECT=TCP:{self.address}\private$\{name}"

    def bodies(self, name: str) -> list[bytes]:
        return [one.body_bytes for one in self.manager.open(name)]

    def commit(self, to: str, *bodies: str, **properties: Any) -> None:  # noqa: ANN401 (of Message)
        queue = self.manager.open(to)
        with self.manager.transaction() as transaction:
            queue.send_many([lanner.Message(body=body, **properties) for body in bodies], transaction=transaction)

    def outgoing(self, name: str) -> dict[str, Any]:
        wanted = str(parse(name)).lower()
        return next(one for one in self.manager.outgoing() if one["name"].lower() == wanted)

    def incidents(self, kind: str) -> int:
        rows = self.manager.status()["incidents"]
        return sum(int(one["count"]) for one in rows if one["kind"] == kind) - self._before.get(kind, 0)

    def lines(self, text: str) -> list[str]:
        return [line for line in self.log[self._seen :].splitlines() if text in line]

    def order_queue(self) -> str:
        return rf"DIRECT=TCP:{self.address}\PRIVATE$\order_queue$"

    def stranger(self, address: str | None = None, guid: uuid.UUID | None = None) -> Stranger:
        return Stranger.connect(address or new_address(), self.address, guid=guid or uuid.uuid4())

    def sequence_of(self, name: str) -> TxSequenceID:
        """Return the sequence identifier that an attacker would have to guess, second by second."""
        place = self.outgoing(name)["sequence"]["next_seq"]
        return TxSequenceID.from_value(int(place["sequence"], 16))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    with contextlib.ExitStack() as stack:
        served = [Served(tmp_path_factory.mktemp("peers"), name) for name in ("ALPHA", "BETA")]
        for one in served:
            stack.callback(one.stop)
        yield served[0], served[1]


@pytest.fixture
def alpha(pair: tuple[Served, Served]) -> Served:
    pair[0].mark()
    return pair[0]


@pytest.fixture
def beta(pair: tuple[Served, Served]) -> Served:
    pair[1].mark()
    return pair[1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    with contextlib.ExitStack() as stack:

        def start_it(name: str, transfer: str = "", more: str = "") -> Served:
            served = Served(tmp_path, name, transfer, more)
            stack.callback(served.stop)
            return served

        yield start_it


def final_ack(node: Served, body: FinalAckBody, source: uuid.UUID, message_class: int = 0x4000) -> bytes:
    return build_final_ack(
        body,
        message_class,
        source=source,
        ordinal=1,
        sent_time=int(time.time()),
        destination=parse(node.order_queue()),
    )


def order_ack(node: Served, sequence: TxSequenceID, number: int, source: uuid.UUID) -> bytes:
    return build_order_ack(
        OrderAckBody.of(sequence, number),
        source=source,
        ordinal=1,
        sent_time=int(time.time()),
        destination=parse(node.order_queue()),
    )


# Forged acknowledgments
# -------------------------------------------------------------------------------------------


def test_guessed_final_acks_remove_nothing(alpha: Served) -> None:
    """Three thousand guesses removed ten exactly-once messages that had never been sent."""
    far = rf"DIRECT=TCP:{new_address()}\private$\far"
    alpha.commit(far, *"0123456789")
    sequence = alpha.sequence_of(far)
    guid = uuid.uuid4()
    with alpha.stranger(guid=guid).open() as attacker:
        guesses = [
            final_ack(alpha, FinalAckBody(sequence, number, number - 1, alpha.guid, ordinal), guid)
            for number in range(1, 11)
            for ordinal in range(300)
        ]
        attacker.say(b"".join(guesses))
        wait_for(lambda: alpha.incidents("foreign_acknowledgment") == 3000, "the guesses are not counted")
    assert alpha.outgoing(far)["messages"] == 10
    assert len(alpha.lines("acknowledgments ignored of messages that were not sent to that queue manager")) == 1


def test_a_destination_cannot_acknowledge_what_it_was_not_sent(alpha: Served) -> None:
    """This holds also for a real destination: messages behind its window were not sent to it."""
    address, guid = new_address(), uuid.uuid4()
    far = rf"DIRECT=TCP:{address}\private$\far"
    with socket.create_server((address, PORT)) as listening:
        alpha.commit(far, *"0123456789")
        narrow = TransferSettings(window_size=1)
        with Stranger.accept(listening, narrow, guid=guid).open() as peer:
            # It says nothing more, so only one message comes.
            packet = peer.connection.recv(1 << 16)
            first = FinalAckBody.of(packet[: int.from_bytes(packet[8:12], "little")])
            assert first.tx_sequence_number == 1
            for number in range(2, 11):
                for ordinal in range(first.message_id, first.message_id + 20):
                    body = FinalAckBody(first.tx_sequence_id, number, number - 1, alpha.guid, ordinal)
                    peer.say(final_ack(alpha, body, guid))
            wait_for(lambda: alpha.incidents("unmatched_acknowledgment") == 180, "the guesses are not counted")
            peer.say(order_ack(alpha, first.tx_sequence_id, 10, guid))
            peer.say(final_ack(alpha, FinalAckBody(first.tx_sequence_id, 10, 9, alpha.guid, 999), guid))
            wait_for(lambda: alpha.incidents("unmatched_acknowledgment") == 181, "the guesses are not counted")
            assert alpha.outgoing(far)["messages"] >= 9


def test_nobody_else_acknowledges_what_was_sent(alpha: Served, beta: Served) -> None:
    """An OrderAck and a FinalAck with correct identifiers from a computer that got no messages."""
    beta.create("ledger", transactional=True)
    alpha.commit(rf"DIRECT=TCP:{beta.address}\private$\ledger", "kept", use_journal_queue=True)
    wait_for(lambda: beta.bodies("ledger"), "nothing arrived")
    (there,) = list(beta.manager.open("ledger"))
    far = rf"DIRECT=TCP:{beta.address}\private$\ledger"
    wait_for(
        lambda: alpha.outgoing(far)["sequence"]["no_read_count"] == 1, "the message does not wait for its FinalAck"
    )
    sequence = alpha.sequence_of(far)
    guid = uuid.uuid4()
    ordinal = int(there.id.rpartition("\\")[2])
    with alpha.stranger(guid=guid).open() as attacker:
        for older in (sequence, TxSequenceID(sequence.ordinal - 1, sequence.time_stamp)):
            attacker.say(final_ack(alpha, FinalAckBody(older, 1, 0, alpha.guid, ordinal), guid, 0x8000))
            attacker.say(order_ack(alpha, older, 1, guid))
        wait_for(lambda: alpha.incidents("foreign_acknowledgment") == 4, "the forgeries are not counted")
    assert alpha.outgoing(far)["sequence"]["no_read_count"] == 1
    assert list(alpha.manager.transactional_dead_letter) == []
    # The receiver itself is believed, after a restart too.
    alpha.stop()
    alpha.start()
    beta.manager.open("ledger").receive(5)
    wait_for(lambda: list(alpha.manager.system_journal), "the receiver's own FinalAck is not believed")


# Duplicates
# --------------------------------------------------------------------------------------------------


def test_nobody_poisons_the_identifiers_of_another_sender(alpha: Served, beta: Served) -> None:
    """Rejected messages do not affect the real owner of their identifiers.

    Formerly the identifiers of rejected messages were remembered, and the real messages of another
    computer were dropped silently.
    """
    to = beta.create("unpoisoned")
    with beta.stranger().open() as attacker:
        for ordinal in range(1, 201):
            nowhere = rf"DIRECT=TCP:{beta.address}\private$\nowhere"
            by_number = f"PRIVATE={beta.guid}\\00000777"
            for name in (nowhere, by_number):
                packet = message(name, ordinal=ordinal, source=alpha.guid)
                attacker.say(packet)
        wait_for(lambda: beta.incidents("unverified_source") == 400, "the forgeries are not counted")
    assert len(beta.lines("messages dropped that name another queue manager as their source")) == 1
    alpha.manager.open(to).send_many([lanner.Message(body=str(n), recoverable=True) for n in range(20)])
    wait_for(lambda: len(beta.bodies("unpoisoned")) == 20, "the real messages were dropped")
    assert beta.incidents("duplicate") == 0


def test_a_flood_has_no_message_of_another_sender_forgotten(start: Callable[..., Served]) -> None:
    """A flood must not evict the history of another sender.

    A recoverable message whose acknowledgment was lost is sent again, and would be stored twice.
    """
    alpha = start("HISTORY", "message_id_history_size = 20")
    to = alpha.create("orders")
    guid, liar, address = uuid.uuid4(), uuid.uuid4(), new_address()
    with alpha.stranger(address, guid).open() as peer:
        peer.say(message(to, b"pay", source=guid, ordinal=7))
        wait_for(lambda: alpha.bodies("orders"), "the honest message does not come")
    with alpha.stranger(guid=liar).open() as attacker:
        for ordinal in range(1, 101):
            attacker.say(message(to, b"", source=liar, ordinal=ordinal, recoverable=False))
        wait_for(lambda: len(alpha.bodies("orders")) == 101, "the flood does not come")
    with alpha.stranger(address, guid).open() as peer:
        peer.say(message(to, b"pay", source=guid, ordinal=7))
        wait_for(lambda: alpha.incidents("duplicate") == 1, "the copy is not recognised")
    assert alpha.bodies("orders").count(b"pay") == 1


def test_a_refused_message_of_the_sender_itself_is_not_remembered(alpha: Served) -> None:
    """A queue that was made later gets the message that was refused before."""
    guid = uuid.uuid4()
    late = rf"DIRECT=TCP:{alpha.address}\private$\late"
    with alpha.stranger(guid=guid).open() as peer:
        packet = message(late, ordinal=7, source=guid)
        peer.say(packet)
        wait_for(lambda: alpha.manager.status()["refused"], "the message is not refused")
        alpha.create("late")
        peer.say(packet + packet)
        wait_for(lambda: alpha.incidents("duplicate") == 1, "the second copy is not dropped")
    assert len(alpha.bodies("late")) == 1


# Sequences
# --------------------------------------------------------------------------------------------------


def test_a_sequence_of_the_future_blocks_nobody(alpha: Served) -> None:
    """One packet with a time far ahead made everything old that the real sender sent afterwards."""
    to = alpha.create("ledger", transactional=True)
    guid, now = uuid.uuid4(), int(time.time())
    with alpha.stranger(guid=guid).open() as peer:
        for ahead in (0xFFFF_FFFF, now + 2 * 86_400):
            peer.say(message(to, b"future", source=guid, sequence=TxSequenceID(1, ahead)))
        wait_for(lambda: alpha.incidents("sequence_ahead") == 2, "the future is not refused")
        peer.say(message(to, b"now", source=guid, sequence=TxSequenceID(1, now), ordinal=9))
        wait_for(lambda: alpha.bodies("ledger"), "the real message is blocked")
    assert alpha.bodies("ledger") == [b"now"]
    assert len(alpha.lines("the time of their sequence is too far ahead")) == 1


def test_nobody_fixes_the_sequence_of_another_sender(alpha: Served, beta: Served) -> None:
    to = beta.create("unfixed", transactional=True)
    ahead = TxSequenceID(1, int(time.time()) + 3600)
    with beta.stranger().open() as attacker:
        attacker.say(message(to, b"forged", source=alpha.guid, sequence=ahead))
        wait_for(lambda: beta.incidents("unverified_source") == 1, "the forgery is not counted")
    alpha.commit(to, "real")
    wait_for(lambda: beta.bodies("unfixed"), "the real sender is blocked")
    assert [one.body for one in beta.manager.open("unfixed")] == ["real"]


def test_made_up_sequences_displace_none_of_another_sender(alpha: Served) -> None:
    """If a sequence is forgotten, its messages are accepted a second time."""
    to = alpha.create("flooded", transactional=True)
    guid, liar, sequence = uuid.uuid4(), uuid.uuid4(), TxSequenceID(1, int(time.time()))
    address = new_address()
    once = message(to, b"once", source=guid, sequence=sequence)
    with alpha.stranger(address, guid).open() as peer:
        peer.say(once)
        wait_for(lambda: alpha.bodies("flooded"), "the honest message does not come")
    with alpha.stranger(guid=liar).open() as attacker:
        for n in range(1100):
            name = rf"DIRECT=TCP:127.9.{n >> 8}.{n & 255}\private$\flooded"
            attacker.say(message(name, b"", source=liar, sequence=sequence, recoverable=False))
        wait_for(lambda: alpha.incidents("too_many_sequences") == 100, "the attacker's sequences do not make room")
    with alpha.stranger(address, guid).open() as peer:
        peer.say(once)
        peer.say(message(to, b"next", source=guid, sequence=sequence, number=2, ordinal=2))
        wait_for(lambda: b"next" in alpha.bodies("flooded"), "the honest sender is silenced")
    assert [body for body in alpha.bodies("flooded") if body] == [b"once", b"next"]


def test_a_sender_whose_messages_are_taken_for_old_ones_sees_it(alpha: Served) -> None:
    """A sender learns that the receiver has a newer sequence under its identifier.

    Formerly the only symptom was messages that did not leave.
    """
    address, guid = new_address(), uuid.uuid4()
    far = rf"DIRECT=TCP:{address}\private$\far"
    with socket.create_server((address, PORT)) as listening:
        alpha.commit(far, "one")
        with Stranger.accept(listening, guid=guid).open() as peer:
            while not peer.received:
                peer.listen()
            wait_for(lambda: alpha.outgoing(far)["problem"], "no problem is shown")
            assert "1 transactional message sent and not acknowledged" in alpha.outgoing(far)["problem"]
            sequence = FinalAckBody.of(peer.received[0]).tx_sequence_id
            peer.say(order_ack(alpha, TxSequenceID(1, sequence.time_stamp + 3600), 1, guid))
            wait_for(
                lambda: "takes transactional messages for old ones" in (alpha.outgoing(far)["problem"] or ""),
                "the reason is not shown",
            )
            peer.say(order_ack(alpha, sequence, 1, guid))
            wait_for(lambda: not alpha.outgoing(far)["problem"], "the problem stays")


# Relaying
# --------------------------------------------------------------------------------------------------


def test_nothing_is_passed_on_by_a_computer_that_is_no_routing_server(alpha: Served) -> None:
    """Otherwise any peer could use this computer to send messages to any host."""
    guid, third = uuid.uuid4(), uuid.uuid4()
    before = [one["name"] for one in alpha.manager.outgoing()]
    with alpha.stranger(guid=guid).open() as attacker:
        for number in range(1, 51):
            packet = message(rf"DIRECT=TCP:10.9.8.{number}\private$\q", ordinal=number, source=guid)
            attacker.say(packet[:32] + third.bytes_le + packet[48:])
            attacker.say(message(f"PRIVATE={uuid.uuid4()}\\00000001", ordinal=100 + number, source=guid))
        wait_for(lambda: alpha.incidents("not_forwarded") == 100, "the messages are not counted")
    assert [one["name"] for one in alpha.manager.outgoing()] == before
    assert len(alpha.lines("messages for other computers not passed on")) == 1


def test_one_peer_does_not_take_all_outgoing_queues(alpha: Served) -> None:
    """One peer cannot use up the outgoing queues.

    Formerly it could fill the thousand outgoing queues that all peers share, with the
    acknowledgments that it requested.
    """
    to = alpha.create("open")

    def asking(network: int, count: int) -> None:
        guid = uuid.uuid4()
        with alpha.stranger(guid=guid).open() as peer:
            for number in range(count):
                admin = parse(rf"DIRECT=TCP:10.{network}.{number // 250}.{number % 250 + 1}\private$\a")
                asked: dict[str, Any] = {
                    "acknowledgements_requested": Acknowledgements.POS_ARRIVAL,
                    "administration_queue_format_name": admin,
                }
                peer.say(message(to, ordinal=number + 1, source=guid, **asked))
            arrived = len(alpha.bodies("open"))
            wait_for(lambda: len(alpha.bodies("open")) >= min(count, arrived + count), "the messages did not arrive")
            wait_for(lambda: caused(network) == min(count, 100), "the queues are not limited")

    def caused(network: int) -> int:
        return sum(f"TCP:10.{network}." in one["name"] for one in alpha.manager.outgoing())

    asking(1, 150)
    assert alpha.incidents("too_many_queues") == 50
    asking(2, 5)
    assert (caused(1), caused(2)) == (100, 5)


# Packets that are never sent
# --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [25, 26, 27])
def test_bits_of_an_srmp_envelope_are_refused(alpha: Served, bit: int) -> None:
    """AH announces an envelope that another parser would read: the shape of CVE-2023-21554."""
    to = alpha.create(f"bit{bit}")
    guid = uuid.uuid4()
    packet = message(to, source=guid)
    flags = int.from_bytes(packet[60:64], "little") | 1 << bit
    with alpha.stranger(guid=guid).open() as attacker:
        attacker.say(packet[:60] + flags.to_bytes(4, "little") + packet[64:] + message(to, ordinal=2, source=guid))
        attacker.wait_for_end()
    assert alpha.bodies(f"bit{bit}") == []
    assert alpha.incidents("refused_packet") == 1
    assert alpha.lines("UserHeader.Flags")


def test_bytes_after_the_last_header_are_refused(alpha: Served) -> None:
    to = alpha.create("tail")
    guid = uuid.uuid4()
    packet = message(to, source=guid) + b"\x0c\0\0\0hidden in a packet, for whoever reads it next"
    packet = packet[:8] + len(packet).to_bytes(4, "little") + packet[12:]
    with alpha.stranger(guid=guid).open() as attacker:
        attacker.say(packet)
        attacker.wait_for_end()
    assert alpha.bodies("tail") == []
    assert alpha.incidents("refused_packet") == 1


# Identities
# --------------------------------------------------------------------------------------------------


def opens(served: Served, address: str, guid: uuid.UUID) -> bool:
    """Whether a queue manager gets a session from an address."""
    with served.stranger(address, guid) as peer:
        try:
            peer.open()
        except (AssertionError, ConnectionError):
            return False
        return True


def test_a_stolen_identifier_is_refused_from_another_address(alpha: Served) -> None:
    to = alpha.create("orders")
    guid, address, thief = uuid.uuid4(), new_address(), new_address()
    with alpha.stranger(address, guid).open() as owner:
        owner.say(message(to, b"owner", source=guid))
        wait_for(lambda: alpha.bodies("orders"), "the owner is not heard")
        assert not opens(alpha, thief, guid)
    assert opens(alpha, address, guid)
    # Others behind the same address have identifiers of their own.
    assert opens(alpha, address, uuid.uuid4())
    assert alpha.incidents("refused_peer") == 1
    (line,) = alpha.lines("sessions refused")
    assert f"lanner peer trust {guid} {thief}" in line
    alpha.stop()
    alpha.start()
    assert not opens(alpha, thief, guid), "the binding does not outlive a restart"
    (pin,) = [one for one in alpha.manager.peers() if one["guid"] == str(guid)]
    assert pin["addresses"] == {address: "learnt"}
    assert [one["address"] for one in pin["conflicts"]] == [thief]
    assert alpha.manager.status()["peer_conflicts"] >= 1


def test_a_first_claimant_does_not_lock_the_owner_out_unnoticed(start: Callable[..., Served], alpha: Served) -> None:
    beta = start("GAMMA")
    to = beta.create("orders")
    attacker = beta.stranger(guid=alpha.guid).open()
    alpha.manager.open(to).send(lanner.Message(body="real", recoverable=True))
    wait_for(lambda: beta.manager.status()["peer_conflicts"], "the conflict is not shown")
    (pin,) = [one for one in beta.manager.peers() if one["guid"] == str(alpha.guid)]
    assert [one["address"] for one in pin["conflicts"]] == [alpha.address]
    wait_for(lambda: alpha.outgoing(to)["problem"], "the owner sees no problem")
    assert "refuses the connection" in alpha.outgoing(to)["problem"]
    assert beta.bodies("orders") == []
    # The operator knows which computer it is.
    beta.manager.trust_peer(alpha.guid, [alpha.address])
    attacker.wait_for_end()
    attacker.connection.close()
    wait_for(lambda: beta.bodies("orders"), "the owner is still locked out")
    assert beta.manager.status()["peer_conflicts"] == 0
    assert not opens(beta, new_address(), alpha.guid)


def test_the_first_claimant_makes_room_for_the_address_in_the_settings(
    start: Callable[..., Served], alpha: Served
) -> None:
    """A configured address displaces an impostor that came first.

    Every session reveals the identifier of a queue manager, so an impostor can claim it before its
    owner connects.
    """
    beta = start("GAMMA", more=f'[peers]\nALPHA = "{alpha.address}"')
    to = beta.create("orders")
    attacker = beta.stranger(guid=alpha.guid).open()
    attacker.say(message(to, b"forged", source=alpha.guid))
    wait_for(lambda: beta.bodies("orders"), "the liar is not heard while nobody else claims the identifier")
    alpha.manager.open(to).send(lanner.Message(body="real", recoverable=True))
    wait_for(lambda: len(beta.bodies("orders")) == 2, "the owner is locked out")
    attacker.wait_for_end()
    attacker.connection.close()
    assert not opens(beta, new_address(), alpha.guid)


def test_a_peer_that_answers_under_a_stolen_identifier_gets_nothing(alpha: Served, beta: Served) -> None:
    """The same on sessions that are opened from here, to an address that an attacker has named."""
    to = beta.create("known")
    alpha.manager.open(to).send(lanner.Message(body="x", recoverable=True))
    wait_for(lambda: beta.bodies("known"), "nothing arrived")
    address = new_address()
    evil = rf"DIRECT=TCP:{address}\private$\evil"
    with socket.create_server((address, PORT)) as listening:
        alpha.manager.open(evil).send(lanner.Message(body="secret", recoverable=True))
        with Stranger.accept(listening, guid=beta.guid) as thief:
            with contextlib.suppress(AssertionError, ConnectionError):
                thief.open()
            thief.wait_for_end()
            assert thief.received == []
        wait_for(lambda: "lanner peer trust" in (alpha.outgoing(evil)["problem"] or ""), "the reason is not shown")
    assert alpha.outgoing(evil)["messages"] == 1


def test_finished_sessions_of_strangers_make_room(start: Callable[..., Served]) -> None:
    """Finished sessions of strangers make room.

    Each of several addresses has its maximum of sessions. All are finished, so none is half open.
    """
    known, guid = new_address(), uuid.uuid4()
    limits = "max_connections = 8\nmax_sessions_per_peer = 4"
    alpha = start("FULL", limits, more=f'[peers]\nBETA = "{known}"')
    with contextlib.ExitStack() as stack:

        def hold(address: str, guid: uuid.UUID | None = None) -> Stranger:
            return stack.enter_context(alpha.stranger(address, guid)).open()

        greedy = new_address(), new_address()
        held = [hold(address) for address in greedy for _ in range(4)]
        hold(known, guid)
        held[0].wait_for_end()
        # Neither does a stranger with one session stand back, nor does the known peer.
        newcomer = hold(new_address())
        held[4].wait_for_end()
        for address in greedy:
            assert not all(opens(alpha, address, uuid.uuid4()) for _ in range(4))
        rows = alpha.manager.status()["sessions"]
        assert {row["address"] for row in rows} >= {known, newcomer.connection.getsockname()[0]}


def test_only_known_peers_connect_where_that_is_wanted(start: Callable[..., Served]) -> None:
    guid, address, other = uuid.uuid4(), new_address(), new_address()
    peers = f'[peers]\nBYADDRESS = "{other}"\n[peers.BYGUID]\naddresses = ["{address}"]\nguid = "{guid}"\n'
    alpha = start("ALPHA", 'peers = "known"', peers)
    assert opens(alpha, address, guid)
    assert opens(alpha, other, uuid.uuid4())
    stranger, unknown = new_address(), uuid.uuid4()
    assert not opens(alpha, stranger, guid)
    assert not opens(alpha, stranger, unknown)
    assert not opens(alpha, address, uuid.uuid4())
    alpha.manager.trust_peer(unknown, [stranger])
    assert opens(alpha, stranger, unknown)
    alpha.manager.forget_peer(unknown)
    assert not opens(alpha, stranger, unknown)
    # The settings may change at run time; sessions of removed peers end.
    with alpha.stranger(address, guid).open() as peer:
        alpha.configure('peers = "known"', f'[peers.NEW]\naddresses = ["{stranger}"]\nguid = "{guid}"\n')
        alpha.reload()
        peer.wait_for_end()
    assert not opens(alpha, address, guid)
    assert opens(alpha, stranger, guid)


def test_the_documents_profile_believes_everybody(start: Callable[..., Served]) -> None:
    alpha = start("ALPHA", more='[security]\nprofile = "document"')
    guid = uuid.uuid4()
    assert opens(alpha, new_address(), guid)
    assert opens(alpha, new_address(), guid)
    assert alpha.manager.peers() == []


def test_the_packet_that_is_built_here_is_whole() -> None:
    """The packet of the attacks would be accepted if it came from its stated sender."""
    packet = message(r"DIRECT=TCP:127.0.0.1\private$\q", sequence=TxSequenceID(1, 5))
    assert Message.unpack(packet).is_transactional
