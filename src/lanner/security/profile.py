"""The choice where a default of the documents is not safe on today's networks.

The setting `security.profile` selects it. DOCUMENT follows the documents; SAFE follows
docs/security.md.
"""

from __future__ import annotations

import enum


class Profile(enum.Enum):
    """The values of `security.profile`."""

    SAFE = "safe"
    DOCUMENT = "document"
