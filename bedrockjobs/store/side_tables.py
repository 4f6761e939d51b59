"""The tables beside jobs, as every engine offers them: runs, output, ticks, keys, pauses and so on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from bedrockjobs.job.limits import Limit
from bedrockjobs.job.retention import Retention
from bedrockjobs.job.rows import (
    AuditRow,
    EventRow,
    JobOfKey,
    LoginRow,
    PauseRow,
    RuleRow,
    RunGiven,
    RunHead,
    RunRow,
    TickRow,
    TokenRow,
)
from bedrockjobs.store.chunks import Chunk


class Records(Protocol):
    """The tables beside jobs, as the open unit sees them; no operation decides anything."""

    @property
    def keep_finished_s(self) -> float:
        """Return how long a job that ended well is kept as a run; 0: not at all, unless it asks for that."""
        ...

    @property
    def keys_kept_s(self) -> float:
        """Return how long an idempotency key is remembered."""
        ...

    def open_run(self, run: RunRow, given: RunGiven) -> None:
        """Add a run in progress, with what it was given."""
        ...

    def add_ended_run(self, run: RunRow, given: RunGiven) -> None:
        """Add a run that has ended, and that is kept for a time, with what it was given."""
        ...

    def kept_of_job(self, job_id: int) -> RunRow | None:
        """Return the last run of a job if it is kept for a time, or None."""
        ...

    def given_to(self, run_id: int) -> RunGiven:
        """Return what a run was given; raises LookupError where there is no such run."""
        ...

    def run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""
        ...

    def end_run(self, run: RunRow, *, keep_success: int, keep_fail: int) -> None:
        """Write the end of a run, and forget the oldest of its name beyond what is to be kept."""
        ...

    def stop_run(self, run_id: int, stop: str) -> None:
        """Note what a run's worker is to be told."""
        ...

    def set_progress(self, run_id: int, progress: str) -> None:
        """Note how far a run is, as JSON text."""
        ...

    def delete_run(self, run_id: int) -> None:
        """Forget a run that never began."""
        ...

    def runs_below(self, run_id: int, name: str | None, limit: int) -> list[RunHead]:
        """Return the newest runs below one, of any name or of this one."""
        ...

    def size_of_run(self, run_id: int) -> int:
        """Return about how many bytes a run and its output are."""
        ...

    def texts_of_run(self, run_id: int) -> Iterator[str]:
        """Yield all texts of a run, those of its columns first, then its output, chunk by chunk."""
        ...

    def erase_run(self, run_id: int) -> None:
        """Delete a run that has ended, its output, and that somebody has seen it."""
        ...

    def events_of_runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the number and the runID of events with a detail, of the runs between two."""
        ...

    def events_with_detail(self, after: int, limit: int) -> list[tuple[int, str, str]]:
        """Return the number, the name and the detail of events behind one."""
        ...

    def put_detail(self, seq: int, detail: str) -> None:
        """Replace the detail of an event."""
        ...

    def open_runs(self) -> list[tuple[int, int, str, int, str]]:
        """Return runID, jobID, worker, lease in seconds and stop of each run in progress."""
        ...

    def run_key(self) -> str:
        """Return what the tokens of runs are made with: the same for all servers of the database."""
        ...

    def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return the number of a run's last line of output, and the bytes that it has printed."""
        ...

    def append(self, chunk: Chunk, name: str) -> None:
        """Add lines to a run of this name; beyond the limit the oldest but for the first are forgotten."""
        ...

    def loose(self, run_id: int) -> list[Chunk]:
        """Return the first chunks of a run that are not packed, enough for a packed one if there are."""
        ...

    def pack(self, chunk: Chunk) -> bool:
        """Put a packed chunk in the place of those that it stands for; False if they are not there."""
        ...

    def last_lines(self, run_id: int, count: int) -> str:
        """Return a run's last lines as a JSON array."""
        ...

    def last_tick(self, job_id: int) -> TickRow | None:
        """Return the newest row of a schedule's ledger."""
        ...

    def put_tick(self, row: TickRow) -> None:
        """Write a row of the ledger."""
        ...

    def delete_tick(self, row: TickRow) -> None:
        """Take a row out of the ledger."""
        ...

    def delete_ticks(self, job_id: int) -> None:
        """Forget a schedule's ledger."""
        ...

    def job_of_key(self, key: str, since: str) -> JobOfKey | None:
        """Return the job that an idempotency key was used for after ``since``."""
        ...

    def put_key(self, key: str, job: JobOfKey, now: str) -> None:
        """Remember an idempotency key."""
        ...

    def pauses(self) -> tuple[PauseRow, ...]:
        """Return what is paused, by pattern."""
        ...

    def pause_of(self, name: str) -> PauseRow | None:
        """Return the first pause that covers a name."""
        ...

    def put_pause(self, pause: PauseRow) -> None:
        """Pause a pattern."""
        ...

    def delete_pause(self, pattern: str) -> None:
        """Resume a pattern."""
        ...

    def limits(self) -> tuple[Limit, ...]:
        """Return the limits of what may be created, by pattern."""
        ...

    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        """Replace them."""
        ...

    def retention(self) -> tuple[Retention, ...]:
        """Return what is kept of names, by pattern."""
        ...

    def set_retention(self, kept: tuple[Retention, ...]) -> None:
        """Replace it."""
        ...

    def declared(self, source: str) -> str | None:
        """Return which workers declare the schedules of a source, as JSON text; None if nothing is known."""
        ...

    def put_declared(self, source: str, text: str) -> None:
        """Replace it."""
        ...

    def running(self, pattern: str) -> int:
        """Return how many runs are in progress of jobs whose names match."""
        ...

    def count_queued(self, pattern: str, most: int) -> int:
        """Return how many jobs are queued whose names match, ``most`` if they are as many or more."""
        ...

    def drains(self) -> frozenset[str]:
        """Return the workers that are drained."""
        ...

    def put_drain(self, worker: str, by: str, now: str) -> None:
        """Drain a worker."""
        ...

    def delete_drain(self, worker: str) -> None:
        """Let a worker take jobs again."""
        ...

    def add_minute(self, minute: str, counts: Sequence[int]) -> None:
        """Write what was done in a minute, in the order of the table."""
        ...

    def add_event(self, at: str, event: EventRow) -> None:
        """Tell what happened at a stamp."""
        ...

    def tokens(self) -> tuple[TokenRow, ...]:
        """Return who may do what, by name, whether it still counts or not."""
        ...

    def put_token(self, token: TokenRow) -> None:
        """Write a token, in the place of one of its name."""
        ...

    def delete_token(self, name: str) -> None:
        """Forget a token."""
        ...

    def use_token(self, name: str, now: str, addresses: str) -> None:
        """Note when a token was used, and all addresses it was used from."""
        ...

    def logins(self) -> tuple[LoginRow, ...]:
        """Return who is logged in to the pages, the oldest first."""
        ...

    def put_login(self, login: LoginRow) -> None:
        """Log somebody in to the pages."""
        ...

    def delete_login(self, digest: str) -> None:
        """Log somebody out of the pages."""
        ...

    def delete_logins(self, token: str) -> None:
        """Log everybody out of the pages who came with some token."""
        ...

    def rules(self) -> tuple[RuleRow, ...]:
        """Return who is told of what, by name."""
        ...

    def put_rule(self, rule: RuleRow) -> None:
        """Write a rule, in the place of one of its name."""
        ...

    def delete_rule(self, name: str) -> None:
        """Forget a rule."""
        ...

    def put_fingerprint(self, kind: str, number: int, fingerprint: str) -> None:
        """Note what a failed ``job`` or ``run`` is grouped by."""
        ...

    def last_failed_run(self, job_id: int) -> int | None:
        """Return the run that made a job FAILED; None if that is not known."""
        ...

    def put_seen(self, kind: str, number: int, by: str, now: str) -> None:
        """Note who has seen a failed ``job`` or ``run`` first, and when."""
        ...

    def delete_seen(self, kind: str, number: int) -> None:
        """Let a failure count as new."""
        ...

    def trim_seen(self, kind: str) -> None:
        """Let the oldest beyond ``SEEN_MAX`` count as new."""
        ...

    def last_event(self) -> int:
        """Return the number of the newest event, 0 without any."""
        ...

    def add_audit(self, row: AuditRow) -> None:
        """Note what an operator changed."""
        ...

    def drop_old(self, moment: datetime) -> bool:
        """Forget some of what is too old at a moment; return whether there is more of it."""
        ...
