"""Checkpoints: the write-ahead log goes into the database.

Failures and concurrent work do not prevent that.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import lmdb
import pytest

from lanner.model.errors import InsufficientResources
from lanner.store import Store
from lanner.store import commit as commit_module
from lanner.store.batch import Batch
from lanner.store.environment import Environment
from lanner.store.event_log import EVENT
from tests.overlay import overlay
from tests.store.conftest import (
    QUEUE,
    commit,
    commit_and_checkpoint,
    entries,
    ids,
    no_room,
    on_disk,
    open_store,
    packets,
    put,
    send,
    take,
    text,
)


def test_a_checkpoint_that_the_disk_refuses_changes_nothing(quiet: Store, tmp_path: Path) -> None:
    send(quiet, 1, 2)
    with (
        no_room(),
        pytest.raises(InsufficientResources, match="the write-ahead log could not be brought into the store"),
    ):
        quiet.checkpoint()
    assert ids(quiet) == [1, 2]
    assert packets(tmp_path / "data") == [text(1), text(2)]
    send(quiet, 3)
    take(quiet, 1)
    commit_and_checkpoint(quiet)
    assert packets(tmp_path / "data") == [text(2), text(3)]
    quiet.close()


def test_who_has_the_lock_is_told_and_does_not_wait_forever(quiet: Store) -> None:
    """A checkpoint of another thread may be waiting for the lock."""
    send(quiet, 1)
    with quiet.lock:
        for work in (quiet.checkpoint, quiet.flush_events):
            with pytest.raises(RuntimeError, match="with the store's lock held"):
                work()
    quiet.checkpoint()
    assert ids(quiet) == [1]
    quiet.close()


def test_a_write_ahead_log_that_became_full_while_no_checkpoint_could_be_made_is_used_again(
    quiet: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, sent = 100_000, [0]

    def send_next(count: int = 1) -> None:
        for _ in range(count):
            sent[0] += 1
            put(quiet, sent[0], b"%d" % sent[0] + b"x" * size)
            commit(quiet)

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "not now")

    send_next()
    with monkeypatch.context() as patch:
        patch.setattr(commit_module.GroupCommit, "_write_slowly", refuse)
        with pytest.raises(InsufficientResources):
            quiet.checkpoint()
        with pytest.raises(InsufficientResources):
            send_next(1000)
    send_next(3)
    before = on_disk(quiet)
    send_next()
    assert on_disk(quiet) == before
    kept = [key for key in range(1, sent[0] + 1) if key != sent[0] - 4]
    assert packets(tmp_path / "data") == [b"%d" % key + b"x" * size for key in kept]
    quiet.close()


@pytest.mark.parametrize("reason", ["size", "changes", "room"])
def test_a_checkpoint_comes_before_it_would_be_felt(quiet: Store, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    commits = quiet._commits
    send(quiet, *range(30))
    quiet.checkpoint()
    if reason == "changes":
        monkeypatch.setattr(commit_module, "_MAX_CHANGES", 10)
    elif reason == "room":
        monkeypatch.setattr(commit_module, "_MAX_ROOM", 50_000)
    key = -1
    while not commits._is_checkpoint_due:
        key += 1
        assert not commits._maintain()
        if reason == "room":
            take(quiet, key)
        else:
            put(quiet, 100 + key, b"x" * (10_000 if reason == "size" else 10))
        commit(quiet)
    assert key == {"size": 12, "changes": 10, "room": 11}[reason]
    assert on_disk(quiet) == 30
    commits._maintain()
    assert on_disk(quiet) == len(ids(quiet)) != 30
    quiet.close()


def test_a_batch_that_fails_during_a_checkpoint_brings_nothing_back_that_the_write_ahead_log_has_taken(
    quiet: Store,
) -> None:
    send(quiet, 1, 2)
    last = quiet._commits._begin_checkpoint()
    take(quiet, 1)
    commit(quiet)
    put(quiet, 3)
    with no_room(), pytest.raises(InsufficientResources):
        commit(quiet)
    assert ids(quiet) == [2]
    assert quiet.stats(QUEUE) == (1, len(text(2)))
    quiet._commits._write_checkpoint(last)
    assert ids(quiet) == [2]
    quiet.close()


def test_horizons_do_not_go_back_when_a_checkpoint_was_refused_before(quiet: Store) -> None:
    with quiet.lock:
        log = quiet.events
        log.add_run([bytes(EVENT.size)])
    send(quiet, 1)
    with no_room(), pytest.raises(InsufficientResources):
        quiet.checkpoint()
    put(quiet, 2)
    quiet.checkpoint()
    assert (quiet.scan_horizon, log.horizon) == (1, 1)
    quiet.close()


def test_a_log_of_events_that_is_opened_before_a_checkpoint_keeps_its_horizon(quiet: Store, tmp_path: Path) -> None:
    with quiet.lock:
        quiet.events.add_run([bytes(EVENT.size)])
    send(quiet, 1)
    quiet.close()
    store = open_store(tmp_path / "data")
    send(store, 2)
    log = store.events
    store.checkpoint()
    assert log.bounds() == (0, 1)
    store.close()


def test_events_of_a_failed_batch_are_decided_with_those_in_the_write_ahead_log(quiet: Store) -> None:
    with quiet.lock:
        log = quiet.events
        log.add_run([bytes(EVENT.size)])
    send(quiet, 1)
    with quiet.lock:
        log.add_run([bytes(EVENT.size)])
    put(quiet, 2)
    with no_room(), pytest.raises(InsufficientResources):
        commit(quiet)
    assert log.horizon == 0
    quiet.flush_events()
    assert log.bounds() == (0, 2)
    assert [(first, len(data)) for first, data in log.read(0, 2, 10)] == [(1, EVENT.size)]
    assert not log.is_waiting
    quiet.close()


def test_who_flushes_events_waits_for_a_checkpoint_that_has_them(quiet: Store) -> None:
    with quiet.lock:
        log = quiet.events
        log.add_run([bytes(EVENT.size)])
    with quiet._commits._commit_lock:
        quiet._commits._lead()
    with quiet._commits._checkpoint_lock:
        last = quiet._commits._begin_checkpoint()
        other = threading.Thread(target=quiet.flush_events)
        other.start()
        other.join(0.002)
        assert other.is_alive()
        quiet._commits._write_checkpoint(last)
    other.join()
    assert log.horizon == 1
    quiet.close()


@pytest.mark.parametrize("wants_counter", [False, True])
def test_horizons_pass_a_batch_of_events_alone_and_do_not_come_back(quiet: Store, wants_counter: bool) -> None:
    """It holds no message, so the numbers of express ones are decided at once."""
    commits = quiet._commits
    send(quiet, 1)
    quiet.checkpoint()
    with quiet.lock:
        quiet.events.add_run([bytes(EVENT.size)])
        if wants_counter:
            commits.counters.want_all()
        commits._swap()
    put(quiet, 2, express=True)
    assert (quiet.horizon, quiet.scan_horizon) == (2, 2)
    put(quiet, 3)
    with commits._commit_lock:
        commits._lead()
    quiet.checkpoint()
    assert (quiet.horizon, quiet.scan_horizon) == (2, 2)
    quiet.close()


def test_the_database_is_opened_again_when_sweeping_or_trimming_has_broken_it(
    quiet: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB does nothing more after a meta page that could not be written.

    Small commits would not detect that for a long time.
    """
    environment = quiet._environment
    opened: list[int] = []
    reopen = environment.reopen

    def broken(*_: object) -> bool:
        raise lmdb.PanicError("update of meta page failed")

    def tracked() -> None:
        opened.append(1)
        reopen()

    with quiet.lock:
        quiet.events.add_run([bytes(EVENT.size)])
        quiet.drop_queue(QUEUE)
    commit_and_checkpoint(quiet)
    monkeypatch.setattr(Environment, "renew", broken)
    monkeypatch.setattr(Environment, "reopen", lambda _: tracked())
    monkeypatch.setattr(commit_module, "trim_slice", broken)
    monkeypatch.setattr(commit_module, "sweep_slice", broken)
    with pytest.raises(InsufficientResources):
        quiet.trim_events(0, 0)
    assert opened == [1]
    with pytest.raises(lmdb.PanicError):
        quiet._commits._maintain()
    assert opened == [1, 1]
    monkeypatch.undo()
    send(quiet, 1)
    quiet.checkpoint()
    assert on_disk(quiet) == 1
    quiet.close()


