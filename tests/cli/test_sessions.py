"""`lanner sessions`."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import lanner
from tests.cli.conftest import Run, Served


def test_connections_are_listed_and_ended(run: Run, orders: str, serve: Callable[..., Served], data: Path) -> None:
    del orders
    assert "nobody is connected" in run("sessions", code=3).err
    served = serve("--json")
    served.ready()
    with lanner.connect(data=data) as qm:
        first, own = run("sessions", "--json").json
        assert first["number"] < own["number"]
        assert first["address"].startswith("uid ")
        assert "NUMBER  KIND" in run("sessions").out
        assert "is ended" in run("sessions", "--close", first["number"], "--yes").out
        # A call that finds the connection ended says so; the next one connects again.
        with contextlib.suppress(lanner.errors.RemoteMachineNotAvailable):
            qm.open("orders").count()
        assert qm.open("orders").count() == 0
        assert first["number"] not in [one["number"] for one in qm.sessions()]
    assert "no session client 4711" in run("sessions", "--close", "4711", "--yes", code=1).err
    assert "one of client" in run("sessions", "--close", "1", "--kind", "stranger", code=2).err
    assert "close session" in (data / "audit.log").read_text()
    assert served.end(signal.SIGTERM)[0] == 0
