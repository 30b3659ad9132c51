"""Bodies made to overload the console.

Without a limit in each place these take hours, or all memory.
"""

from __future__ import annotations

import pytest

from lanner.http.console.message_bodies import SHOWN_BYTES, kind_word, view_body
from lanner.wire.layout import MAX_PACKET_SIZE

MOST = MAX_PACKET_SIZE - 4096


def _shown(body: bytes, *, whole: bool = True) -> str:
    lines = view_body(body, 0, None, whole=whole).lines
    return "\n".join("".join(text for _, text in line) for line in lines)


@pytest.mark.parametrize(
    "body",
    [
        b"<" + b"a" * MOST + b">",
        b"<a " + b"a " * (MOST // 2) + b">",
        b"<a a" + b" " * MOST + b">",
        b"<a " + b"a=\"'" * (MOST // 4) + b">",
        b"<a>" * (MOST // 3),
        b"<!--" * (MOST // 4) + b">",
        b'{"' + b'\\"' * (MOST // 2),
        b'["' + b"\\" * MOST,
        b'[""' + b" " * MOST,
        b"[" * MOST,
        b"[" * 900 + b"0," * (MOST // 2 - 1000) + b"0" + b"]" * 900,
        b"\xff" * MOST,
        b"\x00\xd8" * (MOST // 2),
        b"\n" * MOST,
    ],
    ids=lambda body: repr(body[:8]),
)
def test_a_page_has_a_largest_size(body: bytes) -> None:
    kind_word(body[:SHOWN_BYTES], 0)
    assert len(_shown(body)) < 2 * MOST
    # Each line may be indented.
    assert len(_shown(body, whole=False)) < 100 * SHOWN_BYTES


def test_xml_of_many_elements_is_not_decoded_to_be_named() -> None:
    body = b"<a>" + b"<b/>" * 200_000 + b"</a>"
    assert "value" not in dict(view_body(body, 0, None, whole=False).forms)
    assert kind_word(body, 0) == "XML"
    assert "value" in dict(view_body(b"<int>5</int>", 0, None, whole=False).forms)


def test_json_is_laid_out() -> None:
    body = rb'{"a": [1, -2.5e3, true, "x\"y:", {}], "b": {"c": null}, "d": []}'
    assert _shown(body).splitlines() == [
        "{",
        '  "a": [',
        "    1,",
        "    -2.5e3,",
        "    true,",
        r'    "x\"y:",',
        "    {}",
        "  ],",
        '  "b": {',
        '    "c": null',
        "  },",
        '  "d": []',
        "}",
    ]
