"""jobIDs and runIDs: counted in memory, written with each commit, and read anew where that was undone."""

from __future__ import annotations

from collections.abc import Callable

from bedrockjobs.store.statements import STATEMENTS as SQL


class Identifiers:
    """The next numbers of one database."""

    def __init__(self, execute: Callable[..., object], job_exists: Callable[[int], bool]) -> None:
        """Count for the writer's connection; ``job_exists`` tells whether a jobID is in use."""
        self._execute = execute
        self._job_exists = job_exists
        self._next_job = self._saved_job = self._highest_job = 0
        self._next_run = self._saved_run = 0
        self._known = False

    def _load(self) -> None:
        self._next_job = self._saved_job = int(self._value("get_meta", "nextJobID"))
        self._next_run = self._saved_run = int(self._value("get_meta", "nextRunID"))
        self._highest_job = int(self._value("highest_job_id") or 0)
        self._known = True

    def _value(self, statement: str, *parameters: str) -> int:
        found: int = self._execute(SQL[statement], parameters).fetchone()[0]  # type: ignore[attr-defined]
        return found

    def new_job(self) -> int:
        """Return the next jobID that is not in use; imported jobs may lie ahead."""
        if not self._known:
            self._load()
        found = self._next_job
        while found <= self._highest_job and self._job_exists(found):
            found += 1
        self._next_job = found + 1
        return found

    def new_run(self) -> int:
        """Return the next runID."""
        if not self._known:
            self._load()
        self._next_run += 1
        return self._next_run - 1

    def save(self) -> None:
        """Write the numbers that were drawn, in the open transaction."""
        if self._next_job != self._saved_job:
            self._execute(SQL["set_meta"], ("nextJobID", self._next_job))
        if self._next_run != self._saved_run:
            self._execute(SQL["set_meta"], ("nextRunID", self._next_run))

    def saved(self) -> None:
        """Note that the transaction is on disk."""
        self._saved_job, self._saved_run = self._next_job, self._next_run

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> tuple[int, int] | None:
        """Return the next numbers; None where they are not known yet."""
        return (self._next_job, self._next_run) if self._known else None

    def undo(self, mark: tuple[int, int] | None) -> None:
        """Draw the same numbers again."""
        if mark is None:
            self.forget()
        else:
            self._next_job, self._next_run = mark

    def forget(self) -> None:
        """Read the numbers anew when one is drawn."""
        self._next_job = self._saved_job = self._next_run = self._saved_run = 0
        self._known = False
