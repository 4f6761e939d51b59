"""QueryJob, UpdateJob, CancelJob, DeleteJob, RequeueJobs and the crash list."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import after_seconds
from bedrockjobs.base.config import CRASH_PATTERNS_MAX, DATA_CHARS_PER_COMMAND_MAX, GRACE_S_DEFAULT
from bedrockjobs.base.errors import BadArguments, Changed, NotFound, TooMany, WrongState
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import (
    CancelJob,
    ClearCrashedBedrockJobs,
    CrashBedrockJob,
    DeleteJob,
    QueryJob,
    RequeueJobs,
    UpdateJob,
)
from bedrockjobs.engine.handlers import families, graph, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.create import (
    changed_options,
    check_amount,
    check_combination,
    check_new_repeat,
    check_options,
    waiting_job,
)
from bedrockjobs.engine.handlers.end import check_run, existing
from bedrockjobs.engine.handlers.failing import repaired, resume_parent, stopped, unless_broken
from bedrockjobs.engine.handlers.take import with_due_before
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, has_due_run, next_run_of, with_repeat
from bedrockjobs.engine.render import entity_tag, render_ended, render_kept, render_with_state
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed, placed_if_waiting
from bedrockjobs.job.lifecycle import held_key
from bedrockjobs.job.rows import OPEN_LANE, Job, RunRow, keep_mark
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import AccessPlan


@handles(QueryJob, plan=lambda command: AccessPlan(jobs=(command.job_id,), key_holders=(command.job_id,)))
def query_job(context: Context, command: QueryJob) -> Answer:
    """Return a job with its state; an ended job is shown if it is retained as a run."""
    job = context.unit.job(command.job_id)
    if job is not None:
        return Answer(_shown(context, job))
    held = held_key(context.unit.records.unique_key_of(command.job_id), None, context.now_ms)
    run = context.unit.records.kept_of_job(command.job_id)
    if run is not None and context.sees(run.name):
        more = {} if held is None else held.members
        return Answer(render_kept(run, context.unit.records.input_of(run.run_id), more))
    its = context.unit.records.workflow_job(command.job_id)
    if its is not None and context.sees(its.name):
        return Answer(render_ended(its, context.unit.records.result_in_workflow(its.job_id)))
    if held is not None and context.sees(held.name):
        raise NotFound("No job with this jobID", held.after_end(command.job_id))
    waiting = waiting_job(context, command.job_id)
    if waiting is not None:
        return Answer(render_with_state(waiting))
    return Answer(_shown(context, existing(context, command.job_id)))


def _shown(context: Context, job: Job) -> str:
    """Return a job with its state and its unique key."""
    held = held_key(context.unit.records.unique_key_of(job.job_id), job, context.now_ms)
    more = {} if held is None else held.members
    return render_with_state(job, {**more, **graph.of_workflow(context.unit.records, job)})


def _check_tag(context: Context, row: Job, wanted: str | None) -> None:
    if wanted is None or wanted.strip() == "*":
        return
    tag = entity_tag(_shown(context, row))
    if tag not in [part.strip() for part in wanted.split(",")]:
        raise Changed(detail=f"ifMatch: the job is now {tag}")


@handles(UpdateJob, plan=lambda command: AccessPlan(jobs=(command.job_id,)))
def update_job(context: Context, command: UpdateJob) -> Answer:
    """Change a job in any state."""
    changes = (command.data, command.repeat, command.job_priority, command.next_run, command.progress)
    options = command.chosen()
    if all(change is None for change in changes) and not command.should_clear_repeat and not options:
        raise BadArguments(
            "Missing data", "expected data, repeat, jobPriority, nextRun, shouldClearRepeat or an option"
        )
    if command.repeat:
        check_new_repeat(context, command.repeat, context.unit.job(command.job_id))
    row = existing(context, command.job_id)
    check_run(row, command.run_id)
    if command.next_run is not None and not _is_by_its_run(row, command):
        context.check_repeats(row, "nextRun")
    _check_tag(context, row, command.if_match)
    changed = row
    if command.data is not None:
        changed = changed._replace(data=keep_mark(command.data, row))
    if command.job_priority is not None:
        changed = changed._replace(priority=command.job_priority)
    if command.should_clear_repeat:
        changed = changed._replace(repeat="")
    elif command.repeat:
        changed = _with_repeat(context, changed, command.repeat, explicit=command.next_run is not None)
    if command.next_run is not None:
        changed = _with_next_run(context, row, changed, stamped(command.next_run, context.now_ms))
    if changed.next_run != row.next_run and row.memory.before is not None:
        changed = with_due_before(changed)
    if options:
        changed = changed._replace(options_json=changed_options(changed.options_json, command))
    if changed != row:
        check_options(changed)
        changed = placed_if_waiting(row, repaired(context, changed) if command.repeat else changed)
    if command.progress is not None:
        _set_progress(context, row, command.progress)
    if changed != row:
        context.unit.save(changed)
    return Answer()


def _is_by_its_run(row: Job, command: UpdateJob) -> bool:
    """Return True if the command may come from the job's current run.

    It may if it names that run, or if the run has no runID to name.
    """
    return row.state in lifecycle.WORKING and (command.run_id is not None or not row.run_id)


def _set_progress(context: Context, row: Job, progress: str) -> None:
    if not row.run_id:
        raise WrongState("No run in progress", f"progress: job {row.job_id} has no run that a worker opened")
    runs.set_progress(context, row.run_id, progress)


def _with_next_run(context: Context, row: Job, changed: Job, next_run: str) -> Job:
    """Return a job with an explicit nextRun; due ticks that it replaces are recorded as skipped."""
    if not ticks.is_schedule(row) or not ticks.is_schedule(changed):
        return changed._replace(next_run=next_run)
    if row.state in lifecycle.WORKING:  # the run keeps its tick, even if it is requeued
        return changed.noting(tick=ticks.tick_of(row))._replace(next_run=next_run)
    if row.state == "QUEUED" and ticks.stands_for_a_tick(row):
        try:
            ticks.skip_until(context, row, next_run)
        except CannotEvaluate as error:
            raise BadArguments("Malformed repeat", f"repeat: {error}") from None
        changed = changed.noting(tick="", offset=None)
    return changed._replace(next_run=next_run)


def _with_repeat(context: Context, row: Job, repeat: str, *, explicit: bool) -> Job:
    """Return a job with another repeat, and with the nextRun that follows from it unless nextRun is given."""
    check_combination(context, repeat, row)
    if row.mocked:  # a mocked job never repeats
        return row._replace(repeat="")
    changed = row._replace(repeat=repeat)
    # The nextRun of a RUNQUEUED job is the time at which its run counts as lost.
    if row.state == "RUNQUEUED" or repeat.lower() == row.repeat.lower():
        return changed
    was = ticks.is_schedule(row)
    if was or ticks.is_schedule(changed):
        try:
            changed = with_repeat(context, row, changed, explicit=explicit)
        except CannotEvaluate as error:
            raise BadArguments("Malformed repeat", f"repeat: {error}") from None
    if explicit or ticks.is_schedule(changed) or (was and has_due_run(context, row)):
        return changed
    found = next_run_of(context, changed._replace(lane=OPEN_LANE))
    if found is None:
        raise BadArguments("Malformed repeat", "repeat: expected a date before the year 10000")
    if row.memory.trigger is not None and row.state == "QUEUED":  # the triggered run comes first
        return changed.noting(trigger=found.next_run)
    return changed._replace(next_run=found.next_run)


@handles(CancelJob, plan=lambda command: AccessPlan(jobs=(command.job_id,)))
def cancel_job(context: Context, command: CancelJob) -> Answer:
    """Cancel a child that has not run, or stop a run with a lease; with ``any``, cancel any job.

    Differs from Bedrock: cancelling a child twice does not queue a running parent, and a job under a lease is
    stopped whether it is a child or not. In Bedrock that is refused with 404 or ignored.
    """
    row = existing(context, command.job_id)
    if command.any:
        _check_children(context, row)
    run = _leased_run(context, row)
    if run is not None:
        _stop_cancelled(context, row, run)
        return Answer(f'{{"runID":{run.run_id}}}')
    if command.any and not (row.state == "FAILED" and row.parent_job_id):
        done = _cancel_any(context, row)
        return Answer(f'{{"cancelled":{"true" if done else "false"}}}')
    if context.unit.has_children(row.job_id):
        raise NotFound("Invalid jobID - Cannot cancel a job with children", "jobID: expected a child")
    if not row.parent_job_id:
        raise NotFound(
            "Invalid jobID - Cannot cancel a job without a parent", "jobID: expected a child; see DeleteJob"
        )
    if lifecycle.allows("cancel", row.state):
        runs.close(context, row, "frozen", error="The job was cancelled")
        context.save(lifecycle.move(row, "cancel", expires=""))
        resume_parent(context, row.parent_job_id)
    return Answer()


def cancel_or_stop(context: Context, row: Job) -> bool:
    """Cancel any job; return True if a worker was asked to stop its run first."""
    run = _leased_run(context, row)
    if run is None:
        _cancel_any(context, row)
        return False
    _stop_cancelled(context, row, run)
    return True


def _leased_run(context: Context, row: Job) -> RunRow | None:
    """Return the current run of a job if its worker can be asked to stop it."""
    run = context.unit.records.read_run(row.run_id) if row.run_id else None
    return run if run is not None and run.lease and run.status == "running" else None


def _check_children(context: Context, row: Job) -> None:
    """Raise NotFound if the job has a pending child outside of the caller's scope."""
    scope = context.scope
    if scope is None:
        return
    for child in context.unit.children(row.job_id):
        if child.state in lifecycle.PENDING and not scope.covers(child.name):
            raise NotFound(
                "Outside of the token's names", f"jobID: expected a job whose children are within {scope}"
            )


