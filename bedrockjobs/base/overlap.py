"""What two name patterns have in common: again patterns, so that whoever asks by one can be given less.

``common("mail/*", "*")`` is ``mail/*``; ``*a*`` and ``*b*`` have ``*a*b*`` and ``*b*a*`` in common. It never
says less than is true by saying more: what it cannot word is refused with ``TooManyPatterns``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from bedrockjobs.base.config import GLOB_CHARS_MAX, GLOB_STARS_MAX
from bedrockjobs.base.glob import glob, is_plain

COMMON_MAX = 32
"""Patterns that two, or a list and a list, may have in common: each is asked for by itself."""

STEPS_MAX = 20_000
"""Pairs of places in two patterns that are looked at: two of 100 characters with stars have 10,000."""

PARTS_MAX = 300
"""Parts of two patterns together that are compared: each is two calls deeper, of 1,000 that Python allows."""

PAIRS_KEPT_MAX = 1_024
"""Pairs of patterns of which the common ones are remembered: workers ask for the same again and again."""

_TOKEN = re.compile(r"\*+|\[\^?\]?[^\]]*\]|\[.*|.", re.DOTALL)


class TooManyPatterns(ValueError):
    """What two patterns have in common cannot be said in a few patterns."""


@lru_cache(maxsize=PAIRS_KEPT_MAX)
def common(one: str, other: str) -> tuple[str, ...]:
    """Return patterns for the names that match both; none where there is no such name.

    Raises TooManyPatterns.
    """
    if one == other or other == "*":
        return (one,)
    if one == "*":
        return (other,)
    if is_plain(one):
        return (one,) if glob(one, other) else ()
    if is_plain(other):
        return (other,) if glob(other, one) else ()
    parts = _tokens(one), _tokens(other)
    if sum(map(len, parts)) > PARTS_MAX:
        raise TooManyPatterns("the patterns are too long to be compared")
    found = _Common(*parts).at(0, 0)
    if any(len(text) > GLOB_CHARS_MAX or text.count("*") > GLOB_STARS_MAX for text in found):
        raise TooManyPatterns("what they have in common is too long for a pattern")
    return tuple(sorted(found))


def common_of_all(wanted: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return patterns for the names that match one of each list; raises TooManyPatterns."""
    allowed = tuple(allowed)
    found = dict.fromkeys(text for one in wanted for other in allowed for text in common(one, other))
    if len(found) > COMMON_MAX:
        raise TooManyPatterns(f"expected at most {COMMON_MAX} patterns that they have in common")
    return tuple(found)


def lies_within(pattern: str, allowed: Iterable[str]) -> bool:
    """Tell whether every name that matches a pattern matches one of those allowed, as far as one can tell."""
    try:
        return any(pattern in common(pattern, other) for other in allowed)
    except TooManyPatterns:
        return False


def _tokens(pattern: str) -> list[str]:
    """Return a pattern in parts: a star, or what stands for one character."""
    return ["*" if part[0] == "*" else part for part in _TOKEN.findall(pattern)]


class _Common:
    """The common patterns of the rests of two patterns, from each pair of places on."""

    def __init__(self, one: list[str], other: list[str]) -> None:
        self._one, self._other = one, other
        self._known: dict[tuple[int, int], frozenset[str]] = {}

    def at(self, i: int, j: int) -> frozenset[str]:
        """Return the common patterns from two places on; the deepest call is as deep as both are long."""
        known = self._known.get((i, j))
        if known is None:
            if len(self._known) >= STEPS_MAX:
                raise TooManyPatterns("the patterns are too long to be compared")
            known = self._known[i, j] = self._found(i, j)
            if len(known) > COMMON_MAX:
                raise TooManyPatterns(f"expected at most {COMMON_MAX} patterns that they have in common")
        return known

    def _found(self, i: int, j: int) -> frozenset[str]:
        one = self._one[i] if i < len(self._one) else ""
        other = self._other[j] if j < len(self._other) else ""
        if not (one or other):
            return frozenset(("",))
        if one == other == "*":  # either may end first
            return self._behind("*", self.at(i + 1, j) | self.at(i, j + 1))
        if one == "*":
            return self.at(i + 1, j) | (self._behind(other, self.at(i, j + 1)) if other else frozenset())
        if other == "*":
            return self.at(i, j + 1) | (self._behind(one, self.at(i + 1, j)) if one else frozenset())
        both = _one_character(one, other) if one and other else ""
        return self._behind(both, self.at(i + 1, j + 1)) if both else frozenset()

    @staticmethod
    def _behind(part: str, rests: frozenset[str]) -> frozenset[str]:
        return frozenset(rest if part == rest[:1] == "*" else part + rest for rest in rests)


def _one_character(one: str, other: str) -> str:
    """Return what stands for the characters that both parts stand for; empty where there is none."""
    if one == other or other == "?":
        return one
    if one == "?":
        return other
    for single, of_many in ((one, other), (other, one)):
        if len(single) == 1:
            return single if glob(single, of_many) else ""
    raise TooManyPatterns("two different sets of characters cannot be compared")
