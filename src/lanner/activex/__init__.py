"""The object model of Message Queuing for remote clients: one module for each coclass (MC-MQAC section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from lanner.activex.environment import Environment
    from lanner.com.objects import ComObject

# By CLSID, how an object of a coclass is made for a client that asks for one.
COCLASSES: Final[dict[UUID, Callable[[Environment], ComObject]]] = {}
