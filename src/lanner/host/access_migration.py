"""Migration of queues that the anonymous user owns, from older versions or profile DOCUMENT.

At a start with profile SAFE, each queue that S-1-5-7 owns gets the Administrators as owner, and a
new list if it has the old default one. The old descriptors are written to a file first, durably and
under a new name each time. A crash before the store's commit leaves such a file and unchanged
queues, and the next start repeats the migration with another file.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import LannerError, StatusError
from lanner.security.access_lists import descriptor_text
from lanner.security.identity import SYSTEM
from lanner.security.private_files import create_private, read_private
from lanner.security.profile import Profile
from lanner.security.queue_security import is_open_default, without_anonymous_owner
from lanner.wire.security_descriptor import SecurityDescriptor
from lanner.wire.sid import ANONYMOUS_LOGON

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.directory_objects import Queue

_LOG = logging.getLogger(__name__)

VERSION: Final = 1
_PREFIX: Final = "access-lists-"


class SavedAccessError(LannerError):
    """The file does not contain saved access lists; the message says why."""


@dataclass(frozen=True, slots=True)
class SavedAccess:
    """The former descriptor of a queue."""

    pathname: str
    security: bytes

    def document(self) -> dict[str, object]:
        text = descriptor_text(SecurityDescriptor.unpack(self.security))
        return {"queue": self.pathname, "sddl": text, "security": self.security.hex()}


def read_saved(path: Path) -> list[SavedAccess]:
    """Return the descriptors in a file that a migration wrote. Raises SavedAccessError."""
    data = read_private(path)
    if data is None:
        raise SavedAccessError(f"{path} does not exist")
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise SavedAccessError(f"{path} is of version {content['version']}, and this program knows {VERSION}")
        return [_read_one(one) for one in content["queues"]]
    except (ValueError, LookupError, TypeError, LannerError) as error:
        if isinstance(error, SavedAccessError):
            raise
        raise SavedAccessError(f"{path} has no saved access lists: {error}") from None


def _read_one(one: dict[str, Any]) -> SavedAccess:
    saved = SavedAccess(str(one["queue"]), bytes.fromhex(one["security"]))
    SecurityDescriptor.unpack(saved.security)
    return saved


def migrate(engine: Engine, directory: Path) -> Path | None:
    """Replace the anonymous owner of queues; return the file with the old descriptors, if any.

    The caller holds the store's lock and commits afterwards.
    """
    if engine.settings.profile is Profile.DOCUMENT or not engine.settings.migrates_owners:
        return None
    owned = [queue for queue in engine.queue_manager.queue_collection.values() if _is_anonymous(queue)]
    if not owned:
        return None
    path = _save(directory, engine.queue_manager.computer_name, owned)
    changed = 0
    for queue in owned:
        before = _descriptor(queue)
        after = without_anonymous_owner(before)
        changed += is_open_default(before)
        what = "owner and access list are" if is_open_default(before) else "its access list is kept, its owner is"
        _LOG.info("queue %s belonged to ANONYMOUS LOGON: %s now those of profile safe", queue.pathname, what)
        try:
            engine.replace_security(queue, after.pack())
        except StatusError as error:
            # The queue manager itself uses its own copy, which is changed.
            _LOG.warning("the directory keeps the old access list: %s", error)
        engine.audit.done(
            "change access",
            SYSTEM.at("start of the queue manager"),
            queue=queue.pathname,
            before=descriptor_text(before),
            after=descriptor_text(after),
        )
    _LOG.warning(
        "%d queues belonged to ANONYMOUS LOGON and now belong to the Administrators; %d of them had the old default "
        "access list and have the new one, with which others may only send. The old ones are in %s: `lanner queue "
        "access restore` reads it",
        len(owned),
        changed,
        path,
    )
    return path


def _descriptor(queue: Queue) -> SecurityDescriptor:
    return SecurityDescriptor() if queue.security is None else SecurityDescriptor.unpack(queue.security)


def _is_anonymous(queue: Queue) -> bool:
    # Every start checks each queue. The SID is searched for in the octets before they are
    # decoded.
    return queue.security is not None and _ANONYMOUS in queue.security and _descriptor(queue).owner == ANONYMOUS_LOGON


_ANONYMOUS: Final = ANONYMOUS_LOGON.pack()


def _save(directory: Path, computer: str, queues: Iterable[Queue]) -> Path:
    now = datetime.now(UTC)
    saved = [SavedAccess(queue.pathname, queue.security or b"").document() for queue in queues]
    content = {"version": VERSION, "time": now.isoformat(), "queue_manager": computer, "queues": saved}
    data = json.dumps(content, indent=1).encode()
    name = f"{_PREFIX}{now:%Y%m%dT%H%M%S}"
    for number in range(1000):
        path = directory / (f"{name}.json" if not number else f"{name}-{number}.json")
        try:
            create_private(path, data)
        except FileExistsError:
            continue
        return path
    raise SavedAccessError(f"{directory / name}: there are too many files of this name (process {os.getpid()})")
