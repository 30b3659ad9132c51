"""Message bodies in a terminal: descriptions, previews and hexadecimal."""

from __future__ import annotations

import json

from lanner.cli.errors import CommandError
from lanner.cli.options import AS_IS
from lanner.cli.output import size
from lanner.client.bodies import UNDECODED, json_value, text_of
from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.body_values import BodyKind, BodyValue, decode_body

# The number of bytes that are shown of a body that is not text.
HEX_BYTES = 64
_LINE = 16
# The maximum number of characters of a decoded value, and of a type name.
_VALUE_WIDTH = 100


def encoded(body: bytes, body_type: int, encoding: str) -> bytes:
    """Return a body for a file or a pipe.

    Text is encoded with `encoding`, other bodies are left as they are. Raises CommandError.
    """
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
    """Return the first bytes in lines of sixteen, in hexadecimal and as ASCII."""
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
    if decoded.kind is not BodyKind.TEXT and decoded.kind not in UNDECODED:
        rows.append(("value", _cut(_one_line(decoded), _VALUE_WIDTH)))
    if decoded.reason is not None:
        rows.append(("not decoded", decoded.reason))
    return rows


def preview(body: bytes, body_type: int, width: int = 40) -> str:
    """Return a body in one short line."""
    decoded = decode_body(body, body_type)
    if decoded.kind not in UNDECODED:
        return _cut(_one_line(decoded), width)
    text = text_of(body, body_type)
    if text is not None:
        return _cut(" ".join(text.split()), width)
    if decoded.kind is not BodyKind.BYTES and decoded.type_name is not None:
        return f"[{_cut(decoded.type_name, width)}]"
    shown = body[:12].hex(" ")
    return f"[{shown}{' ...' if len(body) > 12 else ''}]"


def _one_line(decoded: BodyValue) -> str:
    if decoded.kind is BodyKind.ERROR and isinstance(decoded.value, int):
        return f"{decoded.value:#010x}"
    shown = json_value(decoded.value)
    text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return " ".join(text.split())


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."
