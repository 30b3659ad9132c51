"""Which way to go where a default of the documents is not safe on today's networks.

The setting `security.profile` selects it. DOCUMENT is what the documents say; SAFE is what
docs/security.md lists.
"""

from __future__ import annotations

import enum


class Profile(enum.Enum):
    """The values of `security.profile`."""

    SAFE = "safe"
    DOCUMENT = "document"
