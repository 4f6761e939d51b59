"""SyncSchedules: a source's schedules become what its definitions say, in one commit."""

from __future__ import annotations

from bedrockjobs.base import jsontext
from bedrockjobs.base.errors import BadArguments, WrongState
from bedrockjobs.commands import JobSpec, SyncSchedules
from bedrockjobs.engine.handlers import families
from bedrockjobs.engine.handlers.context import SHOWN, Answer, Context
from bedrockjobs.engine.handlers.create import check_options, check_repeat, create
from bedrockjobs.engine.handlers.job_options import with_options, word, written
from bedrockjobs.engine.handlers.registry import handles
from bedrockjobs.engine.handlers.trigger import with_next_tick
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats

OURS = SHOWN | {"defined"}
"""What a source says of a job's options; ``defined`` is the data of its definition, which runs may change."""


@handles(SyncSchedules)
def sync_schedules(context: Context, command: SyncSchedules) -> Answer:
    """Add, change and remove a source's schedules; answers their names."""
    specs = _checked(context, command)
    ours = {row.name: row for row in context.tx.repeating() if word(row, "source", "") == command.source}
    for name in specs.keys() - ours.keys():
        if context.tx.named(name, 1):
            raise WrongState("Name is taken", f"schedules: a job {name} exists that is not of this source")
    added = [name for name in specs if name not in ours]
    removed = [name for name in ours if name not in specs]
    changed = [name for name in specs if name in ours and _differs(ours[name], specs[name], command.source)]
    if not command.dry_run:
        for name in added:
            create(context, specs[name], command.source)
        for name in changed:
            _change(context, ours[name], specs[name], command.source)
        for name in removed:
            _remove(context, ours[name])
        if added or changed or removed:
            detail = f"{len(added)} added, {len(changed)} changed, {len(removed)} removed"
            context.note("synced", name=command.source, by=command.by, detail=detail)
    unchanged = [name for name in specs if name in ours and name not in changed]
    return Answer(
        jsontext.dump({"added": added, "changed": changed, "removed": removed, "unchanged": unchanged})
    )


def _checked(context: Context, command: SyncSchedules) -> dict[str, JobSpec]:
    specs: dict[str, JobSpec] = {}
    for place, spec in enumerate(command.schedules):
        if spec.name in specs:
            raise BadArguments("Malformed schedules", f"schedules.{place}.name: expected a name once")
        if not repeats.is_cron(spec.repeat):
            raise BadArguments("Malformed repeat", f"schedules.{place}.repeat: expected CRON ...")
        if spec.unique or spec.parent_job_id or spec.mock_request or spec.retry_after:
            raise BadArguments(
                "Malformed schedules",
                f"schedules.{place}: expected no unique, parentJobID, mockRequest or retryAfter",
            )
        check_repeat(context, spec.repeat)
        specs[spec.name] = spec
    return specs


def _wanted(spec: JobSpec, source: str) -> dict[str, str]:
    options = {key: text for key, text in spec.chosen().items() if text != "null"}
    if spec.data != "{}":
        options["defined"] = spec.data
    return {**options, "source": jsontext.quoted(source)}


def _differs(row: Job, spec: JobSpec, source: str) -> bool:
    ours = {key: text for key, text in jsontext.members(row.options).items() if key in OURS}
    return (
        ("data" in spec.model_fields_set and spec.data != row.data)
        or (row.repeat, row.priority) != (spec.repeat, spec.wanted_priority)
        or ours != _wanted(spec, source)
    )


def _change(context: Context, row: Job, spec: JobSpec, source: str) -> None:
    before = jsontext.members(row.options)
    kept = {key: text for key, text in before.items() if key not in OURS}
    redefined = "data" in spec.model_fields_set or "defined" in before
    changed = row._replace(
        repeat=spec.repeat,
        priority=spec.wanted_priority,
        data=spec.data if redefined else row.data,
        options=jsontext.join({**_wanted(spec, source), **kept}),
    )
    check_options(changed, row.retry_after)
    if row.state == "QUEUED" and spec.repeat != row.repeat:
        changed = with_next_tick(context, changed)
    context.tx.save(written(row, changed))


def _remove(context: Context, row: Job) -> None:
    context.note("deleted", name=row.name, job_id=row.job_id, detail="removed from its source")
    if row.state == "RUNNING":  # it ends with its present run
        gone: dict[str, str | None] = {"source": None, "pending": None, "removed": "true"}
        context.tx.save(with_options(row, gone)._replace(repeat=""))
        return
    context.tx.delete(row.job_id)
    context.tx.records.delete_ticks(row.job_id)
    families.cancel_unstarted_children(context, row)
