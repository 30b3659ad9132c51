"""Digests of what decoding makes of the stubs of all calls: whole, cut off and changed.

They are compared with those of another version.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial

from lanner.rpc.ndr import BadStub, ByteOrder, Syntax, Value
from tests.services.calls import CALLS, Call

MOST_CUTS = 120
CHANGES = 60


def digests() -> dict[str, str]:
    """Digests by method, transfer syntax, byte order and direction."""
    found: dict[str, hashlib._Hash] = {}
    for call in CALLS:
        for syntax in Syntax:
            for order in ("little", "big"):
                for name, octets, decode in _stubs(call, syntax, order):
                    digest = found.setdefault(f"{call.method.name} {syntax.value} {order} {name}", hashlib.sha256())
                    digest.update(octets)
                    for variant in _variants(octets):
                        digest.update(_outcome(decode, variant).encode())
    return {name: digest.hexdigest() for name, digest in found.items()}


def _stubs(call: Call, syntax: Syntax, order: ByteOrder) -> Iterator[tuple[str, bytes, Callable[[bytes], Value]]]:
    method = call.method
    request = method.encode_request(call.arguments, syntax, order)
    yield "request", request, partial(method.decode_request, syntax=syntax, byte_order=order)
    response = method.encode_response(call.results, call.arguments, syntax, order)
    yield (
        "response",
        response,
        partial(method.decode_response, arguments=call.arguments, syntax=syntax, byte_order=order),
    )


def _variants(octets: bytes) -> Iterator[bytes]:
    yield octets
    chance = random.Random(octets)
    cuts = range(len(octets))
    yield from (octets[:size] for size in (cuts if len(cuts) <= MOST_CUTS else chance.sample(cuts, MOST_CUTS)))
    for _ in range(CHANGES if octets else 0):
        changed = bytearray(octets)
        for _ in range(chance.choice((1, 1, 2, 3))):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 2, 255, chance.randrange(256)))
        yield bytes(changed) + bytes(chance.randrange(12) if chance.random() < 0.2 else 0)


def _outcome(decode: Callable[[bytes], Value], octets: bytes) -> str:
    """Return the value, or that there is none, but not the error text."""
    try:
        return repr(decode(octets))
    except BadStub:
        return "refused"
