"""The tables that the engine keeps in the store beside the messages, and the keys of their rows.

The directory, the counters and the store itself have tables of their own. Each table has one owner:
`persistence` (QUEUES, SETTINGS), `transactions`, `positions` (PURGE_PENDING,
MOVE_TIMES), `expiry` (EXPIRY, EXPIRY_HOLDS), `outgoing_sequences`, `staging` (STAGE_VISITS),
`peer_shares` (PEER_BYTES), and `host.coordinator` (COORDINATOR).
"""

from __future__ import annotations

import struct
from typing import Final

QUEUES: Final = "queues"  # QUEUE_KEY: attributes of a queue
# QUEUE_MANAGER_KEY: attributes of the queue manager; EPOCH_KEY: the store that issued the last
# message identifier
SETTINGS: Final = "settings"
TRANSACTIONS: Final = "transactions"  # GUID of a prepared transaction: its operations
# COORDINATOR_KEY: the identity of this coordinator; GUID of a distributed transaction that it has
# committed: the resources that have not confirmed the commit
COORDINATOR: Final = "coordinator"
# POSITION_KEY: a message that was purged while it was locked
PURGE_PENDING: Final = "purge_pending"
# POSITION_KEY: when a message was moved last, MOVE_TIME
MOVE_TIMES: Final = "move_times"
EXPIRY: Final = "expiry"  # EXPIRY_KEY: recoverable messages that expire
# QUEUE_KEY: the transactional sequence to its destination
OUTGOING_SEQUENCES: Final = "outgoing_sequences"
EXPIRY_HOLDS: Final = "expiry_holds"  # QUEUE_KEY: HOLD of the messages that do not expire for now
# token of a stage: its messages are examined one by one when published
STAGE_VISITS: Final = "stage_visits"
PEER_BYTES: Final = "peer_bytes"  # queue and source: the use by messages of other computers

QUEUE_KEY: Final = struct.Struct(">I")  # queue
POSITION_KEY: Final = struct.Struct(">IQ")  # queue, lookup id
MOVE_TIME: Final = struct.Struct(">I")  # seconds since 1970
# seconds since 1970, queue, lookup id: some of the EXPIRY_BLOCK messages around it expire then
EXPIRY_KEY: Final = struct.Struct(">IIQ")
EXPIRY_BLOCK: Final = 64
HOLD: Final = struct.Struct(">QI")  # visibility number, duration in seconds after a start
QUEUE_MANAGER_KEY: Final = b"queue_manager"
EPOCH_KEY: Final = b"epoch"
COORDINATOR_KEY: Final = b"coordinator"
EPOCH: Final = struct.Struct(">Q")
