"""`lanner move` and `lanner copy`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_messages import bodies


@pytest.fixture
def three(run: Run, orders: str) -> str:
    for body in "abc":
        run("send", orders, body)
    return orders


def test_one_message_moves_to_a_subqueue_by_its_lookup_id(run: Run, three: str) -> None:
    identifier = run("peek", three, "--json").json["lookup_id"]
    moved = run("move", three, "retry", "--lookup-id", identifier, "--json").json
    assert (moved["messages"], moved["target"]) == (1, r"ALPHA\private$\orders;retry")
    assert bodies(run, "peek", "orders;retry", "--all") == ["a"]
    assert bodies(run, "peek", three, "--all") == ["b", "c"]


def test_all_messages_move_to_a_subqueue_and_back(run: Run, three: str) -> None:
    run("move", three, "retry", "--all")
    run("peek", three, code=3)
    run("move", "orders;retry", "--all")
    assert bodies(run, "peek", three, "--all") == ["a", "b", "c"]
    assert run("peek", three, "--json").json["move_count"] == 2


def test_a_dry_run_moves_and_copies_nothing(run: Run, three: str) -> None:
    run("queue", "create", "other")
    assert run("move", three, "retry", "--all", "--dry-run", "--json").json["messages"] == 3
    assert "would copy 3 messages" in run("copy", three, "other", "--dry-run").out
    assert bodies(run, "peek", three, "--all") == ["a", "b", "c"]
    run("peek", "other", code=3)


def test_a_move_must_say_what_and_to_where(run: Run, three: str) -> None:
    assert "--lookup-id or --all" in run("move", three, "retry", code=2).err
    assert "which subqueue" in run("move", three, "--all", code=2).err
    assert "where they are" in run("move", three, r".\private$\orders", "--all", code=2).err
    run("queue", "create", "other")
    assert "not parts of one queue" in run("move", three, r".\private$\other", "--all", code=1).err
    assert bodies(run, "peek", three, "--all") == ["a", "b", "c"]


def test_copies_have_the_same_content_and_another_id(run: Run, three: str) -> None:
    run("queue", "create", "other", "--transactional")
    assert run("copy", three, "other", "-n", "2", "--json").json["messages"] == 2
    copies = run("peek", "other", "--all", "--json").lines
    assert [copy["body"] for copy in copies] == ["a", "b"]
    originals = {message["id"] for message in run("peek", three, "--all", "--json").lines}
    assert originals.isdisjoint(copy["id"] for copy in copies)
    assert len(originals) == 3


def test_copies_go_to_another_data_directory(run: Run, three: str, tmp_path: Path) -> None:
    run("queue", "create", "target", "--data", tmp_path / "second", "--name", "beta")
    run("copy", three, "target", "--to-data", tmp_path / "second")
    assert bodies(run, "receive", "target", "--all", "--data", str(tmp_path / "second")) == ["a", "b", "c"]


def test_a_queue_is_not_copied_to_itself_or_to_nowhere(run: Run, three: str, tmp_path: Path) -> None:
    assert "itself" in run("copy", three, r"ALPHA\private$\orders", code=2).err
    assert "0 of 3 messages are copied" in run("copy", three, "nowhere", code=1).err
    assert "does not exist" in run("copy", three, "x", "--to-data", tmp_path / "none", code=1).err


def test_a_copy_that_meets_a_full_queue_says_how_far_it_came(run: Run, three: str) -> None:
    run("queue", "create", "small", "--quota-kb", "0")
    error = run("copy", three, "small", code=1).err
    assert "0 of 3 messages are copied" in error
    assert "is full" in error
