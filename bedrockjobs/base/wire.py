"""The wire format of values: field names, value types, and the wording of errors.

Names are snake_case in Python and Bedrock's camelCase on the wire (``job_id`` and ``jobID``). The value types
accept a header's text as well as a JSON value, and are stricter than Bedrock's.
"""

import re
import warnings
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from bedrockjobs.base import json_schemas, jsontext
from bedrockjobs.base.clock import after_seconds, offset_seconds_of, timestamp, timestamp_ms
from bedrockjobs.base.config import (
    DATA_BYTES_MAX,
    DURATION_S_MAX,
    JOB_ID_MAX,
    JSON_CONTAINERS_MAX,
    JSON_VALUES_MAX,
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    PRIORITIES,
    REPEAT_CHARS_MAX,
    WHOLE_MAX,
)
from bedrockjobs.base.errors import BY_CODE, ERROR_TYPE_CHARS_MAX, BadArguments, CommandError, InvalidCommand
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.jsontext import RawJSON

# Rewording of pydantic's messages; the same everywhere.


_BOUNDS = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
    "less than": "less than",
}


def bound_text(message: str) -> str:
    """Reword a message of pydantic to follow the word ``expected``: ``at least 1``."""
    message = message.removeprefix("Input should be ")
    for prefix, text in _BOUNDS.items():
        if message.startswith(prefix):
            return message.replace(prefix, text, 1)
    return message


@lru_cache(maxsize=1_024)  # more than the number of fields; called for each field that is sent
def wire_name(name: str) -> str:
    """Return the wire name of a field: ``parent_job_id`` -> ``parentJobID``."""
    return re.sub(r"Id(?=s?(?:[A-Z]|$))", "ID", to_camel(name))


class Wire(BaseModel):
    """Base of all messages: snake_case in Python, Bedrock's camelCase on the wire."""

    model_config = ConfigDict(alias_generator=wire_name, populate_by_name=True, frozen=True, extra="ignore")
    model_config["defer_build"] = True  # validators are built at first use, since a program uses only a few


class Spliced:
    """Marks a field whose value is passed on as JSON text, without parsing it."""


class Escaped(str):
    """The value of a raw header after unescaping; ``sent`` is the text before unescaping."""

    sent: str

    def __new__(cls, value: str, sent: str) -> Self:
        """Return the value with the text that was sent."""
        self = super().__new__(cls, value)
        self.sent = sent
        return self

    def json_text(self) -> str:
        """Return the unescaped value, or the text as it was sent if only the latter is JSON."""
        for text in (str(self), self.sent):
            try:
                jsontext.check(text)
            except ValueError:
                continue
            return text
        return str(self)


_PLAIN_STAMP = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{3})?)?")
_DATE_EXPECTED = "a date like 2026-11-21 03:29:56 (UTC) or ISO 8601 with a zone, from year 1 to 9999"
_DEFAULTS = (datetime(2000, 1, 1), datetime(2005, 6, 15))


@lru_cache(maxsize=1024)
def _stored_timestamp(text: str) -> str:
    if _PLAIN_STAMP.fullmatch(text):
        datetime.fromisoformat(text)  # raises for 31 February
        return text if len(text) > 10 else f"{text} 00:00:00"
    if not text[:1].isalnum() or "\0" in text:  # the parser would ignore it: -2026 is not 2026
        raise ValueError("it does not begin as a date does, or has a NUL")
    from dateutil import parser as dateutil_parser  # most programs read no such date

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Parts that the text leaves out come from the default; two different defaults reveal them.
        one, other = (dateutil_parser.parse(text, default=default) for default in _DEFAULTS)
    if one != other:
        raise ValueError("the year, the month or the day is missing")
    moment = one.astimezone(UTC) if one.tzinfo else one
    return timestamp_ms(moment) if moment.microsecond else timestamp(moment)


def stamped(moment: str | datetime | timedelta | None, now: str) -> str:
    """Return the timestamp of a validated field; empty for None. An offset counts from ``now``.

    The static type is wider than text, since it includes what callers may pass before validation.
    """
    text = cast("str", moment or "")
    if text[:1] not in ("+", "-"):
        return text
    return after_seconds(now, cast("float", offset_seconds_of(text)))


def date(value: Any) -> str:
    """Return a date as a timestamp; refuse any other text.

    Differs from Bedrock: firstRun and nextRun are unchecked text there.
    """
    if isinstance(value, datetime):
        moment = value.astimezone(UTC) if value.tzinfo else value
        return timestamp_ms(moment) if moment.microsecond else timestamp(moment)
    if isinstance(value, str) and len(value) <= 100:
        try:
            return _stored_timestamp(value.strip())
        except (ValueError, OverflowError, Warning):
            pass
    raise PydanticCustomError("expected", _DATE_EXPECTED)


