"""Clients of RPC and DCOM that know the protocol and break it at a point that the seed chooses.

Some have an account, some have none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

from lanner.com.client.calls import Calls
from lanner.com.client.client import ClientSettings, ComClient, RemoteInterface
from lanner.com.client.connections import Address
from lanner.com.constants import IID_IDISPATCH, IID_IUNKNOWN
from lanner.com.interfaces import (
    COMPLEX_PING,
    IOBJECTEXPORTER,
    REM_ADD_REF,
    REM_RELEASE,
    RESOLVE_OXID,
    RESOLVE_OXID2,
    SERVER_ALIVE,
    SERVER_ALIVE2,
    SIMPLE_PING,
    RemInterfaceRef,
)
from lanner.com.known_classes import CLASSES
from lanner.com.objects import ComError
from lanner.model.errors import LannerError
from lanner.rpc.async_client import BoundInterface, RpcClient, connect_tcp
from lanner.rpc.faults import RpcConnectionError, RpcFault
from lanner.rpc.interface import Method
from lanner.rpc.ndr import Value
from lanner.rpc.pdu import AuthLevel, AuthType
from lanner.rpc.security import Credentials, SecurityError
from lanner.services.interfaces.lanner import LANNER, LANNER_CALL, LANNER_OPEN_SESSION, pack_frame
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqqp import QM2QM
from tests.adversity.com_world import RECEIVE, SEND, RecordedCalls, Script
from tests.adversity.rpc_mutator import SERVED, Mutator, calls, corpus, stub_of
from tests.adversity.served import PASSWORD, Served
from tests.adversity.test_rpc_fuzz import Holder

ENEMY: Final = "mallory"
PATIENCE: Final = 10.0  # seconds, for what should take none
# A call that is wrong may be one that waits for a message.
MOMENT: Final = 0.05  # seconds
_ORPCTHIS_SIZE: Final = 32
# Those that are high enough more often.
_LEVELS: Final = (AuthLevel.CONNECT, AuthLevel.PKT, *[AuthLevel.PKT_INTEGRITY] * 2, *[AuthLevel.PKT_PRIVACY] * 4)
_ENDED: Final = (RpcConnectionError, SecurityError, OSError, TimeoutError)
_NAME: Final = r"DIRECT=OS:.\private$\q"
# Requests of a session of Lanner's own interface, in an order that makes sense.
_REQUESTS: Final[tuple[dict[str, Any], ...]] = (
    {"request": "open", "queue": 1, "name": _NAME, "access": "receive"},
    {"request": "open", "queue": 2, "name": _NAME, "access": "send"},
    {"request": "open", "queue": 3, "name": r"DIRECT=OS:.\private$\secret", "access": "receive"},
    {"request": "send", "queue": 2, "messages": [{"size": 2, "label": "x"}]},
    {"request": "open cursor", "queue": 1, "cursor": 1},
    {"request": "peek", "queue": 1, "timeout": 0, "cursor": 1},
    {"request": "begin", "identifier": "6f1c0f3e-4a1c-4a55-9b0c-0a0a0a0a0a0a"},
    {"request": "receive", "queue": 1, "read": 5, "timeout": 0, "count": 2},
    {"request": "end", "reads": [5], "remove": True},
    {"request": "attributes", "name": _NAME},
    {"request": "access", "name": r"DIRECT=OS:.\private$\secret"},
    {"request": "change access", "name": r"DIRECT=OS:.\private$\secret", "change": {"grant": {ENEMY: ["full"]}}},
    {"request": "delete queue", "name": r"DIRECT=OS:.\private$\secret"},
    {"request": "purge", "queue": 3},
    {"request": "move", "queue": 1, "target": 2, "lookup_ids": [1]},
)


class Enemy:
    """One attacker; what it does depends on the seed and its number alone."""

    def __init__(self, victim: Served, seed: int, number: int) -> None:
        self.victim = victim
        self.mutator = Mutator(f"{seed}.{number}")
        self.chance = self.mutator.chance
        self.number = number
        self.calls = 0

    @property
    def _source(self) -> str:
        return f"127.{200 + self.number % 40}.{self.number // 40 % 250}.{1 + self.number // 10_000 % 250}"

    async def attack(self) -> None:
        """Do harm in one of four ways."""
        way = self.chance.choice((self.raw, self.sequence, self.sequence, self.sequence, self.objects))
        with contextlib.suppress(*_ENDED, RpcFault, ComError, LannerError):
            await way()

    def _port(self) -> int:
        return self.victim.port(self.chance.choice(("rpc", "remote read", "endpoint mapper", "com")))

    # PDUs of nobody
    # ----------------------------------------------------------------------------------------------

    async def raw(self) -> None:
        """Say a recorded conversation wrong, in pieces, on any port."""
        sessions = _corpus()
        data = self.mutator.session(self.chance.choice(sessions), sessions)
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.bind((self._source, 0))
            async with asyncio.timeout(PATIENCE):
                await loop.sock_connect(connection, (self.victim.address, self._port()))
                with contextlib.suppress(OSError):
                    for start in range(0, len(data), 700):
                        await loop.sock_sendall(connection, data[start : start + 700])
                    connection.shutdown(socket.SHUT_WR)
                with contextlib.suppress(ConnectionError):
                    while await loop.sock_recv(connection, 1 << 16):
                        pass
        self.calls += 1

    # Sequences of calls
    # ----------------------------------------------------------------------------------------------

    async def sequence(self) -> None:
        """Bind, log on, alter the context and call: first correctly, then wrongly.

        The wrong calls use open handles.
        """
        chance = self.chance
        credentials = Credentials(ENEMY, PASSWORD) if chance.random() < 0.7 else None
        if chance.random() < 0.05:
            credentials = Credentials("nobody", "wrong")
        client = await connect_tcp(
            self.victim.address,
            self.victim.port(chance.choice(("rpc", "remote read", "endpoint mapper"))),
            credentials=credentials,
            auth_type=chance.choice((AuthType.WINNT, AuthType.GSS_NEGOTIATE)),
            level=chance.choice(_LEVELS),
            local_address=(self._source, 0),
        )
        async with client:
            await self._use(client)

    async def _use(self, client: RpcClient) -> None:
        chance = self.chance
        holder = Holder(client)
        interfaces = list(SERVED)
        chance.shuffle(interfaces)
        for interface in interfaces:
            async with asyncio.timeout(PATIENCE):
                holder.bound[interface] = await client.bind(interface)
        with contextlib.suppress(RpcFault, AssertionError, KeyError):
            # Without rights nothing opens, and the rest goes on without handles.
            await holder.open()
        await self._own_interface(holder.bound[LANNER])
        samples, request_ids = calls(), iter(range(2, 10_000))
        for _ in range(chance.choice((5, 20, 40))):
            interface, opnum, arguments = chance.choice(samples)
            method = interface.method(opnum)
            assert method is not None
            if interface in (QM2QM, QMCOMM, QMCOMM2):
                with contextlib.suppress(KeyError):
                    arguments = holder.arguments(method, arguments, next(request_ids))
            stub = stub_of(interface, opnum, arguments)
            if chance.random() < 0.75:
                stub = self.mutator.octets(stub)
            await self._call(holder.bound[interface], opnum if chance.random() < 0.97 else chance.randrange(40), stub)
            if chance.random() < 0.03:
                # Something that is no PDU, or one in the wrong place: the connection ends, or it
                # does not.
                self._say(client, self.mutator.pdu(chance.choice(chance.choice(_corpus()))))

    def _say(self, client: RpcClient, octets: bytes) -> None:
        transport = client._transport
        if transport is not None and not transport.is_closing():
            transport.write(octets)

    async def _call(self, bound: BoundInterface, opnum: int, stub: bytes) -> bytes:
        self.calls += 1
        with contextlib.suppress(RpcFault, TimeoutError):
            async with asyncio.timeout(MOMENT if self.chance.random() < 0.9 else 0.5):
                return await bound.call_raw(opnum, stub)
        return b""

    async def _own_interface(self, bound: BoundInterface) -> None:
        """A session of Lanner's own interface: documents that are right, and then are not."""
        session = (await bound.call(LANNER_OPEN_SESSION)).get("session")
        for document in self._documents():
            frame = pack_frame(document, b"hi")
            if self.chance.random() < 0.3:
                frame = self.mutator.octets(frame)
            arguments: dict[str, Value] = {"session": session, "size": len(frame), "request": frame}
            await self._call(bound, LANNER_CALL.opnum, LANNER_CALL.encode_request(arguments))

    def _documents(self) -> Iterator[dict[str, Any]]:
        chance = self.chance
        for document in _REQUESTS[: chance.randrange(len(_REQUESTS) + 1)]:
            changed = dict(document)
            if chance.random() < 0.4:
                key = chance.choice(list(changed))
                values: tuple[Any, ...] = (
                    None,
                    -1,
                    0,
                    1 << 70,
                    1.5,
                    "",
                    "x" * 5000,
                    [],
                    [None],
                    {},
                    {"a": {}},
                    True,
                    "\ud800",
                )
                changed[key] = chance.choice(values)
            yield changed

    # Objects
    # ----------------------------------------------------------------------------------------------

    async def objects(self) -> None:
        """Activate, use, query and release objects well; then send the same calls wrong."""
        credentials = Credentials(ENEMY, PASSWORD) if self.chance.random() < 0.85 else None
        settings = ClientSettings(resolver_port=self.victim.port("endpoint mapper"), call_timeout=PATIENCE)
        client = ComClient(settings, credentials=credentials, local_address=self._source)
        async with client:
            calls = client.calls
            client.calls = recorder = RecordedCalls(client)
            with contextlib.suppress(ComError, RpcFault):
                await ordinary_work(HostScript(client, self.victim.address))
            await self._resolver(client, recorder)
            if recorder.recorded:
                await self._wrong_calls(calls, recorder)

    async def _wrong_calls(self, calls: Calls, recorder: RecordedCalls) -> None:
        chance = self.chance
        for _ in range(chance.choice((10, 40))):
            exporter, iid, ipid, opnum, stub = chance.choice(recorder.recorded)
            start = 0 if chance.random() < 0.1 else _ORPCTHIS_SIZE
            changed = stub[:start] + self.mutator.octets(stub[start:])
            opnum = opnum if chance.random() < 0.95 else chance.randrange(100)
            self.calls += 1
            with contextlib.suppress(ComError, TimeoutError):
                async with asyncio.timeout(MOMENT):
                    await calls.request(exporter, iid, ipid, opnum, changed)

    async def _resolver(self, client: ComClient, recorder: RecordedCalls) -> None:
        """Ping valid and invalid sets and exporters, and references that do not exist."""
        chance, address = self.chance, Address(self.victim.address, client.settings.resolver_port)
        oxids = [exporter.oxid for exporter, *_ in recorder.recorded] + [0, chance.getrandbits(64)]
        resolve = {"p_oxid": chance.choice(oxids), "c_requested_protseqs": 1, "ar_requested_protseqs": (7,)}
        ping = {
            "p_set_id": chance.choice((0, 1, chance.getrandbits(64))),
            "sequence_num": chance.getrandbits(16),
            "c_add_to_set": 1,
            "c_del_from_set": 0,
            "add_to_set": (chance.getrandbits(64),),
            "del_from_set": None,
        }
        samples: list[tuple[Method, dict[str, Value]]] = [
            (SERVER_ALIVE, {}),
            (SERVER_ALIVE2, {}),
            (RESOLVE_OXID, resolve),
            (RESOLVE_OXID2, resolve),
            (SIMPLE_PING, {"p_set_id": chance.getrandbits(64)}),
            (COMPLEX_PING, ping),
        ]
        async with asyncio.timeout(PATIENCE):
            for _ in range(6):
                method, arguments = chance.choice(samples)
                with contextlib.suppress(ComError):
                    await client.calls.ask(address, AuthLevel.PKT_INTEGRITY, IOBJECTEXPORTER, method, arguments)
                self.calls += 1
            for exporter, _, ipid, _, _ in recorder.recorded[:1]:
                many = RemInterfaceRef(ipid, chance.getrandbits(32), chance.getrandbits(32))
                for method in (REM_ADD_REF, REM_RELEASE):
                    if chance.random() < 0.3:
                        arguments = {"c_interface_refs": 1, "interface_refs": (many,)}
                        with contextlib.suppress(ComError):
                            await client.calls.call_rem_unknown(exporter, method, arguments)


