"""Express a parsed schedule of another dialect as an expression of bedrockjobs.

It works on sets of values, so the original spelling does not matter.
"""

from __future__ import annotations

from calendar import monthrange
from functools import lru_cache

from bedrockjobs.schedule import cron
from bedrockjobs.schedule.cron.expression import WEEKDAY_NAMES, Field, members_of
from bedrockjobs.schedule.cron.plan import (
    EVERY_DAY,
    EVERY_YEAR,
    LAST,
    YEAR_MAX,
    YEAR_MIN,
    DayField,
    DayRule,
    Schedule,
)

READ_MAX = 1_024
"""Cached parsed expressions: a large file repeats a few, and each takes almost a millisecond."""

_EVERY_WEEKDAY = 0x7F
_WEEKS_OF_MONTH = [sum(1 << day for day in range(7 * n + 1, min(7 * n + 8, 32))) for n in range(5)]
"""Days 1-7, 8-14, ... : on which the first, second, ... occurrence of a weekday falls."""

_NAMES = [name[:3].upper() for name in (*WEEKDAY_NAMES[1:], WEEKDAY_NAMES[0])]

_MONTHS = list(
    {monthrange(year, month): (year, month) for year in range(1970, 1998) for month in range(1, 13)}.values()
)
"""All kinds of months: by the weekday of the first day, and the length."""


class NoExpression(ValueError):
    """There is no equivalent expression; the message says why."""


def same_schedule(one: Schedule, other: Schedule) -> bool:
    """Tell whether two schedules fire at the same times in one zone."""
    if not one.years and not other.years:
        return True
    return (
        (one.seconds, one.minutes, one.hours, one.months, one.years, one.wild, one.start, one.end)
        == (
            other.seconds,
            other.minutes,
            other.hours,
            other.months,
            other.years,
            other.wild,
            other.start,
            other.end,
        )
        and one.days.weeks == other.days.weeks
        and all(one.days.of_month(*month) == other.days.of_month(*month) for month in _MONTHS)
    )


def here(field: Field, term: str) -> frozenset[int] | None:
    """Return the values of a term by our rules, with Sunday as 0; None if it is invalid."""
    try:
        return members_of(field, term)
    except cron.BadSchedule:
        return None


@lru_cache(maxsize=READ_MAX)
def kept_or_rewritten(text: str, schedule: Schedule) -> str:
    """Return ``text`` if it has the same meaning here, else an equivalent expression.

    Raises NoExpression if there is none.
    """
    try:
        if same_schedule(cron.parse(text), schedule):
            return " ".join(text.split())
    except cron.BadSchedule:
        pass
    return expression_for(schedule)


def expression_for(schedule: Schedule) -> str:
    """Return an equivalent expression without a zone; raises NoExpression if there is none."""
    if not schedule.years:
        return "@never"
    if schedule.start is not None or schedule.end is not None:
        raise NoExpression("a first or last moment (start_date, end_date)")
    star = "*" if schedule.wild else ""
    month_day, week_day = _days(schedule.days)
    fields = [
        _set(schedule.minutes, 0, 59, star),
        _set(schedule.hours, 0, 23, star),
        month_day,
        _set(schedule.months, 1, 12),
        week_day,
    ]
    if schedule.years != EVERY_YEAR:
        fields.append(_set(schedule.years << YEAR_MIN, YEAR_MIN, YEAR_MAX))
    if schedule.seconds != 1 or (schedule.years != EVERY_YEAR and not _has_year(fields[-1])):
        fields.insert(0, _set(schedule.seconds, 0, 59))
    text = " ".join(fields)
    if not same_schedule(cron.parse(text), schedule):
        raise NoExpression("what it does when its zone's clock is changed")
    return text


def _has_year(field: str) -> bool:
    """Tell whether a last field would be interpreted as a year; ``*/2`` would not."""
    return not field.startswith("*")


def _days(rule: DayRule) -> tuple[str, str]:
    """Return the two day fields; by our rule, a day matches either if both are restricted."""
    if rule.weeks:
        raise NoExpression("a week of the year (week)")
    month_day, week_day = rule.month_day, rule.week_day
    if rule.either:
        return _day_fields(_union(month_day, week_day))
    if _open(week_day):
        return _day_fields(month_day)
    if _open(month_day):
        return _day_fields(week_day)
    return _day_fields(_both(month_day, week_day))


def _open(field: DayField) -> bool:
    return field.every or field.days == EVERY_DAY or field.weekdays == _EVERY_WEEKDAY


def _union(one: DayField, other: DayField) -> DayField:
    return DayField(
        one.days | other.days,
        one.weekdays | other.weekdays,
        one.places | other.places,
        one.nearest | other.nearest,
        one.last or other.last,
        one.last_workday or other.last_workday,
    )


def _both(month_day: DayField, week_day: DayField) -> DayField:
    """Return the days that match both fields, as the nth weekdays of a month."""
    plain = not (month_day.nearest or month_day.last or month_day.last_workday or month_day.weekdays)
    weeks = [n for n, days in enumerate(_WEEKS_OF_MONTH, 1) if month_day.days & days == days]
    whole = sum(_WEEKS_OF_MONTH[n - 1] for n in weeks) == month_day.days
    if not plain or not whole or week_day.places:
        raise NoExpression("a day of the month and a weekday that must both hold")
    weekdays = [weekday for weekday in range(7) if week_day.weekdays >> weekday & 1]
    places = {(weekday, n) for weekday in weekdays for n in weeks}
    places |= {place for place in month_day.places if place[0] in weekdays}
    return DayField(places=frozenset(places))


def _day_fields(field: DayField) -> tuple[str, str]:
    if _open(field):
        return "*", "*"
    days = _terms(_members(field.days, 31))
    days += [f"{day}W" for day in sorted(field.nearest)]
    days += ["L"] if field.last else []
    days += ["LW"] if field.last_workday else []
    weekdays = _terms(_members(field.weekdays, 6), _NAMES)
    weekdays += [
        f"{(weekday + 1) % 7}L" if n == LAST else f"{(weekday + 1) % 7}#{n}"
        for weekday, n in sorted(field.places)
    ]
    if not days and not weekdays:
        raise NoExpression("days that do not exist")
    return ",".join(days) or "*", ",".join(weekdays) or "*"


def _set(values: int, low: int, high: int, star: str = "*") -> str:
    """Return one field; ``star`` is empty if a ``*`` would change the behaviour at clock changes."""
    found = _members(values, high)
    star = star or f"{low}-{high}"
    step = found[1] - found[0] if len(found) > 1 else 0
    if len(found) == high - low + 1:
        return star
    if step > 1 and found == list(range(low, high + 1, step)):
        return f"{star}/{step}"
    if step > 1 and len(found) > 2 and found == list(range(found[0], found[-1] + 1, step)):
        return f"{found[0]}-{found[-1]}/{step}"
    return ",".join(_terms(found))


def _members(values: int, high: int) -> list[int]:
    return [value for value in range(high + 1) if values >> value & 1]


def _terms(values: list[int], names: list[str] | None = None) -> list[str]:
    """Return values as a list of terms, with ranges for consecutive ones."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    found = []
    for run in runs:
        shown = [names[value] if names else str(value) for value in run]
        found += shown if len(run) < 3 else [f"{shown[0]}-{shown[-1]}"]
    return found
