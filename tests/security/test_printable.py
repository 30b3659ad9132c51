"""Text of others in terminals, logs and JSON."""

from __future__ import annotations

import io
import json
import logging

import pytest

from lanner.security.printable import PrintableFormatter, json_text, one_line, printable

# C0, DEL, C1, bidirectional controls and isolates, line separators, half a surrogate pair, an
# unassigned character.
NASTY = "\x1b[31m\x07\x7f\x9b\u202e\u2066\u200f\u2028\ud800\U000e0001\uffff"


def test_everything_that_steers_is_escaped() -> None:
    assert printable(NASTY).isprintable()
    assert printable("gr\u00fc\u00dfe \u4f60\u597d \U0001f600") == "gr\u00fc\u00dfe \u4f60\u597d \U0001f600"
    assert printable("a\r\nb\tc\rd") == "a\nb\tc\\rd"
    assert one_line("a\nb\tc") == "a\\nb\\tc"
    assert printable("\x1b\x9b\u202e") == r"\x1b\x9b\u202e"


def test_json_has_only_printable_characters_and_the_same_meaning() -> None:
    document = {NASTY: [NASTY, "plain", "two\nlines", "gr\u00fc\u00dfe"]}
    text = json_text(document)
    assert text.isprintable()
    assert json.loads(text) == document
    assert "gr\u00fc\u00dfe" in text


@pytest.fixture
def log() -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.Logger("peer")  # noqa: LOG001 (not one of the process)
    logger.addHandler(handler)
    return logger, stream


def test_a_log_record_is_one_line_whatever_a_peer_has_sent(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    logger.warning("label %s", f"x\nINFO audit: root logged on{NASTY}")
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue()[:-1].isprintable()


def test_lines_of_a_traceback_cannot_be_taken_for_records(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, stream = log
    try:
        raise ValueError(f"x\nINFO audit: root logged on{NASTY}")
    except ValueError:
        logger.exception("failed", stack_info=True)
    first, *rest = stream.getvalue().splitlines()
    assert first == "ERROR peer: failed"
    assert rest
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
