"""The trace of a message (W3C Trace Context).

A program may put the context of its span into the message's Extension, as ASCII:
`traceparent=00-TRACE-SPAN-FLAGS`, followed by a semicolon and `tracestate=...` if there is one.
Queue managers do not change it. For a message without it, every computer derives the same trace
from the message's identifier, which does not change on the way. The spans of all hops thus belong
to one trace.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_CARRIED: Final = re.compile(
    rb"traceparent=00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:;tracestate=([\x20-\x7e]{1,512}))?"
)
# Longer Extensions are ignored.
MAX_CARRIED: Final = 640
SAMPLED: Final = 0x01


class TraceContext(NamedTuple):
    """A reference to a span in a trace."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED
    state: str = ""

    def carried(self) -> bytes:
        """Return the value for an Extension."""
        state = f";tracestate={self.state}" if self.state else ""
        return f"traceparent=00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}{state}".encode("ascii")


def read_trace_context(extension: bytes) -> TraceContext | None:
    """Return the context in an Extension, or None if it has different contents."""
    if len(extension) > MAX_CARRIED:
        return None
    found = _CARRIED.fullmatch(extension)
    if found is None:
        return None
    trace, span, flags, state = found.groups()
    context = TraceContext(int(trace, 16), int(span, 16), int(flags, 16), (state or b"").decode("ascii"))
    return context if context.trace_id and context.span_id else None


def trace_of_message(identifier: bytes) -> TraceContext:
    """Return the trace that every computer derives from a message identifier (20 octets).

    The span in it is that of the send.
    """
    digest = hashlib.sha256(b"lanner trace\0" + identifier).digest()
    # Zero is not allowed.
    return TraceContext(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)
