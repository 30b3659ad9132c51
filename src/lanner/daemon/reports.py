"""Reports of the data pipeline for the console: pages in a directory that the operator has named.

The HTTP process has no access to files, so the daemon reads them for administrators, one part at a
time.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lanner.model.errors import InvalidParameter, UnsupportedOperation

if TYPE_CHECKING:
    from lanner.security.identity import Identity

Document = dict[str, Any]

# Not in the specification: octets of one answer, octets of a report, and reports that are listed.
PART: Final = 1 << 20
MAX_SIZE: Final = 64 << 20
MAX_LISTED: Final = 200
# Excludes paths and hidden files.
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.html")


class Reports:
    """The reports in one directory; None: there is no directory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def show_list(self, identity: Identity, request: Mapping[str, Any]) -> list[Document]:
        """Return name, size and time of each report, newest first."""
        del identity, request
        if self._directory is None:
            raise UnsupportedOperation(
                "no directory of reports is set: set http.reports to the one that `[report]` writes"
            )
        found = []
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        said = entry.stat(follow_symlinks=False)
                        made = dt.datetime.fromtimestamp(said.st_mtime, dt.UTC)
                        found.append({"name": entry.name, "bytes": said.st_size, "made": made.isoformat()})
        except OSError as error:
            raise InvalidParameter(f"http.reports: {self._directory}: {error.strerror}") from error
        return sorted(found, key=lambda one: str(one["made"]), reverse=True)[:MAX_LISTED]

    def read(self, identity: Identity, request: Mapping[str, Any]) -> Document:
        """Return a part of a report from an offset in octets, and where the next part begins."""
        del identity
        name, offset = request.get("name"), request.get("offset", 0)
        if type(offset) is not int or offset < 0:
            raise InvalidParameter("`offset` of a report is a number from 0 on")
        if self._directory is None or not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidParameter(f"there is no report {str(name)[:200]!r}")
        try:
            file = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidParameter(f"there is no report {name}: {error.strerror}") from error
        with os.fdopen(file, "rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > MAX_SIZE:
                raise InvalidParameter(f"report {name} has {size} octets, more than {MAX_SIZE}: open it as a file")
            octets = os.pread(opened.fileno(), PART, offset)
        end = offset + len(octets)
        # Latin-1, because a part may end inside a character.
        return {"octets": octets.decode("latin-1"), "next": end if octets and end < size else None}
