"""The tables other than ``jobs``: runs, output, ticks, keys, pauses, drains, events, tokens and audit log.

Each method executes statements in the open transaction and makes no decisions; timestamps are parameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any, Protocol

from bedrockjobs.base.background import yield_to_loop
from bedrockjobs.base.clock import after_seconds, moment_of, timestamp, timestamp_ms
from bedrockjobs.base.config import (
    EVENTS_KEPT_MAX,
    EVENTS_KEPT_S_MIN,
    JOB_ID_MAX,
    NAME_CHARS_MAX,
    NAMES_RUNS_MAX,
    OUTPUT_KEPT_S,
    RUNS_KEPT_MAX,
    SEEN_MAX,
    TICK_ROWS_MAX,
    UNIQUE_KEY_AGE_S_MIN,
)
from bedrockjobs.base.glob import glob, literal_prefix
from bedrockjobs.base.principal import new_key
from bedrockjobs.base.settings import Settings
from bedrockjobs.commands.create import UNIQUE_KEY_PREFIX
from bedrockjobs.job.limits import (
    Limit,
    Mute,
    Retention,
    RetentionRules,
    limits_from,
    microseconds_of,
    mutes_from,
    retention_from,
    rule_for,
    rules_of,
    stamp_of,
    text_of_limits,
    text_of_mutes,
    text_of_retention,
    value_for,
)
from bedrockjobs.job.rows import (
    AuditRow,
    EventRow,
    InboxRow,
    JobOfKey,
    LoginRow,
    PauseRow,
    RuleRow,
    RunGiven,
    RunHead,
    RunRow,
    TickRow,
    TokenRow,
    WorkflowJobRow,
    WorkflowRow,
)
from bedrockjobs.store.chunks import OUTPUT_CHUNK_BYTES, Chunk, lines_of
from bedrockjobs.store.statements import RECORDS

_STEP = itemgetter(0, 1, 2)
"""Returns the primary key of a row of counters."""

LAST_CHARACTER = "\U0010ffff"
"""A character that sorts after every character of a name, in byte order."""

HIGHEST = LAST_CHARACTER * NAME_CHARS_MAX
"""A text that sorts after every name."""

TRIM_EVERY = 10
"""A history is trimmed when it may exceed its limit by ``1 / TRIM_EVERY``, a tenth."""

COUNTED_MAX = 10_000
"""Maximum number of names, and of schedules, whose history is counted in memory. If there are more, all
counts are dropped."""

CLEANED_MAX = 10_000
"""Maximum number of rows of one kind deleted in one transaction, which must be short."""

EXAMINED_MAX = 1_000
"""Maximum number of runs, runs with output, events and tick histories examined in one transaction."""

INSERTED_AT_ONCE = 1_000
"""Number of rows of a workflow inserted before the event loop runs other tasks: some milliseconds of work."""

MEASURED_MAX = 10
"""Maximum number of tick histories whose size is measured in one transaction: each has up to a thousand
rows."""


class StatementExecutor(Protocol):
    """A connection, or what stands for one, that executes the statements of ``Records``."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        """Execute a statement; return an iterable over the rows."""

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]], /) -> Any:
        """Execute a statement for each row."""


@dataclass(slots=True)
class _NewestFirst:
    """A scan of runs or events from the newest to the oldest."""

    before: int = JOB_ID_MAX
    """runID or event number of the row examined last; the scan continues with lower numbers."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Total bytes of the rows examined so far, by pattern."""

    def is_over(self, rule: tuple[str, int] | None, size: int) -> bool:
        """Add a row's size; return whether this row and all older rows exceed the limit of the pattern."""
        if rule is None:
            return False
        pattern, most = rule
        self.sizes[pattern] = self.sizes.get(pattern, 0) + size
        return self.sizes[pattern] > most


