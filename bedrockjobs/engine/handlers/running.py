"""Limits of runs at once: what has as many runs as it may have is paused, and goes on when one of them ends.

The runs are counted in the table before each take that a limit is about; the pause only keeps those who ask
from looking for nothing. It ends by itself, and is written anew as long as its limit is reached.
"""

from __future__ import annotations

from collections.abc import Iterable

from bedrockjobs.base.glob import glob
from bedrockjobs.base.wire import after_seconds
from bedrockjobs.engine.events import Event, RoomForRuns
from bedrockjobs.engine.handlers.context import Context
from bedrockjobs.job.lanes import parse_lane
from bedrockjobs.job.limits import AT_LIMIT, Limit
from bedrockjobs.job.rows import Job, PauseRow

LOOKED_AGAIN_S = 2.0
"""Time after which a limit that is reached is looked at again: the end of a run at another server may
have come at the same moment, and not have seen that."""


def hold_back(context: Context, job: Job) -> bool:
    """Pause the names of a limit that keeps a job waiting for the end of a run; tell whether one does.

    Jobs that somebody has triggered do not wait.
    """
    records = context.unit.records
    for limit in records.limits():
        if not limit.running or not glob(job.name, limit.pattern) or parse_lane(job.lane).now:
            continue
        if records.running(limit.pattern) >= limit.running:
            _hold(context, limit)
            return True
    return False


def _hold(context: Context, limit: Limit) -> None:
    reason = f"{limit.running} {'runs' if limit.running == 1 else 'run'}, as many as may at once"
    until = after_seconds(context.now_ms, LOOKED_AGAIN_S)
    context.unit.records.put_pause(PauseRow(limit.pattern, AT_LIMIT, reason, context.now, until))


def went_on(context: Context, name: str) -> None:
    """Let those of a name be taken that waited for the end of a run, as one has ended."""
    for pause in context.unit.records.pauses():
        if pause.by == AT_LIMIT and glob(name, pause.pattern):
            look_again(context, pause)


def look_again(context: Context, pause: PauseRow) -> None:
    """End a pause of a limit that is not reached any more, or write it anew."""
    if not hold_if_full(context, pause.pattern):
        context.unit.records.delete_pause(pause.pattern)
        context.unit.pauses_changed(wake=False)
        context.emit(RoomForRuns(pause.pattern))


def hold_if_full(context: Context, pattern: str) -> bool:
    """Pause the names of a pattern whose limit is reached; tell whether it is."""
    records = context.unit.records
    for limit in records.limits():
        if limit.pattern == pattern and limit.running and records.running(pattern) >= limit.running:
            _hold(context, limit)
            return True
    return False


def rooms(events: Iterable[Event]) -> list[str]:
    """Return the patterns whose limits have room again, each once."""
    found = [event.pattern for event in events if type(event) is RoomForRuns]
    return list(dict.fromkeys(found)) if found else found


def has_room_left(context: Context) -> bool:
    """Tell whether some limit was reached before this transaction, and is not any more."""
    full = {pause.pattern for pause in context.unit.records.pauses() if pause.by == AT_LIMIT}
    return not full.issuperset(rooms(context.events))
