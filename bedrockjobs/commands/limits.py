"""The commands on limits: how many jobs of a name may be queued, created a second, and run at once."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from bedrockjobs.base import shapes
from bedrockjobs.base.config import WORKER_CHARS_MAX
from bedrockjobs.base.name_limits import LIMITS_MAX, PER_SECOND_MAX, QUEUED_LIMIT_MAX, RUNNING_LIMIT_MAX
from bedrockjobs.base.wire import OneLine, Whole
from bedrockjobs.commands.base import Command, Empty, Example, Refusal, Reply, Scoping
from bedrockjobs.commands.control import PausePattern


def _some_limit(schema: dict[str, Any]) -> None:
    """Add the rule that one of the limits is above 0."""
    above = {
        "queued": shapes.whole(1, QUEUED_LIMIT_MAX),
        "perSecond": shapes.whole(1, PER_SECOND_MAX),
        "running": shapes.whole(1, RUNNING_LIMIT_MAX),
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
        default=0, ge=0, le=QUEUED_LIMIT_MAX,
        description="Jobs that may be queued, those for later included; 0: any number.",
    )  # fmt: skip
    per_second: Whole = Field(
        default=0, ge=0, le=PER_SECOND_MAX,
        description="Jobs that may be created a second, in one go as many; 0: any number.",
    )  # fmt: skip
    running: Whole = Field(
        default=0, ge=0, le=RUNNING_LIMIT_MAX,
        description="Runs that may be in progress at once, of workers that say their name; 0: any number.",
    )  # fmt: skip
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
                    "name": "mail/*", "queued": 10_000, "perSecond": 200, "running": 0, "runs": 0,
                    "refused": 12, "lastRefused": "2026-11-21 03:29:56", "by": "ada",
                    "since": "2026-11-20 10:00:00",
                }
            ]
        },
    )  # fmt: skip
