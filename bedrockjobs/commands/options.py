"""What CreateJob and UpdateJob take beside Bedrock's attributes: how a job is run, retried and scheduled.

``OPTIONS`` names all of it by wire name; a job keeps what it was given in the column ``options``.
"""

from __future__ import annotations

from datetime import timedelta
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, WithJsonSchema, field_validator
from pydantic_core import CoreSchema, PydanticCustomError

from bedrockjobs.base import clock, json_schemas, jsontext
from bedrockjobs.base.config import (
    ARGV_MAX,
    DURATION_S_MAX,
    HISTORY_MAX,
    NAME_CHARS_MAX,
    NOTE_CHARS_MAX,
    OUTPUT_TAIL_MAX,
    RETRIES_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from bedrockjobs.base.json_schemas import Shape
from bedrockjobs.base.wire import LINE, OneLine, Paragraphs, Script, Whole, listed, one_line, wire_name
from bedrockjobs.commands.base import BAD_OPTION, Parameters, Refusal


def whole_seconds(value: Any) -> int:
    """Return whole seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    seconds = clock.seconds_of(value) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or seconds != int(seconds):
        raise PydanticCustomError(
            "expected", clock.WORDS.replace("a duration", "a duration of whole seconds")
        )
    if not 0 <= seconds <= DURATION_S_MAX:
        raise PydanticCustomError("expected", f"at most {DURATION_S_MAX} seconds")
    return int(seconds)


def _strings(value: Any) -> list[str]:
    """Read a JSON list, or a comma list without empty parts, of texts."""
    found = listed(value, "a JSON array of strings")
    if not all(isinstance(item, str) for item in found):
        raise PydanticCustomError("expected", "a JSON array of strings")
    typed = isinstance(value, str) and not value.strip().startswith("[")
    return [item for item in found if item] if typed else found


def _tags(value: Any) -> list[str]:
    found = _strings(value)
    if any(len(tag) > TAG_CHARS_MAX for tag in found):
        raise PydanticCustomError("expected", f"words of at most {TAG_CHARS_MAX} characters")
    return [one_line(tag) for tag in found]


def _tags_shape() -> dict[str, Any]:
    items = {"type": "string", "maxLength": TAG_CHARS_MAX, "pattern": LINE}
    words = json_schemas.text_of(
        r" {0,9}(?:[^,\s\[\u0000-\u001F\u007F][^,\u0000-\u001F\u007F]{0,90})?"
        r"(?:,[^,\u0000-\u001F\u007F]{0,99}){0,19}"
    )
    return {"anyOf": [{"type": "array", "maxItems": TAGS_MAX, "items": items}, words]}


Tags = Annotated[
    list[str] | None,
    Field(max_length=TAGS_MAX),
    BeforeValidator(lambda value: None if value is None else _tags(value)),
    Shape(_tags_shape),
]


def _argv(value: Any) -> list[str]:
    if isinstance(value, str) and not value.strip().startswith("["):
        raise PydanticCustomError("expected", 'a JSON array of strings: ["program", "argument"]')
    found = _strings(value)
    if not found or not found[0]:
        raise PydanticCustomError("expected", "at least a program")
    if any("\0" in part for part in found):
        raise PydanticCustomError("expected", "no NUL characters")
    return found


def _lock(value: Any) -> str | bool:
    """Return the name of a lock; ``true`` stands for the job's own name."""
    if value is True or value == "true":
        return True
    if value is False or value in ("false", ""):
        return ""
    if isinstance(value, str) and len(value) <= NAME_CHARS_MAX and value.isprintable():
        return value
    raise PydanticCustomError("expected", f"true, or a name of at most {NAME_CHARS_MAX} printable characters")


Duration = Annotated[
    int,
    BeforeValidator(whole_seconds),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}], "examples": ["90s", "1h30m", 60]}
    ),
    Shape(json_schemas.duration, "Duration"),
]
"""Whole seconds; typed as ``90s``, ``5m``, ``1h30m`` or ``+90 SECONDS`` too."""


class Fetch(Parameters):
    """An HTTP request that a worker is to make."""

    url: str = Field(
        min_length=1,
        max_length=2_048,
        pattern=r"^https?://[^\u0000-\u0020\u007F]*$",
        description="What to fetch.",
    )
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = Field(
        default="GET", description="How."
    )
    headers: dict[OneLine, OneLine] = Field(default={}, description="Headers to send.")
    body: str = Field(default="", description="Body to send.")
    status: list[Annotated[int, Field(strict=True, ge=100, le=599)]] = Field(
        default=[], description="Statuses that count as success; any of 2xx if left out."
    )
    timeout: Duration = Field(default=60, description="Time it may take.")


