"""What messages that are sent from here carry in an Extension that is empty; `client.telemetry` sets it."""

from __future__ import annotations

from collections.abc import Callable

# Called for each such message before it is signed; None: nothing is carried.
carrier: Callable[[], bytes] | None = None
