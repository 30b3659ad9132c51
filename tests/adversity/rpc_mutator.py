"""The PDUs of a correct client, and mutations of them. The same seed gives the same mutations."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from lanner.rpc.client_connection import ClientConnection
from lanner.rpc.endpoint_mapper import EPMAPPER
from lanner.rpc.interface import Interface
from lanner.rpc.mgmt import MGMT
from lanner.rpc.ndr import NULL_HANDLE, Syntax, Value
from lanner.rpc.pdu import (
    NDR20,
    NDR64,
    PFC_CONC_MPX,
    PFC_WHOLE,
    AuthLevel,
    AuthType,
    PacketType,
    SyntaxId,
    bind_time_features_syntax,
    pack_empty,
)
from lanner.rpc.security import Credentials
from lanner.services.interfaces.lanner import LANNER, LANNER_ASK, LANNER_WHO
from lanner.services.interfaces.mqrr import REMOTE_READ
from tests.rpc.harness import PASSWORD, SECURITY, USER, Harness, alter, bind, element, fragments, request
from tests.services.calls import CALLS, INTERFACES, MQRR_CALLS

Session = list[bytes]

SERVED = (*INTERFACES, REMOTE_READ, LANNER, MGMT, EPMAPPER)
NUMBERS = {interface: 2 * place for place, interface in enumerate(SERVED)}
_LENGTHS = (0, 1, 2, 3, 4, 7, 8, 16, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x20000, 0x7FFF_FFFF, 0x8000_0000)
NASTY = (*_LENGTHS, *((1 << 32) - number for number in _LENGTHS[1:]))


# Calls of the interfaces that are not MSMQ's, whose names are in tests.services.calls.
_NAME = r"DIRECT=OS:.\private$\q"
_ASKED = (
    '{"request": "status"}',
    '{"request": "queues"}',
    '{"request": "peer", "name": "somebody"}',
    rf'{{"request": "move", "queue": "{_NAME};a", "target": "{_NAME}", "lookup_ids": ["1", "2"]}}'.replace(
        "\\", "\\\\"
    ),
    '{"request": "register certificate", "certificate": "-----BEGIN CERTIFICATE-----", "sid": "S-1-5-21-1-2-3-4"}',
)
OTHERS: list[tuple[Interface, int, dict[str, Value]]] = [
    (LANNER, LANNER_WHO.opnum, {}),
    *((LANNER, LANNER_ASK.opnum, {"request": text}) for text in _ASKED),
    (MGMT, 0, {}),
    (MGMT, 1, {"count": 4}),
    (MGMT, 2, {}),
    (MGMT, 3, {}),
    (MGMT, 4, {"authn_proto": 10, "princ_name_size": 512}),
    (
        EPMAPPER,
        2,
        {
            "inquiry_type": 0,
            "object": None,
            "ifid": None,
            "vers_option": 1,
            "entry_handle": NULL_HANDLE,
            "max_ents": 3,
        },
    ),
    (EPMAPPER, 3, {"obj": None, "map_tower": None, "entry_handle": NULL_HANDLE, "max_towers": 4}),
    (EPMAPPER, 4, {"entry_handle": NULL_HANDLE}),
]


def syntax_id(interface: Interface) -> SyntaxId:
    return SyntaxId(interface.uuid, *interface.version)


def whole_bind(flags: int = PFC_WHOLE | PFC_CONC_MPX) -> bytes:
    """Every interface in NDR and, under the next number, in NDR64."""
    elements = []
    for interface, number in NUMBERS.items():
        elements.append(element(number, syntax_id(interface), NDR20))
        if Syntax.NDR64 in interface.syntaxes:
            elements.append(element(number + 1, syntax_id(interface), NDR64))
    elements.append(element(99, syntax_id(SERVED[0]), bind_time_features_syntax(3)))
    return bind(*elements, flags=flags)


def authenticated(auth_type: AuthType, level: AuthLevel) -> Session:
    """The client's half of an authentication that went well elsewhere, and a call."""
    client = ClientConnection(credentials=Credentials(USER, PASSWORD), auth_type=auth_type, level=level)
    harness = Harness(SECURITY)
    client.bind(syntax_id(SERVED[0]))
    sent = [client.data_to_send()]
    for _ in range(2):
        client.receive(b"".join(harness.send(sent[-1])))
        sent.append(client.data_to_send())
    client.request(0, 0, CALLS[0].method.encode_request(CALLS[0].arguments))
    sent.append(client.data_to_send())
    return [one for one in sent if one]


def calls() -> list[tuple[Interface, int, dict[str, Value]]]:
    """Interface, opnum and arguments; of every method one at least."""
    return [(one.interface, one.method.opnum, one.arguments) for one in (*CALLS, *MQRR_CALLS)] + OTHERS


def stub_of(interface: Interface, opnum: int, arguments: dict[str, Value], syntax: Syntax = Syntax.NDR20) -> bytes:
    method = interface.method(opnum)
    assert method is not None
    return method.encode_request(arguments, syntax)


