"""The commands that say how things stand: counts and what is wrong, queue by queue, and what is paused."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import FINGERPRINT_CHARS_MAX, NAME_CHARS_MAX, SEEN_AT_ONCE_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.json_schemas import Shape
from bedrockjobs.base.wire import Boolean, JobID, JobIDs, OneLine
from bedrockjobs.commands.base import BUSY, SLOW, Command, Example, Paging, Reply, Scoping
from bedrockjobs.commands.runs import Limit
from bedrockjobs.commands.take import Pattern

TROUBLES = (
    "held",
    "disk low",
    "no worker",
    "own command",
    "late",
    "blocked",
    "failed",
    "last run failed",
    "messages",
    "paused",
    "drained",
)
"""The kinds of what a person should know, in the order in which they are told."""


class Trouble(Reply):
    """One thing that a person should know; ``detail`` says it in plain words."""

    kind: str = Field(description=f"One of {', '.join(f'`{kind}`' for kind in TROUBLES)}.")
    name: str = Field(description="A job's name, a pattern or a worker; empty where it is about many.")
    count: int = Field(description="How many jobs, or schedules, it is about.")
    since: str = Field(description="Since when; empty where that is not known.")
    detail: str


class NextSchedule(Reply):
    """A schedule that fires soon."""

    job_id: int
    name: str
    next_run: str
    paused: str = Field(description="A pattern that pauses it; empty where none does.")


class OverviewReply(Reply):
    """How things stand: counts of jobs, what is wrong, the most pressing first, and what fires next."""

    now: str
    ready: int = Field(description="Due, and nothing but a worker is missing.")
    later: int = Field(description="Their nextRun is to come.")
    running: int = Field(
        description="Runs in progress; those of clients without a worker name as far as they are old."
    )
    paused: int = Field(description="Queued, due or not, under a pause.")
    blocked: int = Field(description="Due, and another job holds their lock.")
    mocked: int = Field(description="Queued, and only a GetJob with getMockedJobs takes them.")
    failed: int
    unseen: int = Field(description="Those of the failed ones that nobody has marked as seen.")
    children: int = Field(description="In the state PAUSED: they wait for their family.")
    untaken: int = Field(description="Ready jobs that no live worker takes.")
    repeating: int
    pauses: int = Field(description="Patterns that are paused.")
    workers: int = Field(description="Live workers.")
    taking: int = Field(description="Live workers that are neither drained nor quiet.")
    oldest_ready: str = Field(description="Since when the oldest ready job is due; empty where none is.")
    more: list[str] = Field(description="The counts that ended at a limit: there are at least so many.")
    counted_age: int = Field(description="Seconds since what is queued was counted; 0: just now.")
    problems: list[Trouble]
    next: list[NextSchedule]
    newest_event: int = Field(description="The seq of the newest event; 0 before the first.")


class Overview(Command[OverviewReply]):
    """Tell how things stand: how many jobs are ready, wait or run, and what is wrong."""

    scoping = Scoping()
    group = "server"
    where = "reader"
    example = Example(
        {},
        {
            "now": "2026-11-21 10:00:00",
            "ready": 500,
            "later": 3,
            "running": 2,
            "paused": 500,
            "blocked": 0,
            "mocked": 0,
            "failed": 1,
            "unseen": 1,
            "children": 0,
            "untaken": 0,
            "repeating": 4,
            "pauses": 1,
            "workers": 2,
            "taking": 2,
            "oldestReady": "2026-11-21 09:59:58",
            "more": [],
            "countedAge": 0,
            "problems": [
                {
                    "kind": "paused",
                    "name": "mail/*",
                    "count": 500,
                    "since": "2026-11-21 09:00:00",
                    "detail": "mail/* is paused by ann since 2026-11-21 09:00:00: 500 jobs wait",
                }
            ],
            "next": [{"jobID": 3, "name": "report/day", "nextRun": "2026-11-22 06:00:00", "paused": ""}],
            "newestEvent": 17,
        },
    )
    refusals = [SLOW, BUSY]


class QueueReply(Reply):
    """The jobs of one name."""

    name: str
    ready: int
    later: int
    running: int
    paused: int
    blocked: int
    mocked: int
    failed: int
    untaken: int = Field(description="Those of the ready ones that no live worker takes.")
    oldest_ready: str = Field(description="Since when the oldest ready one is due; empty where none is.")
    age: int = Field(description="Seconds since then.")
    paused_by: str = Field(description="The pattern that pauses the name; empty where none does.")
    workers: int = Field(description="Live workers that take its jobs.")
    more: bool = Field(description="Whether a count ended at a limit: there are at least so many.")
    counted_age: int = Field(description="Seconds since what is queued was counted; 0: just now.")


class QueuesReply(Reply):
    """A page of names."""

    queues: list[QueueReply]


class ListQueues(Command[QueuesReply]):
    """List the names of jobs with how many are ready, wait or run, and how many workers take them."""

    scoping = Scoping()
    group = "server"
    where = "reader"
    paging = Paging("queues", "name", "after")
    example = Example(
        {"name": "mail/*"},
        {
            "queues": [
                {
                    "name": "mail/welcome",
                    "ready": 12,
                    "later": 0,
                    "running": 2,
                    "paused": 0,
                    "blocked": 0,
                    "mocked": 0,
                    "failed": 1,
                    "untaken": 0,
                    "oldestReady": "2026-11-21 09:59:58",
                    "age": 2,
                    "pausedBy": "",
                    "workers": 2,
                    "more": False,
                    "countedAge": 0,
                }
            ]
        },
    )
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(default=None, description="Only names that match this GLOB pattern.")
    after: Annotated[OneLine, Field(max_length=NAME_CHARS_MAX)] = Field(
        default="", description="Only names behind this one: the last one of the page before."
    )
    limit: Limit = Field(default=100, description="How many at the most.")
    sort: Literal["name", "jobs"] = Field(
        default="name",
        description="`jobs`: those with the most due jobs first, of names of which something is queued,"
        " runs or has failed. By name if the token sees some names only.",
    )


class PauseReply(Reply):
    """A pattern that is paused."""

    pattern: str
    by: str
    reason: str
    since: str
    until: str = Field(description="When it goes on by itself; empty: when somebody resumes it.")


class PausesReply(Reply):
    """What is paused, by pattern."""

    pauses: list[PauseReply]


class ListPauses(Command[PausesReply]):
    """List what is paused, by whom and why."""

    scoping = Scoping()
    group = "schedules"
    where = "reader"
    example = Example(
        {},
        {
            "pauses": [
                {
                    "pattern": "mail/*",
                    "by": "ann",
                    "reason": "the mail server is down",
                    "since": "2026-11-21 09:00:00",
                    "until": "",
                }
            ]
        },
    )
    refusals = [BUSY]


# The commands on what failed: FAILED jobs, runs that failed, and which of them somebody has seen.


_Numbers = Annotated[
    JobIDs, Field(max_length=SEEN_AT_ONCE_MAX), Shape(lambda: json_schemas.job_ids(0, SEEN_AT_ONCE_MAX))
]


class FailureReply(Reply):
    """A job or a run that failed."""

    id: int = Field(description="Of a job its jobID, of a run its runID.")
    name: str
    at: str = Field(description="When the run ended; of a job when it was last taken.")
    line: str = Field(description="What was wrong, in one line.")
    error: str = Field(description="The error; of a long one its beginning and its end.")
    worker: str = Field(description="Who ran it, of runs.")
    started: str = Field(description="When it began, of runs.")
    seen: str = Field(description="When somebody marked it as seen; empty where nobody did.")
    seen_by: str


class FailureGroupReply(Reply):
    """Failures of one cause: numbers, ids, quoted texts and paths in their errors may differ."""

    fingerprint: str = Field(description="What the errors of the group have in common, as a hash.")
    state: str = Field(description="Of the newest: FAILED for jobs; of runs `fail`, `frozen` or `timeout`.")
    name: str = Field(description="The name of the newest.")
    names: int = Field(description="How many names have failed so.")
    line: str = Field(
        description="What was wrong with the newest: of a Python traceback the line of the exception, of what"
        " a command printed the last line, else the first line; empty if nothing was told."
    )
    count: int = Field(description="How many there are, listed or not.")
    unseen: int = Field(description="How many of them nobody has marked as seen.")
    first: str = Field(description="When the oldest one failed.")
    last: str = Field(description="When the newest one failed.")
    failures: list[FailureReply] = Field(description="The newest 20, or with `fingerprint` a page of 100.")


class FailuresReply(Reply):
    """A page of what failed, the groups with the newest failures first."""

    jobs: list[FailureGroupReply] = Field(description="FAILED jobs, which wait for somebody.")
    runs: list[FailureGroupReply] = Field(
        description="Failed runs, but for the one that made its job FAILED: the job stands for both."
    )
    before: int | None = Field(description="Where the next page of jobs begins; null where there is none.")
    runs_before: int | None = Field(description="The same of runs.")


class ListFailures(Command[FailuresReply]):
    """List what failed, grouped by what was wrong: on each page first what nobody has seen.

    Counts are those of whole groups. `fingerprint` lists the failures of one group, page by page.
    """

    scoping = Scoping()
    group = "runs"
    where = "reader"
    example = Example(
        {"name": "report/*"},
        {
            "jobs": [
                {
                    "fingerprint": "8f3c2f0c1b7a9d10",
                    "state": "FAILED",
                    "name": "report/day",
                    "names": 1,
                    "line": "no space left on device",
                    "count": 1,
                    "unseen": 1,
                    "first": "2026-11-21 03:00:00",
                    "last": "2026-11-21 03:00:00",
                    "failures": [
                        {
                            "id": 7,
                            "name": "report/day",
                            "at": "2026-11-21 03:00:00",
                            "line": "no space left on device",
                            "error": "no space left on device",
                            "worker": "",
                            "started": "",
                            "seen": "",
                            "seenBy": "",
                        }
                    ],
                }
            ],
            "runs": [],
            "before": None,
            "runsBefore": None,
        },
    )
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(default=None, description="Only names that match this GLOB pattern.")
    fingerprint: OneLine | None = Field(
        default=None, max_length=FINGERPRINT_CHARS_MAX, description="Only the group with this fingerprint."
    )
    before: JobID = Field(
        default=0,
        description="Only groups whose newest job has a lower jobID, of one group only such jobs; 0: all.",
    )
    runs_before: JobID = Field(default=0, description="The same of runs.")


class MarkedReply(Reply):
    """How many were marked, or unmarked."""

    jobs: int
    runs: int


class MarkSeen(Command[MarkedReply]):
    """Mark failures as seen: the overview counts them no more. What fails anew is not seen.

    Jobs that are not FAILED, and runs that have not failed, are left out.
    """

    scoping = Scoping(jobs=("job_ids",), runs=("run_ids",))
    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"jobIDs": [7, 9], "runIDs": [12]}, {"jobs": 2, "runs": 1})

    job_ids: _Numbers = Field(default=[], description="FAILED jobs.")
    run_ids: _Numbers = Field(default=[], description="Runs that failed, were lost or took too long.")
    seen: Boolean = Field(default=True, description="`false` takes it back.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who has seen them.")
