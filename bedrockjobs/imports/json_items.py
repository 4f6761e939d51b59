"""Reading a JSON text item by item, each with its line: the members of an object, the items of a list.

A key that is given twice in one item is an error, for Python's reader takes the last one in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bedrockjobs.base.jsontext import check_depth
from bedrockjobs.imports.found import shortened

_BLANK = re.compile(r"[ \t\r\n]*")


class Item(NamedTuple):
    """A value, where it begins, and its key; empty in a list."""

    key: str
    value: Any
    line: int


def value_of(text: str) -> Any:
    """Return the value of a JSON text; raises ValueError with what is wrong with it."""
    check_depth(text)
    reader = _Reader(text)
    value = reader.value()
    if not reader.ended:
        raise reader.wrong("Extra data")
    return value


def members(text: str) -> Iterator[Item]:
    """Yield the members of an object, also of two with the same key; raises ValueError."""
    check_depth(text)
    reader = _Reader(text)
    if not reader.took("{"):
        raise reader.wrong("Expecting an object")
    yield from reader.items("}", keys=True)
    if not reader.ended:
        raise reader.wrong("Extra data")


def document(text: str, inner: str) -> tuple[Any, list[int]]:
    """Return the value of a JSON text, and the lines of the items in it; raises ValueError.

    They are those of a list, or of what an object has as its member ``inner``.
    """
    check_depth(text)
    reader = _Reader(text)
    value, lines = reader.whole(inner)
    if not reader.ended:
        raise reader.wrong("Extra data")
    return value, lines


def values(text: str) -> Iterator[Item]:
    """Yield the values of a text, one after another, and of a list its items; raises ValueError."""
    check_depth(text)
    reader = _Reader(text)
    while not reader.ended:
        if reader.took("["):
            yield from reader.items("]", keys=False)
        else:
            yield Item("", reader.value(), reader.line)


class _Reader:
    """Goes through a text once."""

    def __init__(self, text: str) -> None:
        self.line = 1
        """Where the last value began."""
        self._text = text
        self._at = 0
        self._counted = 0
        self._pass(0)

    @property
    def ended(self) -> bool:
        return self._at == len(self._text)

    def wrong(self, what: str) -> ValueError:
        return json.JSONDecodeError(what, self._text, self._at)

    def took(self, mark: str) -> bool:
        if self._text.startswith(mark, self._at):
            self._pass(self._at + 1)
            return True
        return False

    def value(self) -> Any:
        self.line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except _NoValue as error:
            raise ValueError(f"line {self.line}: {error}") from None
        self._pass(end)
        return value

    def items(self, closing: str, *, keys: bool, inner: str = "") -> Iterator[Item]:
        if self.took(closing):
            return
        while True:
            key = ""
            if keys:
                if not self._text.startswith('"', self._at):
                    raise self.wrong("Expecting property name enclosed in double quotes")
                key = self.value()
                if not self.took(":"):
                    raise self.wrong("Expecting ':' delimiter")
            line = self.line
            value = self.whole("") if inner and key == inner else self.value()
            yield Item(key, value, line if keys else self.line)
            if self.took(closing):
                return
            if not self.took(","):
                raise self.wrong("Expecting ',' delimiter")

    def whole(self, inner: str) -> tuple[Any, list[int]]:
        """Read a value that is the text's, or its member ``inner``, with the lines of its items."""
        if self.took("["):
            items = list(self.items("]", keys=False))
            return [item.value for item in items], [item.line for item in items]
        if not self.took("{"):
            return self.value(), []
        items = list(self.items("}", keys=True, inner=inner))
        within = [item for item in items if inner and item.key == inner]
        lines = within[0].value[1] if within else [item.line for item in items]
        pairs = [(item.key, item.value[0] if inner and item.key == inner else item.value) for item in items]
        try:
            return _members(pairs), lines
        except _NoValue as error:
            raise ValueError(f"line {self.line}: {error}") from None

    def _pass(self, at: int) -> None:
        self._at = _BLANK.match(self._text, at).end()  # type: ignore[union-attr]


class _NoValue(ValueError):
    """A value is none of JSON's, or says two things."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _NoValue(f"the key {shortened(key)} is given twice")
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise _NoValue(f"expected a number, not {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant)
