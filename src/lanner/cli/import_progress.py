"""The progress of importing a file into a running queue manager, kept in a file beside it.

It prevents sending messages twice. Before messages are sent, the progress file records them; after
they are acknowledged, it records that, too. If the command ends in between, it is unknown whether
they have arrived. The next run then stops with an error, and the user has to give the number of
messages that arrived.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from lanner.cli.errors import CommandError
from lanner.security.private_files import read_private, write_private

_SUFFIX = ".imported"
_CHUNK = 1 << 20


class ImportProgress:
    """The progress of importing one file into one queue."""

    def __init__(self, file: Path, target: str) -> None:
        self._path = file.with_name(file.name + _SUFFIX)
        digest = hashlib.sha256()
        with file.open("rb") as content:
            while data := content.read(_CHUNK):
                digest.update(data)
        self._key = f"{digest.hexdigest()} {target}"
        found = self._read().get(self._key, {})
        # The number of messages that are in the queue, and of those that are or may be.
        self.done = int(found.get("done", 0))
        self.tried = int(found.get("tried", self.done))

    def __str__(self) -> str:
        return str(self._path)

    def _read(self) -> dict[str, Any]:
        data = read_private(self._path) if self._path.exists() else None
        try:
            content = {} if data is None else json.loads(data)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise CommandError(
                f"{self._path} cannot be read: it records which messages were imported; remove it to start from the "
                "first message"
            )
        return content

    def resume_at(self, number: int) -> None:
        """Accept the user's count of the messages that have arrived."""
        if not self.done <= number <= self.tried:
            raise CommandError(f"--resume-at {number}: {self.done} to {self.tried} expected, as {self._path} records")
        self.write(number)

    def check(self, queue: str) -> None:
        """Raise CommandError if it is unknown which messages have arrived."""
        if self.tried > self.done:
            raise CommandError(
                f"messages {self.done + 1} to {self.tried} were being sent to {queue} when an import ended, and "
                "may have arrived. Check with `lanner peek`, then give --resume-at the number of messages of the "
                f"file that are there: {self.done} to {self.tried}"
            )

    def write(self, done: int, tried: int | None = None) -> None:
        """Record the progress; it is on disk when this returns."""
        self.done, self.tried = done, done if tried is None else tried
        content = {**self._read(), self._key: {"done": self.done, "tried": self.tried}}
        write_private(self._path, json.dumps(content).encode())
