"""Decides whether to forward a message that is addressed to another queue manager.

See MS-MQQB 3.1.5.8.5, and "Safe defaults" in DECISIONS. The specification says to forward every
message for another queue manager, which would let any computer relay messages through this one to
anywhere. In profile "safe" only a routing server forwards, and only for known peers, to computers
in the directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from lanner.engine.directory_events import ROUTING_DATA_LIFETIME
from lanner.transfer.addresses import get_destination_info, host_names
from lanner.transfer.routing import get_queue_manager
from lanner.wire import fields
from lanner.wire.format_name import DirectFormatName

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.transfer.identities import Standing
    from lanner.wire.format_name import FormatName

# Not in the specification: number of destinations whose verdict is cached.
_MAX_REMEMBERED: Final = 4096


class Forwarding:
    """Decides which messages for other queue managers are forwarded.

    The caller holds the store's lock.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # By QueueManagerAddress and destination: the time until which the verdict holds, and the
        # reason for refusing; empty if the message is forwarded.
        self._remembered: dict[tuple[bytes, int, bytes], tuple[float, str]] = {}

    def refusal(self, standing: Standing, packet: bytes, name: FormatName | None) -> str:
        """Return why a peer's message is not forwarded; empty if it is."""
        if not self._engine.queue_manager.routing_server:
            return "this computer is no routing server"
        if not standing.is_known:
            return "the peer is not known: see lanner peer list"
        if name is None:
            return ""
        key = fields.queue_manager_address(packet), *fields.destination(packet)
        due, text = self._remembered.get(key, (0.0, ""))
        now = self._engine.monotonic()
        if due <= now:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            text = self._refusal_of(UUID(bytes_le=key[0]), name)
            self._remembered[key] = (now + ROUTING_DATA_LIFETIME, text)
        return text

    def _refusal_of(self, address: UUID, name: FormatName) -> str:
        computer = get_queue_manager(self._engine, address)
        if computer is None:
            return f"queue manager {address} is not in the directory"
        if isinstance(name, DirectFormatName):
            hosts = {host.lower() for host in host_names(computer)}
            return "" if name.host.lower() in hosts else f"{name.host} is not the name of queue manager {address}"
        info = get_destination_info(self._engine, name)
        if info is None or info.queue_manager_guid != address:
            return f"the queue is not one of queue manager {address}"
        return ""
