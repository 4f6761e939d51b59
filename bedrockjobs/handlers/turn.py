"""What a handler works with, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from bedrockjobs import jsontext
from bedrockjobs.config import Compatibility
from bedrockjobs.jsontext import quoted
from bedrockjobs.store.base import Transaction
from bedrockjobs.store.rows import JobRow, Names
from bedrockjobs.wire import stamp, stamp_ms


class Turn:
    """One open transaction, and the moment at which all its commands happen."""

    __slots__ = ("compatibility", "now", "now_ms", "tx")

    def __init__(self, tx: Transaction, moment: datetime, compatibility: Compatibility) -> None:
        """Open a turn at ``moment``."""
        self.tx = tx
        self.now = stamp(moment)
        self.now_ms = stamp_ms(moment)
        self.compatibility = compatibility


class Taken(NamedTuple):
    """A job that was handed out: its row before and after, so that it can go back as it was."""

    before: JobRow
    after: JobRow


@dataclass(slots=True)
class TakeRequest:
    """Which jobs somebody asks for, and how the answer is to look."""

    names: Names
    mocked: bool
    priority: int | None
    worker: str | None
    limit: int
    shape: str
    """``job``: the job itself; ``jobs``: a list; ``then``: the job, or null, under ``job``."""

    def fits(self, row: JobRow) -> bool:
        """Tell whether a queued job is one of those asked for."""
        return (
            (self.priority is None or self.priority == row.priority)
            and (self.mocked or not row.mocked)
            and self.names.match(row.name)
        )


@dataclass(slots=True)
class Answer:
    """What a command gives back: JSON text (empty: no body), and the jobs it handed out."""

    body: str = ""
    taken: Sequence[Taken] = ()
    waits_for: TakeRequest | None = None
    """Set where the command is done but its answer waits for a job."""
    media: str = "application/json"
    """What the body is; only Query can answer with something else."""


def render(row: JobRow, more: dict[str, str] | None = None) -> str:
    """Return a job as JSON text with its keys in order; ``more`` holds further members as JSON text.

    Differs from Bedrock: names like ``1234567`` or ``null`` come back from it as bare numbers and words.
    """
    if not more and not row.parent_job_id:
        return (
            f'{{"created":"{row.created}","data":{row.data},"jobID":{row.job_id},'
            f'"lastRun":"{row.last_run}","name":{quoted(row.name)},"nextRun":"{row.next_run}",'
            f'"priority":{row.priority},"repeat":{quoted(row.repeat)},'
            f'"retryAfter":{quoted(row.retry_after)}}}'
        )
    parts = {
        "created": f'"{row.created}"',
        "data": row.data,
        "jobID": str(row.job_id),
        "lastRun": f'"{row.last_run}"',
        "name": quoted(row.name),
        "nextRun": f'"{row.next_run}"',
        "priority": str(row.priority),
        "repeat": quoted(row.repeat),
        "retryAfter": quoted(row.retry_after),
        **(more or {}),
    }
    if row.parent_job_id:
        parts["parentJobID"] = str(row.parent_job_id)
    return "{" + ",".join(f'"{key}":{parts[key]}' for key in sorted(parts)) + "}"


def render_with_state(row: JobRow) -> str:
    """Return a job as QueryJob and ListJobs show it: with its state and what its last end left behind."""
    more = {"state": f'"{row.state}"'}
    if row.options != "{}":
        left = jsontext.members(row.options)
        more |= {key: left[key] for key in ("error", "exitCode") if key in left}
    return render(row, more)
