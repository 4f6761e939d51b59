"""SyncSchedules: make a source's schedules equal to its definitions in one commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

from bedrockjobs.base import jsontext
from bedrockjobs.base.background import in_slices
from bedrockjobs.base.clock import SECONDS, after_seconds
from bedrockjobs.base.config import DECLARERS_KEPT_MAX, REDECLARE_S, SCHEDULE_GRACE_S, VERSIONS_KEPT_MAX
from bedrockjobs.base.errors import BadArguments, CommandError, NotFound, WrongState
from bedrockjobs.commands import JobSpec, SyncSchedules
from bedrockjobs.commands.schedules import SYNC_PROBLEMS_MAX
from bedrockjobs.engine.handlers import families, ticks
from bedrockjobs.engine.handlers.context import Answer, Context, handles
from bedrockjobs.engine.handlers.create import check_options, check_repeat, create
from bedrockjobs.engine.handlers.failing import repaired
from bedrockjobs.engine.handlers.ticks import with_repeat
from bedrockjobs.job import lifecycle
from bedrockjobs.job.eligibility import placed_if_waiting
from bedrockjobs.job.rows import Job
from bedrockjobs.schedule import repeat as repeats
from bedrockjobs.store.base import AccessPlan

# Which versions of a source's schedules live workers declare, and since when a schedule is undeclared.
#
# During a rolling restart, workers of several versions of one module run side by side. Each set of schedules
# that a worker declares is a version. A newer version outranks an older one while a worker of the newer
# version is alive, however often workers of the older version restart.


UNKNOWN = ""
"""Digest of a version that stands for the schedules that no known version declares, such as those of an older
release."""


class Version(NamedTuple):
    """A set of schedules that workers declare or declared."""

    digest: str
    names: frozenset[str]
    workers: tuple[str, ...] = ()
    """Some of the live workers that declare it: one is enough to keep it alive."""
    gone: str = ""
    """When it was first seen without live workers; empty if it has some."""


class Declarations:
    """The versions of one source, in the order of their first declaration."""

    def __init__(self, text: str | None) -> None:
        """Parse stored declarations; ``text`` is None if none are stored yet."""
        self._versions = [
            Version(digest, frozenset(names), tuple(workers), gone)
            for digest, names, workers, gone in json.loads(text or "[]")
        ]
        self._before = {version.digest for version in self._versions if version.gone}

    @property
    def text(self) -> str:
        """Return the declarations as JSON, to be stored."""
        return json.dumps(
            [
                [version.digest, sorted(version.names), list(version.workers), version.gone]
                for version in self._versions
            ],
            ensure_ascii=False,
            separators=(",", ":"),
        )

    def update_live(self, is_live: Callable[[str], bool], now: str) -> None:
        """Drop workers that are gone, and record which versions lost their last worker."""
        for place, version in enumerate(self._versions):
            workers = tuple(filter(is_live, version.workers))
            gone = "" if workers else version.gone or now
            self._versions[place] = version._replace(workers=workers, gone=gone)

    def declare(self, worker: str, digest: str, names: Iterable[str]) -> None:
        """Record that a live worker declares exactly these schedules."""
        for place, version in enumerate(self._versions):
            others = tuple(name for name in version.workers if name != worker)
            self._versions[place] = version._replace(workers=others)
        known = [version.digest for version in self._versions]
        if digest not in known:
            self._versions.append(Version(digest, frozenset(names), (worker,)))
            return
        place = known.index(digest)
        version = self._versions[place]
        # The new worker goes first: if all others are gone, it keeps the version alive.
        workers = (worker, *version.workers)[:DECLARERS_KEPT_MAX]
        self._versions[place] = Version(digest, frozenset(names), workers)

    def add_undeclared(self, names: Iterable[str], now: str) -> frozenset[str]:
        """Record the ``names`` that are in no version as undeclared since ``now``; return them."""
        strangers = frozenset(names).difference(*(version.names for version in self._versions))
        if strangers:
            known = [version for version in self._versions if version.digest != UNKNOWN]
            self._versions = [Version(UNKNOWN, strangers | self._named(UNKNOWN), gone=now), *known]
        return strangers

    def declared(self, newer_than: str | None = None) -> frozenset[str]:
        """Return the names that live workers declare, optionally only in versions newer than a digest."""
        first = 0
        if newer_than is not None:
            first = 1 + next(at for at, version in enumerate(self._versions) if version.digest == newer_than)
        return frozenset[str]().union(
            *(version.names for version in self._versions[first:] if version.workers)
        )

    def undeclared_since(self, name: str) -> str:
        """Return when a schedule was first seen without a live worker that declares it."""
        return max((version.gone for version in self._versions if name in version.names), default="")

    def just_gone(self) -> frozenset[str]:
        """Return the names of the versions that lost their last worker after this object was loaded."""
        gone = (version for version in self._versions if version.gone and version.digest not in self._before)
        return frozenset[str]().union(*(version.names for version in gone))

    def forget(self, existing: Iterable[str]) -> None:
        """Drop schedules that no longer exist, and the oldest versions without workers.

        Other versions without workers keep their place for a while: if a worker of such a version comes back,
        the version does not count as new.
        """
        existing_names = frozenset(existing)
        versions = [
            version._replace(names=version.names & existing_names) if version.gone else version
            for version in self._versions
        ]
        versions = [version for version in versions if version.digest != UNKNOWN or version.names]
        gone = [version for version in versions if version.gone]
        dropped = {version.digest for version in gone[: max(len(gone) - VERSIONS_KEPT_MAX, 0)]}
        self._versions = [version for version in versions if version.digest not in dropped]

    def _named(self, digest: str) -> frozenset[str]:
        return next((version.names for version in self._versions if version.digest == digest), frozenset())


# Problems of single entries of a sync: a dry run reports all of them, a real run fails on the first.


class Problems:
    """Collects the errors and warnings about single entries of a sync."""

    def __init__(self, what: str) -> None:
        """Start empty; ``what`` is the attribute that lists the entries."""
        self._what = what
        self._found: list[tuple[int, str, CommandError]] = []
        self.warnings: list[dict[str, object]] = []
        """Warnings about accepted entries, as shown in the reply."""

    @property
    def limit_reached(self) -> bool:
        """Return True if the maximum number of reported problems is reached."""
        return len(self._found) >= SYNC_PROBLEMS_MAX

    def warner(self, place: int, name: str) -> Callable[[str], None]:
        """Return a function that adds a warning about the entry."""

        def warn(detail: str) -> None:
            if len(self.warnings) < SYNC_PROBLEMS_MAX:
                self.warnings.append({"place": place, "name": name, "detail": detail})

        return warn

    @contextmanager
    def collecting(self, place: int, name: str) -> Iterator[None]:
        """Collect a CommandError raised inside the context, for the given entry."""
        try:
            yield
        except CommandError as error:
            self._found.append((place, name, error))

    def check(self) -> None:
        """Raise the first error, if any, with the position of its entry and the number of further errors."""
        if self._found:
            place, _, first = self._found[0]
            at = f"{self._what}.{place}"
            where = f"{at}: " if first.detail.startswith("expected ") else f"{at}."
            more = f"; dryRun reports {len(self._found) - 1} more" if len(self._found) > 1 else ""
            raise type(first)(first.reason, f"{where}{first.detail}{more}")

    def reported(self) -> list[dict[str, object]]:
        """Return the errors as shown in the reply."""
        return [
            {"place": place, "name": name, "reason": error.reason, "detail": error.detail}
            for place, name, error in self._found
        ]


def synced(
    added: list[str],
    changed: list[str],
    removed: list[str],
    unchanged: list[str],
    problems: Problems,
    **more: object,
) -> Answer:
    """Return the reply of a sync; empty members of ``more`` are left out."""
    found = {"added": added, "changed": changed, "removed": removed, "unchanged": unchanged}
    text = {
        name: value
        for name, value in {**more, "problems": problems.reported(), "warnings": problems.warnings}.items()
        if value
    }
    return Answer(jsontext.dump({**found, **text}))


@handles(SyncSchedules, plan=lambda _: AccessPlan(everything=True))
def sync_schedules(context: Context, command: SyncSchedules) -> Answer:
    """Add, change and remove a source's schedules; reply with their names."""
    specs: dict[str, JobSpec] = {}
    ours = {
        row.name: row
        for row in context.unit.repeating()
        if row.options.source == command.source and context.sees(row.name)
    }
    problems = Problems("schedules")
    restored: set[str] = set()
    for place, spec in in_slices(enumerate(command.schedules)):
        if spec.name not in ours and context.sees(spec.name):
            there = _to_take(context, spec.name, take_over=command.take_over)
            if there is not None:
                ours[spec.name] = there
                if there.memory.removed:
                    restored.add(spec.name)
        if not problems.limit_reached:
            with problems.collecting(place, spec.name):
                _check(
                    context,
                    spec,
                    ours.get(spec.name),
                    command.source,
                    problems.warner(place, spec.name),
                    twice=spec.name in specs,
                )
        specs.setdefault(spec.name, spec)
    if not command.dry_run:
        problems.check()
    declared = Declarations(context.unit.records.declared(command.source))
    before = declared.text
    outranked = _declare(context, command, specs, declared) if command.worker else frozenset[str]()
    added = [name for name in specs if name not in ours or name in restored]
    both = in_slices(name for name in specs if name in ours and name not in restored)
    differs = [name for name in both if _differs(ours[name], specs[name], command.source)]
    changed = [name for name in differs if name not in outranked]
    kept = [name for name in differs if name in outranked]
    removed, undeclared = _left_over(context, command, declared, [name for name in ours if name not in specs])
    known = {*specs, *removed, *undeclared}
    kept += [name for name in ours if name not in known]
    if not command.dry_run:
        for name in in_slices(added):
            if name in restored:
                _change(context, ours[name].noting(removed=False), specs[name], command.source)
            else:
                create(context, specs[name], jsontext.Merging(), command.source)
        for name in in_slices(changed):
            _change(context, ours[name], specs[name], command.source)
        for name in in_slices(removed):
            _remove(context, ours[name])
        declared.forget((ours.keys() | specs.keys()) - set(removed))
        if declared.text != before:
            context.unit.records.put_declared(command.source, declared.text)
        if added or changed or removed:
            detail = f"{len(added)} added, {len(changed)} changed, {len(removed)} removed"
            context.note("synced", name=command.source, by=command.by, detail=detail)
    others = specs.keys() & ours.keys() - set(differs) - restored
    unchanged = [name for name in specs if name in others]
    # The interval grows with the workers, so that together they send about one declaration a second
    again = min(REDECLARE_S + len(context.presence.workers), 600) if command.worker else 0
    return synced(
        added,
        changed,
        removed,
        unchanged,
        problems,
        kept=kept if command.prune else [],
        undeclared=undeclared,
        again=again,
    )


