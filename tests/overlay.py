"""A wrapper that replaces some attributes of a real object.

A test passes it to the code under test in the object's place.
"""

from __future__ import annotations

from typing import Any


class Overlay:
    """An object with some attributes of the test; the others are read from the real object."""

    def __init__(self, real: object, **replaced: object) -> None:
        self._real = real
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (as the real object has it)
        return getattr(self._real, name)


def overlay(real: object, **replaced: object) -> Any:  # noqa: ANN401 (stands for an object of the real one's class)
    """Return the real object with some attributes replaced; the real one does not change."""
    return Overlay(real, **replaced)
