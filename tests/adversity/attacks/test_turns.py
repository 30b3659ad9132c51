"""Small requests of a user with an account that stopped the service for everybody for long.

None needs more than the right to send to a queue, or to read one. Nothing here is timed: what is
compared, looked at, or done in one turn of the event loop is counted.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

import lanner
from lanner.engine import opening
from lanner.host import waking
from lanner.host.addresses import local_settings
from lanner.host.change import Change
from lanner.host.committer import Committer
from lanner.host.coordinator import coordinator_of
from lanner.host.names import QueueNames
from lanner.host.runtime import Runtime
from lanner.host.turns import TURN, Turns
from lanner.model.enums import QueueAccessType
from lanner.model.errors import (
    MQ_OK,
    IllegalFormatname,
    IllegalQueuePathname,
    InsufficientResources,
    InvalidParameter,
    RemoteProtocolError,
)
from lanner.model.live import TransactionalOperation, WaitingMessageReadOperation
from lanner.rpc.async_client import connect_tcp
from lanner.rpc.calls import ServerCall
from lanner.rpc.interface import RETURNS
from lanner.rpc.pdu import NDR20, AuthLevel
from lanner.rpc.server import RpcServer
from lanner.security.identity import SYSTEM, Identity
from lanner.services.interfaces.lanner import LANNER, LANNER_CALL, LANNER_OPEN_SESSION, pack_frame
from lanner.services.lanner_session import LannerSession
from lanner.services.open_objects import MAX_OPEN_OF_USER, OpenObjects
from lanner.services.sent_batches import ClientMemory
from lanner.transfer.settings import TransferSettings
from lanner.transfer.shell import TransferListener
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.multi_queue_format_header import MultiQueueFormatHeader, unpack_signature
from lanner.wire.reader import Reader
from lanner.wire.sid import Sid
from lanner.wire.spelling import format_name, path_name
from tests.adversity.attacks.victim import USER, Victim, victim
from tests.adversity.network import PORT
from tests.adversity.stranger import Stranger, message
from tests.rpc.harness import bind, element, request
from tests.rpc.raw_interface import RawInterface
from tests.rpc.served import RAW, until

MALLORY: Final = Identity("mallory", Sid.parse("S-1-5-21-1-2-3-1002"))
_TAKEN: Final = r"DIRECT=OS:.\private$\taken"
# Computers of this one's loopback network, where nobody listens.
_ELSEWHERE: Final = [rf"DIRECT=TCP:127.77.{number // 250}.{number % 250 + 1}\private$\q" for number in range(1000)]
# The hash of an int is its remainder by this number, and that of a UUID is the hash of its int.
_MODULUS: Final = (1 << 61) - 1


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    made = Runtime(tmp_path, local_settings("ALPHA"))
    yield made
    made.close()


class _Compared(uuid.UUID):
    """An identifier that counts how often it was compared with another one."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        _Compared.comparisons += 1
        return super().__eq__(other)

    __hash__ = uuid.UUID.__hash__


def test_identifiers_with_one_hash_are_found_as_fast_as_others(runtime: Runtime) -> None:
    """The client of a transaction chooses its identifier. Ten thousand took seconds to begin."""
    chosen = [_Compared(int=7 + (number << 40) * _MODULUS) for number in range(100)]
    assert len(set(map(hash, chosen))) == 1
    engine = runtime.engine
    _Compared.comparisons = 0
    with runtime.lock:
        for identifier in chosen:
            engine.create_transaction(identifier)
            coordinator_of(engine).begin(identifier, "S-1-5-7")
        assert list(engine.queue_manager.transaction_collection) == chosen
        counted, _Compared.comparisons = _Compared.comparisons, 0
        for identifier in chosen:
            engine.transaction_abort(identifier)
    assert counted <= len(chosen)
    assert _Compared.comparisons == 0


def _session(runtime: Runtime, committer: Committer, user: Identity = SYSTEM) -> LannerSession:
    return LannerSession(runtime.engine, committer, user, ClientMemory(), OpenObjects())


def test_numbers_of_a_client_have_64_bits(runtime: Runtime) -> None:
    """In JSON a number may be of any length, so any number of them have one hash."""

    async def main() -> None:
        committer = Committer(runtime.store, asyncio.get_running_loop())
        session = _session(runtime, committer)
        for asked in (
            {"request": "open", "queue": 1 << 64, "access": "send", "name": _TAKEN},
            {"request": "receive", "read": 1 << 64, "count": 1, "timeout": 0},
            {"request": "end", "reads": [1 << 64]},
        ):
            with pytest.raises(InvalidParameter, match="64 bits"):
                session.handle(asked, memoryview(b""))
        session.close()
        await asyncio.to_thread(committer.close)

    asyncio.run(main())


