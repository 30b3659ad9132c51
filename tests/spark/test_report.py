"""The report: one page that needs nothing else, and whose numbers are those of the truth."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lanner.spark.jobs import acks, audit, latency, lifecycle, poison, report, routes, throughput
from lanner.spark.jobs.audit import NOT_SEEN
from lanner.spark.report import FAILED, ReportData, duration, number, render, short, size
from tests.http.console.conftest import browser  # noqa: F401 (a fixture)
from tests.spark.jobs.test_lifecycle import outcome, status
from tests.spark.jobs.test_numbers import is_seen
from tests.spark.jobs.worlds import Ingested

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VOID = {"meta", "br", "input", "rect", "path", "line", "circle"}
EVERYTHING = (
    "What became of messages",
    "Traffic",
    "Backlog",
    "Acknowledgments",
    "Why messages failed",
    "Bodies",
    "How long it took",
    "Routes",
    "Clocks",
    "Poison",
    "Senders",
)


class Page(HTMLParser):
    """Every tag closed, and what was seen on the way."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "data", "action")]
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag not in VOID or tag in ("rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.text.append(data)


def checked(text: str) -> Page:
    page = Page(text)
    assert page.open == []
    assert page.links == []
    assert not page.tags & {"link", "iframe", "img", "object", "form"}
    assert not re.search(r"url\(|@import|https?://", text)
    # One script, which the page's policy names by its hash, and one element of data.
    data, script = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    json.loads(data)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    return page


@pytest.fixture(scope="module")
def made(business: Ingested) -> ReportData:
    for job in (lifecycle, acks, latency, throughput, poison, routes, audit):
        if not business.context.lake.has(job.NAME):
            job.run(business.context)
    return report.gather(business.context.lake, "Orders & <more>")


def test_every_section_is_there_and_nothing_is_fetched(made: ReportData) -> None:
    text = render(made, dt.datetime(2026, 3, 3, tzinfo=dt.UTC))
    page = checked(text)
    words = "".join(page.text)
    for title in EVERYTHING:
        assert title in words
    assert "Orders & <more>" in words
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_its_numbers_are_those_of_the_truth(business: Ingested, made: ReportData) -> None:
    messages = business.truth["messages"]
    assert made.status == {name: [status(m) for m in messages].count(name) for name in set(map(status, messages))}
    assert made.bytes == sum(m["body_size"] for m in messages if is_seen(m))
    asked = [m for m in messages if is_seen(m) and m["acknowledge"]]
    missing = sum(outcome(m) == "missing" for m in asked)
    assert sum(row["messages"] for row in made.acks if row["outcome"] == "missing") == missing > 0
    seen = [row["messages"] for row in made.census if row["formatter"] != NOT_SEEN]
    assert sum(seen) == sum(map(is_seen, messages))
    assert made.broken == business.truth["broken_packets"]
    assert sum(row["arrived"] for row in made.traffic) == sum(
        row["arrived"] for row in business.context.lake.read("throughput").collect()
    )


@pytest.mark.parametrize("width", [1400, 390])
def test_it_is_filtered_in_a_browser(made: ReportData, browser: Browser, tmp_path: Path, width: int) -> None:  # noqa: F811
    """A queue, or a reason, narrows every number; the page is no wider than the window."""
    path = tmp_path / "report.html"
    path.write_text(render(made), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    def tile(name: str) -> int:
        return int(page.locator(f'[data-tile="{name}"] b').inner_text().replace("\u202f", ""))

    everything = {name: tile(name) for name in ("total", "waiting", "failed")}
    assert everything["total"] == sum(made.status.values())
    queue = max(made.cube, key=lambda row: (row["queue"] is not None, row["messages"]))["queue"]
    page.locator("#f-queue").select_option(label=short(queue))
    counts = dict.fromkeys(("waiting", *FAILED), 0)
    for row in made.cube:
        if row["queue"] == queue:
            counts[row["status"]] = counts.get(row["status"], 0) + row["messages"]
    assert tile("total") == sum(counts.values()) < everything["total"]
    assert tile("waiting") == counts["waiting"]
    assert tile("failed") == sum(counts[name] for name in FAILED)
    page.locator("#f-reset").click()
    assert {name: tile(name) for name in everything} == everything
    # A bar leads to the messages that it counts.
    reason = page.locator("section", has_text="Why messages failed").locator("[data-drill]").first
    count = int(reason.inner_text().split("\n")[-1].replace("\u202f", ""))
    reason.click()
    assert f"of {number(count)} messages" in page.locator("#messages-count").inner_text()
    assert complaints == []
    page.close()


def at(second: int) -> dt.datetime:
    return dt.datetime(2026, 3, 2, 10, 0, second, tzinfo=dt.UTC)


def sample() -> ReportData:
    """Ten messages of two queues: of three the time of sending is unknown."""
    one, two = (rf"DIRECT=OS:SHOP\private$\{name}" for name in ("one", "two"))

    def listed(queue: str, sent: dt.datetime | None, *, is_exact: bool) -> dict[str, object]:
        return {"label": "x", "queue": queue, "status": "received", "source": "SHOP", "destination": "SHOP",
                "sent_at": sent, "way": 0.0, "wait": 7.04, "reason": None, "abort_count": 0, "msg_id": "guid\\1",
                "is_exact_way": is_exact, "is_exact_wait": is_exact}  # fmt: skip

    def traffic(second: int, arrived: int) -> dict[str, object]:
        return {"period": at(second), "arrived": arrived, "received": 0, "failed": 0}

    return ReportData(
        first=at(0),
        last=at(8),
        status={"received": 9, "waiting": 1},
        cube=[
            {"queue": one, "status": "received", "period": at(0), "messages": 6},
            {"queue": two, "status": "waiting", "period": at(8), "messages": 1},
            {"queue": two, "status": "received", "period": None, "messages": 3},
        ],
        cube_seconds=1,
        traffic=[traffic(second, {0: 7, 8: 3}.get(second, 0)) for second in range(9)],
        queue_traffic=[{"queue": one, **traffic(0, 7)}, {"queue": two, **traffic(8, 3)}],
        messages=[listed(one, at(0), is_exact=True), listed(two, None, is_exact=False)],
    )


def test_messages_of_unknown_time_count_and_quiet_periods_are_drawn(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "report.html"
    path.write_text(render(sample()), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())

    def shown() -> dict[str, str]:
        places = {"total": '[data-tile="total"] b', "bar": "#status-bar .head span:last-child",
                  "received": 'button[data-status="received"] b', "left out": "#f-other"}  # fmt: skip
        return {name: page.locator(place).inner_text() for name, place in places.items()}

    def points() -> list[float]:
        line = page.locator('#traffic path[data-series="0"]:not(.area)').get_attribute("d") or ""
        return [float(point.split()[1]) for point in line.removeprefix("M").split("L")]

    rows = page.locator("#messages tr")
    assert shown() == {"total": "10", "bar": "10", "received": "9", "left out": ""}
    # Seven, then nothing, then three, on an axis that ends with a round number.
    assert points() == [60.0, *[200.0] * 7, 140.0]
    assert page.locator("#traffic-top").inner_text() == "10"
    assert rows.count() == 2
    assert [rows.nth(0).locator("td").nth(place).inner_text() for place in (4, 5)] == ["< 1 ms", "7.0 s"]
    assert [rows.nth(1).locator("td").nth(place).inner_text() for place in (4, 5)] == ["< 1 s", "7 s"]
    page.locator("#f-queue").select_option(label="two on SHOP")
    assert shown() == {"total": "4", "bar": "4", "received": "3", "left out": ""}
    assert rows.count() == 1
    page.locator("#f-reset").click()
    page.locator("#f-from").fill("1")
    unknown = "without 3 whose time of sending is unknown"
    assert shown() == {"total": "1", "bar": "1", "received": "0", "left out": unknown}
    assert rows.count() == 0
    assert float(page.locator("#traffic rect.out").first.get_attribute("width") or 0) == 1000
    page.close()


def test_the_clock_that_was_set_is_marked(business: Ingested, made: ReportData) -> None:
    set_back = next(m["name"] for m in business.truth["machines"] if max(m["skews"]) - min(m["skews"]) > 3000)
    if made.reference == set_back:
        assert all(row["is_step"] for row in made.skew)
    else:
        assert {row["machine"] for row in made.skew if row["is_step"]} == {set_back}
    real = {m["name"]: m["skews"] for m in business.truth["machines"]}
    for row in made.skew:
        if not row["is_step"]:
            assert made.reference is not None
            differences = [a - b for a, b in zip(real[row["machine"]], real[made.reference], strict=True)]
            assert min(differences) - 4 <= row["skew_seconds"] <= max(differences) + 4


def test_nothing_is_a_page_too() -> None:
    page = checked(render(ReportData()))
    assert "No messages were seen." in "".join(page.text)
    assert not any(title in "".join(page.text) for title in EVERYTHING)


def test_what_messages_say_cannot_break_out(made: ReportData) -> None:
    evil = "</svg><script>alert(1)</script>\"'&"
    rows = [{"queue": evil, "label": evil, "source": evil, "messages": 1, "aborts": 3, "different_bodies": 1}]
    routes_rows = [{"source": evil, "destination": "B", "messages": 1, "median_seconds": None, "loops": 0}]
    listed = [{"label": evil, "queue": evil, "status": "sent", "sent_at": None, "way": None, "wait": None,
               "reason": None, "abort_count": 0, "msg_id": evil, "source": evil, "is_exact_way": False,
               "is_exact_wait": False}]  # fmt: skip
    checked(render(ReportData(poison=rows, routes=routes_rows, messages=listed)))


def test_the_page_is_written_where_the_configuration_says(
    business: Ingested, made: ReportData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "gather", lambda *_: made)
    path = Path(report.run(business.context)["report"])
    assert path == business.context.config._base / "report.html"
    checked(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (number(1234567), "1\u202f234\u202f567"),
        (number(None), "\u2013"),
        (size(1536), "1.5 KiB"),
        (duration(5.0), "5 s"),
        (duration(0.0421), "42 ms"),
        (duration(-90.5), "-90.5 s"),
        (duration(300), "5 min"),
        (duration(86_400 * 3), "3.0 d"),
        (short(r"DIRECT=OS:LYON-1\private$\orders"), "orders on LYON-1"),
        (short("PUBLIC=x"), "PUBLIC=x"),
        (short(None), "?"),
    ],
)
def test_words(found: str, expected: str) -> None:
    assert found == expected
