"""Roles: what monitors and operators may do beyond access lists, and what they may not.

The tests use HTTP and the shell.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import lanner
from lanner.security.roles import GROUPS, Role
from lanner.security.users import UserFile
from tests.cli.conftest import LANNER
from tests.contract.service import USERS
from tests.http.service import HttpService

API = "/api/v1"
PASSWORD = "long enough for this"

QUEUE = f"{API}/queues/private$%5Croles"
ROLES = ("user", "monitor", "operator", "administrator")


def _client(service: HttpService, name: str) -> httpx.Client:
    return httpx.Client(base_url=service.url, auth=(name, PASSWORD), timeout=60.0, trust_env=False)


@pytest.fixture(scope="module")
def clients(service: HttpService) -> Iterator[dict[str, httpx.Client]]:
    """Return clients by the role of their user.

    The queue is the administrator's, with a message and without rights for others.
    """
    with service.client("alice") as alice:
        for role in ROLES:
            alice.post(
                f"{API}/users", json={"name": f"the {role}", "password": PASSWORD, "role": role}
            ).raise_for_status()
        alice.post(
            f"{API}/queues", json={"name": r"private$\roles", "access": "D:(A;;0xf003f;;;BA)"}
        ).raise_for_status()
        found = {role: _client(service, f"the {role}") for role in ROLES}
        yield found
        for client in found.values():
            client.close()
        alice.delete(QUEUE)


@pytest.mark.parametrize(
    ("method", "path", "least"),
    [
        ("GET", QUEUE, "monitor"),
        ("GET", f"{API}/outgoing", "monitor"),
        ("GET", f"{API}/sessions", "monitor"),
        ("GET", f"{API}/peers", "monitor"),
        ("GET", f"{API}/transactions", "monitor"),
        ("GET", f"{API}/metrics", "monitor"),
        ("GET", f"{QUEUE}/messages", "operator"),
        ("POST", f"{QUEUE}/messages", "operator"),
        ("DELETE", f"{QUEUE}/messages", "operator"),
        ("GET", f"{API}/deadletters", "operator"),
        ("DELETE", f"{API}/sessions/client/987654", "operator"),
        ("PATCH", QUEUE, "administrator"),
        ("DELETE", QUEUE, "administrator"),
        ("POST", f"{QUEUE}/access", "administrator"),
        ("POST", f"{API}/users", "administrator"),
        ("PATCH", f"{API}/users/the user", "administrator"),
    ],
)
def test_each_role_may_do_what_it_is_for(clients: dict[str, httpx.Client], method: str, path: str, least: str) -> None:
    bodies = {
        f"{QUEUE}/messages": {"body": "hello"},
        QUEUE: {"label": "changed"},
        f"{QUEUE}/access": {"verb": "grant", "who": "Everyone", "rights": ["peek"]},
        f"{API}/users": {"name": "new", "password": "short"},
        f"{API}/users/the user": {"role": "user"},
    }
    for role in ROLES:
        if (method, path) == ("DELETE", QUEUE) and role == "administrator":
            continue  # the queue is for the other cases too
        answer = clients[role].request(method, path, json=bodies.get(path) if method in ("POST", "PATCH") else None)
        if ROLES.index(role) < ROLES.index(least):
            assert answer.status_code == 403, (role, answer.status_code, answer.text)
        else:
            assert answer.status_code < 300 or answer.json()["title"] == "InvalidParameter", (role, answer.text)
    clients["administrator"].post(f"{QUEUE}/access", json={"verb": "revoke", "who": "Everyone", "rights": []})


def test_a_role_that_was_taken_away_counts_no_more(service: HttpService) -> None:
    with service.client("alice") as alice:
        alice.post(f"{API}/users", json={"name": "otto", "password": PASSWORD, "role": "operator"}).raise_for_status()
        with _client(service, "otto") as otto:
            assert otto.get(f"{API}/outgoing").status_code == 200
            alice.patch(f"{API}/users/otto", json={"role": "user"}).raise_for_status()
            assert otto.get(f"{API}/outgoing").status_code == 403


def test_a_token_of_an_operator_does_what_both_allow(service: HttpService) -> None:
    with service.client("alice") as alice:
        alice.post(f"{API}/users", json={"name": "olga", "password": PASSWORD, "role": "operator"}).raise_for_status()
    with _client(service, "olga") as olga:
        token = olga.post(f"{API}/tokens", json={"scope": ["read"]}).json()["token"]
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {token}"}, trust_env=False) as client:
        assert client.get(f"{API}/sessions").status_code == 200
        assert client.delete(f"{API}/sessions/client/987654").status_code == 403


def test_the_command_gives_roles_here_and_at_a_host(service: HttpService, tmp_path: Path) -> None:
    word = tmp_path / "word"
    word.write_text(USERS["alice"])
    there = ["--host", service.address, "--user", "alice", "--password-file", str(word)]

    def run(*arguments: str) -> str:
        command = [str(LANNER), "user", *arguments, *there, "--json"]
        return subprocess.run(command, input=f"{PASSWORD}\n", capture_output=True, text=True, check=True).stdout

    assert '"monitor"' in run("add", "mona", "--role", "monitor", "--password-stdin")
    assert '"operator"' in run("set", "mona", "--role", "operator")
    assert '"mona"' in run("list")
    run("remove", "mona", "--yes")
    assert '"mona"' not in run("list")


def test_a_file_of_before_gets_the_groups_of_the_roles(tmp_path: Path) -> None:
    users = UserFile(tmp_path / "users.json")
    users.add("alice", "long enough", administrator=True)
    text = users.path.read_text()
    (tmp_path / "users.json").write_text(
        text.replace('"Operators"', '"Staff"').replace("S-1-5-32-549", "S-1-5-21-1-2-3-1500")
    )
    users = UserFile(tmp_path / "users.json")
    users.set_role("alice", Role.OPERATOR)
    assert users.role("alice") is Role.OPERATOR
    identity = users.identity("alice")
    assert identity is not None
    assert identity.groups == {GROUPS[Role.OPERATOR][1]}
    users.set_role("alice", Role.MONITOR)
    assert users.role("alice") is Role.MONITOR


def test_a_role_is_one_of_those_there_are(service: HttpService) -> None:
    wrong = pytest.raises(lanner.errors.InvalidParameter, match="one of user, monitor, operator, administrator")
    with lanner.connect(data=service.data) as manager, wrong:
        manager.add_user("nobody", PASSWORD, role="king")
