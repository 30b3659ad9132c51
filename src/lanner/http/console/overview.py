"""The overview: what needs attention, in sentences, then the figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lanner.http.console.page import is_stuck, local_name, queue_url, short_name, url
from lanner.http.console.words import percent, plural, way_words
from lanner.model.enums import INFINITE

if TYPE_CHECKING:
    from lanner.http.console.samples import Sample

# From these percentages of its quota on, a queue gets a warning, and is full.
NEARLY_FULL, FULL = 80, 100
_WORDS = ("Nothing", "One thing", "Two things", "Three things", "Four things", "Five things")


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that needs attention: the problem, its effect, and the page that helps."""

    state: str
    title: str
    text: str
    button: str
    href: str


def quota_share(row: dict[str, Any]) -> int:
    """Return how much of its quota a queue uses, in percent; 0 without a quota."""
    return 0 if row["quota_kb"] == INFINITE else percent(row["bytes"], row["quota_kb"] * 1024)


def alarms(sample: Sample, findings: list[dict[str, Any]], *, is_online: bool, name: str) -> list[Alarm]:
    """Return what needs attention, the worst first."""
    found = []
    if not is_online:
        text = "It exchanges no messages with other computers until it is brought online, or restarts."
        found.append(Alarm("warn", f"{name} is offline.", text, "Settings", "/settings"))
    for queue in filter(is_stuck, sample.outgoing):
        waiting = f"{plural(queue['messages'], 'message')} wait{'s' if queue['messages'] == 1 else ''}"
        retry = "" if queue["retry_in"] is None else f" Next attempt in {queue['retry_in']:.0f} s."
        _, advice = way_words(queue["problem"])
        text = f"{advice} {waiting[:1].upper()}{waiting[1:]} and nothing is lost.{retry}"
        href = url("/outgoing", name=queue["name"])
        found.append(Alarm("bad", f"{destination(queue)} {way_words(queue['problem'])[0]}.", text, "See why", href))
    if sample.dead_letters:
        title = f"{plural(sample.dead_letters, 'message')} could not be delivered."
        text = "Each has its reason, and can be returned to its queue."
        found.append(Alarm("bad", title, text, "Review", "/deadletters"))
    for row in sample.rows:
        share = quota_share(row)
        if share >= NEARLY_FULL:
            found.append(_nearly_full(row, share))
    # The last two are about the past, and no action would clear them.
    handled = {"dead letters", "outgoing", "quotas", "refusals", "peers"}
    for finding in findings:
        if finding["verdict"] in ("WARN", "FAIL") and finding["check"] not in handled:
            state = "bad" if finding["verdict"] == "FAIL" else "warn"
            title = f"{finding['check'].capitalize()}: {finding['text']}."
            found.append(Alarm(state, title, finding["advice"], "Doctor", "/doctor"))
    return sorted(found, key=lambda alarm: alarm.state != "bad")


def _nearly_full(row: dict[str, Any], share: int) -> Alarm:
    name, href = short_name(row["name"]), queue_url(local_name(row["name"]))
    if share >= FULL:
        text = "Further messages are refused. Receive or purge messages, or raise the quota under Properties."
        return Alarm("bad", f"{name} is full.", text, "Open queue", href)
    text = "When it is full, further messages are refused."
    return Alarm("warn", f"{name} has used {share} % of its quota.", text, "Open queue", href)


def headline(count: int) -> str:
    """Return how many things need attention, in words."""
    words = _WORDS[count] if count < len(_WORDS) else f"{count} things"
    return f"{words} need{'s' if count < 2 else ''} your attention"


def destination(queue: dict[str, Any]) -> str:
    """Return the computer that an outgoing queue is for."""
    name: str = queue["name"]
    _, found, rest = name.partition("=")
    if not found:
        return name
    if name.upper().startswith("DIRECT="):
        rest = rest.partition(":")[2]
        return rest.lstrip("/").partition("\\")[0].partition("/")[0]
    hops = queue.get("next_hops") or ()
    return hops[0].partition("=")[2] or hops[0] if hops else rest
