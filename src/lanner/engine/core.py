"""The core: objects that nearly every part of the engine uses, bundled in one.

The core has no behaviour. A part gets it as its first argument and keeps references to the objects
that it uses. The other arguments of a part are the parts that it calls; a part that is a public
attribute of one of these is not passed a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.engine.access import Access
from lanner.engine.event_recorder import make_recorder
from lanner.engine.express_memory import ExpressMemory
from lanner.engine.held_memory import HeldMemory
from lanner.engine.numbers import Numbers
from lanner.engine.peer_shares import PeerShares
from lanner.engine.persistence import AttributeTables
from lanner.model.directory_objects import QueueManager
from lanner.security.audit import AuditLog

if TYPE_CHECKING:
    from lanner.engine.clocks import Clocks
    from lanner.engine.settings import EngineSettings
    from lanner.store import Store


class Core:
    """The store, the QueueManager object, and the services that use them for all parts."""

    def __init__(self, store: Store, settings: EngineSettings, clocks: Clocks) -> None:
        self.store = store
        self.settings = settings
        self.clocks = clocks
        self.queue_manager = QueueManager()
        # None: events are neither logged nor reported to a listener.
        self.recorder = make_recorder(store, self.queue_manager, clocks, settings)
        self.numbers = Numbers(store)
        self.attributes = AttributeTables(store, self.queue_manager)
        self.access = Access(self.queue_manager)
        self.audit = settings.audit or AuditLog()
        self.express_memory = ExpressMemory(store, settings.express_memory)
        self.held_memory = HeldMemory()
        self.shares = PeerShares(self)
