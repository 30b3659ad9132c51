"""The errors of the Flight service, in addition to those of the queue manager."""

from __future__ import annotations

from lanner.model.errors import LannerError


class EpochChanged(LannerError):
    """The store was restored from a backup, so earlier visibility numbers are invalid."""


class LeaseHeld(LannerError):
    """Another process reads the queue under this name."""


class LeaseLost(LannerError):
    """Another process took over this reader, or it was forgotten."""


class StageUnknown(LannerError):
    """Messages to publish were never staged completely, or no longer exist."""


class PublicationDiffers(LannerError):
    """A batch is published again with other messages than the first time."""


class NotAuthenticated(LannerError):
    """User, password or token are wrong."""


class TooBusy(LannerError):
    """A limit on concurrent calls, logons or streams is reached; try again."""


class TicketRefused(LannerError):
    """A reader process refused a ticket; the queue manager itself may accept it."""
