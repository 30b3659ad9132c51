"""Queues owned by the anonymous user get another owner at the start.

The old descriptors are kept in a file.
"""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest

from lanner.host.access_migration import SavedAccessError, read_saved
from lanner.host.addresses import local_settings
from lanner.host.runtime import Runtime
from lanner.model.directory_objects import Queue
from lanner.security.private_files import PrivateFileError
from lanner.security.profile import Profile
from lanner.wire.path_name import PathName
from lanner.wire.sddl import format_sddl, parse_sddl
from lanner.wire.security_descriptor import SecurityDescriptor

OLD = "O:AND:(A;;0xf003f;;;WD)"
NEW = "O:BAD:(A;;0xf003f;;;BA)(A;;0x4;;;WD)(A;;0x4;;;AN)"
HAND_MADE = "O:AND:(A;;0x6;;;WD)"
# Those of the queue manager: the administration queue, which older versions left to the anonymous.
OWN = r"ALPHA\private$\admin_queue$"


def opened(path: Path, profile: Profile = Profile.SAFE, **settings: object) -> Runtime:
    return Runtime(path, local_settings("alpha", profile=profile, **settings))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Make a store as older versions made it, with a queue of each kind."""
    path = tmp_path / "data"
    runtime = opened(path, Profile.DOCUMENT)
    with runtime.change() as change:
        for name in (r".\private$\plain", r".\public", r".\private$\hand"):
            request = runtime.engine.set_queue_defaults(name)
            if name.endswith("hand"):
                request.security = parse_sddl(HAND_MADE).pack()
            runtime.engine.create_queue(request)
    change.wait()
    runtime.close()
    return path


def lists(runtime: Runtime) -> dict[str, str]:
    with runtime.lock:
        queues = runtime.engine.queue_manager.queue_collection.values()
        return {
            queue.pathname: format_sddl(SecurityDescriptor.unpack(queue.security))
            for queue in queues
            # The notification queue is the queue manager's own, and has the list that it needs.
            if queue.security is not None and not queue.is_system
        }


BEFORE = {
    OWN: OLD,
    r"ALPHA\private$\plain": OLD,
    r"ALPHA\public": OLD,
    r"ALPHA\private$\hand": HAND_MADE,
}
AFTER = {name: "O:BAD:(A;;0x6;;;WD)" if text == HAND_MADE else NEW for name, text in BEFORE.items()}


def files(path: Path) -> list[Path]:
    return sorted(path.glob("access-lists-*.json"))


def test_the_start_replaces_anonymous_owners_and_keeps_what_was(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lanner.host.access_migration"):
        runtime = opened(old)
    assert lists(runtime) == AFTER
    with runtime.lock:
        _, published = runtime.engine.read_directory("Queue", None)
    assert isinstance(published, Queue)
    assert published.security is not None
    assert format_sddl(SecurityDescriptor.unpack(published.security)) == NEW
    runtime.close()
    (file,) = files(old)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {one.pathname: format_sddl(SecurityDescriptor.unpack(one.security)) for one in read_saved(file)} == BEFORE
    assert {one["queue"]: one["sddl"] for one in json.loads(file.read_text())["queues"]} == BEFORE
    told = [record for record in caplog.records if record.name == "lanner.host.access_migration"]
    infos = [record.getMessage() for record in told if record.levelno == logging.INFO]
    assert {line.split()[1] for line in infos} == set(BEFORE)
    (warning,) = (record.getMessage() for record in told if record.levelno == logging.WARNING)
    assert str(file) in warning
    assert warning.startswith("4 queues")
    assert "3 of them" in warning


def test_a_second_start_changes_nothing(old: Path) -> None:
    opened(old).close()
    runtime = opened(old)
    assert lists(runtime) == AFTER
    runtime.close()
    assert len(files(old)) == 1


def test_the_document_profile_migrates_nothing(old: Path) -> None:
    runtime = opened(old, Profile.DOCUMENT)
    assert lists(runtime) == BEFORE
    runtime.close()
    runtime = opened(old, migrates_owners=False)
    assert lists(runtime) == BEFORE
    runtime.close()
    assert files(old) == []


def test_a_file_that_is_there_is_not_overwritten(old: Path) -> None:
    """Two migrations within a second."""
    opened(old).close()
    (first,) = files(old)
    kept = first.read_bytes()
    for _ in range(2):
        runtime = opened(old, Profile.DOCUMENT)
        with runtime.change() as change:
            queue = runtime.engine.find_by_path(PathName.parse(r".\private$\plain"))
            assert queue is not None
            runtime.engine.replace_security(queue, parse_sddl(OLD).pack())
        change.wait()
        runtime.close()
        opened(old).close()
    assert len(files(old)) == 3
    assert first.read_bytes() == kept


def test_a_crash_after_the_file_leaves_the_queues_to_the_next_start(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store has one commit for all queues: it has all of the new lists or none."""

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lanner.engine.queues.Queues._save", crash)
        with pytest.raises(KeyboardInterrupt):
            opened(old)
    assert len(files(old)) == 1
    runtime = opened(old, Profile.DOCUMENT)
    assert lists(runtime) == BEFORE
    runtime.close()
    runtime = opened(old)
    assert lists(runtime) == AFTER
    runtime.close()
    assert len(files(old)) == 2


def test_fail_without_the_file_nothing_is_changed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise PrivateFileError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lanner.host.access_migration.create_private", full)
        with pytest.raises(PrivateFileError):
            opened(old)
    runtime = opened(old, Profile.DOCUMENT)
    assert lists(runtime) == BEFORE
    runtime.close()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "queues": [{}]}'])
def test_fail_a_file_without_saved_lists(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.json"
    with pytest.raises(SavedAccessError, match="does not exist"):
        read_saved(file)
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(SavedAccessError, match=r"x\.json"):
        read_saved(file)
