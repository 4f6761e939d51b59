"""Background tasks, and time slices in which long work lets the event loop run other tasks.

A transaction is one synchronous stack of calls, run in a greenlet. Code that may process more than a few
hundred rows iterates ``in_slices``, which pauses the transaction. The transaction stays open during a pause.
Meanwhile the event loop reads other connections, and answers the requests that do not need the writer. Work
that waits for an external result pauses in the same way, until the result is available.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from typing import Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

from bedrockjobs.base.config import SLICE

T = TypeVar("T")
Until = Callable[[Callable[[], object]], object]
"""Registers a callback that is called once, when the awaited result is available."""

Step = Callable[[], object]
"""A function that a piece of work returns, to be called after it."""

LEFT_S = 0.002
"""Maximum seconds for which ``done_in_turns`` lets other busy tasks run before its own work continues."""

LONG_TURN_S = 0.005
"""Maximum seconds by which ``done_in_turns`` extends one turn of its work."""


class TimeSlices(Generic[T]):
    """Runs one piece of work at a time; the work may pause before it is complete.

    All pieces of work share one greenlet: creating a greenlet takes 9 us, which most transactions do not
    need.
    """

    def __init__(self) -> None:
        self._stack = _Stack(self._do)
        self._work: Callable[[], T] | None = None
        self._result: T | None = None
        self._until: Until | None = None

    def start(self, work: Callable[[], T]) -> T | None:
        """Start a piece of work; return its result, or None if it paused. Raises what the work raises.

        The work runs in the context variables of the caller.
        """
        if self._stack.dead:  # the previous work raised an exception
            self._stack = _Stack(self._do)
        self._work = work
        self._stack.gr_context = getcurrent().gr_context
        return self.resume()

    def resume(self) -> T | None:
        """Resume paused work; return its result, or None if it paused again."""
        self._until = self._stack.switch()
        result, self._result = self._result, None
        return result

    def call_when_ready(self, resume: Callable[[], object], soon: Until) -> None:
        """Have ``resume`` called once the awaited result is available, or by ``soon`` if none is awaited."""
        (self._until or soon)(resume)

    def _do(self) -> None:
        caller = self._stack.parent
        assert caller is not None
        while self._work is not None:
            self._result = self._work()
            self._work = None
            caller.switch()


class WorkSteps(TimeSlices[Step]):
    """Time slices for pieces of work that return a step: what has to be done when the work is complete."""

    def run(self, work: Callable[[], Step]) -> None:
        """Start a piece of work; take its step now, or after the pauses of the work."""
        self._follow(self.start(work))

    def _follow(self, step: Step | None) -> None:
        if step is None:
            soon = asyncio.get_running_loop().call_soon
            self.call_when_ready(lambda: self._follow(self.resume()), soon)
        else:
            step()


class _Stack(greenlet):
    """A greenlet that can pause and resume."""

    began = 0.0
    """Monotonic time at which the current turn of the greenlet began, set by ``done_in_turns``."""


def can_pause() -> bool:
    """Return whether the current code runs inside work that can pause."""
    return isinstance(getcurrent(), _Stack)


def yield_to_loop(until: Until | None = None) -> None:
    """Pause the current work so that other tasks can run; do nothing outside work that can pause.

    The work resumes soon, or when ``until`` calls back.
    """
    current = getcurrent()
    if isinstance(current, _Stack) and current.parent is not None:
        current.parent.switch(until)


async def waited_for(work: Callable[[], T]) -> T:
    """Run work that waits for external results, and other tasks meanwhile; return the result of the work."""
    loop = asyncio.get_running_loop()
    slices = TimeSlices[tuple[T]]()
    done = slices.start(lambda: (work(),))
    while done is None:
        ready: asyncio.Future[None] = loop.create_future()
        slices.call_when_ready(partial(resolve, ready), loop.call_soon)
        await ready
        done = slices.resume()
    return done[0]


def resolve(future: asyncio.Future[None]) -> None:
    """End the wait for a future, if it has not ended yet."""
    if not future.done():
        future.set_result(None)


def in_slices(items: Iterable[T], each: int = SLICE) -> Iterator[T]:
    """Yield items, pausing after every ``each`` of them."""
    for count, item in enumerate(items, 1):
        yield item
        if not count % each:
            yield_to_loop()


def pause_after_s(seconds: float, monotonic: Callable[[], float]) -> None:
    """Pause if the current turn of ``done_in_turns`` has lasted at least ``seconds``."""
    current = getcurrent()
    if isinstance(current, _Stack) and monotonic() - current.began >= seconds:
        yield_to_loop()


async def done_in_turns(
    work: Callable[[], T], monotonic: Callable[[], float], busy: Callable[[], bool] = lambda: False
) -> T:
    """Run pausable work to its end, letting other tasks run during its pauses; return its result.

    Other tasks also get a turn before and after the work, and further turns while ``busy`` returns True, for
    at most ``LEFT_S`` at a time. If a turn of the other tasks takes longer, the next turn of the work is
    extended, so that the work always finishes. The work runs in a copy of the context variables. Raises what
    the work raises.
    """
    stack = _Stack(work)
    stack.gr_context = copy_context()
    result, latest = None, monotonic() + LEFT_S
    while not stack.dead:
        await asyncio.sleep(0)
        if busy() and monotonic() < latest:
            continue
        now = monotonic()
        # If the others' turn exceeded ``LEFT_S``, the next turn of the work gets 1/4 of the excess in
        # addition
        stack.began = now + min(max(now - latest, 0.0) / 4, LONG_TURN_S)
        result = stack.switch()
        latest = monotonic() + LEFT_S
    await asyncio.sleep(0)
    return cast(T, result)


class BackgroundTask(ABC):
    """Base of objects that work in an asyncio task of their own, from ``start`` until ``stop``."""

    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task in the running event loop, unless it is running."""
        if not self.busy:
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def busy(self) -> bool:
        """Return whether the task is running."""
        return self._task is not None and not self._task.done()

    async def stop(self) -> None:
        """Cancel the task, if it was started, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    @abstractmethod
    async def _run(self) -> None:
        """Work until all is done, or the task is cancelled."""
