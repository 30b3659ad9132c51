"""How much a requirement, the tests that name it and a line of code speak of the same things.

The code uses the names of the documents, and so do the requirements and the tests:
`qm.directory_offline = True` is told from its neighbours by DirectoryOffline in the requirement.
Words are compared as tools that recover links between requirements and code do it: a word counts
the more, the fewer texts of the collection have it, and two texts are as alike as the cosine of the
angle between their vectors.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping

_NAME = re.compile(r"0[xX][0-9A-Fa-f]+(?:_[0-9A-Fa-f]+)*\b|\w+")
_PART = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MIN_STEM = 3


def words(text: str) -> frozenset[str]:
    """Return the names of a text and the words inside them, in small letters; numbers by their value.

    DirectoryOffline and directory_offline are the same name.
    """
    found = set()
    for name in _NAME.findall(text):
        if name[0].isdigit():
            with contextlib.suppress(ValueError):  # 3rd
                found.add(str(int(name, 0)))
        else:
            found.add(name.replace("_", "").lower())
            found.update(_singular(part.lower()) for part in _PART.findall(name))
    return frozenset(found)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > _MIN_STEM and word.endswith("s") and not word.endswith("ss") else word


class Collection:
    """The words of some texts."""

    def __init__(self, texts: Mapping[str, frozenset[str]]) -> None:
        self._texts = texts
        count = Counter(word for found in texts.values() for word in found)
        self._weights = {word: math.log(len(texts) / number) ** 2 for word, number in count.items()}
        self._squares = {key: self._square(found) for key, found in texts.items()}

    def likeness(self, key: str, text: frozenset[str]) -> float:
        """Return how alike a text of the collection and another one are, from 0 to 1.

        Words that the collection lacks do not count.
        """
        length = math.sqrt(self._squares[key] * self._square(text))
        return self._square(self._texts[key] & text) / length if length else 0.0

    def _square(self, found: frozenset[str]) -> float:
        return sum(self._weights.get(word, 0.0) for word in found)
