"""The report: one HTML page that needs nothing else, with plots as inline SVG.

`render` makes the page of plain data; `lanner.spark.jobs.report` gathers it. A section without data is left out. Whatever comes from messages is escaped:
labels and names are other people's.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import resources
from string import Template
from typing import Any, Final

import lanner

Rows = list[dict[str, Any]]

STATUS: Final = {
    "received": ("received", "--c2"),
    "waiting": ("waiting in its queue", "--c1"),
    "arrived": ("arrived, not known to be received", "--c5"),
    "in_transit": ("on its way", "--c6"),
    "sent": ("sent, nothing else known", "--c6"),
    "dead_lettered": ("dead letter", "--c4"),
    "refused": ("refused", "--c3"),
}
OUTCOMES: Final = {
    "positive": "--c2",
    "negative": "--c4",
    "missing": "--c3",
    "pending": "--c1",
    "quiet": "--c6",
}
_MAP_SIZE: Final = 400
_PLOT_WIDTH, _PLOT_HEIGHT = 1000, 200


@dataclass
class ReportData:
    """What the page shows; lists of rows as the tables have them."""

    title: str = "Message queues"
    first: dt.datetime | None = None
    last: dt.datetime | None = None
    machines: int = 0
    bytes: int = 0
    status: dict[str, int] = field(default_factory=dict)
    traffic: Rows = field(default_factory=list)  # period, arrived, received, failed
    backlog: Rows = field(default_factory=list)
    latency: Rows = field(default_factory=list)
    skew: Rows = field(default_factory=list)  # machine, skew_seconds, is_step
    reference: str | None = None
    acks: Rows = field(default_factory=list)  # queue, outcome, messages
    reasons: Rows = field(default_factory=list)  # reason, messages
    routes: Rows = field(default_factory=list)  # source, destination, messages, median_seconds
    poison: Rows = field(default_factory=list)
    audit: Rows = field(default_factory=list)
    census: Rows = field(default_factory=list)  # formatter, messages, bytes
    broken: int = 0


def render(data: ReportData, made: dt.datetime | None = None) -> str:
    """The page."""
    made = made or dt.datetime.now(dt.UTC)
    parts = [_tiles(data), _status(data), _traffic(data)]
    pairs = [_backlog(data), _acks(data), _reasons(data), _census(data)]
    parts.append(_columns(pairs))
    parts.append(_latency(data))
    parts.append(_columns([_routes(data), _skew(data)]))
    parts += [_poison(data), _audit(data)]
    template = Template(resources.files("lanner.spark").joinpath("report_template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(data.title),
        subtitle=escape(_span(data)),
        content="\n".join(part for part in parts if part),
        version=escape(lanner.__version__),
        made=made.strftime("%d %B %Y, %H:%M UTC"),
    )


# Words and numbers --------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """With thin spaces between thousands; a dash for nothing."""
    if value is None:
        return "\u2013"
    return f"{value:,.{digits}f}".replace(",", "\u202f")


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{number(count, 0 if unit == 'B' else 1)} {unit}"
        count /= 1024
    return f"{number(count, 1)} TiB"


def duration(seconds: float | None) -> str:
    """Seconds as people say them."""
    if seconds is None:
        return "\u2013"
    magnitude = abs(seconds)
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if magnitude < limit:
            value = seconds / length
            return f"{number(value, 0 if float(value).is_integer() else 1)} {unit}"
    return f"{number(seconds / 86_400, 1)} d"


def short(queue: str | None) -> str:
    r"""A queue as people call it: DIRECT=OS:LYON-1\private$\orders is orders on LYON-1."""
    if not queue:
        return "?"
    _, _, rest = queue.partition(":")
    machine, _, name = (rest or queue).partition("\\")
    name = name.removeprefix("private$\\")
    return f"{name} on {machine}" if name and rest else queue


def _span(data: ReportData) -> str:
    if data.first is None or data.last is None:
        return "No messages were seen."
    first, last = (time.astimezone(dt.UTC).strftime("%d %B %Y %H:%M") for time in (data.first, data.last))
    return f"Sent from {first} to {last} UTC, by the clocks of their senders"


# Building blocks ----------------------------------------------------------------------------------------------------


def _section(title: str, note: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{body}</section>'


def _columns(sections: Iterable[str]) -> str:
    found = [section for section in sections if section]
    return f'<div class="columns">{"".join(found)}</div>' if found else ""


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(f'<span><i style="background:var({color})"></i>{escape(text)}</span>' for text, color in entries)
    return f'<div class="legend">{items}</div>'


def _bar(name: str, told: str, parts: Sequence[tuple[float, str, str]], *, title: str = "") -> str:
    """A line of a chart: each part is a share of the width (0 to 1), a colour and what it means."""
    rects, left = [], 0.0
    for share, color, text in parts:
        width = max(share, 0.0) * 100
        rects.append(
            f'<rect x="{left:.2f}%" width="{width:.2f}%" height="12" style="fill:var({color})"><title>{escape(text)}</title></rect>'
        )
        left += width
    head = f'<div class="head"><span title="{escape(title or name)}">{escape(name)}</span><span>{escape(told)}</span></div>'
    return (
        f'<div class="bar">{head}<svg role="img" aria-label="{escape(f"{name}: {told}")}">{"".join(rects)}</svg></div>'
    )


def _bars(lines: Iterable[str]) -> str:
    return f'<div class="bars">{"".join(lines)}</div>'


def _table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{' class=n' if is_number else ''}>{escape(title)}</th>" for title, is_number in columns)
    lines = []
    for row in rows:
        cells = zip(row, columns, strict=True)
        lines.append(
            "".join(f'<td class="{"n" if is_number else "name"}">{escape(cell)}</td>' for cell, (_, is_number) in cells)
        )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# Sections -----------------------------------------------------------------------------------------------------------


def _tiles(data: ReportData) -> str:
    total = sum(data.status.values())
    dead = data.status.get("dead_lettered", 0) + data.status.get("refused", 0)
    missing = sum(row["messages"] for row in data.acks if row["outcome"] == "missing")
    tiles = [
        (number(total), "messages", False),
        (size(data.bytes), "in their bodies", False),
        (number(data.machines), "queue managers", False),
        (_percent(data.status.get("received", 0), total), "known to be received", False),
        (number(data.status.get("waiting", 0)), "waiting", False),
        (number(dead), "refused or dead", dead > 0),
        (number(missing), "missing acks", missing > 0),
    ]
    if data.broken:
        tiles.append((number(data.broken), "unreadable", True))
    cells = "".join(
        f'<div class="tile{" bad" if is_bad else ""}"><b>{escape(value)}</b><span>{escape(text)}</span></div>'
        for value, text, is_bad in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "\u2013"


def _status(data: ReportData) -> str:
    total = sum(data.status.values())
    if not total:
        return ""
    known = [(name, data.status[name]) for name in STATUS if data.status.get(name)]
    parts = [(count / total, STATUS[name][1], f"{STATUS[name][0]}: {number(count)}") for name, count in known]
    legend = _legend((f"{STATUS[name][0]} {number(count)}", STATUS[name][1]) for name, count in known)
    note = (
        "The last thing that is known of each message, from journals, dead-letter queues, acknowledgments and reports."
    )
    bar = _bar("all messages", number(total), parts)
    return _section("What became of messages", note, _bars([bar]) + legend)


def _traffic(data: ReportData) -> str:
    if not data.traffic:
        return ""
    series = (("arrived", "--c1"), ("received", "--c2"), ("failed", "--c4"))
    top = _round_up(max(row[name] for row in data.traffic for name, _ in series))
    times = [row["period"].timestamp() for row in data.traffic]
    start, end = times[0], max(times[-1], times[0] + 1)
    paths = []
    for name, color in series:
        points = [
            ((time - start) / (end - start) * _PLOT_WIDTH, _PLOT_HEIGHT * (1 - row[name] / top))
            for time, row in zip(times, data.traffic, strict=True)
        ]
        line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        if name == "arrived":
            closed = f"M0 {_PLOT_HEIGHT}L{line}L{points[-1][0]:.1f} {_PLOT_HEIGHT}Z"
            paths.append(f'<path class="area" style="fill:var({color})" d="{closed}"/>')
        paths.append(f'<path style="stroke:var({color})" d="M{line}"><title>{name}</title></path>')
    grid = "".join(f'<line x1="0" x2="{_PLOT_WIDTH}" y1="{y}" y2="{y}"/>' for y in (0, 50, 100, 150))
    labels = "".join(f"<span>{escape(number(top * share, 0 if top >= 4 else 1))}</span>" for share in (1, 0.5, 0))
    ticks = [dt.datetime.fromtimestamp(start + (end - start) * share, dt.UTC) for share in (0, 1 / 3, 2 / 3, 1)]
    shape = "%H:%M:%S" if end - start < 600 else "%H:%M" if end - start < 172_800 else "%d %b"
    axis = "".join(f"<span>{escape(tick.strftime(shape))}</span>" for tick in ticks)
    step = duration(times[1] - times[0] if len(times) > 1 else 60)
    svg = (
        f'<svg viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Messages over time">{grid}{"".join(paths)}</svg>'
    )
    plot = f'<div class="plot"><div class="y">{labels}</div>{svg}<div class="x">{axis}</div></div>'
    note = (
        f"Messages in each {step}, all queues, by the clocks of the machines they came to. "
        "Queues of which there are events count all that came to them, acknowledgments too."
    )
    return _section("Traffic", note, _legend(series) + plot)


def _round_up(value: float) -> float:
    """A round number to end an axis with."""
    if value <= 0:
        return 1
    base: float = 10 ** math.floor(math.log10(value))
    return next(step * base for step in (1, 2, 4, 5, 10) if step * base >= value)


def _backlog(data: ReportData) -> str:
    rows = [row for row in data.backlog if row["depth"] > 0]
    if not rows:
        return ""
    most = max(row["depth"] for row in rows)
    lines = []
    for row in rows:
        minutes = row["minutes_to_empty"]
        drained = "not shrinking" if minutes is None else f"empty in {duration(60 * minutes)}"
        told = f"{number(row['depth'])}, {drained}"
        lines.append(_bar(short(row["queue"]), told, [(row["depth"] / most, "--c1", told)], title=row["queue"]))
    note = "What was not received at the end, and how long it takes at the latest rates. What a queue without a journal gave away counts as still there, unless an acknowledgment told."
    return _section("Backlog", note, _bars(lines))


def _acks(data: ReportData) -> str:
    if not data.acks:
        return ""
    queues: dict[str, dict[str, int]] = {}
    for row in data.acks:
        queues.setdefault(row["queue"], {})[row["outcome"]] = row["messages"]
    lines = []
    for queue, found in sorted(queues.items(), key=lambda item: -sum(item[1].values())):
        total = sum(found.values())
        parts = [
            (found.get(name, 0) / total, color, f"{name}: {number(found.get(name, 0))}")
            for name, color in OUTCOMES.items()
        ]
        missing = found.get("missing", 0)
        told = number(total) + (f", {number(missing)} missing" if missing else "")
        lines.append(_bar(short(queue), told, parts, title=queue))
    note = "Of messages that asked for one. Missing: it is due, and neither good nor bad news has come. Quiet: only bad news was asked for."
    return _section("Acknowledgments", note, _legend(OUTCOMES.items()) + _bars(lines[:12]))


def _reasons(data: ReportData) -> str:
    return _counted(
        "Why messages died",
        "Classes of negative acknowledgments and dead letters.",
        [(row["reason"].removeprefix("NACK_").replace("_", " ").lower(), row["messages"]) for row in data.reasons],
        "--c4",
    )


def _census(data: ReportData) -> str:
    rows = [(f"{row['formatter']}", row["messages"]) for row in data.census]
    return _counted("Bodies", "What wrote them, by type and first bytes.", rows, "--c5")


def _counted(title: str, note: str, rows: Sequence[tuple[str, int]], color: str) -> str:
    if not rows:
        return ""
    most = max(count for _, count in rows)
    lines = [_bar(name, number(count), [(count / most, color, f"{name}: {number(count)}")]) for name, count in rows]
    return _section(title, note, _bars(lines))


def _latency(data: ReportData) -> str:
    if not data.latency:
        return ""
    columns = [("Queue", False), ("Messages", True)]
    columns += [(name, True) for name in ("Way: 50 %", "95 %", "99 %", "Wait: 50 %", "95 %", "99 %")]
    names = [f"{kind}_{share}" for kind in ("delivery", "wait") for share in ("p50", "p95", "p99")]
    rows = [
        (short(row["queue"]), number(row["messages"]), *(duration(row[name]) for name in names)) for row in data.latency
    ]
    note = (
        "Way: from sending to arriving, with the estimated difference of the clocks taken off. Wait: from arriving to being received. "
        "Half, 95 % and 99 % of messages were at least as quick. Counted are those of which the arrival is known: they are in a queue, or were "
        "acknowledged. Clocks tell whole seconds; hours in which one was set are left out."
    )
    return _section("How long it took", note, _table(columns, rows))


def _skew(data: ReportData) -> str:
    if not data.skew:
        return ""
    steady = [abs(row["skew_seconds"]) for row in data.skew if not row["is_step"]]
    most = max([1.0, *steady])
    lines = []
    for row in data.skew:
        skew = row["skew_seconds"]
        share = min(abs(skew) / most, 1.0)
        told = f"{'+' if skew > 0 else ''}{duration(skew)}" + (", was set meanwhile" if row["is_step"] else "")
        color = "--c4" if row["is_step"] else ("--c3" if skew < 0 else "--c1")
        lines.append(_bar(row["machine"], told, [(share, color, told)]))
    note = f"Estimated from messages that went both ways; against {data.reference}."
    legend = _legend([("ahead", "--c1"), ("behind", "--c3"), ("was set meanwhile", "--c4")])
    return _section("Clocks", note, legend + _bars(lines))


def _routes(data: ReportData) -> str:
    if not data.routes:
        return ""
    machines = sorted({row[name] for row in data.routes for name in ("source", "destination")})
    middle, radius = _MAP_SIZE / 2, _MAP_SIZE / 2 - 62
    places = {}
    for index, machine in enumerate(machines):
        angle = 2 * math.pi * index / len(machines) - math.pi / 2
        places[machine] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))
    most = max(row["messages"] for row in data.routes)
    paths = []
    for row in data.routes:
        if row["source"] == row["destination"]:
            continue
        (x1, y1), (x2, y2) = places[row["source"]], places[row["destination"]]
        # Bent towards the middle, each direction to its own side.
        cx = (x1 + x2) / 2 + (middle - (x1 + x2) / 2) * 0.35 + (y2 - y1) * 0.12
        cy = (y1 + y2) / 2 + (middle - (y1 + y2) / 2) * 0.35 - (x2 - x1) * 0.12
        width = 0.8 + 5 * row["messages"] / most
        told = f"{row['source']} to {row['destination']}: {number(row['messages'])} messages"
        if row["median_seconds"] is not None:
            told += f", half within {duration(row['median_seconds'])}"
        paths.append(
            f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" stroke-width="{width:.1f}"><title>{escape(told)}</title></path>'
        )
    labels = []
    for machine, (x, y) in places.items():
        labels.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
        dx, dy = x - middle, y - middle
        anchor = "middle" if abs(dx) < radius * 0.3 else ("start" if dx > 0 else "end")
        lx, ly = x + 11 * dx / radius, y + 15 * dy / radius + 4
        labels.append(f'<text x="{lx:.1f}" y="{ly:.1f}" text-anchor="{anchor}">{escape(machine)}</text>')
    # Two machines need no great circle.
    widest = min(300 + 40 * len(machines), 560)
    svg = f'<svg class="map" style="max-width:{widest}px" viewBox="0 0 {_MAP_SIZE} {_MAP_SIZE}" role="img" aria-label="Map of routes">{"".join(paths + labels)}</svg>'
    return _section("Routes", "The thicker, the more messages.", svg)


def _poison(data: ReportData) -> str:
    if not data.poison:
        return ""
    columns = [
        ("Queue", False),
        ("Label", False),
        ("From", False),
        ("Messages", True),
        ("Aborts", True),
        ("Bodies", True),
    ]
    rows = [
        (
            short(row["queue"]),
            row["label"] or "\u2013",
            row["source"],
            number(row["messages"]),
            number(row["aborts"]),
            number(row["different_bodies"]),
        )
        for row in data.poison
    ]
    note = "Messages whose receive was aborted again and again, by what they have in common; numbers in labels are #."
    return _section("Poison", note, _table(columns, rows))


def _audit(data: ReportData) -> str:
    if not data.audit:
        return ""
    columns = [
        ("Sender", False),
        ("Machine", False),
        ("Queues", True),
        ("Messages", True),
        ("Signed", True),
        ("Verified", True),
        ("Encrypted", True),
    ]
    rows = [
        (
            row["sender"],
            row["source"],
            number(row["queues"]),
            number(row["messages"]),
            _percent(row["signed"], row["messages"]),
            _percent(row["verified"], row["messages"]),
            _percent(row["encrypted"], row["messages"]),
        )
        for row in data.audit
    ]
    note = "Those who send most without a signature; \u201cnobody\u201d did not name itself."
    return _section("Senders", note, _table(columns, rows))
