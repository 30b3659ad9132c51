"""The content that sent messages carry in an empty Extension; set by `client.telemetry`."""

from __future__ import annotations

from collections.abc import Callable

# Called for each such message before it is signed; None: nothing is carried.
carrier: Callable[[], bytes] | None = None
