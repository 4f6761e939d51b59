"""Name patterns, matched as the server matches them: SQLite's GLOB, without SQLite.

``*`` is any text, ``?`` one character, ``[a-z]`` one of a set and ``[^a-z]`` one outside it; case counts, and
there is no escape but a set. A set without an end matches nothing. Takes time proportional to the length of
the pattern times that of the name, whatever they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

PATTERNS_READ_MAX = 1_024
"""Patterns kept as read: more than a worker asks for or a rules file has."""


class _Set(NamedTuple):
    """What one character of a name may be: inside these ranges, or outside all of them."""

    ranges: tuple[tuple[str, str], ...]
    inside: bool

    def holds(self, character: str) -> bool:
        return any(low <= character <= high for low, high in self.ranges) == self.inside


_ANY_TEXT = None
_ANY_CHARACTER = _Set((), inside=False)
_NOTHING = (_Set((), inside=True),)


def glob(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern."""
    parts = _read(pattern)
    at = part = 0
    star, from_star = -1, 0
    while at < len(name):
        here = parts[part] if part < len(parts) else _NOTHING[0]
        if here is _ANY_TEXT:
            star, from_star = part, at
            part += 1
        elif here.holds(name[at]):
            at, part = at + 1, part + 1
        elif star >= 0:
            from_star += 1
            at, part = from_star, star + 1
        else:
            return False
    return all(rest is _ANY_TEXT for rest in parts[part:])


def is_plain(text: str) -> bool:
    """Tell whether a pattern matches itself alone."""
    return not set("*?[") & set(text)


@lru_cache(maxsize=PATTERNS_READ_MAX)
def _read(pattern: str) -> tuple[_Set | None, ...]:
    found: list[_Set | None] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            found.append(_ANY_TEXT)
        elif character == "?":
            found.append(_ANY_CHARACTER)
        elif character == "[":
            one, at = _read_set(pattern, at)
            if one is None:
                return _NOTHING
            found.append(one)
        else:
            found.append(_Set(((character, character),), inside=True))
    return tuple(found)


def _read_set(pattern: str, at: int) -> tuple[_Set | None, int]:
    """Read a set that begins behind its bracket; return it, None where it has no end, and where it ends."""
    inside = pattern[at : at + 1] != "^"
    at += not inside
    ranges: list[tuple[str, str]] = []
    before = ""  # the character that a hyphen would make the low end of a range
    if pattern[at : at + 1] == "]":
        ranges.append(("]", "]"))
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        character = pattern[at]
        if character == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            ranges.append((before, pattern[at + 1]))
            before = ""
            at += 2
        else:
            ranges.append((character, character))
            before = character
            at += 1
    return (_Set(tuple(ranges), inside), at + 1) if at < len(pattern) else (None, at)