def _timestamp(value: Any) -> str:
    """Return a date as a timestamp, and a time from now as an offset with its sign, such as ``+300s``.

    The offset becomes a timestamp only where the field is used (``stamped``), by the clock of the server.
    """
    if isinstance(value, timedelta):
        seconds: float | None = value.total_seconds()
    else:
        text = value if isinstance(value, str) and len(value) <= 100 else ""
        seconds = offset_seconds_of(text)
    if seconds is None:
        try:
            return date(value)
        except PydanticCustomError:
            raise PydanticCustomError(
                "expected", f"{_DATE_EXPECTED}, or a time from now like 5m, +5 MINUTES or -24h"
            ) from None
    if abs(seconds) > DURATION_S_MAX:
        raise PydanticCustomError("expected", f"at most {DURATION_S_MAX} seconds from now")
    return f"{seconds:+.3f}".rstrip("0").rstrip(".") + "s"


# Scalars.

_DIGITS = re.compile(r"0|[1-9][0-9]{0,18}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")

_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")

LINE = r"^[^\u0000-\u0008\u000A-\u001F\u007F]*$"
"""Pattern of a name, or any other text of one line."""

PARAGRAPHS = r"^[^\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F]*$"
"""Pattern of a text of several lines that people write and read."""

SCRIPT = r"^[^\u0000]*$"
"""Pattern of a text that is passed to a program, which cannot contain NUL."""

_PATTERNS_IN_WORDS = {
    LINE: "no control characters but the tab",
    PARAGRAPHS: "no control characters but tabs and line ends",
    SCRIPT: "no NUL characters",
}


def _job_id(value: Any) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= JOB_ID_MAX:
        return value
    raise PydanticCustomError("expected", "digits, a whole number from 0 to 2^63-1")


def listed(value: Any, expected: str, between: str = ",") -> list[Any]:
    """Parse a list: a JSON array, or text separated by ``between``.

    Raises PydanticCustomError that says what was ``expected``.
    """
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("["):
            if value.count(between) >= JSON_VALUES_MAX:
                raise PydanticCustomError("expected", expected)
            return value.split(between) if between == "\n" else [part.strip() for part in text.split(between)]
        try:
            value = jsontext.parse(text, values=JSON_VALUES_MAX)
        except ValueError:
            raise PydanticCustomError("expected", expected) from None
    if not isinstance(value, (list, tuple)):
        raise PydanticCustomError("expected", expected)
    return list(value)


def _job_ids(value: Any) -> list[int]:
    expected = "a comma list or a JSON array of jobIDs"
    return [_job_id(item) for item in listed([value] if isinstance(value, int) else value, expected)]


def _whole(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= WHOLE_MAX:
        return value
    raise PydanticCustomError("expected", "a whole number of at most 18 digits")


_PRIORITIES_EXPECTED = f"one of {', '.join(map(str, sorted(PRIORITIES)))}"

_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, str)):
        value_read = _BOOLEANS.get(str(value).lower())
        if value_read is not None:
            return value_read
    raise PydanticCustomError("expected", "true or false")


def _only_true(value: Any) -> bool:
    """Accept only ``true`` as true, as Bedrock does for ``unique``; ``1`` is false."""
    if value in ("true", "false", "1", "0") or (isinstance(value, int) and value in (0, 1)):
        return value is True or value == "true"
    raise PydanticCustomError("expected", "true or false")


def _priority(value: Any) -> int:
    """Return a priority; refuse any value but one of ``PRIORITIES``.

    Differs from Bedrock: ``abc`` counts as 0 there.
    """
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value in PRIORITIES:
        return value
    raise refused("Invalid priority value", _PRIORITIES_EXPECTED)


def checked_priority(value: Any) -> int:
    """Return the value of ``priority``, the alternative spelling of ``jobPriority``.

    Raises BadArguments with the same explanation.
    """
    try:
        return _priority(value)
    except PydanticCustomError:
        raise BadArguments("Invalid priority value", f"priority: expected {_PRIORITIES_EXPECTED}") from None


def storable(text: str) -> str:
    """Return a text with U+FFFD for characters that databases cannot store: NUL and lone surrogates."""
    return text if text.isprintable() else _UNSTORABLE.sub("\ufffd", text)


