"""Operators' commands (pause, resume, trigger, stop and drain), and the output of runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.config import LIST_MAX, OUTPUT_LINE_CHARS_MAX, PAUSES_MAX
from bedrockjobs.base.errors import BadArguments, NotFound, TooMany, WrongState
from bedrockjobs.base.jsontext import without_zeros
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import (
    AppendOutput,
    DrainWorker,
    GetPingSecret,
    KillRun,
    PauseJobs,
    PingSchedule,
    ReleaseHold,
    ResumeJobs,
    TerminateRun,
    TriggerJob,
)
from bedrockjobs.engine.events import DrainsChanged, HoldChanged, OutputChanged
from bedrockjobs.engine.handlers import families, runs, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles, plan_by_name
from bedrockjobs.engine.handlers.end import existing
from bedrockjobs.engine.handlers.failing import unless_broken
from bedrockjobs.engine.handlers.ticks import skip_queued, triggered
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import hold_of, plain_pattern
from bedrockjobs.job.limits import AT_LIMIT
from bedrockjobs.job.rows import Job, PauseRow
from bedrockjobs.store.base import AccessPlan
from bedrockjobs.store.chunks import PrintedLine, chunk_of


@handles(PauseJobs, plan=lambda _: AccessPlan(control=True))
def pause_jobs(context: Context, command: PauseJobs) -> Answer:
    """Pause a pattern, so that matching jobs are not taken."""
    records = context.unit.records
    name = plain_pattern(command.name)
    known = {pause.pattern for pause in records.pauses()}
    if name not in known and len(known) >= PAUSES_MAX:
        raise TooMany("Too many pauses", f"name: expected at most {PAUSES_MAX} patterns in all")
    if command.until is not None and stamped(command.until, context.now_ms) <= context.now_ms:
        raise BadArguments("Malformed until", "until: expected a time in the future")
    until = stamped(command.until, context.now_ms)
    by = "" if command.by == AT_LIMIT else command.by
    records.put_pause(PauseRow(name, by, command.reason, context.now, until))
    context.unit.pauses_changed()
    context.note("paused", name=name, by=command.by, detail=command.reason)
    return Answer()


@handles(ResumeJobs, plan=lambda _: AccessPlan(control=True, everything=True))
def resume_jobs(context: Context, command: ResumeJobs) -> Answer:
    """End the pause of one pattern, or all pauses; reply with their patterns."""
    name = plain_pattern(command.name)
    if command.all and name != ResumeJobs.model_fields["name"].default:
        raise BadArguments("Malformed all", "all: expected without name")
    pauses = context.unit.records.pauses()
    hold = hold_of(pauses)
    may_end = [pause for pause in pauses if pause is not hold and pause.by != AT_LIMIT]
    gone = may_end if command.all else [pause for pause in may_end if pause.pattern == name]
    if not gone and not command.all:
        wider = context.unit.records.pause_of(name)
        scope = context.scope
        seen = wider is not None and (scope is None or scope.includes_pattern(wider.pattern))
        hint = f", but {wider.pattern} is, which holds it" if wider is not None and seen else ""
        if name == "*" and may_end and scope is None:
            others = "1 other is" if len(may_end) == 1 else f"{len(may_end):,} others are"
            hint = f", but {others}: all ends every pause"
        raise NotFound("Not paused", f"name: the pattern {name} is not paused{hint}")
    resume(context, gone, by=command.by)
    return Answer(jsontext.dump({"resumed": [pause.pattern for pause in gone]}))


@handles(ReleaseHold, plan=lambda _: AccessPlan(control=True, everything=True))
def release_hold(context: Context, command: ReleaseHold) -> Answer:
    """End the quarantine of a restored queue."""
    hold = hold_of(context.unit.records.pauses())
    if hold is None:
        raise NotFound("Not held", "nothing is held: the queue was not restored, or is released already")
    resume(context, [hold], by=command.by, kind="released")
    context.emit(HoldChanged(None))
    return Answer(jsontext.dump({"since": hold.since, "reason": hold.reason}))


def end_pause(context: Context, pause: PauseRow) -> None:
    """End a pause whose time is up."""
    if pause.by == AT_LIMIT:
        families.recheck_limit(context, pause)
    else:
        resume(context, [pause])


def resume(context: Context, gone: list[PauseRow], *, by: str = "", kind: str = "resumed") -> None:
    """End some pauses; schedules skip the ticks missed during the pause, and continue with the next tick."""
    records = context.unit.records
    held = [
        row
        for row in context.unit.repeating()
        if row.state == "QUEUED" and ticks.is_schedule(row) and records.pause_of(row.name) is not None
    ]
    for pause in gone:
        records.delete_pause(pause.pattern)
        context.note(kind, name=plain_pattern(pause.pattern), by=by)
    for row in held:
        if records.pause_of(row.name) is None:
            unless_broken(context, row, partial(skip_queued, context, row, "paused"))
    context.unit.pauses_changed()


@handles(TriggerJob, plan=plan_by_name)
def trigger_job(context: Context, command: TriggerJob) -> Answer:
    """Run a job now, or again after its current run."""
    row = one_job(context, command)
    if row.options.expect:
        raise WrongState("It runs nowhere here", "jobID: expected a job that workers run, not expect: ping")
    pending = row.state in lifecycle.WORKING
    if row.memory.removed:
        raise WrongState("Can only trigger QUEUED and running jobs", "jobID: it was removed from its source")
    if pending:
        context.save(row.noting(pending=True))
    elif row.state == "QUEUED":
        if row.memory.trigger is None or row.memory.cause:
            context.save(triggered(context, row))
    else:
        raise WrongState("Can only trigger QUEUED and running jobs", f"jobID: the job is {row.state}")
    context.note("triggered", name=row.name, job_id=row.job_id, by=command.by)
    return Answer(jsontext.dump({"jobID": row.job_id, "pending": pending}))


def one_job(context: Context, command: TriggerJob | PingSchedule | GetPingSecret) -> Job:
    """Return the job with the jobID or name of a command; raise CommandError."""
    if command.job_id is not None:
        return existing(context, command.job_id)
    if command.name is None:
        raise BadArguments("Missing jobID", "jobID: expected it, or a name")
    every = context.unit.named(command.name, LIST_MAX)
    found = [row for row in every if not row.memory.bound_to]
    if not found:
        raise NotFound("No job with this name", f"name: there is no job {command.name}")
    if len(found) > 1:
        raise WrongState("Several jobs have this name", "name: expected a jobID if the name is not unique")
    return found[0]


@handles(TerminateRun, plan=plan_by_name)
def terminate_run(context: Context, command: TerminateRun) -> Answer:
    """Ask the workers of matching runs to send SIGTERM."""
    return _stop(context, command, "TERM")


@handles(KillRun, plan=plan_by_name)
def kill_run(context: Context, command: KillRun) -> Answer:
    """Ask the workers of matching runs to send SIGKILL."""
    return _stop(context, command, "KILL")


def _stop(context: Context, command: TerminateRun | KillRun, signal: str) -> Answer:
    records = context.unit.records
    idle = f"name: no job named {command.name} has one"
    if command.run_id is not None:
        ids = [command.run_id]
    elif command.job_id is not None:
        job = existing(context, command.job_id)
        ids, idle = [job.run_id], f"jobID: job {job.job_id} ({job.name}) has none; it is {job.state}"
    elif command.name is not None:
        ids = [row.run_id for row in context.unit.named(command.name, LIST_MAX)]
    else:
        raise BadArguments("Missing runID", "runID: expected it, or a jobID, or a name")
    found = [records.read_run(run_id) for run_id in ids if run_id]
    if command.run_id is not None and not any(found):
        raise NotFound("No run with this runID", f"runID: there is no run {command.run_id}")
    alive = [run for run in found if run is not None and run.status == "running"]
    if not alive:
        if command.run_id is not None:
            raise WrongState("Run is over", f"runID: run {command.run_id} is over")
        raise NotFound("No run in progress", idle)
    for run in alive:
        if not run.stop.startswith("KILL"):
            runs.stop(context, run.run_id, signal)
        context.note(
            "stop",
            name=run.name,
            job_id=run.job_id,
            run_id=run.run_id,
            by=command.by,
            detail=f"{signal} {command.reason}".strip(),
        )
    return Answer()


@handles(DrainWorker, plan=lambda _: AccessPlan(control=True))
def drain_worker(context: Context, command: DrainWorker) -> Answer:
    """Drain a worker, or undo that."""
    records = context.unit.records
    drained = command.worker in records.drains()
    if command.undo and drained:
        records.delete_drain(command.worker)
        context.note("undrained", name=command.worker, by=command.by)
    elif not command.undo and not drained:
        if command.worker not in context.presence.workers:
            raise NotFound(
                "No such worker", f"worker: no live worker has the name {command.worker}; see ListWorkers"
            )
        records.put_drain(command.worker, command.by, context.now)
        context.note("drained", name=command.worker, by=command.by)
    context.emit(DrainsChanged(records.drains()))
    return Answer()


@handles(AppendOutput, plan=lambda command: AccessPlan(runs=(command.run_id,)))
def append_output(context: Context, command: AppendOutput) -> Answer:
    """Append lines to a run's output; reply with the number of the last stored line."""
    records = context.unit.records
    run = records.read_run(command.run_id)
    if run is None:
        raise NotFound("No run with this runID", f"runID: there is no run {command.run_id}")
    if run.status != "running":
        raise WrongState("Run is over", f"runID: run {command.run_id} is over")
    last, printed = records.end_of_output(command.run_id)
    if command.seq > last + 1:
        raise WrongState("Gap in output", f"seq: expected {last + 1}")
    lines = [_line(line, context.now_ms) for line in command.lines[last + 1 - command.seq :]]
    if lines:
        chunk = chunk_of(command.run_id, last + 1, printed, lines)
        records.append(chunk, run.name)
        context.emit(OutputChanged(command.run_id, chunk.size))
    return Answer(f'{{"seq":{last + len(lines)}}}')


def _line(line: Any, now: str) -> PrintedLine:
    stream, text = ("out", line) if isinstance(line, str) else (line.get("stream", "out"), line["line"])
    return PrintedLine(now, stream, without_zeros(text[:OUTPUT_LINE_CHARS_MAX]))
