"""docs/comparison.md: every command, route and screen that it names works.

The tests use a running service.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from playwright.sync_api import Page, expect
from typer.testing import CliRunner

import lanner
from lanner.cli.app import app
from lanner.security.certificates import generate_certificate
from tests.client.other_manager import until
from tests.contract.service import USERS
from tests.http.service import HttpService

Visit = Callable[..., Page]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "comparison.md"
NAME = r"private$\orders"
AWAY = r"DIRECT=TCP:127.255.255.2\private$\away"
ROUTE = f"/queues/{quote(NAME, safe='')}"


def named(column: int) -> list[str]:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line)]
    return sorted({name for row in rows for name in re.findall(r"`([^`]+)`", row.strip("|").split(" | ")[column])})


@dataclass
class World:
    """A service with something of everything, and files."""

    service: HttpService
    manager: lanner.QueueManager
    folder: Path

    def lookup_id(self) -> int:
        """Send a message and return its lookup identifier."""
        queue = self.manager.open(NAME)
        queue.send(lanner.Message(body="x", label="one", recoverable=True))
        return queue.peek_by_lookup_id(0, "last").lookup_id

    def filled(self) -> str:
        """Put a message into a queue that others are moved to, and return its name."""
        self.manager.open("other").send(lanner.Message(body="x", recoverable=True))
        return "other"

    def certificate(self) -> Path:
        made = x509.load_der_x509_certificate(generate_certificate("bob", dt.datetime.now(dt.UTC)).certificate)
        path = self.folder / f"{made.serial_number}.pem"
        path.write_bytes(made.public_bytes(Encoding.PEM))
        return path

    def registered(self) -> str:
        sid = next(one["sid"] for one in self.manager.users() if one["name"] == "bob")
        self.manager.register_certificate(self.certificate().read_text(), sid)
        return str(self.manager.certificates()[-1]["sha256"])

    def dead_letter(self) -> int:
        late = lanner.Message(body="x", label="late", recoverable=True, use_dead_letter_queue=True)
        late.time_to_be_received = 0
        before = self.manager.dead_letter.count()
        self.manager.open(NAME).send(late)
        until(lambda: self.manager.dead_letter.count() > before)
        return self.manager.dead_letter.peek_by_lookup_id(0, "last").lookup_id


@pytest.fixture(scope="module")
def world(service: HttpService, manager: lanner.QueueManager, tmp_path_factory: pytest.TempPathFactory) -> World:
    manager.create_queue(NAME, journal=True)
    manager.create_queue("other")
    made = World(service, manager, tmp_path_factory.mktemp("files"))
    made.lookup_id()
    made.dead_letter()
    manager.open(AWAY).send(lanner.Message(body="x", recoverable=True))
    return made


Words = Callable[[World], list[object]]
COMMANDS: dict[str, Words] = {
    "lanner queue list": lambda w: [],
    "lanner queue create": lambda w: ["created"],
    "lanner queue delete": lambda w: [w.manager.create_queue("deleted").path_name, "--yes"],
    "lanner queue set": lambda w: ["orders", "--label", "new"],
    "lanner queue purge": lambda w: [w.filled(), "--yes"],
    "lanner peek": lambda w: ["orders"],
    "lanner peek --filter": lambda w: [w.lookup_id() and "orders", "--filter", "label=one"],
    "lanner send": lambda w: ["orders", "hello"],
    "lanner receive": lambda w: [w.lookup_id() and "orders"],
    "lanner resend": lambda w: ["orders", "--lookup-id", w.lookup_id()],
    "lanner delete": lambda w: ["orders", "--lookup-id", w.lookup_id(), "--yes"],
    "lanner move": lambda w: ["orders", ".\\" + r"private$\other", "--lookup-id", w.lookup_id()],
    "lanner move --dry-run": lambda w: [w.lookup_id() and "orders", ".\\" + r"private$\other", "--all", "--dry-run"],
    "lanner copy": lambda w: ["orders", ".\\" + r"private$\other", "--lookup-id", w.lookup_id()],
    "lanner export": lambda w: [w.lookup_id() and "orders", w.folder / "orders.export"],
    "lanner import": lambda w: [w.folder / "orders.export", "other"],
    "lanner deadletter list": lambda w: [],
    "lanner journal": lambda w: [w.lookup_id() and w.manager.open(NAME).receive(0).label and "orders"],
    "lanner outgoing list": lambda w: [],
    "lanner outgoing show": lambda w: [AWAY],
    "lanner outgoing pause": lambda w: [AWAY],
    "lanner outgoing resume": lambda w: [AWAY],
    "lanner machine offline": lambda w: [],
    "lanner machine online": lambda w: [],
    "lanner queue access show": lambda w: ["orders"],
    "lanner queue access grant": lambda w: ["orders", "bob", "peek"],
    "lanner certificate list": lambda w: [] if w.registered() else ["none"],
    "lanner certificate add": lambda w: ["bob", w.certificate()],
    "lanner certificate remove": lambda w: [w.registered(), "--yes"],
    "lanner certificate make": lambda w: ["--certificate", w.folder / "tls.pem", "--key", w.folder / "tls.key"],
    "lanner sessions": lambda w: [],
    "lanner directory show": lambda w: [],
    "lanner token create": lambda w: ["--scope", "read", "--for", "bob"],
    "lanner serve": lambda w: ["--help"],
    "lanner user add --role": lambda w: ["olga", "--role", "operator", "--password-stdin"],
    "lanner queue list --host": lambda w: [
        "--host",
        w.service.address,
        "--user",
        "alice",
        "--password-file",
        w.folder / "p",
    ],
    "lanner queue list --json": lambda w: ["--json"],
    "lanner doctor": lambda w: [],
    "lanner bench": lambda w: ["--duration", "1s", "--size", "10"],
}


def test_every_command_works(world: World) -> None:
    assert sorted(COMMANDS) == named(2)
    (world.folder / "p").write_text(USERS["alice"] + "\n")
    wrong = []
    # `import` reads what `export` has written.
    for name, arguments in COMMANDS.items():
        words = [word for word in name.split() if not word.startswith("--")]
        where = [] if "--host" in name or name == "lanner serve" else ["--data", world.service.data]
        command = [*words[1:], *map(str, arguments(world)), *map(str, where)]
        done = CliRunner().invoke(app, command, input="a long enough word\n")
        # 1 of the doctor: it has found something, such as the dead letter.
        if done.exit_code not in ((0, 1) if name == "lanner doctor" else (0,)) or not done.output:
            wrong.append((name, done.exit_code, done.output[-500:], done.exception))
    assert not wrong, "\n".join(map(str, wrong))
    assert world.manager.status()["online"]


Ask = Callable[[httpx.Client, World], httpx.Response]


def end_session(client: httpx.Client, world: World) -> httpx.Response:
    with lanner.connect(world.service.address, "bob", USERS["bob"]) as other:
        assert other.who_am_i()["user"] == "bob"
        number = next(one["number"] for one in world.manager.sessions() if one["user"] == "bob")
        return client.delete(f"/sessions/client/{number}")


def getting(path: str) -> Ask:
    return lambda client, w: client.get(path)


def passing(verb: str) -> Ask:
    return lambda client, w: client.post(f"{ROUTE}/messages/{w.lookup_id()}/{verb}", json={"target": r"private$\other"})


ROUTES: dict[str, Ask] = {
    **{
        f"GET {path}": getting(path)
        for path in (
            *("/queues", "/deadletters", "/outgoing", "/settings", "/certificates", "/overview", "/history"),
            *("/sessions", "/definitions", "/metrics", "/health/ready"),
        )
    },
    "POST /queues": lambda client, w: client.post("/queues", json={"name": r"private$\by-route"}),
    "DELETE /queues/{name}": lambda client, w: client.delete(f"/queues/{quote('private$' + chr(92) + 'by-route')}"),
    "GET /queues/{name}": lambda client, w: client.get(ROUTE),
    "PATCH /queues/{name}": lambda client, w: client.patch(ROUTE, json={"label": "by-route"}),
    "GET /queues/{name}/access": lambda client, w: client.get(f"{ROUTE}/access"),
    "GET /queues/{name}/messages": lambda client, w: client.get(f"{ROUTE}/messages", params={"label": "x"}),
    "POST /queues/{name}/messages": lambda client, w: client.post(f"{ROUTE}/messages", json={"body": "hi"}),
    "DELETE /queues/{name}/messages": lambda client, w: client.delete(f"{ROUTE}/messages"),
    "GET /queues/{name}/messages/{lookup_id}": lambda client, w: client.get(f"{ROUTE}/messages/{w.lookup_id()}"),
    "DELETE /queues/{name}/messages/{lookup_id}": lambda client, w: client.delete(f"{ROUTE}/messages/{w.lookup_id()}"),
    **{f"POST /queues/{{name}}/messages/{{lookup_id}}/{verb}": passing(verb) for verb in ("move", "copy", "resend")},
    "POST /deadletters/{lookup_id}/return": lambda client, w: client.post(
        f"/deadletters/{w.dead_letter()}/return", json={}
    ),
    "POST /outgoing/{name}/pause": lambda client, w: client.post(f"/outgoing/{quote(AWAY, safe='')}/pause"),
    "POST /outgoing/{name}/resume": lambda client, w: client.post(f"/outgoing/{quote(AWAY, safe='')}/resume"),
    "POST /certificates": lambda client, w: client.post(
        "/certificates", json={"certificate": w.certificate().read_text()}
    ),
    "DELETE /certificates/{sha256}": lambda client, w: client.delete(f"/certificates/{w.registered()}"),
    "POST /definitions": lambda client, w: client.post("/definitions", json={"queues": []}),
    "PATCH /users/{name}": lambda client, w: client.patch("/users/bob", json={"role": "user"}),
    "DELETE /sessions/{kind}/{number}": end_session,
}


def test_every_route_works(world: World) -> None:
    assert sorted(ROUTES) == named(3)
    base = f"{world.service.url}/api/v1"
    wrong = []
    with httpx.Client(base_url=base, auth=("alice", USERS["alice"]), timeout=60.0, trust_env=False) as client:
        for name, ask in ROUTES.items():
            answer = ask(client, world)
            if not answer.is_success:
                wrong.append((name, answer.status_code, answer.text[:300]))
    assert not wrong, "\n".join(map(str, wrong))


# The address of each screen, and what stands on it.
SCREENS: dict[str, tuple[str, str]] = {
    "/": ("/", "Depth and rate"),
    "/queues": ("/queues", "orders"),
    "/queues/create": ("/queues/create", "Transactional"),
    "/queue": (f"/queue?name={quote(NAME)}", "Viewing does not remove messages"),
    "/queue/send": (f"/queue/send?name={quote(NAME)}", "Write the body as"),
    "/queue/purge": (f"/queue/purge?name={quote(NAME)}", "This cannot be undone"),
    "/queue/delete": (f"/queue/delete?name={quote(NAME)}", "Delete the queue"),
    "/queue/access": (f"/queue?name={quote(NAME)}&tab=access", "Administrators"),
    "/deadletters": ("/deadletters", "Not received in time"),
    "/outgoing": ("/outgoing", "127.255.255.2"),
    "/settings": ("/settings", "Definitions"),
    "/certificates": ("/certificates", "CN=bob"),
    "/sessions": ("/sessions", "alice"),
    "/users": ("/users", "operator"),
    "/doctor": ("/doctor", "Check again"),
}
# Screens that are reached by a button of the queue's page, and those that are files.
BUTTONS = {"/queue/move": "Move…", "/queue/delete-messages": "Delete…", "/queue/resend": "Edit and resend…"}
FILES = {"/queue/export": f"/queue/export?name={quote(NAME)}", "/settings/definitions": "/settings/definitions"}


def test_every_screen_opens(world: World, visit: Visit) -> None:
    assert sorted([*SCREENS, *BUTTONS, *FILES]) == named(4)
    world.registered()
    world.dead_letter()
    page = visit("/account")
    for path, text in SCREENS.values():
        world.lookup_id()
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        expect(page.locator("main")).to_contain_text(text)
    for name, button in BUTTONS.items():
        page.goto(f"/queue?name={quote(NAME)}&message={world.lookup_id()}")
        pane = page.locator("#pane")
        pane.get_by_role("link" if name == "/queue/resend" else "button", name=button).click()
        expect(page.locator("form.card, form.confirm").first).to_be_visible()
        assert page.locator(f'form[action="{"/queue/send" if name == "/queue/resend" else name}"]').count() == 1, name
    for path in FILES.values():
        told = page.evaluate("path => fetch(path).then(answer => answer.text())", path)
        assert told.startswith("{"), path
