"""A data directory that others can write to is not used.

What root creates in a data directory belongs to the directory's owner.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from lanner.store import Store
from lanner.store.data_directory import UnsafeDirectory, check_data_directory, give_to_owner, open_own
from tests.cli.conftest import LANNER

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
# No user of this machine.
OWNER = 64_321


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    Store.open(made).close()
    return made


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702, 0o1777])
def test_a_directory_that_others_can_write_to_is_refused(data: Path, mode: int) -> None:
    data.chmod(mode)
    with pytest.raises(UnsafeDirectory, match=rf"has mode {mode:04o}, .*: run chmod go-w {data}$"):
        Store.open(data)
    data.chmod(0o755)
    Store.open(data).close()


@pytest.mark.parametrize("name", ["data.mdb", "journal.0", "lock", "users.json"])
def test_files_that_others_can_write_to_and_links_are_refused(data: Path, tmp_path: Path, name: str) -> None:
    path = data / name
    path.touch(0o600)
    path.chmod(0o660)
    with pytest.raises(UnsafeDirectory, match=rf"{path} has mode 0660, .*: run chmod go-w {path}"):
        Store.open(data)
    path.chmod(0o600)
    kept = tmp_path / "elsewhere"
    path.rename(kept)
    path.symlink_to(kept)
    with pytest.raises(UnsafeDirectory, match=f"{path} is a symbolic link"):
        Store.open(data)


def test_the_directory_itself_may_be_reached_by_a_link(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data)
    Store.open(link).close()


def test_a_socket_that_others_can_connect_to_is_none_that_they_can_change(data: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(data / "lanner.sock"))
        (data / "lanner.sock").chmod(0o666)
        check_data_directory(data)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that any user can reach, as pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def as_owner(code: str, *arguments: object) -> str:
    """Run Python as the owner, and return what it writes."""
    command = ["setpriv", f"--reuid={OWNER}", f"--regid={OWNER}", "--clear-groups", sys.executable, "-c", code]
    ran = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False)
    if "Permission denied" in ran.stderr and "UnsafeDirectory" not in ran.stderr:
        pytest.skip("another user cannot run this Python")
    return ran.stdout + ran.stderr


_OPEN = "import sys; from lanner.store import Store; Store.open(sys.argv[1]).close(); print('opened')"


@needs_root
def test_what_root_makes_belongs_to_the_owner_of_the_directory(shared: Path) -> None:
    """Accounts, queues, keys and certificates: the service can read all of them."""
    data = shared / "data"
    data.mkdir(0o700)
    os.chown(data, OWNER, OWNER)
    place = ("--data", data)
    add: list[str | Path] = [LANNER, "user", "add", "bob", "--password-stdin", *place]
    subprocess.run(add, input="correct horse battery\n", text=True, check=True, capture_output=True)
    subprocess.run([LANNER, "queue", "create", "orders", *place], check=True, capture_output=True)
    subprocess.run([LANNER, "send", "orders", "x", "--authenticate", *place], check=True, capture_output=True)
    found = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in data.iterdir()}
    assert {"data.mdb", "lock.mdb", "journal.0", "journal.1", "lock", "users.json", "keys.json"} <= set(found)
    assert set(found.values()) == {(OWNER, OWNER)}
    assert "opened" in as_owner(_OPEN, data)


@needs_root
def test_files_of_another_user_are_refused_and_root_mends_them(shared: Path) -> None:
    data = shared / "data"
    data.mkdir(0o700)
    os.chown(data, OWNER, OWNER)
    (data / "users.json").touch(0o600)
    told = as_owner(_OPEN, data)
    assert "users.json belongs to root" in told
    assert f"run chown {OWNER} {data / 'users.json'} as root" in told
    check_data_directory(data)
    assert (data / "users.json").stat().st_uid == OWNER
    assert "opened" in as_owner(_OPEN, data)


@needs_root
def test_a_directory_of_another_user_is_refused(shared: Path) -> None:
    data = shared / "data"
    Store.open(data).close()
    data.chmod(0o755)
    assert "belongs to root, and this process runs as" in as_owner(_OPEN, data)


@needs_root
def test_root_gives_away_no_file_that_has_another_name(shared: Path) -> None:
    """It could be any file of the system that the owner has linked into its directory."""
    precious = shared / "precious"
    precious.touch(0o600)
    data = shared / "data"
    data.mkdir(0o700)
    os.chown(data, OWNER, OWNER)
    os.link(precious, data / "users.json")
    with pytest.raises(UnsafeDirectory, match=r"users\.json belongs to root, .* has another name elsewhere"):
        check_data_directory(data)
    with pytest.raises(UnsafeDirectory, match=r"users\.json belongs to root"):
        open_own(data / "users.json", os.O_RDWR | os.O_CREAT)
    assert precious.stat().st_uid == 0


class Exchange:
    """Exchange two names at chosen calls of the checked code, as an attacker's process could."""

    def __init__(self, one: Path, two: Path, *at: int) -> None:
        self._names = one, two
        self._at = at
        self.calls = 0

    def __call__(self, _frame: FrameType, event: str, _argument: object) -> None:
        if event == "c_call":
            if self.calls in self._at:
                self._exchange()
            self.calls += 1

    def _exchange(self) -> None:
        one, two = self._names
        kept = one.with_name("kept")
        one.rename(kept)
        two.rename(one)
        kept.rename(two)


@needs_root
@pytest.mark.parametrize("work", [check_data_directory, lambda data: give_to_owner(data / "secret")])
def test_root_gives_away_no_file_of_its_own_when_the_directory_is_exchanged_for_a_link(
    tmp_path: Path, work: Callable[[Path], None]
) -> None:
    """The owner of the parent directory exchanges names between any two steps of what root does."""
    roots = tmp_path / "roots"
    roots.mkdir()
    secret = roots / "secret"
    secret.touch(0o600)
    calls, first = 1, 0
    while first < calls:
        second = first
        while second < calls:
            home = tmp_path / "home"
            data, link = home / "data", home / "link"
            data.mkdir(parents=True, mode=0o700)
            os.chown(data, OWNER, OWNER)
            (data / "secret").touch(0o600)
            link.symlink_to(roots)
            exchange = Exchange(data, link, first, second)
            sys.setprofile(exchange)
            try:
                with suppress(UnsafeDirectory, OSError):
                    work(data)
            finally:
                sys.setprofile(None)
            assert secret.stat().st_uid == 0, f"given away with exchanges at calls {first} and {second}"
            calls = max(calls, exchange.calls)
            shutil.rmtree(home)
            second += 1
        first += 1
    assert calls > 4
