"""Cron schedules: expressions, Cronken's ``cron_args``, their ticks and their description.

The package is independent of the rest of the server, of jobs, clock and store.

It does not wrap cronsim because the dialect here is larger (years, ``15W``, ``@never``, mappings whose day
fields are ANDed), three rules differ (``*/2`` restricts a day field, ``1/2`` ends with Saturday, seconds do
not change what happens when a clock is put back), and cronsim gives up after 50 years.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from bedrockjobs.base.jsontext import whole_number
from bedrockjobs.schedule.cron.cron_args import parse_cron_args, texts_of
from bedrockjobs.schedule.cron.describe import words_for
from bedrockjobs.schedule.cron.expression import AROUND, BadSchedule, instead_of_every, parse_expression
from bedrockjobs.schedule.cron.plan import Schedule
from bedrockjobs.schedule.cron.zones import count_moments, find_zone, next_moment

__all__ = [
    "AROUND",
    "BadSchedule",
    "Schedule",
    "count_ticks",
    "describe",
    "instead_of_every",
    "next_tick",
    "parse",
    "split_zone",
]

PARSED_MAX = 16_384
"""Maximum number of parsed schedules in the cache, about 1 kB each: more than a server has, so that each is
parsed once."""

_PREFIX = re.compile(r"(?:CRON(?=[ \t]|$)[ \t]*)?(?:(?:CRON_)?TZ=([^ \t]*)[ \t]*)?", re.IGNORECASE)


def next_tick(expression: str | Mapping[str, str], after: datetime, zone: str = "UTC") -> datetime | None:
    """Return the first time strictly after ``after`` at which the expression fires; None if there is none.

    ``after`` must be aware. The result is in UTC, so that results compare correctly even if a zone's clock is
    put back. A mapping is Cronken's ``cron_args``, whose ``timezone`` takes precedence over ``zone``. Raises
    BadSchedule for an invalid expression or zone.
    """
    if after.tzinfo is None:
        raise ValueError("after: expected a datetime with a time zone")
    schedule = parse(expression)
    return next_moment(schedule, after, find_zone(schedule.zone or zone))


def count_ticks(
    expression: str | Mapping[str, str], after: datetime, until: datetime, zone: str = "UTC"
) -> int:
    """Return how often the expression fires after ``after`` and up to ``until``, both aware.

    Counting a year of ticks every second takes about as long as a year of ticks every day. Raises
    BadSchedule.
    """
    schedule = parse(expression)
    return count_moments(schedule, after, until, find_zone(schedule.zone or zone)) if schedule.years else 0


def parse(expression: str | Mapping[str, str]) -> Schedule:
    """Parse an expression, or ``cron_args`` as a mapping or its JSON text.

    Raises BadSchedule, also for an expression that can never fire.
    """
    if isinstance(expression, str):
        return _parse_text(expression)
    return _parse_mapping(tuple(texts_of(expression).items()))


def describe(expression: str | Mapping[str, str]) -> str:
    """Describe in plain words when the expression fires: ``at 09:00, on Monday to Friday``."""
    return words_for(parse(expression))


def split_zone(text: str) -> tuple[str, str]:
    """Split ``CRON TZ=Europe/Berlin 0 9 * * 1-5`` into its zone and its expression.

    ``CRON`` is optional, the default zone is ``UTC``. Raises BadSchedule for an unknown zone.
    """
    text = text.strip(AROUND)
    prefix = _PREFIX.match(text)
    assert prefix is not None
    zone = "UTC" if prefix[1] is None else prefix[1]
    find_zone(zone)
    return zone, text[prefix.end() :]


@lru_cache(maxsize=PARSED_MAX)
def _parse_text(text: str) -> Schedule:
    if text.lstrip(AROUND).startswith("{"):
        return _parse_json(text)
    return parse_expression(text)


def _parse_json(text: str) -> Schedule:
    """Parse ``cron_args`` as a JSON object, for schedules that no expression can express."""
    try:
        arguments = json.loads(text, parse_int=whole_number)
    except RecursionError:
        raise BadSchedule("cron_args", text, "a JSON object that is not nested so deep") from None
    except ValueError as error:
        raise BadSchedule("cron_args", text, f"a JSON object: {error}") from None
    if not isinstance(arguments, dict):
        raise BadSchedule("cron_args", text, "a JSON object")
    if "jitter" in arguments:
        raise BadSchedule("jitter", str(arguments["jitter"]), "no jitter here; it is an option of the job")
    return parse(arguments)


@lru_cache(maxsize=PARSED_MAX)
def _parse_mapping(items: tuple[tuple[str, str], ...]) -> Schedule:
    return parse_cron_args(dict(items))
