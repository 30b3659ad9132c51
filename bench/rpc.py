"""Remote reads and management queries over RPC, against a minimal echo in Python.

    python -m bench.rpc ADDRESS PORT

runs the echo. Its frames state their own size and the size of the answer. Requests and answers are
as large as the PDUs of the calls without authentication; nothing is decoded, looked up or written
to disk.
"""

from __future__ import annotations

import asyncio
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import uvloop

from bench.floor import PACKET
from bench.nodes import Node
from bench.report import Figures
from bench.workload import BODY, percentiles
from lanner.client._async.remote_reader import RemoteReader
from lanner.client.target import Target
from lanner.rpc.async_client import RpcClient, connect_tcp, connect_unix
from lanner.rpc.interface import RETURNS
from lanner.rpc.ndr import Pointed
from lanner.rpc.security import Credentials
from lanner.services.interfaces import mqmp, mqmr, mqqp
from lanner.services.interfaces.mqmp import QMCOMM, QMCOMM2
from lanner.services.interfaces.mqmr import QMMGMT
from lanner.services.management_client import get_info_arguments, get_info_values
from lanner.services.ports import LOCAL_SOCKET
from lanner.services.queue_client_buffers import receive_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_RECEIVE
from lanner.services.queue_formats import queue_format_of
from lanner.wire.format_name import parse
from lanner.wire.propvariant import PropVariant
from lanner.wire.vartypes import VT

SERVER, ECHO = "127.0.0.64", "127.0.0.65"
PORT = 18020
QUEUE = r"DIRECT=OS:.\private$\remote"
CREDENTIALS = Credentials("bench", "Bench-marks-1")
CLIENT_ID = uuid.UUID("be4c0000-0000-4000-8000-000000000001")
# Number of connections, and calls in progress on each.
SHAPES = {"1 connection": (1, 1), "1 connection, 16 at once": (1, 16), "8 connections": (8, 1)}
MQQP, MQMP = "MS-MQQP", "rpc_ACReceiveMessageEx"
# R_QMMgmtGetInfo: what a monitor requests about a queue: messages and bytes in it and in its
# journal.
ASKED = (7, 8, 9, 10)

Receive = Callable[[], Awaitable[object]]
_FRAME = struct.Struct("<II")
_PDU = 24  # octets of a request or response in addition to its stub


