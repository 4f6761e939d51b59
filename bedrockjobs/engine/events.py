"""Events that handlers emit, and their publication to subscribers in order after the commit.

Events that users can follow are also written to the table ``events`` in the same commit. Events of a
transaction that was rolled back are never published.
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
"""An event that users can follow; it is also a row of the table ``events``."""


class JobsCreated(NamedTuple):
    """Jobs that CreateJob or CreateJobs returned, including jobs that already existed."""

    names: list[str]


class JobsTaken(NamedTuple):
    """Jobs given out in one commit."""

    jobs: list[tuple[str, str]]
    """Name and due time of each job; the time is empty if the job did not wait, as for pings."""
    at: str
    """The time of the commit."""


class JobsFinished(NamedTuple):
    """Jobs whose runs succeeded."""

    names: list[str]


class RunFailed(NamedTuple):
    """A run ended by FailJob."""

    name: str


class JobRetried(NamedTuple):
    """A job that will be retried."""

    name: str


class JobLost(NamedTuple):
    """A job whose run was lost."""

    name: str


class RunOpened(NamedTuple):
    """A run that a worker started."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    """Maximum seconds between heartbeats; 0 means no limit."""
    cause: str
    wait_s: float
    """Seconds for which its job had been due."""


class RunRestored(NamedTuple):
    """A run that was open when the server started; it gets a new lease."""

    run_id: int
    job_id: int
    worker: str
    lease_s: int
    stop: str


class RunEnded(NamedTuple):
    """A run that ended; times are timestamps as in the tables."""

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
    """The W3C trace context with which its job was created, or empty."""
    took_s: float


class RunForgotten(NamedTuple):
    """A run removed without an end, since its reply was not delivered, or it is missing in the database."""

    run_id: int


class RunStopped(NamedTuple):
    """A run that its worker should stop with a signal."""

    run_id: int
    signal: str
    """TERM or KILL."""


class OutputChanged(NamedTuple):
    """A run with new output or progress."""

    run_id: int
    size: int = 0
    """Bytes of new output; 0 if only the progress changed."""


class TicksEntered(NamedTuple):
    """Ticks of a schedule that were added to its tick history."""

    outcome: str
    ticks: int
    late_s: int
    reason: str = ""
    """Why the ticks were skipped, or what a change of summer time did to a tick that ran; else empty."""


class WorkerAsked(NamedTuple):
    """A worker asked for jobs."""

    worker: str
    host: str
    pid: int
    names: tuple[str, ...]
    accepts: tuple[str, ...]
    wait_s: float
    """Maximum seconds that it waits for the reply."""
    by: str = ""
    """The name of its token, or empty."""


class WaitLeft(NamedTuple):
    """A worker of which no GetJob or GetJobs waits any more: the only remaining one was cancelled before its
    time was over, in most cases because the client closed the connection."""

    worker: str
    by: str = ""
    """The name of its token, or empty."""


class DrainsChanged(NamedTuple):
    """The complete new set of drained workers."""

    drains: frozenset[str]


class TokensChanged(NamedTuple):
    """The complete new set of tokens and logins."""

    tokens: tuple[TokenRow, ...]
    logins: tuple[LoginRow, ...]
    elsewhere: bool = False
    """Whether the tokens or logins were changed by another server or by break-glass access."""


class RulesChanged(NamedTuple):
    """The notification rules have changed."""


class HoldChanged(NamedTuple):
    """The quarantine after a restore began or ended."""

    hold: PauseRow | None


class RunKeyKnown(NamedTuple):
    """The key that signs run tokens has been read."""

    key: str


class RoomForRuns(NamedTuple):
    """A limit of runs or of starts has free slots again."""

    pattern: str


class LeftReady(NamedTuple):
    """What a transaction left for the waiters of other servers that share the database."""

    jobs: list[tuple[str, str]]
    """Name and nextRun of each job."""
    anybody: bool
    """Whether any waiter may be served now, because pauses or locks have changed."""


Event = (
    EventLogged
    | JobsCreated
    | JobsTaken
    | JobsFinished
    | RunFailed
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


class Subscriber(Protocol):
    """An object that subscribes to events."""

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the function to call for each event type."""


