"""Hostile or broken peers on port 1801.

Recorded sessions are corrupted at a point that the seed chooses. A session is valid up to that
point, because a real session machine plays it. LANNER_FUZZ_SEED repeats a run, LANNER_FUZZ_SESSIONS
is the number of its sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
import uvloop

import lanner
from lanner.model.errors import RemoteProtocolError
from lanner.transfer.events import UserMessagesReceived
from lanner.transfer.session import Session
from lanner.transfer.settings import TRANSFER_PORT, TransferSettings
from lanner.wire import layout as at
from tests.adversity.mqqb_mutator import Harm, PacketMutator
from tests.adversity.mqqb_recording import FRIEND_QUEUE, LEDGER, SECRET, STRICT, TARGET, Pair, recorded_pair, until
from tests.adversity.served import MIB

SEED = int(os.environ.get("LANNER_FUZZ_SEED", "1"))
SESSIONS = int(os.environ.get("LANNER_FUZZ_SESSIONS", "240"))
_TOGETHER = 6
_PATIENCE = 5.0  # seconds
_SECRETS = [f"secret {number}" for number in range(5)]
_OFFLINE = 3
_LABEL = "from the one who means well"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with recorded_pair(tmp_path_factory.mktemp("mqqb")) as made:
        with made.victim.manager() as victim:
            secret = victim.open(SECRET)
            secret.send_many([lanner.Message(body=body, recoverable=True) for body in _SECRETS])
            # Messages that wait for a computer that is off cannot be acknowledged by anyone else.
            far = victim.open(r"DIRECT=TCP:127.255.255.1\private$\far")
            with victim.transaction() as transaction:
                far.send_many([lanner.Message(body="waits")] * _OFFLINE, transaction=transaction)
        yield made


@dataclass(slots=True)
class Enemy:
    """One session of an attacker: what it says, where that goes wrong, and how."""

    pair: Pair
    mutator: PacketMutator
    source: str
    packets: list[bytes]
    guid: UUID
    # The packet, counted over all that it sends, that is harmed.
    place: int
    # It passes for the friend from its first packet on, and then says what the friend is about to
    # say.
    is_impostor: bool = False
    done: Harm | None = None
    sent: int = 0

    async def attack(self) -> None:
        """Say everything, wrong at one place, and look at what comes back for a moment."""
        session = Session.initiate(own_guid=self.guid, settings=TransferSettings(), monotonic=time.monotonic)
        address = self.pair.victim.address
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(address, TRANSFER_PORT, local_addr=(self.source, 0))
                try:
                    await self._talk(session, reader, writer)
                finally:
                    writer.transport.abort()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection that the victim makes to us, and play the other side of it wrong."""
        session = Session.accept(
            own_guid=self.guid, settings=TransferSettings(), monotonic=time.monotonic, admit=lambda _: True
        )
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_PATIENCE):
                    await self._talk(session, reader, writer)
        finally:
            writer.transport.abort()

    async def _talk(self, session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = list(self.packets)
        while True:
            while left and session.room:
                session.send(left.pop(0), None)
            for packet in session.data_to_send():
                writer.write(self._said(packet))
            await writer.drain()
            # What was said last is heard when the answer to it has come, or nothing has for a
            # while.
            try:
                async with asyncio.timeout(0.3 if not left and session.is_open else 2.0):
                    data = await reader.read(1 << 16)
            except TimeoutError:
                return
            if not data:
                return
            try:
                events = session.receive(data)
            except RemoteProtocolError:
                return
            for event in events:
                if isinstance(event, UserMessagesReceived):
                    session.allow_acknowledgment(event.last_number)
            if session.is_closed:
                return

    def _said(self, packet: bytes) -> bytes:
        place, self.sent = self.sent, self.sent + 1
        if place < self.place:
            return packet
        # After the first harm a second one now and then; most of what follows is in order.
        if self.done is not None and self.mutator.chance.random() < 0.7:
            return packet
        is_message = not packet[2] & at.IN
        harm = (
            self.mutator.impersonate(packet, self.guid)
            if self.is_impostor and is_message
            else self.mutator.harm(packet)
        )
        self.done = self.done or harm
        return harm.octets


class Enemies:
    """Attackers, one after the other and some at a time, each from an address of its own."""

    def __init__(self, pair: Pair, seed: int, next_number: int) -> None:
        with pair.friend.manager() as friend, pair.victim.manager() as victim:
            assert friend.identifier is not None
            assert victim.identifier is not None
            known = (victim.identifier, friend.identifier)
        self.pair = pair
        # With the sessions of the recording comes the friend's GUID: a message is the attacker's
        # own, unless harmed.
        self._friend = known[1].bytes_le
        self._said = [[packet for packet in packets if not packet[2] & at.IN] for packets in pair.recorded]
        self._said = [packets for packets in self._said if packets]
        self._recorded = [packet for packets in pair.recorded for packet in packets]
        self._guids = known
        self._seed = seed
        self._next_number = next_number
        self.harms: Counter[str] = Counter()

    def _enemy(self, number: int) -> Enemy:
        """Return the attacker with a given number.

        Its behaviour depends on that number and on the seed, not on the other attackers.
        """
        names = (TARGET, SECRET, LEDGER, FRIEND_QUEUE, STRICT)
        seed = f"{self._seed}.{number}"
        mutator = PacketMutator(seed, self._recorded, self._guids, names, self._next_number)
        chance = mutator.chance
        is_impostor = chance.random() < 0.15
        guid = self._guids[1] if is_impostor else mutator.own_guid()
        (said,) = chance.choices(self._said, [len(packets) for packets in self._said])
        start = chance.randrange(len(said))
        packets = said[start : start + chance.choice((1, 3, 8, 30))]
        if chance.random() < 0.2:
            chance.shuffle(packets)
        own = [packet.replace(self._friend, guid.bytes_le) for packet in packets]
        source = f"127.{200 + number % 40}.{number // 40 % 250}.{1 + number // 10_000 % 250}"
        place = 2 if is_impostor else chance.randrange(2 + len(own))
        return Enemy(self.pair, mutator, source, own, guid, place, is_impostor)

    async def run(self, numbers: Iterator[int]) -> None:
        async def one_after_the_other() -> None:
            for number in numbers:
                enemy = self._enemy(number)
                server = await asyncio.start_server(enemy.answer, enemy.source, TRANSFER_PORT)
                try:
                    await enemy.attack()
                finally:
                    server.close()
                if enemy.done is not None:
                    self.harms[enemy.done.what.split()[0]] += 1

        await asyncio.gather(*(one_after_the_other() for _ in range(_TOGETHER)))


def _arrived(queue: lanner.Queue) -> list[str]:
    """Return the bodies of the friend's messages; others may send to its queue, too."""
    return [str(message.body) for message in queue if message.label == _LABEL]


class Friendship:
    """The messages of a well-behaved client, and the conditions that must hold afterwards."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._sent = 0
        self._manager = pair.friend.manager()
        self._plain = self._manager.open(pair.direct(FRIEND_QUEUE))
        self._once = self._manager.open(pair.direct(STRICT))

    def send(self) -> int:
        """Send messages to both queues, and return the number that the next one will have."""
        numbers = range(self._sent, self._sent + 5)
        self._plain.send_many(
            [lanner.Message(body=f"{number}", label=_LABEL, recoverable=number % 2 > 0) for number in numbers]
        )
        once = [lanner.Message(body=f"{number}", label=_LABEL) for number in numbers]
        with self._manager.transaction() as transaction:
            identifiers = self._once.send_many(once, transaction=transaction)
        self._sent = numbers.stop
        return int(identifiers[-1].rpartition("\\")[2]) + 1

    async def keep_sending(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await asyncio.to_thread(self.send)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await is_over.wait()

    def check(self) -> None:
        """Check that every message arrived exactly once, and that nothing else has changed."""
        expected = [f"{number}" for number in range(self._sent)]
        with self._pair.victim.manager() as victim:
            plain, once = victim.open(FRIEND_QUEUE), victim.open(STRICT)
            what = f"the arrival of {self._sent} messages of the friend in each queue"
            until(lambda: len(_arrived(plain)) >= self._sent and len(_arrived(once)) >= self._sent, what)
            assert _arrived(once) == expected
            assert sorted(_arrived(plain)) == sorted(expected)
            assert [message.body for message in victim.open(SECRET)] == _SECRETS
            waiting = {queue.format_name.lower(): queue.count() for queue in victim.outgoing_queues()}
            assert [count for name, count in waiting.items() if "127.255.255.1" in name] == [_OFFLINE], waiting
            for queue in (plain, once, victim.open(TARGET), victim.open(LEDGER)):
                queue.purge()
        self._sent = 0
        self._manager.close()


def attack(pair: Pair, seed: int, numbers: Iterator[int], *, growth: int) -> Counter[str]:
    """Attack while the friend works; then everything of the oracle."""
    print(f"LANNER_FUZZ_SEED={seed}")  # noqa: T201 (pytest shows it if the test fails)
    friendship = Friendship(pair)
    enemies = Enemies(pair, seed, friendship.send())

    async def main() -> None:
        is_over = asyncio.Event()
        working = asyncio.ensure_future(friendship.keep_sending(is_over))
        try:
            await enemies.run(numbers)
        finally:
            is_over.set()
            await working

    before = pair.victim.memory
    uvloop.run(main())
    pair.victim.check()
    friendship.check()
    pair.victim.check()
    pair.friend.check()
    assert pair.victim.memory - before < growth
    return enemies.harms


def test_sessions_are_recorded_whole(pair: Pair) -> None:
    """A recording has every kind of packet.

    These are handshakes, express, recoverable and transactional messages, acknowledgments, a
    signed, a traced and an encrypted message.
    """
    packets = [packet for packets in pair.recorded for packet in packets]
    assert {572, 32} <= {len(packet) for packet in packets}
    users = [packet for packet in packets if not packet[2] & at.IN]
    flags = [int.from_bytes(packet[60:64], "little") for packet in users]
    assert {one >> at.DM_SHIFT & 3 for one in flags} == {0, 1}
    for bit in (at.TH, at.SH):
        assert any(one & bit for one in flags)
    assert any(packet[3] & 1 for packet in users), "traced"
    assert any(b"QM Ordering Ack".hex("-", 1).replace("-", "00") in packet.hex() for packet in users)


def test_sessions_that_go_wrong(pair: Pair) -> None:
    harms = attack(pair, SEED, iter(range(SESSIONS)), growth=64 * MIB)
    assert sum(harms.values()) > SESSIONS // 2, harms


@pytest.mark.soak
def test_sessions_that_go_wrong_for_ten_minutes(pair: Pair) -> None:
    end = time.monotonic() + 600
    for seed in itertools.count(SEED):
        attack(pair, seed, iter(range(500)), growth=128 * MIB)
        if time.monotonic() > end:
            break
