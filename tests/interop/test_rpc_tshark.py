"""Wireshark's dissectors look at what goes over the wire between our server and two clients: nothing is malformed, sealed stubs open."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.rpc.client import connect_tcp
from lanner.rpc.faults import RpcConnectionError, RpcFault
from lanner.rpc.pdu import AuthLevel, AuthType, PacketType, SyntaxId, pack_empty
from lanner.rpc.security import Credentials
from tests.interop.peers import rpc_server
from tests.interop.rpc_server import DOMAIN, ECHO, PASSWORD, USER
from tests.rpc.loops import run

ADDRESS = "127.0.0.37"
DATA = bytes(range(256)) * 80  # 20 KB: four fragments
SECRET = b"what is sealed shows nowhere"
LAST = b"this is the last thing that was captured"
LEVELS = {
    "none": AuthLevel.NONE,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}
_PATIENCE = 20.0  # seconds


@contextmanager
def captured(path: Path, port: int) -> Iterator[None]:
    """Everything on a port while the block runs; it ends with LAST."""
    dumpcap = shutil.which("dumpcap", path="/usr/bin:/usr/sbin:/bin")
    if dumpcap is None or shutil.which("tshark") is None:
        pytest.skip("the Debian package tshark is not installed")
    command = [dumpcap, "-q", "-i", "lo", "-f", f"tcp port {port}", "-w", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("File:"):
                break
        else:
            pytest.skip(f"nobody may capture on the loopback interface here: {' '.join(''.join(said).split())}")
        yield
        end = time.monotonic() + _PATIENCE
        while LAST not in path.read_bytes():
            assert time.monotonic() < end, "the capture does not get to its end"
            time.sleep(0.02)
    finally:
        process.terminate()
        process.wait(_PATIENCE)
        process.stderr.close()


def shown(path: Path, port: int, filter_: str, *fields: str) -> list[str]:
    """A line for every frame that a display filter lets through."""
    command = ["tshark", "-r", str(path), "-d", f"tcp.port=={port},dcerpc", "-o", f"ntlmssp.nt_password:{PASSWORD}"]
    command += ["-Y", filter_]
    if fields:
        command += ["-T", "fields", *(part for field in fields for part in ("-e", field))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


async def ours(port: int, level: AuthLevel, auth_type: AuthType) -> None:
    """Fragments both ways, several calls at once, a fault, alter_context, cancels, a refused interface."""
    credentials = None if level is AuthLevel.NONE else Credentials(USER, PASSWORD, DOMAIN)
    async with await connect_tcp(ADDRESS, port, credentials=credentials, auth_type=auth_type, level=level) as client:
        echo = await client.bind_raw(ECHO)
        assert await asyncio.gather(*(echo.call_raw(opnum, DATA) for opnum in (0, 1, 0))) == [DATA] * 3
        assert await echo.call_raw(0, SECRET) == SECRET
        assert await echo.call_raw(0, b"", UUID(int=7)) == b""
        with pytest.raises(RpcFault):
            await echo.call_raw(99, b"")
        # The cancels of a call that is over, which nobody minds.
        assert client._transport is not None
        client._transport.write(pack_empty(PacketType.CO_CANCEL, 2) + pack_empty(PacketType.ORPHANED, 2))
        with pytest.raises(RpcConnectionError):
            await client.bind_raw(SyntaxId(UUID(int=1), 1))
        assert await echo.call_raw(0, DATA) == DATA


def impacket_client(port: int, level: AuthLevel) -> None:
    transport = pytest.importorskip("impacket.dcerpc.v5.transport", reason="impacket is not installed")
    rpcrt = pytest.importorskip("impacket.dcerpc.v5.rpcrt")
    epm = pytest.importorskip("impacket.dcerpc.v5.epm")
    mgmt = pytest.importorskip("impacket.dcerpc.v5.mgmt")

    @contextmanager
    def connected() -> Iterator[Any]:
        found = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{ADDRESS}[{port}]")
        found.set_credentials(USER, PASSWORD, DOMAIN)
        rpc = found.get_dce_rpc()
        rpc.set_auth_level(int(level))
        rpc.connect()
        yield rpc
        rpc.disconnect()

    with connected() as rpc:
        rpc.bind(mgmt.MSRPC_UUID_MGMT)
        assert mgmt.hinq_if_ids(rpc)["if_id_vector"]["count"] == 3
        other = rpc.alter_ctx(ECHO.pack())
        other.call(0, DATA)
        assert other.recv() == DATA
        other.call(9, b"")
        with pytest.raises(rpcrt.DCERPCException):
            other.recv()
    with connected() as rpc:
        assert epm.hept_lookup(None, dce=rpc)
    with connected() as rpc:
        assert epm.hept_map(ADDRESS, ECHO.pack(), protocol="ncacn_ip_tcp", dce=rpc)


async def refused(port: int) -> None:
    """Somebody with a wrong password, and a bind to an association that is not there."""
    wrong = Credentials(USER, "wrong", DOMAIN)
    async with await connect_tcp(ADDRESS, port, credentials=wrong) as client:
        echo = await client.bind_raw(ECHO)
        with pytest.raises(RpcFault):
            await echo.call_raw(0, b"")
    async with await connect_tcp(ADDRESS, port, assoc_group_id=0x0BAD) as client:
        with pytest.raises(RpcConnectionError):
            await client.bind_raw(ECHO)


async def last(port: int) -> None:
    async with await connect_tcp(ADDRESS, port) as client:
        assert await (await client.bind_raw(ECHO)).call_raw(0, LAST) == LAST


def check(path: Path, port: int, *expected: PacketType) -> None:
    """Nothing is malformed, nothing was left out, and all that was sealed could be opened."""
    # tshark 4.0 takes a sealed stub of no octets for malformed, whoever sent it.
    malformed = "(_ws.malformed && !(dcerpc.auth_level == 6 && dcerpc.cn_alloc_hint == 0))"
    assert shown(path, port, f"{malformed} || dcerpc.fragment.error || dcerpc.fragment.overlap") == []
    kinds = Counter(
        PacketType(int(kind)) for line in shown(path, port, "dcerpc", "dcerpc.pkt_type") for kind in line.split(",")
    )
    assert set(expected) <= kinds.keys(), kinds
    # What is no DCE/RPC at all would not be looked at above.
    assert shown(path, port, f"tcp.port == {port} && tcp.len > 0 && !dcerpc && !tcp.reassembled_in") == []
    # What a dissector took over was opened, too.
    closed = "dcerpc.encrypted_stub_data && !dcerpc.decrypted_stub_data && !epm && !mgmt"
    assert shown(path, port, f"{closed} && dcerpc.cn_alloc_hint > 0") == []


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_between_server_and_clients_is_malformed(tmp_path: Path, level: str) -> None:
    path = tmp_path / "capture.pcapng"
    with rpc_server(tmp_path, ADDRESS) as port:
        with captured(path, port):
            run(ours(port, LEVELS[level], AuthType.WINNT))
            impacket_client(port, LEVELS[level])
            run(last(port))
        expected = {
            PacketType.BIND,
            PacketType.BIND_ACK,
            PacketType.ALTER_CONTEXT,
            PacketType.ALTER_CONTEXT_RESP,
            PacketType.REQUEST,
            PacketType.RESPONSE,
            PacketType.FAULT,
            PacketType.CO_CANCEL,
            PacketType.ORPHANED,
        }
        if level != "none":
            expected.add(PacketType.AUTH3)
        check(path, port, *expected)
        is_sealed = bool(shown(path, port, "dcerpc.encrypted_stub_data", "frame.number"))
        assert is_sealed == (level == "privacy")
        assert (SECRET in path.read_bytes()) == (not is_sealed)


def test_nothing_is_malformed_around_spnego_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with rpc_server(tmp_path, ADDRESS) as port:
        with captured(path, port):
            run(ours(port, AuthLevel.PKT_INTEGRITY, AuthType.GSS_NEGOTIATE))
            run(refused(port))
            run(last(port))
        check(path, port, PacketType.BIND_NAK, PacketType.FAULT, PacketType.ALTER_CONTEXT_RESP)
