"""CreateJob and CreateJobs, the checks and options of new jobs, and jobs from the inbox."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import SECONDS, after_seconds, moment_of
from bedrockjobs.base.config import (
    DATA_BYTES_MAX,
    DATA_CHARS_PER_COMMAND_MAX,
    INBOX_AGAIN_S_MAX,
    INBOX_AGAIN_S_MIN,
)
from bedrockjobs.base.errors import (
    BadArguments,
    CommandError,
    NotFound,
    TooMany,
    Unavailable,
    WrongState,
    shortened,
)
from bedrockjobs.base.wire import stamped, wire_name
from bedrockjobs.commands import CreateJob, CreateJobs, JobSpec
from bedrockjobs.commands.base import Command, Empty
from bedrockjobs.commands.options import NOT_WITH_PINGS, JobOptions
from bedrockjobs.engine.handlers import families, graph, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles, merged, plan_create
from bedrockjobs.engine.handlers.failing import repaired
from bedrockjobs.engine.handlers.ticks import CannotEvaluate, with_repeat
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed, placed_if_waiting
from bedrockjobs.job.lifecycle import HeldKey, is_held
from bedrockjobs.job.rows import (
    MOCK_LANE,
    OPEN_LANE,
    OWN_COMMANDS,
    InboxRow,
    Job,
    JobOfKey,
    is_mock_data,
    keep_mark,
    mark_mocked,
)
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import AccessPlan, Unit

_OPTION_FIELDS = frozenset(JobOptions.model_fields)
_JSON = {True: "true", False: "false"}


@handles(CreateJob, plan=plan_create)
def create_job(context: Context, command: CreateJob) -> Answer:
    """Create a job; reply with its jobID."""
    job_id, created = _create(context, command, jsontext.Merging())
    context.created.append(command.name)
    if command.unique_key is not None:
        return Answer(f'{{"jobID":{job_id},"created":{_JSON[created]}}}')
    return Answer(f'{{"jobID":{job_id}}}')


@handles(CreateJobs, plan=lambda command: merged(map(plan_create, command.jobs)))
def create_jobs(context: Context, command: CreateJobs) -> Answer:
    """Create all jobs or none; reply with their jobIDs in order."""
    merging, found = jsontext.Merging(), []
    until = context.unit.chars_read + DATA_CHARS_PER_COMMAND_MAX
    for spec in in_slices(command.jobs):
        check_amount(context, until)
        found.append(_create(context, spec, merging))
    context.created += [spec.name for spec in command.jobs]
    job_ids = f'"jobIDs":[{",".join(str(job_id) for job_id, _ in found)}]'
    if any(spec.unique_key is not None for spec in command.jobs):
        return Answer(f'{{{job_ids},"created":[{",".join(_JSON[created] for _, created in found)}]}}')
    return Answer(f"{{{job_ids}}}")


def check_amount(context: Context, until: int) -> None:
    """Raise Unavailable once ``unit.chars_read`` has reached ``until``."""
    if context.unit.chars_read >= until:
        raise Unavailable("Too much data at once", "jobs: expected fewer jobs of so much data in one request")


def _create(context: Context, spec: JobSpec, merging: jsontext.Merging) -> tuple[int, bool]:
    """Create a job, unless another one holds its keys; return the jobID, and False if a unique key was held.

    An idempotency key is stored only for a job that is created: a request that finds its unique key held is
    safe to repeat anyway.
    """
    if spec.idempotency_key is None:
        return _create_unique(context, spec, merging)
    since = after_seconds(context.now_ms, -context.unit.records.keys_kept_s)
    records, key, before = context.unit.records, str(spec.own_key), spec.own_key.before
    known = records.job_of_key(key, since) or records.job_of_key(before, since)
    if known is None:
        job_id, created = _create_unique(context, spec, merging)
        if created:
            records.put_key(key, JobOfKey(job_id, spec.name), context.now_ms)
        return job_id, created
    name = known.name or getattr(context.unit.shown(known.job_id), "name", spec.name)
    if name != spec.name:
        raise WrongState(
            "Key is used",
            f"idempotencyKey: it was used for job {known.job_id}, {name}; expected that name, or another key",
        )
    return known.job_id, True


def _create_unique(context: Context, spec: JobSpec, merging: jsontext.Merging) -> tuple[int, bool]:
    """Create a job unless another one holds its unique key, as ``_create`` does."""
    if spec.unique_key is None:
        if spec.unique_for is not None or spec.on_conflict is not None:
            raise BadArguments("Missing uniqueKey", "uniqueKey is required with uniqueFor and onConflict")
        return create(context, spec, merging), True
    if spec.unique:
        raise BadArguments("Malformed uniqueKey", "uniqueKey: expected nothing together with unique")
    try:
        if spec.repeat or spec.retry_after or spec.parent_job_id or context.unit.records.limits():
            _check_first(context, spec)
        return create(context, spec, merging), True
    except _KeyIsHeld as held:
        known, job = held.known, held.job
    if spec.on_conflict == "replace":
        _replace(context, spec, known, job)
    elif spec.on_conflict == "reject":
        until = HeldKey(spec.name, spec.unique_key, known.holds).until_utc
        raise WrongState("Unique key is held", f"uniqueKey: job {known.job_id} holds it {until}")
    return known.job_id, False


class _KeyIsHeld(Exception):
    """Another job holds the unique key of a new job; ``job`` is None if that job is deleted or renamed."""

    def __init__(self, known: JobOfKey, job: Job | None) -> None:
        self.known, self.job = known, job


def _check_first(context: Context, spec: JobSpec) -> None:
    """Raise _KeyIsHeld if the unique key is held.

    The key is checked before the create can be refused because of its schedule or parent, or counts towards a
    limit.
    """
    parent = context.unit.job(spec.parent_job_id) if spec.parent_job_id else None
    mocked = spec.mock_request or is_mock_data(spec.data) if parent is None else parent.mocked
    known = context.unit.records.job_of_key(_stored_key(spec, mocked=mocked), "")
    if known is not None:
        _check_free(context, spec, known)


def _stored_key(spec: JobSpec, *, mocked: bool) -> str:
    """Return the unique key as stored; mocked and real jobs have separate keys."""
    return f"{spec.held_key}\x1fmocked" if mocked else spec.held_key


def held_until(spec: JobSpec, now: str) -> str:
    """Return until when a new job holds its unique key, as stored."""
    holds = spec.unique_for or "finished"
    return holds if isinstance(holds, str) else after_seconds(now, holds)


def _claim_key(context: Context, spec: JobSpec, job_id: int, *, mocked: bool) -> None:
    """Store the unique key of a new job; raise _KeyIsHeld if another job holds it.

    Other jobs are read only if the key is already stored. Storing the key is the first write, after all
    checks.
    """
    holds = held_until(spec, context.now_ms)
    records, key = context.unit.records, _stored_key(spec, mocked=mocked)
    known = records.claim_key(key, job_id, holds, context.now_ms)
    if known is None:
        return
    try:
        _check_free(context, spec, known)
    except _KeyIsHeld:
        context.unit.return_job_id(job_id)
        raise
    records.put_key(key, JobOfKey(job_id, "", holds), context.now_ms)


def _check_free(context: Context, spec: JobSpec, known: JobOfKey) -> None:
    """Raise _KeyIsHeld if ``known``, the job stored as the holder of a key, still holds it."""
    # only a job that will be changed is locked
    job = (context.unit.job if spec.on_conflict == "replace" else context.unit.shown)(known.job_id)
    if job is not None and job.name != spec.name:  # RetryJob may have renamed it
        job = None
    if is_held(known.holds, job, context.now_ms):
        raise _KeyIsHeld(known, job)


def _replace(context: Context, spec: JobSpec, known: JobOfKey, job: Job | None) -> None:
    """Replace data and nextRun of the job that holds a unique key; a repeating job keeps its times."""
    if job is None or not lifecycle.waits_to_start(job):
        raise WrongState(
            "Unique key is held", f"uniqueKey: job {known.job_id} holds it and has started; see uniqueFor"
        )
    context.check_repeats(job, "uniqueKey")
    changed = job._replace(data=keep_mark(spec.data, job))
    if not job.repeat:
        changed = changed._replace(next_run=stamped(spec.first_run, context.now_ms) or context.now_ms)
    if changed != job:
        context.unit.save(placed_if_waiting(job, changed))


def create(
    context: Context,
    spec: JobSpec,
    merging: jsontext.Merging,
    source: str = "",
    place: graph.Place | None = None,
) -> int:
    """Create a job, or update the job with its unique name; return the jobID.

    ``place`` is its place in a workflow.
    """
    priority = spec.wanted_priority
    if spec.repeat:
        known = context.unit.first_of_name(spec.name, mocked=False) if spec.unique else None
        check_new_repeat(context, spec.repeat, known, stamped(spec.first_run, context.now_ms) or None)
    if spec.retry_after:
        check_retry_after(context, spec)
    parent = context.unit.job(spec.parent_job_id) if spec.parent_job_id else None
    mocked = spec.mock_request or is_mock_data(spec.data) if parent is None else parent.mocked
    data, repeat = _as_marked(spec, mocked=mocked)
    if spec.unique:
        existing = context.unit.first_of_name(spec.name, mocked=mocked)
        if existing is not None:
            _update_unique(context, spec, existing, priority, data, repeat, merging)
            return existing.job_id
    if not source and (limits := context.unit.records.limits()):
        context.gates.admit(spec.name, limits, context.unit.records)
    state = _state_of_child(context, spec, parent) if spec.parent_job_id else lifecycle.QUICK_CREATE[2]
    if place is not None and place.waits:
        state = lifecycle.target("create", lifecycle.GONE, "waits for others")
    chosen = bool(source) or place is not None or not _OPTION_FIELDS.isdisjoint(spec.model_fields_set)
    row = Job(
        context.now,
        0 if chosen else context.unit.new_job_id(),
        state,
        spec.name,
        stamped(spec.first_run, context.now_ms)
        if spec.first_run is not None
        else (first_run(context, repeat) if repeat else context.now_ms),
        "",
        repeat,
        data,
        priority,
        spec.parent_job_id,
        spec.retry_after,
        lane=MOCK_LANE if mocked else OPEN_LANE,
    )
    if chosen:
        if place is not None:
            row = row.noting(workflow=place.workflow_id, ref=place.ref)
        checked = _with_options(row, spec, source)  # checked first, so that a refused job uses no ID
        row = checked._replace(job_id=context.unit.new_job_id())
        if ticks.is_schedule(row) and spec.first_run is None:
            row = ticks.with_tick(row, row.next_run)
    elif repeat and spec.first_run is None and ticks.is_schedule(row):
        row = ticks.with_tick(row, row.next_run)
    if spec.unique_key is not None:
        _claim_key(context, spec, row.job_id, mocked=mocked)
    context.unit.insert(row)
    return row.job_id


def _as_marked(spec: JobSpec, *, mocked: bool) -> tuple[str, str]:
    """Return data and repeat of a new job: a mocked job never repeats, a real job has no mock mark."""
    data: str = spec.data
    if mocked:
        return mark_mocked(data), ""
    return jsontext.with_members(data, {"mockRequest": None}) if is_mock_data(data) else data, spec.repeat


def _with_options(row: Job, spec: JobOptions, source: str = "") -> Job:
    changed = row._replace(options_json=changed_options(row.options_json, spec))
    if source:
        changed = changed._replace(
            options_json=jsontext.with_members(changed.options_json, {"source": jsontext.quoted(source)})
        ).noting(defined="" if row.data == "{}" else row.data)
    check_options(changed)
    return placed(changed)


def changed_options(before: str, changes: JobOptions) -> str:
    """Return the column ``options`` with the given changes; an emptied option is removed."""
    chosen = changes.chosen()
    if not chosen:
        return before
    return jsontext.with_members(
        before, {key: None if text == "null" else text for key, text in chosen.items()}
    )


def check_options(row: Job) -> None:
    """Raise BadArguments if the options of a job contradict each other."""
    options = row.options
    own = [name for name in OWN_COMMANDS if getattr(options, name) is not None]
    if len(own) > 1:
        raise BadArguments(f"Malformed {own[1]}", f"{own[1]}: expected nothing together with {own[0]}")
    if options.hosts:
        if not ticks.is_schedule(row):
            raise BadArguments("Malformed hosts", "hosts: expected a schedule, repeat: CRON ...")
        for name in ("lock", "concurrency_key"):
            if getattr(options, name):
                raise BadArguments(
                    "Malformed hosts", f"hosts: expected nothing together with {wire_name(name)}"
                )
    _check_expect(row)
    if row.retry_after and options.lock:
        raise BadArguments("Malformed lock", "lock: expected nothing together with retryAfter; see lease")
    if options.concurrency_key:
        if row.retry_after or options.lock:
            words = f"{'lock' if options.lock else 'retryAfter'}{'' if options.lock else '; see lease'}"
            raise BadArguments(
                "Malformed concurrencyKey", f"concurrencyKey: expected nothing together with {words}"
            )
    elif options.concurrency_limit is not None:
        raise BadArguments(
            "Malformed concurrencyLimit", "concurrencyLimit: expected only together with concurrencyKey"
        )


def _check_expect(row: Job) -> None:
    """Raise BadArguments if ``expect`` is set without a schedule or with options of workers' runs."""
    options = row.options
    if options.expect:
        if not ticks.is_schedule(row):
            raise BadArguments("Malformed expect", "expect: expected a schedule, repeat: CRON ...")
        for name in NOT_WITH_PINGS:
            if getattr(options, name):
                unsuitable = wire_name(name)
                raise BadArguments("Malformed expect", f"expect: expected nothing together with {unsuitable}")


