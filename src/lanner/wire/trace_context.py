"""The trace that a message belongs to (W3C Trace Context): carried in its Extension, or made from its identifier.

A program may carry the context of its span in Extension, as ASCII:
`traceparent=00-TRACE-SPAN-FLAGS`, and after a semicolon `tracestate=...` if there is one. No queue
manager changes it. For a message without it every computer makes the same trace from the
identifier, which a message keeps on its way, so that the spans of its hops are found together.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

_CARRIED: Final = re.compile(
    rb"traceparent=00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:;tracestate=([\x20-\x7e]{1,512}))?"
)
# Of what is longer nothing is looked at.
MAX_CARRIED: Final = 640
SAMPLED: Final = 0x01


class TraceContext(NamedTuple):
    """A span in a trace, as others refer to it."""

    trace_id: int
    span_id: int
    flags: int = SAMPLED
    state: str = ""

    def carried(self) -> bytes:
        """Return what an Extension has."""
        state = f";tracestate={self.state}" if self.state else ""
        return f"traceparent=00-{self.trace_id:032x}-{self.span_id:016x}-{self.flags:02x}{state}".encode("ascii")


def read_trace_context(extension: bytes) -> TraceContext | None:
    """Return the context that an Extension carries; None if it is something else."""
    if len(extension) > MAX_CARRIED:
        return None
    found = _CARRIED.fullmatch(extension)
    if found is None:
        return None
    trace, span, flags, state = found.groups()
    context = TraceContext(int(trace, 16), int(span, 16), int(flags, 16), (state or b"").decode("ascii"))
    return context if context.trace_id and context.span_id else None


def trace_of_message(identifier: bytes) -> TraceContext:
    """Return the trace that every computer makes from the identifier of a message (20 octets), and in it the span of its send."""
    digest = hashlib.sha256(b"lanner trace\0" + identifier).digest()
    # Zero is not allowed.
    return TraceContext(int.from_bytes(digest[:16], "big") or 1, int.from_bytes(digest[16:24], "big") or 1)
