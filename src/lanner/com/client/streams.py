"""Remote objects that can save themselves (IPersistStream), and the stream they write to (IStream).

The interfaces are those of objidl.idl and ocidl.idl. The result has the format of OleSaveToStream:
the CLSID of the object, then the output of its Save.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final
from uuid import UUID

from lanner.com.client.remote_interface import RemoteInterface
from lanner.com.constants import E_NOINTERFACE
from lanner.com.members import InterfaceTable, Member, Parameter
from lanner.com.objects import ComCall, ComError, ComObject

IID_ISTREAM: Final = UUID("0000000c-0000-0000-c000-000000000046")
IID_IPERSISTSTREAM: Final = UUID("00000109-0000-0000-c000-000000000046")
IID_IPERSISTSTREAMINIT: Final = UUID("7fd52380-4e07-101b-ae2d-08002b2ec713")
# MS-ERREF 2.1.
STG_E_INVALIDFUNCTION: Final = 0x8003_0001
STG_E_MEDIUMFULL: Final = 0x8003_0070
# Not in the specification: the seconds that an object may take to save itself.
SAVE_TIMEOUT: Final = 30.0  # seconds
# STREAM_SEEK_SET, STREAM_SEEK_CUR and STREAM_SEEK_END.
_SEEK_SET, _SEEK_CURRENT, _SEEK_END = 0, 1, 2

# On the wire these are RemoteRead, RemoteWrite and RemoteSeek. CopyTo, the locks, Stat and Clone
# are not implemented: saving an object does not need them.
ISTREAM: Final = InterfaceTable(
    "IStream",
    IID_ISTREAM,
    "IUnknown",
    is_dual=False,
    members=(
        Member(
            3,
            -1,
            "method",
            "Read",
            (
                Parameter("pv", "out", "byte*", size_is="cb", length_is="pcbRead"),
                Parameter("cb", "in", "ULONG"),
                Parameter("pcbRead", "out", "ULONG*"),
            ),
            "read",
        ),
        Member(
            4,
            -1,
            "method",
            "Write",
            (
                Parameter("pv", "in", "byte*", size_is="cb"),
                Parameter("cb", "in", "ULONG"),
                Parameter("pcbWritten", "out", "ULONG*"),
            ),
            "write",
        ),
        Member(
            5,
            -1,
            "method",
            "Seek",
            (
                Parameter("dlibMove", "in", "LARGE_INTEGER"),
                Parameter("dwOrigin", "in", "DWORD"),
                Parameter("plibNewPosition", "out", "ULARGE_INTEGER*"),
            ),
            "seek",
        ),
        Member(6, -1, "method", "SetSize", (Parameter("libNewSize", "in", "ULARGE_INTEGER"),), "set_size"),
        Member(8, -1, "method", "Commit", (Parameter("grfCommitFlags", "in", "DWORD"),), "commit"),
        Member(9, -1, "method", "Revert", (), "revert"),
    ),
)
GET_CLASS_ID: Final = Member(3, -1, "method", "GetClassID", (Parameter("pClassID", "out", "CLSID*"),), "get_class_id")
SAVE: Final = Member(
    6,
    -1,
    "method",
    "Save",
    (Parameter("pStm", "in", "IStream*", iid=IID_ISTREAM), Parameter("fClearDirty", "in", "BOOL")),
    "save",
)


class MemoryStream(ComObject):
    """A stream in memory with a maximum size."""

    interfaces: ClassVar[tuple[InterfaceTable, ...]] = (ISTREAM,)

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._data = bytearray()
        self._position = 0

    def getvalue(self) -> bytes:
        return bytes(self._data)

    def read(self, call: ComCall, count: int) -> tuple[bytes, int]:
        """Read up to `count` octets."""
        del call
        found = bytes(self._data[self._position : self._position + count])
        self._position += len(found)
        return found, len(found)

    def write(self, call: ComCall, data: bytes, count: int) -> int:
        """Write all of the data, or raise."""
        del call
        end = self._position + count
        self._resize(max(end, len(self._data)))
        self._data[self._position : end] = data
        self._position = end
        return count

    def seek(self, call: ComCall, move: int, origin: int) -> int:
        """Set the position, which may be beyond the end."""
        del call
        origins = {_SEEK_SET: 0, _SEEK_CURRENT: self._position, _SEEK_END: len(self._data)}
        position = origins.get(origin, -1) + move
        if origin not in origins or position < 0:
            raise ComError(STG_E_INVALIDFUNCTION, f"seek {move} from {origin}")
        self._position = position
        return position

    def set_size(self, call: ComCall, size: int) -> None:
        """Truncate or zero-fill the stream to a size."""
        del call
        self._resize(size)

    def commit(self, call: ComCall, flags: int) -> None:
        """Do nothing: writes take effect immediately."""
        del call, flags

    def revert(self, call: ComCall) -> None:
        """Do nothing: the stream is not transacted, so writes stay."""
        del call

    def _resize(self, size: int) -> None:
        if size > self._max_size:
            raise ComError(STG_E_MEDIUMFULL, f"a stream of {size} octets, at most {self._max_size}")
        missing = size - len(self._data)
        if missing < 0:
            del self._data[size:]
        else:
            self._data += bytes(missing)


async def saved(remote: RemoteInterface, max_size: int) -> bytes:
    """Return the saved form of an object. Raise ComError if it fails or takes too long."""
    persistent = await _persistent(remote)
    stream = MemoryStream(max_size)
    try:
        async with asyncio.timeout(SAVE_TIMEOUT):
            (clsid,) = await persistent.call(GET_CLASS_ID)
            await persistent.call(SAVE, stream, 0)
    except TimeoutError:
        raise ComError(E_NOINTERFACE, f"{remote!r} does not save itself") from None
    finally:
        persistent.release()
    return UUID(str(clsid)).bytes_le + stream.getvalue()


async def _persistent(remote: RemoteInterface) -> RemoteInterface:
    for iid in (IID_IPERSISTSTREAM, IID_IPERSISTSTREAMINIT):
        try:
            return await remote.query_interface(iid)
        except ComError as error:
            if error.hresult != E_NOINTERFACE:
                raise
    raise ComError(E_NOINTERFACE, f"{remote!r} has no IPersistStream")
