"""Slots: which runs may go on now, and how many jobs are prefetched ahead of a free slot.

A short run ends sooner than the next job can be fetched. So a worker prefetches as many jobs as its slots
are likely to begin within ``AHEAD_S``, as recent runs took; while runs are long, none. A prefetched job
waits for a slot, the highest priority first. If it waits too long (``HELD_S_MAX``), since a run takes longer
than those before it, it is handed back, and other workers can take it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedrock_worker.run.job_run import JobRun

AHEAD_S = 0.05
"""Expected wait of the last prefetched job: enough to report and fetch dozens of short runs at once."""

AHEAD_MAX = 100
"""Maximum prefetched jobs of a kind, as many as one FinishJobs ends."""

HELD_S_MAX = 0.2
"""Maximum wait for a slot: between half of it and all of it, the job is handed back."""

RUN_S_FIRST = 1.0
"""Assumed mean duration at the start: long, so that jobs are prefetched only after dozens of short runs."""

WEIGHT = 1 / 8
"""Weight of the last run in the mean duration, which is low again dozens of short runs after a long one."""


class Slots:
    """The slots for one kind of run."""

    def __init__(self, count: Callable[[], int], ahead_max: int = AHEAD_MAX) -> None:
        """Let ``count()`` runs go on at once, which may change; prefetch at most ``ahead_max`` jobs."""
        self._count, self._ahead_max = count, ahead_max
        self._mean_s = RUN_S_FIRST
        self._began: dict[JobRun, float] = {}
        """The running ones in the order of their start."""
        self._waiting: list[tuple[int, int, JobRun]] = []
        """A heap, by priority and order; those that no longer wait stay in it until their turn."""
        self._number = 0
        self._closed = False
        self._check: asyncio.TimerHandle | None = None

    def ahead(self) -> int:
        """Return how many jobs beyond the slots may be in hand: those that will begin soon."""
        now = asyncio.get_running_loop().time()
        quick = self._count()
        for began in self._began.values():
            if now - began <= AHEAD_S:
                break
            quick -= 1
        return min(self._ahead_max, max(0, int(quick * AHEAD_S / self._mean_s)))

    async def enter(self, run: JobRun) -> bool:
        """Wait for a slot; return False if the run must not begin: it is unwanted, or has waited too long."""
        if self._closed:
            return False
        if len(self._began) < self._count():
            self._began[run] = asyncio.get_running_loop().time()
            return True
        turn = run.hold()
        self._number += 1
        heapq.heappush(self._waiting, (-run.job.reply.priority, self._number, run))
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(HELD_S_MAX / 2, self._hand_back, 0)
        try:
            return await turn
        except asyncio.CancelledError:
            self.leave(run)  # it may just have got its slot
            raise

    def leave(self, run: JobRun) -> None:
        """Free the slot of a run, if it has one, for those that wait."""
        now = asyncio.get_running_loop().time()
        began = self._began.pop(run, None)
        if began is not None:
            self._mean_s += (now - began - self._mean_s) * WEIGHT
        while self._waiting and len(self._began) < self._count():
            _, _, following = heapq.heappop(self._waiting)
            if following.begin():
                self._began[following] = now

    def close(self) -> None:
        """Let no more runs begin."""
        self._closed = True
        for _, _, run in self._waiting:
            run.withdraw()
        self._waiting = []

    def _hand_back(self, seen: int) -> None:
        """Hand back the runs that have waited since the last check: those up to the number ``seen``.

        A single check is not enough: after a stall of this process it comes before the ends of runs are read.
        """
        self._check = None
        late = [run for _, number, run in self._waiting if number <= seen]
        self._waiting = [each for each in self._waiting if each[1] > seen]
        heapq.heapify(self._waiting)
        for run in late:
            run.withdraw()
        if self._waiting:
            again = asyncio.get_running_loop().call_later
            self._check = again(HELD_S_MAX / 2, self._hand_back, self._number)
