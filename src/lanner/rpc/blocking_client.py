"""The RPC client for threads (MS-RPCE 3.3.2). `async_client` has the same names for asyncio.

    with connect_tcp("127.0.0.1", 2103, credentials=Credentials("alice", "secret")) as client:
        bound = client.bind(QMMGMT)
        results = bound.call(R_QM_MGMT_ACTION, p_object_format=..., lpwsz_action=...)

Any number of threads share a client, each with one call under way. There is no thread for reading:

- One of the waiting threads is the *leader*. It alone waits for the socket, reads it, and passes
  every answer to the thread that waits for it. When its own answer has arrived, it passes on the
  lead.
- The others are *followers*. Each sleeps on a lock of its own until its answer is there, or until
  the lead is free.
- Every thread writes its own request, as far as the socket accepts it without blocking. The leader
  writes the rest while it reads, so that a client and a server that both have much to send cannot
  wait for each other. A follower whose request does not fit wakes the leader through an eventfd.

`_lock` guards the core, the socket's two directions and all fields below it. It is never held while
a thread waits. The bytes that the core produces are queued under the same lock, so that they are
sent in the order of their signatures.

A signal handler may raise an exception at any point of the main thread. While that thread waits,
the exception abandons its call and nothing else. If the thread is in the middle of a PDU, the
exception ends the connection, because it is unknown how much of that PDU was signed, sent or read
(`_exchange`). The main thread therefore leads only if no other thread can; then an exception
interrupts at most its own requests.
CPython runs no handler between the acquisition of a built-in lock by `with` and the first call in
its block, so this module uses no other kinds of locks.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from uuid import UUID

from lanner.model.errors import LannerError, RemoteProtocolError
from lanner.rpc import client_shared
from lanner.rpc.client_connection import Answered, Bound, ClientConnection, ClientEvent, Failed
from lanner.rpc.faults import RpcConnectionError
from lanner.rpc.frames import Entry
from lanner.rpc.interface import Interface, Method
from lanner.rpc.liveness import notice_death
from lanner.rpc.ndr import Syntax, Value
from lanner.rpc.pdu import NDR20, AuthLevel, AuthType, SyntaxId
from lanner.rpc.security import Credentials, SecurityError

_READ_SIZE: Final = 0x0004_0000
_TIMEVAL: Final = struct.Struct("ll")
# The outcome of a call or bind; None until it is known.
_Outcome = Bound | Answered | Entry | LannerError | None


class BoundInterface:
    """An interface on a connection."""

    def __init__(self, client: RpcClient, bound: Bound) -> None:
        self._client = client
        self._bound = bound
        self._syntax = client_shared.accepted(bound)

    def call(self, method: Method, object_uuid: UUID | None = None, /, **arguments: Value) -> dict[str, Value]:
        """Return the out parameters of a call, and its return value under "returns".

        Raises RpcFault if the call fails. An exception that a signal handler raises in the waiting
        thread abandons the call on the server.
        """
        stub = method.encode_request(arguments, self._syntax)
        answer = self._client.request(self._bound.context_id, method.opnum, stub, object_uuid)
        return client_shared.decoded(method, answer, arguments, self._syntax)

    def call_raw(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> bytes:
        return self.request(opnum, stub, object_uuid).stub

    def request(self, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        """Call like `call_raw`, and return the stub with its byte order."""
        return self._client.request(self._bound.context_id, opnum, stub, object_uuid)


class _Wait:
    """One thread's wait for the answer to its call or bind."""

    __slots__ = ("call_id", "entry", "is_main", "outcome", "turn")

    def __init__(self) -> None:
        self.call_id: int | None = None
        self.entry: int | None = None
        self.outcome: _Outcome = None
        # Whether the waiting thread is the main thread, which signal handlers can interrupt.
        self.is_main = False
        # Held while the thread follows; released to wake it.
        self.turn: threading.Lock


class Posted(NamedTuple):
    """An entry that was sent, and the wait for its answer."""

    number: int
    wait: _Wait


