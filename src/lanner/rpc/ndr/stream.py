"""The octet stream of NDR: transfer syntaxes, byte orders and alignment (C706 14.1, 14.2; MS-RPCE 2.2.5).

Alignment counts from the first octet of the stub.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from lanner.model.errors import RemoteProtocolError

ByteOrder: TypeAlias = Literal["little", "big"]
# What a value is, only its declaration says.
Value: TypeAlias = Any

# Ours: pointers inside what pointers point to. The deepest management property nests three; a
# VT_VARIANT vector could nest as often as its sender likes.
MAX_POINTER_DEPTH: Final = 32
# MS-RPCE 3.1.1.5.3.2.2.1: "at most, 2^31 - 1 elements in each dimension".
MAX_COUNT: Final = 0x7FFF_FFFF
# Ours: elements of arrays, octets and characters aside, in one request. 128 properties are the most
# that a method asks for; a stub of four megabytes that is all elements would keep the event loop
# busy for seconds before anybody asks who sent it.
MAX_REQUEST_ELEMENTS: Final = 16_384
# What Windows counts its referent identifiers from, in steps of four; any nonzero number would do
# (C706 14.3.10).
_FIRST_REFERENT: Final = 0x0002_0000


class BadStub(RemoteProtocolError):
    """The octets are not what the declaration asks for; the call ends in a fault with this status."""

    # MS-RPCE 3.3.3.5.4, MS-ERREF: RPC_X_BAD_STUB_DATA.
    status: Final = 0x0000_06F7

    def at(self, place: str) -> BadStub:
        """The same complaint, with the name of the field or parameter it is about put before it."""
        return BadStub(f"{place}: {self}")


class Syntax(enum.Enum):
    """A transfer syntax; its identifiers are the binding's business."""

    NDR20 = "NDR"  # MS-RPCE 2.2.4.12
    NDR64 = "NDR64"  # MS-RPCE 2.2.5.1


@dataclass(frozen=True, slots=True)
class Representation:
    """A transfer syntax in a byte order."""

    syntax: Syntax
    byte_order: ByteOrder
    index: int  # among REPRESENTATIONS
    prefix: str  # of a struct format
    is_ndr64: bool
    # Octets of a referent identifier and of a count, and their code: NDR64 has both in 8 (MS-RPCE
    # 2.2.5.3.2, 2.2.5.3.5).
    word: int
    word_code: str


REPRESENTATIONS: Final = tuple(
    Representation(
        syntax,
        order,
        index,
        "<" if order == "little" else ">",
        syntax is Syntax.NDR64,
        8 if syntax is Syntax.NDR64 else 4,
        "Q" if syntax is Syntax.NDR64 else "I",
    )
    for index, (syntax, order) in enumerate[tuple[Syntax, ByteOrder]](
        [(Syntax.NDR20, "little"), (Syntax.NDR20, "big"), (Syntax.NDR64, "little"), (Syntax.NDR64, "big")]
    )
)


def representation(syntax: Syntax, byte_order: ByteOrder = "little") -> Representation:
    return REPRESENTATIONS[(2 if syntax is Syntax.NDR64 else 0) + (byte_order == "big")]


@dataclass(frozen=True, slots=True)
class Slot:
    """A field of fixed size: its alignment, its size and its struct code."""

    alignment: int
    size: int
    code: str


class Correlation(NamedTuple):
    """What size_is, length_is and switch_is of a field come to in the call at hand (MS-RPCE 3.1.1.5.3.1)."""

    size: int | None = None
    length: int | None = None
    switch: int | None = None


UNRELATED: Final = Correlation()


class Encoder:
    """A stub being written: the pieces so far and how many octets they have."""

    __slots__ = ("_referent", "parts", "position", "representation")

    def __init__(self, rep: Representation) -> None:
        self.representation = rep
        self.parts: list[bytes] = []
        self.position = 0
        self._referent = _FIRST_REFERENT

    def write(self, data: bytes) -> None:
        self.parts.append(data)
        self.position += len(data)

    def align(self, boundary: int) -> None:
        gap = -self.position % boundary
        if gap:
            self.write(bytes(gap))

    def referent(self) -> int:
        """A referent identifier that this stub has not used."""
        referent = self._referent
        self._referent += 4
        return referent

    def getvalue(self) -> bytes:
        return b"".join(self.parts)


class Decoder:
    """A stub being read; it never moves past its end."""

    __slots__ = ("aliases", "data", "depth", "elements", "end", "position", "representation")

    def __init__(self, data: bytes | memoryview, rep: Representation, *, elements: int = MAX_COUNT) -> None:
        self.representation = rep
        self.elements = elements  # how many more may come
        self.data = data
        self.end = len(data)
        self.position = 0
        self.depth = 0
        # What full pointers have pointed to so far, by referent identifier (C706 14.3.10.2).
        self.aliases: dict[int, Value] = {}

    @property
    def remaining(self) -> int:
        return max(self.end - self.position, 0)

    def take(self, size: int) -> bytes:
        position = self.position
        if size > self.end - position:
            raise BadStub(f"{size} octets wanted, {self.remaining} left")
        self.position = position + size
        return bytes(self.data[position : self.position])

    def align(self, boundary: int) -> None:
        """Skip a gap, whatever it holds (MS-RPCE 3.1.1.5.3.2.2.6)."""
        self.position += -self.position % boundary
