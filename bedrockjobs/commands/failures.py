"""The commands on what failed: FAILED jobs, runs that failed, and which of them somebody has seen."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bedrockjobs.base import shapes
from bedrockjobs.base.config import SEEN_AT_ONCE_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.shapes import Shape
from bedrockjobs.base.wire import Boolean, JobID, JobIDs, OneLine
from bedrockjobs.commands.base import Command, Example, Reply
from bedrockjobs.commands.refusals import BUSY, SLOW
from bedrockjobs.commands.take import Pattern

_Numbers = Annotated[
    JobIDs, Field(max_length=SEEN_AT_ONCE_MAX), Shape(lambda: shapes.job_ids(0, SEEN_AT_ONCE_MAX))
]


class FailureReply(Reply):
    """A job or a run that failed."""

    id: int = Field(description="Of a job its jobID, of a run its runID.")
    at: str = Field(description="When the run ended; of a job when it was last taken.")
    error: str = Field(description="What was said of it, its beginning.")
    worker: str = Field(description="Who ran it, of runs.")
    started: str = Field(description="When it began, of runs.")
    seen: str = Field(description="When somebody marked it as seen; empty where nobody did.")
    seen_by: str


class FailureGroupReply(Reply):
    """Failures with the same state, name and line that says what was wrong; the newest comes first."""

    state: str = Field(description="FAILED for jobs; of runs `fail`, `frozen` or `timeout`.")
    name: str
    line: str = Field(description="What was wrong; empty where nothing was told.")
    unseen: int = Field(description="How many of them nobody has marked as seen.")
    failures: list[FailureReply]


class FailuresReply(Reply):
    """A page of what failed: jobs that wait for somebody, and runs; each group of its page."""

    jobs: list[FailureGroupReply]
    runs: list[FailureGroupReply]
    before: int | None = Field(description="Where the next page of jobs begins; null where there is none.")
    runs_before: int | None = Field(description="The same of runs.")


class ListFailures(Command[FailuresReply]):
    """List what failed, what is alike put together: first what nobody has seen, then the newest."""

    group = "runs"
    where = "reader"
    example = Example(
        {"name": "report/*"},
        {
            "jobs": [
                {
                    "state": "FAILED", "name": "report/day", "line": "no space left on device", "unseen": 1,
                    "failures": [
                        {
                            "id": 7, "at": "2026-11-21 03:00:00", "error": "no space left on device",
                            "worker": "", "started": "", "seen": "", "seenBy": "",
                        }
                    ],
                }
            ],
            "runs": [], "before": None, "runsBefore": None,
        },
    )  # fmt: skip
    refusals = [SLOW, BUSY]

    name: Pattern | None = Field(default=None, description="Only names that match this GLOB pattern.")
    before: JobID = Field(default=0, description="Only jobs with a lower jobID; 0: all.")
    runs_before: JobID = Field(default=0, description="Only runs with a lower runID; 0: all.")


class MarkedReply(Reply):
    """How many were marked, or unmarked."""

    jobs: int
    runs: int


class MarkSeen(Command[MarkedReply]):
    """Mark failures as seen: the overview counts them no more. What fails anew is not seen.

    Jobs that are not FAILED, and runs that have not failed, are left out.
    """

    group = "runs"
    role = "operate"
    repeatable = True
    example = Example({"jobIDs": [7, 9], "runIDs": [12]}, {"jobs": 2, "runs": 1})

    job_ids: _Numbers = Field(default=[], description="FAILED jobs.")
    run_ids: _Numbers = Field(default=[], description="Runs that failed, were lost or took too long.")
    seen: Boolean = Field(default=True, description="`false` takes it back.")
    by: OneLine = Field(default="", max_length=WORKER_CHARS_MAX, description="Who has seen them.")
