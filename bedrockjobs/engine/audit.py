"""The audit: who changed what, from which address, with a schedule's values before and after.

Each row is written in the same commit as the change. Routine commands of producers and workers are not
audited.
"""

from __future__ import annotations

from typing import Any

from bedrockjobs.base import jsontext
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.wire import wire_name
from bedrockjobs.commands import (
    CancelJob,
    Command,
    CreateJob,
    FinishJob,
    FinishJobs,
    RequeueJobs,
    RetryJob,
    SyncSchedules,
    UpdateJob,
)
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.ticks import is_schedule
from bedrockjobs.engine.unit import Outcome, perform
from bedrockjobs.job.rows import AuditRow, Job
from bedrockjobs.schedule.repeat import is_cron

DETAIL_CHARS_MAX = 4_000
"""Maximum length of stored parameters; if they are longer, only their names are stored."""

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
    if caller.name and (ended := ending_repeats(command)):
        return _with_ended(context, caller, command, ended, careful=careful)
    if not is_kept(caller, command):
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


def _with_ended(
    context: Context, caller: Principal, command: Command[Any], job_ids: list[int], *, careful: bool
) -> Outcome:
    """Execute a command that ends runs; audit each repeating job that the result data of a run deletes."""
    found = [context.unit.job(job_id) for job_id in job_ids]
    before = [job for job in found if job is not None and job.repeat]
    outcome = perform(context, command, careful=careful)
    for job in before if isinstance(outcome, Answer) else ():
        if context.unit.job(job.job_id) is None:
            detail = '{"data":{"delete":true}}'
            context.unit.records.add_audit(
                AuditRow(
                    context.now,
                    caller.name,
                    caller.address,
                    type(command).__name__,
                    job.name,
                    job.job_id,
                    detail,
                    _shown(job),
                    "",
                )
            )
    return outcome


def ending_repeats(command: Command[Any]) -> list[int]:
    """Return the jobs that the command's result data may delete, found by a text search."""
    kind = type(command)  # quicker than isinstance, which pydantic makes slow
    if kind is FinishJob:
        data = command.data  # type: ignore[attr-defined]
        return [command.job_id] if data is not None and '"delete"' in data else []  # type: ignore[attr-defined]
    if kind is FinishJobs:
        specs = command.jobs  # type: ignore[attr-defined]
        return [spec.job_id for spec in specs if spec.data is not None and '"delete"' in spec.data]
    return []


def is_kept(caller: Principal, command: Command[Any]) -> bool:
    """Return True if the command is audited, by its kind or by its sender and parameters."""
    if command.signed:
        return True
    if not caller.name or "operate" not in caller.grant.roles:
        return False
    if isinstance(command, UpdateJob):
        return command.run_id is None and command.progress is None
    if isinstance(command, CreateJob):
        return is_cron(command.repeat)
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
        # Jobs of a name that are checked for a schedule; a name has at most one.
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