def _url(value: Any) -> Any:
    """Read an address, or a JSON object with more about the request."""
    if isinstance(value, str):
        text = value.strip()
        if not text.startswith("{"):
            return {"url": text}
        try:
            return jsontext.parse(text)
        except ValueError:
            pass
    elif isinstance(value, (dict, Fetch)):
        return value
    raise PydanticCustomError(
        "expected", "a URL, or a JSON object with url, method, headers, body, status, timeout"
    )


Strings = Annotated[
    list[str], BeforeValidator(_strings), WithJsonSchema({"type": "array", "items": {"type": "string"}})
]
Lock = Annotated[
    str | bool,
    BeforeValidator(_lock),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string"}]}),
    Shape(lambda: {"anyOf": [{"type": "boolean"}, json_schemas.text_of("[ -~]*", maxLength=NAME_CHARS_MAX)]}),
]


class URLShape:
    """Says that an address alone stands for a request to it."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; as it is answered it is pydantic's own."""
        found = handler(core)
        if handler.mode == "validation":
            address = json_schemas.text_of("https?://[!-~]+", maxLength=2_048)
            found = {"anyOf": [address, *found.pop("anyOf")]}
        return found


NOT_WITH_PINGS = (
    "cmd",
    "argv",
    "url",
    "hosts",
    "lock",
    "retries",
    "expire_after",
    "max_late",
    "jitter",
    "overlap",
    "catchup",
)
"""Options that mean nothing for a schedule with ``expect``, whose work is done elsewhere."""


def one_command(schema: dict[str, Any]) -> None:
    """Add the rule that a job has one command of its own at the most."""
    both = (("cmd", "argv"), ("cmd", "url"), ("argv", "url"))
    schema["allOf"] = [{"anyOf": [json_schemas.left_out(*names) for names in both]}]


EMPTIED: Any = ""
"""Given for an option, it takes the option back: ``UpdateJob(job_id=1, run_timeout=EMPTIED)``."""


