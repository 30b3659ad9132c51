"""Bodies as text where they are text, else as hexadecimal. An object in a body is bytes: nothing is ever deserialised."""

from __future__ import annotations

import base64

from lanner.wire.body_types import TEXT_BODIES

# How much of a body that is no text is shown.
HEX_BYTES = 64
_LINE = 16


def text_of(body: bytes, body_type: int) -> str | None:
    """The text a body holds; None if it holds none.

    The body type decides. Without one, bytes that are UTF-8 and have no control characters are text.
    """
    encoding = TEXT_BODIES.get(body_type)
    try:
        if encoding is not None:
            # Windows programs often send the terminator too.
            return body.decode(encoding).removesuffix("\0")
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    if body_type or not all(character.isprintable() or character in "\t\r\n" for character in text):
        return None
    return text


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


def preview(body: bytes, body_type: int, width: int = 40) -> str:
    """A body in one short line."""
    text = text_of(body, body_type)
    if text is None:
        shown = body[:12].hex(" ")
        return f"[{shown}{' ...' if len(body) > 12 else ''}]"
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."


def json_body(body: bytes, body_type: int) -> dict[str, str]:
    """`body`, and in `body_encoding` whether it is the text or the bytes in base64."""
    text = text_of(body, body_type)
    if text is None:
        return {"body": base64.b64encode(body).decode(), "body_encoding": "base64"}
    return {"body": text, "body_encoding": "text"}
