from __future__ import annotations

from tests.client.conftest import start

# Queue managers in this process, for what embeds them.
__all__ = ["start"]
