"""A socket of a server and its connection: the client's identity, flow control, waiting calls.

A client may send many calls at once. The server stops reading from it while its connection has the
maximum number of running calls, and while it does not read its answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import stat
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from lanner.host.accepting import local_user
from lanner.host.turns import TURN, turns_of_loop
from lanner.model.errors import RemoteProtocolError
from lanner.rpc.calls import CallCancelled, Event, ServerCall
from lanner.rpc.connection import ServerConnection
from lanner.rpc.liveness import notice_death
from lanner.rpc.pdu import AuthLevel, SyntaxId
from lanner.rpc.unix_path import short_path
from lanner.security.identity import ANONYMOUS, Identity
from lanner.security.log_lines import log_of_peer
from lanner.store.data_directory import give_to_owner

if TYPE_CHECKING:
    from lanner.host.budget import Pass
    from lanner.host.strangers import Strangers
    from lanner.rpc.server import RpcServer, ServedInterface

_LOG = logging.getLogger(__name__)

# The size of unsent answers beyond which the server stops reading from a client, until the client
# has read them.
_WRITE_HIGH_WATER: Final = 1 << 20
# The same limit, for clients that have not logged on.
_HIGH_WATER_OF_STRANGERS: Final = 1 << 16
# The number of calls that are started before the next check of whether the client reads its
# answers.
_CALLS_AT_ONCE: Final = 16
# Small fragments have no advantage on a Unix socket.
_LOCAL_FRAGMENT: Final = 0xFFF8


_numbers: Final = itertools.count(1)


class ServerSocket(asyncio.Protocol):
    """A socket, and the RPC connection that uses it."""

    def __init__(
        self,
        server: RpcServer,
        granted: Pass,
        strangers: Strangers[ServerSocket],
        *,
        is_local: bool = False,
        only: SyntaxId | None = None,
    ) -> None:
        """Serve a new socket. `strangers`: those of its listener.

        `only`: the single interface of a socket through which users log on.
        """
        self._only = only
        self._server = server
        # The number of the connection, and its beginning in seconds since 1970. Both are for
        # display.
        self.number = next(_numbers)
        self.since = time.time()
        self.granted = granted
        self.strangers = strangers
        self.is_local = is_local
        self.peer = "local" if is_local else ""
        self._core: ServerConnection | None = None
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[ServerCall, asyncio.Task[None]] = {}
        # A timer that runs until the bind and the logon that it begins, and then while no user has
        # logged on.
        self._timer: asyncio.TimerHandle | None = None
        self._is_new = True
        # Whether data has arrived since the timer was last checked.
        self._was_heard = True
        # A timer that runs while calls that were read cannot start, until an earlier call ends or
        # the timer ends.
        self._busy: asyncio.TimerHandle | None = None
        # A timer that runs while a logon has to wait because of earlier wrong passwords.
        self._delayed: asyncio.TimerHandle | None = None
        # Whether the client does not read its answers.
        self._is_choked = False
        # Whether reading is paused, for one of these reasons.
        self._is_held = False
        # Whether it has the limit of unsent bytes of clients that have logged on.
        self._has_high_water = False
        # Whether a flush is scheduled.
        self._is_flushing = False
        # Whether waiting calls and frames continue in the next turn of the event loop.
        self._has_turn = False
        self._turns = turns_of_loop()
        # Bytes of an incomplete request.
        self._unfinished = 0
        # The socket of a TCP connection.
        self._tcp: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        identity: Identity = ANONYMOUS
        level = AuthLevel.NONE
        local_address = ""
        limits = self._server.limits.connection
        connected: socket.socket = transport.get_extra_info("socket")
        if self.is_local:
            uid = local_user(connected)
            # The kernel identifies the peer, and no one else can read or change the data.
            level = AuthLevel.PKT_PRIVACY
            if self._server.users is not None:
                identity = self._server.users.unix_identity(uid)
            self.peer = f"uid {uid}"
            identity = identity.at(f"lanner.sock {self.peer}")
            endpoint = str(transport.get_extra_info("sockname") or "")
            limits = replace(limits, max_fragment=_LOCAL_FRAGMENT)
        elif self._only is not None:
            # The socket is one end of a pair that this process made. The program at the other end
            # does not identify its users.
            level = AuthLevel.PKT_PRIVACY
            self.peer = endpoint = self.granted.peer
            limits = replace(limits, max_fragment=_LOCAL_FRAGMENT)
        else:
            peername = transport.get_extra_info("peername")
            self.peer = peername[0] if peername else ""
            identity = identity.at(self.peer)
            local_address, port = transport.get_extra_info("sockname")[:2]
            endpoint = str(port)
            notice_death(connected)
            self._tcp = connected
        self._server.admit(self)
        self._has_high_water = self.is_local
        transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER if self.is_local else _HIGH_WATER_OF_STRANGERS)
        self._core = ServerConnection(
            self._find_interface,
            self._server.groups,
            self._server.providers if self._only is None else None,
            peer=self.peer,
            secondary_address=endpoint,
            local_address=local_address,
            identity=identity,
            auth_level=level,
            limits=limits,
            logons=None if self.is_local else self._server.logons,
            needs_log_on=self._only is not None,
        )
        self._core.flush_soon = self._flush_soon
        self._core.hang_up = self.abort
        self._timer = asyncio.get_running_loop().call_later(self._server.limits.bind_timeout, self._is_overdue)

    def _find_interface(self, syntax: SyntaxId) -> ServedInterface | None:
        if self._only is not None and syntax.uuid != self._only.uuid:
            return None
        return self._server.find_interface(syntax)

    def _is_overdue(self) -> None:
        text = "%s: no bind within %g s"
        log_of_peer(_LOG, logging.INFO, "no bind", self.peer, text, self.peer, self._server.limits.bind_timeout)
        self.abort()

    def _watch_idle(self) -> None:
        """Close a connection that has bound and has sent nothing since.

        Connections with a logon or a handle stay open.
        """
        core, limits = self._core, self._server.limits
        self._timer = None
        if core is None or self.is_local or core.is_authenticated:
            return
        if self._was_heard or core.outstanding_calls or core.has_handles:
            self._was_heard = False
            self._timer = asyncio.get_running_loop().call_later(limits.idle_timeout, self._watch_idle)
            return
        log_of_peer(_LOG, logging.INFO, "idle", self.peer, "%s: no call within %g s", self.peer, limits.idle_timeout)
        self.abort()

    @property
    def user(self) -> str:
        """The name of the client's user."""
        return "" if self._core is None else self._core.user

    @property
    def address(self) -> str:
        """The address of the client's user."""
        return self.peer if self._core is None else self._core.address

    @property
    def identities(self) -> list[Identity]:
        """The identities that the client has shown."""
        return [] if self._core is None else self._core.identities

    @property
    def is_known(self) -> bool:
        """Whether the client has logged on, or holds a handle.

        Local users are always known: the kernel identifies them.
        """
        core = self._core
        return self.is_local or (core is not None and (core.is_authenticated or core.has_handles))

    @property
    def is_logged_on(self) -> bool:
        """Whether the client's user is known."""
        return self.is_local or (self._core is not None and self._core.is_authenticated)

    # Reading
    # ----------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._server.statistics.packets_in += 1
        self._was_heard = True
        self._take(data)

    def _take(self, data: bytes, *, refuse: bool = False) -> None:
        """Handle new data, and data that was left from before.

        `refuse`: refuse calls beyond the limit, instead of keeping them.
        """
        core = self._core
        if core is None:
            return
        if self._delayed is not None:
            # Reading is paused, but the event loop may have read this data before.
            core.keep(data)
            return
        user, begun = self._payer, time.monotonic()
        if not refuse and not self._turns.has_time(user):
            # Other connections of this user have had the turn.
            core.keep(data)
            core.has_more = True
            self._turn_soon()
            self._set_pace(core)
            return
        try:
            self._work(core, data, refuse=refuse)
        finally:
            self._turns.spend(user, time.monotonic() - begun)

    @property
    def _payer(self) -> str:
        """The user whose turn a connection takes; of strangers, the address."""
        core = self._core
        return core.user if core is not None and self.is_logged_on else self.granted.peer

    def _work(self, core: ServerConnection, data: bytes, *, refuse: bool) -> None:
        room = self._server.limits.connection.max_calls - core.outstanding_calls
        end = time.monotonic() + TURN
        while True:
            try:
                events = core.receive(data, None if refuse else min(room, _CALLS_AT_ONCE))
            except Exception:  # noqa: BLE001 (our bug: logged, and only this connection ends)
                text = "%s: what it sent was not understood"
                log_of_peer(_LOG, logging.ERROR, "not understood", self.peer, text, self.peer, exc_info=True)
                self.abort()
                return
            if not self._has_high_water and core.is_authenticated and self._transport is not None:
                self._has_high_water = True
                self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER)
            self._handle(events)
            if core.stream is not None and not self._handle_frames(core):
                return
            self._flush()
            if core.delay:
                self._delayed = asyncio.get_running_loop().call_later(core.delay, self._go_on)
            if core.is_behind:
                # The other connections get their turn. If the client does not read its answers, it
                # waits for that.
                core.has_more = True
                if not self._is_choked:
                    self._turn_soon()
                break
            if not core.has_more:
                break
            if time.monotonic() > end and not refuse:
                self._turn_soon()
                break
            room = self._server.limits.connection.max_calls - core.outstanding_calls
            if room <= 0 or self._is_choked:
                break
            data = b""
        if self._is_new and core.is_bound and not core.is_logging_on:
            self._is_new = False
            if self._timer is not None:
                self._timer.cancel()
            self._watch_idle()
            self._server.bound(self)
        if core.unfinished != self._unfinished:
            self._unfinished = core.unfinished
            self._server.unfinished(self, self._unfinished, is_known=self.is_local or core.is_authenticated)
            if self._unfinished and self._tcp is not None:
                # Nothing is sent before the request is complete, so the kernel would delay the
                # acknowledgment by 40 ms. A client that sends each fragment by itself, with Nagle's
                # algorithm, waits for it. The option lasts for this acknowledgment only.
                with suppress(OSError):
                    self._tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        if core.has_more or self._delayed is not None or self._is_held:
            self._set_pace(core)

    def _go_on(self) -> None:
        """Continue after the wait of a logon."""
        self._delayed = None
        self._take(b"")

    def _turn_soon(self) -> None:
        """Continue after the other connections had their turn."""
        if not self._has_turn:
            self._has_turn = True
            self._turns.wait(self._payer, self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        if not self._is_choked:
            self._take(b"")

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is ServerCall:
                task = self._server.dispatch(event, self._answered)
                if task is not None:
                    self._tasks[event] = task
                    task.add_done_callback(partial(self._done, event))
            elif type(event) is CallCancelled:
                waiting = self._tasks.get(event.call)
                if waiting is not None:
                    cancel_soon(waiting)

    def _handle_frames(self, core: ServerConnection) -> bool:
        """Pass received frames to the stream. Return whether the connection can continue."""
        contents = [] if core.frames is None else core.frames.received()
        if core.stream is None or not (contents or (core.stream.is_behind and not self._is_choked)):
            return True
        try:
            core.stream.frames_received(contents)
        except RemoteProtocolError as error:
            log_of_peer(_LOG, logging.INFO, "closed", self.peer, "%s: %s", self.peer, error)
            self.abort()
            return False
        except Exception:  # noqa: BLE001 (our bug: logged, and only this connection ends)
            text = "%s: a frame could not be handled"
            log_of_peer(_LOG, logging.ERROR, "not understood", self.peer, text, self.peer, exc_info=True)
            self.abort()
            return False
        return True

    def _set_pace(self, core: ServerConnection) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_full = core.has_more and not self._is_choked and not self._has_turn
        if is_full and self._busy is None:
            self._busy = asyncio.get_running_loop().call_later(self._server.limits.busy_timeout, self._is_busy_for_long)
        elif not is_full and self._busy is not None:
            self._busy.cancel()
            self._busy = None
        is_held = core.has_more or self._is_choked or self._delayed is not None
        if is_held and not self._is_held:
            transport.pause_reading()
        elif self._is_held and not is_held:
            transport.resume_reading()
        self._is_held = is_held

    def _is_busy_for_long(self) -> None:
        """Refuse the calls beyond the limit, after waiting for a while.

        The running calls may wait for something that comes after these, such as a cancel.
        """
        self._busy = None
        self._take(b"", refuse=True)

    def _done(self, call: ServerCall, task: asyncio.Task[None]) -> None:
        del task
        del self._tasks[call]
        self._answered()

    def _answered(self) -> None:
        """Send the answer to a call that had to wait, and continue with later calls."""
        self._flush()
        if self._core is not None and self._core.has_more and not self._is_choked and not self._has_turn:
            self._take(b"")

    # Writing
    # ----------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Send the entries of the stream, including those that it adds before this runs."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        core, transport = self._core, self._transport
        if core is None or transport is None:
            return
        data = core.data_to_send()
        if data:
            self._server.statistics.packets_out += 1
            transport.write(data)
            if self._is_choked:
                self._server.limit_unsent()
        if core.is_closed:
            transport.close()

    @property
    def unsent(self) -> int:
        """The number of bytes that the client has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self._is_choked = True
        self._server.choked[self] = None
        if self._core is not None:
            self._set_pace(self._core)

    def resume_writing(self) -> None:
        self._is_choked = False
        self._server.choked.pop(self, None)
        self._take(b"")

    # The end
    # ----------------------------------------------------------------------------------------------

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        for timer in (self._timer, self._busy, self._delayed):
            if timer is not None:
                timer.cancel()
        self._timer = self._busy = self._delayed = None
        self.granted.give_back()
        self._server.forget(self)
        for task in self._tasks.values():
            cancel_soon(task)
        if self._core is not None:
            self._core.close()
            self._core = None
        self._transport = None


def cancel_soon(task: asyncio.Task[None]) -> None:
    """Cancel a task in the next turn of the loop.

    If it were cancelled at once, a task that has not begun would end without its own clean-up.
    """
    asyncio.get_running_loop().call_soon(task.cancel)


def bind_unix(listening: socket.socket, path: Path, mode: int) -> None:
    """Bind a Unix socket, with the file mode `mode`. A socket left at the path is replaced."""
    with short_path(path) as short:
        short.unlink(missing_ok=True)
        listening.bind(str(short))
        # No client can connect before the socket listens. The mode is set through a descriptor,
        # because the owner of the directory could have put a link in its place.
        bound = os.open(short, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if stat.S_ISSOCK(os.fstat(bound).st_mode):
                Path(f"/proc/self/fd/{bound}").chmod(mode)
        finally:
            os.close(bound)
        give_to_owner(path)