def _state_of_child(context: Context, spec: JobSpec, parent: Job | None) -> str:
    if parent is None:
        raise NotFound("parentJobID does not exist", f"parentJobID: there is no job {spec.parent_job_id}")
    if parent.parent_job_id:
        raise WrongState("Cannot create grandchildren", f"parentJobID: job {parent.job_id} is a child itself")
    if parent.state not in lifecycle.PENDING - {"QUEUED"}:
        raise WrongState(
            "Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED",
            f"parentJobID: job {parent.job_id} is {parent.state}",
        )
    if graph.waits(context, parent):
        raise WrongState(
            "Can only create child job when parent is RUNNING, RUNQUEUED or PAUSED",
            f"parentJobID: job {parent.job_id} waits for others of its workflow",
        )
    if spec.repeat:
        _refuse_repeating_child()
    works = parent.state in lifecycle.WORKING
    return lifecycle.target("create", lifecycle.GONE, *(("parent works",) if works else ()))


def _refuse_repeating_child() -> None:
    """Raise BadArguments for a child that repeats.

    Differs from Bedrock: in Bedrock, a repeating child keeps its parent PAUSED forever.
    """
    raise BadArguments("Child jobs cannot repeat", "repeat: expected nothing together with parentJobID")


def _update_unique(
    context: Context,
    spec: JobSpec,
    existing: Job,
    priority: int,
    data: str,
    repeat: str,
    merging: jsontext.Merging,
) -> None:
    """Update the existing job of a unique name with the values of the command; its nextRun stays."""
    if existing.parent_job_id != spec.parent_job_id:
        raise NotFound(
            "Mismatched parentJobID",
            f"parentJobID: the existing job {existing.job_id} has parent {existing.parent_job_id or 'none'}",
        )
    if not spec.overwrite:
        return
    ours = repeats.is_cron(spec.repeat) or not _OPTION_FIELDS.isdisjoint(spec.model_fields_set)
    if context.compatibility == "current" and data == existing.data and not ours:
        return
    context.check_repeats(existing, "unique")
    if spec.repeat:
        check_combination(context, spec.repeat, existing)
    try:
        data = merging.patched(existing.data, data)
    except ValueError as error:
        raise BadArguments("Data is not a valid JSON Object", f"data: {error}") from None
    if len(data.encode()) > DATA_BYTES_MAX:
        raise BadArguments(
            "Data is not a valid JSON Object", f"data: merged it is over {DATA_BYTES_MAX} bytes"
        )
    changed = existing._replace(repeat=repeat, data=data, priority=priority)
    changed = _with_options(changed, spec)
    if repeat != existing.repeat:
        try:
            changed = repaired(context, with_repeat(context, existing, changed))
        except CannotEvaluate as error:
            raise BadArguments("Malformed repeat", f"repeat: {error}") from None
    context.unit.save(placed_if_waiting(existing, changed))


