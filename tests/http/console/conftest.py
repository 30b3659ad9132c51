"""A real Chromium, and pages of users that have logged on to a real service."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Dialog, Page, StorageState, sync_playwright

import lanner
from tests.contract.service import USERS
from tests.http.service import HttpService

PASSWORD = "that of an account of a test"
_OPTIONS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module; each test has a profile of its own.

    While Playwright runs, this thread has its event loop, and no asynchronous test of another
    module could run.
    """
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("the Debian package chromium is not installed")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def manager(service: HttpService) -> Iterator[lanner.QueueManager]:
    """The same queue manager as its local administrator sees it."""
    with lanner.connect(data=service.data) as made:
        yield made


Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def sessions(browser: Browser, service: HttpService) -> Callable[[str], StorageState]:
    """Log a user on, once; the pages of a user share the session."""
    states: dict[str, StorageState] = {}

    def state(user: str) -> StorageState:
        if user not in states:
            context = browser.new_context(base_url=service.url)
            page = context.new_page()
            page.goto("/login")
            page.fill("#user", user)
            page.fill("#password", USERS.get(user, PASSWORD))
            page.click("button[type=submit]")
            page.wait_for_url(lambda address: "/login" not in address)
            states[user] = context.storage_state()
            context.close()
        return states[user]

    return state


@pytest.fixture
def visit(browser: Browser, service: HttpService, sessions: Callable[[str], StorageState]) -> Iterator[Visit]:
    """Open a page as a user. At the end, no page may have had an error or broken the policy."""
    contexts = []
    faults: list[str] = []

    def refuse(dialog: Dialog) -> None:
        faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def go(path: str, user: str = "alice", width: int = 1280, scheme: Literal["light", "dark"] = "light") -> Page:
        context = browser.new_context(
            base_url=service.url,
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            storage_state=sessions(user),
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
        page.on("console", lambda told: faults.append(told.text) if "Content Security Policy" in told.text else None)
        page.on("dialog", refuse)
        page.goto(path)
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which finds what a screen reader cannot read."""
    return (Path(__file__).parent / "axe" / "axe-4.14.0.min.js").read_text()
