"""ListFailures, and what the page of failures shows: what failed alike, put together, and who has seen it.

FAILED jobs and failed runs come newest first, page by page; those of a page are alike that have the same
state, name, and line that says what was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.commands import ListFailures
from bedrockjobs.commands.failures import FailureGroupReply, FailureReply, FailuresReply
from bedrockjobs.engine.handlers.context import Answer
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.job.rows import FAILED_STATUSES
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


class Failure(NamedTuple):
    """One job or run that failed: its number, when, its error, and who has seen it when."""

    number: int
    at: str
    error: str
    worker: str = ""
    started: str = ""
    seen: str = ""
    seen_by: str = ""


class Group(NamedTuple):
    """Failures with the same state, name and line that says what was wrong; the newest comes first."""

    state: str
    name: str
    line: str
    failures: list[Failure]

    @property
    def unseen(self) -> int:
        """Return how many nobody has marked as seen."""
        return sum(not failure.seen for failure in self.failures)


class Failed(NamedTuple):
    """A page of failures: its groups, those first that hold what nobody has seen, and how it goes on."""

    groups: list[Group]
    following: int | None
    """The number before which the next page begins."""
    stopped_at: int | None = None
    """How far a search got that took its time."""


async def failed_jobs(views: Views | Narrowed, pattern: str | None, before: int | None) -> Failed:
    """Return a page of FAILED jobs below a number."""
    found = await views.find.jobs(state="FAILED", pattern=pattern, before=before, limit=JOBS_SHOWN)
    failures = [
        ("FAILED", job.name, Failure(job.job_id, job.last_run, _text(job.memory.error))) for job in found.jobs
    ]
    return Failed(await _groups(views, "job", failures), None if found.ended else found.reached)


async def failed_runs(views: Views | Narrowed, pattern: str | None, before: int | None) -> Failed:
    """Return a page of failed runs below a number."""
    found = await views.find.runs(before=before, statuses=FAILED_STATUSES, pattern=pattern, limit=RUNS_SHOWN)
    failures = [
        (run.status, run.name, Failure(run.run_id, run.ended, _text(run.error), run.worker, run.started))
        for run in found.runs
    ]
    stopped = found.reached if not found.ended and len(failures) < RUNS_SHOWN else None
    groups = await _groups(views, "run", failures)
    return Failed(groups, None if found.ended else found.reached, stopped)


def _text(error: Any) -> str:
    return str(error or "")[:ERROR_CHARS_SHOWN]


def line_of(error: str) -> str:
    """Return the line that says what was wrong: the first one, or the last one of what a command printed."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    return lines[-1] if _HOW_IT_ENDED.fullmatch(lines[0]) else lines[0]


async def _groups(views: Views | Narrowed, kind: str, found: list[tuple[str, str, Failure]]) -> list[Group]:
    seen = await views.find.seen_failures(kind, [failure.number for _, _, failure in found])
    alike: dict[tuple[str, str, str], list[Failure]] = {}
    for state, name, failure in found:
        at, by = seen.get(failure.number, ("", ""))
        marked = failure._replace(seen=at, seen_by=by)
        alike.setdefault((state, name, line_of(failure.error)), []).append(marked)
    groups = [Group(*key, failures) for key, failures in alike.items()]
    return sorted(groups, key=lambda group: not group.unseen)


@handles(ListFailures)
async def list_failures(views: Views, command: ListFailures) -> Answer:
    """List what failed."""
    jobs = await failed_jobs(views, command.name, command.before or None)
    runs = await failed_runs(views, command.name, command.runs_before or None)
    reply = FailuresReply(
        jobs=_shown(jobs.groups),
        runs=_shown(runs.groups),
        before=jobs.following,
        runs_before=runs.following,
    )
    return Answer(jsontext.dump(reply.model_dump(by_alias=True)))


def _shown(groups: Iterable[Group]) -> list[FailureGroupReply]:
    return [
        FailureGroupReply(
            state=group.state,
            name=group.name,
            line=group.line,
            unseen=group.unseen,
            failures=[
                FailureReply(
                    id=failure.number, **{k: v for k, v in failure._asdict().items() if k != "number"}
                )
                for failure in group.failures
            ],
        )
        for group in groups
    ]
