"""Long work in slices: it stops where it is now and then, and the event loop serves others in between.

What a transaction does is one stack of calls, and none of them has to know that it is stopped: whoever may go
through more than a few hundred rows does so ``in_turns``. The transaction stays open meanwhile: others are
heard, and answered where they do not need the writer. Work that waits for an answer from elsewhere stops too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from typing import Generic, TypeVar, cast

from greenlet import getcurrent, greenlet

from bedrockjobs.base.config import SLICE

T = TypeVar("T")
Until = Callable[[Callable[[], object]], object]
"""Something that is waited for: it is given what it has to call, once, when it is there."""

LEFT_S = 0.002
"""Seconds for which work ``done_in_turns`` leaves its turns to who is busy; then it goes on all the same."""

OTHERS_SHARE = 4
"""The part 1/4 of what the turn of others took beyond ``LEFT_S`` is added to the next one of the work."""

LONG_TURN_S = 0.005
"""The most that is added."""


class TimeSlices(Generic[T]):
    """Does one piece of work after another, each of which may stop before it is done.

    All of them share one stack: to make a new one takes 9 us, which most transactions do not need.
    """

    def __init__(self) -> None:
        """Begin without work."""
        self._stack = _Stack(self._do)
        self._work: Callable[[], T] | None = None
        self._result: T | None = None
        self._until: Until | None = None

    def begin(self, work: Callable[[], T]) -> T | None:
        """Do some work; return its result, None where it stopped. Raises what the work raises.

        The work sees the context variables of who begins it.
        """
        if self._stack.dead:  # some work raised
            self._stack = _Stack(self._do)
        self._work = work
        self._stack.gr_context = getcurrent().gr_context
        return self.go_on()

    def go_on(self) -> T | None:
        """Go on with the work that stopped; return its result, None where it stopped again."""
        self._until = self._stack.switch()
        result, self._result = self._result, None
        return result

    def call_when_ready(self, go_on: Callable[[], object], soon: Until) -> None:
        """Let ``go_on`` be called when the work that stopped can go on: ``soon``, or when it says."""
        (self._until or soon)(go_on)

    def _do(self) -> None:
        caller = self._stack.parent
        assert caller is not None
        while self._work is not None:
            self._result = self._work()
            self._work = None
            caller.switch()


class _Stack(greenlet):
    """A stack of calls that may be left and come back to."""

    began = 0.0
    """Monotonic seconds at which its present turn began, where ``done_in_turns`` gives them."""


def may_give_turn() -> bool:
    """Tell whether this is called within work that may be stopped."""
    return isinstance(getcurrent(), _Stack)


def yield_to_loop(until: Until | None = None) -> None:
    """Let others have a turn, where this is called within work that may be stopped; else do nothing.

    The work goes on soon, or when that is there which it waits for.
    """
    current = getcurrent()
    if isinstance(current, _Stack) and current.parent is not None:
        current.parent.switch(until)


def in_slices(items: Iterable[T], each: int = SLICE) -> Iterator[T]:
    """Yield items, and let others have a turn after ``each`` of them."""
    for count, item in enumerate(items, 1):
        yield item
        if not count % each:
            yield_to_loop()


def give_turn_after(seconds: float, monotonic: Callable[[], float]) -> None:
    """Let others have a turn where the present one of ``done_in_turns`` has lasted so long."""
    current = getcurrent()
    if isinstance(current, _Stack) and monotonic() - current.began >= seconds:
        yield_to_loop()


async def done_in_turns(
    work: Callable[[], T], monotonic: Callable[[], float], busy: Callable[[], bool] = lambda: False
) -> T:
    """Do some work that gives turns, and let other tasks go on in them; return its result.

    Others have a turn before and after it too, and while they are ``busy`` all turns, for ``LEFT_S`` at most.
    If their turn takes long, so does the next one of the work: it would not end otherwise.
    The work sees a copy of the context variables. Raises what the work raises.
    """
    stack = _Stack(work)
    stack.gr_context = copy_context()
    result, latest = None, monotonic() + LEFT_S
    while not stack.dead:
        await asyncio.sleep(0)
        if busy() and monotonic() < latest:
            continue
        now = monotonic()
        stack.began = now + min(max(now - latest, 0.0) / OTHERS_SHARE, LONG_TURN_S)
        result = stack.switch()
        latest = monotonic() + LEFT_S
    await asyncio.sleep(0)
    return cast(T, result)
