"""Hostile or broken RPC clients against a queue manager with every service.

A well-behaved client continues to work meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from lanner.model.errors import MQ_OK
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp, connect_unix
from lanner.rpc.endpoint_mapper import EPMAPPER
from lanner.rpc.faults import FaultStatus, RpcConnectionError, RpcFault
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import ContextHandle, Value
from lanner.rpc.pdu import AuthLevel, AuthType, PacketType
from lanner.rpc.server import RpcServer, ServerLimits
from lanner.services.interfaces import mqmp, mqqp, mqrr
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqqp import QM2QM, RemoteReadDesc, RemoteReadDesc2
from lanner.services.interfaces.mqrr import QUEUE_CONTEXT_HANDLE, REMOTE_READ
from lanner.services.queue_client_buffers import receive_buffer, send_buffer
from lanner.services.queue_formats import queue_format_of
from lanner.services.remote_read import MQ_ACTION_RECEIVE
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from tests.adversity.rpc_mutator import NUMBERS, SERVED, Mutator, authenticated, calls, corpus, stub_of, whole_bind
from tests.adversity.rpc_victim import Victim
from tests.rpc.context_handles import context_handles
from tests.rpc.harness import request
from tests.services.queue_client_peer import CLIENT_ID, Peer, Q

ADDRESS = "127.0.0.38"
WITH_HANDLES = (QM2QM, QMCOMM, QMCOMM2, REMOTE_READ)
MIB = 1 << 20
# More than a busy machine needs for anything here.
# More than a logon waits after many wrong ones (MAX_DELAY of security/logons.py).
PATIENCE = 120.0  # seconds
TO_A_CLIENT = {
    PacketType.RESPONSE,
    PacketType.FAULT,
    PacketType.BIND_ACK,
    PacketType.BIND_NAK,
    PacketType.ALTER_CONTEXT_RESP,
}


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    with Victim(tmp_path_factory.mktemp("rpc"), ADDRESS) as victim:
        yield victim


def run(victim: Victim, harm: Callable[[Victim], Awaitable[None]], *, growth: int = 64 * MIB) -> None:
    """Attack while a well-behaved client sends and receives.

    Afterwards nothing has failed, and nothing has grown permanently.
    """

    async def main() -> None:
        async with friend(victim):
            await harm(victim)

    before = victim.memory
    uvloop.run(main())
    victim.check()
    assert victim.memory - before < growth


@asynccontextmanager
async def friend(victim: Victim) -> AsyncIterator[None]:
    """Run a client whose messages come back one by one throughout the attack.

    It can connect again at the end.
    """
    turn, is_over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with await connect_tcp(ADDRESS, victim.port) as client:
            await there_and_back(client, turn, is_over)

    working = asyncio.ensure_future(work())
    try:
        await served(turn, working)
        yield
        await served(turn, working)
    finally:
        is_over.set()
        await working
    async with asyncio.timeout(PATIENCE), await connect_tcp(ADDRESS, victim.port) as client:
        await client.bind(QMCOMM)


async def there_and_back(client: RpcClient, turn: asyncio.Event, is_over: asyncio.Event) -> None:
    peer = Peer(client, await client.bind(QMCOMM), await client.bind(QMCOMM2))
    name = r"DIRECT=OS:.\private$\friend"
    sending, reading = await peer.open(name, 2), await peer.open(name, 1)
    for number in itertools.count():
        body = b"%d" % number
        async with asyncio.timeout(PATIENCE):
            assert (await sending.send(body))[RETURNS] == MQ_OK
            assert (await reading.read(timeout=0, body_size=64)).body == body
        turn.set()
        if is_over.is_set():
            break
        await asyncio.sleep(0.002)


async def served(turn: asyncio.Event, working: asyncio.Future[None]) -> None:
    turn.clear()
    waiting = asyncio.ensure_future(turn.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((waiting, working), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if working.done():
        working.result()


# PDUs
# --------------------------------------------------------------------------------------------------


async def say(victim: Victim, data: bytes, pieces: list[int], *, is_local: bool) -> bytes:
    """Connect, send data in pieces and disconnect. Return everything that the server answers."""
    loop = asyncio.get_running_loop()
    answer = b""
    with socket.socket(socket.AF_UNIX if is_local else socket.AF_INET) as connection:
        connection.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            await loop.sock_connect(connection, str(victim.socket) if is_local else (ADDRESS, victim.port))
            # It may have hung up before we have said all.
            with contextlib.suppress(OSError):
                for start, stop in itertools.pairwise([0, *pieces, len(data)]):
                    await loop.sock_sendall(connection, data[start:stop])
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while part := await loop.sock_recv(connection, 1 << 16):
                    answer += part
    return answer


def check_answer(answer: bytes) -> None:
    """Assert that an answer consists of PDUs that a server sends.

    The last may be cut off, because the server may have disconnected.
    """
    while len(answer) >= 16:
        (length,) = struct.unpack_from("<H", answer, 8)
        assert answer[:2] == b"\x05\x00"
        assert PacketType(answer[2]) in TO_A_CLIENT
        assert length >= 16
        answer = answer[length:]


async def mutated_sessions(victim: Victim, seed: int, count: int) -> None:
    """Over TCP the caller is anonymous; over the Unix socket it is an administrator."""
    sessions, mutator = corpus(), Mutator(seed)
    chance = mutator.chance

    async def some() -> None:
        for _ in range(count // 8):
            data = mutator.session(chance.choice(sessions), sessions)
            pieces = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 3))))
            check_answer(await say(victim, data, pieces, is_local=chance.random() < 0.5))

    await asyncio.gather(*(some() for _ in range(8)))


def test_the_sessions_themselves_are_fine(victim: Victim) -> None:
    """Whatever is wrong with a mutated one was put there."""

    async def harm(victim: Victim) -> None:
        for session in corpus():
            if session[0] == whole_bind():
                answer = await say(victim, b"".join(session), [], is_local=True)
                assert answer[2] == PacketType.BIND_ACK
                check_answer(answer)

    run(victim, harm)


def test_mutated_pdus(victim: Victim) -> None:
    run(victim, lambda victim: mutated_sessions(victim, 1, 800))


# Stubs, with handles that are open
# ------------------------------------------------------------------------------------


class Holder:
    """A connection with one handle of every kind."""

    def __init__(self, client: RpcClient) -> None:
        self.client = client
        self.bound: dict[Interface, BoundInterface] = {}
        self.handles: dict[str, bytes] = {}
        self.context = 0  # pdwQMContext
        self.number = 0  # of the queue in MS-MQQP
        self.move_context = 0  # of its subqueue in MS-MQRR

    @classmethod
    @asynccontextmanager
    async def connected(cls, victim: Victim, assoc_group_id: int = 0, *, opens: bool = True) -> AsyncIterator[Holder]:
        """An administrator, over the Unix socket."""
        async with await connect_unix(victim.socket, assoc_group_id=assoc_group_id) as client:
            holder = cls(client)
            for interface in SERVED:
                holder.bound[interface] = await client.bind(interface)
            if opens:
                await holder.open()
            yield holder

    async def call(self, interface: Interface, method: Method, **arguments: Value) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            return await self.bound[interface].call(method, **arguments)

    async def open(self) -> None:
        peer = Peer(self.client, self.bound[QMCOMM], self.bound[QMCOMM2])
        opened = await peer.open(Q)
        self.context = opened.context
        self.handles["RPC_QUEUE_HANDLE"] = opened.handle
        self.handles["RPC_INT_XACT_HANDLE"] = (await peer.begin()).handle
        first = await self.call(
            QMCOMM,
            mqmp.R_QM_OPEN_REMOTE_QUEUE,
            p_queue_format=queue_format_of(parse(Q)),
            dw_calling_process_id=0,
            dw_desired_access=1,
            dw_share_mode=0,
            p_lic_guid=CLIENT_ID,
            dw_mqs=0,
        )
        assert first[RETURNS] == MQ_OK
        self.number = first["ph_queue"]
        self.handles["PCTX_OPENREMOTE_HANDLE_TYPE"] = first["pph_context"]
        second = await self.call(
            QM2QM,
            mqqp.REMOTE_QM_OPEN_QUEUE,
            p_lic_guid=CLIENT_ID,
            dw_mqs=0,
            h_queue=self.number,
            p_queue=self.number,
            dwp_context=self.number,
        )
        self.handles["PCTX_RRSESSION_HANDLE_TYPE"] = second["ph_context"]
        sending = await peer.open(Q, 2)
        await sending.send(b"locked by a read")
        read = await self.call(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=self.desc(1))
        assert read[RETURNS] == MQ_OK
        self.handles["PCTX_REMOTEREAD_HANDLE_TYPE"] = read["pph_context"]
        opens = {"dw_share_mode": 0, "p_client_id": CLIENT_ID, "f_non_routing_server": 1}
        opens |= {"major": 6, "minor": 1, "build_number": 7601, "f_workgroup": 0}
        third = await self.call(
            REMOTE_READ, mqrr.R_OPEN_QUEUE, p_queue_format=queue_format_of(parse(Q)), dw_access=1, **opens
        )
        self.handles[QUEUE_CONTEXT_HANDLE.kind] = third["pph_context"]
        subqueue = queue_format_of(parse(f"{Q};sub"))
        target = await self.call(
            REMOTE_READ, mqrr.R_OPEN_QUEUE_FOR_MOVE, p_queue_format=subqueue, dw_access=mqrr.MQ_MOVE_ACCESS, **opens
        )
        self.move_context = target["p_move_context"]

    def desc(self, request_id: int, **changes: Any) -> RemoteReadDesc:  # noqa: ANN401
        plain = RemoteReadDesc(self.number, 0, MQ_ACTION_RECEIVE, 0, 0, self.number, request_id, 0, 0, 0, None)
        return replace(plain, **changes)

    def arguments(self, method: Method, samples: dict[str, Value], request_id: int = 2) -> dict[str, Value]:
        """The arguments of a sample call, with what is open here."""
        known: dict[str, Value] = {"h_qm_context": self.context}
        if method in QM2QM.methods or method is mqmp.R_QM_CREATE_REMOTE_CURSOR:
            known |= dict.fromkeys(("h_queue", "p_queue", "dwp_context"), self.number)
        if method in REMOTE_READ.methods:
            # A name that is there, and a request of its own each time.
            known |= {"p_queue_format": queue_format_of(parse(Q)), "ull_context_to": self.move_context}
            known |= {"dw_request_id": request_id, "lookup_id": 0, "h_cursor": 0, "ul_action": MQ_ACTION_RECEIVE}
            known |= {"ul_timeout": 0, "p_transaction_id": bytes(16)}
            return {name: self._known(method, known, name, value) for name, value in samples.items()}
        desc = self.desc(request_id)
        known |= {"lp_remote_read_desc": desc, "lp_remote_read_desc2": RemoteReadDesc2(desc, 0)}
        if method is mqmp.RPC_AC_SEND_MESSAGE_EX:
            known["ptb"] = send_buffer(MessageProperties(body=b"a body", label="label"))
        elif method is mqmp.RPC_AC_RECEIVE_MESSAGE_EX:
            known["ptb"] = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=64, security_size=16)
        return {name: self._known(method, known, name, value) for name, value in samples.items()}

    def _known(self, method: Method, known: dict[str, Value], name: str, value: Value) -> Value:
        kind = context_handles(method).get(name)
        return known.get(name, value) if kind is None else self.handles[kind.kind]


async def mutated_stubs(victim: Victim, seed: int, count: int) -> None:
    """An administrator sends bad parameters.

    The connection, association and handles are in order.
    """
    mutator = Mutator(seed)
    for _ in range(count // 500):
        async with Holder.connected(victim) as holder:
            request_ids = itertools.count(2)
            for _ in range(5):
                await hundred_stubs(holder, mutator, request_ids)


async def hundred_stubs(holder: Holder, mutator: Mutator, request_ids: Iterator[int]) -> None:
    chance, samples, tasks = mutator.chance, calls(), []
    for _ in range(100):
        interface, opnum, arguments = chance.choice(samples)
        method = interface.method(opnum)
        assert method is not None
        if interface in WITH_HANDLES:
            arguments = holder.arguments(method, arguments, next(request_ids))
        stub = mutator.octets(stub_of(interface, opnum, arguments))
        # Now and then the parameters of another method.
        opnum = opnum if chance.random() < 0.95 else chance.randrange(40)
        tasks.append(asyncio.ensure_future(holder.bound[interface].call_raw(opnum, stub)))
    # What waits for a message, or for long, is given up.
    await asyncio.wait(tasks, timeout=0.5)
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    # A stub never costs the connection.
    wrong = [end for end in ends if not isinstance(end, (bytes, RpcFault, asyncio.CancelledError))]
    assert not wrong


def test_mutated_stubs(victim: Victim) -> None:
    run(victim, lambda victim: mutated_stubs(victim, 2, 2000))


@pytest.mark.soak
def test_mutated_pdus_and_stubs_for_ten_minutes(victim: Victim) -> None:
    async def harm(victim: Victim) -> None:
        end = time.monotonic() + 600
        for seed in itertools.count(1000):
            await asyncio.gather(mutated_sessions(victim, seed, 800), mutated_stubs(victim, seed, 1000))
            victim.check()
            if time.monotonic() > end:
                break

    run(victim, harm, growth=128 * MIB)


# Handles
# --------------------------------------------------------------------------------------------------

MISMATCH = FaultStatus.NCA_FAULT_CONTEXT_MISMATCH
_TAKING = [
    (interface, method, arguments)
    for interface, opnum, arguments in calls()
    if interface in WITH_HANDLES
    for method in [interface.method(opnum)]
    if method is not None
    and context_handles(method).keys() & arguments.keys()
    # It does nothing for any caller.
    and method is not mqmp.RPC_AC_SET_CURSOR_PROPERTIES
]


async def status_of(holder: Holder, interface: Interface, method: Method, arguments: dict[str, Value]) -> int:
    """Return the fault or the value of a call; 0 is success."""
    try:
        results = await holder.call(interface, method, **arguments)
    except RpcFault as fault:
        return fault.status
    return int(results.get(RETURNS, 0))


def test_handles_of_others_and_of_other_kinds_open_nothing(victim: Victim) -> None:
    """Every method that takes a handle, with each handle that is not its own."""

    async def harm(victim: Victim) -> None:
        async with Holder.connected(victim) as mine, Holder.connected(victim) as other:
            for interface, method, samples in _TAKING:
                (name,) = context_handles(method).keys() & samples.keys()
                kind: ContextHandle = context_handles(method)[name]
                arguments = mine.arguments(method, samples)
                foreign = other.handles[kind.kind]
                made_up = foreign[:-1] + bytes([foreign[-1] ^ 1])
                mistaken = [handle for each, handle in mine.handles.items() if each != kind.kind]
                for handle in (foreign, made_up, *mistaken):
                    status = await status_of(mine, interface, method, {**arguments, name: handle})
                    assert status == MISMATCH, (method, kind, hex(status))
            # Nothing was closed, ended or taken by all this.
            await close_all(mine)
            await close_all(other)

    run(victim, harm)


async def close_all(holder: Holder) -> None:
    """Every handle can be closed once. A second close fails, and the handle opens nothing."""
    closing: list[tuple[Interface, Method, dict[str, Value], str]] = [
        (QM2QM, mqqp.REMOTE_QM_END_RECEIVE, {"dw_ack": 1}, "pph_context"),
        (QM2QM, mqqp.REMOTE_QM_CLOSE_QUEUE, {}, "pph_context"),
        (QMCOMM, mqmp.R_QM_CLOSE_REMOTE_QUEUE_CONTEXT, {}, "pph_context"),
        (QMCOMM, mqmp.R_QM_ABORT_TRANSACTION, {}, "ph_int_xact"),
        (QMCOMM, mqmp.RPC_AC_CLOSE_HANDLE, {}, "ph_queue"),
        (REMOTE_READ, mqrr.R_CLOSE_QUEUE, {}, "pph_context"),
    ]
    for interface, method, arguments, name in closing:
        handle = holder.handles[context_handles(method)[name].kind]
        assert await status_of(holder, interface, method, {**arguments, name: handle}) == MQ_OK, method
        assert await status_of(holder, interface, method, {**arguments, name: handle}) == MISMATCH, method
    for interface, method, samples in _TAKING:
        assert await status_of(holder, interface, method, holder.arguments(method, samples)) == MISMATCH, method
    # The numbers beside the handles died with them.
    read = await holder.call(QM2QM, mqqp.REMOTE_QM_START_RECEIVE, lp_remote_read_desc=holder.desc(77))
    assert read[RETURNS] != MQ_OK


def test_double_close_and_use_after_close(victim: Victim) -> None:
    async def harm(victim: Victim) -> None:
        async with Holder.connected(victim) as holder:
            await close_all(holder)

    run(victim, harm)


def test_handles_of_an_association_that_has_ended(victim: Victim) -> None:
    async def harm(victim: Victim) -> None:
        async with AsyncExitStack() as first, AsyncExitStack() as second:
            gone = await first.enter_async_context(Holder.connected(victim))
            group = gone.client.assoc_group_id
            left = await second.enter_async_context(Holder.connected(victim, group, opens=False))
            await first.aclose()
            # As long as one connection of the association lives, so do its handles.
            purge = {"h_queue": gone.handles["RPC_QUEUE_HANDLE"]}
            assert await status_of(left, QMCOMM, mqmp.RPC_AC_PURGE_QUEUE, purge) == MQ_OK
            await second.aclose()
        # No client returns to it.
        with pytest.raises(RpcConnectionError):
            await come_back(victim, group)
        async with Holder.connected(victim, opens=False) as fresh:
            for interface, method, samples in _TAKING:
                assert await status_of(fresh, interface, method, gone.arguments(method, samples)) == MISMATCH, method

    run(victim, harm)


async def come_back(victim: Victim, group: int) -> None:
    """Retry: the server may not have noticed yet that the last connection has ended."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with await connect_unix(victim.socket, assoc_group_id=group) as client:
                await client.bind(QMCOMM)


