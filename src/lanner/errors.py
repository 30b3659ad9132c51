"""All errors that this package raises deliberately: one class per status code, with a `status`."""

from lanner.model.errors import *  # noqa: F403 (the public front of that module)
from lanner.model.errors import __all__  # noqa: F401 (names what the star brings)