def _cancel_any(context: Context, row: Job) -> bool:
    """Cancel a job without a leased run, and its children; return False if the job has ended.

    If the job repeats, only its current or due run is cancelled; return False if there is none.
    """
    if row.state not in lifecycle.PENDING:
        return False
    if row.state == "QUEUED" and row.repeat and not row.mocked:
        if not _is_run_due(context, row):
            return False
        unless_broken(context, row, lambda: _cancel_due_run(context, row))
        return True
    runs.close(context, row, "frozen", error="The job was cancelled")
    if row.repeat and not row.mocked:
        _cancel_children(context, row)
        _cancel_this_run(context, row)
        return True
    _end_cancelled(context, row)
    _cancel_children(context, row)
    resume_parent(context, row.parent_job_id)
    return True


def _end_cancelled(context: Context, row: Job) -> None:
    """Make a job CANCELLED and keep its record; delete a broadcast job, or one removed from its source."""
    leaves = bool(row.memory.bound_to or row.memory.removed)
    ended = row.remembering(row.memory.after_run().after_end())
    ended = ended._replace(expires=families.record_until(context, row))
    context.save(lifecycle.move(ended, "cancel any", *(("leaves only its run",) if leaves else ())))
    context.note("cancelled", name=row.name, job_id=row.job_id, run_id=row.run_id)


