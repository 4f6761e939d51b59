"""The tables beside jobs: runs, output, the ledger of ticks, keys, pauses, drains and events.

Operations of the open transaction. Nothing here decides anything; moments are parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from bedrockjobs.base.config import (
    NAMES_RUNS_MAX,
    TICK_ROWS_MAX,
)
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.run_token import new_key
from bedrockjobs.job.limits import Limit, limits_from, text_of_limits
from bedrockjobs.job.retention import (
    Retention,
    Rules,
    retention_from,
    rules_of,
    text_of_retention,
    value_for,
)
from bedrockjobs.job.rows import EventRow, JobOfKey, PauseRow, RuleRow, RunGiven, RunHead, RunRow, TickRow
from bedrockjobs.store.chunks import OUTPUT_CHUNK_BYTES, Chunk, lines_of
from bedrockjobs.store.cleaned_records import CleanedRecords
from bedrockjobs.store.seen_records import SeenRecords
from bedrockjobs.store.statements import RECORDS

LAST_CHARACTER = "\U0010ffff"
"""What follows all that names hold, in the order of bytes."""

TRIM_EVERY = 10
"""A history is trimmed when it may be over its limit by a part of so many."""

COUNTED_MAX = 10_000
"""Names and schedules whose history is counted in memory; beyond, all are counted anew."""

LOOSE_MAX = 2_000
"""Chunks that are packed together at the most: a run that prints a line at a time has as many."""

SEQ_MAX = 2**62
"""Beyond the number of any line."""


class Connection(Protocol):
    """What does the statements."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """Do a statement; what it returns yields the rows that were found."""
        ...

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> Any:
        """Do a statement for each row."""
        ...


class TableRecords(CleanedRecords, SeenRecords):
    """What the server keeps beside the jobs, in the tables of the schema."""

    def __init__(self, connection: Connection, statements: Mapping[str, str] = RECORDS) -> None:
        """Use the writer's connection; ``statements`` are those of ``records.sql`` as it understands them."""
        self._execute = connection.execute
        self._sql = statements
        self._ended: dict[tuple[str, bool], int] = {}
        self._entered: dict[int, int] = {}
        self._pauses: tuple[PauseRow, ...] | None = None
        self._drains: frozenset[str] | None = None
        self._limits: tuple[Limit, ...] | None = None
        self._retention: tuple[Retention, ...] | None = None
        self._output_rules: Rules | None = None

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Nothing is needed: all of it is quickly read anew."""

    def undo(self, mark: None) -> None:
        """Read anew."""
        self.forget()

    def forget(self) -> None:
        """Read pauses and drains anew, and trim histories as if nobody had counted them."""
        self._pauses = self._drains = self._limits = self._retention = self._output_rules = None
        self._ended, self._entered = {}, {}
        self.forget_access()

    # --- runs --------------------------------------------------------------------------------------------

    def open_run(self, run: RunRow, given: RunGiven) -> None:
        """Add a run in progress, with what it was given."""
        self._execute(
            self._sql["insert_run"],
            (
                run.run_id, run.job_id, run.name, run.attempt, run.cause, run.scheduled_for, run.started,
                run.worker, run.host, run.pid, run.lease, *given,
            ),
        )  # fmt: skip

    def add_ended_run(self, run: RunRow, given: RunGiven) -> None:
        """Add a run that has ended, and that is kept for a time, with what it was given."""
        self._execute(
            self._sql["insert_ended_run"],
            (
                run.run_id, run.job_id, run.name, run.attempt, run.cause, run.scheduled_for, run.started,
                run.worker, run.lease, *given, run.status, run.ended, run.exit_code, run.result, run.kept,
                run.created,
            ),
        )  # fmt: skip

    def kept_of_job(self, job_id: int) -> RunRow | None:
        """Return the last run of a job if it is kept for a time, or None."""
        found = self._execute(self._sql["kept_of_job"], (job_id,)).fetchone()
        return self.run(found[0]) if found and found[1] else None

    def given_to(self, run_id: int) -> RunGiven:
        """Return what a run was given; raises LookupError where there is no such run."""
        found = self._execute(self._sql["given_to_run"], (run_id,)).fetchone()
        if found is None:
            raise LookupError(run_id)
        return RunGiven._make(found)

    def run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""
        found = self._execute(self._sql["run_by_id"], (run_id,)).fetchone()
        return None if found is None else RunRow._make(found)

    def end_run(self, run: RunRow, *, keep_success: int, keep_fail: int) -> None:
        """Write the end of a run, and forget the oldest of its name beyond what is to be kept."""
        self._write_end(run)
        if run.kept:
            return
        good = run.status == "success"
        keep = keep_success if good else keep_fail
        most = keep + keep // TRIM_EVERY
        count = self._ended.get((run.name, good), most) + 1  # one that is not known is trimmed
        if count > most:
            self._trim(run.name, keep, good=good)
            count = keep
        if len(self._ended) >= COUNTED_MAX:
            self._ended.clear()
        self._ended[run.name, good] = count

    def _write_end(self, run: RunRow) -> None:
        self._execute(
            self._sql["end_run"],
            (
                run.status, run.ended, run.exit_code, run.error, run.result, run.output, run.kept,
                run.created, run.run_id,
            ),
        )  # fmt: skip

    def _trim(self, name: str, keep: int, *, good: bool) -> None:
        statement = self._sql["trim_successes" if good else "trim_failures"]
        self._execute(statement, (name, keep, NAMES_RUNS_MAX))

    def stop_run(self, run_id: int, stop: str) -> None:
        """Note what a run's worker is to be told."""
        self._execute(self._sql["stop_run"], (stop, run_id))

    def set_progress(self, run_id: int, progress: str) -> None:
        """Note how far a run is, as JSON text."""
        self._execute(self._sql["progress_of_run"], (progress, run_id))

    def delete_run(self, run_id: int) -> None:
        """Forget a run that never began."""
        self._execute(self._sql["delete_run"], (run_id,))

    def runs_below(self, run_id: int, name: str | None, limit: int) -> list[RunHead]:
        """Return the newest runs below one, of any name or of this one."""
        if name is None:
            found = self._execute(self._sql["runs_below"], (run_id, limit))
        else:
            found = self._execute(self._sql["runs_of_name_below"], (name, run_id, limit))
        return [RunHead._make(row) for row in found.fetchall()]

    def size_of_run(self, run_id: int) -> int:
        """Return about how many bytes a run and its output are."""
        found = self._execute(self._sql["size_of_run"], (run_id,)).fetchone()
        return 0 if found is None else int(found[0])

    def texts_of_run(self, run_id: int) -> Iterator[str]:
        """Yield all texts of a run, those of its columns first, then its output, chunk by chunk."""
        yield from self._execute(self._sql["texts_of_run"], (run_id,)).fetchone() or ()
        after = 0
        while chunk := self._execute(self._sql["next_chunk"], (run_id, after)).fetchone():
            after, codec, content = chunk
            try:
                yield "\n".join(line.text for line in lines_of(codec, content))
            except ValueError:  # it is damaged, and may hold the text all the same
                yield bytes(content).decode(errors="replace")

    def erase_run(self, run_id: int) -> None:
        """Delete a run that has ended, its output, and that somebody has seen it."""
        self._execute(self._sql["delete_output"], (run_id,))
        self._execute(self._sql["delete_run"], (run_id,))
        self.delete_seen("run", run_id)

    def events_of_runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the number and the runID of events with a detail, of the runs between two."""
        return list(self._execute(self._sql["events_of_runs"], (first, last)).fetchall())

    def events_with_detail(self, after: int, limit: int) -> list[tuple[int, str, str]]:
        """Return the number, the name and the detail of events behind one."""
        return list(self._execute(self._sql["events_with_detail"], (after, limit)).fetchall())

    def put_detail(self, seq: int, detail: str) -> None:
        """Replace the detail of an event."""
        self._execute(self._sql["put_detail"], (detail, seq))

    def open_runs(self) -> list[tuple[int, int, str, int, str]]:
        """Return runID, jobID, worker, lease and stop of each run in progress."""
        return list(self._execute(self._sql["open_runs"]))

    def run_key(self) -> str:
        """Return what the tokens of runs are made with; the first to ask makes it."""
        found = self._execute(self._sql["run_key"]).fetchone()
        if found is None:
            self._execute(self._sql["put_run_key"], (new_key(),))
            found = self._execute(self._sql["run_key"]).fetchone()
        return str(found[0])

    # --- output ------------------------------------------------------------------------------------------

    def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return the number of a run's last line of output, and the bytes that it has printed."""
        found = self._execute(self._sql["end_of_output"], (run_id,)).fetchone()
        return (0, 0) if found is None else (found[0], found[1])

    def append(self, chunk: Chunk, name: str) -> None:
        """Add lines to a run of this name; beyond the limit the oldest but for the first are forgotten."""
        self._add_chunk(chunk)
        limit = self.output_limit(name)
        if chunk.end > limit:
            self._write_chunks()
            begin = limit // 2
            end = chunk.end - (limit - begin)
            self._execute(self._sql["forget_middle"], (chunk.run_id, chunk.first_seq, begin, end))

    def output_limit(self, name: str) -> int:
        """Return how many bytes of output are kept of one run of this name."""
        if self._output_rules is None:
            self._output_rules = rules_of(self.retention(), "output_bytes")
        return (
            value_for(self._output_rules, name, self.obeyed.output_bytes)
            if self._output_rules
            else self.obeyed.output_bytes
        )

    def _write_chunks(self) -> None:
        """Write what other statements are to find; here it is."""

    def _add_chunk(self, chunk: Chunk) -> None:
        self._execute(self._sql["append_chunk"], chunk)

    def loose(self, run_id: int) -> list[Chunk]:
        """Return the first chunks of a run that are not packed, enough for a packed one if there are."""
        last = size = 0
        for first_seq, more in self._execute(self._sql["loose_sizes"], (run_id, LOOSE_MAX)).fetchall():
            last, size = first_seq, size + more
            if size >= 2 * OUTPUT_CHUNK_BYTES:
                break
        return [Chunk._make(row) for row in self._execute(self._sql["loose_chunks"], (run_id, last))]

    def pack(self, chunk: Chunk) -> bool:
        """Put a packed chunk in the place of those that it stands for; False if they are not there."""
        span = (chunk.run_id, chunk.first_seq, chunk.last_seq)
        gone = self._execute(self._sql["loose_lines"], span).fetchone()[0]
        if gone != chunk.last_seq - chunk.first_seq + 1:
            return False
        self._execute(self._sql["forget_chunks"], span)
        self._execute(self._sql["append_chunk"], chunk)
        return True

    def last_lines(self, run_id: int, count: int) -> str:
        """Return a run's last lines as a JSON array."""
        return json.dumps(self._lines(run_id, count)[::-1], ensure_ascii=False, separators=(",", ":"))

    def _lines(self, run_id: int, count: int) -> list[str]:
        """Return a run's last lines, backwards."""
        found: list[str] = []
        before = SEQ_MAX
        while len(found) < count:
            chunk = self._execute(self._sql["last_chunk"], (run_id, before)).fetchone()
            if chunk is None:
                break
            before, codec, content = chunk
            found += [line.text for line in reversed(lines_of(codec, content))]
        return found[:count]

    # --- ticks -------------------------------------------------------------------------------------------

    def last_tick(self, job_id: int) -> TickRow | None:
        """Return the newest row of a schedule's ledger."""
        found = self._execute(self._sql["last_tick"], (job_id,)).fetchone()
        return None if found is None else TickRow._make(found)

    def put_tick(self, row: TickRow) -> None:
        """Write a row of the ledger, and now and then forget the oldest ones."""
        self._execute(self._sql["put_tick"], row)
        most = TICK_ROWS_MAX // TRIM_EVERY
        count = self._entered.get(row.job_id, most) + 1
        if count > most:
            self._execute(self._sql["trim_ticks"], (row.job_id, TICK_ROWS_MAX))
            count = 0
        if len(self._entered) >= COUNTED_MAX:
            self._entered.clear()
        self._entered[row.job_id] = count

    def delete_tick(self, row: TickRow) -> None:
        """Take a row out of the ledger."""
        self._execute(self._sql["delete_tick"], (row.job_id, row.tick))

    def delete_ticks(self, job_id: int) -> None:
        """Forget a schedule's ledger."""
        self._execute(self._sql["delete_ticks"], (job_id,))

    # --- keys --------------------------------------------------------------------------------------------

    def job_of_key(self, key: str, since: str) -> JobOfKey | None:
        """Return the job that a key was used for after ``since``."""
        found = self._execute(self._sql["job_of_key"], (key, since)).fetchone()
        return None if found is None else JobOfKey._make(found)

    def put_key(self, key: str, job: JobOfKey, now: str) -> None:
        """Remember a key."""
        self._execute(self._sql["put_key"], (key, job.job_id, now, job.name))

    # --- pauses and drains -------------------------------------------------------------------------------

    def pauses(self) -> tuple[PauseRow, ...]:
        """Return what is paused."""
        if self._pauses is None:
            self._pauses = tuple(PauseRow._make(row) for row in self._execute(self._sql["all_pauses"]))
        return self._pauses

    def pause_of(self, name: str) -> PauseRow | None:
        """Return the first pause that holds a name."""
        return next((pause for pause in self.pauses() if glob(name, pause.pattern)), None)

    def put_pause(self, pause: PauseRow) -> None:
        """Pause a pattern."""
        self._execute(self._sql["put_pause"], pause)
        self._pauses = None

    def delete_pause(self, pattern: str) -> None:
        """Resume a pattern."""
        self._execute(self._sql["delete_pause"], (pattern,))
        self._pauses = None

    def limits(self) -> tuple[Limit, ...]:
        """Return the limits of what may be created."""
        if self._limits is None:
            found = self._execute(self._sql["limits"]).fetchone()
            self._limits = limits_from(found[0]) if found else ()
        return self._limits

    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        """Replace the limits."""
        self._execute(self._sql["put_limits"], (text_of_limits(limits),))
        self._limits = None

    def retention(self) -> tuple[Retention, ...]:
        """Return what is kept of names, by pattern."""
        if self._retention is None:
            found = self._execute(self._sql["retention"]).fetchone()
            self._retention = retention_from(found[0]) if found else ()
        return self._retention

    def set_retention(self, kept: tuple[Retention, ...]) -> None:
        """Replace it."""
        self._execute(self._sql["put_retention"], (text_of_retention(kept),))
        self._retention = self._output_rules = None

    def declared(self, source: str) -> str | None:
        """Return which workers declare the schedules of a source, as JSON text; None if nothing is known."""
        found = self._execute(self._sql["declared"], (source,)).fetchone()
        return None if found is None else str(found[0])

    def put_declared(self, source: str, text: str) -> None:
        """Replace it."""
        self._execute(self._sql["put_declared"], (source, text))

    def running(self, pattern: str) -> int:
        """Return how many runs are in progress of jobs whose names match."""
        return int(self._execute(self._sql["count_running"], (pattern,)).fetchone()[0])

    def count_queued(self, pattern: str, most: int) -> int:
        """Return how many jobs are queued whose names match, at the most ``most``."""
        first = literal_prefix(pattern)
        given = (first, first + LAST_CHARACTER, pattern, most)
        return int(self._execute(self._sql["count_queued"], given).fetchone()[0])

    def drains(self) -> frozenset[str]:
        """Return the workers that are drained."""
        if self._drains is None:
            self._drains = frozenset(row[0] for row in self._execute(self._sql["all_drains"]))
        return self._drains

    def put_drain(self, worker: str, by: str, now: str) -> None:
        """Drain a worker."""
        self._execute(self._sql["put_drain"], (worker, by, now))
        self._drains = None

    def delete_drain(self, worker: str) -> None:
        """Let a worker take jobs again."""
        self._execute(self._sql["delete_drain"], (worker,))
        self._drains = None

    # --- minutes -----------------------------------------------------------------------------------------

    def add_minute(self, minute: str, counts: Sequence[int]) -> None:
        """Write what was done in a minute, in the order of the table."""
        self._execute(self._sql["add_minute"], (minute, *counts))

    # --- events ------------------------------------------------------------------------------------------

    def add_event(self, at: str, event: EventRow) -> None:
        """Tell what happened at a stamp."""
        self._execute(self._sql["add_event"], (at, *event))

    # --- rules -------------------------------------------------------------------------------------------

    def rules(self) -> tuple[RuleRow, ...]:
        """Return who is told of what, by name."""
        return tuple(RuleRow._make(row) for row in self._execute(self._sql["all_rules"], ()))

    def put_rule(self, rule: RuleRow) -> None:
        """Write a rule, in the place of one of its name."""
        self._execute(self._sql["put_rule"], rule)

    def delete_rule(self, name: str) -> None:
        """Forget a rule."""
        self._execute(self._sql["delete_rule"], (name,))

    def last_event(self) -> int:
        """Return the number of the newest event, 0 without any."""
        return int(self._execute(self._sql["last_event"], ()).fetchone()[0])
