"""`lanner user`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lanner.security.certificates import generate_certificate
from lanner.security.users import UserFile
from tests.cli.conftest import Run


def test_a_user_is_added_with_the_password_of_standard_input(run: Run, data: Path) -> None:
    added = run("user", "add", "Alice", "--administrator", "--password-stdin", "--json", stdin="a sec ret\n").json
    assert set(added) == {"name", "sid", "role", "administrator", "guest", "ntlm", "groups"}
    assert (added["name"], added["administrator"], added["groups"]) == ("Alice", True, ["Administrators"])
    file = data / "users.json"
    assert (file.stat().st_mode & 0o777) == 0o600
    assert "a sec ret" not in file.read_text()
    assert UserFile(file).verify("alice", "a sec ret") is not None
    assert UserFile(file).verify("alice", "a sec ret\n") is None


def test_users_are_listed_changed_and_removed(run: Run, data: Path) -> None:
    run("user", "add", "bob", "--password-stdin", "--no-ntlm", stdin="first word\n")
    assert run("user", "list").out.splitlines()[1].split()[1:4] == ["user", "no", "no"]
    run("user", "set", "BOB", "--administrator", "--password-stdin", stdin="second word\n")
    assert run("user", "list", "--json").json[0]["administrator"]
    assert UserFile(data / "users.json").verify("bob", "second word") is not None
    assert run("user", "remove", "bob", "--dry-run", "--json").json == {"name": "bob", "dry_run": True}
    assert len(run("user", "list", "--json").json) == 1
    run("user", "remove", "Bob")
    assert run("user", "list", "--json").json == []
    run("user", "list", code=3)


def test_what_cannot_be_done_to_users_is_reported(run: Run) -> None:
    assert "--password-stdin" in run("user", "add", "a", code=2).err
    assert "a password is needed" in run("user", "add", "a", "--password-stdin", stdin="\n", code=1).err
    run("user", "add", "a", "--password-stdin", stdin="a long word\n")
    assert "exists already" in run("user", "add", "A", "--password-stdin", stdin="a long word\n", code=1).err
    assert "there is no user b" in run("user", "remove", "b", code=1).err
    assert "nothing to change" in run("user", "set", "a", code=2).err
    assert "no user or group b" in run("user", "set", "b", "--administrator", code=1).err


def test_a_guest_needs_no_password(run: Run) -> None:
    assert run("user", "add", "guest", "--guest", "--json").json["guest"]


def test_a_certificate_is_registered_once(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "orders")
    run("user", "add", "alice", "--password-stdin", stdin="a long word\n")
    made = generate_certificate("alice", dt.datetime.now(dt.UTC))
    pem = x509.load_der_x509_certificate(made.certificate).public_bytes(Encoding.PEM)
    (tmp_path / "alice.pem").write_bytes(pem)
    registered = run("user", "certificate", "Alice", tmp_path / "alice.pem", "--json").json
    assert (registered["name"], registered["subject"]) == ("alice", "CN=alice")
    assert "1 registered" in run("doctor").out
    (tmp_path / "alice.der").write_bytes(made.certificate)
    assert "is registered" in run("user", "certificate", "alice", tmp_path / "alice.der").out
    assert "1 registered" in run("doctor").out
    (tmp_path / "no.der").write_bytes(b"no")
    assert "no X.509 certificate" in run("user", "certificate", "alice", tmp_path / "no.der", code=1).err
    assert "there is no user bob" in run("user", "certificate", "bob", tmp_path / "alice.der", code=1).err