@pytest.mark.parametrize("size", [10, 300_000])
def test_what_is_durable_stays_so_when_a_counter_breaks_the_database_before_the_snapshot_is_renewed(
    quiet: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    put(quiet, 1, b"x" * size)
    renew = Environment.renew

    def broken(environment: Environment) -> None:
        monkeypatch.setattr(Environment, "renew", renew)
        raise lmdb.PanicError("update of meta page failed")

    monkeypatch.setattr(Environment, "renew", broken)
    commit_and_checkpoint(quiet)
    assert Environment.renew is renew
    assert ids(quiet) == [1]
    assert packets(tmp_path / "data") == [b"x" * size]
    quiet.close()


def test_a_checkpoint_writes_records_as_they_were_in_the_write_ahead_log(quiet: Store, tmp_path: Path) -> None:
    """The engine has changed the object since, for a receive that may never be committed."""
    send(quiet, 2)
    message = put(quiet, 1, text(1))
    commit(quiet)
    message.abort_count = 3
    message.packet = b"changed"
    quiet.checkpoint()
    found = quiet.get(QUEUE, 1)
    assert found is not None
    assert (found.packet, found.abort_count) == (text(1), 0)
    quiet.close()


def test_a_checkpoint_continues_while_the_holder_of_the_lock_waits_for_the_database(
    quiet: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter that is used up is raised under the lock, in a commit of its own."""
    begun, goes_on = threading.Event(), threading.Event()
    write = commit_module.GroupCommit._write_slowly

    def waiting(commits: commit_module.GroupCommit, batch: Batch, txn: lmdb.Transaction[bytes]) -> None:
        begun.set()
        goes_on.wait()
        write(commits, batch, txn)

    with quiet.lock:
        counter = quiet.counter("n", 1)
    send(quiet, 1)
    monkeypatch.setattr(commit_module.GroupCommit, "_write_slowly", waiting)
    checkpoint = threading.Thread(target=quiet.checkpoint)
    checkpoint.start()
    begun.wait()
    with quiet.lock:
        goes_on.set()
        assert counter.next(100) == 1
    checkpoint.join()
    assert on_disk(quiet) == 1
    quiet.close()


def test_a_batch_that_fails_is_dropped_behind_a_checkpoint_that_is_under_way(quiet: Store) -> None:
    """The database may have to be opened again, and another thread is writing to it."""
    put(quiet, 1)
    batch = quiet.pending_batch()
    answers: list[bool] = []

    def sync() -> None:
        with no_room(), pytest.raises(InsufficientResources):
            quiet.sync(batch)
        answers.append(True)

    with quiet._commits._checkpoint_lock:
        other = threading.Thread(target=sync)
        other.start()
        other.join(0.005)
        assert not answers
        assert ids(quiet) == [1]
    other.join()
    assert answers
    assert ids(quiet) == []
    quiet.close()


def test_what_came_while_a_checkpoint_was_refused_lies_over_what_it_was_about_to_write(quiet: Store) -> None:
    commits = quiet._commits
    table = quiet.table("t")
    table.put(b"a", b"1")
    send(quiet, 1, 2, 3)
    last = commits._begin_checkpoint()
    take(quiet, 1)
    put(quiet, 2, b"again")
    table.put(b"a", b"2")
    commit(quiet)
    send(quiet, 4)
    put(quiet, 5)
    with no_room(), pytest.raises(InsufficientResources):
        commits._write_checkpoint(last)
    assert commits.checkpointing is None
    assert commits._changes == commits.logged.changes()
    assert quiet._allocation._logged == commits.logged.room > 0
    for _ in range(2):
        assert ids(quiet) == [2, 3, 4, 5]
        found = quiet.get(QUEUE, 2)
        assert found is not None
        assert found.packet == b"again"
        assert table.get(b"a") == b"2"
        quiet.checkpoint()
    assert quiet._allocation._logged == 0
    assert on_disk(quiet) == entries(quiet, "visible") == 3
    quiet.close()


def test_a_commit_that_makes_a_checkpoint_due_has_it_made(quiet: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[bool] = []
    quiet._commits.maintenance = overlay(quiet._commits.maintenance, wake=lambda: woken.append(True))
    send(quiet, 1)
    assert not woken
    monkeypatch.setattr(commit_module, "_MAX_CHANGES", 1)
    send(quiet, 2)
    assert woken
    quiet.close()


def test_a_scan_ends_where_the_snapshot_does_until_a_checkpoint_has_ended(quiet: Store) -> None:
    send(quiet, 1)
    assert (quiet.horizon, quiet.scan_horizon) == (1, 0)
    last = quiet._commits._begin_checkpoint()
    assert (quiet.horizon, quiet.scan_horizon) == (1, 0)
    assert list(quiet.scan(QUEUE, 0)) == []
    quiet._commits._write_checkpoint(last)
    assert quiet.scan_horizon == 1
    assert [number for number, _, _ in quiet.scan(QUEUE, 0)] == [1]
    quiet.close()
