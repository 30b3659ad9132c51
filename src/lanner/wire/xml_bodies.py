"""XML bodies as plain values: those of System.Messaging's XmlMessageFormatter, and other XML.

XmlMessageFormatter names the root element after the type. That is `string`, `int` or `dateTime`
(the names of XML Schema part 2, and `char` and `guid`, which .NET adds), `ArrayOfInt` for arrays
and lists, and the name of the class for other objects.

The value of an element is the first of these that applies:

- None, if it has xsi:nil="true".
- A value of a simple type, if it has an xsi:type that names one. The prefix does not matter. .NET
  writes this for members of type object.
- A value of a simple type, if it is a root or an array element that is named after that type.
- A list of the children's values, if it is a root or an array element whose name begins with
  ArrayOf and whose children all have the same name.
- Its text, if it is any other element without attributes and children.
- Otherwise a dict. It maps the name of each child to its value (a list if the name occurs more than
  once), "@" and the name of each attribute to the attribute's value, and "#text" to the remaining
  text without surrounding white space. Namespaces and xsi attributes are left out.

Such XML is hostile input. A document type declaration, which every attack with entities needs, is
rejected before it is parsed. Depth, size and number of elements are limited. Nothing outside the
body is ever read.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID
from xml.parsers import expat

from lanner.wire.layout import MAX_PACKET_SIZE

Value: TypeAlias = (
    "str | int | float | bool | Decimal | dt.datetime | UUID | bytes | list[Value] | dict[str, Value] | None"
)

# No body is larger than its packet.
MAX_SIZE: Final = MAX_PACKET_SIZE
# Not in the specification.
MAX_DEPTH: Final = 64
# Not in the specification: limits the memory for elements of a few bytes to about 100 MiB.
MAX_ELEMENTS: Final = 250_000
# Not in the specification: characters in the name of an element or attribute, without its
# namespace.
MAX_NAME: Final = 1024
# Not in the specification: the longest decimal of .NET has 31 characters, the longest double 24.
_MAX_NUMBER: Final = 64
# Encodings that a declaration may name. Other names would be looked up among Python's codecs.
_ENCODINGS: Final = frozenset(("utf-8", "utf-16", "us-ascii", "iso-8859-1", "windows-1252"))
_XSI: Final = "http://www.w3.org/2001/XMLSchema-instance"
_WHITE: Final = " \t\r\n"
_ARRAY: Final = "ArrayOf"
# A less-than sign after an optional byte order mark and white space. UTF-16 requires the mark (XML
# 1.0, 4.3.3).
_BEGINNING: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*<|\xff\xfe(?:[ \t\r\n]\0)*<\0|\xfe\xff(?:\0[ \t\r\n])*\0<")


class UndecodableXml(ValueError):
    """A problem with the XML of a body."""


def looks_like_xml(body: bytes) -> bool:
    """Return whether a body begins like an XML document."""
    return _BEGINNING.match(body) is not None


def decode_xml(body: bytes) -> tuple[Value, str]:
    """Return the value of the document and the name of its root element.

    Raise UndecodableXml for a document that is malformed or rejected.
    """
    if len(body) > MAX_SIZE:
        raise UndecodableXml(f"{len(body)} bytes, at most {MAX_SIZE} are read")
    return _Document().parse(body)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def decode(text: str) -> int:
        if len(text) > _MAX_NUMBER or not re.fullmatch(r"[+-]?[0-9]+", text) or not low <= int(text) <= high:
            raise ValueError(f"not an integer from {low} to {high}")
        return int(text)

    return decode


def _boolean(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError("neither true nor false")
    return text in ("true", "1")


_REAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def _real(text: str) -> float:
    if text in ("INF", "-INF", "NaN"):
        return float(text)
    # A number too large for a double is rejected; float() would make it infinite.
    if len(text) > _MAX_NUMBER or not _REAL.fullmatch(text) or math.isinf(float(text)):
        raise ValueError("not a double")
    return float(text)


def _decimal(text: str) -> Decimal:
    if len(text) > _MAX_NUMBER or not re.fullmatch(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)", text):
        raise ValueError("not a decimal")
    return Decimal(text)


# .NET writes up to seven digits of a second, and the zone only if it is known.
_MOMENT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?!24)[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,7}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def _date_time(text: str) -> dt.datetime:
    """Return a moment, truncated to microseconds; it is naive without a zone."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError("not a dateTime")
    seconds, fraction, zone = match.groups()
    digits = f"{fraction or '':0<6}"[:6]
    return dt.datetime.fromisoformat(f"{seconds}.{digits}{zone or ''}")


_GUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _guid(text: str) -> UUID:
    if not _GUID.fullmatch(text):
        raise ValueError("not a GUID")
    return UUID(text)


def _char(text: str) -> str:
    """Return a System.Char, which is written as the number of its UTF-16 code unit."""
    number = _integer(0, 0xFFFF)(text)
    if 0xD800 <= number <= 0xDFFF:
        raise ValueError("half of a surrogate pair")
    return chr(number)


