"""JSON schemas of request values in all their spellings: ``"5"`` for 5, comma lists, dates, names.

Pydantic describes a value after validation; a ``SchemaType`` next to the validator describes its input. The
patterns cover the common spellings, not every rare one, and the server accepts every value that matches. They
are simple enough to mean the same in every implementation of JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from bedrockjobs.base.config import (
    DURATION_S_MAX,
    GLOB_CHARS_MAX,
    JOB_ID_MAX,
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    REPEAT_CHARS_MAX,
    WHOLE_MAX,
)

Schema = dict[str, Any]

NAMED = "x-name"
"""Key, in a schema, of the name by which the OpenAPI description refers to it, since several schemas share
it."""

_WHOLE = "x-whole"


class SchemaType:
    """Describes how a request may spell a value; a named schema is shared by reference."""

    def __init__(self, make: Callable[[], Schema], name: str = "") -> None:
        """Describe the value by the schema that ``make`` returns when it is needed."""
        self._make = make
        self._name = name

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return the schema of a request's value; for replies, that of pydantic."""
        if handler.mode != "validation":
            return handler(core)
        return {**self._make(), **({NAMED: self._name} if self._name else {})}


def of_parameters(schema: Schema, emptied: Collection[str] = ()) -> None:
    """Change the schemas of parameters to what requests may send: every spelling within the limits, and null.

    Parameters in ``emptied`` may also be an empty text.
    """
    required = schema.get("required", ())
    for name, parameter in schema["properties"].items():
        parameter.pop("title", None)
        options = [_limited(one) for one in parameter.pop("anyOf", [])]
        value = {**_limited(parameter), **({"anyOf": options} if options else {})}
        if value.get("default", 0) is None:
            del value["default"]
        value = value if name in required else _or(value, {"type": "null"})
        schema["properties"][name] = _or(value, _EMPTY) if name in emptied else value
    schema.pop("title", None)


def _limited(schema: Schema) -> Schema:
    if not schema.pop(_WHOLE, False):
        return schema
    low, high = (schema.get(key, schema.get(also)) for key, also in (("ge", "minimum"), ("le", "maximum")))
    return {**whole(low, high), **{key: schema[key] for key in _NOTES if key in schema}}


_NOTES = ("description", "default")


_EMPTY: Schema = {"type": "string", "maxLength": 0}


def _or(schema: Schema, other: Schema) -> Schema:
    """Return a schema that also accepts ``other``, such as null: a null parameter counts as left out."""
    bare = {key: value for key, value in schema.items() if key not in _NOTES}
    if not bare or bare == other:
        return schema
    options = bare["anyOf"] if set(bare) == {"anyOf"} else [bare]
    flat = [one for option in options for one in (option["anyOf"] if set(option) == {"anyOf"} else [option])]
    kept = [option for option in flat if option != other]
    return {"anyOf": [*kept, other], **{key: schema[key] for key in _NOTES if key in schema}}


# Parameters that need or exclude each other.

_GIVEN: Schema = {"type": ["string", "integer", "boolean", "array", "object"]}


def not_together(*names: str) -> Schema:
    """Return the rule that the parameters ``names`` are not all given together."""
    return {"not": {"required": list(names), "properties": dict.fromkeys(names, _GIVEN)}}


def one_of(*names: str) -> Schema:
    """Return the rule that at least one of the parameters ``names`` is given."""
    return {"anyOf": [{"required": [name], "properties": {name: _GIVEN}} for name in names]}


def left_out(*names: str, empty: tuple[Any, ...] = ()) -> Schema:
    """Return the rule that each parameter of ``names`` is left out, or has one of the values ``empty``."""
    return {"properties": {name: {"enum": [None, *empty]} for name in names}}


# Numbers and lists.


def digits(low: int, high: int) -> str:
    """Return a pattern of the whole numbers from ``low`` to ``high``, written without leading zeros."""
    if low < 0:
        parts = [f"-(?:{digits(max(1, -high), -low)})"]
        return "|".join([*parts, digits(0, high)] if high >= 0 else parts)
    return "|".join(_same_length(str(a), str(b)) for a, b in _by_length(low, high))


def _by_length(low: int, high: int) -> list[tuple[int, int]]:
    alternatives = []
    while low <= high:
        end = min(high, 10 ** len(str(low)) - 1)
        alternatives.append((low, end))
        low = end + 1
    return alternatives


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
    """Return the schema of a text that matches a pattern as a whole."""
    return {"type": "string", "pattern": f"^(?:{pattern})$", **more}


