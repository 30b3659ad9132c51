"""The enterprise that a queue manager knows: sites, routing links, computers, distribution lists.

A document in the form of `lanner.directory.enterprise` describes it; `apply` makes it known, the
same to all computers, and messages find their way by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.client._async.backend import Backend, Document

# `lanner.directory.enterprise` is imported where it is used: it needs pydantic, a third of the time
# that `import lanner` takes, and few programs describe an enterprise.


class Enterprise:
    """The enterprise of one queue manager; for administrators."""

    def __init__(self, backend: Backend) -> None:
        """Made by `QueueManager.enterprise`."""
        self._backend = backend

    async def document(self) -> Document:
        """Return all that is known, in the form that `apply` takes."""
        document: Document = await self._backend.ask("directory")
        return document

    async def apply(self, enterprise: Mapping[str, object] | str | Path) -> list[str]:
        """Make a document, or a TOML file, known; return a line for each thing that is new or changed."""
        from lanner.directory.enterprise import load_enterprise, read_enterprise

        document = dict(enterprise) if isinstance(enterprise, Mapping) else load_enterprise(Path(enterprise))
        # Checked here already: the error names the place in the file.
        read_enterprise(document)
        done: list[str] = await self._backend.ask("provision", enterprise=document)
        return done

    async def remove(self, kind: str, *names: str) -> None:
        """Remove a "site", a "computer" with its public queues, a "list", or a "link" between two sites."""
        await self._backend.ask("remove from directory", kind=kind, names=list(names))
