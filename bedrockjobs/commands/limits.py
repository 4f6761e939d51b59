"""Commands for limits (jobs queued, created per second, running) and for retention, by name pattern."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from bedrockjobs.base import json_schemas
from bedrockjobs.base.clock import duration_text, seconds_of
from bedrockjobs.base.config import (
    KEPT_BYTES_MAX,
    LIMITS_MAX,
    PER_SECOND_MAX,
    QUEUED_LIMIT_MAX,
    RUN_OUTPUT_BYTES_MIN,
    RUNNING_LIMIT_MAX,
    STARTS_MAX,
    STARTS_PER_S_MAX,
    STARTS_S_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import Boolean, OneLine, Whole
from bedrockjobs.commands.base import BUSY, Command, Empty, Example, Refusal, Reply, Scoping
from bedrockjobs.commands.control import PausePattern
from bedrockjobs.commands.options import Duration


def _some_limit(schema: dict[str, Any]) -> None:
    """Add the rules that a limit is given, and that ``perKey`` needs ``running`` or ``starts``."""
    above = {
        "queued": json_schemas.whole(1, QUEUED_LIMIT_MAX),
        "perSecond": json_schemas.whole(1, PER_SECOND_MAX),
        "running": json_schemas.whole(1, RUNNING_LIMIT_MAX),
        "starts": {"type": "string", "minLength": 1},
        "fair": {"enum": [True, "true", 1, "1"]},
    }
    given = {name: {"required": [name], "properties": {name: value}} for name, value in above.items()}
    schema["anyOf"] = [*given.values()]
    no_keys = json_schemas.left_out("perKey", empty=(False, "false", 0, "0"))
    schema["allOf"] = [{"anyOf": [no_keys, given["running"], given["starts"]]}]


class Rate(NamedTuple):
    """How many starts are allowed in a period."""

    starts: int
    period_s: float

    def __str__(self) -> str:
        """Return the rate as people write it: ``100/1m``."""
        return f"{self.starts}/{duration_text(self.period_s)}"


def rate_of(text: str) -> Rate:
    """Parse a rate like ``100/1m``; raises ValueError, whose message says what is expected."""
    match = re.fullmatch(r" *([0-9]{1,9}) */ *([^/]+)", text, re.ASCII)
    seconds = seconds_of(match[2]) if match else None
    if match is None or seconds is None:
        raise ValueError("starts by a duration, like 100/1m")
    rate = Rate(int(match[1]), seconds)
    if not 1 <= rate.starts <= STARTS_MAX:
        raise ValueError(f"1 to {STARTS_MAX} starts")
    if not 0 < seconds <= STARTS_S_MAX:
        raise ValueError(f"a duration of at most {duration_text(STARTS_S_MAX)}, above 0")
    if rate.starts > seconds * STARTS_PER_S_MAX:
        raise ValueError(f"at most {STARTS_PER_S_MAX} starts a second")
    return rate


def _rate(value: Any) -> str:
    """Return a rate in its usual form, such as ``100/1m``; empty if the value is an empty text."""
    if not isinstance(value, str):
        raise PydanticCustomError("expected", "starts by a duration, like 100/1m")
    try:
        return str(rate_of(value)) if value.strip() else ""
    except ValueError as error:
        raise PydanticCustomError("expected", str(error)) from None


StartRate = Annotated[
    str,
    BeforeValidator(_rate),
    SchemaType(lambda: json_schemas.text_of(r"([1-9][0-9]{0,3}/[1-9][0-9]{0,3}(s|m|h))?")),
]
"""A number of starts by a duration, like ``100/1m``."""


class SetLimit(Command[Empty]):
    """Limit how many jobs may be created and run with names that match a pattern.

    Beyond `queued` and `perSecond` CreateJob is refused with 429; beyond `running` and `starts` jobs wait.
    """

    scoping = Scoping(patterns=("name",))
    model_config = ConfigDict(json_schema_extra=_some_limit)

    group = "server"
    role = "operate"
    repeatable = True
    example = Example({"name": "mail/*", "queued": 10_000, "perSecond": 200})
    refusals = [
        Refusal(
            402, "Missing limit", "Neither `queued`, `perSecond`, `running`, `starts` nor `fair` is given."
        ),
        Refusal(402, "Malformed burst", "`burst` is given without `starts`."),
        Refusal(402, "Malformed perKey", "`perKey` is given without `running` and `starts`."),
        Refusal(429, "Too many limits", f"{LIMITS_MAX} patterns have limits already."),
    ]

    name: PausePattern = Field(description="GLOB pattern of the names that share the limit.")
    queued: Whole = Field(
        default=0,
        ge=0,
        le=QUEUED_LIMIT_MAX,
        description="Jobs that may be queued, including those for later; 0: no limit.",
    )
    per_second: Whole = Field(
        default=0,
        ge=0,
        le=PER_SECOND_MAX,
        description="Jobs that may be created per second, also the size of a burst; 0: no limit.",
    )
    running: Whole = Field(
        default=0,
        ge=0,
        le=RUNNING_LIMIT_MAX,
        description="Runs of named workers that may be in progress at once; 0: no limit.",
    )
    per_key: Boolean = Field(
        default=False,
        description="Whether `running` and `starts` apply to each `concurrencyKey` on its own, by any worker"
        " or client. `running` is then the `concurrencyLimit` of jobs that have a key but no limit, and the"
        " most for those that have one. Jobs without a key are not limited by the two.",
    )
    starts: StartRate = Field(
        default="",
        description="Rate at which jobs may be started, such as 100/1m, by any worker or client; jobs beyond"
        " it wait. Empty: no limit.",
    )
    burst: Whole = Field(
        default=0,
        ge=0,
        le=STARTS_MAX,
        description="Jobs that may be started at once after a time without starts; 0: as many as in the"
        " duration of `starts`.",
    )
    fair: Boolean = Field(
        default=False,
        description="Whether jobs of equal priority are taken in turn: one of each `concurrencyKey` (or"
        " `lock`), and without a key one of each first part of the names, up to a slash behind the fixed"
        " beginning of the pattern.",
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class RemoveLimit(Command[Empty]):
    """Remove the limits of a pattern."""

    scoping = Scoping(patterns=("name",))
    group = "server"
    role = "operate"
    example = Example({"name": "mail/*"})
    refusals = [Refusal(404, "No such limit", "The pattern has no limits.")]

    name: PausePattern = Field(description="The pattern as it was given.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class LimitReply(Reply):
    """The limits of one pattern."""

    name: str
    queued: int = Field(description="0: no limit.")
    per_second: int = Field(description="0: no limit.")
    running: int = Field(description="0: no limit.")
    per_key: bool = Field(
        description="Whether `running` and `starts` apply to each `concurrencyKey` on its own."
    )
    starts: str = Field(description="Rate of starts, like 100/1m; empty: no limit.")
    burst: int = Field(description="Starts at once; 0: as many as in the duration of `starts`.")
    fair: bool = Field(description="Whether keys, and first parts of names without a key, are taken in turn.")
    next_start: str = Field(
        description="When the next job may start by `starts`; empty: at once, or it depends on the key."
    )
    runs: int = Field(description="Runs in progress now; only counted if `running` is limited.")
    refused: int = Field(description="Jobs that this server refused because of it since it started.")
    last_refused: str = Field(description="When it last refused one; empty: never.")
    by: str
    since: str


class LimitsReply(Reply):
    """All limits, by pattern."""

    limits: list[LimitReply]


class ListLimits(Command[LimitsReply]):
    """List the limits on creating and running jobs, by pattern, with the numbers of refused jobs."""

    group = "server"
    reads = True
    role = "read"
    example = Example(
        {},
        {
            "limits": [
                {
                    "name": "mail/*",
                    "queued": 10_000,
                    "perSecond": 200,
                    "running": 0,
                    "perKey": False,
                    "starts": "100/1m",
                    "burst": 0,
                    "fair": False,
                    "nextStart": "",
                    "runs": 0,
                    "refused": 12,
                    "lastRefused": "2026-11-21 03:29:56",
                    "by": "ada",
                    "since": "2026-11-20 10:00:00",
                }
            ]
        },
    )


# Retention of runs, output, events and ticks, by name pattern.


_LIMITS = ("runs", "runsBytes", "output", "outputBytes", "events", "eventsBytes", "ticks", "ticksBytes")


class SetRetention(Command[Empty]):
    """Set the retention for names that match a pattern; replaces what was set for it before.

    For each name and each kind, the longest matching pattern that sets it applies.
    """

    scoping = Scoping(patterns=("name",))
    model_config = ConfigDict(json_schema_extra=json_schemas.one_of(*_LIMITS))

    group = "server"
    role = "operate"
    repeatable = True
    example = Example({"name": "mail/*", "runs": "30d", "runsBytes": 1_000_000_000, "output": "7d"})
    refusals = [
        Refusal(402, "Missing limit", f"None of {', '.join(f'`{name}`' for name in _LIMITS)} is given."),
        Refusal(429, "Too many limits", f"{LIMITS_MAX} patterns have such limits already."),
    ]

    name: PausePattern = Field(
        description="GLOB pattern of the names; * applies to names that no other pattern matches."
    )
    runs: Duration | None = Field(default=None, description="Time a run is kept after its end.")
    runs_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Total size of ended runs of all these names with their output, including those kept"
        " for a time; the newest are kept.",
    )
    output: Duration | None = Field(
        default=None, description="Time the output of a run is kept after its end."
    )
    output_bytes: Whole | None = Field(
        default=None,
        ge=RUN_OUTPUT_BYTES_MIN,
        le=KEPT_BYTES_MAX,
        description="Output kept of one run, half from its beginning and half from its end.",
    )
    events: Duration | None = Field(
        default=None, description="Time events are kept, at least a day: messages are made of them."
    )
    events_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Total size of the events of all these names; the newest are kept, and all of the last"
        " day.",
    )
    ticks: Duration | None = Field(
        default=None, description="Time the tick history of schedules is kept, except for its newest entry."
    )
    ticks_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Size of the tick history of each schedule; its newest entries are kept, at least one.",
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class RemoveRetention(Command[Empty]):
    """Remove the retention of a pattern."""

    scoping = Scoping(patterns=("name",))
    group = "server"
    role = "operate"
    example = Example({"name": "mail/*"})
    refusals = [Refusal(404, "No such limit", "The pattern has no retention.")]

    name: PausePattern = Field(description="The pattern as it was given.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")


class KeptReply(Reply):
    """Retention of one kind for one pattern, and its current use."""

    name: str
    kind: Literal["runs", "output", "events", "ticks", "audit", "keys"]
    seconds: int | None = Field(description="Time it is kept; null: no time limit.")
    bytes: int | None = Field(
        description="Maximum size; for output that of a run, for ticks that of a schedule; null: no size"
        " limit."
    )
    most: int | None = Field(description="Maximum number, for ticks per schedule; null: no such limit.")
    count: int = Field(description="Current number; for output, of chunks.")
    used: int = Field(description="Approximate current size in bytes.")
    more: bool = Field(description="Whether there are more than could be counted in time.")
    oldest: str = Field(description="When the oldest of those counted began.")
    by: str
    since: str


class KeptsReply(Reply):
    """Retention by pattern, the server's defaults first."""

    kept: list[KeptReply]


class ListRetention(Command[KeptsReply]):
    """List retention and its current use: the server's, then by pattern."""

    group = "server"
    where = "reader"
    role = "read"
    example = Example(
        {},
        {
            "kept": [
                {
                    "name": "mail/*",
                    "kind": "runs",
                    "seconds": 2_592_000,
                    "bytes": 1_000_000_000,
                    "most": None,
                    "count": 1_234,
                    "used": 400_123,
                    "more": False,
                    "oldest": "2026-10-23 03:00:00.120",
                    "by": "ada",
                    "since": "2026-11-20 10:00:00",
                }
            ]
        },
    )
    refusals = [BUSY]
