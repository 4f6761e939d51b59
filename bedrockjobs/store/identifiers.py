"""Allocates jobIDs and runIDs in memory, from blocks reserved in the database.

The database stores the first unreserved ID, so most commits need not write it. If the server is killed, the
rest of its block stays unused; a clean shutdown releases the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bedrockjobs.base.config import ID_BLOCK
from bedrockjobs.store.statements import STATEMENTS as SQL


class Identifiers:
    """The ID allocator of one database."""

    def __init__(self, execute: Callable[..., Any], job_exists: Callable[[int], bool]) -> None:
        """Use the writer's connection; ``job_exists`` returns whether a jobID is in use."""
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
        """Allocate a jobID, skipping jobIDs of imported jobs."""
        if not self._known:
            self._load()
        found = self._jobs.next
        while found <= self._highest_job and self._job_exists(found):
            found += 1
        self._jobs.next = found + 1
        return found

    def return_job(self, job_id: int) -> None:
        """Release the jobID that was allocated last, so that the next job gets it."""
        assert job_id == self._jobs.next - 1
        self._jobs.next = job_id

    def new_run(self) -> int:
        """Allocate a runID."""
        if not self._known:
            self._load()
        self._runs.next += 1
        return self._runs.next - 1

    def save(self) -> None:
        """Reserve a new block in the open transaction if the last block is used up."""
        if self._known and (self._jobs.next > self._jobs.end or self._runs.next > self._runs.end):
            for counter in self._counters:
                if counter.next > counter.end:
                    counter.write(counter.next + ID_BLOCK)

    def give_back(self) -> None:
        """Release the unused part of the blocks in the open transaction."""
        if not self._known:
            self._load()
        for counter in self._counters:
            counter.write(counter.next)

    def saved(self) -> None:
        """Record that the transaction was committed."""
        if not self._known:
            return
        for counter in self._counters:
            counter.kept = counter.next, counter.end

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int] | None:
        """Return the next jobID and the next runID, or None if they are unknown."""
        return (self._jobs.next, self._runs.next) if self._known else None

    def undo(self, mark: tuple[int, int] | None) -> None:
        """Release the IDs that were allocated since the mark."""
        if mark is None:
            self.forget()
        else:
            self._jobs.next, self._runs.next = mark

    def forget(self) -> None:
        """Read the stored IDs again at the next allocation."""
        self._known = False


class _Counter:
    """The counter of jobIDs or of runIDs."""

    def __init__(self, execute: Callable[..., Any], key: str) -> None:
        self._execute = execute
        self._key = key
        self.next = 0
        """The next ID to allocate."""
        self.end = 0
        """The first unreserved ID, in the open transaction."""
        self.kept = 0, 0
        """``next`` and ``end`` as of the last commit."""

    def load(self) -> None:
        """Read the first unreserved ID; if unchanged since the last commit, continue in that block."""
        stored = int(self._execute(SQL["get_meta"], (self._key,)).fetchone()[0])
        before, end = self.kept
        self.next, self.end = (before if stored == end else stored), stored
        self.kept = self.next, self.end

    def write(self, end: int) -> None:
        if end != self.end:
            self._execute(SQL["set_meta"], (self._key, end))
            self.end = end
