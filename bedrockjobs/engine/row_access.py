"""Row-level security: execute commands for a principal, hide rows outside its scope, and audit changes.

Hidden jobs and runs do not exist for the handler, so its reply is exactly the one for an unknown ID.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from bedrockjobs.base import jsontext
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import BACKOFF_S_DEFAULT, BACKOFF_S_MAX_DEFAULT
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.principal import Principal, Scope
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import (
    CancelJob,
    Command,
    CreateJob,
    CreateJobs,
    FailJob,
    FinishJob,
    FinishJobs,
    RequeueJobs,
    RetryJob,
    SyncSchedules,
    UpdateJob,
)
from bedrockjobs.engine.authorization import check_open
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.runs import value_or
from bedrockjobs.engine.handlers.ticks import (
    CannotEvaluate,
    is_schedule,
    next_after,
    next_by_repeat,
    original_next_run,
)
from bedrockjobs.engine.render import without_data
from bedrockjobs.engine.unit import Outcome, perform
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import AuditRow, Job, RunRow
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import Unit


def perform_for(
    caller: Principal, context: Context, command: Command[Any], *, careful: bool = False
) -> Outcome:
    """Execute a command as ``perform`` does, limited to what the caller may see, and audit it."""
    unit = context.unit
    context.caller = caller
    try:
        if caller.run is not None:
            check_open(caller.run, unit.records)
        if caller.scope is None:
            outcome = audited(context, command, careful=careful)
        else:
            outcome = _narrowed(context, command, caller.scope, careful=careful)
    except Forbidden as error:
        return error
    finally:
        context.caller, context.unit = None, unit
    if caller.grant.no_data and isinstance(outcome, Answer) and type(command).reads:
        outcome.body = without_data(outcome.body)
    return outcome


def _narrowed(context: Context, command: Command[Any], scope: Scope, *, careful: bool) -> Outcome:
    hidden = _hidden(context, command, scope)
    if hidden is not None:
        context.unit = cast(Unit, hidden)
    return audited(context, command, careful=careful)


def _hidden(context: Context, command: Command[Any], scope: Scope) -> FilteredUnit | None:
    """Return a unit without the jobs, runs and names outside the scope; None if none has to be hidden."""
    scoping = type(command).scoping
    assert scoping is not None, "admission refuses it"
    jobs = {
        job_id
        for path in scoping.jobs
        for job_id in command.values_at(path)
        if job_id and not _sees_job(context, job_id, scope)
    }
    runs = {
        run_id
        for path in scoping.runs
        for run_id in command.values_at(path)
        if run_id and not _sees_run(context, run_id, scope)
    }
    names = {
        name
        for path in scoping.lookups
        for name in command.values_at(path)
        if name is not None and not scope.covers(name)
    }
    return FilteredUnit(context.unit, jobs, runs, names) if jobs or runs or names else None


def _sees_job(context: Context, job_id: int, scope: Scope) -> bool:
    job = context.unit.job(job_id)
    return job is None or scope.covers(job.name)


def _sees_run(context: Context, run_id: int, scope: Scope) -> bool:
    run = context.unit.records.read_run(run_id)
    return run is None or scope.covers(run.name)


class FilteredUnit:
    """An open unit of work in which some jobs, runs and names do not exist; all else is delegated."""

    def __init__(self, unit: Unit, jobs: set[int], runs: set[int], names: set[str]) -> None:
        """Hide rows of ``unit``."""
        self._unit, self._jobs, self._names = unit, jobs, names
        self.records = HidingRecords(unit.records, runs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def job(self, job_id: int) -> Job | None:
        """Return a job unless it is hidden."""
        return None if job_id in self._jobs else self._unit.job(job_id)

    def shown(self, job_id: int) -> Job | None:
        """Return a job unless it is hidden."""
        return None if job_id in self._jobs else self._unit.shown(job_id)

    def delete_plain(self, job_id: int) -> str | None:
        """Remove a job unless it is hidden; return its name, or None if it stays."""
        return None if job_id in self._jobs else self._unit.delete_plain(job_id)

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the first jobs of a name, or none if the name is hidden."""
        return [] if name in self._names else self._unit.named(name, limit)


class HidingRecords:
    """The repository with some runs hidden; all else is delegated."""

    def __init__(self, records: Any, runs: set[int]) -> None:
        """Hide rows of ``records``."""
        self._records, self._runs = records, runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def read_run(self, run_id: int) -> RunRow | None:
        """Return a run unless it is hidden."""
        found: RunRow | None = None if run_id in self._runs else self._records.read_run(run_id)
        return found


# The audit: who changed what, from which address, with a schedule's values before and after.
#
# Each row is written in the same commit as the change. Routine commands of producers and workers are not
# audited.


DETAIL_CHARS_MAX = 4_000
"""Maximum length of a command's stored parameters; if they are longer, only their names are stored."""

