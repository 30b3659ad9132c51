"""Commands while `lanner serve` runs: on its data directory, and with `--host`."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lanner.cli.errors import UsageError
from lanner.cli.session import host_and_port
from lanner.security.certificates import generate_certificate
from lanner.security.identity import SYSTEM
from lanner.services.ports import LOCAL_SOCKET
from tests.cli.conftest import LANNER, Run, Served, free_address
from tests.cli.test_outgoing import wait_for
from tests.client.served import ServedManager


@pytest.fixture
def served(data: Path, run: Run) -> Iterator[ServedManager]:
    served = ServedManager(data, free_address())
    yield served
    served.close()


def test_messages_go_in_and_out(served: ServedManager, run: Run) -> None:
    assert (
        run("queue", "create", "orders", "--label", "Orders", "--journal").out == "ALPHA\\private$\\orders is ready\n"
    )
    assert "exists" in run("queue", "create", "orders", code=1).err
    run("queue", "create", "orders", "--if-missing")
    sent = run("send", "orders", "hi", "--label", "one", "--priority", "5", "--json").json["id"]
    assert run("send", "orders", "express", "--express").err == ""
    peeked = run("peek", "orders", "--all", "--json").lines
    assert [one["body"] for one in peeked] == ["hi", "express"]
    assert (peeked[0]["id"], peeked[0]["queue"], peeked[0]["priority"]) == (sent, "ALPHA\\private$\\orders", 5)
    number = peeked[1]["lookup_id"]
    assert run("peek", "orders", "--lookup-id", number, "--raw").raw == b"express"
    assert run("receive", "orders", "--lookup-id", number, "--json").json["body"] == "express"
    assert run("receive", "orders", "--json").json["id"] == sent
    assert "is empty" in run("receive", "orders", code=3).err
    assert "no message came in time" in run("receive", "orders", "--timeout", "0.01", code=3).err
    assert "is empty" in run("peek", "orders", code=3).err
    assert len(run("journal", "orders", "--json").lines) == 2
    assert run("journal", "orders", "--receive", "--json").json["id"] == sent
    assert "removed 1 message" in run("journal", "orders", "--purge").out


def test_a_command_for_a_running_service_loads_no_engine(served: ServedManager, data: Path, run: Run) -> None:
    """Neither that nor what signatures and MSMQ computers need: it would take twice as long."""
    run("queue", "create", "orders")
    code = (
        f"import sys\nfrom lanner.cli import main\nsys.argv = ['lanner', 'queue', 'list', '--data', {str(data)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\nprint(*sorted(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "orders" in ran.stdout
    loaded = set(ran.stderr.split())
    assert "lanner.client._sync.lanner_backend" in loaded
    heavy = {"lanner.engine.engine", "lanner.client._sync.embedded", "lanner.client._sync.msmq_backend"}
    heavy |= {"lanner.client._sync.distributed", "lanner.security.signing", "lanner.rpc.endpoint_mapper"}
    assert not loaded & (heavy | {"cryptography.x509", "pyarrow", "pyspark"})


def test_many_messages_leave_when_they_are_written(served: ServedManager, run: Run) -> None:
    run("queue", "create", "orders")
    for _ in range(3):
        run("send", "orders", "x")
    lines = run("receive", "orders", "--all", "--json").lines
    assert len(lines) == 3
    assert "is empty" in run("peek", "orders", code=3).err


def test_transactional_queues_need_no_word(served: ServedManager, run: Run) -> None:
    run("queue", "create", "tx", "--transactional")
    assert run("send", "tx", "x", "--json").json["transactional"] is True
    assert run("receive", "tx", "--json").json["transactional"] is True


def test_queues_are_shown_changed_purged_and_deleted(served: ServedManager, run: Run) -> None:
    run("queue", "create", "orders", "--quota-kb", "10", "--name", "alpha")
    assert "--name beta is for a new one" in run("queue", "create", "x", "--name", "beta", code=2).err
    run("queue", "set", "orders", "--label", "New", "--quota-kb", "none", "--journal")
    shown = run("queue", "show", "orders", "--json").json
    assert (shown["label"], shown["quota_kb"], shown["journaling"], shown["kind"]) == ("New", None, True, "private")
    run("send", "orders", "a")
    run("send", "orders", "b")
    number = run("peek", "orders", "--json").json["lookup_id"]
    assert "moved 1 message" in run("move", "orders", "later", "--lookup-id", number).out
    listed = {one["name"]: one for one in run("queue", "list", "--all", "--json").json}
    assert listed["ALPHA\\private$\\orders"]["messages"] == 1
    assert listed["ALPHA\\private$\\orders;later"]["messages"] == 1
    assert listed["ALPHA\\private$\\orders;later"]["kind"] == "subqueue"
    assert listed["ALPHA\\private$\\orders;journal"]["kind"] == "journal"
    assert listed["ALPHA\\system$;DEADXACT"]["kind"] == "system"
    assert "moved 1 message" in run("move", "orders;later", "--all").out
    assert "would remove 2 messages" in run("queue", "purge", "orders", "--dry-run").out
    run("queue", "create", "copies")
    assert "copied 2 messages" in run("copy", "orders", "copies").out
    assert "cannot be copied to itself" in run("copy", "orders", "orders", code=2).err
    assert "removed 2 messages" in run("queue", "purge", "orders").out
    assert "is empty" in run("queue", "purge", "orders", code=3).err
    assert "is deleted" in run("queue", "delete", "orders").out
    assert "QueueNotFound" in run("queue", "show", "orders", "--json", code=1).err
    assert "lanner queue list" in run("receive", "orders", code=1).err


def test_dead_letters_are_returned(served: ServedManager, run: Run) -> None:
    run("queue", "create", "orders")
    assert "no dead letters" in run("deadletter", "list", code=3).err
    run("send", "orders", "late", "--ttbr", "0", "--dead-letter")
    run("peek", "orders", code=3)
    (letter,) = run("deadletter", "list", "--json").lines
    assert letter["class"] == "nack_receive_timeout"
    assert run("deadletter", "peek", "--lookup-id", letter["lookup_id"], "--json").json["body"] == "late"
    assert "sent" in run("deadletter", "return", "--all", "--ttbr", "1h").out
    assert run("receive", "orders", "--json").json["body"] == "late"
    run("deadletter", "list", code=3)


def test_what_waits_for_other_computers_is_read_and_taken(served: ServedManager, run: Run) -> None:
    far = r"DIRECT=OS:beta\private$\far"
    run("send", far, "x")
    (listed,) = run("outgoing", "list", "--json").json
    assert (listed["name"], listed["messages"], listed["state"]) == (far, 1, "Inactive")
    assert run("outgoing", "pause", "far").out == f"{far} is paused, 1 message in it\n"
    assert run("outgoing", "show", "far", "--json").json["state"] == "OnHold"
    assert run("outgoing", "resume", "far", "--json").json["state"] == "Inactive"
    # There is no transfer in this one.
    assert f"{far}: transfer is not enabled, nothing is sent" in run("outgoing", "resend", "far", code=1).err
    assert {one["name"]: one["kind"] for one in run("queue", "list", "--json").json}[far] == "outgoing"
    assert run("peek", far, "--json").json["body"] == "x"
    assert run("receive", far, "--json").json["body"] == "x"
    assert run("status", "--json").json["name"] == "ALPHA"


def test_a_user_of_another_computer(served: ServedManager, run: Run, tmp_path: Path) -> None:
    """Everything goes by TCP and NTLM; the password is in a file."""
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    run("user", "add", "alice", "--administrator", "--password-stdin", stdin="correct horse\n")
    alice = ("--host", served.bind, "--user", "alice", "--password-file", secret)
    run("queue", "create", "hers", *alice)
    run("send", "hers", "hello", *alice)
    assert run("queue", "show", "hers", "--json", *alice).json["messages"] == 1
    assert run("status", "--json", *alice).json["name"] == "ALPHA"
    # An anonymous caller does not receive it.
    refused = run("receive", "hers", "--host", served.bind, code=1).err
    assert f"{served.bind} serves only callers that log on: give a user and a password (--user on" in refused
    assert run("receive", "hers", "--json", *alice).json["body"] == "hello"
    secret.write_text("wrong\n")
    error = json.loads(run("peek", "hers", "--json", *alice, code=1).err.splitlines()[-1])
    assert (error["kind"], error["status"]) == ("AccessDenied", "0xc00e0025")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--user", "alice"), "--user goes with --host"),
        (("--kerberos",), "--kerberos goes with --host"),
        (("--host", "127.0.0.1", "--kerberos", "--user", "alice"), "--kerberos goes without --user"),
        (("--host", "127.0.0.1", "--user", "alice"), "the password of alice: give it with --password-file"),
        (("--host", "127.0.0.1", "--password-file", "/dev/null"), "--password-file of whom? Give --user"),
    ],
)
def test_what_does_not_go_together_is_reported(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    assert complaint in run("peek", "orders", *arguments, code=2).err


def test_where_nobody_answers_is_reported(run: Run) -> None:
    assert "cannot be reached" in run("peek", "orders", "--host", free_address(), code=1).err


def test_the_certificate_of_a_user_goes_to_the_one_that_runs(served: ServedManager, run: Run, tmp_path: Path) -> None:
    run("user", "add", "alice", "--password-stdin", stdin="a long word\n")
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    (tmp_path / "alice.der").write_bytes(made.certificate)
    assert "is registered" in run("user", "certificate", "alice", tmp_path / "alice.der").out


def test_a_queue_manager_that_was_killed_leaves_a_socket_that_is_no_hindrance(
    run: Run, orders: str, data: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.path.relpath(data / LOCAL_SOCKET))
    run("send", orders, "x")
    assert run("receive", orders, "--json").json["body"] == "x"


def test_public_queues_are_made_shown_changed_and_deleted(served: ServedManager, run: Run) -> None:
    """MS-MQMP has private ones only."""
    kind = "55ee8f32-cce9-11cf-b108-0020afd61ce9"
    name = r".\ledger"
    made = run("queue", "create", name, "--transactional", "--type", kind, "--quota-kb", "77", "--json").json
    assert (made["name"], made["kind"], made["type"], made["quota_kb"]) == (r"ALPHA\ledger", "public", kind, 77)
    assert "exists" in run("queue", "create", name, code=1).err
    run("queue", "set", name, "--label", "Ledger", "--privacy", "none", "--authenticate")
    shown = run("queue", "show", name, "--json").json
    assert (shown["label"], shown["privacy_level"], shown["authentication"]) == ("Ledger", "none", True)
    assert shown["identifier"] == run("directory", "show", "--json").json["computers"]["ALPHA"]["queues"]["ledger"]
    assert shown["create_time"] == made["create_time"] != "1970-01-01T00:00:00+00:00"
    run("queue", "set", name, "--no-authenticate")
    # In a transaction of its own, as to a private one.
    run("send", name, "money")
    assert "with 1 message is deleted" in run("queue", "delete", name, "--yes").out
    assert "queues" not in run("directory", "show", "--json").json["computers"]["ALPHA"]
    assert "computer only" in run("queue", "create", r"BETA\ledger", code=1).err


@pytest.mark.parametrize("transactional", [False, True])
def test_a_message_is_traced(served: ServedManager, run: Run, *, transactional: bool) -> None:
    run("queue", "create", r".\reports")
    run("queue", "create", "orders", *(["--transactional"] if transactional else []))
    sent = run(
        "send", "orders", "watched", "--label", "one", "--trace", r".\reports", "--app-specific", "7", "--json"
    ).json
    assert sent["transactional"] == transactional
    message = run("receive", "orders", "--json").json
    assert (message["body"], message["label"], message["app_specific"], message["id"]) == (
        "watched",
        "one",
        7,
        sent["id"],
    )
    assert message["tracing_queue"] == run("queue", "show", r".\reports", "--json").json["identifier"]
    assert message["sender_id"] == SYSTEM.sid.pack().hex()


def test_a_public_queue_that_nobody_knows_is_reported_with_what_to_do(served: ServedManager, run: Run) -> None:
    complaint = run("send", "PUBLIC=5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11", "x", code=1).err
    assert "must be in the directory (`lanner directory show`)" in complaint


@pytest.mark.parametrize("command", ["receive", "peek"])
def test_ctrl_c_ends_a_wait_and_takes_nothing(served: ServedManager, run: Run, data: Path, command: str) -> None:
    run("queue", "create", "orders")
    (orders,) = (queue for queue in served.engine.local_queues() if queue.pathname.endswith("orders"))
    waiting = subprocess.Popen(
        [LANNER, command, "orders", "--timeout", "60", "--data", data],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: len(orders.waiting_reads), bool)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=30)
    assert (waiting.returncode, out, err) == (130, "", "")
    wait_for(lambda: len(orders.waiting_reads), lambda count: count == 0)
    run("send", "orders", "for the next")
    assert run("receive", "orders", "--json").json["body"] == "for the next"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beta", ("beta", None)),
        ("beta:2103", ("beta", 2103)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("::1", ("::1", None)),
        ("[::1]", ("::1", None)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_a_host_may_have_a_port(text: str, expected: tuple[str, int | None]) -> None:
    assert host_and_port(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "beta:", "beta:x", "beta:0", "beta:65536", "[::1", "[::1]2"])
def test_a_wrong_port_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="--host"):
        host_and_port(text)


def test_doctor_looks_into_the_store_of_a_running_service(
    run: Run, serve: Callable[..., Served], data: Path, tmp_path: Path
) -> None:
    """The same problems are found while the service runs as while it is stopped.

    This holds locally and from another computer.
    """
    run("queue", "create", "orders", "--quota-kb", "10", "--name", "alpha")
    run("queue", "create", "late")
    run("user", "add", "alice", "--administrator", "--password-stdin", stdin="correct horse\n")
    run("send", "orders", "x" * 4200)
    run("send", "late", "x", "--ttbr", "0", "--dead-letter")
    run("peek", "late", code=3)
    stopped = run("doctor", "--json").json
    ready = serve("--json").ready()
    live = run("doctor", "--json").json
    secret = tmp_path / "password"
    secret.write_text("correct horse\n")
    port = ready["listeners"]["rpc"].rpartition(":")[2]
    alice = ("--host", f"{ready['bind']}:{port}", "--user", "alice", "--password-file", secret)
    remote = run("doctor", "--json", *alice).json
    checks = {one["check"] for one in stopped}
    assert {"records", "transactions", "quotas", "dead letters", "outgoing", "certificates"} <= checks
    for found in (live, remote):
        assert checks - {"lock"} <= {one["check"] for one in found} >= {"refusals", "limits"}
        for check in ("quotas", "dead letters"):
            (expected,) = ((one["verdict"], one["text"]) for one in stopped if one["check"] == check)
            assert expected in [(one["verdict"], one["text"]) for one in found if one["check"] == check]
            assert expected[0] == "WARN"
    (letters,) = (one for one in remote if one["check"] == "dead letters")
    assert f"--host {alice[1]}" in letters["advice"]
    assert "leave out PEER" in run("doctor", "beta", *alice, code=2).err
