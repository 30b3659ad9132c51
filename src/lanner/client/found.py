"""The result of a search through a queue."""

from __future__ import annotations

from dataclasses import dataclass

from lanner.client.message import ReceivedMessage


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that a search has found so far, and where the next search continues."""

    # Empty if only lookup ids were requested.
    messages: list[ReceivedMessage]
    lookup_ids: list[int]
    # The number of messages examined.
    scanned: int
    # Pass this to the next search as `after`; None: the queue was searched to its end.
    after: int | None