def first_run(context: Context, repeat: str) -> str:
    """Return the first nextRun of a job without one: now, or the first tick of its schedule."""
    if not repeats.is_cron(repeat):
        return context.now_ms
    return repeats.next_run(repeat, scheduled="", started="", finished=context.now_ms) or repeats.NEVER


def check_repeat(context: Context, text: str, scheduled: str | None = None) -> None:
    """Raise BadArguments for a repeat that cannot be read, or has no date after ``scheduled`` or now.

    Differs from Bedrock: Bedrock stores some repeats that make every FinishJob fail.
    """
    try:
        found = repeats.next_run(
            text,
            scheduled=scheduled or context.now,
            started=context.now,
            finished=context.now,
            compatibility=context.compatibility,
        )
    except ValueError as error:
        raise BadArguments("Malformed repeat", repeats.complaint(error)) from None
    if found is None and repeats.is_cron(text):
        raise BadArguments("Malformed repeat", repeats.complaint(repeats.never_again(text)))
    if found is None:
        raise BadArguments("Malformed repeat", "repeat: expected a date before the year 10000")


def check_new_repeat(context: Context, text: str, row: Job | None, scheduled: str | None = None) -> None:
    """Validate a repeat as ``check_repeat`` does, unless the job already has it."""
    if row is None or row.repeat != text:
        check_repeat(context, text, scheduled)


