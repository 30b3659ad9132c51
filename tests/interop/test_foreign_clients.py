"""Unmodified clients of other implementations against `lanner serve` with default settings.

The tests check which client gets what at which level. A user reads and queries at integrity and
privacy (MS-MQMP, MS-MQQP, MC-MQAC). An administrator manages (MS-MQMR) at privacy, and is rejected
at integrity. Every port comes from the endpoint mapper at 135; that of the objects comes from
activation, which is there too.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lanner.wire.message import Message
from tests.adversity.served import ADMINISTRATOR, PASSWORD, Served
from tests.interop import impacket_stubs
from tests.interop.com_impacket import Peer as ComPeer
from tests.interop.impacket_stubs import QM2QM, QMCOMM, QMMGMT
from tests.interop.peers import SYSTEM_PYTHON, needs_endpoint_mapper_port, needs_system_samba, smb_conf
from tests.interop.test_management_impacket import ACTION, ACTION_RESPONSE, fill, wide
from tests.interop.test_queue_client_impacket import Client as QueueClient
from tests.interop.test_remote_read_impacket import Client as RemoteReader
from tests.interop.test_remote_read_impacket import body_of
from tests.statuses import MQ_ERROR_ACCESS_DENIED

USER = "alice"
# The name that QueueClient knows.
QUEUE, LABEL = "made", "of foreigners"
CLSID_QUEUE_INFO = "d7d6e07c-dccd-11d0-aa4b-0060970debae"
LEVELS = {"integrity": 5, "privacy": 6}
FOLDER = Path(__file__).parent


class Site(Served):
    """A queue manager with a queue that is the user's."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        super().__init__(folder, "FOREIGN", users=(USER,), settings=settings, flight=True)
        self.smb_conf = smb_conf(folder)
        with self.manager() as manager:
            queue = manager.create_queue(rf".\private$\{QUEUE}", label=LABEL)
            queue.grant(USER, "full")

    def send(self, body: bytes) -> None:
        """Make a message the only one in the queue.

        A skipped test has left its own message there.
        """
        with self.manager() as manager:
            queue = manager.open(rf".\private$\{QUEUE}")
            queue.purge()
            queue.send(body)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    needs_endpoint_mapper_port("127.0.0.1")
    with Site(tmp_path_factory.mktemp("foreign")) as made:
        yield made
        made.check()


def output(command: list[str], environment: dict[str, str] | None = None) -> str:
    ended = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False, timeout=90
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


# go-msrpc
# --------------------------------------------------------------------------------------------------


def go_msrpc(
    site: Site, user: str, level: str, what: str, *, mechanism: str = "spnego", syntax: str = "ndr"
) -> dict[str, object]:
    """Return what the program go_msrpc_client.go saw.

    It was compiled with go-msrpc outside this test.
    """
    program = os.environ.get("LANNER_GO_MSRPC")
    if not program:
        pytest.skip("go-msrpc is not at hand: LANNER_GO_MSRPC does not name the program of go_msrpc_client.go")
    seen: dict[str, object] = json.loads(
        output([program, site.address, user, PASSWORD, level, mechanism, syntax, what, QUEUE])
    )
    return seen


SIGN_OR_SEAL = {"integrity": "sign", "privacy": "seal"}


def go_manages(site: Site, level: str) -> int:
    seen = go_msrpc(site, ADMINISTRATOR, SIGN_OR_SEAL[level], "mqmr")
    assert seen["get info"] == seen["action"]
    assert seen.get("connected") == (None if seen["action"] else "CONNECTED")
    return int(str(seen["action"]))


def go_asks(site: Site, level: str) -> None:
    go_opens(site, SIGN_OR_SEAL[level])


def go_opens(site: Site, level: str, mechanism: str = "spnego") -> None:
    name = rf"DIRECT=OS:FOREIGN\private$\{QUEUE}"
    assert go_msrpc(site, USER, level, "mqmp", mechanism=mechanism) == {
        "open": 0,
        "name": 0,
        "format name": name,
        "purge": 0,
        "close": 0,
    }


