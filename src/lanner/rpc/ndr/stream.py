"""The octet stream of NDR: transfer syntaxes, byte orders, alignment (C706 14.1, 14.2).

MS-RPCE 2.2.5 extends it. Alignment counts from the first octet of the stub.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from lanner.model.errors import RemoteProtocolError

ByteOrder: TypeAlias = Literal["little", "big"]
# The type of a value depends on its declaration.
Value: TypeAlias = Any

# Not in the specification: the maximum nesting of pointers. The deepest management property nests
# three; a VT_VARIANT vector could nest as deeply as its sender likes.
MAX_POINTER_DEPTH: Final = 32
# MS-RPCE 3.1.1.5.3.2.2.1: "at most, 2^31 - 1 elements in each dimension".
MAX_COUNT: Final = 0x7FFF_FFFF
# Not in the specification: the maximum number of elements of arrays, other than octets and
# characters, in one request. No method requests more than 128 properties. A stub of four megabytes
# of elements would keep the event loop busy for seconds before the sender is authenticated.
MAX_REQUEST_ELEMENTS: Final = 16_384
# The first referent identifier of Windows, which counts in steps of four. Any nonzero number would
# do (C706 14.3.10).
_FIRST_REFERENT: Final = 0x0002_0000


class BadStub(RemoteProtocolError):
    """The octets do not match the declaration. The call ends in a fault with this status."""

    # MS-RPCE 3.3.3.5.4, MS-ERREF: RPC_X_BAD_STUB_DATA.
    status: Final = 0x0000_06F7

    def at(self, place: str) -> BadStub:
        """Return the same error, prefixed with the name of the field or parameter."""
        return BadStub(f"{place}: {self}")


class Syntax(enum.Enum):
    """A transfer syntax. The binding has its identifiers."""

    NDR20 = "NDR"  # MS-RPCE 2.2.4.12
    NDR64 = "NDR64"  # MS-RPCE 2.2.5.1


@dataclass(frozen=True, slots=True)
class Representation:
    """A transfer syntax in a byte order."""

    syntax: Syntax
    byte_order: ByteOrder
    index: int  # in REPRESENTATIONS
    prefix: str  # for a struct format
    is_ndr64: bool
    # Octets of a referent identifier and of a count, and their struct code: 8 in NDR64 (MS-RPCE
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
    """The values of size_is, length_is and switch_is of a field in a call (MS-RPCE 3.1.1.5.3.1)."""

    size: int | None = None
    length: int | None = None
    switch: int | None = None


UNRELATED: Final = Correlation()


class Encoder:
    """A stub that is being written: the pieces so far, and their size in octets."""

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
        """Return a referent identifier that this stub has not used."""
        referent = self._referent
        self._referent += 4
        return referent

    def getvalue(self) -> bytes:
        return b"".join(self.parts)


class Decoder:
    """A stub that is being read. The position never moves past its end."""

    __slots__ = ("aliases", "data", "depth", "elements", "end", "position", "representation")

    def __init__(self, data: bytes | memoryview, rep: Representation, *, elements: int = MAX_COUNT) -> None:
        self.representation = rep
        self.elements = elements  # the number that may still follow
        self.data = data
        self.end = len(data)
        self.position = 0
        self.depth = 0
        # The targets of full pointers so far, by referent identifier (C706 14.3.10.2).
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
        """Skip a gap, whatever its content (MS-RPCE 3.1.1.5.3.2.2.6)."""
        self.position += -self.position % boundary
