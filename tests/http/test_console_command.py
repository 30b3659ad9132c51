"""`lanner console`: a link that logs on once, and the process of a queue manager elsewhere."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.contract.service import LANNER, USERS
from tests.http.service import HttpService


def test_the_link_is_for_the_local_user(service: HttpService) -> None:
    command = [str(LANNER), "console", "--data", str(service.data), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    link = urlsplit(json.loads(done.stdout)["link"])
    assert f"http://{link.netloc}" == service.url
    assert link.path == "/login"
    assert len(parse_qs(link.query)["ticket"][0]) > 40


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
