r"""Names of queues in addresses: `private$\orders`, a path name, or a format name; a backslash is written %5C."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

_PRIVATE = "private$\\"

QueueName = Annotated[
    str,
    Path(
        description=r"`private$\orders`, a path name such as `.\orders`, a format name, or `system$;DEADLETTER`; \ is %5C."
    ),
]


def queue_name(text: str) -> str:
    r"""Return a name as the client reads it: a private queue of this computer needs no `.\` here."""
    return f".\\{text}" if text.lower().startswith(_PRIVATE) else text
