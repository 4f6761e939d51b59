"""What is left of patterns and of pauses for whoever sees some names only.

Pure: it reads nothing. Without a scope all is visible.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from bedrockjobs.base import jsontext
from bedrockjobs.base.caller import Scope
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.glob import literal_prefix
from bedrockjobs.base.overlap import TooManyPatterns, common
from bedrockjobs.job.hold import HOLD_PATTERN
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.rows import PauseRow

WIDE = "*"
"""What is told of a pause that covers other names too, where one pattern is told."""


def patterns_within(wanted: str | None, scope: Scope) -> tuple[str, ...]:
    """Return by which patterns a list is asked for; raises Forbidden where that cannot be told."""
    try:
        return scope.within([wanted or "*"])
    except TooManyPatterns as error:
        raise Forbidden(detail=f"name: cannot be narrowed to {scope}: {error}") from None


def patterns_of(wanted: str | None, scope: Scope | None) -> tuple[str | None, ...]:
    """Return the same where all names are visible: then what was wanted."""
    return (wanted,) if scope is None else patterns_within(wanted, scope)


def filter_of(scope: Scope | None) -> str | None:
    """Return what the mark ``{visible}`` of a statement lets through: a JSON array of patterns, or all."""
    return None if scope is None else jsontext.dump(list(scope.patterns))


def prefix_of_all(wanted: str | None, scope: Scope | None) -> str:
    """Return the beginning of all names that match a pattern and are visible."""
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
    """Tell whether two patterns have names in common, as far as one can tell."""
    try:
        return bool(common(pattern, other))
    except TooManyPatterns:
        return False


def visible_pauses(pauses: Iterable[PauseRow], scope: Scope | None) -> tuple[PauseRow, ...]:
    """Return the pauses that hold visible names; of one that covers others too without who and why."""
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
    """Return how the pattern of a pause is told: one that covers other names too as ``*``."""
    wide = scope is not None and pattern not in ("", HOLD_PATTERN) and not scope.holds(pattern)
    return WIDE if wide else pattern
