"""What the pipeline refuses, beside the errors of the queue manager itself."""

from __future__ import annotations

from lanner.model.errors import LannerError


class EpochChanged(LannerError):
    """The store was restored from a backup: numbers of the visibility sequence from before mean nothing now."""


class LeaseHeld(LannerError):
    """Somebody else reads the queue under this name."""


class LeaseLost(LannerError):
    """This reader was taken over, or forgotten."""


class StageUnknown(LannerError):
    """Messages are to be published that were never staged to the end, or are no longer there."""


class PublicationDiffers(LannerError):
    """A batch is published again, with other messages than the first time."""


class NotAuthenticated(LannerError):
    """User, password or token are not right."""


class TooBusy(LannerError):
    """More is asked for at once than the queue manager gives; try again."""
