"""The mutations of a module: which there are, and which code is left alone."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

import mutations

SOURCE = Path(__file__).parents[2] / "src" / "lanner"


def of(body: str) -> list[tuple[str, str, str]]:
    """Return kind, original and replacement of the mutations of a function with this body."""
    source = f"def f(a, b=7):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    found = mutations.mutations(source)
    for each in found:
        assert ast.dump(ast.parse(each.apply(source))) != ast.dump(ast.parse(source))
    return [(each.kind, each.before, each.after) for each in found]


@pytest.mark.parametrize(
    ("body", "before", "after"),
    [
        ("a.send(b)", "a.send(b)", "pass"),
        ("if a: b.send(\n    a)", "b.send(\n        a)", "pass"),
    ],
)
def test_a_call_whose_result_nobody_uses_is_removed(body: str, before: str, after: str) -> None:
    assert (mutations.REMOVED_CALL, before, after) in of(body)


def test_an_awaited_call_is_removed() -> None:
    (mutation,) = mutations.mutations("async def f(a):\n    await a()\n")
    assert (mutation.kind, mutation.before, mutation.after) == (mutations.REMOVED_CALL, "await a()", "pass")


@pytest.mark.parametrize(
    ("body", "before", "after"),
    [
        ("if a < b: return", "a < b", "a >= b"),
        ("if a is not b: return", "a is not b", "a is b"),
        ("if a not in b: return", "a not in b", "a in b"),
        ("if (c := a) == b: return", "(c := a) == b", "(c := a) != b"),
        ("if a: return", "a", "(not (a))"),
        ("if not a: return", "not a", "(a)"),
        ("if a < b < a: return", "a < b < a", "(not (a < b < a))"),
        ("while a: b = a", "a", "(not (a))"),
        ("return a == b", "a == b", "a != b"),
        ("return [c for c in a if c]", "c", "(not (c))"),
        ("match a:\n    case c if c > b:\n        return", "c > b", "c <= b"),
    ],
)
def test_a_condition_is_flipped(body: str, before: str, after: str) -> None:
    assert of(body) == [(mutations.FLIPPED_CONDITION, before, after)]


def test_of_and_and_or_the_whole_and_the_first_operand_are_flipped() -> None:
    assert of("if (b or a > b) and a == 1: return") == [
        (mutations.FLIPPED_CONDITION, "(b or a > b) and a == 1", "(not ((b or a > b) and a == 1))"),
        (mutations.FLIPPED_CONDITION, "b or a > b", "(not (b or a > b))"),
        (mutations.FLIPPED_CONDITION, "b", "(not (b))"),
    ]


@pytest.mark.parametrize(
    ("body", "before", "after"),
    [("return 41", "41", "42"), ("return 0x0f", "0x0f", "0x10"), ("return True", "True", "False")],
)
def test_a_constant_is_changed(body: str, before: str, after: str) -> None:
    assert of(body) == [(mutations.CHANGED_CONSTANT, before, after)]


@pytest.mark.parametrize(
    ("body", "before", "after"),
    [
        ("if a:\n    return b\nelse:\n    return a", "a", "(not (a))"),
        ("return a if b else None", "a if b else None", "(None) if (b) else (a)"),
        (
            "match a:\n    case None:\n        return b\n    case _:\n        return a",
            "return b\n        case _:\n            return a",
            "return a\n        case _:\n            return b",
        ),
    ],
)
def test_branches_are_swapped(body: str, before: str, after: str) -> None:
    assert of(body) == [(mutations.SWAPPED_BRANCH, before, after)]


@pytest.mark.parametrize(
    "body",
    [
        "_LOG.warning('%d', 1)",
        "self._log.debug(a == b)",
        "if _LOG.isEnabledFor(10):\n    a.send(b)",
        "log_of_peer(_LOG, 1, a == b)",
        "if a:\n    _LOG.warning('text')\n    a.problem = f'{b} is wrong'",
        "if packet_log.is_enabled():\n    a.send(b)",
        "if a:\n    text = f'{a}'\nelse:\n    text = f'{b}'",
        "return 'text'",
        "return 'text' if a else f'{b}'",
        "return f'{a + 1}'",
        "assert a == 1",
        "return zip(a, b, strict=True)",
        "c: Literal[1] = a",
        "while True:\n    return",
    ],
)
def test_logs_texts_and_annotations_are_left_alone(body: str) -> None:
    assert of(body) == []


@pytest.mark.parametrize("name", ["__repr__", "__str__"])
def test_descriptions_are_left_alone(name: str) -> None:
    assert mutations.mutations(f"class C:\n    def {name}(self):\n        return g(1)\n") == []


def test_a_nested_function_has_its_mutations_once_under_its_own_name() -> None:
    found = mutations.mutations(
        "class C:\n    def f(self):\n        def g():\n            return 1\n        return g\n"
    )
    assert [(each.name, each.line, each.statement) for each in found] == [("C.f.g: changed constant: 1 -> 2", 4, 4)]


def test_the_statement_around_a_mutation_is_where_a_tracer_sees_it() -> None:
    (mutation,) = mutations.mutations("def f(a):\n    return a(\n        b,\n        1,\n    )\n")
    assert (mutation.line, mutation.statement) == (4, 2)


def test_texts_before_a_mutation_may_be_of_any_language() -> None:
    source = "def f():\n    return 'ä€', 1\n"
    assert mutations.mutations(source)[0].apply(source) == "def f():\n    return 'ä€', 2\n"


def test_functions_come_with_the_comments_above_them() -> None:
    source = "# Far.\n\n# Near.\n@g\ndef f():\n    return 1\n"
    (function,) = mutations.functions(source)
    assert (function.first, function.last) == (3, 6)
    assert function.text == "# Near.\n@g\ndef f():\n    return 1"


def test_every_mutation_of_a_module_of_this_project_is_a_program() -> None:
    source = (SOURCE / "transfer" / "session.py").read_text(encoding="utf-8")
    found = mutations.mutations(source)
    assert {each.kind for each in found} == {
        mutations.REMOVED_CALL,
        mutations.FLIPPED_CONDITION,
        mutations.CHANGED_CONSTANT,
        mutations.SWAPPED_BRANCH,
    }
    for each in found:
        compile(each.apply(source), each.name, "exec")


def test_what_statements_say() -> None:
    """A statement includes the comments above it, and a condition what depends on it.

    The statements of an inner function belong to that function.
    """
    source = (
        "def f(a):\n"
        "    # Why.\n"
        "    if a:\n"
        "        return 1\n"
        "    try:\n"
        "        a.b()\n"
        "    except KeyError:\n"
        "        def g():\n"
        "            return 2\n"
    )
    assert [(each.function, each.line, each.text.split("\n")) for each in mutations.statements(source)] == [
        ("f", 3, ["    # Why.", "    if a:", "        return 1"]),
        ("f", 4, ["        return 1"]),
        ("f", 5, ["    try:", "        a.b()"]),
        ("f", 6, ["        a.b()"]),
        ("f.g", 9, ["            return 2"]),
    ]
