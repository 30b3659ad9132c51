"""Queue path names (MS-MQMQ 2.1.1), and the part after the computer, which direct names share."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from lanner.model.enums import QueueType
from lanner.model.errors import IllegalQueuePathname

# MS-MQMQ 2.1.1: Computer = 1*256(VCHAR), QueueName = 1*124(...), Subqueue = 1*32(...).
MAX_COMPUTER_LENGTH = 256
MAX_QUEUE_NAME_LENGTH = 124
MAX_SUBQUEUE_LENGTH = 32

THIS_COMPUTER = "."
JOURNAL = "journal"
PRIVATE_PREFIX = "private$"
SYSTEM_PREFIX = "system$"

# The form of MSMQ 2.0 and later: no backslash, semicolon, plus, comma or double quote.
_QUEUE_NAME = re.compile(r"[\x21\x23-\x2A\x2D-\x3A\x3C-\x5B\x5D-\x7F]+")
_COMPUTER = re.compile(r"[\x21-\x5B\x5D-\x7E]+")


@dataclass(frozen=True, slots=True)
class QueuePart:
    r"""The part after the computer in `computer\queue`: the kind of queue and its names."""

    queue_type: QueueType
    name: str
    subqueue: str | None = None
    is_journal: bool = False

    def __str__(self) -> str:
        prefix = {QueueType.PRIVATE: "private$\\", QueueType.SYSTEM: "system$;"}.get(self.queue_type, "")
        suffix = ";journal" if self.is_journal else "" if self.subqueue is None else f";{self.subqueue}"
        return f"{prefix}{self.name}{suffix}"


def split_queue_part(text: str) -> QueuePart:
    r"""Split `private$\name;subqueue` and similar texts. Raise ValueError with the problem.

    The caller checks the characters.
    """
    if text[:8].lower() == "system$;":
        if not text[8:]:
            raise ValueError("no queue name after system$;")
        return QueuePart(QueueType.SYSTEM, text[8:])
    queue_type = QueueType.PUBLIC
    if text[:9].lower() == "private$\\":
        queue_type, text = QueueType.PRIVATE, text[9:]
    name, separator, subqueue = text.partition(";")
    if "\\" in text:
        raise ValueError("a backslash inside the queue name")
    if not name:
        raise ValueError("no queue name")
    if len(name) > MAX_QUEUE_NAME_LENGTH:
        raise ValueError(f"queue name of {len(name)} characters, at most {MAX_QUEUE_NAME_LENGTH}")
    if name.lower() in (PRIVATE_PREFIX, SYSTEM_PREFIX):
        raise ValueError(f"no queue name after {name}")
    if not separator:
        return QueuePart(queue_type, name)
    # A queue's journal is written in the position of a subqueue, so no subqueue can have its name.
    if subqueue.lower() == JOURNAL:
        return QueuePart(queue_type, name, is_journal=True)
    if not subqueue or ";" in subqueue:
        raise ValueError("no subqueue name after the semicolon" if not subqueue else "a second semicolon")
    if len(subqueue) > MAX_SUBQUEUE_LENGTH:
        raise ValueError(f"subqueue name of {len(subqueue)} characters, at most {MAX_SUBQUEUE_LENGTH}")
    return QueuePart(queue_type, name, subqueue)


def _check(part: str, what: str, allowed: re.Pattern[str], text: str) -> None:
    match = allowed.match(part)
    end = match.end() if match else 0
    if end != len(part):
        raise IllegalQueuePathname(f"path name '{text}': {part[end]!r} is not allowed in a {what}")


@dataclass(frozen=True, slots=True)
class PathName:
    r"""A path name, optionally with a subqueue or ;journal.

    The forms are `computer\queue`, `computer\private$\queue` and `computer\system$;queue`.
    """

    computer: str
    queue_type: QueueType
    name: str
    subqueue: str | None = None
    is_journal: bool = False

    @classmethod
    def parse(cls, text: str) -> PathName:
        """Parse a path name. Raise IllegalQueuePathname with the problem."""
        computer, separator, rest = text.partition("\\")
        if not separator:
            raise IllegalQueuePathname(f"path name '{text}': no backslash between computer and queue")
        if not computer:
            raise IllegalQueuePathname(f"path name '{text}': no computer before the backslash")
        if len(computer) > MAX_COMPUTER_LENGTH:
            raise IllegalQueuePathname(
                f"path name '{text}': computer of {len(computer)} characters, at most {MAX_COMPUTER_LENGTH}"
            )
        _check(computer, "computer name", _COMPUTER, text)
        try:
            part = split_queue_part(rest)
        except ValueError as error:
            raise IllegalQueuePathname(f"path name '{text}': {error}") from None
        _check(part.name, "queue name", _QUEUE_NAME, text)
        if part.subqueue is not None:
            _check(part.subqueue, "subqueue name", _QUEUE_NAME, text)
        return cls(computer, part.queue_type, part.name, part.subqueue, part.is_journal)

    @property
    def queue_part(self) -> QueuePart:
        return QueuePart(self.queue_type, self.name, self.subqueue, self.is_journal)

    @property
    def is_private(self) -> bool:
        return self.queue_type is QueueType.PRIVATE

    @property
    def is_system(self) -> bool:
        return self.queue_type is QueueType.SYSTEM

    @property
    def is_on_this_computer(self) -> bool:
        """Whether the computer is `.`. Only the engine recognizes this computer's own name."""
        return self.computer == THIS_COMPUTER

    @property
    def key(self) -> str:
        """The comparison key: names with equal keys denote the same queue, regardless of case."""
        return str(self).lower()

    def with_computer(self, computer: str) -> PathName:
        return replace(self, computer=computer)

    def without_suffix(self) -> PathName:
        """Return the queue to which a subqueue or a journal belongs."""
        return replace(self, subqueue=None, is_journal=False)

    def __str__(self) -> str:
        return f"{self.computer}\\{self.queue_part}"
