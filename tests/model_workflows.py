"""The workflows of the reference model: what follows from the end of a job is derived from the whole graph.

The server counts at each end; here, after each step, the members of a workflow are compared with their jobs,
and the jobs that each one waits for are counted again. ``model.py`` has the commands on jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from bedrockjobs import commands as c
from tests import model_repeat as times
from tests.model_data import without
from tests.model_table import Outcome, Refusal, Row, Table

ENDED_BADLY = ("FAILED", "CANCELLED")


@dataclass
class Member:
    """A job as its workflow knows it, also when the job is gone."""

    jobID: int
    ref: str
    name: str
    after: tuple[int, ...]
    onFailure: str
    state: str = ""
    waiting: bool = False
    waited: int = 0
    """For how many it waited when it was cancelled because of one of them, or with the workflow."""
    seen: str = ""
    """The lastRun of its job."""
    started: str = ""
    ended: str = ""
    reason: str = ""
    result: str = ""

    @property
    def passes(self) -> bool:
        """Return whether it has ended and those after it may start."""
        return self.state == "FINISHED" or bool(self.state and self.onFailure != "cancel" and not self.waited)

    @property
    def failed(self) -> bool:
        """Return whether the workflow fails by it."""
        return self.state in ENDED_BADLY and (self.onFailure != "ignore" or bool(self.waited))


@dataclass
class Workflow:
    """A workflow; its jobs are in the order of their jobIDs."""

    workflowID: int
    name: str
    keep: int
    state: str = "RUNNING"
    cancelled: bool = False
    members: dict[int, Member] = field(default_factory=dict)

    @property
    def open(self) -> int:
        """Return how many jobs have not ended."""
        return sum(not each.state for each in self.members.values())

    def waits(self, member: Member) -> int:
        """Return how many jobs a job waits for."""
        return sum(not self.members[each].state for each in member.after) if member.waiting else member.waited

    def behind(self, member: Member) -> list[Member]:
        """Return the jobs that wait for one, directly or for another one that does."""
        found = {member.jobID}
        for each in self.members.values():
            if each.waiting and not found.isdisjoint(each.after):
                found.add(each.jobID)
        return [self.members[each] for each in found - {member.jobID}]

    def copied(self) -> Workflow:
        """Return a copy that keeps what it holds now."""
        return replace(self, members={key: replace(each) for key, each in self.members.items()})


class Workflows(Table):
    """The workflows, and what their commands have in common."""

    def __init__(self, *arguments: Any) -> None:
        """Begin without any."""
        super().__init__(*arguments)
        self.graphs: dict[int, Workflow] = {}
        self.results: dict[int, str] = {}
        """What jobs reported that have finished for good, by jobID."""

    def kept_aside(self) -> Any:
        """Return what a refused command restores."""
        return (
            super().kept_aside(),
            {key: each.copied() for key, each in self.graphs.items()},
            {**self.results},
        )

    def restore(self, kept: Any) -> None:
        """Restore it."""
        table, self.graphs, self.results = kept
        super().restore(table)

    def workflows(self) -> list[dict[str, Any]]:
        """Return all workflows with their jobs, as ``Queue.workflows`` does."""
        return [
            {
                "workflowID": graph.workflowID,
                "name": graph.name,
                "state": graph.state,
                "open": graph.open,
                "failed": sum(each.failed for each in graph.members.values()),
                "cancelled": int(graph.cancelled),
                "jobs": [
                    {
                        "jobID": each.jobID,
                        "ref": each.ref,
                        "name": each.name,
                        "state": each.state,
                        "waits": graph.waits(each),
                        "reason": each.reason,
                        "result": each.result,
                    }
                    for each in graph.members.values()
                ],
            }
            for graph in self.graphs.values()
        ]

    # --- jobs of workflows -------------------------------------------------------------------------------

    def waits(self, row: Row) -> bool:
        """Return whether a job waits for others of its workflow."""
        return bool(row.workflow) and self.graphs[row.workflow].members[row.jobID].waiting

    def of_workflow(self, row: Row) -> dict[str, Any]:
        """Return what a reply shows of a job's workflow."""
        if not row.workflow:
            return {}
        graph = self.graphs[row.workflow]
        before = [graph.members[each] for each in sorted(graph.members[row.jobID].after)]
        results = {each.ref: json.loads(each.result) if each.result else None for each in before}
        return {"workflowID": graph.workflowID, "ref": row.ref, "before": results}

    def gone_member(self, job_id: int) -> dict[str, Any]:
        """Return a job that only its workflow still knows; refuse any other."""
        for graph in self.graphs.values():
            if job_id in graph.members:
                its = graph.members[job_id]
                break
        else:
            raise Refusal(404, "No job with this jobID")
        shown: dict[str, Any] = {
            "jobID": job_id,
            "name": its.name,
            "created": (its.started or its.ended)[:19],
            "lastRun": its.started,
            "nextRun": its.started,
            "priority": 500,
            "repeat": "",
            "retryAfter": "",
            "data": {},
            "state": its.state,
            "workflowID": graph.workflowID,
            "ref": its.ref,
            "finished": its.ended,
        }
        shown |= {"result": json.loads(its.result)} if its.result else {}
        return shown | ({"error": its.reason} if its.reason else {})

    # --- what follows from what has happened -------------------------------------------------------------

    def settle(self) -> None:
        """Let each workflow follow its jobs."""
        for graph in self.graphs.values():
            for its in graph.members.values():
                row = self.jobs.get(its.jobID)
                if row:
                    its.name, its.seen = row.name, row.lastRun
                state = "CANCELLED" if row is None else row.state if row.state in ENDED_BADLY else ""
                if its.jobID in self.results:
                    state, its.result = "FINISHED", self.results.pop(its.jobID)
                elif row is None and its.state == "FINISHED":
                    continue
                if its.state and not state:
                    its.state, its.started, its.ended, its.reason, its.result = "", "", "", "", ""
                    its.waited = 0
                    self._reopen(graph)
                elif state != its.state:
                    self._end(graph, its, state, row)
            self._start(graph)

    def _end(self, graph: Workflow, its: Member, state: str, row: Row | None) -> None:
        again = bool(its.state)  # it failed before, and is deleted now
        behind = graph.behind(its)
        its.reason = ""
        if state != "FINISHED":
            by_itself = "no error was given" if state == "FAILED" else "The job was cancelled"
            its.reason = "The job was deleted" if row is None else row.error or by_itself
        why = f"failed: {its.reason.strip()}" if state == "FAILED" else "was cancelled"
        its.waiting, its.waited = False, 0
        its.state = "ended"
        if not again and (state != "FINISHED" and its.onFailure == "cancel"):
            its.state = ""
            self._cancel(graph, behind, f"Job {its.jobID} ({its.ref}) before it {why}")
        its.state, its.ended = state, times.with_ms(self.now)
        its.started = its.seen
        if not again:
            self._end_if_over(graph)

    def _reopen(self, graph: Workflow) -> None:
        if graph.state == "RUNNING":
            return
        if graph.state != "FAILED":
            for each in graph.members.values():
                row = self.jobs.get(each.jobID)
                if row and row.state == each.state == "CANCELLED":
                    row.kept = None
        graph.state, graph.cancelled = "RUNNING", False

    def _cancel(self, graph: Workflow, members: Iterable[Member], reason: str) -> None:
        """Cancel waiting jobs."""
        waited = [(each, graph.waits(each)) for each in members]
        for each, count in waited:
            each.state, each.waiting, each.waited = "CANCELLED", False, count
            each.reason, each.ended = reason, times.with_ms(self.now)
            row = self.jobs[each.jobID]
            row.state, row.error, row.kept = "CANCELLED", reason, None

    def _start(self, graph: Workflow) -> None:
        for each in graph.members.values():
            if each.waiting and not graph.waits(each):
                row = self.jobs[each.jobID]
                each.waiting, row.state = False, "QUEUED"
                row.nextRun = max(row.nextRun, times.with_ms(self.now))

    def _end_if_over(self, graph: Workflow) -> None:
        if graph.open:
            return
        failed = any(each.failed for each in graph.members.values())
        graph.state = "CANCELLED" if graph.cancelled else "FAILED" if failed else "FINISHED"
        if graph.state != "FAILED":
            for each in graph.members.values():
                row = self.jobs.get(each.jobID)
                if row and row.state == each.state == "CANCELLED":
                    row.kept = times.exact(self.now + timedelta(seconds=graph.keep))

    # --- commands ----------------------------------------------------------------------------------------

    def _create(self, spec: c.JobSpec) -> int:
        raise NotImplementedError

    def _cancel_any(self, row: Row) -> bool:
        raise NotImplementedError

    def _stop(self, row: Row) -> None:
        raise NotImplementedError

    def _do_CreateWorkflow(self, command: c.CreateWorkflow) -> Outcome:
        self._check_alone(command.jobs)
        graph = Workflow(self.next_job_id, command.name, 24 * 3_600 if command.keep is None else command.keep)
        self.next_job_id += 1
        self.graphs[graph.workflowID] = graph
        return Outcome(200, "OK", {"workflowID": graph.workflowID, "jobIDs": self._add(graph, command.jobs)})

    def _do_AddToWorkflow(self, command: c.AddToWorkflow) -> Outcome:
        self._check_alone(command.jobs)
        if command.workflow_id is None:
            row = self.job(command.job_id or 0, command.run_id)
            if not row.workflow:
                raise Refusal(404, "No job with this jobID")
            graph = self.graphs[row.workflow]
        else:
            graph = self._graph(command.workflow_id)
        if graph.state != "RUNNING" or graph.cancelled:
            raise Refusal(405, "Workflow has ended")
        known = {each.ref: each.jobID for each in graph.members.values()}
        if command.existing != "keep" and any(job.ref in known for job in command.jobs):
            raise Refusal(402, "Malformed ref")
        added = self._add(graph, [job for job in command.jobs if job.ref not in known])
        return Outcome(200, "OK", {"jobIDs": {job.ref: {**known, **added}[job.ref] for job in command.jobs}})

    def _check_alone(self, jobs: list[c.WorkflowJob]) -> None:
        for job in jobs:
            if job.retry_after:
                self.later(job.retry_after)

    def _graph(self, workflow_id: int) -> Workflow:
        if workflow_id not in self.graphs:
            raise Refusal(404, "No workflow with this workflowID")
        return self.graphs[workflow_id]

    def _add(self, graph: Workflow, jobs: list[c.WorkflowJob]) -> dict[str, int]:
        """Create jobs, each of which comes after others of them or known ones."""
        ids = {each.ref: each.jobID for each in graph.members.values()}
        reached, left = set(ids), jobs
        while left:  # in a circle none can be reached first
            later = [job for job in left if not reached.issuperset(job.after)]
            if len(later) == len(left):
                raise Refusal(402, "Malformed after")
            reached |= {job.ref for job in left}.difference(job.ref for job in later)
            left = later
        added = {job.ref: self._create(job) for job in jobs}
        ids |= added
        for job in jobs:
            job_id = added[job.ref]
            row = self.jobs[job_id]
            row.workflow, row.ref = graph.workflowID, job.ref
            after = tuple(dict.fromkeys(ids[ref] for ref in job.after))
            graph.members[job_id] = Member(job_id, job.ref, job.name, after, job.on_failure)
        for its in [graph.members[job_id] for job_id in added.values()]:
            its.waiting = any(not graph.members[each].passes for each in its.after)
            row = self.jobs[its.jobID]
            row.state = "PAUSED" if its.waiting else row.state
        for its in [graph.members[job_id] for job_id in added.values()]:
            bad = [before for before in map(graph.members.get, its.after) if before and self._bars(before)]
            if its.waiting and bad and not bad[0].waited:
                how = f"failed: {bad[0].reason.strip()}" if bad[0].state == "FAILED" else "was cancelled"
                self._doom(graph, its, f"Job {bad[0].jobID} ({bad[0].ref}) before it {how}")
            elif its.waiting and bad:
                self._doom(graph, its, bad[0].reason)
        return added

    @staticmethod
    def _bars(member: Member) -> bool:
        return bool(member.state) and not member.passes

    def _doom(self, graph: Workflow, its: Member, reason: str) -> None:
        """Cancel a new job that comes after one that ended badly, and all behind it."""
        behind = graph.behind(its)
        count = max(graph.waits(its), 1)
        self._cancel(graph, [its, *behind], reason)
        its.waited = count

    def _do_CancelWorkflow(self, command: c.CancelWorkflow) -> Outcome:
        graph = self._graph(command.workflow_id)
        stopping = 0
        if graph.state == "FAILED":
            graph.cancelled = True
            self._end_if_over(graph)
        elif graph.state == "RUNNING":
            graph.cancelled = True
            self._cancel(
                graph, [each for each in graph.members.values() if each.waiting], "The workflow was cancelled"
            )
            self._end_if_over(graph)
            for each in [each for each in graph.members.values() if not each.state]:
                row = self.jobs[each.jobID]
                if row.state in ("RUNNING", "RUNQUEUED") and row.leased:
                    self._stop(row)
                    stopping += 1
                else:
                    self._cancel_any(row)
            self.settle()
        return Outcome(200, "OK", {"state": graph.state, "stopping": stopping})

    def _do_RetryWorkflow(self, command: c.RetryWorkflow) -> Outcome:
        graph = self._graph(command.workflow_id)
        again = [
            each for each in graph.members.values() if each.state in ENDED_BADLY and each.jobID in self.jobs
        ]
        if not again:
            raise Refusal(405, "Nothing to retry")
        for its in again:
            its.state, its.started, its.ended, its.reason, its.result, its.waited = "", "", "", "", "", 0
        for its in again:
            its.waiting = any(not graph.members[each].state for each in its.after)
            row = self.jobs[its.jobID]
            self.drop_ended_children(row)
            row.state = "PAUSED" if its.waiting else "QUEUED"
            row.nextRun, row.error, row.exitCode, row.kept = times.with_ms(self.now), None, None, None
            row.data = without(row.data, "retryAfterCount")
        graph.state, graph.cancelled = "RUNNING", False
        return Outcome(200, "OK", {"retried": len(again)})
