"""The enterprise that a queue manager knows: sites, routing links, computers and their public queues, distribution lists.

What is written down in `lanner.directory.enterprise`'s form is made known with `apply`, the same to all computers; from then on messages find their way by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lanner.directory.topology import survey

if TYPE_CHECKING:
    from lanner.client.runtime import Runtime
    from lanner.directory.enterprise import Document

# `lanner.directory.enterprise` is imported where it is used: it takes pydantic with it, a third of the time that `import lanner` takes, and few
# programs have an enterprise to describe.

__all__ = ["Enterprise", "LocalEnterprise", "RemoteEnterprise"]


class Enterprise(Protocol):
    """What both kinds have."""

    def document(self) -> Document:
        """All that is known, in the form that `apply` takes."""

    def apply(self, enterprise: Mapping[str, object] | str | Path) -> list[str]:
        """Make known what a document, or a file of TOML, says; a line for each thing that is new or changed. The rest stays as it is."""

    def remove(self, kind: str, *names: str) -> None:
        """Forget a "site", a "computer" with its public queues, a "list", or a "link" between two sites."""


class LocalEnterprise:
    """Of the queue manager in this process."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def document(self) -> Document:
        from lanner.directory.enterprise import write_enterprise

        with self._runtime.lock:
            return write_enterprise(survey(self._runtime.engine.directory))

    def apply(self, enterprise: Mapping[str, object] | str | Path) -> list[str]:
        from lanner.directory.enterprise import read_enterprise

        topology = read_enterprise(_loaded(enterprise))
        done: list[str] = self._done(lambda: self._runtime.engine.provision_directory(topology))
        return done

    def remove(self, kind: str, *names: str) -> None:
        self._done(lambda: self._runtime.engine.remove_from_directory(kind, *names))

    def _done(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 (whatever it returns)
        with self._runtime.lock:
            result = work()
            ticket = self._runtime.store.ticket()
        self._runtime.store.sync(ticket)
        return result


class RemoteEnterprise:
    """Of a queue manager elsewhere; `ask` is that of its connection."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def document(self) -> Document:
        document: Document = self._ask("directory")
        return document

    def apply(self, enterprise: Mapping[str, object] | str | Path) -> list[str]:
        from lanner.directory.enterprise import read_enterprise

        document = _loaded(enterprise)
        # Here already, so that what is wrong with it can be told with its place.
        read_enterprise(document)
        done: list[str] = self._ask("provision", enterprise=document)
        return done

    def remove(self, kind: str, *names: str) -> None:
        self._ask("remove from directory", kind=kind, names=names)


def _loaded(enterprise: Mapping[str, object] | str | Path) -> Document:
    from lanner.directory.enterprise import load_enterprise

    return dict(enterprise) if isinstance(enterprise, Mapping) else load_enterprise(Path(enterprise))
