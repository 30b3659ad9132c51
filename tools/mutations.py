"""Small mutations of a module's source.

There are four kinds: a call is removed, a condition flipped, a constant changed, or two branches
swapped. A mutation replaces one part of the source text, so that every other line is unchanged.
Only code inside functions is mutated. Log calls, `__repr__` and `__str__`, strings, parameter
defaults and annotations are left alone, because no requirement is about them.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

REMOVED_CALL = "removed call"
FLIPPED_CONDITION = "flipped condition"
CHANGED_CONSTANT = "changed constant"
SWAPPED_BRANCH = "swapped branch"

DESCRIPTIONS = frozenset({"__repr__", "__str__", "__format__"})
LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOG_CHECKS = frozenset({"isEnabledFor", "is_enabled"})
LOG_NAME = re.compile(r"_?log(ger)?", re.IGNORECASE)
OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATOR = re.compile(r"[!=<>]=?|is\s+not|is|not\s+in|in")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Mutation:
    """One replacement in the source of a module."""

    kind: str
    function: str
    # Lines of the mutated code, and of the statement around it, which is what a tracer reports.
    line: int
    statement: int
    # Offsets into the source in octets of UTF-8, as in ast.
    start: int
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """The name of the mutation within its module, without line numbers."""
        return f"{self.function}: {self.kind}: {_one_line(self.before)} -> {_one_line(self.after)}"

    def apply(self, source: str) -> str:
        octets = source.encode()
        return (octets[: self.start] + self.after.encode() + octets[self.end :]).decode()


@dataclass(frozen=True, slots=True)
class FunctionText:
    """A function's name, its text and lines with the comments directly above, and its docstring."""

    name: str
    first: int
    last: int
    text: str
    docstring: str