def test_messages_of_one_request_name_so_many_queues(runtime: Runtime) -> None:
    """Each message may name a thousand queues for answers: a request took seconds to read."""
    several = ",".join(_ELSEWHERE)

    async def main() -> None:
        committer = Committer(runtime.store, asyncio.get_running_loop())
        session = _session(runtime, committer)
        opened = session.handle(
            {"request": "open", "queue": 1, "access": "send", "name": _ELSEWHERE[0]}, memoryview(b"")
        )
        if not isinstance(opened, tuple):
            await opened
        messages = [{"size": 0, "response_queue_format_name": several} for _ in range(21)]
        with pytest.raises(InvalidParameter, match="more than 20000 administration and response queues"):
            session.handle({"request": "send", "queue": 1, "messages": messages}, memoryview(b""))
        session.close()
        await asyncio.to_thread(committer.close)

    asyncio.run(main())


class _Operations(list[TransactionalOperation]):
    """The operations of a transaction, which count how often code iterates over them."""

    passes = 0

    def __iter__(self) -> Iterator[TransactionalOperation]:
        self.passes += 1
        return super().__iter__()


def test_messages_of_a_large_transaction_are_given_back_one_by_one(runtime: Runtime) -> None:
    """A consumer's 200,000 messages took minutes, and everything else waited."""
    engine = runtime.engine
    with runtime.lock:
        queue = engine.create_queue(engine.set_queue_defaults(r".\private$\taken"))
        name = parse(_TAKEN)
        sender = engine.open_queue(name, QueueAccessType.SEND)
        for _ in range(400):
            engine.enqueue_message_to_an_open_queue(sender, MessageProperties())
        reader = engine.open_queue(name, QueueAccessType.RECEIVE)
        transaction = engine.create_transaction(uuid.uuid4())
        positions = engine.dequeue_messages(reader, 400, 1 << 20, transaction)
        transaction.transactional_operations = operations = _Operations(transaction.transactional_operations)
        for position in positions[:300]:
            engine.give_back_transactional_read(transaction, position)
            # Whoever gives back twice gives back once.
            engine.give_back_transactional_read(transaction, position)
        assert operations.passes < 20
        again = engine.dequeue_messages(reader, 10, 1 << 20, transaction)
        assert [one.lookup_id for one in again] == [one.lookup_id for one in positions[:10]]
        engine.give_back_transactional_read(transaction, again[0])
        engine.transaction_commit(transaction.identifier)
        engine.give_back_transactional_read(transaction, again[1])
        assert queue.message_count == 291
        assert not queue.held_positions
        (first,) = engine.dequeue_messages(reader, 1, 1 << 20)
        assert first.lookup_id == positions[0].lookup_id


class _Sessions:
    """A session that counts how often it was counted."""

    counts = 0

    def __init__(self, opened: int) -> None:
        self._opened = opened

    @property
    def opened(self) -> int:
        _Sessions.counts += 1
        return self._opened


def test_a_user_at_the_limit_is_refused_without_counting_all_sessions() -> None:
    """Each of ten thousand refusals in a turn counted thousands of sessions."""
    objects, sessions = OpenObjects(), [_Sessions(0) for _ in range(2000)]
    for one in sessions:
        objects.require_room(MALLORY, one)
    greedy = _Sessions(MAX_OPEN_OF_USER)
    _Sessions.counts = 0
    for _ in range(200):
        with pytest.raises(InsufficientResources, match="close some"):
            objects.require_room(MALLORY, greedy)
    assert _Sessions.counts < 200 * len(sessions) / 4


