"""Access sets: the rows that commands are going to touch, as far as their parameters show.

These are pure functions. An engine with row locks reads and locks all rows of a transaction's plans at once,
in a fixed order. A row that is missing from the plan costs another round trip. SQLite needs no plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from bedrockjobs.commands import (
    FinishJob,
    FinishJobs,
    GetJob,
    GetJobs,
    GetPingSecret,
    JobSpec,
    KillRun,
    PingSchedule,
    TerminateRun,
    TriggerJob,
)
from bedrockjobs.commands.jobs import FinishSpec, RunEnd
from bedrockjobs.commands.take import TakeOptions
from bedrockjobs.job.take_request import Names, TakeRequest, anonymous, names_from
from bedrockjobs.store.base import AccessPlan


def merged(plans: Iterable[AccessPlan]) -> AccessPlan:
    """Return one plan with the rows of all plans."""
    every = list(plans)
    return AccessPlan(
        jobs=tuple(chain.from_iterable(plan.jobs for plan in every)),
        ends=tuple(chain.from_iterable(plan.ends for plan in every)),
        runs=tuple(chain.from_iterable(plan.runs for plan in every)),
        names=tuple(chain.from_iterable(plan.names for plan in every)),
        keys=tuple(chain.from_iterable(plan.keys for plan in every)),
        workflows=tuple(chain.from_iterable(plan.workflows for plan in every)),
        takes=tuple(chain.from_iterable(plan.takes for plan in every)),
        creates=tuple(chain.from_iterable(plan.creates for plan in every)),
        own_jobs=any(plan.own_jobs for plan in every),
        new_jobs=sum(plan.new_jobs for plan in every),
        new_runs=sum(plan.new_runs for plan in every),
        control=any(plan.control for plan in every),
        everything=any(plan.everything for plan in every),
    )


def plan_create(spec: JobSpec) -> AccessPlan:
    """Return the plan for creating one job."""
    return AccessPlan(
        jobs=(spec.parent_job_id,) if spec.parent_job_id else (),
        names=(spec.name,) if spec.unique else (),
        keys=_keys_of(spec),
        creates=(spec.name,),
        new_jobs=1,
    )


def _keys_of(spec: JobSpec) -> tuple[str, ...]:
    if spec.idempotency_key is None and spec.unique_key is None:
        return ()
    found = () if spec.idempotency_key is None else (str(spec.own_key), spec.own_key.before)
    return found if spec.unique_key is None else (*found, spec.held_key)


def plan_take(command: GetJob | GetJobs, limit: int) -> AccessPlan:
    """Return the plan of a take."""
    names = names_from(command.name, tuple(command.names) if command.names else None)
    if names is None:
        return AccessPlan()
    request = request_of(command, names, command.job_priority, limit, "jobs")
    by_worker = bool(command.worker)
    return AccessPlan(takes=(request,), own_jobs=by_worker, new_runs=limit if by_worker else 0)


def plan_ending(command: RunEnd, priority: int | None = None) -> AccessPlan:
    """Return the plan for ending a run, with the take of a ``priority`` that ``thenGet`` adds."""
    plan = _plan_then(command, priority, 1, "then")
    plan.jobs = (command.job_id,)
    plan.runs = (command.run_id,) if command.run_id else ()
    return plan


def _plan_then(command: RunEnd | FinishJobs, priority: int | None, limit: int, shape: str) -> AccessPlan:
    """Return the plan for the take of ``thenGet``; empty if the command has none."""
    names = names_from(command.then_get, None) if command.then_get else None
    if names is None:
        return AccessPlan()
    by_worker = bool(command.worker)
    request = request_of(command, names, priority, limit, shape)
    return AccessPlan(takes=(request,), own_jobs=by_worker, new_runs=limit if by_worker else 0)


def plan_finish(command: FinishJob) -> AccessPlan:
    """Return the plan for finishing a run, after which most jobs are deleted."""
    plan = plan_ending(command, command.job_priority)
    if _may_remove(command) and bool(plan.takes) == bool(command.then_get):  # otherwise it is refused
        plan.jobs, plan.ends = (), plan.jobs
    return plan


def plan_finishes(command: FinishJobs) -> AccessPlan:
    """Return the plan for finishing several runs."""
    plan = _plan_then(command, command.job_priority, command.num_results, "then jobs")
    jobs = tuple(spec.job_id for spec in command.jobs)
    if all(map(_may_remove, command.jobs)) and bool(plan.takes) == bool(command.then_get):
        plan.ends = jobs
    else:
        plan.jobs = jobs
    return plan


def _may_remove(end: FinishJob | FinishSpec) -> bool:
    return end.run_id is None and (end.data is None or '"mockRequest"' not in end.data)


def request_of(
    command: TakeOptions, names: Names, priority: int | None, limit: int, shape: str
) -> TakeRequest:
    """Return the take request of a command."""
    if command.worker is None and not command.accepts:
        return anonymous(names, priority, limit, shape, mocked=command.wants_mocked)
    return TakeRequest(
        names,
        command.wants_mocked,
        priority,
        command.worker,
        limit,
        shape,
        tuple(sorted(command.accepts)),
        command.heartbeat,
        command.run_token,
        command.host,
        command.pid,
    )


def plan_by_name(command: TriggerJob | TerminateRun | KillRun | PingSchedule | GetPingSecret) -> AccessPlan:
    """Return the plan of a command that has a jobID or a name, and possibly a runID."""
    run_id = getattr(command, "run_id", None)
    return AccessPlan(
        jobs=(command.job_id,) if command.job_id else (),
        runs=(run_id,) if run_id else (),
        names=(command.name,) if command.name else (),
    )