NOT_KEPT = frozenset(
    {
        "data",
        "progress",
        "schedules",
        "jobs",
        "token",
        "connection",
        "timeout",
        "by",
        "query",
        "idempotencyKey",
        "uniqueKey",
        "text",
    }
)
"""Parameters whose values are not stored: data of jobs, secrets, and values that say nothing about the
change."""


def audited(context: Context, command: Command[Any], *, careful: bool) -> Outcome:
    """Execute a command, and write an audit row if it was an operator's change."""
    caller = context.caller
    if caller is None:
        return perform(context, command, careful=careful)
    if not is_kept(caller, command):
        if watched := watched_jobs(caller, command):
            return _with_repeating(context, caller, command, watched, careful=careful)
        return perform(context, command, careful=careful)
    before = _about(context, command)
    outcome = perform(context, command, careful=careful)
    if not isinstance(outcome, Answer) or getattr(command, "dry_run", False):
        return outcome
    job_id = before.job_id if before is not None else _job_id(command, outcome)
    after = context.unit.job(job_id) if job_id else None
    context.unit.records.add_audit(
        AuditRow(
            context.now,
            caller.name or getattr(command, "by", ""),
            caller.address,
            type(command).__name__,
            _name(command, before),
            job_id,
            _detail(command),
            _shown(before),
            _shown(after),
        )
    )
    return outcome


def _with_repeating(
    context: Context, caller: Principal, command: Command[Any], job_ids: list[int], *, careful: bool
) -> Outcome:
    """Execute a command that may change repeating jobs; audit each job it changed, and record an event."""
    found = [job for job_id in dict.fromkeys(job_ids) if (job := context.unit.job(job_id)) is not None]
    outcome = perform(context, command, careful=careful)
    if not isinstance(outcome, Answer):
        return outcome
    changes: list[tuple[Job, Job | None, str]] = []
    for job in found:
        if job.repeat and not job.mocked:
            after = context.unit.job(job.job_id)
            if _is_changed(context, command, job, after):
                changes.append((job, after, f"next run at {after.next_run}" if after is not None else ""))
    for parent, child in _put_off(context, command, outcome, found):
        changes.append((parent, parent, f"waits for its child {child.job_id}, next run at {child.next_run}"))
    for job, after, said in changes:
        by_result = after is None and isinstance(command, FinishJob | FinishJobs)
        context.unit.records.add_audit(
            AuditRow(
                context.now,
                caller.name,
                caller.address,
                type(command).__name__,
                job.name,
                job.job_id,
                '{"data":{"delete":true}}' if by_result else _detail(command),
                _shown(job),
                _shown(after),
            )
        )
        if after is not None and not isinstance(command, CancelJob):  # which records its own event
            detail = f"{type(command).__name__}: {said}"
            context.note("changed", name=job.name, job_id=job.job_id, run_id=job.run_id, detail=detail)
    return outcome


def _put_off(
    context: Context, command: Command[Any], answer: Answer, found: list[Job]
) -> Iterator[tuple[Job, Job]]:
    """Yield each repeating job that has to wait for a child beyond its next run, with that child.

    The command has created the child or postponed it; ``found`` holds the jobs as they were before the
    command.
    """
    before = {job.job_id: job.next_run for job in found if job.parent_job_id}
    job_ids = list(before)
    if isinstance(command, CreateJob | CreateJobs):
        made = jsontext.parse(answer.body)
        job_ids = made["jobIDs"] if isinstance(command, CreateJobs) else [made["jobID"]]
    for job_id in job_ids:
        child = context.unit.job(job_id)
        if child is None or not child.parent_job_id or child.next_run <= before.get(job_id, ""):
            continue
        parent = context.unit.shown(child.parent_job_id)
        if parent is None or not parent.repeat or parent.mocked:
            continue
        if child.next_run > _latest_usual(context, parent):
            yield parent, child


def watched_jobs(caller: Principal, command: Command[Any]) -> list[int]:
    """Return the ids of jobs whose repetition the command may change, other than by ending a run as usual.

    Children count too, since a repeating job waits for its children; for a new child, the ID of its parent is
    returned. Of the commands of operators, only those with result data of runs matter here, since all others
    are audited anyway.
    """
    kind = type(command)  # quicker than isinstance, which pydantic makes slow
    of_operator = "operate" in caller.grant.roles
    if of_operator and not caller.name:
        return []
    told: Any = command
    changes: tuple[Any, ...]
    if kind is FinishJob:
        return [told.job_id] if _changes_plan(told.data) else []
    if kind is FinishJobs:
        return [spec.job_id for spec in told.jobs if _changes_plan(spec.data)]
    if of_operator:
        return []
    if kind is CreateJob or kind is CreateJobs:
        specs = told.jobs if kind is CreateJobs else (told,)
        return [spec.parent_job_id for spec in specs if spec.parent_job_id and spec.first_run is not None]
    if caller.run is not None:
        return []
    if kind is RetryJob:
        changes = (told.name, told.job_priority, told.ignore_repeat or None, told.revive or None)
        changes += (told.delay, told.next_run)
    elif kind is FailJob:
        changes = (told.delay, told.retries)
    elif kind is UpdateJob:
        changes = (told.data, told.job_priority, told.next_run)
    elif kind is RequeueJobs:
        return list(told.job_ids)
    else:
        return [told.job_id] if kind is CancelJob else []
    changed = any(change is not None for change in changes) or _changes_plan(told.data)
    return [told.job_id] if changed else []


