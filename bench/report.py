"""Alternating rounds, medians, tables and ratios, printed as Markdown."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from bench.machine import load_average
from bench.peers.process import PeerError

Figures = dict[str, float]  # by column


class Writer(Protocol):
    """The interface of what a report is printed to."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Contender:
    """One row: a name that begins with the contender's, and a function that measures one round."""

    name: str
    measure: Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal: the best row of `ours` against the best of `theirs`, column by column.

    Rows are selected by the prefix of their names.
    """

    theirs: str
    # One ratio for all columns, or one for each.
    must: float | tuple[float, ...] | None = None
    aim: float | tuple[float, ...] | None = None
    ours: str = "Lanner"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    rows: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # contender, column, rounds
    is_lower_better: bool = False

    def best(self, prefix: str, column: str) -> float | None:
        medians = [
            statistics.median(columns[column])
            for name, columns in self.rows.items()
            if name.startswith(prefix) and columns.get(column)
        ]
        if not medians:
            return None
        return min(medians) if self.is_lower_better else max(medians)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for columns in self.rows.values() for column in columns))

    def turned(self) -> Table:
        """Return the table with rows and columns swapped."""
        rows = {c: {name: row[c] for name, row in self.rows.items() if c in row} for c in self.columns}
        return Table(self.title, rows, self.is_lower_better)

    def advantage(self, goal: Goal, column: str) -> float | None:
        """Return how many times better the best of `ours` is."""
        ours, theirs = self.best(goal.ours, column), self.best(goal.theirs, column)
        if not ours or not theirs:
            return None
        return theirs / ours if self.is_lower_better else ours / theirs


def alternate(title: str, contenders: Iterable[Contender], rounds: int, *, is_lower_better: bool = False) -> Table:
    """Measure every contender once per round, so that a noisy minute affects all of them."""
    table = Table(title, is_lower_better=is_lower_better)
    running = list(contenders)
    for _ in range(rounds):
        for contender in list(running):
            os.sync()  # the next contender must not wait for data of the previous one
            try:
                figures = contender.measure()
            except PeerError as error:
                print(f"{contender.name} is left out: {error}", flush=True)
                running.remove(contender)
                continue
            columns = table.rows.setdefault(contender.name, {})
            for column, value in figures.items():
                columns.setdefault(column, []).append(value)
    return table


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def cell(values: list[float] | None) -> str:
    """Return the median, and half the range in percent of it, as text."""
    if not values:
        return "-"
    median = statistics.median(values)
    spread = f" ±{(max(values) - min(values)) / 2 / median * 100:.0f}%" if len(values) > 1 and median else ""
    return number(median) + spread


def print_rows(rows: list[list[str]], to: Writer) -> None:
    """Print a Markdown table; the first row is the header."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [[row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    for line in lines:
        print("| " + " | ".join(line) + " |", file=to)
    print(file=to)


def print_table(table: Table, goals: Iterable[Goal], to: Writer) -> None:
    print(f"## {table.title}\n", file=to)
    columns = table.columns
    print_rows(
        [["", *columns], *([name, *(cell(row.get(c)) for c in columns)] for name, row in table.rows.items())], to
    )
    lines = []
    for goal in goals:
        ratios = [table.advantage(goal, column) for column in columns]
        if any(ratio is not None for ratio in ratios):
            wanted = [stated("must", goal.must), stated("aim", goal.aim)]
            cells = [
                "-"
                if ratio is None
                else f"{ratio:.2f} x{verdict(ratio, wanted_in(goal.must, i), wanted_in(goal.aim, i))}"
                for i, ratio in enumerate(ratios)
            ]
            lines.append([f"{goal.ours} / {goal.theirs}", *cells, ", ".join(filter(None, wanted)) or "-"])
    if lines:
        print_rows([["times better", *columns, "goal"], *lines], to)
    print(f"Load average after: {load_average()}\n", file=to, flush=True)


def wanted_in(ratios: float | tuple[float, ...] | None, column: int) -> float | None:
    """Return the wanted ratio of a column."""
    return ratios[column] if isinstance(ratios, tuple) else ratios


def stated(word: str, ratios: float | tuple[float, ...] | None) -> str:
    """Return a goal in words, empty if there is none."""
    if not ratios:
        return ""
    return f"{word} {' / '.join(f'{ratio:g}' for ratio in (ratios if isinstance(ratios, tuple) else (ratios,)))}"


def verdict(ratio: float, must: float | None, aim: float | None) -> str:
    if must is not None and ratio < must:
        return " (missed)"
    return " (aim met)" if aim is not None and ratio >= aim else ""
