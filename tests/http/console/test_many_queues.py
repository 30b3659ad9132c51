"""More queues than a sample has: every one of them is listed, found and counted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

import lanner
from lanner.http.console.samples import MOST

Visit = Callable[..., Page]
COUNT = MOST + 5


@pytest.fixture(scope="module", autouse=True)
def content(manager: lanner.QueueManager) -> None:
    """All but the last have a message; so it is in no sample."""
    for number in range(COUNT):
        queue = manager.create_queue(f"queue{number}", label=f"number {number}")
        if number < COUNT - 1:
            queue.send("x")


def test_a_page_of_a_queue_beyond_a_sample_is_live(visit: Visit, manager: lanner.QueueManager) -> None:
    """Of equally full queues the first ones by name are in the sample."""
    queue = manager.open("queue999")
    page = visit("/queue?name=private$%5Cqueue999")
    figure = page.locator('[data-live="n"]')
    expect(figure).to_have_text("1")
    queue.purge()
    expect(figure).to_have_text("0")
    # Nothing arrived: the queue came into the sample, with all that it has received so far.
    expect(page.locator('[data-live="i"]')).to_have_text("0")
    queue.send("x")
    expect(figure).to_have_text("1")


def test_queues_beyond_a_sample_are_listed_and_found(visit: Visit) -> None:
    last = COUNT - 1
    page = visit(f"/queues?find=queue{last}")
    expect(page.locator("tbody tr")).to_have_count(1)
    # All of these, and the administration queue.
    expect(page.locator("h1 + p")).to_contain_text(f"{COUNT + 1:,} queues")
    page.goto(f"/queues?find=number {last}")
    expect(page.locator("tbody tr")).to_contain_text(f"queue{last}")
    page.goto(f"/find?what=queue{last}")
    expect(page.locator("h1")).to_have_text(f"private$\\queue{last}")
    page.goto("/")
    expect(page.get_by_role("link", name=f"All {COUNT + 1:,} queues")).to_be_visible()
    expect(page.locator('[data-live="messages"]')).to_have_text(f"{COUNT - 1:,}")
