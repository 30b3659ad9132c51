"""Every screen of the console in a real browser.

The tests check its contents, its readability, and that no hostile content is executed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import lanner
from tests.http.service import HttpService

Visit = Callable[..., Page]

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
XML = b'<?xml version="1.0"?><Order id="7"><Name>M\xc3\xb6ller &amp; Sons</Name><Lines><Line qty="2"/></Lines></Order>'


def queue(name: str, **query: object) -> str:
    more = "".join(f"&{key}={quote(str(value))}" for key, value in query.items())
    return f"/queue?name={quote(f'private${chr(92)}{name}')}{more}"


@pytest.fixture(scope="module", autouse=True)
def content(manager: lanner.QueueManager) -> None:
    """Create queues in every state.

    They have all kinds of bodies, are nearly full, contain hostile text, lead to another computer,
    or contain dead letters.
    """
    orders = manager.create_queue("orders", label="Orders", journal=True)
    for body in (XML, b'{"a": [1, true, {"b": null}]}', b"\x00\x01\xff", "plain text", b""):
        orders.send(lanner.Message(body=body, label=f"Order {len(body)}", recoverable=True))
    orders.send(lanner.Message(body=HOSTILE, label=HOSTILE, recoverable=True))
    # A number as COM's MSMQMessage writes it: VT_I4.
    orders.send(lanner.Message(body=(1234).to_bytes(4, "little"), body_type=3, label="A number", recoverable=True))
    orders.send(lanner.Message(body="received", label="Received", recoverable=True, priority=7))
    orders.receive(0)
    orders.send(lanner.Message(body="bad", label="Poison", recoverable=True, priority=0))
    orders.move(orders.peek_by_lookup_id(0, "last").lookup_id, "poison")
    manager.create_queue("empty")
    manager.create_queue("nearly", quota_kb=2).send(lanner.Message(body=b"x" * 1700, recoverable=True))
    manager.create_queue("<b>bold", label=HOSTILE)
    expired = lanner.Message(
        body="late", label="Late", recoverable=True, time_to_be_received=0, use_dead_letter_queue=True
    )
    orders.send(expired)
    manager.open(r"DIRECT=TCP:127.0.0.2\private$\gone").send(lanner.Message(body="x", label="Away", recoverable=True))


SCREENS = {
    "/": "Waiting for others",
    "/queues": "Orders",
    "/queues?kind=system": "DEADLETTER",
    "/queues/create": "Transactional",
    queue("orders"): "Viewing does not remove messages",
    queue("orders", tab="journal"): "Received",
    queue("orders", tab="subqueues"): "poison",
    queue("orders", tab="access"): "Administrators",
    queue("orders", tab="properties"): "Identifier",
    queue("empty"): "empty is empty",
    "/queue/send?name=" + quote("private$\\orders"): "Write the body as",
    "/queue/purge?name=" + quote("private$\\orders"): "This cannot be undone",
    "/queue/delete?name=" + quote("private$\\orders"): "Delete the queue",
    "/deadletters": "Not received in time",
    "/outgoing": "Next attempt",
    "/peers": "Who talks to whom",
    "/transactions": "None is in doubt",
    "/sessions": "that are connected now",
    "/trace": "Which message?",
    "/users": "Create a token",
    "/doctor": "Check again",
    "/settings": "Definitions to import",
    "/certificates": "Register a certificate",
    "/reports": "No reports yet",
    "/peers?view=sites": "Sites and routing links",
    "/account": "Log off",
}


def faults_for_readers(page: Page, axe: str, *rules: str) -> list[str]:
    """Return the accessibility faults that axe-core finds, by some rules or by all."""
    page.evaluate(axe)
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("moderate", "serious", "critical")
    ]


# Only colours differ in the dark.
@pytest.mark.parametrize(("scheme", "rules"), [("light", ()), ("dark", ("color-contrast",))])
def test_every_screen_shows_what_it_is_for_and_can_be_read(
    visit: Visit, axe: str, scheme: str, rules: tuple[str, ...]
) -> None:
    page = visit("/", scheme=scheme)
    wrong = []
    for path, text in SCREENS.items():
        page.goto(path)
        expect(page.locator("main")).to_contain_text(text)
        wrong += faults_for_readers(page, axe, *rules)
    assert wrong == []


def test_every_screen_fits_a_telephone(visit: Visit, axe: str) -> None:
    page = visit("/", width=390)
    for path in SCREENS:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto("/")
    page.get_by_label("Menu").click()
    page.locator("#nav").get_by_role("link", name="Queues").click()
    expect(page.locator("h1")).to_have_text("Queues")
    assert faults_for_readers(page, axe) == []


def test_the_first_page_is_light(visit: Visit, service: HttpService) -> None:
    """Everything that the first page loads, not compressed, has less than 150 KB."""
    page = visit("/account")
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "/live" not in answer.url else None)
    page.goto("/")
    page.wait_for_load_state("load")
    assert sum(sizes) < 150_000
    assert all(
        address.startswith(service.url)
        for address in page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    )


def test_an_address_without_a_page_is_explained(visit: Visit, service: HttpService) -> None:
    page = visit("/nothing")
    expect(page.locator("main")).to_contain_text("There is nothing at /nothing")
    # The address of a form, as a bookmark or a second Enter opens it.
    page.goto("/queue/move?name=orders")
    expect(page.locator("main")).to_contain_text("Begin again with the button that leads there")
    with service.client() as stranger:
        answer = stranger.get("/nothing")
        assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
        assert stranger.get("/api/nothing").headers["content-type"] == "application/problem+json"


def test_a_full_queue_is_called_full(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("brimful", quota_kb=64)
    with contextlib.suppress(lanner.errors.InsufficientResources):
        while True:
            made.send(lanner.Message(body=b"x", recoverable=True))
    page = visit("/")
    expect(page.locator(".todo")).to_contain_text("brimful is full. Further messages are refused.")
    page.goto(queue("brimful", tab="properties"))
    expect(page.locator(".tags")).to_contain_text("Full")
    expect(page.locator("main")).to_contain_text(made.format_name)
    manager.delete_queue("brimful")


def test_the_overview_says_what_is_wrong_in_sentences(visit: Visit) -> None:
    page = visit("/")
    todo = page.locator(".todo")
    expect(todo).to_contain_text("127.0.0.2 ")
    expect(todo).to_contain_text("1 message could not be delivered.")
    expect(todo).to_contain_text("nearly has used")
    todo.get_by_role("link", name="Review").click()
    expect(page.locator("h1")).to_have_text("Dead letters")
    # The doctor names the same problems, and leads to the pages that help.
    for name, title in (("Queues that need attention", "Queues"), ("Outgoing queues", "Outgoing")):
        page.goto("/doctor")
        page.locator(".steps").get_by_role("link", name=name).first.click()
        expect(page.locator("h1")).to_have_text(title)


def test_values_change_while_a_page_is_open(visit: Visit, manager: lanner.QueueManager) -> None:
    page = visit(queue("empty"))
    expect(page.locator("#live")).to_contain_text("Live")
    figure = page.locator("[data-live='n']")
    expect(figure).to_have_text("0")
    made = manager.open("empty")
    made.send(lanner.Message(body="x", recoverable=True))
    expect(figure).to_have_text("1")
    # A plot is drawn from the samples; its two canvases are depth and rate.
    expect(page.locator(".plots canvas")).to_have_count(2)
    page.keyboard.press("p")
    expect(page.locator("#live")).to_have_text("Paused")
    made.purge()
    page.wait_for_timeout(2500)
    expect(figure).to_have_text("1")
    page.keyboard.press("p")
    expect(figure).to_have_text("0")


def test_a_queue_is_found_by_name_and_label(visit: Visit) -> None:
    page = visit("/queues")
    page.get_by_label("Name or label contains").fill("ord*")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("orders")
    page.get_by_label("Name or label contains").fill("nothing-like-it")
    expect(page.locator("#rows")).to_contain_text("Nothing matches “nothing-like-it”")
    page.goto("/queues?show=attention")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto("/queues?sort=name")
    names = page.locator("tbody th a").all_text_contents()
    assert names == sorted(names)
    page.get_by_label("Find a queue, a message id").fill("orders")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("orders")


@pytest.mark.parametrize(
    ("label", "form", "text", "described"),
    [
        (f"Order {len(XML)}", "XML", "<Name>Möller &amp; Sons</Name>", "UTF-8, laid out"),
        ("Order 29", "JSON", '"b": null', "UTF-8, laid out"),
        ("Order 3", "Hex", "00 01 ff", "bytes as they are"),
        ("Order 10", "Text", "plain text", "UTF-16-LE, as it is"),
        ("A number", ".NET", "1234", "integer"),
    ],
)
def test_a_body_is_decoded_and_the_decoding_named(
    visit: Visit, label: str, form: str, text: str, described: str
) -> None:
    page = visit(queue("orders"))
    page.get_by_role("link", name=label, exact=True).click()
    pane = page.locator("#pane")
    expect(pane.locator(".seg [aria-current]")).to_have_text(form)
    expect(pane.locator(".code")).to_contain_text(text)
    expect(pane).to_contain_text(described)
    pane.get_by_role("link", name="Hex").click()
    expect(page.locator("#pane .code")).to_contain_text("000000")


def test_messages_are_filtered(visit: Visit) -> None:
    page = visit(queue("orders"))
    page.get_by_label("Text or condition").fill("number")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(queue("orders", find="plain", place="body"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.goto(queue("orders", find="size>100", place="condition"))
    expect(page.locator("tbody tr").first).to_be_visible()
    page.goto(queue("orders", find="no such field", place="condition"))
    expect(page.locator(".banner.bad")).to_contain_text("FIELD, an operator and a value")
    page.goto(queue("orders", find="nothing-like-it"))
    expect(page.locator("main")).to_contain_text("Nothing matches “nothing-like-it”")


def test_nothing_hostile_runs(visit: Visit) -> None:
    """Labels, bodies, names and what a person types are text everywhere."""
    page = visit(queue("orders", find=HOSTILE))
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("#pane .code")).to_contain_text("<script>")
    expect(page.locator("#pane h2")).to_have_text(HOSTILE)
    for path in (
        "/queues",
        queue("<b>bold"),
        f"/queues?find={quote(HOSTILE)}",
        f"/trace?message={quote(HOSTILE)}",
        f"/queue?name={quote(HOSTILE)}",
        f"/deadletters?reason={quote('x' + HOSTILE)}",
    ):
        page.goto(path)
        assert page.locator("main").count() == 1
        assert page.locator("main script, main img").count() == 0, path
        assert page.title() != "owned"
    page.goto("/queues")
    expect(page.locator("tbody")).to_contain_text("<b>bold")


def test_the_answers_forbid_inline_code(service: HttpService) -> None:
    with service.client() as client:
        answer = client.get("/login")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "style=" not in answer.text


def test_a_trace_shows_where_a_message_is(visit: Visit, manager: lanner.QueueManager) -> None:
    letter = next(iter(manager.dead_letter))
    page = visit(f"/trace?message={quote(letter.id)}")
    expect(page.locator(".line")).to_contain_text("Became a dead letter: not received in time")
    page.goto("/trace?message=abc")
    expect(page.locator("main")).to_contain_text("“abc” is no message id")
    poison = manager.open("orders;poison").peek(0)
    page.goto(f"/trace?message={quote(poison.id)}")
    page.locator(".line").get_by_role("link", name="Waits in private$\\orders;poison").click()
    expect(page.locator("#pane h2")).to_have_text("Poison")
    page.goto(f"/trace?message={quote(str(uuid.uuid4()) + chr(92) + '1')}")
    expect(page.locator("main")).to_contain_text("No trace of it here")


def test_keys_reach_everything_and_destroy_nothing(visit: Visit) -> None:
    page = visit("/")

    def opened(title: str) -> None:
        """Wait for a page, and for its scripts: a key that is pressed before them does nothing."""
        expect(page.locator("h1")).to_contain_text(title)
        page.wait_for_load_state()

    page.keyboard.press("g")
    page.keyboard.press("q")
    opened("Queues")
    page.keyboard.press("c")
    opened("Create queue")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    opened("Queues")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    opened("private$")
    page.keyboard.press("?")
    expect(page.locator("dialog#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_label("Theme: as the system").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_user_without_rights_sees_less_and_is_told_why(visit: Visit) -> None:
    page = visit("/", user="bob")
    # The overview is for administrators: others begin with the queues they may see.
    expect(page.locator("h1")).to_have_text("Queues")
    page.goto(queue("orders"))
    expect(page.locator("main")).to_contain_text("You may not read private$\\orders")
    for path in ("/outgoing", "/peers", "/sessions", "/transactions", "/doctor", "/deadletters"):
        page.goto(path)
        expect(page.locator("h1")).to_contain_text("You may not")


def test_a_wrong_password_is_explained_and_the_name_kept(visit: Visit) -> None:
    page = visit("/account")
    page.context.clear_cookies()
    page.goto(queue("orders"))
    expect(page.locator("h1")).to_contain_text("Log on")
    page.fill("#user", "alice")
    page.fill("#password", "wrong")
    page.click("button[type=submit]")
    expect(page.locator(".banner.bad")).to_contain_text("You are not logged on")
    expect(page.locator("#user")).to_have_value("alice")
    page.fill("#password", "secret")
    page.click("button[type=submit]")
    # The page that was asked for first.
    expect(page.locator("h1")).to_contain_text("orders")
    page.goto("/login?next=https://elsewhere.example/")
    assert page.locator("input[name=next]").input_value() == "/"
    page.goto("/account")
    page.get_by_role("button", name="Log off").click()
    expect(page.locator("h1")).to_contain_text("Log on")
    page.goto("/")
    expect(page.locator("h1")).to_contain_text("Log on")
