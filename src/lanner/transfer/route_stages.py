"""The stages of an outgoing queue on its way to a session, and what moves it from one to the next (MS-MQQB 3.1.5.2).

The table names every pair of stage and step that can occur. A step that it does not name in a stage
is an error of this program, and the stage stays as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Stage(enum.Enum):
    """Where an outgoing queue is on its way to a session."""

    IDLE = enum.auto()  # no session, and no attempt at one
    RESOLVING = enum.auto()  # 3.1.5.2.1
    CONNECTING = enum.auto()  # 3.1.5.2.2, 3.1.5.2.3
    ATTACHED = enum.auto()  # it has a session, perhaps one whose handshake is not done
    WAITING_RECONNECT = enum.auto()  # 3.1.2.3: the Session Retry Connect Timer runs


class Step(enum.Enum):
    """What can happen to it."""

    RESOLVE = enum.auto()  # the addresses of its next hops are asked for
    CONNECT = enum.auto()  # a next hop is pinged, or connected to
    ATTACH = enum.auto()  # it gets a session
    WAIT = enum.auto()  # the attempt failed or the session ended, and there is something to send
    REST = enum.auto()  # there is nothing to send, or nothing may be sent


TRANSITIONS: Final[Mapping[tuple[Stage, Step], Stage]] = {
    (Stage.IDLE, Step.RESOLVE): Stage.RESOLVING,
    (Stage.WAITING_RECONNECT, Step.RESOLVE): Stage.RESOLVING,
    (Stage.RESOLVING, Step.CONNECT): Stage.CONNECTING,
    # After a ping; or for another queue manager at the same address.
    (Stage.CONNECTING, Step.CONNECT): Stage.CONNECTING,
    # The next hop of several.
    (Stage.WAITING_RECONNECT, Step.CONNECT): Stage.CONNECTING,
    # Acknowledgments go back on the session of their messages, also where no address is known.
    (Stage.IDLE, Step.ATTACH): Stage.ATTACHED,
    (Stage.RESOLVING, Step.ATTACH): Stage.ATTACHED,
    (Stage.CONNECTING, Step.ATTACH): Stage.ATTACHED,
    (Stage.WAITING_RECONNECT, Step.ATTACH): Stage.ATTACHED,
    # The directory does not know the way.
    (Stage.IDLE, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.WAITING_RECONNECT, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.RESOLVING, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.CONNECTING, Step.WAIT): Stage.WAITING_RECONNECT,
    (Stage.ATTACHED, Step.WAIT): Stage.WAITING_RECONNECT,
    **{(stage, Step.REST): Stage.IDLE for stage in Stage},
}
