"""`lanner certificate list|add|remove`: the certificates by which signatures of users are known."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest

from lanner.security.certificates import generate_certificate
from tests.cli.conftest import Run, Served


@pytest.mark.parametrize("is_served", [False, True])
def test_certificates_are_added_listed_and_removed(
    run: Run, serve: Callable[..., Served], tmp_path: Path, *, is_served: bool
) -> None:
    run("queue", "create", "orders", "--name", "alpha")
    run("user", "add", "alice", "--password-stdin", stdin="a long word\n")
    if is_served:
        serve("--json").ready()
    run("certificate", "list", code=3)
    files = {}
    for name in ("first", "second"):
        files[name] = tmp_path / f"{name}.der"
        files[name].write_bytes(generate_certificate(name, dt.datetime.now(dt.UTC)).certificate)
        added = run("certificate", "add", "alice", files[name], "--json").json
        assert (added["name"], added["subject"]) == ("alice", f"CN={name}")
    # Once more: it is there already.
    run("certificate", "add", "Alice", files["first"])
    listed = run("certificate", "list", "--json").lines
    assert sorted((one["user"], one["subject"]) for one in listed) == [
        ("alice", "CN=first"),
        ("alice", "CN=second"),
    ]
    assert "CN=second" in run("certificate", "list").out
    wanted = next(one["sha256"] for one in listed if one["subject"] == "CN=first")
    assert "would remove" in run("certificate", "remove", wanted[:16], "--dry-run").out
    assert run("certificate", "remove", wanted[:16], "--yes", "--json").json["sha256"] == wanted
    assert [one["subject"] for one in run("certificate", "list", "--json").lines] == ["CN=second"]
    assert "no certificate has the fingerprint" in run("certificate", "remove", wanted, "--yes", code=1).err
    assert "there is no user nobody" in run("certificate", "add", "nobody", files["first"], code=1).err


def test_a_certificate_that_the_queue_manager_made_for_a_user_is_listed(run: Run) -> None:
    run("queue", "create", "orders", "--name", "alpha")
    run("send", "orders", "signed", "--authenticate")
    (one,) = run("certificate", "list", "--json").lines
    assert one["sid"].startswith("S-1-")
    assert one["subject"] in run("certificate", "list").out
