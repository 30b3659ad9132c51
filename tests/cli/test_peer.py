"""`lanner peer`: which queue manager is trusted at which address.

The tests run with and without a running queue manager.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Served, free_address
from tests.cli.test_outgoing import settings, wait_for

GUID = "1c7e3a52-70f5-4f0c-9c2f-3f0f8f1f6a01"


@pytest.mark.usefixtures("orders")
def test_without_a_queue_manager_the_directory_itself_is_changed(run: Run) -> None:
    assert "no queue manager has connected yet" in run("peer", "list", code=3).err
    assert run("peer", "trust", GUID, "192.0.2.8").out == f"{GUID} is accepted from 192.0.2.8\n"
    assert "192.0.2.9" in run("peer", "trust", GUID[:8], "192.0.2.9", "--json").json["addresses"]
    (listed,) = run("peer", "list", "--json").json
    assert listed["addresses"] == {"192.0.2.8": "trusted", "192.0.2.9": "trusted"}
    assert "192.0.2.8 (trusted), 192.0.2.9 (trusted)" in run("peer", "list").out
    assert f"{uuid.UUID(int=5)} was never seen" in run("peer", "trust", uuid.UUID(int=5), code=1).err
    assert "is no identifier" in run("peer", "trust", "zzz", "192.0.2.8", code=1).err
    other = f"{GUID[:-1]}2"
    run("peer", "trust", other, "192.0.2.8")
    assert "give more of it" in run("peer", "forget", GUID[:8], code=2).err
    assert run("peer", "forget", GUID).out == f"{GUID} is forgotten\n"
    assert run("peer", "forget", other, "--json").json == {"guid": other}
    assert "is bound to no address" in run("peer", "forget", GUID, code=1).err


def test_a_conflict_is_shown_and_ended(
    serve: Callable[..., Served], run: Run, orders: str, data: Path, tmp_path: Path
) -> None:
    """BETA moves to another address.

    Its messages wait until the operator of ALPHA has confirmed the new address.
    """
    alpha, old, new = free_address(), free_address(), free_address()
    other = tmp_path / "other"
    run("queue", "create", "x", "--name", "beta", "--data", other)
    name = rf"DIRECT=TCP:{alpha}\private$\{orders}"
    serve("--config", settings(tmp_path, "alpha"), "--bind", alpha, "--json").ready()
    first = serve("--data", other, "--config", settings(tmp_path, "beta"), "--bind", old, "--json")
    first.ready()
    run("send", name, "one", "--data", other)
    wait_for(lambda: run("peer", "list", "--json").json, lambda found: len(found) == 1)
    guid = run("status", "--json", "--data", other).json["identifier"]
    first.process.terminate()
    first.process.wait()
    serve("--data", other, "--config", settings(tmp_path, "beta"), "--bind", new, "--json").ready()
    run("send", name, "two", "--data", other)
    wait_for(lambda: run("status", "--json").json["peer_conflicts"], lambda count: count == 1)
    assert "identifier claimed from several addresses" in run("status").out
    found = run("doctor").out
    assert f"queue manager {guid} is bound to {old}; {new} claimed to be it" in found
    assert f"sessions refused; the last peer is {new}" in found
    text = run("peer", "list").out
    assert f"{new} (" in text
    assert "lanner peer trust GUID ADDRESS" in text
    (row,) = run("outgoing", "list", "--json", "--data", other).json
    assert "refuses the connection" in row["problem"]
    run("peer", "trust", guid, new)
    wait_for(lambda: run("outgoing", "list", "--json", "--data", other).json[0]["messages"], lambda count: count == 0)
    assert run("status", "--json").json["peer_conflicts"] == 0
    (peer,) = run("peer", "list", "--json").json
    assert (peer["addresses"], peer["connected"]) == ({new: "trusted"}, [new])