def whole(low: int | None = None, high: int | None = None) -> Schema:
    """Return the schema of a whole number, as JSON or as text of at most 18 digits."""
    number = {
        "type": "integer",
        "minimum": -WHOLE_MAX if low is None else low,
        "maximum": WHOLE_MAX if high is None else high,
    }
    low = None if low is None or low <= -WHOLE_MAX else low
    high = None if high is None or high >= WHOLE_MAX else high
    if low is None and high is None:
        text = "-?[0-9]{1,18}"
    elif high is None:
        text = {-1: "-0{0,16}[01]|[0-9]{1,18}", 0: "-0{1,17}|[0-9]{1,18}"}.get(
            low or 0, "0{0,9}[1-9][0-9]{0,8}"
        )
    elif low is None:
        text = f"-[0-9]{{1,18}}|0{{0,9}}(?:{digits(0, high)})"
    else:
        text = f"0{{0,9}}(?:{digits(low, high)})" + ("" if low else "|-0{1,17}")
    return {"anyOf": [number, text_of(text)]}


class WholeShape:
    """Marks a whole number that may be sent as text; ``of_parameters`` adds its limits."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Schema:
        """Return pydantic's schema, with a mark for a request's value."""
        schema = handler(core)
        return {**schema, _WHOLE: True} if handler.mode == "validation" else schema


def boolean() -> Schema:
    """Return the schema of true or false."""
    return {
        "anyOf": [
            {"type": "boolean"},
            text_of("[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|0|1"),
            {"type": "integer", "enum": [0, 1]},
        ]
    }


def only_true() -> Schema:
    """Return the schema of a flag that only `true` sets."""
    return {
        "anyOf": [
            {"type": "boolean"},
            {"type": "string", "enum": ["true", "false", "0", "1"]},
            {"type": "integer", "enum": [0, 1]},
        ]
    }


def choice(values: list[int]) -> Schema:
    """Return the schema of a number that is one of ``values``, as JSON or as text."""
    texts = [str(value) for value in values]
    return {"anyOf": [{"type": "integer", "enum": values}, {"type": "string", "enum": texts}]}


def json_object() -> Schema:
    """Return the schema of a JSON object; PHP encodes an empty one as an array."""
    return {"anyOf": [{"type": "object"}, {"type": "array", "maxItems": 0}]}


def job_id() -> Schema:
    """Return the schema of a jobID or a runID."""
    return {
        "anyOf": [{"type": "integer", "minimum": 0, "maximum": JOB_ID_MAX}, text_of("0|[1-9][0-9]{0,17}")]
    }


def job_ids(least: int, most: int) -> Schema:
    """Return the schema of a list of jobIDs or runIDs."""
    items = {"type": "array", "items": job_id(), "maxItems": most, **({"minItems": least} if least else {})}
    return {"anyOf": [items, *job_id()["anyOf"]]}


# Texts with a grammar.

_DATE = (
    "(?:1[0-9]|[2-8][0-9])[0-9]{2}-"
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3})?"


def timestamp() -> Schema:
    """Return the schema of a date, or of a time relative to now such as ``5m``."""
    return text_of(
        f"{_DATE}(?:[ T]{_TIME}(?:Z|[+-](?:0[0-9]|1[0-3]):[0-5][0-9])?)?"
        f"|[+-]?(?:{_SHORT_LENGTH})|[+-] ?{_LONG_LENGTH}",
        examples=["2026-11-21 03:29:56", "2026-11-21T04:29:56+01:00", "+5 MINUTES", "5m"],
    )


_SHORT_LENGTH = "[0-9]{1,8}s|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d|[0-9]{1,3}h[0-9]{1,3}m(?:[0-9]{1,3}s)?"
_LONG_LENGTH = "[0-9]{1,3} (?:SECOND|MINUTE|HOUR|DAY)S?"


def duration() -> Schema:
    """Return the schema of a duration."""
    return {
        "anyOf": [
            {"type": "integer", "minimum": 0, "maximum": DURATION_S_MAX},
            text_of(rf"[0-9]{{1,8}}s?|{_SHORT_LENGTH}|\+ ?{_LONG_LENGTH}"),
        ],
        "examples": ["90s", "1h30m", 60],
    }


_OFFSETS = "[+-] ?(?:[0-9]{1,6} SECONDS?|[0-9]{1,3} (?:MINUTE|HOUR|DAY|MONTH)S?|[0-9]{1,2} YEARS?)"
_ANCHORS = "START OF (?:DAY|MONTH|YEAR)|WEEKDAY [0-6]"
_MODIFIERS = rf"(?:, ?(?:{_OFFSETS}|{_ANCHORS}|START OF HOUR)){{1,5}}"

_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def _field(low: int, high: int, *, names: list[str] | None = None, others: str = "") -> str:
    """Return the pattern of one field of a cron schedule: a comma list of values, ranges and steps."""
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
    """Return the pattern of what follows ``CRON`` in a repeat, with ``CRON`` itself."""
    zones = "|".join(sorted(zone.replace("+", r"\+") for zone in available_timezones() if zone[:1].isupper()))
    second, minute, hour = rf"(?:\*|[0-5]?[0-9])(?:/(?:{digits(1, 59)}))?", _field(0, 59), _field(0, 23)
    month_day = _field(1, 31, others=f"L|LW|(?:{digits(1, 28)})W")
    month = _field(1, 12, names=_MONTHS)
    week_day = _field(0, 7, names=_DAYS, others="[0-7]L|[0-7]#[1-5]")
    macros = "@(?:minutely|hourly|daily|midnight|weekly|monthly|yearly|annually|never)"
    intervals = f"(?:{digits(1, 59)})[sm]|(?:{digits(1, 23)})h"
    return (
        f"CRON (?:TZ=(?:{zones}) )?"
        f"(?:(?:{second} )?{minute} {hour} (?:{month_day}|\\?) {month} (?:{week_day}|\\?)(?: 20[3-9][0-9])?"
        f"|{macros}|{intervals})"
    )


@cache
def cron() -> Schema:
    """Return the schema of a repeat that is a cron schedule."""
    return text_of(
        _cron(), maxLength=REPEAT_CHARS_MAX, examples=["CRON TZ=Europe/Berlin 0 9 * * 1-5"], **{NAMED: "Cron"}
    )


def repeat() -> Schema:
    """Return the schema of any repeat."""
    bedrocks = text_of(
        f"|HOURLY|DAILY|WEEKLY|(?:SCHEDULED|STARTED|FINISHED){_MODIFIERS}",
        maxLength=REPEAT_CHARS_MAX,
        examples=["FINISHED, +1 HOUR", "DAILY"],
    )
    return {"anyOf": [bedrocks, cron()]}


def retry_after() -> Schema:
    """Return the schema of the modifiers of retryAfter."""
    return text_of(
        rf"|\+ ?(?:{digits(1, 999)}) (?:SECOND|MINUTE|HOUR|DAY)S?",
        maxLength=REPEAT_CHARS_MAX,
        examples=["+5 MINUTES"],
    )


def name() -> Schema:
    """Return the schema of a job's name."""
    return text_of(rf"[^{_CONTROL}]+", minLength=1, maxLength=NAME_CHARS_MAX)


