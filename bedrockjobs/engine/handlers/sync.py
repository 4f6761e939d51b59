"""SyncSchedules: a source's schedules become what its definitions say, in one commit."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import BadArguments, NotFound, WrongState
from bedrockjobs.base.turns import in_turns
from bedrockjobs.commands import JobSpec, SyncSchedules
from bedrockjobs.engine.handlers import families
from bedrockjobs.engine.handlers.change import mended
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.handlers.create import check_options, check_repeat, create
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.handlers.sync_problems import Problems, synced
from bedrockjobs.engine.handlers.trigger import with_next_tick
from bedrockjobs.job import lifecycle
from bedrockjobs.job.placement import placed_if_waiting
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import Plan


@handles(SyncSchedules, plan=lambda _: Plan(everything=True))
def sync_schedules(context: Context, command: SyncSchedules) -> Answer:
    """Add, change and remove a source's schedules; answers their names."""
    specs: dict[str, JobSpec] = {}
    scope = None if context.caller is None else context.caller.scope
    ours = {
        row.name: row
        for row in context.unit.repeating()
        if row.options.source == command.source and (scope is None or scope.sees(row.name))
    }
    problems = Problems("schedules")
    for place, spec in in_turns(enumerate(command.schedules)):
        if not problems.enough:
            with problems.of(place, spec.name):
                _check(context, spec, ours.get(spec.name), command.source, twice=spec.name in specs)
        specs.setdefault(spec.name, spec)
    if not command.dry_run:
        problems.check()
    added = [name for name in specs if name not in ours]
    removed = [name for name in ours if name not in specs] if command.prune else []
    known = in_turns(name for name in specs if name in ours)
    changed = [name for name in known if _differs(ours[name], specs[name], command.source)]
    if not command.dry_run:
        for name in in_turns(added):
            create(context, specs[name], jsontext.Merging(), command.source)
        for name in in_turns(changed):
            _change(context, ours[name], specs[name], command.source)
        for name in in_turns(removed):
            _remove(context, ours[name])
        if added or changed or removed:
            detail = f"{len(added)} added, {len(changed)} changed, {len(removed)} removed"
            context.note("synced", name=command.source, by=command.by, detail=detail)
    others = specs.keys() & ours.keys() - set(changed)
    unchanged = [name for name in specs if name in others]
    return synced(added, changed, removed, unchanged, problems)


def _check(context: Context, spec: JobSpec, row: Job | None, source: str, *, twice: bool) -> None:
    """Refuse what cannot be a schedule of this source; ``row`` is the one of its name that it has."""
    scope = None if context.caller is None else context.caller.scope
    if scope is not None and not scope.sees(spec.name):  # not looked up: of others nothing is said
        raise NotFound("Outside of the token's names", f"name: expected what lies within {scope}")
    if twice:
        raise BadArguments("Malformed schedules", "name: expected a name once")
    if not repeats.is_cron(spec.repeat):
        raise BadArguments("Malformed repeat", "repeat: expected CRON ...")
    if spec.unique or spec.parent_job_id or spec.mock_request or spec.retry_after:
        raise BadArguments(
            "Malformed schedules", "expected no unique, parentJobID, mockRequest or retryAfter"
        )
    check_repeat(context, spec.repeat)
    if row is None and context.unit.named(spec.name, 1):
        raise WrongState("Name is taken", f"name: a job {spec.name} exists that is not of this source")
    new = Job(context.now, 0, lifecycle.QUICK_CREATE[2], spec.name, context.now_ms)
    check_options(_defined_row(row or new, spec, source))


def _wanted(spec: JobSpec, source: str) -> dict[str, str]:
    options = {key: text for key, text in spec.chosen().items() if text != "null"}
    return {**options, "source": jsontext.quoted(source)}


def _defined(spec: JobSpec) -> str:
    return "" if spec.data == "{}" else spec.data


def _differs(row: Job, spec: JobSpec, source: str) -> bool:
    return (
        ("data" in spec.model_fields_set and spec.data != row.data)
        or (row.repeat, row.priority) != (spec.repeat, spec.wanted_priority)
        or jsontext.members(row.options_json) != _wanted(spec, source)
        or row.memory.defined != _defined(spec)
    )


def _defined_row(row: Job, spec: JobSpec, source: str) -> Job:
    """Return a job as its definition says."""
    redefined = "data" in spec.model_fields_set or bool(row.memory.defined)
    return row.noting(defined=_defined(spec))._replace(
        repeat=spec.repeat,
        priority=spec.wanted_priority,
        data=spec.data if redefined else row.data,
        options_json=jsontext.join(_wanted(spec, source)),
    )


def _change(context: Context, row: Job, spec: JobSpec, source: str) -> None:
    changed = _defined_row(row, spec, source)
    if row.state == "QUEUED" and spec.repeat != row.repeat:
        changed = with_next_tick(context, changed)
    context.save(placed_if_waiting(row, mended(context, changed)))


def _remove(context: Context, row: Job) -> None:
    context.note("deleted", name=row.name, job_id=row.job_id, detail="removed from its source")
    if row.state in lifecycle.WORKING:  # it ends with its present run
        options = jsontext.with_members(row.options_json, {"source": None})
        context.save(row.noting(pending=False, removed=True)._replace(repeat="", options_json=options))
        return
    context.save(lifecycle.move(row, "remove"))
    context.unit.records.delete_ticks(row.job_id)
    families.cancel_unstarted_children(context, row)
