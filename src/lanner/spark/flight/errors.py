"""The errors of the Flight service, beside those of the queue manager."""

from __future__ import annotations

from lanner.model.errors import LannerError


class EpochChanged(LannerError):
    """The store was restored from a backup, so numbers of the visibility sequence from before are not valid."""


class LeaseHeld(LannerError):
    """Another process reads the queue under this name."""


class LeaseLost(LannerError):
    """Another process took over this reader, or it was forgotten."""


class StageUnknown(LannerError):
    """Messages are to be published that were never staged to the end, or are no longer there."""


class PublicationDiffers(LannerError):
    """A batch is published again, with other messages than the first time."""


class NotAuthenticated(LannerError):
    """User, password or token are not right."""


class TooBusy(LannerError):
    """More is asked for at once than the queue manager gives; try again."""


class TicketRefused(LannerError):
    """A reader process does not take a ticket; the queue manager itself may."""
