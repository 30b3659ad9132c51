"""The members of `QueueManager` for users, tokens and permissions, and those for a service only."""

from __future__ import annotations

import pytest

import lanner
import lanner.aio
from lanner import errors
from tests.contract.covering import covers
from tests.contract.forms import Place, new_name, refused


@covers("QueueManager.who_am_i", "QueueManager.overview")
async def test_a_user_is_told_who_it_is_and_what_there_is(qm: lanner.aio.QueueManager) -> None:
    who = await qm.who_am_i()
    assert (who["administrator"], who["scope"], who["queue_manager"]) == (True, None, "ALPHA")
    overview = await qm.overview()
    assert overview["identifier"] == str(qm.identifier)
    assert {"queues", "messages", "bytes", "outgoing_queues", "dead_letters"} <= overview.keys()


@covers("QueueManager.queue_page")
async def test_queues_come_in_pages(qm: lanner.aio.QueueManager) -> None:
    stem = new_name()
    for number in range(3):
        queue = await qm.create_queue(rf".\private$\{stem}-{number}", label=f"label {number}")
        for _ in range(number):
            await queue.send(lanner.Message(body="x"))
    page = await qm.queue_page(name=stem, page_size=2, sort="-messages", columns=["label", "messages"])
    assert (page["total"], page["page"]) == (3, 1)
    assert page["items"] == [{"label": "label 2", "messages": 2}, {"label": "label 1", "messages": 1}]
    last = await qm.queue_page(name=f"{stem}-?", page=2, page_size=2)
    assert [one["label"] for one in last["items"]] == ["label 2"]
    known = "unknown column 'colour' of queues: one of "
    with pytest.raises(errors.InvalidParameter, match=known):
        await qm.queue_page(columns=["colour"])
    await refused(errors.InvalidParameter, "a page of 1001 queues, at most 1000", qm.queue_page(page_size=1001))
    # The oldest has the lowest priority, and is not the first.
    queue = qm.open(f"{stem}-2")
    await queue.send(lanner.Message(body="x", priority=7))
    await queue.move(await _last(queue), "later")
    wanted = ["name", "oldest", "subqueues"]
    found = (await qm.queue_page(name=stem, page_size=100, columns=wanted))["items"]
    assert [one["subqueues"] for one in found] == [{}, {}, {"later": 1}]
    assert found[0]["oldest"] is None
    assert found[2]["oldest"] == (await queue.peek_by_lookup_id(await _last(queue))).arrived_time.timestamp()
    named = await qm.queue_page(names=[found[0]["name"].upper(), found[2]["name"], "other"], columns=["label"])
    assert [one["label"] for one in named["items"]] == ["label 0", "label 2"]
    many = ["x"] * 1001
    await refused(errors.InvalidParameter, "1001 names of queues, at most 1000", qm.queue_page(names=many))
    too_many = "a page of 101 queues with the column `oldest`, at most 100"
    await refused(errors.InvalidParameter, too_many, qm.queue_page(page_size=101, columns=wanted))
    with pytest.raises(errors.InvalidParameter, match="unknown column 'oldest' of queues to sort by"):
        await qm.queue_page(sort="oldest")
    assert (await qm.queue_page(name=stem, sort="-subqueues", columns=["label"]))["items"][0] == {"label": "label 2"}


async def _last(queue: lanner.aio.Queue) -> int:
    return (await queue.peek_by_lookup_id(0, "last")).lookup_id


@covers(
    "QueueManager.create_token", "QueueManager.tokens", "QueueManager.revoke_token",
    "QueueManager.revoke_token: InvalidParameter",
)  # fmt: skip
async def test_tokens_are_made_listed_and_revoked(qm: lanner.aio.QueueManager) -> None:
    made = await qm.create_token(["read", "send"], lifetime=60, description="for the contract")
    assert made["token"].startswith(f"lanner_{made['id']}_")
    (kept,) = [one for one in await qm.tokens() if one["id"] == made["id"]]
    assert kept == {name: value for name, value in made.items() if name != "token"}
    assert (kept["scope"], kept["description"]) == (["read", "send"], "for the contract")
    await qm.revoke_token(made["id"])
    assert made["id"] not in [one["id"] for one in await qm.tokens()]
    text = f"there is no token {made['id']}: it was revoked, or has ended"
    await refused(errors.InvalidParameter, text, qm.revoke_token(made["id"]))
    text = "unknown scope everything: one or more of read, send, receive, manage, operate, admin"
    await refused(errors.InvalidParameter, text, qm.create_token(["everything"]))


