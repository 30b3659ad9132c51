"""The screens for operators of the queue manager.

These are settings, certificates, reports, sites, history and traces.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from playwright.sync_api import Browser, Page, Route, expect

import lanner
import site_pages
from lanner.cli.console import page_for
from lanner.http.console.pages import peer_question
from lanner.security.certificates import generate_certificate
from tests.client.other_manager import until
from tests.http.console.conftest import PASSWORD
from tests.http.service import HttpService

Visit = Callable[..., Page]

QUEUE = r"private$\it's$(touch-owned)orders"
REPORT = """<!doctype html><meta charset="utf-8"><title>waiting</title><h1>Traffic</h1><script>
let told = window.origin;
try { told += " " + document.cookie } catch (error) { told += " no cookies" }
try { told += " " + localStorage.length } catch (error) { told += " no storage" }
document.title = told;
</script>"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpService]:
    reports = tmp_path_factory.mktemp("reports")
    (reports / "report.html").write_text(REPORT)
    settings = f"[events]\nenabled = true\n[http]\nreports = '{reports}'\n"
    made = HttpService(tmp_path_factory.mktemp("http") / "alpha", settings)
    try:
        yield made
    finally:
        made.close()


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast").last).to_contain_text(text)


def test_the_queue_manager_goes_offline_after_a_confirmation_and_comes_back(
    visit: Visit, manager: lanner.QueueManager
) -> None:
    page = visit("/")
    page.get_by_role("button", name="Go offline…").click()
    expect(page.locator("main")).to_contain_text("It exchanges no messages with other computers")
    assert manager.status()["online"]
    page.get_by_role("button", name="Go offline", exact=True).click()
    toast(page, "ALPHA is offline")
    expect(page.locator(".todo")).to_contain_text("ALPHA is offline.")
    assert not manager.status()["online"]
    page.goto("/settings")
    page.get_by_role("button", name="Go online").click()
    toast(page, "ALPHA is online")
    assert manager.status()["online"]


def test_settings_are_shown_and_definitions_go_from_one_to_another(
    visit: Visit, manager: lanner.QueueManager, tmp_path: Path
) -> None:
    manager.create_queue("defined", label="Here before")
    page = visit("/settings")
    expect(page.locator("main")).to_contain_text("[transfer]")
    expect(page.locator("main")).to_contain_text("keep_days")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    file = tmp_path / "definitions.json"
    download.value.save_as(file)
    definitions = json.loads(file.read_text())
    assert [one["label"] for one in definitions["queues"] if one["name"].endswith("defined")] == ["Here before"]
    definitions["queues"] = [
        *({**one, "label": "Changed"} for one in definitions["queues"] if one["name"].endswith("defined")),
        {"name": r".\private$\by-definition", "transactional": True},
    ]
    definitions["users"] = [{"name": "dora"}]
    file.write_text(json.dumps(definitions))
    page.set_input_files("#file", file)
    expect(page.locator("#text")).to_have_value(re.compile("by-definition"))
    page.get_by_role("button", name="Import…").click()
    expect(page.locator(".effects")).to_contain_text(r"queues are made: .\private$\by-definition")
    assert manager.open("defined").attributes().label == "Here before"
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("main")).to_contain_text("1 made, 1 changed, 1 refused")
    expect(page.locator("main")).to_contain_text("user dora is new here")
    assert manager.open("defined").attributes().label == "Changed"
    assert manager.open("by-definition").attributes().transactional
    # What is no such file stays in the field, with what is wrong with it.
    page.fill("#text", '{"queues": 3}')
    page.get_by_role("button", name="Import…").click()
    expect(page.locator(".banner.bad")).to_contain_text("Nothing was imported")
    expect(page.locator("#text")).to_have_value('{"queues": 3}')


