"""`lanner outgoing`, `lanner status` and `lanner trace`.

The tests run with and without a running queue manager.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lanner.client import Message, QueueManager
from lanner.client.runtimes import runtime_of
from lanner.model.directory_objects import ConnectionHistoryEntry, OutgoingQueue
from lanner.model.enums import ConnectionStatus
from lanner.model.live import OutgoingTransferInfo
from lanner.services.ports import LOCAL_SOCKET
from tests.cli.conftest import Run, Served, free_address

FAR = r"DIRECT=OS:beta\private$\far"
FURTHER = r"DIRECT=OS:beta\private$\further"


def wait_for(ask: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:  # noqa: ANN401 (JSON)
    """Wait for a change in another process."""
    deadline = time.monotonic() + 30
    while not wanted(answer := ask()):
        assert time.monotonic() < deadline, answer
        time.sleep(0.005)
    return answer


def settings(tmp_path: Path, name: str, *peers: tuple[str, str]) -> Path:
    path = tmp_path / f"{name}.toml"
    table = "\n".join(f'{peer} = "{address}"' for peer, address in peers)
    path.write_text(f"[transfer]\ntry_connect_interval = 0.01\n[peers]\n{table}\n")
    return path


# No queue manager runs
# ---------------------------------------------------------------------------------------------


def test_without_a_queue_manager_the_directory_itself_is_asked(run: Run, orders: str) -> None:
    assert "no outgoing queues" in run("outgoing", "list", code=3).err
    run("send", FAR, "x")
    (listed,) = run("outgoing", "list", "--json").json
    assert (listed["name"], listed["state"], listed["messages"]) == (FAR, "Inactive", 1)
    assert listed == run("outgoing", "show", "far", "--json").json
    text = run("outgoing", "list").out
    assert text.splitlines()[0].split() == ["NAME", "STATE", "MESSAGES", "SIZE", "NEXT", "HOPS", "PROBLEM"]
    assert f"{FAR}  inactive" in text
    assert run("outgoing", "pause", "far").out == f"{FAR} is paused, 1 message in it\n"
    assert "`lanner outgoing resume` resumes it" in run("outgoing", "show", "far").out
    assert "paused or locked" in run("doctor").out
    assert run("outgoing", "resume", "far", "--json").json["state"] == "Inactive"
    assert "`lanner serve` sends what waits" in run("outgoing", "resend", "far", code=1).err
    assert "no outgoing queue has 'x y'" in run("outgoing", "pause", "x y", code=1).err


def test_no_status_without_a_queue_manager(run: Run, orders: str, data: Path) -> None:
    assert f"no queue manager runs on {data}" in run("status", code=3).err


def test_no_data_directory_is_reported(run: Run, data: Path) -> None:
    assert "does not exist" in run("outgoing", "list", code=1).err
    assert not data.exists()
    run("status", code=3)


def test_the_socket_of_a_process_that_was_killed_is_no_queue_manager(run: Run, orders: str, data: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.path.relpath(data / LOCAL_SOCKET))
    run("send", FAR, "x")
    assert run("outgoing", "list", "--json").json[0]["messages"] == 1


def test_a_program_that_has_the_directory_is_named(run: Run, data: Path) -> None:
    with QueueManager(data):
        assert "is open in process" in run("outgoing", "list", code=1).err


def test_transactional_messages_and_attempts_are_shown_in_words(
    run: Run, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"sequence": "0x6000000000000001", "number": 3, "previous": 2}
    document = {
        "name": FAR, "state": "Disconnected", "messages": 2, "bytes": 2048, "next_hops": ["IP=192.0.2.7"],
        "problem": "connecting to 192.0.2.7: Connection refused", "retry_in": 3.4,
        "connection_history": [
            {"time": "2026-01-01T00:00:00+00:00", "status": "x", "text": "no TCP connection", "error": "0x8007274d",
             "error_text": "connection refused", "addresses": ["IP=192.0.2.7"]},
            {"time": "2026-01-01T00:00:05+00:00", "status": "x", "text": "connecting", "error": None,
             "error_text": None, "addresses": []},
            {"time": "2026-01-01T00:00:06+00:00", "status": "x", "text": "it failed", "error": "0x80004005",
             "error_text": None, "addresses": []},
        ],
        "sequence": {
            "first_non_ack": place, "last_non_ack": place | {"number": 4}, "no_ack_count": 2,
            "last_ack": place | {"number": 2}, "last_ack_time": "2026-01-01T00:00:00+00:00", "last_ack_count": 1,
            "next_seq": None, "no_read_count": 5,
            "resend_interval": 30, "resend_time": "2026-01-01T00:00:30+00:00", "resend_count": 1,
        },
    }  # fmt: skip
    monkeypatch.setattr(QueueManager, "outgoing", lambda _: [document])
    lines = run("outgoing", "show", "far").out.splitlines()
    shown = {key: value for key, _, value in (line.partition("  ") for line in lines)}
    assert shown["problem"].strip() == "connecting to 192.0.2.7: Connection refused; next attempt in 3 s"
    assert shown["transactional"].strip() == "2 messages sent and not acknowledged"
    assert "times" not in shown["acknowledged at"]
    assert shown["first of them"].strip() == "number 3 of sequence 0x6000000000000001"
    assert shown["last of them"].strip() == "number 4 of sequence 0x6000000000000001"
    assert shown["last acknowledged"].strip() == "number 2 of sequence 0x6000000000000001"
    assert shown["not received yet"].strip() == "5 messages"
    assert shown["sent again"].strip().startswith("1 time, every 30 s, next at ")
    assert "no TCP connection  connection refused (0x8007274d)" in lines[-3]
    assert lines[-2].endswith("connecting         -")
    assert lines[-1].endswith("it failed          0x80004005")
    sequence = document["sequence"]
    assert isinstance(sequence, dict)
    sequence["last_ack_count"] = 3
    assert ", 3 times" in run("outgoing", "show", "far").out
    # A sequence that begins: no acknowledgment came yet, whatever its time says.
    sequence["last_ack"] = None
    assert "acknowledged at" not in run("outgoing", "show", "far").out


def far_and_further(data: Path) -> QueueManager:
    manager = QueueManager(data, "alpha")
    for name in (FURTHER, FAR):
        manager.open(name).send(Message(body=b"x", recoverable=True))
    return manager


def outgoing(manager: QueueManager, name: str) -> OutgoingQueue:
    return next(
        queue for queue in runtime_of(manager).engine.outgoing_queues() if queue.destination_format_name == name
    )


def test_a_queue_is_found_by_its_name_or_a_part_that_only_it_has(run: Run, data: Path) -> None:
    far_and_further(data).close()
    assert [one["name"] for one in run("outgoing", "list", "--json").json] == [FAR, FURTHER]
    for name in (FURTHER, "further", "FURTHER", FURTHER.lower()):
        assert run("outgoing", "show", name, "--json").json["name"] == FURTHER
    # All of a name is no part of another.
    assert run("outgoing", "show", FAR.upper(), "--json").json["name"] == FAR
    assert (
        "2 outgoing queues have 'beta' in their names, give more of it" in run("outgoing", "show", "beta", code=1).err
    )
    assert "no outgoing queue has 'gamma' in its name" in run("outgoing", "show", "gamma", code=1).err


@pytest.mark.parametrize(
    ("state", "told"), [("Inactive", "is not paused, it is Inactive"), ("Locked", "security.hardened")]
)
def test_a_queue_that_is_not_paused_is_not_resumed(
    run: Run, orders: str, monkeypatch: pytest.MonkeyPatch, state: str, told: str
) -> None:
    monkeypatch.setattr(QueueManager, "outgoing", lambda _: [{"name": FAR, "state": state}])
    assert told in run("outgoing", "resume", "far", code=1).err


def test_the_history_and_the_sequence_are_reported_in_words(data: Path) -> None:
    with far_and_further(data) as manager:
        queue = outgoing(manager, FAR)
        queue.connection_history = [
            ConnectionHistoryEntry(
                ConnectionStatus.SOCKET_CONNECT_FAILURE, 1_000_000_000, 0x8007_274D, ["IP=192.0.2.7"]
            ),
            ConnectionHistoryEntry(ConnectionStatus.CONNECTION_REFUSED, 1_000_000_005, 0x8000_4005),
        ]
        sequence = 0x6000_0000_0000_0001
        queue.outgoing_transfer_info = OutgoingTransferInfo(
            queue,
            eod_first_non_ack=(sequence, 3, 2),
            eod_last_non_ack=(sequence, 9, 8),
            eod_no_ack_count=7,
            eod_resend_interval=30,
            eod_resend_time=1_000_000_020,
            eod_resend_count=2,
        )
        told, further = manager.outgoing()
    assert told["connection_history"] == [
        {
            "time": "2001-09-09T01:46:40+00:00",
            "status": "socket_connect_failure",
            "text": "no TCP connection",
            "error": "0x8007274d",
            "error_text": "connection refused",
            "addresses": ["192.0.2.7"],
        },
        {
            "time": "2001-09-09T01:46:45+00:00",
            "status": "connection_refused",
            "text": "the peer refused the session",
            "error": "0x80004005",
            "error_text": None,
            "addresses": [],
        },
    ]
    # No problem is reported, but the history shows it.
    assert "the peer refused the session, 0x80004005" in told["problem"]
    assert told["sequence"] == {
        "first_non_ack": {"sequence": "0x6000000000000001", "number": 3, "previous": 2},
        "last_non_ack": {"sequence": "0x6000000000000001", "number": 9, "previous": 8},
        "no_ack_count": 7,
        "last_ack": None,
        "last_ack_time": None,
        "last_ack_count": 0,
        "next_seq": None,
        "no_read_count": 0,
        "resend_interval": 30,
        "resend_time": "2001-09-09T01:47:00+00:00",
        "resend_count": 2,
    }
    assert (further["sequence"], further["problem"], further["connection_history"]) == (None, None, [])


# A queue manager runs
# ----------------------------------------------------------------------------------------------


def test_why_nothing_leaves_is_reported_while_it_is_tried(
    serve: Callable[..., Served], run: Run, orders: str, data: Path, tmp_path: Path
) -> None:
    peer = free_address()
    run("send", FAR, "x")
    served = serve("--config", settings(tmp_path, "alpha", ("beta", peer)), "--json")
    served.ready()
    shown = wait_for(
        lambda: run("outgoing", "show", "far", "--json").json, lambda document: document["connection_history"]
    )
    assert (shown["messages"], shown["next_hops"]) == (1, [f"IP={peer}"])
    entry = shown["connection_history"][0]
    assert (entry["status"], entry["error"]) == ("socket_connect_failure", "0x8007274d")
    assert (entry["error_text"], entry["addresses"]) == ("connection refused", [peer])
    shown = wait_for(lambda: run("outgoing", "show", "far", "--json").json, lambda document: document["problem"])
    assert f"connecting to {peer}" in shown["problem"]
    assert "connection refused" in shown["problem"].lower()
    findings = {one["check"]: one for one in run("doctor", "beta", "--json", code=1).json}
    assert [findings[check]["verdict"] for check in ("local", "name", "tcp", "handshake")] == [
        "OK", "OK", "FAIL", "SKIP",
    ]  # fmt: skip
    assert "peers table" in findings["name"]["text"]
    assert "no program listens there" in findings["tcp"]["text"]
    # While it is paused there are no attempts, and nothing is to be resent.
    run("outgoing", "pause", "far")
    assert "`lanner outgoing resume` first" in run("outgoing", "resend", "far", code=1).err
    assert served.end(signal.SIGTERM)[0] == 0
    assert run("outgoing", "show", "far", "--json").json["state"] == "OnHold"


def test_a_message_goes_when_its_queue_is_resumed_and_leaves_a_trail(
    serve: Callable[..., Served], run: Run, orders: str, data: Path, tmp_path: Path
) -> None:
    alpha, beta = free_address(), free_address()
    other = tmp_path / "other"
    run("queue", "create", "far", "--name", "beta", "--data", other)
    run("queue", "create", r".\reports")
    traced = run("send", FAR, "hello", "--trace", r".\reports", "--json").json["id"]
    run("outgoing", "pause", "far")
    theirs = serve("--data", other, "--config", settings(tmp_path, "beta"), "--bind", beta, "--json")
    theirs.ready()
    ours = serve("--config", settings(tmp_path, "alpha", ("beta", beta)), "--bind", alpha, "--json")
    ours.ready()
    assert run("outgoing", "show", "far", "--json").json["messages"] == 1
    assert "no report" in run("trace", r".\reports", code=3).err
    assert run("outgoing", "resume", "far").out == f"{FAR} goes on, 1 message in it\n"
    wait_for(lambda: run("outgoing", "show", "far", "--json").json, lambda document: document["messages"] == 0)
    shown = run("outgoing", "show", "far")
    assert "state      connected" in shown.out

    status = run("status", "--json").json
    assert (status["name"], status["bind"], status["process"]) == ("ALPHA", alpha, ours.process.pid)
    (session,) = status["sessions"]
    assert (session["address"], session["state"], session["initiator"], session["queues"]) == (
        beta,
        "OPEN",
        True,
        [FAR],
    )
    text = run("status", "--data", other).out
    assert "OPENED BY" in text
    assert alpha in text
    assert "them" in text
    assert run("outgoing", "resend", "far").out == f"{FAR} is tried again now, 0 messages in it\n"

    findings = {one["check"]: one for one in run("doctor", "beta", "--json").json}
    assert {one["verdict"] for one in findings.values()} == {"OK", "SKIP"}
    assert f"queue manager {session['queue_manager']}, window 64" in findings["handshake"]["text"]
    assert findings["sessions"]["text"] == f"1 session now: {beta} OPEN"
    assert findings["outgoing"]["text"] == "0 messages for beta in 1 outgoing queue"

    report = wait_for(lambda: run("trace", r".\reports", "--json").lines[0], bool)
    assert (report["message"], report["event"], report["next_hop"]) == (traced, "sent", beta)
    assert report["by"] == status["identifier"]
    assert beta in run("trace", r".\reports", "--message", traced).out
    assert "about x" in run("trace", r".\reports", "--message", "x", code=3).err

    assert ours.end(signal.SIGTERM)[0] == 0
    assert theirs.end(signal.SIGTERM)[0] == 0
    received = run("receive", "far", "--data", other, "--json").json
    assert (received["id"], received["body"]) == (traced, "hello")


def test_reports_go_to_a_public_queue(run: Run, orders: str) -> None:
    assert (
        "reports go to a public queue, this one is private" in run("send", orders, "x", "--trace", orders, code=2).err
    )
    run("send", orders, "x", "--trace", "none", code=1)
    guid = "5a2f8a4e-6d0c-4b7e-9a53-0d9f2c1b7e11"
    run("send", orders, "x", "--trace", f"PUBLIC={guid}")
    assert run("receive", orders, "--json").json["tracing_queue"] == guid
