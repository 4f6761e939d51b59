"""The tables other than ``jobs`` on PostgreSQL: prefetched runs and keys, buffered writes, and an epoch.

The epoch is a number in the database. When a unit raises it, all servers drop their cached pauses, drains,
tokens and crash list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from typing_extensions import override

from bedrockjobs.base.config import SEEN_MAX
from bedrockjobs.base.glob import anchored_regex, literal_prefix
from bedrockjobs.job.limits import Limit, Mute, Retention
from bedrockjobs.job.rows import InboxRow, JobOfKey, PauseRow, RunGiven, RunRow, WorkflowRow
from bedrockjobs.store.chunks import PLAIN, Chunk, lines_of
from bedrockjobs.store.postgresql.locks import AdvisoryKeys
from bedrockjobs.store.postgresql.session import Row, Statement, columns
from bedrockjobs.store.postgresql.statements import QUERIES as SQL
from bedrockjobs.store.postgresql.statements import RECORDS
from bedrockjobs.store.postgresql.transaction import Transaction
from bedrockjobs.store.records import LAST_CHARACTER, Records

_WIDTH = len(RunRow._fields)


class PostgreSQLRecords(Records):
    """Caches pauses, drains, tokens and the crash list until the epoch changes; other rows for one unit."""

    def __init__(self, transaction: Transaction, keys: AdvisoryKeys) -> None:
        """Use ``transaction``; ``keys`` are the advisory lock keys."""
        self._limits_key = keys.key_of("limits")
        self._crash_patterns: tuple[str, ...] | None = None
        super().__init__(transaction, RECORDS)
        self._transaction = transaction
        self._epoch = 0
        self._runs: dict[int, RunRow | None] = {}
        """Prefetched runs that the unit has not changed since; None for a run that does not exist."""
        self._opened: list[tuple[RunRow, RunGiven]] = []
        self._closed: list[RunRow] = []
        self._chunks: list[Chunk] = []
        self._fingerprints: dict[str, list[tuple[int, str]]] = {"job": [], "run": []}
        self._over: list[int] = []
        """Prefetched runs that have ended."""
        self._ends: dict[int, tuple[int, int]] = {}
        """Last line number and bytes printed, of each prefetched run."""
        self._small: dict[int, bytes | None] = {}
        """The output of prefetched runs that have printed little; None if a run has printed nothing."""
        self._keys: dict[str, tuple[JobOfKey, str] | None] = {}
        """The job of each key, and when the key was stored."""
        self._new_keys: dict[str, Row] = {}
        """Buffered rows of the table ``keys``."""
        self._held: dict[int, tuple[str, str] | None] = {}
        """The columns ``key`` and ``holds`` of each job's unique key; None if the job has none."""
        self._kept: dict[int, tuple[RunRow, RunGiven]] | None = None
        """The kept runs of deleted jobs, by jobID; None if no lookup has read them."""
        self._workflows: dict[int, WorkflowRow] = {}
        """The workflows that the unit has locked."""
        self._may_wait = True
        """Whether to wait for locks of workflows that are not in the access plans, see ``PostgreSQLUnit``."""
        self._inbox: dict[int, InboxRow] = {}
        """The jobs that a lookup has found in the inbox."""

    # --- between units -----------------------------------------------------------------------------------

    def at_epoch(self, epoch: int) -> bool:
        """Drop cached pauses, drains and tokens if another server changed them; return whether one did."""
        changed = epoch != self._epoch
        self._epoch = epoch
        if changed:
            self.forget()
        self._forget_ahead()
        return changed

    @property
    def known_pauses(self) -> tuple[PauseRow, ...] | None:
        """Return all pauses, or None if they are not cached."""
        return self._pauses

    @override
    def forget(self) -> None:
        super().forget()
        self._crash_patterns = None
        self._forget_ahead()

    def _forget_ahead(self) -> None:
        self._runs, self._over, self._ends, self._small = {}, [], {}, {}
        self._keys, self._held, self._new_keys = {}, {}, {}
        self._opened, self._closed, self._chunks = [], [], []
        self._fingerprints = {"job": [], "run": []}
        self._kept = None
        self._workflows = {}

    def look_up(self, job_ids: Iterable[int], used: list[Row], kept: list[Row], inbox: list[Row]) -> None:
        """Store the rows read about some jobs: unique keys, kept runs of deleted jobs, rows of the inbox."""
        self._inbox = {row[0]: InboxRow._make(row) for row in inbox}
        self.read_ahead((), [], (), job_ids, used)
        self._kept = {}
        for row in kept:
            run = RunRow._make(row[:_WIDTH])
            self._kept[run.job_id] = run, RunGiven._make(row[_WIDTH:])

    def read_ahead(
        self,
        run_ids: Iterable[int],
        runs: list[Row],
        keys: Iterable[str],
        key_holders: Iterable[int],
        used: list[Row],
    ) -> None:
        """Store prefetched runs and keys; a run or key that was requested, but not found, does not exist."""
        self._runs = dict.fromkeys(run_ids)
        for row in runs:
            run = RunRow._make(row[:_WIDTH])
            self._runs[run.run_id] = run
            self._over += [run.run_id] if run.status != "running" else []
            last_seq, printed, content = row[_WIDTH:]
            self._ends[run.run_id] = (last_seq, printed)
            if content is not None or not last_seq:
                self._small[run.run_id] = content
        self._keys = dict.fromkeys(keys) | {
            key: (JobOfKey(job_id, name, holds), created) for key, job_id, created, name, holds in used
        }
        self._held = dict.fromkeys(key_holders)
        self._held |= {
            job_id: (key, holds) for key, job_id, _, _, holds in used if job_id in self._held and holds
        }

    # --- the inbox ---------------------------------------------------------------------------------------

    @override
    def claim_in_inbox(self, job_ids: Sequence[int]) -> list[InboxRow]:
        (rows,) = self._transaction.run_statements((SQL["claim_in_inbox"], (list(job_ids),)))
        return [InboxRow._make(row) for row in rows]

    @override
    def inbox_row(self, job_id: int) -> InboxRow | None:
        if self._kept is not None:
            return self._inbox.get(job_id)
        (rows,) = self._transaction.run_statements((SQL["inbox_or_job"], (job_id,)))
        return InboxRow._make(rows[0]) if rows else None

    # --- runs and their output ---------------------------------------------------------------------------

    @override
    def read_run(self, run_id: int) -> RunRow | None:
        return self._runs[run_id] if run_id in self._runs else super().read_run(run_id)

    @override
    def open_run(self, run: RunRow, run_input: RunGiven) -> None:
        self._opened.append((run, run_input))

    @override
    def add_ended_run(self, run: RunRow, run_input: RunGiven) -> None:
        self._opened.append((run, run_input))
        self._closed.append(run)

    @override
    def kept_of_job(self, job_id: int) -> RunRow | None:
        if self._kept is not None:
            return self._kept[job_id][0] if job_id in self._kept else None
        if self._opened:
            self._transaction.collect()
        return super().kept_of_job(job_id)

    @override
    def input_of(self, run_id: int) -> RunGiven:
        for run, given in () if self._kept is None else self._kept.values():
            if run.run_id == run_id:
                return given
        if self._opened:
            self._transaction.collect()
        return super().input_of(run_id)

    def _write_end(self, run: RunRow) -> None:
        self._forget_run(run.run_id)
        for over in self._over:  # trimming may delete them
            self._runs.pop(over, None)
        self._over = []
        self._closed.append(run)

    def _trim(self, name: str, keep: int, *, good: bool) -> None:
        self._transaction.collect()
        super()._trim(name, keep, good=good)

    @override
    def stop_run(self, run_id: int, stop: str) -> None:
        self._forget_run(run_id)
        super().stop_run(run_id, stop)

    @override
    def set_progress(self, run_id: int, progress: str) -> None:
        self._forget_run(run_id)
        super().set_progress(run_id, progress)

    @override
    def delete_run(self, run_id: int) -> None:
        self._forget_run(run_id)
        super().delete_run(run_id)

    @override
    def erase_run(self, run_id: int) -> None:
        self._transaction.collect()  # buffered runs and output of this unit
        self._ends.pop(run_id, None)
        self._small.pop(run_id, None)
        super().erase_run(run_id)

    def _forget_run(self, run_id: int) -> None:
        """Drop a run from the cache, and write buffered new runs before it changes."""
        self._runs.pop(run_id, None)
        if self._opened:
            self._transaction.collect()

    @property
    def changed(self) -> bool:
        """Return whether there are buffered runs, lines, fingerprints or keys."""
        return bool(
            self._opened or self._closed or self._chunks or self._new_keys or any(self._fingerprints.values())
        )

    def differences(self) -> list[Statement]:
        """Return and clear the statements that write buffered runs, lines, fingerprints and keys."""
        opened, closed, chunks = self._opened, self._closed, self._chunks
        fingerprints, keys = self._fingerprints, self._new_keys
        self._opened, self._closed, self._chunks, self._new_keys = [], [], [], {}
        self._fingerprints = {"job": [], "run": []}
        sets = (
            ("insert_runs", columns([(*run.begin_columns, *given) for run, given in opened])),
            ("end_runs", columns([(run.run_id, *run.end_columns) for run in closed])),
            ("append_chunks", columns([*map(tuple, chunks)])),
            ("fingerprint_jobs", columns([*dict(fingerprints["job"]).items()])),
            ("fingerprint_runs", columns([*fingerprints["run"]])),
            ("put_keys", columns([*keys.values()])),
        )
        return [(SQL[name], parameters) for name, parameters in sets if parameters]

    @override
    def put_fingerprint(self, kind: str, number: int, fingerprint: str) -> None:
        self._fingerprints[kind].append((number, fingerprint))

    @override
    def end_of_output(self, run_id: int) -> tuple[int, int]:
        if run_id in self._ends:
            return self._ends[run_id]
        self._write_chunks()
        return super().end_of_output(run_id)

    def _add_chunk(self, chunk: Chunk) -> None:
        self._ends[chunk.run_id] = (chunk.last_seq, chunk.end)
        self._small.pop(chunk.run_id, None)
        self._chunks.append(chunk)

    def _write_chunks(self) -> None:
        """Buffer the chunks as statements, to be sent before the next read."""
        if self._chunks:
            self._transaction.collect()

    @override
    def loose(self, run_id: int) -> list[Chunk]:
        self._write_chunks()
        return super().loose(run_id)

    @override
    def pack(self, chunk: Chunk) -> bool:
        self._write_chunks()
        self._small.pop(chunk.run_id, None)
        return super().pack(chunk)

    def _lines(self, run_id: int, count: int) -> list[str]:
        if run_id in self._small:
            content = self._small[run_id]
            lines = [] if content is None else lines_of(PLAIN, content)
            return [line.text for line in reversed(lines)][:count]
        self._write_chunks()
        return super()._lines(run_id, count)

    @override
    def drop_old(self, moment: datetime) -> bool:
        self._transaction.collect()
        self._forget_ahead()
        return super().drop_old(moment)

    # --- keys --------------------------------------------------------------------------------------------

    @override
    def job_of_key(self, key: str, since: str) -> JobOfKey | None:
        if key not in self._keys:
            return super().job_of_key(key, since)
        used = self._keys[key]
        return used[0] if used is not None and used[1] > since else None

    @override
    def claim_key(self, key: str, job_id: int, holds: str, now: str) -> JobOfKey | None:
        known = self.job_of_key(key, "")  # prefetched
        if known is None:
            self.put_key(key, JobOfKey(job_id, "", holds), now)
        return known

    @override
    def put_key(self, key: str, job: JobOfKey, now: str) -> None:
        self._keys[key] = (job, now)
        self._held = {}
        self._new_keys[key] = (key, job.job_id, now, job.name, job.holds)

    @override
    def unique_key_of(self, job_id: int) -> tuple[str, str] | None:
        return self._held[job_id] if job_id in self._held else super().unique_key_of(job_id)

    # --- workflows ---------------------------------------------------------------------------------------

    def open_workflows(self, rows: list[Row], *, may_wait: bool) -> None:
        """Store the workflows locked at the start of the unit; ``may_wait``: the unit has one command."""
        self._workflows = {row[0]: WorkflowRow._make(row) for row in rows}
        self._may_wait = may_wait

    @override
    def lock_workflow(self, workflow_id: int) -> WorkflowRow | None:
        if workflow_id not in self._workflows:
            sql = SQL["lock_workflow"] if self._may_wait else f"{SQL['lock_workflow']} NOWAIT"
            (rows,) = self._transaction.run_statements((sql, (workflow_id,)))
            if not rows:
                return None
            self._workflows[workflow_id] = WorkflowRow._make(rows[0])
        return self._workflows[workflow_id]

    @override
    def save_workflow(self, workflow: WorkflowRow) -> None:
        super().save_workflow(workflow)
        self._workflows[workflow.workflow_id] = workflow

    @override
    def _add_rows(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            self._transaction.write(SQL[f"{statement}s"], *columns([*map(tuple, rows)]))

    # --- with an epoch -----------------------------------------------------------------------------------

    def raise_epoch(self) -> None:
        """Make all servers drop their cached pauses, drains, tokens and crash list."""
        self._transaction.write(SQL["raise_epoch"])

    def _access_changed(self) -> None:
        """Drop cached tokens and logins, here and on all other servers."""
        super()._access_changed()
        self.raise_epoch()

    @override
    def put_pause(self, pause: PauseRow) -> None:
        super().put_pause(pause)
        self._transaction.write(SQL["pause_regex"], pause.pattern, anchored_regex([pause.pattern]))
        self.raise_epoch()

    @override
    def delete_pause(self, pattern: str) -> None:
        super().delete_pause(pattern)
        self.raise_epoch()

    @override
    def set_limits(self, limits: tuple[Limit, ...]) -> None:
        super().set_limits(limits)
        self.raise_epoch()

    @override
    def set_retention(self, retention: tuple[Retention, ...]) -> None:
        super().set_retention(retention)
        self.raise_epoch()

    @override
    def set_mutes(self, mutes: tuple[Mute, ...]) -> None:
        super().set_mutes(mutes)
        self.raise_epoch()

    @override
    def _see_alike(self, kind: str, mute: Mute) -> None:
        given = (mute.by, mute.since, mute.fingerprint, anchored_regex([mute.pattern]), SEEN_MAX)
        # After the fingerprints of this transaction, which are sent at its end, or before a read.
        self._transaction.run_statements((SQL[f"see_{kind}s_alike"], given))

    def running(self, pattern: str) -> int:
        """Return the number of matching runs in progress; no other server adds one until the commit."""
        lock = SQL["lock_each"], ([self._limits_key],)
        _, ((count,),) = self._transaction.run_statements(
            lock, (SQL["count_running"], (anchored_regex([pattern]),))
        )
        return int(count)

    @override
    def paced(self, pattern: str, key: str = "") -> int:
        if not key:  # takes lock each key on their own, see ``JobLocks``
            self._transaction.run_statements((SQL["lock_each"], ([self._limits_key],)))
        return super().paced(pattern, key)

    @override
    def count_queued(self, pattern: str, most: int) -> int:
        first = literal_prefix(pattern)
        parameters = (first, first + LAST_CHARACTER, anchored_regex([pattern]), most)
        return int(self._transaction.execute(SQL["count_queued"], parameters)[0][0])

    @override
    def put_drain(self, worker: str, by: str, now: str) -> None:
        super().put_drain(worker, by, now)
        self.raise_epoch()

    @override
    def delete_drain(self, worker: str) -> None:
        super().delete_drain(worker)
        self.raise_epoch()

    def crash_patterns(self) -> tuple[str, ...]:
        """Return the GLOB patterns of CrashBedrockJob."""
        if self._crash_patterns is None:
            row = self._transaction.execute(SQL["get_meta"], ("crashPatterns",)).fetchone()
            self._crash_patterns = tuple(json.loads(row[0])) if row else ()
        return self._crash_patterns

    def set_crash_patterns(self, patterns: tuple[str, ...]) -> None:
        """Replace the GLOB patterns of CrashBedrockJob."""
        self._transaction.write(SQL["set_meta"], "crashPatterns", json.dumps(patterns))
        self.raise_epoch()
        self._crash_patterns = None
