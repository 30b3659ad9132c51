"""Rules for every message that a remote program sends, whatever the protocol.

MS-MQMP 3.1.5.2, MC-MQAC 3.17.4.1.48.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanner.host.names import named
from lanner.model.enums import EnqueueStatus, SenderIdentifierType
from lanner.model.errors import AccessDenied, InsufficientResources, IOTimeout, StatusError
from lanner.security.scopes import ADMIN, has_scope

if TYPE_CHECKING:
    from lanner.engine import Engine
    from lanner.model.live import OpenQueueDescriptor
    from lanner.security.identity import Identity
    from lanner.wire.builder import MessageProperties


def check_sender(properties: MessageProperties, descriptor: OpenQueueDescriptor, caller: Identity) -> None:
    """Raise AccessDenied if a message names a sender other than the caller.

    Queues grant rights to the sender that a message names (MS-MQQB 3.1.5.8.3). Administrators may
    name any, but not with a token that is limited.
    """
    claimed = properties.sender_identifier
    if not claimed or (caller.is_administrator and has_scope(caller, ADMIN)):
        return
    is_own = properties.sender_identifier_type is SenderIdentifierType.SID and claimed == caller.sid.pack()
    if not is_own:
        raise AccessDenied(f"{descriptor.format_name}: {caller.name} cannot send in the name of another account")


def name_here(engine: Engine, properties: MessageProperties) -> None:
    """Replace "." in queue names, because each computer would read it as its own name."""
    computer = engine.queue_manager.computer_name
    if (name := properties.administration_queue_format_name) is not None:
        properties.administration_queue_format_name = named(name, computer)
    if (name := properties.response_queue_format_name) is not None:
        properties.response_queue_format_name = named(name, computer)


def refusal(status: EnqueueStatus, descriptor: OpenQueueDescriptor) -> StatusError:
    """Return the error for a message that Enqueue Message To An Open Queue refused."""
    if status is EnqueueStatus.TIMED_OUT_IN_TRANSIT:
        return IOTimeout(f"{descriptor.format_name}: its time ran out before it was in the queue")
    return InsufficientResources(f"{descriptor.format_name}: {status.name}")
