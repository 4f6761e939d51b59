"""Takes in the jobs that applications created in transactions of their own.

Such a job is a row of the table ``inbox`` until CreateJob's handler creates it, with the same checks, in the
commit that deletes the row. If CreateJob refuses the job, it becomes a FAILED job with the reason, since its
creator can no longer be told. If a limit refuses the job, it waits in the inbox.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import SECONDS, after_seconds, moment_of
from bedrockjobs.base.config import INBOX_AGAIN_S_MAX, INBOX_AGAIN_S_MIN
from bedrockjobs.base.errors import BadArguments, CommandError, TooMany, Unavailable
from bedrockjobs.base.fingerprints import shortened
from bedrockjobs.base.wire import stamped
from bedrockjobs.commands import CreateJob
from bedrockjobs.commands.base import Command, Empty
from bedrockjobs.engine.handlers import families
from bedrockjobs.engine.handlers.context import Answer, Context, handles, merged, plan_create
from bedrockjobs.engine.handlers.create import changed_options, create_job
from bedrockjobs.job import lifecycle
from bedrockjobs.job.rows import InboxRow, Job
from bedrockjobs.store.base import AccessPlan, Unit

log = logging.getLogger(__name__)


class TakeIn(Command[Empty]):
    """Create the jobs of some rows of the inbox; a command that the server itself sends."""

    abstract = True
    all_or_nothing = True

    rows: list[InboxRow]
    postpone: bool = False
    """Whether to create no job and let all of them wait, because an attempt to create them failed."""
    postponed: list[int] = []
    """Set by the handler: the jobIDs of the jobs that have to wait."""


def spec_of(row: InboxRow) -> CreateJob:
    """Return the command that creates the job of a row; raises CommandError."""
    try:
        options = CreateJob.parameters_in(row.options_json, strict=True)
    except ValueError as error:
        raise BadArguments("Malformed options", f"options: expected a JSON object: {error}") from None
    spec = CreateJob.read({**options, "name": row.name, "data": row.data})
    if isinstance(spec.first_run, str) and spec.first_run:  # counts from the call, however long it waits
        spec = spec.with_value("first_run", stamped(spec.first_run, row.at))
    return spec


def _plan(row: InboxRow) -> AccessPlan:
    """Return the plan of CreateJob, but for no new jobID, since the row already has a jobID."""
    try:
        return replace(plan_create(spec_of(row)), new_jobs=0)
    except CommandError:
        return AccessPlan(creates=(row.name,))


@handles(TakeIn, plan=lambda command: merged(map(_plan, command.rows)))
def take_in(context: Context, command: TakeIn) -> Answer:
    """Create the jobs of those rows that are still in the inbox."""
    records = context.unit.records
    full: set[str] = set()
    for row in in_slices(records.claim_in_inbox([row.job_id for row in command.rows])):
        waits = command.postpone or row.name in full
        if not waits:
            try:
                _create(context, row)
            except TooMany:
                waits = True
                full.add(row.name)
        if waits:
            waited_s = (context.moment - moment_of(row.at)).total_seconds()
            pause_s = min(max(waited_s, INBOX_AGAIN_S_MIN), INBOX_AGAIN_S_MAX)
            records.postpone_in_inbox(row.job_id, after_seconds(context.now_ms, pause_s))
            command.postponed.append(row.job_id)
        else:
            records.delete_from_inbox(row.job_id)
    return Answer()


def _create(context: Context, row: InboxRow) -> None:
    """Create the job of a row; raises TooMany and Unavailable, before anything is written."""
    unit = context.unit
    context.unit, context.by = cast(Unit, UnitWithJobID(unit, row.job_id)), row.by
    refused = None
    try:
        answer = create_job(context, spec_of(row))
    except (TooMany, Unavailable):
        raise
    except CommandError as error:
        refused = error
    finally:
        context.unit, context.by = unit, ""
    if refused is not None:
        _fail(context, row, refused)
        return
    job_id = jsontext.parse(answer.body)["jobID"]
    if job_id != row.job_id:
        _leave_record(context, row, job_id)


class UnitWithJobID:
    """An open unit of work whose next job gets a jobID that was allocated before; all else is delegated."""

    def __init__(self, unit: Unit, job_id: int) -> None:
        """Create a job with this jobID in ``unit``."""
        self._unit, self._job_id = unit, job_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def new_job_id(self) -> int:
        """Return the jobID."""
        return self._job_id

    def return_job_id(self, job_id: int) -> None:
        """Do nothing, since no other job may get this jobID."""


def _row_of(context: Context, row: InboxRow, **columns: Any) -> Job:
    return Job(context.now, row.job_id, lifecycle.QUICK_CREATE[2], row.name, context.now_ms, **columns)


def _fail(context: Context, row: InboxRow, error: CommandError) -> None:
    """Create the job as FAILED, since CreateJob has refused it."""
    text = shortened(f"Its transaction created it, and CreateJob refused it: {error.detail or error.reason}")
    log.warning("job %d (%s): %s", row.job_id, row.name, text)
    job = _row_of(context, row, data=_data_of(row)).noting(error=text, failed=True)
    context.unit.insert(lifecycle.move(job, "break"))
    context.add_failure("job", row.job_id, row.name, text)
    context.created.append(row.name)
    context.note("failed", name=row.name, job_id=row.job_id, by=row.by, detail=text)


def _data_of(row: InboxRow) -> str:
    try:
        jsontext.check_object(row.data)
    except ValueError:
        return "{}"
    return row.data


def _leave_record(context: Context, row: InboxRow, other: int) -> None:
    """Create the job as CANCELLED, since another job does its work."""
    spec = spec_of(row)
    words = "unique" if spec.unique else "uniqueKey" if spec.unique_key else "idempotencyKey"
    text = f"{words}: job {other} was there already, and does its work"
    job = _row_of(
        context, row, data=row.data, priority=spec.wanted_priority, options_json=changed_options("{}", spec)
    ).noting(error=text)
    ended = job._replace(expires=families.record_until(context, job))
    context.unit.insert(lifecycle.move(ended, "cancel any"))


def waiting_job(context: Context, job_id: int) -> Job | None:
    """Return the job that a row of the inbox will become, or None if there is no such row.

    Raises Unavailable if another server has just taken in the row.
    """
    row = _visible_row(context, job_id)
    if row is None:
        return None
    if not row.name:
        raise _taken_in_now(job_id)
    try:
        spec = spec_of(row)
    except CommandError:
        return _row_of(context, row)._replace(created=row.at[:SECONDS], next_run=row.at)
    return Job(
        row.at[:SECONDS],
        job_id,
        lifecycle.QUICK_CREATE[2],
        row.name,
        stamped(spec.first_run, row.at) or row.at,
        "",
        spec.repeat,
        row.data,
        spec.wanted_priority,
        spec.parent_job_id,
        spec.retry_after,
        options_json=changed_options("{}", spec),
    )


def refuse_waiting(context: Context, job_id: int) -> None:
    """Raise Unavailable if a job to be changed is still in the inbox."""
    if _visible_row(context, job_id) is not None:
        raise _taken_in_now(job_id)


def _visible_row(context: Context, job_id: int) -> InboxRow | None:
    row = context.unit.records.inbox_row(job_id)
    scope = context.scope
    if row is None or (scope is not None and not (row.name and scope.covers(row.name))):
        return None
    return row


def _taken_in_now(job_id: int) -> Unavailable:
    return Unavailable(
        "Job is being taken in", f"jobID: job {job_id} was just committed; try again in a moment"
    )