class Remote:
    """A queue manager in a process of its own; its clients run in this one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "rpc"
        self._node = Node(self._directory, SERVER, PORT, "rpc")
        self._node.ask("create", name="remote", for_everybody=True)
        self._node.ask("user", name=CREDENTIALS.user, password=CREDENTIALS.password)

    def close(self) -> None:
        if "echo" in self.__dict__:
            self.echo.close()
        self._node.close()

    @cached_property
    def echo(self) -> Echo:
        return Echo(ECHO, PORT)

    # Receives
    # ----------------------------------------------------------------------------------------------

    def rates(
        self, kind: str, protocol: str, count: int, credentials: Credentials | None, body_size: int = len(BODY)
    ) -> Figures:
        """Return the messages/s in every shape; for the last one also microseconds per message.

        The microseconds are the processor time of both processes.
        """
        figures: Figures = {}
        for name, (connections, at_once) in SHAPES.items():
            # The queue is filled in batches of a hundred.
            self._node.ask("fill", name=QUEUE, count=count + 100, kind=kind)
            figures |= uvloop.run(
                self._receive_all(name, protocol, count, credentials, body_size, connections, at_once)
            )
            self._node.ask("drain", name=QUEUE)
        return figures

    async def _receive_all(
        self,
        name: str,
        protocol: str,
        count: int,
        credentials: Credentials | None,
        body_size: int,
        connections: int,
        at_once: int,
    ) -> Figures:
        async with AsyncExitStack() as stack:
            receivers: list[Receive] = []
            for _ in range(connections):
                if protocol == MQQP:
                    receivers.append(await self._remote_reader(stack, credentials))
                else:
                    receivers.append(await self._queue_client(stack, credentials, body_size))
            server, client, start = self._node.ask("cpu")["cpu"], time.process_time(), time.perf_counter()
            each = count // (connections * at_once)
            await asyncio.gather(*(_repeat(receive, each) for receive in receivers for _ in range(at_once)))
            seconds, client = time.perf_counter() - start, time.process_time() - client
            server = self._node.ask("cpu")["cpu"] - server
        done = each * connections * at_once
        spent = {"server us": server / done * 1e6, "client us": client / done * 1e6}
        return {name: done / seconds} | (spent if name == list(SHAPES)[-1] else {})

    async def _remote_reader(self, stack: AsyncExitStack, credentials: Credentials | None) -> Receive:
        """Return a receive by RemoteQMStartReceive2 and RemoteQMEndReceive."""
        reader = await stack.enter_async_context(
            await RemoteReader.connect(Target(SERVER, port=PORT, credentials=credentials), client_id=CLIENT_ID)
        )
        queue = await reader.open(parse(QUEUE))
        return lambda: queue.receive(0)

    async def _queue_client(self, stack: AsyncExitStack, credentials: Credentials | None, body_size: int) -> Receive:
        """Return a receive by one call, with room for a body that travels in both directions."""
        client = await stack.enter_async_context(await connect_tcp(SERVER, PORT, credentials=credentials))
        opened = await (await client.bind(QMCOMM)).call(
            mqmp.RPC_QM_OPEN_QUEUE_INTERNAL,
            p_queue_format=queue_format_of(parse(QUEUE)),
            dw_desired_access=1,
            dw_share_mode=0,
            h_remote_queue=0,
            lplp_remote_queue_name=Pointed(None),
            dwp_queue=0,
            p_lic_guid=CLIENT_ID,
            lp_client_name="bench",
            dw_remote_protocol=0,
            dwp_remote_context=0,
        )
        context = cast("int", opened["pdw_qm_context"])
        bound = await client.bind(QMCOMM2)

        async def receive() -> None:
            buffer = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=body_size)
            results = await bound.call(mqmp.RPC_AC_RECEIVE_MESSAGE_EX, h_qm_context=context, ptb=buffer)
            if results[RETURNS]:
                raise RuntimeError(f"the receive failed with {results[RETURNS]:#010x}")

        return receive

    # Queries
    # ----------------------------------------------------------------------------------------------

    def questions(self, count: int, credentials: Credentials | None) -> Figures:
        """Measure calls of R_QMMgmtGetInfo, one after the other.

        Without credentials they use the Unix socket, where the kernel identifies the caller.
        """
        return uvloop.run(self._questions(count, credentials))

    async def _questions(self, count: int, credentials: Credentials | None) -> Figures:
        async with await self._connect(credentials) as client:
            bound = await client.bind(QMMGMT)

            async def ask() -> None:
                arguments = get_info_arguments(parse(QUEUE), ASKED)
                get_info_values(await bound.call(mqmr.R_QM_MGMT_GET_INFO, **arguments))

            await ask()
            server, spent = self._node.ask("cpu")["cpu"], time.process_time()
            seconds = await _timed(ask, count)
            spent = time.process_time() - spent
            server = self._node.ask("cpu")["cpu"] - server
        return percentiles(seconds) | {"server us": server / count * 1e6, "client us": spent / count * 1e6}

    async def _connect(self, credentials: Credentials | None) -> RpcClient:
        if credentials is None:
            return await connect_unix(self._directory / LOCAL_SOCKET)
        return await connect_tcp(SERVER, PORT, credentials=credentials)


async def _repeat(receive: Receive, count: int) -> None:
    for _ in range(count):
        await receive()


async def _timed(ask: Receive, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        await ask()
        seconds.append(time.perf_counter() - start)
    return seconds


# The echo
# --------------------------------------------------------------------------------------------------


def _sizes_of_read() -> list[tuple[int, int]]:
    """Return the sizes of the requests and responses of one receive with MS-MQQP, in octets."""
    desc = mqqp.RemoteReadDesc(1, 0, 0, 0, 0, 1, 1, 0, 0, 0, None)
    message = replace(desc, dw_size=len(PACKET), lp_buffer=PACKET)
    start, end = mqqp.REMOTE_QM_START_RECEIVE2, mqqp.REMOTE_QM_END_RECEIVE
    asked: dict[str, Any] = {"lp_remote_read_desc2": mqqp.RemoteReadDesc2(desc, 0)}
    told = {"lp_remote_read_desc2": mqqp.RemoteReadDesc2(message, 0)}
    ended = {"pph_context": bytes(20), "dw_ack": 2}
    return [
        (len(start.encode_request(asked)) + _PDU, len(start.encode_response(told, asked)) + _PDU),
        (len(end.encode_request(ended)) + _PDU, len(end.encode_response({}, ended)) + _PDU),
    ]


def _sizes_of_question() -> list[tuple[int, int]]:
    method = mqmr.R_QM_MGMT_GET_INFO
    arguments = get_info_arguments(parse(QUEUE), ASKED)
    results = {"ap_var": tuple(PropVariant(VT.UI4, 0) for _ in ASKED), RETURNS: 0}
    return [(len(method.encode_request(arguments)) + _PDU, len(method.encode_response(results, arguments)) + _PDU)]


class _Echo(asyncio.Protocol):
    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        while len(data) >= _FRAME.size:
            size, answer = _FRAME.unpack_from(data)
            if len(data) < size:
                break
            data = data[size:]
            self._transport.write(bytes(answer))
        self._rest = data


class _Caller(asyncio.Protocol):
    """The client protocol; answers arrive in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._came = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        while self._waiting and self._came >= self._waiting[0][0]:
            size, future = self._waiting.pop(0)
            self._came -= size
            future.set_result(None)

    async def call(self, sizes: Sequence[tuple[int, int]]) -> None:
        for size, answer in sizes:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((answer, future))
            self.transport.write(_FRAME.pack(size, answer) + bytes(size - _FRAME.size))
            await future