class JobOptions(Parameters):
    """How a job is run, retried and scheduled; an empty text takes back what was given before."""

    model_config = ConfigDict(json_schema_extra=one_command)
    refusals = [
        BAD_OPTION,
        Refusal(402, "Malformed lock", "`lock` together with `retryAfter`."),
        Refusal(402, "Malformed expect", "`expect` for what is no schedule, or beside options of runs."),
        Refusal(402, "Malformed hosts", "`hosts` together with `lock`, or for a job that is no schedule."),
    ]

    cmd: Script | None = Field(
        default=None, max_length=65_536, description="Shell command that a worker is to run."
    )
    argv: Annotated[
        list[str] | None,
        Field(
            max_length=ARGV_MAX, description="Program and arguments that a worker is to run, without a shell."
        ),
        BeforeValidator(lambda value: None if value is None else _argv(value)),
        Shape(
            lambda: {
                "type": "array",
                "minItems": 1,
                "maxItems": ARGV_MAX,
                "items": json_schemas.text_of(r"[^\u0000]+"),
            }
        ),
    ] = None
    url: Annotated[
        Fetch | None, BeforeValidator(lambda value: None if value is None else _url(value)), URLShape()
    ] = Field(default=None, description="HTTP request that a worker is to make.")
    run_timeout: Duration | None = Field(
        default=None, description="Time a run may take; then its worker is told to stop."
    )
    grace: Duration | None = Field(default=None, description="Time between TERM and KILL; 60 s if left out.")
    lease: Duration | None = Field(
        default=None, description="Time a worker may be silent before its run counts as lost; 45 s."
    )
    on_lost: Literal["retry", "fail"] | None = Field(
        default=None, description="What becomes of a job whose run was lost; retry if left out."
    )
    on_child_failure: Literal["continue", "fail"] | None = Field(
        default=None,
        description="What becomes of a parent when its last child has ended and one has failed: it goes on,"
        " and is told in `failedChildJobs`, or it has failed as well; continue if left out.",
    )
    retries: Whole | None = Field(
        default=None, ge=0, le=RETRIES_MAX, description="How often a failed run is tried again."
    )
    backoff: Duration | None = Field(
        default=None, description="Time before the first of them, doubled each time; 10 s."
    )
    max_backoff: Duration | None = Field(
        default=None, description="The longest of these times; 1 h if left out."
    )
    expire_after: Duration | None = Field(
        default=None,
        description="Time after its nextRun within which it must have been taken; else it is dropped.",
    )
    lock: Lock | None = Field(
        default=None, description="No two jobs with the same lock run at once; true: the job's own name."
    )
    catchup: Literal["once", "skip", "all"] | None = Field(
        default=None, description="What becomes of the ticks a schedule missed; once if left out."
    )
    overlap: Literal["skip", "queue"] | None = Field(
        default=None,
        description="What becomes of ticks during a run; skip if left out, queue treats them as missed.",
    )
    hosts: Literal["all", ""] | None = Field(
        default=None, description="all: a tick makes a job for each worker that asks for the name."
    )
    expect: Literal["ping", ""] | None = Field(
        default=None,
        description="ping: the schedule runs nowhere; each of its ticks waits for a ping from outside, see"
        " PingSchedule.",
    )
    ping_grace: Duration | None = Field(
        default=None,
        description="Time that a ping may be late, and that what began with one may take; 5 min if left out."
        " Then the tick is missed.",
    )
    max_late: Duration | None = Field(default=None, description="A tick older than this is skipped.")
    jitter: Duration | None = Field(default=None, description="A run begins up to this much after its tick.")
    keep_success: Whole | None = Field(
        default=None, ge=0, le=HISTORY_MAX, description="Successful runs kept; 100."
    )
    keep_fail: Whole | None = Field(default=None, ge=0, le=HISTORY_MAX, description="Other runs kept; 100.")
    keep: Duration | None = Field(
        default=None,
        description="Time that a run which ended well is kept, also where no worker gave its name; 0: as"
        " keepSuccess says; what the server's keep_finished says if left out.",
    )
    output_lines: Whole | None = Field(
        default=None, ge=0, le=OUTPUT_TAIL_MAX, description="Last lines of output kept with a run; 10."
    )
    tags: Tags = Field(default=None, description="Words to find it by.")

    note: Paragraphs | None = Field(
        default=None, max_length=NOTE_CHARS_MAX, description="Why the job exists, for people who find it."
    )

    traceparent: str | None = Field(
        default=None,
        max_length=55,
        pattern=r"^([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$",
        description="W3C trace context of who made it, handed to the command as TRACEPARENT.",
    )

    if not TYPE_CHECKING:  # checkers derive it from the fields

        def __init__(self, **given: Any) -> None:
            """Take the arguments of Python's callers, where None counts as left out."""
            super().__init__(**{k: v for k, v in given.items() if v is not None or k not in _EITHER_NAME})

        __init__.__pydantic_base_init__ = True  # what is read from a request does not come by here

    @field_validator(
        "argv",
        "url",
        "run_timeout",
        "grace",
        "lease",
        "on_lost",
        "on_child_failure",
        "retries",
        "backoff",
        "max_backoff",
        "expire_after",
        "catchup",
        "overlap",
        "ping_grace",
        "max_late",
        "jitter",
        "keep_success",
        "keep_fail",
        "keep",
        "output_lines",
        mode="before",
    )
    @classmethod
    def _emptied(cls, value: Any) -> Any:
        """Let an empty text stand for None: JSON's null and Python's None are left out before."""
        return None if isinstance(value, str) and not value.strip() else value

    def chosen(self) -> dict[str, str]:
        """Return what was given, as JSON texts by wire name; an option that was emptied is ``null``."""
        found: dict[str, str] = {}
        for field in sorted(JobOptions.model_fields.keys() & self.model_fields_set):
            value = getattr(self, field)
            if isinstance(value, Fetch):
                found[wire_name(field)] = jsontext.dump(
                    value.model_dump(by_alias=True, exclude_defaults=True)
                )
            else:
                found[wire_name(field)] = "null" if value in ("", [], None) else jsontext.dump(value)
        return found


def answered_type(annotation: Any) -> Any:
    """Return the type of an option in an answer, where its choices and limits are not checked again."""
    if get_origin(annotation) is Annotated:
        return answered_type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return str
    if isinstance(annotation, type) and issubclass(annotation, Parameters):
        return dict[str, Any]
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(answered_type(part) for part in get_args(annotation))]  # noqa: UP007 - of a tuple
    return annotation


JobOptions.emptied = frozenset(JobOptions.model_fields)

OPTIONS = frozenset(wire_name(field) for field in JobOptions.model_fields)

_EITHER_NAME = OPTIONS | JobOptions.emptied
