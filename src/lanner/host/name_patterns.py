"""Patterns for names, as in file names: `*`, `?` and `[...]`.

Clients choose them. `fnmatch` keeps the last 32,768 patterns, and a compiled one takes 60 times as
much memory as its text.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Final

from lanner.model.errors import InvalidParameter

# Not in the specification: characters of a pattern. Queue names are shorter than this.
MAX_PATTERN: Final = 256


def name_pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that returns whether a pattern fits a whole name. Both are case-sensitive.

    Raises InvalidParameter if the pattern is too long.
    """
    size = len(pattern.strip("*"))
    if size > MAX_PATTERN:
        raise InvalidParameter(f"a pattern of {size} characters, at most {MAX_PATTERN}")
    return re.compile(fnmatch.translate(pattern)).match
