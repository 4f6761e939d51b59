"""What a unit looks for in its first round trip for patterns of which it is remembered which names have jobs.

The names with the next jobs are asked for as many as they had last time. What comes back is exact up to some
place, which follows from what was asked for. No statement is sent here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bedrockjobs.store.base import StillSearching
from bedrockjobs.store.postgresql.candidates import EVERYTHING, Order
from bedrockjobs.store.postgresql.heads import BEGINNING, Head, Heads
from bedrockjobs.store.postgresql.looks import Look
from bedrockjobs.store.postgresql.pipeline import Row, Statement
from bedrockjobs.store.postgresql.remembered import Remembered
from bedrockjobs.store.postgresql.statements import QUERIES as SQL

HEADS_MORE = 8
"""Names that are asked for beside a quarter more than had any of the next jobs last time."""

_BEHIND = -4
"""Where in a row what stands behind the columns of a job begins: class, nextRun, jobID and name."""


class BehindHeads(NamedTuple):
    """One statement for some patterns."""

    look: Look
    known: Heads
    heads: list[Head]
    """Those that are asked, in order."""
    wanted: list[int]
    """How many jobs of each."""
    end: Order
    """Up to where no other head comes."""
    claimed: str
    """The stamp at which plain jobs are marked as taken, where all are in the open lane; empty: none are."""

    def statement(self, now: str) -> Statement:
        """Return what locks the next jobs."""
        downs, next_runs, job_ids, names = map(list, zip(*self.heads, strict=True))
        asked = names, [-down for down in downs], next_runs, job_ids, self.wanted, self.look.limit
        if self.claimed:
            return SQL["claim_behind_heads"], (now, *asked, self.claimed)
        return SQL["take_behind_heads"], (now, list(self.known.key[0]), *asked)

    def found(self, rows: Sequence[Row]) -> Order:
        """Return up to where all jobs are known, and note what that says about the next unit."""
        orders = [_order(row) for row in rows]
        ends = [self.end, *orders[self.look.limit - 1 :]]
        of_head: dict[tuple[int, str], list[Order]] = {}
        for order, row in zip(orders, rows, strict=True):
            of_head.setdefault((order[0], row[-1]), []).append(order)
        often = self.known.often
        for (down, _, _, name), wanted in zip(self.heads, self.wanted, strict=True):
            found = of_head.get((down, name), [])
            if len(found) >= wanted:
                ends.append(found[-1])
                often[name] = often.get(name, 0) + 1
            elif often.get(name) and 4 * len(found) <= wanted:
                often[name] -= 1
        end = min(ends)
        gone = [
            (down, name) for down, next_run, job_id, name in self.heads if (down, next_run, job_id) <= end
        ]
        self.known.asked.update(dict.fromkeys([*of_head, *gone]))
        self.known.share = len(of_head) / self.look.limit
        return end


def behind_heads(
    look: Look, known: Heads, now: str, claimed: str, remembered: Remembered
) -> BehindHeads | None:
    """Return what to ask for a look at patterns whose heads are known; None if none is due or it takes long.

    Plain jobs are marked as taken at the stamp ``claimed``, unless that is empty. The third name is asked for
    a third of all: it has no more of them, if those before it have as many.
    """
    count = min(look.limit, int(1.25 * known.share * look.limit) + HEADS_MORE)
    try:
        heads = remembered.next(known, BEGINNING, now, look.sort.priority, count + 1)
    except StillSearching:
        return None
    if not heads:
        return None
    end = EVERYTHING
    if len(heads) > count:
        down, next_run, job_id, _ = heads.pop()
        end = down, next_run, job_id - 1
    wanted = [
        min(-(-look.limit // place) + 1 << known.often.get(name, 0), look.limit + 1)
        for place, (*_, name) in enumerate(heads, 1)
    ]
    return BehindHeads(look, known, heads, wanted, end, claimed)


def _order(row: Row) -> Order:
    priority, next_run, job_id = row[_BEHIND:-1]
    return -priority, next_run, job_id
