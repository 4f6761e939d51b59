"""The round trip that begins a unit: what its plans name, locked in the one order that all units keep.

The order is why no two units wait for each other: control, names and keys, jobs without a parent, children,
takes. See docs/explanation/postgresql.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from bedrockjobs.base.wire import SECONDS
from bedrockjobs.store.base import Plan
from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.behind_heads import BehindHeads, behind_heads
from bedrockjobs.store.postgresql.dates import ClockMoved
from bedrockjobs.store.postgresql.looks import Look, may_claim, planned_looks
from bedrockjobs.store.postgresql.pipeline import Row, Statement
from bedrockjobs.store.postgresql.remembered import Remembered
from bedrockjobs.store.postgresql.schema import check_needs
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

T = TypeVar("T", int, str)

SMALL_OUTPUT_BYTES = 4_096
"""Output of a run that is read with it: its last lines are wanted where it ends."""


class Opening:
    """The statements that open one unit, and how to read what they find."""

    def __init__(
        self,
        plans: Sequence[Plan],
        now: str,
        keys: AdvisoryKeys,
        plain: Collection[int],
        remembered: Remembered,
        clock: str,
    ) -> None:
        """Open for some plans at a stamp; ``plain`` are jobs whose end seems to be that they are removed.

        ``clock`` is what the test clock of the database is to show; empty: there is none.
        """
        self._clock = clock
        self.now = now
        self._remembered = remembered
        self.names = _all(plan.names for plan in plans)
        """Names of which the first jobs matter."""
        self.keys = _all(plan.keys for plan in plans)
        """Idempotency keys and unique keys."""
        self.job_ids = _all(plan.jobs for plan in plans)
        """The jobs that are named, to be locked."""
        self.ended = _all(plan.ends for plan in plans)
        """The jobs that are removed at once."""
        self.run_ids = _all(plan.runs for plan in plans)
        """The runs that are named."""
        looks = planned_looks(chain.from_iterable(plan.takes for plan in plans))
        self._bounds = remembered.begin(looks, now)
        self.walks = [look for look in looks if remembered.heads_for(look) is None]
        """What is looked for at once, and how many of each."""
        self.asks: list[Look] = []
        """Patterns of which it is remembered which names have the next jobs: these are asked next."""
        self.behind_heads: list[BehindHeads] = []
        """The same, asked at once: where no job has a lock, which could be held."""
        self._lanes = remembered.lanes
        """Whether names are looked for in all lanes: where jobs were queued in others in the last unit."""
        self.claimed = now[:SECONDS] if may_claim(looks) else ""
        """The stamp at which plain jobs are taken at once; empty where they are only locked."""
        claimed = "" if self._lanes else self.claimed
        for look in looks:
            heads = remembered.heads_for(look)
            if heads is not None:
                first = None if remembered.locks else behind_heads(look, heads, now, claimed, remembered)
                if first is None:
                    self.asks.append(look)
                else:
                    self.behind_heads.append(first)
        self.new_jobs = sum(plan.new_jobs for plan in plans)
        self.new_runs = sum(plan.new_runs for plan in plans)
        self._alone = any(plan.control or plan.everything for plan in plans)
        if self._alone or self.job_ids or self.names or not all(job_id in plain for job_id in self.ended):
            self.job_ids, self.ended = _all([tuple(self.job_ids), tuple(self.ended)]), []
        self.own_jobs = any(plan.own_jobs for plan in plans)
        """Whether workers are read for which jobs are queued that nobody else may take."""
        self._locks = remembered.locks
        """Whether jobs with a lock are looked for, likewise."""
        self._control = keys.of("control")
        self._waited = {keys.of("name", name) for name in self.names} | {keys.of("key", k) for k in self.keys}

    def statements(self) -> list[Statement]:
        """Return the statements in the order of the locks; what is read of runs and keys needs none."""
        found: list[Statement] = [
            (SQL["lock_alone" if self._alone else "lock_shared"], (self._control,)),
            (SQL["epoch"], ()),
            *self._bounds,
            *([(SQL["bound_lanes"], ())] if self.own_jobs else []),
        ]
        if self._waited:
            found.append((SQL["lock_each"], (sorted(self._waited),)))
        if self.ended:
            found.append((SQL["end_jobs"], (self.ended,)))
        if self.names:
            found.append((SQL["lock_jobs_and_firsts"], (self.job_ids, self.names)))
            found.append((SQL["lock_children_and_firsts"], (self.job_ids, self.names)))
        elif self.job_ids:
            found.append((SQL["lock_jobs"], (self.job_ids,)))
            found.append((SQL["lock_children"], (self.job_ids,)))
        if self.names:
            found.append((SQL["firsts"], (self.names,)))
        if self.job_ids or self.run_ids:
            found.append((SQL["runs_ahead"], (self.run_ids, self.job_ids, SMALL_OUTPUT_BYTES)))
        if self.keys:
            found.append((SQL["keys_ahead"], (self.keys,)))
        floors = self._remembered.floors
        for look in self.walks:
            if self._lanes or look.patterns is not None:
                found.append(look.statement(self.now, floors, claimed=self.claimed))
            else:
                found.append(look.in_open_lane(self.now, floors, claimed=self.claimed))
            if self._looks_for_locks(look):
                found.append(look.with_lock(self.now))
        return found + [heads.statement(self.now) for heads in self.behind_heads]

    def _looks_for_locks(self, look: Look) -> bool:
        return self._locks and look.patterns is None

    def epoch(self, found: Iterator[list[Row]]) -> int:
        """Read the first answers: how often pauses, drains and the crash list were changed, and bounds.

        Raises ClockMoved where the test clock shows another date, TooOld where other servers are needed.
        """
        next(found)
        ((epoch, clock, needs, lanes, locks),) = next(found)
        check_needs(int(needs))
        if clock != self._clock:
            raise ClockMoved(clock)
        self._remembered.lanes, self._remembered.locks = bool(lanes), bool(locks)
        self._remembered.read(found, self.now)
        return int(epoch)

    def bound_lanes(self, found: Iterator[list[Row]]) -> list[str]:
        """Read the next answer: the lanes of jobs that are queued for one worker each."""
        lanes = [lane for (lane,) in next(found)] if self.own_jobs else []
        if self._waited:
            next(found)
        return lanes

    def removed(self, found: Iterator[list[Row]]) -> list[Row]:
        """Read the next answer: the jobs that were removed."""
        return next(found) if self.ended else []

    def jobs(self, found: Iterator[list[Row]]) -> list[Row]:
        """Read the next answers: the jobs that are locked."""
        return [*next(found), *next(found)] if self.job_ids or self.names else []

    def firsts(self, found: Iterator[list[Row]]) -> dict[tuple[str, bool], int | None]:
        """Read the next answer: the first job of each name, real and mocked."""
        rows = next(found) if self.names else []
        firsts = {(name, False): real for name, real, _ in rows}
        return firsts | {(name, True): mocked for name, _, mocked in rows}

    def runs(self, found: Iterator[list[Row]]) -> list[Row]:
        """Read the next answer: runs, each with the number of its last line and its last lines."""
        return next(found) if self.job_ids or self.run_ids else []

    def used_keys(self, found: Iterator[list[Row]]) -> list[Row]:
        """Read the next answer: what the keys were used for."""
        return next(found) if self.keys else []

    def looked(self, look: Look, found: Iterator[list[Row]]) -> tuple[list[Row], list[Row] | None, bool]:
        """Read the next answers: what a look has found without a lock, and with one, None where not asked.

        Last comes whether that is ``complete``.
        """
        return next(found), next(found) if self._looks_for_locks(look) else None, self.complete

    @property
    def complete(self) -> bool:
        """Tell whether jobs were looked for in all lanes in which anything is queued."""
        return self._lanes or not self._remembered.lanes


def _all(lists: Iterable[tuple[T, ...]]) -> list[T]:
    return sorted(set(chain.from_iterable(lists)))
