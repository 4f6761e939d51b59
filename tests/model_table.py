"""The rows of the reference model, and the rules that hold for every command: families, runs, timestamps.

Knows nothing of commands; ``model_runs.py`` and ``model.py`` add one method for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from tests import model_repeat as times
from tests.model_data import matcher
from tests.model_repeat import is_cron

STARTED = ("RUNNING", "RUNQUEUED")
UNSTARTED = ("QUEUED", "PAUSED")
PENDING = STARTED + UNSTARTED
ENDED_WELL = ("FINISHED", "CANCELLED")


@dataclass(frozen=True)
class Outcome:
    """An answer: the status line and the parsed JSON body, None for an empty one."""

    code: int
    reason: str
    body: Any = None


OK = Outcome(200, "OK")


class Refusal(Exception):
    """Raised when a command is refused."""

    def __init__(self, code: int, reason: str) -> None:
        """Refuse with the words of a status line."""
        super().__init__(f"{code} {reason}")
        self.code, self.reason = code, reason


def wanted(name: str | None, names: list[str] | None) -> Callable[[str], bool]:
    """Return a matcher for the names that a command asks for; refuse a command without a name."""
    matches = matcher(name, names)
    if matches is None:
        raise Refusal(402, "Missing name")
    return matches


@dataclass
class Row:
    """One job, with the columns' own names."""

    jobID: int
    created: str
    state: str
    name: str
    nextRun: str
    lastRun: str
    repeat: str
    data: str
    priority: int
    parentJobID: int
    retryAfter: str
    mocked: bool
    onChildFailure: str | None = None
    attempt: int = 0
    runID: int | None = None
    error: str | None = None
    exitCode: int | None = None
    before: tuple[str, str, int, str] | None = None
    """nextRun, lastRun, attempt and data as the last take found them."""
    leased: bool = False
    """Whether its present run sends heartbeats."""
    cancelled: str | None = None
    """When its current run, which was stopped permanently, is killed."""
    kept: str | None = None
    """When the record of a cancelled job is deleted, if no parent reports it."""
    retried: bool = False
    """Whether the next run of a schedule is a retry, which has no tick of its own."""
    workflow: int = 0
    ref: str = ""
    """Its place in a workflow, if it is in one."""
    formers: tuple[tuple[str, datetime], ...] = ()
    """Repeats that it had before, each with the moment up to which its ticks count."""

    @property
    def scheduled(self) -> str:
        """Return the planned time of this run: retryAfter moves nextRun and keeps that time in data."""
        slot = json.loads(self.data).get("originalNextRun")
        try:
            return slot if isinstance(slot, str) and times.moment_of(slot) else self.nextRun
        except ValueError:
            return self.nextRun


