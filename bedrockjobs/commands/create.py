"""Commands that create and change jobs."""

from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import IF_MATCH_CHARS_MAX, JOBS_PER_CREATE_MAX, PRIORITIES, PRIORITY_DEFAULT
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import (
    Boolean,
    JobID,
    JSONObject,
    Key,
    Name,
    OneLine,
    OnlyTrue,
    Priority,
    Repeat,
    RetryAfter,
    Spliced,
    Timestamp,
    checked_priority,
    json_list,
    wire_name,
)
from bedrockjobs.commands.base import (
    BAD_DATA,
    BAD_LIST,
    BAD_PRIORITY,
    BAD_REPEAT,
    BOTH,
    NO_JOB,
    RUN_OVER,
    Command,
    Empty,
    Example,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.options import NOT_WITH_PINGS, OPTIONS, JobOptions, one_command, whole_seconds

RUN_ID = "Run that sends this; refused with 405 if it is no longer the job's current run."


def empty_for_no_list(value: Any) -> Any:
    """Treat a missing ``jobs`` as an unreadable list, which is refused with 401 as in Bedrock."""
    return {"jobs": "", **value} if isinstance(value, dict) else value


def _rules(schema: dict[str, Any]) -> None:
    """Add the rules on attributes that need or exclude each other."""
    left_out = json_schemas.left_out
    numbers = sorted(PRIORITIES)
    one_command(schema)
    schema["allOf"] += [
        {"anyOf": _kinds()},
        {"anyOf": [left_out("unique", empty=(False, "false", 0, 1, "0", "1")), left_out("uniqueKey")]},
        {"anyOf": [left_out("uniqueFor", "onConflict"), json_schemas.one_of("uniqueKey")["anyOf"][0]]},
        {"anyOf": [left_out("lock", empty=("", False)), left_out("concurrencyKey", empty=("",))]},
        {
            "anyOf": [
                left_out("concurrencyLimit", empty=("",)),
                json_schemas.one_of("concurrencyKey")["anyOf"][0],
            ]
        },
        {
            "anyOf": [
                left_out("priority", empty=(*numbers, *map(str, numbers))),
                json_schemas.one_of("jobPriority")["anyOf"][0],
            ]
        },
    ]


def _kinds() -> list[dict[str, Any]]:
    """Return what each kind of job must leave out. There are few kinds, since validators try each of them."""
    empty: dict[str, tuple[Any, ...]] = {
        "repeat": ("",),
        "retryAfter": ("",),
        "parentJobID": (0,),
        "lock": ("", False),
        "concurrencyKey": ("",),
        "hosts": ("",),
        "expect": ("",),
    }

    def without(*names: str) -> dict[str, Any]:
        return {name: {"enum": [None, *empty.get(name, ())]} for name in names}

    repeating = without("retryAfter", "parentJobID", "hosts", "expect")
    once_or_lost = without("repeat", "lock", "concurrencyKey", "hosts", "expect")
    once = without("repeat", "retryAfter", "hosts", "expect")
    on_all_hosts = without("retryAfter", "parentJobID", "lock", "concurrencyKey", "expect")
    waiting_for_pings = without("retryAfter", "parentJobID", *map(wire_name, NOT_WITH_PINGS))
    return [
        *({"properties": each} for each in (repeating, once_or_lost, once)),
        *(
            {"properties": {"repeat": json_schemas.cron(), **each}, "required": ["repeat"]}
            for each in (on_all_hosts, waiting_for_pings)
        ),
    ]


class OwnKey(str):
    """An idempotency key with its owner, so that equal keys of two owners do not collide.

    Keys from clients have no control characters, and stored keys do: so no client can send another owner's
    key.
    """

    __slots__ = ("before",)

    before: str
    """The key as it was stored by servers before version 6 of the schema."""

    @classmethod
    def for_caller(cls, key: str, *, token: str = "", run_id: int = 0, before: str) -> Self:
        """Return the key as owned by a token, by the run of a run token, or by nothing without a token."""
        own = cls(f"{token}\x1f{run_id or ''}\x1f{key}")
        own.before = before
        return own

    @classmethod
    def of(cls, key: str | None) -> Self:
        """Return a key with its owner, or with none if the key has no owner yet; ``key`` must not be None."""
        assert key is not None
        return key if isinstance(key, cls) else cls.for_caller(key, before=key)


UNIQUE_KEY_PREFIX = "\x1funique\x1f"
"""Prefix of stored unique keys. No idempotency key has it: there, a runID or nothing takes the place of
``unique``."""

UNIQUE_UNTIL = ("finished", "started")
"""Events that release a unique key, as alternatives to a duration."""


def _unique_for(value: Any) -> str | int:
    """Return one of ``UNIQUE_UNTIL``, or whole seconds."""
    return value if value in UNIQUE_UNTIL else whole_seconds(value)


def _unique_for_shape() -> dict[str, Any]:
    return {"anyOf": [{"type": "string", "enum": list(UNIQUE_UNTIL)}, *json_schemas.duration()["anyOf"]]}


UniqueFor = Annotated[
    Any,
    BeforeValidator(_unique_for),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
    SchemaType(_unique_for_shape),
]
"""``finished``, ``started``, or a duration in whole seconds."""


class JobSpec(JobOptions):
    """One job to create."""

    model_config = ConfigDict(json_schema_extra=_rules)
    refusals = [
        BAD_DATA,
        BAD_PRIORITY,
        BAD_REPEAT,
        Refusal(402, "Malformed retryAfter", "The expression cannot be parsed."),
        *BOTH,
        Refusal(405, "Cannot use retryAfter with unique", "Both are given (compatibility `document`)."),
        Refusal(404, "parentJobID does not exist", "The parent does not exist."),
        Refusal(
            405,
            "Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED",
            "The parent is not running.",
        ),
        Refusal(405, "Cannot create grandchildren", "The parent is itself a child."),
        Refusal(404, "Mismatched parentJobID", "`unique` found a job with another parent, or with none."),
        Refusal(405, "Key is used", "`idempotencyKey` was used for a job with another name."),
        Refusal(402, "Malformed uniqueKey", "`uniqueKey` is given together with `unique`."),
        Refusal(402, "Missing uniqueKey", "`uniqueFor` or `onConflict` is given without it."),
        Refusal(
            405,
            "Unique key is held",
            "`onConflict` is `reject`, or it is `replace` and the other job has started.",
        ),
    ]

    name: Name = Field(description="Name of the job, 1 to 255 characters; workers ask for jobs by name.")
    data: JSONObject = Field(
        default="{}", description="Input of the job, a JSON object; its spelling is kept."
    )
    first_run: Timestamp | None = Field(
        default=None, description="Earliest time of the first run; now if left out."
    )
    repeat: Repeat = Field(
        default="",
        description="How it repeats: `FINISHED, +1 HOUR`, `DAILY`, `CRON TZ=Europe/Berlin 0 9 * * 1-5`,"
        " ...; if tokens are in use it needs the role operate.",
    )
    retry_after: RetryAfter = Field(
        default="",
        description="Time after which a job that was taken and not ended is handed out again: `+5 MINUTES`.",
    )
    job_priority: Priority | None = Field(default=None, description="Higher is taken first; 500 if left out.")
    priority: Annotated[
        Any, WithJsonSchema({"type": "integer", "enum": sorted(PRIORITIES)}), SchemaType(dict)
    ] = Field(default=None, description="Alternative spelling of jobPriority, ignored if that is given.")
    unique: OnlyTrue = Field(default=False, description="Update the job of this name, if it exists.")
    overwrite: Boolean = Field(
        default=True, description="With unique: false leaves an existing job unchanged."
    )
    parent_job_id: JobID = Field(default=0, description="Parent, which must be RUNNING, RUNQUEUED or PAUSED.")
    mock_request: Boolean = Field(
        default=False, description="For tests: only getMockedJobs takes it; it never repeats."
    )
    idempotency_key: Key | None = Field(
        default=None,
        description="A repeated key of the same token returns the first jobID for a day (default) without"
        " creating a job; keys of a run token are local to its run.",
    )

    unique_key: Key | None = Field(
        default=None,
        description="At most one job of this name holds this key; see `onConflict`. `created` in the reply"
        " is true for a new job.",
    )
    unique_for: UniqueFor | None = Field(
        default=None,
        description="How long the job holds its `uniqueKey`: until it is `finished` (default), that is, has"
        " ended, failed, or been cancelled or deleted; until it is `started`; or for a duration.",
    )
    on_conflict: Literal["ignore", "replace", "reject"] | None = Field(
        default=None,
        description="If another job holds the `uniqueKey`: `ignore` (default) changes nothing and returns"
        " its jobID, `replace` in addition gives it this data and time unless it has started, `reject`"
        " refuses.",
    )

    @property
    def held_key(self) -> str:
        """Return the unique key as it is stored for jobs that are not mocked.

        It includes the name, so that a key never reveals a job outside the sender's scope.
        """
        return f"{self.key_prefix}{self.unique_key}"

    @property
    def key_prefix(self) -> str:
        """Return the part of the stored key that precedes the unique key."""
        return f"{UNIQUE_KEY_PREFIX}{self.name}\x1f"

    @property
    def own_key(self) -> OwnKey:
        """Return the idempotency key with its owner; the job must have such a key."""
        return OwnKey.of(self.idempotency_key)

    @property
    def wanted_priority(self) -> int:
        """Return the requested priority; raises BadArguments if ``priority`` is none that jobs may have."""
        if self.job_priority is not None:
            return self.job_priority
        return PRIORITY_DEFAULT if self.priority is None else checked_priority(self.priority)


def _specs(value: Any) -> list[dict[str, Any]]:
    return [JobSpec.parameters_in(text) for text in json_list(value, JOBS_PER_CREATE_MAX)]


class JobIDReply(Reply):
    """The job that was created or found."""

    job_id: int
    created: bool | None = Field(
        default=None, description="With `uniqueKey`: false if another job holds the key."
    )


class JobIDsReply(Reply):
    """The jobs that were created or found, in the order of the request."""

    job_ids: list[int]
    created: list[bool] | None = Field(
        default=None,
        description="If any job has a `uniqueKey`: for each job, false if another one holds its key.",
    )


class CreateJob(JobSpec, Command[JobIDReply]):
    """Create a job, or with `unique` update the job of this name."""

    scoping = Scoping(names=("name",), jobs=("parent_job_id",))
    order = -1
    role = "produce"
    headers = MappingProxyType({"Idempotency-Key": "idempotencyKey", "Traceparent": "traceparent"})
    example = Example({"name": "mail/welcome", "data": {"to": "ada@example.org"}}, {"jobID": 1})

    _empty_counts = frozenset({"data"})


class CreateJobs(Command[JobIDsReply]):
    """Create several jobs, all or none."""

    scoping = Scoping(names=("jobs.name",), jobs=("jobs.parent_job_id",))
    order = -1
    role = "produce"
    all_or_nothing = True
    example = Example(
        {"jobs": [{"name": "mail/welcome", "data": {"to": "ada@example.org"}}]}, {"jobIDs": [1]}
    )
    refusals = [BAD_LIST, *JobSpec.all_refusals()]

    jobs: Annotated[
        list[JobSpec],
        Spliced(),
        Field(
            min_length=1, max_length=JOBS_PER_CREATE_MAX, description="Parameters of CreateJob for each job."
        ),
        BeforeValidator(_specs),
    ]

    _no_list = model_validator(mode="before")(empty_for_no_list)


class UpdateJob(JobOptions, Command[Empty]):
    """Change a job in any state; an empty text removes an option.

    For example, an empty `runTimeout` removes the time limit of runs. What is left out, or null, stays.
    """

    scoping = Scoping(jobs=("job_id",), runs=("run_id",))
    order = -1
    role = "work"
    repeatable = True
    headers = MappingProxyType({"If-Match": "ifMatch"})
    _empty_counts = frozenset(name.lower() for name in OPTIONS)
    example = Example({"jobID": 1, "data": {"to": "grace@example.org"}})
    refusals = [
        NO_JOB,
        RUN_OVER,
        Refusal(402, "Missing data", "Nothing to change is given."),
        BAD_DATA,
        BAD_PRIORITY,
        BAD_REPEAT,
        *BOTH,
        Refusal(405, "No run in progress", "`progress` is given, but the job has no open run of a worker."),
    ]

    job_id: JobID = Field(description="Job to change.")
    data: JSONObject | None = Field(default=None, description="New data.")
    repeat: Repeat | None = Field(
        default=None, description="New repeat; the next run is planned by it. It needs the role operate."
    )
    job_priority: Priority | None = Field(default=None, description="New priority.")
    next_run: Timestamp | None = Field(default=None, description="New time of the next run.")
    should_clear_repeat: Boolean = Field(
        default=False, description="Stop repeating after the next run; it needs the role operate."
    )
    progress: JSONObject | None = Field(
        default=None, description="Progress of the current run: a JSON object."
    )
    run_id: JobID | None = Field(default=None, description=RUN_ID)
    if_match: OneLine | None = Field(
        default=None,
        min_length=1,
        max_length=IF_MATCH_CHARS_MAX,
        description="Entity tags from replies of QueryJob; refused with 412 if the job matches none of them.",
    )
