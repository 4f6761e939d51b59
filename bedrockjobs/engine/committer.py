"""Commits: when they happen, in which thread, and how many commands share one."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from bedrockjobs.base.background import yield_to_loop
from bedrockjobs.base.clock import Clock
from bedrockjobs.base.config import NAMES_PER_COMMIT_MAX, NAMES_QUEUED_MAX, QUICK_COMMIT_S, QUICK_COMMITS
from bedrockjobs.base.principal import TokenShares, token_share
from bedrockjobs.base.settings import Settings
from bedrockjobs.engine.submission import Submission


class LoopTimer:
    """A timer that wakes the dispatcher; an earlier pending timer is kept, since setting one costs time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], object]) -> None:
        """Call ``wake`` when the timer fires."""
        self._loop = loop
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0  # on the loop's clock
        self.is_set = False
        """Whether the timer is going to fire."""

    def set(self, seconds: float) -> None:
        """Fire after at most ``seconds``."""
        now = self._loop.time()
        if now < self._at <= now + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at, self.is_set = now + seconds, True
        self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._at, self.is_set = 0.0, False  # the loop may fire slightly early: ``_at`` may be in the future
        self._wake()

    def cancel(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()


# Commit executor: commits run in the event loop if the disk is quick, else in a thread. Passing a commit to a
# thread and back costs more than a commit on a quick disk. A slow disk must not block the loop, which reads
# the next requests meanwhile.


Then = Callable[[float, "Exception | None"], None]
"""Called in the loop with the seconds that a commit took and the error it raised, if any."""


class CommitExecutor:
    """Executes commits one after another."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, *, waits_for_disk: bool) -> None:
        """Create the thread; call ``start`` before use.

        The thread does the first commits, until the speed of the disk is known, unless commits do not wait
        for a disk at all.
        """
        self._loop = loop
        self._clock = clock
        self._given: SimpleQueue[tuple[Callable[[], None], Then] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._usual_s = QUICK_COMMITS * QUICK_COMMIT_S if waits_for_disk else 0.0
        """Moving average of the duration of recent commits, in seconds."""
        self.start = self._thread.start
        """Start the thread."""
        self.is_alive = self._thread.is_alive
        """Return True while the thread runs."""

    def do(self, commit: Callable[[], None], then: Then) -> None:
        """Commit, then call ``then``; on a quick disk both happen before this returns."""
        if self._usual_s > QUICK_COMMIT_S:
            self._given.put((commit, then))
        else:
            self._end(then, *self.timed(commit))

    async def end(self) -> None:
        """Wait until all commits are done, then stop the thread."""
        self._given.put(None)
        await asyncio.to_thread(self._thread.join)

    def _work(self) -> None:
        while (task := self._given.get()) is not None:
            commit, then = task
            self._loop.call_soon_threadsafe(self._end, then, *self.timed(commit))

    def timed(self, commit: Callable[[], None]) -> tuple[float, Exception | None]:
        """Call ``commit`` in this thread; return the seconds it took and the error it raised, if any."""
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


# Group commit window: whether a commit waits one iteration of the event loop for more requests. With a few
# clients, requests arrive one by one: the first begins a transaction, and the others have arrived by the time
# its statements are done. A probe (one iteration of the loop, to see whether requests have arrived) costs a
# few hundredths of a commit. A single client, however, sends its next request only after the reply, so every
# probe for it is wasted. So the number of commands in the last commit predicts how many to expect, and the
# recent success of probes decides whether to probe for more.


PROBES_MAX = 8
"""Maximum number of probes before one commit, so that a trickle of requests cannot delay the first one any
longer."""
PROBE_S = 0.0002
"""Maximum seconds of a probe after which another probe may follow. A longer probe shows that other work,
such as a page or a large request, used that iteration of the loop; each further probe could cause the same
delay."""
TRY_EVERY = 16
"""Number of commits of which one probes even if probing has not paid off recently, since more clients may
have connected."""
Arrived = Callable[[int], list[Submission]]
"""Returns queued submissions, at most the given number."""


class GroupCommitWindow:
    """Decides how long to collect commands that share one commit."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float]) -> None:
        """Probe until probing turns out not to pay; at most ``batch_max`` commands share a commit."""
        self._settings = settings
        self._monotonic = monotonic
        self._shared = 0
        self._found = 1.0
        """Moving average of the share of successful probes."""
        self._passed = 0
        self.probes = 0
        """Number of probes in the current transaction; reset when it begins."""
        self.probing = False
        """Whether a transaction is probing in this iteration of the loop, which other work should leave
        free."""

    def more(self, arrived: Arrived, count: int) -> list[Submission]:
        """Return more commands for a transaction that has ``count`` commands, perhaps none.

        If probing is likely to pay, yield to the loop, then return what has ``arrived``. Servers that share a
        database do not call this, because all commands have to be known before their first round trip.
        """
        most = self._settings.batch_max
        if count >= most or not self._pays(count):
            return []
        begun, self.probing = self._monotonic(), True
        yield_to_loop()
        self.probing = False
        self.probes = PROBES_MAX if self._monotonic() - begun > PROBE_S else self.probes + 1
        found = arrived(most - count)
        if count >= self._shared:
            self._found += (bool(found) - self._found) / 8  # averages some 8 probes
        return found

    def _pays(self, count: int) -> bool:
        if self.probes >= PROBES_MAX:
            return False
        # If this share of probes succeeds, every commit probes. It is well above break-even, since below it
        # some commits still probe.
        if count < self._shared or self._found >= 0.2:
            return True
        self._passed += 1
        return self._passed % TRY_EVERY == 0

    def committed(self, count: int) -> None:
        """Record how many commands shared a commit."""
        self._shared = count


class ManyNames:
    """A queue of takes that ask for many names, and of their cancellations; each transaction does a few.

    Clients that send such takes therefore delay only each other.
    """

    def __init__(self, most: int = NAMES_PER_COMMIT_MAX) -> None:
        """Start empty; each transaction handles at most ``most`` names."""
        self._most = most
        self._did_some = False
        self.waiting: deque[Submission] = deque()
        """The queued submissions."""
        self._names = 0

    @property
    def full(self) -> bool:
        """Return True if the limit of queued names is reached."""
        return self._names >= NAMES_QUEUED_MAX

    def check_share(self, token: str) -> None:
        """Raise TooMany if a token has queued its share of the names."""
        if token and self._names >= token_share(NAMES_QUEUED_MAX):
            shares = TokenShares("Too many names are asked for")
            shares.add(token, sum(one.many for one in self.waiting if one.by == token))
            shares.check(token, NAMES_QUEUED_MAX)

    def put_aside(self, arrived: list[Submission]) -> list[Submission]:
        """Queue the submissions that ask for many names; return the other ones."""
        many = [one for one in arrived if one.many]
        self.waiting += many
        self._names += sum(one.many for one in many)
        return [one for one in arrived if not one.many]

    def some(self, others: int) -> list[Submission]:
        """Remove and return the takes for the next transaction, at least one if any take is queued.

        ``others`` is the number of other commands in the transaction. If there are other commands, at most
        every second transaction gets takes from this queue: commands that arrived during one such transaction
        must not wait for another.
        """
        found: list[Submission] = []
        self._did_some = not (others and self._did_some)
        if not self._did_some:
            return found
        room = self._most
        while self.waiting and (not found or room >= self.waiting[0].many):
            found.append(self.waiting.popleft())
            room -= found[-1].many
            self._names -= found[-1].many
        return found

    def all(self) -> list[Submission]:
        """Remove and return all submissions."""
        found = [*self.waiting]
        self.waiting.clear()
        self._names = 0
        return found
