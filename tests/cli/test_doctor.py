"""`lanner doctor`."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import namedtuple
from pathlib import Path

import pytest

from lanner.client import Message, QueueManager
from lanner.directory import EmbeddedDirectory
from lanner.model.directory_objects import User
from lanner.native import is_native
from lanner.security.certificates import add_certificate, generate_certificate
from lanner.services.examination import DISK_FAIL, DISK_WARN, Finding, examine
from lanner.store import Store
from lanner.wire.sid import Sid
from tests.cli.conftest import Run

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def findings(data: Path, check: str) -> list[Finding]:
    return [finding for finding in examine(data, NOW) if finding.check == check]


def verdict(data: Path, check: str) -> tuple[str, str]:
    (finding,) = findings(data, check)
    assert finding.advice or finding.verdict == "OK"
    return finding.verdict.value, finding.text


def test_a_healthy_directory_passes_every_check_and_is_not_changed(run: Run, orders: str, data: Path) -> None:
    run("send", orders, "x")
    before = (run("queue", "list", "--all", "--json").json, run("peek", orders, "--all", "--json").lines)
    found = run("doctor", "--json").json
    assert {set(one) == {"check", "verdict", "text", "advice"} for one in found} == {True}
    assert [one["check"] for one in found if one["verdict"] != "OK"] == []
    assert {one["check"] for one in found} == {
        "directory", "permissions", "disk", "accounts", "lock", "store", "records", "transactions", "quotas",
        "dead letters", "outgoing", "certificates", "native",
    }  # fmt: skip
    (native,) = [one["text"] for one in found if one["check"] == "native"]
    assert ("compiled functions are used" if is_native else "functions in Python are used") in native
    assert run("doctor").out.startswith("OK   directory ")
    assert (run("queue", "list", "--all", "--json").json, run("peek", orders, "--all", "--json").lines) == before


def test_no_directory_and_no_store_fail_and_are_not_made(run: Run, data: Path) -> None:
    assert "does not exist" in run("doctor", code=1).out
    assert not data.exists()
    data.mkdir(mode=0o700)
    assert "holds no queue manager" in run("doctor", code=1).out
    assert list(data.iterdir()) == []


def test_open_permissions_are_found(run: Run, orders: str, data: Path) -> None:
    data.chmod(0o755)
    assert verdict(data, "permissions") == ("WARN", f"{data} has mode 0755: others may look at messages")
    data.chmod(0o700)
    run("user", "add", "a", "--password-stdin", stdin="a long word\n")
    (data / "users.json").chmod(0o644)
    assert verdict(data, "permissions")[0] == "FAIL"
    assert verdict(data, "accounts")[0] == "FAIL"
    run("doctor", code=1)


@pytest.mark.parametrize(
    ("free", "expected"),
    [(DISK_FAIL - 1, "FAIL"), (DISK_FAIL, "WARN"), (DISK_WARN - 1, "WARN"), (DISK_WARN, "OK")],
)
def test_a_full_disk_is_found(
    run: Run, orders: str, data: Path, monkeypatch: pytest.MonkeyPatch, free: int, expected: str
) -> None:
    usage = namedtuple("usage", "total used free")  # noqa: PYI024 (what shutil gives)
    monkeypatch.setattr("lanner.services.examination.shutil.disk_usage", lambda _: usage(1 << 40, 0, free))
    assert verdict(data, "disk")[0] == expected


def test_a_directory_in_use_is_in_order_and_left_alone(run: Run, data: Path) -> None:
    with QueueManager(data):
        found = run("doctor", "--json").json
    assert [one["verdict"] for one in found if one["check"] in ("lock", "store")] == ["OK", "SKIP"]
    assert "a program has opened its queue manager" in str(found)


def test_a_store_that_cannot_be_opened_fails(run: Run, orders: str, data: Path) -> None:
    (data / "data.mdb").write_bytes(b"no LMDB file" * 1000)
    assert verdict(data, "store")[0] == "FAIL"


def test_records_put_aside_and_transactions_in_doubt_are_found(run: Run, orders: str, data: Path) -> None:
    identifier = uuid.uuid4()
    store = Store.open(data)
    with store.lock:
        store.table("quarantine").put(b"row", b"junk")
        store.table("transactions").put(identifier.bytes, b"{}")
    store.close()
    assert verdict(data, "records")[0] == "WARN"
    assert verdict(data, "transactions")[0] == "WARN"
    assert str(identifier) in verdict(data, "transactions")[1]


@pytest.mark.parametrize(("size", "expected"), [(6000, "OK"), (8500, "WARN"), (9900, "FAIL")])
def test_full_queues_are_found(data: Path, size: int, expected: str) -> None:
    with QueueManager(data, "alpha") as manager:
        manager.create_queue("q", quota_kb=10).send(Message(body=bytes(size), recoverable=True))
    (finding,) = findings(data, "quotas")
    assert finding.verdict == expected
    assert (r"ALPHA\private$\q uses" in finding.text) == (expected != "OK")


def test_a_full_journal_and_a_full_queue_manager_are_found(data: Path) -> None:
    with QueueManager(data, "alpha", queue_manager_quota=11) as manager:
        queue = manager.create_queue("q", journal=True, journal_quota_kb=10)
        queue.send(Message(body=bytes(9900), recoverable=True))
        queue.receive(0)
    texts = [finding.text for finding in findings(data, "quotas")]
    assert len(texts) == 2
    assert texts[0].startswith("queue manager ALPHA uses")
    assert texts[1].startswith(r"ALPHA\private$\q;journal uses")


def test_dead_letters_and_waiting_messages_are_found(run: Run, orders: str, data: Path) -> None:
    run("send", orders, "x", "--ttbr", "0", "--dead-letter")
    run("send", r"DIRECT=OS:other\private$\far", "x")
    assert verdict(data, "dead letters") == ("WARN", "1 message could not be delivered")
    assert verdict(data, "outgoing") == ("OK", "1 message for other computers")


def test_a_locked_outgoing_queue_is_found(data: Path) -> None:
    with QueueManager(data, "alpha", hardened_security=True) as manager:
        manager.open(r"DIRECT=OS:other\private$\far").send(Message(body=b"x", recoverable=True))
    assert verdict(data, "outgoing")[0] == "WARN"


def test_accounts_without_an_administrator_are_found(run: Run, orders: str, data: Path) -> None:
    run("user", "add", "a", "--password-stdin", stdin="a long word\n")
    assert verdict(data, "accounts")[0] == "WARN"
    run("user", "set", "a", "--administrator")
    assert verdict(data, "accounts") == ("OK", "1 user, 1 administrator among them")


def test_an_expired_certificate_is_found(run: Run, orders: str, data: Path) -> None:
    sid = Sid.parse("S-1-5-21-1-2-3-1000").pack()
    store = Store.open(data)
    with store.lock:
        directory = EmbeddedDirectory(store.table("directory"))
        directory.add_user("alice", sid)
        user = User(security_identifier=sid)
        handle = directory.read_begin("User", None)[1]
        assert handle is not None
        found = directory.read_next(handle)[1]
        assert isinstance(found, User)
        user = found
        add_certificate(user, generate_certificate("alice", dt.datetime(2010, 1, 1, tzinfo=dt.UTC)).certificate)
        directory.write(user)
    store.close()
    state, text = verdict(data, "certificates")
    assert (state, "expired 2017-12-30" in text) == ("WARN", True)


def test_settings_are_checked_too(run: Run, orders: str, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text("bnd = 1")
    assert "unknown setting bnd" in run("doctor", "--config", config, code=1).out
    config.write_text("name = 'alpha'")
    assert "can be used" in run("doctor", "--config", config).out


def test_the_settings_say_where_the_data_is(run: Run, orders: str, data: Path, tmp_path: Path) -> None:
    config = tmp_path / "lanner.toml"
    config.write_text(f'data = "{tmp_path / "none"}"\n')
    assert f"{tmp_path / 'none'} does not exist" in run("doctor", "--config", config, code=1).out
    assert f"{data} can be read" in run("doctor", "--config", config, "--data", data).out
