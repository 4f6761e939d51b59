"""Name patterns: SQLite's GLOB, defined once for the server, the worker, the command line and the pages.

``*`` is any text, ``?`` one character, ``[a-z]`` one of a set and ``[^a-z]`` one outside it; case counts, and
there is no escape but a set. A set without an end matches nothing. A match takes time proportional to the
length of the pattern times that of the name, whatever they are. A test compares it with SQLite's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from bedrockjobs.base.config import PATTERNS_COMPILED_MAX

_WILD = frozenset("*?[")
_SPECIAL = re.compile(r"[*?\[]")
_NOTHING = "x^"
"""A regular expression that nothing matches, to Python and to a database."""


def glob(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern."""
    return _matcher(pattern)(name)


def is_plain(pattern: str) -> bool:
    """Tell whether a pattern matches itself alone."""
    return _WILD.isdisjoint(pattern)


def is_prefix(pattern: str) -> bool:
    """Tell whether a pattern is a text with one star behind it."""
    return pattern.endswith("*") and is_plain(pattern[:-1])


def literal_prefix(pattern: str) -> str:
    """Return the part of a pattern before its first special character."""
    found = _SPECIAL.search(pattern)
    return pattern if found is None else pattern[: found.start()]


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
