"""The blocking client: threads that share a connection, and their failures."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from uuid import UUID

import pytest

from lanner.model.errors import RemoteProtocolError
from lanner.rpc import async_client, blocking_client
from lanner.rpc.blocking_client import BoundInterface, RpcClient, connect_tcp, connect_unix
from lanner.rpc.client_connection import ClientConnection, ClientEvent
from lanner.rpc.faults import FaultStatus, InterfaceRefused, RpcConnectionError, RpcFault
from lanner.rpc.mgmt import MGMT
from lanner.rpc.ndr import Syntax
from lanner.rpc.pdu import AuthLevel, AuthType, Header, PacketType, SyntaxId, pack_empty
from lanner.rpc.security import Credentials
from tests.overlay import overlay
from tests.rpc.harness import FIRST, PASSWORD, SECOND, USER, Harness
from tests.rpc.serving import ANSWER, ECHO, ROOT, WAIT, EchoServer, serving, serving_process, until

CREDENTIALS = Credentials(USER, PASSWORD)
DATA = bytes(range(256)) * 80
LARGE = 0x0040_0000
IS_LISTENING = MGMT.by_name["rpc__mgmt_is_server_listening"]


@pytest.fixture
def server() -> Iterator[EchoServer]:
    with serving() as server:
        yield server


@pytest.fixture
def client(server: EchoServer) -> Iterator[RpcClient]:
    with connect_tcp("127.0.0.1", server.port, timeout=10) as client:
        yield client


@pytest.fixture
def threads(client: RpcClient) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        try:
            yield threads
        finally:
            # A thread that waits in vain would keep the pool from ending.
            client.close()


@contextlib.contextmanager
def connected(server: EchoServer, core: ClientConnection) -> Iterator[RpcClient]:
    """Connect a client whose core is the test's."""
    with RpcClient(socket.create_connection(("127.0.0.1", server.port), timeout=10), core) as client:
        yield client


def test_both_colours_have_the_same_names_and_signatures() -> None:
    def signatures(module: object) -> dict[str, object]:
        named = {name: getattr(module, name) for name in ("connect_tcp", "connect_unix")}
        for kind in ("BoundInterface", "RpcClient"):
            members = vars(getattr(module, kind))
            named |= {f"{kind}.{name}": member for name, member in members.items() if not name.startswith("_")}
        return {
            name: inspect.signature(member) if inspect.isfunction(member) else type(member)
            for name, member in named.items()
        }

    protocol = {"RpcClient.connection_made", "RpcClient.data_received", "RpcClient.connection_lost"}
    wanted = {name: found for name, found in signatures(async_client).items() if name not in protocol}
    assert signatures(blocking_client) == wanted


