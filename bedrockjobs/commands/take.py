"""Commands that hand out jobs, and the representation of a job in replies."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model
from pydantic_core import PydanticCustomError

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import (
    GLOB_CHARS_MAX,
    GLOB_STARS_MAX,
    JOBS_PER_GET_MAX,
    NAME_CHARS_MAX,
    PATTERN_CHARS_MAX,
    PATTERNS_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.glob import is_plain
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import LINE, Boolean, JobID, OneLine, Priority, Whole, listed, one_line, refused
from bedrockjobs.commands.base import (
    BAD_PRIORITY,
    NO_JOB,
    NO_JOB_FOUND,
    NO_NAME,
    Command,
    Example,
    Parameters,
    Refusal,
    Reply,
    Scoping,
)
from bedrockjobs.commands.options import JobOptions, answered_type


def _patterns(value: Any) -> Any:
    """Parse a JSON list, or a comma list, of patterns."""
    patterns = listed(value, "a JSON array of name patterns")
    if not all(isinstance(item, str) and item for item in patterns):
        raise PydanticCustomError("expected", "a JSON array of name patterns")
    return [_pattern_length(item) for item in patterns]


def _pattern_length(value: Any) -> Any:
    if isinstance(value, str) and len(value) > GLOB_CHARS_MAX:
        raise PydanticCustomError("expected", f"at most {GLOB_CHARS_MAX} characters")
    if isinstance(value, str) and value.count("*") > GLOB_STARS_MAX:
        raise PydanticCustomError("expected", f"at most {GLOB_STARS_MAX} stars in a pattern")
    return one_line(value)


def _names_length(value: Any) -> Any:
    """Check a pattern, a comma list of names, or one name; a name may be longer than that of any job."""
    if not isinstance(value, str) or ("," not in value and not is_plain(value)):
        return _pattern_length(value)
    if len(value) > PATTERN_CHARS_MAX:
        raise PydanticCustomError("expected", f"at most {PATTERN_CHARS_MAX} characters")
    if value.count(",") >= PATTERNS_MAX:
        raise PydanticCustomError("expected", f"a comma list of at most {PATTERNS_MAX} names")
    return one_line(value)


def _count(value: int) -> int:
    """Treat any number below one as one, as Bedrock does."""
    return max(value, 1)


HowMany = Annotated[Whole, Field(le=JOBS_PER_GET_MAX), AfterValidator(_count)]
"""The number of jobs that are requested: 1 to ``JOBS_PER_GET_MAX``."""


def _no_count(_: Any) -> None:
    raise refused("Cannot use numResults with GetJob; try GetJobs", "no numResults")


Pattern = Annotated[
    str,
    BeforeValidator(_pattern_length),
    SchemaType(lambda: {"type": "string", "maxLength": GLOB_CHARS_MAX, "pattern": LINE}),
]
NamePattern = Annotated[str, BeforeValidator(_names_length), SchemaType(json_schemas.pattern, "NamePattern")]
ThenGet = Annotated[
    str,
    BeforeValidator(_names_length),
    SchemaType(lambda: {"anyOf": [json_schemas.pattern(), {"type": "string", "maxLength": 0}]}, "ThenGet"),
]
Patterns = Annotated[
    list[str],
    Field(min_length=1, max_length=PATTERNS_MAX),
    BeforeValidator(_patterns),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
    SchemaType(json_schemas.patterns, "NamePatterns"),
]


Accepts = Annotated[
    tuple[Literal["cmd", "argv", "url"], ...],
    BeforeValidator(lambda value: _patterns(value) if value else ()),
    WithJsonSchema({"type": "array", "items": {"type": "string", "enum": ["cmd", "argv", "url"]}}),
    SchemaType(
        lambda: {
            "anyOf": [
                {
                    "type": "array",
                    "items": {"type": "string", "enum": ["cmd", "argv", "url"]},
                    "maxItems": 100,
                },
                json_schemas.text_of("|(?:cmd|argv|url)(?:,(?:cmd|argv|url)){0,9}"),
            ]
        }
    ),
]


class TakeOptions(Parameters):
    """How a job is taken."""

    get_mocked_jobs: Boolean = Field(default=False, description="Take mocked jobs too.")
    mock_request: Boolean = Field(default=False, description="Alternative spelling of getMockedJobs.")
    worker: OneLine | None = Field(
        default=None,
        min_length=1,
        max_length=WORKER_CHARS_MAX,
        description="Name of the worker; if it is given, a run is opened.",
    )
    heartbeat: Boolean = Field(
        default=False,
        description="The worker sends Heartbeats: its run is lost if it is silent longer than the lease.",
    )
    accepts: Accepts = Field(
        default=(), description="Kinds of job commands that the worker runs: cmd, argv, url."
    )
    run_token: Boolean = Field(
        default=False, description="Return a run token with each job, for its command; only with `worker`."
    )
    host: OneLine = Field(default="", max_length=NAME_CHARS_MAX, description="Host of the worker.")
    pid: Whole = Field(default=0, description="Process id of the worker.")

    @property
    def wants_mocked(self) -> bool:
        """Return whether mocked jobs are requested as well."""
        return self.get_mocked_jobs or self.mock_request


class TakeSpec(TakeOptions):
    """Which jobs are taken."""

    model_config = ConfigDict(json_schema_extra=json_schemas.one_of("name", "names"))
    refusals = [NO_JOB_FOUND, NO_NAME, BAD_PRIORITY]

    name: NamePattern | None = Field(
        default=None, description="One GLOB pattern (`Foo*`, case-sensitive), or a comma list of exact names."
    )
    names: Patterns | None = Field(default=None, description="Several GLOB patterns, instead of name.")
    job_priority: Priority | None = Field(default=None, description="Only jobs of this priority.")

    @property
    def names_asked(self) -> int:
        """Return how many names and patterns of jobs the command requests."""
        if self.names:
            return len(self.names)
        return self.name.count(",") + 1 if self.name else 0


class JobFacts(Reply):
    """The attributes of a job in a reply, without its options."""

    created: str
    data: dict[str, Any]
    job_id: int
    last_run: str
    name: str
    next_run: str
    priority: int
    repeat: str
    retry_after: str
    parent_job_id: int | None = None
    parent_data: dict[str, Any] | None = None
    finished_child_jobs: list["ChildReply"] | None = None
    cancelled_child_jobs: list["ChildReply"] | None = None
    failed_child_jobs: list["FailedChildReply"] | None = None
    attempt: int | None = None
    run_id: int | None = None
    run_token: str | None = None
    state: str | None = None
    error: str | None = None
    exit_code: int | None = None
    expires: str | None = None
    finished: str | None = None
    result: dict[str, Any] | None = None
    source: str | None = None
    workflow_id: int | None = None
    ref: str | None = None
    before: dict[str, dict[str, Any] | None] | None = Field(
        default=None, description="In a workflow: the results of the jobs before it, by their `ref`."
    )
    before_left_out: list[str] | None = Field(
        default=None, description="refs whose results are too much to be in `before`."
    )


if TYPE_CHECKING:

    class OptionFacts(JobOptions, Reply):
        """The options of a job in a reply, each as in JobOptions."""

        url: dict[str, Any] | None = None  # type: ignore[assignment]

else:
    OptionFacts = create_model(
        "OptionFacts",
        __base__=Reply,
        __module__=__name__,
        **{name: (answered_type(field.annotation), None) for name, field in JobOptions.model_fields.items()},
    )


class JobReply(OptionFacts, JobFacts):
    """A job as it was before it was taken."""


class NotShown(dict[str, Any]):
    """Data that the token may not see: it has no keys, and looking one up raises Forbidden."""

    def __missing__(self, key: str) -> Any:
        raise Forbidden(detail="data: not shown to this token")

    def __repr__(self) -> str:
        return "<not shown to this token>"


HELD = "The `uniqueKey` that the job holds now."
HELD_UNTIL = "Until when it holds the key: `finished`, `started`, or a timestamp."
HIDDEN = "Members that are left out, as this token may not see data."


class ShownJobReply(JobReply):
    """A job as it is."""

    data: dict[str, Any] = Field(default_factory=NotShown)
    unique_key: str | None = Field(default=None, description=HELD)
    unique_until: str | None = Field(default=None, description=HELD_UNTIL)
    hidden: list[str] | None = Field(default=None, description=HIDDEN)


class ChildReply(Reply):
    """An ended child, with its final data."""

    job_id: int
    data: dict[str, Any]


class FailedChildReply(ChildReply):
    """A failed child, which is kept and can be revived."""

    error: str
    """The error; empty if none was given."""


JobReply.model_rebuild()


class JobsReply(Reply):
    """The jobs that were taken."""

    jobs: list[JobReply]


class ShownJobsReply(JobsReply):
    """A page of jobs."""

    jobs: list[ShownJobReply]  # type: ignore[assignment]


JOB = {
    "created": "2026-11-21 03:29:56",
    "data": {"to": "ada@example.org"},
    "jobID": 1,
    "lastRun": "",
    "name": "mail/welcome",
    "nextRun": "2026-11-21 03:29:56",
    "priority": 500,
    "repeat": "",
    "retryAfter": "",
}
"""A job as the examples of commands show it."""


class GetJob(TakeSpec, Command[JobReply]):
    """Take the due job with the highest priority, then the earliest nextRun, then the lowest jobID."""

    scoping = Scoping()
    role = "work"
    waits = True
    asks = True
    is_cached = True
    example = Example({"name": "mail/*"}, JOB)
    refusals = [Refusal(402, "Cannot use numResults with GetJob; try GetJobs", "`numResults` is given.")]

    num_results: Annotated[None, BeforeValidator(_no_count)] = Field(
        default=None, description="Refused here; use GetJobs."
    )


class GetJobs(TakeSpec, Command[JobsReply]):
    """Take 1 to numResults due jobs; a waiting request returns with the first."""

    scoping = Scoping()
    role = "work"
    waits = True
    asks = True
    is_cached = True
    example = Example({"name": "mail/*", "numResults": 10}, {"jobs": [JOB]})

    num_results: HowMany = Field(description="How many at most; below 1 counts as 1.")


class QueryJob(Command[ShownJobReply]):
    """Show a job with its state; one that is kept after its end (`keep`) with `finished` and `result`."""

    scoping = Scoping(jobs=("job_id",))
    reads = by_id = True
    tagged = True
    example = Example({"jobID": 1}, {**JOB, "state": "QUEUED"})
    refusals = [NO_JOB]

    job_id: JobID = Field(description="Job to show.")
