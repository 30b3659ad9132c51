"""The stages of an outgoing queue on its way to a session, and their transitions.

MS-MQQB 3.1.5.2. The table has every pair of stage and step that can occur. A pair that is not in
the table is a bug; the stage does not change then.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Stage(enum.Enum):
    """The stage of an outgoing queue on its way to a session."""

    IDLE = enum.auto()  # no session, and no attempt at one
    RESOLVING = enum.auto()  # 3.1.5.2.1
    CONNECTING = enum.auto()  # 3.1.5.2.2, 3.1.5.2.3
    ATTACHED = enum.auto()  # it has a session, perhaps one whose handshake is not done
    WAITING_RECONNECT = enum.auto()  # 3.1.2.3: the Session Retry Connect Timer runs


class Step(enum.Enum):
    """The steps that lead from one stage to another."""

    RESOLVE = enum.auto()  # resolve the addresses of its next hops
    CONNECT = enum.auto()  # ping or connect to a next hop
    ATTACH = enum.auto()  # attach a session
    WAIT = enum.auto()  # the attempt failed or the session ended, and there is something to send
    REST = enum.auto()  # there is nothing to send, or nothing may be sent


TRANSITIONS: Final[Mapping[tuple[Stage, Step], Stage]] = {
    (Stage.IDLE, Step.RESOLVE): Stage.RESOLVING,
    (Stage.WAITING_RECONNECT, Step.RESOLVE): Stage.RESOLVING,
    (Stage.RESOLVING, Step.CONNECT): Stage.CONNECTING,
    # After a ping, or for another queue manager at the same address.
    (Stage.CONNECTING, Step.CONNECT): Stage.CONNECTING,
    # The next one of several next hops.
    (Stage.WAITING_RECONNECT, Step.CONNECT): Stage.CONNECTING,
    # Acknowledgments go back on the session of their messages, even if no address is known.
    (Stage.IDLE, Step.ATTACH): Stage.ATTACHED,
    (Stage.RESOLVING, Step.ATTACH): Stage.ATTACHED,
    (Stage.CONNECTING, Step.ATTACH): Stage.ATTACHED,
    (Stage.WAITING_RECONNECT, Step.ATTACH): Stage.ATTACHED,
    # The directory does not know the destination.
    (Stage.IDLE, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.WAITING_RECONNECT, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.RESOLVING, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.CONNECTING, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.ATTACHED, Step.WAIT): Stage.WAITING_RECONNECT,
    **{(stage, Step.REST): Stage.IDLE for stage in Stage},
}
