"""Name patterns: SQLite's GLOB, defined once for the server, the worker, the command line and the pages.

``*`` is any text, ``?`` one character, ``[a-z]`` one of a set and ``[^a-z]`` one outside it; case counts, and
there is no escape but a set. A set without an end matches nothing. A match takes time proportional to the
length of the pattern times that of the name, whatever they are. A test compares it with SQLite's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Generic, TypeVar

from bedrockjobs.base.config import (
    GLOB_CHARS_MAX,
    GLOB_STARS_MAX,
    GRAM_CHARS,
    LENGTHS_INDEXED_MAX,
    PATTERNS_COMPILED_MAX,
    PATTERNS_PER_KEY_MAX,
)

T = TypeVar("T")

_WILD_PART = re.compile(r"[*?]|\[\^?\]?[^\]]*(?:\]|$)", re.DOTALL)
"""A wildcard or a set; a set without an end reaches to the end of the pattern."""
_NOTHING = "x^"
"""A regular expression that nothing matches, to Python and to a database."""


def glob(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern."""
    return _matcher(pattern)(name)


def is_plain(pattern: str) -> bool:
    """Tell whether a pattern matches itself alone."""
    return not ("*" in pattern or "?" in pattern or "[" in pattern)


def is_prefix(pattern: str) -> bool:
    """Tell whether a pattern is a text with one star behind it."""
    return pattern.endswith("*") and is_plain(pattern[:-1])


def literal_prefix(pattern: str) -> str:
    """Return the part of a pattern before its first special character."""
    for special in "*?[":
        pattern = pattern.partition(special)[0]
    return pattern


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
        if len(name) < least or longest not in name:  # most names: nothing is compiled for them
            return False
        if match is None:
            match = re.compile(regex, re.DOTALL).fullmatch
        return match(name) is not None

    return matches


def _parts_matcher(prefix: str, parts: list[str]) -> Callable[[str], bool]:
    """Return what matches texts with stars between them: nothing is compiled, each part is sought in turn."""
    *middle, last = parts
    middle = [part for part in middle if part]

    def match(name: str) -> bool:
        if not (name.startswith(prefix) and name.endswith(last)):
            return False
        at, end = len(prefix), len(name) - len(last)
        for part in middle:
            found = name.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return at <= end

    return match


def anchored_regex(patterns: Iterable[str]) -> str:
    """Return a regular expression for what one of some patterns matches, as PostgreSQL writes them."""
    found = "|".join(f"^(?:{'.*'.join(_between_stars(pattern)[0])})$" for pattern in patterns)
    return found or _NOTHING


def _regex(pattern: str) -> tuple[str, int]:
    """Return the regular expression of a pattern, and the length of the shortest name that may match.

    What stands between two stars is sought from the left and, once found, never sought again (an atomic
    group): that loses no match, and no name makes it try all combinations.
    """
    (first, *middle), least = _between_stars(pattern)
    if not middle:
        return first, least
    *middle, last = middle
    return first + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}", least


def _between_stars(pattern: str) -> tuple[list[str], int]:
    """Return regular expressions of what stands between stars, and the length of the shortest match."""
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
    """Read a set that begins behind its bracket; return its regular expression and where it ends."""
    outside = pattern[at : at + 1] == "^"
    at += outside
    ranges: list[str] = []
    before = ""  # the character that a hyphen would make the low end of a range
    if pattern[at : at + 1] == "]":
        ranges.append(re.escape("]"))
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        character = pattern[at]
        if character == "-" and before and pattern[at + 1 : at + 2] not in ("", "]"):
            if before <= pattern[at + 1]:  # a range that runs backwards holds nothing but its low end
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
        """Where it is filed: under a part of its text, by the lengths of its ends, or nowhere."""
        self.owners: dict[T, None] = {}

    def matches(self, name: str) -> bool:
        if self.compiled is None:  # most patterns are never compared with a name
            self.compiled = _matcher.__wrapped__(self.pattern)
        return self.compiled(name)


_Bucket = list[_Entry[T]]


class PatternSet(Generic[T]):
    """Patterns with owners, indexed by their fixed parts: most names are compared with few of them.

    A pattern is filed under its fixed beginning and end together, as in ``a/*/b``. If others crowd that
    place, or too many lengths are in use, it is filed under a few characters of any fixed part. Patterns for
    which neither works are compared with every name; ``unindexed`` counts them.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self._entries: dict[str, _Entry[T]] = {}
        self._ends: dict[int, dict[str, dict[int, dict[str, _Bucket[T]]]]] = {}
        """Length of the beginning, beginning, length of the end, end."""
        self._grams: dict[int, dict[str, _Bucket[T]]] = {}
        self._rest: _Bucket[T] = []

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self._entries)

    def __contains__(self, pattern: str) -> bool:
        """Tell whether a pattern has owners."""
        return pattern in self._entries

    @property
    def unindexed(self) -> int:
        """Return how many patterns are compared with every name."""
        return len(self._rest)

    def indexes(self, pattern: str) -> bool:
        """Tell whether a pattern in the set is compared with few names."""
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
        found = [entry for bucket in buckets for entry in bucket if entry.matches(name)]
        if len(found) <= 1:
            return [*found[0].owners] if found else []
        return [*dict.fromkeys(owner for entry in found for owner in entry.owners)]

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
        """Tell whether a pattern may be filed by its ends: few lengths, few patterns with the same ends."""
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
        """Return the part of a pattern's fixed text that fewest others use; None if all are crowded."""
        size = min(max(map(len, parts)), GRAM_CHARS)
        if size < 2:
            return None
        known = self._grams.get(size, {})
        grams = (part[at : at + size] for part in parts for at in range(len(part) - size + 1))
        rarest = min(grams, key=lambda gram: len(known.get(gram, ())))
        return rarest if len(known.get(rarest, ())) < PATTERNS_PER_KEY_MAX else None


# What two name patterns have in common: again patterns, so that whoever asks by one can be given less.
#
# ``common("mail/*", "*")`` is ``mail/*``; ``*a*`` and ``*b*`` have ``*a*b*`` and ``*b*a*`` in common. It
# never says less than is true by saying more: what it cannot word is refused with ``TooManyPatterns``.


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
def intersection(one: str, other: str) -> tuple[str, ...]:
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
    found = dict.fromkeys(text for one in wanted for other in allowed for text in intersection(one, other))
    if len(found) > COMMON_MAX:
        raise TooManyPatterns(f"expected at most {COMMON_MAX} patterns that they have in common")
    return tuple(found)


def lies_within(pattern: str, allowed: Iterable[str]) -> bool:
    """Tell whether every name that matches a pattern matches one of those allowed, as far as one can tell."""
    try:
        return any(pattern in intersection(pattern, other) for other in allowed)
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
