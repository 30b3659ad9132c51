"""Wireshark's dissectors read the traffic between Lanner's server and two clients.

Nothing is malformed, and they decrypt sealed stubs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lanner.rpc.async_client import connect_tcp
from lanner.rpc.faults import RpcConnectionError, RpcFault
from lanner.rpc.pdu import AuthLevel, AuthType, PacketType, SyntaxId, pack_empty
from lanner.rpc.security import Credentials
from tests.interop.peers import ROOT, rpc_server
from tests.interop.rpc_server import DOMAIN, ECHO, PASSWORD, USER
from tests.interop.wireshark import CANNOT, capture_is_missing, captured, shown
from tests.rpc.loops import run

ADDRESS = "127.0.0.37"
DATA = bytes(range(256)) * 80  # 20 KB: four fragments
SECRET = b"what is sealed shows nowhere"
# tshark 4.0 takes a sealed stub of less than 15 octets for malformed, also where it has just opened
# it: some of its guesses about what is inside read beyond the end. Our server and our clients fill
# such stubs up to 16 octets, all but those of no octets.
MALFORMED = "_ws.malformed && !(dcerpc.auth_level == 6 && dcerpc.cn_alloc_hint < 15)"
# What peers send on purpose: smbtorture's scanner calls operations of netlogon and of the endpoint
# mapper with octets that mean nothing, and a test of Samba's calls operation 65535 of the
# management interface.
ON_PURPOSE = {"127.0.0.36": 12, "127.0.0.35": 1}
LEVELS = {
    "none": AuthLevel.NONE,
    "integrity": AuthLevel.PKT_INTEGRITY,
    "privacy": AuthLevel.PKT_PRIVACY,
}


async def ours(port: int, level: AuthLevel, auth_type: AuthType) -> None:
    """Call the server with Lanner's own client in many ways.

    The calls cover fragments both ways, concurrency, a fault, alter_context, cancels, and a
    rejected interface.
    """
    credentials = None if level is AuthLevel.NONE else Credentials(USER, PASSWORD, DOMAIN)
    async with await connect_tcp(ADDRESS, port, credentials=credentials, auth_type=auth_type, level=level) as client:
        echo = await client.bind_raw(ECHO)
        assert await asyncio.gather(*(echo.call_raw(opnum, DATA) for opnum in (0, 1, 0))) == [DATA] * 3
        assert await echo.call_raw(0, SECRET) == SECRET
        assert await echo.call_raw(0, b"", UUID(int=7)) == b""
        with pytest.raises(RpcFault):
            await echo.call_raw(99, b"")
        # The cancels of a call that is over have no effect.
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
    """Send a wrong password, and a bind to an association that does not exist."""
    wrong = Credentials(USER, "wrong", DOMAIN)
    async with await connect_tcp(ADDRESS, port, credentials=wrong) as client:
        echo = await client.bind_raw(ECHO)
        with pytest.raises(RpcFault):
            await echo.call_raw(0, b"")
    async with await connect_tcp(ADDRESS, port, assoc_group_id=0x0BAD) as client:
        with pytest.raises(RpcConnectionError):
            await client.bind_raw(ECHO)


def check(path: Path, port: int, *expected: PacketType) -> None:
    """Nothing is malformed, nothing was left out, and all that was sealed could be opened."""
    assert shown(path, f"({MALFORMED}) || dcerpc.fragment.error || dcerpc.fragment.overlap", port=port) == []
    kinds = Counter(
        PacketType(int(kind))
        for line in shown(path, "dcerpc", "dcerpc.pkt_type", port=port)
        for kind in line.split(",")
    )
    assert set(expected) <= kinds.keys(), kinds
    # What is no DCE/RPC at all would not be looked at above.
    other = "!dcerpc && !tcp.reassembled_in && !tcp.analysis.retransmission"
    assert shown(path, f"tcp.port == {port} && tcp.len > 0 && {other}", port=port) == []
    # What a dissector took over was opened, too.
    closed = "dcerpc.encrypted_stub_data && !dcerpc.decrypted_stub_data && !epm && !mgmt"
    assert shown(path, f"{closed} && dcerpc.cn_alloc_hint > 0", port=port) == []


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_between_server_and_clients_is_malformed(tmp_path: Path, level: str) -> None:
    path = tmp_path / "capture.pcapng"
    with rpc_server(tmp_path, ADDRESS) as port:
        with captured(path, f"tcp port {port}"):
            run(ours(port, LEVELS[level], AuthType.WINNT))
            impacket_client(port, LEVELS[level])
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
        is_sealed = bool(shown(path, "dcerpc.encrypted_stub_data", "frame.number", port=port))
        assert is_sealed == (level == "privacy")
        assert (SECRET in path.read_bytes()) == (not is_sealed)


def test_nothing_is_malformed_around_spnego_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcapng"
    with rpc_server(tmp_path, ADDRESS) as port:
        with captured(path, f"tcp port {port}"):
            run(ours(port, AuthLevel.PKT_INTEGRITY, AuthType.GSS_NEGOTIATE))
            run(refused(port))
        check(path, port, PacketType.BIND_NAK, PacketType.FAULT, PacketType.ALTER_CONTEXT_RESP)


@pytest.mark.timeout(600)
def test_nothing_of_the_whole_run_is_malformed_but_what_peers_send_on_purpose(tmp_path: Path) -> None:
    """All other RPC tests of this folder run again in a network of their own.

    The dissectors judge all the traffic.
    """
    missing = capture_is_missing()
    if missing is not None:
        pytest.skip(missing)
    own_network = [shutil.which("unshare") or "unshare", "--net"]
    try:
        subprocess.run([*own_network, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a network of its own takes root")
    path = tmp_path / "capture.pcapng"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "tests/interop"]
    # The tests of COM have a capture of their own; those of foreign clients use COM, too.
    tests += [f"--ignore={Path(__file__).relative_to(ROOT)}", "--ignore-glob=*/test_com_*"]
    # So do those of MS-MQRR, which seal everything and skip a client that is not here.
    tests += ["--ignore-glob=*/test_foreign_clients.py", "--ignore-glob=*/test_mqrr_foreign.py"]
    tests += [f"--basetemp={tmp_path / 'tests'}"]
    ran = subprocess.run(
        [*own_network, sys.executable, "-m", "tests.interop.wireshark", str(path), *tests],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode == CANNOT:
        pytest.skip(ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    if "skipped" in ran.stdout:
        pytest.skip(f"not everything ran: {ran.stdout}")
    answers = "dcerpc.pkt_type in {2, 3, 12, 13, 15}"
    assert shown(path, f"({MALFORMED}) && {answers}") == [], "of our server"
    malformed = shown(path, MALFORMED)
    assert Counter(shown(path, MALFORMED, "ip.dst")) == ON_PURPOSE, "\n".join(malformed)
    # It was the whole run.
    assert len(shown(path, answers, "frame.number")) > 2000
