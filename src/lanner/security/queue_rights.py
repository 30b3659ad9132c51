"""The words for rights on queues, each with its access mask (MS-MQMQ 2.2.24).

This table is the only definition of the words. A mask is described by the largest words that it
contains, so that `full` is shown as one word and not as ten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lanner.model.errors import InvalidParameter
from lanner.security.access_masks import QueueAccess

# A larger word stands before the words it contains.
RIGHTS: Final[dict[str, QueueAccess]] = {
    "full": QueueAccess.GENERIC_ALL,
    "admin": (
        QueueAccess.SET_QUEUE_PROPERTIES
        | QueueAccess.GET_QUEUE_PROPERTIES
        | QueueAccess.DELETE_QUEUE
        | QueueAccess.GET_QUEUE_PERMISSIONS
        | QueueAccess.CHANGE_QUEUE_PERMISSIONS
        | QueueAccess.TAKE_QUEUE_OWNERSHIP
    ),
    "receive": QueueAccess.RECEIVE_MESSAGE,
    "receive-journal": QueueAccess.RECEIVE_JOURNAL_MESSAGE,
    "peek": QueueAccess.PEEK_MESSAGE,
    "send": QueueAccess.WRITE_MESSAGE,
    "get-properties": QueueAccess.GET_QUEUE_PROPERTIES,
    "set-properties": QueueAccess.SET_QUEUE_PROPERTIES,
    "get-permissions": QueueAccess.GET_QUEUE_PERMISSIONS,
    "change-permissions": QueueAccess.CHANGE_QUEUE_PERMISSIONS,
    "take-ownership": QueueAccess.TAKE_QUEUE_OWNERSHIP,
    "delete-queue": QueueAccess.DELETE_QUEUE,
    "delete-messages": QueueAccess.DELETE_MESSAGE,
    "delete-journal-messages": QueueAccess.DELETE_JOURNAL_MESSAGE,
}


def split_rights(words: Iterable[str]) -> list[str]:
    """Return single words; each given text may contain several, separated by commas or spaces."""
    return [word for text in words for word in text.replace(",", " ").lower().split()]


def mask_of(words: Iterable[str]) -> int:
    """Return the mask of words. Raises InvalidParameter, which lists the known ones."""
    mask = 0
    for word in split_rights(words):
        if word not in RIGHTS:
            raise InvalidParameter(f"{word!r} is no right on a queue: one of {', '.join(RIGHTS)}")
        mask |= int(RIGHTS[word])
    return mask


def words_of(mask: int) -> tuple[str, ...]:
    """Return the words of a mask; remaining bits become one hexadecimal number at the end."""
    words, rest = [], int(mask)
    for word, right in RIGHTS.items():
        # The complement of a member has only bits of its enumeration.
        bits = int(right)
        if mask & bits == bits and rest & bits:
            words.append(word)
            rest &= ~bits
    return (*words, f"{rest:#x}") if rest else tuple(words)