class RpcClient:
    """A connection to a server, for any number of interfaces, threads and concurrent calls."""

    def __init__(self, connected: socket.socket, core: ClientConnection) -> None:
        connected.setblocking(False)
        self._process = os.getpid()
        name = connected.getsockname()
        self._local_address = str(name[0]) if isinstance(name, tuple) else ""
        # Reentrant, because a signal handler may call `close` and `is_open`.
        self._binding_lock = threading.RLock()
        self._lock = threading.RLock()
        self._core = core
        self._socket = connected
        self._bell = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        # Whether the leader's poll includes POLLOUT.
        self._awaits_room = False
        self._unsent: deque[memoryview] = deque()
        self._calls: dict[int, _Wait] = {}
        self._entries: dict[int, _Wait] = {}
        self._binding: _Wait | None = None
        self._leader: _Wait | None = None
        # The threads that wait, in the order in which they get the lead.
        self._followers: dict[_Wait, None] = {}
        # Identifiers of the threads that have a call under way.
        self._callers: set[int] = set()
        self._error: LannerError | None = None

    @property
    def assoc_group_id(self) -> int:
        """The id that another connection passes to share the context handles of this one."""
        return self._core.assoc_group_id

    @property
    def is_open(self) -> bool:
        """Whether a call can still be sent."""
        if self._error is not None or self._process != os.getpid():
            return False
        caller = threading.get_ident()
        with self._lock:
            if self._leader is None and caller not in self._callers:
                # No thread watches the socket of an idle connection; the server may have closed it.
                try:
                    self._callers.add(caller)
                    self._exchange(self._receive)
                finally:
                    self._callers.discard(caller)
            return self._error is None

    @property
    def local_address(self) -> str:
        """The client's own address; empty on a Unix socket."""
        return self._local_address

    def bind(self, interface: Interface, syntaxes: tuple[Syntax, ...] | None = None) -> BoundInterface:
        return self.bind_raw(*client_shared.proposed(interface, syntaxes))

    def bind_raw(self, interface: SyntaxId, transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20,)) -> BoundInterface:
        """Bind an interface.

        Only one bind at a time is under way; other threads wait for their turn.
        """
        client_shared.check_process(self._process)
        wait = _Wait()

        def ask() -> None:
            self._binding = wait
            self._core.bind(interface, transfer_syntaxes)

        with self._binding_lock:
            if self._binding is not None and self._binding.outcome is None:
                # Its caller was interrupted. A bind cannot be abandoned: the server answers it
                # first.
                self._perform(self._binding, None)
            outcome = self._perform(wait, ask)
        if isinstance(outcome, Bound):
            return BoundInterface(self, outcome)
        raise _failure(outcome)

    def request(self, context_id: int, opnum: int, stub: bytes, object_uuid: UUID | None = None) -> Answered:
        client_shared.check_process(self._process)
        wait = _Wait()

        def ask() -> None:
            call_id = self._core.request(context_id, opnum, stub, object_uuid)
            wait.call_id = call_id
            self._calls[call_id] = wait

        outcome = self._perform(wait, ask)
        if isinstance(outcome, Answered):
            return outcome
        raise _failure(outcome)

    def begin_frames(self, keys: bytes) -> None:
        """Begin to exchange frames beside PDUs. `keys` come from the answer to a call."""
        with self._lock:
            self._core.begin_frames(keys)

    def put(self, kind: int, *parts: bytes) -> Posted:
        """Queue an entry. It is sent in the frame of the next one that is posted."""
        return self._post(kind, parts)

    def post(self, kind: int, *parts: bytes) -> Posted:
        """Send an entry of a frame. Entries that the socket has no room for go into one frame."""
        return self._post(kind, parts, self._send)

    def _post(self, kind: int, parts: tuple[bytes, ...], *steps: Callable[[], None]) -> Posted:
        client_shared.check_process(self._process)
        caller = threading.get_ident()
        self._check_caller(caller)
        wait = _Wait()
        wait.is_main = caller == threading.main_thread().ident

        def ask() -> None:
            number = self._core.post(kind, parts)
            wait.entry = number
            self._entries[number] = wait

        try:
            self._callers.add(caller)
            with self._lock:
                if self._error is not None:
                    raise RpcConnectionError(str(self._error)) from self._error
                self._exchange(ask, *steps)
        finally:
            self._callers.discard(caller)
        # If an exchange failed, it has ended the connection, and `answer` raises the error.
        return Posted(wait.entry or 0, wait)

    def tell(self, kind: int, *parts: bytes) -> None:
        """Queue an entry that has no answer. It is sent with the next entry that has one."""
        with self._lock:
            self._core.tell(kind, parts)

    def answer(self, posted: Posted) -> Entry:
        """Wait for the answer to an entry. Raises RpcConnectionError if the connection ends."""
        outcome = posted.wait.outcome
        if outcome is None:
            outcome = self._perform(posted.wait, None)
        if isinstance(outcome, Entry):
            return outcome
        raise _failure(outcome)

    def forget(self, posted: Posted) -> None:
        """Drop the answer to an entry when it arrives."""
        self._abandon(posted.wait)

    def close(self) -> None:
        """End the connection. Calls under way in other threads raise RpcConnectionError."""
        if self._process != os.getpid():
            # The connection belongs to the process that made it. In a forked process, a lock may
            # stay held for ever, so take none.
            self._socket.close()
            self._bell.close()
            return
        with self._lock:
            self._fail(client_shared.closed())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self.close()

    # Waiting
    # ----------------------------------------------------------------------------------------------

    def _perform(self, wait: _Wait, ask: Callable[[], None] | None) -> _Outcome:
        """Pass a request to the core, wait, and return the outcome."""
        caller = threading.get_ident()
        self._check_caller(caller)
        wait.is_main = caller == threading.main_thread().ident
        try:
            self._callers.add(caller)
            with self._lock:
                if self._error is not None:
                    raise RpcConnectionError(str(self._error)) from self._error
                if ask is not None:
                    self._exchange(ask, self._send)
            self._until_answered(wait)
        except BaseException:
            self._abandon(wait)
            raise
        finally:
            try:
                self._leave(wait)
            except BaseException:
                # A signal handler has interrupted this, too; the other threads would wait for ever.
                self._leave(wait)
                raise
            finally:
                self._callers.discard(caller)
        return wait.outcome

    def _check_caller(self, caller: int) -> None:
        if caller in self._callers:
            # The thread may be the leader, which can neither continue nor be replaced.
            raise RuntimeError("a signal handler or finalizer cannot make a call on a connection that it interrupts")

    def _until_answered(self, wait: _Wait) -> None:
        while True:
            with self._lock:
                if wait.outcome is not None:
                    return
                if self._error is not None:
                    raise client_shared.repeated(self._error)
                leads = self._takes_lead(wait)
                if leads:
                    self._awaits_room = False
                    self._poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
                    self._awaits_room = bool(self._unsent)
                else:
                    wait.turn = threading.Lock()
                    wait.turn.acquire()
                    self._followers[wait] = None
            if not leads:
                # Acquired once `_wake` has released it; never released here.
                wait.turn.acquire()
                continue
            ready = dict(self._poll.poll())
            with self._lock:
                if ready.pop(self._bell.fileno(), 0):
                    os.eventfd_read(self._bell.fileno())
                if ready and self._error is None:
                    self._exchange(partial(self._transfer, *ready.values()))

    def _takes_lead(self, wait: _Wait) -> bool:
        """Decide whether a thread leads or follows, and ensure that some thread leads."""
        if wait.is_main and self._followers and self._leader in (None, wait):
            # The followers are other threads, which no signal handler interrupts.
            self._leader = None
            self._offer_lead()
            return False
        if self._leader is None:
            self._leader = wait
        elif self._leader.is_main and not wait.is_main:
            self._ring()
        return self._leader is wait

    def _offer_lead(self) -> None:
        """Wake the oldest follower; the main thread only if there is no other follower."""
        self._wake(min(self._followers, key=attrgetter("is_main")))

    def _leave(self, wait: _Wait) -> None:
        """Pass on the lead, or an offer of it that was not used, after a wait. Idempotent."""
        with self._lock:
            if self._leader is wait:
                self._leader = None
            self._followers.pop(wait, None)
            if self._leader is not None:
                return
            if self._error is not None:
                self._release()
            elif self._followers:
                self._offer_lead()

    def _wake(self, wait: _Wait) -> None:
        if wait in self._followers:
            del self._followers[wait]
            wait.turn.release()

    def _ring(self) -> None:
        """Wake the leader from its poll, to check everything again."""
        os.eventfd_write(self._bell.fileno(), 1)

    def _abandon(self, wait: _Wait) -> None:
        """Notify the server that the answer to a call is no longer needed.

        The leader, or the next call, sends what the socket does not accept at once.
        """
        with self._lock:
            if wait.entry is not None:
                self._entries.pop(wait.entry, None)
            call_id = wait.call_id
            if call_id is not None and self._calls.pop(call_id, None) is not None:
                self._exchange(lambda: self._core.abandon(call_id), self._send)

    # Exchanging bytes; the lock must be held

    def _exchange(self, *steps: Callable[[], None]) -> None:
        """Run steps that change the core or move bytes. Any failure ends the connection."""
        try:
            for step in steps:
                step()
        except (RemoteProtocolError, SecurityError, RpcConnectionError) as error:
            self._fail(error)
        except OSError as error:
            self._fail(client_shared.connection_failed(error))
        except BaseException as error:
            self._fail(client_shared.broken_off(error))
            raise

    def _transfer(self, happened: int) -> None:
        """Receive and send according to the result of the leader's poll."""
        if happened & ~select.POLLOUT:
            self._receive()
        if happened & select.POLLOUT:
            self._send()

    def _send(self) -> None:
        while True:
            if not self._unsent:
                # Fetch data only now, so that entries queued while the socket was full share a
                # frame.
                data = self._core.data_to_send()
                if not data:
                    break
                self._unsent.append(memoryview(data))
            first = self._unsent[0]
            try:
                sent = self._socket.send(first, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            if sent == len(first):
                self._unsent.popleft()
            else:
                self._unsent[0] = first[sent:]
        if self._unsent and self._leader is not None and not self._awaits_room:
            self._ring()

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_READ_SIZE)
        except BlockingIOError:
            return
        if not data:
            raise client_shared.hung_up()
        events = self._core.receive(data)
        # The last leg of authentication may have to be sent before the bind is complete.
        self._send()
        for event in events:
            self._happened(event)

    def _happened(self, event: ClientEvent) -> None:
        match event:
            case Entry():
                self._answer(self._entries.pop(event.number, None), event)
            case Bound():
                self._answer(self._binding, event)
            case Answered():
                self._answer(self._calls.pop(event.call_id, None), event)
            case Failed():
                self._answer(self._calls.pop(event.call_id, self._binding), event.error)

    def _answer(self, wait: _Wait | None, outcome: _Outcome) -> None:
        if wait is not None and wait.outcome is None:
            wait.outcome = outcome
            self._wake(wait)

    def _fail(self, error: LannerError) -> None:
        """End the connection, and every call on it, with the first error."""
        if self._error is None:
            self._error = error
        waits = [*self._calls.values(), *self._entries.values(), *([] if self._binding is None else [self._binding])]
        self._calls.clear()
        self._entries.clear()
        for wait in waits:
            self._answer(wait, client_shared.repeated(self._error))
        # This wakes the leader. Its poll needs the descriptor, so the leader closes it when it
        # leaves.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._leader is None:
            self._release()

    def _release(self) -> None:
        self._socket.close()
        self._bell.close()


