"""`lanner queue`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run

KEYS = {
    "name", "format_name", "kind", "label", "transactional", "journaling", "messages", "bytes", "journal_messages",
    "journal_bytes", "quota_kb", "journal_quota_kb", "authentication", "privacy_level", "base_priority",
    "multicast_address", "type", "identifier", "create_time", "modify_time", "subqueues",
}  # fmt: skip


def names(run: Run, *options: str) -> list[str]:
    return [queue["name"] for queue in run("queue", "list", "--json", *options).json]


def test_a_queue_is_created_with_its_data_directory_and_its_queue_manager(run: Run, data: Path) -> None:
    ran = run("queue", "create", r".\private$\orders", "--name", "alpha", "--label", "Orders", "--journal")
    assert ran.out == "ALPHA\\private$\\orders is ready\n"
    assert (data.stat().st_mode & 0o777) == 0o700
    queue = run("queue", "show", "orders", "--json").json
    assert set(queue) == KEYS
    assert (queue["name"], queue["label"], queue["journaling"]) == (r"ALPHA\private$\orders", "Orders", True)
    assert (queue["kind"], queue["quota_kb"], queue["transactional"]) == ("private", None, False)


def test_every_attribute_can_be_given_and_changed(run: Run) -> None:
    guid = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    made = run(
        "queue", "create", "q", "--transactional", "--quota-kb", "10", "--journal-quota-kb", "20", "--authenticate",
        "--privacy", "body", "--base-priority", "5", "--type", guid, "--json",
    ).json  # fmt: skip
    assert made["transactional"]
    assert made["authentication"]
    assert (made["quota_kb"], made["journal_quota_kb"], made["privacy_level"]) == (10, 20, "body")
    assert (made["base_priority"], made["type"]) == (5, guid)
    changed = run(
        "queue", "set", "q", "--quota-kb", "none", "--no-authenticate", "--journal", "--label", "x", "--json"
    ).json
    assert (changed["quota_kb"], changed["authentication"], changed["journaling"]) == (None, False, True)
    assert changed["label"] == "x"
    assert changed["journal_quota_kb"] == 20


@pytest.mark.parametrize(
    "name",
    ["orders", r".\private$\orders", r"private$\orders", r"ALPHA\PRIVATE$\Orders", r"DIRECT=OS:alpha\private$\orders"],
)
def test_a_queue_is_found_in_every_spelling(run: Run, orders: str, name: str) -> None:
    assert run("queue", "show", name, "--json").json["name"] == r"ALPHA\private$\orders"


def test_a_second_queue_of_a_name_is_an_error_unless_it_may_be_there(run: Run, orders: str) -> None:
    ran = run("queue", "create", orders, code=1)
    assert "exists already" in ran.err
    assert "lanner queue set" in ran.err
    run("queue", "create", orders, "--if-missing")


def test_the_list_has_the_queues_for_other_computers_last_and_everything_if_asked(run: Run, orders: str) -> None:
    run("send", r"DIRECT=OS:other\private$\far", "x")
    assert names(run)[-2:] == [r"ALPHA\private$\orders", r"DIRECT=OS:other\private$\far"]
    assert r"ALPHA\system$;DEADLETTER" in names(run, "--all")
    assert r"ALPHA\private$\orders;journal" in names(run, "--all")
    table = run("queue", "list").out.splitlines()
    assert table[0].split()[:3] == ["NAME", "KIND", "MESSAGES"]
    assert table[-1].split()[:3] == [r"DIRECT=OS:other\private$\far", "outgoing", "1"]


def test_delete_and_purge_do_nothing_in_a_dry_run(run: Run, orders: str) -> None:
    run("send", orders, "x")
    assert run("queue", "purge", orders, "--dry-run").out == "would remove 1 message of ALPHA\\private$\\orders\n"
    assert run("queue", "delete", orders, "--dry-run", "--json").json == {
        "queue": r"ALPHA\private$\orders",
        "messages": 1,
        "dry_run": True,
    }
    assert run("queue", "show", orders, "--json").json["messages"] == 1


def test_purge_removes_and_says_when_there_is_nothing(run: Run, orders: str) -> None:
    run("send", orders, "x")
    assert run("queue", "purge", orders, "--json").json["messages"] == 1
    assert "is empty" in run("queue", "purge", orders, code=3).err


def test_a_deleted_queue_is_gone(run: Run, orders: str) -> None:
    run("queue", "delete", orders, "--yes")
    assert "no queue" in run("queue", "show", orders, code=1).err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "nothing to change"),
        (("--quota-kb", "much"), "kilobytes"),
        (("--quota-kb", str(0xFFFF_FFFF)), "kilobytes"),
        (("--privacy", "some"), "none, optional or body"),
        (("--base-priority", "40000"), "-32768 to 32767"),
        (("--type", "x"), "a GUID"),
        (("--label", "x" * 125), "at most 124"),
    ],
)
def test_a_value_without_meaning_is_a_usage_error(
    run: Run, orders: str, options: tuple[str, ...], complaint: str
) -> None:
    assert complaint in run("queue", "set", orders, *options, code=2).err


def test_the_label_may_be_124_characters_long(run: Run, orders: str) -> None:
    run("queue", "set", orders, "--label", "x" * 124)


def test_a_queue_manager_is_not_renamed_by_the_way(run: Run, orders: str) -> None:
    assert "holds the queue manager ALPHA" in run("queue", "create", "other", "--name", "beta", code=2).err
    run("queue", "create", "other", "--name", "Alpha")
    assert run("queue", "show", "other", "--json").json["name"] == r"ALPHA\private$\other"