class Table:
    """The jobs by jobID, and what commands have in common."""

    def __init__(self, compatibility: Literal["document", "current"] = "document") -> None:
        """Begin with an empty table."""
        self.mode = compatibility
        self.jobs: dict[int, Row] = {}
        self.next_job_id = self.next_run_id = 1
        self.crash_patterns: list[str] = []
        self.keys: dict[tuple[str, bool, str], tuple[int, str]] = {}
        """The job of each unique key, by the job's name and whether it is mocked, and how long it is held."""
        self.now = datetime.min.replace(tzinfo=UTC)

    def whole_or_not_at_all(self, action: Callable[[], Outcome]) -> Outcome:
        """Execute ``do``; if it is refused, restore the table."""
        kept = self.kept_aside()
        try:
            return action()
        except Refusal as refusal:
            self.restore(kept)
            return Outcome(refusal.code, refusal.reason)

    def kept_aside(self) -> Any:
        """Return what a refused command restores."""
        rows = {key: replace(row) for key, row in self.jobs.items()}
        return rows, dict(self.keys), self.next_job_id, self.next_run_id

    def restore(self, kept: Any) -> None:
        """Restore it."""
        self.jobs, self.keys, self.next_job_id, self.next_run_id = kept

    def waits(self, row: Row) -> bool:
        """Return whether a job waits for others of its workflow."""
        raise NotImplementedError

    def job(self, job_id: int, run_id: int | None = None) -> Row:
        """Return a row; refuse an unknown job, and a run that is not the job's current one."""
        row = self.jobs.get(job_id)
        if row is None:
            raise Refusal(404, "No job with this jobID")
        if run_id is not None and run_id != row.runID:
            raise Refusal(405, "Run is over")
        return row

    # --- families --------------------------------------------------------------------------------------

    def children(self, row: Row) -> list[Row]:
        """Return the children of a job, in any state, by jobID."""
        return [child for _, child in sorted(self.jobs.items()) if child.parentJobID == row.jobID]

    def drop_ended_children(self, row: Row) -> None:
        """Delete the ended children that were reported to the job."""
        for child in self.children(row):
            if child.state in ENDED_WELL:
                del self.jobs[child.jobID]

    def cancel_unstarted_children(self, row: Row, *, kept: bool = False) -> None:
        """Cancel the children that would wait forever because their parent failed."""
        for child in self.children(row):
            if child.state in UNSTARTED:
                child.state = "CANCELLED"
                child.kept = self.an_hour_from_now() if kept else None

    def an_hour_from_now(self) -> str:
        """Return the time until which a cancelled job is kept."""
        return times.exact(self.now + timedelta(hours=1))

    def kept_unless_reported(self, row: Row) -> str | None:
        """Return the time until which a cancelled job is kept, or None if its parent will report it."""
        parent = self.jobs.get(row.parentJobID)
        reported = parent is not None and parent.state in PENDING
        return None if reported or row.workflow else self.an_hour_from_now()

    def resume(self, parent: Row | None) -> None:
        """Queue a PAUSED parent if it no longer waits for a child."""
        if parent and parent.state == "PAUSED":
            if self.waits(parent) or any(child.state in PENDING for child in self.children(parent)):
                return
            failed = self.failed_children(parent)
            if failed and parent.onChildFailure == "fail":
                parent.error = (
                    f"Child job {failed[0].jobID} ({failed[0].name}) failed:"
                    f" {failed[0].error or 'no error was given'}"
                )
                parent.error += f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
                self.failed_for_good(parent)
            else:
                parent.state = "QUEUED"

    def failed_children(self, row: Row) -> list[Row]:
        """Return the failed children that the job's current run created."""
        failed = [each for each in self.children(row) if each.state == "FAILED"]
        return [each for each in failed if row.attempt and each.created >= row.lastRun]

    def failed_for_good(self, row: Row) -> None:
        """Fail a run that has no more attempts; a schedule continues with its next tick."""
        tick = self.next(row.repeat, "", "") if is_cron(row.repeat) and not row.mocked else None
        row.retried = False
        if tick is None:
            self.fail(row)
            return
        self.cancel_unstarted_children(row)
        self.drop_ended_children(row)
        row.state, row.runID, row.nextRun, row.attempt = "QUEUED", None, tick, 0

    def fail(self, row: Row) -> None:
        """Fail a job permanently."""
        row.state, row.runID = "FAILED", None
        self.cancel_unstarted_children(row)
        self.resume(self.jobs.get(row.parentJobID))

    # --- moments ---------------------------------------------------------------------------------------

    def next(self, repeat: str, scheduled: str, started: str) -> str | None:
        """Return the time of the next run by a repeat, or None if that is no date."""
        return times.next_run(repeat, self.mode, scheduled=scheduled, started=started, now=self.now)

    def checked_next(self, repeat: str, scheduled: str, started: str) -> str:
        """Return the first run by a new repeat; refuse a repeat that is malformed or gives no date."""
        try:
            following = self.next(repeat, scheduled, started)
        except times.Malformed:
            following = None
        if following is None:
            raise Refusal(402, "Malformed repeat")
        return following

    def time(self, given: object) -> str:
        """Return a date as it is, or an offset such as ``+300s`` as a date; empty for None."""
        text = str(given or "")
        if text[:1] in ("+", "-"):
            return times.exact(self.now + timedelta(seconds=float(text.removesuffix("s"))))
        return text

    def later(self, text: str) -> str:
        """Return the timestamp that lies a retryAfter or a delay after now."""
        try:
            moment = times.moved(self.now, times.modifiers(text, repeat=False))
        except times.Malformed:
            moment = None
        if moment is None:
            raise Refusal(402, "Malformed retryAfter")
        return times.exact(moment)
