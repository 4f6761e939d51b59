"""Commands for overviews: counts and problems, queues, pauses, and failures."""

from typing import Annotated, Literal

from pydantic import Field

from bedrockjobs.base import json_schemas
from bedrockjobs.base.config import (
    FINGERPRINT_CHARS_MAX,
    MUTED_RELEASES_MAX,
    MUTES_MAX,
    NAME_CHARS_MAX,
    REASON_CHARS_MAX,
    SEEN_AT_ONCE_MAX,
    TEXT_CHARS_MAX,
    WORKER_CHARS_MAX,
)
from bedrockjobs.base.json_schemas import SchemaType
from bedrockjobs.base.wire import Boolean, ErrorType, JobID, JobIDs, Name, OneLine, Paragraphs, Timestamp
from bedrockjobs.commands.base import BUSY, SLOW, Command, Empty, Example, Paging, Refusal, Reply, Scoping
from bedrockjobs.commands.control import PausePattern
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
"""The kinds of problems, in the order of display."""


class Trouble(Reply):
    """A problem that needs attention, with ``detail`` in plain words."""

    kind: str = Field(description=f"One of {', '.join(f'`{kind}`' for kind in TROUBLES)}.")
    name: str = Field(description="A job's name, a pattern or a worker; empty if it concerns several.")
    count: int = Field(description="Number of jobs or schedules affected.")
    since: str = Field(description="Start of the problem; empty if unknown.")
    detail: str


class NextSchedule(Reply):
    """A schedule that is due soon."""

    job_id: int
    name: str
    next_run: str
    paused: str = Field(description="A pattern that pauses it; empty if it is not paused.")


class OverviewReply(Reply):
    """Counts of jobs, problems in the order of urgency, and the next schedules."""

    now: str
    ready: int = Field(description="Due jobs that could be taken by a worker now.")
    later: int = Field(description="Jobs whose nextRun is in the future.")
    running: int = Field(
        description="Runs in progress; those of clients without a worker name only if they are old."
    )
    paused: int = Field(description="Queued jobs that are paused, due or not.")
    blocked: int = Field(description="Due jobs that wait for a lock, or for the next start of their key.")
    mocked: int = Field(description="Queued jobs that only a GetJob with getMockedJobs takes.")
    failed: int
    unseen: int = Field(description="Failed jobs that are not marked as seen.")
    children: int = Field(description="Jobs in the state PAUSED, which wait for parent or children.")
    untaken: int = Field(description="Ready jobs that match no live worker.")
    repeating: int
    pauses: int = Field(description="Patterns that are paused.")
    workers: int = Field(description="Live workers.")
    taking: int = Field(description="Live workers that are neither drained nor quiet.")
    oldest_ready: str = Field(description="When the oldest ready job became due; empty if none is ready.")
    more: list[str] = Field(
        description="Names of counts that stopped at a limit: the real number may be higher."
    )
    counted_age: int = Field(description="Age in seconds of the counts of queued jobs; 0: just counted.")
    problems: list[Trouble]
    next: list[NextSchedule]
    newest_event: int = Field(description="The seq of the newest event; 0 if there is none.")


class Overview(Command[OverviewReply]):
    """Show counts of ready, waiting and running jobs, and current problems."""

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
                    "detail": "mail/* has been paused by ann since 2026-11-21 09:00:00: 500 jobs wait",
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
    untaken: int = Field(description="Ready jobs that match no live worker.")
    oldest_ready: str = Field(description="When the oldest ready job became due; empty if none is ready.")
    age: int = Field(description="Seconds since then.")
    paused_by: str = Field(description="The pattern that pauses the name; empty if it is not paused.")
    workers: int = Field(description="Live workers that take its jobs.")
    more: bool = Field(description="Whether a count stopped at a limit: the real number may be higher.")
    counted_age: int = Field(description="Age in seconds of the counts of queued jobs; 0: just counted.")


class QueuesReply(Reply):
    """A page of names."""

    queues: list[QueueReply]


class ListQueues(Command[QueuesReply]):
    """List job names with their numbers of ready, waiting and running jobs and of workers."""

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
        default="", description="Only names after this one: the last of the previous page."
    )
    limit: Limit = Field(default=100, description="How many at most.")
    sort: Literal["name", "jobs"] = Field(
        default="name",
        description="`jobs`: names with the most due jobs first, among names with queued, running or failed"
        " jobs. Always by name if the token is limited to some names.",
    )


HISTORY_RANGES = {
    "15m": (900, 60),
    "1h": (3_600, 60),
    "6h": (21_600, 300),
    "24h": (86_400, 600),
    "7d": (604_800, 3_600),
    "30d": (2_592_000, 14_400),
    "90d": (7_776_000, 43_200),
}
"""The ranges of a history: the length of each range and the length of its steps, in seconds."""


