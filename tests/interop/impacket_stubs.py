"""Shared code of the tests with impacket: stubs of its NDR engine, and a connection.

The stubs are written from the published IDL.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeAlias

import pytest

pytest.importorskip("impacket", reason="impacket is not installed")

# Impacket has no types.
Peer: TypeAlias = Any
dtypes: Peer = importlib.import_module("impacket.dcerpc.v5.dtypes")
ndr: Peer = importlib.import_module("impacket.dcerpc.v5.ndr")
rpcrt: Peer = importlib.import_module("impacket.dcerpc.v5.rpcrt")
_epm: Peer = importlib.import_module("impacket.dcerpc.v5.epm")
_transport: Peer = importlib.import_module("impacket.dcerpc.v5.transport")
_uuid: Peer = importlib.import_module("impacket.uuid")

# Not "packet": impacket signs no request there, so the caller is unknown.
LEVELS = {"none": 1, "connect": 2, "integrity": 5, "privacy": 6}
DWORD = dtypes.DWORD


def interface(uuid: str, version: str = "1.0") -> bytes:
    identifier: bytes = _uuid.uuidtup_to_bin((uuid, version))
    return identifier


QMCOMM = interface("fdb3a030-065f-11d1-bb9b-00a024ea5525")
QMCOMM2 = interface("76d12b80-3467-11d3-91ff-0090272f9ea3")
QMMGMT = interface("41208ee0-e970-11d1-9b9e-00e02c064c39")
QM2QM = interface("1088a980-eae5-11d0-8d9b-00a02453c337")


def mapped(address: str, interface_id: bytes) -> int:
    """The port of an interface, from the endpoint mapper at its well-known port."""
    binding: str = _epm.hept_map(address, interface_id, protocol="ncacn_ip_tcp")
    return int(binding.rpartition("[")[2].rstrip("]"))


def connect(port: int, level: int, user: str, password: str, address: str = "127.0.0.1") -> Peer:
    """A connection that has not been bound."""
    channel = _transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{address}[{port}]")
    channel.set_credentials(user, password, "MQ")
    rpc = channel.get_dce_rpc()
    rpc.set_auth_level(level)
    rpc.connect()
    return rpc


def call_class(number: int | None, *members: tuple[str, Peer]) -> Peer:
    """The parameters of a request, or, without a number, of an answer."""
    return type("CALL", (ndr.NDRCALL,), {"opnum": number, "structure": members})


class HANDLE(ndr.NDRSTRUCT):  # type: ignore[misc]
    structure = (("Data", '20s=b""'),)

    def getAlignment(self) -> int:  # noqa: N802 (impacket's)
        return 4


class DirectName(ndr.NDRUNION):  # type: ignore[misc]
    commonHdr = (("tag", ndr.NDRUSMALL),)  # noqa: N815
    notAlign = True  # noqa: N815
    union = {3: ("pDirectID", dtypes.LPWSTR)}  # noqa: RUF012


class QUEUE_FORMAT(ndr.NDRSTRUCT):  # type: ignore[misc]  # noqa: N801
    structure = (
        ("qft", ndr.NDRUSMALL),
        ("SuffixAndFlags", ndr.NDRUSMALL),
        ("reserved", ndr.NDRUSHORT),
        ("name", DirectName),
    )

    def getAlignment(self) -> int:  # noqa: N802
        return 4


def name_queue(queue_format: Peer, direct_name: str) -> None:
    """Write a direct name into a QUEUE_FORMAT."""
    queue_format["qft"] = queue_format["name"]["tag"] = 3
    queue_format["SuffixAndFlags"] = queue_format["reserved"] = 0
    queue_format["name"]["pDirectID"] = f"{direct_name}\0"
