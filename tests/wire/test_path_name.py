from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanner.model.enums import QueueType
from lanner.model.errors import IllegalQueuePathname
from lanner.wire.path_name import PathName

ALLOWED = "".join(chr(code) for code in range(0x21, 0x80) if chr(code) not in '"+,;\\')


def test_a_public_queue() -> None:
    path = PathName.parse(r"Server\Orders")
    assert path == PathName("Server", QueueType.PUBLIC, "Orders")
    assert str(path) == r"Server\Orders"
    assert not path.is_private
    assert not path.is_system


def test_a_private_queue() -> None:
    path = PathName.parse(r"server\PRIVATE$\orders")
    assert path == PathName("server", QueueType.PRIVATE, "orders")
    assert str(path) == r"server\private$\orders"
    assert path.is_private


def test_a_system_queue() -> None:
    path = PathName.parse(r"server\SYSTEM$;DEADXACT")
    assert path == PathName("server", QueueType.SYSTEM, "DEADXACT")
    assert str(path) == r"server\system$;DEADXACT"
    assert path.is_system


def test_a_subqueue() -> None:
    path = PathName.parse(r".\private$\orders;poison")
    assert (path.name, path.subqueue, path.is_journal) == ("orders", "poison", False)
    assert str(path) == r".\private$\orders;poison"
    assert str(path.without_suffix()) == r".\private$\orders"


def test_the_journal_stands_where_a_subqueue_would() -> None:
    path = PathName.parse(r"server\orders;JOURNAL")
    assert (path.name, path.subqueue, path.is_journal) == ("orders", None, True)
    assert path.without_suffix() == PathName.parse(r"server\orders")


def test_a_dot_is_this_computer() -> None:
    path = PathName.parse(r".\orders")
    assert path.is_on_this_computer
    assert str(path.with_computer("SERVER")) == r"SERVER\orders"
    assert not path.with_computer("SERVER").is_on_this_computer


def test_names_have_no_case() -> None:
    assert PathName.parse(r"SERVER\Private$\ORDERS;Poison").key == PathName.parse(r"server\private$\orders;poison").key
    assert PathName.parse(r"server\orders").key != PathName.parse(r"server\private$\orders").key


def test_limits() -> None:
    """MS-MQMQ 2.1.1: 256, 124 and 32 characters."""
    PathName.parse("c" * 256 + "\\" + "q" * 124 + ";" + "s" * 32)
    for text in ("c" * 257 + "\\q", "c\\" + "q" * 125, "c\\private$\\" + "q" * 125, "c\\q;" + "s" * 33):
        with pytest.raises(IllegalQueuePathname, match="at most"):
            PathName.parse(text)


@pytest.mark.parametrize("character", ['"', "+", ",", " ", "\t", "\0", "é", "\x1f"])
def test_characters_that_the_grammar_leaves_out(character: str) -> None:
    with pytest.raises(IllegalQueuePathname, match="is not allowed in a queue name"):
        PathName.parse(f"server\\or{character}ders")
    with pytest.raises(IllegalQueuePathname, match="is not allowed in a subqueue name"):
        PathName.parse(f"server\\orders;a{character}b")


def test_every_character_that_the_grammar_allows() -> None:
    for character in ALLOWED:
        assert PathName.parse(f"server\\{character}").name == character


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no backslash"),
        ("orders", "no backslash"),
        ("\\orders", "no computer"),
        ("server\\", "no queue name"),
        ("server\\private$", "no queue name after private\\$"),
        ("server\\private$\\", "no queue name"),
        ("server\\system$", "no queue name after system\\$"),
        ("server\\system$;", "no queue name after system\\$"),
        ("server\\a\\b", "backslash inside"),
        ("server\\private$\\a\\b", "backslash inside"),
        ("server\\a;", "no subqueue name"),
        ("server\\a;b;c", "second semicolon"),
        ("ser ver\\a", "computer name"),
    ],
)
def test_what_is_wrong_is_reported(text: str, problem: str) -> None:
    with pytest.raises(IllegalQueuePathname, match=problem):
        PathName.parse(text)


@given(st.text(max_size=40) | st.text("abc.\\;$private system", max_size=40))
def test_any_text_is_a_path_name_or_refused(text: str) -> None:
    try:
        path = PathName.parse(text)
    except IllegalQueuePathname:
        return
    assert PathName.parse(str(path)) == path
    assert str(path).lower() == text.lower()