def _declare(
    context: Context, command: SyncSchedules, specs: dict[str, JobSpec], declared: Declarations
) -> frozenset[str]:
    """Record the schedules that a worker declares; return those that workers of newer versions declare."""
    text = [
        [name, spec.repeat, spec.wanted_priority, sorted(_wanted(spec, "").items()), _defined(spec)]
        for name, spec in sorted(specs.items())
    ]
    # Length of the digest of a source's version: 128 bits of SHA-256.
    digest = sha256(jsontext.dump(text).encode()).hexdigest()[:32]
    declared.declare(command.worker, digest, specs)
    _update_live_workers(context, declared, command.worker)
    return declared.declared(newer_than=digest)


def _update_live_workers(context: Context, declared: Declarations, worker: str) -> None:
    """Update which declaring workers are alive; after a restart, workers have some time to reconnect."""
    live = context.presence.workers
    # Longer than the lease of workers, so that each has sent a heartbeat by then
    settling = bool(context.since) and context.now_ms < after_seconds(context.since, 60)
    declared.update_live(lambda name: settling or name == worker or name in live, context.now_ms)


def _left_over(
    context: Context, command: SyncSchedules, declared: Declarations, names: list[str]
) -> tuple[list[str], list[str]]:
    """Split the schedules that the command lacks: return which to remove now, and which to remove later.

    A schedule that a live worker declares is never removed. A schedule that no worker declares any more is
    removed at once if a person sends the command. If a worker sends it, the schedule is removed after a grace
    period, since another worker may come back.
    """
    if not command.worker:
        _update_live_workers(context, declared, "")
    alive = declared.declared()
    free = [name for name in names if name not in alive] if command.prune else []
    if not command.worker:
        return free, []
    newly_undeclared = declared.add_undeclared(free, context.now_ms) | declared.just_gone()
    over = after_seconds(context.now_ms, -SCHEDULE_GRACE_S)
    removed = [name for name in free if declared.undeclared_since(name) <= over]
    gone = set(removed)
    later = [name for name in free if name not in gone]
    if not command.dry_run:
        until = after_seconds(context.now_ms, SCHEDULE_GRACE_S)[:SECONDS]
        detail = f"no live worker of {command.source} declares it; it is removed at {until}"
        for name in in_slices(name for name in later if name in newly_undeclared):
            context.note("undeclared", name=name, by=command.by, detail=detail)
    return removed, later


