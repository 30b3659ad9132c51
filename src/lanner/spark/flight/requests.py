"""Strict parsing of the JSON in requests: a mistyped key is an error."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Final

from lanner.model.errors import InvalidParameter

MAX_NUMBER: Final = (1 << 63) - 1
MAX_EPOCH: Final = (1 << 64) - 1
# Not in the specification: bytes of one request.
MAX_SIZE: Final = 1 << 20


class Request:
    """One JSON object. Each getter allows a key; `done` refuses all other keys."""

    def __init__(self, values: Mapping[str, object], what: str) -> None:
        self._values = values
        self._what = what
        self._known: set[str] = set()

    @classmethod
    def parse(cls, data: bytes, what: str) -> Request:
        """Parse a JSON object; no data means an empty one. Raises InvalidParameter."""
        if len(data) > MAX_SIZE:
            raise InvalidParameter(f"{what}: {len(data)} bytes, at most {MAX_SIZE} are read")
        try:
            values = json.loads(data or b"{}")
        except (ValueError, RecursionError):
            raise InvalidParameter(f"{what}: not JSON, which is expected") from None
        if not isinstance(values, dict):
            raise InvalidParameter(f"{what}: a JSON object is expected")
        return cls(values, what)

    def wrong(self, key: str, expected: str) -> InvalidParameter:
        shown = repr(self._values.get(key))
        return InvalidParameter(f"{self._what}: {key} = {shown[:100]}: {expected} expected")

    def _get(self, key: str) -> object:
        self._known.add(key)
        return self._values.get(key)

    def text(self, key: str) -> str:
        """Return a required text."""
        value = self._get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "text")
        return value

    def text_or(self, key: str, default: str | None) -> str | None:
        return default if self._get(key) is None else self.text(key)

    def number(self, key: str, default: int | None = None) -> int:
        """Return a non-negative number. Without a default it is required."""
        value = self.number_or_none(key)
        if value is None:
            if default is None:
                raise self.wrong(key, "a number")
            return default
        return value

    def number_or_none(self, key: str, most: int = MAX_NUMBER) -> int | None:
        value = self._get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise self.wrong(key, f"a number from 0 to {most}")
        return value

    def text_or_number(self, key: str, default: str) -> str | int:
        return self.number(key) if isinstance(self._get(key), int) else self.text_or(key, default) or default

    def flag(self, key: str, *, default: bool) -> bool:
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def columns(self, key: str) -> str | list[str]:
        """Return a text, or a list of texts."""
        return self.texts(key) if isinstance(self._get(key), list) else self.text_or(key, "all") or "all"

    def texts(self, key: str) -> list[str]:
        value = self._get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of texts")
        return value

    def octets(self, key: str) -> bytes:
        return self._octets(key, self.text(key))

    def octets_list(self, key: str) -> list[bytes]:
        return [self._octets(key, text) for text in self.texts(key)]

    def _octets(self, key: str, text: str) -> bytes:
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise self.wrong(key, "hexadecimal digits") from None

    def objects(self, key: str) -> list[Request]:
        value = self._get(key)
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, "a list of JSON objects")
        return [Request(item, f"{self._what}, {key}") for item in value]

    def anything(self, key: str) -> object:
        """Return a value that another parser checks."""
        return self._get(key)

    def has(self, key: str) -> bool:
        return self._get(key) is not None

    def done(self) -> None:
        """Raise InvalidParameter if there is a key that no getter has allowed."""
        for key in self._values:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1, 0)
                hint = f"; the nearest known one is {near[0]}" if near else ""
                raise InvalidParameter(f"{self._what}: unknown key {key!r}{hint}")
