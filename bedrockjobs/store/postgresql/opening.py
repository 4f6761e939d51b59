"""The round trip that begins a unit: what its plans name, locked in the one order that all units keep.

The order is why no two units wait for each other: control, names and keys, jobs without a parent, children,
takes. See docs/explanation/postgresql.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from bedrockjobs.job.take_request import TakeRequest
from bedrockjobs.store.base import Plan
from bedrockjobs.store.postgresql.advisory import AdvisoryKeys
from bedrockjobs.store.postgresql.session import Row, Statement
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.takes import look, planned_looks


class Opening:
    """The statements of one opening, and how to read what they find."""

    def __init__(self, keys: AdvisoryKeys) -> None:
        """Lock with these numbers."""
        self._keys = keys
        self.statements: list[Statement] = []
        """In the order of the locks."""
        self.now = ""
        self.job_ids: list[int] = []
        """The jobs that are named."""
        self.looks: list[tuple[TakeRequest, int]] = []
        """What is asked for, and how many of each."""
        self.new_jobs = self.new_runs = 0
        """Numbers that are needed."""
        self._rows = False

    def plan(self, plans: Sequence[Plan], now: str) -> None:
        """Find the statements for a unit with these plans."""
        self.now = now
        names = sorted(set(chain.from_iterable(plan.names for plan in plans)))
        keys = set(chain.from_iterable(plan.keys for plan in plans))
        self.job_ids = sorted(set(chain.from_iterable(plan.jobs for plan in plans)))
        self.looks = planned_looks(chain.from_iterable(plan.takes for plan in plans))
        self.new_jobs = sum(plan.new_jobs for plan in plans)
        self.new_runs = sum(plan.new_runs for plan in plans)
        alone = any(plan.control or plan.everything for plan in plans)
        lock = SQL["lock_alone" if alone else "lock_shared"]
        self.statements = [(lock, (self._keys.of("control"),)), (SQL["epoch"], ())]
        waited = {self._keys.of("name", name) for name in names} | {self._keys.of("key", key) for key in keys}
        if waited:
            self.statements.append((SQL["lock_each"], (sorted(waited),)))
        self._waits = bool(waited)
        self._rows = bool(self.job_ids or names)
        if self._rows:
            self.statements.append((SQL["lock_jobs"], (self.job_ids, names)))
            self.statements.append((SQL["lock_children"], (self.job_ids,)))
        self.statements += [look(request, now, limit) for request, limit in self.looks]

    def epoch(self, found: Iterator[list[Row]]) -> int:
        """Read the first answers: how often pauses, drains and the crash list were changed."""
        next(found)
        ((epoch,),) = next(found)
        if self._waits:
            next(found)
        return int(epoch)

    def locked(self, found: Iterator[list[Row]]) -> list[list[Row]]:
        """Read the next answers: the rows that are locked."""
        return [next(found), next(found)] if self._rows else []
