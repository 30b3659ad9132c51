"""impacket's RPC client against Lanner's server.

Covered: every level, fragments, alter_context and wrong passwords.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from lanner.rpc.pdu import NDR20
from tests.interop.peers import rpc_server
from tests.interop.rpc_server import DOMAIN, ECHO, PASSWORD, USER

transport = pytest.importorskip("impacket.dcerpc.v5.transport", reason="impacket is not installed")
rpcrt = pytest.importorskip("impacket.dcerpc.v5.rpcrt")
epm = pytest.importorskip("impacket.dcerpc.v5.epm")
mgmt = pytest.importorskip("impacket.dcerpc.v5.mgmt")

LEVELS = {"none": 1, "connect": 2, "packet": 4, "integrity": 5, "privacy": 6}
DATA = bytes(range(256)) * 80  # 20 KB: four fragments


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with rpc_server(tmp_path_factory.mktemp("impacket")) as found:
        yield found


class Connector(Protocol):
    def __call__(self, level: int, user: str = USER, password: str = PASSWORD) -> Any: ...  # noqa: ANN401 (untyped library)


@pytest.fixture
def connect(port: int) -> Iterator[Connector]:
    opened = []

    def connected(level: int, user: str = USER, password: str = PASSWORD) -> Any:  # noqa: ANN401
        found = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:127.0.0.1[{port}]")
        found.set_credentials(user, password, DOMAIN)
        rpc = found.get_dce_rpc()
        rpc.set_auth_level(level)
        rpc.connect()
        opened.append(rpc)
        return rpc

    yield connected
    for rpc in opened:
        rpc.disconnect()


def echo_id() -> bytes:
    return ECHO.pack()


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_echo_of_20_kilobytes(connect: Connector, level: int) -> None:
    rpc = connect(level)
    rpc.bind(echo_id())
    for opnum in (0, 1):
        rpc.call(opnum, DATA)
        assert rpc.recv() == DATA


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_alter_context_authenticates_again_under_another_id(connect: Connector, level: int) -> None:
    rpc = connect(level)
    rpc.bind(mgmt.MSRPC_UUID_MGMT)
    other = rpc.alter_ctx(echo_id())
    other.call(0, DATA)
    assert other.recv() == DATA
    # And the first one is still there.
    assert mgmt.hinq_if_ids(rpc)["if_id_vector"]["count"] == 3


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
@pytest.mark.parametrize("level", [2, 5, 6])
def test_wrong_credentials_are_reported_at_the_first_call(
    connect: Connector, user: str, password: str, level: int
) -> None:
    rpc = connect(level, user, password)
    rpc.bind(echo_id())
    rpc.call(0, b"")
    with pytest.raises(rpcrt.DCERPCException, match="access_denied"):
        rpc.recv()


def test_endpoint_mapper(connect: Connector, port: int) -> None:
    rpc = connect(LEVELS["none"])
    found = epm.hept_map("127.0.0.1", echo_id(), protocol="ncacn_ip_tcp", dce=rpc)
    assert found == f"ncacn_ip_tcp:127.0.0.1[{port}]"


def test_endpoint_mapper_lists_what_there_is(connect: Connector) -> None:
    rpc = connect(LEVELS["none"])
    entries = epm.hept_lookup(None, dce=rpc)
    assert {bytes(entry["annotation"]).rstrip(b"\0") for entry in entries} >= {b"echo", b"epmapper"}


def test_a_fault_has_its_name(connect: Connector) -> None:
    rpc = connect(LEVELS["privacy"])
    rpc.bind(echo_id())
    rpc.call(9, b"")
    with pytest.raises(rpcrt.DCERPCException, match="nca_s_op_rng_error"):
        rpc.recv()
    # The connection goes on.
    rpc.call(0, DATA)
    assert rpc.recv() == DATA


def test_endpoint_mapper_takes_a_tower_whose_third_floor_has_no_right_side(connect: Connector, port: int) -> None:
    """The request of impacket without the minor version.

    C706 appendix L allows that for a client that asks for a port.
    """
    rpc = connect(LEVELS["none"])
    rpc.bind(epm.MSRPC_UUID_PORTMAP)
    interface, syntax = epm.EPMRPCInterface(), epm.EPMRPCDataRepresentation()
    interface["InterfaceUUID"], interface["MajorVersion"], interface["MinorVersion"] = echo_id()[:16], ECHO.major, 0
    syntax["DataRepUuid"], syntax["MajorVersion"], syntax["MinorVersion"] = NDR20.pack()[:16], NDR20.major, 0
    protocol, port_floor, host = epm.EPMProtocolIdentifier(), epm.EPMPortAddr(), epm.EPMHostAddr()
    protocol["ProtIdentifier"] = epm.FLOOR_RPCV5_IDENTIFIER
    port_floor["IpPort"], host["Ip4addr"] = 0, bytes(4)
    third = protocol.getData()
    assert third.endswith(b"\2\0\0\0")
    floors = [interface.getData(), syntax.getData(), third[:-4] + b"\0\0", port_floor.getData(), host.getData()]
    tower = epm.EPMTower()
    tower["NumberOfFloors"], tower["Floors"] = len(floors), b"".join(floors)
    request = epm.ept_map()
    request["max_towers"] = 1
    request["map_tower"]["tower_length"] = len(tower)
    request["map_tower"]["tower_octet_string"] = tower.getData()
    answer = rpc.request(request)
    found = epm.EPMTower(b"".join(answer["ITowers"][0]["Data"]["tower_octet_string"]))
    assert epm.EPMPortAddr(found["Floors"][3].getData())["IpPort"] == port