def _readable(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value


def one_line(value: Any) -> Any:
    """Return a value; refuse a text with control characters or lone surrogates, as ``OneLine`` does.

    It is for types that have a validator of their own. The tab is allowed, since Bedrock's job names may
    contain it.
    """
    if isinstance(value, str) and not value.isprintable() and _CONTROL.search(value):
        raise PydanticCustomError("expected", _PATTERNS_IN_WORDS[LINE])
    return value


_TYPE_NAME = re.compile(r"(?:[^\W\d]\w*\.)*[^\W\d]\w*")


def _error_type(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= ERROR_TYPE_CHARS_MAX and _TYPE_NAME.fullmatch(value):
        return value
    raise PydanticCustomError("expected", "the type of an exception, such as ValueError or app.NoSuchDay")


# JSON.


def refused(reason: str, expected: str, code: int = 402) -> PydanticCustomError:
    """Return the error of a value whose refusal has its own reason in Bedrock's status line."""
    return PydanticCustomError(
        "refused", "{expected}", {"reason": reason, "expected": expected, "code": code}
    )


def _json_object(value: Any) -> str:
    """Return the text of a JSON object, given as text, as part of a larger JSON text, or as a mapping.

    Differs from Bedrock: Bedrock stores truncated JSON, which breaks every later GetJob of the pattern; it
    crashes at 100,000 levels; its UpdateJob and FailJob accept anything.
    """
    if isinstance(value, dict):
        value = jsontext.dump(value)
    if isinstance(value, RawJSON):
        if value.startswith('"'):
            value = jsontext.parse(value)
        elif value.startswith("[") and not value[1:-1].strip():
            value = "{}"  # PHP's empty array
    if not isinstance(value, str):
        raise refused("Data is not a valid JSON Object", "a JSON object")
    if len(value) > DATA_BYTES_MAX // 4 and len(value.encode()) > DATA_BYTES_MAX:
        raise refused("Data is not a valid JSON Object", f"a JSON object of at most {DATA_BYTES_MAX} bytes")
    try:
        jsontext.check_object(value)
    except ValueError as error:
        raise refused("Data is not a valid JSON Object", f"a JSON object: {error}") from None
    return str(value)


def json_list(value: Any, most: int, *, empty: bool = False) -> list[RawJSON]:
    """Return the texts of the objects in a JSON array; it may have no objects only with ``empty``.

    Of more than ``most`` objects, one more than ``most`` is returned, so that the caller can refuse the list.
    """
    if isinstance(value, (list, tuple)):
        value = (
            f"[{','.join(item.wire() if hasattr(item, 'wire') else jsontext.dump(item) for item in value)}]"
        )
    try:
        if not isinstance(value, str):
            raise ValueError("not a JSON array")  # noqa: TRY004, TRY301
        if value.count("{") > JSON_CONTAINERS_MAX:
            raise ValueError(f"more than {JSON_CONTAINERS_MAX} objects and arrays")  # noqa: TRY301
        items = [RawJSON(text) for text in jsontext.elements(value)[: most + 1]]
    except ValueError as error:
        raise refused("Invalid JSON", f"a JSON array of objects: {error}", code=401) from None
    if not (items or empty) or not all(text.startswith("{") for text in items):
        raise refused("Invalid JSON", "a JSON array of at least one object", code=401)
    return items


_OBJECT_SCHEMA = {"type": "object", "additionalProperties": True}
_STAMP_SCHEMA = {
    "type": "string",
    "examples": ["2026-11-21 03:29:56", "2026-11-21T04:29:56+01:00", "+5 MINUTES", "5m"],
}

Name = Annotated[
    str,
    Field(min_length=1, max_length=NAME_CHARS_MAX),
    BeforeValidator(one_line),
    SchemaType(json_schemas.name, "Name"),
]
Key = Annotated[
    str,
    Field(min_length=1, max_length=KEY_CHARS_MAX),
    BeforeValidator(one_line),
    SchemaType(json_schemas.key),
]
OneLine = Annotated[str, Field(pattern=LINE)]
"""A single line of text, such as the name of a worker, a host, a source or a person."""
Paragraphs = Annotated[str, Field(pattern=PARAGRAPHS)]
"""A text of several lines, such as a reason or a note."""
Printed = Annotated[str, BeforeValidator(_readable)]
"""Output of a program. Its invalid characters are replaced, since they must not fail the run."""
Script = Annotated[str, Field(pattern=SCRIPT)]
"""A shell command."""
ErrorType = Annotated[
    str,
    BeforeValidator(_error_type),
    SchemaType(lambda: json_schemas.text_of(r"(?:[A-Za-z_]\w*\.){0,4}[A-Za-z_]\w{0,60}")),
]
"""The name of an exception's type as a traceback spells it, such as ``ValueError``."""
JobID = Annotated[int, Field(ge=0, le=JOB_ID_MAX), BeforeValidator(_job_id), SchemaType(json_schemas.job_id)]
JobIDs = Annotated[
    list[int], BeforeValidator(_job_ids), WithJsonSchema({"type": "array", "items": {"type": "integer"}})
]
Whole = Annotated[int, BeforeValidator(_whole), json_schemas.WholeShape()]
Boolean = Annotated[bool, BeforeValidator(_boolean), SchemaType(json_schemas.boolean)]
OnlyTrue = Annotated[bool, BeforeValidator(_only_true), SchemaType(json_schemas.only_true)]
Priority = Annotated[
    int,
    BeforeValidator(_priority),
    WithJsonSchema({"type": "integer", "enum": sorted(PRIORITIES)}),
    SchemaType(lambda: json_schemas.choice(sorted(PRIORITIES))),
]
# static type of what callers may pass; validation turns it into a timestamp, see ``stamped``
if TYPE_CHECKING:
    Timestamp = str | datetime | timedelta
else:
    Timestamp = Annotated[
        str,
        BeforeValidator(_timestamp),
        WithJsonSchema(_STAMP_SCHEMA),
        SchemaType(json_schemas.timestamp, "Timestamp"),
    ]
Repeat = Annotated[str, Field(max_length=REPEAT_CHARS_MAX), SchemaType(json_schemas.repeat, "Repeat")]
RetryAfter = Annotated[
    str, Field(max_length=REPEAT_CHARS_MAX), SchemaType(json_schemas.retry_after, "RetryAfter")
]
JSONObject = Annotated[
    Any,
    Spliced(),
    BeforeValidator(_json_object),
    WithJsonSchema(_OBJECT_SCHEMA),
    SchemaType(json_schemas.json_object),
]
"""A JSON object: input may be a mapping or its text, output is always its text."""


def command_error(error: ValidationError) -> CommandError:
    """Return the first fault that a validation found, in Bedrock's words: ``402 Missing name``."""
    return _refusal(error.errors(include_url=False, include_input=False)[0])


def command_errors(error: ValidationError) -> list[tuple[str, CommandError]]:
    """Return every fault that a validation found: the wire name of the parameter, and the error for it."""
    errors = error.errors(include_url=False, include_input=False)
    return [(str(each["loc"][0]) if each["loc"] else "", _refusal(each)) for each in errors]


def invalid_command(error: ValidationError, command_class: type[BaseModel]) -> InvalidCommand:
    """Return the error for a Python call with invalid arguments: it has all faults, by Python names."""
    names = {wire_name(name): name for name in command_class.model_fields}
    problems = []
    for each in error.errors(include_url=False, include_input=False):
        each["loc"] = tuple(names.get(str(part), part) for part in each["loc"])
        refusal = _refusal(each)
        if each["type"] == "extra_forbidden":
            near = get_close_matches(str(each["loc"][0]), command_class.model_fields, 1)
            refusal.detail += f", expected {near[0]}" if near else ""
        problems.append(refusal)
    first = error.errors(include_url=False, include_input=False)[0]
    first["loc"] = tuple(
        wire_name(part) if part in command_class.model_fields else part for part in first["loc"]
    )
    detail = "; ".join(each.detail for each in problems)
    return InvalidCommand(_refusal(first).reason, detail, command_class.__name__)


def _refusal(first: ErrorDetails) -> CommandError:
    """Return one validation error as a refusal."""
    where = ".".join(str(part) for part in first["loc"])
    name = next((str(part) for part in reversed(first["loc"]) if isinstance(part, str)), where)
    context = first.get("ctx", {})
    expected = f"{where}: expected {_expectation(first['type'], first['msg'], context)}"
    if first["type"] == "refused":
        return BY_CODE[context["code"]](context["reason"], expected)
    if first["type"] == "extra_forbidden":
        return BadArguments(f"Unknown attribute {name[:100]}", f"{where[:200]}: there is no such attribute")
    empty = first["type"] == "string_too_short" and context.get("min_length") == 1
    word = "Missing" if first["type"] == "missing" or empty else "Malformed"
    return BadArguments(f"{word} {name}", expected if word == "Malformed" else f"{where} is required")


def _expectation(kind: str, message: str, context: dict[str, Any]) -> str:
    if kind in ("expected", "refused"):
        return message
    if kind == "string_too_long":
        return f"at most {context['max_length']} characters"
    if kind == "string_unicode":
        return "text without lone surrogates"
    if kind == "string_pattern_mismatch":
        if context["pattern"] in _PATTERNS_IN_WORDS:
            return _PATTERNS_IN_WORDS[context["pattern"]]
        return f"text that matches {context['pattern']}"
    if kind == "too_long":
        parts = "elements" if context.get("field_type") in ("List", "Tuple", "Set", "Dict") else "characters"
        return f"at most {context['max_length']} {parts}"
    return bound_text(message).removeprefix("Value error, ")
