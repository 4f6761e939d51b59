"""Commands of the writer that are done for somebody: what they do not see is not there, and what operators
change is written to the audit, in the same commit.

Whatever a command names by its number that belongs to another name is hidden from its handler alone. So the
answer is the handler's own, word for word that of a number which nobody has.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from bedrockjobs.base.caller import Caller, Scope
from bedrockjobs.base.errors import Forbidden
from bedrockjobs.commands import Command, CreateJobs, DeleteRuns, FinishJobs, MarkSeen, RequeueJobs
from bedrockjobs.engine.audit import audited
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.of_run import check_open
from bedrockjobs.engine.render import without_data
from bedrockjobs.engine.unit import Outcome
from bedrockjobs.job.rows import Job, RunRow
from bedrockjobs.store.base import Unit


def perform_for(caller: Caller, context: Context, command: Command[Any], *, careful: bool = False) -> Outcome:
    """Do a command for somebody, as ``perform`` does."""
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
        context.unit = hidden
    return audited(context, command, careful=careful)


class _Naming(NamedTuple):
    """What a kind of command may name."""

    jobs: tuple[str, ...]
    """Its fields with one jobID each."""
    run: bool
    name: bool
    many: bool
    """Whether it names several jobs or runs."""


@cache
def _naming(kind: type[Command[Any]]) -> _Naming:
    """Return what a kind of command may name: to ask each time for a field that is not there costs much."""
    fields = kind.model_fields
    jobs = tuple(field for field in ("job_id", "parent_job_id") if field in fields)
    return _Naming(jobs, "run_id" in fields, "name" in fields, kind in _SEVERAL)


_SEVERAL = frozenset({CreateJobs, FinishJobs, RequeueJobs, MarkSeen, DeleteRuns})


def _hidden(context: Context, command: Command[Any], scope: Scope) -> Hiding | None:
    """Return the unit without what a command names that is not seen; None where it sees all of it."""
    naming = _naming(type(command))
    jobs: set[int] = set()
    runs: set[int] = set()
    if naming.jobs or naming.many:
        named = [getattr(command, field) for field in naming.jobs]
        named += _several(command) if naming.many else []
        jobs = {job_id for job_id in named if job_id and not _sees_job(context, job_id, scope)}
    if naming.run or naming.many:
        given = [getattr(command, "run_id")] if naming.run else []  # noqa: B009
        given += command.run_ids if isinstance(command, MarkSeen | DeleteRuns) else []
        runs = {run_id for run_id in given if run_id and not _sees_run(context, run_id, scope)}
    name: str | None = getattr(command, "name") if naming.name else None  # noqa: B009
    names: set[str] = set() if name is None or scope.sees(name) else {name}
    return Hiding(context.unit, jobs, runs, names) if jobs or runs or names else None


def _several(command: Command[Any]) -> list[int]:
    """Return the jobIDs in a list."""
    if isinstance(command, CreateJobs):
        return [spec.parent_job_id for spec in command.jobs]
    if isinstance(command, FinishJobs):
        return [spec.job_id for spec in command.jobs]
    return command.job_ids if isinstance(command, RequeueJobs | MarkSeen) else []


def _sees_job(context: Context, job_id: int, scope: Scope) -> bool:
    job = context.unit.job(job_id)
    return job is None or scope.sees(job.name)


def _sees_run(context: Context, run_id: int, scope: Scope) -> bool:
    run = context.unit.records.run(run_id)
    return run is None or scope.sees(run.name)


class Hiding:
    """An open unit in which some jobs, runs and names are not to be found; all else is passed on."""

    def __init__(self, unit: Unit, jobs: set[int], runs: set[int], names: set[str]) -> None:
        """Hide these of ``unit``."""
        self._unit, self._jobs, self._names = unit, jobs, names
        self.records = HidingRecords(unit.records, runs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)

    def job(self, job_id: int) -> Job | None:
        """Return a job that is not hidden."""
        return None if job_id in self._jobs else self._unit.job(job_id)

    def shown(self, job_id: int) -> Job | None:
        """Return a job that is not hidden."""
        return None if job_id in self._jobs else self._unit.shown(job_id)

    def delete_plain(self, job_id: int) -> bool:
        """Remove a job that is not hidden."""
        return job_id not in self._jobs and self._unit.delete_plain(job_id)

    def named(self, name: str, limit: int) -> list[Job]:
        """Return the first jobs of a name that is not hidden."""
        return [] if name in self._names else self._unit.named(name, limit)


class HidingRecords:
    """The tables beside jobs, without some runs."""

    def __init__(self, records: Any, runs: set[int]) -> None:
        """Hide these of ``records``."""
        self._records, self._runs = records, runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)

    def run(self, run_id: int) -> RunRow | None:
        """Return a run that is not hidden."""
        found: RunRow | None = None if run_id in self._runs else self._records.run(run_id)
        return found
