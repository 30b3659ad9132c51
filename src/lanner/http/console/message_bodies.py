"""Message bodies for the console: which ways there are to show one, and its lines.

Bodies are hostile. Nothing here parses in a way that can expand or recurse: XML is laid out from its tags alone, in
one pass, and entities stay as they are written. Every piece of a line is text that the template escapes, with the
name of a class of console.css beside it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.body_values import BodyKind, BodyValue, decode_body
from lanner.wire.xml_bodies import Value

# How much of a body is shown before somebody asks for all of it.
SHOWN_BYTES: Final = 64 * 1024
_HEX_LINE: Final = 16
_MAX_DEPTH: Final = 64
_ATTRIBUTE: Final = re.compile(r'([\w.:-]+)(\s*=\s*)("[^"]*"|\'[^\']*\')')
_JSON_TOKEN: Final = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*|true|false|null)')
_TITLES: Final = {"xml": "XML", "json": "JSON", "value": ".NET", "text": "Text", "hex": "Hex"}

# A piece of a line: a class of console.css, or "", and the text.
Piece = tuple[str, str]
Line = list[Piece]


@dataclass(frozen=True, slots=True)
class BodyView:
    """A body as one page shows it."""

    form: str
    forms: tuple[tuple[str, str], ...]
    described: str
    lines: list[Line]
    is_cut: bool


def kind_word(body: bytes, body_type: int) -> str:
    """Return one word for the column of a list."""
    forms = _forms(body, body_type)
    return "Bytes" if forms[0] == "hex" else _TITLES[forms[0]]


def text_of(body: bytes, body_type: int) -> tuple[str, str] | None:
    """Return the text of a body and the encoding it was read with; None if it holds no text."""
    encoding = TEXT_BODIES.get(body_type)
    if encoding is not None:
        try:
            return body.decode(encoding), encoding.upper()
        except UnicodeDecodeError:
            return None
    if body_type:
        return None
    try:
        if body.startswith((b"\xff\xfe", b"\xfe\xff")):
            text, encoding = body.decode("utf-16"), "UTF-16"
        else:
            text, encoding = body.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError:
        return None
    is_text = all(character.isprintable() or character in "\t\r\n" for character in text[:SHOWN_BYTES])
    return (text, encoding) if is_text and text else None


def view_body(body: bytes, body_type: int, form: str | None, *, whole: bool) -> BodyView:
    """Return a body in the wanted form, or in the best one it has."""
    forms = _forms(body, body_type)
    chosen = form if form in forms else forms[0]
    is_cut = not whole and len(body) > SHOWN_BYTES
    decoded = text_of(body, body_type)
    text, encoding = decoded or ("", "")
    text = text if whole else text[:SHOWN_BYTES]
    how = {
        "xml": f"{encoding}, laid out for reading",
        "json": f"{encoding}, laid out for reading",
        "text": f"{encoding}, as it is",
        "hex": "bytes as they are",
        "value": _described(decode_body(body, body_type)),
    }[chosen]
    lines: list[Line]
    match chosen:
        case "xml":
            lines = list(_xml_lines(text))
        case "json":
            lines = _json_lines(text)
        case "text":
            lines = [[("", line)] for line in text.splitlines()]
        case "value":
            lines = _value_lines(decode_body(body, body_type))
        case _:
            lines = _hex_lines(body if whole else body[:SHOWN_BYTES])
    titles = tuple((name, _TITLES[name]) for name in forms)
    return BodyView(chosen, titles, how, lines, is_cut)


def _forms(body: bytes, body_type: int) -> list[str]:
    """Return the forms a body can be shown in, the best one first."""
    if not body:
        return ["hex"]
    forms = []
    decoded = text_of(body[: 4 * SHOWN_BYTES] if len(body) > 4 * SHOWN_BYTES else body, body_type)
    if decoded is not None:
        start = decoded[0].lstrip()[:1]
        if start == "<" and decoded[0].rstrip().endswith(">"):
            forms.append("xml")
        elif start in ("{", "["):
            forms.append("json")
        forms.append("text")
    if body_type or (forms and forms[0] == "xml"):
        value = decode_body(body, body_type)
        if value.kind not in (BodyKind.BYTES, BodyKind.TEXT):
            forms.insert(len(forms) if forms and forms[0] == "xml" else 0, "value")
    return [*forms, "hex"]


def _described(value: BodyValue) -> str:
    kind = value.kind.replace("_", " ")
    return kind if value.type_name is None else f"{kind}, {value.type_name}"


def _xml_lines(text: str) -> Iterator[Line]:
    """Lay XML out, a tag to a line; an element that holds only text stays on one line."""
    depth = 0
    pending: Line | None = None
    for token in _xml_tokens(text):
        is_tag = token.startswith("<")
        if not is_tag:
            value = token.strip()
            if value and pending is not None:
                pending.append(("", value))
            elif value:
                yield [("", "  " * depth + value)]
            continue
        closes, opens = token.startswith("</"), not token.startswith(("</", "<!", "<?")) and not token.endswith("/>")
        if closes and pending is not None:
            # <a>text</a>: one line.
            yield [*pending, *_tag(token)]
            pending = None
            depth = max(0, depth - 1)
            continue
        if pending is not None:
            yield pending
            pending = None
        if closes:
            depth = max(0, depth - 1)
        line: Line = [("", "  " * min(depth, _MAX_DEPTH)), *_tag(token)]
        if opens:
            depth += 1
            pending = line
        else:
            yield line
    if pending is not None:
        yield pending


def _xml_tokens(text: str) -> Iterator[str]:
    """Split XML into tags and the text between them, in one pass."""
    position = 0
    while position < len(text):
        if text[position] != "<":
            end = text.find("<", position)
        else:
            ending = next(
                (
                    end
                    for begin, end in (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"))
                    if text.startswith(begin, position)
                ),
                ">",
            )
            end = text.find(ending, position)
            end = end if end < 0 else end + len(ending)
        end = len(text) if end < 0 else end
        yield text[position:end]
        position = end


def _tag(token: str) -> Line:
    if token.startswith(("<!", "<?")):
        return [("c", token)]
    pieces: Line = []
    position = 0
    for match in _ATTRIBUTE.finditer(token):
        pieces += [("t", token[position : match.start()]), ("n", match[1]), ("", match[2]), ("s", match[3])]
        position = match.end()
    return [*pieces, ("t", token[position:])]


def _json_lines(text: str) -> list[Line]:
    # What is no JSON after all, or was cut, stays as it is.
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return [_json_pieces(line) for line in text.splitlines()]


def _json_pieces(line: str) -> Line:
    pieces: Line = []
    position = 0
    for match in _JSON_TOKEN.finditer(line):
        pieces.append(("", line[position : match.start()]))
        if match[1] is not None:
            pieces += [("t" if match[2] else "s", match[1]), ("", match[2] or "")]
        else:
            pieces.append(("n", match[3]))
        position = match.end()
    return [*pieces, ("", line[position:])]


def _value_lines(value: BodyValue) -> list[Line]:
    shown = value.value
    if isinstance(shown, bytes):
        reason = (
            value.reason
            or f"The console names the class and does not build the object ({value.type_name or 'no name'})."
        )
        return [[("c", reason)]]
    return _json_lines(json.dumps(_plain(shown), indent=2, ensure_ascii=False))


def _plain(value: Value) -> object:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case bytes():
            return value.hex()
        case _:
            return str(value)


def _hex_lines(body: bytes) -> list[Line]:
    lines: list[Line] = []
    for start in range(0, len(body), _HEX_LINE):
        part = body[start : start + _HEX_LINE]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append([("c", f"{start:06x}  "), ("", f"{part.hex(' '):<{_HEX_LINE * 3 - 1}}  "), ("s", printable)])
    return lines
