"""Wakes the dispatcher when it is time; a timer that is early enough is kept, since to set one costs."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from bedrockjobs.base.background import yield_to_loop
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import NAMES_PER_COMMIT_MAX, NAMES_QUEUED_MAX, QUICK_COMMIT_S, QUICK_COMMITS
from bedrockjobs.engine.submission import Submission


class LoopTimer:
    """One timer of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """Call ``wake`` when it is time."""
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0  # in the loop's seconds

    def set(self, seconds: float) -> None:
        """Wake after some seconds at the latest."""
        now = self._loop.time()
        if now < self._at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = now + seconds
        self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._at = 0.0  # a loop may fire a little early: this timer is gone and cannot be kept
        self._wake()

    def cancel(self) -> None:
        """Wake no more."""
        if self._timer is not None:
            self._timer.cancel()


# Where a commit waits for the disk: in the loop where that is quick, else in a thread of its own.
#
# To hand a commit to a thread and its end back costs more than a quick disk takes for it. A slow disk must
# not keep the loop, which would read the next requests meanwhile. Nothing is known here of what is
# committed.


Then = Callable[[float, "Exception | None"], None]
"""What is told, in the loop, how many seconds a commit took, and what it raised."""


class CommitExecutor:
    """Does commits one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, waits_for_disk: bool) -> None:
        """Prepare the thread; ``start`` before use.

        The first commits are done by it, so that it is seen how quick the disk is, unless they do not wait
        for one.
        """
        self._loop = loop
        self._clock = clock
        self._given: SimpleQueue[tuple[Callable[[], None], Then] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._usual_s = QUICK_COMMITS * QUICK_COMMIT_S if waits_for_disk else 0.0
        """What a commit has taken of late."""
        self.start = self._thread.start
        """Start the thread."""
        self.is_alive = self._thread.is_alive
        """Tell whether it has not ended."""

    def do(self, commit: Callable[[], None], then: Then) -> None:
        """Commit, and tell ``then``: before this returns where it was done in the loop."""
        if self._usual_s > QUICK_COMMIT_S:
            self._given.put((commit, then))
        else:
            self._end(then, *self.timed(commit))

    async def end(self) -> None:
        """Wait until all that was given is done, and end the thread."""
        self._given.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            commit, then = given
            self._loop.call_soon_threadsafe(self._end, then, *self.timed(commit))

    def timed(self, commit: Callable[[], None]) -> tuple[float, Exception | None]:
        """Do a commit here and now; return how many seconds it took, and what it raised."""
        begun = self._clock.monotonic()
        failure: Exception | None = None
        try:
            commit()
        except Exception as error:
            failure = error
        return self._clock.monotonic() - begun, failure

    def _end(self, then: Then, took_s: float, failure: Exception | None) -> None:
        self._usual_s += (took_s - self._usual_s) / QUICK_COMMITS
        then(took_s, failure)


# Whether a commit waits one more turn of the event loop, for requests that can share it.
#
# What few clients ask arrives one by one: the first request begins a transaction, and the others have come
# by the time its statements are done. To look for them takes a few hundredths of what a commit takes. But a
# single client asks again only when it is answered, and each look for others is for nothing. So how many
# shared the last commit says how many to expect, and what looks found of late whether to look for still
# more.


LOOKS_MAX = 8
"""Looks before one commit: what arrives in drops keeps the first request waiting no longer."""
LOOK_S = 0.0002
"""Seconds of a look after which no other is made: somebody else used that turn of the loop, a page that is
made or a large request, and with each further one what was found would wait for that."""
WINDOW = 8
"""Looks of which it is remembered whether they found something, roughly."""
WORTH = 0.2
"""Share of looks that find something from which on one is made each time: well above what would pay, for the
others it is tried now and then."""
TRY_EVERY = 16
"""Where they do not pay, one commit in so many is looked for all the same: more clients may have come."""

Arrived = Callable[[int], list[Submission]]
"""Returns what waits to be done, so many at the most."""


class GroupCommitWindow:
    """How many requests to expect before a commit."""

    def __init__(self, most: int, monotonic: Callable[[], float]) -> None:
        """Expect company until it is seen that none comes; at most so many share a commit."""
        self._most = most
        self._monotonic = monotonic
        self._shared = 0
        self._found = 1.0
        self._passed = 0
        self._looks = 0
        self.looks_now = False
        """Whether a transaction looks for others in this turn of the loop, which nobody else should use."""

    def begin(self, arrived: Arrived) -> Callable[[int], list[Submission]]:
        """Begin a transaction; return what is called with the number in it, for others that share its commit.

        It gives the loop a turn where that pays, and returns what has ``arrived`` then. Not for servers that
        share a database: there the first round trip has to know all commands.
        """
        self._looks = 0
        return partial(self._company, arrived)

    def _company(self, arrived: Arrived, count: int) -> list[Submission]:
        if count >= self._most or not self._pays(count):
            return []
        begun, self.looks_now = self._monotonic(), True
        yield_to_loop()
        self.looks_now = False
        self._looks = LOOKS_MAX if self._monotonic() - begun > LOOK_S else self._looks + 1
        found = arrived(self._most - count)
        if count >= self._shared:
            self._found += (bool(found) - self._found) / WINDOW
        return found

    def _pays(self, count: int) -> bool:
        if self._looks >= LOOKS_MAX:
            return False
        if count < self._shared or self._found >= WORTH:
            return True
        self._passed += 1
        return self._passed % TRY_EVERY == 0

    def committed(self, count: int) -> None:
        """Take note of how many shared a commit."""
        self._shared = count


def taken_from(gathered: deque[Submission], most: int) -> tuple[list[Submission], int]:
    """Take so many submissions at the most; return those to be done, and the number that nobody needs."""
    if len(gathered) <= most:
        taken = [*gathered]
        gathered.clear()
    else:
        taken = [gathered.popleft() for _ in range(most)]
    if not any([one.gone for one in taken]):  # noqa: C419 - a generator takes three times as long
        return taken, 0
    left = [one for one in taken if not one.gone or one.matters]
    return left, len(taken) - len(left)


class ManyNames:
    """The takes that ask for many names, and the ends of their waits: a few for each transaction.

    Whoever sends them waits for others who do the same, and nobody else does.
    """

    def __init__(self, most: int = NAMES_PER_COMMIT_MAX) -> None:
        """Begin empty; a transaction does so many names at the most."""
        self._most = most
        self._did_some = False
        self._waiting: deque[Submission] = deque()
        self._names = 0

    def __len__(self) -> int:
        """Return how many submissions wait."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Tell whether no more names may wait."""
        return self._names >= NAMES_QUEUED_MAX

    def put_aside(self, arrived: list[Submission]) -> list[Submission]:
        """Keep those that ask for many names; return the others."""
        if not any([one.many for one in arrived]):  # noqa: C419 - as above
            return arrived
        many = [one for one in arrived if one.many]
        self._waiting += many
        self._names += sum(one.many for one in many)
        return [one for one in arrived if not one.many]

    def some(self, others: int) -> list[Submission]:
        """Take out what a transaction may do beside ``others``: at least one, but in every second one none.

        Others came while the last one was done, and do not wait for one more.
        """
        found: list[Submission] = []
        self._did_some = not (others and self._did_some)
        if not self._did_some:
            return found
        room = self._most
        while self._waiting and (not found or room >= self._waiting[0].many):
            found.append(self._waiting.popleft())
            room -= found[-1].many
            self._names -= found[-1].many
        return found

    def all(self) -> list[Submission]:
        """Take out all of them."""
        found = [*self._waiting]
        self._waiting.clear()
        self._names = 0
        return found