def test_certificates_are_registered_and_removed(visit: Visit, manager: lanner.QueueManager, tmp_path: Path) -> None:
    made = x509.load_der_x509_certificate(generate_certificate("bob's", dt.datetime.now(dt.UTC)).certificate)
    file = tmp_path / "bob.pem"
    file.write_bytes(made.public_bytes(Encoding.PEM))
    page = visit("/certificates")
    expect(page.locator("main")).to_contain_text("No certificates")
    page.select_option("#sid", label="bob")
    page.set_input_files("#file", file)
    expect(page.locator("#certificate")).to_have_value(re.compile("BEGIN CERTIFICATE"))
    page.get_by_role("button", name="Register").click()
    toast(page, "The certificate was registered")
    (one,) = manager.certificates()
    assert (one["user"], one["subject"]) == ("bob", "CN=bob's")
    page.fill("#certificate", "none")
    page.get_by_role("button", name="Register").click()
    expect(page.locator(".banner.bad")).to_contain_text("Nothing was registered")
    page.get_by_label("Remove CN=bob's of bob…").click()
    assert len(manager.certificates()) == 1
    page.get_by_role("button", name="Remove", exact=True).click()
    toast(page, "The certificate was removed")
    assert manager.certificates() == []


def test_a_report_runs_its_script_and_reaches_nothing(visit: Visit, service: HttpService) -> None:
    page = visit("/reports")
    page.get_by_role("link", name="report.html").click()
    expect(page.locator("h1")).to_have_text("Traffic")
    expect(page).to_have_title("null no cookies no storage")
    with service.client("alice") as client:
        client.cookies.update({one["name"]: one["value"] for one in page.context.cookies()})
        policy = client.get("/reports/report.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none';")
    page.goto("/reports/other.html")
    expect(page.locator("main")).to_contain_text("there is no report other.html")


def test_a_trace_has_every_step_from_send_to_end(visit: Visit, manager: lanner.QueueManager) -> None:
    queue = manager.create_queue("traced", journal=True)
    identifier = queue.send(lanner.Message(body="x", recoverable=True))
    queue.receive(0)
    # What happened to a message is in the log within a second.
    while not any(one["event"] == "received" for one in manager.events(0, message=identifier)["events"]):
        time.sleep(0.1)
    page = visit(f"/trace?message={quote(identifier)}")
    for words in (r"Arrived in private$\traced", r"Received from private$\traced", "A copy is in the journal"):
        expect(page.locator(".line")).to_contain_text(words)
    times = page.locator(".line time").evaluate_all("nodes => nodes.map(node => node.dateTime)")
    assert times == sorted(times)


def test_sites_and_links_are_a_picture(visit: Visit, manager: lanner.QueueManager, axe: str) -> None:
    manager.enterprise.apply(
        {
            "sites": ["HQ", "BRANCH"],
            "links": [{"sites": ["HQ", "BRANCH"], "cost": 7}],
            "computers": {"OMEGA": {"identifier": "0f5ef1a4-6a52-4a2b-9f0e-6ad5a3c0b8a1", "sites": ["BRANCH"]}},
        }
    )
    page = visit("/peers?view=sites")
    picture = page.locator("svg.graph")
    for text in ("Site BRANCH", "OMEGA", "cost 7", "this queue manager"):
        expect(picture).to_contain_text(text)
    expect(page.locator("table").first).to_contain_text("HQ and BRANCH")
    page.get_by_role("link", name="Sessions").first.click()
    expect(page.locator("main")).not_to_contain_text("Routing links")


def test_a_plot_begins_before_the_console_was_opened(visit: Visit, manager: lanner.QueueManager) -> None:
    queue = manager.create_queue("plotted")
    queue.send(lanner.Message(body="x", recoverable=True))
    page = visit("/account")
    name = queue.attributes().pathname
    for _ in range(60):
        told = page.evaluate("name => fetch('/samples?queue=' + encodeURIComponent(name)).then(a => a.json())", name)
        if len(told["points"]) > 2:
            break
        page.wait_for_timeout(500)
    assert told["span"] == 900
    assert told["points"][-1][1] == 1
    assert [point[0] for point in told["points"]] == sorted({point[0] for point in told["points"]})
    page.goto(f"/queue?name={quote('private$' + chr(92) + 'plotted')}")
    page.get_by_role("link", name="24 h").click()
    expect(page.get_by_role("link", name="24 h")).to_have_attribute("aria-current", "true")
    expect(page.locator(".plots canvas")).to_have_count(2)