def go_reads(site: Site, level: str, mechanism: str = "spnego", syntax: str = "ndr") -> None:
    site.send(b"to go")
    seen = go_msrpc(site, USER, SIGN_OR_SEAL[level], "mqqp", mechanism=mechanism, syntax=syntax)
    assert Message(bytes.fromhex(str(seen.pop("packet")))).body == b"to go"
    assert seen == {"open remote": 0, "version": [6, 1], "open": 0, "receive": 0, "end": 0, "close": 0}


def go_uses_objects(site: Site, level: str, mechanism: str = "spnego") -> None:
    assert go_msrpc(site, USER, SIGN_OR_SEAL[level], "dcom", mechanism=mechanism) == {
        "activate": 0,
        "put": 0,
        "path name": rf"FOREIGN\private$\{QUEUE}",
        "refresh": 0,
        "label": LABEL,
    }


# impacket
# --------------------------------------------------------------------------------------------------


def impacket_manages(site: Site, level: str) -> int:
    port = impacket_stubs.mapped(site.address, QMMGMT)
    rpc = impacket_stubs.connect(port, LEVELS[level], ADMINISTRATOR, PASSWORD, site.address)
    try:
        rpc.bind(QMMGMT)
        request = ACTION()
        fill(request["pObjectFormat"], None)
        request["lpwszAction"] = wide("TIDY")
        rpc.call(1, request)
        return int(ACTION_RESPONSE(rpc.recv())["ErrorCode"])
    finally:
        rpc.disconnect()


def impacket_asks(site: Site, level: str) -> None:
    site.send(b"to impacket")
    port = impacket_stubs.mapped(site.address, QMCOMM)
    with closing(QueueClient(port, LEVELS[level], USER, PASSWORD, site.address)) as client:
        handle, context = client.open(1)
        status, message = client.receive(context, timeout=1000)
        assert (status, message and bytes(message.body)) == (0, b"to impacket")
        assert client.close_queue(handle) == 0


def impacket_reads(site: Site, level: str) -> None:
    site.send(b"to impacket")
    port = impacket_stubs.mapped(site.address, QM2QM)
    with closing(RemoteReader(port, LEVELS[level], PASSWORD, site.address)) as client:
        client.open(rf"OS:.\private$\{QUEUE}")
        read = client.start()
        assert read["ErrorCode"] == 0
        assert body_of(read["desc"]["lpBuffer"]) == b"to impacket"
        assert client.end(read["pphContext"]) == 0


def impacket_uses_objects(site: Site, level: str) -> None:
    peer = ComPeer(site.address, USER, PASSWORD, LEVELS[level])
    try:
        info = peer.create(CLSID_QUEUE_INFO)
        info.put("PathName", rf".\private$\{QUEUE}")
        info.call("Refresh")
        assert info.get("Label") == LABEL
    finally:
        peer.close()


# scapy
# --------------------------------------------------------------------------------------------------


def scapy(site: Site, user: str, level: str, what: str) -> dict[str, object]:
    if importlib.util.find_spec("msrpcs") is None:
        pytest.skip("scapy-rpc is not installed")
    command = [sys.executable, "-W", "ignore", str(FOLDER / "scapy_foreign.py"), site.address, user, PASSWORD]
    seen: dict[str, object] = json.loads(output([*command, f"PKT_{level.upper()}", what, QUEUE]))
    return seen


def scapy_manages(site: Site, level: str) -> int:
    seen = scapy(site, ADMINISTRATOR, level, "mqmr")
    status = int(str(seen["action"]))
    assert seen["get info"] == [status, "" if status else "CONNECTED"]
    return status


def scapy_asks(site: Site, level: str) -> None:
    assert scapy(site, USER, level, "mqmp") == {"open remote": 0, "registry": 0}


