"""Options of jobs beyond Bedrock's attributes: how a job is run, retried and scheduled.

``OPTIONS`` is the set of their wire names; a job stores its own in the column ``options``.
"""

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
    RUNNING_LIMIT_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
)
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import LINE, OneLine, Paragraphs, Script, Whole, listed, one_line, wire_name
from bedrockjobs.commands.base import BAD_OPTION, Parameters, Refusal


def whole_seconds(value: Any) -> int:
    """Parse a duration into whole seconds."""
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
    """Parse a JSON list, or a comma list without empty parts, of texts."""
    strings = listed(value, "a JSON array of strings")
    if not all(isinstance(item, str) for item in strings):
        raise PydanticCustomError("expected", "a JSON array of strings")
    typed = isinstance(value, str) and not value.strip().startswith("[")
    return [item for item in strings if item] if typed else strings


def _tags(value: Any) -> list[str]:
    tags = _strings(value)
    if any(len(tag) > TAG_CHARS_MAX for tag in tags):
        raise PydanticCustomError("expected", f"words of at most {TAG_CHARS_MAX} characters")
    return [one_line(tag) for tag in tags]


def _tags_shape() -> dict[str, Any]:
    items = {"type": "string", "maxLength": TAG_CHARS_MAX, "pattern": LINE}
    schema = json_schemas.text_of(
        r" {0,9}(?:[^,\s\[\u0000-\u001F\u007F][^,\u0000-\u001F\u007F]{0,90})?"
        r"(?:,[^,\u0000-\u001F\u007F]{0,99}){0,19}"
    )
    return {"anyOf": [{"type": "array", "maxItems": TAGS_MAX, "items": items}, schema]}


Tags = Annotated[
    list[str] | None,
    Field(max_length=TAGS_MAX),
    BeforeValidator(lambda value: None if value is None else _tags(value)),
    SchemaType(_tags_shape),
]


def _argv(value: Any) -> list[str]:
    if isinstance(value, str) and not value.strip().startswith("["):
        raise PydanticCustomError("expected", 'a JSON array of strings: ["program", "argument"]')
    argv = _strings(value)
    if not argv or not argv[0]:
        raise PydanticCustomError("expected", "at least a program")
    if any("\0" in part for part in argv):
        raise PydanticCustomError("expected", "no NUL characters")
    return argv


def _lock(value: Any) -> str | bool:
    """Parse the name of a lock; ``true`` means the job's own name."""
    if value is True or value == "true":
        return True
    if value is False or value in ("false", ""):
        return ""
    if isinstance(value, str) and len(value) <= NAME_CHARS_MAX and value.isprintable():
        return value
    raise PydanticCustomError("expected", f"true, or a name of at most {NAME_CHARS_MAX} printable characters")


def _concurrency_key(value: Any) -> Any:
    """Accept what a lock's name may be, since locks and concurrency keys share one set of names."""
    if isinstance(value, str) and len(value) <= NAME_CHARS_MAX and (value.isprintable() or not value):
        return value
    raise PydanticCustomError("expected", f"at most {NAME_CHARS_MAX} printable characters")


Duration = Annotated[
    int,
    BeforeValidator(whole_seconds),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}], "examples": ["90s", "1h30m", 60]}
    ),
    SchemaType(json_schemas.duration, "Duration"),
]
"""Whole seconds; may also be given as ``90s``, ``5m``, ``1h30m`` or ``+90 SECONDS``."""


class Fetch(Parameters):
    """An HTTP request for a worker to make."""

    url: str = Field(
        min_length=1,
        max_length=2_048,
        pattern=r"^https?://[^\u0000-\u0020\u007F]*$",
        description="URL of the request.",
    )
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] = Field(
        default="GET", description="HTTP method."
    )
    headers: dict[OneLine, OneLine] = Field(default={}, description="Headers to send.")
    body: str = Field(default="", description="Body to send.")
    status: list[Annotated[int, Field(strict=True, ge=100, le=599)]] = Field(
        default=[], description="Statuses that count as success; all of 2xx if left out."
    )
    timeout: Duration = Field(default=60, description="Maximum duration.")