def _cancel_children(context: Context, row: Job) -> None:
    """Cancel the pending children of a cancelled job, and delete the ended ones, which no run will get."""
    for child in in_slices(context.unit.children(row.job_id)):
        run = _leased_run(context, child)
        if run is not None:
            _stop_cancelled(context, child, run)
        elif child.state in lifecycle.PENDING:
            runs.close(context, child, "frozen", error="The job was cancelled")
            _end_cancelled(context, child)
        elif child.state in lifecycle.ENDED:
            context.save(lifecycle.move(child, "report"))


def _is_run_due(context: Context, row: Job) -> bool:
    """Return True if a queued job that repeats is due, was triggered, or is tried again."""
    memory = row.memory
    again = memory.failures or (memory.cause and ticks.is_schedule(row))
    return bool(again) or memory.trigger is not None or row.next_run <= context.now_ms


def _cancel_due_run(context: Context, row: Job) -> None:
    """Cancel the run of a queued job that repeats, which is due, triggered or tried again."""
    if ticks.is_schedule(row) and ticks.stands_for_a_tick(row):
        context.unit.save(ticks.after_skipping(context, row, "cancelled"))
        context.note("cancelled", name=row.name, job_id=row.job_id)
    else:
        _cancel_this_run(context, row.noting(pending=False))


def _cancel_this_run(context: Context, row: Job) -> None:
    """Plan a job for the run after its cancelled one; delete its ended children, which no run will get."""
    families.delete_reported_children(context, row)
    context.note("cancelled", name=row.name, job_id=row.job_id, run_id=row.run_id)
    stopped(context, row, "cancel any")


