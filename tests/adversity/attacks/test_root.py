"""The service's own user attacks root.

The user places links in the data directory, for commands that root runs there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import lmdb
import pytest

from lanner.model.errors import InsufficientResources
from lanner.store import Store
from lanner.store.backups import copy_file, copy_running, restore_files
from lanner.store.data_directory import UnsafeDirectory
from lanner.store.environment import LOCK_FILE
from tests.adversity.attacks.victim import victim

LANNER = Path(sys.executable).with_name("lanner")
OWNER = 64321
SECRET = b"of root alone, and longer than nothing\n"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the attacks are on root")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that any user can reach, as pytest's are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.fixture
def precious(shared: Path) -> Path:
    path = shared / "etc" / "users.json"
    path.parent.mkdir(0o755)
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


@pytest.fixture
def data(shared: Path) -> Path:
    """A stopped queue manager's, of a user without rights."""
    path = shared / "data"
    path.mkdir(0o700)
    os.chown(path, OWNER, OWNER)
    Store.open(path).close()
    return path


def untouched(precious: Path) -> bool:
    found = precious.stat()
    return precious.read_bytes() == SECRET and found.st_uid == 0


@pytest.mark.parametrize("name", ["accounts.json", "key.pem", LOCK_FILE])
def test_a_backup_of_a_running_service_follows_no_link(tmp_path: Path, precious: Path, name: str) -> None:
    with victim(tmp_path) as place:
        (place.data / name).unlink(missing_ok=True)
        (place.data / name).symlink_to(precious)
        command: list[str | Path] = [LANNER, "backup", tmp_path / "backup", "--data", place.data]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode
        assert f"{name} is a symbolic link" in ran.stderr
        assert not (tmp_path / "backup").exists()
        (place.data / name).unlink()
    assert untouched(precious)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_lock_file_that_becomes_a_link_leads_root_nowhere(data: Path, precious: Path, *, is_new: bool) -> None:
    """The owner replaces the lock file after the check of the directory.

    The owner has plenty of time while the queue manager makes its checkpoint.
    """
    target = precious.with_name("new") if is_new else precious
    (data / LOCK_FILE).unlink()
    (data / LOCK_FILE).symlink_to(target)
    copy = data.with_name("copy")
    copy.mkdir()
    with pytest.raises(lmdb.Error, match="Permission denied"):
        copy_running(data, copy)
    assert untouched(precious)
    assert [path.name for path in precious.parent.iterdir()] == [precious.name]


def test_only_files_of_the_owner_are_copied(data: Path, precious: Path) -> None:
    copy = data.with_name("copy")
    (data / "link.json").symlink_to(precious)
    os.link(precious, data / "hard.json")
    os.mkfifo(data / "pipe.json")
    for name, told in {"link": "is a symbolic link", "hard": "belongs to root", "pipe": "is no file"}.items():
        with pytest.raises(UnsafeDirectory, match=rf"{name}\.json {told}"):
            copy_file(data / f"{name}.json", copy)
        assert not copy.exists()


def test_a_restore_moves_and_gives_away_no_file_from_elsewhere(data: Path, precious: Path) -> None:
    """The owner exchanges the directory of the half-done restore for a link to one of root's."""
    backup = data.with_name("backup")
    backup.mkdir(0o700)
    with contextlib.closing(Store.open(data)) as store:
        store.copy_into(backup)
    (backup / "users.json").write_bytes(b"{}")
    for path in data.iterdir():
        path.unlink()

    def exchange(_rows: int) -> None:
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            (data / "restoring").rename(data / "aside")
            (data / "restoring").symlink_to(precious.parent)

    with pytest.raises(InsufficientResources):
        restore_files(backup, data, ["data.mdb", "users.json"], verified=exchange)
    assert untouched(precious)


def test_root_is_root_again_after_it_was_the_owner(data: Path) -> None:
    before = os.getresuid(), os.getresgid(), os.getgroups()
    with contextlib.closing(Store.open(data)):
        assert (os.getresuid(), os.getresgid(), os.getgroups()) == before
    assert {path.stat().st_uid for path in data.iterdir()} == {OWNER}
