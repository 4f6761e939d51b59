"""What a handler works with, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from bedrockjobs.base.caller import Caller
from bedrockjobs.base.clock import SystemClock
from bedrockjobs.base.errors import CommandError, Forbidden
from bedrockjobs.base.failure_text import fingerprint_of
from bedrockjobs.base.settings import Compatibility
from bedrockjobs.base.wire import SECONDS, stamp_ms
from bedrockjobs.engine.events import Event, Noted
from bedrockjobs.engine.gates import Gates
from bedrockjobs.engine.presence import Presence
from bedrockjobs.job.lifecycle import GONE
from bedrockjobs.job.rows import Job
from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import InMemory, Unit


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
        presence: Presence,
        *,
        moment: datetime | None = None,
        since: str = "",
        seen: str = "",
        parts: Sequence[InMemory] = (),
        gates: Gates | None = None,
        waiters: Waiters | None = None,
    ) -> None:
        """Work in ``unit``; the server runs since ``since``, and its forerunner was ``seen`` last."""
        self.unit = unit
        self.moment = unit.moment if moment is None else moment
        self.now_ms = stamp_ms(self.moment)
        self.now = self.now_ms[:SECONDS]
        self.compatibility = compatibility
        self.presence = presence
        """Who works on what; it hears of events, and is never told from within a transaction."""
        self.since = since
        self.seen = seen
        self.gates = gates or Gates(SystemClock(), shared=False)
        """What limits of creates have come to."""
        self.parts = parts
        """What a part that is undone changed in memory, beside the events and what the unit itself remembers.

        The context is not among them: a circle would keep each transaction until the collector comes.
        """
        self.waiters = waiters
        """Those to whom a new job may be handed off before it is stored; None: it is queued first."""
        self.outcomes: list[tuple[Any, Answer | CommandError]] = []
        """What was asked, with its answer, which follows the commit."""
        self.caller: Caller | None = None
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
        event = Noted(kind, name, job_id, run_id, by, detail)
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
