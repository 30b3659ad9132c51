"""Textual similarity of a requirement, the tests that name it, and a line of code.

The code uses the names of the documents, and so do the requirements and the tests: the name
DirectoryOffline in a requirement distinguishes `qm.directory_offline = True` from its neighbours.
Words are compared as in tools that recover traceability links. The weight of a word grows with its
rarity in the collection, and the similarity of two texts is the cosine of the angle between their
vectors.
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
    """Return the names in a text and the words inside them, in lower case; numbers by value.

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
    """The words of a collection of texts."""

    def __init__(self, texts: Mapping[str, frozenset[str]]) -> None:
        self._texts = texts
        count = Counter(word for found in texts.values() for word in found)
        self._weights = {word: math.log(len(texts) / number) ** 2 for word, number in count.items()}
        self._squares = {key: self._square(found) for key, found in texts.items()}

    def likeness(self, key: str, text: frozenset[str]) -> float:
        """Return the similarity of a text in the collection to another one, from 0 to 1.

        Words that are not in the collection do not count.
        """
        length = math.sqrt(self._squares[key] * self._square(text))
        return self._square(self._texts[key] & text) / length if length else 0.0

    def _square(self, found: frozenset[str]) -> float:
        return sum(self._weights.get(word, 0.0) for word in found)
