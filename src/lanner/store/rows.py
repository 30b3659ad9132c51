"""Rows of messages, encoded for the write-ahead log and the database.

These loops run once for each message. `lanner.native` chooses between them and equivalent functions
in C.
"""

from __future__ import annotations

import struct

from lanner.native import chosen
from lanner.store.record import INDEX_ENTRY, MESSAGE_KEY, Record, encode, encode_reference, encode_staged
from lanner.store.write_ahead_log import Operation

__all__ = ["checkpoint_rows", "log_deletions", "log_rows", "published_rows", "staged_rows"]

_key = MESSAGE_KEY.pack
_entry = INDEX_ENTRY.pack
_head = Operation.HEAD.pack
_number = struct.Struct(">Q").pack
_deletion = struct.Struct(f">{Operation.HEAD.size}sIIQQ").pack


def _log_rows(
    kind: int,
    number: int,
    generation: int,
    rows: dict[int, Record],
    visible: dict[int, int],
    encoded: dict[int, bytes],
    limit: int,
) -> tuple[int, list[bytes]] | None:
    """Return the total encoded size of the rows, and the log operations that write them.

    Returns None if the size is above `limit`. The stored form of each row goes into `encoded`.
    """
    parts: list[bytes] = []
    add = parts.append
    size = 0
    for lookup_id, record in rows.items():
        value = encoded[lookup_id] = encode(record, visible.get(lookup_id, 0))
        length = len(value)
        size += length
        if size > limit:
            return None
        add(_head(kind, 16, length) + _key(number, generation, lookup_id))
        add(value)
    return size, parts


def _log_deletions(
    kind: int, number: int, generation: int, hidden: dict[int, int], references: dict[int, bytes]
) -> bytes:
    """Return the operations that delete messages.

    `hidden` maps lookup ids to visibility numbers; `references` maps those of published messages to
    the keys of their staged rows.
    """
    parts: list[bytes] = []
    head = _head(kind, 16, 8)  # for messages without a staged row
    for lookup_id, visibility in hidden.items():
        if lookup_id in references:
            reference = references[lookup_id]
            key = _key(number, generation, lookup_id)
            parts.append(_head(kind, 16, 8 + len(reference)) + key + _number(visibility) + reference)
        else:
            parts.append(_deletion(head, number, generation, lookup_id, visibility))
    return b"".join(parts)


def _checkpoint_rows(
    number: int,
    generation: int,
    some: list[tuple[int, Record]],
    visible: dict[int, int],
    encoded: dict[int, bytes],
) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    """Return the entries of rows in the database of messages and in the visibility index."""
    messages = [
        (_key(number, generation, lookup_id), encoded.get(lookup_id) or encode(record, visible.get(lookup_id, 0)))
        for lookup_id, record in some
    ]
    index = [
        (_key(number, generation, visible[lookup_id]), _entry(lookup_id, len(record.packet)))
        for lookup_id, record in some
        if lookup_id in visible
    ]
    return messages, index


def _staged_rows(head: bytes, first: int, packets: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and the values of staged rows; keys are `head` and a number from `first`.

    Two lists, because thousands of tuples would keep the garbage collector busy.
    """
    return [head + _number(number) for number in range(first, first + len(packets))], list(map(encode_staged, packets))


def _published_rows(
    number: int,
    generation: int,
    lookup_id: int,
    visibility: int,
    count: int,
    head: bytes,
    first: int,
    arrived: int,
    flags: int,
    size: int,
) -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
    """Return keys and values of published messages, then those of their visibility index.

    Lookup ids, visibility numbers and staged-row keys (`head` plus a number) each increase by one
    per message.
    """
    indices = range(count)
    return (
        [_key(number, generation, lookup_id + index) for index in indices],
        [encode_reference(head + _number(first + index), visibility + index, arrived, flags) for index in indices],
        [_key(number, generation, visibility + index) for index in indices],
        [_entry(lookup_id + index, size) for index in indices],
    )


log_rows = chosen(_log_rows)
log_deletions = chosen(_log_deletions)
checkpoint_rows = chosen(_checkpoint_rows)
staged_rows = chosen(_staged_rows)
published_rows = chosen(_published_rows)
