"""The commands on what failed: FAILED jobs, runs that failed, and which of them somebody has seen."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bedrockjobs.base import shapes
from bedrockjobs.base.config import FINGERPRINT_CHARS_MAX, SEEN_AT_ONCE_MAX, WORKER_CHARS_MAX
from bedrockjobs.base.shapes import Shape
from bedrockjobs.base.wire import Boolean, JobID, JobIDs, OneLine
from bedrockjobs.commands.base import Command, Example, Reply, Scoping
from bedrockjobs.commands.refusals import BUSY, SLOW
from bedrockjobs.commands.take import Pattern

_Numbers = Annotated[
    JobIDs, Field(max_length=SEEN_AT_ONCE_MAX), Shape(lambda: shapes.job_ids(0, SEEN_AT_ONCE_MAX))
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
                    "fingerprint": "8f3c2f0c1b7a9d10", "state": "FAILED", "name": "report/day", "names": 1,
                    "line": "no space left on device", "count": 1, "unseen": 1,
                    "first": "2026-11-21 03:00:00", "last": "2026-11-21 03:00:00",
                    "failures": [
                        {
                            "id": 7, "name": "report/day", "at": "2026-11-21 03:00:00",
                            "line": "no space left on device", "error": "no space left on device",
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
