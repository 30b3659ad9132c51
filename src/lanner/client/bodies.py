"""Message bodies for people and for JSON: their text, or their decoded value.

`lanner.wire.body_values` decodes. This module only adds a guess for people: a body without a type
that is printable UTF-8 is shown as text.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from decimal import Decimal
from uuid import UUID

from lanner.wire.body_values import BodyKind, Value, decode_body

# RFC 8259, section 6: not every JSON parser keeps larger integers exact.
_EXACT = 2**53
# Kinds whose value is the body itself.
UNDECODED = (BodyKind.BYTES, BodyKind.BINARY_FORMATTER, BodyKind.STREAMED_OBJECT, BodyKind.STORED_OBJECT)


def text_of(body: bytes, body_type: int) -> str | None:
    """Return the text that a body holds; None if it is not text.

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

    These become text: values for which JSON has no type (moments in ISO 8601, decimals, GUIDs,
    bytes in base64), integers that not every parser keeps exact, and INF, -INF and NaN.
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