def _to_take(context: Context, name: str, *, take_over: bool) -> Job | None:
    """Return an existing schedule of the name for the sync to adopt, or None.

    The schedule must have been removed from its source while it still runs. With ``take_over`` it may also
    belong to another source, or have been added by hand.
    """
    found = context.unit.named(name, 2)
    if len(found) != 1:
        return None
    (row,) = found
    return row if row.memory.removed or (take_over and ticks.is_schedule(row)) else None


def _check(
    context: Context, spec: JobSpec, row: Job | None, source: str, warn: Callable[[str], None], *, twice: bool
) -> None:
    """Validate a schedule; ``row`` is the existing schedule of the same name and source, if any."""
    if not context.sees(spec.name):  # no lookup, which could reveal other names
        raise NotFound("Outside of the token's names", f"name: expected names within {context.scope}")
    if twice:
        raise BadArguments("Malformed schedules", "name: expected a name once")
    if not repeats.is_cron(spec.repeat):
        raise BadArguments("Malformed repeat", "repeat: expected CRON ...")
    if spec.unique or spec.unique_key or spec.parent_job_id or spec.mock_request or spec.retry_after:
        raise BadArguments(
            "Malformed schedules", "expected no unique, uniqueKey, parentJobID, mockRequest or retryAfter"
        )
    _check_repeat(context, spec.repeat, row, warn)
    if row is None and (there := context.unit.named(spec.name, 1)):
        raise WrongState("Name is taken", f"name: {_whose(there[0])}")
    new = Job(context.now, 0, lifecycle.QUICK_CREATE[2], spec.name, context.now_ms)
    check_options(_defined_row(row or new, spec, source))