class Echo:
    """The echo process, and its clients."""

    def __init__(self, address: str, port: int) -> None:
        command = [sys.executable, "-m", "bench.rpc", address, str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None or not self._process.stdout.readline():
            raise RuntimeError("the echo does not start")
        self._address, self._port = address, port

    def rates(self, count: int) -> Figures:
        """Measure pairs of round trips as large as those of a receive with MS-MQQP."""
        return {name: uvloop.run(self._rate(count, *shape)) for name, shape in SHAPES.items()}

    async def _rate(self, count: int, connections: int, at_once: int) -> float:
        callers = [await self._connect() for _ in range(connections)]
        sizes = _sizes_of_read()
        each = count // (connections * at_once)
        start = time.perf_counter()
        await asyncio.gather(
            *(_repeat(lambda c=caller: c.call(sizes), each) for caller in callers for _ in range(at_once))  # type: ignore[misc]
        )
        rate = each * connections * at_once / (time.perf_counter() - start)
        for caller in callers:
            caller.transport.close()
        return rate

    def latency(self, count: int) -> Figures:
        """Measure round trips as large as those of R_QMMgmtGetInfo."""
        return percentiles(uvloop.run(self._latency(count)))

    async def _latency(self, count: int) -> list[float]:
        caller, sizes = await self._connect(), _sizes_of_question()
        seconds = await _timed(lambda: caller.call(sizes), count)
        caller.transport.close()
        return seconds

    async def _connect(self) -> _Caller:
        _, caller = await asyncio.get_running_loop().create_connection(_Caller, self._address, self._port)
        return caller

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


async def _serve(address: str, port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, address, port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