def _base64(text: str) -> bytes:
    return base64.b64decode(re.sub(f"[{_WHITE}]+", "", text), validate=True)


_SIMPLE: Final[dict[str, Callable[[str], Value]]] = {
    "string": str,
    "boolean": _boolean,
    "byte": _integer(-(1 << 7), (1 << 7) - 1),
    "unsignedByte": _integer(0, (1 << 8) - 1),
    "short": _integer(-(1 << 15), (1 << 15) - 1),
    "unsignedShort": _integer(0, (1 << 16) - 1),
    "int": _integer(-(1 << 31), (1 << 31) - 1),
    "unsignedInt": _integer(0, (1 << 32) - 1),
    "long": _integer(-(1 << 63), (1 << 63) - 1),
    "unsignedLong": _integer(0, (1 << 64) - 1),
    "float": _real,
    "double": _real,
    "decimal": _decimal,
    "dateTime": _date_time,
    "char": _char,
    "guid": _guid,
    "base64Binary": _base64,
}


class _Element:
    """An open element."""

    __slots__ = ("attributes", "children", "is_item", "is_nil", "name", "simple_type", "text")

    def __init__(self, name: str, attributes: dict[str, str], parent: _Element | None) -> None:
        namespace, _, self.name = name.rpartition(" ")
        # Only roots and array elements are named after their types. Members have names of their
        # own.
        self.is_item = not namespace and (parent is None or parent.is_array)
        self.is_nil = False
        self.simple_type = self.name if self.is_item and self.name in _SIMPLE else None
        self.attributes: dict[str, Value] = {}
        self.children: list[tuple[str, Value]] = []
        self.text: list[str] = []
        for key, value in attributes.items():
            space, _, local = key.rpartition(" ")
            if space != _XSI:
                self.attributes[f"@{local}"] = value
            elif local == "nil":
                self.is_nil = value.strip(_WHITE) in ("true", "1")
            elif local == "type":
                prefix, _, named = value.strip(_WHITE).rpartition(":")
                if prefix and named in _SIMPLE:
                    self.simple_type = named

    @property
    def is_array(self) -> bool:
        return self.is_item and self.name.startswith(_ARRAY)

    def value(self) -> Value:
        """Return the value of the element, which must be complete."""
        text = "".join(self.text)
        if self.is_nil:
            return None
        if self.simple_type is not None:
            return self._simple_value(self.simple_type, text)
        stripped = text.strip(_WHITE)
        if self.is_array and not stripped and len({name for name, _ in self.children}) <= 1:
            return [value for _, value in self.children]
        if not self.children and not self.attributes:
            return text
        members = dict(self.attributes)
        repeated: dict[str, list[Value]] = {}
        for name, value in self.children:
            if name in repeated:
                repeated[name].append(value)
            elif name in members:
                members[name] = repeated[name] = [members[name], value]
            else:
                members[name] = value
        if stripped:
            members["#text"] = stripped
        return members

    def _simple_value(self, name: str, text: str) -> Value:
        if self.children:
            raise UndecodableXml(f"<{self.name}>: elements in a value of type {name}")
        try:
            return _SIMPLE[name](text if name == "string" else text.strip(_WHITE))
        except ValueError as error:
            raise UndecodableXml(f"<{self.name}>: {name}: {error}") from None


class _Document:
    """A parser for one document, and its open elements."""

    def __init__(self) -> None:
        self._open: list[_Element] = []
        self._count = 0
        # Set when the root element ends. If there is none, expat raises an error.
        self._result: tuple[Value, str] = None, ""

    def parse(self, body: bytes) -> tuple[Value, str]:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.XmlDeclHandler = self._declaration
        parser.StartDoctypeDeclHandler = self._document_type
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(body, True)
        except expat.ExpatError as error:
            raise UndecodableXml(str(error)) from None
        return self._result

    def _declaration(self, _version: str, encoding: str | None, _standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            raise UndecodableXml(f"encoding {encoding[:40]!r}, one of {', '.join(sorted(_ENCODINGS))} is needed")

    def _document_type(self, *_declaration: object) -> None:
        raise UndecodableXml("a document type declaration is refused")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise UndecodableXml(f"more than {MAX_ELEMENTS} elements")
        longest = max(len(each.rpartition(" ")[2]) for each in (name, *attributes))
        if longest > MAX_NAME:
            raise UndecodableXml(f"a name of {longest} characters, at most {MAX_NAME} are read")
        if len(self._open) == MAX_DEPTH:
            raise UndecodableXml(f"elements nested more than {MAX_DEPTH} deep")
        self._open.append(_Element(name, attributes, self._open[-1] if self._open else None))

    def _end(self, _name: str) -> None:
        element = self._open.pop()
        value = element.value()
        if self._open:
            self._open[-1].children.append((element.name, value))
        else:
            self._result = value, element.name

    def _characters(self, text: str) -> None:
        self._open[-1].text.append(text)
