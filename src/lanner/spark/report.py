"""The report: one self-contained HTML page, with plots as inline SVG.

`render` makes the page from plain data, which `lanner.spark.jobs.report` gathers. A section without
data is left out. Text from messages is escaped: labels and names are untrusted. The page is
complete without its script, which adds filters and links from numbers to their messages. The page's
content security policy allows only this script, by its hash, and nothing from elsewhere.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
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
    "expired": ("expired", "--c7"),
    "purged": ("purged", "--c5"),
    "refused": ("refused", "--c3"),
}
OUTCOMES: Final = {
    "positive": "--c2",
    "negative": "--c4",
    "missing": "--c3",
    "pending": "--c1",
    "quiet": "--c6",
}
_MAP_WIDTH, _MAP_HEIGHT = 560, 400
# Limits of the numbers on the map and of the rows below it.
_MAP_LABELS, _ROUTE_ROWS = 24, 12
_PLOT_WIDTH, _PLOT_HEIGHT = 1000, 200
# With these the script dims what is before and after the chosen time.
_OUTSIDE: Final = 2 * f'<rect class="out" width="0" height="{_PLOT_HEIGHT}"/>'


@dataclass
class ReportData:
    """The data of the page. Lists have rows like those of the tables."""

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
    routes: Rows = field(default_factory=list)  # source, destination, messages, told, median_seconds, loops
    poison: Rows = field(default_factory=list)
    audit: Rows = field(default_factory=list)
    census: Rows = field(default_factory=list)  # formatter, messages, bytes
    broken: int = 0
    # count of messages known from events, messages or both
    known_by: dict[str, int] = field(default_factory=dict)
    # For the filters: all messages by queue, period and status; arrived, received and failed by
    # queue and period.
    cube: Rows = field(default_factory=list)
    cube_seconds: int = 60
    queue_traffic: Rows = field(default_factory=list)
    # The list: label, queue, status, source, sent_at, way, wait, reason, abort_count, msg_id, and
    # whether way and wait are known to the millisecond. It is limited if there are many messages.
    messages: Rows = field(default_factory=list)


def render(data: ReportData, made: dt.datetime | None = None) -> str:
    """Return the page."""
    made = made or dt.datetime.now(dt.UTC)
    parts = [_tiles(data), _status(data), _traffic(data)]
    pairs = [_backlog(data), _acks(data), _reasons(data), _census(data)]
    parts.append(_columns(pairs))
    parts.append(_latency(data))
    parts.append(_columns([_routes(data), _skew(data)]))
    parts += [_poison(data), _audit(data), _messages(data)]
    script = resources.files("lanner.spark").joinpath("report_script.js").read_text(encoding="utf-8")
    template = Template(resources.files("lanner.spark").joinpath("report_template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(data.title),
        subtitle=escape(_span(data)),
        content="\n".join(part for part in parts if part),
        data=_embedded(data),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(f"\n{script}\n".encode()).digest()).decode(),
        version=escape(lanner.__version__),
        made=made.strftime("%d %B %Y, %H:%M UTC"),
    )


# Words and numbers
# --------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """Return a number with thin spaces between thousands; a dash for None."""
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
    """Return seconds in a readable unit."""
    if seconds is None:
        return "\u2013"
    magnitude = abs(seconds)
    if 0 < magnitude < 1:
        return f"{number(seconds * 1000)} ms"
    for limit, unit, length in ((120, "s", 1), (7200, "min", 60), (172_800, "h", 3600)):
        if magnitude < limit:
            value = seconds / length
            return f"{number(value, 0 if float(value).is_integer() else 1)} {unit}"
    return f"{number(seconds / 86_400, 1)} d"


def short(queue: str | None) -> str:
    r"""Return a readable name: DIRECT=OS:LYON-1\private$\orders is orders on LYON-1."""
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


# Building blocks
# --------------------------------------------------------------------------------------------------


def _section(title: str, note: str, body: str) -> str:
    return f'<section><h2>{escape(title)}</h2><p class="note">{escape(note)}</p>{body}</section>'


def _columns(sections: Iterable[str]) -> str:
    found = [section for section in sections if section]
    return f'<div class="columns">{"".join(found)}</div>' if found else ""


def _legend(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(f'<span><i style="background:var({color})"></i>{escape(text)}</span>' for text, color in entries)
    return f'<div class="legend">{items}</div>'


def _drill(**wanted: object) -> str:
    """Return the attributes of an element that leads to messages: keys of the script's state."""
    return f' data-drill="{escape(json.dumps(wanted))}" tabindex="0" role="button"'


