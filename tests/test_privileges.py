"""`lanner serve` started as root: it becomes the configured user or explains how to."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import lanner
from lanner.daemon.privileges import _hand_over
from lanner.daemon.settings import SettingsError
from lanner.host import early_ports
from tests.client.peers import free_address
from tests.contract.service import LANNER
from tests.unit_of_service import NO_CAPABILITIES, USER, Started, needs_root, shared_directory

_SETTINGS = "[com]\nenabled = false\n[flight]\nenabled = false\n"


@pytest.fixture
def shared() -> Iterator[Path]:
    yield from shared_directory()


def serve(shared: Path, *arguments: str | Path, data: Path | None = None) -> list[str | Path]:
    config = shared / "lanner.toml"
    config.write_text(_SETTINGS)
    config.chmod(0o644)
    return [LANNER, "serve", "--data", data or shared / "data", "--config", config, "--name", "ALPHA", *arguments]


@needs_root
def test_it_becomes_the_user_when_its_ports_are_bound(shared: Path) -> None:
    """All identifiers, groups and capabilities of all threads; the data directory is the user's."""
    data, address = shared / "data", free_address()
    # Root has made it, with an account.
    add: list[str | Path] = [LANNER, "user", "add", "bob", "--password-stdin", "--data", data]
    subprocess.run(add, input="correct horse battery\n", text=True, check=True, capture_output=True)
    started = Started(shared, serve(shared, "--bind", address, "--user", USER.pw_name))
    try:
        assert started.state() == "READY=1"
        assert started.threads("Uid") == {"\t".join([str(USER.pw_uid)] * 4)}
        assert started.threads("Gid") == {"\t".join([str(USER.pw_gid)] * 4)}
        assert started.threads("Groups") == {" ".join(map(str, sorted({*os.getgrouplist(USER.pw_name, USER.pw_gid)})))}
        for field in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
            assert started.threads(field) == {NO_CAPABILITIES}
        assert started.threads("NoNewPrivs") == {"1"}
        for port in (135, 1801):
            socket.create_connection((address, port)).close()
        with lanner.connect(data=data) as qm:
            port = int(qm.status()["listeners"]["rpc"].rpartition(":")[2])
        with lanner.connect(address, "bob", "correct horse battery", port=port) as qm:
            assert qm.name == "ALPHA"
        assert started.stop() == 0
        assert {path.stat().st_uid for path in (data, *data.iterdir())} == {USER.pw_uid}
        assert "runs as root" not in started.log.read_text()
    finally:
        started.close()


@needs_root
def test_root_is_told_how_to_run_it_as_a_user(shared: Path) -> None:
    started = Started(shared, serve(shared, "--bind", free_address()))
    try:
        assert started.state() == "READY=1"
        assert "runs as root and does not need to: `lanner serve --user NAME`" in started.log.read_text()
        assert started.stop() == 0
    finally:
        started.close()


@needs_root
@pytest.mark.parametrize(
    ("user", "owner", "complaint"),
    [
        ("no-such-user", 0, "there is no such user"),
        ("root", 0, "that is root"),
        (USER.pw_name, 64_321, f"belongs to uid 64321, not to {USER.pw_name}"),
    ],
)
def test_users_that_it_cannot_become(shared: Path, user: str, owner: int, complaint: str) -> None:
    data = shared / "data"
    data.mkdir(0o700)
    os.chown(data, owner, owner)
    command = serve(shared, "--bind", free_address(), "--user", user)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert complaint in ran.stderr


def refusal(directory: Path, data: Path | None = None) -> str:
    """Start it as the user on `directory`/data or another directory.

    Return the error that it prints instead of starting.
    """
    command = serve(directory, "--bind", free_address(), "--user", USER.pw_name, data=data)
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    return ran.stderr


@needs_root
@pytest.mark.parametrize("name", ["data.mdb", "passwd"])
def test_a_link_of_the_user_gives_it_no_directory_of_root(tmp_path: Path, name: str) -> None:
    target = tmp_path / "roots"
    target.mkdir(0o755)
    (target / name).touch()
    (tmp_path / "data").symlink_to(target)
    os.chown(tmp_path / "data", USER.pw_uid, USER.pw_gid, follow_symlinks=False)
    assert "is a symbolic link" in refusal(tmp_path)
    assert {path.stat().st_uid for path in (target, target / name)} == {0}


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "complaint"),
    [
        (0o755, USER.pw_uid, "above/data, on the way to it, is a symbolic link in a directory that others than root"),
        (0o1777, 0, "above/data, on the way to it, is a symbolic link in a directory that others than root"),
        (0o777, 0, "above, on the way to it, has mode 0777"),
        (0o755, 64_321, "above, on the way to it, belongs to uid 64321"),
    ],
)
def test_nobody_leads_root_to_another_directory(tmp_path: Path, mode: int, owner: int, complaint: str) -> None:
    """A user who can write above the directory can put a link there to any directory."""
    target = tmp_path / "roots"
    (target / "data").mkdir(parents=True)
    above = tmp_path / "above"
    above.mkdir()
    (above / "data").symlink_to(target)
    above.chmod(mode)
    os.chown(above, owner, owner)
    assert complaint in refusal(tmp_path, above / "data" / "data")
    assert (target / "data").stat().st_uid == 0
    assert "on the way to it" in refusal(tmp_path, above / "data" / "new" / "data")
    assert not (target / "new").exists()


@needs_root
def test_links_of_root_on_the_way_are_followed(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "lib").symlink_to("var")
    (tmp_path / "opt").symlink_to(tmp_path / "lib")
    made = tmp_path / "var" / "lanner" / "data"
    _hand_over(tmp_path / "opt" / "lanner" / "data", USER)
    assert (made.stat().st_uid, made.stat().st_mode & 0o777) == (USER.pw_uid, 0o700)
    assert made.parent.stat().st_uid == 0
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(SettingsError, match="Too many levels of symbolic links"):
        _hand_over(tmp_path / "round" / "data", USER)


@needs_root
@pytest.mark.parametrize(
    ("name", "mode", "complaint"), [("passwd", 0o755, "is no data directory"), ("data.mdb", 0o777, "run chmod go-w")]
)
def test_a_directory_of_root_that_is_none_of_data_is_not_taken_over(
    tmp_path: Path, name: str, mode: int, complaint: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    (data / name).touch()
    assert complaint in refusal(tmp_path)
    assert {path.stat().st_uid for path in (data, data / name)} == {0}


def test_a_port_that_was_bound_early_is_taken_once() -> None:
    address = free_address()
    early_ports.bind_early(address, 21_901)
    bound = early_ports.take_early(address, 21_901)
    assert bound is not None
    assert bound.getsockname() == (address, 21_901)
    assert early_ports.take_early(address, 21_901) is None
    bound.listen()
    # The error for a port that could not be bound goes to its listener.
    early_ports.bind_early(address, 21_901)
    with pytest.raises(OSError, match="in use"):
        early_ports.take_early(address, 21_901)
    bound.close()
    early_ports.bind_early(address, 21_901)
    early_ports.close_early()
    assert early_ports.take_early(address, 21_901) is None