class HostScript(Script):
    """A program that uses the objects of another computer."""

    def __init__(self, client: ComClient, host: str) -> None:
        super().__init__(client)
        self._host = host

    async def create(self, name: str) -> RemoteInterface:
        made = await self.client.activate(self._host, CLASSES[f"MSMQ.{name}"], IID_IDISPATCH)
        self.kept.append(made)
        return made


async def ordinary_work(script: Script) -> None:
    """Use objects as a program does that may read and write the queue."""
    info = await script.prepare()
    await info.query_interface(IID_IUNKNOWN)
    sending = await script.call(info, "Open", SEND, 0)
    message = await script.create("MSMQMessage")
    await script.put(message, "Label", "label")
    for body in (5, 1.5, b"octets", "text"):
        await script.put(message, "Body", body)
    await script.put(message, "ResponseQueueInfo", info)
    await script.call(message, "Send", sending, 0)
    reading = await script.call(info, "Open", RECEIVE, 0)
    await script.call(reading, "Receive", ReceiveTimeout=0)
    await script.call(reading, "Close")
    await script.call(sending, "Close")
    dispenser = await script.create("MSMQTransactionDispenser")
    await script.call(await script.call(dispenser, "BeginTransaction"), "Abort")
    application = await script.create("MSMQApplication")
    await script.call(application, "MachineNameOfMachineId", "{00000000-0000-0000-0000-000000000001}")


_SESSIONS: list[list[bytes]] = []


def _corpus() -> list[list[bytes]]:
    """Made once: authentication takes time."""
    if not _SESSIONS:
        _SESSIONS.extend(corpus())
    return _SESSIONS
