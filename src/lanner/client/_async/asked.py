"""The methods of a Lanner's backend that request documents (services/documents.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lanner.client._async.backend import Document
    from lanner.wire.format_name import FormatName


class Asked(ABC):
    """The administrators' part of a backend, implemented with its `ask`."""

    @abstractmethod
    async def ask(self, request: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Return the document that answers a request."""

    async def queue_names(self) -> list[str]:
        names: list[str] = (await self.ask("queues"))["local"]
        return names

    async def outgoing(self) -> list[Document]:
        documents: list[Document] = await self.ask("outgoing")
        return documents

    async def pause(self, name: FormatName) -> None:
        await self.ask("pause", queue=str(name))

    async def resume(self, name: FormatName) -> None:
        await self.ask("resume", queue=str(name))

    async def resend(self, name: FormatName) -> None:
        await self.ask("resend", queue=str(name))

    async def status(self) -> Document:
        document: Document = await self.ask("status")
        return document
