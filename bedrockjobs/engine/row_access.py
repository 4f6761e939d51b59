"""Row-level security: execute commands for a principal, hide rows outside its scope, and audit changes.

Hidden jobs and runs do not exist for the handler, so its reply is exactly the one for an unknown ID.
"""

from __future__ import annotations

from typing import Any, cast

from bedrockjobs.base.errors import Forbidden
from bedrockjobs.base.principal import Principal, Scope
from bedrockjobs.commands import Command
from bedrockjobs.engine.audit import audited
from bedrockjobs.engine.authorization import check_open
from bedrockjobs.engine.handlers.context import Answer, Context
from bedrockjobs.engine.render import without_data
from bedrockjobs.engine.unit import Outcome
from bedrockjobs.job.rows import Job, RunRow
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
