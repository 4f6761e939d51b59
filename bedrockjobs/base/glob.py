"""Name patterns: SQLite's GLOB, as the server, the worker, the command line and the pages use it.

``*`` matches any text, ``?`` one character, ``[a-z]`` one of a set and ``[^a-z]`` one outside it. Matching is
case-sensitive. A special character is escaped by a set, such as ``[*]``, and in no other way. A set without
an end matches nothing. The time of a match is at most proportional to the length of the pattern times that of
the name. A test compares the results with SQLite's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

from bedrockjobs.base.config import (
    GLOB_CHARS_MAX,
    GLOB_STARS_MAX,
    LENGTHS_INDEXED_MAX,
    PATTERNS_COMPILED_MAX,
    PATTERNS_PER_KEY_MAX,
)

T = TypeVar("T")

_WILD_PART = re.compile(r"[*?]|\[\^?\]?[^\]]*(?:\]|$)", re.DOTALL)
"""Matches a wildcard or a set. A set without an end reaches to the end of the pattern."""
_SPECIAL = re.compile(r"[*?\[]")
_NOTHING = "x^"
"""A regular expression that matches nothing, in Python and in PostgreSQL."""


def glob(name: str, pattern: str) -> bool:
    """Return whether a name matches a pattern."""
    return _matcher(pattern)(name)


def is_plain(pattern: str) -> bool:
    """Return whether a pattern has no special characters, and so matches only itself."""
    return not ("*" in pattern or "?" in pattern or "[" in pattern)


def is_prefix(pattern: str) -> bool:
    """Return whether a pattern is plain text followed by one star."""
    return pattern.endswith("*") and is_plain(pattern[:-1])


def literal_prefix(pattern: str) -> str:
    """Return the part of a pattern before its first special character."""
    for special in "*?[":
        pattern = pattern.partition(special)[0]
    return pattern


def literal(name: str) -> str:
    """Return the pattern that matches only this name."""
    return _SPECIAL.sub(lambda match: f"[{match[0]}]", name)


@lru_cache(maxsize=PATTERNS_COMPILED_MAX)
def _matcher(pattern: str) -> Callable[[str], bool]:
    prefix = literal_prefix(pattern)
    rest = pattern[len(prefix) :]
    if not rest:
        return prefix.__eq__
    if rest == "*":
        return lambda name: name.startswith(prefix)
    if "?" not in rest and "[" not in rest:
        return _parts_matcher(prefix, rest.split("*")[1:])
    regex, least = _regex(pattern)
    longest = max(re.split(r"[*?]|\[.*", pattern, flags=re.DOTALL), key=len)
    match: Callable[[str], object] | None = None

    def matches(name: str) -> bool:
        nonlocal match
        if len(name) < least or longest not in name:  # most names fail here, before anything is compiled
            return False
        if match is None:
            match = re.compile(regex, re.DOTALL).fullmatch
        return match(name) is not None

    return matches


def _parts_matcher(prefix: str, parts: list[str]) -> Callable[[str], bool]:
    """Return a matcher for plain parts between stars; it finds one part after another, without a regex."""
    *middle, last = parts
    middle = [part for part in middle if part]

    def match(name: str) -> bool:
        if not (name.startswith(prefix) and name.endswith(last)):
            return False
        at, end = len(prefix), len(name) - len(last)
        for part in middle:
            position = name.find(part, at, end)
            if position < 0:
                return False
            at = position + len(part)
        return at <= end

    return match


def anchored_regex(patterns: Iterable[str]) -> str:
    """Return a PostgreSQL regular expression that matches any of the patterns."""
    alternatives = "|".join(f"^(?:{'.*'.join(_between_stars(pattern)[0])})$" for pattern in patterns)
    return alternatives or _NOTHING


def _regex(pattern: str) -> tuple[str, int]:
    """Return the regular expression of a pattern, and the minimum length of a matching name.

    Each part between two stars is an atomic group that matches at its first occurrence. No match is lost by
    that, and no name causes exponential backtracking.
    """
    (first, *middle), least = _between_stars(pattern)
    if not middle:
        return first, least
    *middle, last = middle
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}", least


def _between_stars(pattern: str) -> tuple[list[str], int]:
    """Return regular expressions for the parts between stars, and the minimum length of a match."""
    parts = [""]
    at = least = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            parts.append("")
            continue
        least += 1
        if character == "?":
            parts[-1] += "."
        elif character == "[":
            one, at = _set(pattern, at)
            parts[-1] += one
        else:
            parts[-1] += re.escape(character)
    return parts, least


def _set(pattern: str, at: int) -> tuple[str, int]:
    """Parse a set that begins after its bracket; return its regular expression and its end."""
    outside = pattern[at : at + 1] == "^"
    at += outside
    ranges: list[str] = []
    before = ""  # the possible low end of a range, if a hyphen follows
    if pattern[at : at + 1] == "]":
        ranges.append(re.escape("]"))
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        character = pattern[at]
        if character == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            if before <= pattern[at + 1]:  # a reversed range contains only its low end
                ranges.append(f"{re.escape(before)}-{re.escape(pattern[at + 1])}")
            before = ""
            at += 2
        else:
            ranges.append(re.escape(character))
            before = character
            at += 1
    if at >= len(pattern):
        return _NOTHING, len(pattern)
    if not ranges:
        return ("." if outside else _NOTHING), at + 1
    return f"[{'^' if outside else ''}{''.join(ranges)}]", at + 1


class _Entry(Generic[T]):
    """One pattern of a ``PatternSet`` and its owners."""

    __slots__ = ("compiled", "owners", "pattern", "place")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.compiled: Callable[[str], bool] | None = None
        self.place: str | tuple[int, int] | None = None
        """Its index key: a part of its text, or the lengths of its fixed ends; None if unindexed."""
        self.owners: dict[T, None] = {}

    def matches(self, name: str) -> bool:
        if self.compiled is None:  # most patterns are never compared with a name
            self.compiled = _matcher.__wrapped__(self.pattern)
        return self.compiled(name)


_Bucket = list[_Entry[T]]


class PatternSet(Generic[T]):
    """Patterns with owners, indexed by their fixed parts, so that a name is compared with only a few of them.

    A pattern such as ``a/*/b`` is indexed by its fixed beginning and end. If too many patterns have that key,
    or too many different lengths are in use, the pattern is indexed by a few characters of any fixed part.
    Patterns without such a part are compared with every name; ``unindexed`` counts them.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}
        self._ends: dict[int, dict[str, dict[int, dict[str, _Bucket[T]]]]] = {}
        """Length of the prefix -> prefix -> length of the suffix -> suffix -> patterns."""
        self._grams: dict[int, dict[str, _Bucket[T]]] = {}
        self._rest: _Bucket[T] = []

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._entries)

    def __contains__(self, pattern: str) -> bool:
        """Return whether a pattern has owners."""
        return pattern in self._entries

    @property
    def unindexed(self) -> int:
        """Return how many patterns are compared with every name."""
        return len(self._rest)

    def indexes(self, pattern: str) -> bool:
        """Return whether a pattern of the set is indexed."""
        return self._entries[pattern].place is not None

    def add(self, pattern: str, owner: T) -> None:
        """Add an owner of a pattern."""
        entry = self._entries.get(pattern)
        if entry is None:
            entry = self._entries[pattern] = _Entry(pattern)
            self._file(pattern, entry)
        entry.owners[owner] = None

    def discard(self, pattern: str, owner: T) -> None:
        """Remove an owner of a pattern, if present."""
        entry = self._entries.get(pattern)
        if entry is None:
            return
        entry.owners.pop(owner, None)
        if not entry.owners:
            del self._entries[pattern]
            self._unfile(entry)

    def matching(self, name: str) -> list[T]:
        """Return the owners of all patterns that match a name, each once."""
        buckets: list[_Bucket[T]] = []
        length = len(name)
        for size, by_prefix in self._ends.items():
            by_length = by_prefix.get(name[:size])
            if by_length is not None:
                for tail, by_suffix in by_length.items():
                    bucket = by_suffix.get(name[length - tail :])
                    if bucket is not None:
                        buckets.append(bucket)
        for size, by_gram in self._grams.items():
            for at in range(length - size + 1):
                bucket = by_gram.get(name[at : at + size])
                if bucket is not None:
                    buckets.append(bucket)
        if self._rest:
            buckets.append(self._rest)
        entries = [entry for bucket in buckets for entry in bucket if entry.matches(name)]
        if len(entries) <= 1:
            return [*entries[0].owners] if entries else []
        return [*dict.fromkeys(owner for entry in entries for owner in entry.owners)]

    def _file(self, pattern: str, entry: _Entry[T]) -> None:
        parts = _WILD_PART.split(pattern) if "[" in pattern else pattern.replace("?", "*").split("*")
        begin, end = parts[0], parts[-1] if len(parts) > 1 else ""
        if is_prefix(pattern) or self._has_room(begin, end, bool(end)):
            self._file_by_ends(begin, end, entry)
        elif (gram := self._rarest_gram(parts)) is not None:
            entry.place = gram
            self._grams.setdefault(len(gram), {}).setdefault(gram, []).append(entry)
        elif self._has_room(begin, end, True):
            self._file_by_ends(begin, end, entry)
        else:
            self._rest.append(entry)

    def _unfile(self, entry: _Entry[T]) -> None:
        place = entry.place
        if place is None:
            self._rest.remove(entry)
        elif isinstance(place, str):
            by_gram = self._grams[len(place)]
            by_gram[place].remove(entry)
            if not by_gram[place]:
                del by_gram[place]
            if not by_gram:
                del self._grams[len(place)]
        else:
            self._unfile_by_ends(entry, *place)

    def _unfile_by_ends(self, entry: _Entry[T], before: int, after: int) -> None:
        pattern = entry.pattern
        begin, end = pattern[:before], pattern[len(pattern) - after :]
        by_prefix = self._ends[before]
        by_length = by_prefix[begin]
        by_suffix = by_length[after]
        by_suffix[end].remove(entry)
        if not by_suffix[end]:
            del by_suffix[end]
        if not by_suffix:
            del by_length[after]
        if not by_length:
            del by_prefix[begin]
        if not by_prefix:
            del self._ends[before]

    def _has_room(self, begin: str, end: str, fits: bool) -> bool:
        """Return whether the limits on lengths and patterns let a pattern be indexed by its fixed ends."""
        by_prefix = self._ends.get(len(begin))
        if not fits or (by_prefix is None and len(self._ends) >= LENGTHS_INDEXED_MAX):
            return False
        by_length = (by_prefix or {}).get(begin, {})
        by_suffix = by_length.get(len(end))
        if by_suffix is None:
            return len(by_length) < LENGTHS_INDEXED_MAX
        return len(by_suffix.get(end, ())) < PATTERNS_PER_KEY_MAX

    def _file_by_ends(self, begin: str, end: str, entry: _Entry[T]) -> None:
        by_prefix = self._ends.setdefault(len(begin), {})
        by_length = by_prefix.setdefault(begin, {})
        by_suffix = by_length.setdefault(len(end), {})
        by_suffix.setdefault(end, []).append(entry)
        entry.place = len(begin), len(end)

    def _rarest_gram(self, parts: list[str]) -> str | None:
        """Return the substring of the fixed parts that fewest patterns have as key; None if all are full."""
        # Four characters are enough: among 5,000 patterns that differ only in the number of a host, they
        # select a handful
        size = min(max(map(len, parts)), 4)
        if size < 2:
            return None
        known = self._grams.get(size, {})
        grams = (part[at : at + size] for part in parts for at in range(len(part) - size + 1))
        rarest = min(grams, key=lambda gram: len(known.get(gram, ())))
        return rarest if len(known.get(rarest, ())) < PATTERNS_PER_KEY_MAX else None


# The intersection of two name patterns, as a list of patterns. It narrows the names of a request to a scope.
#
# ``intersection("mail/*", "*")`` is ``mail/*``; that of ``*a*`` and ``*b*`` is ``*a*b*`` and ``*b*a*``. The
# result never matches more names than both patterns do: if no short list can express the intersection,
# ``TooManyPatterns`` is raised.


COMMON_MAX = 32
"""Maximum number of patterns in one intersection, since each of them becomes a query of its own."""

STEPS_MAX = 20_000
"""Maximum number of pairs of positions that are compared in two patterns: two patterns of 100 characters with
stars have 10,000."""

_TOKEN = re.compile(r"\*+|\[\^?\]?[^\]]*\]|\[.*|.", re.DOTALL)


class TooManyPatterns(ValueError):
    """The intersection of two patterns cannot be expressed in a few patterns."""


# Cached intersections of two patterns: workers ask for the same ones again and again.
@lru_cache(maxsize=1_024)
def intersection(one: str, other: str) -> tuple[str, ...]:
    """Return patterns that together match the names that both patterns match; empty if there are none.

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
    # Parts of two patterns together: each may add two calls to the recursion, of 1,000 that Python allows
    if sum(map(len, parts)) > 300:
        raise TooManyPatterns("the patterns are too long to be compared")
    patterns = _Common(*parts).at(0, 0)
    if any(len(text) > GLOB_CHARS_MAX or text.count("*") > GLOB_STARS_MAX for text in patterns):
        raise TooManyPatterns("their intersection is too long for a pattern")
    return tuple(sorted(patterns))


def common_of_all(wanted: Iterable[str], allowed: Iterable[str]) -> tuple[str, ...]:
    """Return patterns for the names that match a pattern of each list; raises TooManyPatterns."""
    allowed = tuple(allowed)
    patterns = dict.fromkeys(text for one in wanted for other in allowed for text in intersection(one, other))
    if len(patterns) > COMMON_MAX:
        raise TooManyPatterns(f"expected at most {COMMON_MAX} patterns in their intersection")
    return tuple(patterns)


def lies_within(pattern: str, allowed: Iterable[str]) -> bool:
    """Return whether all names that match a pattern also match one of ``allowed``; False if unknown."""
    try:
        return any(pattern in intersection(pattern, other) for other in allowed)
    except TooManyPatterns:
        return False


def _tokens(pattern: str) -> list[str]:
    """Split a pattern into stars and parts that match one character."""
    return ["*" if part[0] == "*" else part for part in _TOKEN.findall(pattern)]


class _Common:
    """Intersections of the suffixes of two patterns, cached by the two start positions."""

    def __init__(self, one: list[str], other: list[str]) -> None:
        self._one, self._other = one, other
        self._known: dict[tuple[int, int], frozenset[str]] = {}

    def at(self, i: int, j: int) -> frozenset[str]:
        """Return the intersection of one pattern from position ``i`` on and the other from position ``j`` on.

        The recursion is at most as deep as both patterns together are long.
        """
        known = self._known.get((i, j))
        if known is None:
            if len(self._known) >= STEPS_MAX:
                raise TooManyPatterns("the patterns are too long to be compared")
            known = self._known[i, j] = self._found(i, j)
            if len(known) > COMMON_MAX:
                raise TooManyPatterns(f"expected at most {COMMON_MAX} patterns in their intersection")
        return known

    def _found(self, i: int, j: int) -> frozenset[str]:
        one = self._one[i] if i < len(self._one) else ""
        other = self._other[j] if j < len(self._other) else ""
        if not (one or other):
            return frozenset(("",))
        if one == other == "*":  # either star may end first
            return self._prefixed("*", self.at(i + 1, j) | self.at(i, j + 1))
        if one == "*":
            return self.at(i + 1, j) | (self._prefixed(other, self.at(i, j + 1)) if other else frozenset())
        if other == "*":
            return self.at(i, j + 1) | (self._prefixed(one, self.at(i + 1, j)) if one else frozenset())
        both = _one_character(one, other) if one and other else ""
        return self._prefixed(both, self.at(i + 1, j + 1)) if both else frozenset()

    @staticmethod
    def _prefixed(part: str, rests: frozenset[str]) -> frozenset[str]:
        return frozenset(rest if part == rest[:1] == "*" else part + rest for rest in rests)


def _one_character(one: str, other: str) -> str:
    """Return the pattern of the characters that match both ``one`` and ``other``; empty if there are none."""
    if one == other or other == "?":
        return one
    if one == "?":
        return other
    for single, of_many in ((one, other), (other, one)):
        if len(single) == 1:
            return single if glob(single, of_many) else ""
    raise TooManyPatterns("two different sets of characters cannot be compared")
