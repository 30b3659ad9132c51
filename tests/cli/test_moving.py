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


def test_a_subqueue_with_the_name_of_a_queue_is_reported(run: Run, three: str) -> None:
    run("queue", "create", "other")
    assert r"write .\private$\other" in run("move", three, "other", "--all", "--dry-run").err
    assert run("move", three, ";other", "--all", "--dry-run").err == ""
    assert run("move", three, "retry", "--all", "--dry-run").err == ""


def test_a_dry_run_moves_and_copies_nothing(run: Run, three: str) -> None:
    run("queue", "create", "other")
    assert run("move", three, "retry", "--all", "--dry-run", "--json").json["messages"] == 3
    assert "would copy 3 messages" in run("copy", three, "other", "--dry-run").out
    assert bodies(run, "peek", three, "--all") == ["a", "b", "c"]
    run("peek", "other", code=3)


def test_a_move_must_say_what_and_to_where(run: Run, three: str) -> None:
    assert "--lookup-id, --filter or --all" in run("move", three, "retry", code=2).err
    assert "which queue or subqueue" in run("move", three, "--all", code=2).err
    assert "where they are" in run("move", three, r".\private$\orders", "--all", code=2).err
    assert "there is no field 'colour'" in run("move", three, "retry", "--filter", "colour=red", code=1).err
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
    assert "0 of 3 messages are done" in run("copy", three, "nowhere", code=1).err
    assert "does not exist" in run("copy", three, "x", "--to-data", tmp_path / "none", code=1).err


def test_a_copy_that_meets_a_full_queue_says_how_far_it_came(run: Run, three: str) -> None:
    run("queue", "create", "small", "--quota-kb", "0")
    error = run("copy", three, "small", code=1).err
    assert "0 of 3 messages are done" in error
    assert "is full" in error


def test_messages_move_to_any_queue_by_a_filter(run: Run, three: str) -> None:
    run("queue", "create", "other", "--transactional")
    run("send", three, "x", "--label", "Late order", "--priority", "6")
    dry = run("move", three, r".\private$\other", "-f", "label~ORDER", "--dry-run", "--json").json
    assert (dry["messages"], dry["dry_run"]) == (1, True)
    assert "moved 1 message" in run("move", three, r".\private$\other", "-f", "label~order", "-f", "priority>5").out
    assert bodies(run, "peek", "other", "--all") == ["x"]
    assert bodies(run, "peek", three, "--all") == ["a", "b", "c"]
    assert "moved 3 messages" in run("move", three, r".\private$\other", "--all").out
    assert bodies(run, "peek", "other", "--all") == ["x", "a", "b", "c"]
    run("peek", three, code=3)


def test_peek_copy_and_delete_take_filters(run: Run, three: str) -> None:
    assert bodies(run, "peek", three, "--all", "-f", "body~B") == ["b"]
    run("queue", "create", "other")
    assert run("copy", three, "other", "-f", "body!=b", "--json").json["messages"] == 2
    assert bodies(run, "peek", "other", "--all") == ["a", "c"]
    assert "which messages" in run("delete", three, code=2).err
    assert run("delete", three, "-f", "body=a", "--dry-run", "--json").json["messages"] == 1
    assert "deleted 1 message" in run("delete", three, "-f", "body=a", "--yes").out
    identifier = run("peek", three, "--json").json["lookup_id"]
    run("delete", three, "--lookup-id", identifier, "--yes")
    assert bodies(run, "peek", three, "--all") == ["c"]
    run("delete", three, "-f", "body=a", code=3)
    assert "with peek" in run("receive", three, "-f", "body=c", code=2).err


def test_a_message_is_edited_and_sent_again(run: Run, three: str, tmp_path: Path) -> None:
    identifier = run("peek", three, "--json").json["lookup_id"]
    run("resend", three, "--lookup-id", identifier, "--body", "A", "--label", "again", "--priority", "7")
    first = run("peek", three, "--json").json
    assert (first["body"], first["label"], first["priority"]) == ("A", "again", 7)
    run("queue", "create", "other")
    (tmp_path / "body").write_bytes(b"\x00\x01")
    run("resend", three, "other", "-f", "label=again", "--file", tmp_path / "body", "--keep")
    assert run("peek", "other", "--json").json["label"] == "again"
    assert len(run("peek", three, "--all", "--json").lines) == 3
    assert run("resend", three, "--all", "--dry-run", "--json").json["messages"] == 3
    assert "resent 3 messages" in run("resend", three, "--all").out
    assert "not both" in run("resend", three, "--all", "--body", "x", "--file", tmp_path / "body", code=2).err
