"""SetRetention and RemoveRetention. What they say is obeyed where old rows are forgotten, and by output."""

from __future__ import annotations

from bedrockjobs.base.duration import days_text
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany
from bedrockjobs.base.name_limits import LIMITS_MAX
from bedrockjobs.commands import RemoveRetention, SetRetention
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.job.retention import Retention
from bedrockjobs.store.base import Plan


@handles(SetRetention, plan=lambda _: Plan(control=True))
def set_retention(context: Context, command: SetRetention) -> Answer:
    """Limit how much is kept of a pattern."""
    records = context.unit.records
    limits = (
        command.runs, command.runs_bytes, command.output, command.output_bytes, command.events, command.ticks,
        command.events_bytes, command.ticks_bytes,
    )  # fmt: skip
    if all(limit is None for limit in limits):
        raise BadArguments(
            "Missing limit",
            "expected one of runs, runsBytes, output, outputBytes, events, eventsBytes, ticks, ticksBytes",
        )
    others = [row for row in records.retention() if row.pattern != command.name]
    if len(others) >= LIMITS_MAX:
        raise TooMany("Too many limits", f"name: expected at most {LIMITS_MAX} patterns in all")
    row = Retention(command.name, command.by, context.now, *limits)
    records.set_retention(tuple(sorted([*others, row], key=lambda kept: kept.pattern)))
    context.note("retention set", name=command.name, by=command.by, detail=_words(row))
    return Answer()


@handles(RemoveRetention, plan=lambda _: Plan(control=True))
def remove_retention(context: Context, command: RemoveRetention) -> Answer:
    """Take a limit back."""
    records = context.unit.records
    left = tuple(row for row in records.retention() if row.pattern != command.name)
    if len(left) == len(records.retention()):
        raise NotFound("No such limit", f"name: the pattern {command.name} has none")
    records.set_retention(left)
    context.note("retention removed", name=command.name, by=command.by)
    return Answer()


def _words(row: Retention) -> str:
    times = {"runs": row.runs, "output": row.output, "events": row.events, "ticks": row.ticks}
    sizes = {
        "runs": row.runs_bytes, "output of a run": row.output_bytes,
        "events": row.events_bytes, "ticks of a schedule": row.ticks_bytes,
    }  # fmt: skip
    words = [f"{kind} for {days_text(time)}" for kind, time in times.items() if time is not None]
    return ", ".join(words + [f"{kind} {size:,} bytes" for kind, size in sizes.items() if size is not None])