def _failure(outcome: _Outcome) -> LannerError:
    if isinstance(outcome, LannerError):
        return outcome
    return RpcConnectionError("the server's answer to a call or a bind is of the wrong kind")


# Connecting
# --------------------------------------------------------------------------------------------------


def connect_tcp(
    host: str,
    port: int,
    *,
    credentials: Credentials | None = None,
    auth_type: AuthType = AuthType.WINNT,
    level: AuthLevel = AuthLevel.PKT_PRIVACY,
    assoc_group_id: int = 0,
    local_address: tuple[str, int] | None = None,
    timeout: float | None = None,
) -> RpcClient:
    """Connect to a server. Without credentials, no level of authentication is used.

    Raises OSError if connecting fails, TimeoutError after `timeout` seconds. The time that the
    resolver needs for a name is not limited.
    """
    core = client_shared.tcp_core(host, port, credentials, auth_type, level, assoc_group_id)
    connected = _connected(host, port, local_address, timeout)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_death(connected)
    return RpcClient(connected, core)


def _connected(host: str, port: int, local_address: tuple[str, int] | None, timeout: float | None) -> socket.socket:
    """Connect to the first address of a host that accepts, within `timeout` seconds in total."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    deadline = None if timeout is None else time.monotonic() + timeout
    errors: list[OSError] = []
    for family, kind, protocol, _, address in addresses:
        connected = socket.socket(family, kind, protocol)
        try:
            if local_address is not None:
                connected.bind(local_address)
            # A timeout of zero would mean not to wait at all.
            connected.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            connected.connect(address)
        except OSError as error:
            connected.close()
            if isinstance(error, TimeoutError) and error.errno is None:
                # This is the socket's own timeout. A timeout of TCP has an errno.
                raise client_shared.connect_timed_out(f"{host} port {port}", timeout) from error
            errors.append(error)
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise errors[0]


def connect_unix(path: Path, *, assoc_group_id: int = 0, timeout: float | None = None) -> RpcClient:
    """Connect to a server on this machine, which identifies the client by its uid.

    Raises the same errors as `connect_tcp`.
    """
    core = client_shared.unix_core(path, assoc_group_id)
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if timeout is not None:
            # A non-blocking Unix socket would fail at once while the server's backlog is full.
            limit = max(int(timeout * 1_000_000), 1)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(*divmod(limit, 1_000_000)))
        connected.connect(str(path))
    except BlockingIOError as error:
        connected.close()
        raise client_shared.connect_timed_out(str(path), timeout) from error
    except BaseException:
        connected.close()
        raise
    return RpcClient(connected, core)


def connect_socket(connected: socket.socket, peer: str) -> RpcClient:
    """Use a socket that is connected to a server. `peer` names the server in texts."""
    return RpcClient(connected, client_shared.unix_core(Path(peer), 0))
