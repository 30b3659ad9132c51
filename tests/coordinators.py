"""The coordinator that ships, with a record of what the queue manager has told it."""

from __future__ import annotations

import uuid

from lanner.engine.dtc import Outcome
from lanner.host.coordinator import Coordinator
from lanner.model.live import Transaction
from lanner.store import Store


class HeardCoordinator(Coordinator):
    """Writes down the calls of the queue manager, and does what it does."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.heard: list[tuple[str, uuid.UUID]] = []
        self.asked: list[tuple[uuid.UUID, Outcome]] = []

    def prepare_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("prepared", identifier))
        super().prepare_request_done(identifier)

    def commit_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("committed", identifier))
        super().commit_request_done(identifier)

    def abort_request_done(self, identifier: uuid.UUID) -> None:
        self.heard.append(("aborted", identifier))
        super().abort_request_done(identifier)

    def reenlist(self, transaction: Transaction) -> Outcome:
        outcome = super().reenlist(transaction)
        self.asked.append((transaction.identifier, outcome))
        return outcome
