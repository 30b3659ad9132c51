"""The audit log: one JSON line for each record, private, bounded, and not to be flooded."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from lanner.model.errors import AccessDenied, QueueNotFound
from lanner.security import audit
from lanner.security.audit import (
    MAX_CHANGES,
    MAX_IN_TOTAL,
    MAX_PERIOD,
    MAX_REFUSALS,
    MAX_TEXT,
    OLD_FILES,
    PERIOD,
    AuditLog,
)
from lanner.security.identity import ANONYMOUS, SYSTEM, Identity
from lanner.wire.sid import Sid

ALICE = Identity("alice", Sid.parse("S-1-5-21-1-2-3-1001"))
MALLORY = ANONYMOUS.at("192.0.2.7")


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> AuditLog:
    return AuditLog(tmp_path / "audit.log", clock=clock, monotonic=clock)


def records(log: AuditLog) -> list[dict[str, Any]]:
    assert log.path is not None
    return [json.loads(line) for line in log.path.read_text().splitlines()] if log.path.exists() else []


def test_a_record_says_who_did_what_and_from_where(log: AuditLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lanner.audit"):
        log.done("delete queue", SYSTEM.at("lanner.sock uid 0"), queue="q", messages=3)
    (record,) = records(log)
    assert record == {
        "time": "2023-11-14T22:13:20.000+00:00",
        "event": "delete queue",
        "outcome": "done",
        "who": "SYSTEM",
        "sid": "S-1-5-18",
        "from": "lanner.sock uid 0",
        "queue": "q",
        "messages": 3,
    }
    assert json.loads(caplog.records[-1].getMessage()) == record
    assert caplog.records[-1].name == "lanner.audit"


def test_the_file_is_private_and_made_with_the_first_record(log: AuditLog) -> None:
    assert log.path is not None
    assert not log.path.exists()
    log.done("x", SYSTEM)
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    log.path.chmod(0o644)
    log.done("x", SYSTEM)
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_root_makes_belongs_to_the_owner_of_its_directory(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, 4711, 4711)
    log = AuditLog(folder / "audit.log")
    log.done("x", SYSTEM)
    assert (folder / "audit.log").stat().st_uid == 4711


def test_without_a_path_there_is_no_file(tmp_path: Path) -> None:
    AuditLog().done("x", SYSTEM)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b[2J", "\x7f", "\x85", "\x9b1m", "\u202eevil", "\u2066", "\ud800", '"}\n{"']
)
def test_text_of_a_peer_stays_on_its_line(log: AuditLog, text: str) -> None:
    log.logon_failed(text, "192.0.2.7", "NTLM", "no")
    assert log.path is not None
    raw = log.path.read_bytes()
    assert raw.count(b"\n") == 1
    assert all(0x20 <= octet < 0x7F for octet in raw.rstrip(b"\n"))
    assert records(log)[0]["who"] == text


def test_text_of_a_peer_is_cut(log: AuditLog) -> None:
    log.logon_failed("x" * (MAX_TEXT + 1), "192.0.2.7", "NTLM", "no")
    assert records(log)[0]["who"] == "x" * MAX_TEXT


def test_a_change_is_recorded_as_done_or_refused(log: AuditLog) -> None:
    details: dict[str, object] = {"queue": "q"}
    with log.change("change access", SYSTEM, details):
        details["after"] = "D:"
    with pytest.raises(AccessDenied), log.change("delete queue", MALLORY, {"queue": "q"}):
        raise AccessDenied("no right")
    # Not for lack of rights: that does not concern access.
    with pytest.raises(QueueNotFound), log.change("delete queue", MALLORY, {"queue": "q"}):
        raise QueueNotFound("none")
    done, refused = records(log)
    assert (done["outcome"], done["after"]) == ("done", "D:")
    assert (refused["outcome"], refused["reason"], refused["from"]) == ("refused", "no right", "192.0.2.7")


# Floods
# -----------------------------------------------------------------------------------------------


def test_identical_refusals_are_counted(log: AuditLog, clock: Clock) -> None:
    for _ in range(100):
        log.logon_failed("alice", "192.0.2.7", "NTLM", "wrong")
    log.logon_failed("alice", "192.0.2.8", "NTLM", "wrong")
    assert [one["from"] for one in records(log)] == ["192.0.2.7", "192.0.2.8"]
    clock.now += PERIOD
    log.logon_failed("alice", "192.0.2.7", "NTLM", "wrong")
    last = records(log)[2:]
    assert [(one["event"], one["from"], one.get("count")) for one in last] == [
        ("refusals not written", "192.0.2.7", 99),
        ("log on", "192.0.2.7", None),
    ]


def test_different_refusals_from_one_place_are_bounded(log: AuditLog) -> None:
    for number in range(1000):
        log.logon_failed(f"user{number}", "192.0.2.7", "NTLM", "wrong")
    assert len(records(log)) == MAX_REFUSALS
    # No other user's are.
    log.logon_failed("bob", "192.0.2.8", "NTLM", "wrong")
    log.done("delete queue", MALLORY)
    log.close()
    last = records(log)[MAX_REFUSALS:]
    assert [one["event"] for one in last] == ["log on", "delete queue", "refusals not written"]
    assert last[-1]["count"] == 1000 - MAX_REFUSALS


def test_the_places_are_bounded(log: AuditLog) -> None:
    for number in range(2000):
        log.logon_failed("x", f"2001:db8:0:{number:x}::1", "NTLM", "wrong")
    assert len(log._places) <= audit._MAX_PLACES + 1


def test_a_network_of_ipv6_is_one_place(log: AuditLog) -> None:
    """The owner of a network has all of its addresses."""
    for number in range(1000):
        log.logon_failed("x", f"2001:db8::{number:x}", "NTLM", "wrong")
    assert len(records(log)) == MAX_REFUSALS
    log.close()
    assert records(log)[-1]["from"] == "2001:db8::/64"


def test_a_place_that_continues_is_heard_ever_less(log: AuditLog, clock: Clock) -> None:
    """One refusal a second for a day, all different: few records, and the counts are complete."""
    day = 24 * 3600
    for number in range(day):
        log.logon_failed(f"user{number}", "192.0.2.7", "NTLM", "wrong")
        clock.now += 1
    log.close()
    found = records(log)
    assert len(found) < 30 * (MAX_REFUSALS + 1)
    assert sum(one.get("count", 1) for one in found) == day
    # One that was quiet for as long as its last period took begins anew.
    clock.now += MAX_PERIOD
    for _ in range(2):
        log.logon_failed("alice", "192.0.2.7", "NTLM", "wrong")
        clock.now += PERIOD
    assert [one["event"] for one in records(log)[len(found) :]] == ["log on", "log on"]


def test_all_places_together_are_bounded(log: AuditLog, clock: Clock) -> None:
    """Each of them may be one of a thousand that an attacker has."""
    for number in range(20_000):
        log.logon_failed("x", f"198.51.{number >> 8}.{number & 255}", "NTLM", "wrong")
        clock.now += 0.1
    assert len(records(log)) == MAX_IN_TOTAL
    log.done("delete queue", MALLORY)
    assert records(log)[-1]["event"] == "delete queue", "what was done is always recorded"
    log.refused("purge queue", MALLORY, "no right")
    assert records(log)[-1]["event"] == "purge queue", "logons hide nothing else"
    clock.now += 3600
    log.logon_failed("x", "192.0.2.7", "NTLM", "wrong")
    assert [(one["event"], one["from"], one.get("count")) for one in records(log)[-2:]] == [
        ("refusals not written", "all places", 20_000 - MAX_IN_TOTAL),
        ("log on", "192.0.2.7", None),
    ]


def test_the_file_is_rotated(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", max_octets=1000)
    for number in range(100):
        log.done("x", SYSTEM, number=number)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == ["audit.log", *(f"audit.log.{number}" for number in range(1, OLD_FILES + 1))]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tmp_path.iterdir())
    numbers: list[int] = []
    for name in (*reversed(found[1:]), found[0]):
        numbers += [json.loads(line)["number"] for line in (tmp_path / name).read_text().splitlines()]
    assert numbers == list(range(numbers[0], 100))


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    """The service and commands write the same file, and each may move it away."""
    path = tmp_path / "audit.log"
    logs = [AuditLog(path, max_octets=40_000) for _ in range(4)]

    def write(log: AuditLog, first: int) -> None:
        for number in range(200):
            log.done("x", SYSTEM, number=first + number)

    threads = [threading.Thread(target=write, args=(log, 1000 * place)) for place, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [json.loads(line)["number"] for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert sorted(numbers) == [1000 * place + number for place in range(4) for number in range(200)]


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in (tmp_path / "none" / "audit.log", tmp_path / "link"):
        if path.name == "link":
            path.symlink_to(tmp_path / "target")
        log = AuditLog(path)
        for _ in range(3):
            log.done("delete queue", SYSTEM)
    complaints = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(complaints) == 2
    assert all("delete queue" in record.getMessage() for record in complaints)
    assert not (tmp_path / "target").exists()


def test_the_changes_of_one_user_push_nothing_out(log: AuditLog, clock: Clock) -> None:
    log.done("create queue", ALICE, queue="first")
    for number in range(MAX_CHANGES + 7):
        log.done("purge queue", MALLORY, queue="mine", messages=number)
    found = records(log)
    assert found[0]["queue"] == "first"
    assert len(found) == 1 + MAX_CHANGES
    # Neither another event of hers, nor another user, nor an administrator is affected.
    log.done("change access", MALLORY, queue="mine")
    log.done("purge queue", ALICE, queue="first")
    for _ in range(MAX_CHANGES + 1):
        log.done("purge queue", SYSTEM, queue="all")
    assert len(records(log)) == 1 + MAX_CHANGES + 2 + MAX_CHANGES + 1
    clock.now += 3600
    log.done("purge queue", MALLORY, queue="mine")
    *_, left_out, again = records(log)
    assert (left_out["event"], left_out["change"], left_out["who"], left_out["count"]) == (
        "changes not written",
        "purge queue",
        MALLORY.name,
        7,
    )
    assert again["event"] == "purge queue"
