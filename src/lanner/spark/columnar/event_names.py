r"""What the log of events is called where queues have names."""

from __future__ import annotations

from typing import Final

EVENTS_NAME: Final = "system$;EVENTS"
EVENTS_KIND: Final = "events"
# No queue has it.
EVENTS_NUMBER: Final = 0


def is_events(name: str) -> bool:
    """Whether the log is meant, in any case of its letters."""
    return name.strip().lower().removeprefix(".\\") == EVENTS_NAME.lower()
