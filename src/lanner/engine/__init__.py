"""What happens: the events of MS-MQDMPR 3.1.4, 3.1.6, 3.1.7 and 3.2, one method each.

The engine is synchronous and deterministic. It knows no socket, no thread and no wall clock: time is
passed in, waiting readers are call-backs, and the next deadline can be asked for. The classes are
layers, each an extension of the one before, so that an event may raise only events below its own:

    EngineBase -> WaitingReads -> Positions -> Cursors -> Reading -> DirectoryEvents -> Names -> Queues -> Examining
               -> Sending -> Acknowledgments -> OutgoingSequences -> Delivery -> Transactions -> Dispatch -> Staging
               -> Engine (start, stop, timers)

What is written where is in `tables`; "DECISIONS" in a comment means docs/decisions.md.
"""

from lanner.engine.engine import Engine
from lanner.engine.settings import EngineSettings

__all__ = ["Engine", "EngineSettings"]