class Listeners:
    """The subscribers by event type, in the order in which they were added."""

    def __init__(self, listeners: Sequence[Subscriber] = ()) -> None:
        """Start with the subscribers ``listeners``."""
        self._hearing: dict[type, list[Callable[[Any], object]]] = {}
        for listener in listeners:
            self.add(listener)

    def add(self, listener: Subscriber) -> None:
        """Add a subscriber for all events from now on."""
        for kind, call in listener.event_handlers().items():
            self._hearing.setdefault(kind, []).append(call)

    def publish(self, events: Sequence[Event]) -> None:
        """Publish committed events; an exception in one subscriber does not affect the others."""
        hearing = self._hearing
        for event in events:
            for call in hearing.get(type(event), ()):
                try:
                    call(event)
                except Exception:
                    log.exception("a listener failed with %s", event)


# Notifier: wakes clients that wait for new output of a run or for new events. A notification carries no data;
# its receivers read again. Used on the event loop only.


Topic = tuple[str, int]
"""What a client waits for: ``("output", runID)``, or ``EVENTS``."""

EVENTS: Topic = ("events", 0)
"""The topic of commits that added events."""


def output_topic(run_id: int) -> Topic:
    """Return the topic of commits that added output to a run, or ended it."""
    return ("output", run_id)


class Subscription:
    """A subscription to a topic; as a context manager, it receives all notifications from entry to exit."""

    def __init__(self, notifier: Notifier, topic: Topic) -> None:
        """Prepare the subscription; use ``Notifier.listen`` to create one."""
        self._notifier = notifier
        self._topic = topic
        self._woken = asyncio.Event()

    def __enter__(self) -> Self:
        """Start receiving notifications; enter before the first read, so that none is missed."""
        self._notifier.admit(self._topic, self._woken)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop receiving notifications."""
        self._notifier.dismiss(self._topic, self._woken)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next notification; return False after ``timeout_s``, or at once while draining."""
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
    """All subscriptions of a server; a topic uses memory only while it has subscribers."""

    def __init__(self) -> None:
        self._listening: dict[Topic, set[asyncio.Event]] = {}
        self.ended = False
        """Whether the server drains, so that waits return at once."""

    def __len__(self) -> int:
        """Return the number of topics with subscribers."""
        return len(self._listening)

    def event_handlers(self) -> Mapping[type, Callable[[Any], object]]:
        """Return the handler for each event type."""
        return {
            EventLogged: lambda _: self.notify(EVENTS),
            OutputChanged: self._output,
            RunEnded: self._output,
            RunForgotten: self._output,
        }

    def _output(self, event: OutputChanged | RunEnded | RunForgotten) -> None:
        self.notify(output_topic(event.run_id))

    def notify(self, topic: Topic) -> None:
        """Wake all subscribers of a topic, after the commit."""
        for woken in self._listening.get(topic, ()):
            woken.set()

    def notify_all(self) -> None:
        """Wake all subscribers, because notifications may have been lost."""
        for topic in list(self._listening):
            self.notify(topic)

    def listen(self, topic: Topic) -> Subscription:
        """Return a subscription: enter it, then read, then wait."""
        return Subscription(self, topic)

    async def wait(self, topic: Topic, timeout_s: float) -> bool:
        """Wait for the next notification of a topic; return False after ``timeout_s``."""
        with self.listen(topic) as subscription:
            return await subscription.wait(timeout_s)

    def end(self) -> None:
        """Wake all subscribers and end all later waits, because the server drains."""
        self.ended = True
        for listening in self._listening.values():
            for woken in listening:
                woken.set()

    def admit(self, topic: Topic, woken: asyncio.Event) -> None:
        """Set ``woken`` on each notification of a topic; called by ``Subscription``."""
        self._listening.setdefault(topic, set()).add(woken)

    def dismiss(self, topic: Topic, woken: asyncio.Event) -> None:
        """Stop setting ``woken``; the last subscriber frees the topic."""
        listening = self._listening[topic]
        listening.discard(woken)
        if not listening:
            del self._listening[topic]