def _bar(
    name: str,
    told: str,
    parts: Sequence[tuple[float, str, str]],
    *,
    title: str = "",
    more: str = "",
    keys: Sequence[str] = (),
) -> str:
    """Return a bar of a chart. Each part has a share of the width (0 to 1), a colour and a text."""
    rects, left = [], 0.0
    for place, (share, color, text) in enumerate(parts):
        key = f' data-status="{escape(keys[place])}"' if keys else ""
        width = max(share, 0.0) * 100
        rects.append(
            f'<rect{key} x="{left:.2f}%" width="{width:.2f}%" height="12" '
            f'style="fill:var({color})"><title>{escape(text)}</title></rect>'
        )
        left += width
    head = (
        '<div class="head"><span '
        f'title="{escape(title or name)}">{escape(name)}</span><span>{escape(told)}</span></div>'
    )
    return (
        f'<div class="bar"{more}>{head}<svg role="img" '
        f'aria-label="{escape(f"{name}: {told}")}">{"".join(rects)}</svg></div>'
    )


def _bars(lines: Iterable[str]) -> str:
    return f'<div class="bars">{"".join(lines)}</div>'


def _table(columns: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]], more: Sequence[str] = ()) -> str:
    head = "".join(f"<th{' class=n' if is_number else ''}>{escape(title)}</th>" for title, is_number in columns)
    lines = []
    for row in rows:
        cells = zip(row, columns, strict=True)
        lines.append(
            "".join(f'<td class="{"n" if is_number else "name"}">{escape(cell)}</td>' for cell, (_, is_number) in cells)
        )
    attributes = [*more, *[""] * (len(lines) - len(more))]
    body = "".join(f"<tr{each}>{line}</tr>" for each, line in zip(attributes, lines, strict=True))
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# Sections
# --------------------------------------------------------------------------------------------------


FAILED: Final = ("dead_lettered", "refused", "expired", "purged")


