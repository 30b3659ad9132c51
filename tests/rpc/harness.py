"""A server connection without sockets, and the PDUs that a client would send it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from uuid import UUID

from lanner.rpc.association import AssociationGroups
from lanner.rpc.calls import MAX_REQUEST_SIZE, ConnectionClosed, Event, ServerCall
from lanner.rpc.connection import ConnectionLimits, ServerConnection
from lanner.rpc.fragments import pack_fragments
from lanner.rpc.pdu import (
    NDR20,
    NDR64,
    PFC_CONC_MPX,
    PFC_WHOLE,
    REQUEST_SIZE,
    Bind,
    BindAck,
    BindNak,
    ContextElement,
    Fault,
    Header,
    PacketType,
    Request,
    Response,
    SyntaxId,
    assemble,
)
from lanner.rpc.security import SecurityProviders, ServerSecurity, TargetNames
from lanner.security.identity import Identity
from lanner.security.logons import Logons
from lanner.security.md4 import nt_hash
from lanner.wire.sid import Sid

FIRST = SyntaxId(UUID("11111111-1111-1111-1111-111111111111"), 1, 2)
SECOND = SyntaxId(UUID("22222222-2222-2222-2222-222222222222"), 3, 0)
PEER = "192.0.2.1"

USER, PASSWORD = "alice", "Pass-word1"
ALICE = Identity(USER, Sid.parse("S-1-5-21-1-2-3-1000"))
NAMES = TargetNames("QM1", "MQ", "qm1.mq.test", "mq.test")


class Accounts:
    """One user."""

    def nt_hash(self, name: str) -> bytes | None:
        return nt_hash(PASSWORD) if name.casefold() == USER else None

    def identity(self, name: str) -> Identity | None:
        return ALICE if name.casefold() == USER else None


# Its clock goes so fast that wrong passwords of one test are forgotten in the next one.
SECURITY = ServerSecurity(Accounts(), NAMES, logons=Logons(clock=itertools.count(0.0, 10_000.0).__next__))


@dataclass(frozen=True)
class FakeInterface:
    syntax: SyntaxId
    transfer_syntaxes: tuple[SyntaxId, ...] = (NDR20, NDR64)
    max_request_size: int = MAX_REQUEST_SIZE


INTERFACES = (FakeInterface(FIRST), FakeInterface(SECOND, (NDR20,)))


def find(syntax: SyntaxId) -> FakeInterface | None:
    return next((one for one in INTERFACES if (one.syntax.uuid, one.syntax.major) == (syntax.uuid, syntax.major)), None)


def element(context_id: int = 0, interface: SyntaxId = FIRST, *transfer: SyntaxId) -> ContextElement:
    return ContextElement(context_id, interface, transfer or (NDR20,))


def bind(
    *elements: ContextElement, call_id: int = 1, flags: int = PFC_WHOLE, group: int = 0, size: int = 5840
) -> bytes:
    pdu = Bind(size, size, group, elements or (element(),))
    return pdu.pack(PacketType.BIND, flags, call_id)


def alter(*elements: ContextElement, call_id: int = 2, flags: int = PFC_WHOLE) -> bytes:
    return Bind(5840, 5840, 0, elements or (element(),)).pack(PacketType.ALTER_CONTEXT, flags, call_id)


def request(
    stub: bytes = b"",
    *,
    call_id: int = 2,
    context_id: int = 0,
    opnum: int = 0,
    flags: int = PFC_WHOLE,
    alloc_hint: int | None = None,
) -> bytes:
    front = Request(len(stub) if alloc_hint is None else alloc_hint, context_id, opnum).pack_front()
    return assemble(PacketType.REQUEST, flags, call_id, front + stub)


def fragments(stub: bytes, *, call_id: int = 2, context_id: int = 0, opnum: int = 0, size: int = 5840) -> bytes:
    middle = context_id.to_bytes(2, "little") + opnum.to_bytes(2, "little")
    return b"".join(pack_fragments(PacketType.REQUEST, call_id, middle, stub, size))


@dataclass
class Harness:
    """A connection that keeps what happens."""

    providers: SecurityProviders | None = None
    groups: AssociationGroups = field(default_factory=AssociationGroups)
    peer: str = PEER
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection = ServerConnection(
            find, self.groups, self.providers, peer=self.peer, secondary_address="2103", limits=self.limits
        )

    def send(self, data: bytes) -> list[bytes]:
        """Send data and return the server's answers, PDU by PDU."""
        self.events += self.connection.receive(data)
        return self.sent()

    def sent(self) -> list[bytes]:
        return split(self.connection.data_to_send())

    @property
    def calls(self) -> list[ServerCall]:
        return [event for event in self.events if isinstance(event, ServerCall)]

    @property
    def closed(self) -> str | None:
        """Why the connection is closed."""
        return next((event.reason for event in self.events if isinstance(event, ConnectionClosed)), None)

    def bound(self, *, multiplexed: bool = False) -> Harness:
        flags = PFC_WHOLE | (PFC_CONC_MPX if multiplexed else 0)
        (answer,) = self.send(bind(element(), element(1, SECOND), flags=flags))
        assert Header.unpack(answer).packet_type == PacketType.BIND_ACK
        return self


def split(data: bytes) -> list[bytes]:
    pdus = []
    while data:
        length = Header.unpack(data).frag_length
        pdus.append(data[:length])
        data = data[length:]
    return pdus


def only(pdus: list[bytes]) -> bytes:
    assert len(pdus) == 1, [Header.unpack(pdu) for pdu in pdus]
    return pdus[0]


def ack_of(pdus: list[bytes]) -> BindAck:
    pdu = only(pdus)
    header = Header.unpack(pdu)
    assert header.packet_type in (PacketType.BIND_ACK, PacketType.ALTER_CONTEXT_RESP), header
    return BindAck.unpack(pdu, header)


def nak_of(pdus: list[bytes]) -> BindNak:
    pdu = only(pdus)
    header = Header.unpack(pdu)
    assert header.packet_type == PacketType.BIND_NAK, header
    return BindNak.unpack(pdu, header)


@dataclass(frozen=True)
class Told:
    """A fault as a client hears it."""

    status: int
    call_id: int
    context_id: int
    flags: int


def fault_of(pdus: list[bytes]) -> Told:
    pdu = only(pdus)
    header = Header.unpack(pdu)
    assert header.packet_type == PacketType.FAULT, header
    fault = Fault.unpack(pdu, header)
    return Told(fault.status, header.call_id, fault.context_id, header.flags)


def response_of(pdus: list[bytes]) -> bytes:
    """The stub of a response without signatures, from all its fragments."""
    stub = b""
    for pdu in pdus:
        header = Header.unpack(pdu)
        assert header.packet_type == PacketType.RESPONSE, header
        Response.unpack(pdu, header)
        stub += pdu[REQUEST_SIZE:]
    return stub
