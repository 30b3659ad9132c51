"""The RPC interface `lanner`, for operations that Microsoft's protocols lack.

Requests and answers of `LannerCall` are frames: a 32-bit little-endian size, a JSON document of
that many octets in UTF-8, then the octets of message packets. After a failure the document contains
the HRESULT and the text of the error, so a remote client raises the same error as a program in the
queue manager's process.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final, TypeAlias
from uuid import UUID

from lanner.model.errors import RemoteProtocolError
from lanner.rpc.interface import In, InOut, Interface, Method, Out
from lanner.rpc.ndr import Conformant, ContextHandle, Unique, guid, u8, u32, wide_string
from lanner.services.interfaces.mqmq import HRESULT

Document: TypeAlias = dict[str, Any]

# The handle of everything that one client has open: queues, cursors, reads, transactions. It is
# closed with the association.
LANNER_SESSION_HANDLE: Final = ContextHandle("LANNER_SESSION_HANDLE")
# Not in the specification: the maximum number of octets of one request. It is large enough for the
# largest message and its document.
MAX_REQUEST_SIZE: Final = 0x0080_0000
# Not in the specification: the maximum number of commas in one document, which limits the time that
# parsing takes. The documents of 1,000 messages have fewer, whatever their labels.
MAX_COMMAS: Final = 300_000
_SIZE: Final = struct.Struct("<I")

# Returns the name and identifier of the queue manager.
LANNER_WHO: Final = Method(
    0,
    "LannerWho",
    Out("name", Unique(wide_string)),
    Out("identifier", guid),
    Out("version", Unique(wide_string)),
    returns=HRESULT,
)
# Answers a JSON document with a JSON document, for administrators. After a failure the answer is
# the error text.
LANNER_ASK: Final = Method(
    1, "LannerAsk", In("request", wide_string), Out("answer", Unique(wide_string)), returns=HRESULT
)
LANNER_OPEN_SESSION: Final = Method(2, "LannerOpenSession", Out("session", LANNER_SESSION_HANDLE), returns=HRESULT)
LANNER_CLOSE_SESSION: Final = Method(3, "LannerCloseSession", InOut("session", LANNER_SESSION_HANDLE), returns=HRESULT)
# Answers a frame with a frame.
LANNER_CALL: Final = Method(
    4,
    "LannerCall",
    In("session", LANNER_SESSION_HANDLE),
    In("size", u32),
    In("request", Conformant(u8), size_is="size"),
    Out("answer_size", u32),
    Out("answer", Unique(Conformant(u8)), size_is="answer_size"),
    returns=HRESULT,
)
# Begins the stream of a session on this connection (docs/protocol.md). The client passes the
# highest version that it supports. The answer has the version to use, the run of the server, and
# the keys for both directions, or none.
LANNER_BEGIN_STREAM: Final = Method(
    5,
    "LannerBeginStream",
    In("session", LANNER_SESSION_HANDLE),
    In("version", u32),
    Out("agreed", u32),
    Out("run", guid),
    Out("keys_size", u32),
    Out("keys", Unique(Conformant(u8)), size_is="keys_size"),
    returns=HRESULT,
)
# Binds the connection permanently to a user (services/log_on.py). Takes a JSON document. The answer
# identifies the user, or after a failure is the error text.
LANNER_LOG_ON: Final = Method(
    6, "LannerLogOn", In("request", wide_string), Out("answer", Unique(wide_string)), returns=HRESULT
)

LANNER: Final = Interface(
    "lanner",
    UUID("8d8e1a4c-5b0f-4c1d-9f5e-3a6e0c7b2f41"),
    (1, 3),
    [
        LANNER_WHO,
        LANNER_ASK,
        LANNER_OPEN_SESSION,
        LANNER_CLOSE_SESSION,
        LANNER_CALL,
        LANNER_BEGIN_STREAM,
        LANNER_LOG_ON,
    ],
)


def pack_frame(document: Document, octets: bytes = b"") -> bytes:
    """Pack a document and its octets into a frame."""
    text = json.dumps(document, separators=(",", ":")).encode()
    return b"".join((_SIZE.pack(len(text)), text, octets))


def unpack_frame(frame: bytes) -> tuple[Document, memoryview]:
    """Unpack a frame; raise RemoteProtocolError if it is malformed."""
    if len(frame) < _SIZE.size:
        raise RemoteProtocolError(f"a frame of {len(frame)} octets")
    (size,) = _SIZE.unpack_from(frame)
    if size > len(frame) - _SIZE.size:
        raise RemoteProtocolError(f"a document of {size} octets in a frame of {len(frame)}")
    text = frame[_SIZE.size : _SIZE.size + size]
    if text.count(b",") > MAX_COMMAS:
        raise RemoteProtocolError(f"the document of a frame has more than {MAX_COMMAS} commas")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RemoteProtocolError(f"the document of a frame: {error}") from None
    if not isinstance(document, dict):
        raise RemoteProtocolError("the document of a frame is not an object")
    return document, memoryview(frame)[_SIZE.size + size :]
