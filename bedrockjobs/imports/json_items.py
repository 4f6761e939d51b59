"""Parses JSON and records the line of each item.

Duplicate keys within an object are errors; Python's parser would silently use the last one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from bedrockjobs.base.jsontext import NumberTooLong, check_depth, whole_number
from bedrockjobs.imports.imported import Position, shortened

_BLANK = re.compile(r"[ \t\r\n]*")
_PIECES = re.compile(r'"(?:[^"\\]|\\.)*+"|(?P<digits>[0-9]+)')


class Item(NamedTuple):
    """A value with its line, and with its key if it is in an object; in a list, the key is empty."""

    key: str
    value: Any
    line: int


def value_of(text: str) -> Any:
    """Parse a JSON text; raises ValueError."""
    check_depth(text)
    reader = _JSONParser(text)
    value = reader.value()
    if not reader.ended:
        raise reader.wrong("Extra data")
    return value


def members(text: str) -> Iterator[Item]:
    """Yield the members of an object, including duplicates; raises ValueError."""
    check_depth(text)
    reader = _JSONParser(text)
    if not reader.took("{"):
        raise reader.wrong("Expecting an object")
    yield from reader.items("}", keys=True)
    if not reader.ended:
        raise reader.wrong("Extra data")


def document(text: str, lists: Collection[str]) -> tuple[Any, dict[str, list[Position]]]:
    """Parse a JSON text and locate the entries of its lists; raises ValueError.

    ``lists`` names the members of the top-level object whose entries are located. If the top level is a list
    itself, its entries are located under the first of these names.
    """
    check_depth(text)
    reader = _JSONParser(text)
    value, places = reader.whole(lists)
    if not reader.ended:
        raise reader.wrong("Extra data")
    return value, places


def values(text: str) -> Iterator[Item]:
    """Yield the values that follow one another in a text; of a list, yield its items. Raises ValueError."""
    check_depth(text)
    reader = _JSONParser(text)
    while not reader.ended:
        if reader.took("["):
            yield from reader.items("]", keys=False)
        else:
            yield Item("", reader.value(), reader.line)


class _JSONParser:
    """Parses a text in one pass."""

    def __init__(self, text: str) -> None:
        self.line = 1
        """The line on which the last value began."""
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

    def _count(self) -> None:
        """Update the line number."""
        self.line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at

    def value(self) -> Any:
        self._count()
        try:
            value, end = _DECODER.raw_decode(self._text, self._at)
        except _NoValue as error:
            raise ValueError(f"line {self.line}: {error}") from None
        except NumberTooLong as error:
            raise ValueError(f"line {self._line_of_long_number()}: {error}") from None
        self._pass(end)
        return value

    def _line_of_long_number(self) -> int:
        """Return the line of the first number in the next value that has too many digits."""
        long = sys.get_int_max_str_digits() + 1
        ends = (
            found.end()
            for found in _PIECES.finditer(self._text, self._at)
            if len(found["digits"] or "") >= long
        )
        return self.line + self._text.count("\n", self._at, next(ends))

    def items(self, closing: str, *, keys: bool, read: Callable[[str], Any] | None = None) -> Iterator[Item]:
        """Yield items up to the character ``closing``; ``read``, if given, parses the value of a key."""
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
            else:
                self._count()
            line = self.line
            value = self.value() if read is None else read(key)
            yield Item(key, value, line)
            if self.took(closing):
                return
            if not self.took(","):
                raise self.wrong("Expecting ',' delimiter")

    def whole(self, lists: Collection[str]) -> tuple[Any, dict[str, list[Position]]]:
        """Parse a value; return it with the positions of the entries of its ``lists``."""
        places: dict[str, list[Position]] = {key: [] for key in lists}

        def member(key: str) -> Any:
            return self._entries(places[key]) if key in places else self.value()

        if self._text.startswith("[", self._at):
            return self._entries(places[next(iter(lists))]), places
        if not self._text.startswith("{", self._at):
            return self.value(), places
        return self._object(member)[0], places

    def _entries(self, places: list[Position]) -> Any:
        """Parse a list or an object of entries, and record the position of each entry in ``places``."""

        def entry(_: str) -> Any:
            if not self._text.startswith("{", self._at):
                self._count()
                places.append(Position(self.line, {}))
                return self.value()
            value, place = self._object()
            places.append(place)
            return value

        if self.took("["):
            return [item.value for item in self.items("]", keys=False, read=entry)]
        if not self._text.startswith("{", self._at):
            return self.value()
        value, table = self._object(entry)
        places[:] = [
            Position(line, place.keys) for line, place in zip(table.keys.values(), places, strict=True)
        ]
        return value

    def _object(self, read: Callable[[str], Any] | None = None) -> tuple[dict[str, Any], Position]:
        """Parse an object; return it with the lines of its keys."""
        self._count()
        line = self.line
        self.took("{")
        value: dict[str, Any] = {}
        place = Position(line, {})
        for item in self.items("}", keys=True, read=read):
            if item.key in value:
                raise ValueError(f"line {item.line}: {_twice(item.key)}")
            value[item.key] = item.value
            place.keys[item.key] = item.line
        return value, place

    def _pass(self, at: int) -> None:
        self._at = _BLANK.match(self._text, at).end()  # type: ignore[union-attr]


class _NoValue(ValueError):
    """A value is not valid in JSON, or has duplicate keys."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise _NoValue(_twice(key))
        members[key] = value
    return members


def _twice(key: str) -> str:
    return f"the key {shortened(key)} is given twice"


def _constant(name: str) -> Any:
    raise _NoValue(f"expected a number, not {name}")


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant, parse_int=whole_number)
