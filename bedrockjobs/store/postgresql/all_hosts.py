"""The schedules that run on all hosts, as a unit on PostgreSQL finds them."""

from __future__ import annotations

from collections.abc import Callable

from bedrockjobs.job.lanes import EVERY_LANE
from bedrockjobs.job.rows import Job, job_from
from bedrockjobs.store.all_hosts import AllHostsSchedules
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.transaction import Transaction


class AllHosts:
    """They are read each time: another server may have written them."""

    def __init__(
        self, transaction: Transaction, look: Callable[..., list[Job]], is_paused: Callable[[str], bool]
    ) -> None:
        """Read with ``transaction``, or, with locks, by ``look``."""
        self._transaction = transaction
        self._look = look
        self._schedules = AllHostsSchedules(is_paused)

    def due(self, now: str) -> list[Job]:
        """Return the queued ones that are due and not paused, the oldest first; locked."""
        self._schedules.load(self._look("queued_in_lane", EVERY_LANE, now))
        return self._schedules.due(now)

    def next(self) -> str | None:
        """Return when the next of them is due."""
        (found,) = self._transaction.read((SQL["next_in_lane"], (EVERY_LANE,)))
        self._schedules.load([job_from(row) for row in found])
        return self._schedules.next
