"""Message bodies for the console: the available forms of a body, and its lines.

Bodies are hostile. Nothing here parses in a way that can expand or recurse: XML and JSON are laid
out in one pass from their tags and punctuation alone, and entities and escapes are left as written.
Output size is bounded by what a page can hold, even for bodies that need the most indentation or
splitting. Every piece of a line is text that the template escapes, with the name of a class of
console.css.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from lanner.wire.body_types import TEXT_BODIES
from lanner.wire.body_values import BodyKind, BodyValue, decode_body
from lanner.wire.xml_bodies import Value

# How much of a body is shown until the user asks for all of it.
SHOWN_BYTES: Final = 64 * 1024
_HEX_LINE: Final = 16
_MAX_DEPTH: Final = 64
# Maximum pieces on a page, and maximum octets of a body that is decoded to find its kind.
_MAX_PIECES: Final = 100_000
_MAX_DECODED: Final = 4 * SHOWN_BYTES
# Possessive quantifiers and a fixed start: with backtracking, or a match beginning inside a word,
# this would take quadratic time.
_ATTRIBUTE: Final = re.compile(r'(?<![\w.:-])([\w.:-]++)(\s*+=\s*+)("[^"]*+"|\'[^\']*+\')')
# Strings, words, punctuation and white space; a string may be unterminated.
_JSON_TOKEN: Final = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|([^\s"{}\[\],:]++)|([{}\[\],:])|\s++', re.DOTALL)
_OPENS: Final = (("", "["), ("", "{"))
_BREAKS: Final = (*_OPENS, ("", ","))
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
    """Return the kind of a body in one word, for a list column."""
    texts = _text_forms(body, body_type)
    # XML is named so even if it decodes to a value.
    form = texts[0] if texts[:1] == ["xml"] else _forms(body, body_type)[0]
    return "Bytes" if form == "hex" else _TITLES[form]


def text_of(body: bytes, body_type: int) -> tuple[str, str] | None:
    """Return the text of a body and its encoding; None if it is not text."""
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
    """Return a body in the requested form, or in the best one available."""
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
        "value": "",
    }[chosen]
    lines: list[Line]
    match chosen:
        case "xml":
            lines = _bounded(_xml_lines(text))
        case "json":
            lines = _bounded(_json_lines(text))
        case "text":
            lines = _bounded([("", line)] for line in text.splitlines())
        case "value":
            value = decode_body(body, body_type)
            how, lines = _described(value), _bounded(_value_lines(value))
        case _:
            lines = _bounded(_hex_lines(body if whole else body[:SHOWN_BYTES]))
    titles = tuple((name, _TITLES[name]) for name in forms)
    return BodyView(chosen, titles, how, lines, is_cut)


def _bounded(lines: Iterable[Line]) -> list[Line]:
    """Return as many lines as a page can hold."""
    shown: list[Line] = []
    pieces = 0
    for line in lines:
        pieces += len(line)
        if pieces > _MAX_PIECES:
            shown.append([("c", "The body is longer than a page can show: `lanner peek` shows all of it.")])
            break
        shown.append(line)
    return shown


def _forms(body: bytes, body_type: int) -> list[str]:
    """Return the forms in which a body can be shown, the best one first."""
    forms = _text_forms(body, body_type)
    is_xml = forms[:1] == ["xml"]
    if body and len(body) <= _MAX_DECODED and (body_type or is_xml):
        value = decode_body(body, body_type)
        if value.kind not in (BodyKind.BYTES, BodyKind.TEXT):
            forms.insert(len(forms) if is_xml else 0, "value")
    return [*forms, "hex"]


def _text_forms(body: bytes, body_type: int) -> list[str]:
    decoded = text_of(body[:_MAX_DECODED], body_type)
    if decoded is None:
        return []
    start = decoded[0].lstrip()[:1]
    if start == "<" and (len(body) > _MAX_DECODED or decoded[0].rstrip().endswith(">")):
        return ["xml", "text"]
    return ["json", "text"] if start in ("{", "[") else ["text"]


def _described(value: BodyValue) -> str:
    kind = value.kind.replace("_", " ")
    return kind if value.type_name is None else f"{kind}, {value.type_name}"


def _xml_lines(text: str) -> Iterator[Line]:
    """Lay out XML with one tag per line; an element with only text stays on one line."""
    depth = 0
    pending: Line | None = None
    for token in _xml_tokens(text):
        is_tag = token.startswith("<")
        if not is_tag:
            value = token.strip()
            if value and pending is not None:
                pending.append(("", value))
            elif value:
                yield [_indent(depth), ("", value)]
            continue
        closes, opens = token.startswith("</"), not token.startswith(("</", "<!", "<?")) and not token.endswith("/>")
        if closes and pending is not None:
            # <a>text</a> stays on one line.
            yield [*pending, *_tag(token)]
            pending = None
            depth = max(0, depth - 1)
            continue
        if pending is not None:
            yield pending
            pending = None
        if closes:
            depth = max(0, depth - 1)
        line: Line = [_indent(depth), *_tag(token)]
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
    for match in islice(_ATTRIBUTE.finditer(token), _MAX_PIECES):
        pieces += [("t", token[position : match.start()]), ("n", match[1]), ("", match[2]), ("s", match[3])]
        position = match.end()
    return [*pieces, ("t", token[position:])]


def _json_lines(text: str) -> Iterator[Line]:
    """Lay out JSON with one member per line; truncated JSON as far as it goes."""
    depth = 0
    line: Line = []
    # Each token is a piece at least, so the rest has no room on a page.
    for string, word, sign in islice(_json_tokens(text), _MAX_PIECES + 1):
        if sign and sign in "]}":
            depth = max(0, depth - 1)
            # Brackets with nothing between them stay on one line.
            if not line or line[-1] not in _OPENS:
                yield line
                line = [_indent(depth)]
            line.append(("", sign))
            continue
        if line and line[-1] in _BREAKS:
            yield line
            line = [_indent(depth)]
        if sign == ":":
            # The string before a colon is a name.
            if line and line[-1][0] == "s":
                line[-1] = ("t", line[-1][1])
            line.append(("", ": "))
        elif sign:
            depth += sign in "[{"
            line.append(("", sign))
        else:
            line.append(("s", string) if string else ("n", word))
    yield line


def _json_tokens(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield a string, a word or a punctuation sign at a time; the other two are empty."""
    for match in _JSON_TOKEN.finditer(text):
        if match.lastindex:
            yield match[1] or "", match[2] or "", match[3] or ""


def _indent(depth: int) -> Piece:
    return "", "  " * min(depth, _MAX_DEPTH)


def _value_lines(value: BodyValue) -> Iterable[Line]:
    shown = value.value
    if isinstance(shown, bytes):
        reason = (
            value.reason
            or f"The console names the class and does not build the object ({value.type_name or 'no name'})."
        )
        return [[("c", reason)]]
    return _json_lines(json.dumps(_plain(shown), ensure_ascii=False))


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


def _hex_lines(body: bytes) -> Iterator[Line]:
    for start in range(0, len(body), _HEX_LINE):
        part = body[start : start + _HEX_LINE]
        printable = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        yield [("c", f"{start:06x}  "), ("", f"{part.hex(' '):<{_HEX_LINE * 3 - 1}}  "), ("s", printable)]
