"""What happened, said once: handlers emit these, and after the commit whoever listens hears them in order.

An event that people follow is also written to the table ``events``, in the same commit. Nothing here is heard
of a transaction that was undone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from bedrockjobs.job.rows import EventRow, LoginRow, PauseRow, TokenRow

log = logging.getLogger(__name__)


EventLogged = EventRow
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
    """A run that ended; times are timestamps, as in the tables."""

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
    EventLogged
    | JobsCreated
    | JobsTaken
    | JobsFinished
    | JobFailed
    | JobRetried
    | JobLost
    | RunOpened
    | RunRestored
    | RunEnded
    | RunForgotten
    | RunStopped
    | OutputChanged
    | TicksEntered
    | WorkerAsked
    | WaitLeft
    | DrainsChanged
    | TokensChanged
    | HoldChanged
    | RunKeyKnown
    | RulesChanged
    | RoomForRuns
    | LeftReady
)

JOB_CREATED, JOB_FINISHED = JobsCreated(1), JobsFinished(1)
JOB_FAILED, JOB_RETRIED, JOB_LOST = JobFailed(), JobRetried(), JobLost()


class Subscriber(Protocol):
    """Somebody who wants to hear of events."""

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what is to be called with each kind of event."""
        ...


class Listeners:
    """Who hears what, in the order in which they were added."""

    def __init__(self, listeners: Sequence[Subscriber] = ()) -> None:
        """Begin with some."""
        self._hearing: dict[type, list[Callable[[Any], object]]] = {}
        for listener in listeners:
            self.add(listener)

    def add(self, listener: Subscriber) -> None:
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


# Tells who waits for something that it may be there now: new output of a run, a new event.
#
# A notification says nothing of what happened: whoever gets it reads again. It knows no commands and no
# tables, and is used on the event loop alone.


Topic = tuple[str, int]
"""What is waited for: ``("output", runID)``, or ``EVENTS``."""

EVENTS: Topic = ("events", 0)
"""What changes with a commit that added events."""


def output_topic(run_id: int) -> Topic:
    """Return what changes with a commit that added output to a run, or ended it."""
    return ("output", run_id)


class Subscription:
    """One listener to a topic; it gets every notification from the moment it is entered as a context."""

    def __init__(self, notifier: Notifier, topic: Topic) -> None:
        """Prepare to listen; made by ``Notifier.listen``."""
        self._notifier = notifier
        self._topic = topic
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        """Begin to listen: before what is waited for is read, so that none is missed in between."""
        self._notifier.admit(self._topic, self._woken)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no longer."""
        self._notifier.dismiss(self._topic, self._woken)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for a notification that was not told of yet; return False where the time is over.

        It also returns False, and at once, when the server drains.
        """
        if self._notifier.ended or timeout_s <= 0:
            return False
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return not self._notifier.ended


class Notifier:
    """All subscriptions of a server; a topic takes memory while somebody listens to it."""

    def __init__(self) -> None:
        """Begin without listeners."""
        self._listening: dict[Topic, set[asyncio.Event]] = {}
        self.ended = False
        """Whether the server drains, so that nobody waits any more."""

    def __len__(self) -> int:
        """Return how many topics are listened to."""
        return len(self._listening)

    def hears(self) -> Mapping[type, Callable[[Any], object]]:
        """Return what it wakes for each event that it hears of."""
        return {
            EventLogged: lambda _: self.notify(EVENTS),
            OutputChanged: self._output,
            RunEnded: self._output,
            RunForgotten: self._output,
        }

    def _output(self, event: OutputChanged | RunEnded | RunForgotten) -> None:
        self.notify(output_topic(event.run_id))

    def notify(self, topic: Topic) -> None:
        """Wake everybody who listens to a topic; after the commit that made something of it."""
        for woken in self._listening.get(topic, ()):
            woken.set()

    def notify_all(self) -> None:
        """Wake everybody who listens to anything: something may have gone unheard."""
        for topic in list(self._listening):
            self.notify(topic)

    def listen(self, topic: Topic) -> Subscription:
        """Return a subscription to be entered as a context, then read, then waited for."""
        return Subscription(self, topic)

    async def wait(self, topic: Topic, timeout_s: float) -> bool:
        """Wait for the next notification from now on; return False where there was none in time."""
        with self.listen(topic) as subscription:
            return await subscription.wait(timeout_s)

    def end(self) -> None:
        """Wake everybody, and let nobody wait from now on: the server drains."""
        self.ended = True
        for listening in self._listening.values():
            for woken in listening:
                woken.set()

    def admit(self, topic: Topic, woken: asyncio.Event) -> None:
        """Set ``woken`` with each notification of a topic; for ``Subscription``."""
        self._listening.setdefault(topic, set()).add(woken)

    def dismiss(self, topic: Topic, woken: asyncio.Event) -> None:
        """Leave ``woken`` alone; the last listener frees the topic."""
        listening = self._listening[topic]
        listening.discard(woken)
        if not listening:
            del self._listening[topic]
