"""A queue manager's enterprise: sites, routing links, computers and distribution lists.

A document in the form of `lanner.directory.enterprise` describes it. `apply` the same document to
all computers, and they route messages by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.client._async.backend import Backend, Document

# `lanner.directory.enterprise` is imported where it is used. It needs pydantic, which takes a third
# of the time of `import lanner`, and few programs describe an enterprise.


class Enterprise:
    """The enterprise of one queue manager; for administrators."""

    def __init__(self, backend: Backend) -> None:
        """Make the object; programs use `QueueManager.enterprise`."""
        self._backend = backend

    async def document(self) -> Document:
        """Return the whole enterprise, in the form that `apply` takes."""
        document: Document = await self._backend.ask("directory")
        return document

    async def apply(self, enterprise: Mapping[str, object] | str | Path) -> list[str]:
        """Apply a document or a TOML file; return a line for each new or changed object."""
        from lanner.directory.enterprise import load_enterprise, read_enterprise

        document = dict(enterprise) if isinstance(enterprise, Mapping) else load_enterprise(Path(enterprise))
        # Checked here too, so that the error names the place in the file.
        read_enterprise(document)
        done: list[str] = await self._backend.ask("provision", enterprise=document)
        return done

    async def remove(self, kind: str, *names: str) -> None:
        """Remove a "site", a "computer" with its public queues, a "list", or a site "link"."""
        await self._backend.ask("remove from directory", kind=kind, names=list(names))