# Calls
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("auth_type", [AuthType.WINNT, AuthType.GSS_NEGOTIATE])
@pytest.mark.parametrize("level", [AuthLevel.CONNECT, AuthLevel.PKT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_calls_at_every_level(server: EchoServer, auth_type: AuthType, level: AuthLevel) -> None:
    with connect_tcp("127.0.0.1", server.port, credentials=CREDENTIALS, auth_type=auth_type, level=level) as client:
        assert client.bind_raw(ECHO).call_raw(ANSWER, DATA) == DATA
        assert client.bind(MGMT).call(IS_LISTENING) == {"status": 0, "returns": 1}


def test_calls_on_a_local_socket(tmp_path: Path) -> None:
    path = tmp_path / "rpc.sock"
    with serving(path), connect_unix(path, timeout=10) as client:
        assert client.bind_raw(ECHO).call_raw(ANSWER, DATA * 10) == DATA * 10
        assert client.local_address == ""


def test_a_wrong_password(server: EchoServer) -> None:
    wrong = Credentials(USER, "wrong")
    with connect_tcp("127.0.0.1", server.port, credentials=wrong) as client, pytest.raises(RpcFault) as caught:
        client.bind_raw(ECHO).call_raw(ANSWER, b"")
    assert caught.value.status == FaultStatus.ACCESS_DENIED


def test_a_fault_leaves_the_connection_usable(client: RpcClient) -> None:
    bound = client.bind_raw(ECHO)
    with pytest.raises(RpcFault) as caught:
        bound.call_raw(9, b"")
    assert caught.value.status == FaultStatus.NCA_OP_RNG_ERROR
    assert bound.call_raw(ANSWER, b"x") == b"x"


def test_an_interface_that_the_server_does_not_have(client: RpcClient) -> None:
    with pytest.raises(InterfaceRefused, match="abstract_syntax_not_supported"):
        client.bind_raw(SyntaxId(UUID(int=1), 1))
    assert client.bind_raw(ECHO).call_raw(ANSWER, b"x") == b"x"


def test_another_connection_joins_the_association(server: EchoServer, client: RpcClient) -> None:
    client.bind_raw(ECHO)
    assert client.assoc_group_id
    assert client.local_address == "127.0.0.1"
    with connect_tcp("127.0.0.1", server.port, assoc_group_id=client.assoc_group_id) as other:
        other.bind_raw(ECHO)
        assert other.assoc_group_id == client.assoc_group_id


# Threads
# --------------------------------------------------------------------------------------------------


def test_threads_share_a_connection(server: EchoServer) -> None:
    """Sealed: the server rejects any request that is not sent in the order of its signature."""
    with (
        ThreadPoolExecutor(16) as threads,
        connect_tcp("127.0.0.1", server.port, credentials=CREDENTIALS) as client,
    ):
        bound = client.bind_raw(ECHO)

        def work(number: int) -> None:
            for count in range(40):
                stub = b"%d of %d;" % (count, number) * (1 + 100 * count)
                assert bound.call_raw(ANSWER, stub) == stub

        for done in [threads.submit(work, number) for number in range(16)]:
            done.result()


def test_short_calls_proceed_while_others_wait(
    server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    bound = client.bind_raw(ECHO)
    waiting = [threads.submit(bound.call_raw, WAIT, b"%d" % number) for number in range(8)]
    until(lambda: len(server.waiting) == 8)
    short = [threads.submit(bound.call_raw, ANSWER, b"short %d" % number) for number in range(8)]
    assert [one.result() for one in short] == [b"short %d" % number for number in range(8)]
    assert not any(one.done() for one in waiting)
    server.release()
    assert [one.result() for one in waiting] == [b"%d" % number for number in range(8)]


def test_the_lead_passes_from_thread_to_thread(server: EchoServer) -> None:
    """The thread that reads for the others gets its answer, and another has to read on."""
    gate = threading.Event()
    core = ClientConnection()

    def receive(data: bytes) -> list[ClientEvent]:
        gate.wait()
        return core.receive(data)

    with ThreadPoolExecutor(5) as threads, connected(server, overlay(core, receive=receive)) as client:
        gate.set()
        bound = client.bind_raw(ECHO)
        gate.clear()
        leader = threads.submit(bound.call_raw, ANSWER, b"leader")
        until(lambda: client._leader is not None)
        followers = [threads.submit(bound.call_raw, WAIT, b"%d" % number) for number in range(4)]
        gate.set()
        assert leader.result() == b"leader"
        until(lambda: len(server.waiting) == 4)
        server.release()
        assert [one.result() for one in followers] == [b"0", b"1", b"2", b"3"]
        assert client._leader is None
        assert not client._followers


def test_binds_of_several_threads_wait_for_each_other(client: RpcClient, threads: ThreadPoolExecutor) -> None:
    syntaxes = [(Syntax.NDR20,), (Syntax.NDR64,)] * 8
    bound = [threads.submit(client.bind, MGMT, one) for one in syntaxes]
    assert all(one.result().call(IS_LISTENING)["returns"] == 1 for one in bound)


def test_large_requests_and_answers_in_both_directions_at_once(tmp_path: Path) -> None:
    """The server stops reading while its client does not read the answers.

    A client that only writes would wait forever.
    """
    path = tmp_path / "rpc.sock"
    stubs = [bytes([number]) * LARGE for number in range(6)]
    with serving(path), ThreadPoolExecutor(6) as threads, connect_unix(path) as client:
        bound = client.bind_raw(ECHO)
        for _ in range(2):
            for stub, answer in zip(stubs, threads.map(lambda stub: bound.call_raw(ANSWER, stub), stubs), strict=True):
                assert answer == stub


def test_large_sealed_requests_and_answers(server: EchoServer) -> None:
    stubs = [bytes([number]) * (LARGE // 4) for number in range(4)]
    with (
        ThreadPoolExecutor(4) as threads,
        connect_tcp("127.0.0.1", server.port, credentials=CREDENTIALS) as client,
    ):
        bound = client.bind_raw(ECHO)
        assert list(threads.map(lambda stub: bound.call_raw(ANSWER, stub), stubs)) == stubs


def test_a_leader_that_only_reads_is_woken_to_write(
    server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    bound = client.bind_raw(ECHO)
    client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    waiting = threads.submit(bound.call_raw, WAIT, b"")
    until(lambda: server.waiting)
    until(lambda: client._leader is not None)
    stub = bytes(LARGE)
    assert bound.call_raw(ANSWER, stub) == stub
    assert not waiting.done()
    server.release()
    waiting.result()


# Interruption
# --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def signalled_when(is_time: Callable[[], object], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Send this thread a signal from another one."""

    def send() -> None:
        until(is_time)
        signal.pthread_kill(main, signal.SIGUSR1)

    main = threading.get_ident()
    before = signal.signal(signal.SIGUSR1, handler)
    sender = threading.Thread(target=send)
    try:
        sender.start()
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


@contextlib.contextmanager
def interrupted_when(is_time: Callable[[], object]) -> Iterator[None]:
    """Send a signal whose handler raises KeyboardInterrupt, as Ctrl-C does, and expect that."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with signalled_when(is_time, handler), pytest.raises(KeyboardInterrupt):
        yield


def test_an_interrupted_leader_abandons_its_call_and_passes_the_lead_on(
    server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = client.bind_raw(ECHO)
    # The main thread is interrupted before it hears that another one could lead.
    monkeypatch.setattr(os, "eventfd_write", lambda *_: None)

    def follow() -> bytes:
        until(lambda: client._leader is not None)
        return bound.call_raw(WAIT, b"follower")

    follower = threads.submit(follow)
    with interrupted_when(lambda: client._followers and len(server.waiting) == 2):
        bound.call_raw(WAIT, b"leader")
    until(lambda: server.abandoned)
    assert server.abandoned == [b"leader"]
    until(lambda: client._leader is not None)
    server.release()
    assert follower.result() == b"follower"


def test_an_interrupted_caller_that_was_alone_leaves_the_connection_usable(
    server: EchoServer, client: RpcClient
) -> None:
    bound = client.bind_raw(ECHO)
    with interrupted_when(lambda: client._leader is not None and server.waiting):
        bound.call_raw(WAIT, b"leader")
    assert client._leader is None
    assert bound.call_raw(ANSWER, b"x") == b"x"
    until(lambda: server.abandoned == [b"leader"])


def test_the_main_thread_gives_up_the_lead_to_a_thread_that_no_signal_interrupts(
    server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    """A signal would interrupt the main thread in the middle of the answers of others.

    That would end the connection for all of them.
    """
    bound = client.bind_raw(ECHO)

    def check() -> bool:
        until(lambda: client._leader is not None)
        was_main = client._leader is not None and client._leader.is_main
        other = threads.submit(bound.call_raw, WAIT, b"other")
        until(lambda: client._leader is not None and not client._leader.is_main)
        server.release()
        return was_main and other.result() == b"other"

    checked = threads.submit(check)
    assert bound.call_raw(WAIT, b"main") == b"main"
    assert checked.result()


def test_an_interrupted_follower_abandons_its_call(
    server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor
) -> None:
    bound = client.bind_raw(ECHO)
    leader = threads.submit(bound.call_raw, WAIT, b"leader")
    until(lambda: client._leader is not None)
    with interrupted_when(lambda: client._followers and len(server.waiting) == 2):
        bound.call_raw(WAIT, b"follower")
    until(lambda: server.abandoned)
    assert server.abandoned == [b"follower"]
    assert bound.call_raw(ANSWER, b"x") == b"x"
    server.release()
    assert leader.result() == b"leader"
    assert not client._followers


@contextlib.contextmanager
def peer() -> Iterator[tuple[RpcClient, Harness, socket.socket]]:
    """A client, and a server that reads and answers only when the test says so."""
    ours, theirs = socket.socketpair()
    with theirs, RpcClient(ours, ClientConnection()) as client:
        yield client, Harness(), theirs


def bound_to(client: RpcClient, server: Harness, theirs: socket.socket) -> BoundInterface:
    with ThreadPoolExecutor(1) as threads:
        binding = threads.submit(client.bind_raw, FIRST)
        theirs.sendall(b"".join(server.send(theirs.recv(65536))))
        return binding.result()


def test_an_interrupted_write_is_finished_before_the_next_call() -> None:
    """Half a request has been sent.

    The rest must follow, then the orphaned PDU, then the next call.
    """
    with ThreadPoolExecutor(1) as threads, peer() as (client, server, theirs):
        bound = bound_to(client, server, theirs)
        with interrupted_when(lambda: client._leader is not None and client._unsent):
            bound.call_raw(0, bytes(1_000_000))
        assert client._unsent
        answering = threads.submit(bound.call_raw, 0, b"next")
        kinds = []
        rest = b""
        while not server.calls or server.calls[-1].stub != b"next":
            rest += theirs.recv(65536)
            while len(rest) >= 16 and len(rest) >= (size := Header.unpack(rest[:16]).frag_length):
                kinds.append(Header.unpack(rest[:16]).packet_type)
                server.send(rest[:size])
                rest = rest[size:]
        assert kinds[-3:] == [PacketType.REQUEST, PacketType.ORPHANED, PacketType.REQUEST]
        server.connection.respond(server.calls[-1], b"answer")
        theirs.sendall(b"".join(server.sent()))
        assert answering.result() == b"answer"


def test_an_interrupted_bind_leaves_the_connection_usable() -> None:
    """It cannot be abandoned, so that the next one waits for its answer."""
    with ThreadPoolExecutor(1) as threads, peer() as (client, server, theirs):
        with interrupted_when(lambda: client._leader is not None):
            client.bind_raw(FIRST)
        binding = threads.submit(client.bind_raw, SECOND)
        until(lambda: client._leader is not None)
        for _ in range(2):
            theirs.sendall(b"".join(server.send(theirs.recv(65536))))
        bound = binding.result()
        calling = threads.submit(bound.call_raw, 0, b"question")
        server.send(theirs.recv(65536))
        assert server.calls[-1].context.interface.syntax == SECOND
        server.connection.respond(server.calls[-1], b"answer")
        theirs.sendall(b"".join(server.sent()))
        assert calling.result() == b"answer"


def test_an_exception_in_the_middle_of_a_pdu_ends_the_connection(server: EchoServer) -> None:
    interrupt = threading.Event()
    core = ClientConnection()

    def data_to_send() -> bytes:
        if interrupt.is_set():
            raise KeyboardInterrupt
        return core.data_to_send()

    with ThreadPoolExecutor(1) as threads, connected(server, overlay(core, data_to_send=data_to_send)) as client:
        bound = client.bind_raw(ECHO)
        other = threads.submit(bound.call_raw, WAIT, b"")
        until(lambda: client._leader is not None)
        interrupt.set()
        with pytest.raises(KeyboardInterrupt):
            bound.call_raw(ANSWER, b"")
        with pytest.raises(RpcConnectionError, match="KeyboardInterrupt in the middle of a PDU; connect again"):
            other.result()
        assert not client.is_open


def test_a_signal_handler_cannot_call_on_the_connection_that_it_interrupts(
    server: EchoServer, client: RpcClient
) -> None:
    bound = client.bind_raw(ECHO)
    refused: list[BaseException] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            bound.call_raw(ANSWER, b"")
        except RuntimeError as error:
            refused.append(error)
        server.release()

    with signalled_when(lambda: client._leader, handler):
        assert bound.call_raw(WAIT, b"x") == b"x"
    assert "a signal handler or finalizer cannot make a call" in str(refused[0])


def test_a_signal_handler_closes_the_connection(server: EchoServer, client: RpcClient) -> None:
    bound = client.bind_raw(ECHO)
    with (
        signalled_when(lambda: client._leader, lambda number, frame: client.close()),
        pytest.raises(RpcConnectionError, match="the connection was closed"),
    ):
        bound.call_raw(WAIT, b"x")
    assert client._socket.fileno() == -1


# The end of a connection
# ---------------------------------------------------------------------------------------------


def test_close_wakes_every_thread(server: EchoServer, client: RpcClient, threads: ThreadPoolExecutor) -> None:
    bound = client.bind_raw(ECHO)
    waiting = [threads.submit(bound.call_raw, WAIT, b"") for _ in range(4)]
    until(lambda: len(server.waiting) == 4 and len(client._followers) == 3)
    was_open = client.is_open
    client.close()
    errors = [one.exception() for one in waiting]
    assert [(type(error), str(error)) for error in errors] == [(RpcConnectionError, "the connection was closed")] * 4
    # Each thread has an instance of its own, with its own traceback.
    assert len({id(error) for error in errors}) == 4
    assert was_open
    assert not client.is_open
    assert client._socket.fileno() == -1
    assert client._bell.closed
    with pytest.raises(RpcConnectionError, match="the connection was closed"):
        bound.call_raw(ANSWER, b"")
    client.close()


def test_a_killed_server_wakes_every_thread() -> None:
    with (
        serving_process() as (process, port),
        ThreadPoolExecutor(4) as threads,
        connect_tcp("127.0.0.1", port) as client,
    ):
        bound = client.bind_raw(ECHO)
        waiting = [threads.submit(bound.call_raw, WAIT, b"") for _ in range(4)]
        until(lambda: len(client._followers) == 3)
        process.kill()
        for one in waiting:
            assert isinstance(one.exception(), RpcConnectionError)
        assert not client.is_open


def test_an_idle_connection_notices_that_the_server_hung_up() -> None:
    with peer() as (client, _, theirs):
        was_open = client.is_open
        theirs.close()
        assert was_open
        assert not client.is_open
        with pytest.raises(RpcConnectionError, match="the server hung up"):
            client.bind_raw(FIRST)


def test_a_write_that_fails_has_its_cause() -> None:
    with peer() as (client, server, theirs):
        bound = bound_to(client, server, theirs)
        theirs.close()
        with pytest.raises(RpcConnectionError, match=r"the connection failed: .*Broken pipe"):
            bound.call_raw(0, b"")


def test_a_read_that_fails_has_its_cause() -> None:
    with (
        ThreadPoolExecutor(1) as threads,
        socket.create_server(("127.0.0.1", 0)) as listening,
        connect_tcp("127.0.0.1", listening.getsockname()[1]) as client,
    ):
        binding = threads.submit(client.bind_raw, ECHO)
        connected, _ = listening.accept()
        until(lambda: client._leader is not None)
        # Without lingering: a reset.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connected.close()
        with pytest.raises(RpcConnectionError, match=r"the connection failed: .*Connection reset by peer"):
            binding.result()


def test_a_pdu_that_no_server_sends_ends_the_connection() -> None:
    with ThreadPoolExecutor(1) as threads, peer() as (client, _, theirs):
        binding = threads.submit(client.bind_raw, FIRST)
        theirs.recv(65536)
        theirs.sendall(pack_empty(PacketType.CO_CANCEL, 1))
        with pytest.raises(RemoteProtocolError, match="PDU type 18 from a server"):
            binding.result()
        with pytest.raises(RpcConnectionError, match="PDU type 18 from a server"):
            client.bind_raw(FIRST)


FORKING = """
import os, sys
from lanner.rpc.blocking_client import connect_tcp
from lanner.rpc.faults import RpcConnectionError
from tests.rpc.serving import ECHO

client = connect_tcp("127.0.0.1", int(sys.argv[1]))
bound = client.bind_raw(ECHO)
# As if another thread were in the middle of something: it does not exist in the child.
with client._lock:
    child = os.fork()
    if not child:
        assert not client.is_open
        for work in (lambda: bound.call_raw(0, b"child"), lambda: client.bind_raw(ECHO)):
            try:
                work()
            except RpcConnectionError as error:
                print(error, flush=True)
        client.close()
        os._exit(0)
os.waitpid(child, 0)
print(os.getpid(), child, bound.call_raw(0, b"parent"))
client.close()
"""


def test_a_child_process_does_not_use_the_connection_of_its_parent(server: EchoServer) -> None:
    command = [sys.executable, "-c", FORKING, str(server.port)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    *refusals, last = ran.stdout.splitlines()
    parent, child, answer = last.split()
    assert refusals == [f"the connection was made in process {parent}; connect again in this one, {child}"] * 2
    assert answer == "b'parent'"


# Connecting
# --------------------------------------------------------------------------------------------------


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            connect_tcp("127.0.0.1", probe.getsockname()[1])
    with pytest.raises(FileNotFoundError):
        connect_unix(tmp_path / "none.sock")


def fill(family: socket.AddressFamily, address: object) -> list[socket.socket]:
    """Connect until the backlog of a server that accepts nothing is full."""
    waiting = []
    for _ in range(4):
        waiting.append(socket.socket(family, socket.SOCK_STREAM))
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(address)  # type: ignore[arg-type]
    return waiting


def test_a_server_that_does_not_accept_is_given_up(tmp_path: Path) -> None:
    path = str(tmp_path / "full.sock")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix, contextlib.ExitStack() as stack:
        tcp.bind(("127.0.0.1", 0))
        unix.bind(path)
        for family, one in ((socket.AF_INET, tcp), (socket.AF_UNIX, unix)):
            one.listen(0)
            for waiting in fill(family, one.getsockname()):
                stack.enter_context(waiting)
        port = tcp.getsockname()[1]
        with pytest.raises(TimeoutError, match=rf"127.0.0.1 port {port} did not accept a connection within 0.1 s"):
            connect_tcp("127.0.0.1", port, timeout=0.1)
        with pytest.raises(TimeoutError, match=r"full.sock did not accept a connection within 0.1 s"):
            connect_unix(Path(path), timeout=0.1)


def test_the_time_out_is_for_connecting_only(server: EchoServer) -> None:
    with connect_tcp("127.0.0.1", server.port, timeout=0.05) as client:
        bound = client.bind_raw(ECHO)
        threading.Timer(0.2, server.release).start()
        assert bound.call_raw(WAIT, b"later") == b"later"


def test_every_address_of_a_name_is_tried(server: EchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one refuses."""
    resolved = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, server.port)) for one in ("127.0.0.99", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: resolved)
    with connect_tcp("server.example", server.port, local_address=("127.0.0.77", 0)) as client:
        assert client.local_address == "127.0.0.77"
        assert client.bind_raw(ECHO).call_raw(ANSWER, b"x") == b"x"


def test_nothing_is_left_open(server: EchoServer) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = descriptors()
    for _ in range(3):
        with connect_tcp("127.0.0.1", server.port) as client:
            client.bind_raw(ECHO).call_raw(ANSWER, b"")
    until(lambda: descriptors() <= before)