class QueueCounts(Reply):
    """What happened to the jobs of a name in some time. Percentiles are estimates from histograms."""

    created: int = Field(description="Jobs that a create returned, including those that already existed.")
    taken: int
    finished: int
    failed: int = Field(description="Runs that failed, whether they were retried or not.")
    retried: int
    lost: int
    wait_p50: float | None = Field(
        description="Median of the seconds between due and taken; null if no job was taken."
    )
    wait_p95: float | None = Field(description="95th percentile of them.")
    took_p50: float | None = Field(
        description="Median of the seconds that runs took; null if none ended. Jobs that were taken without a"
        " worker name have no runs."
    )
    took_p95: float | None = Field(description="95th percentile of them.")


class QueueStep(QueueCounts):
    """One step of a history."""

    at: str = Field(description="The start of the step.")
    depth: int | None = Field(
        description="Queued jobs, due or not, as last counted in this step; null if they were not counted."
    )


class QueueHistoryReply(Reply):
    """The history of a name."""

    name: str
    step: int = Field(description="The length of a step in seconds.")
    total: QueueCounts = Field(description="The whole range.")
    steps: list[QueueStep] = Field(
        description="All steps, oldest first; those in which nothing happened are zero."
    )


class QueueHistory(Command[QueueHistoryReply]):
    """Show what happened to the jobs of one name: counts, waits and durations, step by step.

    Up to 24 hours by the minute, up to 90 days by the hour. In one hour the server counts 1,000 names; if
    there are more, the names with the most jobs have a history.
    """

    scoping = Scoping()
    group = "server"
    where = "reader"
    example = Example(
        {"name": "mail/welcome", "range": "15m"},
        {
            "name": "mail/welcome",
            "step": 60,
            "total": {
                "created": 120,
                "taken": 118,
                "finished": 115,
                "failed": 2,
                "retried": 2,
                "lost": 0,
                "waitP50": 0.02,
                "waitP95": 0.4,
                "tookP50": 1.2,
                "tookP95": 3.1,
            },
            "steps": [
                {
                    "at": "2026-11-21 09:59:00",
                    "created": 8,
                    "taken": 8,
                    "finished": 7,
                    "failed": 1,
                    "retried": 1,
                    "lost": 0,
                    "waitP50": 0.02,
                    "waitP95": 0.3,
                    "tookP50": 1.1,
                    "tookP95": 2.9,
                    "depth": 12,
                }
            ],
        },
    )
    refusals = [BUSY]

    name: Name = Field(description="The name, not a pattern.")
    range: Literal["15m", "1h", "6h", "24h", "7d", "30d", "90d"] = Field(
        default="1h", description="How far back."
    )


class PauseReply(Reply):
    """A paused pattern."""

    pattern: str
    by: str
    reason: str
    since: str
    until: str = Field(description="When the pause ends by itself; empty: when it is resumed.")


class PausesReply(Reply):
    """Paused patterns."""

    pauses: list[PauseReply]


class ListPauses(Command[PausesReply]):
    """List paused patterns by name, with author and reason."""

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


# Failures: FAILED jobs, failed runs, and which of them are marked as seen.


_Numbers = Annotated[
    JobIDs, Field(max_length=SEEN_AT_ONCE_MAX), SchemaType(lambda: json_schemas.job_ids(0, SEEN_AT_ONCE_MAX))
]


class FailureReply(Reply):
    """A failed job or run."""

    id: int = Field(description="The jobID of a job, the runID of a run.")
    name: str
    at: str = Field(description="When the run ended; for a job, when it was last taken.")
    line: str = Field(description="The error in one line.")
    error: str = Field(description="The error; a long one is cut in the middle.")
    worker: str = Field(description="The worker, for runs.")
    started: str = Field(description="When the run began, for runs.")
    seen: str = Field(description="When it was marked as seen; empty if it was not.")
    seen_by: str


class MuteReply(Reply):
    """The mute of a group of failures."""

    name: str = Field(description="GLOB pattern of the names.")
    reason: str
    by: str
    since: str
    until: str = Field(description="When it ends; empty: with the first failure in a new release.")