def scapy_reads(site: Site, level: str) -> None:
    site.send(b"to scapy")
    seen = scapy(site, USER, level, "mqqp")
    assert int(str(seen.pop("size"))) > len(b"to scapy")
    assert seen == {"open remote": 0, "open": 0, "receive": 0, "end": 0, "close": 0}


def scapy_uses_objects(site: Site, level: str) -> None:
    if importlib.util.find_spec("msrpcs") is None:
        pytest.skip("scapy-rpc is not installed")
    command = [sys.executable, str(FOLDER / "scapy_com.py"), site.address, f"{USER}@MQ", PASSWORD]
    seen = json.loads(output([*command, f"PKT_{level.upper()}", CLSID_QUEUE_INFO]))
    assert (seen["Open"][0], seen["resolved"], seen["left"]) == (0, True, 0)


# Samba's libdcerpc, which has no IDL of message queuing: its stubs are written here
# --------------------------------------


def samba(site: Site, user: str, level: str, interface: str, opnum: int, stub: bytes) -> bytes:
    needs_system_samba()
    environment = {"USERNAME": user, "PASSWORD": PASSWORD, "SMB_CONF_PATH": str(site.smb_conf)}
    command = [SYSTEM_PYTHON, str(FOLDER / "samba_foreign.py"), site.address, f"ntlm,{SIGN_OR_SEAL[level]}"]
    return bytes.fromhex(output([*command, interface, str(opnum), stub.hex()], environment))


def samba_manages(site: Site, level: str) -> int:
    # MGMT_OBJECT of the machine, then lpwszAction.
    stub = struct.pack("<HHI III10s", 1, 1, 0, 5, 0, 5, "TIDY\0".encode("utf-16-le"))
    answer = samba(site, ADMINISTRATOR, level, "41208ee0-e970-11d1-9b9e-00e02c064c39", 1, stub)
    return int.from_bytes(answer, "little")


def samba_asks(site: Site, level: str) -> None:
    # R_QMQueryQMRegistryInternal: the long-lived time is a string of digits.
    answer = samba(site, USER, level, "fdb3a030-065f-11d1-bb9b-00a024ea5525", 28, struct.pack("<I", 1))
    size = struct.unpack_from("<12xI", answer)[0]
    assert answer[16 : 16 + 2 * size].decode("utf-16-le").rstrip("\0").isdigit()
    assert answer[-4:] == bytes(4)


def samba_reads(site: Site, level: str) -> None:
    # RemoteQMGetVersion, the only method that needs no queue.
    assert samba(site, USER, level, "1088a980-eae5-11d0-8d9b-00a02453c337", 8, b"")[:2] == b"\x06\x01"


# --------------------------------------------------------------------------------------------------

MANAGES = {"go-msrpc": go_manages, "impacket": impacket_manages, "scapy": scapy_manages, "samba": samba_manages}
AS_A_USER: dict[str, dict[str, Callable[[Site, str], None]]] = {
    "MS-MQMP": {"go-msrpc": go_asks, "impacket": impacket_asks, "scapy": scapy_asks, "samba": samba_asks},
    "MS-MQQP": {"go-msrpc": go_reads, "impacket": impacket_reads, "scapy": scapy_reads, "samba": samba_reads},
    # Samba has no client of objects.
    "MC-MQAC": {"go-msrpc": go_uses_objects, "impacket": impacket_uses_objects, "scapy": scapy_uses_objects},
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("protocol", "client"), [(protocol, client) for protocol, clients in AS_A_USER.items() for client in clients]
)
def test_a_user_at_integrity_and_privacy(site: Site, protocol: str, client: str, level: str) -> None:
    AS_A_USER[protocol][client](site, level)


@pytest.mark.parametrize("client", MANAGES)
def test_an_administrator_manages_at_privacy(site: Site, client: str) -> None:
    assert MANAGES[client](site, "privacy") == 0


