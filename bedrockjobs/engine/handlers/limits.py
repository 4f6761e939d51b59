"""SetLimit, RemoveLimit, ListLimits."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany
from bedrockjobs.base.name_limits import LIMITS_MAX
from bedrockjobs.commands import ListLimits, RemoveLimit, SetLimit
from bedrockjobs.engine.gates import Gate
from bedrockjobs.engine.handlers import running
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.job.limits import AT_LIMIT, Limit
from bedrockjobs.store.base import Plan


@handles(SetLimit, plan=lambda _: Plan(control=True))
def set_limit(context: Context, command: SetLimit) -> Answer:
    """Limit what may be created and run of a pattern."""
    if not (command.queued or command.per_second or command.running):
        raise BadArguments("Missing limit", "queued, perSecond, running: expected one of them above 0")
    records = context.unit.records
    others = [limit for limit in records.limits() if limit.pattern != command.name]
    if len(others) >= LIMITS_MAX:
        raise TooMany("Too many limits", f"name: expected at most {LIMITS_MAX} patterns in all")
    limit = Limit(command.name, command.queued, command.per_second, command.running, command.by, context.now)
    records.set_limits(tuple(sorted([*others, limit])))
    _look_again(context, command.name)
    numbers = {"queued": command.queued, "a second": command.per_second, "at once": command.running}
    words = ", ".join(f"{what} {number or 'any number'}" for what, number in numbers.items())
    context.note("limit set", name=command.name, by=command.by, detail=words)
    return Answer()


@handles(RemoveLimit, plan=lambda _: Plan(control=True))
def remove_limit(context: Context, command: RemoveLimit) -> Answer:
    """Take a limit back."""
    records = context.unit.records
    kept = tuple(limit for limit in records.limits() if limit.pattern != command.name)
    if len(kept) == len(records.limits()):
        raise NotFound("No such limit", f"name: the pattern {command.name} has none")
    records.set_limits(kept)
    context.gates.remove(command.name)
    _look_again(context, command.name)
    context.note("limit removed", name=command.name, by=command.by)
    return Answer()


def _look_again(context: Context, pattern: str) -> None:
    """Let jobs be taken that waited for the end of a run, where there is another limit now."""
    for pause in context.unit.records.pauses():
        if pause.pattern == pattern and pause.by == AT_LIMIT:
            running.look_again(context, pause)


@handles(ListLimits, plan=lambda _: Plan(control=True))
def list_limits(context: Context, _: ListLimits) -> Answer:
    """List the limits, and how often this server refused a job for each."""
    gates = [context.gates.gate(limit) for limit in context.unit.records.limits()]
    return Answer(jsontext.dump({"limits": [_shown(context, gate) for gate in gates]}))


def _shown(context: Context, gate: Gate) -> dict[str, str | int]:
    limit = gate.limit
    runs = context.unit.records.running(limit.pattern) if limit.running else 0
    return {
        "name": limit.pattern, "queued": limit.queued, "perSecond": limit.per_second,
        "running": limit.running, "runs": runs,
        "refused": gate.refused, "lastRefused": gate.last_refused, "by": limit.by, "since": limit.since,
    }  # fmt: skip