class FailureGroupReply(Reply):
    """Failures with the same cause: numbers, ids, quoted texts and paths in their errors may differ."""

    fingerprint: str = Field(description="Hash that the errors of the group share.")
    state: str = Field(
        description="State of the newest: FAILED for jobs; `fail`, `frozen` or `timeout` for runs."
    )
    name: str = Field(description="Name of the newest.")
    names: int = Field(description="Number of different names in the group.")
    line: str = Field(
        description="The newest error in one line: the exception line of a Python traceback, the last line"
        " of a command's output, else the first line; empty if there is no error text."
    )
    error_type: str = Field(
        default="", description="Type of the exception that they have in common, such as `ValueError`."
    )
    count: int = Field(description="Number of failures in the group, listed or not.")
    unseen: int = Field(description="Number of them that are not marked as seen.")
    trend: str = Field(
        default="",
        description="`muted`; `came back`: muted, and failed in a new release; `quiet`: none failed in the"
        " last 24 hours; `new`: the first one failed within them; `growing`: more than twice as many failed"
        " an hour as before; else empty, as on later pages.",
    )
    hours: list[int] = Field(
        default=[],
        description="The number of failed runs with this fingerprint in each of the last 24 hours, by when"
        " they started, the oldest hour first; also those that made their job FAILED. Empty if there were"
        " none, and on later pages of one group.",
    )
    muted: MuteReply | None = Field(default=None, description="Its mute.")
    first: str = Field(description="When the oldest one failed.")
    last: str = Field(description="When the newest one failed.")
    failures: list[FailureReply] = Field(description="The newest 20, or with `fingerprint` a page of 100.")


class FailuresReply(Reply):
    """A page of failures, the groups with the newest failures first."""

    jobs: list[FailureGroupReply] = Field(description="FAILED jobs, which need attention.")
    runs: list[FailureGroupReply] = Field(
        description="Failed runs, except for those that made their job FAILED: they are listed as jobs."
    )
    before: int | None = Field(description="Where the next page of jobs begins; null if there is none.")
    runs_before: int | None = Field(description="The same for runs.")


class ListFailures(Command[FailuresReply]):
    """List failures grouped by cause; on each page, groups with unseen failures come first.

    Counts cover whole groups. `fingerprint` lists the failures of one group, page by page.
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
    error_type: ErrorType | None = Field(
        default=None, description="Only groups whose newest error is an exception of this type."
    )
    text: OneLine | None = Field(
        default=None,
        max_length=TEXT_CHARS_MAX,
        description="Only groups in whose newest error the line that says what was wrong contains this text,"
        " ignoring case.",
    )
    before: JobID = Field(
        default=0,
        description="Only groups whose newest job has a lower jobID, or within one group only such jobs; 0:"
        " all.",
    )
    runs_before: JobID = Field(default=0, description="The same for runs.")


class MarkedReply(Reply):
    """How many were marked, or unmarked."""

    jobs: int
    runs: int


class MarkSeen(Command[MarkedReply]):
    """Mark failures as seen, so that the overview no longer counts them; new failures count again.

    Jobs that are not FAILED, and runs that have not failed, are ignored.
    """

    scoping = Scoping(jobs=("job_ids",), runs=("run_ids",))
    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"jobIDs": [7, 9], "runIDs": [12]}, {"jobs": 2, "runs": 1})

    job_ids: _Numbers = Field(default=[], description="FAILED jobs.")
    run_ids: _Numbers = Field(default=[], description="Runs that failed, were lost or timed out.")
    seen: Boolean = Field(default=True, description="`false` removes the mark.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who has seen them.")


class MuteFailures(Command[Empty]):
    """Mark the failures of a group as seen, also future ones, until a time or the first in a new release.

    A release is a version of workers, which includes the content of the file of `--version-watch`.
    Notification rules do not send the events of muted failures.
    """

    scoping = Scoping(patterns=("name",))
    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"fingerprint": "8f3c2f0c1b7a9d10", "reason": "the disk is ordered"})
    refusals = [
        Refusal(402, "Malformed until", "`until` is in the past."),
        Refusal(404, "Not muted", "With `undo`: this fingerprint is not muted with exactly this pattern."),
        Refusal(429, "Too many mutes", f"{MUTES_MAX:,} are in force already."),
        Refusal(
            429,
            "Too many releases",
            f"Live workers have more than {MUTED_RELEASES_MAX} versions: give `until`.",
        ),
    ]

    fingerprint: Annotated[
        OneLine, Field(min_length=1, max_length=FINGERPRINT_CHARS_MAX, description="Hash of the group.")
    ]
    name: PausePattern = Field(default="*", description="GLOB pattern of names; all if left out.")
    reason: Paragraphs = Field(
        default="", max_length=REASON_CHARS_MAX, description="The reason, for other people."
    )
    until: Timestamp | None = Field(
        default=None, description="When it ends; if left out, with the first failure in a new release."
    )
    undo: Boolean = Field(default=False, description="End the mute; what was marked as seen stays so.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who requests this.")
