"""The name under which the event log is read like a queue."""

from __future__ import annotations

from typing import Final

EVENTS_NAME: Final = "system$;EVENTS"
EVENTS_KIND: Final = "events"
# No queue has this number.
EVENTS_NUMBER: Final = 0


def is_events(name: str) -> bool:
    """Return whether a name means the event log. Case does not matter."""
    return name.strip().lower().removeprefix(".\\") == EVENTS_NAME.lower()
