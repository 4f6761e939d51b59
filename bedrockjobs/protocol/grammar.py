"""Texts of requests that have a grammar, as patterns: numbers, dates, durations, repeats, names.

A pattern stands for all common spellings, not for every rare one: what fits it is taken. Patterns are plain
enough to mean the same to every reader of JSON Schema.
"""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from bedrockjobs.base.config import (
    DURATION_S_MAX,
    NAME_CHARS_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    REPEAT_CHARS_MAX,
)

Schema = dict[str, Any]


def digits(low: int, high: int) -> str:
    """Return a pattern of the whole numbers from ``low`` to ``high``, written without leading zeros."""
    if low < 0:
        parts = [f"-(?:{digits(max(1, -high), -low)})"]
        return "|".join([*parts, digits(0, high)] if high >= 0 else parts)
    return "|".join(_same_length(str(a), str(b)) for a, b in _by_length(low, high))


def _by_length(low: int, high: int) -> list[tuple[int, int]]:
    found = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        found.append((low, end))
        low = end + 1
    return found


def _same_length(low: str, high: str) -> str:
    if not low:
        return ""
    rest = len(low) - 1
    if set(low[1:]) <= {"0"} and set(high[1:]) <= {"9"}:
        return _class(low[0], high[0]) + (f"[0-9]{{{rest}}}" if rest > 1 else "[0-9]" * rest)
    if low[0] == high[0]:
        return f"{low[0]}(?:{_same_length(low[1:], high[1:])})"
    parts = [_same_length(low, low[0] + "9" * rest)]
    if int(high[0]) - int(low[0]) > 1:
        between = str(int(low[0]) + 1), str(int(high[0]) - 1)
        parts.append(_same_length(between[0] + "0" * rest, between[1] + "9" * rest))
    parts.append(_same_length(high[0] + "0" * rest, high))
    return "|".join(parts)


def _class(low: str, high: str) -> str:
    return low if low == high else f"[{low}-{high}]"


def text_of(pattern: str, **more: Any) -> Schema:
    """Return the schema of a text that fits a pattern as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$", **more}


# --- texts with a grammar --------------------------------------------------------------------------------

_DATE = (
    "(?:1[0-9]|[2-8][0-9])[0-9]{2}-"
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3})?"
TIMESTAMP = text_of(
    f"{_DATE}(?:[ T]{_TIME}(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9])?)?",
    examples=["2026-11-21 03:29:56", "2026-11-21T04:29:56+01:00"],
)

DURATION: Schema = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": DURATION_S_MAX},
        text_of(
            "[0-9]{1,8}s?|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d|[0-9]{1,3}h[0-9]{1,3}m(?:[0-9]{1,3}s)?"
            r"|\+ ?[0-9]{1,3} (?:SECOND|MINUTE|HOUR|DAY)S?"
        ),
    ],
    "examples": ["90s", "1h30m", 60],
}

_OFFSETS = "[+-] ?(?:[0-9]{1,6} SECONDS?|[0-9]{1,3} (?:MINUTE|HOUR|DAY|MONTH)S?|[0-9]{1,2} YEARS?)"
_ANCHORS = "START OF (?:DAY|MONTH|YEAR)|WEEKDAY [0-6]"
_MODIFIERS = rf"(?:, ?(?:{_OFFSETS}|{_ANCHORS}|START OF HOUR)){{1,5}}"

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def _field(low: int, high: int, *, names: list[str] | None = None, others: str = "") -> str:
    """Return the pattern of a list of values, ranges that go up, and steps."""
    ranges = "|".join(f"{first}-(?:{digits(first, high)})" for first in range(low, high))
    value = f"{digits(low, high)}|0[{max(low, 0)}-{min(high, 9)}]"
    if names:
        value += "|" + "|".join(names)
        ranges += "|" + "|".join(
            f"{first}-(?:{'|'.join(names[at + 1 :])})" for at, first in enumerate(names[:-1])
        )
    term = f"(?:\\*|{value}|{ranges})(?:/(?:{digits(1, high)}))?"
    listed = value
    if others:
        term, listed = f"{term}|{others}", f"{listed}|{others}"
    return f"(?:{term})(?:,(?:{listed})){{0,5}}"


def _cron() -> str:
    """Return the pattern of a schedule behind ``CRON``."""
    zones = "|".join(sorted(zone.replace("+", r"\+") for zone in available_timezones() if zone[:1].isupper()))
    second, minute, hour = rf"(?:\*|[0-5]?[0-9])(?:/(?:{digits(1, 59)}))?", _field(0, 59), _field(0, 23)
    month_day = _field(1, 31, others=f"L|LW|(?:{digits(1, 28)})W")
    month = _field(1, 12, names=_MONTHS)
    week_day = _field(0, 7, names=_DAYS, others="[0-7]L|[0-7]#[1-5]")
    macros = "@(?:minutely|hourly|daily|midnight|weekly|monthly|yearly|annually|never)"
    intervals = f"(?:{digits(1, 59)})[sm]|(?:{digits(1, 23)})h"
    return (
        f"CRON (?:TZ=(?:{zones}) )?"
        f"(?:(?:{second} )?{minute} {hour} {month_day} {month} {week_day}(?: 20[3-9][0-9])?"
        f"|{macros}|{intervals})"
    )


CRON = text_of(_cron(), maxLength=REPEAT_CHARS_MAX, examples=["CRON TZ=Europe/Berlin 0 9 * * 1-5"])
REPEAT: Schema = {
    "anyOf": [
        text_of(
            f"|HOURLY|DAILY|WEEKLY|(?:SCHEDULED|STARTED|FINISHED){_MODIFIERS}",
            maxLength=REPEAT_CHARS_MAX,
            examples=["FINISHED, +1 HOUR", "DAILY"],
        ),
        {"$ref": "#/components/schemas/Cron"},
    ]
}
RETRY_AFTER = text_of(
    rf"|\+ ?(?:{digits(1, 999)}) (?:SECOND|MINUTE|HOUR|DAY)S?",
    maxLength=REPEAT_CHARS_MAX,
    examples=["+5 MINUTES"],
)
_NO_CONTROL = r"[^\u0000-\u0008\u000A-\u001F\u007F]+"
NAME = text_of(_NO_CONTROL, minLength=1, maxLength=NAME_CHARS_MAX)


_ONE_NAME = r"[^,\s][^,]*"
PATTERN = text_of(f"{_ONE_NAME}(?:,{_ONE_NAME}){{0,98}}", maxLength=PATTERN_CHARS_MAX)
PATTERNS: Schema = {
    "anyOf": [
        {
            "type": "array",
            "minItems": 1,
            "maxItems": PATTERNS_MAX,
            "items": {"type": "string", "minLength": 1, "maxLength": PATTERN_CHARS_MAX},
        },
        text_of(rf"[^,\s\[][^,]*(?:,{_ONE_NAME}){{0,98}}", maxLength=PATTERN_CHARS_MAX),
    ]
}

SHARED: dict[str, Schema] = {
    "Timestamp": TIMESTAMP,
    "Duration": DURATION,
    "Cron": CRON,
    "Repeat": REPEAT,
    "RetryAfter": RETRY_AFTER,
    "Name": NAME,
    "NamePattern": PATTERN,
    "NamePatterns": PATTERNS,
}
"""Schemas that the others refer to."""


def ref(name: str) -> Schema:
    """Return the reference to a schema of the description."""
    return {"$ref": f"#/components/schemas/{name}"}
