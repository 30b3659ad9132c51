"""The two parts of a lookup identifier (MS-MQDMPR 3.1.1.12 LookupIdentifier, 3.1.7.1.9).

A lookup identifier has 64 bits. The top byte is the lane, 7 - Priority. The other 56 bits are the
SequentialID, a counter of the queue manager. The order of lookup identifiers is therefore the order
in which messages leave a queue: by priority, then by arrival (DMPR-3.1.7.1.9-6). Code that runs
once per message uses the constants directly, because a call costs more than the arithmetic.
"""

from __future__ import annotations

from typing import Final

# A lookup identifier is lane << LANE_SHIFT | SequentialID.
LANE_SHIFT: Final = 56
SEQUENTIAL_ID_MASK: Final = (1 << LANE_SHIFT) - 1
# The lane of priority 0, which includes all transactional messages. Priority 7 has lane 0.
LOWEST_LANE: Final = 7


def lookup_id_of(priority: int, sequential_id: int) -> int:
    """Return the lookup identifier for a priority and a SequentialID."""
    return (LOWEST_LANE - priority) << LANE_SHIFT | sequential_id & SEQUENTIAL_ID_MASK


def sequential_id_of(lookup_id: int) -> int:
    """Return the SequentialID of a lookup identifier."""
    return lookup_id & SEQUENTIAL_ID_MASK


def lane_of(lookup_id: int) -> int:
    """Return the lane of a lookup identifier."""
    return lookup_id >> LANE_SHIFT
