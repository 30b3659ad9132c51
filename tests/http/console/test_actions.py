"""Every action of the console in a real browser, and what the queue manager has afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

import lanner
from lanner.errors import QueueNotFound
from tests.contract.service import USERS
from tests.http.service import HttpService

Visit = Callable[..., Page]


def queue(name: str, **query: object) -> str:
    more = "".join(f"&{key}={quote(str(value))}" for key, value in query.items())
    return f"/queue?name={quote(f'private${chr(92)}{name}')}{more}"


def filled(manager: lanner.QueueManager, name: str, count: int = 3) -> lanner.Queue:
    made = manager.create_queue(name)
    made.send_many([lanner.Message(body=f"body {i}", label=f"m{i}", recoverable=True) for i in range(count)])
    return made


def labels(of: lanner.Queue) -> list[str]:
    return [message.label for message in of]


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toast").last).to_contain_text(text)


def test_a_queue_is_created(visit: Visit, manager: lanner.QueueManager) -> None:
    page = visit("/queues/create")
    page.fill("#name", "private$\\made")
    page.fill("#label", "Made here")
    page.fill("#quota", "64")
    page.get_by_label("Transactional").check()
    page.get_by_role("button", name="Create queue").click()
    toast(page, "Queue created")
    attributes = manager.open("made").attributes()
    assert (attributes.label, attributes.quota, attributes.transactional) == ("Made here", 64, True)
    page.goto("/queues/create")
    page.fill("#name", "private$\\made")
    page.get_by_role("button", name="Create queue").click()
    expect(page.locator(".banner.bad")).to_contain_text("The queue was not created")
    # What was typed is still there.
    expect(page.locator("#name")).to_have_value("private$\\made")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_is_sent(visit: Visit, manager: lanner.QueueManager, *, transactional: bool) -> None:
    name = f"sent.{transactional}"
    made = manager.create_queue(name, transactional=transactional)
    page = visit(f"/queue/send?name={quote('private$' + chr(92) + name)}")
    page.fill("#label", "Häuser")
    page.fill("#body", '{"n": 1}')
    page.select_option("#encoding", "utf-8")
    page.fill("#priority", "5")
    page.get_by_role("button", name="Send", exact=True).click()
    toast(page, "Message sent")
    message = made.receive(0)
    assert (message.label, message.body_bytes, message.recoverable) == ("Häuser", b'{"n": 1}', True)
    assert message.priority == (0 if transactional else 5)


def test_a_body_that_cannot_be_read_keeps_what_was_typed(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("hex")
    page = visit(f"/queue/send?name={quote('private$' + chr(92) + 'hex')}")
    page.fill("#body", "0g")
    page.select_option("#encoding", "hex")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".banner.bad")).to_contain_text("The message was not sent")
    expect(page.locator("#body")).to_have_value("0g")
    assert made.count() == 0


def test_a_message_is_edited_and_resent(visit: Visit, manager: lanner.QueueManager) -> None:
    made = filled(manager, "resent", 2)
    page = visit(queue("resent"))
    page.get_by_role("link", name="m0").click()
    page.get_by_role("link", name="Edit and resend…").click()
    expect(page.locator("#body")).to_have_value("body 0")
    page.fill("#body", "mended")
    page.fill("#label", "again")
    page.get_by_role("button", name="Resend").click()
    toast(page, "Message resent in place of the original")
    assert [(one.label, one.body) for one in made] == [("m1", "body 1"), ("again", "mended")]


def test_selected_messages_are_moved_and_copied(visit: Visit, manager: lanner.QueueManager) -> None:
    made, other = filled(manager, "from"), manager.create_queue("to")
    page = visit(queue("from"))
    page.get_by_label("Select m0").check()
    page.get_by_label("Select m2").check()
    expect(page.locator(".selbar")).to_contain_text("2 selected")
    page.locator(".selbar").get_by_role("button", name="Move…").click()
    expect(page.locator("h1")).to_contain_text("Move 2 messages")
    page.fill("#target", "private$\\to")
    page.get_by_role("button", name="Move 2 messages").click()
    toast(page, "2 messages moved")
    assert (labels(made), labels(other)) == (["m1"], ["m0", "m2"])
    page.goto(queue("from"))
    page.get_by_role("link", name="m1").click()
    page.locator("#pane").get_by_role("button", name="Copy…").click()
    page.fill("#target", "private$\\to")
    page.get_by_role("button", name="Copy 1 message").click()
    toast(page, "1 message copied")
    assert (labels(made), labels(other)) == (["m1"], ["m0", "m2", "m1"])


def test_a_name_that_a_queue_has_is_not_taken_for_a_subqueue(visit: Visit, manager: lanner.QueueManager) -> None:
    made, other = filled(manager, "origin"), manager.create_queue("wanted")
    page = visit(queue("origin"))
    page.get_by_label("Select m0").check()
    page.locator(".selbar").get_by_role("button", name="Move…").click()
    assert r"private$\wanted" in page.locator("datalist option").evaluate_all("all => all.map(one => one.value)")
    page.fill("#target", "wanted")
    page.get_by_role("button", name="Move 1 message").click()
    expect(page.locator(".banner.bad")).to_contain_text(r"wanted is a queue here: write private$\wanted for it")
    assert made.count() == 3
    page.fill("#target", ";wanted")
    page.get_by_role("button", name="Move 1 message").click()
    toast(page, "1 message moved")
    # The notice leads to the subqueue; from there, a name is that of another subqueue beside it.
    page.locator(".toast a").click()
    expect(page.locator("h1")).to_contain_text("origin;wanted")
    page.get_by_role("link", name="m0").click()
    page.locator("#pane").get_by_role("button", name="Move…").click()
    page.fill("#target", "later")
    page.get_by_role("button", name="Move 1 message").click()
    toast(page, "1 message moved")
    assert (labels(made), other.count()) == (["m1", "m2"], 0)
    assert labels(manager.open("origin;later")) == ["m0"]


def test_all_that_a_filter_finds_is_moved(visit: Visit, manager: lanner.QueueManager) -> None:
    made, other = filled(manager, "many", 60), manager.create_queue("ones")
    page = visit(queue("many", find="m1"))
    page.get_by_role("button", name="Move all found…").click()
    page.fill("#target", "private$\\ones")
    page.get_by_role("button", name="Move 11 messages").click()
    toast(page, "11 messages moved")
    assert (made.count(), other.count()) == (49, 11)
    # To a queue that is not there: nothing is lost.
    page.goto(queue("many"))
    page.get_by_role("button", name="Move all…").click()
    page.fill("#target", "private$\\nowhere")
    page.get_by_role("button", name="Move 49 messages").click()
    expect(page.locator(".banner.bad")).to_contain_text("Nothing was moved")
    assert made.count() == 49


def test_messages_are_exported_and_stay(visit: Visit, manager: lanner.QueueManager, tmp_path: Path) -> None:
    made = filled(manager, "exported", 450)
    made.send(lanner.Message(body=b"\xff\x00", label="octets", recoverable=True))
    page = visit(queue("exported"))
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    assert download.value.suggested_filename == "exported.jsonl"
    download.value.save_as(tmp_path / "all")
    lines = [json.loads(line) for line in (tmp_path / "all").read_text().splitlines()]
    assert [line["label"] for line in lines] == [*(f"m{i}" for i in range(450)), "octets"]
    assert made.count() == 451
    page.goto(queue("exported", find="octets"))
    with page.expect_download() as download:
        page.get_by_role("link", name="Export found").click()
    download.value.save_as(tmp_path / "found")
    assert [json.loads(line)["label"] for line in (tmp_path / "found").read_text().splitlines()] == ["octets"]


def test_a_message_is_deleted_after_a_plain_confirmation(visit: Visit, manager: lanner.QueueManager) -> None:
    made = filled(manager, "deleted")
    page = visit(queue("deleted"))
    page.get_by_role("link", name="m1").click()
    page.locator("#pane").get_by_role("button", name="Delete…").click()
    expect(page.locator("#typed")).to_have_count(0)
    assert made.count() == 3
    page.get_by_role("button", name="Delete 1 message").click()
    toast(page, "1 message deleted")
    assert labels(made) == ["m0", "m2"]


def test_many_messages_are_deleted_after_a_typed_confirmation(visit: Visit, manager: lanner.QueueManager) -> None:
    made = filled(manager, "hundreds", 120)
    page = visit(queue("hundreds", find="m"))
    page.get_by_role("button", name="Delete all found…").click()
    button = page.get_by_role("button", name="Delete 120 messages")
    expect(button).to_be_disabled()
    page.fill("#typed", "hundreds")
    button.click()
    toast(page, "120 messages deleted")
    assert made.count() == 0


def test_a_purge_needs_the_name_and_the_count(visit: Visit, manager: lanner.QueueManager) -> None:
    made = filled(manager, "purged", 20)
    page = visit(queue("purged"))
    page.get_by_role("link", name="Purge…").click()
    button = page.get_by_role("button", name="Purge 20 messages")
    expect(button).to_be_disabled()
    page.fill("#typed", "purge")
    expect(button).to_be_disabled()
    # The server checks the name again.
    page.evaluate("document.querySelector('form.confirm').submit()")
    expect(page.locator(".banner.bad")).to_contain_text("The name does not match")
    assert made.count() == 20
    # More than a tenth has come since the page was made: it is shown anew.
    made.send_many(["more"] * 5)
    page.fill("#typed", "purged")
    page.get_by_role("button", name="Purge 20 messages").click()
    expect(page.locator(".banner.bad")).to_contain_text("there are 25 now")
    page.fill("#typed", "purged")
    page.get_by_role("button", name="Purge 25 messages").click()
    toast(page, "25 messages removed")
    assert made.count() == 0


@pytest.mark.parametrize("transactional", [False, True])
def test_the_page_states_what_becomes_of_removed_messages(
    visit: Visit, manager: lanner.QueueManager, *, transactional: bool
) -> None:
    """Only transactional messages become dead letters; senders get acknowledgments on request."""
    name = f"told{transactional}"
    made = manager.create_queue(name, transactional=transactional)

    def send() -> None:
        for _ in range(2):
            wanted = lanner.Message(body="x", label="kept", recoverable=True, use_dead_letter_queue=True)
            if transactional:
                with manager.transaction() as unit:
                    made.send(wanted, transaction=unit)
            else:
                made.send(wanted)

    letters = manager.transactional_dead_letter if transactional else manager.dead_letter
    before = letters.count()
    send()
    page = visit(f"/queue/purge?name={quote('private$' + chr(92) + name)}")
    effects = page.locator(".effects")
    expect(effects).to_contain_text("negative acknowledgment")
    assert ("dead letters" in effects.inner_text()) is transactional
    made.purge()
    assert letters.count() - before == (2 if transactional else 0)
    send()
    page.goto(queue(name))
    page.get_by_role("link", name="kept").first.click()
    page.locator("#pane").get_by_role("button", name="Delete…").click()
    expect(effects).to_contain_text("negative acknowledgment")
    assert ("dead letters" in effects.inner_text()) is transactional
    page.goto(queue(name, tab="properties"))
    page.get_by_role("link", name="Delete queue…").click()
    expect(effects).to_contain_text("the queue was deleted")
    assert ("dead letters" in effects.inner_text()) is transactional
    manager.delete_queue(name)
    letters.purge()


def test_a_queue_is_deleted(visit: Visit, manager: lanner.QueueManager) -> None:
    filled(manager, "leaving")
    page = visit(queue("leaving", tab="properties"))
    page.get_by_role("link", name="Delete queue…").click()
    # More than a tenth has come since the page was made: it is shown anew.
    manager.open("leaving").send_many(["more"] * 5)
    page.fill("#typed", "leaving")
    page.get_by_role("button", name="Delete queue").click()
    expect(page.locator(".banner.bad")).to_contain_text("there are 8 now")
    page.fill("#typed", "leaving")
    page.get_by_role("button", name="Delete queue").click()
    toast(page, "Queue leaving deleted")
    with pytest.raises(QueueNotFound):
        manager.open("leaving").attributes()
    page.goto(queue("leaving"))
    expect(page.locator("h1")).to_have_text("There is no queue private$\\leaving")


def test_properties_are_changed(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("changed")
    page = visit(queue("changed", tab="properties"))
    page.fill("#label", "New label")
    page.fill("#quota", "100")
    page.get_by_label("Keep a copy").check()
    page.get_by_role("button", name="Save").click()
    toast(page, "The properties were changed")
    attributes = made.attributes()
    assert (attributes.label, attributes.quota, attributes.journaling) == ("New label", 100, True)


def test_access_decides_what_another_user_sees(visit: Visit, manager: lanner.QueueManager) -> None:
    """Bob sees nothing of the queue until alice grants rights.

    Then bob can read it, and is denied what was not granted.
    """
    made = filled(manager, "shared")
    other = visit("/queues", user="bob")
    expect(other.locator("main")).to_contain_text("You see no private queues")
    # A page that bob may never see is not offered.
    assert other.locator("#nav a[href]").evaluate_all("all => all.map(one => one.getAttribute('href'))") == [
        "/queues",
        "/trace",
        "/users",
        "/account",
    ]
    other.goto(queue("shared"))
    expect(other.locator("main")).to_contain_text("You may not read")
    # Everyone may send, as the list of a new queue says.
    other.get_by_role("link", name="Send message").click()
    other.fill("#label", "from bob")
    other.get_by_role("button", name="Send", exact=True).click()
    expect(other.locator(".toast strong").first).to_have_text("Message sent")
    assert labels(made)[-1] == "from bob"
    made.delete(made.peek_by_lookup_id(0, "last").lookup_id)
    page = visit(queue("shared", tab="access"))
    page.fill("#who", "nobody-known")
    page.get_by_role("checkbox", name=re.compile("^peek: ")).check()
    page.get_by_role("button", name="Change access").click()
    # The form keeps what was typed.
    expect(page.locator(".banner.bad")).to_contain_text("there is no account 'nobody-known'")
    expect(page.locator("#who")).to_have_value("nobody-known")
    expect(page.get_by_role("checkbox", name=re.compile("^peek: "))).to_be_checked()
    page.fill("#who", "bob")
    for right in ("peek", "get-properties"):
        page.get_by_role("checkbox", name=re.compile(f"^{right}: ")).check()
    page.get_by_role("button", name="Change access").click()
    toast(page, "The access list was changed for bob")
    other.goto("/queues")
    expect(other.locator("tbody")).to_contain_text("shared")
    other.goto(queue("shared"))
    other.get_by_role("link", name="m0").click()
    expect(other.locator("#pane .code")).to_contain_text("body 0")
    other.locator("#pane").get_by_role("button", name="Delete…").click()
    other.get_by_role("button", name="Delete 1 message").click()
    expect(other.locator(".banner.bad")).to_contain_text("Nothing was deleted")
    assert made.count() == 3
    page.get_by_label(re.compile(r"Revoke the entries of bob|Revoke the entries of .*\\bob")).click()
    expect(page.locator("h1")).to_contain_text("Revoke the entries of")
    assert "peek" in str(made.access().document())
    page.get_by_role("button", name="Revoke", exact=True).click()
    toast(page, "The access list was changed")
    other.goto(queue("shared"))
    expect(other.locator("main")).to_contain_text("You may not read")


def test_dead_letters_are_returned(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("late")
    for label in ("one", "two"):
        message = lanner.Message(body="x", label=label, recoverable=True, use_dead_letter_queue=True)
        message.time_to_be_received = 0
        made.send(message)
    page = visit("/deadletters")
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").first).to_contain_text("Not received in time")
    page.get_by_label("Select one").check()
    # The button of a row is for that row, whatever is selected.
    page.get_by_role("button", name="Return two…").click()
    expect(page.locator("h1")).to_have_text("Return 1 message")
    other = manager.create_queue("elsewhere")
    page.fill("#target", "private$\\elsewhere")
    # Else it would expire at once, again.
    page.fill("#ttbr", "3600")
    page.get_by_role("button", name="Return 1 message").click()
    toast(page, "1 message returned. None was refused")
    assert (labels(other), labels(manager.dead_letter)) == (["two"], ["one"])
    page.get_by_role("button", name="Return all…").click()
    expect(page.locator(".effects")).to_contain_text("it would expire again at once")
    page.go_back()
    manager.delete_queue("late")
    page.get_by_role("button", name="Return all…").click()
    expect(page.locator("main")).to_contain_text("Would fail again")
    page.get_by_role("button", name="Return 1 message").click()
    expect(page.locator("h1")).to_contain_text("0 messages returned, 1 stay")
    assert labels(manager.dead_letter) == ["one"]


def test_a_page_says_how_many_dead_letters_one_step_returns(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("thousands")
    late = lanner.Message(body="x", use_dead_letter_queue=True, time_to_be_received=0)
    made.send_many([late] * 1001)
    page = visit("/deadletters")
    expect(page.locator("main")).to_contain_text("Reasons are counted among the first 1,000")
    page.get_by_role("button", name="Return all…").click()
    expect(page.locator("h1")).to_have_text("Return 1,000 messages")
    expect(page.locator(".effects")).to_contain_text("are the most that one step returns")
    manager.dead_letter.purge()


def test_an_outgoing_queue_is_paused_and_resumed(visit: Visit, manager: lanner.QueueManager) -> None:
    name = r"DIRECT=TCP:127.0.0.3\private$\far"
    manager.open(name).send(lanner.Message(body="x", label="Far", recoverable=True))
    page = visit(f"/outgoing?name={quote(name)}")
    expect(page.locator(".banner.bad")).to_contain_text("127.0.0.3 refuses connections")
    page.locator(".banner").get_by_role("button", name="Try now").click()
    toast(page, "Tried again now")
    page.locator("#detail").get_by_role("button", name="Pause…").click()
    expect(page.locator("main")).to_contain_text("A restart does not resume it")
    page.get_by_role("button", name="Pause", exact=True).click()
    toast(page, "Paused")
    assert manager.outgoing()[0]["state"] == "OnHold"
    page.locator("#detail").get_by_role("button", name="Resume").click()
    toast(page, "Resumed")
    assert manager.outgoing()[0]["state"] != "OnHold"
    page.goto(f"/queue?name={quote(name)}")
    page.get_by_role("link", name="Far").click()
    expect(page.locator("#pane .code")).to_contain_text("x")


def test_a_token_is_made_shown_once_and_revoked(visit: Visit, service: HttpService) -> None:
    page = visit("/users")
    page.fill("#description", "A program")
    page.get_by_role("button", name="Create token").click()
    text = page.locator("#made").text_content() or ""
    with service.client(token=text) as client:
        assert client.get("/api/v1/overview").status_code == 200
    page.goto("/users")
    expect(page.locator("main")).not_to_contain_text(text)
    page.get_by_label("Revoke the token A program…").click()
    expect(page.locator("main")).to_contain_text("programs that use it are logged off")
    with service.client(token=text) as client:
        assert client.get("/api/v1/overview").status_code == 200
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.locator("main")).to_contain_text("No tokens")
    with service.client(token=text) as client:
        assert client.get("/api/v1/overview").status_code == 401


def test_users_are_added_promoted_and_removed(visit: Visit, manager: lanner.QueueManager) -> None:
    page = visit("/users")
    page.fill("#new-name", "carol")
    page.fill("#new-password", "short")
    page.get_by_role("button", name="Add user").click()
    expect(page.locator(".banner.bad")).to_contain_text("Nothing was changed")
    page.fill("#new-name", "carol")
    page.fill("#new-password", "a long enough word")
    page.get_by_role("button", name="Add user").click()
    toast(page, "User carol added")
    page.get_by_label("Role of carol", exact=True).select_option("operator")
    page.get_by_label("Set the role of carol").click()
    toast(page, "carol has the role operator")
    assert {one["name"]: one["role"] for one in manager.users()}["carol"] == "operator"
    page.get_by_label("Remove carol…").click()
    page.get_by_role("button", name="Remove carol", exact=True).click()
    toast(page, "User carol removed")
    assert "carol" not in {one["name"] for one in manager.users()}


def test_a_connection_is_ended_after_a_confirmation(
    visit: Visit, manager: lanner.QueueManager, service: HttpService
) -> None:
    with lanner.connect(service.address, "bob", USERS["bob"]) as other:
        assert other.who_am_i()["user"] == "bob"
        number = next(one["number"] for one in manager.sessions() if one["user"] == "bob")
        page = visit("/sessions")
        page.get_by_label(f"End client {number}…").click()
        expect(page.locator("main")).to_contain_text("most programs connect again")
        page.get_by_role("button", name="End the connection").click()
        toast(page, f"The connection client {number} was ended")
        assert number not in [one["number"] for one in manager.sessions()]


def test_a_form_of_another_site_does_nothing(visit: Visit, manager: lanner.QueueManager, service: HttpService) -> None:
    made = filled(manager, "kept")
    page = visit("/account")
    cookies = {one["name"]: one["value"] for one in page.context.cookies()}
    form = {"name": "private$\\kept", "count": "3", "typed": "kept"}
    with service.client() as client:
        client.cookies.update(cookies)
        assert client.post("/queue/purge", data=form).status_code == 403
        token = {"csrf_token": page.locator("input[name=csrf_token]").first.input_value()}
        foreign = {"Origin": "https://elsewhere.example"}
        assert client.post("/queue/purge", data=form | token, headers=foreign).status_code == 403
        assert made.count() == 3
        assert client.post("/queue/purge", data=form | token).status_code == 303
    assert made.count() == 0


def test_a_sent_message_asks_for_acknowledgments(visit: Visit, manager: lanner.QueueManager) -> None:
    made, told = manager.create_queue("asking"), manager.create_queue("told")
    page = visit(f"/queue/send?name={quote('private$' + chr(92) + 'asking')}")
    page.fill("#label", "asks")
    page.fill("#ttrq", "60")
    page.select_option("#acknowledge", "full_reach_queue")
    page.fill("#administration", told.path_name)
    page.get_by_label("Keep a copy in the system journal").check()
    page.get_by_role("button", name="Send").click()
    toast(page, "Message sent")
    found = made.peek(0)
    assert found.use_journal_queue
    assert told.receive(10).correlation_id == found.id


def test_an_edited_label_leaves_the_body_as_it_was(visit: Visit, manager: lanner.QueueManager) -> None:
    made = manager.create_queue("typed")
    number = (1234).to_bytes(4, "little")
    made.send(lanner.Message(body=number, body_type=3, label="before", recoverable=True, acknowledge="nack-receive"))
    page = visit(queue("typed"))
    page.get_by_role("link", name="before").click()
    page.get_by_role("link", name="Edit and resend…").click()
    page.fill("#label", "after")
    page.get_by_role("button", name="Resend").click()
    toast(page, "Message resent in place of the original")
    found = made.peek(0)
    assert (found.label, found.body_bytes, found.body_type) == ("after", number, 3)
    assert found.acknowledge == 0x0C
