"""Processor time of the server for calls of impacket, a foreign RPC client.

    python -m bench.foreign [--source DIRECTORY ...] [--count N] [--rounds N]

impacket runs in a process of its own, against `lanner serve`. Each `--source` is the `src`
directory of a version of Lanner to serve with; without one, that of the working tree. The versions
take turns. RPC and NTLM are impacket's. The request stubs are encoded once, before the clock
starts; `tests/services` shows that impacket encodes the same octets.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench.machine import facts
from bench.peers.process import PeerError
from bench.report import print_rows
from bench.service import Service, cpu_of
from bench.service_clients import PASSWORD, USER
from bench.workload import BODY
from lanner.model.enums import DeliveryGuarantee
from lanner.rpc.interface import RETURNS, Interface, Method
from lanner.rpc.ndr import Pointed, Value
from lanner.services.interfaces import mqmp, mqqp
from lanner.services.ports import HANDSHAKE_PORT, READ_PORT
from lanner.services.queue_client_buffers import receive_buffer, send_buffer
from lanner.services.queue_client_receiving import MQ_ACTION_RECEIVE
from lanner.services.queue_formats import queue_format_of
from lanner.wire.builder import MessageProperties
from lanner.wire.format_name import parse
from lanner.wire.identifiers import MessageIdentifier

# impacket has no type annotations.
Peer: TypeAlias = Any

LEVELS = {"integrity": 5, "privacy": 6}
CLIENT_ID = uuid.UUID("be4c0000-0000-4000-8000-000000000002")
RECEIVE_ACCESS, SEND_ACCESS = 1, 2
COUNT, ROUNDS, WARM_UP = 2000, 5, 50
HERE = Path(__file__).parent.parent / "src"


@dataclass(frozen=True, slots=True)
class Target:
    """The server address, the authentication level and the queue of a client."""

    address: str
    level: int
    name: str


# The client, in its own process
# -----------------------------------------------------------------------------------------


class Foreign:
    """A connection made by impacket."""

    def __init__(self, target: Target, port: int) -> None:
        transport: Peer = importlib.import_module("impacket.dcerpc.v5.transport")
        self._uuid: Peer = importlib.import_module("impacket.uuid")
        channel = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{target.address}[{port}]")
        channel.set_credentials(USER, PASSWORD, "MQ")
        self._rpc = channel.get_dce_rpc()
        self._rpc.set_auth_level(target.level)
        self._rpc.connect()
        self._bound: dict[str, Peer] = {}

    def _bind(self, interface: Interface) -> Peer:
        if interface.name not in self._bound:
            version = "{}.{}".format(*interface.version)
            identifier = self._uuid.uuidtup_to_bin((str(interface.uuid), version))
            if self._bound:
                self._bound[interface.name] = self._rpc.alter_ctx(identifier)
            else:
                self._rpc.bind(identifier)
                self._bound[interface.name] = self._rpc
        return self._bound[interface.name]

    def raw(self, interface: Interface, opnum: int) -> Callable[[bytes], bytes]:
        """Return a function that calls a method with an encoded request."""
        rpc = self._bind(interface)

        def call(stub: bytes) -> bytes:
            rpc.call(opnum, stub)
            answer: bytes = rpc.recv()
            return answer

        return call

    def call(self, interface: Interface, method: Method, **arguments: Value) -> dict[str, Value]:
        answer = self.raw(interface, method.opnum)(method.encode_request(arguments))
        results = method.decode_response(answer, arguments)
        if results[RETURNS]:
            raise RuntimeError(f"{method.name} returned {results[RETURNS]:#010x}")
        return results


def _open(client: Foreign, name: str, access: int) -> dict[str, Value]:
    return client.call(
        mqmp.QMCOMM,
        mqmp.RPC_QM_OPEN_QUEUE_INTERNAL,
        p_queue_format=queue_format_of(parse(name)),
        dw_desired_access=access,
        dw_share_mode=0,
        h_remote_queue=0,
        lplp_remote_queue_name=Pointed(None),
        dwp_queue=0,
        p_lic_guid=CLIENT_ID,
        lp_client_name="bench",
        dw_remote_protocol=0,
        dwp_remote_context=0,
    )


def _checked(answer: bytes) -> None:
    """Raise RuntimeError unless the HRESULT at the end of an answer is zero."""
    (status,) = struct.unpack("<I", answer[-4:])
    if status:
        raise RuntimeError(f"a call returned {status:#010x}")


def sends(target: Target, guarantee: DeliveryGuarantee) -> Callable[[], None]:
    """Return a function that makes one call of rpc_ACSendMessageEx (MS-MQMP) per message."""
    client = Foreign(target, HANDSHAKE_PORT)
    opened = _open(client, target.name, SEND_ACCESS)
    method = mqmp.RPC_AC_SEND_MESSAGE_EX
    buffer = send_buffer(MessageProperties(body=BODY, label="label", delivery_guarantee=guarantee))
    null = MessageIdentifier(uuid.UUID(int=0), 0)
    stub = method.encode_request({"h_queue": opened["ph_queue"], "ptb": buffer, "p_message_id": null})
    call = client.raw(mqmp.QMCOMM2, method.opnum)
    return lambda: _checked(call(stub))


def receives(target: Target) -> Callable[[], None]:
    """Return a function that makes one call of rpc_ACReceiveMessageEx (MS-MQMP) per message.

    The buffers have room for what travels in both directions.
    """
    client = Foreign(target, HANDSHAKE_PORT)
    opened = _open(client, target.name, RECEIVE_ACCESS)
    method = mqmp.RPC_AC_RECEIVE_MESSAGE_EX
    buffer = receive_buffer(action=MQ_ACTION_RECEIVE, timeout=0, body_size=len(BODY))
    stub = method.encode_request({"h_qm_context": opened["pdw_qm_context"], "ptb": buffer})
    call = client.raw(mqmp.QMCOMM2, method.opnum)
    return lambda: _checked(call(stub))


def reads(target: Target) -> Callable[[], None]:
    """Return a function that receives by RemoteQMStartReceive2 and RemoteQMEndReceive (MS-MQQP).

    That takes two calls for each message.
    """
    client = Foreign(target, READ_PORT)
    opened = client.call(
        mqmp.QMCOMM,
        mqmp.R_QM_OPEN_REMOTE_QUEUE,
        p_queue_format=queue_format_of(parse(target.name)),
        dw_calling_process_id=0,
        dw_desired_access=RECEIVE_ACCESS,
        dw_share_mode=0,
        p_lic_guid=CLIENT_ID,
        dw_mqs=0,
    )
    handle = opened["ph_queue"]
    client.call(
        mqqp.QM2QM,
        mqqp.REMOTE_QM_OPEN_QUEUE,
        p_lic_guid=CLIENT_ID,
        dw_mqs=0,
        h_queue=handle,
        p_queue=handle,
        dwp_context=handle,
    )
    desc = mqqp.RemoteReadDesc(handle, 0, 0, 0, 0, handle, 1, 0, 0, 0, None)
    stub = mqqp.REMOTE_QM_START_RECEIVE2.encode_request({"lp_remote_read_desc2": mqqp.RemoteReadDesc2(desc, 0)})
    start = client.raw(mqqp.QM2QM, mqqp.REMOTE_QM_START_RECEIVE2.opnum)
    end = client.raw(mqqp.QM2QM, mqqp.REMOTE_QM_END_RECEIVE.opnum)
    taken = struct.pack("<I", mqqp.RemoteReadAck.RR_ACK)

    def read() -> None:
        message = start(stub)
        _checked(message)
        _checked(end(message[:20] + taken))

    return read


KINDS: dict[str, Callable[[Target], Callable[[], None]]] = {
    "MS-MQMP send, recoverable": lambda target: sends(target, DeliveryGuarantee.RECOVERABLE),
    "MS-MQMP send, express": lambda target: sends(target, DeliveryGuarantee.EXPRESS),
    "MS-MQMP receive, recoverable": receives,
    "MS-MQQP read, recoverable": reads,
}


def run_client(kind: str, target: Target, count: int) -> None:
    """Warm up, report that, and start when a line arrives."""
    work = KINDS[kind](target)
    for _ in range(WARM_UP):
        work()
    for word in ("ready", "done"):
        print(word, flush=True)
        sys.stdin.readline()
        for _ in range(count if word == "ready" else 0):
            work()


# The server, and what is measured
# ---------------------------------------------------------------------------------------


def measure(service: Service, address: str, kind: str, level: str, count: int) -> float:
    """Return the server's processor time per message in microseconds."""
    name = service.queue(0 if "send" in kind else count + WARM_UP)
    words = [sys.executable, "-m", "bench.foreign", "--client", kind, address, level, f"DIRECT=OS:{name}", str(count)]
    spent: list[float] = []
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise PeerError("there are no pipes")
        for _ in ("ready", "done"):
            if not process.stdout.readline():
                raise PeerError(f"{kind} at level {level} failed")
            spent.append(cpu_of(service.server.process.pid))
            process.stdin.write("go\n")
            process.stdin.flush()
    return (spent[1] - spent[0]) / count * 1e6


