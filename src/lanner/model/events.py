"""The kinds of events in the log of events.

Not in the specification: the log is for operators and the data pipeline.
"""

from __future__ import annotations

import enum


class EventKind(enum.IntEnum):
    """The kind of an event. The numbers are stored, so none may ever be reused."""

    ARRIVED = 1  # entered a queue here, sent by a local program or by the queue manager itself
    SENT = 2  # entered an outgoing queue here, sent from this computer
    # came from another queue manager, into a queue here or an outgoing queue on its way
    TRANSFERRED_IN = 3
    TRANSFERRED_OUT = 4  # left an outgoing queue: another queue manager has it
    RECEIVED = 5  # was removed from its queue by a receive
    MOVED = 6  # moved to `target`, with its lookup identifier; `queue` is the source
    EXPIRED = 7  # its time ran out in the queue
    PURGED = 8  # removed with all messages of its queue, or because the queue was deleted
    DEAD_LETTERED = 9  # a copy of it entered `queue`
    JOURNALED = 10  # a copy of it entered `queue`
    RECEIVE_ABORTED = 11  # a reader that was receiving it returned it
    SEND_ABORTED = 12  # its transaction ended without a commit: it was never visible
    REFUSED = 13  # came from another queue manager and was not accepted
    CONCLUDED = 14  # a transactional message from here: its destination has reported its outcome
