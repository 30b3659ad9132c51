"""The settings of an embedded queue manager that listens on an address."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from lanner.host.addresses import addresses_of
from lanner.model.errors import InvalidParameter

if TYPE_CHECKING:
    from lanner.transfer.settings import TransferSettings


def bound_settings(
    bind: str | None, transfer: TransferSettings | None, settings: dict[str, object]
) -> dict[str, object]:
    """Return the engine's settings for a queue manager with this address, or without one."""
    if bind is None:
        if transfer is not None:
            raise InvalidParameter("transfer settings without an address to use them on: give bind, too")
        return settings
    try:
        ipaddress.ip_address(bind)
    except ValueError:
        raise InvalidParameter(
            f"bind {bind!r} is no address; one of this machine is meant, such as 127.0.0.2, or 0.0.0.0 for all"
        ) from None
    return {"local_addresses": addresses_of(bind)} | settings