_CONTROL = r"\u0000-\u0008\u000A-\u001F\u007F"


def key() -> Schema:
    """Return the schema of an idempotency key."""
    return text_of(rf"[^{_CONTROL}]+", minLength=1, maxLength=KEY_CHARS_MAX)


_ONE_NAME = rf"[^,\s{_CONTROL}][^,{_CONTROL}]*"
_ONE_PATTERN = rf"(?:[^,*\s{_CONTROL}]|\*)[^,*{_CONTROL}]*(?:\*[^,*{_CONTROL}]*){{0,19}}"


def pattern() -> Schema:
    """Return the schema of a pattern of names, or a comma list of them."""
    return {
        "anyOf": [
            text_of(_ONE_PATTERN, maxLength=GLOB_CHARS_MAX),
            text_of(f"{_ONE_NAME}(?:,{_ONE_NAME}){{1,98}}", maxLength=PATTERN_CHARS_MAX),
        ]
    }


def patterns() -> Schema:
    """Return the schema of a list of patterns."""
    return {
        "anyOf": [
            {
                "type": "array",
                "minItems": 1,
                "maxItems": PATTERNS_MAX,
                "items": text_of(
                    rf"[^*{_CONTROL}]*(?:\*[^*{_CONTROL}]*){{0,20}}", minLength=1, maxLength=GLOB_CHARS_MAX
                ),
            },
            text_of(
                rf"[^,\s\[{_CONTROL}][^,{_CONTROL}]{{0,79}}(?:,[^,\s{_CONTROL}][^,{_CONTROL}]{{0,79}}){{0,98}}",
                maxLength=PATTERN_CHARS_MAX,
            ),
        ]
    }


def ref(name: str) -> Schema:
    """Return the reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}
