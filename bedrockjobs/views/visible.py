"""Patterns and pauses limited to a scope. Without a scope, everything is visible."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.glob import TooManyPatterns, intersection, literal_prefix
from bedrockjobs.base.principal import Scope
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.quarantine import HOLD_PATTERN
from bedrockjobs.job.rows import PauseRow

WIDE = "*"
"""Shown instead of the pattern of a pause that is not contained in the scope."""


def patterns_within(wanted: str | None, scope: Scope) -> tuple[str, ...]:
    """Return the intersection of a pattern and a scope; raises Forbidden if it is too complex."""
    try:
        return scope.within([wanted or "*"])
    except TooManyPatterns as error:
        raise Forbidden(detail=f"name: cannot be narrowed to {scope}: {error}") from None


def patterns_of(wanted: str | None, scope: Scope | None) -> tuple[str | None, ...]:
    """Return the patterns to search by: the intersection with the scope, or the given pattern without one."""
    return (wanted,) if scope is None else patterns_within(wanted, scope)


def filter_of(scope: Scope | None) -> str | None:
    """Return the parameter for ``{visible}`` in a statement: a JSON array of patterns, or None for all."""
    return None if scope is None else jsontext.dump(list(scope.patterns))


def prefix_of_all(wanted: str | None, scope: Scope | None) -> str:
    """Return the common prefix of all names that match a pattern and are visible."""
    asked = literal_prefix(wanted or "")
    if scope is None:
        return asked
    prefixes = sorted(map(literal_prefix, scope.patterns))
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(prefixes[0], prefixes[-1], strict=False))
    return max(asked, "".join(one for one, _ in alike), key=len)


def sees(scope: Scope | None, name: str) -> bool:
    """Tell whether a name is visible."""
    return scope is None or scope.sees(name)


def overlaps(pattern: str, other: str) -> bool:
    """Tell whether two patterns may have names in common; False if their intersection is too complex."""
    try:
        return bool(intersection(pattern, other))
    except TooManyPatterns:
        return False


def visible_pauses(pauses: Iterable[PauseRow], scope: Scope | None) -> tuple[PauseRow, ...]:
    """Return the pauses that apply to visible names; those that also apply to others lose their reason."""
    if scope is None:
        return tuple(pauses)
    found = []
    for pause in pauses:
        if scope.holds(pause.pattern):
            found.append(pause)
        elif any(overlaps(pause.pattern, pattern) for pattern in scope.patterns):
            found.append(pause._replace(by=pause.by if pause.by == AT_LIMIT else "", reason=""))
    return tuple(found)


def visible_pattern(pattern: str, scope: Scope | None) -> str:
    """Return the pattern of a pause as shown: ``*`` if it also applies to names outside of the scope."""
    wide = scope is not None and pattern not in ("", HOLD_PATTERN) and not scope.holds(pattern)
    return WIDE if wide else pattern
