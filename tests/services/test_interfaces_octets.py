"""Every method of every interface, in both syntaxes and byte orders.

The calls make round trips, and are truncated and damaged.
"""

from __future__ import annotations

import contextlib
import itertools
import tracemalloc
from collections.abc import Callable
from typing import Literal

import pytest

from lanner.rpc.ndr import BadStub, Syntax, Value
from tests.services.calls import CALLS, INTERFACES, Call

FORMS = list(itertools.product(Syntax, ("little", "big")))
ByteOrder = Literal["little", "big"]


def directions(
    call: Call, syntax: Syntax, order: ByteOrder
) -> list[tuple[bytes, dict[str, Value], Callable[[bytes], dict[str, Value]]]]:
    """Request and response: the octets, the values, and how to read them."""
    method = call.method
    return [
        (
            method.encode_request(call.arguments, syntax, order),
            call.arguments,
            lambda data: method.decode_request(data, syntax, order),
        ),
        (
            method.encode_response(call.results, call.arguments, syntax, order),
            call.results,
            lambda data: method.decode_response(data, call.arguments, syntax, order),
        ),
    ]


def test_every_method_is_among_the_calls() -> None:
    methods = {method for interface in INTERFACES for method in interface.methods if method is not None}
    assert methods == {call.method for call in CALLS}


@pytest.mark.parametrize(("syntax", "order"), FORMS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_what_is_written_is_read_again(call: Call, syntax: Syntax, order: ByteOrder) -> None:
    for octets, values, decode in directions(call, syntax, order):
        assert decode(octets) == values
        assert decode(octets + bytes(7)) == values
        with pytest.raises(BadStub, match="left over"):
            decode(octets + bytes(8))


@pytest.mark.parametrize(("syntax", "order"), FORMS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_every_truncation_is_refused(call: Call, syntax: Syntax, order: ByteOrder) -> None:
    for octets, _, decode in directions(call, syntax, order):
        for size in range(len(octets)):
            with pytest.raises(BadStub):
                decode(octets[:size])


@pytest.mark.parametrize(("syntax", "order"), FORMS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_changed_octet_gives_a_value_or_a_refusal(call: Call, syntax: Syntax, order: ByteOrder) -> None:
    """Never another exception."""
    for octets, _, decode in directions(call, syntax, order):
        for position in range(len(octets)):
            damaged = bytearray(octets)
            damaged[position] ^= (0x01, 0x80, 0xFF)[position % 3]
            with contextlib.suppress(BadStub):
                decode(bytes(damaged))


@pytest.mark.parametrize("syntax", Syntax)
def test_no_count_takes_memory_before_its_octets_are_there(syntax: Syntax) -> None:
    """Every count, identifier and number of every call is set to its maximum.

    Each such call allocates little memory.
    """
    damaged: list[tuple[Callable[[bytes], dict[str, Value]], bytes]] = []
    for call in CALLS:
        for octets, _, decode in directions(call, syntax, "little"):
            damaged += [
                (decode, octets[:start] + value + octets[start + 4 :])
                for start in range(0, len(octets) - 3, 4)
                for value in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\x00", b"\xff\xff\xff\xff")
            ]
    tracemalloc.start()
    try:
        for decode, octets in damaged:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            with contextlib.suppress(BadStub):
                decode(octets)
            _, peak = tracemalloc.get_traced_memory()
            # Other threads of the test process allocate, too; a count that is believed would take
            # megabytes.
            assert peak - before < 500_000 + 40 * len(octets)
    finally:
        tracemalloc.stop()
