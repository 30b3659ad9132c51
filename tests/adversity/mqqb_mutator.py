"""Packets of MS-MQQB made wrong where it hurts: by field, by name, by order.

The same seed does the same harm.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.wire import layout as at
from lanner.wire.layout import locate
from tests.adversity.rpc_mutator import NASTY

# Name, offset, size.
Field = tuple[str, int, int]

_BASE: Final[tuple[Field, ...]] = (
    ("VersionNumber", 0, 1),
    ("Reserved", 1, 1),
    ("BaseFlags", 2, 2),
    ("Signature", 4, 4),
    ("PacketSize", 8, 4),
    ("TimeToReachQueue", 12, 4),
)
_INTERNAL: Final[tuple[Field, ...]] = (("InternalReserved", 16, 2), ("InternalFlags", 18, 2))
_ESTABLISH: Final[tuple[Field, ...]] = (
    ("ClientGuid", 20, 16),
    ("ServerGuid", 36, 16),
    ("TimeStamp", 52, 4),
    ("OperatingSystem", 56, 2),
    ("EstablishReserved", 58, 2),
)
_PARAMETERS: Final[tuple[Field, ...]] = (
    ("RecoverableAckTimeout", 20, 4),
    ("AckTimeout", 24, 4),
    ("ParametersReserved", 28, 2),
    ("WindowSize", 30, 2),
)
_SESSION: Final[tuple[Field, ...]] = (
    ("AckSequenceNumber", 0, 2),
    ("RecoverableMsgAckSeqNumber", 2, 2),
    ("RecoverableMsgAckFlags", 4, 4),
    ("UserMsgSequenceNumber", 8, 2),
    ("RecoverableMsgSeqNumber", 10, 2),
    ("SessionWindowSize", 12, 2),
)
_USER: Final[tuple[Field, ...]] = (
    ("SourceQueueManager", 16, 16),
    ("QueueManagerAddress", 32, 16),
    ("TimeToBeReceived", 48, 4),
    ("SentTime", 52, 4),
    ("MessageID", 56, 4),
    ("UserFlags", 60, 4),
    ("DestinationQueue", 64, 2),
)
_TRANSACTION: Final[tuple[Field, ...]] = (
    ("TransactionFlags", 0, 4),
    ("TxSequenceID.Ordinal", 4, 4),
    ("TxSequenceID.Time", 8, 4),
    ("TxSequenceNumber", 12, 4),
    ("PreviousTxSequenceNumber", 16, 4),
)
_SECURITY: Final[tuple[Field, ...]] = (
    ("SecurityFlags", 0, 2),
    ("SenderIdSize", 2, 2),
    ("EncryptionKeySize", 4, 2),
    ("SignatureSize", 6, 2),
    ("SenderCertSize", 8, 4),
    ("ProviderInfoSize", 12, 4),
    ("SecurityData", 16, 4),
    ("SenderId", 24, 8),
)
_PROPERTIES: Final[tuple[Field, ...]] = (
    ("PropertiesFlags", 0, 1),
    ("LabelLength", 1, 1),
    ("MessageClass", 2, 2),
    ("CorrelationID", 4, 16),
    ("BodyType", 24, 4),
    ("ApplicationTag", 28, 4),
    ("MessageSize", 32, 4),
    ("AllocationBodySize", 36, 4),
    ("PrivacyLevel", 40, 4),
    ("HashAlgorithm", 44, 4),
    ("EncryptionAlgorithm", 48, 4),
    ("ExtensionSize", 52, 4),
)
# Of an OrderAck or FinalAck; the body comes behind the label, whose 16 characters have a
# terminator.
_ACKNOWLEDGED: Final[tuple[Field, ...]] = (
    ("AckTxSequenceID", 88, 8),
    ("AckTxSequenceNumber", 96, 4),
    ("AckPreviousTxSequenceNumber", 100, 4),
    ("AckSourceGuid", 104, 16),
    ("AckMessageID", 120, 4),
)


def _at(offset: int, fields: Sequence[Field]) -> list[Field]:
    return [(name, offset + start, size) for name, start, size in fields]


def fields_of(packet: bytes) -> list[Field]:
    """Name every fixed field of a packet and say where it lies."""
    found = list(_BASE)
    flags, size = struct.unpack_from("<H", packet, 2)[0], len(packet)
    if flags & at.IN:
        found += _INTERNAL
        found += {572: _ESTABLISH, 32: _PARAMETERS, 36: _at(20, _SESSION)}.get(size, ())
        return [field for field in found if field[1] + field[2] <= size]
    body = packet
    if flags & at.BASE_SH:
        found += _at(size - 16, _SESSION)
        body = packet[:2] + struct.pack("<H", flags & ~at.BASE_SH) + packet[4:-16]
    found += _USER
    try:
        located = locate(body)
    except RemoteProtocolError:
        return [field for field in found if field[1] + field[2] <= size]
    for offset, fields in (
        (located.transaction, _TRANSACTION),
        (located.security, _SECURITY),
        (located.properties, _PROPERTIES),
    ):
        found += _at(offset, fields) if offset else ()
    for name, offset in (("Admin", located.administration), ("Response", located.response), ("Debug", located.debug)):
        found += [(f"{name}Queue", offset, 4)] if offset else ()
    if struct.unpack_from("<H", packet, located.properties + 2)[0]:
        found += _at(located.properties, _ACKNOWLEDGED)
    return [field for field in found if field[1] + field[2] <= size]


@dataclass(frozen=True, slots=True)
class Harm:
    """A change at a place of a session: the packet there becomes these octets."""

    what: str
    octets: bytes


class PacketMutator:
    """Seeded harm.

    `guids` are those of others; `names` have equally many letters, so one can stand for another.
    """

    def __init__(
        self, seed: str, recorded: Sequence[bytes], guids: Sequence[UUID], names: Sequence[str], next_number: int
    ) -> None:
        self.chance = random.Random(seed)
        self._recorded = recorded
        self._guids = guids
        self._names = names
        # Of the messages that a friend is going to send.
        self._next_number = next_number
        self._ways: tuple[tuple[Callable[[bytes], Harm], int], ...] = (
            (self._change_field, 10),
            (self._change_fields, 4),
            (self._change_flag, 4),
            (self._rename, 3),
            (self._impersonate, 3),
            (self._drop, 1),
            (self._repeat, 2),
            (self._insert, 2),
            (self._truncate, 2),
            (self._grow, 2),
            (self._scramble, 2),
            (self._follow_with_noise, 1),
        )

    def harm(self, packet: bytes) -> Harm:
        """Choose a way and go it."""
        ways, weights = zip(*self._ways, strict=True)
        (way,) = self.chance.choices(ways, weights)
        done: Harm = way(packet)
        return done

    def own_guid(self) -> UUID:
        return UUID(bytes=self.chance.randbytes(16), version=4)

    def _value(self, packet: bytes, field: Field) -> bytes:
        _, offset, size = field
        chance = self.chance
        if size == 16:
            known = [guid.bytes_le for guid in self._guids]
            return chance.choice([bytes(16), b"\xff" * 16, chance.randbytes(16), *known])
        old = int.from_bytes(packet[offset : offset + size], "little")
        new = chance.choice(
            (
                old + 1,
                old - 1,
                old ^ 1 << chance.randrange(8 * size),
                old ^ 1 << chance.randrange(8 * size),
                chance.choice(NASTY),
                chance.getrandbits(8 * size),
                0,
                -1,
            )
        )
        return (new % (1 << 8 * size)).to_bytes(size, "little")

    def _change_field(self, packet: bytes) -> Harm:
        field = self.chance.choice(fields_of(packet))
        name, offset, size = field
        value = self._value(packet, field)
        return Harm(f"{name} = {value.hex()}", packet[:offset] + value + packet[offset + size :])

    def _change_fields(self, packet: bytes) -> Harm:
        said = []
        for _ in range(self.chance.randrange(2, 6)):
            done = self._change_field(packet)
            said.append(done.what)
            packet = done.octets
        return Harm(", ".join(said), packet)

    def _change_flag(self, packet: bytes) -> Harm:
        """Say that a header is there, or is not; its octets stay."""
        flags = [field for field in fields_of(packet) if field[0].endswith("Flags")]
        name, offset, size = self.chance.choice(flags)
        bit = self.chance.randrange(8 * size)
        value = int.from_bytes(packet[offset : offset + size], "little") ^ 1 << bit
        return Harm(f"bit {bit} of {name}", packet[:offset] + value.to_bytes(size, "little") + packet[offset + size :])

    def _rename(self, packet: bytes) -> Harm:
        """Name another queue wherever one is named."""
        new = self.chance.choice(self._names)
        for old in self._names:
            packet = packet.replace(old.encode("utf-16-le"), new.encode("utf-16-le"))
        return Harm(f"to {new}", packet)

    def _impersonate(self, packet: bytes) -> Harm:
        return self.impersonate(packet, self.chance.choice(self._guids))

    def impersonate(self, packet: bytes, guid: UUID) -> Harm:
        """Forge the next packets of another peer.

        They carry its identifier and its next numbers, and go to any queue.
        """
        if packet[2] & at.IN:
            return self._change_field(packet)
        source = guid.bytes_le
        first = self._next_number + self.chance.randrange(200)
        new = self._rename(packet).octets
        if int.from_bytes(new[60:64], "little") & at.TH and self.chance.random() < 0.5:
            # A sequence that is newer than any.
            place = locate(new).transaction + 8
            new = new[:place] + struct.pack("<I", self.chance.choice((0x7FFF_FFFF, 0xFFFF_FFFF))) + new[place + 4 :]
        packets = [new[:16] + source + new[32:56] + struct.pack("<I", first + one) + new[60:] for one in range(30)]
        return Harm("as another", b"".join(packets))

    def _drop(self, packet: bytes) -> Harm:
        del packet
        return Harm("dropped", b"")

    def _repeat(self, packet: bytes) -> Harm:
        count = self.chance.choice((2, 2, 3, 70))
        return Harm(f"{count} times", packet * count)

    def _insert(self, packet: bytes) -> Harm:
        other = self.chance.choice(self._recorded)
        pieces = [other, packet] if self.chance.random() < 0.5 else [packet, other]
        return Harm(f"with one of {len(other)} octets", b"".join(pieces))

    def _truncate(self, packet: bytes) -> Harm:
        size = self.chance.randrange(len(packet))
        return Harm(f"cut at {size}", self._sized(packet[:size]))

    def _grow(self, packet: bytes) -> Harm:
        place = self.chance.randrange(len(packet) + 1)
        more = self.chance.randbytes(self.chance.choice((1, 4, 16, 500, 20_000)))
        return Harm(f"{len(more)} octets at {place}", self._sized(packet[:place] + more + packet[place:]))

    def _scramble(self, packet: bytes) -> Harm:
        changed = bytearray(packet)
        first = self.chance.choice((16, 60, 64))
        for _ in range(self.chance.choice((1, 3, 10))):
            if len(changed) > first:
                changed[self.chance.randrange(first, len(changed))] = self.chance.getrandbits(8)
        return Harm("scrambled", bytes(changed))

    def _follow_with_noise(self, packet: bytes) -> Harm:
        return Harm("with noise", packet + self.chance.randbytes(self.chance.choice((1, 15, 16, 100))))

    def _sized(self, packet: bytes) -> bytes:
        """Mostly a packet says how long it is."""
        if len(packet) >= 12 and self.chance.random() < 0.75:
            return packet[:8] + struct.pack("<I", len(packet)) + packet[12:]
        return packet