def functions(source: str) -> list[FunctionText]:
    """Return every function of a module."""
    lines = source.splitlines()
    found = []
    for name, node in _functions(ast.parse(source), ""):
        first = min(node.lineno, *(each.lineno for each in node.decorator_list), node.lineno)
        while first > 1 and lines[first - 2].lstrip().startswith("#"):
            first -= 1
        last = node.end_lineno or node.lineno
        text = "\n".join(lines[first - 1 : last])
        found.append(FunctionText(name, first, last, text, ast.get_docstring(node) or ""))
    return found


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement inside a function: its first line and its text."""

    function: str
    line: int
    text: str


def statements(source: str) -> list[Statement]:
    """Return the statements of all functions, including nested ones.

    The comments directly above a statement belong to it. A compound statement counts with its head
    and the first statement that it contains, because what depends on a condition shows its purpose.
    """
    lines = source.splitlines()
    found = []
    for name, function in _functions(ast.parse(source), ""):
        for node in _own_statements(function.body):
            first = node.lineno
            while first > 1 and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            found.append(Statement(name, node.lineno, "\n".join(lines[first - 1 : _last_line(node)])))
    return found


def _own_statements(body: Sequence[ast.AST]) -> Iterator[ast.stmt]:
    """Yield statements and the statements inside them, except nested functions."""
    for node in body:
        if isinstance(node, (Function, ast.ClassDef)):
            continue
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield from _own_statements([*ast.iter_child_nodes(node)])


def _last_line(node: ast.stmt) -> int:
    body = getattr(node, "body", None)
    if body and isinstance(body[0], ast.stmt):
        inner = body[0]
        head = getattr(inner, "body", None)
        return head[0].lineno - 1 if head and isinstance(head[0], ast.stmt) else inner.end_lineno or inner.lineno
    return node.end_lineno or node.lineno


def mutations(source: str) -> list[Mutation]:
    """Return every mutation of a module."""
    octets = source.encode()
    starts = [0, *itertools.accumulate(len(line) for line in octets.splitlines(keepends=True))]
    found: list[Mutation] = []
    for name, node in _functions(ast.parse(source), ""):
        if node.name not in DESCRIPTIONS:
            found += _FunctionMutations(octets, starts, name).of(node)
    return found


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


class _FunctionMutations(ast.NodeVisitor):
    """Collects the mutations of one function, except nested functions."""

    def __init__(self, octets: bytes, starts: list[int], name: str) -> None:
        self._octets = octets
        self._starts = starts
        self._name = name
        self._statement = 0
        self._found: list[Mutation] = []

    def of(self, node: Function) -> list[Mutation]:
        for statement in node.body:
            self.visit(statement)
        return self._found

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            outer, self._statement = self._statement, node.lineno
            super().visit(node)
            self._statement = outer
        else:
            super().visit(node)

    def _add(self, kind: str, node: ast.expr | ast.stmt, after: str) -> None:
        self._replace(kind, node.lineno, self._start(node), self._end(node), after)

    def _replace(self, kind: str, line: int, start: int, end: int, after: str) -> None:
        before = self._octets[start:end].decode()
        self._found.append(Mutation(kind, self._name, line, self._statement, start, end, before, after))

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None  # noqa: S101 (parsed from a text)
        assert node.end_col_offset is not None  # noqa: S101
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.expr) -> str:
        return self._octets[self._start(node) : self._end(node)].decode()

    # Code that is not mutated

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave it to its own collector."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Leave it to its own collector."""

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Leave its methods to their own collectors."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts alone."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip it: an assertion states what is true anyway."""

    def visit_keyword(self, node: ast.keyword) -> None:
        # zip(..., strict=True) is an assertion.
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    # Code that is mutated

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call):
            if _is_log(value):
                return
            self._add(REMOVED_CALL, node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if _is_log_check(node.test) or all(map(_only_tells, [*node.body, *node.orelse])):
            return
        if node.orelse:
            self._add(SWAPPED_BRANCH, node.test, self._negated(node.test))
            self._first_operand(node.test)
        else:
            self._conditions(node.test)
        self._visit_all(node.test, *node.body, *node.orelse)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._conditions(node.test)
            self.visit(node.test)
        self._visit_all(*node.body, *node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if _is_text(node.body) and _is_text(node.orelse):
            return
        swapped = f"({self._text(node.orelse)}) if ({self._text(node.test)}) else ({self._text(node.body)})"
        self._add(SWAPPED_BRANCH, node, swapped)
        self._first_operand(node.test)
        self._visit_all(node.test, node.body, node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._conditions(test)
        self.generic_visit(node)

    def visit_Match(self, node: ast.Match) -> None:
        for one, other in zip(node.cases, node.cases[1:], strict=False):
            first, second = ((self._start(case.body[0]), self._end(case.body[-1])) for case in (one, other))
            own_lines = all(case.body[0].lineno > case.pattern.lineno for case in (one, other))
            if own_lines:
                texts = (self._octets[slice(*first)], self._octets[slice(*second)])
                between = self._octets[first[1] : second[0]]
                self._replace(
                    SWAPPED_BRANCH,
                    one.pattern.lineno,
                    first[0],
                    second[1],
                    b"".join((texts[1], between, texts[0])).decode(),
                )
        for case in node.cases:
            if case.guard is not None:
                self._conditions(case.guard)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Leave later operands alone."""
        self.visit(node.values[0])

    def visit_Compare(self, node: ast.Compare) -> None:
        """Flip a comparison that is used as a value; conditions are handled elsewhere."""
        if not any(each.start == self._start(node) and each.end == self._end(node) for each in self._found):
            self._conditions(node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(CHANGED_CONSTANT, node, str(not node.value))
        elif isinstance(node.value, int):
            text = self._text(node)
            self._add(CHANGED_CONSTANT, node, hex(node.value + 1) if "x" in text else str(node.value + 1))

    def _conditions(self, test: ast.expr) -> None:
        """Flip a condition, and the first operand of `and` and `or`.

        Line coverage does not show whether the other operands are evaluated.
        """
        self._add(FLIPPED_CONDITION, test, self._negated(test))
        self._first_operand(test)

    def _first_operand(self, test: ast.expr) -> None:
        if isinstance(test, ast.BoolOp):
            self._conditions(test.values[0])

    def _negated(self, test: ast.expr) -> str:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            # Replace only the operator: parentheses around an operand are not part of its node.
            end, start = self._end(test.left), self._start(test.comparators[0])
            between = OPERATOR.sub(OPPOSITES[type(test.ops[0])], self._octets[end:start].decode(), count=1)
            return (
                self._octets[self._start(test) : end].decode()
                + between
                + self._octets[start : self._end(test)].decode()
            )
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return f"({self._text(test.operand)})"
        return f"(not ({self._text(test)}))"

    def _visit_all(self, *nodes: ast.AST) -> None:
        for node in nodes:
            self.visit(node)


def _is_log(call: ast.Call) -> bool:
    """Return whether a call writes to a log: a method of it, or a function with it as argument."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in LOG_METHODS:
        return _names_log(call.func.value)
    return bool(call.args) and _names_log(call.args[0])


def _names_log(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return LOG_NAME.fullmatch(name) is not None


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _only_tells(statement: ast.stmt) -> bool:
    """Return whether a statement only writes to a log or sets a text for people to read."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and _is_log(statement.value)
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.JoinedStr)


def _is_log_check(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in LOG_CHECKS for node in ast.walk(test))


def _one_line(text: str) -> str:
    return " ".join(text.split())
