r"""Queue names in URLs: `private$\orders`, a path name, or a format name; write %5C for \."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

_PRIVATE = "private$\\"

QueueName = Annotated[
    str,
    Path(
        description=r"`private$\orders`, a path name such as `.\orders`, a format name, or `system$;DEADLETTER`; "
        r"\ is %5C."
    ),
]


def queue_name(text: str) -> str:
    r"""Return the queue name for a name in a URL; a local private queue needs no `.\` there."""
    return f".\\{text}" if text.lower().startswith(_PRIVATE) else text
