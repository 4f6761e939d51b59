"""The commands on limits: how many jobs of a name may be queued, created a second, and run at once."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import (
    KEPT_BYTES_MAX,
    LIMITS_MAX,
    PER_SECOND_MAX,
    QUEUED_LIMIT_MAX,
    RUN_OUTPUT_BYTES_MIN,
    RUNNING_LIMIT_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.wire import OneLine, Whole
from bedrockjobs.commands.base import BUSY, Command, Empty, Example, Refusal, Reply, Scoping
from bedrockjobs.commands.control import PausePattern
from bedrockjobs.commands.options import Duration


def _some_limit(schema: dict[str, Any]) -> None:
    """Add the rule that one of the limits is above 0."""
    above = {
        "queued": json_schemas.whole(1, QUEUED_LIMIT_MAX),
        "perSecond": json_schemas.whole(1, PER_SECOND_MAX),
        "running": json_schemas.whole(1, RUNNING_LIMIT_MAX),
    }
    schema["anyOf"] = [{"required": [name], "properties": {name: value}} for name, value in above.items()]


class SetLimit(Command[Empty]):
    """Limit what may be created and run of the names that match a pattern.

    Beyond `queued` and `perSecond` CreateJob is refused with 429; beyond `running` jobs wait.
    """

    scoping = Scoping(patterns=("name",))
    model_config = ConfigDict(json_schema_extra=_some_limit)

    group = "server"
    role = "operate"
    repeatable = True
    example = Example({"name": "mail/*", "queued": 10_000, "perSecond": 200})
    refusals = [
        Refusal(402, "Missing limit", "None of `queued`, `perSecond` and `running` is above 0."),
        Refusal(429, "Too many limits", f"{LIMITS_MAX} patterns have limits already."),
    ]

    name: PausePattern = Field(description="GLOB pattern of the names, which share the limit.")
    queued: Whole = Field(
        default=0,
        ge=0,
        le=QUEUED_LIMIT_MAX,
        description="Jobs that may be queued, those for later included; 0: any number.",
    )
    per_second: Whole = Field(
        default=0,
        ge=0,
        le=PER_SECOND_MAX,
        description="Jobs that may be created a second, in one go as many; 0: any number.",
    )
    running: Whole = Field(
        default=0,
        ge=0,
        le=RUNNING_LIMIT_MAX,
        description="Runs that may be in progress at once, of workers that say their name; 0: any number.",
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class RemoveLimit(Command[Empty]):
    """Take back what SetLimit said of a pattern."""

    scoping = Scoping(patterns=("name",))
    group = "server"
    role = "operate"
    example = Example({"name": "mail/*"})
    refusals = [Refusal(404, "No such limit", "The pattern has none.")]

    name: PausePattern = Field(description="The pattern as it was given.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class LimitReply(Reply):
    """The limit of one pattern."""

    name: str
    queued: int = Field(description="0: any number.")
    per_second: int = Field(description="0: any number.")
    running: int = Field(description="0: any number.")
    runs: int = Field(description="Those in progress now; counted where `running` is a limit only.")
    refused: int = Field(description="Jobs that this server refused for it since it started.")
    last_refused: str = Field(description="When it last did; empty: never.")
    by: str
    since: str


class LimitsReply(Reply):
    """All limits, by pattern."""

    limits: list[LimitReply]


class ListLimits(Command[LimitsReply]):
    """List the limits of what may be created and run, and how often jobs were refused for them."""

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
                    "runs": 0,
                    "refused": 12,
                    "lastRefused": "2026-11-21 03:29:56",
                    "by": "ada",
                    "since": "2026-11-20 10:00:00",
                }
            ]
        },
    )


# The commands on what is kept: runs, output, events and ticks, by name pattern.


_LIMITS = ("runs", "runsBytes", "output", "outputBytes", "events", "eventsBytes", "ticks", "ticksBytes")


class SetRetention(Command[Empty]):
    """Limit how much is kept of the names that match a pattern; replaces what was set for it before.

    For each name and each kind the longest pattern decides that says anything of it.
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

    name: PausePattern = Field(description="GLOB pattern of the names; * is for all that no other names.")
    runs: Duration | None = Field(default=None, description="Time after its end in which a run is kept.")
    runs_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Room for the ended runs of all these names with their output, also of those kept for a "
        "time; the newest stay.",
    )
    output: Duration | None = Field(
        default=None, description="Time after the end of a run in which its output is kept."
    )
    output_bytes: Whole | None = Field(
        default=None,
        ge=RUN_OUTPUT_BYTES_MIN,
        le=KEPT_BYTES_MAX,
        description="Output kept of one run, half from its beginning and half from its end.",
    )
    events: Duration | None = Field(
        default=None,
        description="Time in which events are kept, never less than a day: messages are made of them.",
    )
    events_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Room for the events of all these names; the newest are kept, and those of the last day.",
    )
    ticks: Duration | None = Field(
        default=None, description="Time in which the history of schedules is kept, but for its newest entry."
    )
    ticks_bytes: Whole | None = Field(
        default=None,
        ge=0,
        le=KEPT_BYTES_MAX,
        description="Room for the history of each schedule; its newest entries are kept, one at least.",
    )
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class RemoveRetention(Command[Empty]):
    """Take back what SetRetention said of a pattern."""

    scoping = Scoping(patterns=("name",))
    group = "server"
    role = "operate"
    example = Example({"name": "mail/*"})
    refusals = [Refusal(404, "No such limit", "The pattern has none.")]

    name: PausePattern = Field(description="The pattern as it was given.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who wants it.")


class KeptReply(Reply):
    """How much is kept of one kind, for one pattern, and how much is there now."""

    name: str
    kind: Literal["runs", "output", "events", "ticks", "audit", "keys"]
    seconds: int | None = Field(description="Time in which it is kept; null: no limit of time.")
    bytes: int | None = Field(
        description="Room for it, of output that of a run, of ticks that of a schedule; null: no such limit."
    )
    most: int | None = Field(description="Number that is kept, of ticks by schedule; null: no such limit.")
    count: int = Field(description="How many there are; of output chunks.")
    used: int = Field(description="About how many bytes they take.")
    more: bool = Field(description="Whether there are more than could be counted in time.")
    oldest: str = Field(description="When the oldest of those began that were counted.")
    by: str
    since: str


class KeptsReply(Reply):
    """What is kept, the server's own limits first, then by pattern."""

    kept: list[KeptReply]


class ListRetention(Command[KeptsReply]):
    """List what is kept and for how long, and how much there is of it."""

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