def _stop_cancelled(context: Context, row: Job, run: RunRow) -> None:
    """Ask a job's worker to stop its run; the job ends after that, or some time after SIGKILL."""
    if row.memory.cancelled:
        return
    changed = row.noting(cancelled=True, pending=False)
    if not row.memory.overtime:  # otherwise it is already being stopped because of a timeout
        runs.stop(context, run.run_id, run.stop or "TERM")
        grace = runs.value_or(row.options.grace, GRACE_S_DEFAULT)
        changed = changed.noting(overtime=1)._replace(expires=after_seconds(context.now_ms, grace))
    if row.state == "RUNQUEUED":  # it must not be taken again meanwhile
        changed = changed._replace(next_run=repeats.NEVER)
    context.unit.save(changed)
    context.note("stop", name=row.name, job_id=row.job_id, run_id=run.run_id, detail="TERM for CancelJob")


@handles(DeleteJob, plan=lambda command: AccessPlan(jobs=(command.job_id,)))
def delete_job(context: Context, command: DeleteJob) -> Answer:
    """Delete a job that is neither RUNNING nor PAUSED."""
    row = existing(context, command.job_id)
    if not lifecycle.allows("delete", row.state):
        reason = (
            "Can't delete a RUNNING job"
            if row.state == "RUNNING"
            else "Can't delete a parent jobs with children running"
        )
        raise WrongState(reason, f"jobID: the job is {row.state}")
    runs.close(context, row, "frozen", error="The job was deleted")
    context.save(lifecycle.move(row, "delete"))
    if ticks.is_schedule(row):
        context.unit.records.delete_ticks(row.job_id)
        context.note("deleted", name=row.name, job_id=row.job_id)
    families.cancel_unstarted_children(context, row)
    resume_parent(context, row.parent_job_id)
    return Answer()


@handles(RequeueJobs, plan=lambda command: AccessPlan(jobs=tuple(command.job_ids)))
def requeue_jobs(context: Context, command: RequeueJobs) -> Answer:
    """Queue jobs in any state again as if new; ignore unknown jobIDs."""
    until = context.unit.chars_read + DATA_CHARS_PER_COMMAND_MAX
    for job_id in in_slices(dict.fromkeys(command.job_ids)):
        check_amount(context, until)
        row = context.unit.job(job_id)
        if row is None or graph.waits(context, row):
            continue
        if command.name not in (None, row.name):
            context.check_repeats(row, "name")
        if row.state not in lifecycle.WORKING:
            context.check_repeats(row, "jobIDs")
        data = row.data
        if command.decrement_failures and '"retryAfterCount"' in data:
            count = jsontext.members(data).get("retryAfterCount", "0")
            if count.isdecimal():
                data = jsontext.with_members(data, {"retryAfterCount": str(max(int(count) - 1, 0))})
        runs.close(context, row, "frozen", error="The job was requeued")
        notes = row.memory.after_end()._replace(
            before=None, trigger=None, pending=False, tick="", broken=False
        )
        changed = lifecycle.move(
            row.remembering(notes), "requeue", next_run=row.created, name=command.name or row.name, data=data
        )
        context.save(placed(changed, context.now_ms))
    return Answer()


@handles(CrashBedrockJob, plan=lambda _: AccessPlan(control=True))
def crash_bedrock_job(context: Context, command: CrashBedrockJob) -> Answer:
    """Add patterns to the crash list: matching jobs are failed instead of handed out."""
    patterns = dict.fromkeys((*context.unit.crash_patterns(), *command.names))
    if len(patterns) > CRASH_PATTERNS_MAX:
        raise TooMany("Too many patterns", f"names: expected at most {CRASH_PATTERNS_MAX} in all")
    context.unit.set_crash_patterns(tuple(patterns))
    return Answer()


@handles(ClearCrashedBedrockJobs, plan=lambda _: AccessPlan(control=True))
def clear_crashed_bedrock_jobs(context: Context, command: ClearCrashedBedrockJobs) -> Answer:
    """Remove patterns from the crash list, or all if none is given."""
    gone = set(command.names) if command.names else None
    kept = () if gone is None else tuple(p for p in context.unit.crash_patterns() if p not in gone)
    context.unit.set_crash_patterns(kept)
    return Answer()
