"""What can happen to a message, as the log of events tells it.

No document knows this log: it is for operators and the data pipeline.
"""

from __future__ import annotations

import enum


class EventKind(enum.IntEnum):
    """The numbers are stored: none is ever given to another kind."""

    ARRIVED = 1  # came to a queue here, from a program here or from the queue manager itself
    SENT = 2  # came to an outgoing queue here, from here: it waits for its way
    TRANSFERRED_IN = 3  # came from another queue manager, to a queue here or to an outgoing queue on its way
    TRANSFERRED_OUT = 4  # left an outgoing queue: another queue manager has it
    RECEIVED = 5  # was taken out of its queue
    MOVED = 6  # to `target`, with its lookup identifier; `queue` is where it came from
    EXPIRED = 7  # its time ran out in the queue
    PURGED = 8  # with its queue's other messages, or because the queue was deleted
    DEAD_LETTERED = 9  # a copy of it came to `queue`
    JOURNALED = 10  # a copy of it came to `queue`
    RECEIVE_ABORTED = 11  # somebody who was receiving it gave it back
    SEND_ABORTED = 12  # its transaction ended without a commit: it was never visible
    REFUSED = 13  # came from another queue manager and was not taken
    CONCLUDED = 14  # a transactional message from here: its destination has told of its end