@pytest.mark.parametrize("client", MANAGES)
def test_an_administrator_is_refused_management_at_integrity(site: Site, client: str) -> None:
    assert MANAGES[client](site, "integrity") == MQ_ERROR_ACCESS_DENIED


# What go-msrpc can besides: two mechanisms and a third way, both transfer syntaxes, other levels.
# -----------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("syntax", ["ndr", "ndr64"])
@pytest.mark.parametrize("mechanism", ["ntlm", "spnego", "bare"])
def test_go_msrpc_reads_with_each_mechanism_and_syntax(site: Site, mechanism: str, syntax: str, level: str) -> None:
    """MS-MQQP 2.2 has both; `bare` is NTLM under the authentication type of SPNEGO."""
    go_reads(site, level, mechanism, syntax)


@pytest.mark.parametrize("syntax", ["ndr", "ndr64"])
@pytest.mark.parametrize("mechanism", ["ntlm", "spnego", "bare"])
def test_go_msrpc_reads_by_ms_mqrr_at_privacy(site: Site, mechanism: str, syntax: str) -> None:
    """MS-MQRR 2.2 has both; what Windows demands by default is privacy (note 19 to 3.1.4.2)."""
    site.send(b"to go")
    seen = go_msrpc(site, USER, "seal", "mqrr", mechanism=mechanism, syntax=syntax)
    assert Message(bytes.fromhex(str(seen.pop("packet")))).body == b"to go"
    assert seen == {"receive": 0, "end": 0, "close": 0}
    refused = go_msrpc(site, USER, "sign", "mqrr", mechanism=mechanism, syntax=syntax)
    assert str(refused["open"]).endswith(f"code: 0x{MQ_ERROR_ACCESS_DENIED:08x}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mechanism", ["ntlm", "bare"])
def test_go_msrpc_uses_objects_with_each_mechanism(site: Site, mechanism: str, level: str) -> None:
    go_uses_objects(site, level, mechanism)


@pytest.mark.parametrize("syntax", ["ndr", "ndr64"])
def test_go_msrpc_finds_a_port_also_with_an_empty_third_floor(site: Site, syntax: str) -> None:
    """C706 appendix L: the minor version of the RPC protocol does not determine the address."""
    port = impacket_stubs.mapped(site.address, QM2QM)
    assert go_msrpc(site, USER, "seal", "epm", syntax=syntax) == {"whole": port, "empty third floor": port}


@pytest.mark.parametrize(("what", "call"), [("mqmr", "action"), ("mqmp", "open"), ("dcom", "ServerAlive2")])
def test_go_msrpc_is_told_that_these_interfaces_have_no_ndr64(site: Site, what: str, call: str) -> None:
    """MS-MQMR 2.2, MS-MQMP 2.2 and MS-DCOM 2.2: NDR only."""
    seen = go_msrpc(site, ADMINISTRATOR, "seal", what, syntax="ndr64")
    assert "proposed transfer syntax not supported" in str(seen[call])


@pytest.mark.parametrize("mechanism", ["ntlm", "spnego", "bare"])
@pytest.mark.parametrize("level", ["call", "packet"])
def test_levels_below_the_default_are_refused(site: Site, level: str, mechanism: str) -> None:
    assert go_msrpc(site, USER, level, "mqmp", mechanism=mechanism) == {"open": MQ_ERROR_ACCESS_DENIED}


@pytest.fixture(scope="module")
def packet_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    needs_endpoint_mapper_port("127.0.0.1")
    with Site(tmp_path_factory.mktemp("packet"), '[rpc]\nauthentication_level = "packet"\n') as made:
        yield made
        made.check()


@pytest.mark.parametrize("mechanism", ["ntlm", "spnego", "bare"])
@pytest.mark.parametrize("level", ["call", "packet"])
def test_level_call_counts_as_packet_where_packet_is_enough(packet_site: Site, level: str, mechanism: str) -> None:
    """MS-RPCE 2.2.1.1.8."""
    go_opens(packet_site, level, mechanism)
