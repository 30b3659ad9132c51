"""What happens: the events of MS-MQDMPR 3.1.4, 3.1.6, 3.1.7 and 3.2, one method each.

The engine is synchronous and deterministic. It uses no socket, no thread and no clock of the
system: its owner passes the clocks in, a waiting read is a callback, and `next_delay` reports the
next deadline. `Engine` is a facade over parts. A part owns its state, declares it in its
`__init__`, and gets the `core` and the parts that it uses as arguments. A part uses only parts
above it in this list.

    clocks              the clocks, and the alarm for a deadline that has moved nearer
    numbers             counters: SequentialID, message ordinals, queue numbers, handles
    persistence         attributes of queues and of the queue manager in the store
    event_recorder      the log of events, if it is kept; its rows are in event_rows
    access              access checks against the descriptors of queues and of the queue manager
    core                all of the above with the store and the settings; every other part gets it
    waiting             waiting reads, their timers, and which of them gets the next message
    expiry              deadlines of messages, and holds on them
    positions           finding, locking, releasing, storing and removing messages
    cursors             cursors and their state machine
    reading             receive and peek
    directory_events    the queue manager's side of the directory, its offline mode and timers
    registry            QueueCollection, and which queue a name means
    names               names that need the directory
    outgoing_sequences  places of transactional messages in the sequence to their destination
    queues              create, change, delete queues
    outgoing_queues     outgoing and connector queues: make, pause, remove
    opening             open handles
    examining           signatures, encrypted bodies, certificates
    arrivals            enqueue a message: quotas, new places
    express_memory      how much memory express messages may take
    held_memory         how much memory the locked messages of one user may take
    peer_shares         what messages of other computers may take of the quota
    application_deadletters  the dead-letter queues that messages name, and who may use them
    sending             build and enqueue messages through open handles
    moving              move, undo a receive, purge
    copies              journal copies and dead letters
    delivery            messages that another queue manager has; AwaitingFinalACKTable
    acknowledgments     the acknowledger: answers arrivals and removals
    admission           accept, pass on or refuse messages of other queue managers
    transactions        commit, abort, prepare
    dtc                 the side of a distributed transaction coordinator
    dispatch            the order in which messages leave for other computers
    staging             many messages written under a token and published together
    membership          enter a domain, and leave it
    initialization      the steps of MS-MQDMPR 3.1.3
    engine              the facade; start, stop, timers, recovery from a failing store

Beside the parts: `checks` (what must hold before an event), `queue_properties` (what attributes may
be), `queue_kinds`, `tables` (what is stored under which key), `settings`. "DECISIONS" in a comment
means docs/decisions.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanner.engine.engine import Engine
    from lanner.engine.settings import EngineSettings

__all__ = ["Engine", "EngineSettings"]

_MODULES = {"Engine": "lanner.engine.engine", "EngineSettings": "lanner.engine.settings"}


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Import a name on first use: clients need a few small modules of this package only."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(_MODULES[name]), name)
        globals()[name] = found
        return found