def corpus() -> list[Session]:
    sessions = []
    for number, (interface, opnum, arguments) in enumerate(calls()):
        for place, syntax in enumerate(interface.syntaxes):
            stub = stub_of(interface, opnum, arguments, syntax)
            context_id = NUMBERS[interface] + place
            call = request(stub, call_id=2, context_id=context_id, opnum=opnum)
            sessions.append([whole_bind(), call])
            if number % 4 == 0:
                cut = fragments(stub, call_id=3, context_id=context_id, opnum=opnum, size=64)
                sessions.append([whole_bind(), *split(cut), call])
    first, second = syntax_id(SERVED[0]), syntax_id(SERVED[1])
    talk = [
        bind(element(0, first), flags=PFC_WHOLE | PFC_CONC_MPX),
        alter(element(1, second, NDR20), element(2, second, NDR64)),
        *(request(bytes(8), call_id=number, context_id=1, opnum=7) for number in range(3, 9)),
        pack_empty(PacketType.CO_CANCEL, 4),
        pack_empty(PacketType.ORPHANED, 5),
        split(fragments(bytes(9000), call_id=20))[0],
    ]
    sessions += [talk] * 20
    for auth_type in (AuthType.WINNT, AuthType.GSS_NEGOTIATE):
        for level in (AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY):
            sessions += [authenticated(auth_type, level)] * 8
    return sessions


def split(data: bytes) -> list[bytes]:
    pdus = []
    while len(data) >= 16:
        (length,) = struct.unpack_from("<H", data, 8)
        pdus.append(data[:length])
        data = data[length:]
    return pdus


class Mutator:
    """Seeded harm."""

    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(seed)
        self._ways: Sequence[Callable[[bytearray], None]] = (
            self._flip,
            self._flip,
            self._number,
            self._number,
            self._number,
            self._cut,
            self._grow,
            self._repeat,
            self._zero,
        )

    def session(self, pdus: Session, others: Sequence[Session]) -> bytes:
        """The same conversation, but wrong."""
        chance = self.chance
        pdus = list(pdus)
        if chance.random() < 0.15:
            del pdus[chance.randrange(len(pdus))]
        if chance.random() < 0.15:
            pdus.insert(chance.randrange(len(pdus) + 1), chance.choice(chance.choice(others)))
        if chance.random() < 0.1:
            chance.shuffle(pdus)
        for place, pdu in enumerate(pdus):
            # Most binds are left alone: behind a refused one there is nothing to see.
            if chance.random() < (0.15 if pdu[2] == PacketType.BIND else 0.8):
                pdus[place] = self.pdu(pdu)
        return b"".join(pdus)

    def pdu(self, pdu: bytes) -> bytes:
        """Return a mutated PDU that mostly states its real length.

        The fault is in its header, its stub or the surroundings.
        """
        chance = self.chance
        start = chance.choice((0, 16, 24, 24, 24))
        changed = pdu[:start] + self.octets(pdu[start:])
        if len(changed) >= 16 and chance.random() < 0.85:
            changed = changed[:8] + struct.pack("<H", len(changed) & 0xFFFF) + changed[10:]
        if len(changed) >= 16 and chance.random() < 0.05:
            changed = (
                changed[:10] + struct.pack("<H", chance.choice((1, 8, 16, 17, len(changed), 0xFFFF))) + changed[12:]
            )
        if len(changed) >= 16 and chance.random() < 0.05:
            changed = changed[:4] + chance.choice((b"\0", b"\x01", b"\x11", b"\xff")) + changed[5:]
        return changed

    def octets(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self.chance.choice((1, 1, 1, 2, 3, 5))):
            if changed:
                self.chance.choice(self._ways)(changed)
        return bytes(changed)

    def _flip(self, data: bytearray) -> None:
        data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)

    def _number(self, data: bytearray) -> None:
        """A number at this place: a count, a size, a referent or a tag."""
        size = self.chance.choice((1, 2, 4, 4, 4, 8))
        place = self.chance.randrange(len(data)) // size * size
        value = self.chance.choice(NASTY) % (1 << 8 * size)
        data[place : place + size] = value.to_bytes(size, "little")[: len(data) - place]

    def _cut(self, data: bytearray) -> None:
        del data[self.chance.randrange(len(data)) :]

    def _grow(self, data: bytearray) -> None:
        data += self.chance.randbytes(self.chance.choice((1, 3, 4, 8, 500, 6000)))

    def _repeat(self, data: bytearray) -> None:
        place = self.chance.randrange(len(data))
        data[place:place] = data[place : place + self.chance.choice((4, 8, 16, 20, 64))]

    def _zero(self, data: bytearray) -> None:
        place = self.chance.randrange(len(data))
        size = min(self.chance.choice((4, 8, 20)), len(data) - place)
        data[place : place + size] = bytes(size)
