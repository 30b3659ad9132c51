"""ORPCTHIS and ORPCTHAT, which precede the parameters of every object call (MS-DCOM 2.2.13).

Extensions (ORPC_EXTENT) are read and ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from lanner.com.constants import COM_VERSION
from lanner.rpc.ndr import (
    BadStub,
    Conformant,
    Struct,
    Unique,
    guid,
    u8,
    u16,
    u32,
)


@dataclass(frozen=True, slots=True)
class ComVersion:
    """COMVERSION, MS-DCOM 2.2.11."""

    major_version: Annotated[int, u16]
    minor_version: Annotated[int, u16]

    @property
    def is_served(self) -> bool:
        """Whether we support this version (MS-DCOM 1.7).

        Its major version must be ours, and its minor version not above ours.
        """
        major, minor = COM_VERSION
        return self.major_version == major and self.minor_version <= minor


COMVERSION: Final = Struct(ComVersion)
OUR_VERSION: Final = ComVersion(*COM_VERSION)


@dataclass(frozen=True, slots=True)
class OrpcExtent:
    """ORPC_EXTENT, MS-DCOM 2.2.13.1: data in a format named by `id`.

    It is padded to a multiple of eight.
    """

    id: Annotated[UUID, guid]
    size: Annotated[int, u32]  # without the padding
    data: Annotated[bytes, Conformant(u8)]

    @classmethod
    def of(cls, identifier: UUID, data: bytes) -> OrpcExtent:
        return cls(identifier, len(data), data + bytes(-len(data) % 8))


def _check_extent(extent: OrpcExtent, max_count: int) -> None:
    """Check size_is((size+7) & ~7), an expression that declarations cannot state."""
    if max_count != (extent.size + 7) & ~7:
        raise BadStub(f"an extent of {extent.size} octets in {max_count}")


ORPC_EXTENT: Final = Struct(OrpcExtent, check=_check_extent)


@dataclass(frozen=True, slots=True)
class OrpcExtentArray:
    """ORPC_EXTENT_ARRAY, MS-DCOM 2.2.13.2: the extents, padded with a NULL to an even number."""

    size: Annotated[int, u32]
    reserved: Annotated[int, u32]
    # size_is((size+1) & ~1). A mismatch is ignored, because extents are not used.
    extent: Annotated[tuple[OrpcExtent | None, ...] | None, Unique(Conformant(Unique(ORPC_EXTENT)))]

    @classmethod
    def of(cls, *extents: OrpcExtent) -> OrpcExtentArray:
        return cls(len(extents), 0, extents + (None,) * (len(extents) % 2))


_EXTENSIONS: Final = Unique(Struct(OrpcExtentArray))


@dataclass(frozen=True, slots=True)
class OrpcThis:
    """ORPCTHIS, MS-DCOM 2.2.13.3."""

    version: Annotated[ComVersion, COMVERSION]
    flags: Annotated[int, u32]
    reserved1: Annotated[int, u32]
    cid: Annotated[UUID, guid]
    extensions: Annotated[OrpcExtentArray | None, _EXTENSIONS]

    @classmethod
    def of(cls, cid: UUID, version: ComVersion = OUR_VERSION) -> OrpcThis:
        """Start a call in a causality chain."""
        return cls(version, 0, 0, cid, None)


@dataclass(frozen=True, slots=True)
class OrpcThat:
    """ORPCTHAT, MS-DCOM 2.2.13.4."""

    flags: Annotated[int, u32] = 0
    extensions: Annotated[OrpcExtentArray | None, _EXTENSIONS] = None


ORPCTHIS: Final = Struct(OrpcThis)
ORPCTHAT: Final = Struct(OrpcThat)
