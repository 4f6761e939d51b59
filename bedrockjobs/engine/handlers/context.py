"""The context in which handlers run, their reply, the registry of handlers, and access plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from itertools import chain
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeVar

from bedrockjobs.base.clock import SECONDS, SystemClock, timestamp_ms
from bedrockjobs.base.errors import CommandError, Forbidden, fingerprint_of
from bedrockjobs.base.principal import Principal, Scope
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.commands import (
    Command,
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
from bedrockjobs.engine.events import Event, EventLogged, JobsCreated, JobsFinished, JobsTaken
from bedrockjobs.engine.handlers import graph
from bedrockjobs.engine.rate_limits import RateLimiter
from bedrockjobs.engine.workers import WorkerDirectory
from bedrockjobs.job.lifecycle import GONE
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import Names, TakeRequest, anonymous, names_from
from bedrockjobs.store.base import AccessPlan, InMemory, Unit


class Context:
    """One open transaction, with one time for all of its commands."""

    caller: Principal | None = None
    """The principal of the current command; None if the command is not limited by one."""
    by = ""
    """The name of the token of the current command, or empty."""

    def __init__(
        self,
        unit: Unit,
        compatibility: Compatibility,
        presence: WorkerDirectory,
        *,
        moment: datetime | None = None,
        since: str = "",
        seen: str = "",
        parts: Sequence[InMemory] = (),
        gates: RateLimiter | None = None,
    ) -> None:
        """Work in ``unit``; the server started at ``since``, its predecessor was last alive at ``seen``."""
        self.unit = unit
        self.moment = unit.moment if moment is None else moment
        self.now_ms = timestamp_ms(self.moment)
        self.now = self.now_ms[:SECONDS]
        self.compatibility = compatibility
        self.presence = presence
        """The live workers, which handlers only read: events update them after the commit."""
        self.since = since
        self.seen = seen
        self.gates = gates or RateLimiter(SystemClock(), shared=False)
        """The rate limiter for creates."""
        self.parts = parts
        """In-memory state to undo with a unit of work, in addition to the events and the unit's own.

        The context is not in this list: a reference cycle would keep each transaction until garbage
        collection.
        """
        self.created: list[str] = []
        """The name of each job created in this transaction."""
        self.taken: list[tuple[str, str]] = []
        """The name of each job taken, and when it was due."""
        self.finished: list[str] = []
        """The name of each job finished."""
        self.outcomes: list[tuple[Any, Answer | CommandError]] = []
        """Submissions with their replies, to be sent after the commit."""
        self.events: list[Event] = []
        """Events to publish after the commit."""
        self.emit: Callable[[Event], None] = self.events.append
        """Add an event."""

    def emit_counts(self) -> None:
        """Add the events for the jobs created, taken and finished in this transaction."""
        if self.created:
            self.emit(JobsCreated(self.created))
        if self.taken:
            self.emit(JobsTaken(self.taken, self.now_ms))
        if self.finished:
            self.emit(JobsFinished(self.finished))

    def note(
        self, kind: str, *, name: str = "", job_id: int = 0, run_id: int = 0, by: str = "", detail: str = ""
    ) -> None:
        """Add an event that users can follow, and write it to the table ``events``."""
        if self.caller is not None:
            by = self.caller.name or by
        event = EventLogged(kind, name, job_id, run_id, by, detail)
        self.unit.records.add_event(self.now_ms, event)
        self.events.append(event)

    @property
    def scope(self) -> Scope | None:
        """Return the names that the sender of the current command may see; None for all names."""
        return None if self.caller is None else self.caller.scope

    def sees(self, name: str) -> bool:
        """Return whether the sender of the current command may see a name."""
        scope = self.scope
        return scope is None or scope.covers(name)

    def check_repeats(self, job: Job, place: str) -> None:
        """Raise Forbidden if a job repeats and the caller is no operator; ``place`` is the field to blame."""
        if job.repeat and self.caller is not None and "operate" not in self.caller.grant.roles:
            raise Forbidden(
                detail=f"{place}: job {job.job_id} repeats, and needs the role operate to be changed"
            )

    def save(self, job: Job, result: str | None = None) -> None:
        """Store a job after a transition; delete it if its state is ``GONE``.

        ``result`` is what the job reported if it has finished and does not run again.
        """
        if job.state == GONE:
            self.unit.delete(job.job_id)
        else:
            self.unit.save(job)
            if job.state == "FAILED":
                self.add_failure("job", job.job_id, job.name, job.memory.error or "")
        if job.memory_json != "{}" and job.memory.workflow:
            graph.moved(self, job, result)

    def add_failure(self, kind: Literal["job", "run"], number: int, name: str, error: str) -> None:
        """Store the fingerprint of a failed job or run; if a mute covers the failure, mark it as seen.

        The mark has the time of the failure's events to the millisecond: rules do not send those.
        """
        records = self.unit.records
        fingerprint = fingerprint_of(error)
        records.put_fingerprint(kind, number, fingerprint)
        for mute in records.mutes():
            if (
                mute.fingerprint == fingerprint
                and mute.covers(name, self.now_ms)
                and not mute.is_new(self._release_of(kind, number))
            ):
                records.see_muted(kind, number, mute.by, self.now_ms)
                return

    def _release_of(self, kind: Literal["job", "run"], number: int) -> str:
        """Return the version of the worker of a failed run, or of the run that made a job FAILED.

        Empty if it is unknown.
        """
        records = self.unit.records
        run_id = records.last_failed_run(number) if kind == "job" else number
        run = None if run_id is None else records.read_run(run_id)
        worker = None if run is None else self.presence.workers.get(run.worker)
        return "" if worker is None else worker.version

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int, int, int, int]:
        """Return the number of events, replies and counted jobs."""
        return len(self.events), len(self.outcomes), len(self.created), len(self.taken), len(self.finished)

    def undo(self, mark: tuple[int, int, int, int, int]) -> None:
        """Discard the events, replies and counts since a mark."""
        events, outcomes, created, taken, finished = mark
        del self.events[events:]
        del self.outcomes[outcomes:]
        del self.created[created:]
        del self.taken[taken:]
        del self.finished[finished:]

    def forget(self) -> None:
        """Discard all events, replies and counts."""
        self.created.clear()
        self.taken.clear()
        self.finished.clear()
        self.events.clear()
        self.outcomes.clear()


class Taken(NamedTuple):
    """A taken job: its row before and after, so that the take can be undone."""

    before: Job
    after: Job


@dataclass(slots=True)
class Answer:
    """The reply of a command: JSON text (empty: no body), and the jobs it took."""

    body: str = ""
    taken: Sequence[Taken] = ()
    waits_for: TakeRequest | None = None
    """Set if the command was executed but its reply waits for a job."""
    searching: bool = False
    """Whether the reply waits, even if the client does not want to, because the store still searches."""
    media: str = "application/json"
    """The media type of the body; only Query uses others."""


# The registry of handlers: ``@handles(TheCommand)`` registers the function for a command. The first argument
# of a handler depends on where the command runs (``Command.where``): the ``Context`` of the open transaction
# for the writer, ``Views`` for the reader, else the ``Service``.


Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Command[Any]], Handler] = {}
"""The handler of each command, once its module has been imported."""

PLANS: dict[type[Command[Any]], Callable[[Any], AccessPlan]] = {}
"""Functions that return the access set of a command of the writer, as far as its parameters show the rows."""


def handles(
    command_class: type[Command[Any]], plan: Callable[[Any], AccessPlan] | None = None
) -> Callable[[H], H]:
    """Register a function as the handler of a command; ``plan`` returns the command's access set.

    Only commands of the writer have a plan. Raises ValueError if the command already has a handler.
    """

    def register(handler: H) -> H:
        if command_class in HANDLERS:
            raise ValueError(
                f"{command_class.__name__} is handled by {HANDLERS[command_class].__qualname__} already"
            )
        HANDLERS[command_class] = handler
        if plan is not None:
            PLANS[command_class] = plan
        return handler

    return register


def plan_of(command: Command[Any]) -> AccessPlan:
    """Return the access set of a command: an engine with row locks reads and locks these rows first."""
    return PLANS[type(command)](command)


def load(package: ModuleType) -> None:
    """Import all modules of a package, which registers their handlers."""
    for found in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{found.name}")


# Access plans: the rows that commands are going to touch, as far as their parameters show.
#
# These are pure functions. An engine with row locks reads and locks all rows of a transaction's plans at
# once, in a fixed order. A row that is missing from the plan costs another round trip. SQLite needs no plan.


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
