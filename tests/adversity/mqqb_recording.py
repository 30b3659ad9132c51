"""Two queue managers as processes, and a recorder on the wire between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import lanner
from lanner.transfer.framing import PacketStream
from lanner.transfer.settings import TRANSFER_PORT
from tests.adversity.proxy import CuttingProxy
from tests.adversity.served import Served, free_address

_PATIENCE: Final = 60.0  # seconds
# Names of as many letters: one can stand for another in a packet.
TARGET, SECRET, LEDGER, FRIEND_QUEUE, STRICT = "target", "secret", "ledger", "friend", "strict"
# Of the target, and of the ledger: what attackers may fill.
_QUOTA_KB: Final = 2048
# The document's times are for slower networks.
_QUICK: Final = """
[transfer]
try_connect_interval = 0.5
order_ack_timeout = 0.1
maximum_order_ack_delay = 0.5
resend_timeouts_short = 2.0
resend_timeouts_medium = 2.0
resend_timeouts_long = 4.0
[com]
enabled = false
"""


class RecordingProxy(CuttingProxy):
    """A calm network that keeps what each address says."""

    def __init__(self, addresses: dict[str, str]) -> None:
        # Octets by connection and who says them, in the order in which connections were made.
        self.said: list[tuple[str, bytearray]] = []
        self.is_recording = True
        super().__init__(addresses, TRANSFER_PORT, 0)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytearray) -> None:
        # Who writes to us is who connected to us, or whom we connected to.
        speaker = reader._transport.get_extra_info("peername")[0]  # type: ignore[attr-defined]  # it has no other way to it
        recording = bytearray()
        self.said.append((speaker, recording))
        while data := await reader.read(1 << 16):
            if self.is_recording:
                recording += data
            writer.write(data)
            await writer.drain()

    def packets(self, speaker: str) -> list[list[bytes]]:
        """Return what each side has sent, packet by packet, for each connection."""
        found = []
        for who, octets in list(self.said):
            if who == speaker and octets:
                stream = PacketStream()
                stream.user_messages_allowed = True
                found.append([packet for packets, _ in stream.runs(bytes(octets)) for packet in packets])
        return found


class Pair:
    """The victim, its friend, and what the friend has said so far."""

    def __init__(self, victim: Served, friend: Served, proxy: RecordingProxy, outer: dict[str, str]) -> None:
        self.victim = victim
        self.friend = friend
        self.proxy = proxy
        self.outer = outer
        self.recorded: list[list[bytes]] = []

    def direct(self, queue: str) -> str:
        """Name a queue of the victim."""
        return rf"DIRECT=TCP:{self.outer['VICTIM']}\private$\{queue}"


@contextmanager
def recorded_pair(folder: Path) -> Iterator[Pair]:
    """Start both, let them talk about everything there is, and keep that."""
    names = ("VICTIM", "FRIEND")
    outer = {name: free_address() for name in names}
    inner = {name: free_address() for name in names}
    peers = "[peers]\n" + "\n".join(f'{name} = "{address}"' for name, address in outer.items())
    with ExitStack() as stack:
        proxy = RecordingProxy({outer[name]: inner[name] for name in names})
        stack.callback(proxy.close)
        victim, friend = (
            stack.enter_context(Served(folder, name, address=inner[name], settings=_QUICK + peers)) for name in names
        )
        pair = Pair(victim, friend, proxy, outer)
        _make_queues(pair)
        _talk(pair)
        proxy.is_recording = False
        pair.recorded = [packets for packets in proxy.packets(inner["FRIEND"]) if packets]
        yield pair


def _make_queues(pair: Pair) -> None:
    with pair.victim.manager() as victim, pair.friend.manager() as friend:
        for name in (TARGET, LEDGER, FRIEND_QUEUE):
            quota = None if name == FRIEND_QUEUE else _QUOTA_KB
            access = {"Everyone": "send", "Anonymous": "send"}
            victim.create_queue(name, transactional=name == LEDGER, quota_kb=quota, access=access)
        victim.create_queue(STRICT, transactional=True, access={"Everyone": "send", "Anonymous": "send"})
        victim.create_queue(SECRET, access={"Administrators": "full"})
        friend.create_queue("answers", access={"Everyone": "send", "Anonymous": "send"})
        friend.create_queue("answers_tx", transactional=True, access={"Everyone": "send", "Anonymous": "send"})
        friend.create_queue("own").send(lanner.Message(body="signed", authenticate=True))
        public = victim.create_queue(r".\public", quota_kb=_QUOTA_KB, access={"Everyone": "send", "Anonymous": "send"})
        public.close()
        # Keys and certificates.
        documents = [manager.enterprise.document() for manager in (victim, friend)]
        computers = {name: about for document in documents for name, about in document["computers"].items()}
        for name, about in computers.items():
            about["address"] = pair.outer[name]
        for manager in (victim, friend):
            manager.enterprise.apply({"computers": computers, "users": documents[1]["users"]})


def _talk(pair: Pair) -> None:
    """Send messages of every kind there and back, and wait until nothing is on its way."""
    with pair.victim.manager() as victim, pair.friend.manager() as friend:
        (public,) = victim.enterprise.document()["computers"]["VICTIM"]["queues"].values()
        back = rf"DIRECT=TCP:{pair.outer['FRIEND']}\private$\answers"
        target, ledger = friend.open(pair.direct(TARGET)), friend.open(pair.direct(LEDGER))
        asking: dict[str, Any] = {"acknowledge": "full_receive", "administration_queue": back, "response_queue": back}
        for number in range(3):
            target.send(lanner.Message(body=f"express {number}", label="recorded", priority=7))
            target.send(
                lanner.Message(body=f"recoverable {number}", recoverable=True, use_journal_queue=True, **asking)
            )
        target.send(lanner.Message(body="x" * 5000, recoverable=True, extension=b"more", app_specific=7))
        target.send(lanner.Message(body="traced", recoverable=True, tracing_queue=public))
        target.send(lanner.Message(body="signed", authenticate=True, recoverable=True))
        friend.open(f"PUBLIC={public}").send(lanner.Message(body="hidden", encrypt=True, authenticate=True))
        for number in range(3):
            with friend.transaction() as transaction:
                for part in range(2):
                    message = lanner.Message(body=f"once {number}.{part}", use_dead_letter_queue=True, **asking)
                    ledger.send(message, transaction=transaction)
        # The victim asks, so that the friend sends acknowledgments of every kind.
        with victim.transaction() as transaction:
            far = victim.open(rf"DIRECT=TCP:{pair.outer['FRIEND']}\private$\answers_tx")
            for number in range(3):
                far.send(lanner.Message(body=f"back {number}", use_dead_letter_queue=True), transaction=transaction)
        answers = friend.open("answers_tx")
        for _ in range(3):
            answers.receive(_PATIENCE)
        until(lambda: not any(_waiting(manager) for manager in (victim, friend)))
        for name in (TARGET, LEDGER, r".\public"):
            victim.open(name).purge()


def _waiting(manager: lanner.QueueManager) -> int:
    """Return the number of messages that wait to leave.

    An express OrderAck waits long for an acknowledgment that the tests do not need.
    """
    queues = [queue for queue in manager.outgoing_queues() if "order_queue" not in queue.format_name.lower()]
    return sum(queue.count() for queue in queues)


def until(is_so: Callable[[], bool], what: str = "it") -> None:
    end = time.monotonic() + _PATIENCE
    while not is_so():
        assert time.monotonic() < end, f"{what} never came to be"
        time.sleep(0.05)
