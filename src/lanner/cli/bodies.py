"""Message bodies for people and for JSON: their text, their decoded value, or hexadecimal.

`lanner.wire.body_values` decodes. The one thing that this module adds is a guess for people: a body
without a type that is printable UTF-8 is shown as text.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from uuid import UUID

from lanner.cli.errors import CommandError
from lanner.cli.options import AS_IS
from lanner.cli.output import size
from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.body_values import BodyKind, BodyValue, Value, decode_body

# How much of a body that is no text is shown.
HEX_BYTES = 64
_LINE = 16
# Characters of a value beside the other properties, and of a name that a body holds.
_VALUE_WIDTH = 100
# RFC 8259, section 6: integers beyond this are not exact in every reader of JSON.
_EXACT = 2**53
# Kinds whose value is the body itself.
_UNDECODED = (BodyKind.BYTES, BodyKind.BINARY_FORMATTER, BodyKind.STREAMED_OBJECT, BodyKind.STORED_OBJECT)


def text_of(body: bytes, body_type: int) -> str | None:
    """Return the text that a body holds; None if it holds none.

    The body type decides. Without one, bytes that are UTF-8 and have no control characters are
    text.
    """
    if body_type:
        value = decode_body(body, body_type).value
        return value if isinstance(value, str) else None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None


def encoded(body: bytes, body_type: int, encoding: str) -> bytes:
    """Return a body for a file or a pipe: one whose type is text in an encoding, others as they are. Raises CommandError."""
    if encoding == AS_IS or body_type not in TEXT_BODIES:
        return body
    text = text_of(body, body_type)
    if text is None:
        return body
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        wrong = text[error.start : error.end]
        raise CommandError(f"{wrong!r} cannot be written as {encoding}: give another --encoding, or {AS_IS}") from None


def hex_dump(body: bytes) -> str:
    """The first bytes, sixteen in a line, and what they would be as ASCII."""
    lines = []
    for start in range(0, min(len(body), HEX_BYTES), _LINE):
        part = body[start : min(start + _LINE, HEX_BYTES)]
        ascii_text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:04x}  {part.hex(' '):<{_LINE * 3 - 1}}  {ascii_text}")
    if len(body) > HEX_BYTES:
        lines.append(f"... {len(body)} bytes in all; --raw gives them")
    return "\n".join(lines)


def fields(body: bytes, body_type: int) -> list[tuple[str, str]]:
    """Return the rows that describe a body: kind, type and size, and the value or the reason."""
    decoded = decode_body(body, body_type)
    kind = decoded.kind.replace("_", " ")
    name = decoded.type_name or (f"type {body_type}" if body_type and decoded.kind is BodyKind.BYTES else None)
    shown = kind if name is None else f"{kind} ({_cut(name, _VALUE_WIDTH)})"
    rows = [("body", f"{shown}, {size(len(body))}")]
    if decoded.kind is not BodyKind.TEXT and decoded.kind not in _UNDECODED:
        rows.append(("value", _cut(_one_line(decoded), _VALUE_WIDTH)))
    if decoded.reason is not None:
        rows.append(("not decoded", decoded.reason))
    return rows


def preview(body: bytes, body_type: int, width: int = 40) -> str:
    """Return a body in one short line."""
    decoded = decode_body(body, body_type)
    if decoded.kind not in _UNDECODED:
        return _cut(_one_line(decoded), width)
    text = text_of(body, body_type)
    if text is not None:
        return _cut(" ".join(text.split()), width)
    if decoded.kind is not BodyKind.BYTES and decoded.type_name is not None:
        return f"[{_cut(decoded.type_name, width)}]"
    shown = body[:12].hex(" ")
    return f"[{shown}{' ...' if len(body) > 12 else ''}]"


def json_body(body: bytes, body_type: int) -> dict[str, object]:
    """Return the members of a message's JSON that describe its body.

    `body` is the text or the bytes in base64, as `body_encoding` says; `body_value` is the decoded
    value and `body_kind` the format.
    """
    text = text_of(body, body_type)
    decoded = decode_body(body, body_type)
    return {
        "body": base64.b64encode(body).decode() if text is None else text,
        "body_encoding": "base64" if text is None else "text",
        "body_kind": decoded.kind.value,
        "body_value": json_value(decoded.value),
        "body_type_name": decoded.type_name,
        "body_reason": decoded.reason,
    }


def json_value(value: Value) -> object:
    """Return a value as JSON can hold it without loss.

    Text for what JSON has no type for (moments in ISO 8601, decimals, GUIDs, bytes in base64), for
    integers that not every reader keeps exact, and for INF, -INF and NaN.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return value if -_EXACT <= value <= _EXACT else str(value)
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else ("INF" if value > 0 else "-INF")
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case UUID():
            return str(value)
        case list():
            return [json_value(each) for each in value]
        case dict():
            return {name: json_value(each) for name, each in value.items()}


def _one_line(decoded: BodyValue) -> str:
    if decoded.kind is BodyKind.ERROR and isinstance(decoded.value, int):
        return f"{decoded.value:#010x}"
    shown = json_value(decoded.value)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return " ".join(text.split())


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."
