"""ListFailures, and what the page of failures shows: what failed alike, put together, and who has seen it.

FAILED jobs and failed runs come newest first, page by page; those of a page are alike that have the same
state, name, and line that says what was wrong.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.statuses import FAILED_STATUSES
from bedrockjobs.commands import ListFailures
from bedrockjobs.commands.failures import FailureGroupReply, FailureReply, FailuresReply
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.views import Views
from bedrockjobs.views.narrowed import Narrowed

JOBS_SHOWN = 100
"""FAILED jobs on a page: each may be a group of its own, which is half a millisecond."""

RUNS_SHOWN = 100
"""Failed runs on a page."""

ERROR_CHARS_SHOWN = 2_000
"""Length of an error up to which it is shown; its run has the whole of it."""

_HOW_IT_ENDED = re.compile(r"exit status \d+|SIG\w+|timed out after .+")
"""What a worker writes above the last lines of a command."""


class _Failure(NamedTuple):
    """One job or run that failed, as it was found."""

    state: str
    name: str
    number: int
    at: str
    error: Any
    worker: str = ""
    started: str = ""


class Failed(NamedTuple):
    """A page of failures: its groups, those first that hold what nobody has seen, and how it goes on."""

    groups: list[FailureGroupReply]
    following: int | None
    """The number before which the next page begins."""
    stopped_at: int | None = None
    """How far a search got that took its time."""


async def failed_jobs(views: Views | Narrowed, pattern: str | None, before: int | None) -> Failed:
    """Return a page of FAILED jobs below a number."""
    asked = await views.find.jobs(state="FAILED", pattern=pattern, before=before, limit=JOBS_SHOWN)
    found = asked.without_data()
    failures = [
        _Failure("FAILED", job.name, job.job_id, job.last_run, job.memory.error) for job in found.jobs
    ]
    return Failed(await _groups(views, "job", failures), None if found.ended else found.reached)


async def failed_runs(views: Views | Narrowed, pattern: str | None, before: int | None) -> Failed:
    """Return a page of failed runs below a number."""
    found = await views.find.runs(before=before, statuses=FAILED_STATUSES, pattern=pattern, limit=RUNS_SHOWN)
    failures = [
        _Failure(run.status, run.name, run.run_id, run.ended, run.error, run.worker, run.started)
        for run in found.runs
    ]
    stopped = found.reached if not found.ended and len(failures) < RUNS_SHOWN else None
    groups = await _groups(views, "run", failures)
    return Failed(groups, None if found.ended else found.reached, stopped)


def line_of(error: str) -> str:
    """Return the line that says what was wrong: the first one, or the last one of what a command printed."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    return lines[-1] if _HOW_IT_ENDED.fullmatch(lines[0]) else lines[0]


async def _groups(views: Views | Narrowed, kind: str, found: list[_Failure]) -> list[FailureGroupReply]:
    seen = await views.find.seen_failures(kind, [failure.number for failure in found])
    alike: dict[tuple[str, str, str], list[FailureReply]] = {}
    for state, name, number, at, whole, worker, started in found:
        error = str(whole or "")[:ERROR_CHARS_SHOWN]
        seen_at, seen_by = seen.get(number, ("", ""))
        alike.setdefault((state, name, line_of(error)), []).append(
            FailureReply(
                id=number, at=at, error=error, worker=worker, started=started, seen=seen_at, seen_by=seen_by
            )
        )
    groups = [
        FailureGroupReply(
            state=state, name=name, line=line, failures=failures,
            unseen=sum(not failure.seen for failure in failures),
        )
        for (state, name, line), failures in alike.items()
    ]  # fmt: skip
    return sorted(groups, key=lambda group: not group.unseen)


@handles(ListFailures)
async def list_failures(views: Views, command: ListFailures) -> Answer:
    """List what failed."""
    jobs = await failed_jobs(views, command.name, command.before or None)
    runs = await failed_runs(views, command.name, command.runs_before or None)
    reply = FailuresReply(
        jobs=jobs.groups,
        runs=runs.groups,
        before=jobs.following,
        runs_before=runs.following,
    )
    return Answer(jsontext.dump(reply.model_dump(by_alias=True)))
