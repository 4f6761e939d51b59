"""The runs of the reference model: how a job is taken and shown, and how its run ends.

``model_table.py`` has the rules for every command, ``model.py`` the commands on jobs that are not running.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from typing import Any

from bedrockjobs import commands as c
from bedrockjobs.base.config import ERROR_CHARS_MAX, LOST_RUNS_MAX
from bedrockjobs.commands.take import TakeOptions
from tests import model_repeat as times
from tests.model_data import dump, glob, keeping_mark, lost_runs, marked, untaken, without
from tests.model_repeat import is_cron
from tests.model_table import ENDED_WELL, OK, PENDING, STARTED, Outcome, Refusal, Row, wanted
from tests.model_workflows import Workflows

NOT_RUNNING = (405, "Can only retry/finish RUNNING and RUNQUEUED jobs")
NO_JOB_FOUND = Outcome(404, "No job found")


CUT = "\n  [...] "
"""Replaces the middle of an error that is too long."""


def kept_of(error: str) -> str:
    """Return an error as it is stored: if it is too long, only its beginning and its end."""
    if len(error) <= ERROR_CHARS_MAX:
        return error
    left = ERROR_CHARS_MAX - len(CUT)
    return error[: left - left // 2] + CUT + error[len(error) - left // 2 :]


class Runs(Workflows):
    """The jobs, and the commands that begin, show and end their runs."""

    # --- taking and showing ----------------------------------------------------------------------------

    def _do_GetJob(self, command: c.GetJob) -> Outcome:
        job = self._take(wanted(command.name, command.names), command, command.job_priority)
        return NO_JOB_FOUND if job is None else Outcome(200, "OK", job)

    def _do_GetJobs(self, command: c.GetJobs) -> Outcome:
        found = self._several(wanted(command.name, command.names), command)
        return Outcome(200, "OK", {"jobs": found}) if found else NO_JOB_FOUND

    def _several(
        self, matches: Callable[[str], bool], command: c.GetJobs | c.FinishJobs
    ) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while len(found) < command.num_results:
            # A retryAfter of nothing makes a job due at once again; one answer still holds it once.
            taken = {job["jobID"] for job in found}
            job = self._take(matches, command, command.job_priority, taken)
            if job is None:
                break
            found.append(job)
        return found

    def _take(
        self,
        matches: Callable[[str], bool],
        options: TakeOptions,
        priority: int | None,
        taken: Container[int] = (),
    ) -> dict[str, Any] | None:
        """Take the first due job; due jobs before it that may not run become FAILED."""
        while True:
            self.settle()
            due = [
                row
                for row in self.jobs.values()
                if row.state in ("QUEUED", "RUNQUEUED")
                and row.nextRun <= times.with_ms(self.now)
                and row.jobID not in taken
                and matches(row.name)
                and (priority is None or row.priority == priority)
                and (options.get_mocked_jobs or options.mock_request or not row.mocked)
            ]
            if not due:
                return None
            row = min(due, key=lambda row: (-row.priority, row.nextRun, row.jobID))
            if row.cancelled and row.state == "RUNQUEUED":
                self._stopped(row)
                continue
            counted = row.retryAfter and not row.name.startswith("manual")
            lost = counted and lost_runs(row.data) >= LOST_RUNS_MAX
            crashed = any(glob(pattern, row.name) for pattern in self.crash_patterns)
            if lost or crashed:
                if row.workflow:
                    row.error = "Its name is on the crash list" if crashed else "Lost too often"
                self.fail(row)
                continue
            return self._dequeue(row, options.worker, leased=options.heartbeat)

    def _dequeue(self, row: Row, worker: str | None, *, leased: bool) -> dict[str, Any]:
        if is_cron(row.repeat) and not row.mocked and not row.retried:
            row.nextRun = times.last_tick(row.repeat, row.nextRun, self.now, row.formers)
            row.attempt = 0
        answer = self._shown(row) | self.of_workflow(row)
        if row.parentJobID and row.parentJobID in self.jobs:
            answer["parentData"] = json.loads(self.jobs[row.parentJobID].data)
        children = self.children(row)
        if any(child.state in ENDED_WELL for child in children):
            for state, key in (("FINISHED", "finishedChildJobs"), ("CANCELLED", "cancelledChildJobs")):
                answer[key] = [
                    {"jobID": child.jobID, "data": json.loads(child.data)}
                    for child in children
                    if child.state == state
                ]
        failed = self.failed_children(row)
        if failed and not answer.get("parentJobID"):
            answer["failedChildJobs"] = [
                {"jobID": child.jobID, "data": json.loads(child.data), "error": child.error or ""}
                for child in failed
            ]
        row.before = (row.nextRun, row.lastRun, row.attempt, row.data)
        row.state = "RUNQUEUED" if row.retryAfter else "RUNNING"
        if row.retryAfter:
            self._set_return(row)
        row.lastRun = times.whole(self.now)
        row.attempt += 1
        row.runID = None
        row.leased, row.cancelled = leased and worker is not None, None
        if worker is not None:
            row.runID, self.next_run_id = self.next_run_id, self.next_run_id + 1
            answer |= {"attempt": row.attempt, "runID": row.runID}
        return answer

    def _set_return(self, row: Row) -> None:
        """Record that a retryAfter job was handed out, and when it will be handed out again."""
        data = json.loads(row.data)
        if not row.name.startswith("manual"):
            data["retryAfterCount"] = lost_runs(row.data) + 1
        moments = [self.later(row.retryAfter)]
        if not row.mocked and row.repeat and times.split_repeat(row.repeat, self.mode)[0] == "SCHEDULED":
            data.setdefault("originalNextRun", row.nextRun)
            following = self.next(row.repeat, data["originalNextRun"], row.lastRun)
            moments += [following] if following and following > times.exact(self.now) else []
        row.nextRun, row.data = min(moments), dump(data)

    def _do_QueryJob(self, command: c.QueryJob) -> Outcome:
        row = self.jobs.get(command.job_id)
        shown = self._queried(row) | self.of_workflow(row) if row else self.gone_member(command.job_id)
        return Outcome(200, "OK", shown)

    def _do_ListJobs(self, command: c.ListJobs) -> Outcome:
        found = [
            self._queried(row)
            for key, row in sorted(self.jobs.items())
            if key > command.after
            and (command.name is None or glob(command.name, row.name))
            and (command.state is None or row.state == command.state)
        ]
        return Outcome(200, "OK", {"jobs": found[: command.limit]})

    def _shown(self, row: Row) -> dict[str, Any]:
        names = ("jobID", "name", "created", "lastRun", "nextRun", "priority", "repeat", "retryAfter")
        shown = {name: getattr(row, name) for name in names} | {"data": json.loads(row.data)}
        shown |= {"parentJobID": row.parentJobID} if row.parentJobID else {}
        return shown | ({"onChildFailure": row.onChildFailure} if row.onChildFailure else {})

    def _queried(self, row: Row) -> dict[str, Any]:
        shown = self._shown(row) | {"state": row.state, "error": row.error, "exitCode": row.exitCode}
        until = row.kept if row.state == "CANCELLED" else None
        shown["expires"] = row.cancelled if row.state in STARTED else until
        return {key: value for key, value in shown.items() if value is not None}

    # --- ending a run ----------------------------------------------------------------------------------

    def _do_FinishJob(self, command: c.FinishJob) -> Outcome:
        self._finish(command)
        return self._then(command, command.job_priority)

    def _do_FinishJobs(self, command: c.FinishJobs) -> Outcome:
        results = []
        for spec in command.jobs:

            def finish(spec: c.FinishSpec = spec) -> Outcome:
                self._finish(spec)
                return OK

            one = self.whole_or_not_at_all(finish)
            results.append({"jobID": spec.job_id, "code": one.code, "reason": one.reason})
        more = {}
        if command.then_get:
            more["jobs"] = self._several(wanted(command.then_get, None), command)
        return Outcome(200, "OK", {"results": results, **more})

    def _finish(self, spec: c.FinishJob | c.FinishSpec) -> None:
        row = self.job(spec.job_id, spec.run_id)
        if row.state not in STARTED and (not row.mocked or self.waits(row)):
            raise Refusal(*NOT_RUNNING)
        parent = self._check_ending(row, spec.data)
        # The slot is read before new data can hide it.
        scheduled = row.scheduled
        row.data = without(row.data if spec.data is None else spec.data, "retryAfterCount")
        row.error, row.exitCode = None, spec.exit_code
        row.runID = row.before = None
        row.retried = False
        self.drop_ended_children(row)
        if any(child.state in PENDING for child in self.children(row)):
            row.state, row.nextRun = "PAUSED", row.lastRun or row.nextRun
            for child in self.children(row):
                child.state = "QUEUED" if child.state == "PAUSED" else child.state
            return
        if parent:
            row.state = "FINISHED"
            self.resume(parent)
            return
        ends = spec.data is not None and json.loads(spec.data).get("delete") is True
        following = None
        if row.repeat and not row.parentJobID and not row.mocked and not ends:
            following = self.next(row.repeat, scheduled, row.lastRun)
        if following is None:
            if row.workflow:
                self.results[row.jobID] = spec.data or ""
            del self.jobs[row.jobID]
            return
        row.state, row.nextRun = "QUEUED", following
        row.attempt = 0 if is_cron(row.repeat) else row.attempt
        row.data = without(row.data, "originalNextRun")

    def _do_RetryJob(self, command: c.RetryJob) -> Outcome:
        row = self.job(command.job_id, command.run_id)
        revived = (row.mocked and not self.waits(row)) or (row.state == "FAILED" and command.revive)
        if row.state not in STARTED and (command.returned or not revived):
            raise Refusal(*NOT_RUNNING)
        self._check_ending(row, command.data)
        row.error = row.exitCode = None
        if row.cancelled and row.state in STARTED:
            row.name = command.name or row.name
            row.priority = row.priority if command.job_priority is None else command.job_priority
            self._stopped(row)
            return self._then(command, None)
        if command.returned and row.before is not None:
            row.nextRun, row.lastRun, row.attempt, data = row.before
            # An update made since the take is kept; only what the take itself wrote is taken back.
            row.data = untaken(row.data, data) if row.retryAfter else row.data
        else:
            self.drop_ended_children(row)
            if command.snoozed and not revived:
                row.attempt -= 1
            following = self._retried_by_repeat(row, command)
            row.retried = following is None and is_cron(row.repeat)
            row.attempt = 0 if following and is_cron(row.repeat) else row.attempt
            row.nextRun = (
                following or self.time(command.next_run) or self.later(f"+{command.delay or 0} SECONDS")
            )
            row.data = without(row.data, "retryAfterCount")
            # A fresh slot begins only where the repeat gave it.
            row.data = without(row.data, "originalNextRun") if following else row.data
        if command.data is not None:
            row.data = without(command.data, "retryAfterCount")
        row.name = command.name or row.name
        row.priority = row.priority if command.job_priority is None else command.job_priority
        row.state, row.runID, row.before = "QUEUED", None, None
        return self._then(command, None)

    def _retried_by_repeat(self, row: Row, command: c.RetryJob) -> str | None:
        if row.repeat and not row.mocked and not command.ignore_repeat:
            return self.next(row.repeat, row.scheduled, row.lastRun)
        return None

    def _do_FailJob(self, command: c.FailJob) -> Outcome:
        row = self.job(command.job_id, command.run_id)
        if row.state not in STARTED:
            raise Refusal(405, "Can only fail RUNNING or RUNQUEUED jobs")
        if command.data is not None:
            row.data = keeping_mark(command.data, row.mocked)
        row.error = None if command.error is None else kept_of(command.error)
        row.exitCode = command.exit_code
        row.before = None
        if row.cancelled:
            self._stopped(row)
            return self._then(command, command.job_priority)
        self.failed_for_good(row)
        return self._then(command, command.job_priority)

    def _then(self, command: c.FinishJob | c.RetryJob | c.FailJob, priority: int | None) -> Outcome:
        if not command.then_get:
            return OK
        return Outcome(200, "OK", {"job": self._take(wanted(command.then_get, None), command, priority)})

    def _check_ending(self, row: Row, data: str | None) -> Row | None:
        """Return the parent that waits for this job, or None; refuse a job that may not end."""
        parent = self.jobs.get(row.parentJobID)
        if parent and parent.state in (*STARTED, "QUEUED"):
            raise Refusal(405, "Can only retry/finish child job when parent is PAUSED")
        if data is not None and marked(data) != row.mocked:
            raise Refusal(500, "Mock Mismatch")
        return parent if parent and parent.state == "PAUSED" else None

    def _stopped(self, row: Row, *, record: bool = False) -> None:
        """Store a job that was cancelled during its run, after that run ended without success."""
        following = None
        if row.repeat and not row.parentJobID and not row.mocked:
            following = self.next(row.repeat, row.scheduled, row.lastRun)
        self.cancel_unstarted_children(row, kept=not following)
        row.error = row.exitCode = row.runID = row.before = None
        row.cancelled, row.retried = None, False
        if following:
            row.state, row.nextRun = "QUEUED", following
            row.attempt = 0 if is_cron(row.repeat) else row.attempt
            for key in ("retryAfterCount", "originalNextRun") if row.retryAfter else ():
                row.data = without(row.data, key)
        elif row.parentJobID:
            row.state, row.kept = "CANCELLED", self.kept_unless_reported(row)
            self.resume(self.jobs.get(row.parentJobID))
        else:
            self.drop_ended_children(row)
            row.state, row.kept = "CANCELLED", self.kept_unless_reported(row)
            if not record and not row.workflow:
                del self.jobs[row.jobID]