@covers("QueueManager.log_on_ticket", "QueueManager.log_on_ticket: UnsupportedOperation")
async def test_a_service_gives_a_ticket(qm: lanner.aio.QueueManager, place: Place) -> None:
    if place.service is None:
        await refused(errors.UnsupportedOperation, "there is no service to log on to", qm.log_on_ticket())
    else:
        assert len(await qm.log_on_ticket()) > 40


@covers(
    "QueueManager.users", "QueueManager.add_user", "QueueManager.add_user: InvalidParameter", "QueueManager.set_user",
    "QueueManager.set_user: IllegalUser", "QueueManager.remove_user", "QueueManager.remove_user: IllegalUser",
)  # fmt: skip
async def test_accounts_are_added_changed_and_removed(qm: lanner.aio.QueueManager) -> None:
    name = new_name()
    made = await qm.add_user(name, "long enough")
    assert (made["name"], made["administrator"]) == (name, False)
    assert made in await qm.users()
    assert "long enough" not in str(await qm.users())
    await refused(errors.InvalidParameter, f"user {name} exists already", qm.add_user(name, "long enough"))
    changed = await qm.set_user(name, password="longer still", role="administrator")
    assert changed["administrator"] is True
    await qm.remove_user(name)
    await refused(errors.IllegalUser, f"there is no user {name}", qm.set_user(name, role="user"))
    await refused(errors.IllegalUser, f"there is no user {name}", qm.remove_user(name))


@covers(
    "QueueManager.metrics", "QueueManager.metrics: UnsupportedOperation",
    "QueueManager.settings", "QueueManager.settings: UnsupportedOperation",
)  # fmt: skip
async def test_a_service_has_metrics_and_settings(qm: lanner.aio.QueueManager, place: Place) -> None:
    if place.service is None:
        text = "a queue manager in this process has no {}: `lanner serve` has them"
        await refused(errors.UnsupportedOperation, text.format("metrics"), qm.metrics())
        await refused(errors.UnsupportedOperation, text.format("settings"), qm.settings())
    else:
        told = await qm.metrics(names=["windows_msmq_messages_in_queue"])
        assert "windows_msmq_messages_in_queue{" in told["text"]
        assert told["content_type"].startswith("text/plain")
        assert (await qm.settings())["name"] == "ALPHA"


@covers("QueueManager.events", "QueueManager.events: UnsupportedOperation")
async def test_without_a_log_of_events_there_are_none(qm: lanner.aio.QueueManager) -> None:
    text = "the log of events is off: set events.enabled"
    await refused(errors.UnsupportedOperation, text, qm.events(0))


@covers("QueueManager.history", "QueueManager.history: UnsupportedOperation", "QueueManager.oldest_message")
async def test_a_service_has_a_history(qm: lanner.aio.QueueManager, place: Place) -> None:
    queue = await qm.create_queue(rf".\private$\{new_name()}")
    await queue.send(lanner.Message(body="x"))
    oldest = await qm.oldest_message()
    assert oldest is not None
    assert {"queue", "arrived"} <= oldest.keys()
    if place.service is None:
        await refused(errors.UnsupportedOperation, "a history is kept while `lanner serve` runs", qm.history())
    else:
        assert (await qm.history(queue.path_name, seconds=3600)).keys() >= {"points"}


@covers("QueueManager.reports", "QueueManager.reports: UnsupportedOperation", "QueueManager.report")
async def test_without_a_directory_of_reports_there_are_none(qm: lanner.aio.QueueManager, place: Place) -> None:
    if place.service is None:
        text = "a queue manager in this process has no {}: `lanner serve` has them"
        await refused(errors.UnsupportedOperation, text.format("reports"), qm.reports())
        await refused(errors.UnsupportedOperation, text.format("report"), qm.report("a.html"))
    else:
        text = "no directory of reports is set: set http.reports to the one that `[report]` writes"
        await refused(errors.UnsupportedOperation, text, qm.reports())
        await refused(errors.InvalidParameter, "there is no report 'a.html'", qm.report("a.html"))
