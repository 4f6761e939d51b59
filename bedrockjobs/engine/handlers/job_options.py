"""Where a queued job stands: its lane, and when it expires. Both follow from its options."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from bedrockjobs.base import jsontext
from bedrockjobs.base.wire import moment_of, stamp_ms
from bedrockjobs.job.lanes import EVERY_LANE, MOCK_LANE, OPEN_LANE, OWN_COMMANDS, Lane
from bedrockjobs.job.rows import Job

ENDED: dict[str, str | None] = dict.fromkeys(("failures", "losses", "cause", "overtime"))
"""What a job no longer needs to know of a run that is over."""


def written(row: Job, changed: Job) -> Job:
    """Return a job that somebody changed: one that waits in its new place, one that runs until its time."""
    there = placed(changed)
    waits = changed.state in ("QUEUED", "PAUSED")
    return there if waits else changed._replace(lane=there.lane, expires=row.expires)


def placed(row: Job, now: str = "") -> Job:
    """Return a row that is or will be queued, with the lane and the time its options ask for.

    It may wait from its nextRun on, or from ``now`` where that is later.
    """
    if row.options == "{}" and not row.expires and row.lane in (OPEN_LANE, MOCK_LANE):
        return row
    options = jsontext.members(row.options)
    lane = row.lane if row.mocked else _lane(row.name, options)
    expires = ""
    if "expireAfter" in options and "trigger" not in options:
        expires = after_seconds(max(row.next_run, now), int(options["expireAfter"]))
    return row._replace(lane=lane, expires=expires)


def _lane(name: str, options: dict[str, str]) -> str:
    if "hosts" in options:
        return EVERY_LANE
    own = next((key for key in OWN_COMMANDS if key in options), "")
    lock = jsontext.parse(options["lock"]) if "lock" in options else ""
    # Another try no longer passes a pause; a job bound to its worker has no memory, only the cause.
    now = "cause" not in options if "trigger" in options else options.get("cause") == '"manual"'
    worker = str(jsontext.parse(options["boundTo"])) if "boundTo" in options else ""
    return str(Lane(now, own, name if lock is True else str(lock or ""), worker))


def after_seconds(moment: str, seconds: float) -> str:
    """Return the stamp some seconds after another; the end of time where there is no such date."""
    try:
        return stamp_ms(moment_of(moment) + timedelta(seconds=seconds)).removesuffix(".000")
    except OverflowError:
        return "9999-12-31 23:59:59"


def with_options(row: Job, changes: dict[str, str | None]) -> Job:
    """Return a row with some of its options set to JSON texts, or removed where the change is None."""
    return row._replace(options=jsontext.with_members(row.options, changes))


def has_option(row: Job, name: str) -> bool:
    """Tell whether a row has an option, of whatever value."""
    return f'"{name}"' in row.options and name in jsontext.members(row.options)


def has_any(row: Job, names: Iterable[str]) -> bool:
    """Tell whether a row has one of some options."""
    return row.options != "{}" and any(has_option(row, name) for name in names)


def option(row: Job, name: str, default: int) -> int:
    """Return an option that is a number."""
    if f'"{name}"' not in row.options:
        return default
    text = jsontext.members(row.options).get(name)
    return default if text is None else int(text)


def word(row: Job, name: str, default: str) -> str:
    """Return an option that is a word."""
    if f'"{name}"' not in row.options:
        return default
    text = jsontext.members(row.options).get(name)
    return default if text is None else str(jsontext.parse(text))