def test_the_overview_tells_the_oldest_message(visit: Visit, manager: lanner.QueueManager) -> None:
    for queue in manager.queues():
        queue.purge()
    manager.create_queue("ancient").send(lanner.Message(body="x", recoverable=True))
    page = visit("/")
    expect(page.locator(".figures")).to_contain_text("in ancient")
    expect(page.locator(".head")).to_contain_text("Running for")
    expect(page.locator(".card", has_text="In use").last).to_contain_text("Disk")


def test_every_command_that_a_page_shows_exists_and_names_its_queue_safely(
    visit: Visit, manager: lanner.QueueManager
) -> None:
    """A queue's creator chose its name: copied into a shell, it must be one word."""
    manager.create_queue(".\\" + QUEUE).send(lanner.Message(body="x", recoverable=True))
    commands = site_pages.commands_page()
    page = visit("/")
    own = quote(QUEUE)
    shown = set()
    for path in (
        *("/queues/create", "/sessions", "/trace", "/users", "/doctor", "/settings", "/certificates", "/reports"),
        *(f"/queue?name={own}&tab=access", f"/queue/send?name={own}", f"/queue/purge?name={own}"),
        f"/queue/delete?name={own}",
    ):
        page.goto(path)
        found = page.locator(".cmd code").all_text_contents()
        assert found or path == "/reports", path
        shown |= set(found)
    page.goto(f"/queue?name={own}")
    page.get_by_role("button", name="Move all…").click()
    shown |= set(page.locator(".cmd code").all_text_contents())
    shown |= {peer_question("0bc58aeb", is_trust=is_trust).command for is_trust in (True, False)}
    assert len(shown) > 10
    for command in shown:
        words = shlex.split(command)
        if words[0] == "lanner":
            assert "orders" not in command or "create" in words or ".\\" + QUEUE in words, command
            check_command(commands, words)


def check_command(page: str, words: list[str]) -> None:
    """Assert that a command exists with these options.

    The page decides how many words the name of the command has.
    """
    plain = [word for word in words if re.fullmatch("[a-z]+", word)]
    sections = [page.partition(f"## {' '.join(plain[:length])}\n")[2] for length in range(2, len(plain) + 1)]
    section = next(filter(None, reversed(sections)), "").partition("\n## ")[0]
    assert section, words
    for option in (word for word in words if word.startswith("--")):
        assert f"`{option}`" in section, words


def test_a_monitor_sees_how_long_messages_wait_and_no_message(visit: Visit, manager: lanner.QueueManager) -> None:
    """The oldest message, not the first one: a stuck one may have a low priority."""
    made = manager.create_queue("stuck")
    made.send(lanner.Message(body="x", label="old", priority=0, recoverable=True))
    old = made.peek(0).arrived_time
    made.send(lanner.Message(body="x", label="urgent", priority=7, recoverable=True))
    manager.add_user("mona", PASSWORD, role="monitor")
    page = visit("/queues?find=stuck", user="mona")
    expect(page.locator("tbody time").first).to_have_attribute("datetime", old.isoformat())
    page.goto("/queue?name=" + quote(r"private$\stuck"))
    figure = page.locator(".figures > div", has_text="Oldest message")
    expect(figure.locator("time")).to_have_attribute("datetime", old.isoformat())
    expect(page.locator("main")).to_contain_text("The messages cannot be shown")


def buttons(page: Page) -> set[str]:
    return {text.strip() for text in page.locator("main .btn:visible").all_inner_texts()}