def _tiles(data: ReportData) -> str:
    total = sum(data.status.values())
    dead = sum(data.status.get(name, 0) for name in FAILED)
    missing = sum(row["messages"] for row in data.acks if row["outcome"] == "missing")
    # The last item is the name under which the script counts it. A tile without one always counts
    # the whole page.
    tiles = [
        (number(total), "messages", False, "total"),
        (size(data.bytes), "in their bodies", False, ""),
        (number(data.machines), "queue managers", False, ""),
        (_percent(data.status.get("received", 0), total), "known to be received", False, "received"),
        (number(data.status.get("waiting", 0)), "waiting", False, "waiting"),
        (number(dead), "failed", dead > 0, "failed"),
        (number(missing), "missing acks", missing > 0, ""),
    ]
    if data.broken:
        tiles.append((number(data.broken), "unreadable", True, ""))
    cells = "".join(
        f'<div class="tile{" bad" if is_bad else ""}" data-tile="{name}"><b>{escape(value)}</b>'
        f"<span>{escape(text)}</span></div>"
        for value, text, is_bad, name in tiles
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
    legend = "".join(
        f'<button data-status="{name}"{_drill(status=name)}><i style="background:var({STATUS[name][1]})"></i>'
        f"{escape(STATUS[name][0])} <b>{number(count)}</b></button>"
        for name, count in known
    )
    bar = _bar("all messages", number(total), parts, more=' id="status-bar"', keys=[name for name, _ in known])
    return _section("What became of messages", _known_by(data), _bars([bar]) + f'<div class="legend">{legend}</div>')


def _known_by(data: ReportData) -> str:
    """Return the note on the origin of the numbers."""
    by_events = data.known_by.get("events", 0) + data.known_by.get("both", 0)
    others = data.known_by.get("messages", 0)
    if not by_events:
        return (
            "The last known state of each message, from messages alone: journals, dead-letter queues, "
            "acknowledgments and reports. There are no events; a message that left a queue without a journal counts "
            "as still there."
        )
    told = f"The last known state of each message. {number(by_events)} are known from events, in milliseconds"
    if not others:
        return told + "."
    return told + f"; {number(others)} are known from messages alone, in whole seconds."


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
        place = [each for each, _ in series].index(name)
        if name == "arrived":
            closed = f"M0 {_PLOT_HEIGHT}L{line}L{points[-1][0]:.1f} {_PLOT_HEIGHT}Z"
            paths.append(f'<path class="area" data-series="{place}" style="fill:var({color})" d="{closed}"/>')
        paths.append(
            f'<path data-series="{place}" style="stroke:var({color})" d="M{line}"><title>{name}</title></path>'
        )
    grid = "".join(f'<line x1="0" x2="{_PLOT_WIDTH}" y1="{y}" y2="{y}"/>' for y in (0, 50, 100, 150))
    labels = "".join(
        f"<span{where}>{escape(number(top * share, 0 if float(top * share).is_integer() else 1))}</span>"
        for share, where in ((1, ' id="traffic-top"'), (0.5, ' id="traffic-half"'), (0, ""))
    )
    ticks = [dt.datetime.fromtimestamp(start + (end - start) * share, dt.UTC) for share in (0, 1 / 3, 2 / 3, 1)]
    shape = "%H:%M:%S" if end - start < 600 else "%H:%M" if end - start < 172_800 else "%d %b"
    axis = "".join(f"<span>{escape(tick.strftime(shape))}</span>" for tick in ticks)
    step = duration(times[1] - times[0] if len(times) > 1 else 60)
    svg = (
        f'<svg id="traffic" viewBox="0 0 {_PLOT_WIDTH} {_PLOT_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="Messages over time">{grid}{"".join(paths)}{_OUTSIDE}</svg>'
    )
    plot = f'<div class="plot"><div class="y">{labels}</div>{svg}<div class="x">{axis}</div></div>'
    note = (
        f"Messages in each {step}, all queues, by the clocks of the receiving machines. "
        "For queues with events, acknowledgments are counted too."
    )
    return _section("Traffic", note, _legend(series) + plot)


def _round_up(value: float) -> float:
    """Return a round number as the end of an axis."""
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
        lines.append(
            _bar(
                short(row["queue"]),
                told,
                [(row["depth"] / most, "--c1", told)],
                title=row["queue"],
                more=_of_queue(row["queue"]),
            )
        )
    note = (
        "Messages not received at the end, and how long receiving them takes at the latest rates. Without events, a "
        "message that left a queue without a journal counts as still there, unless an acknowledgment reports it."
    )
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
        lines.append(_bar(short(queue), told, parts, title=queue, more=_of_queue(queue)))
    note = (
        "Of messages that request one. Missing: it is due and has not come. Quiet: only negative ones were requested."
    )
    return _section("Acknowledgments", note, _legend(OUTCOMES.items()) + _bars(lines[:12]))


def _of_queue(queue: str) -> str:
    """Return the attributes of an element about one queue."""
    return f' data-queue="{escape(queue)}"{_drill(queue=queue)}'


def reason_words(reason: str | None) -> str:
    return (reason or "").removeprefix("NACK_").replace("_", " ").lower()


def _reasons(data: ReportData) -> str:
    words = [(reason_words(row["reason"]), row["messages"]) for row in data.reasons]
    return _counted(
        "Why messages failed",
        "From events, negative acknowledgments and dead letters. Choose one to see its messages.",
        words,
        "--c4",
        [_drill(reason=name) for name, _ in words],
    )


def _census(data: ReportData) -> str:
    rows = [(f"{row['formatter']}", row["messages"]) for row in data.census]
    return _counted("Bodies", "The formatter that wrote each, judged by type and first bytes.", rows, "--c5")


def _counted(title: str, note: str, rows: Sequence[tuple[str, int]], color: str, more: Sequence[str] = ()) -> str:
    if not rows:
        return ""
    most = max(count for _, count in rows)
    attributes = more or [""] * len(rows)
    lines = [
        _bar(name, number(count), [(count / most, color, f"{name}: {number(count)}")], more=each)
        for (name, count), each in zip(rows, attributes, strict=True)
    ]
    return _section(title, note, _bars(lines))


def _latency(data: ReportData) -> str:
    if not data.latency:
        return ""
    columns = [("Queue", False), ("Arrived", True), ("Received", True)]
    columns += [(name, True) for name in ("Way: 50 %", "95 %", "99 %", "Wait: 50 %", "95 %", "99 %")]
    names = [f"{kind}_{share}" for kind in ("delivery", "wait") for share in ("p50", "p95", "p99")]
    rows = []
    for row in data.latency:
        # If clocks have whole seconds, zero means less than a second.
        least = "< 1 ms" if row["exact"] == row["messages"] else "< 1 s"
        times = [least if row[name] == 0 else duration(row[name]) for name in names]
        rows.append((short(row["queue"]), number(row["messages"]), number(row["received"]), *times))
    exact, total = (sum(row[name] for row in data.latency) for name in ("exact", "messages"))
    note = (
        "Way: from sending to arrival, less the estimated difference of the clocks. Wait: from arrival "
        f"to receipt. Half, 95 % and 99 % of messages took no longer. Times of {number(exact)} of "
        f"{number(total)} messages are from events, in milliseconds"
        + (
            "."
            if exact == total
            else "; the others are whole seconds, of messages that are in a queue or were acknowledged."
        )
        + " Hours in which a clock was set are left out."
    )
    return _section("How long it took", note, _table(columns, rows, [_of_queue(row["queue"]) for row in data.latency]))


def _skew(data: ReportData) -> str:
    if not data.skew:
        return ""
    steady = [abs(row["skew_seconds"]) for row in data.skew if not row["is_step"]]
    most = max([0.001, *steady])
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
    height = _MAP_HEIGHT if len(machines) > 2 else _MAP_HEIGHT // 3
    middle_x, middle_y = _MAP_WIDTH / 2, height / 2
    radius_x, radius_y = middle_x - 90, middle_y - 40 if len(machines) > 2 else 0
    places = {}
    for index, machine in enumerate(machines):
        angle = 2 * math.pi * index / len(machines) + math.pi
        places[machine] = (middle_x + radius_x * math.cos(angle), middle_y + radius_y * math.sin(angle))
    most = max(row["messages"] for row in data.routes)
    paths: list[str] = []
    labels: list[str] = []
    for row in sorted(data.routes, key=lambda row: -row["messages"]):
        if row["source"] == row["destination"]:
            continue
        (x1, y1), (x2, y2) = places[row["source"]], places[row["destination"]]
        # Each direction bends to its own side.
        cx, cy = (x1 + x2) / 2 + (y2 - y1) * 0.18, (y1 + y2) / 2 - (x2 - x1) * 0.18
        cy = min(max(cy, 4), height - 4)
        width = 1 + 5 * math.sqrt(row["messages"] / most)
        told = f"{row['source']} to {row['destination']}: {number(row['messages'])} messages"
        if row["median_seconds"] is not None:
            told += f", half within {duration(row['median_seconds'])}"
        paths.append(
            f'<path d="M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}" '
            f'stroke-width="{width:.1f}"><title>{escape(told)}</title></path>'
        )
        if len(labels) < _MAP_LABELS:
            # A point of the curve beyond its middle, so that the labels of both directions do not
            # overlap.
            x, y = 0.16 * x1 + 0.48 * cx + 0.36 * x2, 0.16 * y1 + 0.48 * cy + 0.36 * y2
            labels.append(
                f'<text class="count" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{number(row["messages"])}</text>'
            )
    for machine, (x, y) in places.items():
        labels.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/>')
        anchor = "end" if x < middle_x - 1 else "start" if x > middle_x + 1 else "middle"
        step = 11 if anchor == "start" else -11 if anchor == "end" else 0
        labels.append(
            f'<text x="{x + step:.1f}" y="{y + 4 if step else y - 10:.1f}" '
            f'text-anchor="{anchor}">{escape(machine)}</text>'
        )
    svg = (
        f'<div class="wide"><svg class="map" viewBox="0 0 {_MAP_WIDTH} {height}" role="img" aria-label="Map of '
        f'routes">{"".join(paths + labels)}</svg></div>'
    )
    columns = [("From", False), ("To", False), ("Messages", True), ("Half within", True), ("Loops", True)]
    rows = [
        (
            row["source"],
            row["destination"],
            number(row["messages"]),
            duration(row["median_seconds"]),
            number(row["loops"]) if row["loops"] else "",
        )
        for row in data.routes[:_ROUTE_ROWS]
    ]
    note = "All messages from one queue manager to the next, traced or not; the number is nearer to the destination."
    return _section("Routes", note, svg + _table(columns, rows))


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
    note = "Messages whose receive was aborted repeatedly, grouped by what they have in common; # stands for a number."
    more = [_drill(queue=row["queue"], poison=True) for row in data.poison]
    return _section("Poison", note, _table(columns, rows, more))


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
    note = "The senders of most unsigned messages; \u201cnobody\u201d is a sender without a name."
    return _section("Senders", note, _table(columns, rows))


def _messages(data: ReportData) -> str:
    if not data.messages:
        return ""
    columns = ("Label", "Queue", "End", "Sent, UTC", "Way", "Wait", "Aborts", "Identifier")
    numbers = {4, 5, 6}
    # The indexes of the values in the script's rows.
    keys = (0, 1, 2, 3, 4, 5, 7, 8)
    head = "".join(
        f'<th data-sort="{key}"{" class=n" if place in numbers else ""} tabindex="0">{escape(name)}</th>'
        for place, (name, key) in enumerate(zip(columns, keys, strict=True))
    )
    return (
        '<section id="messages-section"><h2>Messages</h2><p class="note"><span id="messages-count"></span>. '
        "Choose a number above to see its messages, and a column to sort by it. The label is unknown where only "
        "events tell.</p>"
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody id="messages"></tbody></table></div>'
        '<button id="messages-more" hidden>more</button></section>'
    )


def _embedded(data: ReportData) -> str:
    """Return the data of the script, as JSON that cannot end its element."""
    queues = sorted({row["queue"] or "" for row in (*data.cube, *data.queue_traffic, *data.messages)}, key=short)
    names = {queue: place for place, queue in enumerate(queues)}
    times = sorted({row["period"] for row in data.cube if row["period"] is not None})
    places = {time: place for place, time in enumerate(times)}
    # Also the periods without traffic, so that the plot does not skip them.
    periods = sorted({_milliseconds(row["period"]) for row in (*data.traffic, *data.queue_traffic)})
    period_places = {time: place for place, time in enumerate(periods)}
    found = {
        "queues": [short(queue) for queue in queues],
        "names": names,
        "statuses": {name: STATUS[name][0] for name in STATUS if data.status.get(name)},
        "total": sum(data.status.values()),
        "failed": FAILED,
        "step": data.cube_seconds * 1000,
        "times": [_milliseconds(time) for time in times],
        "cube": [
            [names[row["queue"] or ""], places.get(row["period"]), row["status"], row["messages"]] for row in data.cube
        ],
        "traffic": {
            "times": periods,
            "rows": [
                [
                    names[row["queue"] or ""],
                    period_places[_milliseconds(row["period"])],
                    row["arrived"],
                    row["received"],
                    row["failed"],
                ]
                for row in data.queue_traffic
            ],
        },
        "messages": [
            [
                row["label"],
                names[row["queue"] or ""],
                row["status"],
                None if row["sent_at"] is None else _milliseconds(row["sent_at"]),
                row["way"],
                row["wait"],
                reason_words(row["reason"]),
                row["abort_count"] or 0,
                row["msg_id"],
                row["source"],
                row["is_exact_way"],
                row["is_exact_wait"],
            ]
            for row in data.messages
        ],
    }
    return json.dumps(found, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")


def _milliseconds(time: dt.datetime) -> int:
    return round(time.timestamp() * 1000)
