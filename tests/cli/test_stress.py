"""`lanner bench`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import lanner
from tests.cli.conftest import Run, Served


def test_a_run_measures_and_leaves_nothing(run: Run, orders: str, data: Path) -> None:
    found = run("bench", "--duration", "0.5", "--batch", "10", "--json").json
    assert found["sent"] == found["received"] > 0
    assert found["sent"] % 10 == 0
    assert 0 < found["latency_ms_median"] <= found["latency_ms_p99"] <= found["latency_ms_max"]
    assert found["queue"].startswith("ALPHA\\private$\\lanner-bench-")
    with lanner.QueueManager(data) as manager:
        assert not [one.name for one in manager.queues() if "bench" in one.name]
    # Without receivers the run removes what it has sent, and nothing else.
    found = run("bench", orders, "--duration", "0.3", "--receivers", "0", "--json").json
    assert found["received"] == 0 < found["sent"]
    with lanner.QueueManager(data) as manager:
        assert manager.open("orders").count() == 0


def test_a_run_keeps_to_its_rate(run: Run, orders: str) -> None:
    found = run("bench", orders, "--duration", "2", "--rate", "50", "--senders", "2", "--json").json
    assert 50 <= found["sent"] <= 115
    assert found["received"] == found["sent"]


def test_a_run_goes_through_the_service_in_transactions(
    run: Run, orders: str, serve: Callable[..., Served], data: Path
) -> None:
    del orders
    served = serve("--json")
    served.ready()
    found = run(
        "bench", "--duration", "1", "--transaction", "--batch", "5", "--senders", "2", "--receivers", "2", "--json"
    ).json
    assert found["sent"] == found["received"] > 0
    text = run("bench", "--duration", "0.3", "--size", "20").out
    assert "sent per second" in text
    with lanner.connect(data=data) as qm:
        assert not [one.name for one in qm.queues() if "bench" in one.name]
    assert served.end(signal.SIGTERM)[0] == 0


def test_a_run_takes_no_messages_of_others(run: Run, orders: str) -> None:
    run("send", orders, "precious")
    assert "give an empty queue" in run("bench", orders, code=2).err
    run("receive", orders)
    assert "not transactional" in run("bench", orders, "--transaction", code=2).err
    assert "not for ever" in run("bench", "--duration", "forever", code=2).err
