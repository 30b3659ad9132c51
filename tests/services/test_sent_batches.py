"""Numbered sends: stored once despite repetitions, and remembered only for their owner."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner
from lanner import errors
from lanner.client import QueueManager
from lanner.rpc.faults import RpcConnectionError
from lanner.services import sent_batches
from lanner.services import stream_entries as entries
from lanner.services.sent_batches import ClientMemory, SentBatches
from lanner.wire.sid import Sid
from tests.cli.conftest import free_address
from tests.client.served import ServedManager
from tests.contract.service import Service
from tests.services.test_lanner_stream import KEPT, connection_of, packet

ALICE, BOB = Sid.parse("S-1-5-21-1-2-3-1001"), Sid.parse("S-1-5-21-1-2-3-1002")
DONE = (entries.DONE, b"answer")


@pytest.fixture
def alpha(tmp_path: Path) -> Iterator[ServedManager]:
    served = ServedManager(tmp_path / "data", free_address())
    for name in ("alice", "bob"):
        served.runtime.users.add(name, "secret")
    with lanner.connect(data=served.data) as manager:
        manager.create_queue("kept", access={"alice": "full", "bob": "full"})
    yield served
    served.close()


def connected(alpha: ServedManager, user: str) -> QueueManager:
    return lanner.connect(alpha.bind, user, "secret", port=alpha.port)


def opened(manager: QueueManager, client: object) -> tuple[int, bytes, str]:
    connection = connection_of(manager)
    number = connection.new_number()
    request = {"request": "open", "queue": number, "name": KEPT, "access": "send", "client": client}
    document, _ = connection.call(request)
    return number, bytes.fromhex(document["sender"]), document["memory"]


def send(manager: QueueManager, queue: int, batch: int, *packets: bytes, below: int = 0) -> list[int]:
    body = entries.pack_send_once(queue, batch, below, 0)
    return list(entries.unpack_ordinals(connection_of(manager).exchange(entries.SEND_ONCE, body, *packets)))


# The memory
# --------------------------------------------------------------------------------------------------


def finished(sent: SentBatches, number: int, body: bytes = b"answer") -> None:
    sent.finish(number, sent.begin(number), (entries.DONE, body))


def test_a_name_belongs_to_the_user_who_says_it() -> None:
    memory = ClientMemory()
    of_alice = memory.of(ALICE, b"name")
    assert memory.of(ALICE, b"name") is of_alice
    assert memory.of(BOB, b"name") is not of_alice
    assert memory.of(BOB, b"name").identifier != of_alice.identifier


def test_a_user_has_so_many_clients_and_takes_no_room_from_others() -> None:
    memory = ClientMemory()
    of_bob = memory.of(BOB, b"0")
    first = memory.of(ALICE, b"0")
    for number in range(1, sent_batches.MAX_CLIENTS):
        memory.of(ALICE, b"%d" % number)
    assert memory.of(ALICE, b"0") is first
    memory.of(ALICE, b"one more")
    # That which was used longest ago has gone.
    assert memory.of(ALICE, b"0") is first
    assert memory.of(BOB, b"0") is of_bob


@pytest.mark.parametrize(("limit", "size"), [(sent_batches.MAX_BATCHES, 0), (16, sent_batches.MAX_OCTETS // 16)])
def test_the_oldest_sends_are_forgotten_and_never_taken_for_new(limit: int, size: int) -> None:
    sent = SentBatches()
    for number in range(1, limit + 1):
        finished(sent, number, bytes(size))
    assert sent.get(1) is not None
    finished(sent, limit + 1, bytes(size))
    assert sent.get(1) is None
    assert sent.is_forgotten(1)
    assert not sent.is_forgotten(2)


def test_what_the_client_has_the_answers_to_is_forgotten() -> None:
    sent = SentBatches()
    for number in (1, 2, 3):
        finished(sent, number)
    sent.confirm(3)
    assert [sent.get(number) is None for number in (1, 2, 3)] == [True, True, False]


def test_a_repeated_request_waits_until_the_first_is_durable() -> None:
    sent, heard = SentBatches(), list[tuple[int, bytes]]()
    batch = sent.begin(1)
    batch.then(heard.append)
    assert not heard
    sent.finish(1, batch, DONE)
    batch.then(heard.append)
    assert heard == [DONE, DONE]


def test_a_send_that_could_not_be_written_may_come_again() -> None:
    sent, heard = SentBatches(), list[tuple[int, bytes]]()
    batch = sent.begin(1)
    batch.then(heard.append)
    sent.fail(1, batch, (entries.FAILED, b"full"))
    assert heard == [(entries.FAILED, b"full")]
    assert sent.get(1) is None
    assert not sent.is_forgotten(1)


# The stream
# --------------------------------------------------------------------------------------------------


def test_a_number_is_stored_once_on_whatever_connection_of_its_client(alpha: ServedManager) -> None:
    client = uuid.uuid4().hex
    with connected(alpha, "alice") as one:
        queue, sender, memory = opened(one, client)
        messages = [packet(sender, body=b"a"), packet(sender, body=b"b")]
        ordinals = send(one, queue, 7, *messages)
        assert send(one, queue, 7, *messages) == ordinals
        with connected(alpha, "alice") as other:
            queue, _, again = opened(other, client)
            assert again == memory
            assert send(other, queue, 7, *messages) == ordinals
            assert send(other, queue, 8, messages[0], below=8) != ordinals[:1]
            with pytest.raises(errors.InvalidParameter, match="forgotten"):
                send(other, queue, 7, *messages)
        assert one.open("kept").count() == 3


def test_another_user_with_the_same_name_and_number_learns_nothing(alpha: ServedManager) -> None:
    client = uuid.uuid4().hex
    with connected(alpha, "alice") as alice, connected(alpha, "bob") as bob:
        of_alice, sender, memory = opened(alice, client)
        ordinals = send(alice, of_alice, 1, packet(sender))
        of_bob, sender, other = opened(bob, client)
        assert other != memory
        assert send(bob, of_bob, 1, packet(sender)) != ordinals
        assert alice.open("kept").count() == 2


def test_a_refused_send_is_remembered_with_what_was_sent_before_the_refusal(alpha: ServedManager) -> None:
    with connected(alpha, "alice") as qm:
        queue, sender, _ = opened(qm, uuid.uuid4().hex)
        good, bad = packet(sender), packet(b"another")
        for _ in range(2):
            connection = connection_of(qm)
            body = entries.pack_send_once(queue, 1, 0, 0)
            posted = connection.post(entries.SEND_ONCE, body, good, bad)
            behind = connection.post(entries.SEND_ONCE, entries.pack_send_once(queue, 2, 0, posted.number), good)
            assert [connection._client.answer(one)[1] for one in (posted, behind)] == [entries.FAILED, entries.SKIPPED]
        assert qm.open("kept").count() == 1


def test_express_messages_are_remembered_too(alpha: ServedManager) -> None:
    with connected(alpha, "alice") as qm:
        queue, sender, _ = opened(qm, uuid.uuid4().hex)
        assert send(qm, queue, 1, packet(sender)) == send(qm, queue, 1, packet(sender))
        assert qm.open("kept").count() == 1


@pytest.mark.parametrize("client", ["", "zz" * 16, "00" * 15, "00" * 17, 5, ["00" * 16]])
def test_a_name_has_so_many_octets(alpha: ServedManager, client: object) -> None:
    with connected(alpha, "alice") as qm, pytest.raises(errors.InvalidParameter, match="hexadecimal"):
        opened(qm, client)


def test_a_number_without_a_name_is_refused_and_a_cut_one_ends_the_connection(alpha: ServedManager) -> None:
    with connected(alpha, "alice") as qm:
        with pytest.raises(errors.InvalidParameter, match="name of the client"):
            send(qm, 1, 1)
        with pytest.raises(RpcConnectionError):
            connection_of(qm).exchange(entries.SEND_ONCE, bytes(entries.SEND_ONCE_SIZE - 1))


# The service
# --------------------------------------------------------------------------------------------------


def test_a_killed_service_stores_nothing_twice_and_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    """The record of answered sends ends with the process.

    A send that is in doubt then reports so, and is not repeated.
    """
    service = Service(tmp_path / "data")
    sent: list[str] = []
    doubtful: list[str] = []
    try:
        with lanner.connect(data=service.data) as qm:
            qm.create_queue("kept")
        for kill in range(4):
            stop = threading.Event()

            def work(kill: int = kill, stop: threading.Event = stop) -> None:
                with contextlib.suppress(errors.ServiceNotAvailable), lanner.connect(data=service.data) as qm:
                    queue = qm.open("kept")
                    for number in range(1_000_000):
                        body = f"{kill} {number}"
                        try:
                            queue.send(lanner.Message(body=body, recoverable=True))
                        except errors.LannerError:
                            doubtful.append(body)
                            return
                        sent.append(body)
                        if stop.is_set():
                            return

            enough = len(sent) + 50
            thread = threading.Thread(target=work)
            thread.start()
            with contextlib.suppress(TimeoutError):
                while len(sent) < enough:
                    thread.join(0.01)
                    assert thread.is_alive()
            service.kill()
            stop.set()
            thread.join(60)
            service.start()
        with lanner.connect(data=service.data) as qm:
            found = [message.body for message in qm.open("kept").receive_many(1_000_000)]
        assert len(set(found)) == len(found)
        assert set(sent) <= set(found) <= set(sent) | set(doubtful)
        assert doubtful
    finally:
        service.close()