def _check_repeat(context: Context, repeat: str, row: Job | None, warn: Callable[[str], None]) -> None:
    """Validate a repeat; if the schedule already has it, only warn that it is invalid."""
    try:
        check_repeat(context, repeat)
    except BadArguments as error:
        if row is None or repeat not in (row.repeat, *(former for former, _ in row.memory.formers)):
            raise
        warn(f"{error.detail}; the schedule is kept as it is")


def _whose(row: Job) -> str:
    """Return text that says who owns the name, and how to take it over."""
    if not ticks.is_schedule(row):
        return f"job {row.job_id} has this name and is no schedule ({row.state})"
    owner = (
        f"it belongs to the source {row.options.source!r}" if row.options.source else "it was added by hand"
    )
    return f"{owner} (job {row.job_id}); takeOver moves it to this source"


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
    """Return a schedule with the values that its source defines."""
    redefined = "data" in spec.model_fields_set or bool(row.memory.defined)
    return row.noting(defined=_defined(spec))._replace(
        repeat=spec.repeat,
        priority=spec.wanted_priority,
        data=spec.data if redefined else row.data,
        options_json=jsontext.join(_wanted(spec, source)),
    )


def _change(context: Context, row: Job, spec: JobSpec, source: str) -> None:
    changed = _defined_row(row, spec, source)
    if spec.repeat != row.repeat:
        changed = with_repeat(context, row, changed)
    context.save(placed_if_waiting(row, repaired(context, changed)))


def _remove(context: Context, row: Job) -> None:
    context.note("deleted", name=row.name, job_id=row.job_id, detail="removed from its source")
    if row.state in lifecycle.WORKING:  # deleted after its current run, unless it is defined again before
        options = jsontext.with_members(row.options_json, {"source": None})
        removed = row._replace(repeat="", options_json=options)
        context.save(ticks.with_former(context, removed, row.repeat).noting(pending=False, removed=True))
        return
    context.save(lifecycle.move(row, "remove"))
    context.unit.records.delete_ticks(row.job_id)
    families.cancel_unstarted_children(context, row)
