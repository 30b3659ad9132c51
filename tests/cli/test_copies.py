"""`lanner deadletter` and `lanner journal`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.cli.test_messages import bodies


@pytest.fixture
def letters(run: Run, orders: str) -> None:
    """Create dead letters: a plain message that expired and a transactional one that was purged."""
    run("queue", "create", "t", "--transactional")
    run("send", orders, "late", "--ttbr", "0", "--dead-letter")
    run("send", "t", "purged", "--dead-letter")
    run("queue", "purge", "t")


def test_dead_letters_are_listed_and_shown(run: Run, letters: None) -> None:
    found = run("deadletter", "list", "--json").lines
    assert [(letter["queue"], letter["body"]) for letter in found] == [
        (r"ALPHA\system$;DEADLETTER", "late"),
        (r"ALPHA\system$;DEADXACT", "purged"),
    ]
    table = run("deadletter", "list").out
    assert r"DIRECT=OS:ALPHA\private$\orders" in table
    assert bodies(run, "deadletter", "show", "--which", "transactional") == ["purged"]
    assert bodies(run, "deadletter", "peek", "--all") == ["late", "purged"]
    assert bodies(run, "deadletter", "peek", "--lookup-id", found[1]["lookup_id"]) == ["purged"]


def test_dead_letters_are_received(run: Run, letters: None) -> None:
    assert bodies(run, "deadletter", "receive") == ["late"]
    assert bodies(run, "deadletter", "receive", "--all") == ["purged"]
    assert "no dead letters" in run("deadletter", "receive", code=3).err
    assert "no dead letters" in run("deadletter", "list", code=3).err


def test_dead_letters_are_purged(run: Run, letters: None) -> None:
    assert run("deadletter", "purge", "--dry-run", "--json").json == {"messages": 2, "dry_run": True}
    assert run("deadletter", "purge", "--which", "plain", "--json").json == {"messages": 1, "dry_run": False}
    assert run("deadletter", "purge").out == "removed 1 dead letter\n"
    run("deadletter", "purge", code=3)


def test_dead_letters_return_to_their_queues(run: Run, letters: None) -> None:
    planned = run("deadletter", "return", "--all", "--dry-run", "--json").lines
    assert [line["queue"] for line in planned] == [
        r"DIRECT=OS:ALPHA\private$\orders",
        r"DIRECT=OS:ALPHA\private$\t",
    ]
    assert all(line["dry_run"] for line in planned)
    run("peek", "t", code=3)
    run("deadletter", "return", "--all", "--ttbr", "forever")
    assert bodies(run, "receive", "orders") == ["late"]
    assert run("receive", "t", "--json").json["transactional"]
    run("deadletter", "list", code=3)


def test_a_dead_letter_whose_queue_is_gone_stays(run: Run, letters: None) -> None:
    run("queue", "delete", "orders")
    ran = run("deadletter", "return", "--all", code=1)
    assert "stays: no queue" in ran.err
    assert bodies(run, "deadletter", "peek", "--all") == ["late"]
    assert bodies(run, "peek", "t") == ["purged"]


def test_one_dead_letter_returns_by_its_lookup_id(run: Run, letters: None) -> None:
    identifier = run("deadletter", "peek", "--which", "transactional", "--json").json["lookup_id"]
    run("deadletter", "return", "--lookup-id", identifier)
    assert bodies(run, "deadletter", "peek", "--all") == ["late"]
    assert "no dead letter has the lookup id 5" in run("deadletter", "return", "--lookup-id", "5", code=3).err
    run("deadletter", "return", code=2)


@pytest.fixture
def journal(run: Run) -> str:
    run("queue", "create", "q", "--journal", "--name", "alpha")
    for body in "ab":
        run("send", "q", body)
    run("receive", "q", "--all")
    return "q"


def test_the_journal_of_a_queue_is_listed_read_and_purged(run: Run, journal: str) -> None:
    assert bodies(run, "journal", journal) == ["a", "b"]
    assert run("journal", journal).out.splitlines()[0].startswith("LOOKUP ID")
    assert bodies(run, "journal", journal, "--peek") == ["a"]
    assert bodies(run, "journal", journal, "--receive") == ["a"]
    assert run("journal", journal, "--raw").raw == b"b"
    assert run("journal", journal, "--purge", "--dry-run", "--json").json["messages"] == 1
    assert run("journal", journal, "--purge", "--json").json["queue"] == r"ALPHA\private$\q;journal"
    assert "is empty" in run("journal", journal, code=3).err


def test_without_a_queue_it_is_the_system_journal(run: Run, journal: str) -> None:
    run("journal", code=3)
    run("send", journal, "c", "--journal")
    assert bodies(run, "journal") == ["c"]


def test_options_of_journal_that_do_not_go_together(run: Run, journal: str) -> None:
    run("journal", journal, "--peek", "--receive", code=2)
    run("journal", journal, "--receive", "--dry-run", code=2)
    run("journal", "none", code=1)
