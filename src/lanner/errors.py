"""Every error this package raises on purpose: one class per status code, each with its `.status`."""

from lanner.model.errors import *  # noqa: F403 (the public front of that module)
from lanner.model.errors import __all__  # noqa: F401 (names what the star brings)
