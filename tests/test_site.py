"""The documentation site.

It is built without the internet, every link leads somewhere, and the references are complete.
"""

from __future__ import annotations

import inspect
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
    named = set(re.findall(r"`((?:transfer|quota|security|rpc|directory)\.[a-z_0-9]+)`", text))
    assert len(named) > 15
    assert not [one for one in named if f"| `{one}` |" not in settings]
    lines = re.findall(r"`(lanner [a-z ]+?)(?:`| [A-Z0-9'-])", text)
    assert len(lines) > 10
    for line in lines:
        # The last words may be an argument in small letters.
        words = line.split()
        assert any(f"## {' '.join(words[:end])}\n" in commands for end in range(2, len(words) + 1)), line


def test_the_migration_guide_names_python_that_exists_and_leaves_no_cmdlet_out() -> None:
    text = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    owners = {"qm": lanner.QueueManager, "q": lanner.Queue, "c": lanner.Cursor, "lanner.errors": lanner.errors}
    calls = re.findall(r"`(?:await |list\()?(qm|q|c|lanner\.errors)\.([A-Za-z_]+)", text)
    assert len(calls) > 60
    assert [f"{owner}.{name}" for owner, name in calls if not hasattr(owners[owner], name)] == []
    fields = re.findall(r"`([a-z_]+)`", text.partition("### Message\n")[2].partition("\n### ")[0])
    assert len(fields) > 30
    signature = inspect.signature(lanner.Message).parameters
    assert [one for one in fields if not hasattr(lanner.ReceivedMessage, one) and one not in signature] == []
    nouns = ["Queue", "QueueACL", "QueueManager", "QueueManagerACL", "OutgoingQueue", "Certificate"]
    cmdlets = [f"Get-Msmq{noun}" for noun in nouns] + [f"Set-Msmq{noun}" for noun in nouns[:4]]
    cmdlets += ["Clear-MsmqOutgoingQueue", "Clear-MsmqQueue", "Enable-MsmqCertificate", "Move-MsmqMessage"]
    cmdlets += ["New-MsmqMessage", "New-MsmqQueue", "Receive-MsmqQueue", "Remove-MsmqCertificate", "Remove-MsmqQueue"]
    cmdlets += ["Resume-MsmqOutgoingQueue", "Send-MsmqQueue", "Suspend-MsmqOutgoingQueue"]
    assert [one for one in cmdlets if f"`{one}" not in text] == []
