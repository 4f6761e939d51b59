"""The reference model: what every queue command does, in plain Python on a dict of rows.

Written from the documents alone. It must not import handlers, life cycle, schedule or store of the server,
because it is what they are compared with. It is slow, keeps nothing on disk and does not wait: a GetJob that
finds nothing answers ``404 No job found`` whatever it asked for. Runs are in ``model_runs.py``, workflows in
``model_workflows.py``.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, cast

from bedrockjobs import commands as c
from bedrockjobs.base.config import GRACE_S_DEFAULT, PRIORITIES, PRIORITY_DEFAULT
from tests import model_repeat as times
from tests.model_data import dump, keeping_mark, lost_runs, marked, merged
from tests.model_repeat import is_cron
from tests.model_runs import Runs
from tests.model_table import ENDED_WELL, OK, PENDING, STARTED, Outcome, Refusal, Row

__all__ = ["Model", "Outcome", "Row"]

NO_RETRY_AND_REPEAT = (402, "Cannot use retryAfter with repeat")
NO_CHILD_REPEAT = (402, "Child jobs cannot repeat")


class Model(Runs):
    """The queue. ``call`` executes one command at a given time."""

    def call(self, command: c.Command[Any], now: datetime) -> Outcome:
        """Execute a command; one that is refused changes nothing."""
        self.now = now
        action = getattr(self, f"_do_{type(command).__name__}")
        outcome = self.whole_or_not_at_all(lambda: cast(Outcome, action(command)))
        self.settle()
        return outcome

    # --- creating and changing -------------------------------------------------------------------------

    def _do_CreateJob(self, command: c.CreateJob) -> Outcome:
        job_id, created = self._create_unless_held(command)
        return Outcome(200, "OK", {"jobID": job_id} | ({"created": created} if command.unique_key else {}))

    def _do_CreateJobs(self, command: c.CreateJobs) -> Outcome:
        found = [self._create_unless_held(spec) for spec in command.jobs]
        keyed = any(spec.unique_key for spec in command.jobs)
        job_ids = {"jobIDs": [job_id for job_id, _ in found]}
        return Outcome(200, "OK", job_ids | ({"created": [new for _, new in found]} if keyed else {}))

    def _create_unless_held(self, spec: c.JobSpec) -> tuple[int, bool]:
        """Create a job, or return the one that holds the unique key."""
        if spec.unique_key is None:
            return self._create(spec), True
        parent = self.jobs.get(spec.parent_job_id)
        mocked = parent.mocked if parent else spec.mock_request or marked(spec.data)
        key = spec.name, mocked, spec.unique_key
        if key in self.keys:
            job_id, holds = self.keys[key]
            row = self.jobs.get(job_id)
            row = row if row and row.name == spec.name else None
            waits = row is not None and (row.state == "QUEUED" or (row.state == "PAUSED" and row.parentJobID))
            pending = row is not None and row.state in PENDING
            held = {"started": waits, "finished": pending}.get(holds, holds > times.with_ms(self.now))
            if held and spec.on_conflict == "reject":
                raise Refusal(405, "Unique key is held")
            if held and spec.on_conflict == "replace":
                if row is None or not waits:
                    raise Refusal(405, "Unique key is held")
                row.data = keeping_mark(spec.data, mocked)
                if not row.repeat:
                    row.nextRun = self.time(spec.first_run) or times.with_ms(self.now)
            if held:
                return job_id, False
        job_id, holds = self._create(spec), spec.unique_for or "finished"
        if isinstance(holds, int):
            holds = times.with_ms(self.now + timedelta(seconds=holds))
        self.keys[key] = job_id, holds
        return job_id, True

    def _create(self, spec: c.JobSpec) -> int:
        next_run = self.time(spec.first_run) or times.with_ms(self.now)
        if spec.repeat:
            following = self.checked_next(spec.repeat, next_run, "")
        if spec.retry_after:
            self.later(spec.retry_after)
        if (self.mode == "document" or is_cron(spec.repeat)) and spec.retry_after and spec.repeat:
            raise Refusal(*NO_RETRY_AND_REPEAT)
        if self.mode == "document" and spec.retry_after and spec.unique:
            raise Refusal(405, "Cannot use retryAfter with unique")
        parent = self.jobs.get(spec.parent_job_id) if spec.parent_job_id else None
        mocked = parent.mocked if parent else spec.mock_request or marked(spec.data)
        data = spec.data if mocked == marked(spec.data) else keeping_mark(spec.data, mocked)
        repeat = "" if mocked else spec.repeat
        wanted = (spec.job_priority, spec.priority, PRIORITY_DEFAULT)
        given = str(next(value for value in wanted if value is not None))
        if given not in map(str, PRIORITIES):
            raise Refusal(402, "Invalid priority value")
        priority = int(given)
        if spec.unique:
            twins = [row for row in self.jobs.values() if row.name == spec.name and row.mocked == mocked]
            if twins:
                twin = min(twins, key=lambda row: row.jobID)
                self._overwrite(twin, spec, data, repeat, priority)
                return twin.jobID
        if spec.parent_job_id:
            self._check_parent(parent)
            if spec.repeat:
                raise Refusal(*NO_CHILD_REPEAT)
        row = Row(
            jobID=self.next_job_id,
            created=times.whole(self.now),
            state="PAUSED" if parent and parent.state in STARTED else "QUEUED",
            name=spec.name,
            nextRun=following if spec.first_run is None and is_cron(repeat) else next_run,
            lastRun="",
            repeat=repeat,
            data=data,
            priority=priority,
            parentJobID=spec.parent_job_id,
            retryAfter=spec.retry_after,
            mocked=mocked,
            onChildFailure=spec.on_child_failure,
        )
        self.next_job_id += 1
        self.jobs[row.jobID] = row
        return row.jobID

    def _overwrite(self, row: Row, spec: c.JobSpec, data: str, repeat: str, priority: int) -> None:
        if row.parentJobID != spec.parent_job_id:
            raise Refusal(404, "Mismatched parentJobID")
        same = self.mode == "current" and data == row.data and not is_cron(spec.repeat)
        if not spec.overwrite or same:
            return
        self._check_new_repeat(row, spec.repeat)
        if is_cron(repeat) and repeat != row.repeat:
            self._plan_by(row, repeat)
        row.repeat, row.priority = repeat, priority
        row.data = dump(merged(json.loads(row.data), json.loads(data)))

    def _check_parent(self, parent: Row | None) -> None:
        if parent is None:
            raise Refusal(404, "parentJobID does not exist")
        if parent.parentJobID:
            raise Refusal(405, "Cannot create grandchildren")
        if parent.state not in (*STARTED, "PAUSED") or self.waits(parent):
            raise Refusal(405, "Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED")

    def _check_new_repeat(self, row: Row, repeat: str) -> None:
        """Refuse a new repeat of an existing job if CreateJob would refuse it."""
        if repeat and row.workflow:
            raise Refusal(402, "Malformed repeat")
        if repeat and row.retryAfter and (self.mode == "document" or is_cron(repeat)):
            raise Refusal(*NO_RETRY_AND_REPEAT)
        if repeat and row.parentJobID:
            raise Refusal(*NO_CHILD_REPEAT)

    def _plan_by(self, row: Row, repeat: str) -> None:
        """Plan a job by another schedule, unless it is due, running or being retried."""
        due = is_cron(row.repeat) and times.moment_of(row.nextRun) <= self.now
        if row.state == "FAILED" or (row.state == "QUEUED" and not row.retried and not due):
            row.nextRun = self.checked_next(repeat, "", "")
            row.formers = ()
        elif row.repeat != repeat:
            former = row.repeat if is_cron(row.repeat) else "CRON @never"
            row.formers = (*row.formers, (former, self.now.replace(microsecond=0)))

    def _do_UpdateJob(self, command: c.UpdateJob) -> Outcome:
        repeat = command.repeat or None
        given = (command.data, repeat, command.job_priority, command.next_run)
        if all(value is None for value in given) and not command.should_clear_repeat:
            raise Refusal(402, "Missing data")
        if repeat:
            self.checked_next(repeat, times.whole(self.now), "")
        row = self.job(command.job_id, command.run_id)
        before = row.nextRun
        if command.data is not None:
            row.data = keeping_mark(command.data, row.mocked)
        if command.job_priority is not None:
            row.priority = command.job_priority
        if command.should_clear_repeat:
            row.repeat = ""
        elif repeat:
            self._check_new_repeat(row, repeat)
            repeat = "" if row.mocked else repeat
            differs = repeat.upper() != row.repeat.upper()
            if differs and repeat and row.state != "RUNQUEUED":
                was_due = is_cron(row.repeat) and (
                    row.state != "QUEUED" or row.retried or times.moment_of(row.nextRun) <= self.now
                )
                if is_cron(repeat) and command.next_run is not None and row.state == "QUEUED":
                    row.formers = row.formers if row.retried else ()
                elif is_cron(repeat):
                    self._plan_by(row, repeat)
                elif command.next_run is None and not was_due:
                    row.nextRun = self.checked_next(repeat, row.scheduled, row.lastRun)
            row.repeat = repeat
        if command.next_run is not None:
            row.nextRun = self.time(command.next_run)
        if row.before is not None and row.nextRun != before:
            row.before = (row.nextRun, *row.before[1:])  # `returned` keeps what was updated
        return OK

    # --- cancelling, deleting, giving back, crashing ---------------------------------------------------

    def _do_CancelJob(self, command: c.CancelJob) -> Outcome:
        row = self.job(command.job_id)
        if row.state in STARTED and row.leased:
            self._stop(row)
            return Outcome(200, "OK", {"runID": row.runID})
        if command.any and not (row.state == "FAILED" and row.parentJobID):
            return Outcome(200, "OK", {"cancelled": self._cancel_any(row)})
        if self.children(row):
            raise Refusal(404, "Invalid jobID - Cannot cancel a job with children")
        if not row.parentJobID:
            raise Refusal(404, "Invalid jobID - Cannot cancel a job without a parent")
        if row.state in ("QUEUED", "RUNQUEUED", "FAILED"):
            row.state, row.runID, row.kept = "CANCELLED", None, None
            self.resume(self.jobs.get(row.parentJobID))
        return OK

    def _stop(self, row: Row) -> None:
        row.cancelled = row.cancelled or times.with_ms(self.now + timedelta(seconds=GRACE_S_DEFAULT))
        row.nextRun = times.NEVER if row.state == "RUNQUEUED" else row.nextRun

    def _cancel_any(self, row: Row) -> bool:
        """Cancel a job that has no run to stop; return whether there was anything to cancel."""
        if row.state not in PENDING:
            return False
        repeats = row.repeat and not row.mocked
        if repeats and row.state == "QUEUED":
            if not row.retried and row.nextRun > times.with_ms(self.now):
                return False
            if is_cron(row.repeat) and not row.retried:
                row.nextRun, row.attempt = self.checked_next(row.repeat, "", ""), 0
                return True
        else:
            if not repeats:
                self._end_cancelled(row)
            for child in self.children(row):
                if child.state in STARTED and child.leased:
                    self._stop(child)
                elif child.state in PENDING:
                    self._end_cancelled(child)
                elif child.state in ENDED_WELL:
                    del self.jobs[child.jobID]
        if repeats:
            self.drop_ended_children(row)
            self._stopped(row, record=True)
        else:
            self.resume(self.jobs.get(row.parentJobID))
        return True

    def _end_cancelled(self, row: Row) -> None:
        row.state, row.kept = "CANCELLED", self.kept_unless_reported(row)
        row.error = row.exitCode = row.runID = row.before = row.cancelled = None
        row.retried = False

    def _do_DeleteJob(self, command: c.DeleteJob) -> Outcome:
        row = self.job(command.job_id)
        if row.state == "RUNNING":
            raise Refusal(405, "Can't delete a RUNNING job")
        if row.state == "PAUSED":
            raise Refusal(405, "Can't delete a parent jobs with children running")
        self.cancel_unstarted_children(row)
        del self.jobs[row.jobID]
        self.resume(self.jobs.get(row.parentJobID))
        return OK

    def _do_RequeueJobs(self, command: c.RequeueJobs) -> Outcome:
        for row in [self.jobs[key] for key in dict.fromkeys(command.job_ids) if key in self.jobs]:
            if self.waits(row):
                continue
            row.state, row.nextRun, row.runID = "QUEUED", row.created, None
            row.name = command.name or row.name
            data = json.loads(row.data)
            if command.decrement_failures and "retryAfterCount" in data:
                row.data = dump(data | {"retryAfterCount": max(lost_runs(row.data) - 1, 0)})
        return OK

    def _do_CrashBedrockJob(self, command: c.CrashBedrockJob) -> Outcome:
        self.crash_patterns += [name for name in command.names if name not in self.crash_patterns]
        return OK

    def _do_ClearCrashedBedrockJobs(self, command: c.ClearCrashedBedrockJobs) -> Outcome:
        gone = self.crash_patterns if command.names is None else command.names
        self.crash_patterns = [name for name in self.crash_patterns if name not in gone]
        return OK
