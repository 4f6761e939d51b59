"""Why live workers are idle, from one bounded snapshot of the queue for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bedrockjobs.job.eligibility import AskedNames, EligibleWorkers, WorkerCapabilities, need_of
from bedrockjobs.views.queues import GROUPS_A_TURN, Queues

WORKERS_A_TURN = 10
"""Workers indexed between two yields to the event loop: each may have 1,600 patterns."""

PAUSED = "what waits for it is paused"
BLOCKED = "what waits for it needs a lock that another job holds"
READY = "jobs are ready for it: it has not asked for one"
NOTHING = "nothing is due for it"
NO_NAMES = "it asks for no names"

_FIRST = {"ready": READY, "blocked": BLOCKED, "paused": PAUSED}
"""Idle reasons by the standing of the jobs that a worker could take, in order of preference."""


async def why_idle(queues: Queues, workers: Sequence[WorkerCapabilities]) -> dict[str, str]:
    """Return the idle reason of each worker, by its name."""
    look = await queues.look()
    standings: dict[str, set[str]] = {worker.name: set() for worker in workers}
    asked = AskedNames()
    for number, worker in enumerate(workers):
        if number % WORKERS_A_TURN == WORKERS_A_TURN - 1:
            await asyncio.sleep(0)
        asked.put(worker.name, worker.names)
    takers = EligibleWorkers(workers, {}, asked)
    for number, group in enumerate(look.groups):
        if number % GROUPS_A_TURN == GROUPS_A_TURN - 1:
            await asyncio.sleep(0)
        if group.due:
            stands = look.held.standing(group, due=True)
            for name in takers.of(group.name, need_of(group.lane)):
                standings[name].add(stands)
    found = {}
    for worker in workers:
        first = next((words for one, words in _FIRST.items() if one in standings[worker.name]), NOTHING)
        held_back = look.held.takers.held_back(worker)
        found[worker.name] = f"it {held_back}" if held_back else first if worker.names else NO_NAMES
    return found