def _url(value: Any) -> Any:
    """Parse a URL, or a JSON object with details of the request."""
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


Lock = Annotated[
    str | bool,
    BeforeValidator(_lock),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "string"}]}),
    SchemaType(
        lambda: {"anyOf": [{"type": "boolean"}, json_schemas.text_of("[ -~]*", maxLength=NAME_CHARS_MAX)]}
    ),
]


ConcurrencyKey = Annotated[
    str,
    BeforeValidator(_concurrency_key),
    SchemaType(lambda: json_schemas.text_of("[ -~]*", maxLength=NAME_CHARS_MAX)),
]


class URLShape:
    """Adds to the schema of an HTTP request that a URL alone is allowed."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of a request's value; for replies, pydantic's own."""
        schema = handler(core)
        if handler.mode == "validation":
            address = json_schemas.text_of("https?://[!-~]+", maxLength=2_048)
            schema = {"anyOf": [address, *schema.pop("anyOf")]}
        return schema


NOT_WITH_PINGS = (
    "cmd",
    "argv",
    "url",
    "hosts",
    "lock",
    "concurrency_key",
    "concurrency_limit",
    "retries",
    "expire_after",
    "max_late",
    "jitter",
    "overlap",
    "catchup",
)
"""Options that a schedule with ``expect`` cannot have, because its work is done elsewhere."""


def one_command(schema: dict[str, Any]) -> None:
    """Add the rule that a job has at most one command of its own."""
    both = (("cmd", "argv"), ("cmd", "url"), ("argv", "url"))
    schema["allOf"] = [{"anyOf": [json_schemas.left_out(*names) for names in both]}]


EMPTIED: Any = ""
"""Removes an option: ``UpdateJob(job_id=1, run_timeout=EMPTIED)``."""


