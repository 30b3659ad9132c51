"""docs/comparison.md: every command, route and screen that it names exists."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

import httpx

import site_pages
from lanner.errors import AccessDenied
from lanner.http.app import create_app
from lanner.http.log_ons import LoggedOn

PAGE = Path(__file__).resolve().parent.parent / "docs" / "comparison.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d+ \|", line)
]


def named(column: int) -> set[str]:
    return {name for row in ROWS for name in re.findall(r"`([^`]+)`", row[column])}


class Nobody:
    """An authenticator that rejects everyone."""

    async def log_on(self, secret: Mapping[str, str], address: str) -> LoggedOn:
        raise AccessDenied(f"{address} gave {len(secret)} secrets, and none is right")

    async def is_ready(self) -> bool:
        return False


def answers(method: str, path: str) -> int:
    """Query the application as an anonymous visitor."""
    transport = httpx.ASGITransport(create_app(Nobody(), ["lanner"]), raise_app_exceptions=False)

    async def ask() -> int:
        async with httpx.AsyncClient(transport=transport, base_url="http://lanner") as client:
            return (await client.request(method, path)).status_code

    return asyncio.run(ask())


def test_thirty_rows_are_served() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 32))
    assert sum(any("`" in cell for cell in row[2:]) for row in ROWS) >= 30


def test_the_commands_exist() -> None:
    page = site_pages.commands_page()
    for name in named(2):
        command, _, option = name.partition(" --")
        section = page.partition(f"## {command}\n")[2].partition("\n## ")[0]
        assert section, name
        assert not option or f"`--{option}`" in section, name


def test_the_routes_exist() -> None:
    paths = create_app(Nobody()).openapi()["paths"]
    for name in named(3):
        method, _, path = name.partition(" ")
        assert method.lower() in paths[f"/api/v1{path}"], name


def test_the_screens_exist() -> None:
    """A screen redirects a visitor who has not logged on, or rejects the form.

    A path that is no screen is not found.
    """
    assert answers("GET", "/no-such-screen") == HTTPStatus.NOT_FOUND
    for path in named(4):
        found = {answers(method, path) for method in ("GET", "POST")}
        assert found - {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}, path