def test_each_queue_of_a_list_counts_as_open(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handle for a thousand queues took as much memory as a thousand, and counted as one."""
    monkeypatch.setattr(opening, "MAX_DESCRIPTORS_OF_USER", 10)
    engine, several = runtime.engine, parse(",".join(_ELSEWHERE[:6]))
    with runtime.lock:
        first = engine.open_queue(several, QueueAccessType.SEND, identity=MALLORY)
        for _ in range(3):
            with pytest.raises(InsufficientResources, match="each queue of a list counted"):
                engine.open_queue(several, QueueAccessType.SEND, identity=MALLORY)
        # Others have room, and so has an administrator whatever is open.
        bob = Identity("bob", Sid.parse("S-1-5-21-1-2-3-1003"))
        engine.open_queue(several, QueueAccessType.SEND, identity=bob)
        for _ in range(2):
            engine.open_queue(several, QueueAccessType.SEND)
        engine.close_queue(first)
        engine.close_queue(engine.open_queue(several, QueueAccessType.SEND, identity=MALLORY))


class _Waiting(dict[WaitingMessageReadOperation, None]):
    """The waiting reads of a queue, which no code may iterate over."""

    def __iter__(self) -> Any:  # noqa: ANN401
        raise AssertionError("somebody looks at all waiting reads")


def test_cursors_are_closed_without_looking_at_the_reads_of_others(runtime: Runtime) -> None:
    """Of one handle there may be 10,000 cursors, and 100,000 reads of its queue may wait."""
    engine, name = runtime.engine, parse(_TAKEN)
    with runtime.lock:
        queue = engine.create_queue(engine.set_queue_defaults(r".\private$\taken"))
        queue.waiting_reads = _Waiting()
        reader, other = (engine.open_queue(name, QueueAccessType.RECEIVE) for _ in range(2))
        ends: list[object] = []
        engine.dequeue_message(reader, timeout=60_000, on_end=ends.append)
        for _ in range(3):
            assert engine.open_cursor(other) is not None
        engine.close_queue(other)
        assert len(queue.waiting_reads) == 1
        assert not ends
        engine.close_queue(reader)
        assert len(ends) == 1
        assert len(queue.waiting_reads) == 0


def test_long_names_are_not_kept() -> None:
    """Anyone may name a queue. Ten thousand names in one text are not even read."""
    short, long = (",".join(_ELSEWHERE[:count]) for count in (10, 1000))
    assert format_name(short) is format_name(short)
    assert format_name(long) == format_name(long)
    assert format_name(long) is not format_name(long)
    names = QueueNames("ALPHA")
    assert names.format_name(short) is names.format_name(short)
    assert names.format_name(long) is not names.format_name(long)
    path = rf"a\private$\{'x' * 5000}"
    with pytest.raises(IllegalQueuePathname):
        format_name(path)
    with pytest.raises(IllegalQueuePathname):
        path_name(path)
    for read in (parse, format_name, names.format_name):
        with pytest.raises(IllegalFormatname, match="a name of 10000 queues, at most 1024"):
            read(",".join(_ELSEWHERE * 10))


def _use(place: Victim) -> None:
    """Be another client of the service, and get an answer."""
    with lanner.connect(data=place.data) as manager:
        manager.open("taken").count()


def test_messages_to_a_list_of_queues_keep_nobody_else_waiting(tmp_path: Path) -> None:
    """Ten short messages to a thousand queues are 10,000 packets, each with the whole list."""
    with victim(tmp_path) as place:
        with lanner.connect(data=place.data) as manager:
            manager.create_queue("taken")

        async def main() -> None:
            async with await connect_tcp(
                place.address, place.port(), credentials=USER, level=AuthLevel.PKT_PRIVACY
            ) as client:
                bound = await client.bind(LANNER)
                session = (await bound.call(LANNER_OPEN_SESSION))["session"]

                async def call(**request: object) -> int:
                    frame = pack_frame(request)
                    answer: Any = await bound.call(LANNER_CALL, session=session, size=len(frame), request=frame)
                    status: int = answer[RETURNS]
                    return status

                assert await call(request="open", queue=1, name=",".join(_ELSEWHERE), access="send") == MQ_OK
                sending = asyncio.ensure_future(call(request="send", queue=1, messages=[{"size": 0}] * 10))
                # The request has come before the connection of the other client.
                await asyncio.sleep(0)
                await asyncio.to_thread(_use, place)
                assert not sending.done()
                assert await sending == MQ_OK

        asyncio.run(main())


def test_slices_of_long_work_take_turns() -> None:
    """A client may ask for hundreds of searches at a time, each of them in slices."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns, slices = [0], list[tuple[int, bytes]]()

        def begin_turn() -> None:
            turns.append(0)
            loop.call_soon(begin_turn)

        async def work(user: bytes) -> None:
            for _ in range(3):
                await waking.turn(user)
                slices.append((len(turns), user))

        begin_turn()
        await asyncio.gather(*(work(b"greedy") for _ in range(50)), work(b"other"))
        assert len(slices) == 153
        assert len({number for number, _ in slices}) == len(slices)
        # The other user has had its slices long before the one who asked for so many.
        assert [user for _, user in slices[:20]].count(b"other") == 3

    asyncio.run(main())


def test_connections_of_one_user_share_a_turn() -> None:
    """Each could work for 20 ms in each turn of the event loop, and a user may have 512 of them."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns, calls = [0], list[int]()

        def begin_turn() -> None:
            turns.append(0)
            loop.call_soon(begin_turn)

        def work(call: ServerCall) -> bytes:
            time.sleep(TURN)
            calls.append(len(turns))
            return call.stub

        server = RpcServer([RawInterface(RAW, {0: work})])
        port = await server.listen_tcp("127.0.0.1", 0)
        begin_turn()
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in clients:
            writer.write(bind(element(0, RAW, NDR20)) + request(b""))
        await until(lambda: len(calls) == 8)
        assert len(set(calls)) == 8
        for _, writer in clients:
            writer.close()
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_sessions_of_one_stranger_share_a_turn(tmp_path: Path, run: Callable[..., None]) -> None:
    """A stranger has 64 sessions. On each of them a read may bring messages that take long."""
    address = "127.0.0.53"
    made = Runtime(tmp_path, local_settings("ALPHA", local_addresses=frozenset({address})))
    with made.lock:
        made.engine.create_queue(made.engine.set_queue_defaults(r".\private$\taken"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        turns, arrivals = [0], list[int]()

        def begin_turn() -> None:
            turns.append(0)
            loop.call_soon(begin_turn)

        def arrived(*_: object) -> None:
            time.sleep(TURN)
            arrivals.append(len(turns))

        with made.lock:
            made.engine.position_available_subscribers.append(arrived)
        listener = TransferListener(made.engine, address, TransferSettings(port=PORT))
        await listener.start()
        strangers = [
            await asyncio.to_thread(lambda: Stranger.connect("127.9.7.1", address, guid=uuid.uuid4()).open())
            for _ in range(6)
        ]
        begin_turn()
        for one in strangers:
            said = message(rf"DIRECT=TCP:{address}\private$\taken", source=one.session._own_guid, recoverable=False)
            one.connection.sendall(said)
        await until(lambda: len(arrivals) == len(strangers))
        assert len(set(arrivals)) == len(strangers)
        for one in strangers:
            one.connection.close()
        await listener.stop()

    run(main())
    made.close()


def test_a_signature_is_found_without_reading_the_names_before_it() -> None:
    """Each message was asked four times, and has room for three lists of a thousand names."""
    several = parse(",".join(_ELSEWHERE))
    for first, second, third in (
        (several, several, several),
        (several, None, None),
        (None, several, None),
        (None, None, None),
    ):
        packed = MultiQueueFormatHeader.of(first, second, third, b"signature").pack()
        assert unpack_signature(Reader(packed)) == b"signature"
        assert MultiQueueFormatHeader.unpack(Reader(packed)).signature.signature == b"signature"
    # It does not care what the names are.
    damaged = bytearray(MultiQueueFormatHeader.of(several, None, None, b"signature").pack())
    damaged[16:40] = b"\xff" * 24
    assert unpack_signature(Reader(bytes(damaged))) == b"signature"
    with pytest.raises(RemoteProtocolError):
        MultiQueueFormatHeader.unpack(Reader(bytes(damaged)))


def test_those_who_wait_longest_are_first() -> None:
    async def main() -> None:
        turns, order = Turns(asyncio.get_running_loop()), list[str]()

        def work(user: str, name: str, left: int) -> None:
            order.append(name)
            turns.spend(user, TURN)
            if left:
                turns.wait(user, partial(work, user, name, left - 1))

        for name in "abc":
            turns.wait("greedy", partial(work, "greedy", name, 1))
        turns.wait("other", partial(work, "other", "o", 1))
        await until(lambda: len(order) == 8)
        assert order == ["a", "o", "b", "o", "c", "a", "b", "c"]
        assert turns.has_time("new")

    asyncio.run(main())


class _Counting(Committer):
    """A committer that counts the changes of the current turn of its event loop."""

    now = most = 0

    def change(self) -> Change:
        self.now += 1
        self.most = max(self.most, self.now)
        return super().change()


def test_copies_that_are_asked_for_together_take_turns(runtime: Runtime) -> None:
    engine = runtime.engine
    with runtime.lock:
        for path in ("taken", "kept"):
            engine.create_queue(engine.set_queue_defaults(rf".\private$\{path}"))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        committer = _Counting(runtime.store, loop)
        session = _session(runtime, committer)

        def begin_turn() -> None:
            committer.now = 0
            loop.call_soon(begin_turn)

        async def ask(**request: object) -> dict[str, Any]:
            reply = session.handle(request, memoryview(b""))
            return (reply if isinstance(reply, tuple) else await reply)[0]

        for number, (path, access) in enumerate((("taken", "send"), ("taken", "peek"), ("kept", "send"))):
            await ask(request="open", queue=number, name=rf"DIRECT=OS:.\private$\{path}", access=access)
        await ask(request="send", queue=0, messages=[{"size": 0} for _ in range(20)])
        found = await ask(request="find", queue=1, conditions=[], after=None, limit=100, scan=100, ids_only=True)
        begin_turn()
        await asyncio.sleep(0)
        committer.most = 0
        copies = [
            ask(request="pass on", queue=1, target=2, lookup_ids=found["lookup_ids"], copy=True) for _ in range(20)
        ]
        await asyncio.gather(*copies)
        assert committer.most == 1
        assert engine.require_queue(parse(r"DIRECT=OS:.\private$\kept")).message_count == 400
        session.close()
        await asyncio.to_thread(committer.close)

    asyncio.run(main())
