"""The documentation site: it is built without the internet, every link leads somewhere, and the references are whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lanner
import site_pages

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site.

    `--strict` fails on a link or an anchor that is not there, and on a page outside the navigation.
    """
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        if page != ROOT / "docs" / "README.md":
            assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").is_file(), page


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text(encoding="utf-8")
        )
        assert not [one for one in loaded if "canonical" not in one], page


def test_every_command_is_described() -> None:
    page = site_pages.commands_page()
    for command in (
        "lanner serve",
        "lanner queue create",
        "lanner queue access grant",
        "lanner pipeline",
        "lanner doctor",
    ):
        assert f"## {command}\n" in page
    assert "`--transactional`" in page


def test_every_public_name_is_described() -> None:
    page = site_pages.python_page()
    for name in lanner.__all__:
        one = getattr(lanner, name)
        assert not callable(one) or f"## lanner.{name}" in page
    assert "### Queue.send(" in page


def test_the_migration_guide_names_settings_and_commands_that_exist() -> None:
    text = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    settings = (ROOT / "docs" / "operator-guide.md").read_text(encoding="utf-8")
    commands = site_pages.commands_page()
    named = set(re.findall(r"`((?:transfer|quota)\.[a-z_0-9]+)`", text))
    assert len(named) > 10
    assert not [one for one in named if f"| `{one}` |" not in settings]
    lines = re.findall(r"`(lanner [a-z ]+?)(?:`| [A-Z0-9'-])", text)
    assert len(lines) > 10
    for line in lines:
        # The last words may be an argument in small letters.
        words = line.split()
        assert any(f"## {' '.join(words[:end])}\n" in commands for end in range(2, len(words) + 1)), line
