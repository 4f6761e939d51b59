"""jobIDs and runIDs: drawn in memory, from blocks that are reserved in the database.

What is stored is the first number that is not reserved. So most commits need not write it, and a server that
is killed leaves out the rest of its block; one that ends well gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bedrockjobs.base.config import ID_BLOCK
from bedrockjobs.store.statements import STATEMENTS as SQL


class Identifiers:
    """The next numbers of one database."""

    def __init__(self, execute: Callable[..., Any], job_exists: Callable[[int], bool]) -> None:
        """Count for the writer's connection; ``job_exists`` tells whether a jobID is in use."""
        self._execute = execute
        self._job_exists = job_exists
        self._jobs = _Counter(execute, "nextJobID")
        self._runs = _Counter(execute, "nextRunID")
        self._counters = (self._jobs, self._runs)
        self._highest_job = 0
        self._known = False

    def _load(self) -> None:
        self._jobs.load()
        self._runs.load()
        self._highest_job = int(self._execute(SQL["highest_job_id"]).fetchone()[0] or 0)
        self._known = True

    def new_job(self) -> int:
        """Return the next jobID that is not in use; imported jobs may lie ahead."""
        if not self._known:
            self._load()
        found = self._jobs.next
        while found <= self._highest_job and self._job_exists(found):
            found += 1
        self._jobs.next = found + 1
        return found

    def new_run(self) -> int:
        """Return the next runID."""
        if not self._known:
            self._load()
        self._runs.next += 1
        return self._runs.next - 1

    def save(self) -> None:
        """Reserve, in the open transaction, what was drawn beyond the last block, and a new one."""
        if not self._known:
            return
        for counter in self._counters:
            if counter.next > counter.end:
                counter.write(counter.next + ID_BLOCK)

    def give_back(self) -> None:
        """Reserve, in the open transaction, no more than what was drawn: nobody draws any more."""
        if not self._known:
            self._load()
        for counter in self._counters:
            counter.write(counter.next)

    def saved(self) -> None:
        """Note that the transaction is on disk."""
        if not self._known:
            return
        for counter in self._counters:
            counter.kept = counter.next, counter.end

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int] | None:
        """Return the next numbers; None where they are not known yet."""
        return (self._jobs.next, self._runs.next) if self._known else None

    def undo(self, mark: tuple[int, int] | None) -> None:
        """Draw the same numbers again."""
        if mark is None:
            self.forget()
        else:
            self._jobs.next, self._runs.next = mark

    def forget(self) -> None:
        """Read the numbers anew when one is drawn."""
        self._known = False


class _Counter:
    """The numbers of one kind."""

    def __init__(self, execute: Callable[..., Any], key: str) -> None:
        self._execute = execute
        self._key = key
        self.next = 0
        """The next to be drawn."""
        self.end = 0
        """The first that is not reserved, as the open transaction has it."""
        self.kept = 0, 0
        """Both, as they were when the last transaction came to disk."""

    def load(self) -> None:
        """Read what is stored; where that is what was stored last, go on with the block."""
        stored = int(self._execute(SQL["get_meta"], (self._key,)).fetchone()[0])
        before, end = self.kept
        self.next, self.end = (before if stored == end else stored), stored
        self.kept = self.next, self.end

    def write(self, end: int) -> None:
        if end != self.end:
            self._execute(SQL["set_meta"], (self._key, end))
            self.end = end
