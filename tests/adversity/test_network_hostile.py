"""Hostile or broken peers against a busy queue manager (MS-MQQB 3.1.5.1, 2.2)."""

from __future__ import annotations

import random
import re
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lanner.model.enums import DeliveryGuarantee
from lanner.transfer.packets import FinalAckBody, OrderAckBody, build_order_ack
from lanner.transfer.settings import TransferSettings
from lanner.wire import layout as at
from lanner.wire.format_name import parse
from lanner.wire.identifiers import TxSequenceID
from lanner.wire.internal_header import (
    ConnectionParametersHeader,
    EstablishConnectionHeader,
    InternalHeader,
    PacketType,
    pack_internal,
)
from lanner.wire.session_header import SessionHeader
from tests.adversity.network import PORT, Network, Stream
from tests.adversity.stranger import GUID, Stranger, message
from tests.transfer.final_acks import build_final_ack
from tests.transfer.pairs import FRAMES
from tests.wire.samples import full_packet, make

_MIB = 1 << 20


class Scene:
    """A victim, a friend who sends to it all the time, and addresses for strangers."""

    def __init__(self, path: Path) -> None:
        # All strangers have one identifier, and as many addresses as there are tests.
        self.network = Network(path, ("VICTIM", "FRIEND"), seed=0, peer_policy="open")
        try:
            self._prepare()
        except BaseException:
            self.network.close()
            raise

    def _prepare(self) -> None:
        self.victim = self.network.nodes["VICTIM"]
        self.base = self.victim.address.rpartition(".")[0]
        self.network.create("VICTIM", "good")
        self.network.create("VICTIM", "q")
        self.to = rf"DIRECT=TCP:{self.victim.address}\private$\q"
        good = rf"DIRECT=TCP:{self.victim.address}\private$\good"
        endless = Stream("good", "FRIEND", good, (), "recoverable", 1_000_000, 4, 0.02)
        self.network.send(endless)
        self.goes_on()

    def stranger(self, number: int = 1, settings: TransferSettings | None = None) -> Stranger:
        return Stranger.connect(self.address(number), self.victim.address, settings)

    def address(self, number: int) -> str:
        """One of 130, none of which is a node's."""
        assert 1 <= number <= 100
        return f"{self.base}.{number + 110}"

    def goes_on(self) -> None:
        """The friend's messages arrive now."""
        before = self.count("good")
        wait_for(lambda: self.count("good") > before + 20, "the good session has stopped")

    def count(self, queue: str) -> int:
        return int(self.victim.do("count", queue=queue)["count"])

    @property
    def memory(self) -> int:
        """Bytes that are the victim's own; the store's pages are the file's."""
        status = Path(f"/proc/{self.victim.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def log_of(self, number: int) -> list[str]:
        """Warnings that name a stranger."""
        text = f" {self.address(number)} "
        return [line for line in self.victim.log.read_text().splitlines() if text in line and "WARNING" in line]


def wait_for(is_so: Callable[[], object], complaint: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, complaint
        time.sleep(0.02)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("hostile"))
    with scene.network:
        yield scene
        scene.network.check()


# One bad packet
# --------------------------------------------------------------------------------------------------


def patched(packet: bytes, offset: int, value: bytes) -> bytes:
    return packet[:offset] + value + packet[offset + len(value) :]


GOOD = message(r"DIRECT=TCP:127.0.0.1\private$\q")
PROPERTIES = at.locate(GOOD).properties
ACK = pack_internal(InternalHeader.of(PacketType.SESSION_ACK), SessionHeader(0, 0, 0, 0, 0))
PARAMETERS = pack_internal(
    InternalHeader.of(PacketType.CONNECTION_PARAMETERS), ConnectionParametersHeader(500, 20_000, 64)
)

BAD: dict[str, tuple[bytes, str]] = {
    "noise": (b"\0" * 64, r"BaseHeader\.VersionNumber: 0x00"),
    "text": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", r"BaseHeader\.VersionNumber: 0x47"),
    "version": (patched(GOOD, 0, b"\x11"), r"BaseHeader\.VersionNumber: 0x11"),
    "signature": (patched(GOOD, 4, b"RIOL"), r"BaseHeader\.Signature: (0x4c4f4952|1280264530)"),
    "huge": (patched(GOOD, 8, b"\xff\xff\xff\xff"), r"BaseHeader\.PacketSize: 4294967295\b"),
    "above the limit": (patched(GOOD, 8, struct.pack("<I", 0x400001)), r"BaseHeader\.PacketSize: 4194305\b"),
    "tiny": (patched(GOOD, 8, struct.pack("<I", 15)), r"BaseHeader\.PacketSize: 15\b"),
    "no packet type": (patched(ACK, 18, b"\0"), r"InternalHeader\.\S*PT: 0\b"),
    "unknown packet type": (patched(ACK, 18, b"\x0f"), r"InternalHeader\.\S*PT: 15\b"),
    "parameters again": (PARAMETERS, r"ConnectionParameters: not expected in state OPEN"),
    "acknowledged what was not sent": (
        pack_internal(InternalHeader.of(PacketType.SESSION_ACK), SessionHeader(7, 0, 0, 0, 0)),
        r"SessionHeader\.AckSequenceNumber: 7\b",
    ),
    "counts what was not sent": (
        pack_internal(InternalHeader.of(PacketType.SESSION_ACK), SessionHeader(0, 0, 0, 9, 0)),
        r"SessionHeader\.UserMsgSequenceNumber: 9\b",
    ),
    "label": (patched(GOOD, PROPERTIES + 1, b"\xfb"), r"MessagePropertiesHeader\.LabelLength: 251\b"),
    "body": (
        patched(GOOD, PROPERTIES + 32, b"\xff\xff\xff\x7f"),
        r"MessagePropertiesHeader\.(MessageSize|MessageBody)",
    ),
    "destination": (patched(GOOD, 61, b"\x04"), r"UserHeader\.Flags\.DQ: 1\b"),
}  # fmt: skip


@pytest.mark.parametrize("number", range(1, len(BAD) + 1), ids=BAD)
def test_a_bad_packet_ends_its_session_with_one_line_and_leaves_nothing(scene: Scene, number: int) -> None:
    """The line names header, field, value and peer.

    Messages before the bad packet are delivered.
    """
    packet, complaint = list(BAD.values())[number - 1]
    before = scene.count("q")
    with scene.stranger(number).open() as stranger:
        stranger.say(message(scene.to, b"good", ordinal=number) + packet + message(scene.to, b"late", ordinal=99))
        stranger.wait_for_end()
    (line,) = scene.log_of(number)
    assert re.search(complaint, line), line
    assert f"{scene.address(number)} ({GUID})" in line
    wait_for(lambda: scene.count("q") > before, "what came before is lost")
    assert scene.count("q") == before + 1
    scene.goes_on()


def test_a_packet_cut_short_is_not_stored(scene: Scene) -> None:
    before = scene.count("q")
    packet = message(scene.to, bytes(1000), ordinal=200)
    for size in (1, 15, 16, 64, len(packet) - 1):
        with scene.stranger(30).open() as stranger:
            stranger.say(packet[:size])
    wait_for(lambda: len(scene.log_of(30)) == 5, "a session was not ended")
    assert all("inside a packet" in line for line in scene.log_of(30))
    assert scene.count("q") == before


# Peers that do nothing
# ---------------------------------------------------------------------------------------------


def half_open(scene: Scene, count: int) -> None:
    """So many connections at once that never finish their handshake, 50 of each address."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1000)), hard))
    before = scene.memory
    # Beyond the 100 that scenes have: other networks of this process are none.
    first, second, third = scene.base.split(".")[:3]
    beginnings = [b"", b"\x10", pack_internal(
        InternalHeader.of(PacketType.ESTABLISH_CONNECTION), EstablishConnectionHeader(GUID, GUID, 0, 0)
    )[:571]]  # fmt: skip
    with ExitStack() as stack:
        connections = []
        for number in range(count):
            source = f"{first}.{int(second) + 60}.{third}.{number // 50 % 250 + 1}"
            connection = socket.create_connection((scene.victim.address, PORT), 20, source_address=(source, 0))
            stack.enter_context(connection)
            connection.sendall(beginnings[number % 3])
            connections.append(connection)
            if number % 500 == 499:
                scene.goes_on()
        scene.goes_on()
        assert scene.memory - before < 64 * _MIB
        # All of them are ended by the other side: refused, or after the time that a handshake may
        # take.
        for connection in connections:
            connection.settimeout(30)
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
    with scene.stranger(40).open() as stranger:
        stranger.say(message(scene.to, ordinal=300))
    scene.goes_on()


def test_half_open_handshakes_hold_nobody_up(scene: Scene) -> None:
    half_open(scene, 1000)


@pytest.mark.soak
def test_ten_thousand_half_open_handshakes_hold_nobody_up(scene: Scene) -> None:
    half_open(scene, 10_000)


def test_a_peer_that_reads_nothing_costs_little_memory(scene: Scene) -> None:
    """Twenty messages of 4 MB wait for it, on disk."""
    before = scene.memory
    with socket.create_server((scene.address(50), PORT)) as listening:
        to = rf"DIRECT=TCP:{scene.address(50)}\private$\hole"
        scene.network.send(Stream("big", "VICTIM", to, (), "recoverable", 20, 1, 0), size=4_000_000)
        with Stranger.accept(listening).open():
            wait_for(lambda: scene.network.streams["big"].is_sent, "the messages are not on disk")
            for _ in range(5):
                scene.goes_on()
                assert scene.memory - before < 64 * _MIB
    # It comes back, and wants them.
    with socket.create_server((scene.address(50), PORT)) as listening, Stranger.accept(listening).open() as stranger:
        while len(stranger.received) < 20:
            stranger.listen()
    scene.goes_on()


def test_a_window_of_zero_is_a_window_of_one(scene: Scene) -> None:
    """Said in the handshake and in every acknowledgment: one message at a time, but all of them."""
    with socket.create_server((scene.address(60), PORT)) as listening:
        to = rf"DIRECT=TCP:{scene.address(60)}\private$\narrow"
        scene.network.send(Stream("narrow", "VICTIM", to, (), "recoverable", 5, 5, 0))
        with Stranger.accept(listening) as stranger:
            data = b""
            while len(data) < 572:
                data += stranger.connection.recv(572)
            stranger.session.receive(data)
            stranger.flush()
            assert len(stranger.connection.recv(32, socket.MSG_WAITALL)) == 32
            stranger.say(pack_internal(
                InternalHeader.of(PacketType.CONNECTION_PARAMETERS), ConnectionParametersHeader(500, 20_000, 0)
            ))  # fmt: skip
            for number in range(1, 6):
                packet = stranger.connection.recv(1 << 16)
                assert int.from_bytes(packet[8:12], "little") == len(packet), "one message, not two"
                assert b"narrow %d" % (number - 1) in packet
                ack = SessionHeader(number, number, 1, 0, 0, 0)
                stranger.say(pack_internal(InternalHeader.of(PacketType.SESSION_ACK), ack))
    scene.goes_on()


# Anything
# --------------------------------------------------------------------------------------------------


class Fuzzer:
    """Packets that are almost good, in every state of a session."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self.scene = scene
        self.chance = random.Random(seed)
        sequence = TxSequenceID(1, 1_700_000_000)
        order_queue = parse(rf"DIRECT=TCP:{scene.victim.address}\PRIVATE$\order_queue$")
        common = {"source": GUID, "ordinal": 5, "sent_time": int(time.time()), "destination": order_queue}
        self.packets = [
            message(scene.to, ordinal=1),
            message(scene.to, bytes(5000), ordinal=2, recoverable=False),
            build_order_ack(OrderAckBody.of(sequence, 3), **common),  # type: ignore[arg-type] # one each
            build_final_ack(FinalAckBody(sequence, 3, 2, GUID, 5), 0x4000, **common),  # type: ignore[arg-type] # one each
            ACK,
            PARAMETERS,
            pack_internal(
                InternalHeader.of(PacketType.ESTABLISH_CONNECTION), EstablishConnectionHeader(GUID, GUID, 0, 0)
            ),
            FRAMES[7],
            full_packet(),
            make(parse(scene.to), 7, body=b"in a sequence", delivery_guarantee=DeliveryGuarantee.RECOVERABLE),
            make(parse(f"PRIVATE={scene.victim.guid}\\00000004"), body=bytes(36), label="QM Ordering Ack"),
        ]  # fmt: skip
        self.ordinal = 1_000_000 * seed

    def mutate(self, packet: bytes) -> bytes:
        chance = self.chance
        data = bytearray(packet)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            # Most of what can go wrong stands in the first bytes.
            place = chance.choice((int(chance.expovariate(1 / 60)), chance.randrange(len(data)))) % len(data)
            width = chance.choice((1, 2, 4))
            value = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, chance.getrandbits(32)))
            how = chance.randrange(6)
            if how == 0:
                data[place] ^= 1 << chance.randrange(8)
            elif how <= 3:
                data[place : place + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
            elif how == 4:
                del data[place : place + width]
            else:
                data[place:place] = chance.randbytes(width)
            if not data:
                return b""
        return bytes(data)

    def run(self, rounds: int) -> None:
        scene = self.scene
        seen = 0
        for _ in range(rounds):
            before = self.total()
            log = scene.victim.log.stat().st_size
            packet = self.mutate(self.chance.choice(self.packets))
            good = 0
            with scene.stranger(70) as stranger:
                if self.chance.random() < 0.8:
                    stranger.open()
                    good = self.chance.choice((0, 0, 1, 3))
                stranger.say(b"".join(map(self.good_message, range(good))) + packet)
                stranger.connection.shutdown(socket.SHUT_WR)
                stranger.wait_for_end()
            with scene.victim.log.open() as lines:
                lines.seek(log)
                told = [line for line in lines if f" {scene.address(70)} " in line and "closed: " in line]
            refused = [line for line in told if "closed: the connection was closed" not in line]
            if refused:
                seen += 1
                assert len(refused) == 1, refused
                assert re.search(r"closed: [A-Z]\w+(\.[\w ]+)*: ", refused[0]), (refused, packet.hex())
                assert self.total() == before + good, (refused, packet.hex())
        assert seen > rounds // 10, "the packets were too good"
        scene.network.check()

    def good_message(self, _: int) -> bytes:
        self.ordinal += 1
        return message(self.scene.to, ordinal=self.ordinal)

    def total(self) -> int:
        """All that ever came into any queue, but the friend's."""
        arrivals = self.scene.victim.do("arrivals")["arrivals"]
        return sum(count for queue, count in arrivals.items() if queue != "good")


def test_packets_that_are_almost_good_leave_nothing_and_break_nothing(scene: Scene) -> None:
    Fuzzer(scene, seed=1).run(1000)
    scene.goes_on()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 15))
def test_very_many_packets_that_are_almost_good(scene: Scene, seed: int) -> None:
    Fuzzer(scene, seed).run(20_000)
    scene.goes_on()
