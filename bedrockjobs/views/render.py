"""Encode rows of ``views.sql`` as JSON text, with the keys of the reply classes.

Stored JSON is inserted verbatim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import NAME_CHARS_MAX
from bedrockjobs.base.errors import Forbidden, type_of_error
from bedrockjobs.base.glob import TooManyPatterns, intersection, literal_prefix
from bedrockjobs.base.jsontext import quoted
from bedrockjobs.base.principal import Scope
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import EventReply, OutputLine, Reply, RunReply, ScheduleReply, TickReply
from bedrockjobs.job.eligibility import HOLD_PATTERN
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.rows import PauseRow

Write = Callable[[Any], str]


def _value(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else "null" if value is None else str(value)


def _stored(value: Any) -> str:
    """Return stored JSON text as it is, or ``null`` if it is empty."""
    return value or "null"


def keys_of(reply: type[Reply]) -> tuple[str, ...]:
    """Return the keys of a reply that have columns in ``views.sql``, in their order."""
    return tuple(wire_name(field) for field in reply.model_fields if field not in ("hidden", "error_type"))


def _shape(reply: type[Reply], stored: Iterable[str] = ()) -> tuple[tuple[str, Write], ...]:
    """Return the key and the encoder of each column."""
    return tuple((f'"{key}":', _stored if key in stored else _value) for key in keys_of(reply))


def _written(shape: tuple[tuple[str, Write], ...], row: Sequence[Any]) -> str:
    parts = [key + write(value) for (key, write), value in zip(shape, row, strict=True)]
    return f"{{{','.join(parts)}}}"


_RUN = _shape(RunReply, stored=("result", "progress", "output", "data"))
_LINE = _shape(OutputLine)
_SCHEDULE = _shape(ScheduleReply)
_TICK = _shape(TickReply)[:-2]  # the outcomes of runs are not in the row
_EVENT = _shape(EventReply)

REPEAT = keys_of(ScheduleReply).index("repeat")
"""The index of the column of a schedule's repeat."""

PAUSED = keys_of(ScheduleReply).index("paused")
"""The index of the column of the pattern that pauses a schedule."""

_STOP, _ERROR = map(keys_of(RunReply).index, ("stop", "error"))
_WORDS = keys_of(ScheduleReply).index("words")


def render_run(row: Sequence[Any]) -> str:
    """Return a run, with its data if the row has data. Of a requested stop, only the signal is shown."""
    shape = _RUN if len(row) == len(_RUN) else _RUN[: len(row)]
    text = _written(shape, [*row[:_STOP], row[_STOP][: len("TERM")], *row[_STOP + 1 :]])
    kind = type_of_error(row[_ERROR]) if row[_ERROR] else ""
    return f'{text[:-1]},"errorType":{quoted(kind)}}}' if kind else text


def raised(error_type: str | None) -> dict[str, str | None]:
    """Return the parameters that filter runs by the type of the exception in their error."""
    names = ("raised", "raisedAlone")
    return (
        dict.fromkeys(names)
        if error_type is None
        else dict(zip(names, (f"\n{error_type}:", f"\n{error_type}\n"), strict=True))
    )


def line(row: Sequence[Any]) -> str:
    """Return a line of output as JSON text."""
    return _written(_LINE, row)


def schedule(row: Sequence[Any], description: str, paused: str) -> str:
    """Return a schedule with the ``description`` of its repeat, and the pattern that pauses it."""
    return _written(
        _SCHEDULE, [*row[:_WORDS], description, *row[_WORDS + 1 : PAUSED], paused, *row[PAUSED + 1 :]]
    )


def tick(row: Sequence[Any], status: str, failed: int) -> str:
    """Return a row of the tick history with the status of its last run and how many of its ticks failed."""
    more = f',"status":{quoted(status)}' if status else ""
    more += f',"failed":{failed}' if failed else ""
    return f"{_written(_TICK, row)[:-1]}{more}}}"


def event(row: Sequence[Any]) -> str:
    """Return an event as JSON text."""
    return _written(_EVENT, row)


# Patterns and pauses limited to a scope. Without a scope, everything is visible.


WIDE = "*"
"""What is shown in place of the pattern of a pause that also applies outside of the scope."""


def patterns_within(wanted: str | None, scope: Scope) -> tuple[str, ...]:
    """Return patterns for the names in both a pattern and a scope; raises Forbidden if there are too many."""
    try:
        return scope.narrow([wanted or "*"])
    except TooManyPatterns as error:
        raise Forbidden(detail=f"name: cannot be narrowed to {scope}: {error}") from None


def patterns_of(wanted: str | None, scope: Scope | None) -> tuple[str | None, ...]:
    """Return the patterns to search by: the given one, or within a scope its intersection with the scope."""
    return (wanted,) if scope is None else patterns_within(wanted, scope)


def filter_of(scope: Scope | None) -> str | None:
    """Return the parameter for ``{visible}`` in a statement: a JSON array of patterns, or None for all."""
    return None if scope is None else jsontext.dump(list(scope.patterns))


def name_range(prefix: str, *, exact: bool = False) -> dict[str, str]:
    """Return the parameters ``low`` and ``high`` for names with a prefix, or if ``exact`` for one name."""
    return {"low": prefix, "high": prefix if exact else prefix + "\U0010ffff" * NAME_CHARS_MAX}


def prefix_of_all(wanted: str | None, scope: Scope | None) -> str:
    """Return the common prefix of all names that match a pattern and are visible."""
    prefix = literal_prefix(wanted or "")
    if scope is None:
        return prefix
    prefixes = sorted(map(literal_prefix, scope.patterns))
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(prefixes[0], prefixes[-1], strict=False))
    return max(prefix, "".join(one for one, _ in alike), key=len)


def in_scope(scope: Scope | None, name: str) -> bool:
    """Return whether a name is visible."""
    return scope is None or scope.covers(name)


def overlaps(pattern: str, other: str) -> bool:
    """Return whether two patterns may match the same name; False if finding out would take too long."""
    try:
        return bool(intersection(pattern, other))
    except TooManyPatterns:
        return False


def visible_pauses(pauses: Iterable[PauseRow], scope: Scope | None) -> tuple[PauseRow, ...]:
    """Return the pauses of visible names; a pause that is wider than the scope has no author and reason."""
    if scope is None:
        return tuple(pauses)
    visible = []
    for pause in pauses:
        if scope.includes_pattern(pause.pattern):
            visible.append(pause)
        elif any(overlaps(pause.pattern, pattern) for pattern in scope.patterns):
            visible.append(pause._replace(by=pause.by if pause.by == AT_LIMIT else "", reason=""))
    return tuple(visible)


def visible_pattern(pattern: str, scope: Scope | None) -> str:
    """Return the pattern of a pause as a scope may see it: ``*`` if it also applies outside of the scope."""
    wide = scope is not None and pattern not in ("", HOLD_PATTERN) and not scope.includes_pattern(pattern)
    return WIDE if wide else pattern
