"""impacket queries and acts as an administrator.

It uses NTLM at every level, stubs of its own NDR engine, and the port from the endpoint mapper.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from lanner.rpc.security import ServerSecurity, TargetNames
from lanner.security.roles import Role
from lanner.security.users import UserFile
from lanner.wire.property_ids import ManagementQueueProperty as Property
from tests.engine.harness import Harness
from tests.services.managed import QMMGMT_UUID, Managed
from tests.statuses import MQ_ERROR_ACCESS_DENIED, MQ_ERROR_QUEUE_NOT_FOUND

transport = pytest.importorskip("impacket.dcerpc.v5.transport", reason="impacket is not installed")
rpcrt = pytest.importorskip("impacket.dcerpc.v5.rpcrt")
epm = pytest.importorskip("impacket.dcerpc.v5.epm")
ndr = pytest.importorskip("impacket.dcerpc.v5.ndr")
uuids = pytest.importorskip("impacket.uuid")

Peer: TypeAlias = Any  # impacket has no types

# At level packet (4) it signs nothing, so its calls are anonymous.
LEVELS = {"connect": 2, "integrity": 5, "privacy": 6}
PASSWORD = "Pass-word1"
REMOTE = r"OS:BETA\private$\far"
QMMGMT_ID = (str(QMMGMT_UUID), "1.0")


# The interface, written down again from MS-MQMR 6 in impacket's words
# ------------------------------------------------


def make(name: str, base: Peer, **members: object) -> Peer:
    return type(name, (base,), members)


def structure(name: str, *fields: tuple[str, Peer], **members: object) -> Peer:
    return make(name, ndr.NDRSTRUCT, structure=fields, **members)


def call(name: str, *fields: tuple[str, Peer]) -> Peer:
    return make(name, ndr.NDRCALL, structure=fields)


def pointer(target: Peer) -> Peer:
    return make("Pointer", ndr.NDRPOINTER, referent=(("Data", target),))


def union(tag: Peer, arms: dict[int, tuple[str, Peer]], **members: object) -> Peer:
    return make("Union", ndr.NDRUNION, commonHdr=(("tag", tag),), union=arms, **members)


WIDE_STRING = make("WideString", ndr.NDRUniConformantVaryingArray, item="<H")
NOTHING = make("Nothing", ndr.NDR, align=1, structure=())
QUEUE_FORMAT = structure(
    "QueueFormat",
    ("m_qft", ndr.NDRUSMALL),
    ("m_SuffixAndFlags", ndr.NDRUSMALL),
    ("m_reserved", ndr.NDRUSHORT),
    ("u", union(ndr.NDRUSMALL, {3: ("m_pDirectID", pointer(WIDE_STRING))})),
)
MGMT_OBJECT = structure(
    "MgmtObject",
    ("type", ndr.NDRUSHORT),
    ("u", union(ndr.NDRUSHORT, {1: ("Reserved1", ndr.NDRULONG), 2: ("pQueueFormat", pointer(QUEUE_FORMAT))})),
)
VARIANT = structure(
    "Variant",
    ("vt", ndr.NDRUSHORT),
    ("wReserved1", ndr.NDRUSMALL),
    ("wReserved2", ndr.NDRUSMALL),
    ("wReserved3", ndr.NDRULONG),
    (
        "u",
        union(
            ndr.NDRUSHORT,
            {1: ("null", NOTHING), 19: ("ulVal", ndr.NDRULONG), 31: ("pwszVal", pointer(WIDE_STRING))},
            notAlign=True,
        ),
    ),
    # It leaves the arms out, and a LARGE_INTEGER is among them.
    getAlignment=lambda _: 8,
)
PROPERTIES = make("Properties", ndr.NDRUniConformantArray, item="<L")
ACTION = call("Action", ("pObjectFormat", MGMT_OBJECT), ("lpwszAction", WIDE_STRING))
ACTION_RESPONSE = call("ActionResponse", ("ErrorCode", ndr.NDRULONG))


def variants(count: int) -> Peer:
    """Return an array of PROPVARIANT without its count.

    impacket aligns the elements of an array as if it had no count.
    """
    return structure("Variants", *((f"{place}", VARIANT) for place in range(count)))


def get_info_call(count: int) -> Peer:
    return call(
        "GetInfo",
        ("pObjectFormat", MGMT_OBJECT),
        ("cp", ndr.NDRULONG),
        ("aProp", PROPERTIES),
        ("apVarCount", ndr.NDRULONG),
        ("apVar", variants(count)),
    )()


def get_info_response(count: int, octets: bytes) -> Peer:
    fields = (("apVarCount", ndr.NDRULONG), ("apVar", variants(count)), ("ErrorCode", ndr.NDRULONG))
    return call("GetInfoResponse", *fields)(octets)


def wide(text: str) -> list[int]:
    return [*map(ord, text), 0]


def fill(subject: Peer, direct_name: str | None) -> None:
    """The machine, or a queue by its direct name."""
    subject["type"] = subject["u"]["tag"] = 1 if direct_name is None else 2
    if direct_name is None:
        subject["u"]["Reserved1"] = 0
        return
    queue_format = subject["u"]["pQueueFormat"]
    queue_format["m_qft"] = queue_format["u"]["tag"] = 3
    queue_format["u"]["m_pDirectID"] = wide(direct_name)


class Client:
    def __init__(self, port: int, level: int, user: str = "", password: str = PASSWORD) -> None:
        found = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:127.0.0.1[{port}]")
        if user:
            found.set_credentials(user, password, "MQ")
        self.rpc = found.get_dce_rpc()
        self.rpc.set_auth_level(level)
        self.rpc.connect()
        self.rpc.bind(uuids.uuidtup_to_bin(QMMGMT_ID))

    def close(self) -> None:
        self.rpc.disconnect()

    def action(self, direct_name: str | None, word: str) -> int:
        request = ACTION()
        fill(request["pObjectFormat"], direct_name)
        request["lpwszAction"] = wide(word)
        self.rpc.call(1, request)
        return int(ACTION_RESPONSE(self.rpc.recv())["ErrorCode"])

    def get_info(self, direct_name: str | None, *properties: int) -> tuple[int, list[object]]:
        count = len(properties)
        request = get_info_call(count)
        fill(request["pObjectFormat"], direct_name)
        request["cp"] = request["apVarCount"] = count
        request["aProp"] = list(properties)
        for place in range(count):
            request["apVar"][f"{place}"]["vt"] = request["apVar"][f"{place}"]["u"]["tag"] = 1
        self.rpc.call(0, request)
        answer = get_info_response(count, self.rpc.recv())
        assert answer["apVarCount"] == count
        return int(answer["ErrorCode"]), [self._value(answer["apVar"][f"{place}"]) for place in range(count)]

    @staticmethod
    def _value(variant: Peer) -> object:
        match variant["vt"]:
            case 19:
                return int(variant["u"]["ulVal"])
            case 31:
                return "".join(map(chr, variant["u"]["pwszVal"])).rstrip("\0")
        return None


# --------------------------------------------------------------------------------------------------


@pytest.fixture
def users(tmp_path: Path) -> UserFile:
    users = UserFile(tmp_path / "users.json")
    users.add("operator", PASSWORD, administrator=True)
    users.add("alice", PASSWORD)
    return users


@pytest.fixture
def manager(tmp_path: Path, users: UserFile) -> Iterator[Managed]:
    h = Harness(tmp_path / "data", resolve_identity=users.resolve)
    try:
        h.create("q", transactional=True)
        h.send(f"DIRECT={REMOTE}")
        manager = Managed(h, providers=ServerSecurity(users, TargetNames("ALPHA", "MQ", "alpha.mq.test", "mq.test")))
        try:
            yield manager
        finally:
            manager.close()
    finally:
        h.close()


@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_an_administrator_asks_and_acts(manager: Managed, level: int) -> None:
    with manager.unlocked():
        client = Client(manager.port, level, "operator")
        try:
            properties = (Property.PATHNAME, Property.XACT, Property.NEXTHOPS, Property.MESSAGE_COUNT)
            expected = [r"ALPHA\private$\q", "YES", None, 0]
            assert client.get_info(r"OS:.\private$\q", *properties) == (0, expected)
            assert client.get_info(None, 4) == (0, ["CONNECTED"])
            assert client.action(REMOTE, "Pause") == 0
            assert client.get_info(REMOTE, Property.STATE, Property.MESSAGE_COUNT) == (0, ["ONHOLD", 1])
            assert client.action(REMOTE, "RESUME") == 0
            assert client.action(None, "DISCONNECT") == 0
            assert client.get_info(None, 4) == (0, ["DISCONNECTED"])
            assert client.get_info(r"OS:.\private$\none", 1)[0] == MQ_ERROR_QUEUE_NOT_FOUND
        finally:
            client.close()


@pytest.mark.spec("MQMR-3-1", "MQMR-3-2")
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
def test_another_user_is_refused(manager: Managed, level: int) -> None:
    with manager.unlocked():
        client = Client(manager.port, level, "alice")
        try:
            assert client.get_info(None, 4)[0] == MQ_ERROR_ACCESS_DENIED
            assert client.action(REMOTE, "PAUSE") == MQ_ERROR_ACCESS_DENIED
        finally:
            client.close()
    assert next(manager.h.engine.outgoing_queues()).state.name == "INACTIVE"


@pytest.mark.spec("MQMR-3-2")
def test_who_does_not_authenticate_is_nobody(manager: Managed) -> None:
    """The contents of the request do not matter.

    The same stub is answered when an administrator's security context carries it.
    """
    with manager.unlocked():
        for user, level, expected in (("", 1, MQ_ERROR_ACCESS_DENIED), ("operator", 6, 0)):
            client = Client(manager.port, level, user)
            try:
                assert client.get_info(REMOTE, 7)[0] == expected
            finally:
                client.close()


@pytest.mark.spec("MQMR-5.1-1")
def test_a_right_that_is_taken_away_is_gone_at_the_next_call(manager: Managed, users: UserFile) -> None:
    with manager.unlocked():
        client = Client(manager.port, 6, "operator")
        try:
            assert client.get_info(None, 4)[0] == 0
            users.set_role("operator", Role.USER)
            assert client.get_info(None, 4)[0] == MQ_ERROR_ACCESS_DENIED
            assert client.action(REMOTE, "PAUSE") == MQ_ERROR_ACCESS_DENIED
            users.set_role("operator", Role.ADMINISTRATOR)
            assert client.get_info(None, 4)[0] == 0
            users.remove("operator")
            assert client.get_info(None, 4)[0] == MQ_ERROR_ACCESS_DENIED
        finally:
            client.close()


def mapper(port: int) -> Peer:
    """A connection for one question to the endpoint mapper, which impacket binds to it itself."""
    rpc = transport.DCERPCTransportFactory(f"ncacn_ip_tcp:127.0.0.1[{port}]").get_dce_rpc()
    rpc.connect()
    return rpc


@pytest.mark.spec("MQMR-2.1-2")
def test_the_endpoint_mapper_tells_a_port_where_it_listens(manager: Managed) -> None:
    with manager.unlocked():
        rpc = mapper(manager.port)
        binding = epm.hept_map("127.0.0.1", uuids.uuidtup_to_bin(QMMGMT_ID), protocol="ncacn_ip_tcp", dce=rpc)
        rpc.disconnect()
        port = int(binding.rpartition("[")[2].rstrip("]"))
        client = Client(port, 6, "operator")
        assert client.get_info(None, 4) == (0, ["CONNECTED"])
        client.close()


@pytest.mark.spec("MQMR-2.1-1")
def test_it_is_served_over_tcp_and_nothing_else(manager: Managed) -> None:
    with manager.unlocked():
        rpc = mapper(manager.port)
        towers = [
            epm.PrintStringBinding(entry["tower"]["Floors"])
            for entry in epm.hept_lookup(None, dce=rpc)
            if entry["tower"]["Floors"][0]["InterfaceUUID"] == QMMGMT_UUID.bytes_le
        ]
        rpc.disconnect()
        assert towers
        assert all(tower.startswith("ncacn_ip_tcp:") for tower in towers)
        for protocol in ("ncacn_np", "ncacn_http"):
            rpc = mapper(manager.port)
            with pytest.raises(rpcrt.DCERPCException):
                epm.hept_map("127.0.0.1", uuids.uuidtup_to_bin(QMMGMT_ID), protocol=protocol, dce=rpc)
            rpc.disconnect()


def test_its_ndr_engine_and_ours_write_the_same_object() -> None:
    """So that the tests above mean what they say."""
    request = ACTION()
    fill(request["pObjectFormat"], None)
    request["lpwszAction"] = wide("TIDY")
    expected = struct.pack("<HHI", 1, 1, 0) + struct.pack("<III", 5, 0, 5) + "TIDY\0".encode("utf-16-le")
    assert request.getData() == expected