class Records:
    """The tables other than ``jobs``, as the open transaction sees them."""

    def __init__(self, connection: StatementExecutor, statements: Mapping[str, str] = RECORDS) -> None:
        """Use the writer's connection; ``statements`` are those of ``records.sql`` in the engine's SQL."""
        self._execute = connection.execute
        self._executemany = connection.executemany
        self._sql = statements
        self._settings = Settings.model_construct()
        self._ended: dict[tuple[str, bool], int] = {}
        self._entered: dict[int, int] = {}
        self._acknowledged: dict[str, int] = {}
        self._pauses: tuple[PauseRow, ...] | None = None
        self._drains: frozenset[str] | None = None
        self._limits: tuple[Limit, ...] | None = None
        self._retention: tuple[Retention, ...] | None = None
        self._mutes: tuple[Mute, ...] | None = None
        self._output_rules: RetentionRules | None = None
        self._tokens: tuple[TokenRow, ...] | None = None
        self._logins: tuple[LoginRow, ...] | None = None
        self._trimmed = 0
        """The runID up to which all runs beyond ``RUNS_KEPT_MAX`` have been deleted."""
        self._cleaned = (0, 0)
        """The jobID and the runID after which cleaning of ticks and of output continues; 0: at the start."""
        self._unique_keys_after = UNIQUE_KEY_PREFIX
        """The unique key after which cleaning continues; the prefix alone: at the start."""
        self._walk: _NewestFirst | None = None
        """The unfinished scan for runs beyond the retention of their names, or None."""
        self._events_after = 0
        """The event number after which cleaning by age continues; 0: at the start."""
        self._stats_after = ""
        """The name after which the cleaning of counters continues; empty: at the start."""
        self._events_walk: _NewestFirst | None = None
        """The unfinished scan for events beyond the size limits of their names, or None."""

    def configure(self, settings: Settings) -> None:
        """Use the retention of these settings, which may change while the server runs."""
        self._settings = settings

    @property
    def keep_finished_s(self) -> float:
        """Return the seconds for which runs of finished jobs are kept; 0: only if the job asks for it."""
        return self._settings.keep_finished

    @property
    def keys_kept_s(self) -> float:
        """Return the seconds for which idempotency keys are kept."""
        return self._settings.keep_keys_s

    # --- InMemory: see store.base ------------------------------------------------------------------------

    def mark(self) -> None:
        """Return None: ``undo`` drops the cache, which is cheap to read again."""

    def undo(self, mark: None) -> None:
        """Drop the cache."""
        self.forget()

    def forget(self) -> None:
        """Drop the cache, and the counts of rows that tell when to trim runs, ticks and acknowledgements."""
        self._pauses = self._drains = self._limits = self._retention = self._output_rules = None
        self._tokens = self._logins = self._mutes = None
        self._ended, self._entered, self._acknowledged = {}, {}, {}

    # --- runs --------------------------------------------------------------------------------------------

    def open_run(self, run: RunRow, run_input: RunGiven) -> None:
        """Insert a run that begins."""
        self._execute(self._sql["insert_run"], (*run.begin_columns, *run_input))

    def add_ended_run(self, run: RunRow, run_input: RunGiven) -> None:
        """Insert an ended run that is kept for a time of its own."""
        self._execute(self._sql["insert_ended_run"], (*run.begin_columns, *run_input, *run.end_columns))

    def kept_of_job(self, job_id: int) -> RunRow | None:
        """Return the last run of a job if it is kept for a time of its own, or None."""
        found = self._execute(self._sql["kept_of_job"], (job_id,)).fetchone()
        return self.read_run(found[0]) if found and found[1] else None

    def input_of(self, run_id: int) -> RunGiven:
        """Return the input of a run; raises LookupError if the run does not exist."""
        found = self._execute(self._sql["input_of_run"], (run_id,)).fetchone()
        if found is None:
            raise LookupError(run_id)
        return RunGiven._make(found)

    def read_run(self, run_id: int) -> RunRow | None:
        """Return a run, or None."""
        found = self._execute(self._sql["run_by_id"], (run_id,)).fetchone()
        return None if found is None else RunRow._make(found)

    def end_run(self, run: RunRow, *, keep_success: int, keep_fail: int) -> None:
        """Write the end of a run; delete the oldest runs of its name beyond the limits.

        ``keep_success`` and ``keep_fail`` are the numbers of successful and of other runs to keep.
        """
        self._write_end(run)
        if run.kept:
            return
        good = run.status == "success"
        keep = keep_success if good else keep_fail
        most = keep + keep // TRIM_EVERY
        count = self._ended.get((run.name, good), most) + 1  # trim if the count is unknown
        if count > most:
            self._trim(run.name, keep, good=good)
            count = keep
        if len(self._ended) >= COUNTED_MAX:
            self._ended.clear()
        self._ended[run.name, good] = count

    def _write_end(self, run: RunRow) -> None:
        self._execute(self._sql["end_run"], (*run.end_columns, run.run_id))

    def _trim(self, name: str, keep: int, *, good: bool) -> None:
        statement = self._sql["trim_successes" if good else "trim_failures"]
        self._execute(statement, (name, keep, NAMES_RUNS_MAX))

    def stop_run(self, run_id: int, stop: str) -> None:
        """Store the stop request for the worker of a run."""
        self._execute(self._sql["stop_run"], (stop, run_id))

    def set_progress(self, run_id: int, progress: str) -> None:
        """Store the progress of a run as JSON text."""
        self._execute(self._sql["progress_of_run"], (progress, run_id))

    def delete_run(self, run_id: int) -> None:
        """Delete the row of a run."""
        self._execute(self._sql["delete_run"], (run_id,))

    def runs_below(self, run_id: int, name: str | None, limit: int) -> list[RunHead]:
        """Return at most ``limit`` runs below a runID, newest first, of one ``name`` or of all."""
        if name is None:
            found = self._execute(self._sql["runs_below"], (run_id, limit))
        else:
            found = self._execute(self._sql["runs_of_name_below"], (name, run_id, limit))
        return [RunHead._make(row) for row in found.fetchall()]

    def size_of_run(self, run_id: int) -> int:
        """Return the approximate size of a run and its output in bytes."""
        found = self._execute(self._sql["size_of_run"], (run_id,)).fetchone()
        return 0 if found is None else int(found[0])

    def texts_of_run(self, run_id: int) -> Iterator[str]:
        """Yield all texts of a run: first its text columns, then its output, one text per chunk."""
        yield from self._execute(self._sql["texts_of_run"], (run_id,)).fetchone() or ()
        after = 0
        while chunk := self._execute(self._sql["next_chunk"], (run_id, after)).fetchone():
            after, codec, content = chunk
            try:
                yield "\n".join(line.text for line in lines_of(codec, content))
            except ValueError:  # damaged, but it may still contain the text
                yield bytes(content).decode(errors="replace")

    def erase_run(self, run_id: int) -> None:
        """Delete a finished run, its output and its acknowledgement."""
        self._execute(self._sql["delete_output"], (run_id,))
        self._execute(self._sql["delete_run"], (run_id,))
        self.delete_seen("run", run_id)

    def forget_in_workflow(self, job_id: int, replacement: str) -> None:
        """Delete the result of a job that its workflow keeps, and replace the reason for the job's end."""
        self._execute(self._sql["forget_in_workflow"], (replacement, job_id))

    def quoting_in_workflow(self, job_id: int, beginning: str) -> list[int]:
        """Return the jobIDs in the workflow of a job whose reason begins with ``beginning``."""
        found = self._execute(self._sql["quoting_in_workflow"], (job_id, len(beginning), beginning))
        return [row[0] for row in found.fetchall()]

    def texts_of_workflows(self, after: int, limit: int) -> list[tuple[int, str, str, str]]:
        """Return jobID, name, reason and result of workflow jobs that have a reason or a result.

        These are at most ``limit`` jobs, by jobID, with jobIDs above ``after``.
        """
        return list(self._execute(self._sql["texts_of_workflows"], (after, limit)).fetchall())

    def events_of_runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return number and runID of the events with a detail about the runs from ``first`` to ``last``."""
        return list(self._execute(self._sql["events_of_runs"], (first, last)).fetchall())

    def events_with_detail(self, after: int, limit: int) -> list[tuple[int, str, str]]:
        """Return number, name and detail of at most ``limit`` events with a detail after number ``after``."""
        return list(self._execute(self._sql["events_with_detail"], (after, limit)).fetchall())

    def put_detail(self, seq: int, detail: str) -> None:
        """Replace the detail of an event."""
        self._execute(self._sql["put_detail"], (detail, seq))

    def open_runs(self) -> list[tuple[int, int, str, int, str]]:
        """Return runID, jobID, worker, lease in seconds and stop request of each run in progress."""
        return list(self._execute(self._sql["open_runs"]))

    def run_key(self) -> str:
        """Return the secret key of run tokens; create it at first use."""
        found = self._execute(self._sql["run_key"]).fetchone()
        if found is None:
            self._execute(self._sql["put_run_key"], (new_key(),))
            found = self._execute(self._sql["run_key"]).fetchone()
        return str(found[0])

    # --- output ------------------------------------------------------------------------------------------

    def end_of_output(self, run_id: int) -> tuple[int, int]:
        """Return the number of the last output line of a run and the bytes printed so far."""
        found = self._execute(self._sql["end_of_output"], (run_id,)).fetchone()
        return (0, 0) if found is None else (found[0], found[1])

    def append(self, chunk: Chunk, name: str) -> None:
        """Append output lines to a run; beyond the limit, delete lines from the middle."""
        self._add_chunk(chunk)
        limit = self.output_limit(name)
        if chunk.end > limit:
            self._write_chunks()
            begin = limit // 2
            end = chunk.end - (limit - begin)
            self._execute(self._sql["forget_middle"], (chunk.run_id, chunk.first_seq, begin, end))

    def output_limit(self, name: str) -> int:
        """Return the output limit in bytes for runs of a name."""
        if self._output_rules is None:
            self._output_rules = rules_of(self.retention(), "output_bytes")
        return (
            value_for(self._output_rules, name, self._settings.output_bytes)
            if self._output_rules
            else self._settings.output_bytes
        )

    def _write_chunks(self) -> None:
        """Write buffered chunks; overridden by a subclass that buffers them."""

    def _add_chunk(self, chunk: Chunk) -> None:
        self._execute(self._sql["append_chunk"], chunk)

    def loose(self, run_id: int) -> list[Chunk]:
        """Return the first uncompacted chunks of a run, if possible enough for one compacted chunk."""
        last = size = 0
        # Maximum number of chunks compacted together: a run that prints one line at a time has that many.
        for first_seq, more in self._execute(self._sql["loose_sizes"], (run_id, 2_000)).fetchall():
            last, size = first_seq, size + more
            if size >= 2 * OUTPUT_CHUNK_BYTES:
                break
        return [Chunk._make(row) for row in self._execute(self._sql["loose_chunks"], (run_id, last))]

    def pack(self, chunk: Chunk) -> bool:
        """Replace the uncompacted chunks that ``chunk`` covers; return False if some no longer exist."""
        span = (chunk.run_id, chunk.first_seq, chunk.last_seq)
        gone = self._execute(self._sql["loose_lines"], span).fetchone()[0]
        if gone != chunk.last_seq - chunk.first_seq + 1:
            return False
        self._execute(self._sql["forget_chunks"], span)
        self._execute(self._sql["append_chunk"], chunk)
        return True

    def last_lines(self, run_id: int, count: int) -> str:
        """Return the last output lines of a run as a JSON array."""
        return json.dumps(self._lines(run_id, count)[::-1], ensure_ascii=False, separators=(",", ":"))

    def _lines(self, run_id: int, count: int) -> list[str]:
        """Return the last output lines of a run, newest first."""
        found: list[str] = []
        before = 2**62  # above the number of any line
        while len(found) < count:
            chunk = self._execute(self._sql["last_chunk"], (run_id, before)).fetchone()
            if chunk is None:
                break
            before, codec, content = chunk
            found += [line.text for line in reversed(lines_of(codec, content))]
        return found[:count]

    # --- ticks -------------------------------------------------------------------------------------------

    def last_tick(self, job_id: int) -> TickRow | None:
        """Return the newest tick of a schedule."""
        found = self._execute(self._sql["last_tick"], (job_id,)).fetchone()
        return None if found is None else TickRow._make(found)

    def put_tick(self, row: TickRow) -> None:
        """Write a tick; trim the history from time to time."""
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
        """Delete a tick."""
        self._execute(self._sql["delete_tick"], (row.job_id, row.tick))

    def delete_ticks(self, job_id: int) -> None:
        """Delete the tick history of a schedule."""
        self._execute(self._sql["delete_ticks"], (job_id,))

    # --- keys --------------------------------------------------------------------------------------------

    def job_of_key(self, key: str, since: str) -> JobOfKey | None:
        """Return the job of a key that was stored after ``since``."""
        found = self._execute(self._sql["job_of_key"], (key, since)).fetchone()
        return None if found is None else JobOfKey._make(found)

    def unique_key_of(self, job_id: int) -> tuple[str, str] | None:
        """Return the columns ``key`` and ``holds`` of a job's unique key, or None."""
        found: tuple[str, str] | None = self._execute(self._sql["unique_key_of"], (job_id,)).fetchone()
        return found

    def claim_key(self, key: str, job_id: int, holds: str, now: str) -> JobOfKey | None:
        """Store a unique key for a job and return None, or return the job that has the key already."""
        stored = self._execute(self._sql["claim_key"], (key, job_id, now, holds)).rowcount == 1
        return None if stored else self.job_of_key(key, "")

    def put_key(self, key: str, job: JobOfKey, now: str) -> None:
        """Store a key for a job, replacing the job that had it."""
        self._execute(self._sql["put_key"], (key, job.job_id, now, job.name, job.holds))

    # --- the inbox: jobs that applications created in their own transactions --------------------------

    def due_in_inbox(self, now: str, limit: int) -> list[InboxRow]:
        """Return at most ``limit`` jobs of the inbox that a server should take in by now."""
        return [InboxRow._make(row) for row in self._execute(self._sql["due_in_inbox"], (now, limit))]

    def claim_in_inbox(self, job_ids: Sequence[int]) -> list[InboxRow]:
        """Return those of the given jobs that are still in the inbox; see ``inbox_row``."""
        return [row for row in map(self.inbox_row, job_ids) if row is not None]

    def inbox_row(self, job_id: int) -> InboxRow | None:
        """Return a job that is still in the inbox, or None.

        The name of the row is empty if another server has just taken the job in.
        """
        found = self._execute(self._sql["inbox_row"], (job_id,)).fetchone()
        return None if found is None else InboxRow._make(found)

    def delete_from_inbox(self, job_id: int) -> None:
        """Remove a job that was taken in."""
        self._execute(self._sql["delete_from_inbox"], (job_id,))

    def postpone_in_inbox(self, job_id: int, again: str) -> None:
        """Let a job wait in the inbox until a timestamp."""
        self._execute(self._sql["postpone_in_inbox"], (again, job_id))

    # --- workflows ---------------------------------------------------------------------------------------

    def lock_workflow(self, workflow_id: int) -> WorkflowRow | None:
        """Return a workflow and lock it until the commit; None if it does not exist."""
        found = self._execute(self._sql["workflow_by_id"], (workflow_id,)).fetchone()
        return None if found is None else WorkflowRow._make(found)

    def add_workflow(self, workflow: WorkflowRow) -> None:
        """Insert a workflow."""
        self._execute(self._sql["insert_workflow"], workflow)

    def save_workflow(self, workflow: WorkflowRow) -> None:
        """Update a workflow."""
        self._execute(self._sql["save_workflow"], (*workflow.changing, workflow.workflow_id))

    def add_workflow_jobs(self, jobs: Sequence[WorkflowJobRow], edges: Sequence[tuple[int, int]]) -> None:
        """Add jobs to a workflow, and edges: pairs of the job before and the job."""
        self._add_rows("insert_workflow_job", [job.new for job in jobs])
        self._add_rows("insert_workflow_edge", edges)

    def _add_rows(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for first in range(0, len(rows), INSERTED_AT_ONCE):
            self._executemany(self._sql[statement], rows[first : first + INSERTED_AT_ONCE])
            yield_to_loop()

    def workflow_job(self, job_id: int) -> WorkflowJobRow | None:
        """Return the row that a workflow has of a job, or None if the job is in no workflow."""
        found = self._execute(self._sql["workflow_job"], (job_id,)).fetchone()
        return None if found is None else WorkflowJobRow._make(found)

    def jobs_of_workflow(self, workflow_id: int) -> list[WorkflowJobRow]:
        """Return all jobs of a workflow."""
        found = self._execute(self._sql["jobs_of_workflow"], (workflow_id,)).fetchall()
        return [WorkflowJobRow._make(row) for row in found]

    def edges_of_workflow(self, workflow_id: int) -> list[tuple[int, int]]:
        """Return the edges of a workflow: pairs of the job before and the job."""
        return list(self._execute(self._sql["edges_of_workflow"], (workflow_id,)).fetchall())

    def end_workflow_jobs(self, jobs: Sequence[WorkflowJobRow], result: str = "") -> None:
        """Write how jobs of a workflow ended, or that they have not ended yet."""
        self._executemany(self._sql["end_workflow_job"], [(*job.ending, result, job.job_id) for job in jobs])

    def rename_workflow_job(self, job_id: int, name: str) -> None:
        """Write the new name of a job of a workflow."""
        self._execute(self._sql["rename_workflow_job"], (name, job_id))

    def wait_in_workflow(self, waits: Sequence[tuple[int, int]]) -> None:
        """Write pairs of a jobID and the number of jobs for which that job waits."""
        rows = [(count, job_id) for job_id, count in waits]
        self._executemany(self._sql["wait_in_workflow"], rows)

    def waiting_after(self, job_id: int) -> list[tuple[int, int]]:
        """Return each job that waits directly for ``job_id``, with the number of jobs for which it waits."""
        return list(self._execute(self._sql["waiting_after"], (job_id,)).fetchall())

    def waiting_behind(self, job_id: int) -> list[WorkflowJobRow]:
        """Return the jobs that wait for a job, directly or through other jobs."""
        found = self._execute(self._sql["waiting_behind"], (job_id,)).fetchall()
        return [WorkflowJobRow._make(row) for row in found]

    def results_before(self, job_id: int) -> list[tuple[str, str]]:
        """Return ref and result of the jobs that come directly before a job in its workflow."""
        return list(self._execute(self._sql["results_before"], (job_id,)).fetchall())

    def result_in_workflow(self, job_id: int) -> str:
        """Return the result of a job of a workflow; empty if it has none."""
        found = self._execute(self._sql["result_in_workflow"], (job_id,)).fetchone()
        return str(found[0]) if found else ""

    # --- pauses and drains -------------------------------------------------------------------------------

    def pauses(self) -> tuple[PauseRow, ...]:
        """Return all pauses, by pattern."""
        if self._pauses is None:
            self._pauses = tuple(PauseRow._make(row) for row in self._execute(self._sql["all_pauses"]))
        return self._pauses

    def pause_of(self, name: str) -> PauseRow | None:
        """Return the first pause that covers a name."""
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
        """Return the limits by name pattern."""
        if self._limits is None:
            found = self._execute(self._sql["limits"]).fetchone()
            self._limits = limits_from(found[0]) if found else ()
        return self._limits

    def paced(self, pattern: str, key: str = "") -> int:
        """Return the time until which the starts so far use up the pace of a limit; 0 without starts.

        Times are in microseconds since 1970. ``key`` is a concurrency key if the limit is per key.
        """
        found = self._execute(self._sql["paced"], (key, pattern)).fetchone()
        return int(found[0]) if found else 0

    def set_paced(self, pattern: str, key: str, until: int) -> None:
        """Set the value that ``paced`` returns."""
        self._execute(self._sql["put_paced"], (key, pattern, until))

    def lower_paced(self, pattern: str, most: int) -> None:
        """Lower all values of a pattern that are above ``most``."""
        self._execute(self._sql["lower_paced"], (most, pattern, most))

    def delete_paced(self, pattern: str) -> None:
        """Delete all values of a pattern."""
        self._execute(self._sql["delete_paced"], (pattern,))

    def next_by_key(self, limit: Limit, now: str) -> str | None:
        """Return when the next key that has to wait may start a job by a limit per key; None if none waits.

        ``now`` and the value returned are timestamps.
        """
        above = microseconds_of(moment_of(now)) + limit.ahead_us
        found = self._execute(self._sql["next_paced"], (limit.pattern, above)).fetchone()
        return None if found is None or found[0] is None else stamp_of(found[0] - limit.ahead_us)

    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        """Replace the limits."""
        self._execute(self._sql["put_limits"], (text_of_limits(limits),))
        self._limits = None

    def retention(self) -> tuple[Retention, ...]:
        """Return the retention of names, by pattern."""
        if self._retention is None:
            found = self._execute(self._sql["retention"]).fetchone()
            self._retention = retention_from(found[0]) if found else ()
        return self._retention

    def set_retention(self, kept: tuple[Retention, ...]) -> None:
        """Replace the retention of names."""
        self._execute(self._sql["put_retention"], (text_of_retention(kept),))
        self._retention = self._output_rules = None

    def declared(self, source: str) -> str | None:
        """Return, as JSON text, the workers that declare the schedules of a source; None without any."""
        found = self._execute(self._sql["declared"], (source,)).fetchone()
        return None if found is None else str(found[0])

    def put_declared(self, source: str, text: str) -> None:
        """Replace the JSON text that ``declared`` returns."""
        self._execute(self._sql["put_declared"], (source, text))

    def running(self, pattern: str) -> int:
        """Return the number of runs in progress whose names match."""
        return int(self._execute(self._sql["count_running"], (pattern,)).fetchone()[0])

    def count_queued(self, pattern: str, most: int) -> int:
        """Return the number of queued jobs whose names match; counting stops at ``most``."""
        first = literal_prefix(pattern)
        parameters = (first, first + LAST_CHARACTER, pattern, most)
        return int(self._execute(self._sql["count_queued"], parameters).fetchone()[0])

    def drains(self) -> frozenset[str]:
        """Return the drained workers."""
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

    # --- statistics --------------------------------------------------------------------------------------

    def add_stats(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add counters to the stored counters of the same name, step and time; a row has all columns."""
        self._executemany(self._sql["add_stats"], sorted(rows, key=_STEP))  # all servers lock in this order

    # --- events ------------------------------------------------------------------------------------------

    def add_event(self, at: str, event: EventRow) -> None:
        """Insert an event with its timestamp."""
        self._execute(self._sql["add_event"], (at, *event))

    # --- rules -------------------------------------------------------------------------------------------

    def rules(self) -> tuple[RuleRow, ...]:
        """Return the notification rules, by name."""
        return tuple(RuleRow._make(row) for row in self._execute(self._sql["all_rules"], ()))

    def put_rule(self, rule: RuleRow) -> None:
        """Insert or replace a notification rule."""
        self._execute(self._sql["put_rule"], rule)

    def delete_rule(self, name: str) -> None:
        """Delete a notification rule."""
        self._execute(self._sql["delete_rule"], (name,))

    def last_event(self) -> int:
        """Return the number of the newest event, or 0."""
        return int(self._execute(self._sql["last_event"], ()).fetchone()[0])

    # --- failures ----------------------------------------------------------------------------------------

    def put_fingerprint(self, kind: str, number: int, fingerprint: str) -> None:
        """Store the fingerprint of a failed ``job`` or ``run``."""
        self._execute(self._sql[f"fingerprint_{kind}"], (fingerprint, number))

    def last_failed_run(self, job_id: int) -> int | None:
        """Return the run that made a job FAILED, or None if unknown."""
        found = self._execute(self._sql["last_failed_run"], (job_id,)).fetchone()
        return int(found[0]) if found is not None and found[1] else None

    def mutes(self) -> tuple[Mute, ...]:
        """Return the mutes of failures, also those that have ended."""
        if self._mutes is None:
            found = self._execute(self._sql["mutes"]).fetchone()
            self._mutes = mutes_from(found[0]) if found else ()
        return self._mutes

    def set_mutes(self, mutes: tuple[Mute, ...]) -> None:
        """Replace the mutes."""
        self._execute(self._sql["put_mutes"], (text_of_mutes(mutes),))
        self._mutes = None

    def see_muted(self, kind: str, number: int, by: str, now: str) -> None:
        """Acknowledge a muted failure when it happens; trim the acknowledgements from time to time."""
        self.put_seen(kind, number, by, now)
        most = SEEN_MAX // TRIM_EVERY
        count = self._acknowledged.get(kind, most) + 1
        if count > most:
            self.trim_seen(kind)
            count = 0
        self._acknowledged[kind] = count

    def see_alike(self, mute: Mute) -> None:
        """Acknowledge the stored failures that a mute covers, at most ``SEEN_MAX`` jobs and as many runs."""
        for kind in ("job", "run"):
            self._see_alike(kind, mute)
            self.trim_seen(kind)

    def _see_alike(self, kind: str, mute: Mute) -> None:
        given = (mute.by, mute.since, mute.fingerprint, mute.pattern, SEEN_MAX)
        self._execute(self._sql[f"see_{kind}s_alike"], given)

    def put_seen(self, kind: str, number: int, by: str, now: str) -> None:
        """Acknowledge a failed ``job`` or ``run``, unless it is acknowledged already."""
        self._execute(self._sql["put_seen"], (kind, number, by, now))

    def delete_seen(self, kind: str, number: int) -> None:
        """Delete the acknowledgement of a failure."""
        self._execute(self._sql["delete_seen"], (kind, number))

    def trim_seen(self, kind: str) -> None:
        """Delete the oldest acknowledgements beyond ``SEEN_MAX``."""
        self._execute(self._sql["trim_seen"], (kind, kind, SEEN_MAX))

    # --- tokens, logins and the audit log ------------------------------------------------------------------

    def _access_changed(self) -> None:
        """Drop cached tokens and logins; overridden to notify other servers."""
        self._tokens = self._logins = None

    def tokens(self) -> tuple[TokenRow, ...]:
        """Return all tokens by name, including expired ones."""
        if self._tokens is None:
            self._tokens = tuple(TokenRow._make(row) for row in self._execute(self._sql["all_tokens"], ()))
        return self._tokens

    def put_token(self, token: TokenRow) -> None:
        """Insert or replace a token."""
        self._execute(self._sql["put_token"], token)
        self._access_changed()

    def delete_token(self, name: str) -> None:
        """Delete a token."""
        self._execute(self._sql["delete_token"], (name,))
        self._access_changed()

    def use_token(self, name: str, now: str, addresses: str) -> None:
        """Store the last use and the addresses of a token, which are only shown in lists of tokens."""
        self._execute(self._sql["use_token"], (now, addresses, name, now, addresses))
        self._tokens = None

    def logins(self) -> tuple[LoginRow, ...]:
        """Return the login sessions, oldest first."""
        if self._logins is None:
            self._logins = tuple(LoginRow._make(row) for row in self._execute(self._sql["all_logins"], ()))
        return self._logins

    def put_login(self, login: LoginRow) -> None:
        """Insert a login session."""
        self._execute(self._sql["put_login"], login)
        self._access_changed()

    def delete_login(self, digest: str) -> None:
        """Delete a login session."""
        self._execute(self._sql["delete_login"], (digest,))
        self._access_changed()

    def delete_logins(self, token: str) -> None:
        """Delete all login sessions of a token."""
        self._execute(self._sql["delete_logins"], (token,))
        self._access_changed()

    def add_audit(self, row: AuditRow) -> None:
        """Insert a row into the audit log."""
        self._execute(self._sql["add_audit"], row)

    # --- cleaning ----------------------------------------------------------------------------------------

    def drop_old(self, moment: datetime) -> bool:
        """Delete a limited number of rows whose retention has ended; return whether there may be more."""
        now = timestamp_ms(moment)
        self._execute(self._sql["trim_keys"], (after_seconds(now, -self.keys_kept_s), CLEANED_MAX))
        more = self._drop_runs(now)
        more = self._drop_unique_keys(now) or more
        more = self._drop_workflows(now) or more
        self._execute(self._sql["trim_events"], (EVENTS_KEPT_MAX,))
        self._execute(self._sql["trim_logins"], (timestamp(moment),))
        audit_before = after_seconds(timestamp(moment), -self._settings.keep_audit_s)
        self._execute(self._sql["trim_audit"], (audit_before, CLEANED_MAX))
        more = self._drop_stats(timestamp(moment)) or more
        more = self._drop_limited_runs(now) or more
        more = self._drop_events(now) or more
        more = self._drop_large_events(now) or more
        self._drop_paced(microseconds_of(moment))
        self._cleaned = (self._drop_ticks(self._cleaned[0], now), self._drop_output(self._cleaned[1], now))
        return more or any(self._cleaned)

    def _drop_stats(self, now: str) -> bool:
        """Delete the old counters of the next names; return whether further names follow."""
        most = 100  # names, each with an hour of counters, one row a minute
        found = self._execute(self._sql["names_in_stats"], (self._stats_after, most))
        names = [row[0] for row in found]
        # The counters of minutes are kept for a day, those of hours for a quarter
        for step, kept_s in ((60, 86_400), (3_600, 90 * 86_400)):
            before = after_seconds(now, -kept_s)
            rows = [(name, step, before) for name in ("", *names)]
            self._executemany(self._sql["trim_stats"], rows)
        self._stats_after = names[-1] if len(names) == most else ""
        return bool(self._stats_after)

    def _drop_limited_runs(self, now: str) -> bool:
        """Delete runs beyond the retention of their names; return whether there are more runs to examine.

        The scan begins with the newest run. Size limits include the runs that are kept for a time of their
        own.
        """
        times, sizes = rules_of(self.retention(), "runs"), rules_of(self.retention(), "runs_bytes")
        if not (times or sizes):
            self._walk = None
            return False
        walk = self._walk or _NewestFirst()
        statement = self._sql["ended_runs_and_sizes" if sizes else "ended_runs"]
        rows = self._execute(statement, (walk.before, EXAMINED_MAX)).fetchall()
        for run_id, name, ended, kept, size in rows:
            walk.before = run_id
            over = walk.is_over(rule_for(sizes, name), size)
            time = None if kept else rule_for(times, name)
            if over or (time is not None and ended <= after_seconds(now, -time[1])):
                self._execute(self._sql["delete_output"], (run_id,))
                self._execute(self._sql["delete_run"], (run_id,))
        self._walk = walk if len(rows) == EXAMINED_MAX else None
        return self._walk is not None

    def _drop_events(self, now: str) -> bool:
        """Delete events older than the retention of their names; return whether there are more."""
        rules = rules_of(self.retention(), "events")
        if not rules:
            return False
        soonest = after_seconds(now, -max(min(seconds for _, seconds in rules), EVENTS_KEPT_S_MIN))
        rows = self._execute(self._sql["oldest_events"], (self._events_after, EXAMINED_MAX)).fetchall()
        for seq, at, name in rows:
            if at > soonest:
                break
            self._events_after = seq
            rule = rule_for(rules, name)
            if rule is not None and at <= after_seconds(now, -max(rule[1], EVENTS_KEPT_S_MIN)):
                self._execute(self._sql["delete_event"], (seq,))
        else:
            if len(rows) == EXAMINED_MAX:
                return True
        self._events_after = 0
        return False

    def _drop_large_events(self, now: str) -> bool:
        """Delete events beyond the size limits of their names; return whether there are more."""
        rules = rules_of(self.retention(), "events_bytes")
        if not rules:
            self._events_walk = None
            return False
        walk, old = self._events_walk or _NewestFirst(), after_seconds(now, -EVENTS_KEPT_S_MIN)
        rows = self._execute(self._sql["newest_events_and_sizes"], (walk.before, EXAMINED_MAX)).fetchall()
        for seq, at, name, size in rows:
            walk.before = seq
            if walk.is_over(rule_for(rules, name), size) and at <= old:
                self._execute(self._sql["delete_event"], (seq,))
        self._events_walk = walk if len(rows) == EXAMINED_MAX else None
        return self._events_walk is not None

    def _drop_runs(self, now: str) -> bool:
        """Delete expired runs, and the oldest runs beyond ``RUNS_KEPT_MAX``; return whether more remain."""
        self._execute(self._sql["trim_kept"], (now, CLEANED_MAX))
        next_kept = self._execute(self._sql["next_kept"]).fetchone()[0]
        more: bool = next_kept is not None and next_kept <= now
        parameters = (self._trimmed, RUNS_KEPT_MAX, CLEANED_MAX)
        last = self._execute(self._sql["old_runs"], parameters).fetchone()[0]
        if last is None:
            return more
        self._execute(self._sql["trim_runs"], (self._trimmed, last))
        self._trimmed = last
        return True

    def _drop_workflows(self, now: str) -> bool:
        """Delete some jobs of a workflow whose retention has ended; return whether there was such a workflow.

        The workflow itself is deleted with its last jobs.
        """
        found = self._execute(self._sql["next_old_workflow"], (now,)).fetchone()
        if found is None:
            return False
        (workflow_id,) = found
        jobs = self._execute(self._sql["some_of_workflow"], (workflow_id, EXAMINED_MAX)).fetchall()
        self._executemany(self._sql["delete_workflow_edges"], jobs)
        self._executemany(self._sql["delete_workflow_job"], jobs)
        if len(jobs) < EXAMINED_MAX:
            self._execute(self._sql["delete_workflow"], (workflow_id,))
        return True

    def _drop_unique_keys(self, now: str) -> bool:
        """Delete some unique keys that are no longer held; return whether there may be more such keys.

        CreateJob ignores such a key, so this only frees disk space. On PostgreSQL, another server may give
        the key to a new job at the same time; that key is kept, since it is younger than
        ``UNIQUE_KEY_AGE_S_MIN``.
        """
        after, end = self._unique_keys_after, UNIQUE_KEY_PREFIX[:-1] + " "
        last = self._execute(self._sql["next_unique_keys"], (after, end, EXAMINED_MAX)).fetchone()[0]
        if last is not None:
            old = after_seconds(now, -UNIQUE_KEY_AGE_S_MIN)
            self._execute(self._sql["trim_unique_keys"], (after, last, old, now))
        self._unique_keys_after = last or UNIQUE_KEY_PREFIX
        return last is not None

    def _drop_paced(self, now: int) -> None:
        """Delete some token buckets that are full; ``now`` is in microseconds since 1970."""
        for limit in self.limits():
            if limit.starts:
                self._execute(self._sql["trim_paced"], (limit.pattern, now, CLEANED_MAX))

    def _drop_output(self, after: int, now: str) -> int:
        """Delete expired output; return the runID after which to continue, or 0 at the end."""
        rules = rules_of(self.retention(), "output")
        for _ in range(EXAMINED_MAX):
            found = self._execute(self._sql["next_run_with_output"], (after,)).fetchone()
            if found is None:
                return 0
            after = found[0]
            run = self.read_run(after)
            kept_s = OUTPUT_KEPT_S if run is None else value_for(rules, run.name, OUTPUT_KEPT_S)
            if run is None or (run.ended and run.ended <= after_seconds(now, -kept_s)):
                self._execute(self._sql["delete_output"], (after,))
        return after

    def _drop_ticks(self, after: int, now: str) -> int:
        """Delete old ticks, and all ticks of deleted jobs; return the jobID after which to continue, or 0."""
        times, sizes = rules_of(self.retention(), "ticks"), rules_of(self.retention(), "ticks_bytes")
        measured = 0
        for _ in range(EXAMINED_MAX):
            found = self._execute(self._sql["next_tick_history"], (after,)).fetchone()
            if found is None:
                return 0
            after, name = found[0], found[1] or ""
            if not name:
                self.delete_ticks(after)
                continue
            if (time := rule_for(times, name)) is not None:
                self._execute(self._sql["trim_old_ticks"], (after, after_seconds(now, -time[1])))
            if (size := rule_for(sizes, name)) is not None:
                self._execute(self._sql["trim_ticks_to_size"], (after, size[1]))
                measured += 1
                if measured == MEASURED_MAX:
                    break
        return after
