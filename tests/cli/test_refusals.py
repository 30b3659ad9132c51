"""Messages that another queue manager rejects.

They are visible in `lanner status`, `lanner doctor`, dead letters, metrics and the log.
"""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run, Served, free_address
from tests.cli.test_outgoing import settings, wait_for

QUEUES = ("nowhere", "full", "signed", "ledger")
CLASSES = ("nack_bad_dest_queue", "nack_queue_exceed_quota", "nack_bad_signature", "nack_not_transactional_message")


def labels(letters: list[Any]) -> list[str]:
    return sorted(letter["label"] for letter in letters)


def test_refused_messages_are_visible_on_both_sides(
    serve: Callable[..., Served], run: Run, orders: str, data: Path, tmp_path: Path
) -> None:
    """Of four messages to each queue, two are sent with --dead-letter.

    Each of them can be found somewhere afterwards.
    """
    alpha, beta = free_address(), free_address()
    other = tmp_path / "other"
    run("queue", "create", "full", "--quota-kb", "0", "--name", "beta", "--data", other)
    run("queue", "create", "signed", "--authenticate", "--data", other)
    run("queue", "create", "ledger", "--transactional", "--data", other)
    run("queue", "create", "plain", "--data", other)
    config = settings(tmp_path, "beta")
    config.write_text(f'[metrics]\nbind = "127.0.0.1:0"\n{config.read_text()}')
    theirs = serve("--data", other, "--config", config, "--bind", beta, "--json")
    metrics = theirs.ready()["listeners"]["metrics"]
    ours = serve("--config", settings(tmp_path, "alpha"), "--bind", alpha, "--json")
    ours.ready()
    assert run("status", "--json").json["refused"] == []
    assert "no message from or for other computers was refused" in run("doctor").out

    def send(queue: str, *options: str) -> None:
        name = rf"DIRECT=TCP:{beta}\private$\{queue}"
        for label in ("one", "two"):
            run("send", name, "x", "--label", f"{queue} {label}", *options)
            run("send", name, "x", "--label", f"{queue} {label}, kept", "--dead-letter", *options)

    for queue in QUEUES:
        send(queue)
    send("plain", "--transaction")

    def refused(where: Path) -> dict[tuple[str, str, str], int]:
        rows = run("status", "--json", "--data", where).json["refused"]
        return {(row["side"], row["queue"], row["class"]): row["messages"] for row in rows}

    here = {("here", rf"BETA\private$\{queue}", name): 4 for queue, name in zip(QUEUES, CLASSES, strict=True)}
    here["here", r"BETA\private$\plain", "nack_not_transactional_queue"] = 4
    wait_for(lambda: refused(other), lambda rows: rows == here)
    # Only of transactional messages is the sender told, who asked for no acknowledgments.
    there = {("peer", rf"DIRECT=TCP:{beta}\private$\plain", "nack_not_transactional_queue"): 4}
    wait_for(lambda: refused(data), lambda rows: rows == there)

    # MS-MQQB 3.1.5.8.8 and 3.1.5.7: where the dead letters are.
    assert labels(run("deadletter", "list", "--json", "--data", other).lines) == ["full one, kept", "full two, kept"]
    letters = run("deadletter", "list", "--json").lines
    assert labels(letters) == ["plain one, kept", "plain two, kept"]
    assert {letter["class"] for letter in letters} == {"nack_not_transactional_queue"}

    text = run("status", "--data", other).out
    assert "refused          20 messages from other computers, 0 messages by other computers" in text
    titles = ["REFUSED", "BY", "QUEUE", "CLASS", "MESSAGES", "LAST", "PEER"]
    assert titles in [line.split() for line in text.splitlines()]
    (line,) = (line for line in text.splitlines() if r"BETA\private$\full" in line)
    assert line.split()[:4] == ["us", r"BETA\private$\full", "nack_queue_exceed_quota", "4"]
    assert line.split()[-1] == alpha
    assert "0 messages from other computers, 4 messages by other computers" in run("status").out
    findings = [one for one in run("doctor", "--json", "--data", other, code=1).json if one["check"] == "refusals"]
    assert {one["verdict"] for one in findings} == {"WARN"}
    text = rf"4 messages for BETA\private$\full refused here: nack_queue_exceed_quota, the last peer is {alpha}"
    (finding,) = (one for one in findings if one["text"] == text)
    assert finding["advice"] == "receive or purge messages of the queue, or raise its quota"

    with urllib.request.urlopen(metrics, timeout=30) as answer:
        samples = answer.read().decode().splitlines()
    full = r'queue="beta\\private$\\full"'
    assert f'lanner_messages_refused_total{{class="nack_queue_exceed_quota",{full},side="here"}} 4.0' in samples
    assert 'lanner_messages_dropped_total{reason="duplicate"} 0.0' in samples

    code, log = theirs.end(signal.SIGTERM)
    assert code == 0
    lines = [line for line in log.splitlines() if "lanner.transfer.refusals" in line]
    # One line for the first message of each queue, one for the others when the process ends.
    assert len(lines) == 10
    assert all(f"from {alpha} for BETA\\private$\\" in line and " WARNING " in line for line in lines)
    assert ours.end(signal.SIGTERM)[0] == 0