class JobOptions(Parameters):
    """Options on how a job is run, retried and scheduled; an empty text removes an option."""

    model_config = ConfigDict(json_schema_extra=one_command)
    refusals = [
        BAD_OPTION,
        Refusal(402, "Malformed lock", "`lock` is given together with `retryAfter`."),
        Refusal(
            402, "Malformed concurrencyKey", "`concurrencyKey` is given together with `lock` or `retryAfter`."
        ),
        Refusal(402, "Malformed concurrencyLimit", "`concurrencyLimit` is given without `concurrencyKey`."),
        Refusal(
            402,
            "Malformed expect",
            "`expect` is given for a job that is not a schedule, or together with options of runs.",
        ),
        Refusal(
            402,
            "Malformed hosts",
            "`hosts` is given together with `lock` or `concurrencyKey`, or for a job that is not a schedule.",
        ),
    ]

    cmd: Script | None = Field(
        default=None, max_length=65_536, description="Shell command for a worker to run."
    )
    argv: Annotated[
        list[str] | None,
        Field(max_length=ARGV_MAX, description="Program and arguments for a worker to run, without a shell."),
        BeforeValidator(lambda value: None if value is None else _argv(value)),
        SchemaType(
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
    ] = Field(default=None, description="HTTP request for a worker to make.")
    run_timeout: Duration | None = Field(
        default=None, description="Maximum duration of a run; after it the worker is told to stop it."
    )
    grace: Duration | None = Field(default=None, description="Time between TERM and KILL; 60 s if left out.")
    lease: Duration | None = Field(
        default=None,
        description="Time without a heartbeat after which a worker's run is lost; 45 s if left out.",
    )
    on_lost: Literal["retry", "fail"] | None = Field(
        default=None, description="Whether a job whose run was lost is retried or fails; retry if left out."
    )
    on_child_failure: Literal["continue", "fail"] | None = Field(
        default=None,
        description="What happens to a parent when all its children have ended and one has failed: it"
        " continues, with these in `failedChildJobs`, or it fails too; continue if left out.",
    )
    retries: Whole | None = Field(
        default=None, ge=0, le=RETRIES_MAX, description="How often a failed run is retried."
    )
    backoff: Duration | None = Field(
        default=None, description="Delay before the first retry, doubled each time; 10 s if left out."
    )
    max_backoff: Duration | None = Field(
        default=None, description="Maximum delay before a retry; 1 h if left out."
    )
    expire_after: Duration | None = Field(
        default=None,
        description="Time after its nextRun within which it must be taken; otherwise it is dropped.",
    )
    lock: Lock | None = Field(
        default=None,
        description="Jobs with the same lock do not run at the same time; true: the job's own name.",
    )
    concurrency_key: ConcurrencyKey | None = Field(
        default=None,
        description="At most `concurrencyLimit` jobs with this key run at the same time, whatever their"
        " names. A lock is the same with a limit of 1.",
    )
    concurrency_limit: Whole | None = Field(
        default=None,
        ge=1,
        le=RUNNING_LIMIT_MAX,
        description="Jobs with its `concurrencyKey` that may run at the same time, this one included; 1 if"
        " left out.",
    )
    catchup: Literal["once", "skip", "all"] | None = Field(
        default=None, description="What happens to missed ticks of a schedule; once if left out."
    )
    overlap: Literal["skip", "queue"] | None = Field(
        default=None,
        description="What happens to ticks during a run; skip if left out, queue treats them as missed.",
    )
    hosts: Literal["all", ""] | None = Field(
        default=None, description="all: each tick creates a job for every worker that asks for the name."
    )
    expect: Literal["ping", ""] | None = Field(
        default=None,
        description="ping: the work is done elsewhere; each tick waits for a ping from there, see"
        " PingSchedule.",
    )
    ping_grace: Duration | None = Field(
        default=None,
        description="Time a ping may be late, and the maximum time between start and end pings; 5 min if"
        " left out. After it the tick is missed.",
    )
    max_late: Duration | None = Field(default=None, description="Ticks that are later than this are skipped.")
    jitter: Duration | None = Field(
        default=None, description="A run starts up to this much after its tick, at random."
    )
    keep_success: Whole | None = Field(
        default=None, ge=0, le=HISTORY_MAX, description="Successful runs kept; 100 if left out."
    )
    keep_fail: Whole | None = Field(
        default=None, ge=0, le=HISTORY_MAX, description="Other runs kept; 100 if left out."
    )
    keep: Duration | None = Field(
        default=None,
        description="Time a successful run is kept, even if its worker gave no name; 0: only as keepSuccess"
        " says; the server's keep_finished if left out.",
    )
    output_lines: Whole | None = Field(
        default=None,
        ge=0,
        le=OUTPUT_TAIL_MAX,
        description="Last lines of output kept with a run; 10 if left out.",
    )
    tags: Tags = Field(default=None, description="Words by which the job can be found.")

    note: Paragraphs | None = Field(
        default=None, max_length=NOTE_CHARS_MAX, description="Why the job exists, for other people."
    )

    traceparent: str | None = Field(
        default=None,
        max_length=55,
        pattern=r"^([0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$",
        description="W3C trace context of the creator, passed to the command as TRACEPARENT.",
    )

    if not TYPE_CHECKING:  # type checkers derive it from the fields

        def __init__(self, **values: Any) -> None:
            """Take arguments from Python callers, for whom None means left out."""
            super().__init__(**{k: v for k, v in values.items() if v is not None or k not in _EITHER_NAME})

        __init__.__pydantic_base_init__ = True  # parsing a request bypasses this constructor

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
        "concurrency_limit",
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
        """Map an empty text to None; parameters that are null were left out before this validator."""
        return None if isinstance(value, str) and not value.strip() else value

    def chosen(self) -> dict[str, str]:
        """Return the JSON text of each given option, by wire name; ``null`` for an option to remove."""
        options: dict[str, str] = {}
        for field in sorted(JobOptions.model_fields.keys() & self.model_fields_set):
            value = getattr(self, field)
            if isinstance(value, Fetch):
                options[wire_name(field)] = jsontext.dump(
                    value.model_dump(by_alias=True, exclude_defaults=True)
                )
            else:
                options[wire_name(field)] = "null" if value in ("", [], None) else jsontext.dump(value)
        return options


def answered_type(annotation: Any) -> Any:
    """Return the type of an option in a reply, without choices and limits, as replies are not validated."""
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