# Connections that come to nothing
# -------------------------------------------------------------------------------------


def source(number: int) -> str:
    """Return an unused loopback address."""
    return f"127.9.{number // 250}.{number % 250 + 1}"


async def stranger(victim: Victim, number: int, data: bytes = b"") -> socket.socket:
    """Connect from an address of its own and send something."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.bind((source(number), 0))
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (ADDRESS, victim.port))
    await loop.sock_sendall(connection, data)
    return connection


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)


def test_a_thousand_connections_that_never_finish_their_bind(victim: Victim) -> None:
    """Of the unbound connections the newest few hundred are kept.

    Other clients are not affected.
    """

    async def harm(victim: Victim) -> None:
        files, half = victim.files, whole_bind()[:-1]
        with ExitStack() as stack:
            for number in range(1000):
                stack.enter_context(await stranger(victim, number // 100, half))
            await until(lambda: files + 200 < victim.files < files + 300)
        await until(lambda: victim.files <= files)

    run(victim, harm)


def test_a_thousand_connections_that_never_finish_their_authentication(victim: Victim) -> None:
    """The connections are bound, with the first leg of NTLM.

    Some hundreds are kept, and everything is freed when they disconnect.
    """

    async def harm(victim: Victim) -> None:
        files, first_leg = victim.files, authenticated(AuthType.WINNT, AuthLevel.PKT_PRIVACY)[0]
        with ExitStack() as stack:
            for number in range(1000):
                stack.enter_context(await stranger(victim, 10 + number // 100, first_leg))
            await until(lambda: files + 200 < victim.files < files + 300)
        await until(lambda: victim.files <= files)

    run(victim, harm)


def test_binds_that_come_octet_by_octet(victim: Victim) -> None:
    """Slow but correct binds are served, and faster clients do not wait for them."""

    async def slow(victim: Victim, number: int) -> None:
        loop = asyncio.get_running_loop()
        with await stranger(victim, 30 + number) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for octet in whole_bind():
                await loop.sock_sendall(connection, bytes([octet]))
                await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE):
                answer = await loop.sock_recv(connection, 16)
        assert answer[2] == PacketType.BIND_ACK

    async def harm(victim: Victim) -> None:
        await asyncio.gather(*(slow(victim, number) for number in range(20)))

    run(victim, harm)


def test_time_for_a_bind_runs_out_although_octets_keep_coming() -> None:
    """The clock runs from the connection on, not from the last octet."""

    async def main() -> None:
        server = RpcServer(limits=ServerLimits(bind_timeout=0.05))
        port = await server.listen_tcp("127.0.0.1", 0)
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            # A fragment may be too long to be sent this way in time.
            endless = itertools.chain(whole_bind()[:8], b"\xf0\xff", itertools.repeat(0))
            with pytest.raises(ConnectionError):
                await dribble(connection, endless)
        assert server.connections == 0
        await server.stop()

    uvloop.run(main())


async def dribble(connection: socket.socket, octets: Iterable[int]) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        for octet in octets:
            await loop.sock_sendall(connection, bytes([octet]))
            await asyncio.sleep(0.005)


def test_clients_that_ask_and_never_listen(victim: Victim) -> None:
    """The answers would be hundreds of megabytes; the victim keeps one, and reads no further."""
    interface, opnum, arguments = next(one for one in calls() if one[0] is EPMAPPER)
    everything = stub_of(interface, opnum, {**arguments, "max_ents": 500})

    async def deaf(victim: Victim, number: int) -> None:
        loop = asyncio.get_running_loop()
        call_ids = itertools.count(2)
        sent = 0
        with await stranger(victim, 80 + number, whole_bind()) as connection, contextlib.suppress(TimeoutError):
            # Until the victim takes no more; what the kernel keeps on the way is a part of this.
            while sent < 50 * MIB:
                asked = b"".join(
                    request(everything, call_id=call_id, context_id=NUMBERS[interface], opnum=opnum)
                    for call_id in itertools.islice(call_ids, 100)
                )
                async with asyncio.timeout(0.5):
                    await loop.sock_sendall(connection, asked)
                sent += len(asked)
            raise AssertionError("the victim takes whatever it is sent")

    async def harm(victim: Victim) -> None:
        await asyncio.gather(*(deaf(victim, number) for number in range(4)))

    run(victim, harm)