def compare(arguments: argparse.Namespace, directory: Path) -> None:
    """Serve all versions at once, measure them in turn, and print the best rounds.

    Other work on the machine disturbs the best rounds least.
    """
    figures: dict[tuple[str, str], list[list[float]]] = {}
    with ExitStack() as stack:
        services: list[tuple[Service, str]] = []
        for index, source in enumerate(arguments.source):
            address = f"127.67.{os.getpid() >> 8 & 0xFF}.{index + 1}"
            place = directory / str(index)
            place.mkdir()
            service = Service(place, address=address, source=source)
            stack.callback(service.close)
            services.append((service, address))
        for _ in range(arguments.rounds):
            for kind in arguments.only or KINDS:
                for level in LEVELS:
                    row = figures.setdefault((kind, level), [[] for _ in services])
                    for (service, address), column in zip(services, row, strict=True):
                        column.append(measure(service, address, kind, level, arguments.count))
    for name, fact in facts(directory).items():
        print(f"- {name}: {fact}")
    print()
    head = ["server, us for each message", *(str(source) for source in arguments.source), "last / first"]
    rows = [head]
    for (kind, level), row in figures.items():
        best = [min(column) for column in row]
        rows.append([f"{kind}, {level}", *(f"{each:.0f}" for each in best), f"{best[-1] / best[0]:.2f}"])
    print_rows(rows, sys.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.foreign", description="Server time of a foreign client's calls."
    )
    parser.add_argument("--source", type=Path, action="append", help="the src of a version; this one by default")
    parser.add_argument("--count", type=int, default=COUNT, help="messages of a round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="+", choices=KINDS)
    parser.add_argument("--directory", type=Path, default=Path("/dev/shm"), help="a file system in memory")
    parser.add_argument("--client", nargs=5, metavar="WORD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        kind, address, level, name, count = arguments.client
        run_client(kind, Target(address, LEVELS[level], name), int(count))
        return
    # So that the servers are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    arguments.source = [each.resolve() for each in arguments.source or [HERE]]
    directory = Path(tempfile.mkdtemp(prefix="lanner-foreign-", dir=arguments.directory))
    try:
        compare(arguments, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
