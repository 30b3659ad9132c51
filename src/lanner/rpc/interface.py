"""Interfaces and methods: one declaration encodes and decodes requests and responses.

A declaration serves both sides. A parameter that is a reference pointer is declared as its target,
and a handle_t is not declared: neither has octets. The return value of a method is the last of its
results, under the name RETURNS.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from lanner.rpc.call_log import name_interface
from lanner.rpc.ndr.constructed import Argument, Field, Parameters, Related
from lanner.rpc.ndr.stream import (
    MAX_REQUEST_ELEMENTS,
    UNRELATED,
    BadStub,
    ByteOrder,
    Correlation,
    Decoder,
    Encoder,
    Syntax,
    Value,
    representation,
)
from lanner.rpc.ndr.types import Type

RETURNS: Final = "returns"
# The maximum number of octets after the last parameter. They fill the gap before a verification
# trailer, or before the end of a padded stub.
_MAX_PADDING: Final = 7


@dataclass(frozen=True, slots=True)
class Parameter(Field):
    """A parameter of a method, with its directions."""

    is_in: bool = False
    is_out: bool = False


def _parameter(
    name: str,
    kind: Type,
    size_is: Argument,
    length_is: Argument,
    switch_is: Argument,
    *,
    is_in: bool = False,
    is_out: bool = False,
) -> Parameter:
    related = Related(size_is, length_is, switch_is)
    return Parameter(name, kind, None if related == Related() else related, is_in, is_out)


def In(  # noqa: N802  reads as the IDL does
    name: str, kind: Type, *, size_is: Argument = None, length_is: Argument = None, switch_is: Argument = None
) -> Parameter:
    return _parameter(name, kind, size_is, length_is, switch_is, is_in=True)


def Out(  # noqa: N802
    name: str, kind: Type, *, size_is: Argument = None, length_is: Argument = None, switch_is: Argument = None
) -> Parameter:
    return _parameter(name, kind, size_is, length_is, switch_is, is_out=True)


def InOut(  # noqa: N802
    name: str, kind: Type, *, size_is: Argument = None, length_is: Argument = None, switch_is: Argument = None
) -> Parameter:
    return _parameter(name, kind, size_is, length_is, switch_is, is_in=True, is_out=True)


def _decode(stub: Parameters, decoder: Decoder, known: Mapping[str, Value]) -> dict[str, Value]:
    values = stub.decode(decoder, known)
    left = decoder.end - decoder.position
    # A negative number means that the stub ends inside the gap that closes a structure in NDR64.
    if not 0 <= left <= _MAX_PADDING:
        raise BadStub(f"{left} octets left over")
    return values


def _encode(stub: Parameters, values: Mapping[str, Value], syntax: Syntax, byte_order: ByteOrder) -> bytes:
    encoder = Encoder(representation(syntax, byte_order))
    stub.encode(encoder, values)
    return encoder.getvalue()


def _correlation(member: Field, values: Mapping[str, Value]) -> Correlation:
    return UNRELATED if member.related is None else member.related.resolve(values)


class Method:
    """One operation: the parameters of its request and of its response."""

    def __init__(self, opnum: int, name: str, *parameters: Parameter, returns: Type | None = None) -> None:
        self.opnum = opnum
        self.name = name  # in the document's spelling
        self.parameters = parameters
        self.returns = returns
        known = {member.name for member in parameters if member.is_in}
        self._check("request", [member for member in parameters if member.is_in], set())
        results = [member for member in parameters if member.is_out]
        self._check("response", results, known)
        if returns is not None:
            results.append(Out(RETURNS, returns))
        self._request = Parameters([member for member in parameters if member.is_in], f"{name} request")
        self._response = Parameters(results, f"{name} response")
        self._results = results
        self._result_names = {member.name for member in results}

    def __repr__(self) -> str:
        return f"<{self.name}, opnum {self.opnum}>"

    def _check(self, what: str, members: Sequence[Parameter], known: set[str]) -> None:
        for member in members:
            related = member.related or Related()
            for argument in (related.size_is, related.length_is, related.switch_is):
                if isinstance(argument, str) and argument not in known:
                    raise TypeError(f"{self.name} {what}: {member.name} comes before {argument}, which it depends on")
            known.add(member.name)

    def encode_request(
        self, arguments: Mapping[str, Value], syntax: Syntax = Syntax.NDR20, byte_order: ByteOrder = "little"
    ) -> bytes:
        """Return the stub of a call. Raises ValueError for values that cannot be sent."""
        unknown = arguments.keys() - set(self._request.names)
        missing = set(self._request.names) - arguments.keys()
        if unknown or missing:
            raise TypeError(f"{self.name}: arguments missing {sorted(missing)}, unknown {sorted(unknown)}")
        try:
            return _encode(self._request, arguments, syntax, byte_order)
        except (ValueError, struct.error) as problem:
            raise ValueError(f"{self.name} request: {problem}") from problem

    def decode_request(
        self, data: bytes | memoryview, syntax: Syntax = Syntax.NDR20, byte_order: ByteOrder = "little"
    ) -> dict[str, Value]:
        """Return the arguments of a call by name. Raises BadStub."""
        try:
            decoder = Decoder(data, representation(syntax, byte_order), elements=MAX_REQUEST_ELEMENTS)
            return _decode(self._request, decoder, {})
        except BadStub as problem:
            raise problem.at(f"{self.name} request") from None

    def encode_response(
        self,
        results: Mapping[str, Value],
        arguments: Mapping[str, Value],
        syntax: Syntax = Syntax.NDR20,
        byte_order: ByteOrder = "little",
    ) -> bytes:
        """Return the stub of an answer to a call with these arguments.

        A result that is left out is returned as it was received; one that is only an out parameter
        becomes zero, empty or NULL.
        """
        if not results.keys() <= self._result_names:
            raise TypeError(f"{self.name}: unknown results {sorted(results.keys() - self._result_names)}")
        values = {**arguments, **results}
        for member in self._results:
            if member.name not in values:
                values[member.name] = member.type.default(_correlation(member, values))
        try:
            return _encode(self._response, values, syntax, byte_order)
        except (ValueError, struct.error) as problem:
            raise ValueError(f"{self.name} response: {problem}") from problem

    def decode_response(
        self,
        data: bytes | memoryview,
        arguments: Mapping[str, Value],
        syntax: Syntax = Syntax.NDR20,
        byte_order: ByteOrder = "little",
    ) -> dict[str, Value]:
        """Return the results of a call that had these arguments. Raises BadStub."""
        try:
            return _decode(self._response, Decoder(data, representation(syntax, byte_order)), arguments)
        except BadStub as problem:
            raise problem.at(f"{self.name} response") from None


class Interface:
    """A set of methods with a UUID, a version, and the supported transfer syntaxes."""

    def __init__(
        self,
        name: str,
        uuid: UUID,
        version: tuple[int, int],
        methods: Sequence[Method | None],
        syntaxes: Sequence[Syntax] = (Syntax.NDR20, Syntax.NDR64),
    ) -> None:
        """Declare an interface by its methods in the order of their opnums.

        None stands for an opnum that is not used on the wire.
        """
        self.name = name
        self.uuid = uuid
        self.version = version  # major, minor
        self.syntaxes = tuple(syntaxes)
        self.methods = tuple(methods)
        self.by_name: dict[str, Method] = {}
        for opnum, method in enumerate(self.methods):
            if method is None:
                continue
            if method.opnum != opnum or method.name in self.by_name:
                raise TypeError(f"{name}: {method!r} is in the place of opnum {opnum}, or there twice")
            self.by_name[method.name] = method
        name_interface(uuid, name, self._method_name)

    def __repr__(self) -> str:
        return "<{} v{}.{}, {}>".format(self.name, *self.version, self.uuid)

    def method(self, opnum: int) -> Method | None:
        """Return the method of an opnum, or None: such a call gets the fault nca_op_rng_error."""
        return self.methods[opnum] if opnum < len(self.methods) else None

    def _method_name(self, opnum: int) -> str | None:
        method = self.method(opnum)
        return None if method is None else method.name