def _changes_plan(data: str | None) -> bool:
    """Return True if result data may end a repetition or set its next run, found by a text search."""
    return data is not None and ('"delete"' in data or '"originalNextRun"' in data)


def _is_changed(context: Context, command: Command[Any], before: Job, after: Job | None) -> bool:
    """Return True if a command changed a repeating job, other than by the usual end of its run."""
    if after is None:
        return True
    planned = original_next_run(after.data)
    if planned is not None and planned != original_next_run(before.data):
        return True
    if (before.name, before.repeat, before.priority) != (after.name, after.repeat, after.priority):
        return True
    if before.state in lifecycle.WORKING:
        if isinstance(command, FinishJob | FinishJobs | RetryJob | FailJob | RequeueJobs):
            return after.next_run > _latest_usual(context, before)
        return (before.state, before.next_run) != (after.state, after.next_run)
    return before != after


def _latest_usual(context: Context, job: Job) -> str:
    """Return the latest nextRun that the end of a run usually plans: the job's own, or that of a retry."""
    first = value_or(job.options.backoff, BACKOFF_S_DEFAULT)
    longest = value_or(job.options.max_backoff, max(BACKOFF_S_MAX_DEFAULT, first))
    # The backoff has up to 25 % of jitter.
    retry = after_seconds(context.now_ms, 1.25 * longest)
    try:
        own = next_after(job, context.now_ms) if is_schedule(job) else next_by_repeat(context, job)
    except (CannotEvaluate, ValueError):
        own = None
    return max(own or "", retry, job.memory.trigger or "")


def is_kept(caller: Principal, command: Command[Any]) -> bool:
    """Return True if the command is audited, by its kind or by its sender and parameters."""
    if command.signed:
        return True
    if not caller.name or "operate" not in caller.grant.roles:
        return False
    if isinstance(command, UpdateJob):
        return command.run_id is None and command.progress is None
    if isinstance(command, CreateJob):
        return repeats.is_cron(command.repeat)
    if isinstance(command, RetryJob | RequeueJobs) and command.name is not None:
        return True
    return isinstance(command, CancelJob) or (isinstance(command, RetryJob) and command.revive)


def _job_id(command: Command[Any], outcome: Answer) -> int:
    if isinstance(command, CreateJob):
        return int(jsontext.members(outcome.body)["jobID"])
    return getattr(command, "job_id", None) or 0


def _about(context: Context, command: Command[Any]) -> Job | None:
    """Return the job that a command refers to, by its jobID or name."""
    job_id = getattr(command, "job_id", None)
    if job_id:
        return context.unit.job(job_id)
    if isinstance(command, CreateJob):
        return context.unit.first_of_name(command.name, mocked=False) if command.unique else None
    name = getattr(command, "name", None)
    if isinstance(name, str) and "job_id" in type(command).model_fields:
        # Maximum number of jobs of the name that are read, to find a schedule: a name has at most one.
        return next(iter(context.unit.named(name, 1)), None)
    return None


def _name(command: Command[Any], before: Job | None) -> str:
    if before is not None:
        return before.name
    for field in ("name", "worker", "source"):
        value = getattr(command, field, None)
        if isinstance(value, str) and value:
            return value
    names = getattr(command, "names", None)
    return ",".join(names)[:DETAIL_CHARS_MAX] if names else ""


def _shown(job: Job | None) -> str:
    """Return a schedule as JSON for the audit; empty for any other job."""
    if job is None or not is_schedule(job):
        return ""
    shown: dict[str, Any] = {
        "name": job.name,
        "state": job.state,
        "repeat": job.repeat,
        "nextRun": job.next_run,
        "priority": job.priority,
    }
    options = "" if job.options_json == "{}" else job.options_json
    text = jsontext.dump(shown)
    if options and len(options) <= DETAIL_CHARS_MAX:
        text = jsontext.with_members(text, {"options": options})
    return text


def _detail(command: Command[Any]) -> str:
    members = jsontext.members(command.wire())
    kept = {name: text for name, text in members.items() if name not in NOT_KEPT}
    if isinstance(command, SyncSchedules):
        kept["names"] = jsontext.dump([spec.name for spec in command.schedules])
    text = jsontext.join(kept)
    if len(text) <= DETAIL_CHARS_MAX:
        return text
    return jsontext.dump({"parameters": sorted(wire_name(name) for name in kept)})
