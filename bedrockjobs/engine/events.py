"""What happened, said once: handlers emit these, and after the commit whoever listens hears them in order.

An event that people follow is also written to the table ``events``, in the same commit. Nothing here is heard
of a transaction that was undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from bedrockjobs.job.rows import EventRow, LoginRow, PauseRow, TokenRow

log = logging.getLogger(__name__)


Noted = EventRow
"""Something that people follow; it stands in the table ``events`` too."""


class JobsCreated(NamedTuple):
    """Jobs that CreateJob or CreateJobs asked for, those included that existed already."""

    jobs: int


class JobsTaken(NamedTuple):
    """Jobs that one answer hands out."""

    jobs: int
    due: str
    """When the first of them was due."""
    at: str
    """When it was taken."""
    first: bool
    """Whether it is the first of its commit: of that one it is measured how long its job had been due."""


class JobsFinished(NamedTuple):
    """Jobs whose runs ended well."""

    jobs: int


class JobFailed(NamedTuple):
    """A run that FailJob ended."""


class JobRetried(NamedTuple):
    """A job that is tried again."""


class JobLost(NamedTuple):
    """A job whose run was taken away from its worker."""


class RunOpened(NamedTuple):
    """A run that a worker began."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    """Seconds it may be without a heartbeat; 0: as long as it likes."""
    cause: str
    wait_s: float
    """How long its job had been due."""


class RunRestored(NamedTuple):
    """A run that was open when the server started; its lease begins anew."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    stop: str


class RunEnded(NamedTuple):
    """A run that ended; times are stamps, as in the tables."""

    run_id: int
    job_id: int
    name: str
    attempt: int
    cause: str
    worker: str
    started: str
    ended: str
    status: str
    exit_code: int | None
    error: str
    traceparent: str
    """The W3C trace context that its job was created with; empty without one."""
    took_s: float


class RunForgotten(NamedTuple):
    """A run that nobody does, and that leaves no end: its answer reached nobody, or it is not to be found."""

    run_id: int


class RunStopped(NamedTuple):
    """A run whose worker is to send a signal."""

    run_id: int
    signal: str
    """TERM or KILL."""


class OutputChanged(NamedTuple):
    """A run that printed something, or told its progress."""

    run_id: int
    size: int = 0
    """Bytes that it printed."""


class TicksEntered(NamedTuple):
    """Ticks of a schedule that got their entry in the ledger."""

    outcome: str
    ticks: int
    late_s: int
    reason: str = ""
    """Why they were skipped."""


class WorkerAsked(NamedTuple):
    """A worker that asked for jobs."""

    worker: str
    host: str
    pid: int
    names: tuple[str, ...]
    accepts: tuple[str, ...]
    wait_s: float
    """How long it may wait for the answer."""
    by: str = ""
    """The name of the token it uses; empty without one."""


class WaitLeft(NamedTuple):
    """A worker whose client ended its last wait for a job before the wait was over."""

    worker: str


class DrainsChanged(NamedTuple):
    """The workers that take no more jobs from now on, all of them."""

    drains: frozenset[str]


class TokensChanged(NamedTuple):
    """Who may do what from now on: all tokens and all logins."""

    tokens: tuple[TokenRow, ...]
    logins: tuple[LoginRow, ...]
    elsewhere: bool = False
    """Whether another server, or somebody by hand, changed them."""


class RulesChanged(NamedTuple):
    """Who is told of what is not as it was."""


class HoldChanged(NamedTuple):
    """Whether the queue is held after a restore from now on."""

    hold: PauseRow | None


class RunKeyKnown(NamedTuple):
    """What the tokens of runs are made with."""

    key: str


class RoomForRuns(NamedTuple):
    """A limit of runs at once is not reached any more."""

    pattern: str


class LeftReady(NamedTuple):
    """What a transaction has left for the waiters of other servers that share the database."""

    jobs: list[tuple[str, str]]
    """Name and nextRun of each job."""
    anybody: bool
    """Whether anybody who waits may be served now: what is paused or locked has changed."""


Event = (
    Noted | JobsCreated | JobsTaken | JobsFinished | JobFailed | JobRetried | JobLost | RunOpened
    | RunRestored | RunEnded | RunForgotten | RunStopped | OutputChanged | TicksEntered | WorkerAsked
    | WaitLeft | DrainsChanged | TokensChanged | HoldChanged | RunKeyKnown | RulesChanged | RoomForRuns
    | LeftReady
)  # fmt: skip

JOB_CREATED, JOB_FINISHED = JobsCreated(1), JobsFinished(1)
JOB_FAILED, JOB_RETRIED, JOB_LOST = JobFailed(), JobRetried(), JobLost()


class Listener(Protocol):
    """Somebody who wants to hear of events."""

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what is to be called with each kind of event."""
        ...


class Listeners:
    """Who hears what, in the order in which they were added."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        """Begin with some."""
        self._hearing: dict[type, list[Callable[[Any], object]]] = {}
        for listener in listeners:
            self.add(listener)

    def add(self, listener: Listener) -> None:
        """Let somebody hear of what happens from now on."""
        for kind, call in listener.hears().items():
            self._hearing.setdefault(kind, []).append(call)

    def tell(self, events: Sequence[Event]) -> None:
        """Tell what happened, which is on disk; one who fails hinders nobody else."""
        hearing = self._hearing
        for event in events:
            for call in hearing.get(type(event), ()):
                try:
                    call(event)
                except Exception:
                    log.exception("a listener failed with %s", event)
