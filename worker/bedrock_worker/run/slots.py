"""Slots: which runs may begin now, and how many jobs are prefetched before a slot is free for them.

A short run ends sooner than the next job can be fetched. So a worker prefetches as many jobs as its slots
are likely to begin within ``AHEAD_S``, judging by the duration of recent runs; while runs are long, none.
Prefetched jobs wait for a slot, the highest priority first. A job that waits too long (``HELD_S_MAX``), since
the runs before it take longer than expected, is handed back, so that other workers can take it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bedrock_worker.run.job_run import JobRun

AHEAD_S = 0.05
"""Maximum expected seconds until a prefetched job begins: time to fetch dozens of short runs together."""

AHEAD_MAX = 100
"""Maximum prefetched jobs for one kind of run: as many as one FinishJobs can end."""

HELD_S_MAX = 0.2
"""Maximum seconds that a job waits for a slot; it is handed back after 50 to 100 % of this time."""

RUN_S_FIRST = 1.0
"""Mean seconds of a run assumed at the start: so long that only dozens of short runs lead to prefetching."""

WEIGHT = 1 / 8
"""Weight of the last run in the mean duration: some dozens of short runs outweigh a long one."""


class Slots:
    """The slots for one kind of run."""

    def __init__(self, count: Callable[[], int], ahead_max: int = AHEAD_MAX) -> None:
        """Let ``count()`` runs go on at a time (it may change); prefetch up to ``ahead_max`` jobs."""
        self._count, self._ahead_max = count, ahead_max
        self._mean_s = RUN_S_FIRST
        self._began: dict[JobRun, float] = {}
        """When each run that has a slot began, by the event loop's clock; the oldest comes first."""
        self._waiting: list[tuple[int, int, JobRun]] = []
        """A heap of (priority, arrival, run) for waiting runs; a withdrawn run stays in it until its turn."""
        self._number = 0
        self._closed = False
        self._check: asyncio.TimerHandle | None = None

    def ahead(self) -> int:
        """Return how many jobs may be prefetched beyond the slots: as many as will probably begin soon."""
        now = asyncio.get_running_loop().time()
        quick = self._count()
        for began in self._began.values():
            if now - began <= AHEAD_S:
                break
            quick -= 1
        return min(self._ahead_max, max(0, int(quick * AHEAD_S / self._mean_s)))

    async def enter(self, run: JobRun) -> bool:
        """Wait for a slot; return False if the run must not begin (it was withdrawn, or waited too long)."""
        if self._closed:
            return False
        turn = run.hold()
        self._number += 1
        heapq.heappush(self._waiting, (-run.job.reply.priority, self._number, run))
        self._begin_waiting()
        if self._waiting and self._check is None:
            self._check = asyncio.get_running_loop().call_later(HELD_S_MAX / 2, self._hand_back, 0)
        try:
            return await turn
        except asyncio.CancelledError:
            self.leave(run)  # which may have got a slot in the meantime
            raise

    def leave(self, run: JobRun) -> None:
        """Free the slot of a run, if it has one, and let waiting runs begin."""
        began = self._began.pop(run, None)
        if began is not None:
            self._mean_s += (asyncio.get_running_loop().time() - began - self._mean_s) * WEIGHT
        self._begin_waiting()

    def _begin_waiting(self) -> None:
        """Let waiting runs begin while slots are free, the highest priority first."""
        while self._waiting and len(self._began) < self._count():
            _, _, following = heapq.heappop(self._waiting)
            if following.begin():
                self._began[following] = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Let no more runs begin."""
        self._closed = True
        for _, _, run in self._waiting:
            run.withdraw()
        self._waiting = []

    def _hand_back(self, seen: int) -> None:
        """Hand back the runs that waited at the last check already: those with numbers up to ``seen``.

        First, runs begin in the slots that were added since (``--max-load``). A run is never handed back at
        its first check: after a stall of this process, the check may come before the ends of other runs are
        read.
        """
        self._check = None
        self._begin_waiting()
        late = [run for _, number, run in self._waiting if number <= seen]
        self._waiting = [each for each in self._waiting if each[1] > seen]
        heapq.heapify(self._waiting)
        for run in late:
            run.withdraw()
        if self._waiting:
            again = asyncio.get_running_loop().call_later
            self._check = again(HELD_S_MAX / 2, self._hand_back, self._number)