def test_what_a_user_may_not_do_is_not_offered(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("watched")
    made.send(lanner.Message(body="x", label="seen", recoverable=True))
    manager.open(r"DIRECT=TCP:127.0.0.2\private$\watched").send(lanner.Message(body="x", recoverable=True))
    manager.add_user("otto", PASSWORD, role="monitor")
    address = "/queue?name=" + quote(r"private$\watched")
    destructive = {"Move all…", "Export", "Purge…", "Save", "Delete queue…", "Change access", "Revoke…"}
    offers = {user: set[str]() for user in ("alice", "otto")}
    for user, seen in offers.items():
        page = visit(address, user=user)
        seen.update(buttons(page))
        for path in (f"{address}&tab=properties", f"{address}&tab=access", "/outgoing", "/sessions"):
            page.goto(path)
            seen.update(buttons(page))
    assert destructive | {"Pause…", "End…", "Send message"} <= offers["alice"]
    assert not offers["otto"] & (destructive | {"Pause…", "Try now", "End…"})
    # Everyone may send.
    assert "Send message" in offers["otto"]
    page.goto(f"{address}&tab=properties")
    expect(page.get_by_label("Label")).to_be_disabled()
    # Who may look and not receive can copy.
    made.grant("otto", "peek")
    page.goto(address)
    page.get_by_role("link", name="seen").click()
    expect(page.locator(".pane").get_by_role("button", name="Copy…")).to_be_visible()
    assert not buttons(page) & {"Move…", "Delete…", "Move all…", "Purge…"}
    assert "Export" in buttons(page)


def test_a_user_without_a_role_is_told_which_roles_see_a_page(visit: Visit) -> None:
    page = visit("/", user="bob")
    pages = ("/settings", "/certificates", "/outgoing", "/peers", "/sessions", "/transactions", "/doctor")
    for path in pages:
        page.goto(path)
        expect(page.locator("h1")).to_contain_text("You may not")
        expect(page.locator("main")).to_contain_text("bob is no monitor, operator or administrator of ALPHA")
    page.goto("/reports")
    expect(page.locator("main")).to_contain_text("are for administrators")


def test_the_page_of_the_command_leads_into_the_console(
    browser: Browser,
    service: HttpService,
    manager: lanner.QueueManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the browser the file is another site, from which it brings no cookie."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(page_for(f"{service.url}/login?ticket={manager.log_on_ticket()}").as_uri())
        page.wait_for_url(f"{service.url}/")
        assert page.get_by_role("navigation").first.is_visible()
    finally:
        context.close()


# Remembers what each plot was given.
WATCH_PLOTS = """
let made;
window.plotted = [];
Object.defineProperty(window, "uPlot", {
  get: () => made,
  set: (kind) => {
    made = class extends kind { constructor(...given) { super(...given); window.plotted.push(this); } };
  },
});
"""


def test_a_plot_is_in_order_when_the_stream_is_faster_than_its_history(
    visit: Visit, manager: lanner.QueueManager
) -> None:
    queue = manager.create_queue("raced")
    queue.send(lanner.Message(body="x", recoverable=True))
    page = visit("/account")
    name = queue.attributes().pathname
    points = (
        "name => fetch('/samples?queue=' + encodeURIComponent(name)).then(a => a.json()).then(a => a.points.length)"
    )
    for _ in range(60):
        if page.evaluate(points, name) > 2:
            break
        page.wait_for_timeout(500)
    held: list[Route] = []

    # Playwright sets an attribute of the handler, which a method of a list does not allow.
    def hold(route: Route) -> None:
        held.append(route)

    page.add_init_script(WATCH_PLOTS)
    page.route("**/samples?*", hold)
    page.goto(f"/queue?name={quote('private$' + chr(92) + 'raced')}")
    # The first point of the stream is there.
    expect(page.locator(".plots canvas")).to_have_count(2)
    held[0].continue_()
    # Waiting for a function takes eval, which the pages do not allow.
    until(lambda: page.evaluate("window.plotted.at(-1).data[0].length > 3"))
    times = page.evaluate("Array.from(window.plotted.at(-1).data[0])")
    assert times == sorted(times)