def check_retry_after(context: Context, spec: JobSpec) -> None:
    """Raise BadArguments or WrongState if a new job cannot have its retryAfter."""
    try:
        found = repeats.later(context.now_ms, repeats.parse_retry_after(spec.retry_after))
    except ValueError as error:
        raise BadArguments("Malformed retryAfter", f"retryAfter: expected {error}") from None
    if found is None:
        raise BadArguments("Malformed retryAfter", "retryAfter: expected a date before the year 10000")
    if spec.repeat and (context.compatibility == "document" or repeats.is_cron(spec.repeat)):
        _refuse_both()
    if context.compatibility == "document" and spec.unique:
        raise WrongState("Cannot use retryAfter with unique", "retryAfter: expected nothing with unique")


def _refuse_both() -> None:
    raise BadArguments("Cannot use retryAfter with repeat", "retryAfter: expected nothing with repeat")


def check_combination(context: Context, repeat: str, row: Job) -> None:
    """Raise BadArguments if a job must not have a repeat."""
    if row.parent_job_id:
        _refuse_repeating_child()
    if row.memory.workflow:
        raise BadArguments("Malformed repeat", "repeat: expected nothing for a job of a workflow")
    if row.retry_after and (context.compatibility == "document" or repeats.is_cron(repeat)):
        _refuse_both()


log = logging.getLogger(__name__)


# The inbox has the jobs that applications created in transactions of their own.
#
# Such a job is a row of the table ``inbox`` until CreateJob's handler creates it, with the same checks, in
# the commit that deletes the row. If CreateJob refuses the job, it becomes a FAILED job with the reason,
# since its creator can no longer be told. If a limit refuses the job, it waits in the inbox.


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
                _create_from(context, row)
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


def _create_from(context: Context, row: InboxRow) -> None:
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
