"""`lanner queue access`, on a directory and through a service, as other users too."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import lanner
from lanner import errors
from lanner.services.ports import LOCAL_SOCKET
from tests.cli.conftest import Run, Served, free_address

NOBODY = 65534


def entries(run: Run, *where: object) -> list[tuple[str, str, str]]:
    """Return the entries of the queue orders."""
    document = run("queue", "access", "show", "orders", "--json", *where).json
    return [(one["account"], one["access"], ",".join(one["rights"])) for one in document["entries"]]


def test_a_list_is_made_shown_and_changed(run: Run) -> None:
    run("user", "add", "bob", "--password-stdin", stdin="a word of bob\n")
    run(
        "queue", "create", "orders", "--access", "bob:send,peek", "--access", "Everyone:send", "--access", "bob:receive"
    )
    assert entries(run) == [
        ("Administrators", "allow", "full"),
        ("bob", "allow", "receive,send"),
        ("Everyone", "allow", "send"),
    ]
    assert run("queue", "access", "deny", "orders", "bob", "send").out.endswith(": bob may not send\n")
    assert run("queue", "access", "grant", "orders", "Anonymous", "send", "peek").out.endswith(
        ": Anonymous may send, peek\n"
    )
    assert run("queue", "access", "revoke", "orders", "Everyone").out.endswith(
        ": the entries of Everyone are removed\n"
    )
    assert run("queue", "access", "revoke", "orders", "Anonymous", "peek").out.endswith(
        ": the entries of Anonymous have no peek\n"
    )
    assert run("queue", "access", "owner", "orders", "bob").out.endswith(": bob is the owner\n")
    shown = run("queue", "access", "show", "orders").out.splitlines()
    assert shown[0].startswith("owner: bob (S-1-5-21-")
    assert [line.split()[:3] for line in shown[1:]] == [
        ["ACCOUNT", "ACCESS", "RIGHTS"],
        ["bob", "deny", "send"],
        ["Administrators", "allow", "full"],
        ["bob", "allow", "receive"],
        ["Anonymous", "allow", "send"],
    ]
    document = run("queue", "access", "grant", "orders", "bob", "full", "--json").json
    assert document["owner"] == "bob"
    assert {"account": "bob", "access": "allow", "rights": ["full"], "sid": document["owner_sid"]} in document[
        "entries"
    ]


def test_sddl_goes_in_and_out(run: Run) -> None:
    run("queue", "create", "orders", "--access", "D:(A;;GA;;;BA)(A;;0x4;;;WD)")
    run("queue", "access", "set", "orders", "O:BA")
    text = run("queue", "access", "show", "orders", "--sddl").out.strip()
    assert text == "O:BAD:(A;;0xf003f;;;BA)(A;;0x4;;;WD)"
    run("queue", "access", "revoke", "orders", "Everyone")
    run("queue", "access", "set", "orders", text)
    assert run("queue", "access", "show", "orders", "--sddl").out.strip() == text
    run("queue", "access", "set", "orders", "D:NO_ACCESS_CONTROL")
    assert "no access list: everyone has all rights" in run("queue", "access", "show", "orders").out


@pytest.mark.parametrize("letter", ["D", "O"])
def test_an_account_may_be_called_like_a_part_of_sddl(run: Run, letter: str) -> None:
    run("user", "add", letter, "--password-stdin", stdin="a word of one letter\n")
    run("queue", "create", "orders", "--access", f"{letter}:send")
    assert (letter, "allow", "send") in entries(run)


def test_mistakes_say_what_to_do(run: Run) -> None:
    run("queue", "create", "orders")
    assert "`lanner user list`" in run("queue", "access", "grant", "orders", "zoe", "send", code=1).err
    assert "one of full, admin, receive" in run("queue", "access", "grant", "orders", "Everyone", "sing", code=1).err
    assert "Anonymous cannot own a queue" in run("queue", "access", "owner", "orders", "Anonymous", code=1).err
    assert "SDDL" in run("queue", "access", "set", "orders", "nonsense", code=1).err
    for wrong in ("bob", "bob:sing", "bob:", ":send"):
        assert "WHO:RIGHTS" in run("queue", "create", "other", "--access", wrong, code=2).err
    assert "WHO:RIGHTS" in run("queue", "create", "other", "--access", "D:(A;;GA;;;BA)", "--access", "O:BA", code=2).err
    assert "--sddl or --json" in run("queue", "access", "show", "orders", "--sddl", "--json", code=2).err
    run("queue", "access", "show", "other", code=1)


def test_a_user_changes_only_what_the_list_allows(run: Run, serve: Callable[..., Served], tmp_path: Path) -> None:
    """Through the service, as an administrator and as a user without rights."""
    address = free_address()
    passwords = {}
    for name, *options in (("alice", "--administrator"), ("bob",)):
        run("user", "add", name, "--password-stdin", *options, stdin=f"a word of {name}\n")
        passwords[name] = tmp_path / name
        passwords[name].write_text(f"a word of {name}\n")
    serve("--name", "ALPHA", "--bind", address, "--json").ready()
    run("queue", "create", "orders", "--access", "D:(A;;GA;;;BA)")

    def as_user(name: str, *arguments: object, code: int = 0) -> str:
        where = ("--host", address, "--user", name, "--password-file", passwords[name])
        ran = run("queue", "access", *arguments, *where, code=code)
        return ran.out + ran.err

    as_user("alice", "owner", "orders", "Administrators")
    assert "bob has no right GET_QUEUE_PERMISSIONS" in as_user("bob", "show", "orders", code=1)
    assert "bob has no right CHANGE_QUEUE_PERMISSIONS" in as_user("bob", "grant", "orders", "bob", "full", code=1)
    assert "bob has no right TAKE_QUEUE_OWNERSHIP" in as_user("bob", "owner", "orders", "bob", code=1)
    as_user("alice", "grant", "orders", "bob", "get-permissions,change-permissions")
    assert "use --force" in as_user("bob", "revoke", "orders", "bob", code=1)
    as_user("bob", "grant", "orders", "Everyone", "send")
    as_user("bob", "revoke", "orders", "bob", "--force")
    assert "bob has no right" in as_user("bob", "show", "orders", code=1)
    assert ("Everyone", "allow", "send") in entries(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_an_unprivileged_user_of_the_local_socket_has_the_rights_of_its_entries(
    run: Run, serve: Callable[..., Served], data: Path
) -> None:
    """The kernel says who asks.

    The operator opens the socket for other users; by default they cannot connect.
    """
    serve("--name", "ALPHA", "--json").ready()
    run("queue", "create", "orders", "--access", "D:(A;;GA;;;BA)")
    run("queue", "access", "owner", "orders", "Administrators")
    for path in (data, *list(data.parents)[:-2]):
        path.chmod(path.stat().st_mode | 0o011)
    (data / LOCAL_SOCKET).chmod(0o666)
    os.seteuid(NOBODY)
    try:
        with lanner.connect(data=data) as theirs:
            queue = theirs.open("orders")
            for refused in (
                queue.access,
                lambda: queue.grant("nobody", "full"),
                lambda: queue.set_owner("nobody"),
                lambda: queue.set_access("D:(A;;GA;;;WD)"),
                lambda: queue.set_access("O:S-1-22-1-65534"),
            ):
                with pytest.raises(errors.AccessDenied, match="nobody has no right"):
                    refused()
            os.seteuid(0)
            run("queue", "access", "grant", "orders", "nobody", "change-permissions")
            os.seteuid(NOBODY)
            queue.grant("nobody", "get-permissions", "send")
            assert queue.access().owner == "Administrators"
            queue.send("x")
            with pytest.raises(errors.IllegalOperation, match="use --force"):
                queue.revoke("nobody")
            with pytest.raises(errors.AccessDenied, match="TAKE_QUEUE_OWNERSHIP"):
                queue.set_owner("nobody")
    finally:
        os.seteuid(0)
