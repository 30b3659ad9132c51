from __future__ import annotations

from tests.spark.conftest import start

__all__ = ["start"]
