"""`lanner console`: a link that logs on once, and the process of a queue manager elsewhere."""

from __future__ import annotations

import html
import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.contract.service import LANNER, USERS
from tests.http.service import HttpService


def test_the_link_is_for_the_local_user(service: HttpService) -> None:
    command = [str(LANNER), "console", "--data", str(service.data), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    link = urlsplit(json.loads(done.stdout)["link"])
    assert f"http://{link.netloc}" == service.url
    assert link.path == "/login"
    assert len(parse_qs(link.query)["ticket"][0]) > 40


@pytest.mark.parametrize("has_runtime_folder", [True, False])
def test_others_do_not_see_the_link_that_a_browser_gets(
    service: HttpService, tmp_path: Path, *, has_runtime_folder: bool
) -> None:
    """The arguments of a process are public."""
    runtime, seen, browser = tmp_path / "runtime", tmp_path / "seen", tmp_path / "browser"
    runtime.mkdir(mode=0o700)
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}\n')
    browser.chmod(0o755)
    environment = {**os.environ, "BROWSER": f"{browser} %s", "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}
    if has_runtime_folder:
        environment["XDG_RUNTIME_DIR"] = str(runtime)
    command = [str(LANNER), "console", "--data", str(service.data), "--open"]
    link = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()
    address = seen.read_text().strip()
    assert "ticket" not in address
    page = Path(urlsplit(address).path)
    assert page.is_relative_to(runtime) is has_runtime_folder
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert html.escape(link) in page.read_text()
    with httpx.Client(trust_env=False, timeout=30) as client:
        assert client.get(link).status_code == 200
        assert client.get(f"{service.url}/api/v1/whoami").json()["administrator"]


def test_without_a_service_the_command_says_what_to_do(tmp_path: Path) -> None:
    command = [str(LANNER), "console", "--data", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"`lanner serve --data {tmp_path}` starts one" in done.stderr


def test_a_queue_manager_elsewhere_is_served_from_here(service: HttpService, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(USERS["alice"])
    secret.chmod(0o600)
    place = ["--host", f"{service.address}:{service.port}", "--user", "alice", "--password-file", str(secret)]
    with subprocess.Popen(
        [str(LANNER), "console", *place, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            link = urlsplit(json.loads(process.stdout.readline())["link"])
            made = subprocess.run(
                [str(LANNER), "token", "create", "--scope", "read", "--for", "bob", "--data", str(service.data)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            with httpx.Client(base_url=f"http://{link.netloc}/api/v1", trust_env=False, timeout=30) as client:
                assert client.get("/health/ready").status_code == 200
                assert client.get("/whoami", auth=("bob", USERS["bob"])).json()["user"] == "bob"
                assert client.get("/whoami", auth=("bob", "wrong")).status_code == 401
                by_token = client.get("/whoami", headers={"Authorization": f"Bearer {made}"}).json()
                assert (by_token["user"], by_token["scope"]) == ("bob", ["read"])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
