"""What a handler works with, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.base.fingerprints import fingerprint_of
from bedrockjobs.base.principal import Principal
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.base.wire import SECONDS, timestamp_ms
from bedrockjobs.commands import Command
from bedrockjobs.engine.events import Event, EventLogged
from bedrockjobs.engine.rate_limits import RateLimiter
from bedrockjobs.engine.workers import WorkerDirectory
from bedrockjobs.job.lifecycle import GONE
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import AccessPlan, InMemory, Unit


class Waiter(Protocol):
    """Somebody who waits for a job."""

    submission: Any
    """What is answered with it."""
    request: TakeRequest


class Waiters(InMemory, Protocol):
    """All who wait for jobs."""

    def first_for(self, job: Job, now: str) -> Waiter | None:
        """Return who would get a job that is due now; None where it has to be looked at what else is due."""
        ...

    def remove(self, waiter: Any) -> bool:
        """Take out somebody who is served."""
        ...


class Context:
    """One open transaction, and the moment at which all its commands happen."""

    __slots__ = (
        "by",
        "caller",
        "compatibility",
        "emit",
        "events",
        "gates",
        "moment",
        "now",
        "now_ms",
        "outcomes",
        "parts",
        "presence",
        "seen",
        "since",
        "took_jobs",
        "unit",
        "waiters",
    )

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
        waiters: Waiters | None = None,
    ) -> None:
        """Work in ``unit``; the server runs since ``since``, and its forerunner was ``seen`` last."""
        self.unit = unit
        self.moment = unit.moment if moment is None else moment
        self.now_ms = timestamp_ms(self.moment)
        self.now = self.now_ms[:SECONDS]
        self.compatibility = compatibility
        self.presence = presence
        """Who works on what; it hears of events, and is never told from within a transaction."""
        self.since = since
        self.seen = seen
        self.gates = gates or RateLimiter(SystemClock(), shared=False)
        """What limits of creates have come to."""
        self.parts = parts
        """What a part that is undone changed in memory, beside the events and what the unit itself remembers.

        The context is not among them: a circle would keep each transaction until the collector comes.
        """
        self.waiters = waiters
        """Those to whom a new job may be handed off before it is stored; None: it is queued first."""
        self.outcomes: list[tuple[Any, Answer | CommandError]] = []
        """What was asked, with its answer, which follows the commit."""
        self.caller: Principal | None = None
        """Who asks for what is done now, where that matters."""
        self.by = ""
        """The name of the token that asks for what is done now; empty without one."""
        self.took_jobs = False
        """Whether any job was handed out."""
        self.events: list[Event] = []
        """What happened, for those who listen, once it is on disk."""
        self.emit: Callable[[Event], None] = self.events.append
        """Tell what happened."""

    def note(
        self, kind: str, *, name: str = "", job_id: int = 0, run_id: int = 0, by: str = "", detail: str = ""
    ) -> None:
        """Tell what happened to people too: it is written to the table ``events``."""
        if self.caller is not None:
            by = self.caller.name or by
        event = EventLogged(kind, name, job_id, run_id, by, detail)
        self.unit.records.add_event(self.now_ms, event)
        self.events.append(event)

    def check_repeats(self, job: Job, place: str) -> None:
        """Raise Forbidden if a job repeats and the caller does not operate; ``place`` asks for it."""
        if job.repeat and self.caller is not None and "operate" not in self.caller.grant.roles:
            raise Forbidden(detail=f"{place}: job {job.job_id} repeats, which the role operate may change")

    def save(self, job: Job) -> None:
        """Write a job as it is after an event; one that is ``GONE`` is deleted."""
        if job.state == GONE:
            self.unit.delete(job.job_id)
        else:
            self.unit.save(job)
            if job.state == "FAILED":
                fingerprint = fingerprint_of(job.memory.error or "")
                self.unit.records.put_fingerprint("job", job.job_id, fingerprint)

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        """Return how many events and answers there are."""
        return len(self.events), len(self.outcomes)

    def undo(self, mark: tuple[int, int]) -> None:
        """Forget the events and answers since a mark."""
        events, outcomes = mark
        del self.events[events:]
        del self.outcomes[outcomes:]

    def forget(self) -> None:
        """Forget all events and answers: nothing happened."""
        self.events.clear()
        self.outcomes.clear()


class Taken(NamedTuple):
    """A job that was handed out: its row before and after, so that it can go back as it was."""

    before: Job
    after: Job


@dataclass(slots=True)
class Answer:
    """What a command gives back: JSON text (empty: no body), and the jobs it handed out."""

    body: str = ""
    taken: Sequence[Taken] = ()
    waits_for: TakeRequest | None = None
    """Set where the command is done but its answer waits for a job."""
    searching: bool = False
    """Whether it waits, even if its client does not, as the store has still to find the first job."""
    media: str = "application/json"
    """What the body is; only Query can answer with something else."""


# Which function does which command: each says so itself, with ``@handles(TheCommand)``.
#
# What a handler is given first depends on where its command runs (``Command.where``): a command of the
# writer gets the ``Context`` of the open transaction, one of the reader the ``Views``, any other the
# ``Service``.


Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Command[Any]], Handler] = {}
"""The handler of each command, once its module is imported."""

PLANS: dict[type[Command[Any]], Callable[[Any], AccessPlan]] = {}
"""What each command of the writer is going to touch, as far as its parameters tell."""


def handles(kind: type[Command[Any]], plan: Callable[[Any], AccessPlan] | None = None) -> Callable[[H], H]:
    """Make the function below the handler of a command, whose ``plan`` says what it is going to touch.

    Only commands of the writer have a plan. Raises ValueError where the command has a handler already.
    """

    def register(handler: H) -> H:
        if kind in HANDLERS:
            raise ValueError(f"{kind.__name__} is handled by {HANDLERS[kind].__qualname__} already")
        HANDLERS[kind] = handler
        if plan is not None:
            PLANS[kind] = plan
        return handler

    return register


def plan_of(command: Command[Any]) -> AccessPlan:
    """Return what a command is going to touch; an engine that locks rows reads them together."""
    return PLANS[type(command)](command)


def load(package: ModuleType) -> None:
    """Import all modules of a package, each of which says itself which commands it does."""
    for found in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{found.name}")
